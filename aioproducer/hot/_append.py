"""The fast path of a record into an open batch, in plain Python: what it does is right by definition for the native twin.

Most records need no decision and no wait: their topic is known, their partition has an open batch with room, memory is
free, and nobody stands in line for it. `Appender.append` puts such a record in, and returns None for every other one, which
then takes the slow path (``Intake``, ``RecordAccumulator``). The slow path decides; what it decided - which batch is open,
which partition the records without a key stick to - it leaves in the `Lane` of the topic for those that follow.
"""

# pyright: reportPrivateUsage=false
# A Delivery is filled in here: a call of its class would cost twice as much as the rest of making it.

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from aioproducer.arguments import is_timeout
from aioproducer.record import RecordBatchBuilder, partition_for_key, record_size_upper_bound
from aioproducer.serializers import normalize_headers

from ._delivery import Delivery, Outcome

if TYPE_CHECKING:
    from aioproducer.types import Header, HeadersInput, ProducerRecord, RecordMetadata

__all__ = ["RECORD_COST", "Appender", "Budget", "FastPath", "Lane", "OpenBatch", "StickyPartition", "count_fork"]

#: Appending takes its time, too: for each record as much as so many bytes.
RECORD_COST: Final = 192

_forks = 0
_DETACHED: Final = -1

#: What a record takes at most next to its key, value and headers.
_BOUND: Final = record_size_upper_bound(None, None)
_new: Final = object.__new__
_get_running_loop: Final = asyncio._get_running_loop


def count_fork() -> None:
    """Refuse every appender of before: this process is a copy of the one that they work in."""
    global _forks
    _forks += 1


class Budget:
    """The bytes that are free, and whether a newcomer may take of them."""

    __slots__ = ("free", "line")

    #: Bytes that nobody has; below zero for a moment where a batch was split.
    free: int
    #: How many come before a newcomer: those who wait, and those who were granted bytes and have not run yet.
    line: int

    def __init__(self, free: int) -> None:
        self.free = free
        self.line = 0


class OpenBatch:
    """The records of a batch while it takes more, and the outcome that they share."""

    __slots__ = ("_count", "builder", "limit", "result")

    #: None once the bytes are fixed, or gone.
    builder: RecordBatchBuilder | None
    #: Up to which size the batch is filled, in bytes; 0 once it is closed.
    limit: int

    def __init__(self, result: Outcome, limit: int) -> None:
        self.builder = RecordBatchBuilder(limit)
        self.result = result
        self.limit = limit
        self._count = 0

    @property
    def count(self) -> int:
        """How many records are in it."""
        builder = self.builder
        return self._count if builder is None else builder.count

    def has_room(self, size: int) -> bool:
        """Whether a record of at most this size may join; the first one may, whatever its size."""
        builder = self.builder
        return builder is not None and (not builder.count or builder.size + size <= self.limit)

    @property
    def is_full(self) -> bool:
        """Whether no record is expected to fit any more."""
        builder = self.builder
        return builder is None or builder.size >= self.limit

    def drop_builder(self) -> None:
        """The bytes are fixed, or gone; the number of records stays."""
        self._count = self.count
        self.builder = None
        self.limit = 0

    def append(
        self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Sequence[Header]
    ) -> tuple[int, Delivery]:
        """Add a record; returns how many bytes it took, and its handle."""
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
    """The partition that records without a key go to now, and how much of its turn is over (KIP-794)."""

    __slots__ = ("bytes", "partition", "ratio", "turn")

    #: -1 where another one is to be chosen.
    partition: int
    #: What was appended in this turn, in bytes as they are expected to be after compression.
    bytes: float
    #: The compression ratio that is expected.
    ratio: float
    #: After how many bytes the turn is over; -1: the partition was never chosen.
    turn: int

    def __init__(self, turn: int) -> None:
        self.partition = -1
        self.bytes = 0.0
        self.ratio = 1.0
        self.turn = max(1, turn)

    def appended(self, size: int, batch_is_full: bool) -> bool:
        """Note the bytes of an appended record; returns whether the next one should go elsewhere.

        Switching waits until the batch is full, so that it does not leave a half-filled one behind, but not for ever.
        """
        self.bytes += size * self.ratio
        return self.bytes >= self.turn and (batch_is_full or self.bytes >= 2 * self.turn)


class Lane:
    """What is decided for the records of one topic: the open batch of each partition, and where those without a key go.

    ``open`` holds the last batch of each partition's queue, or None; a closed one takes nothing, so it may stay. A lane
    that another one took the place of has no partitions.
    """

    __slots__ = ("open", "partition_count", "sticky")

    def __init__(self, partition_count: int, sticky: StickyPartition) -> None:
        self.partition_count = partition_count
        self.open: list[OpenBatch | None] = [None] * partition_count
        self.sticky = sticky


_NOWHERE: Final = Lane(0, StickyPartition(1))


class Appender:
    """Puts records into open batches as long as there is nothing to decide.

    It works between `attach` and `detach`, in the event loop and the process of the former. ``send``, ``enqueue`` and
    ``enqueue_nowait`` are the slow paths, with the arguments of the `FastPath`, all of them by position.
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

    #: Bytes appended since the caller was last asked to let the event loop run.
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
        self._topic: str | None = None  # of the record before: most often the next one's is the very same object
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
        """Begin to take records.

        ``ready(batch)`` is called for a batch that has its first record now, or has become full. ``begin(topic, lane,
        partition, size)`` returns a batch with room for a record, perhaps a new one, or None where that is to be decided on
        the slow path; partition -1: the next one to stick to. ``undo(batch)`` takes a batch back that stayed empty.
        ``max_size`` is the largest record in bytes. ``keys_choose``: whether a key chooses the partition by murmur2; None
        where neither this nor the sticky choice is to be made here.
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
        """Take no more."""
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
        """Put the record in, or return None where it must take the slow path; nothing was done then, and nothing raised."""
        # All in one, as a call costs a tenth of the whole; what is rare is elsewhere.
        plain_headers: Sequence[Header] = ()
        if headers is not None:
            read = _plain_headers(headers)  # first, as it may run code of the caller's
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
        delivery = _new(Delivery)  # what Delivery.__init__ does
        delivery._result = batch.result
        delivery._index = index
        delivery._timestamp_ms = timestamp_ms
        delivery._key_size = key_size
        delivery._value_size = value_size
        delivery._observed = False
        delivery._error = None
        budget.free -= used
        self.burst += used + RECORD_COST
        is_full = builder.size >= batch.limit
        if sticky is not None:  # what StickyPartition.appended does
            sticky.bytes = so_far = sticky.bytes + used * sticky.ratio
            if so_far >= sticky.turn and (is_full or so_far >= 2 * sticky.turn):
                sticky.partition = -1
        if is_full or not index:
            self._ready(batch)
        return delivery

    def append_run(
        self, topic: str, values: list[Any] | tuple[Any, ...], at: int, headers: Any, partition: int | None
    ) -> tuple[int, Outcome, int, int] | None:
        """Put in what can be of a list or tuple of values without keys, from ``values[at]`` on, into one batch.

        Answers how many records that were, the outcome that they share, as which ones, and the bytes of their values; or
        None, where the first one must take the slow path.
        """
        if type(values) is not list and type(values) is not tuple:  # nothing of the caller's may run in between
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
        """The lane of the topic, or None where nothing may be appended now."""
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
        """The open batch of the partition (-1: of the one to stick to next), or a new one, or None."""
        batch = lane.open[partition] if partition >= 0 else None
        if batch is None or not batch.count or not batch.has_room(size):
            batch = self._begin(topic, lane, partition if sticky is None else -1, size)
        return batch


_NOT_PLAIN: Final[Any] = object()


def _plain_bytes(content: object) -> Any:
    """The bytes of a key or a value, None for none, or `_NOT_PLAIN` where the slow path must look at it."""
    if content is None or type(content) is bytes:
        return content
    return content.encode() if type(content) is str and content.isascii() else _NOT_PLAIN


def _plain_headers(headers: Any) -> Sequence[Header] | None:
    """The headers as the encoder takes them, or None where the slow path must look at them."""
    if headers is None:
        return ()
    if not isinstance(headers, (dict, tuple, list)):
        return None
    try:
        if not headers:
            return ()
        plain = normalize_headers(cast("object", headers))
        for name, _ in plain:
            name.encode()  # a lone surrogate would not do
    except Exception:  # the slow path says what is wrong
        return None
    return plain


class FastPath:
    """The calls of a producer that mostly end in an open batch."""

    #: The fast path itself; not for users.
    appender: Appender

    async def send(
        self,
        topic: str | ProducerRecord,
        value: object = None,
        *,
        key: object = None,
        headers: HeadersInput | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: Callable[[Delivery], object] | None = None,
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
        value: object = None,
        *,
        key: object = None,
        headers: HeadersInput | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: Callable[[Delivery], object] | None = None,
        timeout: float | None = None,
    ) -> Delivery:
        """Put one record into the buffer and go on; the `Delivery` can be awaited for its acknowledgement.

        Waits only where it must: for the topic's metadata, and for room in ``buffer_memory`` - first come, first served.
        ``timeout`` is in seconds; None means ``max_block_ms``. ``on_delivery(delivery)`` is called with the outcome.

        Raises `InvalidRecord` for what can never be sent, and `NotWrittenTimeout` when time runs out.

        Cancellation: while it waits, nothing was buffered. It never takes effect after the record was buffered.
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
        value: object = None,
        *,
        key: object = None,
        headers: HeadersInput | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: Callable[[Delivery], object] | None = None,
    ) -> Delivery:
        """Put one record into the buffer now, or raise: for callers that cannot wait.

        Raises `BufferFull` where there is no room or others wait for it, `MetadataNotReady` while the topic's partitions
        are not known (they are asked for), and `InvalidRecord` for what can never be sent, or not without waiting: an
        async serializer or interceptor.
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
    _method.__qualname__ = f"Producer.{_method.__name__}"  # as which it is known to who reads a warning
