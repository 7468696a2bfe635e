"""How a writer that shares its producer id with others cuts its first batches, so that brokers can tell them apart.

A broker takes a batch for a repeat where the first and the last sequence are those of one of the five batches that it
remembers (ProducerStateManager, `sequences`). Two writers of one transaction count from 0 each, so where both write into
one partition, and cut their records alike, the second one's are acknowledged and never written. With these sizes, which
follow from a number of the writer's own, the sequences differ within five batches, and the broker refuses them.

Fewer records than that do not show who wrote them, so this is one guard of several; see `shared_writes`.
"""

from __future__ import annotations

from collections.abc import Sequence

from aioproducer.core.sequences import MAX_IN_FLIGHT

__all__ = ["WRITER_BITS", "shape_of"]

_DIGIT_BITS = 6
#: As many of a writer's number count. As many batches are cut as a broker remembers.
WRITER_BITS = MAX_IN_FLIGHT * _DIGIT_BITS


def shape_of(writer: int) -> Sequence[int]:
    """How many records the first batches of each partition have at most, for a writer with this number.

    Those of two writers differ unless their numbers are equal modulo 2**WRITER_BITS.
    """
    return [1 + (writer >> _DIGIT_BITS * place) % 2**_DIGIT_BITS for place in range(MAX_IN_FLIGHT)]
