"""Responses of the fake broker to raw requests over a plain socket."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from aioproducer.protocol import ApiKey, ErrorCode
from aioproducer.protocol.messages import (
    ApiVersionsRequest,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseTopic,
    PartitionProduceResponse,
    ProduceRequest,
)
from aioproducer.protocol.wire import ZERO_UUID
from aioproducer.record import Codec, RecordBatchBuilder, encode_batch
from aioproducer.testing import FakeBroker, TopicConfig, TopicSpec
from aioproducer.testing.broker.versions import RELEASES
from aioproducer.testing.raw_client import RawClient, produce, record_batch
from aioproducer.types import TimestampType
from tests.testing.silence import sent_nothing


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(brokers=2, topics={"orders": 2}) as broker:
        yield broker


@pytest.fixture
def client(broker: FakeBroker) -> Iterator[RawClient]:
    with RawClient(broker.addresses[1]) as client:
        yield client


def produced(client: RawClient, request: ProduceRequest, version: int = 9) -> PartitionProduceResponse:
    (topic,) = client.ask(request, version).responses
    (partition,) = topic.partition_responses
    return partition


def metadata_of(client: RawClient, topic: str, version: int = 12, *, create: bool = True) -> MetadataResponseTopic:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=create)
    (found,) = client.ask(asked, version).topics
    return found


def fetch(client: RawClient, offset: int, *, min_bytes: int = 1, max_wait_ms: int = 0, version: int = 12) -> bytes:
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=1_000_000,
        topics=[
            FetchTopic(
                topic="orders",
                partitions=[FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=100_000)],
            )
        ],
    )
    (topic,) = client.ask(request, version).responses
    (partition,) = topic.partitions
    if partition.error_code:
        raise LookupError(ErrorCode(partition.error_code).name)
    return b"" if partition.records is None else bytes(partition.records)


# -- ApiVersions -------------------------------------------------------------------------------------------------------


def versions_of(client: RawClient, version: int) -> dict[int, tuple[int, int]]:
    answer = client.ask(ApiVersionsRequest(client_software_name="raw", client_software_version="1"), version)
    assert answer.error_code == ErrorCode.NONE
    return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_reports_its_own_versions(release: str) -> None:
    with FakeBroker(versions=release) as broker, RawClient(broker.addresses[1]) as client:
        reported = versions_of(client, 0)

    expected = RELEASES[release].ranges
    for key in (ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID):
        assert reported[key] == expected[key]


def test_versions_can_be_overridden_and_differ_between_nodes() -> None:
    with FakeBroker(brokers=2, max_versions={"Produce": 9}) as broker:
        broker.set_versions("2.1", node=2)
        with RawClient(broker.addresses[1]) as first, RawClient(broker.addresses[2]) as second:
            assert versions_of(first, 3)[ApiKey.PRODUCE] == (0, 9)
            assert versions_of(second, 2)[ApiKey.PRODUCE] == (0, 7)


@pytest.mark.parametrize(("release", "named"), [("2.3", []), ("2.4", [(18, 0, 3)]), ("4.3", [(18, 0, 4)])])
def test_an_unknown_version_of_api_versions_is_refused_in_the_form_of_version_0(
    release: str, named: list[tuple[int, int, int]]
) -> None:
    with FakeBroker(versions=release) as broker, RawClient(broker.addresses[1]) as client:
        # A header that ends after the client id, and a body of a version that is unknown yet.
        client.send_bytes(struct.pack(">ihhih", 22, 18, 99, 7, -1) + b"\0" + b"\2a\2b" + b"\0" * 7)

        answer = client.read_frame()

    expected = struct.pack(">ihi", 7, 35, len(named)) + b"".join(struct.pack(">hhh", *each) for each in named)
    assert answer == expected


def test_a_client_software_name_must_look_like_one(client: RawClient) -> None:
    answer = client.ask(ApiVersionsRequest(client_software_name="-", client_software_version="1"), 3)

    assert answer.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", [2, 14])
def test_an_unknown_version_of_another_request_ends_the_connection(client: RawClient, version: int) -> None:
    client.send_bytes(struct.pack(">ihhih", 11, 0, version, 1, -1) + b"\0")

    assert client.is_closed_by_peer()


@pytest.mark.parametrize("bad", [b"\xff\xff\xff\xff", b"\0\0\0\2\0\0", b"GET / HTTP/1.1\r\n\r\n", b"\x7f\xff\xff\xff"])
def test_bytes_that_are_no_request_end_the_connection(client: RawClient, bad: bytes) -> None:
    client.send_bytes(bad)

    assert client.is_closed_by_peer()


def test_a_request_that_is_cut_off_inside_its_frame_ends_the_connection(client: RawClient) -> None:
    client.send_bytes(struct.pack(">ihhih", 12, 0, 7, 1, -1) + b"\xff\xff")

    assert client.is_closed_by_peer()


# -- Metadata ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 14))
def test_metadata_has_nodes_topics_and_leaders(broker: FakeBroker, client: RawClient, version: int) -> None:
    answer = client.ask(MetadataRequest(topics=None), version)

    assert {node.node_id: (node.host, node.port) for node in answer.brokers} == broker.addresses
    (topic,) = answer.topics
    assert topic.name == "orders"
    assert [partition.leader_id for partition in topic.partitions] == [1, 2]
    assert (topic.topic_id != ZERO_UUID) == (version >= 10)


def test_a_topic_is_created_only_if_broker_and_client_want_it(broker: FakeBroker, client: RawClient) -> None:
    assert metadata_of(client, "new", create=False).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert metadata_of(client, "new").error_code == ErrorCode.NONE

    broker.cluster.auto_create_topics = False

    assert metadata_of(client, "newer").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_is_being_created_may_have_no_leader_yet(broker: FakeBroker, client: RawClient) -> None:
    broker.cluster.auto_create_lag = 2

    codes = [metadata_of(client, "new").error_code for _ in range(3)]

    assert codes == [ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NONE]


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "a" * 250])
def test_an_impossible_topic_name_is_refused(client: RawClient, name: str) -> None:
    assert metadata_of(client, name).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_topic_can_be_asked_for_by_id(client: RawClient) -> None:
    topic_id = metadata_of(client, "orders").topic_id
    known = MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id, name=None)])

    (found,) = client.ask(known, 12).topics
    (missing,) = client.ask(MetadataRequest(topics=[MetadataRequestTopic(topic_id=ZERO_UUID, name=None)]), 12).topics

    assert (found.name, found.error_code) == ("orders", ErrorCode.NONE)
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_an_old_release_has_no_topic_ids(broker: FakeBroker, client: RawClient) -> None:
    broker.set_versions("2.7", max_versions={"Metadata": (0, 11)})

    assert metadata_of(client, "orders", 10).topic_id == ZERO_UUID


# -- Produce -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3, 13))
def test_every_version_of_produce_appends(broker: FakeBroker, client: RawClient, version: int) -> None:
    answer = produced(client, produce("orders", record_batch(b"a", b"b")), version)

    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
    assert [record.value for record in broker.records("orders", 0)] == [b"a", b"b"]


def test_produce_13_names_topics_by_id(broker: FakeBroker, client: RawClient) -> None:
    topic_id = metadata_of(client, "orders").topic_id

    good = produced(client, produce("", record_batch(b"a"), topic_id=topic_id), 13)
    zero = produced(client, produce("orders", record_batch(b"b")), 13)
    broker.recreate_topic("orders")
    stale = produced(client, produce("", record_batch(b"c"), topic_id=topic_id), 13)

    assert good.error_code == ErrorCode.NONE
    assert zero.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert stale.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert broker.records("orders") == []


def test_partitions_of_a_request_succeed_and_fail_on_their_own(client: RawClient) -> None:
    request = produce("orders", {0: record_batch(b"a"), 1: record_batch(b"b"), 9: record_batch(b"c")})

    (topic,) = client.ask(request, 9).responses

    assert [partition.error_code for partition in topic.partition_responses] == [
        ErrorCode.NONE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_an_unknown_topic_is_refused_and_not_created(broker: FakeBroker, client: RawClient) -> None:
    answer = produced(client, produce("nowhere", record_batch(b"a")))

    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "nowhere" not in broker.cluster.topics


@pytest.mark.parametrize("acks", [-2, 2, 7])
def test_only_three_values_of_acks_exist(broker: FakeBroker, client: RawClient, acks: int) -> None:
    answer = produced(client, produce("orders", record_batch(b"a"), acks=acks))

    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert broker.records() == []


def test_acks_0_gets_no_answer(broker: FakeBroker, client: RawClient) -> None:
    client.send(produce("orders", record_batch(b"a"), acks=0), 9)

    assert produced(client, produce("orders", record_batch(b"b"))).base_offset == 1
    assert sent_nothing(broker, client)
    assert len(broker.records()) == 2


def test_an_error_with_acks_0_closes_the_connection(client: RawClient) -> None:
    client.send(produce("orders", b"no batch", acks=0), 9)

    assert client.is_closed_by_peer()


@pytest.mark.parametrize("version", [9, 10])
def test_another_leader_is_named_from_version_10_on(broker: FakeBroker, client: RawClient, version: int) -> None:
    broker.move_leader("orders", 0, to=2)

    answer = client.ask(produce("orders", record_batch(b"a")), version)

    (partition,) = answer.responses[0].partition_responses
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    hint = (partition.current_leader.leader_id, partition.current_leader.leader_epoch)
    nodes = {node.node_id: (node.host, node.port) for node in answer.node_endpoints}
    assert (hint, nodes) == (((2, 1), {2: broker.addresses[2]}) if version >= 10 else ((-1, -1), {}))


def test_too_few_replicas_in_sync_refuse_acks_all_only(broker: FakeBroker, client: RawClient) -> None:
    broker.create_topic("safe", TopicSpec(replication_factor=2, config=TopicConfig(min_insync_replicas=2)))
    broker.shrink_isr("safe", 0, [1])

    refused = produced(client, produce("safe", record_batch(b"a")))
    taken = produced(client, produce("safe", record_batch(b"b"), acks=1))

    assert (refused.error_code, taken.error_code) == (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NONE)


def test_a_corrupt_batch_is_refused_with_a_reason(broker: FakeBroker, client: RawClient) -> None:
    data = record_batch(b"abc")

    answer = produced(client, produce("orders", data[:-2] + b"X" + data[-1:]))

    assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
    assert "crc" in (answer.error_message or "")
    assert broker.records() == []


def test_records_that_a_topic_does_not_take_are_named(broker: FakeBroker, client: RawClient) -> None:
    broker.create_topic("state", TopicSpec(config=TopicConfig(compacted=True)))

    answer = produced(client, produce("state", record_batch(b"a", b"b")))

    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [0, 1]


def test_log_append_time_is_reported(broker: FakeBroker, client: RawClient) -> None:
    config = TopicConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    broker.create_topic("stamped", TopicSpec(config=config))

    answer = produced(client, produce("stamped", record_batch(b"a")))

    assert answer.log_append_time_ms == broker.records("stamped")[0].timestamp_ms > 1_700_000_000_000


def test_the_start_of_the_log_is_reported(broker: FakeBroker, client: RawClient) -> None:
    produced(client, produce("orders", record_batch(b"a", b"b")))
    broker.delete_records("orders", 0, 1)

    assert produced(client, produce("orders", record_batch(b"c"))).log_start_offset == 1


def test_zstd_is_refused_below_version_7(client: RawClient) -> None:
    builder = RecordBatchBuilder()
    builder.append(1, None, b"a")
    data = b"".join(encode_batch(builder, Codec.ZSTD).pieces)

    assert produced(client, produce("orders", data), 6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert produced(client, produce("orders", data), 7).error_code == ErrorCode.NONE


def test_a_repeated_batch_is_acknowledged_with_its_first_offset(broker: FakeBroker, client: RawClient) -> None:
    first = produce("orders", record_batch(b"a", producer_id=1, epoch=0, sequence=0))
    produced(client, first)
    produced(client, produce("orders", record_batch(b"b", producer_id=1, epoch=0, sequence=1)))

    again = produced(client, first)

    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 0)
    assert [record.value for record in broker.records("orders")] == [b"a", b"b"]


def test_the_log_moves_with_its_leader(broker: FakeBroker, client: RawClient) -> None:
    request = produce("orders", record_batch(b"a", producer_id=1, epoch=0, sequence=0))
    produced(client, request)
    broker.move_leader("orders", 0, to=2)

    with RawClient(broker.addresses[2]) as other:
        assert produced(other, request).base_offset == 0
        assert produced(other, produce("orders", record_batch(b"b"))).base_offset == 1


# -- InitProducerId, FindCoordinator -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_every_producer_gets_its_own_id(client: RawClient, version: int) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)

    first, second = client.ask(request, version), client.ask(request, version)

    assert (first.error_code, first.producer_epoch) == (ErrorCode.NONE, 0)
    assert first.producer_id != second.producer_id


def test_the_next_producer_id_and_epoch_can_be_chosen(broker: FakeBroker, client: RawClient) -> None:
    broker.next_producer_id, broker.next_producer_epoch = 42, 32766

    answer = client.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)

    assert (answer.producer_id, answer.producer_epoch) == (42, 32766)


def test_a_producer_id_without_an_epoch_is_an_invalid_request(client: RawClient) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000, producer_id=5)

    assert client.ask(request, 3).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(7))
def test_a_coordinator_is_named(broker: FakeBroker, client: RawClient, version: int) -> None:
    answer = client.ask(FindCoordinatorRequest(key="group", key_type=0, coordinator_keys=["group"]), version)

    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.node_id, found.host, found.port) == (1, *broker.addresses[1])


# -- Fetch, ListOffsets ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4, 13))
def test_every_version_of_fetch_gives_the_stored_batches(broker: FakeBroker, client: RawClient, version: int) -> None:
    produced(client, produce("orders", record_batch(b"a")))
    produced(client, produce("orders", record_batch(b"b")))

    stored = [batch.raw for batch in broker.batches("orders", 0)]
    assert fetch(client, 0, version=version) == b"".join(stored)
    assert fetch(client, 1, version=version) == stored[1]
    assert fetch(client, 2, version=version) == b""


def test_an_offset_outside_of_the_log_is_out_of_range(client: RawClient) -> None:
    with pytest.raises(LookupError, match="OFFSET_OUT_OF_RANGE"):
        fetch(client, 1)


def test_a_fetch_waits_until_there_is_enough(broker: FakeBroker, client: RawClient) -> None:
    request = FetchRequest(
        max_wait_ms=5000,
        min_bytes=1,
        max_bytes=1_000_000,
        topics=[
            FetchTopic(
                topic="orders", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100_000)]
            )
        ],
    )
    waiting = client.send(request, 12)
    assert sent_nothing(broker, client)

    with RawClient(broker.addresses[1]) as producer:
        produced(producer, produce("orders", record_batch(b"a")))

    answer = client.read(FetchRequest, 12, waiting)
    assert bytes(answer.responses[0].partitions[0].records or b"") == broker.batches("orders")[0].raw


def test_a_fetch_ends_its_wait_with_what_there_is(client: RawClient) -> None:
    assert fetch(client, 0, max_wait_ms=20) == b""


@pytest.mark.parametrize(("timestamp", "offset"), [(-1, 3), (-2, 1), (0, 1), (1_700_000_000_000, 1), (2**60, -1)])
def test_offsets_are_found_by_place_and_by_time(
    broker: FakeBroker, client: RawClient, timestamp: int, offset: int
) -> None:
    produced(client, produce("orders", record_batch(b"a", b"b", b"c")))
    broker.delete_records("orders", 0, 1)
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)

    answer = client.ask(ListOffsetsRequest(topics=[ListOffsetsTopic(name="orders", partitions=[asked])]), 5)

    assert answer.topics[0].partitions[0].offset == offset


# -- DescribeConfigs ---------------------------------------------------------------------------------------------------

_NEVER = str(2**63 - 1)


@pytest.mark.parametrize(
    ("versions", "limits"),
    [
        ("3.5", {"difference": "1000"}),
        ("3.9", {"before": "2000", "after": _NEVER, "difference": "1000"}),
        ("4.0", {"before": "2000", "after": "3600000"}),
    ],
)
def test_each_release_reports_the_limits_of_timestamps_that_it_knows(versions: str, limits: dict[str, str]) -> None:
    config = TopicConfig(message_timestamp_before_max_ms=2000, message_timestamp_difference_max_ms=1000)
    asked = DescribeConfigsResource(resource_type=2, resource_name="orders", configuration_keys=None)

    with (
        FakeBroker(topics={"orders": TopicSpec(config=config)}, versions=versions) as broker,
        RawClient(broker.addresses[1]) as client,
    ):
        (reported,) = client.ask(DescribeConfigsRequest(resources=[asked]), 2).results

    found = {each.name: each.value for each in reported.configs if each.name.endswith(".max.ms")}
    assert found == {f"message.timestamp.{name}.max.ms": value for name, value in limits.items()}


# -- CreateTopics, DeleteTopics ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 8))
def test_topics_are_created_with_their_configuration(broker: FakeBroker, client: RawClient, version: int) -> None:
    asked = CreatableTopic(
        name="made",
        num_partitions=3,
        replication_factor=2,
        assignments=[],
        configs=[CreatableTopicConfig(name="max.message.bytes", value="99")],
    )

    answer = client.ask(CreateTopicsRequest(topics=[asked, asked], timeout_ms=100), version)

    assert [topic.error_code for topic in answer.topics] == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]
    made = broker.cluster.topic("made")
    assert (len(made.partitions), len(made.partitions[0].replicas), made.config.max_message_bytes) == (3, 2, 99)


def test_topics_are_deleted_by_name_and_by_id(broker: FakeBroker, client: RawClient) -> None:
    broker.create_topic("second")
    second = broker.cluster.topic("second").topic_id

    by_name = client.ask(DeleteTopicsRequest(topic_names=["orders", "nowhere"], timeout_ms=100), 5)
    by_id = client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=second)], timeout_ms=100), 6)

    assert [topic.error_code for topic in by_name.responses] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert [topic.error_code for topic in by_id.responses] == [ErrorCode.NONE]
    assert broker.cluster.topics == {}
