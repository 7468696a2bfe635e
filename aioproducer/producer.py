"""The producer that users hold: the path of a record from ``send()`` to the accumulator, and the life around it.

::

    interceptors -> serializers -> size -> metadata? await -> partitioner -> memory? await -> append

There is no await after the memory was granted: a record is buffered entirely or not at all, whatever is cancelled.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from random import Random
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar, Unpack

import anyio

from aioproducer.accumulator import PoolClosed
from aioproducer.config import ProducerConfig, ProducerOptions
from aioproducer.core.batches import ProducerBatch
from aioproducer.core.cluster import TopicMetadata
from aioproducer.core.partitioner import PartitionIds, RoundRobinPartitioner
from aioproducer.delivery import Delivery, DeliveryCallback
from aioproducer.engine import Engine
from aioproducer.errors import (
    BufferFull,
    ConfigError,
    DeliveryError,
    InvalidRecord,
    KafkaError,
    KafkaTimeoutError,
    MetadataNotReady,
    NotStarted,
    NotWritten,
    NotWrittenTimeout,
    ProducerClosed,
    ProducerStateError,
    RecordTooLarge,
    SendManyError,
    UnknownTimeout,
)
from aioproducer.interceptors import ProducerInterceptors
from aioproducer.metrics import ProducerMetrics
from aioproducer.record import BATCH_OVERHEAD, partition_for_key, record_size_upper_bound
from aioproducer.serializers import MessageField, normalize_bytes, normalize_headers, prepare_serializer
from aioproducer.types import (
    CloseReport,
    Header,
    HeadersInput,
    Health,
    HealthStatus,
    PartitionInfo,
    ProducerRecord,
    RecordMetadata,
    SendManyResult,
    TopicPartition,
)

__all__ = ["Producer", "SendManyProgress", "SendManyTally"]

SendManyProgress: TypeAlias = Callable[[SendManyResult], object]

_T = TypeVar("_T")
_client_numbers = itertools.count(1)

#: Kafka's rule for the names of topics (org.apache.kafka.common.internals.Topic).
_LEGAL_TOPIC = re.compile(r"(?!\.\.?$)[a-zA-Z0-9._-]{1,249}$")

#: How often ``send_many`` calls its progress hook, in seconds.
_PROGRESS_INTERVAL_S = 0.1

#: A coroutine that appends without ever having to wait lets the event loop run after this many bytes.
_BURST_BYTES = 64 * 1024


class _Serialized(NamedTuple):
    """A record as it will be encoded; ``size`` is an upper bound of that in bytes."""

    topic: str
    partition: int | None
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    size: int

    def as_record(self) -> ProducerRecord:
        return ProducerRecord(self.topic, self.value, self.key, tuple(self.headers), self.partition, self.timestamp_ms)


class Producer:
    """Sends records to Kafka from one event loop.

    ::

        async with Producer("localhost:9092", compression_type="zstd") as producer:
            metadata = await producer.send("orders", b"value", key=b"key")

    Making one needs no event loop and does no I/O, so it may be a module-level object. Entering it starts its tasks and
    waits for no broker: a service starts while Kafka is away, and its sends wait for up to ``max_block_ms``. After
    ``close()`` it may be entered again.

    One await is one fact: ``await send(...)`` returns when the broker has acknowledged the record, ``await enqueue(...)``
    when the record is accepted into the buffer, which answers a `Delivery` to await later, or never.

    Every record that was accepted succeeds or fails within ``delivery_timeout_ms``. A failure says `NotWritten` or
    `Unknown`; one that nobody looks at goes to ``on_delivery_error``. Options carry the names, the meaning and the
    defaults of Java's producer, in snake_case: see `ProducerConfig`.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | ProducerConfig,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """Check the options; `ConfigError` says what is wrong with which.

        ``bootstrap_servers`` is ``"host:port,host:port"``, a sequence of these, or a whole `ProducerConfig`, which
        ``options`` then change.
        """
        if isinstance(bootstrap_servers, ProducerConfig):
            config = bootstrap_servers.replace(**options) if options else bootstrap_servers
        else:
            config = ProducerConfig.create(bootstrap_servers, **options)
        _refuse_unsupported(config)
        self.config = config
        self.client_id = config.client_id or f"aioproducer-{next(_client_numbers)}"
        self._metrics = ProducerMetrics()
        self._random = Random()
        self._engine: Engine | None = None
        self._closing: asyncio.Task[CloseReport] | None = None
        self._closed = False

        self._interceptors = ProducerInterceptors(config.interceptors)
        self._serialize_key = prepare_serializer(config.key_serializer, MessageField.KEY)
        self._serialize_value = prepare_serializer(config.value_serializer, MessageField.VALUE)
        #: Nothing of the user's runs on a record's way: no interceptor, no serializer.
        self._is_plain = not (
            self._interceptors.sees_send
            or self._interceptors.sees_acknowledgement
            or config.key_serializer
            or config.value_serializer
        )
        self._partitioner = _partitioner(config)
        self._legal_topics: set[str] = set()

    @classmethod
    def from_url(cls, url: str, **overrides: Unpack[ProducerOptions]) -> Self:
        """A producer configured by ``kafka://host:port,host/?compression_type=zstd``; see `ProducerConfig.from_url`."""
        return cls(ProducerConfig.from_url(url, **overrides))

    @classmethod
    def from_properties(
        cls, source: Mapping[str, object] | str | PathLike[str], **overrides: Unpack[ProducerOptions]
    ) -> Self:
        """A producer configured by Java's keys, in a mapping or a .properties file; see `ProducerConfig.from_properties`."""
        return cls(ProducerConfig.from_properties(source, **overrides))

    @classmethod
    def from_env(
        cls, prefix: str = "KAFKA_", environ: Mapping[str, str] | None = None, **overrides: Unpack[ProducerOptions]
    ) -> Self:
        """A producer configured by environment variables like KAFKA_BOOTSTRAP_SERVERS; see `ProducerConfig.from_env`."""
        return cls(ProducerConfig.from_env(prefix, environ, **overrides))

    # -- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> Self:
        """Start the tasks; what ``async with`` does on entering. Waits for no broker.

        Raises `ProducerStateError` where it is started already. Cancellation: nothing is awaited here.
        """
        if self._engine is not None:
            raise (
                self._engine.refusal() if not self._engine.is_usable else ProducerStateError("The producer is started.")
            )
        self._closed = False
        self._closing = None
        self._engine = Engine(self.config, self.client_id, self._metrics, self._random)
        self._engine.start()
        return self

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # An anyio scope that was cancelled would interrupt every await in here. What was accepted is still delivered.
        with anyio.CancelScope(shield=True):
            try:
                await self.close()
            except asyncio.CancelledError:
                await self._abandon()
                raise

    async def ready(self, timeout: float | None = None) -> None:
        """Wait until a broker is connected and has told the cluster's metadata.

        ``timeout`` is in seconds; None means ``max_block_ms``. Raises `KafkaTimeoutError`, with the last connection's
        error as its cause, and `AuthenticationError` at once. Cancellation: nothing is undone, the producer goes on.
        """
        engine = self._usable()
        await self._interruptible(engine, engine.client.wait_ready(self._deadline(engine, timeout)))

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until every record that was accepted before has its outcome, good or bad; nothing lingers meanwhile.

        ``timeout`` is in seconds; None: as long as it takes, which ``delivery_timeout_ms`` bounds. Raises
        `KafkaTimeoutError`. May be called from anywhere, also while another flush runs. Cancellation: the records
        go on.
        """
        engine = self._usable()
        began = engine.loop.time()
        try:
            if not await _flushed(engine, None if timeout is None else began + timeout):
                raise KafkaTimeoutError(
                    f"flush() took longer than {timeout:g} s: {engine.accumulator.pending_records} record(s) still wait for "
                    "their acknowledgement, and go on doing so."
                )
        finally:
            self._metrics.flush_time_s += engine.loop.time() - began

    async def close(self, timeout: float | None = None) -> CloseReport:
        """Deliver what was accepted, end everything, and tell what became of it all.

        ``timeout`` is in seconds; None means ``close_timeout_ms``. When it ends, what is still waiting is given up: its
        deliveries fail as `NotWritten` or `Unknown`, and the report holds the records. Calls that wait for room or
        metadata fail at once with `ProducerClosed`. Later calls return the same report; a call while another one closes
        waits for that one.

        Cancellation: closing goes on in the background, within its timeout.
        """
        engine = self._engine
        if engine is None:
            return CloseReport() if self._closing is None else self._closing.result()
        if engine.loop is not asyncio.get_running_loop():
            raise engine.refusal()
        if self._closing is None:
            seconds = self.config.close_timeout_ms / 1000 if timeout is None else timeout
            self._closing = engine.loop.create_task(self._close(engine, seconds), name="aioproducer close")
        return await asyncio.shield(self._closing)

    async def _close(self, engine: Engine, timeout: float) -> CloseReport:
        deadline = engine.loop.time() + timeout
        engine.close_intake()
        if engine.died is None:
            await _flushed(engine, deadline)
        left: list[tuple[bool, ProducerBatch]] = [
            (batch.possibly_written or batch.on_its_way, batch) for batch in engine.accumulator.incomplete()
        ]
        readers = [(written, batch.undelivered()) for written, batch in left]
        engine.accumulator.fail_all(
            ProducerClosed(f"The producer was closed, and {timeout:g} s were not enough to deliver this record."),
            engine.loop.time(),
        )
        await asyncio.sleep(0)  # the callbacks of the last outcomes run before the tasks that they may need end
        await engine.stop()
        closing = self._interceptors.close()
        if closing is not None:
            await closing
        self._engine = None
        self._closed = True
        return CloseReport(
            delivered=self._metrics.records_delivered,
            failed=self._metrics.records_failed,
            unknown=self._metrics.records_unknown,
            not_written=[record for written, read in readers if not written for record in read()],
            maybe_written=[record for written, read in readers if written for record in read()],
        )

    async def _abandon(self) -> None:
        """Close without waiting for anybody, so that a cancelled `async with` leaves nothing behind."""
        engine, closing = self._engine, self._closing
        if engine is None or closing is None:
            return
        engine.accumulator.fail_all(
            ProducerClosed("The producer was closed by a cancellation before this record was delivered."),
            engine.loop.time(),
        )
        await asyncio.wait([closing])

    # -- records ------------------------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str | ProducerRecord,
        value: object = None,
        *,
        key: object = None,
        headers: HeadersInput | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: DeliveryCallback | None = None,
        timeout: float | None = None,
    ) -> RecordMetadata:
        """Send one record and wait for its acknowledgement; the metadata tell where it is.

        ``topic`` may be a whole `ProducerRecord`; the arguments behind it are left out then. ``timestamp_ms`` is in
        milliseconds since 1970 (None: now). ``timeout``, in seconds, bounds the whole call; without it, ``max_block_ms``
        bounds the wait for metadata and room, and ``delivery_timeout_ms`` the delivery.

        Raises `InvalidRecord` for what can never be sent, `NotWritten` or `Unknown` for what was not acknowledged.
        After a `timeout` that ends while the record is on its way (`UnknownTimeout`), it is still being sent, and a
        failure goes to ``on_delivery_error``.

        Cancellation: while it waits for metadata or room, nothing was buffered. Afterwards the record is delivered all
        the same; its outcome goes to ``on_delivery`` or, a failure that nobody looks at, to ``on_delivery_error``.
        """
        if timeout is None:
            return await (
                await self.enqueue(
                    topic,
                    value,
                    key=key,
                    headers=headers,
                    partition=partition,
                    timestamp_ms=timestamp_ms,
                    on_delivery=on_delivery,
                )
            )
        deadline = asyncio.get_running_loop().time() + timeout
        delivery = await self.enqueue(
            topic,
            value,
            key=key,
            headers=headers,
            partition=partition,
            timestamp_ms=timestamp_ms,
            on_delivery=on_delivery,
            timeout=timeout,
        )
        try:
            async with asyncio.timeout_at(deadline) as limit:
                return await delivery
        except TimeoutError:
            if not limit.expired():
                raise
        error = UnknownTimeout(
            f"The record for {delivery.topic_partition} was not acknowledged within {timeout:g} s. It is still being sent; "
            "a failure will go to on_delivery_error."
        )
        error.topic, error.partition = delivery.topic_partition
        raise error

    async def enqueue(
        self,
        topic: str | ProducerRecord,
        value: object = None,
        *,
        key: object = None,
        headers: HeadersInput | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: DeliveryCallback | None = None,
        timeout: float | None = None,
    ) -> Delivery:
        """Put one record into the buffer and go on; the `Delivery` can be awaited for its acknowledgement.

        Waits only where it must: for the topic's metadata, and for room in ``buffer_memory`` - first come, first served.
        ``timeout`` is in seconds; None means ``max_block_ms``. ``on_delivery(delivery)`` is called with the outcome.

        Raises `InvalidRecord` for what can never be sent, and `NotWrittenTimeout` when time runs out.

        Cancellation: while it waits, nothing was buffered. It never takes effect after the record was buffered.
        """
        engine = self._usable()
        if engine.burst >= _BURST_BYTES:
            engine.burst = 0
            if engine.sender.is_behind:
                await asyncio.sleep(0)  # before the append: cancelled here, nothing was buffered
        record: _Serialized | None = None
        try:
            if self._is_plain and not isinstance(topic, ProducerRecord):
                record = self._plain(topic, value, key, headers, partition, timestamp_ms)
            else:
                whole = _whole_record(topic, value, key, headers, partition, timestamp_ms)
                record = (
                    self._plain(whole.topic, whole.value, whole.key, whole.headers, whole.partition, whole.timestamp_ms)
                    if self._is_plain
                    else await self._in_time(engine, timeout, self._prepared(whole))
                )
            delivery = self._try_append(engine, record)
            if delivery is None:
                delivery = await self._append(engine, record, timeout)
        except KafkaError as error:
            self._not_accepted(engine, record, error)
            raise
        engine.burst += record.size
        if not self._is_plain:
            self._watch(engine, delivery, record.headers)
        if on_delivery is not None:
            delivery.add_done_callback(on_delivery)
        return delivery

    def enqueue_nowait(
        self,
        topic: str | ProducerRecord,
        value: object = None,
        *,
        key: object = None,
        headers: HeadersInput | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> Delivery:
        """Put one record into the buffer now, or raise: for callers that cannot wait.

        Raises `BufferFull` where there is no room or others wait for it, `MetadataNotReady` while the topic's partitions
        are not known (they are asked for), and `InvalidRecord` for what can never be sent, or not without waiting: an
        async serializer or interceptor.
        """
        engine = self._usable()
        record: _Serialized | None = None
        try:
            whole = _whole_record(topic, value, key, headers, partition, timestamp_ms)
            record = _run_now(self._prepared(whole))
            delivery = self._try_append(engine, record)
            if delivery is None:
                raise self._no_room_now(engine, record)
        except KafkaError as error:
            self._not_accepted(engine, record, error)
            raise
        if not self._is_plain:
            self._watch(engine, delivery, record.headers)
        if on_delivery is not None:
            delivery.add_done_callback(on_delivery)
        return delivery

    async def send_many(
        self,
        topic: str,
        values: Iterable[object] | AsyncIterable[object],
        *,
        key: Callable[[Any], object] | None = None,
        headers: HeadersInput | None = None,
        partition: int | None = None,
        on_progress: SendManyProgress | None = None,
        timeout: float | None = None,
    ) -> SendManyResult:
        """Send everything that ``values`` yields, in order and in bounded memory, and wait for all acknowledgements.

        Each item is a value, as for `send`, or a `ProducerRecord` that brings its own key, headers and so on (an empty
        topic in it stands for ``topic``). ``key(item)`` makes a key of each value. ``on_progress`` gets the result so
        far, about ten times a second and at the end. ``timeout`` is each record's, as in `enqueue`.

        Reading stops at the first record that fails; the rest that was accepted still gets its outcome, and then
        `SendManyError` tells how far it came. What ``values`` or ``key`` raise comes out as it is, after the same wait.

        Cancellation: no further item is read; what was accepted is delivered all the same.
        """
        tally = await self.begin_send_many(on_progress)
        failed: KafkaError | None = None
        options = {"key": key, "headers": headers, "partition": partition, "timeout": timeout}
        try:
            if isinstance(values, AsyncIterable):
                async for item in values:
                    failed = await self.add_to_send_many(tally, topic, (item,), **options)
                    if failed is not None:
                        break
            else:
                failed = await self.add_to_send_many(tally, topic, values, **options)
        except Exception:
            await tally.finish()
            raise
        return await self.end_send_many(tally, topic, failed)

    async def begin_send_many(self, on_progress: SendManyProgress | None) -> SendManyTally:
        """The first of the three steps of `send_many`, for callers that have the records in pieces."""
        return SendManyTally(on_progress, self._usable().loop.time)

    async def add_to_send_many(
        self,
        tally: SendManyTally,
        topic: str,
        values: Iterable[object],
        *,
        key: Callable[[Any], object] | None = None,
        headers: HeadersInput | None = None,
        partition: int | None = None,
        timeout: float | None = None,
    ) -> KafkaError | None:
        """Accept some more records; answers the failure that ends it all, if there is one already."""
        try:
            for item in values:
                if isinstance(item, ProducerRecord):
                    record = item if item.topic else replace(item, topic=topic)
                    tally.accepted(await self.enqueue(record, timeout=timeout))
                else:
                    of_item = None if key is None else key(item)
                    tally.accepted(
                        await self.enqueue(
                            topic, item, key=of_item, headers=headers, partition=partition, timeout=timeout
                        )
                    )
                failed = tally.collect()
                if failed is not None:
                    return failed
        except (DeliveryError, InvalidRecord) as error:
            return error
        return None

    async def end_send_many(self, tally: SendManyTally, topic: str, failed: KafkaError | None) -> SendManyResult:
        """Wait for the outcome of everything that was accepted."""
        failed = failed or await tally.finish()
        if failed is None:
            return tally.result
        await tally.finish()
        raise SendManyError(
            f"send_many to {topic!r} stopped after {tally.result.count} acknowledged record(s): {failed}",
            tally.result,
            failed,
        ) from failed

    async def partitions_for(self, topic: str, timeout: float | None = None) -> tuple[PartitionInfo, ...]:
        """The partitions of a topic in the order of their numbers, and who leads them.

        ``timeout`` is in seconds; None means ``max_block_ms``. Raises `KafkaTimeoutError` where the topic stays unknown,
        `InvalidRecord` for an impossible name, `BrokerError` where it may not be seen. Cancellation: nothing is undone.
        """
        engine = self._usable()
        self._check_topic(topic)
        deadline = self._deadline(engine, timeout)
        found = await self._interruptible(engine, engine.client.wait_topic(topic, None, deadline))
        return tuple(PartitionInfo(topic, each.index, each.leader, each.leader_epoch) for each in found.partitions)

    # -- looking in ---------------------------------------------------------------------------------------------------

    def metrics(self, topic: str | None = None) -> Mapping[str, float]:
        """The numbers of the producer under the names of Java's producer-metrics, or those of one topic.

        Totals count from the first start; times are in milliseconds, sizes in bytes.
        """
        if topic is not None:
            return self._metrics.topic(topic).as_mapping()
        numbers = self._metrics.as_mapping()
        engine = self._engine
        if engine is not None:
            numbers["buffer-total-bytes"] = engine.pool.total
            numbers["buffer-available-bytes"] = engine.pool.free
            numbers["waiting-threads"] = engine.pool.waiting
            numbers["records-pending"] = engine.accumulator.pending_records
            numbers["connection-count"] = len(engine.client.connected_nodes())
            numbers["requests-in-flight"] = sum(
                engine.client.in_flight(node) for node in engine.client.connected_nodes()
            )
            numbers["producer-epoch"] = engine.sequences.epoch
        return numbers

    def health(self) -> Health:
        """The producer's state in a few numbers, for liveness and readiness probes; costs little, waits for nothing."""
        engine = self._engine
        if engine is None:
            return Health(HealthStatus.CLOSED if self._closed else HealthStatus.CREATED)
        oldest = engine.accumulator.oldest_created_at
        connected = engine.client.connected_nodes()
        return Health(
            _status(engine, bool(connected)),
            connected,
            engine.accumulator.pending_records,
            engine.pool.waiting,
            engine.pool.used / engine.pool.total,
            0.0 if oldest is None else engine.loop.time() - oldest,
            engine.died or engine.client.last_error,
        )

    def __repr__(self) -> str:
        servers = ",".join(self.config.bootstrap_servers)
        return f"<Producer {self.client_id} to {servers} [{self.health().status}]>"

    # -- the path of a record -----------------------------------------------------------------------------------------

    @property
    def is_forked(self) -> bool:
        """Whether this process is a fork of the one in which the producer was started."""
        return self._engine is not None and self._engine.is_forked

    def _usable(self) -> Engine:
        engine = self._engine
        if engine is None:
            raise (
                ProducerClosed("The producer is closed. Enter it again, or make another one.")
                if self._closed
                else NotStarted("The producer is not started: use it within `async with producer:`, or call start().")
            )
        if not engine.is_usable:
            raise engine.refusal()
        return engine

    def _plain(
        self,
        topic: str,
        value: object,
        key: object,
        headers: HeadersInput | None,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> _Serialized:
        """The short way, where nothing of the user's runs."""
        return self._serialized(
            topic,
            partition,
            timestamp_ms,
            normalize_bytes(key, "key"),
            normalize_bytes(value, "value"),
            normalize_headers(headers) if headers else (),
        )

    async def _prepared(self, record: ProducerRecord) -> _Serialized:
        """Interceptors and serializers; suspends only where one of them is async."""
        if self._interceptors.sees_send:
            seen = self._interceptors.on_send(record)
            record = seen if isinstance(seen, ProducerRecord) else await seen
        headers = normalize_headers(record.headers)
        key = self._serialize_key(record.topic, record.key, headers)
        if isinstance(key, Awaitable):
            key = await key
        value = self._serialize_value(record.topic, record.value, headers)
        if isinstance(value, Awaitable):
            value = await value
        return self._serialized(record.topic, record.partition, record.timestamp_ms, key, value, headers)

    def _serialized(
        self,
        topic: str,
        partition: int | None,
        timestamp_ms: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
    ) -> _Serialized:
        """Check everything that can be checked without the cluster."""
        if topic not in self._legal_topics:
            self._check_topic(topic)
        if partition is not None and (type(partition) is not int or partition < 0):
            raise InvalidRecord(
                f"partition={partition!r}: a partition is a whole number from 0; None leaves the choice to the partitioner."
            )
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        elif type(timestamp_ms) is not int or timestamp_ms < 0:
            raise InvalidRecord(
                f"timestamp_ms={timestamp_ms!r}: a timestamp is a whole number of milliseconds since 1970; None means now."
            )
        size = record_size_upper_bound(key, value, headers)
        if size + BATCH_OVERHEAD > self.config.max_request_size or size + BATCH_OVERHEAD > self.config.buffer_memory:
            raise self._too_large(topic, size + BATCH_OVERHEAD)
        return _Serialized(topic, partition, timestamp_ms, key, value, headers, size)

    def _check_topic(self, topic: object) -> None:
        if not isinstance(topic, str) or not _LEGAL_TOPIC.match(topic):
            raise InvalidRecord(
                f"topic={topic!r}: a topic's name is 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-', "
                "and neither '.' nor '..'."
            )
        if len(self._legal_topics) < 10_000:
            self._legal_topics.add(topic)

    def _too_large(self, topic: str, size: int) -> RecordTooLarge:
        option = "max_request_size" if size > self.config.max_request_size else "buffer_memory"
        limit = self.config.max_request_size if option == "max_request_size" else self.config.buffer_memory
        return RecordTooLarge(
            f"The record for {topic!r} takes up to {size} bytes, more than {option}={limit}. Raise that option (and, for "
            "max_request_size, the topic's max.message.bytes), or send a smaller record."
        )

    def _try_append(self, engine: Engine, record: _Serialized) -> Delivery | None:
        topic = engine.client.topic(record.topic)
        if topic is None or (record.partition is not None and record.partition >= topic.partition_count):
            return None
        return engine.accumulator.try_append(
            topic,
            self._partition(record, topic),
            record.timestamp_ms,
            record.key,
            record.value,
            record.headers,
            record.size,
            engine.loop.time(),
        )

    async def _append(self, engine: Engine, record: _Serialized, timeout: float | None) -> Delivery:
        """Wait for metadata, then for memory, under one deadline."""
        seconds = self.config.max_block_ms / 1000 if timeout is None else timeout
        deadline = engine.loop.time() + seconds
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
                    partition = self._partition(record, topic)
                    waits_for = "there was no room in buffer_memory"
                    began = engine.loop.time()
                    try:
                        return await engine.accumulator.append(
                            topic,
                            partition,
                            record.timestamp_ms,
                            record.key,
                            record.value,
                            record.headers,
                            record.size,
                            engine.loop.time,
                        )
                    finally:
                        self._metrics.pool_wait_s += engine.loop.time() - began
        except PoolClosed:
            raise engine.refusal() from None
        except InvalidRecord:
            raise
        except TimeoutError as error:
            if not engine.is_usable:
                raise engine.refusal() from None
            raise self._timed_out(engine, record, seconds, waits_for, error) from error.__cause__
        except KafkaError as error:
            if not engine.is_usable:
                raise engine.refusal() from error
            raise _about(NotWritten(f"The record for topic {record.topic!r} was not sent: {error}"), record) from error

    def _timed_out(
        self, engine: Engine, record: _Serialized, seconds: float, waits_for: str, error: TimeoutError
    ) -> NotWrittenTimeout:
        if "room" in waits_for:
            self._metrics.buffer_exhausted_total += 1
            waits_for += (
                f" ({engine.pool.used} of {engine.pool.total} bytes are in use, {engine.pool.waiting} sender(s) wait)"
            )
        reason = error.__cause__ or engine.client.last_error
        why = f": {reason}" if reason is not None else "."
        late = NotWrittenTimeout(f"The record was not accepted within {seconds:g} s, because {waits_for}{why}")
        return _about(late, record)

    def _no_room_now(self, engine: Engine, record: _Serialized) -> NotWritten:
        topic = engine.client.topic(record.topic)
        if topic is None or (record.partition is not None and record.partition >= topic.partition_count):
            engine.client.request_update(record.topic)
            what = "partitions" if topic is None else f"partition {record.partition}"
            return _about(
                MetadataNotReady(f"The {what} of topic {record.topic!r} not known yet; asked for now."), record
            )
        return _about(
            BufferFull(
                f"No room for {record.size} bytes in buffer_memory: {engine.pool.used} of {engine.pool.total} bytes are in "
                f"use, and {engine.pool.waiting} sender(s) wait. Slow down, or wait with enqueue()."
            ),
            record,
        )

    def _partition(self, record: _Serialized, topic: TopicMetadata) -> int | None:
        if record.partition is not None:
            return record.partition
        partitioner = self._partitioner
        if partitioner is None:
            if record.key is None or self.config.partitioner_ignore_keys:
                return None
            return partition_for_key(record.key, topic.partition_count)
        try:
            chosen = partitioner(record.topic, record.key, record.value, PartitionIds.of(topic))
        except Exception as error:  # foreign code
            raise InvalidRecord(f"The partitioner raised for a record of topic {record.topic!r}: {error!r}") from error
        if chosen is not None and (not isinstance(chosen, int) or not 0 <= chosen < topic.partition_count):
            raise InvalidRecord(
                f"The partitioner chose {chosen!r} for a record of topic {record.topic!r}, which has the partitions 0 to "
                f"{topic.partition_count - 1}; None leaves the choice to the producer."
            )
        return chosen

    # -- outcomes for interceptors --------------------------------------------------------------------------------------

    def _watch(self, engine: Engine, delivery: Delivery, headers: Sequence[Header]) -> None:
        if not self._interceptors.sees_acknowledgement:
            return

        def acknowledged(delivery: Delivery) -> None:
            metadata, error = delivery.peek()
            self._tell_interceptors(engine, metadata, error, headers)

        delivery.watch(acknowledged)

    def _not_accepted(self, engine: Engine, record: _Serialized | None, error: KafkaError) -> None:
        if self._interceptors.sees_acknowledgement:
            self._tell_interceptors(engine, None, error, record.headers if record is not None else ())

    def _tell_interceptors(
        self, engine: Engine, metadata: RecordMetadata | None, error: KafkaError | None, headers: Sequence[Header]
    ) -> None:
        rest = self._interceptors.on_acknowledgement(metadata, error, headers)
        if rest is not None:
            engine.spawn(rest, "aioproducer interceptor")

    # -- waiting ------------------------------------------------------------------------------------------------------

    def _deadline(self, engine: Engine, timeout: float | None) -> float:
        return engine.loop.time() + (self.config.max_block_ms / 1000 if timeout is None else timeout)

    async def _in_time(self, engine: Engine, timeout: float | None, work: Awaitable[_T]) -> _T:
        """Interceptors and serializers within the call's time."""
        limit = asyncio.timeout_at(self._deadline(engine, timeout))
        try:
            async with limit:
                return await work
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise NotWrittenTimeout(
                "The record was not accepted in time, because an interceptor or serializer took too long."
            ) from error

    async def _interruptible(self, engine: Engine, work: Awaitable[_T]) -> _T:
        """Wait for something of the client's, unless the producer ends first."""
        limit = asyncio.timeout(None)
        try:
            async with limit:
                with engine.interrupting(limit):
                    return await work
        except TimeoutError:
            if limit.expired():
                raise engine.refusal() from None
            raise


def _refuse_unsupported(config: ProducerConfig) -> None:
    """Say at once what this version does not do, rather than do something else."""
    if config.transactional_id is not None:
        raise ConfigError("transactional_id: this version of aioproducer has no transactions yet.")
    if config.security_protocol != "PLAINTEXT":
        raise ConfigError(
            f"security_protocol={config.security_protocol!r}: this version of aioproducer speaks PLAINTEXT only; TLS and "
            "SASL are not there yet."
        )


def _partitioner(config: ProducerConfig) -> Callable[..., int | None] | None:
    chosen = config.partitioner
    if chosen is None:
        return None
    if chosen == "round_robin":
        return RoundRobinPartitioner()
    return getattr(chosen, "partition", chosen)  # type: ignore[return-value]


def _whole_record(
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
        raise InvalidRecord(
            "A ProducerRecord brings its own value, key, headers, partition and timestamp; give it alone."
        )
    return topic


_E = TypeVar("_E", bound=DeliveryError)


def _about(error: _E, record: _Serialized) -> _E:
    error.topic, error.partition, error.record = record.topic, record.partition, record.as_record()
    return error


def _run_now(work: Any) -> Any:
    """The result of a coroutine that does not have to wait."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    work.close()
    raise InvalidRecord(
        "enqueue_nowait() cannot wait for an async serializer or interceptor; use `await enqueue()` with those."
    )


def _status(engine: Engine, connected: bool) -> HealthStatus:
    if engine.died is not None:
        return HealthStatus.FAILED
    if engine.closing:
        return HealthStatus.CLOSING
    if connected:
        return HealthStatus.READY
    return HealthStatus.DEGRADED if engine.client.metadata.nodes else HealthStatus.STARTING


async def _flushed(engine: Engine, deadline: float | None) -> bool:
    """Whether everything that was accepted had its outcome before the deadline."""
    done = engine.loop.create_future()
    engine.accumulator.begin_flush(lambda: done.done() or done.set_result(None), engine.loop.time())
    timer = None if deadline is None else engine.loop.call_at(deadline, lambda: done.done() or done.set_result(False))
    try:
        return await done is None
    finally:
        if timer is not None:
            timer.cancel()
        engine.accumulator.end_flush()


class SendManyTally:
    """Adds up the outcomes of ``send_many`` in the order of the records."""

    def __init__(self, on_progress: SendManyProgress | None, clock: Callable[[], float]) -> None:
        self.result = SendManyResult()
        self._on_progress = on_progress
        self._clock = clock
        self._reported_at = clock()
        self._waiting: deque[Delivery] = deque()
        self._count = self._failed = self._unknown = self._bytes = 0
        self._offsets: dict[TopicPartition, tuple[int, int]] = {}
        self._error: DeliveryError | None = None

    def accepted(self, delivery: Delivery) -> None:
        """One more record has been accepted."""
        self._waiting.append(delivery)

    def collect(self) -> DeliveryError | None:
        """Take the outcomes that are known at the head of the line; answers the first failure."""
        waiting = self._waiting
        while waiting and waiting[0].done():
            self._count_in(waiting.popleft())
        if self._on_progress is not None and self._clock() - self._reported_at >= _PROGRESS_INTERVAL_S:
            self._report()
        return self._error

    async def finish(self) -> DeliveryError | None:
        """Wait for all the rest."""
        while self._waiting:
            with suppress(DeliveryError):  # collect() counts it
                await self._waiting[0]
            self.collect()
        self._report()
        return self._error

    def _count_in(self, delivery: Delivery) -> None:
        error = delivery.exception()
        if error is not None:
            self._error = self._error or error
            if isinstance(error, NotWritten):
                self._failed += 1
            else:
                self._unknown += 1
            return
        metadata = delivery.result()
        self._count += 1
        self._bytes += max(0, metadata.serialized_key_size) + max(0, metadata.serialized_value_size)
        if metadata.offset >= 0:
            partition = metadata.topic_partition
            first, last = self._offsets.get(partition, (metadata.offset, metadata.offset))
            self._offsets[partition] = (min(first, metadata.offset), max(last, metadata.offset))

    def _report(self) -> None:
        self._reported_at = self._clock()
        self.result = SendManyResult(self._count, self._failed, self._unknown, self._bytes, dict(self._offsets))
        if self._on_progress is not None:
            self._on_progress(self.result)
