"""Real brokers take the metrics that a producer pushes, with each codec, and hand them to a reporter (KIP-714)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import anyio.to_thread
import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from aioproducer import ApplicationMetric, Producer
from aioproducer.testing.kafka import KafkaCluster, KafkaJars
from aioproducer.testing.kafka.java_tools import JavaTools, compile_java
from tests.conftest import until

INTERVAL_MS = 200
SENT = "org.apache.kafka.producer.record.send.total"


class Push(NamedTuple):
    """One push, as the reporter got it."""

    client: str
    terminating: bool
    totals: dict[str, float]


class Reporting(NamedTuple):
    """A cluster whose reporter writes to a directory."""

    cluster: KafkaCluster
    directory: Path
    tools: JavaTools

    @property
    def pushes(self) -> list[Push]:
        """All of them, in the order in which they came."""
        found: list[Push] = []
        for file in sorted(self.directory.glob("0*")):
            _, client, terminating = file.name.split(" ")
            totals = {
                metric.name: sum(point.as_double for point in metric.sum.data_points or metric.gauge.data_points)
                for resource in MetricsData.FromString(file.read_bytes()).resource_metrics
                for scope in resource.scope_metrics
                for metric in scope.metrics
            }
            found.append(Push(client, terminating == "true", totals))
        return found


@pytest.fixture(scope="module", params=["4.3.1", "3.9.2"])
def reporting(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reporting]:
    directory = tmp_path_factory.mktemp("telemetry")
    jars = KafkaJars.get(request.param)
    jar = directory / "reporter.jar"
    compile_java(jars, [Path(__file__).parent / "java" / "MetricsFile.java"], jar)
    files = directory / "pushes"
    files.mkdir()
    properties = {"metric.reporters": "MetricsFile", "metrics.file.directory": str(files)}
    with ExitStack() as stack:
        cluster = stack.enter_context(KafkaCluster(request.param, properties=properties, plugins=jar))
        yield Reporting(cluster, files, JavaTools(jars))


@pytest.mark.slow
async def test_a_reporter_gets_what_was_sent(reporting: Reporting) -> None:
    def subscribe() -> None:
        wanted = ["org.apache.kafka.producer.", "shop."]
        reporting.tools.subscribe_to_client_metrics(reporting.cluster.bootstrap_servers, "all", wanted, INTERVAL_MS)

    await anyio.to_thread.run_sync(subscribe)
    await anyio.to_thread.run_sync(reporting.cluster.create_topic, "orders", 3)
    async with Producer(reporting.cluster.bootstrap_servers) as producer:
        producer.register_metric_for_subscription(ApplicationMetric("shop.queue", lambda: 7))
        identity = await producer.client_instance_id()
        await producer.send_many("orders", [b"value"] * 1000)
        await until(lambda: len(reporting.pushes) >= 3, 120)
        await producer.send_many("orders", [b"value"] * 500)

    pushes = reporting.pushes
    assert [push.terminating for push in pushes] == [False] * (len(pushes) - 1) + [True]
    assert len({push.client for push in pushes}) == 1
    assert sum(push.totals[SENT] for push in pushes) == 1500
    assert {push.totals["shop.queue"] for push in pushes} == {7}
    assert identity.version == 4
