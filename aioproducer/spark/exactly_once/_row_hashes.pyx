# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: binding=False, embedsignature=False
"""Row hashes in native code: the twin of ``_row_hashes_pure``, which defines the result.

It reads the buffers of pyarrow arrays through Python's buffer protocol, and runs without the GIL. The hash is XXH64 as
specified.
"""

from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from importlib import import_module

__all__ = ["sum_of_hashes"]


# -- XXH64 -------------------------------------------------------------------------------------------------------------

cdef uint64_t P1 = 0x9E3779B185EBCA87u
cdef uint64_t P2 = 0xC2B2AE3D27D4EB4Fu
cdef uint64_t P3 = 0x165667B19E3779F9u
cdef uint64_t P4 = 0x85EBCA77C2B2AE63u
cdef uint64_t P5 = 0x27D4EB2F165667C5u


cdef inline uint64_t rotate(uint64_t value, int bits) noexcept nogil:
    return (value << bits) | (value >> (64 - bits))


cdef inline uint64_t four(const uint8_t* at) noexcept nogil:
    return <uint64_t>at[0] | <uint64_t>at[1] << 8 | <uint64_t>at[2] << 16 | <uint64_t>at[3] << 24


cdef inline uint64_t eight(const uint8_t* at) noexcept nogil:
    """Eight bytes, little-endian on every machine; compilers turn it into one load."""
    return four(at) | four(at + 4) << 32


cdef inline uint64_t mixed(uint64_t lane, uint64_t value) noexcept nogil:
    return rotate(lane + value * P2, 31) * P1


cdef inline uint64_t merged(uint64_t found, uint64_t lane) noexcept nogil:
    return (found ^ mixed(0, lane)) * P1 + P4


cdef uint64_t xxh64(const uint8_t* at, int64_t length, uint64_t seed) noexcept nogil:
    cdef uint64_t a, b, c, d, found
    cdef int64_t left = length
    if left >= 32:
        a = seed + P1 + P2
        b = seed + P2
        c = seed
        d = seed - P1
        while left >= 32:
            a = mixed(a, eight(at))
            b = mixed(b, eight(at + 8))
            c = mixed(c, eight(at + 16))
            d = mixed(d, eight(at + 24))
            at += 32
            left -= 32
        found = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18)
        found = merged(merged(merged(merged(found, a), b), c), d)
    else:
        found = seed + P5
    found += <uint64_t>length
    while left >= 8:
        found = rotate(found ^ mixed(0, eight(at)), 27) * P1 + P4
        at += 8
        left -= 8
    if left >= 4:
        found = rotate(found ^ four(at) * P1, 23) * P2 + P3
        at += 4
        left -= 4
    while left > 0:
        found = rotate(found ^ at[0] * P5, 11) * P1
        at += 1
        left -= 1
    found = (found ^ found >> 33) * P2
    found = (found ^ found >> 29) * P3
    return found ^ found >> 32


# -- columns -----------------------------------------------------------------------------------------------------------


cdef struct Bytes:
    const uint8_t* validity  # NULL if nothing is null
    const int32_t* ends_32  # one of these two is NULL
    const int64_t* ends_64
    const uint8_t* data
    int64_t offset  # of the first row


cdef class Buffers:
    """Keeps the buffers of an array alive, with their addresses."""

    cdef list kept

    def __cinit__(self):
        self.kept = []

    cdef const uint8_t* pointer(self, buffer) except? NULL:
        if buffer is None or not buffer.size:
            return NULL
        view = memoryview(buffer).cast("B")  # Python's, as Cython's own add 50 KB of code to the module
        self.kept.append(view)
        return <const uint8_t*>PyMemoryView_GET_BUFFER(view).buf

    cdef Bytes of_bytes(self, pa, array) except *:
        cdef Bytes column
        if not (pa.types.is_binary(array.type) or pa.types.is_string(array.type)):
            array = array.cast(pa.large_binary())
        cdef bint is_large = pa.types.is_large_binary(array.type)
        buffers = array.buffers()
        self.kept.append(array)
        column.validity = self.pointer(buffers[0]) if array.null_count else NULL
        ends = self.pointer(buffers[1])
        column.ends_32 = NULL if is_large else <const int32_t*>ends
        column.ends_64 = <const int64_t*>ends if is_large else NULL
        column.data = self.pointer(buffers[2])
        column.offset = array.offset
        return column


cdef inline bint is_null(const uint8_t* validity, int64_t at) noexcept nogil:
    return validity != NULL and not validity[at >> 3] >> (at & 7) & 1


cdef inline uint64_t of_null(uint64_t seed) noexcept nogil:
    return xxh64(NULL, 0, ~seed)


cdef inline uint64_t of_number(int64_t number, uint64_t seed) noexcept nogil:
    cdef uint8_t little[8]
    cdef int index
    for index in range(8):
        little[index] = <uint8_t>(<uint64_t>number >> 8 * index)
    return xxh64(little, 8, seed)


cdef inline uint64_t of_bytes(const Bytes* column, int64_t row, uint64_t seed) noexcept nogil:
    cdef int64_t at = column.offset + row
    cdef int64_t begin, end
    if is_null(column.validity, at):
        return of_null(seed)
    if column.ends_32 != NULL:
        begin, end = column.ends_32[at], column.ends_32[at + 1]
    else:
        begin, end = column.ends_64[at], column.ends_64[at + 1]
    return xxh64(column.data + begin, end - begin, seed)


cdef int add_bytes(uint64_t* hashes, int64_t rows, pa, array) except -1:
    cdef Buffers buffers = Buffers()
    cdef Bytes column = buffers.of_bytes(pa, array)
    cdef int64_t row
    with nogil:
        for row in range(rows):
            hashes[row] = of_bytes(&column, row, hashes[row])
    return 0


cdef int add_numbers(uint64_t* hashes, int64_t rows, array) except -1:
    cdef Buffers buffers = Buffers()
    validity_buffer, numbers_buffer = array.buffers()
    cdef const uint8_t* validity = buffers.pointer(validity_buffer) if array.null_count else NULL
    cdef const int64_t* numbers = <const int64_t*>buffers.pointer(numbers_buffer)
    cdef int64_t offset = array.offset
    cdef int64_t row
    with nogil:
        for row in range(rows):
            if is_null(validity, offset + row):
                hashes[row] = of_null(hashes[row])
            else:
                hashes[row] = of_number(numbers[offset + row], hashes[row])
    return 0


cdef int add_pairs(uint64_t* hashes, int64_t rows, pa, array) except -1:
    """For lists of structs, and for maps, which have the same layout."""
    cdef Buffers buffers = Buffers()
    cdef bint is_large = pa.types.is_large_list(array.type)
    offsets = array.offsets  # of the rows of this slice, into all items
    if pa.types.is_map(array.type):
        names, values = array.keys, array.items
    else:
        names, values = array.values.flatten()
    cdef Bytes name = buffers.of_bytes(pa, names)
    cdef Bytes value = buffers.of_bytes(pa, values)
    cdef const uint8_t* ends = buffers.pointer(offsets.buffers()[1])
    cdef int64_t first = offsets.offset
    cdef const uint8_t* validity = buffers.pointer(array.buffers()[0]) if array.null_count else NULL
    cdef int64_t offset = array.offset
    cdef int64_t row, at, begin, end
    cdef uint64_t found
    with nogil:
        for row in range(rows):
            if is_null(validity, offset + row):
                hashes[row] = of_null(hashes[row])
                continue
            if is_large:
                begin, end = (<const int64_t*>ends)[first + row], (<const int64_t*>ends)[first + row + 1]
            else:
                begin, end = (<const int32_t*>ends)[first + row], (<const int32_t*>ends)[first + row + 1]
            found = hashes[row]
            for at in range(begin, end):
                found = of_bytes(&value, at, of_bytes(&name, at, found))
            hashes[row] = of_number(end - begin, found)
    return 0


def sum_of_hashes(columns, int64_t rows, uint64_t seed):
    """The sum of the hashes of all rows, modulo 2**64."""
    pa = import_module("pyarrow")
    types = pa.types
    cdef uint64_t total = 0
    cdef int64_t row
    cdef uint64_t* hashes = <uint64_t*>malloc((rows or 1) * sizeof(uint64_t))
    if hashes == NULL:
        raise MemoryError
    try:
        for row in range(rows):
            hashes[row] = seed
        for column in columns:
            kind = column.type
            if types.is_map(kind) or types.is_list(kind) or types.is_large_list(kind):
                add_pairs(hashes, rows, pa, column)
            elif types.is_int64(kind) or types.is_float64(kind) or types.is_timestamp(kind):
                add_numbers(hashes, rows, column)
            else:
                add_bytes(hashes, rows, pa, column)
        for row in range(rows):
            total += hashes[row]
    finally:
        free(hashes)
    return total
