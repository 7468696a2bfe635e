"""Transactions: what refusals, lost answers and handles leave behind, and what is asked once."""

from __future__ import annotations

import pytest

from aioproducer.core.transactions.handle import TransactionHandle
from aioproducer.core.transactions.manager import TransactionManager
from aioproducer.core.transactions.pauses import RequestPause
from aioproducer.core.transactions.prepared_transaction import PreparedTransactionState
from aioproducer.core.transactions.requests import CoordinatorRequest, Rpc
from aioproducer.core.transactions.states import State
from aioproducer.errors import (
    BrokerError,
    KafkaTimeoutError,
    ProducerClosed,
    ProducerFenced,
    TransactionAbortable,
    TransactionFatal,
    TransactionStateError,
)
from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.protocol.messages import EndTxnResponse, InitProducerIdRequest
from tests.core.transaction_bench import GROUP, OFFSETS, ORDERS, OTHERS, Bench, in_state

COMMIT, ABORT, INIT, ADD, FIND = (
    Rpc.COMMIT,
    Rpc.ABORT,
    Rpc.INIT_PRODUCER_ID,
    Rpc.ADD_PARTITIONS_TO_TXN,
    Rpc.FIND_COORDINATOR,
)
LATE = KafkaTimeoutError("delivery_timeout_ms is over")


def refuse(bench: Bench, request: CoordinatorRequest, code: ErrorCode) -> RequestPause:
    return bench.manager.apply_answer(request, request.read(bench.refuse(request, code)), request.highest)


def init_message(request: CoordinatorRequest) -> InitProducerIdRequest:
    assert isinstance(request.message, InitProducerIdRequest)
    return request.message


def commit(bench: Bench) -> list[Rpc]:
    """Commit, and see the outcome; returns what was asked for it."""
    operation = bench.manager.commit()
    asked = bench.run()
    assert operation.error is None
    operation.acknowledge()
    return asked


def attached(*, is_v2: bool = False, may_end: bool = True) -> Bench:
    """A writer into another process's transaction."""
    bench = Bench(is_v2=is_v2)
    bench.manager = TransactionManager.attach(
        TransactionHandle("payments-1", 7, 5),
        listener=bench,
        transaction_version=lambda: bench.version,
        may_end=may_end,
    )
    return bench


# -- epochs -----------------------------------------------------------------------------------------------------------


def test_nothing_is_known_before_the_first_producer_id() -> None:
    manager = Bench().manager

    assert (manager.producer, manager.last_error, manager.abort_refused, manager.attempts) == (None, None, None, 0)


def test_a_new_epoch_is_asked_for_once() -> None:
    bench = in_state(State.ABORTABLE_ERROR)
    bench.manager.abort().acknowledge()
    assert bench.run() == [ABORT, INIT]

    bench.begin(ORDERS)

    assert commit(bench) == [COMMIT]


def test_the_first_coordinator_that_bumps_epochs_is_asked_to() -> None:
    """InitProducerId 3 (KIP-360)."""
    bench = Bench(highest_init=3)
    bench.begin(ORDERS)
    bench.manager.batch_failed(LATE)
    bench.manager.abort()
    bench.finish_well(bench.expect(ABORT))

    assert init_message(bench.expect(INIT)).producer_id == 7


def test_a_batch_that_fails_while_its_transaction_is_aborted_may_arrive_late_so_the_next_has_another_epoch() -> None:
    bench = Bench()
    bench.begin(ORDERS)
    bench.manager.abort()

    bench.manager.batch_failed(LATE)

    assert bench.run() == [ABORT, INIT]


def test_an_end_that_gives_the_same_epoch_again_restarts_no_sequences() -> None:
    bench = Bench(is_v2=True)
    request = bench.lead_to(COMMIT)
    response = EndTxnResponse(error_code=0, producer_id=7, producer_epoch=0)

    bench.manager.apply_answer(request, request.read(response), 5)

    assert bench.identities == [(7, 0)]
    assert bench.run() == [INIT]


def test_the_first_producer_id_of_a_cluster_is_one_like_any_other() -> None:
    bench = Bench(is_v2=True)
    request = bench.lead_to(COMMIT)

    bench.manager.apply_answer(request, request.read(EndTxnResponse(error_code=0, producer_id=0, producer_epoch=0)), 5)

    assert bench.manager.producer == (0, 0)


def test_a_transaction_keeps_the_version_that_was_seen_when_its_first_partition_was_added() -> None:
    bench = attached()
    bench.write(ORDERS)
    bench.version = 2

    bench.write(OTHERS)

    assert not bench.manager.is_v2


def test_a_transaction_is_shared_only_where_no_earlier_one_counted_in_its_epoch() -> None:
    """A broker would take the first records of others for repeats of what it has."""
    bench = Bench()
    bench.begin()
    commit(bench)
    bench.begin(ORDERS)
    bench.manager.handle()  # the empty one before it counted nothing
    assert commit(bench) == [COMMIT, INIT]
    bench.begin(ORDERS)
    assert commit(bench) == [COMMIT]

    bench.begin()
    with pytest.raises(TransactionStateError, match="used the same epoch"):
        bench.manager.handle()

    assert commit(bench) == [INIT], "the next one can be shared"
    bench.begin()
    bench.manager.handle()


def test_with_version_2_each_transaction_can_be_shared() -> None:
    bench = Bench(is_v2=True)
    bench.commit_one_transaction()
    bench.begin()

    bench.manager.handle()


# -- handles ----------------------------------------------------------------------------------------------------------


def test_lost_sequences_of_a_writer_with_a_handle_leave_the_abort_to_the_owner() -> None:
    bench = attached(may_end=False)

    bench.manager.sequences_lost(LATE)

    assert type(bench.manager.last_error) is TransactionAbortable


def test_a_manager_that_ended_a_transaction_by_its_handle_has_no_producer_id_any_more() -> None:
    bench = attached()
    aborted = bench.manager.abort()
    bench.finish_well(bench.expect(FIND))

    refuse(bench, bench.expect(ABORT), ErrorCode.UNKNOWN_PRODUCER_ID)

    assert (aborted.is_done, aborted.error) == (True, None)
    assert bench.manager.producer is None
    refused = bench.manager.abort_refused
    assert isinstance(refused, BrokerError)
    assert refused.code == ErrorCode.UNKNOWN_PRODUCER_ID


def test_a_shared_transaction_whose_producer_is_fenced_is_not_mistaken_for_one_that_is_over() -> None:
    bench = Bench()
    bench.begin()
    bench.manager.handle()
    aborted = bench.manager.abort()

    refuse(bench, bench.expect(ABORT), ErrorCode.PRODUCER_FENCED)

    assert type(aborted.error) is ProducerFenced


# -- attempts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rpc", [COMMIT, ABORT])
def test_attempts_are_counted_from_zero_after_the_end_of_a_transaction(rpc: Rpc) -> None:
    bench = Bench(is_v2=True)
    bench.manager.lost(bench.lead_to(rpc))
    assert bench.manager.attempts == 1

    bench.run()

    assert bench.manager.attempts == 0


def test_attempts_are_counted_from_zero_after_a_refused_request() -> None:
    bench = Bench()
    refuse(bench, bench.lead_to(ADD), ErrorCode.CONCURRENT_TRANSACTIONS)
    assert bench.manager.attempts == 1

    refuse(bench, bench.expect(ADD), ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    assert bench.manager.attempts == 0


def test_attempts_are_counted_from_zero_after_a_commit_that_was_taken_back() -> None:
    bench = Bench()
    bench.manager.lost(bench.lead_to(COMMIT), sent=False)

    bench.manager.retract(LATE)

    assert bench.manager.attempts == 0


# -- reasons ----------------------------------------------------------------------------------------------------------


def test_a_batch_that_fails_before_the_commit_is_sent_leaves_no_doubt_about_the_commit() -> None:
    bench = in_state(State.IN_TRANSACTION)
    bench.manager.send_offsets(OFFSETS, GROUP)
    committed = bench.manager.commit()
    bench.expect(Rpc.ADD_OFFSETS_TO_TXN)

    bench.manager.batch_failed(LATE)

    assert bench.manager.state is State.ABORTABLE_ERROR
    assert type(committed.error) is TransactionAbortable


def test_the_first_fatal_error_is_the_reason() -> None:
    bench = in_state(State.IN_TRANSACTION)
    bench.manager.close(TransactionFatal("the first"))

    bench.manager.close(ProducerClosed("the second"))

    assert str(bench.manager.last_error) == "the first"
    assert len(bench.failed_all) == 1


def test_a_group_that_is_refused_while_the_transaction_is_aborted_does_not_hinder_the_abort() -> None:
    bench = Bench(is_v2=True)
    bench.begin()
    bench.manager.send_offsets(OFFSETS, GROUP)
    request = bench.expect(FIND)
    aborted = bench.manager.abort()

    refuse(bench, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)

    bench.run()
    assert (aborted.is_done, aborted.error) == (True, None)
    assert bench.manager.state is State.READY


def test_a_group_that_is_refused_is_named() -> None:
    bench = Bench()
    request = bench.lead_to(Rpc.ADD_OFFSETS_TO_TXN)

    refuse(bench, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)

    assert f"with group {GROUP.group_id!r} was refused" in str(bench.manager.last_error)


def test_a_producer_id_that_is_requested_again_keeps_no_prepared_transaction() -> None:
    bench = Bench(enable_2pc=True)
    bench.manager.initialize(keep_prepared=True).acknowledge()
    bench.run()
    bench.begin(ORDERS)
    bench.manager.batch_failed(LATE)
    bench.manager.abort()
    bench.finish_well(bench.expect(ABORT))

    assert not init_message(bench.expect(INIT)).keep_prepared_txn


@pytest.mark.parametrize(("rpc", "enable_2pc"), [(INIT, False), (ADD, True)])
def test_only_a_producer_id_for_two_phase_commits_is_refused_with_what_they_need(rpc: Rpc, enable_2pc: bool) -> None:
    bench = Bench(enable_2pc=enable_2pc)
    request = bench.lead_to(rpc)
    pending = bench.manager.pending

    refuse(bench, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

    error = bench.manager.last_error if pending is None else pending.error
    assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in str(error)
    assert "KIP-939" not in str(error)


# -- partitions -------------------------------------------------------------------------------------------------------


def test_a_partition_is_asked_for_once_and_wakes_who_asks_once() -> None:
    bench = Bench()
    bench.begin()
    assert not bench.manager.has_partitions
    bench.wakes = 0

    for _ in range(3):
        bench.write(ORDERS)
    assert (bench.wakes, bench.manager.has_partitions) == (1, True)
    assert bench.run() == [ADD]
    for _ in range(3):
        bench.write(ORDERS)

    assert (bench.wakes, bench.manager.has_partitions) == (1, True)
    assert bench.run() == []


def test_a_transaction_of_version_2_has_the_partitions_that_are_written() -> None:
    bench = Bench(is_v2=True)
    bench.begin()
    assert not bench.manager.has_partitions

    bench.write(ORDERS)

    assert bench.manager.has_partitions


# -- calls ------------------------------------------------------------------------------------------------------------


def test_a_writer_with_a_handle_may_not_end_the_transaction() -> None:
    manager = attached(may_end=False).manager
    assert (manager.may_end, manager.is_shared) == (False, True)
    assert attached().manager.may_end

    for call in (manager.initialize, manager.begin, manager.prepare, manager.commit, manager.abort, manager.handle):
        with pytest.raises(TransactionStateError, match="The process that began it must end it"):
            call()


def test_a_transaction_is_shared_once_its_handle_was_given_away() -> None:
    manager = in_state(State.IN_TRANSACTION).manager
    before = manager.is_shared

    manager.handle()

    assert (before, manager.is_shared) == (False, True)


def test_offsets_are_under_way_until_the_coordinator_of_the_group_has_them() -> None:
    bench = Bench()
    bench.begin()
    seen = [bench.manager.pending_offsets]

    operation = bench.manager.send_offsets(OFFSETS, GROUP)
    seen.append(bench.manager.pending_offsets)
    bench.run()
    seen.append(bench.manager.pending_offsets)

    assert seen == [None, operation, None]


def test_a_prepare_goes_on_when_it_is_called_again_and_is_announced() -> None:
    bench = in_state(State.IN_TRANSACTION, enable_2pc=True)
    bench.wakes = 0

    operation = bench.manager.prepare()

    assert bench.wakes == 1
    assert bench.manager.prepare() is operation


def test_only_what_is_prepared_and_seen_to_be_is_completed() -> None:
    bench = in_state(State.IN_TRANSACTION, enable_2pc=True)
    state = PreparedTransactionState(7, 0)
    with pytest.raises(TransactionStateError, match=r"complete_transaction\(\) is not allowed"):
        bench.manager.complete(state)

    prepared = bench.manager.prepare()
    bench.run()
    with pytest.raises(TransactionStateError, match=r"Call prepare_transaction\(\) again"):
        bench.manager.complete(state)

    prepared.acknowledge()
    assert bench.manager.complete(state).name == "commit_transaction"


def test_nothing_leaves_after_a_fatal_error() -> None:
    bench = in_state(State.IN_TRANSACTION)
    before = bench.manager.may_drain(ORDERS)

    bench.manager.close(ProducerClosed("The producer was closed."))

    assert (before, bench.manager.may_drain(ORDERS)) == (True, False)


def test_the_request_under_way_and_its_last_refusal_can_be_seen() -> None:
    bench = Bench()
    request = bench.lead_to(ADD)
    before = (bench.manager.is_asking, bench.manager.refusal)

    refuse(bench, request, ErrorCode.CONCURRENT_TRANSACTIONS)

    refused = bench.manager.refusal
    assert before == (True, None)
    assert not bench.manager.is_asking
    assert isinstance(refused, BrokerError)
    assert refused.code == ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize("state", State)
def test_an_end_waits_for_the_last_batch(state: State) -> None:
    assert in_state(state).manager.awaits_batches == (state in (State.COMMITTING, State.ABORTING))


def test_an_abort_that_completes_a_prepared_transaction_goes_on_when_it_is_called_again() -> None:
    bench = in_state(State.PREPARED_TRANSACTION)

    aborted = bench.manager.complete(PreparedTransactionState(7, 99))

    assert aborted.name == "abort_transaction"
    assert bench.manager.complete(PreparedTransactionState(7, 99)) is aborted


def test_a_manager_that_ends_a_transaction_by_its_handle_prepares_none_and_has_a_minute_for_the_next() -> None:
    bench = attached()
    with pytest.raises(TransactionStateError, match="transaction_two_phase_commit_enable"):
        bench.manager.prepare()
    commit(bench)

    bench.manager.initialize()

    assert init_message(bench.expect(INIT)).transaction_timeout_ms == 60_000


@pytest.mark.parametrize(
    ("state", "stands"),
    [
        (State.UNINITIALIZED, "is not initialized; call init_transactions() first"),
        (State.IN_TRANSACTION, "has an open transaction; commit or abort it first"),
        (
            State.PREPARED_TRANSACTION,
            "has prepared its transaction, which can only be committed, aborted or completed now",
        ),
    ],
)
def test_the_error_of_a_transaction_that_cannot_begin_names_the_first_step(state: State, stands: str) -> None:
    with pytest.raises(TransactionStateError) as raised:
        in_state(state).manager.begin()

    assert str(raised.value).endswith(f"transactional_id 'payments-1' {stands}.")
