"""Programs that send: several callers of one producer, or transactions one after the other."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from aioproducer import Producer
from aioproducer.delivery import Delivery
from aioproducer.errors import (
    BrokerConnectionError,
    CommitUnknown,
    DeliveryError,
    InvalidRecord,
    KafkaError,
    NotWritten,
    NotWrittenTimeout,
    ProducerStateError,
    ProtocolError,
    SendManyError,
    TransactionError,
    UnknownTimeout,
)
from aioproducer.types import ProducerRecord, RecordMetadata
from tests.simulation.faults import Dice, Story
from tests.simulation.ledger import End, Entry, Ledger, Reported, Transaction

__all__ = ["Callers", "Clock", "Program", "Transactions"]

#: What a caller does with its next record, by weight.
_ACTIONS: Final = ("send", "enqueue", "enqueue", "burst", "burst", "nowait", "many", "patience", "cancel")
_MOST_IN_BURST: Final = 30
#: Free memory, in bytes, in which each record has room.
_MUCH: Final = 2_500
#: Virtual seconds after the last fault, in which a record gets to its partition: the longest request time-out, twice.
_ENOUGH_S: Final = 25.0
#: So often memory may be given back at the moment in which a call gives up waiting for it.
_COINCIDENCES: Final = 12


class Clock(Protocol):
    """The time of a program: virtual in a simulation."""

    def time(self) -> float:
        """Seconds since any fixed moment."""
        ...

    def now_ms(self) -> int:
        """The wall clock."""
        ...


class Program:
    """Common to all programs."""

    def __init__(
        self, loop: Clock, dice: Dice, story: Story, ledger: Ledger, topics: Sequence[str], pause_s: float
    ) -> None:
        self._loop, self._dice, self._story = loop, dice, story
        self._ledger, self._topics, self._pause_s = ledger, topics, pause_s
        self._numbers: dict[str, int] = {}
        #: Records of different sizes make callers wait for memory.
        self._padding = dice.choice((0, 0, 50, 400))
        #: The time since which all is well.
        self.calm_since = math.inf
        self.problems: list[str] = []
        self._in_vain = 0

    def _entry(self, caller: str, topic: str | None = None) -> Entry:
        number = self._numbers[caller] = self._numbers.get(caller, -1) + 1
        key = self._dice.choice((None, b"a", b"b", b"c"))
        return self._ledger.enter(caller, number, topic or self._dice.choice(self._topics), key)

    def _arguments(self, entry: Entry) -> dict[str, Any]:
        padding = (("padding", bytes(self._padding * (entry.number % 3))),) if self._padding else ()
        return {"key": entry.key, "timestamp_ms": self._loop.now_ms(), "headers": padding}

    def _report(self, entry: Entry, metadata: RecordMetadata | None, error: BaseException | None) -> None:
        if metadata is not None:
            entry.reported = Reported.WRITTEN
            entry.partition, entry.offset = metadata.partition, metadata.offset if metadata.offset >= 0 else None
        elif isinstance(error, (NotWritten, InvalidRecord, ProducerStateError, TransactionError)):
            entry.reported = Reported.NOT_WRITTEN
        else:
            entry.reported = Reported.UNKNOWN if isinstance(error, KafkaError) else Reported.ABANDONED
        if error is not None and _is_hasty(error):
            self.problems.append(f"hasty: {entry.value!r} was given up, because {error.__cause__}")
        waited = self._loop.time() - self.calm_since
        # Behind a batch whose fate is unknown, another one in doubt is repeated until its time is over.
        is_free = entry.is_accepted and entry.topic not in self._ledger.in_doubt
        if is_free and isinstance(error, (NotWrittenTimeout, UnknownTimeout)) and waited > _ENOUGH_S:
            self.problems.append(f"starved: {entry.value!r} ran out of time, {waited:.0f} s after all was well")
        if entry.reported in (Reported.UNKNOWN, Reported.ABANDONED):
            self._ledger.in_doubt.add(entry.topic)
        words = "" if error is None else f" ({type(error).__name__})"
        self._story.add(self._loop.time(), f"{entry.caller} {entry.number}: {entry.reported.value}{words}")

    def _settle(self, transaction: Transaction, error: KafkaError) -> None:
        """The record whose enqueue() raised has no delivery."""
        for entry in transaction.entries:
            if entry.reported is Reported.PENDING and not entry.is_accepted:
                self._report(entry, None, error)

    def _watched(self, entry: Entry) -> Callable[[Delivery], None]:
        entry.is_accepted = True

        def done(delivery: Delivery) -> None:
            error = delivery.exception()
            self._report(entry, None if error else delivery.result(), error)

        return done


def _free_in(error: KafkaError) -> int:
    """The bytes that were free when a call had waited for memory in vain."""
    found = re.search(r"no room in buffer_memory \((\d+) of (\d+) bytes", str(error))
    return 0 if found is None else int(found[2]) - int(found[1])


def _is_hasty(error: BaseException) -> bool:
    """Whether a record was given up, without a time-out, for a reason that a later attempt may not meet."""
    if not isinstance(error, DeliveryError) or isinstance(error, (NotWrittenTimeout, UnknownTimeout)):
        return False
    return isinstance(error.__cause__, (BrokerConnectionError, ProtocolError))


class Callers(Program):
    """Tasks that share a producer; each has its own order."""

    async def run(self, producer: Producer, count: int, records: int) -> None:
        """Run the callers until each has sent its records."""
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(self._caller(producer, f"caller{number}", records))

    async def _caller(self, producer: Producer, name: str, records: int) -> None:
        while self._goes_on(name, records):
            if self._dice.random.random() < 0.3:
                await asyncio.sleep(self._dice.seconds(0.0, self._pause_s))
            await self._act(producer, name, self._dice.choice(_ACTIONS))

    def _goes_on(self, name: str, records: int) -> bool:
        """Whether this caller has another record to send."""
        return self._numbers.get(name, -1) + 1 < records

    async def _act(self, producer: Producer, name: str, action: str) -> None:
        if action == "burst":
            for _ in range(1 + int(self._dice.random.random() * _MOST_IN_BURST)):
                await self._act(producer, name, "enqueue")
            return
        if action == "many":
            await self._send_many(producer, [self._entry(name) for _ in range(5)])
            return
        entry = self._entry(name)
        try:
            match action:
                case "enqueue":
                    delivery = await producer.enqueue(entry.topic, entry.value, **self._arguments(entry))
                    delivery.add_done_callback(self._watched(entry))
                case "nowait":
                    delivery = producer.enqueue_nowait(entry.topic, entry.value, **self._arguments(entry))
                    delivery.add_done_callback(self._watched(entry))
                case _:
                    limit = None if action == "send" else self._dice.seconds(0.0, 0.5)
                    async with asyncio.timeout(limit):
                        metadata = await producer.send(entry.topic, entry.value, **self._arguments(entry))
                    self._report(entry, metadata, None)
        except KafkaError as error:
            if action != "nowait" and _free_in(error) > _MUCH:
                self._in_vain += 1
                if self._in_vain > _COINCIDENCES:
                    self.problems.append(
                        f"needless: {entry.value!r} waited for memory, and {_free_in(error)} bytes were free"
                    )
            self._report(entry, None, error)
        except TimeoutError as error:
            self._report(entry, None, error)

    async def _send_many(self, producer: Producer, entries: Sequence[Entry]) -> None:
        records = [ProducerRecord(each.topic, each.value, **self._arguments(each)) for each in entries]
        reported = Reported.WRITTEN
        try:
            await producer.send_many(entries[0].topic, records)
        except (SendManyError, KafkaError):
            reported = Reported.ABANDONED
            self._ledger.in_doubt.add(entries[0].topic)
        for entry in entries:
            entry.reported = reported
        self._story.add(self._loop.time(), f"{entries[0].caller} {entries[0].number} and four more: {reported.value}")


class Transactions(Program):
    """Transactions one after the other, each with some records; a producer that has to be reopened is."""

    async def run(self, make: Callable[[], Producer], name: str, count: int) -> None:
        """Run this number of transactions."""
        done = 0
        while done < count:
            async with make() as producer:
                done += await self._with_one_producer(producer, name, done, count)

    async def _with_one_producer(self, producer: Producer, name: str, first: int, count: int) -> int:
        for number in range(first, count):
            if not await self._transaction(producer, Transaction(f"{name} transaction {number}"), name):
                return number - first + 1
        return count - first

    async def _transaction(self, producer: Producer, transaction: Transaction, name: str) -> bool:
        """Whether the producer can go on."""
        self._ledger.transactions.append(transaction)
        on_purpose = self._dice.random.random() < 0.2
        goes_on = True
        try:
            async with producer.transaction():
                await self._records(producer, transaction, name)
                if on_purpose:
                    raise _OnPurpose
            transaction.end = End.COMMITTED
        except _OnPurpose:
            transaction.end = End.ABORTED
        except CommitUnknown:
            goes_on = False
        except KafkaError as error:
            transaction.end = End.UNKNOWN
            goes_on = not isinstance(error, (TransactionError, ProducerStateError)) or error.retriable
        self._story.add(self._loop.time(), f"{transaction.name}: {transaction.end.value}")
        return goes_on

    async def _records(self, producer: Producer, transaction: Transaction, name: str) -> None:
        for _ in range(1 + int(self._dice.random.random() * 6)):
            if self._dice.random.random() < 0.3:
                await asyncio.sleep(self._dice.seconds(0.0, self._pause_s))
            entry = self._entry(name)
            transaction.entries.append(entry)
            try:
                delivery = await producer.enqueue(entry.topic, entry.value, **self._arguments(entry))
            except KafkaError as error:
                self._settle(transaction, error)
                raise
            delivery.add_done_callback(self._watched(entry))


class _OnPurpose(Exception):  # control flow
    """The program aborts this transaction."""
