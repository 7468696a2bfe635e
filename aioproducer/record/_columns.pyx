# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: binding=False, embedsignature=False
"""Encodes the rows of Arrow tables into record batches, straight from the tables' buffers.

Tables are read through the Arrow C data interface (the PyCapsule protocol), so no Arrow library is needed. ``column_binding``
has already mapped the columns to a record's fields. This is the twin of ``_columns_pure``, which is the reference, but without
a Python object per row or field.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Realloc
from cpython.pycapsule cimport PyCapsule_GetPointer
from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject
from libc.stdint cimport INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset, strerror

from ._native cimport RecordBatchBuilder, murmur2_bytes

from . import column_binding
from .column_binding import Field

cdef extern from "Python.h":
    ctypedef struct PyVarObject:
        pass
    Py_ssize_t Py_REFCNT(PyObject*)
    void Py_SET_SIZE(PyVarObject*, Py_ssize_t)
    PyObject* PyTuple_GET_ITEM(object, Py_ssize_t)

cdef extern from *:
    # Copied from the specification: https://arrow.apache.org/docs/format/CDataInterface.html
    """
    #include <stdint.h>

    #ifndef ARROW_C_DATA_INTERFACE
    #define ARROW_C_DATA_INTERFACE

    struct ArrowSchema {
      const char* format;
      const char* name;
      const char* metadata;
      int64_t flags;
      int64_t n_children;
      struct ArrowSchema** children;
      struct ArrowSchema* dictionary;
      void (*release)(struct ArrowSchema*);
      void* private_data;
    };

    struct ArrowArray {
      int64_t length;
      int64_t null_count;
      int64_t offset;
      int64_t n_buffers;
      int64_t n_children;
      const void** buffers;
      struct ArrowArray** children;
      struct ArrowArray* dictionary;
      void (*release)(struct ArrowArray*);
      void* private_data;
    };
    #endif

    #ifndef ARROW_C_STREAM_INTERFACE
    #define ARROW_C_STREAM_INTERFACE

    struct ArrowArrayStream {
      int (*get_schema)(struct ArrowArrayStream*, struct ArrowSchema* out);
      int (*get_next)(struct ArrowArrayStream*, struct ArrowArray* out);
      const char* (*get_last_error)(struct ArrowArrayStream*);
      void (*release)(struct ArrowArrayStream*);
      void* private_data;
    };
    #endif
    """
    struct ArrowSchema:
        const char* format
        const char* name
        int64_t n_children
        ArrowSchema** children
        ArrowSchema* dictionary
        void (*release)(ArrowSchema*) noexcept nogil

    struct ArrowArray:
        int64_t length
        int64_t null_count
        int64_t offset
        int64_t n_buffers
        int64_t n_children
        const void** buffers
        ArrowArray** children
        ArrowArray* dictionary
        void (*release)(ArrowArray*) noexcept nogil

    struct ArrowArrayStream:
        int (*get_schema)(ArrowArrayStream*, ArrowSchema*) noexcept nogil
        int (*get_next)(ArrowArrayStream*, ArrowArray*) noexcept nogil
        const char* (*get_last_error)(ArrowArrayStream*) noexcept nogil
        void (*release)(ArrowArrayStream*) noexcept nogil

__all__ = ["ArrowChunk", "ArrowSource", "ColumnEncoder"]


# -- the table ---------------------------------------------------------------------------------------------------------
#
# Every call into the table's library releases the GIL: it may wait for threads that need it.


cdef class ArrowChunk:
    """Some rows of a table, released to their library when this object is deallocated."""

    cdef ArrowArray array

    def __dealloc__(self):
        if self.array.release != NULL:
            with nogil:
                self.array.release(&self.array)

    @property
    def num_rows(self):
        """The number of rows."""
        return self.array.length


cdef class ArrowSource:
    """A table to be read once, chunk by chunk: anything with ``__arrow_c_stream__`` or ``__arrow_c_array__``.

    ``fields`` are its columns. Only one thread at a time may read, but not always the same one; ``close`` may be called
    during a read, and takes effect after it.
    """

    cdef ArrowArrayStream stream
    cdef ArrowChunk only
    cdef bint is_reading
    cdef bint is_closed
    cdef readonly tuple fields

    def __init__(self, table):
        open_stream = getattr(table, "__arrow_c_stream__", None)
        if open_stream is not None:
            self.open_stream(open_stream())
        else:
            schema, array = table.__arrow_c_array__()
            self.open_array(schema, array)

    cdef int open_stream(self, object capsule) except -1:
        cdef ArrowArrayStream* given = <ArrowArrayStream*>PyCapsule_GetPointer(capsule, "arrow_array_stream")
        cdef ArrowSchema schema
        cdef int code
        if given.release == NULL:
            raise ValueError("The table's Arrow stream was already consumed; it can be read only once. Create it again.")
        self.stream = given[0]
        given.release = NULL
        schema.release = NULL
        with nogil:
            code = self.stream.get_schema(&self.stream, &schema)
        if code:
            raise self.error(code)
        try:
            self.fields = columns_of(&schema)
        finally:
            release_schema(&schema)
        return 0

    cdef int open_array(self, object schema_capsule, object array_capsule) except -1:
        cdef ArrowSchema* schema = <ArrowSchema*>PyCapsule_GetPointer(schema_capsule, "arrow_schema")
        cdef ArrowArray* array = <ArrowArray*>PyCapsule_GetPointer(array_capsule, "arrow_array")
        if schema.release == NULL or array.release == NULL:
            raise ValueError("The table's Arrow array was already consumed; it can be read only once. Create it again.")
        self.fields = columns_of(schema)  # the capsule owns and releases it
        self.only = ArrowChunk.__new__(ArrowChunk)
        self.only.array = array[0]
        array.release = NULL
        return 0

    def read(self):
        """The next chunk, or None at the end. Takes as long as the table's library takes, without the GIL.

Raises ``OSError`` with the library's message if that fails.
        """
        cdef ArrowChunk chunk
        cdef int code
        if self.is_closed:
            return None
        if self.stream.release == NULL:
            chunk, self.only = self.only, None
            return chunk
        error = None
        chunk = ArrowChunk.__new__(ArrowChunk)
        self.is_reading = True  # until the library's last call has ended: `close` may come at any time without the GIL
        try:
            with nogil:
                code = self.stream.get_next(&self.stream, &chunk.array)
            if code:
                chunk.array.release = NULL  # nothing was created
                error = self.error(code)
        finally:
            self.is_reading = False
        if error is not None:
            self.close()
            raise error
        if self.is_closed or chunk.array.release == NULL:
            self.close()
            return None
        return chunk

    def close(self):
        """Release the table; no more is read. May be called again."""
        self.is_closed = True
        self.only = None
        if not self.is_reading:
            self.release()

    def __dealloc__(self):
        self.release()

    cdef void release(self) noexcept:
        cdef ArrowArrayStream stream
        if self.stream.release != NULL:
            stream = self.stream
            self.stream.release = NULL  # first: without the GIL another thread may get here
            with nogil:
                stream.release(&stream)

    cdef object error(self, int code):
        cdef const char* reason
        with nogil:
            reason = self.stream.get_last_error(&self.stream)
        message = strerror(code) if reason == NULL else reason
        return OSError("The table could not be read: " + message.decode("utf-8", "replace"))


cdef void release_schema(ArrowSchema* schema) noexcept:
    if schema.release != NULL:
        with nogil:
            schema.release(schema)


cdef tuple columns_of(ArrowSchema* schema):
    top = field_of(schema, 0)
    if top.format != "+s":
        raise column_binding.no_table(column_binding.type_name(top))
    return top.children


cdef object field_of(ArrowSchema* schema, int depth):
    if depth > 64:
        raise ValueError("The table's types are nested more than 64 levels deep.")
    name = "" if schema.name == NULL else (<bytes>schema.name).decode("utf-8", "replace")
    format = (<bytes>schema.format).decode("utf-8", "replace")
    children = tuple([field_of(schema.children[index], depth + 1) for index in range(schema.n_children)])
    return Field(name, format, children, dictionary_of(schema.dictionary, depth))


cdef object dictionary_of(ArrowSchema* schema, int depth):
    return None if schema == NULL else field_of(schema, depth + 1)


# -- a column ----------------------------------------------------------------------------------------------------------


cdef enum Kind:
    ALL_NULL
    OFFSETS_32
    OFFSETS_64
    VIEWS
    FIXED_SIZE
    DICTIONARY
    LIST_32
    LIST_64
    STRUCT
    INT_8
    UINT_8
    INT_16
    UINT_16
    INT_32
    UINT_32
    INT_64
    UINT_64

cdef enum:
    NULL_FIELD = -1  # as the record format writes the length of a null
    UNREADABLE = -2

_KINDS = {
    "n": ALL_NULL,
    "u": OFFSETS_32,
    "z": OFFSETS_32,
    "U": OFFSETS_64,
    "Z": OFFSETS_64,
    "vu": VIEWS,
    "vz": VIEWS,
    "w": FIXED_SIZE,
    "+l": LIST_32,
    "+m": LIST_32,
    "+L": LIST_64,
    "+s": STRUCT,
    "c": INT_8,
    "C": UINT_8,
    "s": INT_16,
    "S": UINT_16,
    "i": INT_32,
    "I": UINT_32,
    "l": INT_64,
    "L": UINT_64,
    "tss": INT_64,
    "tsm": INT_64,
    "tsu": INT_64,
    "tsn": INT_64,
}

#: The buffers of an array of each kind, at least.
cdef int64_t* BUFFERS = [0, 3, 3, 3, 2, 2, 2, 2, 1, 2, 2, 2, 2, 2, 2, 2, 2]


cdef struct Column:
    int index  # the table's column that this is, or is part of
    Kind kind
    Kind index_kind  # of a dictionary's indexes
    int64_t offset  # of the first row within the buffers
    int64_t length  # rows, counted from there
    const uint8_t* validity
    const void* numbers  # offsets, views, indexes or integers
    const char* data
    const void** buffers  # for views: after the first two come those with values too long for a view
    int64_t variadic
    const int64_t* variadic_lengths
    int64_t width
    Column* first  # the dictionary; of a list its items; of a struct its first field
    Column* second


cdef Column* new_column(field, int index) except NULL:
    cdef Column* column = <Column*>PyMem_Calloc(1, sizeof(Column))
    if column == NULL:
        raise MemoryError
    column.index = index
    try:
        name, _, parameter = field.format.partition(":")
        column.kind = _KINDS[name]
        if field.dictionary is not None:
            column.index_kind = column.kind
            column.kind = DICTIONARY
            column.first = new_column(field.dictionary, index)
        elif column.kind == FIXED_SIZE:
            column.width = int(parameter)
        elif column.kind == LIST_32 or column.kind == LIST_64:
            column.first = new_column(field.children[0], index)
        elif column.kind == STRUCT:
            column.first = new_column(field.children[0], index)
            column.second = new_column(field.children[1], index)
    except BaseException:
        free_column(column)
        raise
    return column


cdef void free_column(Column* column) noexcept:
    if column != NULL:
        free_column(column.first)
        free_column(column.second)
        PyMem_Free(column)


cdef bint point(Column* column, ArrowArray* array, int64_t skipped) noexcept:
    """Read from this array from now on, after ``skipped`` rows; returns whether it can match the schema."""
    cdef int64_t at
    if array == NULL or array.n_buffers < BUFFERS[<int>column.kind]:
        return False
    column.offset = array.offset + skipped
    column.length = array.length - skipped
    column.validity = NULL
    if column.kind == ALL_NULL:
        return True
    if array.null_count != 0:
        column.validity = <const uint8_t*>array.buffers[0]
    if column.kind == STRUCT:
        return (
            array.n_children == 2
            and point(column.first, array.children[0], column.offset)
            and point(column.second, array.children[1], column.offset)
        )
    column.numbers = array.buffers[1]
    column.data = NULL
    if column.kind == OFFSETS_32 or column.kind == OFFSETS_64:
        column.data = <const char*>array.buffers[2]
    elif column.kind == VIEWS:
        column.buffers = array.buffers
        column.variadic = array.n_buffers - 3
        column.variadic_lengths = <const int64_t*>array.buffers[array.n_buffers - 1]
    elif column.kind == LIST_32 or column.kind == LIST_64:
        return array.n_children == 1 and point(column.first, array.children[0], 0)
    elif column.kind == DICTIONARY:
        return point(column.first, array.dictionary, 0)
    return True


cdef inline bint is_null(const Column* column, int64_t at) noexcept nogil:
    return column.validity != NULL and not column.validity[at >> 3] >> (at & 7) & 1


cdef inline int64_t number(Kind kind, const void* numbers, int64_t at) noexcept nogil:
    """The integer at this position; one beyond 2**63 - 1 becomes negative."""
    if kind == INT_64 or kind == UINT_64:
        return (<const int64_t*>numbers)[at]
    if kind == INT_32:
        return (<const int32_t*>numbers)[at]
    if kind == UINT_32:
        return (<const uint32_t*>numbers)[at]
    if kind == INT_16:
        return (<const int16_t*>numbers)[at]
    if kind == UINT_16:
        return (<const uint16_t*>numbers)[at]
    if kind == INT_8:
        return (<const int8_t*>numbers)[at]
    return (<const uint8_t*>numbers)[at]


#: Larger than any buffer; with additions to a length it still fits 64 bits.
cdef int64_t MOST_OFFSET = <int64_t>1 << 61


cdef inline int64_t fetch(const Column* column, int64_t row, const char** data) noexcept nogil:
    """Point to the row's bytes and return their number, or NULL_FIELD or UNREADABLE."""
    cdef int64_t at = row + column.offset
    cdef int64_t begin, end
    if is_null(column, at):
        return NULL_FIELD
    if column.kind == OFFSETS_32:
        begin = (<const int32_t*>column.numbers)[at]
        end = (<const int32_t*>column.numbers)[at + 1]
    elif column.kind == OFFSETS_64:
        begin = (<const int64_t*>column.numbers)[at]
        end = (<const int64_t*>column.numbers)[at + 1]
    else:
        return fetch_unusual(column, at, data)
    if begin < 0 or end < begin or end > MOST_OFFSET:
        return UNREADABLE
    data[0] = column.data + begin
    return end - begin


cdef int64_t fetch_unusual(const Column* column, int64_t at, const char** data) noexcept nogil:
    cdef const int32_t* view
    cdef int64_t length, index
    if column.kind == VIEWS:
        view = <const int32_t*>column.numbers + 4 * at
        length = view[0]
        if length <= 12:
            data[0] = <const char*>(view + 1)
            return length if length >= 0 else UNREADABLE
        index = view[2]
        if not 0 <= index < column.variadic or view[3] < 0 or view[3] + length > column.variadic_lengths[index]:
            return UNREADABLE
        data[0] = <const char*>column.buffers[2 + index] + view[3]
        return length
    if column.kind == FIXED_SIZE:
        data[0] = <const char*>column.numbers + at * column.width
        return column.width
    if column.kind == DICTIONARY:
        index = number(column.index_kind, column.numbers, at)
        return fetch(column.first, index, data) if 0 <= index < column.first.length else UNREADABLE
    return NULL_FIELD  # a column of nulls


# -- a record ----------------------------------------------------------------------------------------------------------

cdef enum:
    BATCH_OVERHEAD = 61
    MAX_RECORD_OVERHEAD = 36  # as in _pure
    MAX_HEADER_OVERHEAD = 10
    MAX_FIELD = 0x7FFFFFFF
    FIRST_CAPACITY = 512
    CAPACITIES = 1 << 22  # the limit for the first bodies of all partitions together
    MOST_KEPT = 1 << 24  # bytes of bodies that are kept for reuse
    MOST_BODIES = 256  # and their number, as all of them may have to be checked
    LEAST_KEPT = 1 << 12  # smaller ones cost less to create than to find
    NO_PARTITION = -1


cdef struct Row:
    const char* key
    int64_t key_length
    const char* value
    int64_t value_length
    int64_t timestamp_ms
    int64_t partition
    int64_t bound  # its maximum size as a record


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ (0 - (<uint64_t>value >> 63))


cdef inline int64_t varint_size(uint64_t value) noexcept nogil:
    cdef int64_t size = 3
    if value < 1 << 7:
        return 1
    if value < 1 << 14:
        return 2
    value >>= 14
    while value > 0x7F:
        value >>= 7
        size += 1
    return size


cdef inline char* put_varint(char* at, uint64_t value) noexcept nogil:
    if value < 1 << 7:
        at[0] = <char>value
        return at + 1
    if value < 1 << 14:
        at[0] = <char>(value | 0x80)
        at[1] = <char>(value >> 7)
        return at + 2
    while value > 0x7F:
        at[0] = <char>(value & 0x7F | 0x80)
        at += 1
        value >>= 7
    at[0] = <char>value
    return at + 1


cdef inline int64_t field_size(int64_t length) noexcept nogil:
    return 1 if length < 0 else varint_size(<uint64_t>length << 1) + length


cdef inline char* put_field(char* at, const char* data, int64_t length) noexcept nogil:
    if length < 0:
        at[0] = 1
        return at + 1
    at = put_varint(at, <uint64_t>length << 1)
    memcpy(at, data, length)
    return at + length


cdef class Bodies:
    """The bodies of batches in flight, to be reused when they are done.

A new body consists of pages that the kernel must clear first, which takes longer than writing the records into it.
A body is unused when there are no other references to it: all readers, including sockets, hold one.
    """

    cdef list kept  # (body, capacity)
    cdef int64_t size

    def __cinit__(self):
        self.kept = []

    cdef int keep(self, RecordBatchBuilder builder) except -1:
        """Keep this body for later reuse, unless ``close`` is going to shrink it."""
        if not LEAST_KEPT <= builder._capacity <= MOST_KEPT - self.size or len(self.kept) >= MOST_BODIES:
            return 0
        if builder._capacity - builder._used <= builder._capacity // 5:
            self.kept.append((builder._body, builder._capacity))
            self.size += builder._capacity
        return 0

    cdef bytes take(self, int64_t least, int64_t most):
        """An unused body with ``least`` to ``most`` bytes; None if there is none."""
        cdef PyObject* body
        cdef bytes taken
        cdef int64_t capacity
        for index in range(len(self.kept)):
            entry = self.kept[index]
            body = PyTuple_GET_ITEM(entry, 0)
            capacity = entry[1]
            if Py_REFCNT(body) == 1 and least <= capacity <= most:
                taken = <bytes>body
                Py_SET_SIZE(<PyVarObject*>body, <Py_ssize_t>capacity)
                del self.kept[index]
                self.size -= capacity
                return taken
        return None


cdef struct Batch:
    int64_t count  # 0: not started
    int64_t used
    int64_t capacity
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t payload
    int64_t largest_record
    char* data  # of the body
    PyObject* body


cdef inline char* put_head(char* at, int64_t content, uint64_t timestamp_delta) noexcept nogil:
    """Write the fields before a record's offset; ``content`` is the number of bytes after the length."""
    at = put_varint(at, <uint64_t>content << 1)
    at[0] = 0
    return put_varint(at + 1, timestamp_delta)


cdef inline char* put_record(
    char* at, const Row* row, uint64_t offset_delta, uint64_t timestamp_delta, const char* headers, int64_t headers_length
) noexcept nogil:
    """Write a record as ``RecordBatchBuilder.append_fields`` does; there must be room for its bound."""
    cdef int64_t content = (
        1
        + varint_size(timestamp_delta)
        + varint_size(offset_delta)
        + field_size(row.key_length)
        + field_size(row.value_length)
        + headers_length
    )
    at = put_head(at, content, timestamp_delta)
    at = put_varint(at, offset_delta)
    at = put_field(at, row.key, row.key_length)
    at = put_field(at, row.value, row.value_length)
    if headers_length == 1:
        at[0] = headers[0]
        return at + 1
    memcpy(at, headers, headers_length)
    return at + headers_length


cdef inline int64_t append(Batch* batch, const Row* row, const char* headers, int64_t headers_length) noexcept nogil:
    """Append a record to a batch that has room for its bound; returns its size in bytes."""
    cdef uint64_t timestamp_delta = zigzag(row.timestamp_ms - batch.base_timestamp) if batch.count else 0
    cdef char* end = put_record(
        batch.data + batch.used, row, <uint64_t>batch.count << 1, timestamp_delta, headers, headers_length
    )
    cdef int64_t length = end - batch.data - batch.used
    if not batch.count:
        batch.base_timestamp = row.timestamp_ms
        batch.max_timestamp = row.timestamp_ms
    elif row.timestamp_ms > batch.max_timestamp:
        batch.max_timestamp = row.timestamp_ms
    batch.count += 1
    batch.used += length
    if length > batch.largest_record:
        batch.largest_record = length
    batch.payload += max(row.key_length, 0) + max(row.value_length, 0)
    return length


# -- records with only a value --------------------------------------------------------------------------------------------
#
# By far the commonest table: contiguous values without nulls, and no other fields. These take the fast path, with minimal
# work per row.


ctypedef fused offset_t:
    int32_t
    int64_t


cdef int64_t skim_values(const offset_t* offsets, int64_t rows, int64_t most, int64_t limit, int64_t* size) noexcept nogil:
    """The number of the next values that are certainly records of at most ``most`` bytes each and ``limit`` in total.

``size`` is set to the maximum bytes of these.
    """
    cdef int64_t row = 0
    cdef int64_t left = limit
    cdef int64_t begin = offsets[0]
    cdef int64_t end, bound
    if begin < 0:
        rows = 0
    while row < rows:
        end = offsets[row + 1]
        if end < begin or end > MOST_OFFSET:
            break
        bound = MAX_RECORD_OVERHEAD + end - begin
        if bound > most or bound > left:
            break
        left -= bound
        begin = end
        row += 1
    size[0] = limit - left
    return row


cdef int64_t append_values(
    Batch* batch, const offset_t* offsets, const char* data, int64_t rows, const char* end, uint64_t timestamp_delta
) noexcept nogil:
    """Write the next values as ``put_record`` does, up to the first that might not fit before ``end``; returns their number.

The bytes before a value are the same as in the previous row if that was as long, except for the offset. They are
copied in pieces of fixed sizes, beyond their ends, but within the maximum size of a record.
    """
    cdef char[16] head  # length, attributes and timestamp: at most 5 + 1 + 10 bytes
    cdef char[8] middle  # no key, and the value's length: at most 1 + 5
    cdef int64_t head_size = 0
    cdef int64_t middle_size = 0
    cdef int64_t length, content, offset_size
    cdef int64_t known_length = -1
    cdef int64_t known_to = 0  # the first offset that needs more bytes than those before
    cdef int64_t count = batch.count
    cdef int64_t row = 0
    cdef int64_t begin = offsets[0]
    cdef char* at = batch.data + batch.used
    middle[0] = 1
    if begin < 0:
        rows = 0
    while row < rows:
        length = offsets[row + 1] - begin
        if length < 0 or length > end - at - MAX_RECORD_OVERHEAD:
            break
        if length != known_length or count >= known_to:
            known_length = length
            offset_size = varint_size(<uint64_t>count << 1)
            known_to = <int64_t>1 << (7 * offset_size - 1)
            content = 1 + varint_size(timestamp_delta) + offset_size + 1 + field_size(length) + 1
            batch.largest_record = max(batch.largest_record, content + varint_size(<uint64_t>content << 1))
            head_size = put_head(head, content, timestamp_delta) - head
            middle_size = 1 + put_varint(middle + 1, <uint64_t>length << 1) - (middle + 1)
        memcpy(at, head, 16)
        at = put_varint(at + head_size, <uint64_t>count << 1)
        memcpy(at, middle, 8)
        at += middle_size
        memcpy(at, data + begin, length)
        at += length
        at[0] = 0  # no headers
        at += 1
        begin += length
        count += 1
        row += 1
    batch.count = count
    batch.used = at - batch.data
    batch.payload += begin - offsets[0]
    return row


# -- the encoder -------------------------------------------------------------------------------------------------------


cdef struct HeaderSource:
    const char* name  # NULL: the column holds lists of headers
    int64_t name_length
    const char* constant
    int64_t constant_length
    Column* column
    int index


#: The error of a row.
cdef enum Problem:
    NONE = 0
    ROW_NULL
    ROW_TOO_LARGE
    TIMESTAMP_INVALID
    PARTITION_INVALID
    HEADER_NULL
    COLUMN_UNREADABLE


#: The arguments of `encode`.
cdef struct Goal:
    int64_t size  # of all batches, maximum
    int64_t limit  # of a batch
    int64_t first_capacity
    int64_t partitions
    int64_t now_ms


#: The next step.
cdef enum Step:
    STOP
    STICK
    FINISH
    MAKE_ROOM


cdef inline bint is_behind(const Batch* batch, int64_t bound, const Goal* goal) noexcept nogil:
    """Whether a record belongs in the batch after this one."""
    return batch.count and BATCH_OVERHEAD + batch.used + bound > goal.limit


@cython.final
cdef class ColumnEncoder:
    """Encodes rows as records, and fills one batch per partition with them."""

    cdef tuple fields
    cdef object binding
    cdef int64_t largest
    cdef str largest_option
    cdef bint ignore_keys
    cdef bint spreads
    cdef int64_t timestamp_factor
    cdef int64_t timestamp_divisor
    cdef int64_t fixed_partition

    cdef Column* key
    cdef Column* value
    cdef Column* timestamp
    cdef Column* partition
    cdef HeaderSource* headers
    cdef int header_count
    cdef char* header_bytes
    cdef int64_t header_capacity

    cdef ArrowChunk chunk
    cdef const uint8_t* validity
    cdef bint is_simple  # a row is a key and a value, and nothing else
    cdef bint is_plain  # a row is a value, and nothing else; values are contiguous, and none is null
    cdef int64_t offset
    cdef int64_t rows
    cdef int64_t position
    cdef int64_t checked_to
    cdef int64_t rows_before
    cdef int64_t problem_value
    cdef int problem_column

    cdef Bodies bodies
    cdef Batch* batches  # the open batches, by partition
    cdef int64_t partitions
    cdef int64_t greatest  # the highest partition that the checked rows name
    cdef int64_t sticky
    cdef int64_t turn  # bytes sent there by choice since it was chosen
    cdef bint is_settled  # the next row goes there, although the budget was used up before it
    cdef readonly int64_t size  # bytes of all batches that are not taken yet
    cdef list full

    def __cinit__(self, fields, binding, *, largest, largest_option, ignore_keys=False):
        self.fields = tuple(fields)
        self.binding = binding
        self.largest = min(largest, MAX_FIELD - BATCH_OVERHEAD)
        self.largest_option = largest_option
        self.timestamp_factor = binding.timestamp_factor
        self.timestamp_divisor = binding.timestamp_divisor
        self.fixed_partition = binding.fixed_partition
        self.ignore_keys = ignore_keys
        self.spreads = binding.partition >= 0 or (binding.key >= 0 and binding.fixed_partition < 0 and not ignore_keys)
        self.sticky = NO_PARTITION
        self.bodies = Bodies()
        self.full = []
        self.value = self.column(binding.value)
        self.key = self.column(binding.key)
        self.timestamp = self.column(binding.timestamp)
        self.partition = self.column(binding.partition)
        self.make_header_sources(binding.headers)
        self.reserve_headers(1)
        self.header_bytes[0] = 0  # no headers

    cdef Column* column(self, index) except? NULL:
        return NULL if index < 0 else new_column(self.fields[index], index)

    cdef int make_header_sources(self, parts) except -1:
        cdef HeaderSource* source
        self.headers = <HeaderSource*>PyMem_Calloc(max(1, len(parts)), sizeof(HeaderSource))
        if self.headers == NULL:
            raise MemoryError
        for part in parts:  # their bytes are kept alive by the binding
            source = &self.headers[self.header_count]
            self.header_count += 1
            source.constant_length = NULL_FIELD
            if part.name is not None:
                source.name = PyBytes_AS_STRING(part.name)
                source.name_length = len(part.name)
            if part.constant is not None:
                source.constant = PyBytes_AS_STRING(part.constant)
                source.constant_length = len(part.constant)
            else:
                source.column = self.column(part.column)
        return 0

    def __dealloc__(self):
        free_column(self.value)
        free_column(self.key)
        free_column(self.timestamp)
        free_column(self.partition)
        if self.headers != NULL:
            for index in range(self.header_count):
                free_column(self.headers[index].column)
        PyMem_Free(self.headers)
        PyMem_Free(self.header_bytes)
        for partition in range(self.partitions):
            Py_XDECREF(self.batches[partition].body)
        PyMem_Free(self.batches)

    # -- input --------------------------------------------------------------------------------------------------------

    @property
    def row(self):
        """The number of the next row to be encoded, counted over the whole table."""
        return self.rows_before + self.position

    @property
    def remaining(self):
        """The number of rows of the chunk that are not encoded yet."""
        return self.rows - self.position

    @property
    def checked(self):
        """The number of these that are checked."""
        return self.checked_to - self.position

    def load(self, ArrowChunk chunk not None):
        """Continue with the rows of this chunk; the remaining rows of the previous one are dropped.

Raises ``ValueError`` if it does not match the table's schema.
        """
        self.rows_before += self.rows
        self.rows = self.position = self.checked_to = 0
        self.is_plain = False  # until its columns are attached
        self.chunk = chunk
        cdef ArrowArray* array = &chunk.array
        self.offset = array.offset
        self.validity = NULL
        if array.null_count != 0 and array.n_buffers > 0:
            self.validity = <const uint8_t*>array.buffers[0]
        self.is_simple = (
            self.validity == NULL and self.timestamp == NULL and self.partition == NULL and not self.header_count
        )
        if array.length == 0:
            return
        if array.n_children != len(self.fields):
            raise ValueError("The columns of the table's chunks do not match its schema.")
        self.attach(self.value)
        self.attach(self.key)
        self.attach(self.timestamp)
        self.attach(self.partition)
        for index in range(self.header_count):
            self.attach(self.headers[index].column)
        self.rows = array.length
        self.is_plain = (
            self.is_simple
            and self.key == NULL
            and self.value.validity == NULL
            and (self.value.kind == OFFSETS_32 or self.value.kind == OFFSETS_64)
        )

    cdef int attach(self, Column* column) except -1:
        cdef ArrowArray* child
        if column == NULL:
            return 0
        child = self.chunk.array.children[column.index]
        if not point(column, child, self.offset) or column.length < self.chunk.array.length:
            raise ValueError(f"Column {self.fields[column.index].name!r} of the table does not match the table's schema.")
        return 0

    def check(self, int64_t limit):
        """Check the next rows, up to ``limit`` bytes and at least one; these can then be encoded.

Returns their maximum bytes as records, and their highest partition, -1 if none names one. Raises `InvalidRecord`
for the first row that can never be sent.
        """
        cdef int64_t at = self.position
        cdef int64_t size = 0
        cdef int64_t greatest = -1
        cdef Problem problem
        cdef Row row
        self.checked_to = at
        if self.is_simple:
            at = self.skim(limit, &size)
        while at < self.rows:
            problem = self.read(at, &row)
            if problem != NONE:
                raise self.refusal(at, problem, row.bound)
            if size + row.bound > limit and at > self.position:
                break
            size += row.bound
            if row.partition > greatest:
                greatest = row.partition
            at += 1
        self.checked_to = at
        self.greatest = greatest
        return size, greatest

    cdef int64_t skim(self, int64_t limit, int64_t* size) noexcept nogil:
        """Check rows that are a key and a value, up to the first that needs the slow path."""
        cdef int64_t at = self.position
        cdef int64_t taken = 0
        cdef int64_t most = min(limit, self.largest - BATCH_OVERHEAD)
        cdef int64_t value_length, key_length
        cdef int64_t bound
        cdef const char* data
        if self.is_plain:
            return at + self.skim_plain(most, limit, size)
        while at < self.rows:
            value_length = fetch(self.value, at, &data)
            key_length = NULL_FIELD if self.key == NULL else fetch(self.key, at, &data)
            bound = MAX_RECORD_OVERHEAD + max(value_length, 0) + max(key_length, 0)
            if value_length == UNREADABLE or key_length == UNREADABLE or bound > most or taken + bound > limit:
                break
            taken += bound
            at += 1
        size[0] = taken
        return at

    cdef int64_t skim_plain(self, int64_t most, int64_t limit, int64_t* size) noexcept nogil:
        cdef int64_t at = self.position + self.value.offset
        cdef int64_t rows = self.rows - self.position
        if self.value.kind == OFFSETS_32:
            return skim_values(<const int32_t*>self.value.numbers + at, rows, most, limit, size)
        return skim_values(<const int64_t*>self.value.numbers + at, rows, most, limit, size)

    cdef Problem read(self, int64_t at, Row* row) noexcept nogil:
        """Find the fields of a row, and return its error."""
        cdef int64_t bound
        if self.validity != NULL and not self.validity[(at + self.offset) >> 3] >> ((at + self.offset) & 7) & 1:
            return ROW_NULL
        row.value_length = fetch(self.value, at, &row.value)
        if row.value_length == UNREADABLE:
            return self.unreadable(self.value)
        bound = MAX_RECORD_OVERHEAD + (row.value_length if row.value_length > 0 else 0)
        row.key_length = NULL_FIELD
        if self.key != NULL:
            row.key_length = fetch(self.key, at, &row.key)
            if row.key_length == UNREADABLE:
                return self.unreadable(self.key)
            if row.key_length > 0:
                bound += row.key_length
        if self.timestamp != NULL and not self.read_timestamp(at, row):
            return TIMESTAMP_INVALID
        row.partition = NO_PARTITION
        if self.partition != NULL and not self.read_partition(at, row):
            return PARTITION_INVALID
        row.bound = bound
        if self.header_count:
            return self.measure_headers(at, row)
        return ROW_TOO_LARGE if bound + BATCH_OVERHEAD > self.largest else NONE

    cdef inline void read_again(self, int64_t at, Row* row, int64_t now_ms) noexcept nogil:
        """Find the fields of a checked row."""
        row.value_length = fetch(self.value, at, &row.value)
        row.key_length = NULL_FIELD
        row.timestamp_ms = now_ms
        row.partition = self.fixed_partition
        if self.key != NULL:
            row.key_length = fetch(self.key, at, &row.key)
        if self.timestamp != NULL:
            self.read_timestamp(at, row)
        if self.partition != NULL:
            self.read_partition(at, row)
        row.bound = MAX_RECORD_OVERHEAD + max(row.value_length, 0) + max(row.key_length, 0)
        if self.header_count:
            self.measure_headers(at, row)

    cdef inline bint read_timestamp(self, int64_t at, Row* row) noexcept nogil:
        cdef int64_t value
        if is_null(self.timestamp, at + self.timestamp.offset):
            return True
        value = number(INT_64, self.timestamp.numbers, at + self.timestamp.offset)
        if value < 0 or value > INT64_MAX // self.timestamp_factor:
            self.problem_value = value
            return False
        row.timestamp_ms = value * self.timestamp_factor // self.timestamp_divisor
        return True

    cdef inline bint read_partition(self, int64_t at, Row* row) noexcept nogil:
        if is_null(self.partition, at + self.partition.offset):
            return True
        row.partition = number(self.partition.kind, self.partition.numbers, at + self.partition.offset)
        self.problem_value = row.partition
        return 0 <= row.partition <= MAX_FIELD

    cdef Problem unreadable(self, const Column* column) noexcept nogil:
        self.problem_column = column.index
        return COLUMN_UNREADABLE

    cdef object refusal(self, int64_t at, Problem problem, int64_t bound):
        """The exception for an error of the row."""
        row = self.rows_before + at
        if problem == ROW_NULL:
            return column_binding.null_row(row)
        if problem == ROW_TOO_LARGE:
            return column_binding.too_large(row, bound + BATCH_OVERHEAD, self.largest, self.largest_option)
        if problem == TIMESTAMP_INVALID:
            return column_binding.invalid_timestamp(row, self.fields[self.timestamp.index].name, self.problem_value)
        if problem == PARTITION_INVALID:
            value: object = self.problem_value
            if self.partition.kind == UINT_64:
                value = <uint64_t>self.problem_value
            return column_binding.invalid_partition(row, self.fields[self.partition.index].name, value)
        column = self.fields[self.problem_column].name
        return column_binding.null_header(row, column) if problem == HEADER_NULL else column_binding.unreadable(row, column)

    # -- headers -------------------------------------------------------------------------------------------------------

    cdef Problem measure_headers(self, int64_t at, Row* row) noexcept nogil:
        """Add the maximum size of a row's headers to its bound."""
        cdef HeaderSource* source
        cdef const char* data
        cdef int64_t length
        cdef Problem problem
        for index in range(self.header_count):
            source = &self.headers[index]
            if source.name == NULL:
                problem = self.measure_list(source.column, at, row)
                if problem != NONE:
                    return problem
                continue
            length = source.constant_length if source.column == NULL else fetch(source.column, at, &data)
            if length == UNREADABLE:
                return self.unreadable(source.column)
            row.bound += MAX_HEADER_OVERHEAD + source.name_length + (length if length > 0 else 0)
        return ROW_TOO_LARGE if row.bound + BATCH_OVERHEAD > self.largest else NONE

    cdef Problem measure_list(self, Column* column, int64_t at, Row* row) noexcept nogil:
        cdef Column* items = column.first
        cdef int64_t begin, end, name_length, value_length
        cdef const char* data
        if not list_bounds(column, at, &begin, &end):
            return self.unreadable(column)
        while begin < end:
            name_length = fetch(items.first, begin, &data)
            value_length = fetch(items.second, begin, &data)
            if name_length == UNREADABLE or value_length == UNREADABLE:
                return self.unreadable(column)
            if name_length == NULL_FIELD or is_null(items, begin + items.offset):
                self.problem_column = column.index
                return HEADER_NULL
            row.bound += MAX_HEADER_OVERHEAD + name_length + (value_length if value_length > 0 else 0)
            begin += 1
        return NONE

    cdef int64_t encode_headers(self, int64_t at) noexcept nogil:
        """Write the encoded headers of a row; there must be room for them. Returns their length."""
        cdef int64_t count = 0
        cdef int64_t begin, end
        cdef HeaderSource* source
        cdef const char* name
        cdef const char* value
        cdef int64_t length
        cdef char* to
        for index in range(self.header_count):
            if self.headers[index].name != NULL:
                count += 1
            elif list_bounds(self.headers[index].column, at, &begin, &end):
                count += end - begin
        to = put_varint(self.header_bytes, zigzag(count))
        for index in range(self.header_count):
            source = &self.headers[index]
            if source.name == NULL:
                list_bounds(source.column, at, &begin, &end)
                while begin < end:
                    length = fetch(source.column.first.first, begin, &name)
                    to = put_field(to, name, length)
                    length = fetch(source.column.first.second, begin, &value)
                    to = put_field(to, value, length)
                    begin += 1
                continue
            value = source.constant
            length = source.constant_length if source.column == NULL else fetch(source.column, at, &value)
            to = put_field(to, source.name, source.name_length)
            to = put_field(to, value, length)
        return to - self.header_bytes

    cdef int reserve_headers(self, int64_t size) except -1:
        cdef char* larger
        if size > self.header_capacity:
            larger = <char*>PyMem_Realloc(self.header_bytes, size)
            if larger == NULL:
                raise MemoryError
            self.header_bytes = larger
            self.header_capacity = size
        return 0

    # -- output --------------------------------------------------------------------------------------------------------

    def encode(self, int64_t budget, int64_t batch_size, int64_t partitions, int64_t now_ms, choose):
        """Put the checked rows into batches, within ``budget`` bytes; returns how many bytes were used.

A batch holds ``batch_size`` bytes, or one record. ``now_ms`` is the timestamp of rows without one. A row without a
partition goes to its key's partition out of ``partitions`` or, without a key, to the last result of ``choose()``,
which is called again when a batch is full, or when one would be started after that many bytes. After an exception
``size`` is still correct.
        """
        cdef int64_t before = self.size
        cdef Goal goal
        cdef Row row
        cdef Step step
        goal.size = before + budget
        goal.limit = min(batch_size, <int64_t>MAX_FIELD)
        goal.partitions = partitions
        goal.now_ms = now_ms
        self.is_settled = self.is_settled and self.sticky < partitions
        goal.first_capacity = max(FIRST_CAPACITY, CAPACITIES // max(1, partitions if self.spreads else 1))
        self.reserve_partitions(max(partitions, self.greatest + 1, self.fixed_partition + 1))
        while True:
            step = self.fill(&goal, &row)
            if step == STOP:
                return self.size - before
            if step == STICK:
                self.stick(row.bound, &goal, choose)
            elif step == FINISH:
                self.finish(row.partition)
            else:
                self.make_room(&self.batches[row.partition], row.bound, &goal)

    cdef Step fill(self, Goal* goal, Row* row) noexcept nogil:
        """Put rows into batches until something else has to be done; returns that next step."""
        cdef Batch* batch
        cdef bint is_choice, is_full
        cdef int64_t overhead, used
        cdef int64_t headers_length = 1
        while self.position < self.checked_to:
            self.read_again(self.position, row, goal.now_ms)
            if row.partition < 0:
                row.partition = self.partition_of(row, goal.partitions)
            is_choice = row.partition < 0
            if is_choice:
                if not self.is_settled and not self.may_stay(row.bound, goal):
                    return STICK
                row.partition = self.sticky
            batch = &self.batches[row.partition]
            is_full = is_behind(batch, row.bound, goal)
            overhead = BATCH_OVERHEAD if is_full or not batch.count else 0
            if self.size + overhead + row.bound > goal.size:
                return STOP
            if is_full:
                return FINISH
            if row.bound > batch.capacity - batch.used or row.bound > self.header_capacity and self.header_count:
                return MAKE_ROOM
            if self.header_count:
                headers_length = self.encode_headers(self.position)
            used = overhead + append(batch, row, self.header_bytes, headers_length)
            self.position += 1
            if is_choice:
                self.is_settled = False
            if self.is_simple and not self.spreads:
                used += self.append_more(batch, goal.size - self.size - used, goal)
            self.size += used
            if is_choice:
                self.turn += used
        return STOP

    cdef int64_t append_more(self, Batch* batch, int64_t left, const Goal* goal) noexcept nogil:
        """Append as many of the next rows to the same batch as certainly fit into it and into ``left`` bytes.

Each is a key and a value. Common work is done once; returns the number of bytes.
        """
        cdef Row row
        cdef int64_t before = batch.used
        cdef char* end = batch.data + before + min(left, min(goal.limit - BATCH_OVERHEAD, batch.capacity) - before)
        cdef uint64_t timestamp_delta = zigzag(goal.now_ms - batch.base_timestamp)
        if self.is_plain:
            self.position += self.append_plain(batch, end, timestamp_delta)
        cdef char* at = batch.data + batch.used
        cdef int64_t count = batch.count
        cdef int64_t payload = batch.payload
        cdef int64_t largest = batch.largest_record
        cdef int64_t content
        cdef char* begin
        while self.position < self.checked_to:
            row.value_length = fetch(self.value, self.position, &row.value)
            row.key_length = NULL_FIELD if self.key == NULL else fetch(self.key, self.position, &row.key)
            content = max(row.value_length, 0) + max(row.key_length, 0)
            if MAX_RECORD_OVERHEAD + content > end - at:
                break
            begin = at
            at = put_record(at, &row, <uint64_t>count << 1, timestamp_delta, self.header_bytes, 1)
            largest = max(largest, at - begin)
            payload += content
            count += 1
            self.position += 1
        batch.count = count
        batch.used = at - batch.data
        batch.payload = payload
        batch.largest_record = largest
        return batch.used - before

    cdef int64_t append_plain(self, Batch* batch, const char* end, uint64_t timestamp_delta) noexcept nogil:
        cdef const char* data = self.value.data
        cdef int64_t at = self.position + self.value.offset
        cdef int64_t rows = self.checked_to - self.position
        if self.value.kind == OFFSETS_32:
            return append_values(batch, <const int32_t*>self.value.numbers + at, data, rows, end, timestamp_delta)
        return append_values(batch, <const int64_t*>self.value.numbers + at, data, rows, end, timestamp_delta)

    cdef inline bint may_stay(self, int64_t bound, const Goal* goal) noexcept nogil:
        """Whether a row that may go anywhere goes to the same partition as the last one."""
        cdef const Batch* batch
        if not 0 <= self.sticky < goal.partitions:
            return False
        batch = &self.batches[self.sticky]
        return not is_behind(batch, bound, goal) if batch.count else self.turn < max(goal.limit, 1)

    cdef int stick(self, int64_t bound, Goal* goal, object choose) except -1:
        """Choose the partition of a row that may go anywhere."""
        if not 0 <= self.sticky < goal.partitions:
            self.choose(choose)
        elif self.turn >= max(goal.limit, 1) and not self.batches[self.sticky].count:
            self.choose(choose)
        if is_behind(&self.batches[self.sticky], bound, goal):
            self.finish(self.sticky)
            self.choose(choose)
        self.is_settled = True
        return 0

    cdef int choose(self, object choose) except -1:
        self.sticky = NO_PARTITION  # so that it is called again if it fails
        self.sticky = choose()
        self.turn = 0
        self.reserve_partitions(self.sticky + 1)
        return 0

    cdef inline int64_t partition_of(self, const Row* row, int64_t partitions) noexcept nogil:
        """The partition, if it is not a free choice."""
        if self.fixed_partition >= 0:
            return self.fixed_partition
        if row.key_length < 0 or self.ignore_keys:
            return NO_PARTITION
        return <int64_t>(murmur2_bytes(<const unsigned char*>row.key, row.key_length) & 0x7FFFFFFF) % partitions

    cdef int reserve_partitions(self, int64_t count) except -1:
        cdef Batch* batches
        if count <= self.partitions:
            return 0
        batches = <Batch*>PyMem_Realloc(self.batches, count * sizeof(Batch))
        if batches == NULL:
            raise MemoryError
        memset(batches + self.partitions, 0, (count - self.partitions) * sizeof(Batch))
        self.batches = batches
        self.partitions = count
        return 0

    cdef int make_room(self, Batch* batch, int64_t bound, const Goal* goal) except -1:
        """Move the records into a larger body, up to the size of a full batch.

Bodies of one size can be reused; malloc would get larger ones from the kernel each time.
        """
        cdef int64_t capacity = 4 * batch.capacity if batch.capacity else goal.first_capacity
        cdef bytes body
        if self.header_count:
            self.reserve_headers(bound)
        if bound <= batch.capacity - batch.used:
            return 0
        capacity = max(min(capacity, goal.limit - BATCH_OVERHEAD), batch.used + bound)
        body = self.bodies.take(capacity, 4 * capacity)
        if body is None:
            body = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>capacity)
        if batch.used:
            memcpy(PyBytes_AS_STRING(body), batch.data, batch.used)
        Py_INCREF(body)
        Py_XDECREF(batch.body)
        batch.body = <PyObject*>body
        batch.data = PyBytes_AS_STRING(body)
        batch.capacity = len(body)
        return 0

    cdef int finish(self, int64_t partition) except -1:
        """Close this batch for further records."""
        cdef Batch* batch = &self.batches[partition]
        cdef RecordBatchBuilder builder = RecordBatchBuilder.__new__(RecordBatchBuilder)
        builder._body = <bytes>batch.body
        builder._data = batch.data
        builder._used = <Py_ssize_t>batch.used
        builder._capacity = <Py_ssize_t>batch.capacity
        builder.size = batch.used + BATCH_OVERHEAD
        builder.count = <int>batch.count
        builder.base_timestamp = batch.base_timestamp
        builder.max_timestamp = batch.max_timestamp
        builder.largest_record = batch.largest_record
        self.full.append((partition, builder, batch.payload))
        Py_XDECREF(batch.body)
        memset(batch, 0, sizeof(Batch))
        self.bodies.keep(builder)
        return 0

    def take_full(self):
        """The full batches, as (partition, builder, bytes of keys and values)."""
        full, self.full = self.full, []
        self.size -= sum([builder.size for _, builder, _ in full])
        return full

    def take_all(self):
        """All batches, full or not."""
        for partition in range(self.partitions):
            if self.batches[partition].count:
                self.finish(partition)
        return self.take_full()


cdef inline bint list_bounds(const Column* column, int64_t row, int64_t* begin, int64_t* end) noexcept nogil:
    """The bounds of the row's list, empty if it is null; returns whether they are valid."""
    cdef int64_t at = row + column.offset
    begin[0] = end[0] = 0
    if is_null(column, at):
        return True
    if column.kind == LIST_32:
        begin[0] = (<const int32_t*>column.numbers)[at]
        end[0] = (<const int32_t*>column.numbers)[at + 1]
    else:
        begin[0] = (<const int64_t*>column.numbers)[at]
        end[0] = (<const int64_t*>column.numbers)[at + 1]
    return 0 <= begin[0] <= end[0] <= column.first.length
