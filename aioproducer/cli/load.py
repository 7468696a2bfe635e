"""``aioproducer load``: writes files to a topic with Spark; if requested exactly once, even if it is killed."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from aioproducer._config.secret import Secret
from aioproducer.cli.arguments import positive
from aioproducer.cli.configuration import HELP, add_configuration_arguments, configured_options
from aioproducer.cli.console import Console, console
from aioproducer.cli.extras import require
from aioproducer.cli.spark_command import in_percent, refuse_spark_connect, require_spark, session_for
from aioproducer.cli.spark_options import add_file_arguments, add_spark_arguments, files_of, shape_of
from aioproducer.cli.verb import ExitCode, Trouble, Verb
from aioproducer.errors import ConfigError

if TYPE_CHECKING:
    from aioproducer.spark.load.load import LoadPlan, LoadResult

__all__ = ["VERB"]

_MEGA: Final = 1e6
_SERIALIZERS: Final = ("key_serializer", "value_serializer")


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Exit codes: 0 everything is written, 1 it stopped early (with --exactly-once, the same command resumes), 2 it did "
        "not start. Records of one key keep the order of the rows, older files first. Their timestamp is the time of "
        "loading. With --exactly-once, --max-files files become visible together; split a huge file, since a file is one "
        f"transaction, which must end within transaction.timeout.ms. {HELP}"
    )
    parser.add_argument(
        "files", metavar="FILE", nargs="+", help="Parquet, CSV, JSON lines or text files, or directories"
    )
    parser.add_argument("--topic", required=True, help="the topic; must exist")
    once = parser.add_argument_group("exactly once")
    once.add_argument(
        "--exactly-once", action="store_true", help="write in transactions that can be resumed after a crash"
    )
    once.add_argument(
        "--id", metavar="NAME", help="name of the load, used as its transactional id; required with --exactly-once"
    )
    once.add_argument(
        "--checkpoint", metavar="DIR", help="where the progress is stored (default: ./.aioproducer-load/NAME)"
    )
    once.add_argument(
        "--again",
        action="store_true",
        help="write everything that the checkpoint does not list, even if this --id has committed",
    )
    once.add_argument("--max-files", metavar="N", type=positive, default=1, help="files per transaction (default: 1)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    add_configuration_arguments(parser)
    add_file_arguments(parser)
    add_spark_arguments(parser)


def _run(options: argparse.Namespace) -> ExitCode:
    from aioproducer.spark.load.load import LoadFailed

    _check_arguments(options)
    refuse_spark_connect("A load", options)
    require("A load", ["pyarrow", "pandas"], "load")
    plan = _plan(options)
    require_spark("A load")
    _check_topic(plan)
    out = console(as_json=options.json)
    how = f"exactly once as {plan.load_name!r}, checkpoint {plan.checkpoint}" if plan.load_name else "at least once"
    out.write(
        f"Loading into topic {plan.topic!r} at {plan.producer['bootstrap.servers']}, {how}: starting Spark "
        f"({options.master})."
    )
    with session_for("load", options, "Spark cannot read the files") as spark:
        try:
            result = _load(spark, plan, out)
        except LoadFailed as error:
            print(f"aioproducer load: {error}", file=sys.stderr)
            return ExitCode.BAD
    _report(result, out, options)
    return ExitCode.OK


VERB: Final = Verb(
    "load", "Write Parquet, CSV, JSON or text files to a topic; exactly once if requested.", _configure, _run
)


def _check_arguments(options: argparse.Namespace) -> None:
    """Raise Trouble for arguments that contradict each other."""
    if options.exactly_once and options.id is None:
        raise Trouble("--exactly-once needs --id NAME: it identifies this load's transactions in Kafka.")
    if not options.exactly_once and (options.id is not None or options.checkpoint is not None or options.again):
        raise Trouble("--id, --checkpoint and --again need --exactly-once; add it, or leave them out.")


def _plan(options: argparse.Namespace) -> LoadPlan:
    from aioproducer.spark.load.load import LoadPlan
    from aioproducer.spark.options.sink import SinkOptions

    producer = _producer(options)
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
    SinkOptions.from_spark(plan.sink_options())  # report invalid options before Spark is started
    return plan


def _producer(options: argparse.Namespace) -> Mapping[str, str]:
    """The producer's options, as Spark takes them.

    A file for other programs may name serializers; they do not count, because a load writes what it reads.
    """
    from aioproducer.spark.options.own import REFUSED

    for name, _ in options.options:
        reason = REFUSED.get(name.replace("_", "."))
        if reason is not None:
            raise ConfigError(f"-X {name}: not supported here: {reason}")
    found = configured_options(options)
    if "sasl_oauth_token_provider" in found:
        raise Trouble(
            "Spark's tasks cannot log in with this verb's tokens. Use a login by PLAIN, SCRAM or a certificate."
        )
    return {name.replace("_", "."): _text(value) for name, value in found.items() if name not in _SERIALIZERS}


def _text(value: object) -> str:
    """The value as an option of Spark, which is text."""
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, list | tuple):
        return ",".join(map(str, cast("Iterable[object]", value)))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_topic(plan: LoadPlan) -> None:
    """Report a missing topic or cluster before Spark is started."""
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


def _report(result: LoadResult, out: Console, options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(result.as_json(), indent=2))
        return
    numbers = result.as_json()
    if not result.rows and result.is_resumed:
        out.write("Everything was already written; nothing to do.")
        return
    what = f"{result.transactions} transactions" if options.exactly_once else "one job"
    out.write(
        f"Written: {result.rows:,} rows, {result.size / _MEGA:,.1f} MB of keys and values, in {what} and "
        f"{result.seconds:.1f} s ({numbers['rows_per_second']:,} rows/s)."
    )
