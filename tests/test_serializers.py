from __future__ import annotations

import datetime
import enum
import json
import pickle
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest

from aioproducer.errors import ConfigError, InvalidRecord, KafkaError, KafkaTimeoutError, SerializationError
from aioproducer.serializers import (
    BytesSerializer,
    IntegerSerializer,
    JsonSerializer,
    LongSerializer,
    MessageField,
    SerializationContext,
    StringSerializer,
    builtin,
    normalize_bytes,
    normalize_headers,
    prepare_serializer,
)

VALUE = MessageField.VALUE
KEY = MessageField.KEY


def seen(obj: object, ctx: object) -> bytes:
    return f"{obj}:{ctx}".encode()


# --- Bytes


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (None, None),
        (b"", b""),
        (b"abc", b"abc"),
        ("grüße", "grüße".encode()),
        (bytearray(b"abc"), b"abc"),
        (memoryview(b"abc"), b"abc"),
        (memoryview(b"abcdef")[::2], b"ace"),
    ],
)
def test_bytes_text_and_none_are_sent_as_they_are(given: object, sent: bytes | None) -> None:
    normalized = normalize_bytes(given)

    assert normalized == sent
    assert normalized is None or type(normalized) is bytes


def test_bytes_are_not_copied() -> None:
    value = b"x" * 1000

    assert normalize_bytes(value) is value


def test_a_buffer_is_copied_so_that_later_changes_do_not_reach_the_record() -> None:
    buffer = bytearray(b"before")
    normalized = normalize_bytes(buffer)

    buffer[:] = b"after!"

    assert normalized == b"before"


def test_other_objects_are_refused_with_the_way_out() -> None:
    with pytest.raises(InvalidRecord, match=r"The key is of type dict: .* key_serializer=JsonSerializer\(\)"):
        normalize_bytes({}, "key")
    with pytest.raises(InvalidRecord, match="surrogates not allowed at position 1"):
        normalize_bytes("a\udc80")


# --- Headers


@pytest.mark.parametrize("none", [None, (), [], {}])
def test_no_headers_are_an_empty_tuple(none: object) -> None:
    assert normalize_headers(none) == ()


def test_headers_are_a_mapping_or_a_sequence_of_pairs() -> None:
    expected = (("a", b"1"), ("b", b"2"), ("c", None), ("d", b"4"))

    assert normalize_headers({"a": b"1", "b": "2", "c": None, "d": bytearray(b"4")}) == expected
    assert normalize_headers([("a", b"1"), ("b", "2"), ["c", None], ("d", memoryview(b"4"))]) == expected
    assert normalize_headers(iter(expected)) == expected


def test_headers_keep_their_order_and_may_repeat() -> None:
    assert normalize_headers([("b", b"1"), ("a", b"2"), ("b", b"3")]) == (("b", b"1"), ("a", b"2"), ("b", b"3"))


@pytest.mark.parametrize(
    ("headers", "sentence"),
    [
        (3, "headers is of type int"),
        ("trace", "headers is of type str"),
        (b"trace", "headers is of type bytes"),
        ([("a",)], "tuple with 1 members"),
        (["ab"], "type str"),
        ([(b"a", b"1")], "name of a header is of type bytes"),
        ({None: b"1"}, "name of a header is of type NoneType"),
        ({"a": 1}, "header 'a' is of type int"),
        ({"a": "\udc80"}, "header 'a' is text that UTF-8 cannot encode"),
    ],
)
def test_a_wrong_header_is_named(headers: object, sentence: str) -> None:
    with pytest.raises(InvalidRecord, match=sentence):
        normalize_headers(headers)


# --- The calling convention


def test_no_serializer_means_the_rules_for_bytes() -> None:
    serialize = prepare_serializer(None, KEY)

    assert serialize("t", "k", []) == b"k"
    with pytest.raises(InvalidRecord, match="key_serializer"):
        serialize("t", 5, [])


def test_a_serializer_takes_the_object() -> None:
    serialize = prepare_serializer(lambda obj: str(obj), VALUE)

    assert serialize("t", 5, []) == b"5"


def test_none_is_a_tombstone_and_never_reaches_a_serializer() -> None:
    assert prepare_serializer(JsonSerializer(), VALUE)("t", None, []) is None


def test_a_serializer_may_return_none_and_any_bytes_like() -> None:
    assert prepare_serializer(lambda obj: None, VALUE)("t", 1, []) is None
    assert prepare_serializer(bytearray, VALUE)("t", b"ab", []) == b"ab"


class Confluent:
    """The shape of a serializer of confluent's schema registry."""

    def __call__(self, obj: object, ctx: object | None = None) -> bytes:
        return seen(obj, ctx)


def second_required(obj: object, where: object) -> bytes:
    return seen(obj, where)


def keyword_only(obj: object, *, context: object) -> bytes:
    return seen(obj, context)


@pytest.mark.parametrize("serializer", [Confluent(), second_required, keyword_only])
def test_a_serializer_that_asks_for_it_gets_the_context(serializer: Callable[..., bytes]) -> None:
    headers: list[tuple[str, bytes | None]] = [("a", b"1")]

    serialized = prepare_serializer(serializer, VALUE)("orders", 5, headers)

    assert serialized == seen(5, SerializationContext("orders", VALUE, headers))


def test_a_second_parameter_with_its_own_default_is_left_alone() -> None:
    assert prepare_serializer(str.encode, VALUE)("t", "é", []) == "é".encode()
    assert prepare_serializer(json.dumps, VALUE)("t", [1], []) == b"[1]"


def three(a: object, b: object, c: object) -> bytes:
    return b""


def none_at_all() -> bytes:
    return b""


def strange_keyword(obj: object, *, schema: object) -> bytes:
    return b""


class WithMethod:
    def serialize(self, value: object) -> bytes:
        return b""


@pytest.mark.parametrize(
    ("serializer", "sentence"),
    [
        (three, "three"),
        (none_at_all, "none_at_all"),
        (strange_keyword, "strange_keyword"),
        ("json", "cannot be called"),
        (WithMethod(), r"serialize\(topic, headers, data\) or serialize\(topic, data\)"),
    ],
)
def test_a_serializer_that_cannot_be_called_as_required_is_refused_at_once(serializer: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"value_serializer.*{sentence}"):
        prepare_serializer(serializer, VALUE)


def test_a_failing_serializer_is_named_with_its_cause() -> None:
    serialize = prepare_serializer(JsonSerializer(), VALUE)

    with pytest.raises(
        SerializationError, match=r"value serializer JsonSerializer failed .* object .*'orders'"
    ) as caught:
        serialize("orders", object(), [])

    assert isinstance(caught.value.__cause__, TypeError)
    assert not caught.value.retriable


@pytest.mark.parametrize(("cause", "is_retriable"), [(KafkaTimeoutError("late"), True), (ConfigError("bad"), False)])
def test_a_failed_serializer_is_retriable_if_its_cause_is(cause: KafkaError, is_retriable: bool) -> None:
    def ask(obj: object) -> bytes:
        raise cause

    with pytest.raises(SerializationError, match=f"'orders': {cause}$") as caught:
        prepare_serializer(ask, VALUE)("orders", "x", [])

    assert caught.value.retriable == is_retriable
    assert not SerializationError("another").retriable


def test_a_serializer_must_return_bytes() -> None:
    def length(obj: Any) -> Any:
        return len(obj)

    with pytest.raises(SerializationError, match="returned int for an object of type str"):
        prepare_serializer(length, VALUE)("t", "abc", [])


async def later(obj: object) -> str:
    if obj == "bad":
        raise LookupError(obj)
    return str(obj)


async def test_an_async_serializer_gives_an_awaitable() -> None:
    serialize = prepare_serializer(later, KEY)

    pending = serialize("t", 5, [])

    assert isinstance(pending, Awaitable)
    assert await cast("Awaitable[bytes]", pending) == b"5"
    with pytest.raises(SerializationError, match="LookupError: bad"):
        await cast("Awaitable[bytes]", serialize("t", "bad", []))


async def test_an_async_serializer_must_also_return_bytes() -> None:
    async def wrong(obj: object) -> Any:
        return 5

    with pytest.raises(SerializationError, match="returned int"):
        await cast("Awaitable[bytes]", prepare_serializer(wrong, KEY)("t", 5, []))


# --- Built in


def test_strings_and_numbers_are_written_as_java_does() -> None:
    assert StringSerializer()("é") == b"\xc3\xa9"
    assert StringSerializer("utf-16-be")("a") == b"\x00a"
    assert IntegerSerializer()(-2) == b"\xff\xff\xff\xfe"
    assert LongSerializer()(1) == b"\x00" * 7 + b"\x01"
    assert BytesSerializer()(b"a") == b"a"


@pytest.mark.parametrize(
    ("serializer", "value"),
    [(StringSerializer(), 5), (BytesSerializer(), "text"), (IntegerSerializer(), 2**31), (LongSerializer(), "5")],
)
def test_built_in_serializers_refuse_other_objects(serializer: Callable[..., bytes], value: object) -> None:
    with pytest.raises(SerializationError):
        prepare_serializer(serializer, VALUE)("t", value, [])


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Order:
    id: uuid.UUID
    at: datetime.datetime
    tags: set[str]
    colour: Colour


class Model:
    """The shape of a pydantic model."""

    def model_dump(self, *, mode: str) -> dict[str, str]:
        return {"mode": mode}


@pytest.fixture(params=["orjson", "stdlib"])
def _engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "stdlib":
        monkeypatch.setattr(builtin, "_orjson", None)
    else:
        pytest.importorskip("orjson")


@pytest.mark.usefixtures("_engine")
def test_json_is_compact_utf_8_whichever_library_writes_it() -> None:
    order = Order(uuid.UUID(int=7), datetime.datetime(2026, 1, 2, 3, tzinfo=datetime.UTC), {"x"}, Colour.RED)

    assert JsonSerializer()({"ü": [1, 2.5, None, True], 5: "a"}) == '{"ü":[1,2.5,null,true],"5":"a"}'.encode()
    assert JsonSerializer(sort_keys=True)({"b": 1, "a": 2}) == b'{"a":2,"b":1}'
    assert JsonSerializer()(order) == (
        b'{"id":"00000000-0000-0000-0000-000000000007","at":"2026-01-02T03:00:00+00:00","tags":["x"],"colour":"red"}'
    )
    assert JsonSerializer()(Model()) == b'{"mode":"json"}'
    assert JsonSerializer()(2**70) == str(2**70).encode()
    assert JsonSerializer(default=repr)(1j) == b'"1j"'
    with pytest.raises(TypeError):
        JsonSerializer()(1j)


def test_numbers_that_json_does_not_have_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtin, "_orjson", None)

    with pytest.raises(ValueError, match="not JSON compliant"):
        JsonSerializer()(float("nan"))


def test_built_in_serializers_are_values_that_travel() -> None:
    for serializer in (JsonSerializer(sort_keys=True), StringSerializer("latin-1"), IntegerSerializer()):
        assert pickle.loads(pickle.dumps(serializer)) == serializer
