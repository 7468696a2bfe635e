"""The report has a line for each batch, and no trouble with the file undoes what was written."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from aioproducer import TopicPartition
from aioproducer.errors import ConfigError
from aioproducer.spark.exactly_once.earlier_commit import EarlierCommit
from aioproducer.spark.exactly_once.task_summary import TaskSummary
from aioproducer.spark.sink.batch_report import BatchReport, as_line

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)


def test_the_tasks_of_a_batch_are_added_up() -> None:
    summaries = [
        TaskSummary(3, 30, offsets={ZERO: (5, 6), ONE: (0, 0)}, retries=1, seconds=0.5, dead_letters=4),
        TaskSummary(2, 20, offsets={ZERO: (2, 3)}, retries=2, seconds=1.25),
    ]

    assert as_line(summaries, "q1", 7) == {
        "query": "q1",
        "batch": 7,
        "skipped": False,
        "rows": 5,
        "bytes": 50,
        "tasks": 2,
        "dead_letters": 4,
        "retries": 3,
        "seconds": 1.25,
        "partitions": [
            {"topic": "orders", "partition": 0, "first_offset": 2, "last_offset": 6},
            {"topic": "orders", "partition": 1, "first_offset": 0, "last_offset": 0},
        ],
    }


@pytest.mark.parametrize(("summaries", "skipped"), [([TaskSummary(earlier=EarlierCommit(0, None))], True), ([], False)])
def test_the_report_of_a_batch_that_wrote_nothing_shows_whether_it_was_written_before(
    summaries: list[TaskSummary], skipped: bool
) -> None:
    line = as_line(summaries, "q1", 0)

    assert (line["skipped"], line["rows"], line["partitions"]) == (skipped, 0, [])


def test_lines_are_added_to_what_is_there(tmp_path: Path) -> None:
    file = tmp_path / "report.jsonl"
    for batch in range(2):
        BatchReport(str(file)).add([TaskSummary(rows=batch)], "q1", batch)

    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["batch"], line["rows"]) for line in lines] == [(0, 0), (1, 1)]
    assert all(line["at"].endswith("+00:00") for line in lines)


@pytest.mark.parametrize(("path", "sentence"), [("{}/no/such", "No such file"), ("{}", "Is a directory")])
def test_a_path_that_cannot_be_written_is_refused_before_anything_is(path: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=sentence):
        BatchReport(path.format(tmp_path)).check()


def test_a_file_that_is_lost_later_fails_no_batch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = tmp_path / "reports"
    directory.mkdir()
    file = str(directory / "report.jsonl")
    BatchReport(file).check()
    (directory / "report.jsonl").unlink()
    directory.rmdir()

    with caplog.at_level(logging.WARNING, "aioproducer.spark"):
        BatchReport(file).add([TaskSummary(rows=1)], "q1", 3)

    assert "Batch 3 of q1 is not in the report" in caplog.text
