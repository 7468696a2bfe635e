"""Checks that a reader with read_committed sees exactly the transactions reported as committed: trap 12's judge.

Every record carries the number of its transaction and its own within that, and every transaction moves the position of a
group to its number; so what is torn, doubled, lost, misplaced or visible without leave cannot be taken for anything else.
`complaints` is exact, and test_ledger.py holds it to saying no where it must.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import pairwise
from typing import NamedTuple

from aioproducer import Delivery, Producer, TopicPartition
from aioproducer.testing import FakeBroker
from tests.traps.judge import Logged

__all__ = ["GROUP", "INPUT", "PARTITIONS", "Entry", "Fate", "Ledger", "Mark", "complaints"]

GROUP = "readers"
INPUT = TopicPartition("in", 0)
PARTITIONS: Sequence[TopicPartition] = tuple(TopicPartition("orders", number) for number in range(3))


class Fate(Enum):
    """The client's report of a transaction."""

    COMMITTED = auto()
    ABORTED = auto()  # or given up by a producer that can do no more
    UNKNOWN = auto()  # by CommitUnknown, or because the caller did not wait for the answer


class Mark(NamedTuple):
    """The identity of a record; as text it is the record's value."""

    transaction: int
    number: int
    topic: str
    partition: int

    def __str__(self) -> str:
        return "|".join(map(str, self))

    @classmethod
    def read(cls, value: bytes | None) -> Mark | None:
        """The mark that a value is; None if it is none."""
        parts = (value or b"").decode(errors="replace").split("|")
        if len(parts) != 4 or not all(parts[each].isdigit() for each in (0, 1, 3)):
            return None
        return cls(int(parts[0]), int(parts[1]), parts[2], int(parts[3]))


@dataclass(slots=True, eq=False)
class Entry:
    """One transaction; ``fate`` None: its end was not reported, so it must not be visible."""

    number: int
    fate: Fate | None = None
    moves_group: bool = False
    marks: list[Mark] = field(default_factory=list[Mark])
    deliveries: list[Delivery] = field(default_factory=list[Delivery])

    def mark(self, partition: TopicPartition) -> Mark:
        """The mark of one more record, noted before anything is done with it."""
        mark = Mark(self.number, len(self.marks), *partition)
        self.marks.append(mark)
        return mark

    async def enqueue(self, producer: Producer, partition: TopicPartition) -> None:
        """Put one more record in; one that is refused is none of the transaction's."""
        mark = self.mark(partition)
        try:
            self.deliveries.append(await producer.enqueue(partition.topic, str(mark), partition=partition.partition))
        except BaseException:  # a cancellation too: nothing was put in
            self.marks.remove(mark)
            raise

    async def move_group(self, producer: Producer) -> None:
        """Let the group stand at the number of the transaction."""
        self.moves_group = True
        await producer.send_offsets_to_transaction({INPUT: self.number}, GROUP)

    def __str__(self) -> str:
        return f"Transaction {self.number} ({'open' if self.fate is None else self.fate.name.lower()})"


def complaints(
    entries: Iterable[Entry],
    seen: Iterable[Logged],
    log: Iterable[Logged],
    position: int | None,
) -> list[str]:
    """Everything that is wrong, as sentences; nothing where all is well.

    ``seen`` is what a reader with read_committed gets, ``log`` everything, ``position`` where the group stands.
    """
    reported = {entry.number: entry for entry in entries}
    wrong: list[str] = []
    visible: dict[int, list[Mark]] = defaultdict(list)
    orders: dict[tuple[str, int], list[Mark]] = defaultdict(list)
    for record in seen:
        mark = Mark.read(record.value)
        if mark is None or mark.transaction not in reported or mark not in reported[mark.transaction].marks:
            wrong.append(f"{record.value!r} in {record.topic}-{record.partition} is nothing that was sent.")
            continue
        if mark[2:] != (record.topic, record.partition):
            wrong.append(f"{mark} was misrouted to {record.topic}-{record.partition}.")
        visible[mark.transaction].append(mark)
        orders[record.topic, record.partition].append(mark)
    for value, times in Counter(record.value for record in log).items():
        if times > 1:
            wrong.append(f"{value!r} is in the log {times} times.")
    for entry in reported.values():
        wrong.extend(_wrong_with(entry, visible[entry.number]))
    for (topic, partition), marks in orders.items():
        behind = [(one, other) for one, other in pairwise(marks) if other <= one]
        wrong.extend(f"{topic}-{partition}: {other} stands behind {one}." for one, other in behind)
    allowed = _positions(reported, visible)
    if position not in allowed:
        wrong.append(f"The group stands at {position}, and {' or '.join(map(str, allowed))} was committed last.")
    return wrong


def _wrong_with(entry: Entry, visible: Sequence[Mark]) -> Iterable[str]:
    missing = [mark for mark in entry.marks if mark not in visible]
    if entry.fate is Fate.COMMITTED:
        yield from (f"{entry}: {mark} is not to be seen." for mark in missing)
        yield from (
            f"{entry}: the record was refused: {each.exception()!r}."
            for each in entry.deliveries
            if each.done() and each.exception() is not None
        )
    elif entry.fate is Fate.UNKNOWN:
        if visible and missing:
            yield f"{entry} is torn: {visible[0]} is to be seen, and {missing[0]} is not."
    elif visible:
        yield f"{entry}: {visible[0]} is to be seen."
    yield from (f"{entry}: the outcome of a record was not reported." for each in entry.deliveries if not each.done())


def _positions(reported: Mapping[int, Entry], visible: Mapping[int, Sequence[Mark]]) -> list[int | None]:
    """The possible committed offsets of the group: those of the last transaction that counts."""
    allowed: list[int | None] = [None]
    for entry in sorted(reported.values(), key=lambda each: each.number):
        if not entry.moves_group:
            continue
        if entry.fate is Fate.COMMITTED or visible.get(entry.number):
            allowed = [entry.number]
        elif entry.fate is Fate.UNKNOWN and not entry.marks:
            allowed.append(entry.number)
    return allowed


class Ledger:
    """Notes what is done to a broker and what the producer reported, and has it judged."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.entries: list[Entry] = []

    def entry(self) -> Entry:
        """The next transaction, noted before it is begun."""
        entry = Entry(len(self.entries))
        self.entries.append(entry)
        return entry

    def count(self, fate: Fate) -> int:
        """The number of transactions with this outcome."""
        return sum(entry.fate is fate for entry in self.entries)

    async def commit_one(self, producer: Producer) -> Entry:
        """A transaction with everything in it, in which nothing must go wrong."""
        entry = self.entry()
        async with producer.transaction():
            for partition in PARTITIONS:
                await entry.enqueue(producer, partition)
            await entry.move_group(producer)
        entry.fate = Fate.COMMITTED
        return entry

    def check(self) -> None:
        """Have the judge say no, if there is a reason. To be called when all producers are closed."""
        wrong = self.complaints()
        assert not wrong, "\n".join(wrong[:20])

    def complaints(self) -> list[str]:
        """The faults of the current state."""
        broker = self.broker
        position = broker.committed_offsets(GROUP).get(INPUT)
        return [
            *complaints(
                self.entries,
                broker.records(PARTITIONS[0].topic, committed=True),
                broker.records(PARTITIONS[0].topic),
                None if position is None else position.offset,
            ),
            *(f"{each.transactional_id!r} is still open: {each}." for each in broker.open_transactions()),
            *self._hanging(),
            *(f"{each.api}: {each.problem}" for each in broker.requests if each.problem is not None),
        ]

    def _hanging(self) -> Iterable[str]:
        """The transactions that no coordinator will ever end (KIP-890)."""
        for topic, partition in PARTITIONS:
            log = self.broker.cluster.partition(topic, partition).log
            if log.last_stable_offset != log.end_offset:
                yield f"{topic}-{partition} is stable up to {log.last_stable_offset}, and goes on to {log.end_offset}."
        group = self.broker.cluster.groups.groups.get(GROUP)
        if group is not None and any(group.pending.values()):
            yield f"The group has positions that wait for the end of a transaction: {group.pending}."
