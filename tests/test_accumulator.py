"""The accumulator with time as an argument: what is ready, when, in which order, and what it gives back."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain, count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer.accumulator.partition_queue import PartitionQueue
from aioproducer.core.batches import ProducerBatch
from aioproducer.core.cluster import PartitionMetadata, TopicMetadata
from aioproducer.core.failed_attempt import FailedAttempt
from aioproducer.delivery import Delivery
from aioproducer.errors import (
    BrokerConnectionError,
    BrokerError,
    InvalidRecord,
    KafkaTimeoutError,
    NotWritten,
    ProducerClosed,
    TransactionStateError,
    Unknown,
)
from aioproducer.protocol.wire import ZERO_UUID
from aioproducer.record import BATCH_OVERHEAD, Codec, RecordBatchBuilder, encode_batch
from aioproducer.types import TopicPartition
from tests.rig import LINGER, MIB, TIMEOUT, Rig
from tests.sender_rig import begin, transaction_link


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    assert (
        rig.pool.free + sum(batch.reserved for batch in rig.accumulator.outcomes.incomplete_in_order())
        <= rig.pool.total
    )


def test_a_lone_record_is_ready_at_once(rig: Rig) -> None:
    rig.put()

    assert rig.ready(0.0)
    assert rig.woken == 1


def test_a_record_behind_a_batch_on_its_way_lingers_to_the_moment(rig: Rig) -> None:
    rig.one_in_flight()
    rig.put(now=1.0)

    assert not rig.ready(1.0)
    assert rig.accumulator.queues.next_deadline() == 1.0 + LINGER
    assert not rig.ready(1.0 + LINGER - 1e-9)
    assert rig.ready(1.0 + LINGER)


def test_a_steady_trickle_does_not_put_the_linger_off(rig: Rig) -> None:
    rig.one_in_flight()
    for step in range(6):
        rig.put(now=1.0 + step * 0.8)

    assert not rig.ready(5.9)
    assert rig.ready(6.0)


def test_the_answer_to_the_batch_before_ends_the_linger(rig: Rig) -> None:
    first = rig.one_in_flight()
    rig.put(now=1.0)

    rig.acknowledge(first, now=1.5)

    assert rig.ready(1.5)


def test_a_full_batch_does_not_linger(rig: Rig) -> None:
    first = rig.put()
    rig.acknowledge(*rig.drain())
    rig.put()
    rig.drain()
    assert first.done()

    for _ in range(12):
        rig.put(now=1.0)

    assert rig.ready(1.0)


def test_after_long_work_a_batch_fills_until_others_have_had_as_much_time() -> None:
    rig = Rig()
    rig.accumulator.queues.worked(0.02, 1.0)

    for _ in range(3):
        rig.put(now=1.02)

    assert not rig.ready(1.0399)
    assert rig.accumulator.queues.is_pausing
    assert rig.accumulator.queues.next_deadline() == pytest.approx(1.04)
    assert rig.ready(1.0401)
    assert [batch.count for batch in rig.drain(1.0401)] == [3]
    assert not rig.accumulator.queues.is_pausing


def test_a_batch_that_was_ready_before_a_pause_does_not_wait_for_its_end() -> None:
    """As the rest of many batches, which the Sender sends bit by bit."""
    rig = Rig()
    rig.put(0, now=1.0)

    rig.accumulator.queues.worked(0.02, 1.0)
    rig.put(0, now=1.02)
    rig.put(1, now=1.02)

    assert [(batch.partition.partition, batch.count) for batch in rig.drain(1.02)] == [(0, 2)]


def test_the_answer_to_the_batch_before_does_not_end_a_pause() -> None:
    rig = Rig()
    first = rig.one_in_flight()
    rig.accumulator.queues.worked(0.02, 1.0)
    rig.put(now=1.02)

    rig.acknowledge(first, now=1.025)

    assert not rig.ready(1.025)
    assert rig.ready(1.0401)


def test_a_linger_that_is_longer_than_the_pause_goes_on_after_it() -> None:
    rig = Rig()
    rig.one_in_flight()
    rig.accumulator.queues.worked(0.02, 1.0)
    rig.put(now=1.02)

    assert not rig.ready(1.0401)
    assert not rig.accumulator.queues.is_pausing
    assert rig.ready(1.02 + LINGER)


def test_an_unused_pause_ends_for_all_batches_in_the_order_of_their_first_records() -> None:
    rig = Rig()
    rig.accumulator.queues.worked(0.02, 1.0)
    for partition in (2, 0, 1):
        rig.put(partition, now=1.02)

    rig.accumulator.queues.end_pause(1.021)

    assert not rig.accumulator.queues.is_pausing
    assert [batch.partition.partition for batch in rig.drain(1.021)] == [2, 0, 1]
    rig.put(0, now=1.022)
    assert not rig.accumulator.queues.is_pausing, "it is over"


@pytest.mark.parametrize("why", ["full", "flush", "close", "pressure", "retry"])
def test_a_pause_holds_nothing_up_that_cannot_or_must_not_wait(why: str) -> None:
    rig = Rig(memory=4000)
    rig.put(now=0.0)
    (batch,) = rig.drain(0.0)
    if why == "retry":
        rig.accumulator.outcomes.retry(batch, 0.0)
    else:
        rig.acknowledge(batch)
    rig.accumulator.queues.worked(3600.0, 1.0)

    if why == "full":
        for _ in range(12):
            rig.put(now=1.0)
    elif why != "retry":
        rig.put(now=1.0)
        assert not rig.ready(1.0)
    if why == "flush":
        rig.accumulator.begin_flush(lambda: None, 1.0)
    elif why == "close":
        rig.accumulator.close(1.0)
    elif why == "pressure":
        rig.pool.line += 1  # a send waits for memory
        rig.accumulator.end_linger(1.0)

    assert rig.ready(2.0), "a retry's backoff is over by now, the pause is not"


def test_a_batch_expires_in_a_pause_as_ever() -> None:
    rig = Rig()
    rig.accumulator.queues.worked(3600.0, 1.0)
    delivery = rig.put(now=1.0)

    for expired in rig.accumulator.queues.expire(1.0 + TIMEOUT):
        rig.accumulator.outcomes.give_up(expired, KafkaTimeoutError("over"), 1.0 + TIMEOUT, timed_out=True)

    assert isinstance(delivery.exception(), NotWritten)
    assert not rig.accumulator.queues.is_pausing
    assert rig.pool.free == rig.pool.total


def test_a_pause_costs_no_timers() -> None:
    rig = Rig(partitions=100)
    for partition in range(100):
        rig.put(partition)
    rig.drain()
    rig.accumulator.queues.worked(0.02, 1.0)

    for partition in range(100):
        rig.put(partition, now=1.02)

    assert rig.accumulator.queues._timers == []


def test_waking_the_sender_is_for_new_batches_only(rig: Rig) -> None:
    rig.put()
    rig.drain()
    woken = rig.woken

    for _ in range(5):
        rig.put(now=1.0)

    assert rig.woken == woken + 1


def test_a_partition_that_always_gets_more_keeps_its_turn() -> None:
    rig = Rig(partitions=4, batch_size=100, idempotent=False)
    drained: Counter[int] = Counter()
    for _ in range(40):
        for partition in range(4):
            rig.put(partition)
        rig.put(0)  # this one once more, while all wait for their turn
        for batch in rig.drain(limit=2 * 200):
            drained[batch.partition.partition] += 1
            rig.acknowledge(batch)

    turns = [drained[partition] for partition in range(4)]
    assert min(turns) >= 0.8 * max(turns), turns


@pytest.mark.parametrize("why", ["flush", "close", "pressure"])
def test_nothing_lingers_during_a_flush_a_close_or_memory_pressure(why: str) -> None:
    rig = Rig(memory=2000)
    rig.one_in_flight()
    rig.put(now=1.0)
    assert not rig.ready(1.0)

    if why == "flush":
        rig.accumulator.begin_flush(lambda: None, 1.0)
    elif why == "close":
        rig.accumulator.close(1.0)
    else:
        rig.pool.line += 1  # a send waits for memory
        rig.accumulator.end_linger(1.0)

    assert rig.ready(1.0)


def test_a_request_takes_one_batch_of_each_partition_in_turn() -> None:
    rig = Rig(partitions=4)
    for partition in (2, 0, 3, 1):
        for _ in range(20):
            rig.put(partition)

    drained = rig.drain()

    assert [batch.partition.partition for batch in drained] == [2, 0, 3, 1]


def test_a_request_is_no_larger_than_it_may_be_and_the_rest_comes_first_next_time() -> None:
    rig = Rig(partitions=4)
    for partition in range(4):
        rig.put(partition, size=500)

    first, second = rig.drain(limit=1200), rig.drain(limit=1200)

    assert [batch.partition.partition for batch in first] == [0, 1]
    assert [batch.partition.partition for batch in second] == [2, 3]


def test_a_request_that_would_take_the_event_loop_for_long_is_cut_into_several() -> None:
    rig = Rig(partitions=600)
    for partition in range(600):
        rig.put(partition, size=1)

    sizes = [len(rig.drain()) for _ in range(4)]

    assert sizes == [250, 250, 100, 0]


def test_a_batch_that_is_larger_than_a_request_may_be_travels_alone(rig: Rig) -> None:
    rig.put(0, size=5000)
    rig.put(1)

    assert [batch.count for batch in rig.drain(limit=1000)] == [1]
    assert [batch.partition.partition for batch in rig.drain(limit=1000)] == [1]


def test_a_partition_that_must_wait_holds_up_no_other() -> None:
    rig = Rig(partitions=2)
    rig.put(0)
    rig.drain()
    for partition in (0, 1):
        for _ in range(20):
            rig.put(partition)

    assert [batch.partition.partition for batch in rig.drain()] == [1], "partition 0 waits for its first answer"


def test_partitions_without_a_leader_are_reported_and_go_out_when_one_is_known() -> None:
    rig = Rig(partitions=1)
    rig.lead({0: -1})
    rig.put()

    assert rig.accumulator.queues.leaderless_topics() == ["t"]
    assert not rig.ready(0.0)
    rig.lead({0: 1}, epoch=1)
    rig.accumulator.reroute(0.0)
    assert rig.ready(0.0)


def test_a_moved_partition_is_drained_for_its_new_leader() -> None:
    rig = Rig(partitions=1, nodes=2)
    rig.put()
    rig.lead({0: 2}, nodes=2, epoch=1)

    rig.accumulator.reroute(0.0)

    assert rig.accumulator.queues.ready_nodes() == [2]


def test_a_retry_waits_for_its_backoff_and_keeps_its_place_and_its_bytes(rig: Rig) -> None:
    rig.put()
    rig.acknowledge(*rig.drain())
    for _ in range(30):
        rig.put(now=1.0)
    first = rig.drain(1.0)
    second = rig.drain(1.0)
    before = [batch.pieces for batch in (*first, *second)]

    rig.accumulator.outcomes.retry(second[0], 2.0)
    rig.accumulator.outcomes.retry(first[0], 2.0)

    assert not rig.ready(2.9)
    assert rig.drain(3.0) == first
    assert first[0].pieces == before[0]
    rig.acknowledge(*first, now=3.0)
    assert rig.drain(3.0) == second
    assert second[0].pieces == before[1]


def test_a_leader_of_a_newer_epoch_ends_the_backoff(rig: Rig) -> None:
    rig.put()
    (batch,) = rig.drain()
    rig.accumulator.outcomes.retry(batch, 0.0)
    assert not rig.ready(0.5)

    rig.lead(dict.fromkeys(range(3), 1), epoch=7)
    rig.accumulator.reroute(0.5)

    assert rig.ready(0.5)


def test_a_record_that_never_left_expires_as_not_written(rig: Rig) -> None:
    delivery = rig.put(now=1.0)

    assert rig.accumulator.queues.expire(TIMEOUT) == []
    (batch,) = rig.accumulator.queues.expire(1.0 + TIMEOUT)
    rig.accumulator.outcomes.give_up(batch, KafkaTimeoutError("over"), 101.0, timed_out=True)

    assert isinstance(delivery.exception(), NotWritten)
    assert isinstance(delivery.exception(), TimeoutError)
    assert rig.pool.free == rig.pool.total
    assert rig.accumulator.queues.next_deadline() is None


def test_a_record_in_flight_expires_as_unknown_and_keeps_its_memory_until_the_answer(rig: Rig) -> None:
    delivery = rig.put()
    (batch,) = rig.drain()

    for expired in rig.accumulator.queues.expire(TIMEOUT):
        rig.accumulator.outcomes.give_up(expired, KafkaTimeoutError("over"), TIMEOUT, timed_out=True)

    assert isinstance(delivery.exception(), Unknown)
    assert rig.pool.free < rig.pool.total
    assert rig.late == []
    rig.accumulator.outcomes.complete(batch, 0, -1, TIMEOUT + 1)
    assert rig.late == [(("t", 0), 1)]
    assert rig.pool.free == rig.pool.total
    assert isinstance(delivery.exception(), Unknown), "a reported outcome does not change"
    assert rig.metrics.records_delivered == 0


def test_a_lone_send_again_and_again_leaves_no_timers_behind(rig: Rig) -> None:
    for number in range(1000):
        rig.put(now=number / 1000)
        rig.acknowledge(*rig.drain(number / 1000), now=number / 1000)

    assert len(rig.accumulator.queues._expiries) <= 3
    assert len(rig.accumulator.queues._timers) <= 3


def test_the_timers_are_no_more_than_the_partitions() -> None:
    rig = Rig(partitions=100)
    for partition in range(100):
        rig.put(partition)
    rig.drain()
    for step in range(5):
        for partition in range(100):
            rig.put(partition, now=step / 10)

    assert len(rig.accumulator.queues._timers) <= 100
    assert len(rig.accumulator.queues._expiries) <= 100


def test_a_batch_that_is_too_large_is_halved_until_it_fits_or_is_one_record(rig: Rig) -> None:
    deliveries = [rig.put() for _ in range(8)]
    done: list[bool] = []
    rig.accumulator.begin_flush(lambda: done.append(True), 0.0)
    (whole,) = rig.drain()

    rig.accumulator.outcomes.split(whole, 0.0)
    parts: list[ProducerBatch] = []
    offset = 0
    for _ in range(40):
        for batch in rig.drain():
            if batch.count > 1:
                rig.accumulator.outcomes.split(batch, 0.0)
            else:
                parts.append(batch)
                assert not done
                rig.accumulator.outcomes.complete(batch, offset, -1, 0.0)
                offset += 1

    assert [batch.base_sequence for batch in parts] == list(range(8))
    assert [delivery.result().offset for delivery in deliveries] == list(range(8))
    assert done == [True]
    assert rig.pool.free == rig.pool.total


def counts_of_the_next(rig: Rig, partition: int = 0) -> list[int]:
    """The number of records of each batch of the partition, drained and acknowledged until none is left."""
    counts: list[int] = []
    while batches := rig.drain():
        rig.acknowledge(*batches)
        counts += [batch.count for batch in batches if batch.partition.partition == partition]
    return counts


def test_a_batch_that_is_refused_is_halved_although_almost_as_large_a_one_was_accepted(rig: Rig) -> None:
    for _ in range(8):
        rig.put()
    rig.accumulator.outcomes.split(rig.drain()[0], 0.0)
    (accepted,) = rig.drain()
    size = accepted.size
    rig.acknowledge(accepted)
    assert counts_of_the_next(rig) == [3, 2]
    for _ in range(3):
        rig.put(size=118)
    (refused,) = rig.drain()
    half = refused.size // 2

    rig.accumulator.outcomes.split(refused, 0.0)

    assert rig.accumulator.sealing.limits.limit("t") == size > half
    assert counts_of_the_next(rig) == [1, 1, 1]


def test_a_batch_that_left_before_its_topic_was_known_to_take_less_is_divided_by_what_is_known_now(rig: Rig) -> None:
    for partition in (0, 1):
        for _ in range(8):
            rig.put(partition)
    known, late = rig.drain()
    rig.accumulator.outcomes.split(known, 0.0)
    rig.accumulator.outcomes.split(rig.drain()[0], 0.0)

    rig.accumulator.outcomes.split(late, 0.0)

    assert counts_of_the_next(rig, 1) == [1] * 8


def test_the_failure_of_a_split_batch_is_reported_to_the_waiters_of_its_records_only(rig: Rig) -> None:
    deliveries = [rig.put() for _ in range(4)]
    rig.put()  # unobserved
    (whole,) = rig.drain()

    rig.accumulator.outcomes.split(whole, 0.0)
    rig.accumulator.outcomes.fail_all(BrokerConnectionError("x"), 0.0)

    assert all(isinstance(delivery.exception(), NotWritten) for delivery in deliveries)
    assert rig.unobserved_records == 1


def test_the_parts_of_a_split_are_compressed_where_large_batches_always_are_and_take_no_more_records() -> None:
    rig = Rig(codec=Codec.GZIP, compression_threshold=250, batch_size=1000)
    for _ in range(7):
        rig.put()
    assert rig.drain() == []
    (whole,) = rig.accumulator.sealing.take_to_seal()
    rig.accumulator.sealing.sealed(whole, encode_batch(whole.close(), Codec.GZIP), 0.0)
    assert rig.drain() == [whole]

    rig.accumulator.outcomes.split(whole, 0.0)
    behind = rig.put()

    assert rig.drain() == [], "no part is compressed here"
    parts = rig.accumulator.sealing.take_to_seal()
    assert [part.count for part in parts] == [2, 2, 2]
    for part in parts:
        rig.accumulator.sealing.sealed(part, encode_batch(part.close(), Codec.GZIP), 0.0)
    for part in parts:
        assert rig.drain() == [part]
        before = part.pieces
        rig.accumulator.outcomes.retry(part, 0.0)
        assert rig.drain(50.0) == [part]
        assert part.pieces == before
        rig.acknowledge(part)
    rig.acknowledge(*rig.drain())  # the last record of the whole
    rig.acknowledge(*rig.drain())
    assert behind.done()
    assert rig.pool.free == rig.pool.total


def test_after_a_split_no_better_ratio_is_expected_than_the_batch_had() -> None:
    rig = Rig(codec=Codec.GZIP)
    rig.accumulator.sealing._ratios.observe("t", 0.1)
    for _ in range(2):
        rig.accumulator.try_append(rig.topic, 0, 1, None, random.Random(1).randbytes(6), (), 50, 0.0)
    (whole,) = rig.drain()
    assert whole.encoded is not None
    observed = whole.encoded.size / whole.encoded.uncompressed_size
    assert observed > 1, "what is small and random grows"

    rig.accumulator.outcomes.split(whole, 0.0)

    assert rig.accumulator.sealing._ratios.estimate("t") == observed
    assert rig.accumulator.lanes["t"].sticky.ratio > observed


def test_after_a_split_of_what_compresses_well_smaller_batches_that_compress_as_well_are_expected() -> None:
    rig = Rig(codec=Codec.GZIP)
    for _ in range(5):
        rig.put()
    (whole,) = rig.drain()
    assert whole.encoded is not None
    size, ratio = whole.encoded.size, whole.encoded.size / whole.encoded.uncompressed_size
    assert ratio < 1

    rig.accumulator.outcomes.split(whole, 0.0)

    ratios = rig.accumulator.sealing._ratios
    assert ratios.estimate("t") == ratio
    assert rig.accumulator.lanes["t"].sticky.ratio == ratios.on_the_wire("t")
    assert rig.accumulator.sealing.limits.limit("t") == size // 2


def test_the_parts_of_a_split_expire_when_the_whole_would_have(rig: Rig) -> None:
    deliveries = [rig.put(now=1.0) for _ in range(4)]
    (whole,) = rig.drain(1.0)
    rig.accumulator.outcomes.split(whole, 90.0)

    assert rig.accumulator.queues.expire(TIMEOUT + 0.9) == []
    for part in rig.accumulator.queues.expire(TIMEOUT + 1.0):
        rig.accumulator.outcomes.give_up(part, KafkaTimeoutError("over"), TIMEOUT + 1.0, timed_out=True)

    assert all(isinstance(delivery.exception(), NotWritten) for delivery in deliveries)


@pytest.mark.parametrize("idempotent", [True, False])
def test_the_parts_of_a_batch_in_doubt_are_in_doubt_until_one_of_them_is_taken_by_its_number(idempotent: bool) -> None:
    rig = Rig(idempotent=idempotent)
    deliveries = [rig.put() for _ in range(4)]
    (whole,) = rig.drain()
    whole.possibly_written = True
    rig.accumulator.outcomes.split(whole, 0.0)
    rig.put(size=1000)

    (first,) = rig.drain()
    assert first.whole_in_doubt
    rig.acknowledge(first)
    assert deliveries[0].done()
    rig.accumulator.outcomes.fail_all(BrokerConnectionError("x"), 0.0)

    assert isinstance(deliveries[-1].exception(), NotWritten if idempotent else Unknown)


def test_each_outcome_is_counted_with_all_its_records(rig: Rig) -> None:
    for _ in range(3):
        rig.put()
    (batch,) = rig.drain()
    size = batch.size
    rig.accumulator.outcomes.retry(batch, 0.0)
    (batch,) = rig.drain(1.0)
    rig.acknowledge(batch, now=1.0)
    topic = rig.metrics.topic("t")
    assert (rig.metrics.record_retry_total, topic.record_retry_total) == (3, 3)
    assert (rig.metrics.records_delivered, topic.record_send_total, topic.byte_total) == (3, 3, size)

    for possibly_written in (True, False, False):
        for _ in range(2):
            rig.put(now=1.0)
        (batch,) = rig.drain(1.0)
        batch.possibly_written = possibly_written
        rig.accumulator.outcomes.fail(batch, BrokerConnectionError("x"), 1.0)
        rig.settle(1.0)

    assert (rig.metrics.records_unknown, rig.metrics.records_failed, topic.record_error_total) == (2, 4, 6)
    assert (rig.metrics.records_delivered, rig.metrics.batch_split_total) == (3, 0)
    for _ in range(4):
        rig.put(now=1.0)
    rig.accumulator.outcomes.split(rig.drain(1.0)[0], 1.0)
    assert rig.metrics.batch_split_total == 1


@pytest.mark.parametrize(
    ("attempts", "answered", "reported"),
    [(1, 9, [9, 9]), (2, 9, [5, 9]), (3, 9, [5, 9]), (2, 7, [7, 7]), (1, -1, [5, 9])],
)
def test_the_timestamp_in_the_answer_to_a_repeat_is_not_mistaken_for_the_brokers_own(
    rig: Rig, attempts: int, answered: int, reported: list[int]
) -> None:
    """A broker that recognises a repeat answers with the batch's latest timestamp."""
    deliveries = [rig.accumulator.try_append(rig.topic, 0, at, None, b"x", (), 31, 0.0) for at in (5, 9)]
    for attempt in range(attempts):
        (batch,) = rig.drain(attempt * 100.0)
        if attempt < attempts - 1:
            rig.accumulator.outcomes.retry(batch, attempt * 100.0)

    rig.accumulator.outcomes.complete(batch, 0, answered, 0.0)

    assert [delivery.result().timestamp_ms for delivery in deliveries if delivery is not None] == reported


@pytest.mark.parametrize(("answered", "is_stamped"), [(-1, False), (0, True), (9, True)])
def test_the_last_answer_shows_whether_the_brokers_stamp_a_topic(rig: Rig, answered: int, is_stamped: bool) -> None:
    topic = rig.metrics.topic("t")
    topic.has_log_append_time = not is_stamped
    rig.put()
    (batch,) = rig.drain()

    rig.accumulator.outcomes.complete(batch, 0, answered, 0.0)

    assert topic.has_log_append_time is is_stamped


def test_the_backoff_doubles_with_each_attempt_of_a_batch(rig: Rig) -> None:
    rig.put()
    now, pauses = 0.0, list[float]()
    for _ in range(3):
        (batch,) = rig.drain(now)
        rig.accumulator.outcomes.retry(batch, now)
        pauses.append(batch.retry_at - now)
        now = batch.retry_at

    assert pauses == [1.0, 2.0, 4.0]


def test_a_batch_that_fails_for_another_reason_has_not_timed_out(rig: Rig) -> None:
    refused, other = rig.put(0), rig.put(1)
    first, _ = rig.drain()

    rig.accumulator.outcomes.fail(first, BrokerConnectionError("x"), 0.0)
    rig.accumulator.outcomes.fail_all(BrokerConnectionError("x"), 0.0)

    assert type(refused.exception()) is NotWritten
    assert type(other.exception()) is Unknown


def test_records_that_never_left_are_given_up_and_the_others_go_on(rig: Rig) -> None:
    in_flight, retried = rig.put(0), rig.put(1)
    first, second = rig.drain()
    rig.accumulator.outcomes.retry(second, 0.0)
    waiting = [rig.put(0), rig.put(1), rig.put(2)]

    rig.accumulator.outcomes.fail_undrained(BrokerConnectionError("x"), 0.0)

    assert [type(each.exception()) for each in waiting] == [NotWritten] * 3
    assert not in_flight.done()
    assert not retried.done()
    rig.acknowledge(first, *rig.drain(1.0), now=1.0)
    assert in_flight.result().partition == 0
    assert retried.result().partition == 1
    assert rig.pool.free == rig.pool.total
    assert rig.drain(100.0) == []


def test_the_batches_sent_from_one_on_are_those_in_flight_and_those_to_be_sent_again(rig: Rig) -> None:
    rig.one_in_flight()
    rig.put()
    (second,) = rig.drain(10.0)
    rig.put(now=10.0)
    (third,) = rig.drain(20.0)
    in_flight = rig.accumulator.outcomes.sent_from(second)

    rig.accumulator.outcomes.retry(third, 20.0)
    rig.put(now=20.0)

    assert in_flight == [second, third]
    assert rig.accumulator.outcomes.sent_from(second) == [second, third]


def test_a_batch_without_an_outcome_when_the_event_loop_ends_fails_and_wakes_no_waiter(rig: Rig) -> None:
    woken: list[object] = []
    sent, waiting = [rig.put(0) for _ in range(2)], rig.put(1)
    first, second = rig.accumulator.outcomes.incomplete_in_order()
    rig.accumulator.begin_flush(lambda: woken.append("flushed"), 0.0)
    sent[0].add_done_callback(woken.append)
    assert rig.drain(limit=1) == [first]
    used = rig.pool.used
    cause = ProducerClosed("The event loop ended.")

    rig.accumulator.outcomes.forsake_all(cause, 1.0)

    assert [type(each.exception()) for each in (*sent, waiting)] == [Unknown, Unknown, NotWritten]
    assert (rig.metrics.records_unknown, rig.metrics.records_failed) == (2, 1)
    assert rig.metrics.topic("t").record_error_total == 3
    assert (woken, rig.pool.used) == ([], used)
    assert rig.accumulator.outcomes.incomplete_in_order() == []
    assert [(batch.given_up, batch.flush_waiters) for batch in (first, second)] == [(True, None)] * 2


def test_the_last_failure_is_the_latest_of_the_batches_without_an_outcome(rig: Rig) -> None:
    outcomes = rig.accumulator.outcomes
    rig.put(0)
    rig.put(1)
    first, second = rig.drain()
    seen = [outcomes.last_failure]

    first.last_failure = FailedAttempt(BrokerConnectionError("late"), 1, 2.0)
    second.last_failure = FailedAttempt(BrokerConnectionError("early"), 1, 1.0)
    seen.append(outcomes.last_failure)
    rig.acknowledge(first)
    seen.append(outcomes.last_failure)

    assert seen == [None, first.last_failure, second.last_failure]


def test_a_batch_in_flight_when_all_is_given_up_keeps_its_memory_until_it_is_answered(rig: Rig) -> None:
    delivery = rig.put()
    (batch,) = rig.drain()

    rig.accumulator.outcomes.fail_all(BrokerConnectionError("x"), 0.0)

    assert isinstance(delivery.exception(), Unknown)
    assert batch.given_up
    assert rig.pool.free < rig.pool.total
    rig.acknowledge(batch)
    assert rig.late == [(TopicPartition("t", 0), 1)]
    assert rig.pool.free == rig.pool.total
    assert rig.metrics.records_delivered == 0


def test_a_batch_that_expires_in_flight_and_is_then_refused_is_reported_once(rig: Rig) -> None:
    rig.put()
    (batch,) = rig.drain()
    rig.accumulator.outcomes.give_up(batch, KafkaTimeoutError("over"), TIMEOUT, timed_out=True)
    assert batch.given_up

    rig.accumulator.outcomes.fail(batch, BrokerConnectionError("x"), TIMEOUT)

    assert rig.metrics.records_unknown + rig.metrics.records_failed == 1
    assert rig.pool.free == rig.pool.total


def test_a_part_that_is_taken_dispels_the_doubt_of_its_own_siblings_only(rig: Rig) -> None:
    rig.put()
    rig.acknowledge(*rig.drain())
    for _ in range(4):
        rig.put()
    (first,) = rig.drain()
    for _ in range(4):
        rig.put(size=200)
    rig.accumulator.queues.linger.suspend()
    (second,) = rig.drain(LINGER)
    for whole in (first, second):
        whole.possibly_written = True
        rig.accumulator.outcomes.split(whole, LINGER)
    queue = rig.accumulator.queues.by_partition[TopicPartition("t", 0)]
    assert {part.whole_in_doubt for part in queue.batches} == {True}
    (part,) = rig.drain(LINGER)

    rig.acknowledge(part, now=LINGER)

    siblings = [other for other in queue.batches if other.ordinal[0] == part.ordinal[0]]
    others = [other for other in queue.batches if other not in siblings]
    assert {(other.whole_in_doubt, other.possibly_written) for other in siblings} == {(False, False)}
    assert {(other.whole_in_doubt, other.possibly_written) for other in others} == {(True, True)}


def test_the_parts_of_a_split_owe_their_headers_and_the_whole_keeps_nothing(rig: Rig) -> None:
    for _ in range(4):
        rig.put()
    done: list[bool] = []
    rig.accumulator.begin_flush(lambda: done.append(True), 0.0)
    (whole,) = rig.drain()

    rig.accumulator.outcomes.split(whole, 0.0)

    assert (whole.reserved, whole.size, whole.flush_waiters) == (0, 0, None)
    reserved = sum(part.reserved for part in rig.accumulator.outcomes.incomplete_in_order())
    assert rig.pool.free + reserved == rig.pool.total


def test_a_batch_follows_to_a_topic_that_was_created_again_only_after_those_sent_to_the_old_one(rig: Rig) -> None:
    """The new topic accepts any first sequence: a later one first would leave no place for the earlier ones."""
    first = rig.one_in_flight()
    rig.put()
    rig.accumulator.queues.linger.suspend()
    rig.accumulator.queues.end_linger(0.0)
    assert rig.ready(0.0)

    rig.lead({0: 1, 1: 1, 2: 1}, topic_id=2)
    rig.accumulator.reroute(0.0)
    assert not rig.ready(0.0)

    rig.accumulator.outcomes.retry(first, 0.0)
    assert rig.drain(10.0) == [first]
    assert rig.drain(10.0) == [], "if the first one is refused, the new topic would accept the second one"
    rig.acknowledge(first, now=10.0)
    (second,) = rig.drain(10.0)
    assert (first.base_sequence, second.base_sequence) == (1, 2)
    rig.put(now=10.0)
    rig.accumulator.queues.end_linger(10.0)
    assert rig.ready(10.0), "the new topic knows the producer"


def test_a_batch_follows_to_a_topic_that_was_created_again_once_those_sent_to_the_old_one_are_written(rig: Rig) -> None:
    first = rig.one_in_flight()
    rig.put()
    rig.lead({0: 1, 1: 1, 2: 1}, topic_id=2)
    rig.accumulator.reroute(0.0)
    rig.accumulator.queues.linger.suspend()
    rig.accumulator.queues.end_linger(0.0)
    assert not rig.ready(0.0)

    rig.acknowledge(first)
    (second,) = rig.drain(0.0)
    rig.put()
    assert not rig.ready(0.0)
    rig.acknowledge(second)
    assert rig.ready(0.0), "the topic of today knows the producer"


def test_the_oldest_batch_of_a_partition_may_wait_or_be_in_flight(rig: Rig) -> None:
    rig.put(now=3.0)
    (first,) = rig.drain(3.0)
    queue = rig.accumulator.queues.by_partition[TopicPartition("t", 0)]
    assert queue.oldest is first
    rig.put(now=3.0)
    assert queue.oldest is first, "of two that are as old the one in flight is the first"
    (second,) = queue.batches

    first.created_at = 5.0
    assert queue.oldest is second
    first.created_at = 1.0
    assert queue.oldest is first
    first.given_up = True
    assert queue.oldest is second


def test_a_partition_that_had_an_expired_batch_also_expires_the_next_one(rig: Rig) -> None:
    for begun in (0.0, TIMEOUT + 1):
        rig.put(now=begun)
        (batch,) = rig.drain(begun)
        assert rig.accumulator.queues.expire(begun + TIMEOUT - 0.1) == []
        assert rig.accumulator.queues.expire(begun + TIMEOUT) == [batch]
        rig.accumulator.outcomes.give_up(batch, KafkaTimeoutError("over"), begun + TIMEOUT, timed_out=True)
        assert rig.accumulator.queues.expire(begun + TIMEOUT) == [], "it was given up already"
        rig.acknowledge(batch, now=begun + TIMEOUT)


def test_every_one_of_many_partitions_is_due_in_its_time() -> None:
    rig = Rig(partitions=300, memory=8 * MIB)
    queues = rig.accumulator.queues

    def drain_all(now: float) -> list[ProducerBatch]:
        return list(chain.from_iterable(iter(lambda: rig.drain(now), [])))

    for partition in range(300):
        rig.put(partition)
    rig.acknowledge(*drain_all(0.0))
    for partition in range(300):
        rig.put(partition)
    assert len(drain_all(0.0)) == 300
    for partition in range(300):
        rig.put(partition, now=0.5)

    assert not rig.ready(LINGER + 0.4)
    assert len(drain_all(LINGER + 0.5)) == 300
    assert len(queues.expire(TIMEOUT)) == 300


async def test_memory_freed_by_a_split_goes_to_the_next_in_line() -> None:
    """The positions of records within a batch take fewer bytes in smaller ones, and here that is more than a header."""
    rig = Rig(batch_size=MIB)
    for _ in range(17_000):
        rig.put(size=1)
    (whole,) = rig.drain()
    assert rig.pool.try_acquire(rig.pool.free)
    used = rig.pool.used
    ticket = rig.pool.join(1)

    rig.accumulator.outcomes.split(whole, 0.0)

    assert ticket.is_granted
    assert rig.pool.used < used, "more came back than the next in line took"


class Transaction:
    """The calls to the transaction that all records are part of."""

    def __init__(self) -> None:
        self.causes: list[Exception] = []
        self.settled = 0

    def claim(self, partition: TopicPartition) -> None:
        pass

    def batch_failed(self, cause: Exception) -> None:
        self.causes.append(cause)

    def batch_settled(self) -> None:
        self.settled += 1


def test_the_transaction_is_reported_what_failed_and_when_nothing_is_in_flight_any_more(rig: Rig) -> None:
    transaction = rig.accumulator.outcomes._transaction = Transaction()
    rig.put(0)
    rig.put(1)
    written, expired = rig.drain()

    rig.acknowledge(written)
    assert (transaction.causes, transaction.settled) == ([], 1)
    cause = KafkaTimeoutError("over")
    rig.accumulator.outcomes.give_up(expired, cause, TIMEOUT, timed_out=True)
    assert (transaction.causes, transaction.settled) == ([cause], 1)
    rig.acknowledge(expired)

    assert (transaction.causes, transaction.settled) == ([cause], 2)


def test_a_flush_is_done_when_what_was_there_is_done(rig: Rig) -> None:
    done: list[bool] = []
    rig.put(0)
    rig.put(1)
    rig.accumulator.end_flush(rig.accumulator.begin_flush(lambda: done.append(True), 0.0))
    rig.put(2)
    batches = rig.drain()

    rig.acknowledge(batches[0])
    assert not done
    rig.acknowledge(batches[1])

    assert done == [True]


def test_large_batches_are_handed_out_for_compression_and_small_ones_are_compressed_on_the_way() -> None:
    rig = Rig(codec=Codec.GZIP, compression_threshold=500, batch_size=1000)
    rig.put(0, size=100)
    (small,) = rig.drain()
    assert small.size < 161
    for _ in range(12):
        rig.put(1)

    assert rig.drain() == []
    first, *_ = rig.accumulator.sealing.take_to_seal()
    assert first.is_sealing
    encoded = encode_batch(first.close(), Codec.GZIP)
    rig.accumulator.sealing.sealed(first, encoded, 0.0)

    assert rig.drain() == [first]


def test_a_batch_that_is_given_up_before_a_worker_takes_it_is_not_compressed() -> None:
    rig = Rig(codec=Codec.GZIP, compression_threshold=500, batch_size=1000)
    for _ in range(12):
        rig.put()
    assert rig.drain() == []

    rig.accumulator.outcomes.fail_all(BrokerConnectionError("x"), 0.0)

    assert rig.accumulator.sealing.take_to_seal() == []
    assert rig.pool.free == rig.pool.total


def test_the_memory_that_compression_saves_is_given_back_with_the_batch() -> None:
    rig = Rig(codec=Codec.GZIP, memory=10_000)
    rig.put(0, size=900)
    rig.acknowledge(*rig.drain())

    assert rig.pool.free == 10_000


def test_records_without_a_key_spread_evenly_over_all_partitions() -> None:
    rig = Rig(partitions=4, memory=64 * MIB, random=random.Random(7).random)
    counts = dict.fromkeys(range(4), 0)
    for _ in range(8000):
        counts[rig.put(None).topic_partition.partition] += 1
        for batch in rig.drain():
            rig.acknowledge(batch)

    assert all(1600 < number < 2400 for number in counts.values()), counts


def test_partitions_whose_batches_pile_up_get_fewer_records() -> None:
    rig = Rig(partitions=2, nodes=2, memory=64 * MIB, random=random.Random(3).random)
    counts = [0, 0]
    now = 0.0
    for _ in range(8000):
        now += 0.001
        counts[rig.put(None, now=now).topic_partition.partition] += 1
        for batch in rig.drain(now, node=1):  # node 2, which leads partition 1, takes nothing
            rig.acknowledge(batch, now=now)

    assert counts[0] > 3 * counts[1], counts


def test_records_without_a_key_prefer_leaders_in_the_clients_rack() -> None:
    rig = Rig(partitions=4, nodes=2, client_rack="b", random=random.Random(5).random)
    for node, rack in ((1, "a"), (2, "b")):
        rig.metadata.nodes[node] = rig.metadata.nodes[node]._replace(rack=rack)

    chosen = {rig.put(None, size=900).topic_partition.partition for _ in range(40)}

    assert chosen == {1, 3}, "the partitions that node 2 leads"


def test_a_broker_that_takes_nothing_for_long_gets_no_more_records_without_a_key() -> None:
    rig = Rig(partitions=4, nodes=2, availability_timeout_s=1.0, random=random.Random(5).random)
    for partition in range(4):
        rig.put(partition)
    rig.accumulator.not_accepted(2, 0.0)

    chosen = {rig.put(None, now=5.0 + number, size=900).topic_partition.partition for number in range(40)}

    assert chosen == {0, 2}, "the partitions that node 1 leads"


def test_when_all_brokers_of_the_clients_rack_take_nothing_for_long_the_others_get_the_records_without_a_key() -> None:
    rig = Rig(partitions=4, nodes=2, client_rack="b", availability_timeout_s=1.0, random=random.Random(5).random)
    for node, rack in ((1, "a"), (2, "b")):
        rig.metadata.nodes[node] = rig.metadata.nodes[node]._replace(rack=rack)
    for partition in (1, 3):
        rig.put(partition)
    rig.accumulator.not_accepted(2, 0.0)

    chosen = {rig.put(None, now=5.0 + number, size=900).topic_partition.partition for number in range(40)}
    assert chosen == {0, 2}, "those that node 1 leads"

    rig.acknowledge(*rig.drain(50.0, node=2), now=50.0)
    went = [rig.put(None, now=60.0 + number, size=1000).topic_partition.partition for number in range(40)]
    assert set(went[1:]) == {1, 3}, "node 2 takes again"


def test_partitions_that_compress_well_are_filled_up_to_what_a_request_takes_and_no_further() -> None:
    rig = Rig(codec=Codec.GZIP, max_request_size=3000)
    for _ in range(200):
        rig.accumulator.sealing._ratios.observe("t", 0.01)

    for _ in range(60):
        rig.put()

    (batch,) = rig.accumulator.drain(1, MIB, 0.0)
    assert batch.encoded is not None
    assert 2800 < batch.encoded.uncompressed_size <= 3000


def test_without_idempotence_a_partition_has_one_batch_on_its_way() -> None:
    rig = Rig(idempotent=False)
    for _ in range(30):
        rig.put()

    (first,) = rig.drain()
    assert rig.drain() == []
    rig.accumulator.outcomes.retry(first, 0.0)
    assert rig.drain(1.0) == [first]
    rig.acknowledge(first, now=1.0)
    assert len(rig.drain(1.0)) == 1


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    "put",
                    "put",
                    "put",
                    "drain",
                    "ack",
                    "lose",
                    "refuse",
                    "too large",
                    "expire",
                    "fail all",
                    "work",
                    "quiet",
                ]
            ),
            st.integers(0, 30),
        ),
        max_size=120,
    )
)
def test_after_quiet_all_memory_is_free_and_every_record_was_reported(steps: list[tuple[str, int]]) -> None:
    """Random life: appends, retries, splits, expiry; then everything is answered."""
    rig = Rig(memory=8000)
    deliveries: list[Delivery] = []
    in_flight: list[ProducerBatch] = []
    now = 0.0

    def answer(batch: ProducerBatch, how: str) -> None:
        error = BrokerError(1, "X", "x")
        if batch.given_up or how == "refuse":
            rig.accumulator.outcomes.fail(batch, error, now)
        elif how == "too large" and batch.count > 1 and not batch.possibly_written:
            rig.accumulator.outcomes.split(batch, now)
        elif how in ("lose", "too large"):
            batch.possibly_written = True
            rig.accumulator.outcomes.retry(batch, now)
        else:
            rig.accumulator.outcomes.complete(batch, 0, -1, now)

    for action, number in steps:
        now += 0.5
        if action == "put":
            made = rig.accumulator.try_append(
                rig.topic, number % 3, 1, None, b"x" * number * 10, (), number * 10 + 30, now
            )
            if made is not None:
                deliveries.append(made)
        elif action == "drain":
            in_flight += rig.drain(now)
        elif action == "expire":
            now += number * 4
            for batch in rig.accumulator.queues.expire(now):
                rig.accumulator.outcomes.give_up(batch, KafkaTimeoutError("x"), now, timed_out=True)
        elif action == "fail all":
            rig.accumulator.outcomes.fail_all(BrokerConnectionError("x"), now)
        elif action == "work":
            rig.accumulator.queues.worked(number, now)
        elif action == "quiet":
            rig.accumulator.queues.end_pause(now)
        elif in_flight:
            answer(in_flight.pop(number % len(in_flight)), action)
        rig.settle(now)
        held = sum(batch.reserved for batch in {*rig.accumulator.outcomes.incomplete_in_order(), *in_flight})
        assert rig.pool.used == held

    for _ in range(500):
        now += 20.0
        for batch in in_flight:
            answer(batch, "ack")
        rig.settle(now)
        in_flight = rig.drain(now)
        if not in_flight and not rig.accumulator.pending_records:
            break
    assert all(delivery.done() for delivery in deliveries)
    assert rig.pool.free == rig.pool.total
    assert rig.accumulator.pending_records == 0


class Life:
    """Records that are put in by many tasks, some of which are cancelled, while batches come and go."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.now = 0.0
        self.tasks: list[asyncio.Task[Delivery]] = []
        self.in_flight: list[ProducerBatch] = []
        self.taken: dict[tuple[int, ...], list[int]] = {}  # the records of acknowledged batches, by place
        self.keyless: set[int] = set()  # those that chose their partition when there was room
        self._numbers = count()

    async def put(self, number: int) -> None:
        """A record waits for room, or is put in at once."""
        name, partition = next(self._numbers), number % 3 or None
        value = str(name).encode().ljust(number * 20)
        if partition is None:
            self.keyless.add(name)
        size = len(value) + 30
        made = self.rig.accumulator.try_append(self.rig.topic, partition, 1, None, value, (), size, self.now)
        if made is None:
            append = self.rig.accumulator.append(self.rig.topic, partition, 1, None, value, (), size, lambda: self.now)
            self.tasks.append(asyncio.create_task(append))
            await asyncio.sleep(0)

    def answer(self, batch: ProducerBatch, how: str) -> None:
        accumulator, error = self.rig.accumulator, BrokerError(1, "X", "x")
        if how == "ack":
            assert batch.encoded is not None
            self.taken[batch.partition.partition, *batch.ordinal] = [
                int(record.value or b"") for record in batch.read_records()
            ]
            accumulator.outcomes.complete(batch, 0, -1, self.now)
        elif batch.given_up or how == "refuse":
            accumulator.outcomes.fail(batch, error, self.now)
        elif how == "too large" and batch.count > 1:
            accumulator.outcomes.split(batch, self.now)
        else:
            batch.possibly_written = True
            accumulator.outcomes.retry(batch, self.now)

    def expire(self) -> None:
        for batch in self.rig.accumulator.queues.expire(self.now):
            self.rig.accumulator.outcomes.give_up(batch, KafkaTimeoutError("x"), self.now, timed_out=True)

    def compress(self) -> None:
        for batch in self.rig.accumulator.sealing.take_to_seal():
            self.rig.accumulator.sealing.sealed(batch, encode_batch(batch.close(), Codec.GZIP), self.now)

    async def run(self, rounds: int = 3) -> None:
        for _ in range(rounds):
            await asyncio.sleep(0)

    async def quiet(self) -> None:
        """Everything is answered well from here on, until nothing is left."""
        for _ in range(500):
            self.now += 20.0
            for batch in self.in_flight:
                self.answer(batch, "ack")
            self.rig.settle(self.now)
            self.compress()
            self.in_flight = self.rig.drain(self.now)
            await self.run()
            if not self.in_flight and not self.rig.accumulator.pending_records and all(t.done() for t in self.tasks):
                return
        raise AssertionError("it never got quiet")

    def check(self) -> None:
        """Free, held by batches, or granted to a waiter that has not run yet: nothing else."""
        rig = self.rig
        held = sum(batch.reserved for batch in {*rig.accumulator.outcomes.incomplete_in_order(), *self.in_flight})
        assert rig.pool.used >= held
        if not rig.pool.line:
            assert rig.pool.used == held


_ACTIONS = {
    "put": 30,
    "cancel": 6,
    "run": 6,
    "drain": 12,
    "ack": 12,
    "lose": 4,
    "refuse": 2,
    "too large": 6,
    "expire": 1,
}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("seed", range(25))
async def test_after_quiet_all_memory_is_free_although_senders_waited_and_gave_up(seed: int, codec: Codec) -> None:
    """Random life with waiters and cancellations among splits, retries and expiries; each partition keeps its order."""
    chance = random.Random(seed)
    life = Life(Rig(memory=4000, batch_size=1000, codec=codec, compression_threshold=300))
    for action in chance.choices(list(_ACTIONS), list(_ACTIONS.values()), k=200):
        number = chance.randrange(30)
        life.now += 0.5
        if action == "put":
            await life.put(number)
        elif action == "cancel":
            waiting = [task for task in life.tasks if not task.done()]
            for task in waiting[number % 4 : number % 4 + 1]:
                task.cancel()
        elif action == "run":
            await life.run(number % 4)
        elif action == "drain":
            life.compress()
            life.in_flight += life.rig.drain(life.now)
        elif action == "expire":
            life.now += number * 4
            life.expire()
        elif life.in_flight:
            life.answer(life.in_flight.pop(number % len(life.in_flight)), action)
        life.rig.settle(life.now)
        life.check()
    await life.quiet()

    pool = life.rig.pool
    assert (pool.free, pool.waiting) == (pool.total, 0)
    for task in life.tasks:
        assert task.cancelled() or task.result().done()
    for partition in range(3):
        order = [number for place, numbers in sorted(life.taken.items()) if place[0] == partition for number in numbers]
        kept = [number for number in order if number not in life.keyless]
        assert kept == sorted(kept)


async def test_a_send_that_finds_room_does_not_overtake_one_that_was_granted_room_and_has_not_run_yet() -> None:
    """Memory alone would let the second one pass: what it asks for is free. The partition's lock keeps the order."""
    rig = Rig(memory=1000)
    rig.put(0, size=700)

    async def append(value: bytes) -> Delivery:
        return await rig.accumulator.append(rig.topic, 1, 1, None, value, (), 250, lambda: 0.0)

    def lock() -> asyncio.Lock | None:
        return rig.accumulator.queues.of("t", 1).lock

    assert lock() is None, "no send had to wait yet"
    first = asyncio.create_task(append(b"first"))
    await asyncio.sleep(0)
    second = asyncio.create_task(append(b"second"))  # begins in the next round, before the first one goes on

    rig.acknowledge(*rig.drain())
    assert rig.accumulator.try_append(rig.topic, 1, 1, None, b"newcomer", (), 50, 0.0) is None
    await asyncio.gather(first, second)

    made = lock()
    assert made is not None
    assert not made.locked()
    (batch,) = rig.drain()
    assert [record.value for record in batch.read_records()] == [b"first", b"second"]
    assert rig.accumulator.try_append(rig.topic, 1, 1, None, b"newcomer", (), 50, 0.0) is not None


def test_a_node_that_is_only_busy_is_not_slow_when_there_is_nothing_more_for_it() -> None:
    rig = Rig(partitions=2, nodes=2, availability_timeout_s=1.0, memory=64 * MIB, random=random.Random(5).random)
    for partition in (0, 1):
        rig.put(partition)
    rig.acknowledge(*rig.drain(node=1), *rig.drain(node=2))
    rig.accumulator.not_accepted(2, 0.0)  # its requests in flight are as many as they may be

    chosen: set[int] = set()
    for number in range(100):
        now = 10.0 + number
        chosen.add(rig.put(None, now=now, size=1000).topic_partition.partition)
        rig.acknowledge(*rig.drain(now, node=1), now=now)
        rig.acknowledge(*rig.drain(now, node=2), now=now)

    assert chosen == {0, 1}


def test_a_node_that_was_slow_gets_another_chance_when_its_batches_are_gone() -> None:
    rig = Rig(partitions=2, nodes=2, availability_timeout_s=1.0, memory=64 * MIB, random=random.Random(5).random)
    for partition in (0, 1):
        rig.put(partition)
    rig.acknowledge(*rig.drain(node=1))
    rig.accumulator.not_accepted(2, 0.0)
    rig.accumulator.outcomes.fail_all(BrokerConnectionError("gone"), 5.0)

    chosen: set[int] = set()
    for number in range(100):
        now = 10.0 + number
        chosen.add(rig.put(None, now=now, size=1000).topic_partition.partition)
        rig.acknowledge(*rig.drain(now, node=1), *rig.drain(now, node=2), now=now)

    assert chosen == {0, 1}


def test_records_without_a_key_stick_until_a_batch_is_full_of_compressed_bytes() -> None:
    choices: list[float] = []

    def choose() -> float:
        choices.append(len(choices) / 1000)
        return choices[-1]

    rig = Rig(partitions=3, codec=Codec.GZIP, compression_threshold=MIB, memory=64 * MIB, random=choose)
    rig.accumulator.sealing._ratios.observe("t", 0.5)
    for _ in range(200):  # the estimate falls by 0.005 each time
        rig.accumulator.sealing._ratios.observe("t", 0.2)

    records = 0
    while len(choices) < 2 and records < 1000:
        rig.put(None)
        records += 1

    assert records * 107 > 0.9 * 1000 / (0.2 * 1.05), "about one batch of the compressed size"


def test_a_retried_batch_that_flies_behind_a_younger_one_expires_at_its_own_time(rig: Rig) -> None:
    rig.put()
    rig.acknowledge(*rig.drain())
    oldest = rig.put(now=1.0, size=1000)
    (first,) = rig.drain(1.0)
    delivery = rig.put(now=2.0, size=1000)
    (second,) = rig.drain(2.0)
    rig.put(now=50.0, size=1000)
    (third,) = rig.drain(50.0)
    rig.acknowledge(first, now=51.0)
    assert oldest.done()
    rig.accumulator.outcomes.retry(second, 51.0)
    assert rig.drain(60.0) == [second]
    assert rig.accumulator.queues.expire(1.0 + TIMEOUT) == []

    assert rig.accumulator.queues.expire(2.0 + TIMEOUT) == [second]
    assert not delivery.done()
    assert not third.given_up


def forget(rig: Rig, now: float = 1000.0) -> None:
    """The topic was unused for long, and the metadata drop it."""
    rig.metadata.touch("t", 0.0)
    rig.metadata.forget_idle(now, 300.0)
    rig.accumulator.reroute(now)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_nothing_is_kept_of_a_topic_that_was_idle_for_long_but_its_sequences(codec: Codec) -> None:
    rig = Rig(codec=codec)
    for partition in (0, 1, None):
        rig.put(partition)
        rig.acknowledge(*rig.drain())
    before = rig.metrics.as_mapping()
    lane = rig.accumulator.lanes["t"]

    forget(rig)

    accumulator = rig.accumulator
    for state in (
        accumulator.queues.by_partition,
        accumulator.lanes,
        accumulator.queues._topics,
        accumulator.sticky._candidates,
        accumulator.sticky._loads,
        accumulator.sealing._ratios._ratios,
        rig.metrics.by_topic(),
    ):
        assert not state
    assert rig.metrics.as_mapping() == before
    assert lane.partition_count == 0, "who took the fast path cannot put anything into it any more"

    rig.lead(dict.fromkeys(range(3), 1))
    rig.put(0)
    (batch,) = rig.drain(2000.0)
    assert batch.base_sequence >= 1, "where the broker expects it to go on"
    rig.acknowledge(batch)
    assert rig.pool.free == rig.pool.total


def test_the_records_of_a_batch_are_measured_when_it_is_sent_first() -> None:
    rig = Rig(batch_size=4_000)
    for size in (100, 1_000, 100):
        rig.put(0, size=size)
    (batch,) = rig.drain()
    assert batch.encoded is not None
    sent, largest = batch.encoded.size - BATCH_OVERHEAD, batch.encoded.largest_record
    assert (rig.metrics.batched_records, rig.metrics.batched_bytes) == (3, sent)
    assert rig.metrics.largest_record == largest > 1_000

    rig.accumulator.outcomes.retry(batch, 1.0)
    assert rig.drain(1_000.0) == [batch]
    assert (rig.metrics.batched_records, rig.metrics.batched_bytes) == (3, sent), "it was measured already"

    rig.put(1, size=10)
    (small,) = rig.drain(1_000.0)
    assert small.encoded is not None
    assert rig.metrics.batched_records == 4
    assert rig.metrics.batched_bytes == sent + small.encoded.size - BATCH_OVERHEAD
    assert rig.metrics.largest_record == largest


@pytest.mark.parametrize("why", ["waiting", "on its way", "retried"])
def test_a_topic_is_not_forgotten_while_a_batch_of_it_is_under_way(why: str, rig: Rig) -> None:
    delivery = rig.put(1)
    if why != "waiting":
        (batch,) = rig.drain()
    if why == "retried":
        rig.accumulator.outcomes.retry(batch, 999.0)
    lane = rig.accumulator.lanes["t"]

    forget(rig)
    assert lane.partition_count == 0, "no send takes the fast path past those that wait for the topic"
    rig.lead(dict.fromkeys(range(3), 1))
    rig.accumulator.reroute(1001.0)
    for expired in rig.drain(1001.0):
        batch = expired
    rig.acknowledge(batch, now=1002.0)

    assert delivery.done()
    forget(rig, now=2000.0)
    assert not rig.accumulator.queues.by_partition


async def test_a_topic_is_not_forgotten_while_a_send_waits_for_room() -> None:
    rig = Rig(memory=1000)
    hog = rig.pool.join(1000)
    await rig.pool.wait(hog)
    task = asyncio.create_task(rig.accumulator.append(rig.topic, 1, 1, None, b"x", (), 100, lambda: 0.0))
    await asyncio.sleep(0)

    forget(rig)
    assert rig.accumulator.queues.by_partition
    rig.pool.release(1000)
    delivery = await task
    rig.lead(dict.fromkeys(range(3), 1))
    rig.accumulator.reroute(1001.0)
    rig.acknowledge(*rig.drain(1001.0))

    assert delivery.done()
    forget(rig, now=2000.0)
    assert not rig.accumulator.queues.by_partition


def test_without_numbers_nothing_at_all_is_kept_of_an_idle_topic() -> None:
    rig = Rig(idempotent=False)
    rig.put(0)
    rig.acknowledge(*rig.drain())

    forget(rig)

    assert not rig.sequences._partitions


def test_flushes_that_ran_out_of_time_do_not_pile_up(rig: Rig) -> None:
    rig.put()
    for _ in range(100):
        rig.accumulator.end_flush(rig.accumulator.begin_flush(lambda: None, 0.0))

    (batch,) = rig.drain()
    assert batch.flush_waiters is not None
    assert len(batch.flush_waiters) == 1


def test_batches_that_fill_a_request_to_the_byte_go_together() -> None:
    rig = Rig()
    for partition in range(3):
        rig.put(partition)
    sizes = [batch.size for queue in rig.accumulator.queues.by_partition.values() for batch in queue.batches]

    assert len(rig.drain(limit=sum(sizes[:2]))) == 2


def test_the_time_in_the_queue_is_that_until_the_first_attempt() -> None:
    rig = Rig()
    rig.put(now=1.0)
    (batch,) = rig.drain(3.0)
    rig.accumulator.outcomes.retry(batch, 4.0)
    rig.drain(50.0)

    assert rig.metrics.record_queue_time.count == 1
    assert rig.metrics.record_queue_time.total == 2.0
    assert (rig.metrics.batch_size.count, rig.metrics.batch_size.total) == (1, batch.size)


def test_the_end_of_a_pause_is_a_deadline_also_where_another_batch_lingers() -> None:
    rig = Rig()
    rig.one_in_flight()
    rig.put(now=1.0)
    rig.accumulator.queues.worked(0.02, 1.0)

    rig.put(1, now=1.02)

    assert rig.accumulator.queues.next_deadline() == pytest.approx(1.04)


# -- records that wait for memory ---------------------------------------------------------------------------------------


async def append(rig: Rig, partition: int | None, size: int = 100, **more: Callable[[], object]) -> Delivery:
    """The call of a send that may have to wait for memory."""
    value = b"x" * size
    return await rig.accumulator.append(rig.topic, partition, 1, None, value, (), size + 30, lambda: 0.0, **more)


@pytest.mark.parametrize("partition", [0, None])
async def test_a_record_that_is_refused_after_its_wait_gives_its_memory_back(partition: int | None) -> None:
    rig = Rig()

    def refuse() -> None:
        raise ProducerClosed("It was closed.")

    with pytest.raises(ProducerClosed):
        await append(rig, partition, check=refuse)

    assert rig.pool.free == rig.pool.total
    assert not rig.accumulator.has_unsettled


@pytest.mark.parametrize(("partition", "choices"), [(0, 0), (None, 2)])
async def test_a_record_that_waited_counts_in_the_turn_of_its_partition_if_it_did_not_choose_it(
    partition: int | None, choices: int
) -> None:
    """A turn is as long as a batch, so that the next record without a key goes to another partition."""
    numbers: list[float] = []

    def choose() -> float:
        numbers.append(0.0)
        return 0.0

    rig = Rig(random=choose)

    await append(rig, partition, size=1000)

    assert len(numbers) == choices


@pytest.mark.parametrize(("partition", "choices"), [(0, 0), (None, 2)])
def test_a_record_with_a_partition_takes_no_part_in_the_turn_of_another(partition: int | None, choices: int) -> None:
    numbers: list[float] = []

    def choose() -> float:
        numbers.append(0.0)
        return 0.0

    Rig(random=choose).put(partition, size=1000)

    assert len(numbers) == choices


# -- records that cannot be added ---------------------------------------------------------------------------------------


TOO_LATE = 1 << 70  #: A time that does not fit into a record.


def test_a_record_that_cannot_be_encoded_leaves_no_batch_behind(rig: Rig) -> None:
    with pytest.raises(InvalidRecord):
        rig.accumulator.try_append(rig.topic, 0, TOO_LATE, None, b"x", (), 31, 0.0)

    assert rig.pool.free == rig.pool.total
    assert not rig.accumulator.has_unsettled
    assert rig.accumulator.outcomes.incomplete_in_order() == []
    (empty, *_) = rig.accumulator.lanes["t"].open
    assert empty is not None
    assert empty.builder is None, "the fast path cannot fill it"


def test_a_record_that_cannot_be_encoded_leaves_the_batch_before_it_as_it_was(rig: Rig) -> None:
    delivery = rig.put()
    free = rig.pool.free

    with pytest.raises(InvalidRecord):
        rig.accumulator.try_append(rig.topic, 0, TOO_LATE, None, b"x", (), 31, 0.0)

    assert rig.pool.free == free
    (batch,) = rig.drain()
    assert batch.count == 1
    rig.acknowledge(batch)
    assert delivery.done()


def test_the_record_that_fills_a_batch_wakes_the_sender(rig: Rig) -> None:
    rig.one_in_flight()
    rig.put(now=1.0)
    woken = rig.woken
    queue = rig.accumulator.queues.of("t", 0)
    (batch,) = queue.batches
    rest = batch.limit - batch.size
    assert not rig.ready(1.0)

    rig.accumulator.try_append(rig.topic, 0, 1, None, b"x" * (rest - 9), (), rest, 1.0)

    assert list(queue.batches) == [batch]
    assert (rig.ready(1.0), rig.woken) == (True, woken + 1)


def test_a_partition_that_the_metadata_do_not_name_waits_for_a_leader(rig: Rig) -> None:
    rig.put(3)

    assert rig.accumulator.queues.leaderless_topics() == ["t"]
    assert not rig.ready(0.0)


def test_a_large_batch_is_compressed_as_soon_as_the_next_one_begins() -> None:
    rig = Rig(codec=Codec.GZIP, compression_threshold=500)
    for _ in range(12):
        rig.put()

    first, _ = rig.accumulator.queues.of("t", 0).batches

    assert rig.accumulator.sealing.take_to_seal() == [first]


# -- batches that were encoded elsewhere --------------------------------------------------------------------------------


def encoded(rig: Rig, records: int = 3) -> RecordBatchBuilder:
    """Records with their memory, as a worker hands them over."""
    builder = RecordBatchBuilder(1000)
    for _ in range(records):
        builder.append(1, None, b"x" * 10, ())
    assert rig.pool.try_acquire(builder.size)
    return builder


def test_a_batch_that_was_encoded_elsewhere_takes_no_more_records(rig: Rig) -> None:
    result = rig.accumulator.append_builder(rig.topic, 0, encoded(rig), 0.0)
    assert rig.woken == 1
    behind = rig.put()

    (batch,) = rig.drain()
    assert batch.count == 3
    assert [record.value for record in batch.read_records()] == [b"x" * 10] * 3
    rig.acknowledge(batch)

    assert result.done
    assert not behind.done()
    rig.acknowledge(*rig.drain())
    assert rig.pool.free == rig.pool.total


async def test_records_that_no_transaction_takes_give_their_memory_back() -> None:
    link = transaction_link()
    rig = Rig(transactions=link)
    bench = begin(link, rig)
    bench.manager.abort()
    bench.run()
    builder = encoded(rig)

    with pytest.raises(TransactionStateError):
        rig.accumulator.append_builder(rig.topic, 0, builder, 0.0)
    with pytest.raises(TransactionStateError):
        rig.put()
    with pytest.raises(TransactionStateError):
        rig.accumulator.begin(rig.topic, 0, 100, 0.0)

    assert rig.pool.free == rig.pool.total
    assert not rig.accumulator.has_unsettled


@pytest.mark.parametrize("how", ["one by one", "on the fast path", "encoded"])
async def test_a_partition_is_part_of_the_transaction_before_its_first_batch_leaves(how: str) -> None:
    link = transaction_link()
    rig = Rig(transactions=link)
    manager = begin(link, rig).manager
    had_partitions = manager.has_partitions

    if how == "encoded":
        rig.accumulator.append_builder(rig.topic, 0, encoded(rig), 0.0)
    elif how == "one by one":
        rig.put()
    else:
        rig.accumulator.begin(rig.topic, 0, 100, 0.0)

    assert (had_partitions, manager.has_partitions) == (False, True)
    (queue,) = rig.accumulator.queues.by_partition.values()
    assert [batch.transactional for batch in queue.batches] == [True]


def test_each_batch_that_is_encoded_elsewhere_goes_to_the_next_partition() -> None:
    numbers = iter([0.0, 2e-9, 1e-9])  # times 2 to the power of 31, modulo the number of partitions
    rig = Rig(random=lambda: next(numbers))

    assert [rig.accumulator.sticky_partition(rig.topic, 0.0) for _ in range(3)] == [0, 1, 2]


def test_batches_that_are_encoded_elsewhere_may_be_as_large_as_others() -> None:
    assert Rig(batch_size=100_000).accumulator.batch_limit("t", 100) == 100_000


def test_batches_that_are_encoded_elsewhere_are_small_until_each_partition_had_records_for_its_shape() -> None:
    rig = Rig(batch_size=100_000, shape=[2, 3])
    assert rig.accumulator.batch_limit("t", 100) == 8192

    rig.accumulator.append_builder(rig.topic, 0, encoded(rig, 5), 0.0)

    assert rig.accumulator.batch_limit("t", 100) == 100_000


# -- the first batches of a writer that shares its transaction ------------------------------------------------------------


def test_the_first_batches_of_a_partition_have_the_shape_of_their_writer() -> None:
    rig = Rig(shape=[2, 3])
    deliveries = [rig.put() for _ in range(8)]

    counts: list[int] = []
    for _ in range(3):
        (batch,) = rig.drain()
        counts.append(batch.count)
        rig.acknowledge(batch)

    assert counts == [2, 3, 3]
    assert all(delivery.done() for delivery in deliveries)
    assert rig.pool.free == rig.pool.total


def test_a_batch_that_is_sent_again_keeps_its_place_in_the_shape() -> None:
    rig = Rig(shape=[1, 3])
    for _ in range(5):
        rig.put()
    (batch,) = rig.drain()
    rig.accumulator.outcomes.retry(batch, 0.0)
    assert rig.drain(1.0) == [batch]
    rig.acknowledge(batch, now=1.0)

    assert [each.count for each in rig.drain(1.0)] == [3]


def test_a_batch_that_was_sent_in_its_shape_is_not_divided_when_it_is_sent_again() -> None:
    rig = Rig(shape=[3, 1])
    for _ in range(3):
        rig.put()
    (batch,) = rig.drain()
    rig.accumulator.outcomes.retry(batch, 0.0)

    assert rig.drain(1.0) == [batch]
    assert batch.count == 3


def test_the_shape_goes_on_where_the_last_batch_left_it() -> None:
    rig = Rig(shape=[1, 2, 3])
    rig.put()
    rig.acknowledge(*rig.drain())
    for _ in range(8):
        rig.put(size=10)

    (second,) = rig.drain()
    (third,) = rig.drain()

    assert (second.count, third.count) == (2, 3)


def test_a_batch_that_has_its_shape_already_is_not_copied() -> None:
    rig = Rig(shape=[3])
    for _ in range(3):
        rig.put()
    (batch,) = rig.accumulator.outcomes.incomplete_in_order()

    assert rig.drain() == [batch]


def test_a_batch_that_is_being_compressed_gets_its_shape_afterwards() -> None:
    rig = Rig(shape=[2, 3], codec=Codec.GZIP, compression_threshold=500)
    for _ in range(8):
        rig.put()
    assert rig.drain() == []
    (whole,) = rig.accumulator.sealing.take_to_seal()
    assert whole.count == 7
    assert rig.drain() == []

    rig.accumulator.sealing.sealed(whole, encode_batch(whole.close(), Codec.GZIP), 0.0)

    assert counts_of_the_next(rig) == [2, 3, 2, 1]
    assert rig.pool.free == rig.pool.total


def test_a_partition_that_was_forgotten_begins_its_shape_again() -> None:
    rig = Rig(shape=[1])
    rig.put()
    rig.acknowledge(*rig.drain())
    forget(rig)
    rig.lead(dict.fromkeys(range(3), 1))
    rig.accumulator.reroute(1001.0)
    for _ in range(3):
        rig.put(now=1001.0)

    assert [batch.count for batch in rig.drain(1001.0)] == [1]


# -- the fast path, which asks for an open batch --------------------------------------------------------------------------


def begun(rig: Rig, partition: int | None = 0, size: int = 100, now: float = 0.0) -> ProducerBatch:
    """The batch for a record on the fast path."""
    batch = rig.accumulator.begin(rig.topic, partition, size, now)
    assert batch is not None
    return batch


def fill(rig: Rig, batch: ProducerBatch, size: int = 100) -> Delivery:
    """Append a record as the fast path does."""
    used, delivery = batch.append(1, None, b"x" * size, ())
    rig.pool.free -= used
    return delivery


def test_a_batch_for_the_fast_path_holds_its_header_and_leaves_with_its_first_record(rig: Rig) -> None:
    batch = begun(rig)
    assert rig.pool.used == BATCH_OVERHEAD
    assert not rig.ready(0.0), "it is empty"

    delivery = fill(rig, batch)
    rig.accumulator.ready(batch)

    assert (rig.ready(0.0), rig.woken) == (True, 1)
    rig.acknowledge(*rig.drain())
    assert delivery.done()
    assert rig.pool.free == rig.pool.total


def test_the_fast_path_gets_no_batch_without_memory_for_the_record_and_a_header() -> None:
    rig = Rig(memory=200)
    size = 200 - BATCH_OVERHEAD

    assert rig.accumulator.begin(rig.topic, 0, size + 1, 0.0) is None
    assert rig.accumulator.begin(rig.topic, 0, size, 0.0) is not None


def test_the_fast_path_gets_no_batch_while_others_wait_for_memory(rig: Rig) -> None:
    rig.pool.line += 1

    assert rig.accumulator.begin(rig.topic, 0, 100, 0.0) is None


async def test_the_fast_path_gets_no_batch_of_a_partition_for_which_a_record_waits(rig: Rig) -> None:
    queue = rig.accumulator.queues.of("t", 0)
    queue.lock = asyncio.Lock()
    await queue.lock.acquire()

    assert rig.accumulator.begin(rig.topic, 0, 100, 0.0) is None
    queue.lock.release()
    assert rig.accumulator.begin(rig.topic, 0, 100, 0.0) is not None


def test_the_fast_path_gets_the_open_batch_as_long_as_a_record_fits_into_it(rig: Rig) -> None:
    first = begun(rig)
    fill(rig, first)
    rig.accumulator.ready(first)
    lane = rig.accumulator.lanes["t"]
    lane.open[0] = None
    used = rig.pool.used

    assert begun(rig, size=100) is first
    assert lane.open[0] is first
    assert rig.pool.used == used, "its header has its memory"
    assert begun(rig, size=1000) is not first
    assert rig.pool.used == used + BATCH_OVERHEAD


def test_an_empty_batch_that_is_taken_back_leaves_nothing(rig: Rig) -> None:
    batch = begun(rig)

    rig.accumulator.undo(batch)

    assert rig.pool.free == rig.pool.total
    assert not rig.accumulator.has_unsettled
    assert rig.accumulator.outcomes.incomplete_in_order() == []
    assert batch.builder is None, "the fast path cannot fill it any more"
    assert not rig.ready(0.0)


def test_the_batch_before_an_empty_one_that_is_taken_back_lingers_again(rig: Rig) -> None:
    rig.one_in_flight()
    rig.put(now=1.0)
    batch = begun(rig, size=1000, now=1.0)

    rig.accumulator.undo(batch)

    assert not rig.ready(1.0)
    assert rig.ready(1.0 + LINGER)


def test_a_batch_that_was_filled_on_the_fast_path_is_due_at_once(rig: Rig) -> None:
    rig.one_in_flight()
    batch = begun(rig, now=1.0)
    fill(rig, batch)
    rig.accumulator.ready(batch)
    assert not rig.ready(1.0)
    woken = rig.woken
    rig.accumulator.send_at_once = lambda queue, now: True  # only asked for a batch with its first record

    fill(rig, batch, 900)
    rig.accumulator.ready(batch)

    assert (rig.ready(1.0), rig.woken) == (True, woken + 1)


@pytest.mark.parametrize("how", ["append", "fast path"])
@pytest.mark.parametrize("is_sent", [True, False])
def test_a_new_batch_that_can_be_sent_at_once_does_not_wake_the_sender(rig: Rig, how: str, is_sent: bool) -> None:
    offered: list[tuple[TopicPartition, float]] = []

    def send(queue: PartitionQueue, now: float) -> bool:
        offered.append((queue.partition, now))
        return is_sent

    rig.accumulator.send_at_once = send
    for _ in range(2):
        if how == "append":
            rig.put(now=1.0)
        else:
            batch = begun(rig, now=1.0)
            fill(rig, batch)
            if batch.count == 1:
                rig.accumulator.ready(batch)

    assert offered == [(TopicPartition("t", 0), 1.0)], "the first record of a batch decides"
    assert (rig.ready(1.0), rig.woken) == ((False, 0) if is_sent else (True, 1))


# -- a lone batch, which leaves without the sender --------------------------------------------------------------------------


def test_a_lone_batch_leaves_as_the_sender_sends_it(rig: Rig) -> None:
    rig.put(now=1.0)
    queue = rig.accumulator.queues.of("t", 0)

    batch = rig.accumulator.drain_lone(queue, 7, 3.0)

    assert batch is not None
    assert (batch.base_sequence, batch.leader_epoch, batch.attempts, batch.last_attempt_at) == (0, 7, 1, 3.0)
    assert batch.is_in_flight
    assert (list(queue.batches), queue.in_flight) == ([], [batch])
    assert rig.metrics.record_queue_time.total == 2.0
    rig.acknowledge(batch)
    assert rig.pool.free == rig.pool.total


@pytest.mark.parametrize("why", ["its sequence", "its compression", "its shape"])
def test_a_lone_batch_that_must_wait_is_left_to_the_sender(why: str) -> None:
    rig = Rig(
        idempotent=why != "its sequence",
        shape=[1] if why == "its shape" else (),
        codec=Codec.GZIP if why == "its compression" else Codec.NONE,
        compression_threshold=100,
    )
    if why == "its sequence":
        rig.put()
        rig.drain()  # without idempotence, one batch of a partition is in flight at a time
    rig.put()
    queue = rig.accumulator.queues.of("t", 0)

    assert rig.accumulator.drain_lone(queue, 0, 0.0) is None
    assert len(queue.batches) == 1


# -- what is there ------------------------------------------------------------------------------------------------------


def test_the_oldest_batch_without_an_outcome_is_known(rig: Rig) -> None:
    oldest = [rig.accumulator.oldest_created_at]
    rig.put(0, now=2.0)
    rig.put(1, now=3.0)
    oldest.append(rig.accumulator.oldest_created_at)

    rig.acknowledge(*[batch for batch in rig.drain(3.0) if batch.partition.partition == 0])

    assert [*oldest, rig.accumulator.oldest_created_at] == [None, 2.0, 3.0]


def test_a_batch_is_unsettled_until_its_answer_although_its_outcome_was_reported(rig: Rig) -> None:
    seen = [rig.accumulator.has_unsettled]
    rig.put()
    seen.append(rig.accumulator.has_unsettled)
    (batch,) = rig.drain()
    rig.accumulator.outcomes.give_up(batch, KafkaTimeoutError("over"), TIMEOUT, timed_out=True)
    seen.append(rig.accumulator.has_unsettled)

    rig.acknowledge(batch)

    assert [*seen, rig.accumulator.has_unsettled] == [False, True, True, False]


def test_a_flush_of_nothing_is_done_at_once_and_disturbs_nothing(rig: Rig) -> None:
    done: list[bool] = []
    woken = rig.woken

    rig.accumulator.begin_flush(lambda: done.append(True), 0.0)

    assert (done, rig.woken) == ([True], woken)


def test_a_close_wakes_the_sender_and_refuses_those_who_come_for_memory(rig: Rig) -> None:
    rig.accumulator.close(0.0)

    assert rig.woken == 1
    assert rig.accumulator.try_append(rig.topic, 0, 1, None, b"x", (), 31, 0.0) is None


# -- more and fewer partitions, and the turns of records without a key ------------------------------------------------------


def choosing(*partitions: int) -> Callable[[], float]:
    """The chance that makes the next choices of a partition these, if all partitions are equally busy."""
    numbers = iter(partitions)
    return lambda: next(numbers) / 2**31


def test_a_topic_that_got_more_partitions_gets_a_new_lane_and_the_old_one_is_closed(rig: Rig) -> None:
    rig.put(0)
    before = rig.accumulator.lanes["t"]

    rig.lead(dict.fromkeys(range(5), 1))
    rig.put(4)

    lane = rig.accumulator.lanes["t"]
    assert (before.partition_count, lane.partition_count, len(lane.open)) == (0, 5, 5)
    assert lane.sticky is before.sticky
    assert rig.accumulator.lanes["t"] is lane


def test_a_topic_whose_metadata_records_wait_for_has_no_fast_path() -> None:
    """Records on the fast path would overtake those that wait."""
    rig = Rig()
    rig.accumulator._is_waited_for = lambda topic: topic == "t"

    rig.put()

    assert rig.accumulator.lanes["t"].partition_count == 0


def test_records_without_a_key_leave_a_partition_that_does_not_exist_any_more() -> None:
    rig = Rig(random=choosing(2, 1))
    assert rig.put(None).topic_partition.partition == 2
    forget(rig)

    rig.lead(dict.fromkeys(range(2), 1))

    assert rig.put(None).topic_partition.partition == 1


def test_the_next_partition_has_its_turn_instead_of_another_batch_of_this_one() -> None:
    rig = Rig(random=choosing(0, 1))
    assert rig.put(None, size=600).topic_partition.partition == 0
    rig.acknowledge(*rig.drain())
    assert rig.put(None, size=600).topic_partition.partition == 0, "its turn is not over"

    assert rig.put(None, size=100).topic_partition.partition == 0, "its batch has room"
    assert rig.put(None, size=600).topic_partition.partition == 1


def test_a_turn_with_one_byte_to_go_is_not_over() -> None:
    rig = Rig(random=choosing(0, 1))
    assert rig.put(None, size=990).topic_partition.partition == 0
    (batch,) = rig.drain()
    assert batch.size - BATCH_OVERHEAD == 999

    assert rig.put(None, size=1).topic_partition.partition == 0


def test_a_ready_partition_waits_for_the_next_producer_id_where_this_one_was_abandoned(rig: Rig) -> None:
    rig.put(0)
    (batch,) = rig.drain()
    rig.put(1)
    rig.sequences.unknown_id(batch)
    rig.accumulator.outcomes.retry(batch, 0.0)
    rig.settle(0.0)

    assert rig.drain() == []
    rig.sequences.set_producer_id(2, 0)
    rig.accumulator.queues.unblock(1.0)

    assert [each.producer_id for each in rig.drain(1.0)] == [2, 2]


def test_batches_linger_again_when_all_flushes_are_over(rig: Rig) -> None:
    rig.one_in_flight()
    first, second = (rig.accumulator.begin_flush(lambda: None, 1.0) for _ in range(2))
    rig.put(now=1.0)

    rig.accumulator.end_flush(first)
    rig.accumulator.queues.end_linger(1.0)
    assert rig.ready(1.0)
    (batch,) = rig.drain(1.0)
    rig.accumulator.end_flush(second)
    rig.put(now=2.0)

    assert not rig.ready(2.0)
    assert batch.is_in_flight


# -- queues that only seem to be ready --------------------------------------------------------------------------------------


def test_a_partition_whose_first_batch_is_being_compressed_is_not_ready() -> None:
    rig = Rig(codec=Codec.GZIP, compression_threshold=500)
    rig.one_in_flight()
    for _ in range(12):
        rig.put(now=1.0)
    assert not rig.ready(1.0)

    (first,) = rig.accumulator.sealing.take_to_seal()
    rig.accumulator.sealing.sealed(first, encode_batch(first.close(), Codec.GZIP), 1.0)

    assert rig.ready(1.0)


def test_a_partition_that_waits_for_its_first_answer_is_not_ready(rig: Rig) -> None:
    for _ in range(30):
        rig.put()
    (batch,) = rig.drain()
    assert not rig.ready(0.0)

    rig.acknowledge(batch)

    assert rig.ready(0.0)


def test_a_new_batch_makes_a_partition_ready_whose_leader_is_known_by_now() -> None:
    rig = Rig(partitions=1)
    rig.lead({0: -1})
    rig.put()
    rig.lead({0: 1}, epoch=1)
    assert not rig.ready(0.0)

    rig.put(size=1000)

    assert rig.ready(0.0)


def test_an_answer_in_a_pause_does_not_hold_up_what_was_ready(rig: Rig) -> None:
    first = rig.one_in_flight()
    rig.put(now=1.0)
    now = 1.0 + LINGER
    assert rig.ready(now)
    rig.accumulator.queues.worked(0.02, now)

    rig.acknowledge(first, now=now + 0.025)

    assert rig.ready(now + 0.025)


def test_a_queue_that_was_blocked_is_in_no_list_of_blocked_ones_any_more() -> None:
    rig = Rig(codec=Codec.GZIP, compression_threshold=50)
    rig.put()
    assert rig.drain() == []
    assert rig.accumulator.queues._blocked

    (batch,) = rig.accumulator.sealing.take_to_seal()
    rig.accumulator.sealing.sealed(batch, encode_batch(batch.close(), Codec.GZIP), 0.0)

    assert not rig.accumulator.queues._blocked
    assert rig.drain() == [batch]


def test_the_records_of_the_partitions_from_a_number_on_are_counted_until_they_have_an_outcome() -> None:
    rig = Rig(partitions=4)
    other = TopicMetadata("other", ZERO_UUID, tuple(PartitionMetadata(index, 1, 0) for index in range(4)))
    rig.accumulator.append_builder(other, 3, encoded(rig, 5), 0.0)
    for partition in (0, 2, 3):
        rig.put(partition)
    for batch in rig.drain():
        if batch.partition.partition == 2:
            rig.accumulator.outcomes.give_up(batch, KafkaTimeoutError("over"), TIMEOUT, timed_out=True)
    for _ in range(2):
        rig.put(1)

    counts = [rig.accumulator.queues.records_of("t", first) for first in range(5)]

    assert counts == [4, 3, 1, 1, 0]
    assert rig.accumulator.queues.records_of("other", 3) == 5


def test_a_pause_is_over_at_its_end_to_the_moment() -> None:
    rig = Rig()
    rig.accumulator.queues.worked(0.125, 1.0)
    rig.put(now=1.125)
    assert rig.accumulator.queues.next_deadline() == 1.25

    assert not rig.ready(1.25 - 1e-9)
    assert not rig.accumulator.queues.is_paused(1.25)
    assert rig.ready(1.25)


def test_the_end_of_a_linger_is_a_deadline_also_in_a_longer_pause() -> None:
    rig = Rig()
    rig.one_in_flight()
    rig.put(now=1.0)
    rig.accumulator.queues.worked(5.0, 1.0)

    rig.put(1, now=1.5)

    assert rig.accumulator.queues.is_paused(1.0 + LINGER)
    assert rig.accumulator.queues.next_deadline() == 1.0 + LINGER


def test_the_end_of_a_backoff_stays_a_deadline_when_its_batch_has_expired(rig: Rig) -> None:
    """The timer is not taken out of its heap: it is ignored when it is due."""
    rig.put()
    (batch,) = rig.drain()
    rig.accumulator.outcomes.retry(batch, TIMEOUT - 0.5)
    assert rig.accumulator.queues.expire(TIMEOUT) == [batch]
    rig.accumulator.outcomes.give_up(batch, KafkaTimeoutError("over"), TIMEOUT, timed_out=True)

    assert rig.accumulator.queues.next_deadline() == TIMEOUT + 0.5
    assert not rig.ready(TIMEOUT + 0.5)
    assert rig.accumulator.queues.next_deadline() is None


def test_changes_of_the_metadata_during_a_backoff_add_no_timers(rig: Rig) -> None:
    rig.put()
    (batch,) = rig.drain()
    rig.accumulator.outcomes.retry(batch, 0.0)

    for _ in range(10):
        rig.accumulator.reroute(0.5)

    assert len(rig.accumulator.queues._timers) == 1


def test_a_batch_that_was_given_up_in_flight_does_not_expire_a_second_time(rig: Rig) -> None:
    first = rig.one_in_flight()
    rig.put(now=1.0, size=1000)
    (second,) = rig.drain(1.0)
    assert rig.accumulator.queues.expire(TIMEOUT) == [first]
    rig.accumulator.outcomes.give_up(first, KafkaTimeoutError("over"), TIMEOUT, timed_out=True)

    assert rig.accumulator.queues.expire(1.0 + TIMEOUT) == [second]


def test_the_batches_of_partitions_that_are_gone_are_taken_out_and_no_others() -> None:
    rig = Rig(partitions=4)
    rig.lead({0: 1, 1: -1, 2: -1, 3: -1}, epoch=1)
    other = TopicMetadata("other", ZERO_UUID, (PartitionMetadata(0, -1, 0),))
    rig.accumulator.append_builder(other, 3, encoded(rig), 0.0)
    for partition in range(4):
        rig.put(partition)
    rig.put(3, size=1000)
    queues = rig.accumulator.queues

    lost = queues.take_lost("t", 2, 0.0)

    assert [batch.partition.partition for batch in lost] == [2, 3, 3]
    assert queues.leaderless_topics() == ["other", "t"]
    rest = queues.take_lost("t", 0, 0.0)
    assert [batch.partition.partition for batch in rest] == [1]
    assert queues.leaderless_topics() == ["other"]
    for batch in (*lost, *rest):
        rig.accumulator.outcomes.give_up(batch, BrokerConnectionError("gone"), 0.0, timed_out=False)
    assert rig.accumulator.pending_records == 1 + 3


def test_there_is_work_as_soon_as_a_batch_is_due(rig: Rig) -> None:
    queues = rig.accumulator.queues
    assert queues.has_work(1000.0) is False
    rig.one_in_flight()
    assert (queues.has_work(TIMEOUT), queues.has_work(TIMEOUT + 1e-9)) == (False, True)

    rig.put(now=1.0)

    assert (queues.has_work(1.0 + LINGER), queues.has_work(1.0 + LINGER + 1e-9)) == (False, True)
    assert rig.ready(1.0 + LINGER)
    assert queues.has_work(0.0)


@pytest.mark.parametrize("why", ["no leader", "a pause"])
def test_there_is_work_while_batches_wait_for_a_leader_or_the_end_of_a_pause(why: str) -> None:
    rig = Rig(partitions=1)
    if why == "no leader":
        rig.lead({0: -1})
    else:
        rig.accumulator.queues.worked(3600.0, 0.0)

    rig.put()

    assert not rig.ready(0.0)
    assert rig.accumulator.queues.has_work(0.0)


def test_a_partition_that_did_not_fit_into_a_request_can_move_to_another_leader() -> None:
    rig = Rig(partitions=2)
    for partition in range(2):
        rig.put(partition, size=500)
    assert len(rig.drain(limit=600)) == 1

    rig.lead({0: 1, 1: 2}, nodes=2, epoch=1)
    rig.accumulator.reroute(0.0)

    assert rig.accumulator.queues.ready_nodes() == [2]


def test_the_limit_of_a_topic_whose_batch_was_too_large_is_forgotten_with_it(rig: Rig) -> None:
    for _ in range(2):
        rig.put()
    (batch,) = rig.drain()
    rig.accumulator.outcomes.split(batch, 0.0)
    for _ in range(2):
        rig.acknowledge(*rig.drain())
    assert rig.accumulator.sealing.limits.by_topic

    forget(rig)

    assert not rig.accumulator.sealing.limits.by_topic


def test_each_compression_is_counted_and_improves_what_is_expected_of_the_next() -> None:
    rig = Rig(codec=Codec.GZIP)
    for _ in range(5):
        rig.put()

    (batch,) = rig.drain()

    assert batch.encoded is not None
    rate = rig.metrics.compression_rate
    assert (rate.count, rate.total) == (1, batch.encoded.size / batch.encoded.uncompressed_size)
    ratios = rig.accumulator.sealing._ratios
    assert ratios.estimate("t") < 1.0
    assert rig.accumulator.lanes["t"].sticky.ratio == ratios.on_the_wire("t")


def test_a_large_batch_that_waits_for_its_retry_is_not_compressed_again_when_another_one_begins() -> None:
    rig = Rig(codec=Codec.GZIP, compression_threshold=500)
    rig.accumulator.try_append(rig.topic, 0, 1, None, random.Random(1).randbytes(700), (), 740, 0.0)
    assert rig.drain() == []
    (batch,) = rig.accumulator.sealing.take_to_seal()
    rig.accumulator.sealing.sealed(batch, encode_batch(batch.close(), Codec.GZIP), 0.0)
    assert rig.metrics.compression_rate.count == 1
    assert rig.drain() == [batch]
    assert batch.size > 500
    rig.accumulator.outcomes.retry(batch, 0.0)

    rig.put()

    assert not batch.is_sealing
    assert rig.drain(1.0) == [batch]


def test_a_batch_that_fails_while_it_is_compressed_does_not_come_back() -> None:
    rig = Rig(codec=Codec.GZIP, compression_threshold=50)
    rig.put()
    assert rig.drain() == []
    (batch,) = rig.accumulator.sealing.take_to_seal()
    encoded = encode_batch(batch.close(), Codec.GZIP)
    rig.accumulator.outcomes.fail_all(BrokerConnectionError("x"), 0.0)

    rig.accumulator.sealing.sealed(batch, encoded, 0.0)

    assert batch.encoded is None
    assert rig.drain() == []
    assert rig.metrics.compression_rate.count == 0
    assert rig.pool.free == rig.pool.total


def test_without_compression_nothing_is_handed_to_a_worker() -> None:
    rig = Rig(compression_threshold=500)
    for _ in range(12):
        rig.put()

    assert rig.accumulator.sealing.take_to_seal() == []
    assert len(rig.drain()) == 1
    assert rig.metrics.compression_rate.count == 0


def test_each_topic_has_its_codec_and_one_without_a_codec_is_not_compressed() -> None:
    rig = Rig(codec=Codec.GZIP, codecs_by_topic={"t": Codec.NONE, "logs": Codec.LZ4}, compression_threshold=500)
    sealing = rig.accumulator.sealing
    assert [sealing.codec_of(topic) for topic in ("t", "logs", "other")] == [Codec.NONE, Codec.LZ4, Codec.GZIP]
    assert sealing.limit("t") == 1000
    assert sealing.limit("logs") < 1000
    for _ in range(12):
        rig.put()

    assert sealing.take_to_seal() == []
    (batch,) = rig.drain()
    assert batch.encoded is not None
    assert batch.encoded.codec is Codec.NONE
    assert rig.metrics.compression_rate.count == 0
    assert rig.accumulator.lanes["t"].sticky.ratio == 1.0
    sealing.refused(batch)
    assert rig.accumulator.lanes["t"].sticky.ratio == 1.0


@pytest.mark.parametrize(("supports", "expected"), [(True, Codec.ZSTD), (False, Codec.LZ4), (None, Codec.LZ4)], ids=str)
def test_a_batch_is_sealed_with_the_codec_that_its_leader_supports(supports: bool | None, expected: Codec) -> None:
    rig = Rig(codec=Codec.ZSTD, old_codec=Codec.LZ4)
    asked: list[TopicPartition] = []

    def supports_zstd(partition: TopicPartition) -> bool | None:
        asked.append(partition)
        return supports

    rig.accumulator.sealing.supports_zstd = supports_zstd
    rig.put()

    (batch,) = rig.drain()

    assert batch.encoded is not None
    assert batch.encoded.codec is expected
    assert asked == [batch.partition]


def test_a_topic_with_one_codec_does_not_ask_for_its_leaders_versions() -> None:
    rig = Rig(codec=Codec.ZSTD, codecs_by_topic={"logs": Codec.ZSTD}, old_codecs_by_topic={"logs": Codec.GZIP})
    rig.accumulator.sealing.supports_zstd = lambda partition: pytest.fail(f"asked for {partition}")
    rig.put()

    (batch,) = rig.drain()

    assert batch.encoded is not None
    assert batch.encoded.codec is Codec.ZSTD
    assert Rig(codec=Codec.ZSTD, old_codecs_by_topic={"t": None}).accumulator.settings.old_codec_of() is None


def test_a_large_batch_waits_for_its_leaders_versions_before_a_worker_compresses_it() -> None:
    known: list[bool] = []
    rig = Rig(codec=Codec.ZSTD, old_codec=Codec.NONE, compression_threshold=500)
    sealing = rig.accumulator.sealing
    sealing.supports_zstd = lambda partition: known[-1] if known else None
    for _ in range(12):
        rig.put()
    assert len(rig.accumulator.queues.by_partition[TopicPartition("t", 0)].batches) == 2
    assert sealing.take_to_seal() == []

    known.append(True)
    assert rig.drain() == []
    (large,) = sealing.take_to_seal()
    assert sealing.codec_for(large) is Codec.ZSTD


def test_the_codec_of_a_topic_compresses_its_small_batches() -> None:
    rig = Rig(codecs_by_topic={"t": Codec.LZ4}, compression_level=3)
    rig.put()

    (batch,) = rig.drain()

    assert batch.encoded is not None
    assert batch.encoded.codec is Codec.LZ4
    assert rig.metrics.compression_rate.count == 1


def test_the_threshold_is_the_size_of_the_smallest_batch_for_a_worker() -> None:
    rig = Rig()
    rig.put()
    (batch,) = rig.accumulator.queues.of("t", 0).batches
    drained: list[int] = []
    for threshold in (batch.size, batch.size + 1):
        rig = Rig(codec=Codec.GZIP, compression_threshold=threshold)
        rig.put()
        drained.append(len(rig.drain()))

    assert drained == [0, 1]


# -- the choice of a partition for records without a key --------------------------------------------------------------------


def chosen(rig: Rig, now: float = 0.0) -> int:
    """The partition of the next record without a key, which fills a batch."""
    return rig.put(None, now=now, size=1000).topic_partition.partition


def test_the_highest_chance_chooses_by_the_highest_number_of_31_bits() -> None:
    rig = Rig(partitions=7, random=lambda: 1 - 2**-53)

    assert chosen(rig) == (2**31 - 1) % 7


def test_records_without_a_key_follow_the_leaders_from_the_next_turn_on() -> None:
    rig = Rig(random=choosing(0, 0, 0, 0))
    assert chosen(rig) == 0

    rig.lead({0: -1, 1: -1, 2: 1}, epoch=1)

    assert [chosen(rig), chosen(rig)][1] == 2


def test_without_adaptive_partitioning_partitions_whose_batches_pile_up_get_as_many_records() -> None:
    rig = Rig(partitions=2, nodes=2, adaptive_partitioning=False, memory=64 * MIB, random=choosing(*([0, 1] * 50)))
    counts = [0, 0]
    for number in range(80):
        counts[chosen(rig, float(number))] += 1
        rig.acknowledge(*rig.drain(float(number), node=1), now=float(number))

    assert counts == [40, 40]


def test_without_any_leader_records_without_a_key_go_to_all_partitions() -> None:
    rig = Rig(random=choosing(1, 2, 0))
    rig.lead(dict.fromkeys(range(3), -1), epoch=1)

    assert [chosen(rig), chosen(rig)] == [1, 2]


def test_broker_0_leads_like_any_other() -> None:
    rig = Rig(random=choosing(0, 0))
    rig.lead({0: 0, 1: 1, 2: -1}, epoch=1)

    assert chosen(rig) == 0


def test_where_no_leader_is_in_the_clients_rack_all_leaders_get_records_without_a_key() -> None:
    rig = Rig(client_rack="elsewhere", random=choosing(0, 0))
    rig.lead({0: -1, 1: 1, 2: 9}, epoch=1)  # broker 9 is unknown

    assert chosen(rig) == 1


@pytest.mark.parametrize(("timeout", "went"), [(1.0, [1, 1, 0]), (0.0, [1, 1, 1])])
def test_a_broker_is_slow_when_its_batches_have_waited_for_longer_than_the_timeout(
    timeout: float, went: list[int]
) -> None:
    rig = Rig(partitions=2, nodes=2, availability_timeout_s=timeout, random=choosing(1, 1, 1))
    for partition in range(2):
        rig.put(partition)
    rig.accumulator.not_accepted(2, 10.0)

    assert [rig.accumulator.sticky_partition(rig.topic, now) for now in (10.5, 11.0, 11.1)] == went


def test_partitions_have_no_weights_until_each_was_used() -> None:
    rig = Rig(partitions=2, random=choosing(2))
    rig.put(0)

    assert rig.accumulator.sticky_partition(rig.topic, 0.0) == 0


def test_a_partition_of_another_rack_that_was_not_used_yet_has_no_batches_waiting() -> None:
    rig = Rig(partitions=4, nodes=2, client_rack="b", availability_timeout_s=1.0, random=choosing(2))
    for node, rack in ((1, "a"), (2, "b")):
        rig.metadata.nodes[node] = rig.metadata.nodes[node]._replace(rack=rack)
    for partition in (0, 1, 3):
        rig.put(partition)
    rig.accumulator.not_accepted(2, 0.0)

    assert rig.accumulator.sticky_partition(rig.topic, 5.0) == 2


def test_the_weights_of_partitions_are_used_for_a_hundredth_of_a_second() -> None:
    rig = Rig(partitions=2, random=choosing(2, 2, 2))
    for partition in range(2):
        rig.put(partition)
    went = [rig.accumulator.sticky_partition(rig.topic, 1.0)]
    rig.put(0, size=1000)

    went += [rig.accumulator.sticky_partition(rig.topic, now) for now in (1.01, 1.011)]

    assert went == [0, 0, 1]


def test_a_broker_that_is_in_the_clients_rack_by_now_gets_the_records_without_a_key() -> None:
    """The metadata of another topic may have brought its rack: then the topic's own are the same object."""
    rig = Rig(partitions=2, nodes=2, client_rack="b", random=choosing(0, 0))
    before = rig.accumulator.sticky_partition(rig.topic, 0.0)

    rig.metadata.nodes[2] = rig.metadata.nodes[2]._replace(rack="b")
    rig.metadata.version += 1

    assert (before, rig.accumulator.sticky_partition(rig.topic, 0.0)) == (0, 1)


@pytest.mark.parametrize(("batch_size", "turn"), [(1000, 1000), (65_536, 65_536), (MIB, 65_536)])
def test_a_turn_is_as_long_as_a_batch_up_to_64_kib(batch_size: int, turn: int) -> None:
    assert Rig(batch_size=batch_size).accumulator.sticky.begin().turn == turn
