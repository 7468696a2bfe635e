"""The fast path of a batch: a lone record leaves in the same turn of the event loop that appended it.

If nothing has to be decided (the partition is idle, its sequence known, its leader connected and idle), the batch is sealed,
numbered, framed and written at once, and a plain success response is read without message objects. Every other batch goes
through the Sender, with nothing done twice: `LoneBatchSender.send` changes nothing before it is certain.

As in Nagle's algorithm a broker has one such request in flight, so that a burst still fills batches. And a record leaves at
once only if the last request to its broker was a lone record as well, with nothing else in flight: otherwise the first
record of each burst would cost a request by itself, instead of leaving with the others at the end of the turn.
"""

from __future__ import annotations

import asyncio
import time
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from aioproducer.accumulator.accumulator import RecordAccumulator
from aioproducer.accumulator.partition_queue import PartitionQueue
from aioproducer.config import ProducerConfig
from aioproducer.core.answers import ProduceAnswer, read_produce_answer
from aioproducer.core.batches import ProducerBatch
from aioproducer.core.cluster import TopicMetadata
from aioproducer.engine.sender import Sender
from aioproducer.errors import KafkaError, UnsupportedVersion
from aioproducer.metrics.producer import ProducerMetrics
from aioproducer.net.broker import Broker
from aioproducer.net.client import NetworkClient
from aioproducer.net.connection import Answer
from aioproducer.net.versions import BrokerVersions
from aioproducer.protocol.lone_batch import FIRST_VERSION, LoneBatch, Written
from aioproducer.protocol.messages import ProduceRequest, ProduceResponse
from aioproducer.runtime.pulse import Pulse
from aioproducer.types import TopicPartition

if TYPE_CHECKING:
    from aioproducer.transactions.link import TransactionLink

__all__ = ["LoneBatchSender", "Use"]

#: Larger batches are not copied into one piece, in bytes.
_LARGEST = 32_768


class Use(Enum):
    """The policy for taking the fast path, if it is possible."""

    WHEN_LONE = auto()
    ALWAYS = auto()  # for tests
    NEVER = auto()  # for tests


class _Form(NamedTuple):
    """The form of a partition's requests, and what it is derived from."""

    requests: LoneBatch
    versions: BrokerVersions | None
    topic: TopicMetadata
    highest: int | None

    def fits(self, versions: BrokerVersions | None, topic: TopicMetadata, highest: int | None) -> bool:
        """Whether it is still valid: a new connection may have new versions, new metadata a new topic."""
        return self.versions is versions and self.topic is topic and self.highest == highest


class LoneBatchSender:
    """Sends the only batch of a queue at once, or leaves it to the Sender."""

    #: Tests force it on or off.
    use = Use.WHEN_LONE

    def __init__(
        self,
        config: ProducerConfig,
        client_id: str,
        accumulator: RecordAccumulator,
        client: NetworkClient,
        sender: Sender,
        metrics: ProducerMetrics,
        transactions: TransactionLink | None,
        pulse: Pulse,
    ) -> None:
        self._config = config
        self._client_id = client_id
        self._accumulator = accumulator
        self._queues = accumulator.queues
        self._client = client
        self._metadata = client.metadata
        self._sender = sender
        self._metrics = metrics
        self._transactions = transactions
        self._pulse = pulse
        self._loop = asyncio.get_running_loop()
        self._request_timeout_s = config.request_timeout_ms / 1000
        self._is_answered = config.acks != 0
        self._forms: dict[TopicPartition, _Form] = {}

    def send(self, queue: PartitionQueue, now: float) -> bool:
        """Send the queue's batch and return True, if it is the only one and nothing has to be decided."""
        if not (
            self._sender.lone_nodes or self.use is Use.ALWAYS
        ):  # the usual answer under load, so the first question
            return False
        if self.use is Use.NEVER or queue.in_flight or queue.place is not None or len(queue.batches) != 1:
            return False
        if not self._is_answered:
            return False
        if queue.batches[0].size > _LARGEST or self._queues.is_paused(now):
            return False
        leader = self._metadata.leader(*queue.partition)
        if leader is None or not (leader[0] in self._sender.lone_nodes or self.use is Use.ALWAYS):
            return False
        broker = self._client.frame_broker(leader[0], idle=True)
        if broker is None:
            return False
        form = self._form(broker, queue.partition)
        batch = None if form is None else self._accumulator.drain_lone(queue, leader[1], now)
        if form is None or batch is None:
            return False
        self._write(broker, batch, form.requests)
        return True

    def _form(self, broker: Broker, partition: TopicPartition) -> _Form | None:
        """The form of the partition's requests; None if message objects must encode them."""
        topic = self._metadata.topics[partition.topic]
        highest = None if self._transactions is None else self._transactions.highest_produce_version
        known = self._forms.get(partition)
        if known is not None and known.fits(broker.versions, topic, highest):
            return known
        try:
            version = self._sender.version_with(topic.topic_id, self._sender.version_for(broker.node.id))
        except UnsupportedVersion:
            return None
        if version < FIRST_VERSION:
            return None
        config = self._config
        requests = LoneBatch(
            version,
            self._client_id,
            config.transactional_id,
            config.acks,
            config.request_timeout_ms,
            partition.topic,
            topic.topic_id,
            partition.partition,
        )
        form = self._forms[partition] = _Form(requests, broker.versions, topic, highest)
        return form

    def _write(self, broker: Broker, batch: ProducerBatch, form: LoneBatch) -> None:
        header, records = batch.pieces
        if self._pulse.is_still:
            self._pulse.start()
        self._metrics.produce_requests += 1
        self._metrics.records_per_request.observe(batch.count)
        self._client.send_frame(
            broker,
            partial(form.encode, header, records),
            ProduceRequest,
            form.version,
            partial(self._take, broker.node.id, batch, time.perf_counter()),
            self._request_timeout_s,
            partial(_read, form, batch),
            partial(form.read_frame, batch.count),
        )

    def _take(self, node: int, batch: ProducerBatch, sent_at: float, answer: Answer[Written | ProduceAnswer]) -> None:
        latency = time.perf_counter() - sent_at
        now = self._loop.time()
        if not isinstance(answer, KafkaError):
            self._metrics.broker(node).request_latency.observe(latency)
        try:
            if isinstance(answer, Written):
                self._sender.answers.complete(batch, answer.base_offset, answer.log_append_time_ms, now)
            else:
                self._sender.answers.take(node, (batch,), answer, now)
        except Exception as error:  # raised here it would reach only the connection, which logs it
            self._sender.fail(error)
        self._sender.wake_after_response()


def _read(form: LoneBatch, batch: ProducerBatch, version: int, body: bytes) -> Written | ProduceAnswer:
    written = form.read(body, batch.count)
    if written is not None:
        return written
    names = {form.topic_id: batch.partition.topic}
    return read_produce_answer((batch,), names, ProduceResponse.decode(version, body))
