"""FakeBroker: a Kafka cluster inside the test process, on real sockets, that does what the test tells it to."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

from aioproducer.errors import ConfigError, KafkaTimeoutError
from aioproducer.protocol import ApiKey
from aioproducer.testing.broker.fake_cluster import FakeCluster
from aioproducer.testing.broker.faults import FaultScript, Hold, Rule
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
    from aioproducer.types import HeadersInput

__all__ = ["FakeBroker"]

_PATIENCE = 5.0

#: What ``wait_for`` waits for: so many records in the log, or whatever the function says.
Condition: TypeAlias = "int | Callable[[FakeBroker], object]"


class FakeBroker(FaultScript, TransactionScript):
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
    want to fill them. With ``tls``, a server's SSL context, every listener speaks TLS; with ``logins`` it wants one
    by SASL.

    Every method may be called from any thread. The scripting methods are those of FaultScript: ``fail``, ``delay``,
    ``hold``, ``drop_connection``, ``swallow``, ``corrupt_answer``, ``throttle``, ``control``; those of TransactionScript
    are about transactions and groups.
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
    ) -> None:
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self.cluster = FakeCluster(
            brokers, versions=versions, auto_create_topics=auto_create_topics, num_partitions=num_partitions
        )
        self.cluster.on_change = self._tell_change
        self.cluster.logins = self.logins = logins
        self.cluster.set_versions(max_versions=max_versions)
        for name, spec in (topics or {}).items():
            self.cluster.create_topic(name, spec)
        self._server = BrokerServer(self.cluster, self._lock, host=host, receive_buffer=receive_buffer, tls=tls)
        self._watchers: list[Callable[[], None]] = []

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Listen. Raises ConfigError if it was started before."""
        self._server.start()

    def close(self) -> None:
        """Close every socket and end the thread; what was logged stays readable. A second call does nothing.

        Raises what a ``control`` function raised meanwhile, since nobody else could tell.
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
            known = self._server.connections()
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

    def records(
        self, topic: str | None = None, partition: int | None = None, *, committed: bool = False
    ) -> list[LoggedRecord]:
        """The records of a topic (None: of all) or of one partition, in order of partition and offset.

        ``committed`` leaves out what a read_committed consumer does not get: aborted records, and everything behind the
        beginning of an open transaction. Raises ConfigError for a topic that does not exist.
        """
        with self._lock:
            logs = self.cluster.logs(topic, partition)
            return [record for log in logs for record in log.records(committed=committed)]

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
        return self._count_records(topic) >= what

    def _count_records(self, topic: str | None) -> int:
        with self._lock:
            there = topic is None or topic in self.cluster.topics
            return sum(len(log) for log in self.cluster.logs(topic)) if there else 0

    def _too_late(self, what: Condition, topic: str | None, timeout: float) -> KafkaTimeoutError:
        wanted = "the condition came true" if callable(what) else f"{what} records were there"
        have = self._count_records(topic)
        where = "in the log" if topic is None else f"in topic {topic!r}"
        return KafkaTimeoutError(
            f"Waited {timeout} s before {wanted}; {have} records are {where}, requests so far: {dict(self.counts)}."
        )

    def _tell_change(self) -> None:
        with self._changed:
            self._changed.notify_all()
            for wake in self._watchers:
                wake()
            self._server.wake_pollers()

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
        self._server.run(self._server.stop_listening(node_id))
        if elect:
            with self._lock:
                node.registered = False
                self.cluster.elect_without(node_id)

    def start_node(self, node_id: int) -> None:
        """Bring a stopped node back, on the port that it had."""
        with self._lock:
            node = self.cluster.node(node_id)
        self._server.run(self._server.listen(node_id))
        with self._lock:
            node.registered = True
            self.cluster.elect_with(node_id)

    def restart_on_new_port(self, node_id: int) -> None:
        """Stop a node and start it elsewhere; only metadata tells where."""
        self.stop_node(node_id)
        self._server.run(self._server.listen(node_id, new_port=True))

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
        self._server.run(self._server.read(node_id, paused=True))
        return _LockedHold(
            self._lock,
            applied=False,
            let_go=lambda: self._server.post(self._server.read(node_id, paused=False)),
        )

    def disconnect(self, node_id: int | None = None) -> None:
        """Break the connections of a node, or all; requests that are held live on."""
        self._server.run(self._server.disconnect(node_id))


class _LockedHold(Hold):
    """A hold that the test's thread releases while the broker's thread looks at it."""

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
