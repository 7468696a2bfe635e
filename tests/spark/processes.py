"""Finds the processes that Spark starts, as Linux lists them, and ends them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

__all__ = ["command_of", "environment_of", "java_of", "kill", "parent_of", "processes", "python_workers_of"]


def processes() -> Iterator[int]:
    """The ids of all processes."""
    return (int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal())


def environment_of(pid: int) -> Mapping[str, str]:
    """The variables with which it was started; none where it has ended, or belongs to another user."""
    with suppress(OSError):
        pairs = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
        return dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    return {}


def command_of(pid: int) -> str:
    """Its command line; empty where it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def java_of(pid: int) -> int | None:
    """The JVM that this process has started for PySpark, once it has."""
    return next((each for each in processes() if parent_of(each) == pid and "SparkSubmit" in command_of(each)), None)


def python_workers_of(jvm: int) -> Sequence[int]:
    """The processes that run Python for the tasks of this JVM, or are ready to: a daemon of it has forked them."""
    return [pid for pid in processes() if "pyspark.daemon" in command_of(pid) and parent_of(parent_of(pid)) == jvm]


def kill(pid: int) -> None:
    """SIGKILL, where it still runs."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def parent_of(pid: int) -> int:
    """The process that started it, or has taken it over; 0 where it has ended."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0
