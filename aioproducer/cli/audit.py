"""``aioproducer audit``: reads a topic with another client, on Spark, and reports its faults."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioproducer.cli.arguments import PAIRS, positive
from aioproducer.cli.configuration import add_configuration_arguments, configuration
from aioproducer.cli.console import Console, console
from aioproducer.cli.extras import require
from aioproducer.cli.librdkafka import connection_options
from aioproducer.cli.spark_command import in_percent, refuse_spark_connect, require_spark, session_for
from aioproducer.cli.spark_options import add_file_arguments, add_spark_arguments, files_of, shape_of
from aioproducer.cli.verb import ExitCode, Trouble, Verb

if TYPE_CHECKING:
    from aioproducer.spark.audit.audit import AuditPlan
    from aioproducer.spark.audit.facts import Where
    from aioproducer.spark.audit.verdict import AuditVerdict

__all__ = ["VERB"]

_SAMPLES_SHOWN: Final = 12


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Exit codes: 0 no faults, 1 faults were found, 2 the audit could not run. The cluster, TLS and login come from the "
        "flags, -X, the file of -F, the profile, and environment variables such as KAFKA_BOOTSTRAP_SERVERS; each of them "
        "overrides those after it. The names of -X are those of librdkafka's consumer, which does the reading."
    )
    parser.add_argument("--topic", required=True, help="the topic to audit; should not be written to during the audit")
    _add_expectation(parser)
    parser.add_argument(
        "--partitioner",
        choices=["murmur2", "none"],
        default="murmur2",
        help="check each key's partition against this partitioner (default: murmur2)",
    )
    parser.add_argument("--out", metavar="FILE", help="write the verdict to this file, as JSON")
    parser.add_argument("--report", metavar="FILE", help="write a report with charts to this file, as HTML")
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON instead of text")
    parser.add_argument(
        "--reader",
        choices=["confluent-kafka", "spark"],
        default="confluent-kafka",
        help="what reads the records: confluent-kafka (default), or Spark's own Kafka source, which needs its jar: "
        "--conf spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:VERSION, with PySpark's version",
    )
    parser.add_argument(
        "--source-option",
        dest="source_options",
        help="with --reader spark: an option of that source, as in --source-option kafka.security.protocol=SSL; may be "
        "repeated",
        **PAIRS,
    )
    add_configuration_arguments(parser, option_help="an option of librdkafka's consumer; may be repeated")
    parser.add_argument(
        "--patience",
        metavar="SECONDS",
        type=float,
        default=60.0,
        help="how long to wait for records, and for open transactions (default: 60)",
    )
    add_file_arguments(parser)
    add_spark_arguments(parser)


def _add_expectation(parser: argparse.ArgumentParser) -> None:
    against = parser.add_argument_group("what the topic is compared with: files, or sequence numbers in its records")
    against.add_argument(
        "--expected", metavar="FILE", nargs="+", help="files whose rows should be in the topic, once each"
    )
    against.add_argument(
        "--order",
        metavar="file|none|COLUMN",
        default="file",
        help="with files: the order in which the records of a key were sent (default: file, the order of the rows)",
    )
    against.add_argument(
        "--sequence", metavar="WHERE", help="where the sequence number is: header:NAME, json:FIELD or value"
    )
    against.add_argument("--run", metavar="WHERE", help="where the run's name is; each run has its own sequence")
    against.add_argument(
        "--records",
        metavar="N",
        type=positive,
        help="sequence numbers per run; higher ones are stray (default: up to the highest found)",
    )
    against.add_argument("--first-sequence", metavar="N", type=int, default=0, help="a run's first number (default: 0)")


def _run(options: argparse.Namespace) -> ExitCode:
    _check_arguments(options)
    refuse_spark_connect("The audit", options)
    require("The audit", ["confluent_kafka", "numpy", "pandas", "pyarrow"], "audit")
    plan = _plan(options)
    require_spark("The audit")
    out = console(as_json=options.json)
    _check_topic(plan)
    out.write(
        f"Auditing topic {plan.topic!r} at {plan.config['bootstrap.servers']}: starting Spark ({options.master})."
    )
    with session_for("audit", options, "Spark cannot read the data to compare") as spark:
        verdict = _audit(spark, plan, out)
    _report(verdict, out, options)
    _write(verdict, out, options)
    return ExitCode.OK if verdict.is_clean else ExitCode.BAD


VERB: Final = Verb(
    "audit", "Check a topic for lost, duplicated, reordered, misplaced or altered records.", _configure, _run
)


def _check_arguments(options: argparse.Namespace) -> None:
    """Raise Trouble for arguments that contradict each other, and for files that cannot be written."""
    if options.expected is not None and options.sequence is not None:
        raise Trouble("--expected and --sequence cannot be combined: both define the expected records; choose one.")
    if options.run is not None and options.sequence is None:
        raise Trouble("--run separates the sequence numbers of several runs, so it needs --sequence.")
    if (options.records is not None or options.first_sequence) and options.sequence is None:
        raise Trouble("--records and --first-sequence define the expected sequence numbers, so they need --sequence.")
    if options.first_sequence < 0:
        raise Trouble("invalid --first-sequence: must be at least 0.")
    for name, path in _files_to_write(options):
        _check_file(name, path)


def _plan(options: argparse.Namespace) -> AuditPlan:
    from aioproducer.spark.audit.audit import AuditPlan, AuditReader

    config = _connection(options)
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
            "Nothing would be checked: there is nothing to compare with, --partitioner is none, and the -X options "
            "prevent aioproducer from looking up why an offset has no record. Add --expected or --sequence."
        )
    return plan


def _connection(options: argparse.Namespace) -> Mapping[str, str]:
    """The options of librdkafka: what -X gives, over a producer's configuration in the file, profile and environment."""
    given = dict(options.options)
    servers = options.bootstrap_servers or given.get("bootstrap.servers") or given.get("metadata.broker.list")
    others = argparse.Namespace(**{**vars(options), "options": []})
    return {**connection_options(configuration(others, {"bootstrap_servers": servers})), **given}


def _source_options(options: argparse.Namespace) -> Mapping[str, str]:
    """The options of Spark's Kafka source; raises Trouble for those that the audit sets itself."""
    from aioproducer.spark.audit.kafka_source import check_source_options
    from aioproducer.spark.audit.offsets import AuditFailed

    chosen = dict(options.source_options)
    if chosen and options.reader != "spark":
        raise Trouble(
            "--source-option sets options of Spark's Kafka source, so it needs --reader spark; use -X for confluent-kafka."
        )
    try:
        check_source_options(chosen)
    except AuditFailed as error:
        raise Trouble(str(error)) from error
    return chosen


def _check_topic(plan: AuditPlan) -> None:
    """Report a missing topic or cluster before Spark is started."""
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
    """The files to write, by the names of the options."""
    chosen = {"--out": options.out, "--report": options.report}
    return [(name, Path(path)) for name, path in chosen.items() if path is not None]


def _check_file(name: str, path: Path) -> None:
    """Raise Trouble now, not after an hour of audit, if the file cannot be written."""
    if not path.parent.is_dir():
        raise Trouble(f"{name} {path}: there is no directory {path.parent}. Create it, or choose another one.")
    if path.is_dir():
        raise Trouble(f"{name} {path}: this is a directory. Name a file in it.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise Trouble(f"{name} {path}: writing to it is not permitted.")


def _write(verdict: AuditVerdict, out: Console, options: argparse.Namespace) -> None:
    """Raises Trouble if a file cannot be written after all; the verdict has been printed by then."""
    from aioproducer.spark.audit.report import html_report

    for name, path in _files_to_write(options):
        if name == "--out":
            text = json.dumps(verdict.as_json(), indent=2) + "\n"
        else:
            text = html_report(verdict, datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise Trouble(f"{name} {path}: could not write the file: {error}.") from error
        out.write(f"Written: {path}")


def _report(verdict: AuditVerdict, out: Console, options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(verdict.as_json(), indent=2))
        return
    for sample in verdict.samples[:_SAMPLES_SHOWN]:
        out.write(f"  - {sample.kind.value}: {sample}")
    for name, why in verdict.expectation.unchecked.items():
        out.write(f"  (not checked: {name}, because {why})")
    out.write(f"VERDICT: {'CLEAN' if verdict.is_clean else 'FAULTS'} - {verdict} ({verdict.seconds['total']:.1f} s)")
