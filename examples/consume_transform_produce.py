"""From topic to topic exactly once: the results and the consumer's position are committed in one transaction.

aiokafka's consumer reads, in a group whose members come and go. Four things together make it exactly once:

* The group's positions are part of the transaction (`send_offsets`), so they count if and only if its records do.
* They are committed as the member that read the records. If its partitions have moved to another member since, it is refused
  and its transaction aborted.
* A member begins at the positions that `committed()` returns, which waits for transactions that are just ending. aiokafka
  itself does not wait (KIP-447), and could read records again whose results are already there.
* After a failure everything is opened again, and begins at the committed positions. So even the outcome of a commit that is
  unknown does not matter: the group's positions show it.

It holds for data in Kafka, and for readers with read_committed. A mail that `transform` sends is sent again.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter

import aiokafka  # type: ignore[import-untyped]
from _broker import bootstrap_servers

from aioproducer import ConsumerGroupMetadata, Producer, TopicPartition, TransactionCoordinatorClient
from aioproducer.errors import DeliveryError, ProducerFenced, TransactionError

NUMBERS, SQUARES, GROUP = "numbers", "squares", "squarers"


def transform(value: bytes) -> bytes:
    return b"%d" % int(value) ** 2


class Membership(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """The group member as which the consumer reads now; None during a rebalance."""

    def __init__(self, consumer: aiokafka.AIOKafkaConsumer) -> None:
        self.now: ConsumerGroupMetadata | None = None
        self.busy = asyncio.Lock()
        self._consumer = consumer

    async def on_partitions_revoked(self, revoked: object) -> None:
        self.now = None
        async with self.busy:  # let the transaction end, so that it is not refused
            pass

    async def on_partitions_assigned(self, assigned: object) -> None:
        group = self._consumer._coordinator  # aiokafka has no public name for these two
        self.now = ConsumerGroupMetadata(GROUP, group.generation, group.member_id)


async def work(servers: str, name: str) -> None:
    """Be a member of the group until cancelled. Each member has its own name, which its successor inherits."""
    while True:
        try:
            await square(servers, name)
        except ProducerFenced:
            raise  # another member has this name
        except (TransactionError, DeliveryError) as error:
            print(f"{name} starts again: {error}", file=sys.stderr)


async def square(servers: str, name: str) -> None:
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=servers,
        group_id=GROUP,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        heartbeat_interval_ms=500,
    )
    membership = Membership(consumer)
    consumer.subscribe([NUMBERS], listener=membership)
    async with (
        TransactionCoordinatorClient(servers) as coordinator,
        Producer(servers, transactional_id=f"{GROUP}-{name}") as producer,
        consumer,
    ):
        await producer.init_transactions()  # aborts a transaction that a predecessor with this name left open
        member: ConsumerGroupMetadata | None = None
        while True:
            if member is not membership.now:
                member = membership.now
                positions = await coordinator.committed(
                    GROUP, [TopicPartition(*each) for each in consumer.assignment()]
                )
                if member is membership.now:
                    for (topic, partition), position in positions.items():
                        consumer.seek(aiokafka.TopicPartition(topic, partition), position.offset if position else 0)
            found = await consumer.getmany(timeout_ms=200, max_records=20)
            if not found or member is None or member is not membership.now:
                continue  # read as another member: the new owner begins at the committed positions
            async with membership.busy, producer.transaction() as txn:
                for records in found.values():
                    for record in records:
                        await txn.enqueue(SQUARES, transform(record.value))
                ends = {TopicPartition(*each): records[-1].offset + 1 for each, records in found.items()}
                await txn.send_offsets(ends, member)


async def main() -> None:
    servers = bootstrap_servers()
    async with Producer(servers) as producer:
        await producer.send_many(NUMBERS, [b"%d" % number for number in range(300)])

    seen: Counter[bytes] = Counter()
    members = {"anna": asyncio.create_task(work(servers, "anna"))}
    results = aiokafka.AIOKafkaConsumer(
        SQUARES, bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    async with results, asyncio.timeout(120):
        while seen.total() < 300:
            for records in (await results.getmany(timeout_ms=200)).values():
                seen.update(record.value for record in records)
            if seen and "bert" not in members:  # a second member takes over some partitions
                members["bert"] = asyncio.create_task(work(servers, "bert"))
            if seen.total() >= 200:  # and then the others
                members["anna"].cancel()
        late = await results.getmany(timeout_ms=500)
    for member in members.values():
        member.cancel()
    await asyncio.wait(members.values())
    print(f"{seen.total()} squares of 300 numbers, {len(seen)} of them different, and {len(late)} too many")


if __name__ == "__main__":
    asyncio.run(main())
