"""The record encoder in native code; the same names, bytes and errors as in ``_pure`` and ``murmur2``; see there."""

from typing import Final, final

from typing_extensions import Buffer

from aioproducer.types import BytesLike, Headers

from .reader import Record

__all__ = [
    "BATCH_OVERHEAD",
    "RecordBatchBuilder",
    "murmur2",
    "partition_for_key",
    "partitions_for_keys",
    "record_size_upper_bound",
]

BATCH_OVERHEAD: Final = 61

@final
class RecordBatchBuilder:
    @property
    def count(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def base_timestamp(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def largest_record(self) -> int: ...
    def __init__(self, expected_size: int = 0) -> None: ...
    def append(
        self, timestamp_ms: int, key: BytesLike | None, value: BytesLike | None, headers: Headers = ()
    ) -> int: ...
    def close(self) -> bytes: ...
    def read_records(self) -> list[Record]: ...

def record_size_upper_bound(key: BytesLike | None, value: BytesLike | None, headers: Headers = ()) -> int: ...
def murmur2(data: BytesLike) -> int: ...
def partition_for_key(key: BytesLike, partitions: int) -> int: ...
def partitions_for_keys(ends: Buffer, data: Buffer, partitions: int) -> bytes: ...
