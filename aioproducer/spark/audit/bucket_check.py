"""Checks one bucket of an audit: takes the facts of expected and read records of some keys, returns findings.

A bucket holds every fact of its keys, so its findings are final, and buckets are checked independently. Facts have a fixed
width (hashes stand for keys and contents), and everything here is numpy on whole columns: no event loop, no Spark, no
object per record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from aioproducer.spark.audit.findings import Finding, FindingKind
from aioproducer.spark.audit.offsets import AuditFailed

__all__ = ["FACT_COLUMNS", "SAMPLES", "SEQUENCE_BLOCK", "Facts", "Side", "check_bucket"]

#: Faults of one kind that are reported with their places, per bucket; the others are counted by partition.
SAMPLES: Final = 50

#: Sequence numbers are checked in blocks of this size.
SEQUENCE_BLOCK: Final = 1 << 18

Column: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Mask: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"
Rows: TypeAlias = "np.ndarray[Any, np.dtype[np.intp]]"


class Side(IntEnum):
    """The origin of a fact."""

    LOG = 0  # a record that was read
    EXPECTED = 1  # an expected record
    SEQUENCE = 2  # the sequence number of a record that was read
    CONTROL = 3  # offsets without a record, and the reason
    ABORTED = 4
    MISSING = 5
    WITHHELD = 6
    UNEXPLAINED = 7


_OFFSET_FACTS: Final[Mapping[Side, FindingKind]] = {
    Side.CONTROL: FindingKind.CONTROL,
    Side.ABORTED: FindingKind.ABORTED,
    Side.MISSING: FindingKind.MISSING,
    Side.WITHHELD: FindingKind.WITHHELD,
    Side.UNEXPLAINED: FindingKind.UNEXPLAINED,
}

#: Columns of facts, with Spark's type names. ``bucket``: hash of the key, of the content if there is no key, or of the run
#: and block of a sequence number. ``number``: the position in the expected order (negative for a date before 1970), the
#: sequence number, or the number of offsets of an offset fact; -1 for a record read without one. ``keyed``: whether there
#: is a key, so that order counts. ``misplaced``: whether the key belongs to another partition.
FACT_COLUMNS: Final[Mapping[str, str]] = {
    "side": "tinyint",
    "bucket": "bigint",
    "content": "bigint",
    "partition": "int",
    "offset": "bigint",
    "number": "bigint",
    "keyed": "boolean",
    "misplaced": "boolean",
}


_WITHOUT_NUMBER: Final = (
    "Some rows of the files have null in the --order column. Give each a number, or turn the order check off with "
    "--order none."
)


class Facts(NamedTuple):
    """Facts, as one array per column; see `FACT_COLUMNS`."""

    side: Column
    bucket: Column
    content: Column
    partition: Column
    offset: Column
    number: Column
    keyed: Column
    misplaced: Column

    @classmethod
    def of(cls, table: Any) -> Facts:
        """The columns of a pyarrow table with `FACT_COLUMNS`.

        Raises AuditFailed for a null, which would turn a column of hashes into floats that cannot distinguish them.
        """
        empty = [name for name in FACT_COLUMNS if table.column(name).null_count]
        if empty:
            raise AuditFailed(_WITHOUT_NUMBER if empty == ["number"] else f"Facts have a null in {', '.join(empty)}.")
        return cls(*(table.column(name).to_numpy().astype(np.int64, copy=False) for name in FACT_COLUMNS))

    def take(self, rows: Any) -> Facts:
        """The given rows, in that order."""
        return Facts(*(column[rows] for column in self))

    @property
    def rows(self) -> int:
        """The number of facts."""
        return len(self.side)


def check_bucket(
    facts: Facts, *, by_order: bool = True, first: int = 0, records: int | None = None
) -> Iterator[Finding]:
    """The faults of the bucket, and its counts for the total; ``by_order``: whether order is checked.

    Sequence numbers are expected from ``first`` on, ``records`` of them (None: no limit); others are stray.
    """
    log, expected, sequence = (facts.take(facts.side == side) for side in (Side.LOG, Side.EXPECTED, Side.SEQUENCE))
    yield from _offset_facts(facts)
    yield from _counts(log, expected)
    yield from _faults(FindingKind.MISPLACED, log.take(log.misplaced != 0))
    if sequence.rows:
        named = _named(sequence, first, records)
        yield from _runs_seen(sequence.take(~named))
        if named.any():
            yield from _check_sequence(sequence.take(named))
    if expected.rows:
        yield from _check_expected(expected, log, by_order)
        return
    named = _named(log, first, records)
    yield from _faults(FindingKind.STRAY, log.take(~named))
    if by_order:
        log = log.take(named)
        yield from _check_order(log.take(_first_copies(log)))


def _offset_facts(facts: Facts) -> Iterator[Finding]:
    for side, kind in _OFFSET_FACTS.items():
        for row in np.flatnonzero(facts.side == side):
            yield Finding(kind, int(facts.partition[row]), int(facts.offset[row]), count=int(facts.number[row]))


def _counts(log: Facts, expected: Facts) -> Iterator[Finding]:
    for partition, count in _tally(log.partition):
        yield Finding(FindingKind.READ, partition, count=count)
    if expected.rows:
        yield Finding(FindingKind.EXPECTED, count=expected.rows)
    keyed = log.take(log.keyed != 0)
    yield Finding(FindingKind.KEYS, count=len(np.unique(keyed.bucket)))


# -- against what was expected ---------------------------------------------------------------------------------------------


def _check_expected(expected: Facts, log: Facts, by_order: bool) -> Iterator[Finding]:
    """Match each record read with an equal expected one; those left over on either side are faults."""
    expected = expected.take(np.lexsort((expected.number, expected.content)))
    log = log.take(np.lexsort((log.offset, log.partition, log.content)))
    first = np.searchsorted(expected.content, log.content, "left")
    there = np.searchsorted(expected.content, log.content, "right") - first
    copy = np.arange(log.rows) - np.searchsorted(log.content, log.content, "left")
    matched = copy < there
    owner = (first + copy)[matched]

    unread = np.ones(expected.rows, np.bool_)
    unread[owner] = False
    yield from _check_residue(expected.take(unread), log.take(there == 0))
    doubled = ~matched & (there > 0)
    yield from _faults(
        FindingKind.DUPLICATED, log.take(doubled), other=log.offset[(np.arange(log.rows) - copy)[doubled]]
    )
    if by_order:
        yield from _check_order(log.take(matched)._replace(number=expected.number[owner]))


def _check_residue(unread: Facts, unknown: Facts) -> Iterator[Finding]:
    """If a key lacks a record and has an unknown one, that one was altered; they are paired in order."""
    unread = unread.take(np.lexsort((unread.number, unread.bucket)))
    unknown = unknown.take(np.lexsort((unknown.offset, unknown.partition, unknown.bucket)))
    first = np.searchsorted(unread.bucket, unknown.bucket, "left")
    there = np.searchsorted(unread.bucket, unknown.bucket, "right") - first
    copy = np.arange(unknown.rows) - np.searchsorted(unknown.bucket, unknown.bucket, "left")
    altered = (copy < there) & (unknown.keyed != 0)
    owner = (first + copy)[altered]
    lost = np.ones(unread.rows, np.bool_)
    lost[owner] = False
    yield from _faults(FindingKind.LOST, unread.take(lost))
    yield from _faults(
        FindingKind.ALTERED,
        unknown.take(altered)._replace(number=unread.number[owner], content=unread.content[owner]),
    )
    yield from _faults(FindingKind.STRAY, unknown.take(~altered))


# -- order -----------------------------------------------------------------------------------------------------------------


def _check_order(log: Facts) -> Iterator[Finding]:
    """Records that come after a record of the same key and partition that was sent later."""
    log = log.take(log.keyed != 0)
    if not log.rows:
        return
    log = log.take(np.lexsort((log.offset, log.partition, log.bucket)))
    new = np.ones(log.rows, np.bool_)
    new[1:] = (log.bucket[1:] != log.bucket[:-1]) | (log.partition[1:] != log.partition[:-1])
    group = np.cumsum(new) - 1
    rank = np.unique(log.number, return_inverse=True)[1].reshape(-1)
    height = rank + group * log.rows  # so that a group's highest is below all of the next group
    highest = np.maximum.accumulate(height)
    late = np.flatnonzero(height < highest)
    overtaker = np.searchsorted(highest, highest[late], "left")  # where that height was first reached
    yield from _faults(FindingKind.REORDERED, log.take(late), other=log.offset[overtaker])


def _first_copies(log: Facts) -> Rows:
    """The first of a key's records with the same number: a duplicate is not also reported as out of order."""
    rows = np.lexsort((log.offset, log.partition, log.number, log.bucket))
    bucket, number = log.bucket[rows], log.number[rows]
    first = np.ones(len(rows), np.bool_)
    first[1:] = (bucket[1:] != bucket[:-1]) | (number[1:] != number[:-1])
    return rows[first]


# -- sequence numbers ------------------------------------------------------------------------------------------------------


def _named(facts: Facts, first: int, records: int | None) -> Mask:
    """Mask of the facts whose number is expected; never those without a number (-1)."""
    from_first = facts.number >= max(first, 0)
    return from_first if records is None else from_first & (facts.number < first + records)


def _runs_seen(strays: Facts) -> Iterator[Finding]:
    """Report these runs: a run with strays only has lost everything, and would go unnoticed otherwise."""
    runs, rows = np.unique(strays.content, return_index=True)
    for run, row in zip(runs.tolist(), rows.tolist(), strict=True):
        yield Finding(
            FindingKind.BLOCK, int(strays.partition[row]), offset=int(strays.offset[row]), count=0, content=run
        )


def _check_sequence(facts: Facts) -> Iterator[Finding]:
    """For each block of each run: the count of numbers, the duplicates, and the holes between them."""
    facts = facts.take(np.lexsort((facts.offset, facts.partition, facts.number, facts.content)))
    same = np.zeros(facts.rows, np.bool_)
    same[1:] = (facts.content[1:] == facts.content[:-1]) & (facts.number[1:] == facts.number[:-1])
    first = np.maximum.accumulate(np.where(same, 0, np.arange(facts.rows)))
    doubled = facts.take(same)
    yield from _faults(
        FindingKind.DUPLICATED,
        doubled,
        other=np.where(facts.partition[first] == facts.partition, facts.offset[first], -1)[same],
    )
    facts = facts.take(~same)
    block = facts.number // SEQUENCE_BLOCK
    begins = np.flatnonzero(
        np.concatenate(([True], (facts.content[1:] != facts.content[:-1]) | (block[1:] != block[:-1])))
    )
    for begin, end in zip(begins, [*begins[1:], facts.rows], strict=True):
        yield from _block(facts, int(block[begin]), slice(int(begin), int(end)))


def _block(facts: Facts, block: int, rows: slice) -> Iterator[Finding]:
    numbers, run = facts.number[rows], int(facts.content[rows.start])
    yield Finding(
        FindingKind.BLOCK,
        int(facts.partition[rows.start]),
        offset=int(facts.offset[rows.start]),
        other=int(numbers[-1]),
        count=len(numbers),
        number=int(numbers[0]),
        content=run,
    )
    for at in np.flatnonzero(np.diff(numbers) > 1)[:SAMPLES]:
        hole = int(numbers[at]) + 1
        yield Finding(FindingKind.HOLE, count=int(numbers[at + 1]) - hole, number=hole, content=run)


# -- samples and counts ----------------------------------------------------------------------------------------------------


def _faults(kind: FindingKind, facts: Facts, other: Column | None = None) -> Iterator[Finding]:
    for row in range(min(facts.rows, SAMPLES)):
        yield Finding(
            kind,
            int(facts.partition[row]),
            int(facts.offset[row]),
            other=-1 if other is None else int(other[row]),
            number=int(facts.number[row]),
            content=int(facts.content[row]),
        )
    for partition, count in _tally(facts.partition[SAMPLES:]):
        yield Finding(kind, partition, count=count)


def _tally(values: Column) -> Iterator[tuple[int, int]]:
    different, counts = np.unique(values, return_counts=True)
    yield from zip(different.tolist(), counts.tolist(), strict=True)
