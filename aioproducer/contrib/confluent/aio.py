"""confluent-kafka's `AIOProducer` by its names, over `aioproducer.Producer`."""

# librdkafka's names of its own codes begin with an underscore.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self

from aioproducer.contrib.confluent.configuration import Translation, translate
from aioproducer.contrib.confluent.errors import KafkaError, exception_of
from aioproducer.contrib.confluent.failures import invalid, translating
from aioproducer.contrib.confluent.feed import Feed
from aioproducer.contrib.confluent.message import Message
from aioproducer.contrib.confluent.metadata import ClusterMetadata, described
from aioproducer.contrib.confluent.producer import (
    check_in_transaction,
    check_size,
    check_transactional,
    limit,
    warn_ignored,
)
from aioproducer.contrib.confluent.records import Pending, checked_group, checked_positions, checked_record
from aioproducer.producer import Producer

__all__ = ["AIOProducer"]


class AIOProducer:
    """Sends records as confluent-kafka's class of this name does, by `aioproducer.Producer`; without threads.

    ::

        producer = AIOProducer({"bootstrap.servers": "localhost:9092"})
        message = await (await producer.produce("orders", b"value", key=b"key"))
        await producer.close()

    It differs from confluent-kafka in this. Headers are supported. Records are sent at once, so ``max_workers``,
    ``executor``, ``batch_size`` and ``buffer_timeout`` have no effect. Futures resolve by themselves: `poll` is not needed.
    A purged record's future fails with ``_PURGE_QUEUE``, and is not cancelled.
    """

    def __init__(
        self,
        producer_conf: dict[str, Any],
        max_workers: int = 4,
        executor: concurrent.futures.Executor | None = None,
        batch_size: int = 1000,
        buffer_timeout: float = 1.0,
    ) -> None:
        """Read the configuration; raises `KafkaException` for an invalid one, RuntimeError without an event loop."""
        asyncio.get_running_loop()
        self._translation: Translation = translate(producer_conf)
        warn_ignored(self._translation)
        with translating():
            self._producer = Producer(self._translation.bootstrap_servers, **self._translation.options)
        self._feed = Feed(self._producer, self._translation, self._resolve)
        self._starting: asyncio.Task[Producer] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._background: set[asyncio.Future[Any]] = set()
        self._is_closed = False
        self._in_transaction = False
        self._served = 0

    @property
    def producer(self) -> Producer:
        """The producer that sends, for its metrics and health; not part of confluent-kafka's API."""
        return self._producer

    @property
    def translation(self) -> Translation:
        """The meaning of the configuration; not part of confluent-kafka's API."""
        return self._translation

    # -- life ---------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Deliver what was accepted, abort an open transaction, and end the producer; may be called again.

        Every call waits for the end. Cancellation: what was not delivered is still delivered in the background.
        """
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            if self._starting is not None:
                await self.flush()
        finally:
            self._is_closed = True
            with translating():
                await self._producer.close(self._translation.delivery_s)

    def __len__(self) -> int:
        return 0 if self._is_closed else self._feed.outstanding

    def __bool__(self) -> bool:
        return True

    # -- records ------------------------------------------------------------------------------------------------------

    async def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        timestamp: int = 0,
        headers: Mapping[str, Any] | list[tuple[str, Any]] | None = None,
    ) -> asyncio.Future[Message]:
        """Put a record into the queue, and return the future of its `Message`, which fails with a `KafkaException`.

        Raises BufferError if ``queue.buffering.max.messages`` records wait for delivery, TypeError for a wrong type, and
        `KafkaException` as ``Producer.produce`` does. Cancellation: nothing is sent if the call had not returned.
        """
        await self._started()
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        record = checked_record(
            topic, value, key, partition, partial(_settle, future), timestamp, headers, time.monotonic()
        )
        check_size(self._translation, record)
        check_in_transaction(self._translation, self._in_transaction)
        self._feed.put(record)
        self._feed.take_all()
        return future

    async def poll(self, timeout: float = 0) -> int:
        """Let the event loop run once; returns how many records got their outcome since the last call.

        ``timeout`` has no effect: no future waits for this call. Cancellation: nothing is undone.
        """
        await self._started()
        await asyncio.sleep(0)
        served, self._served = self._served, 0
        return served

    async def flush(self, timeout: float | None = -1) -> int:
        """Wait until all records have an outcome; returns how many are left after ``timeout`` seconds (negative: no limit).

        Cancellation: the records are still sent.
        """
        await self._started()
        try:
            async with asyncio.timeout(limit(timeout)):
                while self._feed.outstanding:
                    await self._feed.flush()
        except TimeoutError:
            pass
        return len(self)

    async def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Give up what was not sent, and with ``in_flight`` what was not acknowledged.

        Raises `KafkaException` for ``in_flight`` without ``in_queue``. Cancellation: they are still given up.
        """
        await self._started()
        if not in_queue and in_flight:
            raise invalid("purge(in_queue=False, in_flight=True) is not supported: what is not sent is purged as well.")
        if in_queue:
            await self._feed.purge(in_flight)

    async def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the cluster's brokers and topics, or one topic; raises `KafkaException` if no broker answers in time.

        Cancellation: nothing is undone.
        """
        await self._started()
        with translating(timeout=KafkaError._TRANSPORT):
            return described(await self._producer.list_topics(limit(timeout)), topic)

    async def cluster_id(self, timeout: float = -1) -> str | None:
        """Return the id of the cluster; raises `KafkaException` if no broker answers in time.

        Cancellation: nothing is undone.
        """
        return (await self.list_topics(timeout=timeout)).cluster_id

    async def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use this user and password from the next login on; raises `KafkaException` without a mechanism that has these.

        Cancellation: nothing is awaited here.
        """
        if self._translation.credentials is None:
            raise invalid("set_sasl_credentials() needs sasl.mechanism PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.")
        self._translation.credentials.replace(username, password)

    # -- transactions -------------------------------------------------------------------------------------------------

    async def init_transactions(self, timeout: float | None = -1) -> None:
        """Get the producer id of the ``transactional.id``, which fences every earlier producer with the same id.

        Cancellation: it continues.
        """
        await self._transactional()
        with translating():
            await self._producer.init_transactions(limit(timeout))

    async def begin_transaction(self) -> None:
        """Begin a transaction, which takes every record until it is committed or aborted.

        Cancellation: no transaction is begun.
        """
        await self._transactional()
        await self.flush()
        with translating():
            await self._producer.begin_transaction()
        self._in_transaction = True

    async def commit_transaction(self, timeout: float | None = -1) -> None:
        """Deliver all records, and commit; raises what ``Producer.commit_transaction`` raises.

        Cancellation: a commit that was begun continues.
        """
        await self._end(self._feed.commit, timeout)

    async def abort_transaction(self, timeout: float | None = -1) -> None:
        """Deliver all records, as confluent-kafka does, and abort; raises what ``Producer.commit_transaction`` raises.

        Cancellation: an abort that was begun continues.
        """
        await self._transactional()
        if self._in_transaction:
            await self.flush()
        await self._end(self._feed.abort, timeout)

    async def _end(self, end: Callable[[float | None], Awaitable[None]], timeout: float | None) -> None:
        await self._transactional()
        with translating():
            await end(limit(timeout))
        self._in_transaction = False

    async def send_offsets_to_transaction(
        self, positions: list[Any], group_metadata: object, timeout: float | None = -1
    ) -> None:
        """Commit a consumer's positions with the transaction; see ``Producer.send_offsets_to_transaction``.

        Cancellation: they are still part of the transaction.
        """
        await self._transactional()
        offsets, group = checked_positions(positions), checked_group(group_metadata)
        if offsets:
            with translating():
                await self._producer.send_offsets_to_transaction(offsets, group, limit(timeout))

    # -- the rest -----------------------------------------------------------------------------------------------------

    async def _started(self) -> None:
        if self._is_closed:
            raise RuntimeError("Producer has been closed")
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._start())
        if self._starting.done():
            self._starting.result()  # of one that failed: without this, records would wait for ever
        else:
            await asyncio.shield(self._starting)

    async def _start(self) -> Producer:
        with translating():
            await self._producer.start()
        if self._translation.error_cb is not None:
            self._feed.watch(partial(self._call, self._translation.error_cb))
        return self._producer

    async def _transactional(self) -> None:
        check_transactional(self._translation)
        await self._started()

    def _resolve(self, feed: Feed, record: Pending, error: KafkaError | None, message: Message) -> None:
        feed.served(record)
        self._served += 1
        assert record.on_delivery is not None
        record.on_delivery(error, message)
        if self._translation.on_delivery is not None and not (self._translation.only_errors and error is None):
            self._call(self._translation.on_delivery, error, message)

    def _call(self, callback: Callable[..., object], *args: object) -> None:
        try:
            found: Any = callback(*args)
        except Exception as error:  # of the program: other records must still get their outcome
            context = {"message": f"Exception in the callback {callback!r} of an AIOProducer", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
            return
        if inspect.isawaitable(found):
            task = asyncio.ensure_future(found)
            self._background.add(task)
            task.add_done_callback(self._background.discard)


def _settle(future: asyncio.Future[Message], error: KafkaError | None, message: Message) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(message)
    else:
        future.set_exception(exception_of(error))
