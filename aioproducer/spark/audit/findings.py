"""What the judging of one bucket of an audit finds, in rows that add up over buckets to the findings of the whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib import import_module
from typing import Any, Final

__all__ = ["FINDING_COLUMNS", "Finding", "FindingKind", "findings_batch"]


class FindingKind(StrEnum):
    """What a row of findings says. The first ones are faults; their order is that of the report."""

    LOST = "lost"  # expected, and not there
    DUPLICATED = "duplicated"  # there once more than expected
    REORDERED = "reordered"  # behind a record of its key that was sent later
    MISPLACED = "misplaced"  # not in the partition to which its key belongs
    ALTERED = "altered"  # a key misses a record, and in its place has one that nobody expected
    STRAY = "stray"  # nobody expected it, and nothing of its key is missing
    MISSING = "missing"  # an offset at which the log has nothing
    WITHHELD = "withheld"  # an offset whose committed record the consumer was not given

    CONTROL = "control"  # offsets of control records
    ABORTED = "aborted"  # offsets of aborted records
    UNEXPLAINED = "unexplained"  # offsets without a record, and no way to ask why
    READ = "read"  # records read of a partition
    EXPECTED = "expected"  # records expected
    KEYS = "keys"  # different keys
    BLOCK = "block"  # sequence numbers of a run: count, first and last of a block; count 0: of a run with strays only
    HOLE = "hole"  # sequence numbers of a run that are missing between two of a block

    @property
    def is_fault(self) -> bool:
        """Whether one of these makes the verdict bad."""
        return self in _FAULTS


_FAULTS: Final = frozenset(list(FindingKind)[:8])


@dataclass(frozen=True, slots=True)
class Finding:
    """One row; -1 where a column means nothing.

    ``other`` is another offset of the same partition: of the first copy, or of the record that overtook. ``number`` is the
    place in the expected order (below 0, too), or a sequence number, or that of a block; ``content`` the hash of an
    expected record, or of a run. ``count`` is 1 but where a row stands for several.
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
        """Whether it tells of one fault where that is, and does not only count several."""
        return (self.offset, self.number, self.content) != (-1, -1, -1)


#: The columns of findings, as Spark spells their types.
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
