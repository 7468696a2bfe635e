"""Records with old timestamps: a broker forgets their producer early, so a batch of unknown fate is not repeated.

The broker of these tests looks for producers to forget before each Produce request: the worst moment of all.
"""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from aioproducer import Delivery, Producer, SendManyError
from aioproducer.errors import Unknown
from aioproducer.testing import FakeBroker, RequestContext
from aioproducer.testing.broker.cluster_state import TopicSpec
from aioproducer.testing.broker.log import TopicConfig
from aioproducer.types import TimestampType
from tests.conftest import opened, until

DAY_MS = 86_400_000


def ago(milliseconds: int) -> int:
    """A timestamp so long before now."""
    return time.time_ns() // 1_000_000 - milliseconds


def forget_old_producers(context: RequestContext) -> None:
    context.cluster.expire_producers(context.now_ms)


@pytest.fixture
def forgetful(broker: FakeBroker) -> FakeBroker:
    broker.control("Produce", forget_old_producers, times=None)
    broker.create_topic("stamped", TopicSpec(config=TopicConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME)))
    return broker


async def lose_the_answer(broker: FakeBroker, producer: Producer, timestamp_ms: int, topic: str = "orders") -> Delivery:
    """Send one record; it is written, and the connection breaks before the answer."""
    broker.drop_connection("Produce", when="after")
    delivery = await producer.enqueue(topic, b"lost", partition=0, timestamp_ms=timestamp_ms)
    await asyncio.wait([asyncio.ensure_future(outcome(delivery))])
    return delivery


async def outcome(delivery: Delivery) -> BaseException | None:
    try:
        await delivery
    except Unknown as error:
        return error
    return None


def values(broker: FakeBroker, topic: str = "orders") -> list[bytes | None]:
    return [record.value for record in broker.records(topic)]


async def test_an_old_record_whose_answer_is_lost_is_unknown_and_written_once(forgetful: FakeBroker) -> None:
    async with opened(forgetful) as producer:
        lost = await lose_the_answer(forgetful, producer, ago(2 * DAY_MS))
        with pytest.raises(Unknown, match=r"2 days old.*producer_id_expiration_ms.*transaction") as caught:
            await lost
        await producer.send("orders", b"later", partition=0)
        metrics = producer.metrics()

    assert values(forgetful) == [b"lost", b"later"]
    assert caught.value.record is not None
    assert caught.value.record.value == b"lost"
    assert metrics["record-retry-total"] == 0


async def test_without_this_protection_it_is_written_twice(forgetful: FakeBroker) -> None:
    """The negative control: the broker of these tests does forget."""
    async with opened(forgetful, producer_id_expiration_ms=-1) as producer:
        await (await lose_the_answer(forgetful, producer, ago(2 * DAY_MS)))

    assert values(forgetful) == [b"lost", b"lost"]


@pytest.mark.parametrize(
    ("age_ms", "options"),
    [
        (0, {}),
        (-3_600_000 + 60_000, {}),
        (DAY_MS - 300_000, {}),
        (2 * DAY_MS, {"transactional_id": "history"}),
    ],
    ids=["now", "ahead", "nearly a day old", "in a transaction"],
)
async def test_a_batch_that_the_broker_recognises_is_sent_again(
    forgetful: FakeBroker, age_ms: int, options: dict[str, Any]
) -> None:
    async with opened(forgetful, **options) as producer:
        if options:
            await producer.init_transactions()
            await producer.begin_transaction()
        await (await lose_the_answer(forgetful, producer, ago(age_ms)))
        if options:
            await producer.commit_transaction()
        metrics = producer.metrics()

    assert values(forgetful) == [b"lost"]
    assert metrics["record-retry-total"] == 1


async def test_a_record_that_could_grow_too_old_until_its_repeat_arrives_is_not_repeated(forgetful: FakeBroker) -> None:
    async with opened(forgetful, delivery_timeout_ms=120_000) as producer:
        lost = await lose_the_answer(forgetful, producer, ago(DAY_MS - 60_000))

    assert isinstance(lost.exception(), Unknown)


async def test_the_brokers_real_setting_may_be_given(broker: FakeBroker) -> None:
    week_ms = 7 * DAY_MS
    broker.control("Produce", lambda context: context.cluster.expire_producers(context.now_ms, week_ms), times=None)
    async with opened(broker, producer_id_expiration_ms=week_ms) as producer:
        await (await lose_the_answer(broker, producer, ago(2 * DAY_MS)))
        lost = await lose_the_answer(broker, producer, ago(8 * DAY_MS))

    assert isinstance(lost.exception(), Unknown)
    assert values(broker) == [b"lost", b"lost"]


async def test_old_records_that_are_certainly_not_written_are_sent_again(forgetful: FakeBroker) -> None:
    async with opened(forgetful) as producer:
        forgetful.fail("Produce", "NOT_ENOUGH_REPLICAS", times=3)
        await producer.send("orders", b"refused", partition=0, timestamp_ms=ago(2 * DAY_MS))

    assert values(forgetful) == [b"refused"]


async def test_without_idempotence_old_records_are_repeated_as_all_others_are(forgetful: FakeBroker) -> None:
    async with opened(forgetful, enable_idempotence=False, acks=1) as producer:
        await (await lose_the_answer(forgetful, producer, ago(2 * DAY_MS)))

    assert values(forgetful) == [b"lost", b"lost"]


async def test_a_topic_whose_broker_stamps_the_records_is_known_by_its_first_answer(forgetful: FakeBroker) -> None:
    async with opened(forgetful) as producer:
        first = await lose_the_answer(forgetful, producer, ago(2 * DAY_MS), "stamped")
        await producer.send("stamped", b"acknowledged", timestamp_ms=ago(2 * DAY_MS))
        await (await lose_the_answer(forgetful, producer, ago(2 * DAY_MS), "stamped"))

    assert isinstance(first.exception(), Unknown), "nothing was known of the topic yet"
    assert values(forgetful, "stamped") == [b"lost", b"acknowledged", b"lost"]


async def test_a_duplicate_of_an_ordinary_topic_is_not_mistaken_for_a_stamp_of_the_broker(
    forgetful: FakeBroker,
) -> None:
    """A broker answers a repeat with the batch's own timestamp, where else the time of writing would stand."""
    async with opened(forgetful) as producer:
        await (await lose_the_answer(forgetful, producer, ago(0)))
        lost = await lose_the_answer(forgetful, producer, ago(2 * DAY_MS))

    assert isinstance(lost.exception(), Unknown)


@pytest.mark.parametrize(
    ("ages", "expected"),
    [
        ((0, 2 * DAY_MS), [True, True]),  # the state is as old as the batch that was written last
        ((2 * DAY_MS, 0), [True, False]),
        ((0, 0), [False, False]),
    ],
    ids=["an old one behind", "an old one before", "none"],
)
async def test_the_oldest_batch_in_flight_from_this_one_on_decides(
    forgetful: FakeBroker, ages: tuple[int, int], expected: list[bool]
) -> None:
    async with opened(forgetful, batch_size=0) as producer:
        await producer.send("orders", b"first", partition=0)
        forgetful.swallow("Produce")
        deliveries = [
            await producer.enqueue("orders", b"%d" % at, partition=0, timestamp_ms=ago(age))
            for at, age in enumerate(ages)
        ]
        await forgetful.wait_for_async(3)
        forgetful.disconnect(1)
        await asyncio.wait([asyncio.ensure_future(outcome(each)) for each in deliveries])

    assert [isinstance(each.exception(), Unknown) for each in deliveries] == expected
    written = values(forgetful)
    assert len(written) == len(set(written)), "none twice"


async def test_a_table_of_history_stops_at_what_is_unknown_and_duplicates_nothing(forgetful: FakeBroker) -> None:
    rows = 20_000
    table = pa.table({"value": [b"%d" % at for at in range(rows)], "at": [ago(2 * DAY_MS)] * rows})
    async with opened(forgetful, batch_size=4_096) as producer:
        await producer.send("orders", b"first", partition=0)
        forgetful.drop_connection("Produce", when="after")
        with pytest.raises(SendManyError) as caught:
            await producer.send_table("orders", table, value="value", timestamp="at")

    assert isinstance(caught.value.error, Unknown)
    written = values(forgetful)
    assert len(written) == len(set(written))
    assert caught.value.result.count <= len(written) - 1


async def test_a_long_run_of_old_records_over_many_lost_answers_duplicates_and_reorders_nothing(
    forgetful: FakeBroker,
) -> None:
    async with opened(forgetful, batch_size=200) as producer:
        deliveries: list[Delivery] = []
        for at in range(600):
            if at % 50 == 20:
                forgetful.drop_connection("Produce", when="after" if at % 100 < 50 else "before")
            deliveries.append(await producer.enqueue("orders", b"%d" % at, partition=0, timestamp_ms=ago(2 * DAY_MS)))
            if at % 10 == 0:
                await asyncio.sleep(0.002)
        await asyncio.wait([asyncio.ensure_future(outcome(each)) for each in deliveries])

    written = [int(value or b"") for value in values(forgetful)]
    assert all(earlier < later for earlier, later in pairwise(written)), "in order, none twice"
    delivered = {at for at, each in enumerate(deliveries) if each.exception() is None}
    assert delivered <= set(written), "none lost"
    assert any(isinstance(each.exception(), Unknown) for each in deliveries)


def produced(broker: FakeBroker) -> int:
    return sum(request.api == "Produce" for request in broker.requests)


async def test_new_records_behind_an_old_one_that_never_arrived_do_not_wait_for_their_timeout(
    broker: FakeBroker,
) -> None:
    """The broker never gets the old batch, so it would refuse each repeat of those behind it."""
    async with opened(broker, batch_size=0, linger_ms=0) as producer:
        await producer.send("orders", b"first", partition=0)
        broker.swallow("Produce", applied=False)
        old = await producer.enqueue("orders", b"old", partition=0, timestamp_ms=ago(2 * DAY_MS))
        await until(lambda: produced(broker) == 2)
        behind = [await producer.enqueue("orders", value, partition=0) for value in (b"b", b"c")]
        await until(lambda: producer.metrics()["produce-request-total"] >= 3)
        broker.clear_faults()
        broker.disconnect(1)

        async with asyncio.timeout(10):
            for delivery in (old, *behind):
                with pytest.raises(Unknown):
                    await delivery
            await producer.send("orders", b"later", partition=0)

    assert [record.value for record in broker.records("orders")] == [b"first", b"later"]


async def test_a_broker_that_forgot_the_producer_in_a_break_gets_one_batch_until_it_is_acknowledged(
    broker: FakeBroker,
) -> None:
    async with opened(broker, producer_id_expiration_ms=0, linger_ms=0) as producer:
        await producer.send("orders", b"before", partition=0)
        broker.expire_producers(-DAY_MS)  # whatever their age
        broker.fail("Produce", "NOT_ENOUGH_REPLICAS")
        with broker.hold("Produce"):
            first = await producer.enqueue("orders", b"first", partition=0)
            await until(lambda: producer.metrics()["requests-in-flight"] == 1)
            second = await producer.enqueue("orders", b"second", partition=0)
        await producer.flush()

    assert (first.exception(), second.exception()) == (None, None)
    assert values(broker) == [b"before", b"first", b"second"]
