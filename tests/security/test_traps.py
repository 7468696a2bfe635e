"""The traps of other clients that are about TLS, logins, and logins that are renewed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import pytest

from aioproducer import KafkaTimeoutError, NotWritten, NotWrittenTimeout, Producer, TransactionCoordinatorClient
from aioproducer.errors import AuthenticationError, KafkaError, ProducerDied
from aioproducer.testing import FakeBroker, Logins
from aioproducer.testing.broker.msk_iam import AwsKeys
from aioproducer.testing.certificates import CertificateAuthority
from tests.conftest import QUICK, Clock, until

TOPIC = {"orders": 1}
LOGIN: dict[str, Any] = {
    **QUICK,
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_username": "alice",
    "sasl_password": "alice-secret",
}
#: How long a login lasts for the broker, whose clock no test moves; and after which part of it the next one is always due.
SESSION_MS = 100_000
LOGIN_IS_DUE_S = 0.95 * SESSION_MS / 1000
#: A request that is held while the clock moves to the next login must not time out.
PATIENT: dict[str, Any] = {"request_timeout_ms": 10 * SESSION_MS, "delivery_timeout_ms": 20 * SESSION_MS}


def logins(**more: Any) -> Logins:
    return Logins({"alice": "alice-secret"}, **more)


# -- trap 5: hanging where the other side is silent ---------------------------------------------------------------------


@contextmanager
def silent_in_tls(authority: CertificateAuthority) -> Iterator[tuple[str, dict[str, Any]]]:
    """Takes connections, and does not begin with TLS."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(100)
        given = {**QUICK, "security_protocol": "SSL", "ssl_truststore_certificates": authority.pem}
        yield f"127.0.0.1:{listening.getsockname()[1]}", given


@contextmanager
def silent_after_tls(authority: CertificateAuthority) -> Iterator[tuple[str, dict[str, Any]]]:
    """Agrees on TLS, and answers nothing."""
    with FakeBroker(topics=TOPIC, tls=authority.server_context()) as broker:
        broker.swallow("ApiVersions", times=None)
        given = {**QUICK, "security_protocol": "SSL", "ssl_truststore_certificates": authority.pem}
        yield broker.bootstrap_servers, given


def silent_at(api: str) -> Any:
    @contextmanager
    def silent(authority: CertificateAuthority) -> Iterator[tuple[str, dict[str, Any]]]:
        with FakeBroker(topics=TOPIC, tls=authority.server_context(), logins=logins()) as broker:
            broker.swallow(api, times=None)
            tls = {"security_protocol": "SASL_SSL", "ssl_truststore_certificates": authority.pem}
            yield broker.bootstrap_servers, {**LOGIN, **tls}

    return silent


SILENT: dict[str, Callable[[CertificateAuthority], AbstractContextManager[tuple[str, dict[str, Any]]]]] = {
    "before TLS": silent_in_tls,
    "after TLS": silent_after_tls,
    "at SaslHandshake": silent_at("SaslHandshake"),
    "at SaslAuthenticate": silent_at("SaslAuthenticate"),
}


@pytest.mark.parametrize("where", SILENT)
async def test_a_silent_peer_costs_a_call_its_timeout_and_leaves_no_task(
    where: str, authority: CertificateAuthority
) -> None:
    before = asyncio.all_tasks()
    loop = asyncio.get_running_loop()
    with SILENT[where](authority) as (servers, given):
        producer = await Producer(servers, max_block_ms=150, **given).start()
        with pytest.raises(NotWrittenTimeout):
            await producer.send("orders", b"value")
        with pytest.raises(KafkaTimeoutError):
            await producer.ready(timeout=0.05)
        waiting = asyncio.ensure_future(producer.send("orders", b"value", timeout=60))
        await asyncio.sleep(0)
        began = loop.time()
        await producer.close(timeout=0.1)
        assert loop.time() - began < 20, "and not the 60 s of who waits"
        with pytest.raises(KafkaError):
            await waiting
        async with TransactionCoordinatorClient(servers, max_block_ms=150, **given) as client:
            with pytest.raises(KafkaTimeoutError):
                await client.init("shop")

    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("api", ["SaslHandshake", "SaslAuthenticate"])
async def test_silence_at_the_next_login_costs_the_connection_and_no_record(api: str) -> None:
    known, clock = logins(session_lifetime_ms=SESSION_MS), Clock()
    given = {**LOGIN, "socket_connection_setup_timeout_ms": 200, "socket_connection_setup_timeout_max_ms": 200}
    with FakeBroker(topics=TOPIC, logins=known) as broker:
        async with Producer(broker.bootstrap_servers, **given) as producer:
            await producer.send("orders", b"0")
            sessions, asked = len(known.seen), broker.count(api)
            broker.swallow(api)
            clock.advance(LOGIN_IS_DUE_S)
            await until(lambda: broker.count(api) > asked)
            for number in range(1, 20):
                await producer.send("orders", b"%d" % number, timeout=20)
        assert len(known.seen) > sessions
        assert [each.value for each in broker.records()] == [b"%d" % number for number in range(20)]


# -- trap 6: a task of ours that ends ------------------------------------------------------------------------------------


async def test_a_login_whose_task_is_cancelled_ends_the_producer_loudly() -> None:
    """The connection is held meanwhile: nothing else may be asked."""
    clock = Clock()
    with FakeBroker(topics=TOPIC, logins=logins(session_lifetime_ms=SESSION_MS)) as broker:
        async with Producer(broker.bootstrap_servers, **LOGIN) as producer:
            await producer.send("orders", b"0")
            with broker.hold("SaslAuthenticate") as held:
                clock.advance(LOGIN_IS_DUE_S)
                await until(lambda: held.waiting)
                later = await producer.enqueue("orders", b"1")
                for task in asyncio.all_tasks():
                    if task.get_name().startswith("aioproducer log in"):
                        task.cancel()
            with pytest.raises(KafkaError):
                await asyncio.wait_for(later, 20)
            with pytest.raises(ProducerDied, match="An internal task"):
                await producer.send("orders", b"2")


# -- trap 9: cancellation ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", ["SaslHandshake", "SaslAuthenticate"])
async def test_a_send_that_is_cancelled_during_a_login_has_buffered_nothing(api: str) -> None:
    with FakeBroker(topics=TOPIC, logins=logins()) as broker:
        async with Producer(broker.bootstrap_servers, **LOGIN) as producer:
            with broker.hold(api) as held:
                sending = asyncio.create_task(producer.send("orders", b"cancelled"))
                await until(lambda: held.waiting)
                sending.cancel()
                with suppress(asyncio.CancelledError):
                    await sending
            await producer.send("orders", b"next")
            assert producer.metrics()["buffer-available-bytes"] == producer.config.buffer_memory
        assert [each.value for each in broker.records()] == [b"next"]


# -- trap 14: logins that are renewed, with requests in flight --------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_five_requests_are_in_flight_when_the_login_is_due_and_none_fails(mechanism: str) -> None:
    """The broker hangs up on a request that comes in the middle of a login; it reads them in order."""
    known, clock = logins(session_lifetime_ms=SESSION_MS), Clock()
    given = {**LOGIN, **PATIENT, "sasl_mechanism": mechanism, "batch_size": 100}
    given["max_in_flight_requests_per_connection"] = 5
    with FakeBroker(topics={"orders": 5}, logins=known) as broker:
        async with Producer(broker.bootstrap_servers, **given) as producer:
            for partition in range(5):
                await producer.send("orders", b"first", partition=partition)
            with broker.hold("Produce") as held:
                deliveries = []
                for partition in range(5):
                    deliveries.append(await producer.enqueue("orders", b"second", partition=partition))
                    await until(lambda: producer.metrics()["requests-in-flight"] == partition + 1)  # noqa: B023
                clock.advance(LOGIN_IS_DUE_S)
                await until(lambda: _is_held(producer))
                assert producer.metrics()["requests-in-flight"] >= 5
                assert held.waiting
                deliveries += [
                    await producer.enqueue("orders", b"third", partition=partition) for partition in range(5)
                ]
            await asyncio.gather(*deliveries)
        assert len(broker.connections(closed=True)) == 1
        assert len(known.seen) == 2
        for partition in range(5):
            values = [each.value for each in broker.records("orders", partition)]
            assert values == [b"first", b"second", b"third"]


def _is_held(producer: Producer) -> bool:
    engine: Any = producer._engine  # only the login of its connection can tell that it has begun
    return any(broker.connection.is_held for broker in engine.client._brokers.connected())


async def test_a_producer_id_is_asked_for_again_after_credentials_were_refused() -> None:
    """KAFKA-20237: the request was lost, and nothing was ever sent."""
    known = logins()
    with FakeBroker(topics=TOPIC, logins=known) as broker:
        async with Producer(broker.bootstrap_servers, **LOGIN) as producer:
            with broker.hold("InitProducerId") as held:
                sending = asyncio.create_task(producer.send("orders", b"first"))
                await until(lambda: held.waiting)
                known.users["alice"] = "changed"
                broker.disconnect()
                with pytest.raises(NotWritten) as reported:
                    await asyncio.wait_for(sending, 20)
            assert isinstance(reported.value.__cause__, AuthenticationError)
            known.users["alice"] = "alice-secret"
            await producer.send("orders", b"second", timeout=20)
        assert [each.value for each in broker.records()] == [b"second"]


# -- credentials that expire (aiokafka 1015 and 1080, aws-msk-iam-auth 143 and 176) ----


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> AwsKeys:
    """The keys that AWS's chain of credentials finds first."""
    keys = AwsKeys("AKIDFIRST", "first/secret", "eu-central-1", "first-token")
    give(monkeypatch, keys)
    return keys


def give(monkeypatch: pytest.MonkeyPatch, keys: AwsKeys) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", keys.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", keys.secret_key)
    monkeypatch.setenv("AWS_SESSION_TOKEN", keys.session_token or "")
    monkeypatch.setenv("AWS_REGION", keys.region)


MSK: dict[str, Any] = {**QUICK, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "AWS_MSK_IAM"}


async def test_a_login_to_msk_is_renewed_on_the_open_connection(aws: AwsKeys) -> None:
    known, clock = Logins(aws=aws, session_lifetime_ms=SESSION_MS), Clock()
    with FakeBroker(topics=TOPIC, logins=known) as broker:
        async with Producer(broker.bootstrap_servers, **MSK) as producer:
            await producer.send("orders", b"value")
            clock.advance(LOGIN_IS_DUE_S)
            while len(known.seen) < 2:
                await producer.send("orders", b"value")
        assert len(broker.connections(closed=True)) == 1


async def test_keys_of_aws_that_were_replaced_are_taken_up(aws: AwsKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    known = Logins(aws=aws)
    replaced = AwsKeys("AKIDSECOND", "second/secret", "eu-central-1", "second-token")
    with FakeBroker(topics=TOPIC, logins=known) as broker:
        async with Producer(broker.bootstrap_servers, **MSK) as producer:
            await producer.send("orders", b"first")
            give(monkeypatch, replaced)
            known.aws = replaced
            broker.disconnect()
            waiting = await producer.enqueue("orders", b"second")
            await asyncio.wait_for(waiting, 20)
        assert list(dict.fromkeys(user for _, _, user in known.seen)) == ["AKIDFIRST", "AKIDSECOND"]
