"""Lets Spark start in half the time: Java keeps the classes that every Spark loads in an archive, made once and in advance.

Java 17 reads such an archive of class data instead of looking for classes in hundreds of jars; without one, or with one of
other jars, it starts as it always did.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

__all__ = ["QUICK_START", "archive_in", "begin", "java_options"]

_ROOT = Path(__file__).parent.parent.parent
_PROGRAM = [sys.executable, "-W", "ignore", "-m", "tests.spark.class_archive"]

#: Of what lives for seconds it is quicker to compile less of it. Java's own warnings would be on stdout.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"


def archive_in(directory: Path) -> Path:
    """The archive for the PySpark that is installed; no PySpark, no such file."""
    spec = find_spec("pyspark")
    which = "" if spec is None else f"{spec.origin} {version('pyspark')}"
    return directory / f"spark-{hashlib.sha256(which.encode()).hexdigest()[:12]}.jsa"


def java_options(archive: Path) -> str:
    """For the variable SPARK_SUBMIT_OPTS: those of drivers, and of the executors that they start on a cluster."""
    options = f"{QUICK_START} -XX:SharedArchiveFile={archive}"
    return f'{options} "-Dspark.executor.defaultJavaOptions={options}"'


def begin(archive: Path) -> None:
    """Let a detached process create it, if it is not there; no caller has to wait for that."""
    if not archive.exists() and find_spec("pyspark") is not None:
        subprocess.run([*_PROGRAM, "begin", str(archive)], cwd=_ROOT, check=True)


def _make(archive: Path) -> None:
    made = archive.with_suffix(f".{os.getpid()}")
    variables = {"SPARK_SUBMIT_OPTS": f"{QUICK_START} -XX:ArchiveClassesAtExit={made}"}
    with tempfile.TemporaryDirectory() as scratch:
        # The pipe ends when the last process of it does: Java, which writes the archive at its end.
        run = [*_PROGRAM, "run", scratch]
        subprocess.run(run, cwd=_ROOT, env={**os.environ, **variables}, capture_output=True, check=False)
    if made.exists():
        made.rename(archive)


def _run(directory: Path) -> None:
    """The work that most programs do with Spark."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    rows = spark.range(1000).selectExpr("id", "cast(id AS string) AS text", "id % 7 AS k")
    rows.write.option("header", "true").csv(str(directory / "csv"))
    rows.write.parquet(str(directory / "parquet"))
    read = spark.read.option("header", "true").option("inferSchema", "true").csv(str(directory / "csv"))
    read.repartition(2, "k").sortWithinPartitions("id").groupBy("k").count().collect()
    spark.read.parquet(str(directory / "parquet")).mapInArrow(lambda batches: batches, rows.schema).count()
    query = spark.readStream.schema(rows.schema).parquet(str(directory / "parquet")).writeStream
    query.format("noop").trigger(availableNow=True).option(
        "checkpointLocation", str(directory / "checkpoint")
    ).start().awaitTermination()
    spark.stop()


def _begin(archive: Path) -> None:
    null = subprocess.DEVNULL
    subprocess.Popen([*_PROGRAM, "make", str(archive)], stdin=null, stdout=null, stderr=null, start_new_session=True)


if __name__ == "__main__":
    {"begin": _begin, "make": _make, "run": _run}[sys.argv[1]](Path(sys.argv[2]))
