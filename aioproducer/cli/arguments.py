"""What several verbs take alike on the command line: types for argparse, and ``-X NAME=VALUE``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["PAIRS", "add_option_argument", "positive"]


def _pair(text: str) -> tuple[str, str]:
    """NAME=VALUE for argparse."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def positive(text: str) -> int:
    """A whole number from 1 for argparse; thousands may be set apart."""
    number = int(text.replace(",", "").replace("_", ""))
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1")
    return number


#: What ``add_argument()`` is told of an option that takes NAME=VALUE as often as it is given.
PAIRS: Final[Mapping[str, Any]] = {"metavar": "NAME=VALUE", "action": "append", "type": _pair, "default": []}


def add_option_argument(parser: argparse.ArgumentParser, whose: str, example: str) -> None:
    """``-X NAME=VALUE``, collected as ``options``; ``whose`` options these are, as in "the producer"."""
    told = f"any option of {whose}, as in -X {example}; may be repeated"
    parser.add_argument("-X", "--option", dest="options", help=told, **PAIRS)
