"""A real schema registry: Apicurio Registry in memory, whose distribution Maven fetches once."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Generator
from pathlib import Path
from typing import Final

from aioproducer.testing.kafka.jars import DEFAULT_KAFKA_VERSION, Java, KafkaUnavailable, cache_directory, locked
from aioproducer.testing.kafka.process_guard import ProcessGuard

__all__ = ["ApicurioUnavailable", "running_apicurio"]

#: Of the last line that runs on Java 17, as Kafka does: 3.3 needs Java 21.
_VERSION: Final = "2.6.13.Final"
_ARTIFACT: Final = f"io.apicurio:apicurio-registry-app:{_VERSION}:tar.gz:all"
_PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
_RUNNER: Final = f"apicurio-registry-app-{_VERSION}-runner.jar"
_API: Final = "/apis/ccompat/v7"
_FETCH_TIMEOUT: Final = 400.0
_START_TIMEOUT: Final = 120.0
_POLL_INTERVAL: Final = 0.05
_LISTENING: Final = re.compile(r"Listening on: (http://127\.0\.0\.1:\d+)")
_OPTIONS: Final = (
    "-Xms64m",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dquarkus.http.host=127.0.0.1",
    "-Dquarkus.http.port=0",  # any free one; the log has it
    "-Dquarkus.datasource.jdbc.initial-size=1",
    "-Dquarkus.datasource.jdbc.min-size=1",
)


class ApicurioUnavailable(RuntimeError):
    """Apicurio Registry cannot run on this machine; the message has the reason."""


@contextlib.contextmanager
def running_apicurio(directory: Path) -> Generator[str, None, None]:
    """The URL of a registry's API as Confluent has it, with its log in ``directory``.

    The process does not outlive this one, however it ends. Raises `ApicurioUnavailable` if Java, Maven or the network is
    missing, RuntimeError with the log's end if the registry does not serve within two minutes.
    """
    try:
        java = Java.find(DEFAULT_KAFKA_VERSION)
    except KafkaUnavailable as error:
        raise ApicurioUnavailable(f"Apicurio Registry needs the Java of Kafka: {error}") from error
    runner = _distribution() / _RUNNER
    temporary = directory / "tmp"
    temporary.mkdir()
    log = directory / "apicurio.log"
    command = [java.executable, *_OPTIONS, f"-Djava.io.tmpdir={temporary}", "-jar", str(runner)]
    guard = ProcessGuard(temporary)
    try:
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=guard.group,
            )
        try:
            yield _ready(process, log)
        finally:
            process.kill()
            process.wait()
    finally:
        guard.kill()


def _ready(process: subprocess.Popen[bytes], log: Path) -> str:
    """The URL, once the registry responds there."""
    deadline = time.monotonic() + _START_TIMEOUT
    while time.monotonic() < deadline and process.poll() is None:
        found = _LISTENING.search(log.read_text(errors="replace"))
        if found is not None and _responds(f"{found.group(1)}{_API}/subjects"):
            return found.group(1) + _API
        time.sleep(_POLL_INTERVAL)
    raise RuntimeError(
        f"Apicurio Registry does not serve. The end of its log:\n{log.read_text(errors='replace')[-4000:]}"
    )


def _responds(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=10) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def _distribution() -> Path:
    """The directory of the runner and its jars, fetched if necessary: 142 MB, and as many in Maven's repository."""
    directory = cache_directory() / f"apicurio-registry-{_VERSION}"
    with locked(cache_directory() / "fetch.lock"):  # also that of Kafka's jars: one Maven at a time
        if not directory.is_dir():
            _fetch(directory)
    return directory


def _fetch(directory: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise ApicurioUnavailable("Apicurio Registry is fetched with Maven, and there is no `mvn`; install it.")
    with tempfile.TemporaryDirectory(prefix=f"{directory.name}.", dir=directory.parent) as work:
        unpacked = Path(work) / "unpacked"
        unpack = [maven, "-q", "-B", f"{_PLUGIN}:unpack", f"-Dartifact={_ARTIFACT}", f"-DoutputDirectory={unpacked}"]
        try:
            done = subprocess.run(unpack, cwd=work, capture_output=True, text=True, timeout=_FETCH_TIMEOUT, check=False)
        except subprocess.TimeoutExpired as error:
            raise ApicurioUnavailable(f"Maven did not fetch {_ARTIFACT} within {_FETCH_TIMEOUT:g} s.") from error
        if done.returncode != 0:
            raise ApicurioUnavailable(f"{_ARTIFACT} cannot be fetched: {done.stdout.strip()[-1000:]}")
        unpacked.rename(directory)
