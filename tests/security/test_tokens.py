"""Providers of tokens that ask an endpoint, and AWS's signature: each against a peer that checks what it is shown."""

from __future__ import annotations

import asyncio
import gzip
import json
import traceback
from base64 import b64encode
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from aioproducer import AuthenticationError, BrokerConnectionError, ConfigError, KafkaError, NotWritten, Producer
from aioproducer.oauth import ClientCredentials, JwtBearer
from aioproducer.testing import FakeBroker, Logins
from aioproducer.testing.broker.msk_iam import AwsKeys
from tests.conftest import QUICK
from tests.net.peers import peer

TOPIC = {"orders": 1}

Answer = Callable[[dict[str, str], dict[str, list[str]]], tuple[int, bytes]]


def endpoint(answer: Answer) -> Any:
    """A token endpoint: headers and form in, status and body out."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        status, reported = answer(headers, parse_qs(body.decode()))
        writer.write(
            b"HTTP/1.1 %d X\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (status, len(reported)) + reported
        )
        await writer.drain()

    return peer(serve)


async def test_client_credentials() -> None:
    asked: list[tuple[dict[str, str], dict[str, list[str]]]] = []

    def answer(headers: dict[str, str], form: dict[str, list[str]]) -> tuple[int, bytes]:
        asked.append((headers, form))
        return 200, json.dumps({"access_token": "the-token", "expires_in": 3600}).encode()

    async with endpoint(answer) as idp:
        tokens = ClientCredentials(f"http://{idp.address}/token", "me", "canary", scope="kafka")
        with FakeBroker(topics=TOPIC, logins=Logins(tokens=lambda token, extensions: token == "the-token")) as broker:
            async with Producer(
                broker.bootstrap_servers,
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="OAUTHBEARER",
                sasl_oauth_token_provider=tokens,
                **QUICK,
            ) as producer:
                await producer.send("orders", b"value")
    assert len(asked) == 1
    headers, form = asked[0]
    assert headers["authorization"] == "Basic " + b64encode(b"me:canary").decode()
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka"]}
    assert "canary" not in repr(tokens)


async def test_jwt_bearer() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

    def answer(headers: dict[str, str], form: dict[str, list[str]]) -> tuple[int, bytes]:
        claims = jwt.decode(form["assertion"][0], key.public_key(), ["ES256"], audience="idp", issuer="me")
        return 200, json.dumps({"access_token": f"for-{claims['sub']}"}).encode()

    async with endpoint(answer) as idp:
        url = f"http://{idp.address}/token"
        tokens = JwtBearer(url, pem, issuer="me", subject="alice", audience="idp", algorithm="ES256")
        assert (await tokens.token()).value.reveal() == "for-alice"
    with pytest.raises(ConfigError, match="cannot be read as a private key") as refused:
        await JwtBearer(url, "canary", issuer="me", subject="a", audience="b").token()
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, b'{"error": "invalid_client", "error_description": "canary"}', r"status 401 \(invalid_client\)"),
        (302, b"", "status 302"),
        (200, b"{}", "without an access_token"),
        (200, b"<html>", "without an access_token"),
        (200, b"[" * 100_000, "without an access_token"),
        (200, b"x" * 300_000, "with more than 262144 bytes"),
    ],
)
async def test_an_endpoint_that_gives_no_token(status: int, body: bytes, words: str) -> None:
    async with endpoint(lambda headers, form: (status, body)) as idp:
        with pytest.raises(KafkaError, match=words) as failed:
            await ClientCredentials(f"http://{idp.address}/token", "me", "canary").token()
    assert "canary" not in str(failed.value)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, AuthenticationError), (401, AuthenticationError), (403, AuthenticationError), (503, BrokerConnectionError)],
)
async def test_an_endpoint_that_refuses_ends_waiting_and_one_that_is_ill_does_not(
    status: int, kind: type[KafkaError]
) -> None:
    async with endpoint(lambda headers, form: (status, b"{}")) as idp:
        with pytest.raises(KafkaError) as failed:
            await ClientCredentials(f"http://{idp.address}/token", "me", "canary").token()
    assert type(failed.value) is kind


async def test_an_answer_that_is_packed_is_not_unpacked() -> None:
    packed = gzip.compress(b" " * 50_000_000, 1)
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed))
        writer.write(packed)
        await writer.drain()

    async with peer(serve) as idp:
        with pytest.raises(BrokerConnectionError, match="encoding that was not requested"):
            await ClientCredentials(f"http://{idp.address}/", "me", "s").token()
    assert b"accept-encoding: identity" in seen[0].lower()


@pytest.mark.parametrize("life", ["NaN", "Infinity", "true", "1e300", "1" + "0" * 400, '"soon"', "null"])
async def test_an_impossible_lifetime_is_treated_as_missing(life: str) -> None:
    async with endpoint(lambda headers, form: (200, b'{"access_token": "t", "expires_in": %s}' % life.encode())) as idp:
        token = await ClientCredentials(f"http://{idp.address}/", "me", "s").token()
    assert token.expires_at is None


@pytest.mark.parametrize("status", [0, 401, 503, 200])
async def test_the_frames_of_a_failure_show_no_secret(status: int) -> None:
    """0: no listener; 200: an answer that holds a secret, and no token."""
    async with endpoint(lambda headers, form: (status, b'{"token": "canary"}')) as idp:
        address = idp.address if status else "127.0.0.1:1"
        with pytest.raises(KafkaError) as failed:
            await ClientCredentials(f"http://{address}/", "me", "canary").token()
    frames = [frame for frame, _ in traceback.walk_tb(failed.value.__traceback__)]
    ours = [frame for frame in frames if frame.f_globals["__name__"] == "aioproducer.oauth"]
    assert ours
    assert "canary" not in repr([frame.f_locals for frame in ours])
    assert b64encode(b"me:canary").decode() not in repr([frame.f_locals for frame in ours])
    assert failed.value.__cause__ is None
    assert failed.value.__context__ is None


async def test_a_refusal_of_the_endpoint_ends_a_send_at_once() -> None:
    slow: dict[str, Any] = {**QUICK, "max_block_ms": 20_000}
    async with endpoint(lambda headers, form: (401, b'{"error": "invalid_client"}')) as idp:
        with FakeBroker(topics=TOPIC, logins=Logins()) as broker:
            async with Producer(
                broker.bootstrap_servers,
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="OAUTHBEARER",
                sasl_oauth_token_provider=ClientCredentials(f"http://{idp.address}/token", "me", "canary"),
                close_timeout_ms=0,
                **slow,
            ) as producer:
                async with asyncio.timeout(5):
                    with pytest.raises(NotWritten, match="invalid_client") as failed:
                        await producer.send("orders", b"value")
    assert isinstance(failed.value.__cause__, AuthenticationError)


async def test_an_endpoint_that_is_silent_costs_its_timeout() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async with peer(serve) as silent:
        with pytest.raises(KafkaError, match="The request to the token endpoint"):
            await ClientCredentials(f"http://{silent.address}/", "me", "s", timeout=0.2).token()


@pytest.mark.parametrize(
    "url",
    ["http://idp.example/token", "file:///etc/shadow", "https://me:pw@idp/", "idp/token", "https://idp/?a=canary"],
)
def test_where_a_secret_may_not_go(url: str) -> None:
    with pytest.raises(ConfigError):
        ClientCredentials(url, "me", "canary")


# -- AWS --------------------------------------------------------------------------------------------------------------

AWS: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "AWS_MSK_IAM", **QUICK}


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> AwsKeys:
    """The keys that AWS's chain of credentials finds."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary+secret/key")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token+/=")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    return AwsKeys("AKIDEXAMPLE", "canary+secret/key", "eu-central-1", "token+/=")


async def test_a_login_to_msk_is_signed_as_aws_documents_it(keys: AwsKeys) -> None:
    with FakeBroker(topics=TOPIC, logins=Logins(aws=keys)) as broker:
        async with Producer(broker.bootstrap_servers, **AWS) as producer:
            await producer.send("orders", b"value")
        assert broker.logins is not None
        assert broker.logins.seen[0][1:] == ("AWS_MSK_IAM", "AKIDEXAMPLE")


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (AwsKeys("AKIDEXAMPLE", "another", "eu-central-1", "token+/="), "wrong signature"),
        (AwsKeys("AKIDEXAMPLE", "canary+secret/key", "us-east-1", "token+/="), "wrong credential"),
        (AwsKeys("AKIDEXAMPLE", "canary+secret/key", "eu-central-1", None), "wrong session token"),
    ],
)
async def test_a_login_to_msk_that_is_signed_wrongly_is_refused(keys: AwsKeys, other: AwsKeys, why: str) -> None:
    """The judge can say no."""
    with FakeBroker(topics=TOPIC, logins=Logins(aws=other)) as broker:
        async with Producer(broker.bootstrap_servers, close_timeout_ms=0, **AWS) as producer:
            with pytest.raises(NotWritten, match=f"AWS_MSK_IAM login failed.*Access denied: {why}") as failed:
                await producer.send("orders", b"value")
    assert "canary" not in str(failed.value)
