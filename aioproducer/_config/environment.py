"""The options in environment variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from aioproducer._config.names import meant_options
from aioproducer._config.option import read_option
from aioproducer._config.options import OPTIONS
from aioproducer._config.problems import Problems
from aioproducer.errors import ConfigError

__all__ = ["env_options"]

#: Names of options, here or in other clients, that other programs also use after KAFKA_.
_NOT_OURS_IN_ENV: Final = frozenset(
    {"api_version", "auto_offset_reset", "debug", "group_id", "log_level", "message_max_bytes", "metric_reporters"}
)


def env_options(
    prefix: str, environ: Mapping[str, str], replaced: Iterable[str], problems: Problems
) -> dict[str, object]:
    """The options in ``environ`` whose names begin with ``prefix``, except those that are ``replaced``.

    ``problems`` collects their errors.
    """
    replaced = set(replaced)
    found: dict[str, object] = {}
    for variable, text in environ.items():
        name = variable[len(prefix) :].lower()
        if not variable.startswith(prefix) or not text or name in replaced or name in _NOT_OURS_IN_ENV:
            continue
        if name in OPTIONS:
            with problems.collecting(name):
                found[name] = read_option(OPTIONS[name], text, variable)
        elif (meant := meant_options(name)) and replaced.isdisjoint(meant):
            problems.add(_misspelled_variable(variable, name, meant), *meant)
    return found


def _misspelled_variable(variable: str, name: str, meant: Sequence[str]) -> ConfigError:
    prefix = variable[: -len(name)]
    return ConfigError(
        f"The environment variable {variable} is not the name of an option. Did you mean "
        f"{' or '.join(prefix + option.upper() for option in meant)}? If it belongs to another program, give the "
        "producer another prefix=..."
    )
