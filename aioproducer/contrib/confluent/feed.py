"""The queue between ``produce()``, which never waits, and the producer, in whose event loop a record may have to wait.

A record waits for metadata or for room in the queue of its topic, so it is never overtaken, and other topics continue.
"""

# librdkafka's names of its own codes begin with an underscore.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from aioproducer import errors as ours
from aioproducer.contrib.confluent.configuration import Translation
from aioproducer.contrib.confluent.errors import KafkaError, error_of
from aioproducer.contrib.confluent.failures import record_error
from aioproducer.contrib.confluent.message import Message
from aioproducer.contrib.confluent.records import Pending
from aioproducer.delivery import Delivery
from aioproducer.producer import Producer
from aioproducer.types import HealthStatus

__all__ = ["Feed", "Report"]

#: Called in the event loop with the feed, a record and its outcome.
Report: TypeAlias = "Callable[[Feed, Pending, KafkaError | None, Message], None]"

#: How many records are put into batches before other work in the event loop gets its turn.
_AT_ONCE: Final = 500
#: The time between two checks of whether a broker is connected, in seconds.
_WATCH_EVERY_S: Final = 1.0


class Feed:
    """Takes records from any thread, puts them into batches in the event loop, and reports their outcomes."""

    def __init__(self, producer: Producer, translation: Translation, report: Report) -> None:
        self._producer = producer
        self._translation = translation
        self._report = report
        self._lock = threading.Lock()  # guards the next four
        self._arrived: deque[Pending] = deque()
        self._is_idle = True
        self._count = 0
        self._bytes = 0
        self._waiting: dict[str, deque[Pending]] = {}  # these two only in the event loop
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def outstanding(self) -> int:
        """The number of records that were put in, and whose outcome was not served."""
        return self._count

    # -- in any thread ------------------------------------------------------------------------------------------------

    def put(self, record: Pending) -> bool:
        """Accept a record; returns whether `take` must be called in the event loop. Raises BufferError if it is full."""
        size = record.size
        limit = self._translation
        with self._lock:
            if self._count >= limit.max_messages or (self._count and self._bytes + size > limit.max_bytes):
                raise BufferError("Local: Queue full")
            self._count += 1
            self._bytes += size
            self._arrived.append(record)
            was_idle, self._is_idle = self._is_idle, False
        return was_idle

    def take_back(self, record: Pending) -> None:
        """Undo `put`, because `take` could not be called."""
        with self._lock:
            if record in self._arrived:
                self._arrived.remove(record)
                self._count -= 1
                self._bytes -= record.size
                self._is_idle = True

    def served(self, record: Pending) -> None:
        """Give the room of a record back."""
        with self._lock:
            self._count -= 1
            self._bytes -= record.size

    # -- in the event loop --------------------------------------------------------------------------------------------

    def take(self) -> None:
        """Put what has arrived into batches, soon again if there is much."""
        if self._take_some():
            asyncio.get_running_loop().call_soon(self.take)

    def take_all(self) -> None:
        """Put everything that has arrived into batches now."""
        while self._take_some():
            pass

    def _take_some(self) -> bool:
        with self._lock:
            records = [self._arrived.popleft() for _ in range(min(len(self._arrived), _AT_ONCE))]
            self._is_idle = not records
        for record in records:
            self._accept(record)
        return bool(records)

    def _accept(self, record: Pending) -> None:
        waiting = self._waiting.get(record.topic)
        if waiting is not None:
            waiting.append(record)
            return
        try:
            delivery = self._producer.enqueue_nowait(
                record.topic,
                record.value,
                key=record.key,
                headers=record.headers,
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
            )
        except (ours.BufferFull, ours.MetadataNotReady):
            queue = self._waiting[record.topic] = deque([record])
            self._tasks[record.topic] = asyncio.get_running_loop().create_task(self._feed(record.topic, queue))
        except ours.KafkaError as error:
            self._fail(record, record_error(error))
        else:
            delivery.add_done_callback(partial(self._done, record))

    async def _feed(self, topic: str, queue: deque[Pending]) -> None:
        try:
            while queue:
                record = queue[0]
                found: Delivery | KafkaError
                try:
                    found = await self._accept_in_time(record)
                except ours.KafkaError as error:
                    found = record_error(error)
                queue.popleft()
                if isinstance(found, KafkaError):
                    self._fail(record, found)
                else:
                    found.add_done_callback(partial(self._done, record))
        finally:
            if self._waiting.get(topic) is queue:  # otherwise it was purged
                del self._waiting[topic], self._tasks[topic]
                while queue:  # after an unexpected exception
                    self._fail(queue.popleft(), error_of(KafkaError._FAIL))

    async def _accept_in_time(self, record: Pending) -> Delivery | KafkaError:
        if record.partition is not None and not await self._has_partition(record, record.partition):
            return error_of(KafkaError._UNKNOWN_PARTITION)
        return await self._producer.enqueue(
            record.topic,
            record.value,
            key=record.key,
            headers=record.headers,
            partition=record.partition,
            timestamp_ms=record.timestamp_ms,
            timeout=self._left(record),
        )

    async def _has_partition(self, record: Pending, partition: int) -> bool:
        """Whether the topic has the partition; an unknown topic is left to the enqueue, which knows how long to wait."""
        unknown_ms = self._producer.config.unknown_topic_timeout_ms
        seconds = self._left(record) if unknown_ms is None else min(self._left(record), unknown_ms / 1_000)
        try:
            found = await self._producer.partitions_for(record.topic, seconds)
        except ours.KafkaTimeoutError:
            return True
        return any(info.partition == partition for info in found)

    def _left(self, record: Pending) -> float:
        limit_s = self._producer.config.delivery_timeout_ms / 1_000
        return max(0.0, record.produced_at + limit_s - time.monotonic())

    def _done(self, record: Pending, delivery: Delivery) -> None:
        error = delivery.exception()
        if error is None:
            self._report(self, record, None, record.delivered(delivery.result(), time.monotonic()))
        else:
            self._fail(record, record_error(error), error.partition)

    def _fail(self, record: Pending, error: KafkaError, partition: int | None = None) -> None:
        self._report(self, record, error, record.failed(error, partition, time.monotonic()))

    async def flush(self) -> None:
        """Wait until every record that was put in before has an outcome, and it is reported."""
        self.take_all()
        while True:
            await self._producer.flush()
            if not self._tasks:
                break
            await asyncio.wait(tuple(self._tasks.values()))
        await asyncio.sleep(0)  # so that the callbacks have run

    async def hand_over(self, timeout: float) -> None:
        """Put every record that has arrived into batches within ``timeout`` seconds; the others fail, with a warning."""
        until = time.monotonic() + timeout
        self.take_all()
        while self._tasks and (seconds := until - time.monotonic()) > 0:
            await asyncio.wait(tuple(self._tasks.values()), timeout=seconds)
            self.take_all()
        left = sum(map(len, self._waiting.values()))
        if left:
            self._producer.log.warning("%d record(s) that were waiting for metadata or room were not sent", left)
        self._purge_waiting()

    async def commit(self, timeout: float | None) -> None:
        """Commit the transaction with every record that was put in before."""
        if timeout is None:
            await self.flush()
        else:
            try:
                async with asyncio.timeout(timeout):
                    await self.flush()
            except TimeoutError as error:
                raise ours.KafkaTimeoutError(f"The records were not sent within {timeout:g} s.") from error
        await self._producer.commit_transaction(timeout)
        await asyncio.sleep(0)

    async def abort(self, timeout: float | None) -> None:
        """Abort the transaction; records that were not sent fail."""
        self._purge_waiting()
        await self._producer.abort_transaction(timeout)
        await asyncio.sleep(0)

    async def purge(self, in_flight: bool) -> None:
        """Give up what was not sent and, with ``in_flight``, what was not acknowledged."""
        self._purge_waiting()
        self._producer.purge(in_flight=in_flight)
        await asyncio.sleep(0)

    def _purge_waiting(self) -> None:
        self.take_all()
        waiting, tasks = self._waiting, self._tasks
        self._waiting, self._tasks = {}, {}
        for task in tasks.values():
            task.cancel()
        for queue in waiting.values():
            for record in queue:
                self._fail(record, error_of(KafkaError._PURGE_QUEUE))

    def watch(self, report: Callable[[KafkaError], object]) -> None:
        """Report when no broker is connected, and when the producer fails for good; until it is closed."""
        self._watch(report, reported=None)

    def _watch(self, report: Callable[[KafkaError], object], reported: HealthStatus | None) -> None:
        health = self._producer.health()
        if health.status in (HealthStatus.CLOSING, HealthStatus.CLOSED):
            return
        if health.status is HealthStatus.FAILED:
            error = health.error
            code = KafkaError._FENCED if isinstance(error, ours.ProducerFenced) else KafkaError._FATAL
            report(error_of(code, str(error), fatal=True))
            return
        is_down = health.status is HealthStatus.DEGRADED or (
            health.status is HealthStatus.STARTING and not health.connected_brokers and health.error is not None
        )
        if is_down and reported is None:
            report(error_of(KafkaError._ALL_BROKERS_DOWN, "No broker is connected."))
        call = partial(self._watch, report, health.status if is_down else None)
        asyncio.get_running_loop().call_later(_WATCH_EVERY_S, call)
