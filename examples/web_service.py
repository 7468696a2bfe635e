"""A web service that produces: an ASGI application without a framework, for uvicorn, hypercorn or granian.

    KAFKA_BOOTSTRAP_SERVERS=... uvicorn web_service:app

The producer is a module-level object: creating it does no I/O. The server's lifespan starts and closes it, and starting
waits for no broker, so the service comes up even if Kafka is down; /ready says whether Kafka can be reached.

    POST /orders  answers when the order is in Kafka, or after two seconds at the latest
    POST /clicks  answers at once; if Kafka is too slow, clicks are refused, so that memory stays bounded
    GET /ready    for the load balancer
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from _broker import bootstrap_servers

from aioproducer import BufferFull, InvalidRecord, MetadataNotReady, NotWritten, Producer, Unknown

Scope: TypeAlias = Mapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Mapping[str, Any]]]
Send: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]

producer = Producer(bootstrap_servers(), client_id="web-service", buffer_memory=8 * 1024 * 1024)


class Reply(NamedTuple):
    status: int
    body: Mapping[str, object]


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
    elif scope["type"] == "http":
        handler = ROUTES.get((scope["method"], scope["path"]), not_found)
        reply = await handler(await whole_body(receive))
        await respond(send, reply)


async def lifespan(receive: Receive, send: Send) -> None:
    await receive()  # lifespan.startup
    await producer.start()
    await send({"type": "lifespan.startup.complete"})
    await receive()  # lifespan.shutdown
    report = await producer.close(timeout=5)
    if not report.clean:
        print(
            f"{report.failed} records failed, of {report.unknown} it is not known; {len(report.undelivered)} are left"
        )
    await send({"type": "lifespan.shutdown.complete"})


async def take_order(body: bytes) -> Reply:
    """An order counts when Kafka has it, so wait; but no longer than the customer does."""
    try:
        metadata = await producer.send("orders", body, timeout=2.0)
    except InvalidRecord as error:
        return Reply(400, {"error": str(error)})
    except NotWritten as error:
        return Reply(503, {"error": str(error), "retry": "safe: the order was not taken"})
    except Unknown as error:
        return Reply(504, {"error": str(error), "retry": "only with the same order number: it may have been taken"})
    return Reply(201, {"partition": metadata.partition, "offset": metadata.offset})


async def take_click(body: bytes) -> Reply:
    """A click may get lost, a full memory must not take the service down: never wait, shed load instead."""
    try:
        producer.enqueue_nowait("clicks", body)
    except (BufferFull, MetadataNotReady) as error:
        return Reply(503, {"error": str(error)})
    return Reply(202, {})


async def ready(body: bytes) -> Reply:
    health = producer.health()
    return Reply(200 if health.ready else 503, {"status": health.status, "pressure": round(health.pressure, 3)})


async def not_found(body: bytes) -> Reply:
    return Reply(404, {"error": "There is nothing here."})


ROUTES: Mapping[tuple[str, str], Callable[[bytes], Awaitable[Reply]]] = {
    ("POST", "/orders"): take_order,
    ("POST", "/clicks"): take_click,
    ("GET", "/ready"): ready,
}


async def whole_body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(body)


async def respond(send: Send, reply: Reply) -> None:
    headers = [(b"content-type", b"application/json")]
    if reply.status == 503:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(reply.body).encode()})


async def main() -> None:
    """Without a web server: what its requests would get."""
    await producer.start()
    for method, path, body in (
        ("POST", "/orders", b'{"item": "tea"}'),
        ("GET", "/ready", b""),
        ("POST", "/clicks", b"{}"),
        ("GET", "/nothing", b""),
    ):
        reply = await ROUTES.get((method, path), not_found)(body)
        print(f"{method} {path}: {reply.status} {json.dumps(reply.body)}")
    print(await producer.close(timeout=5))


if __name__ == "__main__":
    asyncio.run(main())
