"""The next request to a coordinator, and what its answer changes (rule 1 of `manager`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aioproducer.core.transactions.answers import (
    CoordinatorAnswer,
    CoordinatorFound,
    OffsetsAdded,
    OffsetsTaken,
    PartitionsAdded,
    ProducerIdGiven,
    TransactionEnded,
)
from aioproducer.core.transactions.commit_and_abort import CommitAndAbort
from aioproducer.core.transactions.contents import TransactionContents
from aioproducer.core.transactions.epochs import Epochs
from aioproducer.core.transactions.error_codes import Action, action_for, decisive_code, may_be_done
from aioproducer.core.transactions.failures import two_phase_needs
from aioproducer.core.transactions.identities import CoordinatorKey, CoordinatorType
from aioproducer.core.transactions.in_flight import RequestInFlight
from aioproducer.core.transactions.listener import TransactionListener
from aioproducer.core.transactions.pauses import RequestPause
from aioproducer.core.transactions.requests import (
    CoordinatorRequest,
    Rpc,
    add_offsets,
    add_partitions,
    end_transaction,
    find_coordinator,
    init_producer_id,
    offset_commit,
)
from aioproducer.core.transactions.state_machine import StateMachine
from aioproducer.core.transactions.states import State
from aioproducer.core.transactions.topic_ids import TopicIds
from aioproducer.errors import BrokerError, UnsupportedVersion
from aioproducer.protocol.error_codes import ErrorCode, broker_error
from aioproducer.types import TopicPartition

__all__ = ["NextRequest"]

#: The timeout for two-phase commits: the transaction stays open until the outer coordinator decides (KIP-939).
_NO_TIMEOUT_MS = 2**31 - 1

#: The states in which partitions and offsets are added and the transaction is ended.
_ASKING = frozenset({State.IN_TRANSACTION, State.COMMITTING, State.ABORTING})
_OF_A_TRANSACTION = frozenset(
    {Rpc.ADD_PARTITIONS_TO_TXN, Rpc.ADD_OFFSETS_TO_TXN, Rpc.TXN_OFFSET_COMMIT, Rpc.COMMIT, Rpc.ABORT}
)
#: The errors with which a cluster refuses two-phase commits.
_NO_TWO_PHASE = frozenset({ErrorCode.UNSUPPORTED_VERSION, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED})

#: Why there is nothing to commit, by whether the transaction is shared through a handle. With version 2 a coordinator
#: refuses an epoch that its own abort has just bumped like this (KAFKA-20785); a producer that was fenced by that gets
#: the error when it aborts.
_NOTHING_TO_COMMIT: Mapping[bool, str] = {
    True: "either nothing was written into it, or another holder of its handle aborted it",
    False: "the coordinator has aborted it: it was open for longer than transaction_timeout_ms, or another producer "
    "with this transactional_id took over",
}

#: The answers after which the same request is repeated, and when.
_PAUSES: Mapping[Action, RequestPause] = {
    Action.RETRY: RequestPause.BACKOFF,
    Action.RETRY_SOON: RequestPause.SHORT,
    Action.FIND_COORDINATOR: RequestPause.BACKOFF,
}


class NextRequest:
    """Sends the coordinators of the transaction and of groups one request at a time, and applies their answers.

    ``coordinators`` and ``topic_ids`` are the known ones. With ``keep_prepared`` (KIP-939) the next producer id is requested
    without aborting a prepared transaction.
    """

    def __init__(
        self,
        transactional_id: str,
        machine: StateMachine,
        contents: TransactionContents,
        epochs: Epochs,
        in_flight: RequestInFlight,
        outcomes: CommitAndAbort,
        listener: TransactionListener,
        coordinators: dict[CoordinatorKey, int],
        topic_ids: TopicIds,
        *,
        timeout_ms: int,
        enable_2pc: bool,
    ) -> None:
        self.keep_prepared = False
        self._key = CoordinatorKey(CoordinatorType.TRANSACTION, transactional_id)
        self._machine = machine
        self._contents = contents
        self._epochs = epochs
        self._in_flight = in_flight
        self._outcomes = outcomes
        self._listener = listener
        self._coordinators = coordinators
        self._topic_ids = topic_ids
        self._timeout_ms = _NO_TIMEOUT_MS if enable_2pc else timeout_ms
        self._enable_2pc = enable_2pc

    def next_request(self, *, has_incomplete_batches: bool) -> CoordinatorRequest | None:
        """Return the request to send now; None while one is in flight, or if there is nothing to ask."""
        if self._in_flight.is_asking:
            return None
        request = self._next(has_incomplete_batches)
        self._in_flight.put(request)
        return request

    def apply_answer(self, request: CoordinatorRequest, answer: CoordinatorAnswer, version: int) -> RequestPause:
        """Apply the result of the request's ``read``; the request was sent in this version."""
        if not self._in_flight.take(request):
            return RequestPause.NONE
        return self._take(request, answer, version)

    def lost(self, request: CoordinatorRequest, *, sent: bool) -> RequestPause:
        """No readable answer came; ``sent`` is False only if the request was certainly not sent."""
        if not self._in_flight.take(request):
            return RequestPause.NONE
        if request.rpc is not Rpc.FIND_COORDINATOR:
            self._coordinators.pop(request.about, None)
        if sent:
            self._note_doubt(request)
            if request.rpc in _OF_A_TRANSACTION:
                self._epochs.require_bump_of_v1()
        self._in_flight.failed()
        return RequestPause.BACKOFF

    def unsendable(self, request: CoordinatorRequest, error: UnsupportedVersion) -> None:
        """The request can never be sent: the broker does not support it."""
        if not self._in_flight.take(request):
            return
        what = f"{request.rpc.value} for {request.about} cannot be sent: {error}"
        self._outcomes.do(Action.FATAL, self._explained(what, request), error)

    # -- the next request --------------------------------------------------------------------------------------------------

    def _next(self, has_incomplete_batches: bool) -> CoordinatorRequest | None:
        if self._machine.state is State.INITIALIZING:
            return self._to_coordinator(self._key, self._init_producer_id)
        if self._machine.state not in _ASKING:
            return None
        if self._coordinators:  # a broker has answered
            self._epochs.look_at_version()
        if self._contents.has_waiting_partitions:
            return self._to_coordinator(self._key, self._add_partitions)
        commit = self._contents.next_offsets
        if commit is not None:
            if commit.added or self._epochs.is_v2:
                return self._to_coordinator(commit.coordinator, self._commit_offsets)
            return self._to_coordinator(self._key, self._add_offsets)
        if has_incomplete_batches:
            return None
        if self._machine.state is State.IN_TRANSACTION:
            if self._contents.is_preparing:
                self._outcomes.is_prepared(self._epochs.identity)
            return None
        if self._contents.is_started or self._contents.is_maybe_started:
            return self._to_coordinator(self._key, self._end)
        self._outcomes.ended()
        return self._next(has_incomplete_batches)

    def _to_coordinator(self, key: CoordinatorKey, make: Callable[[int], CoordinatorRequest]) -> CoordinatorRequest:
        node_id = self._coordinators.get(key)
        return find_coordinator(key) if node_id is None else make(node_id)

    def _init_producer_id(self, node_id: int) -> CoordinatorRequest:
        return init_producer_id(
            self._key,
            node_id,
            self._timeout_ms,
            self._epochs.to_bump,
            enable_2pc=self._enable_2pc,
            keep_prepared=self.keep_prepared,
        )

    def _add_partitions(self, node_id: int) -> CoordinatorRequest:
        return add_partitions(self._key, node_id, self._epochs.identity, self._contents.ask_for_partitions())

    def _add_offsets(self, node_id: int) -> CoordinatorRequest:
        commit = self._contents.ask_for_offsets()
        return add_offsets(self._key, node_id, self._epochs.identity, commit.group.group_id)

    def _commit_offsets(self, node_id: int) -> CoordinatorRequest:
        commit = self._contents.ask_for_offsets()
        self._contents.is_started = True  # with version 2 this is what adds the group, answered or not
        return offset_commit(
            self._key.key,
            node_id,
            self._epochs.identity,
            commit.group,
            commit.offsets,
            self._topic_ids,
            tv2=self._epochs.is_v2,
        )

    def _end(self, node_id: int) -> CoordinatorRequest:
        commit = self._machine.state is State.COMMITTING
        return end_transaction(self._key, node_id, self._epochs.identity, commit=commit, tv2=self._epochs.is_v2)

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
        self._epochs.given(given.producer, version)
        if self.keep_prepared and given.ongoing is not None:
            self._contents.is_started = True
            self._outcomes.is_prepared(given.ongoing)
        else:
            self._outcomes.initialized()
        self.keep_prepared = False
        return self._succeeded()

    def _take_partitions(self, request: CoordinatorRequest, codes: Mapping[TopicPartition, int]) -> RequestPause:
        code = decisive_code(request.rpc, codes.values())
        if code != ErrorCode.NONE:
            return self._refused(request, code, partitions=codes)
        self._listener.partitions_added(self._contents.partitions_added())
        return self._succeeded()

    def _take_offsets_added(self, request: CoordinatorRequest, code: int) -> RequestPause:
        if code != ErrorCode.NONE:
            return self._refused(request, code)
        self._contents.group_added()
        return self._succeeded()

    def _take_offsets(self, request: CoordinatorRequest, codes: Mapping[TopicPartition, int]) -> RequestPause:
        self._contents.offsets_taken(codes)
        for topic in sorted({each.topic for each, code in codes.items() if code == ErrorCode.UNKNOWN_TOPIC_ID}):
            self._topic_ids.refresh(topic)
        code = decisive_code(request.rpc, codes.values())
        if code != ErrorCode.NONE:
            return self._refused(request, code, partitions=codes)
        operation = self._contents.offsets_complete()
        pause = self._succeeded()
        operation.finish()
        return pause

    def _take_end(self, request: CoordinatorRequest, ended: TransactionEnded) -> RequestPause:
        if ended.code != ErrorCode.NONE:
            return self._refused(request, ended.code)
        self._epochs.ended(ended.following, has_counted=self._contents.has_added_partitions)
        self._outcomes.ended()
        return RequestPause.NONE

    def _succeeded(self) -> RequestPause:
        self._in_flight.succeeded()
        return RequestPause.NONE

    # -- what refusals change -------------------------------------------------------------------------------------------

    def _refused(
        self,
        request: CoordinatorRequest,
        code: int,
        *,
        message: str | None = None,
        partitions: Mapping[TopicPartition, int] | None = None,
    ) -> RequestPause:
        """Take the action that the tables give for an error code."""
        action = action_for(request.rpc, code)
        if may_be_done(request.rpc, code):
            self._note_doubt(request)
        error = broker_error(code, message)
        if action in _PAUSES:
            if action is Action.FIND_COORDINATOR:
                self._coordinators.pop(request.about, None)
            self._in_flight.failed(error)
            return RequestPause.BACKOFF if self._contents.has_added_partitions else _PAUSES[action]
        self._in_flight.succeeded()
        concerned = sorted(each for each, its_code in (partitions or {}).items() if its_code == code)
        of = f" with {', '.join(map(str, concerned))}" if concerned else ""
        if request.rpc is Rpc.ADD_OFFSETS_TO_TXN:
            of = f" with group {self._contents.asked_group!r}"
        what = f"{request.rpc.value} for {request.about}{of} was refused: {error}"
        if code in _NO_TWO_PHASE:
            what = self._explained(what, request)
        if request.rpc is Rpc.ADD_PARTITIONS_TO_TXN:
            self._contents.partitions_refused()
        self._end_with(request, action, what, error)
        return RequestPause.NONE

    def _end_with(self, request: CoordinatorRequest, action: Action, what: str, error: BrokerError) -> None:
        """A final refusal: the request is not repeated. This decides what is not in the tables."""
        contents = self._contents
        may_be_gone = contents.is_shared or self._epochs.is_v2
        if self._ends_all_the_same(request, action):
            self._outcomes.ended_before(error)
        elif request.rpc is Rpc.COMMIT and contents.is_commit_in_doubt:
            self._outcomes.fatal(error)
        elif request.rpc is Rpc.COMMIT and action is Action.INVALID_STATE and may_be_gone:
            self._outcomes.do(Action.ABORTABLE, f"{what.rstrip('.')}; {_NOTHING_TO_COMMIT[contents.is_shared]}", error)
        elif request.rpc is Rpc.FIND_COORDINATOR and request.about == self._key and self._is_aborting:
            self._outcomes.do(Action.FATAL, what, error)  # there is no other way to abort
        else:
            self._outcomes.do(action, what, error)

    @property
    def _is_aborting(self) -> bool:
        return self._machine.state is State.ABORTING

    def _explained(self, what: str, request: CoordinatorRequest) -> str:
        if request.rpc is not Rpc.INIT_PRODUCER_ID or not self._enable_2pc:
            return what
        return f"{what.rstrip('.')}. {two_phase_needs(keep_prepared=self.keep_prepared)}"

    def _ends_all_the_same(self, request: CoordinatorRequest, action: Action) -> bool:
        """Whether an abort was refused because there is nothing left to abort."""
        if request.rpc is not Rpc.ABORT:
            return False
        if action is Action.BUMP_EPOCH:
            return self._epochs.is_bump_possible
        return action is Action.INVALID_STATE and (self._contents.is_shared or not self._contents.is_started)

    def _note_doubt(self, request: CoordinatorRequest) -> None:
        """Note that the coordinator may have done what was requested."""
        if request.rpc in (Rpc.ADD_PARTITIONS_TO_TXN, Rpc.ADD_OFFSETS_TO_TXN):
            self._contents.is_maybe_started = True
        elif request.rpc is Rpc.COMMIT:
            self._contents.is_commit_in_doubt = True
