"""The format of ``java.util.Properties``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from aioproducer.errors import ConfigError

__all__ = ["properties_in", "read_properties"]


#: Text that is not a path, whose errors would show it: a line break or ``=``, or a key before ``:`` or a blank (no drive).
_TEXT: Final = re.compile(r"[^=\n\r]*[=\n\r]|\s*(?!\w:[\\/])[\w.-]+:|\s*\w+(\.\w+)+\s", re.ASCII)


def read_properties(source: Mapping[str, object] | str | os.PathLike[str]) -> Mapping[str, object]:
    """The keys and values of a mapping, of a file, or of text in the format of one.

    The last of several equal keys wins, as in Java.
    """
    if isinstance(source, Mapping):
        return source
    if not isinstance(source, str | os.PathLike):  # pyright: ignore[reportUnnecessaryIsInstance] - a caller without types
        raise ConfigError(
            f"Properties must be a mapping, the path of a file or the text of one; the given value is of type "
            f"{type(source).__name__}."
        )
    if isinstance(source, str) and re.match(r"\s*[A-Za-z][A-Za-z0-9+._-]*://", source):
        # Not shown: it may hold a password.
        raise ConfigError("from_properties() was given a URL; pass it to from_url().")
    if isinstance(source, str) and _TEXT.match(source):
        return {key: value for _, key, value in _parsed(source)}
    return {key: value for _, key, value in properties_in(Path(source))}


def properties_in(path: Path) -> list[tuple[int, str, str]]:
    """The line number, key and value of each property in a file; a key may be there several times."""
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"The properties file {str(path)!r} cannot be read: {reason}.") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("iso-8859-1")
    return list(_parsed(text))


def _parsed(text: str) -> Iterator[tuple[int, str, str]]:
    for number, line in _logical_lines(text):
        end = 0
        while end < len(line) and line[end] not in "=: \t\f":
            end += 2 if line[end] == "\\" else 1
        rest = line[end:].lstrip(" \t\f")
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(" \t\f")
        yield number, _unescape(line[:end], number), _unescape(rest, number)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """The number and text of each logical line: continuation lines are joined, comments and blank lines are left out."""
    joined, first = "", 0
    for number, natural in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        line = natural.lstrip(" \t\f")
        if not first and (not line or line[0] in "#!"):
            continue
        first = first or number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:  # an odd one at the end is not escaped itself
            joined += line[:-1]
            continue
        yield first, joined + line
        joined, first = "", 0
    if joined:
        yield first, joined


_ESCAPES: Final[Mapping[str, str]] = MappingProxyType({"t": "\t", "n": "\n", "r": "\r", "f": "\f"})


def _unescape(text: str, line: int) -> str:
    def replacement(match: re.Match[str]) -> str:
        if match[1] is not None:
            return chr(int(match[1], 16))
        if match[2] == "u":
            # The line is not shown: it may hold a password.
            raise ConfigError(f"Line {line} of the properties has a \\u without four hexadecimal digits after it.")
        return _ESCAPES.get(match[2], match[2])

    plain = re.sub(
        r"\\(?:u([0-9a-fA-F]{4})|(.))?", lambda m: replacement(m) if m.lastindex else "", text, flags=re.DOTALL
    )
    # Java spells a character beyond U+FFFF as two escapes.
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
