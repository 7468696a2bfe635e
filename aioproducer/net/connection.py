"""One connection to a broker: sends requests, and passes the answers, in the same order, to their callbacks.

A connection trusts nothing. A frame that is too large and an answer that is unsolicited, has the wrong correlation id
or cannot be decoded to its last byte each end the connection, and all its requests fail. An answer is read once, by the
function that came with its request (`Read`), and the callback gets what that function returns. Nothing is ever left
pending, and no callback is called twice.

Requests are written as pieces that are not copied together. A request has neither a task nor a future. One timer serves
all of them: it never fires later than the earliest deadline, and is then set again.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import chain
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, cast

from aioproducer.errors import BrokerConnectionError, KafkaError, ProtocolError
from aioproducer.metrics.producer import BrokerMetrics
from aioproducer.net.socket_options import set_socket_options
from aioproducer.protocol.frames import FrameReader, decode_response_header, encode_request
from aioproducer.protocol.message import Request

__all__ = ["WRITTEN", "Answer", "Answered", "Connection", "Read", "ReadFrame", "Written", "settle"]

_T = TypeVar("_T")


class Written(Enum):
    """The outcome of a request that brokers do not answer: it was handed to the operating system."""

    WRITTEN = "written"


WRITTEN: Final = Written.WRITTEN

#: The outcome of a request: what was read from its response, the error that ended the connection, or `WRITTEN`.
Answer: TypeAlias = _T | KafkaError | Literal[Written.WRITTEN]

#: Called once, with the answer.
Answered: TypeAlias = Callable[[Answer[_T]], object]

#: Reads the body of a response of some version, and returns the result or the error that the broker reports. Raises
#: `ProtocolError` for a body that cannot be decoded, or that no healthy broker would send.
Read: TypeAlias = Callable[[int, bytes], _T | KafkaError]

#: Reads the result from all received bytes, given a correlation id; or returns None, and they are split into frames first.
ReadFrame: TypeAlias = Callable[[bytes, int], _T | None]

MAX_FRAME_BEFORE_READY = 64 * 1024
MAX_FRAME = 16 * 1024 * 1024
_ENOUGH_TO_GUESS = 8

_NO_LIMIT = 2**31
#: How often to check, with TLS, whether everything was handed to the operating system.
_LOOK_AGAIN_S = 0.01


@dataclass(slots=True, eq=False)
class _Waiting(Generic[_T]):
    """A request that awaits its response or, if brokers do not answer it, its writing."""

    correlation_id: int
    request: type[Request[Any]]
    version: int
    read: Read[_T]
    on_answer: Answered[_T]
    deadline: float
    timeout_s: float
    read_frame: ReadFrame[_T] | None = None


class Connection(asyncio.Protocol):
    """A connection to one broker.

    ``name`` is its name in messages; ``on_lost(connection, error)`` is called once at its end, before the requests fail.
    ``metrics`` counts what is sent and received, and the time with ``most_in_flight`` requests in flight.
    """

    def __init__(
        self,
        name: str,
        client_id: str,
        on_lost: Callable[[Connection, KafkaError], object],
        metrics: BrokerMetrics | None = None,
        most_in_flight: int = _NO_LIMIT,
    ) -> None:
        self.name = name
        self.last_used = 0.0
        self.error: KafkaError | None = None  # why it is closed
        self.answers = 0  # the number of requests answered
        self.hung_up = False  # whether the other side ended it
        self.fell_silent = False  # whether it was given up because the other side did not answer
        self.first_bytes = b""  # the first bytes received, to guess what answered instead of a broker
        self._client_id = client_id
        self._on_lost = on_lost
        self.metrics = metrics or BrokerMetrics()
        self._most_in_flight = most_in_flight
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._raw_transport: asyncio.WriteTransport | None = (
            None  # the transport below TLS, which does not count the bytes that wait there
        )
        self._frames = FrameReader(MAX_FRAME_BEFORE_READY)
        self._waiting: deque[_Waiting[Any]] = deque()
        self._unwritten: deque[_Waiting[Any]] = deque()
        self._held: list[tuple[Callable[[], None], Answered[Any]]] | None = None  # requests held during a login
        self._idle: asyncio.Future[None] | None = None  # set while a waiter needs the last answer
        self._correlation_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._gone = self._loop.create_future()

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        return self.error is not None

    # -- sending ------------------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """The number of requests sent and not answered (or, if brokers do not answer them, not written)."""
        held = 0 if self._held is None else len(self._held)
        return len(self._waiting) + len(self._unwritten) + held

    def oldest_age(self, now: float) -> float:
        """The time in seconds since the oldest request in flight was sent; 0.0 if there is none. For any thread.

        A delay that the broker has announced does not count, as it does not for the timeout.
        """
        age = 0.0
        for requests in (self._waiting, self._unwritten):
            with suppress(IndexError):  # the event loop's thread may take the last one at any time
                age = max(age, now - (requests[0].deadline - requests[0].timeout_s))
        return age

    @property
    def is_held(self) -> bool:
        """Whether requests are held back now: the client logs in again, or the connection is about to end."""
        return self._held is not None

    def hold(self) -> None:
        """Hold requests until `release`, except those of the login: a broker accepts nothing else during it (KIP-368).

        Requests in flight are answered first, in order, as always.
        """
        if self._held is None:
            self._held = []

    def release(self) -> None:
        """Send the held requests in order; their timeouts begin now."""
        held, self._held = self._held, None
        for send, on_answer in held or ():
            try:
                send()
            except Exception as error:  # a request that cannot be encoded must not stop the ones behind it
                gone = ProtocolError(f"A request to broker {self.name} could not be sent: {error}")
                gone.__cause__ = error
                self._loop.call_soon(on_answer, gone)

    async def abort_when_idle(self, latest: float, error: KafkaError) -> None:
        """Send nothing more, and end the connection when all requests are answered, or at ``latest``.

        ``latest`` is a time of the event loop. Cancellation: the connection stays held.
        """
        self.hold()
        if not self.closed and (self._waiting or self._unwritten):
            self._idle = self._loop.create_future()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(latest):
                    await self._idle
        self.abort(error)

    def send(
        self,
        request: Request[Any],
        version: int,
        on_answer: Answered[_T],
        timeout_s: float,
        *,
        read: Read[_T],
        expect_response: bool = True,
        is_login: bool = False,
    ) -> None:
        """Write a request; ``on_answer`` gets what ``read`` returns. If ``read`` raises, the connection ends.

        ``is_login``: send it even if the connection is held. On a closed connection the callback is called soon.
        """
        transport = self._transport
        if self.closed or transport is None or transport.is_closing():
            gone = self.error or BrokerConnectionError(f"The connection to broker {self.name} is closed.")
            self._loop.call_soon(on_answer, gone)
            return
        if self._held is not None and not is_login:
            again = partial(
                self.send,
                request,
                version,
                on_answer,
                timeout_s,
                read=read,
                expect_response=expect_response,
            )
            self._held.append((again, on_answer))
            return
        correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        pieces = encode_request(correlation_id, self._client_id, request, version)
        self._correlation_id = correlation_id
        waiting = self._wait_for(correlation_id, type(request), version, on_answer, timeout_s, read)
        size = sum(map(len, pieces))
        self.metrics.bytes_out += size
        self.metrics.largest_request = max(self.metrics.largest_request, size)
        if expect_response:
            self._waiting.append(waiting)
            transport.writelines(pieces)
            return
        self._unwritten.append(waiting)
        transport.writelines(pieces)
        # Until Python 3.12.9 and 3.13.2 writelines() does not report that it has not written everything (gh-127655).
        transport.set_write_buffer_limits(high=0)
        if transport.get_write_buffer_size() == 0:
            self._loop.call_soon(self._written)  # this checks below TLS as well

    @property
    def takes_frames(self) -> bool:
        """Whether a request would be written at once: the connection is open, and not held."""
        transport = self._transport
        return self.error is None and transport is not None and self._held is None and not transport.is_closing()

    def send_frame(
        self,
        frame: Callable[[int], bytes],
        request: type[Request[Any]],
        version: int,
        on_answer: Answered[_T],
        timeout_s: float,
        read: Read[_T],
        read_frame: ReadFrame[_T],
    ) -> None:
        """Write the request that ``frame`` encodes for a correlation id, as `send` does. Only if it `takes_frames`.

        ``read_frame`` is tried before ``read`` if nothing else is in flight.
        """
        assert self._transport is not None
        correlation_id = self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        self._waiting.append(self._wait_for(correlation_id, request, version, on_answer, timeout_s, read, read_frame))
        encoded = frame(correlation_id)
        metrics, size = self.metrics, len(encoded)
        metrics.bytes_out += size
        if size > metrics.largest_request:
            metrics.largest_request = size
        self._transport.write(encoded)

    def _wait_for(
        self,
        correlation_id: int,
        request: type[Request[Any]],
        version: int,
        on_answer: Answered[_T],
        timeout_s: float,
        read: Read[_T],
        read_frame: ReadFrame[_T] | None = None,
    ) -> _Waiting[_T]:
        metrics = self.metrics
        metrics.requests += 1
        now = self.last_used = self._loop.time()
        if len(self._waiting) + len(self._unwritten) + 1 >= self._most_in_flight:
            metrics.begin_full(now)
        deadline = now + timeout_s
        if self._timer is None or deadline < self._timer_due:
            self._arm(deadline)
        return _Waiting(correlation_id, request, version, read, on_answer, deadline, timeout_s, read_frame)

    def _have_room(self) -> None:
        if len(self._waiting) + len(self._unwritten) < self._most_in_flight:
            self.metrics.end_full(self._loop.time())

    def resume_writing(self) -> None:
        """Everything was handed to the operating system (the transport's limits are zero)."""
        self._written()

    def _written(self) -> None:
        transport = self._transport
        if not self._unwritten or transport is None or transport.get_write_buffer_size() > 0:
            return  # more was written since: `resume_writing` is called again for that
        if self._raw_transport is not None and self._raw_transport.get_write_buffer_size() > 0:
            self._loop.call_later(_LOOK_AGAIN_S, self._written)  # no callback reports when that was handed over
            return
        self.last_used = self._loop.time()
        unwritten, self._unwritten = self._unwritten, deque()
        self._have_room()
        for each in unwritten:
            self._call_back(each, WRITTEN)
        self._notify_if_idle()

    def ready(self) -> None:
        """The peer is a broker: accept longer answers from now on."""
        self._frames.max_frame = MAX_FRAME

    def extend_deadlines(self, seconds: float) -> None:
        """Give all requests in flight ``seconds`` more time: the broker announced a delay (KIP-219).

        This includes requests that are not written yet: during the delay the broker reads nothing from the connection.
        """
        for waiting in chain(self._waiting, self._unwritten):
            waiting.deadline += seconds

    # -- receiving -----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The transport is connected."""
        if self._transport is None:
            self.metrics.connections_created += 1
        self._transport = cast("asyncio.Transport", transport)
        if self.closed:  # abandoned while connecting
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=0)
        self.last_used = self._loop.time()

    def tls_negotiated(self, raw: asyncio.WriteTransport, transport: asyncio.Transport) -> None:
        """TLS was negotiated over the transport ``raw``; ``transport`` encrypts."""
        self._raw_transport = raw
        self.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Split the bytes into answers, and pass each to its request's callback."""
        if self.error is not None:
            return
        self.metrics.bytes_in += len(data)
        if not self.first_bytes:
            self.first_bytes = bytes(data[:_ENOUGH_TO_GUESS])
        frames = self._frames
        if len(self._waiting) == 1 and not frames.pending and self._read_whole(data):
            return
        frames.feed(data)
        try:
            while (frame := frames.next_frame()) is not None:
                waiting, answer = self._read(frame)
                self._call_back(waiting, answer)
                if self.closed:  # the callback has ended the connection
                    return
            if not self._waiting:
                self._notify_if_idle()
            if not self._waiting and frames.pending:
                raise ProtocolError(f"{frames.pending} unsolicited byte(s) arrived.")
        except ProtocolError as error:
            broken = ProtocolError(f"Broker {self.name} sent something that cannot be used: {error}")
            broken.__cause__ = error.with_traceback(None)  # its frames would keep all received bytes alive
            self.abort(broken)

    def _read_whole(self, data: bytes) -> bool:
        """Read the bytes as the answer to the only request in flight, if that is possible without splitting frames."""
        waiting = self._waiting[0]
        answer = None if waiting.read_frame is None else waiting.read_frame(data, waiting.correlation_id)
        if answer is None:
            return False
        self._waiting.popleft()
        self.answers += 1
        metrics = self.metrics
        metrics.responses += 1
        now = self.last_used = self._loop.time()
        if metrics.full_since is not None:
            metrics.end_full(now)
        self._call_back(waiting, answer)
        if self._idle is not None:
            self._notify_if_idle()
        return True

    def _read(self, frame: bytes) -> tuple[_Waiting[Any], Any]:
        if not self._waiting:
            raise ProtocolError(f"{len(frame)} unsolicited byte(s) arrived.")
        waiting = self._waiting[0]
        correlation_id, body = decode_response_header(frame, waiting.request, waiting.version)
        if correlation_id != waiting.correlation_id:
            raise ProtocolError(
                f"the response has correlation id {correlation_id}; the one expected next is {waiting.correlation_id}."
            )
        answer = waiting.read(waiting.version, body)
        self._waiting.popleft()
        self.answers += 1
        self.metrics.responses += 1
        self.last_used = self._loop.time()
        if self.metrics.full_since is not None:
            self._have_room()
        return waiting, answer

    def _call_back(self, waiting: _Waiting[_T], answer: Answer[_T]) -> None:
        try:
            waiting.on_answer(answer)
        except Exception as error:  # foreign code: one callback that fails must not stop the others
            self._loop.call_exception_handler(
                {
                    "message": f"The callback of a {waiting.request.__name__} to broker {self.name} failed",
                    "exception": error,
                    "protocol": self,
                }
            )

    # -- time ---------------------------------------------------------------------------------------------------------

    def _arm(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._loop.call_at(due, self._check_time)

    def _check_time(self) -> None:
        self._timer = None
        if not (self._waiting or self._unwritten):  # held requests have no deadline yet
            return
        first = min(chain(self._waiting, self._unwritten), key=lambda waiting: waiting.deadline)
        if self._loop.time() < first.deadline:
            self._arm(first.deadline)
            return
        what = f"{first.request.__name__} v{first.version} within {first.timeout_s:g} s"
        self.fell_silent = True
        did_not = "did not answer" if first in self._waiting else "did not accept"
        self.abort(
            BrokerConnectionError(f"Broker {self.name} {did_not} {what}; {self.in_flight} request(s) were in flight.")
        )

    # -- the end ------------------------------------------------------------------------------------------------------

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is closed."""
        if not self._gone.done():
            self._gone.set_result(None)
        how = f"broke: {exc}" if exc is not None else "was closed by the broker"
        error = BrokerConnectionError(
            f"The connection to broker {self.name} {how}; {self.in_flight} request(s) were in flight."
        )
        error.__cause__ = exc
        self.hung_up = not self.closed
        self.fell_silent |= isinstance(exc, TimeoutError)  # of the kernel: neither data nor probes were acknowledged
        self._end(error)

    def abort(self, error: KafkaError) -> None:
        """End the connection now; all its requests fail with the error."""
        if self._transport is not None:
            self._transport.abort()
        self._end(error)

    async def wait_closed(self) -> None:
        """Wait until the socket is closed; an aborted connection closes at once.

        Cancellation: the socket is closed anyway.
        """
        if self._transport is not None:
            await asyncio.shield(self._gone)

    def _end(self, error: KafkaError) -> None:
        if self.closed:
            return
        self.error = error
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self.metrics.connections_closed += 1
        self._frames = FrameReader(MAX_FRAME_BEFORE_READY)  # errors keep the connection, not its bytes
        unanswered = [*self._waiting, *self._unwritten]
        self._waiting.clear()
        self._unwritten.clear()
        self._have_room()
        self._on_lost(self, error)
        for each in unanswered:
            self._call_back(each, error)
        self._notify_if_idle()
        self.release()  # so that held requests fail as well, soon

    def _notify_if_idle(self) -> None:
        if self._idle is not None and not (self._waiting or self._unwritten or self._idle.done()):
            self._idle.set_result(None)

    @property
    def is_local(self) -> bool:
        """Whether the other side is on this machine, so that the connection cannot be intercepted."""
        peer = None if self._transport is None else self._transport.get_extra_info("peername")
        try:
            return peer is not None and ipaddress.ip_address(peer[0].partition("%")[0]).is_loopback
        except (ValueError, TypeError, IndexError, AttributeError):
            return False

    def configure_socket(self, send_buffer: int, receive_buffer: int) -> None:
        """Set the options of the socket; sizes in bytes, -1 for the system's default."""
        sock = self._transport.get_extra_info("socket") if self._transport is not None else None
        if sock is not None:
            set_socket_options(sock, send_buffer, receive_buffer)

    def __repr__(self) -> str:
        return f"<Connection to {self.name}: {self.in_flight} in flight{', closed' if self.closed else ''}>"


def settle(done: asyncio.Future[Answer[_T]], answer: Answer[_T]) -> None:
    """Make an answer, even an error, the result of a future. A cancelled future stays cancelled."""
    if not done.done():
        done.set_result(answer)
