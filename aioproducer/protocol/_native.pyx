# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: binding=False, embedsignature=False
"""Writes and reads structs in native code, field by field: the twin of ``compiler``, which is the reference.

It handles the messages' usual form. Everything else (tagged fields, values of unusual types, invalid bytes) is left to the
function that ``compiler`` creates, which starts from the beginning, so that the twins cannot differ there, least of all in
their errors.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_CheckExact, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.list cimport PyList_CheckExact, PyList_GET_ITEM, PyList_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.object cimport PyTypeObject
from cpython.tuple cimport PyTuple_CheckExact
from cpython.unicode cimport PyUnicode_CheckExact, PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from functools import cache

from aioproducer.protocol import compiler, wire

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*) except NULL
    object PyType_GenericAlloc(PyTypeObject*, Py_ssize_t)

__all__ = ["compile_decoder", "compile_encoder"]

cdef enum:
    MAX_STRING = 0x7FFF
    MAX_LENGTH = 0x7FFFFFFF
    FIRST_CAPACITY = 256


cdef enum Kind:
    SIGNED
    UNSIGNED
    BOOL
    FLOAT64
    UUID
    TEXT
    BLOB
    RECORDS
    LIST
    STRUCT


cdef dict _FIXED = {
    "?": BOOL, "b": SIGNED, "h": SIGNED, "i": SIGNED, "q": SIGNED, "H": UNSIGNED, "I": UNSIGNED, "d": FLOAT64, "16s": UUID
}


class _Unusual(Exception):
    """Something that the other twin handles."""


cdef class Type:
    """The type of a value, in one version.

    ``size`` is that of a fixed-size value, or of the length before it: 0 for a varint. ``least`` is the size of the
    shortest element of a list.
    """

    cdef Kind kind
    cdef Py_ssize_t size
    cdef Py_ssize_t least
    cdef bint nullable
    cdef Type element
    cdef StructCodec struct


cdef class Slot:
    """A field, and the slot of its struct."""

    cdef str attribute
    cdef Type type
    cdef object default
    cdef object factory


cdef struct Input:
    const uint8_t* data
    Py_ssize_t at
    Py_ssize_t end


cdef class Output:
    """The output: a growing buffer, and finished pieces."""

    cdef uint8_t* data
    cdef Py_ssize_t used
    cdef Py_ssize_t capacity
    cdef list pieces

    def __cinit__(self):
        self.pieces = []

    def __dealloc__(self):
        PyMem_Free(self.data)

    cdef uint8_t* room(self, Py_ssize_t size) except NULL:
        """Reserve the next bytes, which count as written."""
        cdef uint8_t* larger
        cdef Py_ssize_t capacity
        if self.used + size >= self.capacity:  # >=, so that there is always room
            capacity = max(2 * self.capacity, self.used + size + 1, FIRST_CAPACITY)
            larger = <uint8_t*>PyMem_Realloc(self.data, capacity)
            if larger == NULL:
                raise MemoryError
            self.data = larger
            self.capacity = capacity
        self.used += size
        return self.data + self.used - size

    cdef int put(self, const void* data, Py_ssize_t size) except -1:
        memcpy(self.room(size), data, size)
        return 0

    cdef int put_number(self, uint64_t value, Py_ssize_t size) except -1:
        cdef uint8_t* to = self.room(size)
        while size:
            size -= 1
            to[size] = <uint8_t>value
            value >>= 8
        return 0

    cdef int put_uvarint(self, uint64_t value) except -1:
        while value > 0x7F:
            self.room(1)[0] = <uint8_t>(value & 0x7F | 0x80)
            value >>= 7
        self.room(1)[0] = <uint8_t>value
        return 0


cdef class StructCodec:
    """Writes and reads a struct in one version."""

    cdef object cls
    cdef bint flexible
    cdef list plain
    cdef list tagged
    cdef list absent
    cdef object encode_otherwise
    cdef object decode_otherwise

    def __cinit__(self, cls):
        if not isinstance(cls, type):  # creating an instance does not check again
            raise TypeError(f"{cls!r} is not a class.")
        self.cls = cls

    def encode(self, struct, buffer, pieces):
        """Write the struct: (struct, buffer, finished pieces). The buffer holds what is not in the pieces yet."""
        if PyByteArray_CheckExact(buffer) and PyList_CheckExact(pieces) and self.try_write(struct, buffer, pieces):
            return
        self.encode_otherwise(struct, buffer, pieces)

    def decode(self, data, Py_ssize_t position, Py_ssize_t end):
        """Read a struct: (data, position, end) to (struct, position after it)."""
        if PyBytes_CheckExact(data) and 0 <= position <= end <= PyBytes_GET_SIZE(data):
            found = self.try_read(data, position, end)
            if found is not None:
                return found
        return self.decode_otherwise(data, position, end)

    # The other twin is called after the exception is handled, not during that: it would be the context of what is raised then.

    cdef bint try_write(self, struct, bytearray buffer, list pieces) except -1:
        """Whether the struct was written. If not, nothing was written."""
        cdef Output out = Output()
        out.put(PyByteArray_AS_STRING(buffer), PyByteArray_GET_SIZE(buffer))
        try:
            self.write(struct, out)
        except (_Unusual, AttributeError, UnicodeEncodeError):
            return False
        buffer[:] = PyBytes_FromStringAndSize(<char*>out.data, out.used)  # first, because it may raise
        pieces.extend(out.pieces)
        return True

    cdef tuple try_read(self, bytes data, Py_ssize_t position, Py_ssize_t end):
        """The struct and the position after it, or None if the other twin must read it."""
        cdef Input source
        source.data = <const uint8_t*>PyBytes_AS_STRING(data)
        source.at = position
        source.end = end
        try:
            struct = self.read(&source, data)
        except (_Unusual, UnicodeDecodeError):
            return None
        return struct, source.at

    # -- writing -------------------------------------------------------------------------------------------------------

    cdef int write(self, struct, Output out) except -1:
        cdef Slot slot
        for slot in self.plain:
            write_value(slot.type, getattr(struct, slot.attribute), out)
        if self.flexible:
            for slot in self.tagged:
                value = getattr(struct, slot.attribute)
                if value is not slot.default and value != slot.default:
                    raise _Unusual
            out.room(1)[0] = 0
        return 0

    # -- reading -------------------------------------------------------------------------------------------------------

    cdef object read(self, Input* source, bytes data):
        cdef Slot slot
        struct = PyType_GenericAlloc(<PyTypeObject*>self.cls, 0)
        for slot in self.absent:
            setattr(struct, slot.attribute, slot.default if slot.factory is None else slot.factory())
        for slot in self.plain:
            setattr(struct, slot.attribute, read_value(slot.type, source, data))
        if self.flexible and next_bytes(source, 1)[0]:
            raise _Unusual
        return struct


cdef int write_value(Type type, value, Output out) except -1:
    cdef Kind kind = type.kind
    if kind == SIGNED or kind == UNSIGNED:
        return write_integer(type, value, out)
    if kind == TEXT:
        return write_text(type, value, out)
    if kind == LIST:
        return write_list(type, value, out)
    if kind == STRUCT:
        return type.struct.write(value, out)
    if kind == RECORDS:
        return write_records(type, value, out)
    return write_other(type, value, out)


cdef int write_integer(Type type, value, Output out) except -1:
    cdef int overflow = 0
    cdef int64_t number, bound
    if not PyLong_CheckExact(value):
        raise _Unusual
    number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow:
        raise _Unusual
    if type.kind == UNSIGNED:
        if number < 0 or number >> (8 * type.size):
            raise _Unusual
    elif type.size < 8:
        bound = <int64_t>1 << (8 * type.size - 1)
        if not -bound <= number < bound:
            raise _Unusual
    return out.put_number(<uint64_t>number, type.size)


cdef int write_text(Type type, value, Output out) except -1:
    cdef Py_ssize_t length
    cdef const char* text
    if value is None and type.nullable:
        return write_length(type, -1, out)
    if not PyUnicode_CheckExact(value):
        raise _Unusual
    text = PyUnicode_AsUTF8AndSize(value, &length)
    if length > MAX_STRING:
        raise _Unusual
    write_length(type, length, out)
    return out.put(text, length)


cdef int write_list(Type type, value, Output out) except -1:
    cdef Py_ssize_t index, count
    if value is None and type.nullable:
        return write_length(type, -1, out)
    if not PyList_CheckExact(value):
        raise _Unusual
    count = PyList_GET_SIZE(value)
    write_length(type, count, out)
    for index in range(count):
        if index >= PyList_GET_SIZE(value):  # the list was changed in the meantime
            raise _Unusual
        item = <object>PyList_GET_ITEM(value, index)  # the variable keeps it alive until it is written, whatever happens to the list
        write_value(type.element, item, out)
    return 0


cdef int write_records(Type type, value, Output out) except -1:
    cdef Py_ssize_t size, length = 0
    if value is None and type.nullable:
        return write_length(type, -1, out)
    if PyBytes_CheckExact(value):
        value = (value,)
    elif not (PyList_CheckExact(value) or PyTuple_CheckExact(value)):
        raise _Unusual
    for piece in value:
        size = len(piece)
        if size > MAX_LENGTH - length:
            raise _Unusual
        length += size
    write_length(type, length, out)
    out.pieces.append(PyBytes_FromStringAndSize(<char*>out.data, out.used))
    out.pieces.extend(value)
    out.used = 0
    return 0


cdef int write_other(Type type, value, Output out) except -1:
    cdef Kind kind = type.kind
    cdef double number
    cdef uint64_t bits
    if kind == BOOL and (value is True or value is False):
        out.room(1)[0] = value is True
        return 0
    if kind == FLOAT64 and PyFloat_CheckExact(value):
        number = PyFloat_AS_DOUBLE(value)
        memcpy(&bits, &number, sizeof(bits))
        return out.put_number(bits, sizeof(bits))
    if kind == UUID:
        value = value.bytes
        if not PyBytes_CheckExact(value) or PyBytes_GET_SIZE(value) != 16:
            raise _Unusual
        return out.put(PyBytes_AS_STRING(value), 16)
    if kind == BLOB:
        if value is None and type.nullable:
            return write_length(type, -1, out)
        if PyBytes_CheckExact(value):
            write_length(type, PyBytes_GET_SIZE(value), out)
            return out.put(PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
    raise _Unusual


cdef int write_length(Type type, Py_ssize_t length, Output out) except -1:
    """The length of a text, a list or bytes; -1 for null."""
    if length > MAX_LENGTH:
        raise _Unusual
    if not type.size:
        return out.put_uvarint(<uint64_t>(length + 1))
    return out.put_number(<uint64_t>length, type.size)


cdef object read_value(Type type, Input* source, bytes data):
    cdef Kind kind = type.kind
    cdef Py_ssize_t length
    cdef uint64_t bits
    cdef double number
    if kind == SIGNED:
        bits = read_number(source, type.size)
        return <int64_t>(bits << (64 - 8 * type.size)) >> (64 - 8 * type.size)
    if kind == STRUCT:
        return type.struct.read(source, data)
    if kind == UNSIGNED:
        return read_number(source, type.size)
    if kind == BOOL:
        return next_bytes(source, 1)[0] != 0
    if kind == FLOAT64:
        bits = read_number(source, 8)
        memcpy(&number, &bits, sizeof(bits))
        return number
    if kind == UUID:
        return wire.to_uuid(PyBytes_FromStringAndSize(<const char*>next_bytes(source, 16), 16))
    length = read_length(type, source)
    if length < 0:
        if length == -1 and type.nullable:
            return None
        raise _Unusual
    if kind == LIST:
        return read_list(type, length, source, data)
    if kind == TEXT:
        if length > MAX_STRING:
            raise _Unusual
        return PyUnicode_DecodeUTF8(<char*>next_bytes(source, length), length, NULL)
    next_bytes(source, length)
    if kind == RECORDS:
        return memoryview(data)[source.at - length : source.at]
    return PyBytes_FromStringAndSize(<const char*>source.data + source.at - length, length)


cdef list read_list(Type type, Py_ssize_t count, Input* source, bytes data):
    cdef Py_ssize_t index
    cdef Type element = type.element
    cdef list values = []  # grows while reading: the garbage collector could see a gap in it, and a count may be wrong
    if type.least < 1 or count > (source.end - source.at) // type.least:
        raise _Unusual
    for index in range(count):
        values.append(read_value(element, source, data))
    return values


cdef inline const uint8_t* next_bytes(Input* source, Py_ssize_t size) except NULL:
    if size > source.end - source.at:
        raise _Unusual
    source.at += size
    return source.data + source.at - size


cdef uint64_t read_number(Input* source, Py_ssize_t size) except? 0xFEDCBA98:
    cdef const uint8_t* data = next_bytes(source, size)
    cdef uint64_t value = 0
    cdef Py_ssize_t index
    for index in range(size):
        value = value << 8 | data[index]
    return value


cdef Py_ssize_t read_length(Type type, Input* source) except? -2:
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    if type.size > 0:
        value = read_number(source, type.size)
        return <Py_ssize_t>(<int64_t>(value << (64 - 8 * type.size)) >> (64 - 8 * type.size))
    while shift < 35:
        byte = next_bytes(source, 1)[0]
        value |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                raise _Unusual
            return <Py_ssize_t>value - 1
        shift += 7
    raise _Unusual


# -- created from the declaration -----------------------------------------------------------------------------------------


@cache
def _codec(cls, version, flexible):
    cdef StructCodec codec = StructCodec(cls)
    plain, tagged = compiler.fields_of(cls, version)
    codec.flexible = flexible
    codec.plain = [_slot(field, version, flexible) for field in plain]
    codec.tagged = [_slot(field, version, flexible) for field in tagged]
    codec.absent = [_slot(field, version, flexible) for field in cls.__struct_fields__ if field not in plain]
    codec.encode_otherwise = compiler.compile_encoder(cls, version, flexible)
    codec.decode_otherwise = compiler.compile_decoder(cls, version, flexible)
    return codec


cdef Slot _slot(field, version, flexible):
    cdef Slot slot = Slot()
    slot.attribute = field.attribute
    slot.type = _type(field.type, version, flexible, field.is_nullable(version))
    slot.default = compiler.default_of(field) if field.tag is not None or not field.is_in(version) else None
    slot.factory = field.factory
    return slot


cdef Type _type(declared, version, flexible, nullable):
    cdef Type type = Type()
    type.nullable = nullable
    if isinstance(declared, wire.Fixed):
        type.kind = _FIXED[declared.code]
        type.size = declared.size
    elif isinstance(declared, wire.Text):
        type.kind = TEXT
        type.size = 0 if flexible else 2
    elif isinstance(declared, wire.Blob):
        type.kind = RECORDS if declared.is_records else BLOB
        type.size = 0 if flexible else 4
    elif isinstance(declared, compiler.ListOf):
        type.kind = LIST
        type.size = 0 if flexible else 4
        type.least = compiler.least_size(declared.element, version, flexible)
        type.element = _type(declared.element, version, flexible, False)
    else:
        type.kind = STRUCT
        type.struct = _codec(declared, version, flexible)
    return type


def compile_encoder(cls, version, flexible):
    """The function that writes a struct in one version."""
    return _codec(cls, version, flexible).encode


def compile_decoder(cls, version, flexible):
    """The function that reads a struct of one version; fields that this version does not have get their defaults."""
    return _codec(cls, version, flexible).decode
