"""The same producer for code without an event loop: scripts, threads, executors of other frameworks.

A `SyncProducer` runs a `Producer` in an event loop in a thread of its own (anyio's blocking portal). Every method may be
called from any thread, at the same time; each waits for its result as the async one would.
"""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import islice
from os import PathLike
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from anyio.from_thread import BlockingPortal, start_blocking_portal

from aioproducer.config import ProducerConfig, ProducerOptions
from aioproducer.delivery import Delivery
from aioproducer.errors import ForkedProcess, NotStarted, ProducerClosed, ProducerStateError
from aioproducer.producer import Producer
from aioproducer.send_many import SendMany, SendManyProgress
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

#: How many items of `send_many` are read in the caller's thread before they are handed to the event loop's.
_CHUNK = 1000


class SyncDelivery:
    """The acknowledgement to come of one record, for threads; see `Delivery`."""

    __slots__ = ("_future",)

    def __init__(self, future: concurrent.futures.Future[RecordMetadata]) -> None:
        self._future = future

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._future.done()

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the metadata, at most ``timeout`` seconds; raises the `DeliveryError`, or TimeoutError."""
        return self._future.result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the outcome and answer the error, None where there is none."""
        return self._future.exception(timeout)

    def add_done_callback(self, callback: Callable[[SyncDelivery], object]) -> None:
        """Call ``callback(delivery)`` when the outcome is known, in the producer's thread: it must not block."""
        self._future.add_done_callback(lambda _: callback(self))


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
        self._exit = ExitStack()
        self._portal = self._exit.enter_context(start_blocking_portal("asyncio", name="aioproducer"))
        self._report = None
        self._portal.call(self._producer.start)
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
        self._call(self._producer.flush, timeout)

    def close(self, timeout: float | None = None) -> CloseReport:
        """Deliver what was accepted, end everything, and tell what became of it; see `Producer.close`."""
        portal, self._portal = self._portal, None
        if portal is None:
            return self._report or CloseReport()
        if self._producer.is_forked:  # the thread exists in the parent only; so does everything that is to be closed
            return CloseReport()
        try:
            self._report = portal.call(self._producer.close, timeout)
        finally:
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
        future: concurrent.futures.Future[RecordMetadata] = concurrent.futures.Future()

        async def accept() -> None:
            delivery = await enqueue(topic, value)
            delivery.add_done_callback(partial(_settle, future))

        self._call(accept)
        return SyncDelivery(future)

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

        ``values`` is read in the calling thread, so it may block. ``key`` and ``on_progress`` run in the producer's.
        """
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
        items = iter(values)
        more = True
        while more:
            try:
                chunk = list(islice(items, _CHUNK))
            except Exception:
                self._call(bulk.wait)
                raise
            more = bool(chunk) and self._call(bulk.add, chunk)
        return self._call(bulk.finish)

    def partitions_for(self, topic: str, timeout: float | None = None) -> tuple[PartitionInfo, ...]:
        """The partitions of a topic; see `Producer.partitions_for`."""
        return self._call(self._producer.partitions_for, topic, timeout)

    def metrics(self, topic: str | None = None) -> Mapping[str, float]:
        """The numbers of the producer; see `Producer.metrics`."""
        return self._producer.metrics(topic)

    def health(self) -> Health:
        """The producer's state; see `Producer.health`."""
        return self._producer.health()

    def _call(self, function: Callable[..., Awaitable[_T]], *args: Any) -> _T:
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
        return portal.call(function, *args)


def _settle(future: concurrent.futures.Future[RecordMetadata], delivery: Delivery) -> None:
    error = delivery.exception()
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(delivery.result())
