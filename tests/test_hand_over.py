"""Records that threads hand over to the event loop: in bulk, in order, and with all promises of accepted ones."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from aioproducer import (
    CloseReport,
    DeliveryError,
    ForkedProcess,
    InvalidRecord,
    KafkaTimeoutError,
    NotWritten,
    NotWrittenTimeout,
    ProducerClosed,
    ProducerRecord,
    ProducerStateError,
    RecordTooLarge,
    SerializationError,
    SyncDelivery,
    SyncProducer,
    Unknown,
    UnknownTimeout,
)
from aioproducer.intake.hand_over import _CAPACITY
from aioproducer.intake.sync_delivery import ThreadWaiter
from aioproducer.testing import FakeBroker
from aioproducer.testing.broker.faults import Hold
from tests.conftest import QUICK
from tests.forks import in_a_fork

#: Two records of 1500 bytes fill the buffer.
TIGHT: dict[str, Any] = {"buffer_memory": 4000, "batch_size": 1500, "max_request_size": 3500, **QUICK}


@pytest.fixture
def producer(broker: FakeBroker) -> Iterator[SyncProducer]:
    with SyncProducer(broker.bootstrap_servers, **QUICK) as producer:
        producer.partitions_for("orders")
        producer.send("orders", b"first", partition=0)  # from now on records can be handed over
        yield producer


@contextmanager
def stopped(producer: SyncProducer, at_the_end: Callable[[], object] = lambda: None) -> Iterator[None]:
    """The producer's thread does nothing meanwhile, and ``at_the_end`` before anything else."""
    stands, goes_on = threading.Event(), threading.Event()

    def stand(_: object) -> None:
        stands.set()
        goes_on.wait(30)
        at_the_end()

    with suppress(DeliveryError):
        producer.enqueue("orders", b"stop", partition=2, timeout=30, on_delivery=stand)
    assert stands.wait(30)
    try:
        yield
    finally:
        goes_on.set()


def values(broker: FakeBroker, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in broker.records("orders", partition)]


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


# -- accepted without a round trip --------------------------------------------------------------------------------------


def test_many_records_wake_the_event_loop_once(
    broker: FakeBroker, producer: SyncProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[object] = []
    with stopped(producer):
        loop = producer._hand_over.loop  # type: ignore[union-attr]
        wake = loop.call_soon_threadsafe

        def count(callback: Callable[..., object], *more: Any, **named: Any) -> object:
            woken.append(callback)
            return wake(callback, *more, **named)

        monkeypatch.setattr(loop, "call_soon_threadsafe", count)  # patched: asyncio counts no wake-ups
        deliveries = [producer.enqueue("orders", b"%d" % number, partition=0) for number in range(1000)]
        assert len(woken) == 1
        assert not any(delivery.done() for delivery in deliveries)

    producer.flush(30)
    assert [delivery.result(0).offset for delivery in deliveries] == list(range(1, 1001))
    assert values(broker)[1:] == [b"%d" % number for number in range(1000)]


def test_records_that_a_thread_sends_by_different_calls_arrive_in_its_order(
    broker: FakeBroker, producer: SyncProducer
) -> None:
    choose = random.Random(1)
    calls: list[Callable[[bytes], object]] = [
        lambda value: producer.enqueue("orders", value, partition=0),
        lambda value: producer.enqueue("orders", value, partition=0, timeout=30),
        lambda value: producer.enqueue_nowait("orders", value, partition=0),
        lambda value: producer.send_many("orders", [value], partition=0),
    ]
    sent = [b"%d" % number for number in range(500)]
    for value in sent:
        choose.choices(calls, [50, 3, 3, 1])[0](value)
    producer.flush(30)

    assert values(broker)[1:] == sent


def test_records_sent_by_sixteen_threads_arrive_once_and_in_the_order_of_each(broker: FakeBroker) -> None:
    deliveries: dict[int, list[SyncDelivery]] = defaultdict(list)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with SyncProducer(broker.bootstrap_servers, batch_size=2000, buffer_memory=100_000) as producer:
            producer.send("orders", b"first", partition=0)

            def send(thread: int) -> None:
                for number in range(300):
                    deliveries[thread].append(producer.enqueue("orders", b"%d %d" % (thread, number), partition=0))

            threads = [in_thread(lambda thread=thread: send(thread)) for thread in range(16)]  # type: ignore[misc]
            for each in threads:
                each.join()
            producer.flush(30)
    finally:
        sys.setswitchinterval(interval)

    arrived: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for offset, value in enumerate(values(broker)[1:], 1):
        thread, number = map(int, (value or b"").split())
        arrived[thread].append((number, offset))
    for thread in range(16):
        assert arrived[thread] == [(number, each.result(0).offset) for number, each in enumerate(deliveries[thread])]


def test_an_error_in_a_record_is_raised_at_once(producer: SyncProducer) -> None:
    wrong: list[dict[str, Any]] = [
        {"value": 5},
        {"value": "\ud800"},
        {"key": object()},
        {"headers": {"a": 5}},
        {"headers": {"\ud800": b""}},
        {"partition": -1},
        {"partition": "0"},
        {"timestamp_ms": -1},
        {"timestamp_ms": 1.5},
        {"topic": "no topic"},
        {"topic": None},
        {"on_delivery": 5},
    ]
    for each in wrong:
        with pytest.raises(InvalidRecord):
            producer.enqueue(**{"topic": "orders", **each})
        with pytest.raises(InvalidRecord):
            producer.send(**{"topic": "orders", **each})
    with pytest.raises(RecordTooLarge):
        producer.enqueue("orders", b"x" * 2_000_000)
    with pytest.raises(InvalidRecord, match="partition=99"):
        producer.enqueue("orders", b"x", partition=99)


def test_later_changes_by_the_caller_do_not_change_the_record(broker: FakeBroker, producer: SyncProducer) -> None:
    value, headers = bytearray(b"before"), {"a": b"before"}
    with stopped(producer):
        producer.enqueue("orders", value, key=memoryview(value), headers=headers, partition=0)
        value[:] = b"behind"
        headers["a"] = b"behind"
    producer.flush(30)

    (record,) = broker.records("orders", 0)[1:]
    assert (record.value, record.key, dict(record.headers)) == (b"before", b"before", {"a": b"before"})


def test_a_thread_waits_where_the_event_loop_does_not_keep_up(producer: SyncProducer) -> None:
    went_on: list[bool] = []
    stands = threading.Event()
    full = threading.Event()

    def send() -> None:
        for _ in range(_CAPACITY):
            producer.enqueue("orders", b"x", partition=0)
        full.set()
        producer.enqueue("orders", b"x", partition=0)
        went_on.append(stands.is_set())

    with stopped(producer, stands.set):
        thread = in_thread(send)
        assert full.wait(30)
    thread.join(30)

    assert went_on == [True]


# -- no room ------------------------------------------------------------------------------------------------------------


def test_records_handed_over_and_not_acknowledged_fit_into_the_memory(broker: FakeBroker) -> None:
    with SyncProducer(broker.bootstrap_servers, **TIGHT) as producer:
        producer.send("orders", b"first", partition=0)
        with broker.hold("Produce"):
            accepted = 0
            with pytest.raises(NotWrittenTimeout, match="no room in buffer_memory"):  # noqa: PT012 - until one does
                while True:
                    producer.enqueue("orders", b"x" * 1500, partition=0, timeout=0.05 if accepted >= 2 else None)
                    accepted += 1
            assert accepted == 2
            with pytest.raises(NotWrittenTimeout):
                producer.send("orders", b"x" * 1500, timeout=0.05)
        producer.flush(30)

    assert len(values(broker)) == 3


@contextmanager
def overtaken(broker: FakeBroker, **options: Any) -> Iterator[tuple[SyncProducer, list[SyncDelivery], Hold]]:
    """A record that found room when it was handed over, and finds none when the event loop comes to it."""
    with SyncProducer(broker.bootstrap_servers, **{**TIGHT, **options}) as producer:
        producer.send("orders", b"first", partition=0)

        def take_the_room() -> None:
            for _ in range(2):
                producer._producer.enqueue_nowait("orders", b"taken" * 300, partition=1)

        with broker.hold("Produce", partition=1) as held:
            with stopped(producer, take_the_room):
                deliveries = [producer.enqueue("orders", b"handed over" + b"x" * 1400, partition=0)]
            broker.wait_for(lambda _: held.waiting, 30)
            yield producer, deliveries, held


def test_a_record_that_finds_no_room_after_all_is_reported_by_its_delivery(broker: FakeBroker) -> None:
    with overtaken(broker, max_block_ms=50) as (_, (delivery,), _):
        error = delivery.exception(30)

        assert isinstance(error, NotWrittenTimeout)
        assert "no room in buffer_memory" in str(error)
        assert error.record is not None
        assert error.record.value == b"handed over" + b"x" * 1400
        with pytest.raises(NotWrittenTimeout):
            delivery.result()


def test_a_failure_without_a_waiting_caller_goes_to_the_sink(broker: FakeBroker) -> None:
    errors: list[DeliveryError] = []
    with overtaken(broker, max_block_ms=50, on_delivery_error=errors.append) as (producer, deliveries, _):
        deliveries.clear()
        with suppress(KafkaTimeoutError):
            producer.flush(0.3)

    assert [type(error) for error in errors] == [NotWrittenTimeout]
    assert producer.metrics("orders")["record-error-total"] == 1
    assert producer.close().failed == 1


def test_records_that_wait_for_room_are_counted_and_keep_their_order(broker: FakeBroker) -> None:
    with overtaken(broker) as (producer, (delivery,), held):
        behind: list[SyncDelivery] = []
        thread = in_thread(lambda: behind.append(producer.enqueue("orders", b"behind", partition=0)))
        assert producer.health().pending_records == 3
        assert producer.metrics()["records-pending"] == 3
        with pytest.raises(
            KafkaTimeoutError, match=r"1 record\(s\) are waiting for metadata or for room in buffer_memory"
        ):
            producer.flush(0.01)
        with pytest.raises(TimeoutError):
            delivery.result(0.01)
        held.release()
        thread.join(30)
        producer.flush(30)
        assert delivery.done()

    assert [(value or b"")[:6] for value in values(broker)] == [b"first", b"handed", b"behind"]
    assert behind[0].result(0).offset == 2


def test_closing_hands_back_what_still_waits_for_room(broker: FakeBroker) -> None:
    reports: list[CloseReport] = []
    with overtaken(broker) as (producer, (delivery,), _):
        reports = [producer.close(0.05)]

        assert isinstance(delivery.exception(0), NotWritten)
        assert isinstance(delivery.exception(0).__cause__, ProducerClosed)  # type: ignore[union-attr]

    assert [record.value for record in reports[0].not_written][-1] == b"handed over" + b"x" * 1400
    assert reports[0].failed == len(reports[0].not_written)
    assert producer.close() == reports[0]


# -- waiting for outcomes -----------------------------------------------------------------------------------------------


def test_several_threads_may_wait_for_one_record(broker: FakeBroker, producer: SyncProducer) -> None:
    offsets: list[int] = []
    with broker.hold("Produce"):
        delivery = producer.enqueue("orders", b"value", partition=0)
        threads = [in_thread(lambda: offsets.append(delivery.result(30).offset)) for _ in range(5)]
        for timeout in (0, 0.01, 0.01):
            with pytest.raises(TimeoutError, match="not known within"):
                delivery.result(timeout)
    for thread in threads:
        thread.join(30)

    assert offsets == [1] * 5


@pytest.mark.usefixtures("no_batch_fast_path")
def test_the_records_of_a_batch_that_is_split_are_reported_their_own_offsets(
    broker: FakeBroker, producer: SyncProducer
) -> None:
    reported: dict[int, int] = {}
    called: list[int] = []

    def wait(number: int) -> None:
        reported[number] = deliveries[number].result(30).offset

    with stopped(producer):
        broker.fail("Produce", "MESSAGE_TOO_LARGE")
        deliveries = [
            producer.enqueue(
                "orders", b"x" * 100, partition=0, on_delivery=lambda each: called.append(each.result().offset)
            )
            for _ in range(50)
        ]
        threads = [in_thread(lambda number=number: wait(number)) for number in range(0, 50, 7)]  # type: ignore[misc]
    for thread in threads:
        thread.join(30)
    producer.flush(30)

    assert reported == {number: number + 1 for number in range(0, 50, 7)}
    assert [delivery.result(0).offset for delivery in deliveries] == list(range(1, 51))
    assert sorted(called) == list(range(1, 51))


def test_a_callback_is_called_in_the_producers_thread_or_at_once(broker: FakeBroker, producer: SyncProducer) -> None:
    reported: list[str] = []

    def note(_: SyncDelivery) -> None:
        reported.append(threading.current_thread().name)

    with stopped(producer):
        delivery = producer.enqueue("orders", b"value", on_delivery=note)
        delivery.add_done_callback(note)
        assert reported == []
    delivery.result(30)
    producer.flush(30)
    delivery.add_done_callback(note)

    assert reported == ["aioproducer", "aioproducer", threading.current_thread().name]


def test_the_producers_thread_is_not_made_to_wait_for_itself(producer: SyncProducer) -> None:
    errors: list[Exception] = []
    later: list[SyncDelivery] = []

    def wait(_: SyncDelivery) -> None:
        for call in (later[0].result, lambda: producer.enqueue("orders", b"x"), lambda: producer.send("orders", b"x")):
            try:
                call()
            except ProducerStateError as error:
                errors.append(error)

    with stopped(producer):
        delivery = producer.enqueue("orders", b"value", partition=0, on_delivery=wait)
        later.append(SyncDelivery.__new__(SyncDelivery))
        later[0] = delivery
    producer.flush(30)

    assert len(errors) >= 2


# -- send ---------------------------------------------------------------------------------------------------------------


def test_a_send_that_takes_too_long_is_still_being_sent(broker: FakeBroker, producer: SyncProducer) -> None:
    with broker.hold("Produce"), pytest.raises(UnknownTimeout, match="was not acknowledged within"):
        producer.send("orders", b"late", partition=0, timeout=0.02)
    producer.flush(30)

    assert values(broker) == [b"first", b"late"]
    assert producer.send("orders", b"value", partition=0, timeout=30).offset == 2


def test_a_send_that_finds_no_room_after_all_is_over_in_time(broker: FakeBroker) -> None:
    errors: list[Exception] = []

    with SyncProducer(broker.bootstrap_servers, **TIGHT) as producer:
        producer.send("orders", b"first", partition=0)

        def take_the_room() -> None:
            for _ in range(2):
                producer._producer.enqueue_nowait("orders", b"taken" * 300, partition=1)

        def send() -> None:
            try:
                producer.send("orders", b"x" * 1500, partition=0, timeout=0.3)
            except Exception as error:
                errors.append(error)

        with broker.hold("Produce", partition=1):
            with stopped(producer, take_the_room):
                thread = in_thread(send)
                while producer._hand_over.is_idle:  # type: ignore[union-attr]
                    pass
            thread.join(30)

    assert [type(error) for error in errors] == [NotWrittenTimeout]
    assert values(broker) == [b"first"]


@pytest.fixture
def interruptible() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_a_send_and_not_the_record(broker: FakeBroker, producer: SyncProducer) -> None:
    with broker.hold("Produce") as held:

        def interrupt() -> None:
            broker.wait_for(lambda _: held.waiting, 30)
            os.kill(os.getpid(), signal.SIGINT)

        thread = in_thread(interrupt)
        with pytest.raises(KeyboardInterrupt):
            producer.send("orders", b"value", partition=0)
        thread.join()
    producer.flush(30)

    assert values(broker) == [b"first", b"value"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # where it hits a finalizer
def test_ctrl_c_in_the_midst_of_handing_over_leaves_nothing_lying(broker: FakeBroker, producer: SyncProducer) -> None:
    """Whatever it interrupts: what was accepted arrives, once and in order."""
    armed: list[bool] = []

    def interrupt(*_: object) -> None:
        if armed:
            armed.clear()
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGVTALRM, interrupt)
    accepted: list[tuple[int, SyncDelivery]] = []
    number = 0
    try:
        for _ in range(100):
            with suppress(KeyboardInterrupt):
                armed.append(True)
                signal.setitimer(signal.ITIMER_VIRTUAL, random.uniform(2e-5, 3e-4))
                for _ in range(200):
                    number += 1
                    delivery = producer.enqueue("orders", b"%d" % number, partition=0)
                    accepted.append((number, delivery))
                armed.clear()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)

    for _, delivery in accepted:
        assert delivery.result(30).partition == 0
    producer.flush(30)
    arrived = [int(value or b"") for value in values(broker)[1:]]
    assert len(arrived) == len(set(arrived))
    numbers = {number for number, _ in accepted}
    assert [number for number in arrived if number in numbers] == sorted(numbers)


# -- ends ---------------------------------------------------------------------------------------------------------------


def test_a_producer_closed_while_threads_send_resolves_each_record(broker: FakeBroker) -> None:
    producer = SyncProducer(broker.bootstrap_servers, **QUICK).start()
    producer.send("orders", b"first")
    deliveries: list[SyncDelivery] = []
    trouble: list[Exception] = []
    enough = threading.Event()

    def send() -> None:
        try:
            while True:
                deliveries.append(producer.enqueue("orders", b"value"))
                if len(deliveries) > 500:
                    enough.set()
        except Exception as error:
            trouble.append(error)

    threads = [in_thread(send) for _ in range(4)]
    assert enough.wait(30)
    report = producer.close()
    for thread in threads:
        thread.join(30)

    assert {type(error) for error in trouble} == {ProducerClosed}
    outcomes = [delivery.exception(0) for delivery in deliveries]
    assert report.delivered == outcomes.count(None) + 1 == len(broker.records("orders"))
    assert all(isinstance(error, NotWritten) for error in outcomes if error is not None)


def test_a_producer_that_dies_fails_the_records_that_were_handed_over(
    broker: FakeBroker, producer: SyncProducer
) -> None:
    with broker.hold("Produce", partition=0):
        with stopped(producer, lambda: producer._producer._engine._task.cancel()):  # type: ignore[union-attr]
            delivery = producer.enqueue("orders", b"value", partition=0)
        error = delivery.exception(30)

    assert isinstance(error, (NotWritten, Unknown))
    assert "tasks were cancelled" in str(error)
    with pytest.raises(ProducerStateError, match="tasks were cancelled"):
        producer.enqueue("orders", b"value", partition=0)


def test_a_record_that_came_when_the_event_loop_had_ended_is_refused(producer: SyncProducer) -> None:
    hand_over = producer._hand_over
    assert hand_over is not None
    producer.close()
    late = SyncDelivery.__new__(SyncDelivery)
    late._loop_thread, late._delivery, late._outcome, late._when_accepted = hand_over, None, None, None
    late._record = ("orders", b"late", None, None, 0, 0, 100, None)
    late.add_done_callback_in_loop(lambda _: None)
    hand_over._records.append(late)
    with pytest.raises(ProducerClosed):
        late.result()

    hand_over.end()

    assert isinstance(late.exception(), NotWritten)


def test_a_thread_does_not_wait_for_an_event_loop_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioproducer.intake.sync_delivery._LOOK_EVERY_S", 0.01)
    loop = asyncio.new_event_loop()
    waiter = ThreadWaiter(loop)
    loop.close()

    assert not waiter.wait(None)


def test_a_fork_does_not_wait_for_what_its_parent_was_reported(broker: FakeBroker, producer: SyncProducer) -> None:
    done = producer.enqueue("orders", b"value", partition=0)
    done.result(30)
    with broker.hold("Produce"):
        delivery = producer.enqueue("orders", b"value", partition=0)

        def check() -> None:
            assert done.result().offset == 1
            with pytest.raises(ForkedProcess):
                delivery.result()
            with pytest.raises(ForkedProcess):
                producer.enqueue("orders", b"value", partition=0)

        in_a_fork(check)

    assert delivery.result(30).offset == 2


def test_serializers_interceptors_and_partitioners_see_every_record(broker: FakeBroker) -> None:
    seen: list[object] = []

    def serialize(value: object) -> bytes:
        seen.append(value)
        if value == 5:
            raise ValueError("five")
        return b"%r" % value

    with SyncProducer(broker.bootstrap_servers, value_serializer=serialize) as serializing:
        serializing.send("orders", 1)
        serializing.enqueue("orders", 2)
        with pytest.raises(SerializationError, match="five"):
            serializing.enqueue("orders", 5)
    with SyncProducer(broker.bootstrap_servers, partitioner=lambda *_: 2) as partitioning:
        assert [partitioning.enqueue("orders", b"x").result(30).partition for _ in range(3)] == [2, 2, 2]

    assert seen == [1, 2, 5]


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_purge_before_the_first_step_of_a_queue_refuses_its_records(broker: FakeBroker, is_cancelled: bool) -> None:
    """A task that is cancelled before its first step runs none of its code; the purge may be cancelled as well."""
    broker.create_topic("wide", 100)
    room = 60_000
    with SyncProducer(broker.bootstrap_servers, buffer_memory=room, linger_ms=60_000, **QUICK) as producer:
        producer.warm_up("wide", "orders")
        producer.send("wide", b"first", partition=99)
        purges: list[asyncio.Task[list[ProducerRecord]]] = []

        def purge_twice() -> None:
            hand_over = producer._producer.hand_over
            purges.extend(hand_over.loop.create_task(hand_over.purge(frozenset())) for _ in range(2))
            if is_cancelled:  # in the next turn, in which they have cancelled the queue
                hand_over.loop.call_soon(lambda: [purge.cancel() for purge in purges])

        with stopped(producer, purge_twice):
            # With the header of a batch each takes more than it counts for until then: the last ones find no room.
            handles = [producer.enqueue("wide", bytes(985), partition=number) for number in range(room // 1024 - 1)]
        producer.flush()
        assert all(handle.done() for handle in handles)
        refused = [handle for handle in handles if isinstance(handle.exception(), NotWritten)]
        assert refused
        assert [purge.cancelled() for purge in purges] == [is_cancelled] * 2
        if not is_cancelled:
            assert [len(purge.result()) for purge in purges] == [len(refused), 0]
        assert producer.send("wide", b"next", partition=99).offset == 1
