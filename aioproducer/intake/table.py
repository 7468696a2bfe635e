"""Sends the rows of a table as records: in order, in bounded memory, with one result for all of them.

::

    worker thread: source.read() -> chunk
    event loop:    check a slice - memory? await - metadata? await - encode into a batch a partition - hand full ones over

No Python object is created for a row. The event loop runs after every slice; with Java's ``send_buffer_bytes``
that takes less than a millisecond.
"""

from __future__ import annotations

import asyncio
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

from aioproducer.accumulator.buffer_pool import PoolClosed
from aioproducer.arguments import check_plain_hook
from aioproducer.config import ProducerConfig
from aioproducer.core.cluster import TopicMetadata
from aioproducer.delivery import ProduceResult
from aioproducer.engine.engine import Engine
from aioproducer.errors import (
    ConfigError,
    DeliveryError,
    InvalidRecord,
    KafkaError,
    NotWritten,
    SendManyError,
)
from aioproducer.intake.timeouts import not_accepted
from aioproducer.interceptors import InterceptedBulk
from aioproducer.record import BATCH_OVERHEAD, RecordBatchBuilder
from aioproducer.record.columns import (
    Binding,
    ColumnEncoder,
    ColumnNames,
    HeaderColumns,
    TableSource,
    bind,
    check_table,
    header_sources,
    open_table,
)
from aioproducer.types import SendManyResult, TopicPartition

__all__ = ["HeaderColumns", "SendTableProgress", "ValueFormat", "send_table"]

SendTableProgress: TypeAlias = Callable[[SendManyResult], object]
ValueFormat: TypeAlias = Literal["json"]

_T = TypeVar("_T")

#: How often the progress hook is called, in seconds.
_PROGRESS_INTERVAL: Final = 0.1

#: How long a batch may delay the encoding of the next ones, in seconds.
_PATIENCE: Final = 0.05

#: The least and the most bytes to encode before the event loop runs again, if there is enough memory.
_LEAST_SLICE: Final = 1 << 17
_MOST_SLICE: Final = 1 << 20

#: How many rows may wait for the event loop before the worker thread stops reading.
_READ_AHEAD: Final = 65_536


async def send_table(
    engine: Engine,
    topic: str,
    table: object,
    *,
    key: str | None = None,
    value: str | Sequence[str] | None = None,
    headers: HeaderColumns | None = None,
    intercepted: InterceptedBulk | None = None,
    timestamp: str | None = None,
    partition: str | int | None = None,
    value_format: ValueFormat | None = None,
    on_progress: SendTableProgress | None = None,
    timeout: float | None = None,
) -> SendManyResult:
    """Implements `Producer.send_table`; the topic's name and the timeout are checked already."""
    config = engine.config
    _refuse_what_sees_records(config, partition, intercepted)
    check_plain_hook("on_progress", on_progress, "the SendManyResult so far")
    check_table(table)
    if intercepted is not None and intercepted.headers:
        headers = _with_constants(headers, {name: value or b"" for name, value in intercepted.headers})
    names = ColumnNames(key, value if isinstance(value, str) else None, timestamp, partition, headers)
    opened = await _while_usable(engine, _open_in_thread, engine.loop, table, names, value, value_format)
    bulk = SendTable(
        engine,
        topic,
        opened,
        on_progress=on_progress,
        timeout=config.max_block_ms / 1000 if timeout is None else timeout,
    )
    return await bulk.run()


def _with_constants(
    headers: HeaderColumns | None, constants: Mapping[str, bytes]
) -> Sequence[str | Mapping[str, str | bytes]]:
    """The headers, with constants in place of mapped ones of the same names; a column of headers may repeat them."""
    kept = [
        part if isinstance(part, str) else {name: source for name, source in part.items() if name not in constants}
        for part in header_sources(headers)
    ]
    return [*kept, constants]


def _refuse_what_sees_records(
    config: ProducerConfig, partition: str | int | None, intercepted: InterceptedBulk | None
) -> None:
    """Refuse serializers, interceptors and partitioners: there are no Python records for them."""
    for option, sees in (
        ("key_serializer", config.key_serializer),
        ("value_serializer", config.value_serializer),
        ("interceptors", intercepted is not None and intercepted.needs_each_record),
    ):
        if sees:
            raise ConfigError(
                f"send_table() sends keys and values unchanged, but this producer has {option}=: use "
                "send_many() with it, or a producer without."
            )
    if config.partitioner not in (None, "murmur2_random") and not isinstance(partition, int):
        raise ConfigError(
            f"send_table() cannot call partitioner={config.partitioner!r} for every row: use send_many(), or a producer "
            "without it, and name a column with partition= to choose yourself."
        )


class _Opened(NamedTuple):
    """A table whose columns were checked; ``parts`` converts a chunk for the encoder."""

    source: TableSource
    binding: Binding
    parts: Callable[[Any, int], Iterable[Any]]


async def _open_in_thread(loop: asyncio.AbstractEventLoop, *args: Any) -> _Opened:
    """Cancellation: a table that the thread opens afterwards is closed."""
    opening = loop.run_in_executor(None, _open, *args)
    try:
        await asyncio.wait([opening])  # unlike an await, this does not cancel it
    except BaseException:
        opening.add_done_callback(_close_unused)
        raise
    return opening.result()


def _close_unused(opening: asyncio.Future[_Opened]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().source.close()


def _open(table: object, names: ColumnNames, value: object, value_format: object) -> _Opened:
    """Runs in a worker thread: a table may have to be computed first, for example by a query."""
    if value_format == "json":
        return _open_json(table, names, value)
    if value_format is not None:
        raise InvalidRecord(f"Invalid value_format={value_format!r}: must be 'json', or None for one unchanged column.")
    if value is not None and not isinstance(value, str):
        raise InvalidRecord(
            f"Invalid value={value!r}: must be one column. For an object of several columns, add value_format='json'."
        )
    source = open_table(table)
    try:
        return _Opened(source, bind(source.fields, names), _as_it_is)
    except BaseException:
        source.close()
        raise


def _as_it_is(chunk: Any, first_row: int) -> Iterable[Any]:
    return (chunk,)


def _open_json(table: object, names: ColumnNames, value: Any) -> _Opened:
    from aioproducer.record.json_columns import JsonTable

    columns: Iterable[str] | None = (value,) if isinstance(value, str) else value
    if columns is not None and (isinstance(value, bytes) or not hasattr(value, "__iter__")):
        raise InvalidRecord(
            f"Invalid value={value!r}: with value_format='json' it must be a column, a list of columns, or None for all "
            "that have no other role."
        )
    source = JsonTable(table, names, columns)
    try:
        fields = source.fields[: source.value]  # the table's columns; no name can mean the created one
        return _Opened(source, bind(fields, names, source.value), source.parts)
    except BaseException:
        source.close()
        raise


def _slice_for(send_buffer: int) -> int:
    """The number of bytes to encode at a time: the size of a socket's buffer, which is not refilled during the encoding.

    Linux uses twice the requested size, and some MiB if it decides itself.
    """
    return _MOST_SLICE if send_buffer < 0 else min(max(2 * send_buffer, _LEAST_SLICE), _MOST_SLICE)


class SendTable:
    """One table that is being sent."""

    def __init__(
        self, engine: Engine, topic: str, opened: _Opened, *, on_progress: SendTableProgress | None, timeout: float
    ) -> None:
        config = engine.config
        self._engine = engine
        self._topic = topic
        self._still_open = None if engine.transactions is None else engine.transactions.still_open()
        self._parts = opened.parts
        self._chunks = _Chunks(opened.source, engine.loop)
        self._fixed_partition = opened.binding.fixed_partition
        by_memory = config.buffer_memory <= config.max_request_size  # which cannot be raised alone then
        self._encoder = ColumnEncoder(
            opened.source.fields,
            opened.binding,
            largest=config.buffer_memory if by_memory else config.max_request_size,
            largest_option="buffer_memory" if by_memory else "max_request_size",
            ignore_keys=config.partitioner_ignore_keys,
        )
        self._slice = min(_slice_for(config.send_buffer_bytes), config.buffer_memory // 4)
        self._timeout = timeout
        self._outcomes = _Outcomes(topic, engine, on_progress)
        self._pace = _Pace(engine.loop)
        self._spare = 0  # bytes taken from the pool that hold nothing yet

    async def run(self) -> SendManyResult:
        """Send all rows, and wait for all outcomes; raises `SendManyError` if a row or a batch failed."""
        failure: Exception | None = None
        try:
            try:
                await self._send_rows()
            except DeliveryError as error:
                failure = error
            except Exception as error:  # foreign code (the table's), or a row that can never be sent
                failure = error
                with suppress(KafkaError):  # the first failure is reported
                    await self._send_rest()
            finally:
                self._chunks.close()
                self._give_back()
            await self._outcomes.wait()
        except BaseException:
            self._outcomes.abandon()
            raise
        failure = failure or self._outcomes.error
        result = self._outcomes.result
        if failure is None:
            return result
        if not isinstance(failure, (DeliveryError, InvalidRecord)):
            self._outcomes.abandon()  # there is no result, which would report earlier failures
            raise failure
        raise SendManyError(
            f"send_table to {self._topic!r} stopped after {result.count} acknowledged record(s): {failure}",
            result,
            failure,
        ) from failure

    # -- rows ---------------------------------------------------------------------------------------------------------

    async def _send_rows(self) -> None:
        encoder = self._encoder
        await self._topic_with(self._fixed_partition)
        while (chunk := await self._next_chunk()) is not None:
            if not chunk.num_rows:
                await asyncio.sleep(
                    0
                )  # a filter may produce many empty chunks, and then no slice lets the event loop run
            for part in self._parts(chunk, encoder.row):
                encoder.load(part)
                while encoder.remaining:
                    await self._send_slice()
                    await self._pace.wait(self._window)
        await self._send_rest()

    async def _next_chunk(self) -> Any:
        """The next chunk; earlier rows do not wait for it if the table takes a while."""
        chunks = self._chunks
        if not chunks.is_ready:
            self._give_back_spare()
            if not await _while_usable(self._engine, chunks.wait_ready, self._engine.config.linger_ms / 1000):
                await self._send_rest()
                await _while_usable(self._engine, chunks.wait_ready, None)
        return chunks.take()

    async def _send_slice(self) -> None:
        encoder, engine = self._encoder, self._engine
        size, greatest_partition = encoder.check(self._slice)
        row_size = size // encoder.checked
        size += BATCH_OVERHEAD
        known = await self._topic_with(greatest_partition)
        while not self._has_room(size):
            await self._wait_room(size)
            known = await self._topic_with(greatest_partition)
        self._check_usable()
        # From here on there is no await: a batch is handed over entirely or not at all, even if cancelled.
        before = encoder.size
        try:
            encoder.encode(
                self._spare,
                engine.accumulator.batch_limit(self._topic, row_size),
                known.partition_count,
                time.time_ns() // 1_000_000,
                lambda: engine.accumulator.sticky_partition(known, engine.loop.time()),
            )
        finally:
            self._spare -= encoder.size - before
        self._hand_over(known, encoder.take_full())
        self._outcomes.collect()
        if self._outcomes.error is not None:
            raise self._outcomes.error

    def _hand_over(self, topic: TopicMetadata, batches: Iterable[tuple[int, RecordBatchBuilder, int]]) -> None:
        now = self._engine.loop.time()
        for partition, builder, payload in batches:
            count, size = builder.count, builder.size
            batch = SentBatch(self._engine.accumulator.append_builder(topic, partition, builder, now), count, payload)
            self._outcomes.expect(batch)
            self._pace.expect(batch, size)

    @property
    def _window(self) -> int:
        """The bytes that can be sent to all brokers together before they must answer."""
        config = self._engine.config
        brokers = len(self._engine.client.metadata.nodes)
        return brokers * config.max_in_flight_requests_per_connection * config.max_request_size

    async def _send_rest(self) -> None:
        """Hand over open batches, full or not. Raises if they cannot be sent; nothing is lost silently."""
        if not self._encoder.size:
            return
        known = await self._topic_with(-1)
        self._check_usable()
        self._hand_over(known, self._encoder.take_all())

    def _check_usable(self) -> None:
        if not self._engine.is_usable:
            raise self._engine.refusal()
        if self._still_open is not None:
            self._still_open()

    # -- memory -------------------------------------------------------------------------------------------------------

    def _has_room(self, size: int) -> bool:
        """Whether there are at least ``size`` bytes to encode into, after taking the free ones."""
        missing = size - self._spare
        if missing > 0 and self._engine.pool.try_acquire(missing):
            self._spare = size
        return self._spare >= size

    async def _wait_room(self, size: int) -> None:
        """Wait for ``size`` bytes to encode into.

        A call that waits for memory must not hold memory that only it can free: open batches are sent before the wait. To
        keep batches large, it then requests more.
        """
        await self._send_rest()
        self._give_back_spare()
        self._check_usable()
        await self._in_time(
            self._wait_memory(max(size, self._engine.pool.total // 4)), "there was no room in buffer_memory"
        )

    async def _wait_memory(self, size: int) -> None:
        await self._engine.pool.wait(self._engine.pool.join(size))
        self._spare = size

    def _give_back(self) -> None:
        """Give back the memory of records that were not handed over, and count them as not written."""
        self._spare += self._encoder.size
        self._outcomes.never_sent(sum(builder.count for _, builder, _ in self._encoder.take_all()))
        self._give_back_spare()

    def _give_back_spare(self) -> None:
        spare, self._spare = self._spare, 0
        if spare:
            self._engine.pool.release(spare)

    # -- waiting ------------------------------------------------------------------------------------------------------

    async def _topic_with(self, partition: int) -> TopicMetadata:
        """The topic's metadata, once it has this partition; -1: once there is any."""
        engine = self._engine
        known = engine.client.topic(self._topic)
        if known is not None and partition < known.partition_count:
            return known
        self._check_usable()
        if known is not None:
            self._hand_over(known, self._encoder.take_all())
        self._give_back_spare()
        what = (
            f"the partitions of topic {self._topic!r} were not known"
            if known is None
            else f"topic {self._topic!r} has no partition {partition}, only 0 to {known.partition_count - 1}"
        )
        deadline = engine.loop.time() + self._timeout
        return await self._in_time(
            engine.client.wait_topic(self._topic, None if partition < 0 else partition, deadline), what
        )

    async def _in_time(self, work: Awaitable[_T], waits_for: str) -> _T:
        engine = self._engine
        limit = asyncio.timeout_at(engine.loop.time() + self._timeout)
        try:
            async with limit:
                with engine.interrupting(limit):
                    return await work
        except InvalidRecord:
            raise
        except (PoolClosed, TimeoutError, KafkaError) as error:
            if not engine.is_usable:
                raise engine.refusal() from (error if isinstance(error, KafkaError) else None)
            refused = self._not_accepted(error, waits_for)
            raise refused from refused.__cause__

    def _not_accepted(self, error: BaseException, waits_for: str) -> NotWritten:
        row = f"Row {self._encoder.row} of the table"
        refused: NotWritten
        reason: BaseException | None
        if not isinstance(error, TimeoutError):
            reason = error
            refused = NotWritten(f"{row} was not sent: {error}")
        else:
            engine = self._engine
            if "room" in waits_for:
                engine.metrics.buffer_exhausted_total += 1
                pool = engine.pool
                waits_for += f" ({pool.used} of {pool.total} bytes are in use, {pool.waiting} sender(s) wait)"
            late = f"{row} was not accepted within {self._timeout:g} s, because {waits_for}."
            refused = not_accepted(late, self._topic, engine, self._timeout)
            reason = refused.__cause__
        refused.topic = self._topic
        refused.__cause__ = reason
        return refused


async def _while_usable(engine: Engine, call: Callable[..., Awaitable[_T]], *args: object) -> _T:
    """Wait for the table, or until the engine ends; raises its refusal then."""
    if not engine.is_usable:
        raise engine.refusal()
    limit = asyncio.timeout(None)
    try:
        async with limit:
            with engine.interrupting(limit):
                return await call(*args)
    except TimeoutError:
        if limit.expired():
            raise engine.refusal() from None
        raise


# -- the table -----------------------------------------------------------------------------------------------------------


class _Chunks:
    """The chunks of a table, read in a worker thread, a little ahead of the consumer."""

    def __init__(self, source: TableSource, loop: asyncio.AbstractEventLoop) -> None:
        self._source = source
        self._loop = loop
        self._arrived = asyncio.Event()
        self._lock = threading.Lock()  # guards all fields below: chunks and the reader's end change together
        self._ready: deque[Any] = deque()  # chunks and, after the last one, None or the table's exception
        self._rows_ready = 0
        self._is_reading = False
        self._has_ended = False
        self._is_awaited = False  # avoids needless wake-ups, which take longer than reading a small chunk
        self._read_on()

    @property
    def is_ready(self) -> bool:
        """Whether a chunk is ready for `take`."""
        return bool(self._ready)

    async def wait_ready(self, seconds: float | None) -> bool:
        """Whether the next chunk is ready within this time. Cancellation: the thread reads a little further."""
        if not self._is_missing():
            return True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._is_missing():
                    await self._arrived.wait()
        return bool(self._ready)

    def _is_missing(self) -> bool:
        """Whether there is no chunk yet; then the next one sets the event."""
        with self._lock:
            if self._ready:
                return False
            self._arrived.clear()
            self._is_awaited = True
        self._read_on()
        return True

    def take(self) -> Any:
        """The next chunk, None at the end; only if `is_ready`. Raises the table's exception."""
        with self._lock:
            chunk = self._ready.popleft()
            self._rows_ready -= _rows_of(chunk)
        if isinstance(chunk, BaseException):
            raise chunk
        self._read_on()
        return chunk

    def close(self) -> None:
        """Stop reading, and release the table as soon as no thread reads it."""
        self._source.close()

    def _read_on(self) -> None:
        """Let the thread read, unless it is reading, or has read enough."""
        with self._lock:
            if self._is_reading or self._has_ended or self._rows_ready >= _READ_AHEAD:
                return
            self._is_reading = True
        self._loop.run_in_executor(None, self._read_ahead)

    def _read_ahead(self) -> None:
        goes_on = True
        while goes_on:
            chunk: Any
            try:
                chunk = self._source.read()
            except BaseException as error:  # foreign code (a Rust panic is not an Exception); the next `take` raises it
                chunk = error
            goes_on = self._put(chunk)

    def _put(self, chunk: Any) -> bool:
        """Pass the chunk to the event loop; returns whether to read more now."""
        with self._lock:
            self._ready.append(chunk)
            self._rows_ready += _rows_of(chunk)
            self._has_ended = chunk is None or isinstance(chunk, BaseException)
            goes_on = self._is_reading = not self._has_ended and self._rows_ready < _READ_AHEAD
            is_awaited, self._is_awaited = self._is_awaited, False
        if is_awaited:
            with suppress(RuntimeError):  # the event loop is closed: nothing waits any more
                self._loop.call_soon_threadsafe(self._arrived.set)
        return goes_on


def _rows_of(chunk: Any) -> int:
    """A chunk's weight in the read-ahead: an empty one also takes memory."""
    return max(1, getattr(chunk, "num_rows", 0))


# -- outcomes ------------------------------------------------------------------------------------------------------------


class SentBatch:
    """A batch that was handed over: ``count`` records with ``payload`` bytes of keys and values, and their outcome."""

    __slots__ = ("count", "payload", "result")

    def __init__(self, result: ProduceResult, count: int, payload: int) -> None:
        self.result = result
        self.count = count
        self.payload = payload

    @property
    def is_done(self) -> bool:
        """Whether the outcome of every record is known."""
        if not self.result.is_split:
            return self.result.done
        return all(part.done for part, _ in self.parts())

    def parts(self) -> Iterator[tuple[ProduceResult, int]]:
        """The outcomes of the records, with the number of records each: a single one, unless the batch was split."""
        if not self.result.is_split:
            yield self.result, self.count
            return
        index = 0
        while index < self.count:
            part, _ = self.result.locate(index)
            end = self._end_of(part, index)
            yield part, end - index
            index = end

    def _end_of(self, part: ProduceResult, begin: int) -> int:
        """The first record after this part."""

        def is_behind(index: int) -> bool:
            return self.result.locate(index)[0] is not part

        return bisect_left(range(self.count), True, lo=begin, key=is_behind)

    async def wait(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait until more of the outcome is known. Cancellation: the batch is still sent."""
        for part, _ in self.parts():
            if not part.done:
                waiter: asyncio.Future[None] = loop.create_future()
                part.wait(0, waiter)
                try:
                    await waiter
                finally:
                    part.forget(waiter)
                return


class _Pace:
    """Keeps the encoder from running far ahead of the brokers.

    Records that can only be sent later are better encoded later: until then they take memory, and they leave the processor's
    caches before they are sent. The encoder continues when the batch one window back is done, even if earlier ones are not.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._sent: deque[tuple[SentBatch, int]] = deque()
        self._size = 0

    def expect(self, batch: SentBatch, size: int) -> None:
        """Count a batch of ``size`` bytes."""
        self._sent.append((batch, size))
        self._size += size

    async def wait(self, window: int) -> None:
        """Let the event loop run, and wait while more than ``window`` bytes are in flight.

        It waits only briefly for a slow broker or a partition without a leader, because the others are not affected.
        """
        has_waited = False
        while self._size > window:
            batch, size = self._sent.popleft()
            self._size -= size
            if not batch.is_done:
                has_waited = True
                with suppress(TimeoutError):
                    async with asyncio.timeout(_PATIENCE):
                        await batch.wait(self._loop)
        if not has_waited:
            await asyncio.sleep(0)


class _Outcomes:
    """Counts the outcomes of batches, in the order in which they were handed over."""

    def __init__(self, topic: str, engine: Engine, on_progress: SendTableProgress | None) -> None:
        loop = engine.loop
        self._topic = topic
        self._log = engine.log
        self.result = SendManyResult()
        self.error: DeliveryError | None = None  # the first one
        self._loop = loop
        self._on_progress = on_progress
        self._reported_at = loop.time()
        self._waiting: deque[SentBatch] = deque()
        self._failures: list[tuple[ProduceResult, int]] = []  # and the number of records of each
        self._count = self._failed = self._unknown = self._bytes = 0
        self._offsets: dict[TopicPartition, tuple[int, int]] = {}

    def expect(self, batch: SentBatch) -> None:
        """Add a batch."""
        self._waiting.append(batch)

    def never_sent(self, count: int) -> None:
        """Count ``count`` records that were accepted and not handed over."""
        self._failed += count

    def collect(self) -> None:
        """Count the known outcomes at the head of the queue."""
        waiting = self._waiting
        while waiting and waiting[0].is_done:
            self._count_in(waiting.popleft())
        if self._on_progress is not None and self._loop.time() - self._reported_at >= _PROGRESS_INTERVAL:
            self._report()

    async def wait(self) -> None:
        """Wait for all outcomes. Cancellation: the batches are still sent."""
        while self._waiting:
            await self._waiting[0].wait(self._loop)
            self.collect()
        self._report()

    def abandon(self) -> None:
        """The result is abandoned: failures, also later ones, are reported like those of single records."""
        for part, count in (*self._failures, *(part for batch in self._waiting for part in batch.parts())):
            for index in range(count):
                part.abandon(index)
        self._failures.clear()
        self._waiting.clear()

    def _count_in(self, batch: SentBatch) -> None:
        begin = 0
        for part, count in batch.parts():
            begin, before = begin + count, begin
            if part.failure is not None:
                failure = part.failure
                self._failures.append((part, count))
                self.error = self.error or failure.error_for(min(failure.record_errors, default=0))
                if failure.possibly_written:
                    self._unknown += count
                else:
                    self._failed += count
                continue
            self._count += count
            # Exact, unless only some parts of a split were written.
            self._bytes += batch.payload * begin // batch.count - batch.payload * before // batch.count
            if part.base_offset >= 0:
                last = part.base_offset + count - 1
                lowest, highest = self._offsets.get(part.partition, (part.base_offset, last))
                self._offsets[part.partition] = (min(lowest, part.base_offset), max(highest, last))

    def _report(self) -> None:
        self._reported_at = self._loop.time()
        self.result = SendManyResult(self._count, self._failed, self._unknown, self._bytes, dict(self._offsets))
        if self._on_progress is not None:
            try:
                self._on_progress(self.result)
            except Exception:  # foreign code
                self._log.exception(
                    "on_progress raised for send_table to %r", self._topic, extra={"topic": self._topic}
                )
