"""One Kafka process, broker or controller, of a cluster on this machine."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Final

from aioproducer.testing.kafka.formatted import FormattedDirectory
from aioproducer.testing.kafka.jvm import JavaProgram

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from aioproducer.testing.kafka.jars import KafkaJars
    from aioproducer.testing.kafka.jvm import Recording
    from aioproducer.testing.kafka.process_guard import ProcessGuard

__all__ = ["KafkaNode", "KafkaStartError"]

_FORMAT_TIMEOUT: Final = 120.0
#: A node that lives for seconds takes a fifth less processor time if its code is compiled quickly, and only once.
_QUICK: Final = "-XX:TieredStopAtLevel=1"
_LOG_TAIL: Final = 4000


class KafkaStartError(RuntimeError):
    """Kafka did not start; the message contains the end of its log."""


class KafkaNode:
    """A Kafka process with its properties, data directory and log. It can be started and ended any number of times.

    Every method returns when the action is complete; none of them waits until Kafka is ready.
    """

    def __init__(
        self,
        node_id: int,
        role: str,
        directory: Path,
        properties: Mapping[str, str],
        *,
        jars: KafkaJars,
        heap: str,
        guard: ProcessGuard,
        jvm_options: Sequence[str] = (),
        plugins: Path | None = None,
    ) -> None:
        self.node_id = node_id
        self.data_directory = directory / f"{role}-{node_id}"
        self._name = f"{role.capitalize()} {node_id}"
        self._log_file = directory / f"{role}-{node_id}.log"
        self._properties_file = directory / f"{role}-{node_id}.properties"
        self._guard = guard
        options = ("-Xms64m", f"-Xmx{heap}", _QUICK, *jvm_options)
        self._server = JavaProgram(jars, "kafka.Kafka", role, options=options, plugins=plugins)
        self._storage_tool = JavaProgram(jars, "kafka.tools.StorageTool", "format", options=("-Xmx128m", _QUICK))
        self._process: subprocess.Popen[bytes] | None = None
        self._recording: Recording | None = None
        self._is_paused = False

        lines = [f"{name}={value}" for name, value in {**properties, "log.dirs": str(self.data_directory)}.items()]
        self._properties_file.write_text("\n".join(lines) + "\n")

    @property
    def is_running(self) -> bool:
        """Whether the process is alive; a paused one is."""
        return self._process is not None and self._process.poll() is None

    @property
    def answers(self) -> bool:
        """Whether the process is alive and not paused."""
        return self.is_running and not self._is_paused

    @property
    def pid(self) -> int | None:
        """The process id, None if it is not running."""
        return self._process.pid if self._process is not None and self.is_running else None

    @property
    def is_recording(self) -> bool:
        """Whether this process will write a class archive when it is stopped, for the clusters after it."""
        return self.is_running and self._recording is not None

    @property
    def log(self) -> str:
        """The whole log, over all starts."""
        return self._log_file.read_text(errors="replace") if self._log_file.exists() else ""

    def format(self, cluster_id: str, arguments: Sequence[str]) -> FormattedDirectory:
        """Format the data directory; returns what was written. Raises KafkaStartError if that failed."""
        arguments = ["format", "-t", cluster_id, "-c", str(self._properties_file), *arguments]
        self._wait_formatted(self._launch(self._storage_tool, arguments, record=True))
        return FormattedDirectory.read(self.data_directory)

    def start(self, *, record: bool = False) -> None:
        """Start the process."""
        self._launch(self._server, [str(self._properties_file)], record=record)

    def use(self, jars: KafkaJars) -> None:
        """Run these jars from the next start on, with the same data and properties."""
        self._server = dataclasses.replace(self._server, jars=jars)

    def check(self) -> None:
        """Raise KafkaStartError if the process has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            raise KafkaStartError(f"{self._name} ended with exit code {self._process.returncode}.\n{self.log_tail}")

    @property
    def log_tail(self) -> str:
        """The end of the log, for error messages."""
        return f"The end of its log:\n{self.log.strip()[-_LOG_TAIL:]}"

    def kill(self) -> None:
        """SIGKILL: Kafka does not clean up; data that the operating system has are kept."""
        if self._process is not None:
            self._process.kill()
        self.reap()

    def terminate(self, timeout: float) -> None:
        """SIGTERM, Kafka's clean shutdown; SIGKILL if that takes longer than ``timeout`` seconds."""
        if self._process is not None and self.is_running:
            self.resume()
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout)
        self.kill()

    def pause(self) -> None:
        """SIGSTOP: connections stay open, without responses. Returns when the last thread has stopped."""
        self._signal(signal.SIGSTOP)
        self._is_paused = True
        if self._process is not None:
            os.waitid(
                os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT
            )  # reported once all have stopped

    def resume(self) -> None:
        """SIGCONT after ``pause``."""
        self._signal(signal.SIGCONT)
        self._is_paused = False

    def reap(self) -> None:
        """Reap a killed process."""
        if self._process is not None:
            exit_code = self._process.wait()
            self._settle_recording(written=exit_code != -signal.SIGKILL)
        self._process = None
        self._is_paused = False

    def _launch(self, program: JavaProgram, arguments: Sequence[str], *, record: bool) -> subprocess.Popen[bytes]:
        if record:
            command, self._recording = program.command(*arguments)
        else:
            command = program.command_without_recording(*arguments)
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=self._guard.group,
            )
        return self._process

    def _wait_formatted(self, process: subprocess.Popen[bytes]) -> None:
        try:
            process.wait(_FORMAT_TIMEOUT)
        except subprocess.TimeoutExpired as error:
            raise KafkaStartError(
                f"{self._name} was not formatted within {_FORMAT_TIMEOUT:g} s.\n{self.log_tail}"
            ) from error
        if process.returncode != 0:
            raise KafkaStartError(f"{self._name} could not be formatted.\n{self.log_tail}")
        self.reap()

    def _settle_recording(self, *, written: bool) -> None:
        if self._recording is not None:
            (self._recording.keep if written else self._recording.discard)()
        self._recording = None

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None or not self.is_running:
            raise RuntimeError(f"{self._name} is not running, so {number.name} cannot be sent; start it first.")
        self._process.send_signal(number)
