"""``aioproducer config``: shows the options of a producer, checks a properties file, shows the configuration in effect."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioproducer.cli.configuration import HELP, add_configuration_arguments
from aioproducer.cli.verb import ExitCode, Trouble, Verb

if TYPE_CHECKING:
    from aioproducer.cli.config.check import Checked, Given

__all__ = ["VERB"]

_EPILOG: Final = f"""\
examples:
  aioproducer config                                       (all options)
  aioproducer config linger_ms queue.buffering.max.kbytes  (these in full, by our name, Java's or librdkafka's)
  aioproducer config --check producer.properties
  aioproducer config --effective -b localhost:9092 -X acks=1 -X enable.idempotence=false --json

exit codes:
  0  printed; with --check: the file is valid
  1  with --check: the file has mistakes
  2  it could not run, for example because of an unknown name or an invalid option

Without names, --check and --effective, each of the flags under "cluster" implies --effective.
{textwrap.fill(HELP, 100)}
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("names", nargs="*", metavar="NAME", help="an option to show in full")
    parser.add_argument(
        "--explain", action="append", default=[], metavar="NAME", help="the same as NAME; may be repeated"
    )
    parser.add_argument(
        "--check", type=Path, metavar="FILE", help="list the mistakes of a .properties file, and the options in it"
    )
    parser.add_argument("--effective", action="store_true", help="show the configuration that a verb would use")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_configuration_arguments(parser)


def _run(options: argparse.Namespace) -> ExitCode:
    names = [*options.names, *options.explain]
    cluster = (options.bootstrap_servers, options.options, options.config_file, options.profile)
    gives_cluster = any(each not in (None, []) for each in cluster)
    if bool(names) + (options.check is not None) + options.effective > 1:
        raise Trouble("Give one of NAME, --check and --effective.")
    if gives_cluster and (names or options.check is not None):
        raise Trouble("-b, -X, -F and --profile belong to --effective. Leave them out.")
    if names:
        return _explain(names, as_json=options.json)
    if options.check is not None:
        return _check(options.check, as_json=options.json)
    if options.effective or gives_cluster:
        return _show_effective(options)
    return _list(as_json=options.json)


VERB: Final = Verb("config", "Show the options of a producer, and check a properties file.", _configure, _run)


def _list(*, as_json: bool) -> ExitCode:
    from aioproducer.cli.config import options as config_options
    from aioproducer.config import OPTIONS

    if as_json:
        _print_json([config_options.as_json(option) for option in OPTIONS.values()])
    else:
        print("\n".join(config_options.as_lines()))
    return ExitCode.OK


def _explain(names: Sequence[str], *, as_json: bool) -> ExitCode:
    from aioproducer.cli.config import options as config_options

    # One name can stand for several options, and several names for one.
    found = {option.name: option for name in names for option in config_options.named(name)}
    if as_json:
        _print_json([config_options.as_json(option) for option in found.values()])
    else:
        print("\n\n".join("\n".join(config_options.explanation(option)) for option in found.values()))
    return ExitCode.OK


def _check(path: Path, *, as_json: bool) -> ExitCode:
    from aioproducer.cli.config.check import check

    found = check(path)
    if as_json:
        options = [_as_json(each) for each in found.options]
        valid = not found.mistakes
        _print_json(
            {
                "valid": valid,
                "mistakes": list(found.mistakes),
                "warnings": list(found.warnings),
                "ignored": list(found.ignored),
                "options": options,
            }
        )
    else:
        print("\n".join(_check_lines(path, found)))
    return ExitCode.BAD if found.mistakes else ExitCode.OK


def _check_lines(path: Path, found: Checked) -> Sequence[str]:
    lines = [f"warning: {each}" for each in found.warnings]
    lines += [f"ignored: {key}: a producer does not use it." for key in found.ignored]
    if found.mistakes:
        number = len(found.mistakes)
        verdict = f"{path} has {number} mistake{'' if number == 1 else 's'}."
        return [*(f"mistake: {each}" for each in found.mistakes), *lines, verdict]
    if not found.has_servers:
        lines.append("note: the file has no bootstrap.servers, so a program has to name the cluster.")
    shown = _table(found.options, with_source=False)
    heading = "The options that differ from the defaults:" if shown else "All options have their defaults."
    return [*lines, f"{path} is valid. {heading}", *shown]


def _show_effective(options: argparse.Namespace) -> ExitCode:
    import os

    from aioproducer.cli.config.check import effective

    found = effective(options, os.environ)
    if options.json:
        _print_json([_as_json(each) for each in found])
    else:
        print("\n".join(_table(found, with_source=True)))
    return ExitCode.OK


def _table(options: Sequence[Given], *, with_source: bool) -> Sequence[str]:
    from aioproducer.cli.config.options import as_text

    rows = [(each.option.name, as_text(each.option, each.value), each.source) for each in options]
    names, values = (max((len(row[column]) for row in rows), default=0) for column in (0, 1))
    values = min(values, 60)
    return [
        f"  {name:<{names}}  {value:<{values}}{f'  {source}' if with_source else ''}".rstrip()
        for name, value, source in rows
    ]


def _as_json(given: Given) -> dict[str, Any]:
    from aioproducer.cli.config.options import json_value

    return {"name": given.option.name, "value": json_value(given.option, given.value), "source": given.source}


def _print_json(found: object) -> None:
    import json

    print(json.dumps(found, indent=2))
