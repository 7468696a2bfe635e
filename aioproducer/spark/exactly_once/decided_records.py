"""Finds the last committed record of one key, in a log that is read from its beginning."""

from __future__ import annotations

import struct
from typing import Final

from aioproducer.record.reader import RecordBatch

__all__ = ["DecidedRecords"]

#: The key of a control record: its version and its type.
_CONTROL: Final = struct.Struct(">hh")
_COMMIT: Final = 1


class DecidedRecords:
    """The last committed value of a key; None if there is none, or if it is a tombstone.

    Records of a transaction count when its commit marker is read, so later commits replace earlier ones.
    """

    def __init__(self, key: bytes) -> None:
        self.value: bytes | None = None
        self._key = key
        self._open: dict[int, bytes | None] = {}

    @property
    def has_undecided(self) -> bool:
        """Whether a record of this key belongs to a transaction that has not ended."""
        return bool(self._open)

    def add(self, batch: RecordBatch) -> None:
        """Process the next batch of the log."""
        for record in batch.records:
            if batch.is_control:
                self._end(batch.producer_id, _CONTROL.unpack_from(record.key or b"\0\0\0\0")[1])
            elif record.key == self._key:
                if batch.is_transactional:
                    self._open[batch.producer_id] = record.value
                else:
                    self.value = record.value

    def _end(self, producer_id: int, kind: int) -> None:
        if producer_id in self._open:
            value = self._open.pop(producer_id)
            if kind == _COMMIT:
                self.value = value
