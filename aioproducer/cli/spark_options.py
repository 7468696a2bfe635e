"""Options shared by ``load`` and ``audit``: files, how their rows become records, and where Spark runs."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aioproducer.cli.arguments import PAIRS
from aioproducer.cli.extras import require
from aioproducer.cli.verb import Trouble

if TYPE_CHECKING:
    from aioproducer.spark.avro.registry import SchemaRegistry
    from aioproducer.spark.files.files import RecordShape, SourceFiles

__all__ = ["add_file_arguments", "add_spark_arguments", "files_of", "shape_of"]

#: The environment variable with "user:password" for the registry.
_LOGIN: Final = "SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO"


def add_file_arguments(parser: argparse.ArgumentParser) -> None:
    """Options for reading files and for converting rows to records."""
    group = parser.add_argument_group("files and records")
    group.add_argument(
        "--format", choices=["parquet", "csv", "json", "text"], help="file format (default: from the file names)"
    )
    group.add_argument(
        "--schema", metavar="DDL", help="the columns, as in 'id BIGINT, name STRING' (default: inferred)"
    )
    group.add_argument(
        "-R",
        "--read-option",
        dest="read_options",
        help="an option of Spark's reader for that format, as in -R nullValue=NA; may be repeated",
        **PAIRS,
    )
    group.add_argument("--key", metavar="COLUMN", help="the column to use as the key (default: no key)")
    group.add_argument(
        "--value-format",
        choices=["json", "avro", "raw"],
        default="json",
        help="the value: all columns as a JSON object (default) or an Avro record, or one column unmodified",
    )
    group.add_argument("--value", metavar="COLUMN", default="value", help="with raw: which column (default: value)")
    group.add_argument(
        "--avro-schema",
        metavar="FILE",
        help="with avro: a file with the schema as JSON (default: derived from the columns)",
    )
    group.add_argument(
        "--schema-registry",
        metavar="URL",
        help="with avro: the registry of the schema, as TOPIC-value, as in https://host:8081; the login is user:password@ "
        f"before the host, or {_LOGIN} in the environment; values then begin with the schema's id (default: bare Avro)",
    )


def add_spark_arguments(parser: argparse.ArgumentParser) -> None:
    """The place where Spark runs, and its settings."""
    group = parser.add_argument_group("Spark")
    group.add_argument(
        "--master", default="local[*]", help="local[*] (default), local[2], spark://host:7077 or any other master"
    )
    group.add_argument("--driver-memory", metavar="SIZE", default="1g", help="memory of the driver's JVM (default: 1g)")
    group.add_argument(
        "--conf",
        dest="settings",
        help="a Spark setting, as in --conf spark.executor.memory=2g; may be repeated",
        **PAIRS,
    )


def files_of(options: argparse.Namespace, paths: list[str]) -> SourceFiles:
    """The files that the arguments name; raises Trouble if their format cannot be determined."""
    from aioproducer.spark.files.files import FilesRefused, SourceFiles

    try:
        return SourceFiles.of(paths, options.format, dict(options.read_options), options.schema)
    except FilesRefused as error:
        raise Trouble(str(error)) from error


def shape_of(options: argparse.Namespace, *, is_compared: bool = False) -> RecordShape:
    """Return the conversion of rows to records; with ``is_compared`` no schema is registered. Raises Trouble."""
    from aioproducer.spark.avro.registry import value_subject
    from aioproducer.spark.files.avro_shape import AvroShape
    from aioproducer.spark.files.files import RecordShape, ValueShape

    value = ValueShape(options.value_format)
    if value is not ValueShape.AVRO:
        if options.avro_schema is not None or options.schema_registry is not None:
            raise Trouble("--avro-schema and --schema-registry need --value-format avro; add it, or leave them out.")
        return RecordShape(value, options.key, options.value)
    require("--value-format avro", ["fastavro"], "avro")
    registry = None if options.schema_registry is None else _registry_at(options.schema_registry)
    schema = None if options.avro_schema is None else _text_of(options.avro_schema)
    avro = AvroShape(schema, registry, value_subject(options.topic), is_compared)
    return RecordShape(value, options.key, options.value, avro)


def _registry_at(url: str) -> SchemaRegistry:
    """With the login from the URL or, since command lines are visible to every user, from the environment."""
    from aioproducer.spark.avro.registry import SchemaRegistry

    registry = SchemaRegistry.at(url)
    return registry if registry.user_info is not None else SchemaRegistry.at(url, os.environ.get(_LOGIN))


def _text_of(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Trouble(f"--avro-schema {path}: could not read the file: {error}") from error
