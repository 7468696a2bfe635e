"""The metadata of an acknowledged record: in native code if that was built, otherwise in plain Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer._twin import use_native

from ._python import TimestampType, TopicPartition

if TYPE_CHECKING or not use_native("aioproducer._metadata._native"):
    from ._python import RecordMetadata
else:
    from ._native import RecordMetadata

__all__ = ["RecordMetadata", "TimestampType", "TopicPartition", "restored"]


def restored(*fields: object) -> RecordMetadata:
    """Metadata from a pickle, in the class that is used here, which need not be the one that was pickled."""
    return RecordMetadata(*fields)  # type: ignore[arg-type]  # as they were
