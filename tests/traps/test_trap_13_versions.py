"""Trap 13: brokers of other releases, each with its own idea of what it speaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aioproducer.errors import DeliveryError, UnsupportedVersion
from aioproducer.protocol import ApiKey, ErrorCode
from aioproducer.testing import FakeBroker, RequestContext
from aioproducer.testing.broker.faults import Rule, _Kind
from aioproducer.testing.broker.versions import RELEASES
from tests.traps.judge import audited
from tests.traps.schedules import ANY, World, a_few_and_many, run_schedule

OPTIONS: dict[str, Any] = {"linger_ms": 0, "request_timeout_ms": 20_000}


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("release", RELEASES)
async def test_versions_of_every_release_are_spoken(release: str, codec: str) -> None:
    with FakeBroker(2, topics={"orders": 3}, versions=release) as broker:
        async with audited(broker, **OPTIONS, compression_type=codec) as audit:
            for number in range(9):
                await audit.send(partition=number % 3)
            broker.drop_connection("Produce", when="after")
            broker.move_leader("orders", 0, 2)
            for number in range(9):
                await audit.enqueue(partition=number % 3)
            await audit.all_outcomes()

        highest = {api: max(r.version for r in broker.requests_of(api)) for api in ("Produce", "Metadata")}
        assert audit.acknowledged == 18
        assert highest["Produce"] == min(13, RELEASES[release].ranges[ApiKey.PRODUCE][1])
        assert highest["Metadata"] == min(13, RELEASES[release].ranges[ApiKey.METADATA][1])


async def test_versions_may_differ_from_node_to_node() -> None:
    with FakeBroker(3, topics={"orders": 3}) as broker:
        broker.set_versions("2.1", node=1)
        broker.set_versions("3.3", node=2)
        async with audited(broker, **OPTIONS) as audit:
            for _ in range(3):
                for partition in range(3):
                    await audit.send(partition=partition)
            broker.move_leader("orders", 0, 3)  # what was begun at the oldest goes on at the newest
            broker.move_leader("orders", 2, 1)
            for _ in range(3):
                for partition in range(3):
                    await audit.send(partition=partition)
            epoch = audit.metric("producer-epoch")

        assert epoch == 0
        assert audit.acknowledged == 18
        assert {request.version for request in broker.requests_of("Produce", node=1)} == {7}
        assert {request.version for request in broker.requests_of("Produce", node=2)} == {9}


@pytest.mark.parametrize("known", [(0, 9), (0, 12)])
async def test_versions_with_topic_ids_are_not_used_for_topics_without_one(known: tuple[int, int]) -> None:
    """A Produce 13 for the zero id would go nowhere; some services do not tell ids at all."""
    with FakeBroker(topics={"orders": 1}, max_versions={"Metadata": known}) as broker:
        if known[1] == 12:
            broker.control("Metadata", _without_ids, times=None)
        async with audited(broker, **OPTIONS) as audit:
            await audit.send()

        assert {request.version for request in broker.requests_of("Produce")} == {12}


def _without_ids(context: RequestContext) -> Any:
    answer: Any = context.apply()
    for topic in answer.topics:
        topic.topic_id = type(topic.topic_id)(int=0)
    return answer


@pytest.mark.parametrize("limit", [0, 2, 3])
async def test_versions_are_asked_for_again_after_error_35(limit: int) -> None:
    with FakeBroker(topics={"orders": 1}, max_versions={"ApiVersions": limit}) as broker:
        async with audited(broker, **OPTIONS) as audit:
            await audit.send()

        asked = [request.version for request in broker.requests_of("ApiVersions")]
        assert asked[0] > limit
        assert asked[1] == limit
        assert len({request.connection for request in broker.requests_of("ApiVersions")}) * 2 == len(asked)


async def test_versions_are_requested_in_version_0_if_the_refusal_names_none() -> None:
    with FakeBroker(topics={"orders": 1}, versions="2.3") as broker:
        async with audited(broker, **OPTIONS) as audit:
            await audit.send()

        assert [request.version for request in broker.requests_of("ApiVersions")][1] == 0


def _without(api: ApiKey) -> Callable[[RequestContext], Any]:
    def leave_out(context: RequestContext) -> Any:
        answer: Any = context.apply()
        answer.api_keys = [each for each in answer.api_keys if each.api_key != api]
        return answer

    return leave_out


async def test_versions_without_init_producer_id_are_reported_at_once_and_do_without_idempotence(
    broker: FakeBroker,
) -> None:
    broker.control("ApiVersions", _without(ApiKey.INIT_PRODUCER_ID), times=None)
    async with audited(broker, **OPTIONS) as audit:
        refused = await audit.send()
    async with audited(broker, **OPTIONS, enable_idempotence=False) as audit:
        await audit.send()

    assert isinstance(refused.outcome, DeliveryError)
    assert isinstance(refused.outcome.__cause__, UnsupportedVersion)
    assert audit.acknowledged == 1


async def test_versions_that_are_too_old_for_zstd_are_reported_at_once() -> None:
    with FakeBroker(topics={"orders": 1}, max_versions={"Produce": 6}) as broker:
        async with audited(broker, **OPTIONS, compression_type="zstd") as audit:
            refused = await audit.send()
        async with audited(broker, **OPTIONS, compression_type="lz4") as audit:
            await audit.send()

    assert isinstance(refused.outcome, DeliveryError)
    assert "zstd" in str(refused.outcome)


async def test_versions_without_an_overlap_are_reported_at_once() -> None:
    with FakeBroker(topics={"orders": 1}, max_versions={"Produce": (99, 101)}) as broker:
        async with audited(broker, **OPTIONS) as audit:
            refused = await audit.send()

    assert isinstance(refused.outcome, DeliveryError)
    assert "99 to 101" in str(refused.outcome)


@pytest.mark.parametrize("steps", [("3.3", "4.4", "2.1"), ("4.4", "2.4", "4.0")])
async def test_versions_may_change_while_records_flow(steps: tuple[str, ...]) -> None:
    """A rolling upgrade, and a rollback: each node comes back with other versions."""
    with FakeBroker(2, topics={"orders": 2}, versions=steps[0]) as broker:
        async with audited(broker, **OPTIONS) as audit:
            for release in steps:
                for node in (1, 2):
                    for _ in range(5):
                        await audit.enqueue(partition=0)
                        await audit.enqueue(partition=1)
                    broker.stop_node(node, elect=True)
                    broker.set_versions(release, node=node)
                    broker.start_node(node)
            await audit.all_outcomes()

        assert audit.acknowledged == 60


@pytest.mark.parametrize("api", [ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID, ApiKey.PRODUCE])
async def test_versions_of_the_future_may_add_tagged_fields(broker: FakeBroker, api: ApiKey) -> None:
    def add_field(frame: bytes) -> bytes:
        assert frame[-1] == 0, "the number of tagged fields"
        body = frame[4:-1] + b"\x01\x63\x03new"
        return len(body).to_bytes(4, "big") + body

    def apply(plan: Any) -> None:
        plan.corrupt = add_field

    broker.add_rule(Rule(_Kind.CORRUPT, apply, api, None))
    async with audited(broker, **OPTIONS) as audit:
        await audit.send()

    assert audit.acknowledged == 1
    assert broker.count("Produce") == 1


async def test_versions_error_in_a_produce_answer_does_not_end_the_producer(broker: FakeBroker) -> None:
    async with audited(broker, **OPTIONS) as audit:
        broker.fail("Produce", ErrorCode.UNSUPPORTED_VERSION)
        await audit.send()
        await audit.send()

    assert (audit.not_written, audit.acknowledged) == (1, 1)


def change_release(world: World) -> None:
    """A node comes back as another release."""
    node = world.node
    world.broker.stop_node(node)
    world.broker.set_versions(world.random.choice(list(RELEASES)), node=node)
    world.broker.start_node(node)


@a_few_and_many(few=3, begin=13000)
async def test_versions_that_change_in_a_random_schedule_lose_nothing(seed: int) -> None:
    await run_schedule(seed, [*ANY, *[change_release] * 5])
