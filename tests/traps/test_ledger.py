"""The judge of transactions says no where it must; a judge that is always content would prove nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from aioproducer import TransactionError
from aioproducer.errors import KafkaTimeoutError
from aioproducer.testing import FakeBroker
from tests.conftest import opened
from tests.traps.ledger import PARTITIONS, Entry, Fate, Ledger, Mark, complaints


class Record(NamedTuple):
    """A record in a log that the test made up."""

    topic: str
    partition: int
    value: bytes | None
    offset: int = 0  # unused here


def entry(number: int, fate: Fate | None, records: int = 2, *, moves_group: bool = False) -> Entry:
    """A transaction with a record in each of the first partitions."""
    marks = [Mark(number, each, "orders", each) for each in range(records)]
    return Entry(number, fate, moves_group, marks)


def record(transaction: int, number: int, *, partition: int | None = None) -> Record:
    """The record of such a transaction, where it belongs or elsewhere."""
    where = number if partition is None else partition
    return Record("orders", where, str(Mark(transaction, number, "orders", number)).encode())


FIRST = [record(0, 0), record(0, 1)]
SECOND = [record(1, 0), record(1, 1)]
COMMITTED, ABORTED, UNKNOWN = Fate.COMMITTED, Fate.ABORTED, Fate.UNKNOWN

CONTENT: list[tuple[list[Entry], list[Record], int | None]] = [
    ([], [], None),
    ([entry(0, COMMITTED)], FIRST, None),
    ([entry(0, ABORTED), entry(1, None)], [], None),
    ([entry(0, UNKNOWN)], FIRST, None),
    ([entry(0, UNKNOWN)], [], None),
    ([entry(0, COMMITTED), entry(1, COMMITTED)], [FIRST[0], SECOND[0], FIRST[1], SECOND[1]], None),
    ([entry(0, COMMITTED, moves_group=True), entry(1, ABORTED, moves_group=True)], FIRST, 0),
    ([entry(0, UNKNOWN, moves_group=True)], FIRST, 0),
    ([entry(0, UNKNOWN, moves_group=True)], [], None),
    ([entry(0, UNKNOWN, 0, moves_group=True)], [], 0),
    ([entry(0, UNKNOWN, 0, moves_group=True)], [], None),
]

NOT_CONTENT: list[tuple[list[Entry], list[Record], int | None, str]] = [
    ([entry(0, COMMITTED)], [], None, "is not to be seen"),
    ([entry(0, COMMITTED)], FIRST[:1], None, "is not to be seen"),
    ([entry(0, ABORTED)], FIRST[1:], None, "is to be seen"),
    ([entry(0, None)], FIRST, None, "is to be seen"),
    ([entry(0, UNKNOWN)], FIRST[1:], None, "is torn"),
    ([entry(0, COMMITTED)], [*FIRST, FIRST[1]], None, "is in the log 2 times"),
    ([], FIRST, None, "is nothing that was sent"),
    ([entry(0, COMMITTED)], [*FIRST, record(0, 2)], None, "is nothing that was sent"),
    ([], [Record("orders", 0, None)], None, "is nothing that was sent"),
    ([], [Record("orders", 0, b"\xff||")], None, "is nothing that was sent"),
    ([entry(0, COMMITTED)], [FIRST[0], record(0, 1, partition=2)], None, "was misrouted to orders-2"),
    ([entry(0, COMMITTED, 1), entry(1, COMMITTED, 1)], [SECOND[0], FIRST[0]], None, "stands behind"),
    ([entry(0, COMMITTED, moves_group=True)], FIRST, None, "The group stands at None"),
    ([entry(0, ABORTED, moves_group=True)], [], 0, "The group stands at 0"),
    ([entry(0, UNKNOWN, moves_group=True)], FIRST, None, "The group stands at None"),
    ([entry(0, UNKNOWN, moves_group=True)], [], 0, "The group stands at 0"),
    (
        [entry(0, COMMITTED, moves_group=True), entry(1, COMMITTED, 0, moves_group=True)],
        FIRST,
        0,
        "1 was committed last",
    ),
]


@pytest.mark.parametrize(("entries", "seen", "position"), CONTENT)
def test_the_judge_is_content_with_what_is_as_it_was_reported(
    entries: list[Entry], seen: list[Record], position: int | None
) -> None:
    assert complaints(entries, seen, seen, position) == []


@pytest.mark.parametrize(("entries", "seen", "position", "words"), NOT_CONTENT)
def test_the_judge_names_what_is_wrong(
    entries: list[Entry], seen: list[Record], position: int | None, words: str
) -> None:
    assert any(words in each for each in complaints(entries, seen, seen, position))


def test_the_judge_also_reads_what_is_not_visible() -> None:
    assert any("2 times" in each for each in complaints([entry(0, ABORTED)], [], [*FIRST, *FIRST], None))


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    """A broker that knows the topic that the group reads."""
    with FakeBroker(topics={"orders": 3, "in": 1}) as broker:
        yield broker


async def test_the_judge_sees_that_work_was_done_again_whose_commit_went_on(broker: FakeBroker) -> None:
    """The negative control with real parts: a commit that took too long is reported as none, which is not allowed."""
    ledger = Ledger(broker)
    async with opened(broker, transactional_id="shop") as producer:
        await producer.init_transactions()
        entry = ledger.entry()
        with broker.hold("EndTxn"):
            await producer.begin_transaction()
            await entry.enqueue(producer, PARTITIONS[0])
            with pytest.raises(KafkaTimeoutError):
                await producer.commit_transaction(timeout=0.01)
            entry.fate = Fate.ABORTED
        await producer.commit_transaction()
    assert ledger.complaints() == ["Transaction 0 (aborted): 0|0|orders|0 is to be seen."]

    entry.fate = Fate.COMMITTED
    ledger.check()


async def test_the_judge_sees_what_was_left_open(broker: FakeBroker) -> None:
    ledger = Ledger(broker)
    with broker.hold("EndTxn"):
        async with opened(broker, transactional_id="shop", close_timeout_ms=0) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await ledger.entry().enqueue(producer, PARTITIONS[0])
            await producer.flush()
        left = ledger.complaints()
    assert [each.split(" ")[1:3] for each in left] == [["is", "still"], ["is", "stable"]]

    async with opened(broker, transactional_id="shop") as producer:
        await producer.init_transactions()
    ledger.check()


async def test_the_judge_detects_a_broker_that_commits_and_denies_it(broker: FakeBroker) -> None:
    """No client could tell: TRANSACTION_ABORTABLE says that it was not committed."""
    ledger = Ledger(broker)
    async with opened(broker, transactional_id="shop") as producer:
        await ledger.commit_one(producer)
        broker.fail_after_apply("EndTxn", "TRANSACTION_ABORTABLE")
        with pytest.raises(TransactionError):
            await ledger.commit_one(producer)

    assert len([each for each in ledger.complaints() if "is to be seen" in each]) == 1
