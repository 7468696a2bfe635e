"""Runs the transactions of one transactional id: which calls are allowed, what to request next, what an answer changes.

The rules from which everything else follows (KIP-98, KIP-360, KIP-447, KIP-588, KIP-890, KIP-939):

1. One request is in flight at a time. The next one follows from the state alone: a producer id, then partitions, then
   offsets, then the end of the transaction, then its next epoch; and before each of them, its coordinator.
2. A commit that may have been sent continues until the coordinator has reported its outcome, whether its caller waits or
   not. One that was not sent can be withdrawn: the transaction is open again. An abort can follow only if the commit
   was never sent, or the coordinator refused it and no earlier attempt can have succeeded. If that is not known, the
   outcome is `CommitUnknown`, and stays so.
3. A transaction ends when all its batches have an outcome, and is committed when all its partitions and offsets were
   added. One to which nothing was added ends without a request. One to which something *may* have been added is aborted
   by a request, which may be refused: then nothing had been added.
4. A transaction ends in the version in which it began. With version 1 partitions are added before anything is drained
   for them; with version 2 the brokers add the partitions that are written, and the end of a transaction returns the
   next epoch.
5. A request sent in version 1 and not answered may arrive late, in another transaction. So that transaction gets a new
   epoch first (KAFKA-17754), as does the one after a handle was given away.
6. After an error that leaves something to abort, the user must abort. The calls that it ended and the calls that it
   forbids all raise it.

`next_request` keeps rule 1: it decides what to ask, and what an answer changes. `commit_and_abort` and `state_machine`
keep rules 2, 3 and 6: what an end or an error changes, and which calls are allowed. `epochs` keeps rules 4 and 5.
`contents` is what is in a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aioproducer.core.transactions.answers import CoordinatorAnswer
from aioproducer.core.transactions.commit_and_abort import CommitAndAbort
from aioproducer.core.transactions.contents import OffsetCommit, TransactionContents
from aioproducer.core.transactions.epochs import Epochs
from aioproducer.core.transactions.error_codes import Action, action_for_batch
from aioproducer.core.transactions.handle import TransactionHandle
from aioproducer.core.transactions.identities import CoordinatorKey, ProducerIdAndEpoch
from aioproducer.core.transactions.in_flight import RequestInFlight
from aioproducer.core.transactions.listener import TransactionListener
from aioproducer.core.transactions.next_request import NextRequest
from aioproducer.core.transactions.operation import Operation
from aioproducer.core.transactions.pauses import RequestPause
from aioproducer.core.transactions.prepared_transaction import PreparedTransactionState
from aioproducer.core.transactions.requests import CoordinatorRequest
from aioproducer.core.transactions.state_machine import StateMachine
from aioproducer.core.transactions.states import State
from aioproducer.core.transactions.topic_ids import NoTopicIds, TopicIds
from aioproducer.errors import (
    BrokerError,
    KafkaError,
    SharedPartition,
    TransactionError,
    TransactionStateError,
    UnsupportedVersion,
)
from aioproducer.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

__all__ = ["ABORT", "INITIALIZE", "PREPARE", "TransactionManager"]

#: The name of the operation that `TransactionManager.initialize` begins.
INITIALIZE = "init_transactions"
#: The name of the operation that `TransactionManager.prepare` begins.
PREPARE = "prepare_transaction"
ABORT = "abort_transaction"

#: The possible ends of a prepared transaction, by the name of the call.
_COMPLETING = frozenset({"commit_transaction", ABORT})
_ENDING = frozenset({State.COMMITTING, State.ABORTING})


class TransactionManager:
    """The transactions of one producer. Decides; never waits, reads no clock, opens no socket.

    It takes the calls of the user, of the Sender and of the carrier of requests, and passes each to the part that decides.

    ``transaction_version`` returns the version that the cluster has finalized; it is called only between two transactions.
    ``coordinators`` are the known ones, for managers that share them. ``topic_ids`` are those of the topics of offsets;
    without them, and if one is not known, topics go by their names. Requests are carried like this: `next_request`, then
    exactly one of `apply_answer`, `lost` and `unsendable` for it.
    """

    def __init__(
        self,
        transactional_id: str,
        *,
        timeout_ms: int,
        listener: TransactionListener,
        transaction_version: Callable[[], int],
        enable_2pc: bool = False,
        coordinators: dict[CoordinatorKey, int] | None = None,
        topic_ids: TopicIds | None = None,
    ) -> None:
        self.transactional_id = transactional_id
        self._listener = listener
        self._machine = StateMachine(transactional_id, enable_2pc=enable_2pc)
        self._contents = TransactionContents()
        self._epochs = Epochs(transaction_version, listener.producer_id_changed)
        self._in_flight = RequestInFlight()
        self._outcomes = CommitAndAbort(
            transactional_id, self._machine, self._contents, self._epochs, self._in_flight, listener
        )
        self._requests = NextRequest(
            transactional_id,
            self._machine,
            self._contents,
            self._epochs,
            self._in_flight,
            self._outcomes,
            listener,
            {} if coordinators is None else coordinators,
            NoTopicIds() if topic_ids is None else topic_ids,
            timeout_ms=timeout_ms,
            enable_2pc=enable_2pc,
        )

    @classmethod
    def attach(
        cls,
        handle: TransactionHandle,
        *,
        listener: TransactionListener,
        transaction_version: Callable[[], int],
        may_end: bool,
        timeout_ms: int = 60_000,
        coordinators: dict[CoordinatorKey, int] | None = None,
        topic_ids: TopicIds | None = None,
    ) -> TransactionManager:
        """A manager that begins inside the transaction of a handle.

        With ``may_end`` it can commit and abort it, and must be initialized before the next one. Otherwise it can only
        write, and has no further transaction. ``transaction_version`` is called when a broker can report it: before the
        first partition, or after the first answer of a coordinator.
        """
        manager = cls(
            handle.transactional_id,
            timeout_ms=timeout_ms,
            listener=listener,
            transaction_version=transaction_version,
            coordinators=coordinators,
            topic_ids=topic_ids,
        )
        manager._machine.join(may_end=may_end)
        manager._epochs.join(ProducerIdAndEpoch(handle.producer_id, handle.producer_epoch))
        manager._contents.share()
        return manager

    # -- state ------------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The state of the producer."""
        return self._machine.state

    @property
    def last_error(self) -> KafkaError | None:
        """The error that put the producer into its present error state; None in any other state."""
        return self._machine.last_error

    @property
    def pending(self) -> Operation | None:
        """The call whose outcome no caller has seen yet, if there is one."""
        return self._machine.pending

    @property
    def may_end(self) -> bool:
        """Whether the transaction may be ended here; False if another process began it."""
        return self._machine.may_end

    @property
    def producer(self) -> ProducerIdAndEpoch | None:
        """The producer id and epoch; None before there is a producer id."""
        return self._epochs.producer

    @property
    def is_v2(self) -> bool:
        """Whether the open transaction is one of version 2 (KIP-890)."""
        return self._epochs.is_v2

    @property
    def prepared(self) -> PreparedTransactionState | None:
        """The prepared transaction's state, by which the outer coordinator identifies it."""
        return self._outcomes.prepared

    @property
    def abort_refused(self) -> KafkaError | None:
        """Why there was nothing to abort, if that was the case."""
        return self._outcomes.abort_refused

    @property
    def is_shared(self) -> bool:
        """Whether other writers may share the open transaction."""
        return self._contents.is_shared

    @property
    def has_partitions(self) -> bool:
        """Whether records were added to the open transaction, or are about to be."""
        return self._contents.has_partitions

    @property
    def pending_offsets(self) -> Operation | None:
        """The next call whose offsets are not part of the transaction yet."""
        commit = self._contents.next_offsets
        return None if commit is None else commit.operation

    # -- for the user ---------------------------------------------------------------------------------------------------

    def initialize(self, *, keep_prepared: bool = False) -> Operation:
        """Get a producer id; a transaction that an earlier producer with this transactional id left open is aborted.

        With ``keep_prepared`` (KIP-939) a prepared transaction is kept, and the state is PREPARED_TRANSACTION afterwards.
        Raises `TransactionStateError`, or the error that ended this producer's transactions.
        """
        if keep_prepared:
            self._machine.check_two_phase("init_transactions(keep_prepared_txn=True)")

        def keep() -> None:
            self._requests.keep_prepared = keep_prepared

        return self._once(INITIALIZE, State.INITIALIZING, keep)

    def begin(self) -> None:
        """Open a transaction. Raises `TransactionStateError`, or in an error state the error that led to it."""
        name = "begin_transaction"
        self._machine.check_may_end(name)
        self._machine.check(name)
        self._machine.enter(State.IN_TRANSACTION, name)

    def check_may_send(self) -> None:
        """Raise unless records may be added to the transaction now."""
        self._machine.check("send", State.IN_TRANSACTION)

    def add_partition(self, partition: TopicPartition) -> None:
        """Records for this partition are about to follow. Raises what `check_may_send` raises."""
        self._machine.check("send", State.IN_TRANSACTION)
        if self._contents.knows(partition):
            return
        self._epochs.look_at_version()
        if self._epochs.is_v2:
            self._contents.add(partition)
        else:
            self._contents.let_wait(partition)
            self._listener.wake()

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> Operation:
        """Commit offsets of a group with the transaction (KIP-447). Raises what `check_may_send` raises."""
        name = "send_offsets_to_transaction"
        self._machine.check(name, State.IN_TRANSACTION)
        operation = Operation(name)
        if offsets:
            self._contents.add_offsets(OffsetCommit(group, offsets, operation))
            self._listener.wake()
        else:
            operation.finish()
        return operation

    def prepare(self) -> Operation:
        """Promise that the transaction can be committed, which an outer coordinator decides from then on (KIP-939).

        It accepts nothing more, and is ``prepared`` when everything in it is acknowledged. Raises
        `TransactionStateError`, or why it failed.
        """
        self._machine.check_may_end(PREPARE)
        resumed = self._machine.resumed(PREPARE)
        if resumed is not None:
            return resumed
        self._machine.check(PREPARE, State.IN_TRANSACTION)
        self._machine.check_two_phase(PREPARE + "()")
        operation = self._machine.start(PREPARE)
        self._contents.is_preparing = True
        self._listener.wake()
        return operation

    def commit(self) -> Operation:
        """Commit when everything in the transaction is acknowledged. Raises `TransactionStateError`, or why it failed."""
        return self._once("commit_transaction", State.COMMITTING)

    def abort(self) -> Operation:
        """Abort; unsent records are never sent. Raises `TransactionStateError`, or the error that ended the producer."""
        return self._once(ABORT, State.ABORTING, self._outcomes.give_up)

    def complete(self, prepared: PreparedTransactionState) -> Operation:
        """Commit the prepared transaction if it is the one named, else abort it (KIP-939).

        If called again it continues the same operation. Raises `TransactionStateError` if none is prepared.
        """
        name = "complete_transaction"
        self._machine.check_two_phase(name + "()")
        pending = self.pending
        if pending is not None and pending.name in _COMPLETING:
            return pending
        self._machine.check(name, State.PREPARED_TRANSACTION)
        return self.commit() if prepared == self.prepared else self.abort()

    def handle(self) -> TransactionHandle:
        """Let other writers share the open transaction. Raises what `check_may_send` raises.

        Also raises `TransactionStateError` if the brokers know sequences of an earlier transaction in this epoch: the first
        batches of other writers would be mistaken for their duplicates.
        """
        name = "transaction_handle"
        self._machine.check_may_end(name)
        self._machine.check(name, State.IN_TRANSACTION)
        if self._epochs.has_counted:
            self._epochs.require_bump()
            raise TransactionStateError(
                f"{name}() failed: with version 1 of the transaction protocol, an earlier transaction of transactional_id "
                f"{self.transactional_id!r} used the same epoch, and brokers would mistake the records of other writers for "
                "its duplicates. Commit or abort this transaction; the next one can be shared."
            )
        self._contents.share()
        self._epochs.require_bump_of_v1()
        return TransactionHandle(self.transactional_id, *self._epochs.identity)

    def _once(self, name: str, target: State, then: Callable[[], object] | None = None) -> Operation:
        """Start an operation that changes the state, or continue it (rule 2)."""
        self._machine.check_may_end(name)
        resumed = self._machine.resumed(name)
        if resumed is not None:
            return resumed
        operation = self._machine.change(name, target)
        if then is not None:
            then()
        self._listener.wake()
        return operation

    # -- for the Sender: no request needed -------------------------------------------------------------------------------

    def may_drain(self, partition: TopicPartition) -> bool:
        """Whether batches for this partition may be sent."""
        return self._contents.is_added(partition) and self._machine.state is not State.FATAL_ERROR

    def drained(self) -> None:
        """A batch is sent, which with version 2 adds its partition."""
        self._contents.is_started = True

    @property
    def highest_produce_version(self) -> int:
        """The highest version of Produce that the transaction may use."""
        return self._epochs.highest_produce_version

    def batch_failed(self, error: KafkaError) -> None:
        """A batch of the transaction will not be sent again, and was not acknowledged: it cannot be committed.

        A batch that failed with an error of this transaction was dropped because of it, which adds no information, unless it
        reports another writer in its partition.
        """
        if isinstance(error, SharedPartition):
            self._outcomes.abortable(error)
            return
        if isinstance(error, TransactionError):
            return
        if isinstance(error, BrokerError):
            action = action_for_batch(error.code)
        else:
            action = Action.FATAL if isinstance(error, UnsupportedVersion) else Action.ABORTABLE
        self._outcomes.do(action, f"A batch of transactional_id {self.transactional_id!r} failed: {error}", error)

    @property
    def awaits_batches(self) -> bool:
        """Whether something continues when the last batch has its outcome."""
        return self._contents.is_preparing or self._machine.state in _ENDING

    def sequences_lost(self, error: KafkaError) -> None:
        """It is unknown which batches are in the log, so no further batch can be numbered in this epoch."""
        what = f"The next sequence numbers of transactional_id {self.transactional_id!r} are unknown: {error}"
        self._outcomes.do(Action.BUMP_EPOCH, what, error)

    def close(self, error: KafkaError) -> None:
        """End everything now; every waiter fails with this error, or with `CommitUnknown`."""
        self._outcomes.fatal(error)

    # -- for the carrier of requests ------------------------------------------------------------------------------------

    @property
    def attempts(self) -> int:
        """The number of failures of the current request."""
        return self._in_flight.attempts

    @property
    def refusal(self) -> KafkaError | None:
        """Why it was refused last, if it is retried."""
        return self._in_flight.refusal

    @property
    def is_asking(self) -> bool:
        """Whether a request is in flight."""
        return self._in_flight.is_asking

    def next_request(self, *, has_incomplete_batches: bool) -> CoordinatorRequest | None:
        """The request to send now; None while one is in flight, or if there is nothing to request.

        Call it again after `TransactionListener.wake`, after an answer, and when the last batch has its outcome.
        """
        return self._requests.next_request(has_incomplete_batches=has_incomplete_batches)

    def apply_answer(self, request: CoordinatorRequest, answer: CoordinatorAnswer, version: int) -> RequestPause:
        """Apply the result of the request's ``read``; the request was sent in this version."""
        return self._requests.apply_answer(request, answer, version)

    def lost(self, request: CoordinatorRequest, *, sent: bool = True) -> RequestPause:
        """No readable answer came; ``sent`` is False only if the request was certainly not sent."""
        return self._requests.lost(request, sent=sent)

    def unsendable(self, request: CoordinatorRequest, error: UnsupportedVersion) -> None:
        """The request can never be sent: the broker does not support it."""
        self._requests.unsendable(request, error)

    def retract(self, error: KafkaError) -> None:
        """Fail the pending call with this error if nothing of it can have been done; it may be called again then.

        Call it while no request is in flight. A commit that was never sent leaves the transaction open. A commit that
        may have been sent, an abort and offsets continue.
        """
        self._outcomes.retract(error)
