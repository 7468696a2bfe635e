"""Finds the file and row that Spark could not parse, since its own error names neither."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from aioproducer.spark.files.listing import FoundFile, escaped, plain_url
from aioproducer.spark.session.errors import NO_TEXT, failed_file, innermost_cause, spark_errors, text_message

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["check_mode", "describe_bad_row", "with_text_checked"]

_MODES: Final = frozenset({"permissive", "dropmalformed", "failfast"})

_BAD: Final = "_aioproducer_bad"

#: With these options an object is not a line, or not one for Spark's text reader.
_NOT_BY_LINES: Final = frozenset({"multiline", "encoding", "charset"})

#: Spark's error code, after its sentence.
_SQL_STATE: Final = re.compile(r"\.?\s*SQLSTATE: \w+$")

_WAY_OUT: Final = "Fix it, or use -R mode=DROPMALFORMED to skip such rows."


def check_mode(options: Mapping[str, str]) -> str | None:
    """The error in the option ``mode``, if any: Spark itself treats an unknown name as PERMISSIVE."""
    chosen = next((value for name, value in options.items() if name.lower() == "mode"), "FAILFAST")
    if chosen.lower() in _MODES:
        return None
    return f"invalid -R mode={chosen}: must be FAILFAST (the default here), DROPMALFORMED or PERMISSIVE."


def describe_bad_row(
    spark: SparkSession,
    error: BaseException,
    is_json: bool,
    options: Mapping[str, str],
    schema: StructType | None,
    files: Sequence[FoundFile],
) -> str:
    """The error message after Spark stopped at a bad row of these files: which row it is, and what to do.

    Reads the lines of JSON files again for that: Spark names the file it was reading, at best.
    """
    sentence = text_message(error)
    if sentence is not None:
        return sentence
    reason = _SQL_STATE.sub("", innermost_cause(error))
    file = failed_file(error)
    if not is_json:
        return f"A row of {file or 'the CSV files'} does not fit the columns: {reason}. {_WAY_OUT}"
    suspects = [each for each in files if file is None or plain_url(each.url) == plain_url(file)]
    found = None if _NOT_BY_LINES & {name.lower() for name in options} else _find(spark, options, schema, suspects)
    where = found or f"A line of {file or 'the JSON files'}"
    return (
        f"{where} cannot be read: {reason}. {_WAY_OUT} (Each line must be a JSON object; use -R multiLine=true for files "
        "with one object or array each.)"
    )


def with_text_checked(rows: DataFrame, columns: Sequence[str], file: Column) -> DataFrame:
    """The rows of CSV, failing at the first one with invalid UTF-8 in these columns.

    Unlike JSON's, Spark's CSV reader replaces such bytes with U+FFFD: a different value, and perhaps the key of other
    rows. ``file``: the URL of a row's file.
    """
    from pyspark.sql import functions as f

    def checked(name: str) -> Column:
        column = rows["`" + name.replace("`", "``") + "`"]
        why = f.concat(f.lit("A value of the column "), f.lit(repr(name)), f.lit(" in "), file, f.lit(NO_TEXT))
        return f.when(column.contains("\ufffd"), f.raise_error(why)).otherwise(column)

    return rows.withColumns({name: checked(name) for name in columns}) if columns else rows


def _find(
    spark: SparkSession, options: Mapping[str, str], schema: StructType | None, files: Sequence[FoundFile]
) -> str | None:
    """The first line of the first file that has such a line."""
    try:
        blocks: list[Any] = _blocks(spark, options, schema, files).collect()
    except spark_errors():  # unreadable file, or an option that does not apply to lines: report no line number
        return None
    for file in files:
        before = 0
        for block in sorted(each for each in blocks if plain_url(each[0]) == plain_url(file.url)):
            _, _, count, first, bad = block
            if bad is not None:
                return f"Line {before + bad - first + 1} of {file.url}"
            before += count
    return None


def _blocks(
    spark: SparkSession, options: Mapping[str, str], schema: StructType | None, files: Sequence[FoundFile]
) -> DataFrame:
    """For each part of a file that one task reads: its lines, and the numbers of its first line and first bad line."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType, StructField, StructType

    separator = {name: value for name, value in options.items() if name.lower() == "linesep"}
    reader = spark.read.format("text").options(recursiveFileLookup="true", **separator)
    lines = reader.load([escaped(file.path) for file in files]).select(
        f.col("_metadata.file_path").alias("file"),
        f.col("_metadata.file_block_start").alias("block"),
        f.monotonically_increasing_id().alias("number"),
        "value",
    )
    columns = StructType([*([] if schema is None else schema.fields), StructField(_BAD, StringType())])
    chosen = {
        name: value for name, value in options.items() if name.lower() not in {"mode", "columnnameofcorruptrecord"}
    }
    parsed = f.from_json("value", columns, {**chosen, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BAD})
    bad = f.when(parsed[_BAD].isNotNull(), f.col("number"))
    return lines.groupBy("file", "block").agg(f.count("*"), f.min("number"), f.min(bad))
