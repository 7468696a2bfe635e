# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: binding=False, embedsignature=False
"""A closed batch in native code: the twin of ``_encoded_batch``, which is the reference."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from ._encoded_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from .checksum import crc32c
from .compression import decompress

__all__ = ["EncodedBatch"]

cdef enum:
    OVERHEAD = 61
    BEFORE_CRC_END = 21  # base offset, batch length, partition leader epoch, magic, CRC
    LENGTH_COUNTS_FROM = 12  # base offset and the length itself do not count
    MAGIC = 2
    TRANSACTIONAL = 0x10


cdef inline uint8_t* put16(uint8_t* at, uint32_t value) noexcept nogil:
    at[0], at[1] = <uint8_t>(value >> 8), <uint8_t>value
    return at + 2


cdef inline uint8_t* put32(uint8_t* at, uint32_t value) noexcept nogil:
    return put16(put16(at, value >> 16), value)


cdef inline uint8_t* put64(uint8_t* at, uint64_t value) noexcept nogil:
    return put32(put32(at, <uint32_t>(value >> 32)), <uint32_t>value)


cdef class EncodedBatch:
    """A closed batch: its encoded records, and a header that can be replaced.

    Before the first ``stamp`` it is a batch of a producer that is not idempotent.
    """

    cdef readonly object codec
    cdef readonly int32_t count
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp
    cdef readonly Py_ssize_t size
    cdef readonly int64_t uncompressed_size
    cdef readonly int64_t largest_record
    cdef readonly int64_t producer_id
    cdef readonly int16_t producer_epoch
    cdef readonly int32_t base_sequence
    cdef readonly bint transactional
    cdef bytes _body
    cdef bytes _header

    def __init__(self, builder, codec, bytes body not None):
        self.codec = codec
        self.count = builder.count
        self.base_timestamp = builder.base_timestamp
        self.max_timestamp = builder.max_timestamp
        self.size = OVERHEAD + PyBytes_GET_SIZE(body)
        self.uncompressed_size = builder.size
        self.largest_record = builder.largest_record
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE
        self.transactional = False
        self._body = body
        self._header = None

    def stamp(self, int64_t producer_id, int16_t producer_epoch, int32_t base_sequence, bint transactional=False):
        """Create a new header with this producer, epoch and sequence number of the first record.

The old header is not modified, since a socket may still be about to send it: get ``pieces`` again.
        """
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.transactional = transactional
        self._header = self.make_header()

    @property
    def pieces(self):
        """Header and records; joined they are the batch."""
        if self._header is None:
            self._header = self.make_header()
        return self._header, self._body

    def read_records(self):
        """Decode the records, with offsets from 0: to split the batch, or to return them."""
        from .reader import parse_records  # only failures and tests need it

        body = decompress(self.codec, self._body, max_size=self.uncompressed_size - OVERHEAD)
        return parse_records(body, self.count, base_timestamp=self.base_timestamp)

    cdef bytes make_header(self):
        cdef uint32_t attributes = self.codec
        cdef bytes header = PyBytes_FromStringAndSize(NULL, OVERHEAD)
        cdef uint8_t* start = <uint8_t*>PyBytes_AS_STRING(header)
        cdef uint8_t* at = start + BEFORE_CRC_END
        cdef uint32_t crc
        at = put16(at, attributes | TRANSACTIONAL if self.transactional else attributes)
        at = put32(at, <uint32_t>(self.count - 1))
        at = put64(at, <uint64_t>self.base_timestamp)
        at = put64(at, <uint64_t>self.max_timestamp)
        at = put64(at, <uint64_t>self.producer_id)
        at = put16(at, <uint32_t>self.producer_epoch)
        at = put32(at, <uint32_t>self.base_sequence)
        put32(at, <uint32_t>self.count)
        crc = crc32c(self._body, crc32c(PyBytes_FromStringAndSize(<char*>start + BEFORE_CRC_END, OVERHEAD - BEFORE_CRC_END)))
        at = put64(start, 0)
        at = put32(at, <uint32_t>(self.size - LENGTH_COUNTS_FROM))
        at = put32(at, 0xFFFFFFFF)  # no leader epoch: the broker fills it in
        at[0] = MAGIC
        put32(at + 1, crc)
        return header
