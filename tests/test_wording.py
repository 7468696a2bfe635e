"""Texts, names and comments, checked for wordings that this project avoids; only those that a pattern finds reliably."""

from __future__ import annotations

import ast
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
    r", too(?=$|[.,;:)\"]| (and|but|or)\b)": "also",
    r"\bof (its|their|his) own\b(?! \w)": "separate, another, its",
    r"\bin words\b(?!\))": "a description, as a message",
    r"\b(is|are) to be\b": "must",
    r"(?<![Tt]here )\b(is|are) no\b(?! (longer|more|other))": "is not a, are not",
    r"\b[Ww]hoever\b": "the caller, the broker, a producer that ...",
    r"\b([Nn]obody|[Ss]omebody)\b": "name the subject, or use the passive voice",
    r"\bis not possible: (it|they) must\b": "invalid NAME=VALUE: must be ...",
    r"\bcould not be connected\b": "could not connect to",
    r"\b(it|they) comes?\b(?! (from|in|with|back|to))": "arrives, 'by default'",
    r"\S -, ": "a plain comma, or parentheses",
    r"\b(told|tells)\b": "notified, reported, returned, logged",
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


#: Packages whose docstrings begin with a noun or a verb.
DOCUMENTED = ("aioproducer", "benchmarks", "examples", "tests")

_CLAUSE = re.compile(r"(What|Who|Whose|Whom|Where|How|When|Which)\b")


def clauses(source: str) -> Iterator[tuple[int, str]]:
    """The line and the beginning of each docstring that begins with a clause: it hides the noun that one looks for."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring is not None and _CLAUSE.match(docstring):
                yield node.body[0].lineno, docstring.splitlines()[0]


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {beginning}"
        for folder in DOCUMENTED
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, beginning in clauses(path.read_text(encoding="utf-8"))
    ]

    assert not found, "\n".join(found)


def test_a_clause_is_detected() -> None:
    assert list(clauses('"""Where it listens."""')) == [(1, "Where it listens.")]
    assert not list(clauses('"""The address that it listens at."""'))


#: The code of tests, benchmarks and examples, with the lists that tests read.
CODE = (
    *(ROOT / "aioproducer").rglob("*.py[xdi]"),
    *(path for folder in DOCUMENTED for pattern in ("*.py", "*.toml") for path in (ROOT / folder).rglob(pattern)),
)

#: Words that hide the subject, also as a part of a name: `test_a_commit_that_nobody_waits_for`, `_TOLD`.
_HIDDEN_SUBJECT = re.compile(r"(?<![a-z])(told|tells|nobody|somebody|anew|whoever)(?![a-z])", re.IGNORECASE)


def hidden_subjects(text: str) -> Iterator[tuple[int, str]]:
    """The number and the word of each line with a name, a comment or a string that hides its subject."""
    for number, line in enumerate(text.splitlines(), 1):
        for found in _HIDDEN_SUBJECT.finditer(line):
            yield number, found[1]


def test_names_and_comments_name_their_subject() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {word}"
        for path in sorted(CODE)
        if path != Path(__file__)  # it has the patterns and the negative controls
        for number, word in hidden_subjects(path.read_text(encoding="utf-8"))
    ]

    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        "async def test_a_commit_that_nobody_waits_for_is_sent() -> None:",
        "def test_nobody_is_asked() -> None:",
        "def _stamped_anew(self) -> None:",
        "SAMPLES_TOLD = 20",
        "class Told:",
        "    rig.put()  # somebody waits",
        'assert not lost, "each is told once"',
        "def test_an_answer_tells_the_leaders() -> None:",
    ],
)
def test_a_hidden_subject_is_detected(line: str) -> None:
    assert [number for number, _ in hidden_subjects(line)] == [1]


def test_names_with_a_subject_pass() -> None:
    assert not list(
        hidden_subjects("def test_an_unawaited_commit_is_sent() -> None:  # metadata holds, and a manoeuvre")
    )


#: A function's name that is a clause, or makes a thing speak: `test_what_is_dropped_is_reported`, `test_the_error_says_why`.
_SPEAKING_NAME = re.compile(
    r"\b(?:def|class) (test_(?:what|who|why)_\w*|\w*?(?<![a-z])(?:says?|said|unsaid)(?![a-z])\w*)"
)


def speaking_names(text: str) -> list[str]:
    """The names of functions and classes that say something, or begin with a clause."""
    return _SPEAKING_NAME.findall(text)


def test_functions_are_named_by_their_subject() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted(CODE)
        for name in speaking_names(path.read_text(encoding="utf-8"))
    ]

    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "name",
    [
        "test_what_is_read_is_counted",
        "test_the_error_says_why",
        "said",
        "_say_nothing",
        "test_that_the_ledger_can_say_no",
    ],
)
def test_a_speaking_name_is_detected(name: str) -> None:
    assert speaking_names(f"async def {name}() -> None:") == [name]


def test_a_name_with_a_subject_is_not_a_speaking_one() -> None:
    assert not speaking_names("def essay() -> None: ...\ndef test_a_batch_is_what_it_was() -> None: ...")


@pytest.mark.parametrize(
    "line",
    [
        "#: Whoever asks gets it.",
        "a duplicate, too.",
        "with a thread of its own.",
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
