"""Keys for other programs that appear beside a producer's in the snippets that vendors print."""

from __future__ import annotations

from typing import Final

__all__ = ["is_of_another"]

#: Beginnings of keys of schema registries, of Confluent's own clients, and of frameworks.
_BEGINNINGS: Final = ("schema.registry.", "basic.auth.", "confluent.", "auto.register.", "avro.", "bearer.auth.")

#: Keys of consumers and of admin clients.
_KEYS: Final = frozenset(
    {
        "auto.commit.interval.ms",
        "auto.offset.reset",
        "broker.address.family",
        "default.api.timeout.ms",
        "enable.auto.commit",
        "fetch.max.bytes",
        "fetch.max.wait.ms",
        "fetch.min.bytes",
        "group.instance.id",
        "group.protocol",
        "heartbeat.interval.ms",
        "isolation.level",
        "key.deserializer",
        "max.partition.fetch.bytes",
        "max.poll.interval.ms",
        "max.poll.records",
        "session.timeout.ms",
        "use.latest.version",
        "value.deserializer",
    }
)


def is_of_another(key: str) -> bool:
    """Whether a key is certainly not for a producer; an unknown key may be a typo."""
    return key in _KEYS or key.startswith(_BEGINNINGS)
