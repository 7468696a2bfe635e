"""Reads a record from a line, as kcat and kafka-console-producer do."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple

from aioproducer.cli.verb import Trouble

__all__ = ["READER_PROPERTIES", "BadLine", "Content", "LineFormat", "line_format", "unescape"]

#: An encoding in which each byte is a character.
_ANY_BYTE: Final = "latin-1"


class BadLine(ValueError):
    """The reason why a line is not a record; ``line`` is another one that it holds, if that is at fault.

    ``rules`` are those by which that one was read, as the ``rules`` of its format.
    """

    def __init__(self, reason: str, line: bytes | None = None, rules: Mapping[str, object] | None = None) -> None:
        super().__init__(reason)
        self.line = line
        self.rules = rules


class Content(NamedTuple):
    """The parts of a record that a line has; None where it has none."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LineFormat:
    """The form of lines: ``[HEADERS headers_delimiter] [KEY key_delimiter] VALUE``.

    ``key_delimiter`` and ``headers_delimiter`` are None if there is no such part. ``is_strict``: a line without the
    delimiter is not a record; otherwise it has no key or no headers. ``empty_is_null``: an empty key and value are null in a
    line with a key delimiter, as with kcat's -Z.
    """

    key_delimiter: bytes | None = None
    headers_delimiter: bytes | None = None
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    null_marker: bytes | None = None
    empty_is_null: bool = False
    is_strict: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether each line is a value, unchanged."""
        return self.key_delimiter is None and self.headers_delimiter is None and self.null_marker is None

    @property
    def has_zero_byte(self) -> bool:
        """Whether text of this form has zero bytes."""
        parts = (self.key_delimiter, self.headers_delimiter, self.headers_separator, self.headers_key_separator)
        return any(b"\0" in part for part in parts if part is not None)

    @property
    def rules(self) -> Mapping[str, object]:
        """The form as JSON, for `from_rules`."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            "format": "lines",
            **{name: value.decode(_ANY_BYTE) if isinstance(value, bytes) else value for name, value in given.items()},
        }

    @classmethod
    def from_rules(cls, rules: Mapping[str, object]) -> LineFormat:
        """The form with these rules. Raises KeyError, TypeError or UnicodeError for others."""
        given: dict[str, Any] = {each.name: rules[each.name] for each in fields(cls)}
        for name, value in given.items():
            given[name] = value.encode(_ANY_BYTE) if isinstance(value, str) else value
        return cls(**given)

    def parse(self, line: bytes) -> Content:
        """The record in a line. Raises `BadLine`."""
        headers: Sequence[tuple[str, bytes | None]] = ()
        key: bytes | None = None
        if self.headers_delimiter is not None:
            found, line = self._cut(line, self.headers_delimiter, "headers")
            if found is not None and found != self.null_marker:
                headers = self._headers(found)
        if self.key_delimiter is not None:
            key, line = self._cut(line, self.key_delimiter, "key")
            if key is not None and self.empty_is_null:
                return Content(line or None, key or None, headers)
        return Content(self._or_null(line), self._or_null(key), headers)

    def _cut(self, line: bytes, delimiter: bytes, what: str) -> tuple[bytes | None, bytes]:
        part, found, rest = line.partition(delimiter)
        if found:
            return part, rest
        if self.is_strict:
            raise BadLine(f"it has no {_shown(delimiter)} after the {what}")
        return None, line

    def _or_null(self, part: bytes | None) -> bytes | None:
        return None if part == self.null_marker else part

    def _headers(self, text: bytes) -> Sequence[tuple[str, bytes | None]]:
        headers: list[tuple[str, bytes | None]] = []
        for pair in text.split(self.headers_separator):
            name, found, value = pair.partition(self.headers_key_separator)
            if not found and self.is_strict:
                raise BadLine(f"its header {_shown(pair)} has no {_shown(self.headers_key_separator)}")
            if name == self.null_marker:
                raise BadLine("the name of a header cannot be null")
            try:
                headers.append((name.decode(), self._or_null(value) if found else None))
            except UnicodeDecodeError:
                raise BadLine(f"the name of its header {_shown(pair)} is not UTF-8") from None
        return headers


#: kafka-console-producer's properties of its line reader, with their defaults.
READER_PROPERTIES: Final[Mapping[str, str | None]] = {
    "parse.key": "false",
    "key.separator": "\t",
    "parse.headers": "false",
    "headers.delimiter": "\t",
    "headers.separator": ",",
    "headers.key.separator": ":",
    "ignore.error": "false",
    "null.marker": None,
}


def line_format(
    properties: Mapping[str, str], *, key_delimiter: str | None, null_marker: str | None, empty_is_null: bool
) -> LineFormat:
    """The form of lines, from kafka-console-producer's properties or kcat's flags. Raises Trouble if they contradict."""
    unknown = sorted(set(properties) - set(READER_PROPERTIES))
    if unknown:
        raise Trouble(f"Unknown property {unknown[0]!r} of lines: there are {', '.join(READER_PROPERTIES)}.")
    wanted = {**READER_PROPERTIES, **properties}
    has = {name: str(wanted[name]).strip().lower() == "true" for name in ("parse.key", "parse.headers", "ignore.error")}
    for name in has:
        if str(wanted[name]).strip().lower() not in ("true", "false"):
            raise Trouble(f"Invalid property {name}={wanted[name]}: it must be true or false.")
    if empty_is_null and key_delimiter is None and not has["parse.key"]:
        raise Trouble("-Z is for lines with keys: use -K DELIM as well.")
    if key_delimiter is not None and has["parse.key"]:
        raise Trouble("-K and --property parse.key=true both say where the key is: use one of them.")
    marker = null_marker if null_marker is not None else wanted["null.marker"]
    form = LineFormat(
        key_delimiter=unescape(key_delimiter)
        if key_delimiter is not None
        else _bytes(wanted["key.separator"])
        if has["parse.key"]
        else None,
        headers_delimiter=_bytes(wanted["headers.delimiter"]) if has["parse.headers"] else None,
        headers_separator=_bytes(wanted["headers.separator"]) or b",",
        headers_key_separator=_bytes(wanted["headers.key.separator"]) or b":",
        null_marker=_bytes(marker),
        empty_is_null=empty_is_null,
        is_strict=key_delimiter is None and not has["ignore.error"],
    )
    _refuse_ambiguous(form)
    return form


def _refuse_ambiguous(form: LineFormat) -> None:
    if b"" in (form.key_delimiter, form.headers_delimiter):
        raise Trouble("A delimiter must not be empty.")
    if form.headers_delimiter is None:
        return
    parts = [form.headers_delimiter, form.headers_separator, form.headers_key_separator]
    if len(set(parts)) < len(parts):
        raise Trouble("headers.delimiter, headers.separator and headers.key.separator must differ from each other.")


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else os.fsencode(text)


_ESCAPES: Final = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|.)")
_LETTERS: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def unescape(text: str) -> bytes:
    r"""A delimiter as shells pass it: ``\n``, ``\t``, ``\r``, ``\0``, ``\\`` and ``\x1f`` are one byte each."""
    found = b""
    at = 0
    for match in _ESCAPES.finditer(text):
        found += os.fsencode(text[at : match.start()])
        letter = match[1]
        found += bytes([int(letter[1:], 16)]) if len(letter) > 1 else _LETTERS.get(letter, os.fsencode(match[0]))
        at = match.end()
    return found + os.fsencode(text[at:])


def _shown(text: bytes) -> str:
    return repr(text[:40].decode(errors="backslashreplace"))
