"""Keeps the records that were not delivered in a file, from which another run can send them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Literal, TypeAlias, cast

from aioproducer.cli.produce.lines import BadLine, Content
from aioproducer.cli.verb import Trouble

__all__ = ["Fate", "RejectsFile", "RejectsFormat"]

#: "refused": it never was in the buffer.
Fate: TypeAlias = Literal["refused", "not written", "unknown"]

_ENCODED: Final = "_base64"


class RejectsFile:
    """One JSON object for each record: its parts, ``reason`` and ``fate``; or its whole ``line`` if that is not a record.

    The file is created with the first of them. A run without any leaves no file, and an older file is replaced at once.
    """

    def __init__(self, path: Path | None) -> None:
        """Raises Trouble if the file cannot be created; ``path`` None: only count."""
        self.count = 0
        self._path = path
        self._file: BinaryIO | None = None
        if path is not None:
            self._open(path)
            self._close()
            path.unlink()

    def add_line(self, line: bytes, number: int, reason: str) -> None:
        """Keep a line that is not a record."""
        self._add({"fate": "refused", "reason": reason, "number": number, **_part("line", line)})

    def add(self, content: Content, fate: Fate, reason: str) -> None:
        """Keep a record."""
        headers = [{"name": name, **_part("value", value)} for name, value in content.headers]
        self._add(
            {
                "fate": fate,
                "reason": reason,
                **_part("key", content.key),
                **_part("value", content.value),
                **({"headers": headers} if headers else {}),
                **({} if content.partition is None else {"partition": content.partition}),
                **({} if content.timestamp_ms is None else {"timestamp_ms": content.timestamp_ms}),
            }
        )

    def close(self) -> None:
        """Write everything to the file."""
        self._close()

    def _add(self, entry: Mapping[str, object]) -> None:
        self.count += 1
        if self._path is not None:
            if self._file is None:
                self._open(self._path)
            assert self._file is not None
            self._file.write(json.dumps(entry, ensure_ascii=False).encode() + b"\n")

    def _open(self, path: Path) -> None:
        try:
            self._file = path.open("wb")
        except OSError as error:
            raise Trouble(f"The rejects cannot be written to {path}: {error.strerror}.") from error

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


@dataclass(frozen=True, slots=True)
class RejectsFormat:
    """Reads what `RejectsFile` wrote; ``parse_line`` reads a whole line, that was refused before."""

    parse_line: Callable[[bytes], Content]

    def parse(self, line: bytes) -> Content:
        """The record in a line of the file. Raises `BadLine`."""
        try:
            entry = cast("object", json.loads(line))
            if not isinstance(entry, dict):
                raise BadLine("it is not a JSON object, as in a file of --rejects")
            fields = cast("dict[str, object]", entry)
            if "line" in fields or f"line{_ENCODED}" in fields:
                return self.parse_line(_read(fields, "line") or b"")
            headers = cast("Sequence[dict[str, object]]", fields.get("headers", ()))
            return Content(
                _read(fields, "value"),
                _read(fields, "key"),
                [(str(each["name"]), _read(each, "value")) for each in headers],
                cast("int | None", fields.get("partition")),
                cast("int | None", fields.get("timestamp_ms")),
            )
        except BadLine:
            raise
        except (ValueError, KeyError, TypeError) as error:
            raise BadLine(f"it does not come from a file of --rejects: {error!r}") from None


def _part(name: str, content: bytes | None) -> Mapping[str, str | None]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {name + _ENCODED: base64.b64encode(content).decode()}


def _read(fields: Mapping[str, object], name: str) -> bytes | None:
    encoded = fields.get(name + _ENCODED)
    if encoded is not None:
        return base64.b64decode(str(encoded), validate=True)
    text = fields[name]
    return None if text is None else str(text).encode()
