"""Finds the rows that the producer or the broker would refuse permanently, with the reason, before anything is sent.

A row that fails later would fail the task or the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeAlias

from aioproducer.config import ProducerConfig
from aioproducer.spark.options.sink import SinkOptions
from aioproducer.spark.sink.columns import SinkColumns
from aioproducer.spark.sink.row_sizes import RowSizes
from aioproducer.spark.sink.timestamps import LARGEST_SECOND, are_no_times, format_timestamp, milliseconds
from aioproducer.spark.sink.topic_rules import TimestampLimit, TopicRules

__all__ = ["RowFaults"]

#: A row gets older until it arrives, and the broker's clock may be behind: timestamps within this margin of a limit are
#: refused as well.
_MARGIN_MS: Final = 10_000

_INT64: Final = (-(2**63), 2**63 - 1)


class RowFaults:
    """Finds faults of rows with these columns."""

    def __init__(self, columns: SinkColumns, options: SinkOptions) -> None:
        self._columns = columns
        self._config = options.config
        self._measure = RowSizes(columns, options)

    def find(self, table: Any, topic: str, rules: TopicRules, now_ms: int) -> Mapping[int, str]:
        """The faults of rows that do not fit the topic, which has these rules, by row number."""
        return _found(_RULES, self._rows(table, topic, rules, now_ms))

    def of_timestamps(self, table: Any, topic: str, rules: TopicRules, now_ms: int) -> Mapping[int, str]:
        """The faults of the rows' timestamps, by row number."""
        return _found(_RULES_OF_TIMESTAMPS, self._rows(table, topic, rules, now_ms))

    def _rows(self, table: Any, topic: str, rules: TopicRules, now_ms: int) -> _Rows:
        timestamps = milliseconds(table.column("timestamp")) if self._columns.has("timestamp") else None
        keys = table.column("key") if self._columns.has("key") else None
        sizes = self._measure.at_most(table)
        return _Rows(table, keys, timestamps, sizes, self._measure, self._config, topic, rules, now_ms)


class _Rows(NamedTuple):
    """Rows with the values to check.

    Sizes are upper bounds. Timestamps are in milliseconds, null if the producer sets them or they are not valid times.
    """

    table: Any
    keys: Any | None
    timestamps: Any | None
    sizes: Any
    measure: RowSizes
    config: ProducerConfig
    topic: str
    rules: TopicRules
    now_ms: int

    def stamped(self, comparison: str, limit: int) -> Iterator[tuple[int, int]]:
        """The rows whose timestamp meets the comparison, with the timestamp."""
        if self.timestamps is not None:
            for row in _where(comparison, self.timestamps, limit):
                yield row, self.timestamps[row].as_py()


def _larger_than_a_request(rows: _Rows) -> Iterator[tuple[int, str]]:
    config = rows.config
    limit = min(config.max_request_size, config.buffer_memory)
    option = "max_request_size" if limit == config.max_request_size else "buffer_memory"
    for row in _where("greater", rows.sizes, limit):
        yield row, f"The record takes up to {rows.sizes[row]} bytes, more than {option}={limit}."


def _larger_than_the_topic_takes(rows: _Rows) -> Iterator[tuple[int, str]]:
    limit, codec = rows.rules.max_message_bytes, rows.config.compression_of(rows.topic)
    if limit is None:
        return
    for row in _where("greater", rows.measure.may_become(rows.sizes, rows.topic), limit):
        batch = rows.measure.encoded(rows.table, row, rows.topic)
        if batch.size > limit:
            yield (
                row,
                f"The record takes {batch.size} bytes (compression {codec}), more than max.message.bytes={limit}.",
            )
        elif rows.rules.stores_uncompressed and batch.uncompressed_size > limit:
            size = batch.uncompressed_size
            yield (
                row,
                f"The record takes {size} bytes uncompressed (compression.type), more than max.message.bytes={limit}.",
            )


def _without_a_key(rows: _Rows) -> Iterator[tuple[int, str]]:
    if not rows.rules.is_compacted:
        return
    without = range(rows.table.num_rows) if rows.keys is None else _numbers(rows.keys.is_null())
    for row in without:
        yield row, "The record has no key, but the topic's cleanup.policy is compact."


def _no_time(rows: _Rows) -> Iterator[tuple[int, str]]:
    if rows.timestamps is None:
        return
    column = rows.table.column("timestamp")
    for row in _numbers(are_no_times(column)):
        yield (
            row,
            f"The timestamp {format_timestamp(column[row])} is not valid in Kafka, which supports times from 1970 up to "
            f"{LARGEST_SECOND}.",
        )


def _before_1970(rows: _Rows) -> Iterator[tuple[int, str]]:
    for row, stamp in rows.stamped("less", 0):
        yield row, f"The timestamp {stamp} is before 1970."


def _too_old(rows: _Rows) -> Iterator[tuple[int, str]]:
    limit = rows.rules.before
    if limit is None:
        return
    for row, stamp in rows.stamped("less", rows.now_ms - _with_margin(limit)):
        age = rows.now_ms - stamp
        yield (
            row,
            f"The timestamp {stamp} is {age} ms old; the topic allows at most {limit.config}={limit.ms} on arrival.",
        )


def _too_far_ahead(rows: _Rows) -> Iterator[tuple[int, str]]:
    limit = rows.rules.after
    if limit is None:
        return
    for row, stamp in rows.stamped("greater", rows.now_ms + _with_margin(limit)):
        most = f"{limit.config}={limit.ms} ahead of the broker's clock"
        yield row, f"The timestamp {stamp} is {stamp - rows.now_ms} ms ahead; the topic allows at most {most}."


def _with_margin(limit: TimestampLimit) -> int:
    return limit.ms - min(_MARGIN_MS, limit.ms // 10)


_Rule: TypeAlias = Callable[[_Rows], Iterable[tuple[int, str]]]

_RULES_OF_TIMESTAMPS: Final[tuple[_Rule, ...]] = (_no_time, _before_1970, _too_old, _too_far_ahead)
_RULES: Final[tuple[_Rule, ...]] = (
    _larger_than_a_request,
    _larger_than_the_topic_takes,
    _without_a_key,
    *_RULES_OF_TIMESTAMPS,
)


def _found(rules: Iterable[_Rule], rows: _Rows) -> Mapping[int, str]:
    faults: dict[int, str] = {}
    for rule in rules:
        for row, sentence in rule(rows):
            faults[row] = f"{faults[row]} {sentence}" if row in faults else sentence
    return faults


def _where(comparison: str, column: Any, limit: int) -> list[int]:
    """The rows whose number meets the comparison; never nulls. A limit beyond the type's range is clamped to it."""
    smallest, largest = _INT64
    bounded = min(max(limit, smallest), largest)
    return _numbers(getattr(import_module("pyarrow.compute"), comparison)(column, bounded))


def _numbers(mask: Any) -> list[int]:
    compute = import_module("pyarrow.compute")
    numbers: list[int] = compute.indices_nonzero(mask).to_pylist()
    return numbers
