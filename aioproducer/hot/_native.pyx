# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, binding=False
# cython: nonecheck=True, auto_pickle=False
"""The hot path in native code: the twin of ``_append`` and ``_delivery``, which are the reference.

Differences: a `Delivery` is not tracked by the garbage collector, so a million of them do not trigger a collection; and
``send()`` and ``enqueue()`` return an object that is a coroutine in all respects but its type, created without a frame.

Where ``nonecheck`` is off, the object was checked not to be None a few lines before, or is ``self``.

Wherever Python code may run (including finalizers, as soon as a tracked object is created), anything may have changed
afterwards. So headers are read before anything else is checked, and an attribute's old value is kept until the new one is
in place, because Cython drops it before.
"""

import asyncio
import inspect
import time
from asyncio import CancelledError, Future, InvalidStateError, _get_running_loop
from contextvars import copy_context
from weakref import ref

from aioproducer.arguments import is_timeout
from aioproducer.hot import _append
from aioproducer.serializers import normalize_headers

cimport cython
from cpython.exc cimport PyErr_WarnEx
from cpython.float cimport PyFloat_CheckExact
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM

from aioproducer._metadata._native cimport RecordMetadata
from aioproducer.record._native cimport RecordBatchBuilder, murmur2_bytes, upper_bound

cdef extern from "Python.h":
    ctypedef enum PySendResult:
        PYGEN_RETURN
        PYGEN_ERROR
        PYGEN_NEXT
    ctypedef PySendResult (*sendfunc)(PyObject*, PyObject*, PyObject**) noexcept
    ctypedef struct PyAsyncMethods:
        sendfunc am_send
    ctypedef struct CTypeObject "PyTypeObject":
        PyAsyncMethods* tp_as_async
    PySendResult PyIter_Send(PyObject* iter, PyObject* arg, PyObject** result) noexcept
    PyObject* PyObject_CallNoArgs(PyObject* callable) except NULL
    PyObject* PyDict_GetItemWithError(PyObject* mapping, PyObject* key)
    PyObject* PyThreadState_GetDict()
    ctypedef void* PyCFunction
    int PyCFunction_CheckExact(PyObject*)
    PyCFunction PyCFunction_GET_FUNCTION(PyObject*)
    void Py_DECREF(PyObject*)
    int PyLong_CheckExact(PyObject*)
    int PyBytes_CheckExact(PyObject*)
    char* PyBytes_AS_STRING(PyObject*)
    Py_ssize_t PyBytes_GET_SIZE(PyObject*)
    int PyUnicode_CheckExact(PyObject*)
    int PyUnicode_IS_COMPACT_ASCII(PyObject*)
    void* PyUnicode_DATA(PyObject*)
    Py_ssize_t PyUnicode_GET_LENGTH(PyObject*)
    void PyErr_Clear()
    int PyObject_TypeCheck(PyObject*, PyTypeObject*)
    int PyContext_Enter(object context)
    int PyContext_Exit(object context) except -1

cdef extern from "<time.h>" nogil:
    struct timespec:
        long long tv_sec
        long tv_nsec
    const int TIME_UTC
    int timespec_get(timespec* ts, int base)

#: The cost of appending a record, expressed in bytes.
RECORD_COST = 32

cdef long long record_cost = RECORD_COST
cdef unsigned int forks = 0
cdef PyObject* get_running_loop = <PyObject*>_get_running_loop
cdef object RUNNING_LOOP = "__asyncio_running_event_loop__"


cdef dict CLOCKS = time.__dict__
cdef str TIME_NS = "time_ns"
cdef object clock_itself = time.time_ns  # time-machine patches the function itself, other libraries replace the attribute
cdef PyCFunction system_clock = NULL
if PyCFunction_CheckExact(<PyObject*>clock_itself):
    system_clock = PyCFunction_GET_FUNCTION(<PyObject*>clock_itself)


cdef inline long long now_ms() except? -1:
    """Milliseconds since 1970, from the same clock as ``time.time_ns``, which tests freeze or move."""
    cdef timespec now
    if not is_system_clock():
        return time.time_ns() // 1_000_000
    timespec_get(&now, TIME_UTC)
    return now.tv_sec * 1000 + now.tv_nsec // 1_000_000


cdef inline bint is_system_clock() except -1:
    """Whether ``time.time_ns`` is Python's own."""
    cdef PyObject* clock = PyDict_GetItemWithError(<PyObject*>CLOCKS, <PyObject*>TIME_NS)
    if clock is not <PyObject*>clock_itself or not PyCFunction_CheckExact(clock):
        return False
    return PyCFunction_GET_FUNCTION(clock) == system_clock


def count_fork():
    """Disable all existing appenders: this process is a fork of theirs."""
    global forks
    forks += 1


# -- outcome of a record ---------------------------------------------------------------------------------------------------


cdef class Outcome:
    """The outcome of some records, once it is known. `ProduceResult` manages the waiters."""

    def __init__(self, partition):
        self.partition = partition
        topic, self._number = partition
        self._topic = str.__str__(topic)  # not a subclass of str, because the garbage collector does not track the metadata
        self.base_offset = -1
        self.log_append_time_ms = -1

    def __dealloc__(self):
        PyMem_RawFree(self._abandoned)

    @property
    def done(self):
        """Whether the outcome of these records is known."""
        return self.succeeded or self.failure is not None

    def wake(self):
        """Wake all waiters; each checks the outcome of its record."""
        cdef list waiters = self._waiters
        cdef dict futures = self._futures
        self._waiters = self._futures = None
        if waiters is not None:
            due = [waiter for waiter in waiters if set_waiter(waiter)]
            if due:
                call_back_soon(due)
        if futures is not None:
            for future in futures:
                if not future.done():
                    future.set_result(None)

    def keep(self, int index, waiter):
        """Wake this waiter when the outcome of that record is known."""
        if type(waiter) is Waiter:
            (<Waiter>waiter).index = index
            (<Waiter>waiter).is_forgotten = False
            self.keep_native(waiter)
        elif self._futures is None:
            self._futures = {waiter: index}
        else:
            self._futures[waiter] = index

    cdef int keep_native(self, object waiter) except -1:
        if self._waiters is None:
            self._waiters, self._forgotten = [], 0
        self._waiters.append(waiter)
        return 0

    def forget(self, waiter):
        """Remove this waiter."""
        cdef list waiters
        if type(waiter) is not Waiter:
            if self._futures is not None:
                self._futures.pop(waiter, None)
            return
        (<Waiter>waiter).is_forgotten = True
        waiters = self._waiters
        if waiters is None:
            return
        self._forgotten += 1
        if 2 * self._forgotten > len(waiters):
            self._forgotten = 0
            waiters[:] = [each for each in waiters if is_waiting(each)]

    def take_waiters(self):
        """Remove and return all waiters, each with its record."""
        waiters, futures = self._waiters, self._futures
        self._waiters = self._futures = None
        taken = [((<Waiter>each).index, each) for each in waiters or () if is_waiting(each)]
        return taken + [(index, future) for future, index in (futures or {}).items()]

    def note_abandoned(self, int index):
        """Record that this record's outcome will not be observed."""
        self.note(index)

    cdef int note(self, int index) except -1:
        cdef Py_ssize_t room
        cdef int* grown
        if self._abandoned_count == self._abandoned_room:
            room = 2 * self._abandoned_room + 16
            grown = <int*>PyMem_RawRealloc(self._abandoned, room * sizeof(int))
            if grown is NULL:
                raise MemoryError
            self._abandoned, self._abandoned_room = grown, room
        self._abandoned[self._abandoned_count] = index
        self._abandoned_count += 1
        return 0

    def take_abandoned(self):
        """Remove and return the records whose outcome will not be observed."""
        cdef Py_ssize_t at
        cdef int* abandoned = self._abandoned
        cdef Py_ssize_t count = self._abandoned_count
        self._abandoned = NULL  # first, because creating the list may add the next one
        self._abandoned_count = self._abandoned_room = 0
        try:
            taken = [abandoned[at] for at in range(count)]
        finally:
            PyMem_RawFree(abandoned)
        return taken


@cython.final
@cython.no_gc
@cython.freelist(4096)
cdef class Delivery:
    """The pending acknowledgement of one accepted record.

Await it for the `RecordMetadata` or the `DeliveryError`, as often and from as many tasks as you like. Cancelling the
await does not cancel the delivery. Awaiting it is optional: an unobserved failure goes to the producer's
``on_delivery_error``.
    """

    def __init__(self, Outcome result not None, int index, long long timestamp_ms, int key_size, int value_size):
        self._result = result
        result.held += 1
        self._index = index
        self._timestamp_ms = timestamp_ms
        self._key_size = key_size
        self._value_size = value_size

    def __dealloc__(self):
        if self._observed or self._result is None:
            return
        self.observe()
        if not self._result.succeeded:
            self.abandon()

    cdef inline Outcome find(self):
        cdef Outcome whole = self._result
        if not whole.is_split:
            return whole
        self._result, self._index = whole.locate(self._index)
        if not self._observed:
            whole.held -= 1
            self._result.held += 1
        return self._result

    @cython.nonecheck(False)
    cdef inline void observe(self) noexcept:
        if not self._observed:
            self._observed = True
            self._result.held -= 1

    @cython.nonecheck(False)
    cdef RecordMetadata metadata(self):
        cdef Outcome result = self._result
        cdef RecordMetadata made = RecordMetadata.__new__(RecordMetadata)
        made.topic, made.partition = result._topic, result._number
        # Unsigned, so that any offset from a broker is safe to add.
        if result.base_offset < 0:
            made.known_offset = <unsigned long long>-1
        else:
            made.known_offset = <unsigned long long>result.base_offset + <unsigned int>self._index
        made.is_log_append_time = result.log_append_time_ms >= 0
        made.timestamp_ms = result.log_append_time_ms if made.is_log_append_time else self._timestamp_ms
        made.serialized_key_size, made.serialized_value_size = self._key_size, self._value_size
        return made

    cdef object outcome(self):
        if not self._result.succeeded:
            error = self.exception()
            if error is not None:
                raise error
        return self.metadata()

    @property
    def topic_partition(self):
        """The record's topic and partition, known since it was accepted."""
        return self._result.partition

    @property
    def index(self):
        """The record's index in ``located()``."""
        return self._index

    @property
    def serialized_size(self):
        """The size of key and value in bytes."""
        return max(0, self._key_size) + max(0, self._value_size)

    cdef bint is_known(self) except -1:
        cdef Outcome result
        if self._result.succeeded:
            return True
        result = self.find()
        return result.succeeded or result.failure is not None

    def done(self):
        """Whether the outcome is known."""
        return self.is_known()

    def result(self):
        """The metadata of the acknowledged record.

        Raises the `DeliveryError` of a failed one, and `asyncio.InvalidStateError` if the outcome is not known yet.
        """
        return self.outcome()

    def exception(self):
        """The error of a failed record, None for an acknowledged one.

        Raises `asyncio.InvalidStateError` if the outcome is not known yet.
        """
        error = self.look()
        if error is not None:
            self.observe()
        return error

    cdef object look(self):
        cdef Outcome result = self.find()
        if result.succeeded:
            return None
        if result.failure is None:
            raise InvalidStateError(f"The outcome of this record for {result.partition} is not known yet.")
        error = None if self._error is None else self._error()
        if error is None:
            error = result.failure.error_for(self._index)
            # Weak, because its traceback leads back to this object, which the garbage collector does not track.
            self._error = ref(error)
        return error

    def add_done_callback(self, callback):
        """Call ``callback(delivery)`` soon after the outcome is known, in the producer's event loop.

        An exception that the callback raises is logged. With a callback the record counts as observed. Raises TypeError if
        ``callback`` is not callable.
        """
        if not callable(callback):
            raise TypeError(f"add_done_callback() needs a callable, not {callback!r}.")
        self.observe()
        self.watch(callback)

    def mark_observed(self):
        """Count as observed: a failure no longer goes to ``on_delivery_error``."""
        self.observe()

    def peek(self):
        """The outcome as (metadata, error), without counting as observed, for interceptors and other observers."""
        error = self.look()
        return (self.result() if error is None else None), error

    def watch(self, callback):
        """Like `add_done_callback`, but a failure still counts as unobserved."""
        self.find().listen(self, callback)

    def __await__(self):
        cdef Known known
        if self.is_known():
            known = Known.__new__(Known)
            known.delivery = self
            return known
        return wait(self)

    def located(self):
        """The result that currently holds this record, after any splits."""
        return self.find()

    cdef int abandon(self) except -1:
        """Report that it will not be observed any more, although it failed or may still fail."""
        if self._result.is_split or self._result.failure is not None:
            self.find().abandon(self._index)
        else:
            self._result.note(self._index)
        return 0

    def __repr__(self):
        cdef Outcome result = self.find()
        state = "delivered" if result.succeeded else "failed" if result.failure is not None else "pending"
        return f"<Delivery to {result.partition} [{state}]>"


cdef object loop_of_thread = None
cdef object kept_of_thread = None


cdef object running_loop():
    """The event loop running in this thread, without a system call for the process id each time (`is_in_its_loop`)."""
    global loop_of_thread, kept_of_thread
    cdef PyObject* threads = PyThreadState_GetDict()
    cdef PyObject* kept = NULL if threads is NULL else PyDict_GetItemWithError(threads, <PyObject*>RUNNING_LOOP)
    # From Python 3.12 on, this is None after a loop has stopped.
    if kept is not NULL and kept is <PyObject*>kept_of_thread and kept_of_thread is not None:
        return loop_of_thread
    loop = asyncio.get_running_loop()
    if kept is not NULL:
        loop_of_thread, kept_of_thread = loop, <object>kept
    return loop


cdef enum WaiterState:
    PENDING
    SET
    CANCELLED


@cython.final
@cython.freelist(1024)
cdef class Waiter:
    """A minimal future that a task awaits until an outcome is known, with all that tasks and timeouts use.

One callback of the event loop wakes all waiters of a batch, one after the other, each in its own context, as if each
had its own callback.
    """

    cdef public bint _asyncio_future_blocking
    cdef WaiterState state
    cdef int index  # of the record, for its outcome
    cdef bint is_forgotten  # removed from the outcome; a task may still await it, to be cancelled
    cdef object loop, callback, context, message, __weakref__
    cdef list others  # only one task awaits it, but tools may add callbacks

    @property
    def __class__(self):
        """For isinstance() checks of what a task awaits: anyio does not cancel a task whose future is done."""
        return Future

    def get_loop(self):
        """As for a future."""
        return self.loop

    def done(self):
        """As for a future."""
        return self.state != PENDING

    def cancelled(self):
        """As for a future."""
        return self.state == CANCELLED

    def result(self):
        """As of a future; the result is always None."""
        if self.state == PENDING:
            raise InvalidStateError("Result is not set.")
        if self.state == CANCELLED:
            raise CancelledError() if self.message is None else CancelledError(self.message)

    def exception(self):
        """As for a future."""
        self.result()

    def set_result(self, result):
        """As for a future."""
        if self.state != PENDING:
            raise InvalidStateError("invalid state")
        self.state = SET
        call_back_soon([self])

    def cancel(self, msg=None):
        """As for a future."""
        if self.state != PENDING:
            return False
        self.state = CANCELLED
        self.message = msg
        call_back_soon([self])
        return True

    def add_done_callback(self, callback, *, context=None):
        """As for a future."""
        if context is None:
            context = copy_context()
        if self.state != PENDING:
            self.loop.call_soon(callback, self, context=context)
        elif self.callback is None:
            self.callback, self.context = callback, context
        else:
            self.others = [*(self.others or ()), (callback, context)]

    def remove_done_callback(self, callback):
        """As for a future."""
        before = [] if self.callback is None else [(self.callback, self.context), *(self.others or ())]
        after = [each for each in before if each[0] != callback]
        self.callback, self.context = after[0] if after else (None, None)
        self.others = after[1:]
        return len(before) - len(after)

    def __await__(self):
        if self.state == PENDING:
            self._asyncio_future_blocking = True
            yield self
        self.result()

    __iter__ = __await__

    cdef int call_back(self) except -1:
        """Raises what the callback raises, as tasks do for SystemExit and KeyboardInterrupt."""
        callback, context, others = self.callback, self.context, self.others
        self.callback = self.context = self.others = None
        if others is not None:
            for each, context_of_it in others:
                self.loop.call_soon(each, self, context=context_of_it)
        if callback is None:
            return 0
        if PyContext_Enter(context) != 0:  # the context is already entered
            PyErr_Clear()
            self.loop.call_soon(callback, self, context=context)
            return 0
        try:
            callback(self)
        finally:
            PyContext_Exit(context)
        return 0

    def __repr__(self):
        state = "pending" if self.state == PENDING else "cancelled" if self.state == CANCELLED else "finished"
        return f"<Waiter for a delivery [{state}]>"


cdef bint is_waiting(Waiter waiter) noexcept:
    return waiter.state == PENDING and not waiter.is_forgotten


cdef bint set_waiter(Waiter waiter) noexcept:
    """Returns whether its callback must be called now."""
    if not is_waiting(waiter):
        return False
    waiter.state = SET
    return True


@cython.final
cdef class Burst:
    """Calls the callbacks of these waiters, one after the other, in one iteration of the event loop.

A second iteration for the rest is scheduled before the first callback: so one that stops the loop, or runs it
recursively, does not lose the others.
    """

    cdef list due
    cdef Py_ssize_t at

    def __call__(self):
        cdef Waiter waiter
        if self.at + 1 < len(self.due):
            (<Waiter>self.due[self.at]).loop.call_soon(self)
        while self.at < len(self.due):
            waiter = <Waiter>self.due[self.at]
            self.at += 1
            waiter.call_back()


cdef int call_back_soon(list due) except -1:
    cdef Burst burst = Burst.__new__(Burst)
    burst.due = due
    (<Waiter>due[0]).loop.call_soon(burst)
    return 0


cdef Waiter waiter_for(Delivery delivery):
    """A waiter that is set when the outcome is known. Raises if nothing would set it."""
    cdef Outcome result = delivery.find()
    cdef Waiter waiter = Waiter.__new__(Waiter)
    waiter.loop = loop = running_loop()
    if result._loop is loop and result._forks == forks:
        waiter.index = delivery._index
        result.keep_native(waiter)
    else:
        result.wait(delivery._index, waiter)
        result._loop, result._forks = loop, forks
    if delivery.find() is not result:  # checked again: all of this creates objects, so the garbage collector may have run
        result.forget(waiter)
        delivery._result.wait(delivery._index, waiter)
    if delivery.is_known():
        delivery._result.wake()
    waiter._asyncio_future_blocking = True  # as its own __await__ does for the task
    return waiter


def wait(Delivery delivery):
    """Wait for an outcome that is not known yet."""
    cdef Waiter waiter
    if not delivery.is_known():
        waiter = waiter_for(delivery)
        try:
            yield waiter
            waiter.result()  # raises if this is not a step of a task that awaited it
        except BaseException:
            delivery.find().forget(waiter)
            raise
    return delivery.outcome()


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class Known:
    """The awaitable of a known outcome: returns at once."""

    cdef Delivery delivery

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        raise StopIteration(self.delivery.outcome())


cdef PySendResult send_known(PyObject* self, PyObject* ignored, PyObject** result) except PYGEN_ERROR:
    result[0] = NULL
    answer = (<Known>self).delivery.outcome()
    Py_INCREF(answer)
    result[0] = <PyObject*>answer
    return PYGEN_RETURN


# -- where records go ------------------------------------------------------------------------------------------------------


cdef class Budget:
    """The free bytes, and whether a new caller may take some."""

    def __init__(self, long long free):
        self.free = free


cdef class OpenBatch:
    """The records of an open batch, and their shared outcome."""

    def __init__(self, Outcome result not None, long long limit):
        self.builder = RecordBatchBuilder(limit)
        self.result = result
        self.limit = limit

    @property
    def count(self):
        """The number of records."""
        return self._count if self.builder is None else self.builder.count

    def has_room(self, long long size):
        """Whether a record of at most this size fits; the first one always does."""
        cdef RecordBatchBuilder builder = self.builder
        return builder is not None and (not builder.count or builder.size + size <= self.limit)

    @property
    def is_full(self):
        """Whether no further record is expected to fit."""
        return self.builder is None or self.builder.size >= self.limit

    def drop_builder(self):
        """Drop the builder after its bytes are taken or discarded; the number of records is kept."""
        if self.builder is not None:
            self._count = self.builder.count
        self.builder = None
        self.limit = 0

    def append(self, timestamp_ms, key, value, headers):
        """Append a record; returns its size in bytes, and its handle."""
        cdef RecordBatchBuilder builder = self.builder
        used = builder.append(timestamp_ms, key, value, headers)
        return used, Delivery(
            self.result,
            builder.count - 1,
            timestamp_ms,
            -1 if key is None else len(key),
            -1 if value is None else len(value),
        )


cdef class StickyPartition:
    """The current partition of records without a key, and how much of its turn is used up (KIP-794)."""

    def __init__(self, long long turn):
        self.partition = -1
        self.ratio = 1.0
        self.turn = max(1, turn)

    cdef bint note(self, Py_ssize_t size, bint batch_is_full):
        self.bytes += size * self.ratio
        return self.bytes >= self.turn and (batch_is_full or self.bytes >= 2 * self.turn)

    def appended(self, Py_ssize_t size, bint batch_is_full):
        """Count the bytes of an appended record; returns whether the next one should go to another partition.

Switching waits until the batch is full, so that no half-filled one remains, but not forever.
        """
        return self.note(size, batch_is_full)


cdef class Lane:
    """The decisions for the records of one topic: each partition's open batch, and the sticky partition.

    ``open`` holds the last batch of each partition's queue, or None; a closed one accepts nothing, so it may stay.
    """

    def __init__(self, Py_ssize_t partition_count, StickyPartition sticky not None):
        self.partition_count = partition_count
        self.open = [None] * partition_count
        self.sticky = sticky


cdef class Appender:
    """Appends records to open batches as long as no decision is needed.

It works between `attach` and `detach`, in the event loop and process of `attach`. ``send``, ``enqueue`` and
``enqueue_nowait`` are the slow paths, with the arguments of the `FastPath`, all positional.
    """

    def __init__(self, send, enqueue, enqueue_nowait, long long max_burst):
        self.send = send
        self.enqueue = enqueue
        self.enqueue_nowait = enqueue_nowait
        self._max_burst = max_burst

    def attach(
        self, loop, Budget budget not None, dict lanes not None, ready, begin, undo, *, long long max_size, keys_choose
    ):
        """Start to accept records.

``ready(batch)`` is called for a batch with its first record, or one that has become full. ``begin(topic, lane,
partition, size)`` returns a batch with room for a record, perhaps a new one, or None if the slow path must decide;
partition -1: the next sticky one. ``undo(batch)`` removes a batch that stayed empty. ``max_size`` is the largest
record in bytes. ``keys_choose``: whether keys choose the partition by murmur2; None if neither this nor the sticky
choice is made here.
        """
        self.detach()
        self.burst = 0
        self._loop = loop
        self._forks = forks
        self._budget = budget
        self._lanes = lanes
        self._ready = ready
        self._begin = begin
        self._undo = undo
        self._max_size = max_size
        self._decides = keys_choose is not None
        self._keys_choose = bool(keys_choose)
        self._is_attached = True

    def detach(self):
        """Stop accepting records."""
        global loop_of_thread, kept_of_thread
        kept = self._loop, self._kept, self._topic, self._lane, loop_of_thread, kept_of_thread
        if loop_of_thread is self._loop:  # otherwise the last loop of a program would stay alive until exit
            loop_of_thread = kept_of_thread = None
        self._is_attached = False
        self._loop = self._kept = self._topic = self._lane = None

    def append(self, topic, value, key, headers, partition, timestamp_ms):
        """Append the record, or return None if it must take the slow path; then nothing is changed or raised."""
        return self.put(
            <PyObject*>topic,
            <PyObject*>value,
            <PyObject*>key,
            <PyObject*>headers,
            <PyObject*>partition,
            <PyObject*>timestamp_ms,
        )

    @cython.nonecheck(False)
    cdef bint is_in_its_loop(self) except -1:
        """Whether the attached event loop is running in this thread.

        Up to Python 3.11 asyncio makes a system call for that. Its per-thread object changes whenever another loop starts
        there, so the same object need not be checked twice. (In 3.12 it may also be None, and later it does not exist.)
        """
        cdef PyObject* threads = PyThreadState_GetDict()
        cdef PyObject* kept = NULL if threads is NULL else PyDict_GetItemWithError(threads, <PyObject*>RUNNING_LOOP)
        if kept is <PyObject*>self._kept and self._kept is not None:
            return True
        cdef PyObject* running = PyObject_CallNoArgs(get_running_loop)
        Py_DECREF(running)  # its runner holds a reference
        if running is not <PyObject*>self._loop:
            return False
        before = self._kept
        self._kept = <object>kept if kept is not NULL else None
        return True

    @cython.nonecheck(False)
    cdef Lane lane_of(self, PyObject* topic):
        """The lane of the topic, or None if nothing may be appended now."""
        cdef Lane lane
        cdef PyObject* found
        if not self._is_attached or self._forks != forks or self.burst >= self._max_burst or self._budget.line:
            return None
        if not PyUnicode_CheckExact(topic):
            return None
        lane = self._lane
        # Mostly it is the same object as last time.
        if topic is not <PyObject*>self._topic or not lane.partition_count:
            found = PyDict_GetItemWithError(<PyObject*>self._lanes, topic)
            if found is NULL:
                return None
            lane = <object>found
            if lane.partition_count <= 0:
                return None
            before = self._lane, self._topic
            self._lane = lane
            self._topic = <object>topic
        return lane if self.is_in_its_loop() else None

    @cython.nonecheck(False)
    cdef Delivery put(
        self,
        PyObject* topic,
        PyObject* value,
        PyObject* key,
        PyObject* given_headers,
        PyObject* partition,
        PyObject* timestamp_ms,
    ):
        """The delivery, or None if the record must take the slow path. The caller keeps the arguments alive."""
        cdef Budget budget
        cdef Lane lane
        cdef StickyPartition sticky = None
        cdef OpenBatch batch
        cdef RecordBatchBuilder builder
        cdef Delivery delivery
        cdef const char* value_data = NULL
        cdef const char* key_data = NULL
        cdef Py_ssize_t value_length, key_length, number, size, used
        cdef long long timestamp
        cdef bint is_full

        headers = None
        if given_headers is not <PyObject*>None:
            headers = plain_headers(<object>given_headers)
            if headers is None:
                return None
        lane = self.lane_of(topic)
        if lane is None:
            return None
        budget = self._budget

        if not read_plain(value, &value_data, &value_length) or not read_plain(key, &key_data, &key_length):
            return None

        if partition is <PyObject*>None:
            if not self._decides:
                return None
            if key_length >= 0 and self._keys_choose:
                number = (murmur2_bytes(<const unsigned char*>key_data, key_length) & 0x7FFFFFFF) % lane.partition_count
            else:
                sticky = lane.sticky
                if sticky is None:
                    return None
                number = sticky.partition
        elif PyLong_CheckExact(partition):
            try:
                number = <object>partition
            except OverflowError:
                return None
        else:
            return None
        if number >= lane.partition_count or (number < 0 and sticky is None):
            return None
        size = upper_bound(key_length, value_length, headers if headers is not None else ())
        if size > budget.free or size > self._max_size:
            return None
        if timestamp_ms is <PyObject*>None:
            timestamp = now_ms()
        elif PyLong_CheckExact(timestamp_ms):
            try:
                timestamp = <object>timestamp_ms
            except OverflowError:
                return None
            if timestamp < 0:
                return None
        else:
            return None

        delivery = Delivery.__new__(Delivery)
        batch = self.find_room(topic, lane, number, sticky is not None, size)
        if batch is None:
            return None
        builder = batch.builder
        if builder.count:
            used = builder.append_fields(timestamp, key_data, key_length, value_data, value_length, headers)
        else:
            used = self.put_first(batch, timestamp, key_data, key_length, value_data, value_length, headers)
        delivery._result = batch.result
        delivery._result.held += 1
        delivery._index = builder.count - 1
        delivery._timestamp_ms = timestamp
        delivery._key_size = <int>key_length
        delivery._value_size = <int>value_length
        budget.free -= used
        self.burst += used + record_cost
        is_full = builder.size >= batch.limit
        if sticky is not None and sticky.note(used, is_full):
            sticky.partition = -1
        if is_full or delivery._index == 0:
            self._ready(batch)
        return delivery

    @cython.nonecheck(False)
    cdef OpenBatch find_room(self, PyObject* topic, Lane lane, Py_ssize_t number, bint is_sticky, Py_ssize_t size):
        """The open batch of the partition (-1: of the next sticky one), or a new one, or None."""
        cdef OpenBatch batch
        cdef RecordBatchBuilder builder
        cdef list opened = lane.open
        if opened is not None and 0 <= number < PyList_GET_SIZE(opened):
            batch = <object>PyList_GET_ITEM(opened, number)
            if batch is not None:
                builder = batch.builder
                if builder is not None and builder.count and builder.size + size <= batch.limit:
                    return batch
        batch = self._begin(<object>topic, lane, -1 if is_sticky else number, size)
        return batch if batch is not None and batch.builder is not None else None

    cdef Py_ssize_t put_first(
        self,
        OpenBatch batch,
        long long timestamp,
        const char* key,
        Py_ssize_t key_length,
        const char* value,
        Py_ssize_t value_length,
        object headers,
    ) except -1:
        """Append the first record of a batch, which is removed if that fails."""
        cdef RecordBatchBuilder builder = batch.builder
        try:
            return builder.append_fields(timestamp, key, key_length, value, value_length, headers)
        except BaseException:
            self._undo(batch)
            raise

    @cython.boundscheck(True)
    def append_run(self, topic, values, Py_ssize_t at, headers, partition):
        """Append as many values without keys as possible from a list or tuple, from ``values[at]`` on, to one batch.

Returns the number of records, their shared outcome, the index of the first, and the bytes of their values; or None
if the first one must take the slow path.
        """
        cdef Budget budget
        cdef Lane lane
        cdef StickyPartition sticky = None
        cdef OpenBatch batch
        cdef RecordBatchBuilder builder
        cdef Outcome result
        cdef const char* data = NULL
        cdef Py_ssize_t length, number, size, used, first, began = at
        cdef Py_ssize_t end
        cdef long long timestamp, content = 0
        cdef bint is_full

        if type(values) is not list and type(values) is not tuple:  # no code of the caller may run in between
            return None
        if headers is not None:
            headers = plain_headers(headers)
            if headers is None:
                return None
        lane = self.lane_of(<PyObject*>topic)
        if lane is None:
            return None
        budget = self._budget
        end = len(values)
        if partition is None:
            if not self._decides:
                return None
            sticky = lane.sticky
            number = sticky.partition
        elif PyLong_CheckExact(<PyObject*>partition) and 0 <= partition < lane.partition_count:
            number = partition
        else:
            return None
        if number >= lane.partition_count or (number < 0 and sticky is None):
            return None
        batch = None
        timestamp = now_ms()
        while at < end and self.burst < self._max_burst:
            value = values[at]
            if not read_plain(<PyObject*>value, &data, &length):
                break
            size = upper_bound(-1, length, headers if headers is not None else ())
            if size > budget.free or size > self._max_size:
                break
            if batch is None:
                batch = self.find_room(<PyObject*>topic, lane, number, sticky is not None, size)
                if batch is None:
                    break
                builder = batch.builder
                result = batch.result
                first = builder.count
            elif builder.size + size > batch.limit:
                break
            if builder.count:
                used = builder.append_fields(timestamp, NULL, -1, data, length, headers)
            else:
                used = self.put_first(batch, timestamp, NULL, -1, data, length, headers)
            at += 1
            if length > 0:
                content += length
            budget.free -= used
            self.burst += used + record_cost // 2
            is_full = builder.size >= batch.limit
            if sticky is not None and sticky.note(used, is_full):
                sticky.partition = -1
                end = at
            if is_full:
                end = at
        if at == began:
            return None
        if is_full or first == 0:
            self._ready(batch)
        return at - began, result, first, content


cdef inline bint read_plain(PyObject* content, const char** data, Py_ssize_t* length) noexcept:
    """Whether a key or a value is None, bytes or plain text; else the slow path must handle it."""
    if PyBytes_CheckExact(content):
        data[0], length[0] = PyBytes_AS_STRING(content), PyBytes_GET_SIZE(content)
    elif content is <PyObject*>None:
        length[0] = -1
    elif PyUnicode_CheckExact(content) and PyUnicode_IS_COMPACT_ASCII(content):
        data[0], length[0] = <const char*>PyUnicode_DATA(content), PyUnicode_GET_LENGTH(content)
    else:
        return False
    return True


cdef bint are_plain(object headers):
    """Whether they have the encoder's form already, as after interceptors; False also if that takes longer to find out."""
    if type(headers) is not tuple:
        return False
    for pair in <tuple>headers:
        if type(pair) is not tuple or len(<tuple>pair) != 2:
            return False
        name, content = (<tuple>pair)[0], (<tuple>pair)[1]
        if type(name) is not str or not PyUnicode_IS_COMPACT_ASCII(<PyObject*>name):
            return False
        if content is not None and type(content) is not bytes:
            return False
    return True


cdef object plain_headers(object headers):
    """The headers in the encoder's form, or None if the slow path must handle them."""
    if not isinstance(headers, (dict, tuple, list)):
        return None
    if are_plain(headers):
        return headers
    try:
        if not headers:
            return ()
        plain = normalize_headers(headers)
        for name, _ in plain:
            if not PyUnicode_IS_COMPACT_ASCII(<PyObject*>name):
                name.encode()  # a lone surrogate raises here
    except Exception:  # the slow path raises the proper error
        return None
    return plain


cdef class FastPath:
    """The producer methods that mostly append to an open batch."""

    cdef public Appender appender

    @cython.binding(True)
    def send(
        self,
        topic,
        value=None,
        *,
        key=None,
        headers=None,
        partition=None,
        timestamp_ms=None,
        on_delivery=None,
        timeout=None,
    ):
        check_producer(<PyObject*>self)
        cdef Send call = Send.__new__(Send)
        call.give(self.appender, topic, value, key, partition, headers, timestamp_ms, on_delivery, timeout)
        return call

    @cython.binding(True)
    def enqueue(
        self,
        topic,
        value=None,
        *,
        key=None,
        headers=None,
        partition=None,
        timestamp_ms=None,
        on_delivery=None,
        timeout=None,
    ):
        check_producer(<PyObject*>self)
        cdef Enqueue call = Enqueue.__new__(Enqueue)
        call.give(self.appender, topic, value, key, partition, headers, timestamp_ms, on_delivery, timeout)
        return call

    @cython.binding(True)
    def enqueue_nowait(
        self, topic, value=None, *, key=None, headers=None, partition=None, timestamp_ms=None, on_delivery=None
    ):
        cdef Appender appender
        cdef Delivery delivery
        check_producer(<PyObject*>self)
        appender = self.appender
        if on_delivery is None or callable(on_delivery):
            delivery = appender.put(
                <PyObject*>topic,
                <PyObject*>value,
                <PyObject*>key,
                <PyObject*>headers,
                <PyObject*>partition,
                <PyObject*>timestamp_ms,
            )
            if delivery is not None:
                if on_delivery is not None:
                    delivery.add_done_callback(on_delivery)
                return delivery
        return appender.enqueue_nowait(topic, value, key, headers, partition, timestamp_ms, on_delivery)


cdef inline int check_producer(PyObject* itself) except -1:
    """Cython does not check this: ``Producer.enqueue(object(), ...)`` would crash the process."""
    if not PyObject_TypeCheck(itself, <PyTypeObject*>FastPath):
        raise TypeError(f"This is a method of producers, not of {type(<object>itself).__name__!r} objects.")
    return 0


cdef bint may_be_timeout(PyObject* timeout) except -1:
    if PyFloat_CheckExact(<object>timeout):
        return <double><object>timeout >= 0.0
    return timeout is <PyObject*>None or is_timeout(<object>timeout)


cdef str REUSED = "cannot reuse already awaited coroutine"
cdef object SEND_CODE = _append.FastPath.send.__code__
cdef object ENQUEUE_CODE = _append.FastPath.enqueue.__code__


cdef enum Rest:
    HEADERS
    TIMESTAMP_MS
    ON_DELIVERY
    TIMEOUT


@cython.freelist(1024)  # for all objects of this size, so the fields of `Send` are here as well
cdef class Call:
    """One call of a producer's method, as a coroutine: mostly the fast path, otherwise it delegates to the slow path's."""

    # The arguments, as long as they are needed: all or none.
    cdef Appender appender
    cdef object topic, value, key, partition
    cdef tuple rest  # mostly None
    cdef object slow_path
    cdef Delivery delivery
    cdef Waiter waiter
    cdef bint is_given, has_begun, is_running

    @cython.nonecheck(False)
    cdef inline int give(
        self,
        Appender appender,
        object topic,
        object value,
        object key,
        object partition,
        object headers,
        object timestamp_ms,
        object on_delivery,
        object timeout,
    ) except -1:
        if headers is not None or timestamp_ms is not None or on_delivery is not None or timeout is not None:
            self.rest = (headers, timestamp_ms, on_delivery, timeout)
        self.appender, self.topic, self.value = appender, topic, value
        self.key, self.partition = key, partition
        self.is_given = True
        return 0

    @cython.nonecheck(False)
    cdef inline PyObject* of_rest(self, Rest what) noexcept:
        return <PyObject*>None if self.rest is None else PyTuple_GET_ITEM(self.rest, what)

    cdef object make_slow_path(self):
        """The coroutine of the method that takes the slow path."""
        if not self.is_given:  # created by calling the type of another call
            raise RuntimeError(REUSED)
        return self.long_method()(
            self.topic,
            self.value,
            self.key,
            <object>self.of_rest(HEADERS),
            self.partition,
            <object>self.of_rest(TIMESTAMP_MS),
            <object>self.of_rest(ON_DELIVERY),
            <object>self.of_rest(TIMEOUT),
        )

    cdef object long_method(self):
        raise NotImplementedError  # `Enqueue` and `Send` have their own; Cython knows no abstract methods

    cdef PySendResult begin(self, PyObject** result) except? PYGEN_ERROR:
        """The first step; `PYGEN_ERROR` without an exception if the slow path must do it."""
        raise NotImplementedError  # `Enqueue` and `Send` have their own; Cython knows no abstract methods

    cdef PySendResult go_on(self, PyObject* value, PyObject** result) except? PYGEN_ERROR:
        """A later step of the fast path."""
        raise RuntimeError(REUSED)

    cdef bint give_up(self) except -1:
        """Stop waiting, if it waits; returns whether it did."""
        return False

    cdef object waited_for(self):
        """The awaited object of the fast path, or None."""
        return None

    cdef const char* complaint(self) noexcept:
        """The warning for a call that was never awaited."""
        return b""

    def __dealloc__(self):
        if not self.has_begun:
            PyErr_WarnEx(RuntimeWarning, self.complaint(), 1)

    def __await__(self):
        if self.waited_for() is not None or (self.slow_path is not None and self.slow_path.cr_await is not None):
            raise RuntimeError("coroutine is being awaited already")
        return self

    def __iter__(self):
        return self

    def __next__(self):
        return self.send(None)

    def send(self, value):
        """As for a coroutine."""
        cdef PyObject* answer = NULL
        cdef PySendResult state = send_call(<PyObject*>self, <PyObject*>value, &answer)
        result = <object>answer
        Py_DECREF(answer)
        if state == PYGEN_RETURN:
            raise StopIteration(result)
        return result

    def throw(self, kind, value=None, traceback=None):
        """As for a coroutine."""
        self.check_not_running()
        if self.slow_path is None and not self.give_up():
            if self.has_begun:
                raise RuntimeError(REUSED)
            self.take_slow_path()  # to its first line, where it raises
        if self.slow_path is None:
            raise_from_outside(kind, value, traceback)
        if value is None and traceback is None:
            return self.slow_path.throw(kind)
        return self.slow_path.throw(kind, value, traceback)

    def close(self):
        """As for a coroutine."""
        self.check_not_running()
        self.has_begun = True
        if self.slow_path is not None:
            self.slow_path.close()
        elif not self.give_up():
            self.forget()

    cdef int check_not_running(self) except -1:
        """Raise if code called by the first step resumes the same coroutine."""
        if self.is_running:
            raise ValueError("coroutine already executing")
        return 0

    @cython.nonecheck(False)
    cdef inline int forget(self) except -1:
        """Drop the producer and the arguments: a task keeps its coroutine, and may live long."""
        appender, topic, value = self.appender, self.topic, self.value
        key, partition, rest = self.key, self.partition, self.rest
        self.appender = self.topic = self.value = self.key = self.partition = self.rest = None
        self.is_given = False
        return 0

    cdef int take_slow_path(self) except -1:
        cdef bint was_running = self.is_running
        self.has_begun = self.is_running = True  # the arguments are lent to the slow path and must not be dropped
        try:
            self.slow_path = self.make_slow_path()
        finally:
            self.is_running = was_running
            self.forget()
        return 0

    cdef inline Delivery put(self):
        """The delivery, or None if the record must take the slow path."""
        cdef Delivery delivery
        cdef PyObject* on_delivery = self.of_rest(ON_DELIVERY)
        if not self.is_given or (on_delivery is not <PyObject*>None and not callable(<object>on_delivery)):
            return None
        delivery = self.appender.put(
            <PyObject*>self.topic,
            <PyObject*>self.value,
            <PyObject*>self.key,
            self.of_rest(HEADERS),
            <PyObject*>self.partition,
            self.of_rest(TIMESTAMP_MS),
        )
        if delivery is None:
            return None
        if on_delivery is not <PyObject*>None:
            delivery.add_done_callback(<object>on_delivery)
        self.forget()
        return delivery

    @property
    def cr_await(self):
        """As for a coroutine: the awaited object."""
        return self.waited_for() if self.slow_path is None else self.slow_path.cr_await

    @property
    def cr_frame(self):
        """As for a coroutine: where it waits."""
        return None if self.slow_path is None else self.slow_path.cr_frame

    @property
    def cr_running(self):
        """As for a coroutine."""
        return self.is_running if self.slow_path is None else self.slow_path.cr_running

    @property
    def cr_suspended(self):
        """As for a coroutine."""
        return self.waited_for() is not None if self.slow_path is None else self.slow_path.cr_suspended

    @property
    def cr_state(self):
        """As for a coroutine; used by `inspect.getcoroutinestate` from Python 3.15 on."""
        if self.cr_running:
            return inspect.CORO_RUNNING
        if self.cr_suspended:
            return inspect.CORO_SUSPENDED
        return inspect.CORO_CLOSED if self.has_begun else inspect.CORO_CREATED

    @property
    def cr_origin(self):
        """As for a coroutine: the origin is not recorded."""
        return None

    @property
    def __qualname__(self):
        return f"Producer.{self.__name__}"

    def __repr__(self):
        return f"<coroutine object {self.__qualname__} at {<size_t><PyObject*>self:#x}>"


@cython.final
cdef class Enqueue(Call):
    """One call of ``Producer.enqueue``: a coroutine that mostly ends at its first step."""

    @property
    def __name__(self):
        return "enqueue"

    cdef const char* complaint(self) noexcept:
        return b"coroutine 'Producer.enqueue' was never awaited"

    cdef object long_method(self):
        return self.appender.enqueue

    cdef PySendResult begin(self, PyObject** result) except? PYGEN_ERROR:
        cdef Delivery delivery = self.put() if self.rest is None or may_be_timeout(self.of_rest(TIMEOUT)) else None
        if delivery is None:
            return PYGEN_ERROR
        Py_INCREF(delivery)
        result[0] = <PyObject*>delivery
        return PYGEN_RETURN

    @property
    def cr_code(self):
        """As for a coroutine: the code of its twin."""
        return ENQUEUE_CODE


@cython.final
cdef class Send(Call):
    """One call of ``Producer.send``: a coroutine that mostly appends the record, and waits once for its outcome."""

    @property
    def __name__(self):
        return "send"

    cdef const char* complaint(self) noexcept:
        return b"coroutine 'Producer.send' was never awaited"

    cdef object long_method(self):
        return self.appender.send

    cdef PySendResult begin(self, PyObject** result) except? PYGEN_ERROR:
        cdef Delivery delivery = self.put() if self.of_rest(TIMEOUT) is <PyObject*>None else None
        if delivery is None:
            return PYGEN_ERROR
        if delivery.is_known():  # the notification of the full batch has decided it
            answer = delivery.outcome()
            Py_INCREF(answer)
            result[0] = <PyObject*>answer
            return PYGEN_RETURN
        waiter = waiter_for(delivery)
        self.delivery = delivery
        self.waiter = waiter
        Py_INCREF(waiter)
        result[0] = <PyObject*>waiter
        return PYGEN_NEXT

    cdef PySendResult go_on(self, PyObject* value, PyObject** result) except? PYGEN_ERROR:
        cdef Delivery delivery = self.delivery
        cdef Waiter waiter = self.waiter
        if waiter is None:
            raise RuntimeError(REUSED)
        self.waiter = self.delivery = None
        if waiter.state != SET:
            try:
                waiter.result()  # raises: it was cancelled, or this is not a step of a task that awaited it
            finally:
                delivery.find().forget(waiter)
        answer = delivery.outcome()
        Py_INCREF(answer)
        result[0] = <PyObject*>answer
        return PYGEN_RETURN

    cdef bint give_up(self) except -1:
        cdef Delivery delivery = self.delivery
        cdef Waiter waiter = self.waiter
        if waiter is None:
            return False
        self.waiter = self.delivery = None
        delivery.find().forget(waiter)
        return True

    cdef object waited_for(self):
        return self.waiter

    @property
    def cr_code(self):
        """As for a coroutine: the code of its twin."""
        return SEND_CODE


cdef int raise_from_outside(object kind, object value, object traceback) except -1:
    """Raise an exception that was thrown into a coroutine, in either of throw()'s forms."""
    if isinstance(kind, type):
        error = kind() if value is None else value if isinstance(value, kind) else kind(value)
    else:
        error = kind
    if traceback is not None:
        error = error.with_traceback(traceback)
    if isinstance(error, StopIteration):  # the awaiting code would take it for the result (PEP 479)
        raise RuntimeError("coroutine raised StopIteration") from error
    raise error


cdef PySendResult send_call(PyObject* itself, PyObject* value, PyObject** result) except PYGEN_ERROR:
    cdef Call self = <Call>itself
    cdef PySendResult state
    result[0] = NULL
    if self.slow_path is None:
        self.check_not_running()
        if self.has_begun:
            return self.go_on(value, result)
        if value is not <PyObject*>None:
            raise TypeError("can't send non-None value to a just-started coroutine")
        self.has_begun = self.is_running = True
        try:
            state = self.begin(result)
            if state != PYGEN_ERROR:
                return state
            self.take_slow_path()
        finally:
            self.is_running = False
            if self.is_given:  # it failed
                self.forget()
    return PyIter_Send(<PyObject*>self.slow_path, value, result)


# Cython has no name for the slot ``am_send``, which returns a result to the interpreter (up to 3.11) and to asyncio's tasks
# without creating an exception; see DECISIONS.md for the gain.
(<CTypeObject*>Enqueue).tp_as_async.am_send = <sendfunc>send_call
(<CTypeObject*>Send).tp_as_async.am_send = <sendfunc>send_call
(<CTypeObject*>Known).tp_as_async.am_send = <sendfunc>send_known
