"""Divides the rows that the producer would refuse for their size from the others, for a topic of their own.

They are found by the lengths in the Arrow columns before anything is sent: what fails on its way would take the transaction,
or the task, with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any, Final

from aioproducer.config import ProducerConfig
from aioproducer.errors import InvalidRecord
from aioproducer.record import BATCH_OVERHEAD, record_size_upper_bound
from aioproducer.spark.sink_columns import SinkColumns
from aioproducer.spark.sink_options import SinkOptions

__all__ = ["DeadLetters"]

_BARE: Final = record_size_upper_bound(None, None)
_PER_HEADER: Final = record_size_upper_bound(None, None, [("", b"")]) - _BARE
_TOPIC: Final = "_aioproducer_topic"
_ERROR: Final = "_aioproducer_error"


class DeadLetters:
    """The dead letters of one task: rows whose records are larger than ``max.request.size``, as they are.

    Two headers tell of each to which topic it was going, and why it is not there.
    """

    #: Headers, and the columns of a divided table that they are made of.
    headers: Final = {"aioproducer.topic": _TOPIC, "aioproducer.error": _ERROR}

    def __init__(self, topic: str, columns: SinkColumns, options: SinkOptions) -> None:
        self.topic: Final = topic
        self._columns = columns
        self._options = options
        config = options.config
        self._limit = min(config.max_request_size, config.buffer_memory)
        self._overhead = BATCH_OVERHEAD + record_size_upper_bound(None, None, options.headers)

    @property
    def config(self) -> ProducerConfig:
        """Of a producer that takes records as large as its memory."""
        config = self._options.config
        return config.replace(max_request_size=max(config.max_request_size, config.buffer_memory))

    def divide(self, tables: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """Each topic with its rows, and the topic of dead letters with those that are too large.

        Raises `InvalidRecord` for rows that name this topic themselves: they would have another producer than its letters.
        """
        compute = import_module("pyarrow.compute")
        for topic, table in tables:
            if topic == self.topic:
                raise InvalidRecord(f"A row names {topic!r} in the column 'topic', which is the topic of dead letters.")
            sizes = self._sizes(table)
            refused = compute.greater(sizes, self._limit)
            if not compute.any(refused).as_py():
                yield topic, table
                continue
            kept = table.filter(compute.invert(refused))
            if kept.num_rows:
                yield topic, kept
            yield self.topic, self._letters(topic, table.filter(refused), sizes.filter(refused))

    def _sizes(self, table: Any) -> Any:
        """The most bytes that each row can take as a request, counted as the producer does."""
        compute = import_module("pyarrow.compute")
        sizes = compute.add(_lengths(table.column("value")), self._overhead)
        if self._columns.has("key"):
            sizes = compute.add(sizes, _lengths(table.column("key")))
        return compute.add(sizes, _header_sizes(table.column("headers"))) if self._columns.has("headers") else sizes

    def _letters(self, topic: str, rows: Any, sizes: Any) -> Any:
        pa = import_module("pyarrow")
        option = "max_request_size" if self._limit == self._options.config.max_request_size else "buffer_memory"
        errors = [
            f"The record takes up to {size} bytes, more than {option}={self._limit}." for size in sizes.to_pylist()
        ]
        letters = rows.append_column(_TOPIC, pa.array([topic] * len(errors), pa.string()))
        return letters.append_column(_ERROR, pa.array(errors, pa.string()))


def _lengths(column: Any) -> Any:
    """The bytes of strings or binaries; 0 for null."""
    compute = import_module("pyarrow.compute")
    return compute.fill_null(compute.binary_length(column).cast("int64"), 0)


def _header_sizes(column: Any) -> Any:
    """The bytes that the headers of each row take; ``column`` has lists of names and values, or maps."""
    pa, compute = import_module("pyarrow"), import_module("pyarrow.compute")
    if pa.types.is_map(column.type):
        pairs = [pa.field("key", column.type.key_type, nullable=False), pa.field("value", column.type.item_type)]
        column = column.cast(pa.list_(pa.struct(pairs)))
    headers = column.flatten()
    sizes = compute.add(compute.add(_lengths(headers.field(0)), _lengths(headers.field(1))), _PER_HEADER)
    total = pa.concat_arrays([pa.array([0], pa.int64()), compute.cumulative_sum(sizes)])
    counts = compute.fill_null(compute.list_value_length(column), 0).cast("int64")
    ends = compute.cumulative_sum(counts)
    return compute.subtract(total.take(ends), total.take(compute.subtract(ends, counts)))
