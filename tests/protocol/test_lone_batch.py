"""A request with one batch, written and read without messages, against the messages that define it."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.protocol.frames import encode_request
from aioproducer.protocol.lone_batch import FIRST_VERSION, LoneBatch, Written
from aioproducer.protocol.messages import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

VERSIONS = range(FIRST_VERSION, ProduceRequest.versions[1] + 1)
TOPIC_ID = UUID(int=7 << 100 | 3)

versions = st.sampled_from(VERSIONS)
names = st.text(min_size=1, max_size=300).filter(lambda name: name.isprintable())
offsets = st.integers(-1, 2**63 - 1)


def form(version: int, topic: str = "orders", partition: int = 3) -> LoneBatch:
    return LoneBatch(version, "tests", None, -1, 30_000, topic, TOPIC_ID, partition)


@given(
    version=versions,
    topic=names,
    client_id=names,
    transactional_id=st.none() | names,
    partition=st.integers(0, 2**31 - 1),
    correlation_id=st.integers(0, 2**31 - 1),
    acks=st.sampled_from([1, -1]),
    timeout_ms=st.integers(0, 2**31 - 1),
    header=st.binary(max_size=61),
    records=st.binary(max_size=20_000),
)
def test_the_request_is_the_one_that_the_messages_write(
    version: int,
    topic: str,
    client_id: str,
    transactional_id: str | None,
    partition: int,
    correlation_id: int,
    acks: int,
    timeout_ms: int,
    header: bytes,
    records: bytes,
) -> None:
    data = [PartitionProduceData(index=partition, records=(header, records))]
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(name=topic, topic_id=TOPIC_ID, partition_data=data)],
    )

    lone = LoneBatch(version, client_id, transactional_id, acks, timeout_ms, topic, TOPIC_ID, partition)

    assert lone.encode(correlation_id, header, records) == b"".join(
        map(bytes, encode_request(correlation_id, client_id, request, version))
    )


def answer(
    version: int, *, topic: str = "orders", index: int = 3, throttle_time_ms: int = 0, **partition: object
) -> bytes:
    of_partition = PartitionProduceResponse(index=index, **{"error_code": 0, "base_offset": 7, **partition})  # type: ignore[arg-type]
    of_topic = TopicProduceResponse(name=topic, topic_id=TOPIC_ID, partition_responses=[of_partition])
    return ProduceResponse(responses=[of_topic], throttle_time_ms=throttle_time_ms).encode(version)


@given(version=versions, offset=offsets, time_ms=st.integers(-1, 2**62), start=offsets)
def test_an_answer_that_says_only_where_is_read(version: int, offset: int, time_ms: int, start: int) -> None:
    body = answer(version, base_offset=offset, log_append_time_ms=time_ms, log_start_offset=start)

    assert form(version).read(body, 1) == Written(offset, time_ms)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "more",
    [
        {"error_code": 6},
        {"error_code": -1},
        {"index": 4},
        {"topic": "others"},
        {"throttle_time_ms": 1},
        {"throttle_time_ms": 2**31 - 1},
        {"record_errors": [BatchIndexAndErrorMessage(batch_index=0)]},
        {"error_message": ""},
        {"error_message": "no"},
        {"base_offset": -2},
        {"base_offset": 2**63 - 1},
    ],
    ids=str,
)
def test_an_answer_that_says_more_is_left_to_the_messages(version: int, more: dict[str, object]) -> None:
    if "topic" in more and version >= 13:
        body = answer(version).replace(TOPIC_ID.bytes, UUID(int=1).bytes)
    else:
        body = answer(version, **more)  # type: ignore[arg-type]

    assert form(version).read(body, 2) is None


@pytest.mark.parametrize("version", [10, 13])
def test_hints_who_leads_are_left_to_the_messages(version: int) -> None:
    leader = LeaderIdAndEpoch(leader_id=1, leader_epoch=2)
    hinted = answer(version, current_leader=leader)
    response = ProduceResponse.decode(version, answer(version))
    response.node_endpoints = [NodeEndpoint(node_id=1, host="k", port=9)]

    assert form(version).read(hinted, 1) is None
    assert form(version).read(response.encode(version), 1) is None


@given(version=versions, cut=st.integers(1, 40), garbage=st.binary(max_size=60))
def test_what_cannot_be_read_is_left_to_the_messages(version: int, cut: int, garbage: bytes) -> None:
    assert form(version).read(answer(version)[:-cut], 1) is None
    assert form(version).read(garbage, 1) is None
    assert form(version).read(answer(version) + b"\0", 1) is None
