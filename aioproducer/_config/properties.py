"""The options that a Java producer's properties describe."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Set
from typing import cast

from aioproducer._config.java_keys import BY_JAVA_KEY, DROPPED, TRANSLATIONS, dropped
from aioproducer._config.names import unknown_option
from aioproducer._config.neighbours import is_of_another
from aioproducer._config.option import read_option
from aioproducer._config.options import OPTIONS
from aioproducer.errors import ConfigError

__all__ = ["java_options"]

logger = logging.getLogger("aioproducer")


def java_options(properties: Mapping[str, object], overrides: Mapping[str, object]) -> dict[str, object]:
    """The options that Java's ``properties`` describe, without those that ``overrides`` replace.

    Vendors print one text for all clients: what is known to be for others is named in one warning, and left out.
    """
    everything = {**properties, **overrides}
    found: dict[str, object] = {}
    others = [key for key in properties if is_of_another(key)]
    if others:
        logger.warning("Left out of the configuration, as a producer has no use for it: %s.", ", ".join(others))
    for key, value in properties.items():
        if key in others:
            continue
        for name, converted in _java_option(key, value, everything, overrides.keys()).items():
            if name in found and found[name] != converted:
                raise ConfigError(f"{key!r} sets {name}, which another key of the same properties sets differently.")
            found[name] = converted
    return found


def _java_option(key: str, value: object, properties: Mapping[str, object], replaced: Set[str]) -> Mapping[str, object]:
    dotted = key.replace("_", ".") if key in OPTIONS else key
    translation = TRANSLATIONS.get(dotted)
    targets = translation.options if translation else (BY_JAVA_KEY.get(dotted, ""),)
    if not replaced.isdisjoint(targets) or ("ssl_context" in replaced and dotted.startswith("ssl.")):
        return {}
    if dotted in DROPPED:
        raise ConfigError(dropped(dotted))
    if translation is not None:
        # None is a key that was not given: it never switches off the check of a broker's name.
        return {} if value is None else translation.convert(key, _java_text(value), properties)
    name = BY_JAVA_KEY.get(dotted)
    if name is None:
        raise unknown_option(key)
    text = value.strip() if isinstance(value, str) else value
    return {name: read_option(OPTIONS[name], text, key)}


def _java_text(value: object) -> str:
    """A value as a properties file would spell it, where a mapping holds something else than text."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, cast("Iterable[object]", value)))
    return str(value).strip()
