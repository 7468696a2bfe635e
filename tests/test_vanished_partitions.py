"""Records for a partition that does not exist any more.

Of a topic that was created again with fewer they fail soon. A deleted topic may come back, so they wait, and say for what.
"""

from __future__ import annotations

import asyncio

import pytest

from aioproducer import (
    BrokerError,
    Delivery,
    DeliveryError,
    NotWritten,
    NotWrittenTimeout,
    Producer,
    ProducerClosed,
)
from aioproducer.testing import FakeBroker
from tests.conftest import Clock, opened, until

#: The default of ``delivery_timeout_ms``, in seconds.
TIMEOUT_S = 120


async def given_up(delivery: Delivery, clock: Clock, *, after: float = TIMEOUT_S) -> DeliveryError:
    """The error of a record whose time is over."""
    clock.advance(after)
    with pytest.raises(DeliveryError) as caught:
        await delivery
    assert isinstance(caught.value, TimeoutError)
    return caught.value


async def knows_of(producer: Producer, count: int) -> None:
    """Wait until the producer knows that the topic has so many partitions now."""
    while len(await producer.partitions_for("orders")) != count:  # noqa: ASYNC110 - metadata set no event
        await asyncio.sleep(0)


async def waits_for_partition_2(broker: FakeBroker, producer: Producer) -> Delivery:
    """A record that waits for a partition of which the producer knows that it is gone."""
    await producer.send("orders", b"value", partition=2)
    broker.recreate_topic("orders", 2)
    delivery = await producer.enqueue("orders", b"value", partition=2)
    await knows_of(producer, 2)
    await until(lambda: producer.metrics()["record-retry-total"] and not producer.metrics()["requests-in-flight"])
    return delivery


async def waits_for_a_deleted_topic(
    broker: FakeBroker, producer: Producer, caplog: pytest.LogCaptureFixture
) -> Delivery:
    """A record that waits for a topic of which the producer knows that brokers do not know it."""
    await producer.send("orders", b"value", partition=2)
    broker.delete_topic("orders")
    delivery = await producer.enqueue("orders", b"value", partition=2)
    await until(lambda: "is not known to the brokers any more; it had 3 partitions. 1 record" in caplog.text)
    return delivery


async def test_a_record_for_a_partition_that_is_gone_for_good_fails_soon(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        delivery = await waits_for_partition_2(broker, producer)
        with pytest.raises(NotWritten) as caught:
            await delivery

    assert not isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value.__cause__, BrokerError)
    assert (
        "Partition 2 of topic 'orders' does not exist any more: the topic was created again with 2 partitions"
        in str(caught.value)
    )


async def test_a_record_that_never_left_for_a_partition_that_is_gone_is_not_written(broker: FakeBroker) -> None:
    async with opened(broker, max_in_flight_requests_per_connection=1) as producer:
        await producer.send("orders", b"value", partition=2)
        with broker.hold("Produce") as held:
            first = await producer.enqueue("orders", b"first", partition=2)
            await until(lambda: held.waiting)
            second = await producer.enqueue("orders", b"second", partition=2)
            broker.recreate_topic("orders", 1)
        outcomes = await asyncio.gather(first, second, return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [NotWritten, NotWritten]
    assert "the topic was created again with 1 partition, 0, and had 3 before" in str(outcomes[1])


async def test_the_other_partitions_go_on(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        delivery = await waits_for_partition_2(broker, producer)
        kept = [await producer.enqueue("orders", b"value", partition=partition) for partition in (0, 1, 0)]

        assert [(await each).offset for each in kept] == [0, 0, 1]
        assert isinstance((await asyncio.gather(delivery, return_exceptions=True))[0], NotWritten)
        assert (await producer.send("orders", b"value", key=b"key")).partition in (0, 1)


async def test_the_error_of_a_record_that_close_gives_up_names_the_missing_topic(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with FakeBroker(topics={"orders": 3}, auto_create_topics=False) as broker:
        async with opened(broker) as producer:
            delivery = await waits_for_a_deleted_topic(broker, producer, caplog)
            report = await producer.close(timeout=0)

    assert [record.value for record in report.undelivered] == [b"value"]
    with pytest.raises(DeliveryError, match=r"Topic 'orders' does not exist any more.*0 s were not enough") as caught:
        delivery.result()
    assert isinstance(caught.value.__cause__, ProducerClosed)


async def test_the_topic_may_come_back(caplog: pytest.LogCaptureFixture) -> None:
    with FakeBroker(topics={"orders": 3}, auto_create_topics=False) as broker:
        async with opened(broker) as producer:
            delivery = await waits_for_a_deleted_topic(broker, producer, caplog)
            broker.create_topic("orders", 3)

            assert (await delivery).offset == 0


async def test_the_error_of_a_record_for_a_deleted_topic_names_the_deletion(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    with FakeBroker(topics={"orders": 3}, auto_create_topics=False) as broker:
        async with opened(broker) as producer:
            delivery = await waits_for_a_deleted_topic(broker, producer, caplog)
            error = await given_up(delivery, clock)

    assert (
        "Topic 'orders' does not exist any more, or this client has no permission to see it: brokers have not known it for "
        "120 s (it had 3 partitions, 0 to 2)." in str(error)
    )


async def test_the_error_of_a_record_that_is_refused_to_the_end_names_the_refusal(broker: FakeBroker) -> None:
    """Whatever brokers answer each time is the reason, and not that the time is over."""
    clock = Clock()
    broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=None)
    async with opened(broker) as producer:
        delivery = await producer.enqueue("orders", b"value", partition=2)
        await until(lambda: broker.count("Produce") > 1)
        error = await given_up(delivery, clock)

    assert "NOT_ENOUGH_REPLICAS" in str(error)
    assert isinstance(error, NotWrittenTimeout)
    assert error.__cause__ is not None
    assert isinstance(error.__cause__.__cause__, BrokerError)


async def test_a_record_that_waits_for_a_partition_that_is_gone_is_logged_at_once(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(broker, client_id="shop") as producer:
        await waits_for_partition_2(broker, producer)
        await until(lambda: "[shop]" in caplog.text)

    (line,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert line.getMessage() == (
        "[shop] Topic 'orders' has 2 partitions now, and had 3: 1 record(s) wait for a partition that does not exist any "
        "more. They fail if the next metadata response confirms this."
    )
    assert line.topic == "orders"  # type: ignore[attr-defined]


async def test_a_deleted_topic_without_sends_is_not_logged(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(broker) as producer:
        await producer.send("orders", b"value", partition=2)
        broker.recreate_topic("orders", 2)
        await producer.partitions_for("orders")

    assert caplog.records == []


async def test_a_transaction_with_a_record_for_such_a_partition_is_aborted_and_the_next_one_goes_on(
    broker: FakeBroker,
) -> None:
    async with opened(broker, transactional_id="shop") as producer:
        await producer.init_transactions()
        async with producer.transaction() as transaction:
            await transaction.send("orders", b"first", partition=2)
        broker.recreate_topic("orders", 2)
        with pytest.raises(NotWritten):
            async with producer.transaction() as transaction:
                await transaction.send("orders", b"second", partition=2)
        async with producer.transaction() as transaction:
            await transaction.send("orders", b"third", partition=1)

    assert [record.value for record in broker.records("orders")] == [b"third"]
