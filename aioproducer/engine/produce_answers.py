"""Carries out what brokers answer to Produce requests: a batch is complete, is sent again, is split, or fails.

`produce_verdict` says what an error code means; the table at the end of this file, which method carries that out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer.accumulator.outcomes import Outcomes
from aioproducer.config import ProducerConfig
from aioproducer.core.answers import ProduceAnswer
from aioproducer.core.batches import ProducerBatch
from aioproducer.core.produce_error_codes import ProduceVerdict, may_be_written, produce_verdict
from aioproducer.core.sequences import Sequences
from aioproducer.errors import BrokerError, KafkaError, ProtocolError, RecordTooLarge
from aioproducer.metrics import ProducerMetrics
from aioproducer.net.client import NetworkClient
from aioproducer.net.connection import WRITTEN, Answer
from aioproducer.protocol.error_codes import ErrorCode, broker_error
from aioproducer.protocol.messages import NodeEndpoint, PartitionProduceResponse

if TYPE_CHECKING:
    from aioproducer.transactions.link import TransactionLink
    from aioproducer.transactions.shared_acknowledgements import SharedAcknowledgements

__all__ = ["ProduceAnswers"]

logger = logging.getLogger("aioproducer")


class _Refusal(NamedTuple):
    """A batch that the broker refused, and what it said."""

    batch: ProducerBatch
    answer: PartitionProduceResponse
    error: BrokerError
    now: float


class ProduceAnswers:
    """Takes the answers of one producer. ``shared`` takes them over while others write into the transaction, too."""

    def __init__(
        self,
        config: ProducerConfig,
        outcomes: Outcomes,
        client: NetworkClient,
        sequences: Sequences,
        metrics: ProducerMetrics,
        transactions: TransactionLink | None = None,
        shared: SharedAcknowledgements | None = None,
    ) -> None:
        self._config = config
        self._outcomes = outcomes
        self._client = client
        self._sequences = sequences
        self._metrics = metrics
        self._transactions = transactions
        self._shared = shared

    def take(self, node: int, batches: Sequence[ProducerBatch], answer: Answer[ProduceAnswer], now: float) -> None:
        """The node has answered a request with these batches, or will not."""
        if isinstance(answer, KafkaError):
            for batch in batches:
                self._unanswered(batch, answer, now)
        elif answer is WRITTEN:  # acks=0: the bytes have left, and more is never known
            for batch in batches:
                self._outcomes.complete(batch, -1, -1, now)
        else:
            if answer.throttle_time_ms:
                self._metrics.throttle_time.observe(answer.throttle_time_ms / 1000)
            for batch, each in zip(batches, answer.of_batches, strict=True):
                self._take_one(node, batch, each, answer.node_endpoints, now)

    def _unanswered(self, batch: ProducerBatch, error: KafkaError, now: float) -> None:
        """No readable answer: the batch may be in the log; only the same bytes again can tell."""
        batch.possibly_written = True
        self._client.request_update(batch.partition.topic)
        if error.retriable or isinstance(error, ProtocolError):
            self._send_again(batch, error, now)
        else:
            self._outcomes.fail(batch, error, now)

    def _take_one(
        self,
        node: int,
        batch: ProducerBatch,
        answer: PartitionProduceResponse,
        endpoints: Sequence[NodeEndpoint],
        now: float,
    ) -> None:
        code = answer.error_code
        verdict = produce_verdict(code)
        if verdict is ProduceVerdict.COMPLETE:
            self.complete(batch, answer.base_offset, answer.log_append_time_ms, now)
            return
        if verdict is ProduceVerdict.COMPLETE_WITHOUT_OFFSET:
            self.complete(batch, -1, -1, now)
            return
        if may_be_written(code):
            batch.possibly_written = True
        elif verdict is ProduceVerdict.SPLIT and batch.count == 1 and self._was_always_too_large(batch):
            batch.possibly_written = False
        self._learn_leader(node, batch, code, answer, endpoints)
        _REFUSED[verdict](self, _Refusal(batch, answer, broker_error(code, answer.error_message), now))

    def complete(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int, now: float) -> None:
        """A broker has written the batch, as far as it says; -1 where it does not say the offset, or has no time."""
        if self._shared is not None and self._transactions is not None and self._transactions.is_shared:
            self._shared.acknowledged(batch, base_offset, log_append_time_ms, now)
        else:
            self._outcomes.complete(batch, base_offset, log_append_time_ms, now)

    # -- refusals -----------------------------------------------------------------------------------------------------

    def retry(self, refusal: _Refusal) -> None:
        """Send it again, if it may be."""
        self._send_again(refusal.batch, refusal.error, refusal.now)

    def split(self, refusal: _Refusal) -> None:
        """Send smaller batches in its place."""
        batch = refusal.batch
        if batch.count == 1 or batch.given_up:
            return self.fail(refusal)
        logger.warning(
            "%s is too large for the broker (%d records, %d bytes): it is split and sent again. A smaller batch_size or "
            "max_request_size avoids this.",
            batch.partition,
            batch.count,
            batch.size,
        )
        self._outcomes.split(batch, refusal.now)

    def renumber(self, refusal: _Refusal) -> None:
        """The broker's view of the sequence differs: a new number, unless the batch could be doubled under one."""
        batch, answer, error, now = refusal
        forgotten = answer.error_code == ErrorCode.UNKNOWN_PRODUCER_ID and batch.possibly_written
        if batch.whole_in_doubt or forgotten:
            # The broker forgot what it would detect a duplicate by, or knows the batch as a part of a larger one only: under
            # a new number a batch whose answer was lost would be written twice.
            self._outcomes.fail(batch, error, now)
        elif self._transactions is not None:
            self._renumber_in_transaction(refusal, self._transactions)
        elif self._sequences.idempotent:
            self._sequences.unexpected(batch, answer.error_code, answer.log_start_offset)
            self._send_again(batch, error, now)
        else:
            self.fail(refusal)

    def _renumber_in_transaction(self, refusal: _Refusal, transactions: TransactionLink) -> None:
        batch, answer, error, now = refusal
        is_gap = answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if not transactions.is_failing and self._sequences.is_ahead(batch):
            self._send_again(batch, error, now)
        elif self._shared is not None and transactions.is_shared and is_gap:
            self._shared.unexpected(batch, error, now)
        else:
            self._outcomes.fail(batch, error, now)

    def renew_id(self, refusal: _Refusal) -> None:
        """Send it under another producer id, if it is certainly not in the log: else it would be doubled."""
        is_possible = self._sequences.idempotent and self._transactions is None
        if not is_possible or refusal.batch.possibly_written:
            return self.fail(refusal)
        self._sequences.unknown_id(refusal.batch)
        self._send_again(refusal.batch, refusal.error, refusal.now)

    def fence(self, refusal: _Refusal) -> None:
        """It fails, and all that follow under this producer id with it."""
        if self._transactions is None:
            self._sequences.fenced(refusal.batch)
        self.fail(refusal)

    def fail(self, refusal: _Refusal) -> None:
        """Give it up, with what the broker says of single records."""
        errors = refusal.answer.record_errors
        self._outcomes.fail(
            refusal.batch,
            _named(refusal.batch, refusal.error),
            refusal.now,
            record_errors={each.batch_index: each.batch_index_error_message or "" for each in errors},
        )

    def _send_again(self, batch: ProducerBatch, error: KafkaError, now: float) -> None:
        if batch.given_up or batch.attempts > self._config.retries or self._config.acks == 0:
            self._outcomes.fail(batch, error, now)
        else:
            logger.debug("%r is sent again: %s", batch, error)
            self._outcomes.retry(batch, now)

    # -- what an answer tells besides ---------------------------------------------------------------------------------

    def _learn_leader(
        self,
        node: int,
        batch: ProducerBatch,
        code: int,
        answer: PartitionProduceResponse,
        endpoints: Sequence[NodeEndpoint],
    ) -> None:
        """Take the broker's hint who leads now (KIP-951), and ask for the whole picture in any case."""
        if code not in ErrorCode._value2member_map_ or not ErrorCode(code).invalid_metadata:
            return
        hint, metadata = answer.current_leader, self._client.metadata
        if hint.leader_id >= 0:
            metadata.apply_leader_hint(*batch.partition, hint.leader_id, hint.leader_epoch, endpoints)
        metadata.distrust_leader(*batch.partition, node)
        self._client.request_update(batch.partition.topic)

    def _was_always_too_large(self, batch: ProducerBatch) -> bool:
        """Whether a batch that is refused for its size was refused at every attempt, whatever became of the answers.

        A broker looks at the size first of all, before it looks for a repeat (UnifiedLog.append); so the same bytes were
        not written earlier either, unless the limit was lowered since. That it was shows where it let as much pass.
        """
        return batch.size > self._metrics.topic(batch.partition.topic).largest_batch


_REFUSED: Final[Mapping[ProduceVerdict, Callable[[ProduceAnswers, _Refusal], None]]] = {
    ProduceVerdict.RETRY: ProduceAnswers.retry,
    ProduceVerdict.SPLIT: ProduceAnswers.split,
    ProduceVerdict.RENUMBER: ProduceAnswers.renumber,
    ProduceVerdict.NEW_PRODUCER_ID: ProduceAnswers.renew_id,
    ProduceVerdict.FENCED: ProduceAnswers.fence,
    ProduceVerdict.FAIL: ProduceAnswers.fail,
}


def _named(batch: ProducerBatch, error: BrokerError) -> KafkaError:
    if error.code == ErrorCode.MESSAGE_TOO_LARGE and not batch.possibly_written:
        too_large = RecordTooLarge(
            f"The broker refused a batch of {batch.count} record(s) and {batch.size} bytes for {batch.partition}: it is "
            "larger than the topic's max.message.bytes. Send smaller records, compress them, or raise that limit."
        )
        too_large.__cause__ = error
        return too_large
    return error
