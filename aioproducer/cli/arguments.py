"""Shared by several verbs' command lines: types for argparse, and ``-X NAME=VALUE``."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["PAIRS", "positive", "timeout_seconds"]


def _pair(text: str) -> tuple[str, str]:
    """NAME=VALUE for argparse."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def positive(text: str) -> int:
    """An integer of at least 1 for argparse; thousands separators (, and _) are allowed."""
    number = int(text.replace(",", "").replace("_", ""))
    if number < 1:
        raise argparse.ArgumentTypeError(f"invalid value {text}: must be at least 1")
    return number


def timeout_seconds(text: str) -> float:
    """A limit of 0.05 to 3600 seconds for argparse."""
    seconds = float(text)
    if not (math.isfinite(seconds) and 0.05 <= seconds <= 3600):
        raise argparse.ArgumentTypeError("must be 0.05 to 3600 seconds")
    return seconds


#: Arguments of ``add_argument()`` for a repeatable option that takes NAME=VALUE.
PAIRS: Final[Mapping[str, Any]] = {"metavar": "NAME=VALUE", "action": "append", "type": _pair, "default": []}
