"""A request with some small batches, written and read without messages, against the messages that define it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.protocol import _lone_batch
from aioproducer.protocol.frames import encode_request, encode_response
from aioproducer.protocol.lone_batch import FIRST_VERSION, Part, SmallRequest
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

Twin = type[SmallRequest]

VERSIONS = range(FIRST_VERSION, ProduceRequest.versions[1] + 1)

#: Python's code, and the code in use, if that is native.
TWINS = list(dict.fromkeys([_lone_batch.SmallRequest, SmallRequest]))

#: Topics with the sizes of the batches of each partition.
Layout = Mapping[str, Mapping[int, int]]

names = st.text(min_size=1, max_size=200).filter(lambda name: name.isprintable())
partitions = st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 300), min_size=1, max_size=150)
layouts = st.dictionaries(names, partitions, min_size=1, max_size=4)
versions = st.sampled_from(VERSIONS)


@pytest.fixture(scope="module", params=TWINS, ids=["pure", "in use"][: len(TWINS)])
def twin(request: pytest.FixtureRequest) -> Twin:
    """Each implementation in turn, if there are two."""
    implementation: Twin = request.param
    return implementation


def topic_id(name: str) -> UUID:
    return UUID(bytes=name.encode()[:8].rjust(8, b"\1") + len(name).to_bytes(8, "big"))


def form(twin: Twin, version: int) -> SmallRequest:
    return twin(version, "tests", None, -1, 30_000)


def parts_of(request: SmallRequest, layout: Layout) -> list[Part]:
    return [
        (request.topic(name, topic_id(name)), index, 1, b"h" * min(61, size), b"r" * max(0, size - 61))
        for name, sizes in layout.items()
        for index, size in sizes.items()
    ]


ONE_TOPIC: Layout = {"orders": {3: 80, 1: 90, 7: 100}}
TWO_TOPICS: Layout = {"orders": {3: 80, 1: 90}, "payments": {3: 70}}


@given(
    version=versions,
    layout=layouts,
    client_id=names,
    transactional_id=st.none() | names,
    correlation_id=st.integers(0, 2**31 - 1),
    acks=st.sampled_from([1, -1]),
    timeout_ms=st.integers(0, 2**31 - 1),
)
def test_the_request_is_the_one_that_the_messages_write(
    twin: Twin,
    version: int,
    layout: Layout,
    client_id: str,
    transactional_id: str | None,
    correlation_id: int,
    acks: int,
    timeout_ms: int,
) -> None:
    small = twin(version, client_id, transactional_id, acks, timeout_ms)
    parts = parts_of(small, layout)
    batches = iter(parts)
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                name=name,
                topic_id=topic_id(name),
                partition_data=[
                    PartitionProduceData(index=index, records=(header, records))
                    for _, index, _, header, records in (next(batches) for _ in sizes)
                ],
            )
            for name, sizes in layout.items()
        ],
    )

    encoded = b"".join(map(bytes, encode_request(correlation_id, client_id, request, version)))

    assert small.encode(parts, correlation_id) == encoded


def response(
    layout: Layout, offsets: Mapping[tuple[str, int], int], shuffled: random.Random | None = None
) -> ProduceResponse:
    """The response that says of each batch only where it was written, in the order of the request or in another."""
    topics: list[TopicProduceResponse] = []
    for name, sizes in layout.items():
        answers = [
            PartitionProduceResponse(
                index=index,
                error_code=0,
                base_offset=offsets.get((name, index), 7),
                log_append_time_ms=offsets.get((name, index), 7) // 2,
                log_start_offset=0,
            )
            for index in sizes
        ]
        topics.append(TopicProduceResponse(name=name, topic_id=topic_id(name), partition_responses=answers))
    if shuffled is not None:
        shuffled.shuffle(topics)
        for topic in topics:
            shuffled.shuffle(answers := list(topic.partition_responses))
            topic.partition_responses = answers
    return ProduceResponse(responses=topics, throttle_time_ms=0)


def positions(written: Sequence[object] | None) -> list[tuple[int, int]]:
    assert written is not None
    return [(each.base_offset, each.log_append_time_ms) for each in written]  # type: ignore[attr-defined]


@given(version=versions, layout=layouts, seed=st.integers(), correlation_id=st.integers(0, 2**31 - 1))
def test_a_response_in_any_order_gives_each_batch_its_position(
    twin: Twin, version: int, layout: Layout, seed: int, correlation_id: int
) -> None:
    dice = random.Random(seed)
    offsets = {(name, index): dice.randrange(-1, 2**62) for name, sizes in layout.items() for index in sizes}
    answered = response(layout, offsets, dice)
    small = form(twin, version)
    parts = parts_of(small, layout)
    expected = [(offset, offset // 2) for offset in offsets.values()]
    frame = b"".join(map(bytes, encode_response(correlation_id, answered, version)))

    assert positions(small.read(parts, answered.encode(version))) == expected
    assert positions(small.read_frame(parts, frame, correlation_id)) == expected
    assert small.read_frame(parts, frame, correlation_id ^ 1) is None
    assert small.read_frame(parts, frame + b"\0", correlation_id) is None
    assert small.read_frame(parts, frame[:-1], correlation_id) is None


#: What a response may say besides the positions.
MORE: list[dict[str, object]] = [
    {"error_code": 6},
    {"error_code": -1},
    {"index": 4},
    {"index": 1},
    {"record_errors": [BatchIndexAndErrorMessage(batch_index=0)]},
    {"error_message": ""},
    {"error_message": "no"},
    {"base_offset": -2},
    {"base_offset": 2**63 - 1},
    {"throttle_time_ms": 1},
    {"current_leader": LeaderIdAndEpoch(leader_id=1, leader_epoch=2)},
    {"node_endpoints": [NodeEndpoint(node_id=1, host="k", port=9)]},
    {"name": "others", "topic_id": UUID(int=1)},
    {"name": "payments", "topic_id": topic_id("payments")},
    {"partition_responses": []},
    {"responses": []},
]
#: Versions before 10 have no hints about leaders.
HINTS = {"current_leader", "node_endpoints"}


@pytest.mark.parametrize(
    ("version", "more"),
    [(version, more) for version in VERSIONS for more in MORE if version >= 10 or HINTS.isdisjoint(more)],
    ids=str,
)
def test_a_response_with_more_fields_is_left_to_the_messages(twin: Twin, version: int, more: dict[str, object]) -> None:
    answered = response(TWO_TOPICS, {})
    topic = answered.responses[0]
    for name, value in more.items():
        places = (answered, topic, topic.partition_responses[0] if topic.partition_responses else topic)
        setattr(next(place for place in places if hasattr(place, name)), name, value)
    small = form(twin, version)
    parts = [(topic, index, 2, header, records) for topic, index, _, header, records in parts_of(small, TWO_TOPICS)]

    assert small.read(parts, answered.encode(version)) is None


@pytest.mark.parametrize("version", [FIRST_VERSION, VERSIONS[-1]])
def test_a_response_with_a_partition_twice_or_without_one_is_left_to_the_messages(twin: Twin, version: int) -> None:
    small = form(twin, version)
    twice, less, more = (response(ONE_TOPIC, {}) for _ in range(3))
    one, *others = twice.responses[0].partition_responses
    twice.responses[0].partition_responses = [one, one, others[0]]
    less.responses[0].partition_responses = others
    more.responses = [*more.responses, *more.responses]

    for answered in (twice, less, more):
        assert small.read(parts_of(small, ONE_TOPIC), answered.encode(version)) is None


@given(version=versions, cut=st.integers(1, 200), garbage=st.binary(max_size=200), at=st.integers(0, 400))
def test_a_response_that_cannot_be_read_is_left_to_the_messages(
    twin: Twin, version: int, cut: int, garbage: bytes, at: int
) -> None:
    small = form(twin, version)
    parts = parts_of(small, TWO_TOPICS)
    body = response(TWO_TOPICS, {}).encode(version)

    assert small.read(parts, body[:-cut]) is None
    assert small.read(parts, garbage) is None
    assert small.read(parts, body + b"\0") is None
    changed = bytearray(body)
    changed[at % len(body)] ^= 0xFF
    read = small.read(parts, bytes(changed))
    if read is not None:  # only offsets and times may have any value
        pure = form(_lone_batch.SmallRequest, version)
        assert positions(read) == positions(pure.read(parts, bytes(changed)))
        assert positions(read) != positions(small.read(parts, body)) or bytes(changed) != body
