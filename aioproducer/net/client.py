"""The cluster as the Sender sees it: a connection to each broker, who can take a request now, and fresh metadata.

Nothing here blocks anything else. Each broker is connected in a task of its own; a name that does not resolve, a port
that does not answer or a handshake that hangs costs only the requests for that broker. What others wait for - a
connection, a topic, room - is told through one event that wakes everybody who waits, and through ``on_ready``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

import anyio
import anyio.abc

from aioproducer.config import ProducerConfig
from aioproducer.core.backoff import ExponentialBackoff
from aioproducer.core.cluster import ClusterMetadata, Node, TopicMetadata
from aioproducer.errors import (
    AuthenticationError,
    BrokerConnectionError,
    InvalidRecord,
    KafkaError,
    KafkaTimeoutError,
    ProducerClosed,
    UnsupportedVersion,
)
from aioproducer.net.addresses import Address, resolve
from aioproducer.net.connection import Answered, Connection
from aioproducer.net.versions import BrokerVersions, version_to_retry
from aioproducer.protocol.error_codes import ErrorCode, broker_error
from aioproducer.protocol.message import Request, Response
from aioproducer.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

__all__ = ["NetworkClient"]

logger = logging.getLogger("aioproducer")

_SOFTWARE_NAME = "aioproducer"
_SOFTWARE_VERSION = "0.1.0"

#: What the answer to a question about a topic can say that no waiting will change.
_HOPELESS = frozenset({ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED})

_R = TypeVar("_R", bound=Response)

#: Opens a connection to an address: (make the protocol, where) -> the protocol, connected.
Connect = Callable[[Callable[[], Connection], Address], Any]


@dataclass(slots=True, eq=False)
class _Broker:
    """One broker: its connection, or the attempts to get one."""

    node: Node
    connection: Connection | None = None
    versions: BrokerVersions | None = None
    connecting: bool = False
    failures: int = 0
    retry_at: float = 0.0
    throttled_until: float = 0.0
    addresses_tried: int = field(default=0)

    @property
    def is_connected(self) -> bool:
        return self.connection is not None and self.versions is not None


class NetworkClient:
    """Connections to the brokers of one cluster, and what they tell of it.

    ``on_ready`` is called whenever something has become possible that was not: a connection, an answer, news.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        client_id: str,
        random: Random,
        on_ready: Callable[[], object],
        connect: Connect | None = None,
    ) -> None:
        self.metadata = ClusterMetadata()
        self.last_error: KafkaError | None = None
        self._config = config
        self._client_id = client_id
        self._random = random
        self._on_ready = on_ready
        self._connect = connect or self._open_socket
        self._loop = asyncio.get_running_loop()
        self._brokers: dict[int, _Broker] = {}
        self._closing: list[Connection] = []
        self._tasks: anyio.abc.TaskGroup | None = None
        self._closed = False
        self._changed = asyncio.Event()
        self._used: set[str] = set()
        self._questions = 0  # how many times the metadata were asked for
        self._answered: dict[str, int] = {}  # the last of these questions that was answered about a topic

        self._max_in_flight = config.max_in_flight_requests_per_connection
        self._request_timeout_s = config.request_timeout_ms / 1000
        self._reconnect = ExponentialBackoff(config.reconnect_backoff_ms / 1000, config.reconnect_backoff_max_ms / 1000)
        self._setup = ExponentialBackoff(
            config.socket_connection_setup_timeout_ms / 1000, config.socket_connection_setup_timeout_max_ms / 1000
        )
        self._retry = ExponentialBackoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000)

        self._update_wanted = asyncio.Event()
        self._update_not_before = 0.0
        self._updates_failed = 0
        self._updated_at = self._loop.time()
        self._bootstrap()

    # -- for the Sender: never waits ------------------------------------------------------------------------------------

    def can_send(self, node_id: int) -> bool:
        """Whether the broker can take a request now; if it is not connected, that is begun."""
        broker = self._brokers.get(node_id)
        if broker is None:
            node = self.metadata.nodes.get(node_id)
            if node is None:
                return False
            broker = self._brokers[node_id] = _Broker(node)
        connection = broker.connection
        if connection is None or broker.versions is None:
            self._begin_connecting(broker)
            return False
        if broker.throttled_until and self._loop.time() < broker.throttled_until:
            return False
        return connection.in_flight < self._max_in_flight

    def usable_version(self, node_id: int, request: type[Request[Any]]) -> int:
        """The highest version of a request that the broker and we speak; raises `UnsupportedVersion`."""
        broker = self._brokers[node_id]
        if broker.versions is None:
            raise UnsupportedVersion(f"Broker {broker.node} has not said yet what it speaks.")
        return broker.versions.best(request, str(broker.node))

    def finalized_feature(self, name: str) -> int:
        """The level of a feature of the cluster as the last connected broker told it, 0 where it has none."""
        for broker in self._brokers.values():
            if broker.versions is not None and name in broker.versions.features:
                return broker.versions.features[name]
        return 0

    def send(
        self,
        node_id: int,
        request: Request[Any],
        version: int,
        callback: Answered,
        timeout_s: float,
        expect_response: bool = True,
    ) -> None:
        """Send to a broker that `can_send`; the callback gets the response, an error, or None without a response."""
        broker = self._brokers[node_id]
        connection = broker.connection
        if connection is None:
            gone = BrokerConnectionError(f"The connection to broker {broker.node} is closed.")
            self._loop.call_soon(callback, gone)
            return

        def answered(answer: Any) -> None:
            self._heed_throttle(broker, answer)
            callback(answer)

        connection.send(request, version, answered, timeout_s, expect_response=expect_response)

    def request_update(self, topic: str | None = None) -> None:
        """Have the metadata asked for soon; a topic that is new does not wait for a backoff."""
        if topic is not None and self.metadata.touch(topic, self._loop.time()) and not self._updates_failed:
            self._update_not_before = 0.0
        self._update_wanted.set()

    def topic(self, name: str) -> TopicMetadata | None:
        """A topic whose partitions are known; keeps it from being forgotten."""
        self._used.add(name)
        return self.metadata.topics.get(name)

    def topic_error(self, name: str) -> KafkaError | None:
        """What the last answer said was wrong with a topic."""
        code = self.metadata.errors.get(name)
        return None if code is None else broker_error(code, f"topic {name!r}")

    def connected_nodes(self) -> list[int]:
        """The ids of the brokers that are connected."""
        return [node_id for node_id, broker in self._brokers.items() if broker.is_connected and node_id >= 0]

    def in_flight(self, node_id: int) -> int:
        """How many requests to a broker are not answered."""
        broker = self._brokers.get(node_id)
        return 0 if broker is None or broker.connection is None else broker.connection.in_flight

    # -- for those who wait -----------------------------------------------------------------------------------------------

    async def request(self, request: Request[_R], *, node_id: int | None = None, timeout_s: float | None = None) -> _R:
        """Ask a broker - the least busy one where none is named - and wait for its answer.

        Raises `BrokerConnectionError` where no answer came, `KafkaTimeoutError` where no broker could be asked in time,
        `UnsupportedVersion`. Cancellation: the answer is awaited by nobody.
        """
        timeout_s = self._request_timeout_s if timeout_s is None else timeout_s
        deadline = self._loop.time() + timeout_s
        while (broker := self._find(node_id)) is None:
            if not await self._wait_change(deadline):
                whom = "any broker" if node_id is None else f"broker {node_id}"
                raise KafkaTimeoutError(
                    f"{type(request).__name__} could not be sent: {whom} was not reached within {timeout_s:g} s."
                ) from self.last_error
        version = self.usable_version(broker.node.id, type(request))
        done: asyncio.Future[Any] = self._loop.create_future()
        self.send(broker.node.id, request, version, lambda answer: done.done() or done.set_result(answer), timeout_s)
        answer = await done
        if isinstance(answer, BaseException):
            raise answer
        return answer  # type: ignore[no-any-return]

    async def wait_topic(self, name: str, partition: int | None, deadline: float) -> TopicMetadata:
        """The topic, once its partitions - or this one of them - are known.

        Raises at once what waiting cannot change: `BrokerError` for a forbidden or impossible topic, `InvalidRecord` for
        a partition that a fresh answer does not have. Raises `KafkaTimeoutError` at the deadline (the event loop's time),
        with the last error as its cause. Cancellation: the topic is asked for all the same.
        """
        unknown_ms = self._config.unknown_topic_timeout_ms
        if unknown_ms is not None:
            deadline = min(deadline, self._loop.time() + unknown_ms / 1000)
        asked_before = self._questions
        while True:
            topic = self.topic(name)
            if topic is not None and (partition is None or partition < topic.partition_count):
                return topic
            error = self.metadata.errors.get(name)
            # The answer to a question of before may be older than what the caller knows.
            is_fresh = self._answered.get(name, 0) > asked_before
            if is_fresh and error in _HOPELESS and error is not None:
                raise broker_error(error, f"topic {name!r}")
            if is_fresh and topic is not None and error is None:
                raise InvalidRecord(
                    f"partition={partition}: topic {name!r} has {topic.partition_count} partition(s), "
                    f"0 to {topic.partition_count - 1}."
                )
            self.request_update(name)
            if not await self._wait_change(deadline):
                raise KafkaTimeoutError(f"Nobody told the partitions of topic {name!r} in time.") from (
                    self.last_error if error is None else broker_error(error)
                )

    async def wait_ready(self, deadline: float) -> None:
        """Wait until a broker is connected and has told the metadata.

        Raises `KafkaTimeoutError` at the deadline with the last error as its cause, `AuthenticationError` at once.
        Cancellation: nothing is undone.
        """
        self.request_update()
        while not (self.metadata.nodes and any(broker.is_connected for broker in self._brokers.values())):
            if isinstance(self.last_error, AuthenticationError):
                raise self.last_error
            if not await self._wait_change(deadline):
                why = f": {self.last_error}" if self.last_error is not None else "."
                servers = ", ".join(self._config.bootstrap_servers)
                raise KafkaTimeoutError(f"No broker of {servers} answered in time{why}") from self.last_error

    async def _wait_change(self, deadline: float) -> bool:
        """Wait until anything changes; answers False when it is too late."""
        if self._closed:
            raise ProducerClosed("The producer was closed.")
        changed = self._changed
        try:
            async with asyncio.timeout_at(deadline):
                await changed.wait()
        except TimeoutError:
            return False
        return True

    def _tell(self) -> None:
        """Something changed: wake everybody who waits."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        self._on_ready()

    # -- connecting ---------------------------------------------------------------------------------------------------

    def _bootstrap(self) -> None:
        """Begin, or begin again, with the addresses that the user gave, in random order (KIP-899)."""
        self._drop_all(BrokerConnectionError("The cluster is looked for again from the bootstrap servers."))
        addresses = list(self._config.bootstrap_addresses)
        self._random.shuffle(addresses)
        for number, (host, port) in enumerate(addresses, start=1):
            self._brokers[-number] = _Broker(Node(-number, host, port))

    def _drop_all(self, error: KafkaError) -> None:
        brokers, self._brokers = self._brokers, {}
        for broker in brokers.values():
            self._drop(broker, error)

    def _drop(self, broker: _Broker, error: KafkaError) -> None:
        connection, broker.connection = broker.connection, None
        if connection is not None:
            connection.abort(error)

    def _begin_connecting(self, broker: _Broker) -> None:
        if broker.connecting or self._tasks is None or self._closed:
            return
        broker.connecting = True
        self._tasks.start_soon(self._keep_connecting, broker, name=f"aioproducer connect {broker.node}")

    async def _keep_connecting(self, broker: _Broker) -> None:
        """One attempt, after the backoff of those before it."""
        try:
            await asyncio.sleep(broker.retry_at - self._loop.time())
            await self._set_up(broker)
        except (KafkaError, OSError) as error:
            self._failed(broker, error)
        else:
            broker.failures = 0
            broker.retry_at = 0.0
            self.last_error = None
        finally:
            broker.connecting = False
            self._tell()

    def _failed(self, broker: _Broker, error: KafkaError | OSError) -> None:
        if not isinstance(error, KafkaError):
            error = _as_connection_error(broker.node, error)
        self.last_error = error
        broker.retry_at = self._loop.time() + self._reconnect.delay(broker.failures, self._random.random())
        broker.failures += 1
        logger.debug("Broker %s: %s", broker.node, error)
        self.request_update()  # it may have moved, or its partitions have

    async def _set_up(self, broker: _Broker) -> None:
        """Connect, and learn what the broker speaks; each step within the connection setup timeout."""
        limit_s = self._setup.delay(broker.failures, self._random.random())
        connection: Connection | None = None
        try:
            async with asyncio.timeout(limit_s):
                connection = await self._reach(broker)
                versions = await self._negotiate(connection)
        except TimeoutError as error:
            late = BrokerConnectionError(f"Broker {broker.node} could not be connected within {limit_s:.3g} s.")
            if connection is not None:
                connection.abort(late)
            raise late from error
        except BaseException:
            if connection is not None:
                connection.abort(BrokerConnectionError(f"The connection to broker {broker.node} was given up."))
            raise
        if self._closed or self._brokers.get(broker.node.id) is not broker or connection.closed:
            gone = BrokerConnectionError(f"Broker {broker.node} went away while it was being connected.")
            connection.abort(gone)
            raise gone
        connection.ready()
        broker.connection, broker.versions = connection, versions

    async def _reach(self, broker: _Broker) -> Connection:
        """A connection to the first of the broker's addresses that takes one; the next attempt begins with the next."""

        def make() -> Connection:
            return Connection(str(broker.node), self._client_id, lambda error: self._lost(broker, error))

        addresses = await resolve(broker.node.host, broker.node.port)
        first = broker.addresses_tried % len(addresses)
        broker.addresses_tried += 1
        failure: Exception | None = None
        for address in addresses[first:] + addresses[:first]:
            try:
                connection: Connection = await self._connect(make, address)
            except OSError as error:
                failure = error
                continue
            connection.configure_socket(self._config.send_buffer_bytes, self._config.receive_buffer_bytes)
            return connection
        raise _as_connection_error(broker.node, failure)

    async def _open_socket(self, make: Callable[[], Connection], address: Address) -> Connection:
        _, connection = await self._loop.create_connection(make, address.host, address.port, family=address.family)
        return connection

    async def _negotiate(self, connection: Connection) -> BrokerVersions:
        """Ask for the versions, with an older question where the broker does not understand ours (KIP-511).

        TLS and SASL have their place before this.
        """
        version = ApiVersionsRequest.versions[1]
        while True:
            body = await self._ask_versions(connection, version)
            older = version_to_retry(body)
            if older is None or older >= version:
                response = ApiVersionsResponse.decode(version, body)
                if response.error_code != ErrorCode.NONE:
                    raise broker_error(response.error_code, f"ApiVersions at broker {connection.name}")
                return BrokerVersions.of(response)
            version = older

    async def _ask_versions(self, connection: Connection, version: int) -> bytes:
        question = ApiVersionsRequest(client_software_name=_SOFTWARE_NAME, client_software_version=_SOFTWARE_VERSION)
        done: asyncio.Future[Any] = self._loop.create_future()
        connection.send(
            question,
            version,
            lambda answer: done.done() or done.set_result(answer),
            self._request_timeout_s,
            raw=True,
        )
        answer = await done
        if isinstance(answer, BaseException):
            raise answer
        return bytes(answer)

    def _lost(self, broker: _Broker, error: KafkaError) -> None:
        if broker.versions is None:
            return  # the attempt to connect reports it
        broker.connection = broker.versions = None
        if self._closed:
            return
        self.last_error = error
        broker.retry_at = self._loop.time() + self._reconnect.delay(broker.failures, self._random.random())
        logger.debug("%s", error)
        self.request_update()
        self._tell()

    def _heed_throttle(self, broker: _Broker, answer: object) -> None:
        """A broker that says so gets no request for a while, and those on their way have so much longer (KIP-219)."""
        throttle_ms: int = getattr(answer, "throttle_time_ms", 0)
        if throttle_ms > 0:
            seconds = throttle_ms / 1000
            broker.throttled_until = self._loop.time() + seconds
            self._loop.call_at(broker.throttled_until, self._tell)
            if broker.connection is not None:
                broker.connection.grant(seconds)

    # -- choosing a broker --------------------------------------------------------------------------------------------

    def _find(self, node_id: int | None) -> _Broker | None:
        """The broker to ask now; None, having begun to connect one, where there is none."""
        if node_id is not None:
            self.can_send(node_id)
            broker = self._brokers.get(node_id)
            return broker if broker is not None and broker.is_connected else None
        now = self._loop.time()
        ready = [each for each in self._brokers.values() if each.is_connected and each.throttled_until <= now]
        if ready:
            return min(ready, key=lambda broker: broker.connection.in_flight if broker.connection is not None else 0)
        self._connect_any(now)
        return None

    def _connect_any(self, now: float) -> None:
        """Begin to connect a broker where none is: one that has not failed yet, or else the one that rests shortest."""
        if any(broker.is_connected for broker in self._brokers.values()):
            return  # throttled: it will be free again
        for node in self.metadata.nodes.values():
            self._brokers.setdefault(node.id, _Broker(node))
        candidates = list(self._brokers.values())
        if self._should_rebootstrap(candidates):
            self._bootstrap()
            candidates = list(self._brokers.values())
        fresh = [each for each in candidates if each.failures == 0]
        if any(each.connecting and each.retry_at <= now for each in candidates) and not fresh:
            return
        idle = [each for each in fresh or candidates if not each.connecting]
        if idle:
            best = min(idle, key=lambda each: (each.failures, each.retry_at))
            self._begin_connecting(best)

    def _should_rebootstrap(self, candidates: Sequence[_Broker]) -> bool:
        """Whether every broker that is known has failed, so that the cluster must be somewhere else."""
        return (
            self._config.metadata_recovery_strategy == "rebootstrap"
            and bool(self.metadata.nodes)
            and all(each.failures > 0 and not each.is_connected for each in candidates)
            and not any(each.node.id < 0 for each in candidates)
        )

    # -- metadata -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the metadata fresh and the connections tidy, until cancelled.

        Cancellation: connections stay until `close`.
        """
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                self.request_update()
                tasks.start_soon(self._keep_tidy, name="aioproducer tidy")
                while True:
                    await self._wait_update_due()
                    await self._update()
            finally:
                self._tasks = None

    async def _wait_update_due(self) -> None:
        due = self._updated_at + self._config.metadata_max_age_ms / 1000
        try:
            async with asyncio.timeout_at(due):
                await self._update_wanted.wait()
        except TimeoutError:
            return
        while (pause := self._update_not_before - self._loop.time()) > 0:
            try:
                async with asyncio.timeout(pause):
                    await self._changed.wait()  # a new topic moves the time
            except TimeoutError:
                return

    async def _update(self) -> None:
        self._update_wanted.clear()
        now = self._loop.time()
        for name in self._used:
            self.metadata.touch(name, now)
        self._used.clear()
        self.metadata.forget_idle(now, self._config.metadata_max_idle_ms / 1000)
        wanted = self.metadata.wanted
        self._questions = question = self._questions + 1
        try:
            response = await self.request(
                MetadataRequest(
                    topics=[MetadataRequestTopic(name=name) for name in wanted],
                    allow_auto_topic_creation=self._config.allow_auto_create_topics,
                )
            )
        except KafkaError as error:
            self.last_error = error if not isinstance(error, KafkaTimeoutError) else self.last_error or error
            self._update_failed()
            return
        self._take_in(response, wanted, question)

    def _update_failed(self) -> None:
        now = self._loop.time()
        self._update_not_before = now + self._retry.delay(self._updates_failed, self._random.random())
        self._updates_failed += 1
        trigger_s = self._config.metadata_recovery_rebootstrap_trigger_ms / 1000
        if now - self._updated_at > trigger_s and self._config.metadata_recovery_strategy == "rebootstrap":
            self._updated_at = now
            self._bootstrap()
        self._update_wanted.set()
        self._tell()

    def _take_in(self, response: MetadataResponse, wanted: Sequence[str], question: int) -> None:
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._bootstrap()
            self._update_failed()
            return
        now = self._updated_at = self._loop.time()
        self._updates_failed = 0
        self.metadata.update(response)
        for topic in response.topics:
            if topic.name is not None:
                self._answered[topic.name] = question
        self._follow_moves()
        self._update_not_before = now + self._retry.delay(0, self._random.random())
        self._tell()

    def _follow_moves(self) -> None:
        """Part with brokers that left, moved, or were only there to begin with."""
        for node_id, broker in list(self._brokers.items()):
            node = self.metadata.nodes.get(node_id)
            if node is None and self.in_flight(node_id) and node_id < 0:
                continue  # somebody still waits for its answer
            if node is None or node[:3] != broker.node[:3]:
                if node_id < 0 and not self.metadata.nodes:
                    continue
                del self._brokers[node_id]
                self._drop(broker, BrokerConnectionError(f"Broker {broker.node} is not part of the cluster any more."))

    async def _keep_tidy(self) -> None:
        """Close connections that nobody used for long."""
        idle_ms = self._config.connections_max_idle_ms
        if idle_ms < 0:
            return
        while True:
            await asyncio.sleep(max(idle_ms / 2000, 0.01))
            oldest = self._loop.time() - idle_ms / 1000
            for broker in list(self._brokers.values()):
                connection = broker.connection
                if connection is not None and connection.in_flight == 0 and connection.last_used < oldest:
                    broker.connection = broker.versions = None
                    connection.abort(BrokerConnectionError(f"The connection to broker {broker.node} was idle."))

    async def close(self) -> None:
        """End every connection now, and fail everybody who waits. May be called again.

        Cancellation: everything is ended all the same.
        """
        self._closed = True
        connections = [broker.connection for broker in self._brokers.values() if broker.connection is not None]
        self._drop_all(ProducerClosed("The producer was closed."))
        self._tell()
        for connection in connections:
            await connection.wait_closed()


def _as_connection_error(node: Node, error: Exception | None) -> BrokerConnectionError:
    failure = BrokerConnectionError(f"Broker {node} could not be connected: {error}")
    failure.__cause__ = error
    return failure
