"""The error for rows that were not written exactly once, whatever the cause."""

from __future__ import annotations

from aioproducer.errors import KafkaError

__all__ = ["WriteFailed"]


class WriteFailed(KafkaError):
    """The rows were not written, and none of them become visible; the message says why."""
