"""Reads CSV, Parquet and Arrow files as tables, a batch of rows at a time; needs pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from aioproducer import Producer
from aioproducer.cli.produce.blocks import in_thread
from aioproducer.cli.verb import Trouble

__all__ = ["ColumnTable"]

_ARROW: Final = b"ARROW1"


@dataclass(frozen=True, slots=True)
class ColumnTable:
    """A file whose rows are records.

    ``key``, ``timestamp``, ``partition`` and the values of ``header_columns`` name columns; ``values`` too: one is the value
    itself, several or none (all of them) a JSON object. ``file`` is a path, or an open pipe.
    """

    file: Path | BinaryIO
    format: str
    key: str | None = None
    values: Sequence[str] = ()
    header_columns: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    partition: str | int | None = None
    timestamp: str | None = None

    async def send(self, producer: Producer, topic: str, on_progress: Callable[[Any], object]) -> None:
        """Send all rows."""
        if self._is_empty():
            return
        reader = await in_thread(self._reader)
        as_json = len(self.values) != 1
        rows, text = self._with_text(reader)
        header_columns = {name: text.get(column, column) for name, column in self.header_columns.items()}
        await producer.send_table(
            topic,
            rows,
            key=None if self.key is None else text.get(self.key, self.key),
            value=list(self.values or self._row(reader.schema))
            if as_json
            else text.get(self.values[0], self.values[0]),
            headers={**header_columns, **self.headers} or None,
            partition=self.partition,
            timestamp=self.timestamp,
            value_format="json" if as_json else None,
            on_progress=on_progress,
        )

    def check(self) -> None:
        """Raise Trouble if the file cannot be read as a table, or has no column of a name."""
        if self._is_empty():
            return
        try:
            schema = self._reader().schema
        except OSError as error:
            raise Trouble(str(error)) from error
        columns: list[str] = schema.names
        twice = next((name for name in columns if columns.count(name) > 1), None)
        if twice is not None:
            raise Trouble(f"{self._name()} has two columns {twice!r}: give each another name.")
        named = {
            "--key-field": [self.key],
            "--value-field": self.values,
            "--header-field": self.header_columns.values(),
            "--partition-field": [self.partition],
            "--timestamp-field": [self.timestamp],
        }
        for flag, names in named.items():
            for name in names:
                if isinstance(name, str) and name not in columns:
                    raise Trouble(f"{flag} {name}: {self._name()} has no such column, only {', '.join(columns)}.")

        if not self.values:
            for name in self._row(schema):
                if _is_binary(schema.field(name).type):
                    raise Trouble(
                        f"Column {name!r} of {self._name()} is binary, which the JSON of a row cannot hold: choose the "
                        "value with --value-field."
                    )

    def _row(self, schema: Any) -> list[str]:
        """The columns of a whole row: all but binary ones that are keys or headers."""
        elsewhere = {self.key, *self.header_columns.values()}
        return [str(each.name) for each in schema if not (each.name in elsewhere and _is_binary(each.type))]

    def _is_empty(self) -> bool:
        return isinstance(self.file, Path) and self.file.is_file() and not self.file.stat().st_size

    def _reader(self) -> Any:
        """A pyarrow.RecordBatchReader. Raises OSError, also for a file in another format."""
        pyarrow: Any = import_module("pyarrow")

        try:
            return self._opened()
        except pyarrow.ArrowException as error:
            raise OSError(f"{self._name()} is not a {self.format} file: {error}") from error

    def _opened(self) -> Any:
        pyarrow: Any = import_module("pyarrow")

        source: Any = str(self.file) if isinstance(self.file, Path) else self.file
        if self.format in ("csv", "tsv"):
            csv: Any = import_module("pyarrow.csv")

            delimiter = "\t" if self.format == "tsv" else ","
            return csv.open_csv(source, parse_options=csv.ParseOptions(delimiter=delimiter))
        if self.format == "parquet":
            parquet: Any = import_module("pyarrow.parquet")

            file = parquet.ParquetFile(
                source if isinstance(self.file, Path) else pyarrow.BufferReader(self.file.read())
            )
            return pyarrow.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches())
        if not self._is_arrow_file():
            return pyarrow.ipc.open_stream(source)
        opened = pyarrow.ipc.open_file(source if isinstance(self.file, Path) else self.file.read())
        batches = (opened.get_batch(at) for at in range(opened.num_record_batches))
        return pyarrow.RecordBatchReader.from_batches(opened.schema, batches)

    def _is_arrow_file(self) -> bool:
        """Whether it has the format of files, not that of streams."""
        if isinstance(self.file, Path):
            with self.file.open("rb") as file:
                return file.read(len(_ARROW)) == _ARROW
        return cast("BufferedReader", self.file).peek(len(_ARROW)).startswith(_ARROW)

    def _with_text(self, reader: Any) -> tuple[Any, Mapping[str, str]]:
        """The same rows, with text of the numbers and times that become keys, headers and whole values.

        Returns also the names of the columns with text, by those of the columns themselves.
        """
        pyarrow: Any = import_module("pyarrow")

        named = {*self.header_columns.values(), *([self.key] if self.key else ())}
        if len(self.values) == 1:
            named.add(self.values[0])
        types, schema = pyarrow.types, reader.schema
        text = {
            each.name: f"{each.name} as text"
            for each in schema
            if each.name in named
            and (types.is_primitive(each.type) or types.is_decimal(each.type))  # not text, bytes, lists, structures
        }
        if not text:
            return reader, text
        for name in text:
            while text[name] in schema.names:
                text[name] += "_"
        with_text = pyarrow.schema([*schema, *(pyarrow.field(name, pyarrow.string()) for name in text.values())])

        def batches() -> Iterator[Any]:
            for batch in reader:
                copies = [batch.column(name).cast(pyarrow.string()) for name in text]
                yield pyarrow.RecordBatch.from_arrays([*batch.columns, *copies], schema=with_text)

        return pyarrow.RecordBatchReader.from_batches(with_text, batches()), text

    def _name(self) -> str:
        return str(self.file) if isinstance(self.file, Path) else "standard input"


def _is_binary(kind: Any) -> bool:
    types: Any = import_module("pyarrow").types
    return any(
        is_one(kind)
        for is_one in (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view)
    )
