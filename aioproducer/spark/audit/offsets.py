"""The readable ranges of a topic: its partitions and stable offsets, from an independent client."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

__all__ = ["AuditFailed", "OffsetRange", "split_ranges", "stable_ranges"]

_ASK_TIMEOUT: Final = 15.0
_ASK_STEP: Final = 0.5
_POLL: Final = 0.2

#: librdkafka's names of errors that another attempt would only repeat.
_REFUSALS: Final = ("_AUTHENTICATION", "_SSL")


class AuditFailed(Exception):
    """The topic cannot be audited; the message gives the reason and what to do."""


class OffsetRange(NamedTuple):
    """The offsets of one partition from ``begin`` to ``end`` (exclusive)."""

    partition: int
    begin: int
    end: int

    @property
    def size(self) -> int:
        """The number of offsets, with or without a record."""
        return self.end - self.begin


def stable_ranges(config: Mapping[str, str], topic: str, patience: float) -> Sequence[OffsetRange]:
    """Each partition of the topic, from its first offset to its last stable one, in order.

    ``config`` is librdkafka's. An open transaction hides everything after it from read_committed readers, so this waits
    for its end, up to ``patience`` seconds. Raises AuditFailed if that is not enough, if the topic does not exist or if
    no broker answers.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    reported: list[KafkaError] = []
    # No log line for each attempt to connect: the error reports it.
    quiet: Mapping[str, Any] = {"log_level": 2, "error_cb": reported.append}
    try:
        admin = AdminClient({**config, **quiet})
        partitions = _partitions(admin, topic, reported)
        deadline = time.monotonic() + patience
        while True:
            first, stable, end = (_list_offsets(admin, topic, partitions, which) for which in _Which)
            unstable = [partition for partition in partitions if stable[partition] < end[partition]]
            if not unstable:
                return [OffsetRange(partition, first[partition], stable[partition]) for partition in partitions]
            if time.monotonic() > deadline:
                raise AuditFailed(
                    f"A transaction is open in partitions {unstable} of topic {topic!r} and has not ended within "
                    f"{patience:g} s; records after its first one ({topic}-{unstable[0]}, offset "
                    f"{stable[unstable[0]]}) cannot be checked yet. Audit again when its producer, or "
                    "transaction.timeout.ms, has ended it."
                )
            time.sleep(_POLL)
    except KafkaException as error:
        refusal = [each for each in reported if each.name() in _REFUSALS] or [error.args[0]]
        raise AuditFailed(f"could not read the offsets of topic {topic!r}: {refusal[0].str().rstrip('.')}.") from error


def split_ranges(ranges: Sequence[OffsetRange], most: int) -> Sequence[OffsetRange]:
    """The same offsets in ranges of at most ``most`` each, without empty ones."""
    return [
        OffsetRange(partition, begin, min(begin + most, end))
        for partition, first, end in ranges
        for begin in range(first, end, most)
    ]


def _partitions(admin: AdminClient, topic: str, reported: Sequence[KafkaError]) -> Sequence[int]:
    found = _topics(admin, reported).get(topic)  # asking for this one topic might create it
    if found is None or not found.partitions:
        why = f" ({found.error.str()})" if found is not None and found.error is not None else ""
        raise AuditFailed(f"There is no topic {topic!r} on this cluster{why}.")
    return sorted(found.partitions)


def _topics(admin: AdminClient, reported: Sequence[KafkaError]) -> Mapping[str, Any]:
    """All topics; raises KafkaException at once if a broker refuses TLS or login, which librdkafka only reports."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + _ASK_TIMEOUT
    while True:
        try:
            return admin.list_topics(timeout=_ASK_STEP).topics
        except KafkaException:
            admin.poll(0)
            if time.monotonic() > deadline or any(each.name() in _REFUSALS for each in reported):
                raise


#: The requested offset, and whether to count committed records only.
_Which: Final = (("earliest", False), ("latest", True), ("latest", False))


def _list_offsets(
    admin: AdminClient, topic: str, partitions: Sequence[int], which: tuple[str, bool]
) -> Mapping[int, int]:
    from confluent_kafka import IsolationLevel, TopicPartition

    specs: Any = import_module("confluent_kafka.admin").OffsetSpec

    name, committed = which
    spec = specs.earliest() if name == "earliest" else specs.latest()
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    asked: Mapping[Any, Any] = cast("Any", admin).list_offsets(
        {TopicPartition(topic, partition): spec for partition in partitions},
        isolation_level=level,
        request_timeout=_ASK_TIMEOUT,
    )
    return {place.partition: future.result(2 * _ASK_TIMEOUT).offset for place, future in asked.items()}
