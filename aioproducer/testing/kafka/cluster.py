"""Real Apache Kafka for tests: a KRaft cluster of processes on this machine, which tests can kill and restart."""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import anyio
import anyio.to_thread

from aioproducer.errors import KafkaError
from aioproducer.testing.admin import Admin
from aioproducer.testing.kafka.formatted import FormattedDirectory
from aioproducer.testing.kafka.jars import DEFAULT_KAFKA_VERSION, KafkaJars
from aioproducer.testing.kafka.node import KafkaNode, KafkaStartError
from aioproducer.testing.kafka.process_guard import ProcessGuard
from aioproducer.testing.kafka.properties import CONTROLLER_ID, ClusterProperties

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from aioproducer.testing.kafka.security import KafkaSecurity

__all__ = ["Kafka", "KafkaCluster"]

_CLUSTER_ID: Final = "YWlvcHJvZHVjZXItdGVzdA"  # a uuid in base64, as `kafka-storage random-uuid` would give
_START_TIMEOUT: Final = 120.0
_TOPIC_TIMEOUT: Final = 30.0
_STOP_TIMEOUT: Final = 15.0
#: Writing a class archive takes seconds of CPU; it happens once for each Kafka version on a machine.
_RECORDING_TIMEOUT: Final = 60.0
_POLL_INTERVAL: Final = 0.05

#: What was formatted in this process, by version and arguments.
_formatted: Final[dict[tuple[str, ...], FormattedDirectory]] = {}


class Kafka:
    """A Kafka for tests: its address, and methods to create and delete topics.

    This class is for an existing cluster; KafkaCluster runs its own.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers

    @property
    def bootstrap_servers(self) -> str:
        """The addresses for a producer: ``host:port,host:port``."""
        return self._bootstrap_servers

    @property
    def admin(self) -> Admin:
        """An admin client for all brokers."""
        return Admin(self.bootstrap_servers)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create the topic and wait until every broker knows a leader for each of its partitions.

        Raises BrokerError if the broker refuses, TimeoutError if a leader is missing for 30 seconds.
        """
        self.admin.create_topic(name, partitions, replication_factor, config)
        self._wait_until(
            lambda: all(admin.leaders(name).keys() == set(range(partitions)) for admin in self._admins()),
            f"no leader for each of the {partitions} partition(s) of topic {name!r}",
        )

    def delete_topic(self, name: str) -> None:
        """Delete the topic and wait until no broker lists it any more."""
        self.admin.delete_topic(name)
        self._wait_until(
            lambda: all(name not in admin.topics() for admin in self._admins()), f"topic {name!r} is still listed"
        )

    def leader_of(self, topic: str, partition: int) -> int:
        """The id of the broker that leads the partition.

        Raises LookupError if there is no such partition, or it has no leader now.
        """
        leader = self.admin.leaders(topic).get(partition)
        if leader is None:
            raise LookupError(f"Partition {topic}-{partition} has no leader now.")
        return leader

    def _admins(self) -> Sequence[Admin]:
        return [Admin(address) for address in self.bootstrap_servers.split(",")]

    def _check(self) -> None:
        """Raise if waiting is pointless."""

    def _wait_until(self, condition: Callable[[], bool], otherwise: str, timeout: float = _TOPIC_TIMEOUT) -> None:
        deadline = time.monotonic() + timeout
        last_error: KafkaError | None = None
        while True:
            try:
                if condition():
                    return
            except KafkaError as error:
                last_error = error
            self._check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"After {timeout:g} s: {otherwise} (brokers at {self.bootstrap_servers}).") from (
                    last_error
                )
            time.sleep(_POLL_INTERVAL)


class KafkaCluster(Kafka):
    """One controller and some brokers in separate processes, on free ports and in a temporary directory.

    ::

        with KafkaCluster(brokers=3) as kafka:
            kafka.create_topic("orders", partitions=6, replication_factor=3)
            ...
            kafka.kill(kafka.leader_of("orders", 0))

    Brokers have the ids 1, 2, ... and the controller ``CONTROLLER_ID``, so that the metadata quorum survives when
    brokers are killed. Starting takes 1.3 seconds for one broker and 3 for three on two quiet cores; the first cluster of
    a Kafka version on a machine takes three times that. Nothing outlives the process that started it.

    ``properties`` are broker and controller properties in Kafka's spelling. ``features`` are feature levels given to the
    formatting, for example ``{"transaction.version": 1}``. ``listeners`` adds listeners by name and security protocol,
    for example ``{"SASL": "SASL_PLAINTEXT"}``, with ``bootstrap("SASL")`` to reach them; what they need goes into
    ``properties``. ``scram_users`` are names and passwords. ``advertise(broker_id, port)`` may give another
    ``host:port`` for clients to be sent to, such as a proxy's. ``security`` adds listeners with TLS and logins, and an
    authorizer. ``jvm_options`` are for the brokers' JVMs, for example system properties (``-Dname=value``); to measure
    throughput, pass ``["-XX:TieredStopAtLevel=4"]``, as by default these JVMs start quickly rather than run fast.
    ``plugins`` is a jar with classes for brokers and controller that ``properties`` name, such as a metrics reporter.
    ``first_port``: broker 1 listens for clients on this port, broker 2 on the next one, and so on.

    Methods block; from async code call them through ``anyio.to_thread.run_sync``. ``async with`` does that itself.
    """

    def __init__(
        self,
        version: str = DEFAULT_KAFKA_VERSION,
        brokers: int = 1,
        *,
        properties: Mapping[str, str] | None = None,
        heap: str = "512m",
        features: Mapping[str, int] | None = None,
        listeners: Mapping[str, str] | None = None,
        scram_users: Mapping[str, str] | None = None,
        advertise: Callable[[int, int], str] | None = None,
        security: KafkaSecurity | None = None,
        jvm_options: Sequence[str] = (),
        plugins: Path | None = None,
        first_port: int | None = None,
    ) -> None:
        super().__init__("")
        self.version = version
        self.broker_ids: Sequence[int] = range(1, brokers + 1)
        self._properties = {**(security.properties() if security else {}), **(properties or {})}
        self._heap = heap
        self._jvm_options = (*(security.jvm_options if security else ()), *jvm_options)
        self._plugins = plugins
        self._first_port = first_port
        self._features = dict(features or {})
        self._protocols = {"INTERNAL": "PLAINTEXT", "CLIENT": "PLAINTEXT", **(listeners or {})}
        if security is not None:
            self._protocols |= security.listeners
        self._scram_users = {**(security.users if security else {}), **(scram_users or {})}
        self._advertise = advertise or _advertise_itself
        self._nodes: dict[int, KafkaNode] = {}
        self._ports: dict[int, dict[str, int]] = {}
        self._closing = contextlib.ExitStack()

    @property
    def bootstrap_servers(self) -> str:
        """The plaintext listeners of all brokers, running or not: ``127.0.0.1:port,...``."""
        return self.bootstrap("CLIENT")

    def bootstrap(self, listener: str) -> str:
        """The addresses of a listener on all brokers."""
        return ",".join(f"127.0.0.1:{self.port(broker_id, listener)}" for broker_id in self.broker_ids)

    def port(self, broker_id: int, listener: str = "CLIENT") -> int:
        """The port of a broker's listener; it stays the same over restarts."""
        try:
            return self._ports[broker_id][listener]
        except KeyError:
            known = (
                ", ".join(f"{i}/{name}" for i, names in self._ports.items() for name in names)
                or "none: the cluster is not running"
            )
            raise LookupError(f"There is no listener {broker_id}/{listener}; known are {known}.") from None

    def open(self) -> Self:
        """Start everything and wait until topics can be created.

        Raises KafkaUnavailable if Java or the jars are missing, KafkaStartError if Kafka does not start.
        """
        if self._nodes:
            raise RuntimeError("This KafkaCluster is already running.")
        try:
            self._open(KafkaJars.get(self.version))
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """End every process and remove all data. The cluster can be opened again, empty."""
        recording = [node for node in self._nodes.values() if node.is_recording]
        for node in sorted(
            recording, key=lambda node: node.node_id
        ):  # a broker does not stop after its controller has stopped
            node.terminate(_RECORDING_TIMEOUT)
        self._closing.close()
        self._nodes.clear()
        self._ports.clear()

    def start(self, broker_id: int) -> None:
        """Start a killed or stopped broker, with its data and ports, and wait until it serves.

        It serves when it is in its own metadata, and leads the partitions that only it can lead.
                Raises KafkaStartError if it ends instead.
        """
        node = self._node(broker_id)
        if node.is_running:
            raise RuntimeError(f"Node {broker_id} is already running; kill() or stop() it first.")
        node.start(record=True)
        self._wait_serving([broker_id] if broker_id in self.broker_ids else self._answering_brokers)

    def kill(self, broker_id: int) -> None:
        """SIGKILL, as in a crash of the process. Its ports refuse connections until ``start``."""
        self._node(broker_id).kill()

    def stop(self, broker_id: int) -> None:
        """A clean shutdown, which moves leaders away first; SIGKILL if it takes longer than 15 seconds."""
        self._node(broker_id).terminate(_STOP_TIMEOUT)

    def upgrade(self, broker_id: int, version: str) -> None:
        """Run this Kafka version from the next ``start`` on, with the same data; the feature levels stay."""
        self._node(broker_id).use(KafkaJars.get(version))

    def pause(self, broker_id: int) -> None:
        """SIGSTOP: the broker keeps its connections but does not respond. After 3 seconds it is fenced."""
        self._node(broker_id).pause()

    def resume(self, broker_id: int) -> None:
        """SIGCONT after ``pause``; a fenced broker at first acts as if it still led its partitions."""
        self._node(broker_id).resume()

    def is_running(self, broker_id: int) -> bool:
        """Whether the process is alive; a paused one is."""
        return self._node(broker_id).is_running

    def pid(self, broker_id: int) -> int | None:
        """The process id, None if it is not running."""
        return self._node(broker_id).pid

    def log(self, broker_id: int) -> str:
        """The broker's log (warnings and errors), for the message of a failed test."""
        return self._node(broker_id).log

    def data_directory(self, broker_id: int) -> Path:
        """The directory of the broker's partitions, each in ``<topic>-<partition>``."""
        return self._node(broker_id).data_directory

    @property
    def admin(self) -> Admin:
        """An admin client for the running brokers, on a separate listener that bypasses proxies and logins."""
        return Admin(",".join(self._internal_address(broker_id) for broker_id in self._answering_brokers))

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        try:
            return await anyio.to_thread.run_sync(self.open)
        except BaseException:
            # Cancelled: the thread has finished anyway, and __aexit__ will not be called.
            await self.__aexit__(None, None, None)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.close)

    # Starting

    def _open(self, jars: KafkaJars) -> None:
        directory = Path(tempfile.mkdtemp(prefix="aioproducer-kafka-"))
        self._closing.callback(shutil.rmtree, directory, ignore_errors=True)
        guard = ProcessGuard(directory)
        self._closing.callback(self._kill_all, guard)

        properties = ClusterProperties(
            version=self.version,
            controller_port=self._reserve_port(),
            ports=self._reserve_ports(),
            protocols=self._protocols,
            advertise=self._advertise,
            extra=self._properties,
        )
        self._nodes[CONTROLLER_ID] = KafkaNode(
            CONTROLLER_ID,
            "controller",
            directory,
            properties.controller(),
            jars=jars,
            heap="256m",
            guard=guard,
            plugins=self._plugins,
        )
        for broker_id in self.broker_ids:
            self._nodes[broker_id] = KafkaNode(
                broker_id,
                "broker",
                directory,
                properties.broker(broker_id),
                jars=jars,
                heap=self._heap,
                guard=guard,
                jvm_options=self._jvm_options,
                plugins=self._plugins,
            )
        self._start_all()

    def _start_all(self) -> None:
        nodes = list(self._nodes.values())
        self._format(nodes)
        # One process of each kind records its classes, unless that has been done on this machine.
        for node in nodes:
            node.start(record=node in nodes[:2])
        self._wait_serving(self.broker_ids)

    def _format(self, nodes: Sequence[KafkaNode]) -> None:
        arguments = self._format_arguments()
        kind = (self.version, *arguments)
        formatted, others = _formatted.get(kind), nodes
        if formatted is None:
            first, *others = nodes
            formatted = _formatted[kind] = first.format(_CLUSTER_ID, arguments)
        for node in others:
            formatted.write(node.data_directory, node.node_id)

    def _wait_serving(self, broker_ids: Sequence[int]) -> None:
        answering = set(self._answering_brokers)
        try:
            self._wait_until(
                lambda: all(self._serves(broker_id, answering) for broker_id in broker_ids),
                f"not all of the brokers {sorted(broker_ids)} answer requests",
                _START_TIMEOUT,
            )
        except TimeoutError as error:
            tails = [self._node(broker_id).log_tail for broker_id in broker_ids]
            raise KafkaStartError("\n".join([str(error), *tails])) from error

    def _serves(self, broker_id: int, answering: set[int]) -> bool:
        admin = Admin(self._internal_address(broker_id))
        if not (admin.broker_ids() >= answering and not admin.leaderless(broker_id)):
            return False
        # A broker listens and serves metadata before the controller allows topics on it.
        admin.create_topic("is-it-ready", 1, len(answering), validate_only=True)
        return True

    def _check(self) -> None:
        for node in self._nodes.values():
            node.check()

    # Ending

    def _kill_all(self, guard: ProcessGuard) -> None:
        guard.kill()
        for node in self._nodes.values():
            node.reap()

    # Configuration

    def _reserve_ports(self) -> Mapping[int, Mapping[str, int]]:
        self._ports = {
            i: {name: self._reserve_port(self._chosen_port(i, name)) for name in self._protocols}
            for i in self.broker_ids
        }
        return self._ports

    def _chosen_port(self, broker_id: int, listener: str) -> int:
        """The port that the user chose; 0: a free one."""
        if self._first_port is None or listener != "CLIENT":
            return 0
        return self._first_port + broker_id - 1

    def _reserve_port(self, wanted: int = 0) -> int:
        """A port that is reserved until the cluster closes.

        The socket is bound and never listens: Java can also bind the port, a killed broker's port still refuses
        connections, and the kernel does not assign it to others, not even as the local port of a client that connects to
        the killed broker, which would then be connected to itself.
        """
        reserved = self._closing.enter_context(socket.socket())
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            reserved.bind(("127.0.0.1", wanted))
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else "ports end at 65535"
            raise KafkaStartError(f"Port {wanted} of 127.0.0.1 cannot be used: {reason}.") from error
        port: int = reserved.getsockname()[1]
        return port

    def _format_arguments(self) -> list[str]:
        arguments: list[str] = []
        for name, level in self._features.items():
            arguments += ["--feature", f"{name}={level}"]
        for user, password in self._scram_users.items():
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                arguments += ["-S", f"{mechanism}=[name={user},password={password}]"]
        return arguments

    # Brokers

    @property
    def _answering_brokers(self) -> Sequence[int]:
        return [broker_id for broker_id in self.broker_ids if self._node(broker_id).answers]

    def _admins(self) -> Sequence[Admin]:
        return [Admin(self._internal_address(broker_id)) for broker_id in self._answering_brokers]

    def _internal_address(self, broker_id: int) -> str:
        return f"127.0.0.1:{self.port(broker_id, 'INTERNAL')}"

    def _node(self, broker_id: int) -> KafkaNode:
        try:
            return self._nodes[broker_id]
        except KeyError:
            known = ", ".join(map(str, self._nodes)) or "none: the cluster is not running"
            raise LookupError(f"There is no node {broker_id}; known are {known}.") from None


def _advertise_itself(_broker_id: int, port: int) -> str:
    return f"127.0.0.1:{port}"
