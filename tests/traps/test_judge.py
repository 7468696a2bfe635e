"""The judge of the traps says no where it must; a judge that is always content would prove nothing."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from aioproducer import NotWritten, RecordMetadata
from aioproducer.errors import KafkaError, Unknown
from aioproducer.testing import FakeBroker
from tests.traps.judge import Attempt, audited, complaints, payload


class Entry(NamedTuple):
    """A record in a log that the test made up."""

    topic: str
    partition: int
    offset: int
    value: bytes | None


def attempt(number: int, outcome: RecordMetadata | KafkaError | int | None) -> Attempt:
    if isinstance(outcome, int):
        outcome = RecordMetadata("orders", 0, outcome, 0)
    return Attempt("orders", 0, number, outcome)


def entry(number: int, offset: int, *, topic: str = "orders", partition: int = 0) -> Entry:
    return Entry(topic, partition, offset, payload("orders", 0, number))


FIRST, SECOND = entry(0, 0), entry(1, 1)

CONTENT = [
    ([], []),
    ([attempt(0, 0), attempt(1, 1)], [FIRST, SECOND]),
    ([attempt(0, -1), attempt(1, 1)], [FIRST, SECOND]),
    ([attempt(0, Unknown("?")), attempt(1, Unknown("?"))], [entry(1, 0)]),
    ([attempt(0, NotWritten("no")), attempt(1, 0)], [entry(1, 0)]),
]

NOT_CONTENT = [
    ([attempt(0, 0)], [], "was acknowledged and is lost"),
    ([attempt(0, -1)], [], "was acknowledged and is lost"),
    ([attempt(0, 0)], [FIRST, entry(0, 1)], "is in the log 2 times"),
    ([attempt(0, Unknown("?"))], [FIRST, entry(0, 1)], "is in the log 2 times"),
    ([attempt(0, 1), attempt(1, 0)], [entry(1, 0), entry(0, 1)], "#0 stands behind #1"),
    ([attempt(0, Unknown("?")), attempt(1, 0)], [entry(1, 0), entry(0, 1)], "#0 stands behind #1"),
    ([attempt(0, 7)], [FIRST], "was acknowledged at 7 and is at [0]"),
    ([attempt(0, 0)], [entry(0, 0, topic="payments")], "misrouted to payments-0"),
    ([attempt(0, 0)], [entry(0, 0, partition=1)], "misrouted to orders-1"),
    ([attempt(0, RecordMetadata("orders", 1, 0, 0))], [FIRST], "acknowledged at orders-1"),
    ([attempt(0, NotWritten("no"))], [FIRST], "was reported as not written"),
    ([attempt(0, None)], [FIRST], "has no outcome"),
    ([], [FIRST], "is nothing that was sent"),
    ([attempt(0, 0)], [FIRST, Entry("orders", 0, 1, b"noise")], "is nothing that was sent"),
    ([attempt(0, 0)], [FIRST._replace(value=(FIRST.value or b"")[:-1] + b"?")], "is nothing that was sent"),
    ([attempt(0, 0)], [FIRST._replace(value=None)], "is nothing that was sent"),
]


@pytest.mark.parametrize(("attempts", "log"), CONTENT)
def test_the_judge_is_content_with_what_is_as_it_was_reported(attempts: list[Attempt], log: list[Entry]) -> None:
    assert complaints(attempts, log) == []


@pytest.mark.parametrize(("attempts", "log", "words"), NOT_CONTENT)
def test_the_judge_names_what_is_wrong(attempts: list[Attempt], log: list[Entry], words: str) -> None:
    assert any(words in each for each in complaints(attempts, log))


async def test_the_judge_sees_the_duplicates_of_a_producer_without_idempotence(broker: FakeBroker) -> None:
    """The negative control with real parts: what idempotence is there for."""
    async with audited(broker, check=False, enable_idempotence=False, request_timeout_ms=20_000) as audit:
        for _ in range(3):
            broker.drop_connection("Produce", when="after")
            await audit.send()

    found = complaints(audit.attempts, broker.records())
    assert len([each for each in found if "is in the log 2 times" in each]) == 3


async def test_the_judge_is_content_with_the_same_losses_and_idempotence(broker: FakeBroker) -> None:
    async with audited(broker, request_timeout_ms=20_000) as audit:
        for _ in range(3):
            broker.drop_connection("Produce", when="after")
            await audit.send()

    assert audit.acknowledged == 3
