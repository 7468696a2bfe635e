"""The code is free of lint, and formatted."""

from __future__ import annotations

from tests.lint.tools import check


def test_the_code_is_free_of_lint() -> None:
    check("ruff", "check", ".")


def test_the_code_is_formatted() -> None:
    check("ruff", "format", "--check", ".")
