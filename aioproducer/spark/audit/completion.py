"""Adds, in a Spark worker, what Spark's Kafka source lacks: each key's home partition, and why offsets have no record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

from aioproducer.spark.audit.facts import DIGEST_COLUMNS
from aioproducer.spark.audit.gaps import Gap, GapReason
from aioproducer.spark.audit.left_out import LeftOut, explained
from aioproducer.spark.audit.murmur2 import home_partitions
from aioproducer.spark.audit.offsets import AuditFailed, OffsetRange

__all__ = ["Completion"]


#: Facts have no nulls, so that their columns stay integers.
_NO_RECORD: Final[Mapping[str, int]] = {"content": 0, "number": -1}


class Completion:
    """Completes the digests of one partition, given in offset order, for `mapInArrow`; can be pickled.

    ``config`` (librdkafka's): how to ask about offsets without a record; None: do not ask. A partition without any
    record has no rows here, so the driver asks about it.
    """

    def __init__(
        self, topic: str, ranges: Sequence[OffsetRange], *, config: Mapping[str, str] | None, with_home: bool
    ) -> None:
        self._topic = topic
        self._ranges = {each.partition: each for each in ranges}
        self._config = None if config is None else dict(config)
        self._with_home = with_home

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The same pyarrow batches with ``home``, and one with the offsets that they skip."""
        reading: dict[int, LeftOut] = {}
        for batch in batches:
            if batch.num_rows:
                partition = self._only_partition(batch)
                reading.setdefault(partition, LeftOut(self._ranges[partition])).read(batch["offset"].to_numpy())
                yield self._with_homes(batch)
        for partition, left_out in reading.items():
            yield self._gap_rows(partition, left_out)

    def _only_partition(self, batch: Any) -> int:
        first, *others = batch["partition"].unique().to_pylist()
        if others:
            raise AuditFailed(
                f"Spark's Kafka source read partitions {sorted([first, *others])} of topic {self._topic!r} in one task, but "
                "the audit needs one task per partition. Use --reader confluent-kafka."
            )
        return int(first)

    def _with_homes(self, batch: Any) -> Any:
        pa: Any = import_module("pyarrow")
        columns = {name: batch[name] for name in DIGEST_COLUMNS}
        if self._with_home:
            columns["home"] = home_partitions(batch["key"], len(self._ranges))
        # Spark's batches mark some columns as never null, and Spark accepts no batch with another schema back
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=_schema())

    def _gap_rows(self, partition: int, left_out: LeftOut) -> Any:
        rows: Sequence[tuple[GapReason, Gap]] = ()
        if self._config is not None:
            rows = explained(self._config, self._topic, partition, left_out.gaps())
        gap_rows = [
            {
                **_NO_RECORD,
                "kind": reason.value,
                "partition": partition,
                "offset": gap.begin,
                "count": gap.end - gap.begin,
            }
            for reason, gap in rows
        ]
        return import_module("pyarrow").RecordBatch.from_pylist(gap_rows, schema=_schema())


def _schema() -> Any:
    pa: Any = import_module("pyarrow")
    types = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "binary": pa.binary()}
    return pa.schema([(name, types[kind]) for name, kind in DIGEST_COLUMNS.items()])
