"""The serializers of all formats, held against confluent-kafka's on the same registry."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any, cast

import pytest
from confluent_kafka import schema_registry as confluent
from confluent_kafka import serialization
from confluent_kafka.schema_registry import avro as _avro
from confluent_kafka.schema_registry import json_schema as _json_schema
from confluent_kafka.schema_registry import protobuf as _protobuf

from aioproducer import Producer, SyncProducer
from aioproducer.errors import ConfigError, SerializationError
from aioproducer.serializers import MessageField, SerializationContext
from aioproducer.serializers.schema_registry import (
    AvroSerializer,
    JsonSchemaSerializer,
    ProtobufSerializer,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryError,
    record_name,
    topic_name,
    topic_record_name,
)
from aioproducer.serializers.schema_registry._serializer import RegistrySerializer
from aioproducer.testing import FakeBroker
from tests.conftest import opened
from tests.schema_registry.conftest import VirtualTime
from tests.schema_registry.messages import Address, City, Inner, Order, Outer, Required, Stamped
from tests.schema_registry.registry import Registry

#: Declared as Any, because confluent-kafka assigns its constructors in a way that type checkers do not follow.
avro: Any = _avro
json_schema: Any = _json_schema
protobuf: Any = _protobuf

CTX = SerializationContext("orders", MessageField.VALUE)
THEIR_CTX = serialization.SerializationContext("orders", serialization.MessageField.VALUE)

USER: dict[str, Any] = {
    "type": "record",
    "name": "User",
    "namespace": "org.example",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ],
}
USER_1: dict[str, Any] = {"id": 5, "name": "Ünal", "tags": ["a", "b"], "price": Decimal("12.50")}
PERSON: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Person",
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
}


@pytest.fixture
def theirs(registry: Registry) -> Iterator[confluent.SchemaRegistryClient]:
    with confluent.SchemaRegistryClient({"url": registry.url}) as client:
        yield client


async def first(serializer: RegistrySerializer, obj: object, ctx: SerializationContext = CTX) -> bytes:
    """The bytes of a subject's first record, which have to be awaited."""
    found = serializer(obj, ctx)
    assert inspect.isawaitable(found)
    return await found


async def serialized(serializer: RegistrySerializer, obj: object) -> bytes:
    """The bytes of a record: those of the first one, and the same at once from the second one on."""
    found = await first(serializer, obj)
    assert serializer(obj, CTX) == found
    return found


AVRO: list[tuple[Any, Any]] = [
    (USER, USER_1),
    (json.dumps(USER, indent=2) + "\n", USER_1),
    ('"string"', "ä"),
    ('"long"', 7),
    ('"bytes"', b"\0\1"),
    ({"type": "bytes"}, "text"),
    (["null", "string", "long"], 9),
    ({"type": "map", "values": "double"}, {"a": 1.5}),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B"),
]


@pytest.mark.parametrize(("schema", "obj"), AVRO)
async def test_avro_is_that_of_confluent(
    client: SchemaRegistryClient, theirs: confluent.SchemaRegistryClient, registry: Registry, schema: Any, obj: Any
) -> None:
    found = await serialized(AvroSerializer(client, schema), obj)

    text = schema if isinstance(schema, str) else json.dumps(schema)
    their = avro.AvroSerializer(theirs, text)
    assert found == their(obj, THEIR_CTX)
    assert list(registry.schemas) == [100]  # the same text
    read = avro.AvroDeserializer(theirs)(found, THEIR_CTX)
    assert read == (obj.encode() if schema == {"type": "bytes"} else obj)


JSON: list[tuple[Any, Any]] = [
    (PERSON, {"name": "Ünal", "age": 3}),
    (json.dumps(PERSON, indent=1), {"name": "b", "more": [1.5, None, True]}),
    ({"title": "T", "type": "array"}, [1, "a"]),
]


@pytest.mark.parametrize(("schema", "obj"), JSON)
async def test_json_is_that_of_confluent(
    client: SchemaRegistryClient, theirs: confluent.SchemaRegistryClient, registry: Registry, schema: Any, obj: Any
) -> None:
    found = await serialized(JsonSchemaSerializer(client, schema), obj)

    text = schema if isinstance(schema, str) else json.dumps(schema)
    assert found == json_schema.JSONSerializer(text, theirs)(obj, THEIR_CTX)
    assert list(registry.schemas) == [100]
    assert json_schema.JSONDeserializer(text, schema_registry_client=theirs)(found, THEIR_CTX) == obj


PROTOBUF: list[tuple[Any, bytes]] = [
    (Outer(name="a"), b"\0"),  # the first type of its file
    (City(name="b"), bytes([2, 2])),  # [1]
    (Inner(number=5), bytes([4, 0, 0])),  # [0, 0]
    (Stamped(), bytes([2, 4])),  # [2]
    (Order(id=1, address=Address(street="s")), b"\0"),  # imports another file
]


@pytest.mark.parametrize(("message", "indexes"), PROTOBUF)
async def test_protobuf_is_that_of_confluent(
    client: SchemaRegistryClient,
    theirs: confluent.SchemaRegistryClient,
    registry: Registry,
    message: Any,
    indexes: bytes,
) -> None:
    message_type = cast("Any", type(message))
    found = await serialized(ProtobufSerializer(client, message_type), message)
    ids = dict(registry.schemas)

    assert found[5:].startswith(indexes)
    their = protobuf.ProtobufSerializer(message_type, theirs, {"use.deprecated.format": False})
    assert found == their(message, THEIR_CTX)
    assert registry.schemas == ids
    read = protobuf.ProtobufDeserializer(message_type, {"use.deprecated.format": False}, theirs)
    assert read(found, THEIR_CTX) == message


@pytest.mark.parametrize("kind", ["Value", "Struct.FieldsEntry", "ListValue"])
async def test_protobuf_s_well_known_types_have_their_indexes(
    client: SchemaRegistryClient, theirs: confluent.SchemaRegistryClient, kind: str
) -> None:
    from google.protobuf import struct_pb2

    outer, _, inner = kind.partition(".")
    message_type: Any = getattr(struct_pb2, outer)
    message_type = getattr(message_type, inner) if inner else message_type
    message = message_type()

    found = await serialized(ProtobufSerializer(client, message_type), message)
    assert found == protobuf.ProtobufSerializer(message_type, theirs)(message, THEIR_CTX)


async def test_imported_files_are_registered_under_their_names(
    client: SchemaRegistryClient, registry: Registry
) -> None:
    await first(ProtobufSerializer(client, Order), Order(id=1))

    assert registry.subjects == {"test/places.proto": [100], "test/address.proto": [101], "orders-value": [102]}
    (order,) = [asked.body for asked in registry.asked if asked.path == "/subjects/orders-value/versions"]
    assert order["references"] == [{"name": "test/address.proto", "subject": "test/address.proto", "version": 1}]

    given = SchemaReference("test/address.proto", "elsewhere", 7)
    await first(ProtobufSerializer(client, Order, references=[given]), Order(id=1))
    assert registry.asked[-1].body["references"][0] == {"name": given.name, "subject": "elsewhere", "version": 7}


async def test_registered_files_are_looked_up_if_nothing_may_be_registered(
    client: SchemaRegistryClient, registry: Registry
) -> None:
    found = await first(ProtobufSerializer(client, Order), Order(id=1))
    registry.asked.clear()

    async with SchemaRegistryClient(registry.url) as other:
        only = ProtobufSerializer(other, Order, auto_register_schemas=False)
        assert await first(only, Order(id=1)) == found
    assert not [path for path in registry.paths if path.endswith("/versions")]


async def test_avro_references_are_named_schemas(
    client: SchemaRegistryClient, theirs: confluent.SchemaRegistryClient
) -> None:
    """A diamond: two types use the same third one."""
    leaf: dict[str, Any] = {
        "type": "record",
        "name": "Leaf",
        "namespace": "o",
        "fields": [{"name": "x", "type": "int"}],
    }
    sides = [
        {"type": "record", "name": n, "namespace": "o", "fields": [{"name": "leaf", "type": "o.Leaf"}]} for n in "AB"
    ]
    root = {"type": "record", "name": "Root", "fields": [{"name": n, "type": f"o.{n}"} for n in "AB"]}
    await client.register("leaf", json.dumps(leaf))
    of_leaf = SchemaReference("o.Leaf", "leaf", 1)
    for side in sides:
        await client.register(f"side-{side['name']}", json.dumps(side), references=[of_leaf])
    references = [SchemaReference(f"o.{n}", f"side-{n}", 1) for n in "AB"]
    obj = {"A": {"leaf": {"x": 1}}, "B": {"leaf": {"x": 2}}}

    found = await serialized(AvroSerializer(client, root, references=references), obj)

    schema = confluent.Schema(
        json.dumps(root),
        "AVRO",
        [confluent.SchemaReference(each.name, each.subject, each.version) for each in references],
    )
    assert found == avro.AvroSerializer(theirs, schema)(obj, THEIR_CTX)
    assert avro.AvroDeserializer(theirs)(found, THEIR_CTX) == obj


async def test_an_avro_reference_may_have_another_name_than_its_type(client: SchemaRegistryClient) -> None:
    leaf: dict[str, Any] = {"type": "enum", "name": "Leaf", "namespace": "o", "symbols": ["A"]}
    await client.register("leaf", json.dumps(leaf))
    root = {"type": "record", "name": "Root", "fields": [{"name": "x", "type": "o.Leaf"}]}
    serializer = AvroSerializer(client, root, references=[SchemaReference("leaf.avsc", "leaf", 1)])

    assert (await serialized(serializer, {"x": "A"}))[5:] == b"\0"


async def test_an_avro_type_that_nothing_defines_is_reported(client: SchemaRegistryClient) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": "o.Leaf"}]}

    with pytest.raises(ConfigError, match=r"it does not define 'o\.Leaf', nor do its references="):
        AvroSerializer(client, schema)


async def test_json_references_are_resolved_from_the_registry(
    client: SchemaRegistryClient, theirs: confluent.SchemaRegistryClient
) -> None:
    await client.register("name", '{"type": "string", "minLength": 1}', schema_type="JSON")
    reference = SchemaReference("http://example.org/name.json", "name", 1)
    schema = {"title": "T", "type": "object", "properties": {"name": {"$ref": "http://example.org/name.json"}}}
    serializer = JsonSchemaSerializer(client, schema, references=[reference])

    found = await serialized(serializer, {"name": "a"})
    their = confluent.Schema(
        json.dumps(schema), "JSON", [confluent.SchemaReference(reference.name, reference.subject, reference.version)]
    )
    assert found == json_schema.JSONSerializer(their, theirs)({"name": "a"}, THEIR_CTX)
    with pytest.raises(SerializationError, match=r"'' should be non-empty \(at \$\.name\)"):
        serializer({"name": ""}, CTX)


async def test_an_address_that_is_not_a_reference_is_never_fetched(
    client: SchemaRegistryClient, registry: Registry
) -> None:
    serializer = JsonSchemaSerializer(client, {"title": "T", "$ref": f"{registry.url}/other.json"})

    with pytest.raises(SerializationError, match="does not match the schema 'T'"):
        await first(serializer, {})
    assert registry.paths == ["POST /subjects/orders-value/versions"]


@dataclass
class User:
    id: int
    name: str | None
    tags: list[str]
    price: Decimal


async def test_objects_are_converted(client: SchemaRegistryClient) -> None:
    def to_dict(obj: User, ctx: SerializationContext) -> Mapping[str, object]:
        assert ctx is CTX
        return asdict(obj)

    converting = AvroSerializer(client, USER, to_dict=to_dict)
    plain = AvroSerializer(client, USER)
    assert await serialized(converting, User(**USER_1)) == await serialized(plain, USER_1)

    people = JsonSchemaSerializer(client, PERSON, to_dict=lambda name, _: {"name": name})
    assert (await serialized(people, "a"))[5:] == b'{"name":"a"}'


def plus(ctx: SerializationContext, name: str | None) -> str:
    return f"{ctx.topic}+{name}"


@pytest.mark.parametrize(
    ("strategy", "of_avro", "of_json", "of_protobuf"),
    [
        (topic_name, "orders-value", "orders-value", "orders-value"),
        (record_name, "org.example.User", "Person", "test.Outer"),
        (topic_record_name, "orders-org.example.User", "orders-Person", "orders-test.Outer"),
        (plus, "orders+org.example.User", "orders+Person", "orders+test.Outer"),
    ],
)
async def test_strategies_name_the_subject(
    client: SchemaRegistryClient, registry: Registry, strategy: Any, of_avro: str, of_json: str, of_protobuf: str
) -> None:
    await serialized(AvroSerializer(client, USER, subject_name_strategy=strategy), USER_1)
    await serialized(JsonSchemaSerializer(client, PERSON, subject_name_strategy=strategy), {"name": "a"})
    await serialized(ProtobufSerializer(client, Outer, subject_name_strategy=strategy), Outer())

    assert list(registry.subjects) == list(dict.fromkeys([of_avro, of_json, of_protobuf]))


async def test_keys_and_other_topics_have_other_subjects(client: SchemaRegistryClient, registry: Registry) -> None:
    serializer = AvroSerializer(client, USER)
    await first(serializer, USER_1)
    await first(serializer, USER_1, SerializationContext("orders", MessageField.KEY))
    await first(serializer, USER_1, SerializationContext("other", MessageField.VALUE))

    assert list(registry.subjects) == ["orders-value", "orders-key", "other-value"]


async def test_a_schema_without_a_name_needs_the_topic_s_subject(client: SchemaRegistryClient) -> None:
    serializer = JsonSchemaSerializer(client, {}, subject_name_strategy=record_name)

    with pytest.raises(ConfigError, match="The schema has no name"):
        serializer({}, CTX)


async def test_schemas_are_looked_up_if_they_must_be_registered_before(
    client: SchemaRegistryClient, registry: Registry
) -> None:
    serializer = AvroSerializer(client, USER, auto_register_schemas=False)
    with pytest.raises(SchemaRegistryError, match="auto_register_schemas=True registers it"):
        await first(serializer, USER_1)
    assert registry.subjects == {}

    await client.register("orders-value", json.dumps(USER))
    assert (await serialized(serializer, USER_1))[:5] == b"\0\0\0\0\x64"


async def test_schemas_are_normalized_by_the_registry(client: SchemaRegistryClient, registry: Registry) -> None:
    a = await first(AvroSerializer(client, USER, normalize_schemas=True), USER_1)
    b = await first(AvroSerializer(client, json.dumps(USER, sort_keys=True), normalize_schemas=True), USER_1)

    assert a == b
    assert [asked.query for asked in registry.asked] == [{"normalize": "true"}] * 2


async def test_the_latest_version_is_used_and_followed(
    client: SchemaRegistryClient, theirs: confluent.SchemaRegistryClient, virtual: VirtualTime
) -> None:
    newer = {**USER, "fields": [*USER["fields"], {"name": "more", "type": "int", "default": 4}]}
    await client.register("orders-value", json.dumps(USER))
    serializer = AvroSerializer(client, use_latest_version=True, auto_register_schemas=False)

    earlier = await serialized(serializer, USER_1)
    await client.register("orders-value", json.dumps(newer))
    assert serializer(USER_1, CTX) == earlier
    virtual.now += 300
    found = await serialized(serializer, USER_1)

    assert (earlier[:5], found[:5]) == (b"\0\0\0\0\x64", b"\0\0\0\0\x65")
    their = avro.AvroSerializer(theirs, None, conf={"use.latest.version": True, "auto.register.schemas": False})
    assert found == their(USER_1, THEIR_CTX)


async def test_the_latest_version_is_used_for_json_and_protobuf(client: SchemaRegistryClient) -> None:
    options: Any = {"use_latest_version": True, "auto_register_schemas": False}
    await client.register("orders-value", json.dumps(PERSON), schema_type="JSON")
    serializer = JsonSchemaSerializer(client, **options)
    assert (await serialized(serializer, {"name": "a"}))[5:] == b'{"name":"a"}'
    with pytest.raises(SerializationError, match="'name' is a required property"):
        serializer({}, CTX)

    with pytest.raises(SchemaRegistryError, match="is of type JSON; ProtobufSerializer writes PROTOBUF"):
        await first(ProtobufSerializer(client, City, **options), City())
    await client.register("towns-value", "x", schema_type="PROTOBUF")
    towns = SerializationContext("towns", MessageField.VALUE)
    found = await first(ProtobufSerializer(client, City, **options), City(), towns)
    assert found == b"\0\0\0\0\x65\2\2"


@pytest.mark.parametrize("phase", ["domainRules", "migrationRules", "encodingRules"])
async def test_a_data_contract_with_rules_is_refused(
    client: SchemaRegistryClient, registry: Registry, phase: str
) -> None:
    await client.register("orders-value", json.dumps(USER))
    registry.rule_sets[100] = {phase: [{"name": "encrypt PII", "kind": "TRANSFORM", "type": "ENCRYPT"}]}
    serializer = AvroSerializer(client, USER, use_latest_version=True, auto_register_schemas=False)

    with pytest.raises(SchemaRegistryError, match=r"data contract with rules \(encrypt PII\)"):
        await first(serializer, USER_1)


async def test_objects_that_do_not_match_are_reported(client: SchemaRegistryClient) -> None:
    cases: list[tuple[RegistrySerializer, object, str]] = [
        (AvroSerializer(client, USER), {"id": "x"}, r"does not match the schema 'org\.example\.User': "),
        (AvroSerializer(client, '"bytes"'), 5, "the schema is 'bytes', and the object is of type int"),
        (JsonSchemaSerializer(client, PERSON), {"name": "a", "age": -1}, r"'Person': -1 is less .* \(at \$\.age\)"),
        (JsonSchemaSerializer(client, {"title": "x"}), {"a": object()}, "cannot be written as JSON"),
        (ProtobufSerializer(client, City), Outer(), "of type Outer; ProtobufSerializer was created for City"),
        (ProtobufSerializer(client, Required), Required(), r"schema 'test\.Required': .*required"),
    ]
    for number, (serializer, obj, sentence) in enumerate(cases):
        ctx = SerializationContext(f"topic{number}", MessageField.VALUE)
        with pytest.raises(SerializationError, match=sentence):
            await first(serializer, obj, ctx)
        with pytest.raises(SerializationError, match=sentence):
            serializer(obj, ctx)  # the id is cached


async def test_validation_can_be_omitted(client: SchemaRegistryClient) -> None:
    assert (await serialized(JsonSchemaSerializer(client, PERSON, validate=False), {}))[5:] == b"{}"


@pytest.mark.parametrize(
    ("draft", "is_valid"),
    [
        (None, True),
        ("http://json-schema.org/draft-07/schema#", True),
        ("https://json-schema.org/draft/2020-12/schema", False),
    ],
)
async def test_the_draft_is_the_schema_s_by_default_draft_7(
    client: SchemaRegistryClient, draft: str | None, is_valid: bool
) -> None:
    """Draft 7 has no "prefixItems"."""
    schema = {"prefixItems": [{"type": "string"}], **({"$schema": draft} if draft else {})}
    serializer = JsonSchemaSerializer(client, schema)

    if is_valid:
        assert (await serialized(serializer, [1]))[5:] == b"[1]"
    else:
        with pytest.raises(SerializationError, match="is not of type 'string'"):
            await first(serializer, [1])


async def test_invalid_arguments_are_refused(client: SchemaRegistryClient) -> None:
    cases: list[tuple[Any, str]] = [
        (lambda: AvroSerializer(client, "{"), "invalid Avro schema: it is not JSON"),
        (lambda: AvroSerializer(client, {"type": "record"}), "invalid Avro schema"),
        (lambda: AvroSerializer(client), "needs a schema, unless use_latest_version=True"),
        (lambda: JsonSchemaSerializer(client), "needs a schema, unless use_latest_version=True"),
        (lambda: JsonSchemaSerializer(client, "{"), "invalid JSON Schema: it is not JSON"),
        (lambda: JsonSchemaSerializer(client, "5"), "must be an object"),
        (lambda: JsonSchemaSerializer(client, {"type": "thing"}), "invalid JSON Schema: 'thing' is not valid"),
        (lambda: JsonSchemaSerializer(client, {"$schema": 5}), "must be the URL of a draft"),
        (lambda: AvroSerializer(client, USER, use_latest_version=True), "needs auto_register_schemas=False"),
        (lambda: ProtobufSerializer(client, cast("Any", int)), "takes the class of a Protobuf message"),
        (lambda: AvroSerializer(client, USER, subject_name_strategy=cast("Any", "topic")), "must be a function"),
    ]
    for create, sentence in cases:
        with pytest.raises(ConfigError, match=sentence):
            create()


async def test_a_schema_of_the_registry_that_cannot_be_used_is_reported(client: SchemaRegistryClient) -> None:
    await client.register("orders-value", '{"type": "record"}')

    with pytest.raises(SchemaRegistryError, match="The schema with id 100 is not usable: invalid Avro schema"):
        await first(AvroSerializer(client, use_latest_version=True, auto_register_schemas=False), {})


async def test_subjects_are_bounded(client: SchemaRegistryClient, monkeypatch: pytest.MonkeyPatch) -> None:
    from aioproducer.serializers.schema_registry import _serializer

    monkeypatch.setattr(_serializer, "_MOST_SUBJECTS", 2)
    serializer = AvroSerializer(client, '"long"')
    topics = [SerializationContext(topic, MessageField.VALUE) for topic in "abc"]
    for topic in topics:
        await first(serializer, 1, topic)

    assert [type(serializer(1, topic)) is bytes for topic in topics[1:]] == [True, True]
    await first(serializer, 1, topics[0])  # from the client's cache


async def test_a_producer_sends_avro(
    broker: FakeBroker,
    client: SchemaRegistryClient,
    registry: Registry,
    theirs: confluent.SchemaRegistryClient,
) -> None:
    async with opened(
        broker, key_serializer=AvroSerializer(client, '"long"'), value_serializer=AvroSerializer(client, USER)
    ) as producer:
        assert isinstance(producer, Producer)
        await producer.send("orders", USER_1, key=7)
        await (await producer.enqueue("orders", USER_1, key=8))
        await producer.send("orders", None, key=9)
        with pytest.raises(SerializationError, match="AvroSerializer failed for an object of type dict"):
            await producer.send("orders", {"id": "x"}, key=1)

    read = avro.AvroDeserializer(theirs)
    key_ctx = serialization.SerializationContext("orders", serialization.MessageField.KEY)
    records = broker.records("orders")
    assert sorted(cast("int", read(record.key, key_ctx)) for record in records) == [7, 8, 9]
    assert [read(record.value, THEIR_CTX) for record in records if record.value is not None] == [USER_1, USER_1]
    registered = [path for path in registry.paths if path.startswith("POST")]
    assert sorted(registered) == ["POST /subjects/orders-key/versions", "POST /subjects/orders-value/versions"]


async def test_a_registry_that_fails_fails_the_record(
    broker: FakeBroker, client: SchemaRegistryClient, registry: Registry
) -> None:
    registry.failures = [409]
    async with opened(broker, value_serializer=AvroSerializer(client, USER)) as producer:
        with pytest.raises(SerializationError, match="incompatible") as caught:
            await producer.send("orders", USER_1)
        await producer.send("orders", USER_1)  # asks again

    assert isinstance(caught.value.__cause__, SchemaRegistryError)
    assert len(broker.records("orders")) == 1


async def test_a_serializer_with_a_url_closes_its_client(broker: FakeBroker, registry: Registry) -> None:
    serializer = AvroSerializer(registry.url, USER)
    async with opened(broker, value_serializer=serializer) as producer:
        await producer.send("orders", USER_1)

    with pytest.raises(SchemaRegistryError, match="is closed"):
        await first(serializer, USER_1, SerializationContext("other", MessageField.VALUE))


async def test_a_serializer_leaves_a_client_open_that_it_was_given(
    broker: FakeBroker, client: SchemaRegistryClient
) -> None:
    async with opened(broker, value_serializer=AvroSerializer(client, USER)) as producer:
        await producer.send("orders", USER_1)

    assert await client.register("s", json.dumps(USER)) == 100


def test_threads_send_with_a_url(broker: FakeBroker, registry: Registry) -> None:
    with SyncProducer(broker.bootstrap_servers, value_serializer=AvroSerializer(registry.url, USER)) as producer:
        producer.send("orders", USER_1)
        producer.send("orders", USER_1)

    assert len(broker.records("orders")) == 2
    assert len(registry.asked) == 1


async def test_the_first_records_of_a_subject_share_a_request(client: SchemaRegistryClient, registry: Registry) -> None:
    serializer = AvroSerializer(client, USER)
    found = await asyncio.gather(*(first(serializer, USER_1) for _ in range(10)))

    assert len(set(found)) == 1
    assert len(registry.asked) == 1


async def test_a_send_that_is_cancelled_while_it_waits_for_the_registry_sends_nothing(
    broker: FakeBroker, client: SchemaRegistryClient, registry: Registry
) -> None:
    registry.gate.clear()
    async with opened(broker, value_serializer=AvroSerializer(client, USER)) as producer:
        sending = asyncio.ensure_future(producer.send("orders", {**USER_1, "id": 1}))
        await registry.arrival()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        registry.gate.set()
        await producer.send("orders", USER_1)

    assert len(broker.records("orders")) == 1


async def test_a_reference_that_is_no_avro_is_reported(client: SchemaRegistryClient) -> None:
    await client.register("proto", 'syntax = "proto3";', schema_type="PROTOBUF")
    serializer = AvroSerializer(client, {"type": "string"}, references=[SchemaReference("leaf", "proto", 1)])

    with pytest.raises(SchemaRegistryError, match=r"reference 'leaf' \(subject 'proto'\) is not JSON"):
        await cast("Any", serializer("x", SerializationContext("t", MessageField.VALUE)))


async def test_a_strategy_must_return_a_name(client: SchemaRegistryClient) -> None:
    nameless = cast("Any", lambda ctx, name: None)
    serializer = AvroSerializer(client, {"type": "string"}, subject_name_strategy=nameless)

    with pytest.raises(SerializationError, match="subject_name_strategy returned None; it must return"):
        await cast("Any", serializer("x", SerializationContext("t", MessageField.VALUE)))
