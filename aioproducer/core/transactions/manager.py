"""Runs the transactions of one transactional id: which calls are allowed, what to ask next, what an answer changes.

The rules, of which everything else follows (KIP-98, KIP-360, KIP-447, KIP-588, KIP-890, KIP-939):

1. One request is under way at a time. What is asked next follows from the state alone: a producer id, then partitions,
   then offsets, then the end of the transaction, then its next epoch; and before each of them, who coordinates it.
2. A commit that may have been sent goes on until the coordinator has said what became of it, whether its caller waits or
   not. One that was not sent can be taken back: the transaction is open again. An abort can follow only where the commit
   was never sent, or the coordinator refused it and no earlier attempt can have succeeded. If that is not known, it is
   `CommitUnknown`, and stays so.
3. A transaction ends when all its batches have an outcome, and is committed when all its partitions and offsets were taken.
   One to which nothing was added ends without a request. One to which something *may* have been added is aborted by one,
   which may be refused: then there was nothing.
4. A transaction ends in the version that it began in. With version 1 partitions are added before anything is drained for
   them; with version 2 the brokers add what is written, and the end of a transaction gives the next epoch.
5. What was sent in version 1 and not answered may arrive late, in another transaction. So that one gets a new epoch first
   (KAFKA-17754), as does the one after a handle was given away.
6. An error that leaves something to abort leaves it to the user. It is told by whatever it ended, and by every call that
   it forbids.

`next_request` keeps rule 1: it decides what to ask, and what an answer changes. `outcomes` and `state_machine` keep rules
2, 3 and 6: what an end or an error changes, and which calls are allowed. `epochs` keeps rules 4 and 5. `contents` is what
is in a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aioproducer.core.transactions.answers import CoordinatorAnswer
from aioproducer.core.transactions.contents import OffsetCommit, TransactionContents
from aioproducer.core.transactions.epochs import Epochs
from aioproducer.core.transactions.error_codes import Action, action_for_batch
from aioproducer.core.transactions.handle import TransactionHandle
from aioproducer.core.transactions.identities import CoordinatorKey, ProducerIdAndEpoch
from aioproducer.core.transactions.in_flight import RequestInFlight
from aioproducer.core.transactions.listener import TransactionListener
from aioproducer.core.transactions.next_request import CoordinatorDialogue
from aioproducer.core.transactions.operation import Operation
from aioproducer.core.transactions.outcomes import TransactionOutcomes
from aioproducer.core.transactions.pauses import RequestPause
from aioproducer.core.transactions.prepared_transaction import PreparedTransactionState
from aioproducer.core.transactions.requests import CoordinatorRequest
from aioproducer.core.transactions.state_machine import StateMachine
from aioproducer.core.transactions.states import State
from aioproducer.errors import (
    BrokerError,
    KafkaError,
    SharedPartition,
    TransactionError,
    TransactionStateError,
    UnsupportedVersion,
)
from aioproducer.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

__all__ = ["INITIALIZE", "PREPARE", "TransactionManager"]

#: The name of the operation that `TransactionManager.initialize` begins.
INITIALIZE = "init_transactions"
#: The name of the operation that `TransactionManager.prepare` begins.
PREPARE = "prepare_transaction"

#: What may become of a prepared transaction, by the name of the call.
_COMPLETING = frozenset({"commit_transaction", "abort_transaction"})
_ENDING = frozenset({State.COMMITTING, State.ABORTING})


class TransactionManager:
    """The transactions of one producer. Decides; never waits, reads no clock, opens no socket.

    It takes the calls of the user, of the Sender and of the carrier of requests, and hands each to the part that decides.

    ``transaction_version`` tells what the cluster has finalized; it is asked between two transactions only.
    ``coordinators`` is what is known of them, for managers that share it. The requests are carried like this:
    `next_request`, then exactly one of `answered`, `lost` and `unsendable` for it.
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
    ) -> None:
        self.transactional_id = transactional_id
        self._listener = listener
        self._machine = StateMachine(transactional_id, enable_2pc=enable_2pc)
        self._contents = TransactionContents()
        self._epochs = Epochs(transaction_version, listener.producer_id_changed)
        self._in_flight = RequestInFlight()
        self._outcomes = TransactionOutcomes(
            transactional_id, self._machine, self._contents, self._epochs, self._in_flight, listener
        )
        self._dialogue = CoordinatorDialogue(
            transactional_id,
            self._machine,
            self._contents,
            self._epochs,
            self._in_flight,
            self._outcomes,
            listener,
            {} if coordinators is None else coordinators,
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
    ) -> TransactionManager:
        """One that begins inside the transaction of a handle.

        With ``may_end`` it can commit and abort it, and must be initialized before the next one. Otherwise it can only
        write, and nothing comes after. ``transaction_version`` is asked when there is a broker that can know it: before the
        first partition, or after the first answer of a coordinator.
        """
        manager = cls(
            handle.transactional_id,
            timeout_ms=timeout_ms,
            listener=listener,
            transaction_version=transaction_version,
            coordinators=coordinators,
        )
        manager._machine.join(may_end=may_end)
        manager._epochs.join(ProducerIdAndEpoch(handle.producer_id, handle.producer_epoch))
        manager._contents.share()
        return manager

    # -- where it stands ------------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """Where the producer stands."""
        return self._machine.state

    @property
    def last_error(self) -> KafkaError | None:
        """Why it is in an error state."""
        return self._machine.last_error

    @property
    def pending(self) -> Operation | None:
        """The call whose outcome no caller has seen yet, if there is one."""
        return self._machine.pending

    @property
    def may_end(self) -> bool:
        """Whether the transaction may be ended here; False where it is somebody else's."""
        return self._machine.may_end

    @property
    def producer(self) -> ProducerIdAndEpoch | None:
        """Under what it writes; None before there is a producer id."""
        return self._epochs.producer

    @property
    def is_v2(self) -> bool:
        """Whether the open transaction is one of version 2 (KIP-890)."""
        return self._epochs.is_v2

    @property
    def prepared(self) -> PreparedTransactionState | None:
        """What the outer coordinator knows the prepared transaction by."""
        return self._outcomes.prepared

    @property
    def abort_refused(self) -> KafkaError | None:
        """Where there was nothing to abort: why."""
        return self._outcomes.abort_refused

    @property
    def is_shared(self) -> bool:
        """Whether others may write into the open transaction."""
        return self._contents.is_shared

    @property
    def has_partitions(self) -> bool:
        """Whether records were put into the open transaction, or are about to be."""
        return self._contents.has_partitions

    @property
    def offsets_under_way(self) -> Operation | None:
        """The next of the calls whose offsets are still to be taken into the transaction."""
        commit = self._contents.next_offsets
        return None if commit is None else commit.operation

    # -- for the user ---------------------------------------------------------------------------------------------------

    def initialize(self, *, keep_prepared: bool = False) -> Operation:
        """Get a producer id; whatever an earlier producer with this transactional id left open is aborted.

        With ``keep_prepared`` (KIP-939) a prepared transaction is kept, and the state is PREPARED_TRANSACTION afterwards.
        Raises `TransactionStateError`, or the error that ended this producer's transactions.
        """
        if keep_prepared:
            self._machine.check_two_phase("init_transactions(keep_prepared_txn=True)")

        def keep() -> None:
            self._dialogue.keep_prepared = keep_prepared

        return self._once(INITIALIZE, State.INITIALIZING, keep)

    def begin(self) -> None:
        """Open a transaction. Raises as `initialize` does."""
        name = "begin_transaction"
        self._machine.check_may_end(name)
        self._machine.check(name)
        self._machine.enter(State.IN_TRANSACTION, name)

    def check_may_send(self) -> None:
        """Raise unless records may be put into the transaction now."""
        self._machine.check("send", State.IN_TRANSACTION)

    def add_partition(self, partition: TopicPartition) -> None:
        """Records for this partition are about to follow. Raises as `check_may_send` does."""
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
        """Commit offsets of a group with the transaction (KIP-447). Raises as `check_may_send` does."""
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
        """Promise that the transaction can be committed, which from then on is decided elsewhere (KIP-939).

        It takes nothing more, and is ``prepared`` when everything in it is there. Raises `TransactionStateError`, or why it
        failed.
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
        """Commit when everything in the transaction is there. Raises `TransactionStateError`, or why that is impossible."""
        return self._once("commit_transaction", State.COMMITTING)

    def abort(self) -> Operation:
        """Abort; what has not left yet never will. Raises `TransactionStateError`, or what ended the producer."""
        return self._once("abort_transaction", State.ABORTING, self._outcomes.give_up)

    def complete(self, prepared: PreparedTransactionState) -> Operation:
        """Commit the prepared transaction if it is the one named, else abort it (KIP-939).

        Called again it goes on with what it began. Raises `TransactionStateError` where none is prepared.
        """
        name = "complete_transaction"
        self._machine.check_two_phase(name + "()")
        pending = self.pending
        if pending is not None and pending.name in _COMPLETING:
            return pending
        self._machine.check(name, State.PREPARED_TRANSACTION)
        return self.commit() if prepared == self.prepared else self.abort()

    def handle(self) -> TransactionHandle:
        """Let others write into the open transaction. Raises as `check_may_send` does.

        Raises `TransactionStateError` as well where the brokers know sequences of an earlier transaction in this epoch: what
        others begin with would be taken for repeats of these.
        """
        name = "transaction_handle"
        self._machine.check_may_end(name)
        self._machine.check(name, State.IN_TRANSACTION)
        if self._epochs.has_counted:
            self._epochs.require_bump()
            raise TransactionStateError(
                f"{name}() is not possible in this transaction: with version 1 of the protocol an earlier "
                f"one of transactional_id {self.transactional_id!r} counted in the same epoch, and brokers would take the "
                "records of others for repeats of its. Commit or abort it; the next one can be shared."
            )
        self._contents.share()
        self._epochs.require_bump_of_v1()
        return TransactionHandle(self.transactional_id, *self._epochs.identity)

    def _once(self, name: str, target: State, then: Callable[[], object] | None = None) -> Operation:
        """Start what changes the state, or go on with it (rule 2)."""
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
        """Whether batches for this partition may leave."""
        return self._contents.is_added(partition) and self._machine.state is not State.FATAL_ERROR

    def drained(self) -> None:
        """A batch leaves, and with version 2 that is what adds its partition."""
        self._contents.is_started = True

    @property
    def highest_produce_version(self) -> int:
        """The highest version of Produce that the transaction may use."""
        return self._epochs.highest_produce_version

    def batch_failed(self, error: KafkaError) -> None:
        """A batch of the transaction will not be sent again, and was not acknowledged: it cannot be committed.

        One that failed with an error of ours was dropped because of it, which says nothing new - unless it tells of another
        writer in its partition.
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
        """Whether something goes on when the last batch has its outcome."""
        return self._contents.is_preparing or self._machine.state in _ENDING

    def sequences_lost(self, error: KafkaError) -> None:
        """It cannot be told which of the batches are in the log, so that no further one can be numbered in this epoch."""
        what = f"The sequences of transactional_id {self.transactional_id!r} are in doubt: {error}"
        self._outcomes.do(Action.BUMP_EPOCH, what, error)

    def close(self, error: KafkaError) -> None:
        """End everything now; every waiter fails with this error, or with `CommitUnknown`."""
        self._outcomes.fatal(error)

    # -- for who carries the requests -----------------------------------------------------------------------------------

    @property
    def attempts(self) -> int:
        """How often the present request failed."""
        return self._in_flight.attempts

    @property
    def refusal(self) -> KafkaError | None:
        """Why it was refused last, where it is asked again."""
        return self._in_flight.refusal

    @property
    def is_asking(self) -> bool:
        """Whether a request is under way."""
        return self._in_flight.is_asking

    def next_request(self, *, has_incomplete_batches: bool) -> CoordinatorRequest | None:
        """The request to send now; None while one is in flight, or if there is nothing to ask.

        Ask again after `TransactionListener.wake`, after an answer, and when the last batch has its outcome.
        """
        return self._dialogue.next_request(has_incomplete_batches=has_incomplete_batches)

    def answered(self, request: CoordinatorRequest, answer: CoordinatorAnswer, version: int) -> RequestPause:
        """What the request's ``read`` made of the response; the request was sent in this version."""
        return self._dialogue.answered(request, answer, version)

    def lost(self, request: CoordinatorRequest, *, sent: bool = True) -> RequestPause:
        """No answer came, or none that could be read; ``sent``: unless it certainly never left."""
        return self._dialogue.lost(request, sent=sent)

    def unsendable(self, request: CoordinatorRequest, error: UnsupportedVersion) -> None:
        """It can never be sent: the broker does not speak it."""
        self._dialogue.unsendable(request, error)

    def retract(self, error: KafkaError) -> None:
        """Fail the pending call with this error if nothing of it can have been done; it may be called again then.

        To be called while no request is under way. A commit that was never sent leaves the transaction open. What may have
        been sent, an abort and offsets go on.
        """
        self._outcomes.retract(error)
