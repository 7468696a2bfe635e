"""A hundred seeds keep every promise, the judge finds broken ones, and a seed is the same wherever it runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation.__main__ import main
from tests.simulation.hunt import draw, hunt, mutated
from tests.simulation.judge import Rules, verdict
from tests.simulation.ledger import End, Reported, Transaction
from tests.simulation.mutants import MUTANTS
from tests.simulation.run import World, simulate
from tests.simulation.shrink import shrink

SEEDS = range(50)


@pytest.mark.parametrize("kind", ["idempotent", "transactional", "shared", "plain"])
def test_every_promise_is_kept(kind: str) -> None:
    outcomes = [simulate(seed, kind) for seed in SEEDS]

    assert {outcome.seed: list(outcome.problems) for outcome in outcomes if outcome.problems} == {}
    assert sum(len(outcome.faults) for outcome in outcomes) > 300
    assert sum(outcome.records for outcome in outcomes) > 300


@pytest.mark.parametrize(
    ("seed", "kind"),
    [
        (
            1_001_942,
            "idempotent",
        ),  # the second batch to a topic created again was written while the first one was refused
        (1_511, "idempotent"),  # to a topic created again a later batch was sent before an earlier one was repeated
    ],
)
def test_a_seed_that_once_broke_a_promise_keeps_it(seed: int, kind: str) -> None:
    assert not simulate(seed, kind).problems


def test_without_idempotence_the_judge_sees_what_the_faults_do() -> None:
    problems = [each for seed in SEEDS for each in simulate(seed, "plain", rules=Rules()).problems]

    found = Counter(each.partition(":")[0] for each in problems)
    assert set(found) == {"doubled", "reordered"}
    assert min(found.values()) > 10


@pytest.mark.parametrize(
    "problem", ["lost", "wrong outcome", "unresolved", "alien", "wrong offset", "misrouted", "reordered"]
)
def test_each_broken_promise_is_found(problem: str) -> None:
    world = next(world for world in map(_idempotent, SEEDS) if not world.erased)
    assert not verdict(world.cluster.logs(), world.ledger, Rules())

    _commit(problem, world)

    assert problem in {each.partition(":")[0] for each in verdict(world.cluster.logs(), world.ledger, Rules())}


@pytest.mark.parametrize(
    ("end", "wrong", "problem"),
    [
        (End.ABORTED, End.COMMITTED, "torn"),
        (End.COMMITTED, End.ABORTED, "not aborted"),
    ],
)
def test_a_wrong_end_of_a_transaction_is_found(end: End, wrong: End, problem: str) -> None:
    world = _with_both_ends()
    (transaction, *_) = [each for each in world.ledger.transactions if each.end is end and each.entries]

    transaction.end = wrong

    assert [each.partition(":")[0] for each in verdict(world.cluster.logs(), world.ledger, Rules())] == [problem]


def test_half_a_transaction_is_found() -> None:
    world = _with_both_ends()
    committed, aborted = (
        next(each for each in world.ledger.transactions if each.end is end and each.entries)
        for end in (End.COMMITTED, End.ABORTED)
    )
    for entry in aborted.entries:
        entry.reported = Reported.WRITTEN
    world.ledger.transactions.append(Transaction("mixed", [*committed.entries, *aborted.entries]))

    assert any(each.startswith("torn: of mixed") for each in verdict(world.cluster.logs(), world.ledger, Rules()))


def test_a_seed_is_the_same_each_time() -> None:
    assert simulate(7).digest == simulate(7).digest != simulate(8).digest


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_seed_is_the_same_in_every_process() -> None:
    program = "from tests.simulation.run import simulate; print([simulate(s).digest for s in range(20)])"
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }

    assert len(digests) == 1


def test_a_failing_seed_is_shrunk_to_few_faults_and_has_its_story(capsys: pytest.CaptureFixture[str]) -> None:
    strict = Rules()
    outcomes = (simulate(seed, "plain", rules=strict) for seed in SEEDS)
    failed = next(outcome for outcome in outcomes if outcome.problems and len(outcome.faults) > 10)

    few = shrink(failed.seed, "plain", failed, rules=strict)

    assert few.problems
    assert 1 <= len(few.faults) < len(failed.faults)
    assert any("connection" in line or "node" in line for line in few.story)
    assert main(["--story", "--from", "7"]) == 0
    assert "Every promise was kept." in capsys.readouterr().out


def test_the_command_counts_seeds_records_and_faults(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "30", "--jobs", "1"]) == 0

    assert "30 seeds (" in (out := capsys.readouterr().out)
    assert out.rstrip().endswith("0 with broken promises")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_thousand_seeds() -> None:
    assert main(["--seeds", "1000", "--from", "1000"]) == 0


def _idempotent(seed: int) -> World:
    world = World(seed, "idempotent", frozenset(), keeps=False)
    assert not world.run()
    return world


def _with_both_ends() -> World:
    """A world with a transaction that was committed and one that was aborted, both with records."""
    for seed in SEEDS:
        world = World(seed, "transactional", frozenset(), keeps=False)
        assert not world.run()
        if {each.end for each in world.ledger.transactions if each.entries} >= {End.COMMITTED, End.ABORTED}:
            return world
    raise AssertionError


def _commit(crime: str, world: World) -> None:
    """Change log or ledger as if the producer had broken this promise."""
    for entry in world.ledger.entries.values():
        match crime:
            case "wrong outcome":
                entry.reported = Reported.NOT_WRITTEN
            case "unresolved":
                entry.reported = Reported.PENDING
            case "wrong offset" if entry.offset is not None:
                entry.offset += 1
            case "misrouted":
                entry.key = b"another"
            case "reordered":
                entry.number = 1_000 - entry.number
            case _:
                pass
    if crime == "lost":
        for log in world.cluster.logs():
            log.delete_records(log.end_offset)
    elif crime == "alien":
        world.ledger.entries.popitem()


def test_each_mutant_is_a_change_of_one_place_that_still_compiles() -> None:
    for mutant in MUTANTS:
        compile(mutated(mutant), mutant.module, "exec")

    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 60


def test_the_seeds_that_the_mutants_needed_are_drawn(tmp_path: Path) -> None:
    draw([0, 0, 7, 2_000, None, -1], 2_001, tmp_path)

    chart = (tmp_path / "mutants-light.svg").read_text()
    assert "Of 6 bugs" in chart
    assert [int(each) for each in re.findall(r">(\d+)</text>", chart)] == [3, 4, 4, 4, 5]  # -1: it did not end


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "name",
    [
        "a sequence is used twice",
        "memory is given back twice",
        "a request is never given up",
        "the sequences go on after 2^31 - 1",
        "a burst of records from threads is taken only once",
    ],
)
def test_a_mutant_is_found(name: str) -> None:
    (mutant,) = [each for each in MUTANTS if each.name == name]

    found = hunt(mutant, 100)

    assert found.seed is not None
    assert found.seed >= 0, found
