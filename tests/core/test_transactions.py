"""Transactions: what is asked of the coordinators and when, and what becomes of commits, aborts and those who wait."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from uuid import UUID

import pytest

from aioproducer.core.transactions.answers import TransactionEnded
from aioproducer.core.transactions.handle import TransactionHandle
from aioproducer.core.transactions.identities import CoordinatorKey, CoordinatorType
from aioproducer.core.transactions.manager import TransactionManager
from aioproducer.core.transactions.pauses import FIRST_PARTITIONS_BACKOFF, RequestPause
from aioproducer.core.transactions.prepared_transaction import PreparedTransactionState
from aioproducer.core.transactions.requests import CoordinatorRequest, Rpc, find_coordinator
from aioproducer.core.transactions.states import State
from aioproducer.errors import (
    AuthenticationError,
    CommitUnknown,
    ConfigError,
    KafkaError,
    KafkaTimeoutError,
    ProducerClosed,
    ProtocolError,
    SharedPartition,
    TransactionAbortable,
    TransactionAborted,
    TransactionFatal,
    TransactionStateError,
    UnsupportedVersion,
)
from aioproducer.protocol.error_codes import ErrorCode, broker_error
from aioproducer.protocol.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    Coordinator,
    EndTxnRequest,
    EndTxnResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from aioproducer.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from tests.core.transaction_bench import GROUP, NODES, OFFSETS, ORDERS, OTHERS, Bench, in_state

BOTH = pytest.mark.parametrize("is_v2", [False, True], ids=["TV1", "TV2"])
COMMIT, ABORT, INIT, ADD = Rpc.COMMIT, Rpc.ABORT, Rpc.INIT_PRODUCER_ID, Rpc.ADD_PARTITIONS_TO_TXN


def refuse(bench: Bench, request: CoordinatorRequest, code: int) -> RequestPause:
    return bench.manager.apply_answer(request, request.read(bench.refuse(request, code)), request.highest)


def init_message(request: CoordinatorRequest) -> InitProducerIdRequest:
    assert isinstance(request.message, InitProducerIdRequest)
    return request.message


# -- what is asked, and in which order ----------------------------------------------------------------------------------


def test_a_transaction_of_version_1_adds_partitions_and_offsets_before_it_ends() -> None:
    bench = Bench()
    bench.initialize()
    manager = bench.manager
    manager.begin()
    manager.add_partition(ORDERS)
    manager.add_partition(OTHERS)
    manager.send_offsets(OFFSETS, GROUP)
    manager.commit()

    asked = bench.run()

    assert asked == [
        ADD,
        Rpc.ADD_OFFSETS_TO_TXN,
        Rpc.FIND_COORDINATOR,
        Rpc.TXN_OFFSET_COMMIT,
        COMMIT,
    ]
    assert [each.node_id for each in bench.sent] == [None, 1, 1, 1, None, 2, 1]
    assert [(each.lowest, each.highest) for each in bench.sent[2:]] == [(0, 3), (0, 4), (0, 5), (3, 4), (0, 4)]
    assert manager.state is State.READY


def test_a_transaction_of_version_2_adds_nothing_and_gets_its_next_epoch_with_its_end() -> None:
    bench = Bench(is_v2=True)
    bench.initialize()
    manager = bench.manager
    manager.begin()
    manager.add_partition(ORDERS)
    manager.send_offsets(OFFSETS, GROUP)
    manager.commit()

    asked = bench.run()

    assert asked == [Rpc.FIND_COORDINATOR, Rpc.TXN_OFFSET_COMMIT, COMMIT]
    assert [(each.lowest, each.highest) for each in bench.sent[3:]] == [(5, 5), (5, 5)]
    assert bench.identities == [(7, 0), (7, 1)]
    assert manager.producer == (7, 1)


def test_one_request_is_under_way_at_a_time() -> None:
    bench = Bench()
    bench.manager.initialize()

    first = bench.next()

    assert first is not None
    assert bench.next() is None
    bench.finish_well(first)
    assert bench.next() is not None


@BOTH
@pytest.mark.parametrize("how", ["commit", "abort"])
def test_an_empty_transaction_ends_without_a_request(how: str, is_v2: bool) -> None:
    bench = Bench(is_v2=is_v2)
    bench.begin()

    ended = bench.manager.commit() if how == "commit" else bench.manager.abort()

    assert bench.run() == []
    assert ended.is_done
    assert ended.error is None
    assert bench.manager.state is State.READY


@BOTH
def test_a_transaction_does_not_end_before_its_batches_have_an_outcome(is_v2: bool) -> None:
    bench = Bench(is_v2=is_v2)
    bench.begin(ORDERS)
    bench.has_incomplete = True
    bench.manager.commit()

    assert bench.next() is None
    bench.has_incomplete = False
    assert bench.expect(COMMIT)


def test_nothing_is_drained_for_a_partition_of_version_1_until_it_was_added() -> None:
    bench = Bench()
    bench.begin()
    bench.write(ORDERS)

    request = bench.expect(ADD)
    bench.write(OTHERS)

    assert not bench.manager.may_drain(ORDERS)
    bench.finish_well(request)
    assert bench.manager.may_drain(ORDERS)
    assert not bench.manager.may_drain(OTHERS)
    assert bench.added == [ORDERS]
    assert bench.run() == [ADD]
    assert bench.added == [ORDERS, OTHERS]


def test_a_partition_of_version_2_may_be_drained_at_once() -> None:
    bench = Bench(is_v2=True)
    bench.begin()

    bench.write(ORDERS)

    assert bench.manager.may_drain(ORDERS)
    assert bench.manager.highest_produce_version == 13
    assert not bench.manager.may_drain(OTHERS)


def test_produce_keeps_to_the_version_that_the_transaction_has() -> None:
    assert in_state(State.IN_TRANSACTION).manager.highest_produce_version == 11


@BOTH
def test_a_partition_must_be_added_again_in_each_transaction(is_v2: bool) -> None:
    bench = Bench(is_v2=is_v2)
    bench.commit_one_transaction()
    bench.begin()

    assert not bench.manager.may_drain(ORDERS)


def test_partitions_that_came_up_while_a_request_failed_are_asked_for_with_the_next() -> None:
    bench = Bench()
    request = bench.lead_to(ADD)
    bench.write(OTHERS)
    refuse(bench, request, ErrorCode.CONCURRENT_TRANSACTIONS)

    again = bench.expect(ADD)

    assert isinstance(again.message, AddPartitionsToTxnRequest)
    assert again.message.v3_and_below_topics[0].partitions == [0, 1]


def test_only_the_first_partitions_of_a_transaction_are_retried_soon() -> None:
    bench = Bench()
    request = bench.lead_to(ADD)
    assert refuse(bench, request, ErrorCode.CONCURRENT_TRANSACTIONS) is RequestPause.SHORT
    bench.run()
    bench.write(OTHERS)

    assert refuse(bench, bench.expect(ADD), ErrorCode.CONCURRENT_TRANSACTIONS) is RequestPause.BACKOFF


def test_the_attempts_of_a_request_are_counted_until_it_succeeds() -> None:
    bench = Bench()
    request = bench.lead_to(ADD)
    refuse(bench, request, ErrorCode.CONCURRENT_TRANSACTIONS)
    bench.manager.lost(bench.expect(ADD))
    assert bench.manager.attempts == 2

    bench.run()

    assert bench.manager.attempts == 0


def test_a_refused_topic_is_named() -> None:
    bench = Bench()
    request = bench.lead_to(ADD)

    refuse(bench, request, ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    assert "orders-0" in str(bench.manager.last_error)


# -- offsets ------------------------------------------------------------------------------------------------------------


def test_offsets_go_with_the_generation_of_the_member_that_read_them() -> None:
    bench = Bench()
    request = bench.lead_to(Rpc.TXN_OFFSET_COMMIT)

    message = request.message

    assert isinstance(message, TxnOffsetCommitRequest)
    assert (message.group_id, message.generation_id_or_member_epoch, message.member_id) == ("readers", 3, "member-1")
    assert message.topics[0].partitions[0].committed_offset == 42
    assert request.lowest == 3  # below, a member of an older generation could not be detected


def test_offsets_without_a_member_can_go_to_any_broker() -> None:
    bench = Bench()
    bench.begin()
    bench.manager.send_offsets(OFFSETS, ConsumerGroupMetadata("readers"))
    for rpc in (Rpc.ADD_OFFSETS_TO_TXN, Rpc.FIND_COORDINATOR):
        bench.finish_well(bench.expect(rpc))

    assert bench.expect(Rpc.TXN_OFFSET_COMMIT).lowest == 0


def test_only_the_offsets_that_were_not_accepted_are_sent_again() -> None:
    bench = Bench()
    bench.begin()
    first, second = TopicPartition("input", 0), TopicPartition("input", 1)
    operation = bench.manager.send_offsets({first: OffsetAndMetadata(1), second: OffsetAndMetadata(2)}, GROUP)
    bench.finish_well(bench.expect(Rpc.ADD_OFFSETS_TO_TXN))
    bench.finish_well(bench.expect(Rpc.FIND_COORDINATOR))
    request = bench.expect(Rpc.TXN_OFFSET_COMMIT)
    response = bench.refuse(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    response.topics[0].partitions[0].error_code = 0

    bench.manager.apply_answer(request, request.read(response), request.highest)

    again = bench.expect(Rpc.TXN_OFFSET_COMMIT)
    assert isinstance(again.message, TxnOffsetCommitRequest)
    assert [each.partition_index for each in again.message.topics[0].partitions] == [1]
    assert not operation.is_done
    bench.finish_well(again)
    assert operation.is_done


INPUT_ID, SECOND_ID = UUID(int=5), UUID(int=6)


@pytest.mark.parametrize(
    ("is_v2", "ids", "highest"),
    [
        (True, {"input": INPUT_ID, "second": SECOND_ID}, 6),
        (True, {"input": INPUT_ID}, 5),
        (True, {}, 5),
        (False, {"input": INPUT_ID, "second": SECOND_ID}, 4),
    ],
    ids=str,
)
def test_offsets_go_by_the_ids_of_their_topics_if_all_are_known(
    is_v2: bool, ids: dict[str, UUID], highest: int
) -> None:
    bench = Bench(is_v2=is_v2)
    bench.topic_ids = ids
    bench.begin()
    offsets = {TopicPartition(topic, 1): OffsetAndMetadata(7) for topic in ("second", "input")}
    operation = bench.manager.send_offsets(offsets, GROUP)
    if not is_v2:
        bench.finish_well(bench.expect(Rpc.ADD_OFFSETS_TO_TXN))
    bench.finish_well(bench.expect(Rpc.FIND_COORDINATOR))

    request = bench.expect(Rpc.TXN_OFFSET_COMMIT)

    assert request.highest == highest
    if highest == 6:
        read = TxnOffsetCommitRequest.decode(6, request.message.encode(6))
        assert [(each.name, each.topic_id) for each in read.topics] == [("", INPUT_ID), ("", SECOND_ID)]
    by_name = TxnOffsetCommitRequest.decode(4, request.message.encode(4))
    assert [each.name for each in by_name.topics] == ["input", "second"]
    bench.finish_well(request)
    assert operation.is_done


def test_the_answer_for_a_topic_that_was_not_requested_by_its_id_is_impossible() -> None:
    bench = Bench(is_v2=True)
    bench.topic_ids = {"input": INPUT_ID}
    request = bench.lead_to(Rpc.TXN_OFFSET_COMMIT)
    response = bench.approve(request)
    response.topics[0].topic_id = SECOND_ID

    with pytest.raises(ProtocolError, match="input-0 were requested"):
        request.read(response)


def test_a_topic_id_that_a_broker_does_not_know_is_refreshed_and_the_offsets_are_sent_again() -> None:
    bench = Bench(is_v2=True)
    bench.topic_ids = {"input": INPUT_ID}
    request = bench.lead_to(Rpc.TXN_OFFSET_COMMIT)
    response = bench.approve(request)
    response.topics[0].partitions[0].error_code = ErrorCode.UNKNOWN_TOPIC_ID

    pause = bench.manager.apply_answer(request, request.read(response), request.highest)

    assert pause is RequestPause.BACKOFF
    assert bench.refreshed == ["input"]
    bench.topic_ids = {"input": SECOND_ID}
    again = bench.expect(Rpc.TXN_OFFSET_COMMIT)
    assert isinstance(again.message, TxnOffsetCommitRequest)
    assert [each.topic_id for each in again.message.topics] == [SECOND_ID]
    bench.finish_well(again)
    assert bench.refreshed == ["input"]


def test_no_offsets_are_nothing_to_do() -> None:
    bench = in_state(State.READY)
    bench.manager.begin()

    assert bench.manager.send_offsets({}, GROUP).is_done
    assert bench.next() is None


@BOTH
@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.PRODUCER_FENCED])
def test_offsets_that_were_refused_are_reported_to_a_caller_that_sent_them(is_v2: bool, code: ErrorCode) -> None:
    bench = Bench(is_v2=is_v2)
    bench.begin()
    refused, waiting = (bench.manager.send_offsets(OFFSETS, GROUP) for _ in range(2))
    if not is_v2:
        bench.finish_well(bench.expect(Rpc.ADD_OFFSETS_TO_TXN))
    bench.finish_well(bench.expect(Rpc.FIND_COORDINATOR))

    refuse(bench, bench.expect(Rpc.TXN_OFFSET_COMMIT), code)

    assert refused.error is waiting.error is bench.manager.last_error
    assert bench.run() == []


@BOTH
def test_several_calls_send_their_offsets_one_after_the_other(is_v2: bool) -> None:
    bench = Bench(is_v2=is_v2)
    bench.begin()
    operations = [bench.manager.send_offsets(OFFSETS, ConsumerGroupMetadata(name)) for name in ("a", "b")]

    asked = bench.run()

    assert asked.count(Rpc.TXN_OFFSET_COMMIT) == 2
    assert [each.is_done and each.error is None for each in operations] == [True, True]


@BOTH
def test_an_abort_gives_up_offsets_that_were_not_requested_yet(is_v2: bool) -> None:
    bench = Bench(is_v2=is_v2)
    bench.begin()
    offsets = bench.manager.send_offsets(OFFSETS, GROUP)

    bench.manager.abort()

    assert isinstance(offsets.error, TransactionAborted)
    assert bench.run() == []


# -- commits without an observed outcome -------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("other", ["abort", "begin", "send", "offsets", "initialize", "handle", "prepare"])
def test_while_the_outcome_of_a_commit_was_not_seen_only_the_commit_can_be_called(other: str, is_v2: bool) -> None:
    bench = Bench(is_v2=is_v2)
    bench.begin(ORDERS)
    manager = bench.manager
    committed = manager.commit()
    calls = {
        "abort": manager.abort,
        "begin": manager.begin,
        "send": manager.check_may_send,
        "offsets": lambda: manager.send_offsets(OFFSETS, GROUP),
        "initialize": manager.initialize,
        "handle": manager.handle,
        "prepare": manager.prepare,
    }

    for _ in range(2):  # while it goes on, and when it is done
        with pytest.raises(TransactionStateError, match=r"Call commit_transaction\(\) again"):
            calls[other]()
        assert manager.commit() is committed
        bench.run()
    committed.acknowledge()
    manager.begin()

    assert [each.rpc for each in bench.sent if each.rpc in (COMMIT, ABORT)] == [COMMIT]


@BOTH
def test_a_commit_whose_answer_was_lost_is_sent_again(is_v2: bool) -> None:
    bench = Bench(is_v2=is_v2)
    request = bench.lead_to(COMMIT)
    committed = bench.manager.commit()

    assert bench.manager.lost(request) is RequestPause.BACKOFF

    asked = bench.run()
    assert asked[:2] == [Rpc.FIND_COORDINATOR, COMMIT]
    assert committed.is_done
    assert committed.error is None


@BOTH
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ],
)
@pytest.mark.parametrize("doubt", ["lost", "COORDINATOR_NOT_AVAILABLE"])
def test_a_commit_that_may_have_succeeded_is_never_reported_as_failed(code: ErrorCode, doubt: str, is_v2: bool) -> None:
    bench = Bench(is_v2=is_v2)
    request = bench.lead_to(COMMIT)
    committed = bench.manager.commit()
    if doubt == "lost":
        bench.manager.lost(request)
    else:
        refuse(bench, request, ErrorCode[doubt])
    bench.finish_well(bench.expect(Rpc.FIND_COORDINATOR))

    refuse(bench, bench.expect(COMMIT), code)

    assert type(committed.error) is CommitUnknown
    assert committed.error.__cause__ is not None
    assert code.name in str(committed.error)
    assert bench.manager.state is State.FATAL_ERROR
    with pytest.raises(TransactionStateError):
        bench.manager.abort()
    committed.acknowledge()
    with pytest.raises(CommitUnknown):
        bench.manager.abort()


@BOTH
def test_a_commit_that_could_not_be_sent_is_reported_as_failed(is_v2: bool) -> None:
    bench = Bench(is_v2=is_v2)
    request = bench.lead_to(COMMIT)
    committed = bench.manager.commit()
    bench.manager.lost(request, sent=False)
    bench.finish_well(bench.expect(Rpc.FIND_COORDINATOR))

    refuse(bench, bench.expect(COMMIT), ErrorCode.TRANSACTION_ABORTABLE)

    assert type(committed.error) is TransactionAbortable


@BOTH
def test_closing_fails_the_wait_for_a_commit_in_flight_with_an_unknown_outcome(is_v2: bool) -> None:
    bench = Bench(is_v2=is_v2)
    bench.lead_to(COMMIT)
    committed = bench.manager.commit()

    bench.manager.close(ProducerClosed("The producer was closed."))

    assert type(committed.error) is CommitUnknown


@BOTH
def test_closing_fails_the_wait_for_an_unsent_commit_as_not_committed(is_v2: bool) -> None:
    bench = Bench(is_v2=is_v2)
    bench.begin(ORDERS)
    bench.has_incomplete = True
    committed = bench.manager.commit()

    bench.manager.close(ProducerClosed("The producer was closed."))

    assert type(committed.error) is ProducerClosed
    assert bench.next() is None


def test_an_answer_that_comes_after_the_end_changes_nothing() -> None:
    bench = Bench()
    request = bench.lead_to(COMMIT)
    response = bench.approve(request)
    bench.manager.close(ProducerClosed("The producer was closed."))

    assert bench.manager.apply_answer(request, request.read(response), 4) is RequestPause.NONE
    assert bench.manager.lost(request) is RequestPause.NONE
    bench.manager.unsendable(request, UnsupportedVersion("too old"))

    assert bench.manager.state is State.FATAL_ERROR


@BOTH
def test_a_batch_that_fails_before_the_commit_was_sent_fails_the_commit_and_leaves_the_abort(is_v2: bool) -> None:
    bench = Bench(is_v2=is_v2)
    bench.begin(ORDERS)
    bench.has_incomplete = True
    committed = bench.manager.commit()

    bench.manager.batch_failed(KafkaTimeoutError("delivery_timeout_ms is over"))

    bench.has_incomplete = False
    assert type(committed.error) is TransactionAbortable
    assert bench.next() is None
    committed.acknowledge()
    bench.manager.abort()
    assert bench.run()[0] is ABORT


@BOTH
def test_a_batch_that_fails_when_the_commit_is_on_its_way_leaves_the_outcome_unknown(is_v2: bool) -> None:
    bench = Bench(is_v2=is_v2)
    bench.lead_to(COMMIT)
    committed = bench.manager.commit()

    bench.manager.batch_failed(KafkaTimeoutError("delivery_timeout_ms is over"))

    assert type(committed.error) is CommitUnknown


# -- aborting -----------------------------------------------------------------------------------------------------------


@BOTH
def test_an_abort_fails_what_has_not_left_and_waits_for_what_has(is_v2: bool) -> None:
    bench = Bench(is_v2=is_v2)
    bench.begin(ORDERS)
    bench.has_incomplete = True

    bench.manager.abort()

    assert [type(each) for each in bench.dropped] == [TransactionAborted]
    assert bench.manager.may_drain(ORDERS)  # the retries of what was drained already
    assert bench.next() is None
    bench.has_incomplete = False
    assert bench.run() == [ABORT]


def test_a_batch_dropped_by_an_abort_needs_no_new_epoch() -> None:
    bench = Bench()
    bench.begin(ORDERS)
    bench.manager.abort()

    bench.manager.batch_failed(bench.dropped[0])

    assert bench.run() == [ABORT]


def test_an_abort_adds_no_partitions_that_are_not_needed_any_more() -> None:
    bench = Bench()
    bench.begin(ORDERS)
    bench.write(OTHERS)

    bench.manager.abort()

    assert bench.run() == [ABORT]


@pytest.mark.parametrize("rpc", [ADD, Rpc.ADD_OFFSETS_TO_TXN])
@pytest.mark.parametrize("aborted", ["while it is under way", "after it was lost"])
@pytest.mark.parametrize("was_begun", [True, False])
def test_an_abort_ends_what_a_request_without_an_answer_may_have_begun(rpc: Rpc, aborted: str, was_begun: bool) -> None:
    bench = Bench()
    request = bench.lead_to(rpc)
    if aborted == "while it is under way":
        ended = bench.manager.abort()
        bench.manager.lost(request)
    else:
        bench.manager.lost(request)
        ended = bench.manager.abort()
    bench.finish_well(bench.expect(Rpc.FIND_COORDINATOR))

    request = bench.expect(ABORT)
    if was_begun:
        bench.finish_well(request)
    else:
        refuse(bench, request, ErrorCode.INVALID_TXN_STATE)

    assert bench.run() == [INIT]
    assert bench.manager.state is State.READY
    assert ended.error is None


@pytest.mark.parametrize("rpc", [ADD, Rpc.ADD_OFFSETS_TO_TXN])
def test_an_abort_waits_for_the_answer_that_shows_whether_there_is_a_transaction(rpc: Rpc) -> None:
    bench = Bench()
    request = bench.lead_to(rpc)
    bench.manager.abort()
    assert bench.next() is None

    bench.finish_well(request)

    assert bench.run() == [ABORT]


def test_an_abort_does_not_go_on_with_a_request_that_was_refused() -> None:
    bench = Bench()
    request = bench.lead_to(ADD)
    bench.manager.abort()

    refuse(bench, request, ErrorCode.CONCURRENT_TRANSACTIONS)

    assert bench.run() == []
    assert bench.manager.state is State.READY


def test_while_aborting_another_abortable_error_changes_nothing() -> None:
    bench = Bench()
    bench.begin(ORDERS)
    aborted = bench.manager.abort()

    bench.manager.batch_failed(broker_error(ErrorCode.INVALID_TXN_STATE))

    assert bench.manager.state is State.ABORTING
    bench.run()
    assert aborted.error is None


def test_the_first_of_several_errors_is_the_reason() -> None:
    bench = in_state(State.IN_TRANSACTION)
    bench.manager.batch_failed(KafkaTimeoutError("the first"))

    bench.manager.batch_failed(KafkaTimeoutError("the second"))

    assert "the first" in str(bench.manager.last_error)
    assert len(bench.dropped) == 1


def test_a_coordinator_that_cannot_be_found_for_an_abort_ends_the_producer() -> None:
    bench = Bench()
    request = bench.lead_to(ABORT)
    bench.manager.lost(request)

    refuse(bench, bench.expect(Rpc.FIND_COORDINATOR), ErrorCode.TRANSACTION_ABORTABLE)

    assert bench.manager.state is State.FATAL_ERROR


def test_a_batch_that_fails_outside_of_a_transaction_is_none_of_its_business() -> None:
    bench = in_state(State.READY)

    bench.manager.batch_failed(KafkaTimeoutError("late"))

    assert bench.manager.state is State.READY


def test_each_call_raises_its_own_error() -> None:
    manager = in_state(State.ABORTABLE_ERROR).manager
    raised: list[KafkaError] = []

    for _ in range(2):
        with pytest.raises(TransactionAbortable) as caught:
            manager.check_may_send()
        raised.append(caught.value)

    assert raised[0] is not raised[1]
    assert raised[0].__cause__ is raised[1].__cause__ is not None


# -- epochs -------------------------------------------------------------------------------------------------------------


def test_the_first_producer_id_is_asked_for_without_one() -> None:
    request = Bench().lead_to(INIT)

    message = init_message(request)

    assert (message.transactional_id, message.producer_id, message.producer_epoch) == ("payments-1", -1, -1)
    assert message.transaction_timeout_ms == 60_000
    assert (request.lowest, request.highest) == (0, 5)


def test_after_an_abortable_error_of_version_1_the_next_transaction_has_the_next_epoch() -> None:
    bench = in_state(State.ABORTABLE_ERROR)
    bench.manager.abort()
    bench.finish_well(bench.expect(ABORT))

    request = bench.expect(INIT)

    assert (init_message(request).producer_id, init_message(request).producer_epoch) == (7, 0)
    assert request.lowest == 3
    bench.finish_well(request)
    assert bench.identities == [(7, 0), (7, 1)]
    assert bench.manager.state is State.READY


def test_after_an_abortable_error_of_version_2_the_end_gives_the_next_epoch() -> None:
    bench = Bench(is_v2=True)
    bench.begin(ORDERS)
    bench.manager.batch_failed(broker_error(ErrorCode.INVALID_PRODUCER_EPOCH))
    bench.manager.abort()

    assert bench.run() == [ABORT]
    assert bench.identities == [(7, 0), (7, 1)]


def test_a_coordinator_that_cannot_bump_epochs_leaves_the_epoch_after_an_abortable_error() -> None:
    bench = Bench(highest_init=2)
    bench.begin(ORDERS)
    bench.manager.batch_failed(KafkaTimeoutError("delivery_timeout_ms is over"))
    bench.manager.abort()

    assert bench.run() == [ABORT]


def test_where_the_epoch_cannot_be_bumped_lost_sequences_end_the_producer() -> None:
    bench = Bench(highest_init=2)
    bench.begin(ORDERS)

    bench.manager.sequences_lost(KafkaTimeoutError("delivery_timeout_ms is over"))

    assert type(bench.manager.last_error) is TransactionFatal


@BOTH
def test_where_the_epoch_can_be_bumped_lost_sequences_leave_the_abort(is_v2: bool) -> None:
    bench = Bench(is_v2=is_v2)
    bench.begin(ORDERS)

    bench.manager.sequences_lost(KafkaTimeoutError("delivery_timeout_ms is over"))

    assert type(bench.manager.last_error) is TransactionAbortable
    bench.commit_one_transaction()
    assert bench.manager.producer != (7, 0)


@pytest.mark.parametrize("rpc", [ADD, Rpc.ADD_OFFSETS_TO_TXN, Rpc.TXN_OFFSET_COMMIT, COMMIT, ABORT])
def test_after_a_request_of_version_1_without_an_answer_the_next_transaction_has_another_epoch(rpc: Rpc) -> None:
    """KAFKA-17754: it may arrive late, and would then be taken for a part of the next transaction."""
    bench = Bench()
    request = bench.lead_to(rpc)
    pending = bench.manager.pending
    bench.manager.lost(request)
    if pending is None:
        pending = bench.manager.commit()

    asked = bench.run()

    assert asked[-1] is INIT
    assert bench.manager.producer == (7, 1)
    assert pending.is_done
    assert pending.error is None


@pytest.mark.parametrize("rpc", [Rpc.TXN_OFFSET_COMMIT, COMMIT, ABORT])
def test_after_a_request_of_version_2_without_an_answer_the_end_gives_the_epoch(rpc: Rpc) -> None:
    bench = Bench(is_v2=True)
    request = bench.lead_to(rpc)
    bench.manager.lost(request)
    if bench.manager.pending is None:
        bench.manager.commit()

    assert INIT not in bench.run()
    assert bench.manager.producer == (7, 1)


def test_an_old_coordinator_is_asked_for_a_producer_id_as_if_for_the_first_time_after_a_lost_answer() -> None:
    bench = Bench(highest_init=2)
    request = bench.lead_to(COMMIT)
    bench.manager.lost(request)
    bench.finish_well(bench.expect(Rpc.FIND_COORDINATOR))
    bench.finish_well(bench.expect(COMMIT))

    request = bench.expect(INIT)

    assert init_message(request).producer_id == -1
    assert request.lowest == 0


def test_when_the_epochs_of_an_id_are_used_up_the_end_gives_a_new_id() -> None:
    bench = Bench(is_v2=True)
    request = bench.lead_to(COMMIT)

    bench.manager.apply_answer(request, request.read(EndTxnResponse(error_code=0, producer_id=8, producer_epoch=0)), 5)

    assert bench.manager.producer == (8, 0)
    assert bench.identities[-1] == (8, 0)


def test_an_end_of_version_2_that_gives_no_epoch_is_followed_by_asking_for_one() -> None:
    bench = Bench(is_v2=True)
    request = bench.lead_to(COMMIT)

    bench.manager.apply_answer(request, request.read(EndTxnResponse(error_code=0)), 5)

    assert bench.run() == [INIT]
    assert bench.manager.state is State.READY


def test_a_commit_that_succeeded_is_reported_though_the_next_epoch_is_refused() -> None:
    bench = Bench()
    request = bench.lead_to(COMMIT)
    committed = bench.manager.commit()
    bench.manager.lost(request)
    bench.finish_well(bench.expect(Rpc.FIND_COORDINATOR))
    bench.finish_well(bench.expect(COMMIT))

    refuse(bench, bench.expect(INIT), ErrorCode.PRODUCER_FENCED)

    assert committed.is_done
    assert committed.error is None
    assert bench.manager.state is State.FATAL_ERROR


def test_after_a_refused_next_epoch_the_producer_can_be_initialized_again() -> None:
    bench = Bench()
    request = bench.lead_to(COMMIT)
    committed = bench.manager.commit()
    bench.manager.lost(request)
    bench.finish_well(bench.expect(Rpc.FIND_COORDINATOR))
    bench.finish_well(bench.expect(COMMIT))

    refuse(bench, bench.expect(INIT), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

    assert committed.error is None
    assert bench.manager.state is State.UNINITIALIZED
    bench.commit_one_transaction()


def test_an_epoch_requested_after_one_transaction_leaves_the_next_one_undecided() -> None:
    bench = in_state(State.ABORTABLE_ERROR)
    bench.commit_one_transaction()
    bench.begin(ORDERS)
    bench.has_incomplete = True
    committed = bench.manager.commit()

    bench.manager.batch_failed(KafkaTimeoutError("delivery_timeout_ms is over"))

    assert type(committed.error) is TransactionAbortable


def test_unknown_producer_id_to_an_abort_means_that_there_is_nothing_to_abort_any_more() -> None:
    bench = Bench()
    request = bench.lead_to(ABORT)
    aborted = bench.manager.abort()

    refuse(bench, request, ErrorCode.UNKNOWN_PRODUCER_ID)

    assert bench.run() == [INIT]
    assert aborted.error is None


# -- the version of transactions changes ---------------------------------------------------------------------------------


def test_an_upgrade_counts_from_the_next_transaction_on_which_gets_an_epoch_first() -> None:
    bench = Bench()
    bench.begin(ORDERS)
    bench.version = 2
    bench.write(OTHERS)
    bench.manager.commit()

    asked = bench.run()

    assert asked == [ADD, COMMIT, INIT]
    assert bench.sent[-2].highest == 4
    assert bench.manager.is_v2


def test_a_downgrade_counts_from_the_next_transaction_on() -> None:
    bench = Bench(is_v2=True)
    bench.begin(ORDERS)
    bench.version = 1
    bench.write(OTHERS)
    committed = bench.manager.commit()

    asked = bench.run()
    committed.acknowledge()

    assert asked == [COMMIT]
    assert bench.sent[-1].highest == 5
    bench.begin(ORDERS)
    assert bench.sent[-1].rpc is ADD


# -- coordinators -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 4])
def test_a_coordinator_is_found_in_the_old_and_the_new_form_of_the_answer(version: int) -> None:
    bench = Bench()
    bench.manager.initialize()
    request = bench.expect(Rpc.FIND_COORDINATOR)
    old = FindCoordinatorResponse(node_id=1, host="kafka-1", port=9092)
    response = old if version == 3 else bench.approve(request)

    bench.manager.apply_answer(request, request.read(response), version)

    assert bench.expect(INIT).node_id == NODES[CoordinatorType.TRANSACTION]


def test_a_request_that_was_lost_goes_to_a_coordinator_that_is_looked_up_again() -> None:
    bench = Bench()
    bench.manager.lost(bench.lead_to(INIT))

    request = bench.expect(Rpc.FIND_COORDINATOR)

    response = FindCoordinatorResponse(node_id=3, host="kafka-3", port=9092)
    bench.manager.apply_answer(request, request.read(response), 3)

    assert bench.expect(INIT).node_id == 3


# -- the versions of requests ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "key_type", "lowest"), [(CoordinatorType.GROUP, 0, 0), (CoordinatorType.TRANSACTION, 1, 1)]
)
def test_a_coordinator_can_be_found_in_each_version_that_knows_its_kind(
    kind: CoordinatorType, key_type: int, lowest: int
) -> None:
    request = find_coordinator(CoordinatorKey(kind, "payments-1"))

    assert isinstance(request.message, FindCoordinatorRequest)
    assert (request.message.key_type, request.lowest) == (key_type, lowest)


@pytest.mark.parametrize(
    ("group", "lowest"),
    [
        (ConsumerGroupMetadata("readers"), 0),
        (ConsumerGroupMetadata("readers", generation_id=0), 3),
        (ConsumerGroupMetadata("readers", member_id="member-1"), 3),
        (ConsumerGroupMetadata("readers", group_instance_id="host-1"), 3),
    ],
    ids=["a group only", "a generation", "a member", "a static member"],
)
def test_offsets_that_name_a_member_need_a_version_that_can_fence_it(group: ConsumerGroupMetadata, lowest: int) -> None:
    bench = Bench()
    bench.begin()
    bench.manager.send_offsets(OFFSETS, group)

    bench.run()

    (request,) = [each for each in bench.sent if each.rpc is Rpc.TXN_OFFSET_COMMIT]
    assert (request.lowest, request.highest) == (lowest, 4)


@pytest.mark.parametrize(
    ("rpc", "is_v2"),
    [(COMMIT, True), (ABORT, True), (COMMIT, False), (ABORT, False), (Rpc.TXN_OFFSET_COMMIT, True), (INIT, True)],
)
def test_the_end_of_a_transaction_of_version_2_is_distinguished_from_other_requests(rpc: Rpc, is_v2: bool) -> None:
    request = Bench(is_v2=is_v2).lead_to(rpc)

    assert request.ends_v2 is (is_v2 and rpc in (COMMIT, ABORT))


def test_the_first_partitions_are_retried_after_2_milliseconds_and_then_after_20_at_most() -> None:
    pauses = [FIRST_PARTITIONS_BACKOFF.delay(failures, 0.5) for failures in range(6)]

    assert pauses == pytest.approx([0.002, 0.004, 0.008, 0.016, 0.020, 0.020])


# -- answers that no broker could mean ------------------------------------------------------------------------------------


def found(key: str, node_id: int = 1) -> FindCoordinatorResponse:
    only = Coordinator(key=key, node_id=node_id, host="", port=1, error_code=0, error_message=None)
    return FindCoordinatorResponse(coordinators=[only])


@pytest.mark.parametrize(
    ("rpc", "response"),
    [
        (Rpc.FIND_COORDINATOR, found("payments-2")),
        (Rpc.FIND_COORDINATOR, found("payments-1", node_id=-1)),
        (Rpc.FIND_COORDINATOR, FindCoordinatorResponse(coordinators=found("payments-1").coordinators * 2)),
        (INIT, InitProducerIdResponse(error_code=0, producer_id=7, producer_epoch=-1)),
        (INIT, InitProducerIdResponse(error_code=0)),
        (ADD, AddPartitionsToTxnResponse()),
        (Rpc.TXN_OFFSET_COMMIT, TxnOffsetCommitResponse(topics=[])),
        (COMMIT, EndTxnResponse(error_code=0, producer_id=7, producer_epoch=-1)),
    ],
)
def test_an_answer_that_cannot_be_meant_is_no_answer(rpc: Rpc, response: object) -> None:
    request = Bench().lead_to(rpc)

    with pytest.raises(ProtocolError):
        request.read(response)


def test_of_a_refused_end_only_the_error_is_read() -> None:
    request = Bench().lead_to(COMMIT)
    refused = ErrorCode.PRODUCER_FENCED

    answer = request.read(EndTxnResponse(error_code=refused, producer_id=7, producer_epoch=-1))

    assert isinstance(answer, TransactionEnded)
    assert answer.code == refused


def test_an_answer_for_more_partitions_than_were_asked_for_is_no_answer() -> None:
    bench = Bench()
    request = bench.lead_to(ADD)
    response = bench.approve(request)
    response.results_by_topic_v3_and_below *= 2

    with pytest.raises(ProtocolError, match="orders-0"):
        request.read(response)


# -- requests that cannot be sent -----------------------------------------------------------------------------------------


REFUSED = AuthenticationError("wrong password")


def test_refused_credentials_leave_the_producer_to_be_initialized_again() -> None:
    bench = Bench()
    operation = bench.manager.initialize()
    bench.manager.lost(bench.expect(Rpc.FIND_COORDINATOR), sent=False)

    bench.manager.retract(REFUSED)

    assert operation.error is REFUSED
    assert bench.manager.state is State.UNINITIALIZED
    bench.commit_one_transaction()


def test_a_request_in_a_transaction_that_can_never_be_sent_ends_the_producer() -> None:
    bench = Bench()
    request = bench.lead_to(Rpc.TXN_OFFSET_COMMIT)

    bench.manager.unsendable(request, UnsupportedVersion("too old"))

    assert type(bench.manager.last_error) is TransactionFatal
    assert bench.failed_all


@BOTH
def test_a_commit_that_was_not_sent_can_be_taken_back_and_repeated(is_v2: bool) -> None:
    bench = Bench(is_v2=is_v2)
    request = bench.lead_to(COMMIT)
    committed = bench.manager.commit()
    bench.manager.lost(request, sent=False)

    bench.manager.retract(REFUSED)

    assert committed.error is REFUSED
    committed.acknowledge()
    assert bench.next() is None
    bench.manager.check_may_send()
    again = bench.manager.commit()
    assert bench.run()[-1] is COMMIT
    assert (again.is_done, again.error) == (True, None)


@BOTH
def test_a_commit_that_may_have_been_sent_cannot_be_taken_back(is_v2: bool) -> None:
    bench = Bench(is_v2=is_v2)
    request = bench.lead_to(COMMIT)
    committed = bench.manager.commit()
    bench.manager.lost(request)

    bench.manager.retract(REFUSED)

    assert not committed.is_done
    assert COMMIT in bench.run()
    assert committed.error is None


@BOTH
def test_an_abort_goes_on_whatever_its_caller_was_reported(is_v2: bool) -> None:
    bench = Bench(is_v2=is_v2)
    request = bench.lead_to(ABORT)
    aborted = bench.manager.abort()
    bench.manager.lost(request, sent=False)

    bench.manager.retract(REFUSED)

    assert not aborted.is_done
    assert ABORT in bench.run()
    assert aborted.error is None


def test_a_prepared_transaction_stays_prepared_where_its_commit_was_not_sent() -> None:
    bench = Bench(is_v2=True, enable_2pc=True)
    bench.begin(ORDERS)
    operation = bench.manager.prepare()
    bench.run()
    operation.acknowledge()
    prepared = bench.manager.prepared
    bench.manager.commit()
    bench.manager.lost(bench.expect(COMMIT), sent=False)

    bench.manager.retract(REFUSED)

    assert bench.manager.state is State.PREPARED_TRANSACTION
    assert bench.manager.prepared is prepared


# -- handles ------------------------------------------------------------------------------------------------------------


def attached(bench: Bench, handle: TransactionHandle, *, may_end: bool) -> None:
    bench.manager = TransactionManager.attach(
        handle, listener=bench, transaction_version=lambda: bench.version, may_end=may_end
    )


def test_a_handle_can_be_pickled() -> None:
    handle = in_state(State.IN_TRANSACTION).manager.handle()

    assert pickle.loads(pickle.dumps(handle)) == handle == TransactionHandle("payments-1", 7, 0)


@BOTH
def test_a_transaction_whose_handle_was_given_away_is_ended_with_a_request_and_followed_by_an_epoch(
    is_v2: bool,
) -> None:
    bench = Bench(is_v2=is_v2)
    bench.begin()
    bench.manager.handle()
    bench.manager.commit()

    assert bench.run() == ([COMMIT] if is_v2 else [COMMIT, INIT])
    assert bench.manager.producer == (7, 1)


@BOTH
def test_one_that_is_attached_writes_without_asking_for_a_producer_id(is_v2: bool) -> None:
    bench = Bench(is_v2=is_v2)
    attached(bench, TransactionHandle("payments-1", 7, 5), may_end=False)

    bench.write(ORDERS)

    assert bench.run() == ([] if is_v2 else [Rpc.FIND_COORDINATOR, ADD])
    assert bench.manager.may_drain(ORDERS)
    assert bench.manager.producer == (7, 5)
    assert bench.identities == []


def test_one_that_is_attached_cannot_end_what_it_did_not_begin() -> None:
    bench = Bench()
    attached(bench, TransactionHandle("payments-1", 7, 5), may_end=False)
    manager = bench.manager

    for call in (manager.initialize, manager.begin, manager.commit, manager.abort, manager.prepare, manager.handle):
        with pytest.raises(TransactionStateError):
            call()

    assert manager.state is State.IN_TRANSACTION


def test_one_that_is_attached_can_add_offsets() -> None:
    bench = Bench()
    attached(bench, TransactionHandle("payments-1", 7, 5), may_end=False)

    operation = bench.manager.send_offsets(OFFSETS, GROUP)
    bench.run()

    assert operation.is_done
    assert operation.error is None


def test_one_that_is_attached_takes_the_version_that_the_brokers_tell_later() -> None:
    bench = Bench(is_v2=False)  # nothing is connected yet
    attached(bench, TransactionHandle("payments-1", 7, 5), may_end=False)
    bench.version = 2

    bench.write(ORDERS)

    assert bench.manager.is_v2
    assert bench.manager.may_drain(ORDERS)


def test_a_manager_that_ends_a_transaction_by_its_handle_takes_the_version_that_the_brokers_report_later() -> None:
    bench = Bench(is_v2=False)
    attached(bench, TransactionHandle("payments-1", 7, 5), may_end=True)
    bench.version = 2
    bench.manager.send_offsets(OFFSETS, GROUP)
    bench.manager.commit()

    assert bench.run() == [Rpc.FIND_COORDINATOR, Rpc.FIND_COORDINATOR, Rpc.TXN_OFFSET_COMMIT, COMMIT]


def test_another_writer_in_the_partition_of_a_batch_leaves_the_transaction_to_be_aborted() -> None:
    bench = Bench()
    attached(bench, TransactionHandle("payments-1", 7, 5), may_end=False)
    bench.write(ORDERS)

    bench.manager.batch_failed(SharedPartition("another writer wrote there"))

    with pytest.raises(SharedPartition, match="another writer"):
        bench.manager.check_may_send()


@BOTH
@pytest.mark.parametrize("how", ["commit", "abort"])
def test_a_manager_that_ends_a_transaction_by_its_handle_must_initialize_before_the_next(how: str, is_v2: bool) -> None:
    bench = Bench(is_v2=is_v2)
    attached(bench, TransactionHandle("payments-1", 7, 5), may_end=True)
    ended = bench.manager.commit() if how == "commit" else bench.manager.abort()

    assert bench.run() == [Rpc.FIND_COORDINATOR, COMMIT if how == "commit" else ABORT]

    assert isinstance(bench.sent[-1].message, EndTxnRequest)
    assert bench.sent[-1].message.producer_epoch == 5
    assert ended.error is None
    assert bench.manager.state is State.UNINITIALIZED
    bench.commit_one_transaction()


@BOTH
def test_to_abort_a_shared_transaction_that_is_over_is_no_error(is_v2: bool) -> None:
    bench = Bench(is_v2=is_v2)
    bench.begin()
    bench.manager.handle()
    aborted = bench.manager.abort()

    refuse(bench, bench.expect(ABORT), ErrorCode.INVALID_TXN_STATE)

    assert bench.run() == [INIT]
    assert aborted.error is None
    assert bench.manager.state is State.READY


@BOTH
def test_to_commit_a_shared_transaction_that_is_empty_or_over_can_be_aborted_and_done_again(is_v2: bool) -> None:
    bench = Bench(is_v2=is_v2)
    bench.begin()
    bench.manager.handle()
    committed = bench.manager.commit()

    refuse(bench, bench.expect(COMMIT), ErrorCode.INVALID_TXN_STATE)

    assert type(committed.error) is TransactionAbortable
    assert "handle" in str(committed.error)
    bench.commit_one_transaction()


def test_a_transaction_aborted_by_the_coordinator_can_be_repeated_in_version_2() -> None:
    bench = Bench(is_v2=True)
    request = bench.lead_to(COMMIT)
    committed = bench.manager.commit()

    refuse(bench, request, ErrorCode.INVALID_TXN_STATE)

    assert type(committed.error) is TransactionAbortable
    assert "transaction_timeout_ms" in str(committed.error)
    bench.commit_one_transaction()


# -- two-phase commit (KIP-939) -------------------------------------------------------------------------------------------


def test_a_producer_of_two_phase_commits_sets_the_field_in_the_versions_that_have_it() -> None:
    bench = Bench(enable_2pc=True)

    request = bench.lead_to(INIT)

    assert init_message(request).enable_2pc
    assert not init_message(request).keep_prepared_txn
    assert (request.lowest, request.highest) == (6, 6)


def test_a_broker_that_knows_no_two_phase_commit_is_refused_clearly() -> None:
    bench = Bench(enable_2pc=True)
    request = bench.lead_to(INIT)
    operation = bench.manager.initialize()

    bench.manager.unsendable(request, UnsupportedVersion("Broker 1 speaks InitProducerId up to 5."))

    assert isinstance(operation.error, TransactionFatal)
    assert "up to 5" in str(operation.error)


@BOTH
@pytest.mark.parametrize("same", [True, False])
def test_a_prepared_transaction_is_completed_as_the_outer_coordinator_knows_it(same: bool, is_v2: bool) -> None:
    bench = Bench(enable_2pc=True, is_v2=is_v2)
    bench.begin(ORDERS)
    operation = bench.manager.prepare()
    assert bench.run() == []
    operation.acknowledge()
    prepared = bench.manager.prepared
    assert str(prepared) == "7:0"

    bench.manager.complete(PreparedTransactionState(7, 0 if same else 99))

    assert bench.run() == [COMMIT if same else ABORT]
    assert bench.manager.state is State.READY
    assert bench.manager.prepared is None


def test_a_prepared_transaction_that_was_kept_is_completed_after_a_restart() -> None:
    bench = Bench(enable_2pc=True)
    operation = bench.manager.initialize(keep_prepared=True)
    bench.finish_well(bench.expect(Rpc.FIND_COORDINATOR))
    request = bench.expect(INIT)
    assert init_message(request).keep_prepared_txn
    response = InitProducerIdResponse(
        error_code=0, producer_id=7, producer_epoch=6, ongoing_txn_producer_id=7, ongoing_txn_producer_epoch=4
    )

    bench.manager.apply_answer(request, request.read(response), 6)

    assert operation.error is None
    operation.acknowledge()
    assert bench.manager.state is State.PREPARED_TRANSACTION
    assert bench.manager.prepared == PreparedTransactionState(7, 4)
    bench.manager.complete(PreparedTransactionState.parse("7:4"))
    assert bench.run() == [COMMIT]


def test_with_nothing_prepared_the_producer_is_ready() -> None:
    bench = Bench(enable_2pc=True)
    bench.manager.initialize(keep_prepared=True).acknowledge()

    bench.run()

    assert bench.manager.state is State.READY


def test_a_transaction_is_prepared_when_everything_in_it_is_there() -> None:
    bench = Bench(enable_2pc=True)
    bench.begin()
    bench.write(ORDERS)
    bench.manager.send_offsets(OFFSETS, GROUP)
    bench.has_incomplete = True

    operation = bench.manager.prepare()

    with pytest.raises(TransactionStateError, match="prepare_transaction"):
        bench.manager.check_may_send()
    assert bench.run()[-1] is Rpc.TXN_OFFSET_COMMIT
    before = (operation.is_done, bench.manager.awaits_batches, bench.manager.state)
    bench.has_incomplete = False
    assert bench.run() == []
    after = (operation.is_done, bench.manager.awaits_batches, bench.manager.state)

    assert before == (False, True, State.IN_TRANSACTION)
    assert after == (True, False, State.PREPARED_TRANSACTION)


def test_a_batch_that_fails_while_the_transaction_is_being_prepared_is_reported() -> None:
    bench = Bench(enable_2pc=True)
    bench.begin(ORDERS)
    bench.has_incomplete = True
    operation = bench.manager.prepare()

    bench.manager.batch_failed(broker_error(ErrorCode.INVALID_RECORD))

    assert isinstance(operation.error, TransactionAbortable)
    operation.acknowledge()
    bench.has_incomplete = False
    bench.manager.abort()
    assert bench.run()[0] is ABORT
    assert bench.manager.state is State.READY
    assert bench.manager.prepared is None


def test_the_completion_of_a_prepared_transaction_continues_when_it_is_called_again() -> None:
    bench = Bench(enable_2pc=True)
    bench.begin(ORDERS)
    bench.manager.prepare().acknowledge()
    bench.run()
    first = bench.manager.complete(PreparedTransactionState(7, 0))

    assert bench.manager.complete(PreparedTransactionState(7, 99)) is first
    assert bench.run() == [COMMIT]
    assert bench.manager.complete(PreparedTransactionState(7, 0)) is first, "the caller has not seen the outcome"
    first.acknowledge()
    with pytest.raises(TransactionStateError, match="no open transaction"):
        bench.manager.complete(PreparedTransactionState(7, 0))


def test_a_transaction_that_may_be_prepared_has_no_timeout() -> None:
    bench = Bench(enable_2pc=True)

    request = bench.lead_to(INIT)

    assert init_message(request).transaction_timeout_ms == 2**31 - 1


@pytest.mark.parametrize(
    ("code", "keep"),
    [(ErrorCode.UNSUPPORTED_VERSION, True), (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, False)],
)
def test_the_error_of_a_cluster_without_two_phase_commits_names_what_it_needs(code: ErrorCode, keep: bool) -> None:
    bench = Bench(enable_2pc=True)
    operation = bench.manager.initialize(keep_prepared=keep)
    bench.finish_well(bench.expect(Rpc.FIND_COORDINATOR))

    refuse(bench, bench.expect(INIT), code)

    assert isinstance(operation.error, TransactionFatal)
    assert "transaction.two.phase.commit.enable" in str(operation.error)
    assert ("KAFKA-20739" in str(operation.error)) == keep
    operation.acknowledge()
    bench.manager.initialize().acknowledge()
    bench.run()
    assert bench.manager.state is State.READY


@pytest.mark.parametrize("text", ["", "7", "7:", ":4", "7:4:1", " 7:4", "-1:-1", "a:b", "7:4\n", "\u0667:4"])
def test_a_text_that_names_no_prepared_transaction_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="Invalid prepared transaction"):
        PreparedTransactionState.parse(text)


def test_a_prepared_transaction_is_a_value_that_can_be_written_down() -> None:
    state = PreparedTransactionState(7, 4)

    assert PreparedTransactionState.parse(str(state)) == state
    assert pickle.loads(pickle.dumps(state)) == state


CALLS_OF_TWO_PHASES: dict[str, Callable[[TransactionManager], object]] = {
    "prepare": lambda manager: manager.prepare(),
    "complete": lambda manager: manager.complete(PreparedTransactionState(7, 0)),
    "keep_prepared": lambda manager: manager.initialize(keep_prepared=True),
}


@pytest.mark.parametrize("call", CALLS_OF_TWO_PHASES)
def test_two_phase_commits_must_be_enabled(call: str) -> None:
    manager = in_state(State.UNINITIALIZED if call == "keep_prepared" else State.IN_TRANSACTION).manager

    with pytest.raises(TransactionStateError, match="transaction_two_phase_commit_enable"):
        CALLS_OF_TWO_PHASES[call](manager)


def test_a_batch_that_fails_after_its_transaction_was_prepared_ends_the_producer() -> None:
    bench = in_state(State.PREPARED_TRANSACTION)

    bench.manager.batch_failed(KafkaTimeoutError("late"))

    assert bench.manager.state is State.FATAL_ERROR


def test_a_prepared_transaction_may_have_the_first_producer_id_of_a_cluster() -> None:
    bench = Bench(enable_2pc=True)
    bench.manager.initialize(keep_prepared=True)
    bench.finish_well(bench.expect(Rpc.FIND_COORDINATOR))
    request = bench.expect(INIT)
    response = InitProducerIdResponse(
        error_code=0, producer_id=0, producer_epoch=6, ongoing_txn_producer_id=0, ongoing_txn_producer_epoch=4
    )

    bench.manager.apply_answer(request, request.read(response), 6)

    assert bench.manager.prepared == PreparedTransactionState(0, 4)


# -- operations ---------------------------------------------------------------------------------------------------------


def test_a_call_that_is_under_way_has_not_failed() -> None:
    operation = Bench().manager.initialize()

    assert (operation.is_done, operation.error) == (False, None)


def test_a_callback_for_the_end_is_called_once() -> None:
    bench = Bench()
    operation = bench.manager.initialize()
    reported: list[str] = []
    operation.when_done(lambda: reported.append("before"))

    bench.run()
    operation.when_done(lambda: reported.append("after"))
    operation.finish(TransactionFatal("too late"))

    assert reported == ["before", "after"]
    assert operation.error is None
    assert "init_transactions: succeeded" in repr(operation)


@BOTH
def test_new_requests_are_announced(is_v2: bool) -> None:
    bench = Bench(is_v2=is_v2)
    manager = bench.manager
    steps: list[Callable[[], object]] = [
        manager.initialize,
        manager.begin,
        lambda: manager.send_offsets(OFFSETS, GROUP),
        manager.commit,
    ]
    for step in steps:
        bench.wakes = 0
        step()
        has_work = bench.run() != []
        assert (bench.wakes > 0) is has_work
        if manager.pending is not None:
            manager.pending.acknowledge()


@pytest.mark.parametrize(
    ("value", "was"),
    [
        (TransactionHandle("payments-1", 7, 0), "aioproducer.core.transaction_handle"),
        (PreparedTransactionState(7, 4), "aioproducer.core.prepared_transaction"),
    ],
)
def test_an_object_pickled_before_its_module_moved_can_be_loaded(value: object, was: str) -> None:
    kept = pickle.dumps(value, protocol=0).replace(type(value).__module__.encode(), was.encode())

    assert was.encode() in kept
    assert pickle.loads(kept) == value
