"""aiokafka's producer by its names, over `aioproducer.Producer`."""

from __future__ import annotations

import asyncio
import random
import warnings
from collections.abc import Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self, Unpack, cast

from aioproducer import errors as ours
from aioproducer.contrib.aiokafka import errors
from aioproducer.contrib.aiokafka.options import AIOKafkaOptions, Options
from aioproducer.contrib.aiokafka.records import BatchBuilder, checked_bytes, checked_headers, checked_timestamp
from aioproducer.contrib.aiokafka.structs import RecordMetadata
from aioproducer.contrib.aiokafka.translation import translated, translating
from aioproducer.delivery import Delivery
from aioproducer.producer import Producer
from aioproducer.types import Header, OffsetAndMetadata, TopicPartition

__all__ = ["AIOKafkaProducer", "TransactionContext"]


class AIOKafkaProducer:
    """Sends records as aiokafka's class of this name does, by `aioproducer.Producer`.

    ::

        async with AIOKafkaProducer(bootstrap_servers="localhost:9092") as producer:
            await producer.send_and_wait("orders", b"value", key=b"key")

    Options and their defaults are aiokafka's, see `Options`: so ``acks=1`` and no idempotence, unless you set
    ``enable_idempotence=True``. Exceptions have aiokafka's names, see `errors`; their cause is aioproducer's error.

    It differs from aiokafka in this. Records without a key stay in one partition for a batch, instead of a random one for
    each record. ``send()`` waits if 32 MB are buffered, not if one batch of the partition is. Every record succeeds or fails
    within ``linger_ms`` and twice ``request_timeout_ms``, with idempotence as well. ``start()`` waits for a broker for up to
    ``request_timeout_ms``. ``abort_transaction()`` does not send what is still buffered: those futures fail. ``stop()``
    aborts an open transaction.
    """

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        api_version: object = None,
        **options: Unpack[AIOKafkaOptions],
    ) -> None:
        """Check the options; raises `ConfigError`, a ValueError, for an invalid one, and TypeError for an unknown one.

        ``loop`` and ``api_version`` have no effect and are deprecated, as in aiokafka.
        """
        for name, value in (("loop", loop), ("api_version", api_version)):
            if value is not None:
                warnings.warn(
                    f"{name} is deprecated and has no effect; leave it out.", DeprecationWarning, stacklevel=2
                )
        self._loop = loop
        self._options = Options(**options)
        self._producer = Producer(self._options.bootstrap_servers, **self._options.for_producer())
        self._known: dict[str, frozenset[int]] = {}
        self._unresolved: set[asyncio.Future[Any]] = set()
        self._is_in_transaction = False

    @property
    def producer(self) -> Producer:
        """The producer that sends, for its metrics and health; not part of aiokafka's API."""
        return self._producer

    # -- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect to the cluster; with a ``transactional_id`` also fence earlier producers with the same id.

        Raises `errors.KafkaConnectionError` if no broker answers within ``request_timeout_ms`` or the login fails, and
        RuntimeError in another event loop than the one given as ``loop``. Cancellation: the producer is stopped.
        """
        if self._loop not in (None, asyncio.get_running_loop()):
            raise RuntimeError("The producer must be started in the event loop that was passed to it as `loop`.")
        if self._options.sends_secrets_in_the_clear:
            self._producer.log.warning(
                "The login sends its secret without encryption: security_protocol='SASL_PLAINTEXT'."
            )
        with translating():
            await self._producer.start()
        try:
            await self._producer.ready()
            if self._options.transactional_id is not None:
                with translating():
                    await self._producer.init_transactions()
        except (ours.KafkaTimeoutError, ours.BrokerConnectionError) as error:
            await self._producer.close(0)
            raise errors.in_both_hierarchies(errors.KafkaConnectionError, str(error)) from error
        except BaseException:
            await self._producer.close(0)
            raise

    async def stop(self) -> None:
        """Deliver what was accepted, abort an open transaction, and end all tasks and connections; may be called again.

        Cancellation: stopping continues in the background.
        """
        self._is_in_transaction = False
        with translating():
            await self._producer.close()
        await self._resolved()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    async def flush(self) -> None:
        """Wait until every record that was accepted before has succeeded or failed, and its future is done.

        Returns at once if the producer is not started or is stopped. Cancellation: the records are still sent.
        """
        try:
            await self._producer.flush()
        except (ours.NotStarted, ours.ProducerClosed):
            return
        except ours.KafkaError as error:
            raise translated(error) from error
        await self._resolved()

    async def _resolved(self) -> None:
        unresolved = tuple(self._unresolved)
        if unresolved:
            await asyncio.wait(unresolved)

    # -- records ------------------------------------------------------------------------------------------------------

    async def partitions_for(self, topic: str) -> set[int]:
        """Return the partitions of a topic.

        Raises `errors.UnknownTopicOrPartitionError` if the topic is unknown for ``request_timeout_ms``,
        `errors.InvalidTopicError` for an invalid name. Cancellation: nothing is undone.
        """
        return set(await self._learn(topic))

    async def _learn(self, topic: str) -> frozenset[int]:
        try:
            found = await self._producer.partitions_for(topic)
        except ours.InvalidRecord as error:
            raise errors.in_both_hierarchies(errors.InvalidTopicError, str(error)) from error
        except ours.KafkaTimeoutError as error:
            raise errors.in_both_hierarchies(errors.UnknownTopicOrPartitionError, str(error)) from error
        except ours.KafkaError as error:
            raise translated(error) from error
        known = self._known[topic] = frozenset(info.partition for info in found)
        return known

    async def send(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[object] | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Put a record into the buffer, and return a future of its metadata; the result is None with ``acks=0``.

        ``headers`` are pairs of str and bytes. Raises AssertionError without key and value, and for a partition that the
        topic does not have; TypeError for a key, value or header that is not bytes after serialization;
        `errors.MessageSizeTooLargeError`, `errors.UnknownTopicOrPartitionError`, `errors.ProducerClosed`,
        `errors.IllegalOperation` outside of a transaction if the producer is transactional, and `errors.KafkaTimeoutError`
        if there is no room within ``request_timeout_ms``. Exceptions of serializers and partitioner propagate unchanged.

        Cancellation: nothing is sent if the call had not returned. A cancelled future does not stop its record.
        """
        if value is None and key is None:
            raise AssertionError("A record needs a key or a value.")
        await self._check_partition(topic, partition)
        self._check_may_send()
        key_bytes = checked_bytes("key", self._serialized_key(key))
        value_bytes = checked_bytes("value", self._serialized_value(value))
        delivery = await self._enqueued(
            topic, value_bytes, key_bytes, checked_headers(headers), partition, checked_timestamp(timestamp_ms)
        )
        future: asyncio.Future[RecordMetadata] = self._new_future()
        delivery.add_done_callback(partial(_resolve, future, not self._options.waits_for_no_acknowledgement))
        return future

    async def send_and_wait(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[object] | None = None,
    ) -> RecordMetadata:
        """Send a record and wait until it is acknowledged; raises what `send` raises, and the error of the record.

        Cancellation: nothing is sent if the record was not in the buffer; otherwise it is still delivered.
        """
        return await (await self.send(topic, value, key, partition, timestamp_ms, headers))

    def _serialized_key(self, key: object) -> object:
        serializer = self._options.key_serializer
        return key if serializer is None else serializer(key)

    def _serialized_value(self, value: object) -> object:
        serializer = self._options.value_serializer
        return value if serializer is None else serializer(value)

    async def _check_partition(self, topic: str, partition: int | None) -> None:
        known = self._known.get(topic)
        if known is None or (partition is not None and partition not in known):
            known = await self._learn(topic)  # the topic may have new partitions
            if partition is not None and partition not in known:
                raise AssertionError(f"Topic {topic!r} has no partition {partition!r}, only 0 to {len(known) - 1}.")

    def _check_may_send(self) -> None:
        if self._options.transactional_id is not None and not self._is_in_transaction:
            raise errors.in_both_hierarchies(errors.IllegalOperation, "Records can be sent only within a transaction.")

    async def _enqueued(
        self,
        topic: str,
        value: bytes | bytearray | memoryview | None,
        key: bytes | bytearray | memoryview | None,
        headers: list[Header],
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Delivery:
        try:
            return await self._producer.enqueue(
                topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
            )
        except ours.NotWrittenTimeout as error:
            raise errors.in_both_hierarchies(errors.KafkaTimeoutError, str(error)) from error
        except ours.InvalidRecord as error:
            if error.__cause__ is not None:  # what the partitioner raised
                raise error.__cause__ from None
            raise translated(error) from error
        except ours.KafkaError as error:
            raise translated(error) from error

    def _new_future(self) -> asyncio.Future[Any]:
        future = asyncio.get_running_loop().create_future()
        self._unresolved.add(future)
        future.add_done_callback(self._unresolved.discard)
        return future

    # -- batches ------------------------------------------------------------------------------------------------------

    def create_batch(self) -> BatchBuilder:
        """Return an empty batch of at most ``max_batch_size`` bytes, to be filled and passed to `send_batch`."""
        return BatchBuilder(
            self._options.max_batch_size,
            key_serializer=self._options.key_serializer,
            value_serializer=self._options.value_serializer,
        )

    async def send_batch(
        self, batch: BatchBuilder, topic: str, *, partition: int | None
    ) -> asyncio.Future[RecordMetadata]:
        """Close a batch, put its records into the buffer, and return a future of the first record's metadata.

        The records are sent in order, but Kafka may get them in more than one batch, or together with others. The future
        fails with the first error of a record; its result is None for an empty batch and with ``acks=0``. A ``partition`` of
        None is chosen as for a record without a key. Raises what `send` raises. Cancellation: records that are in the buffer
        are still delivered.
        """
        await self._check_partition(topic, partition)
        if partition is None:
            partition = await self._chosen_partition(topic)
        self._check_may_send()
        batch.close()
        future = self._new_future()
        whole = _WholeBatch(future, batch.record_count(), not self._options.waits_for_no_acknowledgement)
        try:
            for record in batch.records():
                delivery = await self._enqueued(
                    topic, record.value, record.key, list(record.headers), partition, record.timestamp
                )
                delivery.add_done_callback(whole.count)
        except BaseException:
            future.cancel()  # the caller does not get it
            raise
        return future

    async def _chosen_partition(self, topic: str) -> int:
        with translating():
            found = await self._producer.partitions_for(topic)
        everything = [info.partition for info in found]
        available = [info.partition for info in found if info.leader >= 0]
        partitioner = self._options.partitioner
        if partitioner is not None:
            return partitioner(None, everything, available)
        return random.choice(available or everything)

    # -- transactions -------------------------------------------------------------------------------------------------

    async def begin_transaction(self) -> None:
        """Begin a transaction, which takes every record until it is committed or aborted.

        Waits for an earlier commit or abort whose caller was cancelled. Raises `errors.IllegalOperation` without a
        ``transactional_id`` or if a transaction is open already, and the error that ended this producer's transactions.
        Cancellation: no transaction is begun.
        """
        self._check_transactional()
        with translating():
            await self._producer.transaction().__aenter__()
        self._is_in_transaction = True

    async def commit_transaction(self) -> None:
        """Commit the transaction, after all of its records were sent; their futures are done then.

        Raises the error of a record that failed, `errors.ProducerFenced`, `errors.IllegalOperation` if no transaction is
        open. aiokafka waits without a limit; this raises `errors.KafkaTimeoutError` when the records' own time and
        ``transaction_timeout_ms`` are over, so that brokers have ended the transaction. Cancellation: the commit continues.
        """
        self._check_transactional()
        self._is_in_transaction = False
        with translating():
            await self._producer.commit_transaction(timeout=self._end_timeout_s)
        await self._resolved()

    async def abort_transaction(self) -> None:
        """Abort the transaction; records that were not sent yet fail.

        Raises what `commit_transaction` raises, except errors of records. Cancellation: the abort continues.
        """
        self._check_transactional()
        self._is_in_transaction = False
        with translating():
            await self._producer.abort_transaction(timeout=self._end_timeout_s)
        await self._resolved()

    def transaction(self) -> TransactionContext:
        """Return a transaction to enter: ``async with producer.transaction():``."""
        return TransactionContext(self)

    async def send_offsets_to_transaction(self, offsets: Mapping[Any, Any], group_id: str) -> None:
        """Commit a consumer group's positions with the transaction.

        ``offsets`` maps topic partitions, of this module or of aiokafka, to the offset of the next record to read, alone or
        with a text. Raises `errors.IllegalOperation` outside of a transaction, ValueError for an invalid group or mapping,
        TypeError for other keys and metadata. Cancellation: the positions are still part of the transaction.
        """
        self._check_transactional()
        if not self._is_in_transaction:
            raise errors.in_both_hierarchies(errors.IllegalOperation, "Offsets can be sent only within a transaction.")
        if not group_id or not isinstance(cast("object", group_id), str):
            raise ValueError(f"Invalid group_id={group_id!r}: must be the name of a consumer group.")
        checked = _checked_offsets(offsets)
        with translating():
            await self._producer.send_offsets_to_transaction(checked, group_id)

    @property
    def _end_timeout_s(self) -> float:
        config = self._producer.config
        return (config.delivery_timeout_ms + config.transaction_timeout_ms + config.request_timeout_ms) / 1000

    def _check_transactional(self) -> None:
        if self._options.transactional_id is None:
            raise errors.in_both_hierarchies(errors.IllegalOperation, "Transactions need the option transactional_id.")


class TransactionContext:
    """A transaction of an `AIOKafkaProducer`: committed at the end of its block, aborted on an exception."""

    def __init__(self, producer: AIOKafkaProducer) -> None:
        self._producer = producer

    async def __aenter__(self) -> Self:
        await self._producer.begin_transaction()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            await self._producer.commit_transaction()
            return
        try:
            await self._producer.abort_transaction()
        except Exception as failed:
            if not isinstance(failed.__cause__, ours.ReopenRequired | ours.TransactionFatal):
                raise  # otherwise the exception of the block says why no transaction can be aborted


class _WholeBatch:
    """The outcome of the records that were sent together: that of the first, or the first error."""

    def __init__(self, future: asyncio.Future[Any], records: int, acknowledged: bool) -> None:
        self._future = future
        self._missing = records
        self._acknowledged = acknowledged
        self._first: Delivery | None = None
        if not records:
            future.set_result(None)

    def count(self, delivery: Delivery) -> None:
        self._missing -= 1
        if self._first is None:
            self._first = delivery
        if delivery.exception() is not None:
            _resolve(self._future, self._acknowledged, delivery)
        elif not self._missing:
            _resolve(self._future, self._acknowledged, self._first)


def _resolve(future: asyncio.Future[Any], acknowledged: bool, delivery: Delivery) -> None:
    error = delivery.exception()
    if future.done():
        return
    if error is not None:
        future.set_exception(translated(error))
        if isinstance(error.__cause__, ours.TransactionAborted):
            future.exception()  # the program has aborted it: asyncio need not log a future that is not awaited
    elif not acknowledged:
        future.set_result(None)
    else:
        found = delivery.result()
        future.set_result(
            RecordMetadata(
                found.topic,
                found.partition,
                found.topic_partition,
                found.offset,
                found.timestamp_ms,
                int(found.timestamp_type),
                None,
            )
        )


def _checked_offsets(offsets: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    if not offsets or not isinstance(offsets, dict):
        raise ValueError(f"Invalid offsets={offsets!r}: must be a dict such as {{TopicPartition('orders', 0): 42}}.")
    given = cast("dict[object, object]", offsets)
    return {_checked_partition(partition): _checked_position(position) for partition, position in given.items()}


def _checked_partition(partition: Any) -> TopicPartition:
    """The partition, also from a consumer of aiokafka, which has another class of that name."""
    if getattr(partition, "_fields", None) != TopicPartition._fields:
        raise TypeError(f"Invalid partition {partition!r} in offsets: must be a TopicPartition.")
    return TopicPartition(*cast("tuple[str, int]", partition))


def _checked_position(position: Any) -> OffsetAndMetadata:
    if isinstance(position, int):
        return OffsetAndMetadata(position)
    try:
        offset, metadata = cast("tuple[int, str]", position)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Invalid position {position!r}: must be an offset, or an offset and a text.") from error
    if not isinstance(cast("object", metadata), str):
        raise TypeError(f"Invalid metadata {metadata!r} in offsets: must be a str.")
    return OffsetAndMetadata(offset, metadata)
