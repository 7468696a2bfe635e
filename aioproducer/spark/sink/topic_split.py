"""Splits an Arrow batch of a DataFrame into the tables to send: one per topic, with the columns of a record."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from aioproducer.errors import ConfigError, InvalidRecord
from aioproducer.spark.sink.columns import SinkColumns

__all__ = ["load_pyarrow", "split_by_topic"]


def load_pyarrow() -> Any:
    """The module; raises `ConfigError` with installation advice if it is missing."""
    try:
        return import_module("pyarrow")
    except ImportError as error:
        raise ConfigError(
            "The data source 'aioproducer' needs pyarrow in the Python of the driver and of every executor: "
            "pip install 'aioproducer[spark]', and set PYSPARK_PYTHON to the Python that has it."
        ) from error


def split_by_topic(batch: Any, columns: SinkColumns, topic: str | None) -> Iterator[tuple[str, Any]]:
    """Each topic with its rows, in order; ``topic`` is the topic of all rows, None: use the column ``topic``.

    Raises `InvalidRecord` for a row without a topic.
    """
    if not batch.num_rows:
        return
    if topic is not None:
        yield topic, batch.select(list(columns.names))
        return
    compute = import_module("pyarrow.compute")
    named = batch.column("topic")
    kept = batch.select([name for name in columns.names if name != "topic"])
    names: list[str | None] = compute.unique(named).to_pylist()
    if None in names:
        raise InvalidRecord(
            "A row has null in the column 'topic', and there is no default topic: fill it, or set .option('topic', ...)."
        )
    for name in names:
        assert name is not None
        yield name, kept if len(names) == 1 else kept.filter(compute.equal(named, name))
