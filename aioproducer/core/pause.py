"""Lets the Sender and those who put records in take turns, where their work is too much for one event loop.

A batch costs the Sender about the same whether it holds one record or a thousand. Where records are spread over many
partitions, and no batch has to wait for an earlier one of its partition, most of them would leave with a single record
in them, and sending would leave no time for anything else. Java's Sender has a thread of its own, and batches fill while
it works. Here nothing is put in while it works; so afterwards it leaves as much time to others as it took.

That costs nobody anything: a record that comes while the Sender works would wait for its turn, too. Therefore only work
that takes milliseconds leads to a pause, and a pause in which nobody puts anything in is over at once.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Pause"]

#: Work that takes less than this, in seconds, leads to no pause; it is that of about a hundred batches.
_SHORT_WORK: Final = 0.002
#: No pause is longer, in seconds: the work may seem to have taken long because the process was stopped meanwhile. And what
#: the Sender does within a pause may take as much time as others use.
_LONGEST_PAUSE: Final = 0.25


class Pause:
    """Until when batches that could leave at once wait for more records."""

    __slots__ = ("_latest", "until")

    #: In the event loop's time.
    until: float

    def __init__(self) -> None:
        self.until = 0.0
        self._latest = 0.0  # it lasts no longer than that, whatever comes within it

    def worked(self, seconds: float, now: float) -> None:
        """The Sender began to work at ``now``, and took so long."""
        if self.until > now:  # a part of the pause that it owes to others is used up by work
            self.until = min(self.until + 2 * seconds, self._latest)
        elif seconds >= _SHORT_WORK:
            self._latest = now + seconds + _LONGEST_PAUSE
            self.until = min(now + 2 * seconds, self._latest)

    def end(self) -> None:
        """Nobody uses the time."""
        self.until = 0.0
