"""The data source ``aioproducer-audit``: a topic's committed records as a DataFrame, one task per range of offsets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from aioproducer.spark.audit.offsets import OffsetRange, split_ranges, stable_ranges
from aioproducer.spark.audit.reader import COLUMNS, RangeReader

__all__ = ["NAME", "AuditSource"]

NAME: Final = "aioproducer-audit"

_RECORDS_PER_RANGE: Final = 500_000
_PATIENCE: Final = 60.0


class AuditSource(DataSource):
    """Reads with confluent-kafka, independently of the producer: ``spark.dataSource.register`` it.

    Options: ``topic``; ``kafka.<any option of librdkafka's consumer>``, of which ``kafka.bootstrap.servers`` is required;
    ``records.per.range`` (500,000); ``headers`` (true); ``gaps`` (false: whether rows of other kinds report offsets
    without a record); ``ranges``: a JSON list of [partition, begin, end], to read only a part of the topic, with
    ``partitions``. The columns are `aioproducer.spark.audit.reader.COLUMNS`; within a Spark partition the rows are in
    offset order.
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``format()``."""
        return NAME

    def schema(self) -> str:
        """The columns."""
        return ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())

    def reader(self, schema: Any) -> DataSourceReader:
        """The reader of the topic that the options name."""
        return _Reader(dict(self.options))


class _Range(InputPartition):
    def __init__(self, wanted: OffsetRange) -> None:
        self.wanted = wanted


class _Reader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        given = {key.lower(): value for key, value in options.items()}
        self._topic = given["topic"]
        self._config = {key.removeprefix("kafka."): value for key, value in given.items() if key.startswith("kafka.")}
        patience = float(given.get("patience", _PATIENCE))
        if "ranges" in given:
            self._ranges: Sequence[OffsetRange] = [OffsetRange(*each) for each in json.loads(given["ranges"])]
        else:
            self._ranges = stable_ranges(self._config, self._topic, patience)
        self._most = int(given.get("records.per.range", _RECORDS_PER_RANGE))
        self._reader = RangeReader(
            self._config,
            self._topic,
            int(given.get("partitions", len(self._ranges))),
            with_headers=given.get("headers", "true") == "true",
            with_gaps=given.get("gaps", "false") == "true",
            patience=patience,
        )

    def partitions(self) -> Sequence[InputPartition]:
        # Without any partition Spark creates one that is not a _Range, so an empty topic has an empty range.
        return [_Range(wanted) for wanted in split_ranges(self._ranges, self._most) or self._ranges[:1]]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, _Range)
        return self._reader.read(partition.wanted)
