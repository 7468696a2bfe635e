"""``aioproducer spark``: maintains queries that write through the Spark sink, with one sub-verb per action."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from aioproducer.cli import forget_job, reset_marker
from aioproducer.cli.verb import ExitCode, Verb

__all__ = ["VERB"]

_ACTIONS: Final[Sequence[Verb]] = (reset_marker.VERB, forget_job.VERB)


def _configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for action in _ACTIONS:
        of_action = actions.add_parser(action.name, help=action.summary, description=action.summary)
        action.configure(of_action)
        of_action.set_defaults(action=action)


def _run(options: argparse.Namespace) -> ExitCode:
    action: Verb = options.action
    return action.run(options)


VERB: Final = Verb("spark", "Maintain queries and jobs that write through the Spark sink.", _configure, _run)
