"""``aioproducer spark reset-marker``: lets a query whose checkpoint was rolled back write committed batches again."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer.cli.arguments import add_option_argument
from aioproducer.cli.verb import ExitCode, Trouble, Verb

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig
    from aioproducer.spark.exactly_once.commit_marker import CommitMarker
    from aioproducer.spark.exactly_once.marker_reset import MarkerReset

__all__ = ["VERB"]


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Exit codes: 0 it was set back, or shown; 1 it was not, as you said no, there is nothing to show, a query came in "
        "between or Kafka refused on the way, or the answer to it was lost; 2 it could not be tried. Stop the query and "
        "roll its checkpoint back first."
    )
    parser.add_argument("--bootstrap-servers", "--bootstrap-server", metavar="HOST:PORT,...", required=True)
    parser.add_argument("--transactional-id", metavar="NAME", required=True, help="the query's transactional.id")
    topic = parser.add_mutually_exclusive_group(required=True)
    topic.add_argument("--topic", help="the query's option 'topic', where it has no commit.marker.topic")
    topic.add_argument("--marker-topic", dest="topic", metavar="TOPIC", help="its option 'commit.marker.topic'")
    parser.add_argument(
        "--batch",
        metavar="N",
        type=int,
        help="the last batch that counts as written (default: none, so that the query has to begin at batch 0)",
    )
    parser.add_argument("--show", action="store_true", help="only show the marker that is there")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument(
        "--abort",
        action="store_true",
        help="abort a transaction that is open; a query that still runs fails, and has to run that batch again",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the outcome as one JSON object; needs --yes or --show"
    )
    add_option_argument(parser, "the producer", "max.block.ms=10000")


def _run(options: argparse.Namespace) -> ExitCode:
    from aioproducer.config import ProducerConfig
    from aioproducer.spark.exactly_once.marker_reset import ResetFailed, ResetUnknown

    if options.batch is not None and options.batch < 0:
        raise Trouble(f"--batch {options.batch}: batches are counted from 0. Leave it out, and none counts as written.")
    if not (options.yes or options.show) and (options.json or not sys.stdin.isatty()):
        raise Trouble(
            "There is nobody to ask (standard input is no terminal, or --json): say --yes, or --show to look."
        )
    config = ProducerConfig.from_properties({"bootstrap.servers": options.bootstrap_servers, **dict(options.options)})
    found = asyncio.run(_look(config, options))
    if options.show:
        return _show(found, options)
    seen = _checked(found, options)
    _warn(seen, found, options)
    if not (options.yes or _is_agreed()):
        _say("Nothing was changed.", options)
        return ExitCode.BAD
    try:
        now = asyncio.run(_set_back(config, seen, options))
    except (ResetFailed, ResetUnknown) as error:
        _tell({"was": _as_json(seen), "error": str(error)}, options)
        print(f"aioproducer spark: {error}", file=sys.stderr)
        return ExitCode.BAD
    _tell({"was": _as_json(seen), "is": _as_json(now)}, options)
    _say(f"The marker tells of {now} now: batch {now.batch + 1} is the next one that is written.", options)
    return ExitCode.OK


VERB: Final = Verb(
    "reset-marker", "Let a query write batches again that were committed, after its checkpoint was rolled back.",
    _configure, _run,
)  # fmt: skip


class _Found(NamedTuple):
    """The marker, where it is in words, and whether a transaction is open."""

    marker: CommitMarker | None
    place: str
    is_open: bool


async def _look(config: ProducerConfig, options: argparse.Namespace) -> _Found:
    async with _marker(config, options) as marker:
        is_open = not (options.show or options.abort) and await marker.has_open_transaction()
        return _Found(await marker.look(), marker.place, is_open)


async def _set_back(config: ProducerConfig, seen: CommitMarker, options: argparse.Namespace) -> CommitMarker:
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
    _tell({"is": None if marker is None else _as_json(marker)}, options)
    if marker is None:
        _say(f"There is no marker: {found.place} is not there.", options)
        return ExitCode.BAD
    _say(f"The marker ({found.place}) tells of {marker}.", options)
    return ExitCode.OK


def _checked(found: _Found, options: argparse.Namespace) -> CommitMarker:
    """The marker, where it may be set back."""
    from aioproducer.spark.exactly_once.marker_reset import checked_batch

    if found.marker is None:
        raise Trouble(
            f"There is no marker to set back: {found.place} is not there. Is it another topic (--marker-topic), or another "
            "cluster? A query that goes on without a marker needs commit.marker.missing=trust-checkpoint."
        )
    checked_batch(found.marker, options.batch)
    if found.is_open:
        raise Trouble(
            f"A transaction of {options.transactional_id!r} is open: a query is running, or it died and has left it. Stop "
            "the query; what a dead one has left ends by its transaction.timeout.ms, or at once with --abort."
        )
    return found.marker


def _warn(seen: CommitMarker, found: _Found, options: argparse.Namespace) -> None:
    from aioproducer.spark.exactly_once.marker_reset import checked_batch

    wanted, last = checked_batch(seen, options.batch), seen.highest
    _say(f"The marker ({found.place}) tells of {seen}.", options)
    if wanted == last:
        _say(f"Set to where it was, it is for a query whose checkpoint goes on at batch {wanted + 1}.", options)
        return
    first = wanted + 1
    batches = f"batch {first}" if first == last else f"batches {first} to {last}"
    _say(
        f"Set back, it lets Spark write {batches} once more; the rows that are in Kafka stay, so consumers get those "
        f"twice. A stream's checkpoint has to be rolled back so that it goes on at batch {first}; else the query is "
        "refused, and loses nothing.",
        options,
    )


def _is_agreed() -> bool:
    try:
        return input("Set it back? [y/N] ").strip().lower() in ("y", "yes")
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


def _say(sentence: str, options: argparse.Namespace) -> None:
    if not options.json:
        print(sentence, flush=True)


def _tell(outcome: dict[str, Any], options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(outcome, indent=2))
