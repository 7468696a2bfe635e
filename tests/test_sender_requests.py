"""The Sender's requests, their times, and its reports of given-up batches; time is virtual here."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from itertools import count
from types import SimpleNamespace
from typing import Any, TypeAlias
from uuid import UUID

import anyio
import pytest

from aioproducer.core.answers import ProduceAnswer
from aioproducer.core.cluster import TopicMetadata
from aioproducer.core.failed_attempt import FailedAttempt
from aioproducer.engine.sender import Sender
from aioproducer.errors import (
    AuthenticationError,
    BrokerConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NotWritten,
    NotWrittenTimeout,
    ProtocolError,
    UnknownTimeout,
    UnsupportedVersion,
)
from aioproducer.net.connection import WRITTEN
from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.protocol.messages import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    InitProducerIdRequest,
    InitProducerIdResponse,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from aioproducer.protocol.wire import ZERO_UUID
from aioproducer.record import Codec, RecordBatchBuilder
from aioproducer.types import TopicPartition
from tests.conftest import turns, until
from tests.net.virtual import run_virtually, turns_so_far
from tests.rig import LINGER, Rig
from tests.sender_rig import Client, begin, sender_of, shared_acknowledgements, transaction_link

E = ErrorCode
Test: TypeAlias = Callable[..., Coroutine[Any, Any, None]]


def virtually(test: Test) -> Callable[..., None]:
    """Run the test in an event loop whose time passes at once."""

    @wraps(test)
    def run(*arguments: Any, **more: Any) -> None:
        run_virtually(test(*arguments, **more))

    return run


def answer(code: int = 0, *, index: int = 0, **said: Any) -> ProduceAnswer:
    reported = PartitionProduceResponse(index=index, error_code=code, base_offset=-1 if code else 5, **said)
    return ProduceAnswer([reported], (), 0)


async def one_round(sender: Sender) -> None:
    async with anyio.create_task_group() as helpers:
        sender._work(helpers)
        await turns()
        helpers.cancel_scope.cancel()


def add_topic(rig: Rig, name: str, topic_id: UUID) -> TopicMetadata:
    known = rig.metadata.topics["t"]
    topic = rig.metadata.topics[name] = replace(known, name=name, topic_id=topic_id)
    return topic


def put_into(rig: Rig, topic: TopicMetadata) -> None:
    builder = RecordBatchBuilder()
    builder.append(1, None, b"value", ())
    rig.accumulator.append_builder(topic, 0, builder, 0.0)


# -- the request ------------------------------------------------------------------------------------------------------


@virtually
async def test_a_request_carries_the_values_of_the_options() -> None:
    rig = Rig()
    client = Client(rig.metadata)
    rig.put()

    await one_round(sender_of(rig, client, request_timeout_ms=12_000))

    (request,) = client.sent
    assert (request.message.acks, request.message.timeout_ms, request.message.transactional_id) == (-1, 12_000, None)
    assert request.timeout_s == 12.0
    assert request.partitions == [("t", 0)]
    assert rig.metrics.produce_requests == 1
    assert rig.metrics.records_per_request.total == 1


@pytest.mark.parametrize(("acks", "expects"), [(0, False), (1, True), ("all", True)])
@virtually
async def test_a_response_is_expected_unless_acks_is_0(acks: Any, expects: bool) -> None:
    rig = Rig(idempotent=False)
    client = Client(rig.metadata)
    rig.put()

    await one_round(sender_of(rig, client, acks=acks, enable_idempotence=False))

    assert [request.expect_response for request in client.sent] == [expects]


@pytest.mark.parametrize(("ids", "version"), [([1], 13), ([0], 12), ([1, 0], 12)])
@virtually
async def test_a_topic_without_an_id_is_asked_for_in_a_version_with_names(ids: list[int], version: int) -> None:
    rig = Rig()
    client = Client(rig.metadata, version=13)
    for number in ids:
        put_into(rig, add_topic(rig, f"topic {number}", UUID(int=number)))

    await one_round(sender_of(rig, client))

    (request,) = client.sent
    assert request.version == version
    assert [topic.topic_id.int for topic in request.message.topic_data] == ids


@virtually
async def test_an_answer_about_a_topic_without_name_and_id_is_not_mistaken_for_one_about_a_topic_without_id() -> None:
    rig = Rig()
    client = Client(rig.metadata)
    put_into(rig, add_topic(rig, "old", ZERO_UUID))
    await one_round(sender_of(rig, client))
    reported = PartitionProduceResponse(index=0, error_code=0, base_offset=5)

    with pytest.raises(ProtocolError):
        client.sent[0].read(ProduceResponse(responses=[TopicProduceResponse(name="", partition_responses=[reported])]))


@pytest.mark.parametrize(("version", "expected"), [(1, 11), (2, 13)])
@virtually
async def test_a_transaction_is_written_in_its_own_version(version: int, expected: int) -> None:
    link = transaction_link()
    rig = Rig(transactions=link)
    bench = begin(link, rig, version=version)
    client = Client(rig.metadata, version=13)
    rig.put()
    bench.run()  # with version 1 the coordinator adds the partition

    await one_round(sender_of(rig, client, transactions=link, transactional_id="payments-1"))

    assert [request.version for request in client.sent] == [expected]


@pytest.mark.parametrize(
    ("codec", "version", "is_sent"),
    [(Codec.ZSTD, 6, False), (Codec.ZSTD, 7, True), (Codec.NONE, 6, True), (Codec.LZ4, 6, True)],
)
@virtually
async def test_zstd_is_not_sent_to_a_broker_that_cannot_read_it(codec: Codec, version: int, is_sent: bool) -> None:
    rig = Rig(codec=codec)
    client = Client(rig.metadata, version=version)
    sender = sender_of(rig, client)
    delivery = rig.put()
    sender._awake = False

    await one_round(sender)

    assert bool(client.sent) == is_sent
    if not is_sent:
        error = delivery.exception()
        assert isinstance(error, NotWritten)
        assert isinstance(error.__cause__, UnsupportedVersion)
        assert "Use lz4, snappy or gzip" in str(error)
        assert sender._awake, "the sequences that it leaves are settled in the next round"


@virtually
async def test_batches_for_a_broker_without_a_usable_version_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(node: int, request: object) -> int:
        raise UnsupportedVersion(f"Broker {node} is too old.")

    rig = Rig()
    client = Client(rig.metadata)
    monkeypatch.setattr(client, "usable_version", refuse)
    sender = sender_of(rig, client)
    delivery = rig.put()

    await one_round(sender)

    assert not client.sent
    error = delivery.exception()
    assert isinstance(error, NotWritten)
    assert isinstance(error.__cause__, UnsupportedVersion)


@virtually
async def test_batches_that_fill_several_requests_leave_in_one_short_round() -> None:
    for _ in range(100):  # on a busy machine a round may take long
        rig = Rig()
        client = Client(rig.metadata)
        for partition in range(3):
            rig.put(partition, size=2000)
        await one_round(sender_of(rig, client, max_request_size=2000))
        if len(client.sent) > 1:
            break

    assert [request.partitions for request in client.sent][:2] == [[("t", 0)], [("t", 1)]]


@virtually
async def test_a_broker_that_takes_nothing_gets_nothing_and_fewer_records_without_a_key() -> None:
    rig = Rig(nodes=2, partitions=2, availability_timeout_s=1.0)
    client = Client(rig.metadata)
    client.ready = False
    rig.put(0)
    await one_round(sender_of(rig, client))

    await asyncio.sleep(1.5)

    assert client.sent == []
    assert rig.accumulator.sticky._is_slow(1, asyncio.get_running_loop().time())


@virtually
async def test_a_batch_goes_to_the_leader_that_the_metadata_tell_now() -> None:
    rig = Rig(partitions=1)
    client = Client(rig.metadata)
    sender = sender_of(rig, client)
    await one_round(sender)
    rig.put()
    rig.lead({0: 2}, nodes=2, epoch=1)

    await one_round(sender)

    assert [request.node for request in client.sent] == [2]


# -- answers ----------------------------------------------------------------------------------------------------------


@virtually
async def test_an_answer_that_leaves_nothing_to_do_does_not_wake_the_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    microseconds = count(1)  # real ones, on a busy machine, may be so many that other tasks are owed a pause
    clock = SimpleNamespace(perf_counter=lambda: next(microseconds) / 1e6)
    monkeypatch.setattr("aioproducer.engine.sender.time", clock)
    rig = Rig()
    client = Client(rig.metadata)
    sender = sender_of(rig, client)
    delivery = rig.put()
    running = asyncio.ensure_future(sender.run())
    await turns()

    client.sent[0].take(answer())

    assert delivery.result().offset == 5
    assert not sender._awake
    running.cancel()
    assert 0 < rig.metrics.broker(1).request_latency.total < 1e-3
    assert not rig.accumulator.queues.is_paused(asyncio.get_running_loop().time())


@virtually
async def test_an_answer_that_asks_for_a_new_epoch_wakes_the_sender_which_logs_the_epoch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig()
    client = Client(rig.metadata)
    sender = sender_of(rig, client)
    running = asyncio.ensure_future(sender.run())
    with caplog.at_level(logging.INFO):
        for number in range(2):
            rig.put()
            sender.wake()
            await turns()
            assert not sender._awake
            client.sent[number].take(answer(E.OUT_OF_ORDER_SEQUENCE_NUMBER if number else 0))
        assert sender._awake
        assert "epoch" not in caplog.text
        await turns()
    running.cancel()

    assert "The producer epoch changed to 1, from 0" in caplog.text


@virtually
async def test_an_answer_that_leaves_a_sequence_in_doubt_wakes_the_sender() -> None:
    rig = Rig()
    client = Client(rig.metadata)
    sender = sender_of(rig, client)
    running = asyncio.ensure_future(sender.run())
    rig.put()
    await turns()

    client.sent[0].take(answer(999))

    assert sender._awake
    running.cancel()


@virtually
async def test_an_answer_that_leaves_parts_to_be_compressed_wakes_the_sender() -> None:
    rig = Rig(codec=Codec.GZIP, compression_threshold=100, batch_size=10_000)
    client = Client(rig.metadata)
    sender = sender_of(rig, client)
    for _ in range(20):
        rig.put(size=400)
    (batch,) = rig.accumulator.queues.by_partition[TopicPartition("t", 0)].batches
    batch.seal(Codec.GZIP, 1)
    running = asyncio.ensure_future(sender.run())
    await turns()

    client.sent[0].take(answer(E.MESSAGE_TOO_LARGE))

    assert sender._awake
    running.cancel()


@virtually
async def test_an_answer_that_took_long_is_followed_by_a_pause() -> None:
    """As where many deliveries have callbacks, which run in the same turn here."""
    rig = Rig()
    client = Client(rig.metadata)
    delivery = rig.put()
    await one_round(sender_of(rig, client))
    delivery.add_done_callback(lambda _: time.sleep(0.01))

    client.sent[0].take(answer())

    assert rig.accumulator.queues.is_paused(asyncio.get_running_loop().time())


@virtually
async def test_a_round_that_was_short_is_followed_by_no_pause() -> None:
    rig = Rig()
    await one_round(sender_of(rig, Client(rig.metadata)))

    assert not rig.accumulator.queues.is_paused(asyncio.get_running_loop().time())


@virtually
async def test_a_bug_in_what_takes_an_answer_ends_the_sender() -> None:
    """Raised where the answer is read, it would be logged by the connection, and the producer would wait for ever."""
    rig = Rig()
    client = Client(rig.metadata)
    running = asyncio.ensure_future(sender_of(rig, client).run())
    rig.put()
    await turns()

    client.sent[0].take(ProduceAnswer([], (), 0))
    await turns()

    assert running.done()
    with pytest.raises(ExceptionGroup) as raised:
        await running
    assert raised.group_contains(ValueError)


@virtually
async def test_without_acknowledgements_a_batch_is_done_when_it_is_written() -> None:
    rig = Rig(idempotent=False)
    client = Client(rig.metadata)
    delivery = rig.put()
    await one_round(sender_of(rig, client, acks=0, enable_idempotence=False))

    client.sent[0].take(WRITTEN)

    assert delivery.result().offset == -1


@virtually
async def test_the_timestamp_type_of_a_topic_is_requested_if_an_acknowledgement_may_be_that_of_another_writer() -> None:
    link = transaction_link()
    rig = Rig(transactions=link)
    client = Client(rig.metadata)
    begin(link, rig).manager.handle()
    shared = shared_acknowledgements(rig, client)
    kind = DescribeConfigsResourceResult(
        name="message.timestamp.type", value="LogAppendTime", read_only=False, is_sensitive=False
    )
    result = DescribeConfigsResult(error_code=0, error_message=None, resource_type=2, resource_name="t", configs=[kind])
    client.respond = lambda request: DescribeConfigsResponse(results=[result])
    sender = sender_of(rig, client, transactions=link, shared=shared, transactional_id="payments-1")
    delivery = rig.put()
    running = asyncio.ensure_future(sender.run())
    await turns()

    client.sent[0].take(answer(log_append_time_ms=77))
    assert not delivery.done()
    await turns()

    assert delivery.result().timestamp_ms == 77
    assert len(client.asked) == 1
    rig.put()
    sender.wake()
    await turns()
    client.sent[1].take(answer(log_append_time_ms=78))
    assert not sender._awake, "there is nothing left to ask"
    running.cancel()


# -- when it sends ----------------------------------------------------------------------------------------------------


async def until_sent(client: Client, count: int) -> float:
    """The time at which the request with this number was sent, in this minute."""
    await asyncio.sleep(60)
    assert len(client.sent) == count
    return client.sent[count - 1].at


@virtually
async def test_a_batch_leaves_when_its_linger_ends_though_nothing_wakes_the_sender() -> None:
    rig = Rig()
    client = Client(rig.metadata)
    sender = sender_of(rig, client)
    loop = asyncio.get_running_loop()
    running = asyncio.ensure_future(sender.run())
    rig.put(now=loop.time())
    assert await until_sent(client, 1) == 0
    client.sent[0].take(answer())
    rig.put(now=loop.time())
    sender.wake()
    await until_sent(client, 2)

    rig.put(now=loop.time())
    sender.wake()
    due, before = loop.time() + LINGER, turns_so_far()

    assert await until_sent(client, 3) == pytest.approx(due)
    assert turns_so_far() - before < 200, "it slept"
    running.cancel()


class SlowClient(Client):
    """Takes as long for a request as many batches do."""

    def send(self, *arguments: Any, **more: Any) -> None:
        super().send(*arguments, **more)
        time.sleep(0.005)


@virtually
async def test_a_round_that_takes_long_goes_on_after_everybody_elses_turn_at_the_same_time() -> None:
    rig = Rig(partitions=300)
    client = SlowClient(rig.metadata)
    turns_of_another: list[int] = []

    async def another() -> None:
        while len(client.sent) < 4:
            turns_of_another.append(len(client.sent))
            await asyncio.sleep(0)

    for partition in range(4):
        rig.put(partition, size=2000)
    running = asyncio.ensure_future(sender_of(rig, client, max_request_size=2000).run())
    await another()
    running.cancel()

    assert {1, 2, 3} <= set(turns_of_another)
    assert {request.at for request in client.sent} == {0}


@virtually
async def test_a_pause_goes_on_as_long_as_something_wakes_the_sender() -> None:
    rig = Rig()
    client = Client(rig.metadata)
    sender = sender_of(rig, client)
    rig.accumulator.queues.worked(3600.0, asyncio.get_running_loop().time())
    rig.put()
    running = asyncio.ensure_future(sender.run())
    for _ in range(12):
        sender.wake()
        await asyncio.sleep(0)
        assert client.sent == []

    await turns()

    assert len(client.sent) == 1
    running.cancel()


@virtually
async def test_a_sender_that_ends_leaves_no_timer() -> None:
    rig = Rig()
    running = asyncio.ensure_future(sender_of(rig, Client(rig.metadata)).run())
    rig.put()
    await turns()
    loop: Any = asyncio.get_running_loop()
    assert [timer.when() for timer in loop._scheduled if not timer.cancelled()] != []

    running.cancel()
    with suppress(asyncio.CancelledError):
        await running

    assert [timer for timer in loop._scheduled if not timer.cancelled()] == []


async def test_a_sender_that_ends_ends_the_threads_that_compress() -> None:
    rig = Rig(codec=Codec.LZ4, compression_threshold=100, batch_size=100_000)
    client = Client(rig.metadata)
    sender = sender_of(rig, client)
    running = asyncio.ensure_future(sender.run())
    rig.put(size=5000, now=asyncio.get_running_loop().time())
    await until(lambda: client.sent)

    running.cancel()
    with suppress(asyncio.CancelledError):
        await running

    assert not sender._compressor._native


# -- what it gives up -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [False, True])
@virtually
async def test_the_error_of_a_batch_whose_time_is_over_contains_the_age_and_the_last_error(left: bool) -> None:
    rig = Rig(delivery_timeout_s=40)
    client = Client(rig.metadata)
    client.ready = left
    sender = sender_of(rig, client, delivery_timeout_ms=40_000)
    delivery = rig.put()
    await one_round(sender)
    now = asyncio.get_running_loop().time()
    client.last_failure = FailedAttempt(BrokerConnectionError("kafka-1 refused the connection"), 1, now + 37.5)

    await asyncio.sleep(40)
    await one_round(sender)

    error = delivery.exception()
    assert type(error) is (UnknownTimeout if left else NotWrittenTimeout)
    tried = "after 1 attempt" if left else "before the first attempt"
    assert f"delivery_timeout_ms (40 s) expired {tried}. The last error, from broker 1, 2.5 s ago: kafka-1" in str(
        error
    )
    assert error.last_error is not None
    assert (error.last_error.broker, error.last_error.seconds_ago) == (1, 2.5)
    assert isinstance(error.__cause__, KafkaTimeoutError)
    assert repr(error.__cause__.__cause__) == repr(client.last_failure.error) == repr(error.last_error.error)


@virtually
async def test_a_batch_whose_time_is_over_blames_no_connection_where_none_failed() -> None:
    rig = Rig(delivery_timeout_s=40)
    client = Client(rig.metadata)
    sender = sender_of(rig, client, delivery_timeout_ms=40_000)
    delivery = rig.put()

    await asyncio.sleep(40)
    await one_round(sender)

    assert str(delivery.exception()).endswith("before the first attempt.")


# -- the producer id --------------------------------------------------------------------------------------------------


def without_producer_id() -> Rig:
    rig = Rig()
    rig.sequences.set_producer_id(-1, -1)
    return rig


@virtually
async def test_a_producer_id_is_asked_for_until_there_is_one_with_pauses_that_double() -> None:
    rig = without_producer_id()
    client = Client(rig.metadata)
    refusals = [
        BrokerConnectionError("it broke"),
        InitProducerIdResponse(error_code=E.COORDINATOR_LOAD_IN_PROGRESS),
    ] * 2
    given = InitProducerIdResponse(error_code=0, producer_id=7, producer_epoch=3)
    client.respond = lambda request: refusals.pop(0) if refusals else given
    delivery = rig.put()
    running = asyncio.ensure_future(
        sender_of(rig, client, retry_backoff_ms=100, retry_backoff_max_ms=10_000, request_timeout_ms=12_000).run()
    )

    await until_sent(client, 1)

    assert [at for at, _, _ in client.asked] == pytest.approx([0, 0.1, 0.3, 0.7, 1.5])
    assert {timeout_s for _, _, timeout_s in client.asked} == {12.0}
    first = client.asked[0][1]
    assert isinstance(first, InitProducerIdRequest)
    assert (first.transactional_id, first.transaction_timeout_ms) == (None, 2**31 - 1)
    assert (rig.sequences.producer_id, rig.sequences.epoch) == (7, 3)
    assert not delivery.done()
    running.cancel()


@pytest.mark.parametrize(
    "refusal",
    [
        AuthenticationError("wrong password"),
        UnsupportedVersion("too old"),
        InitProducerIdResponse(error_code=E.CLUSTER_AUTHORIZATION_FAILED),
    ],
    ids=lambda refusal: type(refusal).__name__,
)
@virtually
async def test_a_refused_producer_id_fails_what_waits_and_is_asked_for_again(refusal: Any) -> None:
    rig = without_producer_id()
    client = Client(rig.metadata)
    answers = [refusal, InitProducerIdResponse(error_code=0, producer_id=7, producer_epoch=3)]
    client.respond = lambda request: answers.pop(0)
    waiting = rig.put()
    running = asyncio.ensure_future(sender_of(rig, client).run())
    await turns()

    error = waiting.exception()
    assert isinstance(error, NotWritten)
    assert isinstance(error.__cause__, KafkaError)
    rig.put(now=asyncio.get_running_loop().time())
    await until_sent(client, 1)
    running.cancel()
