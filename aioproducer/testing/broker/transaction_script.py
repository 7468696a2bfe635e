"""The fake broker's scripting methods for transactions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioproducer.errors import ConfigError
from aioproducer.testing.broker.cluster_state import CoordinatorType
from aioproducer.testing.broker.transaction_coordinator import MarkerHold, TwoPhaseCommit
from aioproducer.testing.broker.transaction_state import TopicPartition, Transaction, TransactionState

if TYPE_CHECKING:
    from aioproducer.testing.broker.fake_cluster import FakeCluster
    from aioproducer.testing.broker.faults import Hold

__all__ = ["TransactionScript", "TransactionView"]


@dataclass(frozen=True, slots=True)
class TransactionView:
    """A snapshot of the coordinator's state of a transactional id. Times are milliseconds since 1970, -1: none."""

    transactional_id: str
    state: TransactionState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int
    partitions: frozenset[TopicPartition]


class TransactionScript:
    """The methods; the subclass has a cluster with a lock, and creates the handles of holds."""

    cluster: FakeCluster
    _lock: threading.RLock

    def make_hold(self, *, applied: bool, let_go: Callable[[], None]) -> Hold:
        """The handle of something that waits."""
        raise NotImplementedError  # the broker that inherits this does it

    def _notify_change(self) -> None:
        raise NotImplementedError  # the broker that inherits this does it

    @property
    def transaction_version(self) -> int:
        """The finalized feature transaction.version (KIP-890): 2 from Kafka 4.0 on and 0 before, unless it is set.

        It may be set while clients are connected, as in an upgrade.
        """
        with self._lock:
            return self.cluster.transaction_version

    @transaction_version.setter
    def transaction_version(self, level: int) -> None:
        with self._lock:
            self.cluster.transaction_version = level

    @property
    def two_phase_commit(self) -> TwoPhaseCommit:
        """The cluster's support for two-phase commits (KIP-939): refused, unless it is set.

        As in Kafka the nodes must also support InitProducerId 6, which they do with ``max_versions={"InitProducerId": 6}``
        (Kafka: unstable.api.versions.enable=true).
        """
        with self._lock:
            return self.cluster.transactions.two_phase_commit

    @two_phase_commit.setter
    def two_phase_commit(self, level: TwoPhaseCommit) -> None:
        with self._lock:
            self.cluster.transactions.two_phase_commit = level

    def transaction(self, transactional_id: str) -> TransactionView:
        """The coordinator's state of a transactional id; raises ConfigError if there is none."""
        with self._lock:
            return _view(self._transaction(transactional_id))

    def open_transactions(self) -> list[TransactionView]:
        """The unfinished transactions: open ones, and those whose markers are not all written."""
        with self._lock:
            known = self.cluster.transactions.transactions.values()
            return [_view(each) for each in known if each.is_ending or each.state is TransactionState.ONGOING]

    def expire_transaction(self, transactional_id: str) -> None:
        """Abort the open transaction as if its transaction.timeout.ms had passed.

        That also happens automatically, at the first request after the timeout. Raises ConfigError if none is open.
        """
        with self._lock:
            transaction = self._transaction(transactional_id)
            if transaction.state is not TransactionState.ONGOING:
                raise ConfigError(
                    f"Transactional id {transactional_id!r} has no open transaction to be aborted: "
                    f"it is in state {transaction.state.value}."
                )
            self.cluster.transactions.fence(transaction, _now_ms())
            self._notify_change()

    def fence_transactional_id(self, transactional_id: str) -> None:
        """Fence the producer as a successor's InitProducerId would; its open transaction is aborted."""
        with self._lock:
            transaction = self._transaction(transactional_id)
            coordinator, timeout_ms = self.cluster.transactions, transaction.timeout_ms
            if transaction.state is TransactionState.ONGOING:
                coordinator.fence(transaction, _now_ms())
            coordinator.init_producer_id(transactional_id, timeout_ms, None, _now_ms())
            self._notify_change()

    def forget_transactional_id(self, transactional_id: str) -> None:
        """Drop all state of a transactional id, as transactional.id.expiration.ms does."""
        with self._lock:
            self._transaction(transactional_id)
            del self.cluster.transactions.transactions[transactional_id]

    def hold_markers(self, topic: str | None = None, partition: int | None = None) -> Hold:
        """Write no transaction markers (of a topic, of a partition) until the handle is released.

        EndTxn still gets its response; later requests for the transactional id get CONCURRENT_TRANSACTIONS.
        """
        held = MarkerHold(topic, partition)
        with self._lock:
            self.cluster.transactions.hold_markers(held)
        return self.make_hold(applied=False, let_go=lambda: self._release_markers(held))

    def _release_markers(self, held: MarkerHold) -> None:
        self.cluster.transactions.release_markers(held, _now_ms())
        self._notify_change()

    def move_transaction_coordinator(self, transactional_id: str, to: int) -> None:
        """Make another node the coordinator of the transactional id (-1: none); the previous one returns NOT_COORDINATOR.

        For COORDINATOR_LOAD_IN_PROGRESS and COORDINATOR_NOT_AVAILABLE use ``fail()``.
        """
        with self._lock:
            self.cluster.move_coordinator(CoordinatorType.TRANSACTION, transactional_id, to)

    def _transaction(self, transactional_id: str) -> Transaction:
        known = self.cluster.transactions.transactions
        if transactional_id not in known:
            raise ConfigError(f"There is no transactional id {transactional_id!r} here. Known: {sorted(known)}.")
        return known[transactional_id]


def _view(transaction: Transaction) -> TransactionView:
    return TransactionView(
        transaction.transactional_id,
        transaction.state,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.timeout_ms,
        transaction.started_ms,
        frozenset(transaction.partitions),
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
