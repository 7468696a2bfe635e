"""Refuses sockets and other programs to the tests of the lowest tier, so that it stays quick and the same everywhere."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Refused", "refused_sockets"]

#: Of Python's audit events those that reach out of the process. An event loop's pair of sockets stays inside.
_REFUSED = frozenset({"socket.bind", "socket.connect", "socket.getaddrinfo", "socket.sendto", "subprocess.Popen"})


class Refused(RuntimeError):
    """The test is in the tier `seam`, and reached out of its process."""


class _Guard:
    """The interpreter's audit hook, which cannot be taken out again: it is there once, and asleep between the tests."""

    def __init__(self) -> None:
        self.seen: list[str] | None = None
        self._others: frozenset[int] = frozenset()
        sys.addaudithook(self._look)

    def begin(self) -> list[str]:
        """Refuse from now on; returns the list of what was tried. Threads of earlier tests may go on."""
        others = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}
        self._others = frozenset(ident for ident in others if ident is not None)
        self.seen = []
        return self.seen

    def end(self) -> None:
        """Let everything pass."""
        self.seen = None

    def _look(self, event: str, args: object) -> None:
        if event not in _REFUSED or self.seen is None or threading.get_ident() in self._others:
            return
        self.seen.append(event)
        raise Refused(f"{event}: a test of the tier `seam` opens no socket and starts no program; see tests/tiers.py.")


_guard: list[_Guard] = []


@contextmanager
def refused_sockets() -> Iterator[list[str]]:
    """Refuse in this block; gives the list of what was tried, as the code under test may swallow the refusal."""
    if not _guard:
        _guard.append(_Guard())
    try:
        yield _guard[0].begin()
    finally:
        _guard[0].end()
