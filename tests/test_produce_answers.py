"""The effect of each response to a Produce request on its batches: complete, sent again, split, renumbered, or failed."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from aioproducer.core.answers import ProduceAnswer
from aioproducer.core.cluster import Node
from aioproducer.core.transactions.manager import TransactionManager
from aioproducer.core.transactions.states import State
from aioproducer.errors import (
    BrokerConnectionError,
    BrokerError,
    KafkaError,
    NotWritten,
    ProducerIdExpired,
    ProtocolError,
    RecordTooLarge,
    SharedPartition,
    Unknown,
)
from aioproducer.net.connection import WRITTEN
from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.protocol.messages import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
)
from tests.desk import FIRST, NOW, Desk, Sent
from tests.sender_rig import begin, transaction_link

E = ErrorCode


# -- what was written -------------------------------------------------------------------------------------------------


def test_the_offset_of_each_record_follows_from_that_of_its_batch() -> None:
    desk = Desk()
    sent = desk.send(3)

    desk.answer(sent, base_offset=40)

    assert [each.result().offset for each in sent.deliveries] == [40, 41, 42]


@pytest.mark.parametrize("why", ["acks=0", "duplicate"])
def test_a_record_written_at_an_unknown_offset_has_no_offset_and_keeps_its_own_time(why: str) -> None:
    desk = Desk(idempotent=False, acks=0) if why == "acks=0" else Desk()
    sent = desk.send(2)

    if why == "acks=0":
        desk.take(sent, answer=WRITTEN)
    else:
        desk.answer(sent, E.DUPLICATE_SEQUENCE_NUMBER)

    assert [each.result().offset for each in sent.deliveries] == [-1, -1]
    assert [each.result().timestamp_ms for each in sent.deliveries] == [1, 1]


def test_each_batch_of_a_request_gets_its_own_answer() -> None:
    desk = Desk()
    deliveries = [desk.rig.put(partition) for partition in (0, 1)]
    first, second = (Sent(batch, [delivery]) for batch, delivery in zip(desk.rig.drain(), deliveries, strict=True))
    reported = [
        PartitionProduceResponse(index=0, error_code=0, base_offset=5),
        PartitionProduceResponse(index=1, error_code=E.INVALID_RECORD, base_offset=-1),
    ]

    desk.take(first, second, answer=ProduceAnswer(reported, (), 0))

    assert (first.outcomes, second.outcomes) == ([None], [NotWritten])


def test_only_the_pauses_that_a_broker_asks_for_are_measured() -> None:
    desk = Desk()

    desk.answer(desk.send())
    assert desk.rig.metrics.throttle_time.count == 0
    desk.answer(desk.send(), throttle_time_ms=40)

    assert desk.rig.metrics.throttle_time.count == 1
    assert desk.rig.metrics.throttle_time.total == 0.04


# -- what has no answer -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [BrokerConnectionError("it broke"), ProtocolError("it cannot be read")])
def test_a_batch_whose_answer_is_lost_or_unreadable_is_sent_again_and_may_be_written(error: KafkaError) -> None:
    desk = Desk()
    sent = desk.send()

    desk.take(sent, answer=error)

    assert desk.waits(sent)
    assert sent.batch.possibly_written
    assert desk.client.updates == ["t"]


def test_a_batch_that_the_client_gave_up_fails_and_may_be_written() -> None:
    desk = Desk()
    sent = desk.send()

    desk.take(sent, answer=KafkaError("The client was closed."))

    assert sent.outcomes == [Unknown]
    assert desk.client.updates == ["t"]


# -- how often a batch is sent ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("retries", [0, 1, 2])
def test_a_batch_is_sent_once_and_repeated_as_often_as_the_option_allows(retries: int) -> None:
    desk = Desk(idempotent=False, retries=retries)
    sent = desk.send()

    for _ in range(retries):
        desk.answer(sent, E.NOT_ENOUGH_REPLICAS)
        assert desk.waits(sent)
        desk.again(sent)
    desk.answer(sent, E.NOT_ENOUGH_REPLICAS)

    assert sent.outcomes == [NotWritten]


@pytest.mark.parametrize(("acks", "is_sent_again"), [(0, False), (1, True), ("all", True)])
def test_only_a_batch_that_is_acknowledged_is_sent_again(acks: Any, is_sent_again: bool) -> None:
    desk = Desk(idempotent=False, acks=acks)
    sent = desk.send()

    desk.take(sent, answer=BrokerConnectionError("it broke"))

    assert desk.waits(sent) == is_sent_again
    assert sent.outcomes == [None if is_sent_again else Unknown]


def test_a_batch_whose_time_is_over_is_not_sent_again() -> None:
    desk = Desk()
    sent = desk.send()
    desk.rig.accumulator.outcomes.give_up(sent.batch, KafkaError("too late"), NOW, timed_out=True)

    desk.answer(sent, E.NOT_ENOUGH_REPLICAS)

    assert desk.rig.drain(NOW + 100) == []
    assert desk.rig.pool.free == desk.rig.pool.total


# -- what failed ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (E.NOT_ENOUGH_REPLICAS, NotWritten),
        (E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Unknown),
        (E.REQUEST_TIMED_OUT, Unknown),
        (E.INVALID_RECORD, NotWritten),
        (E.TOPIC_AUTHORIZATION_FAILED, NotWritten),
        (999, Unknown),
    ],
)
def test_a_failure_shows_whether_the_batch_may_be_written(code: int, outcome: type[KafkaError]) -> None:
    desk = Desk(idempotent=False, retries=0)
    sent = desk.send()

    desk.answer(sent, code, error_message="in the broker's words")

    assert sent.outcomes == [outcome]
    assert isinstance(sent.error.__cause__, BrokerError)
    assert sent.error.__cause__.code == code
    assert "in the broker's words" in str(sent.error)


def test_a_clear_refusal_leaves_an_earlier_attempt_without_an_answer_undecided() -> None:
    desk = Desk()
    sent = desk.send()
    desk.lose(sent)

    desk.answer(sent, E.INVALID_RECORD)

    assert sent.outcomes == [Unknown]


def test_a_record_that_was_refused_gets_the_brokers_reason_and_the_others_hear_of_it() -> None:
    desk = Desk()
    sent = desk.send(3)
    errors = [
        BatchIndexAndErrorMessage(batch_index=0, batch_index_error_message="the key is missing"),
        BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message=None),
    ]

    desk.answer(sent, E.INVALID_RECORD, record_errors=errors, error_message="two records are wrong")

    reasons = [str(each.exception()) for each in sent.deliveries]
    assert reasons[0].endswith("was not written: the key is missing")
    assert reasons[1].endswith("two records are wrong")
    assert "None" not in reasons[1]
    assert "shared a batch with 2 record(s)" in reasons[2]


# -- what is too large ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 5])
def test_a_batch_that_is_too_large_is_split_and_the_log_line_names_the_option(
    count: int, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk()
    sent = desk.send(count)

    with caplog.at_level(logging.WARNING):
        desk.answer(sent, E.MESSAGE_TOO_LARGE)

    assert sent.is_waiting
    parts = desk.rig.accumulator.queues.by_partition[FIRST].batches
    assert sum(part.count for part in parts) == count
    assert len(parts) > 1
    assert not any(part.whole_in_doubt for part in parts)
    assert "A smaller batch_size or max_request_size avoids this" in caplog.text


def test_parts_of_a_batch_whose_answer_was_lost_stay_in_doubt() -> None:
    desk = Desk()
    sent = desk.send(3)
    desk.lose(sent)

    desk.answer(sent, E.MESSAGE_TOO_LARGE)

    parts = desk.rig.accumulator.queues.by_partition[FIRST].batches
    assert [part.whole_in_doubt for part in parts] == [True] * len(parts)


def test_a_batch_whose_time_is_over_is_not_split() -> None:
    desk = Desk()
    sent = desk.send(3)
    desk.rig.accumulator.outcomes.give_up(sent.batch, KafkaError("too late"), NOW, timed_out=True)

    desk.answer(sent, E.MESSAGE_TOO_LARGE)

    assert desk.rig.metrics.batch_split_total == 0
    assert desk.rig.pool.free == desk.rig.pool.total


@pytest.mark.parametrize("was_lost", [False, True])
def test_a_lone_record_that_is_too_large_is_named_so_and_certainly_not_written(was_lost: bool) -> None:
    """A broker looks at the size first: had it taken the attempt whose answer was lost, it would take this one."""
    desk = Desk()
    sent = desk.send()
    if was_lost:
        desk.lose(sent)

    desk.answer(sent, E.MESSAGE_TOO_LARGE)

    assert sent.outcomes == [NotWritten]
    cause = sent.error.__cause__
    assert isinstance(cause, RecordTooLarge)
    assert isinstance(cause.__cause__, BrokerError)
    assert cause.__cause__.code == E.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("size", [100, 200])
def test_a_lone_record_of_a_size_that_was_taken_before_may_be_written_by_an_attempt_whose_answer_was_lost(
    size: int,
) -> None:
    """The topic's limit was lowered since."""
    desk = Desk()
    desk.answer(desk.send(size=size))
    sent = desk.send(size=100)
    desk.lose(sent)

    desk.answer(sent, E.MESSAGE_TOO_LARGE)

    assert sent.outcomes == [Unknown]
    assert isinstance(sent.error.__cause__, BrokerError), "it is not too large for sure"


# -- the producer id and the sequences --------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [E.OUT_OF_ORDER_SEQUENCE_NUMBER, E.UNKNOWN_PRODUCER_ID])
def test_a_batch_whose_sequence_is_not_expected_is_sent_again_in_the_next_epoch(code: ErrorCode) -> None:
    desk = Desk()
    desk.answer(desk.send())
    sent = desk.send()
    assert sent.batch.base_sequence == 1

    desk.answer(sent, code, log_start_offset=3)
    desk.rig.settle(NOW)

    assert desk.waits(sent)
    assert (sent.batch.producer_epoch, sent.batch.base_sequence) == (1, 0)


def test_an_old_broker_that_does_not_know_the_producer_id_gives_no_reason_for_another_epoch() -> None:
    desk = Desk()
    sent = desk.send()

    desk.answer(sent, E.UNKNOWN_PRODUCER_ID, log_start_offset=-1)
    desk.rig.settle(NOW)

    assert desk.waits(sent)
    assert sent.batch.producer_epoch == 0


def test_a_batch_whose_answer_was_lost_gets_no_other_number_from_a_broker_that_expects_another_sequence() -> None:
    """One that was restarted remembers the last batch only, and this may be one before it."""
    desk = Desk()
    desk.answer(desk.send())
    sent = desk.send()
    desk.lose(sent)

    desk.answer(sent, E.OUT_OF_ORDER_SEQUENCE_NUMBER)

    assert sent.outcomes == [Unknown]


@pytest.mark.parametrize("code", [E.OUT_OF_ORDER_SEQUENCE_NUMBER, E.UNKNOWN_PRODUCER_ID])
def test_behind_a_batch_in_doubt_a_repeat_that_is_not_expected_is_sent_again_unless_the_broker_has_forgotten_it(
    code: ErrorCode,
) -> None:
    """The one in doubt may be held up on its way, and be written yet."""
    desk = Desk()
    desk.answer(desk.send())
    first, second = desk.send(), desk.send()
    desk.answer(first, 999)
    desk.lose(second)

    desk.answer(second, code, log_start_offset=3)

    is_forgotten = code is E.UNKNOWN_PRODUCER_ID
    assert first.outcomes == [Unknown]
    assert second.outcomes == [Unknown if is_forgotten else None]
    assert desk.waits(second) != is_forgotten


@pytest.mark.parametrize(("age_ms", "is_sent_again"), [(100_000, True), (140_000, False)])
def test_a_batch_is_repeated_if_its_broker_remembers_it_until_its_time_is_over(
    age_ms: int, is_sent_again: bool
) -> None:
    """At `NOW` 70 of its 120 seconds are left."""
    desk = Desk(expiration_ms=200_000, delivery_timeout_ms=120_000)
    sent = desk.send_aged(age_ms)

    desk.take(sent, answer=BrokerConnectionError("it broke"))

    assert desk.waits(sent) == is_sent_again
    assert sent.outcomes == [None if is_sent_again else Unknown]


def test_the_error_of_a_batch_that_is_not_repeated_contains_its_age() -> None:
    desk = Desk(expiration_ms=7_200_000)
    desk.answer(desk.send_aged(0))
    old, _ = desk.send_aged(3 * 3_600_000), desk.send_aged(0)

    desk.take(old, answer=BrokerConnectionError("it broke"))

    assert "its timestamps are 3 hours old" in str(old.error)


def test_a_batch_that_may_be_written_gets_no_other_number_from_a_broker_that_has_forgotten_the_producer() -> None:
    desk = Desk()
    sent = desk.send()
    desk.lose(sent)

    desk.answer(sent, E.UNKNOWN_PRODUCER_ID, log_start_offset=3)

    assert sent.outcomes == [Unknown]


def test_a_part_of_a_batch_that_may_be_written_gets_no_other_number() -> None:
    desk = Desk()
    whole = desk.send(4)
    desk.lose(whole)
    desk.answer(whole, E.MESSAGE_TOO_LARGE)
    part = Sent(desk.rig.drain(NOW + 40)[0], whole.deliveries)

    desk.answer(part, E.OUT_OF_ORDER_SEQUENCE_NUMBER)

    assert type(whole.deliveries[0].exception()) is Unknown


@pytest.mark.parametrize("code", [E.OUT_OF_ORDER_SEQUENCE_NUMBER, E.UNKNOWN_PRODUCER_ID, E.INVALID_PRODUCER_ID_MAPPING])
def test_without_idempotence_there_is_no_number_to_change(code: ErrorCode) -> None:
    desk = Desk(idempotent=False)
    sent = desk.send()

    desk.answer(sent, code)

    assert sent.outcomes == [NotWritten]


def test_a_broker_that_has_forgotten_the_producer_id_gets_the_batch_under_another_one() -> None:
    desk = Desk()
    sent = desk.send()

    desk.answer(sent, E.INVALID_PRODUCER_ID_MAPPING)
    desk.rig.settle(NOW)

    assert desk.waits(sent)
    assert desk.rig.sequences.needs_producer_id


def test_under_another_producer_id_a_batch_that_may_be_written_would_be_doubled() -> None:
    desk = Desk()
    sent = desk.send()
    desk.lose(sent)

    desk.answer(sent, E.INVALID_PRODUCER_ID_MAPPING)

    assert sent.outcomes == [Unknown]


@pytest.mark.parametrize("code", [E.INVALID_PRODUCER_EPOCH, E.PRODUCER_FENCED])
def test_a_producer_that_is_fenced_fails_the_batch_and_leaves_its_id(code: ErrorCode) -> None:
    desk = Desk()
    sent = desk.send()

    desk.answer(sent, code)
    desk.rig.settle(NOW)

    assert sent.outcomes == [NotWritten]
    assert desk.rig.sequences.needs_producer_id


# -- in transactions --------------------------------------------------------------------------------------------------


def desk_in_transaction() -> tuple[Desk, TransactionManager]:
    """A desk whose batches belong to an open transaction."""
    link = transaction_link()
    desk = Desk(transactions=link)
    return desk, begin(link, desk.rig).manager


async def test_a_sequence_that_is_not_expected_fails_the_transaction() -> None:
    desk, manager = desk_in_transaction()
    sent = desk.send()

    desk.answer(sent, E.OUT_OF_ORDER_SEQUENCE_NUMBER)

    assert sent.outcomes == [NotWritten]
    assert manager.state is State.ABORTABLE_ERROR


async def test_a_batch_behind_one_that_is_sent_again_waits_for_it_in_a_transaction() -> None:
    desk, manager = desk_in_transaction()
    desk.answer(desk.send())
    first, second = desk.send(), desk.send()

    desk.answer(first, E.NOT_ENOUGH_REPLICAS)
    desk.answer(second, E.OUT_OF_ORDER_SEQUENCE_NUMBER)

    assert desk.waits(first)
    assert desk.waits(second)
    assert manager.state is State.IN_TRANSACTION


async def test_a_batch_behind_one_that_is_sent_again_fails_at_once_in_a_transaction_that_is_aborted() -> None:
    desk, manager = desk_in_transaction()
    desk.answer(desk.send())
    first, second = desk.send(), desk.send()
    manager.abort()

    desk.answer(first, E.NOT_ENOUGH_REPLICAS)
    desk.answer(second, E.OUT_OF_ORDER_SEQUENCE_NUMBER)

    assert desk.waits(first)
    assert second.outcomes == [NotWritten]


async def test_a_producer_id_that_a_coordinator_gave_is_not_replaced() -> None:
    desk, manager = desk_in_transaction()
    sent = desk.send()

    desk.answer(sent, E.INVALID_PRODUCER_ID_MAPPING)

    assert sent.outcomes == [NotWritten]
    assert isinstance(manager.last_error, ProducerIdExpired)


@pytest.mark.parametrize("is_shared", [False, True])
async def test_a_repeat_with_an_unknown_offset_is_written_unless_it_may_be_that_of_another_writer(
    is_shared: bool,
) -> None:
    desk, manager = desk_in_transaction()
    if is_shared:
        manager.handle()
    sent = desk.send()

    desk.answer(sent, E.DUPLICATE_SEQUENCE_NUMBER)

    assert sent.outcomes == [NotWritten if is_shared else None]
    assert not sent.is_waiting
    assert isinstance(manager.last_error, SharedPartition) == is_shared


@pytest.mark.parametrize("code", [E.OUT_OF_ORDER_SEQUENCE_NUMBER, E.UNKNOWN_PRODUCER_ID])
@pytest.mark.parametrize("is_shared", [False, True])
async def test_a_gap_shows_another_writer_in_the_partition_where_there_may_be_one(
    code: ErrorCode, is_shared: bool
) -> None:
    desk, manager = desk_in_transaction()
    if is_shared:
        manager.handle()

    desk.answer(desk.send(), code)

    assert manager.state is State.ABORTABLE_ERROR
    is_gap = code is E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert isinstance(manager.last_error, SharedPartition) == (is_shared and is_gap)


# -- the leader -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leader", [0, 2])
def test_the_leader_that_the_broker_names_is_taken_at_once_and_the_metadata_are_requested(leader: int) -> None:
    desk = Desk()
    sent = desk.send()
    named = LeaderIdAndEpoch(leader_id=leader, leader_epoch=4)
    endpoint = NodeEndpoint(node_id=leader, host="other", port=9, rack=None)

    desk.answer(sent, E.NOT_LEADER_OR_FOLLOWER, current_leader=named, endpoints=[endpoint])

    assert desk.client.metadata.leader(*FIRST) == (leader, 4)
    assert desk.client.metadata.nodes[leader] == Node(leader, "other", 9, None)
    assert desk.client.updates == ["t"]


def test_a_leader_that_denies_leadership_may_be_replaced_by_one_of_an_older_epoch() -> None:
    desk = Desk()
    desk.rig.lead({0: 1, 1: 1, 2: 1}, nodes=2, epoch=5)

    desk.answer(desk.send(), E.NOT_LEADER_OR_FOLLOWER)
    desk.rig.lead({0: 2, 1: 1, 2: 1}, nodes=2, epoch=3)

    assert desk.client.metadata.leader(*FIRST) == (2, 3)


@pytest.mark.parametrize("code", [E.NOT_ENOUGH_REPLICAS, E.REQUEST_TIMED_OUT, E.INVALID_RECORD, 999])
def test_an_error_unrelated_to_leaders_changes_no_leader(code: int) -> None:
    desk = Desk()
    desk.rig.lead({0: 1, 1: 1, 2: 1}, nodes=2, epoch=5)
    before = desk.client.metadata.topics["t"]

    desk.answer(desk.send(), code, current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=9))

    assert desk.client.metadata.topics["t"] == before
    assert desk.client.updates == []
