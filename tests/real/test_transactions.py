"""Transactions on real Kafka, among aborts, cancellations, killed clients and brokers: all of each is seen, or nothing."""

from __future__ import annotations

import asyncio
import random
import sys
import uuid
from collections import Counter
from functools import partial
from typing import Any

import pytest

from aioproducer import (
    CommitUnknown,
    DeliveryError,
    KafkaTimeoutError,
    Producer,
    ProducerFenced,
    ReopenRequired,
    TopicPartition,
    Transaction,
    TransactionAbortable,
)
from aioproducer.protocol.messages import ListTransactionsRequest
from aioproducer.testing.java_tools import JavaTools
from aioproducer.testing.kafka import KafkaCluster, KafkaJars
from aioproducer.testing.plugin import KafkaFactory
from aioproducer.testing.raw_client import RawClient
from tests.conftest import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

VERSIONS = ["4.3.1", "3.9.2"]
PARTITIONS = 6
WORKERS = 4


@pytest.fixture(params=VERSIONS)
def kafka(request: pytest.FixtureRequest, kafka_factory: KafkaFactory) -> KafkaCluster:
    """One broker."""
    return kafka_factory(request.param)


class Ledger:
    """What became of each transaction, as far as its producer said."""

    def __init__(self) -> None:
        self.committed: dict[str, int] = {}  # and how many records each has
        self.aborted: set[str] = set()
        self.unknown: dict[str, int] = {}

    @property
    def count(self) -> int:
        """How many there were."""
        return len(self.committed) + len(self.aborted) + len(self.unknown)

    def has_more_than(self, count: int) -> bool:
        """Whether there were more than so many."""
        return self.count > count

    def check(self, seen: Counter[str]) -> None:
        """Fail unless a reader has seen all of what was committed, nothing of what was aborted, and nothing by halves."""
        torn = {name: (seen[name], size) for name, size in self.committed.items() if seen[name] != size}
        assert not torn, f"committed, and not seen as often as sent: {torn}"
        assert not self.aborted & seen.keys(), "aborted, and seen"
        torn = {name: (seen[name], size) for name, size in self.unknown.items() if seen[name] not in (0, size)}
        assert not torn, f"of unknown fate, and torn: {torn}"
        assert seen.keys() <= self.committed.keys() | self.unknown.keys()


def test_the_ledger_can_say_no() -> None:
    ledger = Ledger()
    ledger.committed["c"] = 2
    ledger.aborted.add("a")
    ledger.unknown["u"] = 2
    for seen in ({"c": 2}, {"c": 2, "u": 2}):
        ledger.check(Counter(seen))
    for wrong in ({}, {"c": 1}, {"c": 3}, {"c": 2, "a": 1}, {"c": 2, "u": 1}, {"c": 2, "stranger": 1}):
        with pytest.raises(AssertionError):
            ledger.check(Counter(wrong))


class _Abort(Exception):
    """The work wants no commit."""


async def transact(producer: Producer, topic: str, name: str, chance: random.Random, ledger: Ledger) -> None:
    """One transaction that is committed, aborted or cancelled somewhere; the ledger gets what is known of it."""
    fate = chance.choice(["commit"] * 7 + ["abort", "cancel", "cancel"])
    size = chance.choice([1, 5, 40])

    async def work() -> None:
        async with producer.transaction() as txn:
            for number in range(size):
                await txn.enqueue(topic, f"{name}|{number}", partition=chance.randrange(PARTITIONS))
            if fate == "abort":
                raise _Abort

    task = asyncio.ensure_future(work())
    if fate == "cancel":
        await asyncio.sleep(chance.random() * 0.05)
        task.cancel()
    try:
        await task
    except (_Abort, TransactionAbortable):
        ledger.aborted.add(name)
    except (asyncio.CancelledError, CommitUnknown, KafkaTimeoutError, DeliveryError):
        ledger.unknown[name] = size
    except ReopenRequired:
        ledger.unknown[name] = size
        raise
    else:
        ledger.committed[name] = size


async def worker(number: int, servers: str, topic: str, ledger: Ledger, most: int) -> None:
    """Makes transactions, with a new producer now and then, until there are enough of them."""
    chance = random.Random(number)
    made = 0
    while ledger.count < most:
        async with Producer(servers, transactional_id=f"worker-{number}", retry_backoff_ms=20) as producer:
            for _ in range(chance.randrange(20, 60)):
                try:
                    await transact(producer, topic, f"{number}-{made}", chance, ledger)
                except ReopenRequired:  # a broker that was killed may have forgotten the producer
                    break
                finally:
                    made += 1


def read_committed(kafka: KafkaCluster, topic: str) -> Counter[str]:
    """How many records of each transaction Java's consumer reads."""
    tools = JavaTools(KafkaJars.get(kafka.version))
    found = tools.read_back(kafka.bootstrap_servers, topic, properties={"isolation.level": "read_committed"})
    records = Counter((each.value or b"").decode() for each in found)
    doubled = [record for record, times in records.items() if times > 1]
    assert not doubled, doubled
    return Counter(record.split("|")[0] for record in records)


def open_transactions(kafka: KafkaCluster) -> list[str]:
    """What the coordinator has not ended."""
    host, port = kafka.bootstrap_servers.rsplit(":", 1)
    with RawClient((host, int(port))) as client:
        listed = client.ask(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 0)
    return [
        f"{each.transactional_id}: {each.transaction_state}"
        for each in listed.transaction_states
        if each.transaction_state not in ("Empty", "CompleteCommit", "CompleteAbort", "Dead")
    ]


@pytest.mark.parametrize(("transactions", "kills"), [(200, 0), pytest.param(2000, 3, marks=pytest.mark.soak)])
async def test_each_transaction_is_seen_wholly_or_not_at_all(
    kafka: KafkaCluster, transactions: int, kills: int
) -> None:
    topic, ledger = f"shop-{uuid.uuid4().hex[:8]}", Ledger()
    kafka.create_topic(topic, PARTITIONS)
    workers = [
        asyncio.ensure_future(worker(number, kafka.bootstrap_servers, topic, ledger, transactions))
        for number in range(WORKERS)
    ]
    for part in range(1, kills + 1):
        await until(partial(ledger.has_more_than, part * transactions // (kills + 1)), 400)
        kafka.kill(1)
        await asyncio.to_thread(kafka.start, 1)
    await asyncio.gather(*workers)

    ledger.check(await asyncio.to_thread(read_committed, kafka, topic))
    assert len(ledger.committed) > transactions // 2
    assert ledger.aborted
    await until(lambda: not open_transactions(kafka), 60)


_VICTIM = """
import asyncio, sys
from aioproducer import Producer

async def main():
    async with Producer(sys.argv[1], transactional_id=sys.argv[2]) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        for number in range(50):
            await producer.send(sys.argv[3], f"victim|{number}", partition=number % 6)
        print("written", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_the_successor_of_a_killed_process_aborts_what_that_has_left(kafka: KafkaCluster) -> None:
    topic, name = f"shop-{uuid.uuid4().hex[:8]}", uuid.uuid4().hex
    kafka.create_topic(topic, PARTITIONS)
    servers = kafka.bootstrap_servers
    for round_ in range(3):
        victim = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _VICTIM, servers, name, topic, stdout=asyncio.subprocess.PIPE
        )
        assert victim.stdout is not None
        assert await victim.stdout.readline() == b"written\n"
        victim.kill()
        await victim.wait()
        async with Producer(servers, transactional_id=name) as successor, successor.transaction() as txn:
            await txn.enqueue(topic, f"successor-{round_}|0")

    assert await asyncio.to_thread(read_committed, kafka, topic) == {f"successor-{round_}": 1 for round_ in range(3)}
    await until(lambda: not open_transactions(kafka), 60)


async def test_a_predecessor_that_is_still_there_is_fenced(kafka: KafkaCluster) -> None:
    topic, name = f"shop-{uuid.uuid4().hex[:8]}", uuid.uuid4().hex
    kafka.create_topic(topic, PARTITIONS)
    async with (
        Producer(kafka.bootstrap_servers, transactional_id=name) as old,
        Producer(kafka.bootstrap_servers, transactional_id=name) as new,
    ):
        await old.init_transactions()
        await old.begin_transaction()
        await old.send(topic, "old|0")
        async with new.transaction() as txn:
            await txn.send(topic, "new|0")
        with pytest.raises(ProducerFenced):
            await old.commit_transaction()

    assert await asyncio.to_thread(read_committed, kafka, topic) == {"new": 1}


async def test_offsets_count_from_the_commit_on(kafka: KafkaCluster) -> None:
    topic, group = f"shop-{uuid.uuid4().hex[:8]}", uuid.uuid4().hex
    kafka.create_topic(topic, PARTITIONS)

    async def work(txn: Transaction) -> None:
        await txn.send(topic, "out|0")
        await txn.send_offsets({TopicPartition(topic, 3): 17}, group)

    async with Producer(kafka.bootstrap_servers, transactional_id=group) as producer:
        await producer.run_in_transaction(work)
        with pytest.raises(_Abort):
            await producer.run_in_transaction(_never(topic, group))

    assert await asyncio.to_thread(committed_offset, kafka, group, topic) == 17


def _never(topic: str, group: str) -> Any:
    async def work(txn: Transaction) -> None:
        await txn.send_offsets({TopicPartition(topic, 3): 99}, group)
        raise _Abort

    return work


def committed_offset(kafka: KafkaCluster, group: str, topic: str) -> int:
    """What librdkafka's consumer would go on from."""
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Partition

    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    try:
        return int(consumer.committed([Partition(topic, 3)], 30)[0].offset)
    finally:
        consumer.close()
