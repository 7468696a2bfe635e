"""The types hold for pyright."""

from __future__ import annotations

import sys

import pytest

from tests.lint.tools import check


@pytest.mark.timeout(300)
def test_the_types_hold_for_pyright() -> None:
    check("pyright", "--pythonpath", sys.executable)
