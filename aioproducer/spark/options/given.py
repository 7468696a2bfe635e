"""Normalises the given options, in any case and spelling, with or without ``kafka.``, to one name each."""

from __future__ import annotations

from collections.abc import Mapping
from reprlib import Repr
from typing import Final, NamedTuple, TypeAlias

from aioproducer.config import OPTIONS
from aioproducer.errors import ConfigError
from aioproducer.spark.options.own import OWN, REFUSED

__all__ = ["HEADERS", "GivenOption", "OptionValue", "given_options"]

#: The value types of Spark's ``option()``.
OptionValue: TypeAlias = str | bool | float | None

#: The prefix of header options.
HEADERS: Final = "headers."

_KAFKA: Final = "kafka."

#: Shortens values in messages: a schema may be pages long.
_short = Repr()
_short.maxstring = 100


class GivenOption(NamedTuple):
    """An option: its key as given, and its text, stripped of blanks unless they are significant."""

    key: str
    text: str


def given_options(options: Mapping[str, OptionValue]) -> Mapping[str, GivenOption]:
    """The options by their names: lower case, with dots, without ``kafka.``. Options that are None are ignored.

    Raises `ConfigError` for an option given twice with different values, since one would be ignored silently, for one of
    the sink's own options with the prefix ``kafka.``, and for a value that is not an `OptionValue`.
    """
    found: dict[str, GivenOption] = {}
    for key, value in options.items():
        if value is None:
            continue
        name = _name_of(key)
        text = _text_of(key, value)
        given = GivenOption(key, text if _is_exact(name) else text.strip())
        earlier = found.setdefault(name, given)
        if earlier.text != given.text:
            raise _given_twice(name, earlier, given)
    return found


def _name_of(key: str) -> str:
    lowered = key.lower()
    name = _dotted(lowered.removeprefix(_KAFKA))
    if lowered.startswith(_KAFKA) and (name.startswith(HEADERS) or (name in OWN and not _is_kafkas(name))):
        raise ConfigError(
            f"The option {key!r} belongs to the sink, not to Kafka: write it without 'kafka.', as {name!r}."
        )
    return name


def _dotted(name: str) -> str:
    """The name with dots, as Java spells it; names of headers and unknown names are unchanged."""
    dotted = name.replace("_", ".")
    return dotted if dotted in OWN or dotted in REFUSED or _is_kafkas(dotted) else name


def _text_of(key: str, value: str | float) -> str:
    """The value as PySpark converts it to text."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):  # pyright: ignore[reportUnnecessaryIsInstance] - a caller without types
        return str(value)
    raise ConfigError(f"The option {key!r} has type {type(value).__name__}; options are text, numbers, True or False.")


def _is_exact(name: str) -> bool:
    return name.startswith(HEADERS) or (name in OWN and OWN[name].is_exact)


def _given_twice(name: str, first: GivenOption, second: GivenOption) -> ConfigError:
    if _may_be_shown(name):
        both = f"{first.key!r}={_short.repr(first.text)} and {second.key!r}={_short.repr(second.text)}"
    else:
        both = f"{first.key!r} and {second.key!r} (values hidden, as they may be secret)"
    return ConfigError(f"An option is given twice with different values: {both}. Leave one of them out.")


def _is_kafkas(name: str) -> bool:
    return name.replace(".", "_") in OPTIONS


def _may_be_shown(name: str) -> bool:
    if name in OWN:
        return not OWN[name].is_secret
    return _is_kafkas(name) and not OPTIONS[name.replace(".", "_")].secret and not name.startswith(("ssl.", "sasl."))
