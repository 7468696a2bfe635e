"""The known brokers: connects to them, chooses among them, and returns to the bootstrap servers.

Each broker is connected in its own task, so one that hangs (in a look-up, in connecting, in the handshake) does not delay
the others. If any broker is acceptable, they are tried one after the other: the next one when the last has failed, or has
not connected within a moment.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from math import inf
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import anyio
import anyio.abc

from aioproducer.config import ProducerConfig
from aioproducer.core.backoff import ExponentialBackoff
from aioproducer.core.cluster import ClusterMetadata, Node
from aioproducer.core.failed_attempt import FailedAttempt
from aioproducer.errors import AuthenticationError, BrokerConnectionError, BrokerError, KafkaError
from aioproducer.net.addresses import Resolver
from aioproducer.net.broker import Broker
from aioproducer.net.connection import Connection
from aioproducer.net.connector import Connector, Established
from aioproducer.net.security.tls_failures import HostRefused
from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.runtime.log import ClientLog

if TYPE_CHECKING:
    from aioproducer.core.sasl.conversation import Conversation
from aioproducer.runtime.start_soon import in_asyncio, start_soon

__all__ = ["Brokers"]

#: How long to wait for one broker before another one is tried as well, in seconds (as in RFC 8305).
_A_MOMENT_S = 0.25

#: The fraction of a session after which the next login is due, and its random variation.
_LOG_IN_AFTER, _LOG_IN_WITHIN = 0.85, 0.1

#: The fraction of a session after which it is too late for another attempt to get the credentials of the next login.
_GIVE_UP_AFTER = 0.97

#: Brokers do not accept two logins within a second.
_LEAST_SESSION_S = 1.05

#: When this many brokers refuse the credentials, the cluster refuses them.
_ENOUGH_REFUSALS = 3

#: The shortest pause, whatever is configured: a shorter one would keep the processor busy with failures.
_LEAST_PAUSE_S = 0.005

#: The shortest time between two checks for idle connections, in seconds.
_LEAST_TIDY_S = 0.001


class _Session(NamedTuple):
    """The validity of a login (KIP-368), in the event loop's time."""

    give_up_at: float
    ends_at: float


class Brokers:
    """The brokers of the cluster, or the bootstrap servers, with negative ids, while no cluster is known.

    ``on_change()`` is called when a connection opens or closes, or can take a request again; ``on_failure()`` when one
    failed, so that the metadata may be out of date.
    """

    def __init__(
        self,
        config: ProducerConfig,
        metadata: ClusterMetadata,
        connector: Connector,
        random: Random,
        *,
        log: ClientLog,
        on_change: Callable[[], object],
        on_failure: Callable[[], object],
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._connector = connector
        self._random = random
        self._log = log
        self._on_change = on_change
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._known: dict[int, Broker] = {}
        self._tasks: anyio.abc.TaskGroup | None = None
        self._next_try_at = 0.0
        self._max_in_flight = config.max_in_flight_requests_per_connection
        self._resolver = Resolver()
        self._wants_canonical_names = config.client_dns_lookup == "resolve_canonical_bootstrap_servers_only"
        self._aliases: set[Broker] = set()  # bootstrap servers whose names stand for several servers
        self._may_rebootstrap = config.metadata_recovery_strategy == "rebootstrap"
        self._checks_cluster = self._may_rebootstrap and config.metadata_cluster_check_enable
        self._next_rebootstrap_at = 0.0
        self._long_s = config.reconnect_backoff_max_ms / 1000
        self._long_login_s = config.socket_connection_setup_timeout_max_ms / 1000
        self._reconnect = ExponentialBackoff(config.reconnect_backoff_ms / 1000, self._long_s)
        self._setup = ExponentialBackoff(
            config.socket_connection_setup_timeout_ms / 1000, config.socket_connection_setup_timeout_max_ms / 1000
        )
        self._bootstrap()

    # -- queries ------------------------------------------------------------------------------------------------------

    def get(self, node_id: int) -> Broker | None:
        """The broker with this id, None if the cluster has none."""
        broker = self._known.get(node_id)
        if broker is not None and not broker.retired:
            return broker
        node = self._metadata.nodes.get(node_id)
        if node is None:
            return None
        if broker is None:
            broker = self._known[node_id] = Broker(node)
        broker.retired = False
        return broker

    def known(self, node_id: int) -> Broker | None:
        """The broker with this id, if it was ever used."""
        return self._known.get(node_id)

    def connected(self) -> list[Broker]:
        """The connected brokers, including bootstrap servers; may be called in any thread."""
        return [broker for broker in list(self._known.values()) if broker.is_connected]

    def has_room(self, broker: Broker) -> bool:
        """Whether it can take a request now."""
        connection = broker.connection
        return (
            connection is not None
            and not broker.is_throttled
            and not connection.is_held
            and connection.in_flight < self._max_in_flight
        )

    def least_loaded(self) -> Broker | None:
        """The broker that can take a request now and has the fewest in flight; None if none can."""
        able = [broker for broker in self._known.values() if self.has_room(broker) and not broker.retired]
        return min(able, key=lambda broker: broker.in_flight, default=None)

    @property
    def failed_last(self) -> Broker | None:
        """The broker with the latest error, of those that have not answered since."""
        failed = [broker for broker in self._known.values() if broker.error is not None]
        return max(failed, key=lambda broker: broker.failed_at, default=None)

    @property
    def last_failure(self) -> FailedAttempt | None:
        """The last error of a broker that has not answered since."""
        failed = self.failed_last
        if failed is None or (error := failed.error) is None:  # read once, because any thread may ask
            return None
        return FailedAttempt(error, failed.node.id if failed.node.id >= 0 else None, failed.failed_at)

    def refusal(self, since: float, broker: Broker | None = None) -> AuthenticationError | None:
        """Why waiting longer will not help: this broker, in an attempt that began at ``since`` or later, refused us.

        If any broker is acceptable, all must have failed, or several refused: credentials are the same for the cluster. The
        next attempt may be in progress already: a caller that needs a broker begins one as soon as the last has ended.
        """
        if broker is not None:
            asked = [broker]
        elif any(each.is_connected for each in self._known.values()):
            return None
        else:
            asked = [each for each in self._known.values() if not each.retired]
        failed = [
            each
            for each in asked
            if not each.is_connected and each.error is not None and each.failed_attempt_at >= since
        ]
        refused = [each for each in failed if isinstance(each.error, AuthenticationError)]
        of_cluster = [each for each in refused if not isinstance(each.error, HostRefused)]
        if not refused or (len(failed) < len(asked) and len(of_cluster) < _ENOUGH_REFUSALS):
            return None
        cause = max(refused, key=lambda each: each.failed_at).error
        error = AuthenticationError(str(cause))
        error.__cause__ = cause
        return error

    # -- connecting ---------------------------------------------------------------------------------------------------

    def run_in(self, tasks: anyio.abc.TaskGroup | None) -> None:
        """Connect in this task group from now on; None: stop connecting."""
        self._tasks = tasks

    def connect(self, broker: Broker) -> None:
        """Begin to connect this broker, when the pause after its last failure is over; does not wait."""
        if broker.attempt is not None or broker.is_connected or self._tasks is None:
            return
        if (
            self._tasks.cancel_scope.cancel_called
        ):  # by an error; anyio does not always cancel tasks that are added later
            return
        broker.attempt = scope = in_asyncio(anyio.CancelScope)
        broker.attempt_at = max(self._loop.time(), broker.retry_at)
        broker.attempts += 1
        start_soon(self._tasks, self._connect, broker, scope, name=f"aioproducer connect {broker.node}")

    def connect_any(self, now: float) -> float:
        """Begin to connect to any one broker; returns when to try again (infinity: on a change)."""
        for node_id in self._metadata.nodes:
            self.get(node_id)
        if self._is_cut_off():
            self._log.debug("No known broker can be reached; falling back to the bootstrap servers.")
            self._bootstrap()
        apart = [broker for broker in self._known.values() if not broker.is_connected and not broker.retired]
        begun = max(
            (broker.attempt_at for broker in apart if broker.attempt and broker.attempt_at <= now), default=-inf
        )
        if now < begun + _A_MOMENT_S:
            return begun + _A_MOMENT_S
        idle = [broker for broker in apart if broker.attempt is None]
        rested = [broker for broker in idle if broker.retry_at <= now]
        if not rested:
            return min((broker.retry_at for broker in idle), default=inf)
        broker = min(rested, key=lambda broker: (broker.failures, self._random.random()))
        if broker.failures:  # not all brokers of a large cluster at once, repeatedly
            if now < self._next_try_at:
                return self._next_try_at
            self._next_try_at = now + self._reconnect.initial_s
        self.connect(broker)
        return now + _A_MOMENT_S

    async def _connect(self, broker: Broker, scope: anyio.CancelScope) -> None:
        """Make one attempt to connect, not before ``retry_at``; ``scope`` cancels it. A failure is recorded, not raised."""
        try:
            with scope:
                await asyncio.sleep(max(0.0, broker.retry_at - self._loop.time()))
                limit_s = self._setup.delay(broker.failures, self._random.random())
                if broker in self._aliases:
                    await self._resolve_canonical_names(broker, limit_s)
                    return
                established = await self._connector.connect(
                    broker.node,
                    broker.attempts - 1,
                    limit_s,
                    lambda connection, error: self._lost(broker, connection, error),
                    self._metadata.cluster_id if self._checks_cluster and broker.node.id >= 0 else None,
                )
                connection = established.connection
                if scope.cancel_called:
                    connection.abort(BrokerConnectionError(f"Broker {broker.node} is not needed any more."))
                elif connection.error is not None:
                    raise connection.error
                else:
                    broker.opened(established, self._loop.time())
                    self._expect_login(broker, established, established.session_s)
                    self._metadata.unreachable.discard(broker.node.id)
                    if established.throttle_s > 0:
                        self.throttle(broker, established.throttle_s)
        except KafkaError as error:
            self._failed(broker, error)
        except asyncio.CancelledError:
            # The scope recognises only anyio's own exception, and a credential callback may replace it. It must not leave
            # this task: the task group would take it for a cancellation from outside, and end.
            if not scope.cancel_called:
                raise
        finally:
            broker.attempt = None
            self._on_change()

    def _expect_login(self, broker: Broker, established: Established, session_s: float) -> None:
        """Log in again before the session ends (KIP-368): at 85 to 95 % of it, like Java."""
        if session_s <= 0:
            return
        now = self._loop.time()
        part = _LOG_IN_AFTER + _LOG_IN_WITHIN * self._random.random()
        due = now + max(session_s * part, _LEAST_SESSION_S)
        session = _Session(now + session_s * _GIVE_UP_AFTER, now + session_s)

        def log_in() -> None:
            tasks = self._tasks
            if tasks is not None and not tasks.cancel_scope.cancel_called:
                start_soon(tasks, self._log_in, broker, established, session, name=f"aioproducer log in {broker.node}")

        broker.log_in_at(due, self._loop, log_in)

    async def _log_in(self, broker: Broker, established: Established, session: _Session) -> None:
        """Log in on an open connection. If that fails, the connection is closed, and the next one reports the error."""
        connection, used = established.connection, established.connection.last_used
        conversation = await self._prepare_login(broker, connection, session)
        if conversation is None:
            return
        try:
            async with asyncio.timeout(self._long_login_s):
                session_s = await self._connector.log_in_again(broker.node, established, conversation)
        except TimeoutError:
            connection.abort(
                BrokerConnectionError(f"The login to broker {broker.node} could not be renewed: it took too long.")
            )
        except KafkaError as error:
            connection.abort(BrokerConnectionError(f"The login to broker {broker.node} could not be renewed: {error}"))
        else:
            self._log.debug(
                "The %s login to broker %s was renewed.",
                self._config.sasl_mechanism,
                broker.node,
                extra=broker.log_fields,
            )
            if not connection.in_flight:
                connection.last_used = used  # a login does not count as use of the connection
            self._expect_login(broker, established, session_s)
        self._on_change()

    async def _prepare_login(self, broker: Broker, connection: Connection, session: _Session) -> Conversation | None:
        """Get the credentials of the next login; their provider may fail as long as the session lasts.

        None if the connection is lost. When the session is about to end, the connection is closed as soon as all requests in
        flight are answered: the broker would answer no later ones.
        """
        failures = 0
        while broker.connection is connection:
            now = self._loop.time()
            try:
                async with asyncio.timeout_at(max(session.give_up_at, now + _A_MOMENT_S)):
                    return await self._connector.prepare_login(broker.node)
            except TimeoutError:
                why: str = "the credentials were not provided in time."
            except KafkaError as error:
                why = str(error)
            pause = max(self._reconnect.delay(failures, self._random.random()), _LEAST_PAUSE_S)
            failures += 1
            if self._loop.time() + pause >= session.give_up_at:
                gone = BrokerConnectionError(f"The login to broker {broker.node} could not be renewed: {why}")
                await connection.abort_when_idle(session.ends_at, gone)
                return None
            level = logging.DEBUG if failures > 1 else logging.WARNING
            self._log.log(
                level,
                "The login to broker %s could not be renewed yet, and this will be retried: %s",
                broker.node,
                why,
                extra=broker.log_fields,
            )
            await asyncio.sleep(pause)
        return None

    def _failed(self, broker: Broker, error: KafkaError) -> None:
        self._log.debug("%s", error, extra=broker.log_fields)
        broker.failed(error, self._loop.time())
        self._metadata.unreachable.add(broker.node.id)
        self._rest(broker)
        self._on_failure()
        if isinstance(error, BrokerError) and error.code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._misrouted(broker)

    def _misrouted(self, broker: Broker) -> None:
        """Another broker, or another cluster, answers at this one's address (KIP-1242): no known metadata can be trusted.

        The bootstrap servers may return the same address again, and each attempt closes all connections: so limit them.
        """
        now = self._loop.time()
        if now >= self._next_rebootstrap_at:
            self._next_rebootstrap_at = now + self._long_s
            self.rebootstrap(f"the server at the address of broker {broker.node} is not that broker.")

    def _lost(self, broker: Broker, connection: Connection, error: KafkaError) -> None:
        if broker.connection is not connection:
            return  # it was never used, or it was closed on purpose
        if connection.hung_up and connection.answers <= 1 and not self._config.uses_sasl:
            error = BrokerConnectionError(
                f"Broker {broker.node} closed the connection at the first request after ApiVersions: does it require a "
                f"login (security_protocol SASL_PLAINTEXT or SASL_SSL)?"
            )
        # The first one since the broker answered; the reports of an outage cover those that follow.
        level = logging.WARNING if connection.fell_silent and broker.error is None else logging.DEBUG
        self._log.log(level, "%s", error, extra=broker.log_fields)
        broker.lost(error, self._loop.time(), self._long_s)
        self._rest(broker)
        self._on_failure()
        self._on_change()

    def _rest(self, broker: Broker) -> None:
        pause = self._reconnect.delay(broker.failures - 1, self._random.random())
        broker.retry_at = self._loop.time() + max(pause, _LEAST_PAUSE_S)

    def throttle(self, broker: Broker, seconds: float) -> None:
        """Send it nothing for this time."""
        broker.throttle(seconds, self._loop, self._on_change)

    # -- the cluster --------------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Close brokers that left or moved, according to the metadata, and the bootstrap servers."""
        nodes = self._metadata.nodes
        if not nodes:
            return
        for broker in list(self._known.values()):
            node = nodes.get(broker.node.id)
            if node is not None and node.address == broker.node.address:
                broker.node = node
                broker.retired = False
            elif node is not None:
                self.drop(broker, f"Broker {broker.node} has moved to {node}.")
            elif (same := self._at_the_address_of(broker)) is not None:
                self._adopt(broker, same)
            elif broker.in_flight:
                broker.retired = True  # until they are answered: the answers count
            else:
                self.drop(broker, f"Broker {broker.node} has left the cluster.")

    def _at_the_address_of(self, broker: Broker) -> Node | None:
        """The node that a connected bootstrap server is, if that is unambiguous."""
        if broker.node.id >= 0 or not broker.is_connected:
            return None
        same = [node for node in self._metadata.nodes.values() if node.address == broker.node.address]
        if len(same) != 1:
            return None
        rival = self._known.get(same[0].id)
        return None if rival is not None and rival.is_connected else same[0]

    def _adopt(self, broker: Broker, node: Node) -> None:
        """Use the connection to a bootstrap server as the connection to its node."""
        rival = self._known.get(node.id)
        if rival is not None:
            self.drop(rival, f"Broker {node} is connected as a bootstrap server.")
        bootstrap_id, broker.node = broker.node.id, node
        self._known[node.id] = self._known.pop(bootstrap_id)
        if broker.connection is not None:
            broker.connection.name = str(node)
            broker.connection.metrics = self._connector.metrics.adopt(bootstrap_id, node.id)

    def drop(self, broker: Broker, why: str) -> None:
        """Close its connection and forget it."""
        if self._known.get(broker.node.id) is broker:
            del self._known[broker.node.id]
        broker.close(BrokerConnectionError(why))

    def _is_cut_off(self) -> bool:
        """Whether all known brokers have failed, so that the cluster must have moved (KIP-899).

        A broker that is only busy, throttled or being connected is a reason to wait.
        """
        return (
            self._may_rebootstrap
            and bool(self._metadata.nodes)
            and all(broker.unreachable and broker.node.id >= 0 for broker in self._known.values() if not broker.retired)
            and not any(broker.is_connected for broker in self._known.values())
        )

    def _bootstrap(self) -> None:
        """Add the servers that the user named, in random order; their names are resolved when they are connected."""
        addresses = list(self._config.bootstrap_addresses)
        self._random.shuffle(addresses)
        for number, (host, port) in enumerate(addresses, start=1):
            self._known[-number] = Broker(Node(-number, host, port))
        if self._wants_canonical_names:
            self._aliases = {self._known[-number] for number in range(1, len(addresses) + 1)}

    async def _resolve_canonical_names(self, broker: Broker, limit_s: float) -> None:
        """Replace a bootstrap server's name by the canonical names behind it, which certificates may be for."""
        node = broker.node
        try:
            async with asyncio.timeout(limit_s):
                names = await self._resolver.canonical_names(node.host, node.port)
        except TimeoutError as error:
            raise BrokerConnectionError(
                f"The canonical names of broker {node} were not resolved within {limit_s:.3g} s."
            ) from error
        self._aliases.discard(broker)
        if self._known.get(node.id) is not broker:
            return
        del self._known[node.id]
        known = {other.node.address for other in self._known.values() if other not in self._aliases}
        for name in names:
            if (name, node.port) not in known:
                number = min([0, *self._known]) - 1
                self._known[number] = Broker(Node(number, name, node.port))

    def rebootstrap(self, why: str) -> None:
        """Forget all brokers, and begin again with the bootstrap servers (KIP-1102)."""
        self._log.warning("Bootstrapping again: %s", why)
        known, self._known = self._known, {}
        self._metadata.forget_nodes()
        self._bootstrap()
        for broker in known.values():
            broker.close(BrokerConnectionError(f"The connection to broker {broker.node} was given up: {why}"))
        self._on_change()

    # -- the end ------------------------------------------------------------------------------------------------------

    async def close_idle_connections(self) -> None:
        """Close idle connections, until cancelled."""
        idle_s = self._config.connections_max_idle_ms / 1000
        while idle_s >= 0:
            now = self._loop.time()
            await asyncio.sleep(max(self._close_idle(now, idle_s) - now, _LEAST_TIDY_S))

    def _close_idle(self, now: float, idle_s: float) -> float:
        """Close the connections that were idle for this time; returns when another one may be."""
        look_again = now + idle_s  # a busy or a new connection cannot be idle long enough before
        for broker in list(self._known.values()):
            connection = broker.connection
            if connection is None or connection.in_flight:
                continue
            if connection.last_used + idle_s <= now:
                broker.disconnect(BrokerConnectionError(f"The connection to broker {broker.node} was idle."))
            else:
                look_again = min(look_again, connection.last_used + idle_s)
        return look_again

    def close(self, error: KafkaError) -> None:
        """Close all connections, and open none any more."""
        self._tasks = None
        known, self._known = self._known, {}
        for broker in known.values():
            broker.close(error)
