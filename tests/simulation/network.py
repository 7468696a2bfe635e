"""A network that loses, delays, cuts and holds back: connections between one event loop and FakeCluster's nodes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Any, Final

from aioproducer.errors import ProtocolError
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
from aioproducer.testing.broker.request import ReceivedRequest
from tests.simulation.faults import Dice, Story
from tests.simulation.loop import SimulatedLoop
from tests.simulation.watch import Watch

__all__ = ["Network", "Weather"]

_MOST_REQUEST: Final = 1 << 26
_FIRST_PORT: Final = 9000
#: Timers of the same moment may run in any order, and the bytes of a connection may not.
_LATER: Final = 1e-6

#: The ways in which a request or its response meets its fate, and their weights.
_FATES: Final = (
    ("reset before", 3),  # the request is lost, and the connection
    ("reset after", 4),  # the request is applied, the response and the connection are lost
    ("zombie", 3),  # the connection is lost now, the request is applied later
    ("half-open", 2),  # nothing passes any more, in either direction, without a word
    ("slow", 4),
    ("in pieces", 3),
    ("cut short", 2),  # a part of the response arrives, then the connection is lost
    ("stuck", 2),  # the client's writes wait
)
_DRAWN: Final = [name for name, weight in _FATES for _ in range(weight)]


class Weather:
    """The probabilities and the delays of a simulation, in seconds."""

    def __init__(self, dice: Dice) -> None:
        self.fault = dice.choice((0.0, 0.01, 0.05, 0.2))
        self.quick = dice.choice((0.0002, 0.002, 0.02))
        self.slow = dice.choice((0.2, 1.5, 6.0))
        self.refused = dice.choice((0.0, 0.0, 0.1))


class Network:
    """The nodes of a cluster and the connections to them."""

    def __init__(self, loop: SimulatedLoop, cluster: FakeCluster, dice: Dice, weather: Weather, story: Story) -> None:
        self.loop, self.cluster, self.dice, self.weather, self.story = loop, cluster, dice, weather, story
        self.watch = Watch(cluster)
        self.down: set[int] = set()
        self.open: dict[Wire, None] = {}
        self._numbers = 0
        self._polls: list[Callable[[], None]] = []
        for node_id, node in cluster.nodes.items():
            node.host, node.port = f"10.0.0.{node_id}", _FIRST_PORT + node_id
        cluster.on_change = self._changed

    @property
    def bootstrap_servers(self) -> list[str]:
        """The addresses of all nodes."""
        return [f"{node.host}:{node.port}" for node in self.cluster.nodes.values()]

    async def connect(self, make: Callable[[], asyncio.Protocol], port: int) -> tuple[asyncio.Transport, Any]:
        """A connection to the node at this port; raises OSError if it is refused."""
        node_id = port - _FIRST_PORT
        await asyncio.sleep(self.dice.seconds(0.0001, self.weather.quick))
        if self.dice.fault(self.weather.refused / 4):
            self.story.add(self.loop.time(), f"node {node_id} does not answer to a connection")
            await self.loop.create_future()
        if node_id in self.down or self.dice.fault(self.weather.refused):
            self.story.add(self.loop.time(), f"node {node_id} refuses a connection")
            raise ConnectionRefusedError(111, "Connection refused")
        self._numbers += 1
        protocol = make()
        wire = Wire(self, node_id, self._numbers, protocol)
        self.open[wire] = None
        protocol.connection_made(wire)
        return wire, protocol

    def stop(self, node_id: int) -> None:
        """A node crashes: its connections are reset, and the requests that it has not applied are lost."""
        self.down.add(node_id)
        for wire in [each for each in self.open if each.node_id == node_id]:
            wire.crash()

    def start(self, node_id: int) -> None:
        """It listens again."""
        self.down.discard(node_id)

    def poll(self, look: Callable[[], None]) -> None:
        """Call this after each change of the cluster."""
        self._polls.append(look)

    def _changed(self) -> None:
        polls, self._polls = self._polls, []
        for look in polls:
            look()


class Wire(asyncio.Transport):
    """The client's end of a connection, and the task of the node at the other end, without a task."""

    def __init__(self, network: Network, node_id: int, number: int, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.node_id = node_id
        self._network, self._loop, self._number = network, network.loop, number
        self._protocol: Any = protocol
        self._frames = FrameReader(_MOST_REQUEST)
        self._inbox: deque[tuple[ReceivedRequest, str]] = deque()
        self._steps: Generator[Effect, int, None] | None = None
        self._fate = ""
        self._arrives_at = self._returns_at = 0.0
        self._is_closing = self._is_lost = self._is_dead = self._is_silent = self._is_deaf = False
        self._stuck: list[bytes] = []
        self._is_stuck = False

    # -- the client's end ---------------------------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        """Take the bytes of whole requests."""
        if not self._is_closing:
            self._network.watch.sent(self._number, bytes(data))
        if self._is_stuck:
            self._stuck.append(bytes(data))
            return
        self._transmit(bytes(data))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Take the bytes of whole requests."""
        self.write(b"".join(list_of_data))

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The peer's address."""
        return (f"10.0.0.{self.node_id}", _FIRST_PORT + self.node_id) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """They are always zero here."""

    def get_write_buffer_size(self) -> int:
        """The number of waiting bytes."""
        return sum(map(len, self._stuck))

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self._is_closing

    def pause_reading(self) -> None:
        """The client never does."""
        raise NotImplementedError

    def close(self) -> None:
        """Close it."""
        self.abort()

    def abort(self) -> None:
        """Close it: what has arrived at the node is still applied."""
        if not self._is_closing:
            self._is_closing = True
            self._network.watch.lost(self._number)
            self._loop.call_soon(self._lost, None)

    def _lost(self, error: Exception | None) -> None:
        if not self._is_lost:
            self._is_lost = self._is_closing = True
            self._network.open.pop(self, None)
            self._network.watch.lost(self._number)
            self._protocol.connection_lost(error)

    def _reset(self) -> None:
        """The client learns that the connection is gone."""
        self._is_closing = True
        self._lost(ConnectionResetError(104, "Connection reset by peer"))

    # -- on the way to the node ---------------------------------------------------------------------------------------

    def _transmit(self, data: bytes) -> None:
        if self._is_closing or self._is_dead:
            return
        network = self._network
        fate = network.dice.choice(_DRAWN) if network.dice.fault(network.weather.fault) else ""
        delay = network.dice.seconds(0.0001, network.weather.quick)
        if fate:
            network.story.add(self._loop.time(), f"connection {self._number} to node {self.node_id}: {fate}")
        match fate:
            case "half-open":
                self._is_dead = True
                return
            case "slow":
                delay += network.dice.seconds(0.0, network.weather.slow)
            case "stuck":
                self._is_stuck = True
                self._stuck.append(data)
                self._protocol.pause_writing()
                self._loop.call_later(network.dice.seconds(0.0, network.weather.slow), self._unstick)
                return
            case "reset before":
                self._loop.call_later(delay, self._reset)
                self._is_dead = True
                return
            case "zombie":
                self._loop.call_later(delay, self._reset)
                delay += network.dice.seconds(0.0, network.weather.slow)
            case _:
                pass
        self._arrives_at = max(self._arrives_at + _LATER, self._loop.time() + delay)
        self._loop.call_at(self._arrives_at, self._arrive, data, fate)

    def _unstick(self) -> None:
        waiting, self._stuck, self._is_stuck = self._stuck, [], False
        if not self._is_closing:
            for data in waiting:
                self._transmit(data)
            if not self._is_stuck:
                self._protocol.resume_writing()

    # -- the node -----------------------------------------------------------------------------------------------------

    def crash(self) -> None:
        """The node is gone: nothing that it has not applied will be."""
        self._inbox.clear()
        self._is_deaf = self._is_silent = True
        if self._steps is not None:
            self._steps.close()
            self._steps = None
        self._reset()

    def _arrive(self, data: bytes, fate: str) -> None:
        if self._is_deaf or (self._is_closing and fate != "zombie" and self._network.dice.random.random() < 0.5):
            return
        try:
            self._frames.feed(data)
            for frame in self._frames:
                request = self._network.cluster.receive(self.node_id, self._number, bytes(frame), self._loop.time())
                self._network.cluster.requests.clear()
                self._inbox.append((request, fate))
                self._network.story.add(self._loop.time(), f"node {self.node_id} gets {request.api} {request.version}")
        except ProtocolError:
            self._reset()
        self._serve()

    def _serve(self) -> None:
        if self._steps is None and self._inbox:
            request, self._fate = self._inbox.popleft()
            self._steps = self._network.cluster.serve_received(request, self._loop.now_ms())
            self._go_on(next(self._steps, None))

    def _resume(self, steps: Generator[Effect, int, None]) -> None:
        if steps is not self._steps:  # the node has crashed
            return
        try:
            effect = steps.send(self._loop.now_ms())
        except StopIteration:
            effect = None
        self._go_on(effect)

    def _go_on(self, effect: Effect | None) -> None:
        steps = self._steps
        if steps is None:
            return
        again = partial(self._resume, steps)
        match effect:
            case None:
                self._steps = None
                self._loop.call_soon(self._serve)
                return
            case Send(data):
                self._return(data)
            case Sleep(seconds) | Quiet(seconds):
                self._loop.call_later(seconds, again)
                return
            case WaitFor(hold):
                hold.on_release(partial(self._soon, again))
                return
            case Poll():
                self._wait(effect, again)
                return
            case Silence():
                self._is_silent = True
            case Deafen():
                self._is_deaf = self._is_silent = True
                self._inbox.clear()
            case Close():
                self._inbox.clear()
                self._steps = None
                self._loop.call_soon(self._reset)
                return
        again()

    def _soon(self, again: Callable[[], None]) -> None:
        self._loop.call_soon(again)

    def _wait(self, poll: Poll, again: Callable[[], None]) -> None:
        is_over = False

        def end() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                timer.cancel()
                self._loop.call_soon(again)

        def look() -> None:
            if poll.ready():
                end()
            elif not is_over:
                self._network.poll(look)

        timer = self._loop.call_later(poll.seconds, end)
        look()

    # -- on the way back ----------------------------------------------------------------------------------------------

    def _return(self, data: bytes) -> None:
        if self._is_silent or self._is_dead or self._is_closing:
            return
        network, fate = self._network, self._fate
        self._fate = ""
        delay = network.dice.seconds(0.0001, network.weather.quick)
        pieces = [data]
        match fate:
            case "reset after":
                self._is_dead = True
                self._loop.call_later(delay, self._reset)
                return
            case "in pieces":
                cut = int(network.dice.random.random() * len(data))
                pieces = [data[:cut], data[cut:]]
            case "cut short":
                pieces = [data[: int(network.dice.random.random() * len(data))]]
            case _:
                pass
        for piece in pieces:
            self._returns_at = max(self._returns_at + _LATER, self._loop.time() + delay)
            self._loop.call_at(self._returns_at, self._deliver, piece)
            delay += network.dice.seconds(0.0, network.weather.slow) if len(pieces) > 1 else 0.0
        if fate == "cut short":
            self._is_dead = True
            self._loop.call_at(self._returns_at, self._reset)

    def _deliver(self, data: bytes) -> None:
        if data and not self._is_closing:
            self._network.watch.received(self._number, data)
            self._protocol.data_received(data)
