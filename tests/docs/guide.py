"""The code of the guide's pages, for tests that run it as a program with another tool."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.snippets import blocks

__all__ = ["code_of", "recipes"]

PAGES = Path(__file__).parents[2] / "docs" / "pages"


def code_of(page: str, mark: str) -> str:
    """The one visible block of this page that contains ``mark``."""
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    (code,) = [block.code for block in blocks(text) if not block.hidden and mark in block.code]
    return code


def recipes(page: str, section: str) -> dict[str, str]:
    """The code below each subheading of this section, by subheading; each has one visible block."""
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    (content,) = re.findall(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    found: dict[str, str] = {}
    for part in re.split(r"^### ", content, flags=re.MULTILINE)[1:]:
        (code,) = [block.code for block in blocks(part) if not block.hidden]
        found[part.partition("\n")[0]] = code
    return found
