"""``aioproducer.contrib.confluent`` is like confluent-kafka's producers, and its exceptions are caught by both names."""

# librdkafka's names of its own codes begin with an underscore.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
import struct
import subprocess
import sys
import threading
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.aio import AIOProducer as TheirAIOProducer

from aioproducer.config import ProducerConfig
from aioproducer.contrib.confluent import AIOProducer, KafkaError, KafkaException, Message, Producer, translate
from aioproducer.contrib.confluent.errors import error_of, exception_of
from aioproducer.contrib.confluent.records import checked_group
from aioproducer.contrib.confluent.served import Events, LoopedProducer
from aioproducer.errors import ProducerClosed
from aioproducer.record import Codec
from aioproducer.testing import FakeBroker, Logins
from aioproducer.types import ConsumerGroupMetadata, HealthStatus
from tests.contrib.confluent_scenario import NOW_MS, PARTITIONS, AsyncProgram, Observed, Program

GROUP = b"CGMDv2:" + struct.pack("=i", -1) + b"group\0\0\x01"


def written(broker: FakeBroker) -> list[tuple[object, ...]]:
    """The records of the topic."""
    return [
        (r.partition, r.offset, r.key, r.value, r.headers, r.timestamp_ms if r.timestamp_ms < NOW_MS else "now")
        for r in broker.records("orders", committed=True)
    ]


# -- the same as confluent-kafka ------------------------------------------------------------------------------------------


def test_a_program_observes_and_writes_the_same_with_both_classes() -> None:
    seen: list[list[Observed]] = []
    logs: list[list[tuple[object, ...]]] = []
    for kind in (confluent_kafka.Producer, Producer):
        with FakeBroker(topics={"orders": PARTITIONS}) as broker:
            seen.append(Program(kind, confluent_kafka.TopicPartition, broker.bootstrap_servers, "orders", GROUP).run())
            logs.append(written(broker))

    theirs, ours = seen
    assert ours == theirs
    assert logs[1] == logs[0]
    assert len(logs[1]) > 40  # the program has written something


async def test_a_start_that_failed_is_raised_by_each_call(broker: FakeBroker) -> None:
    producer = AIOProducer({"bootstrap.servers": broker.bootstrap_servers})
    await producer.producer.start()  # so that its own start fails
    for _ in range(2):
        with pytest.raises(KafkaException, match="already started"):
            await producer.produce("orders", b"value")

    await producer.producer.close()
    assert broker.count("Produce") == 0


async def test_an_async_program_observes_and_writes_the_same_with_both_classes() -> None:
    seen: list[list[Observed]] = []
    logs: list[set[tuple[object, ...]]] = []
    for kind in (TheirAIOProducer, AIOProducer):
        with FakeBroker(topics={"orders": PARTITIONS}) as broker:
            seen.append(await AsyncProgram(kind, broker.bootstrap_servers, "orders").run())
            logs.append(set(written(broker)))

    theirs, ours = seen
    assert ours == theirs
    assert logs[1] == logs[0]
    assert len(logs[1]) == 11


def test_the_classes_have_the_methods_of_confluent_kafka() -> None:
    for theirs, ours in ((confluent_kafka.Producer, Producer), (TheirAIOProducer, AIOProducer)):
        assert [name for name in dir(theirs) if not name.startswith("_") and not hasattr(ours, name)] == []
    names = [name for name in dir(confluent_kafka.Message) if not name.startswith("_")]
    assert set(names) - set(dir(Message)) <= {
        "deserialized_key",
        "deserialized_value",
    }


# -- errors ---------------------------------------------------------------------------------------------------------------


def test_all_codes_have_the_names_and_texts_of_confluent_kafka() -> None:
    theirs: Any = confluent_kafka.KafkaError
    codes = dict(inspect.getmembers(theirs, lambda it: isinstance(it, int)))

    assert codes
    for name, code in codes.items():
        assert getattr(KafkaError, name) == code
        assert (KafkaError(code).name(), KafkaError(code).str()) == (theirs(code).name(), theirs(code).str())
        assert str(KafkaError(code)) == str(theirs(code))


def pickled(it: object) -> Any:
    """A copy by way of pickle."""
    return pickle.loads(pickle.dumps(it))


@pytest.mark.parametrize("duplicate", [copy.copy, pickled])
def test_an_exception_is_caught_by_both_names_also_after_it_was_copied(duplicate: Any) -> None:
    raised = duplicate(exception_of(error_of(KafkaError._MSG_TIMED_OUT, "late", retriable=True)))

    assert isinstance(raised, KafkaException)
    assert isinstance(raised, confluent_kafka.KafkaException)
    error = raised.args[0]
    assert isinstance(error, KafkaError)
    assert isinstance(error, confluent_kafka.KafkaError)
    assert error == confluent_kafka.KafkaError._MSG_TIMED_OUT
    assert confluent_kafka.KafkaError(confluent_kafka.KafkaError._MSG_TIMED_OUT) == error
    assert error != confluent_kafka.KafkaError(3)
    assert (error.str(), error.retriable(), error.fatal()) == ("late", True, False)


_WITHOUT_CONFLUENT = """
import sys
sys.modules["confluent_kafka"] = None  # as if it were not installed
from aioproducer.contrib.confluent import Producer, KafkaException
producer = Producer({"bootstrap.servers": sys.argv[1]})
producer.produce("orders", b"value", on_delivery=lambda error, message: print(message.offset()))
producer.flush()
producer.close()
try:
    Producer({"nope": 1})
except KafkaException as error:
    print(error.args[0].name())
"""


def test_confluent_kafka_need_not_be_installed(broker: FakeBroker) -> None:
    program = [sys.executable, "-c", _WITHOUT_CONFLUENT, broker.bootstrap_servers]

    assert subprocess.run(program, capture_output=True, text=True, check=True).stdout.split() == ["0", "_INVALID_ARG"]


def test_importing_it_does_not_import_confluent_kafka() -> None:
    program = "import sys, aioproducer.contrib.confluent; print('confluent_kafka' in sys.modules)"

    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "False\n"
    )


# -- the synchronous producer ---------------------------------------------------------------------------------------------


def outcomes(producer: Producer, **record: Any) -> list[Any]:
    """Send one record; returns its error."""
    found: list[Any] = []
    producer.produce("orders", b"v", on_delivery=lambda error, message: found.append((error, message)), **record)
    assert producer.flush(30) == 0
    return found


@pytest.mark.parametrize("code", ["TOPIC_AUTHORIZATION_FAILED", "POLICY_VIOLATION", "INVALID_TIMESTAMP"])
def test_a_record_that_the_broker_refuses_fails_with_its_code(broker: FakeBroker, code: str) -> None:
    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        broker.fail("Produce", code, topic="orders")
        ((error, message),) = outcomes(producer)
    assert error.name() == code
    assert message.error() == error


def test_a_partition_that_the_topic_does_not_have_is_reported(broker: FakeBroker) -> None:
    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        ((error, message),) = outcomes(producer, partition=17)
    assert error == KafkaError._UNKNOWN_PARTITION
    assert message.partition() == 17


def test_a_record_without_a_broker_times_out(broker: FakeBroker) -> None:
    broker.close()
    config = {"bootstrap.servers": broker.bootstrap_servers, "message.timeout.ms": 200}
    with Producer(config) as producer:
        ((error, _),) = outcomes(producer)
        assert error == confluent_kafka.KafkaError._MSG_TIMED_OUT
        with pytest.raises(confluent_kafka.KafkaException) as raised:
            producer.list_topics(timeout=0.1)
        assert raised.value.args[0] == KafkaError._TRANSPORT


def test_an_unknown_topic_is_reported() -> None:
    with FakeBroker(auto_create_topics=False) as broker:
        config = {"bootstrap.servers": broker.bootstrap_servers, "topic.metadata.propagation.max.ms": 100}
        with Producer(config) as producer:
            ((error, _),) = outcomes(producer)
    assert error.code() in (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART)


def test_callbacks_run_in_the_thread_that_polls_and_their_exception_is_raised_there(broker: FakeBroker) -> None:
    threads: list[object] = []

    def callback(error: object, message: object) -> None:
        threads.append(threading.current_thread())
        raise KeyError("mine")

    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        producer.produce("orders", b"v", on_delivery=callback)
        with pytest.raises(KeyError, match="mine"):
            producer.poll()
        assert len(producer) == 0
    assert threads == [threading.current_thread()]


def test_flush_ends_after_its_timeout_and_a_purge_gives_the_records_up(broker: FakeBroker) -> None:
    errors: list[Any] = []
    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer, broker.hold("Produce"):
        producer.produce("orders", b"v", on_delivery=lambda error, message: errors.append(error))
        assert producer.flush(0.1) == 1
        producer.purge()
        assert producer.flush(30) == 0
    assert errors == [KafkaError._PURGE_INFLIGHT]


def test_a_record_of_an_unknown_topic_does_not_delay_others(broker: FakeBroker) -> None:
    errors: list[Any] = []
    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer, broker.hold("Metadata"):
        producer.produce("orders", b"v", on_delivery=lambda error, message: errors.append(error))
        producer.purge()
        assert producer.poll(30) == 1
    assert errors == [KafkaError._PURGE_QUEUE]


def test_an_error_callback_hears_that_no_broker_is_connected(broker: FakeBroker) -> None:
    broker.close()
    errors: list[Any] = []
    config = {"bootstrap.servers": broker.bootstrap_servers, "error_cb": errors.append}
    with Producer(config) as producer:
        while not errors:
            producer.poll(30)
    assert errors[0] == KafkaError._ALL_BROKERS_DOWN


def test_only_failures_are_reported_if_that_is_configured(broker: FakeBroker) -> None:
    config = {"bootstrap.servers": broker.bootstrap_servers, "delivery.report.only.error": True}
    with Producer(config) as producer:
        assert outcomes(producer) == []
        assert len(outcomes(producer, partition=17)) == 1


def test_an_exception_in_a_callback_closes_the_producer(broker: FakeBroker) -> None:
    def callback(error: object, message: object) -> None:
        raise KeyError("mine")

    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    with pytest.raises(KeyError, match="mine"), producer:
        producer.produce("orders", b"v", on_delivery=callback)
    with pytest.raises(RuntimeError, match="closed"):
        producer.produce("orders", b"v")
    assert producer.producer.health().status is HealthStatus.CLOSED
    assert producer.close() is True


def test_close_ends_a_poll_in_another_thread(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    polls = threading.Event()
    served: list[int] = []
    wait = Events.wait

    def noticed(events: Events, *args: Any) -> bool:
        polls.set()
        return wait(events, *args)

    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    monkeypatch.setattr(Events, "wait", noticed)
    thread = threading.Thread(target=lambda: served.append(producer.poll(-1)), daemon=True)
    thread.start()
    polls.wait()
    producer.close()
    thread.join(30)
    assert served == [0]


@pytest.mark.parametrize("end", ["", "del producer"])
def test_accepted_records_are_sent_at_exit_and_if_the_producer_is_dropped(broker: FakeBroker, end: str) -> None:
    program = f"""
import sys
from aioproducer.contrib.confluent import Producer
producer = Producer({{"bootstrap.servers": sys.argv[1]}})
for number in range(2_000):
    producer.produce("orders", b"v")
{end}
"""
    subprocess.run([sys.executable, "-c", program, broker.bootstrap_servers], check=True)

    assert len(broker.records("orders")) == 2_000


def test_records_that_cannot_be_sent_in_the_time_to_close_are_logged_and_fail(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    errors: list[Any] = []
    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer, broker.hold("Metadata"):
        for _ in range(3):
            producer.produce("orders", b"v", on_delivery=lambda error, message: errors.append(error))
        producer.producer.close(0)
        assert producer.poll(30) == 3
    assert errors == [KafkaError._PURGE_QUEUE] * 3
    assert "3 record(s) that were waiting" in caplog.text


def test_only_an_explicit_close_waits_for_the_whole_time_of_a_delivery(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeouts: list[float | None] = []
    close = LoopedProducer.close

    def noted(producer: LoopedProducer, timeout: float | None = None) -> object:
        timeouts.append(timeout)
        return close(producer, timeout)

    monkeypatch.setattr(LoopedProducer, "close", noted)
    for message_timeout_ms, at_exit_ms in ((250_000, 10_000), (6_000, 6_000)):
        config = {"bootstrap.servers": broker.bootstrap_servers, "message.timeout.ms": message_timeout_ms}
        with Producer(config) as producer:
            assert producer.producer.config.close_timeout_ms == at_exit_ms
    assert timeouts == [250, 6]


_FORKED = """
import os, sys
from aioproducer.contrib.confluent import KafkaException, Producer
producer = Producer({"bootstrap.servers": sys.argv[1]})
producer.produce("orders", b"v")
producer.flush()
if child := os.fork():
    os.waitpid(child, 0)
    producer.close()
else:
    for _ in range(2):
        try:
            producer.produce("orders", b"of the fork")
        except KafkaException as error:
            print(error.args[0].name(), len(producer))
    print(producer.close(), flush=True)
    os._exit(0)
"""


def test_every_call_in_a_fork_is_refused(broker: FakeBroker) -> None:
    program = [sys.executable, "-c", _FORKED, broker.bootstrap_servers]

    found = subprocess.run(program, capture_output=True, text=True, check=True).stdout.splitlines()

    assert found == ["_STATE 0", "_STATE 0", "True"]
    assert len(broker.records("orders")) == 1


def test_a_record_that_cannot_be_handed_over_takes_no_room(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    def post(producer: object, call: object) -> None:
        raise ProducerClosed("while it was closed")

    config = {"bootstrap.servers": broker.bootstrap_servers, "queue.buffering.max.messages": 1}
    with Producer(config) as producer:
        with monkeypatch.context() as patched:
            patched.setattr(LoopedProducer, "post", post)
            for _ in range(2):
                with pytest.raises(KafkaException):
                    producer.produce("orders", b"v")
        assert len(producer) == 0
        assert len(outcomes(producer)) == 1


def test_an_error_callback_hears_nothing_of_the_start(broker: FakeBroker) -> None:
    errors: list[Any] = []
    config = {"bootstrap.servers": broker.bootstrap_servers, "error_cb": errors.append}
    with Producer(config) as producer:
        outcomes(producer)
    assert errors == []


# -- the asynchronous producer --------------------------------------------------------------------------------------------


async def test_headers_and_failures_of_the_asynchronous_producer(broker: FakeBroker) -> None:
    async with AIOProducer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        message = await (await producer.produce("orders", b"v", headers={"a": "1"}))
        assert message.headers() == [("a", b"1")]
        broker.fail("Produce", "POLICY_VIOLATION", topic="orders")
        with pytest.raises(confluent_kafka.KafkaException) as raised:
            await (await producer.produce("orders", b"v"))
        assert raised.value.args[0] == KafkaError.POLICY_VIOLATION
        with broker.hold("Produce"):
            future = await producer.produce("orders", b"v")
            await producer.purge()
            with pytest.raises(KafkaException):
                await future
        assert await producer.cluster_id() == (await producer.list_topics("orders")).cluster_id
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_full_queue_of_the_asynchronous_producer_is_a_buffer_error(broker: FakeBroker) -> None:
    config = {"bootstrap.servers": broker.bootstrap_servers, "queue.buffering.max.messages": 1}
    async with AIOProducer(config) as producer:
        with broker.hold("Produce"):
            await producer.produce("orders", b"v")
            with pytest.raises(BufferError):
                await producer.produce("orders", b"v")


def caught() -> list[Any]:
    """The exceptions that the event loop's handler gets from now on."""
    found: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: found.append(context.get("exception")))
    return found


async def test_an_exception_in_a_callback_harms_no_other_record(broker: FakeBroker) -> None:
    exceptions = caught()

    def callback(error: object, message: object) -> None:
        raise KeyError("mine")

    config = {"bootstrap.servers": broker.bootstrap_servers, "on_delivery": callback}
    async with AIOProducer(config) as producer:
        futures = [await producer.produce("orders", b"v", partition=partition) for partition in (7, 7, 0)]
        assert await producer.flush() == 0
        assert [isinstance(future.exception(), KafkaException) for future in futures] == [True, True, False]
    assert [type(error) for error in exceptions] == [KeyError] * 3


async def test_records_that_wait_fail_after_an_unexpected_exception(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    caught()

    async def enqueue(*args: object, **options: object) -> None:
        raise KeyError("unexpected")

    async with AIOProducer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        monkeypatch.setattr(producer.producer, "enqueue", enqueue)
        futures = [await producer.produce("orders", b"v") for _ in range(2)]
        assert await producer.flush() == 0
        assert [str(future.exception()) for future in futures] == [str(exception_of(error_of(KafkaError._FAIL)))] * 2


async def test_an_exception_in_an_error_callback_harms_no_record(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    exceptions = caught()
    monkeypatch.setattr("aioproducer.contrib.confluent.feed._WATCH_EVERY_S", 0.001)
    broker.close()

    def error_cb(error: object) -> None:
        raise KeyError("mine")

    config = {"bootstrap.servers": broker.bootstrap_servers, "message.timeout.ms": 200, "error_cb": error_cb}
    async with AIOProducer(config) as producer:
        future = await producer.produce("orders", b"v")
        with pytest.raises(KafkaException):
            await future
    assert [type(error) for error in exceptions] == [KeyError]


async def test_every_close_of_the_asynchronous_producer_waits_for_the_end(broker: FakeBroker) -> None:
    producer = AIOProducer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "mine"})
    await producer.init_transactions()
    await producer.begin_transaction()
    await producer.produce("orders", b"v")
    await producer.flush()

    async def status() -> HealthStatus:
        await producer.close()
        return producer.producer.health().status

    cancelled = asyncio.ensure_future(producer.close())
    await asyncio.sleep(0)
    cancelled.cancel()
    assert set(await asyncio.gather(status(), status())) == {HealthStatus.CLOSED}
    assert cancelled.cancelled()
    assert asyncio.all_tasks() == {asyncio.current_task()}


# -- configuration --------------------------------------------------------------------------------------------------------


def test_options_are_translated_with_librdkafkas_defaults() -> None:
    options: Any = translate({"bootstrap.servers": "one:1"}).options

    assert (options["acks"], options["linger_ms"], options["enable_idempotence"]) == (-1, 5, False)
    assert (options["partitioner"], options["delivery_timeout_ms"]) == ("consistent_random", 300_000)


def test_a_linger_differs_from_librdkafkas() -> None:
    for linger, differs in ((20, True), (0, False)):
        found = translate({"bootstrap.servers": "one:1", "linger.ms": linger})
        assert ("in flight" in found.differences.get("linger.ms", "")) is differs


@pytest.mark.parametrize("codecs", ["Logs:ZSTD,*:lz4", {"Logs": "zstd", "*": "lz4"}], ids=str)
def test_codecs_by_topic_keep_the_case_of_their_topics(codecs: Any) -> None:
    options: Any = translate({"bootstrap.servers": "one:1", "compression.codec": codecs}).options

    assert options["compression_type"] == {"Logs": "zstd", "*": "lz4"}


@pytest.mark.parametrize(
    ("codec", "level", "used"),
    [
        ("gzip", 12, 9),
        ("gzip", "10", 9),
        ("gzip", 9, 9),
        ("gzip", -1, None),
        ("gzip", 0, 1),
        ("lz4", 12, 12),
        ("lz4", 0, None),
        ("zstd", 12, 12),
        ("zstd", 0, 0),
        ("logs:zstd,*:gzip", 12, 9),
        (["zstd", "gzip"], 12, 9),
    ],
    ids=str,
)
def test_a_level_becomes_the_nearest_one_that_the_codec_has(codec: Any, level: object, used: int | None) -> None:
    found = translate({"bootstrap.servers": "one:1", "compression.type": codec, "compression.level": level})
    options: Any = found.options

    assert options["compression_level"] == used
    assert ProducerConfig("one:1", **found.options).compression_level == used
    assert "compression.level" not in found.ignored
    assert ("compression.level" in found.differences) is ((codec, level) == ("gzip", 0))


def test_gzip_with_a_level_above_its_own_arrives(broker: FakeBroker) -> None:
    given = {"bootstrap.servers": broker.bootstrap_servers, "compression.type": "gzip", "compression.level": 12}
    with Producer(given) as producer:
        producer.produce("orders", b"value " * 100)
        assert producer.flush(10) == 0

    [batch] = broker.batches("orders")
    assert Codec(batch.header.codec) is Codec.GZIP


def test_levels_that_librdkafka_refuses_as_well_are_errors() -> None:
    given = {"bootstrap.servers": "one:1", "compression.type": "gzip", "compression.level": 13}
    with pytest.raises(KafkaException, match="compression_level=13 is not a level of gzip: it must be 1 to 9"):
        Producer(given)


@pytest.mark.parametrize("acks", [2, "2", 1000])
def test_a_number_of_replicas_is_refused_as_brokers_would(acks: object) -> None:
    with pytest.raises(KafkaException) as caught:
        translate({"bootstrap.servers": "one:1", "acks": acks})

    error = caught.value.args[0]
    assert error.code() == KafkaError._INVALID_ARG
    assert f"acks={acks!r} cannot be honoured: brokers since Kafka 0.9 refuse" in error.str()
    assert "Use 'all', and set min.insync.replicas" in error.str()


@pytest.mark.parametrize("acks", [-2, "two", True, "²"])
def test_other_values_of_acks_are_invalid(acks: object) -> None:
    with pytest.raises(KafkaException, match="Invalid "):
        translate({"bootstrap.servers": "one:1", "acks": acks})


def test_aliases_units_and_callbacks_are_translated() -> None:
    found = translate(
        {
            "metadata.broker.list": "one:1",
            "queue.buffering.max.ms": "1.5",
            "request.required.acks": "1",
            "compression.codec": "lz4",
            "queue.buffering.max.kbytes": 4,
            "connections.max.idle.ms": 0,
            "message.timeout.ms": 1_000,
            "group.id": "it",
            "stats_cb": print,
            "statistics.interval.ms": 5,
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "me",
            "sasl.password": "secret",
        }
    )
    options: Any = found.options

    assert (found.bootstrap_servers, found.max_bytes) == (("one:1",), 4_096)
    assert (options["linger_ms"], options["acks"], options["compression_type"]) == (2, 1, "lz4")
    assert (options["connections_max_idle_ms"], options["request_timeout_ms"]) == (-1, 998)
    assert set(found.ignored) == {"group.id", "stats_cb", "statistics.interval.ms"}
    assert set(found.differences) == {"linger.ms", "request.timeout.ms"}
    assert options["sasl_credentials_provider"]() == ("me", "secret")
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    "option",
    [
        {"enable.ssl.certificate.verification": False},
        {"ssl.endpoint.identification.algorithm": "none"},
        {"ssl.keystore.location": "file"},
        {"sasl.oauthbearer.method": "oidc"},
        {"enable.gapless.guarantee": True},
        {"max.block.ms": 1},
        {"linger.ms": None},
    ],
)
def test_an_option_that_matters_and_cannot_be_honoured_is_refused(option: dict[str, object]) -> None:
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        translate({"bootstrap.servers": "one:1", **option})
    assert raised.value.args[0] == KafkaError._INVALID_ARG


def test_values_without_effect_are_left_out() -> None:
    config = {"bootstrap.servers": "one:1", "client.id": None, "compression.level": 5, "transactional.id": ""}
    found = translate(config)

    assert found.options.get("client_id") == "rdkafka"
    assert set(found.ignored) == {"compression.level"}
    assert not {"compression_level", "transactional_id"} & set(found.options)


def test_ignored_keys_cause_a_warning(broker: FakeBroker) -> None:
    with pytest.warns(UserWarning, match="stats_cb"):
        Producer({"bootstrap.servers": broker.bootstrap_servers, "stats_cb": print}).close()


def test_credentials_can_be_replaced() -> None:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    login |= {"sasl.username": "me", "sasl.password": "wrong"}
    with (
        FakeBroker(logins=Logins({"me": "right"})) as broker,
        Producer({"bootstrap.servers": broker.bootstrap_servers, **login}) as producer,
    ):
        producer.set_sasl_credentials("me", "right")
        ((error, _),) = outcomes(producer)
    assert error is None


def test_tokens_come_from_the_callback() -> None:
    seen: list[object] = []

    def accept(token: str, extensions: Any) -> bool:
        seen.append((token, dict(extensions)))
        return True

    def oauth_cb(config: str) -> tuple[object, ...]:
        return f"token-for-{config}", 4e9, "principal", {"cluster": "one"}

    login: dict[str, object] = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    login |= {"oauth_cb": oauth_cb, "sasl.oauthbearer.config": "me"}
    with (
        FakeBroker(logins=Logins(tokens=accept)) as broker,
        Producer({"bootstrap.servers": broker.bootstrap_servers, **login}) as producer,
    ):
        ((error, _),) = outcomes(producer)
    assert error is None
    assert seen[0] == ("token-for-me", {"cluster": "one"})


def test_the_metadata_of_a_group_are_read() -> None:
    instance = b"CGMDv2:" + struct.pack("=i", 7) + b"group\0member\0\x00instance\0"

    assert checked_group(GROUP) == ConsumerGroupMetadata("group")
    assert checked_group(instance) == ConsumerGroupMetadata("group", 7, "member", "instance")
    with pytest.raises(KafkaException):
        checked_group(b"other")
