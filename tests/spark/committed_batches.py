"""Watches a topic as a consumer with read_committed while it is written, and finds batches that are visible by halves.

The markers of one commit reach the partitions one after the other, and a reader asks one partition after the other, so for a
moment the newest batch may be seen in part. But a transaction begins when the markers of the one before are all written:
where a row of a batch is visible, every batch before it is, in whatever is read from then on.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from types import TracebackType
from typing import Final, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

__all__ = ["CommittedBatches"]

_PATIENCE: Final = 60.0

#: How long a look waits for something new.
_PAUSE: Final = 0.1


class CommittedBatches:
    """The records read so far: the values are numbers from 0 upward, ``size`` of them in each batch.

    ``longest_part`` is for how many seconds at most the newest batch was seen in part.
    """

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int, size: int) -> None:
        self.seen: Counter[int] = Counter()
        self.rounds = 0
        self.longest_part = 0.0
        self._size = size
        self._part_since: dict[int, float] = {}
        self._reached: Counter[int] = Counter()
        self._partitions = [TopicPartition(topic, partition, 0) for partition in range(partitions)]
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": f"watch-{uuid.uuid4()}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,  # by it the offsets of markers, which are no messages, count as read
                "fetch.wait.max.ms": 50,
            }
        )

    def __enter__(self) -> Self:
        self._consumer.assign(self._partitions)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._consumer.close()

    @property
    def complete(self) -> int:
        """The number of batches that were seen as a whole."""
        return sum(rows == self._size for rows in self._by_batch().values())

    def look(self) -> None:
        """Read up to where the transactions of all partitions are decided now, and judge what is there.

        AssertionError: a row that comes twice, and for a part of a batch that is missing when a later one is seen.
        """
        newest = max(self._by_batch(), default=0)
        self._read({each.partition: self._stable_end(each) for each in self._partitions})
        self.rounds += 1
        by_batch, now = self._by_batch(), time.monotonic()
        parts = [batch for batch in range(max(by_batch, default=-1) + 1) if by_batch[batch] < self._size]
        torn = [batch for batch in parts if batch < newest]
        assert not torn, f"of batch {torn} a part is missing, and batch {newest} is visible"
        self._part_since = {batch: self._part_since.get(batch, now) for batch in parts}
        self.longest_part = max([self.longest_part, *(now - since for since in self._part_since.values())])

    def _by_batch(self) -> Counter[int]:
        return Counter(number // self._size for number in self.seen)

    def _stable_end(self, partition: TopicPartition) -> int:
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:  # with read_committed it is the stable end that is returned
                _, end = self._consumer.get_watermark_offsets(partition, timeout=_PATIENCE)
                return int(end)
            except KafkaException as error:  # a leader that has just been elected says so for a moment
                if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION or time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE)

    def _read(self, ends: dict[int, int]) -> None:
        deadline = time.monotonic() + _PATIENCE
        while True:
            message = self._consumer.poll(_PAUSE)
            if message is not None:
                self._take(message)
            if all(self._reached[partition] >= end for partition, end in ends.items()):
                return
            assert time.monotonic() < deadline, f"read up to {self._reached}, not to {ends}"

    def _take(self, message: Message) -> None:
        partition, offset, error = message.partition() or 0, message.offset() or 0, message.error()
        if error is None:
            number = int(message.value() or b"")
            self.seen[number] += 1
            assert self.seen[number] == 1, f"row {number} of batch {number // self._size} is there twice"
            self._reached[partition] = offset + 1
        elif error.code() == KafkaError._PARTITION_EOF:
            self._reached[partition] = offset
        else:
            raise AssertionError(str(error))
