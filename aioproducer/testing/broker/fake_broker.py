"""FakeBroker: a Kafka cluster inside the test process, on real sockets, scripted by the test."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

from aioproducer.errors import ConfigError, KafkaTimeoutError
from aioproducer.protocol import ApiKey
from aioproducer.testing.broker.cluster_state import DEFAULT_PRODUCER_ID_EXPIRATION_MS
from aioproducer.testing.broker.fake_cluster import FakeCluster
from aioproducer.testing.broker.faults import FaultScript, Hold, Rule
from aioproducer.testing.broker.group_script import GroupScript
from aioproducer.testing.broker.record_matching import Matcher, explain, matches, same_headers
from aioproducer.testing.broker.server import BrokerConnection, BrokerServer
from aioproducer.testing.broker.transaction_script import TransactionScript
from aioproducer.testing.broker.versions import NEWEST_RELEASE, VersionRange, api_key_of

if TYPE_CHECKING:
    import ssl
    from typing import Self

    from aioproducer.testing.broker.cluster_state import TopicSpec
    from aioproducer.testing.broker.log import LoggedBatch, LoggedRecord
    from aioproducer.testing.broker.logins import Logins
    from aioproducer.testing.broker.request import ReceivedRequest
    from aioproducer.testing.broker.telemetry import Telemetry
    from aioproducer.types import HeadersInput

__all__ = ["FakeBroker"]

_PATIENCE = 5.0

#: The condition of ``wait_for``: a number of records in the log, or a function that returns true.
Condition: TypeAlias = "int | Callable[[FakeBroker], object]"


class FakeBroker(FaultScript, TransactionScript, GroupScript):
    """A cluster of fake brokers that listens on 127.0.0.1 while the ``with`` block runs.

    ::

        with FakeBroker(topics={"orders": 3}) as broker:
            async with Producer(broker.bootstrap_servers) as producer:
                await producer.send("orders", b"value")
            broker.assert_sent("orders", value=b"value")

    It validates requests as strictly as a real broker, and keeps everything for assertions. The ``brokers`` nodes are
    numbered from 1; topics without a replication factor have up to three replicas. ``versions`` is the Kafka release
    whose request versions it supports; ``max_versions`` lowers (or raises) single ones: ``{"Produce": 9}``, or a range
    ``{"Produce": (0, 9)}``. ``receive_buffer`` is the size of the sockets' receive buffers in bytes, for tests that
    want to fill them. With ``tls``, a server's SSL context, every listener uses TLS; with ``logins`` it requires a SASL
    login. With ``telemetry`` it subscribes to the metrics of clients.

    Every method may be called from any thread. The scripting methods are those of FaultScript: ``fail``, ``delay``,
    ``hold``, ``drop_connection``, ``swallow``, ``corrupt_answer``, ``throttle``, ``control``; those of TransactionScript
    are about transactions, those of GroupScript about consumer groups, which it coordinates for real consumers.
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
        logins: Logins | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self.cluster = FakeCluster(
            brokers, versions=versions, auto_create_topics=auto_create_topics, num_partitions=num_partitions
        )
        self.cluster.on_change = self._notify_change
        self.cluster.logins = self.logins = logins
        self.cluster.telemetry = telemetry
        self.cluster.set_versions(max_versions=max_versions)
        for name, spec in (topics or {}).items():
            self.cluster.create_topic(name, spec)
        self._server = BrokerServer(self.cluster, self._lock, host=host, receive_buffer=receive_buffer, tls=tls)
        self._watchers: list[Callable[[], None]] = []

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to listen. Raises ConfigError if it was started before."""
        self._server.start()

    def close(self) -> None:
        """Close every socket and end the thread; the logs stay readable. A second call does nothing.

        Raises the exception of a ``control`` function, if any, since it cannot be reported otherwise.
        """
        self._server.close()

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

    # -- addresses -----------------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all nodes, for the option ``bootstrap_servers``."""
        return ",".join(f"{host}:{port}" for host, port in self.addresses.values())

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        """Host and port of each node."""
        with self._lock:
            return {node.node_id: (node.host, node.port) for node in self.cluster.nodes.values()}

    def connections(self, node: int | None = None, *, closed: bool = False) -> list[BrokerConnection]:
        """The connections of a node, or of all, oldest first: the open ones, with ``closed`` also the closed ones."""
        with self._lock:
            known = self._server.connections()
        return [each for each in known if node in (None, each.node) and (closed or each.is_open)]

    # -- received requests ---------------------------------------------------------------------------------------------

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
        """The number of received requests of one API."""
        return len(self.requests_of(api, node=node))

    @property
    def counts(self) -> Counter[str]:
        """The number of received requests of each API, by name."""
        return Counter(request.api for request in self.requests)

    def forget_requests(self) -> None:
        """Empty ``requests``; the log is kept."""
        with self._lock:
            self.cluster.requests.clear()

    def records(
        self, topic: str | None = None, partition: int | None = None, *, committed: bool = False
    ) -> list[LoggedRecord]:
        """The records of a topic (None: of all) or of one partition, in order of partition and offset.

        ``committed`` returns only what a read_committed consumer gets: no aborted records, and nothing after the start of
        an open transaction. Raises ConfigError for a topic that does not exist.
        """
        with self._lock:
            logs = self.cluster.logs(topic, partition)
            return [record for log in logs for record in log.records(committed=committed)]

    def batches(self, topic: str | None = None, partition: int | None = None) -> list[LoggedBatch]:
        """The batches of a topic or partition; ``.raw`` are the bytes as stored, ``.sent`` as received."""
        with self._lock:
            return [batch for log in self.cluster.logs(topic, partition) for batch in log.batches]

    def json(self, topic: str, partition: int | None = None) -> list[Any]:
        """The values of a topic, parsed as JSON; None stays None."""
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
        """Fail the test unless exactly ``times`` records (None: at least one) of the topic match; returns them.

        ``value`` and ``key`` are bytes, text (compared as UTF-8), None, or a function that checks the bytes; omitted
        arguments match anything. ``headers`` must be equal, in order.
        """
        with self._lock:
            present = self.records(topic, partition) if topic in self.cluster.topics else []
        found = [
            record
            for record in present
            if matches(value, record.value) and matches(key, record.key) and same_headers(headers, record.headers)
        ]
        if len(found) == times or (times is None and found):
            return found
        wanted = {"value": value, "key": key, "headers": headers, "partition": ... if partition is None else partition}
        raise AssertionError(explain(topic, wanted, times, found, present))

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

        Cancellation: it stops waiting, without other effects.
        """
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the waiting event loop is closed
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
        return self._count_records(topic) >= what

    def _count_records(self, topic: str | None) -> int:
        with self._lock:
            there = topic is None or topic in self.cluster.topics
            return sum(len(log) for log in self.cluster.logs(topic)) if there else 0

    def _too_late(self, what: Condition, topic: str | None, timeout: float) -> KafkaTimeoutError:
        wanted = "the condition to become true" if callable(what) else f"{what} records"
        have = self._count_records(topic)
        where = "in the log" if topic is None else f"in topic {topic!r}"
        return KafkaTimeoutError(
            f"Waited {timeout} s without success for {wanted}; {have} records are {where}, requests so far: "
            f"{dict(self.counts)}."
        )

    def _notify_change(self) -> None:
        with self._changed:
            self._changed.notify_all()
            for wake in self._watchers:
                wake()
            self._server.wake_pollers()

    # -- faults --------------------------------------------------------------------------------------------------------

    def add_rule(self, rule: Rule) -> None:
        """Append a rule."""
        with self._lock:
            self.cluster.faults.add_rule(rule)

    def remove_rule(self, rule: Rule) -> None:
        """Remove a rule; does nothing if it is not there."""
        with self._lock:
            self.cluster.faults.remove_rule(rule)

    def make_hold(self, *, applied: bool, let_go: Callable[[], None]) -> Hold:
        """The handle that ``hold()`` returns; it may be released from any thread."""
        return _LockedHold(self._lock, applied=applied, let_go=let_go)

    def clear_faults(self) -> None:
        """Remove every rule that is not used up."""
        with self._lock:
            self.cluster.faults.clear()

    # -- topics and leaders --------------------------------------------------------------------------------------------

    def create_topic(self, name: str, spec: TopicSpec | int = 1) -> None:
        """Create a topic, as an administrator would; raises ConfigError if that is not possible."""
        with self._lock:
            self.cluster.create_topic(name, spec)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records."""
        with self._lock:
            self.cluster.delete_topic(name)

    def recreate_topic(self, name: str, partitions: int | None = None) -> None:
        """Delete a topic and create it again, empty and with a new id."""
        with self._lock:
            self.cluster.recreate_topic(name, partitions)

    def add_partitions(self, name: str, total: int) -> None:
        """Increase a topic's partitions to ``total``."""
        with self._lock:
            self.cluster.add_partitions(name, total)

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Make another node the leader of the partition (-1: none), with the next leader epoch."""
        with self._lock:
            self.cluster.move_leader(topic, partition, to)

    def leader(self, topic: str, partition: int) -> int:
        """The node that leads the partition, -1 if none does."""
        with self._lock:
            return self.cluster.partition(topic, partition).leader

    def shrink_isr(self, topic: str, partition: int, to: Sequence[int]) -> None:
        """Reduce the nodes in sync to these: with fewer than min.insync.replicas, acks=all is refused."""
        with self._lock:
            self.cluster.partition(topic, partition).isr = list(to)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Increase the first offset of the partition's log."""
        with self._lock:
            self.cluster.partition(topic, partition).log.delete_records(before_offset)
            self._notify_change()

    def omit_from_metadata(self, topic: str, *, partition: int | None = None, times: int | None = 1) -> None:
        """Leave a topic, or one partition, out of the next ``times`` metadata responses that would contain it."""
        with self._lock:
            self.cluster.omit_from_metadata(topic, partition=partition, times=times)

    # -- producers -----------------------------------------------------------------------------------------------------

    @property
    def next_producer_id(self) -> int:
        """The id that the next InitProducerId returns; may be set."""
        with self._lock:
            return self.cluster.next_producer_id

    @next_producer_id.setter
    def next_producer_id(self, value: int) -> None:
        with self._lock:
            self.cluster.next_producer_id = value

    @property
    def next_producer_epoch(self) -> int:
        """The epoch that InitProducerId returns, 0 unless set (a real broker always starts there)."""
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
        """Drop the leaders' state of a producer, so that any sequence is accepted next, as after retention.

        With ``unknown``, batches are refused with UNKNOWN_PRODUCER_ID until one starts at sequence 0, as brokers before
        2.5 do in any case.
        """
        with self._lock:
            self.cluster.forget_producer(producer_id, topic=topic, partition=partition, disown=unknown)

    def expire_producers(self, expiration_ms: int = DEFAULT_PRODUCER_ID_EXPIRATION_MS) -> None:
        """Lose what the leaders know of producers whose last batch is older than that, as real ones do every ten minutes.

        A batch is as old as its latest record says (for LogAppendTime: since it was written). A producer with an open
        transaction in a partition is kept there.
        """
        with self._lock:
            self.cluster.expire_producers(time.time_ns() // 1_000_000, expiration_ms)

    def fence(self, producer_id: int) -> None:
        """Refuse the producer's batches with its current epoch (INVALID_PRODUCER_EPOCH)."""
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
        """Let a node, or all, support the versions of another release, or up to the given versions."""
        with self._lock:
            self.cluster.set_versions(versions, node=node, max_versions=max_versions)

    def stop_node(self, node_id: int, *, elect: bool = False) -> None:
        """Stop a node: its connections break, and its port refuses new ones.

        The cluster does not notice it, and metadata still contains the node; with ``elect`` the cluster notices, the node
        is removed from metadata and other nodes in sync lead its partitions.
        """
        with self._lock:
            node = self.cluster.node(node_id)
        self._server.run(self._server.stop_listening(node_id))
        if elect:
            with self._lock:
                node.registered = False
                self.cluster.elect_without(node_id)

    def start_node(self, node_id: int) -> None:
        """Start a stopped node again, on its old port."""
        with self._lock:
            node = self.cluster.node(node_id)
        self._server.run(self._server.listen(node_id))
        with self._lock:
            node.registered = True
            self.cluster.elect_with(node_id)

    def restart_on_new_port(self, node_id: int) -> None:
        """Stop a node and start it on a new port, which only metadata contains."""
        self.stop_node(node_id)
        self._server.run(self._server.listen(node_id, new_port=True))

    def mute(self, node_id: int) -> None:
        """Let a node accept connections and requests but ignore them; once unmuted, it serves new connections."""
        with self._lock:
            self.cluster.node(node_id).muted = True

    def unmute(self, node_id: int) -> None:
        """Let a muted node serve new connections; ignored requests and their connections stay lost."""
        with self._lock:
            self.cluster.node(node_id).muted = False

    def hold_reads(self, node_id: int) -> Hold:
        """Stop reading from the node's sockets, so that data piles up in the kernel, until the handle is released."""
        with self._lock:
            self.cluster.node(node_id)
        self._server.run(self._server.read(node_id, paused=True))
        return _LockedHold(
            self._lock,
            applied=False,
            let_go=lambda: self._server.post(self._server.read(node_id, paused=False)),
        )

    def disconnect(self, node_id: int | None = None) -> None:
        """Break the connections of a node, or all; held requests are kept."""
        self._server.run(self._server.disconnect(node_id))


class _LockedHold(Hold):
    """A hold that the test's thread may release while the broker's thread checks it."""

    def __init__(self, lock: threading.RLock, *, applied: bool, let_go: Callable[[], None] | None) -> None:
        super().__init__(applied=applied, let_go=let_go)
        self._lock = lock

    def release(self) -> None:
        with self._lock:
            super().release()


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
