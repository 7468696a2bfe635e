"""The sockets of the fake broker: a thread with its own event loop, a listener per node, a task per connection.

fake_cluster.py decides the effects; this executes them. A lock guards the cluster's state, because tests script it from
their own thread; nothing is awaited while it is held.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from aioproducer.errors import ConfigError, ProtocolError
from aioproducer.protocol import FrameReader
from aioproducer.testing.broker.fake_cluster import (
    Close,
    Deafen,
    Effect,
    FakeCluster,
    Poll,
    Quiet,
    Send,
    Silence,
    Sleep,
    WaitFor,
)

if TYPE_CHECKING:
    import ssl

    from aioproducer.testing.broker.faults import Hold
    from aioproducer.testing.broker.request import ReceivedRequest

__all__ = ["BrokerConnection", "BrokerServer"]

_MAX_REQUEST = 100 * 1024 * 1024  # Kafka's socket.request.max.bytes
_BACKLOG = 100

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BrokerConnection:
    """A connection that a client made: its number (as in ReceivedRequest), its node, and the client's own port."""

    connection: int
    node: int
    client_port: int
    is_open: bool


class BrokerServer:
    """The thread, the sockets and the tasks."""

    def __init__(
        self,
        cluster: FakeCluster,
        lock: threading.RLock,
        *,
        host: str,
        receive_buffer: int | None,
        tls: ssl.SSLContext | None,
    ) -> None:
        self.cluster = cluster
        self.lock = lock
        self.failures: list[Exception] = []
        self._host = host
        self._receive_buffer = receive_buffer
        self._tls = tls
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._listeners: dict[int, socket.socket] = {}
        self._reserved: dict[int, socket.socket] = {}
        self._paused: set[int] = set()
        self._connections: list[_Connection] = []
        self._pollers: set[asyncio.Event] = set()
        self._arriving: dict[asyncio.Task[None], int] = {}

    # called from any thread

    def start(self) -> None:
        if self._thread is not None:
            raise ConfigError("This FakeBroker was started before; create a new one.")
        # Not from the test's event loop policy: this thread is not part of the tested code.
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(target=self._run, args=(self._loop,), name="FakeBroker", daemon=True)
        self._thread.start()
        try:
            for node_id in self.cluster.nodes:
                self.run(self.listen(node_id, new_port=True))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        self.run(self._shut_down())
        self._loop = None
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        if self.failures:
            raise RuntimeError(
                "A control function, or the fake broker itself, failed while it ran."
            ) from self.failures[0]

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run this in the broker's thread, and wait for it."""
        loop = self._loop
        if loop is None or threading.current_thread() is self._thread:
            work.close()
            why = "is not running" if loop is None else "cannot do that from within a control function"
            raise ConfigError(f"The FakeBroker {why}.")
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    def post(self, work: Coroutine[Any, Any, None]) -> None:
        """Run this soon in the broker's thread; does nothing if that has ended."""
        loop = self._loop
        if loop is None:
            work.close()
        else:
            asyncio.run_coroutine_threadsafe(work, loop)

    def wake_pollers(self) -> None:
        loop = self._loop
        if loop is not None and self._pollers:
            loop.call_soon_threadsafe(self._set_pollers)

    def connections(self) -> list[BrokerConnection]:
        return [each.describe() for each in list(self._connections)]

    # in the broker's thread

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            asyncio.set_event_loop(None)
            loop.close()

    async def listen(self, node_id: int, *, new_port: bool = False) -> None:
        loop = asyncio.get_running_loop()
        reserved = self._reserved.pop(node_id, None)
        if reserved is not None and new_port:
            reserved.close()
            reserved = None
        if node_id in self._listeners:
            raise ConfigError(f"Node {node_id} is already running.")
        listening = self._listeners[node_id] = reserved or self._bind(0)
        with self.lock:
            node = self.cluster.nodes[node_id]
            node.host, node.port = self._host, listening.getsockname()[1]
        listening.listen(_BACKLOG)
        # No asyncio.Server: if it is closed right after accepting a connection, it does not close that one (3.11).
        loop.add_reader(listening, self._accept, node_id, listening)

    def _accept(self, node_id: int, listening: socket.socket) -> None:
        try:
            accepted, _ = listening.accept()
        except OSError:  # the client disconnected before it was accepted
            return
        accepted.setblocking(False)
        task = asyncio.get_running_loop().create_task(self._adopt(node_id, accepted))
        self._arriving[task] = node_id
        task.add_done_callback(self._arriving.pop)

    async def _adopt(self, node_id: int, accepted: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: _Connection(self, node_id), accepted, ssl=self._tls
            )
        except (OSError, asyncio.CancelledError):  # a TLS handshake that failed, or a node that stops
            accepted.close()

    async def stop_listening(self, node_id: int) -> None:
        if node_id not in self._listeners:
            raise ConfigError(f"Node {node_id} is not running.")
        self._stop_accepting(node_id)
        await self._cut(node_id)
        # Bound but not listening: connections are refused, and no other process can get the port.
        self._reserved[node_id] = self._bind(self.cluster.nodes[node_id].port)

    async def read(self, node_id: int, *, paused: bool) -> None:
        (self._paused.add if paused else self._paused.discard)(node_id)
        for each in self._connections:
            if each.node_id == node_id:
                each.read(paused=paused)

    async def disconnect(self, node_id: int | None) -> None:
        lost = [each for each in self._connections if node_id in (None, each.node_id)]
        for each in lost:
            each.abort()
        await asyncio.gather(*(each.lost for each in lost))

    def _stop_accepting(self, node_id: int) -> None:
        listening = self._listeners.pop(node_id)
        asyncio.get_running_loop().remove_reader(listening)
        listening.close()

    async def _cut(self, node_id: int | None) -> None:
        """Break the connections of a stopping node, or all, and drop their requests."""
        await asyncio.sleep(0)  # so that what was just accepted has begun
        arriving = [task for task, node in self._arriving.items() if node_id in (None, node)]
        for task in arriving:
            task.cancel()
        await asyncio.gather(*arriving)
        cut = [each for each in self._connections if node_id in (None, each.node_id)]
        for each in cut:
            each.abort()
        serving = [each.task for each in cut if each.task is not None]
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, *(each.lost for each in cut), return_exceptions=True)

    async def _shut_down(self) -> None:
        for node_id in list(self._listeners):
            self._stop_accepting(node_id)
        for reserved in self._reserved.values():
            reserved.close()
        self._reserved.clear()
        await self._cut(None)

    def _bind(self, port: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self._receive_buffer is not None:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer)
            bound.bind((self._host, port))
            bound.setblocking(False)
        except BaseException:
            bound.close()
            raise
        return bound

    def _set_pollers(self) -> None:
        for changed in self._pollers:
            changed.set()

    async def wait_for_change(self, poll: Poll) -> None:
        changed = asyncio.Event()
        self._pollers.add(changed)
        try:
            async with asyncio.timeout(poll.seconds):
                while not self._is_ready(poll):
                    await changed.wait()
                    changed.clear()
        except TimeoutError:
            pass
        finally:
            self._pollers.discard(changed)

    def _is_ready(self, poll: Poll) -> bool:
        with self.lock:
            return poll.ready()

    def register(self, connection: _Connection) -> int:
        self._connections.append(connection)
        if connection.node_id not in self._listeners:
            connection.abort()  # accepted in the moment in which the node was stopped
        elif connection.node_id in self._paused:
            connection.read(paused=True)
        return len(self._connections)


class _HungUp(Exception):  # control flow
    """The broker closed this connection."""


class _Connection(asyncio.Protocol):
    """One client's connection: reads frames, processes them one after the other, and sends the responses."""

    def __init__(self, server: BrokerServer, node_id: int) -> None:
        self.node_id = node_id
        self.task: asyncio.Task[None] | None = None
        self._server = server
        self._loop = asyncio.get_running_loop()
        self.lost = self._loop.create_future()
        self._frames = FrameReader(_MAX_REQUEST)
        self._inbox: deque[ReceivedRequest] = deque()
        self._arrived = asyncio.Event()
        self._no_more = False
        self._is_deaf = False
        self._is_silent = False
        self._id = 0
        self._client_port = 0
        self._transport: asyncio.Transport | None = None

    def describe(self) -> BrokerConnection:
        return BrokerConnection(self._id, self.node_id, self._client_port, not self.lost.done())

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def read(self, *, paused: bool) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._client_port = transport.get_extra_info("peername")[1]
        self._id = self._server.register(self)
        self.task = self._loop.create_task(self._serve())

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        now = time.monotonic()
        try:
            self._frames.feed(data)
            for frame in self._frames:
                with self._server.lock:
                    request = self._server.cluster.receive(self.node_id, self._id, bytes(frame), now)
                self._inbox.append(request)
        except ProtocolError:
            self.abort()
        self._arrived.set()

    def eof_received(self) -> bool:
        self._no_more = True
        self._arrived.set()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        # Data of a reset connection are dropped; data before an orderly close are processed (acks=0, then close).
        if exc is not None:
            self._inbox.clear()
        self._no_more = True
        self._arrived.set()
        if not self.lost.done():
            self.lost.set_result(None)
        self._server.cluster.on_change()

    # the task

    async def _serve(self) -> None:
        try:
            while (request := await self._next()) is not None:
                await self._carry_out(request)
        except _HungUp:
            self._inbox.clear()
            if self._transport is not None:
                self._transport.close()
        except Exception as error:  # a control function of the test; close() raises it there
            self._server.failures.append(error)
            self.abort()

    async def _next(self) -> ReceivedRequest | None:
        while not self._inbox:
            if self._no_more:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        return self._inbox.popleft()

    async def _carry_out(self, request: ReceivedRequest) -> None:
        with self._server.lock:
            steps = self._server.cluster.serve_received(request, _now_ms())
            effect = next(steps, None)
        try:
            while effect is not None:
                await self._do(effect)
                with self._server.lock:
                    try:
                        effect = steps.send(_now_ms())
                    except StopIteration:
                        effect = None
        finally:
            steps.close()

    async def _do(self, effect: Effect) -> None:
        match effect:
            case Send(data):
                if self._transport is not None and not (self._is_silent or self._transport.is_closing()):
                    self._transport.write(data)
            case Sleep(seconds) | Quiet(seconds):
                await asyncio.sleep(seconds)
            case WaitFor(hold):
                await self._wait_for(hold)
            case Poll():
                await self._server.wait_for_change(effect)
            case Silence():
                self._is_silent = True
            case Deafen():
                self._is_deaf = self._is_silent = True
                self._inbox.clear()
            case Close():
                raise _HungUp

    async def _wait_for(self, hold: Hold) -> None:
        released = asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the broker was closed first
                self._loop.call_soon_threadsafe(released.set)

        with self._server.lock:
            hold.on_release(wake)
        await released.wait()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
