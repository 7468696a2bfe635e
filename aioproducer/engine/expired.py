"""Says why a record was not delivered in its time: what it waited for, and what brokers have answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.errors import BrokerError, KafkaError, KafkaTimeoutError, ProducerClosed
from aioproducer.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from aioproducer.core.batches import ProducerBatch
    from aioproducer.core.cluster import Loss
    from aioproducer.net.client import NetworkClient
    from aioproducer.runtime.pulse import Pulse
    from aioproducer.types import TopicPartition

__all__ = ["expired", "lost", "not_enough", "waiting_for_lost"]


def expired(
    batch: ProducerBatch, timeout_s: float, client: NetworkClient, pulse: Pulse, now: float
) -> KafkaTimeoutError:
    """The cause for a batch whose delivery timeout is over."""
    attempts = f"after {_count(batch.attempts, 'attempt')}" if batch.attempts else "before the first attempt"
    over = f"delivery_timeout_ms ({timeout_s:g} s) expired {attempts}."
    if batch.last_failure is None:
        batch.last_failure = client.last_failure
    blocked = pulse.blame(batch.created_at, now)
    if blocked:
        over = f"{over} {blocked}"
    cause = KafkaTimeoutError(_with_reasons(over, batch, client, now))
    cause.__cause__ = _last_error(batch)
    return cause


def lost(partition: TopicPartition, loss: Loss) -> BrokerError:
    """The cause for a batch whose partition is gone for good."""
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return BrokerError(
        code,
        code.name,
        f"Partition {partition.partition} of topic {partition.topic!r} does not exist any more: the topic was created again "
        f"with {_numbered(loss.has)}, and had {loss.had} before. Send the record again to let the partitioner choose.",
    )


def not_enough(batch: ProducerBatch, seconds: float, client: NetworkClient, now: float) -> ProducerClosed:
    """The cause for a batch that a close gives up after so many seconds."""
    late = f"The producer was closed, and {seconds:g} s were not enough to deliver this record."
    cause = ProducerClosed(_with_reasons(late, batch, client, now))
    cause.__cause__ = _last_error(batch)
    return cause


def _last_error(batch: ProducerBatch) -> KafkaError | None:
    return None if batch.last_failure is None else batch.last_failure.error


def _with_reasons(text: str, batch: ProducerBatch, client: NetworkClient, now: float) -> str:
    loss = client.metadata.lost(*batch.partition)
    if loss is not None:
        text = f"{_lost(batch.partition, loss, now)} {text}"
    return text if batch.last_failure is None else f"{text} {batch.last_failure.sentence(now)}"


def waiting_for_lost(topic: str, loss: Loss, waiting: int, timeout_s: float) -> tuple[str, *tuple[object, ...]]:
    """The line for the log about records that wait for partitions that are lost: its format and arguments."""
    if not loss.has:
        return (
            "Topic %r is not known to the brokers any more; it had %s. %d record(s) wait for it. They fail when "
            "delivery_timeout_ms (%g s) is over, unless it comes back.",
            topic,
            _count(loss.had, "partition"),
            waiting,
            timeout_s,
        )
    return (
        "Topic %r has %s now, and had %d: %d record(s) wait for a partition that does not exist any more. They fail if "
        "the next metadata response confirms this.",
        topic,
        _count(loss.has, "partition"),
        loss.had,
        waiting,
    )


def _lost(partition: TopicPartition, loss: Loss, now: float) -> str:
    seconds = f"{now - loss.since:.0f} s"
    if not loss.has:
        return (
            f"Topic {partition.topic!r} does not exist any more, or this client has no permission to see it: brokers "
            f"have not known it for {seconds} (it had {_numbered(loss.had)})."
        )
    return (
        f"Partition {partition.partition} of topic {partition.topic!r} does not exist any more: for {seconds} the "
        f"topic has had {_numbered(loss.has)}; before that it had {loss.had}."
    )


def _numbered(partitions: int) -> str:
    return "1 partition, 0" if partitions == 1 else f"{partitions} partitions, 0 to {partitions - 1}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
