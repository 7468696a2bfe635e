"""Decides what a run of ``aioproducer produce`` sends, from its arguments."""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from errno import EACCES, EISDIR
from pathlib import Path
from typing import Final

from aioproducer.arguments import checked_topic
from aioproducer.cli.produce.checks import TABLES, check_options
from aioproducer.cli.produce.json_lines import JsonFormat
from aioproducer.cli.produce.lines import LineFormat, line_format, unescape
from aioproducer.cli.produce.rejects import RejectsFormat
from aioproducer.cli.verb import Trouble
from aioproducer.errors import InvalidRecord

__all__ = ["Input", "Plan", "plan_of"]

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

#: The bytes of a file in which a zero byte shows that it is not text.
_LOOKED_AT: Final = 8192


@dataclass(frozen=True, slots=True)
class Input:
    """A file, or standard input if ``path`` is None."""

    path: Path | None
    format: str

    @property
    def is_table(self) -> bool:
        """Whether it has rows."""
        return self.format in TABLES


@dataclass(frozen=True, slots=True)
class Plan:
    """The input and the records of a run; ``parsers`` are those of formats with lines."""

    topic: str
    inputs: Sequence[Input]
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
        """The same for the same topic and files: the next run aborts what a killed one has left open.

        Another one for each run that reads standard input, since such runs may be at work side by side.
        """
        paths = [each.path for each in self.inputs]
        names = b"\0".join(os.fsencode(path.absolute()) for path in paths if path is not None)
        suffix = uuid.uuid4().hex if None in paths else hashlib.sha256(names).hexdigest()
        return f"aioproducer-produce-{self.topic}-{suffix[:8]}"


def plan_of(options: argparse.Namespace, *, is_terminal: bool) -> Plan:
    """The plan. Raises Trouble for arguments that contradict each other, and for files that cannot be read."""
    words: list[str] = options.words
    topic, names = (words[0] if words else None, words[1:]) if options.topic is None else (options.topic, words)
    if topic is None:
        raise Trouble("No topic is given: aioproducer produce TOPIC [FILE ...].")
    try:
        checked_topic(topic, InvalidRecord)
    except InvalidRecord as error:
        raise Trouble(str(error)) from error
    inputs = [Input(None if name == "-" else Path(name), _format(options, name)) for name in names or ["-"]]
    rejects = None if options.rejects is None else Path(options.rejects)
    for each in inputs:
        _check_readable(each.path, rejects)
    fields = _fields(options)
    check_options(options, {each.format for each in inputs})
    lines = _lines(options)
    delimiter = unescape(options.delimiter) or b"\n"
    may_be_binary = options.format or options.lines or b"\0" in delimiter or lines.has_zero_byte
    for each in inputs:
        if each.path is not None and each.format == "lines" and not may_be_binary:
            _refuse_binary(each.path)
    return Plan(
        topic=topic,
        inputs=inputs,
        delimiter=delimiter,
        parsers={"lines": lines, "json": fields, "rejects": RejectsFormat(_given(options, fields, lines))},
        fields=fields,
        table_values=options.value_field,
        key=None if options.key is None else os.fsencode(options.key),
        headers=[_header(each) for each in options.headers],
        partition=None if options.partition == -1 else options.partition,  # kcat's -1: any
        timestamp_ms=options.timestamp_ms,
        skip=options.skip,
        limit=options.count,
        keeps_empty=options.keep_empty,
        is_prompt=is_terminal and not names,
        rejects=rejects,
        goes_on=options.goes_on or rejects is not None,
        is_sync=options.sync,
        is_tee=options.tee,
    )


def _given(options: argparse.Namespace, fields: JsonFormat, lines: LineFormat) -> LineFormat | JsonFormat | None:
    """The rules for lines that the arguments give, None if they give none."""
    if any(asdict(fields).values()):
        return fields
    given = [options.key_delimiter, options.null_marker, options.properties, options.reader_config]
    return lines if any(given) or options.empty_is_null else None


def _format(options: argparse.Namespace, name: str) -> str:
    if options.format is not None:
        return str(options.format)
    if options.lines:
        return "lines"
    if options.as_kcat and name != "-":
        return "file"
    by_name = _FORMATS.get(Path(name).suffix.lower(), "lines")
    has_fields = options.key_field or options.value_field or options.header_fields
    return (
        "json" if by_name == "lines" and (has_fields or options.timestamp_field or options.partition_field) else by_name
    )


def _check_readable(path: Path | None, rejects: Path | None) -> None:
    """Raise Trouble for a file that cannot be read, and for one that the rejects would replace."""
    try:
        if path is None and sys.stdin is None:
            raise Trouble("Standard input is closed: name a FILE.")
        found = os.fstat(sys.stdin.fileno()) if path is None else path.stat()
        if path is not None and path.is_dir():
            raise IsADirectoryError(EISDIR, "it is a directory")
        if path is not None and not os.access(path, os.R_OK):
            raise PermissionError(EACCES, os.strerror(EACCES))
    except OSError as error:
        name = "Standard input" if path is None else path
        raise Trouble(f"{name} cannot be read: {error.strerror}.") from error
    if rejects is not None and rejects.exists() and os.path.samestat(found, rejects.stat()):
        raise Trouble(f"--rejects {rejects} is the file that is read: name another one.")


def _refuse_binary(path: Path) -> None:
    """Raise Trouble for a file whose lines would be pieces of something else."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        if b"\0" in file.read(_LOOKED_AT):
            raise Trouble(
                f"{path} is not text: --format file sends it as one record, and -l sends its lines nevertheless."
            )


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
    return name, os.fsencode(value) if equals else None
