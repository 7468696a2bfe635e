"""The running parts of a mock producer: those of every producer, but for its connections and the task that sends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from aioproducer.core.produce_error_codes import may_be_written
from aioproducer.engine.engine import Attachment, Engine
from aioproducer.engine.sender import Sender
from aioproducer.errors import (
    BrokerConnectionError,
    BrokerError,
    DeliveryError,
    KafkaError,
    KafkaTimeoutError,
    ProtocolError,
    Unknown,
)
from aioproducer.testing.mock.client import NODE, MockClient

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig
    from aioproducer.core.batches import ProducerBatch
    from aioproducer.hot import Appender
    from aioproducer.metrics.producer import ProducerMetrics
    from aioproducer.runtime.log import ClientLog
    from aioproducer.testing.broker.fake_cluster import FakeCluster
    from aioproducer.testing.mock.book import Book

__all__ = ["MockEngine", "MockSender"]


class MockSender(Sender):
    """Sends one record at a time: each at once, or when the test or a flush asks for it."""

    def __init__(self, cluster: FakeCluster, book: Book, *parts: Any, **more: Any) -> None:
        """``parts`` and ``more`` are those of every Sender."""
        self._cluster, self._book = cluster, book
        self._woken = asyncio.Event()
        super().__init__(*parts, **more)

    def wake(self) -> None:
        """Look soon whether there is something to send; only in the event loop's thread."""
        self._woken.set()

    async def run(self) -> None:
        """Send what is due until cancelled. Cancellation: ends at once."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            for batch in self._outcomes.incomplete_in_order():
                if self._is_due(batch):
                    self.complete(batch)
            if self._failure is not None:
                raise self._failure

    def _is_due(self, batch: ProducerBatch) -> bool:
        """Whether it is sent without a call of the test: always, or because a flush, a commit or a close waits for it."""
        return self._book.auto_complete or any(not each.is_over for each in batch.flush_waiters or ())

    @property
    def next_batch(self) -> ProducerBatch | None:
        """The batch that waits longest; None if none waits."""
        return next(iter(self._outcomes.incomplete_in_order()), None)

    def complete(self, batch: ProducerBatch, offset: int | None = None) -> bool:
        """Have the cluster write the batch, the first one of its partition; returns whether it was sent."""
        if batch not in self._outcomes.incomplete:
            return True  # an earlier failure has ended its transaction
        now = self._loop.time()
        queue = self._queues.by_partition[batch.partition]
        if batch.encoded is None and not batch.is_sealing:
            self._book.note(batch)
            batch.seal(self._accumulator.sealing.codec_for(batch), self._config.compression_level)
        if self._accumulator.drain_lone(queue, -1, now) is None:
            return False
        if offset is not None:
            self._cluster.partition(*batch.partition).log.end_offset = offset
        self._queues.place(queue, now)
        self._send(NODE, [batch], now)
        return True

    def complete_next(self, offset: int | None) -> bool:
        """Send the batch that waits longest; returns whether one was sent."""
        batch = self.next_batch
        if batch is None:
            return False
        if self._transactions is not None and not self._transactions.may_drain(batch.partition):
            self._transactions.release()  # the markers of the last transaction are written
        return self.complete(batch, offset)

    def fail_next(self, error: BaseException) -> bool:
        """Give up the batch that waits longest; returns whether one waited."""
        batch = self.next_batch
        if batch is None:
            return False
        self._book.note(batch)
        batch.possibly_written, timed_out, cause = _fate(error)
        self._queues.by_partition[batch.partition].batches.remove(batch)
        self._outcomes.fail(batch, cause, self._loop.time(), timed_out=timed_out)
        return True


class MockEngine(Engine):
    """The engine of one run. The cluster and the book outlive it."""

    sender: MockSender

    def __init__(
        self,
        cluster: FakeCluster,
        book: Book,
        config: ProducerConfig,
        client_id: str,
        log: ClientLog,
        metrics: ProducerMetrics,
        random: Random,
        appender: Callable[[], Appender | None],
        attachment: Attachment | None = None,
    ) -> None:
        self._cluster, self._book = cluster, book
        # A batch holds one record, so that each record has a separate outcome.
        super().__init__(config.replace(batch_size=0), client_id, log, metrics, random, appender, attachment)
        if self.sequences.needs_producer_id:
            self.sequences.set_producer_id(*cluster.allocate_producer_id())

    def _make_client(self, client_id: str, random: Random) -> MockClient:
        return MockClient(
            self.config,
            self._cluster,
            client_id=client_id,
            log=self.log,
            random=random,
            on_ready=self._look_again,
            metrics=self.metrics,
        )

    def _make_sender(self, random: Random) -> MockSender:
        return MockSender(
            self._cluster,
            self._book,
            self.config,
            self.accumulator,
            self.client,
            self.sequences,
            self.metrics,
            log=self.log,
            random=random.random,
            transactions=self.transactions,
            shared=self.shared,
            pulse=self.pulse,
        )

    def open_fast_path(self, keys_choose: bool | None) -> None:
        """Do nothing: every record takes the slow path, where it is noted."""


def _fate(error: BaseException) -> tuple[bool, bool, KafkaError]:
    """Whether a record may be written, whether time ran out, and the cause, if sending it ends with this error."""
    if isinstance(error, DeliveryError):
        cause = error.__cause__ if isinstance(error.__cause__, KafkaError) else KafkaError(str(error))
        return isinstance(error, Unknown), isinstance(error, TimeoutError), cause
    if isinstance(error, BrokerError):
        return may_be_written(error.code), False, error
    if isinstance(error, KafkaError):
        return isinstance(error, (BrokerConnectionError, KafkaTimeoutError, ProtocolError)), False, error
    cause = KafkaError(repr(error))
    cause.__cause__ = error
    return False, False, cause
