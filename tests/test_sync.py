"""The producer for threads, and the producer in processes that were forked."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from math import inf
from typing import Any

import pyarrow  # type: ignore[import-untyped]  # it brings no types
import pytest

from aioproducer import (
    BufferFull,
    CloseReport,
    ConfigError,
    DeliveryError,
    ForkedProcess,
    HealthStatus,
    InvalidRecord,
    MetadataNotReady,
    NotStarted,
    NotWrittenTimeout,
    Producer,
    ProducerClosed,
    RecordTooLarge,
    SendManyError,
    SyncDelivery,
    SyncProducer,
    SyncTransaction,
    TopicPartition,
    TransactionStateError,
)
from aioproducer.testing import FakeBroker
from tests.conftest import QUICK, until
from tests.forks import in_a_fork


@pytest.fixture
def producer(broker: FakeBroker) -> Iterator[SyncProducer]:
    with SyncProducer(broker.bootstrap_servers) as producer:
        yield producer


def test_a_record_is_sent_and_acknowledged(broker: FakeBroker, producer: SyncProducer) -> None:
    producer.ready(5)
    metadata = producer.send("orders", "value", key="key", headers={"a": b"1"}, partition=1, timestamp_ms=5)

    assert (metadata.partition, metadata.offset, metadata.timestamp_ms) == (1, 0, 5)
    broker.assert_sent("orders", value=b"value", key=b"key")


def test_a_delivery_can_be_waited_for_in_a_thread(broker: FakeBroker, producer: SyncProducer) -> None:
    called = threading.Event()
    delivery = producer.enqueue("orders", b"value")
    delivery.add_done_callback(lambda _: called.set())

    assert delivery.result(timeout=30).offset == 0
    assert delivery.done()
    assert delivery.exception() is None
    assert called.wait(5)


def test_many_threads_may_send_at_the_same_time(broker: FakeBroker, producer: SyncProducer) -> None:
    threads = [
        threading.Thread(target=lambda: [producer.send("orders", b"value") for _ in range(20)]) for _ in range(10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(broker.records("orders")) == 200


def test_send_many_reads_in_the_calling_thread_and_keeps_the_order(broker: FakeBroker, producer: SyncProducer) -> None:
    readers: set[int] = set()

    def values() -> Iterator[str]:
        for number in range(3000):
            readers.add(threading.get_ident())
            yield str(number)

    result = producer.send_many("orders", values(), partition=0)

    assert result.count == 3000
    assert readers == {threading.get_ident()}
    assert [record.value for record in broker.records("orders", 0)] == [str(n).encode() for n in range(3000)]
    with pytest.raises(SendManyError):
        producer.send_many("orders", [b"x" * 2_000_000])


def test_errors_come_out_as_they_are(producer: SyncProducer) -> None:
    with pytest.raises(RecordTooLarge):
        producer.send("orders", b"x" * 2_000_000)
    with SyncProducer("127.0.0.1:1", close_timeout_ms=100) as lost, pytest.raises(NotWrittenTimeout):
        lost.send("orders", b"value", timeout=0.1)


def test_its_life_is_reported_as_the_async_ones(broker: FakeBroker) -> None:
    producer = SyncProducer.from_url(f"kafka://{broker.bootstrap_servers}/?linger_ms=7")
    with pytest.raises(NotStarted):
        producer.send("orders", b"value")
    with producer:
        producer.enqueue("orders", b"value")
        producer.flush(30)
        assert [each.partition for each in producer.partitions_for("orders")] == [0, 1, 2]
        assert producer.health().ready
        assert producer.metrics()["record-send-total"] == 1
    assert producer.close().delivered == 1
    with pytest.raises(ProducerClosed):
        producer.send("orders", b"value")
    assert producer.config.linger_ms == 7


def test_a_start_that_fails_leaves_no_thread_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)  # what Python itself makes of a module that is missing
    before = set(threading.enumerate())
    producer = SyncProducer("127.0.0.1:1", compression_type="snappy", close_timeout_ms=0)

    with pytest.raises(ConfigError, match="cramjam"):
        producer.start()

    assert set(threading.enumerate()) <= before
    monkeypatch.undo()
    with producer:
        pass


def test_a_failure_that_no_thread_looks_at_is_reported(broker: FakeBroker) -> None:
    errors: list[DeliveryError] = []
    with SyncProducer(broker.bootstrap_servers, on_delivery_error=errors.append, **QUICK) as producer:
        producer.send("orders", b"value")
        broker.fail("Produce", "INVALID_RECORD", times=3)
        looked_at = producer.enqueue("orders", b"one", partition=0)
        assert isinstance(looked_at.exception(5), DeliveryError)
        producer.enqueue("orders", b"two", partition=0)
        producer.flush(30)
        forgotten = producer.enqueue("orders", b"three", partition=0)
        producer.flush(30)
        assert forgotten.done()
        del forgotten
        gc.collect()

    assert [error.record.value for error in errors if error.record is not None] == [b"two", b"three"]


def test_looking_at_a_busy_producer_from_threads_is_no_trouble(broker: FakeBroker) -> None:
    ended = threading.Event()
    trouble: list[Exception] = []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with SyncProducer(broker.bootstrap_servers, batch_size=0, linger_ms=0) as producer:

            def look() -> None:
                while not ended.is_set():
                    try:
                        producer.health()
                        producer.metrics()
                        repr(producer)
                    except Exception as error:
                        trouble.append(error)
                        return

            threads = [threading.Thread(target=look) for _ in range(3)]
            for thread in threads:
                thread.start()
            producer.send_many("orders", (b"x" for _ in range(3000)))
            ended.set()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert trouble == []


def test_a_callback_may_look_at_the_producer(broker: FakeBroker) -> None:
    seen: list[object] = []
    with SyncProducer(broker.bootstrap_servers) as producer:
        producer.enqueue("orders", b"value").add_done_callback(lambda _: seen.append(producer.health().status))
        producer.flush(30)

    assert len(seen) == 1


def test_send_many_does_not_hold_back_what_a_slow_source_gave(broker: FakeBroker) -> None:
    arrived: list[int] = []

    def values() -> Iterator[bytes]:
        for number in range(4):
            yield str(number).encode()
            broker.wait_for(number + 1, timeout=30)
            arrived.append(number)

    with SyncProducer(broker.bootstrap_servers) as producer:
        producer.send_many("orders", values(), partition=0)

    assert arrived == [0, 1, 2, 3]


def test_send_many_sends_what_came_before_an_exception_of_the_source(broker: FakeBroker) -> None:
    def values() -> Iterator[bytes]:
        for number in range(2500):
            yield str(number).encode()
        raise RuntimeError("the source is broken")

    with SyncProducer(broker.bootstrap_servers) as producer:
        with pytest.raises(RuntimeError, match="source is broken"):
            producer.send_many("orders", values(), partition=0)
        assert len(broker.records("orders")) == 2500


def test_send_many_waits_for_what_was_accepted_before_a_key_function_raised(broker: FakeBroker) -> None:
    def key(item: object) -> bytes:
        if item == b"7":
            raise RuntimeError("no key")
        return b"k"

    with SyncProducer(broker.bootstrap_servers) as producer:
        with pytest.raises(RuntimeError, match="no key"):
            producer.send_many("orders", (str(n).encode() for n in range(10)), key=key)
        assert len(broker.records("orders")) == 7


def test_two_threads_that_close_both_wait_for_the_end(broker: FakeBroker) -> None:
    producer = SyncProducer(broker.bootstrap_servers, **QUICK).start()
    producer.send("orders", b"value")
    reports: list[CloseReport] = []
    with broker.hold("Produce") as held:
        producer.enqueue("orders", b"value")
        broker.wait_for(lambda _: held.waiting, 30)
        threads = [threading.Thread(target=lambda: reports.append(producer.close(0.3))) for _ in range(2)]
        threads[0].start()
        while producer.health().status is not HealthStatus.CLOSING:
            time.sleep(0.001)
        threads[1].start()
        for thread in threads:
            thread.join(30)

    assert len(reports) == 2
    assert reports[0] == reports[1]
    assert reports[0].unknown == 1


def run_script(broker: FakeBroker, lines: str) -> subprocess.CompletedProcess[str]:
    """A whole interpreter, to its end, which a test process does not come to."""
    script = (
        "import os, sys\nfrom aioproducer import SyncProducer\nproducer = SyncProducer(sys.argv[1]).start()\n" + lines
    )
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", script, broker.bootstrap_servers],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_an_unclosed_producer_is_closed_when_the_interpreter_ends(broker: FakeBroker) -> None:
    ended = run_script(broker, "for number in range(100): producer.enqueue('orders', str(number), partition=0)")

    assert (ended.returncode, ended.stderr) == (0, "")
    assert [record.value for record in broker.records("orders")] == [b"%d" % number for number in range(100)]


def test_a_producer_may_be_closed_when_the_interpreter_ends(broker: FakeBroker) -> None:
    """Python 3.12 starts no threads any more at that time."""
    ended = run_script(
        broker,
        "import atexit; atexit.register(lambda: print(producer.close().delivered)); producer.enqueue('orders', 'x')",
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "1\n", "")


def test_a_producer_that_is_dropped_sends_what_it_accepted_and_ends(broker: FakeBroker) -> None:
    before = set(threading.enumerate())
    producers = [SyncProducer(broker.bootstrap_servers).start()]
    for number in range(100):
        last = producers[0].enqueue("orders", str(number), partition=0)

    with pytest.warns(ResourceWarning, match="The SyncProducer '.+' was dropped without being closed"):
        producers.clear()

    assert last.result(30).offset == 99
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
    assert set(threading.enumerate()) <= before


def test_an_interpreter_waits_for_what_a_dropped_producer_accepted(broker: FakeBroker) -> None:
    ended = run_script(
        broker,
        """
import gc, warnings
warnings.simplefilter("ignore", ResourceWarning)
producer.ready()
for number in range(100): producer.enqueue("orders", str(number), partition=0)
del producer
gc.collect()
""",
    )

    assert (ended.returncode, ended.stderr) == (0, "")
    assert len(broker.records("orders")) == 100


def test_an_interpreter_ends_although_a_dropped_producers_interceptor_does_not(broker: FakeBroker) -> None:
    ended = run_script(
        broker,
        """
import asyncio, warnings
from contextlib import suppress
warnings.simplefilter("ignore", ResourceWarning)
class Swallowing:
    async def on_acknowledgement(self, metadata, error, headers):
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)
producer.close()
producer = SyncProducer(sys.argv[1], interceptors=[Swallowing()], close_timeout_ms=100).start()
producer.send("orders", "x")
del producer
""",
    )

    assert ended.returncode == 0


def test_a_producer_in_a_cycle_holds_up_no_end(broker: FakeBroker) -> None:
    ended = run_script(broker, "producer.itself = producer; producer.send('orders', b'value'); del producer")

    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("before_the_end", ["pass", "producer.close()", "producer = None"])
def test_a_fork_with_a_started_producer_comes_to_its_end(broker: FakeBroker, before_the_end: str) -> None:
    ended = run_script(
        broker,
        f"""
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of forks where there are threads
child = os.fork()
if child == 0:
    {before_the_end}
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
producer.send("orders", b"after")
""",
    )

    assert (ended.returncode, ended.stderr) == (0, "")
    assert len(broker.records("orders")) == 1


async def test_a_fork_of_a_started_producer_raises_at_once(broker: FakeBroker) -> None:
    async with Producer(broker.bootstrap_servers) as producer:
        await producer.send("orders", b"before")

        def check() -> None:
            with pytest.raises(ForkedProcess, match="fork"):
                producer.enqueue_nowait("orders", b"value")

        in_a_fork(check)
        await producer.send("orders", b"after")

    assert len(broker.records("orders")) == 2


def test_a_fork_of_a_started_sync_producer_raises_at_once(producer: SyncProducer) -> None:
    producer.send("orders", b"before")

    def check() -> None:
        with pytest.raises(ForkedProcess):
            producer.send("orders", b"value")

    in_a_fork(check)


def test_a_producer_that_was_made_before_the_fork_works_in_the_child(broker: FakeBroker) -> None:
    producer = Producer(broker.bootstrap_servers)

    def check() -> None:
        async def use() -> None:
            async with producer:
                await producer.send("orders", b"from the child", timeout=30)

        asyncio.run(use())

    in_a_fork(check)
    assert len(broker.records("orders")) == 1


def test_a_timeout_that_is_none_is_refused_and_ends_nothing(broker: FakeBroker, producer: SyncProducer) -> None:
    nothing: Any = "x"
    delivery = producer.enqueue("orders", b"value", timeout=30)
    for look in (delivery.result, delivery.exception):
        with pytest.raises(ConfigError, match="timeout='x'"):
            look(nothing)
    for wait in (producer.flush, producer.ready, producer.close):
        with pytest.raises(ConfigError, match="timeout='x'"):
            wait(nothing)
    for send in (producer.send, producer.enqueue):
        with pytest.raises(InvalidRecord, match="timeout='x'"):
            send("orders", b"value", timeout=nothing)
    with pytest.raises(InvalidRecord, match="timeout='x'"):
        producer.send_many("orders", [b"value"], timeout=nothing)

    assert delivery.result(timeout=inf).offset == 0
    assert len(broker.records("orders")) == 1


def test_send_many_refuses_what_is_no_plain_iterable(producer: SyncProducer) -> None:
    async def numbers() -> AsyncIterator[bytes]:
        yield b"1"

    for values in ("text", 5, numbers()):
        bad: Any = values
        with pytest.raises(InvalidRecord, match="send_many"):
            producer.send_many("orders", bad)


def methods(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name, None))}


def arguments(kind: type, name: str) -> list[tuple[str, object, object]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(getattr(kind, name)).parameters.values()]


def test_it_can_do_all_that_the_async_producer_can_with_the_same_arguments() -> None:
    assert methods(SyncProducer) == methods(Producer)
    for name in ("__init__", *methods(Producer)):
        assert arguments(SyncProducer, name) == arguments(Producer, name), name


def test_a_record_is_enqueued_only_where_that_takes_no_waiting(broker: FakeBroker) -> None:
    options: dict[str, Any] = {"buffer_memory": 3000, "batch_size": 1000, "max_request_size": 2500}
    with SyncProducer(broker.bootstrap_servers, **options) as producer:
        with pytest.raises(MetadataNotReady):
            producer.enqueue_nowait("orders", b"value")
        producer.partitions_for("orders")
        assert producer.enqueue_nowait("orders", "value", key="key", partition=1).result(30).partition == 1
        with broker.hold("Produce"):
            producer.enqueue_nowait("orders", b"x" * 2000)
            with pytest.raises(BufferFull):
                producer.enqueue_nowait("orders", b"x" * 2000)


def test_callbacks_are_reported_in_the_thread_of_the_producer(broker: FakeBroker) -> None:
    reported: list[tuple[SyncDelivery, int, str]] = []

    def note(delivery: SyncDelivery) -> None:
        reported.append((delivery, delivery.result().offset, threading.current_thread().name))

    with SyncProducer(broker.bootstrap_servers) as producer:
        producer.send("orders", b"one", partition=0, on_delivery=note)
        second = producer.enqueue("orders", b"two", partition=0, on_delivery=note)
        third = producer.enqueue_nowait("orders", b"three", partition=0, on_delivery=note)

    assert [(offset, thread) for _, offset, thread in reported] == [(number, "aioproducer") for number in range(3)]
    assert [delivery for delivery, _, _ in reported[1:]] == [second, third]


def test_a_callback_for_one_record_may_be_async_and_one_for_another_thread_may_not(broker: FakeBroker) -> None:
    reported: list[int] = []
    producer = SyncProducer(broker.bootstrap_servers)

    async def note(delivery: SyncDelivery) -> None:
        await until(lambda: producer.health().status is HealthStatus.CLOSING)
        reported.append(delivery.result().offset)

    with producer:
        producer.send("orders", b"one", partition=0, on_delivery=note)
        delivery = producer.enqueue("orders", b"two", partition=0, on_delivery=note)
        with pytest.raises(TypeError, match="on_delivery="):
            delivery.add_done_callback(note)

    assert sorted(reported) == [0, 1]


@pytest.mark.parametrize("method", ["send", "enqueue", "enqueue_nowait"])
def test_a_callback_that_is_none_is_refused_before_anything_is_done(
    broker: FakeBroker, producer: SyncProducer, method: str
) -> None:
    producer.partitions_for("orders")
    with pytest.raises(InvalidRecord, match="on_delivery='print'"):
        getattr(producer, method)("orders", b"value", on_delivery="print")
    with pytest.raises(TypeError, match="add_done_callback"):
        producer.enqueue("orders", b"value").add_done_callback("print")  # type: ignore[arg-type]

    producer.flush()
    assert len(broker.records("orders")) == 1


def test_a_callback_that_raises_is_logged(broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    def broken(delivery: SyncDelivery) -> None:
        raise LookupError("the callback is broken")

    with SyncProducer(broker.bootstrap_servers) as producer:
        producer.send("orders", b"one", on_delivery=broken)
        producer.enqueue("orders", b"two").add_done_callback(broken)
        producer.flush()

    assert caplog.text.count("LookupError: the callback is broken") == 2


def test_it_is_configured_by_the_environment_and_by_properties(broker: FakeBroker) -> None:
    servers = broker.bootstrap_servers
    by_environment = SyncProducer.from_env("APP_", {"APP_BOOTSTRAP_SERVERS": servers, "APP_LINGER_MS": "7"}, acks="all")
    by_properties = SyncProducer.from_properties({"bootstrap.servers": servers, "linger.ms": "7"}, client_id="mine")

    assert (by_environment.config.linger_ms, by_properties.client_id) == (7, "mine")
    for producer in (by_environment, by_properties):
        with producer:
            producer.send("orders", b"value")


def test_a_later_close_with_less_time_lets_the_closing_that_runs_end_in_that_time(broker: FakeBroker) -> None:
    producer = SyncProducer(broker.bootstrap_servers, **QUICK).start()
    producer.send("orders", b"value")
    reports: list[CloseReport] = []
    with broker.hold("Produce") as held:
        producer.enqueue("orders", b"value")
        broker.wait_for(lambda _: held.waiting, 30)
        first = threading.Thread(target=lambda: reports.append(producer.close(60)))
        first.start()
        while producer.health().status is not HealthStatus.CLOSING:
            time.sleep(0.001)
        began = time.monotonic()

        reports.append(producer.close(0.05))
        first.join(30)

    assert time.monotonic() - began < 20
    assert reports[0].unknown == 1
    assert reports[0] == reports[1]
    with pytest.raises(ProducerClosed):
        producer.send("orders", b"value")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C is a KeyboardInterrupt, also where the tests run in the background of a shell, which has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_closing_that_is_interrupted_gives_the_rest_up_and_leaves_nothing_behind(broker: FakeBroker) -> None:
    before = set(threading.enumerate())
    producer = SyncProducer(broker.bootstrap_servers, **QUICK).start()
    producer.send("orders", b"value")

    def interrupt() -> None:
        while producer.health().status is not HealthStatus.CLOSING:
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    with broker.hold("Produce") as held:
        delivery = producer.enqueue("orders", b"value")
        broker.wait_for(lambda _: held.waiting, 30)
        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            producer.close(60)
        interrupting.join()

    assert time.monotonic() - began < 20
    assert delivery.exception(0) is not None
    assert set(threading.enumerate()) <= before
    assert producer.close().unknown == 1


def test_closing_ends_in_time_though_an_interceptor_swallows_its_cancellation(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    ended = threading.Event()

    class Swallowing:
        async def on_acknowledgement(self, metadata: object, error: object, headers: object) -> None:
            while not ended.is_set():
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.01)

    before = set(threading.enumerate())
    producer = SyncProducer(broker.bootstrap_servers, interceptors=[Swallowing()])
    producer.start()
    producer.send("orders", b"value")
    began = time.monotonic()

    report = producer.close(0.05)

    assert time.monotonic() - began < 20
    assert report.delivered == 1
    assert "producer's thread is left running" in caplog.text
    ended.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("versions", ["3.9.2", "4.3.1"])
def test_transactions_are_committed_aborted_and_redone(versions: str) -> None:
    with (
        FakeBroker(topics={"orders": 3, "in": 1}, versions=versions) as broker,
        SyncProducer(broker.bootstrap_servers, transactional_id="shop", retry_backoff_ms=5) as producer,
    ):
        with producer.transaction() as txn:
            txn.send("orders", b"1")
            txn.enqueue("orders", b"2")
            txn.send_offsets({TopicPartition("in", 0): 3}, "readers")
            assert producer.transaction_handle().transactional_id == "shop"
        with suppress(KeyboardInterrupt), producer.transaction() as txn:
            txn.send("orders", b"aborted")
            raise KeyboardInterrupt
        producer.begin_transaction()
        producer.send_many("orders", [b"3", b"4"])
        producer.commit_transaction()
        broker.fail("Produce", "INVALID_RECORD")
        assert producer.run_in_transaction(lambda txn: txn.enqueue("orders", b"5")).done()

        seen = sorted(each.value or b"" for each in broker.records("orders", committed=True))
        offsets = broker.committed_offsets("readers")

    assert seen == [b"1", b"2", b"3", b"4", b"5"]
    assert offsets[TopicPartition("in", 0)].offset == 3


@pytest.mark.parametrize(
    "call",
    [
        lambda txn: txn.send("orders", b"late"),
        lambda txn: txn.enqueue("orders", b"late"),
        lambda txn: txn.enqueue_nowait("orders", b"late"),
        lambda txn: txn.send_many("orders", [b"late"]),
        lambda txn: txn.send_table("orders", pyarrow.table({"v": [b"late"]}), value="v"),
        lambda txn: txn.send_offsets({TopicPartition("orders", 0): 1}, "late"),
        lambda txn: txn.handle(),
    ],
)
def test_a_transaction_that_is_not_open_puts_nothing_into_another_one(
    call: Callable[[SyncTransaction], object],
) -> None:
    with (
        FakeBroker(topics={"orders": 1}) as broker,
        SyncProducer(broker.bootstrap_servers, transactional_id="shop", retry_backoff_ms=5) as producer,
    ):
        with producer.transaction() as over:
            over.send("orders", b"1")
        with producer.transaction() as txn:
            txn.send("orders", b"2")
            with pytest.raises(TransactionStateError, match="has ended"):
                call(over)
            with pytest.raises(TransactionStateError, match="has not begun"):
                call(producer.transaction())

    assert [each.value for each in broker.records("orders", committed=True)] == [b"1", b"2"]
    assert not broker.committed_offsets("late")
