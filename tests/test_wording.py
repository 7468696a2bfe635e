"""The texts that people read, checked for wordings that this project avoids; only those that a pattern finds reliably."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

#: The files that are checked: documentation, examples, and the package with its comments, docstrings and messages.
TEXTS = (
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs" / "pages").glob("*.md")),
    *sorted((ROOT / "examples").glob("*.py")),
    *(path for path in sorted((ROOT / "aioproducer").rglob("*")) if path.suffix in {".py", ".pyx", ".pxd", ".md"}),
)

#: The patterns to avoid, each with the replacement.
AVOIDED = {
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\bfound out\b": "detected, inferred",
    r"\bin vain\b": "without success",
    r"\b(short|long) way\b": "fast path, slow path",
    r"\ball the same\b": "nothing, or 'still'",
    r"\blikewise\b": "nothing, or 'also'",
    r"\bmeanwhile\b": "nothing, or 'in the meantime'",
    r"\banew\b": "again",
    r"\b[Ww]hoever\b": "the caller, the broker, a producer that ...",
    r"\b([Nn]obody|[Ss]omebody)\b": "name the subject, or use the passive voice",
    r"\bis not possible: (it|they) must\b": "invalid NAME=VALUE: must be ...",
    r"\bcould not be connected\b": "could not connect to",
    r"\b(it|they) comes?\b(?! (from|in|with|back|to))": "arrives, 'by default'",
    r"\S -, ": "a plain comma, or parentheses",
    r"\b(is|are|was|were) told (of|about|that|to|the|by|what|why|whether)\b": "notified, reported, called",
    r"\banswers (a|an|the|what|whether|how|None|True|False)\b": "returns (only a broker answers)",
    r"\bof (ours|yours)\b": "our, your",
    r"\bof (Python|Spark|pandas|librdkafka)'s(?=[.,;:)]| (and|or|is|are|for|that|which|in|with)\b)": "Python's ...",
}

#: Exceptions: the path from the root and the pattern, with the reason.
RIGHT_HERE: dict[tuple[str, str], str] = {}

#: Folders whose texts were not revised yet.
NOT_YET: tuple[str, ...] = ()


def lines_to_avoid(text: str) -> Iterator[tuple[int, str, str]]:
    """The number of each line with an avoided wording, the pattern, and what to write instead."""
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, instead in AVOIDED.items():
            if re.search(pattern, line):
                yield number, pattern, instead


def test_no_text_has_a_wording_that_is_avoided() -> None:
    found: list[str] = []
    for path in TEXTS:
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(NOT_YET):
            continue
        for number, pattern, instead in lines_to_avoid(path.read_text(encoding="utf-8")):
            if (name, pattern) not in RIGHT_HERE:
                found.append(f"{name}:{number}: {pattern} - write: {instead}")

    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        "#: Whoever asks gets it.",
        "the record is delivered all the same.",
        "Two writers of one partition are found out.",
        "it is read - by a thread -, then sent",
        '"""Answers a number; it answers the result."""',
        "a task of ours",
    ],
)
def test_an_avoided_wording_is_detected(line: str) -> None:
    assert list(lines_to_avoid(line))


@pytest.mark.parametrize(
    "line",
    [
        "the broker answers, and a record comes from a thread",
        "x[-1, 0]",
        "a list of Python's own objects and commands",
        "the amendment of Spark's sink",
    ],
)
def test_other_wordings_pass(line: str) -> None:
    assert [pattern for _, pattern, _ in lines_to_avoid(line)] == []
