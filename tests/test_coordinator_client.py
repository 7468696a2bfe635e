"""Transactions that others write into, begun and ended by a coordinator client, in both versions of the protocol."""

from __future__ import annotations

import asyncio
import os
import pickle
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Literal, cast

import pytest

from aioproducer import (
    BrokerError,
    CommitFailed,
    CommitUnknown,
    ConfigError,
    ConsumerGroupMetadata,
    ForkedProcess,
    KafkaTimeoutError,
    NotStarted,
    OffsetAndMetadata,
    ProducerClosed,
    ProducerConfig,
    ProducerDied,
    ProducerFenced,
    ProducerStateError,
    SharedPartition,
    TopicPartition,
    TransactionAbortable,
    TransactionCoordinatorClient,
    TransactionFatal,
    TransactionHandle,
    TransactionStateError,
    UnsupportedVersion,
    Written,
    WrongEventLoop,
)
from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import OffsetFetchResponse
from aioproducer.testing import FakeBroker
from aioproducer.testing.broker.request import RequestContext
from tests.conftest import QUICK, Clock, until
from tests.testing.raw_transactions import OLDEST, TV1, TV2, RawTransactions, Versions, Who

VERSIONS = ["3.9.2", "4.3.1"]
IN_0, IN_1 = TopicPartition("in", 0), TopicPartition("in", 1)

#: Every request that one of the calls below makes with either version of the protocol.
REQUESTS = ["FindCoordinator", "InitProducerId", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn", "OffsetFetch"]


@pytest.fixture(params=VERSIONS)
def broker(request: pytest.FixtureRequest) -> Iterator[FakeBroker]:
    """A broker with transaction version 1, and one with 2."""
    with FakeBroker(topics={"orders": 3, "in": 2}, versions=request.param) as broker:
        yield broker


def opened(broker: FakeBroker, **options: Any) -> TransactionCoordinatorClient:
    """A client on the broker, to be entered."""
    return TransactionCoordinatorClient(broker.bootstrap_servers, **{**QUICK, **options})


def write(
    broker: FakeBroker,
    handle: TransactionHandle,
    partition: int,
    *values: str,
    sequence: int = 0,
    versions: Versions | None = None,
) -> str:
    """The broker's response to a separate writer that has only the handle."""
    versions = versions or (TV2 if broker.transaction_version >= 2 else TV1)
    (address,) = broker.addresses.values()
    writer = RawTransactions(address, versions, handle.transactional_id, "orders", "readers")
    who = Who(handle.producer_id, handle.producer_epoch)
    writer.begin(who, partition)
    writer.write(who, partition, *values, sequence=sequence)
    return str(writer.notes[-1][3])


def committed(broker: FakeBroker) -> list[bytes | None]:
    """The records that a read_committed reader sees, sorted."""
    return sorted((each.value for each in broker.records("orders", committed=True)), key=lambda each: each or b"")


# -- the life of a transaction ------------------------------------------------------------------------------------------


async def test_records_of_two_writers_and_a_position_are_committed_together(broker: FakeBroker) -> None:
    async with opened(broker) as coordinator:
        handle = await coordinator.init("load")
        assert write(broker, handle, 0, "a", "b") == "NONE"
        assert write(broker, pickle.loads(pickle.dumps(handle)), 1, "c") == "NONE"
        await coordinator.send_offsets(handle, {IN_0: OffsetAndMetadata(7, "batch 3")}, "readers")
        assert committed(broker) == []
        assert await coordinator.committed("readers", [IN_0], require_stable=False) == {IN_0: None}

        reports = [{TopicPartition("orders", 0): Written(2, 0, 1)}, {TopicPartition("orders", 1): Written(1, 0, 0)}]
        await coordinator.commit(handle, written=reports)

        assert committed(broker) == [b"a", b"b", b"c"]
        found = await coordinator.committed("readers", [IN_0, IN_1, IN_0])
        assert found == {IN_0: OffsetAndMetadata(7, "batch 3"), IN_1: None}


async def test_nothing_of_what_was_aborted_is_seen(broker: FakeBroker) -> None:
    async with opened(broker) as coordinator:
        handle = await coordinator.init("load")
        write(broker, handle, 0, "a")
        await coordinator.send_offsets(handle, {IN_0: 7}, "readers")

        await coordinator.abort(handle)

        assert committed(broker) == []
        assert await coordinator.committed("readers", [IN_0]) == {IN_0: None}
        assert not broker.open_transactions()


async def test_a_new_handle_aborts_the_open_transaction_and_fences_the_old_handle(broker: FakeBroker) -> None:
    async with opened(broker) as coordinator, opened(broker) as other:
        old = await coordinator.init("load")
        write(broker, old, 0, "old")
        new = await other.init("load")
        assert new.producer_epoch > old.producer_epoch
        assert not broker.open_transactions()

        assert write(broker, old, 0, "zombie", sequence=1) != "NONE"
        write(broker, new, 0, "new")
        for call in (coordinator.commit(old), coordinator.abort(old), coordinator.send_offsets(old, {IN_0: 1}, "g")):
            with pytest.raises(ProducerFenced):
                await call
        await other.commit(new)

    assert committed(broker) == [b"new"]


async def test_the_requests_are_those_of_the_version_that_the_cluster_has_finalized(broker: FakeBroker) -> None:
    async with opened(broker) as coordinator:
        handle = await coordinator.init("load")
        await coordinator.send_offsets(handle, {IN_0: 7}, "readers")
        await coordinator.commit(handle)
    # A client that has not sent a request yet also knows it.
    async with opened(broker) as coordinator:
        await coordinator.commit(handle)

    version = 5 if broker.transaction_version >= 2 else 4
    assert [each.version for each in broker.requests_of("EndTxn")] == [version, version]
    assert [each.version for each in broker.requests_of("TxnOffsetCommit")] == [version]
    assert broker.count("AddOffsetsToTxn") == (0 if version == 5 else 1)


async def test_its_own_time_limit_is_reported_to_the_coordinator(broker: FakeBroker) -> None:
    async with opened(broker) as coordinator:
        await coordinator.init("load", transaction_timeout_ms=12_345)
        assert broker.transaction("load").timeout_ms == 12_345
        with pytest.raises(TransactionFatal, match=r"transaction\.max\.timeout\.ms"):
            await coordinator.init("load", transaction_timeout_ms=10**9)


async def test_a_refused_transactional_id_is_reported_at_once_and_may_be_allowed_later(broker: FakeBroker) -> None:
    async with opened(broker) as coordinator:
        broker.fail("InitProducerId", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
        with pytest.raises(TransactionFatal, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            await coordinator.init("load")
        await coordinator.init("load")


@pytest.mark.parametrize("api", REQUESTS)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_the_loss_of_any_answer_changes_nothing(
    broker: FakeBroker, api: str, when: Literal["before", "after"]
) -> None:
    async with opened(broker) as coordinator:
        broker.drop_connection(api, when=when, times=2)
        handle = await coordinator.init("load")
        write(broker, handle, 0, "committed")
        await coordinator.send_offsets(handle, {IN_0: 7}, "readers")
        await coordinator.commit(handle)
        broker.drop_connection(api, when=when)
        handle = await coordinator.init("load")
        write(broker, handle, 0, "aborted")
        await coordinator.send_offsets(handle, {IN_0: 8}, "readers")
        await coordinator.abort(handle)

        assert await coordinator.committed("readers", [IN_0]) == {IN_0: OffsetAndMetadata(7)}
        assert committed(broker) == [b"committed"]
        assert not broker.open_transactions()


@pytest.mark.parametrize("version", VERSIONS)
async def test_coordinators_are_followed_wherever_they_move(version: str) -> None:
    with FakeBroker(brokers=3, topics={"in": 2}, versions=version) as broker:
        async with opened(broker) as coordinator:
            handle = await coordinator.init("load")
            await coordinator.send_offsets(handle, {IN_0: 7}, "readers")
            broker.move_transaction_coordinator("load", 3)
            broker.move_group_coordinator("readers", 2)
            await coordinator.send_offsets(handle, {IN_1: 8}, "readers")
            await coordinator.commit(handle)
            broker.move_group_coordinator("readers", 3)
            assert await coordinator.committed("readers", [IN_1]) == {IN_1: OffsetAndMetadata(8)}
            broker.stop_node(3, elect=True)
            broker.move_transaction_coordinator("load", 1)
            await coordinator.init("load")


# -- what is repeated, and what comes too late --------------------------------------------------------------------------


async def test_a_commit_may_be_repeated_by_anybody(broker: FakeBroker) -> None:
    async with opened(broker) as coordinator, opened(broker) as other:
        handle = await coordinator.init("load")
        write(broker, handle, 0, "once")
        await asyncio.gather(*[each.commit(handle) for each in (coordinator, other) * 3])
        await coordinator.commit(handle)

    assert committed(broker) == [b"once"]


async def test_an_abort_may_be_repeated_by_anybody(broker: FakeBroker) -> None:
    async with opened(broker) as coordinator, opened(broker) as other:
        handle = await coordinator.init("load")
        write(broker, handle, 0, "never")
        await asyncio.gather(*[each.abort(handle) for each in (coordinator, other) * 3])
        await coordinator.abort(handle)

    assert committed(broker) == []


async def test_a_committed_transaction_cannot_be_aborted(broker: FakeBroker) -> None:
    async with opened(broker) as coordinator, opened(broker) as other:
        handle = await coordinator.init("load")
        write(broker, handle, 0, "kept")
        await coordinator.commit(handle)
        for each in (coordinator, other):
            with pytest.raises(TransactionStateError, match="is committed"):
                await each.abort(handle)

    assert committed(broker) == [b"kept"]


async def test_an_aborted_transaction_cannot_be_committed(broker: FakeBroker) -> None:
    async with opened(broker) as coordinator, opened(broker) as other:
        handle = await coordinator.init("load")
        write(broker, handle, 0, "never")
        await coordinator.abort(handle)
        for each in (coordinator, other):
            with pytest.raises(TransactionAbortable, match="aborted"):
                await each.commit(handle)

    assert committed(broker) == []


async def test_nor_can_what_took_too_long(broker: FakeBroker) -> None:
    async with opened(broker) as coordinator:
        handle = await coordinator.init("load")
        write(broker, handle, 0, "never")
        broker.expire_transaction("load")
        with pytest.raises((TransactionAbortable, ProducerFenced)):
            await coordinator.commit(handle)

    assert committed(broker) == []


@pytest.mark.parametrize("call", ["commit", "abort"])
async def test_an_empty_transaction_ends_as_requested(broker: FakeBroker, call: str) -> None:
    async with opened(broker) as coordinator:
        for _ in range(2):
            handle = await coordinator.init("load")
            await getattr(coordinator, call)(handle)
            assert not broker.open_transactions()


async def test_an_empty_transaction_whose_writers_report_records_is_not_a_success(broker: FakeBroker) -> None:
    async with opened(broker) as coordinator:
        handle = await coordinator.init("load")
        with pytest.raises(TransactionAbortable, match="empty"):
            await coordinator.commit(handle, written=[{TopicPartition("orders", 0): Written(2, 0, 1)}])


async def test_before_kafka_3_0_no_abort_of_an_empty_transaction_is_claimed() -> None:
    with FakeBroker(topics={"orders": 1}, versions="2.8") as broker:
        async with opened(broker) as coordinator:
            handle = await coordinator.init("load")
            with pytest.raises(TransactionStateError, match=r"Kafka 3\.0"):
                await coordinator.abort(handle)
            with pytest.raises(TransactionAbortable, match="INVALID_TXN_STATE"):
                await coordinator.commit(handle)
            write(broker, handle, 0, "never", versions=OLDEST)
            await coordinator.abort(handle)


async def test_a_transaction_opened_while_it_is_found_empty_is_aborted_all_the_same() -> None:
    with FakeBroker(topics={"orders": 3}, versions="3.9.2") as broker:
        async with opened(broker) as coordinator:
            handle = await coordinator.init("load")
            with broker.hold("DescribeTransactions", times=1) as hold:
                aborting = asyncio.ensure_future(coordinator.abort(handle))
                await until(lambda: hold.waiting)
                await asyncio.to_thread(write, broker, handle, 0, "late")
            await aborting

        assert not broker.open_transactions()
        assert committed(broker) == []


# -- commits without an answer ------------------------------------------------------------------------------------------


@asynccontextmanager
async def unanswered_commit(
    broker: FakeBroker, *, applied: bool
) -> AsyncIterator[tuple[TransactionCoordinatorClient, TransactionHandle]]:
    """A commit that was sent, and for which time ran out; ``applied``: it was also done."""
    async with opened(broker, request_timeout_ms=10**6, delivery_timeout_ms=2 * 10**6) as coordinator:
        clock = Clock()
        handle = await coordinator.init("load")
        write(broker, handle, 0, "value")
        hold = broker.hold("EndTxn", applied=applied, times=1)
        committing = asyncio.ensure_future(coordinator.commit(handle, timeout=600))
        await until(lambda: hold.waiting)
        clock.advance(601)
        with pytest.raises(CommitUnknown, match="again"):
            await committing
        if not applied:
            broker.disconnect()  # and the held answer arrives when it is no longer expected
            await until(lambda: len(broker.connections()) == 0 or hold.waiting)
        else:
            hold.release()
        yield coordinator, handle
        hold.release()


@pytest.mark.parametrize("applied", [True, False])
async def test_a_commit_that_time_ran_out_for_is_settled_by_another_one(broker: FakeBroker, applied: bool) -> None:
    async with unanswered_commit(broker, applied=applied) as (coordinator, handle):
        await coordinator.commit(handle)
        assert committed(broker) == [b"value"]

    assert committed(broker) == [b"value"]


async def test_or_by_an_abort_that_finds_it_done(broker: FakeBroker) -> None:
    async with unanswered_commit(broker, applied=True) as (coordinator, handle):
        with pytest.raises(TransactionStateError, match="is committed"):
            await coordinator.abort(handle)

    assert committed(broker) == [b"value"]


async def test_or_by_an_abort_that_comes_before_it(broker: FakeBroker) -> None:
    async with unanswered_commit(broker, applied=False) as (coordinator, handle):
        await coordinator.abort(handle)
        with pytest.raises(TransactionAbortable):
            await coordinator.commit(handle)

    assert committed(broker) == []


@pytest.mark.parametrize("call", ["commit", "abort"])
async def test_a_refusal_that_may_have_come_after_the_commit_does_not_pass_for_its_fate(
    broker: FakeBroker, call: str
) -> None:
    async with unanswered_commit(broker, applied=True) as (coordinator, handle):
        broker.fence_transactional_id("load")
        with pytest.raises(CommitUnknown, match="PRODUCER_FENCED"):
            await getattr(coordinator, call)(handle)


async def test_a_commit_that_was_lost_and_then_refused_is_reported_by_what_became_of_it(broker: FakeBroker) -> None:
    async with opened(broker) as coordinator:
        handle = await coordinator.init("load")
        write(broker, handle, 0, "never")
        with broker.hold("EndTxn", times=1) as hold:
            committing = asyncio.ensure_future(coordinator.commit(handle))
            await until(lambda: hold.waiting)
            async with opened(broker) as other:
                await other.abort(handle)
            broker.disconnect()
        with pytest.raises(TransactionAbortable, match="already aborted"):
            await committing

    assert committed(broker) == []


async def test_a_commit_that_never_left_is_no_unknown_one(broker: FakeBroker) -> None:
    async with opened(broker) as coordinator:
        handle = await coordinator.init("load")
        write(broker, handle, 0, "value")
    async with opened(broker) as coordinator:
        with broker.hold("FindCoordinator"), pytest.raises(KafkaTimeoutError, match="commit"):
            await coordinator.commit(handle, timeout=0.01)
        await coordinator.abort(handle)

    assert committed(broker) == []


async def test_a_cancelled_commit_leaves_nothing_behind_and_may_be_made_again(broker: FakeBroker) -> None:
    async with opened(broker) as coordinator:
        handle = await coordinator.init("load")
        write(broker, handle, 0, "value")
        with broker.hold("EndTxn", applied=True, times=1) as hold:
            tasks = asyncio.all_tasks()
            committing = asyncio.ensure_future(coordinator.commit(handle))
            await until(lambda: hold.waiting)
            committing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await committing
            assert asyncio.all_tasks() == tasks
        broker.fence_transactional_id("load")
        with pytest.raises(CommitUnknown):
            await coordinator.commit(handle)

    assert committed(broker) == [b"value"]


@pytest.mark.parametrize("seed", range(2))
async def test_each_call_reports_the_truth_whatever_happens_on_the_way(broker: FakeBroker, seed: int) -> None:
    chance = random.Random(seed)
    fates: dict[str, bool] = {}
    async with opened(broker) as one, opened(broker) as two:
        for number in range(12):
            handle = await one.init("load")
            write(broker, handle, number % 3, f"{number}")
            marker = {IN_0: number}
            for _ in range(chance.randrange(3)):
                api = chance.choice(["EndTxn", "FindCoordinator", "DescribeTransactions", "TxnOffsetCommit"])
                broker.drop_connection(api, when=chance.choice(["before", "after"]), times=chance.choice([1, 1, 3]))
            await one.send_offsets(handle, marker, "readers")
            while f"{number}" not in fates:
                client, commits = chance.choice([one, two]), chance.random() < 0.7
                fate = await reported(client, handle, commits=commits, cancel_after=chance.choice([None, 0, 3, 10, 30]))
                if fate is not None:
                    fates[f"{number}"] = fate
            broker.clear_faults()
            assert await reported(two, handle, commits=True, cancel_after=None) is fates[f"{number}"]
            assert await reported(one, handle, commits=False, cancel_after=None) is fates[f"{number}"]

        last = max(int(name) for name, is_committed in fates.items() if is_committed)
        assert await one.committed("readers", [IN_0]) == {IN_0: OffsetAndMetadata(last)}
    assert {(each or b"").decode() for each in committed(broker)} == {name for name, fate in fates.items() if fate}
    assert {True, False} <= set(fates.values())


async def reported(
    client: TransactionCoordinatorClient, handle: TransactionHandle, *, commits: bool, cancel_after: int | None
) -> bool | None:
    """Whether a call says that the transaction is committed, or that it never will be; None: it does not say."""
    call = asyncio.ensure_future(client.commit(handle) if commits else client.abort(handle))
    if cancel_after is not None:
        for _ in range(cancel_after):
            await asyncio.sleep(0)
        call.cancel()
    try:
        await call
    except TransactionStateError:
        return True
    except TransactionAbortable:
        return False
    except (asyncio.CancelledError, CommitUnknown):
        return None
    return commits


# -- several writers ----------------------------------------------------------------------------------------------------


async def test_two_writers_of_one_partition_are_an_error_before_anything_is_asked(broker: FakeBroker) -> None:
    async with opened(broker) as coordinator:
        handle = await coordinator.init("load")
        write(broker, handle, 0, "a")
        reports = [{TopicPartition("orders", each): Written(1, 0, 0)} for each in (0, 1, 0)]
        with pytest.raises(SharedPartition, match=r"orders-0 was written by two writers .*number 0 and 2"):
            await coordinator.commit(handle, written=iter(reports))
        assert not broker.count("EndTxn")
        assert broker.open_transactions()

        await coordinator.abort(handle)

    assert committed(broker) == []


@pytest.mark.parametrize("written", [{TopicPartition("orders", 0): Written(1, 0, 0)}, [5], [{"orders": 1}], [None]])
async def test_an_invalid_report_of_the_writers_is_refused(broker: FakeBroker, written: Any) -> None:
    async with opened(broker) as coordinator:
        with pytest.raises(ConfigError, match="written"):
            await coordinator.commit(TransactionHandle("load", 1, 1), written=written)


# -- what is open -------------------------------------------------------------------------------------------------------


async def test_whether_a_transaction_is_open_is_reported_without_a_handle(broker: FakeBroker) -> None:
    async with opened(broker) as coordinator:
        assert not await coordinator.has_open_transaction("load"), "the coordinator does not know it"
        handle = await coordinator.init("load")
        assert not await coordinator.has_open_transaction("load"), "no record was written"
        await coordinator.send_offsets(handle, {IN_0: 7}, "readers")
        assert await coordinator.has_open_transaction("load")
        assert not await coordinator.has_open_transaction("another")

        await coordinator.commit(handle)

        assert not await coordinator.has_open_transaction("load")


async def test_an_unauthorized_query_names_the_missing_right(broker: FakeBroker) -> None:
    async with opened(broker) as coordinator:
        broker.fail("DescribeTransactions", "COORDINATOR_LOAD_IN_PROGRESS", times=2)
        assert not await coordinator.has_open_transaction("load"), "it is asked again"
        broker.fail("DescribeTransactions", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
        with pytest.raises(BrokerError, match="DESCRIBE, which WRITE implies, on transactional id 'load'"):
            await coordinator.has_open_transaction("load")


# -- positions ----------------------------------------------------------------------------------------------------------


async def test_without_positions_that_were_to_be_part_of_it_nothing_is_committed(broker: FakeBroker) -> None:
    async with opened(broker) as coordinator:
        handle = await coordinator.init("load")
        broker.fail("TxnOffsetCommit", "GROUP_AUTHORIZATION_FAILED")
        with pytest.raises(TransactionAbortable, match="GROUP_AUTHORIZATION_FAILED"):
            await coordinator.send_offsets(handle, {IN_0: 7, IN_1: 8}, "readers")
        with pytest.raises(TransactionStateError, match="in-0 of group 'readers', in-1 of group 'readers'"):
            await coordinator.commit(handle)
        await coordinator.send_offsets(handle, {IN_0: 7}, "readers")
        with pytest.raises(TransactionStateError, match="offsets of in-1 of group 'readers'"):
            await coordinator.commit(handle)
        await coordinator.send_offsets(handle, {IN_1: 8}, "readers")
        await coordinator.commit(handle)

        found = await coordinator.committed("readers", [IN_0, IN_1])
    assert found == {IN_0: OffsetAndMetadata(7), IN_1: OffsetAndMetadata(8)}


async def test_positions_that_a_caller_did_not_wait_for_are_not_assumed_accepted(broker: FakeBroker) -> None:
    async with opened(broker) as coordinator:
        handle = await coordinator.init("load")
        with broker.hold("TxnOffsetCommit") as hold:
            sending = asyncio.ensure_future(coordinator.send_offsets(handle, {IN_0: 7}, "readers"))
            await until(lambda: hold.waiting)
            with pytest.raises(TransactionStateError, match="send_offsets"):
                await coordinator.commit(handle)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            with pytest.raises(TransactionStateError, match="send_offsets"):
                await coordinator.commit(handle)
        await coordinator.abort(handle)


async def test_a_request_repeated_until_its_timeout_is_reported_with_its_reason(broker: FakeBroker) -> None:
    async with opened(broker) as coordinator:
        handle = await coordinator.init("load")
        clock = Clock()
        sending = asyncio.ensure_future(
            coordinator.send_offsets(handle, {TopicPartition("nowhere", 0): 7}, "readers", timeout=600)
        )
        await until(lambda: broker.count("TxnOffsetCommit") > 1)
        clock.advance(601)
        with pytest.raises(KafkaTimeoutError, match=r"send_offsets\(\) .*UNKNOWN_TOPIC_OR_PARTITION"):
            await sending


async def test_a_member_that_its_group_left_behind_is_reported(broker: FakeBroker) -> None:
    broker.set_group("readers", 5, {"member": None})
    async with opened(broker) as coordinator:
        handle = await coordinator.init("load")
        with pytest.raises(CommitFailed):
            await coordinator.send_offsets(handle, {IN_0: 7}, ConsumerGroupMetadata("readers", 4, "member"))
        await coordinator.abort(handle)
        handle = await coordinator.init("load")
        await coordinator.send_offsets(handle, {IN_0: 7}, ConsumerGroupMetadata("readers", 5, "member"))
        await coordinator.send_offsets(handle, {}, "readers")
        await coordinator.commit(handle)

        assert await coordinator.committed("readers", [IN_0]) == {IN_0: OffsetAndMetadata(7)}


async def test_where_a_group_stands_is_reported_when_no_transaction_can_change_it(broker: FakeBroker) -> None:
    async with opened(broker) as coordinator:
        handle = await coordinator.init("load")
        await coordinator.send_offsets(handle, {IN_0: 7}, "readers")
        asking = asyncio.ensure_future(coordinator.committed("readers", [IN_0, IN_1]))
        await until(lambda: broker.count("OffsetFetch") > 2)
        assert not asking.done()
        await coordinator.commit(handle)

        assert await asking == {IN_0: OffsetAndMetadata(7), IN_1: None}


async def test_a_transaction_that_stays_open_is_named_as_the_reason(broker: FakeBroker) -> None:
    async with opened(broker) as coordinator:
        handle = await coordinator.init("load")
        await coordinator.send_offsets(handle, {IN_0: 7}, "readers")
        clock = Clock()
        asking = asyncio.ensure_future(coordinator.committed("readers", [IN_0], timeout=600))
        await until(lambda: broker.count("OffsetFetch") > 2)
        clock.advance(601)
        with pytest.raises(KafkaTimeoutError, match=r"committed\(\) of group 'readers'.*UNSTABLE_OFFSET_COMMIT"):
            await asking
        assert await coordinator.committed("readers", [IN_1]) == {IN_1: None}


@pytest.mark.parametrize("highest", [1, 2, 6, 7, 8, 9, 10])
async def test_where_a_group_stands_is_reported_in_every_version(highest: int) -> None:
    with FakeBroker(topics={"in": 2}, versions="3.9.2", max_versions={"OffsetFetch": highest}) as broker:
        async with opened(broker) as coordinator:
            handle = await coordinator.init("load")
            await coordinator.send_offsets(handle, {IN_0: OffsetAndMetadata(7, "x", 3)}, "readers")
            await coordinator.commit(handle)

            found = await coordinator.committed("readers", [IN_0, IN_1], require_stable=False)
            assert found == {IN_0: OffsetAndMetadata(7, "x", 3 if highest >= 5 else -1), IN_1: None}
            assert await coordinator.committed("readers", [], require_stable=False) == {}
            if highest >= 7:
                assert await coordinator.committed("readers", [IN_0, IN_1]) == found
            else:
                with pytest.raises(UnsupportedVersion, match=r"Kafka 2\.5.*require_stable=False"):
                    await coordinator.committed("readers", [IN_0])
            broker.fail("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS", times=2)
            broker.fail("OffsetFetch", "NOT_COORDINATOR", times=2)
            assert await coordinator.committed("readers", [IN_0, IN_1], require_stable=False) == found
            broker.fail("OffsetFetch", "GROUP_AUTHORIZATION_FAILED")
            with pytest.raises(BrokerError, match=r"GROUP_AUTHORIZATION_FAILED.*DESCRIBE.*group 'readers'"):
                await coordinator.committed("readers", [IN_0], require_stable=False)

        assert {each.version for each in broker.requests_of("OffsetFetch")} == {min(highest, 9)}


async def test_the_right_to_find_a_group_is_named_as_well(broker: FakeBroker) -> None:
    async with opened(broker) as coordinator:
        broker.fail("FindCoordinator", "GROUP_AUTHORIZATION_FAILED")
        with pytest.raises(BrokerError, match=r"DESCRIBE.*group 'readers'"):
            await coordinator.committed("readers", [IN_0])
        assert await coordinator.committed("readers", [IN_0]) == {IN_0: None}


async def test_the_error_of_one_partition_is_an_error(broker: FakeBroker) -> None:
    def refuse_second(context: RequestContext) -> OffsetFetchResponse:
        response = cast("OffsetFetchResponse", context.apply())
        response.groups[0].topics[0].partitions[1].error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        response.groups[0].topics[0].partitions[0].error_code = ErrorCode.UNSTABLE_OFFSET_COMMIT
        return response

    async with opened(broker) as coordinator:
        broker.control("OffsetFetch", refuse_second)
        with pytest.raises(BrokerError, match=r"TOPIC_AUTHORIZATION_FAILED.*DESCRIBE.*topic 'in'") as raised:
            await coordinator.committed("readers", [IN_0, IN_1])
    assert raised.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_an_answer_about_something_else_is_asked_for_again(broker: FakeBroker) -> None:
    def mistaken(context: RequestContext) -> OffsetFetchResponse:
        response = cast("OffsetFetchResponse", context.apply())
        response.groups[0].topics[0].partitions[0].partition_index = 1
        return response

    async with opened(broker) as coordinator:
        broker.control("OffsetFetch", mistaken, times=2)
        assert await coordinator.committed("readers", [IN_0]) == {IN_0: None}
    assert broker.count("OffsetFetch") == 3


# -- many at once, and its own life -------------------------------------------------------------------------------------


async def test_one_client_serves_many_transactions_at_once_over_one_connection(broker: FakeBroker) -> None:
    async def one(coordinator: TransactionCoordinatorClient, number: int) -> None:
        handle = await coordinator.init(f"load-{number}")
        await coordinator.send_offsets(handle, {IN_0: number}, f"readers-{number}")
        if number % 3:
            await coordinator.commit(handle)
        else:
            await coordinator.abort(handle)
        expected = {IN_0: OffsetAndMetadata(number) if number % 3 else None}
        assert await coordinator.committed(f"readers-{number}", [IN_0]) == expected

    async with opened(broker) as coordinator:
        await asyncio.gather(*[one(coordinator, number) for number in range(30)])

    assert not broker.open_transactions()
    assert len(broker.connections(closed=True)) <= 2  # a bootstrap server is a broker like any other


async def test_no_task_is_left_when_it_is_closed(broker: FakeBroker) -> None:
    async with opened(broker) as coordinator:
        handle = await coordinator.init("load")
        waiting = asyncio.ensure_future(coordinator.committed("readers", [IN_0]))
        await coordinator.commit(handle)
        await waiting
        tasks = asyncio.all_tasks()

    assert len(tasks) > 1
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_the_error_without_a_reachable_server_names_the_servers() -> None:
    async with TransactionCoordinatorClient("127.0.0.1:1") as coordinator:
        with pytest.raises(
            KafkaTimeoutError, match=r"init\(\).*no broker is connected \(bootstrap servers 127\.0\.0\.1:1\)"
        ):
            await coordinator.init("load", timeout=0.01)


async def test_closing_ends_every_call(broker: FakeBroker) -> None:
    coordinator = TransactionCoordinatorClient(broker.bootstrap_servers, **QUICK)
    await coordinator.start()
    handle = await coordinator.init("load")
    write(broker, handle, 0, "value")
    with broker.hold("EndTxn") as held:
        committing = asyncio.ensure_future(coordinator.commit(handle))
        await until(lambda: held.waiting)
        asking = asyncio.ensure_future(coordinator.committed("readers", [IN_0]))
        await asyncio.sleep(0)
        await coordinator.close()
        with pytest.raises(CommitUnknown):
            await committing
        with pytest.raises(ProducerClosed):
            await asking
    await coordinator.close()
    with pytest.raises(ProducerClosed, match="Re-enter it"):
        await coordinator.commit(handle)

    async with coordinator:
        await coordinator.commit(handle)
    assert committed(broker) == [b"value"]


async def test_wrong_usage_is_explained(broker: FakeBroker) -> None:
    coordinator = TransactionCoordinatorClient(broker.bootstrap_servers)
    assert repr(coordinator).endswith("[created]>")
    with pytest.raises(NotStarted, match="async with"):
        await coordinator.init("load")
    async with coordinator:
        with pytest.raises(ProducerStateError, match="is already started"):
            await coordinator.start()

        def elsewhere() -> None:
            with pytest.raises(WrongEventLoop):
                asyncio.run(coordinator.abort(TransactionHandle("load", 1, 1)))
            with pytest.raises(WrongEventLoop):
                asyncio.run(coordinator.close())

        await asyncio.to_thread(elsewhere)
        assert (await coordinator.init("load")).transactional_id == "load"


def test_it_may_be_used_again_when_its_event_loop_is_gone(broker: FakeBroker) -> None:
    coordinator = TransactionCoordinatorClient(broker.bootstrap_servers)

    async def begin() -> TransactionHandle:
        async with coordinator:
            return await coordinator.init("load")

    assert asyncio.run(begin()).producer_epoch < asyncio.run(begin()).producer_epoch


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
async def test_a_fork_is_reported_to_make_its_own(broker: FakeBroker) -> None:
    async with opened(broker) as coordinator:
        handle = await coordinator.init("load")
        pid = os.fork()
        if pid == 0:
            try:
                coordinator.abort(handle).send(None)
            except ForkedProcess:
                os._exit(0)
            os._exit(1)
        assert (await asyncio.to_thread(os.waitpid, pid, 0))[1] == 0
        await coordinator.abort(handle)


async def test_the_end_of_its_task_is_reported_to_everybody(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(broker) as coordinator:
        with broker.hold("InitProducerId") as hold:
            waiting = asyncio.ensure_future(coordinator.init("load"))
            await until(lambda: hold.waiting)
            for task in asyncio.all_tasks():
                if task.get_name() == "aioproducer coordinator client":
                    task.cancel()
            with pytest.raises(ProducerDied, match="cancelled before it was closed"):
                await waiting
        with pytest.raises(ProducerDied):
            await coordinator.init("load")
        with pytest.raises(ProducerDied):
            await coordinator.start()
        await coordinator.close()
        await coordinator.start()
        await coordinator.init("load")
    assert any("cancelled before it was closed" in each.message for each in caplog.records)


@pytest.mark.parametrize(
    "options",
    [
        {"transactional_id": "load"},
        {"transaction_timeout_ms": 5},
        {"security_protocol": "SASL_SSL"},
        {"no_such_option": 1},
    ],
)
def test_options_that_it_cannot_heed_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        TransactionCoordinatorClient("localhost:9092", **options)


async def test_the_options_of_the_writers_will_do(broker: FakeBroker) -> None:
    config = ProducerConfig(broker.bootstrap_servers, transactional_id="mine", linger_ms=50)
    async with TransactionCoordinatorClient(config, client_id="driver") as coordinator:
        assert (await coordinator.init("load")).transactional_id == "load"
    assert {each.client_id for each in broker.requests} == {"driver"}
    config = config.replace(transaction_two_phase_commit_enable=True)
    with pytest.raises(ConfigError, match="two_phase"):
        TransactionCoordinatorClient(config)


@pytest.mark.parametrize(
    ("call", "arguments", "options"),
    [
        ("init", ("",), {}),
        ("init", (None,), {}),
        ("init", ("x" * 2**15,), {}),
        ("init", ("load",), {"transaction_timeout_ms": 0}),
        ("init", ("load",), {"transaction_timeout_ms": 2**31}),
        ("init", ("load",), {"timeout": -1}),
        ("commit", ("load",), {}),
        ("commit", ("load",), {"written": [{IN_0: Written(1, 0, 0)}] * 2}),
        ("abort", (None,), {}),
        ("send_offsets", (TransactionHandle("load", 1, 1), {IN_0: -1}, "g"), {}),
        ("send_offsets", (TransactionHandle("load", 1, 1), {IN_0: 1}, ""), {}),
        ("send_offsets", (None, {IN_0: 1}, "g"), {}),
        ("committed", ("", [IN_0]), {}),
        ("committed", ("g", ["in"]), {}),
    ],
)
async def test_invalid_arguments_are_refused_before_anything_is_sent(
    broker: FakeBroker, call: str, arguments: tuple[Any, ...], options: dict[str, Any]
) -> None:
    async with opened(broker) as coordinator:
        with pytest.raises(ConfigError):
            await getattr(coordinator, call)(*arguments, **options)
    assert broker.counts.keys() <= {"ApiVersions", "Metadata"}
