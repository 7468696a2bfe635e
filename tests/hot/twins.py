"""Both implementations of the hot path, side by side in one process, and a small world for each to work in."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import pytest

from aioproducer.hot import _append, _delivery
from aioproducer.record import BATCH_OVERHEAD
from aioproducer.types import TopicPartition

#: Without a limit, as far as a test goes.
PLENTY = 1 << 40


class Twin(NamedTuple):
    """One implementation of the hot path, whichever is in use."""

    name: str
    record_cost: int
    count_fork: Callable[[], None]
    appender: Any
    budget: Any
    delivery: Any
    lane: Any
    open_batch: Any
    outcome: Any
    fast_path: Any
    sticky_partition: Any


def _twin(name: str, module: Any, deliveries: Any) -> Twin:
    return Twin(
        name,
        module.RECORD_COST,
        module.count_fork,
        module.Appender,
        module.Budget,
        deliveries.Delivery,
        module.Lane,
        module.OpenBatch,
        deliveries.Outcome,
        module.FastPath,
        module.StickyPartition,
    )


TWINS = {"python": _twin("python", _append, _delivery)}
try:
    _native: Any = import_module("aioproducer.hot._native")
except ImportError:  # tests/record/test_twins.py says where that is wrong
    pass
else:
    TWINS["native"] = _twin("native", _native, _native)

each_twin = pytest.mark.parametrize("twin", TWINS.values(), ids=list(TWINS))
needs_native = pytest.mark.skipif("native" not in TWINS, reason="the native extension was not built here")


def result_class(twin: Twin) -> Any:
    """An outcome that notes what is asked of it."""
    base: Any = twin.outcome

    class Result(base):  # type: ignore[misc]  # any class at all
        def __init__(self, partition: TopicPartition) -> None:
            super().__init__(partition)
            self.gone: list[int] = []
            self.callbacks: list[Any] = []
            self.parts: list[Any] = []

        def locate(self, index: int) -> tuple[Any, int]:
            return self.parts[index], 0

        def abandon(self, index: int) -> None:
            if self.failure is None:
                if not self.succeeded:
                    self.note_abandoned(index)
            else:
                self.gone.append(index)

        def wait(self, index: int, waiter: Any) -> None:
            self.keep(index, waiter)

        def listen(self, delivery: Any, callback: Any) -> None:
            self.callbacks.append((delivery, callback))

        def succeed(self, base_offset: int = 0) -> None:
            self.base_offset = base_offset
            self.succeeded = True
            self.wake()

    return Result


class World:
    """The surroundings of an appender, and the requests that it made."""

    def __init__(self, twin: Twin, *, keys_choose: bool | None = True, max_burst: int = PLENTY) -> None:
        self.twin = twin
        self.keys_choose = keys_choose
        self.max_size = 5000
        self.reported: list[tuple[Any, ...]] = []
        self.results: list[Any] = []
        self.deliveries: list[Any] = []
        self.run_costs = 0
        self.may_begin = True
        self.limit = 400
        self.budget = twin.budget(PLENTY)
        self.lanes: dict[str, Any] = {}
        self.appender = twin.appender(self._send, self._enqueue, self._enqueue_nowait, max_burst)
        self.fast_path = twin.fast_path()
        self.fast_path.appender = self.appender
        self._result_class = result_class(twin)
        self._switches = 0
        for topic, partitions in (("orders", 3), ("payments", 1)):
            self.add_lane(topic, partitions)

    def add_lane(self, topic: str, partitions: int) -> None:
        """A lane, in the place of the one that was there, as the accumulator makes it."""
        old = self.lanes.get(topic)
        sticky = self.twin.sticky_partition(700) if old is None else old.sticky
        if old is not None:
            old.partition_count = 0
        self.lanes[topic] = self.twin.lane(partitions, sticky)

    def attach(self, loop: object) -> None:
        self.appender.attach(
            loop,
            self.budget,
            self.lanes,
            self._ready,
            self._begin,
            self._undo,
            max_size=self.max_size,
            keys_choose=self.keys_choose,
        )

    def batches(self) -> list[tuple[str, int, Any]]:
        return [
            (topic, partition, batch)
            for topic, lane in self.lanes.items()
            for partition, batch in enumerate(lane.open)
            if batch is not None
        ]

    def close(self, batch: Any) -> None:
        self.budget.free += batch.builder.size if batch.builder is not None else 0
        batch.drop_builder()

    # -- what the appender asks for -----------------------------------------------------------------------------------

    def _begin(self, topic: str, lane: Any, partition: int, size: int) -> Any:
        self.reported.append(("begin", topic, partition, size))
        if not self.may_begin or size + BATCH_OVERHEAD > self.budget.free:
            return None
        if partition < 0:
            sticky = lane.sticky
            if not 0 <= sticky.partition < lane.partition_count:
                self._switches += 1
                sticky.partition, sticky.bytes = self._switches % lane.partition_count, 0.0
            partition = sticky.partition
        batch = lane.open[partition]
        if batch is None or not batch.has_room(size):
            result = self._result_class(TopicPartition(topic, partition))
            self.results.append(result)
            batch = lane.open[partition] = self.twin.open_batch(result, self.limit)
            self.budget.free -= BATCH_OVERHEAD
        return batch

    def _undo(self, batch: Any) -> None:
        self.reported.append(("undo", batch.result.partition))
        self.budget.free += BATCH_OVERHEAD
        batch.drop_builder()

    def _ready(self, batch: Any) -> None:
        self.reported.append(("ready", batch.result.partition, batch.count))

    async def _send(self, *arguments: object) -> object:
        self.reported.append(("slow path to send", *arguments))
        return "slow path"

    async def _enqueue(self, *arguments: object) -> object:
        self.reported.append(("slow path", len(arguments), *map(type, arguments)))
        return "slow path"

    def _enqueue_nowait(self, *arguments: object) -> object:
        self.reported.append(("slow path, now", len(arguments), *map(type, arguments)))
        return "slow path"
