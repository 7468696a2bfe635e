"""Compares this client with every other one that a Python program could use: `python -m benchmarks` is the command."""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["CHECKOUT"]

#: Where processes are started, so that they find this package.
CHECKOUT: Final = Path(__file__).parent.parent
