"""The fast path of a record into an open batch, in plain Python: the reference for the native twin.

Most records need no decision and no wait: their topic is known, their partition has an open batch with room, memory is
free, and no one else is waiting for it. `Appender.append` appends such a record, and returns None for every other one, which
then takes the slow path (``Intake``, ``RecordAccumulator``). The slow path stores its decisions (the open batch, the sticky
partition of records without a key) in the topic's `Lane` for later records.
"""

# pyright: reportPrivateUsage=false
# A Delivery's attributes are set here: calling its class would double the cost of creating it.

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, cast

from aioproducer.arguments import is_timeout
from aioproducer.record import RecordBatchBuilder, partition_for_key, record_size_upper_bound
from aioproducer.serializers import normalize_headers
from aioproducer.types import K, V

from ._delivery import Delivery, Outcome

if TYPE_CHECKING:
    from aioproducer.types import Header, HeadersInput, ProducerRecord, RecordMetadata

__all__ = ["RECORD_COST", "Appender", "Budget", "FastPath", "Lane", "OpenBatch", "StickyPartition", "count_fork"]

#: The cost of appending a record, expressed in bytes.
RECORD_COST: Final = 192

_forks = 0
_DETACHED: Final = -1

#: The maximum overhead of a record besides key, value and headers.
_BOUND: Final = record_size_upper_bound(None, None)
_new: Final = object.__new__
_get_running_loop: Final = asyncio._get_running_loop


def count_fork() -> None:
    """Disable all existing appenders: this process is a fork of theirs."""
    global _forks
    _forks += 1


class Budget:
    """The free bytes, and whether a new caller may take some."""

    __slots__ = ("free", "line")

    #: Free bytes; negative for a moment after a batch is split.
    free: int
    #: Callers with precedence over a new one: those that wait, and those that were granted bytes but have not run yet.
    line: int

    def __init__(self, free: int) -> None:
        self.free = free
        self.line = 0


class OpenBatch:
    """The records of an open batch, and their shared outcome."""

    __slots__ = ("_count", "builder", "limit", "result")

    #: None once the bytes are taken or discarded.
    builder: RecordBatchBuilder | None
    #: The size up to which the batch is filled, in bytes; 0 once it is closed.
    limit: int

    def __init__(self, result: Outcome, limit: int) -> None:
        self.builder = RecordBatchBuilder(limit)
        self.result = result
        self.limit = limit
        self._count = 0

    @property
    def count(self) -> int:
        """The number of records."""
        builder = self.builder
        return self._count if builder is None else builder.count

    def has_room(self, size: int) -> bool:
        """Whether a record of at most this size fits; the first one always does."""
        builder = self.builder
        return builder is not None and (not builder.count or builder.size + size <= self.limit)

    @property
    def is_full(self) -> bool:
        """Whether no further record is expected to fit."""
        builder = self.builder
        return builder is None or builder.size >= self.limit

    def drop_builder(self) -> None:
        """Drop the builder after its bytes are taken or discarded; the number of records is kept."""
        self._count = self.count
        self.builder = None
        self.limit = 0

    def append(
        self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Sequence[Header]
    ) -> tuple[int, Delivery]:
        """Append a record; returns its size in bytes, and its handle."""
        builder = self.builder
        assert builder is not None
        used = builder.append(timestamp_ms, key, value, headers)
        delivery = Delivery(
            self.result,
            builder.count - 1,
            timestamp_ms,
            -1 if key is None else len(key),
            -1 if value is None else len(value),
        )
        return used, delivery


class StickyPartition:
    """The current partition of records without a key, and how much of its turn is used up (KIP-794)."""

    __slots__ = ("bytes", "partition", "ratio", "turn")

    #: -1 if another one must be chosen.
    partition: int
    #: Bytes appended in this turn, as estimated after compression.
    bytes: float
    #: The estimated compression ratio.
    ratio: float
    #: The length of the turn in bytes; -1: no partition was chosen yet.
    turn: int

    def __init__(self, turn: int) -> None:
        self.partition = -1
        self.bytes = 0.0
        self.ratio = 1.0
        self.turn = max(1, turn)

    def appended(self, size: int, batch_is_full: bool) -> bool:
        """Count the bytes of an appended record; returns whether the next one should go to another partition.

        Switching waits until the batch is full, so that no half-filled one remains, but not forever.
        """
        self.bytes += size * self.ratio
        return self.bytes >= self.turn and (batch_is_full or self.bytes >= 2 * self.turn)


class Lane:
    """The decisions for the records of one topic: each partition's open batch, and the sticky partition.

    ``open`` holds the last batch of each partition's queue, or None; a closed one accepts nothing, so it may stay. A lane
    that was replaced by another one has no partitions.
    """

    __slots__ = ("open", "partition_count", "sticky")

    def __init__(self, partition_count: int, sticky: StickyPartition) -> None:
        self.partition_count = partition_count
        self.open: list[OpenBatch | None] = [None] * partition_count
        self.sticky = sticky


_NOWHERE: Final = Lane(0, StickyPartition(1))


class Appender:
    """Appends records to open batches as long as no decision is needed.

    It works between `attach` and `detach`, in the event loop and process of `attach`. ``send``, ``enqueue`` and
    ``enqueue_nowait`` are the slow paths, with the arguments of the `FastPath`, all positional.
    """

    __slots__ = (
        "_begin",
        "_budget",
        "_forks",
        "_keys_choose",
        "_lane",
        "_lanes",
        "_loop",
        "_max_burst",
        "_max_size",
        "_ready",
        "_topic",
        "_undo",
        "burst",
        "enqueue",
        "enqueue_nowait",
        "send",
    )

    #: Bytes appended since the caller last had to yield to the event loop.
    burst: int

    def __init__(
        self,
        send: Callable[..., Coroutine[Any, Any, RecordMetadata]],
        enqueue: Callable[..., Coroutine[Any, Any, Delivery]],
        enqueue_nowait: Callable[..., Delivery],
        max_burst: int,
    ) -> None:
        self.burst = 0
        self.send = send
        self.enqueue = enqueue
        self.enqueue_nowait = enqueue_nowait
        self._max_burst = max_burst
        self._forks = _DETACHED
        self._loop: asyncio.AbstractEventLoop | None = None
        self._budget = Budget(0)
        self._lanes: dict[str, Lane] = {}
        self._topic: str | None = None  # of the previous record: mostly the next record has the same object
        self._lane = _NOWHERE  # that topic's

    def attach(
        self,
        loop: asyncio.AbstractEventLoop,
        budget: Budget,
        lanes: dict[str, Lane],
        ready: Callable[[OpenBatch], object],
        begin: Callable[[str, Lane, int, int], OpenBatch | None],
        undo: Callable[[Any], object],
        *,
        max_size: int,
        keys_choose: bool | None,
    ) -> None:
        """Start to accept records.

        ``ready(batch)`` is called for a batch with its first record, or one that has become full. ``begin(topic, lane,
        partition, size)`` returns a batch with room for a record, perhaps a new one, or None if the slow path must decide;
        partition -1: the next sticky one. ``undo(batch)`` removes a batch that stayed empty. ``max_size`` is the largest
        record in bytes. ``keys_choose``: whether keys choose the partition by murmur2; None if neither this nor the sticky
        choice is made here.
        """
        self.detach()
        self.burst = 0
        self._loop = loop
        self._forks = _forks
        self._budget = budget
        self._lanes = lanes
        self._ready = ready
        self._begin = begin
        self._undo = undo
        self._max_size = max_size
        self._keys_choose = keys_choose

    def detach(self) -> None:
        """Stop accepting records."""
        self._forks = _DETACHED
        self._loop = self._topic = None
        self._lane = _NOWHERE

    def append(
        self,
        topic: Any,
        value: object,
        key: object,
        headers: Any,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Delivery | None:
        """Append the record, or return None if it must take the slow path; then nothing is changed or raised."""
        # One function, because a call costs a tenth of the total; rare cases are elsewhere.
        plain_headers: Sequence[Header] = ()
        if headers is not None:
            read = _plain_headers(headers)  # first, because it may run code of the caller
            if read is None:
                return None
            plain_headers = read
        budget = self._budget
        if self._forks != _forks or self.burst >= self._max_burst or budget.line:
            return None
        lane = self._lane
        partition_count = lane.partition_count
        if topic is not self._topic or partition_count <= 0:
            found = self._find_lane(topic)
            if found is None:
                return None
            lane, partition_count = found, found.partition_count
        if _get_running_loop() is not self._loop:
            return None

        size = _BOUND
        value_size = key_size = -1
        if value is not None:
            if type(value) is not bytes:
                if type(value) is not str or not value.isascii():
                    return None
                value = value.encode()
            value_size = len(value)
            size += value_size
        if key is not None:
            if type(key) is not bytes:
                if type(key) is not str or not key.isascii():
                    return None
                key = key.encode()
            key_size = len(key)
            size += key_size
        if plain_headers:
            size += record_size_upper_bound(None, None, plain_headers) - _BOUND

        sticky: StickyPartition | None = None
        if partition is None:
            if key is not None and self._keys_choose:
                partition = partition_for_key(key, partition_count)
            elif self._keys_choose is not None:
                sticky = lane.sticky
                partition = sticky.partition
            else:
                return None
        elif type(partition) is not int or partition < 0:
            return None
        if partition >= partition_count or size > budget.free or size > self._max_size:
            return None
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        elif type(timestamp_ms) is not int or not 0 <= timestamp_ms < 1 << 63:
            return None

        batch = lane.open[partition] if partition >= 0 else None
        builder = None if batch is None else batch.builder
        if batch is None or builder is None or not (index := builder.count) or builder.size + size > batch.limit:
            batch = self._begin(topic, lane, partition if sticky is None else -1, size)
            builder = None if batch is None else batch.builder
            if batch is None or builder is None:
                return None
            index = builder.count
        try:
            used = builder.append(timestamp_ms, key, value, plain_headers)
        except BaseException:
            if not index:
                self._undo(batch)
            raise
        delivery = _new(Delivery)  # inlined Delivery.__init__
        delivery._result = result = batch.result
        result.held += 1
        delivery._index = index
        delivery._timestamp_ms = timestamp_ms
        delivery._key_size = key_size
        delivery._value_size = value_size
        delivery._observed = False
        delivery._error = None
        budget.free -= used
        self.burst += used + RECORD_COST
        is_full = builder.size >= batch.limit
        if sticky is not None:  # inlined StickyPartition.appended
            sticky.bytes = so_far = sticky.bytes + used * sticky.ratio
            if so_far >= sticky.turn and (is_full or so_far >= 2 * sticky.turn):
                sticky.partition = -1
        if is_full or not index:
            self._ready(batch)
        return delivery

    def append_run(
        self, topic: str, values: list[Any] | tuple[Any, ...], at: int, headers: Any, partition: int | None
    ) -> tuple[int, Outcome, int, int] | None:
        """Append as many values without keys as possible from a list or tuple, from ``values[at]`` on, to one batch.

        Returns the number of records, their shared outcome, the index of the first, and the bytes of their values; or None
        if the first one must take the slow path.
        """
        if type(values) is not list and type(values) is not tuple:  # no code of the caller may run in between
            return None
        plain_headers = _plain_headers(headers)
        lane = self._lane_of(topic)
        if lane is None or plain_headers is None:
            return None
        sticky: StickyPartition | None = None
        if partition is None:
            if self._keys_choose is None:
                return None
            sticky = lane.sticky
            partition = sticky.partition
        elif type(partition) is not int or not 0 <= partition < lane.partition_count:
            return None
        if partition >= lane.partition_count:
            return None
        budget = self._budget
        around = record_size_upper_bound(None, None, plain_headers)
        batch: OpenBatch | None = None
        builder: RecordBatchBuilder | None = None
        began, first, content = at, 0, 0
        is_full = False
        timestamp_ms = time.time_ns() // 1_000_000
        goes_on = True
        while goes_on and at < len(values) and self.burst < self._max_burst:
            value = _plain_bytes(values[at])
            if value is _NOT_PLAIN:
                break
            length = len(value) if value is not None else 0
            size = around + length
            if size > budget.free or size > self._max_size:
                break
            if batch is None or builder is None:
                batch = self._find_room(topic, lane, partition, sticky, size)
                if batch is None or (builder := batch.builder) is None:
                    break
                first = builder.count
            elif builder.size + size > batch.limit:
                break
            try:
                used = builder.append(timestamp_ms, None, value, plain_headers)
            except BaseException:
                if not builder.count:
                    self._undo(batch)
                raise
            at += 1
            content += length
            budget.free -= used
            self.burst += used + RECORD_COST // 2
            is_full = builder.size >= batch.limit
            if sticky is not None and sticky.appended(used, is_full):
                sticky.partition = -1
                goes_on = False
            goes_on = goes_on and not is_full
        if batch is None or at == began:
            return None
        if is_full or not first:
            self._ready(batch)
        return at - began, batch.result, first, content

    def _lane_of(self, topic: Any) -> Lane | None:
        """The lane of the topic, or None if nothing may be appended now."""
        if self._forks != _forks or self.burst >= self._max_burst or self._budget.line:
            return None
        return self._find_lane(topic) if _get_running_loop() is self._loop else None

    def _find_lane(self, topic: Any) -> Lane | None:
        lane = self._lanes.get(topic) if type(topic) is str else None
        if lane is None or lane.partition_count <= 0:
            return None
        self._topic, self._lane = topic, lane
        return lane

    def _find_room(
        self, topic: str, lane: Lane, partition: int, sticky: StickyPartition | None, size: int
    ) -> OpenBatch | None:
        """The open batch of the partition (-1: of the next sticky one), or a new one, or None."""
        batch = lane.open[partition] if partition >= 0 else None
        if batch is None or not batch.count or not batch.has_room(size):
            batch = self._begin(topic, lane, partition if sticky is None else -1, size)
        return batch


_NOT_PLAIN: Final[Any] = object()


def _plain_bytes(content: object) -> Any:
    """The bytes of a key or a value, None for none, or `_NOT_PLAIN` if the slow path must handle it."""
    if content is None or type(content) is bytes:
        return content
    return content.encode() if type(content) is str and content.isascii() else _NOT_PLAIN


def _plain_headers(headers: Any) -> Sequence[Header] | None:
    """The headers in the encoder's form, or None if the slow path must handle them."""
    if headers is None:
        return ()
    if not isinstance(headers, (dict, tuple, list)):
        return None
    try:
        if not headers:
            return ()
        plain = normalize_headers(cast("object", headers))
        for name, _ in plain:
            name.encode()  # a lone surrogate raises here
    except Exception:  # the slow path raises the proper error
        return None
    return plain


class FastPath(Generic[K, V]):
    """The producer methods that mostly append to an open batch."""

    #: The fast path itself; not for users.
    appender: Appender

    async def send(
        self,
        topic: str | ProducerRecord,
        value: V | None = None,
        *,
        key: K | None = None,
        headers: HeadersInput | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: Callable[[Delivery], object] | None = None,
        timeout: float | None = None,
    ) -> RecordMetadata:
        """Send one record and wait for its acknowledgement; returns its metadata, with partition and offset.

        ``topic`` may be a whole `ProducerRecord`; the other record arguments are then omitted. ``timestamp_ms`` is in
        milliseconds since 1970 (None: now). ``timeout``, in seconds, limits the whole call; without it, ``max_block_ms``
        limits the wait for metadata and room, and ``delivery_timeout_ms`` the delivery. A record that is older than
        ``producer_id_expiration_ms`` (a day) is not retried once it may be in the log, except in a transaction.

        Raises `InvalidRecord` for a record that can never be sent, `NotWritten` or `Unknown` for one that was not
        acknowledged. If the `timeout` ends while the record is in flight (`UnknownTimeout`), it is still being sent, and a
        failure goes to ``on_delivery_error``.

        Cancellation: while it waits for metadata or room, nothing is buffered. Later the record is delivered anyway; its
        outcome goes to ``on_delivery``, or an unobserved failure to ``on_delivery_error``.
        """
        if timeout is not None:
            return await self.appender.send(topic, value, key, headers, partition, timestamp_ms, on_delivery, timeout)
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

    async def enqueue(
        self,
        topic: str | ProducerRecord,
        value: V | None = None,
        *,
        key: K | None = None,
        headers: HeadersInput | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: Callable[[Delivery], object] | None = None,
        timeout: float | None = None,
    ) -> Delivery:
        """Put one record into the buffer; the returned `Delivery` can be awaited for its acknowledgement.

        Waits only if necessary: for the topic's metadata, and for room in ``buffer_memory`` (first come, first served).
        ``timeout`` is in seconds; None means ``max_block_ms``. ``on_delivery(delivery)`` is called with the outcome.

        Raises `InvalidRecord` for a record that can never be sent, and `NotWrittenTimeout` on timeout.

        Cancellation: while it waits, nothing is buffered. It has no effect once the record is buffered.
        """
        appender = self.appender
        if (on_delivery is None or callable(on_delivery)) and (timeout is None or is_timeout(timeout)):
            delivery = appender.append(topic, value, key, headers, partition, timestamp_ms)
            if delivery is not None:
                if on_delivery is not None:
                    delivery.add_done_callback(on_delivery)
                return delivery
        return await appender.enqueue(topic, value, key, headers, partition, timestamp_ms, on_delivery, timeout)

    def enqueue_nowait(
        self,
        topic: str | ProducerRecord,
        value: V | None = None,
        *,
        key: K | None = None,
        headers: HeadersInput | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: Callable[[Delivery], object] | None = None,
    ) -> Delivery:
        """Put one record into the buffer now, or raise: for callers that cannot wait.

        Raises `BufferFull` if there is no room or others wait for it, `MetadataNotReady` while the topic's partitions are
        not known (they are requested), and `InvalidRecord` for a record that can never be sent, or not without waiting (an
        async serializer or interceptor).
        """
        appender = self.appender
        if on_delivery is None or callable(on_delivery):
            delivery = appender.append(topic, value, key, headers, partition, timestamp_ms)
            if delivery is not None:
                if on_delivery is not None:
                    delivery.add_done_callback(on_delivery)
                return delivery
        return appender.enqueue_nowait(topic, value, key, headers, partition, timestamp_ms, on_delivery)


for _method in (FastPath.send, FastPath.enqueue):
    _method.__qualname__ = f"Producer.{_method.__name__}"  # the name that warnings show
