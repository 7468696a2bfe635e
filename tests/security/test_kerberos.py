"""GSSAPI against a real key distribution centre and a real Kafka."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import pytest

from aioproducer import NotWritten, Producer
from aioproducer.cli.main import main
from aioproducer.core.sasl.mechanism import MechanismError, SendToken
from aioproducer.net.security.gssapi import Gssapi
from aioproducer.testing.kafka import KafkaCluster, KafkaUnavailable
from tests.fuzzing import each_count, survive
from tests.needs import not_here
from tests.security.kdc import REALM, Kdc, missing, running_kdc

SERVICE = "sasl.kerberos.service.name=kafka"

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


async def test_a_ticket_lets_in_and_again_on_the_open_connection(
    kafka: KafkaCluster, kdc: Kdc, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "aioproducer")
    kdc.log_in("alice", kdc.keytab("alice"))
    async with Producer(
        kafka.bootstrap("KERBEROS"),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="GSSAPI",
        sasl_kerberos_service_name="kafka",
    ) as producer:
        async with asyncio.timeout(30):
            while "The GSSAPI login to broker" not in caplog.text:
                await producer.send("orders", b"value")
        await producer.send("orders", b"value")
    assert "was renewed" in caplog.text
    assert "was closed by the broker" not in caplog.text


async def test_a_missing_ticket_is_reported(kafka: KafkaCluster, kdc: Kdc) -> None:
    kdc.log_out()
    async with Producer(
        kafka.bootstrap("KERBEROS"),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="GSSAPI",
        sasl_kerberos_service_name="kafka",
        close_timeout_ms=0,
    ) as producer:
        with pytest.raises(
            NotWritten,
            match=r"GSSAPI login failed: broker .* cannot be logged in to with a Kerberos ticket for kafka@127",
        ):
            await producer.send("orders", b"value")


def test_the_doctor_finds_no_fault_with_a_ticket_and_names_a_missing_one(
    kafka: KafkaCluster, kdc: Kdc, capsys: pytest.CaptureFixture[str]
) -> None:
    login = ["-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=GSSAPI", "-X", SERVICE]
    kdc.log_in("alice", kdc.keytab("alice"))
    sound = main(["doctor", kafka.bootstrap("KERBEROS"), "orders", "--send", *login])
    assert (sound, capsys.readouterr().err) == (0, "")

    kdc.log_out()
    assert main(["doctor", kafka.bootstrap("KERBEROS"), "orders", *login]) == 1
    assert "klist" in capsys.readouterr().out


def handshake(kdc: Kdc) -> tuple[Gssapi, Any, bytes]:
    """The client that has begun, the context of a server, and what the server answers first."""
    import gssapi

    kdc.log_in("alice", kdc.keytab("alice"))
    client = Gssapi("kafka", "127.0.0.1")
    keytab: dict[bytes | str, bytes | str] = {"keytab": str(kdc.keytab("kafka/127.0.0.1"))}
    server = gssapi.SecurityContext(creds=gssapi.Credentials(usage="accept", store=keytab), usage="accept")
    begun = client.start()
    assert isinstance(begun, SendToken)
    return client, server, server.step(bytes(begun.token))


@each_count
def test_an_answer_that_is_nearly_right(kdc: Kdc, count: int) -> None:
    _, _, right = handshake(kdc)
    client = Gssapi("kafka", "127.0.0.1")

    def answer(data: bytes) -> None:
        client.start()
        client.challenged(data)

    assert survive("GSSAPI, first", answer, [right], MechanismError, count).refused > count // 2


@each_count
def test_an_offer_of_protection_that_is_nearly_right(kdc: Kdc, count: int) -> None:
    """Half of the inputs are what an honest server says of itself, half what an attacker in between makes of it."""
    client, server, right = handshake(kdc)
    client.challenged(right)
    sent = 0

    def offer(data: bytes) -> None:
        nonlocal sent
        sent += 1
        client._is_agreed = False
        client.challenged(server.wrap(data, False).message if sent % 2 else data)

    seeds = [b"\1\0\0\0", b"\7\0\xff\xff", server.wrap(b"\1\0\0\0", False).message]
    assert min(survive("GSSAPI, second", offer, seeds, MechanismError, count)) > count // 100
