"""Trap 12, cancelled: at each of the places where a transaction waits, in both versions of the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from aioproducer import Producer
from aioproducer.errors import TransactionAbortable
from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.protocol.messages import EndTxnRequest, EndTxnResponse
from aioproducer.testing import FakeBroker, RequestContext
from tests.conftest import opened
from tests.traps.ledger import PARTITIONS, Entry, Fate, Ledger
from tests.traps.steps import Steps, at_every_step
from tests.traps.transaction_walk import TV1, TV2

BOTH = pytest.mark.parametrize("version", [TV1, TV2])


def cluster(version: str) -> FakeBroker:
    return FakeBroker(topics={"orders": 3, "in": 1}, versions=version)


async def block(producer: Producer, entry: Entry, *, raises: bool = False) -> None:
    """A transaction in which everything is waited for; until its end is asked for it is to be aborted."""
    entry.fate = Fate.ABORTED
    with suppress(LookupError):
        async with producer.transaction() as txn:
            for partition in PARTITIONS:
                await entry.enqueue(producer, partition)
            await txn.flush()
            await entry.move_group(producer)
            if raises:
                raise LookupError
            entry.fate = Fate.COMMITTED  # whether the caller waits for it or not


@pytest.mark.parametrize("raises", [False, True], ids=["to be committed", "to be aborted"])
@pytest.mark.parametrize("trouble", [False, True], ids=["", "with errors"])
@BOTH
async def test_a_block_that_is_cancelled_at_any_step_is_aborted_or_its_commit_goes_on(
    version: str, trouble: bool, raises: bool
) -> None:
    async def run(at: int) -> bool:
        with cluster(version) as broker:
            ledger = Ledger(broker)
            async with opened(broker, transactional_id="shop") as producer:
                if trouble:
                    for api in ("InitProducerId", "EndTxn", "TxnOffsetCommit"):
                        broker.fail(api, "NOT_COORDINATOR")
                        broker.drop_connection(api, when="after")
                steps = Steps(block(producer, ledger.entry(), raises=raises), at)
                with suppress(asyncio.CancelledError):
                    await steps
                await ledger.commit_one(producer)
            ledger.check()
            return steps.reached

    assert await at_every_step(run) >= 3


Call = Callable[[Producer, Entry], Coroutine[Any, Any, object]]
CALLS: dict[str, Call] = {
    "init": lambda producer, entry: producer.init_transactions(),
    "offsets": lambda producer, entry: entry.move_group(producer),
    "commit": lambda producer, entry: producer.commit_transaction(),
    "abort": lambda producer, entry: producer.abort_transaction(),
}


@pytest.mark.parametrize("call", CALLS)
@BOTH
async def test_a_call_that_is_cancelled_at_any_step_goes_on_and_is_waited_for_by_the_same_call(
    version: str, call: str
) -> None:
    async def run(at: int) -> bool:
        reached = False

        async def do(name: str) -> None:
            nonlocal reached
            if name != call:
                await CALLS[name](producer, entry)
                return
            steps = Steps(CALLS[name](producer, entry), at)
            try:
                await steps
            except asyncio.CancelledError:
                await CALLS[name](producer, entry)
            reached = steps.reached

        with cluster(version) as broker:
            ledger = Ledger(broker)
            async with opened(broker, transactional_id="shop") as producer:
                entry = ledger.entry()
                await do("init")
                await producer.begin_transaction()
                for partition in PARTITIONS:
                    await entry.enqueue(producer, partition)
                await do("offsets")
                await do("abort" if call == "abort" else "commit")
                entry.fate = Fate.ABORTED if call == "abort" else Fate.COMMITTED
                await ledger.commit_one(producer)
            ledger.check()
        return reached

    assert await at_every_step(run) >= 1


def refuse_the_first_commit(broker: FakeBroker) -> None:
    """And no abort."""
    refused: list[object] = []

    def refuse(context: RequestContext) -> EndTxnResponse | None:
        body = context.request.body
        if refused or not (isinstance(body, EndTxnRequest) and body.committed):
            return None
        refused.append(context)
        return EndTxnResponse(error_code=ErrorCode.TRANSACTION_ABORTABLE, producer_id=-1, producer_epoch=-1)

    broker.control("EndTxn", refuse, times=None)


@BOTH
async def test_a_commit_that_is_cancelled_and_fails_is_reported_to_the_next_transaction(version: str) -> None:
    untold: list[int] = []

    async def run(at: int) -> bool:
        with cluster(version) as broker:
            refuse_the_first_commit(broker)
            ledger = Ledger(broker)
            async with opened(broker, transactional_id="shop") as producer:
                entry = ledger.entry()
                steps = Steps(block(producer, entry), at)
                with suppress(asyncio.CancelledError, TransactionAbortable):
                    await steps
                entry.fate = Fate.ABORTED
                try:
                    await ledger.commit_one(producer)
                except TransactionAbortable:  # of this one, if no commit was refused before, or of the one before
                    untold.append(at)
                    await ledger.commit_one(producer)
            ledger.check()
            return steps.reached

    assert await at_every_step(run) >= 3
    assert untold
