"""Faults that a test can inject into the fake broker."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from aioproducer.errors import BrokerConnectionError, ConfigError, ProtocolError
from aioproducer.protocol import ErrorCode
from aioproducer.protocol.message import Response
from aioproducer.protocol.messages import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseTopic,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)
from aioproducer.testing import FakeBroker, Hangup, RequestContext
from aioproducer.testing.broker.faults import CORRUPTIONS
from aioproducer.testing.raw_client import RawClient, produce, record_batch
from tests.testing.silence import sent_nothing

VERSION = 9


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(brokers=2, topics={"orders": 2}) as broker:
        broker.move_leader("orders", 1, to=1)
        yield broker


@pytest.fixture
def client(broker: FakeBroker) -> Iterator[RawClient]:
    with RawClient(broker.addresses[1]) as client:
        yield client


def send(client: RawClient, value: bytes = b"v", partition: int = 0) -> int:
    return client.send(produce("orders", {partition: record_batch(value)}), VERSION)


def read(client: RawClient, correlation_id: int) -> PartitionProduceResponse:
    return client.read(ProduceRequest, VERSION, correlation_id).responses[0].partition_responses[0]


def code(client: RawClient, value: bytes = b"v", partition: int = 0) -> str:
    return ErrorCode(read(client, send(client, value, partition)).error_code).name


def values(broker: FakeBroker) -> list[bytes | None]:
    return [record.value for record in broker.records("orders")]


def metadata_of(client: RawClient, topic: str = "orders") -> MetadataResponseTopic:
    return client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), VERSION).topics[0]


# -- errors ------------------------------------------------------------------------------------------------------------


def test_a_failed_request_is_not_applied(broker: FakeBroker, client: RawClient) -> None:
    broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)

    codes = [code(client, b"%d" % n) for n in range(3)]

    assert codes == ["NOT_LEADER_OR_FOLLOWER", "NOT_LEADER_OR_FOLLOWER", "NONE"]
    assert values(broker) == [b"2"]


def test_a_request_that_fails_after_it_was_applied_is_in_the_log(broker: FakeBroker, client: RawClient) -> None:
    broker.fail_after_apply("Produce", "REQUEST_TIMED_OUT")

    assert code(client, b"0") == "REQUEST_TIMED_OUT"
    assert values(broker) == [b"0"]


def test_errors_of_one_kind_follow_one_another(broker: FakeBroker, client: RawClient) -> None:
    broker.fail("Produce", "CORRUPT_MESSAGE")
    broker.fail("produce", 19)

    assert [code(client) for _ in range(3)] == ["CORRUPT_MESSAGE", "NOT_ENOUGH_REPLICAS", "NONE"]


def test_an_error_can_be_meant_for_one_partition(broker: FakeBroker, client: RawClient) -> None:
    broker.fail("Produce", "NOT_ENOUGH_REPLICAS", topic="orders", partition=1)
    request = produce("orders", {0: record_batch(b"a"), 1: record_batch(b"b")})

    first = client.ask(request, VERSION).responses[0].partition_responses
    second = client.ask(request, VERSION).responses[0].partition_responses

    assert [each.error_code for each in first] == [ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS]
    assert [each.error_code for each in second] == [ErrorCode.NONE, ErrorCode.NONE]


def test_an_error_for_one_partition_waits_for_a_request_that_names_it(broker: FakeBroker, client: RawClient) -> None:
    broker.fail("Produce", "NOT_ENOUGH_REPLICAS", topic="orders", partition=1)

    assert [code(client, partition=n) for n in (0, 1, 1)] == ["NONE", "NOT_ENOUGH_REPLICAS", "NONE"]


def test_an_error_can_be_meant_for_one_node(broker: FakeBroker, client: RawClient) -> None:
    broker.fail("Produce", "NOT_ENOUGH_REPLICAS", node=2)

    assert code(client) == "NONE"


def test_an_error_can_last(broker: FakeBroker, client: RawClient) -> None:
    broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=None)
    assert {code(client) for _ in range(5)} == {"NOT_ENOUGH_REPLICAS"}

    broker.clear_faults()

    assert code(client) == "NONE"


@pytest.mark.parametrize("applied", [False, True])
def test_init_producer_id_can_fail_before_or_after_it_was_done(
    broker: FakeBroker, client: RawClient, applied: bool
) -> None:
    (broker.fail_after_apply if applied else broker.fail)("InitProducerId", "COORDINATOR_LOAD_IN_PROGRESS")
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)

    refused, given = client.ask(request, 2), client.ask(request, 2)

    assert refused.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert given.producer_id == (1001 if applied else 1000)


def test_metadata_can_fail_for_a_topic_and_for_a_partition(broker: FakeBroker, client: RawClient) -> None:
    broker.fail("Metadata", "TOPIC_AUTHORIZATION_FAILED", topic="orders")
    assert metadata_of(client).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    broker.fail("Metadata", "LEADER_NOT_AVAILABLE", topic="orders", partition=1)
    partitions = metadata_of(client).partitions

    assert [each.error_code for each in partitions] == [ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE]
    assert [each.leader_id for each in partitions] == [1, -1]


def test_unknown_names_are_reported_at_once(broker: FakeBroker) -> None:
    with pytest.raises(ConfigError, match="Prodduce"):
        broker.fail("Prodduce", "CORRUPT_MESSAGE")
    with pytest.raises(ConfigError, match="BROKEN"):
        broker.fail("Produce", "BROKEN")
    with pytest.raises(ConfigError, match="upside_down"):
        broker.corrupt_answer("upside_down")
    with pytest.raises(ConfigError, match="nowhere"):
        broker.move_leader("nowhere", 0, to=1)


# -- time and connections ----------------------------------------------------------------------------------------------


def test_a_delayed_answer_delays_what_is_behind_it_on_the_connection(broker: FakeBroker, client: RawClient) -> None:
    broker.delay("Produce", 0.15)
    began = time.monotonic()
    first, second = send(client, b"a"), send(client, b"b")

    assert read(client, first).base_offset == 0
    assert time.monotonic() - began >= 0.15
    assert read(client, second).base_offset == 1


def test_a_delay_before_the_request_is_applied(broker: FakeBroker, client: RawClient) -> None:
    broker.delay("Produce", 0.15, when="before")
    began = time.monotonic()
    waiting = send(client)

    broker.wait_for(1)
    assert time.monotonic() - began >= 0.15, "a record is in the log when the delay is over"
    read(client, waiting)


@pytest.mark.parametrize(("when", "expected"), [("before", []), ("after", [b"v"])])
def test_a_connection_can_drop_before_or_after_the_request_is_applied(
    broker: FakeBroker, client: RawClient, when: str, expected: list[bytes]
) -> None:
    broker.drop_connection("Produce", when="before" if when == "before" else "after")
    send(client)

    assert client.is_closed_by_peer()
    assert values(broker) == expected
    with RawClient(broker.addresses[1]) as second:
        assert code(second) == "NONE"


def test_after_a_lost_answer_requests_are_applied_and_never_answered(broker: FakeBroker, client: RawClient) -> None:
    broker.swallow("Produce")
    send(client, b"a")
    send(client, b"b")

    broker.wait_for(2)
    assert sent_nothing(broker, client)


def test_after_a_lost_request_nothing_more_arrives(broker: FakeBroker, client: RawClient) -> None:
    broker.swallow("Produce", applied=False)
    send(client, b"a")
    send(client, b"b")

    assert sent_nothing(broker, client)
    assert values(broker) == []


def test_held_requests_wait_until_they_are_released(broker: FakeBroker, client: RawClient) -> None:
    with broker.hold("Produce") as hold:
        first, second = send(client, b"a"), send(client, b"b")
        broker.wait_for(lambda _: hold.waiting == 1)
        assert sent_nothing(broker, client)
        assert values(broker) == []

    assert [read(client, each).base_offset for each in (first, second)] == [0, 1]
    assert code(client) == "NONE"


def test_held_requests_may_be_applied_before_they_are_held(broker: FakeBroker, client: RawClient) -> None:
    hold = broker.hold("Produce", applied=True)
    waiting = send(client)
    broker.wait_for(1)
    assert sent_nothing(broker, client)

    hold.release()

    assert read(client, waiting).error_code == ErrorCode.NONE


def test_a_hold_on_one_connection_does_not_hold_the_others(broker: FakeBroker, client: RawClient) -> None:
    hold = broker.hold("Produce", times=1)
    send(client, b"held")
    broker.wait_for(lambda _: hold.waiting == 1)

    with RawClient(broker.addresses[1]) as other:
        assert code(other, b"free") == "NONE"

    assert values(broker) == [b"free"]
    hold.release()
    broker.wait_for(2)


def test_a_held_request_is_applied_although_its_client_is_gone(broker: FakeBroker) -> None:
    hold = broker.hold("Produce")
    with RawClient(broker.addresses[1]) as client:
        send(client, b"zombie")
        broker.wait_for(lambda _: hold.waiting == 1)
    broker.wait_for(lambda b: not b.connections())

    hold.release()

    broker.wait_for(1)
    assert values(broker) == [b"zombie"]


def test_the_broker_can_break_connections_and_still_apply_what_it_holds(broker: FakeBroker, client: RawClient) -> None:
    hold = broker.hold("Produce")
    send(client, b"zombie")
    broker.wait_for(lambda _: hold.waiting == 1)

    broker.disconnect()
    assert client.is_closed_by_peer()
    hold.release()

    broker.wait_for(1)


def test_a_throttled_client_is_reported_and_kept_waiting(broker: FakeBroker, client: RawClient) -> None:
    broker.throttle("Produce", 50)
    start = time.monotonic()

    first = client.ask(produce("orders", record_batch(b"a")), VERSION)
    second = client.ask(produce("orders", record_batch(b"b")), VERSION)

    assert (first.throttle_time_ms, second.throttle_time_ms) == (50, 0)
    assert time.monotonic() - start >= 0.05


def test_without_reads_data_stays_in_the_kernel(broker: FakeBroker, client: RawClient) -> None:
    with broker.hold_reads(1):
        waiting = send(client)
        assert sent_nothing(broker, client)
        assert broker.count("Produce") == 0

    assert read(client, waiting).error_code == ErrorCode.NONE


def test_without_reads_the_client_can_fill_the_socket() -> None:
    with (
        FakeBroker(receive_buffer=8192) as broker,
        broker.hold_reads(1),
        socket.create_connection(broker.addresses[1]) as stuck,
    ):
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        stuck.settimeout(0.05)
        with pytest.raises(TimeoutError):
            stuck.sendall(b"\0" * 10_000_000)


# -- damaged answers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["wrong_correlation_id", "truncated", "trailing", "garbage", "unasked"])
def test_a_damaged_answer_is_not_the_answer(broker: FakeBroker, client: RawClient, kind: str) -> None:
    broker.corrupt_answer(kind)

    with pytest.raises(ProtocolError):
        code(client)

    assert values(broker) == [b"v"]


@pytest.mark.parametrize(
    ("kind", "start"),
    [
        ("oversize", struct.pack(">i", 0x7FFFFFFF)),
        ("negative", struct.pack(">i", -2)),
        ("zero", struct.pack(">i", 0)),
        ("http", b"HTTP"),
    ],
)
def test_a_damaged_length_comes_first(broker: FakeBroker, client: RawClient, kind: str, start: bytes) -> None:
    broker.corrupt_answer(kind)
    send(client)

    assert client.read_bytes()[:4] == start


def test_every_corruption_changes_the_answer() -> None:
    frame = struct.pack(">ii", 24, 7) + bytes(range(20))

    assert all(damage(frame) != frame for damage in CORRUPTIONS.values())


# -- control -----------------------------------------------------------------------------------------------------------


def test_a_control_function_may_answer_itself(broker: FakeBroker, client: RawClient) -> None:
    def answer(context: RequestContext) -> Response | None:
        return InitProducerIdResponse(error_code=0, producer_id=5, producer_epoch=6)

    broker.control("InitProducerId", answer)

    given = client.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 2)

    assert (given.producer_id, given.producer_epoch) == (5, 6)


def test_a_control_function_may_change_the_normal_answer(broker: FakeBroker, client: RawClient) -> None:
    def renumber(context: RequestContext) -> Response | None:
        answer = context.apply()
        assert isinstance(answer, ProduceResponse)
        answer.responses[0].partition_responses[0].base_offset = 99
        return answer

    broker.control("Produce", renumber)

    assert read(client, send(client)).base_offset == 99
    assert values(broker) == [b"v"]


def test_a_control_function_may_look_and_script_and_let_pass(broker: FakeBroker, client: RawClient) -> None:
    seen: list[str] = []

    def look(context: RequestContext) -> Response | None:
        seen.append(context.request.api)
        broker.move_leader("orders", 0, to=2)
        return None

    broker.control(None, look)

    assert [code(client), code(client)] == ["NOT_LEADER_OR_FOLLOWER", "NOT_LEADER_OR_FOLLOWER"]
    assert seen == ["Produce"]


def test_a_control_function_may_hang_up(broker: FakeBroker, client: RawClient) -> None:
    def hang_up(context: RequestContext) -> Response | None:
        raise Hangup

    broker.control("Produce", hang_up)
    send(client)

    assert client.is_closed_by_peer()


def test_an_exception_raised_by_a_control_function_is_passed_on_by_close() -> None:
    broker = FakeBroker(topics={"orders": 1})
    broker.start()
    broker.control("Produce", lambda context: 1 // 0)  # type: ignore[arg-type,return-value]

    with RawClient(broker.addresses[1]) as client:
        send(client)
        assert client.is_closed_by_peer()

    with pytest.raises(RuntimeError) as caught:
        broker.close()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


# -- topics, leaders, producers ----------------------------------------------------------------------------------------


def test_a_moved_leader_refuses_and_metadata_names_the_new_one(broker: FakeBroker, client: RawClient) -> None:
    broker.move_leader("orders", 0, to=2)

    assert code(client) == "NOT_LEADER_OR_FOLLOWER"
    partition = metadata_of(client).partitions[0]
    assert (partition.leader_id, partition.leader_epoch) == (2, 1)


def test_a_topic_can_be_left_out_of_metadata_for_a_while(broker: FakeBroker, client: RawClient) -> None:
    broker.omit_from_metadata("orders", times=2)

    codes = [metadata_of(client).error_code for _ in range(3)]

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [unknown, unknown, ErrorCode.NONE]


def test_a_partition_can_be_left_out_of_metadata(broker: FakeBroker, client: RawClient) -> None:
    broker.omit_from_metadata("orders", partition=0)

    assert [each.partition_index for each in metadata_of(client).partitions] == [1]
    assert [each.partition_index for each in metadata_of(client).partitions] == [0, 1]


def test_partitions_are_added_and_topics_deleted_and_made_again(broker: FakeBroker, client: RawClient) -> None:
    code(client)
    broker.add_partitions("orders", 5)
    assert len(metadata_of(client).partitions) == 5

    broker.recreate_topic("orders", 3)
    assert len(metadata_of(client).partitions) == 3
    assert broker.records("orders") == []

    broker.delete_topic("orders")
    assert code(client) == "UNKNOWN_TOPIC_OR_PARTITION"


def idempotent(client: RawClient, sequence: int, epoch: int = 0) -> str:
    data = record_batch(b"v", producer_id=7, epoch=epoch, sequence=sequence)
    (topic,) = client.ask(produce("orders", data), VERSION).responses
    return ErrorCode(topic.partition_responses[0].error_code).name


def test_a_producer_can_be_forgotten_disowned_and_fenced(broker: FakeBroker, client: RawClient) -> None:
    assert idempotent(client, 0) == "NONE"
    assert idempotent(client, 5) == "OUT_OF_ORDER_SEQUENCE_NUMBER"

    broker.forget_producer(7)
    assert idempotent(client, 5) == "NONE"

    broker.forget_producer(7, unknown=True)
    assert idempotent(client, 6) == "UNKNOWN_PRODUCER_ID"
    assert idempotent(client, 0) == "NONE"

    broker.fence(7)
    assert idempotent(client, 1) == "INVALID_PRODUCER_EPOCH"
    assert idempotent(client, 0, epoch=1) == "NONE"


# -- nodes -------------------------------------------------------------------------------------------------------------


def test_a_stopped_node_refuses_connections_and_comes_back_on_its_port(broker: FakeBroker, client: RawClient) -> None:
    address = broker.addresses[1]
    broker.stop_node(1)

    assert client.is_closed_by_peer()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)

    broker.start_node(1)

    assert broker.addresses[1] == address
    with RawClient(address) as again:
        assert code(again) == "NONE"


def test_requests_held_by_a_stopped_node_are_gone(broker: FakeBroker, client: RawClient) -> None:
    hold = broker.hold("Produce")
    send(client)
    broker.wait_for(lambda _: hold.waiting == 1)

    broker.stop_node(1)
    hold.release()
    broker.start_node(1)

    with RawClient(broker.addresses[1]) as again:
        assert read(again, send(again, b"new")).base_offset == 0


def test_metadata_names_a_stopped_node_until_the_cluster_has_noticed(broker: FakeBroker) -> None:
    with RawClient(broker.addresses[2]) as client:
        broker.stop_node(1)
        unnoticed = client.ask(MetadataRequest(topics=None), VERSION)
        broker.start_node(1)
        broker.stop_node(1, elect=True)
        noticed = client.ask(MetadataRequest(topics=None), VERSION)
        broker.start_node(1)
        back = client.ask(MetadataRequest(topics=None), VERSION)

    assert [node.node_id for node in unnoticed.brokers] == [1, 2]
    assert [each.leader_id for each in unnoticed.topics[0].partitions] == [1, 1]
    assert [node.node_id for node in noticed.brokers] == [2]
    assert [each.leader_id for each in noticed.topics[0].partitions] == [2, 2]
    assert [node.node_id for node in back.brokers] == [1, 2]


def test_a_node_can_come_back_elsewhere(broker: FakeBroker) -> None:
    before = broker.addresses[1]

    broker.restart_on_new_port(1)

    assert broker.addresses[1] != before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(before)
    with RawClient(broker.addresses[1]) as client:
        assert code(client) == "NONE"


def test_a_muted_node_takes_everything_and_answers_nothing(broker: FakeBroker, client: RawClient) -> None:
    broker.mute(1)
    send(client)
    assert sent_nothing(broker, client)

    broker.unmute(1)

    assert sent_nothing(broker, client)
    assert values(broker) == []
    with RawClient(broker.addresses[1]) as again:
        assert code(again) == "NONE"


def test_nodes_that_do_not_run_cannot_be_stopped(broker: FakeBroker) -> None:
    broker.stop_node(1)

    with pytest.raises(ConfigError, match="not running"):
        broker.stop_node(1)
    broker.start_node(1)
    with pytest.raises(ConfigError, match="already running"):
        broker.start_node(1)
    with pytest.raises(ConfigError, match="no node 9"):
        broker.stop_node(9)


# -- life --------------------------------------------------------------------------------------------------------------


def test_closing_is_quick_and_leaves_no_thread_whatever_is_going_on() -> None:
    broker = FakeBroker(brokers=3, topics={"orders": 1})
    broker.start()
    broker.hold("Produce")
    broker.delay("Metadata", 60.0)
    with RawClient(broker.addresses[1]) as held, RawClient(broker.addresses[2]) as delayed:
        send(held)
        delayed.send(MetadataRequest(topics=None), VERSION)
        broker.wait_for(lambda b: len(b.requests) == 2)
        broker.stop_node(3)
        start = time.monotonic()

        broker.close()

        assert time.monotonic() - start < 10, "and not the minute of the delay"
        assert held.is_closed_by_peer()
    assert not [thread for thread in threading.enumerate() if thread.name == "FakeBroker"]
    broker.close()


def test_a_closed_broker_keeps_its_log_and_refuses_work() -> None:
    with FakeBroker(topics={"orders": 1}) as broker, RawClient(broker.addresses[1]) as client:
        code(client)

    assert values(broker) == [b"v"]
    with pytest.raises(ConfigError, match="not running"):
        broker.stop_node(1)
    with pytest.raises(ConfigError, match="started before"):
        broker.start()


def test_a_broker_closed_by_the_peer_is_reported_as_a_lost_connection(client: RawClient, broker: FakeBroker) -> None:
    waiting = client.send(MetadataRequest(topics=None), VERSION)
    client.read(MetadataRequest, VERSION, waiting)
    broker.disconnect(1)

    with pytest.raises((BrokerConnectionError, ConnectionError)):
        client.ask(MetadataRequest(topics=None), VERSION)
