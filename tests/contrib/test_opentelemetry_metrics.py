"""Observable instruments have the numbers of `metrics`, in OpenTelemetry's units, of each producer that is not closed."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Mapping

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint, Sum

from aioproducer import Producer, SyncProducer
from aioproducer.contrib.opentelemetry_metrics import instrument_name, observe, stop_observing
from aioproducer.metrics.names import BROKER_METRICS, METRICS, TOPIC_METRICS, Kind
from aioproducer.testing import FakeBroker
from tests.conftest import QUICK, opened


class Exported:
    """The measurements that an SDK exports, by instrument, each with its attributes."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader])
        self.counters: set[str] = set()
        self.units: dict[str, str] = {}

    def collect(self) -> dict[str, list[tuple[Mapping[str, object], float]]]:
        data = self.reader.get_metrics_data()
        found: dict[str, list[tuple[Mapping[str, object], float]]] = {}
        for resource in data.resource_metrics if data is not None else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    self.units[metric.name] = metric.unit or ""
                    if isinstance(metric.data, Sum) and metric.data.is_monotonic:
                        self.counters.add(metric.name)
                    for point in metric.data.data_points:
                        assert isinstance(point, NumberDataPoint)
                        found.setdefault(metric.name, []).append((dict(point.attributes or {}), point.value))
        return found

    def value(self, name: str) -> float:
        ((_, value),) = self.collect()[name]
        return value


@pytest.fixture
def exported() -> Exported:
    return Exported()


async def test_each_metric_but_rates_is_an_instrument(broker: FakeBroker, exported: Exported) -> None:
    async with opened(broker, client_id="shop") as producer:
        observe(producer, exported.provider)
        await producer.send("orders", b"value")
        found, numbers = exported.collect(), producer.metrics()

        expected = {
            instrument_name(metric, of): metric.kind
            for of, metrics in (("", METRICS), ("topic", TOPIC_METRICS), ("broker", BROKER_METRICS))
            for metric in metrics
            if metric.kind is not Kind.RATE
        }
        assert set(found) == set(expected)
        assert exported.counters == {name for name, kind in expected.items() if kind is Kind.TOTAL}
        shop = {"messaging.system": "kafka", "messaging.client.id": "shop"}
        assert found["aioproducer.record_send"] == [(shop, 1)]
        assert found["aioproducer.topic.record_send"] == [({**shop, "messaging.destination.name": "orders"}, 1)]
        ((attributes, requests),) = found["aioproducer.broker.request"]
        assert attributes == {**shop, "aioproducer.broker.id": "1"}
        assert requests == producer.metrics_by_broker()[1]["request-total"]
        ((_, latency),) = found["aioproducer.request_latency_max"]
        assert latency == pytest.approx(numbers["request-latency-max"] / 1000)
        units = [
            exported.units[f"aioproducer.{name}"]
            for name in ("record_send", "byte", "flush_time", "request_latency_max")
        ]
        assert units == ["{record}", "By", "s", "s"]


async def test_each_collection_reads_the_numbers_once(
    broker: FakeBroker, exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(broker) as producer:
        observe(producer, exported.provider)
        observe(producer, exported.provider)
        await producer.send("orders", b"value")
        assert exported.value("aioproducer.record_send") == 1
        await producer.send("orders", b"value")
        reads: list[None] = []
        read = producer.metrics

        def counted() -> Mapping[str, float]:
            reads.append(None)
            return read()

        monkeypatch.setattr(producer, "metrics", counted)
        assert exported.value("aioproducer.record_send") == 2
        assert len(reads) == 1


async def test_closed_and_dropped_producers_have_no_measurements(broker: FakeBroker, exported: Exported) -> None:
    producer = Producer(broker.bootstrap_servers, client_id="shop", **QUICK)
    async with producer:
        observe(producer, exported.provider)
        await producer.send("orders", b"value")
        assert "aioproducer.record_send" in exported.collect()
    assert exported.collect() == {}
    async with producer:
        assert exported.value("aioproducer.record_send") == 1, "it was started again"
        stop_observing(producer, exported.provider)
        assert exported.collect() == {}
        observe(producer, exported.provider)
    del producer
    gc.collect()
    assert exported.collect() == {}


async def test_producers_with_the_same_name_are_refused(broker: FakeBroker, exported: Exported) -> None:
    async with opened(broker, client_id="shop") as producer, opened(broker, client_id="shop") as other:
        observe(producer, exported.provider)
        with pytest.raises(ValueError, match="client_id='shop' is registered and not closed"):
            observe(other, exported.provider)


def test_a_producer_for_threads_is_measured_as_well(broker: FakeBroker, exported: Exported) -> None:
    with SyncProducer(broker.bootstrap_servers, client_id="shop") as producer:
        observe(producer, exported.provider)
        producer.send("orders", b"value")
        assert exported.value("aioproducer.topic.record_send") == 1


_GLOBAL = """
import asyncio, sys
from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from aioproducer import Producer
from aioproducer.contrib.opentelemetry_metrics import observe

async def main():
    async with Producer(sys.argv[1], client_id="early") as early, Producer(sys.argv[1], client_id="late") as late:
        observe(early)
        reader = InMemoryMetricReader()
        set_meter_provider(MeterProvider([reader]))
        observe(late)
        await early.send("orders", b"value")
        (resource,) = reader.get_metrics_data().resource_metrics
        (scope,) = resource.scope_metrics
        (sent,) = [metric for metric in scope.metrics if metric.name == "aioproducer.record_send"]
        print(*sorted(f"{point.attributes['messaging.client.id']}={point.value}" for point in sent.data.data_points))

asyncio.run(main())
"""


def test_the_global_provider_may_be_set_later(broker: FakeBroker) -> None:
    command = [sys.executable, "-c", _GLOBAL, broker.bootstrap_servers]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("early=1.0 late=0.0\n", "")
