# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: binding=False, embedsignature=False
"""The record encoder in native code: the twin of ``_pure``, which is the reference.

It writes each record straight into the bytes object that becomes the batch's body. Rare cases (headers of unusual types, all
errors) are left to the functions of ``_pure``, so that the twins cannot differ there.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

from . import _pure
from ._pure import BATCH_OVERHEAD

cdef extern from "Python.h":
    bint PyBytes_CheckExact(PyObject*)
    char* PyBytes_AS_STRING(PyObject*)
    Py_ssize_t PyBytes_GET_SIZE(PyObject*)
    int _PyBytes_Resize(PyObject**, Py_ssize_t) except -1
    ctypedef struct PyVarObject:
        pass
    void Py_SET_SIZE(PyVarObject*, Py_ssize_t)
    bint PyList_CheckExact(PyObject*)
    long long PyLong_AsLongLongAndOverflow(object, int*) except? -1
    PyObject** PySequence_Fast_ITEMS(PyObject*)
    Py_ssize_t PySequence_Fast_GET_SIZE(PyObject*)
    bint PyTuple_CheckExact(PyObject*)
    PyObject* PyTuple_GET_ITEM(PyObject*, Py_ssize_t)
    Py_ssize_t PyTuple_GET_SIZE(PyObject*)
    bint PyUnicode_CheckExact(PyObject*)
    const char* PyUnicode_AsUTF8AndSize(PyObject*, Py_ssize_t*)
    void PyErr_Clear()

__all__ = [
    "BATCH_OVERHEAD",
    "RecordBatchBuilder",
    "murmur2",
    "partition_for_key",
    "partitions_for_keys",
    "record_size_upper_bound",
]

cdef enum:
    OVERHEAD = 61
    MAX_FIELD = 0x7FFFFFFF
    MAX_RECORD_OVERHEAD = 36
    MAX_HEADER_OVERHEAD = 10
    FIRST_CAPACITY = 512
    MURMUR2_M = 0x5BD1E995


# -- varints -----------------------------------------------------------------------------------------------------------


cdef inline unsigned long long zigzag(long long value) noexcept nogil:
    return (<unsigned long long>value << 1) ^ (0 - (<unsigned long long>value >> 63))


cdef inline Py_ssize_t varint_size(unsigned long long value) noexcept nogil:
    cdef Py_ssize_t size = 1
    while value > 0x7F:
        value >>= 7
        size += 1
    return size


cdef inline char* put_varint(char* at, unsigned long long value) noexcept nogil:
    while value > 0x7F:
        at[0] = <char>(value & 0x7F | 0x80)
        at += 1
        value >>= 7
    at[0] = <char>value
    return at + 1


cdef inline long long field_size(Py_ssize_t length) noexcept nogil:
    return 1 if length < 0 else <long long>varint_size(zigzag(length)) + length


cdef inline char* put_field(char* at, const char* data, Py_ssize_t length) noexcept nogil:
    at = put_varint(at, zigzag(length))
    if length > 0:
        memcpy(at, data, length)
        at += length
    return at


# -- headers -----------------------------------------------------------------------------------------------------------
#
# Nothing here runs Python code, so the headers cannot change between measuring and writing.


cdef struct Header:
    const char* name
    Py_ssize_t name_length
    const char* value
    Py_ssize_t value_length


cdef inline bint are_plain(PyObject* headers) noexcept:
    return PyTuple_CheckExact(headers) or PyList_CheckExact(headers)


cdef bint read_header(PyObject* pair, Header* header) noexcept:
    """Whether it is exactly a tuple of str (valid in UTF-8) and bytes or None."""
    if not PyTuple_CheckExact(pair) or PyTuple_GET_SIZE(pair) != 2:
        return False
    cdef PyObject* name = PyTuple_GET_ITEM(pair, 0)
    cdef PyObject* value = PyTuple_GET_ITEM(pair, 1)
    if not PyUnicode_CheckExact(name):
        return False
    header.name = PyUnicode_AsUTF8AndSize(name, &header.name_length)
    if header.name == NULL:
        PyErr_Clear()
        return False
    if PyBytes_CheckExact(value):
        header.value = PyBytes_AS_STRING(value)
        header.value_length = PyBytes_GET_SIZE(value)
        return True
    header.value = NULL
    header.value_length = -1
    return value == <PyObject*>None


cdef long long headers_size(PyObject* headers) noexcept:
    """Their size in a record; -1 if one of them is not plain."""
    if not are_plain(headers):
        return -1
    cdef Py_ssize_t count = PySequence_Fast_GET_SIZE(headers)
    cdef PyObject** pairs = PySequence_Fast_ITEMS(headers)
    cdef long long size = varint_size(zigzag(count))
    cdef Header header
    for index in range(count):
        if not read_header(pairs[index], &header):
            return -1
        size += field_size(header.name_length) + field_size(header.value_length)
    return size


cdef char* put_headers(char* at, PyObject* headers) noexcept:
    """Write headers that ``headers_size`` found plain."""
    cdef Py_ssize_t count = PySequence_Fast_GET_SIZE(headers)
    cdef PyObject** pairs = PySequence_Fast_ITEMS(headers)
    cdef Header header
    at = put_varint(at, zigzag(count))
    for index in range(count):
        read_header(pairs[index], &header)
        at = put_field(at, header.name, header.name_length)
        at = put_field(at, header.value, header.value_length)
    return at


cdef Py_ssize_t headers_upper_bound(object headers) except -1:
    if not are_plain(<PyObject*>headers):
        return _pure._headers_upper_bound(headers)
    cdef Py_ssize_t count = PySequence_Fast_GET_SIZE(<PyObject*>headers)
    cdef PyObject** pairs = PySequence_Fast_ITEMS(<PyObject*>headers)
    cdef Py_ssize_t size = 0
    cdef Header header
    for index in range(count):
        if not read_header(pairs[index], &header):
            return _pure._headers_upper_bound(headers)
        size += MAX_HEADER_OVERHEAD + header.name_length
        if header.value_length > 0:
            size += header.value_length
    return size


# -- keys and values ---------------------------------------------------------------------------------------------------


cdef struct Field:
    const char* data
    Py_ssize_t length
    bint is_borrowed
    Py_buffer buffer


cdef inline bint is_plain(object data) noexcept:
    return data is None or type(data) is bytes


cdef inline const char* data_of(object plain) noexcept:
    return NULL if plain is None else PyBytes_AS_STRING(<PyObject*>plain)


cdef inline Py_ssize_t length_of(object plain) noexcept:
    return -1 if plain is None else PyBytes_GET_SIZE(<PyObject*>plain)


cdef int borrow(object data, Field* field) except -1:
    """Point to the bytes of a bytes-like object; ``give_back`` must follow, and ``data`` must stay alive until then."""
    if is_plain(data):
        field.data = data_of(data)
        field.length = length_of(data)
        return 0
    try:
        PyObject_GetBuffer(data, &field.buffer, PyBUF_SIMPLE)
    except (BufferError, TypeError):
        data = memoryview(data).tobytes()  # copies if not contiguous; raises if not bytes-like
        PyObject_GetBuffer(data, &field.buffer, PyBUF_SIMPLE)  # keeps the copy alive
    field.is_borrowed = True
    field.data = <const char*>field.buffer.buf
    field.length = field.buffer.len
    return 0


cdef inline void give_back(Field* field) noexcept:
    if field.is_borrowed:
        PyBuffer_Release(&field.buffer)


# -- the builder -------------------------------------------------------------------------------------------------------


@cython.no_gc
cdef class RecordBatchBuilder:
    """The records of an open batch, encoded in the uncompressed wire format.

A record is complete or, if ``append`` raised, absent. The builder copies its input. It only has the limits of the
format; the caller limits the size of a batch.

``expected_size``, in bytes with the batch header, is the size that the batch will rarely exceed: a hint to save memory.
    """

    def __cinit__(self, Py_ssize_t expected_size=0):
        self._expected = expected_size - OVERHEAD
        self.size = OVERHEAD
        self.base_timestamp = -1
        self.max_timestamp = -1
        self._body = b""

    def append(self, timestamp_ms, key, value, headers=()):
        """Append one record; returns its size in bytes.

        ``timestamp_ms`` is in milliseconds since 1970, 0 to 2**63 - 1; timestamps may go back within a batch. Header
        names may be empty and may repeat; their order is kept.

        Raises ``InvalidRecord`` for a timestamp out of range or a header name that is invalid in UTF-8,
        ``RecordTooLarge`` if the batch would exceed 2 GiB, ``ProducerStateError`` if the batch is closed.
        """
        cdef int overflow = 0
        cdef long long timestamp, latest, largest
        cdef Py_ssize_t length
        if self._closed:
            raise _pure._closed()
        timestamp = PyLong_AsLongLongAndOverflow(timestamp_ms, &overflow)
        if timestamp < 0 or overflow:
            raise _pure._invalid_timestamp(timestamp_ms)
        latest = self.max_timestamp
        largest = self.largest_record
        if is_plain(key) and is_plain(value):
            length = self.append_fields(
                timestamp, data_of(key), length_of(key), data_of(value), length_of(value), headers
            )
        else:
            length = append_borrowed(self, timestamp, key, value, headers)
        try:
            return length
        except MemoryError:
            take_back(self, length, latest, largest)
            raise

    cdef Py_ssize_t append_fields(
        self,
        long long timestamp_ms,
        const char* key,
        Py_ssize_t key_length,
        const char* value,
        Py_ssize_t value_length,
        object headers,
    ) except -1:
        cdef bytes encoded_headers = None
        cdef long long headers_length = 1
        cdef long long content, length
        cdef unsigned long long timestamp_delta
        cdef char* at
        cdef bint has_headers = headers is not None and headers is not () and bool(headers)
        if has_headers:
            headers_length = headers_size(<PyObject*>headers)
            if headers_length < 0:
                encoded_headers = _pure._encode_headers(headers)
                headers_length = len(encoded_headers)
        # From here on no Python code runs that could change this batch.
        if self._closed:
            raise _pure._closed()
        if timestamp_ms < 0:
            raise _pure._invalid_timestamp(timestamp_ms)
        timestamp_delta = zigzag(timestamp_ms - self.base_timestamp) if self.count else 0
        content = (
            1
            + varint_size(timestamp_delta)
            + varint_size(zigzag(self.count))
            + field_size(key_length)
            + field_size(value_length)
            + headers_length
        )
        length = varint_size(zigzag(content)) + content
        if self.size + length > MAX_FIELD:
            raise _pure._too_large(length)
        if length > self._capacity - self._used:
            make_room(self, length)
        at = put_varint(self._data + self._used, zigzag(content))
        at[0] = 0
        at = put_varint(at + 1, timestamp_delta)
        at = put_varint(at, zigzag(self.count))
        at = put_field(at, key, key_length)
        at = put_field(at, value, value_length)
        if not has_headers:
            at[0] = 0
        elif encoded_headers is None:
            put_headers(at, <PyObject*>headers)
        else:
            memcpy(at, PyBytes_AS_STRING(<PyObject*>encoded_headers), headers_length)
        if not self.count:
            self.base_timestamp = timestamp_ms
        if timestamp_ms > self.max_timestamp:
            self.max_timestamp = timestamp_ms
        self.count += 1
        self._used += length
        self.size += length
        if length > self.largest_record:
            self.largest_record = length
        return length

    def close(self):
        """Close the batch; returns the encoded records, uncompressed. May be called again."""
        if not self._closed:
            self._closed = True
            cut_to_size(self)
        return self._body

    def read_records(self):
        """Decode the records, with offsets from 0; open or closed."""
        from .reader import parse_records  # only failures and tests need it

        # While it is open the body is written in place, so nothing else may have a reference to it.
        body = self._body if self._closed else PyBytes_FromStringAndSize(self._data, self._used)
        return parse_records(body, self.count, base_timestamp=self.base_timestamp)


cdef Py_ssize_t append_borrowed(RecordBatchBuilder self, long long timestamp, key, value, headers) except -1:
    cdef Field key_field, value_field
    key_field.is_borrowed = value_field.is_borrowed = False
    try:
        borrow(key, &key_field)
        borrow(value, &value_field)
        return self.append_fields(
            timestamp, key_field.data, key_field.length, value_field.data, value_field.length, headers
        )
    finally:
        give_back(&key_field)
        give_back(&value_field)


cdef void take_back(RecordBatchBuilder self, Py_ssize_t length, long long latest, long long largest) noexcept:
    """Undo the last append, whose caller gets an exception."""
    self.count -= 1
    self._used -= length
    self.size -= length
    self.max_timestamp = latest
    self.largest_record = largest
    if not self.count:
        self.base_timestamp = -1


cdef int make_room(RecordBatchBuilder self, long long length) except -1:
    """Move the records into a larger body. Not with ``_PyBytes_Resize``, which loses the records if it fails."""
    cdef long long capacity = 2 * self._capacity
    if self._expected > self._capacity:
        capacity = min(4 * capacity, self._expected)
    capacity = max(min(capacity, MAX_FIELD), self._used + length, FIRST_CAPACITY)
    cdef bytes body = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>capacity)
    cdef char* data = PyBytes_AS_STRING(<PyObject*>body)
    if self._used:
        memcpy(data, self._data, self._used)
    self._body = body
    self._data = data
    self._capacity = <Py_ssize_t>capacity
    return 0


cdef int cut_to_size(RecordBatchBuilder self) except -1:
    cdef PyObject* body = <PyObject*>self._body
    if self._used == self._capacity:
        return 0
    if self._capacity - self._used <= self._capacity // 5:
        # Not worth shrinking. And malloc only learns to keep large blocks if they are freed whole: otherwise the next
        # batch gets fresh pages from the system, each of which costs more than all the records written to it.
        Py_SET_SIZE(<PyVarObject*>body, self._used)
        self._data[self._used] = 0
        return 0
    Py_INCREF(self._body)
    self._body = b""  # ours is now the only reference, without which a bytes object cannot be resized
    _PyBytes_Resize(&body, self._used)
    self._body = <bytes>body
    Py_DECREF(self._body)  # the one that body held
    return 0


# -- the functions -----------------------------------------------------------------------------------------------------


def record_size_upper_bound(key, value, headers=()):
    """The maximum bytes of this record in a batch, with any timestamp and position; without the batch header.

At most 34 bytes more per record, and 8 more per header, than ``append`` will return.
    """
    if is_plain(key) and is_plain(value):
        return upper_bound(length_of(key), length_of(value), headers)
    return _pure.record_size_upper_bound(key, value, headers)


cdef Py_ssize_t upper_bound(Py_ssize_t key_length, Py_ssize_t value_length, object headers) except -1:
    cdef Py_ssize_t size = MAX_RECORD_OVERHEAD
    if key_length > 0:
        size += key_length
    if value_length > 0:
        size += value_length
    if headers is not None and headers is not ():
        size += headers_upper_bound(headers)
    return size


def murmur2(data):
    """The 32-bit murmur2 of ``data`` as Java's ``Utils.murmur2`` returns it: a signed number, -2**31 to 2**31 - 1."""
    return <int>hash_of(data)


def partition_for_key(key, long long partitions):
    """The partition, 0 to ``partitions`` - 1, that Kafka's default partitioner chooses for this serialized key."""
    return <long long>(hash_of(key) & 0x7FFFFFFF) % partitions


def partitions_for_keys(ends, data, long long partitions):
    """``partition_for_key`` for many keys in one buffer, as bytes with one 32-bit number per key."""
    if not 0 < partitions < 0x80000000:
        raise ValueError(f"invalid partitions={partitions}: must be 1 to 2**31 - 1.")
    # Python's views: Cython's own add 50 KB of code to a module.
    keys = memoryview(data).cast("B") if len(data) else None
    cdef const unsigned char* first = NULL if keys is None else <const unsigned char*>PyMemoryView_GET_BUFFER(keys).buf
    cdef Py_ssize_t size = 0 if keys is None else PyMemoryView_GET_BUFFER(keys).len
    whole = memoryview(ends)
    if whole.itemsize != 4 and whole.itemsize != 8:
        raise ValueError(f"invalid ends: their items have {whole.itemsize} bytes; must be 4 or 8.")
    cdef bint is_wide = whole.itemsize == 8
    if len(whole) < 2:
        return b""
    bounds = whole.cast("B")
    cdef const int32_t* narrow = <const int32_t*>PyMemoryView_GET_BUFFER(bounds).buf
    cdef const int64_t* wide = <const int64_t*>PyMemoryView_GET_BUFFER(bounds).buf
    cdef Py_ssize_t rows = len(whole) - 1
    found = PyBytes_FromStringAndSize(NULL, rows * sizeof(int32_t))
    cdef int32_t* chosen = <int32_t*>PyBytes_AS_STRING(<PyObject*>found)
    cdef unsigned int count = <unsigned int>partitions
    cdef int64_t begin, end = wide[0] if is_wide else narrow[0]
    cdef Py_ssize_t row
    cdef bint is_sound = end >= 0
    with nogil:
        for row in range(rows):
            begin = end
            end = wide[row + 1] if is_wide else narrow[row + 1]
            if end < begin or end > size:
                is_sound = False
            if not is_sound:
                break
            chosen[row] = <int32_t>((murmur2_bytes(first + begin, end - begin) & 0x7FFFFFFF) % count)
    if not is_sound:
        raise ValueError("invalid ends: must not decrease, or lie outside the data.")
    return found


cdef unsigned int hash_of(object data) except? 0xFFFFFFFF:
    if type(data) is not bytes:
        data = memoryview(data).tobytes()
    return murmur2_bytes(<const unsigned char*>data_of(data), length_of(data))


cdef unsigned int murmur2_bytes(const unsigned char* data, Py_ssize_t length) noexcept nogil:
    cdef unsigned int hash = <unsigned int>0x9747B28C ^ <unsigned int>length
    cdef unsigned int k
    while length >= 4:
        k = data[0] | <unsigned int>data[1] << 8 | <unsigned int>data[2] << 16 | <unsigned int>data[3] << 24
        k *= MURMUR2_M
        hash = hash * MURMUR2_M ^ (k ^ k >> 24) * MURMUR2_M
        data += 4
        length -= 4
    if length:
        k = data[0]
        if length > 1:
            k |= <unsigned int>data[1] << 8
        if length > 2:
            k |= <unsigned int>data[2] << 16
        hash = (hash ^ k) * MURMUR2_M
    hash = (hash ^ hash >> 13) * MURMUR2_M
    return hash ^ hash >> 15
