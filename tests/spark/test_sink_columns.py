"""A schema is checked as Spark's own sink for Kafka checks it, before anything runs."""

from __future__ import annotations

import pytest

from aioproducer.errors import ConfigError
from aioproducer.spark.sink_columns import SinkColumns
from aioproducer.spark.sink_options import SinkOptions

TOPIC = {"topic": "orders"}


def columns(schema: list[tuple[str, str]], **options: str) -> SinkColumns:
    return SinkColumns.of(schema, SinkOptions.from_spark({"kafka.bootstrap.servers": "a", **options}))


def test_columns_that_mean_nothing_to_kafka_are_left_out() -> None:
    found = columns([("key", "binary"), ("value", "string"), ("offset", "bigint"), ("topic", "string")], **TOPIC)

    assert found.names == ("key", "value")
    assert found.has("key")
    assert not found.has("topic"), "the option wins"


@pytest.mark.parametrize("kind", ["array<struct<key:string,value:binary>>", "map<string,binary>"])
def test_headers_are_pairs_or_a_map(kind: str) -> None:
    assert columns([("value", "varchar(20)"), ("headers", kind)], **TOPIC).has("headers")


def test_json_takes_all_columns_that_are_nothing_else() -> None:
    found = columns([("key", "string"), ("n", "int"), ("s", "string")], **TOPIC, **{"value.format": "json"})

    assert (found.names, found.payload, found.is_json) == (("key", "n", "s"), ("n", "s"), True)


@pytest.mark.parametrize(
    ("schema", "options", "sentence"),
    [
        ([], TOPIC, "only none at all"),
        ([("text", "string")], TOPIC, "has no column 'value', only 'text'"),
        ([("value", "int")], TOPIC, "'value' is of type int; it must be string or binary"),
        ([("value", "string"), ("partition", "string")], TOPIC, "'partition' is of type string"),
        ([("value", "string"), ("headers", "string")], TOPIC, "'headers' is of type string"),
        ([("value", "string"), ("value", "string")], TOPIC, "more than one column 'value'"),
        ([("value", "string")], {}, "No topic is named"),
        ([("value", "string"), ("n", "int")], {**TOPIC, "value.format": "json"}, "a column 'value' as well"),
        ([("key", "string")], {**TOPIC, "value.format": "json"}, "no column is left"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(
    schema: list[tuple[str, str]], options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        columns(schema, **options)

    assert sentence in str(caught.value)
