"""Logins of ten seconds under full load (KIP-368): the broker counts renewals, and Java's consumer what was written."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from aioproducer import Producer
from aioproducer.testing.certificates import CertificateAuthority
from aioproducer.testing.kafka import KafkaCluster, KafkaUnavailable
from aioproducer.testing.kafka.jars import KafkaJars
from aioproducer.testing.kafka.java_tools import JavaTools, PartitionDigest, RecordDigest
from aioproducer.testing.kafka.jvm import JavaProgram
from aioproducer.testing.kafka.security import KafkaSecurity
from tests.needs import not_here
from tests.security.real_kafka import USERS, options

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PARTITIONS = 3
SECONDS = 120.0
SESSION_S = 10.0
TAIL = b"x" * 90

#: At 85 to 95 % of a session the next one begins.
LEAST_RENEWALS = int(SECONDS / (0.95 * SESSION_S)) - 1


class CountedCluster:
    """A broker at whose listener REAUTH logins last ten seconds, and which says how many were renewed there."""

    def __init__(self, kafka: KafkaCluster, jmx_port: int) -> None:
        self.kafka = kafka
        self.tools = JavaTools(KafkaJars.get(kafka.version))
        self._jmx_port = jmx_port

    def renewals(self) -> int:
        """The broker's own metric, from when it was started."""
        program = JavaProgram(KafkaJars.get(self.kafka.version), "org.apache.kafka.tools.JmxTool", "jmx")
        command = program.command_without_recording(
            *("--jmx-url", f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{self._jmx_port}/jmxrmi"),
            *("--object-name", "kafka.server:type=socket-server-metrics,listener=REAUTH,networkProcessor=*"),
            *("--attributes", "successful-reauthentication-total"),
            *("--one-time", "--report-format", "properties"),
        )
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        counts = re.findall(r"successful-reauthentication-total=([0-9.]+)", done.stdout)
        assert counts, done.stdout + done.stderr
        return int(sum(map(float, counts)))

    def read(self, topic: str) -> dict[int, PartitionDigest]:
        """The records that Java's consumer finds."""
        return self.tools.digest(self.kafka.bootstrap_servers, topic)


@pytest.fixture(scope="module", params=["4.3.1", "3.9.2"])
def cluster(request: pytest.FixtureRequest, authority: CertificateAuthority) -> Iterator[CountedCluster]:
    security = KafkaSecurity(authority, USERS, super_users=["alice"], reauth_ms=int(SESSION_S * 1000))
    with socket.socket() as reserved:  # bound without listening: the JVM can bind the port beside it
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        jmx = "-Dcom.sun.management.jmxremote"
        jvm_options = [f"{jmx}.port={port}", f"{jmx}.rmi.port={port}", f"{jmx}.host=127.0.0.1", f"{jmx}.ssl=false"]
        jvm_options += [f"{jmx}.authenticate=false", "-Djava.rmi.server.hostname=127.0.0.1"]
        try:
            with KafkaCluster(request.param, security=security, jvm_options=jvm_options) as kafka:
                yield CountedCluster(kafka, port)
        except KafkaUnavailable as error:
            not_here(str(error))


@dataclass
class Flood:
    """The records that one producer sent, as a digest for each partition, and their outcomes."""

    topic: str
    sent: Mapping[int, RecordDigest] = field(
        default_factory=lambda: {partition: RecordDigest() for partition in range(PARTITIONS)}
    )
    total: int = 0
    connections_lost: int = 0

    async def run(self, servers: str, given: Mapping[str, Any]) -> None:
        """Enqueue as fast as the producer takes it; fail unless each record was delivered."""
        async with Producer(servers, **given) as producer:
            await producer.ready(30)
            await self._enqueue(producer, b"first")
            await producer.flush()
            first = leaders(producer)
            ends = time.monotonic() + SECONDS
            while time.monotonic() < ends:
                for _ in range(500):
                    await self._enqueue(producer, b"%010d" % self.total + TAIL)
                await asyncio.sleep(0)
            await producer.flush()
            self.connections_lost = len(first - leaders(producer))
            report = await producer.close()
        assert (report.delivered, report.failed, report.unknown) == (self.total, 0, 0)

    async def _enqueue(self, producer: Producer, value: bytes) -> None:
        partition = self.total % PARTITIONS
        await producer.enqueue(self.topic, value, partition=partition)
        self.sent[partition].add(None, value)
        self.total += 1


def leaders(producer: Producer) -> set[Any]:
    """The connections to the brokers of the cluster."""
    engine: Any = producer._engine
    return {broker.connection for broker in engine.client._brokers.connected() if broker.node.id >= 0}


def faults(sent: Mapping[int, RecordDigest], read: Mapping[int, PartitionDigest]) -> list[str]:
    """The faults of a topic: partitions that do not hold exactly these records in this order."""
    found = []
    for partition in sent.keys() | read.keys():
        wanted, there = sent.get(partition, RecordDigest()), read.get(partition)
        count = 0 if there is None else there.count
        if count != wanted.count:
            found.append(f"partition {partition}: {wanted.count} sent, {count} read")
        elif there is not None and (there.sha256 != wanted.hexdigest() or not there.offsets_ascend):
            found.append(f"partition {partition}: other records, or another order")
    return found


async def test_renewed_logins_disturb_no_send(
    cluster: CountedCluster, authority: CertificateAuthority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "aioproducer")
    floods = {mechanism: Flood(f"full-load-{mechanism.lower()}") for mechanism in MECHANISMS}
    for flood in floods.values():
        cluster.kafka.create_topic(flood.topic, PARTITIONS)

    async with asyncio.TaskGroup() as group:
        for mechanism, flood in floods.items():
            group.create_task(flood.run(cluster.kafka.bootstrap("REAUTH"), options(authority, "REAUTH", mechanism)))

    renewed = {
        mechanism: sum(f"The {mechanism} login" in line and "was renewed" in line for line in caplog.messages)
        for mechanism in MECHANISMS
    }
    found = [fault for flood in floods.values() for fault in faults(flood.sent, cluster.read(flood.topic))]
    assert found == []
    assert {m: flood.connections_lost for m, flood in floods.items()} == dict.fromkeys(MECHANISMS, 0)
    assert all(flood.total > 100_000 for flood in floods.values())
    assert all(count >= LEAST_RENEWALS for count in renewed.values()), renewed
    assert cluster.renewals() == sum(renewed.values())
    assert not [line for line in caplog.messages if "not renewed" in line or "could not be renewed" in line]


#: How a log can differ from what was sent, as the values of its one partition.
DAMAGE: Mapping[str, Sequence[bytes]] = {
    "lost": [b"0", b"2"],
    "doubled": [b"0", b"1", b"1", b"2"],
    "another order": [b"0", b"2", b"1"],
    "lost and doubled": [b"0", b"2", b"2"],
}


@pytest.mark.parametrize("what", DAMAGE)
async def test_the_reader_finds_each_fault(cluster: CountedCluster, what: str) -> None:
    topic = f"damaged-{what.replace(' ', '-')}"
    cluster.kafka.create_topic(topic, 1)
    async with Producer(cluster.kafka.bootstrap_servers) as producer:
        for value in DAMAGE[what]:
            await producer.send(topic, value)
    sent = RecordDigest()
    for value in (b"0", b"1", b"2"):
        sent.add(None, value)

    assert len(faults({0: sent}, cluster.read(topic))) == 1
    assert len(faults({1: sent}, cluster.read(topic))) == 2
