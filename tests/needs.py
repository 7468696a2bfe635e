"""Skips or fails a test whose requirements are missing."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

__all__ = ["not_here"]


def not_here(reason: str) -> NoReturn:
    """Skip the test; where the variable CI is set it fails instead, so that no build passes without having run it."""
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
