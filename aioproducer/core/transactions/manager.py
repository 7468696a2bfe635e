"""Runs the transactions of one transactional id: what may be done now, what is to be asked next, what an answer changes.

The rules, of which everything else follows (KIP-98, KIP-360, KIP-447, KIP-588, KIP-890, KIP-939):

1. One request is under way at a time. What is asked next follows from the state alone: a producer id, then partitions,
   then offsets, then the end of the transaction, then its next epoch; and before each of them, who coordinates it.
2. A commit that may have been sent goes on until the coordinator has said what became of it, whether its caller waits or
   not. One that was not sent can be taken back: the transaction is open again. An abort can follow only where the commit
   was never sent, or the coordinator refused it and no earlier attempt can have succeeded. Where nobody can say, it is
   `CommitUnknown`, for good.
3. A transaction ends when all its batches have an outcome, and is committed when all its partitions and offsets were taken.
   One to which nothing was added ends without a request. One to which something *may* have been added is aborted by one,
   which may be refused: then there was nothing.
4. A transaction ends in the version that it began in. With version 1 partitions are added before anything is drained for
   them; with version 2 the brokers add what is written, and the end of a transaction gives the next epoch.
5. What was sent in version 1 and not answered may arrive late, in another transaction. So that one gets a new epoch first
   (KAFKA-17754), as does the one after a handle was given away.
6. An error that leaves something to abort leaves it to the user. It is told by whatever it ended, and by every call that
   it forbids.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from enum import Enum, auto
from typing import Protocol

from aioproducer.core.backoff import ExponentialBackoff
from aioproducer.core.transactions.answers import (
    CoordinatorAnswer,
    CoordinatorFound,
    OffsetsAdded,
    OffsetsTaken,
    PartitionsAdded,
    ProducerIdGiven,
    TransactionEnded,
)
from aioproducer.core.transactions.errors import Action, action_for, action_for_batch, decisive_code, may_be_done
from aioproducer.core.transactions.failures import commit_unknown, transaction_error, two_phase_needs
from aioproducer.core.transactions.handle import TransactionHandle
from aioproducer.core.transactions.identities import CoordinatorKey, CoordinatorType, ProducerIdAndEpoch
from aioproducer.core.transactions.operation import Operation
from aioproducer.core.transactions.prepared_transaction import PreparedTransactionState
from aioproducer.core.transactions.requests import (
    FIRST_VERSION_THAT_BUMPS,
    CoordinatorRequest,
    Rpc,
    add_offsets,
    add_partitions,
    end_transaction,
    find_coordinator,
    init_producer_id,
    offset_commit,
)
from aioproducer.core.transactions.states import TRANSITIONS, State
from aioproducer.errors import (
    BrokerError,
    KafkaError,
    SharedPartition,
    TransactionAborted,
    TransactionError,
    TransactionFatal,
    TransactionStateError,
    UnsupportedVersion,
)
from aioproducer.protocol.error_codes import ErrorCode, broker_error
from aioproducer.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

__all__ = [
    "FIRST_PARTITIONS_BACKOFF",
    "INITIALIZE",
    "PREPARE",
    "RequestPause",
    "TransactionListener",
    "TransactionManager",
]

#: The pauses before the first partitions of a transaction are added again: the one before is about to be complete, which
#: takes some milliseconds. Java always waits for 20 ms (TransactionManager.ADD_PARTITIONS_RETRY_BACKOFF_MS), which is most
#: of the time of transactions that follow each other.
FIRST_PARTITIONS_BACKOFF = ExponentialBackoff(0.002, 0.020)

_TRANSACTION_VERSION_2 = 2
#: Produce 12 is the first that adds partitions to a transaction by itself (LAST_STABLE_VERSION_BEFORE_TRANSACTION_V2).
_HIGHEST_PRODUCE_TV1 = 11
_HIGHEST_PRODUCE = 13

#: The name of the operation that `TransactionManager.initialize` begins.
INITIALIZE = "init_transactions"
#: The name of the operation that `TransactionManager.prepare` begins.
PREPARE = "prepare_transaction"
#: What a producer of two-phase commits asks for: the transaction stays open until it is decided elsewhere (KIP-939).
_NO_TIMEOUT_MS = 2**31 - 1


class RequestPause(Enum):
    """How long to wait before the next request."""

    NONE = auto()
    SHORT = auto()  # that of FIRST_PARTITIONS_BACKOFF, or the usual one where that is shorter
    BACKOFF = auto()  # the usual one, after `TransactionManager.attempts` failures


class TransactionListener(Protocol):
    """Whom a `TransactionManager` tells what it has decided. All of it is called in the middle of a decision."""

    def wake(self) -> None:
        """There may be a next request now."""
        ...

    def partitions_added(self, partitions: Collection[TopicPartition]) -> None:
        """Batches for these may be drained now."""
        ...

    def producer_id_changed(self, producer_id: int, epoch: int) -> None:
        """All sequences begin at 0, under this id and epoch."""
        ...

    def drop_undrained(self, error: KafkaError) -> None:
        """Batches that never left are to fail; those that did are to go on until their fate is known."""
        ...

    def fail_all(self, error: KafkaError) -> None:
        """Nothing will be sent any more."""
        ...


class _OffsetCommit:
    """Offsets of a group on their way into the transaction."""

    __slots__ = ("added", "group", "offsets", "operation")

    def __init__(
        self, group: ConsumerGroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata], operation: Operation
    ) -> None:
        self.group = group
        self.offsets = dict(offsets)  # those that are not taken yet
        self.operation = operation
        self.added = False  # AddOffsetsToTxn was answered


class TransactionManager:
    """The transactions of one producer. Decides; never waits, reads no clock, opens no socket.

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
        self.state = State.UNINITIALIZED
        self.producer: ProducerIdAndEpoch | None = None
        self.prepared: PreparedTransactionState | None = None  # what the outer coordinator knows it by
        self.last_error: KafkaError | None = None  # why it is in an error state
        self.abort_refused: KafkaError | None = None  # where there was nothing to abort: why
        self.is_v2 = False
        self.attempts = 0  # how often the present request failed
        self.refusal: KafkaError | None = None  # why it was refused last, where it is asked again
        self._timeout_ms = _NO_TIMEOUT_MS if enable_2pc else timeout_ms
        self._listener = listener
        self._transaction_version = transaction_version
        self._enable_2pc = enable_2pc
        self._keep_prepared = False
        self._key = CoordinatorKey(CoordinatorType.TRANSACTION, transactional_id)
        self._coordinators = {} if coordinators is None else coordinators
        self._in_flight: CoordinatorRequest | None = None
        self._asked: frozenset[TopicPartition] = frozenset()  # what the last AddPartitionsToTxn was about
        self._committing = _OffsetCommit(ConsumerGroupMetadata(""), {}, Operation(""))  # likewise of offsets
        self._operation: Operation | None = None  # the last one that changes the state
        self._can_bump = False  # the coordinator knows KIP-360
        self.may_end = True  # False where the transaction is somebody else's
        self._of_handle = False  # the transaction was not begun here
        self._ended_in: ProducerIdAndEpoch | None = None  # under what the last transaction with partitions was ended
        self._knows_version = True  # False where no broker was asked before the transaction began
        self._bump_required = False
        self._reset()

    def _reset(self) -> None:
        """What is known of a transaction that has not begun."""
        self._waiting: set[TopicPartition] = set()  # to be added; nothing may be drained for them
        self._added: set[TopicPartition] = set()
        self._offsets: deque[_OffsetCommit] = deque()
        self._started = False  # the coordinator knows that there is a transaction
        self._maybe_started = False  # it may know
        self._commit_in_doubt = False  # an attempt at the commit may have succeeded
        self._has_ended = False  # as it should have; only the next epoch is missing
        self._preparing = False  # it is prepared when everything in it is there
        self._shared = False  # others write into it by a handle

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
        manager.state = State.IN_TRANSACTION
        manager.producer = ProducerIdAndEpoch(handle.producer_id, handle.producer_epoch)
        manager._knows_version = False
        manager.may_end = may_end
        manager._of_handle = manager._shared = manager._started = True
        return manager

    # -- for the user -------------------------------------------------------------------------------------------------

    @property
    def is_shared(self) -> bool:
        """Whether others may write into the open transaction."""
        return self._shared

    @property
    def has_partitions(self) -> bool:
        """Whether records were put into the open transaction, or are about to be."""
        return bool(self._added or self._waiting)

    @property
    def offsets_under_way(self) -> Operation | None:
        """The next of the calls whose offsets are still to be taken into the transaction."""
        return self._offsets[0].operation if self._offsets else None

    @property
    def pending(self) -> Operation | None:
        """The call whose outcome nobody has seen yet, if there is one."""
        operation = self._operation
        return None if operation is None or operation.is_acknowledged else operation

    def initialize(self, *, keep_prepared: bool = False) -> Operation:
        """Get a producer id; whatever an earlier producer with this transactional id left open is aborted.

        With ``keep_prepared`` (KIP-939) a prepared transaction is kept, and the state is PREPARED_TRANSACTION afterwards.
        Raises `TransactionStateError`, or the error that ended this producer's transactions.
        """
        if keep_prepared:
            self._check_two_phase("init_transactions(keep_prepared_txn=True)")

        def keep() -> None:
            self._keep_prepared = keep_prepared

        return self._once(INITIALIZE, State.INITIALIZING, keep)

    def begin(self) -> None:
        """Open a transaction. Raises as `initialize` does."""
        self._check_may_end("begin_transaction")
        self._check("begin_transaction")
        self._enter(State.IN_TRANSACTION, "begin_transaction")

    def check_may_send(self) -> None:
        """Raise unless records may be put into the transaction now."""
        self._check("send", State.IN_TRANSACTION)

    def add_partition(self, partition: TopicPartition) -> None:
        """Records for this partition are about to follow. Raises as `check_may_send` does."""
        self._check("send", State.IN_TRANSACTION)
        if partition in self._added or partition in self._waiting:
            return
        self._look_at_version()
        if self.is_v2:
            self._added.add(partition)
        else:
            self._waiting.add(partition)
            self._listener.wake()

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> Operation:
        """Commit offsets of a group with the transaction (KIP-447). Raises as `check_may_send` does."""
        name = "send_offsets_to_transaction"
        self._check(name, State.IN_TRANSACTION)
        operation = Operation(name)
        if offsets:
            self._offsets.append(_OffsetCommit(group, offsets, operation))
            self._listener.wake()
        else:
            operation.finish()
        return operation

    def prepare(self) -> Operation:
        """Promise that the transaction can be committed, which from then on is decided elsewhere (KIP-939).

        It takes nothing more, and is ``prepared`` when everything in it is there. Raises `TransactionStateError`, or why it
        failed.
        """
        self._check_may_end(PREPARE)
        pending = self.pending
        if pending is not None and pending.name == PREPARE:
            return pending
        self._check(PREPARE, State.IN_TRANSACTION)
        self._check_two_phase(PREPARE + "()")
        operation = self._operation = Operation(PREPARE)
        self._preparing = True
        self._listener.wake()
        return operation

    def commit(self) -> Operation:
        """Commit when everything in the transaction is there. Raises `TransactionStateError`, or why that is impossible."""
        return self._once("commit_transaction", State.COMMITTING)

    def abort(self) -> Operation:
        """Abort; what has not left yet never will. Raises `TransactionStateError`, or what ended the producer."""
        return self._once("abort_transaction", State.ABORTING, self._give_up)

    def complete(self, prepared: PreparedTransactionState) -> Operation:
        """Commit the prepared transaction if it is the one named, else abort it (KIP-939).

        Called again it goes on with what it began. Raises `TransactionStateError` where none is prepared.
        """
        name = "complete_transaction"
        self._check_two_phase(name + "()")
        pending = self.pending
        if pending is not None and pending.name in _COMPLETING:
            return pending
        self._check(name, State.PREPARED_TRANSACTION)
        return self.commit() if prepared == self.prepared else self.abort()

    def handle(self) -> TransactionHandle:
        """Let others write into the open transaction. Raises as `check_may_send` does.

        Raises `TransactionStateError` as well where the brokers know sequences of an earlier transaction in this epoch: what
        others begin with would be taken for repeats of these.
        """
        self._check_may_end("transaction_handle")
        self._check("transaction_handle", State.IN_TRANSACTION)
        assert self.producer is not None
        if self.producer == self._ended_in:
            self._bump_required = True
            raise TransactionStateError(
                f"transaction_handle() is not possible in this transaction: with version 1 of the protocol an earlier "
                f"one of transactional_id {self.transactional_id!r} counted in the same epoch, and brokers would take the "
                "records of others for repeats of its. Commit or abort it; the next one can be shared."
            )
        self._shared = self._started = True
        if not self.is_v2:
            self._bump_required = True
        return TransactionHandle(self.transactional_id, *self.producer)

    # -- for the Sender: answered at once -------------------------------------------------------------------------------

    def may_drain(self, partition: TopicPartition) -> bool:
        """Whether batches for this partition may leave."""
        return partition in self._added and self.state is not State.FATAL_ERROR

    def drained(self) -> None:
        """A batch leaves, and with version 2 that is what adds its partition."""
        self._started = True

    @property
    def highest_produce_version(self) -> int:
        """The highest version of Produce that the transaction may use."""
        return _HIGHEST_PRODUCE if self.is_v2 else _HIGHEST_PRODUCE_TV1

    def batch_failed(self, error: KafkaError) -> None:
        """A batch of the transaction will not be sent again, and was not acknowledged: it cannot be committed.

        One that failed with an error of ours was dropped because of it, which says nothing new - unless it tells of another
        writer in its partition.
        """
        if isinstance(error, SharedPartition):
            self._abortable(error)
            return
        if isinstance(error, TransactionError):
            return
        if isinstance(error, BrokerError):
            action = action_for_batch(error.code)
        else:
            action = Action.FATAL if isinstance(error, UnsupportedVersion) else Action.ABORTABLE
        self._do(action, f"A batch of transactional_id {self.transactional_id!r} failed: {error}", error)

    @property
    def awaits_batches(self) -> bool:
        """Whether something goes on when the last batch has its outcome."""
        return self._preparing or self.state in _ENDING

    def sequences_lost(self, error: KafkaError) -> None:
        """It cannot be told which of the batches are in the log, so that no further one can be numbered in this epoch."""
        what = f"The sequences of transactional_id {self.transactional_id!r} are in doubt: {error}"
        self._do(Action.BUMP_EPOCH, what, error)

    def close(self, error: KafkaError) -> None:
        """End everything now; whoever waits is told this error, or that the outcome of a commit is unknown."""
        self._fatal(error)

    # -- for who carries the requests -----------------------------------------------------------------------------------

    def next_request(self, *, has_incomplete_batches: bool) -> CoordinatorRequest | None:
        """What is to be asked now; None while a request is under way, and where there is nothing to ask.

        Ask again after `TransactionListener.wake`, after an answer, and when the last batch has its outcome.
        """
        if self._in_flight is not None:
            return None
        request = self._next(has_incomplete_batches)
        self._in_flight = request
        return request

    def answered(self, request: CoordinatorRequest, answer: CoordinatorAnswer, version: int) -> RequestPause:
        """What the request's ``read`` made of the response; the request was sent in this version."""
        if request is not self._in_flight:  # given up in the meantime
            return RequestPause.NONE
        self._in_flight = None
        return self._take(request, answer, version)

    def lost(self, request: CoordinatorRequest, *, sent: bool = True) -> RequestPause:
        """No answer came, or none that could be read; ``sent``: unless it certainly never left."""
        if request is not self._in_flight:
            return RequestPause.NONE
        self._in_flight = None
        if request.rpc is not Rpc.FIND_COORDINATOR:
            self._coordinators.pop(request.about, None)
        if sent:
            self._note_doubt(request)
            if request.rpc in _OF_A_TRANSACTION and not self.is_v2:
                self._bump_required = True
        self.attempts += 1
        return RequestPause.BACKOFF

    def unsendable(self, request: CoordinatorRequest, error: UnsupportedVersion) -> None:
        """It can never be sent: the broker does not speak it."""
        if request is not self._in_flight:
            return
        self._in_flight = None
        what = f"{request.rpc.value} for {request.about} cannot be sent: {error}"
        self._do(Action.FATAL, self._explained(what, request), error)

    @property
    def is_asking(self) -> bool:
        """Whether a request is under way."""
        return self._in_flight is not None

    def retract(self, error: KafkaError) -> None:
        """Fail the pending call with this error if nothing of it can have been done; it may be called again then.

        To be called while no request is under way. A commit that was never sent leaves the transaction open. What may have
        been sent, an abort and offsets go on.
        """
        if self.state is State.INITIALIZING:
            self._uninitialize(error)
        elif self.state is State.COMMITTING and not self._commit_may_succeed:
            # Not in the table of moves, which says what calls may do as well: none of them can do this.
            self._set(State.IN_TRANSACTION if self.prepared is None else State.PREPARED_TRANSACTION)
            self.attempts = 0
            self._finish(error)

    # -- what to ask --------------------------------------------------------------------------------------------------

    def _next(self, has_incomplete_batches: bool) -> CoordinatorRequest | None:
        if self.state is State.INITIALIZING:
            return self._to_coordinator(self._key, self._init_producer_id)
        if self.state not in _ASKING:
            return None
        if self._coordinators:  # a broker has answered
            self._look_at_version()
        if self._waiting:
            return self._to_coordinator(self._key, self._add_partitions)
        if self._offsets:
            commit = self._offsets[0]
            if commit.added or self.is_v2:
                return self._to_coordinator(_group_key(commit), self._commit_offsets)
            return self._to_coordinator(self._key, self._add_offsets)
        if has_incomplete_batches:
            return None
        if self.state is State.IN_TRANSACTION:
            if self._preparing:
                self._prepared(self._identity)
            return None
        if self._started or self._maybe_started:
            return self._to_coordinator(self._key, self._end)
        self._ended()
        return self._next(has_incomplete_batches)

    def _to_coordinator(self, key: CoordinatorKey, make: Callable[[int], CoordinatorRequest]) -> CoordinatorRequest:
        node_id = self._coordinators.get(key)
        return find_coordinator(key) if node_id is None else make(node_id)

    def _init_producer_id(self, node_id: int) -> CoordinatorRequest:
        current = self.producer if self._bump_required and self._can_bump else None
        return init_producer_id(
            self._key,
            node_id,
            self._timeout_ms,
            current,
            enable_2pc=self._enable_2pc,
            keep_prepared=self._keep_prepared,
        )

    def _add_partitions(self, node_id: int) -> CoordinatorRequest:
        self._asked = frozenset(self._waiting)
        return add_partitions(self._key, node_id, self._identity, self._asked)

    def _add_offsets(self, node_id: int) -> CoordinatorRequest:
        commit = self._committing = self._offsets[0]
        return add_offsets(self._key, node_id, self._identity, commit.group.group_id)

    def _commit_offsets(self, node_id: int) -> CoordinatorRequest:
        commit = self._committing = self._offsets[0]
        self._started = True  # with version 2 this is what adds the group, answered or not
        return offset_commit(
            self.transactional_id, node_id, self._identity, commit.group, commit.offsets, tv2=self.is_v2
        )

    def _end(self, node_id: int) -> CoordinatorRequest:
        commit = self.state is State.COMMITTING
        return end_transaction(self._key, node_id, self._identity, commit=commit, tv2=self.is_v2)

    @property
    def _identity(self) -> ProducerIdAndEpoch:
        assert self.producer is not None  # else the state were UNINITIALIZED or INITIALIZING
        return self.producer

    # -- what the answers change ----------------------------------------------------------------------------------------

    def _take(self, request: CoordinatorRequest, answer: CoordinatorAnswer, version: int) -> RequestPause:
        match answer:
            case CoordinatorFound():
                return self._take_coordinator(request, answer)
            case ProducerIdGiven():
                return self._take_producer_id(request, answer, version)
            case PartitionsAdded(codes):
                return self._take_partitions(request, codes)
            case OffsetsAdded(code):
                return self._take_offsets_added(request, code)
            case OffsetsTaken(codes):
                return self._take_offsets(request, codes)
            case TransactionEnded():
                return self._take_end(request, answer)

    def _take_coordinator(self, request: CoordinatorRequest, found: CoordinatorFound) -> RequestPause:
        if found.code == ErrorCode.NONE:
            self._coordinators[request.about] = found.node_id
            return RequestPause.NONE
        return self._refused(request, found.code, message=found.message)

    def _take_producer_id(self, request: CoordinatorRequest, given: ProducerIdGiven, version: int) -> RequestPause:
        if given.code != ErrorCode.NONE:
            return self._refused(request, given.code)
        self._can_bump = version >= FIRST_VERSION_THAT_BUMPS
        self._bump_required = False
        self._read_version()
        self._count_under(given.producer)
        if self._keep_prepared and given.ongoing is not None:
            self._started = True
            self._prepared(given.ongoing)
        else:
            self._move(State.READY)
            self._finish(None)
        self._keep_prepared = False
        self.attempts = 0
        return RequestPause.NONE

    def _take_partitions(self, request: CoordinatorRequest, codes: Mapping[TopicPartition, int]) -> RequestPause:
        code = decisive_code(request.rpc, codes.values())
        if code != ErrorCode.NONE:
            return self._refused(request, code, partitions=codes)
        self._started = True
        self._added |= self._asked
        self._waiting -= self._asked
        self._listener.partitions_added(self._asked)
        return self._succeeded(None)

    def _take_offsets_added(self, request: CoordinatorRequest, code: int) -> RequestPause:
        if code != ErrorCode.NONE:
            return self._refused(request, code)
        self._started = True
        self._committing.added = True
        return self._succeeded(None)

    def _take_offsets(self, request: CoordinatorRequest, codes: Mapping[TopicPartition, int]) -> RequestPause:
        commit = self._committing
        for partition, code in codes.items():
            if code == ErrorCode.NONE:
                commit.offsets.pop(partition, None)
        code = decisive_code(request.rpc, codes.values())
        if code != ErrorCode.NONE:
            return self._refused(request, code, partitions=codes)
        if commit in self._offsets:
            self._offsets.remove(commit)
        return self._succeeded(commit.operation)

    def _take_end(self, request: CoordinatorRequest, ended: TransactionEnded) -> RequestPause:
        if ended.code != ErrorCode.NONE:
            return self._refused(request, ended.code)
        if self._added:
            self._ended_in = self.producer
        if ended.following.producer_id >= 0 and ended.following != self.producer:
            self._count_under(ended.following)
        elif self.is_v2:
            self._bump_required = True
        self._ended()
        return RequestPause.NONE

    def _refused(
        self,
        request: CoordinatorRequest,
        code: int,
        *,
        message: str | None = None,
        partitions: Mapping[TopicPartition, int] | None = None,
    ) -> RequestPause:
        """Do what the tables say of an error code."""
        action = action_for(request.rpc, code)
        if may_be_done(request.rpc, code):
            self._note_doubt(request)
        if action in _PAUSES:
            if action is Action.FIND_COORDINATOR:
                self._coordinators.pop(request.about, None)
            self.attempts += 1
            self.refusal = broker_error(code, message)
            return RequestPause.BACKOFF if self._added else _PAUSES[action]
        self.attempts = 0
        error = broker_error(code, message)
        concerned = sorted(each for each, its_code in (partitions or {}).items() if its_code == code)
        of = f" with {', '.join(map(str, concerned))}" if concerned else ""
        if request.rpc is Rpc.ADD_OFFSETS_TO_TXN:
            of = f" with group {self._committing.group.group_id!r}"
        what = f"{request.rpc.value} for {request.about}{of} was refused: {error}"
        if code in _NO_TWO_PHASE:
            what = self._explained(what, request)
        self._settle(request)
        if self._ends_all_the_same(request, action):
            self.abort_refused = error
            self._bump_required = True
            self._ended()
        elif request.rpc is Rpc.COMMIT and self._commit_in_doubt:
            self._fatal(error)
        elif request.rpc is Rpc.COMMIT and action is Action.INVALID_STATE and (self._shared or self.is_v2):
            self._do(Action.ABORTABLE, f"{what}; {_NOTHING_TO_COMMIT[self._shared]}", error)
        elif request.rpc is Rpc.FIND_COORDINATOR and request.about == self._key and self.state is State.ABORTING:
            self._do(Action.FATAL, what, error)  # there is no other way to abort
        else:
            self._do(action, what, error)
        return RequestPause.NONE

    def _explained(self, what: str, request: CoordinatorRequest) -> str:
        if request.rpc is not Rpc.INIT_PRODUCER_ID or not self._enable_2pc:
            return what
        return f"{what.rstrip('.')}. {two_phase_needs(keep_prepared=self._keep_prepared)}"

    def _ends_all_the_same(self, request: CoordinatorRequest, action: Action) -> bool:
        """Whether an abort was refused because there is nothing to abort any more; the next epoch makes sure of it."""
        if request.rpc is not Rpc.ABORT:
            return False
        if action is Action.BUMP_EPOCH:
            return self._can_bump or self._of_handle
        return action is Action.INVALID_STATE and (self._shared or not self._started)

    def _settle(self, request: CoordinatorRequest) -> None:
        """A clear no: this need not be asked again."""
        if request.rpc is Rpc.ADD_PARTITIONS_TO_TXN:
            self._waiting -= self._asked

    def _note_doubt(self, request: CoordinatorRequest) -> None:
        """The coordinator may have done it; nobody knows."""
        if request.rpc in (Rpc.ADD_PARTITIONS_TO_TXN, Rpc.ADD_OFFSETS_TO_TXN):
            self._maybe_started = True
        elif request.rpc is Rpc.COMMIT:
            self._commit_in_doubt = True

    # -- changing the state -------------------------------------------------------------------------------------------

    def _prepared(self, producer: ProducerIdAndEpoch) -> None:
        """Everything is there, and an outer coordinator decides what becomes of it."""
        self._preparing = False
        self.prepared = PreparedTransactionState(*producer)
        self._move(State.PREPARED_TRANSACTION)
        self._finish(None)

    def _ended(self) -> None:
        """The transaction is over, in the way that was asked for."""
        self._reset()
        self.prepared = None
        self.attempts = 0
        if self._of_handle:
            # Its sequences, and who else holds the handle, are not known here.
            self._of_handle = self._bump_required = False
            self._move(State.READY)
            self._forget_producer()
            return self._finish(None)
        was_v2 = self.is_v2
        self._read_version()
        if self._bump_required or (self.is_v2 and not was_v2):
            self._bump_required = self._has_ended = True
            return self._move(State.INITIALIZING)
        self._move(State.READY)
        return self._finish(None)

    def _do(self, action: Action, what: str, cause: KafkaError) -> None:
        """Go into the state that an error asks for."""
        if action is Action.BUMP_EPOCH and not (self._can_bump or self.is_v2 or self._of_handle):
            action = Action.FATAL
        if action is Action.UNINITIALIZED and self.state is not State.INITIALIZING:
            action = Action.FATAL
        error = transaction_error(action, what, cause)
        if action in _ABORTABLE:
            self._abortable(error)
        elif action is Action.UNINITIALIZED:
            self._uninitialize(error)
        else:
            self._fatal(error)

    def _abortable(self, error: KafkaError) -> None:
        if self.state is State.INITIALIZING:
            return self._uninitialize(error)
        if self.state not in _OPEN:
            return None  # it is not about this transaction
        if self.state is State.PREPARED_TRANSACTION or self._commit_may_succeed:
            return self._fatal(error)
        if self._can_bump and not self.is_v2:
            self._bump_required = True
        if self.state in _GIVEN_UP:
            return None  # the first error is the reason
        self.last_error = error
        self._move(State.ABORTABLE_ERROR)
        self._finish(error)
        self._fail_offsets(error)
        self._waiting.clear()
        return self._listener.drop_undrained(error)

    def _give_up(self) -> None:
        """The user wants no more of it."""
        error = TransactionAborted(f"The transaction of transactional_id {self.transactional_id!r} was aborted.")
        self._fail_offsets(error)
        self._waiting.clear()
        self._listener.drop_undrained(error)

    def _uninitialize(self, error: KafkaError) -> None:
        """There is no producer id, and it may be asked for again."""
        if self.state is not State.INITIALIZING:
            return self._fatal(error)
        self._move(State.ABORTABLE_ERROR)
        self._forget_producer()
        return self._finish(error)

    def _forget_producer(self) -> None:
        self._move(State.UNINITIALIZED)
        self.producer = None
        self._bump_required = False

    def _fatal(self, error: KafkaError) -> None:
        if self.state is State.FATAL_ERROR:
            return
        if self._commit_may_succeed:
            error = commit_unknown(self.transactional_id, error)
        self.last_error = error
        self.state = State.FATAL_ERROR
        self._in_flight = None
        self._finish(error)
        self._fail_offsets(error)
        self._listener.fail_all(error)

    @property
    def _commit_may_succeed(self) -> bool:
        """Whether a commit was sent, and not refused for certain."""
        is_sent = self._in_flight is not None and self._in_flight.rpc is Rpc.COMMIT
        return self.state is State.COMMITTING and (is_sent or self._commit_in_doubt)

    def _fail_offsets(self, error: KafkaError) -> None:
        commits, self._offsets = self._offsets, deque()
        for commit in commits:
            commit.operation.finish(error)

    def _finish(self, error: KafkaError | None) -> None:
        """Tell the outcome of what is pending. What came after the end of a transaction is no matter of its commit."""
        operation = self._operation
        if operation is not None:
            operation.finish(None if self._has_ended else error)
        self._has_ended = False

    def _succeeded(self, operation: Operation | None) -> RequestPause:
        self.attempts = 0
        if operation is not None:
            operation.finish()
        return RequestPause.NONE

    def _count_under(self, producer: ProducerIdAndEpoch) -> None:
        self.producer = producer
        self._listener.producer_id_changed(producer.producer_id, producer.epoch)

    def _look_at_version(self) -> None:
        """Read the version where that had to wait until a broker was there to say it."""
        if not self._knows_version:
            self._read_version()

    def _read_version(self) -> None:
        self._knows_version = True
        self.is_v2 = self._transaction_version() >= _TRANSACTION_VERSION_2

    # -- what may be done ---------------------------------------------------------------------------------------------

    def _once(self, name: str, target: State, then: Callable[[], object] | None = None) -> Operation:
        """Start what changes the state, or go on with it (rule 2)."""
        self._check_may_end(name)
        pending = self.pending
        if pending is not None and pending.name == name:
            return pending
        self._check_pending(name)
        if not (target is State.ABORTING and self.state is State.ABORTABLE_ERROR):
            self._check_error()
        self._enter(target, name)
        operation = self._operation = Operation(name)
        if then is not None:
            then()
        self._listener.wake()
        return operation

    def _check(self, name: str, needed: State | None = None) -> None:
        self._check_pending(name)
        self._check_error()
        if needed is not None and self.state is not needed:
            raise self._not_now(name)

    def _check_pending(self, name: str) -> None:
        pending = self.pending
        if pending is not None:
            raise TransactionStateError(
                f"{name}() is not possible: the outcome of {pending.name}() for transactional_id "
                f"{self.transactional_id!r} was not seen yet. Call {pending.name}() again; it goes on with the same."
            )

    def _check_may_end(self, name: str) -> None:
        if not self.may_end:
            raise TransactionStateError(
                f"{name}() is not possible: this producer only writes into the transaction of transactional_id "
                f"{self.transactional_id!r}, by its handle. Whoever began it ends it."
            )

    def _check_two_phase(self, call: str) -> None:
        if not self._enable_2pc:
            raise TransactionStateError(
                f"{call} needs transaction_two_phase_commit_enable=True, which the producer of transactional_id "
                f"{self.transactional_id!r} does not have."
            )

    def _check_error(self) -> None:
        if self.state in _FAILED:
            assert self.last_error is not None
            error = type(self.last_error)(*self.last_error.args)  # each call raises its own
            error.__cause__ = self.last_error.__cause__
            raise error

    def _not_now(self, name: str) -> TransactionStateError:
        return TransactionStateError(
            f"{name}() is not possible: the producer of transactional_id {self.transactional_id!r} {_STANDS[self.state]}."
        )

    def _enter(self, target: State, name: str) -> None:
        """A move that the user asked for; nothing changes where it is not allowed."""
        if target not in TRANSITIONS[self.state]:
            raise self._not_now(name)
        self._set(target)

    def _move(self, target: State) -> None:
        """A move of our own. One that is not allowed is a bug, after which nothing can be relied on (KAFKA-14831)."""
        if target not in TRANSITIONS[self.state]:
            bug = f"transactional_id {self.transactional_id!r} cannot go from {self.state.name} to {target.name}"
            self._fatal(TransactionFatal(f"A bug in aioproducer: {bug}."))
            raise TransactionStateError(f"A bug in aioproducer: {bug}.")
        self._set(target)

    def _set(self, target: State) -> None:
        self.state = target
        if target not in _FAILED:
            self.last_error = None


#: The states in which partitions and offsets are added and the transaction is ended.
_ASKING = frozenset({State.IN_TRANSACTION, State.COMMITTING, State.ABORTING})
_ENDING = frozenset({State.COMMITTING, State.ABORTING})
#: What may become of a prepared transaction, by the name of the call.
_COMPLETING = frozenset({"commit_transaction", "abort_transaction"})
#: How a cluster says that it has no part in two-phase commits.
_NO_TWO_PHASE = frozenset({ErrorCode.UNSUPPORTED_VERSION, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED})
_GIVEN_UP = frozenset({State.ABORTABLE_ERROR, State.ABORTING})
_FAILED = frozenset({State.ABORTABLE_ERROR, State.FATAL_ERROR})
_OPEN = _ASKING | _GIVEN_UP | {State.PREPARED_TRANSACTION}
_ABORTABLE = frozenset({Action.ABORTABLE, Action.COMMIT_FAILED, Action.BUMP_EPOCH})
_OF_OFFSETS = frozenset({Rpc.ADD_OFFSETS_TO_TXN, Rpc.TXN_OFFSET_COMMIT})
_OF_A_TRANSACTION = _OF_OFFSETS | {Rpc.ADD_PARTITIONS_TO_TXN, Rpc.COMMIT, Rpc.ABORT}

#: Why there is nothing that a commit could be about, by whether others write into the transaction by a handle. With version
#: 2 this is how a coordinator refuses an epoch that its own abort has just bumped (KAFKA-20785); whoever was fenced by that
#: is told so when it aborts in turn.
_NOTHING_TO_COMMIT: Mapping[bool, str] = {
    True: "either nothing was written into it, or somebody else with its handle aborted it",
    False: "the coordinator has aborted it, as it was open for longer than transaction_timeout_ms, or as another producer "
    "with this transactional_id took over",
}

#: After which answers the same is asked again, and when.
_PAUSES: Mapping[Action, RequestPause] = {
    Action.RETRY: RequestPause.BACKOFF,
    Action.RETRY_SOON: RequestPause.SHORT,
    Action.FIND_COORDINATOR: RequestPause.BACKOFF,
}

#: What each state means to somebody who wanted something else.
_STANDS: Mapping[State, str] = {
    State.UNINITIALIZED: "is not initialized; call init_transactions() first",
    State.INITIALIZING: "is being initialized; wait for init_transactions()",
    State.READY: "has no open transaction; begin one first",
    State.IN_TRANSACTION: "has an open transaction; commit or abort it first",
    State.PREPARED_TRANSACTION: "has prepared its transaction, which can only be committed, aborted or completed now",
    State.COMMITTING: "is committing its transaction",
    State.ABORTING: "is aborting its transaction",
    State.ABORTABLE_ERROR: "has to abort its transaction first",
    State.FATAL_ERROR: "can do no more transactions; close it",
}


def _group_key(commit: _OffsetCommit) -> CoordinatorKey:
    return CoordinatorKey(CoordinatorType.GROUP, commit.group.group_id)
