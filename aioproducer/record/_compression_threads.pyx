# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, binding=False
"""Threads that compress without ever taking the GIL for a job.

A thread that calls the libraries through Python takes the GIL twice per batch, and waits up to five milliseconds
(``sys.getswitchinterval``) each time while the event loop's thread has work. These threads never wait for it: jobs are in a
C queue, and a byte in a pipe notifies the event loop of finished ones.

Nor does a thread with the GIL wait for these threads, which may have a lower priority: they hold the queues' lock only for
some assignments, without any call.
"""

import os
import threading

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_mutex_init(pthread_mutex_t*, void*)
    int pthread_mutex_destroy(pthread_mutex_t*)
    int pthread_mutex_lock(pthread_mutex_t*)
    int pthread_mutex_unlock(pthread_mutex_t*)
    int pthread_cond_init(pthread_cond_t*, void*)
    int pthread_cond_destroy(pthread_cond_t*)
    int pthread_cond_wait(pthread_cond_t*, pthread_mutex_t*)
    int pthread_cond_signal(pthread_cond_t*)
    int pthread_cond_broadcast(pthread_cond_t*)

cdef extern from "<unistd.h>" nogil:
    int close_descriptor "close"(int fd)
    int getpid()
    Py_ssize_t read(int fd, void* data, size_t size)
    Py_ssize_t write(int fd, const void* data, size_t size)

cdef extern from *:
    """
    #ifdef __linux__
    #include <sys/resource.h>
    /* On Linux this affects only the calling thread; elsewhere it would be the whole process. */
    static void aioproducer_stand_back(int by) {
        if (by) setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + by);
    }
    #else
    static void aioproducer_stand_back(int by) { (void)by; }
    #endif

    /* LZ4F_preferences_t of lz4frame.h, which has had this shape since 1.8. */
    typedef struct {
        int block_size_id, block_mode, content_checksum, frame_type;
        unsigned long long content_size;
        unsigned dictionary_id;
        int block_checksum;
        int level;
        unsigned auto_flush, favor_decompression, reserved[3];
    } aioproducer_lz4;
    """
    ctypedef struct Lz4Preferences "aioproducer_lz4":
        int block_size_id
        int block_mode
        int level
    void stand_back "aioproducer_stand_back"(int by) nogil

ctypedef size_t (*Lz4Bound)(size_t, const Lz4Preferences*) noexcept nogil
ctypedef size_t (*Lz4Compress)(void*, size_t, const void*, size_t, const Lz4Preferences*) noexcept nogil
ctypedef size_t (*ZstdBound)(size_t) noexcept nogil
ctypedef void* (*ZstdCreate)() noexcept nogil
ctypedef size_t (*ZstdCompress)(void*, void*, size_t, const void*, size_t, int) noexcept nogil
ctypedef size_t (*ZstdFree)(void*) noexcept nogil

cdef enum:
    BLOCKS_OF_64_KIB = 4
    INDEPENDENT_BLOCKS = 1

cdef struct Job:
    PyObject* token
    PyObject* source  # bytes
    const void* data  # their contents
    size_t size
    void* compressed  # NULL: failed
    size_t compressed_size
    Job* next


cdef struct Queue:
    Job* first
    Job* last


cdef void put(Queue* queue, Job* job) noexcept nogil:
    job.next = NULL
    if queue.last is NULL:
        queue.first = job
    else:
        queue.last.next = job
    queue.last = job


cdef Job* take(Queue* queue) noexcept nogil:
    cdef Job* job = queue.first
    if job is not NULL:
        queue.first = job.next
        if queue.first is NULL:
            queue.last = NULL
    return job


cdef void drop(Job* job):
    Py_DECREF(<object>job.token)
    Py_DECREF(<object>job.source)
    free(job.compressed)
    free(job)


cdef void drop_all(Queue* queue):
    cdef Job* job = take(queue)
    while job is not NULL:
        drop(job)
        job = take(queue)


cdef object compressed_by(Job* job):
    if job.compressed is NULL:
        return None
    try:
        return PyBytes_FromStringAndSize(<char*>job.compressed, job.compressed_size)
    except MemoryError:  # only this batch fails
        return None


cdef struct Bench:  # state of a thread between jobs
    void* room
    size_t capacity
    void* context


cdef bint make_room(Bench* bench, size_t size) noexcept nogil:
    if size > bench.capacity:
        free(bench.room)
        bench.room = malloc(size)
        bench.capacity = size if bench.room is not NULL else 0
    return bench.room is not NULL


cdef class CompressionThreads:
    """Threads that compress bytes with one codec and level, in the order of submission.

    ``functions``: the addresses of the codec library's functions, by name. Up to ``most`` threads are started, on demand.
    ``nice``: the increase of their nice value; only on Linux.

    Raises OSError if no file descriptors are available.
    """

    cdef pthread_mutex_t lock
    cdef pthread_cond_t work
    cdef Queue waiting, done
    cdef int queued, idle, started, most, nice, level, process
    cdef int heard, calling  # the ends of the pipe, open until no thread is left that might write to it
    cdef bint is_closed
    cdef Lz4Preferences lz4
    cdef Lz4Bound lz4_bound
    cdef Lz4Compress lz4_compress
    cdef ZstdBound zstd_bound
    cdef ZstdCreate zstd_create
    cdef ZstdCompress zstd_compress
    cdef ZstdFree zstd_free

    def __cinit__(self, dict functions not None, int level, int most, int nice=0):
        pthread_mutex_init(&self.lock, NULL)
        pthread_cond_init(&self.work, NULL)
        self.heard = self.calling = -1
        self.process = getpid()
        self.level, self.most, self.nice = level, most, nice
        if "LZ4F_compressFrame" in functions:
            self.lz4.block_size_id, self.lz4.block_mode, self.lz4.level = BLOCKS_OF_64_KIB, INDEPENDENT_BLOCKS, level
            self.lz4_bound = <Lz4Bound><size_t>functions["LZ4F_compressFrameBound"]
            self.lz4_compress = <Lz4Compress><size_t>functions["LZ4F_compressFrame"]
        else:
            self.zstd_bound = <ZstdBound><size_t>functions["ZSTD_compressBound"]
            self.zstd_create = <ZstdCreate><size_t>functions["ZSTD_createCCtx"]
            self.zstd_compress = <ZstdCompress><size_t>functions["ZSTD_compressCCtx"]
            self.zstd_free = <ZstdFree><size_t>functions["ZSTD_freeCCtx"]
        self.heard, self.calling = os.pipe()
        os.set_blocking(self.heard, False)
        os.set_blocking(self.calling, False)

    def __dealloc__(self):
        # All threads have ended, since each holds a reference to this object.
        drop_all(&self.waiting)
        drop_all(&self.done)
        if self.heard >= 0:
            close_descriptor(self.heard)
            close_descriptor(self.calling)
        pthread_cond_destroy(&self.work)
        pthread_mutex_destroy(&self.lock)

    @property
    def waiting_threads(self):
        """The number of idle threads."""
        cdef int idle
        pthread_mutex_lock(&self.lock)
        idle = self.idle
        pthread_mutex_unlock(&self.lock)
        return idle

    def fileno(self):
        """A descriptor that becomes readable when there are results to take."""
        return self.heard

    def submit(self, bytes data not None, token):
        """Compress this data; `take_done` will return the result with the token.

Raises RuntimeError if no thread can be started, after `close`, and in a forked process, which has no threads; the
job is not accepted then.
        """
        cdef Job* job
        cdef bint wants_thread
        if self.is_closed or self.process != getpid():
            raise RuntimeError("The compression threads are closed, or belong to the parent process of this fork.")
        pthread_mutex_lock(&self.lock)
        wants_thread = self.queued >= self.idle and self.started < self.most
        pthread_mutex_unlock(&self.lock)
        if wants_thread:
            self.start()
        job = <Job*>calloc(1, sizeof(Job))
        if job is NULL:
            raise MemoryError
        Py_INCREF(token)
        Py_INCREF(data)
        job.token, job.source = <PyObject*>token, <PyObject*>data
        job.data, job.size = PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)
        pthread_mutex_lock(&self.lock)
        put(&self.waiting, job)
        self.queued += 1
        pthread_cond_signal(&self.work)
        pthread_mutex_unlock(&self.lock)

    cdef int start(self) except -1:
        thread = threading.Thread(target=self.run, name="aioproducer compression", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system's limit
            if not self.started:
                raise
            return 0
        self.started += 1
        return 0

    def take_done(self):
        """The results: a list of each token with its compressed bytes, which are None if compression failed."""
        cdef Queue done
        cdef Job* job
        cdef char[64] calls
        read(self.heard, calls, sizeof(calls))  # before the queue is read: later entries write to the pipe again
        pthread_mutex_lock(&self.lock)
        done = self.done
        self.done.first = self.done.last = NULL
        pthread_mutex_unlock(&self.lock)
        taken = []
        job = take(&done)
        while job is not NULL:
            try:
                taken.append((<object>job.token, compressed_by(job)))
            finally:
                drop(job)
            job = take(&done)
        return taken

    def close(self):
        """Start no more jobs and end the threads, each after its current job."""
        cdef Queue waiting
        if self.process != getpid():  # the lock may have been held when the process was forked
            return
        pthread_mutex_lock(&self.lock)
        self.is_closed = True
        waiting = self.waiting
        self.waiting.first = self.waiting.last = NULL
        pthread_cond_broadcast(&self.work)
        pthread_mutex_unlock(&self.lock)
        drop_all(&waiting)

    def run(self):
        """The main function of each thread."""
        with nogil:
            self.work_off()

    cdef void work_off(self) noexcept nogil:
        cdef Bench bench
        cdef Job* job
        cdef bint calls
        bench.room, bench.capacity, bench.context = NULL, 0, NULL
        stand_back(self.nice)
        pthread_mutex_lock(&self.lock)
        while not self.is_closed:
            job = take(&self.waiting)
            if job is NULL:
                self.idle += 1
                pthread_cond_wait(&self.work, &self.lock)
                self.idle -= 1
                continue
            self.queued -= 1
            pthread_mutex_unlock(&self.lock)
            self.compress(job, &bench)
            pthread_mutex_lock(&self.lock)
            calls = self.done.first is NULL and not self.is_closed
            put(&self.done, job)
            if calls:
                # Not under the lock: this wakes the event loop, which would then wait for the lock, held by a thread that
                # it may have preempted.
                pthread_mutex_unlock(&self.lock)
                write(self.calling, "", 1)
                pthread_mutex_lock(&self.lock)
        pthread_mutex_unlock(&self.lock)
        if bench.context is not NULL:
            self.zstd_free(bench.context)
        free(bench.room)

    cdef void compress(self, Job* job, Bench* bench) noexcept nogil:
        cdef size_t size
        if self.lz4_compress is not NULL:
            if not make_room(bench, self.lz4_bound(job.size, &self.lz4)):
                return
            size = self.lz4_compress(bench.room, bench.capacity, job.data, job.size, &self.lz4)
        else:
            if bench.context is NULL:
                bench.context = self.zstd_create()
            if bench.context is NULL or not make_room(bench, self.zstd_bound(job.size)):
                return
            size = self.zstd_compress(bench.context, bench.room, bench.capacity, job.data, job.size, self.level)
        if size > bench.capacity:  # both libraries return errors as very large numbers
            return
        job.compressed = malloc(size)
        if job.compressed is not NULL:
            memcpy(job.compressed, bench.room, size)
            job.compressed_size = size
