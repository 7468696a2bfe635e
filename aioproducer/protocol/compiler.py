"""Compiles the declaration of a struct, for one version, to a function that writes it and one that reads it.

The functions are generated as source text and compiled once per struct and version, on first use. Interpreting the
declaration for each message would be simpler and some five times slower; Produce is on the path of every record. Adjacent
fields of fixed length become a single call of ``struct``.

Names in the source text: ``o`` the struct, ``b`` the buffer being written, ``out`` the finished pieces, ``d`` the data being
read, ``p`` the position and ``n`` the end in it, ``k`` a length, ``e`` where it ends, ``v`` a value, ``x`` an element,
``a`` with a number an array.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

from aioproducer.errors import ProtocolError
from aioproducer.protocol import wire
from aioproducer.protocol.wire import Blob, Fixed, Text, WireType

__all__ = [
    "MISSING",
    "Decoder",
    "Encoder",
    "Field",
    "FieldType",
    "ListOf",
    "compile_decoder",
    "compile_encoder",
    "compile_init",
    "default_of",
    "fields_of",
    "least_size",
]

#: Means that no default was declared, because None is a value.
MISSING: Final = object()

#: Writes a struct: (struct, buffer, finished pieces). The buffer holds what is not in the pieces yet.
Encoder: TypeAlias = Callable[[Any, bytearray, list[Any]], None]

#: Reads a struct: (data, position, end) to (struct, position after it).
Decoder: TypeAlias = Callable[[bytes, int, int], tuple[Any, int]]


class ListOf(NamedTuple):
    """An array; ``element`` is a wire type or the class of a struct."""

    element: FieldType
    nullable: bool = False


#: A struct's class represents itself.
FieldType: TypeAlias = WireType | ListOf | type[Any]


class Field(NamedTuple):
    """One field of a struct, in all versions.

    It exists from version ``since`` to ``until``. With a ``tag`` it is written only if it differs from its default. Null is
    allowed from version ``nullable_since`` on, if the type has a null at all.
    """

    name: str
    type: FieldType
    since: int = 0
    until: int = 0x7FFF
    tag: int | None = None
    nullable_since: int = 0
    default: Any = MISSING
    factory: Callable[[], Any] | None = None

    @property
    def attribute(self) -> str:
        """The name of its attribute: records are stored as given, behind a property that joins the pieces."""
        return f"_{self.name}" if isinstance(self.type, Blob) and self.type.is_records else self.name

    @property
    def is_required(self) -> bool:
        """Whether the constructor requires it."""
        return self.default is MISSING and self.factory is None

    def is_in(self, version: int) -> bool:
        """Whether a version has this field."""
        return self.since <= version <= self.until

    def is_nullable(self, version: int) -> bool:
        """Whether it may be null in a version."""
        return not isinstance(self.type, Fixed | type) and self.type.nullable and version >= self.nullable_since


def compile_init(cls: type[Any], fields: Sequence[Field]) -> Callable[..., None]:
    """The ``__init__`` of a struct, with keywords only."""
    code = _Code()
    parameters = ["self"] + ["*"] * bool(fields)
    for field in fields:
        if field.is_required:
            parameters.append(field.name)
            code.line(f"self.{field.attribute} = {field.name}")
        elif field.factory is None:
            parameters.append(f"{field.name}={code.constant(field.default)}")
            code.line(f"self.{field.attribute} = {field.name}")
        else:
            missing = code.constant(MISSING)
            parameters.append(f"{field.name}={missing}")
            make = code.constant(field.factory)
            code.line(f"self.{field.attribute} = {make}() if {field.name} is {missing} else {field.name}")
    code.line("pass")
    return code.compile("__init__", parameters, cls)


@cache
def compile_encoder(cls: type[Any], version: int, flexible: bool) -> Encoder:
    """The function that writes a struct in one version."""
    plain, tagged = fields_of(cls, version)
    writer = _Writer(version, flexible)
    for field in plain:
        writer.field(field)
    if flexible and tagged:
        writer.tagged(tagged)
    elif flexible:
        writer.fixed("x", None)
    return writer.compile(cls)


@cache
def compile_decoder(cls: type[Any], version: int, flexible: bool) -> Decoder:
    """The function that reads a struct of one version; fields that this version does not have get their defaults."""
    plain, tagged = fields_of(cls, version)
    reader = _Reader(version, flexible)
    reader.make(cls)
    for field in cls.__struct_fields__:
        if field not in plain:
            reader.default(field)
    for field in plain:
        reader.field(field)
    if flexible:
        reader.tagged(cls, tagged)
    return reader.compile(cls)


def fields_of(cls: type[Any], version: int) -> tuple[list[Field], list[Field]]:
    """The fields of a version: those without a tag, and those with one, sorted by tag."""
    present = [field for field in cls.__struct_fields__ if field.is_in(version)]
    plain = [field for field in present if field.tag is None]
    return plain, sorted((field for field in present if field.tag is not None), key=lambda field: field.tag or 0)


class _Code:
    """Lines of Python, and the values that they refer to."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._names: dict[str, Any] = {}
        self.depth = 1

    def line(self, text: str) -> None:
        self._lines.append("    " * self.depth + text)

    @contextmanager
    def block(self, head: str) -> Generator[None]:
        self.line(head)
        self.depth += 1
        yield
        self.depth -= 1

    def constant(self, value: Any) -> str:
        """A name for a value in the text."""
        for name, known in self._names.items():
            if known is value:
                return name
        name = f"c{len(self._names)}"
        self._names[name] = value
        return name

    def compile(self, name: str, parameters: Sequence[str], cls: type[Any]) -> Callable[..., Any]:
        source = "\n".join([f"def {name}({', '.join(parameters)}):", *self._lines])
        scope: dict[str, Any] = dict(self._names)
        exec(compile(source, f"<{name} of {cls.__name__}>", "exec"), scope)
        function: Callable[..., Any] = scope[name]
        function.__qualname__ = f"{cls.__qualname__}.{name}"
        function.__module__ = cls.__module__
        return function


class _Writer:
    """Generates the source of an encoder, field by field."""

    def __init__(self, version: int, flexible: bool) -> None:
        self._version = version
        self._flexible = flexible
        self._code = _Code()
        self._run: list[tuple[str, str | None]] = []  # fields of fixed length that are not written yet

    def field(self, field: Field) -> None:
        self._value(field.type, f"o.{field.attribute}", field.is_nullable(self._version))

    def fixed(self, code: str, value: str | None) -> None:
        self._run.append((code, f"{value}.bytes" if code == wire.UUID.code else value))

    def tagged(self, fields: Sequence[Field]) -> None:
        """Write the tagged fields that differ from their defaults, each with its size before it."""
        self._flush()
        code = self._code
        uvarint = code.constant(wire.write_uvarint)
        code.line("whole, tags, b = b, bytearray(), bytearray()")
        code.line("count = 0")
        for field in fields:
            default = code.constant(default_of(field))
            with code.block(f"if o.{field.attribute} != {default}:"):
                self.field(field)
                self._flush()
                code.line("count += 1")
                code.line(f"{uvarint}(tags, {field.tag})")
                code.line(f"{uvarint}(tags, len(b))")
                code.line("tags += b")
                code.line("b.clear()")
        code.line(f"{uvarint}(whole, count)")
        code.line("whole += tags")

    def compile(self, cls: type[Any]) -> Encoder:
        self._flush()
        self._code.line("return None")
        return self._code.compile("encode", ["o", "b", "out"], cls)

    def _value(self, type_: FieldType, value: str, nullable: bool) -> None:
        if isinstance(type_, Fixed):
            self.fixed(type_.code, value)
            return
        self._flush()
        if not isinstance(type_, Text | Blob | ListOf):
            encode = self._code.constant(compile_encoder(_struct_class(type_), self._version, self._flexible))
            self._code.line(f"{encode}({value}, b, out)")
            return
        self._code.line(f"v = {value}")
        if not nullable:
            self._present(type_)
            return
        with self._code.block("if v is None:"):
            self._null(type_)
        with self._code.block("else:"):
            self._present(type_)

    def _present(self, type_: Text | Blob | ListOf) -> None:
        if isinstance(type_, Text):
            self._text(type_)
        elif isinstance(type_, ListOf):
            self._list(type_)
        elif type_.is_records:
            self._records(type_)
        else:
            self._code.line("k = len(v)")
            self._length(type_)
            self._code.line("b += v")

    def _text(self, type_: Text) -> None:
        self._code.line("v = v.encode()")
        self._code.line("k = len(v)")
        refuse = self._code.constant(wire.refuse_text)
        self._code.line(f"if k > {wire.MAX_STRING}: {refuse}(k)")
        self._length(type_)
        self._code.line("b += v")

    def _records(self, type_: Blob) -> None:
        with self._code.block("if isinstance(v, (bytes, bytearray, memoryview)):"):
            self._code.line("v = (v,)")
        self._code.line("k = sum([len(x) for x in v])")
        self._length(type_)
        self._code.line("out.append(bytes(b))")
        self._code.line("b.clear()")
        self._code.line("out.extend(v)")

    def _list(self, type_: ListOf) -> None:
        self._code.line("k = len(v)")
        self._length(type_)
        element = type_.element
        if isinstance(element, Fixed) and element is not wire.UUID:
            pack = self._code.constant(struct.pack)
            self._code.line(f"b += {pack}('>%d{element.code}' % len(v), *v)")
            return
        with self._code.block("for x in v:"):
            self._value(element, "x", nullable=False)
            self._flush()

    def _length(self, type_: Text | Blob | ListOf) -> None:
        if not self._flexible:
            self._code.line(f"b += {self._pack(_length_code(type_))}(k)")
            return
        self._code.line("k += 1")
        self._code.line("if k < 128: b.append(k)")
        self._code.line(f"else: {self._code.constant(wire.write_uvarint)}(b, k)")

    def _null(self, type_: Text | Blob | ListOf) -> None:
        null = b"\0" if self._flexible else b"\xff" * struct.calcsize(_length_code(type_))
        self._code.line(f"b += {null!r}")

    def _flush(self) -> None:
        if not self._run:
            return
        pack = self._pack("".join(code for code, _ in self._run))
        values = [value for _, value in self._run if value is not None]
        self._code.line(f"b += {pack}({', '.join(values)})" if values else "b.append(0)")
        self._run.clear()

    def _pack(self, codes: str) -> str:
        return self._code.constant(_struct(codes).pack)


class _Reader:
    """Generates the source of a decoder, field by field."""

    def __init__(self, version: int, flexible: bool) -> None:
        self._version = version
        self._flexible = flexible
        self._code = _Code()
        self._run: list[tuple[Fixed, str]] = []  # fields of fixed length that are not read yet, and their targets

    def make(self, cls: type[Any]) -> None:
        self._code.line(f"o = {self._code.constant(object.__new__)}({self._code.constant(cls)})")

    def default(self, field: Field) -> None:
        """Set the default of a field that is, or may be, absent."""
        value = self._code.constant(default_of(field) if field.factory is None else field.factory)
        self._code.line(f"o.{field.attribute} = {value}{'()' if field.factory is not None else ''}")

    def field(self, field: Field) -> None:
        self._value(field.type, f"o.{field.attribute}", field.name, field.is_nullable(self._version))

    def tagged(self, cls: type[Any], fields: Sequence[Field]) -> None:
        """Read the tagged fields; almost always a single byte says that there are none."""
        self._run.append((Fixed("B"), "t"))
        self._flush()
        readers = {field.tag: _compile_tag_reader(cls, field, self._version) for field in fields}
        self._code.line(f"if t: p = {self._code.constant(_read_tags)}(o, d, p - 1, n, {self._code.constant(readers)})")

    def compile(self, cls: type[Any]) -> Decoder:
        self._flush()
        self._code.line("return o, p")
        return self._code.compile("decode", ["d", "p", "n"], cls)

    def compile_tag(self, cls: type[Any], field: Field) -> Callable[..., int]:
        self.field(field)
        self._flush()
        self._code.line("return p")
        return self._code.compile(f"decode_{field.name}", ["o", "d", "p", "n"], cls)

    def _value(self, type_: FieldType, target: str, name: str, nullable: bool) -> None:
        if isinstance(type_, Fixed):
            self._run.append((type_, target))
            return
        self._flush()
        if not isinstance(type_, Text | Blob | ListOf):
            decode = self._code.constant(compile_decoder(_struct_class(type_), self._version, self._flexible))
            self._code.line(f"{target}, p = {decode}(d, p, n)")
            return
        self._length(type_)
        with self._code.block("if k < 0:"):
            if nullable:
                self._code.line(f"if k != -1: {self._code.constant(wire.refuse_null)}(k, {name!r})")
                self._code.line(f"{target} = None")
            else:
                self._code.line(f"{self._code.constant(wire.refuse_null)}(k, {name!r})")
        with self._code.block("else:"):
            self._present(type_, target, name)

    def _present(self, type_: Text | Blob | ListOf, target: str, name: str) -> None:
        if isinstance(type_, ListOf):
            self._list(type_, target, name)
            return
        self._code.line("e = p + k")
        self._code.line(f"if e > n: {self._code.constant(wire.refuse_length)}(k, n - p)")
        if isinstance(type_, Text):
            self._code.line(f"if k > {wire.MAX_STRING}: {self._code.constant(wire.refuse_text)}(k)")
            self._code.line(f"{target} = d[p:e].decode()")
        elif type_.is_records:
            self._code.line(f"{target} = {self._code.constant(memoryview)}(d)[p:e]")
        else:
            self._code.line(f"{target} = d[p:e]")
        self._code.line("p = e")

    def _list(self, type_: ListOf, target: str, name: str) -> None:
        element = type_.element
        least = least_size(element, self._version, self._flexible)
        self._code.line(f"if k * {least} > n - p: {self._code.constant(wire.refuse_count)}(k, n - p)")
        if isinstance(element, Fixed) and element is not wire.UUID:
            unpack = self._code.constant(struct.unpack_from)
            self._code.line(f"{target} = list({unpack}('>%d{element.code}' % k, d, p))")
            self._code.line(f"p += k * {least}")
            return
        array = f"a{self._code.depth}"  # a separate name for each nested array
        self._code.line(f"{array} = []")
        with self._code.block("for _ in range(k):"):
            self._value(element, "x", f"an element of {name}", nullable=False)
            self._flush()
            self._code.line(f"{array}.append(x)")
        self._code.line(f"{target} = {array}")

    def _length(self, type_: Text | Blob | ListOf) -> None:
        if not self._flexible:
            code = _length_code(type_)
            self._code.line(f"k, = {self._unpack(code)}(d, p)")
            self._code.line(f"p += {struct.calcsize(code)}")
            return
        self._code.line("k = d[p]")
        self._code.line("p += 1")
        self._code.line(f"if k > 127: k, p = {self._code.constant(wire.read_uvarint)}(d, p - 1)")
        self._code.line("k -= 1")

    def _flush(self) -> None:
        if not self._run:
            return
        codes = "".join(type_.code for type_, _ in self._run)
        self._code.line(f"{', '.join(target for _, target in self._run)}, = {self._unpack(codes)}(d, p)")
        self._code.line(f"p += {_struct(codes).size}")
        for type_, target in self._run:
            if type_ is wire.UUID:
                self._code.line(f"{target} = {self._code.constant(wire.to_uuid)}({target})")
        self._run.clear()

    def _unpack(self, codes: str) -> str:
        return self._code.constant(_struct(codes).unpack_from)


def _compile_tag_reader(cls: type[Any], field: Field, version: int) -> Callable[..., int]:
    return _Reader(version, flexible=True).compile_tag(cls, field)


def _read_tags(struct_: Any, data: bytes, position: int, end: int, readers: dict[int, Callable[..., int]]) -> int:
    """Read the known tagged fields, and skip unknown ones (of a newer peer)."""
    count, position = wire.read_uvarint(data, position)
    if count * 2 > end - position:  # a tag and a size, at least a byte each
        wire.refuse_count(count, end - position)
    for _ in range(count):
        tag, position = wire.read_uvarint(data, position)
        size, position = wire.read_uvarint(data, position)
        behind = position + size
        if behind > end:
            wire.refuse_length(size, end - position)
        read = readers.get(tag)
        if read is not None and read(struct_, data, position, behind) != behind:
            raise ProtocolError(f"the field with tag {tag} does not have its announced {size} bytes")
        position = behind
    return position


def _struct_class(type_: type[Any]) -> Any:
    return type_  # Any, because mypy does not accept a narrowed type[Any] as hashable


def default_of(field: Field) -> Any:
    """The default of a field that is absent."""
    if field.factory is not None:
        return field.factory()
    if field.default is MISSING:
        raise TypeError(f"{field.name} needs a default: not every version has it.")
    return field.default


def _length_code(type_: Text | Blob | ListOf) -> str:
    return ">h" if isinstance(type_, Text) else ">i"


def least_size(type_: FieldType, version: int, flexible: bool) -> int:
    """The minimum size of a value in bytes: limits the number of elements that an array of given data can have."""
    if isinstance(type_, Fixed):
        return type_.size
    if isinstance(type_, type):
        plain, _ = fields_of(type_, version)
        return sum(least_size(field.type, version, flexible) for field in plain) + flexible
    return 1 if flexible else struct.calcsize(_length_code(type_))


@cache
def _struct(codes: str) -> struct.Struct:
    return struct.Struct(codes if codes.startswith(">") else f">{codes}")
