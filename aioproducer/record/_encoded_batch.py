"""A closed batch in plain Python: the reference for the native twin."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from .checksum import crc32c
from .compression import Codec, decompress
from .encoder import BATCH_OVERHEAD, RecordBatchBuilder

if TYPE_CHECKING:
    from .reader import Record

__all__ = ["NO_PRODUCER_EPOCH", "NO_PRODUCER_ID", "NO_SEQUENCE", "EncodedBatch"]

#: The values in a batch of a producer that is not idempotent.
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1

_MAGIC: Final = 2
_NO_LEADER_EPOCH: Final = -1  # the broker fills it in
_TRANSACTIONAL: Final = 0x10

# base offset, batch length, partition leader epoch, magic, CRC
_BEFORE_CRC_END: Final = struct.Struct(">qiibI")
# attributes, last offset delta, base and max timestamp, producer id, producer epoch, base sequence, count
_AFTER_CRC: Final = struct.Struct(">hiqqqhii")
_LENGTH_COUNTS_FROM: Final = 12  # base offset and the length itself do not count


class EncodedBatch:
    """A closed batch: its encoded records, and a header that can be replaced.

    Before the first ``stamp`` it is a batch of a producer that is not idempotent.
    """

    __slots__ = (
        "_body",
        "_header",
        "base_sequence",
        "base_timestamp",
        "codec",
        "count",
        "largest_record",
        "max_timestamp",
        "producer_epoch",
        "producer_id",
        "size",
        "transactional",
        "uncompressed_size",
    )

    #: Bytes of the batch on the wire: header and, compressed or not, the records.
    size: int
    #: What ``size`` would be without compression; with it, the compression ratio is known.
    uncompressed_size: int
    #: Bytes of the largest record, before compression.
    largest_record: int

    def __init__(self, builder: RecordBatchBuilder, codec: Codec, body: bytes) -> None:
        self.codec = codec
        self.count = builder.count
        self.base_timestamp = builder.base_timestamp
        self.max_timestamp = builder.max_timestamp
        self.size = BATCH_OVERHEAD + len(body)
        self.uncompressed_size = builder.size
        self.largest_record = builder.largest_record
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE
        self.transactional = False
        self._body = body
        self._header: bytes | None = None

    def stamp(self, producer_id: int, producer_epoch: int, base_sequence: int, transactional: bool = False) -> None:
        """Create a new header with this producer, epoch and sequence number of the first record.

        The old header is not modified, since a socket may still be about to send it: get ``pieces`` again.
        """
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.transactional = transactional
        self._header = self._make_header()

    @property
    def pieces(self) -> tuple[bytes, bytes]:
        """Header and records; joined they are the batch."""
        header = self._header
        if header is None:
            header = self._header = self._make_header()
        return header, self._body

    def read_records(self) -> list[Record]:
        """Decode the records, with offsets from 0: to split the batch, or to return them."""
        from .reader import parse_records  # only failures and tests need it

        body = decompress(self.codec, self._body, max_size=self.uncompressed_size - BATCH_OVERHEAD)
        return parse_records(body, self.count, base_timestamp=self.base_timestamp)

    def _make_header(self) -> bytes:
        checked = _AFTER_CRC.pack(
            self.codec | _TRANSACTIONAL if self.transactional else self.codec,
            self.count - 1,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        )
        crc = crc32c(self._body, crc32c(checked))
        return _BEFORE_CRC_END.pack(0, self.size - _LENGTH_COUNTS_FROM, _NO_LEADER_EPOCH, _MAGIC, crc) + checked
