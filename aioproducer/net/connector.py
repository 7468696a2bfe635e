"""Sets up a connection to a broker: the addresses of its name, a socket, TLS, and the API versions."""

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
from aioproducer.metrics.producer import ProducerMetrics
from aioproducer.net.addresses import Address, Resolver
from aioproducer.net.connection import WRITTEN, Answer, Connection, settle
from aioproducer.net.security.strangers import guess_stranger
from aioproducer.net.security.tls_failures import explain_tls_failure
from aioproducer.net.versions import BrokerVersions, version_to_retry
from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.error_codes import ErrorCode, broker_error
from aioproducer.protocol.messages import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest
from aioproducer.runtime.log import ClientLog

if TYPE_CHECKING:
    from aioproducer.config import Secret
    from aioproducer.core.sasl.conversation import Conversation
    from aioproducer.net.proxy import ProxyDialer
    from aioproducer.net.security.login import Login
    from aioproducer.net.security.tls import TlsContexts

__all__ = ["Connect", "Connector", "Established"]

_SOFTWARE_NAME = "aioproducer"
_FIRST_VERSION_WITH_CHECK = 5

#: asyncio's own limit for the handshake; the limit of the whole attempt is reached first.
_NEVER_S = 86_400.0

#: Opens a connection to an address: (make the protocol, where) -> the protocol, connected.
Connect: TypeAlias = Callable[[Callable[[], Connection], Address], Awaitable[Connection]]

Lost: TypeAlias = Callable[[Connection, KafkaError], object]


class Established(NamedTuple):
    """A connection that is ready for requests, and the API versions that it speaks."""

    connection: Connection
    versions: BrokerVersions
    throttle_s: float
    session_s: float = 0.0  # how long the login is valid (KIP-368); 0: as long as the connection is open


class Connector:
    """Opens connections, and keeps track of the open ones."""

    def __init__(
        self,
        config: ProducerConfig,
        client_id: str,
        random: Random,
        connect: Connect | None = None,
        log: ClientLog | None = None,
        metrics: ProducerMetrics | None = None,
    ) -> None:
        log = log or ClientLog(client_id)
        self.metrics = metrics or ProducerMetrics()
        self._config = config
        self._client_id = client_id
        self._connect = connect or self._open_socket
        self._tls = _tls_contexts(config, log) if config.uses_tls else None
        self._login = _login(config, random, log) if config.uses_sasl else None
        self._loop = asyncio.get_running_loop()
        self._resolver = Resolver()
        self._proxy = None if config.proxy is None else _proxy(config.proxy, self._resolver)
        self._open: dict[Connection, None] = {}
        self._can_check = False  # whether the last broker connected is new enough

    async def connect(
        self, node: Node, attempt: int, limit_s: float, on_lost: Lost, cluster_id: str | None = None
    ) -> Established:
        """Return a connection to the broker that is ready to be used, within ``limit_s`` seconds.

        A name's addresses are tried in turn; each ``attempt`` begins with another one. With a ``cluster_id``, brokers
        from Kafka 4.4 on check that they are the intended ones. ``on_lost(connection, error)`` is called when the
        connection ends. Raises `BrokerConnectionError`, `ProtocolError`, `BrokerError`, and `UnsupportedVersion` for a
        peer that does not serve metadata, such as a KRaft controller. Cancellation: closes what was opened.
        """
        progress = _Progress()
        try:
            async with asyncio.timeout(limit_s) as limit:
                addresses = await self._addresses(node)
                first = attempt % len(addresses)
                progress.stage = f"nothing accepts connections at {', '.join(map(str, addresses))}"
                until = limit.when() or self._loop.time()
                context = None if self._tls is None else await self._tls.fresh()
                await self._reach(node, addresses[first:] + addresses[:first], until, on_lost, progress, context)
                progress.stage = "it accepted the connection but did not answer ApiVersions; is this Kafka?"
                established = await self._agree(node, progress.reached(), cluster_id)
                if self._login is not None:
                    progress.stage = f"the {self._config.sasl_mechanism} login did not complete"
                    established = await self._log_in(self._login, node, established)
                established.connection.ready()
                return established
        except BaseException as error:
            late = isinstance(error, TimeoutError)
            end = "" if progress.stage.endswith("?") else "."
            why = f"Could not connect to broker {node} within {limit_s:.3g} s: {progress.stage}{end}"
            gone = BrokerConnectionError(why if late else f"The attempt to connect to broker {node} was abandoned.")
            progress.abort(gone)
            if late:
                raise gone from error
            raise

    async def _addresses(self, node: Node) -> list[Address]:
        if self._proxy is not None:
            return await self._proxy.resolve(node)
        return await self._resolver.resolve(node.host, node.port)

    async def _log_in(self, login: Login, node: Node, established: Established) -> Established:
        connection = established.connection
        # A proxy on this machine is not the other end: what it sends on may be intercepted.
        if self._tls is None and (self._proxy is not None or not connection.is_local):
            login.refuse_in_the_clear(node)
        conversation = await login.prepare(node)
        session_s = await login.hold(conversation, connection, established.versions)
        return established._replace(session_s=session_s)

    async def prepare_login(self, node: Node) -> Conversation:
        """Fetch the credentials for another login; no request waits for it. Raises like `Login.prepare`."""
        assert self._login is not None
        return await self._login.prepare(node)

    async def log_in_again(self, node: Node, established: Established, conversation: Conversation) -> float:
        """Log in again on a connection that is in use (KIP-368); its other requests are held during the login.

        Returns how many seconds the login is valid. Raises like `connect`. After an error or a cancellation the
        connection cannot be used any more.
        """
        assert self._login is not None
        connection = established.connection
        connection.hold()
        try:
            session_s = await self._login.hold(conversation, connection, established.versions)
        except BaseException as error:
            # Before the held requests are sent: the broker would not understand them in the middle of a login.
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

        Cancellation: they are ended anyway.
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
        """Connect to the first address that accepts. Each gets a share of the time, because one may never answer."""
        metrics = self.metrics.broker(node.id)
        most_in_flight = self._config.max_in_flight_requests_per_connection

        def make() -> Connection:
            connection = Connection(str(node), self._client_id, self._forgetting(on_lost), metrics, most_in_flight)
            progress.connection = connection
            self._open[connection] = None
            return connection

        failures: list[OSError] = []
        for tried, address in enumerate(addresses, start=1):
            now = self._loop.time()
            share = (until - now) / (len(addresses) - tried + 1)
            try:
                async with asyncio.timeout(share if tried < len(addresses) else None):
                    through = None
                    if self._proxy is not None:
                        through = await self._proxy.open(node, address, now + share, progress.enter)
                    if context is not None:
                        opened = through or await self._open_beneath(address)
                        connection = await self._negotiate_tls(make, opened, node, context, progress)
                    elif through is not None:
                        _, connection = await self._loop.create_connection(make, sock=through)
                    else:
                        connection = await self._connect(make, address)
                    connection.configure_socket(self._config.send_buffer_bytes, self._config.receive_buffer_bytes)
                    return
            except OSError as error:
                progress.abort(BrokerConnectionError(f"The attempt to connect to {address} was abandoned."))
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

    async def _open_beneath(self, address: Address) -> socket.socket:
        """Open the socket for a TLS connection."""
        opened = socket.socket(address.family, socket.SOCK_STREAM)
        try:
            opened.setblocking(False)
            await self._loop.sock_connect(opened, (address.host, address.port))
        except BaseException:
            opened.close()
            raise
        return opened

    async def _negotiate_tls(
        self,
        make: Callable[[], Connection],
        opened: socket.socket,
        node: Node,
        context: ssl.SSLContext,
        progress: _Progress,
    ) -> Connection:
        """Negotiate TLS with the broker, whose certificate must match the host name that it advertises."""
        host = node.host.rstrip(".")
        progress.stage = "it accepted the connection but did not negotiate TLS; is this a listener with TLS?"
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
            if isinstance(error, TypeError | ValueError):  # the broker advertises an invalid name, for example with NUL
                raise BrokerConnectionError(
                    f"Broker {node} has an invalid host name, for which no certificate can be valid."
                ) from error
            raise
        assert transport is not None  # None only if the connection was lost, which raises
        connection.tls_negotiated(beneath, transport)
        return connection

    async def _agree(self, node: Node, connection: Connection, cluster_id: str | None) -> Established:
        """Return the versions that the peer supports; if it is not a broker, the error says what it seems to be."""
        try:
            return await self._negotiate(connection, cluster_id, node.id)
        except BrokerConnectionError as error:
            if isinstance(error.__cause__, ssl.SSLError):
                # From TLS 1.3 on a broker checks the client's certificate after the client regards itself as connected.
                raise explain_tls_failure(node, node.host, error.__cause__) from error
            guess = self._guess(connection)
            if guess is None:
                raise
            raise guess from error
        except ProtocolError as error:
            guess = self._guess(connection)
            if guess is None:
                raise
            raise guess from error

    def _guess(self, connection: Connection) -> BrokerConnectionError | None:
        if not (connection.hung_up or connection.first_bytes):
            return None
        guess = guess_stranger(connection.first_bytes, uses_tls=self._tls is not None)
        return None if guess is None else BrokerConnectionError(f"Broker {connection.name} {guess}")

    async def _negotiate(self, connection: Connection, cluster_id: str | None, node_id: int) -> Established:
        """Ask for the versions, with an older request if the broker does not understand ours (KIP-511).

        This happens before the login; the broker answers it without authentication. The newest version only adds the
        check of the cluster id, and costs another round trip if the broker does not know it: so it is used only if
        there is a cluster id to check and the last broker supported it.
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
    """The progress of an attempt, for its error message and for cleaning up."""

    def __init__(self) -> None:
        self.stage = "its name was not resolved"
        self.connection: Connection | None = None

    def enter(self, stage: str) -> None:
        """Remember the failure to report if the time ends now."""
        self.stage = stage

    def reached(self) -> Connection:
        """Return the connection; only called when there is one."""
        assert self.connection is not None
        return self.connection

    def abort(self, error: KafkaError) -> None:
        """Close what was opened, if anything was."""
        if self.connection is not None:
            self.connection.abort(error)


def _body(_version: int, body: bytes) -> bytes:
    return bytes(body)


# Most producers need none of these: importing TLS and the login takes 6 ms before the first connection.


def _tls_contexts(config: ProducerConfig, log: ClientLog) -> TlsContexts:
    from aioproducer.net.security.tls import TlsContexts

    return TlsContexts(config, log)


def _login(config: ProducerConfig, random: Random, log: ClientLog) -> Login:
    from aioproducer.net.security.login import Login

    return Login(config, random, log)


def _proxy(url: Secret, resolver: Resolver) -> ProxyDialer:
    from aioproducer.net.proxy import ProxyDialer

    return ProxyDialer(url, resolver)


def _established(connection: Connection, version: int, body: bytes) -> Established:
    try:
        response = ApiVersionsResponse.decode(version, body)
    except ProtocolError as error:
        raise ProtocolError(
            f"Broker {connection.name} sent an answer to ApiVersions v{version} that cannot be read: {error}"
        ) from error
    if response.error_code != ErrorCode.NONE:
        raise broker_error(
            response.error_code, f"broker {connection.name} refused ApiVersions v{version}, the first request."
        )
    versions = BrokerVersions.of(response)
    versions.best(MetadataRequest, connection.name)  # KRaft controllers do not serve metadata
    return Established(connection, versions, response.throttle_time_ms / 1000)


def _unreached(node: Node, addresses: Sequence[Address], failures: Sequence[OSError]) -> KafkaError:
    """Return why no address could be connected; a certificate failure says more than a closed port."""
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
        return "the connection attempt timed out"
    if error.errno is not None and error.errno > 0:  # asyncio's text only repeats the address
        return os.strerror(error.errno)
    return error.strerror or str(error)
