"""Handles the responses to Produce requests: a batch is complete, or `Retries` decides what happens to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from aioproducer.accumulator.outcomes import Outcomes
from aioproducer.config import ProducerConfig
from aioproducer.core.answers import ProduceAnswer
from aioproducer.core.batches import ProducerBatch
from aioproducer.core.produce_error_codes import ProduceVerdict, produce_verdict
from aioproducer.core.sequences import Sequences
from aioproducer.engine.retries import Retries
from aioproducer.errors import KafkaError
from aioproducer.metrics.producer import ProducerMetrics
from aioproducer.net.client import NetworkClient
from aioproducer.net.connection import WRITTEN, Answer
from aioproducer.protocol.lone_batch import Written
from aioproducer.protocol.messages import NodeEndpoint, PartitionProduceResponse
from aioproducer.runtime.log import ClientLog

if TYPE_CHECKING:
    from aioproducer.transactions.link import TransactionLink
    from aioproducer.transactions.shared_acknowledgements import SharedAcknowledgements

__all__ = ["ProduceAnswers"]


class ProduceAnswers:
    """Handles one producer's responses. ``shared`` takes over while other writers share the transaction."""

    def __init__(
        self,
        config: ProducerConfig,
        outcomes: Outcomes,
        client: NetworkClient,
        sequences: Sequences,
        metrics: ProducerMetrics,
        log: ClientLog,
        transactions: TransactionLink | None = None,
        shared: SharedAcknowledgements | None = None,
    ) -> None:
        self._outcomes = outcomes
        self._metrics = metrics
        self._transactions = transactions
        self._shared = shared
        self._retries = Retries(config, outcomes, client, sequences, metrics, log, transactions, shared)

    def take(
        self,
        node: int,
        batches: Sequence[ProducerBatch],
        answer: Answer[list[Written] | ProduceAnswer],
        now: float,
    ) -> None:
        """The node has answered a request with these batches, or never will."""
        if isinstance(answer, list):
            complete = self._completion()
            for batch, written in zip(batches, answer, strict=True):
                complete(batch, written.base_offset, written.log_append_time_ms, now)
        elif isinstance(answer, KafkaError):
            for batch in batches:
                self._retries.handle_no_response(node, batch, answer, now)
        elif answer is WRITTEN:  # acks=0: the bytes were sent, and no more is ever known
            for batch in batches:
                self._outcomes.complete(batch, -1, -1, now)
        else:
            if answer.throttle_time_ms:
                self._metrics.throttle_time.observe(answer.throttle_time_ms / 1000)
            for batch, each in zip(batches, answer.of_batches, strict=True):
                self._take_one(node, batch, each, answer.node_endpoints, now)

    def _take_one(
        self,
        node: int,
        batch: ProducerBatch,
        answer: PartitionProduceResponse,
        endpoints: Sequence[NodeEndpoint],
        now: float,
    ) -> None:
        verdict = produce_verdict(answer.error_code)
        if verdict is ProduceVerdict.COMPLETE:
            self.complete(batch, answer.base_offset, answer.log_append_time_ms, now)
            return
        if verdict is ProduceVerdict.COMPLETE_WITHOUT_OFFSET:
            self.complete(batch, -1, -1, now)
            return
        self._retries.refused(node, batch, verdict, answer, endpoints, now)

    def complete(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int, now: float) -> None:
        """A broker has written the batch, according to its response; -1 if that has no offset, or no timestamp."""
        self._completion()(batch, base_offset, log_append_time_ms, now)

    def _completion(self) -> Callable[[ProducerBatch, int, int, float], object]:
        if self._shared is not None and self._transactions is not None and self._transactions.is_shared:
            return self._shared.acknowledged
        return self._outcomes.complete
