"""All verbs of the command line; finds and runs one of them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Final

from aioproducer import __version__
from aioproducer._twin import implementation
from aioproducer.cli import audit, demo, load, spark, top
from aioproducer.cli.verb import ExitCode, Trouble, Verb
from aioproducer.errors import KafkaError

__all__ = ["VERBS", "run_verb"]

#: All verbs, in the order in which --help shows them.
VERBS: Final[Sequence[Verb]] = (demo.VERB, load.VERB, audit.VERB, spark.VERB, top.VERB)


def run_verb(arguments: Sequence[str] | None = None) -> int:
    """Does the work of `aioproducer.cli.main.main`; raises KeyboardInterrupt on Ctrl-C before the verb runs."""
    options = _parser().parse_args(arguments)
    verb: Verb = options.verb
    try:
        return verb.run(options)
    except (Trouble, KafkaError) as error:
        print(f"aioproducer {verb.name}: {error}", file=sys.stderr)
        return ExitCode.USAGE
    except KeyboardInterrupt:
        print(f"aioproducer {verb.name}: interrupted.", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return ExitCode.BAD


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="aioproducer", description="The asyncio-native Apache Kafka producer.")
    parser.add_argument("--version", action="version", version=f"aioproducer {__version__} ({implementation()})")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for verb in VERBS:
        of_verb = verbs.add_parser(verb.name, help=verb.summary, description=verb.summary)
        verb.configure(of_verb)
        of_verb.set_defaults(verb=verb)
    return parser


def _forget_stdout() -> None:
    """Keep the interpreter from flushing into a closed pipe at exit, which would print a traceback."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
