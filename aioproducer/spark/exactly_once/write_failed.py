"""The one error for rows that were not written exactly once, on whichever way."""

from __future__ import annotations

from aioproducer.errors import KafkaError

__all__ = ["WriteFailed"]


class WriteFailed(KafkaError):
    """The rows were not written, and nothing of them becomes visible; the message says why."""
