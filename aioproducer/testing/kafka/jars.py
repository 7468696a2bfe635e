"""Apache Kafka's jars of one version, downloaded once from Maven Central into the user's cache directory."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["DEFAULT_KAFKA_VERSION", "JARS_VARIABLE", "OLDER_KAFKA_VERSION", "Java", "KafkaJars", "KafkaUnavailable"]

#: The default Kafka version for tests.
DEFAULT_KAFKA_VERSION: Final = "4.3.1"
#: The last line before 4.0: transactions without KIP-890's second part.
OLDER_KAFKA_VERSION: Final = "3.9.2"
#: The environment variable for a directory with the jars; then nothing is downloaded.
JARS_VARIABLE: Final = "AIOPRODUCER_KAFKA_JARS"

_JAVA_NEEDED = 17
_FETCH_TIMEOUT = 900.0

#: Kafka 3.9 does not depend on log4j2, and its log4j 1 binding would take precedence, hence the exclusions.
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>aioproducer.testing</groupId>
  <artifactId>kafka-jars</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <build>
    <plugins>
      <plugin>
        <groupId>org.apache.maven.plugins</groupId>
        <artifactId>maven-dependency-plugin</artifactId>
        <version>3.8.1</version>
      </plugin>
    </plugins>
  </build>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY = """\
    <dependency>
      <groupId>{group}</groupId>
      <artifactId>{artifact}</artifactId>
      <version>{version}</version>
      <exclusions>
        <exclusion><groupId>org.slf4j</groupId><artifactId>slf4j-reload4j</artifactId></exclusion>
        <exclusion><groupId>ch.qos.reload4j</groupId><artifactId>reload4j</artifactId></exclusion>
      </exclusions>
    </dependency>"""
_LOG4J_VERSION = "2.25.4"
_LOG4J_ARTIFACTS = ("log4j-slf4j-impl", "log4j-core", "log4j-1.2-api")
_KAFKA_ARTIFACTS = ("kafka_2.13", "kafka-tools")


class KafkaUnavailable(RuntimeError):
    """Kafka cannot run on this machine; the message says what is missing and how to get it."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java installation that can run Kafka's brokers."""

    executable: str
    #: As printed by the JVM, for example ``17.0.15``.
    version: str

    @staticmethod
    def find(kafka_version: str) -> Java:
        """The Java of ``JAVA_HOME``, else the first one on the ``PATH``; messages name the version of Kafka that needs it.

        Raises KafkaUnavailable if there is none, or it is older than 17.
        """
        home = os.environ.get("JAVA_HOME")
        executable = shutil.which("java", path=f"{home}/bin") if home else None
        executable = executable or shutil.which("java")
        if executable is None:
            raise KafkaUnavailable(
                f"Kafka {kafka_version} needs Java {_JAVA_NEEDED} or newer, but there is no `java` in PATH or JAVA_HOME; "
                "install a JDK (for example `apt-get install openjdk-17-jdk-headless`)."
            )
        java = Java(executable, _java_version(executable))
        major = int(java.version.split(".")[0])
        if major < _JAVA_NEEDED:
            raise KafkaUnavailable(
                f"Kafka {kafka_version} needs Java {_JAVA_NEEDED} or newer, but {executable} is Java {java.version}; "
                "install a newer JDK and set JAVA_HOME to it."
            )
        return java


@dataclass(frozen=True, slots=True)
class KafkaJars:
    """The jars of one Kafka version: broker, tools and clients."""

    version: str
    directory: Path
    java: Java

    @staticmethod
    def get(version: str = DEFAULT_KAFKA_VERSION) -> KafkaJars:
        """The jars of that version, downloaded with Maven if they are not in the cache (about 60 MB).

        Concurrent processes wait for each other, and an interrupted download leaves nothing behind. Raises
        KafkaUnavailable if Java, Maven or the network is missing.
        """
        java = Java.find(version)
        given = os.environ.get(JARS_VARIABLE)
        directory = _given_directory(Path(given), version) if given else _fetched_directory(version)
        return KafkaJars(version, directory, java)

    @property
    def classpath(self) -> str:
        """All jars by name, in a fixed order: a JVM class archive is only valid for exactly that list."""
        return os.pathsep.join(str(jar) for jar in sorted(self.directory.glob("*.jar")))


def cache_directory() -> Path:
    """The cache of aioproducer: ``$XDG_CACHE_HOME/aioproducer`` or ``~/.cache/aioproducer``."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "aioproducer"


@contextlib.contextmanager
def locked(path: Path) -> Generator[None, None, None]:
    """Holds an advisory lock on that file, which is created if missing; other processes and threads wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@functools.cache
def _java_version(executable: str) -> str:
    try:
        done = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KafkaUnavailable(f"`{executable} -version` failed: {error}. Set JAVA_HOME to a JDK.") from error
    found = re.search(r'version "([0-9][0-9._]*)', done.stderr + done.stdout)
    if found is None:
        raise KafkaUnavailable(
            f"`{executable} -version` prints no version: {done.stderr.strip()!r}. Set JAVA_HOME to a JDK."
        )
    return found.group(1)


def _given_directory(directory: Path, version: str) -> Path:
    if next(directory.glob(f"kafka-clients-{version}.jar"), None) is None:
        raise KafkaUnavailable(
            f"{JARS_VARIABLE} is {directory}, which has no kafka-clients-{version}.jar; unset the variable to download "
            "the jars of that version, or set it to a directory with all of them."
        )
    return directory


def _fetched_directory(version: str) -> Path:
    directory = cache_directory() / f"kafka-{version}"
    if directory.is_dir():
        return directory
    # Maven's own repository does not support concurrent Mavens, so there is one lock for all versions.
    with locked(cache_directory() / "fetch.lock"):
        if not directory.is_dir():
            _fetch(version, directory)
    return directory


def _fetch(version: str, directory: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaUnavailable(
            f"The jars of Kafka {version} are not in {directory}, and there is no `mvn` to download them; install "
            f"Maven (for example `apt-get install maven`), or set {JARS_VARIABLE} to a directory that has them."
        )
    with tempfile.TemporaryDirectory(prefix=f"kafka-{version}.", dir=directory.parent) as work:
        jars = Path(work) / "jars"
        (Path(work) / "pom.xml").write_text(_pom(version))
        _run_maven([maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={jars}"], work, version)
        jars.rename(directory)


def _run_maven(command: list[str], work: str, version: str) -> None:
    try:
        done = subprocess.run(
            [*command, "-DincludeScope=runtime"],
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_FETCH_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise KafkaUnavailable(
            f"Maven did not download the jars of Kafka {version} within {_FETCH_TIMEOUT:g} s; is Maven Central, or the "
            "mirror in ~/.m2/settings.xml, reachable?"
        ) from error
    if done.returncode != 0:
        raise KafkaUnavailable(
            f"Maven could not download the jars of Kafka {version} (exit code {done.returncode}): "
            f"{done.stdout.strip()[-1000:]}"
        )


def _pom(version: str) -> str:
    wanted = [("org.apache.kafka", name, version) for name in _KAFKA_ARTIFACTS]
    wanted += [("org.apache.logging.log4j", name, _LOG4J_VERSION) for name in _LOG4J_ARTIFACTS]
    return _POM.format(dependencies="\n".join(_DEPENDENCY.format(group=g, artifact=a, version=v) for g, a, v in wanted))
