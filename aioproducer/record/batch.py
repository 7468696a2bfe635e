"""Record batch v2: an open batch accepts records, a closed one is compressed once and stamped each time it is sent.

The producer's id, epoch and sequence are in the header, which is not compressed. So a batch is compressed once, and a new
epoch (KIP-360) or a retry after one costs a new header and a checksum, never a second compression.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproducer._twin import use_native
from aioproducer.errors import RecordTooLarge

from ._encoded_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from .compression import Codec, compress
from .encoder import RecordBatchBuilder

if TYPE_CHECKING or not use_native("aioproducer.record._encoded_batch_native"):
    from ._encoded_batch import EncodedBatch
else:
    from ._encoded_batch_native import EncodedBatch

__all__ = [
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "EncodedBatch",
    "encode_batch",
]

_MAX_BATCH: Final = (1 << 31) - 1


def encode_batch(
    builder: RecordBatchBuilder,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    *,
    compressed: bytes | None = None,
) -> EncodedBatch:
    """Close the builder and prepare its records for sending, compressed with ``codec``.

    Needs no event loop and only uses the builder, so a large batch may be compressed in a worker thread. ``level`` is as
    for ``compress``. ``compressed`` are the records if they are already compressed with this codec.

    Raises ``ValueError`` for a batch without records (a broker refuses it), ``ConfigError`` if the codec's library is
    missing, ``RecordTooLarge`` if the compressed size exceeds 2 GiB.
    """
    if not builder.count:
        raise ValueError("A record batch without records cannot be sent.")
    if compressed is None:
        body = builder.close()
        compressed = bytes(body) if codec is Codec.NONE else compress(codec, body, level)
    batch = EncodedBatch(builder, codec, compressed)
    if batch.size > _MAX_BATCH:
        raise RecordTooLarge(
            f"The batch of {batch.count} records takes {batch.size} bytes with {codec.name.lower()}, more than the "
            f"record batch format's limit of {_MAX_BATCH}."
        )
    return batch
