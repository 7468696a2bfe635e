"""A schema comes of the columns, or is held against them: what cannot be Avro is said before a task starts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aioproducer.errors import ConfigError
from aioproducer.spark.avro.schema import AvroSchema
from tests.spark.avro_types import MICROS, MILLIS, array_of, column, map_of, record, struct_of


def derived(*columns: dict[str, Any]) -> Any:
    return json.loads(AvroSchema.of(columns).text)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("boolean", "boolean"),
        ("byte", "int"),
        ("short", "int"),
        ("integer", "int"),
        ("long", "long"),
        ("float", "float"),
        ("double", "double"),
        ("string", "string"),
        ("string collate UNICODE", "string"),
        ("varchar(10)", "string"),
        ("char(3)", "string"),
        ("binary", "bytes"),
        ("date", {"type": "int", "logicalType": "date"}),
        ("timestamp", {"type": "long", "logicalType": "timestamp-micros"}),
        ("timestamp_ntz", {"type": "long", "logicalType": "local-timestamp-micros"}),
        ("decimal(10,2)", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}),
        ("void", "null"),
        (array_of("long", False), {"type": "array", "items": "long"}),
        (array_of("long"), {"type": "array", "items": ["null", "long"]}),
        (map_of("double"), {"type": "map", "values": ["null", "double"]}),
    ],
)
def test_each_type_of_spark_has_one_of_avro(kind: Any, expected: Any) -> None:
    assert derived(column("a", kind, nullable=False))["fields"] == [{"name": "a", "type": expected}]


def test_a_nullable_column_is_a_union_whose_default_is_null() -> None:
    assert derived(column("a", "long"), column("n", "void")) == {
        "type": "record",
        "name": "topLevelRecord",
        "fields": [{"name": "a", "type": ["null", "long"], "default": None}, {"name": "n", "type": "null"}],
    }


def test_structs_are_records_named_by_their_place() -> None:
    point = struct_of(column("x", "double", nullable=False))

    found = derived(column("a", point, nullable=False), column("b", struct_of(column("a", array_of(point, False)))))

    a, b = found["fields"]
    assert (a["type"]["namespace"], a["type"]["name"]) == ("topLevelRecord", "a")
    inner = b["type"][1]["fields"][0]["type"][1]["items"]
    assert (inner["namespace"], inner["name"]) == ("topLevelRecord.b", "a")


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ([column("Stück", "long")], "The column name 'Stück' is invalid in Avro"),
        ([column("a b", "long")], "Rename it"),
        ([column("1st", "long")], "'1st'"),
        ([column("a", struct_of(column("x-y", "long")))], "The column name 'a.x-y'"),
        ([column("a", "interval day to second")], "'a' has type interval day to second, which Avro does not support"),
        ([column("a", array_of(struct_of(column("v", "variant"))))], "'a.v' has type variant"),
        ([column("a", {"type": "udt", "class": "x"})], "has type udt"),
        ([column("a", map_of("long", key="integer"))], "a map with keys that are not strings"),
        ([column("a", "long"), column("a", "string")], "The column 'a' exists more than once"),
    ],
)
def test_a_column_that_avro_cannot_represent_is_refused_by_its_name(
    columns: list[dict[str, Any]], sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        AvroSchema.of(columns)

    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        ("integer", "long"),
        ("integer", ["null", "double"]),
        ("float", ["double", "null"]),
        ("long", "long"),
        ("string", {"type": "enum", "name": "E", "symbols": ["A"]}),
        ("binary", {"type": "fixed", "name": "F", "size": 4}),
        ("timestamp", MILLIS),
        ("timestamp", ["null", MICROS]),
        ("date", {"type": "int", "logicalType": "date"}),
        ("decimal(10,2)", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 4}),
        ("decimal(4,0)", {"type": "fixed", "name": "D", "size": 8, "logicalType": "decimal", "precision": 4}),
        (array_of("string"), {"type": "array", "items": "string"}),
        (map_of("long"), {"type": "map", "values": ["null", "long"]}),
        (struct_of(column("x", "long")), record(("x", "long"), name="Point")),
    ],
)
def test_a_schema_that_takes_the_columns_is_used_as_it_is(kind: Any, schema: Any) -> None:
    given = json.dumps(record(("other", "string"), ("a", schema)))

    found = AvroSchema.of([column("a", kind), column("other", "string")], given)

    assert json.loads(found.text) == json.loads(given)
    assert found.columns == ("a", "other")


def test_types_may_be_named_once_and_referred_to() -> None:
    point = record(("x", "long"), name="Point")
    given = json.dumps({**record(("a", point), ("b", ["null", "Point"])), "namespace": "shop"})
    struct = struct_of(column("x", "long"))

    assert AvroSchema.of([column("a", struct), column("b", struct)], given).columns == ("a", "b")
    with pytest.raises(ConfigError, match=r"of 'b' has no field for 'y'"):
        AvroSchema.of([column("a", struct), column("b", struct_of(column("x", "long"), column("y", "long")))], given)


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (record(("a", "long")), "has no field for 'b', which the DataFrame has; it has 'a'"),
        (record(("a", "long"), ("b", "string"), ("c", "string")), "has the fields 'c', which have no column"),
        (
            record(("a", "int"), ("b", "string")),
            "'a' has type long, which cannot be written as the type in the Avro schema",
        ),
        (record(("a", "long"), ("b", "bytes")), "'b' has type string, which cannot be written"),
        (record(("a", MICROS), ("b", "string")), "long timestamp-micros"),
        (record(("a", ["long", "string"]), ("b", "string")), "a union of several types for the column 'a'"),
        (record(("a", record(("x", "long"), name="P")), ("b", "string")), "'a' has type long"),
        ("string", "is not a record"),
        (["null", record(("a", "long"), ("b", "string"))], "is not a record"),
        ({"type": "record", "name": "R", "fields": [1]}, "invalid Avro schema: "),
        (42, "invalid Avro schema"),
        (record(("a", "lnog"), ("b", "string")), "invalid Avro schema: UnknownType: lnog"),
    ],
)
def test_a_schema_that_does_not_take_them_is_refused(schema: Any, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        AvroSchema.of([column("a", "long"), column("b", "string")], json.dumps(schema))

    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        ("timestamp", "long"),
        ("timestamp_ntz", MICROS),
        ("decimal(10,2)", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 1}),
        ("decimal(10,2)", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
        ("decimal(10,2)", "double"),
        ("long", "double"),
        (map_of("long", key="integer"), {"type": "map", "values": "long"}),
        (array_of("long"), {"type": "array", "items": "string"}),
        (map_of("long"), {"type": "map", "values": "string"}),
    ],
)
def test_nothing_is_written_with_less_than_it_is(kind: Any, schema: Any) -> None:
    with pytest.raises(ConfigError, match="cannot be written as the type in the Avro schema"):
        AvroSchema.of([column("a", kind)], json.dumps(record(("a", schema))))


def test_a_schema_that_is_not_json_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not JSON"):
        AvroSchema.of([column("a", "long")], "{")
