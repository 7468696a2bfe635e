"""The fake broker and Apache Kafka coordinate the same members of a consumer group, and answer the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TypeAlias

import pytest

from aioproducer.testing import FakeBroker
from aioproducer.testing.kafka import KafkaCluster
from tests.testing.own_kafka import own_kafka
from tests.testing.raw_groups import NEW, OLD, OLDEST, Note, RawGroup, Versions

Scenario: TypeAlias = Callable[[RawGroup], None]


def alone(steps: RawGroup) -> None:
    member = steps.new("a")
    steps.join(member)
    steps.heartbeat(member)
    steps.commit(member, 1)
    steps.sync(member, assigned={member: b"everything"})
    steps.heartbeat(member)
    steps.sync(member)
    steps.commit(member, 7, metadata="seven")
    steps.offset()
    steps.join(member)  # the leader may rebalance whenever it wants
    steps.sync(member, assigned={})
    steps.leave(member)
    steps.offset()
    steps.heartbeat(member)
    steps.leave(member)
    steps.join(member)


def a_second_member(steps: RawGroup) -> None:
    first = steps.new("a")
    steps.join(first)
    steps.sync(first, assigned={first: b"01"})
    second = steps.new("b")
    steps.heartbeat(first)
    steps.send_join(second)
    steps.until_rebalancing(first)
    steps.heartbeat(first)
    steps.commit(first, 3)
    steps.sync(first, assigned={first: b"01"})
    steps.join(first)
    steps.read(second)
    steps.send_sync(second)
    steps.commit(second, 4)
    steps.commit(first, 4)
    steps.sync(first, assigned={first: b"0", second: b"1"})
    steps.read(second)
    steps.commit(second, 5)
    steps.heartbeat(second)
    steps.join(second)  # nothing has changed: the generation goes on
    steps.sync(second)
    steps.leave(first)
    steps.until_rebalancing(second)
    steps.join(second)
    steps.sync(second, assigned={second: b"01"})
    steps.offset()


def new_metadata(steps: RawGroup) -> None:
    first, second = steps.new("a"), steps.new("b")
    steps.send_join(first)
    if steps.versions.join >= 4:
        steps.read(first)  # a generation of one: ids that were given out do not keep the first one waiting
        steps.send_join(second)
        steps.until_rebalancing(first)
        steps.send_join(first)
        steps.read(second)
        steps.read(first)
        steps.join(second)  # the answer was lost
        steps.send_join(second, topics=["other"])
        steps.until_rebalancing(first)
        steps.join(first)
        steps.read(second)
        steps.sync(second, first, assigned={first: b"0", second: b"1"})
    else:
        steps.read(first)


def errors(steps: RawGroup) -> None:
    stranger = steps.member("x", member_id="unknown")
    steps.join(stranger)
    steps.sync(stranger)
    steps.heartbeat(stranger)
    steps.leave(stranger)
    steps.commit(stranger, 1, generation=3)
    member = steps.new("a", protocols=["range", "sticky"])
    steps.join(member, protocols=["range", "sticky"])
    steps.heartbeat(member, generation=7)
    steps.heartbeat(stranger, generation=1)
    steps.send_sync(member, generation=7)
    steps.read(member)
    if steps.versions.sync >= 5:
        steps.send_sync(member, protocol="sticky")
        steps.read(member)
    steps.sync(member, assigned={member: b"0"})
    steps.commit(member, 1, generation=7)
    steps.commit(stranger, 1, generation=1)
    steps.commit(steps.member("admin"), 1)
    steps.commit(member, 1, partition=9)
    steps.commit(member, 1, topic="no-such-topic")
    steps.commit(member, 1, metadata="x" * 5000)
    steps.commit(member, 1, metadata=None)
    steps.offset()
    steps.join(stranger)
    other = steps.member("b")
    steps.join(other, protocols=["round-robin"])
    steps.join(other, protocol_type="connect")
    steps.join(other, session_timeout_ms=100)
    steps.join(other, session_timeout_ms=100_000_000)
    steps.join(member, protocols=["round-robin"])


def nothing_to_join_with(steps: RawGroup) -> None:
    member = steps.member("a")
    steps.join(member, protocols=[])
    steps.join(member, protocol_type="")
    steps.group = ""
    steps.join(member)
    steps.sync(member)
    steps.heartbeat(member)
    steps.leave(member)


def simple(steps: RawGroup) -> None:
    """Offsets of a group that has no members."""
    admin = steps.member("admin")
    steps.commit(admin, 5)
    steps.offset()
    member = steps.new("a")
    steps.commit(admin, 6)
    steps.join(member)
    steps.commit(admin, 7)
    steps.sync(member)
    steps.commit(admin, 8)
    steps.leave(member)
    steps.commit(admin, 9)
    steps.offset()


def votes(steps: RawGroup) -> None:
    """The protocol that most members prefer, of what all of them know."""
    first = steps.new("a", protocols=["range", "sticky"])
    steps.join(first, protocols=["range", "sticky"])
    second = steps.new("b", protocols=["sticky", "range", "round-robin"])
    steps.send_join(second, protocols=["sticky", "range", "round-robin"])
    steps.until_rebalancing(first)
    steps.join(first, protocols=["sticky", "range"])
    steps.read(second)
    steps.sync(first, second, assigned={first: b"0", second: b"1"})


def a_leader_that_leaves_while_it_assigns(steps: RawGroup) -> None:
    first = steps.new("a")
    steps.join(first)
    second = steps.new("b")
    steps.send_join(second)
    steps.until_rebalancing(first)
    steps.join(first)
    steps.read(second)
    steps.send_sync(second)
    steps.leave(first)
    steps.read(second)
    steps.join(second)
    steps.sync(second, assigned={second: b"01"})


def a_silent_member(steps: RawGroup) -> None:
    """It sends no heartbeats, so the group goes on without it when its session is over."""
    first = steps.new("a")
    steps.join(first, session_timeout_ms=6000)
    second = steps.new("b")
    steps.send_join(second)
    steps.read(second)
    steps.heartbeat(first)
    steps.commit(first, 1)
    steps.sync(second, assigned={second: b"01"})
    steps.join(first)


def static_members(steps: RawGroup) -> None:
    first, second = steps.new("a", instance_id="i-a"), steps.new("b", instance_id="i-b")
    steps.join(first)
    steps.send_join(second)
    steps.until_rebalancing(first)
    steps.join(first)
    steps.read(second)
    steps.sync(second, first, assigned={first: b"0", second: b"1"})
    again = steps.new("B", instance_id="i-b")
    steps.join(again)  # takes over what its predecessor had
    steps.sync(again)
    for step in (steps.heartbeat, steps.join, steps.sync):
        step(second)
    steps.commit(second, 1)
    steps.leave(second)
    leader = steps.new("A", instance_id="i-a")
    steps.join(leader)
    steps.sync(leader)
    steps.heartbeat(again)
    stranger = steps.member("x", instance_id="i-x", member_id=again.member_id)
    steps.heartbeat(stranger)
    steps.join(stranger)
    steps.leave(again, by_instance=True)
    steps.leave(again, stranger)


def several_leave(steps: RawGroup) -> None:
    first, second = steps.new("a"), steps.new("b")
    steps.join(first)
    steps.leave(first, second, steps.member("x", member_id="unknown"))
    steps.heartbeat(first)


#: Each takes no longer than its requests.
SCENARIOS = (
    alone,
    a_second_member,
    new_metadata,
    errors,
    nothing_to_join_with,
    simple,
    votes,
    a_leader_that_leaves_while_it_assigns,
)
SINCE_STATIC_MEMBERS = (static_members, several_leave)


def play(address: tuple[str, int], scenario: Scenario, versions: Versions, topic: str) -> list[Note]:
    with closing(RawGroup(address, versions, topic, f"{topic}-group")) as steps:
        steps.find_coordinator()
        scenario(steps)
        return steps.notes


def differences(kafka: KafkaCluster, versions: Versions) -> Iterator[tuple[str, int, Note | None, Note | None]]:
    """Every step that was answered differently: the scenario, the step's number, what Kafka said, what the fake said."""
    host, _, port = kafka.bootstrap_servers.partition(":")
    scenarios = (*SCENARIOS, a_silent_member, *(SINCE_STATIC_MEMBERS if versions is not OLDEST else ()))
    with FakeBroker(versions=kafka.version, auto_create_topics=False) as broker:
        for scenario in scenarios:
            topic = f"{scenario.__name__}-{versions.name}"
            kafka.create_topic(topic, 2)
            broker.create_topic(topic, 2)
            real = play((host, int(port)), scenario, versions, topic)
            fake = play(broker.addresses[1], scenario, versions, topic)
            for number in range(max(len(real), len(fake))):
                expected, got = (notes[number] if number < len(notes) else None for notes in (real, fake))
                if expected != got:
                    yield scenario.__name__, number, expected, got


@pytest.fixture(scope="module")
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with own_kafka(request.param) as kafka:
        yield kafka


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("versions", [OLDEST, OLD, NEW], ids=lambda versions: versions.name)
@pytest.mark.parametrize("kafka", ["4.3.1", "3.9.2"], indirect=True)
def test_both_coordinate_a_group_alike(kafka: KafkaCluster, versions: Versions) -> None:
    assert list(differences(kafka, versions)) == []


@pytest.mark.parametrize("scenario", SCENARIOS + SINCE_STATIC_MEMBERS, ids=lambda scenario: scenario.__name__)
@pytest.mark.parametrize("versions", [OLD, NEW], ids=lambda versions: versions.name)
def test_the_fake_broker_ends_every_scenario(scenario: Scenario, versions: Versions) -> None:
    with FakeBroker(topics={"orders": 2}, auto_create_topics=False) as broker:
        assert play(broker.addresses[1], scenario, versions, "orders")
