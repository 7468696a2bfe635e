"""The command ``aioproducer``: finds the verb, runs it, and turns expected trouble into one sentence and an exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Final

from aioproducer import __version__
from aioproducer._twin import implementation
from aioproducer.cli import audit, demo, load, spark
from aioproducer.cli.verb import ExitCode, Trouble, Verb
from aioproducer.errors import KafkaError

__all__ = ["VERBS", "main"]

#: All verbs, in the order in which --help shows them.
VERBS: Final[Sequence[Verb]] = (demo.VERB, load.VERB, audit.VERB, spark.VERB)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the verb that the arguments (None: of this process) name, and answer the exit code.

    0: all is well; 1: it ran, and the verdict is bad; 2: it could not run; 130: Ctrl-C. Raises SystemExit as argparse
    does: for ``--help``, ``--version``, and with code 2 for wrong arguments.
    """
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
    """Keep the interpreter from flushing into a closed pipe at its end, which would print a traceback."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
