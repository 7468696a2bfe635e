"""Reads a record from a line of JSON: the key, the value and other parts are fields of an object."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self, cast

from aioproducer.cli.produce.lines import BadLine, Content

__all__ = ["JsonFormat"]


class _Number(float):
    """A number with a point or an exponent; as a whole key, value or header it stays the text that it was."""

    text: str

    def __new__(cls, text: str) -> Self:
        number = super().__new__(cls, text)
        number.text = text
        return number


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """The fields of an object that are parts of its record: paths with dots, such as ``user.id``; numbers index lists.

    ``value`` None: the whole line. ``headers`` has the path of each header.
    """

    key: str | None = None
    value: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    partition: str | None = None
    timestamp: str | None = None

    @property
    def rules(self) -> Mapping[str, object]:
        """The fields as JSON, for `from_rules`."""
        return {"format": "json", **asdict(self)}

    @classmethod
    def from_rules(cls, rules: Mapping[str, object]) -> JsonFormat:
        """The fields with these rules. Raises KeyError for others."""
        given: dict[str, Any] = {each.name: rules[each.name] for each in fields(cls)}
        return cls(**given)

    def parse(self, line: bytes) -> Content:
        """The record in a line. Raises `BadLine`."""
        try:
            found: object = json.loads(line, parse_float=_Number)
        except ValueError as error:  # also text that is not UTF-8
            raise BadLine(f"it is not JSON: {error}") from None
        except RecursionError:
            raise BadLine("it is nested too deeply") from None
        return Content(
            line if self.value is None else _encoded(_at(found, self.value)),
            None if self.key is None else _encoded(_at(found, self.key)),
            [(name, _encoded(_at(found, path))) for name, path in self.headers.items()],
            None if self.partition is None else _whole(_at(found, self.partition), self.partition),
            None if self.timestamp is None else _milliseconds(_at(found, self.timestamp), self.timestamp),
        )


def _at(found: object, path: str) -> object:
    for name in path.split("."):
        if isinstance(found, dict):
            fields = cast("Mapping[str, object]", found)
            if name in fields:
                found = fields[name]
                continue
        elif isinstance(found, list):
            items = cast("Sequence[object]", found)
            if name.isdecimal() and int(name) < len(items):
                found = items[int(name)]
                continue
        raise BadLine(f"it has no field {path!r}")
    return found


def _encoded(part: object) -> bytes | None:
    """Text as it is, null as null, everything else as JSON."""
    if part is None:
        return None
    if isinstance(part, _Number):
        return part.text.encode()
    text = part if isinstance(part, str) else json.dumps(part, separators=(",", ":"), ensure_ascii=False)
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadLine("its text has half of a surrogate pair, which UTF-8 cannot encode") from None


def _whole(part: object, path: str) -> int | None:
    if part is None or (isinstance(part, int) and not isinstance(part, bool)):
        return part
    raise BadLine(f"its field {path!r} is {part!r}, which is not a partition")


def _milliseconds(part: object, path: str) -> int | None:
    """Milliseconds since 1970, or text in ISO 8601; without a zone it is UTC."""
    if isinstance(part, str):
        from datetime import UTC, datetime, timedelta

        try:
            moment = datetime.fromisoformat(part)
        except ValueError:
            raise BadLine(f"its field {path!r} is {part!r}, which is not a time") from None
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return (moment - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)
    if part is None or (isinstance(part, int) and not isinstance(part, bool)):
        return part
    raise BadLine(f"its field {path!r} is {part!r}, which is not a time in milliseconds or ISO 8601")
