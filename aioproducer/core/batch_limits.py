"""Learns how large batches of a topic may be on the wire, from those that its brokers refuse.

``max.message.bytes`` is set per topic, and a producer does not know it. After a refusal the limit is half the refused
size, or the largest size accepted recently if that is more; so three or four refusals are enough to find it. While
batches of the learned size are accepted, the limit creeps up, as the expected compression ratio does (KIP-126), and
stays below the least refused size, which is retried only occasionally, in case the broker's limit was raised.
"""

from __future__ import annotations

from typing import Final

__all__ = ["BatchLimits"]

#: The fraction by which a limit grows with each full batch that is accepted.
_STEP: Final = 1 / 200
#: The number of full batches after which a refused size is tried again.
_PATIENCE: Final = 500


class _Limit:
    """The limit of one topic, in bytes on the wire."""

    __slots__ = ("accepted", "full", "refused", "size")

    def __init__(self, refused: int) -> None:
        self.size = refused
        self.refused = refused  # the least size that was refused
        self.accepted = 0  # the largest size accepted since the limit is known
        self.full = 0  # the number of full batches accepted in a row

    def lower(self, refused: int) -> None:
        self.full = 0
        self.refused = min(self.refused, refused)
        if self.accepted >= refused:  # the topic's limit was lowered
            self.accepted = 0
        self.size = max(1, min(self.size, max(refused // 2, self.accepted)))

    def accept(self, size: int) -> None:
        self.accepted = max(self.accepted, size)
        grown = self.size + max(1, int(self.size * _STEP))
        if size < self.size - (grown - self.size) * 20:  # not full: it shows nothing
            return
        self.full += 1
        if self.full >= _PATIENCE:
            self.full, self.refused = 0, 2 * self.refused
        if grown < self.refused:
            self.size = grown


class BatchLimits:
    """The limits of all topics that have refused a batch."""

    __slots__ = ("_most", "by_topic")

    def __init__(self, most: int) -> None:
        """``most`` is the size in bytes up to which batches are filled if nothing was refused."""
        self._most = most
        #: Usually empty: looking here first saves a call per batch.
        self.by_topic: dict[str, _Limit] = {}

    def limit(self, topic: str) -> int:
        """Return the maximum size of a batch of the topic in bytes."""
        known = self.by_topic.get(topic)
        return self._most if known is None else min(self._most, known.size)

    def refused(self, topic: str, size: int) -> None:
        """A broker found a batch of this size too large."""
        known = self.by_topic.get(topic)
        if known is None:
            known = self.by_topic[topic] = _Limit(size)
        known.lower(size)

    def accepted(self, topic: str, size: int) -> None:
        """A broker has accepted a batch of this size."""
        known = self.by_topic.get(topic)
        if known is not None:
            known.accept(size)
            if known.size >= self._most and known.refused > self._most:
                del self.by_topic[topic]

    def forget(self, topic: str) -> None:
        """Forget the topic; if it is used again, learning starts over."""
        self.by_topic.pop(topic, None)
