"""A schema is checked as Spark's own sink for Kafka checks it, before anything runs."""

from __future__ import annotations

import json

import pytest

from aioproducer.errors import ConfigError
from aioproducer.spark.options.sink import SinkOptions
from aioproducer.spark.sink.columns import SinkColumns
from tests.spark.registry import Registry

TOPIC = {"topic": "orders"}


def columns(schema: list[tuple[str, str]], **options: str) -> SinkColumns:
    return SinkColumns.of(schema, SinkOptions.from_spark({"kafka.bootstrap.servers": "a", **options}))


def test_columns_that_mean_nothing_to_kafka_are_left_out() -> None:
    found = columns([("key", "binary"), ("value", "string"), ("offset", "bigint"), ("topic", "string")], **TOPIC)

    assert found.names == ("key", "value")
    assert found.has("key")
    assert not found.has("topic"), "the option wins"


def test_capitals_matter_only_where_the_column_would_be_lost() -> None:
    both = [("key", "string"), ("Key", "string"), ("value", "string"), ("Topic", "string")]

    assert columns(both, **TOPIC).names == ("key", "value")
    assert columns([("Key", "string")], **TOPIC, **{"value.format": "json"}).payload == ("Key",)


@pytest.mark.parametrize("kind", ["array<struct<key:string,value:binary>>", "map<string,binary>"])
def test_headers_are_pairs_or_a_map(kind: str) -> None:
    assert columns([("value", "varchar(20)"), ("headers", kind)], **TOPIC).has("headers")


def test_json_takes_all_columns_that_are_nothing_else() -> None:
    found = columns([("key", "string"), ("n", "int"), ("s", "string")], **TOPIC, **{"value.format": "json"})

    assert (found.names, found.payload, found.is_json) == (("key", "value"), ("n", "s"), True)


def test_avro_takes_them_too_and_its_value_takes_their_place() -> None:
    types = pytest.importorskip("pyspark.sql.types")
    frame = types.StructType().add("key", "string").add("n", "integer", nullable=False).add("s", "string")
    options = SinkOptions.from_spark({"kafka.bootstrap.servers": "a", **TOPIC, "value.format": "avro"})

    found = SinkColumns.of_frame(frame, options)

    assert (found.names, found.payload, found.is_json) == (("key", "value"), ("n", "s"), False)
    assert found.avro is not None
    assert found.avro.columns == ("n", "s")
    assert json.loads(found.avro.text)["fields"][0] == {"name": "n", "type": "int"}
    assert found.registered(options) == found, "there is no registry"


def test_types_that_json_has_no_form_for_are_refused_where_they_would_be_in_the_value() -> None:
    types = pytest.importorskip("pyspark.sql.types")
    frame = types.StructType().add("key", "binary").add("n", "integer")
    options = SinkOptions.from_spark({"kafka.bootstrap.servers": "a", **TOPIC, "value.format": "json"})
    assert SinkColumns.of_frame(frame, options).payload == ("n",)

    with pytest.raises(ConfigError, match=r"'raw' has type binary, .* JSON cannot represent"):
        SinkColumns.of_frame(frame.add("raw", "binary"), options)


def test_the_column_topic_is_no_part_of_the_value_where_it_names_the_topic() -> None:
    assert columns([("n", "int"), ("topic", "string")], **{"value.format": "json"}).payload == ("n",)


def test_a_schema_has_the_id_of_the_registry_that_the_options_name() -> None:
    types = pytest.importorskip("pyspark.sql.types")
    frame = types.StructType().add("n", "integer")
    avro = {"value.format": "avro", "topic": "orders"}
    with Registry(login="me:secret") as registry:
        login = {"schema.registry.url": registry.url, "schema.registry.basic.auth.user.info": "me:secret"}
        options = SinkOptions.from_spark({"kafka.bootstrap.servers": "a", **avro, **login})
        columns = SinkColumns.of_frame(frame, options)
        assert registry.requests == [], "no request is sent while the plan is made"

        found = columns.registered(options)

    assert found.avro is not None
    assert (found.avro.schema_id, registry.subjects) == (100, {"orders-value": [100]})
    assert registry.schemas[100] == found.avro.text


def test_where_rows_name_their_topics_the_driver_registers_nothing() -> None:
    types = pytest.importorskip("pyspark.sql.types")
    frame = types.StructType().add("n", "integer").add("topic", "string")
    with Registry() as registry:
        avro = {"value.format": "avro", "schema.registry.url": registry.url}
        options = SinkOptions.from_spark({"kafka.bootstrap.servers": "a", **avro})

        columns = SinkColumns.of_frame(frame, options)

        assert columns.registered(options) == columns
        assert registry.requests == []
    assert (columns.names, columns.payload) == (("topic", "value"), ("n",))


@pytest.mark.parametrize(
    ("schema", "options", "sentence"),
    [
        ([], TOPIC, "only none."),
        ([("text", "string")], TOPIC, "has no column 'value', only 'text'"),
        ([("value", "int")], TOPIC, "'value' has type int; it must be string or binary"),
        ([("value", "string"), ("partition", "string")], TOPIC, "'partition' has type string"),
        ([("value", "string"), ("timestamp", "timestamp_ntz")], TOPIC, "CAST(timestamp AS TIMESTAMP_LTZ)"),
        ([("value", "string"), ("timestamp", "date")], TOPIC, "must be timestamp or bigint or double"),
        ([("value", "string"), ("headers", "string")], TOPIC, "'headers' has type string"),
        ([("value", "string"), ("value", "string")], TOPIC, "more than one column 'value'"),
        ([("value", "string")], {}, "There is no topic"),
        ([("value", "string"), ("Key", "string")], TOPIC, "df.withColumnRenamed('Key', 'key')"),
        ([("VALUE", "string")], TOPIC, "df.withColumnRenamed('VALUE', 'value')"),
        ([("value", "string"), ("Topic", "string")], {}, "df.withColumnRenamed('Topic', 'topic')"),
        ([("value", "string"), ("n", "int")], {**TOPIC, "value.format": "json"}, "also has a column 'value'"),
        ([("key", "string")], {**TOPIC, "value.format": "json"}, "no column is left"),
        (
            [("value", "string"), ("n", "int")],
            {**TOPIC, "value.format": "avro"},
            "value.format=avro encodes all",
        ),
        ([("key", "string")], {**TOPIC, "value.format": "avro"}, "no column is left"),
        ([("n", "int"), ("n", "int")], {**TOPIC, "value.format": "json"}, "more than one column 'n'"),
        ([("n", "int"), ("n", "int")], {**TOPIC, "value.format": "avro"}, "more than one column 'n'"),
        ([("n", "int"), ("topic", "string")], {**TOPIC, "value.format": "json"}, "would not be written"),
        ([("n", "int"), ("topic", "string")], {**TOPIC, "value.format": "avro"}, "would not be written"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(
    schema: list[tuple[str, str]], options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        columns(schema, **options)

    assert sentence in str(caught.value)
