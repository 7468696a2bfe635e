"""Real brokers with TLS, logins and an authorizer: what they let in, what they refuse, and in which words we tell it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from aioproducer import (
    AuthenticationError,
    BrokerError,
    KafkaError,
    NotWritten,
    OAuthToken,
    Producer,
    TopicPartition,
    TransactionAbortable,
    TransactionFatal,
)
from aioproducer.testing.certificates import CertificateAuthority
from aioproducer.testing.kafka import KafkaCluster, KafkaUnavailable
from aioproducer.testing.kafka.security import KafkaSecurity
from aioproducer.testing.token_issuer import TokenIssuer
from tests.conftest import until
from tests.security.real_kafka import USERS, AclOperation, ResourceType, grant, options, unsigned_token
from tests.spark.read_back import committed

pytestmark = pytest.mark.slow

TOPIC = "orders"


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> TokenIssuer:
    """The issuer whose tokens the listener SIGNED accepts."""
    return TokenIssuer(tmp_path_factory.mktemp("issuer") / "jwks.json")


@pytest.fixture(scope="module", params=["3.9.2", "4.3.1"])
def secured(
    request: pytest.FixtureRequest, authority: CertificateAuthority, issuer: TokenIssuer
) -> Iterator[KafkaCluster]:
    """One broker; alice may do everything, mallory nothing. A login lasts 3 seconds at the listener REAUTH."""
    security = KafkaSecurity(authority, USERS, super_users=["alice"], reauth_ms=3000, signed_tokens=issuer)
    try:
        with KafkaCluster(request.param, security=security) as kafka:
            kafka.create_topic(TOPIC, 3)
            yield kafka
    except KafkaUnavailable as error:
        pytest.skip(str(error))


async def sends(kafka: KafkaCluster, listener: str, **options: Any) -> None:
    async with Producer(kafka.bootstrap(listener), **options) as producer:
        await producer.send_many(TOPIC, [b"%d" % number for number in range(500)])


async def refusal(servers: str, **options: Any) -> str:
    """The error of a send that must fail, as soon as that is clear."""
    async with Producer(servers, **{"max_block_ms": 20_000, **options, "close_timeout_ms": 0}) as producer:
        async with asyncio.timeout(10):
            with pytest.raises(NotWritten) as failed:
                await producer.send(TOPIC, b"value")
    return str(failed.value)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
async def test_each_mechanism_lets_in(
    secured: KafkaCluster, authority: CertificateAuthority, listener: str, mechanism: str
) -> None:
    await sends(secured, listener, **options(authority, listener, mechanism))


async def test_tls_one_way_and_mutual(secured: KafkaCluster, authority: CertificateAuthority, tmp_path: Path) -> None:
    await sends(secured, "SSL", **options(authority, "SSL"))
    client = authority.issue("alice", common_name="alice").write(tmp_path / "client.pem")
    stranger = CertificateAuthority().issue("alice", common_name="alice").write(tmp_path / "stranger.pem")
    reported = await refusal(secured.bootstrap("MTLS"), **options(authority, "MTLS"))
    assert "ssl_certfile" in reported
    reported = await refusal(secured.bootstrap("MTLS"), **options(authority, "MTLS", ssl_certfile=stranger))
    assert "ssl_certfile" in reported
    reported = await refusal(secured.bootstrap("SSL"), security_protocol="SSL")
    assert "no trusted authority" in reported
    async with Producer(secured.bootstrap("MTLS"), **options(authority, "MTLS", ssl_certfile=client)) as producer:
        with pytest.raises(KafkaError) as failed:  # let in, and known by the whole of its name, which has no rights
            await producer.send(TOPIC, b"value")
    assert "AUTHORIZATION_FAILED" in repr(failed.value) + repr(failed.value.__cause__) + str(failed.value)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
async def test_refusals_name_the_broker_the_mechanism_and_the_reason(
    secured: KafkaCluster, authority: CertificateAuthority, mechanism: str
) -> None:
    given = options(authority, "SASL_SSL", mechanism)
    if mechanism == "OAUTHBEARER":
        given["sasl_oauth_token_provider"] = lambda: unsigned_token(life_s=-60)
    else:
        given["sasl_password"] = "wrong"
    reported = await refusal(secured.bootstrap("SASL_SSL"), **given)
    assert f"{mechanism} login failed: broker {secured.bootstrap('SASL_SSL')} refused the credentials" in reported


async def test_the_error_suggests_which_security_option_is_wrong(
    secured: KafkaCluster, authority: CertificateAuthority
) -> None:
    async def late(listener: str, **given: Any) -> str:
        async with Producer(secured.bootstrap(listener), max_block_ms=1500, close_timeout_ms=0, **given) as producer:
            with pytest.raises(NotWritten) as failed:
                await producer.send(TOPIC, b"value")
        return str(failed.value)

    assert "security_protocol" in await late("SSL")
    assert "TLS" in await late("SSL")
    assert "listener without TLS" in await late("CLIENT", security_protocol="SSL")
    assert "does it require a login" in await late("SASL_PLAINTEXT")
    plain = {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": "alice-secret"}
    assert "does not expect a login" in await late("CLIENT", security_protocol="SASL_PLAINTEXT", **plain)


async def test_signed_tokens_are_verified_with_the_keys_in_a_file(
    secured: KafkaCluster, authority: CertificateAuthority, issuer: TokenIssuer
) -> None:
    given = options(authority, "SIGNED", "OAUTHBEARER", sasl_oauth_token_provider=issuer.token)
    await sends(secured, "SIGNED", **given)


@pytest.mark.parametrize("wrong", ["signature", "issuer", "audience", "expired", "not signed"])
async def test_a_token_that_is_not_valid_is_refused(
    secured: KafkaCluster, authority: CertificateAuthority, issuer: TokenIssuer, tmp_path: Path, wrong: str
) -> None:
    tokens: dict[str, Callable[[], OAuthToken]] = {
        "signature": TokenIssuer(tmp_path / "jwks.json").token,  # by another key of the same name
        "issuer": lambda: issuer.token(iss="https://another.issuer"),
        "audience": lambda: issuer.token(aud="another service"),
        "expired": lambda: issuer.token(life_s=-120),
        "not signed": unsigned_token,
    }
    servers = secured.bootstrap("SIGNED")
    given = options(authority, "SIGNED", "OAUTHBEARER", sasl_oauth_token_provider=tokens[wrong])
    reported = await refusal(servers, **given)
    assert (
        f"OAUTHBEARER login failed: broker {servers} refused the credentials: status invalid_token: the sign"
        in reported
    )
    assert tokens[wrong]().value.reveal().split(".")[0] not in reported


async def test_a_right_on_the_topic_that_is_missing_is_named(
    secured: KafkaCluster, authority: CertificateAuthority
) -> None:
    async with as_user(secured, authority, "bob", acks=1, enable_idempotence=False) as producer:
        with pytest.raises(NotWritten, match=f"TOPIC_AUTHORIZATION_FAILED.*topic '{TOPIC}'.*needs WRITE"):
            await producer.send(TOPIC, b"value")  # a user that may not describe a topic learns nothing of it
        await grant(secured, "bob", AclOperation.DESCRIBE, ResourceType.TOPIC, TOPIC)
        with pytest.raises(NotWritten, match=f"{TOPIC}-0 .*TOPIC_AUTHORIZATION_FAILED.*needs WRITE"):
            await producer.send(TOPIC, b"value", partition=0)
        await grant(secured, "bob", AclOperation.WRITE, ResourceType.TOPIC, TOPIC)
        await producer.send(TOPIC, b"value")


async def test_a_right_on_the_cluster_that_is_missing_is_named(
    secured: KafkaCluster, authority: CertificateAuthority
) -> None:
    await grant(secured, "carol", AclOperation.DESCRIBE, ResourceType.TOPIC, TOPIC)
    async with as_user(secured, authority, "carol") as producer:
        for _ in range(2):
            with pytest.raises(NotWritten, match=r"CLUSTER_AUTHORIZATION_FAILED.*IDEMPOTENT_WRITE on the cluster"):
                await producer.send(TOPIC, b"value")
        await grant(secured, "carol", AclOperation.IDEMPOTENT_WRITE, ResourceType.BROKER, "kafka-cluster")
        with pytest.raises(NotWritten, match=r"TOPIC_AUTHORIZATION_FAILED.*needs WRITE"):
            await producer.send(TOPIC, b"value")
        await grant(secured, "carol", AclOperation.WRITE, ResourceType.TOPIC, TOPIC)
        await producer.send(TOPIC, b"value")


async def test_rights_of_a_transaction_that_are_missing_are_named(
    secured: KafkaCluster, authority: CertificateAuthority
) -> None:
    async with as_user(secured, authority, "dave", transactional_id="daves") as producer:
        refused = r"'daves' was refused: TRANSACTIONAL_ID_AUTHORIZATION_FAILED.*needs WRITE"
        with pytest.raises(TransactionFatal, match=f"FindCoordinator for .*{refused}"):
            await producer.init_transactions()
        await grant(secured, "dave", AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "daves")
        with pytest.raises(TransactionFatal, match=f"InitProducerId for .*{refused}"):
            await producer.init_transactions()
        await grant(secured, "dave", AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "daves")
        await producer.init_transactions()

        with pytest.raises(KafkaError, match=f"TOPIC_AUTHORIZATION_FAILED.*'{TOPIC}'.*needs WRITE"):
            await one_transaction(producer)
        await grant(secured, "dave", AclOperation.WRITE, ResourceType.TOPIC, TOPIC)
        with pytest.raises(TransactionAbortable, match=r"group 'readers' was refused: GROUP_AUTH.*needs READ"):
            await one_transaction(producer, group="readers")
        await grant(secured, "dave", AclOperation.READ, ResourceType.GROUP, "readers")
        await grant(secured, "dave", AclOperation.READ, ResourceType.TOPIC, TOPIC)
        await one_transaction(producer, group="readers")


def as_user(kafka: KafkaCluster, authority: CertificateAuthority, user: str, **more: Any) -> Producer:
    """A producer of that user."""
    given = options(authority, "SASL_SSL", "SCRAM-SHA-256", sasl_username=user, sasl_password=USERS[user], **more)
    return Producer(kafka.bootstrap("SASL_SSL"), **given)


async def one_transaction(producer: Producer, group: str | None = None) -> None:
    async with producer.transaction() as txn:
        await txn.send(TOPIC, b"value")
        if group is not None:
            await txn.send_offsets({TopicPartition(TOPIC, 0): 1}, group)


@pytest.mark.parametrize("listener", ["REAUTH"])
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "OAUTHBEARER"])
async def test_logins_renewed_under_load_disturb_no_send(
    secured: KafkaCluster, authority: CertificateAuthority, listener: str, mechanism: str
) -> None:
    topic = f"reauth-{mechanism.lower()}-{time.time_ns()}"
    secured.create_topic(topic, 1)
    sent = await load(secured, authority, topic, mechanism, seconds=4.5)
    assert sent > 1000


async def load(
    kafka: KafkaCluster, authority: CertificateAuthority, topic: str, mechanism: str, *, seconds: float
) -> int:
    """Send as fast as it goes; all must be written once, over the connections of the beginning."""
    async with Producer(kafka.bootstrap("REAUTH"), **options(authority, "REAUTH", mechanism)) as producer:
        await producer.send(topic, b"first")
        ends, sent, offsets = time.monotonic() + seconds, 0, set[int]()
        connections = {broker.connection for broker in producer_brokers(producer)}
        while time.monotonic() < ends:
            deliveries = [await producer.enqueue(topic, b"x" * 100) for _ in range(500)]
            for reported in await asyncio.gather(*deliveries):
                offsets.add(reported.offset)
            sent += len(deliveries)
        assert connections == {broker.connection for broker in producer_brokers(producer)}
    assert offsets == set(range(1, sent + 1))
    return sent


def producer_brokers(producer: Producer) -> list[Any]:
    engine: Any = producer._engine
    return [broker for broker in engine.client._brokers.connected() if broker.node.id >= 0]


async def test_transactions_over_sasl_ssl(secured: KafkaCluster, authority: CertificateAuthority) -> None:
    topic = f"transactions-{time.time_ns()}"
    secured.create_topic(topic, 3)
    given = options(authority, "SASL_SSL", "SCRAM-SHA-512", transactional_id=topic)
    async with Producer(secured.bootstrap("SASL_SSL"), **given) as producer:
        for begin in range(0, 120, 20):
            with suppress(LookupError):
                async with producer.transaction() as txn:
                    for number in range(begin, begin + 20):
                        await txn.enqueue(topic, b"%d" % number, partition=number % 3)
                    if begin % 40:
                        raise LookupError  # which aborts it

    found: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for message in committed(secured.bootstrap_servers, topic, 3):
        found[message.partition() or 0].append(int(message.value() or b""))
    kept = [number for begin in (0, 40, 80) for number in range(begin, begin + 20)]
    assert found == {partition: [number for number in kept if number % 3 == partition] for partition in range(3)}


async def test_an_unknown_topic_of_a_stranger_is_denied_not_unknown(
    secured: KafkaCluster, authority: CertificateAuthority
) -> None:
    given = options(authority, "SASL_PLAINTEXT", "PLAIN", sasl_username="mallory", sasl_password="mallory-secret")
    async with Producer(secured.bootstrap("SASL_PLAINTEXT"), **given) as producer:
        with pytest.raises(BrokerError, match="AUTHORIZATION_FAILED"):
            await producer.partitions_for("secret-topic")


async def test_a_password_that_is_right_again_works_at_once(
    secured: KafkaCluster, authority: CertificateAuthority
) -> None:
    current = ["wrong"]
    given = options(authority, "SASL_SSL", "SCRAM-SHA-256")
    del given["sasl_username"], given["sasl_password"]
    given["sasl_credentials_provider"] = lambda: ("alice", current[0])
    async with Producer(secured.bootstrap("SASL_SSL"), **given) as producer:
        with pytest.raises(AuthenticationError):
            await producer.ready(20)
        current[0] = "alice-secret"
        await producer.send(TOPIC, b"value")


async def test_a_transaction_survives_credentials_that_are_wrong_for_a_while(
    secured: KafkaCluster, authority: CertificateAuthority
) -> None:
    """The login is to be renewed after 3 seconds, and is refused."""
    current = ["alice-secret"]
    given = options(authority, "REAUTH", "SCRAM-SHA-512", transactional_id=f"t-{time.time_ns()}")
    del given["sasl_username"], given["sasl_password"]
    given["sasl_credentials_provider"] = lambda: ("alice", current[0])
    async with Producer(secured.bootstrap("REAUTH"), **given) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send(TOPIC, b"value")
        current[0] = "wrong"
        await until(lambda: producer.metrics()["connection-count"] == 0)
        for call in (producer.commit_transaction, producer.commit_transaction):
            async with asyncio.timeout(20):
                with pytest.raises(AuthenticationError, match=r"still open.*SCRAM-SHA-512 login failed"):
                    await call()
        current[0] = "alice-secret"
        await producer.commit_transaction()
        async with producer.transaction() as transaction:
            await transaction.send(TOPIC, b"next")
