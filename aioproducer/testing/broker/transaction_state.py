"""A transaction coordinator's state of one transactional id, and the resulting responses.

The rules are those of Kafka's TransactionMetadata and TransactionCoordinator. If releases differ, the newest applies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from aioproducer.protocol import ErrorCode

__all__ = [
    "MAX_EPOCH",
    "NO_PRODUCER",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_TIMEOUT_MS",
    "EndTable",
    "EndTxnResult",
    "ProducerIdAndEpoch",
    "TopicPartition",
    "Transaction",
    "TransactionState",
    "end_verdict",
]

#: A topic and the number of a partition.
TopicPartition: TypeAlias = tuple[str, int]

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
MAX_EPOCH = 0x7FFF
#: The timeout of a transaction that stays open until an external coordinator has decided (KIP-939).
NO_TIMEOUT_MS = 2**31 - 1


class TransactionState(Enum):
    """Kafka's states; the values are the names in DescribeTransactions."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


class ProducerIdAndEpoch(NamedTuple):
    """The producer, and how many times it was fenced or bumped."""

    producer_id: int
    producer_epoch: int


NO_PRODUCER = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


@dataclass(slots=True)
class Transaction:
    """A transactional id: its producer, and its current transaction. Times are milliseconds."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    #: The next id, used when the marker of the current one is written, because its epochs are used up.
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = 0
    #: The producer that may end the open transaction, if another one began it: each InitProducerId that keeps it bumps this.
    keeper: ProducerIdAndEpoch = NO_PRODUCER
    state: TransactionState = TransactionState.EMPTY
    partitions: set[TopicPartition] = field(default_factory=set[TopicPartition])
    started_ms: int = -1
    #: A request of transaction.version 2 arrived in a cluster without it. Kafka (4.3) then waits forever for a change of
    #: state that could not be written, and returns CONCURRENT_TRANSACTIONS for everything until it restarts.
    is_stuck: bool = False

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no epoch left: the last one is reserved for fencing."""
        return self.producer_epoch >= MAX_EPOCH - 1

    @property
    def producer(self) -> ProducerIdAndEpoch:
        """The producer that is not fenced."""
        began = ProducerIdAndEpoch(self.producer_id, self.producer_epoch)
        return began if self.keeper == NO_PRODUCER else self.keeper

    @property
    def is_ending(self) -> bool:
        """Whether the outcome is decided, but not all markers are written yet."""
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_changing(self) -> bool:
        """Whether everything must wait for a pending change of state (Kafka's ``pendingTransitionInProgress``)."""
        return self.is_stuck or self.is_ending

    def refuse(self, producer_id: int, producer_epoch: int) -> ErrorCode:
        """NONE, or why this producer may not add anything to the transaction."""
        if producer_id != self.producer.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if producer_epoch != self.producer.producer_epoch:
            return ErrorCode.PRODUCER_FENCED
        return ErrorCode.CONCURRENT_TRANSACTIONS if self.is_changing else ErrorCode.NONE

    def is_from_its_producer(self, expected: ProducerIdAndEpoch) -> bool:
        """Whether the id and epoch in an InitProducerId (KIP-360) can be those of this producer."""
        return (
            self.producer_epoch == NO_PRODUCER_EPOCH
            or expected.producer_id == self.producer_id
            or (expected.producer_id == self.previous_producer_id and expected.producer_epoch >= MAX_EPOCH - 1)
        )

    def add(self, partitions: set[TopicPartition], now_ms: int) -> None:
        """Add partitions; the first ones begin the transaction."""
        if self.state is not TransactionState.ONGOING:
            self.state = TransactionState.ONGOING
            self.started_ms = now_ms
        self.previous_producer_id = self.producer_id
        self.partitions |= partitions

    def change_producer(self, producer: ProducerIdAndEpoch, last_producer_epoch: int) -> None:
        """Continue with this id and epoch."""
        self.previous_producer_id = self.producer_id
        self.producer_id, self.producer_epoch = producer
        self.last_producer_epoch = last_producer_epoch

    def complete(self) -> None:
        """All markers are written."""
        committed = self.state is TransactionState.PREPARE_COMMIT
        self.state = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
        if self.keeper != NO_PRODUCER:
            self.producer_id, self.keeper = self.keeper.producer_id, NO_PRODUCER
        if self.next_producer_id != NO_PRODUCER_ID:
            following = ProducerIdAndEpoch(self.next_producer_id, self.next_producer_epoch)
            self.change_producer(following, self.last_producer_epoch)
            self.next_producer_id, self.next_producer_epoch = NO_PRODUCER_ID, 0


class EndTxnResult(Enum):
    """The effect of an accepted EndTxn."""

    END = "end the transaction, or with transaction.version 2 an empty one"
    DONE = "it has already ended in this way; return the current id and epoch"


class _Case(NamedTuple):
    state: TransactionState
    committed: bool
    #: The epoch is the one before the EndTxn that ended the transaction (transaction.version 2 only).
    is_retry: bool = False


#: By state, requested outcome and epoch; anything else is fenced.
EndTable: TypeAlias = Mapping[_Case, "EndTxnResult | ErrorCode"]

_S = TransactionState
_COMMIT, _ABORT, _RETRY = True, False, True

_TV1: EndTable = MappingProxyType(
    {
        _Case(_S.EMPTY, _COMMIT): ErrorCode.INVALID_TXN_STATE,
        _Case(_S.EMPTY, _ABORT): ErrorCode.INVALID_TXN_STATE,
        _Case(_S.ONGOING, _COMMIT): EndTxnResult.END,
        _Case(_S.ONGOING, _ABORT): EndTxnResult.END,
        _Case(_S.COMPLETE_COMMIT, _COMMIT): EndTxnResult.DONE,
        _Case(_S.COMPLETE_COMMIT, _ABORT): ErrorCode.INVALID_TXN_STATE,
        _Case(_S.COMPLETE_ABORT, _COMMIT): ErrorCode.INVALID_TXN_STATE,
        _Case(_S.COMPLETE_ABORT, _ABORT): EndTxnResult.DONE,
    }
)

_TV2: EndTable = MappingProxyType(
    {
        _Case(_S.EMPTY, _COMMIT): ErrorCode.INVALID_TXN_STATE,
        _Case(_S.EMPTY, _ABORT): EndTxnResult.END,
        _Case(_S.ONGOING, _COMMIT): EndTxnResult.END,
        _Case(_S.ONGOING, _ABORT): EndTxnResult.END,
        _Case(_S.COMPLETE_COMMIT, _COMMIT): ErrorCode.INVALID_TXN_STATE,
        _Case(_S.COMPLETE_COMMIT, _ABORT): EndTxnResult.END,
        _Case(_S.COMPLETE_COMMIT, _COMMIT, _RETRY): EndTxnResult.DONE,
        _Case(_S.COMPLETE_COMMIT, _ABORT, _RETRY): ErrorCode.INVALID_TXN_STATE,
        _Case(_S.COMPLETE_ABORT, _COMMIT): ErrorCode.INVALID_TXN_STATE,
        _Case(_S.COMPLETE_ABORT, _ABORT): EndTxnResult.END,
        # A commit that arrived after the coordinator's own abort (KAFKA-20785).
        _Case(_S.COMPLETE_ABORT, _COMMIT, _RETRY): ErrorCode.INVALID_TXN_STATE,
        _Case(_S.COMPLETE_ABORT, _ABORT, _RETRY): EndTxnResult.DONE,
    }
)


def end_verdict(
    transaction: Transaction, producer: ProducerIdAndEpoch, *, committed: bool, bumps_epoch: bool
) -> EndTxnResult | ErrorCode:
    """The effect of this producer's EndTxn; ``bumps_epoch``: it is one of transaction.version 2."""
    if bumps_epoch and transaction.is_changing:
        return ErrorCode.CONCURRENT_TRANSACTIONS  # before anything else is checked (KAFKA-18464)
    is_retry = bumps_epoch and _is_before_bump(transaction, producer)
    if producer.producer_id != transaction.producer.producer_id and not is_retry:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if producer.producer_epoch != transaction.producer.producer_epoch and not is_retry:
        return ErrorCode.PRODUCER_FENCED
    if transaction.is_changing:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    table = _TV2 if bumps_epoch else _TV1
    return table.get(_Case(transaction.state, committed, is_retry), ErrorCode.PRODUCER_FENCED)


def _is_before_bump(transaction: Transaction, producer: ProducerIdAndEpoch) -> bool:
    """Whether the producer did not receive the epoch, or producer id, of its last EndTxn."""
    producer_id, epoch = producer
    if transaction.keeper != NO_PRODUCER:
        return False
    if producer_id == transaction.producer_id:
        return epoch + 1 == transaction.producer_epoch
    used_up = producer_id == transaction.previous_producer_id and epoch == MAX_EPOCH - 1
    return used_up and transaction.producer_epoch == 0
