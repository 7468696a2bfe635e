"""The producer that users hold: what it promises, call by call, and its life from start to close."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from os import PathLike
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, Unpack, cast

import anyio

from aioproducer.arguments import check_hook, check_timeout, checked_group, checked_offsets
from aioproducer.config import ProducerConfig, ProducerOptions
from aioproducer.core.batches import ProducerBatch
from aioproducer.core.transactions.writer_shape import WRITER_BITS
from aioproducer.delivery import Delivery, DeliveryCallback
from aioproducer.engine.deadline import Deadline
from aioproducer.engine.engine import Attachment, Engine
from aioproducer.errors import (
    ConfigError,
    DeliveryError,
    InvalidRecord,
    KafkaError,
    KafkaTimeoutError,
    NotStarted,
    ProducerClosed,
    ProducerStateError,
    SendManyError,
    TransactionAbortable,
    TransactionError,
    TransactionStateError,
)
from aioproducer.hot import RECORD_COST, Appender, FastPath
from aioproducer.intake.many import SendMany, SendManyProgress, check_values
from aioproducer.intake.records import Intake, SerializedRecord, not_acknowledged, run_now, whole_record
from aioproducer.metrics import ProducerMetrics
from aioproducer.types import (
    CloseReport,
    ConsumerGroupMetadata,
    HeadersInput,
    Health,
    HealthStatus,
    OffsetAndMetadata,
    PartitionInfo,
    ProducerRecord,
    RecordMetadata,
    SendManyResult,
    TopicPartition,
    Written,
)

if TYPE_CHECKING:
    from aioproducer.core.transactions.handle import TransactionHandle
    from aioproducer.core.transactions.operation import Operation
    from aioproducer.core.transactions.prepared_transaction import PreparedTransactionState
    from aioproducer.intake.hand_over import HandOver
    from aioproducer.intake.table import HeaderColumns, SendTableProgress, ValueFormat
    from aioproducer.transactions.context import Transaction
    from aioproducer.transactions.link import TransactionLink
    from aioproducer.transactions.shared_acknowledgements import SharedAcknowledgements

__all__ = ["Producer"]

_T = TypeVar("_T")
_client_numbers = itertools.count(1)

#: A coroutine that appends without ever having to wait lets the event loop run after this many bytes: a millisecond or two.
_BURST_BYTES = 256 * 1024


class Producer(FastPath):
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

    A ``timeout`` is a number of seconds from 0. Anything else raises before anything is done: `InvalidRecord` where a
    record is sent, `ConfigError` elsewhere.

    Cancellation: an ``async with`` that is cancelled still waits until what was accepted is delivered, for up to
    ``close_timeout_ms``; a second cancellation gives up the rest and ends at once. No task is left behind.
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
        self._hand_over: HandOver | None = None
        self._closing: asyncio.Task[CloseReport] | None = None
        self._close_by: Deadline | None = None
        self._closed = False
        self._attachment: Attachment | None = None
        self._shared: SharedAcknowledgements | None = None
        self._transaction_error: KafkaError | None = None

        self._intake = Intake(config, self._metrics)
        self.appender = Appender(self._send, self._enqueue, self._enqueue_nowait, _BURST_BYTES)

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
            report = writer.written  # for whoever commits: TransactionCoordinatorClient.commit(handle, written=[...])

        Sends at once; cannot begin, commit or abort, and can be started once. Each partition must have one writer in a
        transaction. A second one is found out by the sequences of its batches, or by acknowledgements that are not about
        them: its records fail as `NotWritten` with `SharedPartition` as the cause. What remains - topics with
        LogAppendTime, where the first few records of both happen to be cut alike - shows in ``written``, which
        `TransactionCoordinatorClient.commit` compares. For such topics it needs the right to DESCRIBE_CONFIGS.

        ``writer`` is a number that no other writer of the transaction has; None: a random one. The first batches of each
        partition are cut by it. Leaving the ``async with`` raises ``transaction_error``, a `TransactionAbortable` or another
        `TransactionError`, where any record was given up or any offsets were not taken, as the transaction must not be
        committed then.

        It ends with the transaction: a record that is sent afterwards fails - except that with a cluster before
        ``transaction.version=2`` it may open a transaction that nobody ends, which the next
        `TransactionCoordinatorClient.init` or `init_transactions` of the same ``transactional_id`` aborts. So close writers
        before the transaction is ended. Raises `ConfigError` for a handle, a number or options that do not fit.
        """
        from aioproducer.core.transactions.handle import TransactionHandle

        if not isinstance(cast("object", handle), TransactionHandle):
            raise ConfigError(
                f"handle={handle!r}: that is no TransactionHandle; producer.transaction_handle() gives one."
            )
        if writer is not None and (type(writer) is not int or writer < 0):
            raise ConfigError(f"writer={writer!r}: a whole number from 0, or None for a random one.")
        named = options.get("transactional_id")
        if named not in (None, handle.transactional_id):
            raise ConfigError(f"transactional_id={named!r} is not that of the handle, {handle.transactional_id!r}.")
        options["transactional_id"] = handle.transactional_id
        producer = cls(bootstrap_servers, **options)
        number = producer._random.getrandbits(WRITER_BITS) if writer is None else writer
        producer._attachment = Attachment(handle, number)
        return producer

    # -- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> Self:
        """Start the tasks; what ``async with`` does on entering. Waits for no broker.

        Raises `ProducerStateError` where it is started already. Cancellation: nothing is awaited here.
        """
        if self._engine is not None:
            raise (
                self._engine.refusal() if not self._engine.is_usable else ProducerStateError("The producer is started.")
            )
        if self._attachment is not None and self._shared is not None:
            raise TransactionStateError(
                "An attached producer cannot be started again: its sequences would begin anew, where its own records are "
                "already. Have all partitions of a transaction written in one run."
            )
        self._closed = False
        self._closing = self._hand_over = None
        self._engine = Engine(self.config, self.client_id, self._metrics, self._random, self.appender, self._attachment)
        self._shared = None if self._attachment is None else self._engine.shared
        self._engine.start()
        if self._intake.is_plain:
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
        # An anyio scope that was cancelled would interrupt every await in here. What was accepted is still delivered.
        with anyio.CancelScope(shield=True):
            try:
                await self.close()
            except asyncio.CancelledError:
                await self._abandon()
                raise
        if kind is None and self.transaction_error is not None:
            raise self.transaction_error

    async def ready(self, timeout: float | None = None) -> None:
        """Wait until a broker is connected and has answered a metadata request.

        ``timeout`` is in seconds; None means ``max_block_ms``. Raises `KafkaTimeoutError`, with the last connection's
        error as its cause, and `AuthenticationError` at once. Cancellation: nothing is undone, the producer goes on.
        """
        engine = self._usable()
        await self._interruptible(engine, engine.client.wait_ready(self._deadline(engine, timeout)))

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until every record that was accepted before has its outcome, good or bad; until then no batch lingers.

        ``timeout`` is in seconds; None: as long as it takes, which ``delivery_timeout_ms`` bounds. Raises
        `KafkaTimeoutError`. May be called from anywhere, also while another flush runs. Cancellation: the records
        go on.
        """
        seconds = check_timeout(timeout, ConfigError)
        engine = self._usable()
        began = engine.loop.time()
        try:
            if not await _flushed(engine, None if seconds is None else began + seconds):
                raise KafkaTimeoutError(
                    f"flush() took longer than {seconds:g} s: {engine.accumulator.pending_records} record(s) still wait for "
                    "their acknowledgement, and go on doing so."
                )
        finally:
            self._metrics.flush_time_s += engine.loop.time() - began

    async def close(self, timeout: float | None = None) -> CloseReport:
        """Deliver what was accepted, end everything, and tell what became of it all.

        ``timeout`` is in seconds; None means ``close_timeout_ms``. When it ends, what is still waiting is given up: its
        deliveries fail as `NotWritten` or `Unknown`, and the report holds the records. Calls that wait for room or
        metadata fail at once with `ProducerClosed`. Later calls return the same report; a call while another one closes
        waits for that one, which then ends within the shorter of both timeouts. Async interceptors and callbacks that
        have not ended by then are cancelled.

        A transaction that is still open is aborted unless it is prepared; one of which `prepare_transaction` could tell
        nobody is aborted, too. A commit that is under way is waited for. A warning is logged of the abort, and of a commit
        that failed or may have failed unseen; the report is about records only.

        Cancellation: closing goes on in the background, within its timeout.
        """
        seconds = check_timeout(timeout, ConfigError)
        engine = self._engine
        if engine is None:
            return CloseReport() if self._closing is None else self._closing.result()
        if engine.loop is not asyncio._get_running_loop():  # None in a fork, where get_running_loop() would raise
            if not engine.loop.is_closed() or engine.is_forked:
                raise engine.refusal()
            self._engine = None  # it ended with its loop, and its waiters have failed
            self._closed = True
            return self._report()
        engine.foreign.excuse_current()
        if self._closing is None or (self._closing.done() and _failed(self._closing)):
            seconds = self.config.close_timeout_ms / 1000 if seconds is None else seconds
            self._close_by = Deadline(engine.loop, seconds)
            self._closing = engine.loop.create_task(self._close(engine, self._close_by), name="aioproducer close")
        elif seconds is not None and self._close_by is not None:
            self._close_by.bring_forward(seconds)
        return await asyncio.shield(self._closing)

    async def _close(self, engine: Engine, deadline: Deadline) -> CloseReport:
        if self._hand_over is not None:
            await self._hand_over.close(deadline)
        engine.close_intake()
        if engine.died is None:
            with suppress(TimeoutError):
                async with deadline.limit():
                    if engine.transactions is not None:
                        await engine.transactions.end()
                    await _flushed(engine, None)
        left: list[tuple[bool, ProducerBatch]] = [
            (batch.possibly_written or batch.is_in_flight, batch)
            for batch in engine.accumulator.outcomes.incomplete_in_order()
        ]
        readers = [(written, batch.undelivered()) for written, batch in left]
        engine.accumulator.outcomes.fail_all(
            ProducerClosed(
                f"The producer was closed, and {deadline.seconds:g} s were not enough to deliver this record."
            ),
            engine.loop.time(),
        )
        if engine.transactions is not None:
            self._transaction_error = engine.transactions.objection
            engine.transactions.close(ProducerClosed("The producer was closed."))
        await asyncio.sleep(0)  # the callbacks of the last outcomes run before the tasks that they may need end
        await engine.foreign.wait(deadline)
        await engine.foreign.cancel()
        await engine.stop()
        await self._close_interceptors(engine, deadline)
        self._engine = None
        self._closed = True
        handed_over = self._hand_over.not_written if self._hand_over is not None else []
        return self._report(
            not_written=[*(record for written, read in readers if not written for record in read()), *handed_over],
            maybe_written=[record for written, read in readers if written for record in read()],
        )

    async def _close_interceptors(self, engine: Engine, deadline: Deadline) -> None:
        closing = self._intake.interceptors.close()
        if closing is not None:
            engine.spawn(closing, "aioproducer interceptors' close")
            await engine.foreign.wait(deadline)
            await engine.foreign.cancel()

    def _report(
        self, not_written: Sequence[ProducerRecord] = (), maybe_written: Sequence[ProducerRecord] = ()
    ) -> CloseReport:
        return CloseReport(
            delivered=self._metrics.records_delivered,
            failed=self._metrics.records_failed,
            unknown=self._metrics.records_unknown,
            not_written=not_written,
            maybe_written=maybe_written,
        )

    async def _abandon(self) -> None:
        """Close without waiting for anybody, so that a cancelled `async with` leaves nothing behind."""
        engine, closing, close_by = self._engine, self._closing, self._close_by
        if engine is None or closing is None or close_by is None:
            return
        engine.accumulator.outcomes.fail_all(
            ProducerClosed("The producer was closed by a cancellation before this record was delivered."),
            engine.loop.time(),
        )
        close_by.bring_forward(0)
        await asyncio.wait([closing])

    # -- records ------------------------------------------------------------------------------------------------------

    def __init_subclass__(cls, **more: Any) -> None:
        """What a subclass does in its own ``enqueue`` is done for ``send``, too."""
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
        """The slow path of `send`, where the time is limited, or `enqueue` has one."""
        return await self._acknowledged(
            lambda: self._enqueue(topic, value, key, headers, partition, timestamp_ms, on_delivery, timeout), timeout
        )

    async def _send_by_enqueue(
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
        """`Producer.send`, of a subclass with an ``enqueue`` of its own."""
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
        """The acknowledgement of a record that is to be put in, as of `send`."""
        if timeout is None:
            return await (await enqueue())
        seconds = check_timeout(timeout, InvalidRecord)
        deadline = self._usable().loop.time() + seconds
        delivery = await enqueue()
        limit = asyncio.timeout_at(deadline)
        try:
            async with limit:
                return await delivery
        except TimeoutError:
            if not limit.expired():
                raise
        raise not_acknowledged(delivery, seconds)

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
        """The slow path of `enqueue`, where something must be decided or awaited, or is wrong."""
        timeout = check_timeout(timeout, InvalidRecord)
        check_hook("on_delivery", on_delivery, "the Delivery")
        engine = self._usable()
        still_open: Callable[[], object] | None = None
        if engine.transactions is not None:
            engine.transactions.check_may_send()
            still_open = engine.transactions.still_open()
        if self.appender.burst >= _BURST_BYTES and engine.is_burst_of_one_task():
            await asyncio.sleep(0)  # before the append: cancelled here, nothing was buffered
        record: SerializedRecord | None = None
        began: float | None = None
        try:
            if self._intake.is_plain:
                record = self._intake.plain(topic, value, key, headers, partition, timestamp_ms)
            else:
                began = engine.loop.time()
                whole = whole_record(topic, value, key, headers, partition, timestamp_ms)
                record = await self._intake.in_time(timeout, self._intake.prepared(whole))
            if still_open is not None:
                still_open()
            choice = self._intake.choose(engine, record)
            delivery = self._intake.try_append(engine, record, choice)
            if delivery is None:
                delivery = await self._intake.append(engine, record, choice, timeout, began, still_open)
        except (KafkaError, asyncio.CancelledError) as error:
            self._intake.not_accepted(engine, record, error)
            raise
        self.appender.burst += record.size + RECORD_COST
        if not self._intake.is_plain:
            self._intake.watch(engine, delivery, record.headers)
        if on_delivery is not None:
            delivery.add_done_callback(on_delivery)
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
        self.appender.burst = 0  # who cannot wait cannot pause either
        record: SerializedRecord | None = None
        try:
            if self._intake.is_plain:
                record = self._intake.plain(topic, value, key, headers, partition, timestamp_ms)
            else:
                whole = whole_record(topic, value, key, headers, partition, timestamp_ms)
                record = run_now(self._intake.prepared(whole))
            delivery = self._intake.try_append(engine, record, self._intake.choose(engine, record))
            if delivery is None:
                raise self._intake.no_room_now(engine, record)
        except KafkaError as error:
            self._intake.not_accepted(engine, record, error)
            raise
        if not self._intake.is_plain:
            self._intake.watch(engine, delivery, record.headers)
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
        `SendManyError` tells how far it came. What ``values`` or ``key`` raise comes out as it is, after the same wait;
        what ``on_progress`` raises is logged.

        Cancellation: no further item is read; accepted records are still delivered, and failures go to
        ``on_delivery_error``.
        """
        check_values(values, may_be_async=True)
        bulk = SendMany(
            self,
            topic,
            self._usable().loop.time,
            key=key,
            headers=headers,
            partition=partition,
            on_progress=on_progress,
            timeout=timeout,
            check=self.still_open,
        )
        with bulk:
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
            return await bulk.finish()

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
        that ``value`` lists, or of all that are nothing else (but for an index of pandas' without a name); that needs
        ``aioproducer[arrow]``.

        ``on_progress`` gets the result so far, about ten times a second and at the end. ``timeout``, in seconds, bounds
        each wait for metadata and room; None means ``max_block_ms``.

        Raises `InvalidRecord` for columns that do not fit, and `ConfigError` where serializers, interceptors or a
        partitioner would have to see each record (`send_many` is the way then); nothing was sent. A row that can never be
        sent, or a batch that fails, stops the rest: what was accepted still gets its outcome, and then `SendManyError`
        tells how far it came. What the table raises comes out as it is - an ``OSError`` with its words, where that is
        while it is read -, after the same wait.

        Cancellation: no further row is sent; the batches that were handed over are still delivered, and failures go
        to ``on_delivery_error``.
        """
        from aioproducer.intake.table import send_table  # 4 ms, and few producers send tables

        engine = self._usable()
        self._intake.check_topic(topic)
        return await send_table(
            engine,
            topic,
            table,
            key=key,
            value=value,
            headers=headers,
            timestamp=timestamp,
            partition=partition,
            value_format=value_format,
            on_progress=on_progress,
            timeout=check_timeout(timeout, InvalidRecord),
        )

    # -- transactions ---------------------------------------------------------------------------------------------------

    def transaction(self) -> Transaction:
        """A transaction to enter: ``async with producer.transaction() as txn``; see `Transaction`.

        The first one calls `init_transactions`, unless that was done. Entering it raises as `begin_transaction` does, and
        the error of a commit that nobody waited for to the end; what that left is aborted then.
        """
        from aioproducer.transactions.context import Transaction

        return Transaction(self, self._open_transaction)

    async def run_in_transaction(self, work: Callable[[Transaction], Awaitable[_T]], *, attempts: int = 5) -> _T:
        """Do ``work(txn)`` in a transaction, commit it, and answer what the work answered.

        Where the transaction can only be aborted (`TransactionAbortable`, or a record that failed), the work is done again
        in a new one after a pause that grows, ``attempts`` times in all; so it must have no effects but the records. After a
        `ReopenRequired` the producer is closed and started once more before that.

        What no new attempt would make good is raised at once: what the work itself raises, a record that the broker finds
        too large, `CommitFailed` (its consumer has to rejoin first), `CommitUnknown` and `TransactionFatal`. After the last
        attempt its error is raised. Cancellation: the transaction is aborted.
        """
        from aioproducer.transactions.attempts import Attempts, Next

        tries = Attempts(attempts, self.config, self._random.random)
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
        """Get the producer id of this ``transactional_id``, which fences every earlier producer with the same.

        What such a producer left open is aborted. With ``keep_prepared_txn`` (KIP-939) it is kept instead, and named by the
        answer, which is None where there was nothing: only `complete_transaction`, or committing or aborting it, is possible
        then. Up to 4.4 Kafka refuses to keep it (KAFKA-20739); the same call without that is still possible then.
        ``timeout`` is in seconds; None means ``max_block_ms``.

        Raises `KafkaTimeoutError` where it takes longer; it goes on then, and the same call waits for it. Raises
        `TransactionFatal` where the coordinator refuses, `AuthenticationError` where brokers refuse the credentials (then it
        may be called again), `TransactionStateError` where it was done already. Cancellation: it goes on, too.
        """
        engine, transactions = self._transactional()
        operation = transactions.manager.initialize(keep_prepared=keep_prepared_txn)
        await self._outcome(engine, transactions, operation, timeout)
        return transactions.manager.prepared

    async def begin_transaction(self) -> None:
        """Open a transaction, which takes every record that is put in until it is committed or aborted.

        Asks nobody. Raises `TransactionStateError` where that is not possible now, or the error that ended this producer's
        transactions. Cancellation: nothing is awaited here.
        """
        _, transactions = self._transactional()
        transactions.begin()

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata | str,
        timeout: float | None = None,
    ) -> None:
        """Commit a consumer's positions with the transaction: they count if it is committed (KIP-447).

        ``offsets`` are those of the *next* records to read. ``group`` is the consumer's group id or, better, its whole
        metadata, with which a member that has lost its partitions is fenced. ``timeout`` is in seconds; None means
        ``max_block_ms``. Raises `CommitFailed` where the group refuses them, `TransactionAbortable`, `TransactionFatal`,
        `KafkaTimeoutError`, `TransactionStateError`, and `AuthenticationError` at once where brokers refuse the credentials.
        Cancellation: they are still part of the transaction, as they are after a timeout or refused credentials.
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

        Records that have not left fail as `NotWritten`, with `TransactionAborted` as the cause. ``timeout`` is in seconds;
        None means ``max_block_ms``. Raises as `commit_transaction` does; where brokers refuse the credentials,
        `AuthenticationError`, and it goes on. Cancellation: it goes on.
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
        same call waits for it. Cancellation: it continues, too.
        """
        engine, transactions = self._transactional()
        await self._outcome(engine, transactions, transactions.prepare(), timeout)
        prepared = transactions.manager.prepared
        if prepared is None:
            raise TransactionStateError("The transaction was prepared, but somebody else has ended it since.")
        return prepared

    async def complete_transaction(
        self, prepared: PreparedTransactionState | str, timeout: float | None = None
    ) -> None:
        """Commit the prepared transaction where it is the one that is named here, and abort it where it is another.

        To be called with what the outer coordinator has written down last, or its text: that was decided to be committed.
        Raises `ConfigError` where that names no transaction, `TransactionStateError` where none is prepared, and otherwise
        as `commit_transaction` does. ``timeout`` is in seconds; None means ``max_block_ms``. Cancellation: it goes on.
        """
        from aioproducer.core.transactions.prepared_transaction import PreparedTransactionState

        engine, transactions = self._transactional()
        named = PreparedTransactionState.parse(prepared) if isinstance(prepared, str) else prepared
        await self._outcome(engine, transactions, transactions.manager.complete(named), timeout)

    def transaction_handle(self) -> TransactionHandle:
        """What another process needs to write into the open transaction; frozen, can be pickled.

        From then on this producer, too, is told of another writer in a partition, as `attach` says; but not for topics with
        LogAppendTime, and it needs the right to DESCRIBE_CONFIGS for that.

        Raises `TransactionStateError` where none is open; and, with a cluster before ``transaction.version=2``, in the first
        one that is to be shared after others were not: end it, and share the next.
        """
        engine, transactions = self._transactional()
        handle = transactions.manager.handle()
        if engine.shared is not None:
            engine.shared.start_over()
        return handle

    @property
    def written(self) -> Mapping[TopicPartition, Written]:
        """What an attached producer got acknowledged so far, by partition; to be called in the producer's event loop.

        Can be pickled. Empty for a producer that is not attached.
        """
        return {} if self._shared is None else dict(self._shared.writes.written)

    @property
    def transaction_error(self) -> KafkaError | None:
        """Why the transaction must not be committed, as far as an attached producer knows that has closed; else None."""
        return None if self._attachment is None else self._transaction_error

    async def _open_transaction(self) -> None:
        """Begin the next one, after what a caller who was cancelled has left behind."""
        from aioproducer.core.transactions.states import State

        engine, transactions = self._transactional()
        manager = transactions.manager
        pending = manager.pending
        if pending is not None:
            try:
                await self._outcome(engine, transactions, pending, None)
            except TransactionAbortable:  # whoever would have aborted it was cancelled, or did not wait
                with suppress(KafkaError):
                    await self.abort_transaction()
                raise
        if manager.state is State.UNINITIALIZED:
            await self.init_transactions()
        transactions.begin()

    async def _outcome(
        self, engine: Engine, transactions: TransactionLink, operation: Operation, timeout: float | None
    ) -> None:
        # Nothing interrupts this: the end of the producer ends every operation, and says what became of it.
        await transactions.outcome(operation, self._deadline(engine, timeout))

    def _transactional(self) -> tuple[Engine, TransactionLink]:
        engine = self._usable()
        if engine.transactions is None:
            raise TransactionStateError("This producer has no transactions: give it a transactional_id.")
        return engine, engine.transactions

    async def partitions_for(self, topic: str, timeout: float | None = None) -> tuple[PartitionInfo, ...]:
        """The partitions of a topic in the order of their numbers, and who leads them.

        ``timeout`` is in seconds; None means ``max_block_ms``. Raises `KafkaTimeoutError` where the topic stays unknown,
        `InvalidRecord` for an impossible name, `BrokerError` where it may not be seen. Cancellation: nothing is undone.
        """
        engine = self._usable()
        self._intake.check_topic(topic)
        deadline = self._deadline(engine, timeout)
        found = await self._interruptible(engine, engine.client.wait_topic(topic, None, deadline))
        return tuple(PartitionInfo(topic, each.index, each.leader, each.leader_epoch) for each in found.partitions)

    # -- looking in ---------------------------------------------------------------------------------------------------

    def metrics(self, topic: str | None = None) -> Mapping[str, float]:
        """The numbers of the producer under the names of Java's producer-metrics, or those of one topic.

        To be called in the producer's event loop; a `SyncProducer` answers in any thread.
        Totals count from the first start; times are in milliseconds, sizes in bytes.
        """
        if topic is not None:
            return self._metrics.topic(topic).as_mapping()
        numbers = self._metrics.as_mapping()
        engine = self._engine
        if engine is not None:
            numbers["buffer-total-bytes"] = engine.pool.total
            numbers["buffer-available-bytes"] = max(0, engine.pool.free)  # the headers of split batches are a debt
            numbers["waiting-threads"] = engine.pool.waiting
            numbers["records-pending"] = engine.accumulator.pending_records
            numbers["connection-count"] = len(engine.client.connected_nodes())
            numbers["requests-in-flight"] = sum(
                engine.client.in_flight(node) for node in engine.client.connected_nodes()
            )
            numbers["producer-epoch"] = engine.sequences.epoch
        return numbers

    def health(self) -> Health:
        """The producer's state in a few numbers, for liveness and readiness probes; costs little, waits for nothing.

        To be called in the producer's event loop, where such a probe proves that this runs, too; a `SyncProducer` answers
        in any thread.
        """
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
        """For calls that send many records: a check that raises when the transaction that is open now is over."""
        engine = self._engine
        return None if engine is None or engine.transactions is None else engine.transactions.still_open()

    @property
    def hand_over(self) -> HandOver:
        """The way in for the records of other threads, as long as this run lasts: for the `SyncProducer` around it.

        Records of transactions, and those that pass through anything of the user's, are not handed over.
        """
        engine = self._usable()
        if self._hand_over is None:
            is_open = self._intake.is_plain and self._intake.keys_choose is not None and engine.transactions is None
            from aioproducer.intake.hand_over import HandOver  # few have threads

            self._hand_over = HandOver(engine, self.enqueue, is_open=is_open)
        return self._hand_over

    def _usable(self) -> Engine:
        engine = self._engine
        if engine is None:
            raise (
                ProducerClosed("The producer is closed. Re-enter it with `async with`, or create a new one.")
                if self._closed
                else NotStarted("The producer is not started: use it within `async with producer:`, or call start().")
            )
        if not engine.is_usable:
            raise engine.refusal()
        return engine

    # -- waiting ------------------------------------------------------------------------------------------------------

    def _deadline(self, engine: Engine, timeout: float | None) -> float:
        seconds = check_timeout(timeout, ConfigError)
        return engine.loop.time() + (self.config.max_block_ms / 1000 if seconds is None else seconds)

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
    if config.metric_reporters:
        raise ConfigError(
            f"metric_reporters={config.metric_reporters!r}: this version of aioproducer calls no reporters yet; leave them "
            "out, and ask producer.metrics() whenever you like."
        )


def _failure(engine: Engine) -> KafkaError | None:
    """Why nothing will ever be sent again, unless that is because it is closing."""
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
    # Without a connection and without an error there was just nothing to send for long.
    return HealthStatus.READY if connected or engine.client.last_error is None else HealthStatus.DEGRADED


def _failed(task: asyncio.Task[CloseReport]) -> bool:
    return task.cancelled() or task.exception() is not None


async def _flushed(engine: Engine, deadline: float | None) -> bool:
    """Whether everything that was accepted had its outcome before the deadline."""
    done: asyncio.Future[bool] = engine.loop.create_future()

    def settle(in_time: bool) -> None:
        if not done.done():
            done.set_result(in_time)

    waiter = engine.accumulator.begin_flush(partial(settle, True), engine.loop.time())
    timer = None if deadline is None else engine.loop.call_at(deadline, settle, False)
    try:
        return await done
    finally:
        if timer is not None:
            timer.cancel()
        engine.accumulator.end_flush(waiter)
