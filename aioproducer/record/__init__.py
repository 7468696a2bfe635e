"""Encodes and decodes record batches, the format in which records are sent and stored."""

from __future__ import annotations

from .batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, EncodedBatch, encode_batch
from .c_functions import find_c_functions
from .compression import LEVELS, Codec, LevelRange, c_level, compress, decompress, require, usable
from .encoder import (
    BATCH_OVERHEAD,
    RecordBatchBuilder,
    murmur2,
    partition_for_key,
    partitions_for_keys,
    record_size_upper_bound,
)

__all__ = [
    "BATCH_OVERHEAD",
    "LEVELS",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "Codec",
    "EncodedBatch",
    "LevelRange",
    "RecordBatchBuilder",
    "c_level",
    "compress",
    "decompress",
    "encode_batch",
    "find_c_functions",
    "murmur2",
    "partition_for_key",
    "partitions_for_keys",
    "record_size_upper_bound",
    "require",
    "usable",
]
