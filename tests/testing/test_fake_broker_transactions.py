"""Responses of the fake broker's transaction coordinator, and its control by a test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aioproducer.errors import ConfigError
from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    ApiVersionsRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from aioproducer.testing import FakeBroker, FakeCluster
from aioproducer.testing.broker.consumer_group import CommittedOffset
from aioproducer.testing.broker.group_offsets import OFFSETS_TOPIC, offsets_partition
from aioproducer.testing.broker.log import BatchHeader, LogRules, PartitionLog
from aioproducer.testing.broker.transaction_state import TransactionState
from aioproducer.testing.raw_client import RawClient
from tests.testing.raw_transactions import OLD, OLDEST, TV1, TV2, Note, RawTransactions, Versions, Who, batch

ALL_VERSIONS = [OLDEST, OLD, TV1, TV2]


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(brokers=2, topics={"orders": 2, "audit": 1}) as broker:
        for partition in (0, 1):
            broker.move_leader("orders", partition, 1)
        yield broker


def steps_of(
    broker: FakeBroker, versions: Versions = TV2, transactional_id: str = "t", node: int = 1
) -> RawTransactions:
    return RawTransactions(broker.addresses[node], versions, transactional_id, "orders", "group")


@pytest.fixture
def steps(broker: FakeBroker) -> RawTransactions:
    return steps_of(broker)


def begun(steps: RawTransactions, *values: str) -> Who:
    """A transaction with these values in partition 0."""
    who = steps.init()
    steps.begin(who, 0)
    for sequence, value in enumerate(values):
        steps.write(who, 0, value, sequence=sequence)
    return who


def values(broker: FakeBroker, *, committed: bool = True) -> list[bytes | None]:
    return [record.value for record in broker.records("orders", committed=committed)]


def last(steps: RawTransactions) -> Note:
    return steps.notes[-1]


# -- commit and abort --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("versions", ALL_VERSIONS, ids=lambda versions: versions.name)
def test_a_transaction_is_visible_when_it_is_committed_and_not_before(broker: FakeBroker, versions: Versions) -> None:
    steps = steps_of(broker, versions)
    who = begun(steps, "a", "b")

    assert (values(broker), values(broker, committed=False)) == ([], [b"a", b"b"])
    steps.commit(who)
    assert values(broker) == [b"a", b"b"]
    assert broker.open_transactions() == []


@pytest.mark.parametrize("versions", ALL_VERSIONS, ids=lambda versions: versions.name)
def test_an_aborted_transaction_stays_invisible(broker: FakeBroker, versions: Versions) -> None:
    steps = steps_of(broker, versions)
    steps.abort(begun(steps, "a"))

    assert (values(broker), values(broker, committed=False)) == ([], [b"a"])
    steps.look(0)
    assert last(steps)[4:7] == (2, 2, [("a", 0)])


def test_markers_are_not_records(broker: FakeBroker, steps: RawTransactions) -> None:
    steps.commit(begun(steps, "a"))

    assert len(broker.cluster.partition("orders", 0).log) == 1
    broker.wait_for(1, topic="orders")
    broker.assert_sent("orders", value=b"a")
    data, marker = broker.batches("orders", 0)
    assert (data.header.is_control, marker.header.is_control) == (False, True)
    assert marker.records == []
    broker.delete_records("orders", 0, 2)
    assert len(broker.cluster.partition("orders", 0).log) == 0


def test_other_records_wait_behind_an_open_transaction(broker: FakeBroker, steps: RawTransactions) -> None:
    who = begun(steps, "a")
    steps.write(Who(-1, -1), 0, "plain", sequence=-1, transactional=False, transactional_id=None)

    assert values(broker) == []
    steps.abort(who)
    assert values(broker) == [b"plain"]


def test_with_the_older_protocol_a_partition_that_was_not_added_is_refused(broker: FakeBroker) -> None:
    for versions, code in ((OLD, "INVALID_TXN_STATE"), (TV1, "TRANSACTION_ABORTABLE")):
        steps = steps_of(broker, versions)
        steps.write(steps.init(), 0, "a")
        assert last(steps)[3] == code
    assert values(broker, committed=False) == []


def test_a_release_before_transaction_abortable_reports_invalid_txn_state() -> None:
    with FakeBroker(versions="3.7", topics={"orders": 1}, max_versions={"Produce": 11}) as broker:
        steps = steps_of(broker, OLD._replace(produce=10))
        steps.write(steps.init(), 0, "a")
        assert last(steps)[3] == "INVALID_TXN_STATE"


def test_the_epoch_goes_up_with_every_transaction_of_version_2(steps: RawTransactions) -> None:
    who = begun(steps, "a")
    after = steps.commit(who)

    assert after == Who(who.producer_id, who.epoch + 1)
    steps.write(who, 0, "late", sequence=1)
    assert last(steps)[3] == "INVALID_PRODUCER_EPOCH"


# -- fencing -----------------------------------------------------------------------------------------------------------


def test_a_successor_aborts_what_is_open_and_fences(broker: FakeBroker, steps: RawTransactions) -> None:
    first = begun(steps, "a")
    steps.init()
    assert last(steps)[1] == "CONCURRENT_TRANSACTIONS"
    second = steps.init()

    assert second.epoch > first.epoch
    steps.end(first, committed=True)
    assert last(steps)[1] == "PRODUCER_FENCED"
    assert values(broker) == []


@pytest.mark.parametrize(("versions", "code"), [(OLDEST, "INVALID_PRODUCER_EPOCH"), (OLD, "PRODUCER_FENCED")])
def test_old_versions_call_fencing_by_its_old_name(broker: FakeBroker, versions: Versions, code: str) -> None:
    steps = steps_of(broker, versions)
    first = steps.init()
    steps.init()

    steps.add(first, 0)
    assert last(steps) == ("add", code)
    steps.add_offsets(first)
    assert last(steps) == ("add offsets", code)
    steps.end(first, committed=True)
    assert last(steps)[1] == code


def test_old_versions_of_init_producer_id_call_fencing_by_its_old_name(broker: FakeBroker) -> None:
    steps = steps_of(broker, TV1._replace(init_producer_id=3))
    first = steps.init()
    steps.init()
    steps.init(first)
    assert last(steps)[1] == "INVALID_PRODUCER_EPOCH"


def test_a_test_can_fence_a_transactional_id(broker: FakeBroker, steps: RawTransactions) -> None:
    who = begun(steps, "a")
    broker.fence_transactional_id("t")

    assert broker.transaction("t").producer_epoch > who.epoch
    steps.write(who, 0, "b", sequence=1)
    assert last(steps)[3] == "INVALID_PRODUCER_EPOCH"
    assert values(broker) == []


# -- epochs that run out -----------------------------------------------------------------------------------------------


def test_a_producer_id_without_epochs_is_replaced_when_it_is_initialised(broker: FakeBroker) -> None:
    broker.next_producer_epoch = 32766
    steps = steps_of(broker, TV1)
    first = steps.init()
    second = steps.init(first)

    assert first.epoch == 32766
    assert second == Who(first.producer_id + 1, 0)
    assert steps.init(first) == second  # a retry: its producer did not hear of the new id


@pytest.mark.parametrize("committed", [True, False])
def test_a_producer_id_without_epochs_is_replaced_when_a_transaction_ends(broker: FakeBroker, committed: bool) -> None:
    broker.next_producer_epoch = 32766
    steps = steps_of(broker)
    who = begun(steps, "a")
    after = steps.end(who, committed=committed)

    assert after == Who(who.producer_id + 1, 0)
    assert steps.end(who, committed=committed) == after
    assert last(steps)[1] == "NONE"
    steps.write(after, 0, "b")
    steps.commit(after)
    assert values(broker) == ([b"a", b"b"] if committed else [b"b"])


# -- timeouts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("versions", [TV1, TV2], ids=lambda versions: versions.name)
def test_a_test_can_let_a_transaction_time_out(broker: FakeBroker, versions: Versions) -> None:
    steps = steps_of(broker, versions)
    who = begun(steps, "a")
    broker.expire_transaction("t")

    found = broker.transaction("t")
    assert (found.state, found.producer_epoch) == (TransactionState.COMPLETE_ABORT, who.epoch + 1)
    steps.write(who, 0, "b", sequence=1)
    assert last(steps)[3] == "INVALID_PRODUCER_EPOCH"
    assert values(broker) == []


def test_a_transaction_times_out_when_its_time_is_over() -> None:
    cluster = FakeCluster()
    transactions = cluster.transactions
    answer = transactions.init_producer_id("t", 1000, None, 0)
    transactions.add_partitions("t", answer.producer, [("orders", 0)], 5000)

    states: list[TransactionState] = []
    for now_ms in (6000, 6001):
        transactions.expire(now_ms)
        states.append(transactions.transactions["t"].state)
    assert states == [TransactionState.ONGOING, TransactionState.COMPLETE_ABORT]


def test_only_an_open_transaction_can_time_out(broker: FakeBroker, steps: RawTransactions) -> None:
    with pytest.raises(ConfigError, match="no transactional id 't'"):
        broker.expire_transaction("t")
    steps.init()
    with pytest.raises(ConfigError, match="in state Empty"):
        broker.expire_transaction("t")


# -- markers that wait -------------------------------------------------------------------------------------------------


def test_held_markers_leave_the_transaction_between_states(broker: FakeBroker, steps: RawTransactions) -> None:
    who = begun(steps, "a")
    with broker.hold_markers():
        after = steps.end(who, committed=True)
        assert last(steps)[1] == "NONE"
        assert broker.transaction("t").state is TransactionState.PREPARE_COMMIT
        assert values(broker) == []
        for request in (steps.init, lambda: steps.add(after, 1), lambda: steps.end(after, committed=False)):
            request()
            assert last(steps)[1] == "CONCURRENT_TRANSACTIONS"
        steps.write(after, 1, "b")
        assert last(steps)[3] == "CONCURRENT_TRANSACTIONS"
    assert broker.transaction("t").state is TransactionState.COMPLETE_COMMIT
    assert values(broker) == [b"a"]
    steps.write(after, 1, "b")
    assert last(steps)[3] == "NONE"


def test_where_a_marker_is_missing_the_next_epoch_waits_for_it(broker: FakeBroker) -> None:
    """The transaction that is open there is not the one of that epoch (``UnifiedLog.hasOngoingTransaction``)."""
    steps = steps_of(broker, TV2)
    who = begun(steps, "a")
    steps.commit_offset(who, 1)
    with broker.hold_markers():
        after = steps.end(who, committed=True)
        steps.write(after, 0, "b")
        assert last(steps)[3] == "CONCURRENT_TRANSACTIONS"
        steps.commit_offset(after, 2)
        assert last(steps)[1] == "CONCURRENT_TRANSACTIONS"
    steps.write(after, 0, "b")
    assert last(steps)[3] == "NONE"


def test_older_clients_hear_of_something_that_they_try_again_on(broker: FakeBroker) -> None:
    steps = steps_of(broker, TV1)
    who = begun(steps, "a")
    with broker.hold_markers():
        steps.end(who, committed=True)
        steps.write(who, 1, "b")
        assert last(steps)[3] == "NOT_ENOUGH_REPLICAS"


def test_the_markers_of_one_partition_can_wait_alone(broker: FakeBroker, steps: RawTransactions) -> None:
    who = begun(steps, "a")
    steps.write(who, 1, "b")
    with broker.hold_markers("orders", 1):
        steps.end(who, committed=True)
        assert values(broker) == [b"a"]
        assert broker.transaction("t").partitions == {("orders", 1)}
    assert values(broker) == [b"a", b"b"]


def test_a_topic_that_is_gone_gets_no_marker(broker: FakeBroker, steps: RawTransactions) -> None:
    who = begun(steps, "a")
    broker.delete_topic("orders")

    steps.end(who, committed=True)
    assert last(steps)[1] == "NONE"
    assert broker.open_transactions() == []


# -- coordinators ------------------------------------------------------------------------------------------------------


def coordinator(client: RawClient, key: str, key_type: int, version: int = 4) -> tuple[str, int]:
    asked = FindCoordinatorRequest(key=key, coordinator_keys=[key], key_type=key_type)
    answer = client.ask(asked, version)
    found = answer.coordinators[0] if version >= 4 else answer
    return ErrorCode(found.error_code).name, found.node_id


def test_a_coordinator_that_moved_is_found_elsewhere(broker: FakeBroker, steps: RawTransactions) -> None:
    who = begun(steps, "a")
    broker.move_transaction_coordinator("t", 2)

    with RawClient(broker.addresses[1]) as client:
        assert [coordinator(client, "t", 1, version) for version in (3, 4)] == [("NONE", 2)] * 2
        assert coordinator(client, "t", 0) == ("NONE", 1)
        assert coordinator(client, "other", 1) == ("NONE", 1)
        end = EndTxnRequest(transactional_id="t", producer_id=who.producer_id, producer_epoch=who.epoch, committed=True)
        assert client.ask(end, 5).error_code == ErrorCode.NOT_COORDINATOR
        init = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000)
        assert client.ask(init, 5).error_code == ErrorCode.NOT_COORDINATOR
    moved = steps_of(broker, node=2)
    moved.commit(who)
    assert values(broker) == [b"a"]


def test_a_coordinator_can_be_missing(broker: FakeBroker, steps: RawTransactions) -> None:
    who = steps.init()
    broker.move_transaction_coordinator("t", -1)

    with RawClient(broker.addresses[1]) as client:
        assert coordinator(client, "t", 1) == ("COORDINATOR_NOT_AVAILABLE", -1)
    steps.write(who, 0, "a")
    assert last(steps)[3] == "NOT_ENOUGH_REPLICAS"


def test_a_coordinator_can_be_loading(broker: FakeBroker, steps: RawTransactions) -> None:
    who = steps.init()
    for api, ask in (
        ("EndTxn", lambda: steps.end(who, committed=True)),
        ("AddOffsetsToTxn", lambda: steps.add_offsets(who)),
        ("AddPartitionsToTxn", lambda: steps.add(who, 0)),
    ):
        broker.fail(api, "COORDINATOR_LOAD_IN_PROGRESS")
        ask()
        assert last(steps)[1] == "COORDINATOR_LOAD_IN_PROGRESS"
    assert broker.transaction("t").state is TransactionState.EMPTY


def test_a_key_of_no_known_type_has_no_coordinator(broker: FakeBroker) -> None:
    with RawClient(broker.addresses[1]) as client:
        assert coordinator(client, "t", 7) == ("INVALID_REQUEST", -1)


# -- faults ------------------------------------------------------------------------------------------------------------


def test_an_end_can_be_applied_and_its_answer_be_an_error(broker: FakeBroker, steps: RawTransactions) -> None:
    who = begun(steps, "a")
    broker.fail_after_apply("EndTxn", "REQUEST_TIMED_OUT")

    steps.end(who, committed=True)
    assert last(steps)[1] == "REQUEST_TIMED_OUT"
    assert values(broker) == [b"a"]


def test_one_partition_of_several_can_be_refused(broker: FakeBroker, steps: RawTransactions) -> None:
    who = steps.init()
    broker.fail("AddPartitionsToTxn", "TOPIC_AUTHORIZATION_FAILED", topic="orders", partition=1)

    steps.add(who, 0, 1)
    assert last(steps) == ("add", "OPERATION_NOT_ATTEMPTED", "TOPIC_AUTHORIZATION_FAILED")
    assert broker.transaction("t").partitions == frozenset()
    broker.fail_after_apply("AddPartitionsToTxn", "REQUEST_TIMED_OUT")
    steps.add(who, 0, 1)
    assert last(steps) == ("add", "REQUEST_TIMED_OUT", "REQUEST_TIMED_OUT")
    assert broker.transaction("t").partitions == {("orders", 0), ("orders", 1)}


@pytest.mark.parametrize("applied", [True, False])
def test_offsets_can_be_refused(broker: FakeBroker, steps: RawTransactions, applied: bool) -> None:
    who = steps.init()
    for scope in ({}, {"topic": "orders"}):
        fail = broker.fail_after_apply if applied else broker.fail
        fail("TxnOffsetCommit", "GROUP_AUTHORIZATION_FAILED", **scope)  # type: ignore[arg-type]
        steps.commit_offset(who, 3)
        assert last(steps) == ("commit offset", "GROUP_AUTHORIZATION_FAILED")
    steps.commit(who) if applied else steps.abort(who)
    assert broker.committed_offsets("group") == ({("orders", 0): CommittedOffset(3)} if applied else {})


def test_a_forgotten_transactional_id_is_a_stranger(broker: FakeBroker, steps: RawTransactions) -> None:
    who = steps.init()
    broker.forget_transactional_id("t")

    steps.end(who, committed=True)
    assert last(steps)[1] == "INVALID_PRODUCER_ID_MAPPING"
    assert steps.state() == "TRANSACTIONAL_ID_NOT_FOUND"


# -- offsets of groups -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("versions", ALL_VERSIONS, ids=lambda versions: versions.name)
@pytest.mark.parametrize("committed", [True, False])
def test_offsets_count_with_their_transaction(broker: FakeBroker, versions: Versions, committed: bool) -> None:
    steps = steps_of(broker, versions)
    who = steps.init()
    if versions.adds_partitions:
        steps.add_offsets(who)
    steps.commit_offset(who, 7)
    steps.offset(require_stable=True)
    assert last(steps)[3] == [("UNSTABLE_OFFSET_COMMIT", -1, "")]
    assert broker.committed_offsets("group") == {}

    steps.end(who, committed=committed)
    steps.offset(require_stable=True)
    assert last(steps)[3] == [("NONE", 7 if committed else -1, "")]
    assert broker.committed_offsets("group") == ({("orders", 0): CommittedOffset(7)} if committed else {})


@pytest.mark.parametrize(
    ("generation", "member", "code"),
    [(4, "m", "NONE"), (3, "m", "ILLEGAL_GENERATION"), (4, "n", "UNKNOWN_MEMBER_ID"), (-1, "", "NONE")],
)
def test_members_of_an_older_generation_are_fenced(
    broker: FakeBroker, steps: RawTransactions, generation: int, member: str, code: str
) -> None:
    broker.set_group("group", 4, {"m": None})
    steps.commit_offset(steps.init(), 3, generation=generation, member=member)
    assert last(steps)[1] == code


def test_a_group_has_its_own_coordinator(broker: FakeBroker, steps: RawTransactions) -> None:
    who = steps.init()
    broker.move_group_coordinator("group", 2)
    elsewhere = steps_of(broker, node=2)
    elsewhere.commit_offset(who, 7)
    assert last(elsewhere)[1] == "NONE"
    steps.commit(who)

    topics = [OffsetFetchRequestTopic(name="orders", partition_indexes=[0])]
    request = OffsetFetchRequest(group_id="group", topics=topics)
    with RawClient(broker.addresses[1]) as here, RawClient(broker.addresses[2]) as there:
        assert here.ask(request, 7).error_code == ErrorCode.NOT_COORDINATOR
        assert there.ask(request, 7).topics[0].partitions[0].committed_offset == 7


def test_offsets_are_also_reported_by_topic_id(broker: FakeBroker, steps: RawTransactions) -> None:
    who = steps.init()
    steps.commit_offset(who, 7)
    steps.commit(who)
    topic_id = broker.cluster.topic("orders").topic_id
    strange_id = broker.cluster.topic("audit").topic_id
    broker.delete_topic("audit")

    with RawClient(broker.addresses[1]) as client:
        topics = [OffsetFetchRequestTopic(topic_id=each, partition_indexes=[0]) for each in (topic_id, strange_id)]
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="group", topics=topics)])
        found, unknown = client.ask(asked, 10).groups[0].topics
        everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="group", topics=None)])
        (all_,) = client.ask(everything, 10).groups[0].topics
    assert (found.topic_id, found.partitions[0].committed_offset) == (topic_id, 7)
    assert unknown.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert all_ == found


def test_the_partition_of_a_group_is_that_of_javas_hash() -> None:
    # Java: "hello" is 99162322, "Aa" and "BB" are 2112, and the last one is the smallest int there is.
    groups = ("hello", "", "Aa", "BB", "polygenelubricants")
    assert [offsets_partition(group) for group in groups] == [22, 0, 12, 12, 0]


# -- reports -----------------------------------------------------------------------------------------------------------


def listed(client: RawClient, request: ListTransactionsRequest) -> list[tuple[str, str]]:
    answer = client.ask(request, 2)
    assert answer.error_code == ErrorCode.NONE
    return [(each.transactional_id, each.transaction_state) for each in answer.transaction_states]


def test_transactions_are_listed_by_the_node_in_charge(broker: FakeBroker, steps: RawTransactions) -> None:
    who = begun(steps, "a")
    other = steps_of(broker, transactional_id="other")
    other.init()
    broker.move_transaction_coordinator("other", 2)

    with RawClient(broker.addresses[1]) as first, RawClient(broker.addresses[2]) as second:
        assert listed(first, ListTransactionsRequest()) == [("t", "Ongoing")]
        assert listed(second, ListTransactionsRequest()) == [("other", "Empty")]
        for request in (
            ListTransactionsRequest(state_filters=["Empty"]),
            ListTransactionsRequest(producer_id_filters=[who.producer_id + 1]),
            ListTransactionsRequest(duration_filter=3_600_000),
            ListTransactionsRequest(transactional_id_pattern="o.*"),
        ):
            assert listed(first, request) == []
        odd = first.ask(ListTransactionsRequest(state_filters=["Odd"], transactional_id_pattern="t"), 2)
        wrong = first.ask(ListTransactionsRequest(transactional_id_pattern="("), 2)
    assert odd.unknown_state_filters == ["Odd"]
    assert wrong.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_transaction_is_described(broker: FakeBroker, steps: RawTransactions) -> None:
    who = begun(steps, "a")
    steps.commit_offset(who, 7)

    with RawClient(broker.addresses[1]) as client:
        known, strange, empty = client.ask(
            DescribeTransactionsRequest(transactional_ids=["t", "strange", ""]), 0
        ).transaction_states
    assert (known.producer_id, known.producer_epoch, known.transaction_state) == (*who, "Ongoing")
    assert [topic.topic for topic in known.topics] == [OFFSETS_TOPIC, "orders"]
    assert strange.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert empty.error_code == ErrorCode.INVALID_REQUEST


def test_brokers_may_ask_for_several_transactions(broker: FakeBroker, steps: RawTransactions) -> None:
    who = begun(steps, "a")

    def asked(verify_only: bool) -> list[int]:
        transaction = AddPartitionsToTxnTransaction(
            transactional_id="t",
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            verify_only=verify_only,
            topics=[AddPartitionsToTxnTopic(name="orders", partitions=[0, 1])],
        )
        with RawClient(broker.addresses[1]) as client:
            answer = client.ask(AddPartitionsToTxnRequest(transactions=[transaction]), 5)
        (topic,) = answer.results_by_transaction[0].topic_results
        return [each.partition_error_code for each in topic.results_by_partition]

    assert asked(verify_only=True) == [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE]
    assert asked(verify_only=False) == [ErrorCode.NONE, ErrorCode.NONE]
    assert asked(verify_only=True) == [ErrorCode.NONE, ErrorCode.NONE]


# -- transaction.version -----------------------------------------------------------------------------------------------


def features(broker: FakeBroker) -> tuple[int, dict[str, int]]:
    request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
    with RawClient(broker.addresses[1]) as client:
        answer = client.ask(request, 3)
    return answer.finalized_features_epoch, {each.name: each.max_version_level for each in answer.finalized_features}


@pytest.mark.parametrize(("release", "level"), [("3.9", {}), ("4.0", {"transaction.version": 2})])
def test_the_transaction_version_is_that_of_the_release(release: str, level: dict[str, int]) -> None:
    with FakeBroker(versions=release) as broker:
        assert features(broker)[1] == level


def test_an_upgrade_is_reported_under_the_next_epoch(broker: FakeBroker) -> None:
    broker.transaction_version = 0
    before, none = features(broker)
    broker.transaction_version = 2
    after, level = features(broker)

    assert (none, level) == ({}, {"transaction.version": 2})
    assert after > before


def test_a_client_that_takes_version_2_for_granted_gets_stuck(broker: FakeBroker, steps: RawTransactions) -> None:
    broker.transaction_version = 0
    who = steps.init()
    steps.write(who, 0, "a")
    assert last(steps)[3] == "UNSUPPORTED_VERSION"
    steps.init()
    assert last(steps)[1] == "CONCURRENT_TRANSACTIONS"


# -- the log -----------------------------------------------------------------------------------------------------------


def test_the_log_knows_what_is_stable_and_what_is_aborted() -> None:
    log = PartitionLog("orders", 0)
    for producer, value in ((1, "a"), (2, "b"), (1, "c")):
        sequence = 1 if value == "c" else 0
        data = batch(Who(producer, 0), value, sequence=sequence)
        log.append(data, leader_epoch=0, now_ms=0, rules=LogRules(limits_future_timestamps=False), verified=True)
    assert log.last_stable_offset == 0
    log.end_transaction(1, 1, committed=False, leader_epoch=0, coordinator_epoch=0, now_ms=5)
    assert log.last_stable_offset == 1
    log.end_transaction(2, 1, committed=True, leader_epoch=0, coordinator_epoch=0, now_ms=6)

    assert log.last_stable_offset == log.end_offset == 5
    assert [record.value for record in log.records(committed=True)] == [b"b"]
    assert [tuple(each) for each in log.aborted_in(0, 5)] == [(1, 0, 3)]
    assert (log.aborted_in(4, 5), log.aborted_in(0, 0)) == ([], [])


def test_bytes_that_are_no_batch_have_no_header() -> None:
    assert BatchHeader.of(b"") is None
    assert BatchHeader.of(bytes(61)) is None
