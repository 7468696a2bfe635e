"""Takes the options as they were given, in any case and with or without ``kafka.``, and finds each by one name."""

from __future__ import annotations

from collections.abc import Mapping
from reprlib import Repr
from typing import Final, NamedTuple

from aioproducer.config import OPTIONS
from aioproducer.errors import ConfigError
from aioproducer.spark.own_options import OWN

__all__ = ["HEADERS", "GivenOption", "given_options"]

#: What the keys of headers begin with.
HEADERS: Final = "headers."

_KAFKA: Final = "kafka."

#: A schema may be pages long.
_short = Repr()
_short.maxstring = 100


class GivenOption(NamedTuple):
    """An option: its key as it was given, and its text."""

    key: str
    text: str


def given_options(options: Mapping[str, str]) -> Mapping[str, GivenOption]:
    """The options by their names: lower case, without ``kafka.``.

    Raises `ConfigError` for one that is there twice with different values, as one of them would be passed over in silence,
    and for one of the sink's own that has ``kafka.`` before it.
    """
    found: dict[str, GivenOption] = {}
    for key, text in options.items():
        name = _name_of(key)
        given = GivenOption(key, text.strip())
        earlier = found.setdefault(name, given)
        if earlier.text != given.text:
            raise _given_twice(name, earlier, given)
    return found


def _name_of(key: str) -> str:
    lowered = key.lower()
    name = lowered.removeprefix(_KAFKA)
    if name != lowered and (name.startswith(HEADERS) or (name in OWN and not _is_kafkas(name))):
        raise ConfigError(
            f"The option {key!r} is not Kafka's but one of the sink itself: write it without 'kafka.', as {name!r}."
        )
    return name


def _given_twice(name: str, first: GivenOption, second: GivenOption) -> ConfigError:
    if _may_be_shown(name):
        both = f"{first.key!r}={_short.repr(first.text)} and {second.key!r}={_short.repr(second.text)}"
    else:
        both = f"{first.key!r} and {second.key!r} (the values are not shown, as they may be secret)"
    return ConfigError(f"An option is given twice, and differently: {both}. Leave one of them out.")


def _is_kafkas(name: str) -> bool:
    return name.replace(".", "_") in OPTIONS


def _may_be_shown(name: str) -> bool:
    if name in OWN:
        return not OWN[name].is_secret
    return _is_kafkas(name) and not name.startswith(("ssl.", "sasl."))
