"""One connection: every request gets exactly one outcome, whatever the peer does."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aioproducer.errors import BrokerConnectionError, KafkaError, ProtocolError
from aioproducer.net.connection import MAX_FRAME, MAX_FRAME_BEFORE_READY, WRITTEN, Connection
from aioproducer.protocol import encode_response
from aioproducer.protocol.messages import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.conftest import Clock, turns, until
from tests.net.peers import framed, live_timers

VERSION = 12
QUESTION = MetadataRequest(topics=[])


def note_name(reported: list[str], name: str, _answer: object) -> None:
    reported.append(name)


class Wire:
    """A connection, and the broker's end of it in the hands of the test."""

    def __init__(self, connection: Connection, end: socket.socket) -> None:
        self.connection = connection
        self.end = end
        self.reported: list[Any] = []
        self.lost: list[KafkaError] = []

    def ask(self, timeout_s: float = 30.0, answered: Callable[[Any], object] | None = None, **how: Any) -> None:
        self.connection.send(
            QUESTION, VERSION, answered or self.reported.append, timeout_s, read=MetadataResponse.decode, **how
        )

    async def hears(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.end, data)


@asynccontextmanager
async def wired() -> AsyncIterator[Wire]:
    loop = asyncio.get_running_loop()
    lost: list[KafkaError] = []
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    _, connection = await loop.create_connection(
        lambda: Connection("1 (k:9092)", "test", lambda _, error: lost.append(error)), sock=ours
    )
    wire = Wire(connection, theirs)
    wire.lost = lost
    try:
        yield wire
    finally:
        connection.abort(BrokerConnectionError("The test is over."))
        await connection.wait_closed()
        theirs.close()
        assert not [timer for timer in live_timers(loop) if "Connection" in repr(timer)]
        assert len(lost) == 1, "the end is reported once"


def answer(correlation_id: int, node: int = 1) -> bytes:
    response = MetadataResponse(brokers=[MetadataResponseBroker(node_id=node, host="k", port=1)], topics=[])
    return b"".join(bytes(piece) for piece in encode_response(correlation_id, response, VERSION))


def produce(size: int, acks: int = 0) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=[b"x" * size])
    topic = TopicProduceData(name="t", partition_data=[data])
    return ProduceRequest(transactional_id=None, acks=acks, timeout_ms=1000, topic_data=[topic])


def nodes(reported: list[Any]) -> list[int]:
    return [each.brokers[0].node_id for each in reported]


async def test_answers_go_to_the_requests_in_order() -> None:
    async with wired() as wire:
        for _ in range(3):
            wire.ask()
        assert wire.connection.in_flight == 3

        await wire.hears(answer(1, 11) + answer(2, 12) + answer(3, 13)[:-1])
        await until(lambda: len(wire.reported) == 2)
        await wire.hears(answer(3, 13)[-1:])
        await until(lambda: len(wire.reported) == 3)

        assert nodes(wire.reported) == [11, 12, 13]
        assert wire.connection.in_flight == 0


async def test_an_answer_may_come_byte_by_byte() -> None:
    async with wired() as wire:
        wire.ask()
        for byte in answer(1, 7):
            await wire.hears(bytes([byte]))
            await asyncio.sleep(0)
        await until(lambda: wire.reported)

        assert nodes(wire.reported) == [7]


UNREADABLE = {
    "a wrong correlation id": answer(2),
    "a negative length": struct.pack(">i", -1),
    "a length without room for a header": struct.pack(">i", 3),
    "a huge length": struct.pack(">i", 0x7FFFFFFF),
    "http": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "a cut body": framed(answer(1)[4:-3]),
    "something behind the body": framed(answer(1)[4:] + b"\x07\x07"),
    "noise": framed(answer(1)[4:9] + b"\xff" * 40),
    "tags without end": framed(struct.pack(">i", 1) + b"\xff\xff\xff\xff\x0f"),
}


@pytest.mark.parametrize("data", UNREADABLE.values(), ids=UNREADABLE)
async def test_unreadable_data_ends_the_connection_and_fails_all_its_requests(data: bytes) -> None:
    async with wired() as wire:
        wire.ask()
        wire.ask()

        await wire.hears(data)
        await until(lambda: len(wire.reported) == 2)

        assert wire.connection.closed
        assert all(isinstance(reported, ProtocolError) and "1 (k:9092)" in str(reported) for reported in wire.reported)


@pytest.mark.parametrize("data", [answer(1), b"\x00"])
async def test_unsolicited_bytes_end_the_connection(data: bytes) -> None:
    async with wired() as wire:
        await wire.hears(data)
        await until(lambda: wire.connection.closed)

        assert "unsolicited" in str(wire.lost[0])


async def test_an_answer_that_comes_twice_ends_the_connection() -> None:
    async with wired() as wire:
        wire.ask()

        await wire.hears(answer(1, 5) * 2)
        await until(lambda: wire.connection.closed)

        assert nodes(wire.reported) == [5], "the first one counts"


@pytest.mark.parametrize(("is_ready", "limit"), [(False, MAX_FRAME_BEFORE_READY), (True, MAX_FRAME)])
async def test_frames_are_bounded_more_tightly_before_the_handshake(is_ready: bool, limit: int) -> None:
    async with wired() as wire:
        wire.ask()
        if is_ready:
            wire.connection.ready()

        await wire.hears(struct.pack(">i", limit))
        await turns()
        assert not wire.connection.closed

    async with wired() as wire:
        wire.ask()
        if is_ready:
            wire.connection.ready()

        await wire.hears(struct.pack(">i", limit + 1))
        await until(lambda: wire.connection.closed)

        assert str(limit) in str(wire.reported[0])


async def test_a_peer_that_closes_in_mid_frame_leaves_no_request_waiting() -> None:
    async with wired() as wire:
        wire.ask()

        await wire.hears(answer(1)[:9])
        wire.end.shutdown(socket.SHUT_WR)
        await until(lambda: wire.reported)

        assert isinstance(wire.reported[0], BrokerConnectionError)
        assert "1 (k:9092) was closed by the broker; 1 request(s) were in flight" in str(wire.reported[0])


async def test_unknown_tagged_fields_are_skipped() -> None:
    async with wired() as wire:
        wire.ask()

        tagged = b"\x01\x63\x02hi"  # one field of number 99 with two bytes
        whole = answer(1, 8)[4:]
        await wire.hears(framed(whole[:4] + tagged + whole[5:-1] + tagged))
        await until(lambda: wire.reported)

        assert nodes(wire.reported) == [8]


async def test_a_later_request_with_a_shorter_timeout_runs_out_first() -> None:
    async with wired() as wire:
        wire.ask(30)
        wire.ask(0.02)
        await until(lambda: len(wire.reported) == 2)

        assert "did not answer MetadataRequest v12 within 0.02 s; 2 request(s)" in str(wire.reported[0])


async def test_the_timer_of_an_answered_request_does_not_make_a_later_one_late() -> None:
    async with wired() as wire:
        wire.ask(30)
        await wire.hears(answer(1))
        await until(lambda: wire.reported)

        wire.ask(0.02)
        await until(lambda: len(wire.reported) == 2)

        assert isinstance(wire.reported[1], BrokerConnectionError)


async def test_the_timer_of_an_answered_request_costs_a_later_one_nothing() -> None:
    clock = Clock()
    async with wired() as wire:
        wire.ask(20)
        await wire.hears(answer(1))
        await until(lambda: wire.reported)
        wire.ask(60)

        clock.advance(21)
        await turns()

        assert not wire.connection.closed


async def test_time_that_is_granted_counts_for_all_that_wait() -> None:
    clock = Clock()
    async with wired() as wire:
        wire.ask(20)
        wire.connection.extend_deadlines(50)

        clock.advance(60)
        await turns()
        assert not wire.connection.closed
        clock.advance(11)
        await until(lambda: wire.reported)

        assert isinstance(wire.reported[0], BrokerConnectionError)


async def test_a_callback_that_fails_costs_the_others_nothing() -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError

    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    async with wired() as wire:
        wire.ask(answered=fail)
        wire.ask()
        await wire.hears(answer(1) + answer(2, 9))
        await until(lambda: wire.reported)
        wire.ask(answered=fail)
        wire.ask()
        wire.connection.abort(BrokerConnectionError("over"))

        assert nodes(wire.reported[:1]) == [9]
        assert str(wire.reported[1]) == "over"
        assert [type(each["exception"]) for each in reported] == [ZeroDivisionError] * 2


async def test_answers_behind_one_whose_callback_ends_the_connection_are_not_read() -> None:
    async with wired() as wire:
        wire.ask(answered=lambda _: wire.connection.abort(BrokerConnectionError("enough")))
        wire.ask()

        await wire.hears(answer(1) + answer(2))
        await until(lambda: wire.reported)

        assert str(wire.reported[0]) == "enough"


async def test_a_request_on_a_closed_connection_is_reported_soon_and_not_at_once() -> None:
    async with wired() as wire:
        wire.connection.abort(BrokerConnectionError("gone"))

        wire.ask()
        assert wire.reported == []
        await asyncio.sleep(0)

        assert str(wire.reported[0]) == "gone"


async def test_the_loss_is_reported_to_the_owner_before_those_who_wait() -> None:
    """So that no notified caller sends its next request to the lost connection."""
    async with wired() as wire:
        seen: list[int] = []
        wire.ask(answered=lambda _: seen.append(len(wire.lost)))

        wire.connection.abort(BrokerConnectionError("gone"))

        assert seen == [1]


async def test_without_an_answer_to_come_a_request_is_done_when_it_has_left() -> None:
    async with wired() as wire:
        wire.ask(expect_response=False)
        assert wire.reported == []
        await until(lambda: wire.reported)

        assert wire.reported == [WRITTEN]
        assert wire.connection.in_flight == 0


async def test_of_requests_without_answers_none_is_done_before_all_of_it_has_left() -> None:
    async with wired() as wire:
        reported: list[str] = []
        wire.connection.send(
            produce(10), 9, lambda _: reported.append("small"), 30, read=ProduceResponse.decode, expect_response=False
        )
        wire.connection.send(
            produce(3_000_000),
            9,
            lambda _: reported.append("large"),
            30,
            read=ProduceResponse.decode,
            expect_response=False,
        )
        wire.connection.send(
            produce(10), 9, lambda _: reported.append("last"), 30, read=ProduceResponse.decode, expect_response=False
        )
        await turns()
        assert reported == [], "the socket's buffer is full; the peer has not read"
        assert wire.connection.in_flight == 3

        loop = asyncio.get_running_loop()
        while len(reported) < 3:
            await loop.sock_recv(wire.end, 1_000_000)

        assert reported == ["small", "large", "last"]


async def test_requests_without_answers_that_never_leave_run_out_of_time() -> None:
    async with wired() as wire:
        wire.connection.send(
            produce(3_000_000), 9, wire.reported.append, 0.02, read=ProduceResponse.decode, expect_response=False
        )
        await until(lambda: wire.reported)

        assert "did not accept ProduceRequest v9 within 0.02 s" in str(wire.reported[0])


async def test_requests_without_answers_that_did_not_leave_fail_with_the_connection() -> None:
    async with wired() as wire:
        wire.connection.send(
            produce(3_000_000), 9, wire.reported.append, 30, read=ProduceResponse.decode, expect_response=False
        )
        await asyncio.sleep(0)
        wire.end.close()
        await until(lambda: wire.reported)

        assert isinstance(wire.reported[0], BrokerConnectionError)


async def test_many_large_requests_with_answers_need_no_waiting_to_be_written() -> None:
    async with wired() as wire:
        for _ in range(5):
            wire.connection.send(produce(500_000, acks=1), 9, wire.reported.append, 30, read=ProduceResponse.decode)

        received = 0
        while received < 2_500_000:
            received += len(await asyncio.get_running_loop().sock_recv(wire.end, 1_000_000))

        assert wire.reported == []
        assert wire.connection.in_flight == 5


async def test_a_request_that_cannot_be_encoded_leaves_the_connection_as_it_was() -> None:
    async with wired() as wire:
        broken = MetadataRequest(topics=[object()])  # type: ignore[list-item]  # what no wire can carry
        with pytest.raises(Exception, match=r".*"):
            wire.connection.send(broken, VERSION, wire.reported.append, 1, read=MetadataResponse.decode)
        wire.ask()
        await wire.hears(answer(1, 3))
        await until(lambda: wire.reported)

        assert nodes(wire.reported) == [3]
