"""Extracts from Spark's exceptions the message of our code in a task; the rest are stack traces of two languages."""

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
    "text_message",
]

#: The message for Spark's "CSV header does not conform to the schema".
HEADERS_DIFFER: Final = (
    "Not all CSV files have the expected header, with the same names in the same order (of the first file, or of --schema), "
    "or a name is blank or appears twice. Load files with another header separately, or use -R enforceSchema=true to map "
    "columns by position only."
)

#: The end of the message for a value that Spark could not decode as text.
NO_TEXT: Final = (
    " is not valid UTF-8; Spark would write U+FFFD. Set the files' encoding, as in -R encoding=ISO-8859-1; "
    "-R encoding=UTF-8 accepts such values."
)

_TEXT: Final = re.compile(rf"A value of the column [^\n]+?{re.escape(NO_TEXT)}")

_OURS: Final = re.compile(r"^\s*aioproducer\.[\w.]+: (.+)$", re.MULTILINE)

#: The line of a Python or Java stack trace that names an exception; the last one is the root cause.
_ANY: Final = re.compile(
    r"^(?:Caused by: |: )?(?:[\w$]+\.)*([\w$]*(?:Error|Exception)|(?<=\.)[A-Z]\w+(?=: ))(?:: (?!Traceback )(.+))?$",
    re.MULTILINE,
)

_FILE: Final = re.compile(
    r"Encountered error while reading file (.+?)\.(?=\s+(?:SQLSTATE|Could not)|\s*$)", re.MULTILINE
)


def spark_errors() -> tuple[type[Exception], ...]:
    """PySpark's exceptions: its own, Java exceptions without a Python class, and those of a dead JVM."""
    from pyspark.errors import PySparkException

    return PySparkException, import_module("py4j.protocol").Py4JError, ConnectionError


def is_of_headers(error: BaseException) -> bool:
    """Whether Spark stopped at a CSV file with another header."""
    return "CSV header does not conform to the schema" in str(error)


def is_of_bad_row(error: BaseException) -> bool:
    """Whether Spark stopped at a CSV or JSON row that is malformed, is not valid text, or does not fit the columns."""
    return "[MALFORMED_RECORD_IN_PARSING" in str(error) or text_message(error) is not None


def text_message(error: BaseException) -> str | None:
    """The message about a value that is not valid text, if Spark stopped at one."""
    found = _TEXT.search(str(error))
    return None if found is None else found[0]


def failed_file(error: BaseException) -> str | None:
    """The file that Spark was reading, if it says so."""
    found = _FILE.findall(str(error))
    return str(found[-1]) if found else None


def cause_of(error: BaseException) -> str:
    """The last of our exceptions in the text, else the last of any, with the file that was being read."""
    text = str(error).strip()
    if is_of_headers(error):
        return HEADERS_DIFFER
    of_text = text_message(error)
    if of_text is not None:
        return of_text
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1])
    cause, file = innermost_cause(error), failed_file(error)
    return cause if file is None or file in cause else f"{file} cannot be read: {cause}"


def innermost_cause(error: BaseException) -> str:
    """The last exception in the text, else its first line."""
    text = str(error).strip()
    theirs = _ANY.findall(text)
    below = getattr(error, "_cause", None)  # where PySpark keeps the Java cause of its own exceptions
    if not theirs and text.endswith(":") and isinstance(below, BaseException):
        return innermost_cause(below)
    if theirs:
        return ": ".join(filter(None, theirs[-1]))
    return text.splitlines()[0] if text else type(error).__name__
