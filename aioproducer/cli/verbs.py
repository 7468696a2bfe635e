"""All verbs of the command line; finds and runs one of them."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final, NoReturn, cast

from aioproducer._version import __version__
from aioproducer.cli.parser import Parser
from aioproducer.cli.verb import ExitCode, Trouble, Verb, in_shell
from aioproducer.errors import KafkaError

__all__ = ["SUMMARIES", "run_verb", "whole_parser"]

#: All verbs, each with its module and a summary, in the order in which --help shows them. Only the module of the verb that
#: is run is imported: so the help appears at once.
SUMMARIES: Final[Mapping[str, tuple[str, str]]] = {
    "produce": ("produce.command", "Send lines, JSON, CSV, Parquet or whole files to a topic."),
    "perf": ("perf.command", "Measure the throughput and latency of a cluster, as kafka-producer-perf-test does."),
    "doctor": ("doctor.command", "Find out, step by step, why a producer would not work with a cluster."),
    "demo": ("demo", "Send 100,000 real records, read them back with another client, and compare."),
    "load": ("load", "Write Parquet, CSV, JSON or text files to a topic; exactly once if requested."),
    "audit": ("audit", "Check a topic for lost, duplicated, reordered, misplaced or altered records."),
    "spark": ("spark", "Maintain queries and jobs that write through the Spark sink."),
    "meta": ("meta.command", "Show the brokers, topics and partitions of a cluster."),
    "transactions": ("transactions.command", "Show transactions, and abort those that hang."),
    "config": ("config.command", "Show the options of a producer, and check a properties file."),
    "fake-broker": ("fake_broker", "Run a fake broker for development, which prints what arrives."),
    "kafka": ("kafka", "Run a real Apache Kafka for development."),
    "completion": ("completion", "Print a script for bash, zsh or tcsh that completes verbs and flags."),
    "top": ("top.command", "Show the status page of a service in a terminal."),
}

#: The errors of an output that takes no more.
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})

#: The flags that need no verb.
_OWN_FLAGS: Final = ("--help", "--version")


def run_verb(arguments: Sequence[str] | None = None) -> int:
    """Does the work of `aioproducer.cli.main.main`; raises KeyboardInterrupt on Ctrl-C before the verb runs."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    named = "aioproducer"
    try:
        try:
            verb, options = _parsed(given)
            named = f"aioproducer {verb.name}"
            return _run(verb, options)
        finally:
            if sys.stdout is not None:  # None: the shell has closed it
                sys.stdout.flush()  # a failure at the interpreter's exit would print a traceback
    except BrokenPipeError:
        _forget_stdout()
        return ExitCode.BAD
    except OSError as error:
        if not _is_of_stdout(error):
            raise
        print(f"{named}: standard output cannot be written: {error.strerror}.", file=sys.stderr)
        _forget_stdout()
        return ExitCode.USAGE


def _run(verb: Verb, options: argparse.Namespace) -> int:
    try:
        return verb.run(options)
    except (Trouble, KafkaError) as error:
        print(f"aioproducer {verb.name}: {in_shell(error)}", file=sys.stderr)
        return ExitCode.USAGE
    except KeyboardInterrupt:
        print(f"aioproducer {verb.name}: interrupted.", file=sys.stderr)
        return ExitCode.INTERRUPTED


def _parsed(arguments: Sequence[str]) -> tuple[Verb, argparse.Namespace]:
    if arguments and arguments[0] == "help":
        arguments = [*arguments[1:], "--help"]
    name = arguments[0] if arguments else ""
    if name not in SUMMARIES:
        parser = _parser()
        _refuse_flag_before_verb(parser, arguments)
        parser.parse_args(arguments)  # shows the help, the version or the mistake
        raise AssertionError("argparse accepts only verbs")
    module, summary = SUMMARIES[name]
    verb = _verb(module)
    parser = Parser(prog=f"aioproducer {name}", description=summary)
    verb.configure(parser)
    try:
        return verb, parser.parse_intermixed_args(arguments[1:])  # options may stand between files
    except TypeError:  # it has verbs inside
        return verb, parser.parse_args(arguments[1:])


def _refuse_flag_before_verb(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    """Report an unknown flag before the verb; argparse would take the flag's value for the verb, or miss the verb."""
    flag = arguments[0].partition("=")[0] if arguments else ""
    if not flag.startswith("-") or flag == "-h" or any(own.startswith(flag) for own in _OWN_FLAGS):
        return
    verb = next((each for each in arguments if each in SUMMARIES), None)
    if verb is None:
        parser.error(f"unrecognized arguments: {flag}")
    parser.error(f"unknown flag {flag}: the flags of a verb come after the verb, as in aioproducer {verb} {flag}")


def _verb(module: str) -> Verb:
    return cast("Verb", import_module(f"aioproducer.cli.{module}").VERB)


def whole_parser() -> argparse.ArgumentParser:
    """The parser with the arguments of all verbs, for shells' completion."""
    return _parser(are_complete=True)


def _parser(*, are_complete: bool = False) -> argparse.ArgumentParser:
    """The parser of the command itself; ``are_complete``: with the arguments of its verbs."""
    parser = Parser(
        prog="aioproducer",
        description="The asyncio-native Apache Kafka producer.",
        epilog="aioproducer help VERB, or aioproducer VERB --help, shows the flags of a verb.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version, and exit")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for name, (module, summary) in SUMMARIES.items():
        of_verb = verbs.add_parser(name, help=summary)
        if are_complete:
            _verb(module).configure(of_verb)
    return parser


class _Version(argparse.Action):
    """Finds out only on demand whether native code is used: that takes as long as the help."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from aioproducer._twin import implementation

        print(f"aioproducer {__version__} ({implementation()})")
        parser.exit()


def _is_of_stdout(error: OSError) -> bool:
    """Whether standard output raised the error: verbs report those of files themselves, and these have names."""
    return error.filename is None and error.errno in _NO_ROOM


def _forget_stdout() -> None:
    """Keep the interpreter from flushing to a closed pipe or a full disk at exit, which would print a traceback."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
