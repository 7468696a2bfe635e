"""The options in a Java producer's properties."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import cast

from aioproducer._config.java_keys import BY_JAVA_KEY, DROPPED, TRANSLATIONS, dropped
from aioproducer._config.names import unknown_option
from aioproducer._config.neighbours import is_of_another
from aioproducer._config.option import read_option
from aioproducer._config.options import OPTIONS
from aioproducer._config.problems import Problems
from aioproducer.errors import ConfigError

__all__ = ["java_options"]

logger = logging.getLogger("aioproducer")


def java_options(
    properties: Mapping[str, object], overrides: Mapping[str, object], problems: Problems
) -> dict[str, object]:
    """The options in Java's ``properties``, except those that ``overrides`` replaces.

    ``problems`` collects their errors.

    Vendors print one text for all clients: keys that are known to be for others are ignored, with one warning.
    """
    everything = {**properties, **overrides}
    found: dict[str, object] = {}
    others = [key for key in properties if is_of_another(key)]
    if others:
        logger.warning("These keys were ignored, because a producer does not use them: %s.", ", ".join(others))
    for key, value in properties.items():
        if key in others:
            continue
        options = _options_of(key)
        with problems.collecting(*options):
            for name, converted in _java_option(key, value, options, everything, overrides.keys()).items():
                if name in found and found[name] != converted:
                    raise ConfigError(
                        f"{key!r} sets {name}, which another key in the same properties sets differently."
                    )
                found[name] = converted
    return found


def _options_of(key: str) -> Sequence[str]:
    """The options that a Java or librdkafka key sets; empty if the key is unknown."""
    dotted = _dotted(key)
    if dotted in TRANSLATIONS:
        return TRANSLATIONS[dotted].options
    return (BY_JAVA_KEY[dotted],) if dotted in BY_JAVA_KEY else ()


def _dotted(key: str) -> str:
    return key.replace("_", ".") if key in OPTIONS else key


def _java_option(
    key: str, value: object, options: Sequence[str], properties: Mapping[str, object], replaced: Set[str]
) -> Mapping[str, object]:
    dotted = _dotted(key)
    if not replaced.isdisjoint(options) or ("ssl_context" in replaced and dotted.startswith("ssl.")):
        return {}
    if dotted in DROPPED:
        raise ConfigError(dropped(dotted))
    translation = TRANSLATIONS.get(dotted)
    if translation is not None:
        # None means that the key was not given: it never turns off the check of a broker's name.
        return {} if value is None else translation.convert(key, _java_text(value), properties)
    if not options:
        raise unknown_option(key)
    text = value.strip() if isinstance(value, str) else value
    (name,) = options
    return {name: read_option(OPTIONS[name], text, key)}


def _java_text(value: object) -> str:
    """A mapping's value as a properties file would spell it, if it is not text."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, cast("Iterable[object]", value)))
    return str(value).strip()
