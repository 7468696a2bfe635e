"""Encodes the rows of Arrow tables into record batches in plain Python, with pyarrow to read the tables.

This is the reference: the native twin has the same names, creates the same batches from the same tables, and raises the
same errors. The twin does not need pyarrow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple, cast

from aioproducer.errors import ConfigError, InvalidRecord
from aioproducer.types import Header, Headers

from . import column_binding as problems
from .column_binding import Binding, Field, HeaderPart, type_name
from .encoder import BATCH_OVERHEAD, RecordBatchBuilder, partition_for_key, record_size_upper_bound

__all__ = ["ArrowSource", "ColumnEncoder", "field_of"]

#: Rows converted to Python objects at a time.
_WINDOW: Final = 1024

_MAX_TIMESTAMP: Final = (1 << 63) - 1
_MAX_FIELD: Final = (1 << 31) - 1


class ArrowSource:
    """A table to be read once, chunk by chunk: anything with ``__arrow_c_stream__`` or ``__arrow_c_array__``.

    ``fields`` are its columns. Only one thread at a time may read, but not always the same one; ``close`` may be called
    during a read, and takes effect after it.
    """

    def __init__(self, table: Any) -> None:
        pyarrow = _pyarrow()
        if hasattr(table, "__arrow_c_stream__"):
            try:
                reader = pyarrow.RecordBatchReader.from_stream(table)
            except pyarrow.ArrowInvalid as error:
                _, described, kind = str(error).rpartition("ArrowSchema describes non-struct type ")
                if described:
                    raise problems.no_table(kind) from None
                raise _unknown_type(error) or error from None
        else:
            array = pyarrow.array(table)
            if not pyarrow.types.is_struct(array.type):
                raise problems.no_table(type_name(_field("", array.type)))
            batch = pyarrow.RecordBatch.from_struct_array(array)
            reader = pyarrow.RecordBatchReader.from_batches(batch.schema, [batch])
        self._reader: Any = reader
        self._is_reading = False
        self.fields = tuple(field_of(field) for field in reader.schema)

    def read(self) -> Any:
        """The next chunk, or None at the end. Takes as long as the table's library takes.

        Raises ``OSError`` with the library's message if that fails.
        """
        reader = self._reader
        if reader is None:
            return None
        self._is_reading = True
        try:
            return reader.read_next_batch()
        except StopIteration:
            self._reader = None
            return None
        except Exception as error:  # foreign code: the table's library
            self._reader = None
            raise OSError(f"The table could not be read: {error}") from error
        finally:
            self._is_reading = False

    def close(self) -> None:
        """Release the table; no more is read. May be called again."""
        self._reader = None


def _pyarrow() -> Any:
    try:
        return import_module("pyarrow")
    except ImportError as error:
        raise ConfigError(
            "send_table() needs aioproducer's native modules, which are not in use here, or pyarrow: "
            "pip install 'aioproducer[arrow]'."
        ) from error


def _unknown_type(error: Exception) -> InvalidRecord | None:
    """The error for a type that pyarrow does not support, such as polars' Int128; None for other errors."""
    if "unsupported format string" not in str(error):
        return None
    return InvalidRecord(
        f"pyarrow cannot read this table: {error}. Cast the column of that type to another, or drop it."
    )


def field_of(field: Any) -> Field:
    """The column of a pyarrow schema, as the Arrow C data interface describes it."""
    return _field(field.name, field.type)


def _field(name: str, kind: Any) -> Field:
    types = _pyarrow().types
    kind = getattr(kind, "storage_type", kind)
    if types.is_dictionary(kind):
        return Field(name, _format(kind.index_type), (), _field("", kind.value_type))
    if types.is_map(kind):
        pair = (_field("key", kind.key_type), _field("value", kind.item_type))
        return Field(name, "+m", (Field("entries", "+s", pair),))
    children = tuple(field_of(kind.field(index)) for index in range(kind.num_fields))
    return Field(name, _format(kind), children)


def _format(kind: Any) -> str:
    types = _pyarrow().types
    if types.is_timestamp(kind):
        return f"ts{kind.unit[0]}:{kind.tz or ''}"
    if types.is_fixed_size_binary(kind):
        return f"w:{kind.byte_width}"
    if types.is_decimal(kind):
        return f"d:{kind.precision},{kind.scale}"
    return _FORMATS.get(str(kind).partition("<")[0], str(kind))


#: From pyarrow's type names to those of the C data interface, for types without parameters.
_FORMATS: Final = {
    "null": "n",
    "bool": "b",
    "int8": "c",
    "uint8": "C",
    "int16": "s",
    "uint16": "S",
    "int32": "i",
    "uint32": "I",
    "int64": "l",
    "uint64": "L",
    "halffloat": "e",
    "float": "f",
    "double": "g",
    "string": "u",
    "large_string": "U",
    "string_view": "vu",
    "binary": "z",
    "large_binary": "Z",
    "binary_view": "vz",
    "date32[day]": "tdD",
    "date64[ms]": "tdm",
    "time32[s]": "tts",
    "time32[ms]": "ttm",
    "time64[us]": "ttu",
    "time64[ns]": "ttn",
    "duration[s]": "tDs",
    "duration[ms]": "tDm",
    "duration[us]": "tDu",
    "duration[ns]": "tDn",
    "month_day_nano_interval": "tin",
    "list": "+l",
    "large_list": "+L",
    "list_view": "+vl",
    "large_list_view": "+vL",
    "fixed_size_list": "+w",
    "struct": "+s",
}


class _Raw(NamedTuple):
    row: int
    key: bytes | None
    value: bytes | None
    timestamp: int | None
    partition: int | None
    headers: Sequence[Any]


class _Row(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None
    partition: int
    headers: Headers
    bound: int


class ColumnEncoder:
    """Encodes rows as records, and fills one batch per partition with them."""

    def __init__(
        self, fields: Sequence[Field], binding: Binding, *, largest: int, largest_option: str, ignore_keys: bool = False
    ) -> None:
        self._fields = tuple(fields)
        self._binding = binding
        self._largest = min(largest, _MAX_FIELD - BATCH_OVERHEAD)
        self._largest_option = largest_option
        self._ignore_keys = ignore_keys
        self._chunk: Any = None
        self._rows_before = self._position = self._checked = 0
        self._window: list[_Row | InvalidRecord] = []
        self._window_at = 0
        self._sticky = -1
        self._turn = 0  # bytes sent there by choice since it was chosen
        self._is_settled = False  # the next row goes there, although the budget was used up before it
        self.size = 0  # bytes of all batches that are not taken yet
        self._builders: dict[int, RecordBatchBuilder] = {}
        self._payloads: dict[int, int] = {}
        self._full: list[tuple[int, RecordBatchBuilder, int]] = []

    # -- input -------------------------------------------------------------------------------------------------------

    @property
    def row(self) -> int:
        """The number of the next row to be encoded, counted over the whole table."""
        return self._rows_before + self._position

    @property
    def remaining(self) -> int:
        """The number of rows of the chunk that are not encoded yet."""
        rows: int = 0 if self._chunk is None else self._chunk.num_rows
        return rows - self._position

    @property
    def checked(self) -> int:
        """The number of these that are checked."""
        return self._checked - self._position

    def load(self, chunk: Any) -> None:
        """Continue with the rows of this chunk; the remaining rows of the previous one are dropped.

        Raises ``ValueError`` if it does not match the table's schema.
        """
        if chunk.num_rows and chunk.num_columns != len(self._fields):
            raise ValueError("The columns of the table's chunks do not match its schema.")
        if self._chunk is not None:
            self._rows_before += self._chunk.num_rows
        self._chunk = chunk
        self._position = self._checked = self._window_at = 0
        self._window = []

    def check(self, limit: int) -> tuple[int, int]:
        """Check the next rows, up to ``limit`` bytes and at least one; these can then be encoded.

        Returns their maximum bytes as records, and their highest partition, -1 if none names one. Raises `InvalidRecord`
        for the first row that can never be sent.
        """
        self._checked = at = self._position
        size, greatest = 0, -1
        while at < self._chunk.num_rows:
            if at >= self._window_at + len(self._window):
                if at > self._position:
                    break
                self._window_at, self._window = at, []
                self._fill_window()
            row = self._window[at - self._window_at]
            if isinstance(row, InvalidRecord):
                raise row
            if size + row.bound > limit and at > self._position:
                break
            size += row.bound
            greatest = max(greatest, row.partition)
            at += 1
        self._checked = at
        return size, greatest

    def _fill_window(self) -> None:
        """Read the next rows; if it raises, the window holds the rows before the first that cannot be sent."""
        part = self._chunk.slice(self._window_at, _WINDOW)
        count = part.num_rows
        binding = self._binding
        keys = self._bytes(part, binding.key)
        values = self._bytes(part, binding.value)
        timestamps = self._integers(part, binding.timestamp)
        partitions = self._integers(part, binding.partition)
        header_columns = [self._header_column(part, source) for source in binding.headers]
        first = self._rows_before + self._window_at
        try:
            for index in range(count):
                row = _Raw(
                    first + index,
                    keys[index],
                    values[index],
                    timestamps[index],
                    partitions[index],
                    [column[index] for column in header_columns],
                )
                self._window.append(self._checked_row(row))
        except InvalidRecord as error:
            self._window.append(error)  # raised when its turn comes

    def _checked_row(self, raw: _Raw) -> _Row:
        binding, row, timestamp, partition = self._binding, raw.row, raw.timestamp, raw.partition
        if timestamp is not None and not 0 <= timestamp <= _MAX_TIMESTAMP // binding.timestamp_factor:
            raise problems.invalid_timestamp(row, self._fields[binding.timestamp].name, timestamp)
        if partition is not None and not 0 <= partition <= _MAX_FIELD:
            raise problems.invalid_partition(row, self._fields[binding.partition].name, partition)
        headers: list[Header] = []
        for source, content in zip(binding.headers, raw.headers, strict=True):
            if source.name is None:
                headers.extend(_pairs(row, self._fields[source.column].name, content))
            else:
                headers.append((source.name.decode(), content))
        bound = record_size_upper_bound(raw.key, raw.value, headers)
        if bound + BATCH_OVERHEAD > self._largest:
            raise problems.too_large(row, bound + BATCH_OVERHEAD, self._largest, self._largest_option)
        if timestamp is not None:
            timestamp = timestamp * binding.timestamp_factor // binding.timestamp_divisor
        return _Row(raw.key, raw.value, timestamp, -1 if partition is None else partition, headers, bound)

    def _bytes(self, part: Any, column: int) -> Sequence[bytes | None]:
        return [None] * part.num_rows if column < 0 else _bytes_of(part.column(column))

    def _integers(self, part: Any, column: int) -> Sequence[int | None]:
        if column < 0:
            return [None] * part.num_rows
        array = part.column(column)
        array = getattr(array, "storage", array)
        numbers: list[int | None] = (array.cast("int64") if "timestamp" in str(array.type) else array).to_pylist()
        return numbers

    def _header_column(self, part: Any, source: HeaderPart) -> Sequence[Any]:
        if source.column < 0:
            return [source.constant] * part.num_rows
        column = part.column(source.column)
        return column.to_pylist() if source.name is None else _bytes_of(column)

    # -- output -------------------------------------------------------------------------------------------------------

    def encode(self, budget: int, batch_size: int, partitions: int, now_ms: int, choose: Callable[[], int]) -> int:
        """Put the checked rows into batches, within ``budget`` bytes; returns how many bytes were used.

        A batch holds ``batch_size`` bytes, or one record. ``now_ms`` is the timestamp of rows without one. A row without a
        partition goes to its key's partition out of ``partitions`` or, without a key, to the last result of ``choose()``,
        which is called again when a batch is full, or when one would be started after that many bytes. After an exception
        ``size`` is still correct.
        """
        limit = min(batch_size, _MAX_FIELD)
        before = self.size
        while self._position < self._checked:
            row = self._window[self._position - self._window_at]
            assert not isinstance(row, InvalidRecord)
            partition = self._partition(row, partitions)
            is_choice = partition < 0
            if is_choice:
                partition = self._stick(row, limit, partitions, choose)
            is_full = self._is_full(partition, row, limit)
            builder = None if is_full else self._builders.get(partition)
            overhead = BATCH_OVERHEAD if builder is None else 0
            if self.size - before + row.bound + overhead > budget:
                break
            if is_full:
                self._finish(partition)
            if builder is None:
                builder = RecordBatchBuilder(batch_size)
            timestamp_ms = now_ms if row.timestamp_ms is None else row.timestamp_ms
            size = builder.append(timestamp_ms, row.key, row.value, row.headers)
            self._builders[partition] = builder
            self.size += size + overhead
            if is_choice:
                self._turn += size + overhead
                self._is_settled = False
            payload = len(row.key or b"") + len(row.value or b"")
            self._payloads[partition] = self._payloads.get(partition, 0) + payload
            self._position += 1
        return self.size - before

    def _partition(self, row: _Row, partitions: int) -> int:
        """The partition, if it is not a free choice."""
        if row.partition >= 0:
            return row.partition
        if self._binding.fixed_partition >= 0:
            return self._binding.fixed_partition
        if row.key is None or self._ignore_keys:
            return -1
        return partition_for_key(row.key, partitions)

    def _stick(self, row: _Row, limit: int, partitions: int, choose: Callable[[], int]) -> int:
        is_known = 0 <= self._sticky < partitions
        if self._is_settled and is_known:
            return self._sticky
        is_over = self._turn >= max(limit, 1) and self._sticky not in self._builders
        if is_over or not is_known:
            self._choose(choose)
        if self._is_full(self._sticky, row, limit):
            self._finish(self._sticky)
            self._choose(choose)
        self._is_settled = True
        return self._sticky

    def _choose(self, choose: Callable[[], int]) -> None:
        self._sticky = -1  # so that it is called again if it fails
        self._sticky = choose()
        self._turn = 0

    def _is_full(self, partition: int, row: _Row, limit: int) -> bool:
        builder = self._builders.get(partition)
        return builder is not None and builder.size + row.bound > limit

    def _finish(self, partition: int) -> None:
        self._full.append((partition, self._builders.pop(partition), self._payloads.pop(partition)))

    def take_full(self) -> list[tuple[int, RecordBatchBuilder, int]]:
        """The full batches, as (partition, builder, bytes of keys and values)."""
        full, self._full = self._full, []
        self.size -= sum(builder.size for _, builder, _ in full)
        return full

    def take_all(self) -> list[tuple[int, RecordBatchBuilder, int]]:
        """All batches, full or not."""
        for partition in sorted(self._builders):
            self._finish(partition)
        return self.take_full()


def _bytes_of(array: Any) -> list[bytes | None]:
    array = getattr(array, "storage", array)
    return [each.encode() if isinstance(each, str) else each for each in array.to_pylist()]


def _pairs(row: int, column: str, pairs: Sequence[Any] | None) -> Headers:
    headers: list[tuple[str, bytes | None]] = []
    for pair in pairs or ():
        name: Any
        content: Any
        name, content = cast("dict[str, Any]", pair).values() if isinstance(pair, dict) else pair or (None, None)
        if name is None:
            raise problems.null_header(row, column)
        headers.append((name, content.encode() if isinstance(content, str) else content))
    return headers
