"""``aioproducer.contrib.aiokafka`` behaves like aiokafka's producer, and its exceptions are caught by aiokafka's names."""

from __future__ import annotations

import asyncio
import copy
import gc
import inspect
import logging
import pickle
import ssl
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiokafka  # type: ignore[import-untyped]
import aiokafka.errors as their_errors  # type: ignore[import-untyped]
import pytest

from aioproducer import ConfigError, NotWritten, TimestampType
from aioproducer.contrib.aiokafka import AIOKafkaProducer, TopicPartition, create_ssl_context, errors
from aioproducer.contrib.aiokafka.structs import OffsetAndMetadata, RecordMetadata
from aioproducer.protocol.messages import ProduceRequest
from aioproducer.testing import FakeBroker, Logins, TopicConfig, TopicSpec
from tests.conftest import Clock, turns, until
from tests.contrib.aiokafka_scenario import PARTITIONS, Observed, Program

#: Long enough for each step on a busy machine if nothing fails.
PATIENT: dict[str, Any] = {"request_timeout_ms": 60_000, "retry_backoff_ms": 5}
#: For a start that fails.
HASTY: dict[str, Any] = {"request_timeout_ms": 100, "retry_backoff_ms": 5}


@asynccontextmanager
async def opened(broker: FakeBroker, **options: Any) -> AsyncGenerator[AIOKafkaProducer, None]:
    """A producer on the broker; its block leaves no task behind."""
    before = asyncio.all_tasks()
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, **(PATIENT | options)) as producer:
        yield producer
    assert asyncio.all_tasks() == before


def values(broker: FakeBroker, partition: int | None = None) -> list[bytes | None]:
    """The values of the records that are not in an aborted transaction."""
    return [record.value for record in broker.records("orders", partition, committed=True)]


# -- the same as aiokafka -------------------------------------------------------------------------------------------------


async def test_a_program_observes_and_writes_the_same_with_both_classes() -> None:
    seen: list[list[Observed]] = []
    logs: list[list[tuple[object, ...]]] = []
    for kind, partition in ((aiokafka.AIOKafkaProducer, aiokafka.TopicPartition), (AIOKafkaProducer, TopicPartition)):
        with FakeBroker(topics={"orders": PARTITIONS}) as broker:
            seen.append(await Program(kind, partition, broker.bootstrap_servers, "orders").run())
            logs.append(
                [(r.partition, r.offset, r.key, r.value, r.headers, r.timestamp_ms) for r in broker.records("orders")]
            )
        gc.collect()  # aiokafka leaves failed futures, which are logged

    theirs, ours = seen
    assert ours == theirs
    assert logs[1] == logs[0]
    assert len(logs[1]) > 80  # the program has written something


def test_the_calls_have_the_parameters_of_aiokafka() -> None:
    for name, theirs in vars(aiokafka.AIOKafkaProducer).items():
        if not name.startswith("_") and callable(theirs):
            ours = inspect.signature(getattr(AIOKafkaProducer, name)).parameters.values()
            expected = inspect.signature(theirs).parameters.values()
            assert [(p.name, p.kind, p.default) for p in ours] == [(p.name, p.kind, p.default) for p in expected], name


def test_all_options_of_aiokafka_are_accepted_with_its_defaults() -> None:
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(aiokafka.AIOKafkaProducer).parameters.items()
        if name not in ("acks", "partitioner")  # their defaults are private objects
    }
    explicit = AIOKafkaProducer(**defaults).producer.config

    assert explicit == AIOKafkaProducer().producer.config


def test_metadata_have_the_fields_of_aiokafka() -> None:
    assert RecordMetadata._fields == aiokafka.structs.RecordMetadata._fields
    assert OffsetAndMetadata._fields == aiokafka.structs.OffsetAndMetadata._fields
    assert TopicPartition._fields == aiokafka.TopicPartition._fields


# -- exceptions -----------------------------------------------------------------------------------------------------------


def _classes_of_aiokafka() -> dict[str, type[BaseException]]:
    return {
        name: kind
        for name, kind in vars(their_errors).items()
        if inspect.isclass(kind) and issubclass(kind, Exception) and kind.__module__ == their_errors.__name__
    }


@pytest.mark.parametrize("name", _classes_of_aiokafka())
def test_each_exception_is_like_that_of_aiokafka(name: str) -> None:
    theirs, ours = _classes_of_aiokafka()[name], getattr(errors, name)

    assert ours.__name__ == theirs.__name__
    assert [base.__name__ for base in ours.__mro__] == [base.__name__ for base in theirs.__mro__]
    for attribute in ("errno", "message", "retriable", "invalid_metadata"):
        assert getattr(ours, attribute, None) == getattr(theirs, attribute, None), attribute
    if issubclass(ours, errors.BrokerResponseError) and ours is not errors.BrokerResponseError:
        assert errors.for_code(ours.errno) is ours


def test_an_unknown_code_is_an_unknown_error() -> None:
    assert errors.for_code(31_999) is errors.UnknownError


def _pickled_and_restored(error: Any) -> Any:
    return pickle.loads(pickle.dumps(error))


@pytest.mark.parametrize("duplicate", [copy.copy, _pickled_and_restored])
def test_an_exception_is_caught_by_both_names_also_after_it_was_copied(duplicate: Any) -> None:
    raised = duplicate(errors.in_both_hierarchies(errors.KafkaTimeoutError, "late"))

    assert isinstance(raised, errors.KafkaTimeoutError)
    assert isinstance(raised, their_errors.KafkaTimeoutError)
    assert str(raised) == "late"


_WITHOUT_AIOKAFKA = """
import asyncio, sys
sys.modules["aiokafka"] = None  # as if it were not installed
from aioproducer.contrib.aiokafka import AIOKafkaProducer, errors

async def main():
    producer = AIOKafkaProducer(bootstrap_servers=sys.argv[1])
    async with producer:
        print((await producer.send_and_wait("orders", b"value")).offset)
    try:
        await producer.send("orders", b"value")
    except errors.KafkaError as error:
        print(type(error).__name__)

asyncio.run(main())
"""


def test_aiokafka_need_not_be_installed(broker: FakeBroker) -> None:
    program = [sys.executable, "-c", _WITHOUT_AIOKAFKA, broker.bootstrap_servers]

    assert subprocess.run(program, capture_output=True, text=True, check=True).stdout.split() == ["0", "ProducerClosed"]


def test_importing_it_does_not_import_aiokafka() -> None:
    program = "import sys, aioproducer.contrib.aiokafka; print('aiokafka' in sys.modules)"

    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "False\n"
    )


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("TOPIC_AUTHORIZATION_FAILED", "TopicAuthorizationFailedError"),
        ("MESSAGE_TOO_LARGE", "MessageSizeTooLargeError"),
        ("INVALID_TIMESTAMP", "InvalidTimestampError"),
        ("POLICY_VIOLATION", "PolicyViolationError"),
        ("RECORD_LIST_TOO_LARGE", "RecordListTooLargeError"),
    ],
)
async def test_a_record_that_the_broker_refuses_fails_with_the_name_of_the_code(
    broker: FakeBroker, code: str, name: str
) -> None:
    async with opened(broker) as producer:
        broker.fail("Produce", code, topic="orders", partition=0)
        refused = await producer.send("orders", b"refused", partition=0)
        other = await producer.send("orders", b"other", partition=1)

        with pytest.raises(getattr(their_errors, name)) as raised:
            await refused
        assert isinstance(raised.value.__cause__, NotWritten)
        assert (await other).offset == 0


async def asked_again(broker: FakeBroker, future: asyncio.Future[Any]) -> None:
    """Wait for another Produce request, or for the outcome."""
    asked = broker.count("Produce")
    await until(lambda: future.done() or broker.count("Produce") > asked)


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("REQUEST_TIMED_OUT", "RequestTimedOutError"),
        ("NOT_LEADER_OR_FOLLOWER", "NotLeaderForPartitionError"),
        (None, "KafkaConnectionError"),
    ],
)
async def test_a_record_that_runs_out_of_time_fails_with_the_last_error(
    broker: FakeBroker, fault: str | None, name: str
) -> None:
    clock = Clock()
    async with opened(broker) as producer:
        if fault is None:
            broker.drop_connection("Produce", times=None)
        else:
            broker.fail("Produce", fault, times=None)
        future = await producer.send("orders", b"value", partition=0)
        while not future.done():
            await asked_again(broker, future)
            clock.advance(50)  # less than a request has: one in flight does not run out of time

        with pytest.raises(getattr(errors, name)):
            await future
        broker.clear_faults()


async def test_an_unknown_topic_is_reported_by_its_name() -> None:
    clock = Clock()
    with FakeBroker(auto_create_topics=False) as broker:
        async with opened(broker) as producer:
            sending = asyncio.ensure_future(producer.send("orders", b"value"))
            asking = asyncio.ensure_future(producer.partitions_for("orders"))
            await turns()
            clock.advance(61)
            with pytest.raises(their_errors.UnknownTopicOrPartitionError):
                await sending
            with pytest.raises(their_errors.UnknownTopicOrPartitionError):
                await asking
            for call in (producer.send("no/topic", b"value"), producer.partitions_for("no/topic")):
                with pytest.raises(their_errors.InvalidTopicError):
                    await call


async def test_a_full_buffer_is_a_timeout(broker: FakeBroker) -> None:
    clock = Clock()
    async with opened(broker, max_request_size=20_000_000) as producer:
        with broker.hold("Produce"):
            futures = [await producer.send("orders", bytes(19_000_000), partition=0) for _ in range(2)]
            sending = asyncio.ensure_future(producer.send("orders", bytes(19_000_000), partition=0))
            await until(lambda: producer.producer.health().waiting_senders == 1)
            clock.advance(61)
            with pytest.raises(their_errors.KafkaTimeoutError, match="buffer_memory"):
                await sending
        for future in futures:
            with pytest.raises(their_errors.MessageSizeTooLargeError):  # by the broker's limit
                await future


# -- start and stop -------------------------------------------------------------------------------------------------------


async def test_start_fails_without_a_broker_and_leaves_nothing_behind(broker: FakeBroker) -> None:
    broker.close()
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, **HASTY)

    with pytest.raises(their_errors.KafkaConnectionError):
        await producer.start()

    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert producer.producer.health().status == "closed"


async def test_a_start_that_is_cancelled_leaves_nothing_behind(broker: FakeBroker) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id="shop")
    with broker.hold("InitProducerId") as hold:
        starting = asyncio.ensure_future(producer.start())
        await until(lambda: hold.waiting)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_logins_use_the_options_of_aiokafka(mechanism: str, caplog: pytest.LogCaptureFixture) -> None:
    login: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "me",
    }
    with FakeBroker(logins=Logins({"me": "right"})) as broker:
        async with opened(broker, sasl_plain_password="right", **login) as producer:
            await producer.send_and_wait("orders", b"value")
        wrong = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, sasl_plain_password="wrong", **login)
        with pytest.raises(their_errors.KafkaConnectionError):
            await wrong.start()

    assert ("without encryption" in caplog.text) == (mechanism == "PLAIN")


async def test_tokens_come_from_the_provider_with_its_extensions() -> None:
    class Provider:  # like an AbstractTokenProvider of aiokafka
        async def token(self) -> str:
            return "opaque"

        def extensions(self) -> dict[str, str]:
            return {"cluster": "one"}

    seen: list[object] = []

    def accept(token: str, extensions: Any) -> bool:
        seen.append((token, dict(extensions)))
        return True

    options: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
    with FakeBroker(logins=Logins(tokens=accept)) as broker:
        async with opened(broker, sasl_oauth_token_provider=Provider(), **options) as producer:
            await producer.send_and_wait("orders", b"value")

    assert seen[0] == ("opaque", {"cluster": "one"})


async def test_deprecated_options_warn_and_are_accepted(broker: FakeBroker) -> None:
    with pytest.warns(DeprecationWarning, match="api_version"):
        AIOKafkaProducer(api_version="auto")
    with pytest.warns(DeprecationWarning, match="loop"):
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, loop=asyncio.get_running_loop())
    async with producer:
        await producer.send_and_wait("orders", b"value")


async def test_a_producer_of_another_loop_does_not_start() -> None:
    other = asyncio.new_event_loop()
    with pytest.warns(DeprecationWarning, match="loop"):
        producer = AIOKafkaProducer(loop=other)
    with pytest.raises(RuntimeError, match="event loop"):
        await producer.start()
    other.close()


async def test_a_use_before_start_is_an_illegal_state() -> None:
    with pytest.raises(their_errors.IllegalStateError):
        await AIOKafkaProducer().send("orders", b"value")


async def test_stop_delivers_and_resolves_what_was_accepted(broker: FakeBroker) -> None:
    async with opened(broker, linger_ms=60_000) as producer:
        futures = [await producer.send("orders", b"%d" % number, partition=0) for number in range(5)]
        await producer.stop()
        assert [future.result().offset for future in futures] == [0, 1, 2, 3, 4]


# -- options --------------------------------------------------------------------------------------------------------------


def test_options_are_those_of_the_producer_by_other_names() -> None:
    config = AIOKafkaProducer(
        bootstrap_servers=["one:1", "two"],
        client_id="me",
        max_batch_size=5_000,
        linger_ms=7,
        request_timeout_ms=3_000,
        retry_backoff_ms=30,
        metadata_max_age_ms=40_000,
        connections_max_idle_ms=None,
        compression_type="gzip",
        max_request_size=50_000_000,
        transactional_id="shop",
        transaction_timeout_ms=9_000,
    ).producer.config

    assert [(address.host, address.port) for address in config.bootstrap_addresses] == [("one", 1), ("two", 9092)]
    assert (config.client_id, config.batch_size, config.linger_ms, config.compression_type) == ("me", 5_000, 7, "gzip")
    assert (config.request_timeout_ms, config.max_block_ms, config.delivery_timeout_ms) == (3_000, 3_000, 6_007)
    assert (config.retry_backoff_ms, config.retry_backoff_max_ms) == (30, 30)
    assert (config.metadata_max_age_ms, config.connections_max_idle_ms) == (40_000, -1)
    assert (config.transactional_id, config.transaction_timeout_ms) == ("shop", 9_000)
    assert config.buffer_memory >= config.max_request_size == 50_000_000
    assert (config.acks, config.enable_idempotence) == (-1, True)


def test_without_idempotence_records_need_one_acknowledgement_and_keep_their_order() -> None:
    config = AIOKafkaProducer().producer.config

    assert (config.acks, config.enable_idempotence, config.max_in_flight_requests_per_connection) == (1, False, 1)


@pytest.mark.parametrize(
    "options",
    [
        {"sasl_kerberos_domain_name": "example"},
        {"sasl_plain_username": "me", "sasl_plain_password": "secret"},
        {"sasl_mechanism": "GSSAPI"},
        {"key_serializer": "str"},
        {"partitioner": 5},
        {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": object()},
    ],
)
def test_an_option_that_would_not_be_honoured_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as raised:
        AIOKafkaProducer(**options)

    assert "secret" not in str(raised.value)
    assert isinstance(raised.value, ValueError)


def test_a_context_verifies_brokers() -> None:
    context = create_ssl_context()

    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    with pytest.raises(OSError, match="No such file"):
        create_ssl_context(cafile="/nowhere")
    assert AIOKafkaProducer(security_protocol="SSL", ssl_context=context).producer.config.ssl_context is context


# -- records --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "acks"), [({}, 1), ({"enable_idempotence": True}, -1), ({"acks": 0}, 0)])
async def test_batches_are_sent_with_the_acks_that_were_chosen(
    broker: FakeBroker, options: dict[str, Any], acks: int
) -> None:
    async with opened(broker, **options) as producer:
        await producer.send_and_wait("orders", b"value", partition=0)
    await broker.wait_for_async(1, topic="orders")

    (request,) = broker.requests_of("Produce")
    assert isinstance(request.body, ProduceRequest)
    assert request.body.acks == acks
    (batch,) = broker.batches("orders")
    assert (batch.header.producer_id >= 0) == bool(options.get("enable_idempotence"))


async def test_each_record_has_its_own_timestamp(broker: FakeBroker) -> None:
    async with opened(broker, linger_ms=50) as producer:
        futures = [await producer.send("orders", b"v", partition=0, timestamp_ms=at) for at in (1_000, 2_000, 3_000)]

        assert [(await future).timestamp for future in futures] == [1_000, 2_000, 3_000]


async def test_the_time_of_the_broker_is_reported_as_such() -> None:
    stamped = TopicSpec(config=TopicConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME))
    with FakeBroker(topics={"orders": stamped}) as broker:
        async with opened(broker) as producer:
            metadata = await producer.send_and_wait("orders", b"value", timestamp_ms=1_000)

        (record,) = broker.records("orders")
    assert (metadata.timestamp, metadata.timestamp_type) == (record.timestamp_ms, 1)
    assert metadata.timestamp != 1_000


async def test_idempotent_records_are_retried_without_duplicates(broker: FakeBroker) -> None:
    async with opened(broker, enable_idempotence=True) as producer:
        broker.fail_after_apply("Produce", "REQUEST_TIMED_OUT", times=2)
        await producer.send_and_wait("orders", b"value", partition=0)

    assert values(broker) == [b"value"]
    assert broker.count("Produce") == 3


async def test_a_retry_is_not_overtaken_without_idempotence(broker: FakeBroker) -> None:
    async with opened(broker, max_batch_size=100) as producer:
        await producer.partitions_for("orders")
        broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=3)
        futures = [await producer.send("orders", b"%d" % number * 50, partition=0) for number in range(10)]
        await producer.flush()

        assert [future.result().offset for future in futures] == list(range(10))
    assert values(broker) == [b"%d" % number * 50 for number in range(10)]


async def test_flush_waits_for_records_whose_futures_were_cancelled(broker: FakeBroker) -> None:
    async with opened(broker, linger_ms=60_000) as producer:
        future = await producer.send("orders", b"value", partition=0)
        future.cancel()
        await producer.flush()

        assert values(broker) == [b"value"]


async def test_a_send_that_is_cancelled_while_it_waits_sends_nothing(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        with broker.hold("Metadata") as hold:
            sending = asyncio.ensure_future(producer.send("orders", b"value"))
            await until(lambda: hold.waiting)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
        await producer.send_and_wait("orders", b"after", partition=0)

    assert values(broker) == [b"after"]


async def test_new_partitions_can_be_named(broker: FakeBroker) -> None:
    async with opened(broker, metadata_max_age_ms=10) as producer:
        await producer.send_and_wait("orders", b"value", partition=0)
        broker.add_partitions("orders", 5)
        async with asyncio.timeout(30):
            while await producer.partitions_for("orders") != {0, 1, 2, 3, 4}:
                await turns(1)

        assert (await producer.send_and_wait("orders", b"value", partition=4)).partition == 4


async def test_headers_may_be_any_iterable_of_pairs(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        await producer.send_and_wait("orders", b"value", headers=iter([("a", bytearray(b"1")), ["b", b"2"]]))

    (record,) = broker.records("orders")
    assert list(record.headers) == [("a", b"1"), ("b", b"2")]


@pytest.mark.parametrize("timestamp", [-1, -0.5])
async def test_a_negative_timestamp_is_refused(broker: FakeBroker, timestamp: Any) -> None:
    async with opened(broker) as producer:
        with pytest.raises(ValueError, match="timestamp"):
            await producer.send("orders", b"value", timestamp_ms=timestamp)


# -- batches --------------------------------------------------------------------------------------------------------------


async def test_a_batch_is_one_batch_in_the_log_and_is_closed_when_it_was_sent(broker: FakeBroker) -> None:
    async with opened(broker) as producer:
        batch = producer.create_batch()
        for number in range(100):
            assert batch.append(timestamp=None, key=None, value=b"%d" % number) is not None
        metadata = await (await producer.send_batch(batch, "orders", partition=1))

        assert (metadata.partition, metadata.offset) == (1, 0)
        assert batch.append(timestamp=None, key=None, value=b"late") is None
    assert values(broker, 1) == [b"%d" % number for number in range(100)]
    assert len(broker.batches("orders")) == 1


async def test_a_batch_fails_with_the_error_of_its_records(broker: FakeBroker) -> None:
    async with opened(broker, max_batch_size=500) as producer:
        batch = producer.create_batch()
        while batch.append(timestamp=None, key=None, value=b"v" * 50) is not None:
            pass
        broker.fail("Produce", "POLICY_VIOLATION", times=1)
        future = await producer.send_batch(batch, "orders", partition=0)

        with pytest.raises(their_errors.PolicyViolationError):
            await future


@pytest.mark.parametrize("acks", [0, 1])
async def test_an_empty_batch_and_an_unacknowledged_one_have_no_metadata(broker: FakeBroker, acks: int) -> None:
    async with opened(broker, acks=acks) as producer:
        assert await (await producer.send_batch(producer.create_batch(), "orders", partition=0)) is None
        batch = producer.create_batch()
        batch.append(timestamp=None, key=None, value=b"value")
        metadata = await (await producer.send_batch(batch, "orders", partition=0))
        assert (metadata is None) == (acks == 0)


async def test_the_partition_of_a_batch_may_be_left_to_the_partitioner(broker: FakeBroker) -> None:
    def partitioner(key: bytes | None, everything: list[int], available: list[int]) -> int:
        assert key is None
        return everything[2]

    async with opened(broker, partitioner=partitioner) as chosen:
        batch = chosen.create_batch()
        batch.append(timestamp=None, key=b"key", value=b"value")
        assert (await (await chosen.send_batch(batch, "orders", partition=None))).partition == 2
    async with opened(broker) as producer:
        assert (await (await producer.send_batch(batch, "orders", partition=None))).partition in (0, 1, 2)


async def test_a_batch_that_is_too_large_for_a_request_is_refused(broker: FakeBroker) -> None:
    async with opened(broker, max_request_size=1_000) as producer:
        batch = producer.create_batch()
        batch.append(timestamp=None, key=None, value=bytes(2_000))
        with pytest.raises(their_errors.MessageSizeTooLargeError):
            await producer.send_batch(batch, "orders", partition=0)
        await producer.flush()  # waits for no future of it


# -- transactions ---------------------------------------------------------------------------------------------------------


async def test_start_gets_the_producer_id_and_fences_predecessors(broker: FakeBroker) -> None:
    async with opened(broker, transactional_id="shop"):
        assert broker.count("InitProducerId") == 1


async def _cancelled_amid(broker: FakeBroker, end: Any) -> None:
    with broker.hold("EndTxn") as hold:
        ending = asyncio.ensure_future(end())
        await until(lambda: hold.waiting)
        ending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ending


async def test_cancelling_the_end_of_a_transaction_does_not_stop_it(broker: FakeBroker) -> None:
    async with opened(broker, transactional_id="shop") as producer:
        for end, value in ((producer.commit_transaction, b"committed"), (producer.abort_transaction, b"aborted")):
            await producer.begin_transaction()
            await producer.send_and_wait("orders", value, partition=0)
            await _cancelled_amid(broker, end)
        await producer.begin_transaction()  # waits for the abort
        await producer.abort_transaction()

    assert values(broker) == [b"committed"]


async def test_a_transaction_that_is_cancelled_is_aborted(broker: FakeBroker) -> None:
    async with opened(broker, transactional_id="shop") as producer:
        sent = asyncio.Event()

        async def work() -> None:
            async with producer.transaction():
                await producer.send_and_wait("orders", b"cancelled", partition=0)
                sent.set()
                await asyncio.Event().wait()

        working = asyncio.ensure_future(work())
        await sent.wait()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        async with producer.transaction():
            await producer.send_and_wait("orders", b"next", partition=0)

    assert values(broker) == [b"next"]


async def test_a_failed_record_fails_the_commit_and_the_transaction_can_be_aborted(broker: FakeBroker) -> None:
    async with opened(broker, transactional_id="shop") as producer:
        broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")
        await producer.begin_transaction()
        with pytest.raises(their_errors.TopicAuthorizationFailedError):
            await producer.send_and_wait("orders", b"refused", partition=0)
        with pytest.raises(their_errors.TopicAuthorizationFailedError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_and_wait("orders", b"kept", partition=0)

    assert values(broker) == [b"kept"]


async def test_records_that_an_abort_drops_are_not_logged_as_unretrieved(broker: FakeBroker) -> None:
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    async with opened(broker, transactional_id="shop", linger_ms=60_000) as producer:
        await producer.begin_transaction()
        future = await producer.send("orders", b"dropped", partition=0)
        await producer.abort_transaction()
        assert isinstance(future.exception(), their_errors.KafkaError)
        await producer.begin_transaction()
        await producer.send("orders", b"dropped", partition=0)
        await producer.abort_transaction()
    gc.collect()

    assert problems == []


async def test_the_exception_of_a_block_is_raised_though_the_producer_is_fenced(broker: FakeBroker) -> None:
    async with opened(broker, transactional_id="shop") as producer:

        async def work() -> None:
            async with producer.transaction():
                async with opened(broker, transactional_id="shop"):
                    pass
                with pytest.raises(their_errors.ProducerFenced):
                    await producer.send_and_wait("orders", b"fenced", partition=0)
                raise KeyError

        with pytest.raises(KeyError):
            await work()
        with pytest.raises(their_errors.ProducerFenced):
            await producer.begin_transaction()


async def test_calls_in_the_wrong_state_are_illegal_operations(broker: FakeBroker) -> None:
    async with opened(broker, transactional_id="shop") as producer:
        for call in (producer.commit_transaction, producer.abort_transaction):
            with pytest.raises(their_errors.IllegalOperation):
                await call()
        for end in (producer.commit_transaction, producer.abort_transaction):
            await producer.begin_transaction()
            with pytest.raises(their_errors.IllegalOperation):
                await producer.begin_transaction()
            await end()
            with pytest.raises(their_errors.IllegalOperation):
                await producer.send("orders", b"outside")


async def test_stop_aborts_an_open_transaction(broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "aioproducer")
    async with opened(broker, transactional_id="shop") as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"open", partition=0)
    async with opened(broker, transactional_id="shop") as producer, producer.transaction():
        await producer.send_and_wait("orders", b"committed", partition=0)

    assert values(broker) == [b"committed"]


async def test_refused_offsets_fail_with_the_name_of_the_code(broker: FakeBroker) -> None:
    async with opened(broker, transactional_id="shop") as producer:
        await producer.begin_transaction()
        broker.fail("TxnOffsetCommit", "GROUP_AUTHORIZATION_FAILED")
        with pytest.raises(their_errors.GroupAuthorizationFailedError):
            await producer.send_offsets_to_transaction({TopicPartition("orders", 0): 1}, "group")
        await producer.abort_transaction()


async def test_a_commit_waits_for_records_that_take_longer_than_a_request(broker: FakeBroker) -> None:
    clock = Clock()
    async with opened(broker, transactional_id="shop") as producer:
        await producer.begin_transaction()
        with broker.hold("Produce") as hold:
            await producer.send("orders", b"value", partition=0)
            committing = asyncio.ensure_future(producer.commit_transaction())
            await until(lambda: hold.waiting == 1)
            clock.advance(61)
            await turns()
            assert not committing.done()
        await committing

    assert b"value" in [record.value for record in broker.records("orders", committed=True)]
