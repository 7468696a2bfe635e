"""A request with one batch, written and read without messages, against the messages that define it."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.protocol import _lone_batch
from aioproducer.protocol.frames import encode_request, encode_response
from aioproducer.protocol.lone_batch import FIRST_VERSION, LoneBatch
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

Twin = type[LoneBatch]

VERSIONS = range(FIRST_VERSION, ProduceRequest.versions[1] + 1)
TOPIC_ID = UUID(int=7 << 100 | 3)

versions = st.sampled_from(VERSIONS)
names = st.text(min_size=1, max_size=300).filter(lambda name: name.isprintable())
offsets = st.integers(-1, 2**63 - 1)


#: One, if the one in use is Python's.
TWINS = list(dict.fromkeys([_lone_batch.LoneBatch, LoneBatch]))


@pytest.fixture(scope="module", params=TWINS, ids=["pure", "in use"][: len(TWINS)])
def twin(request: pytest.FixtureRequest) -> Twin:
    """Each implementation in turn, where there are two."""
    implementation: Twin = request.param
    return implementation


def form(twin: Twin, version: int, topic: str = "orders", partition: int = 3) -> LoneBatch:
    return twin(version, "tests", None, -1, 30_000, topic, TOPIC_ID, partition)


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
    twin: Twin,
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

    lone = twin(version, client_id, transactional_id, acks, timeout_ms, topic, TOPIC_ID, partition)

    assert lone.encode(header, records, correlation_id) == b"".join(
        map(bytes, encode_request(correlation_id, client_id, request, version))
    )


def answer(
    version: int, *, topic: str = "orders", index: int = 3, throttle_time_ms: int = 0, **partition: object
) -> bytes:
    of_partition = PartitionProduceResponse(index=index, **{"error_code": 0, "base_offset": 7, **partition})  # type: ignore[arg-type]
    of_topic = TopicProduceResponse(name=topic, topic_id=TOPIC_ID, partition_responses=[of_partition])
    return ProduceResponse(responses=[of_topic], throttle_time_ms=throttle_time_ms).encode(version)


@given(version=versions, offset=offsets, time_ms=st.integers(-1, 2**62), start=offsets)
def test_an_answer_with_the_position_alone_is_read(
    twin: Twin, version: int, offset: int, time_ms: int, start: int
) -> None:
    body = answer(version, base_offset=offset, log_append_time_ms=time_ms, log_start_offset=start)

    written = form(twin, version).read(body, 1)

    assert written is not None
    assert (written.base_offset, written.log_append_time_ms) == (offset, time_ms)


def frame(version: int, body: bytes, correlation_id: int = 7) -> bytes:
    return b"".join(map(bytes, encode_response(correlation_id, ProduceResponse.decode(version, body), version)))


@given(version=versions, offset=offsets, time_ms=st.integers(-1, 2**62), correlation_id=st.integers(0, 2**31 - 1))
def test_a_whole_frame_is_read_where_it_lies(
    twin: Twin, version: int, offset: int, time_ms: int, correlation_id: int
) -> None:
    data = frame(version, answer(version, base_offset=offset, log_append_time_ms=time_ms), correlation_id)

    written = form(twin, version).read_frame(1, data, correlation_id)

    assert written is not None
    assert (written.base_offset, written.log_append_time_ms) == (offset, time_ms)


@given(version=versions, at=st.integers(0, 300), value=st.integers(0, 255), more=st.binary(max_size=3))
def test_any_other_frame_is_left_to_the_messages(twin: Twin, version: int, at: int, value: int, more: bytes) -> None:
    data = bytearray(frame(version, answer(version)))
    offsets_begin = data.index((7).to_bytes(8, "big"), 12)
    at %= offsets_begin
    is_changed = data[at] != value
    data[at] = value

    lone = form(twin, version)

    assert (lone.read_frame(1, bytes(data), 7) is None) is is_changed
    assert lone.read_frame(1, frame(version, answer(version)), 8) is None
    assert lone.read_frame(1, frame(version, answer(version)) + b"\0" + more, 7) is None
    assert lone.read_frame(1, frame(version, answer(version))[: at + 1], 7) is None


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
def test_an_answer_with_more_fields_is_left_to_the_messages(twin: Twin, version: int, more: dict[str, object]) -> None:
    if "topic" in more and version >= 13:
        body = answer(version).replace(TOPIC_ID.bytes, UUID(int=1).bytes)
    else:
        body = answer(version, **more)  # type: ignore[arg-type]

    assert form(twin, version).read(body, 2) is None


@pytest.mark.parametrize("version", [10, 13])
def test_hints_who_leads_are_left_to_the_messages(twin: Twin, version: int) -> None:
    leader = LeaderIdAndEpoch(leader_id=1, leader_epoch=2)
    hinted = answer(version, current_leader=leader)
    response = ProduceResponse.decode(version, answer(version))
    response.node_endpoints = [NodeEndpoint(node_id=1, host="k", port=9)]

    assert form(twin, version).read(hinted, 1) is None
    assert form(twin, version).read(response.encode(version), 1) is None


@given(version=versions, cut=st.integers(1, 40), garbage=st.binary(max_size=60))
def test_an_unreadable_response_is_left_to_the_messages(twin: Twin, version: int, cut: int, garbage: bytes) -> None:
    assert form(twin, version).read(answer(version)[:-cut], 1) is None
    assert form(twin, version).read(garbage, 1) is None
    assert form(twin, version).read(answer(version) + b"\0", 1) is None
