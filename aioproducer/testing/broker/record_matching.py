"""Matches logged records with a test's expectation, and explains differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, TypeAlias

from aioproducer.types import BytesLike, Header, HeadersInput

if TYPE_CHECKING:
    from aioproducer.testing.broker.log import LoggedRecord

__all__ = ["Matcher", "explain", "matches", "same_headers"]

_MOST_SHOWN = 20

#: An expected key or value: bytes, text (compared as UTF-8), None, a function that checks it, ``...`` for anything.
Matcher: TypeAlias = "bytes | str | Callable[[bytes | None], object] | EllipsisType | None"


def matches(wanted: Matcher, actual: bytes | None) -> bool:
    """Whether a key or value matches."""
    if isinstance(wanted, EllipsisType):
        return True
    if isinstance(wanted, str):
        return actual == wanted.encode()
    return bool(wanted(actual)) if callable(wanted) else actual == wanted


def same_headers(wanted: HeadersInput | EllipsisType, actual: Sequence[Header]) -> bool:
    """Whether the headers are equal, in order."""
    if isinstance(wanted, EllipsisType):
        return True
    pairs = wanted.items() if isinstance(wanted, Mapping) else wanted
    return [(name, _as_bytes(value)) for name, value in pairs] == list(actual)


def explain(
    topic: str,
    wanted: Mapping[str, object],
    times: int | None,
    found: Sequence[LoggedRecord],
    present: Sequence[LoggedRecord],
) -> str:
    """The expected and the actual records; ``=`` marks those that match."""
    asked = ", ".join(f"{name}={value!r}" for name, value in wanted.items() if not isinstance(value, EllipsisType))
    count = "at least one record" if times is None else f"{times} record(s)"
    lines = [
        f"Expected {count} in topic {topic!r}{' with ' + asked if asked else ''}; "
        f"found {len(found)} among {len(present)}."
    ]
    lines += [f"  {'=' if record in found else '-'} {_shown(record)}" for record in present[:_MOST_SHOWN]]
    if len(present) > _MOST_SHOWN:
        lines.append(f"  ... and {len(present) - _MOST_SHOWN} more")
    return "\n".join(lines)


def _shown(record: LoggedRecord) -> str:
    return (
        f"{record.partition}@{record.offset} key={record.key!r} value={record.value!r} headers={list(record.headers)!r}"
    )


def _as_bytes(value: BytesLike | str | None) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else bytes(value)
