"""Misfortunes of brokers and of the network, drawn by dice, until all is well again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import ElectionType, KafkaException
from confluent_kafka.admin import AdminClient

from aioproducer.protocol import ApiKey
from aioproducer.testing.kafka import CONTROLLER_ID, KafkaCluster
from tests.chaos.proxy import Proxy
from tests.simulation.faults import Dice

__all__ = ["Misfortunes"]

#: By weight. Each ends before the next one of these: a second broker that is away stops all writes.
_NODES: Final = ("kill", "kill", "kill", "pause", "pause", "restart", "leader move")
_NETWORK: Final = (
    *("lost response",) * 5,
    *("cut",) * 3,
    *("black hole",) * 2,
    *("lost request",) * 2,
    "delay",
    "pieces",
)
#: Seconds between two misfortunes.
_NODES_REST_S: Final = (1.0, 5.0)
_NETWORK_REST_S: Final = (0.2, 2.5)
#: The session time-out of the cluster's brokers is 3 s: a pause exceeds it, a black hole exceeds the request time-out.
_PAUSE_S: Final = (4.0, 9.0)
_DOWN_S: Final = (0.0, 6.0)
_HOLE_S: Final = (0.5, 8.0)
_SLOW_S: Final = (1.0, 4.0)
_ELECTION_S: Final = 10.0


class Misfortunes:
    """Everything that happens to the cluster. ``counts`` are the misfortunes by kind."""

    def __init__(
        self,
        kafka: KafkaCluster,
        proxies: Mapping[int, Proxy],
        seed: int,
        show: Callable[[str], None],
        apis: Sequence[ApiKey],
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._kafka, self._proxies, self._show, self._apis = kafka, proxies, show, apis
        # Separate dice, so that the sequence of each kind is the seed's, whatever the other one takes.
        self._nodes, self._network = Dice(2 * seed), Dice(2 * seed + 1)
        self._calm = asyncio.Event()
        self._one_node = asyncio.Lock()

    async def run(self) -> None:
        """Run until `end`; then everything has been repaired."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._afflict_nodes())
            group.create_task(self._afflict_network())
        for proxy in self._proxies.values():
            proxy.restore()
        self._show("all is well: every broker runs, and the network delivers")

    def end(self) -> None:
        """Let no more happen, and end what goes on."""
        self._calm.set()

    async def upgrade(self, version: str, every_s: float) -> None:
        """Upgrade the controller, then each broker, to the Kafka version: a clean stop, and a start with its jars."""
        for node in (CONTROLLER_ID, *self._kafka.broker_ids):
            await self._rest(every_s)
            async with self._one_node:
                self._happens("upgrade", f"{_name(node)} stops, to start as Kafka {version}")
                await asyncio.to_thread(self._kafka.stop, node)
                await asyncio.to_thread(self._kafka.upgrade, node, version)
                await asyncio.to_thread(self._kafka.start, node)
                self._show(f"{_name(node)} runs Kafka {version}")

    # Nodes

    async def _afflict_nodes(self) -> None:
        dice = self._nodes
        while not self._calm.is_set():
            await self._rest(dice.seconds(*_NODES_REST_S))
            kind, node = dice.choice(_NODES), dice.choice(self._kafka.broker_ids)
            down_s, pause_s = dice.seconds(*_DOWN_S), dice.seconds(*_PAUSE_S)
            if self._calm.is_set():
                return
            async with self._one_node:
                match kind:
                    case "kill":
                        self._happens(kind, f"SIGKILL to {_name(node)}, back after {down_s:.1f} s")
                        await self._down(self._kafka.kill, node, down_s)
                    case "restart":
                        self._happens(kind, f"a clean restart of {_name(node)}")
                        await self._down(self._kafka.stop, node, 0.0)
                    case "pause":
                        self._happens(kind, f"SIGSTOP to {_name(node)} for {pause_s:.1f} s")
                        await self._pause(node, pause_s)
                    case _:
                        self._happens(kind, "leaders return to their preferred brokers")
                        await asyncio.to_thread(self._elect)

    async def _down(self, end: Callable[[int], None], node: int, seconds: float) -> None:
        await asyncio.to_thread(end, node)
        await self._rest(seconds)
        await asyncio.to_thread(self._kafka.start, node)
        self._show(f"{_name(node)} serves again")

    async def _pause(self, node: int, seconds: float) -> None:
        await asyncio.to_thread(self._kafka.pause, node)
        try:
            await self._rest(seconds)
        finally:
            self._kafka.resume(node)
        self._show(f"SIGCONT to {_name(node)}")

    def _elect(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._kafka.bootstrap("INTERNAL"), "log_level": 0})
        with suppress(KafkaException, TimeoutError):  # an election that a broker refuses is no misfortune
            elected: Future[Any] = admin.elect_leaders(ElectionType.PREFERRED)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            elected.result(_ELECTION_S)

    # Network

    async def _afflict_network(self) -> None:
        dice = self._network
        async with asyncio.TaskGroup() as group:
            while not self._calm.is_set():
                await self._rest(dice.seconds(*_NETWORK_REST_S))
                kind, node, api = dice.choice(_NETWORK), dice.choice(self._kafka.broker_ids), dice.choice(self._apis)
                hole_s, slow_s, delay_s = dice.seconds(*_HOLE_S), dice.seconds(*_SLOW_S), dice.seconds(0.05, 1.0)
                if self._calm.is_set():
                    return
                proxy = self._proxies[node]
                match kind:
                    case "lost response":
                        self._happens(
                            kind, f"the next {api.name} response of {_name(node)} is lost after it was applied"
                        )
                        proxy.lose_response(api)
                    case "lost request":
                        self._happens(kind, f"the next {api.name} request to {_name(node)} is lost")
                        proxy.lose_request(api)
                    case "cut":
                        self._happens(kind, f"{proxy.cut()} connections to {_name(node)} are cut")
                    case "black hole":
                        self._happens(kind, f"{_name(node)} is in a black hole for {hole_s:.1f} s")
                        group.create_task(self._hole(proxy, hole_s))
                    case "delay":
                        self._happens(kind, f"frames of {_name(node)} are {delay_s:.2f} s late for {slow_s:.1f} s")
                        group.create_task(self._slow(proxy, slow_s, delay_s))
                    case _:
                        self._happens(kind, f"frames of {_name(node)} arrive in pieces for {slow_s:.1f} s")
                        group.create_task(self._in_pieces(proxy, slow_s))

    async def _hole(self, proxy: Proxy, seconds: float) -> None:
        proxy.hold()
        await self._rest(seconds)
        proxy.flow()

    async def _slow(self, proxy: Proxy, seconds: float, delay_s: float) -> None:
        proxy.delay_s = delay_s
        await self._rest(seconds)
        proxy.delay_s = 0.0

    async def _in_pieces(self, proxy: Proxy, seconds: float) -> None:
        proxy.in_pieces = True
        await self._rest(seconds)
        proxy.in_pieces = False

    async def _rest(self, seconds: float) -> None:
        """Wait so long, but not beyond the end."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._calm.wait(), seconds)

    def _happens(self, kind: str, words: str) -> None:
        self.counts[kind] += 1
        self._show(f"{kind:<14}  {words}")


def _name(node: int) -> str:
    return "the controller" if node == CONTROLLER_ID else f"broker {node}"
