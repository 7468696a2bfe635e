"""Transactions on real Kafka, among aborts, cancellations, killed clients and brokers: all of each is seen, or nothing."""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
import uuid
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Iterable
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest

from aioproducer import Producer, ProducerFenced, TopicPartition, Transaction
from aioproducer.protocol.messages import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from aioproducer.testing.kafka import KafkaCluster, KafkaJars
from aioproducer.testing.kafka.java_tools import JavaTools, ReadRecord
from aioproducer.testing.plugin import KafkaFactory
from aioproducer.testing.raw_client import RawClient
from tests.conftest import until
from tests.real.open_transactions import open_transactions
from tests.real.shoppers import FENCED, PARTITIONS, Fate, Ledger, shop

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

#: How the broker goes down, in turn. One of 4.3.1 that is stopped in order loses what is committed at that moment: it takes
#: partitions without a leader for deleted ones, and completes their transactions without writing the markers
#: (KAFKA-20734), so that the records count or not as those of the next transaction do.
ENDS = {"4.3.1": (KafkaCluster.kill,) * 3, "3.9.2": (KafkaCluster.kill, KafkaCluster.stop, KafkaCluster.kill)}
ROOT = Path(__file__).parents[2]


@pytest.fixture(params=ENDS)
def kafka(request: pytest.FixtureRequest, kafka_factory: KafkaFactory) -> KafkaCluster:
    """One broker."""
    return kafka_factory(request.param)


def test_the_ledger_rejects_wrong_contents() -> None:
    ledger = Ledger()
    for fate in Fate:
        ledger.write(fate.value, fate, 2)
    for seen in ({"committed": 2}, {"committed": 2, "committing": 2}):
        ledger.check(Counter(seen))
    for torn in ({}, {"committed": 1}, {"committed": 3}):
        with pytest.raises(AssertionError):
            ledger.check(Counter(torn))
    for wrong in ({"aborted": 1}, {"begun": 2}, {"committing": 1}, {"stranger": 1}):
        with pytest.raises(AssertionError):
            ledger.check(Counter({"committed": 2} | wrong))


def read(kafka: KafkaCluster, topic: str, isolation: str) -> Iterable[ReadRecord]:
    """The records that Java's consumer reads."""
    tools = JavaTools(KafkaJars.get(kafka.version))
    return tools.read_back(kafka.bootstrap_servers, topic, properties={"isolation.level": isolation})


def history(kafka: KafkaCluster, topic: str, names: Container[str]) -> str:
    """The positions of the records of these transactions, and all batches around them: for the message of a failed test."""
    places: dict[int, list[int]] = {}
    lines = [kafka.log(1)]
    for each in read(kafka, topic, "read_uncommitted"):
        name, _, number = (each.value or b"").decode().partition("|")
        if name in names:
            places.setdefault(each.partition, []).append(each.offset)
            lines.append(f"{topic}-{each.partition} offset {each.offset}: {name} record {number}")
    tools = JavaTools(KafkaJars.get(kafka.version))
    for partition, offsets in places.items():
        near, batches = range(min(offsets) - 50, max(offsets) + 50), kafka.data_directory(1) / f"{topic}-{partition}"
        lines += [str(batch) for batch in tools.dump_log_segments(batches) if batch.base_offset in near]
    return "\n".join(lines)


def read_committed(kafka: KafkaCluster, topic: str) -> Counter[str]:
    """The number of records of each transaction that Java's consumer reads."""
    records = Counter((each.value or b"").decode() for each in read(kafka, topic, "read_committed"))
    doubled = [record for record, times in records.items() if times > 1]
    assert not doubled, doubled
    return Counter(record.split("|")[0] for record in records)


def unstable(kafka: KafkaCluster, topic: str) -> dict[int, tuple[int, int]]:
    """The partitions in which readers of what is committed are held up: how far those get, and the end."""
    asked = [ListOffsetsPartition(partition_index=number, timestamp=-1) for number in range(PARTITIONS)]
    question = ListOffsetsRequest(isolation_level=1, topics=[ListOffsetsTopic(name=topic, partitions=asked)])
    host, port = kafka.bootstrap_servers.rsplit(":", 1)
    with RawClient((host, int(port))) as client:
        (answer,) = client.ask(question, 7).topics
    ends = kafka.admin.list_offsets(topic)
    found = {each.partition_index: (each.offset, ends[each.partition_index][1]) for each in answer.partitions}
    return {number: (stable, end) for number, (stable, end) in found.items() if stable != end}


class Shopper:
    """A process that makes transactions; leaving its block ends it."""

    def __init__(self, servers: str, topic: str, name: str, seed: int, ledger: Ledger) -> None:
        self._command = (sys.executable, "-m", "tests.real.shoppers", servers, topic, name, str(seed))
        self._ledger = ledger
        self._reported = 0

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(*self._command, cwd=ROOT, stdin=PIPE, stdout=PIPE)
        self._following = asyncio.ensure_future(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    async def _follow(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self._ledger.copy(line.decode())
            self._reported += 1

    async def wait_busy(self, lines: int) -> None:
        """Wait until it has printed so many more lines."""
        goal = self._reported + lines
        await until(lambda: self._reported >= goal, 600)

    async def kill(self) -> None:
        """SIGKILL, where it still runs."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await self.left()

    async def leave(self) -> int:
        """Let it end its transaction; the exit code is answered."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return await self.left()

    async def left(self) -> int:
        """Wait until it has ended; the exit code is answered. Cancellation: what it prints is still written down."""
        await asyncio.shield(self._following)
        return await self._process.wait()


async def one_after_the_other(
    servers: str, topic: str, name: str, ends: Iterable[str], ledger: Ledger, enough: Callable[[], bool]
) -> None:
    """Processes with one transactional id; ``ends`` says in turn whether each is killed, or fenced by the next."""
    chance = random.Random(name)
    async with AsyncExitStack() as present:
        seeds = itertools.count()

        def successor() -> Awaitable[Shopper]:
            return present.enter_async_context(Shopper(servers, topic, name, next(seeds), ledger))

        shopper = await successor()
        for end in ends:
            await shopper.wait_busy(chance.randint(20, 60))
            if end == "killed":
                await shopper.kill()
                shopper = await successor()
            else:
                shopper = await survivor(shopper, await successor())
            if enough():
                break
        await shopper.wait_busy(1)  # it has ended then what a killed one has left
        assert await shopper.leave() == 0


async def survivor(older: Shopper, newer: Shopper) -> Shopper:
    """Wait until one of two with the same transactional id has fenced the other, and gone on.

    That is the newer one, unless the older only learned that its commit is in doubt, and began again after it.
    """
    ends = {asyncio.ensure_future(shopper.left()): shopper for shopper in (older, newer)}
    (done, *_), rest = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    assert done.result() == FENCED
    for each in rest:
        each.cancel()
    return newer if ends[done] is older else older


@pytest.mark.parametrize("transactions", [60, pytest.param(2000, marks=pytest.mark.soak)])
async def test_each_transaction_is_seen_wholly_or_not_at_all(kafka: KafkaCluster, transactions: int) -> None:
    topic, ledger = f"shop-{uuid.uuid4().hex[:8]}", Ledger()
    kafka.create_topic(topic, PARTITIONS)
    servers, enough = kafka.bootstrap_servers, partial(ledger.is_known_of, transactions)
    async with asyncio.TaskGroup() as group:
        for number in range(2):
            group.create_task(shop(servers, topic, f"{topic}-task-{number}", 0, ledger, enough, has_rivals=False))
        for number, ends in enumerate((("killed", "fenced"), ("fenced", "killed"))):
            name = f"{topic}-process-{number}"
            group.create_task(one_after_the_other(servers, topic, name, itertools.cycle(ends), ledger, enough))
        for part, end in enumerate(ENDS[kafka.version], 1):
            await until(partial(ledger.is_known_of, part * transactions // 4), 600)
            await asyncio.to_thread(end, kafka, 1)
            await asyncio.to_thread(kafka.start, 1)

    await until(lambda: not open_transactions(kafka), 60)  # a commit is certain before readers see it
    assert unstable(kafka, topic) == {}
    seen = await asyncio.to_thread(read_committed, kafka, topic)
    try:
        ledger.check(seen)
    except AssertionError as error:
        error.add_note(await asyncio.to_thread(history, kafka, topic, ledger.wrong(seen)))
        raise
    assert ledger.counts[Fate.COMMITTED] > transactions // 2
    assert ledger.counts[Fate.ABORTED]


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


class _Abort(Exception):
    """The work wants no commit."""


def _never(topic: str, group: str) -> Any:
    async def work(txn: Transaction) -> None:
        await txn.send_offsets({TopicPartition(topic, 3): 99}, group)
        raise _Abort

    return work


def committed_offset(kafka: KafkaCluster, group: str, topic: str) -> int:
    """The position from which librdkafka's consumer would continue."""
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Partition

    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    try:
        return int(consumer.committed([Partition(topic, 3)], 30)[0].offset)
    finally:
        consumer.close()
