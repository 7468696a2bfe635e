"""The verb ``spark reset-marker`` as the shell sees it: what it shows, asks, refuses and answers."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator

import pytest

from aioproducer.cli.main import main
from aioproducer.spark.exactly_once.commit_marker import CommitMarkerSetBack
from aioproducer.spark.exactly_once.task_summary import TaskSummary
from aioproducer.testing import FakeBroker
from tests.spark.query import Query, rows_of


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"orders": 4, "markers": 1}) as broker:
        yield broker


@pytest.fixture
def query(broker: FakeBroker) -> Query:
    query = Query(broker.bootstrap_servers, "orders", "q1")
    for batch in range(3):
        query.run(batch)
    return query


def command(broker: FakeBroker, *more: str, topic: str = "orders") -> list[str]:
    target = ["--bootstrap-servers", broker.bootstrap_servers, "--transactional-id", "t", "--topic", topic]
    return ["spark", "reset-marker", *target, *more]


def visible(broker: FakeBroker) -> list[int]:
    return sorted(int(record.value or b"") for record in broker.records("orders", committed=True))


def marker_batch(query: Query) -> int:
    found = query.begin().marker
    assert found is not None
    return found.batch


def test_it_shows_the_marker_and_changes_nothing(
    broker: FakeBroker, query: Query, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.forget_requests()

    assert main(command(broker, "--show")) == 0
    assert main(command(broker, "--show", "--json")) == 0

    sentence, _, reported = capsys.readouterr().out.partition("\n")
    assert "'aioproducer.spark.t' in partition 0 of topic 'orders') records batch 2 of query q1 (20 rows" in sentence
    assert (json.loads(reported)["is"]["query"], json.loads(reported)["is"]["batch"]) == ("q1", 2)
    assert broker.count("InitProducerId") == 0


def test_nothing_to_show_is_exit_code_1(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(broker, "--show")) == 1

    assert "There is no marker" in capsys.readouterr().out


def test_yes_sets_it_back_and_prints_the_consequence(
    broker: FakeBroker, query: Query, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(broker, "--yes", "--batch", "0")) == 0

    output = capsys.readouterr().out
    assert "writes batches 1 to 2 again" in output
    assert "consumers get them twice" in output
    assert output.endswith("the next batch to be written is 1.\n")
    assert marker_batch(query) == 0


def test_the_outcome_can_be_json(broker: FakeBroker, query: Query, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(broker, "--yes", "--json")) == 0

    output = json.loads(capsys.readouterr().out)
    assert (output["was"]["batch"], output["is"]["batch"]) == (2, -1)


@pytest.mark.parametrize(("answer", "code", "batch"), [(b"y\n", 0, -1), (b"\n", 1, 2), (b"no\n", 1, 2)])
def test_it_asks_at_a_terminal(broker: FakeBroker, query: Query, answer: bytes, code: int, batch: int) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, answer)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "aioproducer", *command(broker)],
            stdin=theirs, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
    finally:
        os.close(ours)
        os.close(theirs)

    assert done.returncode == code, done.stderr
    assert "Reset it? [y/N]" in done.stdout
    assert ("Nothing was changed." in done.stdout) is (code == 1)
    assert marker_batch(query) == batch


@pytest.mark.parametrize("more", [[], ["--abort"]])
def test_a_batch_that_begins_during_the_prompt_is_aborted_only_with_the_abort_option(
    broker: FakeBroker,
    query: Query,
    more: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    summaries: list[TaskSummary] = []

    def answer(question: str) -> str:
        transaction = query.begin()
        summaries.extend(query.task(transaction, 3, partition) for partition in range(2))
        return "y"

    monkeypatch.setattr("builtins.input", answer)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)

    assert main(command(broker, *more)) == (0 if more else 1)

    if more:
        assert marker_batch(query) == -1
        assert visible(broker) == rows_of(0, 1, 2)
    else:
        assert "has begun since" in capsys.readouterr().err
        query.commit(summaries, 3)
        assert visible(broker) == rows_of(0, 1, 2, 3)


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_without_a_terminal_it_does_not_guess(broker: FakeBroker, query: Query, more: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "aioproducer", *command(broker, *more)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip

    assert done.returncode == 2
    assert "add --yes, or --show to look" in done.stderr
    assert marker_batch(query) == 2


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (["--batch", "2"], "--batch takes 0 to 1."),
        (["--batch", "-1"], "must be at least 0"),
        (["-X", "lingering.ms=5"], "linger"),
    ],
)
def test_an_invalid_option_is_refused(
    broker: FakeBroker, query: Query, more: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(broker, "--yes", *more)) == 2

    assert complaint in capsys.readouterr().err
    assert marker_batch(query) == 2


def test_where_there_is_no_marker_it_names_the_other_places(
    broker: FakeBroker, query: Query, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(broker, "--yes", topic="markers")) == 2

    assert "Is it in another topic (--marker-topic)" in capsys.readouterr().err


def test_an_open_transaction_is_left_alone_unless_it_is_to_be_aborted(
    broker: FakeBroker, query: Query, capsys: pytest.CaptureFixture[str]
) -> None:
    transaction = query.begin()
    summaries = [query.task(transaction, 3, partition) for partition in range(2)]

    assert main(command(broker, "--yes")) == 2
    assert "A transaction of 't' is open" in capsys.readouterr().err
    query.commit(summaries, 3)
    query.task(query.begin(), 4, 0)
    assert main(command(broker, "--yes", "--abort")) == 0

    assert broker.open_transactions() == []
    for batch in range(4):
        query.run(batch)
    assert visible(broker) == sorted(rows_of(0, 1, 2, 3, 0, 1, 2, 3))


def test_a_running_query_is_refused_with_the_command_that_lets_it_go_on(
    broker: FakeBroker, query: Query, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(broker, "--yes", "--batch", "0")) == 0
    assert "Roll back the stream's checkpoint so that it continues at batch 1;" in capsys.readouterr().out

    with pytest.raises(CommitMarkerSetBack, match="reset-marker --batch 2"):
        query.run(3)
    assert main(command(broker, "--yes", "--batch", "2")) == 0

    output = capsys.readouterr().out
    assert "a query whose checkpoint continues at batch 3" in output
    assert "writes batch" not in output
    query.run(3)
    assert visible(broker) == rows_of(0, 1, 2, 3)


def test_one_that_is_set_back_further_names_all_batches(
    broker: FakeBroker, query: Query, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(broker, "--yes", "--batch", "1")) == 0
    capsys.readouterr()

    assert main(command(broker, "--yes", "--json", "--batch", "0")) == 0
    output = json.loads(capsys.readouterr().out)
    assert [(output[each]["batch"], output[each]["set_back_from"]) for each in ("was", "is")] == [(1, 2), (0, 2)]
    assert main(command(broker, "--yes", "--batch", "1")) == 0
    assert "writes batch 2 again" in capsys.readouterr().out


@pytest.mark.parametrize("is_applied", [True, False])
def test_a_commit_without_an_answer_is_reported_as_that(
    broker: FakeBroker, query: Query, is_applied: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.drop_connection("EndTxn", when="after" if is_applied else "before")
    fail = broker.fail_after_apply if is_applied else broker.fail
    fail("EndTxn", "PRODUCER_FENCED", times=2)

    assert main(command(broker, "--yes", "--json", "--batch", "0")) == 1

    output = capsys.readouterr()
    assert "may or may not be reset" in output.err
    assert "Call commit()" not in output.err
    assert "--show" in (outcome := json.loads(output.out))["error"]
    assert "a query that was running is fenced" in outcome["error"]
    assert (outcome["was"]["batch"], "is" in outcome) == (2, False)
    broker.clear_faults()
    assert main(command(broker, "--show", "--json")) == 0
    assert json.loads(capsys.readouterr().out)["is"]["batch"] == (0 if is_applied else 2)


@pytest.mark.parametrize(
    ("api", "error", "fenced"),
    [
        ("InitProducerId", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "may be fenced"),
        ("TxnOffsetCommit", "GROUP_AUTHORIZATION_FAILED", "is fenced"),
        ("EndTxn", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "is fenced"),
    ],
)
def test_a_failure_on_the_way_leaves_the_marker_and_is_reported(
    broker: FakeBroker, query: Query, api: str, error: str, fenced: str, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.fail(api, error, times=None)

    assert main(command(broker, "--yes")) == 1

    assert f"The marker is unchanged: {error}" in (reported := capsys.readouterr().err)
    assert "Abort the transaction" not in reported
    assert f"A query that was running {fenced}" in reported
    broker.clear_faults()
    assert marker_batch(query) == 2


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["spark"], "ACTION"),
        (["spark", "reset-marker"], "--transactional-id"),
        (["spark", "reset-marker", "--bootstrap-server", "a", "--transactional-id", "t"], "--marker-topic"),
        (["spark", "reset-marker", "--topic", "a", "--marker-topic", "b"], "not allowed with"),
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)

    assert exit_.value.code == 2
    assert complaint in capsys.readouterr().err
