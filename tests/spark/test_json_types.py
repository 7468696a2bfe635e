"""Every type of Spark's has a form in JSON, or is refused by the path of its column."""

from __future__ import annotations

from typing import Any

import pytest

from aioproducer.errors import ConfigError
from aioproducer.spark.sink.json_types import check_json


def column(kind: Any, name: str = "n") -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def struct(**kinds: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": [column(kind, name) for name, kind in kinds.items()]}


def array(kind: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": kind, "containsNull": True}


def map_of(key: Any, value: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


def udt(kind: Any) -> dict[str, Any]:
    return {"type": "udt", "pyClass": "a.B", "sqlType": kind}


@pytest.mark.parametrize(
    "kind",
    [
        *["boolean", "byte", "short", "integer", "long", "float", "double", "decimal(38,2)"],
        *["string", "string collate UTF8_LCASE", "char(3)", "varchar(3)", "date", "timestamp", "timestamp_ntz"],
        *["time(6)", "void", array("long"), struct(a=array("date")), map_of("string", map_of("char(3)", "long"))],
        udt(struct(x="double")),
    ],
)
def test_a_type_with_a_form_in_json_is_accepted(kind: Any) -> None:
    check_json([column(kind)])


@pytest.mark.parametrize(
    ("kind", "path", "name"),
    [
        ("binary", "n", "binary"),
        ("variant", "n", "variant"),
        ("interval", "n", "interval"),
        ("interval day to second", "n", "interval day to second"),
        ("geometry(4326)", "n", "geometry(4326)"),
        (array(array("binary")), "n", "binary"),
        (struct(a=struct(b="binary")), "n.a.b", "binary"),
        (map_of("string", struct(a="interval month")), "n.a", "interval month"),
        (udt("binary"), "n", "binary"),
    ],
)
def test_a_type_without_a_form_in_json_is_refused(kind: Any, path: str, name: str) -> None:
    with pytest.raises(ConfigError, match=r"JSON cannot represent") as caught:
        check_json([column("long", "fine"), column(kind)])

    assert f"The column {path!r} has type {name}, which" in str(caught.value)


@pytest.mark.parametrize("kind", [map_of("integer", "long"), struct(a=map_of(struct(x="long"), "long"))])
def test_keys_of_maps_are_strings(kind: Any) -> None:
    with pytest.raises(ConfigError, match=r"a map with keys that are not strings"):
        check_json([column(kind)])
