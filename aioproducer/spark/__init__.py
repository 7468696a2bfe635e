"""Spark writes DataFrames to Kafka through aioproducer: ``df.write.format("aioproducer")``, ``df.writeStream``.

::

    from aioproducer.spark import AioProducerSource

    spark.dataSource.register(AioProducerSource)
    df.write.format("aioproducer").mode("append").option("kafka.bootstrap.servers", ...).option("topic", ...).save()

README.md beside this file describes the guarantees and how to use it. The names are imported on first use, as they need
pyspark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from aioproducer.spark.requirements import check_requirements

if TYPE_CHECKING:
    from aioproducer.spark.exactly_once.write_failed import WriteFailed
    from aioproducer.spark.sink.barrier import foreach_batch, write_exactly_once
    from aioproducer.spark.sink.kafka_partitions import partition_for_kafka
    from aioproducer.spark.sink.source import AioProducerSource

__all__ = ["AioProducerSource", "WriteFailed", "foreach_batch", "partition_for_kafka", "write_exactly_once"]

check_requirements()

_HOMES = {
    "AioProducerSource": "sink.source",
    "WriteFailed": "exactly_once.write_failed",
    "foreach_batch": "sink.barrier",
    "partition_for_kafka": "sink.kafka_partitions",
    "write_exactly_once": "sink.barrier",
}


def __getattr__(name: str) -> object:
    module = _HOMES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found = getattr(import_module(f"{__name__}.{module}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyspark":
            raise
        raise ImportError(
            f"aioproducer.spark.{name} needs PySpark 4.0 or later. A cluster has it: run this with the cluster's "
            "Python. On a single machine: pip install 'aioproducer[spark-local]' (and Java 17 or later)."
        ) from error
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
