"""TLS: who is trusted, who is not, and what each mix-up is called."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from aioproducer import AuthenticationError, KafkaError, NotWritten, NotWrittenTimeout, Producer, SyncProducer
from aioproducer.config import Secret
from aioproducer.testing import FakeBroker
from aioproducer.testing.certificates import CertificateAuthority
from tests.conftest import QUICK
from tests.net.peers import peer

TOPIC = {"orders": 1}


def options(authority: CertificateAuthority, **more: Any) -> dict[str, Any]:
    return {**QUICK, "security_protocol": "SSL", "ssl_truststore_certificates": authority.pem, **more}


async def refusal(servers: str, **options: Any) -> str:
    """The error of a send that must fail, as soon as that is clear."""
    async with Producer(servers, close_timeout_ms=0, **{"max_block_ms": 10_000, **options}) as producer:
        async with asyncio.timeout(5):
            with pytest.raises(KafkaError) as failed:
                await producer.send("orders", b"value")
    assert not isinstance(failed.value, TimeoutError)
    return str(failed.value)


async def late(servers: str, **options: Any) -> str:
    """The error of a send that waited without success."""
    async with Producer(servers, close_timeout_ms=0, **{"max_block_ms": 400, **QUICK, **options}) as producer:
        with pytest.raises(NotWrittenTimeout) as failed:
            await producer.send("orders", b"value")
    return str(failed.value)


async def test_records_arrive_over_tls(authority: CertificateAuthority) -> None:
    with FakeBroker(brokers=3, topics={"orders": 6}, tls=authority.server_context()) as broker:
        async with Producer(broker.bootstrap_servers, **options(authority)) as producer:
            for number in range(200):
                producer.enqueue_nowait("orders", b"%d" % number, partition=number % 6) if number > 6 else (
                    await producer.send("orders", b"%d" % number, partition=number % 6)
                )
            await producer.send("orders", b"x" * 500_000)
            await producer.flush()
        assert len(broker.records("orders")) == 201


def test_records_arrive_over_tls_without_an_event_loop(authority: CertificateAuthority) -> None:
    with FakeBroker(topics=TOPIC, tls=authority.server_context()) as broker:
        with SyncProducer(broker.bootstrap_servers, **options(authority)) as producer:
            producer.send("orders", b"value")
        broker.assert_sent("orders", value=b"value")


async def test_acks_0_is_reported_when_it_was_written(authority: CertificateAuthority) -> None:
    with FakeBroker(topics=TOPIC, tls=authority.server_context()) as broker:
        async with Producer(
            broker.bootstrap_servers, **options(authority, acks=0, enable_idempotence=False)
        ) as producer:
            await producer.send("orders", b"value")
            await broker.wait_for_async(1)


async def test_authorities_may_be_in_a_file(authority: CertificateAuthority, tmp_path: Path) -> None:
    file = authority.write(tmp_path / "ca.pem")
    with FakeBroker(topics=TOPIC, tls=authority.server_context()) as broker:
        async with Producer(broker.bootstrap_servers, security_protocol="SSL", ssl_cafile=file) as producer:
            await producer.send("orders", b"value")


async def test_a_context_of_ones_own_is_used_as_it_is(authority: CertificateAuthority) -> None:
    context = ssl.create_default_context(cadata=authority.pem)
    with FakeBroker(topics=TOPIC, tls=authority.server_context()) as broker:
        async with Producer(broker.bootstrap_servers, security_protocol="SSL", ssl_context=context) as producer:
            await producer.send("orders", b"value")
    assert context.session_stats()["connect_good"] >= 1


# -- who is not trusted -----------------------------------------------------------------------------------------------


async def test_an_authority_that_is_not_configured_is_not_trusted(authority: CertificateAuthority) -> None:
    with FakeBroker(topics=TOPIC, tls=CertificateAuthority().server_context()) as broker:
        assert "no trusted authority" in await refusal(broker.bootstrap_servers, **options(authority))
        assert broker.requests == []


async def test_the_system_trusts_no_authority_of_a_test(authority: CertificateAuthority) -> None:
    with FakeBroker(topics=TOPIC, tls=authority.server_context()) as broker:
        assert "ssl_cafile" in await refusal(broker.bootstrap_servers, security_protocol="SSL")


async def test_a_certificate_for_another_host_is_rejected(authority: CertificateAuthority) -> None:
    with FakeBroker(topics=TOPIC, tls=authority.server_context("kafka.example")) as broker:
        message = await refusal(broker.bootstrap_servers, **options(authority))
    assert "its certificate is not for '127.0.0.1'" in message


async def test_each_host_that_is_advertised_is_verified_not_just_the_first(authority: CertificateAuthority) -> None:
    """The certificate is for localhost; the broker then sends its clients to 127.0.0.1."""
    with FakeBroker(topics=TOPIC, tls=authority.server_context("localhost")) as broker:
        port = broker.addresses[1][1]
        given = options(authority, max_block_ms=10_000, delivery_timeout_ms=800, request_timeout_ms=500)
        reported = await late(f"localhost:{port}", **given)
        assert "its certificate is not for '127.0.0.1'" in reported
        assert broker.count("Produce") == 0


async def test_an_expired_certificate_is_rejected(authority: CertificateAuthority) -> None:
    with FakeBroker(topics=TOPIC, tls=authority.server_context(expired=True)) as broker:
        assert "expired, or the clock" in await refusal(broker.bootstrap_servers, **options(authority))


async def test_a_certificate_of_tomorrow_is_rejected(authority: CertificateAuthority) -> None:
    with FakeBroker(topics=TOPIC, tls=authority.server_context(early=True)) as broker:
        message = await refusal(broker.bootstrap_servers, **options(authority))
    assert "not valid yet, or the clock of this machine is behind" in message


async def test_a_broker_that_speaks_old_tls_only_is_refused(authority: CertificateAuthority) -> None:
    server = authority.server_context()
    server.maximum_version = ssl.TLSVersion.TLSv1_2
    with FakeBroker(topics=TOPIC, tls=server) as broker:
        async with Producer(broker.bootstrap_servers, **options(authority)) as producer:
            await producer.send("orders", b"value")
        reported = await late(broker.bootstrap_servers, **options(authority, ssl_min_version="TLSv1.3"))
        assert "ssl_min_version" in reported


async def test_it_works_once_the_certificate_is_right(authority: CertificateAuthority) -> None:
    """One that was refused before must not fail what is sent later."""
    context = authority.server_context("kafka.example")
    with FakeBroker(topics=TOPIC, tls=context) as broker:
        async with Producer(broker.bootstrap_servers, **options(authority)) as producer:
            for _ in range(2):
                with pytest.raises(NotWritten, match="its certificate is not for") as failed:
                    await producer.send("orders", b"value")
                assert isinstance(failed.value.__cause__, AuthenticationError)
            authority.identify(context, "127.0.0.1")
            await producer.send("orders", b"value")


# -- certificates of clients ------------------------------------------------------------------------------------------


@pytest.fixture(params=["TLSv1.2", "TLSv1.3"])
def strict(request: pytest.FixtureRequest, authority: CertificateAuthority) -> ssl.SSLContext:
    """Of a server that rejects clients without a certificate, in both ways in which TLS says so."""
    context = authority.server_context(client_authority=authority)
    if request.param == "TLSv1.2":
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


async def test_mutual_tls(authority: CertificateAuthority, tmp_path: Path, strict: ssl.SSLContext) -> None:
    client = authority.issue("alice", common_name="alice")
    whole = client.write(tmp_path / "client.pem")
    (tmp_path / "cert.pem").write_text(client.certificate)
    (tmp_path / "key.pem").write_text(client.key)
    encrypted = (
        load_pem_private_key(client.key.encode(), None)
        .private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"open sesame"))
        .decode()
    )
    (tmp_path / "encrypted.pem").write_text(encrypted)
    ways: list[dict[str, Any]] = [
        {"ssl_certfile": whole},
        {"ssl_certfile": str(tmp_path / "cert.pem"), "ssl_keyfile": str(tmp_path / "key.pem")},
        {"ssl_keystore_certificate_chain": client.certificate, "ssl_keystore_key": client.key},
        {
            "ssl_certfile": str(tmp_path / "cert.pem"),
            "ssl_keyfile": str(tmp_path / "encrypted.pem"),
            "ssl_key_password": "open sesame",
        },
        {
            "ssl_keystore_certificate_chain": client.certificate,
            "ssl_keystore_key": Secret(encrypted),
            "ssl_key_password": "open sesame",
        },
    ]
    with FakeBroker(topics=TOPIC, tls=strict) as broker:
        for way in ways:
            async with Producer(broker.bootstrap_servers, **options(authority, **way)) as producer:
                await producer.send("orders", b"value")
        assert len(broker.records()) == len(ways)

        wrong = {**ways[-1], "ssl_key_password": "shut sesame"}
        assert "ssl_key_password right?" in await refusal(broker.bootstrap_servers, **options(authority, **wrong))
        del wrong["ssl_key_password"]  # must not ask for it at the terminal
        assert "ssl_key_password right?" in await refusal(broker.bootstrap_servers, **options(authority, **wrong))
        message = await refusal(broker.bootstrap_servers, **options(authority, ssl_certfile=str(tmp_path / "none.pem")))
        assert "none.pem" in message
        assert "No such file" in message


@contextmanager
def lets_in(context: ssl.SSLContext) -> Iterator[str]:
    """A server that says why it rejects a client, as Java's do; asyncio's (FakeBroker) just hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    accepted, _ = listening.accept()
                    with suppress(OSError), context.wrap_socket(accepted, server_side=True) as connection:
                        connection.recv(1)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
    thread.join()


async def test_a_client_without_the_right_certificate_is_reported(
    authority: CertificateAuthority, strict: ssl.SSLContext, tmp_path: Path
) -> None:
    stranger = CertificateAuthority().issue("mallory").write(tmp_path / "stranger.pem")
    expired = authority.issue("alice", expired=True).write(tmp_path / "expired.pem")
    with lets_in(strict) as server:
        assert "ssl_certfile" in await refusal(server, **options(authority))
        message = await refusal(server, **options(authority, ssl_certfile=stranger))
        assert "does not trust the authority" in message
        message = await refusal(server, **options(authority, ssl_certfile=expired))
        assert "ssl_certfile) as expired" in message
        assert "ssl_min_version" in await refusal(server, **options(authority, ssl_min_version="TLSv1.3")) or (
            strict.maximum_version != ssl.TLSVersion.TLSv1_2
        )


async def test_a_client_whose_certificate_was_revoked_is_reported(
    authority: CertificateAuthority, strict: ssl.SSLContext, tmp_path: Path
) -> None:
    client = authority.issue("alice")
    (tmp_path / "crl.pem").write_text(authority.revocations(client))
    strict.load_verify_locations(tmp_path / "crl.pem")
    strict.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    with lets_in(strict) as server:
        message = await refusal(server, **options(authority, ssl_certfile=client.write(tmp_path / "client.pem")))
    assert "ssl_certfile) as revoked" in message


async def test_certificates_are_read_again_for_each_connection(
    authority: CertificateAuthority, strict: ssl.SSLContext, tmp_path: Path
) -> None:
    file = tmp_path / "client.pem"
    authority.issue("alice", expired=True).write(file)
    with FakeBroker(topics=TOPIC, tls=strict) as broker:
        given = options(authority, ssl_certfile=str(file), max_block_ms=400)
        async with Producer(broker.bootstrap_servers, **given) as producer:
            with pytest.raises(KafkaError):
                await producer.send("orders", b"value")
            authority.issue("alice").write(file)
            async with asyncio.timeout(10):
                await producer.ready(10)
            await producer.send("orders", b"value")


# -- mix-ups ----------------------------------------------------------------------------------------------------------


async def test_a_tls_port_that_is_spoken_to_in_plaintext_is_guessed(authority: CertificateAuthority) -> None:
    with FakeBroker(topics=TOPIC, tls=authority.server_context()) as broker:
        assert "listener with TLS (security_protocol SSL or SASL_SSL)" in await late(broker.bootstrap_servers)


async def test_a_server_that_answers_with_an_alert_of_tls_is_guessed() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"\x15\x03\x03\x00\x02\x02\x50")  # internal_error, as Java's SSLEngine says it
        await writer.drain()

    async with peer(serve) as tls:
        assert "answers in TLS: set security_protocol to SSL" in await late(tls.address)


async def test_a_port_without_tls_that_is_spoken_to_in_tls_is_guessed(authority: CertificateAuthority) -> None:
    with FakeBroker(topics=TOPIC) as broker:
        assert "listener without TLS" in await late(broker.bootstrap_servers, **options(authority))


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
async def test_a_web_server_is_guessed(authority: CertificateAuthority, protocol: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        await writer.drain()

    async with peer(serve) as web:
        given: dict[str, Any] = options(authority) if protocol == "SSL" else {}
        reported = await late(web.address, **given)
    assert "answers in HTTP" in reported or "not Kafka?" in reported


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
async def test_a_silent_server_is_asked_about(authority: CertificateAuthority, protocol: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async with peer(serve) as silent:
        given: dict[str, Any] = options(authority) if protocol == "SSL" else {}
        reported = await late(silent.address, socket_connection_setup_timeout_ms=100, **given)
    assert (
        "is this a listener with TLS?" if protocol == "SSL" else "did not answer ApiVersions; is this Kafka?"
    ) in reported
    assert "within 0." in reported


async def test_a_refused_connection_logs_the_reason_and_the_address_once() -> None:
    reported = await late("127.0.0.1:1")
    assert reported.count("Connection refused") == 1
    assert reported.count("127.0.0.1:1") == 1
