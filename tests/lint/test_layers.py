"""Every module imports only from lower layers; pyproject.toml has them."""

from __future__ import annotations

from tests.lint.tools import check


def test_every_module_imports_only_from_lower_layers() -> None:
    check("lint-imports", "--no-cache")
