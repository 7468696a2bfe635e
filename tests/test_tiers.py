"""Each test has one tier, and the lowest uses no sockets and processes."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from itertools import groupby
from pathlib import Path

import pytest

from tests.no_sockets import Refused, refused_sockets
from tests.tiers import COLLECTED, HOUSE, LINT, OWN_KAFKA, RULES, SEAM, TIERS, may_hold, may_start_spark, tier_of


def test_each_test_has_exactly_one_tier(request: pytest.FixtureRequest) -> None:
    found = {
        item.nodeid: [mark.name for mark in item.iter_markers() if mark.name in TIERS]
        for item in request.config.stash[COLLECTED]
    }
    assert request.node.nodeid in found
    assert {name: tiers for name, tiers in found.items() if len(set(tiers)) != 1} == {}


@pytest.mark.parametrize(
    ("place", "marks", "fixtures", "tier"),
    [
        ("core/test_sequences.py", [], [], "seam"),
        ("core/test_sasl.py", ["soak"], [], "soak"),
        ("hot/test_memory.py", ["slow"], ["twin"], "broker"),
        ("test_engine.py", [], ["broker"], "broker"),
        ("test_accumulator.py", [], ["broker"], "broker"),
        ("test_accumulator.py", ["broker"], [], "broker"),
        ("test_accumulator.py", ["broker", "soak"], [], "soak"),
        ("a_new_folder/test_anything.py", [], [], "broker"),
        ("test_house.py", [], [], "house"),
        ("lint/test_mypy.py", [], [], "lint"),
        ("test_examples.py", ["slow"], ["kafka"], "kafka"),
        ("spark/test_avro.py", ["slow"], ["spark"], "spark"),
        ("spark/test_avro.py", ["slow"], ["spark", "kafka"], "kafka"),
        ("conformance/test_topics.py", [], ["cluster"], "broker"),
        ("conformance/test_topics.py", ["slow"], ["cluster"], "kafka"),
        ("real/test_million.py", ["slow"], [], "kafka"),
    ],
)
def test_the_first_rule_that_fits_gives_the_tier(place: str, marks: list[str], fixtures: list[str], tier: str) -> None:
    assert tier_of(place, marks, fixtures) == tier


def test_the_tiers_come_in_their_order_file_by_file(request: pytest.FixtureRequest) -> None:
    """If a long file is the last one, all processes but one are idle."""
    items = request.config.stash[COLLECTED]  # before pytest reorders them for fixtures
    tiers = ["lint", "spark", "kafka", "house", "broker", "seam", "soak"]
    of_file: dict[Path, str] = {}
    for item in items:
        (tier,) = {mark.name for mark in item.iter_markers() if mark.name in TIERS}
        of_file[item.path] = min(tier, of_file.get(item.path, tier), key=tiers.index)
    order = [of_file[item.path] for item in items]

    assert order == sorted(order, key=tiers.index)
    assert len(list(groupby(items, key=lambda item: item.path))) == len(of_file)


@pytest.mark.parametrize(
    ("chosen", "may"),
    [
        ("seam", False),
        ("lint", False),
        ("not slow and not soak", False),
        ("spark", True),
        ("kafka", True),
        ("not soak", True),
        ("", True),
    ],
)
def test_spark_is_made_ready_where_a_test_may_want_it(chosen: str, may: bool) -> None:
    assert may_start_spark(chosen) is may


@pytest.mark.parametrize(
    ("place", "chosen", "may"),
    [
        ("core/test_sequences.py", "seam", True),
        ("conftest.py", "seam", True),
        ("test_engine.py", "seam", False),
        ("lint/test_mypy.py", "lint", True),
        ("conftest.py", "lint", True),
        ("test_house.py", "lint", False),
        ("test_engine.py", "broker", True),
        ("test_engine.py", "seam or lint", True),
        ("test_engine.py", "not soak", True),
    ],
)
def test_a_tier_of_few_files_leaves_the_others_unread(place: str, chosen: str, may: bool) -> None:
    assert may_hold(place, chosen) is may


def test_each_tier_has_a_rule_and_a_line_for_pytest(request: pytest.FixtureRequest) -> None:
    reported = [line.partition(":")[0] for line in request.config.getini("markers")]

    assert {rule.tier for rule in RULES} == set(TIERS) <= set(reported)


def test_every_place_in_the_table_is_there(request: pytest.FixtureRequest) -> None:
    root = request.path.parent

    assert [place for place in (*SEAM, *LINT, *HOUSE, *OWN_KAFKA) if not (root / place).exists()] == []


def test_a_test_of_the_seam_that_opens_a_socket_or_starts_a_program_fails() -> None:
    with refused_sockets() as tried:
        with socket.socket() as one, pytest.raises(Refused, match="tier `seam`"):
            one.bind(("127.0.0.1", 0))
        with pytest.raises(Refused):
            socket.create_connection(("127.0.0.1", 9092))
        with pytest.raises(Refused):
            subprocess.run([sys.executable, "--version"])
        with suppress(Exception), socket.socket() as other:
            other.connect(("127.0.0.1", 9092))

    assert Counter(tried) == {
        "socket.bind": 1,
        "socket.getaddrinfo": 1,
        "subprocess.Popen": 1,
        "socket.connect": 1,
    }, "also what was swallowed"


def test_threads_of_the_test_are_looked_at_and_those_of_others_are_not() -> None:
    go_on, refused = threading.Event(), []

    def bind() -> None:
        go_on.wait(60)
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", 0))
            except Refused:
                refused.append(threading.current_thread().name)

    before = threading.Thread(target=bind, name="before")
    before.start()
    with refused_sockets():
        within = threading.Thread(target=bind, name="within")
        within.start()
        go_on.set()
        before.join()
        within.join()

    assert refused == ["within"]


@pytest.mark.broker
def test_a_test_of_another_tier_may_open_sockets(request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("seam") is None
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
