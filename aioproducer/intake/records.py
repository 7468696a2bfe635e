"""Takes records from callers: checks and serializes them, and puts them into the accumulator.

::

    interceptors -> serializers -> size -> metadata? await -> partitioner -> memory? await -> append

There is no await after the memory was granted: a record is buffered entirely or not at all, even if cancelled.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from aioproducer.accumulator.buffer_pool import PoolClosed
from aioproducer.arguments import checked_topic
from aioproducer.core.partitioner import LIBRDKAFKA_PARTITIONERS, PartitionIds, RoundRobinPartitioner
from aioproducer.delivery import Delivery
from aioproducer.errors import (
    BufferFull,
    DeliveryError,
    InvalidRecord,
    KafkaError,
    MetadataNotReady,
    NotWritten,
    NotWrittenTimeout,
    PartitionStopped,
    RecordTooLarge,
    SerializationError,
)
from aioproducer.interceptors import (
    EndOfSend,
    EndOfTransaction,
    InterceptedBulk,
    InterceptedProducer,
    ProducerInterceptors,
)
from aioproducer.metrics.producer import ProducerMetrics
from aioproducer.record import BATCH_OVERHEAD, partition_for_key, record_size_upper_bound
from aioproducer.runtime.log import ClientLog
from aioproducer.serializers import (
    MessageField,
    configure_serializer,
    normalize_bytes,
    normalize_headers,
    prepare_serializer,
    sees_headers,
)
from aioproducer.types import Header, HeadersInput, ProducerRecord, RecordMetadata

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig
    from aioproducer.core.cluster import TopicMetadata
    from aioproducer.engine.engine import Engine

__all__ = ["Intake", "PreparedRecord", "SerializedRecord"]

_T = TypeVar("_T")

#: How many topics to remember decisions for, so that they are not repeated for each record.
_MAX_KEPT = 10_000

#: How much of a key a message shows, in bytes.
_SHOWN_OF_KEY = 40


class SerializedRecord(NamedTuple):
    """A record ready to be encoded; ``size`` is an upper bound of its encoded size in bytes."""

    topic: str
    partition: int | None
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    size: int

    def as_record(self) -> ProducerRecord:
        return ProducerRecord(self.topic, self.value, self.key, tuple(self.headers), self.partition, self.timestamp_ms)


class PreparedRecord(NamedTuple):
    """A record after interceptors and serializers, with the arguments of `Appender.append`; nothing else is checked."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: Sequence[Header]
    partition: int | None
    timestamp_ms: int | None


class Choice(NamedTuple):
    """The partition that was chosen for a record, in a version of its topic; None: that of records without a key."""

    topic: TopicMetadata
    partition: int | None


@dataclass(slots=True)
class _Watched:
    """A record whose outcome interceptors get; called with its delivery.

    One object instead of a closure's six: the garbage collector looks at each of them, for each record that waits.
    """

    intake: Intake
    engine: Engine
    headers: Sequence[Header]
    ends: Sequence[EndOfSend]

    def __call__(self, delivery: Delivery) -> None:
        self.intake.acknowledged(self, delivery)


class Intake:
    """Takes one producer's records from ``enqueue()`` to the accumulator."""

    def __init__(
        self, config: ProducerConfig, metrics: ProducerMetrics, log: ClientLog, producer: InterceptedProducer
    ) -> None:
        self.config = config
        self._producer = producer
        self.interceptors = ProducerInterceptors(
            config.interceptors, log, config, (config.key_serializer, config.value_serializer)
        )
        self._metrics = metrics
        self._serialize_key = prepare_serializer(config.key_serializer, MessageField.KEY)
        self._serialize_value = prepare_serializer(config.value_serializer, MessageField.VALUE)
        self._may_add_headers = sees_headers(config.key_serializer) or sees_headers(config.value_serializer)
        configure_serializer(config.key_serializer, config, MessageField.KEY)
        configure_serializer(config.value_serializer, config, MessageField.VALUE)
        #: No user code processes a record: no interceptor, no serializer.
        self.is_plain = not (
            self.interceptors.sees_send
            or self.interceptors.sees_acknowledgement
            or config.key_serializer
            or config.value_serializer
        )
        self._partitioner = _partitioner(config)
        #: Whether the key's hash chooses the partition; None if the user's partitioner chooses.
        self.keys_choose = None if self._partitioner is not None else not config.partitioner_ignore_keys
        self._legal_topics: set[str] = set()
        self._partition_ids: dict[str, tuple[TopicMetadata, PartitionIds]] = {}

    def plain(
        self,
        topic: str | ProducerRecord,
        value: object,
        key: object,
        headers: HeadersInput | None,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> PreparedRecord:
        """Without interceptors and serializers: no user code runs here."""
        if isinstance(topic, ProducerRecord):
            whole = _whole(topic, value, key, headers, partition, timestamp_ms)
            topic, value, key, headers = whole.topic, whole.value, whole.key, whole.headers
            partition, timestamp_ms = whole.partition, whole.timestamp_ms
        key = normalize_bytes(key, "key")
        value = normalize_bytes(value, "value")
        return PreparedRecord(topic, value, key, normalize_headers(headers), partition, timestamp_ms)

    def prepared_now(
        self,
        topic: str | ProducerRecord,
        value: object,
        key: object,
        headers: HeadersInput | None,
        partition: int | None,
        timestamp_ms: int | None,
        ends: list[EndOfSend],
    ) -> PreparedRecord:
        """With interceptors and serializers; raises `InvalidRecord` if one of them has to wait."""
        prepared = self.prepared(topic, value, key, headers, partition, timestamp_ms, ends)
        return prepared if isinstance(prepared, PreparedRecord) else _run_now(prepared)

    def prepared(
        self,
        topic: str | ProducerRecord,
        value: object,
        key: object,
        headers: HeadersInput | None,
        partition: int | None,
        timestamp_ms: int | None,
        ends: list[EndOfSend],
    ) -> PreparedRecord | Coroutine[Any, Any, PreparedRecord]:
        """With interceptors and serializers: at once, or a coroutine if one of them is async.

        What interceptors want to be called with the outcome is added to ``ends``, also if this raises.
        """
        if not self.interceptors.sees_send and not isinstance(topic, ProducerRecord):
            return self._serialize(topic, value, key, headers, partition, timestamp_ms)
        record = _whole(topic, value, key, headers, partition, timestamp_ms)
        if self.interceptors.sees_send:
            record = self.interceptors.begin_send(record, self._producer, ends)
            seen = self.interceptors.on_send(record)
            if not isinstance(seen, ProducerRecord):
                return self._intercepted(seen)
            record = seen
        return self._serialize_whole(record)

    async def _intercepted(self, seen: Awaitable[ProducerRecord]) -> PreparedRecord:
        prepared = self._serialize_whole(await seen)
        return prepared if isinstance(prepared, PreparedRecord) else await prepared

    def _serialize_whole(self, record: ProducerRecord) -> PreparedRecord | Coroutine[Any, Any, PreparedRecord]:
        return self._serialize(
            record.topic, record.value, record.key, record.headers, record.partition, record.timestamp_ms
        )

    def _serialize(
        self,
        topic: str,
        value: object,
        key: object,
        headers: HeadersInput | None,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> PreparedRecord | Coroutine[Any, Any, PreparedRecord]:
        """The key first: a serializer of values may count on it."""
        seen = list(normalize_headers(headers))
        serialized_key = self._serialize_key(topic, key, seen)
        if not (serialized_key is None or isinstance(serialized_key, bytes)):
            return self._serialize_later(topic, value, serialized_key, seen, partition, timestamp_ms)
        serialized_value = self._serialize_value(topic, value, seen)
        if not (serialized_value is None or isinstance(serialized_value, bytes)):
            return self._finish(topic, serialized_value, serialized_key, seen, partition, timestamp_ms)
        return PreparedRecord(
            topic, serialized_value, serialized_key, self._headers_of(topic, seen), partition, timestamp_ms
        )

    def _headers_of(self, topic: str, seen: list[Header]) -> Sequence[Header]:
        """The headers that the serializers have seen, and may have added to."""
        if not self._may_add_headers:
            return tuple(seen)
        try:
            return normalize_headers(seen)
        except InvalidRecord as error:
            raise SerializationError(f"A serializer added a header to a record for topic {topic!r}. {error}") from None

    async def _serialize_later(
        self,
        topic: str,
        value: object,
        key: Awaitable[bytes | None],
        seen: list[Header],
        partition: int | None,
        timestamp_ms: int | None,
    ) -> PreparedRecord:
        serialized_key = await key
        serialized = self._serialize_value(topic, value, seen)
        if isinstance(serialized, Awaitable):
            serialized = await serialized
        return PreparedRecord(topic, serialized, serialized_key, self._headers_of(topic, seen), partition, timestamp_ms)

    async def _finish(
        self,
        topic: str,
        value: Awaitable[bytes | None],
        key: bytes | None,
        seen: list[Header],
        partition: int | None,
        timestamp_ms: int | None,
    ) -> PreparedRecord:
        serialized = await value
        return PreparedRecord(topic, serialized, key, self._headers_of(topic, seen), partition, timestamp_ms)

    def checked(self, prepared: PreparedRecord) -> SerializedRecord:
        """Check everything that can be checked without the cluster. Raises `InvalidRecord`."""
        topic, value, key, headers, partition, timestamp_ms = prepared
        if type(topic) is not str or topic not in self._legal_topics:
            self.check_topic(topic)
        if partition is not None and (type(partition) is not int or partition < 0):
            raise InvalidRecord(
                f"Invalid partition={partition!r}: must be an integer >= 0, or None to let the partitioner choose."
            )
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        elif type(timestamp_ms) is not int or timestamp_ms < 0:
            raise InvalidRecord(
                f"Invalid timestamp_ms={timestamp_ms!r}: must be an integer, milliseconds since 1970, or None for now."
            )
        size = record_size_upper_bound(key, value, headers)
        if size + BATCH_OVERHEAD > self.config.max_request_size or size + BATCH_OVERHEAD > self.config.buffer_memory:
            raise self._too_large(topic, key, value, headers, size + BATCH_OVERHEAD)
        return SerializedRecord(topic, partition, timestamp_ms, key, value, headers, size)

    def check_topic(self, topic: object) -> None:
        name = checked_topic(topic, InvalidRecord)
        if len(self._legal_topics) < _MAX_KEPT:
            self._legal_topics.add(name)

    def _too_large(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Sequence[Header], size: int
    ) -> RecordTooLarge:
        by_memory = self.config.buffer_memory <= self.config.max_request_size  # which alone is not enough then
        option = "buffer_memory" if by_memory else "max_request_size"
        limit = self.config.buffer_memory if by_memory else self.config.max_request_size
        return RecordTooLarge(
            f"The record for {topic!r} with {_named(key)} takes up to {size} bytes, more than {option}={limit}: "
            f"{_size(value)} of value, {_size(key)} of key, {_headers_size(headers)} of headers. Raise that option (and, "
            "for max_request_size, the topic's max.message.bytes), or send a smaller record."
        )

    def choose(self, engine: Engine, record: SerializedRecord) -> Choice | None:
        """The record's partition, if it is known now: None while the topic is unknown.

        A partitioner is called once for a record, not again after a wait for room: one that counts would count twice.
        """
        topic = engine.client.topic(record.topic)
        if topic is None or (record.partition is not None and record.partition >= topic.partition_count):
            return None
        return Choice(topic, self._partition(record, topic))

    def try_append(self, engine: Engine, record: SerializedRecord, choice: Choice | None) -> Delivery | None:
        """Append without waiting, or return None. Raises `NotWritten` if the partition is stopped."""
        if choice is None:
            return None
        try:
            return engine.accumulator.try_append(
                choice.topic,
                choice.partition,
                record.timestamp_ms,
                record.key,
                record.value,
                record.headers,
                record.size,
                engine.loop.time(),
            )
        except PartitionStopped as error:
            raise _not_sent(record, error) from error

    async def append(
        self,
        engine: Engine,
        record: SerializedRecord,
        choice: Choice | None,
        timeout: float | None,
        began: float | None = None,
        check: Callable[[], object] | None = None,
    ) -> Delivery:
        """Wait for metadata, then for memory, under one deadline; ``began``: when the call began, if not just now.

        ``check`` raises if the record may no longer be appended after that.
        """
        seconds = self.config.max_block_ms / 1000 if timeout is None else timeout
        deadline = (engine.loop.time() if began is None else began) + seconds
        known = engine.client.topic(record.topic)
        waits_for = (
            f"the partitions of topic {record.topic!r} were not known"
            if known is None
            else f"topic {record.topic!r} has no partition {record.partition}, only 0 to {known.partition_count - 1}"
        )
        limit = asyncio.timeout_at(deadline)
        try:
            async with limit:
                with engine.interrupting(limit):
                    topic = await engine.client.wait_topic(record.topic, record.partition, deadline)
                    if choice is None or choice.topic.partition_count != topic.partition_count:
                        choice = Choice(topic, self._partition(record, topic))
                    waits_for = "there was no room in buffer_memory"
                    return await engine.accumulator.append(
                        topic,
                        choice.partition,
                        record.timestamp_ms,
                        record.key,
                        record.value,
                        record.headers,
                        record.size,
                        engine.loop.time,
                        check,
                    )
        except PoolClosed:
            raise engine.refusal() from None
        except InvalidRecord:
            raise
        except TimeoutError:
            if not engine.is_usable:
                raise engine.refusal() from None
            late = self._timed_out(engine, record, seconds, waits_for)
            raise late from late.__cause__
        except KafkaError as error:
            if not engine.is_usable:
                raise engine.refusal() from error
            raise _not_sent(record, error) from error

    def _timed_out(self, engine: Engine, record: SerializedRecord, seconds: float, waits_for: str) -> NotWrittenTimeout:
        if "room" in waits_for:
            self._metrics.buffer_exhausted_total += 1
            waits_for += (
                f" ({engine.pool.used} of {engine.pool.total} bytes are in use, {engine.pool.waiting} sender(s) wait)"
            )
        from aioproducer.intake.timeouts import not_accepted

        text = f"The record was not accepted within {seconds:g} s, because {waits_for}."
        return _about(not_accepted(text, record.topic, engine, seconds), record)

    def no_room_now(self, engine: Engine, record: SerializedRecord) -> NotWritten:
        topic = engine.client.topic(record.topic)
        if topic is None or (record.partition is not None and record.partition >= topic.partition_count):
            engine.client.request_update(record.topic)
            what = "number of partitions" if topic is None else f"partition {record.partition}"
            return _about(
                MetadataNotReady(f"The {what} of topic {record.topic!r} is not known yet; it has been requested."),
                record,
            )
        return _about(
            BufferFull(
                f"No room for {record.size} bytes in buffer_memory: {engine.pool.used} of {engine.pool.total} bytes are in "
                f"use, and {engine.pool.waiting} sender(s) wait. Slow down, or wait with enqueue()."
            ),
            record,
        )

    def _partition(self, record: SerializedRecord, topic: TopicMetadata) -> int | None:
        if record.partition is not None:
            return record.partition
        partitioner = self._partitioner
        if partitioner is None:
            if record.key is None or self.config.partitioner_ignore_keys:
                return None
            return partition_for_key(record.key, topic.partition_count)
        try:
            chosen = partitioner(record.topic, record.key, record.value, self._ids(topic))
        except Exception as error:  # foreign code
            raise InvalidRecord(f"The partitioner raised for a record of topic {record.topic!r}: {error!r}") from error
        if chosen is not None and not (_is_whole(chosen) and 0 <= chosen < topic.partition_count):
            raise InvalidRecord(
                f"The partitioner chose {chosen!r} for a record of topic {record.topic!r}, which has the partitions 0 to "
                f"{topic.partition_count - 1}; None leaves the choice to the producer."
            )
        return chosen if chosen is None else int(chosen)

    def _ids(self, topic: TopicMetadata) -> PartitionIds:
        """Created once for each state of the topic, not for each record."""
        known = self._partition_ids.get(topic.name)
        if known is None or known[0] is not topic:
            if len(self._partition_ids) >= _MAX_KEPT:
                self._partition_ids.clear()
            known = self._partition_ids[topic.name] = (topic, PartitionIds.of(topic))
        return known[1]

    # -- outcomes for interceptors --------------------------------------------------------------------------------------

    def bulk(self, topic: str, *, is_table: bool) -> InterceptedBulk:
        """A call that sends many records, to enter."""
        return self.interceptors.bulk(topic, self._producer, is_table)

    def begin_transaction(self) -> EndOfTransaction | None:
        """A transaction has begun; returns what to call with its outcome, if an interceptor asks for it."""
        return self.interceptors.begin_transaction(self._producer)

    def watch(self, engine: Engine, delivery: Delivery, headers: Sequence[Header], ends: Sequence[EndOfSend]) -> None:
        if ends or self.interceptors.sees_acknowledgement:
            delivery.watch(_Watched(self, engine, headers, ends))

    def acknowledged(self, watched: _Watched, delivery: Delivery) -> None:
        metadata, error = delivery.peek()
        self._notify_interceptors(watched.engine, metadata, error, watched.headers, watched.ends)

    def not_accepted(
        self, engine: Engine, prepared: PreparedRecord | None, error: BaseException, ends: Sequence[EndOfSend]
    ) -> None:
        if isinstance(error, KafkaError) and not isinstance(error, (BufferFull, MetadataNotReady)):
            self._metrics.records_refused += 1  # these two only ask the caller to retry
        if isinstance(error, (KafkaError, asyncio.CancelledError)):
            self._notify_interceptors(engine, None, error, prepared.headers if prepared is not None else (), ends)
        else:  # foreign code, or the end of the coroutine
            self.interceptors.end_send(ends, None, error)

    def _notify_interceptors(
        self,
        engine: Engine,
        metadata: RecordMetadata | None,
        error: BaseException | None,
        headers: Sequence[Header],
        ends: Sequence[EndOfSend],
    ) -> None:
        self.interceptors.end_send(ends, metadata, error)
        rest = self.interceptors.on_acknowledgement(metadata, error, headers)
        if rest is not None:
            engine.spawn(rest, "aioproducer interceptor")

    # -- waiting ------------------------------------------------------------------------------------------------------

    async def in_time(self, timeout: float | None, work: Awaitable[_T]) -> _T:
        """Interceptors and serializers within the call's timeout."""
        limit = asyncio.timeout(self.config.max_block_ms / 1000 if timeout is None else timeout)
        try:
            async with limit:
                return await work
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise NotWrittenTimeout(
                "The record was not accepted in time, because an interceptor or serializer took too long."
            ) from error


def _partitioner(config: ProducerConfig) -> Callable[..., int | None] | None:
    chosen = config.partitioner
    if chosen is None or chosen == "murmur2_random":  # another name of the default, which is built into the hot path
        return None
    if chosen == "round_robin":
        return RoundRobinPartitioner()
    if isinstance(chosen, str):
        return LIBRDKAFKA_PARTITIONERS[chosen]
    by_method: Callable[..., int | None] | None = getattr(chosen, "partition", None)
    return by_method or cast("Callable[..., int | None]", chosen)


def _is_whole(number: object) -> bool:
    """Whether it is an integer: an int, or one of numpy's; 1.0 is not."""
    return hasattr(number, "__index__")


def _whole(
    topic: str | ProducerRecord,
    value: object,
    key: object,
    headers: HeadersInput | None,
    partition: int | None,
    timestamp_ms: int | None,
) -> ProducerRecord:
    if not isinstance(topic, ProducerRecord):
        return ProducerRecord(topic, value, key, headers, partition, timestamp_ms)
    if value is not None or key is not None or headers or partition is not None or timestamp_ms is not None:
        raise InvalidRecord("A ProducerRecord has its own value, key, headers, partition and timestamp; pass it alone.")
    return topic


_E = TypeVar("_E", bound=DeliveryError)


def _about(error: _E, record: SerializedRecord) -> _E:
    error.topic, error.partition, error.record = record.topic, record.partition, record.as_record()
    return error


def _not_sent(record: SerializedRecord, error: KafkaError) -> NotWritten:
    return _about(NotWritten(f"The record for topic {record.topic!r} was not sent: {error}"), record)


def _run_now(work: Coroutine[Any, Any, _T]) -> _T:
    """The result of a coroutine that does not have to wait."""
    try:
        work.send(None)
    except StopIteration as done:
        result: _T = done.value
        return result
    work.close()
    raise InvalidRecord(
        "enqueue_nowait() cannot wait for an async serializer or interceptor; use `await enqueue()` with those."
    )


def _named(key: bytes | None) -> str:
    """The part of a message that identifies a record: its key, or the beginning of it."""
    if key is None:
        return "no key"
    return f"the key {bytes(key[:_SHOWN_OF_KEY])!r}{'...' if len(key) > _SHOWN_OF_KEY else ''}"


def _size(content: bytes | None) -> int:
    return 0 if content is None else len(content)


def _headers_size(headers: Sequence[Header]) -> int:
    return sum(len(name.encode()) + _size(value) for name, value in headers)
