"""Real Apache Kafka, one broker: the authority, and a process that takes its share of the machine."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from aioproducer.testing.kafka import KafkaCluster, KafkaUnavailable
from benchmarks.unavailable import Unavailable

__all__ = ["RUN_FAST", "RealKafka"]

#: The JVM's own default, in place of the one for a short life that a test has.
RUN_FAST = ["-XX:TieredStopAtLevel=4"]

_PROPERTIES = {"log.segment.delete.delay.ms": "1000", "message.max.bytes": "2097152"}


class RealKafka:
    """A KRaft controller and a broker on this machine."""

    is_mock = False

    def __init__(self) -> None:
        self._cluster = KafkaCluster(properties=_PROPERTIES, heap="1g", jvm_options=RUN_FAST)
        self.title = f"Apache Kafka {self._cluster.version}, one broker"

    def __enter__(self) -> Self:
        try:
            self._cluster.open()
        except KafkaUnavailable as error:
            raise Unavailable(str(error)) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._cluster.close()

    @property
    def servers(self) -> str:
        """``host:port``."""
        return self._cluster.bootstrap_servers

    @property
    def pid(self) -> int | None:
        """The broker's process."""
        return self._cluster.pid(1)

    def create_topic(self, name: str, partitions: int) -> None:
        """Make it and wait until it has leaders."""
        self._cluster.create_topic(name, partitions)

    def delete_topic(self, name: str) -> None:
        """Give its disk back, a second later."""
        self._cluster.delete_topic(name)
