"""Sets up a connection to a broker: its name's addresses, a socket, TLS, and what the broker speaks."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from aioproducer._version import __version__
from aioproducer.config import ProducerConfig
from aioproducer.core.cluster import Node
from aioproducer.errors import AuthenticationError, BrokerConnectionError, KafkaError, ProtocolError
from aioproducer.net.addresses import Address, Resolver
from aioproducer.net.connection import WRITTEN, Answer, Connection, settle
from aioproducer.net.security.strangers import guess_stranger
from aioproducer.net.security.tls_failures import explain_tls_failure
from aioproducer.net.versions import BrokerVersions, version_to_retry
from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.error_codes import ErrorCode, broker_error
from aioproducer.protocol.messages import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest

if TYPE_CHECKING:
    from aioproducer.core.sasl.conversation import Conversation
    from aioproducer.net.security.login import Login
    from aioproducer.net.security.tls import TlsContexts

__all__ = ["Connect", "Connector", "Established"]

_SOFTWARE_NAME = "aioproducer"
_FIRST_VERSION_WITH_CHECK = 5

#: asyncio's own limit for the handshake; the limit of the whole attempt comes first.
_NEVER_S = 86_400.0

#: Opens a connection to an address: (make the protocol, where) -> the protocol, connected.
Connect: TypeAlias = Callable[[Callable[[], Connection], Address], Awaitable[Connection]]

Lost: TypeAlias = Callable[[Connection, KafkaError], object]


class Established(NamedTuple):
    """A connection over which requests can be sent, and what may be sent over it."""

    connection: Connection
    versions: BrokerVersions
    throttle_s: float
    session_s: float = 0.0  # for how long the broker knows us (KIP-368); 0: as long as the connection is open


class Connector:
    """Opens connections, and knows those that are open."""

    def __init__(self, config: ProducerConfig, client_id: str, random: Random, connect: Connect | None = None) -> None:
        self._config = config
        self._client_id = client_id
        self._connect = connect or self._open_socket
        self._tls = _tls_contexts(config) if config.uses_tls else None
        self._login = _login(config, random) if config.uses_sasl else None
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
                context = None if self._tls is None else await self._tls.fresh()
                await self._reach(node, addresses[first:] + addresses[:first], until, on_lost, progress, context)
                progress.stage = "it took the connection and did not answer ApiVersions; is this Kafka?"
                established = await self._agree(node, progress.reached(), cluster_id)
                if self._login is not None:
                    progress.stage = f"the {self._config.sasl_mechanism} login did not come to an end"
                    established = await self._log_in(self._login, node, established)
                established.connection.ready()
                return established
        except BaseException as error:
            late = isinstance(error, TimeoutError)
            end = "" if progress.stage.endswith("?") else "."
            why = f"Could not connect to broker {node} within {limit_s:.3g} s: {progress.stage}{end}"
            gone = BrokerConnectionError(why if late else f"The connection to broker {node} was given up.")
            progress.abort(gone)
            if late:
                raise gone from error
            raise

    async def _log_in(self, login: Login, node: Node, established: Established) -> Established:
        connection = established.connection
        if self._tls is None and not connection.is_local:
            login.refuse_in_the_clear(node)
        conversation = await login.prepare(node)
        session_s = await login.hold(conversation, connection, established.versions)
        return established._replace(session_s=session_s)

    async def prepare_login(self, node: Node) -> Conversation:
        """Ask for the credentials of another login, which keeps nobody waiting. Raises as `Login.prepare` does."""
        assert self._login is not None
        return await self._login.prepare(node)

    async def log_in_again(self, node: Node, established: Established, conversation: Conversation) -> float:
        """Log in on a connection that is in use (KIP-368), whose other requests are held meanwhile.

        Returns for how many seconds the broker knows us from now on. Raises as `connect` does; then the connection is of
        no use any more. Cancellation: likewise.
        """
        assert self._login is not None
        connection = established.connection
        connection.hold()
        try:
            session_s = await self._login.hold(conversation, connection, established.versions)
        except BaseException as error:
            # Before what was held goes out, which the broker would not understand in the middle of a login.
            gone = BrokerConnectionError(
                f"The login to broker {node} could not be renewed: {str(error) or 'it took too long.'}"
            )
            gone.__cause__ = error if isinstance(error, KafkaError) else None
            connection.abort(gone)
            raise
        connection.release()
        return session_s

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
        self,
        node: Node,
        addresses: list[Address],
        until: float,
        on_lost: Lost,
        progress: _Progress,
        context: ssl.SSLContext | None,
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
                    if context is None:
                        connection = await self._connect(make, address)
                    else:
                        connection = await self._open_tls(make, address, node, context, progress)
                    connection.configure_socket(self._config.send_buffer_bytes, self._config.receive_buffer_bytes)
                    return
            except OSError as error:
                progress.abort(BrokerConnectionError(f"The connection to {address} was given up."))
                failures.append(error)
        raise _unreached(node, addresses, failures)

    def _forgetting(self, on_lost: Lost) -> Lost:
        def lost(connection: Connection, error: KafkaError) -> None:
            self._open.pop(connection, None)
            on_lost(connection, error)

        return lost

    async def _open_socket(self, make: Callable[[], Connection], address: Address) -> Connection:
        _, connection = await self._loop.create_connection(make, address.host, address.port, family=address.family)
        return connection

    async def _open_tls(
        self,
        make: Callable[[], Connection],
        address: Address,
        node: Node,
        context: ssl.SSLContext,
        progress: _Progress,
    ) -> Connection:
        """A connection over TLS to a broker that has proved to be the one that was meant, by the name that it advertises."""
        host = node.host.rstrip(".")
        opened = socket.socket(address.family, socket.SOCK_STREAM)
        try:
            opened.setblocking(False)
            await self._loop.sock_connect(opened, (address.host, address.port))
        except BaseException:
            opened.close()
            raise
        progress.stage = "it took the connection and did not agree on TLS; is this a listener with TLS?"
        beneath, _ = await self._loop.create_connection(asyncio.Protocol, sock=opened)
        connection = make()
        try:
            transport = await self._loop.start_tls(
                beneath, connection, context, server_hostname=host, ssl_handshake_timeout=_NEVER_S
            )
        except BaseException as error:
            beneath.abort()
            if isinstance(error, OSError) and not isinstance(error, TimeoutError):
                raise explain_tls_failure(node, host, error) from error
            if isinstance(error, TypeError | ValueError):  # a name with NUL, say, which a broker advertises
                raise BrokerConnectionError(f"Broker {node} has no name that a certificate can be for.") from error
            raise
        assert transport is not None  # only if the connection was lost, which raises
        connection.above(beneath, transport)
        return connection

    async def _agree(self, node: Node, connection: Connection, cluster_id: str | None) -> Established:
        """What the peer speaks; where it does not, an error that says who seems to be there instead."""
        try:
            return await self._negotiate(connection, cluster_id, node.id)
        except BrokerConnectionError as error:
            if isinstance(error.__cause__, ssl.SSLError):
                # From TLS 1.3 on a broker looks at the client's certificate when the client takes itself for connected.
                raise explain_tls_failure(node, node.host, error.__cause__) from error
            raise self._guessed(connection, error) from error
        except ProtocolError as error:
            raise self._guessed(connection, error) from error

    def _guessed(self, connection: Connection, error: KafkaError) -> KafkaError:
        if not (connection.hung_up or connection.first_bytes):
            return error
        guess = guess_stranger(connection.first_bytes, uses_tls=self._tls is not None)
        return error if guess is None else BrokerConnectionError(f"Broker {connection.name} {guess}")

    async def _negotiate(self, connection: Connection, cluster_id: str | None, node_id: int) -> Established:
        """Ask for the versions, with an older question where the broker does not understand ours (KIP-511).

        This comes before the login, and the broker answers it to everybody. The newest question is only good for the check,
        and costs another round where the broker does not know it: so it is asked only where there is something to check, and
        somebody who can.
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
        done: asyncio.Future[Answer[bytes]] = self._loop.create_future()
        connection.send(question, version, partial(settle, done), self._config.request_timeout_ms / 1000, read=_body)
        answer = await done
        if isinstance(answer, KafkaError):
            raise answer
        assert answer is not WRITTEN
        return answer


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


def _body(_version: int, body: bytes) -> bytes:
    return bytes(body)


# Producers without TLS or a login need neither: both take 6 ms to be imported, which happens before anything is connected.


def _tls_contexts(config: ProducerConfig) -> TlsContexts:
    from aioproducer.net.security.tls import TlsContexts

    return TlsContexts(config)


def _login(config: ProducerConfig, random: Random) -> Login:
    from aioproducer.net.security.login import Login

    return Login(config, random)


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
    return Established(connection, versions, response.throttle_time_ms / 1000)


def _unreached(node: Node, addresses: Sequence[Address], failures: Sequence[OSError]) -> KafkaError:
    """Why none of the addresses could be connected; what is wrong with a certificate says more than a closed port."""
    explained = [error for error in failures if isinstance(error, BrokerConnectionError)]
    if explained:
        return next((error for error in explained if isinstance(error, AuthenticationError)), explained[-1])
    reasons = [_reason(error) for error in failures]
    if len(set(reasons)) > 1:
        why = "; ".join(f"{address}: {reason}" for address, reason in zip(addresses, reasons, strict=True))
    else:
        where = ", ".join(map(str, addresses))
        why = reasons[0] if where == f"{node.host}:{node.port}" else f"{reasons[0]} ({where})"
    error = BrokerConnectionError(f"Could not connect to broker {node}: {why}.")
    error.__cause__ = failures[-1]
    return error


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer to the attempt to connect"
    if error.errno is not None and error.errno > 0:  # asyncio's text is the address once more
        return os.strerror(error.errno)
    return error.strerror or str(error)
