"""The negative control of a run: crimes that are committed on what was read, and that the judge must report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from aioproducer.testing.broker.log import LoggedRecord
from tests.chaos.reading import ReadLog
from tests.simulation.judge import Rules, verdict
from tests.simulation.ledger import Ledger, Reported

__all__ = ["overlooked"]


def overlooked(logs: Sequence[ReadLog], ledger: Ledger) -> Sequence[str]:
    """A sentence for each crime that the judge does not report."""
    known = frozenset(verdict(logs, ledger, Rules()))
    found = _acknowledged(logs, ledger)
    if found is None:
        return ["no record was acknowledged, so the run proves nothing"]
    return [
        f"the judge is blind: an acknowledged record that was {crime} is not reported"
        for crime, problem, changed in _crimes(logs, *found)
        if not any(each.startswith(problem) for each in verdict(changed, ledger, Rules()) if each not in known)
    ]


def _crimes(logs: Sequence[ReadLog], number: int, victim: LoggedRecord) -> Iterator[tuple[str, str, Sequence[ReadLog]]]:
    log = logs[number]
    without = [record for record in log.everything if record is not victim]
    again = [*log.everything, replace(victim, offset=log.everything[-1].offset + 1)]
    for crime, problem, records in (("taken out", "lost: ", without), ("doubled", "doubled: ", again)):
        yield crime, problem, [*logs[:number], ReadLog(records, log.committed), *logs[number + 1 :]]


def _acknowledged(logs: Sequence[ReadLog], ledger: Ledger) -> tuple[int, LoggedRecord] | None:
    """The number of a log, and an acknowledged record in it."""
    for number, log in enumerate(logs):
        for record in log.everything:
            entry = ledger.entries.get(record.value or b"")
            if entry is not None and entry.reported is Reported.WRITTEN:
                return number, record
    return None
