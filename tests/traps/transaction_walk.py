"""Walks through one transaction in which everything is asked, and says where on the way each request comes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from enum import Enum, auto
from typing import Any, NamedTuple

import pytest

from aioproducer import Producer
from aioproducer.core.transactions.requests import Rpc
from aioproducer.errors import CommitUnknown, KafkaError
from tests.traps.ledger import GROUP, INPUT, PARTITIONS, Fate, Ledger

__all__ = ["PLACES", "TV1", "TV2", "Place", "Step", "check_that_calls_raise", "walk"]

#: The releases that stand for the two versions of the protocol.
TV1, TV2 = "3.9.2", "4.3.1"


class Step(Enum):
    """The step at which the broker begins to refuse."""

    INIT = auto()
    RECORDS = auto()
    GROUP = auto()
    END = auto()


class Place(NamedTuple):
    """A request of a transaction, and when it comes; ``first``: what makes the producer ask it at all."""

    rpc: Rpc
    api: str
    step: Step
    commits: bool = True
    first: tuple[str, str] | None = None


LOST_COORDINATOR = ("EndTxn", "NOT_COORDINATOR")
PLACES = {
    "FindCoordinator, to begin with": Place(Rpc.FIND_COORDINATOR, "FindCoordinator", Step.INIT),
    "FindCoordinator, of the group": Place(Rpc.FIND_COORDINATOR, "FindCoordinator", Step.GROUP),
    "FindCoordinator, to commit": Place(Rpc.FIND_COORDINATOR, "FindCoordinator", Step.END, first=LOST_COORDINATOR),
    "FindCoordinator, to abort": Place(Rpc.FIND_COORDINATOR, "FindCoordinator", Step.END, False, LOST_COORDINATOR),
    "InitProducerId": Place(Rpc.INIT_PRODUCER_ID, "InitProducerId", Step.INIT),
    "AddPartitionsToTxn": Place(Rpc.ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxn", Step.RECORDS),
    "AddOffsetsToTxn": Place(Rpc.ADD_OFFSETS_TO_TXN, "AddOffsetsToTxn", Step.GROUP),
    "TxnOffsetCommit": Place(Rpc.TXN_OFFSET_COMMIT, "TxnOffsetCommit", Step.GROUP),
    "EndTxn, commit": Place(Rpc.COMMIT, "EndTxn", Step.END),
    "EndTxn, abort": Place(Rpc.ABORT, "EndTxn", Step.END, False),
}


async def walk(ledger: Ledger, producer: Producer, place: Place, arm: Callable[[], object]) -> KafkaError | None:
    """One transaction in which everything is asked; ``arm`` is called before the step that is about to go wrong.

    The producer must be initialized, unless that is the step.
    """
    entry = ledger.entry()
    at = {each: arm if each is place.step else lambda: None for each in Step}
    try:
        if place.step is Step.INIT:
            arm()
            await producer.init_transactions()
        await producer.begin_transaction()
        at[Step.RECORDS]()
        for partition in PARTITIONS[:2]:
            await entry.enqueue(producer, partition)
        await producer.flush()
        at[Step.GROUP]()
        await entry.move_group(producer)
        await entry.enqueue(producer, PARTITIONS[0])
        at[Step.END]()
        await (producer.commit_transaction() if place.commits else producer.abort_transaction())
    except KafkaError as error:
        entry.fate = Fate.UNKNOWN if isinstance(error, CommitUnknown) else Fate.ABORTED
        return error
    entry.fate = Fate.COMMITTED if place.commits else Fate.ABORTED
    return None


async def check_that_calls_raise(producer: Producer, error: KafkaError, *, but: Iterable[str] = ()) -> None:
    """A caller that continues gets the same error again."""
    for name, call in calls(producer).items():
        if name not in but:
            with pytest.raises(type(error)) as raised:
                await call()
            assert type(raised.value) is type(error), name


def calls(producer: Producer) -> dict[str, Callable[[], Coroutine[Any, Any, object]]]:
    """Every call that a transaction needs."""
    return {
        "init": producer.init_transactions,
        "begin": producer.begin_transaction,
        "enqueue": lambda: producer.enqueue("orders", b"never", partition=0),
        "offsets": lambda: producer.send_offsets_to_transaction({INPUT: 1_000_000}, GROUP),
        "commit": producer.commit_transaction,
        "abort": producer.abort_transaction,
    }
