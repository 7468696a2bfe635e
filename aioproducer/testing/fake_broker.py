"""FakeBroker: a Kafka cluster inside the test process, on real sockets, that does what the test tells it to.

The decisions are in fake_cluster.py; this file carries them out: a thread with an event loop of its own, a listening
socket per node, a task per connection. A lock guards the cluster's state, because tests script it from their own thread;
nothing is awaited while it is held.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from aioproducer.errors import ConfigError, KafkaTimeoutError, ProtocolError
from aioproducer.protocol import ApiKey, FrameReader
from aioproducer.testing.broker_versions import NEWEST_RELEASE, VersionRange, api_key_of
from aioproducer.testing.cluster_state import TopicSpec
from aioproducer.testing.fake_cluster import (
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
from aioproducer.testing.faults import FaultScript, Hold, Rule
from aioproducer.types import HeadersInput

if TYPE_CHECKING:
    import ssl
    from typing import Self

    from aioproducer.testing.broker_log import LoggedBatch, LoggedRecord
    from aioproducer.testing.broker_request import ReceivedRequest

__all__ = ["BrokerConnection", "FakeBroker"]

_MAX_REQUEST = 100 * 1024 * 1024  # Kafka's socket.request.max.bytes
_PATIENCE = 5.0
_BACKLOG = 100

T = TypeVar("T")

#: What ``wait_for`` waits for: so many records in the log, or whatever the function says.
Condition: TypeAlias = "int | Callable[[FakeBroker], object]"

#: What ``assert_sent`` compares with: the bytes, text for its UTF-8, None, a function that judges, ``...`` for anything.
Matcher: TypeAlias = "bytes | str | Callable[[bytes | None], object] | EllipsisType | None"


@dataclass(frozen=True, slots=True)
class BrokerConnection:
    """A connection that a client made: its number (as in ReceivedRequest), its node, and the client's own port."""

    connection: int
    node: int
    client_port: int
    is_open: bool


class FakeBroker(FaultScript):
    """A cluster of fake brokers that listens on 127.0.0.1 while the ``with`` block runs.

    ::

        with FakeBroker(topics={"orders": 3}) as broker:
            async with Producer(broker.bootstrap_servers) as producer:
                await producer.send("orders", b"value")
            broker.assert_sent("orders", value=b"value")

    It is as strict with what it is sent as a real broker is, and keeps it all for assertions. ``brokers`` nodes are
    numbered from 1; topics without a replication factor of their own have up to three replicas. ``versions`` is the Kafka
    release whose request versions it speaks; ``max_versions`` lowers (or raises) single ones: ``{"Produce": 9}``, or a
    range ``{"Produce": (0, 9)}``. ``receive_buffer`` is the size of the sockets' receive buffers in bytes, for tests that
    want to fill them. With ``tls``, a server's SSL context, every listener speaks TLS.

    Every method may be called from any thread. The scripting methods are those of FaultScript: ``fail``, ``delay``,
    ``hold``, ``drop_connection``, ``swallow``, ``corrupt_answer``, ``throttle``, ``control``.
    """

    def __init__(
        self,
        brokers: int = 1,
        topics: Mapping[str, int | TopicSpec] | None = None,
        *,
        versions: str = NEWEST_RELEASE,
        max_versions: Mapping[str, VersionRange | int] | None = None,
        auto_create_topics: bool = True,
        num_partitions: int = 1,
        host: str = "127.0.0.1",
        receive_buffer: int | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self.cluster = FakeCluster(
            brokers, versions=versions, auto_create_topics=auto_create_topics, num_partitions=num_partitions
        )
        self.cluster.on_change = self._tell_change
        self.cluster.set_versions(max_versions=max_versions)
        for name, spec in (topics or {}).items():
            self.cluster.create_topic(name, spec)
        self._shell = _Shell(self.cluster, self._lock, host=host, receive_buffer=receive_buffer, tls=tls)
        self._watchers: list[Callable[[], None]] = []

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Listen. Raises ConfigError if it was started before."""
        self._shell.start()

    def close(self) -> None:
        """Close every socket and end the thread; what was logged stays readable. A second call does nothing.

        Raises what a ``control`` function raised meanwhile, since nobody else could tell.
        """
        self._shell.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- where it is ---------------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all nodes, as ``bootstrap_servers`` takes them."""
        return ",".join(f"{host}:{port}" for host, port in self.addresses.values())

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        """Host and port of each node."""
        with self._lock:
            return {node.node_id: (node.host, node.port) for node in self.cluster.nodes.values()}

    def connections(self, node: int | None = None, *, closed: bool = False) -> list[BrokerConnection]:
        """The connections of a node, or of all, oldest first: the open ones, or (``closed``) also the others."""
        with self._lock:
            known = self._shell.connections()
        return [each for each in known if node in (None, each.node) and (closed or each.is_open)]

    # -- what it received ----------------------------------------------------------------------------------------------

    @property
    def requests(self) -> list[ReceivedRequest]:
        """Every request so far, in the order in which they arrived."""
        with self._lock:
            return list(self.cluster.requests)

    def requests_of(self, api: ApiKey | int | str, *, node: int | None = None) -> list[ReceivedRequest]:
        """The requests of one API, to one node or to all."""
        key = api_key_of(api)
        return [each for each in self.requests if each.api_key == key and node in (None, each.node)]

    def count(self, api: ApiKey | int | str, *, node: int | None = None) -> int:
        """How many requests of one API arrived."""
        return len(self.requests_of(api, node=node))

    @property
    def counts(self) -> Counter[str]:
        """How many requests of each API arrived, by name."""
        return Counter(request.api for request in self.requests)

    def forget_requests(self) -> None:
        """Empty ``requests``; the log stays."""
        with self._lock:
            self.cluster.requests.clear()

    def records(self, topic: str | None = None, partition: int | None = None) -> list[LoggedRecord]:
        """The records of a topic (None: of all) or of one partition, in order of partition and offset.

        Raises ConfigError for a topic that does not exist.
        """
        with self._lock:
            return [record for log in self.cluster.logs(topic, partition) for record in log.records()]

    def batches(self, topic: str | None = None, partition: int | None = None) -> list[LoggedBatch]:
        """The batches of a topic or partition; ``.raw`` has the bytes as stored, ``.sent`` as they were received."""
        with self._lock:
            return [batch for log in self.cluster.logs(topic, partition) for batch in log.batches]

    def json(self, topic: str, partition: int | None = None) -> list[Any]:
        """The values of a topic, read as JSON; None stays None."""
        return [None if r.value is None else json.loads(r.value) for r in self.records(topic, partition)]

    def assert_sent(
        self,
        topic: str,
        *,
        value: Matcher = ...,
        key: Matcher = ...,
        headers: HeadersInput | EllipsisType = ...,
        partition: int | None = None,
        times: int | None = 1,
    ) -> list[LoggedRecord]:
        """Fail the test unless exactly ``times`` records (None: at least one) of the topic match; they are returned.

        ``value`` and ``key`` are bytes, text (its UTF-8), None, or a function that judges the bytes; what is left out
        matches anything. ``headers`` must be equal, in order.
        """
        with self._lock:
            present = self.records(topic, partition) if topic in self.cluster.topics else []
        found = [
            record
            for record in present
            if _matches(value, record.value) and _matches(key, record.key) and _same_headers(headers, record.headers)
        ]
        if len(found) == times or (times is None and found):
            return found
        wanted = {"value": value, "key": key, "headers": headers, "partition": ... if partition is None else partition}
        raise AssertionError(_explain(topic, wanted, times, found, present))

    def wait_for(self, what: Condition, timeout: float = _PATIENCE, *, topic: str | None = None) -> None:
        """Block until the log holds ``what`` records (of ``topic``), or until ``what(broker)`` is true.

        Raises KafkaTimeoutError after ``timeout`` seconds, and ConfigError inside a running event loop, which it would
        block: use ``wait_for_async`` there.
        """
        if _in_event_loop():
            raise ConfigError("wait_for() would block the running event loop; use `await broker.wait_for_async(...)`.")
        with self._changed:
            if not self._changed.wait_for(lambda: self._holds(what, topic), timeout):
                raise self._too_late(what, topic, timeout)

    async def wait_for_async(self, what: Condition, timeout: float = _PATIENCE, *, topic: str | None = None) -> None:
        """As ``wait_for``, for coroutines.

        Cancellation: it stops waiting; nothing else happens.
        """
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop that waited is closed
                loop.call_soon_threadsafe(changed.set)

        deadline = loop.time() + timeout
        with self._lock:
            self._watchers.append(wake)
        try:
            while not self._holds(what, topic):
                left = deadline - loop.time()
                if left <= 0:
                    raise self._too_late(what, topic, timeout)
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), left)
                changed.clear()
        finally:
            with self._lock:
                self._watchers.remove(wake)

    def _holds(self, what: Condition, topic: str | None) -> bool:
        if callable(what):
            return bool(what(self))
        with self._lock:
            there = topic is None or topic in self.cluster.topics
            return there and len(self.records(topic)) >= what

    def _too_late(self, what: Condition, topic: str | None, timeout: float) -> KafkaTimeoutError:
        wanted = "the condition came true" if callable(what) else f"{what} records were there"
        with self._lock:
            have = len(self.records(topic)) if topic is None or topic in self.cluster.topics else 0
        where = "in the log" if topic is None else f"in topic {topic!r}"
        return KafkaTimeoutError(
            f"Waited {timeout} s before {wanted}; {have} records are {where}, requests so far: {dict(self.counts)}."
        )

    def _tell_change(self) -> None:
        with self._changed:
            self._changed.notify_all()
            for wake in self._watchers:
                wake()
            self._shell.wake_pollers()

    # -- what it does wrong --------------------------------------------------------------------------------------------

    def add_rule(self, rule: Rule) -> None:
        """Put a rule behind the others."""
        with self._lock:
            self.cluster.faults.add_rule(rule)

    def remove_rule(self, rule: Rule) -> None:
        """Take a rule out."""
        with self._lock:
            self.cluster.faults.remove_rule(rule)

    def make_hold(self, *, applied: bool, let_go: Callable[[], None]) -> Hold:
        """The handle that ``hold()`` gives; it may be released from any thread."""
        return _LockedHold(self._lock, applied=applied, let_go=let_go)

    def clear_faults(self) -> None:
        """Forget every rule that is not used up."""
        with self._lock:
            self.cluster.faults.clear()

    # -- topics and leaders --------------------------------------------------------------------------------------------

    def create_topic(self, name: str, spec: TopicSpec | int = 1) -> None:
        """Make a topic, as an administrator would; raises ConfigError if that is not possible."""
        with self._lock:
            self.cluster.create_topic(name, spec)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records."""
        with self._lock:
            self.cluster.delete_topic(name)

    def recreate_topic(self, name: str, partitions: int | None = None) -> None:
        """Delete a topic and make it again, empty and with another id."""
        with self._lock:
            self.cluster.recreate_topic(name, partitions)

    def add_partitions(self, name: str, total: int) -> None:
        """Let a topic grow to ``total`` partitions."""
        with self._lock:
            self.cluster.add_partitions(name, total)

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Let another node lead the partition (-1: nobody), under the next leader epoch."""
        with self._lock:
            self.cluster.move_leader(topic, partition, to)

    def leader(self, topic: str, partition: int) -> int:
        """The node that leads the partition, -1 if none does."""
        with self._lock:
            return self.cluster.partition(topic, partition).leader

    def shrink_isr(self, topic: str, partition: int, to: Sequence[int]) -> None:
        """Let only these nodes be in sync: with fewer than min.insync.replicas, acks=all is refused."""
        with self._lock:
            self.cluster.partition(topic, partition).isr = list(to)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Move the start of the partition's log up."""
        with self._lock:
            self.cluster.partition(topic, partition).log.delete_records(before_offset)
            self._tell_change()

    def omit_from_metadata(self, topic: str, *, partition: int | None = None, times: int | None = 1) -> None:
        """Leave a topic, or one partition, out of the next ``times`` metadata answers that would tell of it."""
        with self._lock:
            self.cluster.omit_from_metadata(topic, partition=partition, times=times)

    # -- producers -----------------------------------------------------------------------------------------------------

    @property
    def next_producer_id(self) -> int:
        """The id that the next InitProducerId gets; may be set."""
        with self._lock:
            return self.cluster.next_producer_id

    @next_producer_id.setter
    def next_producer_id(self, value: int) -> None:
        with self._lock:
            self.cluster.next_producer_id = value

    @property
    def next_producer_epoch(self) -> int:
        """The epoch that InitProducerId gives, 0 unless set (a real broker always begins there)."""
        with self._lock:
            return self.cluster.next_producer_epoch

    @next_producer_epoch.setter
    def next_producer_epoch(self, value: int) -> None:
        with self._lock:
            self.cluster.next_producer_epoch = value

    def forget_producer(
        self,
        producer_id: int,
        *,
        topic: str | None = None,
        partition: int | None = None,
        unknown: bool = False,
    ) -> None:
        """Lose what the leaders know of a producer, so that any sequence is accepted next, as after retention.

        With ``unknown``, batches are refused with UNKNOWN_PRODUCER_ID until one starts at sequence 0, as brokers before
        2.5 do in any case.
        """
        with self._lock:
            self.cluster.forget_producer(producer_id, topic=topic, partition=partition, disown=unknown)

    def fence(self, producer_id: int) -> None:
        """Refuse what the producer sends under its present epoch (INVALID_PRODUCER_EPOCH)."""
        with self._lock:
            self.cluster.fence_producer(producer_id)

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def set_versions(
        self,
        versions: str | None = None,
        *,
        node: int | None = None,
        max_versions: Mapping[str, VersionRange | int] | None = None,
    ) -> None:
        """Let a node, or all, speak like another release, or up to the given versions."""
        with self._lock:
            self.cluster.set_versions(versions, node=node, max_versions=max_versions)

    def stop_node(self, node_id: int, *, elect: bool = False) -> None:
        """Take a node down: its connections break, and its port refuses new ones.

        The cluster has not noticed it yet, and metadata still names the node; with ``elect`` it has, the node is gone
        from metadata and other nodes in sync lead its partitions.
        """
        with self._lock:
            node = self.cluster.node(node_id)
        self._shell.run(self._shell.stop_listening(node_id))
        if elect:
            with self._lock:
                node.registered = False
                self.cluster.elect_without(node_id)

    def start_node(self, node_id: int) -> None:
        """Bring a stopped node back, on the port that it had."""
        with self._lock:
            node = self.cluster.node(node_id)
        self._shell.run(self._shell.listen(node_id))
        with self._lock:
            node.registered = True
            self.cluster.elect_with(node_id)

    def restart_on_new_port(self, node_id: int) -> None:
        """Stop a node and start it elsewhere; only metadata tells where."""
        self.stop_node(node_id)
        self._shell.run(self._shell.listen(node_id, new_port=True))

    def mute(self, node_id: int) -> None:
        """Let a node take connections and requests and do nothing with them; unmuted, it serves new connections."""
        with self._lock:
            self.cluster.node(node_id).muted = True

    def unmute(self, node_id: int) -> None:
        """Let a muted node serve its new connections; what it swallowed stays lost, and so do those connections."""
        with self._lock:
            self.cluster.node(node_id).muted = False

    def hold_reads(self, node_id: int) -> Hold:
        """Stop reading from the node's sockets, so that data piles up in the kernel, until the handle is released."""
        with self._lock:
            self.cluster.node(node_id)
        self._shell.run(self._shell.read(node_id, paused=True))
        return _LockedHold(
            self._lock,
            applied=False,
            let_go=lambda: self._shell.post(self._shell.read(node_id, paused=False)),
        )

    def disconnect(self, node_id: int | None = None) -> None:
        """Break the connections of a node, or all; requests that are held live on."""
        self._shell.run(self._shell.disconnect(node_id))


class _LockedHold(Hold):
    """A hold that the test's thread releases while the broker's thread looks at it."""

    def __init__(self, lock: threading.RLock, *, applied: bool, let_go: Callable[[], None] | None) -> None:
        super().__init__(applied=applied, let_go=let_go)
        self._lock = lock

    def release(self) -> None:
        with self._lock:
            super().release()


class _Shell:
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
            raise ConfigError("This FakeBroker was started before; make a new one.")
        # Not what the test's event loop policy says: this thread is no part of what is tested.
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
        """Have the broker's thread do this, and wait for it."""
        loop = self._loop
        if loop is None or threading.current_thread() is self._thread:
            work.close()
            why = "is not running" if loop is None else "cannot do that from within a control function"
            raise ConfigError(f"The FakeBroker {why}.")
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    def post(self, work: Coroutine[Any, Any, None]) -> None:
        """Have the broker's thread do this soon; nothing happens if it has ended."""
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
            raise ConfigError(f"Node {node_id} is running already.")
        listening = self._listeners[node_id] = reserved or self._bind(0)
        with self.lock:
            node = self.cluster.nodes[node_id]
            node.host, node.port = self._host, listening.getsockname()[1]
        listening.listen(_BACKLOG)
        # No asyncio.Server: one that is closed right after it accepted a connection forgets to close that (3.11).
        loop.add_reader(listening, self._accept, node_id, listening)

    def _accept(self, node_id: int, listening: socket.socket) -> None:
        try:
            accepted, _ = listening.accept()
        except OSError:  # it went away before it was accepted
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
        # Bound but not listening: connections are refused, and nobody else gets the port meanwhile.
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
        """Break the connections of a node that stops, or all, and forget what they were asked for."""
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
    """One client's connection: takes frames in, has them served one after the other, sends what comes of it."""

    def __init__(self, shell: _Shell, node_id: int) -> None:
        self.node_id = node_id
        self.task: asyncio.Task[None] | None = None
        self._shell = shell
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
        self._id = self._shell.register(self)
        self.task = self._loop.create_task(self._serve())

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        now = time.monotonic()
        try:
            self._frames.feed(data)
            for frame in self._frames:
                with self._shell.lock:
                    request = self._shell.cluster.receive(self.node_id, self._id, bytes(frame), now)
                self._inbox.append(request)
        except ProtocolError:
            self.abort()
        self._arrived.set()

    def eof_received(self) -> bool:
        self._no_more = True
        self._arrived.set()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        # What a reset connection had sent is void; what came before an orderly end counts (acks=0, then close).
        if error is not None:
            self._inbox.clear()
        self._no_more = True
        self._arrived.set()
        if not self.lost.done():
            self.lost.set_result(None)
        self._shell.cluster.on_change()

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
            self._shell.failures.append(error)
            self.abort()

    async def _next(self) -> ReceivedRequest | None:
        while not self._inbox:
            if self._no_more:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        return self._inbox.popleft()

    async def _carry_out(self, request: ReceivedRequest) -> None:
        with self._shell.lock:
            steps = self._shell.cluster.serve_received(request, _now_ms())
            effect = next(steps, None)
        try:
            while effect is not None:
                await self._do(effect)
                with self._shell.lock:
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
                await self._shell.wait_for_change(effect)
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

        with self._shell.lock:
            hold.on_release(wake)
        await released.wait()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _matches(wanted: Matcher, actual: bytes | None) -> bool:
    if isinstance(wanted, EllipsisType):
        return True
    if isinstance(wanted, str):
        return actual == wanted.encode()
    return bool(wanted(actual)) if callable(wanted) else actual == wanted


def _same_headers(wanted: HeadersInput | EllipsisType, actual: Sequence[tuple[str, bytes | None]]) -> bool:
    if isinstance(wanted, EllipsisType):
        return True
    pairs = wanted.items() if isinstance(wanted, Mapping) else wanted
    return [(name, _as_bytes(value)) for name, value in pairs] == list(actual)


def _as_bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else bytes(value)


class _Shown(NamedTuple):
    text: str
    fits: int


def _explain(
    topic: str,
    wanted: Mapping[str, object],
    times: int | None,
    found: Sequence[LoggedRecord],
    present: Sequence[LoggedRecord],
) -> str:
    asked = ", ".join(f"{name}={value!r}" for name, value in wanted.items() if not isinstance(value, EllipsisType))
    lines = [
        f"Expected {'at least one record' if times is None else f'{times} record(s)'} in topic {topic!r}"
        f"{' with ' + asked if asked else ''}; found {len(found)} among {len(present)}."
    ]
    for record in present[:20]:
        mark = "=" if record in found else "-"
        lines.append(
            f"  {mark} {record.partition}@{record.offset} key={record.key!r} value={record.value!r} "
            f"headers={list(record.headers)!r}"
        )
    if len(present) > 20:
        lines.append(f"  ... and {len(present) - 20} more")
    return "\n".join(lines)
