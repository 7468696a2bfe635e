"""Spark on this machine, with default settings apart from its UI and its log, and the CPU that it takes."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aioproducer.spark.session.session import SparkMissing, check_spark
from benchmarks import CHECKOUT
from benchmarks.spark.rows import TASKS
from benchmarks.unavailable import Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["cpu_seconds", "session"]

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(TASKS),
}


@contextmanager
def session(jars: Sequence[str] = ()) -> Generator[SparkSession]:
    """A session that knows all sinks, and what is in these jars; raises `Unavailable` where Spark cannot run."""
    try:
        check_spark("This benchmark")
    except SparkMissing as missing:
        raise Unavailable(str(missing)) from missing
    from pyspark.sql import SparkSession

    from aioproducer.spark import AioProducerSource
    from benchmarks.spark.peers import ConfluentSource, CountingSource

    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Workers import this package, whatever directory they are started in.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])])
    builder = SparkSession.builder.master(f"local[{TASKS}]").appName("benchmarks")
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    if jars:
        builder = builder.config("spark.jars", ",".join(jars))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for source in (AioProducerSource, ConfluentSource, CountingSource):
        spark.dataSource.register(source)
    try:
        yield spark
    finally:
        spark.stop()


def cpu_seconds(spark: SparkSession) -> float:
    """The CPU time of the JVM and all its Python workers so far; ended workers count through their parents."""
    jvm: Any = spark.sparkContext._jvm  # pyright: ignore[reportPrivateUsage] - nothing else has its process
    root = int(jvm.java.lang.ProcessHandle.current().pid())
    used: dict[int, tuple[int, int]] = {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                fields = (directory / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            used[int(directory.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    ticks = sum(ticks for pid, (_, ticks) in used.items() if _descends(pid, root, used))
    return ticks / os.sysconf("SC_CLK_TCK")


def _descends(pid: int, root: int, processes: dict[int, tuple[int, int]]) -> bool:
    while pid != root:
        if pid not in processes:
            return False
        pid = processes[pid][0]
    return True
