"""The same producer for code without an event loop: scripts, threads, executors of other frameworks.

A `SyncProducer` runs a `Producer` in an event loop in a thread of its own (anyio's blocking portal). Every method may be
called from any thread, at the same time; each waits for its result as the async one would.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from os import PathLike
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from anyio.from_thread import BlockingPortal, start_blocking_portal

from aioproducer.arguments import check_timeout
from aioproducer.config import ProducerConfig, ProducerOptions
from aioproducer.delivery import Delivery
from aioproducer.errors import ConfigError, DeliveryError, ForkedProcess, NotStarted, ProducerClosed, ProducerStateError
from aioproducer.producer import Producer
from aioproducer.send_many import SendMany, SendManyProgress, check_values
from aioproducer.types import (
    CloseReport,
    HeadersInput,
    Health,
    PartitionInfo,
    ProducerRecord,
    RecordMetadata,
    SendManyResult,
)

__all__ = ["SyncDelivery", "SyncProducer"]

_T = TypeVar("_T")

#: How many items of `send_many` the caller's thread may have read that the event loop's has not taken.
_READ_AHEAD = 1000


class SyncDelivery:
    """The acknowledgement to come of one record, for threads; see `Delivery`."""

    __slots__ = ("_delivery", "_known")

    def __init__(self, delivery: Delivery, known: concurrent.futures.Future[None]) -> None:
        self._delivery = delivery
        self._known = known  # done when the outcome is; from then on the delivery may be asked in any thread

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._known.done()

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the metadata, at most ``timeout`` seconds; raises the `DeliveryError`, or TimeoutError."""
        self._wait(timeout)
        return self._delivery.result()

    def exception(self, timeout: float | None = None) -> DeliveryError | None:
        """Wait for the outcome and answer the error, None where there is none; see `result`."""
        self._wait(timeout)
        return self._delivery.exception()

    def add_done_callback(self, callback: Callable[[SyncDelivery], object]) -> None:
        """Call ``callback(delivery)`` when the outcome is known, in the producer's thread: it must not block."""
        self._delivery.mark_observed()
        self._known.add_done_callback(lambda _: callback(self))

    def _wait(self, timeout: float | None) -> None:
        seconds = check_timeout(timeout, ConfigError)
        self._known.result(None if seconds is None else min(seconds, threading.TIMEOUT_MAX))


class SyncProducer:
    """Sends records to Kafka from threads.

    ::

        with SyncProducer("localhost:9092") as producer:
            metadata = producer.send("orders", b"value")

    Takes the options of `Producer`, and behaves like it in everything but the waiting. Serializers, interceptors,
    partitioners and callbacks run in the producer's thread.
    """

    def __init__(
        self, bootstrap_servers: str | Sequence[str] | ProducerConfig, **options: Unpack[ProducerOptions]
    ) -> None:
        """Check the options, and start nothing; see `Producer`."""
        self._producer = Producer(bootstrap_servers, **options)
        self._portal: BlockingPortal | None = None
        self._thread: int | None = None  # the portal's
        self._closing = threading.Lock()
        self._exit = ExitStack()
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

    @property
    def config(self) -> ProducerConfig:
        """The options, checked and complete."""
        return self._producer.config

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start the thread and the tasks; waits for no broker."""
        if self._portal is not None:
            raise ProducerStateError("The producer is started.")
        with ExitStack() as exit_:
            portal = exit_.enter_context(start_blocking_portal("asyncio", name="aioproducer"))
            portal.call(self._producer.start)
            self._thread = portal.call(threading.get_ident)
            self._exit = exit_.pop_all()
        self._portal, self._report = portal, None
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def ready(self, timeout: float | None = None) -> None:
        """Wait until a broker is connected and has told the metadata; see `Producer.ready`."""
        self._call(self._producer.ready, timeout)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every record that was accepted before has its outcome; see `Producer.flush`."""

        async def flush() -> None:
            await self._producer.flush(timeout)
            await asyncio.sleep(0)  # so that the deliveries of other threads are told, too

        self._call(flush)

    def close(self, timeout: float | None = None) -> CloseReport:
        """Deliver what was accepted, end everything, and tell what became of it; see `Producer.close`."""
        check_timeout(timeout, ConfigError)  # before the thread is ended, whatever comes of it
        if self._producer.is_forked:  # the thread exists in the parent only; so does everything that is to be closed
            self._portal = None
            return CloseReport()
        self._refuse_own_thread()
        with self._closing:
            portal = self._portal
            if portal is None:
                return self._report or CloseReport()
            try:
                self._report = portal.call(self._producer.close, timeout)
            finally:
                self._portal = None
                self._exit.close()
            return self._report

    # -- records ------------------------------------------------------------------------------------------------------

    def send(
        self,
        topic: str | ProducerRecord,
        value: object = None,
        *,
        key: object = None,
        headers: HeadersInput | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        timeout: float | None = None,
    ) -> RecordMetadata:
        """Send one record and wait for its acknowledgement; see `Producer.send`."""
        send = partial(
            self._producer.send,
            key=key,
            headers=headers,
            partition=partition,
            timestamp_ms=timestamp_ms,
            timeout=timeout,
        )
        return self._call(send, topic, value)

    def enqueue(
        self,
        topic: str | ProducerRecord,
        value: object = None,
        *,
        key: object = None,
        headers: HeadersInput | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        timeout: float | None = None,
    ) -> SyncDelivery:
        """Put one record into the buffer and go on; waits only for metadata and room. See `Producer.enqueue`."""
        enqueue = partial(
            self._producer.enqueue,
            key=key,
            headers=headers,
            partition=partition,
            timestamp_ms=timestamp_ms,
            timeout=timeout,
        )
        known: concurrent.futures.Future[None] = concurrent.futures.Future()

        async def accept() -> Delivery:
            delivery = await enqueue(topic, value)
            delivery.watch(lambda _: known.set_result(None))
            return delivery

        return SyncDelivery(self._call(accept), known)

    def send_many(
        self,
        topic: str,
        values: Iterable[object],
        *,
        key: Callable[[Any], object] | None = None,
        headers: HeadersInput | None = None,
        partition: int | None = None,
        on_progress: SendManyProgress | None = None,
        timeout: float | None = None,
    ) -> SendManyResult:
        """Send everything that ``values`` yields, in order and in bounded memory; see `Producer.send_many`.

        ``values`` is read in the calling thread, so it may block; what it has yielded does not wait for what it has not.
        ``key`` and ``on_progress`` run in the producer's thread.
        """
        check_values(values)
        bulk = SendMany(
            self._producer.enqueue,
            topic,
            time.monotonic,
            key=key,
            headers=headers,
            partition=partition,
            on_progress=on_progress,
            timeout=timeout,
        )
        feed = _Feed(self._running(), bulk.add)
        try:
            for item in values:
                if not feed.put(item):
                    break
            feed.wait()
        except Exception:
            with suppress(Exception):  # of a record that failed, or a key: the first trouble is the one to tell
                feed.wait()
            self._call(bulk.wait)
            raise
        return self._call(bulk.finish)

    def partitions_for(self, topic: str, timeout: float | None = None) -> tuple[PartitionInfo, ...]:
        """The partitions of a topic; see `Producer.partitions_for`."""
        return self._call(self._producer.partitions_for, topic, timeout)

    def metrics(self, topic: str | None = None) -> Mapping[str, float]:
        """The numbers of the producer; see `Producer.metrics`."""
        return self._look(partial(self._producer.metrics, topic))

    def health(self) -> Health:
        """The producer's state; see `Producer.health`."""
        return self._look(self._producer.health)

    def _look(self, function: Callable[[], _T]) -> _T:
        """Ask in the producer's thread, which alone may read what it changes all the time."""
        portal = self._portal
        if portal is None or self._producer.is_forked or threading.get_ident() == self._thread:
            return function()
        return portal.call(function)

    def _refuse_own_thread(self) -> None:
        if self._portal is not None and threading.get_ident() == self._thread:
            raise ProducerStateError(
                "This runs in the producer's own thread, as callbacks, serializers and interceptors do: it would wait for "
                "itself."
            )

    def _call(self, function: Callable[..., Awaitable[_T]], *args: Any) -> _T:
        return self._running().call(function, *args)

    def _running(self) -> BlockingPortal:
        portal = self._portal
        if portal is None:
            raise (
                NotStarted("The producer is not started: use it within `with producer:`, or call start().")
                if self._report is None
                else ProducerClosed("The producer is closed. Enter it again, or make another one.")
            )
        if self._producer.is_forked:
            raise ForkedProcess(
                "The producer was started in another process, of which this one is a fork. Make one in each process."
            )
        self._refuse_own_thread()
        return portal


class _Feed:
    """Items on their way from the thread that reads them to the event loop, which takes what is there whenever it can.

    So nothing that was read waits for what comes behind it, however long that takes.
    """

    def __init__(self, portal: BlockingPortal, take: Callable[[list[object]], Awaitable[bool]]) -> None:
        self._portal = portal
        self._take = take
        self._items: list[object] = []
        self._lock = threading.Lock()  # of the items, and of who is taking them
        self._taking: concurrent.futures.Future[bool] | None = None
        self._is_idle = True

    def put(self, item: object) -> bool:
        """Hand an item over, and wait where too many were not taken; answers whether more may come."""
        with self._lock:
            self._items.append(item)
            was_idle, self._is_idle = self._is_idle, False
        if was_idle:
            self._taking = self._portal.start_task_soon(self._take_all)
        if len(self._items) >= _READ_AHEAD or (self._taking is not None and self._taking.done()):
            return self.wait()
        return True

    def wait(self) -> bool:
        """Wait until everything was taken; answers whether more may come. Raises what the taker raised."""
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
