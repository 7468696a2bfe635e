"""The producer for code without an event loop: scripts, threads, executors of other frameworks.

A `SyncProducer` runs a `Producer` in an event loop in its own thread. Every method may be called from any thread, at
the same time; each waits for its result as the async one would. Records are handed over in bulk if nothing has to be
decided (`HandOver`); every other call is a round trip through the event loop (anyio's blocking portal).
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import random
import threading
import time
import warnings
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeVar, Unpack

from anyio.from_thread import BlockingPortal

from aioproducer._config.other_clients import explain_names_of_other_clients
from aioproducer.arguments import check_hook, check_timeout, is_timeout
from aioproducer.config import ProducerConfig, ProducerOptions
from aioproducer.core.transactions.handle import TransactionHandle
from aioproducer.core.transactions.prepared_transaction import PreparedTransactionState
from aioproducer.delivery import Delivery
from aioproducer.errors import (
    ConfigError,
    DeliveryError,
    ForkedProcess,
    KafkaError,
    KafkaTimeoutError,
    NotStarted,
    ProducerClosed,
    ProducerStateError,
    SendManyError,
    TransactionError,
)
from aioproducer.intake.hand_over import OWN_THREAD, HandOver
from aioproducer.intake.many import SendMany, SendManyProgress, check_values
from aioproducer.intake.sync_delivery import SyncDelivery, SyncDeliveryCallback
from aioproducer.metrics.distribution import Histogram
from aioproducer.producer import Producer
from aioproducer.runtime.detached import detached
from aioproducer.runtime.log import ClientLog
from aioproducer.runtime.loop_thread import LoopThread
from aioproducer.serializers import NOT_GIVEN
from aioproducer.transactions.attempts import Attempts, Next
from aioproducer.transactions.context import NOT_BEGUN, OVER, SENDING, Transaction, refuse
from aioproducer.types import (
    CloseReport,
    ClusterInfo,
    ConsumerGroupMetadata,
    HeadersInput,
    Health,
    K,
    KeyT,
    OffsetAndMetadata,
    PartitionInfo,
    ProducerRecord,
    PurgeReport,
    RecordMetadata,
    SendManyResult,
    TopicPartition,
    V,
    ValueT,
    Written,
)

if TYPE_CHECKING:
    from uuid import UUID

    from aioproducer._config.options import ConfigOf, OptionsWithoutSerializers
    from aioproducer.intake.table import HeaderColumns, SendTableProgress, ValueFormat
    from aioproducer.metrics.application import ApplicationMetric
    from aioproducer.serializers import SerializerOf

__all__ = ["SyncDelivery", "SyncProducer", "SyncTransaction"]

_T = TypeVar("_T")

#: How long `close` waits for its thread to end after the producer's tasks have, in seconds.
_TO_END_S = 1.0

#: How many items of `send_many` the caller's thread may read ahead of the event loop.
_READ_AHEAD = 1000


@explain_names_of_other_clients(is_async=False)
class SyncProducer(Generic[K, V]):
    """Sends records to Kafka from threads.

    ::

        with SyncProducer("localhost:9092") as producer:
            metadata = producer.send("orders", b"value")

    Takes the options of `Producer`, and behaves like it, but its methods block instead of being awaited. Serializers,
    interceptors, partitioners and callbacks run in the producer's thread. A producer that is still open when the
    interpreter ends is closed then. One that is dropped is closed in the background, with a ResourceWarning.
    """

    def __init__(
        self: SyncProducer[KeyT, ValueT],
        bootstrap_servers: str | Sequence[str] | ConfigOf[KeyT, ValueT],
        *,
        key_serializer: SerializerOf[KeyT] | None = NOT_GIVEN,
        value_serializer: SerializerOf[ValueT] | None = NOT_GIVEN,
        **options: Unpack[OptionsWithoutSerializers],
    ) -> None:
        """Check the options, and start nothing; see `Producer`."""
        self._producer: Producer[Any, Any] = Producer(
            bootstrap_servers, key_serializer=key_serializer, value_serializer=value_serializer, **options
        )
        self._loop_thread: LoopThread | None = None
        self._hand_over: HandOver | None = None  # of this run, or of the one before
        self._closing = threading.Condition()  # of that, and of:
        self._closers = 0  # threads that wait in close(); the last of them ends the thread
        self._report: CloseReport | None = None

    @classmethod
    def from_url(cls, url: str, **overrides: Unpack[ProducerOptions]) -> Self:
        """A producer configured by a URL; see `ProducerConfig.from_url`."""
        return cls(ProducerConfig.from_url(url, **overrides))

    @classmethod
    def from_properties(
        cls, source: Mapping[str, object] | str | PathLike[str], **overrides: Unpack[ProducerOptions]
    ) -> Self:
        """A producer configured by Java's keys; see `ProducerConfig.from_properties`."""
        return cls(ProducerConfig.from_properties(source, **overrides))

    @classmethod
    def from_env(
        cls, prefix: str = "KAFKA_", environ: Mapping[str, str] | None = None, **overrides: Unpack[ProducerOptions]
    ) -> Self:
        """A producer configured by environment variables; see `ProducerConfig.from_env`."""
        return cls(ProducerConfig.from_env(prefix, environ, **overrides))

    @classmethod
    def attach(
        cls,
        handle: TransactionHandle,
        bootstrap_servers: str | Sequence[str] | ProducerConfig,
        *,
        writer: int | None = None,
        **options: Unpack[ProducerOptions],
    ) -> Self:
        """A producer that writes into the transaction of a handle; see `Producer.attach`."""
        attached = Producer.attach(handle, bootstrap_servers, writer=writer, **options)
        producer = cls(attached.config)
        producer._producer = attached
        return producer

    @property
    def config(self) -> ProducerConfig:
        """The options, checked and complete."""
        return self._producer.config

    @property
    def client_id(self) -> str:
        """The name in the brokers' logs and quotas."""
        return self._producer.client_id

    @property
    def is_forked(self) -> bool:
        """Whether this process is a fork of the one in which the producer was started."""
        return self._producer.is_forked

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start the thread and the tasks; waits for no broker."""
        if self._loop_thread is not None:
            raise ProducerStateError("The producer is already started.")
        loop_thread = LoopThread("aioproducer", self._producer.log)
        try:
            self._hand_over = loop_thread.portal.call(_start, self._producer)
        except BaseException:
            loop_thread.end(_TO_END_S, cancel=True)
            raise
        self._loop_thread, self._report = loop_thread, None
        self._dropped = weakref.finalize(self, _close_dropped, self._producer, loop_thread)
        self._dropped.atexit = False  # `_close_all` is for that
        _started.add(self)
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "A producer holds connections and cannot be pickled. Pickle its config, and create a producer from that."
        )

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
        if kind is None and self.transaction_error is not None:
            raise detached(self.transaction_error)  # another one each time: this one stays, and would keep the frames

    def ready(self, timeout: float | None = None) -> None:
        """Wait until a broker is connected and has answered a metadata request; see `Producer.ready`."""
        self._call(self._producer.ready, timeout)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every record accepted before has succeeded or failed; see `Producer.flush`."""
        seconds = check_timeout(timeout, ConfigError)

        async def flush() -> None:
            left = await self._settled(None, seconds)
            waiting = self._take_all()
            if left == 0 and waiting:
                raise KafkaTimeoutError(
                    f"flush() took longer than {seconds:g} s: {waiting} record(s) are waiting for metadata or for room "
                    "in buffer_memory, and are still being sent."
                )
            await self._producer.flush(left)
            await asyncio.sleep(0)  # so that the callbacks have run

        self._call(flush)

    def close(self, timeout: float | None = None) -> CloseReport:
        """Deliver accepted records, end all tasks and connections, and return a report; see `Producer.close`.

        If several threads close, all of them wait for the end, which comes within the shortest of their timeouts. Ctrl-C
        during the wait gives up the records that are not delivered, and ends at once.
        """
        check_timeout(timeout, ConfigError)  # before the thread is ended, even if that fails
        if self._producer.is_forked:  # the thread exists only in the parent, and so does everything to close
            self._loop_thread = None
            return CloseReport()
        self._refuse_own_thread()
        with self._closing:
            loop_thread = self._loop_thread
            if loop_thread is None:
                return self._report or CloseReport()
            self._closers += 1
        portal = loop_thread.portal
        try:
            report = self._report = portal.call(self._producer.close, timeout)
        except BaseException:  # Ctrl-C: stop waiting
            with suppress(Exception):
                self._report = portal.call(self._producer.close, 0)
            raise
        finally:
            with self._closing:
                self._closers -= 1
                if self._closers:
                    self._closing.wait_for(lambda: self._loop_thread is not loop_thread)
                else:
                    self._end(loop_thread)
        return report

    def _end(self, loop_thread: LoopThread) -> None:
        self._loop_thread = None
        self._dropped.detach()
        _started.discard(self)
        if loop_thread.end(_TO_END_S):
            if self._hand_over is not None:
                self._hand_over.end()
        else:
            self._producer.log.warning(
                "The producer's thread is left running, because a task in its event loop did not end when it was "
                "cancelled. Let CancelledError pass in async interceptors and callbacks."
            )
        self._closing.notify_all()

    # -- records ------------------------------------------------------------------------------------------------------

    def send(
        self,
        topic: str | ProducerRecord,
        value: V | None = None,
        *,
        key: K | None = None,
        headers: HeadersInput | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: SyncDeliveryCallback | None = None,
        timeout: float | None = None,
    ) -> RecordMetadata:
        """Send one record and wait for its acknowledgement; see `Producer.send`.

        ``on_delivery(delivery)`` is called with the outcome in the producer's thread: it must not block. An async one
        runs in the producer's event loop.
        """
        hand_over = self._hand_over
        if on_delivery is None and hand_over is not None and (timeout is None or is_timeout(timeout)):
            metadata = hand_over.send(topic, value, key, headers, partition, timestamp_ms, timeout)
            if metadata is not None:
                return metadata
        check_hook("on_delivery", on_delivery, "the SyncDelivery")

        async def send() -> RecordMetadata:
            return await self._producer.send(
                topic,
                value,
                key=key,
                headers=headers,
                partition=partition,
                timestamp_ms=timestamp_ms,
                on_delivery=None if on_delivery is None else partial(self._call_back, on_delivery),
                timeout=await self._settled(topic, timeout),
            )

        return self._call(send)

    def enqueue(
        self,
        topic: str | ProducerRecord,
        value: V | None = None,
        *,
        key: K | None = None,
        headers: HeadersInput | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: SyncDeliveryCallback | None = None,
        timeout: float | None = None,
    ) -> SyncDelivery:
        """Put one record into the buffer without waiting for its acknowledgement; see `Producer.enqueue`.

        ``on_delivery`` is as in `send`.

        Usually the record is only handed over here, and the producer's thread puts it into the buffer soon after: if the
        topic's partitions are known, there is room, no ``timeout`` is given, and the producer has no transactions,
        serializers, interceptors or partitioner. Such a record is also accepted, and stays in order: if other records take
        the room first, or the topic is deleted, it waits for up to ``max_block_ms``, and then its delivery fails with the
        error that this call would have raised.
        """
        if on_delivery is not None:
            check_hook("on_delivery", on_delivery, "the SyncDelivery")
        hand_over = self._hand_over
        if timeout is None and hand_over is not None:
            handed_over = hand_over.put(topic, value, key, headers, partition, timestamp_ms, on_delivery=on_delivery)
            if handed_over is not None:
                return handed_over

        async def accept() -> SyncDelivery:
            left = await self._settled(topic, timeout)
            delivery = await self._producer.enqueue(
                topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms, timeout=left
            )
            return self._accepted(delivery, on_delivery)

        return self._call(accept)

    def enqueue_nowait(
        self,
        topic: str | ProducerRecord,
        value: V | None = None,
        *,
        key: K | None = None,
        headers: HeadersInput | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: SyncDeliveryCallback | None = None,
    ) -> SyncDelivery:
        """Put one record into the buffer now, or raise; waits only for the producer's thread, never for Kafka.

        See `Producer.enqueue_nowait`; ``on_delivery`` is as in `send`.
        """
        check_hook("on_delivery", on_delivery, "the SyncDelivery")

        def accept() -> SyncDelivery:
            self._take_all()
            delivery = self._producer.enqueue_nowait(
                topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
            )
            return self._accepted(delivery, on_delivery)

        return self._running().call(accept)

    def send_many(
        self,
        topic: str,
        values: Iterable[V | ProducerRecord | None],
        *,
        key: Callable[[Any], K | None] | None = None,
        headers: HeadersInput | None = None,
        partition: int | None = None,
        on_progress: SendManyProgress | None = None,
        timeout: float | None = None,
    ) -> SendManyResult:
        """Send everything that ``values`` yields, in order and in bounded memory; see `Producer.send_many`.

        ``values`` is read in the calling thread, so it may block; items that it has yielded are sent without waiting
        for the next ones. ``key`` and ``on_progress`` run in the producer's thread.
        """
        check_values(values)
        bulk = SendMany(
            self._producer,
            topic,
            time.monotonic,
            self._producer.log,
            key=key,
            headers=headers,
            partition=partition,
            on_progress=on_progress,
            timeout=timeout,
            check=self._producer.still_open,
        )
        self._running()  # raises, before an interceptor sees anything
        with self._producer.intercept_bulk(topic, is_table=False) as intercepted, bulk:
            if self._hand_over is not None and not self._hand_over.is_idle:
                self._call(self._settled, topic, None)
            feed = _Feed(self._running(), bulk.add)
            try:
                for item in values:
                    if not feed.put(item):
                        break
                feed.wait()
            except Exception:
                with suppress(Exception):  # of a record that failed, or a key: the first error is the one to raise
                    feed.wait()
                self._call(bulk.wait)
                raise
            intercepted.result = self._call(bulk.finish)
            return intercepted.result

    def send_table(
        self,
        topic: str,
        table: object,
        *,
        key: str | None = None,
        value: str | Sequence[str] | None = None,
        headers: HeaderColumns | None = None,
        timestamp: str | None = None,
        partition: str | int | None = None,
        value_format: ValueFormat | None = None,
        on_progress: SendTableProgress | None = None,
        timeout: float | None = None,
    ) -> SendManyResult:
        """Send each row of a table as a record, and wait for all acknowledgements; see `Producer.send_table`.

        ``on_progress`` runs in the producer's thread.
        """

        async def send_table() -> SendManyResult:
            return await self._producer.send_table(
                topic,
                table,
                key=key,
                value=value,
                headers=headers,
                timestamp=timestamp,
                partition=partition,
                value_format=value_format,
                on_progress=on_progress,
                timeout=await self._settled(topic, timeout),
            )

        return self._call(send_table)

    # -- transactions -------------------------------------------------------------------------------------------------

    def transaction(self) -> SyncTransaction[K, V]:
        """A transaction to enter: ``with producer.transaction() as txn``; see `Producer.transaction`."""
        return SyncTransaction(self, self._producer.transaction(), self._call)

    def run_in_transaction(self, work: Callable[[SyncTransaction[K, V]], _T], *, attempts: int = 5) -> _T:
        """Do ``work(txn)`` in a transaction, and retry if that can help; see `Producer.run_in_transaction`."""
        tries = Attempts(attempts, self.config, random.random, self._producer.log)
        while True:
            try:
                with self.transaction() as txn:
                    return work(txn)
            except (TransactionError, DeliveryError, SendManyError) as error:
                way_on = tries.after(error)
                if way_on is Next.GIVE_UP:
                    raise
            if way_on is Next.REOPEN:
                self.close()
                self.start()
            time.sleep(tries.pause())

    def init_transactions(
        self, timeout: float | None = None, *, keep_prepared_txn: bool = False
    ) -> PreparedTransactionState | None:
        """Get the producer id, and abort a predecessor's open transaction; see `Producer.init_transactions`."""
        return self._call(partial(self._producer.init_transactions, timeout, keep_prepared_txn=keep_prepared_txn))

    def begin_transaction(self) -> None:
        """Open a transaction; see `Producer.begin_transaction`."""
        self._call(self._producer.begin_transaction)

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata | str,
        timeout: float | None = None,
    ) -> None:
        """Commit a consumer's positions with the transaction; see `Producer.send_offsets_to_transaction`."""
        self._call(self._producer.send_offsets_to_transaction, offsets, group, timeout)

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Commit; see `Producer.commit_transaction`."""
        self._call(self._producer.commit_transaction, timeout)

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort; see `Producer.abort_transaction`."""
        self._call(self._producer.abort_transaction, timeout)

    def prepare_transaction(self, timeout: float | None = None) -> PreparedTransactionState:
        """Promise that the transaction can be committed; see `Producer.prepare_transaction`."""
        return self._call(self._producer.prepare_transaction, timeout)

    def complete_transaction(self, prepared: PreparedTransactionState | str, timeout: float | None = None) -> None:
        """Commit or abort the prepared transaction; see `Producer.complete_transaction`."""
        self._call(self._producer.complete_transaction, prepared, timeout)

    def transaction_handle(self) -> TransactionHandle:
        """A handle with which another process can write into the open transaction; see `Producer.transaction_handle`."""
        return self._look(self._producer.transaction_handle)

    @property
    def written(self) -> Mapping[TopicPartition, Written]:
        """The acknowledged records of an attached producer so far, by partition; see `Producer.written`."""
        return self._look(lambda: self._producer.written)

    @property
    def transaction_error(self) -> KafkaError | None:
        """Why the transaction must not be committed, once an attached producer has closed; see `Producer`."""
        return self._producer.transaction_error

    def partitions_for(self, topic: str, timeout: float | None = None) -> tuple[PartitionInfo, ...]:
        """The partitions of a topic; see `Producer.partitions_for`."""
        return self._call(self._producer.partitions_for, topic, timeout)

    def list_topics(self, timeout: float | None = None) -> ClusterInfo:
        """The cluster's id, brokers and topics; see `Producer.list_topics`."""
        return self._call(self._producer.list_topics, timeout)

    def warm_up(self, *topics: str, timeout: float | None = None) -> None:
        """Do what the first record would wait for; see `Producer.warm_up`."""

        async def warm_up() -> None:
            await self._producer.warm_up(*topics, timeout=timeout)

        self._call(warm_up)

    def purge(self, *topics: str, in_flight: bool = False) -> PurgeReport:
        """Give up the accepted records that were not sent yet, and return them; see `Producer.purge`.

        Records that threads enqueue during the call may be given up as well.
        """

        async def purge() -> PurgeReport:
            self._take_all()
            found = self._producer.purge(*topics, in_flight=in_flight)
            waiting = await self._producer.hand_over.purge(frozenset(topics))
            return PurgeReport((*found.not_written, *waiting), found.maybe_written)

        return self._call(purge)

    def resume(self, topic: str | None = None, partition: int | None = None) -> tuple[TopicPartition, ...]:
        """Let stopped partitions accept records again, and return them; see `Producer.resume`.

        Records that were handed over before and wait for nothing are refused first.
        """

        async def resume() -> tuple[TopicPartition, ...]:
            self._take_all()
            return self._producer.resume(topic, partition)

        return self._call(resume)

    @property
    def stopped_partitions(self) -> Mapping[TopicPartition, DeliveryError]:
        """The partitions that accept no records, each with the error of its first lost record; see `Producer`."""
        return self._look(lambda: self._producer.stopped_partitions)

    def metrics(self, topic: str | None = None) -> Mapping[str, float]:
        """The producer's metrics; see `Producer.metrics`."""

        def metrics() -> Mapping[str, float]:
            waiting = self._take_all()
            numbers = self._producer.metrics(topic)
            return (
                numbers
                if topic is not None or not waiting
                else {**numbers, "records-pending": numbers["records-pending"] + waiting}
            )

        return self._look(metrics)

    def metrics_by_topic(self) -> Mapping[str, Mapping[str, float]]:
        """The metrics of each topic that has any; see `Producer.metrics_by_topic`."""
        return self._producer.metrics_by_topic()

    def metrics_by_broker(self) -> Mapping[int, Mapping[str, float]]:
        """The metrics of each broker that was connected; see `Producer.metrics_by_broker`."""
        return self._producer.metrics_by_broker()

    def register_metric_for_subscription(self, metric: ApplicationMetric) -> None:
        """Let a metric of the application be pushed to brokers; see `Producer.register_metric_for_subscription`."""
        self._producer.register_metric_for_subscription(metric)

    def unregister_metric_from_subscription(self, name: str) -> None:
        """Push a metric of the application no longer; see `Producer.unregister_metric_from_subscription`."""
        self._producer.unregister_metric_from_subscription(name)

    def client_instance_id(self, timeout: float | None = None) -> UUID:
        """The id under which brokers' reporters see this client's metrics; see `Producer.client_instance_id`."""
        return self._call(self._producer.client_instance_id, timeout)

    def metric_histograms(self) -> Mapping[str, Histogram]:
        """The distributions behind averages and percentiles; see `Producer.metric_histograms`."""
        return self._producer.metric_histograms()

    def metric_histograms_by_broker(self) -> Mapping[int, Mapping[str, Histogram]]:
        """The latencies of each broker; see `Producer.metric_histograms_by_broker`."""
        return self._producer.metric_histograms_by_broker()

    def health(self) -> Health:
        """The producer's state; see `Producer.health`."""

        def health() -> Health:
            waiting = self._take_all()
            health = self._producer.health()
            return replace(health, pending_records=health.pending_records + waiting)

        return self._look(health)

    def _look(self, function: Callable[[], _T]) -> _T:
        """Run it in the producer's thread, because only that one may read the state that it changes."""
        loop_thread = self._loop_thread
        if loop_thread is None or self._producer.is_forked or loop_thread.is_current:
            return function()
        return loop_thread.portal.call(function)

    # -- in the producer's thread -------------------------------------------------------------------------------------

    def _take_all(self) -> int:
        """Take everything that was handed over before; returns how many records wait for metadata or room."""
        hand_over = self._hand_over
        if hand_over is None or self._loop_thread is None or not self._loop_thread.is_current:
            return 0
        hand_over.take_all()
        return hand_over.waiting

    async def _settled(self, topic: object, timeout: float | None) -> float | None:
        """Wait for records handed over before, for this topic or (None) all; returns the remaining timeout."""
        if isinstance(topic, ProducerRecord):
            topic = topic.topic
        if self._hand_over is None or not (topic is None or isinstance(topic, str)) or not _can_wait(timeout):
            return timeout  # the producer raises the error
        return await self._hand_over.settle(topic, timeout)

    def _accepted(self, delivery: Delivery, on_delivery: SyncDeliveryCallback | None) -> SyncDelivery:
        """The delivery for other threads."""
        assert self._hand_over is not None
        accepted = SyncDelivery(self._hand_over, delivery)
        if on_delivery is not None:
            accepted.add_done_callback_in_loop(on_delivery)
        return accepted

    def _call_back(self, on_delivery: SyncDeliveryCallback, delivery: Delivery) -> object:
        assert self._hand_over is not None
        return on_delivery(SyncDelivery(self._hand_over, delivery))

    # -- from the callers' threads to the producer's ------------------------------------------------------------------

    def _refuse_own_thread(self) -> None:
        if self._loop_thread is not None and self._loop_thread.is_current:
            raise ProducerStateError(OWN_THREAD)

    def _call(self, function: Callable[..., Awaitable[_T]], *args: Any) -> _T:
        return self._running().call(function, *args)

    def _running(self) -> BlockingPortal:
        loop_thread = self._loop_thread
        if loop_thread is None:
            raise (
                NotStarted("The producer is not started: use it within `with producer:`, or call start().")
                if self._report is None
                else ProducerClosed("The producer is closed. Re-enter it with `with`, or create a new one.")
            )
        if self._producer.is_forked:
            raise ForkedProcess(
                "The producer was started before this process was forked; it can only be used in the parent. "
                "Create one in each process."
            )
        self._refuse_own_thread()
        return loop_thread.portal


#: Producers to close when the interpreter ends, and the threads of those that could not be closed.
_started: weakref.WeakSet[SyncProducer] = weakref.WeakSet()
_closing_themselves: weakref.WeakSet[LoopThread] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Deliver accepted records, as `close` does; later the threads would be gone, and nothing could send them."""
    for producer in list(_started):
        try:
            producer.close()
        except Exception:  # the others must still be closed
            ClientLog(producer.client_id, producer.config.transactional_id).exception(
                "The producer could not be closed at interpreter exit"
            )
    for loop_thread in list(_closing_themselves):
        loop_thread.join(_TO_END_S)


async def _start(producer: Producer) -> HandOver:
    await producer.start()
    return producer.hand_over


def _can_wait(timeout: float | None) -> bool:
    return timeout is None or is_timeout(timeout)


def _close_dropped(producer: Producer, loop_thread: LoopThread) -> None:
    """Called by the garbage collector, in any thread and process: nothing waits here."""
    if not producer.is_forked:
        _closing_themselves.add(loop_thread)
        loop_thread.end_after(producer.close)
        warnings.warn(
            f"The SyncProducer {producer.client_id!r} was dropped without being closed. It will be closed in the "
            "background, after delivering the records that it accepted. Use `with`, or call close(), which reports "
            "undelivered records.",
            ResourceWarning,
            stacklevel=2,
        )


class SyncTransaction(Generic[K, V]):
    """One transaction of a `SyncProducer`, to be entered once; see `Transaction`.

    An exception in the block aborts it, also a KeyboardInterrupt. ``send``, ``enqueue``, ``enqueue_nowait``, ``send_many``,
    ``send_table`` and ``flush`` are those of the producer; before it is entered and after it has ended they raise
    `TransactionStateError`, except ``flush``.
    """

    def __init__(self, producer: SyncProducer[K, V], transaction: Transaction[K, V], call: Callable[..., Any]) -> None:
        self._call = call
        self._producer = producer
        self._transaction = transaction
        self.send = producer.send
        self.enqueue = producer.enqueue
        self.enqueue_nowait = producer.enqueue_nowait
        self.send_many = producer.send_many
        self.send_table = producer.send_table
        self.flush = producer.flush
        self.handle = producer.transaction_handle
        self._shut(NOT_BEGUN)

    def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata | str,
        timeout: float | None = None,
    ) -> None:
        """Commit a consumer's positions with the transaction; see `Producer.send_offsets_to_transaction`."""
        self._call(self._transaction.send_offsets, offsets, group, timeout)

    def __enter__(self) -> Self:
        self._call(self._transaction.__aenter__)
        for name in _OF_OPEN:
            setattr(self, name, getattr(self._producer, _OF_OPEN[name]))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._call(self._transaction.__aexit__, kind, error, traceback)
        finally:
            self._shut(OVER)

    def _shut(self, why: str) -> None:
        for name in _OF_OPEN:
            setattr(self, name, partial(refuse, why))


#: The producer's methods that an open transaction has, and their names there.
_OF_OPEN = {**{name: name for name in SENDING}, "handle": "transaction_handle"}


class _Feed:
    """Items in transit from the thread that reads them to the event loop, which takes all available items whenever it can.

    So no item waits for the next one, however long reading that takes.
    """

    def __init__(self, portal: BlockingPortal, take: Callable[[list[object]], Awaitable[bool]]) -> None:
        self._portal = portal
        self._take = take
        self._items: list[object] = []
        self._lock = threading.Lock()  # guards the items, and the taker
        self._taking: concurrent.futures.Future[bool] | None = None
        self._is_idle = True

    def put(self, item: object) -> bool:
        """Hand an item over, and wait if too many were not consumed yet; returns whether to continue."""
        with self._lock:
            self._items.append(item)
            was_idle, self._is_idle = self._is_idle, False
        if was_idle:
            self._taking = self._portal.start_task_soon(self._take_all)
        if len(self._items) >= _READ_AHEAD or (self._taking is not None and self._taking.done()):
            return self.wait()
        return True

    def wait(self) -> bool:
        """Wait until everything was taken; returns whether to continue. Raises what the taker raised."""
        return self._taking is None or self._taking.result()

    async def _take_all(self) -> bool:
        while True:
            with self._lock:
                items, self._items = self._items, []
                self._is_idle = not items
            if not items:
                return True
            if not await self._take(items):
                return False
