"""Runs producers with an ASGI application that has no lifespan, such as Django's."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from aioproducer.contrib.lifespan.running import WARM_UP_S, Lifespan, lifespan
from aioproducer.producer import Producer

if TYPE_CHECKING:
    from aioproducer.contrib.asgi import ASGIApp, Receive, Scope, Send

__all__ = ["with_producers"]


def with_producers(
    application: ASGIApp,
    *producers: Producer,
    warm_up: Iterable[str] = (),
    warm_up_timeout: float = WARM_UP_S,
) -> ASGIApp:
    """An ASGI application that starts these producers with the server, and closes them with it.

    ::

        producer = Producer("kafka:9092")
        application = with_producers(get_asgi_application(), producer)

    It handles the ASGI lifespan itself and passes all other connections to ``application``, which gets no lifespan: Django
    has none. The server has to support it, as uvicorn, hypercorn and granian do; Daphne does not. The arguments are those of
    `lifespan`. If a producer cannot start, as with refused credentials, the server receives ``lifespan.startup.failed`` with
    the reason, and ends. Raises `ConfigError` without a producer, and for an invalid timeout. Cancellation: the producers
    are closed.
    """
    span = lifespan(*producers, warm_up=warm_up, warm_up_timeout=warm_up_timeout)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(span, receive, send)
        else:
            await application(scope, receive, send)

    return app


async def _live(span: Lifespan[None], receive: Receive, send: Send) -> None:
    """Enter and leave the lifespan when the server says so, and report to it what fails."""
    await receive()  # lifespan.startup
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(span(None))
        except Exception as error:  # raised, a server with lifespan="auto" would take it for "not supported", and start
            await send({"type": "lifespan.startup.failed", "message": f"{type(error).__name__}: {error}"})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()  # lifespan.shutdown
        try:
            await stack.aclose()
        except Exception as error:
            await send({"type": "lifespan.shutdown.failed", "message": f"{type(error).__name__}: {error}"})
            return
    await send({"type": "lifespan.shutdown.complete"})
