"""The serializers and both clients on a real registry, held against confluent-kafka's serializers there."""

from __future__ import annotations

import asyncio
import json
import socket
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple, cast

import httpx
import pytest
from confluent_kafka import schema_registry as confluent
from confluent_kafka import serialization
from confluent_kafka.schema_registry import avro as _avro
from confluent_kafka.schema_registry import json_schema as _json_schema
from confluent_kafka.schema_registry import protobuf as _protobuf

from aioproducer.errors import SerializationError
from aioproducer.serializers.schema_registry import (
    AvroSerializer,
    JsonSchemaSerializer,
    ProtobufSerializer,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryError,
)
from aioproducer.serializers.schema_registry._serializer import RegistrySerializer
from aioproducer.spark.avro.registry import SchemaRegistry
from aioproducer.testing import FakeBroker
from tests.conftest import opened
from tests.schema_registry.apicurio import ApicurioUnavailable, running_apicurio
from tests.schema_registry.messages import Address, City, Inner, Order, Place

#: Longer than usual, for the first fetch.
pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(600)]

#: Declared as Any, because confluent-kafka assigns its constructors in a way that type checkers do not follow.
avro: Any = _avro
json_schema: Any = _json_schema
protobuf: Any = _protobuf

LEAF: dict[str, Any] = {
    "type": "record",
    "name": "Leaf",
    "namespace": "org.example",
    "fields": [{"name": "x", "type": "int"}],
}
TREE: dict[str, Any] = {
    "type": "record",
    "name": "Tree",
    "namespace": "org.example",
    "fields": [
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "leaves", "type": {"type": "array", "items": "org.example.Leaf"}},
    ],
}
TREES: list[Any] = [{"name": "Ünal", "leaves": [{"x": 1}, {"x": -2}]}, {"name": None, "leaves": []}]
NAME: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "$id": "http://example.org/name.json",
    "type": "string",
    "minLength": 1,
}
PERSON: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Person",
    "type": "object",
    "properties": {"name": {"$ref": "http://example.org/name.json"}, "age": {"type": "integer"}},
    "required": ["name"],
}


def user(*more: dict[str, Any], kind: str = "long") -> dict[str, Any]:
    """An Avro schema, which is compatible with the one without ``more`` if these fields have defaults."""
    return {"type": "record", "name": "User", "fields": [{"name": "id", "type": kind}, *more]}


EXTENDED = user({"name": "name", "type": "string", "default": "nameless"})


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        with running_apicurio(tmp_path_factory.mktemp("apicurio")) as url:
            yield url
    except ApicurioUnavailable as error:  # optional, as the README says: a build must not depend on this download
        pytest.skip(str(error))


@pytest.fixture
async def ours(url: str) -> AsyncIterator[SchemaRegistryClient]:
    async with SchemaRegistryClient(url) as client:
        yield client


@pytest.fixture
def theirs(url: str) -> Iterator[confluent.SchemaRegistryClient]:
    with confluent.SchemaRegistryClient({"url": url}) as client:
        yield client


@pytest.fixture
def topic(broker: FakeBroker) -> str:
    """A topic, and with it a subject, for the test alone."""
    name = f"t-{uuid.uuid4().hex}"
    broker.create_topic(name, 1)
    return name


@pytest.fixture
def subject(topic: str) -> str:
    return f"{topic}-value"


def referring(schema: object, kind: str, reference: SchemaReference) -> confluent.Schema:
    """A schema with a reference, for confluent-kafka."""
    named = confluent.SchemaReference(reference.name, reference.subject, reference.version)
    return confluent.Schema(json.dumps(schema), kind, [named])


async def sent(broker: FakeBroker, topic: str, serializer: RegistrySerializer, objects: list[Any]) -> list[bytes]:
    """The values that the broker has, once a producer has sent the objects."""
    async with opened(broker, value_serializer=serializer) as producer:
        for obj in objects:
            await producer.send(topic, obj)
    return [cast("bytes", record.value) for record in broker.records(topic)]


def their_context(topic: str) -> serialization.SerializationContext:
    return serialization.SerializationContext(topic, serialization.MessageField.VALUE)


async def test_avro_with_a_reference(
    broker: FakeBroker, ours: SchemaRegistryClient, theirs: confluent.SchemaRegistryClient, topic: str, url: str
) -> None:
    await ours.register("leaf", json.dumps(LEAF))
    reference = SchemaReference("org.example.Leaf", "leaf", 1)

    values = await sent(broker, topic, AvroSerializer(ours, TREE, references=[reference]), TREES)

    context = their_context(topic)
    write = avro.AvroSerializer(theirs, referring(TREE, "AVRO", reference))
    assert values == [write(obj, context) for obj in TREES]
    read = avro.AvroDeserializer(theirs)
    assert [read(value, context) for value in values] == TREES
    async with SchemaRegistryClient(url) as other:
        registered = AvroSerializer(other, TREE, references=[reference], auto_register_schemas=False)
        assert (await sent(broker, topic, registered, TREES))[2:] == values
        latest = AvroSerializer(other, auto_register_schemas=False, use_latest_version=True)
        assert (await sent(broker, topic, latest, TREES))[4:] == values


@pytest.mark.parametrize(
    ("schema", "obj"), [('"string"', "ä"), ('"long"', 7), ('"bytes"', b"\0\1"), (["null", "long"], 9), (LEAF, {"x": 1})]
)
async def test_avro_of_other_types(
    broker: FakeBroker,
    ours: SchemaRegistryClient,
    theirs: confluent.SchemaRegistryClient,
    topic: str,
    schema: Any,
    obj: Any,
) -> None:
    (value,) = await sent(broker, topic, AvroSerializer(ours, schema), [obj])

    text = schema if isinstance(schema, str) else json.dumps(schema)
    assert value == avro.AvroSerializer(theirs, text)(obj, their_context(topic))
    assert avro.AvroDeserializer(theirs)(value, their_context(topic)) == obj


async def test_json_with_a_reference(
    broker: FakeBroker, ours: SchemaRegistryClient, theirs: confluent.SchemaRegistryClient, topic: str, url: str
) -> None:
    await ours.register("name", json.dumps(NAME), schema_type="JSON")
    reference = SchemaReference("http://example.org/name.json", "name", 1)
    people: list[Any] = [{"name": "Ünal", "age": 3}, {"name": "b"}]

    values = await sent(broker, topic, JsonSchemaSerializer(ours, PERSON, references=[reference]), people)

    schema = referring(PERSON, "JSON", reference)
    context = their_context(topic)
    write = json_schema.JSONSerializer(schema, theirs)
    assert values == [write(obj, context) for obj in people]
    read = json_schema.JSONDeserializer(None, schema_registry_client=theirs)
    assert [read(value, context) for value in values] == people
    async with SchemaRegistryClient(url) as other:
        registered = JsonSchemaSerializer(other, PERSON, references=[reference], auto_register_schemas=False)
        assert (await sent(broker, topic, registered, people))[2:] == values
        latest = JsonSchemaSerializer(other, auto_register_schemas=False, use_latest_version=True)
        assert (await sent(broker, topic, latest, people))[4:] == values
        with pytest.raises(SerializationError, match="'' should be non-empty"):
            await sent(broker, topic, latest, [{"name": ""}])


@pytest.mark.parametrize(
    "message",
    [
        Order(id=1, address=Address(street="s", place=Place(name="p"))),  # imports a file that imports another
        City(name="b"),
        Inner(number=5),
    ],
)
async def test_protobuf(
    broker: FakeBroker,
    ours: SchemaRegistryClient,
    theirs: confluent.SchemaRegistryClient,
    topic: str,
    url: str,
    message: Any,
) -> None:
    message_type = cast("Any", type(message))

    (value,) = await sent(broker, topic, ProtobufSerializer(ours, message_type), [message])

    options = {"use.deprecated.format": False}
    assert value == protobuf.ProtobufSerializer(message_type, theirs, options)(message, their_context(topic))
    read = protobuf.ProtobufDeserializer(message_type, options, theirs)
    assert read(value, their_context(topic)) == message
    async with SchemaRegistryClient(url) as other:
        registered = ProtobufSerializer(other, message_type, auto_register_schemas=False)
        assert await sent(broker, topic, registered, [message]) == [value, value]
        latest = ProtobufSerializer(other, message_type, auto_register_schemas=False, use_latest_version=True)
        assert await sent(broker, topic, latest, [message]) == [value] * 3


async def test_clients_may_register_a_schema_at_once(url: str, subject: str) -> None:
    """The registry refuses some of the requests, with the status and the code of an incompatible schema."""

    async def ids() -> set[int]:
        async with SchemaRegistryClient(url) as client:
            return {await client.register(f"{subject}-{number}", json.dumps(user())) for number in range(10)}

    found = await asyncio.gather(*(ids() for _ in range(10)))
    assert len(set[int]().union(*found)) == 1


async def test_schemas_are_found_by_id_and_version(ours: SchemaRegistryClient, subject: str) -> None:
    first, second = json.dumps(user()), json.dumps(EXTENDED)
    numbers = [await ours.register(subject, text) for text in (first, second)]

    assert [(await ours.by_id(number)).schema for number in numbers] == [first, second]
    assert [(await ours.by_version(subject, version)).id for version in (1, 2)] == numbers
    assert await ours.look_up(subject, first) == numbers[0]
    found = await ours.find(subject, second)
    assert (found.id, found.version, found.schema_type, found.rules) == (numbers[1], 2, "AVRO", ())
    assert await ours.latest(subject) == found


async def test_a_deleted_version_is_found_by_its_number_alone(
    ours: SchemaRegistryClient, url: str, subject: str
) -> None:
    number = await ours.register(subject, json.dumps(user()))
    await ours.register(subject, json.dumps(EXTENDED))
    async with httpx.AsyncClient() as http:
        (await http.delete(f"{url}/subjects/{subject}/versions/1")).raise_for_status()

    assert (await ours.by_version(subject, 1)).id == number
    with pytest.raises(SchemaRegistryError, match="does not have this schema for subject"):
        await ours.look_up(subject, json.dumps(user()))


async def test_schemas_are_normalized_by_the_registry(ours: SchemaRegistryClient, subject: str) -> None:
    spaced = json.dumps(dict(reversed(user().items())), indent=4)
    number = await ours.register(subject, json.dumps(user()), normalize=True)

    assert await ours.register(subject, spaced, normalize=True) == number
    assert await ours.look_up(subject, spaced, normalize=True) == number


async def test_the_latest_version_is_written(
    broker: FakeBroker, ours: SchemaRegistryClient, theirs: confluent.SchemaRegistryClient, topic: str, subject: str
) -> None:
    await ours.register(subject, json.dumps(user()))
    await ours.register(subject, json.dumps(EXTENDED))
    serializer = AvroSerializer(ours, user(), auto_register_schemas=False, use_latest_version=True)

    (value,) = await sent(broker, topic, serializer, [{"id": 1, "name": "n"}])

    options = {"auto.register.schemas": False, "use.latest.version": True}
    write = avro.AvroSerializer(theirs, conf=options)
    assert value == write({"id": 1, "name": "n"}, their_context(topic))
    assert avro.AvroDeserializer(theirs)(value, their_context(topic)) == {"id": 1, "name": "n"}


async def test_unknown_subjects_schemas_versions_and_ids_are_reported(
    ours: SchemaRegistryClient, url: str, subject: str
) -> None:
    where = f"The schema registry at {url} does not have this schema"
    missing = "auto_register_schemas=True registers it."
    text = json.dumps(user())

    with pytest.raises(SchemaRegistryError) as unknown_subject:
        await ours.look_up(subject, text)
    with pytest.raises(SchemaRegistryError) as no_latest:
        await ours.latest(subject)
    await ours.register(subject, text)
    with pytest.raises(SchemaRegistryError) as unknown_schema:
        await ours.look_up(subject, json.dumps(EXTENDED))
    with pytest.raises(SchemaRegistryError) as unknown_version:
        await ours.by_version(subject, 9)
    with pytest.raises(SchemaRegistryError) as unknown_id:
        await ours.by_id(999_999)

    errors = [each.value for each in (unknown_subject, no_latest, unknown_schema, unknown_version, unknown_id)]
    assert [(error.status, error.code) for error in errors] == [
        (404, code) for code in (40401, 40401, 40403, 40402, 40403)
    ]
    assert all(str(error).startswith(f"{where} for subject {subject!r}: ") for error in errors[:-1])
    assert str(errors[-1]).startswith(f"{where} for this id: ")
    assert [str(error).endswith(missing) for error in errors] == [True, False, True, False, False]
    assert not any(error.retriable for error in errors)


async def test_an_incompatible_schema_is_reported(
    broker: FakeBroker, ours: SchemaRegistryClient, url: str, topic: str, subject: str
) -> None:
    await ours.register(subject, json.dumps(user()))
    async with httpx.AsyncClient() as http:
        (await http.put(f"{url}/config/{subject}", json={"compatibility": "BACKWARD"})).raise_for_status()

    with pytest.raises(SerializationError) as caught:
        await sent(broker, topic, AvroSerializer(ours, user(kind="string")), [{"id": "a"}])

    error = caught.value.__cause__
    assert isinstance(error, SchemaRegistryError)
    assert error.status == 409
    assert not caught.value.retriable
    start = (
        f"The schema registry at {url} rejects the schema as incompatible with the versions of subject {subject!r}: "
    )
    assert str(error).startswith(start)
    assert str(error).endswith(". Change the schema, or the subject's compatibility.")
    assert broker.records(topic) == []


class Invalid(NamedTuple):
    schema: str
    schema_type: str
    references: tuple[SchemaReference, ...] = ()


@pytest.mark.parametrize(
    "invalid",
    [
        Invalid('{"type": "nonsense"}', "AVRO"),
        Invalid("{no JSON", "AVRO"),
        Invalid("{no JSON", "JSON"),
        Invalid("nonsense", "PROTOBUF"),
        Invalid('"string"', "AVRO", (SchemaReference("x", "not registered", 1),)),
    ],
)
async def test_an_invalid_schema_is_reported(
    ours: SchemaRegistryClient, url: str, subject: str, invalid: Invalid
) -> None:
    with pytest.raises(SchemaRegistryError) as caught:
        await ours.register(subject, invalid.schema, schema_type=invalid.schema_type, references=invalid.references)

    assert (caught.value.status, caught.value.code, caught.value.retriable) == (422, 42201, False)
    assert str(caught.value).startswith(f"The schema registry at {url} rejects the schema as invalid: ")


async def test_an_address_without_the_api_is_reported(url: str, subject: str) -> None:
    async with SchemaRegistryClient(url.removesuffix("/v7")) as client:
        with pytest.raises(
            SchemaRegistryError, match=r"There is no schema registry at .* Check the address and its path"
        ):
            await client.register(subject, json.dumps(user()))


async def test_the_next_server_is_asked_if_one_is_away(broker: FakeBroker, topic: str, url: str) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # it does not listen: connections are refused
        dead = f"http://127.0.0.1:{bound.getsockname()[1]}"
        async with SchemaRegistryClient([dead, url]) as client:
            (value,) = await sent(broker, topic, AvroSerializer(client, user()), [{"id": 1}])
            assert value[1:5] == (await client.look_up(f"{topic}-value", json.dumps(user()))).to_bytes(4, "big")


def test_the_spark_sink_s_client(url: str, subject: str) -> None:
    client = SchemaRegistry.at(url)
    text = json.dumps(user())

    with pytest.raises(SchemaRegistryError, match=r"does not have this schema .* Was the topic loaded") as missing:
        client.look_up(subject, text)
    number = client.register(subject, text)
    assert client.register(subject, text) == number
    assert client.look_up(subject, text) == number
    httpx.put(f"{url}/config/{subject}", json={"compatibility": "BACKWARD"}).raise_for_status()
    with pytest.raises(SchemaRegistryError, match=r"incompatible .* Change the columns") as incompatible:
        client.register(subject, json.dumps(user(kind="string")))
    with pytest.raises(SchemaRegistryError, match="rejects the schema as invalid") as invalid:
        client.register(subject, '{"type": "nonsense"}')

    assert [each.value.status for each in (missing, incompatible, invalid)] == [404, 409, 422]
