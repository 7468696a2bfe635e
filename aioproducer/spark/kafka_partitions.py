"""Gives each row the partition that Kafka would choose, and each of Kafka's partitions to one of Spark's tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigError, InvalidRecord
from aioproducer.producer import Producer
from aioproducer.record import partition_for_key
from aioproducer.spark.sink_columns import check_case, check_type
from aioproducer.spark.topic_split import load_pyarrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["one_task_each", "partition_for_kafka", "slots"]

#: Kafka has 31 bits for the number of a partition.
_LAST: Final = 2**31 - 1


def partition_for_kafka(
    df: DataFrame, topic: str, bootstrap_servers: str | ProducerConfig, tasks: int | None = None
) -> DataFrame:
    """The rows with a column ``partition``, shuffled so that one task has all rows of a partition.

    It is murmur2 of ``key`` modulo the topic's number of partitions, as every Kafka producer chooses it; rows without a
    key take turns. Where there is a column ``partition`` already, what it says stays, and only its nulls are filled.
    ``tasks`` is how many tasks share the partitions; None: as many as there are partitions, but no more than run at once
    (with Spark Connect: than ``spark.sql.shuffle.partitions``).

    Asks Kafka for the topic; raises what `Producer.partitions_for` does, and `ConfigError` for a key or partition of a type
    that is none, and for fewer tasks than one. The rows of a partition keep no order over the
    shuffle unless they are sorted behind it.
    """
    load_pyarrow()
    _check(df, tasks)
    count = asyncio.run(_count_partitions(topic, bootstrap_servers))
    chosen = cast("Any", df).mapInArrow(choose_partitions(count), _with_partition(df))
    return one_task_each(chosen, min(count, _parallelism(df)) if tasks is None else tasks)


def _check(df: DataFrame, tasks: int | None) -> None:
    if tasks is not None and tasks < 1:
        raise ConfigError(f"tasks={tasks}: at least one task has to write.")
    for field in df.schema.fields:
        if field.name in ("key", "partition"):
            check_type(field.name, field.dataType.simpleString())
        elif field.name.lower() in ("key", "partition"):
            check_case(field.name, df.columns)


def one_task_each(df: DataFrame, tasks: int) -> DataFrame:
    """The rows shuffled to so many tasks, those with the same ``partition`` to the same one."""
    from pyspark.sql.functions import col

    if not hasattr(df, "repartitionById"):  # PySpark 4.0, where two partitions may come to the same task by chance
        return df.repartition(tasks, "partition")
    return df.repartitionById(tasks, (col("partition") % tasks).cast("int"))


def choose_partitions(count: int) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """What `DataFrame.mapInArrow` takes to fill the column ``partition``, with numbers below ``count``."""

    def fill(batches: Iterable[Any]) -> Iterator[Any]:
        turn = 0
        for batch in batches:
            partitions, turn = _chosen(batch, count, turn)
            yield _replaced(batch, partitions)

    return fill


def _chosen(batch: Any, count: int, turn: int) -> tuple[Any, int]:
    pa = import_module("pyarrow")
    names = batch.schema.names
    rows = batch.num_rows
    keys = batch.column("key").cast("binary").to_pylist() if "key" in names else [None] * rows
    given = batch.column("partition").to_pylist() if "partition" in names else [None] * rows
    chosen: list[int] = []
    for key, partition in zip(keys, given, strict=True):
        if partition is not None:
            if not 0 <= partition <= _LAST:
                raise InvalidRecord(
                    f"A row has {partition} in the column 'partition', where whole numbers from 0 to 2**31 - 1 are expected."
                )
            chosen.append(partition)
        elif key is not None:
            chosen.append(partition_for_key(key, count))
        else:
            chosen.append(turn % count)
            turn += 1
    return pa.array(chosen, pa.int32()), turn


def _replaced(batch: Any, partitions: Any) -> Any:
    at = batch.schema.get_field_index("partition")
    if at < 0:
        return batch.append_column("partition", partitions)
    return batch.set_column(at, "partition", partitions)


def _with_partition(df: DataFrame) -> Any:
    from pyspark.sql.types import IntegerType, StructField, StructType

    partition = StructField("partition", IntegerType())
    fields = [partition if each.name == "partition" else each for each in df.schema.fields]
    return StructType(fields if "partition" in df.columns else [*fields, partition])


def slots(df: DataFrame) -> int | None:
    """How many tasks run at once; None with Spark Connect, which tells nobody."""
    from pyspark.errors import PySparkAttributeError

    try:
        return max(df.sparkSession.sparkContext.defaultParallelism, 1)
    except PySparkAttributeError:
        return None


def _parallelism(df: DataFrame) -> int:
    return slots(df) or int(df.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)


async def _count_partitions(topic: str, bootstrap_servers: str | ProducerConfig) -> int:
    async with Producer(bootstrap_servers) as producer:
        return len(await producer.partitions_for(topic))
