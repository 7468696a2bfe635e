"""Finds in what Spark raises the sentence that our own code said in a task; the rest are stack traces of two languages."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Final

__all__ = [
    "HEADERS_DIFFER",
    "NO_TEXT",
    "cause_of",
    "failed_file",
    "innermost_cause",
    "is_of_bad_row",
    "is_of_headers",
    "spark_errors",
    "told_of_text",
]

#: What there is to say of Spark's "CSV header does not conform to the schema".
HEADERS_DIFFER: Final = (
    "The CSV files do not all have the header that is expected, with the same names in the same order (of the first file, "
    "or of --schema), or a name is blank or stands there twice. Load files of another header by themselves, or say "
    "-R enforceSchema=true, and columns are told by their places alone."
)

#: What there is to say of a value, behind its place, that Spark could not take for text as it stands.
NO_TEXT: Final = (
    " has bytes that are no UTF-8, for which Spark writes U+FFFD. Say what the files are in, as in -R encoding=ISO-8859-1; "
    "-R encoding=UTF-8 takes such values as they come."
)

_TEXT: Final = re.compile(rf"A value of the column [^\n]+?{re.escape(NO_TEXT)}")

_OURS: Final = re.compile(r"^\s*aioproducer\.[\w.]+: (.+)$", re.MULTILINE)

#: The line of a stack trace, of Python or of Java, that names an exception; the last one is what began it all.
_ANY: Final = re.compile(
    r"^(?:Caused by: |: )?(?:[\w$]+\.)*([\w$]*(?:Error|Exception)|(?<=\.)[A-Z]\w+(?=: ))(?:: (?!Traceback )(.+))?$",
    re.MULTILINE,
)

_FILE: Final = re.compile(
    r"Encountered error while reading file (.+?)\.(?=\s+(?:SQLSTATE|Could not)|\s*$)", re.MULTILINE
)


def spark_errors() -> tuple[type[Exception], ...]:
    """What PySpark raises: its own exceptions, those of Java's that it knows no names for, and what it is of a dead JVM."""
    from pyspark.errors import PySparkException

    return PySparkException, import_module("py4j.protocol").Py4JError, ConnectionError


def is_of_headers(error: BaseException) -> bool:
    """Whether Spark has stopped at a CSV file with another header."""
    return "CSV header does not conform to the schema" in str(error)


def is_of_bad_row(error: BaseException) -> bool:
    """Whether Spark has stopped at a row of CSV or JSON that is none, is no text, or does not fit the columns."""
    return "[MALFORMED_RECORD_IN_PARSING" in str(error) or told_of_text(error) is not None


def told_of_text(error: BaseException) -> str | None:
    """The sentence about a value that is no text, where Spark has stopped at one."""
    found = _TEXT.search(str(error))
    return None if found is None else found[0]


def failed_file(error: BaseException) -> str | None:
    """The file that Spark was reading, where it says so."""
    found = _FILE.findall(str(error))
    return str(found[-1]) if found else None


def cause_of(error: BaseException) -> str:
    """The last exception of ours that the text names, else the last of anybody's, with the file that was being read."""
    text = str(error).strip()
    if is_of_headers(error):
        return HEADERS_DIFFER
    of_text = told_of_text(error)
    if of_text is not None:
        return of_text
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1])
    cause, file = innermost_cause(error), failed_file(error)
    return cause if file is None or file in cause else f"{file} cannot be read: {cause}"


def innermost_cause(error: BaseException) -> str:
    """The last exception that the text names, else its first line."""
    text = str(error).strip()
    theirs = _ANY.findall(text)
    below = getattr(error, "_cause", None)  # where PySpark keeps Java's cause of an exception that it has names for
    if not theirs and text.endswith(":") and isinstance(below, BaseException):
        return innermost_cause(below)
    if theirs:
        return ": ".join(filter(None, theirs[-1]))
    return text.splitlines()[0] if text else type(error).__name__
