"""Checks that a log is exactly what its producer reported: the one judge of all traps.

What is sent carries its topic, its partition, its number there and bytes that follow from these, so that nothing can be
mistaken for anything else. `complaints` is exact, and test_judge.py holds it to saying no where it must.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from aioproducer import Delivery, NotWritten, Producer, RecordMetadata, TopicPartition
from aioproducer.errors import DeliveryError, KafkaError, Unknown
from aioproducer.testing import FakeBroker
from tests.conftest import opened, until

__all__ = ["Attempt", "Audit", "Logged", "audited", "complaints", "payload"]


def payload(topic: str, partition: int, number: int, size: int = 40) -> bytes:
    """The value of a record: who it is, and noise that no other record has, up to ``size`` bytes."""
    name = f"{topic}|{partition}|{number}|".encode()
    return name + random.Random(name).randbytes(max(0, size - len(name)))


class Logged(Protocol):
    """The part of a record in the log that the judge compares."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def value(self) -> bytes | None: ...


@dataclass(slots=True, eq=False)
class Attempt:
    """One record that was given to the producer, and what that said of it; ``outcome`` None: nothing yet."""

    topic: str
    partition: int
    number: int
    outcome: RecordMetadata | KafkaError | None = None
    delivery: Delivery | None = None

    @property
    def name(self) -> tuple[str, int, int]:
        """The identity of the record."""
        return self.topic, self.partition, self.number

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} #{self.number}"


def complaints(attempts: Iterable[Attempt], log: Iterable[Logged]) -> list[str]:
    """Everything that is wrong, as sentences; nothing where all is well."""
    reported = {attempt.name: attempt for attempt in attempts}
    wrong: list[str] = []
    places: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    orders: dict[TopicPartition, list[int]] = defaultdict(list)
    for record in sorted(log, key=lambda each: (each.topic, each.partition, each.offset)):
        name = _read_name(record.value or b"")
        if name is None or name not in reported:
            wrong.append(f"{record.topic}-{record.partition} @{record.offset} is nothing that was sent.")
            continue
        if name[:2] != (record.topic, record.partition):
            wrong.append(f"{reported[name]} was misrouted to {record.topic}-{record.partition} @{record.offset}.")
        places[name].append(record.offset)
        orders[TopicPartition(record.topic, record.partition)].append(name[2])
    for name, attempt in reported.items():
        wrong.extend(_wrong_with(attempt, places[name]))
    for partition, numbers in orders.items():
        wrong.extend(
            f"{partition}: #{later} stands behind #{earlier}."
            for earlier, later in pairwise(numbers)
            if later < earlier
        )
    return wrong


def _wrong_with(attempt: Attempt, places: list[int]) -> Iterable[str]:
    outcome = attempt.outcome
    if len(places) > 1:
        yield f"{attempt} is in the log {len(places)} times, at {places}."
    if outcome is None:
        yield f"{attempt} has no outcome."
    elif isinstance(outcome, RecordMetadata):
        if not places:
            yield f"{attempt} was acknowledged and is lost."
        if outcome.topic_partition != (attempt.topic, attempt.partition):
            yield f"{attempt} was acknowledged at {outcome.topic_partition}."
        if outcome.offset >= 0 and places and outcome.offset not in places:
            yield f"{attempt} was acknowledged at {outcome.offset} and is at {places}."
    elif places and not isinstance(outcome, Unknown):
        yield f"{attempt} is in the log at {places}, and was reported as not written: {outcome!r}."


def _read_name(value: bytes) -> tuple[str, int, int] | None:
    parts = value.split(b"|", 3)
    if len(parts) != 4 or not parts[1].isdigit() or not parts[2].isdigit():
        return None
    topic, partition, number = parts[0].decode(), int(parts[1]), int(parts[2])
    return (topic, partition, number) if payload(topic, partition, number, len(value)) == value else None


class Audit:
    """Sends records that the judge can read, and remembers the reported outcome of each."""

    def __init__(self, broker: FakeBroker, producer: Producer) -> None:
        self.broker = broker
        self.producer = producer
        self.attempts: list[Attempt] = []
        self._numbers: Counter[TopicPartition] = Counter()

    def attempt(self, topic: str, partition: int) -> Attempt:
        """The next record of this partition, noted before anything is done with it."""
        where = TopicPartition(topic, partition)
        attempt = Attempt(topic, partition, self._numbers[where])
        self._numbers[where] += 1
        self.attempts.append(attempt)
        return attempt

    async def enqueue(
        self, topic: str = "orders", partition: int = 0, size: int = 40, timeout: float | None = None
    ) -> Attempt:
        """Put one record in; a refusal is an outcome too."""
        attempt = self.attempt(topic, partition)
        try:
            self.take(
                attempt,
                await self.producer.enqueue(topic, payload(*attempt.name, size), partition=partition, timeout=timeout),
            )
        except KafkaError as error:
            attempt.outcome = error
        return attempt

    async def send(self, topic: str = "orders", partition: int = 0, size: int = 40) -> Attempt:
        """Put one record in and wait for its outcome."""
        attempt = await self.enqueue(topic, partition, size)
        await self.outcome(attempt)
        return attempt

    def take(self, attempt: Attempt, delivery: Delivery) -> None:
        """Note how the outcome of an attempt will be reported."""
        attempt.delivery = delivery

        def reported(delivery: Delivery) -> None:
            attempt.outcome = delivery.exception() or delivery.result()

        delivery.add_done_callback(reported)

    async def outcome(self, attempt: Attempt) -> RecordMetadata | KafkaError:
        """Its outcome, once that is known."""
        await until(lambda: attempt.outcome is not None, 40)
        assert attempt.outcome is not None
        return attempt.outcome

    async def all_outcomes(self, timeout: float = 40) -> None:
        """Wait until nothing is open any more."""
        await until(lambda: all(attempt.outcome is not None for attempt in self.attempts), timeout)

    async def rest(self) -> None:
        """Wait until the producer holds nothing any more; all memory must be back then."""
        await self.all_outcomes()
        await until(lambda: self.free == self.total)
        assert self.metric("records-pending") == 0

    def metric(self, name: str) -> float:
        """One of the producer's numbers."""
        return self.producer.metrics()[name]

    @property
    def free(self) -> float:
        """The bytes of buffer_memory that are free."""
        return self.metric("buffer-available-bytes")

    @property
    def total(self) -> float:
        """The bytes of buffer_memory."""
        return self.metric("buffer-total-bytes")

    def count(self, kind: type[RecordMetadata] | type[DeliveryError]) -> int:
        """The number of records with this kind of outcome."""
        return sum(isinstance(attempt.outcome, kind) for attempt in self.attempts)

    @property
    def acknowledged(self) -> int:
        """The number of acknowledged records."""
        return self.count(RecordMetadata)

    @property
    def not_written(self) -> int:
        """The number of records that are certainly not in the log."""
        return self.count(NotWritten)

    def check(self) -> None:
        """Have the judge say no, if there is a reason."""
        found = complaints(self.attempts, self.broker.records())
        assert not found, "\n".join(found[:20])
        problems = [
            request.problem
            for request in self.broker.requests
            # The first question for the versions may be one that the broker does not know (KIP-511).
            if request.problem is not None and not (request.api == "ApiVersions" and request.body is None)
        ]
        assert not problems, problems[:5]


@asynccontextmanager
async def audited(
    broker: FakeBroker, *, check: bool = True, bootstrap: str | None = None, **options: Any
) -> AsyncIterator[Audit]:
    """A producer whose every record is judged at the end, when all memory and all tasks must be given back."""
    before = asyncio.all_tasks()
    async with opened(bootstrap or broker, **options) as producer:
        audit = Audit(broker, producer)
        yield audit
        await audit.rest()
    assert asyncio.all_tasks() <= before
    if check:
        audit.check()
