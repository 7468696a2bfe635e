"""Row hashes in native code; the same numbers as in ``_row_hashes_pure``; see there."""

from collections.abc import Sequence
from typing import Any

__all__ = ["sum_of_hashes"]

def sum_of_hashes(columns: Sequence[Any], rows: int, seed: int) -> int: ...
