"""Decides what a run of ``aioproducer produce`` sends, from its arguments."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aioproducer.cli.produce.json_lines import JsonFormat
from aioproducer.cli.produce.lines import LineFormat, line_format, unescape
from aioproducer.cli.produce.rejects import RejectsFormat
from aioproducer.cli.verb import Trouble

__all__ = ["Plan", "plan_of"]

#: Formats by the ends of files' names; everything else has lines.
_FORMATS: Final[Mapping[str, str]] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
    ".ndjson": "json",
    ".jsonl": "json",
}
_TABLES: Final = frozenset({"csv", "tsv", "parquet", "arrow"})


@dataclass(frozen=True, slots=True)
class Plan:
    """The input of a run. ``files`` empty: standard input; each has its format."""

    topic: str
    files: Sequence[tuple[Path, str]]
    format_of_input: str
    delimiter: bytes
    parsers: Mapping[str, LineFormat | JsonFormat | RejectsFormat]
    fields: JsonFormat
    table_values: Sequence[str]
    key: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    partition: int | None
    timestamp_ms: int | None
    skip: int
    limit: int | None
    keeps_empty: bool
    is_prompt: bool
    rejects: Path | None
    goes_on: bool
    is_sync: bool
    is_tee: bool

    @property
    def default_id(self) -> str:
        """The same for the same topic and files: the next run aborts what a killed one has left open."""
        names = "\0".join(str(path.absolute()) for path, _ in self.files)
        return f"aioproducer-produce-{self.topic}-{hashlib.sha256(names.encode()).hexdigest()[:8]}"


def plan_of(options: argparse.Namespace, *, is_terminal: bool) -> Plan:
    """The plan. Raises Trouble for arguments that contradict each other, and for files that cannot be read."""
    words: list[str] = options.words
    topic, names = (options.topic, words) if options.topic is not None else (words[0] if words else None, words[1:])
    if topic is None:
        raise Trouble("No topic is given: aioproducer produce TOPIC [FILE ...].")
    files = [(Path(name), _format(options, name)) for name in names if name != "-"]
    for path, _ in files:
        _check_readable(path)
    formats = {each for _, each in files} or {_format(options, "")}
    fields = _fields(options)
    _check_fields(options, formats)
    lines = _lines(options)
    fallback: LineFormat | JsonFormat = fields if options.key_field or options.value_field else lines
    return Plan(
        topic=topic,
        files=files,
        format_of_input=_format(options, ""),
        delimiter=unescape(options.delimiter) or b"\n",
        parsers={"lines": lines, "json": fields, "rejects": RejectsFormat(fallback.parse)},
        fields=fields,
        table_values=options.value_field,
        key=None if options.key is None else options.key.encode(),
        headers=[_header(each) for each in options.headers],
        partition=None if options.partition == -1 else options.partition,  # kcat's -1: any
        timestamp_ms=options.timestamp_ms,
        skip=options.skip,
        limit=options.count,
        keeps_empty=options.keep_empty,
        is_prompt=is_terminal and not names,
        rejects=None if options.rejects is None else Path(options.rejects),
        goes_on=options.goes_on or options.rejects is not None,
        is_sync=options.sync,
        is_tee=options.tee,
    )


def _format(options: argparse.Namespace, name: str) -> str:
    if options.format is not None:
        return str(options.format)
    if options.lines:
        return "lines"
    if options.as_kcat and name:
        return "file"
    by_name = _FORMATS.get(Path(name).suffix.lower(), "lines")
    has_fields = options.key_field or options.value_field or options.header_fields
    return (
        "json" if by_name == "lines" and (has_fields or options.timestamp_field or options.partition_field) else by_name
    )


def _check_readable(path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise Trouble(f"{path} cannot be read: {error.strerror}.") from error


def _check_fields(options: argparse.Namespace, formats: set[str]) -> None:
    given = [flag for flag in ("key_field", "partition_field", "timestamp_field") if getattr(options, flag)]
    given += [flag for flag in ("value_field", "header_fields") if getattr(options, flag)]
    if given and formats & {"lines", "file"}:
        flag = given[0].replace("_", "-").removesuffix("s")
        raise Trouble(f"--{flag} needs objects or columns: use --format json, or a file with columns.")
    if formats & _TABLES:
        for flag, name in (("key", "-k"), ("timestamp_ms", "--timestamp-ms"), ("count", "-c"), ("tee", "-T")):
            if getattr(options, flag):
                raise Trouble(f"{name} is for lines, not for the rows of a table.")
        if options.rejects is not None or options.skip or options.sync:
            raise Trouble("--rejects, --skip and --sync are for lines; a table stops at its first row that fails.")
    elif len(options.value_field) > 1:
        raise Trouble("Several --value-field are for tables; an object has one value.")


def _fields(options: argparse.Namespace) -> JsonFormat:
    return JsonFormat(
        options.key_field,
        options.value_field[0] if options.value_field else None,
        dict(options.header_fields),
        options.partition_field,
        options.timestamp_field,
    )


def _lines(options: argparse.Namespace) -> LineFormat:
    properties: dict[str, str] = {}
    if options.reader_config is not None:
        from aioproducer._config.properties_file import read_properties

        properties = {name: str(text) for name, text in read_properties(Path(options.reader_config)).items()}
    properties |= dict(options.properties)
    return line_format(
        properties,
        key_delimiter=options.key_delimiter,
        null_marker=options.null_marker,
        empty_is_null=options.empty_is_null,
    )


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise Trouble(f"Invalid header {text!r}: it must be NAME=VALUE, or NAME for a null value.")
    return name, value.encode() if equals else None
