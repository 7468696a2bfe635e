"""The cluster as the Sender sees it: which broker can take a request now, requests and their answers, and fresh metadata.

Nothing here blocks anything else, and every wait has a deadline. Waiters (for a connection, for room, for a topic) are woken
by every relevant change, and check their condition again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from math import inf
from random import Random
from typing import Any, TypeAlias, TypeVar

import anyio
import anyio.abc

from aioproducer.config import ProducerConfig
from aioproducer.core.answers import ProduceAnswer
from aioproducer.core.cluster import ClusterMetadata, TopicMetadata
from aioproducer.core.failed_attempt import FailedAttempt, timed_out
from aioproducer.errors import (
    AuthenticationError,
    BrokerConnectionError,
    BrokerError,
    InvalidRecord,
    KafkaError,
    ProducerClosed,
    UnsupportedVersion,
)
from aioproducer.metrics.producer import ProducerMetrics
from aioproducer.net.broker import Broker
from aioproducer.net.brokers import Brokers
from aioproducer.net.connection import WRITTEN, Answer, Answered, Read, ReadFrame, settle
from aioproducer.net.connector import Connect, Connector
from aioproducer.net.metadata_updater import Asked, MetadataUpdater
from aioproducer.net.outages import OutageLog, Reach
from aioproducer.net.signal import Signal
from aioproducer.protocol.error_codes import ErrorCode, broker_error
from aioproducer.protocol.message import Request, Response
from aioproducer.protocol.messages import MetadataRequest, MetadataResponse
from aioproducer.runtime.log import ClientLog

__all__ = ["NetworkClient", "whole"]

#: Errors of a topic that waiting cannot change.
_HOPELESS = frozenset({ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED})

_R = TypeVar("_R", bound=Response)
_T = TypeVar("_T")

#: Converts a response to the result that its reader needs, or to the error that the broker reports.
_Reads: TypeAlias = Callable[[_R], _T | KafkaError]

#: The waiters for a topic, in order of arrival, and the partition that each one needs (None: any).
_Waiters: TypeAlias = dict[object, int | None]


class NetworkClient:
    """Connections to the brokers of one cluster, and its metadata. Must be created in a running event loop.

    ``on_ready()`` is called soon after something becomes possible: by a connection, new metadata, the end of a throttle.
    ``connect`` opens sockets in another way, for tests. ``metrics`` counts what its connections send and receive.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        client_id: str,
        log: ClientLog,
        random: Random,
        on_ready: Callable[[], object],
        connect: Connect | None = None,
        metrics: ProducerMetrics | None = None,
    ) -> None:
        self.metadata = ClusterMetadata()
        self._config = config
        self._on_ready = on_ready
        self._loop = asyncio.get_running_loop()
        self._request_timeout_s = config.request_timeout_ms / 1000
        self._changed = Signal()  # connections and metadata
        self._room = Signal()  # the same, and every answer
        self._topic_waiters: dict[str, _Waiters] = {}  # the waiters for each topic
        self._is_notifying = False
        self._closed = False
        self._tasks: anyio.abc.TaskGroup | None = None
        self._ended = asyncio.Event()
        self._connector = Connector(config, client_id, random, connect, log, metrics)
        self._brokers = Brokers(
            config,
            self.metadata,
            self._connector,
            random,
            log=log,
            on_change=self._notify,
            on_failure=self.request_update,
        )
        self.known = self._brokers.known  # for any thread
        self._updater = MetadataUpdater(
            config,
            self.metadata,
            random,
            log=log,
            ask=self._ask_for_metadata,
            on_answer=self._follow,
            rebootstrap=self._brokers.rebootstrap,
        )
        self._outages = OutageLog(
            config, log, self._changed, lambda: Reach.of(self._brokers, self.metadata, self.last_error)
        )

    @property
    def last_error(self) -> KafkaError | None:
        """The last error, unless it is known to be over; None if all is well."""
        last = self.last_failure
        return None if last is None else last.error

    @property
    def last_failure(self) -> FailedAttempt | None:
        """The last error with its broker and time, unless it is known to be over; None if all is well."""
        return self._brokers.last_failure or self._updater.failure

    def refusal(self, since: float, node_id: int | None = None) -> AuthenticationError | None:
        """Why a wait that began at ``since`` (the event loop's time) will not succeed: refused credentials.

        They were refused by this broker, or by the cluster. None if they were not, or if that is not known yet.
        """
        broker = None if node_id is None else self._brokers.known(node_id)
        of_cluster = self._brokers.refusal(since)
        return of_cluster if of_cluster is not None or broker is None else self._brokers.refusal(since, broker)

    # -- for the Sender: never waits ----------------------------------------------------------------------------------

    def can_send(self, node_id: int) -> bool:
        """Whether the broker can take a request now; if it is not connected, begins to connect it."""
        broker = self._brokers.get(node_id)
        if broker is None:
            self.request_update()  # it is used as a leader
            return False
        if not broker.is_connected:
            self._brokers.connect(broker)
            return False
        return self._brokers.has_room(broker)

    def usable_version(self, node_id: int, request: type[Request[Any]]) -> int:
        """The highest version of a request that broker and client support; raises `UnsupportedVersion`."""
        if (broker := self._brokers.known(node_id)) is None or broker.versions is None:
            raise UnsupportedVersion(f"Broker {node_id} is not connected, and its API versions are not known.")
        return broker.versions.best(request, broker.node)

    def finalized_feature(self, name: str) -> int:
        """The level of a cluster feature, reported by a connected broker; 0 if none has it."""
        known = (broker.versions.features for broker in self._brokers.connected() if broker.versions is not None)
        return next((features[name] for features in known if name in features), 0)

    def send(
        self,
        node_id: int,
        request: Request[Any],
        version: int,
        callback: Answered[_T],
        timeout_s: float,
        *,
        read: Callable[[Any], _T | KafkaError],
        expect_response: bool = True,
    ) -> None:
        """Send to a broker that `can_send`; the callback gets the result of ``read``, an error, or `WRITTEN`.

        If ``read`` raises `ProtocolError`, the connection ends and the callback gets that error. It is called exactly once,
        within ``timeout_s`` seconds, and never before this returns.
        """
        broker = self._brokers.known(node_id)
        if broker is None or broker.connection is None:
            self._loop.call_soon(callback, BrokerConnectionError(f"Broker {node_id} is not connected."))
            return
        self._send(broker, request, version, callback, timeout_s, read=read, expect_response=expect_response)

    def frame_broker(self, node_id: int, *, idle: bool = False) -> Broker | None:
        """The broker, if it is connected and takes a request now; ``idle``: and has none in flight."""
        broker = self._brokers.known(node_id)
        if broker is None or broker.connection is None or broker.is_throttled or broker.retired:
            return None
        return broker if broker.connection.takes_frames and not (idle and broker.in_flight) else None

    def send_frame(
        self,
        broker: Broker,
        frame: Callable[[int], bytes],
        request: type[Request[Any]],
        version: int,
        callback: Answered[_T],
        timeout_s: float,
        read: Read[_T],
        read_frame: ReadFrame[_T],
    ) -> None:
        """Send a request to a `frame_broker`, encoded elsewhere: ``frame`` returns its bytes for a correlation id.

        ``read`` and ``read_frame`` are as in `Connection.send_frame`. Otherwise it is like `send`.
        """
        assert broker.connection is not None

        def on_answer(answer: Answer[_T]) -> None:
            if not isinstance(answer, KafkaError):
                self._handle_common_fields(broker, answer.throttle_time_ms if isinstance(answer, ProduceAnswer) else 0)
            callback(answer)
            self._room.notify_all()

        broker.connection.send_frame(frame, request, version, on_answer, timeout_s, read, read_frame)

    def request_update(self, topic: str | None = None) -> None:
        """Request the metadata soon; a new topic does not wait for a pause to end."""
        self._updater.request(topic)

    def topic(self, name: str) -> TopicMetadata | None:
        """A topic whose partitions are known; keeps it from being forgotten.

        Also None if it has just become known and earlier waiters have not continued yet: they must not be overtaken.
        """
        self._updater.use(name)
        topic = self.metadata.topics.get(name)
        waiters = self._topic_waiters.get(name)
        return topic if waiters is None or topic is None or _is_next(waiters, None, topic) else None

    def topic_failure(self, name: str) -> FailedAttempt | None:
        """The error of a topic in the last answer."""
        code = self.metadata.errors.get(name)
        return None if code is None else FailedAttempt(_topic_error(name, code), None, self.metadata.answered_at[name])

    def connected_nodes(self, api: int | None = None) -> list[int]:
        """The ids of the connected brokers, without bootstrap servers; only those with this API if one is given."""
        return [each.node.id for each in self._brokers.connected() if each.node.id >= 0 and each.supports(api)]

    def in_flight(self, node_id: int) -> int:
        """The number of requests to a broker in flight."""
        return broker.in_flight if (broker := self.known(node_id)) is not None else 0

    # -- calls that wait ----------------------------------------------------------------------------------------------

    async def request(
        self,
        request: Request[_R],
        *,
        read: Callable[[_R], _T | KafkaError],
        node_id: int | None = None,
        timeout_s: float | None = None,
    ) -> _T:
        """Send a request to a broker (the least busy one if none is named) and wait for its answer.

        ``read`` converts the response to the result. If it raises `ProtocolError` the connection is closed, so that another
        broker is asked next; an error that it returns is raised here. ``timeout_s`` (None: ``request_timeout_ms``)
        limits the time to reach a broker, and separately the time for its answer.

        Raises `BrokerConnectionError` if no answer came, `KafkaTimeoutError` if no broker could be reached in time,
        `AuthenticationError`, `UnsupportedVersion`. Cancellation: the answer is ignored.
        """
        timeout_s = self._request_timeout_s if timeout_s is None else timeout_s
        usual = (request.versions[0], request.highest_spoken)
        return (await self.ask(request, node_id=node_id, versions=usual, timeout_s=timeout_s, read=read))[0]

    async def ask(
        self,
        request: Request[_R],
        *,
        node_id: int | None,
        versions: tuple[int, int],
        timeout_s: float,
        read: Callable[[_R], _T | KafkaError],
        reach_s: float | None = None,
    ) -> tuple[_T, int]:
        """Like `request`, in one of these versions; returns the result, and the version.

        ``reach_s`` is the time to reach the broker; None: ``timeout_s``. Raises `UnsupportedVersion` if the broker supports
        none of the versions; then nothing was sent.
        """
        broker = await self._wait_room(node_id, timeout_s if reach_s is None else reach_s, type(request).__name__)
        lowest, highest = versions
        version = _version(broker, request, highest)
        if version < lowest:
            raise UnsupportedVersion(
                f"Broker {broker.node} supports {type(request).__name__} up to version {version}, but {lowest} is needed."
            )
        return await self._exchange(broker, request, version, timeout_s, read), version

    async def wait_topic(self, name: str, partition: int | None, deadline: float) -> TopicMetadata:
        """The topic, once its partitions (or the given one) are known; first come, first served.

        Raises at once if waiting cannot help: `BrokerError` for a forbidden or invalid topic, `InvalidRecord` for a
        partition that is not in a fresh answer, `AuthenticationError` if brokers refuse the credentials. Raises
        `KafkaTimeoutError` at the deadline (the event loop's time), with the last error as its cause; and after
        ``unknown_topic_timeout_ms`` for a topic that brokers do not know. Cancellation: the topic is still requested.
        """
        waiters = self._topic_waiters.setdefault(name, {})
        place, began = object(), self._loop.time()
        waiters[place] = partition
        try:
            return await self._wait_topic(name, partition, began, deadline, waiters, place)
        finally:
            self._connector.metrics.metadata_wait_s += self._loop.time() - began
            del waiters[place]
            if not waiters:
                self._topic_waiters.pop(name, None)

    async def _wait_topic(
        self, name: str, partition: int | None, began: float, deadline: float, waiters: _Waiters, place: object
    ) -> TopicMetadata:
        began_with = self.metadata.answers.get(name, 0)
        unknown_ms = self._config.unknown_topic_timeout_ms
        give_up_unknown_at = inf if unknown_ms is None else began + unknown_ms / 1000
        while True:
            self._updater.use(name)
            topic = self.metadata.topics.get(name)
            if topic is not None and (partition is None or partition < topic.partition_count):
                if _is_next(waiters, place, topic):
                    return topic
                await asyncio.sleep(0)  # earlier waiters have been woken already
                continue
            self._check_open()
            error = self.metadata.errors.get(name)
            until = deadline
            if self.metadata.answers.get(name, 0) != began_with:
                _refuse(name, partition, topic, error)
                if error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    until = min(deadline, give_up_unknown_at)
            refused = self._brokers.refusal(began)
            if refused is not None:
                raise refused
            now = self._loop.time()
            if now >= until:
                unreached = "" if self.connected_nodes() else f", and no broker is connected {_via(self._config)}"
                text = f"The partitions of topic {name!r} were not known in time{unreached}"
                raise timed_out(text, self.topic_failure(name) or self.last_failure, now)
            self.request_update(name)
            await self._changed.wait(until)

    async def wait_ready(self, deadline: float) -> None:
        """Wait until a broker of the cluster is connected and has answered a metadata request.

        Raises `KafkaTimeoutError` at the deadline with the last error as its cause, `AuthenticationError` at once.
        Cancellation: nothing is undone.
        """
        self.request_update()
        began = self._loop.time()
        while not (self.metadata.nodes and self.connected_nodes()):
            self._check_open()
            refused = self._brokers.refusal(began)
            if refused is not None:
                raise refused
            now = self._loop.time()
            if now >= deadline:
                raise timed_out(f"No broker answered in time {_via(self._config)}", self.last_failure, now)
            asks_already = self._brokers.connected() and not self.metadata.nodes
            await self._changed.wait(deadline if asks_already else min(deadline, self._brokers.connect_any(now)))

    async def wait_change(self, until: float) -> None:
        """Wait for an answer, a connection or metadata, or until this time of the event loop. Raises `ProducerClosed`."""
        self._check_open()
        await self._room.wait(until)

    # -- sending ------------------------------------------------------------------------------------------------------

    async def _wait_room(self, node_id: int | None, timeout_s: float, what: str) -> Broker:
        """The broker, or any broker, once it can take a request."""
        began = self._loop.time()
        deadline = began + timeout_s
        while True:
            self._check_open()
            now = self._loop.time()
            look_again = deadline
            if node_id is not None:
                broker = self._brokers.known(node_id) if self.can_send(node_id) else None
            else:
                broker = self._brokers.least_loaded()
                if broker is None:
                    look_again = min(deadline, self._brokers.connect_any(now))
            if broker is not None:
                return broker
            refused = self._brokers.refusal(began, None if node_id is None else self._brokers.known(node_id))
            if refused is not None:
                raise refused
            if now >= deadline:
                whom = "no broker was" if node_id is None else f"broker {node_id} was not"
                text = f"{what} could not be sent: {whom} reached within {timeout_s:g} s"
                raise timed_out(text, self.last_failure, now)
            await self._room.wait(look_again)

    async def _exchange(
        self, broker: Broker, request: Request[_R], version: int, timeout_s: float, read: _Reads[_R, _T]
    ) -> _T:
        done: asyncio.Future[Answer[_T]] = self._loop.create_future()
        self._send(broker, request, version, partial(settle, done), timeout_s, read=read)
        answer = await done
        if isinstance(answer, KafkaError):
            raise answer
        assert answer is not WRITTEN  # as only requests without an answer are
        return answer

    def _send(
        self,
        broker: Broker,
        request: Request[_R],
        version: int,
        callback: Answered[_T],
        timeout_s: float,
        *,
        read: Callable[[_R], _T | KafkaError],
        expect_response: bool = True,
    ) -> None:
        if broker.connection is None:
            return
        throttle_ms: int | None = None  # nothing was read

        def read_body(version: int, body: bytes) -> _T | KafkaError:
            nonlocal throttle_ms
            response = request.response_type.decode(version, body)
            result = read(response)
            throttle_ms = getattr(response, "throttle_time_ms", 0)
            return result

        def on_answer(answer: Answer[_T]) -> None:
            if throttle_ms is not None:
                self._handle_common_fields(broker, throttle_ms)
            callback(answer)
            self._room.notify_all()

        broker.connection.send(request, version, on_answer, timeout_s, read=read_body, expect_response=expect_response)

    def _handle_common_fields(self, broker: Broker, throttle_ms: int) -> None:
        """Handle what every response may contain, such as a throttle time."""
        broker.clear_error()
        if throttle_ms > 0:
            self._brokers.throttle(broker, throttle_ms / 1000)
        if broker.retired and not broker.in_flight:
            self._loop.call_soon(self._brokers.drop, broker, f"Broker {broker.node} has left the cluster.")

    # -- metadata -----------------------------------------------------------------------------------------------------

    async def _ask_for_metadata(
        self, make: Callable[[], MetadataRequest | None], read: Callable[[MetadataResponse], MetadataResponse]
    ) -> Asked | None:
        """The request is created when a broker is reached, so that it includes all topics wanted by then."""
        broker = await self._wait_room(None, self._request_timeout_s, MetadataRequest.__name__)
        if (request := make()) is None:
            return None
        version = _version(broker, request)
        return Asked(await self._exchange(broker, request, version, self._request_timeout_s, read), version)

    def _follow(self) -> None:
        self._brokers.follow()
        self._notify()

    # -- life ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Refresh the metadata and close idle connections, until cancelled or closed.

        Cancellation: connections stay until `close`.
        """
        if self._closed:
            return
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                self._brokers.run_in(tasks)
                tasks.start_soon(self._updater.run, name="aioproducer metadata")
                tasks.start_soon(self._brokers.close_idle_connections, name="aioproducer tidy")
                tasks.start_soon(self._outages.run, name="aioproducer outages")
                self._notify()
        finally:
            self._brokers.run_in(None)
            self._tasks = None
            self._ended.set()

    async def close(self) -> None:
        """End every connection now, and fail all waiters. May be called again, but not by `run` itself.

        Cancellation: everything still ends.
        """
        self._closed = True
        closed = ProducerClosed("The producer was closed.")
        tasks = self._tasks
        if tasks is not None:
            tasks.cancel_scope.cancel()
        self._brokers.close(closed)
        self._changed.notify_all()
        self._room.notify_all()
        await self._connector.close(closed)
        if tasks is not None:
            await self._ended.wait()

    def _check_open(self) -> None:
        if self._closed:
            raise ProducerClosed("The producer was closed.")

    def _notify(self) -> None:
        """Something changed: wake all waiters, and the Sender."""
        if self._closed:
            return
        self._changed.notify_all()
        self._room.notify_all()
        if not self._is_notifying:
            self._is_notifying = True
            self._loop.call_soon(self._notify_sender)

    def _notify_sender(self) -> None:
        self._is_notifying = False
        if not self._closed:
            self._on_ready()


def _version(broker: Broker, request: Request[Any], highest: int | None = None) -> int:
    if broker.versions is None:
        raise BrokerConnectionError(f"The connection to broker {broker.node} is closed.")
    return broker.versions.best(type(request), broker.node, highest)


def _via(config: ProducerConfig) -> str:
    return f"(bootstrap servers {', '.join(config.bootstrap_servers)})"


def whole(response: _R) -> _R:
    """For ``read``: the response itself."""
    return response


def _is_next(waiters: _Waiters, place: object, topic: TopicMetadata) -> bool:
    """Whether no earlier waiter can get the partition that it needs."""
    for other, partition in waiters.items():
        if other is place:
            return True
        if partition is None or partition < topic.partition_count:
            return False
    return True


def _topic_error(name: str, code: int) -> BrokerError:
    return broker_error(code, f"topic {name!r}: {broker_error(code).message}")


def _refuse(name: str, partition: int | None, topic: TopicMetadata | None, error: int | None) -> None:
    """Raise an error in a fresh answer that waiting cannot change."""
    if error in _HOPELESS and error is not None:
        raise _topic_error(name, error)
    if topic is not None and error is None:
        raise InvalidRecord(
            f"partition={partition}: topic {name!r} has {topic.partition_count} partition(s), "
            f"0 to {topic.partition_count - 1}."
        )
