"""Credentials that are refused in the middle of a transaction: each call fails at once, and works once they are right."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from aioproducer import Producer, TopicPartition, TransactionCoordinatorClient
from aioproducer.errors import AuthenticationError, CommitUnknown, KafkaError
from aioproducer.testing import FakeBroker, Logins
from tests.conftest import QUICK, opened, until

#: Far less than max_block_ms, and more than the busiest machine takes for some logins.
AT_ONCE_S = 20

LOGIN: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "alice",
    "sasl_password": "canary-secret",
    "max_block_ms": 600_000,
}


class Secured(FakeBroker):
    """A broker whose users' passwords change."""

    users: dict[str, str]

    async def refuse(
        self, user: Producer | TransactionCoordinatorClient | None = None, node: int | None = None
    ) -> None:
        """Change the password, and end the sessions that the old one began; what ``user`` does next meets that."""
        before = _connections(user)
        self.users["alice"] = "changed"
        self.disconnect(node)
        await until(lambda: user is None or _connections(user) < before)

    def accept(self) -> None:
        self.users["alice"] = "canary-secret"


def _connections(user: Producer | TransactionCoordinatorClient | None) -> int:
    if isinstance(user, Producer):
        return int(user.metrics()["connection-count"])
    running = None if user is None else user._coordination  # its connections are private
    return 0 if running is None else len(running._client.connected_nodes())


@pytest.fixture(params=["3.9.2", "4.3.1"])
def broker(request: pytest.FixtureRequest) -> Iterator[Secured]:
    """A broker with transaction version 1, and one with 2."""
    logins = Logins(users={"alice": "canary-secret"})
    with Secured(topics={"orders": 3, "in": 2}, versions=request.param, logins=logins) as broker:
        broker.users = logins.users
        yield broker


def transactional(broker: FakeBroker, **more: Any) -> AbstractAsyncContextManager[Producer]:
    return opened(broker, transactional_id="shop", **{**LOGIN, "close_timeout_ms": 1000, **more})


def coordinating(broker: FakeBroker) -> TransactionCoordinatorClient:
    return TransactionCoordinatorClient(broker.bootstrap_servers, **{**QUICK, **LOGIN})


async def refused(call: Awaitable[object]) -> AuthenticationError:
    """The refusal of a call, which says where, how and why."""
    async with asyncio.timeout(AT_ONCE_S):
        with pytest.raises(AuthenticationError) as reported:
            await call
    return _with_facts(reported.value)


async def left_unknown(call: Awaitable[object]) -> None:
    """A commit that may have been done, and whose outcome cannot be requested now."""
    async with asyncio.timeout(AT_ONCE_S):
        with pytest.raises(CommitUnknown, match="again") as reported:
            await call
    assert isinstance(reported.value.__cause__, AuthenticationError)
    _with_facts(reported.value.__cause__)


def _with_facts(error: AuthenticationError) -> AuthenticationError:
    for fact in ("127.0.0.1:", "PLAIN", "Invalid username or password"):
        assert fact in str(error)
    assert "canary" not in str(error)
    return error


def committed(broker: FakeBroker) -> list[bytes]:
    return sorted(each.value or b"" for each in broker.records("orders", committed=True))


# -- a producer -----------------------------------------------------------------------------------------------------------


async def test_initializing_fails_at_once_and_works_later(broker: Secured) -> None:
    await broker.refuse()
    async with transactional(broker) as producer:
        await refused(producer.init_transactions())
        broker.accept()
        await producer.init_transactions()


async def test_a_commit_that_was_not_sent_fails_at_once_and_may_be_repeated(broker: Secured) -> None:
    async with transactional(broker) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("orders", b"first")
        await broker.refuse(producer)

        error = await refused(producer.commit_transaction())

        assert "not committed" in str(error)
        assert broker.count("EndTxn") == 0
        broker.accept()
        await producer.send("orders", b"second")  # it is still open
        await producer.commit_transaction()
        assert committed(broker) == [b"first", b"second"]
        async with producer.transaction() as transaction:
            await transaction.send("orders", b"third")
    assert committed(broker) == [b"first", b"second", b"third"]


async def test_a_commit_that_waits_for_records_fails_at_once_and_keeps_them(broker: Secured) -> None:
    async with transactional(broker) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("orders", b"first")
        await broker.refuse(producer)
        later = await producer.enqueue("orders", b"later")

        await refused(producer.commit_transaction())

        assert not later.done()
        broker.accept()
        await producer.commit_transaction()
        assert later.done()
    assert committed(broker) == [b"first", b"later"]


async def test_a_commit_that_was_not_sent_may_become_an_abort(broker: Secured) -> None:
    async with transactional(broker) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("orders", b"first")
        await broker.refuse(producer)
        await refused(producer.commit_transaction())
        broker.accept()
        await producer.abort_transaction()
        async with producer.transaction() as transaction:
            await transaction.send("orders", b"second")
    assert committed(broker) == [b"second"]


async def test_an_unawaited_commit_is_not_sent_later(broker: Secured) -> None:
    """The call has failed with "nothing is committed"."""
    async with transactional(broker) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("orders", b"first")
        await broker.refuse(producer)
        await refused(producer.commit_transaction())
        broker.accept()
        await producer.send("orders", b"second")  # the producer is connected again
        assert broker.count("EndTxn") == 0
        await producer.abort_transaction()
    assert committed(broker) == []


async def test_a_commit_without_an_answer_is_unknown_until_the_credentials_are_right(broker: Secured) -> None:
    async with transactional(broker) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("orders", b"first")
        with broker.hold("EndTxn") as hold:
            committing = asyncio.create_task(producer.commit_transaction())
            await until(lambda: hold.waiting)
            await broker.refuse()
            await left_unknown(committing)
            await left_unknown(producer.commit_transaction())
        broker.accept()
        await producer.commit_transaction()
        assert committed(broker) == [b"first"]
        async with producer.transaction() as transaction:
            await transaction.send("orders", b"second")
    assert committed(broker) == [b"first", b"second"]


async def test_an_abort_fails_at_once_and_works_later(broker: Secured) -> None:
    async with transactional(broker) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("orders", b"first")
        await broker.refuse(producer)
        await refused(producer.abort_transaction())
        await refused(producer.abort_transaction())
        broker.accept()
        await producer.abort_transaction()
        async with producer.transaction() as transaction:
            await transaction.send("orders", b"second")
    assert committed(broker) == [b"second"]


async def test_offsets_fail_at_once_and_may_be_sent_again(broker: Secured) -> None:
    async with transactional(broker) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await broker.refuse(producer)
        await refused(producer.send_offsets_to_transaction({TopicPartition("in", 0): 5}, "group"))
        broker.accept()
        await producer.send_offsets_to_transaction({TopicPartition("in", 0): 6}, "group")
        await producer.commit_transaction()
    async with coordinating(broker) as client:
        positions = await client.committed("group", [TopicPartition("in", 0)])
    assert [each.offset for each in positions.values() if each is not None] == [6]


async def test_a_block_that_cannot_commit_is_aborted_before_the_next_one(broker: Secured) -> None:
    async with transactional(broker) as producer:
        transaction = producer.transaction()
        await transaction.__aenter__()
        await transaction.send("orders", b"first")
        await broker.refuse(producer)
        await refused(transaction.__aexit__(None, None, None))
        await refused(producer.transaction().__aenter__())
        broker.accept()
        async with producer.transaction() as another:
            await another.send("orders", b"second")
    assert committed(broker) == [b"second"]


async def test_one_host_that_refuses_is_enough_where_it_is_the_coordinator() -> None:
    """The other brokers stay connected."""
    logins = Logins(users={"alice": "canary-secret"})
    with Secured(brokers=3, topics={"orders": 3}, logins=logins) as broker:
        broker.users = logins.users
        async with transactional(broker) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            for partition in range(3):
                await producer.send("orders", b"value", partition=partition)
            coordinator = broker.requests_of("InitProducerId")[-1].node
            await broker.refuse(producer, coordinator)
            await refused(producer.commit_transaction())
            broker.accept()
            await producer.commit_transaction()
        assert len(committed(broker)) == 3


async def test_a_commit_that_waits_for_a_connection_is_not_reported_as_possibly_sent() -> None:
    """All brokers but the coordinator have refused; that one is still to say what it thinks of the credentials."""
    logins = Logins(users={"alice": "canary-secret"})
    with Secured(brokers=4, topics={"orders": 1}, logins=logins) as broker:
        broker.users = logins.users
        async with transactional(broker) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send("orders", b"value")
            coordinator = broker.requests_of("InitProducerId")[-1].node
            with broker.hold("SaslAuthenticate", node=coordinator) as held:
                await broker.refuse(producer)
                committing = asyncio.create_task(producer.commit_transaction())
                await until(lambda: held.waiting)
                before = broker.count("SaslAuthenticate")
                await until(lambda: committing.done() or broker.count("SaslAuthenticate") > before + 8)
            await refused(committing)
            broker.accept()
            await producer.commit_transaction()
        assert committed(broker) == [b"value"]


# -- a coordinator client -------------------------------------------------------------------------------------------------

Call = Callable[[TransactionCoordinatorClient, Any], Awaitable[object]]


async def write(broker: FakeBroker, handle: Any) -> None:
    async with Producer.attach(handle, broker.bootstrap_servers, **{**QUICK, **LOGIN}) as writer:
        await writer.send("orders", b"value")


@pytest.mark.parametrize(
    "call",
    [
        lambda client, handle: client.commit(handle),
        lambda client, handle: client.abort(handle),
        lambda client, handle: client.send_offsets(handle, {TopicPartition("in", 0): 5}, "group"),
        lambda client, handle: client.init("another"),
        lambda client, handle: client.committed("group", [TopicPartition("in", 0)]),
        lambda client, handle: client.has_open_transaction("shop"),
    ],
    ids=["commit", "abort", "send_offsets", "init", "committed", "has_open_transaction"],
)
async def test_each_call_of_a_coordinator_client_fails_at_once_and_works_later(broker: Secured, call: Call) -> None:
    async with coordinating(broker) as client:
        handle = await client.init("shop")
        await write(broker, handle)
        await broker.refuse(client)
        await refused(call(client, handle))
        await refused(call(client, handle))
        broker.accept()
        await call(client, handle)


async def test_a_commit_of_a_coordinator_client_without_an_answer_is_unknown(broker: Secured) -> None:
    async with coordinating(broker) as client:
        handle = await client.init("shop")
        await write(broker, handle)
        with broker.hold("EndTxn") as hold:
            committing = asyncio.create_task(client.commit(handle))
            await until(lambda: hold.waiting)
            await broker.refuse()
            await left_unknown(committing)
            await left_unknown(client.commit(handle))
        broker.accept()
        await client.commit(handle)
    assert committed(broker) == [b"value"]


async def test_a_commit_whose_credentials_are_refused_while_it_reconnects_is_no_unknown_one(broker: Secured) -> None:
    """EndTxn never left."""
    async with coordinating(broker) as client:
        handle = await client.init("shop")
        await write(broker, handle)
        await broker.refuse(client)
        await refused(client.commit(handle))
        with pytest.raises(KafkaError):
            await asyncio.wait_for(client.abort(handle), AT_ONCE_S)
        broker.accept()
        await client.abort(handle)
    assert committed(broker) == []
