# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: binding=False, embedsignature=False
"""Produce requests that carry one batch, in native code: the twin of ``_lone_batch``, which is the reference.

Bytes are copied once, and a response is compared and read in place.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from . import _lone_batch

__all__ = ["LoneBatch", "Written"]

cdef enum:
    START = 12  # of a request: size, api key, version, correlation id
    RESPONSE_START = 9  # size, correlation id, no tags
    OFFSETS = 24  # base offset, log append time, log start offset
    MAX_VARINT = 5

cdef bytes _NOTHING_ELSE = _lone_batch._NOTHING_ELSE


cdef inline void put32(uint8_t* at, uint32_t value) noexcept nogil:
    at[0], at[1], at[2], at[3] = <uint8_t>(value >> 24), <uint8_t>(value >> 16), <uint8_t>(value >> 8), <uint8_t>value


cdef inline uint32_t take32(const uint8_t* at) noexcept nogil:
    return <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3]


cdef inline int64_t take64(const uint8_t* at) noexcept nogil:
    return <int64_t>(<uint64_t>take32(at) << 32 | take32(at + 4))


cdef class Written:
    """The position of a written batch; -1 if the broker does not report it."""

    cdef readonly int64_t base_offset
    cdef readonly int64_t log_append_time_ms

    def __init__(self, int64_t base_offset, int64_t log_append_time_ms):
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms

    def __eq__(self, other):
        if not isinstance(other, Written):
            return NotImplemented
        return (self.base_offset, self.log_append_time_ms) == (other.base_offset, other.log_append_time_ms)

    def __hash__(self):
        return hash((self.base_offset, self.log_append_time_ms))

    def __repr__(self):
        return f"Written(base_offset={self.base_offset}, log_append_time_ms={self.log_append_time_ms})"


cdef class LoneBatch:
    """Requests with one batch for one partition, in one version, and their responses."""

    cdef readonly int version
    cdef readonly object topic_id
    cdef bytes behind_id  # the bytes between the correlation id and the length of the batch
    cdef bytes after
    cdef bytes expected

    def __init__(
        self, int version, client_id, transactional_id, acks, timeout_ms, topic, topic_id, partition
    ):
        pure = _lone_batch.LoneBatch(
            version, client_id, transactional_id, acks, timeout_ms, topic, topic_id, partition
        )
        self.version = version
        self.topic_id = topic_id
        self.behind_id, self.after, self.expected = pure._behind_id, pure._after, pure._expected

    def encode(self, bytes header not None, bytes records not None, uint32_t correlation_id):
        """The frame of a request with the batch that consists of this header and these records."""
        cdef Py_ssize_t batch = PyBytes_GET_SIZE(header) + PyBytes_GET_SIZE(records)
        cdef Py_ssize_t digits = 0
        cdef Py_ssize_t size
        cdef uint8_t[MAX_VARINT] varint
        cdef uint64_t rest = <uint64_t>batch + 1
        while rest >= 0x80:
            varint[digits] = <uint8_t>(rest | 0x80)
            digits += 1
            rest >>= 7
        varint[digits] = <uint8_t>rest
        digits += 1
        size = START + PyBytes_GET_SIZE(self.behind_id) + digits + batch + PyBytes_GET_SIZE(self.after)
        cdef bytes frame = PyBytes_FromStringAndSize(NULL, size)
        cdef uint8_t* at = <uint8_t*>PyBytes_AS_STRING(frame)
        put32(at, <uint32_t>(size - 4))
        put32(at + 4, <uint32_t>self.version)  # after the api key of Produce, which is 0
        put32(at + 8, correlation_id)
        at = copied(at + START, self.behind_id)
        memcpy(at, varint, digits)
        at = copied(copied(at + digits, header), records)
        copied(at, self.after)
        return frame

    def read_frame(self, int64_t count, bytes data not None, uint32_t correlation_id):
        """As `read`, for all received bytes; None also if they are not exactly one frame with this correlation id."""
        cdef const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(data)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
        if size <= RESPONSE_START or take32(at) != <uint32_t>(size - 4) or take32(at + 4) != correlation_id or at[8]:
            return None
        return self.found(at + RESPONSE_START, size - RESPONSE_START, count)

    def read(self, bytes body not None, int64_t count):
        """The position of the ``count`` written records; None if the response says anything else."""
        return self.found(<const uint8_t*>PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body), count)

    cdef Written found(self, const uint8_t* body, Py_ssize_t size, int64_t count):
        cdef Py_ssize_t before = PyBytes_GET_SIZE(self.expected)
        cdef Py_ssize_t behind = PyBytes_GET_SIZE(_NOTHING_ELSE)
        cdef Written written
        cdef int64_t base_offset
        if size != before + OFFSETS + behind:
            return None
        if memcmp(body, PyBytes_AS_STRING(self.expected), before):
            return None
        if memcmp(body + before + OFFSETS, PyBytes_AS_STRING(_NOTHING_ELSE), behind):
            return None
        base_offset = take64(body + before)
        if base_offset < -1 or (count > 0 and base_offset > 0x7FFFFFFFFFFFFFFF - count + 1):
            return None
        written = Written.__new__(Written)
        written.base_offset = base_offset
        written.log_append_time_ms = take64(body + before + 8)
        return written


cdef inline uint8_t* copied(uint8_t* at, bytes piece) noexcept:
    memcpy(at, PyBytes_AS_STRING(piece), PyBytes_GET_SIZE(piece))
    return at + PyBytes_GET_SIZE(piece)
