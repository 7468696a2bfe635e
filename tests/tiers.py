"""The tier of a test, by its needs: each has one, without a marker."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

__all__ = ["COLLECTED", "RULES", "TIERS", "Rule", "assign", "in_order", "may_hold", "may_start_spark", "tier_of"]

#: From what runs on each save to what runs before a release; pyproject.toml says what each is.
TIERS = ("seam", "broker", "lint", "house", "spark", "kafka", "soak")

#: Lint first, because Spark's class archive is created meanwhile. Spark before Kafka, whose clusters run to the end: 30 idle
#: nodes, each with about 2 % of a core, take a quarter of two cores from all tests that follow.
_ORDER = ("lint", "spark", "kafka", "house", "broker", "seam")

#: All tests that were found, before the marks are selected.
COLLECTED = pytest.StashKey[list[pytest.Item]]()

#: Everything here decides without asking anybody: no socket is opened, and no other program is started.
SEAM = (
    "core/",
    "hot/",
    "net/test_moments.py",
    "net/test_versions.py",
    "protocol/",
    "record/",
    "simulation/",
    "test_accumulator.py",
    "test_buffer_pool.py",
    "test_config.py",
    "test_delivery.py",
    "test_interceptors.py",
    "test_metrics.py",
    "test_produce_answers.py",
    "test_send_many.py",
    "test_sender_requests.py",
    "test_serializers.py",
    "test_tiers.py",
    "testing/test_broker_log.py",
    "testing/test_group_coordinator.py",
)

#: Where tools of the extra `lint` run. Each long one has its own file, so that two processes can run them side by side.
LINT = ("lint/", "test_build.py")

#: What looks at the repository itself, or runs programs that it consists of.
HOUSE = (
    "benchmarks/",
    "ci/",
    "docs/",
    "hot/test_python_twin.py",
    "security/test_snippets.py",
    "test_build.py",
    "test_examples.py",
    "test_house.py",
    "test_readme.py",
    "test_release.py",
    "test_wording.py",
)

#: These start their own Kafka, where they are slow.
OWN_KAFKA = (
    "chaos/",
    "conformance/",
    "security/",
    "spark/test_lost_answers.py",
    "spark/test_secured_real_kafka.py",
    "testing/test_fake_broker_transactions_conformance.py",
)


class Rule(NamedTuple):
    """A test that has all of this is of the tier."""

    tier: str
    mark: str = ""
    fixtures: frozenset[str] = frozenset()  # any of them
    places: tuple[str, ...] = ("",)  # any of them

    def fits(self, place: str, marks: Iterable[str], fixtures: Iterable[str]) -> bool:
        """Whether a test at this place below tests/ is meant."""
        return (
            (not self.mark or self.mark in marks)
            and (not self.fixtures or not self.fixtures.isdisjoint(fixtures))
            and place.startswith(self.places)
        )


#: The first that fits counts.
RULES = (
    Rule("soak", mark="soak"),
    Rule("kafka", places=("real/",)),
    Rule("kafka", fixtures=frozenset({"kafka", "kafka_factory", "kafka_topic"})),
    Rule("kafka", mark="slow", places=OWN_KAFKA),
    Rule("spark", fixtures=frozenset({"spark"})),
    Rule("spark", mark="slow", places=("cli/", "spark/")),
    Rule("lint", places=("lint/",)),
    Rule("house", places=HOUSE),
    Rule("broker", fixtures=frozenset({"broker", "kafka_broker", "open_producer", "secured_broker"})),
    Rule("broker", mark="slow"),  # also the seam's: it must end within a minute
    Rule("seam", places=SEAM),
    Rule("broker"),
)


def tier_of(place: str, marks: Iterable[str], fixtures: Iterable[str]) -> str:
    """The tier that the test is marked with by hand, or else that of the first rule that fits."""
    by_hand = [tier for tier in TIERS if tier in marks]
    if "soak" not in by_hand and by_hand:
        return by_hand[0]
    return next(rule.tier for rule in RULES if rule.fits(place, marks, fixtures))


def may_hold(place: str, chosen: str) -> bool:
    """Whether the file may hold tests of what ``-m`` chooses, or serves all tests."""
    places = {"seam": SEAM, "lint": LINT}.get(chosen, ("",))
    return place == "conftest.py" or place.startswith(places)


def may_start_spark(chosen: str) -> bool:
    """Whether a test that starts Spark may be among those that ``-m`` chooses."""
    return chosen not in ("seam", "broker", "lint", "house") and "not slow" not in chosen


def in_order(items: list[pytest.Item]) -> None:
    """Sort the files by tier, so that processes that run them side by side end at the same time: with many short ones."""
    rank = {tier: number for number, tier in enumerate(_ORDER)}
    of_file: dict[Path, int] = {}
    for item in items:
        ranks = (rank[mark.name] for mark in item.iter_markers() if mark.name in rank)
        of_file[item.path] = min(of_file.get(item.path, len(rank)), *ranks, len(rank))
    items.sort(key=lambda item: of_file[item.path])


def assign(items: list[pytest.Item], root: str) -> None:
    """Mark each test with its tier."""
    for item in items:
        place = item.path.as_posix().removeprefix(f"{root}/")
        marks = {mark.name for mark in item.iter_markers()}
        tier = tier_of(place, marks, getattr(item, "fixturenames", ()))
        if tier not in marks:
            item.add_marker(tier)
