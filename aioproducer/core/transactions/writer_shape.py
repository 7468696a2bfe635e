"""Divides the first batches of a writer that shares its producer id, so that brokers can distinguish the writers.

A broker takes a batch for a duplicate if its first and last sequences are those of one of the five batches that it
remembers (ProducerStateManager, `sequences`). Two writers of one transaction each count from 0. If both write to the
same partition in batches of the same sizes, the second one's batches are acknowledged and never written. The sizes here
depend on the writer's own number, so the sequences differ within five batches, and the broker refuses them. Fewer
records do not show who wrote them, so this is only one of several guards; see `sharing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aioproducer.core.sequences import MAX_IN_FLIGHT

__all__ = ["WRITER_BITS", "FirstBatches", "shape_of"]

_DIGIT_BITS = 6
#: The number of bits of a writer's number that count. As many batches are divided as a broker remembers.
WRITER_BITS = MAX_IN_FLIGHT * _DIGIT_BITS

#: Batches are not divided below this size: short records are read quickly enough.
_SMALL: Final = 8192
#: How many bytes of a topic's records go into small batches at most, if some partition never gets many.
_MOST_SIZE: Final = 1 << 22


def shape_of(writer: int) -> Sequence[int]:
    """Return the maximum number of records in the first batches of each partition, for a writer with this number.

    Those of two writers differ unless their numbers are equal modulo 2**WRITER_BITS.
    """
    return [1 + (writer >> _DIGIT_BITS * place) % 2**_DIGIT_BITS for place in range(MAX_IN_FLIGHT)]


class FirstBatches:
    """Keeps the batches encoded for a topic small, until every partition has enough records for its shape.

    Cutting a batch means reading its records one by one, so cutting a few records off a large batch costs a hundred
    times as much as encoding those few alone.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        self._needed = sum(shape)
        self._missing: dict[int, int] = {}  # records, by partition; not above 0: it has enough
        self._short = 0  # how many partitions have not
        self._size = 0

    @property
    def are_over(self) -> bool:
        """Whether batches may be large; for a partition that comes later they are small again."""
        return (not self._short and bool(self._missing)) or self._size >= _MOST_SIZE

    def limit(self, row_size: int) -> int:
        """The size in bytes of a small batch, of records of that size on average.

        The whole shape is taken from the first batch: one with fewer records than the next digit would be sent undivided,
        and not show the shape.
        """
        return max(_SMALL, self._needed * row_size * 9 // 8)

    def take(self, partition: int, records: int, size: int) -> None:
        """Count a batch that was encoded."""
        before = self._missing.get(partition)
        self._short += before is None
        after = self._missing[partition] = (self._needed if before is None else before) - records
        self._short -= after <= 0 and (before is None or before > 0)
        self._size += size
