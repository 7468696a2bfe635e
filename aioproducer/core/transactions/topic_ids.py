"""The ids of topics, by which newer brokers take the offsets of a transaction (KIP-1319)."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from aioproducer.protocol.wire import ZERO_UUID

__all__ = ["NoTopicIds", "TopicIds"]


class TopicIds(Protocol):
    """Returns the known ids of topics."""

    def id_of(self, topic: str) -> UUID:
        """Return the topic's id; `ZERO_UUID` if it is not known, or if the cluster has no ids."""
        ...

    def refresh(self, topic: str) -> None:
        """Request the topic's id again: a broker does not know it, because the topic was deleted, or is new there."""
        ...


class NoTopicIds:
    """Knows no ids, so that all topics go by their names."""

    def id_of(self, topic: str) -> UUID:
        return ZERO_UUID

    def refresh(self, topic: str) -> None:
        pass
