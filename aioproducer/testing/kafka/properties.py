"""The properties files of a small KRaft cluster: one controller and some brokers on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["CONTROLLER_ID", "ClusterProperties"]

#: The node id of the dedicated controller; brokers are numbered from 1.
CONTROLLER_ID: Final = 100

#: Properties for a small cluster that detects lost brokers quickly and keeps all records.
_SMALL_AND_QUICK: Final = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "5000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "log.cleaner.dedupe.buffer.size": "16777216",
    "log.segment.bytes": "67108864",
    # Otherwise the controller writes a record every half second: a quarter of the CPU time of an idle node.
    "metadata.max.idle.interval.ms": "0",
    "unclean.leader.election.enable": "false",
    # A test may use timestamps of 1970; the log cleaner would remove such records 30 seconds after the start.
    "log.retention.ms": "-1",
}


@dataclass(frozen=True, slots=True)
class ClusterProperties:
    """The input for a cluster's properties files; the user's ``extra`` properties override all others."""

    version: str
    controller_port: int
    #: By broker id, then by the listener's name.
    ports: Mapping[int, Mapping[str, int]]
    #: The security protocol of each listener, including INTERNAL, which brokers use among themselves.
    protocols: Mapping[str, str]
    #: The advertised address for clients, from a broker id and the listener's port.
    advertise: Callable[[int, int], str]
    extra: Mapping[str, str]

    def controller(self) -> dict[str, str]:
        """The controller's properties."""
        return {
            **self._common(),
            "process.roles": "controller",
            "node.id": str(CONTROLLER_ID),
            "listeners": f"CONTROLLER://127.0.0.1:{self.controller_port}",
            "default.replication.factor": str(self._replicas),
            **self.extra,
        }

    def broker(self, broker_id: int) -> dict[str, str]:
        """A broker's properties."""
        ports = self.ports[broker_id]
        listeners = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        advertised = {name: self.advertise(broker_id, port) for name, port in ports.items() if name != "INTERNAL"}
        # Kafka 4 asks the controller instead, and warns repeatedly if a broker also has this property.
        replication = {"default.replication.factor": str(self._replicas)} if self.version.startswith("3.") else {}
        return {
            **self._common(),
            "process.roles": "broker",
            "node.id": str(broker_id),
            "listeners": _pairs(listeners, "://"),
            "advertised.listeners": _pairs(listeners | advertised, "://"),
            "inter.broker.listener.name": "INTERNAL",
            **replication,
            **self.extra,
        }

    def _common(self) -> dict[str, str]:
        replicas, in_sync = str(self._replicas), str(max(self._replicas - 1, 1))
        return {
            **_SMALL_AND_QUICK,
            "controller.quorum.voters": f"{CONTROLLER_ID}@127.0.0.1:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": _pairs({"CONTROLLER": "PLAINTEXT", **self.protocols}, ":"),
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": in_sync,
        }

    @property
    def _replicas(self) -> int:
        return min(len(self.ports), 3)


def _pairs(mapping: Mapping[str, str], between: str) -> str:
    return ",".join(f"{name}{between}{value}" for name, value in mapping.items())
