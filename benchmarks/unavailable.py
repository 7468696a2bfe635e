"""The error for a case that cannot run on this machine, so that a comparison goes on without it."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["Unavailable", "optional"]


class Unavailable(Exception):
    """A client, a tool or a broker is not there, or cannot do this; the message says what would be needed."""


def optional(module: str) -> Any:
    """A module that only benchmarks need.

    Untyped, so that type checkers need not have it either. Raises Unavailable where it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Unavailable(f"{module} cannot be imported ({error}); `pip install '.[bench]'` brings it.") from error
