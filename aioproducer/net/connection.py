"""One connection to a broker: requests out, answers in the same order back, each to its callback.

A connection trusts nothing. A frame that is too large, an answer that nobody waits for, has the wrong correlation id, or
cannot be read to its last byte: each of these ends the connection, and everybody who waits on it is told. Nothing is ever
left pending, and no callback is called twice.

Requests are written as pieces that are not copied together. There is no task and no future for a request, and one timer
for all of them: answers come in order, so only the oldest can be the next to run out of time.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from aioproducer.errors import BrokerConnectionError, KafkaError, ProtocolError
from aioproducer.protocol.frames import FrameReader, decode_response_header, encode_request
from aioproducer.protocol.message import Request

__all__ = ["Answered", "Connection"]

logger = logging.getLogger("aioproducer")

#: Called once: with the response, with the body's bytes where these were asked for, with the error that ended the
#: connection, or with None when a request that has no answer was written.
Answered: TypeAlias = Callable[[Any], object]

MAX_FRAME_BEFORE_READY = 64 * 1024
MAX_FRAME = 16 * 1024 * 1024


@dataclass(slots=True)
class _Waiting:
    """A request that was sent and not answered."""

    correlation_id: int
    request: type[Request[Any]]
    version: int
    answered: Answered
    deadline: float
    timeout_s: float
    raw: bool


class Connection(asyncio.Protocol):
    """A connection to one broker. ``name`` is how messages call it; ``on_lost(error)`` is called once at its end."""

    def __init__(self, name: str, client_id: str, on_lost: Callable[[KafkaError], object]) -> None:
        self.name = name
        self.last_used = 0.0
        self.closed = False
        self._client_id = client_id
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._frames = FrameReader(MAX_FRAME_BEFORE_READY)
        self._waiting: deque[_Waiting] = deque()
        self._unwritten: list[Answered] = []
        self._correlation_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self._error: KafkaError | None = None
        self._gone = self._loop.create_future()

    # -- out ----------------------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """How many requests were sent and not answered (or, without an answer to come, not written)."""
        return len(self._waiting) + len(self._unwritten)

    def send(
        self,
        request: Request[Any],
        version: int,
        answered: Answered,
        timeout_s: float,
        *,
        expect_response: bool = True,
        raw: bool = False,
    ) -> None:
        """Write a request. ``raw``: the callback gets the bytes behind the header instead of a response.

        On a connection that is closed, the callback is told soon.
        """
        transport = self._transport
        if self.closed or transport is None or transport.is_closing():
            error = self._error or BrokerConnectionError(f"The connection to broker {self.name} is closed.")
            self._loop.call_soon(answered, error)
            return
        self._correlation_id = correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        now = self.last_used = self._loop.time()
        pieces = encode_request(correlation_id, self._client_id, request, version)
        if expect_response:
            waiting = _Waiting(correlation_id, type(request), version, answered, now + timeout_s, timeout_s, raw)
            self._waiting.append(waiting)
            if self._timer is None:
                self._timer = self._loop.call_at(waiting.deadline, self._check_time)
            transport.writelines(pieces)
            return
        self._unwritten.append(answered)
        transport.writelines(pieces)
        if transport.get_write_buffer_size() == 0:
            self._loop.call_soon(self.resume_writing)

    def resume_writing(self) -> None:
        """The operating system has taken everything (the transport's limits are zero)."""
        unwritten, self._unwritten = self._unwritten, []
        for answered in unwritten:
            answered(None)

    def ready(self) -> None:
        """The peer is a broker: longer answers are welcome from now on."""
        self._frames.max_frame = MAX_FRAME

    def grant(self, seconds: float) -> None:
        """Give all requests on their way so much more time: the broker said that it will be slow (KIP-219)."""
        for waiting in self._waiting:
            waiting.deadline += seconds

    # -- in -----------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The transport is there."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=0)
        self.last_used = self._loop.time()

    def data_received(self, data: bytes) -> None:
        """Cut the bytes into answers, and hand each to whoever waits for it."""
        self._frames.feed(data)
        try:
            while (frame := self._frames.next_frame()) is not None:
                self._answer(frame)
        except KafkaError as error:
            broken = ProtocolError(f"Broker {self.name} sent something that cannot be read: {error}")
            broken.__cause__ = error
            self.abort(broken)

    def _answer(self, frame: bytes) -> None:
        if not self._waiting:
            raise ProtocolError(f"{len(frame)} bytes came, and nothing was asked.")
        waiting = self._waiting[0]
        correlation_id, body = decode_response_header(frame, waiting.request, waiting.version)
        if correlation_id != waiting.correlation_id:
            raise ProtocolError(f"answer {correlation_id} came where {waiting.correlation_id} was due.")
        answer: object = bytes(body) if waiting.raw else waiting.request.response_type.decode(waiting.version, body)
        self._waiting.popleft()
        self.last_used = self._loop.time()
        waiting.answered(answer)

    def _check_time(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        oldest = self._waiting[0]
        if self._loop.time() < oldest.deadline:
            self._timer = self._loop.call_at(oldest.deadline, self._check_time)
            return
        self.abort(
            BrokerConnectionError(
                f"Broker {self.name} did not answer {oldest.request.__name__} v{oldest.version} within "
                f"{oldest.timeout_s:g} s; {len(self._waiting)} request(s) were in flight."
            )
        )

    # -- the end ------------------------------------------------------------------------------------------------------

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is gone."""
        if not self._gone.done():
            self._gone.set_result(None)
        if not self.closed:
            how = f"broke: {exc}" if exc is not None else "was closed by the broker"
            error = BrokerConnectionError(
                f"The connection to broker {self.name} {how}; {self.in_flight} request(s) were in flight."
            )
            error.__cause__ = exc
            self._end(error)

    def abort(self, error: KafkaError) -> None:
        """End the connection now, and tell everybody who waits on it."""
        if self._transport is not None:
            self._transport.abort()
        elif not self._gone.done():
            self._gone.set_result(None)
        self._end(error)

    async def wait_closed(self) -> None:
        """Wait until the socket is closed, which an aborted connection is at once.

        Cancellation: it is closed all the same.
        """
        if self._transport is not None:
            await asyncio.shield(self._gone)

    def _end(self, error: KafkaError) -> None:
        if self.closed:
            return
        self.closed = True
        self._error = error
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, deque()
        unwritten, self._unwritten = self._unwritten, []
        for each in waiting:
            each.answered(error)
        for answered in unwritten:
            answered(error)
        self._on_lost(error)

    def configure_socket(self, send_buffer: int, receive_buffer: int) -> None:
        """Set the options of the socket; sizes in bytes, -1 for the system's default."""
        sock = self._transport.get_extra_info("socket") if self._transport is not None else None
        if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, size in ((socket.SO_SNDBUF, send_buffer), (socket.SO_RCVBUF, receive_buffer)):
            if size != -1:
                sock.setsockopt(socket.SOL_SOCKET, option, size)

    def __repr__(self) -> str:
        return f"<Connection to {self.name}: {self.in_flight} in flight{', closed' if self.closed else ''}>"
