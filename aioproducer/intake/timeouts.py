"""The errors of calls that wait no longer: they say what the record waited for, and what went wrong last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.core.failed_attempt import latest
from aioproducer.errors import KafkaTimeoutError, NotWrittenTimeout, UnknownTimeout

if TYPE_CHECKING:
    from aioproducer.engine.engine import Engine
    from aioproducer.types import TopicPartition

__all__ = ["not_accepted", "not_acknowledged", "not_flushed"]


def not_accepted(text: str, topic: str, engine: Engine, seconds: float) -> NotWrittenTimeout:
    """The failure of a record that waited so long for metadata or room; ``text`` says for what."""
    client, now = engine.client, engine.loop.time()
    text = _with_block(text, engine, now - seconds, now)
    failure = client.topic_failure(topic) or client.last_failure
    late = NotWrittenTimeout(text if failure is None else f"{text} {failure.sentence(now)}")
    if failure is not None:
        late.last_error, late.__cause__ = failure.seen_at(now), failure.error
    return late


def _with_block(text: str, engine: Engine, began: float, now: float) -> str:
    blocked = engine.pulse.blame(began, now)
    return f"{text} {blocked}" if blocked else text


def not_acknowledged(partition: TopicPartition, seconds: float, engine: Engine) -> UnknownTimeout:
    """The error that `send` raises when its time runs out while the record is in flight; may be called in any thread."""
    client, now = engine.client, engine.loop.time()
    queue = engine.accumulator.queues.by_partition.get(partition)
    batches = () if queue is None else (*queue.in_flight, *queue.batches)
    last = latest(batch.last_failure for batch in batches) or client.last_failure
    late = _with_block(
        f"The record for {partition} was not acknowledged within {seconds:g} s.", engine, now - seconds, now
    )
    error = UnknownTimeout(
        f"{late} {'' if last is None else last.sentence(now) + ' '}It is still being sent; a failure will go to "
        "on_delivery_error."
    )
    error.topic, error.partition = partition
    error.last_error = None if last is None else last.seen_at(now)
    return error


def not_flushed(seconds: float, engine: Engine) -> KafkaTimeoutError:
    """The error of a flush whose time is over while records are waiting or in flight."""
    accumulator, now = engine.accumulator, engine.loop.time()
    last = accumulator.outcomes.last_failure or engine.client.last_failure
    text = _with_block(
        f"flush() took longer than {seconds:g} s: {accumulator.pending_records} record(s) still wait for their "
        "acknowledgement, and are still being sent.",
        engine,
        now - seconds,
        now,
    )
    error = KafkaTimeoutError(text if last is None else f"{text} {last.sentence(now)}")
    if last is not None:
        error.last_error, error.__cause__ = last.seen_at(now), last.error
    return error
