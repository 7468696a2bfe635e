"""The fast path of a batch leaves what the Sender leaves: the same bytes, states and outcomes."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproducer import Producer
from aioproducer.engine.lone_batch import LoneBatchSender, Use
from aioproducer.engine.sender import Sender
from aioproducer.errors import DeliveryError
from aioproducer.testing import FakeBroker
from tests.conftest import until

NOW = 1_700_000_000_000
WORK = Sender._work


class Seen:
    """The results of a run of the same sends."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.outcomes: list[object] = []
        self.metrics: dict[str, object] = {}
        self.rounds = 0


async def lone_sends(
    use: Use,
    monkeypatch: pytest.MonkeyPatch,
    *,
    version: int = 13,
    sends: int = 6,
    in_transaction: bool = False,
    key: bytes | None = None,
    **options: Any,
) -> Seen:
    """Each send is awaited before the next one."""
    monkeypatch.setattr(LoneBatchSender, "use", use)
    seen = Seen()

    def counted(self: Sender, *arguments: Any) -> None:
        seen.rounds += 1
        WORK(self, *arguments)

    monkeypatch.setattr(Sender, "_work", counted)  # patched: nothing else shows a round that found nothing
    if in_transaction:
        options["transactional_id"] = "t"
    with FakeBroker(topics={"orders": 1}, max_versions={"Produce": version}) as broker:
        async with Producer(
            broker.bootstrap_servers, client_id="same", retry_backoff_ms=1, retry_backoff_max_ms=2, **options
        ) as producer:
            if in_transaction:
                await producer.init_transactions()
                await producer.begin_transaction()
            for number in range(sends):
                if number == 2:
                    seen.rounds = 0
                try:
                    metadata = await producer.send(
                        "orders", b"%d" % number * 50, key=key, headers={"h": b"v"}, timestamp_ms=NOW + number
                    )
                except DeliveryError as error:
                    seen.outcomes.append((type(error), type(error.__cause__)))
                else:
                    seen.outcomes.append((metadata.offset, metadata.timestamp_ms, metadata.partition))
            rounds = seen.rounds
            engine = producer._engine
            assert engine is not None
            assert not engine.accumulator.has_unsettled
            assert engine.pool.free == engine.pool.total
            if in_transaction:
                await producer.commit_transaction()
            kept = (
                "record-send-total",
                "record-error-total",
                "record-retry-total",
                "batch-size-avg",
                "produce-requests",
            )
            seen.metrics = {name: value for name, value in producer.metrics().items() if name in kept}
        seen.rounds = rounds
        seen.frames = [request.raw[:4] + request.raw[8:] for request in broker.requests_of("Produce")]
    return seen


async def same_both_ways(monkeypatch: pytest.MonkeyPatch, **how: Any) -> tuple[Seen, Seen]:
    fast = await lone_sends(Use.ALWAYS, monkeypatch, **how)
    slow = await lone_sends(Use.NEVER, monkeypatch, **how)
    assert fast.frames == slow.frames
    assert fast.outcomes == slow.outcomes
    assert fast.metrics == slow.metrics
    return fast, slow


@pytest.mark.parametrize("version", [7, 8, 9, 10, 11, 12, 13])
async def test_the_bytes_and_outcomes_are_the_same_in_each_version(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast, slow = await same_both_ways(monkeypatch, version=version)

    assert len(fast.outcomes) == 6
    if version >= 9:
        assert fast.rounds == 0, "the Sender has nothing to do with them"
        assert slow.rounds >= 4


@pytest.mark.parametrize(
    "how",
    [
        {"compression_type": "lz4"},
        {"compression_type": "zstd"},
        {"compression_type": "gzip", "compression_threshold_bytes": 1},
        {"key": b"k"},
        {"acks": 1, "enable_idempotence": False},
        {"in_transaction": True},
        {"batch_size": 0},
        {"batch_size": 10},
        {"linger_ms": 0},
    ],
    ids=str,
)
async def test_the_bytes_and_outcomes_are_the_same_with_each_option(
    how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    await same_both_ways(monkeypatch, **how)


@pytest.mark.parametrize("use", [Use.ALWAYS, Use.NEVER])
async def test_refused_batches_are_sent_again_in_order(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoneBatchSender, "use", use)
    with FakeBroker(topics={"orders": 1}) as broker:
        async with Producer(broker.bootstrap_servers, retry_backoff_ms=1) as producer:
            await producer.send("orders", b"0")
            broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=2)
            sending = [asyncio.create_task(producer.send("orders", b"%d" % number)) for number in range(1, 5)]
            offsets = [(await each).offset for each in sending]
        assert offsets == [1, 2, 3, 4]
        assert [record.value for record in broker.records("orders", 0)] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("use", [Use.ALWAYS, Use.NEVER])
async def test_a_batch_that_is_refused_for_good_fails(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoneBatchSender, "use", use)
    with FakeBroker(topics={"orders": 1}) as broker:
        async with Producer(broker.bootstrap_servers) as producer:
            await producer.send("orders", b"0")
            broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")
            with pytest.raises(DeliveryError, match="TOPIC_AUTHORIZATION_FAILED"):
                await producer.send("orders", b"1")
            assert (await producer.send("orders", b"2")).offset == 1


async def test_a_lost_answer_costs_nothing_and_doubles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoneBatchSender, "use", Use.ALWAYS)
    with FakeBroker(topics={"orders": 1}) as broker:
        async with Producer(broker.bootstrap_servers, retry_backoff_ms=1, reconnect_backoff_ms=1) as producer:
            await producer.send("orders", b"0")
            broker.drop_connection("Produce", when="after")
            assert (await producer.send("orders", b"1")).offset == 1
            assert (await producer.send("orders", b"2")).offset == 2
        assert [record.value for record in broker.records("orders", 0)] == [b"0", b"1", b"2"]


async def test_a_burst_fills_batches_behind_one_lone_record() -> None:
    with FakeBroker(topics={"orders": 1}) as broker:
        async with Producer(broker.bootstrap_servers) as producer:
            await producer.send("orders", b"lone")
            deliveries = [await producer.enqueue("orders", b"%d" % number) for number in range(50)]
            for each in deliveries:
                await each
            more = [await producer.enqueue("orders", b"%d" % number) for number in range(50)]
            for each in more:
                await each
        # The first, the burst's first (unless a request for metadata is in flight) and its rest, the second burst.
        assert len(broker.requests_of("Produce")) in (3, 4)


async def _in_bursts(producer: Producer, bursts: int, records: int) -> None:
    for _ in range(bursts):
        await asyncio.gather(*[await producer.enqueue("orders", b"value", partition=each) for each in range(records)])


async def test_records_appended_in_one_turn_leave_in_one_request() -> None:
    """Also if each record is the only one of its partition: the policy looks at the broker."""
    with FakeBroker(topics={"orders": 4}) as broker:
        async with Producer(broker.bootstrap_servers) as producer:
            await _in_bursts(producer, 1, 4)  # learns the topic and gets a producer id
            broker.forget_requests()
            await _in_bursts(producer, 10, 4)
            assert broker.count("Produce") == 10
            await _in_bursts(producer, 10, 2)
            assert broker.count("Produce") == 20


async def test_lone_records_leave_at_once_whatever_their_partition() -> None:
    with FakeBroker(topics={"orders": 4}) as broker:
        async with Producer(broker.bootstrap_servers) as producer:
            await _in_bursts(producer, 2, 4)
            await producer.send("orders", b"the first lone record after a burst goes through the Sender", partition=0)
            engine = producer._engine
            assert engine is not None
            for number in range(8):
                # On a busy machine the Sender's work takes long, and the other tasks are owed a pause for it.
                await until(lambda: not engine.accumulator.queues.is_paused(engine.loop.time()))
                delivery = producer.enqueue_nowait("orders", b"value", partition=number % 4)
                queue = engine.accumulator.queues.of("orders", number % 4)
                assert (len(queue.batches), len(queue.in_flight)) == (0, 1), (
                    "it is on its way before anything is awaited"
                )
                await delivery


async def test_each_broker_has_its_own_state() -> None:
    with FakeBroker(2, topics={"orders": 8}) as broker:
        busy = [each for each in range(8) if broker.leader("orders", each) == 1]
        quiet = next(each for each in range(8) if broker.leader("orders", each) == 2)
        async with Producer(broker.bootstrap_servers) as producer:
            await _in_bursts(producer, 2, 8)
            for _ in range(2):
                await asyncio.gather(*[await producer.enqueue("orders", b"value", partition=each) for each in busy])
                await producer.send("orders", b"value", partition=quiet)
            engine = producer._engine
            assert engine is not None
            assert engine.sender.lone_nodes == {2}


async def test_a_throttled_broker_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoneBatchSender, "use", Use.ALWAYS)
    with FakeBroker(topics={"orders": 1}) as broker:
        async with Producer(broker.bootstrap_servers) as producer:
            await producer.send("orders", b"0")
            broker.throttle("Produce", 50)
            await producer.send("orders", b"1")
            engine = producer._engine
            assert engine is not None
            assert engine.client.frame_broker(1, idle=True) is None
            assert (await producer.send("orders", b"2")).offset == 2
