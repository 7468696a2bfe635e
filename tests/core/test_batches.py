"""A batch from its first record to the end of its bytes."""

from __future__ import annotations

import pytest

from aioproducer.core.batches import BATCH_OVERHEAD, FlushWaiter, ProducerBatch
from aioproducer.core.sequences import NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from aioproducer.delivery import UnobservedSink
from aioproducer.errors import KafkaTimeoutError
from aioproducer.record import Codec
from aioproducer.record.reader import RecordBatch, read_batches
from aioproducer.types import TopicPartition

ORDERS = TopicPartition("orders", 3)


@pytest.fixture
def batch() -> ProducerBatch:
    """Open, and empty; its records are not awaited."""
    return ProducerBatch(ORDERS, 10.0, 1000, UnobservedSink)  # type: ignore[arg-type]


def put(batch: ProducerBatch, *timestamps: int) -> None:
    assert batch.builder is not None
    for timestamp in timestamps:
        batch.builder.append(timestamp, b"key", b"value", ())


def on_the_wire(batch: ProducerBatch) -> RecordBatch:
    (read,) = read_batches(b"".join(batch.pieces))
    return read


def test_a_new_batch_has_no_number_and_no_attempt_behind_it(batch: ProducerBatch) -> None:
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (NO_PRODUCER_ID, NO_EPOCH, NO_SEQUENCE)
    assert (batch.attempts, batch.retry_at, batch.leader_epoch, batch.ordinal) == (0, 0.0, -1, ())
    assert batch.created_at == 10.0
    doubts = (batch.is_in_flight, batch.possibly_written, batch.whole_in_doubt, batch.given_up, batch.is_sealing)
    assert doubts == (False,) * 5
    assert batch.flush_waiters is None


def test_an_empty_batch_holds_no_memory_and_another_one_what_its_records_take(batch: ProducerBatch) -> None:
    assert batch.reserved == 0
    put(batch, 1)
    assert batch.reserved == batch.size > BATCH_OVERHEAD
    before = batch.reserved

    batch.seal(Codec.NONE, None)

    assert batch.reserved == before
    assert batch.hand_over() == before
    assert batch.reserved == batch.hand_over() == 0


def test_an_open_batch_without_bytes_holds_no_memory(batch: ProducerBatch) -> None:
    put(batch, 1)
    batch.drop_bytes()

    assert (batch.reserved, batch.size, batch.read_records()) == (0, 0, ())


def test_a_closed_batch_takes_no_record_and_a_sealed_one_has_its_bytes_only(batch: ProducerBatch) -> None:
    put(batch, 5, 9, 7)
    stages = [batch.is_open]
    assert [record.timestamp_ms for record in batch.read_records()] == [5, 9, 7]

    batch.close()
    assert batch.limit == 0
    stages.append(batch.is_open)  # what is to be encoded is still there
    batch.seal(Codec.NONE, None)

    assert [*stages, batch.is_open] == [True, True, False]
    assert batch.latest_timestamp == 9
    assert [record.timestamp_ms for record in batch.read_records()] == [5, 9, 7]
    batch.drop_bytes()
    assert batch.encoded is None


def test_the_header_follows_the_numbers_and_the_records_stay(batch: ProducerBatch) -> None:
    put(batch, 5)
    batch.seal(Codec.NONE, None)
    unnumbered = on_the_wire(batch)
    assert (unnumbered.producer_id, unnumbered.base_sequence, unnumbered.is_transactional) == (-1, -1, False)

    batch.renumber(7, 1, 40)
    header, records = batch.pieces

    numbered = on_the_wire(batch)
    assert (numbered.producer_id, numbered.producer_epoch, numbered.base_sequence) == (7, 1, 40)
    batch.renumber(7, 2, 0)
    assert batch.pieces[0] is not header, "a socket may still read the old one"
    assert batch.pieces[1] is records
    assert on_the_wire(batch).producer_epoch == 2
    assert batch.pieces[0] is batch.pieces[0]


def test_a_batch_of_a_transaction_has_the_flag_from_its_first_request_on(batch: ProducerBatch) -> None:
    put(batch, 5)
    batch.transactional = True
    batch.seal(Codec.NONE, None)

    assert on_the_wire(batch).is_transactional


@pytest.mark.parametrize("possibly_written", [False, True])
@pytest.mark.parametrize("is_in_flight", [False, True])
def test_a_failure_is_as_certain_as_the_batch(batch: ProducerBatch, possibly_written: bool, is_in_flight: bool) -> None:
    put(batch, 5)
    batch.possibly_written, batch.is_in_flight = possibly_written, is_in_flight

    failure = batch.failure(KafkaTimeoutError("late"), now=0.0, record_errors={0: "bad"})

    assert failure.possibly_written == (possibly_written or is_in_flight)
    assert failure.timed_out is False
    assert failure.record_errors == {0: "bad"}
    batch.seal(Codec.NONE, None)
    batch.drop_bytes()
    assert [record.timestamp_ms for record in failure.records] == [5]


def test_a_flush_is_over_with_its_last_batch() -> None:
    calls: list[str] = []
    waiter = FlushWaiter(2, lambda: calls.append("done"))
    assert waiter.is_over is False

    waiter.one_less()
    assert calls == []
    waiter.one_less()

    assert calls == ["done"]
