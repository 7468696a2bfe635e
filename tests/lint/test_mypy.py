"""The types hold for mypy. Pyright has its own file, so that another process can run it at the same time."""

from __future__ import annotations

import pytest

from tests.lint.tools import check


@pytest.mark.timeout(300)
def test_the_types_hold_for_mypy() -> None:
    check("mypy")
