"""Assigns each row the partition that Kafka would choose, and each Kafka partition to one Spark task.

Rows are only moved if necessary. With a key, murmur2 determines the partition, so rows of one partition come from all tasks
and are shuffled. Without a key a row may go to any partition: each task gets its own partitions, and its rows stay.

Only keys go through Python, as Arrow columns; everything else stays in the JVM.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Final, cast

from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigError, InvalidRecord
from aioproducer.producer import Producer
from aioproducer.spark.libraries import need_pandas
from aioproducer.spark.sink.columns import check_case, check_type
from aioproducer.spark.sink.key_partitions import partitions_of_keys
from aioproducer.spark.sink.topic_split import load_pyarrow

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["one_task_each", "partition_for_kafka", "slots"]

#: Kafka's partition numbers have 31 bits.
_LAST: Final = 2**31 - 1


def partition_for_kafka(
    df: DataFrame,
    topic: str,
    bootstrap_servers: str | ProducerConfig,
    tasks: int | None = None,
    *,
    shuffle: bool | None = None,
) -> DataFrame:
    """The rows with a column ``partition``, distributed so that one task has all rows of a partition.

    It is murmur2 of ``key`` modulo the topic's number of partitions, like the default of Kafka's producers; rows without a
    key are spread over all partitions. If the column ``partition`` exists, its values are kept, and only nulls are filled.
    ``tasks`` is the number of tasks that share the partitions; None: one per partition, but no more than run at once (with
    Spark Connect: than ``spark.sql.shuffle.partitions``).

    ``shuffle`` None moves rows only if necessary: not if the frame has neither ``key`` nor ``partition`` and as many tasks
    write as run at once. Each task then has its own partitions, different ones in each job or micro-batch; surplus tasks
    are merged. True: always. False: never; for a frame with keys or partitions only the column is filled, if the caller
    knows that rows of one partition are in one task. The commit checks that.

    Asks Kafka for the topic; raises what `Producer.partitions_for` does, and `ConfigError` for a key or partition of an
    unsupported type, and for less than one task. A shuffle does not keep the order of a partition's rows; sort them after
    it.
    """
    load_pyarrow()
    _check(df, tasks)
    count = asyncio.run(_count_partitions(topic, bootstrap_servers))
    at_once = slots(df)
    share = min(count, at_once or _shuffle_partitions(df)) if tasks is None else tasks
    if "key" not in df.columns and "partition" not in df.columns:
        if shuffle is None:  # fewer tasks than slots would also compute the rows with fewer
            shuffle = at_once is None or share < at_once
        if not shuffle:
            return _spread_in_tasks(df, count, min(share, count))
    filled = _filled(df, count)
    return filled if shuffle is False else one_task_each(filled, share)


def _check(df: DataFrame, tasks: int | None) -> None:
    if tasks is not None and tasks < 1:
        raise ConfigError(f"invalid tasks={tasks}: must be at least 1.")
    for field in df.schema.fields:
        if field.name in ("key", "partition"):
            check_type(field.name, field.dataType.simpleString())
        elif field.name.lower() in ("key", "partition"):
            check_case(field.name, df.columns)


def one_task_each(df: DataFrame, tasks: int) -> DataFrame:
    """The rows shuffled to ``tasks`` tasks, those with the same ``partition`` to the same one."""
    from pyspark.sql.functions import col

    if not hasattr(df, "repartitionById"):  # PySpark 4.0, where two partitions may end up in the same task by chance
        return df.repartition(tasks, "partition")
    return df.repartitionById(tasks, (col("partition") % tasks).cast("int"))


def _spread_in_tasks(df: DataFrame, count: int, tasks: int) -> DataFrame:
    """At most ``tasks`` and ``count`` tasks; each fills the partitions that equal its number modulo ``tasks``.

    A task's number depends on the start time of the job or micro-batch; otherwise a source with one task would leave most
    partitions empty forever. A repeated task has the same number.
    """
    from pyspark.sql.functions import expr

    number = f"pmod(pmod(hash(current_timestamp()), {tasks}) + spark_partition_id(), {tasks})"
    of_task = f"(({count + tasks - 1} - {number}) div {tasks})"
    chosen = f"CAST({number} + {tasks} * floor(rand() * {of_task}) AS INT)"
    return df.coalesce(tasks).withColumn("partition", expr(chosen))


def _filled(df: DataFrame, count: int) -> DataFrame:
    """The rows, not moved, with the column ``partition`` without nulls."""
    from pyspark.sql.functions import expr

    if "key" not in df.columns:
        return df.withColumn("partition", _given_or(df, expr(f"floor(rand() * {count})")))
    choose = _arrow_udf(choose_for_keys(count))
    if choose is None:  # PySpark 4.0 can only pass whole rows through Arrow
        need_pandas("partition_for_kafka with PySpark 4.0")
        return cast("DataFrame", cast("Any", df).mapInArrow(choose_partitions(count), _with_partition(df)))
    return df.withColumn("partition", _given_or(df, choose("key")))


def _given_or(df: DataFrame, chosen: Column) -> Column:
    from pyspark.sql.functions import coalesce, col, concat, lit, raise_error, when

    if "partition" not in df.columns:
        return chosen.cast("int")
    given = col("partition")
    refused = raise_error(concat(lit("A row has "), given.cast("string"), lit(_NO_PARTITION)))
    return when((given < 0) | (given > _LAST), refused).otherwise(coalesce(given, chosen)).cast("int")


_NO_PARTITION: Final = " in the column 'partition'; must be an integer from 0 to 2**31 - 1."


def _arrow_udf(function: Callable[[Iterator[Any]], Iterator[Any]]) -> Any:
    """The function for columns of a DataFrame, or None if PySpark has no UDFs that only need Arrow."""
    from pyspark.sql import functions

    make = getattr(functions, "arrow_udf", None)
    return None if make is None else make(function, "int").asNondeterministic()


def choose_for_keys(count: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A function for ``arrow_udf`` that chooses partitions below ``count`` for a column of keys; null keys take turns."""

    def choose(columns: Iterator[Any]) -> Iterator[Any]:
        turn = 0
        for keys in columns:
            chosen = partitions_of_keys(keys, count)
            yield _turns_for_nulls(chosen, count, turn)
            turn += chosen.null_count

    array: Any = import_module("pyarrow").Array
    of_arrays = GenericAlias(Iterator, array)
    choose.__annotations__ = {"columns": of_arrays, "return": of_arrays}  # from which Spark infers the kind of UDF
    return choose


def _turns_for_nulls(chosen: Any, count: int, turn: int) -> Any:
    if not chosen.null_count:
        return chosen
    pa: Any = import_module("pyarrow")
    compute: Any = import_module("pyarrow.compute")
    turns = pa.array([(turn + number) % count for number in range(chosen.null_count)], pa.int32())
    return compute.replace_with_mask(chosen, chosen.is_null(), turns)


def choose_partitions(count: int) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """A function for `DataFrame.mapInArrow` that fills the column ``partition``, below ``count``, for rows with keys."""

    def fill(batches: Iterable[Any]) -> Iterator[Any]:
        turn = 0
        for batch in batches:
            chosen = partitions_of_keys(batch.column("key"), count)
            if "partition" in batch.schema.names:
                compute: Any = import_module("pyarrow.compute")
                chosen = compute.coalesce(_checked(batch.column("partition")), chosen)
            yield _replaced(batch, _turns_for_nulls(chosen, count, turn))
            turn += chosen.null_count

    return fill


def _checked(given: Any) -> Any:
    compute: Any = import_module("pyarrow.compute")
    for number in compute.min_max(given).as_py().values():
        if number is not None and not 0 <= number <= _LAST:
            raise InvalidRecord(f"A row has {number}{_NO_PARTITION}")
    return given.cast("int32")


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
    """The number of tasks that run at once; None with Spark Connect, which does not report it."""
    from pyspark.errors import PySparkAttributeError

    try:
        return max(df.sparkSession.sparkContext.defaultParallelism, 1)
    except PySparkAttributeError:
        return None


def _shuffle_partitions(df: DataFrame) -> int:
    return int(df.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)


async def _count_partitions(topic: str, bootstrap_servers: str | ProducerConfig) -> int:
    async with Producer(bootstrap_servers) as producer:
        return len(await producer.partitions_for(topic))
