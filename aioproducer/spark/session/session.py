"""A Spark session for a command: quiet, without its web pages, with this Python in its workers; and what it needs."""

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

__all__ = ["SparkMissing", "SparkNotStarted", "check_spark", "spark_session", "told_of_end"]

_JAVA: Final = 17

#: A connection to the JVM breaks before the operating system reports that the process has ended; so long at most.
_TO_END: Final = 1.0
_SETTINGS: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.session.timeZone": "UTC",
    "spark.api.mode": "classic",  # in some distributions of PySpark, and with SPARK_CONNECT_MODE=1, it is Spark Connect
}
#: On one machine nobody else is to reach it, and the command may run where no name of the machine can be resolved.
_LOCAL_SETTINGS: Final[Mapping[str, str]] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


class SparkMissing(Exception):
    """PySpark or Java is not there; the message says what to install."""


class SparkNotStarted(Exception):
    """Spark was asked to start and did not; the message says what it had to say to that."""


def check_spark(purpose: str) -> None:
    """Raise SparkMissing where ``purpose`` (the beginning of a sentence) cannot be, for want of PySpark or Java."""
    try:
        there = find_spec("pyspark") is not None
    except ValueError:  # somebody put a stand-in without a spec into sys.modules
        there = sys.modules.get("pyspark") is not None
    if not there:
        raise SparkMissing(
            f"{purpose} needs PySpark, which is not installed. Install with: pip install 'aioproducer[spark-local]' "
            "(about 460 MB), or run this with the Python of your cluster, which has it."
        )
    version = _java_version()
    if version is None or version < _JAVA:
        found = "was not found" if version is None else f"is version {version}"
        raise SparkMissing(
            f"{purpose} needs Java {_JAVA} or later, and Java {found} here (looked in JAVA_HOME, then in PATH). Install "
            "a JDK or JRE, for example openjdk-17-jre-headless, or set JAVA_HOME to one."
        )


@contextmanager
def spark_session(
    name: str, master: str, memory: str, settings: Mapping[str, str]
) -> Generator[SparkSession, None, None]:
    """A session of that master, with so much memory for the driver; stopped when the block ends. Raises SparkNotStarted."""
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
    except Exception as error:  # of PySpark, of Py4J or of its own code, for whatever the settings do to it
        raise SparkNotStarted(_why_not_started(error, master)) from error
    context: Any = session.sparkContext
    # A thread of PySpark's would print a stack trace where the JVM ends; whoever waits for that hears of it.
    context._accumulatorServer.handle_error = _say_nothing
    try:
        yield session
    finally:
        if _exit_status(session, seconds=0) is None:
            session.stop()


def _why_not_started(error: BaseException, master: str) -> str:
    """A master that does not answer stops the context meanwhile, which is all that is told then."""
    cause = cause_of(error)
    if "stopped SparkContext" not in cause or not master.startswith("spark://"):
        return cause
    return f"No master has answered at {master}. Does it run there, and can it be reached from here?"


@contextmanager
def _interrupted_afterwards() -> Generator[None, None, None]:
    """Let Ctrl-C wait until the block is left; a second one does not.

    PySpark forgets a JVM that it was starting, which prints a stack trace then and runs on for ever. Once it has started, it
    ends with this process; PySpark minds the signal itself by then.
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


def told_of_end(session: SparkSession) -> str | None:
    """What to say of an error where the JVM has ended, which the error itself does not tell; None where it goes on."""
    status = _exit_status(session)
    if status is None:
        return None
    return (
        f"Spark's Java process has ended before its work was done (exit status {status}): it was killed, or its memory "
        "was not enough (--driver-memory gives it more), or the machine's was not."
    )


def _exit_status(session: SparkSession, seconds: float = _TO_END) -> int | None:
    """That of the JVM, which is waited for so long; None where it goes on, or was not started from here."""
    context: Any = session.sparkContext
    process: subprocess.Popen[bytes] | None = context._gateway.proc
    if process is None:
        return None
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def _say_nothing(request: object, address: object) -> None:
    """In place of `socketserver.BaseServer.handle_error`."""


def _java_version() -> int | None:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None or not Path(java).exists():
        return None
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    return int(found[1]) if found is not None else None
