"""Counts outcomes of records, so that the log has one line for thousands of them.

An outage fails batches by the thousand, and a program may drop its deliveries one by one. Outcomes within one turn of the
event loop are one line; the next line comes a second later at the earliest. When the event loop is closed no timer can run:
the first failure is logged at once, and the rest a second later or, if no more follow, when the last delivery is gone.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from math import inf
from typing import Final, NamedTuple

from aioproducer.runtime.log import ClientLog

__all__ = ["LogKey", "Tally"]

#: The shortest time between two lines about the same outcome, in seconds.
_PAUSE_S: Final = 1.0


class LogKey(NamedTuple):
    """An outcome of a topic's records, its log level, and the kind of its cause; each one has its own line."""

    topic: str
    what: str
    level: int
    cause: str = ""


class _Count(NamedTuple):
    records: int
    why: str  # the text of the last one


class Tally:
    """Counts and logs the outcomes of one producer's records."""

    def __init__(self, loop: asyncio.AbstractEventLoop, log: ClientLog) -> None:
        self._loop = loop
        self._log = log
        self._counts: dict[LogKey, _Count] = {}
        self._handle: asyncio.Handle | None = None
        self._not_before = -inf  # in the event loop's time
        self._pid = os.getpid()
        self._late: deque[tuple[LogKey, _Count]] = deque()
        self._late_not_before = -inf  # in `time.monotonic`'s time

    def add(self, key: LogKey, records: int, why: str) -> None:
        """Count these records; only in the event loop's thread."""
        self._counts[key] = _Count(self._records(key) + records, why)
        if self._handle is not None:
            return
        if self._loop.time() >= self._not_before:
            self._handle = self._loop.call_soon(self._log_due)
        else:
            self._handle = self._loop.call_at(self._not_before, self._log_due)

    def add_without_loop(self, key: LogKey, records: int, why: str) -> None:
        """Count these records when the event loop is closed; may be called in any thread, also by a finalizer."""
        self._late.append((key, _Count(records, why)))
        now = time.monotonic()
        if now >= self._late_not_before:
            self._late_not_before = now + _PAUSE_S
            self._log_late()

    def close(self) -> None:
        """Log the current counts, and begin new ones."""
        self._log_all()
        self._not_before = -inf

    def _log_due(self) -> None:
        self._not_before = self._loop.time() + _PAUSE_S
        self._log_all()

    def _log_all(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        counts, self._counts = self._counts, {}
        for key, count in counts.items():
            end = f": {count.why}" if count.why else ""
            line = "%d record(s) for topic %r %s%s"
            self._log.log(key.level, line, count.records, key.topic, key.what, end, extra={"topic": key.topic})

    def _log_late(self) -> None:
        late = self._late
        while late:  # another thread is logging the others
            key, (records, why) = late.popleft()
            self._counts[key] = _Count(self._records(key) + records, why)
        self._log_all()

    def _records(self, key: LogKey) -> int:
        counted = self._counts.get(key)
        return 0 if counted is None else counted.records

    def __del__(self) -> None:
        """All deliveries that could report another failure are gone; counts from before a fork are the parent's."""
        if os.getpid() == self._pid:
            self._log_late()
