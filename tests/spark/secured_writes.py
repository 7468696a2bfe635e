"""A program that writes to a cluster with TLS and logins, at least once and exactly once, and with a wrong password.

``python -m tests.spark.secured_writes BOOTSTRAP TOPIC DIRECTORY`` writes the numbers below ROWS to TOPIC-batch and to
TOPIC-stream, and prints all that a user can print of it, as JSON. The certificate is in DIRECTORY/ca.pem, what Spark logs in
DIRECTORY/log4j2.properties, the password in the variable PASSWORD. The logs go to standard error; Spark's event log, the
report and the checkpoint go to DIRECTORY.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioproducer.spark import AioProducerSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["PASSWORD", "ROWS", "WRONG", "main"]

PASSWORD: Final = "AIOPRODUCER_TEST_PASSWORD"
ROWS: Final = 2000

#: What is put behind the password to make it wrong.
WRONG: Final = "-but-wrong"


def main(bootstrap_servers: str, topic: str, directory: str) -> None:
    """Write."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    where = Path(directory)
    (where / "events").mkdir()
    builder = SparkSession.builder.master("local[2,2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.eventLog.enabled", "true").config("spark.eventLog.dir", str(where / "events"))
    builder = builder.config("spark.eventLog.compress", "false").config("spark.ui.showConsoleProgress", "false")
    java = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dlog4j2.configurationFile={where / 'log4j2.properties'}"
    spark = builder.config("spark.driver.extraJavaOptions", java).getOrCreate()
    spark.dataSource.register(AioProducerSource)
    options = {"kafka.bootstrap.servers": bootstrap_servers, **_secured(where, os.environ[PASSWORD])}
    wrong = options | _secured(where, os.environ[PASSWORD] + WRONG)

    reported: dict[str, str] = {}
    reported["batch"] = _why(lambda: _batch(spark, options | {"topic": f"{topic}-batch"}))
    reported["stream"] = _why(lambda: _stream(spark, options | {"topic": f"{topic}-stream"}, where, reported))
    reported["batch, wrong password"] = _why(lambda: _batch(spark, wrong | {"topic": f"{topic}-batch"}))
    reported["stream, wrong password"] = _why(
        lambda: _stream(spark, wrong | {"topic": f"{topic}-stream"}, where / "2", reported)
    )
    reported["options"] = repr(AioProducerSource(options))
    reported["plans"] = _plans(spark)
    print(json.dumps(reported))  # noqa: T201 - what this is for
    spark.stop()


def _secured(directory: Path, password: str) -> dict[str, str]:
    """As Spark's own Kafka sink takes them. Spark would not redact this name of a secret."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{module} required username="alice" password="{password}";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(directory / "ca.pem"),
        "kafka.max.block.ms": "20000",
    }


def _numbers(spark: SparkSession) -> DataFrame:
    return spark.range(ROWS, numPartitions=2).selectExpr("cast(id AS string) AS value")


def _batch(spark: SparkSession, options: Mapping[str, str]) -> None:
    _numbers(spark).write.format("aioproducer").mode("append").options(**options).save()


def _stream(spark: SparkSession, options: Mapping[str, str], directory: Path, reported: dict[str, str]) -> None:
    files = str(directory / "files")
    for part in (0, 1):  # two files: two batches
        _numbers(spark).where(f"cast(value AS int) % 2 = {part}").coalesce(1).write.mode("append").parquet(files)
    rows = spark.readStream.schema("value string").option("maxFilesPerTrigger", "1").parquet(files)
    exactly_once = {
        "delivery.guarantee": "exactly-once",
        "transactional.id": options["topic"],
        "report": str(directory / "report"),
        "checkpointLocation": str(directory / "checkpoint"),
    }
    writer = rows.writeStream.format("aioproducer").options(**options, **exactly_once)
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            query.explain(True)
        reported.setdefault("explain", printed.getvalue())
        reported["progress"] = repr(query.recentProgress) + repr(query.status)


def _plans(spark: SparkSession) -> str:
    """The contents of the SQL tab."""
    session: Any = spark
    executions: Any = session._jsparkSession.sharedState().statusStore().executionsList()
    shown = (executions.apply(index) for index in range(executions.size()))
    return "\n".join(
        f"{each.description()} {each.physicalPlanDescription()} {each.modifiedConfigs()}" for each in shown
    )


def _why(write: Any) -> str:
    try:
        write()
    except Exception as error:
        return f"{error} {error!r}"
    return ""


if __name__ == "__main__":
    main(*sys.argv[1:])
