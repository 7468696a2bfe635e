"""A transactional outbox: an order and its event are saved together, and the event is written to Kafka exactly once.

The shop writes both into its database in one transaction, so there is never one without the other. A relay moves the events
to Kafka. It could store its progress in the database; but database and Kafka cannot commit together, so a crash between the
two would send events twice. So it stores the progress in Kafka: the number of the last event is the position of a consumer
group without consumers, and is committed in the transaction of the events.

The next relay begins with `init_transactions`. That fences an earlier relay for good and ends its open
transaction; only then is the position certain. So it does not matter where a relay dies, nor whether it learned
that its commit succeeded.

It is exactly once for readers with read_committed, as long as

* the events become visible in the order of their numbers. SQLite has one writer at a time. With several writers, as in
  PostgreSQL, a smaller number may be committed after a larger one: read only below the oldest transaction still open.
* Kafka keeps the position: ``offsets.retention.minutes`` after the last event, 7 days by default. Relayed events are
  deleted at once, so that even then only the events that a crash left undeleted could be sent twice.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from _broker import bootstrap_servers

from aioproducer import Producer, TopicPartition, TransactionCoordinatorClient
from aioproducer.errors import DeliveryError, ProducerFenced, TransactionError

TOPIC, RELAY = "order-events", "order-relay"
POSITION = TopicPartition(TOPIC, 0)  # the group RELAY's position; an existing partition that stands for all of them
SCHEMA = """
    CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY AUTOINCREMENT, item TEXT);
    CREATE TABLE IF NOT EXISTS outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT, event TEXT);
"""


class Database:
    """The shop's tables. Its calls block: coroutines run them in a thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with closing(self._connect()) as connection:
            connection.executescript(SCHEMA)

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path)

    def place_order(self, item: str) -> None:
        with closing(self._connect()) as connection, connection:  # both rows or none
            order = connection.execute("INSERT INTO orders (item) VALUES (?)", (item,)).lastrowid
            connection.execute("INSERT INTO outbox (key, event) VALUES (?, ?)", (str(order), f"ordered: {item}"))

    def events_after(self, number: int, most: int = 100) -> list[tuple[int, str, str]]:
        with closing(self._connect()) as connection:
            query = "SELECT id, key, event FROM outbox WHERE id > ? ORDER BY id LIMIT ?"
            return connection.execute(query, (number, most)).fetchall()

    def forget_events_to(self, number: int) -> None:
        with closing(self._connect()) as connection, connection:
            connection.execute("DELETE FROM outbox WHERE id <= ?", (number,))


async def relay(database: Database, servers: str) -> None:
    """Move the available events to Kafka. A service would wait for more, and not return."""
    async with (
        TransactionCoordinatorClient(servers) as coordinator,
        Producer(servers, transactional_id=RELAY) as producer,
    ):
        await producer.init_transactions()  # from here on no earlier relay can write or commit anything
        position = (await coordinator.committed(RELAY, [POSITION]))[POSITION]
        last = position.offset if position else 0
        print(f"the relay begins after event {last}")
        await asyncio.to_thread(database.forget_events_to, last)
        while events := await asyncio.to_thread(database.events_after, last):
            last = events[-1][0]
            async with producer.transaction() as txn:
                for _, key, event in events:
                    await txn.enqueue(TOPIC, event, key=key)
                await txn.send_offsets({POSITION: last}, RELAY)
            print(f"events {events[0][0]} to {last} are in Kafka")
            await asyncio.to_thread(database.forget_events_to, last)


async def keep_relaying(database: Database, servers: str) -> None:
    """Start again after errors that this can fix; the position shows which events were written."""
    while True:
        try:
            return await relay(database, servers)
        except ProducerFenced:
            raise  # another relay has taken over
        except (TransactionError, DeliveryError) as error:
            print(f"the relay starts again: {error}")


class PowerCut(Exception):
    """The process ends."""


class DatabaseBeforePowerCut(Database):
    """The process ends at the worst moment: the events are in Kafka, and still in the table."""

    def forget_events_to(self, number: int) -> None:
        if self.events_after(0)[0][0] <= number:
            raise PowerCut


async def main() -> None:
    servers = bootstrap_servers()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "shop.db"
        database = Database(path)
        for item in ("books", "a pen", "tea"):
            database.place_order(item)

        try:
            await keep_relaying(DatabaseBeforePowerCut(path), servers)
        except PowerCut:
            print(f"power cut; left in the table: {len(database.events_after(0))}")

        database.place_order("a yacht")
        await keep_relaying(database, servers)
        print(f"left in the table: {len(database.events_after(0))}")


if __name__ == "__main__":
    asyncio.run(main())
