"""Spark's Kafka source as a reader: what is not left to the user, and what is said where its jar is not there."""

from __future__ import annotations

import pytest

from aioproducer.spark.audit.kafka_source import check_source_options, jar_trouble
from aioproducer.spark.audit.offsets import AuditFailed

PACKAGE = "--conf spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.5 "


@pytest.mark.parametrize("name", ["startingOffsets", "minpartitions", "kafka.isolation.level", "failOnDataLoss"])
def test_an_option_that_changes_which_records_are_read_is_refused(name: str) -> None:
    with pytest.raises(AuditFailed, match=f"'{name}' of Spark's Kafka source cannot be set"):
        check_source_options({"kafka.security.protocol": "SSL", name: "1"})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Failed to find data source: kafka. Please deploy ...", "Spark has no Kafka source here"),
        (
            "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: kafka. Make sure ...",
            "Spark has no Kafka source here",
        ),
        (
            "An error occurred while calling o42.load.\n"
            ": java.lang.NoClassDefFoundError: org/apache/kafka/common/serialization/ByteArraySerializer\n\tat org.x",
            "needs another jar (NoClassDefFoundError: org/apache/kafka/common/serialization/ByteArraySerializer)",
        ),
        ("java.lang.NoSuchMethodError: 'void org.x.Y.z()'\n\tat", "does not fit this Spark"),
    ],
)
def test_a_missing_jar_is_reported_with_the_coordinate_that_brings_it(text: str, why: str) -> None:
    reported = jar_trouble(ValueError(text), "4.0.5")

    assert reported is not None
    assert why in reported
    assert PACKAGE in reported


def test_other_troubles_are_not_the_jar_s() -> None:
    assert jar_trouble(ValueError("Failed to find data source: iceberg"), "4.0.5") is None
