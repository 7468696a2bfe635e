"""The public producer: what it promises, call by call, and its life from start to close."""

from __future__ import annotations

import asyncio
import itertools
import time
import weakref
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from os import PathLike
from types import GenericAlias, MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, Unpack, cast

from aioproducer._config.other_clients import explain_names_of_other_clients
from aioproducer.arguments import check_hook, check_timeout, checked_group, checked_offsets
from aioproducer.delivery import Delivery, DeliveryCallback
from aioproducer.errors import (
    ConfigError,
    DeliveryError,
    InvalidRecord,
    KafkaError,
    NotStarted,
    ProducerClosed,
    ProducerStateError,
    RecordsPurged,
    SendManyError,
    TransactionAbortable,
    TransactionError,
    TransactionStateError,
)
from aioproducer.hot import RECORD_COST, Appender, FastPath
from aioproducer.metrics.distribution import Histogram
from aioproducer.metrics.producer import ProducerMetrics
from aioproducer.runtime.detached import detached
from aioproducer.runtime.lifetime import no_event_loop
from aioproducer.runtime.log import ClientLog
from aioproducer.serializers import NOT_GIVEN
from aioproducer.types import (
    CloseReport,
    ClusterInfo,
    ConsumerGroupMetadata,
    HeadersInput,
    Health,
    HealthStatus,
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
    from aioproducer.config import ProducerConfig, ProducerOptions
    from aioproducer.core.transactions.handle import TransactionHandle
    from aioproducer.core.transactions.operation import Operation
    from aioproducer.core.transactions.prepared_transaction import PreparedTransactionState
    from aioproducer.engine.engine import Attachment, Engine
    from aioproducer.engine.run import Run
    from aioproducer.intake.hand_over import HandOver
    from aioproducer.intake.many import SendManyProgress
    from aioproducer.intake.records import PreparedRecord
    from aioproducer.intake.table import HeaderColumns, SendTableProgress, ValueFormat
    from aioproducer.interceptors import EndOfSend
    from aioproducer.metrics.application import ApplicationMetric
    from aioproducer.serializers import SerializerOf
    from aioproducer.transactions.context import Transaction
    from aioproducer.transactions.link import TransactionLink
    from aioproducer.transactions.shared_acknowledgements import SharedAcknowledgements

    _FastPath = FastPath
else:
    _FastPath = GenericAlias(FastPath, (K, V))  # a native class cannot be subscripted

__all__ = ["Producer"]

_T = TypeVar("_T")
_client_numbers = itertools.count(1)

#: A coroutine that appends without ever waiting lets the event loop run after this many bytes: a millisecond or two.
_BURST_BYTES = 256 * 1024


@explain_names_of_other_clients(is_async=True)
class Producer(_FastPath[K, V]):
    """Sends records to Kafka from one event loop.

    ::

        async with Producer("localhost:9092", compression_type="zstd") as producer:
            metadata = await producer.send("orders", b"value", key=b"key")

    Creating it needs no event loop and does no I/O, so it may be a module-level object. Entering it starts its tasks and
    waits for no broker: a service starts even if Kafka is down, and its sends wait for up to ``max_block_ms``. After
    ``close()`` it may be entered again, also in another event loop, such as that of the next ``asyncio.run()``.

    Each await means one thing: ``await send(...)`` returns when the broker has acknowledged the record, ``await
    enqueue(...)`` when the record is in the buffer, with a `Delivery` to await later, or never.

    Every accepted record succeeds or fails within ``delivery_timeout_ms``. A failure is `NotWritten` or `Unknown`; if it is
    never looked at, it goes to ``on_delivery_error``. Options have the names, the meaning and the defaults of Java's
    producer, in snake_case: see `ProducerConfig`.

    A ``timeout`` is in seconds, at least 0. Any other value raises before anything is done: `InvalidRecord` if a record is
    sent, `ConfigError` elsewhere.

    Cancellation: an ``async with`` that is cancelled still waits until what was accepted is delivered, for up to
    ``close_timeout_ms``; a second cancellation gives up the rest and ends at once. No task is left behind.

    One that is started and then dropped gives a ResourceWarning when Python collects it. It is closed in the background, as
    by ``close()``: what it accepted is still delivered as long as the event loop runs, and what fails is logged.
    """

    _last_stopped: Mapping[TopicPartition, DeliveryError] = MappingProxyType({})

    def __init__(
        self: Producer[KeyT, ValueT],
        bootstrap_servers: str | Sequence[str] | ConfigOf[KeyT, ValueT],
        *,
        key_serializer: SerializerOf[KeyT] | None = NOT_GIVEN,
        value_serializer: SerializerOf[ValueT] | None = NOT_GIVEN,
        **options: Unpack[OptionsWithoutSerializers],
    ) -> None:
        """Check the options; `ConfigError` says which one is wrong, and why.

        ``bootstrap_servers`` is ``"host:port,host:port"``, a sequence of these, or a whole `ProducerConfig`, which
        ``options`` then change.
        """
        # A program may import this class without using it: options and engine are two thirds of all modules.
        from random import Random

        from aioproducer._config.options import with_serializers
        from aioproducer.config import ProducerConfig
        from aioproducer.engine.engine import Engine
        from aioproducer.engine.run import Run
        from aioproducer.intake.many import SendMany
        from aioproducer.intake.records import Intake
        from aioproducer.interceptors import InterceptedProducer

        given = with_serializers(options, key_serializer, value_serializer)
        if isinstance(bootstrap_servers, ProducerConfig):
            config = bootstrap_servers.replace(**given) if given else bootstrap_servers
        else:
            config = ProducerConfig.create(cast("str | Sequence[str]", bootstrap_servers), **given)
        _refuse_unsupported(config)
        self._engine_type, self._run_type, self._bulk_type = Engine, Run, SendMany
        self.config = config
        self.client_id = config.client_id or f"aioproducer-{next(_client_numbers)}"
        self.log = ClientLog(self.client_id, config.transactional_id)
        self._metrics = ProducerMetrics()
        self._random = Random()
        self._engine: Engine | None = None
        self._hand_over: HandOver | None = None
        self._run: Run | None = None
        self._report: CloseReport | None = None  # of the last run
        self._attachment: Attachment | None = None
        self._shared: SharedAcknowledgements | None = None
        self._transaction_error: KafkaError | None = None

        intercepted = InterceptedProducer(
            self.client_id,
            config.transactional_id,
            config.bootstrap_servers,
            partial(Producer._leader_of, weakref.ref(self)),
        )
        self._intake = Intake(config, self._metrics, self.log, intercepted)
        #: A call that sends many records, for interceptors; not for users.
        self.intercept_bulk = self._intake.bulk
        self.appender = Appender(self._send, self._enqueue, self._enqueue_nowait, _BURST_BYTES)
        #: The one that appends, and must not see records before interceptors and serializers; not for users.
        self.last_appender = (
            self.appender
            if self._intake.is_plain
            else Appender(self._send, self._enqueue, self._enqueue_nowait, _BURST_BYTES)
        )

    @classmethod
    def from_url(cls, url: str, **overrides: Unpack[ProducerOptions]) -> Self:
        """A producer configured by ``kafka://host:port,host/?compression_type=zstd``; see `ProducerConfig.from_url`."""
        from aioproducer.config import ProducerConfig

        return cls(ProducerConfig.from_url(url, **overrides))

    @classmethod
    def from_properties(
        cls, source: Mapping[str, object] | str | PathLike[str], **overrides: Unpack[ProducerOptions]
    ) -> Self:
        """A producer configured by Java's keys, in a mapping or a .properties file; see `ProducerConfig.from_properties`."""
        from aioproducer.config import ProducerConfig

        return cls(ProducerConfig.from_properties(source, **overrides))

    @classmethod
    def from_env(
        cls, prefix: str = "KAFKA_", environ: Mapping[str, str] | None = None, **overrides: Unpack[ProducerOptions]
    ) -> Self:
        """A producer configured by environment variables like KAFKA_BOOTSTRAP_SERVERS; see `ProducerConfig.from_env`."""
        from aioproducer.config import ProducerConfig

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
        """A producer that writes into the transaction of a handle, which another process began and will end.

        ::

            async with Producer.attach(handle, "localhost:9092") as writer:
                await writer.enqueue("orders", b"value", partition=3)
            report = writer.written  # for the commit: TransactionCoordinatorClient.commit(handle, written=[...])

        It can send at once; it cannot begin, commit or abort, and can be started once. Each partition must have one writer
        per transaction. A second writer is detected by the sequences of its batches, or by acknowledgements that do not
        match them: its records fail as `NotWritten` with `SharedPartition` as the cause. The remaining case - a topic
        with LogAppendTime, and both writers happen to split their first few records alike - shows in ``written``, which
        `TransactionCoordinatorClient.commit` compares. For such topics it needs the right to DESCRIBE_CONFIGS.

        ``writer`` is a number that no other writer of the transaction has; None: a random one. It determines where the
        first batches of each partition are split. Leaving the ``async with`` raises ``transaction_error``, a
        `TransactionAbortable` or another `TransactionError`, if any record failed or any offsets were refused, because
        the transaction must not be committed then.

        It ends with the transaction: a record that is sent afterwards fails. Exception: with a cluster before
        ``transaction.version=2`` it may open a transaction that stays open until the next
        `TransactionCoordinatorClient.init` or `init_transactions` of the same ``transactional_id`` aborts it. So close
        writers before the transaction is ended. Raises `ConfigError` for an invalid handle, number or option.
        """
        from aioproducer.core.transactions.handle import TransactionHandle

        if not isinstance(cast("object", handle), TransactionHandle):
            raise ConfigError(
                f"Invalid handle={handle!r}: must be a TransactionHandle; producer.transaction_handle() returns one."
            )
        if writer is not None and (type(writer) is not int or writer < 0):
            raise ConfigError(f"Invalid writer={writer!r}: must be an integer >= 0, or None for a random one.")
        named = options.get("transactional_id")
        if named not in (None, handle.transactional_id):
            raise ConfigError(
                f"transactional_id={named!r} does not match the handle, which has {handle.transactional_id!r}; leave it out."
            )
        options["transactional_id"] = handle.transactional_id
        from aioproducer.core.transactions.writer_shape import WRITER_BITS
        from aioproducer.engine.engine import Attachment

        producer = cls(bootstrap_servers, **options)
        number = producer._random.getrandbits(WRITER_BITS) if writer is None else writer
        producer._attachment = Attachment(handle, number)
        return producer

    # -- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> Self:
        """Start the tasks; what ``async with`` does on entering. Waits for no broker.

        If it was left open in an event loop that is closed by now, that run is ended first. Raises `ProducerStateError` if
        it is started already, and `WrongEventLoop` if that is in another event loop, or no event loop of asyncio runs here.
        Cancellation: nothing is awaited here.
        """
        engine, run = self._engine, self._run
        if engine is not None and run is not None:
            if engine.is_usable:
                raise ProducerStateError("The producer is already started.")
            if engine.is_forked or not engine.loop.is_closed():
                raise engine.refusal()
            run.end_with_loop()
        if self._attachment is not None and self._shared is not None:
            raise TransactionStateError(
                "An attached producer cannot be started again: its sequence numbers would restart at 0, in partitions "
                "that it has already written to. Send all records before you close the producer."
            )
        self._report = self._transaction_error = self._hand_over = None
        itself: weakref.ref[Producer] = weakref.ref(self)
        self._engine = self._engine_type(
            self.config,
            self.client_id,
            self.log,
            self._metrics,
            self._random,
            partial(_appender_of, itself),
            self._attachment,
        )
        self._run = self._run_type(
            self._engine, self.client_id, self._intake.interceptors, partial(Producer._note_end, itself)
        )
        self._dropped = weakref.finalize(self, self._run.dropped)
        self._dropped.atexit = False  # an event loop has ended by then
        self._shared = None if self._attachment is None else self._engine.shared
        self._engine.start()
        self._engine.open_fast_path(self._intake.keys_choose)
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "A producer holds connections and cannot be pickled. Pickle its config, and create a producer from that."
        )

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        import anyio  # loaded with the engine

        # A cancelled anyio scope would interrupt every await in here. Accepted records are still delivered.
        with anyio.CancelScope(shield=True):
            run = self._run
            try:
                await self.close()
            except asyncio.CancelledError:
                if run is not None:
                    await run.abandon()
                raise
        if kind is None and self.transaction_error is not None:
            raise detached(self.transaction_error)  # another one each time: this one stays, and would keep the frames

    async def ready(self, timeout: float | None = None) -> None:
        """Wait until a broker is connected and has answered a metadata request.

        ``timeout`` is in seconds; None means ``max_block_ms``. Raises `KafkaTimeoutError`, with the last connection's
        error as its cause, and `AuthenticationError` at once. Cancellation: nothing is undone, the producer keeps running.
        """
        engine = self._usable()
        await self._interruptible(engine, engine.client.wait_ready(self._deadline(engine, timeout)))

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until every record accepted before has succeeded or failed; until then no batch lingers.

        ``timeout`` is in seconds; None means no limit but ``delivery_timeout_ms``. Raises `KafkaTimeoutError`; its
        ``last_error`` is the last one of the records that are not acknowledged. May be called at any time, also while
        another flush runs. Records that had failed before the call are counted in the log if their deliveries are held
        and were not asked a second after it. Cancellation: the records are still sent.
        """
        from aioproducer.engine.run import flushed  # loaded with the engine

        seconds = check_timeout(timeout, ConfigError)
        engine = self._usable()
        began = engine.loop.time()
        failed_before = engine.unobserved.failed_so_far()
        try:
            if not await flushed(engine, None if seconds is None else began + seconds):
                from aioproducer.intake.timeouts import not_flushed  # rarely needed

                assert seconds is not None  # without a limit it waits until nothing is left
                raise not_flushed(seconds, engine)
        finally:
            self._metrics.flush_time_s += engine.loop.time() - began
            engine.unobserved.count_held(failed_before)

    async def close(self, timeout: float | None = None) -> CloseReport:
        """Deliver accepted records, end all tasks and connections, and return what was delivered and what was not.

        ``timeout`` is in seconds; None means ``close_timeout_ms``. When it ends, remaining records are given up: their
        deliveries fail as `NotWritten` or `Unknown`, and the report holds the records. Calls that wait for room or
        metadata fail at once with `ProducerClosed`. Later calls return the same report; a call while another one closes
        waits for that one, which then ends within the shorter of both timeouts. Async interceptors and callbacks that
        have not ended by then are cancelled.

        An open transaction is aborted unless it is prepared; one for which `prepare_transaction` did not return is aborted,
        too. A commit in progress is waited for. A warning is logged for the abort, and for a commit that failed or may have
        failed unseen; the report is about records only.

        Cancellation: closing continues in the background, within its timeout.
        """
        seconds = check_timeout(timeout, ConfigError)
        engine, run = self._engine, self._run
        if engine is None or run is None:
            return self._report or CloseReport()
        if engine.loop is not asyncio._get_running_loop():  # None in a fork, where get_running_loop() would raise
            if not engine.loop.is_closed() or engine.is_forked:
                raise engine.refusal()
            return run.end_with_loop()
        engine.foreign.excuse_current()
        return await asyncio.shield(run.close(seconds, self._hand_over))

    # -- records ------------------------------------------------------------------------------------------------------

    if not TYPE_CHECKING:  # for type checkers, the base has the parameters
        __class_getitem__ = classmethod(GenericAlias)

    def __init_subclass__(cls, **more: Any) -> None:
        """Have ``send`` use a subclass's own ``enqueue`` as well."""
        super().__init_subclass__(**more)
        if cls.enqueue is not Producer.enqueue and cls.send is Producer.send:
            setattr(cls, "send", cls._send_by_enqueue)  # noqa: B010 - a type checker knows the method as `FastPath` has it

    async def _send(
        self,
        topic: str | ProducerRecord,
        value: object,
        key: object,
        headers: HeadersInput | None,
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: DeliveryCallback | None,
        timeout: float | None,
    ) -> RecordMetadata:
        """The slow path of `send`, for a ``timeout``, or if `enqueue` takes its slow path."""
        return await self._acknowledged(
            lambda: self._enqueue(topic, value, key, headers, partition, timestamp_ms, on_delivery, timeout), timeout
        )

    async def _send_by_enqueue(
        self,
        topic: str | ProducerRecord,
        value: V | None = None,
        *,
        key: K | None = None,
        headers: HeadersInput | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: DeliveryCallback | None = None,
        timeout: float | None = None,
    ) -> RecordMetadata:
        """`Producer.send` of a subclass with its own ``enqueue``."""
        return await self._acknowledged(
            lambda: self.enqueue(
                topic,
                value,
                key=key,
                headers=headers,
                partition=partition,
                timestamp_ms=timestamp_ms,
                on_delivery=on_delivery,
                timeout=timeout,
            ),
            timeout,
        )

    async def _acknowledged(self, enqueue: Callable[[], Awaitable[Delivery]], timeout: float | None) -> RecordMetadata:
        """Enqueue a record and wait for its acknowledgement, as `send` does."""
        if timeout is None:
            return await (await enqueue())
        seconds = check_timeout(timeout, InvalidRecord)
        engine = self._usable()
        deadline = engine.loop.time() + seconds
        delivery = await enqueue()
        limit = asyncio.timeout_at(deadline)
        try:
            async with limit:
                return await delivery
        except TimeoutError:
            if not limit.expired():
                raise
        from aioproducer.intake.timeouts import not_acknowledged

        raise not_acknowledged(delivery.topic_partition, seconds, engine)

    async def _enqueue(
        self,
        topic: str | ProducerRecord,
        value: object,
        key: object,
        headers: HeadersInput | None,
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: DeliveryCallback | None,
        timeout: float | None,
    ) -> Delivery:
        """The slow path of `enqueue`, if something must be decided or awaited, or is wrong."""
        timeout = check_timeout(timeout, InvalidRecord)
        check_hook("on_delivery", on_delivery, "the Delivery")
        engine = self._usable()
        still_open: Callable[[], object] | None = None
        if engine.transactions is not None:
            engine.transactions.check_may_send()
            still_open = engine.transactions.still_open()
        if self.last_appender.burst >= _BURST_BYTES and engine.is_burst_of_one_task():
            await asyncio.sleep(0)  # before the append: if cancelled here, nothing was buffered
        prepared: PreparedRecord | None = None
        ends: list[EndOfSend] = []
        began: float | None = None
        try:
            if self._intake.is_plain:
                prepared = self._intake.plain(topic, value, key, headers, partition, timestamp_ms)
            else:
                began = engine.loop.time()
                work = self._intake.prepared(topic, value, key, headers, partition, timestamp_ms, ends)
                prepared = work if isinstance(work, tuple) else await self._intake.in_time(timeout, work)
            if still_open is not None:
                still_open()
            delivery = self.last_appender.append(*prepared)
            if delivery is None:
                delivery = await self._append(engine, prepared, timeout, began, still_open)
        except BaseException as error:
            self._intake.not_accepted(engine, prepared, error, ends)
            raise
        if not self._intake.is_plain:
            self._intake.watch(engine, delivery, prepared.headers, ends)
        if on_delivery is not None:
            delivery.add_done_callback(on_delivery)
        return delivery

    async def _append(
        self,
        engine: Engine,
        prepared: PreparedRecord,
        timeout: float | None,
        began: float | None,
        still_open: Callable[[], object] | None,
    ) -> Delivery:
        """Append a record for which something must be decided or awaited, or that is wrong."""
        record = self._intake.checked(prepared)
        choice = self._intake.choose(engine, record)
        delivery = self._intake.try_append(engine, record, choice)
        if delivery is None:
            delivery = await self._intake.append(engine, record, choice, timeout, began, still_open)
        self.last_appender.burst += record.size + RECORD_COST
        return delivery

    def _enqueue_nowait(
        self,
        topic: str | ProducerRecord,
        value: object,
        key: object,
        headers: HeadersInput | None,
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: DeliveryCallback | None,
    ) -> Delivery:
        """The slow path of `enqueue_nowait`."""
        check_hook("on_delivery", on_delivery, "the Delivery")
        engine = self._usable()
        if engine.transactions is not None:
            engine.transactions.check_may_send()
        self.last_appender.burst = 0  # this call cannot wait, so it cannot pause either
        prepared: PreparedRecord | None = None
        ends: list[EndOfSend] = []
        try:
            if self._intake.is_plain:
                prepared = self._intake.plain(topic, value, key, headers, partition, timestamp_ms)
            else:
                prepared = self._intake.prepared_now(topic, value, key, headers, partition, timestamp_ms, ends)
            delivery = self.last_appender.append(*prepared)
            if delivery is None:
                record = self._intake.checked(prepared)
                delivery = self._intake.try_append(engine, record, self._intake.choose(engine, record))
                if delivery is None:
                    raise self._intake.no_room_now(engine, record)
        except BaseException as error:
            self._intake.not_accepted(engine, prepared, error, ends)
            raise
        if not self._intake.is_plain:
            self._intake.watch(engine, delivery, prepared.headers, ends)
        if on_delivery is not None:
            delivery.add_done_callback(on_delivery)
        return delivery

    async def send_many(
        self,
        topic: str,
        values: Iterable[V | ProducerRecord | None] | AsyncIterable[V | ProducerRecord | None],
        *,
        key: Callable[[Any], K | None] | None = None,
        headers: HeadersInput | None = None,
        partition: int | None = None,
        on_progress: SendManyProgress | None = None,
        timeout: float | None = None,
    ) -> SendManyResult:
        """Send everything that ``values`` yields, in order and in bounded memory, and wait for all acknowledgements.

        Each item is a value, as for `send`, or a `ProducerRecord` that brings its own key, headers and so on (an empty
        topic in it stands for ``topic``). ``key(item)`` returns the key of each value. ``on_progress`` gets the result so
        far, about ten times a second and at the end. ``timeout`` is each record's, as in `enqueue`.

        Reading stops at the first record that fails; the other accepted records still get their outcomes, and then
        `SendManyError` says what was delivered. Exceptions of ``values`` and ``key`` propagate unchanged, after the same
        wait; those of ``on_progress`` are logged.

        Cancellation: no further item is read; accepted records are still delivered, and failures go to
        ``on_delivery_error``.
        """
        from aioproducer.intake.many import check_values

        check_values(values, may_be_async=True)
        bulk = self._bulk_type(
            self,
            topic,
            self._usable().loop.time,
            self.log,
            key=key,
            headers=headers,
            partition=partition,
            on_progress=on_progress,
            timeout=timeout,
            check=self.still_open,
        )
        with self.intercept_bulk(topic, is_table=False) as intercepted, bulk:
            try:
                if isinstance(values, AsyncIterable):
                    async for item in values:
                        if not await bulk.add((item,)):
                            break
                else:
                    await bulk.add(values)
            except Exception:
                await bulk.wait()
                raise
            intercepted.result = await bulk.finish()
            return intercepted.result

    async def send_table(
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
        """Send each row of a table as a record, in order and in bounded memory, and wait for all acknowledgements.

        ``table`` is anything with the Arrow PyCapsule interface: pyarrow, polars, duckdb, pandas, nanoarrow; streams are
        read chunk by chunk, in a worker thread. ``key``, ``value`` and ``timestamp`` name columns: text or bytes of any
        kind (a null value is a tombstone), and a timestamp or int64 milliseconds (null: now). ``partition`` names a column
        of integers, where null leaves the choice to the key, or is one number for all. ``headers`` maps the names of
        headers to columns, or to bytes that are the same in every record; or it names a column of maps or of lists of
        (name, value); or it is a sequence of these. With ``value_format="json"`` the value is a JSON object of the columns
        that ``value`` lists, or of all columns without another role (except pandas's unnamed index); that needs
        ``aioproducer[arrow]``.

        Send rows whose timestamps are older than a day in a transaction. Without one, a batch of them that may be in the
        log is not retried, since a broker could write it twice: it fails as `Unknown` (``producer_id_expiration_ms``).

        ``on_progress`` gets the result so far, about ten times a second and at the end. ``timeout``, in seconds, bounds
        each wait for metadata and room; None means ``max_block_ms``.

        Raises `InvalidRecord` for columns that do not fit, and `ConfigError` if serializers, a partitioner, or interceptors
        without `ProducerInterceptor.begin_bulk` would have to see each record (use `send_many` then); nothing was sent. A
        row that can never be sent, or a batch that fails, stops the rest: accepted rows still get their outcomes, and then
        `SendManyError` says what was delivered. Exceptions of the table propagate unchanged, after the same wait; an error
        while a stream is read is an ``OSError`` with its text.

        Cancellation: no further row is sent; accepted batches are still delivered, and failures go to
        ``on_delivery_error``.
        """
        from aioproducer.intake.table import send_table  # 4 ms, and few producers send tables

        engine = self._usable()
        self._intake.check_topic(topic)
        with self.intercept_bulk(topic, is_table=True) as intercepted:
            intercepted.result = await send_table(
                engine,
                topic,
                table,
                key=key,
                value=value,
                headers=headers,
                intercepted=intercepted,
                timestamp=timestamp,
                partition=partition,
                value_format=value_format,
                on_progress=on_progress,
                timeout=check_timeout(timeout, InvalidRecord),
            )
            return intercepted.result

    @staticmethod
    def _leader_of(producer: weakref.ref[Producer], topic: str, partition: int) -> tuple[str, int] | None:
        found = producer()
        if found is None or found._engine is None:
            return None
        metadata = found._engine.client.metadata
        leader = metadata.leader(topic, partition)
        return None if leader is None else metadata.nodes[leader[0]].address

    # -- transactions ---------------------------------------------------------------------------------------------------

    def transaction(self) -> Transaction[K, V]:
        """A transaction to enter: ``async with producer.transaction() as txn``; see `Transaction`.

        The first one calls `init_transactions`, unless that was done. Entering it raises what `begin_transaction`
        raises, and the error of an earlier commit whose caller stopped waiting; that transaction is aborted then.
        """
        from aioproducer.transactions.context import Transaction

        return Transaction(self, self._open_transaction)

    async def run_in_transaction(self, work: Callable[[Transaction[K, V]], Awaitable[_T]], *, attempts: int = 5) -> _T:
        """Do ``work(txn)`` in a transaction, commit it, and return what the work returned.

        If the transaction can only be aborted (`TransactionAbortable`, or a record that failed), the work is retried in a
        new one after a growing pause, ``attempts`` times in all; so it must have no effects but the records. After a
        `ReopenRequired` the producer is closed and started again first.

        Errors that a retry cannot fix are raised at once: exceptions of the work itself, a record that is too large for the
        broker, `CommitFailed` (its consumer has to rejoin first), `CommitUnknown` and `TransactionFatal`. After the last
        attempt its error is raised. Cancellation: the transaction is aborted.
        """
        from aioproducer.transactions.attempts import Attempts, Next

        tries = Attempts(attempts, self.config, self._random.random, self.log)
        while True:
            try:
                async with self.transaction() as txn:
                    return await work(txn)
            except (TransactionError, DeliveryError, SendManyError) as error:
                way_on = tries.after(error)
                if way_on is Next.GIVE_UP:
                    raise
            if way_on is Next.REOPEN:
                await self.close()
                await self.start()
            await asyncio.sleep(tries.pause())

    async def init_transactions(
        self, timeout: float | None = None, *, keep_prepared_txn: bool = False
    ) -> PreparedTransactionState | None:
        """Get the producer id of this ``transactional_id``, which fences every earlier producer with the same id.

        A transaction that such a producer left open is aborted. With ``keep_prepared_txn`` (KIP-939) a prepared one is
        kept and returned (None if there was none); then only `complete_transaction`, or committing or aborting it, is
        possible. Kafka up to 4.4 refuses to keep it (KAFKA-20739); the same call without this argument is still
        possible then. ``timeout`` is in seconds; None means ``max_block_ms``.

        Raises `KafkaTimeoutError` after the timeout; it continues, and the same call waits for it. Raises
        `TransactionFatal` if the coordinator refuses, `AuthenticationError` if brokers refuse the credentials (then it
        may be called again), `TransactionStateError` if it was done already. Cancellation: it also continues.
        """
        engine, transactions = self._transactional()
        operation = transactions.manager.initialize(keep_prepared=keep_prepared_txn)
        await self._outcome(engine, transactions, operation, timeout)
        return transactions.manager.prepared

    async def begin_transaction(self) -> None:
        """Open a transaction, which takes every record until it is committed or aborted.

        Sends no request. Raises `TransactionStateError` if that is not possible now, or the error that ended this
        producer's transactions. Cancellation: nothing is awaited here.
        """
        _, transactions = self._transactional()
        self._begin(transactions)

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata | str,
        timeout: float | None = None,
    ) -> None:
        """Commit a consumer's positions with the transaction: they count if it is committed (KIP-447).

        ``offsets`` are those of the *next* records to read. ``group`` is the consumer's group id or, better, its whole
        metadata, which fences a member that has lost its partitions. ``timeout`` is in seconds; None means
        ``max_block_ms``. Raises `CommitFailed` if the group refuses them, `TransactionAbortable`,
        `TransactionFatal`, `KafkaTimeoutError`, `TransactionStateError`, and `AuthenticationError` at once if
        brokers refuse the credentials. Cancellation: they are still part of the transaction, as they are after
        a timeout or refused credentials.
        """
        engine, transactions = self._transactional()
        operation = transactions.manager.send_offsets(checked_offsets(offsets), checked_group(group))
        await self._outcome(engine, transactions, operation, timeout)

    async def commit_transaction(self, timeout: float | None = None) -> None:
        """Commit: everything in the transaction becomes visible at once to readers with ``read_committed``.

        Waits for the records in flight. If one of them failed, raises `TransactionAbortable`: abort the transaction.
        ``timeout`` is in seconds; None means ``max_block_ms``. Raises `CommitUnknown` if it is not known whether the
        transaction was committed, `ProducerFenced`, `TransactionFatal`, `TransactionStateError`, and `KafkaTimeoutError`;
        after a timeout the commit continues, and the same call waits for it. Cancellation: the commit continues.

        If brokers refuse the credentials, it fails at once. `AuthenticationError`: nothing was committed; the transaction
        is still open, and may be committed or aborted later. `CommitUnknown` caused by an `AuthenticationError`: the commit
        may have been sent, and continues; the same call waits for its outcome.

        Known bug of Kafka 4.3 (KAFKA-20734): if a partition has no leader at commit time (single replica, broker stopping),
        its records may take the outcome of the next transaction. More replicas in sync avoid that.
        """
        engine, transactions = self._transactional()
        await self._outcome(engine, transactions, transactions.commit(), timeout)

    async def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort: nothing of the transaction becomes visible to readers with ``read_committed``.

        Records that were not sent yet fail as `NotWritten`, with `TransactionAborted` as the cause. ``timeout`` is in
        seconds; None means ``max_block_ms``. Raises what `commit_transaction` raises; if brokers refuse the
        credentials, `AuthenticationError`, and the abort continues. Cancellation: it also continues.
        """
        engine, transactions = self._transactional()
        await self._outcome(engine, transactions, transactions.abort(), timeout)

    async def prepare_transaction(self, timeout: float | None = None) -> PreparedTransactionState:
        """Promise that the transaction can be committed, which an outer coordinator decides from then on (KIP-939).

        Waits for the records in flight. If one of them failed, raises `TransactionAbortable`: abort the transaction.
        The coordinator stores what this returns, for `complete_transaction`. The transaction outlives this producer:
        ``close()`` no longer aborts it. It ends with the coordinator's decision, or when a successor calls
        `init_transactions` without ``keep_prepared_txn``. (A `transaction` block still commits or aborts at its end; use
        the explicit calls to leave the decision to a coordinator.)

        Needs ``transaction_two_phase_commit_enable``, and brokers that allow it. ``timeout`` is in seconds; None means
        ``max_block_ms``. Raises `TransactionStateError`, and `KafkaTimeoutError`; after a timeout it continues, and the
        same call waits for it. Cancellation: it also continues.
        """
        engine, transactions = self._transactional()
        await self._outcome(engine, transactions, transactions.prepare(), timeout)
        prepared = transactions.manager.prepared
        if prepared is None:
            raise TransactionStateError("The transaction was prepared, but another producer has ended it since.")
        return prepared

    async def complete_transaction(
        self, prepared: PreparedTransactionState | str, timeout: float | None = None
    ) -> None:
        """Commit the prepared transaction if it is the given one, abort it otherwise.

        Call it with the last state (or its text) that the outer coordinator has stored, which it has decided to commit.
        Raises `ConfigError` for an invalid state, `TransactionStateError` if no transaction is prepared, and what
        `commit_transaction` raises. ``timeout`` is in seconds; None means ``max_block_ms``. Cancellation: it continues.
        """
        from aioproducer.core.transactions.prepared_transaction import PreparedTransactionState

        engine, transactions = self._transactional()
        named = PreparedTransactionState.parse(prepared) if isinstance(prepared, str) else prepared
        await self._outcome(engine, transactions, transactions.complete(named), timeout)

    def transaction_handle(self) -> TransactionHandle:
        """A handle with which another process can write into the open transaction; frozen, can be pickled.

        From then on this producer detects another writer of a partition, as `attach` does; but not for topics with
        LogAppendTime, and it needs the right to DESCRIBE_CONFIGS for that.

        Raises `TransactionStateError` if no transaction is open; and, with a cluster before ``transaction.version=2``,
        in the first shared transaction after others that were not shared: end it, and share the next.
        """
        engine, transactions = self._transactional()
        handle = transactions.manager.handle()
        if engine.shared is not None:
            engine.shared.start_over()
        return handle

    @property
    def written(self) -> Mapping[TopicPartition, Written]:
        """The acknowledged records of an attached producer so far, by partition; read it in the producer's event loop.

        Can be pickled. Empty for a producer that is not attached.
        """
        return {} if self._shared is None else dict(self._shared.writes.written)

    @property
    def transaction_error(self) -> KafkaError | None:
        """Why the transaction must not be committed, once an attached producer has closed; else None."""
        return None if self._attachment is None else self._transaction_error

    async def _open_transaction(self) -> None:
        """Begin the next transaction, after finishing an operation whose caller was cancelled."""
        from aioproducer.core.transactions.states import State

        engine, transactions = self._transactional()
        manager = transactions.manager
        pending = manager.pending
        if pending is not None:
            try:
                await self._outcome(engine, transactions, pending, None)
            except TransactionAbortable:  # the caller was cancelled or did not wait, so nothing has aborted it
                with suppress(KafkaError):
                    await self.abort_transaction()
                raise
        if manager.state is State.UNINITIALIZED:
            await self.init_transactions()
        self._begin(transactions)

    def _begin(self, transactions: TransactionLink) -> None:
        began = time.perf_counter()
        transactions.begin()
        transactions.report_end_to(self._intake.begin_transaction())
        self._metrics.waited_for_transaction("begin_transaction", time.perf_counter() - began)

    async def _outcome(
        self, engine: Engine, transactions: TransactionLink, operation: Operation, timeout: float | None
    ) -> None:
        began = time.perf_counter()
        # Nothing interrupts this: the end of the producer ends every operation with its outcome.
        await transactions.outcome(operation, self._deadline(engine, timeout))
        self._metrics.waited_for_transaction(operation.name, time.perf_counter() - began)

    def _transactional(self) -> tuple[Engine, TransactionLink]:
        engine = self._usable()
        if engine.transactions is None:
            raise TransactionStateError("This producer has no transactions: give it a transactional_id.")
        return engine, engine.transactions

    async def partitions_for(self, topic: str, timeout: float | None = None) -> tuple[PartitionInfo, ...]:
        """The partitions of a topic in the order of their numbers, with their leaders.

        ``timeout`` is in seconds; None means ``max_block_ms``. Raises `KafkaTimeoutError` if the topic stays unknown,
        `InvalidRecord` for an invalid name, `BrokerError` if it may not be described. Cancellation: nothing is undone.
        """
        from aioproducer.core.cluster_info import partition_infos  # rarely needed

        engine = self._usable()
        self._intake.check_topic(topic)
        deadline = self._deadline(engine, timeout)
        return partition_infos(await self._interruptible(engine, engine.client.wait_topic(topic, None, deadline)))

    async def list_topics(self, timeout: float | None = None) -> ClusterInfo:
        """The cluster as one of its brokers describes it now: its id, brokers, and the topics that may be described.

        ``timeout`` is in seconds; None means ``max_block_ms``. Raises `KafkaTimeoutError` if no broker is reached or answers
        in time, `AuthenticationError` at once. Cancellation: nothing is undone.
        """
        from aioproducer.engine.list_topics import list_topics  # rarely needed

        engine = self._usable()
        return await self._interruptible(engine, list_topics(engine, self._deadline(engine, timeout)))

    async def warm_up(self, *topics: str, timeout: float | None = None) -> None:
        """Do what the first record would wait for: learn the topics, connect their leaders, get the producer id.

        Without topics: as `ready`, and the producer id. Call it before a service reports that it is ready. ``timeout`` is in
        seconds; None means ``max_block_ms``. Partitions without a leader are passed over. Raises what `partitions_for`
        raises, and `KafkaTimeoutError` if a leader cannot be reached. Cancellation: nothing is undone.
        """
        from aioproducer.engine.warm_up import warm_up  # loaded with the engine, but for itself

        engine = self._usable()
        for topic in topics:
            self._intake.check_topic(topic)
        await self._interruptible(engine, warm_up(engine, topics, self._deadline(engine, timeout)))

    def purge(self, *topics: str, in_flight: bool = False) -> PurgeReport:
        """Give up the accepted records of these topics, or all, that were not sent yet, and return them.

        Their deliveries fail at once, with `RecordsPurged` as the cause: as `NotWritten`, or as `Unknown` if they were sent
        before and wait for a retry. With ``in_flight`` also those that were sent and not acknowledged, as `Unknown`; their
        memory is free when the broker has answered. Callers that still wait for metadata or room are not affected. In a
        transaction it must be aborted then. It waits for nothing.
        """
        engine = self._usable()
        for topic in topics:
            self._intake.check_topic(topic)
        cause = RecordsPurged("purge() was called before this record was acknowledged.")
        purged = engine.accumulator.outcomes.purge(
            cause, engine.loop.time(), topics=frozenset(topics), in_flight=in_flight
        )
        engine.sender.wake()
        return PurgeReport(
            not_written=tuple(record for may_be, read in purged if not may_be for record in read()),
            maybe_written=tuple(record for may_be, read in purged if may_be for record in read()),
        )

    def resume(self, topic: str | None = None, partition: int | None = None) -> tuple[TopicPartition, ...]:
        """Let stopped partitions accept records again: one, those of a topic, or all; returns those that do.

        With ``on_data_loss="stop"``, a partition stops when one of its accepted records is given up: the records behind it
        fail as `NotWritten`, with `PartitionStopped` as the cause, and so do new ones. `stopped_partitions` has the reasons.
        To send the lost records again, resume first, and send them before others. A batch that was in flight at the loss and
        is not answered yet keeps its fate, but is not sent again. It waits for nothing. Raises `InvalidRecord` for an
        invalid topic, and for a partition without a topic.
        """
        engine = self._usable()
        if topic is not None:
            self._intake.check_topic(topic)
        elif partition is not None:
            raise InvalidRecord(f"partition={partition!r} was given without its topic.")
        return engine.accumulator.outcomes.resume(topic, partition)

    @property
    def stopped_partitions(self) -> Mapping[TopicPartition, DeliveryError]:
        """The partitions that accept no records, each with the error of its first lost record; see `resume`.

        After `close`, those of the run that has ended.
        """
        engine = self._engine
        return self._last_stopped if engine is None else engine.accumulator.stopped.errors()

    # -- inspection ---------------------------------------------------------------------------------------------------

    def metrics(self, topic: str | None = None) -> Mapping[str, float]:
        """The producer's metrics under the names of Java's producer-metrics, or those of one topic.

        Totals count from the first start; times are in milliseconds, sizes in bytes. Rates are those of the last 30 seconds,
        or since the start; 0 while the producer is closed. May be called in any thread. Raises LookupError for a topic of
        which no record was acknowledged, failed or retried yet.
        """
        if topic is not None:
            engine = self._engine
            by_topic = self._metrics.by_topic(None if engine is None else engine.loop.time(), topic)
            if topic not in by_topic:
                by_topic = self._metrics.by_topic()
                raise LookupError(
                    f"There are no metrics of topic {topic!r}: none of its records was acknowledged, failed or retried yet. "
                    f"There are metrics of {', '.join(map(repr, sorted(by_topic))) or 'no topic'}."
                )
            return by_topic[topic]
        engine = self._engine
        numbers = self._metrics.as_mapping(None if engine is None else engine.loop.time())
        if engine is not None:
            numbers.update(engine.gauges())
        return numbers

    def register_metric_for_subscription(self, metric: ApplicationMetric) -> None:
        """Let a metric of the application be pushed with the producer's own, to brokers that subscribe to it (KIP-1076).

        May be called at any time, in the event loop's thread. Raises `ConfigError` for a name that is taken already, or
        begins like those of the producer's own metrics, and for what is not text.
        """
        from dataclasses import replace

        from aioproducer.metrics.points import objection  # rarely used

        problem = objection(metric, self._metrics.application)
        if problem is not None:
            raise ConfigError(problem)
        self._metrics.application[metric.name] = replace(metric, attributes=dict(metric.attributes))

    def unregister_metric_from_subscription(self, name: str) -> None:
        """Push a metric of the application no longer; does nothing if it was not registered."""
        self._metrics.application.pop(name, None)

    async def client_instance_id(self, timeout: float | None = None) -> UUID:
        """The id under which the brokers' reporters see this client's metrics (KIP-714), once the cluster has given one.

        ``timeout`` is in seconds; None means ``max_block_ms``. Raises `ConfigError` with ``enable_metrics_push=False``,
        `UnsupportedVersion` if the connected brokers take no metrics (before Kafka 3.7, or without a reporter for them),
        `KafkaTimeoutError`, and `AuthenticationError` at once. Cancellation: nothing is undone.
        """
        if not self.config.enable_metrics_push:
            raise ConfigError("There is no client instance id with enable_metrics_push=False.")
        engine = self._usable()
        deadline = self._deadline(engine, timeout)
        await self._interruptible(engine, engine.client.wait_ready(deadline))
        return await self._interruptible(engine, engine.metrics_push.client_instance_id(deadline))

    def metrics_by_topic(self) -> Mapping[str, Mapping[str, float]]:
        """The metrics of each topic that has any, as `metrics` returns them for one. May be called in any thread."""
        engine = self._engine
        return self._metrics.by_topic(None if engine is None else engine.loop.time())

    def metrics_by_broker(self) -> Mapping[int, Mapping[str, float]]:
        """The metrics of each broker that was connected, by its id (Java's producer-node-metrics). For any thread."""
        engine = self._engine
        return self._metrics.by_broker() if engine is None else engine.metrics_by_broker()

    def metric_histograms(self) -> Mapping[str, Histogram]:
        """The distributions behind the averages and percentiles of `metrics`, for exporters of metrics.

        Their names are request-latency, record-queue-time and event-loop-lag (in seconds), batch-size (in bytes) and
        records-per-request. They count from the first start. May be called in any thread.
        """
        return self._metrics.histograms()

    def metric_histograms_by_broker(self) -> Mapping[int, Mapping[str, Histogram]]:
        """The distribution `request-latency` of each broker that was connected, by its id. For any thread."""
        return self._metrics.histograms_by_broker()

    def health(self) -> Health:
        """The producer's state in a few numbers, for liveness and readiness probes; cheap, and never waits.

        Call it in the producer's event loop, so that the probe also proves that the loop runs. Other threads may call it as
        well.
        """
        engine = self._engine
        if engine is None:
            return Health(HealthStatus.CREATED if self._report is None else HealthStatus.CLOSED)
        oldest = engine.accumulator.oldest_created_at
        connected = engine.client.connected_nodes()
        return Health(
            _status(engine, bool(connected)),
            connected,
            engine.accumulator.pending_records,
            engine.pool.waiting,
            engine.pool.used / engine.pool.total,
            0.0 if oldest is None else engine.loop.time() - oldest,
            _failure(engine) or engine.client.last_error,
        )

    def __repr__(self) -> str:
        servers = ",".join(self.config.bootstrap_servers)
        return f"<Producer {self.client_id} to {servers} [{self.health().status}]>"

    # -- helpers -----------------------------------------------------------------------------------------

    @property
    def is_forked(self) -> bool:
        """Whether this process is a fork of the one in which the producer was started."""
        return self._engine is not None and self._engine.is_forked

    @property
    def still_open(self) -> Callable[[], object] | None:
        """For calls that send many records: a check that raises once the currently open transaction has ended."""
        engine = self._engine
        return None if engine is None or engine.transactions is None else engine.transactions.still_open()

    @property
    def hand_over(self) -> HandOver:
        """Takes records from other threads during this run, for the `SyncProducer` around it.

        Records in transactions, and those that pass through user code, are not handed over.
        """
        engine = self._usable()
        if self._hand_over is None:
            is_open = self._intake.is_plain and self._intake.keys_choose is not None and engine.transactions is None
            from aioproducer.intake.hand_over import HandOver  # few programs use threads

            keys_choose = bool(self._intake.keys_choose)
            self._hand_over = HandOver(engine, self.appender, self.enqueue, is_open=is_open, keys_choose=keys_choose)
        return self._hand_over

    @staticmethod
    def _note_end(producer: weakref.ref[Producer], run: Run) -> None:
        """Take the outcome of a run that has ended; the run must not hold the producer, so it passes a weak reference."""
        itself = producer()
        if itself is not None:
            itself._report, itself._transaction_error = run.report, run.transaction_error
            if itself._engine is not None:
                itself._last_stopped = itself._engine.accumulator.stopped.errors()
            itself._engine = itself._run = None
            itself._dropped.detach()

    def _usable(self) -> Engine:
        engine = self._engine
        if engine is None:
            if self._report is not None:
                raise ProducerClosed("The producer is closed. Re-enter it with `async with`, or create a new one.")
            if asyncio._get_running_loop() is None:
                raise no_event_loop()
            raise NotStarted("The producer is not started: use it within `async with producer:`, or call start().")
        if not engine.is_usable:
            raise engine.refusal()
        return engine

    # -- waiting ------------------------------------------------------------------------------------------------------

    def _deadline(self, engine: Engine, timeout: float | None) -> float:
        seconds = check_timeout(timeout, ConfigError)
        return engine.loop.time() + (self.config.max_block_ms / 1000 if seconds is None else seconds)

    async def _interruptible(self, engine: Engine, work: Awaitable[_T]) -> _T:
        """Wait for something of the client, unless the producer ends first."""
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
    """Refuse at once what this version cannot do, rather than ignore it."""
    if config.metric_reporters:
        raise ConfigError(
            f"metric_reporters={config.metric_reporters!r}: this version of aioproducer does not call reporters yet; leave "
            "them out, and call producer.metrics() instead."
        )


def _failure(engine: Engine) -> KafkaError | None:
    """Why nothing will ever be sent again, except by closing; None if it can still send."""
    if engine.is_forked:
        return engine.refusal()
    if engine.died is not None or engine.closing or engine.transactions is None:
        return engine.died
    return engine.transactions.fatal_error


def _status(engine: Engine, connected: bool) -> HealthStatus:
    if _failure(engine) is not None:
        return HealthStatus.FAILED
    if engine.closing:
        return HealthStatus.CLOSING
    if not engine.client.metadata.nodes:
        return HealthStatus.STARTING
    # No connection and no error: there was nothing to send for a long time.
    return HealthStatus.READY if connected or engine.client.last_error is None else HealthStatus.DEGRADED


def _appender_of(producer: weakref.ref[Producer]) -> Appender | None:
    found = producer()
    return None if found is None else found.last_appender
