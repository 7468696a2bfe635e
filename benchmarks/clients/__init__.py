"""The clients that are compared, and what each of them can do; how they do it stands in the modules beside this one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from benchmarks.cases import Case, Workload

__all__ = ["CLIENTS", "OURS", "Client"]

_THROUGHPUT: Final = frozenset(
    {Workload.PIPELINED, Workload.CONCURRENT, Workload.BULK, Workload.TABLE, Workload.HEARTBEAT, Workload.THREADS}
)
#: A run is not worth much below this.
_FEWEST_RECORDS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Client:
    """One way of using one library."""

    name: str
    title: str
    #: Below ``benchmarks.clients``.
    module: str
    workloads: frozenset[Workload]
    #: Of a case's records, so that a round of a slow client also takes seconds, and not minutes.
    share: float = 1.0
    #: Whether it accepts keys and partitions.
    keyed: bool = True
    #: Whether it can talk to librdkafka's mock cluster.
    mock: bool = True
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    def can(self, case: Case, broker: str) -> bool:
        """Whether the case can be asked of it on that kind of broker."""
        if broker == "mock" and not self.mock:
            return False
        if case.clients is not None and self.name not in case.clients:
            return False
        if case.workload is Workload.TRANSACTIONS:
            return case.workload in self.workloads  # with partitions: Java has a program of ours for these
        return case.workload in self.workloads and (self.keyed or not (case.keyed or case.spread))

    def records(self, case: Case, most: int | None = None) -> int:
        """The number of records that it sends in one round."""
        count = case.records if most is None else min(case.records, most)
        if case.workload not in _THROUGHPUT:
            return count
        return max(round(count * self.share), min(count, _FEWEST_RECORDS))


def _clients() -> list[Client]:
    w = Workload
    pipelined = frozenset({w.PIPELINED})
    most = pipelined | {w.LONE, w.IDLE}
    steady = {w.STEADY}
    transactions = {w.TRANSACTIONS}
    threads = {w.THREADS, w.THREADS_LONE}
    asynchronous = most | {w.CONCURRENT, w.HEARTBEAT}
    return [
        Client("aioproducer", "aioproducer", "aioproducer_client",
               asynchronous | transactions | threads | steady | {w.BULK, w.TABLE, w.MEMORY}),
        Client("aioproducer-pure", "aioproducer, pure Python", "aioproducer_client", pipelined, 0.2,
               environment={"AIOPRODUCER_PURE": "1"}),
        Client("confluent", "confluent-kafka produce()", "confluent",
               most | transactions | threads | steady | {w.BULK, w.TABLE, w.MEMORY}),
        Client("confluent-batch", "confluent-kafka produce_batch()", "confluent_batch", frozenset({w.BULK, w.TABLE})),
        Client("confluent-aio", "confluent-kafka AIOProducer", "confluent_aio", asynchronous | {w.BULK}, 0.2),
        Client("aiokafka", "aiokafka", "aiokafka_client", asynchronous | transactions | steady | {w.BULK}, 0.2),
        Client("kafka-python", "kafka-python", "kafka_python", most, 0.05),
        # It finds no version of ApiVersions in common with the mock cluster, and asks for ever.
        Client("java", "Java", "java", pipelined | transactions, keyed=False, mock=False),
        Client("franz-go", "franz-go (Go)", "franz_go", most | {w.CONCURRENT}),
        Client("loop", "(an event loop alone)", "loop_alone", frozenset({w.HEARTBEAT, w.LONE, w.STEADY})),
        Client("socket", "a bare socket, encoded before", "bare_socket", frozenset({w.LONE, w.BULK, w.TABLE})),
    ]  # fmt: skip


#: By name, in the order of the reports.
CLIENTS: Final = {client.name: client for client in _clients()}
OURS: Final = "aioproducer"
