"""The findings of one bucket of an audit, as rows that are added up over all buckets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib import import_module
from typing import Any, Final

__all__ = ["FINDING_COLUMNS", "Finding", "FindingKind", "findings_batch"]


class FindingKind(StrEnum):
    """The kind of a finding. The first ones are faults, in the order of the report."""

    LOST = "lost"  # expected, but missing
    DUPLICATED = "duplicated"  # present more often than expected
    REORDERED = "reordered"  # after a record of its key that was sent later
    MISPLACED = "misplaced"  # not in its key's partition
    ALTERED = "altered"  # a key lacks a record, and has an unexpected one in its place
    STRAY = "stray"  # unexpected, and no record of its key is missing
    MISSING = "missing"  # an offset at which the log has no record
    WITHHELD = "withheld"  # an offset whose committed record the consumer did not get

    CONTROL = "control"  # offsets of control records
    ABORTED = "aborted"  # offsets of aborted records
    UNEXPLAINED = "unexplained"  # offsets without a record, and no way to ask why
    READ = "read"  # records read from a partition
    EXPECTED = "expected"  # records expected
    KEYS = "keys"  # distinct keys
    BLOCK = "block"  # sequence numbers of a run: count, first and last of a block; count 0: a run with strays only
    HOLE = "hole"  # sequence numbers of a run that are missing within a block

    @property
    def is_fault(self) -> bool:
        """Whether a finding of this kind makes the verdict bad."""
        return self in _FAULTS


_FAULTS: Final = frozenset(list(FindingKind)[:8])


@dataclass(frozen=True, slots=True)
class Finding:
    """One row; -1 in columns that do not apply.

    ``other`` is another offset of the same partition: of the first copy, or of the record that overtook. ``number`` is the
    position in the expected order (may be negative), or a sequence number, or that of a block; ``content`` the hash of an
    expected record, or of a run. ``count`` is 1 unless a row stands for several.
    """

    kind: str
    partition: int = -1
    offset: int = -1
    other: int = -1
    count: int = 1
    number: int = -1
    content: int = -1

    @property
    def has_place(self) -> bool:
        """Whether it describes one fault with its place, instead of counting several."""
        return (self.offset, self.number, self.content) != (-1, -1, -1)


#: The columns of findings, with Spark's type names.
FINDING_COLUMNS: Final[Mapping[str, str]] = {
    "kind": "string",
    "partition": "int",
    "offset": "bigint",
    "other": "bigint",
    "count": "bigint",
    "number": "bigint",
    "content": "bigint",
}


def findings_batch(findings: Iterable[Finding]) -> Any:
    """The rows as a pyarrow batch with `FINDING_COLUMNS`."""
    pa: Any = import_module("pyarrow")
    types = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64()}
    schema = pa.schema([(name, types[kind]) for name, kind in FINDING_COLUMNS.items()])
    return pa.RecordBatch.from_pylist([asdict(finding) for finding in findings], schema=schema)
