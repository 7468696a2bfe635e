"""Decides whether a broker may have forgotten a producer, so that it would mistake a repeated batch for a new one.

A broker detects a repeat by the state that it keeps of each producer in each partition. That state is as old as the latest
timestamp in the batch that was written last: the records' own timestamps, unless the topic has LogAppendTime. Every ten
minutes (producer.id.expiration.check.interval.ms), and when it loads the state after a clean restart, the broker drops what
is older than producer.id.expiration.ms, and from then on accepts any sequence. A producer with an open transaction in the
partition is kept (ProducerStateManager.isProducerExpired, in every release since idempotence exists).

So a batch that may have been written is repeated only while its broker certainly remembers the producer. No request repeats
it safely otherwise: a broker without state checks nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from aioproducer.errors import KafkaError

__all__ = ["NEVER", "may_be_forgotten", "not_repeated"]

#: The value of ``producer_id_expiration_ms`` with which every batch is repeated.
NEVER = -1


def may_be_forgotten(latest_timestamps: Iterable[int], until_ms: int, expiration_ms: int) -> bool:
    """Whether the state may be gone before ``until_ms``, the latest arrival of the repeat.

    ``latest_timestamps`` are those of the batch and of all later ones that were sent: any of them may have been
    written last.
    """
    return any(until_ms - timestamp >= expiration_ms for timestamp in latest_timestamps)


def not_repeated(oldest_ms: int, now_ms: int, expiration_ms: int, lost: KafkaError) -> KafkaError:
    """The reason not to repeat a batch after ``lost``, which left its outcome open.

    ``oldest_ms`` is the relevant timestamp.
    """
    error = KafkaError(
        f"It is unknown whether the batch was written ({lost}), and it is not retried: its timestamps are "
        f"{_words(now_ms - oldest_ms)} old, and a broker forgets a producer whose latest timestamp is older than its "
        f"producer.id.expiration.ms (assumed to be {_words(expiration_ms)}: producer_id_expiration_ms), so a retry could "
        "write the records twice. Write old records in a transaction, because brokers remember a producer while its "
        "transaction is open; or set producer_id_expiration_ms=-1 to retry and accept duplicates."
    )
    error.__cause__ = lost
    return error


def _words(milliseconds: int) -> str:
    for unit, size in (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000)):
        count = milliseconds // size
        if count:
            return f"{count} {unit}{'s' if count > 1 else ''}"
    return f"{milliseconds} ms"
