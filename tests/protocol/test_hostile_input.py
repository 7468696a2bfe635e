"""Decoders refuse bytes that are not the message, without side effects."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.errors import ProtocolError
from aioproducer.protocol import Message
from aioproducer.protocol.messages import (
    ApiVersionsResponse,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
)
from aioproducer.types import BytesLike
from tests.protocol.spoken import every_message, for_each, spoken

Filled: TypeAlias = Callable[..., Message]


every_flexible_message = for_each((cls, version) for cls, version in spoken() if cls.is_flexible(version))


@every_message
def test_a_message_that_is_cut_off_anywhere_is_refused(cls: type[Message], version: int, filled: Filled) -> None:
    data = filled(cls, version).encode(version)

    for size in range(len(data)):
        with pytest.raises(ProtocolError) as refused:
            cls.decode(version, data[:size])
        reported = str(refused.value)
        assert reported.startswith(f"{size} bytes are not a {cls.__name__} ")
        assert f" of version {version}: " in reported


@every_message
def test_bytes_that_are_left_over_are_refused(cls: type[Message], version: int, filled: Filled) -> None:
    data = filled(cls, version).encode(version)

    with pytest.raises(ProtocolError, match="2 of them are left over"):
        cls.decode(version, data + b"\0\0")


@every_message
def test_a_changed_byte_gives_another_message_or_a_protocol_error(
    cls: type[Message], version: int, filled: Filled
) -> None:
    data = filled(cls, version).encode(version)

    for position in range(len(data)):
        for byte in (0x00, 0x80, 0xFF):
            decode_or_refuse(cls, version, data[:position] + bytes([byte]) + data[position + 1 :])


@every_message
def test_random_bytes_give_a_message_or_a_protocol_error(cls: type[Message], version: int) -> None:
    noise = random.Random(f"{cls.__name__} {version}")

    for size in range(100):
        decode_or_refuse(cls, version, noise.randbytes(size))


@pytest.mark.parametrize("cls", [ProduceResponse, MetadataResponse, FetchResponse, ApiVersionsResponse])
@given(st.data())
def test_no_bytes_at_all_raise_anything_else(cls: type[Message], data: st.DataObject) -> None:
    low, high = cls.versions

    decode_or_refuse(cls, data.draw(st.integers(low, high)), data.draw(st.binary(max_size=200)))


def decode_or_refuse(cls: type[Message], version: int, data: bytes) -> None:
    try:
        message = cls.decode(version, data)
    except ProtocolError:
        return
    assert cls.decode(version, message.encode(version)) == message


@every_flexible_message
def test_tagged_fields_that_are_not_known_are_stepped_over(cls: type[Message], version: int, filled: Filled) -> None:
    message = filled(cls, version, tagged=False)
    data = message.encode(version)

    newer = data[:-1] + b"\x02" + b"\x63\x03new" + b"\xff\xff\xff\xff\x07\x00"

    assert cls.decode(version, newer) == message


def test_tagged_fields_that_are_not_known_are_stepped_over_in_every_struct() -> None:
    unknown = b"\x01\x09\x01?"
    partition = b"\0\0\0\1" + b"\0\0" + b"\0\0\0\0\0\0\0\5" + b"\xff" * 16 + b"\x01" + b"\x00" + unknown
    topic = b"\x02t" + b"\x02" + partition + unknown

    response = ProduceResponse.decode(9, b"\x02" + topic + b"\0\0\0\0" + unknown)

    assert response.responses[0].partition_responses[0].base_offset == 5


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        (b"\xff\xff\xff\xff\x0f", "4294967295 elements"),
        (b"\x01\x09\x05abc", "5 bytes, but 3 are left"),
        (b"\x01\x09\xff\xff\xff\xff\x0f", "4294967295 bytes"),
        (b"\x01\x01\x09\0\0\0\0\0\0\0\1\0", "tag 1 does not have its announced 9 bytes"),
        (b"\x01\x01\x07\0\0\0\0\0\0\0", "tag 1 does not have the 7 bytes|in the middle of a field"),
        (b"\x02\x03\x01\x01", "in the middle of a field|2 elements"),
        (b"\xff\xff\xff\xff\xff\x01", "more than five bytes"),
        (b"\xff\xff\xff\xff\x7f", "more than 32 bits"),
    ],
)
def test_tagged_fields_that_lie_about_their_size_are_refused(tags: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        ApiVersionsResponse.decode(3, b"\0\0" + b"\x01" + b"\0\0\0\0" + tags)


def test_a_tagged_field_is_read_once_its_size_is_right() -> None:
    data = b"\0\0" + b"\x01" + b"\0\0\0\0" + b"\x01\x01\x08" + b"\0\0\0\0\0\0\0\7"

    assert ApiVersionsResponse.decode(3, data).finalized_features_epoch == 7


@pytest.mark.parametrize(
    ("cls", "version", "data", "reason"),
    [
        (ProduceResponse, 3, b"\x7f\xff\xff\xff" + b"\0" * 60, "2147483647 elements, but 60 bytes"),
        (ProduceResponse, 9, b"\xff\xff\xff\xff\x07" + b"\0" * 60, "2147483646 elements, but 60 bytes"),
        (SaslHandshakeResponse, 1, b"\0\0" + b"\0\0\0\x05" + b"\0\0", "5 elements, but 2 bytes"),
        (ProduceResponse, 3, b"\xff\xff\xff\xfe", "responses has the invalid length -2"),
        (ProduceResponse, 3, b"\xff\xff\xff\xff", "responses is null"),
        (ProduceResponse, 9, b"\x00", "responses is null"),
        (MetadataRequest, 1, b"\xff\xff\xff\xfe", "topics has the invalid length -2"),
        (MetadataRequest, 1, b"\0\0\0\1\xff\xff", "name is null"),
        (SaslHandshakeResponse, 1, b"\0\0" + b"\0\0\0\1" + b"\xff\xff" + b"\0\0", "an element of mechanisms is null"),
        (SaslAuthenticateResponse, 0, b"\0\0" + b"\xff\xfe", "error_message has the invalid length -2"),
        (SaslAuthenticateResponse, 0, b"\0\0\xff\xff" + b"\x7f\xff\xff\xff12", "2147483647 bytes, but 2 are left"),
        (SaslAuthenticateResponse, 0, b"\0\0\xff\xff" + b"\xff\xff\xff\xff", "auth_bytes is null"),
        (SaslAuthenticateResponse, 0, b"\0\0" + b"\0\1\xff" + b"\0\0\0\0", "not UTF-8"),
        (SaslAuthenticateResponse, 2, b"\0\0" + b"\x81\x80\x02" + b"x" * 0x8000 + b"\1\0", "a string has 32768 bytes"),
        (ProduceRequest, 3, b"\xff\xff" + b"\0\1" + b"\0\0\0\0" + b"\xff\xff\xff\xff", "topic_data is null"),
    ],
)
def test_lengths_and_counts_that_cannot_be_are_refused_by_name(
    cls: type[Message], version: int, data: bytes, reason: str
) -> None:
    with pytest.raises(ProtocolError, match=reason):
        cls.decode(version, data)


@pytest.mark.parametrize(
    ("size", "reason"),
    [
        (60_001, "60000 elements"),  # there are the bytes for 10,000 of them
        (360_000, "name is null"),  # there are the bytes for all of them, and they are none
    ],
)
def test_an_array_takes_no_memory_before_its_elements_are_there(size: int, reason: str) -> None:
    data = b"\0\0\xea\x60" + b"\xff" * size
    decode_or_refuse(ProduceResponse, 3, b"")  # makes the decoder, which takes additional memory
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match=reason):
            ProduceResponse.decode(3, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 50_000


class Received(bytes):
    """Bytes, but not exactly."""


@pytest.mark.parametrize("kind", [bytearray, memoryview, Received])
def test_a_message_is_read_from_all_that_holds_bytes(kind: Callable[[bytes], BytesLike], filled: Filled) -> None:
    message = filled(ProduceRequest, 9)

    assert ProduceRequest.decode(9, kind(message.encode(9))) == message


def test_a_refusal_shows_what_is_wrong_with_the_bytes_and_nothing_else() -> None:
    with pytest.raises(ProtocolError, match="name is null") as raised:
        ProduceResponse.decode(3, b"\0\0\0\1" + b"\xff" * 6)

    assert isinstance(raised.value.__cause__, ProtocolError)
    assert raised.value.__cause__.__context__ is None


def test_a_message_does_not_change_when_the_buffer_that_it_was_read_from_does(filled: Callable[..., Any]) -> None:
    request = filled(ProduceRequest, 9)
    buffer = bytearray(request.encode(9))

    decoded = ProduceRequest.decode(9, memoryview(buffer))
    buffer[:] = bytes(len(buffer))

    assert decoded == request
