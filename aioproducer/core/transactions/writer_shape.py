"""How a writer that shares its producer id with others cuts its first batches, so that brokers can tell them apart.

A broker takes a batch for a repeat where the first and the last sequence are those of one of the five batches that it
remembers (ProducerStateManager, `sequences`). Two writers of one transaction count from 0 each, so where both write into
one partition, and cut their records alike, the second one's are acknowledged and never written. With these sizes, which
follow from a number of the writer's own, the sequences differ within five batches, and the broker refuses them.

Fewer records than that do not show who wrote them, so this is one guard of several; see `shared_writes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aioproducer.core.sequences import MAX_IN_FLIGHT

__all__ = ["WRITER_BITS", "FirstBatches", "shape_of"]

_DIGIT_BITS = 6
#: As many of a writer's number count. As many batches are cut as a broker remembers.
WRITER_BITS = MAX_IN_FLIGHT * _DIGIT_BITS

#: No batch is smaller on purpose: short records are read quickly enough.
_SMALL: Final = 8192
#: How many bytes of a topic's records go into small batches at most, if some partition never gets many.
_MOST_SIZE: Final = 1 << 22


def shape_of(writer: int) -> Sequence[int]:
    """How many records the first batches of each partition have at most, for a writer with this number.

    Those of two writers differ unless their numbers are equal modulo 2**WRITER_BITS.
    """
    return [1 + (writer >> _DIGIT_BITS * place) % 2**_DIGIT_BITS for place in range(MAX_IN_FLIGHT)]


class FirstBatches:
    """Tells how small the batches that are encoded for a topic should be: until every partition can have its shape.

    Cutting a batch means to read its records one by one, so a large one of which a few records are cut off costs a hundred
    times what they do.
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
        """How many bytes are to go into a small batch, of records of that size on average.

        The whole shape is cut out of the first one: a batch with fewer records than the next digit says would leave as it
        is, and show nothing of it.
        """
        return max(_SMALL, self._needed * row_size * 9 // 8)

    def take(self, partition: int, records: int, size: int) -> None:
        """Count a batch that was encoded."""
        before = self._missing.get(partition)
        self._short += before is None
        after = self._missing[partition] = (self._needed if before is None else before) - records
        self._short -= after <= 0 and (before is None or before > 0)
        self._size += size
