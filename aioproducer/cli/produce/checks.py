"""Refuses options of ``aioproducer produce`` that would have no effect on its input."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from aioproducer.cli.verb import Trouble

__all__ = ["TABLES", "check_options"]

#: The formats that have rows.
TABLES: Final = frozenset({"csv", "tsv", "parquet", "arrow"})

_LINES: Final = frozenset({"lines"})
_SPLIT: Final = frozenset({"lines", "json", "rejects"})
_FIELDS: Final = frozenset({"json", "rejects"}) | TABLES

#: The formats for which an option has an effect, by the attribute of the parsed arguments.
_APPLIES: Final[Mapping[str, tuple[str, AbstractSet[str]]]] = {
    "key_delimiter": ("-K", _LINES | {"rejects"}),
    "empty_is_null": ("-Z", _LINES | {"rejects"}),
    "null_marker": ("--null-marker", _LINES | {"rejects"}),
    "properties": ("--property", _LINES | {"rejects"}),
    "reader_config": ("--reader-config", _LINES | {"rejects"}),
    "skip": ("--skip", _SPLIT),
    "keep_empty": ("--keep-empty", _SPLIT | {"file"}),
    "count": ("-c", _SPLIT | {"file"}),
    "key": ("-k", _SPLIT | {"file"}),
    "timestamp_ms": ("--timestamp-ms", _SPLIT | {"file"}),
    "tee": ("-T", _SPLIT | {"file"}),
    "sync": ("--sync", _SPLIT | {"file"}),
    "rejects": ("--rejects", _SPLIT | {"file"}),
    "goes_on": ("-E", _SPLIT | {"file"}),
    "key_field": ("--key-field", _FIELDS),
    "value_field": ("--value-field", _FIELDS),
    "header_fields": ("--header-field", _FIELDS),
    "partition_field": ("--partition-field", _FIELDS),
    "timestamp_field": ("--timestamp-field", _FIELDS),
}

_DEFAULT_READER: Final = "org.apache.kafka.tools.LineMessageReader"


def check_options(options: argparse.Namespace, formats: AbstractSet[str]) -> None:
    """Raise Trouble for the first option without an effect, or a contradiction."""
    for attribute, (flag, where) in _APPLIES.items():
        others = sorted(formats - where)
        if getattr(options, attribute) and options.as_kcat and others == ["file"]:
            raise Trouble(
                f"{flag} has no effect with -P, which sends each FILE as one record: add -l to send its lines."
            )
        if getattr(options, attribute) and others:
            raise Trouble(
                f"{flag} has no effect on input of the format {others[0]!r}, only on {', '.join(sorted(where))}: leave it "
                "out, or choose another --format."
            )
    if options.lines and options.format not in (None, "lines"):
        raise Trouble(f"-l and --format {options.format} contradict each other.")
    if options.partition is not None and options.partition_field is not None and formats & TABLES:
        raise Trouble("-p and --partition-field both choose the partition of a row: use one of them.")
    if len(options.value_field) > 1 and formats - TABLES:
        raise Trouble("Several --value-field are for tables; an object has one value.")
    if options.line_reader not in (None, _DEFAULT_READER, "kafka.tools.ConsoleProducer$LineMessageReader"):
        raise Trouble(f"--line-reader {options.line_reader} is a Java class, which cannot run here. Use --property.")
