"""The responses to Produce requests without any broker: a test sends batches, and says what was answered."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from aioproducer.config import ProducerConfig
from aioproducer.core.answers import ProduceAnswer
from aioproducer.core.batches import ProducerBatch
from aioproducer.core.cluster import ClusterMetadata
from aioproducer.delivery import Delivery
from aioproducer.engine.produce_answers import ProduceAnswers
from aioproducer.errors import BrokerConnectionError, KafkaError
from aioproducer.net.client import NetworkClient
from aioproducer.net.connection import Answer
from aioproducer.protocol.messages import NodeEndpoint, PartitionProduceResponse
from aioproducer.runtime.log import ClientLog
from aioproducer.transactions.link import TransactionLink
from aioproducer.types import TopicPartition
from tests.rig import LINGER, Rig
from tests.sender_rig import shared_acknowledgements

__all__ = ["FIRST", "NOW", "Client", "Desk", "Sent"]

NOW = 50.0
FIRST = TopicPartition("t", 0)


class Client:
    """The cluster, and which topics' metadata were requested."""

    def __init__(self, metadata: ClusterMetadata) -> None:
        self.metadata = metadata
        self.updates: list[str] = []

    def request_update(self, topic: str) -> None:
        self.updates.append(topic)


class Sent(NamedTuple):
    """A batch of partition 0 that is in flight, and the deliveries of its records."""

    batch: ProducerBatch
    deliveries: Sequence[Delivery]

    @property
    def outcomes(self) -> list[type[BaseException] | None]:
        """The classes of the errors of its records, None for what was written or has no outcome yet."""
        errors = [each.exception() if each.done() else None for each in self.deliveries]
        return [None if each is None else type(each) for each in errors]

    @property
    def error(self) -> KafkaError:
        error = self.deliveries[0].exception()
        assert isinstance(error, KafkaError)
        return error

    @property
    def is_waiting(self) -> bool:
        return not any(each.done() for each in self.deliveries)


class Desk:
    """`ProduceAnswers` over a rig, without any broker: the test says what was answered."""

    def __init__(
        self,
        *,
        idempotent: bool = True,
        transactions: TransactionLink | None = None,
        expiration_ms: int = -1,  # repeat what has any timestamp
        **options: Any,
    ) -> None:
        self.rig = Rig(idempotent=idempotent, transactions=transactions)
        self.client = Client(self.rig.metadata)
        client = cast("NetworkClient", self.client)
        outcomes = self.rig.accumulator.outcomes
        shared = None if transactions is None else shared_acknowledgements(self.rig, client)
        self.answers = ProduceAnswers(
            ProducerConfig(
                "localhost:9092", enable_idempotence=idempotent, producer_id_expiration_ms=expiration_ms, **options
            ),
            outcomes,
            client,
            self.rig.sequences,
            self.rig.metrics,
            ClientLog("test"),
            transactions,
            shared,
        )

    def send(self, count: int = 1, *, size: int = 100) -> Sent:
        deliveries = [self.rig.put(size=size) for _ in range(count)]
        (batch,) = self.rig.drain(LINGER)
        assert batch.count == count
        return Sent(batch, deliveries)

    def send_aged(self, age_ms: int) -> Sent:
        """A batch of one record that has a timestamp of this age."""
        timestamp_ms = time.time_ns() // 1_000_000 - age_ms
        delivery = self.rig.accumulator.try_append(self.rig.topic, 0, timestamp_ms, None, b"value", (), 100, 0.0)
        assert delivery is not None
        (batch,) = self.rig.drain(LINGER)
        return Sent(batch, [delivery])

    def take(self, *sent: Sent, answer: Answer[ProduceAnswer]) -> None:
        self.answers.take(1, [each.batch for each in sent], answer, NOW)

    def answer(
        self,
        sent: Sent,
        code: int = 0,
        *,
        base_offset: int = 7,
        throttle_time_ms: int = 0,
        endpoints: Sequence[NodeEndpoint] = (),
        **said: Any,
    ) -> None:
        reported = PartitionProduceResponse(index=0, error_code=code, base_offset=-1 if code else base_offset, **said)
        self.take(sent, answer=ProduceAnswer([reported], endpoints, throttle_time_ms))

    def lose(self, sent: Sent) -> None:
        """The answer is lost, and the batch goes out again."""
        self.take(sent, answer=BrokerConnectionError("it broke"))
        self.again(sent)

    def again(self, sent: Sent) -> None:
        """The pause is over: the batch goes out again, the same one."""
        assert self.rig.drain(NOW + 20) == [sent.batch]

    def waits(self, sent: Sent) -> bool:
        """Whether the batch is back in its queue."""
        return sent.is_waiting and sent.batch in self.rig.accumulator.queues.by_partition[FIRST].batches
