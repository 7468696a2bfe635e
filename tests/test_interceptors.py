from __future__ import annotations

import dataclasses
import inspect
import logging
from collections.abc import Awaitable
from typing import Any, cast

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from aioproducer import ConfigError
from aioproducer.interceptors import (
    EndOfSend,
    InterceptedProducer,
    ProducerInterceptor,
    ProducerInterceptors,
    add_global_interceptor,
    remove_global_interceptor,
)
from aioproducer.runtime.log import ClientLog
from aioproducer.testing import FakeBroker
from aioproducer.types import Headers, ProducerRecord, RecordMetadata, TransactionOutcome
from tests.conftest import opened

LOG = ClientLog("shop")
RECORD = ProducerRecord("orders", b"v", partition=3)
METADATA = RecordMetadata("orders", 3, 7, 0)


def with_key(record: ProducerRecord, letter: bytes) -> ProducerRecord:
    return dataclasses.replace(record, key=cast("bytes", record.key or b"") + letter)


class Plain(ProducerInterceptor):
    def __init__(self, letter: bytes = b"p") -> None:
        self.letter = letter
        self.acknowledged: list[tuple[RecordMetadata | None, BaseException | None, Headers]] = []
        self.closed = 0

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return with_key(record, self.letter)

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: BaseException | None, headers: Headers
    ) -> None:
        self.acknowledged.append((metadata, error, headers))

    def close(self) -> None:
        self.closed += 1


class Async(Plain):
    async def on_send(self, record: ProducerRecord) -> ProducerRecord:  # type: ignore[override]
        return with_key(record, self.letter)

    async def on_acknowledgement(  # type: ignore[override]
        self, metadata: RecordMetadata | None, error: BaseException | None, headers: Headers
    ) -> None:
        self.acknowledged.append((metadata, error, headers))

    async def close(self) -> None:  # type: ignore[override]
        self.closed += 1


class Broken:
    """Not a subclass; raises wherever it can."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise LookupError("on_send")

    def on_acknowledgement(self, *args: object) -> None:
        raise LookupError("on_acknowledgement")

    def close(self) -> None:
        raise LookupError("close")


class AsyncBroken:
    async def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise LookupError("on_send")

    async def on_acknowledgement(self, *args: object) -> None:
        raise LookupError("on_acknowledgement")

    async def close(self) -> None:
        raise LookupError("close")


class Forgetful:
    def on_send(self, record: ProducerRecord) -> Any:
        return None


async def sent(chain: ProducerInterceptors) -> ProducerRecord:
    result = chain.on_send(RECORD)
    return await cast("Awaitable[ProducerRecord]", result) if inspect.isawaitable(result) else result


def test_no_interceptors_do_nothing() -> None:
    chain = ProducerInterceptors([], LOG)

    assert chain.on_send(RECORD) is RECORD
    assert chain.on_acknowledgement(METADATA, None) is None
    assert chain.close() is None
    assert not chain.sees_send
    assert not chain.sees_acknowledgement


def test_plain_interceptors_change_the_record_in_order_and_make_no_coroutine() -> None:
    record = ProducerInterceptors([Plain(b"a"), Plain(b"b")], LOG).on_send(RECORD)

    assert isinstance(record, ProducerRecord)
    assert record.key == b"ab"


async def test_async_interceptors_run_in_order_with_plain_ones() -> None:
    twice = Async(b"d")
    chain = ProducerInterceptors([Plain(b"a"), Async(b"b"), Plain(b"c"), twice, twice], LOG)

    assert (await sent(chain)).key == b"abcdd"


async def test_one_that_raises_is_logged_and_the_record_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    chain = ProducerInterceptors([Plain(b"a"), Broken(), AsyncBroken(), Broken(), AsyncBroken(), Plain(b"b")], LOG)

    record = await sent(chain)

    assert record.key == b"ab"
    assert [entry.getMessage() for entry in caplog.records] == [
        f"[shop] Interceptor {name}.on_send failed for topic orders, partition 3; it was skipped for this record."
        for name in ("Broken", "AsyncBroken", "Broken", "AsyncBroken")
    ]
    assert all(entry.exc_info for entry in caplog.records)


async def test_one_that_returns_no_record_is_logged_and_the_record_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    assert (await sent(ProducerInterceptors([Plain(b"a"), Forgetful(), Plain(b"b")], LOG))).key == b"ab"
    assert (await sent(ProducerInterceptors([Async(b"a"), Forgetful()], LOG))).key == b"a"
    assert "Forgetful.on_send returned NoneType for topic orders" in caplog.text


def test_plain_interceptors_see_the_outcome_at_once() -> None:
    plain, error, headers = Plain(), TimeoutError(), (("a", b"1"),)
    chain = ProducerInterceptors([Broken(), plain], LOG)

    assert chain.on_acknowledgement(METADATA, None, headers) is None
    assert chain.on_acknowledgement(None, error) is None

    assert plain.acknowledged == [(METADATA, None, headers), (None, error, ())]


async def test_async_interceptors_see_the_outcome_when_awaited(caplog: pytest.LogCaptureFixture) -> None:
    plain, waiting = Plain(), Async()
    chain = ProducerInterceptors([AsyncBroken(), waiting, plain], LOG)

    pending = chain.on_acknowledgement(METADATA, None)

    assert len(plain.acknowledged) == 1
    assert waiting.acknowledged == []
    assert pending is not None
    await pending
    assert waiting.acknowledged == [(METADATA, None, ())]
    assert "AsyncBroken.on_acknowledgement failed" in caplog.text


async def test_close_reaches_every_interceptor(caplog: pytest.LogCaptureFixture) -> None:
    plain, waiting = Plain(), Async()

    pending = ProducerInterceptors([Broken(), AsyncBroken(), waiting, plain], LOG).close()

    assert pending is not None
    await pending
    assert (plain.closed, waiting.closed) == (1, 1)
    assert "Broken.close failed; the others are still closed." in caplog.text
    assert "AsyncBroken.close failed" in caplog.text


def test_methods_that_are_only_inherited_cost_nothing() -> None:
    class OnlyClose(ProducerInterceptor):
        def close(self) -> None:
            pass

    chain = ProducerInterceptors([OnlyClose(), ProducerInterceptor()], LOG)

    assert not chain.sees_send
    assert not chain.sees_acknowledgement


async def test_cancellation_is_not_swallowed(caplog: pytest.LogCaptureFixture) -> None:
    class Cancelled:
        async def on_send(self, record: ProducerRecord) -> ProducerRecord:
            raise KeyboardInterrupt

    caplog.set_level(logging.DEBUG)
    with pytest.raises(KeyboardInterrupt):
        await sent(ProducerInterceptors([Cancelled()], LOG))
    assert not caplog.records


# -- the outcome of each record ---------------------------------------------------------------------------------------

PRODUCER = InterceptedProducer("shop", None, ["kafka:9092"], lambda topic, partition: None)


class Following(ProducerInterceptor):
    def __init__(self, letter: bytes) -> None:
        self.letter = letter
        self.ended: list[tuple[object, RecordMetadata | None, BaseException | None]] = []

    def begin_send(self, record: ProducerRecord, producer: InterceptedProducer) -> tuple[ProducerRecord, EndOfSend]:
        begun = with_key(record, self.letter)
        return begun, lambda metadata, error: self.ended.append((begun.key, metadata, error))


class BreaksOff:
    def begin_send(self, record: ProducerRecord, producer: InterceptedProducer) -> object:
        raise LookupError("begin_send")


class ReturnsOnlyTheRecord:
    def begin_send(self, record: ProducerRecord, producer: InterceptedProducer) -> object:
        return record


class EndsBadly:
    def begin_send(self, record: ProducerRecord, producer: InterceptedProducer) -> object:
        def end(metadata: object, error: object) -> None:
            raise LookupError("end")

        return record, end


def test_each_interceptor_gets_the_outcome_of_the_record_that_it_began(caplog: pytest.LogCaptureFixture) -> None:
    first, second = Following(b"a"), Following(b"b")
    chain = ProducerInterceptors([first, BreaksOff(), ReturnsOnlyTheRecord(), EndsBadly(), second], LOG)
    ends: list[EndOfSend] = []

    record = chain.begin_send(RECORD, PRODUCER, ends)
    chain.end_send(ends, METADATA, None)

    assert record.key == b"ab"
    assert first.ended == [(b"a", METADATA, None)]
    assert second.ended == [(b"ab", METADATA, None)]
    assert [line.split(", which")[0] for line in caplog.messages[:2]] == [
        "[shop] Interceptor BreaksOff.begin_send failed for topic orders, partition 3; it was skipped for this record.",
        "[shop] Interceptor ReturnsOnlyTheRecord.begin_send returned ProducerRecord for topic orders instead of (record, "
        "end); it was skipped for this record. begin_send must return the record, changed or not, and a callable that "
        "takes its outcome.",
    ]
    assert "EndsBadly.begin_send.<locals>.end" in caplog.messages[2]
    assert len(caplog.messages) == 3


def test_only_interceptors_with_begin_send_are_called() -> None:
    assert not ProducerInterceptors([ProducerInterceptor()], LOG).sees_send
    assert ProducerInterceptors([Following(b"a")], LOG).sees_send
    assert not ProducerInterceptors([Following(b"a")], LOG).sees_acknowledgement


# -- transactions -------------------------------------------------------------------------------------------------------


class Transactions(ProducerInterceptor):
    """Remembers the outcomes of transactions, or fails in its hook, or in what that returns."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.seen: list[tuple[object, object]] = []

    def begin_transaction(self, producer: InterceptedProducer) -> Any:
        assert producer.transactional_id == "t"
        if self.fails == "begin":
            raise LookupError("begin")
        if self.fails == "returns":
            return None

        def end(outcome: TransactionOutcome, error: BaseException | None) -> None:
            if self.fails == "end":
                raise LookupError("end")
            self.seen.append((outcome, error))

        return end


async def test_an_interceptor_that_fails_for_a_transaction_is_logged_and_the_others_get_the_outcome(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    chain = [Transactions(), Transactions("begin"), Transactions("returns"), Transactions("end"), Transactions()]
    async with (
        opened(broker, client_id="shop", transactional_id="t", interceptors=chain) as producer,
        producer.transaction() as txn,
    ):
        await txn.send("orders", b"value")

    assert [each.seen for each in chain] == [[("committed", None)], [], [], [], [("committed", None)]]
    assert [line.split(" instead")[0] for line in caplog.messages[:2]] == [
        "[shop] Interceptor Transactions.begin_transaction failed; the others still run.",
        "[shop] Interceptor Transactions.begin_transaction returned NoneType",
    ]
    assert "which an interceptor's begin_transaction returned, failed" in caplog.messages[2]
    assert len(caplog.messages) == 3


def test_only_interceptors_with_begin_transaction_are_called() -> None:
    assert ProducerInterceptors([ProducerInterceptor(), Following(b"a")], LOG).begin_transaction(PRODUCER) is None


async def test_the_leader_of_a_partition_is_known_while_the_producer_runs(broker: FakeBroker) -> None:
    leaders: list[tuple[str, int] | None] = []

    class Asking:
        def begin_send(self, record: ProducerRecord, producer: InterceptedProducer) -> tuple[ProducerRecord, EndOfSend]:
            assert producer.bootstrap_servers == (broker.bootstrap_servers,)
            assert (producer.client_id, producer.transactional_id) == ("shop", None)

            def end(metadata: RecordMetadata | None, error: BaseException | None) -> None:
                assert metadata is not None
                leaders.append(producer.leader("orders", metadata.partition))
                leaders.append(producer.leader("orders", 3))
                leaders.append(producer.leader("nowhere", 0))

            return record, end

    async with opened(broker, client_id="shop", interceptors=[Asking()]) as producer:
        await producer.send("orders", b"value")

    host, port = broker.bootstrap_servers.split(":")
    assert leaders == [(host, int(port)), None, None]


# -- calls that send many ---------------------------------------------------------------------------------------------


class Bulk:
    def __init__(self, headers: Any = (), then: object = None) -> None:
        self.headers = headers
        self.then = then

    def begin_bulk(self, topic: str, producer: InterceptedProducer, is_table: bool) -> object:
        return self.headers, self.then or (lambda result, error: None)


async def test_headers_of_a_table_are_those_that_interceptors_return(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """A text is the header's value, and not the name of a column."""
    table = pa.table({"value": pa.array([b"1"])})
    chain = [Bulk([("text", "value")]), Bulk({"mapped": b"2", "null": None}), Bulk("invalid"), Bulk([], print)]
    async with opened(broker, client_id="shop", interceptors=chain) as producer:
        await producer.send_table("orders", table, value="value")

    (record,) = broker.records("orders")
    assert record.headers == (("text", b"value"), ("mapped", b"2"), ("null", b""))
    assert "Interceptor Bulk.begin_bulk failed" in caplog.text
    assert len(caplog.records) == 1


async def test_a_table_is_refused_if_one_interceptor_would_have_to_see_each_record(broker: FakeBroker) -> None:
    table = pa.table({"value": pa.array([b"1"])})
    for needs in (Following(b"a"), Plain()):
        async with opened(broker, interceptors=[needs, Bulk()]) as producer:
            with pytest.raises(ConfigError, match="has interceptors="):
                await producer.send_table("orders", table, value="value")

    assert broker.records("orders") == []


@pytest.mark.parametrize("name", ["begin_send", "begin_bulk", "begin_transaction"])
def test_a_coroutine_function_is_refused_where_it_cannot_be_awaited(name: str) -> None:
    async def hook(*_: object) -> None:
        pass

    one = type("Mine", (), {name: staticmethod(hook)})()
    for use in (lambda: ProducerInterceptors([one], LOG), lambda: add_global_interceptor(one)):
        with pytest.raises(ConfigError, match=rf"Mine\.{name} is a coroutine function"):
            use()


async def test_the_close_of_an_interceptor_for_all_producers_is_not_called(broker: FakeBroker) -> None:
    plain = Plain()
    add_global_interceptor(plain)
    try:
        async with opened(broker) as producer:
            await producer.send("orders", b"value", key=b"a")
    finally:
        remove_global_interceptor(plain)

    assert [record.key for record in broker.records("orders")] == [b"ap"]
    assert (len(plain.acknowledged), plain.closed) == (1, 0)
