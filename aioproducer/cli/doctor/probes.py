"""Small looks at a port without the client's own connections: does it accept, does it use TLS, what does it speak."""

from __future__ import annotations

import asyncio
import ssl
import time
from contextlib import suppress
from typing import Any, NamedTuple

from aioproducer.cli.doctor.causes import Speech, speech
from aioproducer.net.addresses import Address
from aioproducer.protocol.frames import encode_request
from aioproducer.protocol.messages import ApiVersionsRequest

__all__ = ["TlsFacts", "accepts", "is_web_server", "shake_hands", "spoken_at"]

_DAY_S = 86_400
_ENOUGH = 8


class TlsFacts(NamedTuple):
    """The negotiated TLS version, and the broker's certificate."""

    version: str
    issuer: str
    days: float


async def accepts(address: Address, limit_s: float) -> OSError | None:
    """Connect and close at once; return the error if that failed."""
    try:
        async with asyncio.timeout(limit_s):
            _, writer = await asyncio.open_connection(address.host, address.port)
    except OSError as error:  # TimeoutError is one
        return error
    await _close(writer)
    return None


async def shake_hands(address: Address, context: ssl.SSLContext, host: str) -> TlsFacts:
    """Negotiate TLS for this host name. Raises OSError, as `ssl.SSLError` if TLS itself failed."""
    _, writer = await asyncio.open_connection(address.host, address.port, ssl=context, server_hostname=host)
    try:
        session = writer.get_extra_info("ssl_object")
        certificate: dict[str, Any] = session.getpeercert() or {}
        ends = ssl.cert_time_to_seconds(certificate["notAfter"]) if "notAfter" in certificate else float("inf")
        return TlsFacts(session.version() or "TLS", _name(certificate.get("issuer", ())), (ends - time.time()) / _DAY_S)
    finally:
        await _close(writer)


def _name(issuer: tuple[tuple[tuple[str, str], ...], ...]) -> str:
    parts = {key: value for group in issuer for key, value in group}
    return parts.get("commonName") or parts.get("organizationName") or "an unnamed authority"


async def is_web_server(address: Address, limit_s: float) -> bool:
    """Whether it speaks HTTP; to anything but a whole line, some web servers say nothing."""
    return speech(await _first_bytes(address, limit_s, b"GET / HTTP/1.0\r\n\r\n")) is Speech.HTTP


async def spoken_at(address: Address, limit_s: float) -> Speech:
    """The protocol that the port speaks, from its answer to ApiVersions without TLS and then to a TLS handshake."""
    question = b"".join(encode_request(1, "aioproducer-doctor", ApiVersionsRequest(), 0))
    found = speech(await _first_bytes(address, limit_s, question))
    if found is Speech.UNKNOWN and await _has_tls(address, limit_s):
        return Speech.TLS
    return found


async def _first_bytes(address: Address, limit_s: float, question: bytes) -> bytes:
    with suppress(OSError, asyncio.IncompleteReadError):
        async with asyncio.timeout(limit_s):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            try:
                writer.write(question)
                return await reader.read(_ENOUGH)
            finally:
                await _close(writer)
    return b""


async def _has_tls(address: Address, limit_s: float) -> bool:
    context = ssl.create_default_context()
    context.check_hostname = False  # nothing is sent: any certificate shows that the port uses TLS
    context.verify_mode = ssl.CERT_NONE
    with suppress(OSError):
        async with asyncio.timeout(limit_s):
            await shake_hands(address, context, address.host)
            return True
    return False


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()
