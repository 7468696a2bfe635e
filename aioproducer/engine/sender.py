"""The one background task between accumulator and brokers: drains batches, sends them, and hands back the responses.

Its rounds (`_round`) never wait: they drain what is ready, hand requests to connections that have room, and return when to
run again. Between two rounds it sleeps until something wakes it: a new or full batch, a response, a connection that became
ready, new metadata, or the next deadline. Slow work (a producer id, the compression of a large batch) runs beside it in its
task group and wakes it when done; everything else continues.

The rule for responses: if a response cannot be read, or does not come, the batch is *possibly written*. It is sent again,
byte for byte, until a response decides its outcome or its delivery timeout ends. Whether a batch is retried, split or failed
is decided in `produce_answers`, and done in `accumulator.outcomes`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any
from uuid import UUID

import anyio
import anyio.abc

from aioproducer.accumulator.accumulator import RecordAccumulator
from aioproducer.config import ProducerConfig
from aioproducer.core.answers import ProduceAnswer, read_produce_answer
from aioproducer.core.backoff import retry_backoff
from aioproducer.core.batches import ProducerBatch
from aioproducer.core.cluster import Loss
from aioproducer.core.sequences import Sequences
from aioproducer.core.transactions.answers import read_producer_id
from aioproducer.engine.compressor import Compressor
from aioproducer.engine.expired import expired, lost, waiting_for_lost
from aioproducer.engine.produce_answers import ProduceAnswers
from aioproducer.engine.small_requests import SmallRequests
from aioproducer.errors import (
    AuthenticationError,
    KafkaError,
    UnsupportedVersion,
)
from aioproducer.metrics.producer import ProducerMetrics
from aioproducer.net.client import NetworkClient
from aioproducer.net.connection import WRITTEN, Answer, Answered
from aioproducer.protocol.error_codes import ErrorCode, broker_error
from aioproducer.protocol.lone_batch import Written
from aioproducer.protocol.messages import (
    InitProducerIdRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from aioproducer.protocol.wire import ZERO_UUID
from aioproducer.record import Codec, RecordBatchBuilder
from aioproducer.runtime.log import ClientLog
from aioproducer.runtime.pulse import Pulse
from aioproducer.types import TopicPartition

if TYPE_CHECKING:
    from aioproducer.transactions.link import TransactionLink
    from aioproducer.transactions.shared_acknowledgements import SharedAcknowledgements

__all__ = ["Sender"]

#: Produce 13 names topics by their id; 12 is the last version with names (KIP-516).
_LAST_VERSION_WITH_TOPIC_NAMES = 12
_FIRST_VERSION_WITH_ZSTD = 7
_INT_MAX = 2**31 - 1
#: After this time a round leaves the rest to the next one, so that it does not block the event loop.
_LONG_ROUND_S = 0.005
#: After this many turns of the event loop without a record, no task has one: bytes arrive in the first turn, the task that
#: waits for them runs in the second, and its next record shows in the third.
_QUIET_TURNS = 3


class Sender:
    """Moves batches from the accumulator to their leaders, and outcomes back."""

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: RecordAccumulator,
        client: NetworkClient,
        sequences: Sequences,
        metrics: ProducerMetrics,
        *,
        log: ClientLog,
        random: Any,
        transactions: TransactionLink | None = None,
        shared: SharedAcknowledgements | None = None,
        pulse: Pulse,
    ) -> None:
        """``shared`` takes the acknowledgements while other writers share the transaction."""
        self.answers = ProduceAnswers(
            config, accumulator.outcomes, client, sequences, metrics, log, transactions, shared
        )
        self._small = SmallRequests(config, log.client_id, client)
        self._log = log
        self._config = config
        self._shared = shared
        self._transactions = transactions
        self._accumulator = accumulator
        self._queues = accumulator.queues
        self._outcomes = accumulator.outcomes
        accumulator.sealing.supports_zstd = self.supports_zstd
        self._pool = accumulator.pool
        self._client = client
        self._sequences = sequences
        self._metrics = metrics
        self._random = random
        self._pulse = pulse
        self._request_timeout_s = config.request_timeout_ms / 1000
        self._retry_backoff = retry_backoff(config)
        self._loop = asyncio.get_running_loop()
        self._compressor = Compressor(config.compression_level, log)
        self._wakeup: asyncio.Future[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._rings_at = inf
        #: The brokers whose last request held one record, and was the only one in flight.
        self.lone_nodes: set[int] = set()
        self._awake = False  # `wake` was called since the last round began
        self._late_at = inf  # the time after which the round must let other tasks run
        self._failure: Exception | None = None  # an exception outside `run`, which ends with it
        self._metadata_version = -1
        self._asking_for_producer_id = False

    # -- the loop -----------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Run a round soon. Cheap to call repeatedly; only in the event loop's thread."""
        self._awake = True
        waiter = self._wakeup
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def wake_after_response(self) -> None:
        """Run a round soon if a broker's response has left something to do."""
        if (
            self._queues.has_work(self._rings_at)
            or self._sequences.attention
            or self._accumulator.sealing.to_seal
            or (self._shared is not None and self._shared.has_to_ask)
        ):
            self.wake()

    def fail(self, error: Exception) -> None:
        """End `run` with an internal error: raised where it happened, it would not end the producer."""
        self._failure = error
        self.wake()

    async def run(self) -> None:
        """Send until cancelled.

        Cancellation: ends at once; batches in flight stay with the client until it is closed.
        """
        try:
            async with anyio.create_task_group() as helpers:
                while True:
                    self._awake = False
                    if self._failure is not None:
                        raise self._failure
                    self._work(helpers)
                    if self._queues.is_pausing:
                        await self._pause()
                    else:
                        await self._sleep(self._queues.next_deadline())
        finally:
            self._stop_alarm()
            self._compressor.close()

    def _work(self, helpers: anyio.abc.TaskGroup) -> None:
        now, began = self._loop.time(), time.perf_counter()
        self._late_at = began + _LONG_ROUND_S
        self._round(helpers)
        self._queues.worked(time.perf_counter() - began, now)

    async def _pause(self) -> None:
        """Let other tasks run; the pause ends when no task appends any more, or one waits for an outcome."""
        for _ in range(_QUIET_TURNS):
            free = self._pool.free
            await asyncio.sleep(0)
            if self._awake or self._pool.free != free:
                return
        self._queues.end_pause(self._loop.time())

    async def _sleep(self, deadline: float | None) -> None:
        if self._awake:
            await asyncio.sleep(0)
            return
        if deadline is not None and deadline < self._rings_at:
            self._set_alarm(deadline)
        waiter = self._wakeup = self._loop.create_future()
        try:
            await waiter
        finally:
            self._wakeup = None

    def _set_alarm(self, at: float) -> None:
        """Wake at this time at the latest. The alarm stays set between rounds: most deadlines are never reached."""
        self._stop_alarm()
        self._rings_at = at
        self._alarm = self._loop.call_at(at, self._ring)

    def _ring(self) -> None:
        self._stop_alarm()
        self.wake()

    def _stop_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._rings_at = None, inf

    def _round(self, helpers: anyio.abc.TaskGroup) -> None:
        now = self._loop.time()
        accumulator, queues, client = self._accumulator, self._queues, self._client
        if client.metadata.version != self._metadata_version:
            self._metadata_version = client.metadata.version
            accumulator.reroute(now)
            for topic, loss in client.metadata.take_new_losses().items():
                self._report_loss(topic, loss)
        queues.tick(now)
        if client.metadata.final_losses:
            self._give_up_lost(now)
        for batch in queues.expire(now):
            self._expire(batch, now)
        # After the expiry: it may leave unresolved sequences, for which nothing else would wake the Sender.
        if self._sequences.attention or self._sequences.needs_producer_id:
            self._settle_sequences(helpers, now)
        for topic in queues.leaderless_topics():
            client.request_update(topic)
        for node in queues.ready_nodes():
            self._send_to(node, now)
        for batch in accumulator.sealing.take_to_seal():
            helpers.start_soon(self._seal, batch, batch.close(), accumulator.sealing.codec_for(batch))
        if self._shared is not None:
            for topic in self._shared.to_ask():
                helpers.start_soon(self._shared.ask, topic)

    def _give_up_lost(self, now: float) -> None:
        losses = self._client.metadata.final_losses
        for topic in self._queues.leaderless_topics():
            loss = losses.get(topic)
            if loss is not None:
                for batch in self._queues.take_lost(topic, loss.has, now):
                    self._outcomes.give_up(batch, lost(batch.partition, loss), now, timed_out=False)

    def _expire(self, batch: ProducerBatch, now: float) -> None:
        cause = expired(batch, self._config.delivery_timeout_ms / 1000, self._client, self._pulse, now)
        self._outcomes.give_up(batch, cause, now, timed_out=True)

    def _report_loss(self, topic: str, loss: Loss) -> None:
        waiting = self._queues.records_of(topic, loss.has)
        if waiting:
            seconds = self._config.delivery_timeout_ms / 1000
            self._log.warning(*waiting_for_lost(topic, loss, waiting, seconds), extra={"topic": topic})

    async def _seal(self, batch: ProducerBatch, builder: RecordBatchBuilder, codec: Codec) -> None:
        encoded = await self._compressor.encode(builder, codec)
        self._accumulator.sealing.sealed(batch, encoded, self._loop.time())
        self.wake()

    # -- sending ------------------------------------------------------------------------------------------------------

    def _send_to(self, node: int, now: float) -> None:
        client, accumulator, queues = self._client, self._accumulator, self._queues
        while queues.is_ready(node):
            if not client.can_send(node):
                accumulator.not_accepted(node, now)
                return
            batches = accumulator.drain(node, self._config.max_request_size, now)
            if batches:
                self._send(node, batches, now)
            if queues.is_ready(node) and time.perf_counter() > self._late_at:
                self.wake()  # the rest is sent in the next round, after other tasks have run
                return

    def _send(self, node: int, batches: list[ProducerBatch], now: float) -> None:
        try:
            version = self.version_for(node)
        except UnsupportedVersion as error:
            self._fail_batches(batches, error, now)
            return
        if version >= _FIRST_VERSION_WITH_ZSTD:
            self._send_as(version, node, batches)
            return
        zstd: list[ProducerBatch] = []
        others: list[ProducerBatch] = []
        for batch in batches:
            assert batch.encoded is not None
            (zstd if batch.encoded.codec is Codec.ZSTD else others).append(batch)
        if others:
            self._send_as(version, node, others)
        if zstd:
            refusal = UnsupportedVersion(
                f"Broker {node} is too old for compression_type='zstd': it supports Produce up to {version}, zstd needs 7 "
                "(Kafka 2.1). Use lz4, snappy or gzip."
            )
            self._fail_batches(zstd, refusal, now)

    def supports_zstd(self, partition: TopicPartition) -> bool | None:
        """Whether the partition's leader accepts zstd; None if there is no leader, or its versions are not known."""
        leader = self._client.metadata.leader(*partition)
        if leader is None:
            return None
        try:
            return self.version_for(leader[0]) >= _FIRST_VERSION_WITH_ZSTD
        except UnsupportedVersion:
            return None

    def _fail_batches(self, batches: Sequence[ProducerBatch], error: KafkaError, now: float) -> None:
        for batch in batches:
            self._outcomes.fail(batch, error, now)
        self.wake()  # their sequences are resolved in the next round

    def _send_as(self, version: int, node: int, batches: list[ProducerBatch]) -> None:
        records = 0
        for batch in batches:
            records += batch.count
        if records == 1 and not self._client.in_flight(node):
            self.lone_nodes.add(node)
        else:
            self.lone_nodes.discard(node)
        self._metrics.produce_requests += 1
        self._metrics.records_per_request.observe(records)
        # uvloop's clock counts whole milliseconds: enough for deadlines, not for the latency
        take = partial(self._take, node, batches, time.perf_counter())
        if not self._small.send(node, version, batches, take):
            self._send_message(node, version, batches, take)

    def _send_message(
        self, node: int, version: int, batches: Sequence[ProducerBatch], take: Answered[ProduceAnswer]
    ) -> None:
        topics: dict[str, TopicProduceData] = {}
        names: dict[UUID, str] = {}
        for batch in batches:
            name, index = batch.partition
            topic = topics.get(name)
            if topic is None:
                known = self._client.metadata.topics.get(name)
                topic_id = ZERO_UUID if known is None else known.topic_id
                topic = topics[name] = TopicProduceData(name=name, topic_id=topic_id, partition_data=[])
                names[topic_id] = name
            topic.partition_data.append(PartitionProduceData(index=index, records=batch.pieces))
        for topic_id in names:
            version = self.version_with(topic_id, version)
        names.pop(ZERO_UUID, None)
        self._client.send(
            node,
            ProduceRequest(
                transactional_id=self._config.transactional_id,
                acks=self._config.acks,
                timeout_ms=self._config.request_timeout_ms,
                topic_data=list(topics.values()),
            ),
            version,
            take,
            self._request_timeout_s,
            read=partial(read_produce_answer, batches, names),
            expect_response=self._config.acks != 0,
        )

    def _take(
        self,
        node: int,
        batches: Sequence[ProducerBatch],
        sent_at: float,
        answer: Answer[list[Written] | ProduceAnswer],
    ) -> None:
        now, began = self._loop.time(), time.perf_counter()
        if answer is not WRITTEN and not isinstance(answer, KafkaError):  # as Java: only what was answered
            self._metrics.broker(node).request_latency.observe(began - sent_at)
        try:
            self.answers.take(node, batches, answer, now)
        except Exception as error:  # raised here it would reach only the connection, which logs it
            self.fail(error)
        self._queues.worked(time.perf_counter() - began, now)
        self.wake_after_response()

    def version_with(self, topic_id: UUID, version: int) -> int:
        """The version of Produce for a topic with this id, at most ``version``."""
        return version if topic_id != ZERO_UUID else min(version, _LAST_VERSION_WITH_TOPIC_NAMES)

    def version_for(self, node: int) -> int:
        """The highest version of Produce for the node; raises `UnsupportedVersion`."""
        version = self._client.usable_version(node, ProduceRequest)
        if self._transactions is not None:
            version = min(version, self._transactions.highest_produce_version)
        return version

    # -- the producer id ----------------------------------------------------------------------------------------------

    def _settle_sequences(self, helpers: anyio.abc.TaskGroup, now: float) -> None:
        epoch = self._sequences.epoch
        self._sequences.settle(lambda partition: self._queues.place_again(partition, now))
        if self._sequences.epoch != epoch:
            self._log.info("The producer epoch changed to %d, from %d", self._sequences.epoch, epoch)
        if self._sequences.needs_producer_id and not self._asking_for_producer_id:
            self._asking_for_producer_id = True
            helpers.start_soon(self._obtain_producer_id)

    async def _obtain_producer_id(self) -> None:
        """Try one broker after the other until one returns a producer id (KAFKA-20237: after any error)."""
        attempts = 0
        try:
            while self._sequences.needs_producer_id:
                try:
                    given = await self._client.request(
                        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_INT_MAX),
                        timeout_s=self._request_timeout_s,
                        read=read_producer_id,
                    )
                except (AuthenticationError, UnsupportedVersion) as error:
                    self._refuse(error)
                except KafkaError as error:
                    self._log.debug("InitProducerId failed and will be retried: %s", error)
                else:
                    if given.code == ErrorCode.NONE:
                        self._sequences.set_producer_id(*given.producer)
                        self._queues.unblock(self._loop.time())
                        return
                    refused = broker_error(given.code)
                    if not refused.retriable:
                        self._refuse(refused)
                await asyncio.sleep(self._retry_backoff.delay(attempts, self._random()))
                attempts += 1
        finally:
            self._asking_for_producer_id = False
            self.wake()

    def _refuse(self, error: KafkaError) -> None:
        """Nothing can be numbered: fail the current waiters, and keep trying for later ones."""
        self._log.error("No producer id, so nothing can be sent with enable_idempotence=True: %s", error)
        self._outcomes.fail_all(error, self._loop.time())
