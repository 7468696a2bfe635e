"""The jars of Spark's own Kafka source, for tests."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.spark.jars import spark_kafka_jars
from benchmarks.unavailable import Unavailable
from tests.needs import not_here


def kafka_source_jars() -> Sequence[str]:
    """Their paths. Without Maven the test is skipped; it fails where the variable CI is set."""
    try:
        return spark_kafka_jars()
    except Unavailable as error:
        not_here(str(error))
