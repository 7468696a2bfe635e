"""Failures of callbacks, tokens and secrets from the user's code, and who must not notice or see them."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import sys
import threading
import time
import traceback
from base64 import urlsafe_b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from random import Random
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from aioproducer import AuthenticationError, KafkaError, NotWritten, OAuthToken, Producer
from aioproducer.config import ProducerConfig, Secret
from aioproducer.core.cluster import Node
from aioproducer.core.sasl.mechanism import Derive
from aioproducer.core.sasl.scram import salted_password
from aioproducer.net.security.blocking import Blocking
from aioproducer.net.security.login import Login
from aioproducer.net.security.msk_iam import MskSigner
from aioproducer.net.security.sigv4 import Keys, signed_query
from aioproducer.net.security.tokens import TokenSource
from aioproducer.runtime.log import ClientLog
from aioproducer.testing import FakeBroker, Logins
from tests.conftest import QUICK, until

TOPIC = {"orders": 1}
SECRET = "canary"


def jwt(**claims: Any) -> str:
    def part(of: dict[str, Any]) -> str:
        return urlsafe_b64encode(json.dumps(of).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part(claims)}."


def config(provider: Any, **more: Any) -> ProducerConfig:
    return ProducerConfig(
        bootstrap_servers="h:1",
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=provider,
        sasl_login_refresh_window_jitter=0.0,
        **more,
    )


def with_user(provider: Any) -> Login:
    given = ProducerConfig(
        bootstrap_servers="h:1",
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_credentials_provider=provider,
    )
    return Login(given, Random(1), ClientLog("test"))


def shown(error: BaseException, of: str = "aioproducer") -> str:
    """The output of a tool that prints the locals of our frames and the chain of causes."""
    parts: list[str] = []
    following: list[BaseException | None] = [error]
    while following:
        each = following.pop()
        if each is not None:
            parts.append(repr(each))
            frames = [frame for frame, _ in traceback.walk_tb(each.__traceback__)]
            parts += [repr(f.f_locals) for f in frames if f.f_globals["__name__"].startswith(of)]
            following += [each.__cause__, each.__context__]
    return "".join(parts)


def test_the_judge_of_tracebacks_sees_locals() -> None:
    def fail(password: str) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as failed:
        fail(SECRET)
    assert SECRET in shown(failed.value, of=__name__)


# -- tokens -----------------------------------------------------------------------------------------------------------


async def test_a_token_that_was_refused_is_not_shown_again() -> None:
    given = [jwt(sub="revoked", exp=time.time() + 3600), jwt(sub="good", exp=time.time() + 3600)]
    asked: list[str] = []

    def provider() -> str:
        asked.append(given[min(len(asked), 1)])
        return asked[-1]

    with FakeBroker(topics=TOPIC, logins=Logins(tokens=lambda token, extensions: token == given[1])) as broker:
        options: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER", **QUICK}
        async with Producer(broker.bootstrap_servers, sasl_oauth_token_provider=provider, **options) as producer:
            with pytest.raises(NotWritten) as failed:
                await producer.send("orders", b"value")
            assert isinstance(failed.value.__cause__, AuthenticationError)
            await producer.send("orders", b"value")
    assert asked == given


async def test_a_token_that_came_after_the_refused_one_is_kept() -> None:
    source = TokenSource(config(lambda: OAuthToken("t", expires_at=time.time() + 3600)), Random(1), ClientLog("test"))
    old = await source.token()
    source.forget(old)
    new = await source.token()
    assert new is not old
    source.forget(old)
    assert await source.token() is new


@pytest.mark.parametrize("end", [math.nan, math.inf, -math.inf, True, "soon", 10**400])
async def test_an_end_that_is_no_number_of_seconds(end: Any) -> None:
    source = TokenSource(config(lambda: OAuthToken(SECRET, expires_at=end)), Random(1), ClientLog("test"))
    with pytest.raises(AuthenticationError, match="expires_at") as failed:
        await source.token()
    assert SECRET not in shown(failed.value)
    asked: list[int] = []

    def token_with_an_expiry() -> str:
        asked.append(1)
        return jwt(exp=end)

    source = TokenSource(config(token_with_an_expiry), Random(1), ClientLog("test"))
    await source.token()
    await source.token()
    assert len(asked) == 2  # once for each login, as for a token that says nothing


async def test_milliseconds_are_not_mistaken_for_seconds() -> None:
    source = TokenSource(
        config(lambda: OAuthToken(SECRET, expires_at=time.time() * 1000)), Random(1), ClientLog("test")
    )
    with pytest.raises(AuthenticationError, match="milliseconds"):
        await source.token()


@pytest.mark.parametrize("life", [0.0, -60.0])
async def test_a_token_that_has_ended_is_used_once(life: float) -> None:
    asked: list[int] = []

    def provider() -> OAuthToken:
        asked.append(1)
        return OAuthToken("t", expires_at=time.time() + life)

    source = TokenSource(config(provider), Random(1), ClientLog("test"))
    await source.token()
    assert len(asked) == 1
    await source.token()
    assert len(asked) == 2


async def test_a_provider_that_hangs_costs_half_the_setup_while_a_token_is_valid() -> None:
    given = OAuthToken("t", expires_at=time.time() + 3600)
    asked: list[int] = []

    async def provider() -> OAuthToken:
        asked.append(1)
        if len(asked) > 1:
            await asyncio.sleep(3600)
        return given

    source = TokenSource(config(provider, socket_connection_setup_timeout_ms=100), Random(1), ClientLog("test"))
    assert await source.token() is given
    source._renew_at = 0.0  # pyright: ignore[reportPrivateUsage] - what hours would do
    async with asyncio.timeout(5):
        assert await asyncio.gather(*(source.token() for _ in range(5))) == [given] * 5
        assert await source.token() is given
    assert len(asked) == 2  # who asked just now and got no answer does not ask again at once


# -- what callbacks do ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        ("alice", f"{SECRET}\ud800"),
        (f"{SECRET}\ud800", "x"),
        (SECRET, 5),
        ("alice", b"canary"),
        SECRET,
        None,
        (SECRET,),
    ],
)
async def test_credentials_that_cannot_be_used_are_refused_and_not_shown(given: Any) -> None:
    with pytest.raises(AuthenticationError, match="sasl_credentials_provider") as failed:
        await with_user(lambda: given).prepare(Node(1, "h", 1))
    assert SECRET not in shown(failed.value)


@pytest.mark.parametrize("given", [f"{SECRET}\ud800", OAuthToken("t", extensions={"a": f"{SECRET}\ud800"}), 5])
async def test_tokens_that_cannot_be_used_are_refused_and_not_shown(given: Any) -> None:
    with pytest.raises(AuthenticationError, match="sasl_oauth_token_provider") as failed:
        await TokenSource(config(lambda: given), Random(1), ClientLog("test")).token()
    assert SECRET not in shown(failed.value)


async def _raises(error: BaseException) -> None:
    password = SECRET
    assert password
    raise error


@pytest.mark.parametrize(
    "error",
    [
        ValueError(SECRET),
        LookupError(SECRET),
        asyncio.CancelledError(SECRET),
        TimeoutError(SECRET),
        StopIteration(SECRET),
    ],
)
@pytest.mark.parametrize("is_coroutine", [True, False])
async def test_an_exception_raised_by_a_callback_is_named_but_its_message_is_not_shown(
    error: BaseException, is_coroutine: bool
) -> None:
    def sync() -> None:
        raise error

    async def coroutine() -> None:
        await _raises(error)

    call = coroutine if is_coroutine else sync
    name = "RuntimeError|StopIteration" if isinstance(error, StopIteration) else type(error).__name__
    tokens, login = TokenSource(config(call), Random(1), ClientLog("test")), with_user(call)
    for question in (tokens.token, lambda: login.prepare(Node(1, "h", 1))):
        with pytest.raises(KafkaError, match=name) as failed:
            await question()
        assert failed.value.__cause__ is None
        assert failed.value.__context__ is None
        assert SECRET not in shown(failed.value)


async def test_our_own_cancellation_stays_one_whatever_the_callback_makes_of_it() -> None:
    asked = asyncio.Event()

    async def stubborn() -> str:
        asked.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            raise ValueError from None
        return "t"

    task = asyncio.create_task(TokenSource(config(stubborn), Random(1), ClientLog("test")).token())
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_callback_that_is_no_coroutine_does_not_stop_the_loop() -> None:
    threads: list[threading.Thread] = []

    def provider() -> tuple[str, str]:
        threads.append(threading.current_thread())
        return "alice", "secret"

    await with_user(provider).prepare(Node(1, "h", 1))
    assert threads[0] is not threading.main_thread()


async def test_work_that_was_given_up_counts_until_its_thread_ends() -> None:
    blocking = Blocking(1)
    may_end = threading.Event()
    first = asyncio.create_task(blocking.run(may_end.wait))
    await asyncio.sleep(0)  # a step of the task, which starts a thread
    first.cancel()
    threads = threading.enumerate()
    second = asyncio.create_task(blocking.run(int, "5"))
    await asyncio.sleep(0)
    assert threading.enumerate() == threads, "the second has not begun"
    may_end.set()
    assert await second == 5


# -- SCRAM's work -----------------------------------------------------------------------------------------------------


async def test_a_salted_password_is_made_once_for_each_password_and_not_by_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module: Any = sys.modules[Login.__module__]
    made: list[tuple[bytes, bool]] = []
    real: Callable[..., bytes] = module.salted_password

    def watched(algorithm: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        made.append((password, threading.current_thread() is threading.main_thread()))
        return real(algorithm, password, salt, iterations)

    monkeypatch.setattr(module, "salted_password", watched)  # hashlib's own function also works for the broker
    logins = Logins({"alice": "first"})
    given: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256", **QUICK}
    given |= {"max_block_ms": 5000, "close_timeout_ms": 0}
    with FakeBroker(topics=TOPIC, logins=logins) as broker:
        password = "first"
        async with Producer(
            broker.bootstrap_servers, sasl_credentials_provider=lambda: ("alice", password), **given
        ) as producer:
            await producer.send("orders", b"value")
            broker.disconnect()
            await producer.send("orders", b"value")
            assert made == [(b"first", False)]
            password = logins.users["alice"] = "second"
            broker.disconnect()
            async with asyncio.timeout(10):
                await producer.send("orders", b"value")
    assert made == [(b"first", False), (b"second", False)]


async def test_a_salted_password_is_not_mistaken_for_that_of_another_password() -> None:
    login = with_user(lambda: ("alice", "x"))
    derive = login._derive  # pyright: ignore[reportPrivateUsage] - fails at once, where a send would wait
    first = await derive(Derive("sha256", Secret("first"), b"salt", 4096))
    second = await derive(Derive("sha256", Secret("second"), b"salt", 4096))
    assert first == salted_password("sha256", b"first", b"salt", 4096)
    assert second == salted_password("sha256", b"second", b"salt", 4096)


# -- AWS --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [None, "token+/=with space~"])
@pytest.mark.parametrize("region", ["eu-central-1", "cn-north-1"])
@pytest.mark.parametrize("host", ["b-1.c.kafka.eu-central-1.amazonaws.com", "localhost"])
@pytest.mark.parametrize("access", ["AKIDEXAMPLE", "ASIA0123456789"])
def test_our_signature_is_that_of_botocore(access: str, host: str, region: str, token: str | None) -> None:
    auth: Any = import_module("botocore.auth")
    from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
    from botocore.credentials import ReadOnlyCredentials  # type: ignore[import-untyped]

    request: Any = AWSRequest(method="GET", url=f"https://{host}/?Action=kafka-cluster%3AConnect")
    given: Any = ReadOnlyCredentials(access, "se+cr/et", token)
    auth.SigV4QueryAuth(given, "kafka-cluster", region, expires=900).add_auth(request)
    expected = dict(parse_qsl(urlsplit(str(request.url)).query))
    now = datetime.strptime(expected["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    keys = Keys(access, Secret("se+cr/et"), None if token is None else Secret(token))
    assert signed_query(keys, host, region, now) == expected
    assert signed_query(keys._replace(secret=Secret("other")), host, region, now) != expected


def test_aws_credentials_are_in_no_log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKID",
        "AWS_SECRET_ACCESS_KEY": f"{SECRET}-key",
        "AWS_SESSION_TOKEN": f"{SECRET}-token",
        "AWS_DEFAULT_REGION": "eu-central-1",
    }.items():
        monkeypatch.setenv(name, value)
    caplog.set_level(logging.DEBUG)
    assert f"{SECRET}-token".encode() in bytes(MskSigner().payload("localhost"))
    assert SECRET not in caplog.text


def test_whatever_the_chain_of_credentials_raises_is_an_error_of_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    shared = tmp_path / "config"
    shared.write_text(f"[default]\ncredential_process = /nowhere/{SECRET}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(shared))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(KafkaError, match="FileNotFoundError") as failed:
        MskSigner().payload("localhost")
    assert SECRET not in shown(failed.value)


@pytest.mark.parametrize("how", ["in a thread", "async", "async, and swallows its cancellation"])
async def test_an_attempt_that_is_not_needed_any_more_ends_alone_while_its_credentials_are_fetched(how: str) -> None:
    """Its cancellation must not look like one from outside: the producer died with "ended unexpectedly"."""
    waiting, go_on = threading.Event(), threading.Event()
    go_on.set()

    def credentials() -> tuple[str, str]:
        waiting.set()
        assert go_on.wait(30)
        return "alice", "alice-secret"

    async def credentials_async() -> tuple[str, str]:
        waiting.set()
        try:
            while not go_on.is_set():  # noqa: ASYNC110 - another thread's event
                await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            if "swallows" in how:
                raise ValueError("no") from None
            raise
        return "alice", "alice-secret"

    options: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256", **QUICK}
    provider = credentials if how == "in a thread" else credentials_async
    with FakeBroker(topics=TOPIC, logins=Logins({"alice": "alice-secret"})) as broker:
        async with Producer(broker.bootstrap_servers, sasl_credentials_provider=provider, **options) as producer:
            await producer.send("orders", b"value")
            waiting.clear()
            go_on.clear()
            broker.disconnect()
            await until(waiting.is_set)
            assert producer._engine is not None
            brokers = producer._engine.client._brokers
            attempted = brokers.known(1)
            assert attempted is not None
            assert attempted.attempt is not None
            brokers.drop(attempted, "The broker has moved.")
            await until(lambda: attempted.attempt is None)
            go_on.set()
            await producer.send("orders", b"value")
