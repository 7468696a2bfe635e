"""The judge: compares what was acknowledged with what an independent consumer read, and says what is wrong.

Pure: values in, a verdict out. A record is recognised by its whole content, so the records of one run must be distinct.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from aioproducer.types import Header

__all__ = ["Content", "Fault", "Place", "ReadRecord", "Verdict", "judge"]

_EXAMPLES_OF_EACH = 3


class Content(NamedTuple):
    """Everything of a record that a producer decides, and a consumer can see."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp_ms: int


class Place(NamedTuple):
    """Where a record was acknowledged; ``offset`` is -1 where the broker did not tell it."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"partition {self.partition}, offset {self.offset if self.offset >= 0 else 'unknown'}"


class ReadRecord(NamedTuple):
    """A record as the consumer saw it."""

    partition: int
    offset: int
    content: Content

    @property
    def place(self) -> Place:
        """Where it was read."""
        return Place(self.partition, self.offset)


class Fault(StrEnum):
    """What can be wrong with a record."""

    LOST = "lost"  # acknowledged, and nowhere in the log
    DUPLICATED = "duplicated"  # in the log once more
    REORDERED = "reordered"  # behind a record of its partition that was sent later
    ALTERED = "altered"  # where it was acknowledged stands something else that nobody sent
    MISPLACED = "misplaced"  # elsewhere than acknowledged, or not where its key belongs
    STRAY = "stray"  # nobody sent it, and no acknowledged record belongs there


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judge found: how many records have each fault (none with 0 is left out), and a few of them in words.

    A record can have several faults: one that swapped places with another is misplaced and, one of them, reordered.
    """

    acknowledged: int
    read: int
    partitions: int
    keys: int
    counts: Mapping[Fault, int]
    examples: Sequence[str]

    @property
    def is_good(self) -> bool:
        """Whether the log holds exactly what was acknowledged, where and in the order in which it was."""
        return not any(self.counts.values()) and self.acknowledged == self.read

    def __str__(self) -> str:
        if self.is_good:
            return (
                f"{self.acknowledged:,} records acknowledged, the same {self.read:,} read back: "
                "none lost, duplicated, reordered, altered or misplaced."
            )
        found = ", ".join(f"{self.counts[fault]:,} {fault}" for fault in Fault if self.counts[fault])
        return f"{self.acknowledged:,} records acknowledged, {self.read:,} read back: {found}."


def judge(
    sent: Sequence[Content],
    acknowledged: Sequence[Place],
    log: Iterable[ReadRecord],
    partition_of: Callable[[bytes], int] | None = None,
) -> Verdict:
    """Compare the log with what was sent, in order, and acknowledged: record i of ``sent`` at place i.

    ``log`` yields the records of each partition in the order of that partition; how partitions mix does not matter.
    ``partition_of`` is an opinion of where a key belongs that does not come from the producer. Without one, all records
    of a key still have to be in one partition; with that and the order of each partition, each key is in order too.

    Raises ValueError where the two sequences differ in length, or two records are equal.
    """
    return _Judge(sent, acknowledged, partition_of).hear(log)


class _Judge:
    def __init__(
        self, sent: Sequence[Content], acknowledged: Sequence[Place], partition_of: Callable[[bytes], int] | None
    ) -> None:
        self._sent = sent
        self._acknowledged = acknowledged
        self._partition_of = partition_of
        self._number_of = {content: number for number, content in enumerate(sent)}
        self._owner_of = {place: number for number, place in enumerate(acknowledged) if place.offset >= 0}
        if len(sent) != len(acknowledged) or len(self._number_of) != len(sent):
            raise ValueError(
                f"There must be a place for each record, and no two equal records: {len(sent)} records, "
                f"{len(self._number_of)} different ones, {len(acknowledged)} places."
            )
        self._found = bytearray(len(sent))
        self._newest_in: dict[int, int] = {}
        self._home_of: dict[bytes, int] = {}
        self._counts: Counter[Fault] = Counter()
        self._examples: list[str] = []

    def hear(self, log: Iterable[ReadRecord]) -> Verdict:
        read = 0
        for record in log:
            read += 1
            self._look_at(record)
        for number, found in enumerate(self._found):
            if not found:
                self._blame(Fault.LOST, f"{self._name(number)} is not in the log")
        return Verdict(
            acknowledged=len(self._sent),
            read=read,
            partitions=len({place.partition for place in self._acknowledged}),
            keys=len({content.key for content in self._sent} - {None}),
            counts=self._counts,
            examples=self._examples,
        )

    def _look_at(self, record: ReadRecord) -> None:
        number = self._number_of.get(record.content)
        if number is None:
            self._look_at_unknown(record)
        elif self._found[number]:
            self._blame(Fault.DUPLICATED, f"{self._name(number)} is at {record.place} once more")
        else:
            self._found[number] = True
            self._check_place(number, record)
            self._check_order(number, record)

    def _look_at_unknown(self, record: ReadRecord) -> None:
        owner = self._owner_of.get(record.place)
        if owner is None:
            self._blame(Fault.STRAY, f"At {record.place} is a record that was never sent")
            return
        self._found[owner] = True
        differing = [
            field
            for field, mine, theirs in zip(Content._fields, self._sent[owner], record.content, strict=True)
            if mine != theirs
        ]
        self._blame(Fault.ALTERED, f"{self._name(owner)} came back with another {' and '.join(differing)}")

    def _check_place(self, number: int, record: ReadRecord) -> None:
        promised = self._acknowledged[number]
        if promised.partition != record.partition or promised.offset not in (-1, record.offset):
            self._blame(Fault.MISPLACED, f"{self._name(number)} is at {record.place}")
            return
        key = record.content.key
        if key is None:
            return
        home = self._home_of.setdefault(key, record.partition)
        if self._partition_of is not None:
            home = self._partition_of(key)
        if home != record.partition:
            self._blame(Fault.MISPLACED, f"{self._name(number)} is there, but its key belongs to partition {home}")

    def _check_order(self, number: int, record: ReadRecord) -> None:
        newest = self._newest_in.get(record.partition, -1)
        if number < newest:
            self._blame(Fault.REORDERED, f"{self._name(number)} stands behind record {newest}, which was sent later")
        else:
            self._newest_in[record.partition] = number

    def _name(self, number: int) -> str:
        return f"Record {number} (key {self._sent[number].key!r}), acknowledged at {self._acknowledged[number]},"

    def _blame(self, fault: Fault, sentence: str) -> None:
        self._counts[fault] += 1
        if self._counts[fault] <= _EXAMPLES_OF_EACH:
            self._examples.append(f"{sentence}.")
