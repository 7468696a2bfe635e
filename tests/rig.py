"""An accumulator whose clock and chance are arguments, for the tests of what decides when a batch leaves."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

from aioproducer.accumulator.accumulator import RecordAccumulator
from aioproducer.accumulator.buffer_pool import BufferPool
from aioproducer.accumulator.settings import AccumulatorSettings
from aioproducer.core.backoff import ExponentialBackoff
from aioproducer.core.batches import ProducerBatch
from aioproducer.core.cluster import ClusterMetadata, TopicMetadata
from aioproducer.core.sequences import Sequences
from aioproducer.delivery import BatchFailure, Delivery, PendingCall, ProduceResult
from aioproducer.metrics.producer import ProducerMetrics
from aioproducer.protocol.messages import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aioproducer.runtime.log import ClientLog
from aioproducer.transactions.link import TransactionLink
from aioproducer.types import TopicPartition

__all__ = ["LINGER", "MIB", "TIMEOUT", "Rig"]

LINGER = 5.0
TIMEOUT = 100.0
MIB = 2**20


class Rig:
    """An accumulator whose clock is an argument, with the cluster that it sends to."""

    def __init__(
        self,
        partitions: int = 3,
        nodes: int = 1,
        *,
        idempotent: bool = True,
        memory: int = MIB,
        random: Callable[[], float] = lambda: 0.0,
        transactions: TransactionLink | None = None,
        shape: Sequence[int] = (),
        **options: Any,
    ):
        self.log = ClientLog("test")
        self.metadata = ClusterMetadata()
        self.woken = 0
        self.unobserved_records = 0
        self.late: list[tuple[TopicPartition, int]] = []
        self.pool = BufferPool(memory)
        self.metrics = ProducerMetrics()
        self.sequences = Sequences(idempotent=idempotent, gate=transactions)
        if idempotent and transactions is None:
            self.sequences.set_producer_id(1, 0)
        chosen = AccumulatorSettings(
            **{
                "batch_size": 1000,
                "linger_s": LINGER,
                "delivery_timeout_s": TIMEOUT,
                "retry_backoff": ExponentialBackoff(1.0, 10.0, jitter=0.0),
                "max_request_size": MIB,
                **options,
            }
        )
        self.accumulator = RecordAccumulator(
            chosen,
            self.metadata,
            self.pool,
            self.sequences,
            self.metrics,
            self,
            wake_sender=self._wake,
            random=random,
            on_late=lambda partition, records: self.late.append((partition, records)),
            transaction=transactions,
            shape=shape,
        )
        self.lead({partition: 1 + partition % nodes for partition in range(partitions)}, nodes)

    def _wake(self) -> None:
        self.woken += 1

    def check_waiter(self, loop: object) -> None:
        pass

    def call_soon(self, calls: Sequence[PendingCall]) -> None:
        for _, delivery, callback in calls:
            callback(delivery)

    def unobserved(self, failure: BatchFailure, indexes: Sequence[int]) -> None:
        self.unobserved_records += len(indexes)

    def remember(self, result: ProduceResult) -> None:
        pass

    def lead(self, leaders: dict[int, int], nodes: int = 1, epoch: int = 0, topic_id: int = 1) -> None:
        """Tell who leads which partition."""
        self.metadata.update(
            MetadataResponse(
                throttle_time_ms=0,
                brokers=[
                    MetadataResponseBroker(node_id=node, host="h", port=node, rack=None) for node in range(1, nodes + 1)
                ],
                cluster_id="c",
                controller_id=1,
                topics=[
                    MetadataResponseTopic(
                        error_code=0,
                        name="t",
                        topic_id=uuid.UUID(int=topic_id),
                        is_internal=False,
                        partitions=[
                            MetadataResponsePartition(
                                error_code=0,
                                partition_index=partition,
                                leader_id=leader,
                                leader_epoch=epoch,
                                replica_nodes=[],
                                isr_nodes=[],
                                offline_replicas=[],
                            )
                            for partition, leader in leaders.items()
                        ],
                    )
                ],
            )
        )

    @property
    def topic(self) -> TopicMetadata:
        return self.metadata.topics["t"]

    def put(self, partition: int | None = 0, now: float = 0.0, size: int = 100) -> Delivery:
        delivery = self.accumulator.try_append(self.topic, partition, 1, None, b"x" * size, (), size + 30, now)
        assert delivery is not None
        return delivery

    def drain(self, now: float = 0.0, node: int = 1, limit: int = MIB) -> list[ProducerBatch]:
        self.accumulator.queues.tick(now)
        return self.accumulator.drain(node, limit, now)

    def acknowledge(self, *batches: ProducerBatch, now: float = 0.0) -> None:
        for batch in batches:
            self.accumulator.outcomes.complete(batch, 0, -1, now)

    def settle(self, now: float) -> None:
        self.sequences.settle(lambda partition: self.accumulator.queues.place_again(partition, now))

    def one_in_flight(self) -> ProducerBatch:
        """A batch of partition 0 that travels, after the first acknowledgement lets others follow it."""
        self.put()
        self.acknowledge(*self.drain())
        self.put()
        (batch,) = self.drain()
        return batch

    def ready(self, now: float) -> bool:
        self.accumulator.queues.tick(now)
        return bool(self.accumulator.queues.ready_nodes())
