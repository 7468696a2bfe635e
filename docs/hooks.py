"""What mkdocs generates: the tables of options and metrics, and the pages that are files of the package."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(Path(__file__).parent))

from metric_tables import metric_tables  # noqa: E402 - beside this file, which mkdocs loads by its path
from options import option_tables  # noqa: E402 - likewise

#: Pages of the site that are files of the package, which has them for readers without a network.
FROM_THE_PACKAGE = {
    "reference/security.md": "aioproducer/SECURITY.md",
    "reference/spark.md": "aioproducer/spark/README.md",
    "reference/architecture.md": "aioproducer/ARCHITECTURE.md",
    "reference/decisions.md": "aioproducer/DECISIONS.md",
    **{
        f"reference/vendors/{path.name}": f"aioproducer/vendors/{path.name}"
        for path in ROOT.glob("aioproducer/vendors/*.md")
    },
}
#: Of the benchmarks' report, for the home page.
PICTURES = ("throughput-light.svg", "throughput-dark.svg")
_PAGE_OF = {path: page for page, path in FROM_THE_PACKAGE.items()}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are files of the package, and the picture of the home page."""
    for page, path in FROM_THE_PACKAGE.items():
        text = _with_links_into_the_site((ROOT / path).read_text(encoding="utf-8"), page, path)
        files.append(File.generated(config, page, content=text))
    for name in PICTURES:
        picture = (ROOT / "benchmarks" / "report" / name).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=picture))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in the tables."""
    for place, tables in (("<!-- options -->", option_tables), ("<!-- metrics -->", metric_tables)):
        if place in markdown:
            markdown = markdown.replace(place, tables())
    return markdown


def _with_links_into_the_site(text: str, page: str, path: str) -> str:
    """Links to other files become links to their pages, or plain names where they have none."""

    def moved(match: re.Match[str]) -> str:
        label, target = match["label"], match["target"]
        if "://" in target or target.startswith("#"):
            return match[0]
        name, hash_, anchor = target.partition("#")
        file = ((ROOT / path).parent / name).resolve().relative_to(ROOT).as_posix()
        if file not in _PAGE_OF:
            return f"{label} (`{file}`)" if label.strip("`") != file else f"`{file}`"
        up = "../" * page.count("/")
        return f"[{label}]({up}{_PAGE_OF[file]}{hash_}{anchor})"

    return re.sub(r"\[(?P<label>[^\]]+)\]\((?P<target>[^)\s]+)\)", moved, text)
