"""``aioproducer load``: brings files into a topic on Spark; if asked exactly once, however often it is killed."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioproducer.cli.arguments import add_option_argument, positive
from aioproducer.cli.console import Console, console
from aioproducer.cli.extras import require
from aioproducer.cli.spark_command import in_percent, require_spark, session_for
from aioproducer.cli.spark_options import add_file_arguments, add_spark_arguments, files_of, shape_of
from aioproducer.cli.verb import ExitCode, Trouble, Verb

if TYPE_CHECKING:
    from aioproducer.spark.load.load import LoadPlan, LoadResult

__all__ = ["VERB"]

_MEGA: Final = 1e6


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Exit codes: 0 all is written, 1 it stopped on the way (with --exactly-once the same command goes on), 2 it was "
        "not begun. Records of one key keep the order of the rows, the older file first. With --exactly-once --max-files "
        "files become visible together; one huge file is one transaction, which has to end within "
        "transaction.timeout.ms: split it."
    )
    parser.add_argument("files", metavar="FILE", nargs="+", help="Parquet, CSV, JSON lines or text; directories, too")
    parser.add_argument("--topic", required=True, help="the topic, which has to exist")
    parser.add_argument("--bootstrap-servers", metavar="HOST:PORT,...", required=True, help="the cluster")
    once = parser.add_argument_group("exactly once")
    once.add_argument("--exactly-once", action="store_true", help="in transactions, to be resumed after a kill")
    once.add_argument(
        "--id", metavar="NAME", help="the load's name, which becomes its transactional id; needed for that"
    )
    once.add_argument(
        "--checkpoint", metavar="DIR", help="where it keeps how far it is (default: .aioproducer-load/NAME, here)"
    )
    once.add_argument(
        "--again",
        action="store_true",
        help="write what the checkpoint does not know of, though this --id has committed",
    )
    once.add_argument("--max-files", metavar="N", type=positive, default=1, help="files in a transaction (default: 1)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the story")
    add_option_argument(parser, "the producer", "compression.type=zstd")
    add_file_arguments(parser)
    add_spark_arguments(parser)


def _run(options: argparse.Namespace) -> ExitCode:
    from aioproducer.spark.load.load import LoadFailed

    require("A load", ["pyarrow", "pandas"], "load")
    require_spark("A load", options)
    plan = _plan(options)
    _check_topic(plan)
    out = console(as_json=options.json)
    how = f"exactly once as {plan.load_name!r}, checkpoint {plan.checkpoint}" if plan.load_name else "at least once"
    out.say(
        f"Loading into topic {plan.topic!r} at {options.bootstrap_servers}, {how}: starting Spark ({options.master})."
    )
    with session_for("load", options, "Spark cannot read the files") as spark:
        try:
            result = _load(spark, plan, out)
        except LoadFailed as error:
            print(f"aioproducer load: {error}", file=sys.stderr)
            return ExitCode.BAD
    _tell(result, out, options)
    return ExitCode.OK


VERB: Final = Verb(
    "load", "Bring Parquet, CSV, JSON or text files into a topic; exactly once, if asked.", _configure, _run
)


def _plan(options: argparse.Namespace) -> LoadPlan:
    from aioproducer.spark.load.load import LoadPlan
    from aioproducer.spark.options.sink import SinkOptions

    if options.exactly_once and options.id is None:
        raise Trouble(
            "--exactly-once needs --id NAME: by it Kafka tells this load's transactions from those of others."
        )
    if not options.exactly_once and (options.id is not None or options.checkpoint is not None or options.again):
        raise Trouble("--id, --checkpoint and --again belong to --exactly-once; add that, or leave them out.")
    producer = {"bootstrap.servers": options.bootstrap_servers, **dict(options.options)}
    directory = options.checkpoint or Path(".aioproducer-load", options.id or "")
    plan = LoadPlan(
        files=files_of(options, options.files),
        topic=options.topic,
        producer=producer,
        shape=shape_of(options),
        load_name=options.id,
        checkpoint=Path(directory),
        max_files=options.max_files,
        is_again=options.again,
    )
    SinkOptions.from_spark(plan.sink_options())  # what is wrong with them is said before Spark is started
    return plan


def _check_topic(plan: LoadPlan) -> None:
    """Say now, and not when Spark has started, that there is no such topic or cluster."""
    from aioproducer.spark.load.state import LoadRefused
    from aioproducer.spark.load.topic import check_topic

    try:
        check_topic(plan.producer, plan.topic)
    except LoadRefused as error:
        raise Trouble(str(error)) from error


def _load(spark: Any, plan: LoadPlan, out: Console) -> LoadResult:
    from aioproducer.spark.load.load import run_load
    from aioproducer.spark.load.state import LoadRefused

    try:
        with out.progress("Loading", 100) as advance:
            return run_load(spark, plan, in_percent(advance))
    except LoadRefused as error:
        raise Trouble(str(error)) from error


def _tell(result: LoadResult, out: Console, options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(result.as_json(), indent=2))
        return
    told = result.as_json()
    if not result.rows and result.is_resumed:
        out.say("Everything had been written before; nothing was written now.")
        return
    what = f"{result.transactions} transactions" if options.exactly_once else "one job"
    out.say(
        f"Written: {result.rows:,} rows, {result.size / _MEGA:,.1f} MB of keys and values, in {what} and "
        f"{result.seconds:.1f} s ({told['rows_per_second']:,} rows/s)."
    )
