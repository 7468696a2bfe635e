"""Remembers in Kafka which batch was committed last: an offset of a consumer group that only this query has.

It is part of the batch's own transaction, so both are there or neither is. A batch that Spark runs again although it was
committed - the driver died before it had noted so in its checkpoint - is recognised by its number and its contents.

A number alone does not identify a batch: when a checkpoint is rolled back, Spark gives the old numbers to whatever its
source has now. So the marker keeps the `Fingerprint` of the last batches, as many as fit into the metadata of an offset, of
which brokers take 4,096 bytes (``offset.metadata.max.bytes``).
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

#: A marker of this version knows no contents.
_WITHOUT_CONTENTS: Final = 1

#: The contents of so many batches are kept, if they fit into so many bytes of metadata.
MOST_BATCHES: Final = 64
_MOST_BYTES: Final = 3_500


class CommitMarkerError(KafkaError):
    """Nobody can say whether a batch was committed, or may write it; the message says what to do."""


class CommitMarkerMissing(CommitMarkerError):
    """A query goes on, and what would tell whether its last batch was committed is gone."""


class CommitMarkerMismatch(CommitMarkerError):
    """A batch has the number of one that was committed, and other contents, or nobody knows the contents of that one."""


class CommitMarkerSetBack(CommitMarkerError):
    """The marker was set back, and a query would leave out batches that are to be written again."""


def marker_group(transactional_id: str) -> str:
    """The consumer group whose offset is the marker of this ``transactional_id``."""
    return f"aioproducer.spark.{transactional_id}"


@dataclass(frozen=True, slots=True)
class CommitMarker:
    """Batch number ``batch`` of the query ``query`` was committed, with so many rows; -1: none of its batches counts.

    The id of the query belongs to it: a new checkpoint counts its batches from 0 again. ``rows`` is None where no batch
    wrote the marker, but somebody set it by hand. ``at_ms`` is when, None where the version of aioproducer that wrote it did
    not say; two markers without a difference but that are the same. ``set_back_from`` is where it stood before it was set
    back, until the query has come there again: so long no batch may be left out, as by a query that ran all along.
    ``contents`` are those of the last batches, by their numbers; a marker that was set back keeps those that it may be set
    forth to.
    """

    query: str
    batch: int
    rows: int | None = 0
    at_ms: int | None = field(default=None, compare=False)
    set_back_from: int | None = None
    contents: Mapping[int, Fingerprint] = field(default_factory=dict[int, Fingerprint], compare=False)

    def __str__(self) -> str:
        told: list[str] = []
        if self.rows is not None and self.batch >= 0:
            told.append(f"{self.rows:,} rows")
        if self.set_back_from is not None:
            told.append(f"set back from batch {self.set_back_from}")
        if self.at_ms is not None and (told or self.batch >= 0):
            told.append(utc(self.at_ms))
        batch = "no batch" if self.batch < 0 else f"batch {self.batch}"
        return f"{batch} of query {self.query}" + (f" ({', '.join(told)})" if told else "")

    def leaves_out(self, batch: int) -> bool:
        """Whether batches that are to be written again would be missed by a query that goes on at this one."""
        return self.set_back_from is not None and batch > self.batch + 1

    @classmethod
    def after(cls, before: CommitMarker | None, query: str, batch: int, written: Fingerprint, at_ms: int) -> Self:
        """The marker of a batch that was written, where ``before`` was the marker of the last one."""
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
        """The last batch that was ever committed, as far as the marker knows."""
        return self.batch if self.set_back_from is None else max(self.batch, self.set_back_from)

    def may_be_set_to(self, batch: int) -> bool:
        """Whether the marker may be set to this batch by hand.

        Back always. Forth only to where it was before, as long as the query has not written since: the batches of a query
        that was rolled back may hold other rows than those of the same number before.
        """
        return batch < self.batch or (self.rows is None and self.batch < batch <= self.highest)

    @classmethod
    def read(cls, position: OffsetAndMetadata | None) -> Self | None:
        """The marker that was committed; None where there is none. Raises `CommitMarkerMissing` for what is no marker."""
        if position is None:
            return None
        try:
            told: Any = json.loads(position.metadata)
            if told["v"] not in (_WITHOUT_CONTENTS, _VERSION):
                raise ValueError(f"version {told['v']}")
            return cls(
                str(told["q"]),
                int(told["b"]),
                _whole(told["n"]),
                _whole(told.get("t")),
                _whole(told.get("w")),
                {
                    int(batch): Fingerprint(rows, size, int(digest, 16))
                    for batch, rows, size, digest in told.get("c", ())
                },
            )
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise CommitMarkerMissing(
                f"The consumer group of the marker holds {position!r}, which this version of aioproducer did not write: "
                "was the group used by something else? Delete the group's offset, and set "
                ".option('commit.marker.missing', 'trust-checkpoint') for the first run after that."
            ) from error

    def position(self, batches: int = MOST_BATCHES) -> OffsetAndMetadata:
        """The marker as the offset to commit, with the contents of so many ``batches`` at most, and as many as fit."""
        metadata: dict[str, Any] = {"v": _VERSION, "q": self.query, "b": self.batch, "n": self.rows, "t": self.at_ms}
        if self.set_back_from is not None:
            metadata["w"] = self.set_back_from
        newest = sorted(self.contents.items(), reverse=True)[: min(batches, MOST_BATCHES)]
        metadata["c"] = [[batch, each.rows, each.size, f"{each.digest:016x}"] for batch, each in newest]
        while len((encoded := _encoded(metadata)).encode()) > _MOST_BYTES and len(metadata["c"]) > 1:
            metadata["c"].pop()
        return OffsetAndMetadata(self.batch + 1, encoded)


def utc(at_ms: int) -> str:
    """A time, for people."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _encoded(metadata: Mapping[str, Any]) -> str:
    # A job.id may be of any script, and brokers count bytes.
    return json.dumps(metadata, separators=(",", ":"), ensure_ascii=False)


def _whole(told: Any) -> int | None:
    return None if told is None else int(told)
