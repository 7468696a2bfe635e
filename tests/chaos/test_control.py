"""The judge finds what is committed on the records of real brokers, and the negative control notices a blind judge."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from aioproducer.testing.broker.log import LoggedRecord
from tests.chaos import control
from tests.chaos.control import overlooked
from tests.chaos.reading import ReadLog
from tests.simulation.judge import Rules, verdict
from tests.simulation.ledger import End, Ledger, Reported, Transaction


def written() -> tuple[list[ReadLog], Ledger]:
    """Two partitions as they were read, and the ledger of their records, all acknowledged."""
    ledger = Ledger()
    logs: list[ReadLog] = []
    for partition in range(2):
        records: list[LoggedRecord] = []
        for offset in range(5):
            entry = ledger.enter("caller", 2 * offset + partition, "orders", b"key")
            entry.reported, entry.partition, entry.offset = Reported.WRITTEN, partition, offset
            records.append(LoggedRecord("orders", partition, offset, 0, entry.key, entry.value))
        logs.append(ReadLog(records, records))
    return logs, ledger


def test_the_judge_reports_both_crimes() -> None:
    logs, ledger = written()

    assert not verdict(logs, ledger, Rules())
    assert not overlooked(logs, ledger)


def test_a_judge_that_sees_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(*_: object) -> Sequence[str]:
        return []

    monkeypatch.setattr(control, "verdict", blind)

    assert [each.partition(":")[0] for each in overlooked(*written())] == ["the judge is blind"] * 2


def test_a_run_without_acknowledged_records_proves_nothing() -> None:
    assert overlooked([ReadLog([], [])], Ledger()) == ["no record was acknowledged, so the run proves nothing"]


@pytest.mark.parametrize(("end", "problem"), [(End.COMMITTED, "torn"), (End.ABORTED, "not aborted")])
def test_half_a_transaction_that_read_committed_returns_is_reported(end: End, problem: str) -> None:
    (first, second), ledger = written()
    ledger.transactions.append(Transaction("half", list(ledger.entries.values()), end))

    problems = verdict([first, ReadLog(second.everything, [])], ledger, Rules())

    assert [each.partition(":")[0] for each in problems] == [problem]
