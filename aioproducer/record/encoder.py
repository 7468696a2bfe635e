"""Selects the record encoder: the native one if it was built, else its twin in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer._twin import use_native

if TYPE_CHECKING or not use_native("aioproducer.record._native"):
    from ._murmur2 import murmur2, partition_for_key, partitions_for_keys
    from ._pure import BATCH_OVERHEAD, RecordBatchBuilder, record_size_upper_bound
else:
    from ._native import (
        BATCH_OVERHEAD,
        RecordBatchBuilder,
        murmur2,
        partition_for_key,
        partitions_for_keys,
        record_size_upper_bound,
    )

__all__ = [
    "BATCH_OVERHEAD",
    "RecordBatchBuilder",
    "murmur2",
    "partition_for_key",
    "partitions_for_keys",
    "record_size_upper_bound",
]
