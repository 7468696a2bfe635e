"""Reads column types from Spark's JSON: a name, or a mapping for nested types."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

__all__ = ["Decimal", "SparkType", "decimal_of", "is_text"]

SparkType: TypeAlias = str | Mapping[str, Any]

_DECIMAL: Final = re.compile(r"decimal\((\d+),(-?\d+)\)")
_TEXT: Final = re.compile(r"string.*|(var)?char\(\d+\)")


class Decimal(NamedTuple):
    """The total number of digits, and those after the decimal point."""

    precision: int
    scale: int


def decimal_of(kind: SparkType) -> Decimal | None:
    """The parameters of a decimal type; None for any other."""
    found = _DECIMAL.fullmatch(kind) if isinstance(kind, str) else None
    return None if found is None else Decimal(int(found[1]), int(found[2]))


def is_text(kind: SparkType) -> bool:
    """Whether it is a string type, of any length and collation."""
    return isinstance(kind, str) and _TEXT.fullmatch(kind) is not None
