"""Learns how large batches of a topic may be on the wire, from those that its brokers refuse.

``max.message.bytes`` is a topic's own, and a producer is not told it. After a refusal the limit is half of what was refused,
or what was accepted lately if that is more; so three or four refusals lead to it from far away. While batches of the learned
size are accepted it creeps up, as the expected compression ratio does (KIP-126), and waits below the least size that was
refused: that one is tried again only now and then, in case the limit was raised.
"""

from __future__ import annotations

from typing import Final

__all__ = ["BatchLimits"]

#: By what part of itself a limit grows with each full batch that is accepted.
_STEP: Final = 1 / 200
#: After so many full batches a size that was refused is tried again.
_PATIENCE: Final = 500


class _Limit:
    """What is known of one topic, in bytes on the wire."""

    __slots__ = ("accepted", "full", "refused", "size")

    def __init__(self, refused: int) -> None:
        self.size = refused
        self.refused = refused  # the least that was refused
        self.accepted = 0  # the most that was accepted since the limit is known
        self.full = 0  # how many full batches were accepted in a row

    def lower(self, refused: int) -> None:
        self.full = 0
        self.refused = min(self.refused, refused)
        if self.accepted >= refused:  # the topic's limit was lowered
            self.accepted = 0
        self.size = max(1, min(self.size, max(refused // 2, self.accepted)))

    def accept(self, size: int) -> None:
        self.accepted = max(self.accepted, size)
        grown = self.size + max(1, int(self.size * _STEP))
        if size < self.size - (grown - self.size) * 20:  # it was not full, and says nothing
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
        """``most`` is up to how many bytes batches are filled where nothing was refused."""
        self._most = most
        #: Empty, mostly: to look here first saves a call for each batch.
        self.by_topic: dict[str, _Limit] = {}

    def limit(self, topic: str) -> int:
        """How many bytes a batch of the topic should have at most."""
        known = self.by_topic.get(topic)
        return self._most if known is None else min(self._most, known.size)

    def refused(self, topic: str, size: int) -> None:
        """A broker found a batch of this size too large."""
        known = self.by_topic.get(topic)
        if known is None:
            known = self.by_topic[topic] = _Limit(size)
        known.lower(size)

    def accepted(self, topic: str, size: int) -> None:
        """A broker has taken a batch of this size."""
        known = self.by_topic.get(topic)
        if known is not None:
            known.accept(size)
            if known.size >= self._most and known.refused > self._most:
                del self.by_topic[topic]

    def forget(self, topic: str) -> None:
        """Begin anew with the topic, if it ever comes again."""
        self.by_topic.pop(topic, None)
