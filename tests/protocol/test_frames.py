"""Headers, and cutting a stream into frames."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer.errors import ProtocolError
from aioproducer.protocol import (
    ApiKey,
    FrameReader,
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_response,
)
from aioproducer.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    PartitionProduceData,
    ProduceRequest,
    SaslHandshakeRequest,
    TopicProduceData,
)

KIB = 1024


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def test_a_request_that_is_not_flexible_has_header_v1() -> None:
    pieces = encode_request(7, "me", SaslHandshakeRequest(mechanism="PLAIN"), 1)

    assert b"".join(pieces) == frame(b"\0\x11" + b"\0\1" + b"\0\0\0\7" + b"\0\2me" + b"\0\5PLAIN")


def test_a_flexible_request_has_header_v2_whose_client_id_is_not_compact() -> None:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")

    pieces = encode_request(7, "me", request, 3)

    assert b"".join(pieces) == frame(b"\0\x12" + b"\0\3" + b"\0\0\0\7" + b"\0\2me" + b"\0" + b"\2a\2" + b"1\0")


def test_the_client_id_can_be_null() -> None:
    pieces = encode_request(7, None, MetadataRequest(topics=None), 1)

    assert b"".join(pieces) == frame(b"\0\3\0\1\0\0\0\7\xff\xff" + b"\xff\xff\xff\xff")
    assert decode_request_header(b"\0\3\0\1\0\0\0\7\xff\xff")[0].client_id is None


def test_the_response_header_of_api_versions_is_never_flexible() -> None:
    response = ApiVersionsResponse(error_code=0, api_keys=[])

    pieces = encode_response(7, response, 3)

    assert b"".join(pieces) == frame(b"\0\0\0\7" + b"\0\0\1\0\0\0\0\0")
    correlation_id, body = decode_response_header(b"".join(pieces)[4:], ApiVersionsRequest, 3)
    assert (correlation_id, ApiVersionsResponse.decode(3, body)) == (7, response)


def test_a_request_is_framed_without_copying_its_records() -> None:
    records = b"x" * 5000
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=(records, b"tail"))])

    pieces = encode_request(1, "me", ProduceRequest(transactional_id=None, acks=1, timeout_ms=1, topic_data=[topic]), 9)

    assert any(piece is records for piece in pieces)
    assert int.from_bytes(pieces[0][:4], "big") == sum(len(piece) for piece in pieces) - 4


def test_tagged_fields_of_a_header_are_stepped_over() -> None:
    unknown = b"\x02\x05\x03abc\x7f\x00"

    header, body = decode_request_header(b"\0\x12\0\3\0\0\0\7\0\2me" + unknown + b"body")
    correlation_id, rest = decode_response_header(b"\0\0\0\7" + unknown + b"body", MetadataRequest, 9)

    assert (header, bytes(body)) == (RequestHeader(ApiKey.API_VERSIONS, 3, 7, "me"), b"body")
    assert (correlation_id, bytes(rest)) == (7, b"body")


def test_a_request_of_an_unknown_api_still_has_a_header() -> None:
    header, body = decode_request_header(b"\x03\xe7\0\5\0\0\0\7\0\2mebody")

    assert (header, bytes(body)) == (RequestHeader(999, 5, 7, "me"), b"body")


@pytest.mark.parametrize(
    "tags", [b"", b"\x01", b"\x01\x05\x09abc", b"\xff\xff\xff\xff\x0f\0\0", b"\xff\xff\xff\xff\xff\x01"]
)
def test_a_header_whose_tagged_fields_lie_is_refused(tags: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_response_header(b"\0\0\0\7" + tags, MetadataRequest, 9)
    with pytest.raises(ProtocolError):
        decode_request_header(b"\0\x12\0\3\0\0\0\7\0\2me" + tags)


@pytest.mark.parametrize("client_id", [b"\0\5me", b"\xff\xfe", b"\x7f\xffme", b"\0\1\xff"])
def test_a_client_id_that_is_not_one_is_refused(client_id: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_request_header(b"\0\x03\0\3\0\0\0\7" + client_id)


def test_a_header_that_is_cut_off_anywhere_is_refused() -> None:
    request = b"\0\x12\0\3\0\0\0\7\0\2me\0"

    for size in range(len(request)):
        with pytest.raises(ProtocolError):
            decode_request_header(request[:size])
    for size in range(5):
        with pytest.raises(ProtocolError):
            decode_response_header(b"\0\0\0\7\0"[:size], MetadataRequest, 9)


def test_frames_come_out_as_they_went_in_byte_by_byte() -> None:
    reader = FrameReader(KIB)
    found: list[bytes] = []

    for byte in frame(b"first") + frame(b"second"):
        reader.feed(bytes([byte]))
        found += reader

    assert found == [b"first", b"second"]
    assert reader.pending == 0


def test_many_frames_can_come_at_once_with_a_part_of_the_next() -> None:
    reader = FrameReader(KIB)

    reader.feed(frame(b"first") + frame(b"second") + frame(b"third")[:6])
    assert list(reader) == [b"first", b"second"]
    assert reader.pending == 6

    reader.feed(memoryview(frame(b"third"))[6:])
    assert list(reader) == [b"third"]


@settings(max_examples=50)
@given(st.lists(st.binary(min_size=4, max_size=50), max_size=10), st.data())
def test_it_does_not_matter_how_the_stream_was_cut(bodies: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(frame(body) for body in bodies)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    reader = FrameReader(KIB)
    found: list[bytes] = []

    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        reader.feed(stream[start:end])
        found += reader

    assert found == bodies


@pytest.mark.parametrize("size", [-1, -2147483648, 0, 3, KIB + 1, 2147483647])
def test_a_size_that_is_not_acceptable_is_refused_before_its_bytes_come(size: int) -> None:
    reader = FrameReader(KIB)

    reader.feed(frame(b"good") + size.to_bytes(4, "big", signed=True))

    assert next(iter(reader)) == b"good"
    for _ in range(2):  # there is no way back
        with pytest.raises(ProtocolError, match=f"a frame of {size} bytes; 4 to 1024"):
            next(iter(reader))


@pytest.mark.parametrize("size", [4, KIB])
def test_the_smallest_and_the_largest_frame_are_accepted(size: int) -> None:
    reader = FrameReader(KIB)

    reader.feed(frame(bytes(size)))

    assert list(reader) == [bytes(size)]


def test_the_limit_can_be_raised_when_the_peer_has_shown_what_it_is() -> None:
    reader = FrameReader(KIB)

    reader.max_frame = 4 * KIB
    reader.feed(frame(bytes(4 * KIB)))

    assert list(reader) == [bytes(4 * KIB)]


def test_an_answer_that_is_not_kafka_is_refused() -> None:
    reader = FrameReader(16 * KIB * KIB)

    reader.feed(b"HTTP/1.1 400 Bad Request\r\n")

    with pytest.raises(ProtocolError, match="may not be a Kafka broker"):
        list(reader)


def test_a_frame_that_was_read_does_not_change_when_more_comes() -> None:
    reader = FrameReader(KIB)
    reader.feed(frame(b"first"))
    first = reader.next_frame()

    reader.feed(frame(b"other"))

    assert (first, reader.next_frame(), reader.next_frame()) == (b"first", b"other", None)
