"""GSSAPI against a real key distribution centre and a real Kafka."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from aioproducer import NotWritten, Producer
from aioproducer.testing.kafka import KafkaCluster, KafkaUnavailable
from tests.needs import not_here
from tests.security.kdc import REALM, Kdc, missing, running_kdc

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    absent = missing()
    if absent is not None:
        pytest.skip(
            f"This test needs a KDC: apt-get install krb5-kdc krb5-admin-server krb5-user ({absent} is missing)."
        )
    with running_kdc(tmp_path_factory.mktemp("kdc")) as kdc, pytest.MonkeyPatch.context() as patch:
        for name, value in kdc.environment.items():
            patch.setenv(name, value)
        options = f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} -Djava.security.krb5.conf={kdc.config}"
        patch.setenv("JAVA_TOOL_OPTIONS", options.strip())
        yield kdc


@pytest.fixture(scope="module")
def kafka(kdc: Kdc) -> Iterator[KafkaCluster]:
    service = f"kafka/127.0.0.1@{REALM}"
    keytab = kdc.keytab("kafka/127.0.0.1")
    module = "com.sun.security.auth.module.Krb5LoginModule"
    properties = {
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.kerberos.gssapi.sasl.jaas.config": (
            f'{module} required useKeyTab=true storeKey=true keyTab="{keytab}" principal="{service}";'
        ),
        "listener.name.kerberos.connections.max.reauth.ms": "3000",
    }
    try:
        with KafkaCluster(properties=properties, listeners={"KERBEROS": "SASL_PLAINTEXT"}) as kafka:
            kafka.create_topic("orders")
            yield kafka
    except KafkaUnavailable as error:
        not_here(str(error))


async def test_a_ticket_lets_in_and_again_on_the_open_connection(kafka: KafkaCluster, kdc: Kdc, tmp_path: Path) -> None:
    kdc.log_in("alice", kdc.keytab("alice"))
    async with Producer(
        kafka.bootstrap("KERBEROS"),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="GSSAPI",
        sasl_kerberos_service_name="kafka",
    ) as producer:
        for _ in range(40):
            await producer.send("orders", b"value")
            await asyncio.sleep(0.1)


async def test_without_a_ticket_it_is_said_so(kafka: KafkaCluster, kdc: Kdc) -> None:
    kdc.log_out()
    async with Producer(
        kafka.bootstrap("KERBEROS"),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="GSSAPI",
        sasl_kerberos_service_name="kafka",
        close_timeout_ms=0,
    ) as producer:
        with pytest.raises(NotWritten, match=r"GSSAPI login failed: broker .* cannot be shown a ticket for kafka@127"):
            await producer.send("orders", b"value")
