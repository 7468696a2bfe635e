"""A Spark session for a command: quiet, without the web UI, with this Python in its workers; and its requirements."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from aioproducer.spark.session.errors import cause_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkMissing", "SparkNotStarted", "check_spark", "end_message", "spark_session"]

_JAVA: Final = 17

#: A connection to the JVM breaks up to this many seconds before the operating system reports the end of the process.
_TO_END: Final = 1.0
_SETTINGS: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.session.timeZone": "UTC",
    "spark.api.mode": "classic",  # some distributions of PySpark, and SPARK_CONNECT_MODE=1, default to Spark Connect
}
#: A local master must not be reachable from other machines, and the machine's own name may not be resolvable.
_LOCAL_SETTINGS: Final[Mapping[str, str]] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


class SparkMissing(Exception):
    """PySpark or Java is missing; the message says what to install."""


class SparkNotStarted(Exception):
    """Spark did not start; the message holds Spark's error."""


def check_spark(purpose: str) -> None:
    """Raise SparkMissing if PySpark or Java is missing; ``purpose`` begins the message."""
    try:
        there = find_spec("pyspark") is not None
    except ValueError:  # a stand-in without a spec is in sys.modules
        there = sys.modules.get("pyspark") is not None
    if not there:
        raise SparkMissing(
            f"{purpose} needs PySpark, which is not installed. Install with: pip install 'aioproducer[spark-local]' "
            "(about 460 MB), or run this with your cluster's Python, which has it."
        )
    version = _java_version()
    if version is None or version < _JAVA:
        found = "was not found" if version is None else f"is version {version}"
        raise SparkMissing(
            f"{purpose} needs Java {_JAVA} or later, and Java {found} (looked in JAVA_HOME, then in PATH). Install "
            "a JDK or JRE, for example openjdk-17-jre-headless, or set JAVA_HOME to one."
        )


@contextmanager
def spark_session(
    name: str, master: str, memory: str, settings: Mapping[str, str]
) -> Generator[SparkSession, None, None]:
    """A session with that master and driver memory; stopped when the block ends. Raises SparkNotStarted."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    is_local = master.startswith("local")
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(master).appName(name)
    chosen = {**_SETTINGS, **(_LOCAL_SETTINGS if is_local else {}), "spark.driver.memory": memory, **settings}
    for key, value in chosen.items():
        builder = builder.config(key, value)
    try:
        with _interrupted_afterwards():
            session = builder.getOrCreate()
    except Exception as error:  # from PySpark, Py4J or Spark, for any kind of wrong setting
        raise SparkNotStarted(_why_not_started(error, master)) from error
    context: Any = session.sparkContext
    # A PySpark thread would print a stack trace when the JVM ends; the waiting caller gets the error anyway.
    context._accumulatorServer.handle_error = _ignore_error
    try:
        yield session
    finally:
        if _exit_status(session, seconds=0) is None:
            session.stop()


def _why_not_started(error: BaseException, master: str) -> str:
    """If a master does not answer, Spark only reports that the context was stopped."""
    cause = cause_of(error)
    if "stopped SparkContext" not in cause or not master.startswith("spark://"):
        return cause
    return f"No master answered at {master}. Is it running, and can it be reached from here?"


@contextmanager
def _interrupted_afterwards() -> Generator[None, None, None]:
    """Delay Ctrl-C until the block is left; a second one is not delayed.

    If interrupted, PySpark forgets the JVM that it was starting, which then prints a stack trace and runs forever. Once
    started, the JVM ends with this process, and PySpark handles the signal itself.
    """
    if current_thread() is not main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    pressed: list[int] = []

    def wait(number: int, frame: FrameType | None) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    signal.signal(signal.SIGINT, wait)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is wait:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    if pressed:
        raise KeyboardInterrupt


def end_message(session: SparkSession) -> str | None:
    """The message for an error after the JVM has ended, which the error itself does not mention; None if it is alive."""
    status = _exit_status(session)
    if status is None:
        return None
    return (
        f"Spark's Java process ended before its work was done (exit status {status}): it was killed, or it ran out of "
        "memory (raise --driver-memory), or the machine did."
    )


def _exit_status(session: SparkSession, seconds: float = _TO_END) -> int | None:
    """The JVM's exit status, waiting up to ``seconds``; None if it is alive, or was not started by this process."""
    context: Any = session.sparkContext
    process: subprocess.Popen[bytes] | None = context._gateway.proc
    if process is None:
        return None
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def _ignore_error(request: object, address: object) -> None:
    """Replaces `socketserver.BaseServer.handle_error`."""


def _java_version() -> int | None:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None or not Path(java).exists():
        return None
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(found[1]) if found is not None else None
