"""Metrics are pushed to brokers that subscribe to them (KIP-714), and nothing of it disturbs the records."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    AGGREGATION_TEMPORALITY_DELTA,
    MetricsData,
    NumberDataPoint,
)

from aioproducer import ApplicationMetric, ConfigError, KafkaTimeoutError, Producer, SyncProducer, UnsupportedVersion
from aioproducer.metrics import otlp
from aioproducer.metrics.names import BROKER_METRICS, METRICS, TOPIC_METRICS
from aioproducer.metrics.points import Point, point_name
from aioproducer.metrics.reported import Reported
from aioproducer.record import Codec
from aioproducer.testing import FakeBroker, PushedMetrics, Telemetry
from tests.conftest import QUICK, Clock, opened, until

#: In milliseconds; the first push comes after half of it at the earliest.
INTERVAL = 20
SENT = "org.apache.kafka.producer.record.send.total"
SENT_TO_TOPIC = "org.apache.kafka.producer.topic.record.send.total"


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry(push_interval_ms=INTERVAL)


@pytest.fixture
def broker(telemetry: Telemetry) -> Iterator[FakeBroker]:
    with FakeBroker(topics={"orders": 2, "other": 1}, telemetry=telemetry) as broker:
        yield broker


def read(push: PushedMetrics) -> dict[str, list[NumberDataPoint]]:
    """The points of each metric of a push."""
    (resource,) = MetricsData.FromString(push.metrics).resource_metrics
    (scope,) = resource.scope_metrics
    return {metric.name: list(metric.sum.data_points or metric.gauge.data_points) for metric in scope.metrics}


def number(push: PushedMetrics, name: str) -> float:
    """The number of a metric that has one point."""
    (point,) = read(push)[name]
    return point.as_double


def labels(point: NumberDataPoint) -> dict[str, str]:
    return {each.key: each.value.string_value for each in point.attributes}


async def pushed(telemetry: Telemetry, count: int = 1) -> None:
    await until(lambda: len(telemetry.pushes) >= count)


# -- what is pushed -------------------------------------------------------------------------------------------------------


async def test_all_metrics_are_pushed_under_java_s_names(broker: FakeBroker, telemetry: Telemetry) -> None:
    async with opened(broker, client_id="shop") as producer:
        for _ in range(3):
            await producer.send("orders", b"value")
        await producer.send("other", b"value")
        await pushed(telemetry)

    last = telemetry.pushes[-1]
    assert last.terminating
    points = read(last)
    expected = {
        *(point_name(metric) for metric in METRICS),
        *(point_name(metric, "topic") for metric in TOPIC_METRICS),
        *(point_name(metric, "node") for metric in BROKER_METRICS),
    }
    assert set(points) == expected
    by_topic = {labels(point)["topic"]: point for point in points[SENT_TO_TOPIC]}
    assert set(by_topic) == {"orders", "other"}
    assert [labels(point) for point in points["org.apache.kafka.producer.node.request.latency.avg"]] == [
        {"node_id": "node-1"}
    ]
    assert points["org.apache.kafka.producer.buffer.total.bytes"][0].as_double == producer.config.buffer_memory


async def test_a_push_names_the_client_and_its_transactional_id(telemetry: Telemetry) -> None:
    with FakeBroker(telemetry=telemetry) as broker:
        async with opened(broker, transactional_id="t"):
            await pushed(telemetry)

    (resource,) = MetricsData.FromString(telemetry.pushes[0].metrics).resource_metrics
    assert {each.key: each.value.string_value for each in resource.resource.attributes} == {"transactional_id": "t"}
    assert resource.scope_metrics[0].scope.name == "aioproducer"


async def test_growth_adds_up_to_the_total(broker: FakeBroker, telemetry: Telemetry) -> None:
    async with opened(broker) as producer:
        for round_ in range(1, 4):
            await producer.send_many("orders", [b"value"] * round_)
            await pushed(telemetry, len(telemetry.pushes) + 1)

    sums = [metric for metric in _metrics(telemetry.pushes[0]) if metric.name == SENT]
    assert sums[0].sum.is_monotonic
    assert sums[0].sum.aggregation_temporality == AGGREGATION_TEMPORALITY_DELTA
    assert sum(number(push, SENT) for push in telemetry.pushes) == 6
    starts = [read(push)[SENT][0].start_time_unix_nano for push in telemetry.pushes]
    ends = [read(push)[SENT][0].time_unix_nano for push in telemetry.pushes]
    assert starts[1:] == ends[:-1], "each period begins where the one before has ended"


async def test_a_growth_is_not_lost_with_a_push(broker: FakeBroker, telemetry: Telemetry) -> None:
    broker.fail("PushTelemetry", "THROTTLING_QUOTA_EXCEEDED", times=2)
    async with opened(broker) as producer:
        await producer.send_many("orders", [b"value"] * 5)
        await pushed(telemetry)

    assert sum(number(push, SENT) for push in telemetry.pushes) == 5


async def test_totals_are_pushed_whole_if_the_subscription_asks_for_that(
    broker: FakeBroker, telemetry: Telemetry
) -> None:
    telemetry.is_delta = False
    async with opened(broker) as producer:
        await producer.send_many("orders", [b"value"] * 5)
        await pushed(telemetry, 3)

    sums = [metric for metric in _metrics(telemetry.pushes[-1]) if metric.name == SENT]
    assert sums[0].sum.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE
    assert [number(push, SENT) for push in telemetry.pushes[-2:]] == [5, 5]
    assert len({read(push)[SENT][0].start_time_unix_nano for push in telemetry.pushes}) == 1


def _metrics(push: PushedMetrics) -> Iterable[Any]:
    return MetricsData.FromString(push.metrics).resource_metrics[0].scope_metrics[0].metrics


async def test_only_requested_metrics_are_pushed(broker: FakeBroker, telemetry: Telemetry) -> None:
    telemetry.metrics = ("org.apache.kafka.producer.topic.", SENT)
    async with opened(broker) as producer:
        await producer.send("orders", b"value")
        await pushed(telemetry)

    assert set(read(telemetry.pushes[-1])) == {SENT, *(point_name(metric, "topic") for metric in TOPIC_METRICS)}


async def test_nothing_is_pushed_if_nothing_is_requested_and_a_later_subscription_is_noticed(
    broker: FakeBroker, telemetry: Telemetry
) -> None:
    telemetry.metrics = ()
    async with opened(broker):
        await until(lambda: broker.count("GetTelemetrySubscriptions") >= 3)
        assert broker.count("PushTelemetry") == 0
        telemetry.metrics = (SENT,)
        await pushed(telemetry)

    assert set(read(telemetry.pushes[-1])) == {SENT}


async def test_a_subscription_that_changes_is_fetched_again(broker: FakeBroker, telemetry: Telemetry) -> None:
    async with opened(broker):
        await pushed(telemetry)
        telemetry.metrics = (SENT,)
        await pushed(telemetry, len(telemetry.pushes) + 2)

    assert set(read(telemetry.pushes[-1])) == {SENT}
    assert len({push.client_instance_id for push in telemetry.pushes}) == 1


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ((Codec.ZSTD, Codec.LZ4), Codec.ZSTD),
        ((Codec.LZ4, Codec.GZIP), Codec.LZ4),
        ((Codec.GZIP,), Codec.GZIP),
        ((Codec.SNAPPY, Codec.GZIP), Codec.SNAPPY),
        ((), Codec.NONE),
        ((9, Codec.GZIP), Codec.GZIP),
    ],
    ids=str,
)
async def test_the_broker_s_first_codec_compresses(
    broker: FakeBroker, telemetry: Telemetry, offered: tuple[Codec, ...], chosen: Codec
) -> None:
    telemetry.codecs = offered
    async with opened(broker):
        await pushed(telemetry)

    assert telemetry.pushes[0].codec is chosen
    assert read(telemetry.pushes[0])


async def test_metrics_of_topics_and_of_brokers_are_left_out_if_there_is_no_room_for_them(
    broker: FakeBroker, telemetry: Telemetry
) -> None:
    telemetry.codecs = ()
    async with opened(broker) as producer:
        await producer.send("orders", b"value")
        await pushed(telemetry)
        telemetry.max_bytes = max(len(push.metrics) for push in telemetry.pushes) - 1
        telemetry.metrics = ("org.",)  # another subscription, with the new limit
        await until(lambda: SENT_TO_TOPIC not in read(telemetry.pushes[-1]))
        assert any(".node." in name for name in read(telemetry.pushes[-1]))
        telemetry.max_bytes = len(telemetry.pushes[-1].metrics) - 1
        telemetry.metrics = ("org.apache",)
        await until(lambda: not any(".node." in name for name in read(telemetry.pushes[-1])))
        assert SENT in read(telemetry.pushes[-1])
        telemetry.max_bytes = 100
        telemetry.metrics = ("org.apache.kafka",)
        before = len(telemetry.pushes)
        refused = broker.count("GetTelemetrySubscriptions")
        await until(lambda: broker.count("GetTelemetrySubscriptions") > refused)
        await producer.send("orders", b"value")

    assert len(telemetry.pushes) == before


async def test_a_total_that_was_left_out_grows_since_its_last_push(broker: FakeBroker, telemetry: Telemetry) -> None:
    """Such as that of a topic for which the broker had no room, or did not ask."""
    async with opened(broker) as producer:
        await producer.send_many("orders", [b"value"] * 100)
        await until(lambda: any(SENT_TO_TOPIC in read(push) for push in telemetry.pushes))
        telemetry.metrics = (SENT,)
        await until(lambda: set(read(telemetry.pushes[-1])) == {SENT})
        await producer.send_many("orders", [b"value"] * 7)
        telemetry.metrics = ("",)
        await until(lambda: SENT_TO_TOPIC in read(telemetry.pushes[-1]))

    assert sum(number(push, SENT) for push in telemetry.pushes) == 107
    with_topic = [push for push in telemetry.pushes if SENT_TO_TOPIC in read(push)]
    assert sum(number(push, SENT_TO_TOPIC) for push in with_topic) == 107
    periods = [read(push)[SENT_TO_TOPIC][0] for push in with_topic]
    assert [each.start_time_unix_nano for each in periods[1:]] == [each.time_unix_nano for each in periods[:-1]]


async def test_a_growth_is_not_reported_twice_if_an_answer_is_lost(broker: FakeBroker, telemetry: Telemetry) -> None:
    clock = Clock()
    broker.drop_connection("PushTelemetry", when="after")
    async with opened(broker) as producer:
        await producer.send_many("orders", [b"value"] * 5)
        await pushed(telemetry)
        clock.advance(1)  # the pause after it
        await pushed(telemetry, 2)

    assert sum(number(push, SENT) for push in telemetry.pushes) == 5


def test_a_total_that_began_again_is_reported_whole() -> None:
    reported = Reported(1)
    point = Point("name", 10, True, "", "")
    reported.note([point], 2)

    assert [(each.number, each.began) for each in reported.growth([point._replace(number=3)])] == [(3, 2)]


async def test_close_does_not_wait_for_the_encoding(
    broker: FakeBroker, telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoding, go_on = threading.Event(), threading.Event()

    def encode(*_: object) -> bytes:
        encoding.set()
        go_on.wait()
        return b""

    monkeypatch.setattr(otlp, "encode", encode)
    try:
        async with opened(broker) as producer:
            await until(encoding.is_set)
            report = await producer.close(0)
    finally:
        go_on.set()

    assert report.undelivered == ()


async def test_very_many_topics_are_left_out(broker: FakeBroker, telemetry: Telemetry) -> None:
    async with opened(broker) as producer:
        for count in range(1_001):
            producer._metrics.topic(f"topic-{count}")
        await pushed(telemetry)

    assert SENT_TO_TOPIC not in read(telemetry.pushes[0])
    assert SENT in read(telemetry.pushes[0])


# -- the application's metrics -------------------------------------------------------------------------------------------


async def test_metrics_of_the_application_are_pushed_if_they_are_requested(
    broker: FakeBroker, telemetry: Telemetry, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> float:
        raise LookupError("broken")

    telemetry.metrics = ("shop.",)
    carts = 0.0
    async with opened(broker, client_id="shop") as producer:
        producer.register_metric_for_subscription(
            ApplicationMetric("shop.carts", lambda: carts, is_total=True, attributes={"country": "de"})
        )
        producer.register_metric_for_subscription(ApplicationMetric("shop.queue", lambda: 7))
        producer.register_metric_for_subscription(ApplicationMetric("another", lambda: 1))
        producer.register_metric_for_subscription(ApplicationMetric("shop.broken", broken))
        await pushed(telemetry)
        carts = 3.0
        await pushed(telemetry, len(telemetry.pushes) + 2)
        producer.unregister_metric_from_subscription("shop.queue")
        producer.unregister_metric_from_subscription("shop.queue")

    assert set(read(telemetry.pushes[0])) == {"shop.carts", "shop.queue"}
    assert set(read(telemetry.pushes[-1])) == {"shop.carts"}
    assert sum(number(push, "shop.carts") for push in telemetry.pushes) == 3
    assert labels(read(telemetry.pushes[0])["shop.carts"][0]) == {"country": "de"}
    assert "The application's metric 'shop.broken' could not be read" in caplog.text


@pytest.mark.parametrize(
    "wrong", [{"attributes": {"shard": 7}}, {"attributes": {1: "a"}}, {"unit": 7}, {"meaning": "\ud800"}], ids=repr
)
def test_a_metric_that_is_not_text_is_refused(wrong: dict[str, Any]) -> None:
    producer = Producer("localhost:9092")
    with pytest.raises(ConfigError, match="must be texts"):
        producer.register_metric_for_subscription(ApplicationMetric("shop", lambda: 1, **wrong))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "needs a name"),
        ("org.apache.kafka.producer.mine", "beginning of the producer's own"),
        ("taken", "registered already"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused(name: str, problem: str) -> None:
    producer = Producer("localhost:9092")
    producer.register_metric_for_subscription(ApplicationMetric("taken", lambda: 1))
    with pytest.raises(ConfigError, match=problem):
        producer.register_metric_for_subscription(ApplicationMetric(name, lambda: 1))


# -- brokers ----------------------------------------------------------------------------------------------------------------


async def test_one_broker_gets_all_pushes_while_it_is_connected(telemetry: Telemetry) -> None:
    with FakeBroker(3, topics={"orders": 3}, telemetry=telemetry) as broker:
        async with opened(broker) as producer:
            for partition in range(3):
                await producer.send("orders", b"value", partition=partition)
            await pushed(telemetry, 3)
            nodes = {request.node for request in broker.requests_of("PushTelemetry")}
            assert len(nodes) == 1
            (first,) = nodes
            broker.stop_node(first, elect=True)
            await pushed(telemetry, len(telemetry.pushes) + 2)

    assert {request.node for request in broker.requests_of("PushTelemetry")} > {first}


@pytest.mark.parametrize("api", ["GetTelemetrySubscriptions", "PushTelemetry"])
@pytest.mark.parametrize("error", ["INVALID_REQUEST", "UNSUPPORTED_VERSION"])
async def test_a_broker_that_refuses_for_good_is_not_asked_again(
    broker: FakeBroker, telemetry: Telemetry, api: str, error: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "aioproducer")
    broker.fail(api, error)
    async with opened(broker) as producer:
        await until(lambda: "Metrics are not pushed to brokers" in caplog.text)
        await producer.send("orders", b"value")

        if api == "GetTelemetrySubscriptions":
            with pytest.raises(UnsupportedVersion, match="refuse"):
                await producer.client_instance_id()

    assert broker.count(api) == 1
    assert telemetry.pushes == []


@pytest.mark.parametrize(
    "error",
    ["UNKNOWN_SUBSCRIPTION_ID", "UNSUPPORTED_COMPRESSION_TYPE", "TELEMETRY_TOO_LARGE", "UNKNOWN_SERVER_ERROR"],
)
async def test_a_push_that_is_refused_is_followed_by_a_new_subscription(
    broker: FakeBroker, telemetry: Telemetry, error: str
) -> None:
    broker.fail("PushTelemetry", error)
    async with opened(broker):
        await pushed(telemetry)

    assert broker.count("GetTelemetrySubscriptions") >= 2


async def test_a_codec_that_was_refused_is_not_used_again(broker: FakeBroker, telemetry: Telemetry) -> None:
    telemetry.codecs = (Codec.LZ4,)
    broker.fail("PushTelemetry", "UNSUPPORTED_COMPRESSION_TYPE")
    async with opened(broker):
        await pushed(telemetry)

    assert {push.codec for push in telemetry.pushes} == {Codec.NONE}


@pytest.mark.parametrize("api", ["GetTelemetrySubscriptions", "PushTelemetry"])
async def test_a_lost_answer_disturbs_no_record(broker: FakeBroker, telemetry: Telemetry, api: str) -> None:
    clock = Clock()
    broker.drop_connection(api, when="after")
    async with opened(broker) as producer:
        await until(lambda: broker.count(api))
        await producer.send("orders", b"value")
        clock.advance(300)  # the pause after a failed request for a subscription
        await pushed(telemetry)

    assert len(broker.records("orders")) == 1


@pytest.mark.parametrize("wrong", [{"push_interval_ms": 0}, {"push_interval_ms": -1}, {"max_bytes": -1}], ids=str)
async def test_an_impossible_subscription_is_not_served(
    broker: FakeBroker, telemetry: Telemetry, wrong: dict[str, int]
) -> None:
    for name, value in wrong.items():
        setattr(telemetry, name, value)
    async with opened(broker) as producer:
        await until(lambda: broker.count("GetTelemetrySubscriptions"))
        await producer.send("orders", b"value")
        assert producer.metrics()["connection-close-total"] == 0

    assert broker.count("PushTelemetry") == 0


async def test_close_does_not_wait_for_a_broker_that_keeps_the_last_push(
    broker: FakeBroker, telemetry: Telemetry
) -> None:
    clock = Clock()
    async with opened(broker) as producer:
        await pushed(telemetry)
        with broker.hold("PushTelemetry") as held:
            closing = asyncio.create_task(producer.close())
            await until(lambda: held.waiting)
            clock.advance(3)
            report = await closing

    assert report.undelivered == ()


# -- switched off, or not possible -----------------------------------------------------------------------------------------


async def test_nothing_is_asked_if_pushes_are_switched_off(broker: FakeBroker) -> None:
    async with opened(broker, enable_metrics_push=False) as producer:
        await producer.send("orders", b"value")
        with pytest.raises(ConfigError, match="enable_metrics_push=False"):
            await producer.client_instance_id()

    assert broker.count("GetTelemetrySubscriptions") == 0


async def test_without_the_library_a_line_in_the_log_names_the_extra(
    broker: FakeBroker, telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "aioproducer")
    monkeypatch.delitem(sys.modules, "aioproducer.metrics.otlp", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.proto.metrics.v1.metrics_pb2", None)
    async with opened(broker) as producer:
        await until(lambda: "aioproducer[telemetry]" in caplog.text)
        await producer.send("orders", b"value")
        assert await producer.client_instance_id() == UUID("a10f0000-0000-4000-8000-000000000001")

    assert len([line for line in caplog.messages if "aioproducer[telemetry]" in line]) == 1
    assert telemetry.pushes == []


async def test_the_client_s_id_is_that_of_its_pushes(broker: FakeBroker, telemetry: Telemetry) -> None:
    async with opened(broker) as producer:
        identity = await producer.client_instance_id()
        await pushed(telemetry)

    assert {push.client_instance_id for push in telemetry.pushes} == {identity}


def test_a_thread_gets_the_id_and_may_register_metrics(broker: FakeBroker, telemetry: Telemetry) -> None:
    telemetry.metrics = ("shop.",)
    with SyncProducer(broker.bootstrap_servers, **QUICK) as producer:
        producer.register_metric_for_subscription(ApplicationMetric("shop.queue", lambda: 7))
        identity = producer.client_instance_id()
        broker.wait_for(lambda seen: seen.count("PushTelemetry"))
        producer.unregister_metric_from_subscription("another")

    (push,) = {(push.client_instance_id, number(push, "shop.queue")) for push in telemetry.pushes}
    assert push == (identity, 7)


async def test_there_is_no_id_if_brokers_take_no_metrics() -> None:
    with FakeBroker() as broker:
        async with opened(broker) as producer:
            with pytest.raises(UnsupportedVersion, match="take no metrics"):
                await producer.client_instance_id()


async def test_the_wait_for_the_id_ends_in_time(broker: FakeBroker) -> None:
    clock = Clock()
    async with opened(broker) as producer:
        await producer.ready()
        with broker.hold("GetTelemetrySubscriptions") as held:
            waiting = asyncio.create_task(producer.client_instance_id(5))
            await until(lambda: held.waiting)
            clock.advance(6)
            with pytest.raises(KafkaTimeoutError):
                await waiting
