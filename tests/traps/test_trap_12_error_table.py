"""Trap 12, the error table: each error in the answer to each request of a transaction, in both versions of the protocol.

A producer meets the error once or twice, does what the class of what is raised says, and goes on; the judge compares what
it reported with what a reader with read_committed sees.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping
from typing import Any, Literal, NamedTuple

import pytest

from aioproducer import Producer
from aioproducer.core.produce_error_codes import may_be_written, produce_verdict
from aioproducer.core.transactions.error_codes import Action
from aioproducer.core.transactions.requests import Rpc
from aioproducer.errors import (
    CommitFailed,
    CommitUnknown,
    KafkaError,
    ProducerFenced,
    ProducerIdExpired,
    TransactionAbortable,
    TransactionFatal,
)
from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.protocol.messages import EndTxnResponse
from aioproducer.testing import FakeBroker, Hangup, RequestContext
from tests.conftest import opened
from tests.core.transaction_cells import CELLS, COLUMNS, ONLY_TV1
from tests.traps.ledger import Fate, Ledger
from tests.traps.transaction_walk import PLACES, TV1, TV2, Place, Step, check_that_calls_raise, walk

E = ErrorCode


#: Codes with which a coordinator says that it did not commit, and nothing else.
CLEAR = {
    E.INVALID_PRODUCER_EPOCH,
    E.PRODUCER_FENCED,
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    E.UNKNOWN_PRODUCER_ID,
    E.INVALID_TXN_STATE,
    E.INVALID_PRODUCER_ID_MAPPING,
    E.TRANSACTION_ABORTABLE,
}
AGAIN = {Action.RETRY, Action.RETRY_SOON, Action.FIND_COORDINATOR}
ABORTABLE = {Action.ABORTABLE, Action.BUMP_EPOCH}
CLASSES = {
    Action.COMMIT_FAILED: CommitFailed,
    Action.UNINITIALIZED: TransactionFatal,
    Action.EXPIRED: ProducerIdExpired,
    Action.FENCED: ProducerFenced,
}


class Expected(NamedTuple):
    """The expected error, if any, and whether the same producer can continue."""

    error: type[KafkaError] | None
    goes_on: bool = True


ALL_IS_WELL = Expected(None)


def expected(place: Place, code: ErrorCode, action: Action, version: str) -> Expected:
    """The producer's required reaction to a refusal."""
    if action in AGAIN:
        return ALL_IS_WELL
    if (
        place.step is Step.END and place.rpc is Rpc.FIND_COORDINATOR
    ):  # the end was requested, and no coordinator answers
        return Expected(CommitUnknown if place.commits else TransactionFatal, goes_on=False)
    if place.rpc is Rpc.ABORT and action is Action.BUMP_EPOCH:
        # There is nothing left to abort; where there is, with version 1, the next epoch is refused by the one that it gets.
        return Expected(None, goes_on=version == TV2)
    if place.rpc is Rpc.COMMIT and code not in CLEAR:
        return Expected(CommitUnknown, goes_on=False)
    if action in ABORTABLE or (place.rpc is Rpc.COMMIT and action is Action.INVALID_STATE and version == TV2):
        return Expected(TransactionAbortable)  # the latter: the coordinator's own abort came first (KAFKA-20785)
    goes_on = action is Action.COMMIT_FAILED or (action is Action.UNINITIALIZED and place.step is Step.INIT)
    return Expected(CLASSES.get(action, TransactionFatal), goes_on)


class Cell(NamedTuple):
    """One cell of the table, in one version of the protocol."""

    version: str
    place: Place
    code: ErrorCode
    expected: Expected

    @property
    def is_tried_again(self) -> bool:
        """Whether the error is retried without being reported."""
        return CELLS[self.code][COLUMNS.index(self.place.rpc)] in AGAIN


def is_named(rpc: Rpc, code: ErrorCode) -> bool:
    """Whether the table says more of this cell than that it is like any other error."""
    column = COLUMNS.index(rpc)
    anything_else = CELLS[E.UNKNOWN_SERVER_ERROR][column]
    is_its_example = code in (E.UNKNOWN_SERVER_ERROR, E.COORDINATOR_LOAD_IN_PROGRESS)
    return is_its_example or CELLS[code][column] not in (anything_else, Action.RETRY)


def cells(which: Callable[[Cell], bool], *, quick: bool = False) -> list[Any]:
    """Cells by the names of their columns and rows; with ``quick`` some are run always.

    Of the others that the table treats alike in one place, one is run with the slow tests and the rest with the soak: which
    codes are alike is decided below the seam, where tests/core goes through all of them.
    """
    found: list[Any] = []
    tried: set[object] = set()
    for name, place in PLACES.items():
        for code, row in sorted(CELLS.items(), key=lambda each: not (quick and is_named(place.rpc, each[0]))):
            action = row[COLUMNS.index(place.rpc)]
            for version in (TV1, TV2)[: 1 if place.rpc in ONLY_TV1 else 2]:
                cell = Cell(version, place, code, expected(place, code, action, version))
                if not which(cell):
                    continue
                kind = (name, version, action, cell.expected)
                marks: Any = () if quick and is_named(place.rpc, code) else one_of_a_kind(kind, tried)
                tried.add(kind)
                found.append(pytest.param(cell, id=f"{name}-{code.name}-{version}", marks=marks))
    return found


def one_of_a_kind(kind: object, tried: Container[object]) -> pytest.MarkDecorator:
    """The mark of a test that is not run always: of one kind the first is slow, the others are for the soak."""
    return pytest.mark.soak if kind in tried else pytest.mark.slow


async def go_on(ledger: Ledger, producer: Producer, error: KafkaError | None, wanted: Expected, step: Step) -> None:
    """Do what the class of the error says, and then the next transaction; then the one of a successor."""
    if error is not None and not wanted.goes_on:
        await check_that_calls_raise(producer, error)
        await producer.close()
    elif error is not None and step is not Step.INIT:
        await check_that_calls_raise(producer, error, but=["abort"])
        await producer.abort_transaction()
    if wanted.goes_on:
        await ledger.commit_one(producer)
    async with opened(ledger.broker, transactional_id="shop") as successor:
        await ledger.commit_one(successor)


async def run_cell(cell: Cell, refuse: Callable[[FakeBroker], object]) -> None:
    """One cell from the beginning to the end."""
    place = cell.place
    with FakeBroker(topics={"orders": 3, "in": 1}, versions=cell.version) as broker:
        ledger = Ledger(broker)

        def arm() -> None:
            if place.first is not None:
                broker.fail(*place.first)
            refuse(broker)

        async with opened(broker, transactional_id="shop") as producer:
            if place.step is not Step.INIT:
                await producer.init_transactions()
            error = await walk(ledger, producer, place, arm)
            assert type(error) is (cell.expected.error or type(None)), repr(error)
            assert not broker.cluster.faults.pending, "no request has met the fault"
            await go_on(ledger, producer, error, cell.expected, place.step)
        ledger.check()
        assert ledger.count(Fate.COMMITTED) >= 1


@pytest.mark.parametrize("cell", cells(lambda cell: True, quick=True))
async def test_each_error_is_reported_as_what_it_is_and_nothing_is_torn(cell: Cell) -> None:
    await run_cell(cell, lambda broker: broker.fail(cell.place.api, cell.code))


@pytest.mark.parametrize("cell", cells(lambda cell: cell.is_tried_again))
async def test_an_error_that_is_tried_again_may_come_twice(cell: Cell) -> None:
    await run_cell(cell, lambda broker: broker.fail(cell.place.api, cell.code, times=2))


@pytest.mark.parametrize("cell", cells(lambda cell: cell.is_tried_again or cell.code is E.UNKNOWN_SERVER_ERROR))
async def test_an_error_may_be_reported_of_what_was_done_all_the_same(cell: Cell) -> None:
    await run_cell(cell, lambda broker: broker.fail_after_apply(cell.place.api, cell.code))


# -- a commit whose first attempt has an unknown outcome ---------------------------------------------------------------


def in_doubt(cell: Cell) -> Cell:
    """The outcome of a commit that is refused when an earlier attempt at it may have succeeded."""
    return cell if cell.is_tried_again else cell._replace(expected=Expected(CommitUnknown, goes_on=False))


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("cell", cells(lambda cell: cell.place.rpc is Rpc.COMMIT, quick=True))
async def test_a_commit_is_unknown_where_an_attempt_without_an_answer_is_followed_by_a_refusal(
    cell: Cell, when: Literal["before", "after"]
) -> None:
    def refuse(broker: FakeBroker) -> None:
        lost: list[object] = []

        def lose_first_refuse_second(context: RequestContext) -> EndTxnResponse | None:
            lost.append(context)
            if len(lost) == 1:
                if when == "after":
                    context.apply()
                raise Hangup
            return EndTxnResponse(error_code=cell.code, producer_id=-1, producer_epoch=-1)

        broker.control("EndTxn", lose_first_refuse_second, times=2)

    await run_cell(in_doubt(cell), refuse)


# -- the next epoch, which has no effect on the transaction before it --------------------------------------------------

OF_INIT = COLUMNS.index(Rpc.INIT_PRODUCER_ID)


@pytest.mark.parametrize(
    "code",
    [pytest.param(code, marks=() if is_named(Rpc.INIT_PRODUCER_ID, code) else pytest.mark.slow) for code in CELLS],
)
@pytest.mark.parametrize("version", [TV1, TV2])
async def test_an_error_of_the_request_for_the_next_epoch_leaves_the_earlier_transaction_undecided(
    version: str, code: ErrorCode
) -> None:
    """With version 1 it is asked for after an abortable error, with version 2 after an upgrade."""
    action = CELLS[code][OF_INIT]
    with FakeBroker(topics={"orders": 3, "in": 1}, versions=version) as broker:
        broker.transaction_version = 0
        ledger = Ledger(broker)
        async with opened(broker, transactional_id="shop") as producer:
            await ledger.commit_one(producer)
            if version == TV1:
                broker.fail("AddPartitionsToTxn", "TOPIC_AUTHORIZATION_FAILED")
                broker.fail("InitProducerId", code)
                with pytest.raises(TransactionAbortable):
                    await ledger.commit_one(producer)
            else:
                broker.transaction_version = 2
                broker.disconnect()  # a producer hears of features with each new connection
                broker.fail("InitProducerId", code)
                await ledger.commit_one(producer)
            if action in AGAIN or action is Action.UNINITIALIZED:
                await ledger.commit_one(producer)
            else:
                with pytest.raises(CLASSES.get(action, TransactionFatal)) as raised:
                    await ledger.commit_one(producer)
                await check_that_calls_raise(producer, raised.value)
            assert not broker.cluster.faults.pending, "no request has met the fault"
        async with opened(broker, transactional_id="shop") as successor:
            await ledger.commit_one(successor)
        ledger.check()


# -- the records themselves -------------------------------------------------------------------------------------------

#: What a batch that is refused for good makes of its transaction; any other code that is not retriable: abort it.
OF_BATCHES: Mapping[ErrorCode, type[KafkaError]] = {
    E.CLUSTER_AUTHORIZATION_FAILED: TransactionFatal,
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: TransactionFatal,
    E.UNSUPPORTED_VERSION: TransactionFatal,
    E.INVALID_PRODUCER_ID_MAPPING: ProducerIdExpired,
    E.PRODUCER_FENCED: ProducerFenced,
}
#: Brokers say so of what is written already, and of nothing else.
SUCCESS = (E.NONE, E.DUPLICATE_SEQUENCE_NUMBER)
RECORDS = Place(Rpc.COMMIT, "Produce", Step.RECORDS)


def batch_cells(which: Callable[[ErrorCode], bool], examples: Collection[ErrorCode] = ()) -> list[Any]:
    """Every code that there is; the examples are run always, of the others one of each kind."""
    found: list[Any] = []
    tried: set[object] = set()
    for code in sorted(ErrorCode, key=lambda each: each not in examples):
        for version in (TV1, TV2):
            if code in SUCCESS or not which(code):
                continue
            cell = Cell(version, RECORDS, code, expected_of_batch(code))
            kind = (version, produce_verdict(code), may_be_written(code), cell.expected)
            marks: Any = () if code in examples else one_of_a_kind(kind, tried)
            tried.add(kind)
            found.append(pytest.param(cell, id=f"Produce-{code.name}-{version}", marks=marks))
    return found


def expected_of_batch(code: ErrorCode) -> Expected:
    """The producer's required reaction to a refused batch."""
    if code.retriable:
        return ALL_IS_WELL
    error = OF_BATCHES.get(code, TransactionAbortable)
    return Expected(error, goes_on=error is TransactionAbortable)


EXAMPLES = (
    *OF_BATCHES,
    E.NOT_LEADER_OR_FOLLOWER,
    E.REQUEST_TIMED_OUT,
    E.OUT_OF_ORDER_SEQUENCE_NUMBER,
    E.UNKNOWN_PRODUCER_ID,
    E.INVALID_PRODUCER_EPOCH,
    E.INVALID_TXN_STATE,
    E.MESSAGE_TOO_LARGE,
    E.TRANSACTION_ABORTABLE,
)


@pytest.mark.parametrize("cell", batch_cells(lambda code: True, EXAMPLES))
async def test_each_error_of_a_batch_is_reported_by_its_transaction(cell: Cell) -> None:
    await run_cell(cell, lambda broker: broker.fail("Produce", cell.code))


@pytest.mark.parametrize("cell", batch_cells(lambda code: code.retriable or code is E.UNKNOWN_SERVER_ERROR))
async def test_each_error_of_a_batch_may_be_reported_of_one_that_was_written(cell: Cell) -> None:
    await run_cell(cell, lambda broker: broker.fail_after_apply("Produce", cell.code))
