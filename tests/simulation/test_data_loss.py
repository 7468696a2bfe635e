"""With ``on_data_loss="stop"``, each partition's log is a prefix of what was accepted, whatever goes wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pytest

from aioproducer import NotWritten, Producer
from aioproducer.types import TopicPartition
from tests.simulation.run import World

_TOPICS = ("orders", "logs")
_ROUNDS = 4


class LossWorld(World):
    """A world in which a record is lost now and then, and the program resumes after each round.

    ``accepted`` has the values of each partition in the order of their acceptance, a list for each round.
    """

    def __init__(self, seed: int, mode: str) -> None:
        self.mode = mode
        self.accepted: list[dict[TopicPartition, list[bytes]]] = []
        self.stops = 0
        super().__init__(seed, "idempotent", frozenset(), keeps=False)

    def _options(self) -> Mapping[str, Any]:
        # Records often run out of time, and may be in the log then.
        return {**super()._options(), "on_data_loss": self.mode, "delivery_timeout_ms": 700, "request_timeout_ms": 500}

    async def _program(self) -> None:
        producer = self._make()
        await producer.start()
        engine = producer._engine  # pyright: ignore[reportPrivateUsage]
        assert engine is not None
        self._pools.append(engine.pool)
        for number in range(_ROUNDS):
            await self._round(producer, number)
            if self.mode == "continue":
                assert producer.stopped_partitions == {}
            self.stops += len(producer.resume())
        await producer.close()

    async def _round(self, producer: Producer, number: int) -> None:
        accepted: dict[TopicPartition, list[bytes]] = defaultdict(list)
        self.accepted.append(accepted)
        for record in range(60):
            value = f"{number}/{record}".encode()
            topic = self.dice.choice(_TOPICS)
            partition = int(self.dice.random.random() * len(self.cluster.topic(topic).partitions))
            if self.dice.random.random() < 0.03:
                self.cluster.faults.fail("Produce", "INVALID_RECORD", topic=topic, partition=partition)
            try:
                delivery = await producer.enqueue(topic, value, partition=partition)
            except NotWritten:
                continue
            delivery.add_done_callback(lambda each: each.exception())
            accepted[delivery.topic_partition].append(value)
        await producer.flush()

    def holes(self) -> list[str]:
        """The partitions that have a record of a round, and not one that was accepted before it in that round."""
        found: list[str] = []
        for log in self.cluster.logs():
            written = [record.value for record in log.records()]
            for accepted in self.accepted:
                expected = accepted[TopicPartition(log.topic, log.partition)]
                of_round = [value for value in written if value in expected]
                if of_round != expected[: len(of_round)]:
                    found.append(f"{log.topic}-{log.partition}: {of_round} of {expected}")
        return found


def _worlds(mode: str, seeds: range) -> list[LossWorld]:
    worlds: list[LossWorld] = []
    for seed in seeds:
        world = LossWorld(seed, mode)
        if world.traits.loses_appends or world.traits.is_forgotten:
            world.loop.close()
            continue  # a broker that forgets what it has acknowledged keeps no promise
        problems = world.run()
        assert problems == [], f"seed {seed}"
        if not world.erased:
            worlds.append(world)
    return worlds


@pytest.mark.parametrize(
    "first", [0, pytest.param(20, marks=pytest.mark.slow), pytest.param(60, marks=pytest.mark.slow)]
)
def test_no_partition_has_a_record_behind_a_hole(first: int) -> None:
    worlds = _worlds("stop", range(first, 2 * first or 20))

    assert {world.seed: holes for world in worlds if (holes := world.holes())} == {}
    assert sum(world.stops for world in worlds) > 50


def test_by_default_there_are_holes() -> None:
    assert any(world.holes() for world in _worlds("continue", range(10)))
