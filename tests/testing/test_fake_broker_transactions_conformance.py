"""The fake broker and Apache Kafka, asked the same steps of transactions, answer the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

import pytest

from aioproducer.testing import FakeBroker, TwoPhaseCommit
from aioproducer.testing.kafka import KafkaCluster
from tests.testing.own_kafka import own_kafka
from tests.testing.raw_transactions import OLD, OLDEST, TV1, TV2, Note, RawTransactions, Versions, Who

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

Scenario: TypeAlias = Callable[[RawTransactions], None]


def begins(steps: RawTransactions, *partitions: int, timeout_ms: int = 60_000) -> Who:
    who = steps.init(timeout_ms=timeout_ms)
    steps.begin(who, *partitions)
    return who


def sends_offset(steps: RawTransactions, who: Who, offset: int) -> None:
    if steps.versions.adds_partitions:
        steps.add_offsets(who)
    steps.commit_offset(who, offset)


# -- the table of what a transaction of several processes meets --------------------------------------------------------


def shared_commit(steps: RawTransactions) -> None:
    who = begins(steps, 0, 1)
    steps.write(who, 0, "a", "b")
    steps.write(who, 1, "c")
    sends_offset(steps, who, 7)
    for partition in (0, 1):
        steps.look(partition)
        steps.look(partition, committed=False)
        steps.end_offset(partition)
    steps.offset(require_stable=True)
    steps.offset(require_stable=False)
    steps.describe()
    steps.commit(who)
    for partition in (0, 1):
        steps.look(partition)
        steps.look(partition, committed=False)
        steps.end_offset(partition)
    steps.offset(require_stable=True)
    steps.offset(require_stable=False)
    steps.all_offsets()
    steps.describe()


def shared_abort(steps: RawTransactions) -> None:
    who = begins(steps, 0, 1)
    steps.write(who, 0, "a", "b")
    sends_offset(steps, who, 7)
    steps.abort(who)
    for partition in (0, 1):
        steps.look(partition)
        steps.look(partition, committed=False)
    steps.offset(require_stable=True)
    steps.all_offsets()
    steps.describe()


def late_write(steps: RawTransactions) -> None:
    who = begins(steps, 0)
    steps.write(who, 0, "a")
    steps.commit(who)
    steps.write(who, 0, "late, not added", sequence=1)
    steps.begin(who, 0)
    steps.write(who, 0, "late", sequence=1)
    steps.look(0)
    steps.describe()
    steps.init()
    steps.init_when_free()
    steps.begin(who, 0)
    steps.write(who, 0, "later", sequence=2)
    steps.look(0)
    steps.describe()


def two_writers_of_one_partition(steps: RawTransactions) -> None:
    who = begins(steps, 0)
    steps.write(who, 0, "a", "b")
    steps.write(who, 0, "c", "d")
    steps.write(who, 0, "e")
    steps.commit(who)
    steps.look(0)


def successor(steps: RawTransactions) -> None:
    first = begins(steps, 0)
    steps.write(first, 0, "a")
    steps.init()
    second = steps.init_when_free()
    steps.look(0)
    steps.end(first, committed=True)
    steps.end(first, committed=False)
    steps.write(first, 0, "b", sequence=1)
    steps.begin(first, 0)
    steps.add_offsets(first)
    steps.commit_offset(first, 3)
    steps.begin(second, 0)
    steps.write(second, 0, "c")
    steps.commit(second)
    steps.look(0)
    steps.look(0, committed=False)


def offset_of_no_topic(steps: RawTransactions) -> None:
    who = begins(steps, 0)
    if steps.versions.adds_partitions:
        steps.add_offsets(who)
    steps.commit_offset(who, 3, topic="no-such-topic")
    steps.commit_offset(who, 3, partition=9)
    steps.describe()


# -- more of it --------------------------------------------------------------------------------------------------------


def not_added(steps: RawTransactions) -> None:
    who = steps.init()
    steps.write(who, 0, "a")
    steps.commit_offset(who, 3)
    steps.describe()
    steps.begin(who, 1)
    steps.write(who, 0, "b")
    steps.write(who, 1, "c")
    steps.commit(who)
    steps.look(0)
    steps.look(1)


def no_transactional_id(steps: RawTransactions) -> None:
    who = begins(steps, 0)
    steps.write(who, 0, "a", transactional_id=None)
    steps.write(who, 0, "b")
    steps.write(who, 0, "c", sequence=1, transactional=False)
    steps.write(who, 0, "d", sequence=1, transactional=False, transactional_id=None)
    steps.write(who, 0, "e", sequence=1, transactional_id=None)
    steps.write(who, 0, "f", sequence=1)
    steps.commit(who)
    steps.write(who, 1, "g", transactional=False)
    steps.look(0)
    steps.look(1)


def end_again(steps: RawTransactions) -> None:
    for first in (True, False):
        for second in (True, False):
            steps.settle()
            steps.note("first", first, "second", second)
            who = begins(steps, 0)
            steps.write(who, 0, "a")
            after = steps.end(who, committed=first)
            steps.settle()
            steps.end(who, committed=second)
            steps.settle()
            steps.describe()
            steps.end(after, committed=second)
            steps.settle()
            steps.describe()
            steps.look(0)


def end_nothing(steps: RawTransactions) -> None:
    who = steps.init()
    steps.end(who, committed=True)
    who = steps.end(who, committed=False)
    steps.settle()
    steps.describe()
    who = steps.end(who, committed=False)
    steps.settle()
    steps.describe()
    steps.begin(who, 0)
    steps.write(who, 0, "a")
    steps.commit(who)
    steps.look(0)


def several_transactions(steps: RawTransactions) -> None:
    who = steps.init()
    sequence = 0
    for round_ in range(4):
        steps.begin(who, 0, 1)
        steps.write(who, 0, f"{round_}-a", sequence=sequence)
        steps.write(who, 0, f"{round_}-b", sequence=sequence + 1)
        after = steps.commit(who) if round_ % 2 else steps.abort(who)
        sequence = 0 if after != who else sequence + 2
        who = after
        steps.look(0)
    steps.begin(who, 0)
    steps.write(who, 0, "gap", sequence=sequence + 1)
    steps.write(who, 0, "repeated", sequence=0)
    steps.commit(who)
    steps.look(0)
    steps.look(1)


def overtaken(steps: RawTransactions) -> None:
    """Batches that come before the one that is to begin the transaction, or that were written before it was known."""
    who = steps.init()
    steps.write(who, 0, "first")
    steps.write(who, 0, "second", sequence=1)
    steps.begin(who, 0, 1)
    steps.write(who, 0, "second", sequence=1)
    steps.write(who, 0, "first")
    steps.write(who, 0, "second", sequence=1)
    steps.write(who, 1, "third", sequence=2)
    steps.write(who, 1, "third", sequence=2)
    who = steps.commit(who)
    steps.write(who, 1, "fourth", sequence=1)
    steps.begin(who, 1)
    steps.write(who, 1, "fourth", sequence=1)
    steps.write(who, 1, "fifth", sequence=0)
    steps.write(who, 1, "sixth", sequence=3)
    steps.commit(who)
    steps.look(0)
    steps.look(1)


def overlapping(steps: RawTransactions) -> None:
    other = replace(steps, transactional_id=f"{steps.transactional_id}-other")
    first, second = begins(steps, 0), begins(other, 0)
    steps.write(first, 0, "a")
    other.write(second, 0, "b")
    steps.write(first, 0, "c", sequence=1)
    other.write(second, 0, "d", sequence=1)
    steps.write(Who(-1, -1), 0, "plain", sequence=-1, transactional=False, transactional_id=None)
    steps.look(0)
    steps.abort(first)
    steps.look(0)
    other.commit(second)
    steps.look(0)
    steps.end_offset(0)


def bumped_by_its_producer(steps: RawTransactions) -> None:
    first = steps.init()
    second = steps.init(first)
    steps.init(first)
    third = steps.init(second)
    steps.init(first)
    steps.init(Who(first.producer_id + 1_000_000, 0))
    steps.init(Who(third.producer_id, third.epoch + 5))
    steps.begin(third, 0)
    steps.write(third, 0, "a")
    after = steps.commit(third)
    fourth = steps.init(after)
    steps.init(third)
    steps.begin(fourth, 0)
    steps.write(fourth, 0, "b")
    steps.init(fourth)
    steps.settle()
    steps.describe()
    steps.init(fourth)
    steps.describe()
    steps.init()


def bumped_after_a_lost_answer(steps: RawTransactions) -> None:
    """An EndTxn of which the client does not know what came of it, and the InitProducerId after it."""
    for committed in (True, False):
        who = begins(steps, 0)
        steps.write(who, 0, "a")
        steps.end(who, committed=committed)
        steps.settle()
        steps.init(who)
        steps.describe()
        steps.init()


def strangers(steps: RawTransactions) -> None:
    unknown = Who(5_000_000, 0)
    steps.add(unknown, 0)
    steps.add_offsets(unknown)
    steps.write(unknown, 0, "a")
    steps.commit_offset(unknown, 3)
    steps.end(unknown, committed=True)
    steps.describe()
    who = steps.init()
    for stranger in (unknown, Who(who.producer_id, who.epoch + 1), Who(who.producer_id, who.epoch + 2)):
        steps.add(stranger, 0)
        steps.add_offsets(stranger)
        steps.write(stranger, 0, "a")
        steps.commit_offset(stranger, 3)
        steps.end(stranger, committed=True)
        steps.end(stranger, committed=False)
    steps.describe()


def no_such_partition(steps: RawTransactions) -> None:
    who = steps.init()
    steps.add(who, 0, 9)
    steps.describe()
    steps.add(who, 0, others={"no-such-topic": 0})
    steps.describe()
    steps.add(who, 0, 1)
    steps.add(who, 0)
    steps.describe()


def members(steps: RawTransactions) -> None:
    who = begins(steps, 0)
    if steps.versions.adds_partitions:
        steps.add_offsets(who)
    steps.commit_offset(who, 3, group="")
    steps.commit_offset(who, 3, generation=4, member="another")
    steps.commit_offset(who, 3, metadata="x" * 5000)
    steps.commit_offset(who, 3, metadata=None)
    steps.commit_offset(who, 4, generation=4, member="another")
    steps.commit_offset(who, 5)
    steps.commit(who)
    steps.offset(require_stable=True)


def timeouts(steps: RawTransactions) -> None:
    steps.init(timeout_ms=0)
    steps.init(timeout_ms=-1)
    steps.init(timeout_ms=900_001)
    steps.init(transactional_id="")
    who = begins(steps, 0, timeout_ms=300)
    steps.write(who, 0, "a")
    steps.settle(until="CompleteAbort")
    steps.describe()
    steps.look(0)
    steps.write(who, 0, "b", sequence=1)
    steps.add(who, 0)
    steps.commit_offset(who, 3)
    steps.end(who, committed=True)
    steps.end(who, committed=False)
    steps.settle()
    steps.describe()
    steps.init(who)
    steps.init()


def two_phases(steps: RawTransactions) -> None:
    for enable_2pc in (False, True):
        for keep_prepared in (False, True):
            for timeout_ms in (60_000, 2**31 - 1, 0):
                steps.init(timeout_ms=timeout_ms, enable_2pc=enable_2pc, keep_prepared=keep_prepared)
                steps.describe()
    who = steps.init(enable_2pc=True)
    if who.producer_id < 0:
        return
    steps.begin(who, 0)
    steps.write(who, 0, "a")
    steps.init(enable_2pc=True, keep_prepared=True)
    steps.describe()
    who = steps.commit(who)
    steps.begin(who, 0)
    steps.write(who, 0, "b")
    steps.describe()
    steps.init()
    steps.settle()
    steps.init(enable_2pc=True)
    steps.look(0)


SCENARIOS: Sequence[Scenario] = (
    shared_commit,
    shared_abort,
    late_write,
    two_writers_of_one_partition,
    successor,
    offset_of_no_topic,
    not_added,
    no_transactional_id,
    end_again,
    end_nothing,
    several_transactions,
    overtaken,
    overlapping,
    bumped_by_its_producer,
    bumped_after_a_lost_answer,
    strangers,
    no_such_partition,
    members,
    timeouts,
)


def epochs_that_run_out(steps: RawTransactions) -> None:
    for ending in ("commit", "abort", "fence"):
        own = replace(steps, transactional_id=f"{steps.transactional_id}-{ending}")
        own.init()
        who = own.use_up_epochs(32_766)
        own.note(ending, own.name(who))
        own.begin(who, 0)
        own.write(who, 0, ending)
        if ending == "fence":
            own.init()
        else:
            own.end(who, committed=ending == "commit")
        own.settle()
        own.describe()
        own.end(who, committed=ending == "commit")
        own.end(who, committed=ending != "commit")
        own.settle()
        own.describe()
        own.init(who)
        own.describe()
        own.init()
    steps.look(0)


#: Where an id is stuck after its first transactional write, nothing can be learned from asking for its next epoch.
SCENARIOS_WITH_ONE_PRODUCER = (
    shared_commit,
    shared_abort,
    late_write,
    two_writers_of_one_partition,
    offset_of_no_topic,
    not_added,
    no_transactional_id,
    end_nothing,
    several_transactions,
    overtaken,
    overlapping,
    strangers,
    no_such_partition,
    members,
)


def play(address: tuple[str, int], scenario: Scenario, versions: Versions, topic: str) -> list[Note]:
    steps = RawTransactions(address, versions, f"{topic}-id", topic, f"{topic}-group")
    steps.find_coordinators()
    scenario(steps)
    return steps.notes


def differences(
    kafka: KafkaCluster,
    versions: Versions,
    scenarios: Sequence[Scenario] = SCENARIOS,
    level: int | None = None,
    two_phase_commit: TwoPhaseCommit = TwoPhaseCommit.REFUSED,
) -> Iterator[tuple[str, int, Note | None, Note | None]]:
    """Every step that was answered differently: the scenario, the step's number, what Kafka said, what the fake said."""
    host, _, port = kafka.bootstrap_servers.partition(":")
    highest_init = {"InitProducerId": versions.init_producer_id}
    with FakeBroker(versions=kafka.version, auto_create_topics=False, max_versions=highest_init) as broker:
        broker.two_phase_commit = two_phase_commit
        if level is not None:
            broker.transaction_version = level
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


#: Each release with the versions of requests that it speaks.
SPOKEN = [
    pytest.param(release, versions, id=f"{release}-{versions.name}")
    for release, spoken in (("4.3.1", (OLDEST, OLD, TV1, TV2)), ("3.9.2", (OLDEST, OLD, TV1)))
    for versions in spoken
]


@pytest.fixture(scope="module")
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with own_kafka(request.param) as kafka:
        yield kafka


@pytest.mark.parametrize(("kafka", "versions"), SPOKEN, indirect=["kafka"])
def test_both_answer_every_step_alike(kafka: KafkaCluster, versions: Versions) -> None:
    assert list(differences(kafka, versions)) == []


def test_both_answer_alike_where_the_feature_is_not_there() -> None:
    with own_kafka("4.3.1", features={"transaction.version": 0}) as kafka:
        assert list(differences(kafka, TV1, level=0)) == []
        assert list(differences(kafka, TV2, SCENARIOS_WITH_ONE_PRODUCER, level=0)) == []


@pytest.mark.parametrize(
    ("allows", "level"), [("false", TwoPhaseCommit.REFUSED), ("true", TwoPhaseCommit.UNRECOVERABLE)]
)
def test_both_take_the_same_part_in_two_phase_commits(allows: str, level: TwoPhaseCommit) -> None:
    properties = {"unstable.api.versions.enable": "true", "transaction.two.phase.commit.enable": allows}
    with own_kafka("4.3.1", properties=properties) as kafka:
        versions = TV2._replace(init_producer_id=6)
        assert list(differences(kafka, versions, [two_phases], two_phase_commit=level)) == []


@pytest.mark.soak
@pytest.mark.parametrize(
    ("kafka", "versions"), [each for each in SPOKEN if each.values[1] in (TV1, TV2)], indirect=["kafka"]
)
def test_both_go_on_alike_when_the_epochs_of_a_producer_id_run_out(kafka: KafkaCluster, versions: Versions) -> None:
    assert list(differences(kafka, versions, [epochs_that_run_out])) == []
