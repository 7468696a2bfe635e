"""With ``on_data_loss="stop"`` a partition that loses a record writes none behind it until ``resume()``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aioproducer import (
    ConfigError,
    DeliveryError,
    InvalidRecord,
    NotWritten,
    PartitionStopped,
    Producer,
    ProducerConfig,
    ProducerRecord,
    RecordsPurged,
    SendManyError,
    SyncProducer,
    TopicPartition,
    Unknown,
)
from aioproducer.delivery import Delivery
from aioproducer.errors import KafkaError, KafkaTimeoutError, ProducerClosed
from aioproducer.intake.sync_delivery import SyncDelivery
from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.record import RecordBatchBuilder, record_size_upper_bound
from aioproducer.testing import FakeBroker
from tests.conftest import QUICK, opened, until
from tests.desk import FIRST, NOW, Desk, Sent
from tests.rig import LINGER, TIMEOUT, Rig

E = ErrorCode
LOST = E.INVALID_RECORD


def desk_that_stops(mode: str = "stop") -> Desk:
    """A desk whose partition has had its first acknowledgement, so that several batches can be in flight."""
    desk = Desk()
    desk.rig.accumulator.stopped.is_enabled = mode == "stop"
    desk.answer(desk.send())
    return desk


def cause_of(delivery: Delivery) -> tuple[type[BaseException], type[object]]:
    """The class of a record's error, and that of its cause."""
    error = delivery.exception()
    assert error is not None
    return type(error), type(error.__cause__)


def expire(rig: Rig, now: float) -> None:
    for batch in rig.accumulator.queues.expire(now):
        rig.accumulator.outcomes.give_up(batch, KafkaTimeoutError("too late"), now, timed_out=True)


STOPPED = (NotWritten, PartitionStopped)


# -- below the event loop -----------------------------------------------------------------------------------------------


def test_batches_behind_a_lost_one_are_not_written_whether_in_flight_or_waiting() -> None:
    desk = desk_that_stops()
    lost, in_flight = desk.send(), desk.send()
    waiting = [desk.rig.put(size=900) for _ in range(3)]

    desk.answer(lost, LOST)

    assert [cause_of(each) for each in waiting] == [STOPPED] * 3, "at once"
    assert in_flight.is_waiting, "only its broker knows"
    desk.answer(in_flight, E.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert cause_of(in_flight.deliveries[0]) == STOPPED
    assert lost.outcomes == [NotWritten]
    assert desk.rig.pool.used == 0
    with pytest.raises(PartitionStopped, match="INVALID_RECORD") as caught:
        desk.rig.put()
    assert caught.value.__cause__ is not None
    assert desk.rig.pool.used == 0
    desk.rig.put(1)


def test_by_default_they_are_written() -> None:
    desk = desk_that_stops("continue")
    lost, in_flight = desk.send(), desk.send()
    waiting = [desk.rig.put(size=900) for _ in range(3)]

    desk.answer(lost, LOST)
    desk.answer(in_flight, E.OUT_OF_ORDER_SEQUENCE_NUMBER)
    desk.rig.settle(NOW)

    assert lost.outcomes == [NotWritten]
    assert desk.waits(in_flight)
    assert in_flight.batch.base_sequence == 0
    assert not any(each.done() for each in waiting)
    desk.rig.put()


def test_a_batch_before_the_lost_one_is_sent_again() -> None:
    desk = desk_that_stops()
    earlier, lost, later = desk.send(), desk.send(), desk.send()

    desk.answer(lost, LOST)
    desk.answer(earlier, E.NOT_ENOUGH_REPLICAS)
    desk.answer(later, E.NOT_ENOUGH_REPLICAS)

    assert cause_of(later.deliveries[0]) == STOPPED
    assert desk.waits(earlier)
    desk.again(earlier)
    desk.answer(earlier)
    assert earlier.outcomes == [None]
    assert earlier.deliveries[0].result().offset == 7
    assert desk.rig.pool.used == 0


def test_a_batch_that_is_lost_before_the_first_lost_one_is_the_reason_from_then_on() -> None:
    desk = desk_that_stops()
    earlier, lost = desk.send(), desk.send()
    desk.answer(lost, LOST)
    assert "INVALID_RECORD" in str(desk.rig.accumulator.stopped.errors()[FIRST])

    desk.answer(earlier, E.TOPIC_AUTHORIZATION_FAILED)

    assert "TOPIC_AUTHORIZATION_FAILED" in str(desk.rig.accumulator.stopped.errors()[FIRST])


def test_a_later_loss_does_not_replace_the_first_one() -> None:
    desk = desk_that_stops()
    first, second = desk.send(), desk.send()

    desk.answer(first, LOST)
    desk.answer(second, E.TOPIC_AUTHORIZATION_FAILED)

    assert isinstance(second.error.__cause__, KafkaError)
    assert "INVALID_RECORD" in str(desk.rig.accumulator.stopped.errors()[FIRST])


@pytest.mark.parametrize("code", [E.OUT_OF_ORDER_SEQUENCE_NUMBER, E.UNKNOWN_PRODUCER_ID, E.NOT_LEADER_OR_FOLLOWER])
def test_a_batch_behind_the_lost_one_that_may_be_written_is_unknown(code: ErrorCode) -> None:
    desk = desk_that_stops()
    lost, later = desk.send(), desk.send()
    later.batch.possibly_written = True

    desk.answer(lost, LOST)
    desk.answer(later, code, log_start_offset=3)

    assert cause_of(later.deliveries[0]) == (Unknown, PartitionStopped)


def test_a_batch_that_waits_for_its_retry_behind_the_lost_one_is_given_up() -> None:
    desk = desk_that_stops()
    lost, refused, in_doubt = desk.send(), desk.send(), desk.send()
    desk.answer(refused, E.NOT_ENOUGH_REPLICAS)
    desk.take(in_doubt, answer=NO_ANSWER)

    desk.answer(lost, LOST)

    assert cause_of(refused.deliveries[0]) == STOPPED
    assert cause_of(in_doubt.deliveries[0]) == (Unknown, PartitionStopped)
    assert desk.rig.pool.used == 0


NO_ANSWER: Any = KafkaTimeoutError("no answer")


def test_a_batch_behind_the_lost_one_is_not_split(caplog: pytest.LogCaptureFixture) -> None:
    desk = desk_that_stops()
    lost, later = desk.send(), desk.send(2)
    desk.answer(lost, LOST)

    with caplog.at_level(logging.WARNING, logger="aioproducer"):
        desk.answer(later, E.MESSAGE_TOO_LARGE)

    assert [cause_of(each) for each in later.deliveries] == [STOPPED] * 2
    assert "split" not in caplog.text
    assert desk.rig.pool.used == 0


def test_a_part_of_a_split_batch_that_is_lost_stops_the_parts_behind_it() -> None:
    desk = desk_that_stops()
    whole = desk.send(2)
    desk.answer(whole, E.MESSAGE_TOO_LARGE)
    (part,) = desk.rig.drain(NOW)

    desk.answer(Sent(part, whole.deliveries[:1]), E.MESSAGE_TOO_LARGE)

    assert whole.outcomes == [NotWritten, NotWritten]
    assert cause_of(whole.deliveries[1]) == STOPPED
    assert desk.rig.pool.used == 0


def test_a_record_whose_time_ended_in_flight_may_be_lost_and_stops_its_partition() -> None:
    desk = desk_that_stops()
    rig = desk.rig
    lost, later = desk.send(), desk.send()
    waiting = rig.put(now=LINGER)

    expire(rig, TIMEOUT)

    assert lost.outcomes == later.outcomes, "as old as the first one"
    assert cause_of(waiting) == STOPPED
    assert "may be lost" in str(waiting.exception())
    desk.answer(lost)
    desk.answer(later)
    assert rig.pool.used == 0
    assert list(rig.accumulator.stopped.errors()) == [FIRST], "its delivery has failed"


def test_a_batch_that_is_acknowledged_behind_a_record_that_may_be_lost_is_reported_so() -> None:
    desk = desk_that_stops()
    lost = desk.send()
    later = desk.rig.put(now=LINGER)
    (batch,) = desk.rig.drain(2 * LINGER)

    expire(desk.rig, TIMEOUT)
    desk.answer(Sent(batch, [later]))

    assert lost.outcomes[0] is not None
    assert issubclass(lost.outcomes[0], Unknown)
    assert later.result().offset == 7


def test_a_batch_in_flight_behind_a_lost_record_does_not_overtake_it_when_it_is_sent_again() -> None:
    desk = desk_that_stops()
    rig = desk.rig
    lost, in_flight = desk.send(), desk.send()
    desk.answer(lost, LOST)

    assert rig.accumulator.outcomes.resume("t", 0) == (FIRST,)
    assert rig.accumulator.outcomes.resume("t", 0) == ()
    new = rig.put()
    assert rig.drain(NOW) == [], "the hole is not closed before the answer"
    desk.answer(in_flight, E.OUT_OF_ORDER_SEQUENCE_NUMBER)
    rig.settle(NOW)

    assert in_flight.outcomes == [NotWritten]
    assert cause_of(in_flight.deliveries[0]) == STOPPED
    assert not rig.accumulator.stopped.losses
    (batch,) = rig.drain(NOW + 20)
    assert (batch.producer_epoch, batch.base_sequence) == (1, 0)
    desk.answer(Sent(batch, [new]))
    assert new.result().offset == 7
    assert rig.pool.used == 0


def test_a_batch_that_is_sent_after_a_loss_is_retried_as_usual() -> None:
    desk = desk_that_stops()
    lost, in_flight = desk.send(), desk.send()
    desk.answer(lost, LOST)
    desk.rig.accumulator.outcomes.resume(None, None)
    desk.answer(in_flight, E.OUT_OF_ORDER_SEQUENCE_NUMBER)
    desk.rig.settle(NOW)
    delivery = desk.rig.put()
    (batch,) = desk.rig.drain(NOW + 20)

    desk.answer(Sent(batch, [delivery]), E.NOT_ENOUGH_REPLICAS)

    assert desk.rig.drain(NOW + 40) == [batch]


def test_a_partition_that_goes_on_may_stop_again() -> None:
    desk = desk_that_stops()
    lost, later = desk.send(), desk.send()
    desk.answer(lost, LOST)
    desk.rig.accumulator.outcomes.resume(None, None)

    desk.answer(later, E.TOPIC_AUTHORIZATION_FAILED)

    assert "TOPIC_AUTHORIZATION_FAILED" in str(desk.rig.accumulator.stopped.errors()[FIRST])


def test_records_that_the_program_gives_up_stop_nothing() -> None:
    desk = desk_that_stops()
    sent = desk.send()
    desk.rig.put(size=900)

    desk.rig.accumulator.outcomes.purge(RecordsPurged("asked for"), NOW, topics=frozenset(), in_flight=True)
    desk.rig.put()
    desk.rig.accumulator.outcomes.fail_all(ProducerClosed("closed"), NOW)

    assert sent.outcomes == [Unknown]
    assert not desk.rig.accumulator.stopped.losses


def test_a_failure_of_everything_has_one_cause_and_stops_every_partition() -> None:
    rig = Rig(stops_on_data_loss=True)
    deliveries = [rig.put(partition, size=900) for partition in (0, 0, 1)]

    rig.accumulator.outcomes.fail_all(KafkaError("no producer id"), NOW)

    assert [cause_of(each) for each in deliveries] == [(NotWritten, KafkaError)] * 3
    assert [each.partition for each in rig.accumulator.stopped.errors()] == [0, 1]
    assert rig.pool.used == 0


def test_any_number_of_batches_can_wait_behind_the_lost_one() -> None:
    desk = desk_that_stops()
    lost = desk.send()
    waiting = [desk.rig.put(size=900) for _ in range(1000)]

    desk.answer(lost, LOST)

    assert all(cause_of(each) == STOPPED for each in waiting)
    assert desk.rig.pool.used == 0


def test_a_batch_that_was_encoded_elsewhere_fails_in_a_stopped_partition() -> None:
    desk = desk_that_stops()
    rig = desk.rig
    desk.answer(desk.send(), LOST)
    builder = RecordBatchBuilder(1000)
    builder.append(1, None, b"row", ())
    assert rig.pool.try_acquire(builder.size)

    result = rig.accumulator.append_builder(rig.topic, 0, builder, NOW)

    assert result.failure is not None
    assert isinstance(result.failure.cause, PartitionStopped)
    assert rig.pool.used == 0
    assert not rig.accumulator.has_unsettled


def test_records_without_a_key_avoid_stopped_partitions() -> None:
    rig = Rig(stops_on_data_loss=True, random=lambda: 0.0)
    accumulator = rig.accumulator
    chosen: list[int] = []
    for number in range(3):
        rig.put(None)
        (batch,) = rig.drain()
        chosen.append(batch.partition.partition)
        accumulator.outcomes.fail(batch, KafkaError(f"lost {number}"), NOW)
    assert sorted(chosen) == [0, 1, 2]

    with pytest.raises(PartitionStopped):
        rig.put(None)
    assert accumulator.begin(rig.topic, None, 100, NOW) is None

    accumulator.outcomes.resume("t", 1)
    rig.put(None)
    assert [batch.partition.partition for batch in rig.drain()] == [1]


def test_records_without_a_key_return_when_another_partition_has_a_leader_again() -> None:
    rig = Rig(2, 2, stops_on_data_loss=True)
    rig.put(0)
    (batch,) = rig.drain()
    rig.lead({0: 1, 1: -1}, 2)
    rig.accumulator.outcomes.fail(batch, KafkaError("lost"), NOW)

    rig.put(None)  # waits for a leader: that is better than a refusal
    rig.lead({0: 1, 1: 2}, 2)
    rig.accumulator.reroute(NOW)
    rig.put(None)

    (waiting,) = rig.drain(node=2)
    assert (waiting.partition.partition, waiting.count) == (1, 2)


def test_records_without_a_key_go_to_a_partition_that_is_added() -> None:
    rig = Rig(1, 1, stops_on_data_loss=True)
    rig.put(0)
    (batch,) = rig.drain()
    rig.accumulator.outcomes.fail(batch, KafkaError("lost"), NOW)
    with pytest.raises(PartitionStopped):
        rig.put(None)

    rig.lead({0: 1, 1: 1}, 1)
    rig.put(None)

    assert [each.partition.partition for each in rig.drain()] == [1]


def test_the_fast_path_gets_no_batch_of_a_stopped_partition() -> None:
    desk = desk_that_stops()
    desk.answer(desk.send(), LOST)

    assert desk.rig.accumulator.begin(desk.rig.topic, 0, 100, NOW) is None
    desk.rig.accumulator.outcomes.resume("t", 0)
    assert desk.rig.accumulator.begin(desk.rig.topic, 0, 100, NOW) is not None


async def test_a_call_that_waits_for_room_fails_when_its_partition_stops() -> None:
    desk = Desk()
    rig = desk.rig = Rig(stops_on_data_loss=True, memory=1000)
    lost = rig.put(size=700)
    waiter = asyncio.ensure_future(
        rig.accumulator.append(rig.topic, 0, 1, None, b"x" * 300, (), 330, lambda: NOW),
    )
    await asyncio.sleep(0)

    (batch,) = rig.drain()
    rig.accumulator.outcomes.fail(batch, KafkaError("lost"), NOW)

    with pytest.raises(PartitionStopped):
        await waiter
    assert lost.done()
    assert rig.pool.used == 0


# -- the options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"transactional_id": "t"}, "whole transaction"),
        ({"enable_idempotence": False}, "without sequence numbers"),
        ({"enable_idempotence": False, "acks": 0}, "without sequence numbers"),
    ],
)
def test_it_is_refused_where_it_cannot_work(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        ProducerConfig.create("localhost:9092", on_data_loss="stop", **options)
    ProducerConfig.create("localhost:9092", on_data_loss="continue", **options)


def test_it_is_read_from_the_environment_and_from_properties() -> None:
    environment = {"KAFKA_BOOTSTRAP_SERVERS": "localhost:9092", "KAFKA_ON_DATA_LOSS": "stop"}
    properties = {"bootstrap.servers": "localhost:9092", "on_data_loss": "stop"}
    assert ProducerConfig.from_env(environ=environment).on_data_loss == "stop"
    assert ProducerConfig.from_properties(properties).on_data_loss == "stop"
    assert ProducerConfig.create("localhost:9092").on_data_loss == "continue"
    with pytest.raises(ConfigError, match="continue"):
        ProducerConfig.create("localhost:9092", on_data_loss="halt")  # type: ignore[arg-type]


# -- with a broker -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def after_a_loss(
    broker: FakeBroker, mode: Any, **options: Any
) -> AsyncGenerator[tuple[Producer, list[Delivery]]]:
    """A producer, and the deliveries of a record that is lost and of three behind it: two in flight, one waiting."""
    async with opened(broker, on_data_loss=mode, max_in_flight_requests_per_connection=3, **options) as producer:
        await producer.send("orders", b"first", partition=0)
        broker.fail("Produce", "INVALID_RECORD", topic="orders", partition=0)
        with broker.hold("Produce") as hold:
            deliveries = [await producer.enqueue("orders", b"lost", partition=0)]
            await until(lambda: producer.metrics()["requests-in-flight"] >= 1)
            for number in range(3):
                deliveries.append(await producer.enqueue("orders", b"behind %d" % number, partition=0))
                await producer.enqueue("orders", b"other", partition=1)
            hold.release()
            await producer.flush()
        yield producer, deliveries


def values(broker: FakeBroker, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in broker.records("orders", partition)]


@pytest.mark.parametrize("mode", ["continue", "stop"])
async def test_the_log_ends_before_the_lost_record(broker: FakeBroker, mode: str) -> None:
    async with after_a_loss(broker, mode) as (producer, deliveries):
        errors = [each.exception() for each in deliveries]
        stops = mode == "stop"
        assert isinstance(errors[0], NotWritten)
        assert list(producer.stopped_partitions) == ([TopicPartition("orders", 0)] if stops else [])
        assert producer.metrics()["buffer-available-bytes"] == producer.metrics()["buffer-total-bytes"]
        if stops:
            assert all(isinstance(each, NotWritten) for each in errors)
            first = producer.stopped_partitions[TopicPartition("orders", 0)]
            assert first.record is not None
            assert first.record.value == b"lost"
    behind = [each for each in values(broker) if each is not None and each.startswith(b"behind")]
    assert values(broker)[0] == b"first"
    assert bool(behind) != stops
    assert values(broker, 1) == [b"other"] * 3


async def _nowait(producer: Producer) -> object:
    return producer.enqueue_nowait("orders", b"new", partition=0)


CALLS: list[tuple[str, Callable[[Producer], Coroutine[Any, Any, object]]]] = [
    ("send", lambda producer: producer.send("orders", b"new", partition=0)),
    ("enqueue", lambda producer: producer.enqueue("orders", b"new", partition=0)),
    ("record", lambda producer: producer.enqueue(ProducerRecord("orders", b"new", partition=0))),
    ("enqueue_nowait", _nowait),
]


@pytest.mark.parametrize("call", [call for _, call in CALLS], ids=[name for name, _ in CALLS])
async def test_new_records_are_refused_until_the_program_resumes(
    broker: FakeBroker, call: Callable[[Producer], Coroutine[Any, Any, object]]
) -> None:
    async with after_a_loss(broker, "stop") as (producer, _):
        with pytest.raises(NotWritten, match=r"is stopped.*resume\('orders', 0\)") as caught:
            await call(producer)
        assert isinstance(caught.value.__cause__, PartitionStopped)
        assert caught.value.topic == "orders"
        assert caught.value.record is not None
        assert caught.value.record.value == b"new"

        assert producer.resume("payments") == ()
        assert producer.resume("orders", 1) == ()
        assert producer.resume("orders") == (TopicPartition("orders", 0),)
        assert producer.stopped_partitions == {}
        for number in range(3):
            await producer.enqueue("orders", b"%d" % number, partition=0)
        await call(producer)
    assert values(broker) == [b"first", b"0", b"1", b"2", b"new"]


async def test_a_key_chooses_the_stopped_partition_and_is_refused(broker: FakeBroker) -> None:
    async with opened(broker, on_data_loss="stop") as producer:
        broker.fail("Produce", "INVALID_RECORD")
        with pytest.raises(NotWritten) as lost:
            await producer.send("orders", b"lost", key=b"key")

        with pytest.raises(NotWritten, match="is stopped"):
            await producer.send("orders", b"next", key=b"key")
        for _ in range(20):
            assert (await producer.send("orders", b"no key")).partition != lost.value.partition


async def test_send_many_and_send_table_stop_at_the_first_record_that_is_refused(broker: FakeBroker) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    async with after_a_loss(broker, "stop") as (producer, _):
        with pytest.raises(SendManyError, match="is stopped") as caught:
            await producer.send_many("orders", [b"new"] * 3, partition=0)
        assert caught.value.result.count == 0
        with pytest.raises(SendManyError, match="is stopped") as caught:
            await producer.send_table("orders", pyarrow.table({"value": ["a", "b"]}), value="value", partition=0)
        assert (caught.value.result.count, caught.value.result.failed) == (0, 2)
        assert producer.metrics()["buffer-available-bytes"] == producer.metrics()["buffer-total-bytes"]
    assert values(broker) == [b"first"]


async def test_a_record_whose_time_is_over_in_flight_stops_its_partition(broker: FakeBroker) -> None:
    patience: dict[str, Any] = {"request_timeout_ms": 100, "delivery_timeout_ms": 300, "linger_ms": 0}
    async with opened(broker, on_data_loss="stop", **patience) as producer:
        await producer.send("orders", b"first", partition=0)
        broker.swallow("Produce", times=None)
        with pytest.raises(Unknown):
            await producer.send("orders", b"in doubt", partition=0)
        with pytest.raises(NotWritten, match="may be lost"):
            await producer.send("orders", b"next", partition=0)
        broker.clear_faults()
        producer.resume()
        await producer.send("orders", b"after", partition=0)
    assert values(broker) == [b"first", b"in doubt", b"after"], "it was written indeed"


async def test_a_producer_that_is_started_again_goes_on(broker: FakeBroker) -> None:
    async with after_a_loss(broker, "stop") as (producer, _):
        pass
    async with producer:
        assert producer.stopped_partitions == {}
        await producer.send("orders", b"again", partition=0)
    assert values(broker) == [b"first", b"again"]


async def test_a_partition_cannot_be_resumed_without_its_topic(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        with pytest.raises(InvalidRecord, match="without its topic"):
            producer.resume(partition=3)
        with pytest.raises(InvalidRecord, match="topic"):
            producer.resume("no topic!")
        assert producer.resume() == ()


def test_threads_are_refused_and_resume(broker: FakeBroker) -> None:
    with SyncProducer(broker.bootstrap_servers, on_data_loss="stop", **QUICK) as producer:
        producer.send("orders", b"first", partition=0)
        broker.fail("Produce", "INVALID_RECORD")
        with pytest.raises(NotWritten):
            producer.send("orders", b"lost", partition=0)

        handed_over = [producer.enqueue("orders", b"%d" % number, partition=0) for number in range(100)]
        errors = [each.exception() for each in handed_over]
        assert all(isinstance(each, NotWritten) for each in errors)
        assert all(isinstance(each.__cause__, PartitionStopped) for each in errors if each is not None)
        assert list(producer.stopped_partitions) == [TopicPartition("orders", 0)]
        assert isinstance(producer.stopped_partitions[TopicPartition("orders", 0)], DeliveryError)

        assert producer.resume("orders", 0) == (TopicPartition("orders", 0),)
        producer.send("orders", b"after", partition=0)
    assert values(broker) == [b"first", b"after"]


async def test_the_log_has_one_line_for_each_stop(broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="aioproducer"):
        async with after_a_loss(broker, "stop") as (producer, _):
            producer.resume()
    stops = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(stops) == 1
    assert stops[0].getMessage().count("is stopped") == 1
    assert caplog.text.count("continues without") == 1


async def test_a_record_that_is_sent_again_comes_before_those_behind_it(broker: FakeBroker) -> None:
    async with opened(broker, on_data_loss="stop", linger_ms=0) as producer:
        await producer.send("orders", b"first", partition=0)
        broker.fail("Produce", "INVALID_RECORD")
        with broker.hold("Produce") as hold:
            lost = await producer.enqueue("orders", b"lost", partition=0)
            await until(lambda: producer.metrics()["requests-in-flight"] == 1)
            behind = await producer.enqueue("orders", b"behind", partition=0)
            await until(lambda: producer.metrics()["requests-in-flight"] == 2)
            hold.release()
            with pytest.raises(NotWritten):
                await lost
            producer.resume()
            await producer.send("orders", b"again", partition=0)

        assert isinstance(behind.exception(), NotWritten)
        assert values(broker) == [b"first", b"again"]


async def test_the_partitions_that_had_stopped_are_known_after_the_end(broker: FakeBroker) -> None:
    async with opened(broker, on_data_loss="stop") as producer:
        broker.fail("Produce", "INVALID_RECORD")
        with pytest.raises(NotWritten):
            await producer.send("orders", b"lost", partition=0)

    assert list(producer.stopped_partitions) == [TopicPartition("orders", 0)]
    async with producer:
        assert producer.stopped_partitions == {}


@pytest.mark.parametrize(("key", "partition"), [(None, 0), (b"key", None)])
def test_a_record_from_a_thread_that_finds_no_room_stops_its_partition(
    broker: FakeBroker, key: bytes | None, partition: int | None
) -> None:
    options = {
        **QUICK,
        "buffer_memory": 200_000,
        "max_request_size": 150_000,
        "batch_size": 16_384,
        "max_block_ms": 300,
    }
    with SyncProducer(broker.bootstrap_servers, on_data_loss="stop", **options) as producer:
        place = producer.send("orders", b"first", key=key, partition=partition).partition
        other = (place + 1) % 3
        producer.send("orders", b"first", partition=other)
        with broker.hold("Produce"):
            producer.enqueue("orders", bytes(100_000), partition=other)
            free = int(producer.metrics()["buffer-available-bytes"])
            size = free - record_size_upper_bound(key, None) - 5  # there is room for it, but not for a batch header
            lost = producer.enqueue("orders", bytes(size), key=key, partition=partition)
            with pytest.raises(NotWritten):
                lost.result(30)
            behind = producer.enqueue("orders", b"behind", key=key, partition=partition)
        producer.flush()

        assert cause_of_handed(behind) is PartitionStopped
        assert list(producer.stopped_partitions) == [TopicPartition("orders", place)]
        assert values(broker, place) == [b"first"]


def cause_of_handed(delivery: SyncDelivery) -> type[object]:
    error = delivery.exception()
    assert isinstance(error, NotWritten)
    return type(error.__cause__)
