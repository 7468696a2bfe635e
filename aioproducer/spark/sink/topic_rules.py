"""A topic's rules for records: the part of its configuration that decides which records a broker refuses permanently."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from aioproducer.config import ProducerConfig

__all__ = ["TOPIC_CONFIGS", "TimestampLimit", "TopicRules"]

_SIZE: Final = "max.message.bytes"
_COMPRESSION: Final = "compression.type"
_POLICY: Final = "cleanup.policy"
_STAMPED_BY: Final = "message.timestamp.type"
_BEFORE: Final = "message.timestamp.before.max.ms"
_AFTER: Final = "message.timestamp.after.max.ms"
_DIFFERENCE: Final = "message.timestamp.difference.max.ms"

#: The configurations that `TopicRules` reads; no release has all of them.
TOPIC_CONFIGS: Final[Sequence[str]] = (_SIZE, _COMPRESSION, _POLICY, _STAMPED_BY, _BEFORE, _AFTER, _DIFFERENCE)

_NO_LIMIT: Final = 2**63 - 1


class TimestampLimit(NamedTuple):
    """The largest distance of a timestamp from the broker's clock, and the configuration that sets it."""

    config: str
    ms: int


@dataclass(frozen=True, slots=True)
class TopicRules:
    """The rules of one topic; none if its configuration is unknown.

    ``stores_uncompressed``: brokers decompress the topic's records, and check the size of both forms.
    """

    max_message_bytes: int | None = None
    stores_uncompressed: bool = False
    is_compacted: bool = False
    before: TimestampLimit | None = None
    after: TimestampLimit | None = None

    @classmethod
    def from_kafka(cls, configs: Mapping[str, str | None]) -> TopicRules:
        """The rules from Kafka's configuration names and values."""
        is_stamped_here = configs.get(_STAMPED_BY) != "LogAppendTime"
        return cls(
            _number(configs.get(_SIZE)),
            configs.get(_COMPRESSION) == "uncompressed",
            "compact" in (configs.get(_POLICY) or "").split(","),
            _first_limit(configs, _BEFORE, _DIFFERENCE) if is_stamped_here else None,
            _first_limit(configs, _AFTER, _DIFFERENCE) if is_stamped_here else None,
        )

    def fitting(self, config: ProducerConfig) -> ProducerConfig:
        """Producer options that limit batches to the size that the topic accepts."""
        limit = self.max_message_bytes
        return config if limit is None or limit >= config.batch_size else config.replace(batch_size=limit)


def _first_limit(configs: Mapping[str, str | None], *names: str) -> TimestampLimit | None:
    """KIP-937 split the older limit in two; it applies if the newer one is not set, and is gone in 4.0."""
    for name in names:
        limit = _number(configs.get(name))
        if limit is not None and limit != _NO_LIMIT:
            return TimestampLimit(name, limit)
    return None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
