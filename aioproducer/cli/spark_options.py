"""What ``load`` and ``audit`` are both told: files, how their rows become records, and where Spark runs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from aioproducer.cli.arguments import PAIRS
from aioproducer.cli.verb import Trouble

if TYPE_CHECKING:
    from aioproducer.spark.load_files import RecordShape, SourceFiles

__all__ = ["add_file_arguments", "add_spark_arguments", "files_of", "shape_of"]


def add_file_arguments(parser: argparse.ArgumentParser) -> None:
    """How files are read, and what of a row becomes what of a record."""
    group = parser.add_argument_group("files and records")
    group.add_argument(
        "--format", choices=["parquet", "csv", "json", "text"], help="what the files are (default: as their names end)"
    )
    group.add_argument(
        "--schema", metavar="DDL", help="the columns, as in 'id BIGINT, name STRING' (default: found out)"
    )
    group.add_argument(
        "-R",
        "--read-option",
        dest="read_options",
        help="an option of Spark's reader of that format, as in -R nullValue=NA; may be repeated",
        **PAIRS,
    )
    group.add_argument("--key", metavar="COLUMN", help="the column that becomes the key (default: no key)")
    group.add_argument(
        "--value-format",
        choices=["json", "raw"],
        default="json",
        help="the value: all columns as a JSON object (default), or one column as it is",
    )
    group.add_argument("--value", metavar="COLUMN", default="value", help="with raw: which column (default: value)")


def add_spark_arguments(parser: argparse.ArgumentParser) -> None:
    """Where Spark runs, and with what."""
    group = parser.add_argument_group("Spark")
    group.add_argument(
        "--master", default="local[*]", help="local[*] (default), local[2], spark://host:7077 or any other master"
    )
    group.add_argument("--driver-memory", metavar="SIZE", default="1g", help="memory of the driver's JVM (default: 1g)")
    group.add_argument(
        "--conf",
        dest="settings",
        help="a setting of Spark, as in --conf spark.executor.memory=2g; may be repeated",
        **PAIRS,
    )


def files_of(options: argparse.Namespace, paths: list[str]) -> SourceFiles:
    """The files that the arguments name; raises Trouble where their format cannot be told."""
    from aioproducer.spark.load_files import FilesRefused, SourceFiles

    try:
        return SourceFiles.of(paths, options.format, dict(options.read_options), options.schema)
    except FilesRefused as error:
        raise Trouble(str(error)) from error


def shape_of(options: argparse.Namespace) -> RecordShape:
    """How rows become records."""
    from aioproducer.spark.load_files import RecordShape, ValueShape

    return RecordShape(ValueShape(options.value_format), options.key, options.value)
