"""The producer's configuration of a verb: from its flags, ``-X``, a properties file, a profile and the environment.

Each of these overrides those behind it.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from aioproducer.cli.arguments import PAIRS
from aioproducer.cli.verb import Trouble

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig

__all__ = ["HELP", "add_configuration_arguments", "configuration", "configured_options"]

#: What the help of each such verb says at its end.
HELP: Final = (
    "Options of the producer come from the flags, -X, the file of -F, the profile, and environment variables such as "
    "KAFKA_BOOTSTRAP_SERVERS; each of them overrides those after it."
)

#: Others could read the file if its mode has one of these bits.
_OF_OTHERS: Final = 0o077


def add_configuration_arguments(
    parser: argparse.ArgumentParser,
    *,
    servers: bool = True,
    of_action: bool = False,
    option_help: str = "an option of the producer, by our name, Java's or librdkafka's; may be repeated",
) -> None:
    """The arguments that `configuration` reads; ``servers``: also ``-b``; ``option_help``: the help of ``-X``.

    ``of_action``: the verb has these arguments as well, and they may stand before the action or after it.
    """
    absent: Mapping[str, Any] = {"default": argparse.SUPPRESS} if of_action else {}
    group = parser.add_argument_group("cluster")
    if servers:
        group.add_argument(
            "-b",
            "--bootstrap-server",
            "--bootstrap-servers",
            "--broker-list",
            dest="bootstrap_servers",
            metavar="HOST:PORT,...",
            help="the cluster",
            **absent,
        )
    group.add_argument(
        "-X",
        "--option",
        "--producer-property",
        "--command-property",
        dest="more_options" if of_action else "options",  # argparse would replace the list of the verb
        help=option_help,
        **PAIRS,
    )
    group.add_argument(
        "-F",
        "--config-file",
        "--producer.config",
        "--command-config",
        dest="config_file",
        metavar="FILE",
        help="a .properties file with options of the producer",
        **absent,
    )
    group.add_argument(
        "--profile",
        metavar="NAME",
        help="a table of ~/.config/aioproducer/profiles.toml with options of the producer",
        **absent,
    )


def configuration(
    options: argparse.Namespace,
    flags: Mapping[str, object] | None = None,
    defaults: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    as_java: bool = False,
) -> ProducerConfig:
    """The configuration of `configured_options`. Raises what that raises, and ConfigError for values that contradict others.

    ``as_java``: acks=1 turns idempotence off, if nothing asks for it, as kcat and Java's tools do.
    """
    from aioproducer.config import ProducerConfig

    found = configured_options(options, flags, defaults, environ)
    if as_java and str(found.get("acks", "all")) not in ("all", "-1") and "enable_idempotence" not in found:
        found["enable_idempotence"] = False
    return ProducerConfig.create(**cast("Any", found))


def configured_options(
    options: argparse.Namespace,
    flags: Mapping[str, object] | None = None,
    defaults: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
) -> dict[str, object]:
    """The options that are set, by our names.

    ``flags`` are options that the verb's own flags set, ``defaults`` those that nothing sets. A value of None stands for
    an option that was not given. Raises Trouble if no bootstrap servers are given, for a profile that does not exist or
    that others can read; and ConfigError for unknown options.
    """
    from aioproducer._config.environment import env_options
    from aioproducer._config.problems import Problems
    from aioproducer._config.properties_file import read_properties

    environ = os.environ if environ is None else environ
    file: Mapping[str, object] = {} if options.config_file is None else read_properties(Path(options.config_file))
    profile: Mapping[str, object] = {} if options.profile is None else _profile(options.profile, environ)
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    if getattr(options, "bootstrap_servers", None) is not None:
        given["bootstrap_servers"] = options.bootstrap_servers
    pairs: Mapping[str, object] = dict([*options.options, *getattr(options, "more_options", ())])
    (pairs, file, profile), tokens = _without_tokens(pairs, file, profile)
    problems = Problems()
    found: dict[str, object] = {}
    for layer in (given, pairs, file, profile):
        found = {**_options_in(layer, found, problems), **found}
    of_environment = env_options("KAFKA_", environ, found, problems)
    problems.raise_if_any()
    found = {**(defaults or {}), **of_environment, **found}
    if tokens and found.get("sasl_mechanism") == "OAUTHBEARER":
        from aioproducer.cli.oauth import token_provider

        found["sasl_oauth_token_provider"] = token_provider(tokens)
    if "bootstrap_servers" not in found:
        raise Trouble(
            "No cluster is given. Use -b HOST:PORT, a file or profile with bootstrap.servers, or the environment variable "
            "KAFKA_BOOTSTRAP_SERVERS."
        )
    return found


def _without_tokens(*layers: Mapping[str, object]) -> tuple[Sequence[Mapping[str, object]], Mapping[str, str]]:
    """The layers, the first of which overrides the others, without the keys of a login with tokens; and its options."""
    from aioproducer.cli.oauth import is_of_tokens, token_options

    tokens: dict[str, str] = {}
    for layer in reversed(layers):
        tokens |= token_options({key: value for key, value in layer.items() if is_of_tokens(key, value)})
    rest = [{key: value for key, value in layer.items() if not is_of_tokens(key, value)} for layer in layers]
    return rest, tokens


def _options_in(layer: Mapping[str, object], known: Mapping[str, object], problems: Any) -> Mapping[str, object]:
    from aioproducer._config.names import librdkafka_option
    from aioproducer._config.properties import java_options

    translated = {librdkafka_option(name) or name: value for name, value in layer.items()}
    return java_options(translated, known, problems)


def _profile(name: str, environ: Mapping[str, str]) -> Mapping[str, object]:
    import tomllib

    from aioproducer._config.names import librdkafka_option
    from aioproducer._config.options import OPTIONS
    from aioproducer.cli.oauth import SECRETS

    home = environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    path = Path(home) / "aioproducer" / "profiles.toml"
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            profiles = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise Trouble(f"The profiles in {path} cannot be read: {reason}.") from error
    table = profiles.get(name)
    if not isinstance(table, dict):
        known = ", ".join(repr(each) for each, content in profiles.items() if isinstance(content, dict))
        raise Trouble(f"{path} has no profile {name!r}; it has {known or 'none'}.")
    profile = dict(_flat(cast("Mapping[str, object]", table)))
    plain = [(librdkafka_option(key) or key).replace(".", "_") for key in profile]
    secrets = [key for key in plain if key in SECRETS or (key in OPTIONS and OPTIONS[key].secret)]
    if secrets and mode & _OF_OTHERS and os.name == "posix":
        raise Trouble(
            f"{path} holds secrets ({', '.join(secrets)}), and other users of this machine may read it. "
            f"Run: chmod 600 {path}"
        )
    return profile


def _flat(table: Mapping[str, object], prefix: str = "") -> Sequence[tuple[str, object]]:
    """The keys and values: ``security.protocol = "SSL"`` without quotes around the key is a table inside a table."""
    found: list[tuple[str, object]] = []
    for key, value in table.items():
        if isinstance(value, dict):
            found += _flat(cast("Mapping[str, object]", value), f"{prefix}{key}.")
        else:
            found.append((prefix + key, value))
    return found
