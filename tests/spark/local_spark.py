"""Starts Spark on this machine with settings for tests; also for programs that tests start, and kill."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from aioproducer.spark.session.session import SparkMissing, check_spark
from tests.needs import not_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent.parent

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.barrier.sync.timeout": "120",  # seconds; by default a barrier stage waits for a lost task for a year
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def need() -> None:
    """Skip the test where Spark cannot run; where the variable CI is set it fails instead."""
    try:
        check_spark("This test")
    except SparkMissing as missing:
        not_here(str(missing))


def start(master: str = "local[2,4]", **settings: str) -> SparkSession:
    """A session; ``,4`` lets a task fail three times before its job does, as on a cluster."""
    from pyspark.sql import SparkSession

    from aioproducer.spark import AioProducerSource

    # Workers import what the tests do, whatever directory they are started in.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    builder = SparkSession.builder.master(master).appName("aioproducer-tests")
    for name, value in {**_SETTINGS, **settings}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    session.dataSource.register(AioProducerSource)
    return session
