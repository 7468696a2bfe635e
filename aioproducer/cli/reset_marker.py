"""``aioproducer spark reset-marker``: lets a query write committed batches again after its checkpoint was rolled back."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer.cli.configuration import HELP, add_configuration_arguments, configuration
from aioproducer.cli.verb import ExitCode, Trouble, Verb

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig
    from aioproducer.spark.exactly_once.commit_marker import CommitMarker
    from aioproducer.spark.exactly_once.marker_reset import MarkerReset

__all__ = ["VERB"]


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Exit codes: 0 the marker was reset, or shown; 1 it was not: you declined, there is no marker to show, a query "
        "interfered, Kafka refused, or Kafka's answer was lost; 2 the reset could not start. Stop the query and roll its "
        f"checkpoint back first. {HELP}"
    )
    parser.add_argument("--transactional-id", metavar="NAME", required=True, help="the query's transactional.id")
    topic = parser.add_mutually_exclusive_group(required=True)
    topic.add_argument("--topic", help="the query's option 'topic', if it has no commit.marker.topic")
    topic.add_argument("--marker-topic", dest="topic", metavar="TOPIC", help="its option 'commit.marker.topic'")
    parser.add_argument(
        "--batch",
        metavar="N",
        type=int,
        help="the last batch that counts as written (default: none; the query must then start at batch 0)",
    )
    parser.add_argument("--show", action="store_true", help="only show the current marker")
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument(
        "--abort",
        action="store_true",
        help="abort an open transaction; a query that is still running fails and must repeat that batch",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the outcome as one JSON object; needs --yes or --show"
    )
    add_configuration_arguments(parser)


def _run(options: argparse.Namespace) -> ExitCode:
    from aioproducer.spark.exactly_once.marker_reset import ResetFailed, ResetUnknown

    if options.batch is not None and options.batch < 0:
        raise Trouble(
            f"invalid --batch {options.batch}: must be at least 0. Leave it out if no batch counts as written."
        )
    if not (options.yes or options.show) and (options.json or not sys.stdin.isatty()):
        raise Trouble(
            "Cannot ask for confirmation (standard input is not a terminal, or --json): add --yes, or --show to look only."
        )
    config = configuration(options)
    found = asyncio.run(_look(config, options))
    if options.show:
        return _show(found, options)
    seen = _checked(found, options)
    _warn(seen, found, options)
    if not (options.yes or _is_agreed()):
        _print("Nothing was changed.", options)
        return ExitCode.BAD
    try:
        now = asyncio.run(_reset(config, seen, options))
    except (ResetFailed, ResetUnknown) as error:
        _print_json({"was": _as_json(seen), "error": str(error)}, options)
        print(f"aioproducer spark: {error}", file=sys.stderr)
        return ExitCode.BAD
    _print_json({"was": _as_json(seen), "is": _as_json(now)}, options)
    _print(f"The marker now records {now}: the next batch to be written is {now.batch + 1}.", options)
    return ExitCode.OK


VERB: Final = Verb(
    "reset-marker", "Let a query write committed batches again, after its checkpoint was rolled back.",
    _configure, _run,
)  # fmt: skip


class _Found(NamedTuple):
    """The marker, a description of its place, and whether a transaction is open."""

    marker: CommitMarker | None
    place: str
    is_open: bool


async def _look(config: ProducerConfig, options: argparse.Namespace) -> _Found:
    async with _marker(config, options) as marker:
        is_open = not (options.show or options.abort) and await marker.has_open_transaction()
        return _Found(await marker.look(), marker.place, is_open)


async def _reset(config: ProducerConfig, seen: CommitMarker, options: argparse.Namespace) -> CommitMarker:
    async with _marker(config, options) as marker:
        return await marker.reset(seen, options.batch, abort=options.abort)


@asynccontextmanager
async def _marker(config: ProducerConfig, options: argparse.Namespace) -> AsyncGenerator[MarkerReset, None]:
    from aioproducer.spark.exactly_once.marker_reset import MarkerReset
    from aioproducer.transactions.client import TransactionCoordinatorClient

    async with TransactionCoordinatorClient(config) as client:
        yield MarkerReset(client, options.transactional_id, options.topic)


def _show(found: _Found, options: argparse.Namespace) -> ExitCode:
    marker = found.marker
    _print_json({"is": None if marker is None else _as_json(marker)}, options)
    if marker is None:
        _print(f"There is no marker: {found.place} does not exist.", options)
        return ExitCode.BAD
    _print(f"The marker ({found.place}) records {marker}.", options)
    return ExitCode.OK


def _checked(found: _Found, options: argparse.Namespace) -> CommitMarker:
    """The marker; raises Trouble if it cannot be reset."""
    from aioproducer.spark.exactly_once.marker_reset import checked_batch

    if found.marker is None:
        raise Trouble(
            f"There is no marker to reset: {found.place} does not exist. Is it in another topic (--marker-topic) or another "
            "cluster? To continue a query without a marker, set commit.marker.missing=trust-checkpoint."
        )
    checked_batch(found.marker, options.batch)
    if found.is_open:
        raise Trouble(
            f"A transaction of {options.transactional_id!r} is open: a query is running, or one died and left it open. Stop "
            "the query; an abandoned transaction ends after its transaction.timeout.ms, or at once with --abort."
        )
    return found.marker


def _warn(seen: CommitMarker, found: _Found, options: argparse.Namespace) -> None:
    from aioproducer.spark.exactly_once.marker_reset import checked_batch

    wanted, last = checked_batch(seen, options.batch), seen.highest
    _print(f"The marker ({found.place}) records {seen}.", options)
    if wanted == last:
        _print(
            "This takes back the earlier reset: the marker then fits a query whose checkpoint continues at batch "
            f"{wanted + 1}.",
            options,
        )
        return
    first = wanted + 1
    batches = f"batch {first}" if first == last else f"batches {first} to {last}"
    _print(
        f"After the reset Spark writes {batches} again; the rows already in Kafka stay, so consumers get them "
        f"twice. Roll back the stream's checkpoint so that it continues at batch {first}; otherwise the query is "
        "refused, and nothing is lost.",
        options,
    )


def _is_agreed() -> bool:
    try:
        return input("Reset it? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _as_json(marker: CommitMarker) -> dict[str, Any]:
    return {
        "query": marker.query,
        "batch": marker.batch,
        "rows": marker.rows,
        "at_ms": marker.at_ms,
        "set_back_from": marker.set_back_from,
    }


def _print(sentence: str, options: argparse.Namespace) -> None:
    if not options.json:
        print(sentence, flush=True)


def _print_json(outcome: dict[str, Any], options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(outcome, indent=2))
