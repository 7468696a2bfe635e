"""Declaration, creation, comparison and display of messages."""

from __future__ import annotations

import pickle
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.errors import ProtocolError, UnsupportedVersion
from aioproducer.protocol import ApiKey
from aioproducer.protocol.compiler import compile_decoder
from aioproducer.protocol.message import Array, Int32, Struct, since
from aioproducer.protocol.messages import (
    REQUESTS,
    ApiVersionsRequest,
    ApiVersionsResponse,
    EndTxnRequest,
    LeaderIdAndEpoch,
    MetadataRequest,
    MetadataResponseTopic,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    SaslAuthenticateRequest,
    TopicProduceData,
)
from aioproducer.protocol.wire import ZERO_UUID, RecordsInput, read_uvarint, write_uvarint


def produce(records: RecordsInput | None) -> ProduceRequest:
    partition = PartitionProduceData(index=3, records=records)
    topic = TopicProduceData(name="orders", partition_data=[partition])
    return ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1000, topic_data=[topic])


def test_a_field_without_a_default_must_be_named() -> None:
    with pytest.raises(TypeError, match="timeout_ms"):
        ProduceRequest(transactional_id=None, acks=1, topic_data=[])  # type: ignore[call-arg]


def test_a_field_that_does_not_exist_cannot_be_given_or_set() -> None:
    with pytest.raises(TypeError, match="ack"):
        LeaderIdAndEpoch(ack=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        LeaderIdAndEpoch().leader = 1  # type: ignore[attr-defined]


def test_each_struct_has_its_own_arrays_and_structs() -> None:
    first, second = (PartitionProduceResponse(index=0, error_code=0, base_offset=0) for _ in range(2))

    first.current_leader.leader_id = 5

    assert second.current_leader.leader_id == -1
    assert first.record_errors is not second.record_errors


def test_each_decoded_struct_has_its_own_arrays_and_structs() -> None:
    data = produce(b"").encode(3)
    response = ProduceResponse(responses=[]).encode(3)

    assert ProduceRequest.decode(3, data).topic_data is not ProduceRequest.decode(3, data).topic_data
    assert ProduceResponse.decode(3, response).node_endpoints is not ProduceResponse.decode(3, response).node_endpoints


def test_structs_are_equal_when_their_fields_are() -> None:
    assert LeaderIdAndEpoch(leader_id=1) == LeaderIdAndEpoch(leader_id=1)
    assert LeaderIdAndEpoch(leader_id=1) != LeaderIdAndEpoch(leader_id=2)
    assert LeaderIdAndEpoch() != object()
    assert produce((b"a", b"b")) == produce(b"ab")


def test_structs_cannot_be_hashed_because_they_can_change() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(LeaderIdAndEpoch())


def test_structs_can_be_copied_and_pickled() -> None:
    request = produce(b"batch")

    assert deepcopy(request) == request
    assert pickle.loads(pickle.dumps(request)) == request


def test_a_struct_shows_its_fields() -> None:
    assert repr(LeaderIdAndEpoch(leader_id=1)) == "LeaderIdAndEpoch(leader_id=1, leader_epoch=-1)"


def test_records_and_credentials_are_not_shown() -> None:
    assert "secret" not in repr(SaslAuthenticateRequest(auth_bytes=b"\0user\0secret"))
    assert "records=<3 bytes>" in repr(produce(b"abc"))


def test_a_field_that_the_version_does_not_have_is_left_out() -> None:
    asked = MetadataRequest(topics=None, allow_auto_topic_creation=False)

    assert asked.encode(3) == b"\xff\xff\xff\xff"
    assert asked.encode(4) == b"\xff\xff\xff\xff\0"


def test_a_field_that_the_version_does_not_have_is_read_as_its_default() -> None:
    assert MetadataRequest.decode(3, b"\xff\xff\xff\xff").allow_auto_topic_creation is True
    assert ProduceRequest.decode(3, produce(None).encode(3)).topic_data[0].topic_id == ZERO_UUID


def test_a_tagged_field_is_written_only_if_it_is_not_the_default() -> None:
    silent = ApiVersionsResponse(error_code=0, api_keys=[])
    speaking = ApiVersionsResponse(error_code=0, api_keys=[], zk_migration_ready=True, finalized_features_epoch=2)

    assert silent.encode(3) == b"\0\0\x01\0\0\0\0" + b"\x00"
    assert speaking.encode(3) == b"\0\0\x01\0\0\0\0" + b"\x02" + b"\x01\x08\0\0\0\0\0\0\0\2" + b"\x03\x01\1"


def test_records_are_handed_on_without_being_copied() -> None:
    header, body = b"h" * 61, bytearray(b"body")

    pieces = produce((header, body)).encode_pieces(9)

    assert any(piece is header for piece in pieces)
    assert any(piece is body for piece in pieces)
    assert b"".join(pieces) == produce(b"h" * 61 + b"body").encode(9)


@pytest.mark.parametrize(
    "records", [b"ab", bytearray(b"ab"), memoryview(b"ab"), (b"a", b"b"), [b"a", memoryview(b"b")]]
)
@pytest.mark.parametrize("version", [3, 9])
def test_records_can_be_any_bytes_or_pieces_of_them(records: RecordsInput, version: int) -> None:
    request = produce(records)

    assert request.encode(version) == produce(b"ab").encode(version)
    assert bytes(request.topic_data[0].partition_data[0].records or b"") == b"ab"


def test_records_can_be_null_or_empty() -> None:
    for records in (None, b""):
        decoded = ProduceRequest.decode(9, produce(records).encode(9))
        assert decoded.topic_data[0].partition_data[0].records == records


def test_records_are_read_as_a_view_of_the_message() -> None:
    decoded = ProduceRequest.decode(9, produce(b"batch").encode(9))

    assert isinstance(decoded.topic_data[0].partition_data[0].records, memoryview)


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (ProduceRequest(transactional_id=None, acks=1 << 15, timeout_ms=0, topic_data=[]), "acks=32768"),
        (
            ProduceRequest(transactional_id="x" * 32768, acks=1, timeout_ms=0, topic_data=[]),
            "32768 bytes; Kafka allows",
        ),
        (ProduceRequest(transactional_id="\udc80", acks=1, timeout_ms=0, topic_data=[]), "surrogates"),
        (ProduceRequest(transactional_id=None, acks=1, timeout_ms=0, topic_data=None), "topic_data=None"),  # type: ignore[arg-type]
        (ProduceRequest(transactional_id=None, acks=1, timeout_ms=0, topic_data=[1]), "int"),  # type: ignore[list-item]
    ],
)
@pytest.mark.parametrize("version", [3, 9])
def test_a_value_that_has_no_place_in_its_field_is_refused(request_: ProduceRequest, reason: str, version: int) -> None:
    with pytest.raises(ValueError, match=reason):
        request_.encode(version)


def test_null_is_refused_where_a_version_does_not_have_it_yet() -> None:
    unknown = MetadataResponseTopic(error_code=100, name=None)
    named = MetadataRequest(topics=[])

    assert named.encode(1) == b"\0\0\0\0"
    with pytest.raises(AttributeError):
        _encode_struct(unknown, 11)
    assert _encode_struct(unknown, 12).startswith(b"\0\x64\0")


def _encode_struct(struct: Struct, version: int) -> bytes:
    from aioproducer.protocol.compiler import compile_encoder

    buffer = bytearray()
    compile_encoder(type(struct), version, True)(struct, buffer, [])
    return bytes(buffer)


@pytest.mark.parametrize("version", [2, 14, -1])
def test_a_version_that_is_not_declared_is_neither_written_nor_read(version: int) -> None:
    with pytest.raises(UnsupportedVersion, match=f"3 to 13, not in {version}"):
        produce(b"").encode(version)
    with pytest.raises(UnsupportedVersion, match=f"3 to 13, not in {version}"):
        ProduceResponse.decode(version, b"")


def test_a_protocol_error_names_the_message_its_version_and_its_size() -> None:
    with pytest.raises(ProtocolError) as raised:
        ProduceResponse.decode(9, b"\x02")

    assert str(raised.value).startswith("1 bytes are not a ProduceResponse (api key 0) of version 9: ")


def test_a_response_has_the_key_and_versions_of_its_request() -> None:
    for request in REQUESTS.values():
        response = request.response_type
        assert (response.api_key, response.versions, response.flexible) == (
            request.api_key,
            request.versions,
            request.flexible,
        )
        assert response.__name__ == request.__name__.replace("Request", "Response")


def test_every_api_key_has_its_request() -> None:
    assert {ApiKey(key).name.replace("_", "").lower() + "request": key for key in REQUESTS} == {
        request.__name__.lower(): request.api_key for request in REQUESTS.values()
    }
    assert set(REQUESTS) == set(ApiKey)


def test_versions_are_flexible_from_the_declared_one_on() -> None:
    assert [EndTxnRequest.is_flexible(version) for version in (2, 3)] == [False, True]
    assert not any(REQUESTS[ApiKey.SASL_HANDSHAKE].is_flexible(version) for version in (0, 1))
    assert ApiVersionsRequest.is_flexible(3)


class Newer(Struct):
    """A struct with a field without a declared default for older versions."""

    values: Array[Int32] = since(2, default=[])


def test_an_array_of_numbers_is_read_at_once_and_is_a_list() -> None:
    value, end = compile_decoder(Newer, 2, False)(b"\0\0\0\2\0\0\0\1\xff\xff\xff\xff", 0, 12)

    assert (value, end) == (Newer(values=[1, -1]), 12)
    assert compile_decoder(Newer, 1, False)(b"", 0, 0)[0] == Newer()


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, b"\0"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02"), (2**32 - 1, b"\xff\xff\xff\xff\x0f")],
)
def test_unsigned_varints_have_seven_bits_a_byte(value: int, data: bytes) -> None:
    buffer = bytearray()

    write_uvarint(buffer, value)

    assert buffer == data
    assert read_uvarint(data, 0) == (value, len(data))


@given(st.integers(0, 2**32 - 1))
def test_unsigned_varints_are_read_as_they_were_written(value: int) -> None:
    buffer = bytearray(b"before")
    write_uvarint(buffer, value)

    assert read_uvarint(bytes(buffer) + b"behind", 6) == (value, len(buffer))


def test_api_versions_5_names_the_broker_that_the_connection_is_meant_for() -> None:
    """By hand, as kio does not know this version yet: ``ClusterId`` (nullable) and ``NodeId`` behind the software."""
    meant = ApiVersionsRequest(
        client_software_name="a", client_software_version="1", cluster_id="xyz", node_id=258
    ).encode(5)
    anybody = ApiVersionsRequest(client_software_name="a", client_software_version="1").encode(5)

    assert meant == b"\x02a\x021\x04xyz\x00\x00\x01\x02\x00"
    assert anybody == b"\x02a\x021\x00\xff\xff\xff\xff\x00"
