"""How long the first batches of a writer that shares its transaction stay small."""

from __future__ import annotations

from aioproducer.core.transactions.writer_shape import FirstBatches, shape_of

SHAPE = shape_of(9)
NEEDED = sum(SHAPE)


def test_batches_are_small_until_all_partitions_have_enough_records_for_their_shape() -> None:
    batches = FirstBatches(SHAPE)

    assert not batches.are_over
    batches.take(0, NEEDED - 1, 100)
    batches.take(1, NEEDED, 100)
    assert not batches.are_over
    batches.take(0, 1, 100)
    assert batches.are_over


def test_batches_are_small_again_for_a_partition_that_comes_later() -> None:
    batches = FirstBatches(SHAPE)
    batches.take(0, NEEDED, 100)

    batches.take(1, 1, 100)
    assert not batches.are_over
    batches.take(0, 500, 100)
    assert not batches.are_over
    batches.take(1, NEEDED, 100)
    assert batches.are_over


def test_a_partition_that_never_gets_enough_records_does_not_keep_batches_small_for_ever() -> None:
    batches = FirstBatches(SHAPE)
    batches.take(0, 1, 100)

    batches.take(1, 10_000, 4 << 20)

    assert batches.are_over
