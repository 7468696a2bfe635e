"""Connections to the brokers of a cluster, for verbs that ask brokers questions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from random import Random
from typing import TYPE_CHECKING, TypeVar

from aioproducer.cli.doctor.visit import ask
from aioproducer.cli.verb import Trouble
from aioproducer.core.cluster import Node
from aioproducer.errors import BrokerConnectionError, KafkaError, UnsupportedVersion
from aioproducer.net.connector import Connector, Established
from aioproducer.protocol.message import Request, Response
from aioproducer.runtime.log import ClientLog

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioproducer.config import ProducerConfig
    from aioproducer.protocol.messages import MetadataResponseBroker

__all__ = ["Brokers", "connected"]

_ResponseT = TypeVar("_ResponseT", bound=Response)


class Brokers:
    """The brokers of one cluster: the one that was connected first, and others by their id, connected when asked."""

    def __init__(self, config: ProducerConfig, client_id: str, limit_s: float) -> None:
        #: The address of the broker that was connected first.
        self.asked = ""
        #: What has not been done yet, for the message if the time is over.
        self.stage = "no bootstrap server was connected; aioproducer doctor finds the cause"
        self._config = config
        self._connector = Connector(config, client_id, Random(), log=ClientLog(client_id))
        self._limit_s = limit_s
        self._limit: asyncio.Timeout | None = None
        self._first: Established | None = None
        self._nodes: dict[int, Node] = {}
        self._sessions: dict[int, Established] = {}

    @property
    def first(self) -> Established:
        """The connection to the first broker."""
        assert self._first is not None, "connect() comes first"
        return self._first

    def hold_to(self, limit: asyncio.Timeout) -> None:
        """Note the limit of the whole, which cancels what is done."""
        self._limit = limit

    def restart_limit(self) -> None:
        """Let the next request reach its own limit before that of the whole, so that it fails instead of being cancelled."""
        if self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time() + 2 * self._limit_s)

    async def connect(self) -> None:
        """Connect the first bootstrap server that can be used; raises Trouble if there is none."""
        reasons: list[str] = []
        addresses = self._config.bootstrap_addresses
        for index, (host, port) in enumerate(addresses):
            node = Node(-1 - index, host, port)
            try:
                # A server that is silent leaves time for the others.
                self._first = await self._connector.connect(node, 0, self._limit_s / len(addresses), _ignore)
            except KafkaError as error:
                reasons.append(str(error))
            else:
                self.asked = f"{host}:{port}"
                self.stage = f"{self.asked} did not answer all requests"
                return
        raise Trouble("\n".join(["No bootstrap server can be used; aioproducer doctor finds the cause.", *reasons]))

    def learn(self, brokers: Iterable[MetadataResponseBroker]) -> None:
        """Note the addresses of brokers, from a response with metadata."""
        self._nodes.update({each.node_id: Node(each.node_id, each.host, each.port) for each in brokers})

    @property
    def ids(self) -> list[int]:
        """The ids of the brokers whose addresses are known."""
        return sorted(self._nodes)

    async def ask(self, request: Request[_ResponseT], node_id: int | None = None, *, lowest: int = 0) -> _ResponseT:
        """The response of the first broker, or of the broker with this id, which must be known; raises KafkaError.

        ``lowest`` is the version of the request from which on it can hold what is asked; UnsupportedVersion is raised if the
        broker's highest is below.
        """
        session = self.first
        if node_id is not None:
            self.stage = f"broker {self._nodes[node_id]} did not answer"
            session = await self._session(node_id)
        connection = session.connection
        if session.versions.best(type(request), connection.name) < lowest:
            raise UnsupportedVersion(
                f"Broker {connection.name} is too old for this: it needs {type(request).__name__} version {lowest}."
            )
        return await ask(session, request, self._limit_s)

    async def _session(self, node_id: int) -> Established:
        if node_id not in self._sessions:
            self._sessions[node_id] = await self._connector.connect(self._nodes[node_id], 0, self._limit_s, _ignore)
        return self._sessions[node_id]

    async def close(self) -> None:
        """End all connections."""
        await self._connector.close(BrokerConnectionError("Everything was read."))


@contextlib.asynccontextmanager
async def connected(config: ProducerConfig, client_id: str, limit_s: float) -> AsyncGenerator[Brokers, None]:
    """The brokers of a cluster, with a connection to one of them; they are closed at the end.

    Raises Trouble if no bootstrap server can be used, and if the body takes longer than ``limit_s`` seconds.
    """
    brokers = Brokers(config, client_id, limit_s)
    try:
        async with asyncio.timeout(limit_s) as limit:
            brokers.hold_to(limit)
            await brokers.connect()
            yield brokers
    except TimeoutError as error:
        raise Trouble(
            f"After {limit_s:g} s {brokers.stage}. Look at the network and the brokers, or use --timeout."
        ) from error
    finally:
        await brokers.close()


def _ignore(*_: object) -> None:
    pass
