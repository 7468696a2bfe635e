"""The sink on a cluster that wants TLS and a login: it writes, and secrets are shown nowhere."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer.errors import KafkaError
from aioproducer.testing import FakeBroker, Logins
from aioproducer.testing.certificates import CertificateAuthority
from tests.spark.query import Query, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CANARY = "canary-in-the-mine"
JAAS = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="{CANARY}";'


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority()


@pytest.fixture
def broker(authority: CertificateAuthority) -> Iterator[FakeBroker]:
    logins = Logins({"alice": CANARY})
    with FakeBroker(topics={"orders": 2}, tls=authority.server_context(), logins=logins) as broker:
        yield broker


def options(authority: CertificateAuthority, directory: Path) -> dict[str, str]:
    """As Spark's own Kafka sink takes them."""
    return {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.jaas.config": JAAS,
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": authority.write(directory / "ca.pem"),
    }


def test_exactly_once_over_sasl_ssl(
    broker: FakeBroker, authority: CertificateAuthority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    query = Query(broker.bootstrap_servers, "orders", **options(authority, tmp_path))
    query.run(0)
    query.run(1)

    assert sorted(int(record.value or b"") for record in broker.records("orders", committed=True)) == rows_of(0, 1)
    assert CANARY not in caplog.text + repr(query.options)


def test_a_wrong_password_is_reported_without_it(
    broker: FakeBroker, authority: CertificateAuthority, tmp_path: Path
) -> None:
    assert broker.logins is not None
    broker.logins.users["alice"] = "another"
    query = Query(broker.bootstrap_servers, "orders", **options(authority, tmp_path))
    with pytest.raises(KafkaError, match="SCRAM-SHA-256 login failed") as failed:
        query.run(0)
    assert CANARY not in str(failed.value)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_spark_writes_over_sasl_ssl_and_shows_no_secret(
    spark: SparkSession,
    broker: FakeBroker,
    authority: CertificateAuthority,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    df = spark.range(1000).selectExpr("cast(id AS string) AS value")
    (
        df.write.format("aioproducer")
        .mode("append")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("topic", "orders")
        .options(**options(authority, tmp_path))
        .save()
    )
    assert len(broker.records("orders")) == 1000
    session: Any = spark
    executions: Any = session._jsparkSession.sharedState().statusStore().executionsList()  # what the SQL tab shows
    plans = [executions.apply(index).physicalPlanDescription() for index in range(executions.size())]
    assert any("aioproducer" in plan.lower() or "AppendData" in plan for plan in plans)
    assert not any(CANARY in plan for plan in plans)
    shown = capfd.readouterr()
    assert CANARY not in shown.out + shown.err
