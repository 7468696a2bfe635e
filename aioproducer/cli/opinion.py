"""Asks librdkafka where keys belong, by sending each of them once: its murmur2 is written by others, after Java's."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from aioproducer.cli.readback import ReadBackFailed

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

__all__ = ["partitions_of"]

_PATIENCE: Final = 30.0


def partitions_of(
    keys: Collection[bytes], bootstrap_servers: str, topic: str, patience: float = _PATIENCE
) -> Mapping[bytes, int]:
    """The partition in which confluent-kafka's producer puts each key, in a topic that has as many as the other one.

    The topic gets a record for each key. Raises ReadBackFailed where one is not acknowledged within ``patience`` seconds.
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
            "bootstrap.servers": bootstrap_servers,
            "partitioner": "murmur2_random",  # Java's way
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
            f"confluent-kafka could not tell where the keys belong: of {len(keys):,} it sent {len(homes):,} to topic "
            f"{topic!r}; {why}."
        )
    return homes
