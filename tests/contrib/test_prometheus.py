"""Samples in Prometheus' format equal the producer's metrics, and may be read at any time in any thread."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from aioproducer import Producer, SyncProducer
from aioproducer.contrib.prometheus import family_name, register, unregister
from aioproducer.metrics.names import BROKER_METRICS, HISTOGRAMS, METRICS, TOPIC_METRICS, Kind
from aioproducer.testing import FakeBroker
from tests.conftest import QUICK, opened


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"orders": 2, "payments": 1}) as broker:
        yield broker


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def samples(registry: CollectorRegistry) -> dict[tuple[str, str, str], float]:
    """The samples of a scrape, by name, client id and topic, without buckets."""
    text = generate_latest(registry).decode()
    return {
        (
            sample.name,
            sample.labels["client_id"],
            sample.labels.get("topic", sample.labels.get("broker", "")),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }


def clients(registry: CollectorRegistry) -> set[str]:
    return {client for _, client, _ in samples(registry)}


async def test_samples_equal_the_metrics(broker: FakeBroker, registry: CollectorRegistry) -> None:
    async with opened(broker, client_id="shop") as producer:
        register(producer, registry)
        await producer.send_many("orders", [b"value"] * 100)
        await producer.send("payments", b"value")
        numbers, found = producer.metrics(), samples(registry)

    assert found["aioproducer_record_send_total", "shop", ""] == 101
    assert found["aioproducer_topic_record_send_total", "shop", "orders"] == 100
    assert found["aioproducer_topic_record_send_total", "shop", "payments"] == 1
    assert found["aioproducer_bytes_total", "shop", ""] == numbers["byte-total"] > 0
    assert found["aioproducer_produce_request_total", "shop", ""] == numbers["produce-request-total"]
    assert found["aioproducer_request_latency_seconds_count", "shop", ""] == numbers["produce-request-total"]
    latency = found["aioproducer_request_latency_seconds_sum", "shop", ""]
    assert latency / numbers["produce-request-total"] * 1e3 == pytest.approx(numbers["request-latency-avg"])
    assert found["aioproducer_buffer_available_bytes", "shop", ""] == producer.config.buffer_memory
    requests = producer.metrics_by_broker()[1]["request-total"]
    assert found["aioproducer_broker_request_total", "shop", "1"] == requests > 0
    assert found["aioproducer_broker_request_latency_p99_seconds", "shop", "1"] > 0
    assert found["aioproducer_ready", "shop", ""] == 1
    assert found["aioproducer_oldest_pending_seconds", "shop", ""] == 0


async def test_time_is_exported_in_seconds(broker: FakeBroker, registry: CollectorRegistry) -> None:
    async with opened(broker, client_id="shop") as producer:
        register(producer, registry)
        await producer.enqueue("orders", b"value")
        await producer.flush()
        exported = samples(registry)["aioproducer_flush_time_seconds_total", "shop", ""]

        assert exported * 1e9 == pytest.approx(producer.metrics()["flush-time-ns-total"])
        assert 0 < exported < 60


def test_every_metric_is_exported_under_a_name_of_its_own() -> None:
    totals = [metric for metric in METRICS if metric.kind is Kind.TOTAL]
    names = [
        *(family_name(metric) for metric in (*totals, *HISTOGRAMS)),
        *(family_name(metric) for metric in METRICS if metric.kind is Kind.NOW),
        *(family_name(metric, "topic") for metric in TOPIC_METRICS),
        *(family_name(metric, "broker") for metric in BROKER_METRICS),
    ]

    assert len(set(names)) == len(names)
    for metric in (*METRICS, *HISTOGRAMS):
        name = family_name(metric)
        assert name.startswith("aioproducer_")
        assert name.isidentifier()
        if metric.unit in ("ns", "ms", "s"):
            assert name.endswith("_seconds")
        if metric.unit == "bytes":
            assert name.endswith("_bytes")


async def test_buckets_count_up_and_the_last_has_all(broker: FakeBroker, registry: CollectorRegistry) -> None:
    async with opened(broker, client_id="shop") as producer:
        register(producer, registry)
        await producer.send("orders", bytes(1000))
        families = {each.name: each for each in text_string_to_metric_families(generate_latest(registry).decode())}

    buckets = [
        (float(sample.labels["le"]), sample.value)
        for sample in families["aioproducer_batch_size_bytes"].samples
        if sample.name.endswith("_bucket")
    ]
    assert [bound for bound, _ in buckets[:-1]] == [2.0**power for power in range(6, 21)]
    assert [*buckets[-1]] == [float("inf"), 1.0]
    assert [count for bound, count in buckets if bound in (1024, 2048)] == [0, 1]


async def test_producers_share_a_registry_and_leave_it_when_they_are_closed(
    broker: FakeBroker, registry: CollectorRegistry
) -> None:
    async with opened(broker, client_id="shop") as shop:
        register(shop, registry)
        async with opened(broker, client_id="stock") as stock:
            register(stock, registry)
            await stock.send("orders", b"value")
            found = samples(registry)
            assert found["aioproducer_record_send_total", "stock", ""] == 1
            assert found["aioproducer_record_send_total", "shop", ""] == 0
        assert clients(registry) == {"shop"}
        async with stock:
            assert clients(registry) == {"shop", "stock"}, "it is started again"
        unregister(shop, registry)
        assert clients(registry) == set()
        unregister(shop, registry)


async def test_a_client_id_is_exported_once(broker: FakeBroker, registry: CollectorRegistry) -> None:
    async with opened(broker, client_id="shop") as producer:
        register(producer, registry)
        register(producer, registry)
        async with opened(broker, client_id="shop") as other:
            with pytest.raises(ValueError, match="Another producer with client_id='shop' is registered and not closed"):
                register(other, registry)
    async with opened(broker, client_id="shop") as next_one:
        register(next_one, registry)
        await next_one.send("orders", b"value")

        assert samples(registry)["aioproducer_record_send_total", "shop", ""] == 1


async def test_the_registry_does_not_keep_a_producer_alive(broker: FakeBroker, registry: CollectorRegistry) -> None:
    producer = Producer(broker.bootstrap_servers, client_id="shop")
    register(producer, registry)
    assert clients(registry) == {"shop"}

    del producer
    gc.collect()

    assert clients(registry) == set()


def test_a_name_that_is_in_use_is_refused(registry: CollectorRegistry) -> None:
    Counter("aioproducer_record_send", "of another library", registry=registry)

    with pytest.raises(ValueError, match="aioproducer_record_send"):
        register(Producer("127.0.0.1:1"), registry)


def test_a_producer_for_threads_is_exported(broker: FakeBroker, registry: CollectorRegistry) -> None:
    with SyncProducer(broker.bootstrap_servers, client_id="worker", **QUICK) as producer:
        register(producer, registry)
        producer.send("orders", b"value")

        assert samples(registry)["aioproducer_record_send_total", "worker", ""] == 1

    assert clients(registry) == set()


async def test_a_scrape_does_not_wait_for_a_blocked_event_loop(broker: FakeBroker, registry: CollectorRegistry) -> None:
    async with opened(broker, client_id="shop") as producer:
        register(producer, registry)
        await producer.send("orders", b"value")
        found: list[float] = []
        thread = threading.Thread(
            target=lambda: found.append(samples(registry)["aioproducer_record_send_total", "shop", ""])
        )
        thread.start()
        thread.join(60)  # this blocks the event loop

        assert found == [1]


async def test_another_thread_may_read_while_records_are_sent(broker: FakeBroker, registry: CollectorRegistry) -> None:
    async with opened(broker, client_id="shop") as producer:
        register(producer, registry)
        await producer.send("orders", b"value")
        seen: list[float] = []
        failures: list[BaseException] = []
        began, done = threading.Event(), threading.Event()

        def scrape() -> None:
            try:
                while not done.is_set():
                    seen.append(samples(registry)["aioproducer_record_send_total", "shop", ""])
                    began.set()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=scrape)
        thread.start()
        assert began.wait(60)
        try:
            for _ in range(20):
                await asyncio.gather(*(producer.send("orders", b"value") for _ in range(100)))
        finally:
            done.set()
            thread.join()

        assert not failures
        assert seen == sorted(seen)
        assert samples(registry)["aioproducer_record_send_total", "shop", ""] == 2001


@pytest.mark.slow
async def test_a_scrape_of_ten_thousand_topics_in_another_thread_lets_the_producer_go_on(
    registry: CollectorRegistry,
) -> None:
    topics = [f"topic-{number}" for number in range(10_000)]
    with FakeBroker(topics=dict.fromkeys(topics, 1)) as broker:
        broker.set_versions("3.9")  # Produce requests name topics then: the fake broker finds names sooner than ids
        async with opened(broker, client_id="shop", delivery_timeout_ms=600_000) as producer:
            register(producer, registry)
            for start in range(0, len(topics), 1_000):
                await asyncio.gather(*(producer.send(topic, b"value") for topic in topics[start : start + 1_000]))
            began, sends = asyncio.Event(), 0
            loop = asyncio.get_running_loop()

            def scrape() -> str:
                loop.call_soon_threadsafe(began.set)
                return generate_latest(registry).decode()

            scraping = asyncio.ensure_future(asyncio.to_thread(scrape))
            await began.wait()
            while not scraping.done():
                await producer.send(topics[0], b"value")
                sends += not scraping.done()
            text = await scraping

    found = re.findall(
        r'^aioproducer_topic_record_send_total\{client_id="shop",topic="([^"]+)"\} (\S+)', text, re.MULTILINE
    )
    assert sorted(topic for topic, _ in found) == sorted(topics)
    assert {float(value) for topic, value in found if topic != topics[0]} == {1.0}
    assert sends >= 10, "the event loop turned while the other thread read"


# -- the dashboard for Grafana ----------------------------------------------------------------------------------------

DASHBOARD = Path(__file__).parents[2] / "docs" / "pages" / "grafana" / "aioproducer.json"


async def test_the_dashboard_asks_for_names_that_exist(broker: FakeBroker, registry: CollectorRegistry) -> None:
    async with opened(broker, client_id="shop") as producer:
        register(producer, registry)
        await producer.send("orders", b"value")
        exported = set(re.findall(r"^(aioproducer_\w+)", generate_latest(registry).decode(), re.MULTILINE))
    asked = set(re.findall(r"aioproducer_\w+", DASHBOARD.read_text()))

    assert asked - exported == set()
    assert len(asked) > 20
    assert {"aioproducer_record_send"} - exported, "a name that does not exist is found"


def test_the_dashboard_s_panels_have_titles_and_places_of_their_own() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]

    assert len(set(places)) == len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["title"] for panel in panels)
    assert all(panel["targets"] for panel in panels if panel["type"] != "row")
