"""Command lines for Java programs on Kafka's jars, each with a class archive, which cuts start-up time to a third.

The JVM can record the classes that a program loads (application class data sharing) and map them the next time. One
controller and one broker were ready 3.7 s after their start with such archives, and after 9.5 s without.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aioproducer.testing.kafka.jars import cache_directory

if TYPE_CHECKING:
    from aioproducer.testing.kafka.jars import KafkaJars

__all__ = ["SOURCES", "JavaProgram", "Recording"]

#: Our own Java sources and the log4j2 configuration, beside this file.
SOURCES: Final = Path(__file__).parent / "java"

_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",  # so that a JVM without class archives works as well
    "-XX:+UseSerialGC",
    "-XX:ActiveProcessorCount=1",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.awt.headless=true",
    f"-Dlog4j2.configurationFile={SOURCES / 'log4j2.properties'}",
)


@dataclass(frozen=True, slots=True)
class Recording:
    """A class archive that a running JVM will write when it exits by itself."""

    written_to: Path
    archive: Path

    def keep(self) -> None:
        """Let later JVMs use it. Call it after the JVM has exited."""
        with contextlib.suppress(FileNotFoundError):  # this JVM cannot write archives
            self.written_to.replace(self.archive)

    def discard(self) -> None:
        """Remove the partial archive of a killed JVM."""
        self.written_to.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class JavaProgram:
    """A main class on the jars. ``role`` is its purpose: each role loads different classes."""

    jars: KafkaJars
    main: str
    role: str
    #: A directory of our compiled classes, after the jars.
    classes: Path | None = None
    options: tuple[str, ...] = ("-Xms64m", "-Xmx256m")
    #: A jar that is not in the archives: a class path may go on after that of its archive.
    plugins: Path | None = None

    def command(self, *arguments: str) -> tuple[list[str], Recording | None]:
        """The command line, and the recording if no archive exists yet."""
        archive = self._archive
        is_recorded = self.plugins is not None or archive.exists()
        recording = None if is_recorded else Recording(archive.with_suffix(f".{uuid.uuid4().hex}"), archive)
        if recording is None:
            sharing = f"-XX:SharedArchiveFile={archive}"
        else:
            archive.parent.mkdir(parents=True, exist_ok=True)
            sharing = f"-XX:ArchiveClassesAtExit={recording.written_to}"
        java = [self.jars.java.executable, *_OPTIONS, "-Xlog:cds=off", "-Xlog:cds+dynamic=off", sharing, *self.options]
        path = self._classpath if self.plugins is None else os.pathsep.join([self._classpath, str(self.plugins)])
        return [*java, "-cp", path, self.main, *arguments], recording

    def command_without_recording(self, *arguments: str) -> list[str]:
        """The same for a JVM that will be killed, or runs in parallel with the recording one."""
        command, recording = self.command(*arguments)
        if recording is not None:
            command.remove(f"-XX:ArchiveClassesAtExit={recording.written_to}")
        return command

    @property
    def _classpath(self) -> str:
        own = [] if self.classes is None else [str(self.classes)]
        # The JVM refuses archives if the class path has a non-empty directory, so the classes are in a jar.
        return os.pathsep.join([self.jars.classpath, *own])

    @property
    def _archive(self) -> Path:
        what = "\n".join((self.jars.java.executable, self.jars.java.version, self._classpath, self.main, self.role))
        return cache_directory() / "cds" / f"{self.role}-{hashlib.sha256(what.encode()).hexdigest()[:16]}.jsa"
