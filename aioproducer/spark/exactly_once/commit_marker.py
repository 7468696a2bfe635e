"""Remembers in Kafka which batch was committed last, as an offset of a consumer group that only this query uses.

The marker is part of the batch's own transaction, so both exist or neither does. If Spark repeats a committed batch (the
driver died before it wrote its checkpoint), the batch is recognised by its number and contents.

A number alone does not identify a batch: after a checkpoint is rolled back, Spark reuses the old numbers for whatever its
source has now. So the marker keeps the `Fingerprint` of the last batches, as many as fit into an offset's metadata, which
brokers limit to 4,096 bytes (``offset.metadata.max.bytes``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Self

from aioproducer.errors import KafkaError
from aioproducer.spark.exactly_once.fingerprint import Fingerprint
from aioproducer.types import OffsetAndMetadata

__all__ = [
    "MOST_BATCHES",
    "CommitMarker",
    "CommitMarkerError",
    "CommitMarkerMismatch",
    "CommitMarkerMissing",
    "CommitMarkerSetBack",
    "marker_group",
    "utc",
]

_VERSION: Final = 2

#: Markers of this version do not hold contents.
_WITHOUT_CONTENTS: Final = 1

#: How many batches' contents are kept, if they fit into this many bytes of metadata.
MOST_BATCHES: Final = 64
_MOST_BYTES: Final = 3_500


class CommitMarkerError(KafkaError):
    """It is unknown whether a batch was committed, or it may not be written; the message says what to do."""


class CommitMarkerMissing(CommitMarkerError):
    """A query continues, but the marker that records its last committed batch is gone."""


class CommitMarkerMismatch(CommitMarkerError):
    """A batch has the number of a committed one but different contents, or the committed contents are unknown."""


class CommitMarkerSetBack(CommitMarkerError):
    """The marker was reset, and a query would skip batches that must be written again."""


def marker_group(transactional_id: str) -> str:
    """The consumer group whose offset is the marker of this ``transactional_id``."""
    return f"aioproducer.spark.{transactional_id}"


@dataclass(frozen=True, slots=True)
class CommitMarker:
    """Batch number ``batch`` of the query ``query`` was committed, with ``rows`` rows; -1: none of its batches counts.

    The query's id is part of it because a new checkpoint counts batches from 0 again. ``rows`` is None if the marker was
    set by hand, not by a batch. ``at_ms`` is the time of the commit, None if an older version of aioproducer wrote the
    marker; it is ignored in comparisons. ``set_back_from`` is the batch before a reset, until the query has reached it
    again: until then no batch may be skipped, for example by a query that kept running. ``contents`` maps the last batches'
    numbers to their contents; after a reset it also keeps those of later batches that the marker may be moved forward to.
    """

    query: str
    batch: int
    rows: int | None = 0
    at_ms: int | None = field(default=None, compare=False)
    set_back_from: int | None = None
    contents: Mapping[int, Fingerprint] = field(default_factory=dict[int, Fingerprint], compare=False)

    def __str__(self) -> str:
        details: list[str] = []
        if self.rows is not None and self.batch >= 0:
            details.append(f"{self.rows:,} rows")
        if self.set_back_from is not None:
            details.append(f"reset from batch {self.set_back_from}")
        if self.at_ms is not None and (details or self.batch >= 0):
            details.append(utc(self.at_ms))
        batch = "no batch" if self.batch < 0 else f"batch {self.batch}"
        return f"{batch} of query {self.query}" + (f" ({', '.join(details)})" if details else "")

    def leaves_out(self, batch: int) -> bool:
        """Whether a query that continues at this batch would skip batches that must be written again."""
        return self.set_back_from is not None and batch > self.batch + 1

    @classmethod
    def after(cls, before: CommitMarker | None, query: str, batch: int, written: Fingerprint, at_ms: int) -> Self:
        """The marker of a written batch; ``before`` is the previous marker."""
        if before is None or before.query != query:
            return cls(query, batch, written.rows, at_ms, contents={batch: written})
        earlier = {number: each for number, each in before.contents.items() if number < batch}
        is_behind = before.set_back_from is not None and batch < before.set_back_from
        return cls(
            query,
            batch,
            written.rows,
            at_ms,
            set_back_from=before.set_back_from if is_behind else None,
            contents=earlier | {batch: written},
        )

    @property
    def highest(self) -> int:
        """The highest batch ever committed, as far as the marker knows."""
        return self.batch if self.set_back_from is None else max(self.batch, self.set_back_from)

    def may_be_set_to(self, batch: int) -> bool:
        """Whether the marker may be set to this batch by hand.

        Backward always. Forward only up to where it was before, and only until the query writes again: after a rollback,
        batches may hold other rows than those of the same number before.
        """
        return batch < self.batch or (self.rows is None and self.batch < batch <= self.highest)

    @classmethod
    def read(cls, position: OffsetAndMetadata | None) -> Self | None:
        """The committed marker; None if there is none. Raises `CommitMarkerMissing` for an offset that is not a marker."""
        if position is None:
            return None
        try:
            stored: Any = json.loads(position.metadata)
            if stored["v"] not in (_WITHOUT_CONTENTS, _VERSION):
                raise ValueError(f"version {stored['v']}")
            return cls(
                str(stored["q"]),
                int(stored["b"]),
                _whole(stored["n"]),
                _whole(stored.get("t")),
                _whole(stored.get("w")),
                {
                    int(batch): Fingerprint(rows, size, int(digest, 16))
                    for batch, rows, size, digest in stored.get("c", ())
                },
            )
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise CommitMarkerMissing(
                f"The marker's consumer group holds {position!r}, which this version of aioproducer did not write. Is "
                "the group used by something else? Delete the group's offset, and set "
                ".option('commit.marker.missing', 'trust-checkpoint') for the first run after that."
            ) from error

    def position(self, batches: int = MOST_BATCHES) -> OffsetAndMetadata:
        """The marker as the offset to commit, with the contents of at most ``batches`` batches, as many as fit."""
        metadata: dict[str, Any] = {"v": _VERSION, "q": self.query, "b": self.batch, "n": self.rows, "t": self.at_ms}
        if self.set_back_from is not None:
            metadata["w"] = self.set_back_from
        newest = sorted(self.contents.items(), reverse=True)[: min(batches, MOST_BATCHES)]
        metadata["c"] = [[batch, each.rows, each.size, f"{each.digest:016x}"] for batch, each in newest]
        while len((encoded := _encoded(metadata)).encode()) > _MOST_BYTES and len(metadata["c"]) > 1:
            metadata["c"].pop()
        return OffsetAndMetadata(self.batch + 1, encoded)


def utc(at_ms: int) -> str:
    """A time as text for people."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _encoded(metadata: Mapping[str, Any]) -> str:
    # A job.id may be in any script, and brokers count bytes.
    return json.dumps(metadata, separators=(",", ":"), ensure_ascii=False)


def _whole(number: Any) -> int | None:
    return None if number is None else int(number)
