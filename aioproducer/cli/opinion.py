"""Asks librdkafka which partition each key belongs to, by sending each once: it has its own port of Java's murmur2."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from aioproducer.cli.readback import ReadBackFailed

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

__all__ = ["partitions_of"]

_PATIENCE: Final = 30.0


def partitions_of(
    keys: Collection[bytes], connection: Mapping[str, str], topic: str, patience: float = _PATIENCE
) -> Mapping[bytes, int]:
    """The partition that confluent-kafka's producer chooses for each key, in a topic with the same number of partitions.

    ``connection`` is librdkafka's configuration. Writes one record per key to the topic. Raises ReadBackFailed if one is
    not acknowledged within ``patience`` seconds.
    """
    from confluent_kafka import Producer

    homes: dict[bytes, int] = {}
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        key, partition = message.key(), message.partition()
        if error is not None or not isinstance(key, bytes) or partition is None:
            errors.extend([error] if error is not None else [])
        else:
            homes[key] = partition

    producer = Producer(
        {
            **connection,
            "partitioner": "murmur2_random",  # Java's partitioner
            "message.timeout.ms": int(patience * 1000),
            "queue.buffering.max.messages": max(len(keys), 1),
            "log_level": 3,
        }
    )
    for key in keys:
        producer.produce(topic, key=key, on_delivery=delivered)
    producer.flush(patience)
    if len(homes) != len(keys):
        why = errors[0].str() if errors else f"no acknowledgement within {patience:g} s"
        raise ReadBackFailed(
            f"confluent-kafka could not confirm the keys' partitions: of {len(keys):,} it sent {len(homes):,} to topic "
            f"{topic!r}; {why}."
        )
    return homes
