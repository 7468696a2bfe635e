"""Faults while a connection is secured: no peer is trusted because of one, and nothing else breaks."""

from __future__ import annotations

import asyncio
import ssl
import struct
from contextlib import ExitStack
from random import Random
from typing import Any

import pytest

from aioproducer import ConfigError, Producer
from aioproducer._config.secret import Secret
from aioproducer.config import ProducerConfig
from aioproducer.core.cluster import Node
from aioproducer.core.sasl.mechanism import MechanismError
from aioproducer.core.sasl.oauthbearer import OAuthBearer
from aioproducer.core.sasl.plain import Plain
from aioproducer.core.sasl.words import shown
from aioproducer.errors import AuthenticationError, KafkaError
from aioproducer.net.connection import Connection
from aioproducer.net.connector import Connector
from aioproducer.net.security.login import REVEALING
from aioproducer.net.security.tls import make_context
from aioproducer.protocol import encode_response
from aioproducer.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
    SaslHandshakeResponse,
)
from aioproducer.testing import FakeBroker, Logins
from aioproducer.testing.certificates import CertificateAuthority
from tests.conftest import QUICK, Clock, turns, until
from tests.net.peers import Peer, peer, read_request, versions_answer

#: Of the event loop: more than what is to happen at once takes.
TURNS = 50


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority()


def secured(authority: CertificateAuthority, **more: Any) -> dict[str, Any]:
    return {**QUICK, "security_protocol": "SSL", "ssl_truststore_certificates": authority.pem} | more


async def test_acks_0_over_tls_is_not_acknowledged_before_all_bytes_have_left(authority: CertificateAuthority) -> None:
    """The transport of TLS does not count what waits in the one beneath."""
    with FakeBroker(topics={"orders": 1}, tls=authority.server_context(), receive_buffer=65536) as broker:
        options = secured(authority, acks=0, enable_idempotence=False, batch_size=1_000_000, send_buffer_bytes=65536)
        async with Producer(broker.bootstrap_servers, **options) as producer:
            in_flight = producer.config.max_in_flight_requests_per_connection
            await producer.send("orders", b"first")
            reads = broker.hold_reads(1)
            sending = [asyncio.create_task(producer.send("orders", b"x" * 900_000)) for _ in range(in_flight)]
            await until(lambda: producer.metrics()["requests-in-flight"] == in_flight)
            for _ in range(TURNS):  # it would be acknowledged in one
                await asyncio.sleep(0)
            assert not any(each.done() for each in sending), "so many bytes fit into no buffer of the system"
            reads.release()
            await asyncio.gather(*sending)
        await broker.wait_for_async(1 + in_flight, 30)


@pytest.mark.parametrize("suites", ["AECDH-AES256-SHA,@SECLEVEL=0", "ALL,!aNULL", "HIGH:+AES", "-ALL"])
def test_rules_are_no_names_of_ciphers(suites: str) -> None:
    with pytest.raises(ConfigError, match="pass an ssl_context"):
        ProducerConfig.create("localhost:9093", security_protocol="SSL", ssl_cipher_suites=suites)


@pytest.mark.parametrize("suites", ["ALL,aNULL", "ALL,eNULL,aNULL", "ECDHE-RSA-AES256-GCM-SHA384"])
def test_no_cipher_does_without_a_certificate_or_encryption(suites: str) -> None:
    config = ProducerConfig.create("localhost:9093", security_protocol="SSL", ssl_cipher_suites=suites)

    ciphers = make_context(config).get_ciphers()

    assert ciphers
    assert not [each for each in ciphers if "Au=None" in each["description"] or "Enc=None" in each["description"]]


def test_a_bundle_may_have_names_between_its_certificates(authority: CertificateAuthority) -> None:
    bundle = f"# Société Générale\n{authority.pem}\n# Æ\n{CertificateAuthority().pem}"

    context = make_context(
        ProducerConfig.create("localhost:9093", **secured(authority) | {"ssl_truststore_certificates": bundle})
    )

    assert len(context.get_ca_certs()) == 2
    cut_off = bundle.partition("END")[0]
    with pytest.raises(AuthenticationError, match="ssl_truststore_certificates cannot be read"):
        make_context(ProducerConfig.create("localhost:9093", **secured(authority, ssl_truststore_certificates=cut_off)))


async def test_one_host_that_is_trusted_is_enough(authority: CertificateAuthority) -> None:
    """A certificate is of its host, unlike a password, which is of the cluster."""
    with ExitStack() as stack:
        tls = [authority.server_context(), *(CertificateAuthority().server_context() for _ in range(4))]
        brokers = [stack.enter_context(FakeBroker(topics={"orders": 1}, tls=each)) for each in tls]
        servers = ",".join(each.bootstrap_servers for each in brokers)
        for _ in range(6):
            async with Producer(servers, **secured(authority)) as producer:
                await producer.send("orders", b"value")


@pytest.mark.parametrize("host", ["local\0host", "localhost\0"])
async def test_a_name_that_no_certificate_can_have_is_refused(authority: CertificateAuthority, host: str) -> None:
    with FakeBroker(topics={"orders": 1}, tls=authority.server_context()) as broker:
        config = ProducerConfig.create(broker.bootstrap_servers, **secured(authority))
        connector = Connector(config, "test", Random(0))
        node = Node(1, host, int(broker.bootstrap_servers.rpartition(":")[2]))
        with pytest.raises(KafkaError):
            await connector.connect(node, 0, 2.0, lambda *_: None)
        await connector.close(KafkaError("That was all."))


@pytest.mark.parametrize("raised", [ValueError("canary-secret"), OSError("canary-secret")])
async def test_an_exception_of_the_program_in_a_login_ends_no_producer(
    raised: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    is_broken = True

    async def credentials() -> tuple[str, str]:
        if is_broken:
            raise raised
        return "alice", "right"

    caplog.set_level("DEBUG")
    with FakeBroker(topics={"orders": 1}, logins=Logins(users={"alice": "right"})) as broker:
        options = {**QUICK, "max_block_ms": 500, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
        async with Producer(broker.bootstrap_servers, sasl_credentials_provider=credentials, **options) as producer:
            with pytest.raises(KafkaError) as reported:
                await producer.send("orders", b"value")
            is_broken = False
            await producer.send("orders", b"value", timeout=20)

    assert "canary-secret" not in str(reported.value)
    assert "canary-secret" not in caplog.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bad\nINFO forged \x1b[31m", "bad\\nINFO forged \\x1b[31m"),
        ("x" * 1000, "x" * 300 + "..."),
        ("no login for hunter2 here", "no login for *** here"),
        ("naïve", "naïve"),
    ],
)
def test_the_text_of_a_broker_is_shown_in_one_line(text: str, expected: str) -> None:
    assert shown(text, "hunter2") == expected


async def answer_versions(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    header, _ = await read_request(reader)
    writer.write(versions_answer(header))
    await reader.read()


async def connected(to: Peer) -> Connection:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(lambda: Connection("1", "test", lambda *_: None), "127.0.0.1", to.port)
    return connection


async def test_a_request_that_cannot_be_sent_after_a_login_does_not_cost_those_behind_it() -> None:
    async with peer(answer_versions) as other:
        connection = await connected(other)
        reported: list[Any] = []
        connection.hold()
        unfit: Any = MetadataRequest(topics=5)  # type: ignore[arg-type]
        connection.send(unfit, 12, reported.append, 5, read=MetadataResponse.decode)
        connection.send(ApiVersionsRequest(), 3, reported.append, 5, read=ApiVersionsResponse.decode)
        connection.release()
        await asyncio.sleep(0)
        assert [type(each).__name__ for each in reported] == ["ProtocolError"]
        assert isinstance(reported[0].__cause__, ValueError)
        assert connection.in_flight == 1, "the one behind it is on its way"
        connection.abort(KafkaError("That was all."))
        assert len(reported) == 2


async def test_a_timer_that_comes_in_the_middle_of_a_login_finds_only_held_requests() -> None:
    clock = Clock()
    async with peer(answer_versions) as other:
        connection = await connected(other)
        failures: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        reported: list[object] = []
        connection.send(ApiVersionsRequest(), 3, reported.append, 20, read=ApiVersionsResponse.decode)
        await until(lambda: reported)
        assert not isinstance(reported[0], Exception)
        connection.hold()
        connection.send(ApiVersionsRequest(), 3, reported.append, 50, read=ApiVersionsResponse.decode)
        clock.advance(21)  # now the timer of the first request is due
        await turns()
        assert failures == []
        assert not connection.closed
        connection.abort(KafkaError("That was all."))


async def test_a_connection_ends_when_all_that_was_sent_is_answered() -> None:
    async with peer(answer_versions) as other:
        connection, gone = await connected(other), KafkaError("That was all.")
        reported: list[object] = []
        connection.send(ApiVersionsRequest(), 3, reported.append, 5, read=ApiVersionsResponse.decode)
        never = asyncio.get_running_loop().time() + 3600
        await connection.abort_when_idle(never, gone)
        assert connection.error is gone
        assert [isinstance(each, Exception) for each in reported] == [False]


async def test_a_connection_whose_peer_does_not_answer_ends_in_time() -> None:
    async with peer(answer_versions) as other:
        connection, gone = await connected(other), KafkaError("That was all.")
        reported: list[object] = []
        for _ in range(2):  # it answers once
            connection.send(ApiVersionsRequest(), 3, reported.append, 5, read=ApiVersionsResponse.decode)
        await connection.abort_when_idle(asyncio.get_running_loop().time() + 0.2, gone)
        assert [isinstance(each, Exception) for each in reported] == [False, True]


def test_a_context_of_ones_own_is_configured_in_ones_own_code(authority: CertificateAuthority) -> None:
    context = ssl.create_default_context(cadata=authority.pem)

    config = ProducerConfig.create("localhost:9093", security_protocol="SSL", ssl_context=context)

    assert config.ssl_context is context
    with pytest.raises(ConfigError, match="ssl_context is a server's"):
        config.replace(ssl_context=authority.server_context())


async def test_a_context_without_verification_is_used_with_a_warning(
    authority: CertificateAuthority, caplog: pytest.LogCaptureFixture
) -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with FakeBroker(topics={"orders": 1}, tls=authority.server_context()) as broker:
        async with Producer(
            broker.bootstrap_servers, security_protocol="SSL", ssl_context=context, client_id="shop"
        ) as producer:
            await producer.send("orders", b"value")

    warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert warnings == [
        "[shop] The ssl_context does not verify the brokers: an attacker could read the records and the login."
    ]


class Peername(asyncio.Transport):
    """A transport that knows who is at the other end, and nothing else."""

    def __init__(self, peer: object) -> None:
        super().__init__({"peername": peer})

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


@pytest.mark.parametrize(
    ("peer", "is_local"),
    [
        (("127.0.0.1", 9092), True),
        (("127.3.2.1", 9092), True),
        (("::1", 9092, 0, 0), True),
        (("::ffff:10.0.0.1", 9092, 0, 0), False),
        (("fe80::1%eth0", 9092, 0, 2), False),
        (("10.0.0.1", 9092), False),
        (("192.0.2.7", 9092), False),
        ("/run/kafka.sock", False),
        (None, False),
    ],
)
async def test_secrets_stay_on_this_machine_only_where_the_other_end_is_on_it(peer: object, *, is_local: bool) -> None:
    connection = Connection("1", "test", lambda *_: None)
    connection.connection_made(Peername(peer))

    assert connection.is_local is is_local


@pytest.mark.parametrize("given", [("al\0ice", "secret"), ("alice", "sec\0ret"), ("alice", "sec\udcffret")])
def test_plain_refuses_what_it_cannot_hold_without_showing_it(given: tuple[str, str]) -> None:
    user, password = given
    with pytest.raises(MechanismError, match="cannot be sent a user name or password") as refused:
        Plain(user, Secret(password)).start()

    assert "sec" not in str(refused.value)
    assert (refused.value.__cause__, refused.value.__context__) == (None, None)


@pytest.mark.parametrize("extensions", [{"auth": "x"}, {"a": "x\x01auth=Bearer y"}, {"a b": "x"}, {"": "x"}])
def test_an_extension_cannot_become_something_else_in_the_message(extensions: dict[str, str]) -> None:
    with pytest.raises(MechanismError, match="cannot be sent the extension"):
        OAuthBearer(Secret("token"), extensions).start()


def test_a_broker_that_repeats_the_token_does_not_bring_it_into_the_error() -> None:
    mechanism = OAuthBearer(Secret("canary-token"), {})
    mechanism.start()
    mechanism.challenged(b'{"status": "invalid canary-token\\n"}')

    assert mechanism.explain("canary-token is bad") == "*** is bad (status invalid ***\\n)"


def test_a_status_that_a_broker_sends_twice_is_reported_once_and_with_its_causes() -> None:
    """Kafka's validator answers every token that it does not accept like this."""
    mechanism = OAuthBearer(Secret("canary-token"), {})
    mechanism.start()
    mechanism.challenged(b'{"status":"invalid_token"}')

    assert mechanism.explain('{"status":"invalid_token"}') == (
        "status invalid_token: the signature, issuer, audience or time of the token is not what the broker accepts; the "
        "broker's log says which"
    )


async def test_before_the_login_is_over_no_large_frame_is_waited_for() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        header, _ = await read_request(reader)
        writer.write(versions_answer(header))
        header, _ = await read_request(reader)
        response = SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])
        writer.write(b"".join(map(bytes, encode_response(header.correlation_id, response, header.api_version))))
        await read_request(reader)
        writer.write(struct.pack(">i", 100_000) + bytes(10))
        await reader.read()

    login = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "a",
        "sasl_password": "b",
    }
    async with peer(serve) as hostile, Producer(hostile.address, **{**QUICK, **login, "max_block_ms": 700}) as producer:
        with pytest.raises(KafkaError, match=r"announced a frame of 100000 bytes; \d+ to 65536 are accepted"):
            await producer.send("orders", b"value")


def test_the_mechanisms_that_reveal_what_logs_in() -> None:
    assert frozenset({"PLAIN", "OAUTHBEARER", "AWS_MSK_IAM"}) == REVEALING
