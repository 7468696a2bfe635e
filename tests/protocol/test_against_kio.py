"""Every message, in every version, against another implementation of the protocol: kio, generated from Kafka's own files."""

from __future__ import annotations

import datetime
import importlib
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from dataclasses import Field as KioField
from types import NoneType
from typing import Any, TypeAlias, cast, get_args, get_type_hints
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis.strategies import SearchStrategy
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from aioproducer.protocol import Message, decode_request_header, encode_request, encode_response
from aioproducer.protocol.compiler import Field, ListOf
from aioproducer.protocol.frames import decode_response_header
from aioproducer.protocol.messages import (
    REQUESTS,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from aioproducer.protocol.wire import ZERO_UUID
from tests.protocol.spoken import for_each, spoken

MessagesOf: TypeAlias = Callable[[type[Message], int], SearchStrategy[Message]]

#: What kio 0.6 does not know yet.
UNKNOWN_TO_KIO = {("TxnOffsetCommit", 6), ("ApiVersions", 5)}

#: Fields that kio names differently, beside those that it makes a time or a duration.
RENAMED = {
    ("TxnOffsetCommitRequest", "generation_id"): "generation_id_or_member_epoch",
    ("InitProducerIdRequest", "enable2_pc"): "enable_2pc",
}

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)


def api_name(cls: type[Message]) -> str:
    return re.sub(r"(Request|Response)$", "", cls.__name__)


every_message = for_each((cls, version) for cls, version in spoken() if (api_name(cls), version) not in UNKNOWN_TO_KIO)


def kio_class(cls: type[Message], version: int) -> type[Any]:
    api = re.sub(r"(?<!^)(?=[A-Z])", "_", api_name(cls)).lower()
    kind = "request" if cls.__name__.endswith("Request") else "response"
    module = importlib.import_module(f"kio.schema.{api}.v{version}.{kind}")
    found: type[Any] = getattr(module, cls.__name__)
    return found


def our_name(field: KioField[Any], theirs: type[Any]) -> str:
    if re.match("timedelta|datetime", field.metadata.get("kafka_type", "")):
        return f"{field.name}_ms"
    return RENAMED.get((theirs.__name__, field.name), field.name)


def as_kio(ours: Any, theirs: type[Any]) -> Any:
    """Our struct as an object of kio's class."""
    hints = get_type_hints(theirs)
    return theirs(
        **{
            field.name: value_as_kio(getattr(ours, our_name(field, theirs)), field, hints[field.name])
            for field in fields(theirs)
        }
    )


def value_as_kio(value: Any, field: Any, hint: Any) -> Any:
    kind = field.metadata.get("kafka_type")
    if value is None:
        return None
    if isinstance(value, list):
        (element, *_) = next(get_args(arg) for arg in (hint, *get_args(hint)) if get_args(arg)[-1:] == (...,))
        return tuple(value_as_kio(each, field, element) for each in value)
    if is_dataclass(hint):
        return as_kio(value, cast("type[Any]", hint))
    if kind == "uuid":
        return None if value == ZERO_UUID else value
    if kind == "error_code":
        return KioErrorCode(value)
    if kind == "datetime_i64":
        return None if value == -1 else EPOCH + value * MILLISECOND
    return value * MILLISECOND if kind in {"timedelta_i32", "timedelta_i64"} else value


def kio_encode(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def kio_decode(theirs: type[Any], data: bytes) -> Any:
    entity, size = entity_reader(theirs)(data, 0)
    assert size == len(data)
    return entity


@every_message
def test_a_message_has_the_fields_that_kafka_declares(cls: type[Message], version: int) -> None:
    for ours, theirs in structs(cls, kio_class(cls, version)):
        hints = get_type_hints(theirs)
        declared = {field.name: field for field in fields_of(ours, version)}
        expected = {our_name(field, theirs): field for field in fields(theirs)}

        assert {name: field.tag for name, field in declared.items()} == {
            name: field.metadata.get("tag") for name, field in expected.items()
        }
        assert {name for name, field in declared.items() if field.is_nullable(version)} == {
            name
            for name, field in expected.items()
            if NoneType in get_args(hints[field.name])
            and field.metadata.get("kafka_type") not in {"uuid", "datetime_i64"}
        }


@every_message
def test_a_field_has_the_default_that_kafka_declares(cls: type[Message], version: int) -> None:
    for ours, theirs in structs(cls, kio_class(cls, version)):
        hints = get_type_hints(theirs)
        declared = {field.name: field for field in fields_of(ours, version) if not field.is_required}
        for field in fields(theirs):
            own = declared.get(our_name(field, theirs))
            if own is not None and field.default is not MISSING:
                default = own.default if own.factory is None else own.factory()
                assert value_as_kio(default, field, hints[field.name]) == field.default, our_name(field, theirs)


def structs(cls: type[Message], theirs: type[Any]) -> Iterator[tuple[Any, type[Any]]]:
    """The message and the structs in it, beside kio's."""
    yield cls, theirs
    unseen: list[tuple[Any, type[Any]]] = [(cls, theirs)]
    while unseen:
        ours, theirs = unseen.pop()
        types = {field.name: field.type for field in ours.__struct_fields__}
        hints = get_type_hints(theirs)
        for field in fields(theirs):
            for part in parts(hints[field.name]):
                if isinstance(part, type) and is_dataclass(part):
                    type_ = types[our_name(field, theirs)]
                    unseen.append((type_.element if isinstance(type_, ListOf) else type_, part))
                    yield unseen[-1]


def fields_of(struct: Any, version: int) -> list[Field]:
    return [field for field in struct.__struct_fields__ if field.is_in(version)]


def parts(hint: Any) -> Iterator[Any]:
    yield hint
    for arg in get_args(hint):
        yield from parts(arg)


@every_message
def test_messages_written_by_one_can_be_read_by_the_other_and_both_write_the_same(
    cls: type[Message], version: int, messages_of: MessagesOf
) -> None:
    compare_with_kio(cls, version, messages_of(cls, version), examples=10)


@pytest.mark.soak
@every_message
def test_very_many_random_messages_are_understood_both_ways(
    cls: type[Message], version: int, messages_of: MessagesOf
) -> None:
    compare_with_kio(cls, version, messages_of(cls, version), examples=100)


def compare_with_kio(cls: type[Message], version: int, messages: SearchStrategy[Message], examples: int) -> None:
    theirs = kio_class(cls, version)

    @settings(max_examples=examples, deadline=None)
    @given(messages)
    def check(message: Message) -> None:
        written = message.encode(version)

        assert written == kio_encode(as_kio(message, theirs))
        assert cls.decode(version, written) == message
        assert kio_decode(theirs, written) == as_kio(message, theirs)

    check()


@every_message
def test_a_message_stands_behind_the_header_that_kafka_wants(cls: type[Message], version: int) -> None:
    theirs = kio_class(cls, version)
    header = theirs.__header_schema__
    request = REQUESTS[cls.api_key]
    if cls is request:
        written = kio_encode(
            header(request_api_key=cls.api_key, request_api_version=version, correlation_id=77, client_id="caf\u00e9")
        )
        found, body = decode_request_header(written + b"body")
        assert found == (cls.api_key, version, 77, "caf\u00e9")
    else:
        written = kio_encode(header(correlation_id=77))
        correlation_id, rest = decode_response_header(written + b"body", request, version)
        assert correlation_id == 77
        body = memoryview(rest)

    assert bytes(body) == b"body"


@every_message
def test_a_frame_is_its_length_the_header_and_the_message(
    cls: type[Message], version: int, filled: Callable[..., Any]
) -> None:
    theirs = kio_class(cls, version)
    message = filled(cls, version)
    if cls is REQUESTS[cls.api_key]:
        header = theirs.__header_schema__(
            request_api_key=cls.api_key, request_api_version=version, correlation_id=-3, client_id=None
        )
        pieces = encode_request(-3, None, message, version)
    else:
        header = theirs.__header_schema__(correlation_id=-3)
        pieces = encode_response(-3, message, version)

    expected = kio_encode(header) + message.encode(version)
    assert b"".join(pieces) == len(expected).to_bytes(4, "big") + expected


def test_offsets_are_committed_by_topic_id_from_version_6_on() -> None:
    topic_id = UUID(int=0xABC)
    partition = TxnOffsetCommitRequestPartition(partition_index=1, committed_offset=2, committed_metadata=None)
    request = TxnOffsetCommitRequest(
        transactional_id="t",
        group_id="g",
        producer_id=3,
        producer_epoch=4,
        topics=[TxnOffsetCommitRequestTopic(name="orders", topic_id=topic_id, partitions=[partition])],
    )

    assert request.encode(6) == request.encode(5).replace(b"\x07orders", topic_id.bytes)
