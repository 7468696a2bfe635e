"""Logging in: each mechanism, what it does about brokers that refuse or cannot be trusted, and logging in again."""

from __future__ import annotations

import asyncio
import json
import re
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Any

import pytest
import uvloop

from aioproducer import (
    AuthenticationError,
    KafkaError,
    NotWritten,
    NotWrittenTimeout,
    OAuthToken,
    Producer,
    SyncProducer,
    TransactionCoordinatorClient,
)
from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.testing import FakeBroker, Logins
from aioproducer.testing.broker.secured import SecuredBroker
from aioproducer.testing.certificates import CertificateAuthority
from tests.conftest import QUICK, Clock, until

TOPIC = {"orders": 1}
USERS = {"alice": "alice-secret"}
ALICE: dict[str, Any] = {"sasl_username": "alice", "sasl_password": "alice-secret"}
WITH_PASSWORD = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


def options(mechanism: str, **more: Any) -> dict[str, Any]:
    credentials: dict[str, Any] = {} if mechanism == "OAUTHBEARER" or "sasl_credentials_provider" in more else ALICE
    return {**QUICK, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism, **credentials, **more}


def jwt(life_s: float = 3600.0) -> str:
    def part(claims: dict[str, Any]) -> str:
        return urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part({'sub': 'alice', 'exp': time.time() + life_s})}."


async def refusal(broker: FakeBroker | str, **options: Any) -> str:
    """The error of a send that must fail, as soon as that is clear."""
    servers = broker if isinstance(broker, str) else broker.bootstrap_servers
    async with Producer(servers, close_timeout_ms=0, **{"max_block_ms": 20_000, **options}) as producer:
        async with asyncio.timeout(5):
            with pytest.raises(NotWritten) as failed:
                await producer.send("orders", b"value")
    assert isinstance(failed.value.__cause__, AuthenticationError)
    return str(failed.value)


@pytest.mark.parametrize("mechanism", WITH_PASSWORD)
async def test_a_password_lets_in(mechanism: str) -> None:
    with FakeBroker(topics=TOPIC, logins=Logins(USERS)) as broker:
        async with Producer(broker.bootstrap_servers, **options(mechanism)) as producer:
            await producer.send("orders", b"value")
        broker.assert_sent("orders", value=b"value")
        assert broker.logins is not None
        assert [(how, who) for _, how, who in broker.logins.seen] == [(mechanism, "alice")]


@pytest.mark.parametrize("mechanism", WITH_PASSWORD)
async def test_logging_in_over_tls(mechanism: str, authority: CertificateAuthority) -> None:
    with FakeBroker(brokers=3, topics={"orders": 3}, logins=Logins(USERS), tls=authority.server_context()) as broker:
        given = options(mechanism, security_protocol="SASL_SSL", ssl_truststore_certificates=authority.pem)
        async with Producer(broker.bootstrap_servers, **given) as producer:
            for partition in range(3):
                await producer.send("orders", b"value", partition=partition)
        assert len(broker.records()) == 3


def test_logging_in_without_an_event_loop() -> None:
    with FakeBroker(topics=TOPIC, logins=Logins(USERS)) as broker:
        with SyncProducer(broker.bootstrap_servers, **options("SCRAM-SHA-256")) as producer:
            producer.send("orders", b"value")
        broker.assert_sent("orders", value=b"value")


async def test_a_coordinator_client_logs_in(secured_broker: SecuredBroker) -> None:
    servers, given = secured_broker.bootstrap_servers, secured_broker.client_options
    async with TransactionCoordinatorClient(servers, **given) as coordinator:
        handle = await coordinator.init("t")
        async with Producer.attach(handle, servers, **given) as writer:
            await writer.send("orders", b"value")
        await coordinator.commit(handle)
    assert len(secured_broker.records("orders", committed=True)) == 1


def test_it_works_with_uvloop(secured_broker: SecuredBroker) -> None:
    """Its sockets and its TLS are others."""
    logins = secured_broker.logins
    assert logins is not None
    logins.session_lifetime_ms = 1500

    async def main() -> None:
        async with Producer(secured_broker.bootstrap_servers, **secured_broker.client_options) as producer:
            while len(logins.seen) < 2:
                await producer.send("orders", b"value")
            await producer.send("orders", b"value")

    uvloop.run(main())
    assert len(secured_broker.connections(closed=True)) == 1


async def test_names_with_commas_and_equals_signs_are_reported_as_they_are() -> None:
    with FakeBroker(topics=TOPIC, logins=Logins({"a=b,c": "p,w=d"})) as broker:
        given = options("SCRAM-SHA-512", sasl_username="a=b,c", sasl_password="p,w=d")
        async with Producer(broker.bootstrap_servers, **given) as producer:
            await producer.send("orders", b"value")


async def test_a_transactional_producer_logs_in() -> None:
    with FakeBroker(topics=TOPIC, logins=Logins(USERS)) as broker:
        given = options("PLAIN", transactional_id="t")
        async with Producer(broker.bootstrap_servers, **given) as producer, producer.transaction() as txn:
            await txn.enqueue("orders", b"value")
        assert len(broker.records("orders", committed=True)) == 1


async def test_the_fixture_gives_a_secured_broker_in_one_line(secured_broker: SecuredBroker) -> None:
    async with Producer(secured_broker.bootstrap_servers, **secured_broker.client_options) as producer:
        await producer.send("orders", b"value")
    secured_broker.assert_sent("orders", value=b"value")


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", WITH_PASSWORD)
async def test_a_wrong_password_is_reported_at_once_with_the_broker_and_the_mechanism(mechanism: str) -> None:
    with FakeBroker(topics=TOPIC, logins=Logins(USERS)) as broker:
        message = await refusal(broker, **options(mechanism, sasl_password="wrong"))
        assert (
            f"{mechanism} login failed: broker 127.0.0.1:{broker.addresses[1][1]} refused the credentials: Authent"
            in message
        )
        assert "wrong" not in message.replace("wrong mechanism", "")
        assert broker.count("Metadata") == 0


async def test_the_next_attempt_works_once_the_password_is_right() -> None:
    logins = Logins({"alice": "other"})
    with FakeBroker(topics=TOPIC, logins=logins) as broker:
        async with Producer(broker.bootstrap_servers, **options("PLAIN")) as producer:
            for _ in range(3):
                with pytest.raises(NotWritten) as failed:
                    await producer.send("orders", b"value")
                assert isinstance(failed.value.__cause__, AuthenticationError)
            logins.users["alice"] = "alice-secret"
            await producer.send("orders", b"value")


async def test_a_transactional_producer_works_once_the_password_is_right() -> None:
    logins = Logins({"alice": "other"})
    with FakeBroker(topics=TOPIC, logins=logins) as broker:
        producer = Producer(broker.bootstrap_servers, transactional_id="t", **options("PLAIN"))
        async with producer:
            with pytest.raises(AuthenticationError):
                await producer.init_transactions()
            logins.users["alice"] = "alice-secret"
            await producer.init_transactions()
            async with producer.transaction() as txn:
                await txn.enqueue("orders", b"value")


async def test_a_mechanism_that_is_not_offered() -> None:
    with FakeBroker(topics=TOPIC, logins=Logins(USERS, mechanisms=["SCRAM-SHA-512"])) as broker:
        message = await refusal(broker, **options("PLAIN"))
    assert "does not offer it; it offers SCRAM-SHA-512 (sasl_mechanism)" in message


async def test_a_listener_without_logins() -> None:
    with FakeBroker(topics=TOPIC) as broker:
        assert "does not expect a login at this port" in await refusal(broker, **options("PLAIN"))


async def test_a_listener_that_wants_a_login_and_gets_none() -> None:
    with FakeBroker(topics=TOPIC, logins=Logins(USERS)) as broker:
        async with Producer(broker.bootstrap_servers, max_block_ms=400, close_timeout_ms=0, **QUICK) as producer:
            with pytest.raises(NotWrittenTimeout, match="does it require a login"):
                await producer.send("orders", b"value")


async def test_a_broker_that_refuses_the_step(broker: FakeBroker) -> None:
    broker.cluster.logins = Logins(USERS)
    broker.fail("SaslAuthenticate", ErrorCode.SASL_AUTHENTICATION_FAILED, times=None)
    assert "refused the credentials: error 58" in await refusal(broker, **options("PLAIN"))


@pytest.mark.parametrize("api", ["SaslHandshake", "SaslAuthenticate"])
async def test_a_broker_that_stalls_in_the_login_costs_the_setup_time_and_no_more(api: str) -> None:
    with FakeBroker(topics=TOPIC, logins=Logins(USERS)) as broker:
        broker.swallow(api, times=None)
        given = options("PLAIN", max_block_ms=500, socket_connection_setup_timeout_ms=150)
        began = time.monotonic()
        async with Producer(broker.bootstrap_servers, close_timeout_ms=0, **given) as producer:
            with pytest.raises(NotWrittenTimeout, match="the PLAIN login did not complete"):
                await producer.send("orders", b"value")
        assert time.monotonic() - began < 3


async def test_secrets_do_not_leave_unencrypted_to_other_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    from aioproducer.net.connection import Connection

    monkeypatch.setattr(Connection, "is_local", False)  # patched: a broker on another machine is not to be had
    with FakeBroker(topics=TOPIC, logins=Logins(USERS)) as broker:
        message = await refusal(broker, **options("PLAIN"))
        assert "is not encrypted" in message
        assert "sasl_allow_plaintext_secrets=True" in message
        assert broker.count("SaslAuthenticate") == 0
        for given in (options("SCRAM-SHA-256"), options("PLAIN", sasl_allow_plaintext_secrets=True)):
            async with Producer(broker.bootstrap_servers, **given) as producer:
                await producer.send("orders", b"value")


# -- credentials that change ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", WITH_PASSWORD)
async def test_credentials_may_change_while_it_runs(mechanism: str) -> None:
    logins = Logins(dict(USERS))
    current = ["alice-secret"]

    async def credentials() -> tuple[str, str]:
        await asyncio.sleep(0)
        return "alice", current[0]

    with FakeBroker(topics=TOPIC, logins=logins) as broker:
        given = options(mechanism, sasl_credentials_provider=credentials)
        async with Producer(broker.bootstrap_servers, **given) as producer:
            await producer.send("orders", b"value")
            current[0] = logins.users["alice"] = "rotated"
            broker.disconnect()
            await producer.send("orders", b"value")


async def test_a_provider_that_fails_is_called_again_and_its_message_is_not_shown() -> None:
    failing = [True]

    def credentials() -> tuple[str, str]:
        if failing[0]:
            raise ValueError("the canary sings")
        return "alice", "alice-secret"

    with FakeBroker(topics=TOPIC, logins=Logins(USERS)) as broker:
        given = options("PLAIN", sasl_credentials_provider=credentials, max_block_ms=300)
        async with Producer(broker.bootstrap_servers, **given) as producer:
            with pytest.raises(
                NotWrittenTimeout, match="sasl_credentials_provider failed; it raised ValueError"
            ) as failed:
                await producer.send("orders", b"value")
            assert "canary" not in str(failed.value)
            failing[0] = False
            await producer.ready(10)
            await producer.send("orders", b"value")


# -- tokens -----------------------------------------------------------------------------------------------------------


async def test_a_token_lets_in_and_is_asked_for_once() -> None:
    asked: list[str] = []
    shown: list[tuple[str, Any]] = []

    async def token() -> OAuthToken:
        asked.append(jwt())
        return OAuthToken(asked[-1], extensions={"logicalCluster": "lkc-1"})

    def accept(token: str, extensions: Mapping[str, str]) -> bool:
        shown.append((token, dict(extensions)))
        return True

    logins = Logins(tokens=accept)
    with FakeBroker(brokers=3, topics={"orders": 3}, logins=logins) as broker:
        given = options("OAUTHBEARER", sasl_oauth_token_provider=token)
        async with Producer(broker.bootstrap_servers, **given) as producer:
            for partition in range(3):
                await producer.send("orders", b"value", partition=partition)
    assert len(asked) == 1
    assert shown[0] == (asked[0], {"logicalCluster": "lkc-1"})
    assert "OAuthToken(Secret" in repr(OAuthToken(asked[0]))


async def test_a_token_that_is_nearly_over_is_asked_for_again() -> None:
    asked: list[str] = []

    class Provider:
        def token(self) -> str:
            asked.append(jwt(-1 if len(asked) < 1 else 3600))
            return asked[-1]

    with FakeBroker(topics=TOPIC, logins=Logins()) as broker:
        given = options("OAUTHBEARER", sasl_oauth_token_provider=Provider())
        async with Producer(broker.bootstrap_servers, **given) as producer:
            await producer.send("orders", b"value")
            broker.disconnect()
            await producer.send("orders", b"value")
            broker.disconnect()
            await producer.send("orders", b"value")
    assert len(asked) == 2


async def test_a_token_that_is_refused_is_reported_with_the_status() -> None:
    with FakeBroker(topics=TOPIC, logins=Logins(tokens=lambda token, extensions: False)) as broker:
        message = await refusal(broker, **options("OAUTHBEARER", sasl_oauth_token_provider=jwt))
    assert "invalid_token" in message


@pytest.mark.parametrize("token", ["a\x01b", "line\nbreak", "", "with blank"])
async def test_a_token_cannot_smuggle_anything(token: str) -> None:
    with FakeBroker(topics=TOPIC, logins=Logins()) as broker:
        message = await refusal(broker, **options("OAUTHBEARER", sasl_oauth_token_provider=lambda: token))
        assert "contains characters that are not allowed in tokens" in message
        assert broker.count("SaslAuthenticate") == 0


async def test_a_provider_that_gives_something_else_is_reported() -> None:
    with FakeBroker(topics=TOPIC, logins=Logins()) as broker:
        given = options("OAUTHBEARER", sasl_oauth_token_provider=lambda: 7, max_block_ms=300)
        async with Producer(broker.bootstrap_servers, close_timeout_ms=0, **given) as producer:
            with pytest.raises(KafkaError, match="return the token as str, or an OAuthToken"):
                await producer.send("orders", b"value")


#: How long a login lasts for the broker, whose clock no test moves; and after which part of it the next one is always due.
SESSION_MS = 100_000
LOGIN_IS_DUE_S = 0.95 * SESSION_MS / 1000

# -- logging in again (KIP-368) ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", [*WITH_PASSWORD, "OAUTHBEARER"])
async def test_logging_in_again_on_the_open_connection_is_invisible(mechanism: str) -> None:
    """The broker hangs up on who asks for anything after the session's end, or in the middle of a login."""
    more: dict[str, Any] = {"sasl_oauth_token_provider": jwt} if mechanism == "OAUTHBEARER" else {}
    logins, clock, sent = Logins(USERS, session_lifetime_ms=SESSION_MS), Clock(), 0
    with FakeBroker(topics=TOPIC, logins=logins) as broker:
        async with Producer(broker.bootstrap_servers, **options(mechanism, batch_size=200, **more)) as producer:
            for renewals in range(4):
                while len(logins.seen) <= renewals:
                    deliveries = [await producer.enqueue("orders", b"%d" % (sent + each)) for each in range(20)]
                    sent += len(deliveries)
                    await asyncio.gather(*deliveries)
                clock.advance(LOGIN_IS_DUE_S)
        assert len(broker.connections(closed=True)) == 1
        assert [record.value for record in broker.records()] == [b"%d" % number for number in range(sent)]


async def test_logging_in_again_with_requests_in_flight() -> None:
    """Requests sent before a login are answered before it; those made during it leave after it."""
    clock = Clock()
    with FakeBroker(topics=TOPIC, logins=Logins(USERS, session_lifetime_ms=SESSION_MS)) as broker:
        async with Producer(broker.bootstrap_servers, **options("PLAIN", batch_size=100)) as producer:
            await producer.send("orders", b"0")
            with broker.hold("SaslHandshake") as held:
                clock.advance(LOGIN_IS_DUE_S)
                await until(lambda: held.waiting)
                kept = [await producer.enqueue("orders", b"x" * 60) for _ in range(3)]
                for _ in range(50):  # it would leave in a few
                    await asyncio.sleep(0)
            await asyncio.gather(*kept)
        assert len(broker.connections(closed=True)) == 1


async def test_a_login_that_cannot_be_renewed_costs_the_connection_and_loses_nothing() -> None:
    logins, clock = Logins(dict(USERS), session_lifetime_ms=SESSION_MS), Clock()
    with FakeBroker(topics=TOPIC, logins=logins) as broker:
        async with Producer(broker.bootstrap_servers, **options("SCRAM-SHA-256")) as producer:
            await producer.send("orders", b"before")
            logins.users["alice"] = "other"
            clock.advance(LOGIN_IS_DUE_S)
            await until(lambda: not broker.connections())
            waiting = await producer.enqueue("orders", b"after")
            refused = broker.count("SaslAuthenticate")
            await until(lambda: broker.count("SaslAuthenticate") > refused)
            logins.users["alice"] = "alice-secret"
            await waiting
        assert [record.value for record in broker.records()] == [b"before", b"after"]


class Vault:
    """Has a password, and fails when it is asked for the next ones."""

    def __init__(self, failures: int) -> None:
        self.asked = 0
        self._failures = failures

    async def credentials(self) -> tuple[str, str]:
        self.asked += 1
        if 1 < self.asked <= 1 + self._failures:
            raise ConnectionError("the vault is being restarted")
        return "alice", "alice-secret"


@pytest.mark.parametrize(("failures", "ends"), [(1, False), (60, True)], ids=["the session lasts", "the session ends"])
async def test_a_callback_that_fails_at_the_next_login_costs_nothing(
    caplog: pytest.LogCaptureFixture, failures: int, ends: bool
) -> None:
    """It is asked again as long as the session lasts, and for the connection after that."""
    vault, logins, clock = Vault(failures), Logins(USERS, session_lifetime_ms=SESSION_MS), Clock()
    given = options("PLAIN", sasl_credentials_provider=vault.credentials)
    with FakeBroker(topics=TOPIC, logins=logins) as broker:
        async with Producer(broker.bootstrap_servers, **given) as producer:
            await producer.send("orders", b"value")
            sending: list[asyncio.Task[Any]] = []
            clock.advance(LOGIN_IS_DUE_S)
            if ends:
                await until(lambda: vault.asked > 2)
                clock.advance(SESSION_MS / 1000 - LOGIN_IS_DUE_S)
            while len(logins.seen) < 2:
                await asyncio.sleep(0.005)
                sending.append(asyncio.create_task(producer.send("orders", b"value")))
            await asyncio.gather(*sending)
        first, last = logins.seen[0][0], logins.seen[-1][0]
        assert (first != last) is ends
        assert len(broker.records()) == 1 + len(sending)
    assert "could not be renewed yet" in caplog.text
    assert "the vault" not in caplog.text


# -- mix-ups ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of_broker", "of_client", "words"),
    [
        ("SASL_SSL", "SASL_PLAINTEXT", "listener with TLS (security_protocol SSL or SASL_SSL)"),
        ("SASL_PLAINTEXT", "SASL_SSL", "listener without TLS"),
        ("SSL", "SASL_SSL", "does not expect a login at this port"),
        ("SASL_SSL", "SSL", "does it require a login"),
    ],
)
async def test_each_mix_up_of_protocols_has_its_sentence(
    of_broker: str, of_client: str, words: str, authority: CertificateAuthority
) -> None:
    """Without waiting for the time that a connection may take."""
    tls = authority.server_context() if of_broker.endswith("SSL") else None
    logins = Logins(USERS) if of_broker.startswith("SASL") else None
    given = options("SCRAM-SHA-256") if of_client.startswith("SASL") else dict(QUICK)
    given |= {"security_protocol": of_client, "close_timeout_ms": 0, "max_block_ms": 400}
    if of_client.endswith("SSL"):
        given["ssl_truststore_certificates"] = authority.pem
    with FakeBroker(topics=TOPIC, tls=tls, logins=logins) as broker:
        async with Producer(broker.bootstrap_servers, **given) as producer:
            assert producer.config.socket_connection_setup_timeout_ms >= 10_000
            with pytest.raises(NotWritten, match=re.escape(words)):
                await producer.send("orders", b"value")
