"""The watch finds each broken rule in what a client writes and reads, and nothing in what a good client does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias
from uuid import UUID

import pytest

from aioproducer.protocol import ErrorCode
from aioproducer.protocol.frames import encode_request, encode_response
from aioproducer.protocol.messages import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from aioproducer.protocol.wire import ZERO_UUID
from aioproducer.record import RecordBatchBuilder, encode_batch
from aioproducer.testing.broker.fake_cluster import FakeCluster
from tests.simulation.watch import Watch

_VERSION = 12
_ID = 1000


class Client:
    """Writes batches as the test wants, one request each."""

    def __init__(self) -> None:
        self.cluster = FakeCluster(1)
        self.watch = Watch(self.cluster)
        self._sent = self._answered = 0
        self._connection = 0

    def send(
        self, sequence: int, count: int = 1, epoch: int = 0, value: bytes = b"", topic_id: UUID = ZERO_UUID
    ) -> None:
        builder = RecordBatchBuilder()
        for number in range(count):
            builder.append(1, None, value + b"%d" % number)
        batch = encode_batch(builder)
        batch.stamp(_ID, epoch, sequence)
        records = b"".join(batch.pieces)
        data = [PartitionProduceData(index=0, records=records)]
        topics = [TopicProduceData(name="t", topic_id=topic_id, partition_data=data)]
        request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1, topic_data=topics)
        self._sent += 1
        version = _VERSION if topic_id == ZERO_UUID else _VERSION + 1
        self.watch.sent(self._connection, b"".join(encode_request(self._sent, "c", request, version)))

    def answer(self, code: int = ErrorCode.NONE) -> None:
        each = PartitionProduceResponse(index=0, error_code=code, base_offset=0)
        response = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[each])])
        self._answered += 1
        self.watch.received(self._connection, b"".join(encode_response(self._answered, response, _VERSION)))

    def lose(self) -> None:
        self.watch.lost(self._connection)
        self._connection += 1
        self._answered = self._sent


_Program: TypeAlias = Sequence[Callable[[Client], object]]


def send(sequence: int, count: int = 1, epoch: int = 0, value: bytes = b"") -> Callable[[Client], object]:
    return lambda client: client.send(sequence, count, epoch, value)


def answer(code: int = ErrorCode.NONE) -> Callable[[Client], object]:
    return lambda client: client.answer(code)


def number_again(epoch: int, sequence: int) -> Callable[[Client], object]:
    return lambda client: client.watch.number_again(("t", 0), _ID, epoch, sequence)


def lose(client: Client) -> None:
    client.lose()


_WRITTEN = (send(0), answer())


def broken(program: _Program) -> list[str]:
    client = Client()
    for step in program:
        step(client)
    return client.watch.problems


@pytest.mark.parametrize(
    "program",
    [
        (*_WRITTEN, send(1, 3), send(4), send(5), send(6), send(7), *[answer()] * 5, send(8)),
        (send(0), lose, send(0), answer(), send(1)),
        (*_WRITTEN, send(1), send(2), lose, send(1), send(2), answer(), answer(), send(3)),
        (*_WRITTEN, send(1), answer(ErrorCode.NOT_ENOUGH_REPLICAS), send(1, value=b"another"), answer()),
        (*_WRITTEN, send(1), answer(ErrorCode.DUPLICATE_SEQUENCE_NUMBER), send(2)),
        (*_WRITTEN, send(1), lose, send(0, epoch=1, value=b"after it was given up"), answer()),
        (send(0, 4), answer(ErrorCode.MESSAGE_TOO_LARGE), send(0, 2), answer(), send(2, 2), answer(), send(4)),
        (send(0), lose, send(0), answer(ErrorCode.MESSAGE_TOO_LARGE), send(0, value=b"smaller"), answer()),
        (*_WRITTEN, send(1), send(2), lose, send(0, epoch=1), lose, number_again(1, 1), send(1, epoch=1)),
    ],
)
def test_a_client_that_keeps_the_rules_is_not_reported(program: _Program) -> None:
    assert broken(program) == []


@pytest.mark.parametrize(
    ("program", "rule"),
    [
        ((*_WRITTEN, send(2)), "a sequence is left out: 1 is next"),
        ((*_WRITTEN, send(0, value=b"another")), "used again, for another batch, while the first one is written"),
        ((*_WRITTEN, send(1), lose, send(1, value=b"another")), "while the first one is in doubt"),
        (
            (*_WRITTEN, send(1), answer(ErrorCode.REQUEST_TIMED_OUT), send(1, value=b"another")),
            "while the first one is in doubt",
        ),
        ((*_WRITTEN, *[send(number) for number in range(1, 7)]), "more batches are in flight than a broker remembers"),
        (
            (*_WRITTEN, send(1), lose, send(0, epoch=1), lose, number_again(1, 0), send(1, epoch=1)),
            "a new batch is sent before sequence 0, which is in doubt",
        ),
        ((send(0), send(1)), "several batches are in flight before the first one is written"),
        ((*_WRITTEN, send(1), send(1)), "a batch is in flight twice"),
        ((*_WRITTEN, send(1), send(0, epoch=1)), "an epoch begins while batches of another one are in flight"),
        ((*_WRITTEN, send(0, epoch=1), answer(), send(1)), "a batch has an epoch that is over"),
        (
            (*_WRITTEN, send(1), answer(ErrorCode.NOT_ENOUGH_REPLICAS), send(2)),
            "a new batch is sent before sequence 1, which is refused",
        ),
        ((*_WRITTEN, send(1), lose, send(2)), "a new batch is sent before sequence 1, which is in doubt"),
    ],
)
def test_each_broken_rule_is_reported(program: _Program, rule: str) -> None:
    problems = broken(program)

    assert [each for each in problems if rule in each], problems


def test_batches_in_flight_to_a_topic_and_to_its_successor_are_reported() -> None:
    client = Client()
    old = client.cluster.create_topic("t", 1)
    client.send(0)
    client.answer()  # from here on it may know the topic's id
    client.send(1, topic_id=old.topic_id)
    client.watch.lost(0)
    client.send(1, topic_id=old.topic_id)
    assert client.watch.problems == []

    client.cluster.recreate_topic("t")
    client.watch.received(1, b"")
    client.send(2, topic_id=client.cluster.topic("t").topic_id)

    (problem,) = client.watch.problems
    assert "created again while others are in flight to the old one: t-0, sequence 2" in problem


def test_a_damaged_response_leaves_everything_in_doubt() -> None:
    client = Client()
    client.send(0)
    client.answer()
    client.send(1)
    client.watch.received(0, b"\0\0\0\4\0\0\0\7")
    client.send(1, value=b"another")

    (problem,) = client.watch.problems
    assert "while the first one is in doubt" in problem
