"""Sets up a connection to a broker: its name's addresses, a socket, and what the broker speaks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from aioproducer._version import __version__
from aioproducer.config import ProducerConfig
from aioproducer.core.cluster import Node
from aioproducer.errors import BrokerConnectionError, ConfigError, KafkaError, ProtocolError
from aioproducer.net.addresses import Address, Resolver
from aioproducer.net.connection import Connection, settle
from aioproducer.net.versions import BrokerVersions, version_to_retry
from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.error_codes import ErrorCode, broker_error
from aioproducer.protocol.messages import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest

__all__ = ["Connect", "Connector", "Established"]

_SOFTWARE_NAME = "aioproducer"
_FIRST_VERSION_WITH_CHECK = 5

#: Opens a connection to an address: (make the protocol, where) -> the protocol, connected.
Connect: TypeAlias = Callable[[Callable[[], Connection], Address], Awaitable[Connection]]

Lost: TypeAlias = Callable[[Connection, KafkaError], object]


class Established(NamedTuple):
    """A connection over which requests can be sent, and what may be sent over it."""

    connection: Connection
    versions: BrokerVersions
    throttle_s: float


class Connector:
    """Opens connections, and knows those that are open."""

    def __init__(self, config: ProducerConfig, client_id: str, connect: Connect | None = None) -> None:
        if config.security_protocol != "PLAINTEXT":
            raise ConfigError(
                f"security_protocol={config.security_protocol!r} is not supported yet; nothing is sent in plaintext instead."
            )
        self._config = config
        self._client_id = client_id
        self._connect = connect or self._open_socket
        self._loop = asyncio.get_running_loop()
        self._resolver = Resolver()
        self._open: dict[Connection, None] = {}
        self._can_check = False  # whether the last broker that was connected is new enough

    async def connect(
        self, node: Node, attempt: int, limit_s: float, on_lost: Lost, cluster_id: str | None = None
    ) -> Established:
        """A connection to the broker that is ready to be used, within ``limit_s`` seconds.

        A name's addresses are tried in turn; each ``attempt`` begins with another one. With a ``cluster_id``, brokers that
        can (from Kafka 4.4 on) check that it is them who are meant. ``on_lost(connection, error)`` is called when the
        connection ends. Raises `BrokerConnectionError`, `ProtocolError`, `BrokerError`, and `UnsupportedVersion` for a
        peer that tells no metadata: nothing could be asked of it.
        Cancellation: what was begun is closed.
        """
        progress = _Progress()
        try:
            async with asyncio.timeout(limit_s) as limit:
                addresses = await self._resolver.resolve(node.host, node.port)
                first = attempt % len(addresses)
                progress.stage = f"nothing accepts connections at {', '.join(map(str, addresses))}"
                until = limit.when() or self._loop.time()
                await self._reach(node, addresses[first:] + addresses[:first], until, on_lost, progress)
                progress.stage = "it took the connection, and did not answer ApiVersions"
                return await self._negotiate(progress.reached(), cluster_id, node.id)
        except BaseException as error:
            late = isinstance(error, TimeoutError)
            why = f"Broker {node} could not be connected within {limit_s:.3g} s: {progress.stage}."
            gone = BrokerConnectionError(why if late else f"The connection to broker {node} was given up.")
            progress.abort(gone)
            if late:
                raise gone from error
            raise

    async def close(self, error: KafkaError) -> None:
        """End every connection now.

        Cancellation: they are ended all the same.
        """
        connections = list(self._open)
        for connection in connections:
            connection.abort(error)
        for connection in connections:
            await connection.wait_closed()

    async def _reach(
        self, node: Node, addresses: list[Address], until: float, on_lost: Lost, progress: _Progress
    ) -> None:
        """A connection to the first address that takes one. Each gets its share of the time: one of them may be a hole."""

        def make() -> Connection:
            connection = progress.connection = Connection(str(node), self._client_id, self._forgetting(on_lost))
            self._open[connection] = None
            return connection

        failures: list[OSError] = []
        for tried, address in enumerate(addresses, start=1):
            share = (until - self._loop.time()) / (len(addresses) - tried + 1)
            try:
                async with asyncio.timeout(share if tried < len(addresses) else None):
                    connection = await self._connect(make, address)
                    connection.configure_socket(self._config.send_buffer_bytes, self._config.receive_buffer_bytes)
                    return
            except OSError as error:
                progress.abort(BrokerConnectionError(f"The connection to {address} was given up."))
                failures.append(error)
        reasons = "; ".join(f"{address}: {_reason(error)}" for address, error in zip(addresses, failures, strict=True))
        raise BrokerConnectionError(f"Broker {node} could not be connected: {reasons}.") from failures[-1]

    def _forgetting(self, on_lost: Lost) -> Lost:
        def lost(connection: Connection, error: KafkaError) -> None:
            self._open.pop(connection, None)
            on_lost(connection, error)

        return lost

    async def _open_socket(self, make: Callable[[], Connection], address: Address) -> Connection:
        _, connection = await self._loop.create_connection(make, address.host, address.port, family=address.family)
        return connection

    async def _negotiate(self, connection: Connection, cluster_id: str | None, node_id: int) -> Established:
        """Ask for the versions, with an older question where the broker does not understand ours (KIP-511).

        TLS and SASL have their place before this. The newest question is only good for the check, and costs another round
        where the broker does not know it: so it is asked only where there is something to check, and somebody who can.
        """
        question = ApiVersionsRequest(
            client_software_name=_SOFTWARE_NAME,
            client_software_version=__version__,
            cluster_id=cluster_id,
            node_id=-1 if cluster_id is None else node_id,
        )
        checks = cluster_id is not None and self._can_check
        version = ApiVersionsRequest.highest_spoken if checks else _FIRST_VERSION_WITH_CHECK - 1
        while True:
            body = await self._ask_versions(connection, question, version)
            older = version_to_retry(body)
            if older is None or older >= version:
                break
            version = older
        established = _established(connection, version, body)
        spoken = established.versions.ranges.get(ApiKey.API_VERSIONS, (0, 0))
        self._can_check = spoken[1] >= _FIRST_VERSION_WITH_CHECK
        return established

    async def _ask_versions(self, connection: Connection, question: ApiVersionsRequest, version: int) -> bytes:
        done: asyncio.Future[Any] = self._loop.create_future()
        connection.send(question, version, partial(settle, done), self._config.request_timeout_ms / 1000, raw=True)
        answer = await done
        if isinstance(answer, BaseException):
            raise answer
        return bytes(answer)


class _Progress:
    """How far an attempt has come, for whoever must tell why it failed and clean up."""

    def __init__(self) -> None:
        self.stage = "its name was not resolved"
        self.connection: Connection | None = None

    def reached(self) -> Connection:
        """The connection; only called when there is one."""
        assert self.connection is not None
        return self.connection

    def abort(self, error: KafkaError) -> None:
        """Close what was opened, if anything was."""
        if self.connection is not None:
            self.connection.abort(error)


def _established(connection: Connection, version: int, body: bytes) -> Established:
    try:
        response = ApiVersionsResponse.decode(version, body)
    except ProtocolError as error:
        raise ProtocolError(
            f"Broker {connection.name} answered ApiVersions v{version} with something that cannot be read: {error}"
        ) from error
    if response.error_code != ErrorCode.NONE:
        raise broker_error(
            response.error_code, f"broker {connection.name} refused ApiVersions v{version}, the first request."
        )
    versions = BrokerVersions.of(response)
    versions.best(MetadataRequest, connection.name)  # a KRaft controller, say, would be connected and of no use
    connection.ready()
    return Established(connection, versions, response.throttle_time_ms / 1000)


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer to the attempt to connect"
    return error.strerror or str(error)
