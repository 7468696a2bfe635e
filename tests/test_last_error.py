"""A record that is given up says what went wrong last: the error, its broker, and how long ago it was."""

from __future__ import annotations

import asyncio
import pickle
import re
from collections.abc import Awaitable, Callable

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from aioproducer import (
    BrokerConnectionError,
    BrokerError,
    DeliveryError,
    KafkaError,
    KafkaTimeoutError,
    LastError,
    NotWritten,
    NotWrittenTimeout,
    SendManyError,
    SyncProducer,
    TransactionCoordinatorClient,
    UnknownTimeout,
)
from aioproducer.testing import FakeBroker
from tests.conftest import QUICK, Clock, opened, until

#: An address without a listener.
AWAY = "127.0.0.1:1"

OF_BROKER_1 = r"The last error, from broker 1, \d+\.\d s ago: "


def last_of(error: BaseException | None) -> LastError:
    assert isinstance(error, DeliveryError)
    last = error.last_error
    assert last is not None
    assert str(last.error) in str(error)
    assert 0 <= last.seconds_ago < 60
    assert last.error.__traceback__ is None, "it keeps no frames"
    return last


def name_of(last: LastError) -> str:
    assert isinstance(last.error, BrokerError)
    return last.error.name


async def error_after(has_failed: Callable[[], bool], call: Awaitable[object]) -> KafkaError:
    """The error of a call with a limit of 20 s, which a moved clock ends once something has failed."""

    async def wait() -> None:
        await call

    clock, calling = Clock(), asyncio.ensure_future(wait())
    await until(has_failed)
    clock.advance(21)
    with pytest.raises(KafkaError) as caught:
        await calling
    return caught.value


async def too_late(broker: FakeBroker, api: str, call: Awaitable[object]) -> KafkaTimeoutError | DeliveryError:
    """The error of a call that a moved clock ends after it has repeated its request twice."""
    before = broker.count(api)
    error = await error_after(lambda: broker.count(api) > before + 2, call)
    assert isinstance(error, (KafkaTimeoutError, DeliveryError))
    assert isinstance(error, TimeoutError)
    return error


async def test_a_delivery_timeout_names_what_the_broker_answered_last(broker: FakeBroker) -> None:
    broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=10_000)
    async with opened(broker, delivery_timeout_ms=20_000, request_timeout_ms=10_000) as producer:
        # Between two attempts: the moved clock would end one in flight as well, and that would be the last error.
        error = await error_after(
            lambda: broker.count("Produce") > 2 and producer.metrics()["requests-in-flight"] == 0,
            await producer.enqueue("orders", b"value"),
        )

    assert isinstance(error, (NotWrittenTimeout, UnknownTimeout))
    assert re.search(OF_BROKER_1 + "NOT_LEADER_OR_FOLLOWER", str(error))
    last = last_of(error)
    assert (name_of(last), last.broker) == ("NOT_LEADER_OR_FOLLOWER", 1)


async def test_a_broken_connection_is_the_last_error_of_what_was_sent_over_it(broker: FakeBroker) -> None:
    broker.drop_connection("Produce", when="after", times=10_000)
    async with opened(broker, delivery_timeout_ms=20_000, request_timeout_ms=10_000) as producer:
        error = await too_late(broker, "Produce", await producer.enqueue("orders", b"value"))

    assert isinstance(error, UnknownTimeout)
    assert "The last error, from broker 1" in str(error)
    last = last_of(error)
    assert isinstance(last.error, BrokerConnectionError)
    assert last.broker == 1


async def test_a_send_whose_time_is_over_names_the_last_error_of_its_partition(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        await producer.send("orders", b"before", partition=0)
        broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=10_000)
        error = await too_late(broker, "Produce", producer.send("orders", b"value", partition=0, timeout=20))
        broker.clear_faults()

    assert isinstance(error, UnknownTimeout)
    assert re.search(OF_BROKER_1 + "NOT_ENOUGH_REPLICAS.* still being sent", str(error))
    assert name_of(last_of(error)) == "NOT_ENOUGH_REPLICAS"


async def test_a_record_that_is_refused_has_the_refusal_as_its_last_error(broker: FakeBroker) -> None:
    broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")
    async with opened(broker) as producer:
        with pytest.raises(NotWritten) as caught:
            await producer.send("orders", b"value")

    last = last_of(caught.value)
    assert (name_of(last), last.broker) == ("TOPIC_AUTHORIZATION_FAILED", 1)


async def test_a_record_without_any_error_has_no_last_one(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        await producer.partitions_for("orders")
        with broker.hold("Produce"), pytest.raises(UnknownTimeout) as caught:
            await producer.send("orders", b"value", timeout=0.1)

    assert caught.value.last_error is None
    assert "last error" not in str(caught.value)


@pytest.mark.parametrize("records", ["one", "table", "thread"])
async def test_the_error_of_a_record_that_was_not_accepted_contains_why_nothing_is_reached(records: str) -> None:
    error: BaseException
    if records == "thread":
        with SyncProducer(AWAY, close_timeout_ms=100, **QUICK) as sync, pytest.raises(NotWrittenTimeout) as waited:
            sync.send("orders", b"value", timeout=3)  # the first error comes at once
        error = waited.value
    else:
        async with opened(AWAY, max_block_ms=20_000) as producer:
            table = pa.table({"value": pa.array([b"value"])})
            error = await error_after(
                lambda: producer.health().error is not None,
                producer.send("orders", b"value")
                if records == "one"
                else producer.send_table("orders", table, value="value"),
            )
        if records == "table":
            assert isinstance(error, SendManyError)
            error = error.error

    assert isinstance(error, NotWrittenTimeout)
    last = last_of(error)
    assert isinstance(last.error, BrokerConnectionError)
    assert last.broker is None, "a bootstrap server has no id yet"
    assert f"The last error, {last.seconds_ago:.1f} s ago" in str(error)


async def test_a_topic_that_does_not_exist_is_the_last_error_of_its_records() -> None:
    with FakeBroker(auto_create_topics=False) as broker:
        async with opened(broker) as producer:
            await producer.ready(30)
            error = await too_late(broker, "Metadata", producer.send("nowhere", b"value", timeout=20))

    assert isinstance(error, NotWrittenTimeout)
    last = last_of(error)
    assert (name_of(last), last.broker) == ("UNKNOWN_TOPIC_OR_PARTITION", None)


async def test_it_is_pickled_with_the_error() -> None:
    error = NotWritten("The record was not sent.")
    error.last_error = LastError(BrokerError(6, "NOT_LEADER_OR_FOLLOWER", "another leads"), 1, 2.5)

    copy = pickle.loads(pickle.dumps(error))

    assert (copy.last_error.broker, copy.last_error.seconds_ago) == (1, 2.5)
    assert str(copy.last_error.error) == str(error.last_error.error)


# -- calls that time out ----------------------------------------------------------------------------------------------


async def test_a_flush_that_times_out_names_the_last_error_of_what_it_waits_for(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=10_000)
        delivery = await producer.enqueue("orders", b"value")
        error = await too_late(broker, "Produce", producer.flush(timeout=20))
        broker.clear_faults()
        await delivery

    assert re.search("1 record.* being sent. " + OF_BROKER_1 + "NOT_ENOUGH_REPLICAS", str(error))
    last = error.last_error
    assert last is not None
    assert (name_of(last), last.broker) == ("NOT_ENOUGH_REPLICAS", 1)
    assert 0 <= last.seconds_ago < 60
    assert error.__cause__ is not None


async def test_a_flush_that_times_out_without_any_error_has_no_last_one(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        await producer.partitions_for("orders")
        with broker.hold("Produce"):
            await producer.enqueue("orders", b"value")
            with pytest.raises(KafkaTimeoutError) as caught:
                await producer.flush(timeout=0.1)

    assert caught.value.last_error is None
    assert "last error" not in str(caught.value)


@pytest.mark.parametrize("call", ["ready", "partitions_for"])
async def test_a_call_that_reaches_no_broker_in_time_names_the_last_error(call: str) -> None:
    async with opened(AWAY) as producer:
        error = await error_after(
            lambda: producer.health().error is not None,
            producer.ready(timeout=20) if call == "ready" else producer.partitions_for("orders", timeout=20),
        )

    assert isinstance(error, KafkaTimeoutError)
    last = error.last_error
    assert last is not None
    assert isinstance(last.error, BrokerConnectionError)
    assert str(last.error) in str(error)
    assert last.broker is None, "a bootstrap server has no id yet"


async def test_a_topic_that_stays_unknown_is_the_last_error_of_the_call_that_waits_for_it(broker: FakeBroker) -> None:
    broker.fail("Metadata", "LEADER_NOT_AVAILABLE", times=10_000)
    async with opened(broker) as producer:
        error = await too_late(broker, "Metadata", producer.partitions_for("orders", timeout=20))
        broker.clear_faults()

    assert "LEADER_NOT_AVAILABLE" in str(error)
    assert error.last_error is not None
    assert name_of(error.last_error) == "LEADER_NOT_AVAILABLE"


# -- transactions -------------------------------------------------------------------------------------------------------


async def test_a_commit_that_times_out_names_the_coordinators_last_error(broker: FakeBroker) -> None:
    async with opened(broker, transactional_id="orders") as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("orders", b"value")
        broker.fail("EndTxn", "COORDINATOR_LOAD_IN_PROGRESS", times=10_000)
        error = await too_late(broker, "EndTxn", producer.commit_transaction(timeout=20))
        broker.clear_faults()
        await producer.commit_transaction()

    assert re.search(OF_BROKER_1 + "COORDINATOR_LOAD_IN_PROGRESS", str(error))
    last = error.last_error
    assert last is not None
    assert (name_of(last), last.broker) == ("COORDINATOR_LOAD_IN_PROGRESS", 1)
    assert last.error.__traceback__ is None


async def test_a_commit_that_waits_for_a_batch_names_the_last_error_of_the_batch(broker: FakeBroker) -> None:
    async with opened(broker, transactional_id="orders") as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=10_000)
        delivery = await producer.enqueue("orders", b"value")
        error = await too_late(broker, "Produce", producer.commit_transaction(timeout=20))
        broker.clear_faults()
        await producer.commit_transaction()
        await delivery

    assert re.search(OF_BROKER_1 + "NOT_ENOUGH_REPLICAS", str(error))


async def test_a_commit_that_times_out_after_a_repeated_request_succeeded_has_no_last_error(broker: FakeBroker) -> None:
    async with opened(broker, transactional_id="orders") as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        broker.fail("AddPartitionsToTxn", "CONCURRENT_TRANSACTIONS", times=1)
        broker.fail("InitProducerId", "CONCURRENT_TRANSACTIONS", times=1)
        await producer.send("orders", b"value")
        with broker.hold("EndTxn"), pytest.raises(KafkaTimeoutError) as caught:
            await producer.commit_transaction(timeout=0.1)
        await producer.commit_transaction()

    assert caught.value.last_error is None


@pytest.mark.parametrize(
    ("request_name", "code", "is_of_broker"),
    [("InitProducerId", "COORDINATOR_LOAD_IN_PROGRESS", 1), ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", None)],
)
async def test_a_call_of_the_coordinator_client_that_times_out_names_the_last_error(
    broker: FakeBroker, request_name: str, code: str, is_of_broker: int | None
) -> None:
    async with TransactionCoordinatorClient(bootstrap_servers=broker.bootstrap_servers, **QUICK) as coordinator:
        broker.fail(request_name, code, times=10_000)
        error = await too_late(broker, request_name, coordinator.init("orders", timeout=20))

    assert code in str(error)
    last = error.last_error
    assert last is not None
    assert (name_of(last), last.broker) == (code, is_of_broker)


@pytest.mark.parametrize(
    ("request_name", "code", "is_of_broker"),
    [
        ("DescribeTransactions", "COORDINATOR_LOAD_IN_PROGRESS", 1),
        ("DescribeTransactions", "NOT_COORDINATOR", 1),
        ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", None),
    ],
)
async def test_a_query_of_the_coordinator_client_that_times_out_names_the_last_error(
    broker: FakeBroker, request_name: str, code: str, is_of_broker: int | None
) -> None:
    async with TransactionCoordinatorClient(bootstrap_servers=broker.bootstrap_servers, **QUICK) as coordinator:
        broker.fail(request_name, code, times=10_000)
        error = await too_late(broker, request_name, coordinator.has_open_transaction("orders", timeout=20))

    assert code in str(error)
    last = error.last_error
    assert last is not None
    assert (name_of(last), last.broker) == (code, is_of_broker)
