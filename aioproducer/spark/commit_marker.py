"""Remembers in Kafka which batch was committed last: an offset of a consumer group that only this query has.

It is part of the batch's own transaction, so both are there or neither is. A batch that Spark runs again although it was
committed - the driver died before it had noted so in its checkpoint - is recognised by it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Self

from aioproducer.errors import KafkaError
from aioproducer.types import OffsetAndMetadata

__all__ = ["CommitMarker", "CommitMarkerMissing", "marker_group"]

_VERSION: Final = 1


class CommitMarkerMissing(KafkaError):
    """A query goes on, and what would tell whether its last batch was committed is gone."""


def marker_group(transactional_id: str) -> str:
    """The consumer group whose offset is the marker of this ``transactional_id``."""
    return f"aioproducer.spark.{transactional_id}"


@dataclass(frozen=True, slots=True)
class CommitMarker:
    """Batch number ``batch`` of the query ``query`` was committed, with so many rows; -1: none of its batches counts.

    The id of the query belongs to it: a new checkpoint counts its batches from 0 again. ``at_ms`` is when, None where the
    version of aioproducer that wrote it did not say; two markers without a difference but that are the same.
    """

    query: str
    batch: int
    rows: int = 0
    at_ms: int | None = field(default=None, compare=False)

    def __str__(self) -> str:
        if self.batch < 0:
            return f"no batch of query {self.query}"
        at = None if self.at_ms is None else datetime.fromtimestamp(self.at_ms / 1000, UTC)
        when = "" if at is None else f", {at:%Y-%m-%d %H:%M:%S} UTC"
        return f"batch {self.batch} of query {self.query} ({self.rows:,} rows{when})"

    @classmethod
    def read(cls, position: OffsetAndMetadata | None) -> Self | None:
        """The marker that was committed; None where there is none. Raises `CommitMarkerMissing` for what is no marker."""
        if position is None:
            return None
        try:
            told: Any = json.loads(position.metadata)
            if told["v"] != _VERSION:
                raise ValueError(f"version {told['v']}")
            at = told.get("t")
            return cls(str(told["q"]), int(told["b"]), int(told["n"]), None if at is None else int(at))
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise CommitMarkerMissing(
                f"The consumer group of the marker holds {position!r}, which this version of aioproducer did not write: "
                "was the group used by something else? Delete the group's offset, and set "
                ".option('commit.marker.missing', 'trust-checkpoint') for the first run after that."
            ) from error

    def position(self) -> OffsetAndMetadata:
        """The marker as the offset to commit."""
        metadata = {"v": _VERSION, "q": self.query, "b": self.batch, "n": self.rows, "t": self.at_ms}
        return OffsetAndMetadata(self.batch + 1, json.dumps(metadata, separators=(",", ":")))
