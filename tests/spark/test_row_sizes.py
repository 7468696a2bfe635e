"""The computed size of a row is the size that a broker receives."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from aioproducer.spark.options.sink import SinkOptions
from aioproducer.spark.sink.columns import SinkColumns
from aioproducer.spark.sink.row_sizes import RowSizes
from aioproducer.spark.sink.task_run import TaskRun
from aioproducer.testing import FakeBroker

_STRUCTS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_TEXTS = pa.map_(pa.string(), pa.string())
_SPARK_LIST, _SPARK_MAP = "array<struct<key:string,value:binary>>", "map<string,string>"


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
@pytest.mark.parametrize(
    ("kind", "spark", "headers"),
    [
        (_STRUCTS, _SPARK_LIST, [{"key": "ä", "value": b"1" * 300}, {"key": "b", "value": None}]),
        (_STRUCTS, _SPARK_LIST, None),
        (_TEXTS, _SPARK_MAP, [("ä", "ö" * 300), ("b", None)]),
        (_TEXTS, _SPARK_MAP, []),
    ],
)
@pytest.mark.parametrize(("key", "value"), [("ü", "x" * 5000), (None, "y"), ("", None)])
def test_the_exact_size_is_that_of_the_batch_that_is_sent(
    codec: str, kind: Any, spark: str, headers: Any, key: str | None, value: str | None
) -> None:
    row = pa.record_batch(
        [pa.array([key], pa.string()), pa.array([value], pa.string()), pa.array([headers], kind)],
        ["key", "value", "headers"],
    )
    with FakeBroker(topics={"orders": 1}) as broker:
        servers = {"kafka.bootstrap.servers": broker.bootstrap_servers, "kafka.compression.type": codec}
        options = SinkOptions.from_spark({**servers, "topic": "orders", "headers.source": "spark"})
        columns = SinkColumns.of([("key", "string"), ("value", "string"), ("headers", spark)], options)
        sizes = RowSizes(columns, options)

        TaskRun(options, columns).run([row])

        [batch] = broker.batches("orders")
    assert sizes.encoded(row, 0, "orders").size == len(batch.sent)
    [at_most] = sizes.may_become(sizes.at_most(row), "orders").to_pylist()
    assert at_most >= len(batch.sent)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_a_row_that_does_not_compress_is_expected_to_grow(codec: str) -> None:
    servers = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.compression.type": codec}
    options = SinkOptions.from_spark({**servers, "topic": "orders"})
    sizes = RowSizes(SinkColumns.of([("value", "binary")], options), options)
    row = pa.record_batch({"value": [Random(1).randbytes(500_000)]})

    [plain] = sizes.at_most(row).to_pylist()
    [at_most] = sizes.may_become(sizes.at_most(row), "orders").to_pylist()
    assert plain < sizes.encoded(row, 0, "orders").size <= at_most
