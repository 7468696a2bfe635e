"""Reads a properties file, or all sources of a verb's options, for ``aioproducer config``; reports instead of raising."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

from aioproducer._config.environment import env_options
from aioproducer._config.names import librdkafka_option
from aioproducer._config.neighbours import is_of_another
from aioproducer._config.problems import Problems
from aioproducer._config.properties import java_options
from aioproducer._config.properties_file import properties_in, read_properties
from aioproducer.cli.configuration import configuration
from aioproducer.cli.verb import Trouble, in_shell
from aioproducer.config import OPTIONS, Option, ProducerConfig
from aioproducer.errors import ConfigError

__all__ = ["Checked", "Given", "check", "effective"]

#: Stands for the cluster of a file that leaves it to a flag.
_ANY_CLUSTER: Final = "localhost:9092"
_LISTED: Final = "\n- "


class Given(NamedTuple):
    """An option's value, and the source that it has it from."""

    option: Option
    value: object
    source: str


class Checked(NamedTuple):
    """The mistakes of a file, the keys that a producer ignores, and the options that differ from the defaults.

    ``warnings`` name the keys that the file has more than once.
    """

    mistakes: Sequence[str]
    warnings: Sequence[str]
    ignored: Sequence[str]
    options: Sequence[Given]
    has_servers: bool


def check(path: Path) -> Checked:
    """Read the file, and find all mistakes; raises Trouble if it cannot be read."""
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise Trouble(f"The properties file {str(path)!r} cannot be read: {error.strerror}.") from error
    ignored: list[str] = []
    found: Mapping[str, object] = {}
    lines: Sequence[tuple[int, str, str]] = ()
    try:
        lines = properties_in(path)
        properties = {key: value for _, key, value in lines}
        ignored = [key for key in properties if is_of_another(key)]
        problems = Problems()
        found = _options_in({key: value for key, value in properties.items() if key not in ignored}, problems)
        problems.raise_if_any()
        config = ProducerConfig.create(**cast("Any", {"bootstrap_servers": _ANY_CLUSTER, **found}))
    except ConfigError as error:
        mistakes = _with_lines(_mistakes(error), lines)
        return Checked(mistakes, _repeated(lines), ignored, (), "bootstrap_servers" in found)
    sources = dict.fromkeys(found, "file")
    return Checked((), _repeated(lines), ignored, _different(config, sources), "bootstrap_servers" in found)


def effective(options: argparse.Namespace, environ: Mapping[str, str]) -> Sequence[Given]:
    """Every option of the configuration that the flags and the environment give; raises as `configuration` does."""
    config = configuration(options, environ=environ)
    sources = _sources(options, environ, config)
    return [_given(config, option, sources) for option in OPTIONS.values()]


def _sources(options: argparse.Namespace, environ: Mapping[str, str], config: ProducerConfig) -> Mapping[str, str]:
    """The source of each option that was given."""
    variables = [name for name in env_options("KAFKA_", environ, (), Problems()) if config.is_explicit(name)]
    found = {name: "profile" for name in OPTIONS if options.profile is not None and config.is_explicit(name)}
    found |= {name: "environment" for name in variables if not _is_of_profile(name, options, environ)}
    file: Mapping[str, object] = {} if options.config_file is None else read_properties(Path(options.config_file))
    above: dict[str, object] = {} if options.bootstrap_servers is None else {"bootstrap_servers": ""}
    found |= dict.fromkeys(above, "-b")
    for source, layer in (("-X", dict(options.options)), ("file", file)):
        names = _options_in(layer, Problems(), above)
        found |= dict.fromkeys(names, source)
        above |= names
    return found


def _is_of_profile(name: str, options: argparse.Namespace, environ: Mapping[str, str]) -> bool:
    """Whether the option has a value without its variable: then the profile, which counts before it, has one."""
    if options.profile is None:
        return False
    without = {key: value for key, value in environ.items() if key != f"KAFKA_{name.upper()}"}
    try:
        return configuration(options, environ=without).is_explicit(name)
    except (Trouble, ConfigError):  # something else needs the value of the variable
        return False


def _options_in(
    properties: Mapping[str, object], problems: Problems, above: Mapping[str, object] = MappingProxyType({})
) -> Mapping[str, object]:
    known = {key: value for key, value in properties.items() if not is_of_another(key)}
    return java_options({librdkafka_option(key) or key: value for key, value in known.items()}, above, problems)


def _different(config: ProducerConfig, sources: Mapping[str, str]) -> Sequence[Given]:
    return [
        _given(config, option, sources)
        for option in OPTIONS.values()
        if getattr(config, option.name) != option.default
        and (option.name in sources or option.name != "bootstrap_servers")
    ]


def _given(config: ProducerConfig, option: Option, sources: Mapping[str, str]) -> Given:
    value: object = getattr(config, option.name)
    otherwise = "default" if value == option.default else "derived"
    return Given(option, value, sources.get(option.name, otherwise) if config.is_explicit(option.name) else otherwise)


def _mistakes(error: ConfigError) -> Sequence[str]:
    """The single errors in one that may list several."""
    first, *listed = in_shell(error).split(_LISTED)
    return listed or [first]


def _with_lines(mistakes: Sequence[str], lines: Sequence[tuple[int, str, str]]) -> Sequence[str]:
    """The mistakes, with the number of the line if the line has the mistake by itself."""
    numbers: dict[str, int] = {}
    for number, key, value in lines:
        problems = Problems()
        try:
            _options_in({key: value}, problems)
            problems.raise_if_any()
        except ConfigError as error:
            numbers |= dict.fromkeys(_mistakes(error), number)
    return [f"line {numbers[each]}: {each}" if each in numbers else each for each in mistakes]


def _repeated(lines: Sequence[tuple[int, str, str]]) -> Sequence[str]:
    """A warning for each key that the file has more than once."""
    places: dict[str, list[int]] = {}
    for number, key, _ in lines:
        places.setdefault(key, []).append(number)
    return [
        f"{key} is on lines {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}; the last one counts."
        for key, numbers in places.items()
        if len(numbers) > 1
    ]
