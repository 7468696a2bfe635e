"""A local Spark session for the examples."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from aioproducer.spark import AioProducerSource


def local_spark() -> SparkSession:
    """A session with two threads, with the data source registered."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise workers use the python3 of the PATH
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(AioProducerSource)
    return spark
