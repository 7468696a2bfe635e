"""Measures how late the event loop runs, with a timer that beats only while there is something to wait for.

A blocked event loop looks like a slow broker: responses are read late, timeouts expire. Nothing in the process can see the
block itself, but a timer that was due in it runs late by nearly as much.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from aioproducer.runtime.log import ClientLog

__all__ = ["BEAT_S", "Pulse"]

#: The time between two beats, in seconds. A block is measured up to this much too short.
BEAT_S: Final = 0.1
#: The pulse stops after so many beats without work, so that an idle producer wakes nothing.
_LAST_BEATS: Final = 30
#: Shorter blocks are not remembered, and shorter sums not named in messages, in seconds.
_NOTED_S: Final = 0.25
_LONG_S: Final = 1.0
_SHARE_OF_A_REASON: Final = 0.5
_MOST_STALLS: Final = 64


class Pulse:
    """The timer.

    ``is_needed`` says whether something has waited for a broker, ``on_beat(lag)`` gets each delay in seconds, and
    ``on_change()`` is called when the pulse begins, and when it rests.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        log: ClientLog,
        is_needed: Callable[[], bool],
        on_beat: Callable[[float], object],
        on_change: Callable[[], object],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.is_still = True
        #: In tests another one. Not that of the event loop, which tests put forward without blocking anything.
        self.clock = clock
        self._loop = loop
        self._log = log
        self._is_needed = is_needed
        self._on_beat = on_beat
        self._on_change = on_change
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0  # in the clock's time
        self._beats_without_work = 0
        #: From when to when, in the event loop's time; replaced as one, for readers in other threads.
        self._stalls: tuple[tuple[float, float], ...] = ()
        self._reported_to = 0.0

    def start(self) -> None:
        """Beat until nothing has been needed for a while. Call this whenever a wait begins."""
        self._beats_without_work = 0
        if self.is_still:
            self.is_still = False
            self._on_change()
            self._schedule()

    def stop(self) -> None:
        """Beat no more."""
        self.is_still = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        self._due = self.clock() + BEAT_S
        self._timer = self._loop.call_later(BEAT_S, self._beat)

    def _beat(self) -> None:
        lag = self._overdue()
        self._due = self.clock() + BEAT_S  # first, so that no other thread counts the block twice
        self._on_beat(lag)
        if lag >= _NOTED_S:
            now = self._loop.time()
            self._stalls = (*self._stalls[-_MOST_STALLS + 1 :], (now - lag, now))
        self._beats_without_work = 0 if self._is_needed() else self._beats_without_work + 1
        if self._beats_without_work < _LAST_BEATS:
            self._schedule()
        else:
            self.stop()
            self._on_change()

    def _overdue(self) -> float:
        return max(0.0, self.clock() - self._due)

    def blame(self, began: float, now: float) -> str:
        """The sentence for a message about something late if the event loop was blocked for long, else an empty text.

        Both times are of the event loop. For any thread. The block is the reason if it took at least half of the time; the
        first time that one is, the log has it as well.
        """
        stalls = self._stalls
        if self._timer is not None and (lag := self._overdue()) >= _NOTED_S:  # the beat has not run yet
            stalls = (*stalls, (now - lag, now))
        seconds = sum(max(0.0, min(end, now) - max(start, began)) for start, end in stalls)
        if seconds < _LONG_S:
            return ""
        sentence = f"The event loop was blocked for {seconds:.1f} s of that time"
        if seconds < _SHARE_OF_A_REASON * (now - began):
            return f"{sentence}."
        if stalls[-1][0] > self._reported_to:
            self._reported_to = now
            self._log.warning(
                "The event loop was blocked for %.1f s, and records were late because of it: a call took so long, or the "
                "process was stopped. Run long calls in a thread: await asyncio.to_thread(...).",
                seconds,
            )
        return f"{sentence}, so responses could not be read."
