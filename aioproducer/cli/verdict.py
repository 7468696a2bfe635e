"""Compares what was acknowledged with what an independent consumer read, and reports the faults.

Pure: values in, a verdict out. A record is identified by its whole content, so the records of a run must be distinct.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from aioproducer.types import Header

__all__ = ["Content", "Fault", "Place", "ReadRecord", "Verdict", "compare"]

_EXAMPLES_OF_EACH = 3


class Content(NamedTuple):
    """The parts of a record that the producer sets and the consumer sees."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp_ms: int


class Place(NamedTuple):
    """A record's acknowledged position; ``offset`` is -1 if the broker did not return one."""

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
        """The position at which it was read."""
        return Place(self.partition, self.offset)


class Fault(StrEnum):
    """A kind of fault of a record."""

    LOST = "lost"  # acknowledged, but not in the log
    DUPLICATED = "duplicated"  # in the log more than once
    REORDERED = "reordered"  # after a record of its partition that was sent later
    ALTERED = "altered"  # at its acknowledged offset is a record that was never sent
    MISPLACED = "misplaced"  # not where it was acknowledged, or not in its key's partition
    STRAY = "stray"  # it was never sent, and no acknowledged record belongs there


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result: the number of records with each fault (faults with 0 may be missing), and descriptions of a few of them.

    A record can have several faults: of two records that swapped places both are misplaced and one is reordered.
    """

    acknowledged: int
    read: int
    partitions: int
    keys: int
    counts: Mapping[Fault, int]
    examples: Sequence[str]

    @property
    def is_good(self) -> bool:
        """Whether the log holds exactly the acknowledged records, at their positions and in their order."""
        return not any(self.counts.values()) and self.acknowledged == self.read

    def __str__(self) -> str:
        if self.is_good:
            return (
                f"{self.acknowledged:,} records acknowledged, the same {self.read:,} read back: "
                "none lost, duplicated, reordered, altered or misplaced."
            )
        found = ", ".join(f"{self.counts[fault]:,} {fault}" for fault in Fault if self.counts[fault])
        return f"{self.acknowledged:,} records acknowledged, {self.read:,} read back: {found}."


def compare(
    sent: Sequence[Content],
    acknowledged: Sequence[Place],
    log: Iterable[ReadRecord],
    partition_of: Callable[[bytes], int] | None = None,
) -> Verdict:
    """Compare the log with what was sent, in order, and acknowledged: record i of ``sent`` at place i.

    ``log`` yields the records of each partition in that partition's order; partitions may be interleaved.
    ``partition_of`` returns a key's partition as computed independently of the producer. Without it, all records of a
    key still have to be in one partition; together with the order of each partition this keeps each key in order too.

    Raises ValueError if the two sequences differ in length, or two records are equal.
    """
    return _Comparison(sent, acknowledged, partition_of).run(log)


class _Comparison:
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
                f"Each record needs a place, and no two records may be equal: {len(sent)} records, "
                f"{len(self._number_of)} distinct, {len(acknowledged)} places."
            )
        self._found = bytearray(len(sent))
        self._newest_in: dict[int, int] = {}
        self._home_of: dict[bytes, int] = {}
        self._counts: Counter[Fault] = Counter()
        self._examples: list[str] = []

    def run(self, log: Iterable[ReadRecord]) -> Verdict:
        read = 0
        for record in log:
            read += 1
            self._check(record)
        for number, found in enumerate(self._found):
            if not found:
                self._add_fault(Fault.LOST, f"{self._name(number)} is not in the log")
        return Verdict(
            acknowledged=len(self._sent),
            read=read,
            partitions=len({place.partition for place in self._acknowledged}),
            keys=len({content.key for content in self._sent} - {None}),
            counts=self._counts,
            examples=self._examples,
        )

    def _check(self, record: ReadRecord) -> None:
        number = self._number_of.get(record.content)
        if number is None:
            self._check_unknown(record)
        elif self._found[number]:
            self._add_fault(Fault.DUPLICATED, f"{self._name(number)} is also at {record.place}")
        else:
            self._found[number] = True
            self._check_place(number, record)
            self._check_order(number, record)

    def _check_unknown(self, record: ReadRecord) -> None:
        owner = self._owner_of.get(record.place)
        if owner is None:
            self._add_fault(Fault.STRAY, f"The record at {record.place} was never sent")
            return
        self._found[owner] = True
        differing = [
            field
            for field, mine, theirs in zip(Content._fields, self._sent[owner], record.content, strict=True)
            if mine != theirs
        ]
        self._add_fault(Fault.ALTERED, f"{self._name(owner)} was read back with a different {' and '.join(differing)}")

    def _check_place(self, number: int, record: ReadRecord) -> None:
        promised = self._acknowledged[number]
        if promised.partition != record.partition or promised.offset not in (-1, record.offset):
            self._add_fault(Fault.MISPLACED, f"{self._name(number)} is at {record.place}")
            return
        key = record.content.key
        if key is None:
            return
        home = self._home_of.setdefault(key, record.partition)
        if self._partition_of is not None:
            home = self._partition_of(key)
        if home != record.partition:
            self._add_fault(Fault.MISPLACED, f"{self._name(number)} is there, but its key belongs to partition {home}")

    def _check_order(self, number: int, record: ReadRecord) -> None:
        newest = self._newest_in.get(record.partition, -1)
        if number < newest:
            self._add_fault(Fault.REORDERED, f"{self._name(number)} comes after record {newest}, which was sent later")
        else:
            self._newest_in[record.partition] = number

    def _name(self, number: int) -> str:
        return f"Record {number} (key {self._sent[number].key!r}), acknowledged at {self._acknowledged[number]},"

    def _add_fault(self, fault: Fault, sentence: str) -> None:
        self._counts[fault] += 1
        if self._counts[fault] <= _EXAMPLES_OF_EACH:
            self._examples.append(f"{sentence}.")
