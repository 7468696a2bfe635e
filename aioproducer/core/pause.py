"""Lets the Sender and the callers that append records take turns if their work is too much for one event loop.

A batch costs the Sender about the same whether it holds one record or a thousand. If records are spread over many
partitions, and no batch has to wait for an earlier one of its partition, most batches would be sent with a single record,
and sending would leave no time for anything else. Java's Sender has its own thread, and batches fill while it works. Here
nothing can be appended while it works; so afterwards it leaves other tasks as much time as it took.

This has no cost: a record that arrives while the Sender works would also have to wait. So only work that takes
milliseconds leads to a pause, and a pause in which no record is appended ends at once.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Pause"]

#: Shorter work, in seconds, leads to no pause; this is the work for about a hundred batches.
_SHORT_WORK: Final = 0.002
#: The longest pause, in seconds: the work may only seem long because the process was stopped in between. The Sender's work
#: within a pause may take as much time as the others use.
_LONGEST_PAUSE: Final = 0.25


class Pause:
    """The time for which batches that are ready to be sent wait for more records."""

    __slots__ = ("_latest", "until")

    #: In the event loop's time.
    until: float

    def __init__(self) -> None:
        self.until = 0.0
        self._latest = 0.0  # its latest end, whatever happens during it

    def worked(self, seconds: float, now: float) -> None:
        """The Sender began to work at ``now`` and took ``seconds``."""
        if self.until > now:  # its work takes away a part of the pause that is owed to others
            self.until = min(self.until + 2 * seconds, self._latest)
        elif seconds >= _SHORT_WORK:
            self._latest = now + seconds + _LONGEST_PAUSE
            self.until = min(now + 2 * seconds, self._latest)

    def end(self) -> None:
        """End the pause: its time is not used."""
        self.until = 0.0
