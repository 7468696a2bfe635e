"""Ends a group of processes, and removes their directory, when the process that started them ends - however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ProcessGuard"]

#: Reads from a pipe that nobody writes to: the read ends when the pipe's other end is gone, even after a SIGKILL.
#: Linux' PDEATHSIG would not do: it fires when the *thread* that started the child ends. SIGALRM ends a JVM at once and
#: lets the guard, which ignores it, live on to remove the directory.
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

    The group is its own, so that a Ctrl-C in the terminal reaches the test run and not the brokers.
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
        """SIGKILL to every member and to the guard itself. Members must still be waited for by who started them."""
        if self._shell.returncode is None:
            os.killpg(self.group, signal.SIGKILL)
            self._shell.wait()
        if self._shell.stdin is not None:
            self._shell.stdin.close()
