# cython: language_level=3
"""The record encoder for other native modules, callable without a Python object per field."""


cdef class RecordBatchBuilder:
    cdef readonly int count
    cdef readonly long long size
    cdef readonly long long largest_record
    cdef readonly long long base_timestamp
    cdef readonly long long max_timestamp
    # The records, written in place: a bytes object that is too large until close(). Nothing else may reference it before.
    cdef bytes _body
    cdef char* _data
    cdef Py_ssize_t _used
    cdef Py_ssize_t _capacity
    cdef Py_ssize_t _expected
    cdef bint _closed

    # The only encoder; returns the size of the record. Length -1: null. `headers`: None, or a sequence of
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


# `record_size_upper_bound` for known lengths.
cdef Py_ssize_t upper_bound(Py_ssize_t key_length, Py_ssize_t value_length, object headers) except -1

# Kafka's hash, before the sign bit is cleared.
cdef unsigned int murmur2_bytes(const unsigned char* data, Py_ssize_t length) noexcept nogil
