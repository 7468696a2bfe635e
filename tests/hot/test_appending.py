"""The fast paths in Python and in native code: the same calls, and the same bytes, counts and refusals."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from decimal import Decimal
from fractions import Fraction
from math import inf, nan
from types import MappingProxyType
from typing import Any

import pytest
import time_machine
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aioproducer.record import BATCH_OVERHEAD
from tests.hot.twins import PLENTY, TWINS, Twin, World, each_twin, needs_native


class Text(str):
    """A str, but not exactly."""


class Texts(list[Any]):
    """A list, but not exactly."""


class Unreadable(dict[str, bytes]):
    """Headers that cannot even be asked whether there are any."""

    def __bool__(self) -> bool:
        raise OSError("unreadable")


topics = st.sampled_from(
    ["orders", "orders", "".join(("or", "ders")), "payments", "unknown", Text("orders"), None, 5, b"orders", ["orders"]]
)
plain = st.none() | st.binary(max_size=60) | st.text(st.characters(max_codepoint=127), max_size=60)
unusual = st.sampled_from(
    [b"x" * 350, "x" * 450, b"x" * 6000, "\xfc", "\u20ac" * 9, "\ud800", Text("x"), bytearray(b"x"), 7]
)
contents = plain | plain | unusual
partitions = (
    st.none() | st.none() | st.integers(-1, 4) | st.sampled_from([True, 2**31, 2**63, 2**70, -(2**70), 1.0, "0"])
)
#: Far from now, so that they can be distinguished from a clock's.
timestamps = st.sampled_from([None, 0, 5, 70, 9000, 2**40, 2**63 - 1, 2**63, 2**70, -1, -(2**70), True, 1.5, "0"])
timeouts = st.sampled_from(
    [None, None, 0, 1, 0.5, -0.0, 1e9, 1e300, inf, nan, -1, -0.5, True, 10**400, Fraction(1, 2), Decimal(1), "x"]
)
#: Created again for each twin: some can be read once.
headers: st.SearchStrategy[Callable[[], Any]] = st.sampled_from(
    [
        lambda: None,
        lambda: None,
        dict,
        list,
        lambda: {"trace": b"1", "empty": b"", "none": None},
        lambda: [("trace", "text"), ("trace", bytearray(b"2"))],
        lambda: (("\xfc\u20ac", memoryview(b"123")[::2]),),
        lambda: Texts([("trace", b"1")]),
        lambda: [(Text("trace"), Text("1"))],
        lambda: [["trace", b"1"]],
        lambda: [("\ud800", b"")],
        lambda: [("trace", "\ud800")],
        lambda: [("trace",)],
        lambda: [("trace", 5)],
        lambda: [(None, b"")],
        lambda: MappingProxyType({"trace": b"1"}),
        lambda: (pair for pair in [("trace", b"1")]),
        lambda: "text",
        lambda: 5,
        Unreadable,
    ]
)
runs = st.lists(contents, max_size=12).flatmap(lambda values: st.sampled_from([values, tuple(values), Texts(values)]))


@contextmanager
def running(loop: object) -> Iterator[None]:
    """Within, this event loop runs in this thread, as far as asyncio knows."""
    loops: Any = asyncio.events
    loops._set_running_loop(loop)
    try:
        yield
    finally:
        loops._set_running_loop(None)


def is_now(timestamp_ms: int) -> bool:
    return abs(timestamp_ms - time.time() * 1000) < 3_600_000


def stamped(timestamp_ms: int) -> int | str:
    return "now" if is_now(timestamp_ms) else timestamp_ms


def outcome_of(function: Callable[[], Any]) -> Any:
    """The result or error of a call, comparable between the twins."""
    try:
        answer = function()
    except Exception as error:
        return type(error), str(error)
    if hasattr(answer, "topic_partition"):
        return answer.topic_partition, answer.index, answer.serialized_size
    if isinstance(answer, tuple):
        count, outcome, first, size = answer
        return count, outcome.partition, first, size
    return answer


def stepped(world: World, coroutine: Any) -> Any:
    """The result of a coroutine that does not wait."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        if hasattr(done.value, "topic_partition"):
            world.deliveries.append(done.value)
        return done.value
    raise AssertionError("it waits")


def state(world: World) -> Any:
    costs = world.twin.record_cost * len(world.deliveries) + world.run_costs
    return (
        world.budget.free,
        world.appender.burst - costs,
        [(topic, lane.partition_count, sticky_state(lane.sticky)) for topic, lane in world.lanes.items()],
        [(topic, partition, *batch_state(batch)) for topic, partition, batch in world.batches()],
        [[(call, len(result.callbacks))] for call, result in enumerate(world.results)],
        world.reported,
    )


def sticky_state(sticky: Any) -> Any:
    return sticky.partition, sticky.bytes, sticky.ratio, sticky.turn


def batch_state(batch: Any) -> Any:
    builder = batch.builder
    if builder is None:
        return batch.count, batch.limit, batch.is_full, batch.has_room(1)
    records = [(stamped(each.timestamp_ms), each.key, each.value, each.headers) for each in builder.read_records()]
    return batch.count, batch.limit, batch.is_full, batch.has_room(100), builder.size, records


class Appending(RuleBasedStateMachine):
    """Does the same to both twins."""

    def __init__(self) -> None:
        super().__init__()
        self.loop, self.other_loop = object(), object()
        self.running: object = self.loop
        self.worlds = [World(twin) for twin in TWINS.values()]
        self.attach(True)

    def on_both(self, call: Callable[[World], Any]) -> None:
        answers = []
        for world in self.worlds:
            with running(self.running):
                answers.append(outcome_of(lambda world=world: call(world)))  # type: ignore[misc]
        assert all(answer == answers[0] for answer in answers), answers

    # -- records ------------------------------------------------------------------------------------------------------

    @rule(topic=topics, value=contents, key=contents, headers=headers, partition=partitions, timestamp=timestamps)
    def append(self, topic: Any, value: Any, key: Any, headers: Any, partition: Any, timestamp: Any) -> None:
        def append(world: World) -> Any:
            delivery = world.appender.append(topic, value, key, headers(), partition, timestamp)
            if delivery is not None:
                world.deliveries.append(delivery)
            return delivery

        self.on_both(append)

    @rule(value=plain, key=plain)
    def append_the_usual(self, value: Any, key: Any) -> None:
        self.append("orders", value, key, lambda: None, None, 1000)

    @rule(topic=topics, values=runs, headers=headers, partition=partitions)
    def append_run(self, topic: Any, values: Any, headers: Any, partition: Any) -> None:
        def append(world: World) -> Any:
            answer = world.appender.append_run(topic, values, 0, headers(), partition)
            if answer is not None:
                cost = world.twin.record_cost // 2
                world.run_costs += cost * answer[0]
            return answer

        self.on_both(append)

    @rule(
        topic=topics,
        value=contents,
        key=contents,
        headers=headers,
        timestamp=timestamps,
        hook=st.sampled_from([None, print, 5]),
        timeout=timeouts,
    )
    def enqueue(self, topic: Any, value: Any, key: Any, headers: Any, timestamp: Any, hook: Any, timeout: Any) -> None:
        def enqueue(world: World) -> Any:
            return stepped(
                world,
                world.fast_path.enqueue(
                    topic,
                    value,
                    key=key,
                    headers=headers(),
                    timestamp_ms=timestamp,
                    on_delivery=hook,
                    timeout=timeout,
                ),
            )

        self.on_both(enqueue)

    @rule(topic=topics, value=contents, headers=headers, partition=partitions, hook=st.sampled_from([None, print, 5]))
    def enqueue_nowait(self, topic: Any, value: Any, headers: Any, partition: Any, hook: Any) -> None:
        def enqueue(world: World) -> Any:
            answer = world.fast_path.enqueue_nowait(
                topic, value, headers=headers(), partition=partition, timestamp_ms=3, on_delivery=hook
            )
            if answer != "slow path":
                world.deliveries.append(answer)
            return answer

        self.on_both(enqueue)

    # -- what others decide -------------------------------------------------------------------------------------------

    @rule(free=st.integers(0, 1000) | st.just(PLENTY), line=st.sampled_from([0, 0, 0, 1, 1 << 32]))
    def change_the_budget(self, free: int, line: int) -> None:
        for world in self.worlds:
            world.budget.free, world.budget.line = free, line

    @rule(may_begin=st.booleans(), limit=st.integers(BATCH_OVERHEAD, 1500))
    def change_how_batches_begin(self, may_begin: bool, limit: int) -> None:
        for world in self.worlds:
            world.may_begin, world.limit = may_begin, limit

    @rule(turn=st.integers(1, 1000), ratio=st.sampled_from([0.1, 0.5, 1.0, 1.05]), partition=st.integers(-1, 5))
    def change_where_to_stick(self, turn: int, ratio: float, partition: int) -> None:
        for world in self.worlds:
            sticky = world.lanes["orders"].sticky
            sticky.turn, sticky.ratio, sticky.partition = turn, ratio, partition

    @rule(topic=st.sampled_from(["orders", "payments"]), count=st.integers(0, 4))
    def replace_a_lane(self, topic: str, count: int) -> None:
        for world in self.worlds:
            world.add_lane(topic, count)

    @rule()
    def forget_a_lane(self) -> None:
        for world in self.worlds:
            world.lanes.pop("payments").partition_count = 0
            world.add_lane("payments", 2)

    @rule(at=st.integers(0, 5), for_good=st.booleans())
    def close_a_batch(self, at: int, for_good: bool) -> None:
        for world in self.worlds:
            for topic, partition, batch in world.batches()[at : at + 1]:
                world.close(batch)
                if for_good:
                    world.lanes[topic].open[partition] = None

    @rule(attached=st.booleans(), keys_choose=st.sampled_from([True, True, False, None]))
    def attach_or_detach(self, attached: bool, keys_choose: bool | None) -> None:
        for world in self.worlds:
            world.keys_choose = keys_choose
        self.attach(attached)

    def attach(self, attached: bool) -> None:
        for world in self.worlds:
            if attached:
                world.attach(self.loop)
                world.deliveries.clear()
                world.run_costs = 0  # the burst begins again
            else:
                world.appender.detach()

    @rule(own=st.booleans(), loops=st.integers(0, 2))
    def run_an_event_loop(self, own: bool, loops: int) -> None:
        self.running = self.loop if own else (None, self.other_loop, self.loop)[loops]

    @rule()
    def fork(self) -> None:
        for world in self.worlds:
            world.twin.count_fork()

    @rule()
    def come_back(self) -> None:
        self.running = self.loop
        self.attach(True)

    # -- what must be the same ----------------------------------------------------------------------------------------

    @invariant()
    def both_are_the_same(self) -> None:
        states = [state(world) for world in self.worlds]
        for other in states[1:]:
            assert other == states[0]
        for world in self.worlds:  # a batch that began now may take other bytes a millisecond later
            for _, _, batch in world.batches():
                if batch.builder is not None and batch.count and is_now(batch.builder.base_timestamp):
                    world.close(batch)

    def teardown(self) -> None:
        for world in self.worlds:
            for result in world.results:
                result.succeed(7)
        reported = [[each.result() for each in world.deliveries] for world in self.worlds]
        for other in reported[1:]:
            assert [unstamped(each) for each in other] == [unstamped(each) for each in reported[0]]


def unstamped(metadata: Any) -> Any:
    return metadata._asdict() | {"timestamp_ms": stamped(metadata.timestamp_ms)}


Appending.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
test_both_twins_do_the_same = needs_native(Appending.TestCase)


# -- what the machine hardly meets, or what has no twin ----------------------------------------------------------------


@pytest.fixture
def loop() -> object:
    return object()


@each_twin
def test_a_burst_ends_the_fast_path_until_the_caller_was_asked_to_pause(twin: Twin, loop: object) -> None:
    world = World(twin, max_burst=2000)
    world.attach(loop)

    with running(loop):
        taken = 0
        while world.appender.append("orders", b"x" * 100, None, None, 0, 5) is not None:
            taken += 1
        at_the_end = world.appender.append_run("orders", [b"x"], 0, None, 0)
        world.appender.burst = 0
        afterwards = world.appender.append("orders", b"x" * 100, None, None, 0, 5)

    assert 2000 <= taken * (twin.record_cost + 110) < 2000 + twin.record_cost + 110
    assert at_the_end is None
    assert afterwards is not None


@each_twin
def test_a_run_goes_into_one_batch(twin: Twin, loop: object) -> None:
    world = World(twin)
    world.attach(loop)
    values = [b"%03d" % number * 20 for number in range(20)]

    reported: list[tuple[int, Any, int, int]] = []
    with running(loop):
        at = 0
        while at < len(values):
            reported.append(world.appender.append_run("orders", values, at, None, 1))
            at += reported[-1][0]

    assert len(reported) > 3
    assert [outcome for _, outcome, _, _ in reported] == world.results
    assert [first for _, _, first, _ in reported] == [0] * len(reported)
    assert [size for _, _, _, size in reported] == [60 * count for count, _, _, _ in reported]


@each_twin
def test_a_record_that_cannot_be_encoded_leaves_no_batch_behind(
    twin: Twin, loop: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hard to come by: a clock before 1970 does it."""
    world = World(twin)
    world.attach(loop)
    monkeypatch.setattr(time, "time_ns", lambda: -(10**9))
    free = world.budget.free

    with running(loop), pytest.raises(Exception, match="timestamp"):
        world.appender.append("orders", b"x", None, None, 0, None)

    assert [what[0] for what in world.reported] == ["begin", "undo"]
    assert world.budget.free == free


@each_twin
def test_a_record_without_a_timestamp_is_encoded_with_the_current_time(twin: Twin, loop: object) -> None:
    world = World(twin)
    world.attach(loop)

    before = time.time_ns() // 1_000_000
    with running(loop):
        world.appender.append("orders", b"x", None, None, 0, None)
        world.appender.append_run("orders", [b"x"], 0, None, 0)
    after = time.time_ns() // 1_000_000

    [(_, _, batch)] = world.batches()
    assert [before <= record.timestamp_ms <= after for record in batch.builder.read_records()] == [True, True]


@contextmanager
def replaced() -> Iterator[None]:
    """As freezegun does it."""
    with pytest.MonkeyPatch.context() as frozen:
        frozen.setattr(time, "time_ns", lambda: 1_234_567_890)
        yield


def written_into() -> AbstractContextManager[object]:
    """Another function of C within the same object."""
    return time_machine.travel(1.234_567_890, tick=False)


@each_twin
@pytest.mark.parametrize("frozen", [replaced, written_into])
def test_a_clock_that_a_test_froze_is_the_one_that_is_asked(
    twin: Twin, loop: object, frozen: Callable[[], AbstractContextManager[object]]
) -> None:
    world = World(twin)
    world.attach(loop)

    with running(loop):
        world.appender.append("orders", b"x", None, None, 0, None)  # by the true one
        with frozen():
            world.appender.append("orders", b"x", None, None, 0, None)
            world.appender.append_run("orders", [b"x"], 0, None, 0)
        world.appender.append("orders", b"x", None, None, 0, None)

    [(_, _, batch)] = world.batches()
    first, *frozen_ones, last = [record.timestamp_ms for record in batch.builder.read_records()]
    assert frozen_ones == [1234, 1234]
    assert 0 <= last - first < 60_000


@each_twin
@pytest.mark.parametrize("left", [0, 1])
def test_headers_that_empty_the_list_of_values_when_they_are_read_do_no_harm(
    twin: Twin, loop: object, left: int
) -> None:
    world = World(twin)
    world.attach(loop)
    values: list[Any] = [bytes([number]) for number in range(100)]

    class Emptying(list[Any]):
        def __iter__(self) -> Iterator[Any]:
            del values[left:]
            return super().__iter__()

    with running(loop):
        answer = world.appender.append_run("orders", values, 0, Emptying([("a", b"1")]), 0)

    assert (answer and answer[0]) == (left or None)


@each_twin
def test_headers_that_detach_the_appender_when_they_are_read_are_not_appended(twin: Twin, loop: object) -> None:
    world = World(twin)
    world.attach(loop)

    class Detaching(list[Any]):
        def __iter__(self) -> Iterator[Any]:
            world.appender.detach()
            return super().__iter__()

    with running(loop):
        assert world.appender.append("orders", b"x", None, Detaching([("a", b"1")]), 0, None) is None
    assert world.batches() == []


@each_twin
def test_a_lane_that_replaces_another_is_found_by_the_very_same_name(twin: Twin, loop: object) -> None:
    world = World(twin)
    world.attach(loop)

    with running(loop):
        first = world.appender.append("orders", b"x", None, None, 0, 5)
        world.add_lane("orders", 5)
        second = world.appender.append("orders", b"x", None, None, 4, 5)

    assert first.topic_partition != second.topic_partition
    assert world.lanes["orders"].open[4].count == 1


@each_twin
def test_an_appender_that_is_attached_to_another_loop_takes_nothing_in_the_first(twin: Twin, loop: object) -> None:
    world = World(twin)
    second_loop = object()
    world.attach(loop)
    with running(loop):
        assert world.appender.append("orders", b"x", None, None, 0, 5) is not None
        world.attach(second_loop)
        assert world.appender.append("orders", b"x", None, None, 0, 5) is None
    with running(second_loop):
        assert world.appender.append("orders", b"x", None, None, 0, 5) is not None


@each_twin
def test_loops_that_take_turns_in_a_thread_are_distinguished(twin: Twin, loop: object) -> None:
    world = World(twin)
    second_loop = object()
    world.attach(loop)

    def taken() -> int:
        return sum(world.appender.append("orders", b"x", None, None, 0, 5) is not None for _ in range(3))

    for _ in range(3):
        with running(loop):
            assert taken() == 3
        with running(second_loop):
            assert taken() == 0
        assert taken() == 0


@each_twin
def test_nothing_is_appended_where_no_loop_runs_any_more(twin: Twin, loop: object) -> None:
    """From Python 3.12 on asyncio's state of a thread is None then."""
    world = World(twin)
    with running(loop):
        pass
    world.attach(loop)

    assert world.appender.append("orders", b"x", None, None, 0, 5) is None
    assert world.appender.append_run("orders", [b"x"], 0, None, 0) is None


# -- what cannot be put there ------------------------------------------------------------------------------------------

_WRONG: Sequence[tuple[str, str, object]] = [
    ("open_batch", "builder", "text"),
    ("open_batch", "limit", "text"),
    ("outcome", "base_offset", "text"),
    ("outcome", "base_offset", None),
    ("lane", "partition_count", "text"),
    ("lane", "sticky", "text"),
    ("sticky_partition", "partition", "text"),
    ("sticky_partition", "bytes", "text"),
    ("sticky_partition", "turn", None),
    ("budget", "free", "text"),
    ("budget", "line", None),
    ("fast_path", "appender", "text"),
]


@needs_native
@pytest.mark.parametrize(("kind", "attribute", "value"), _WRONG)
def test_the_native_twin_refuses_what_is_of_the_wrong_type(kind: str, attribute: str, value: object) -> None:
    twin = TWINS["native"]
    sticky = twin.sticky_partition(1)
    outcome = twin.outcome(("orders", 0))
    things = {
        "open_batch": twin.open_batch(outcome, 100),
        "outcome": outcome,
        "lane": twin.lane(1, sticky),
        "sticky_partition": sticky,
        "budget": twin.budget(5),
        "fast_path": twin.fast_path(),
    }

    with pytest.raises(TypeError):
        setattr(things[kind], attribute, value)


@needs_native
def test_the_native_twin_refuses_to_be_made_of_the_wrong_types() -> None:
    twin = TWINS["native"]
    sticky, outcome = twin.sticky_partition(1), twin.outcome(("orders", 0))

    makes: list[Callable[[], Any]] = [
        lambda: twin.open_batch(None, 5),
        lambda: twin.open_batch("text", 5),
        lambda: twin.lane(1, None),
        lambda: twin.lane("text", sticky),
        lambda: twin.delivery(None, 0, 0, 0, 0),
        lambda: twin.delivery(outcome, "text", 0, 0, 0),
        lambda: twin.budget("text"),
        lambda: twin.outcome(5),
    ]
    for make in makes:
        with pytest.raises(TypeError):
            make()
    for numbers in ((2**31, 0, 0, 0), (0, 2**63, 0, 0), (0, 0, 2**31, 0), (0, 0, 0, 2**31)):
        with pytest.raises(OverflowError):
            twin.delivery(outcome, *numbers)


@needs_native
def test_the_native_twin_raises_where_something_was_never_made_ready(loop: object) -> None:
    twin = TWINS["native"]
    delivery = twin.delivery.__new__(twin.delivery)
    lane: Any = twin.lane.__new__(twin.lane)
    batch = twin.open_batch.__new__(twin.open_batch)

    uses: list[Callable[[], Any]] = [
        delivery.done,
        delivery.result,
        delivery.exception,
        delivery.peek,
        delivery.located,
        delivery.__await__,
        lambda: delivery.topic_partition,
        lambda: delivery.add_done_callback(print),
        lambda: repr(delivery),
        lambda: batch.append(0, None, None, ()),
        lambda: twin.fast_path().enqueue_nowait("orders"),
        lambda: twin.fast_path().enqueue("orders").send(None),
    ]
    for use in uses:
        with pytest.raises(AttributeError):
            use()
    assert lane.open is None
    assert (batch.count, batch.is_full, batch.has_room(1)) == (0, True, False)
    assert twin.appender.__new__(twin.appender).append("orders", b"x", None, None, 0, 5) is None


@needs_native
def test_the_native_twin_raises_where_a_lane_holds_what_is_no_batch(loop: object) -> None:
    world = World(TWINS["native"])
    world.attach(loop)
    world.lanes["orders"].open[0] = "text"
    world.lanes["payments"] = "text"

    with running(loop):
        for topic, partition in (("orders", 0), ("payments", 0)):
            with pytest.raises(TypeError):
                world.appender.append(topic, b"x", None, None, partition, 5)
            with pytest.raises(TypeError):
                world.appender.append_run(topic, [b"x"], 0, None, partition)


@needs_native
def test_nothing_of_a_native_lane_can_be_exchanged_under_the_hands_of_the_appender() -> None:
    twin = TWINS["native"]
    batch = twin.open_batch(twin.outcome(("orders", 0)), 100)

    with pytest.raises(AttributeError):
        twin.lane(1, twin.sticky_partition(1)).open = None
    with pytest.raises(AttributeError):
        batch.result = None
