"""Keeps the records that were not delivered in a file, from which another run can send them."""

from __future__ import annotations

import base64
import json
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Literal, Protocol, TypeAlias, cast

from aioproducer.cli.produce.json_lines import JsonFormat
from aioproducer.cli.produce.lines import BadLine, Content, LineFormat
from aioproducer.cli.verb import Trouble

__all__ = ["Fate", "RejectsFile", "RejectsFormat"]

#: "refused": it never was in the buffer.
Fate: TypeAlias = Literal["refused", "not written", "unknown"]

_ENCODED: Final = "_base64"


class RejectsFile:
    """One JSON object for each record: its parts, ``reason`` and ``fate``; or its whole ``line`` if that is not a record.

    A whole line has the ``rules`` by which it was read. Until `close` the file has the name ``FILE.partial``; a run without
    rejects leaves no file. Devices and pipes are written to directly.
    """

    def __init__(self, path: Path | None) -> None:
        """Raises Trouble if the file cannot be created, or may hold the rejects of an earlier run; None: keep nothing."""
        #: The reason why an entry was not written, if there is one.
        self.error: str | None = None
        self._count = 0
        self._path = None if path is None else Path(os.path.realpath(path))
        self._partial: Path | None = None
        self._file: BinaryIO | None = None
        if self._path is None:
            return
        try:
            is_plain = not self._path.exists() or stat.S_ISREG(self._path.stat().st_mode)
            if is_plain:
                self._partial = self._path.with_name(f"{self._path.name}.partial")
                kept = next(
                    (each for each in (self._path, self._partial) if each.exists() and each.stat().st_size), None
                )
                if kept is not None:
                    raise Trouble(
                        f"--rejects: {kept} exists, and may hold the rejects of an earlier run: send these with "
                        "--format rejects and remove the file, or name another one."
                    )
            self._file = (self._partial or self._path).open("wb")
        except OSError as error:
            raise Trouble(f"The rejects cannot be written to {path}: {error.strerror}.") from error

    @property
    def is_kept(self) -> bool:
        """Whether there is a file."""
        return self._path is not None

    def add_line(self, line: bytes, number: int, reason: str, rules: Mapping[str, object] | None) -> None:
        """Keep a line that is not a record, with the rules by which it was read."""
        own = {} if rules is None else {"rules": rules}
        self._add({"fate": "refused", "reason": reason, "number": number, **_part("line", line), **own})

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
        """Write everything, and give the file its name; a second call does nothing."""
        file, self._file = self._file, None
        if file is None or self._path is None:
            return
        try:
            file.close()
            if self._partial is None:
                return
            if self._count:
                self._partial.replace(self._path)
            else:
                self._partial.unlink()
        except OSError as error:
            self.error = self.error or f"The rejects cannot be written to {self._path}: {error.strerror}."

    def _add(self, entry: Mapping[str, object]) -> None:
        if self._file is None:
            return
        self._count += 1
        try:
            self._file.write(json.dumps(entry, ensure_ascii=False).encode() + b"\n")
        except OSError as error:
            self.error = self.error or f"The rejects cannot be written to {self._path}: {error.strerror}."


class Rules(Protocol):
    """Reads a record from a line."""

    @property
    def rules(self) -> Mapping[str, object]:
        """The same as JSON."""
        ...

    def parse(self, line: bytes) -> Content:
        """The record. Raises `BadLine`."""
        ...


_FORMATS: Final[Mapping[object, Callable[[Mapping[str, object]], Rules]]] = {
    "json": JsonFormat.from_rules,
    "lines": LineFormat.from_rules,
}


@dataclass(frozen=True, slots=True)
class RejectsFormat:
    """Reads what `RejectsFile` wrote; ``given`` reads whole lines instead of the rules by which they were read before."""

    given: Rules | None = None

    def parse(self, line: bytes) -> Content:
        """The record in a line of the file. Raises `BadLine`."""
        try:
            entry = cast("object", json.loads(line))
            if not isinstance(entry, dict):
                raise BadLine("it is not a JSON object, as in a file of --rejects")
            fields = cast("dict[str, object]", entry)
            if "line" in fields or f"line{_ENCODED}" in fields:
                return self._inner(_read(fields, "line") or b"", fields)
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
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise BadLine(f"it does not come from a file of --rejects: {error!r}") from None

    def _inner(self, line: bytes, entry: Mapping[str, object]) -> Content:
        rules = self.given
        if rules is None:
            kept = cast("Mapping[str, object]", entry["rules"])
            rules = _FORMATS[kept["format"]](kept)
        try:
            return rules.parse(line)
        except BadLine as error:
            raise BadLine(str(error), line, rules.rules) from None


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
