"""``aioproducer spark forget-job``: removes a job from the commit log, so that its rows can be written again."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import TYPE_CHECKING, Final

from aioproducer.cli.configuration import HELP, add_configuration_arguments, configuration
from aioproducer.cli.verb import ExitCode, Trouble, Verb

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig
    from aioproducer.spark.exactly_once.earlier_commit import EarlierCommit

__all__ = ["VERB"]


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Exit codes: 0 the job was removed, or shown; 1 the log has no such job, or you declined; 2 the removal could not "
        "start. The rows of the job stay in Kafka: if it runs again, consumers get them twice. "
        f"{HELP}"
    )
    parser.add_argument("--transactional-id", metavar="NAME", required=True, help="the job's transactional.id")
    parser.add_argument("--job-id", metavar="ID", required=True, help="the job's option job.id")
    parser.add_argument(
        "--commit-log", metavar="TOPIC", help="its option commit.log.topic (default: aioproducer-commits)"
    )
    parser.add_argument("--show", action="store_true", help="only show the commit")
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON; needs --yes or --show")
    add_configuration_arguments(parser)


def _run(options: argparse.Namespace) -> ExitCode:
    from aioproducer.errors import KafkaError
    from aioproducer.spark.exactly_once.job_forget import forget_job
    from aioproducer.spark.options.sink import COMMIT_LOG

    if not (options.yes or options.show) and (options.json or not sys.stdin.isatty()):
        raise Trouble(
            "Cannot ask for confirmation (standard input is not a terminal, or --json): add --yes, or --show to look only."
        )
    config = configuration(options)
    topic: str = options.commit_log or COMMIT_LOG
    try:
        found = asyncio.run(_look(config, topic, options))
        _report(found, topic, options)
        if found is None:
            return ExitCode.BAD
        if options.show:
            return ExitCode.OK
        if not (options.yes or _is_agreed()):
            print("Nothing was changed.")
            return ExitCode.BAD
        asyncio.run(forget_job(config, topic, options.transactional_id, options.job_id))
    except KafkaError as error:
        raise Trouble(str(error)) from error
    if not options.json:
        print(f"job.id {options.job_id!r} was removed: the job will write its rows again when it runs.")
    return ExitCode.OK


VERB: Final = Verb("forget-job", "Let a committed batch job write its rows again.", _configure, _run)


async def _look(config: ProducerConfig, topic: str, options: argparse.Namespace) -> EarlierCommit | None:
    from aioproducer.spark.exactly_once.commit_log import CommitLog

    log = CommitLog(config, topic)
    if not await log.exists():
        raise Trouble(f"Topic {topic!r} does not exist. Name the commit log with --commit-log.")
    return await log.find(options.transactional_id, options.job_id)


def _report(found: EarlierCommit | None, topic: str, options: argparse.Namespace) -> None:
    from aioproducer.spark.exactly_once.commit_marker import utc

    if options.json:
        print(json.dumps({"job": None if found is None else _as_json(found)}, indent=2))
    elif found is None:
        print(f"The commit log, topic {topic!r}, has no commit of job.id {options.job_id!r}.")
    else:
        when = "" if found.at_ms is None else f" at {utc(found.at_ms)}"
        print(f"job.id {options.job_id!r} was committed{when} with {found.contents}.")


def _as_json(found: EarlierCommit) -> dict[str, object]:
    contents = found.contents
    return {
        "at_ms": found.at_ms,
        "rows": None if contents is None else contents.rows,
        "bytes": None if contents is None else contents.size,
        "digest": None if contents is None else f"{contents.digest:016x}",
    }


def _is_agreed() -> bool:
    try:
        return input("Remove it, so that its rows are written again? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False
