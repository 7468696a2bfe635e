"""``aioproducer audit``: reads a topic with another client, on Spark, and says what is lost, doubled, moved or altered."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioproducer.cli.arguments import PAIRS, add_option_argument, positive
from aioproducer.cli.console import Console, console
from aioproducer.cli.extras import require
from aioproducer.cli.spark_command import in_percent, require_spark, session_for
from aioproducer.cli.spark_options import add_file_arguments, add_spark_arguments, files_of, shape_of
from aioproducer.cli.verb import ExitCode, Trouble, Verb

if TYPE_CHECKING:
    from aioproducer.spark.audit.audit import AuditPlan
    from aioproducer.spark.audit.facts import Where
    from aioproducer.spark.audit.verdict import AuditVerdict

__all__ = ["VERB"]

_TOLD: Final = 12


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Exit codes: 0 nothing is wrong, 1 faults were found, 2 the audit could not be made."
    parser.add_argument("--topic", required=True, help="the topic to audit; it should not be written to meanwhile")
    parser.add_argument("--bootstrap-servers", metavar="HOST:PORT,...", required=True, help="the cluster")
    against = parser.add_argument_group("what the topic is compared with: files, or numbers that its records carry")
    against.add_argument(
        "--expected", metavar="FILE", nargs="+", help="files whose rows should be in the topic, once each"
    )
    against.add_argument(
        "--order",
        metavar="file|none|COLUMN",
        default="file",
        help="with files: in which order the records of a key were sent (default: file, as the rows stand)",
    )
    against.add_argument(
        "--sequence", metavar="WHERE", help="where a sequence number is: header:NAME, json:FIELD or value"
    )
    against.add_argument("--run", metavar="WHERE", help="where a name of the run is, each with numbers of its own")
    against.add_argument(
        "--records",
        metavar="N",
        type=positive,
        help="how many numbers a run has, so that others are stray (default: up to the highest that is there)",
    )
    against.add_argument("--first-sequence", metavar="N", type=int, default=0, help="a run's first number (default: 0)")
    parser.add_argument(
        "--partitioner", choices=["murmur2", "none"], default="murmur2", help="whose choice keys are held against"
    )
    parser.add_argument("--out", metavar="FILE", help="write the verdict there, as JSON")
    parser.add_argument("--report", metavar="FILE", help="write a page with charts there, as HTML")
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON instead of the story")
    parser.add_argument(
        "--reader",
        choices=["confluent-kafka", "spark"],
        default="confluent-kafka",
        help="who reads the records: confluent-kafka (default), or Spark's own Kafka source, whose jar has to be there: "
        "--conf spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:VERSION, the version of PySpark",
    )
    parser.add_argument(
        "--source-option",
        dest="source_options",
        help="with --reader spark: an option of that source, as in --source-option kafka.security.protocol=SSL; may be "
        "repeated",
        **PAIRS,
    )
    add_option_argument(parser, "librdkafka's consumer", "security.protocol=SSL")
    parser.add_argument(
        "--patience",
        metavar="SECONDS",
        type=float,
        default=60.0,
        help="for silence, and for open transactions (default: 60)",
    )
    add_file_arguments(parser)
    add_spark_arguments(parser)


def _run(options: argparse.Namespace) -> ExitCode:
    require("The audit", ["confluent_kafka", "numpy", "pandas", "pyarrow"], "audit")
    require_spark("The audit", options)
    plan = _plan(options)
    for name, path in _files_to_write(options):
        _check_file(name, path)
    out = console(as_json=options.json)
    _check_topic(plan)
    out.say(f"Auditing topic {plan.topic!r} at {options.bootstrap_servers}: starting Spark ({options.master}).")
    with session_for("audit", options, "Spark cannot read what is to be compared") as spark:
        verdict = _audit(spark, plan, out)
    _tell(verdict, out, options)
    _write(verdict, out, options)
    return ExitCode.OK if verdict.is_clean else ExitCode.BAD


VERB: Final = Verb(
    "audit", "Prove what is in a topic: nothing lost, duplicated, reordered, misplaced or altered.", _configure, _run
)


def _plan(options: argparse.Namespace) -> AuditPlan:
    from aioproducer.spark.audit.audit import AuditPlan, AuditReader

    if options.expected is not None and options.sequence is not None:
        raise Trouble("--expected and --sequence are two ways to know what should be there; choose one.")
    if options.run is not None and options.sequence is None:
        raise Trouble("--run tells apart the numbers of several runs, so it needs --sequence.")
    if (options.records is not None or options.first_sequence) and options.sequence is None:
        raise Trouble("--records and --first-sequence say which numbers there should be, so they need --sequence.")
    if options.first_sequence < 0:
        raise Trouble("--first-sequence: sequence numbers are whole numbers from 0.")
    config = {"bootstrap.servers": options.bootstrap_servers, **dict(options.options)}
    plan = AuditPlan(
        topic=options.topic,
        config=config,
        expected=None if options.expected is None else files_of(options, options.expected),
        shape=shape_of(options, is_compared=True),
        order=options.order,
        sequence=_where(options.sequence),
        run=_where(options.run),
        records=options.records,
        first=options.first_sequence,
        checks_partition=options.partitioner == "murmur2",
        patience=options.patience,
        reader=AuditReader(options.reader),
        source_options=_source_options(options),
    )
    if not plan.checks_anything:
        raise Trouble(
            "Nothing would be checked: there is nothing to compare with, the partitioner is not to count, and the -X "
            "options keep our client from asking why an offset has no record. Give --expected or --sequence."
        )
    return plan


def _source_options(options: argparse.Namespace) -> Mapping[str, str]:
    """What is told Spark's Kafka source; raises Trouble for what is not the user's to say."""
    from aioproducer.spark.audit.kafka_source import check_source_options
    from aioproducer.spark.audit.offsets import AuditFailed

    chosen = dict(options.source_options)
    if chosen and options.reader != "spark":
        raise Trouble(
            "--source-option is told Spark's Kafka source, so it needs --reader spark; confluent-kafka has -X."
        )
    try:
        check_source_options(chosen)
    except AuditFailed as error:
        raise Trouble(str(error)) from error
    return chosen


def _check_topic(plan: AuditPlan) -> None:
    """Say now, and not when Spark has started, that there is no such topic or cluster."""
    from aioproducer.spark.audit.offsets import AuditFailed, stable_ranges

    try:
        stable_ranges(plan.config, plan.topic, plan.patience)
    except AuditFailed as error:
        raise Trouble(str(error)) from error


def _where(text: str | None) -> Where | None:
    from aioproducer.spark.audit.facts import Where, WhereRefused

    try:
        return None if text is None else Where.parse(text)
    except WhereRefused as error:
        raise Trouble(str(error)) from error


def _audit(spark: Any, plan: AuditPlan, out: Console) -> AuditVerdict:
    from aioproducer.spark.audit.audit import run_audit
    from aioproducer.spark.audit.offsets import AuditFailed

    try:
        with out.progress("Auditing", 100) as advance:
            return run_audit(spark, plan, in_percent(advance))
    except AuditFailed as error:
        raise Trouble(str(error)) from error


def _files_to_write(options: argparse.Namespace) -> Sequence[tuple[str, Path]]:
    """What is to be written besides, by the names of the options."""
    chosen = {"--out": options.out, "--report": options.report}
    return [(name, Path(path)) for name, path in chosen.items() if path is not None]


def _check_file(name: str, path: Path) -> None:
    """Say now, and not when an hour of audit has gone, that it cannot be written; raises Trouble."""
    if not path.parent.is_dir():
        raise Trouble(f"{name} {path}: there is no directory {path.parent}. Make it, or name another one.")
    if path.is_dir():
        raise Trouble(f"{name} {path}: that is a directory. Name a file in it.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise Trouble(f"{name} {path}: it cannot be written, as the right to do so is missing.")


def _write(verdict: AuditVerdict, out: Console, options: argparse.Namespace) -> None:
    """Raises Trouble for a file that cannot be written after all; the verdict is told already."""
    from aioproducer.spark.audit.report import html_report

    for name, path in _files_to_write(options):
        if name == "--out":
            text = json.dumps(verdict.as_json(), indent=2) + "\n"
        else:
            text = html_report(verdict, datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise Trouble(f"{name} {path}: it cannot be written: {error}.") from error
        out.say(f"Written: {path}")


def _tell(verdict: AuditVerdict, out: Console, options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(verdict.as_json(), indent=2))
        return
    for sample in verdict.samples[:_TOLD]:
        out.say(f"  - {sample.kind.value}: {sample}")
    for name, why in verdict.expectation.unchecked.items():
        out.say(f"  (not checked: {name}, as {why})")
    out.say(f"VERDICT: {'CLEAN' if verdict.is_clean else 'FAULTS'} - {verdict} ({verdict.seconds['total']:.1f} s)")
