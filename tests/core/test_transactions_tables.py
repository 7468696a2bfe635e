"""The tables of transactions: every state with every call, every request with every error code."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from aioproducer.core.transactions.error_codes import Action, action_for, action_for_batch, decisive_code, may_be_done
from aioproducer.core.transactions.failures import commit_unknown, transaction_error
from aioproducer.core.transactions.manager import TransactionManager
from aioproducer.core.transactions.pauses import RequestPause
from aioproducer.core.transactions.requests import Rpc
from aioproducer.core.transactions.states import TRANSITIONS, State
from aioproducer.errors import (
    CommitFailed,
    CommitUnknown,
    KafkaError,
    KafkaTimeoutError,
    ProducerFenced,
    ProducerIdExpired,
    TransactionAbortable,
    TransactionFatal,
    TransactionStateError,
)
from aioproducer.protocol.error_codes import ErrorCode, broker_error
from tests.core.transaction_bench import GROUP, OFFSETS, ORDERS, Bench, in_state
from tests.core.transaction_cells import (
    ABORTABLE,
    AGAIN,
    BUMP,
    CELLS,
    COLUMNS,
    EXPIRED,
    FAILED,
    FATAL,
    FENCED,
    FIND,
    INVALID,
    ONLY_TV1,
    RETRY,
    SOON,
)

E = ErrorCode
S = State
ALLOWED: Mapping[State, set[State]] = {
    S.UNINITIALIZED: {S.INITIALIZING},
    S.INITIALIZING: {S.READY, S.PREPARED_TRANSACTION, S.ABORTABLE_ERROR},
    S.READY: {S.IN_TRANSACTION, S.UNINITIALIZED},
    S.IN_TRANSACTION: {S.PREPARED_TRANSACTION, S.COMMITTING, S.ABORTING, S.ABORTABLE_ERROR},
    S.PREPARED_TRANSACTION: {S.COMMITTING, S.ABORTING},
    S.COMMITTING: {S.READY, S.INITIALIZING, S.ABORTABLE_ERROR},
    S.ABORTING: {S.READY, S.INITIALIZING},
    S.ABORTABLE_ERROR: {S.ABORTING, S.ABORTABLE_ERROR, S.UNINITIALIZED},
    S.FATAL_ERROR: set(),
}


@pytest.mark.parametrize("state", State)
def test_a_state_is_followed_by_those_that_java_allows_and_by_a_fatal_error(state: State) -> None:
    assert TRANSITIONS[state] == {*ALLOWED[state], S.FATAL_ERROR}


# -- every state, every call ------------------------------------------------------------------------------------------

Call = Callable[[TransactionManager], object]
CALLS: Mapping[str, Call] = {
    "initialize": lambda m: m.initialize(),
    "begin": lambda m: m.begin(),
    "check_may_send": lambda m: m.check_may_send(),
    "add_partition": lambda m: m.add_partition(ORDERS),
    "send_offsets": lambda m: m.send_offsets(OFFSETS, GROUP),
    "prepare": lambda m: m.prepare(),
    "commit": lambda m: m.commit(),
    "abort": lambda m: m.abort(),
    "handle": lambda m: m.handle(),
}
#: Where each call leads; it raises in the states that are not here.
LEADS: Mapping[str, Mapping[State, State]] = {
    "initialize": {S.UNINITIALIZED: S.INITIALIZING, S.INITIALIZING: S.INITIALIZING},
    "begin": {S.READY: S.IN_TRANSACTION},
    "check_may_send": {S.IN_TRANSACTION: S.IN_TRANSACTION},
    "add_partition": {S.IN_TRANSACTION: S.IN_TRANSACTION},
    "send_offsets": {S.IN_TRANSACTION: S.IN_TRANSACTION},
    "prepare": {S.IN_TRANSACTION: S.IN_TRANSACTION},
    "commit": {
        S.IN_TRANSACTION: S.COMMITTING,
        S.PREPARED_TRANSACTION: S.COMMITTING,
        S.COMMITTING: S.COMMITTING,
    },
    "abort": {
        S.IN_TRANSACTION: S.ABORTING,
        S.PREPARED_TRANSACTION: S.ABORTING,
        S.ABORTING: S.ABORTING,
        S.ABORTABLE_ERROR: S.ABORTING,
    },
    "handle": {S.IN_TRANSACTION: S.IN_TRANSACTION},
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("state", State)
def test_each_call_is_taken_in_the_states_that_allow_it_and_changes_nothing_in_the_others(
    state: State, call: str
) -> None:
    manager = in_state(state, enable_2pc=call == "prepare").manager
    expected = LEADS[call].get(state)

    if expected is not None:
        CALLS[call](manager)
        assert manager.state is expected
        return
    with pytest.raises(KafkaError) as raised:
        CALLS[call](manager)

    assert manager.state is state
    if state is S.ABORTABLE_ERROR:
        assert type(raised.value) is TransactionAbortable
    elif state is S.FATAL_ERROR:
        assert type(raised.value) is TransactionFatal
    else:
        assert type(raised.value) is TransactionStateError
        assert "'payments-1'" in str(raised.value)


# -- every request, every error code -----------------------------------------------------------------------------------

CASES = [
    pytest.param(rpc, code, action, id=f"{rpc.value}-{code.name}")
    for code, row in CELLS.items()
    for rpc, action in zip(COLUMNS, row, strict=True)
]


@pytest.mark.parametrize(("rpc", "code", "action"), CASES)
def test_the_table_of_each_request_has_an_action_for_each_code(rpc: Rpc, code: ErrorCode, action: Action) -> None:
    assert action_for(rpc, code) is action


@pytest.mark.parametrize("rpc", Rpc)
def test_no_error_means_that_it_is_done(rpc: Rpc) -> None:
    assert action_for(rpc, E.NONE) is Action.DONE


@pytest.mark.parametrize("rpc", [Rpc.COMMIT, Rpc.ABORT])
@pytest.mark.parametrize("code", [E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, E.REQUEST_TIMED_OUT])
def test_a_coordinator_that_could_not_finish_may_have_ended_the_transaction(rpc: Rpc, code: ErrorCode) -> None:
    assert may_be_done(rpc, code)


@pytest.mark.parametrize("rpc", [Rpc.COMMIT, Rpc.ABORT])
@pytest.mark.parametrize("code", [E.CONCURRENT_TRANSACTIONS, E.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_coordinator_that_has_not_begun_has_not_ended_the_transaction(rpc: Rpc, code: ErrorCode) -> None:
    assert not may_be_done(rpc, code)


@pytest.mark.parametrize(
    ("action", "way_out"),
    [
        (Action.ABORTABLE, "the same work may succeed in a new one"),
        (Action.COMMIT_FAILED, "let the consumer rejoin its group"),
        (Action.FENCED, "if no other process is meant to use this transactional_id"),
        (Action.EXPIRED, "create a new producer (or initialize a TransactionCoordinatorClient again)."),
        (Action.FATAL, "A retry cannot succeed"),
        (Action.INVALID_STATE, "A retry cannot succeed"),
        (Action.UNINITIALIZED, "fix the cause, then repeat the call"),
    ],
)
def test_each_error_contains_the_way_out(action: Action, way_out: str) -> None:
    assert way_out in str(transaction_error(action, "It failed.", KafkaError("x")))


def test_after_a_commit_with_an_unknown_outcome_the_log_is_read() -> None:
    assert "isolation_level=read_committed" in str(commit_unknown("load", KafkaError("x")))


@pytest.mark.parametrize("rpc", Rpc)
def test_any_other_code_is_retried_where_it_is_retriable_and_else_ends_the_producer(rpc: Rpc) -> None:
    last = ABORTABLE if rpc is Rpc.ADD_PARTITIONS_TO_TXN else FATAL

    for code in set(ErrorCode) - set(CELLS) - {E.NONE}:
        assert action_for(rpc, code) is (RETRY if code.retriable else last), code


@pytest.mark.parametrize("rpc", Rpc)
def test_a_code_of_a_newer_broker_is_not_retried(rpc: Rpc) -> None:
    assert action_for(rpc, 999) is (ABORTABLE if rpc is Rpc.ADD_PARTITIONS_TO_TXN else FATAL)
    assert may_be_done(rpc, 999)


@pytest.mark.parametrize(
    ("codes", "decides"),
    [
        ([E.NONE, E.NONE], E.NONE),
        ([E.OPERATION_NOT_ATTEMPTED, E.UNKNOWN_TOPIC_OR_PARTITION], E.UNKNOWN_TOPIC_OR_PARTITION),
        ([E.OPERATION_NOT_ATTEMPTED, E.TOPIC_AUTHORIZATION_FAILED], E.TOPIC_AUTHORIZATION_FAILED),
        ([E.OPERATION_NOT_ATTEMPTED, E.OPERATION_NOT_ATTEMPTED], E.OPERATION_NOT_ATTEMPTED),
        ([E.CONCURRENT_TRANSACTIONS, E.PRODUCER_FENCED], E.PRODUCER_FENCED),
        ([E.NONE, E.NOT_COORDINATOR], E.NOT_COORDINATOR),
    ],
)
def test_of_the_codes_of_several_partitions_the_gravest_decides(codes: list[ErrorCode], decides: ErrorCode) -> None:
    assert decisive_code(Rpc.ADD_PARTITIONS_TO_TXN, codes) == decides


@pytest.mark.parametrize(
    ("rpc", "code", "action", "is_v2"),
    [
        pytest.param(rpc, code, action, is_v2, id=f"{rpc.value}-{code.name}-{'TV2' if is_v2 else 'TV1'}")
        for code, row in CELLS.items()
        for rpc, action in zip(COLUMNS, row, strict=True)
        for is_v2 in ([False] if rpc in ONLY_TV1 else [False, True])
    ],
)
def test_each_error_of_each_request_leads_to_the_state_of_its_action(
    rpc: Rpc, code: ErrorCode, action: Action, is_v2: bool
) -> None:
    bench = Bench(is_v2=is_v2)
    request = bench.lead_to(rpc)
    manager, before = bench.manager, bench.manager.state
    unknown = rpc is Rpc.COMMIT and may_be_done(rpc, code)

    pause = manager.apply_answer(request, request.read(bench.refuse(request, code)), request.highest)

    if action in (RETRY, SOON, FIND):
        assert pause is (RequestPause.SHORT if action is SOON else RequestPause.BACKOFF)
        assert manager.state is before
        following = bench.next()
        assert following is not None
        assert following.rpc is (Rpc.FIND_COORDINATOR if action is FIND else rpc)
        bench.finish_well(following)
        return
    assert pause is RequestPause.NONE
    if action is AGAIN or (action is ABORTABLE and before is S.INITIALIZING):
        assert manager.state is S.UNINITIALIZED
    elif rpc is Rpc.ABORT and action is BUMP:
        assert manager.state is S.INITIALIZING
    elif action in (ABORTABLE, FAILED, BUMP) or (is_v2 and rpc is Rpc.COMMIT and action is INVALID):
        assert manager.state is S.ABORTABLE_ERROR
        assert type(manager.last_error) is (CommitFailed if action is FAILED else TransactionAbortable)
    else:
        classes = {FENCED: ProducerFenced, EXPIRED: ProducerIdExpired}
        assert manager.state is S.FATAL_ERROR
        assert type(manager.last_error) is (CommitUnknown if unknown else classes.get(action, TransactionFatal))
        assert code.name in str(manager.last_error)
        assert bench.failed_all
        assert bench.next() is None
        return
    bench.commit_one_transaction()


@pytest.mark.parametrize(
    ("error", "error_class"),
    [
        (broker_error(E.CLUSTER_AUTHORIZATION_FAILED), TransactionFatal),
        (broker_error(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), TransactionFatal),
        (broker_error(E.UNSUPPORTED_VERSION), TransactionFatal),
        (broker_error(E.INVALID_PRODUCER_ID_MAPPING), ProducerIdExpired),
        (broker_error(E.PRODUCER_FENCED), ProducerFenced),
        (broker_error(E.INVALID_PRODUCER_EPOCH), TransactionAbortable),
        (broker_error(E.INVALID_TXN_STATE), TransactionAbortable),
        (broker_error(E.OUT_OF_ORDER_SEQUENCE_NUMBER), TransactionAbortable),
        (broker_error(E.NOT_LEADER_OR_FOLLOWER), TransactionAbortable),
        (KafkaTimeoutError("delivery_timeout_ms is over"), TransactionAbortable),
    ],
    ids=str,
)
def test_a_batch_that_failed_makes_the_transaction_impossible_to_commit(
    error: KafkaError, error_class: type[KafkaError]
) -> None:
    bench = in_state(S.IN_TRANSACTION)

    bench.manager.batch_failed(error)

    assert type(bench.manager.last_error) is error_class
    with pytest.raises(error_class) as raised:
        bench.manager.commit()
    assert raised.value.__cause__ is error


def test_a_batch_failure_that_is_in_no_table_is_abortable() -> None:
    assert action_for_batch(999) is ABORTABLE
