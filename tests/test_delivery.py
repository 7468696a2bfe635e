"""Outcomes: each record's own metadata, its own error, and no unreported failure."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest

from aioproducer.delivery import BatchFailure, Delivery, PendingCall, ProduceResult
from aioproducer.errors import (
    BrokerError,
    KafkaError,
    KafkaTimeoutError,
    NotWritten,
    NotWrittenTimeout,
    Unknown,
    UnknownTimeout,
)
from aioproducer.runtime.detached import detached
from aioproducer.runtime.log import ClientLog
from aioproducer.types import ProducerRecord, TimestampType, TopicPartition

ORDERS = TopicPartition("orders", 3)


class Sink:
    """Remembers the unobserved failures, and runs callbacks at once."""

    def __init__(self) -> None:
        self.log = ClientLog("shop")
        self.unobserved_indexes: list[int] = []
        self.remembered: list[ProduceResult] = []

    def check_waiter(self, loop: object) -> None:
        pass

    def call_soon(self, calls: Sequence[PendingCall]) -> None:
        for _, delivery, callback in calls:
            callback(delivery)

    def unobserved(self, failure: BatchFailure, indexes: Sequence[int]) -> None:
        self.unobserved_indexes += indexes

    def remember(self, result: ProduceResult) -> None:
        self.remembered.append(result)


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def result(sink: Sink) -> ProduceResult:
    return ProduceResult(ORDERS, sink)


def delivery(result: ProduceResult, index: int = 0, timestamp_ms: int = 1000) -> Delivery:
    return Delivery(result, index, timestamp_ms, 2, 5)


def failure(*, possibly_written: bool = False, timed_out: bool = False, **record_errors: str) -> BatchFailure:
    records = [ProducerRecord("orders", str(index).encode(), None, (), 3, index) for index in range(10)]
    cause = BrokerError(87, "INVALID_RECORD", "no good")
    errors = {int(name[1:]): text for name, text in record_errors.items()}
    return BatchFailure(ORDERS, cause, possibly_written, timed_out, lambda: records, errors)


def test_every_record_is_reported_its_own_offset_and_timestamp(result: ProduceResult) -> None:
    deliveries = [delivery(result, index, 1000 * (index + 1)) for index in range(3)]

    result.succeed(base_offset=5, log_append_time_ms=-1)

    assert [each.result().offset for each in deliveries] == [5, 6, 7]
    assert [each.result().timestamp_ms for each in deliveries] == [1000, 2000, 3000]


def test_the_brokers_time_replaces_the_records_if_the_topic_is_configured_so(result: ProduceResult) -> None:
    sent = delivery(result)

    result.succeed(base_offset=0, log_append_time_ms=777)

    metadata = sent.result()
    assert (metadata.timestamp_ms, metadata.timestamp_type) == (777, TimestampType.LOG_APPEND_TIME)
    assert (metadata.serialized_key_size, metadata.serialized_value_size) == (2, 5)


def test_an_offset_that_the_broker_does_not_tell_is_minus_one_for_every_record(result: ProduceResult) -> None:
    second = delivery(result, 1)

    result.succeed(base_offset=-1, log_append_time_ms=-1)

    assert second.result().offset == -1
    assert not second.result().has_offset


def test_the_outcome_cannot_be_read_before_it_is_known(result: ProduceResult) -> None:
    pending = delivery(result)

    assert not pending.done()
    with pytest.raises(asyncio.InvalidStateError):
        pending.result()


@pytest.mark.parametrize(
    ("possibly_written", "timed_out", "kind"),
    [
        (False, False, NotWritten),
        (False, True, NotWrittenTimeout),
        (True, False, Unknown),
        (True, True, UnknownTimeout),
    ],
)
def test_a_failure_shows_whether_the_record_may_be_in_the_log(
    result: ProduceResult, possibly_written: bool, timed_out: bool, kind: type[Exception]
) -> None:
    failed = delivery(result, 2)

    result.fail(failure(possibly_written=possibly_written, timed_out=timed_out))

    error = failed.exception()
    assert type(error) is kind
    assert (error.topic, error.partition) == ORDERS
    assert error.record is not None
    assert error.record.value == b"2"
    assert isinstance(error.__cause__, BrokerError)
    assert isinstance(error, TimeoutError) == timed_out


def test_the_error_of_one_record_reaches_that_record(result: ProduceResult) -> None:
    first, second = delivery(result, 0), delivery(result, 1)

    result.fail(failure(_1="value is not JSON"))

    assert "value is not JSON" in str(second.exception())
    assert "value is not JSON" not in str(first.exception())
    assert "shared a batch with 1 record(s)" in str(first.exception())


async def test_many_tasks_may_await_one_delivery(result: ProduceResult) -> None:
    sent = delivery(result)

    async def wait() -> int:
        return (await sent).offset

    tasks = [asyncio.create_task(wait()) for _ in range(3)]
    await asyncio.sleep(0)
    result.succeed(9, -1)

    assert await asyncio.gather(*tasks) == [9, 9, 9]
    assert (await sent).offset == 9


async def test_cancelling_one_await_leaves_the_others_and_the_delivery_alone(result: ProduceResult) -> None:
    sent = delivery(result)

    async def wait() -> int:
        return (await sent).offset

    cancelled, other = asyncio.create_task(wait()), asyncio.create_task(wait())
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    result.succeed(4, -1)

    assert cancelled.cancelled()
    assert await other == 4


def test_callbacks_are_called_with_the_delivery_before_and_after_the_outcome(result: ProduceResult) -> None:
    seen: list[Delivery] = []
    sent = delivery(result)
    sent.add_done_callback(seen.append)
    sent.add_done_callback(seen.append)

    result.succeed(1, -1)
    sent.add_done_callback(seen.append)

    assert seen == [sent, sent, sent]


def test_a_failed_record_that_was_thrown_away_before_is_reported(sink: Sink, result: ProduceResult) -> None:
    kept = [delivery(result, index) for index in range(3)]
    del kept[1]

    result.fail(failure())

    assert sink.unobserved_indexes == [1]
    kept[0].exception()
    kept.clear()
    gc.collect()
    assert sink.unobserved_indexes == [1, 2]


def test_a_record_that_is_thrown_away_while_another_thread_fails_its_batch_is_reported(sink: Sink) -> None:
    class Failing(ProduceResult):
        def note_abandoned(self, index: int) -> None:
            self.fail(failure())  # behind the look at the failure
            super().note_abandoned(index)

    Failing(ORDERS, sink).abandon(4)

    assert sink.unobserved_indexes == [4]


def test_a_failed_record_that_was_observed_is_not_reported(sink: Sink, result: ProduceResult) -> None:
    looked_at, called_back, peeked = (delivery(result, index) for index in range(3))
    called_back.add_done_callback(lambda _: None)
    peeked.watch(lambda each: each.peek() and None)

    result.fail(failure())
    looked_at.exception()
    del looked_at, called_back, peeked
    gc.collect()

    assert sink.unobserved_indexes == [2], "watching is not looking"


async def test_a_cancelled_await_does_not_count_as_looking(sink: Sink, result: ProduceResult) -> None:
    async def wait() -> None:
        await delivery(result, 7)

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    del task
    await asyncio.sleep(0)  # the event loop still holds what it has just run
    gc.collect()

    result.fail(failure())

    assert sink.unobserved_indexes == [7]


def raise_beside(error: BaseException, kept: Delivery) -> None:
    """Raise the error in a frame that refers to a delivery."""
    assert kept is not None
    raise error


@pytest.mark.parametrize("place", ["cause", "cause of the cause", "context of the cause", "in a group", "raised again"])
def test_a_failure_keeps_no_frame_in_which_a_dropped_delivery_would_live_on(
    sink: Sink, result: ProduceResult, place: str
) -> None:
    raised: Exception = KafkaTimeoutError("too late")
    cause: KafkaError = KafkaTimeoutError("too late")
    if place == "raised again":
        result.fail(replace(failure(), cause=cause))
        error = delivery(result, 2).exception()
        assert error is not None
        raised = cast("Exception", error.__cause__)
        del error
    with pytest.raises(KafkaTimeoutError):
        raise_beside(raised, delivery(result, 1))
    if place == "cause":
        cause = cast("KafkaError", raised)
    elif place == "cause of the cause":
        cause.__cause__ = raised
    elif place == "context of the cause":
        cause.__context__ = raised
    elif place == "in a group":
        cause.__cause__ = ExceptionGroup("two", [raised, ValueError()])
    if place != "raised again":
        result.fail(replace(failure(), cause=cause))
    del cause, raised

    gc.collect()

    assert sink.unobserved_indexes == [1]


def test_a_cause_that_cannot_be_copied_is_kept_without_its_frames() -> None:
    class Demanding(Exception):
        def __init__(self, code: int, text: str) -> None:
            super().__init__(f"{code}: {text}")

    error = KafkaTimeoutError("too late")
    with pytest.raises(Demanding) as caught:
        raise Demanding(7, "no") from ValueError("deeper")
    error.__cause__ = caught.value

    kept = detached(error)

    assert isinstance(kept.__cause__, Demanding)
    assert isinstance(kept.__cause__.__cause__, ValueError)
    assert kept.__cause__.__traceback__ is None
    assert str(kept.__cause__) == "7: no"


def test_an_exception_that_is_its_own_cause_can_be_kept() -> None:
    """Python allows it, and foreign code may do it."""
    error, cause = KafkaTimeoutError("too late"), ValueError("deeper")
    error.__cause__, cause.__cause__ = cause, error

    kept = detached(error)

    assert isinstance(kept.__cause__, ValueError)
    assert kept.__cause__.__cause__ is kept


def test_a_group_that_is_the_cause_of_one_of_its_exceptions_can_be_kept() -> None:
    member = ValueError("deeper")
    member.__cause__ = ExceptionGroup("one", [member])

    assert str(detached(member)) == "deeper"
    assert detached(member.__cause__).message == "one"


def test_an_exception_whose_constructor_changes_its_text_keeps_the_text() -> None:
    class Changing(Exception):
        def __init__(self, code: object) -> None:
            super().__init__(f"failed with {code}")

    with pytest.raises(Changing) as caught:
        raise Changing(7)

    kept = detached(caught.value)

    assert str(kept) == "failed with 7"
    assert kept.__traceback__ is None


def test_a_group_keeps_its_notes() -> None:
    group = ExceptionGroup("two", [ValueError(1), KeyError(2)])
    group.add_note("look here")

    kept = detached(group)

    assert [type(each) for each in kept.exceptions] == [ValueError, KeyError]
    assert kept.__notes__ == ["look here"]


def test_the_message_of_an_exception_outlives_the_copy() -> None:
    error = BrokerError(87, "INVALID_RECORD", "no good", retriable=True)
    error.add_note("look here")

    kept = detached(error)

    assert (kept.code, kept.name, str(kept), kept.retriable) == (87, "INVALID_RECORD", str(error), True)
    assert kept.__notes__ == ["look here"]


def test_a_successful_record_that_was_dropped_is_not_reported(sink: Sink, result: ProduceResult) -> None:
    delivery(result, 0)
    result.succeed(0, -1)
    delivery(result, 1)

    assert sink.unobserved_indexes == []


async def test_the_records_of_a_split_batch_follow_their_parts(sink: Sink, result: ProduceResult) -> None:
    deliveries = [delivery(result, index, index) for index in range(5)]
    delivery(result, 4)  # thrown away
    seen: list[Delivery] = []
    deliveries[3].add_done_callback(seen.append)
    waiting = asyncio.ensure_future(deliveries[2])
    await asyncio.sleep(0)
    first, second = ProduceResult(ORDERS, sink), ProduceResult(ORDERS, sink)

    result.split([first, second], [0, 2])
    first.succeed(100, -1)
    assert not deliveries[2].done()
    second.succeed(200, -1)

    assert [each.result().offset for each in deliveries] == [100, 101, 200, 201, 202]
    assert (await waiting).offset == 200
    assert seen == [deliveries[3]]


def test_parts_may_be_split_again(sink: Sink, result: ProduceResult) -> None:
    last = delivery(result, 9)
    dropped = delivery(result, 8)
    halves = [ProduceResult(ORDERS, sink) for _ in range(2)]
    quarters = [ProduceResult(ORDERS, sink) for _ in range(2)]
    del dropped

    result.split(halves, [0, 5])
    halves[1].split(quarters, [0, 3])
    quarters[1].fail(failure())

    assert isinstance(last.exception(), NotWritten)
    assert sink.unobserved_indexes == [0], "record 8 is the first of the last quarter"


async def test_ten_thousand_waiters_that_are_cancelled_at_once_are_forgotten_quickly(result: ProduceResult) -> None:
    async def wait(delivery: Delivery) -> None:
        await delivery

    tasks = [asyncio.create_task(wait(Delivery(result, index, 0, -1, -1))) for index in range(10_000)]
    await asyncio.sleep(0)

    began = time.thread_time()
    for task in reversed(tasks):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert time.thread_time() - began < 1


def test_one_callback_for_several_records_of_a_batch_is_called_for_each(result: ProduceResult) -> None:
    reported: list[int] = []
    deliveries = [Delivery(result, index, 0, -1, -1) for index in range(3)]

    def tell(delivery: Delivery) -> None:
        reported.append(delivery.result().offset)

    for delivery in (*deliveries, deliveries[0]):
        delivery.add_done_callback(tell)

    result.succeed(5, -1)

    assert reported == [5, 6, 7, 5]
