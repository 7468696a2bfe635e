"""A transaction has a span that ends with its outcome, and the spans of its records are below it."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from aioproducer import CommitUnknown, Producer, ProducerFenced, SyncProducer, TransactionAbortable
from aioproducer.testing import FakeBroker, TwoPhaseCommit
from tests.conftest import QUICK, opened, until
from tests.contrib.spans import Seen, carried, ids

OUTCOME = "aioproducer.transaction.outcome"


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"orders": 2}) as broker:
        yield broker


def transactions(seen: Seen) -> list[ReadableSpan]:
    """The spans of transactions that have ended."""
    return [span for span in seen.spans_of.get_finished_spans() if span.name == "transaction"]


def outcome(seen: Seen) -> tuple[object, object, StatusCode]:
    """The outcome of the only transaction that has ended, its error's name, and the status of its span."""
    (span,) = transactions(seen)
    attributes = span.attributes or {}
    return attributes[OUTCOME], attributes.get("error.type"), span.status.status_code


async def test_records_are_below_their_transaction_and_that_is_below_the_caller(broker: FakeBroker, seen: Seen) -> None:
    async with opened(broker, client_id="shop", transactional_id="t", interceptors=[seen.interceptor()]) as producer:
        with seen.tracer.start_as_current_span("request") as request:
            async with producer.transaction() as txn:
                await txn.send("orders", b"value")
                await txn.send_many("orders", [b"value"])
                await txn.send_table("orders", pa.table({"value": [b"value"]}), value="value")

    (transaction,) = transactions(seen)
    assert transaction.attributes == {
        "messaging.system": "kafka",
        "messaging.client.id": "shop",
        "aioproducer.transactional_id": "t",
        OUTCOME: "committed",
    }
    assert transaction.parent is not None
    assert transaction.parent.span_id == request.get_span_context().span_id
    assert [span.parent and span.parent.span_id for span in seen.spans] == [ids(transaction)[1]] * 3
    assert [span.links for span in seen.spans] == [()] * 3
    assert sorted(carried(broker)) == sorted(map(ids, seen.spans))


async def test_a_record_is_linked_to_a_span_that_its_caller_began_within_the_transaction(
    broker: FakeBroker, seen: Seen
) -> None:
    async with (
        opened(broker, transactional_id="t", interceptors=[seen.interceptor()]) as producer,
        producer.transaction() as txn,
    ):
        with seen.tracer.start_as_current_span("step") as step:
            await txn.send("orders", b"value")

    (transaction,) = transactions(seen)
    assert transaction.parent is None
    assert seen.span.parent is not None
    assert seen.span.parent.span_id == ids(transaction)[1]
    assert [link.context for link in seen.span.links] == [step.get_span_context()]


async def test_each_transaction_has_its_span_and_later_records_are_not_below_it(broker: FakeBroker, seen: Seen) -> None:
    interceptor = seen.interceptor()
    async with (
        opened(broker, transactional_id="t", interceptors=[interceptor]) as producer,
        opened(broker, interceptors=[interceptor]) as another,
    ):
        for _ in range(2):
            async with producer.transaction() as txn:
                await txn.send("orders", b"value")
                await another.send("orders", b"value")

    first, second = transactions(seen)
    parents = [span.parent and span.parent.span_id for span in seen.spans]
    assert parents == [ids(first)[1], None, ids(second)[1], None]


async def test_the_span_ends_when_the_coordinator_has_answered(broker: FakeBroker, seen: Seen) -> None:
    async with opened(broker, transactional_id="t", interceptors=[seen.interceptor()]) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("orders", b"value")
        with broker.hold("EndTxn") as held:
            committing = asyncio.create_task(producer.commit_transaction())
            await until(lambda: held.waiting)
            committing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await committing
            assert transactions(seen) == []
        await producer.commit_transaction()  # the same one

    assert outcome(seen) == ("committed", None, StatusCode.UNSET)


async def test_an_exception_in_the_block_is_the_caller_s_and_no_error_of_the_transaction(
    broker: FakeBroker, seen: Seen
) -> None:
    async with opened(broker, transactional_id="t", interceptors=[seen.interceptor()]) as producer:

        async def work() -> None:
            async with producer.transaction() as txn:
                await txn.send("orders", b"value")
                raise LookupError

        with pytest.raises(LookupError):
            await work()

    assert outcome(seen) == ("aborted", None, StatusCode.UNSET)


async def test_a_transaction_that_had_to_be_aborted_names_the_reason(broker: FakeBroker, seen: Seen) -> None:
    async with opened(broker, transactional_id="t", interceptors=[seen.interceptor()]) as producer:
        broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")
        with pytest.raises(TransactionAbortable):
            async with producer.transaction() as txn:
                await txn.enqueue("orders", b"value")

    assert outcome(seen) == ("aborted", "TOPIC_AUTHORIZATION_FAILED", StatusCode.ERROR)


async def test_a_commit_that_was_fenced_has_aborted(broker: FakeBroker, seen: Seen) -> None:
    async with opened(broker, transactional_id="t", interceptors=[seen.interceptor()]) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("orders", b"value")
        async with opened(broker, transactional_id="t") as successor:
            await successor.init_transactions()
        with pytest.raises(ProducerFenced):
            await producer.commit_transaction()

    assert outcome(seen)[0] == "aborted"
    assert outcome(seen)[2] is StatusCode.ERROR


async def test_a_commit_without_an_answer_is_unknown(broker: FakeBroker, seen: Seen) -> None:
    async with opened(broker, transactional_id="t", interceptors=[seen.interceptor()]) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("orders", b"value")
        with broker.hold("EndTxn") as held:
            committing = asyncio.create_task(producer.commit_transaction())
            await until(lambda: held.waiting)
            await producer.close(0)
            with pytest.raises(CommitUnknown):
                await committing

    assert outcome(seen) == ("unknown", "CommitUnknown", StatusCode.ERROR)


async def test_a_producer_that_is_closed_aborts_its_transaction(broker: FakeBroker, seen: Seen) -> None:
    async with opened(broker, transactional_id="t", interceptors=[seen.interceptor()]) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("orders", b"value")

    assert outcome(seen) == ("aborted", None, StatusCode.UNSET)


async def _complete(producer: Producer, state: Any) -> None:
    await producer.complete_transaction(state)


async def _complete_another(producer: Producer, state: Any) -> None:
    await producer.complete_transaction("0:0")


async def _leave(producer: Producer, state: Any) -> None:
    pass


@pytest.mark.parametrize(
    ("decide", "expected"), [(_complete, "committed"), (_complete_another, "aborted"), (_leave, "prepared")]
)
async def test_a_prepared_transaction_ends_as_it_was_decided(
    seen: Seen, decide: Callable[[Producer, Any], Awaitable[None]], expected: str
) -> None:
    with FakeBroker(topics={"orders": 1}, versions="4.3.1", max_versions={"InitProducerId": 6}) as broker:
        broker.two_phase_commit = TwoPhaseCommit.RECOVERABLE
        async with opened(
            broker,
            transactional_id="t",
            transaction_two_phase_commit_enable=True,
            interceptors=[seen.interceptor()],
        ) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send("orders", b"value")
            state = await producer.prepare_transaction()
            assert transactions(seen) == []
            await decide(producer, state)

    assert outcome(seen) == (expected, None, StatusCode.UNSET)


def test_a_thread_s_span_is_the_parent(broker: FakeBroker, seen: Seen) -> None:
    with SyncProducer(
        broker.bootstrap_servers, transactional_id="t", interceptors=[seen.interceptor()], **QUICK
    ) as producer:
        with seen.tracer.start_as_current_span("request") as request, producer.transaction() as txn:
            txn.send("orders", b"value")
        producer.begin_transaction()
        producer.abort_transaction()

    in_block, explicit = transactions(seen)
    assert in_block.parent is not None
    assert in_block.parent.span_id == request.get_span_context().span_id
    assert explicit.parent is None
    assert seen.span.parent is not None
    assert seen.span.parent.span_id == ids(in_block)[1]
    assert seen.span.links == ()


async def test_a_producer_that_goes_away_leaves_nothing_in_a_shared_interceptor(broker: FakeBroker, seen: Seen) -> None:
    interceptor = seen.interceptor()
    for _ in range(3):
        async with opened(broker, transactional_id="t", interceptors=[interceptor]) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()

    assert len(interceptor._transactions) == 0
