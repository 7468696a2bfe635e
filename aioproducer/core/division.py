"""Divides a batch into smaller ones with the same records in the same order; they are closed, but not compressed yet."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from aioproducer.core.batches import ProducerBatch
from aioproducer.record import record_size_upper_bound

if TYPE_CHECKING:
    from aioproducer.record.reader import Record

__all__ = ["divided_by_count", "divided_by_size"]


def divided_by_count(batch: ProducerBatch, counts: Sequence[int]) -> list[ProducerBatch]:
    """Return batches with these numbers of records, and one with the rest."""
    records = iter(batch.read_records())
    parts: list[ProducerBatch] = []
    for most in (*counts, batch.count):
        share = list(islice(records, most))
        if not share:
            break
        parts.append(_part(batch, len(parts), batch.size))
        for record in share:
            _copy(record, parts[-1])
        parts[-1].close()
    return parts


def divided_by_size(batch: ProducerBatch, limit: int) -> list[ProducerBatch]:
    """Return batches of this size before compression; a larger record gets one to itself."""
    parts: list[ProducerBatch] = []
    for record in batch.read_records():
        size = record_size_upper_bound(record.key, record.value, record.headers)
        if not parts or not parts[-1].has_room(size):
            parts.append(_part(batch, len(parts), limit))
        _copy(record, parts[-1])
    for part in parts:
        part.close()
    return parts


def _part(batch: ProducerBatch, number: int, limit: int) -> ProducerBatch:
    part = ProducerBatch(batch.partition, batch.created_at, limit, batch.sink)
    part.ordinal = (*batch.ordinal, number)
    part.transactional = batch.transactional
    return part


def _copy(record: Record, batch: ProducerBatch) -> None:
    """Put a record into a batch without a Delivery: an unused one would count as discarded."""
    assert batch.builder is not None
    batch.builder.append(record.timestamp_ms, record.key, record.value, record.headers)
