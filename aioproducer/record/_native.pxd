# cython: language_level=3
"""The record encoder for other native modules: what they call without making a Python object of every field."""


cdef class RecordBatchBuilder:
    cdef readonly int count
    cdef readonly long long size
    cdef readonly long long base_timestamp
    cdef readonly long long max_timestamp
    # The records, written in place: a bytes object larger than they are until close(). Nobody else may have it before.
    cdef bytes _body
    cdef char* _data
    cdef Py_ssize_t _used
    cdef Py_ssize_t _capacity
    cdef Py_ssize_t _expected
    cdef bint _closed

    # The one encoder; returns the bytes that the record takes. Length -1: null. `headers`: None, or a sequence of
    # (str, bytes-like | None). The caller owns key and value, and keeps them alive: reading unusual headers may run
    # Python code.
    cdef Py_ssize_t append_fields(
        self,
        long long timestamp_ms,
        const char* key,
        Py_ssize_t key_length,
        const char* value,
        Py_ssize_t value_length,
        object headers,
    ) except -1


# `record_size_upper_bound` for lengths that are known.
cdef Py_ssize_t upper_bound(Py_ssize_t key_length, Py_ssize_t value_length, object headers) except -1

# The hash as Kafka has it, before the sign bit is taken off.
cdef unsigned int murmur2_bytes(const unsigned char* data, Py_ssize_t length) noexcept nogil
