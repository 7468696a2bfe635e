"""Separates the rows that cannot be written to their topic, for the topic of dead letters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any, Final

from aioproducer.config import ProducerConfig
from aioproducer.errors import InvalidRecord
from aioproducer.spark.options.sink import SinkOptions
from aioproducer.spark.sink.columns import SinkColumns
from aioproducer.spark.sink.row_faults import RowFaults
from aioproducer.spark.sink.timestamps import format_timestamp
from aioproducer.spark.sink.topic_rules import TopicRules

__all__ = ["DeadLetters"]

_TOPIC: Final = "_aioproducer_topic"
_ERROR: Final = "_aioproducer_error"

#: The maximum of max_request_size.
_LARGEST: Final = 2**31 - 1


class DeadLetters:
    """The dead letters of one task: unmodified rows that the producer or their topic would refuse.

    Two headers of each hold its original topic and the error. A timestamp that the topic of dead letters also refuses is
    replaced by the time of writing. ``rules`` returns those of a topic, and may block.
    """

    #: Headers, and the columns of a divided table that they come from.
    headers: Final = {"aioproducer.topic": _TOPIC, "aioproducer.error": _ERROR}

    def __init__(
        self, topic: str, columns: SinkColumns, options: SinkOptions, rules: Callable[[str], TopicRules]
    ) -> None:
        self.topic: Final = topic
        self._columns = columns
        self._config = options.config
        self._rules = rules
        self._faults = RowFaults(columns, options)

    def producer_config(self) -> ProducerConfig:
        """The options of the producer for dead letters.

        It accepts records up to its memory, or up to the protocol's limit.
        """
        config = self._config
        largest = max(config.max_request_size, min(config.buffer_memory, _LARGEST))
        return self._rules(self.topic).fitting(config.replace(max_request_size=largest))

    def divide(self, tables: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """Each topic with its rows, and the topic of dead letters with the unfit ones.

        Raises `InvalidRecord` for rows that name this topic: they would use another producer than its letters.
        """
        pa = import_module("pyarrow")
        for topic, table in tables:
            if topic == self.topic:
                raise InvalidRecord(
                    f"A row names {topic!r} in the column 'topic', but that is the topic for dead letters. Choose "
                    "another topic for one of them."
                )
            faults = self._faults.find(table, topic, self._rules(topic), _now_ms())
            if not faults:
                yield topic, table
                continue
            if len(faults) < table.num_rows:
                yield topic, table.filter(pa.array([row not in faults for row in range(table.num_rows)]))
            numbers = sorted(faults)
            yield self.topic, self._letters(topic, table.take(pa.array(numbers)), [faults[row] for row in numbers])

    def _letters(self, topic: str, rows: Any, faults: Sequence[str]) -> Any:
        pa = import_module("pyarrow")
        errors = list(faults)
        letters = self._without_refused_timestamps(rows, errors) if self._columns.has("timestamp") else rows
        letters = letters.append_column(_TOPIC, pa.array([topic] * len(errors), pa.string()))
        return letters.append_column(_ERROR, pa.array(errors, pa.string()))

    def _without_refused_timestamps(self, rows: Any, errors: list[str]) -> Any:
        """The rows without the refused timestamps, which are added to the errors."""
        pa, compute = import_module("pyarrow"), import_module("pyarrow.compute")
        refused = self._faults.of_timestamps(rows, self.topic, self._rules(self.topic), _now_ms())
        for row in refused:
            stamp = format_timestamp(rows.column("timestamp")[row])
            errors[row] += f" The topic of dead letters does not accept its timestamp either: {stamp}."
        at = rows.schema.get_field_index("timestamp")
        mask = pa.array([row in refused for row in range(rows.num_rows)])
        stamps = compute.if_else(mask, pa.scalar(None, rows.schema.field(at).type), rows.column(at))
        return rows.set_column(at, "timestamp", stamps)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
