"""The result of an audit, added up from the findings of its buckets: the numbers, some of the faults, and the verdict."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from aioproducer.spark.audit.findings import Finding, FindingKind
from aioproducer.spark.audit.offsets import OffsetRange

__all__ = ["LOG_ALONE", "AuditVerdict", "Expectation", "Run", "Sample", "add_up"]

#: Faults of each kind that are reported with their places.
SAMPLES_REPORTED: Final = 20

FAULTS: Final = tuple(kind for kind in FindingKind if kind.is_fault)


#: The mode of an audit with nothing to compare the log with.
LOG_ALONE: Final = "log"


@dataclass(frozen=True, slots=True)
class Expectation:
    """The expectation in an audit.

    ``unchecked`` maps the kinds of faults that it could not detect, or some of a kind ("lost at the end"), to the reason.
    ``records``: how many sequence numbers each run should have, from ``first`` on; None: up to the highest. A run without
    any record cannot be counted, but if there is no run at all, one is expected.
    """

    mode: str
    unchecked: Mapping[str, str] = field(default_factory=dict[str, str])
    records: int | None = None
    first: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """One fault, with its place in the log if it has one (-1: none), and the record there if it was looked up."""

    kind: FindingKind
    partition: int = -1
    offset: int = -1
    other: int = -1
    number: int = -1
    content: int = -1
    count: int = 1
    key: str | None = None
    value: str | None = None
    expected_value: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Without fields that do not apply."""
        shown = {
            "kind": self.kind.value,
            "partition": self.partition if self.partition >= 0 else None,
            "offset": self.offset if self.offset >= 0 else None,
            "other_offset": self.other if self.other >= 0 else None,
            "number": self.number if self.number >= 0 or self.kind in _OF_EXPECTED else None,
            "count": self.count if self.count != 1 else None,
            "key": self.key,
            "value": self.value,
            "expected_value": self.expected_value,
        }
        return {name: value for name, value in shown.items() if value is not None}

    def __str__(self) -> str:
        what = f"Record with key {self.key!r}" if self.key is not None else "Record"
        place = f"partition {self.partition}, offset {self.offset}"
        return _SENTENCES[self.kind].format(
            what=what, place=place, other=self.other, number=self.number, count=self.count, value=self.value
        )


#: Samples of these always have a position in the expected order, which may be -1.
_OF_EXPECTED: Final = frozenset({FindingKind.LOST, FindingKind.REORDERED, FindingKind.ALTERED})

_SENTENCES: Final[Mapping[FindingKind, str]] = {
    FindingKind.LOST: "{what}, number {number} in order ({count} in a row), is not in the topic: {value}",
    FindingKind.DUPLICATED: "{what} at {place} is a duplicate; the first is at offset {other}.",
    FindingKind.REORDERED: "{what} at {place} comes after offset {other}, which was sent later.",
    FindingKind.MISPLACED: "{what} at {place} belongs to another partition by its key.",
    FindingKind.ALTERED: "{what} at {place} is not what was expected there (number {number} in order): {value}",
    FindingKind.STRAY: "{what} at {place} is unexpected: {value}",
    FindingKind.MISSING: "At {place} the log has no record for {count} offset(s), and no marker or abort explains it.",
    FindingKind.WITHHELD: "At {place} are {count} committed record(s) that the consumer did not get.",
}


@dataclass(frozen=True, slots=True)
class Run:
    """The sequence numbers of one run, without strays: first, last, distinct count, and expected count.

    ``place`` is the partition and offset of one of its records, -1 if there is none.
    """

    first: int | None
    last: int | None
    found: int
    expected: int
    place: tuple[int, int]
    name: str = ""

    def as_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "run": self.name,
            "first": self.first,
            "last": self.last,
            "found": self.found,
            "expected": self.expected,
        }


@dataclass(frozen=True, slots=True)
class AuditVerdict:
    """An audit's result. ``counts``: the findings by kind, if any; ``by_partition``: the same for each partition."""

    topic: str
    expectation: Expectation
    ranges: Sequence[OffsetRange]
    counts: Mapping[FindingKind, int]
    by_partition: Mapping[int, Mapping[FindingKind, int]]
    samples: Sequence[Sample]
    runs: Sequence[Run] = ()
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    cluster: str = ""
    reader: str = ""

    @property
    def is_clean(self) -> bool:
        """Whether no fault was found among the kinds that could be checked."""
        return not any(self.counts.get(kind, 0) for kind in FAULTS)

    @property
    def read(self) -> int:
        """The number of records read."""
        return self.counts.get(FindingKind.READ, 0)

    @property
    def expected(self) -> int | None:
        """The number of expected records; None if there was nothing to compare with."""
        if self.expectation.mode == LOG_ALONE:
            return None
        return sum(run.expected for run in self.runs) or self.counts.get(FindingKind.EXPECTED, 0)

    def __str__(self) -> str:
        counted = (
            f"{self.read:,} records read"
            if self.expected is None
            else f"{self.expected:,} records expected, {self.read:,} read"
        )
        if self.is_clean:
            checked = [kind.value for kind in FAULTS if kind.value not in self.expectation.unchecked]
            *others, last = checked or [""]
            none = f"none {', '.join(others)} or {last}" if others else f"none {last}"
            return f"{counted}: {none if checked else 'nothing was checked'}."
        found = ", ".join(f"{self.counts[kind]:,} {kind.value}" for kind in FAULTS if self.counts.get(kind))
        return f"{counted}: {found}."

    def as_json(self) -> dict[str, Any]:
        """Everything, for the verdict file; a kind of fault that could not be checked is null."""
        unchecked = self.expectation.unchecked
        return {
            "verdict": "clean" if self.is_clean else "faults",
            "conclusion": str(self),
            "cluster": self.cluster,
            "reader": self.reader,
            "topic": self.topic,
            "mode": self.expectation.mode,
            "expected": self.expected,
            "read": self.read,
            "keys": self.counts.get(FindingKind.KEYS, 0),
            "faults": {kind.value: None if kind.value in unchecked else self.counts.get(kind, 0) for kind in FAULTS},
            "not_checked": dict(unchecked),
            "offsets_without_record": {
                kind.value: self.counts.get(kind, 0)
                for kind in (FindingKind.CONTROL, FindingKind.ABORTED, FindingKind.UNEXPLAINED)
            },
            "runs": [run.as_json() for run in self.runs],
            "partitions": [self._partition(each) for each in self.ranges],
            "samples": [sample.as_json() for sample in self.samples],
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
        }

    def _partition(self, of: OffsetRange) -> dict[str, Any]:
        counts = self.by_partition.get(of.partition, {})
        named = {kind.value: count for kind, count in counts.items() if kind is not FindingKind.READ}
        return {
            "partition": of.partition,
            "begin": of.begin,
            "end": of.end,
            "read": counts.get(FindingKind.READ, 0),
            **named,
        }


#: Findings about all buckets or about runs, not about a partition.
_NOT_OF_A_PARTITION: Final = frozenset(
    {FindingKind.EXPECTED, FindingKind.KEYS, FindingKind.BLOCK, FindingKind.HOLE, FindingKind.LOST}
)


def add_up(
    topic: str, expectation: Expectation, ranges: Sequence[OffsetRange], findings: Iterable[Finding]
) -> AuditVerdict:
    """The verdict; ``seconds`` and the samples' records are filled in later."""
    counts: Counter[FindingKind] = Counter()
    by_partition: dict[int, Counter[FindingKind]] = defaultdict(Counter)
    samples: dict[FindingKind, list[Sample]] = defaultdict(list)
    runs: dict[int, list[Finding]] = defaultdict(list)
    holes: list[Finding] = []
    for finding in findings:
        kind = FindingKind(finding.kind)
        if kind.value in expectation.unchecked:
            continue  # every record is stray if nothing was expected; that is not a fault
        if kind is FindingKind.BLOCK:
            runs[finding.content].append(finding)
        elif kind is FindingKind.HOLE:
            holes.append(finding)
        else:
            counts[kind] += finding.count
            if kind not in _NOT_OF_A_PARTITION:
                by_partition[finding.partition][kind] += finding.count
            if kind.is_fault and finding.has_place:
                samples[kind].append(_sample(kind, finding))
    if not runs and expectation.mode == "sequence" and expectation.records is not None:
        runs[-1] = []
    totals = [_run(blocks, expectation) for blocks in runs.values()]
    lost = [hole for run, blocks in runs.items() for hole in _between(run, blocks, expectation)] + holes
    counts[FindingKind.LOST] += sum(run.expected - run.found for run in totals)
    samples[FindingKind.LOST] += [_sample(FindingKind.LOST, hole) for hole in lost]
    return AuditVerdict(
        topic=topic,
        expectation=expectation,
        ranges=ranges,
        counts=counts,
        by_partition=by_partition,
        samples=[
            sample
            for kind in FAULTS
            for sample in sorted(samples[kind], key=lambda each: (each.number, each.partition, each.offset))[
                :SAMPLES_REPORTED
            ]
        ],
        runs=sorted(totals, key=lambda run: run.place),
    )


def _sample(kind: FindingKind, finding: Finding) -> Sample:
    return Sample(
        kind, finding.partition, finding.offset, finding.other, finding.number, finding.content, finding.count
    )


def _run(blocks: Sequence[Finding], expectation: Expectation) -> Run:
    numbered = [block for block in blocks if block.count]
    place = min(((block.number, block.partition, block.offset) for block in numbered or blocks), default=(-1, -1, -1))
    return Run(
        min((block.number for block in numbered), default=None),
        max((block.other for block in numbered), default=None),
        sum(block.count for block in numbered),
        _end(numbered, expectation) - expectation.first,
        place[1:],
    )


def _end(numbered: Sequence[Finding], expectation: Expectation) -> int:
    """The number at which a run should end (exclusive)."""
    if expectation.records is not None:
        return expectation.first + expectation.records
    return max((block.other + 1 for block in numbered), default=expectation.first)


def _between(run: int, blocks: Sequence[Finding], expectation: Expectation) -> Iterable[Finding]:
    """The numbers missing before the first block, between blocks, and after the last one."""
    numbered = sorted((block for block in blocks if block.count), key=lambda block: block.number)
    ends = [expectation.first, *(block.other + 1 for block in numbered)]
    begins = [*(block.number for block in numbered), _end(numbered, expectation)]
    for end, next_begin in zip(ends, begins, strict=True):
        if next_begin > end:
            yield Finding(FindingKind.HOLE, count=next_begin - end, number=end, content=run)
