"""Trap 12, the losses: each request of a transaction and each answer is lost once, or its coordinator moves away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import pytest

from aioproducer import Producer
from aioproducer.core.transactions.requests import Rpc
from aioproducer.protocol.messages import FindCoordinatorResponse
from aioproducer.testing import FakeBroker, Hangup, RequestContext
from tests.conftest import opened, until
from tests.core.transaction_cells import ONLY_TV1
from tests.traps.ledger import GROUP, Fate, Ledger
from tests.traps.transaction_walk import PLACES, TV1, TV2, Place, Step, walk

#: The places in which something can be lost: those of the error table, and the records themselves.
LOSABLE = {
    **PLACES,
    "Produce, commit": Place(Rpc.COMMIT, "Produce", Step.RECORDS),
    "Produce, abort": Place(Rpc.ABORT, "Produce", Step.RECORDS, False),
}
#: Who has to be found again is found by FindCoordinator, of which there is no coordinator that could move.
MOVABLE = {name: place for name, place in PLACES.items() if place.rpc is not Rpc.FIND_COORDINATOR}
OF_GROUP = {Rpc.TXN_OFFSET_COMMIT}


class Case(NamedTuple):
    """A place in one version of the protocol."""

    version: str
    place: Place


def cases(places: dict[str, Place]) -> list[Any]:
    """All of them, by their names."""
    return [
        pytest.param(Case(version, place), id=f"{name}-{version}")
        for name, place in places.items()
        for version in (TV1, TV2)[: 1 if place.rpc in ONLY_TV1 else 2]
    ]


@pytest.fixture(params=[1, 3])
def nodes(request: pytest.FixtureRequest) -> int:
    """One node that does everything, or three: one leads, one is in charge of the transactions and one of the group."""
    count: int = request.param
    return count


def cluster(version: str, nodes: int) -> FakeBroker:
    broker = FakeBroker(nodes, topics={"orders": 3, "in": 1}, versions=version)
    if nodes == 3:
        broker.move_transaction_coordinator("shop", 2)
        broker.move_group_coordinator(GROUP, 3)
    return broker


async def survive(broker: FakeBroker, place: Place, spoil: Callable[[], object], **options: Any) -> None:
    """A transaction in which something is lost on the way without an effect, and the one after it."""
    ledger = Ledger(broker)

    def arm() -> None:
        if place.first is not None:
            broker.fail(*place.first)
        spoil()

    async with opened(broker, transactional_id="shop", **options) as producer:
        if place.rpc is Rpc.FIND_COORDINATOR and place.step is Step.GROUP:  # that is asked only once
            await producer.init_transactions()
        elif place.step is not Step.INIT:
            await ledger.commit_one(producer)
        assert await walk(ledger, producer, place, arm) is None
        assert not broker.cluster.faults.pending, "no request has met the fault"
        await ledger.commit_one(producer)
    ledger.check()
    assert ledger.count(Fate.COMMITTED) == len(ledger.entries) - (not place.commits)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("case", cases(LOSABLE))
async def test_a_request_lost_with_its_connection_is_repeated(
    case: Case, nodes: int, when: Literal["before", "after"]
) -> None:
    with cluster(case.version, nodes) as broker:
        await survive(broker, case.place, lambda: broker.drop_connection(case.place.api, when=when))


@pytest.mark.slow
@pytest.mark.parametrize("first", ["before", "after"])
@pytest.mark.parametrize("second", ["before", "after"])
@pytest.mark.parametrize("case", cases(LOSABLE))
async def test_and_so_is_what_is_lost_twice(
    case: Case, first: Literal["before", "after"], second: Literal["before", "after"]
) -> None:
    with cluster(case.version, 3) as broker:

        def spoil() -> None:
            broker.drop_connection(case.place.api, when=first)
            broker.drop_connection(case.place.api, when=second)

        await survive(broker, case.place, spoil)


@pytest.mark.slow
@pytest.mark.parametrize("applied", [False, True], ids=["request", "answer"])
@pytest.mark.parametrize("case", cases(LOSABLE))
async def test_a_request_lost_in_silence_is_repeated_when_its_time_is_over(case: Case, applied: bool) -> None:
    with cluster(case.version, 3) as broker:
        await survive(
            broker,
            case.place,
            lambda: broker.swallow(case.place.api, applied=applied),
            request_timeout_ms=300,
            delivery_timeout_ms=100_000,
        )


# -- coordinators that move ----------------------------------------------------------------------------------------------


def move(broker: FakeBroker, place: Place, to: int) -> None:
    """Put another node in charge of what the request is about."""
    if place.rpc in OF_GROUP:
        broker.move_group_coordinator(GROUP, to)
    else:
        broker.move_transaction_coordinator("shop", to)


@pytest.mark.parametrize("case", cases(MOVABLE))
async def test_a_coordinator_that_moved_is_found_again(case: Case) -> None:
    with cluster(case.version, 3) as broker:
        await survive(broker, case.place, lambda: move(broker, case.place, 1))


@pytest.mark.parametrize("case", cases(MOVABLE))
async def test_a_coordinator_may_be_missing_for_a_while(case: Case) -> None:
    with cluster(case.version, 3) as broker:
        asked: list[object] = []

        def appear(context: RequestContext) -> FindCoordinatorResponse | None:
            asked.append(context)
            if len(asked) == 3:
                move(broker, case.place, 1)
            return None

        def spoil() -> None:
            move(broker, case.place, -1)
            broker.control("FindCoordinator", appear, times=3)

        await survive(broker, case.place, spoil)


def does_and_moves(broker: FakeBroker, place: Place, how: str) -> Callable[[RequestContext], Any]:
    """A coordinator that does what it is asked for, and then has to tell that it is none any more - or cannot tell."""

    def control(context: RequestContext) -> Any:
        answer = context.apply()
        move(broker, place, 1)
        if how == "without an answer":
            raise Hangup
        return answer

    return control


@pytest.mark.parametrize("how", ["without an answer", "with its answer"])
@pytest.mark.parametrize("case", cases(MOVABLE))
async def test_a_coordinator_may_move_when_it_has_done_what_was_asked(case: Case, how: str) -> None:
    with cluster(case.version, 3) as broker:
        await survive(
            broker, case.place, lambda: broker.control(case.place.api, does_and_moves(broker, case.place, how))
        )


@pytest.mark.parametrize("case", cases(MOVABLE))
async def test_a_coordinator_may_report_that_it_moved_after_it_has_applied_the_request(case: Case) -> None:
    with cluster(case.version, 3) as broker:

        def spoil() -> None:
            broker.fail_after_apply(case.place.api, "NOT_COORDINATOR")
            broker.control("FindCoordinator", lambda _: move(broker, case.place, 1))

        await survive(broker, case.place, spoil)


@pytest.mark.slow  # a broker that cannot be reached is given a second
@pytest.mark.parametrize("case", cases(MOVABLE))
async def test_a_coordinator_that_is_gone_is_replaced(case: Case) -> None:
    with cluster(case.version, 3) as broker:

        def spoil() -> None:
            move(broker, case.place, 1)
            broker.stop_node(3 if case.place.rpc in OF_GROUP else 2, elect=True)

        await survive(broker, case.place, spoil)


# -- storms ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", ["NOT_COORDINATOR", "CONCURRENT_TRANSACTIONS", "COORDINATOR_LOAD_IN_PROGRESS"])
@pytest.mark.parametrize("case", cases(MOVABLE))
@pytest.mark.slow
async def test_a_storm_of_errors_passes(case: Case, error: str) -> None:
    with cluster(case.version, 3) as broker:
        await survive(
            broker,
            case.place,
            lambda: broker.fail(case.place.api, error, times=30),
            retry_backoff_ms=1,
            retry_backoff_max_ms=2,
        )


@pytest.fixture(params=[TV1, TV2])
def broker(request: pytest.FixtureRequest) -> Iterator[FakeBroker]:
    """A broker with transaction version 1, and one with 2."""
    with FakeBroker(topics={"orders": 3, "in": 1}, versions=request.param) as broker:
        yield broker


async def test_a_transaction_that_follows_quickly_waits_for_the_markers_of_the_one_before(broker: FakeBroker) -> None:
    """CONCURRENT_TRANSACTIONS as it really happens: asked again and again until they are written."""
    ledger = Ledger(broker)

    async def follow(producer: Producer) -> None:
        asked = broker.count("AddPartitionsToTxn") + broker.count("Produce")
        with broker.hold_markers():
            await ledger.commit_one(producer)
            following = asyncio.ensure_future(ledger.commit_one(producer))
            await until(lambda: broker.count("AddPartitionsToTxn") + broker.count("Produce") > asked + 6)
            assert not following.done()
        await following

    async with opened(broker, transactional_id="shop") as producer:
        await producer.init_transactions()
        for _ in range(2):
            await follow(producer)
    ledger.check()
    assert ledger.count(Fate.COMMITTED) == 4
