"""Each number of ``metrics()`` counts what its name says: exactly, or for a time between two measured bounds.

`counts` notes which names a test is about, and the last test fails if a name has none.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from aioproducer import (
    BufferFull,
    NotWritten,
    NotWrittenTimeout,
    Producer,
    RecordTooLarge,
    TopicPartition,
    Unknown,
)
from aioproducer.metrics.distribution import Distribution
from aioproducer.metrics.names import BROKER_METRICS, HISTOGRAMS, METRICS, TOPIC_METRICS
from aioproducer.metrics.producer import ProducerMetrics
from aioproducer.metrics.rates import BROKER_RATES, PRODUCER_RATES, TOPIC_RATES, Rates
from aioproducer.record import RecordBatchBuilder
from aioproducer.testing import FakeBroker
from tests.conftest import QUICK, Clock, opened, turns, until
from tests.rig import Rig

_F = TypeVar("_F", bound=Callable[..., Any])

_tested: set[str] = set()
_tested_by_topic: set[str] = set()

_SPREAD = ("avg", "max", "p50", "p99", "p99.9")


def counts(*names: str, by_topic: tuple[str, ...] = ()) -> Callable[[_F], _F]:
    """Note that the test is about these metrics of the producer, and these of a topic."""

    def noted(test: _F) -> _F:
        _tested.update(names)
        _tested_by_topic.update(by_topic)
        return test

    return noted


def _spread(name: str) -> tuple[str, ...]:
    return tuple(f"{name}-{end}" for end in _SPREAD)


@contextmanager
def _measured() -> Iterator[Callable[[], float]]:
    """The duration of the block in milliseconds: the upper bound of each time that is measured within it."""
    began = time.perf_counter()
    ended: list[float] = []

    def milliseconds() -> float:
        return ((ended[0] if ended else time.perf_counter()) - began) * 1e3

    yield milliseconds
    ended.append(time.perf_counter())


async def _let_pass(milliseconds: float) -> None:
    began = time.perf_counter()
    await until(lambda: (time.perf_counter() - began) * 1e3 > milliseconds)


# -- records ---------------------------------------------------------------------------------------------------------


@counts(
    "record-send-total",
    "record-delivered-total",
    "record-error-total",
    "record-not-written-total",
    "record-unknown-total",
    by_topic=("record-send-total", "record-error-total"),
)
async def test_each_outcome_of_a_record_has_its_count(broker: FakeBroker) -> None:
    async with opened(broker, enable_idempotence=False, retries=0) as producer:
        await producer.send_many("orders", [b"delivered"] * 5, partition=0)
        await producer.send("payments", b"delivered")
        with pytest.raises(RecordTooLarge):
            await producer.send("orders", bytes(producer.config.max_request_size + 1))
        broker.fail("Produce", "INVALID_RECORD")
        with pytest.raises(NotWritten):
            await producer.send("orders", b"refused", partition=0)
        broker.drop_connection("Produce")
        with pytest.raises(Unknown):
            await producer.send("orders", b"in doubt", partition=0)
        numbers, orders = producer.metrics(), producer.metrics("orders")

    assert numbers["record-send-total"] == numbers["record-delivered-total"] == 6
    assert (numbers["record-not-written-total"], numbers["record-unknown-total"]) == (1, 1)
    assert numbers["record-error-total"] == 3, "the one that was never accepted is an error as well"
    assert (orders["record-send-total"], orders["record-error-total"]) == (5, 2)


@counts("record-retry-total", by_topic=("record-retry-total",))
async def test_a_retry_counts_each_record_that_is_sent_again(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=2)
        await producer.send_many("orders", [b"value"] * 10, partition=0)
        await producer.send("payments", b"value")

        assert producer.metrics()["record-retry-total"] == 20
        assert producer.metrics("orders")["record-retry-total"] == 20
        assert producer.metrics("payments")["record-retry-total"] == 0


@counts("byte-total", "batch-size-avg", "batch-size-max", by_topic=("byte-total",))
@pytest.mark.parametrize("codec", ["none", "gzip"])
async def test_bytes_are_those_of_the_batches_on_the_wire(broker: FakeBroker, codec: str) -> None:
    async with opened(broker, compression_type=codec) as producer:
        await producer.send("orders", b"x" * 100, partition=0)
        await producer.send_many("orders", [b"x" * 1000] * 9, partition=0)
        await producer.send("payments", b"x" * 500)
        numbers = producer.metrics()
        by_topic = {topic: producer.metrics(topic)["byte-total"] for topic in ("orders", "payments")}
    sizes = {topic: [len(each.sent) for each in broker.batches(topic)] for topic in ("orders", "payments")}
    all_sizes = [size for each in sizes.values() for size in each]

    assert by_topic == {topic: sum(each) for topic, each in sizes.items()}
    assert numbers["byte-total"] == sum(all_sizes)
    assert numbers["batch-size-max"] == max(all_sizes)
    assert numbers["batch-size-avg"] == pytest.approx(sum(all_sizes) / len(all_sizes))


@counts("compression-rate-avg")
async def test_the_compression_rate_is_what_remains_of_a_batch(broker: FakeBroker) -> None:
    async with opened(broker) as plain, opened(broker, compression_type="gzip") as packed:
        for producer in (plain, packed):
            await producer.send("orders", b"x" * 5000, partition=0)
        whole, small = plain.metrics("orders")["byte-total"], packed.metrics("orders")["byte-total"]

        assert plain.metrics()["compression-rate-avg"] == 0, "nothing is compressed"
        assert packed.metrics()["compression-rate-avg"] == pytest.approx(small / whole)
        assert small < whole / 10


@counts("batch-split-total")
async def test_a_split_is_counted_once_for_the_batch(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        broker.fail("Produce", "MESSAGE_TOO_LARGE")
        await producer.send_many("orders", [b"x" * 100] * 50, partition=0)

        assert producer.metrics()["batch-split-total"] == 1


@counts("record-size-avg", "record-size-max")
@pytest.mark.parametrize("compression", ["none", "lz4"])
async def test_the_size_of_a_record_is_that_before_compression(broker: FakeBroker, compression: str) -> None:
    builder = RecordBatchBuilder()
    values = [bytes(size) for size in (10, 1_000, 100)]
    now = 1_700_000_000_000
    sizes = [builder.append(now, None, value) for value in values]
    async with opened(broker, linger_ms=60_000, compression_type=compression) as producer:
        for value in values:
            await producer.enqueue("orders", value, partition=0, timestamp_ms=now)
        await producer.flush()
        one_batch = producer.metrics()
        await producer.send_many("orders", [bytes(5_000)] * 3, partition=0)
        two_batches = producer.metrics()

    assert (one_batch["record-size-avg"], one_batch["record-size-max"]) == (sum(sizes) / 3, max(sizes))
    assert 5_000 < two_batches["record-size-max"] < 5_036
    assert one_batch["record-size-avg"] < two_batches["record-size-avg"] < 5_000


async def test_the_rows_of_a_table_count_in_the_size_of_records(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        await producer.send_table("orders", pa.table({"value": ["x" * 10, "y" * 3_000]}), value="value")
        numbers = producer.metrics()

    assert 3_000 < numbers["record-size-max"] < 3_036
    assert 1_505 < numbers["record-size-avg"] < 1_541


# -- rates -----------------------------------------------------------------------------------------------------------


async def _pass_slowly(clock: Clock, seconds: float) -> None:
    """Put the clock forward in steps, so that what is due in between is done in between."""
    for _ in range(round(seconds / 0.1)):
        clock.advance(0.1)
        await turns(2)


@counts(*PRODUCER_RATES, by_topic=tuple(TOPIC_RATES))
async def test_a_rate_is_the_growth_of_its_total_over_the_last_half_minute(broker: FakeBroker) -> None:
    began = time.perf_counter()
    clock = Clock()
    async with opened(broker, retry_backoff_ms=0, request_timeout_ms=3_600_000) as producer:
        for _ in range(30):
            await producer.send("orders", bytes(100), partition=0)
        broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=1)
        await producer.send("orders", bytes(100), partition=0)
        await _pass_slowly(clock, 10)
        young = producer.metrics()
        young_topic, young_broker = producer.metrics("orders"), producer.metrics_by_broker()[1]
        real_s = time.perf_counter() - began
        await _pass_slowly(clock, 30)
        old, old_topic, old_broker = producer.metrics(), producer.metrics("orders"), producer.metrics_by_broker()[1]
        await producer.send("orders", bytes(100), partition=0)
        again = producer.metrics()

    for rates, now, later in (
        (PRODUCER_RATES, young, old),
        (TOPIC_RATES, young_topic, old_topic),
        (BROKER_RATES, young_broker, old_broker),
    ):
        for name, (total, factor) in rates.items():
            assert now[total] * factor / (10 + real_s) <= now[name] <= now[total] * factor / 10 + 1e-9, name
            assert later[name] == 0, f"{name}: nothing happened in the last 30 s"
    assert young["record-send-rate"] > 0 < young["record-retry-rate"]
    assert young_topic["byte-rate"] > 0 < young_broker["outgoing-byte-rate"]
    assert 0 < again["record-send-rate"] <= 1 / 30
    assert producer.metrics()["record-send-rate"] == 0, "nothing grows in a producer that is closed"


_X = {"x-rate": ("x-total", 1.0)}


def _rate(rates: Rates, now: float, total: float) -> float:
    return rates.growth(now).rates(_X, "x", {"x-total": total})["x-rate"]


def test_a_rate_over_a_moment_is_none_of_chance() -> None:
    rates = Rates()
    rates.begin(100.0, {"x": {"x-total": 5}})

    assert _rate(rates, 100.001, 8) == 3.0


def test_samples_that_no_window_needs_are_dropped() -> None:
    rates = Rates()
    for second in range(0, 3_000, 3):
        rates.take(second, {"x": {"x-total": second * 2}})
        if second:
            assert _rate(rates, second + 1, second * 2 + 2) == pytest.approx(2.0)

    assert len(rates._samples) <= 12


def test_a_rate_after_a_pause_is_that_of_the_window() -> None:
    rates = Rates()
    rates.begin(0.0, {"x": {"x-total": 0}})
    rates.take(1_000.0, {"x": {"x-total": 700}})
    rates.take(4_600.0, {"x": {"x-total": 700}})  # the pulse begins again
    for second in range(3, 60, 3):
        rates.take(4_600.0 + second, {"x": {"x-total": 700 + 100 * second}})
        now = 4_601.0 + second
        assert _rate(rates, now, 700 + 100 * (second + 1)) == pytest.approx(100 * min(second + 1, 30) / 30)


def test_a_total_that_is_new_counts_from_zero() -> None:
    rates = Rates()
    rates.begin(0.0, {"y": {"x-total": 5}})

    assert _rate(rates, 10.0, 50) == 5.0


async def test_rates_begin_again_with_the_producer_and_after_a_pause(broker: FakeBroker) -> None:
    clock = Clock()
    producer = Producer(broker.bootstrap_servers, **QUICK)
    async with producer:
        await producer.send_many("orders", [b"value"] * 1_000)
        await _pass_slowly(clock, 4)
        clock.advance(1_000)
        await turns(5)
        await producer.send_many("orders", [b"value"] * 3_000)
        assert 70 < producer.metrics()["record-send-rate"] <= 3_000 / 30, "over half a minute, not over the pause"
        assert 70 < producer.metrics("orders")["record-send-rate"] <= 3_000 / 30
        assert 0 < producer.metrics_by_broker()[1]["request-rate"] <= 3_000 / 30
    async with producer:
        clock.advance(2)
        assert producer.metrics()["record-send-rate"] == 0
        assert producer.metrics("orders")["byte-rate"] == 0


def test_a_topic_that_is_forgotten_and_used_again_has_no_negative_rate() -> None:
    metrics = ProducerMetrics()
    metrics.topic("orders").record_send_total = 1_000
    metrics.rates.begin(0.0, metrics.sample(0.0))
    metrics.forget("orders")
    metrics.topic("orders").record_send_total = 30

    assert metrics.by_topic(10.0)["orders"]["record-send-rate"] == 3.0
    assert metrics.as_mapping(10.0)["record-send-rate"] == 3.0


@pytest.mark.parametrize("is_known", [False, True])
def test_a_bootstrap_server_that_is_found_to_be_a_broker_brings_its_rate_along(is_known: bool) -> None:
    metrics = ProducerMetrics()
    metrics.broker(-1).requests = 10_000
    if is_known:
        metrics.broker(1).requests = 500
    metrics.rates.begin(0.0, metrics.sample(0.0))
    metrics.broker(-1).requests += 20

    broker = metrics.adopt(-1, 1)
    assert metrics.by_broker(10.0)[1]["request-rate"] == 2.0
    metrics.rates.take(10.0, metrics.sample(10.0))
    broker.requests += 10
    assert metrics.by_broker(20.0)[1]["request-rate"] == 1.5
    assert metrics.by_broker(40.0)[1]["request-rate"] == pytest.approx(10 / 30)


def test_with_very_many_topics_they_have_no_rates_of_their_own() -> None:
    metrics = ProducerMetrics()
    for number in range(1_000):
        metrics.topic(f"topic-{number}").record_send_total = 1
    metrics.rates.begin(0.0, metrics.sample(0.0))

    assert "record-send-rate" not in metrics.by_topic(10.0)["topic-7"]
    assert len(metrics.sample(0.0)) == 1, "nor do samples have them"
    assert metrics.as_mapping(10.0)["record-send-rate"] == 0


def test_the_time_without_room_never_goes_back() -> None:
    broker = ProducerMetrics().broker(1)
    broker.begin_full(100.0)
    shown = [broker.totals(105.0)["in-flight-full-time-ns-total"]]
    broker.end_full(104.9)  # the reader's time was taken later, in another thread
    shown.append(broker.totals(106.0)["in-flight-full-time-ns-total"])
    broker.begin_full(107.0)
    shown.append(broker.totals(106.5)["in-flight-full-time-ns-total"])

    assert shown == [5e9, 5e9, 5e9]


# -- requests --------------------------------------------------------------------------------------------------------


@counts(
    "response-total",
    "outgoing-byte-total",
    "incoming-byte-total",
    "connection-creation-total",
    "connection-close-total",
    "request-size-avg",
    "request-size-max",
)
async def test_traffic_is_counted_as_a_relay_counts_it(broker: FakeBroker) -> None:
    passed = {"out": 0, "in": 0, "connections": 0}

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passed["connections"] += 1
        host, port = broker.bootstrap_servers.rsplit(":", 1)
        from_broker, to_broker = await asyncio.open_connection(host, int(port))

        async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter, way: str) -> None:
            while data := await source.read(65_536):
                passed[way] += len(data)
                target.write(data)
            target.close()

        await asyncio.gather(pump(reader, to_broker, "out"), pump(from_broker, writer, "in"))

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async with server, opened(address) as producer:
        await producer.ready()
        await producer.send("orders", bytes(1000), partition=0)
        await producer.send_many("orders", [b"value"] * 1000)
        await until(lambda: producer.metrics()["connection-close-total"] == 1)  # the bootstrap server's
        numbers, by_broker = producer.metrics(), producer.metrics_by_broker()

        # The relay has seen the bootstrap server's connection; the broker's own address leads past it.
        of_broker = by_broker[1]
        assert list(by_broker) == [1]
        assert passed["connections"] == 1
        assert numbers["outgoing-byte-total"] - of_broker["outgoing-byte-total"] == passed["out"] > 0
        assert numbers["incoming-byte-total"] - of_broker["incoming-byte-total"] == passed["in"] > 0
        assert of_broker["outgoing-byte-total"] > numbers["byte-total"] > 1000
        assert numbers["request-total"] == numbers["response-total"] == len(broker.requests)
        assert of_broker["request-total"] == of_broker["response-total"] < numbers["request-total"]
        assert (numbers["connection-creation-total"], of_broker["connection-creation-total"]) == (2, 1)
        assert of_broker["connection-close-total"] == 0
        assert of_broker["request-size-avg"] == of_broker["outgoing-byte-total"] / of_broker["request-total"]
        await producer.send("orders", bytes(100_000), partition=0)
        with_a_large_one = producer.metrics()
        size = with_a_large_one["outgoing-byte-total"] - numbers["outgoing-byte-total"]
        assert numbers["request-size-max"] < with_a_large_one["request-size-max"] == size > 100_000
    assert producer.metrics()["connection-close-total"] == 2


@counts("metadata-age")
async def test_the_age_of_the_metadata_begins_again_with_each_refresh(broker: FakeBroker) -> None:
    clock = Clock()
    async with opened(broker, metadata_max_age_ms=3_600_000) as producer:
        await producer.send("orders", b"value")
        clock.advance(1800)
        await producer.send("payments", b"value")  # as in Java, a response about a new topic refreshes nothing
        assert 1800 <= producer.metrics()["metadata-age"] < 3600
        clock.advance(1800)
        await producer.send("orders", b"value")
        await until(lambda: producer.metrics()["metadata-age"] < 1800)


@counts(*(f"txn-{call}-time-ns-total" for call in ("init", "begin", "send-offsets", "commit", "abort")))
async def test_the_time_of_calls_about_transactions_is_added_up(broker: FakeBroker) -> None:
    def times() -> list[float]:
        calls = ("init", "begin", "send-offsets", "commit", "abort")
        return [producer.metrics()[f"txn-{call}-time-ns-total"] for call in calls]

    async with opened(broker, transactional_id="shop") as producer:
        assert times() == [0, 0, 0, 0, 0]
        began = time.perf_counter()
        await producer.init_transactions()
        await producer.begin_transaction()
        assert [spent > 0 for spent in times()] == [True, True, False, False, False]
        await producer.send("orders", b"value")
        await producer.send_offsets_to_transaction({TopicPartition("orders", 0): 1}, "readers")
        await producer.commit_transaction()
        before = times()
        assert [spent > 0 for spent in before] == [True, True, True, True, False]
        await producer.begin_transaction()
        await producer.send("orders", b"value")
        await producer.abort_transaction()
        after = times()

    assert [now > then for now, then in zip(after, before, strict=True)] == [False, True, False, False, True]
    assert sum(after) <= (time.perf_counter() - began) * 1e9


@counts("request-total", "produce-request-total", "records-per-request-avg")
async def test_requests_are_counted_as_the_broker_receives_them(broker: FakeBroker) -> None:
    producer = Producer(broker.bootstrap_servers)
    async with producer:
        await producer.send("orders", b"value", partition=0)
        await producer.send_many("orders", [b"value"] * 10, partition=0)
        await producer.send("orders", b"value", partition=0)
        numbers = producer.metrics()

        assert numbers["request-total"] == len(broker.requests)
        assert numbers["produce-request-total"] == broker.count("Produce") == 3
        assert numbers["records-per-request-avg"] == 4
    async with producer:  # a second start goes on with the counts
        await producer.send("orders", b"value", partition=0)
        assert producer.metrics()["request-total"] == len(broker.requests)


async def test_requests_of_lost_connections_stay_in_the_count(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        await producer.send("orders", b"value")
        broker.drop_connection("Produce")
        await producer.send("orders", b"value")

        assert producer.metrics()["request-total"] == len(broker.requests)


@counts(*_spread("request-latency"))
async def test_the_latency_of_a_request_ends_with_its_answer(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        await producer.partitions_for("orders")
        with _measured() as milliseconds:
            with broker.hold("Produce") as hold:
                waiting = await producer.enqueue("orders", b"value", partition=0)
                await until(lambda: hold.waiting)
                await _let_pass(30)
            await waiting
        numbers = producer.metrics()

    for name in _spread("request-latency"):  # there is only one
        assert 30 <= numbers[name] <= milliseconds(), name


@pytest.mark.parametrize("how", ["lone", "in a batch", "acks=0"])
async def test_a_request_without_an_answer_has_no_latency(broker: FakeBroker, how: str) -> None:
    """As in Java: a broken connection would count as a quick answer, and a timeout as a slow one."""
    options: dict[str, Any] = {"acks": 0} if how == "acks=0" else {}
    async with opened(broker, enable_idempotence=False, retries=0, **options) as producer:
        await producer.partitions_for("orders")
        if not options:
            broker.drop_connection("Produce")
        with pytest.raises(Unknown) if not options else nullcontext():
            if how == "in a batch":
                await asyncio.gather(*[await producer.enqueue("orders", b"value", partition=0) for _ in range(10)])
            else:
                await producer.send("orders", b"value", partition=0)
        numbers = producer.metrics()

    assert numbers["produce-request-total"] == 1
    assert numbers["request-latency-max"] == 0


@counts(*_spread("produce-throttle-time"))
async def test_the_throttle_time_is_that_of_all_answered_requests(broker: FakeBroker) -> None:
    """As in Java: most requests are not throttled, and count as zero."""
    async with opened(broker) as producer:
        for throttled in (0, 0, 40, 0):
            if throttled:
                broker.throttle("Produce", throttled)
            await producer.send("orders", b"value")
        numbers = producer.metrics()

    assert numbers["produce-throttle-time-avg"] == pytest.approx(10)
    assert numbers["produce-throttle-time-max"] == 40
    assert numbers["produce-throttle-time-p50"] == 0
    assert numbers["produce-throttle-time-p99"] == numbers["produce-throttle-time-p99.9"] == pytest.approx(40, rel=0.2)


def test_percentiles_among_zeros() -> None:
    some = Distribution()
    for value in (0.0, 2.0, 3.0):
        some.observe(value)
    whole = some.among(10)

    assert (whole.count, whole.total, whole.maximum, whole.average) == (10, 5.0, 3.0, 0.5)
    assert (whole.percentile(0.5), whole.percentile(0.8)) == (0.0, 0.0)
    assert whole.percentile(0.9) == pytest.approx(2, rel=0.2)
    assert (some.count, some.percentile(0.3)) == (3, 0.0), "it has not changed"


# -- times and memory --------------------------------------------------------------------------------------------------


@counts(*_spread("record-queue-time"))
def test_the_queue_time_is_from_a_batchs_creation_until_it_is_sent() -> None:
    rig = Rig(linger_s=5.0)
    rig.put(partition=0, now=10.0)
    rig.put(partition=0, now=12.0)
    (batch,) = rig.drain(now=15.5)
    rig.accumulator.outcomes.retry(batch, 16.0)
    assert rig.drain(now=40.0) == [batch]
    numbers = rig.metrics.as_mapping()

    for name in _spread("record-queue-time"):  # a retry does not count: it is one batch
        assert numbers[name] == 5500, name


@counts("buffer-total-bytes", "buffer-available-bytes", "waiting-threads", "records-pending", "buffer-exhausted-total")
async def test_memory_and_those_who_wait_for_it(broker: FakeBroker) -> None:
    async with opened(broker, buffer_memory=20_000) as producer:
        await producer.partitions_for("orders")
        idle = producer.metrics()
        with broker.hold("Produce"):
            held = [await producer.enqueue("orders", bytes(7_000)) for _ in range(2)]
            waiting = asyncio.create_task(producer.enqueue("orders", bytes(7_000)))
            await until(lambda: producer.metrics()["waiting-threads"])
            with pytest.raises(BufferFull):
                producer.enqueue_nowait("orders", bytes(7_000))
            with pytest.raises(NotWrittenTimeout):
                await producer.enqueue("orders", bytes(7_000), timeout=0.01)
            full = producer.metrics()
        await asyncio.gather(*held, await waiting)
        end = producer.metrics()

    assert idle["buffer-total-bytes"] == full["buffer-total-bytes"] == 20_000
    assert idle["buffer-available-bytes"] == end["buffer-available-bytes"] == 20_000
    assert 5_000 < full["buffer-available-bytes"] < 6_000, "two records of 7,000 bytes, and what a batch adds"
    assert [each["waiting-threads"] for each in (idle, full, end)] == [0, 1, 0]
    assert [each["records-pending"] for each in (idle, full, end)] == [0, 2, 0]
    assert [each["buffer-exhausted-total"] for each in (idle, full, end)] == [0, 1, 1]


@counts("stopped-partitions")
async def test_partitions_that_a_lost_record_has_stopped(broker: FakeBroker) -> None:
    async with opened(broker, on_data_loss="stop") as producer:
        await producer.send("orders", b"first", partition=0)
        before = producer.metrics()["stopped-partitions"]
        broker.fail("Produce", "INVALID_RECORD")
        with pytest.raises(NotWritten):
            await producer.send("orders", b"lost", partition=0)
        stopped = producer.metrics()["stopped-partitions"]
        producer.resume("orders")
        after = producer.metrics()["stopped-partitions"]

    assert (before, stopped, after) == (0, 1, 0)


@counts("bufferpool-wait-time-ns-total")
async def test_the_wait_for_memory_is_added_up_over_those_who_waited(broker: FakeBroker) -> None:
    async with opened(broker, buffer_memory=20_000) as producer:
        await producer.partitions_for("orders")
        with broker.hold("Produce") as hold:
            held = await producer.enqueue("orders", bytes(15_000))
            before = producer.metrics()["bufferpool-wait-time-ns-total"]
            with _measured() as milliseconds:
                waiting = [asyncio.create_task(producer.enqueue("orders", bytes(8_000))) for _ in range(2)]
                await until(lambda: producer.metrics()["waiting-threads"] == 2)
                await _let_pass(20)
                hold.release()
                deliveries = await asyncio.gather(*waiting)
        await asyncio.gather(held, *deliveries)
        waited = producer.metrics()["bufferpool-wait-time-ns-total"]

    assert before == 0
    assert 2 * 20 <= waited / 1e6 <= 2 * milliseconds()


@counts("flush-time-ns-total")
async def test_the_time_of_flushes_is_added_up(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        await producer.partitions_for("orders")
        before = producer.metrics()["flush-time-ns-total"]
        with _measured() as milliseconds:
            with broker.hold("Produce"):
                await producer.enqueue("orders", b"value")
                flushing = asyncio.create_task(producer.flush())
                await turns(1)
                await _let_pass(20)
                while_it_waits = producer.metrics()["flush-time-ns-total"]
            await flushing
        after = producer.metrics()["flush-time-ns-total"]

    assert before == while_it_waits == 0
    assert 20 <= after / 1e6 <= milliseconds()


@counts("metadata-wait-time-ns-total")
async def test_the_wait_for_a_topics_partitions_is_added_up(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        await producer.ready()
        before = producer.metrics()["metadata-wait-time-ns-total"]
        with _measured() as milliseconds, broker.hold("Metadata") as hold:
            sending = asyncio.create_task(producer.send("orders", b"value"))
            await until(lambda: hold.waiting)
            await _let_pass(20)
            hold.release()
            await sending
        waited = producer.metrics()["metadata-wait-time-ns-total"]
        await producer.send("orders", b"value")

        assert before == 0
        assert 20 <= waited / 1e6 <= milliseconds()
        assert producer.metrics()["metadata-wait-time-ns-total"] == waited, "the partitions are known"


@counts("oldest-record-age")
async def test_the_age_of_the_oldest_record_begins_with_its_batch(broker: FakeBroker) -> None:
    clock = Clock()
    async with opened(broker) as producer:
        await producer.partitions_for("orders")
        idle = producer.metrics()["oldest-record-age"]
        with broker.hold("Produce"):
            deliveries = [await producer.enqueue("orders", b"value", partition=0)]
            clock.advance(5)
            deliveries.append(await producer.enqueue("orders", b"value", partition=1))
            waiting = producer.metrics()["oldest-record-age"]
        await asyncio.gather(*deliveries)

        assert (idle, producer.metrics()["oldest-record-age"]) == (0, 0)
        assert waiting >= 5


@counts(*_spread("event-loop-lag"))
async def test_the_lag_of_the_event_loop_is_how_late_its_timers_run(broker: FakeBroker) -> None:
    clock = Clock()
    async with opened(broker) as producer:
        engine = producer._usable()
        engine.pulse.stop()
        moments = iter([100.0, 102.6, 200.0])  # each beat is due a tenth of a second after the one before
        engine.pulse.clock = lambda: next(moments, 200.1)
        engine.pulse.start()
        await _pass_slowly(clock, 0.1)
        numbers, histogram = producer.metrics(), producer.metric_histograms()["event-loop-lag"]

    assert numbers["event-loop-lag-max"] == pytest.approx(2_500)
    assert histogram.count >= 1


async def test_the_time_without_room_for_another_request_is_that_of_the_broker(broker: FakeBroker) -> None:
    clock = Clock()
    options: dict[str, Any] = {"max_in_flight_requests_per_connection": 2, "request_timeout_ms": 60_000}
    async with opened(broker, **options) as producer:
        await producer.send("orders", b"value", partition=0)

        def full_ms() -> float:
            return producer.metrics_by_broker()[1]["in-flight-full-time-ns-total"] / 1e6

        before = full_ms()  # the first requests may have been two at a time
        with broker.hold("Produce") as hold:
            deliveries = [await producer.enqueue("orders", b"value", partition=0)]
            await until(lambda: hold.waiting == 1)
            clock.advance(5)
            assert full_ms() == before, "another one may be sent"
            with _measured() as milliseconds:
                deliveries.append(await producer.enqueue("orders", b"value", partition=1))
                await until(lambda: producer.metrics()["requests-in-flight"] == 2)
                clock.advance(10)
                while_full = full_ms()
                hold.release()
                await asyncio.gather(*deliveries)
        after = full_ms()
        clock.advance(15)

        assert 10_000 <= while_full - before <= after - before <= 10_000 + milliseconds()
        assert full_ms() == after
        assert 0.3 <= producer.metrics_by_broker()[1]["in-flight-full-ratio"] <= 0.5


# -- connections -------------------------------------------------------------------------------------------------------


@counts("connection-count", "requests-in-flight", "producer-epoch")
async def test_connections_and_requests_in_flight_are_those_of_now() -> None:
    with FakeBroker(2, topics={"orders": 2}) as broker:
        broker.next_producer_epoch = 7
        async with opened(broker) as producer:
            for partition in range(2):
                await producer.send("orders", b"value", partition=partition)
            await until(lambda: producer.metrics()["connection-count"] == 2)  # the bootstrap server's is closed
            with broker.hold("Produce") as hold:
                waiting = [await producer.enqueue("orders", b"value", partition=number) for number in range(2)]
                await until(lambda: hold.waiting == 2)
                busy = producer.metrics()
            await asyncio.gather(*waiting)
            idle = producer.metrics()
            assert (busy["requests-in-flight"], idle["requests-in-flight"]) == (2, 0)
            assert idle["producer-epoch"] == 7
        assert "connection-count" not in producer.metrics(), "a producer that is not running has none"


async def test_requests_in_flight_and_their_age_are_those_of_each_broker() -> None:
    clock = Clock()
    with FakeBroker(2, topics={"orders": 2}) as broker:
        async with opened(broker, request_timeout_ms=60_000, delivery_timeout_ms=120_000) as producer:
            for partition in range(2):
                await producer.send("orders", b"value", partition=partition)
            slow = broker.leader("orders", 0)
            with broker.hold("Produce", node=slow) as hold, _measured() as milliseconds:
                first = await producer.enqueue("orders", b"value", partition=0)
                await until(lambda: hold.waiting == 1)
                clock.advance(5)
                second = await producer.enqueue("orders", b"value", partition=0)
                await until(lambda: producer.metrics_by_broker()[slow]["requests-in-flight"] == 2)
                busy = producer.metrics_by_broker()
                elsewhere = await asyncio.to_thread(producer.metrics_by_broker)
            await asyncio.gather(first, second)
            idle = producer.metrics_by_broker()
        for found in (busy, elsewhere):
            assert 5 <= found[slow]["oldest-request-age"] <= 5 + milliseconds() / 1e3
        assert (busy[3 - slow]["requests-in-flight"], busy[3 - slow]["oldest-request-age"]) == (0, 0)
        assert (idle[slow]["requests-in-flight"], idle[slow]["oldest-request-age"]) == (0, 0)
        assert "oldest-request-age" not in producer.metrics_by_broker()[slow], "a producer that is not running has none"


async def test_an_announced_delay_is_not_a_requests_age(broker: FakeBroker) -> None:
    clock = Clock()
    async with opened(broker) as producer:
        await producer.send("orders", b"value", partition=0)
        with broker.hold("Produce") as hold:
            waiting = await producer.enqueue("orders", b"value", partition=0)
            await until(lambda: hold.waiting == 1)
            connection = next(each.connection for each in producer._engine.client._brokers.connected())  # type: ignore[union-attr]
            assert connection is not None
            connection.extend_deadlines(10)
            clock.advance(5)
            assert producer.metrics_by_broker()[1]["oldest-request-age"] == 0
        await waiting


async def test_latencies_are_counted_by_broker(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        await producer.send("orders", b"value")

        assert producer.metric_histograms_by_broker() == {
            1: {"request-latency": producer.metric_histograms()["request-latency"]}
        }


# -- all of them -------------------------------------------------------------------------------------------------------


async def test_every_metric_has_a_test_here(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        await producer.send("orders", b"value")

        assert set(producer.metrics()) == _tested == {metric.name for metric in METRICS}
        assert set(producer.metrics("orders")) == _tested_by_topic == {metric.name for metric in TOPIC_METRICS}
        assert producer.metrics_by_topic()["orders"].keys() == producer.metrics("orders").keys()
        assert set(producer.metrics_by_broker()[1]) == {metric.name for metric in BROKER_METRICS}
        assert set(producer.metric_histograms()) == {metric.name for metric in HISTOGRAMS}


async def test_a_topic_without_metrics_is_an_error_and_not_a_new_entry(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        with pytest.raises(LookupError, match=r"no metrics of topic 'order'.* There are metrics of no topic\."):
            producer.metrics("order")
        await producer.send("orders", b"value")
        with pytest.raises(LookupError, match=r"'order': .*acknowledged, failed or retried yet\. .* of 'orders'\."):
            producer.metrics("order")

        assert list(producer.metrics_by_topic()) == ["orders"]


async def test_histograms_count_what_the_averages_are_made_of(broker: FakeBroker) -> None:
    async with opened(broker, linger_ms=0) as producer:
        for size in (10, 100, 1000):
            await producer.send("orders", bytes(size), partition=0)
        numbers, found = producer.metrics(), producer.metric_histograms()

    assert found["records-per-request"].count == 3
    assert found["records-per-request"].counts[0] == 3, "each request had one record"
    sizes = found["batch-size"]
    assert sizes.total / sizes.count == numbers["batch-size-avg"]
    at_most = dict(zip(sizes.bounds, sizes.counts, strict=True))
    assert (at_most[64], at_most[128], at_most[256], at_most[2048]) == (0, 1, 2, 3)
    latency = found["request-latency"]
    assert latency.count == 3
    assert latency.total / 3 * 1e3 == pytest.approx(numbers["request-latency-avg"])
    assert latency.counts[-1] == 3, "a minute is more than any of them took"
    assert list(latency.counts) == sorted(latency.counts)
