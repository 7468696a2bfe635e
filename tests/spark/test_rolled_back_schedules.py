"""Random schedules of crashes and of checkpoints that are rolled back, deleted and copied: no row is lost or doubled.

A model of Spark runs a stream of files on the fake broker, with the sink's own coordinator and tasks. Whenever the query
refuses to go on, an operator does what the error says first: restore the newest checkpoint, or, if the last batch itself
changed after it was committed, skip it. In the end each file is in the topic exactly once, in one of the forms it had.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pytest

from aioproducer.spark.exactly_once.commit_marker import CommitMarkerError, CommitMarkerMismatch
from aioproducer.testing import FakeBroker
from tests.spark.query import Query

#: Where a driver dies, if it does.
POINTS: Final = ("after begin", "after a task", "before commit", "after commit", "")

EVENTS: Final = 30


@dataclass
class Source:
    """Files with rows; a row is the number of its file, of the form it is in, and of its line."""

    forms: list[int] = field(default_factory=list[int])

    def add(self, rows: random.Random) -> None:
        self.forms.append(0)

    def change(self, number: int) -> None:
        self.forms[number] += 1

    def rows(self, number: int) -> list[int]:
        return rows_of_form(number, self.forms[number])


def rows_of_form(number: int, form: int) -> list[int]:
    return [(number * 100 + form) * 100 + line for line in range(3 + number % 4)]


@dataclass(frozen=True)
class Checkpoint:
    """The state of Spark: the files of each planned batch, and the number of batches noted as committed."""

    query: str
    batches: tuple[tuple[int, ...], ...] = ()
    committed: int = 0

    def follows(self, other: Checkpoint) -> bool:
        """Whether the same query goes on here from there, with no batch cut otherwise."""
        is_longer = len(self.batches) >= len(other.batches) and self.committed >= other.committed
        return self.query == other.query and is_longer and self.batches[: len(other.batches)] == other.batches

    def files_seen(self) -> int:
        return sum(map(len, self.batches))


class Model:
    """A stream, its checkpoint and its operator."""

    def __init__(self, broker: FakeBroker, chance: random.Random, **options: str) -> None:
        self.broker = broker
        self.chance = chance
        self.options = options
        self.source = Source()
        self.queries = 0
        self.refusals = Counter[str]()
        self.checkpoint = self.new_checkpoint()
        self.newest = self.checkpoint
        self.kept = [self.checkpoint]
        self.found: Sequence[str] = ()

    def new_checkpoint(self) -> Checkpoint:
        self.queries += 1
        return Checkpoint(f"query-{self.queries}")

    # -- what happens ------------------------------------------------------------------------------------------------

    def play(self) -> None:
        self.source.add(self.chance)
        for _ in range(EVENTS):
            self.chance.choices(
                [self.add_file, self.run_batch, self.crash, self.roll_back, self.delete, self.change_file],
                weights=[5, 6, 5, 2, 0.7, 1.5],
            )[0]()

    def add_file(self) -> None:
        self.source.add(self.chance)

    def roll_back(self) -> None:
        self.checkpoint = self.chance.choice(self.kept[-12:])

    def delete(self) -> None:
        self.checkpoint = self.new_checkpoint()

    def change_file(self) -> None:
        """One that was not committed yet, or that is part of the last batch; older ones are not read again."""
        first = self.newest.files_seen() - len(self.newest.batches[-1]) if self.newest.batches else 0
        if first < len(self.source.forms):
            self.source.change(self.chance.randrange(first, len(self.source.forms)))

    def crash(self) -> None:
        self.run_batch(self.chance.choice(POINTS))

    def run_batch(self, dies: str = "") -> None:
        try:
            self.run(dies, **self.options)
        except CommitMarkerError as refusal:
            self.refusals[type(refusal).__name__] += 1
            self.recover()

    def recover(self) -> None:
        """The operator's reaction to a refusal."""
        self.checkpoint = self.newest
        try:
            self.run("", **self.options)
        except CommitMarkerMismatch:
            self.run("", **self.options | {"commit.marker.mismatch": "skip"})

    def finish(self) -> None:
        while self.checkpoint.files_seen() < len(self.source.forms) or (
            self.checkpoint.committed < len(self.checkpoint.batches)
        ):
            self.run_batch()

    # -- Spark -------------------------------------------------------------------------------------------------------

    def run(self, dies: str, **options: str) -> None:
        """Run the next batch, as Spark does after a start: one that was planned and not noted comes again."""
        known = self.checkpoint
        if known.committed == len(known.batches):
            files = self.plan(known.files_seen())
            if not files:
                return
            known = self.note(replace(known, batches=(*known.batches, files)))
        batch = known.committed
        query = Query(self.broker.bootstrap_servers, "orders", known.query, **options)
        transaction = query.begin()
        if dies == "after begin":
            return
        rows = [row for file in known.batches[batch] for row in self.source.rows(file)]
        self.chance.shuffle(rows)
        summaries = []
        for partition in range(2):
            values = [row for row in rows if row % 2 == partition]
            summaries.append(query.task(transaction, batch, partition, values=values))
            if dies == "after a task":
                return
        if dies == "before commit":
            return
        query.commit(summaries, batch)
        if not summaries[0].skipped:
            self.newest = known
        if dies == "after commit":
            return
        self.note(replace(known, committed=batch + 1))

    def plan(self, first: int) -> tuple[int, ...]:
        """The files of a new batch; how many of them are taken at once may differ each time the query is started."""
        last = min(len(self.source.forms), first + self.chance.choice((1, 1, 2, 5)))
        return tuple(range(first, last))

    def note(self, checkpoint: Checkpoint) -> Checkpoint:
        self.checkpoint = checkpoint
        self.kept.append(checkpoint)
        if checkpoint.follows(self.newest):
            self.newest = checkpoint
        return checkpoint

    # -- the verdict -------------------------------------------------------------------------------------------------

    def faults(self) -> Sequence[str]:
        """The faults in the rows that a reader of committed records gets."""
        visible = Counter(int(record.value or b"") for record in self.broker.records("orders", committed=True))
        found = [f"row {row} is there {times} times" for row, times in visible.items() if times > 1]
        for number, last_form in enumerate(self.source.forms):
            there = {row for row in visible if row // 10_000 == number}
            forms = [set(rows_of_form(number, form)) for form in range(last_form + 1)]
            if there not in forms:
                found.append(f"of file {number} there are {len(there)} rows, {'in part' if there else 'it is lost'}")
        return found


def play(seed: int, **options: str) -> Model:
    with FakeBroker(topics={"orders": 2}) as broker:
        model = Model(broker, random.Random(seed), **options)
        model.play()
        model.finish()
        model.found = model.faults()
    return model


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_to_the_checkpoint_each_row_is_there_once(seed: int) -> None:
    model = play(seed)

    assert model.found == [], (seed, model.refusals)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_so_it_is_in_hundreds_of_schedules() -> None:
    refusals = Counter[str]()
    for seed in range(1000, 1300):
        model = play(seed)
        assert model.found == [], (seed, model.refusals)
        refusals += model.refusals

    assert refusals["CommitMarkerMismatch"] > 50
    assert refusals["CommitMarkerMissing"] > 20


def test_the_schedules_find_rows_that_are_left_out_by_their_number_alone() -> None:
    """The negative control: with this option a number is enough, as it was before contents were compared."""
    found = (fault for seed in range(6) for fault in play(seed, **{"commit.marker.mismatch": "skip"}).found)

    assert any("lost" in fault for fault in found)


def test_the_schedules_find_rows_that_a_new_checkpoint_writes_again() -> None:
    """The negative control: with this option a query that begins again is believed."""
    found = (fault for seed in range(6) for fault in play(seed, **{"commit.marker.missing": "trust-checkpoint"}).found)

    assert any("2 times" in fault for fault in found)
