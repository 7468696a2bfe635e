# cython: language_level=3
"""The layout of `RecordMetadata`, for the native module that creates these."""


cdef class RecordMetadata:
    cdef readonly str topic
    cdef readonly int partition
    cdef unsigned long long known_offset  # all bits set: the broker did not tell it
    cdef readonly long long timestamp_ms
    cdef readonly int serialized_key_size, serialized_value_size
    cdef bint is_log_append_time

    cdef tuple fields(self)
