"""The first line that a user reads after a failed write is the cause, whichever way it was written."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from aioproducer.testing.plugin import KafkaFactory
from tests.spark import failing_writes
from tests.spark.local_spark import ROOT, need
from tests.spark.read_back import read_committed
from tests.spark.streams import PARTITIONS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TOO_LARGE = "more than max_request_size=1048576"
TIMEOUT = f"The batch took longer than transaction.timeout.ms={failing_writes.TIMEOUT_MS}"


class Reported:
    """The text of each exception, all that went to standard error, and Spark's events."""

    def __init__(self, why: Mapping[str, str], log: str, events: Sequence[Mapping[str, Any]]) -> None:
        self.why = why
        self.log = log
        self.events = events

    def barrier_stages(self) -> set[int]:
        """The ids of all barrier stages."""
        submitted = [each["Stage Info"] for each in self.events if each["Event"] == "SparkListenerStageSubmitted"]
        return {each["Stage ID"] for each in submitted if any(rdd["Barrier"] for rdd in each["RDD Info"])}

    def ends(self) -> Mapping[tuple[int, int], set[str]]:
        """The ends of the tasks of each attempt at a stage."""
        found: dict[tuple[int, int], set[str]] = {}
        for each in self.events:
            if each["Event"] == "SparkListenerTaskEnd":
                attempt = each["Stage ID"], each["Stage Attempt ID"]
                found.setdefault(attempt, set()).add(each["Task End Reason"]["Reason"])
        return found


@pytest.fixture(scope="module", params=["4.3.1", pytest.param("3.9.2", marks=pytest.mark.soak)])
def reported(
    request: pytest.FixtureRequest, kafka_factory: KafkaFactory, tmp_path_factory: pytest.TempPathFactory
) -> Reported:
    need()
    kafka, directory = kafka_factory(request.param), tmp_path_factory.mktemp("failing")
    topic = directory.name
    kafka.create_topic(topic, PARTITIONS)
    program = [sys.executable, "-m", failing_writes.__name__, kafka.bootstrap_servers, topic, str(directory)]
    with (directory / "stderr").open("w") as stderr:
        done = subprocess.run(
            program, cwd=ROOT, stdout=subprocess.PIPE, stderr=stderr, text=True, timeout=600, check=False
        )
    log = (directory / "stderr").read_text()
    assert done.returncode == 0, log[-3000:]
    assert read_committed(kafka.bootstrap_servers, topic, PARTITIONS) == Counter(range(20)), "the job that succeeded"
    files = sorted((directory / "events").glob("**/events_*"))
    events = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return Reported(json.loads(done.stdout), log, events)


@pytest.mark.parametrize(
    ("write", "cause"),
    [
        ("batch, too large", TOO_LARGE),
        ("stream, too large", TOO_LARGE),
        ("helper, too large", TOO_LARGE),
        ("batch, timeout", TIMEOUT),
        ("stream, timeout", TIMEOUT),
        ("batch, upstream", "a mistake in the user's own function"),
        ("batch, worker dies", "Python worker exited unexpectedly"),
    ],
)
def test_the_exception_contains_the_cause(reported: Reported, write: str, cause: str) -> None:
    assert cause in reported.why[write]
    assert "ran a task of this batch again" not in reported.why[write]


@pytest.mark.parametrize("write", ["batch, too large", "batch, timeout"])
def test_it_is_some_lines_and_the_cause_is_the_last_sentence(reported: Reported, write: str) -> None:
    lines = reported.why[write].strip().splitlines()

    assert len(lines) <= 8, reported.why[write]
    assert "WriteFailed: The rows were not written: " in lines[-2]
    assert lines[-2].endswith("None of them become visible.")


def test_a_helper_reports_the_cause_in_one_line(reported: Reported) -> None:
    assert "\n" not in reported.why["helper, too large"]


def test_no_task_of_a_barrier_stage_succeeds_where_another_fails(reported: Reported) -> None:
    """Spark may count the one that succeeded for the next try, which then lacks a task, and never ends (SPARK-59094)."""
    tries = {stage: ends for stage, ends in reported.ends().items() if stage[0] in reported.barrier_stages()}

    assert len(tries) == 4, "Spark has tried four times"
    assert all("ExceptionFailure" in ends for ends in tries.values())
    assert not any("Success" in ends for ends in tries.values()), tries


def test_the_log_and_the_errors_do_not_mention_epochs(reported: Reported) -> None:
    """The irrelevant error: the abort of a transaction that has already ended."""
    everything = reported.log + "".join(reported.why.values())

    assert "INVALID_PRODUCER_EPOCH" not in everything
    assert "PRODUCER_FENCED" not in everything
    assert "was not aborted" not in everything


def test_a_job_that_is_left_out_is_a_warning(reported: Reported) -> None:
    assert reported.why["batch, job"] == reported.why["batch, job again"] == ""
    assert "job.id '1' was committed before at 2" in reported.log
