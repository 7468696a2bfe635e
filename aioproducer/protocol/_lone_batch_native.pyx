# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: binding=False, embedsignature=False
"""Small Produce requests in native code: the twin of ``_lone_batch``, which is the reference.

Bytes are copied once, and a response is compared and read in place.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from . import _lone_batch

__all__ = ["LoneBatch", "SmallRequest", "Written"]

cdef enum:
    START = 12  # of a request: size, api key, version, correlation id
    RESPONSE_START = 9  # size, correlation id, no tags
    OFFSETS = 24  # base offset, log append time, log start offset
    OF_PARTITION = 33  # index, code, offsets, no record errors, no error message, no tags
    BEHIND_TOPICS = 5  # throttle time, no tags

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
        cdef Py_ssize_t size = START + PyBytes_GET_SIZE(self.behind_id) + digits(batch + 1) + batch
        size += PyBytes_GET_SIZE(self.after)
        cdef bytes frame = PyBytes_FromStringAndSize(NULL, size)
        cdef uint8_t* at = begun(<uint8_t*>PyBytes_AS_STRING(frame), size, self.version, correlation_id)
        at = put_uvarint(copied(at, self.behind_id), batch + 1)
        at = copied(copied(at, header), records)
        copied(at, self.after)
        return frame

    def read_frame(self, int64_t count, bytes data not None, uint32_t correlation_id):
        """As `read`, for all received bytes; None also if they are not exactly one frame with this correlation id."""
        cdef const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(data)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
        if not is_frame(at, size, correlation_id):
            return None
        return self.found(at + RESPONSE_START, size - RESPONSE_START, count)

    def read(self, bytes body not None, int64_t count):
        """The position of the ``count`` written records; None if the response says anything else."""
        return self.found(<const uint8_t*>PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body), count)

    cdef Written found(self, const uint8_t* body, Py_ssize_t size, int64_t count):
        cdef Py_ssize_t before = PyBytes_GET_SIZE(self.expected)
        cdef Py_ssize_t behind = PyBytes_GET_SIZE(_NOTHING_ELSE)
        if size != before + OFFSETS + behind:
            return None
        if memcmp(body, PyBytes_AS_STRING(self.expected), before):
            return None
        if memcmp(body + before + OFFSETS, PyBytes_AS_STRING(_NOTHING_ELSE), behind):
            return None
        return written_at(body + before, count)


cdef class SmallRequest:
    """Requests with some batches, each for another partition, in one version, and their responses."""

    cdef readonly int version
    cdef object pure
    cdef bytes behind_id

    def __init__(self, int version, client_id, transactional_id, acks, timeout_ms):
        self.pure = _lone_batch.SmallRequest(version, client_id, transactional_id, acks, timeout_ms)
        self.version = version
        self.behind_id = self.pure._behind_id

    def topic(self, topic, topic_id):
        """The bytes that stand for a topic in requests and responses of this version."""
        return self.pure.topic(topic, topic_id)

    def encode(self, list parts not None, uint32_t correlation_id):
        """The frame of a request with these batches."""
        cdef Py_ssize_t number = len(parts)
        cdef Py_ssize_t topics = 0
        cdef Py_ssize_t size = START + PyBytes_GET_SIZE(self.behind_id) + 1
        cdef Py_ssize_t first, last, batch
        first = 0
        while first < number:
            last = end_of_topic(parts, first, number)
            topics += 1
            size += PyBytes_GET_SIZE(topic_of(parts, first)) + digits(last - first + 1) + 1
            for each in range(first, last):
                batch = batch_size(parts, each)
                size += 4 + digits(batch + 1) + batch + 1
            first = last
        size += digits(topics + 1)
        cdef bytes frame = PyBytes_FromStringAndSize(NULL, size)
        cdef uint8_t* at = begun(<uint8_t*>PyBytes_AS_STRING(frame), size, self.version, correlation_id)
        at = put_uvarint(copied(at, self.behind_id), topics + 1)
        first = 0
        while first < number:
            last = end_of_topic(parts, first, number)
            at = put_uvarint(copied(at, topic_of(parts, first)), last - first + 1)
            for each in range(first, last):
                _, partition, _, header, records = <tuple>parts[each]
                put32(at, <uint32_t>partition)
                at = put_uvarint(at + 4, batch_size(parts, each) + 1)
                at = copied(copied(at, <bytes>header), <bytes>records)
                at[0] = 0
                at += 1
            at[0] = 0
            at += 1
            first = last
        at[0] = 0
        return frame

    def read_frame(self, list parts not None, bytes data not None, uint32_t correlation_id):
        """As `read`, for all received bytes; None also if they are not exactly one frame with this correlation id."""
        cdef const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(data)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
        if not is_frame(at, size, correlation_id):
            return None
        return self.found(parts, at + RESPONSE_START, at + size)

    def read(self, list parts not None, bytes body not None):
        """The position of each batch, in the order of the parts; None if the response says anything else."""
        cdef const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(body)
        return self.found(parts, at, at + PyBytes_GET_SIZE(body))

    cdef list found(self, list parts, const uint8_t* at, const uint8_t* end):
        cdef Py_ssize_t number = len(parts)
        cdef list written = [None] * number
        cdef Py_ssize_t first, last, each, name
        cdef Py_ssize_t topics = 0
        first = 0
        while first < number:
            topics += 1
            first = end_of_topic(parts, first, number)
        at = behind_uvarint(at, end, topics + 1)
        for _ in range(topics):
            if at == NULL:
                return None
            first = 0
            while first < number:
                name = PyBytes_GET_SIZE(topic_of(parts, first))
                if end - at >= name and memcmp(at, PyBytes_AS_STRING(topic_of(parts, first)), name) == 0:
                    break
                first = end_of_topic(parts, first, number)
            if first == number or written[first] is not None:
                return None
            last = end_of_topic(parts, first, number)
            at = behind_uvarint(at + name, end, last - first + 1)
            each = first
            for _ in range(last - first):
                if at == NULL or end - at < OF_PARTITION:
                    return None
                each = part_of(parts, written, first, last, each, take32(at))
                if each < 0 or at[4] or at[5] or at[30] != 1 or at[31] or at[32]:
                    return None
                written[each] = written_at(at + 6, <int64_t>(<tuple>parts[each])[2])
                if written[each] is None:
                    return None
                at += OF_PARTITION
                each += 1
            if at == NULL or end - at < 1 or at[0]:
                return None
            at += 1
        if at == NULL or end - at != BEHIND_TOPICS or take32(at) or at[4]:
            return None
        return written


cdef inline bytes topic_of(list parts, Py_ssize_t each):
    return <bytes>(<tuple>parts[each])[0]


cdef inline Py_ssize_t batch_size(list parts, Py_ssize_t each) except -1:
    cdef tuple part = <tuple>parts[each]
    return PyBytes_GET_SIZE(<bytes?>part[3]) + PyBytes_GET_SIZE(<bytes?>part[4])


cdef inline Py_ssize_t end_of_topic(list parts, Py_ssize_t first, Py_ssize_t number) except -1:
    """The first part behind ``first`` with another topic."""
    cdef bytes topic = topic_of(parts, first)
    cdef Py_ssize_t last = first + 1
    while last < number and topic_of(parts, last) == topic:
        last += 1
    return last


cdef Py_ssize_t part_of(
    list parts, list written, Py_ssize_t first, Py_ssize_t last, Py_ssize_t likely, uint32_t partition
) except -2:
    """The part of the topic from ``first`` to ``last`` with this partition and no position yet; -1 if there is none."""
    cdef Py_ssize_t each = likely
    for _ in range(last - first):
        if each == last:
            each = first
        if <uint32_t>(<tuple>parts[each])[1] == partition and written[each] is None:
            return each
        each += 1
    return -1


cdef Written written_at(const uint8_t* at, int64_t count):
    """The base offset and the log append time that begin there; None if no broker can mean them."""
    cdef int64_t base_offset = take64(at)
    if base_offset < -1 or (count > 0 and base_offset > 0x7FFFFFFFFFFFFFFF - count + 1):
        return None
    cdef Written written = Written.__new__(Written)
    written.base_offset = base_offset
    written.log_append_time_ms = take64(at + 8)
    return written


cdef inline bint is_frame(const uint8_t* at, Py_ssize_t size, uint32_t correlation_id) noexcept:
    """Whether these bytes are exactly one frame with this correlation id, and no tags in its header."""
    if size <= RESPONSE_START:
        return False
    return take32(at) == <uint32_t>(size - 4) and take32(at + 4) == correlation_id and not at[8]


cdef inline uint8_t* begun(uint8_t* at, Py_ssize_t size, int version, uint32_t correlation_id) noexcept:
    """The place behind the start of a request."""
    put32(at, <uint32_t>(size - 4))
    put32(at + 4, <uint32_t>version)  # after the api key of Produce, which is 0
    put32(at + 8, correlation_id)
    return at + START


cdef inline Py_ssize_t digits(uint64_t value) noexcept:
    """The number of bytes of an unsigned varint."""
    cdef Py_ssize_t number = 1
    while value >= 0x80:
        number += 1
        value >>= 7
    return number


cdef inline uint8_t* put_uvarint(uint8_t* at, uint64_t value) noexcept:
    while value >= 0x80:
        at[0] = <uint8_t>(value | 0x80)
        at += 1
        value >>= 7
    at[0] = <uint8_t>value
    return at + 1


cdef inline const uint8_t* behind_uvarint(const uint8_t* at, const uint8_t* end, uint64_t value) noexcept:
    """The place behind this unsigned varint in its shortest form; NULL if something else stands there."""
    while value >= 0x80:
        if at == end or at[0] != <uint8_t>(value | 0x80):
            return NULL
        at += 1
        value >>= 7
    if at == end or at[0] != <uint8_t>value:
        return NULL
    return at + 1


cdef inline uint8_t* copied(uint8_t* at, bytes piece) noexcept:
    memcpy(at, PyBytes_AS_STRING(piece), PyBytes_GET_SIZE(piece))
    return at + PyBytes_GET_SIZE(piece)
