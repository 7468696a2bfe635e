"""The transaction coordinator of a fake cluster: transactional ids, their producers, and the markers that end transactions.

It behaves like Kafka's TransactionCoordinator (4.3; earlier releases differ in the transaction version). All nodes share
it, so a moved coordinator keeps everything. Markers are written at once unless a test holds them; until then the
transaction is in ``PrepareCommit`` or ``PrepareAbort``, and later requests get CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

from aioproducer.protocol import ErrorCode
from aioproducer.testing.broker.transaction_state import (
    MAX_EPOCH,
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMEOUT_MS,
    EndTxnResult,
    ProducerIdAndEpoch,
    TopicPartition,
    Transaction,
    TransactionState,
    end_verdict,
)

__all__ = ["Answer", "MarkerHold", "TransactionCoordinator", "TwoPhaseCommit", "WriteMarker"]

#: transaction.max.timeout.ms
_MAX_TIMEOUT_MS = 900_000

#: Writes a marker: partition, producer, committed or not, and the time.
WriteMarker: TypeAlias = Callable[[TopicPartition, ProducerIdAndEpoch, bool, int], None]


class TwoPhaseCommit(Enum):
    """The cluster's support for two-phase commits (KIP-939)."""

    #: transaction.two.phase.commit.enable=false, the default.
    REFUSED = auto()
    #: Up to Kafka 4.4: a prepared transaction cannot be kept after its producer is gone (KAFKA-20739).
    UNRECOVERABLE = auto()
    #: As described in the KIP; no release does that yet.
    RECOVERABLE = auto()


class Answer(NamedTuple):
    """An error, or NONE with the producer id and epoch to continue with. ``ongoing``: those of the open transaction."""

    code: ErrorCode
    producer: ProducerIdAndEpoch = NO_PRODUCER
    ongoing: ProducerIdAndEpoch = NO_PRODUCER


class MarkerHold:
    """Selects the transaction markers that a test holds back: those of one topic, of one partition, or all."""

    def __init__(self, topic: str | None = None, partition: int | None = None) -> None:
        self._topic = topic
        self._partition = partition

    def keeps(self, where: TopicPartition) -> bool:
        """Whether a marker for this partition must wait."""
        topic, partition = where
        return self._topic in (None, topic) and self._partition in (None, partition)


class TransactionCoordinator:
    """Every transactional id of the cluster. Times are milliseconds since 1970."""

    def __init__(
        self,
        *,
        allocate_producer_id: Callable[[], ProducerIdAndEpoch],
        transaction_version: Callable[[], int],
        write_marker: WriteMarker,
    ) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.max_timeout_ms = _MAX_TIMEOUT_MS
        self.two_phase_commit = TwoPhaseCommit.REFUSED
        self._allocate_producer_id = allocate_producer_id
        self._transaction_version = transaction_version
        self._write_marker = write_marker
        self._holds: list[MarkerHold] = []

    # -- requests ------------------------------------------------------------------------------------------------------

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        now_ms: int,
        *,
        enable_2pc: bool = False,
        keep_prepared: bool = False,
    ) -> Answer:
        """The next epoch; an open transaction is aborted first, and the client must retry.

        ``expected``: the producer's current id and epoch (KIP-360). ``keep_prepared``: the open transaction is kept, and may
        be ended with the returned id and epoch (KIP-939).
        """
        if not transactional_id:
            return Answer(ErrorCode.INVALID_REQUEST)
        if enable_2pc and self.two_phase_commit is TwoPhaseCommit.REFUSED:
            return Answer(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if keep_prepared and self.two_phase_commit is not TwoPhaseCommit.RECOVERABLE:
            return Answer(ErrorCode.UNSUPPORTED_VERSION)
        if enable_2pc:
            timeout_ms = NO_TIMEOUT_MS
        elif not 0 < timeout_ms <= self.max_timeout_ms:
            return Answer(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        transaction = self.transactions.get(transactional_id) or self._new(transactional_id, timeout_ms)
        if transaction.is_changing:
            return Answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        if expected is not None and not transaction.is_from_its_producer(expected):
            return Answer(ErrorCode.PRODUCER_FENCED)
        if transaction.state is TransactionState.ONGOING and keep_prepared:
            return self._keep(transaction)
        if transaction.state is TransactionState.ONGOING:
            self.fence(transaction, now_ms)
            return Answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        return self._next_epoch(transaction, timeout_ms, expected)

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
        now_ms: int,
        *,
        bumps_epoch: bool = False,
    ) -> ErrorCode:
        """Add partitions to the transaction; the first ones begin it.

        ``bumps_epoch``: the request is one of transaction.version 2.
        """
        transaction = self.transactions.get(transactional_id)
        code = _refuse(transactional_id, transaction, producer)
        if code is not ErrorCode.NONE or transaction is None:
            return code
        wanted = set(partitions)
        if transaction.state is TransactionState.ONGOING and wanted <= transaction.partitions:
            return ErrorCode.NONE
        if not self._can_write(transaction, bumps_epoch=bumps_epoch):
            return ErrorCode.UNSUPPORTED_VERSION
        transaction.add(wanted, now_ms)
        return ErrorCode.NONE

    def verify(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether each partition belongs to the transaction: TRANSACTION_ABORTABLE if it does not (KIP-890)."""
        transaction = self.transactions.get(transactional_id)
        code = _refuse(transactional_id, transaction, producer)
        if code is not ErrorCode.NONE or transaction is None:
            return dict.fromkeys(partitions, code)
        return {
            each: ErrorCode.NONE if each in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE
            for each in partitions
        }

    def end(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        *,
        committed: bool,
        bumps_epoch: bool,
        now_ms: int,
    ) -> Answer:
        """Commit or abort; ``bumps_epoch``: as in transaction.version 2, with the next epoch in the response."""
        if not transactional_id:
            return Answer(ErrorCode.INVALID_REQUEST)
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            return Answer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        verdict = end_verdict(transaction, producer, committed=committed, bumps_epoch=bumps_epoch)
        if isinstance(verdict, ErrorCode):
            return Answer(verdict)
        if verdict is EndTxnResult.DONE:
            return Answer(ErrorCode.NONE, ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch))
        if not self._can_write(transaction, bumps_epoch=bumps_epoch):
            return Answer(ErrorCode.UNSUPPORTED_VERSION)
        self._end(transaction, committed=committed, bumps_epoch=bumps_epoch, now_ms=now_ms)
        if transaction.next_producer_id != NO_PRODUCER_ID:
            following = ProducerIdAndEpoch(transaction.next_producer_id, transaction.next_producer_epoch)
            return Answer(ErrorCode.NONE, following)
        return Answer(ErrorCode.NONE, ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch))

    # -- automatic or scripted changes ---------------------------------------------------------------------------------

    def fence(self, transaction: Transaction, now_ms: int) -> None:
        """Abort the open transaction with the next epoch, so that its producer is fenced."""
        bumps_epoch = self._transaction_version() >= 2
        if not bumps_epoch and transaction.keeper == NO_PRODUCER:
            transaction.producer_epoch += 1
            transaction.last_producer_epoch = NO_PRODUCER_EPOCH
        self._end(transaction, committed=False, bumps_epoch=bumps_epoch, now_ms=now_ms)

    def expire(self, now_ms: int) -> None:
        """Abort the transactions whose timeout has passed."""
        for transaction in self.transactions.values():
            is_open = transaction.state is TransactionState.ONGOING and transaction.timeout_ms != NO_TIMEOUT_MS
            if is_open and transaction.started_ms + transaction.timeout_ms < now_ms:
                self.fence(transaction, now_ms)

    def hold_markers(self, hold: MarkerHold) -> None:
        """Hold the markers of this hold."""
        self._holds.append(hold)

    def release_markers(self, hold: MarkerHold, now_ms: int) -> None:
        """Write the held markers, and remove the hold."""
        if hold in self._holds:
            self._holds.remove(hold)
        for transaction in self.transactions.values():
            if transaction.is_ending:
                self._write_markers(transaction, now_ms)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _can_write(self, transaction: Transaction, *, bumps_epoch: bool) -> bool:
        """Whether the change of state can be logged; if not, the transactional id is stuck, as in Kafka."""
        transaction.is_stuck = bumps_epoch and self._transaction_version() < 1
        return not transaction.is_stuck

    def _new(self, transactional_id: str, timeout_ms: int) -> Transaction:
        producer_id, first_epoch = self._allocate_producer_id()
        transaction = Transaction(transactional_id, producer_id, first_epoch - 1, timeout_ms)
        self.transactions[transactional_id] = transaction
        return transaction

    def _next_epoch(self, transaction: Transaction, timeout_ms: int, expected: ProducerIdAndEpoch | None) -> Answer:
        present = transaction.producer_epoch
        is_current = expected is None or present == NO_PRODUCER_EPOCH or expected.producer_epoch == present
        if not is_current and transaction.is_exhausted:
            return Answer(ErrorCode.UNKNOWN_SERVER_ERROR)  # Kafka fails before it compares the epochs
        if not is_current and expected is not None and expected.producer_epoch != transaction.last_producer_epoch:
            return Answer(ErrorCode.PRODUCER_FENCED)
        if is_current:
            following = ProducerIdAndEpoch(transaction.producer_id, present + 1)
            if transaction.is_exhausted:
                following = ProducerIdAndEpoch(self._allocate_producer_id().producer_id, 0)
            transaction.change_producer(following, NO_PRODUCER_EPOCH if expected is None else present)
        transaction.state = TransactionState.EMPTY
        transaction.timeout_ms = timeout_ms
        transaction.started_ms = -1
        return Answer(ErrorCode.NONE, ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch))

    def _keep(self, transaction: Transaction) -> Answer:
        """Fence all producers so far, and keep the transaction."""
        producer_id, epoch = transaction.producer
        transaction.keeper = ProducerIdAndEpoch(producer_id, epoch + 1)
        if epoch >= MAX_EPOCH - 1:
            transaction.keeper = ProducerIdAndEpoch(self._allocate_producer_id().producer_id, 0)
        began = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
        return Answer(ErrorCode.NONE, transaction.keeper, began)

    def _end_kept(self, transaction: Transaction, *, bumps_epoch: bool) -> None:
        """The markers have the original producer; the one that kept the transaction continues with its own next epoch."""
        transaction.next_producer_id, transaction.next_producer_epoch = transaction.keeper
        if not bumps_epoch:
            return
        epoch = transaction.keeper.producer_epoch
        transaction.next_producer_epoch += 1
        if epoch >= MAX_EPOCH - 1:
            transaction.next_producer_id = self._allocate_producer_id().producer_id
            transaction.next_producer_epoch = 0
        transaction.last_producer_epoch = epoch
        transaction.producer_epoch += 1

    def _end(self, transaction: Transaction, *, committed: bool, bumps_epoch: bool, now_ms: int) -> None:
        if transaction.keeper != NO_PRODUCER:
            self._end_kept(transaction, bumps_epoch=bumps_epoch)
        elif bumps_epoch:
            if transaction.is_exhausted:
                transaction.next_producer_id = self._allocate_producer_id().producer_id
            transaction.last_producer_epoch = transaction.producer_epoch
            transaction.producer_epoch += 1
        if transaction.state is not TransactionState.ONGOING:
            transaction.started_ms = now_ms
        transaction.state = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
        self._write_markers(transaction, now_ms)

    def _write_markers(self, transaction: Transaction, now_ms: int) -> None:
        producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
        committed = transaction.state is TransactionState.PREPARE_COMMIT
        for where in sorted(transaction.partitions):
            if not any(hold.keeps(where) for hold in self._holds):
                self._write_marker(where, producer, committed, now_ms)
                transaction.partitions.remove(where)
        if not transaction.partitions:
            transaction.complete()


def _refuse(transactional_id: str, transaction: Transaction | None, producer: ProducerIdAndEpoch) -> ErrorCode:
    if not transactional_id:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.INVALID_PRODUCER_ID_MAPPING if transaction is None else transaction.refuse(*producer)
