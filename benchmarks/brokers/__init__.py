"""The brokers that are sent to, each in its own process, with topics made and removed for each run."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from benchmarks.brokers.kafka import RealKafka
from benchmarks.brokers.mock import MockCluster
from benchmarks.brokers.read_back import count_committed, count_records, wait_led

__all__ = ["BROKERS", "Broker", "count_committed", "count_records", "wait_led"]


class Broker(Protocol):
    """A single broker that runs."""

    #: As it is called in reports.
    title: str
    #: Whether it is one that some clients need a hint for.
    is_mock: bool

    @property
    def servers(self) -> str:
        """``host:port``."""
        ...

    @property
    def pid(self) -> int | None:
        """Its process, to be paused."""
        ...

    def create_topic(self, name: str, partitions: int) -> None:
        """Make it and wait until it has leaders."""
        ...

    def delete_topic(self, name: str) -> None:
        """Give its disk or memory back."""
        ...


#: What makes a broker of a kind, by the name that the command line takes.
BROKERS: dict[str, type[AbstractContextManager[Broker]]] = {"mock": MockCluster, "kafka": RealKafka}
