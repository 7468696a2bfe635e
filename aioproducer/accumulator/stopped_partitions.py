"""The partitions that a lost record has stopped (``on_data_loss="stop"``).

A record is lost if it was accepted and then given up, for any reason but a call of the program: `purge` and `close` lose
nothing that the program does not know of. From then on nothing more of that partition is sent until `resume`, except
batches that precede the lost one. So the log holds no record behind a hole: batches that are in flight behind it are written
only if the lost one was written too, because brokers accept the sequences of a producer only one after the other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from aioproducer.core.batches import ProducerBatch
from aioproducer.delivery import BatchFailure, UnobservedSink
from aioproducer.errors import DeliveryError, KafkaError, PartitionStopped, ProducerStateError, RecordsPurged
from aioproducer.types import TopicPartition

__all__ = ["StoppedPartitions"]

#: Causes that stop nothing: the program asked for it, the producer has ended, or the partition is stopped already.
_NO_LOSS = (PartitionStopped, ProducerStateError, RecordsPurged)


class _Loss(NamedTuple):
    """The first batch of a partition that was lost."""

    ordinal: tuple[int, ...]
    failure: BatchFailure


class _Past(NamedTuple):
    """A loss without which the program goes on: its batches in flight up to ``newest``, and what is said of them.

    It does not hold the lost records.
    """

    ordinal: tuple[int, ...]
    newest: tuple[int, ...]
    text: str
    cause: KafkaError


#: The place of a record that was lost before it was in any batch: behind everything of its partition.
_LAST: Final = (sys.maxsize,)


class StoppedPartitions:
    """Knows which partitions are stopped, and why."""

    def __init__(self, sink: UnobservedSink, *, is_enabled: bool) -> None:
        self.is_enabled = is_enabled
        #: By partition; empty most of the time, which is what the frequent checks look at first.
        self.losses: dict[tuple[str, int], _Loss] = {}
        #: Called with the topic of a partition that stops or goes on.
        self.on_change: Callable[[str], object] = lambda topic: None
        self._past: dict[TopicPartition, _Past] = {}
        self._sink = sink

    def note(self, batch: ProducerBatch, failure: BatchFailure) -> None:
        """Stop the partition of a batch that is given up, if that is a loss."""
        if self.is_enabled:
            self._note(batch.partition, batch.ordinal, failure)

    def note_last(self, partition: TopicPartition, failure: BatchFailure) -> None:
        """Stop the partition of a record that was lost on its way to a batch, behind everything that is in batches."""
        if self.is_enabled:
            self._note(partition, _LAST, failure)

    def _note(self, partition: TopicPartition, ordinal: tuple[int, ...], failure: BatchFailure) -> None:
        known = self.losses.get(partition)
        if isinstance(failure.cause, _NO_LOSS) or (known is not None and known.ordinal < ordinal):
            return
        loss = self.losses[partition] = _Loss(ordinal, failure)
        if known is None:
            self._sink.log.error("%s", _text(partition, loss), extra=partition._asdict())
            self.on_change(partition.topic)

    def is_behind_loss(self, batch: ProducerBatch) -> bool:
        """Whether a batch comes after the lost one of its partition, so that it must not be sent.

        Also if the program goes on without that one: what it sends from then on would be overtaken by a retry.
        """
        if not self.losses and not self._past:
            return False
        loss = self.losses.get(batch.partition)
        if loss is not None and loss.ordinal < batch.ordinal:
            return True
        past = self._past.get(batch.partition)
        return past is not None and past.ordinal < batch.ordinal <= past.newest

    def claim(self, partition: TopicPartition) -> None:
        """Raise `PartitionStopped` if the partition accepts no records."""
        if partition in self.losses:
            raise self.refusal(partition)

    def refusal(self, partition: TopicPartition) -> PartitionStopped:
        """The reason why a record is not sent to a partition that is stopped, or was when the record was in flight."""
        loss = self.losses.get(partition)
        if loss is None:
            _, _, text, cause = self._past[partition]
        else:
            text, cause = _text(partition, loss), loss.failure.cause
        error = PartitionStopped(text)
        error.__cause__ = cause
        return error

    def errors(self) -> Mapping[TopicPartition, DeliveryError]:
        """The stopped partitions, each with the error of its first lost record."""
        return {TopicPartition(*partition): loss.failure.error_for(0) for partition, loss in self.losses.items()}

    def resume(
        self,
        topic: str | None,
        partition: int | None,
        newest: Callable[[TopicPartition], tuple[int, ...] | None],
    ) -> tuple[TopicPartition, ...]:
        """Let stopped partitions go on: one, those of a topic, or all; returns them in order.

        ``newest`` returns the place of a partition's last batch in flight, None if there is none.
        """
        found = sorted(
            TopicPartition(*each)
            for each in self.losses
            if (topic is None or each[0] == topic) and (partition is None or each[1] == partition)
        )
        for each in found:
            loss, last = self.losses.pop(each), newest(each)
            if last is not None and loss.ordinal < last:
                self._past[each] = _Past(loss.ordinal, last, _text(each, loss), loss.failure.cause)
            self._sink.log.info("%s continues without the records that were lost", each, extra=each._asdict())
            self.on_change(each.topic)
        return tuple(found)


def _text(partition: TopicPartition, loss: _Loss) -> str:
    fate = "may be lost" if loss.failure.possibly_written else "is lost"
    return (
        f"{partition} is stopped (on_data_loss='stop'), because an earlier record {fate}: "
        f"{str(loss.failure.cause).rstrip('.')}. resume({partition.topic!r}, {partition.partition}) lets it continue "
        f"without that record."
    )
