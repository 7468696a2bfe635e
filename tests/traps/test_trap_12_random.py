"""Trap 12, at random: transactions amid everything that can go wrong with them, all from one seed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from random import Random
from typing import Any, NamedTuple, TypeAlias

import pytest

from aioproducer import Producer
from aioproducer.errors import CommitUnknown, ConfigError, DeliveryError, KafkaError, TransactionAbortable
from aioproducer.testing import FakeBroker
from aioproducer.testing.broker.faults import Hold
from tests.conftest import opened
from tests.traps.ledger import GROUP, PARTITIONS, Entry, Fate, Ledger
from tests.traps.schedules import a_few_and_many
from tests.traps.transaction_walk import TV1, TV2

APIS = (
    "FindCoordinator",
    "InitProducerId",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "TxnOffsetCommit",
    "EndTxn",
    "Produce",
)
#: Errors that a broker may answer anything with, whether it has done what it was asked for or not.
PASSING = ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "REQUEST_TIMED_OUT")
#: Errors that say for certain that it was not done: it is not now, and need not be for ever.
REFUSALS = {
    "InitProducerId": (
        "CONCURRENT_TRANSACTIONS",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    ),
    "AddPartitionsToTxn": ("CONCURRENT_TRANSACTIONS", "TOPIC_AUTHORIZATION_FAILED", "TRANSACTION_ABORTABLE"),
    "AddOffsetsToTxn": ("CONCURRENT_TRANSACTIONS", "GROUP_AUTHORIZATION_FAILED", "UNKNOWN_PRODUCER_ID"),
    "TxnOffsetCommit": ("ILLEGAL_GENERATION", "GROUP_AUTHORIZATION_FAILED", "UNKNOWN_TOPIC_OR_PARTITION"),
    "EndTxn": ("CONCURRENT_TRANSACTIONS", "COORDINATOR_LOAD_IN_PROGRESS"),
    "Produce": ("NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS", "INVALID_RECORD", "TRANSACTION_ABORTABLE"),
}


class World(NamedTuple):
    """The objects that a fault may use."""

    broker: FakeBroker
    random: Random
    holds: list[Hold]

    @property
    def api(self) -> str:
        """Any request."""
        return self.random.choice(APIS)

    @property
    def node(self) -> int:
        """Any node."""
        return self.random.choice([1, 2, 3])


def lose(world: World) -> None:
    """A request or its answer, with the connection."""
    world.broker.drop_connection(world.api, when=world.random.choice(["before", "after"]))


def pass_by(world: World) -> None:
    """An error that is tried again; what was asked for may be done all the same."""
    fail = world.random.choice([world.broker.fail, world.broker.fail_after_apply])
    fail(world.api, world.random.choice(PASSING), times=world.random.randint(1, 3))


def refuse(world: World) -> None:
    """A clear no."""
    api = world.random.choice(list(REFUSALS))
    world.broker.fail(api, world.random.choice(REFUSALS[api]))


def move_coordinator(world: World) -> None:
    """Of the transactions, or of the group."""
    if world.random.random() < 0.5:
        world.broker.move_transaction_coordinator("shop", world.node)
    else:
        world.broker.move_group_coordinator(GROUP, world.node)


def move_leader(world: World) -> None:
    """Of any partition."""
    world.broker.move_leader(*world.random.choice(PARTITIONS), to=world.node)


def disconnect(world: World) -> None:
    """All connections of a node break."""
    world.broker.disconnect(world.node)


def expire(world: World) -> None:
    """The transaction's time is over."""
    with suppress(ConfigError):  # none is open, or none was
        world.broker.expire_transaction("shop")


def hold_requests(world: World) -> None:
    """Requests wait at the broker, and are carried out even if their sender has left."""
    _release_soon(world, world.broker.hold(world.api, node=world.node, applied=world.random.random() < 0.5))


def hold_markers(world: World) -> None:
    """A transaction is decided, and not yet over."""
    _release_soon(world, world.broker.hold_markers())


def _release_soon(world: World, hold: Hold) -> None:
    world.holds.append(hold)
    asyncio.get_running_loop().call_later(world.random.random() * 0.1, hold.release)


Fault: TypeAlias = "Callable[[World], object]"
FAULTS: Sequence[Fault] = (
    lose,
    lose,
    lose,
    pass_by,
    pass_by,
    refuse,
    move_coordinator,
    move_leader,
    disconnect,
    expire,
    hold_requests,
    hold_markers,
)


class Shopper:
    """Does one transaction after the other, and whatever the class of an error says."""

    def __init__(self, ledger: Ledger, random: Random, options: dict[str, Any]) -> None:
        self._ledger = ledger
        self._random = random
        self._options = options

    async def run(self, transactions: int, trouble: Callable[[], object]) -> None:
        """So many transactions, by as many producers as that takes."""
        while len(self._ledger.entries) < transactions:
            async with opened(self._ledger.broker, transactional_id="shop", **self._options) as producer:
                while len(self._ledger.entries) < transactions and self._random.random() > 0.03:
                    entry = self._ledger.entry()
                    if not await self._one(producer, entry, trouble):
                        break

    async def _one(self, producer: Producer, entry: Entry, trouble: Callable[[], object]) -> bool:
        """One transaction; whether the producer can do another."""
        task = asyncio.ensure_future(self._work(producer, entry, trouble))
        if self._random.random() < 0.15:
            asyncio.get_running_loop().call_later(self._random.random() * 0.05, task.cancel)
        try:
            await task
        except asyncio.CancelledError:
            if entry.fate is Fate.COMMITTED:
                entry.fate = Fate.UNKNOWN  # it goes on
            return True
        except LookupError:
            entry.fate = Fate.ABORTED
        except CommitUnknown:
            entry.fate = Fate.UNKNOWN
            return False
        except (TransactionAbortable, DeliveryError):
            entry.fate = Fate.ABORTED
        except KafkaError:
            entry.fate = Fate.ABORTED
            return False
        return True

    async def _work(self, producer: Producer, entry: Entry, trouble: Callable[[], object]) -> None:
        entry.fate = Fate.ABORTED
        async with producer.transaction() as txn:
            for _ in range(self._random.randint(1, 6)):
                trouble()
                await entry.enqueue(producer, self._random.choice(PARTITIONS))
            if self._random.random() < 0.4:
                trouble()
                await entry.move_group(producer)
            if self._random.random() < 0.3:
                await txn.flush()
            trouble()
            if self._random.random() < 0.2:
                raise LookupError
            entry.fate = Fate.COMMITTED


@contextmanager
def healed(world: World) -> Generator[None]:
    """At the end nothing is wrong any more with the brokers."""
    try:
        yield
    finally:
        world.broker.clear_faults()
        for hold in world.holds:
            hold.release()


@pytest.mark.parametrize("version", [TV1, TV2])
@a_few_and_many(few=2, many=150, begin=12_000)
async def test_transactions_amid_everything_that_goes_wrong_are_whole(seed: int, version: str) -> None:
    random = Random(seed)
    options: dict[str, Any] = {
        "linger_ms": random.choice([0, 0, 5]),
        "batch_size": random.choice([0, 40, 16_384]),
        "request_timeout_ms": random.choice([150, 20_000]),
        "delivery_timeout_ms": random.choice([400, 60_000]),
        "reconnect_backoff_max_ms": 20,
    }
    options["delivery_timeout_ms"] = max(options["delivery_timeout_ms"], options["request_timeout_ms"] + 100)
    with FakeBroker(3, topics={"orders": 3, "in": 1}, versions=version) as broker:
        ledger = Ledger(broker)
        world = World(broker, random, [])

        def trouble() -> None:
            if random.random() < 0.12:
                random.choice(FAULTS)(world)

        with healed(world):
            async with asyncio.timeout(120):
                await Shopper(ledger, random, options).run(25, trouble)
        async with opened(broker, transactional_id="shop") as successor:
            await ledger.commit_one(successor)
        ledger.check()
    assert ledger.count(Fate.COMMITTED) > 1
