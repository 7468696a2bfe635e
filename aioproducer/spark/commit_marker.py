"""Remembers in Kafka which batch was committed last: an offset of a consumer group that only this query has.

It is part of the batch's own transaction, so both are there or neither is. A batch that Spark runs again although it was
committed - the driver died before it had noted so in its checkpoint - is recognised by it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
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
    """Batch number ``batch`` of the query ``query`` was committed, with so many rows.

    The id of the query belongs to it: a new checkpoint counts its batches from 0 again.
    """

    query: str
    batch: int
    rows: int = 0

    @classmethod
    def read(cls, position: OffsetAndMetadata | None) -> Self | None:
        """The marker that was committed; None where there is none. Raises `CommitMarkerMissing` for what is no marker."""
        if position is None:
            return None
        try:
            told: Any = json.loads(position.metadata)
            if told["v"] != _VERSION:
                raise ValueError(f"version {told['v']}")
            return cls(str(told["q"]), int(told["b"]), int(told["n"]))
        except (ValueError, TypeError, LookupError) as error:
            raise CommitMarkerMissing(
                f"The consumer group of the marker holds {position!r}, which this version of aioproducer did not write: "
                "was the group used by something else? Delete the group's offset, and set "
                ".option('commit.marker.missing', 'trust-checkpoint') for the first run after that."
            ) from error

    def position(self) -> OffsetAndMetadata:
        """The marker as the offset to commit."""
        metadata = {"v": _VERSION, "q": self.query, "b": self.batch, "n": self.rows}
        return OffsetAndMetadata(self.batch + 1, json.dumps(metadata, separators=(",", ":")))
