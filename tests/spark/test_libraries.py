"""A library that a function needs is asked for on the driver, by a sentence that says what to install."""

from __future__ import annotations

import importlib.util
import tomllib
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING

import pytest

from aioproducer.errors import ConfigError
from aioproducer.spark import foreach_batch
from aioproducer.spark.libraries import need
from tests.spark.local_spark import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "orders", "transactional.id": "t"}


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes a library look as if it were not installed."""
    find = importlib.util.find_spec

    def hide(library: str) -> None:
        def found(name: str, package: str | None = None) -> ModuleSpec | None:
            return None if name == library else find(name, package)

        monkeypatch.setattr("aioproducer.spark.libraries.find_spec", found)

    return hide


def test_an_installed_library_is_not_reported_as_missing() -> None:
    need("pytest", "This test", "test")


def test_a_write_in_a_barrier_stage_asks_for_pandas_as_pyspark_would_in_its_midst(
    without: Callable[[str], None],
) -> None:
    without("pandas")

    with pytest.raises(ConfigError, match=r"barrier stage needs pandas, .* pip install 'aioproducer\[spark\]'"):
        foreach_batch(OPTIONS)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_values_of_json_ask_for_orjson_before_kafka_is_asked(
    spark: SparkSession, without: Callable[[str], None]
) -> None:
    from aioproducer.spark.options.sink import SinkOptions
    from aioproducer.spark.sink.columns import SinkColumns

    df = spark.sql("SELECT 1 AS a")
    options = SinkOptions.from_spark({**OPTIONS, "delivery.guarantee": "exactly-once", "value.format": "json"})
    assert SinkColumns.of_frame(df.schema, options).is_json
    without("orjson")

    with pytest.raises(ConfigError, match=r"value.format=json needs orjson, .* every executor"):
        SinkColumns.of_frame(df.schema, options)


def test_the_extra_has_what_the_messages_tell_to_install() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]

    assert {each.partition(">")[0] for each in extras["spark"]} == {"orjson", "pandas", "pyarrow", "xxhash"}
