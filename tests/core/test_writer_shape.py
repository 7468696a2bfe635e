"""The size of the first batches of a writer that shares its transaction."""

from __future__ import annotations

from aioproducer.core.transactions.writer_shape import WRITER_BITS, FirstBatches, shape_of

SHAPE = shape_of(9)
NEEDED = sum(SHAPE)


def test_a_shape_is_the_number_of_the_writer_digit_by_digit() -> None:
    """From 1 to 64 records for each of the five batches that a broker remembers."""
    assert WRITER_BITS == 30
    assert shape_of(0) == shape_of(2**30) == [1, 1, 1, 1, 1]
    assert shape_of(2**30 - 1) == [64, 64, 64, 64, 64]
    assert shape_of(9 + (2 << 6) + (63 << 24)) == [10, 3, 1, 1, 64]


def test_a_small_batch_has_room_for_the_whole_shape_and_an_eighth_more() -> None:
    batches = FirstBatches([64] * 5)

    assert batches.limit(100) == 320 * 100 * 9 // 8
    assert batches.limit(1) == 8192


def test_so_many_bytes_are_enough_for_a_topic_whatever_is_missing() -> None:
    batches = FirstBatches(SHAPE)
    batches.take(0, 1, (4 << 20) - 1)
    assert not batches.are_over

    batches.take(0, 0, 1)

    assert batches.are_over


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
