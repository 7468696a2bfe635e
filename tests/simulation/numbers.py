"""Reaches into the numbers of a producer: lets them begin near 2^31, and hears of new ones for old batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from aioproducer.core.sequences import Sequences, _Partition  # pyright: ignore[reportPrivateUsage]
from aioproducer.testing.broker.fake_cluster import FakeCluster
from aioproducer.testing.broker.log import BatchHeader, ProducerState
from aioproducer.types import TopicPartition
from tests.simulation.watch import Watch

__all__ = ["hear", "wear"]

_SEQUENCES: Final = 2**31


def hear(sequences: Sequences, watch: Watch) -> None:
    """Tell the watch about each batch that gets a new number with a new epoch."""
    original = sequences._bump  # pyright: ignore[reportPrivateUsage]

    def bump(states: list[_Partition]) -> None:
        original(states)
        for batch in (each for state in states for each in state.numbered):
            watch.number_again(batch.partition, batch.producer_id, batch.producer_epoch, batch.base_sequence)

    sequences._bump = bump  # type: ignore[method-assign]  # pyright: ignore[reportPrivateUsage]


def wear(
    sequences: Sequences, cluster: FakeCluster, watch: Watch, partitions: Iterable[TopicPartition], left: int
) -> None:
    """Let each partition look as if all but ``left`` sequences were written, once there is a producer id."""
    original = sequences.set_producer_id

    def set_producer_id(producer_id: int, epoch: int) -> None:
        original(producer_id, epoch)
        if sequences._partitions:  # pyright: ignore[reportPrivateUsage]  # a later id counts from 0
            return
        for partition in partitions:
            next_sequence = _SEQUENCES - left
            sequences._partitions[partition] = _worn(producer_id, epoch, next_sequence)  # pyright: ignore[reportPrivateUsage]
            (log,) = cluster.logs(*partition)
            log.producers[producer_id] = _remembered(producer_id, epoch, next_sequence - 1)
            watch.assume(partition, producer_id, epoch, next_sequence)

    sequences.set_producer_id = set_producer_id  # type: ignore[method-assign]  # nothing else can age a producer


def _worn(producer_id: int, epoch: int, next_sequence: int) -> _Partition:
    state = _Partition()
    state.start_over(producer_id, epoch)
    state.next_sequence, state.last_acked, state.acknowledged = next_sequence, next_sequence - 1, True
    return state


def _remembered(producer_id: int, epoch: int, last_sequence: int) -> ProducerState:
    state = ProducerState(epoch)
    header = BatchHeader(-1, 0, 0, 2, 0, 0, 0, 0, 0, producer_id, epoch, last_sequence, 1)
    state.remember(header, -1, 0)
    return state
