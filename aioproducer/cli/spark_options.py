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

#: Where the environment has "user:password" for the registry.
_LOGIN: Final = "SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO"


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
        choices=["json", "avro", "raw"],
        default="json",
        help="the value: all columns as a JSON object (default) or as an Avro record, or one column as it is",
    )
    group.add_argument("--value", metavar="COLUMN", default="value", help="with raw: which column (default: value)")
    group.add_argument(
        "--avro-schema", metavar="FILE", help="with avro: the schema, as JSON (default: made of the columns)"
    )
    group.add_argument(
        "--schema-registry",
        metavar="URL",
        help="with avro: where the schema is registered under TOPIC-value, as in https://host:8081, with user:password@ "
        f"before the host or in the environment, {_LOGIN}; values begin with its id then (default: bare Avro)",
    )


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
    from aioproducer.spark.files.files import FilesRefused, SourceFiles

    try:
        return SourceFiles.of(paths, options.format, dict(options.read_options), options.schema)
    except FilesRefused as error:
        raise Trouble(str(error)) from error


def shape_of(options: argparse.Namespace, *, is_compared: bool = False) -> RecordShape:
    """How rows become records; those that are only compared have no schema registered. Raises Trouble."""
    from aioproducer.spark.avro.registry import value_subject
    from aioproducer.spark.files.avro_shape import AvroShape
    from aioproducer.spark.files.files import RecordShape, ValueShape

    value = ValueShape(options.value_format)
    if value is not ValueShape.AVRO:
        if options.avro_schema is not None or options.schema_registry is not None:
            raise Trouble(
                "--avro-schema and --schema-registry belong to --value-format avro; add that, or leave them out."
            )
        return RecordShape(value, options.key, options.value)
    require("--value-format avro", ["fastavro"], "avro")
    registry = None if options.schema_registry is None else _registry_at(options.schema_registry)
    schema = None if options.avro_schema is None else _text_of(options.avro_schema)
    avro = AvroShape(schema, registry, value_subject(options.topic), is_compared)
    return RecordShape(value, options.key, options.value, avro)


def _registry_at(url: str) -> SchemaRegistry:
    """With the login of the URL or, as everybody on the machine can read command lines, of the environment."""
    from aioproducer.spark.avro.registry import SchemaRegistry

    registry = SchemaRegistry.at(url)
    return registry if registry.user_info is not None else SchemaRegistry.at(url, os.environ.get(_LOGIN))


def _text_of(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Trouble(f"--avro-schema {path}: the file cannot be read: {error}") from error
