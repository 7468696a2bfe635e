"""The codecs of batches: one name for all topics, or a name for each topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, Literal, NoReturn, TypeAlias, cast

from aioproducer._config.kinds import Choice
from aioproducer._config.refusal import shown
from aioproducer.arguments import checked_topic
from aioproducer.errors import ConfigError

__all__ = ["Compression", "CompressionByTopic", "CompressionType", "named_codecs"]

CompressionType: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]

#: Stands for every topic that is not named.
_OTHERS: Final = "*"


class CompressionByTopic(Mapping[str, CompressionType]):
    """The codec of each topic, and with the key ``*`` that of every other one; immutable, hashable and picklable."""

    __slots__ = ("_codecs",)

    _codecs: Mapping[str, CompressionType]

    def __init__(self, codecs: Mapping[str, CompressionType]) -> None:
        object.__setattr__(self, "_codecs", MappingProxyType(dict(codecs)))

    def codec(self, topic: str) -> CompressionType:
        """Return the name of the topic's codec."""
        return self._codecs.get(topic, self.others)

    @property
    def others(self) -> CompressionType:
        """The codec of every topic that is not named."""
        return self._codecs.get(_OTHERS, "none")

    @property
    def topics(self) -> Mapping[str, CompressionType]:
        """The codecs of the named topics."""
        return {topic: codec for topic, codec in self._codecs.items() if topic != _OTHERS}

    def __getitem__(self, topic: str) -> CompressionType:
        return self._codecs[topic]

    def __iter__(self) -> Iterator[str]:
        return iter(self._codecs)

    def __len__(self) -> int:
        return len(self._codecs)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable: {name} cannot be set.")

    def __hash__(self) -> int:
        return hash(frozenset(self._codecs.items()))

    def __reduce__(self) -> tuple[type[CompressionByTopic], tuple[dict[str, CompressionType]]]:
        return CompressionByTopic, (dict(self._codecs),)

    def __repr__(self) -> str:
        return repr(dict(self._codecs))

    def __str__(self) -> str:
        """The form for properties files: ``logs:zstd,*:lz4``."""
        return ",".join(f"{topic}:{codec}" for topic, codec in self._codecs.items())


class Compression(Choice):
    """The name of a codec, or a mapping from topics to names; in text, ``topic:codec`` separated by commas."""

    def convert(self, name: str, value: object) -> str | CompressionByTopic:  # type: ignore[override]  # more than text
        if not isinstance(value, Mapping):
            return super().convert(name, value)
        given = cast("Mapping[object, object]", value)
        if not given:
            raise ConfigError(f"Invalid {name}={{}}: names no topic. Name at least one, or leave the option out.")
        return CompressionByTopic({_topic(name, topic): self._codec(name, topic, given[topic]) for topic in given})

    def parse(self, name: str, text: str) -> object:
        if ":" not in text and "," not in text:
            return text
        found: dict[str, str] = {}
        for pair in filter(None, map(str.strip, text.split(","))):
            topic, colon, codec = map(str.strip, pair.partition(":"))
            if not colon:
                raise ConfigError(
                    f"Invalid {name}={shown(text)}: {shown(pair)} is not topic:codec. Write logs:zstd,*:lz4, or one codec "
                    "for all topics."
                )
            if topic in found:
                raise ConfigError(f"Invalid {name}={shown(text)}: names {topic!r} twice. Name every topic once.")
            found[topic] = codec
        return found

    def allowed(self) -> str:
        return f"{super().allowed()}, or a mapping from topics to these, with '*' for every other topic"

    def show(self, value: object) -> str:
        return repr(value)

    def _codec(self, name: str, topic: object, codec: object) -> CompressionType:
        """The codec of one topic; the error names both."""
        return cast("CompressionType", Choice(self.choices).convert(f"{name}[{topic!r}]", codec))


def _topic(name: str, topic: object) -> str:
    def refused(reason: str) -> ConfigError:
        return ConfigError(f"{name} has an invalid topic. {reason} '*' stands for every other topic.")

    return _OTHERS if topic == _OTHERS else checked_topic(topic, refused)


def named_codecs(value: object) -> frozenset[str]:
    """The codecs in a value of the option that compress; the value may be text, and is not checked."""
    codecs: list[object] = [value]
    if isinstance(value, Mapping):
        codecs = list(cast("Mapping[object, object]", value).values())
    elif isinstance(value, str):
        codecs = [pair.rpartition(":")[2] for pair in value.split(",")]
    return frozenset(str(codec).strip().lower() for codec in codecs) - {"none", ""}
