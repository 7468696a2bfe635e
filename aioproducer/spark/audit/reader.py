"""Reads ranges of offsets of a topic into Arrow batches, in order, with a consumer that shares no code with this package."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aioproducer.spark.audit.left_out import LeftOut, explained
from aioproducer.spark.audit.murmur2 import home_partitions
from aioproducer.spark.audit.offsets import AuditFailed, OffsetRange

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

__all__ = ["COLUMNS", "RECORD", "RangeReader", "consumer_config"]

#: Columns of the rows read, with Spark's type names. A row of kind "record" is a record; any other kind says that ``count``
#: offsets from ``offset`` on have no record, and why (`GapReason`, or "unexplained" if that was not looked up).
COLUMNS: Final[Mapping[str, str]] = {
    "kind": "string",
    "partition": "int",
    "offset": "bigint",
    "count": "bigint",
    "timestamp": "bigint",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
    "home": "int",
}
RECORD: Final = "record"

_CHUNK: Final = 10_000
_POLL: Final = 0.1


def consumer_config(config: Mapping[str, str]) -> dict[str, str | int | bool]:
    """The librdkafka configuration for a consumer that is read_committed, verifies checksums and commits no offsets."""
    return {
        "queued.max.messages.kbytes": 16384,
        "fetch.wait.max.ms": 50,
        **config,
        "group.id": "aioproducer-audit",
        "isolation.level": "read_committed",
        "max.poll.interval.ms": 24 * 3600 * 1000,  # Spark decides when to take the next batch
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "check.crcs": True,
        "auto.offset.reset": "error",
        "log_level": 2,  # not of each try to connect: the error says it
    }


class RangeReader:
    """Reads ranges, one at a time; can be pickled.

    ``partitions`` is the topic's number of partitions, for the column ``home``: the partition that Kafka's default
    partitioner chooses for the key. ``with_gaps``: the last rows of a range say which offsets have no record, and why; our
    own client looks that up, with the connection options of ``config`` (librdkafka's). Without ``with_headers`` that
    column is null.
    """

    def __init__(
        self,
        config: Mapping[str, str],
        topic: str,
        partitions: int,
        *,
        with_headers: bool = True,
        with_gaps: bool = False,
        patience: float = 60.0,
    ) -> None:
        self._config = dict(config)
        self._topic = topic
        self._partitions = partitions
        self._with_headers = with_headers
        self._with_gaps = with_gaps
        self._patience = patience

    def read(self, wanted: OffsetRange) -> Iterator[Any]:
        """Pyarrow batches with `COLUMNS`: the committed records of the range, in offset order.

        Raises AuditFailed if the consumer reports an error, such as a wrong checksum, or gets nothing for ``patience``
                seconds.
        """
        left_out = LeftOut(wanted)
        for messages in self._chunks(wanted):
            offsets = np.fromiter((message.offset() for message in messages), np.int64, len(messages))
            left_out.read(offsets)
            yield self._batch(wanted.partition, offsets, messages)
        yield self._gap_rows(wanted.partition, left_out)

    def _chunks(self, wanted: OffsetRange) -> Iterator[Sequence[Message]]:
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        try:
            consumer = Consumer(consumer_config(self._config))
        except KafkaException as error:
            raise AuditFailed(f"The consumer rejects its options: {error.args[0].str()}.") from error
        try:
            consumer.assign([TopicPartition(self._topic, wanted.partition, wanted.begin)])
            yield from self._consume(consumer, wanted)
        finally:
            consumer.close()

    def _consume(self, consumer: Consumer, wanted: OffsetRange) -> Iterator[Sequence[Message]]:
        heard_at = time.monotonic()
        at_end = wanted.size == 0
        while not at_end:
            messages = consumer.consume(_CHUNK, _POLL)
            if messages:
                heard_at = time.monotonic()
            elif time.monotonic() - heard_at > self._patience:
                raise AuditFailed(
                    f"The consumer got nothing from {self._topic}-{wanted.partition} for {self._patience:g} s, before it "
                    f"reached offset {wanted.end}."
                )
            for message in (each for each in messages if each.error() is not None):
                self._check(message)
                # A new leader may for a while report fewer committed offsets than the old one did.
                at_end = at_end or (message.offset() or 0) >= wanted.end
            messages = [message for message in messages if message.error() is None]
            if messages and (messages[-1].offset() or 0) >= wanted.end - 1:
                at_end = True
                messages = [message for message in messages if (message.offset() or 0) < wanted.end]
            if messages:
                yield messages

    def _check(self, message: Message) -> None:
        from confluent_kafka import KafkaError

        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:  # pyright: ignore[reportPrivateUsage]
            raise AuditFailed(f"The consumer reports an error for {self._topic}-{message.partition()}: {error.str()}.")

    def _batch(self, partition: int, offsets: Any, messages: Sequence[Message]) -> Any:
        pa: Any = import_module("pyarrow")
        rows = len(messages)
        keys = pa.array([message.key() for message in messages], pa.binary())
        headers: Any = None
        if self._with_headers:
            headers = [_headers(message) for message in messages]
        return _as_batch(
            rows,
            kind=pa.DictionaryArray.from_arrays(np.zeros(rows, np.int8), [RECORD]).cast(pa.string()),
            partition=np.full(rows, partition, np.int32),
            offset=offsets,
            count=np.ones(rows, np.int64),
            timestamp=np.fromiter((message.timestamp()[1] for message in messages), np.int64, rows),
            key=keys,
            value=[message.value() for message in messages],
            headers=headers,
            home=home_partitions(keys, self._partitions),
        )

    def _gap_rows(self, partition: int, left_out: LeftOut) -> Any:
        gaps = left_out.gaps() if self._with_gaps else ()
        rows = explained(self._config, self._topic, partition, gaps)
        return _as_batch(
            len(rows),
            kind=[reason.value for reason, _ in rows],
            partition=np.full(len(rows), partition, np.int32),
            offset=[gap.begin for _, gap in rows],
            count=[gap.end - gap.begin for _, gap in rows],
        )


def _headers(message: Message) -> list[tuple[str, bytes | None]] | None:
    headers = message.headers()
    if not headers:
        return None
    pairs = headers.items() if isinstance(headers, dict) else headers
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in pairs]


def _as_batch(rows: int, **columns: Any) -> Any:
    pa: Any = import_module("pyarrow")
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    types = {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "binary": pa.binary(),
        COLUMNS["headers"]: pa.list_(header),
    }
    arrays = [
        pa.nulls(rows, types[kind]) if columns.get(name) is None else pa.array(columns[name], types[kind])
        for name, kind in COLUMNS.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(COLUMNS))
