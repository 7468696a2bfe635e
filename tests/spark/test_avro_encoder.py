"""Rows are encoded so that an independent reader has them back as they were."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from aioproducer.errors import InvalidRecord
from aioproducer.spark.avro.encoder import AvroEncoder
from aioproducer.spark.avro.schema import AvroSchema
from tests.spark.avro_types import MILLIS, array_of, column, map_of, record, struct_of


def read(schema: AvroSchema, value: bytes) -> Any:
    stream = io.BytesIO(value)
    found = fastavro.schemaless_reader(stream, fastavro.parse_schema(json.loads(schema.text)), None)
    assert stream.read() == b"", "nothing is left"
    return found


def encoded(schema: AvroSchema, rows: Any) -> list[bytes]:
    values: list[bytes] = AvroEncoder(schema).encode(rows).to_pylist()
    return values


POINT = struct_of(column("x", "double"), column("at", "timestamp"))
COLUMNS = [
    column("id", "long", nullable=False),
    column("name", "string"),
    column("price", "decimal(12,3)"),
    column("day", "date"),
    column("at", "timestamp"),
    column("local", "timestamp_ntz"),
    column("raw", "binary"),
    column("tags", array_of("string")),
    column("points", array_of(POINT)),
    column("counts", map_of("integer")),
    column("times", map_of(array_of("date"))),
    column("place", struct_of(column("point", POINT), column("by", map_of("double")))),
]
ARROW_POINT = pa.struct([("x", pa.float64()), ("at", pa.timestamp("us", "America/New_York"))])
ARROW = pa.struct(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("price", pa.decimal128(12, 3)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "America/New_York")),
        ("local", pa.timestamp("us")),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("points", pa.list_(ARROW_POINT)),
        ("counts", pa.map_(pa.string(), pa.int32())),
        ("times", pa.map_(pa.string(), pa.list_(pa.date32()))),
        ("place", pa.struct([("point", ARROW_POINT), ("by", pa.map_(pa.string(), pa.float64()))])),
    ]
)
AT = datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)
FULL = {
    "id": 2**62,
    "name": "Zoë",
    "price": Decimal("-123456789.125"),
    "day": date(1815, 6, 18),
    "at": AT,
    "local": AT.replace(tzinfo=None),
    "raw": b"\x00\xff",
    "tags": ["a", None, ""],
    "points": [{"x": 1.5, "at": AT}, None, {"x": None, "at": None}],
    "counts": {"b": 1, "a": None},
    "times": {"x": [date(2000, 2, 29), None], "y": None, "z": []},
    "place": {"point": {"x": -0.5, "at": AT}, "by": {"k": 2.5}},
}
EMPTY = dict.fromkeys(FULL) | {"id": 0}


def test_every_type_comes_back_as_it_was() -> None:
    schema = AvroSchema.of(COLUMNS)

    values = encoded(schema, pa.array([FULL, EMPTY], ARROW))

    assert [read(schema, value) for value in values] == [FULL, EMPTY]


def test_spark_also_gives_large_types_if_configured_to() -> None:
    schema = AvroSchema.of([column("a", "string"), column("b", "binary")])
    kind = pa.struct([("a", pa.large_string()), ("b", pa.large_binary())])

    assert read(schema, encoded(schema, pa.array([{"a": "x", "b": b"y"}], kind))[0]) == {"a": "x", "b": b"y"}


def test_many_rows_keep_their_order_and_a_slice_is_a_slice() -> None:
    schema = AvroSchema.of([column("n", "long")])
    rows = pa.array([{"n": number} for number in range(5000)]).slice(10, 4000)

    values = encoded(schema, rows)

    assert [read(schema, value)["n"] for value in values] == list(range(10, 4010))
    assert encoded(schema, rows.slice(0, 0)) == []


def test_milliseconds_are_those_that_have_passed() -> None:
    schema = AvroSchema.of([column("at", array_of("timestamp"))], json.dumps(record(("at", _array_of(MILLIS)))))
    rows = pa.array([{"at": [AT, None]}], pa.struct([("at", pa.list_(pa.timestamp("us", "UTC")))]))

    assert read(schema, encoded(schema, rows)[0]) == {"at": [AT.replace(microsecond=999_000), None]}


def _array_of(kind: Any) -> dict[str, Any]:
    return {"type": "array", "items": ["null", kind]}


def test_times_too_far_for_python_are_numbers_as_all_others() -> None:
    schema = AvroSchema.of([column("at", "timestamp", nullable=False)])
    far = 400_000_000_000_000_000  # in the year 14645
    rows = pa.array([{"at": far}]).cast(pa.struct([("at", pa.timestamp("us", "UTC"))]))

    (value,) = encoded(schema, rows)

    assert fastavro.schemaless_reader(io.BytesIO(value), "long", None) == far


def test_a_given_schema_decides_names_order_and_types() -> None:
    level = {"type": "enum", "name": "Level", "symbols": ["LOW", "HIGH"]}
    given = json.dumps(record(("level", level), ("n", "double"), ("id", {"type": "fixed", "name": "Id", "size": 2})))
    schema = AvroSchema.of([column("id", "binary"), column("n", "integer"), column("level", "string")], given)

    values = encoded(schema, pa.array([{"id": b"xy", "n": 2, "level": "HIGH"}]))

    assert values == [b"\x02" + b"\0\0\0\0\0\0\0\x40" + b"xy"]


@pytest.mark.parametrize(
    ("precision", "scale", "schema"),
    [
        (38, 10, {"type": "bytes", "precision": 38, "scale": 10}),
        (10, 2, {"type": "bytes", "precision": 14, "scale": 4}),
        (10, 2, {"type": "fixed", "name": "Money", "size": 8, "precision": 14, "scale": 4}),
    ],
)
@pytest.mark.parametrize("unscaled", [0, 1, -1, 127, 128, -128, -129, 10**10 - 1, None])
def test_decimals_are_exact_with_more_digits_than_python_counts_by_default(
    precision: int, scale: int, schema: dict[str, Any], unscaled: int | None
) -> None:
    given = json.dumps(record(("price", ["null", {**schema, "logicalType": "decimal"}])))
    found = AvroSchema.of([column("price", f"decimal({precision},{scale})")], given)
    largest = "-" + "9" * precision
    prices = [None if unscaled is None else Decimal(unscaled).scaleb(-scale), Decimal(f"{largest}e-{scale}")]

    values = encoded(found, pa.array([{"price": each} for each in prices]).cast(_decimals(precision, scale)))

    assert [read(found, value)["price"] for value in values] == prices


def _decimals(precision: int, scale: int) -> Any:
    return pa.struct([("price", pa.decimal128(precision, scale))])


def test_with_an_id_each_value_is_in_the_wire_format() -> None:
    schema = AvroSchema(AvroSchema.of([column("n", "long", nullable=False)]).text, ("n",), schema_id=258)

    assert encoded(schema, pa.array([{"n": 1}, {"n": -1}])) == [b"\0\0\0\1\2\2", b"\0\0\0\1\2\1"]


@pytest.mark.parametrize(
    ("kind", "schema", "value"),
    [
        ("string", "string", None),
        ("string", {"type": "enum", "name": "Level", "symbols": ["LOW"]}, "HIGH"),
        ("binary", {"type": "fixed", "name": "Id", "size": 2}, b"xyz"),
    ],
)
def test_a_row_that_the_schema_does_not_take_fails_with_a_sentence(kind: str, schema: Any, value: Any) -> None:
    found = AvroSchema.of([column("field", kind)], json.dumps(record(("field", schema))))
    rows = pa.array([{"field": value}], pa.struct([("field", pa.string() if kind == "string" else pa.binary())]))

    with pytest.raises(InvalidRecord, match=r"A row cannot be encoded with the Avro schema: .+"):
        encoded(found, rows)


PAID = struct_of(column("paid", "boolean"))
ARROW_PAID = pa.struct([("paid", pa.bool_())])
WITH_PAID = record(("paid", "boolean"), name="Payment")


def _items(kind: Any) -> dict[str, Any]:
    return {"type": "array", "items": kind}


def _values(kind: Any) -> dict[str, Any]:
    return {"type": "map", "values": kind}


@pytest.mark.parametrize(
    ("kind", "schema", "arrow", "value", "what"),
    [
        ("boolean", "boolean", pa.bool_(), None, "'field'"),
        ("boolean", {"type": "boolean"}, pa.bool_(), None, "'field'"),
        ("long", "long", pa.int64(), None, "'field'"),
        ("double", "double", pa.float64(), None, "'field'"),
        ("timestamp", MILLIS, pa.timestamp("us", "UTC"), None, "'field'"),
        (array_of("boolean"), _items("boolean"), pa.list_(pa.bool_()), [True, None, False], "an item of 'field'"),
        (array_of("boolean"), _items("boolean"), pa.list_(pa.bool_()), None, "'field'"),
        (map_of("boolean"), _values("boolean"), pa.map_(pa.string(), pa.bool_()), {"a": None}, "a value of 'field'"),
        (map_of("boolean"), _values("boolean"), pa.map_(pa.string(), pa.bool_()), None, "'field'"),
        (PAID, ["null", WITH_PAID], ARROW_PAID, {"paid": None}, "'field.paid'"),
        (PAID, WITH_PAID, ARROW_PAID, None, "'field'"),
        (array_of(PAID), _items(WITH_PAID), pa.list_(ARROW_PAID), [{"paid": None}], "'field.paid'"),
        (
            map_of(PAID),
            ["null", _values(WITH_PAID)],
            pa.map_(pa.string(), ARROW_PAID),
            {"a": None},
            "a value of 'field'",
        ),
        (
            array_of(array_of("boolean")),
            _items(["null", _items("boolean")]),
            pa.list_(pa.list_(pa.bool_())),
            [None, [True], [None]],
            "an item of an item of 'field'",
        ),
    ],
)
def test_a_null_is_refused_wherever_the_schema_has_no_place_for_it(
    kind: Any, schema: Any, arrow: Any, value: Any, what: str
) -> None:
    found = AvroSchema.of([column("field", kind)], json.dumps(record(("field", schema))))
    rows = pa.array([{"field": value}], pa.struct([("field", arrow)]))

    with pytest.raises(InvalidRecord, match=f"cannot be encoded with the Avro schema: {what} is null, which "):
        encoded(found, rows)


def test_a_null_is_refused_in_a_column_that_spark_declares_without_nulls() -> None:
    schema = AvroSchema.of([column("paid", "boolean", nullable=False)])

    with pytest.raises(InvalidRecord, match="'paid' is null"):
        encoded(schema, pa.array([{"paid": None}], ARROW_PAID))


def test_booleans_inside_of_what_is_null_itself_are_no_nulls() -> None:
    fields = {
        "place": ["null", WITH_PAID],
        "many": ["null", _items(["null", "Payment"])],
        "by": ["null", _values(["null", "Payment"])],
        "empty": "null",
    }
    kinds = {"place": PAID, "many": array_of(PAID), "by": map_of(PAID), "empty": "void"}
    columns = [column(name, kind) for name, kind in kinds.items()]
    schema = AvroSchema.of(columns, json.dumps(record(*fields.items())))
    arrow = [ARROW_PAID, pa.list_(ARROW_PAID), pa.map_(pa.string(), ARROW_PAID), pa.null()]
    paid = {"paid": True}
    rows = [
        {"place": paid, "many": [paid, None], "by": {"a": paid, "b": None}, "empty": None},
        dict.fromkeys(kinds),
        {"place": paid, "many": [], "by": {}, "empty": None},
    ]

    values = encoded(schema, pa.array([{}, *rows], pa.struct(list(zip(kinds, arrow, strict=True)))).slice(1))

    assert [read(schema, value) for value in values] == rows


def test_the_value_takes_the_place_of_its_columns() -> None:
    schema = AvroSchema.of([column("a", "long", nullable=False), column("b", "string", nullable=False)])
    batch = pa.record_batch({"a": [1], "key": ["k"], "b": ["x"]})

    assert AvroEncoder(schema).with_value(batch).to_pylist() == [{"key": "k", "value": b"\x02\x02x"}]
