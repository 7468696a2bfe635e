# cython: language_level=3
"""The hot path for other native modules."""

from cpython.object cimport PyObject

from aioproducer._metadata._native cimport RecordMetadata
from aioproducer.record._native cimport RecordBatchBuilder


cdef class Outcome:
    cdef readonly object partition
    cdef str _topic
    cdef int _number
    cdef public object failure
    cdef list _waiters  # of this module's class
    cdef Py_ssize_t _forgotten  # approximate number of removed ones
    cdef dict _futures  # other waiters, and their indexes
    cdef object _loop  # checked: outcomes may be awaited in this loop
    cdef unsigned int _forks
    cdef public bint succeeded
    cdef public bint is_split
    cdef readonly Py_ssize_t held
    cdef public long long base_offset
    cdef public long long log_append_time_ms
    cdef int* _abandoned
    cdef Py_ssize_t _abandoned_count, _abandoned_room

    cdef int note(self, int index) except -1
    cdef int keep_native(self, object waiter) except -1


cdef class Delivery:
    cdef Outcome _result
    cdef object _error  # a weak reference
    cdef long long _timestamp_ms
    cdef int _index, _key_size, _value_size
    cdef bint _observed

    cdef Outcome find(self)
    cdef void observe(self) noexcept
    cdef object look(self)
    cdef bint is_known(self) except -1
    cdef int abandon(self) except -1
    cdef RecordMetadata metadata(self)
    cdef object outcome(self)


cdef class OpenBatch:
    cdef public RecordBatchBuilder builder
    cdef readonly Outcome result
    cdef public long long limit
    cdef int _count


cdef class Budget:
    cdef public long long free
    cdef public long long line


cdef class StickyPartition:
    cdef public Py_ssize_t partition
    cdef public double bytes, ratio
    cdef public long long turn

    cdef bint note(self, Py_ssize_t size, bint batch_is_full)


cdef class Lane:
    cdef public Py_ssize_t partition_count
    cdef readonly list open
    cdef public StickyPartition sticky


cdef class Appender:
    cdef public long long burst
    cdef readonly object send, enqueue, enqueue_nowait
    cdef object _ready, _begin, _undo, _loop, _kept, _topic
    cdef Lane _lane
    cdef dict _lanes
    cdef Budget _budget
    cdef long long _max_burst, _max_size
    cdef unsigned int _forks
    cdef bint _is_attached, _decides, _keys_choose

    cdef bint is_in_its_loop(self) except -1
    cdef Lane lane_of(self, PyObject* topic)
    cdef OpenBatch find_room(self, PyObject* topic, Lane lane, Py_ssize_t number, bint is_sticky, Py_ssize_t size)
    cdef Py_ssize_t put_first(
        self,
        OpenBatch batch,
        long long timestamp,
        const char* key,
        Py_ssize_t key_length,
        const char* value,
        Py_ssize_t value_length,
        object headers,
    ) except -1
    cdef Delivery put(
        self,
        PyObject* topic,
        PyObject* value,
        PyObject* key,
        PyObject* given_headers,
        PyObject* partition,
        PyObject* timestamp_ms,
    )
