"""A bulk of records: what it keeps in memory, when it stops, and what it reports in the meantime."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import pytest

from aioproducer.delivery import BatchFailure, Delivery, PendingCall, ProduceResult
from aioproducer.errors import BrokerError, KafkaError, NotWritten, SendManyError, Unknown
from aioproducer.hot import Appender, FastPath
from aioproducer.intake.many import SendMany
from aioproducer.runtime.log import ClientLog
from aioproducer.types import SendManyResult, TopicPartition


class Topic(FastPath):
    """Partitions that acknowledge a record at once, unless they are stalled or refuse it; and a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log = ClientLog("test")
        self.stalled: dict[int, ProduceResult] = {}
        self.refusing: set[int] = set()
        self.accepted = 0
        self.unobserved_records = 0
        self._offsets: dict[int, int] = {}
        # Detached: every record takes the slow path.
        self.appender = Appender(self.enqueue, self.enqueue, self.enqueue, 1)  # type: ignore[arg-type]

    def check_waiter(self, loop: object) -> None:
        pass

    def call_soon(self, calls: Sequence[PendingCall]) -> None:
        for _, delivery, callback in calls:
            callback(delivery)

    def unobserved(self, failure: BatchFailure, indexes: Sequence[int]) -> None:
        self.unobserved_records += len(indexes)

    def remember(self, result: ProduceResult) -> None:
        pass

    def stall(self, partition: int) -> ProduceResult:
        self.stalled[partition] = ProduceResult(TopicPartition("t", partition), self)
        return self.stalled[partition]

    async def enqueue(self, topic: str, value: int, **_: object) -> Delivery:  # type: ignore[override]
        """The value is the partition that the record goes to; one below zero is not accepted."""
        if value < 0:
            raise NotWritten("no")
        self.accepted += 1
        where = TopicPartition(topic, value)
        result = self.stalled.get(value) or ProduceResult(where, self)
        if value in self.refusing:
            result.fail(failure(where, BrokerError(87, "INVALID_RECORD", "x")))
        elif value not in self.stalled:
            offset = self._offsets[value] = self._offsets.get(value, -1) + 1
            result.succeed(offset, -1)
        return Delivery(result, 0, 1, -1, 10)

    def bulk(
        self, on_progress: Callable[[SendManyResult], object] | None = None, kind: type[SendMany] = SendMany
    ) -> SendMany:
        return kind(
            self,
            "t",
            lambda: self.now,
            self.log,
            key=None,
            headers=None,
            partition=None,
            on_progress=on_progress,
            timeout=None,
        )


def failure(partition: TopicPartition, cause: KafkaError, *, possibly_written: bool = False) -> BatchFailure:
    return BatchFailure(partition, cause, possibly_written, False, lambda: [None])  # type: ignore[list-item]


@pytest.fixture
def topic() -> Topic:
    return Topic()


async def test_a_partition_that_is_stalled_keeps_no_delivered_records_of_the_others(topic: Topic) -> None:
    stalled = topic.stall(0)
    bulk = topic.bulk()
    most = 0

    async def all_of(count: int) -> None:
        nonlocal most
        for _ in range(count):
            assert await bulk.add([1, 2, 3])
            most = max(most, len(bulk._waiting))

    assert await bulk.add([0, 1, 0])
    await all_of(20_000)
    assert most < 5000
    stalled.succeed(7, -1)
    result = await bulk.finish()

    assert (result.count, result.failed, result.unknown) == (60_003, 0, 0)
    assert result.serialized_bytes == 600_030
    assert result.offsets[TopicPartition("t", 1)] == (0, 20_000)
    assert result.offsets[TopicPartition("t", 0)] == (7, 7)


class CountingSweeps(SendMany):
    sweeps = 0

    def _sweep(self) -> None:
        self.sweeps += 1
        super()._sweep()


async def test_many_that_wait_are_looked_through_seldom(topic: Topic) -> None:
    stalled = topic.stall(0)
    bulk = topic.bulk(kind=CountingSweeps)
    assert isinstance(bulk, CountingSweeps)

    assert await bulk.add([0] * 50_000)

    assert len(bulk._waiting) == 50_000
    assert bulk.sweeps < 10
    stalled.succeed(0, -1)


async def test_reading_stops_when_a_record_fails_behind_one_that_is_stalled(topic: Topic) -> None:
    stalled = topic.stall(0)
    topic.refusing.add(9)
    bulk = topic.bulk()

    assert not await bulk.add([0, 9, *[1] * 100_000])
    assert topic.accepted < 5000

    stalled.succeed(0, -1)
    with pytest.raises(SendManyError) as raised:
        await bulk.finish()
    assert raised.value.result.failed == 1
    assert raised.value.result.count == topic.accepted - 1
    assert topic.unobserved_records == 0


async def test_of_several_failures_the_first_in_the_order_of_the_records_is_reported(topic: Topic) -> None:
    stalled = topic.stall(0)
    topic.refusing.add(9)
    bulk = topic.bulk()
    assert not await bulk.add([0, 9, *[1] * 10_000])

    stalled.fail(failure(stalled.partition, BrokerError(7, "REQUEST_TIMED_OUT", "y"), possibly_written=True))
    with pytest.raises(SendManyError) as raised:
        await bulk.finish()

    assert isinstance(raised.value.__cause__, Unknown)
    assert (raised.value.result.failed, raised.value.result.unknown) == (1, 1)


async def test_progress_is_reported_ten_times_a_second_and_at_the_end(topic: Topic) -> None:
    reported: list[tuple[float, int]] = []
    bulk = topic.bulk(lambda result: reported.append((topic.now, result.count)))

    for _ in range(100):
        topic.now += 1 / 64
        await bulk.add([1])
    await bulk.finish()

    assert [count for _, count in reported] == [*range(7, 100, 7), 100]
    assert reported[-1] == (topic.now, 100)


async def test_an_exception_raised_by_the_progress_hook_is_logged_and_stops_nothing(
    topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    def hook(result: SendManyResult) -> None:
        raise ValueError("the hook is broken")

    bulk = topic.bulk(hook)
    with caplog.at_level(logging.ERROR, "aioproducer"):
        topic.now = 1.0
        await bulk.add([1, 2])
        result = await bulk.finish()

    assert result.count == 2
    assert "the hook is broken" in caplog.text


async def test_a_refusal_to_accept_ends_the_reading_and_is_reported(topic: Topic) -> None:
    bulk = topic.bulk()

    assert not await bulk.add([1, -1, 1])

    with pytest.raises(SendManyError, match="after 1 acknowledged"):
        await bulk.finish()
