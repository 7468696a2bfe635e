"""Peers that speak TLS and SASL and mean no good: nothing grows, nothing hangs, and only our own errors are raised."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import socket
import ssl
import struct
import threading
import time
import traceback
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from aioproducer import KafkaError, Producer
from aioproducer.protocol import RequestHeader, encode_response
from aioproducer.protocol.messages import SaslAuthenticateResponse, SaslHandshakeResponse
from aioproducer.testing import FakeBroker, Logins
from aioproducer.testing.certificates import CertificateAuthority
from tests.conftest import QUICK, Clock, turns
from tests.net.peers import framed, mute, peer, read_request, versions_answer

CANARY = "canary-secret"
LOGIN: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_username": "alice",
    "sasl_password": CANARY,
    "socket_connection_setup_timeout_ms": 300,
    "max_block_ms": 700,
    "close_timeout_ms": 0,
    **QUICK,
}
MIB = 1024 * 1024


def answer(header: RequestHeader, response: Any) -> bytes:
    return b"".join(bytes(piece) for piece in encode_response(header.correlation_id, response, header.api_version))


def authenticate(token: bytes, code: int = 0) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=code, error_message=None, auth_bytes=token)


def authenticated(header: RequestHeader, token: bytes) -> bytes:
    response = authenticate(token)
    version = min(header.api_version, 2)
    return b"".join(bytes(piece) for piece in encode_response(header.correlation_id, response, version))


def after(steps: int, then: Callable[[RequestHeader], bytes]) -> Any:
    """A broker that answers ApiVersions and SaslHandshake, and from the step on something else."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for step in range(10):
            header, _ = await read_request(reader)
            if step >= steps:
                writer.write(then(header))
                await writer.drain()
            elif step == 0:
                writer.write(versions_answer(header))
            else:
                writer.write(answer(header, SaslHandshakeResponse(error_code=0, mechanisms=["SCRAM-SHA-256"])))

    return serve


HOSTILE: dict[str, Callable[[RequestHeader], bytes]] = {
    "2 GB": lambda header: struct.pack(">i", 0x7FFFFFFF),
    "negative": lambda header: struct.pack(">i", -1),
    "100 MB, which a broker that is known might": lambda header: struct.pack(">i", 100 * MIB) + bytes(1000),
    "more than before a login is sensible": lambda header: struct.pack(">i", 65 * 1024 + 1) + bytes(1000),
    "garbage": lambda header: framed(struct.pack(">i", header.correlation_id) + os.urandom(300)),
    "huge counts": lambda header: framed(struct.pack(">ihi", header.correlation_id, 0, 0x7FFFFFFF)),
    "nothing": lambda header: b"",
    "endless iterations": lambda header: authenticated(header, b"r=x,s=c2FsdA==,i=4294967295"),
    "an empty answer": lambda header: authenticated(header, b""),
}


@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.parametrize("step", [0, 1, 2])
async def test_a_hostile_broker_before_the_login_is_over(what: str, step: int) -> None:
    async with peer(after(step, HOSTILE[what])) as hostile, Producer(hostile.address, **LOGIN) as producer:
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        began = time.monotonic()
        with pytest.raises(KafkaError) as failed:
            await producer.send("orders", b"value")
        took = time.monotonic() - began
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert took < 5
    assert peak - before < MIB
    assert CANARY not in str(failed.value)


#: What may come in place of an answer to any request.
OF_ANY_REQUEST = ["2 GB", "negative", "100 MB, which a broker that is known might", "garbage", "huge counts", "nothing"]


def knows_us_and_then(then: Callable[[RequestHeader], bytes]) -> Any:
    """A broker that lets everybody in by PLAIN, and then answers something else."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        header, _ = await read_request(reader)
        writer.write(versions_answer(header))
        header, _ = await read_request(reader)
        writer.write(answer(header, SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])))
        header, _ = await read_request(reader)
        writer.write(authenticated(header, b""))
        while True:
            header, _ = await read_request(reader)
            reached.append(header)
            writer.write(then(header))
            await writer.drain()

    reached: list[RequestHeader] = []
    serve.reached = reached  # type: ignore[attr-defined]
    return serve


@pytest.mark.parametrize("what", OF_ANY_REQUEST)
async def test_a_hostile_broker_after_the_login(what: str) -> None:
    serve = knows_us_and_then(HOSTILE[what])
    given = {**LOGIN, "sasl_mechanism": "PLAIN", "request_timeout_ms": 300}
    async with peer(serve) as hostile, Producer(hostile.address, **given) as producer:
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        began = time.monotonic()
        with pytest.raises(KafkaError) as failed:
            await producer.send("orders", b"value")
        took = time.monotonic() - began
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert serve.reached, "the login succeeded"
    assert took < 5
    assert peak - before < MIB
    assert CANARY not in str(failed.value)


@contextmanager
def flood(announced: int) -> Iterator[str]:
    """Sends without end, from memory that was there before, and from a separate thread."""
    piece = bytes(64 * 1024)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    accepted, _ = listening.accept()
                    with accepted, suppress(OSError):
                        accepted.recv(1000)
                        accepted.sendall(struct.pack(">i", announced))
                        while True:
                            accepted.sendall(piece)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.parametrize("announced", [60 * 1024, 2**31 - 1])
async def test_a_flood_before_the_login_is_over_is_not_kept(announced: int) -> None:
    with flood(announced) as address:
        async with Producer(address, **LOGIN) as producer:
            tracemalloc.start()
            with pytest.raises(KafkaError):
                await producer.send("orders", b"value")
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
    assert peak < MIB


@pytest.mark.parametrize("when", ["at once", "in the handshake", "by drops", "after it"])
async def test_a_stall_at_each_step_of_tls(authority: CertificateAuthority, when: str) -> None:
    clock = Clock()

    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if when == "in the handshake":
            await reader.read(10)
            writer.write(b"\x16\x03\x03\x40\x00")  # a record of 16 KiB begins, and does not come
        if when == "by drops":
            for byte in b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc" + bytes(16 * 1024):  # a ServerHello, without end
                writer.write(bytes([byte]))
                clock.advance(0.02)
                await turns(3)
        await mute(reader, writer)

    given = {
        "security_protocol": "SSL",
        "ssl_truststore_certificates": authority.pem,
        "socket_connection_setup_timeout_ms": 200,
        "max_block_ms": 500,
        "close_timeout_ms": 0,
        **QUICK,
    }
    context: ssl.SSLContext | None = authority.server_context() if when == "after it" else None
    began = time.monotonic()
    async with peer(stall, context) as hostile, Producer(hostile.address, **given) as producer:
        with pytest.raises(KafkaError, match=r"within 0\.\d+ s: it accepted the connection"):
            await producer.send("orders", b"value")
    assert time.monotonic() - began < 3


async def test_garbage_instead_of_tls(authority: CertificateAuthority) -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(os.urandom(100_000))
        await mute(reader, writer)

    given = {"security_protocol": "SSL", "ssl_truststore_certificates": authority.pem, "max_block_ms": 500, **QUICK}
    async with peer(babble) as hostile, Producer(hostile.address, close_timeout_ms=0, **given) as producer:
        with pytest.raises(KafkaError):
            await producer.send("orders", b"value")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
@pytest.mark.parametrize("succeeds", [True, False])
async def test_a_canary_leaks_nowhere(
    caplog: pytest.LogCaptureFixture, mechanism: str, succeeds: bool, authority: CertificateAuthority
) -> None:
    caplog.set_level(logging.DEBUG)
    logins = Logins({"alice": CANARY if succeeds else "other"}, tokens=lambda token, extensions: succeeds)
    credentials: dict[str, Any] = {"sasl_username": "alice", "sasl_password": CANARY}
    if mechanism == "OAUTHBEARER":
        credentials = {"sasl_oauth_token_provider": lambda: CANARY}
    key = authority.issue("alice")
    given = {
        **QUICK,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": mechanism,
        "ssl_truststore_certificates": authority.pem,
        "ssl_keystore_certificate_chain": key.certificate,
        "ssl_keystore_key": key.key,
        "close_timeout_ms": 0,
        **credentials,
    }
    secrets = [CANARY, key.key.splitlines()[1]]
    shown: list[str] = []
    with FakeBroker(topics={"orders": 1}, tls=authority.server_context(), logins=logins) as broker:
        async with Producer(broker.bootstrap_servers, **given) as producer:
            try:
                await producer.send("orders", b"value")
            except KafkaError as error:
                assert not succeeds
                reported: BaseException | None = error
                while reported is not None:
                    shown += [str(reported), repr(reported), str(pickle.dumps(reported))]
                    captured = traceback.TracebackException.from_exception(reported, capture_locals=True)
                    # Our own frames: the caller's hold what the caller put there.
                    shown += [str(frame.locals) for frame in captured.stack if frame.filename != __file__]
                    reported = reported.__cause__ or reported.__context__
            shown += [repr(producer), repr(producer.metrics()), repr(producer.health()), repr(producer.config)]
            engine: Any = producer._engine
            shown += [repr(vars(connection)) for connection in engine.client._connector._open]
    for secret in secrets:
        assert secret not in caplog.text
        assert not [line for line in shown if secret in line]
