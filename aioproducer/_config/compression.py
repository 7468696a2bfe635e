"""The codecs of batches: one for all topics or one for each topic, each a name or several in order of preference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal, NoReturn, TypeAlias, cast

from aioproducer._config.kinds import Choice
from aioproducer._config.refusal import shown
from aioproducer.arguments import checked_topic
from aioproducer.errors import ConfigError

__all__ = ["Compression", "CompressionByTopic", "CompressionType", "PreferredCodecs", "named_codecs"]

CompressionType: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]

#: Stands for every topic that is not named.
_OTHERS: Final = "*"
#: Codecs that every broker reads and that need no package: a later one would never be used.
_ALWAYS_USABLE: Final = ("none", "gzip")


class PreferredCodecs(tuple[CompressionType, ...]):
    """Two or more codecs in order of preference; the string is the form for properties files: ``zstd,lz4``."""

    __slots__ = ()

    def __str__(self) -> str:
        return ",".join(self)


class CompressionByTopic(Mapping[str, CompressionType | PreferredCodecs]):
    """The codec of each topic, and with the key ``*`` that of every other one; immutable, hashable and picklable."""

    __slots__ = ("_codecs",)

    _codecs: Mapping[str, CompressionType | PreferredCodecs]

    def __init__(self, codecs: Mapping[str, CompressionType | PreferredCodecs]) -> None:
        object.__setattr__(self, "_codecs", MappingProxyType(dict(codecs)))

    def codecs(self, topic: str) -> tuple[CompressionType, ...]:
        """Return the names of the topic's codecs, in order of preference."""
        found = self._codecs.get(topic) or self._codecs.get(_OTHERS, "none")
        return found if isinstance(found, PreferredCodecs) else (found,)

    @property
    def others(self) -> tuple[CompressionType, ...]:
        """The codecs of every topic that is not named."""
        return self.codecs(_OTHERS)

    @property
    def topics(self) -> Mapping[str, tuple[CompressionType, ...]]:
        """The codecs of the named topics."""
        return {topic: self.codecs(topic) for topic in self._codecs if topic != _OTHERS}

    def __getitem__(self, topic: str) -> CompressionType | PreferredCodecs:
        return self._codecs[topic]

    def __iter__(self) -> Iterator[str]:
        return iter(self._codecs)

    def __len__(self) -> int:
        return len(self._codecs)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable: {name} cannot be set.")

    def __hash__(self) -> int:
        return hash(frozenset(self._codecs.items()))

    def __reduce__(self) -> tuple[type[CompressionByTopic], tuple[dict[str, CompressionType | PreferredCodecs]]]:
        return CompressionByTopic, (dict(self._codecs),)

    def __repr__(self) -> str:
        return repr(dict(self._codecs))

    def __str__(self) -> str:
        """The form for properties files: ``logs:zstd|gzip,*:lz4``."""
        return ",".join(f"{topic}:{'|'.join(self.codecs(topic))}" for topic in self._codecs)


class Compression(Choice):
    """A codec, a sequence of codecs in order of preference, or a mapping from topics to these.

    In text: ``zstd``, ``zstd,lz4``, and ``logs:zstd|gzip,*:lz4``.
    """

    def convert(  # type: ignore[override]  # more than text
        self, name: str, value: object
    ) -> str | PreferredCodecs | CompressionByTopic:
        if _is_list(value):
            return self._list(name, cast("Sequence[object]", value))
        if not isinstance(value, Mapping):
            return super().convert(name, value)
        given = cast("Mapping[object, object]", value)
        if not given:
            raise ConfigError(f"Invalid {name}={{}}: names no topic. Name at least one, or leave the option out.")
        return CompressionByTopic({_topic(name, topic): self._of_topic(name, topic, given[topic]) for topic in given})

    def parse(self, name: str, text: str) -> object:
        if ":" not in text:
            return _words(text, ",") if "," in text else text
        found: dict[str, object] = {}
        for pair in filter(None, map(str.strip, text.split(","))):
            topic, colon, codecs = map(str.strip, pair.partition(":"))
            if not colon:
                raise ConfigError(
                    f"Invalid {name}={shown(text)}: {shown(pair)} is not topic:codec. Write logs:zstd|gzip,*:lz4, or "
                    "zstd,lz4 for all topics."
                )
            if topic in found:
                raise ConfigError(f"Invalid {name}={shown(text)}: names {topic!r} twice. Name every topic once.")
            found[topic] = _words(codecs, "|") if "|" in codecs else codecs
        return found

    def allowed(self) -> str:
        return (
            f"{super().allowed()}, a sequence of these in order of preference, or a mapping from topics to these, with "
            "'*' for every other topic"
        )

    def show(self, value: object) -> str:
        return repr(value)

    def _of_topic(self, name: str, topic: object, value: object) -> CompressionType | PreferredCodecs:
        name = f"{name}[{topic!r}]"
        return self._list(name, cast("Sequence[object]", value)) if _is_list(value) else self._codec(name, value)

    def _list(self, name: str, given: Sequence[object]) -> CompressionType | PreferredCodecs:
        codecs: list[CompressionType] = [self._codec(f"{name}[{place}]", codec) for place, codec in enumerate(given)]
        _check_order(name, codecs)
        return codecs[0] if len(codecs) == 1 else PreferredCodecs(codecs)

    def _codec(self, name: str, value: object) -> CompressionType:
        return cast("CompressionType", Choice(self.choices).convert(name, value))


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)


def _check_order(name: str, codecs: Sequence[CompressionType]) -> None:
    """Raise `ConfigError` for a list that is empty, or has a codec that would never be used."""
    if not codecs:
        raise ConfigError(f"Invalid {name}=[]: names no codec. Name at least one, or leave the option out.")
    for place, codec in enumerate(codecs):
        if codec in codecs[:place]:
            raise ConfigError(f"Invalid {name}={list(codecs)}: names {codec!r} twice. Name every codec once.")
        if codec in _ALWAYS_USABLE and place < len(codecs) - 1:
            raise ConfigError(
                f"Invalid {name}={list(codecs)}: {codecs[place + 1]!r} would never be used, because every broker accepts "
                f"{codec!r}, and it needs no package. Put {codec!r} last."
            )


def _words(text: str, separator: str) -> list[str]:
    return list(filter(None, map(str.strip, text.split(separator))))


def _topic(name: str, topic: object) -> str:
    def refused(reason: str) -> ConfigError:
        return ConfigError(f"{name} has an invalid topic. {reason} '*' stands for every other topic.")

    return _OTHERS if topic == _OTHERS else checked_topic(topic, refused)


def named_codecs(value: object) -> frozenset[str]:
    """The codecs in a value of the option that compress; the value may be text, and is not checked."""
    if isinstance(value, Mapping):
        found = frozenset[str]().union(*map(named_codecs, cast("Mapping[object, object]", value).values()))
    elif isinstance(value, str):
        pairs = (pair.rpartition(":")[2] for pair in value.split(","))
        found = frozenset(codec.strip().lower() for pair in pairs for codec in pair.split("|"))
    elif isinstance(value, Sequence):
        found = frozenset(str(codec).strip().lower() for codec in cast("Sequence[object]", value))
    else:
        found = frozenset({str(value).strip().lower()})
    return found - {"none", ""}
