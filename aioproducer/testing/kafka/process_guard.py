"""Kills a group of processes, and removes their directory, when the process that started them ends in any way."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ProcessGuard"]

#: Reads from a pipe without writers: the read ends when the pipe's other end is closed, even by a SIGKILL.
#: Linux' PDEATHSIG is unsuitable: it is sent when the *thread* that started the child ends. SIGALRM ends a JVM at once,
#: while the guard, which ignores it, stays alive to remove the directory.
_SCRIPT: Final = """
trap '' ALRM HUP INT TERM
read -r nothing
kill -CONT 0
kill -ALRM 0
sleep 1
rm -rf -- "$1"
kill -KILL 0
"""


class ProcessGuard:
    """A process group whose members do not outlive this process.

    It is a separate group, so that a Ctrl-C in the terminal reaches the test run but not the brokers.
    """

    def __init__(self, directory: Path) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, "process-guard", str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )

    @property
    def group(self) -> int:
        """The process group that members are started in (``Popen(..., process_group=guard.group)``)."""
        return self._shell.pid

    def kill(self) -> None:
        """SIGKILL to every member and to the guard itself. The caller must still wait for the members."""
        if self._shell.returncode is None:
            os.killpg(self.group, signal.SIGKILL)
            self._shell.wait()
        if self._shell.stdin is not None:
            self._shell.stdin.close()
