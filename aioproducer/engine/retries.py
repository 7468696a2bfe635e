"""Decides what happens to a batch that was not acknowledged: it is sent again, split, renumbered, or given up.

`produce_verdict` says what an error code means; the table at the end of this file says which method handles it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer.accumulator.outcomes import Outcomes
from aioproducer.config import ProducerConfig
from aioproducer.core.batches import ProducerBatch
from aioproducer.core.failed_attempt import FailedAttempt
from aioproducer.core.forgotten_producers import NEVER, may_be_forgotten, not_repeated
from aioproducer.core.produce_error_codes import ProduceVerdict, may_be_written
from aioproducer.core.sequences import Sequences
from aioproducer.errors import BrokerError, KafkaError, ProtocolError, RecordTooLarge
from aioproducer.metrics.producer import ProducerMetrics
from aioproducer.net.client import NetworkClient
from aioproducer.protocol.error_codes import ErrorCode, broker_error
from aioproducer.protocol.messages import NodeEndpoint, PartitionProduceResponse
from aioproducer.runtime.log import ClientLog
from aioproducer.types import TopicPartition

if TYPE_CHECKING:
    from aioproducer.transactions.link import TransactionLink
    from aioproducer.transactions.shared_acknowledgements import SharedAcknowledgements

__all__ = ["Retries"]


class _Refusal(NamedTuple):
    """A batch that the broker refused, and its response."""

    batch: ProducerBatch
    answer: PartitionProduceResponse
    error: BrokerError
    now: float


class Retries:
    """The decisions of one producer. ``shared`` takes part while other producers also write into the transaction."""

    def __init__(
        self,
        config: ProducerConfig,
        outcomes: Outcomes,
        client: NetworkClient,
        sequences: Sequences,
        metrics: ProducerMetrics,
        log: ClientLog,
        transactions: TransactionLink | None,
        shared: SharedAcknowledgements | None,
    ) -> None:
        self._config = config
        self._outcomes = outcomes
        self._client = client
        self._sequences = sequences
        self._metrics = metrics
        self._log = log
        self._transactions = transactions
        self._shared = shared
        self._unrepeated: set[TopicPartition] = set()  # where a batch was not repeated, because of its age

    def handle_no_response(self, node: int, batch: ProducerBatch, error: KafkaError, now: float) -> None:
        """No readable response: the batch may be in the log; only sending the same bytes again can show it."""
        batch.possibly_written = True
        batch.last_failure = FailedAttempt(error, node, now)
        self._client.request_update(batch.partition.topic)
        if error.retriable or isinstance(error, ProtocolError):
            self._send_again(batch, error, now)
        else:
            self._outcomes.fail(batch, error, now)

    def refused(
        self,
        node: int,
        batch: ProducerBatch,
        verdict: ProduceVerdict,
        answer: PartitionProduceResponse,
        endpoints: Sequence[NodeEndpoint],
        now: float,
    ) -> None:
        """The node has refused the batch; ``endpoints`` are the addresses of the leaders that its answer names."""
        code = answer.error_code
        if may_be_written(code):
            batch.possibly_written = True
        elif verdict is ProduceVerdict.SPLIT and batch.count == 1 and self._was_always_too_large(batch):
            batch.possibly_written = False
        self._learn_leader(node, batch, code, answer, endpoints)
        error = broker_error(code, answer.error_message)
        batch.last_failure = FailedAttempt(error, node, now)
        if verdict in _SENT_AGAIN and self._outcomes.is_behind_loss(batch):
            # This gives it up: under another number it would be written behind the hole.
            self._outcomes.retry(batch, now)
        else:
            _CARRY_OUT[verdict](self, _Refusal(batch, answer, error, now))

    # -- refusals -----------------------------------------------------------------------------------------------------

    def retry(self, refusal: _Refusal) -> None:
        """Send it again, if that is allowed."""
        self._send_again(refusal.batch, refusal.error, refusal.now)

    def split(self, refusal: _Refusal) -> None:
        """Send smaller batches in its place."""
        batch = refusal.batch
        if batch.count == 1 or batch.given_up:
            return self.fail(refusal)
        self._log.warning(
            "%s is too large for the broker (%d records, %d bytes): it is split and sent again. A smaller batch_size or "
            "max_request_size avoids this.",
            batch.partition,
            batch.count,
            batch.size,
            extra=batch.partition._asdict(),
        )
        self._outcomes.split(batch, refusal.now)

    def renumber(self, refusal: _Refusal) -> None:
        """The broker's sequence differs: renumber the batch, unless that could duplicate it."""
        batch, answer, error, now = refusal
        forgotten = answer.error_code == ErrorCode.UNKNOWN_PRODUCER_ID and batch.possibly_written
        if batch.whole_in_doubt or forgotten:
            # The broker has forgotten the state that detects duplicates, or knows the batch only as part of a larger one:
            # under a new number, a batch whose response was lost would be written twice.
            self._outcomes.fail(batch, error, now)
        elif self._transactions is not None:
            self._renumber_in_transaction(refusal, self._transactions)
        elif batch.possibly_written and (self._sequences.is_next(batch) or self._follows_unrepeated(batch)):
            self._leave_in_doubt(batch, error, now)
        elif self._sequences.idempotent:
            self._sequences.unexpected(batch, answer.error_code, answer.log_start_offset)
            self._send_again(batch, error, now)
        else:
            self.fail(refusal)

    def _follows_unrepeated(self, batch: ProducerBatch) -> bool:
        """Whether the broker waits for a batch that is never sent again: repeats would go on until their timeout."""
        return batch.partition in self._unrepeated and self._sequences.follows_lost(batch)

    def _leave_in_doubt(self, batch: ProducerBatch, error: BrokerError, now: float) -> None:
        """The broker expects the wrong sequence: it has lost batches, or has forgotten them.

        A restarted broker remembers only the last batch of each producer, and reports the repeat of an earlier one as out of
        order. Under a new number that one would be written twice. The same applies to later batches, except the last.
        """
        for each in self._outcomes.sent_from(batch):
            each.whole_in_doubt = each.possibly_written
        self._outcomes.fail(batch, error, now)

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
        """Send it under another producer id, if it is certainly not in the log: otherwise it would be duplicated."""
        is_possible = self._sequences.idempotent and self._transactions is None
        if not is_possible or refusal.batch.possibly_written:
            return self.fail(refusal)
        self._sequences.unknown_id(refusal.batch)
        self._send_again(refusal.batch, refusal.error, refusal.now)

    def fence(self, refusal: _Refusal) -> None:
        """It fails, and so do all later batches under this producer id."""
        if self._transactions is None:
            self._sequences.fenced(refusal.batch)
        self.fail(refusal)

    def fail(self, refusal: _Refusal) -> None:
        """Give it up, with the broker's errors of single records."""
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
        elif not self._ends_unrepeated(batch, error, now):
            self._log.debug("%r is sent again: %s", batch, error, extra=batch.partition._asdict())
            self._outcomes.retry(batch, now)

    def _ends_unrepeated(self, batch: ProducerBatch, error: KafkaError, now: float) -> bool:
        """Fail a batch that may be written and that its broker might not recognise; returns whether it was one."""
        expiration_ms = self._config.producer_id_expiration_ms
        if (
            not batch.possibly_written
            or expiration_ms == NEVER
            or not self._sequences.idempotent
            or self._transactions is not None
            or self._metrics.topic(batch.partition.topic).has_log_append_time
        ):
            return False
        now_ms = time.time_ns() // 1_000_000
        left_ms = self._config.delivery_timeout_ms - int((now - batch.created_at) * 1000)
        timestamps = [each.latest_timestamp for each in self._outcomes.sent_from(batch)]
        if not may_be_forgotten(timestamps, now_ms + max(0, left_ms), expiration_ms):
            return False
        self._unrepeated.add(batch.partition)
        self._outcomes.fail(batch, not_repeated(min(timestamps), now_ms, expiration_ms, error), now)
        return True

    # -- other contents of a response ---------------------------------------------------------------------------------

    def _learn_leader(
        self,
        node: int,
        batch: ProducerBatch,
        code: int,
        answer: PartitionProduceResponse,
        endpoints: Sequence[NodeEndpoint],
    ) -> None:
        """Apply the broker's hint about the new leader (KIP-951), and request full metadata in any case."""
        if code not in ErrorCode._value2member_map_ or not ErrorCode(code).invalid_metadata:
            return
        hint, metadata = answer.current_leader, self._client.metadata
        if hint.leader_id >= 0:
            metadata.apply_leader_hint(*batch.partition, hint.leader_id, hint.leader_epoch, endpoints)
        metadata.distrust_leader(*batch.partition, node)
        self._client.request_update(batch.partition.topic)

    def _was_always_too_large(self, batch: ProducerBatch) -> bool:
        """Whether a batch that is refused for its size was refused at every attempt, even if responses were lost.

        A broker checks the size first, before it checks for duplicates (UnifiedLog.append); so the same bytes were not
        written earlier either, unless the limit was lowered since. If it was, the broker has accepted a batch this large.
        """
        return batch.size > self._metrics.topic(batch.partition.topic).largest_batch


#: After these a batch may be sent again, in some form.
_SENT_AGAIN: Final = (
    ProduceVerdict.RETRY,
    ProduceVerdict.SPLIT,
    ProduceVerdict.RENUMBER,
    ProduceVerdict.NEW_PRODUCER_ID,
)

_CARRY_OUT: Final[Mapping[ProduceVerdict, Callable[[Retries, _Refusal], None]]] = {
    ProduceVerdict.RETRY: Retries.retry,
    ProduceVerdict.SPLIT: Retries.split,
    ProduceVerdict.RENUMBER: Retries.renumber,
    ProduceVerdict.NEW_PRODUCER_ID: Retries.renew_id,
    ProduceVerdict.FENCED: Retries.fence,
    ProduceVerdict.FAIL: Retries.fail,
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
