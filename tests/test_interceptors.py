from __future__ import annotations

import dataclasses
import inspect
import logging
from collections.abc import Awaitable
from typing import Any, cast

import pytest

from aioproducer.interceptors import ProducerInterceptor, ProducerInterceptors
from aioproducer.runtime.log import ClientLog
from aioproducer.types import Headers, ProducerRecord, RecordMetadata

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
    assert "Interceptor Broken.close failed" in caplog.text
    assert "Interceptor AsyncBroken.close failed" in caplog.text


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
