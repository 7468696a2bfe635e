"""Keeps the queue of each partition in its place, and knows when it is due.

The cost of asking "what can be sent?" does not depend on the number of partitions. A partition's queue is in exactly
one place:

- *ready*, at the node that leads it: the Sender may drain it;
- *leaderless*: it would be ready, but its leader is unknown;
- *blocked*: its first batch must wait for a sequence, for its compression, or for the answers to batches that were sent to
  a deleted topic of the same name: the new one would accept a later sequence before theirs;
- *waiting* for a time: the end of its linger (`Linger`) or of a retry's backoff;
- *pausing*: it would be ready, but the Sender lets others have their turn (`Pause`);
- nowhere, when it is empty.

`Queues._place_of` is the policy. It is evaluated again when something changes that it depends on:

- the batches of the queue, or its batches in flight: `place`, or `promote` if its turn can only have come nearer;
- the numbers of a partition, or its compression: `place_again`; the producer id: `unblock`;
- the leaders: `reroute`;
- the time: `tick`; the end of a pause: `end_pause`;
- memory is exhausted, or a flush or close waits: `end_linger`.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator, Sequence, Set
from itertools import count

from aioproducer.accumulator.linger import Linger
from aioproducer.accumulator.partition_queue import PartitionQueue
from aioproducer.core.batches import ProducerBatch
from aioproducer.core.cluster import ClusterMetadata
from aioproducer.core.pause import Pause
from aioproducer.core.sequences import Sequences
from aioproducer.types import TopicPartition

__all__ = ["Queues"]


_Place = OrderedDict[PartitionQueue, None]


class Queues:
    """The queues of all partitions, each in its place, and their due times."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        linger: Linger,
        sequences: Sequences,
        *,
        delivery_timeout_s: float,
    ) -> None:
        #: By topic and number: a `TopicPartition` equals a plain tuple, which is cheaper to create.
        self.by_partition: dict[tuple[str, int], PartitionQueue] = {}
        self.linger = linger
        self._metadata = metadata
        self._sequences = sequences
        self._delivery_timeout_s = delivery_timeout_s
        self._topics: set[str] = set()
        self._ready: dict[int, _Place] = {}
        self._leaderless: _Place = OrderedDict()
        self._blocked: _Place = OrderedDict()
        self._waiting: _Place = OrderedDict()
        self._pausing: _Place = OrderedDict()
        self._pause = Pause()
        self._timers: list[tuple[float, int, PartitionQueue]] = []
        self._expiries: list[tuple[float, int, PartitionQueue]] = []
        self._entries = count()  # entries that are due at the same time keep the order in which they were added

    def of(self, topic: str, partition: int) -> PartitionQueue:
        """The queue of this partition, a new one if it has none."""
        queue = self.by_partition.get((topic, partition))
        if queue is None:
            named = TopicPartition(topic, partition)
            queue = self.by_partition[named] = PartitionQueue(named)
            self._topics.add(topic)
        return queue

    # -- the policy ---------------------------------------------------------------------------------------------------

    def _place_of(self, queue: PartitionQueue, now: float) -> _Place | None:
        """The place where the queue belongs now."""
        if not queue.batches:
            return None
        head = queue.batches[0]
        if self._pause.until > now and self.linger.may_fill(queue, head):
            return self._pausing
        leader = self._metadata.leader(*queue.partition)
        if head.retry_at or queue.in_flight:
            due = self._due(queue, head, leader)
            if due > now:
                self._set_timer(queue, due)
                return self._waiting
        if leader is None:
            return self._leaderless
        if (
            head.is_sealing
            or not self._sequences.may_drain(head)
            or (queue.in_flight and self._is_created_again(queue))
        ):
            return self._blocked
        ready = self._ready.get(leader[0])
        if ready is None:
            ready = self._ready[leader[0]] = OrderedDict()
        return ready

    def _is_created_again(self, queue: PartitionQueue) -> bool:
        """Whether the topic is not the one any more that the batches in flight were sent to (KIP-516)."""
        known = self._metadata.topics.get(queue.partition.topic)
        return known is not None and known.topic_id != queue.topic_id

    def _due(self, queue: PartitionQueue, head: ProducerBatch, leader: tuple[int, int] | None) -> float:
        """The time from which the first batch may be sent; 0.0 for at once."""
        if head.retry_at:
            # A leader elected since the last attempt justifies an attempt now (KIP-951).
            moved = leader is not None and leader[1] > head.leader_epoch >= 0
            return 0.0 if moved else head.retry_at
        return self.linger.end(queue, head)

    # -- changes of one queue ------------------------------------------------------------------------------------

    def place(self, queue: PartitionQueue, now: float) -> None:
        """Put the queue where it belongs now.

        A queue that is there already keeps its turn: otherwise the busiest partition would always be last.
        """
        place = self._place_of(queue, now)
        if place is not queue.place:
            if queue.place is not None:
                del queue.place[queue]
            queue.place = place
            if place is not None:
                place[queue] = None

    def promote(self, queue: PartitionQueue, now: float) -> None:
        """`place` a queue whose turn can only have come nearer: a ready one stays ready."""
        place = queue.place
        if (
            place is None
            or place is self._waiting
            or place is self._pausing
            or place is self._blocked
            or place is self._leaderless
        ):
            self.place(queue, now)

    def place_again(self, partition: TopicPartition, now: float) -> None:
        """Place one partition again, if it has a queue: its sequences advanced, or its first batch changed."""
        queue = self.by_partition.get(partition)
        if queue is not None:
            self.place(queue, now)

    def block(self, queue: PartitionQueue) -> None:
        """Block a queue that had its turn: its first batch cannot be sent yet."""
        self._blocked[queue] = None
        queue.place = self._blocked

    # -- changes of many queues ---------------------------------------------------------------------------------------

    def end_linger(self, now: float) -> None:
        """Make ready what only lingers, or waits for the end of a pause."""
        for queue in [*self._waiting, *self._pausing]:
            self.place(queue, now)

    def reroute(self, now: float) -> None:
        """Place the queues that depend on leaders again, after a change of the metadata."""
        for queue in [
            *(queue for ready in self._ready.values() for queue in ready),
            *self._leaderless,
            *(queue for queue in self._waiting if queue.batches and queue.batches[0].retry_at),
        ]:
            self.place(queue, now)

    def unblock(self, now: float) -> None:
        """Place the blocked queues again: there is a producer id to number their batches with."""
        for queue in list(self._blocked):
            self.place(queue, now)

    def topics_besides(self, known: Set[str]) -> Set[str]:
        """The topics that have queues, except the known ones."""
        return self._topics - known

    def records_of(self, topic: str, first: int) -> int:
        """The number of records that wait or are in flight for partitions of the topic from this number on."""
        return sum(
            batch.count
            for queue in self.by_partition.values()
            if queue.partition.topic == topic and queue.partition.partition >= first
            for batch in (*queue.batches, *queue.in_flight)
            if not batch.given_up
        )

    def forget_idle(self, topics: Set[str]) -> tuple[Set[str], Sequence[TopicPartition]]:
        """Drop the queues of idle topics among these; returns those topics and their partitions."""
        queues = [queue for queue in self.by_partition.values() if queue.partition.topic in topics]
        idle = topics - {queue.partition.topic for queue in queues if not queue.is_idle}
        partitions = [queue.partition for queue in queues if queue.partition.topic in idle]
        for partition in partitions:
            del self.by_partition[partition]
        self._topics -= idle
        return idle, partitions

    # -- the time -----------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """End the timers that are due, and the pause."""
        if self._pausing and self._pause.until <= now:
            self.end_pause(now)
        timers = self._timers
        while timers and timers[0][0] <= now:
            due, _, queue = heapq.heappop(timers)
            if queue.timer == due:
                queue.timer = 0.0
                self.place(queue, now)

    def next_deadline(self) -> float | None:
        """The next due time: of a linger, a backoff, an expiry, or the end of a pause."""
        timer = self._timers[0][0] if self._timers else None
        if self._pausing and (timer is None or self._pause.until < timer):
            timer = self._pause.until
        expiry = self._expiries[0][0] if self._expiries else None
        if timer is None or expiry is None:
            return timer if expiry is None else expiry
        return min(timer, expiry)

    def _set_timer(self, queue: PartitionQueue, due: float) -> None:
        if not 0.0 < queue.timer <= due:
            queue.timer = due
            heapq.heappush(self._timers, (due, next(self._entries), queue))

    def expire(self, now: float) -> list[ProducerBatch]:
        """The batches whose delivery timeout is over; waiting ones are taken out of their queues.

        The caller must give each of them up.
        """
        expired: list[ProducerBatch] = []
        expiries = self._expiries
        timeout = self._delivery_timeout_s
        while expiries and expiries[0][0] <= now:
            _, _, queue = heapq.heappop(expiries)
            queue.expiry_armed = False
            for batch in queue.in_flight:
                if not batch.given_up and batch.created_at + timeout <= now:
                    batch.given_up = True
                    expired.append(batch)
            while queue.batches and queue.batches[0].created_at + timeout <= now:
                expired.append(queue.batches.popleft())
            oldest = queue.oldest
            if oldest is not None:
                self.arm_expiry(queue, oldest)
            self.place(queue, now)
        return expired

    def take_lost(self, topic: str, first: int, now: float) -> list[ProducerBatch]:
        """Take the waiting batches for partitions of the topic from this number on out of their queues.

        The caller must give each of them up. Those in flight are refused, and then wait here.
        """
        lost: list[ProducerBatch] = []
        for queue in list(self._leaderless):
            if queue.partition.topic == topic and queue.partition.partition >= first:
                lost += queue.batches
                queue.batches.clear()
                self.place(queue, now)
        return lost

    def arm_expiry(self, queue: PartitionQueue, oldest: ProducerBatch) -> None:
        """Have `expire` look at the queue when its oldest batch expires."""
        queue.expiry_armed = True
        heapq.heappush(self._expiries, (oldest.created_at + self._delivery_timeout_s, next(self._entries), queue))

    # -- the Sender's pauses ------------------------------------------------------------------------------------------

    def worked(self, seconds: float, now: float) -> None:
        """The Sender began to work at ``now``, and worked for this time; other tasks may be owed a pause for it."""
        self._pause.worked(seconds, now)

    def is_paused(self, now: float) -> bool:
        """Whether the current time is owed to other tasks."""
        return self._pause.until > now

    @property
    def is_pausing(self) -> bool:
        """Whether batches wait for the end of a pause, which must be ended if no other task uses it."""
        return bool(self._pausing)

    def end_pause(self, now: float) -> None:
        """End the pause, and make the queues ready that waited for it."""
        self._pause.end()
        for queue in list(self._pausing):
            self.place(queue, now)

    # -- ready queues ----------------------------------------------------------------------------------------------

    def has_work(self, before: float) -> bool:
        """Whether any queue is ready, has no leader, waits for the end of a pause, or is due ``before`` this time."""
        timers, expiries = self._timers, self._expiries
        return bool(
            self._pausing
            or self._leaderless
            or (timers and timers[0][0] < before)
            or (expiries and expiries[0][0] < before)
            or any(self._ready.values())
        )

    def is_ready(self, node: int) -> bool:
        """Whether the node leads a partition with something to send."""
        return bool(self._ready.get(node))

    def ready_nodes(self) -> list[int]:
        """The nodes that lead a partition with something to send."""
        return [node for node, ready in self._ready.items() if ready]

    def leaderless_topics(self) -> Sequence[str]:
        """The topics with something to send and no known leader for it, sorted."""
        return sorted({queue.partition.topic for queue in self._leaderless}) if self._leaderless else ()

    def turns(self, node: int, most: int) -> Iterator[PartitionQueue]:
        """Take out the queues that are ready at the node, one after the other, each one once.

        The caller must place each of them: `place` if it is not empty, `block` or `give_turn_back`.
        """
        ready = self._ready[node]
        for _ in range(min(len(ready), most)):
            queue, _ = ready.popitem(last=False)
            queue.place = None
            yield queue

    def take(self, queue: PartitionQueue) -> None:
        """The first batch of a queue that has its turn is in flight from now on."""
        if not queue.in_flight:
            known = self._metadata.topics.get(queue.partition.topic)
            topic_id = None if known is None else known.topic_id
            if queue.topic_id != topic_id:
                if queue.topic_id is not None:
                    self._sequences.may_be_forgotten(queue.partition)
                queue.topic_id = topic_id
        queue.in_flight.append(queue.batches.popleft())

    def give_turn_back(self, queue: PartitionQueue, node: int) -> None:
        """Make a queue that was taken out the first one that is ready at the node."""
        ready = self._ready[node]
        ready[queue] = None
        ready.move_to_end(queue, last=False)
        queue.place = ready
