"""The verb ``spark forget-job`` as the shell sees it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from aioproducer.cli.main import main
from aioproducer.testing import FakeBroker
from tests.spark.query import Query, rows_of


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"orders": 4}) as broker:
        yield broker


@pytest.fixture
def job(broker: FakeBroker) -> Query:
    job = Query(broker.bootstrap_servers, "orders", **{"job.id": "day 30"})
    job.run(0)
    return job


def command(broker: FakeBroker, *more: str, job_id: str = "day 30") -> list[str]:
    target = ["--bootstrap-servers", broker.bootstrap_servers, "--transactional-id", "t", "--job-id", job_id]
    return ["spark", "forget-job", *target, *more]


def visible(broker: FakeBroker) -> list[int]:
    return sorted(int(record.value or b"") for record in broker.records("orders", committed=True))


def test_it_shows_the_commit_and_changes_nothing(
    broker: FakeBroker, job: Query, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(broker, "--show")) == 0
    assert main(command(broker, "--show", "--json")) == 0

    sentence, _, found = capsys.readouterr().out.partition("\n")
    assert sentence.startswith("job.id 'day 30' was committed at 2")
    assert "with 20 rows, " in sentence
    assert json.loads(found)["job"]["rows"] == 20
    assert job.run(0)[0].skipped


def test_yes_removes_it_and_the_job_is_written_again(
    broker: FakeBroker, job: Query, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(broker, "--yes")) == 0
    assert "was removed" in capsys.readouterr().out

    assert not job.run(0)[0].skipped
    assert visible(broker) == sorted(rows_of(0, 0))


def test_a_job_that_is_not_there_is_exit_code_1(
    broker: FakeBroker, job: Query, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(broker, "--yes", job_id="day 31")) == 1
    assert main(command(broker, "--show", "--json", job_id="day 31")) == 1

    sentence, _, found = capsys.readouterr().out.partition("\n")
    assert sentence == "The commit log, topic 'aioproducer-commits', has no commit of job.id 'day 31'."
    assert json.loads(found) == {"job": None}


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_confirmation_without_a_terminal_is_refused(
    broker: FakeBroker, more: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(broker, *more)) == 2
    assert "--yes" in capsys.readouterr().err


def test_a_missing_log_is_reported(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(broker, "--yes")) == 2
    assert "Topic 'aioproducer-commits' does not exist" in capsys.readouterr().err
    assert "aioproducer-commits" not in broker.cluster.topics, "the question must not create it"
