"""A task that cannot write ends the transaction itself, so that no writer can write into it after that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioproducer.testing import FakeBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

#: The driver aborts when it refuses the commit, and once more when Spark reports that the job has failed.
BY_THE_DRIVER = 2


@pytest.mark.parametrize(("versions", "ends_it"), [("4.3.1", True), ("3.9.2", False)])
def test_one_of_two_tasks_fails(spark: SparkSession, versions: str, *, ends_it: bool) -> None:
    with FakeBroker(topics={"orders": 2}, versions=versions) as broker:
        options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "topic": "orders",
            "delivery.guarantee": "exactly-once",
            "transactional.id": "t",
        }
        rows = spark.range(20, numPartitions=2).selectExpr(
            "if(id = 19, repeat('x', 2000000), string(id)) AS value", "cast(id >= 10 AS int) AS partition"
        )

        with pytest.raises(Exception, match="more than max_request_size=1048576"):
            rows.write.format("aioproducer").mode("append").options(**options).save()

        assert broker.records("orders", committed=True) == []
        assert (broker.count("EndTxn") > BY_THE_DRIVER) is ends_it
