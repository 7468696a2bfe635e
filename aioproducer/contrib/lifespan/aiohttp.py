"""Runs producers with an application of aiohttp.web."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from typing import TYPE_CHECKING

from aioproducer.contrib.lifespan.running import WARM_UP_S, lifespan
from aioproducer.producer import Producer

if TYPE_CHECKING:
    from aiohttp.web import Application

__all__ = ["cleanup_ctx"]


def cleanup_ctx(
    *producers: Producer, warm_up: Iterable[str] = (), warm_up_timeout: float = WARM_UP_S
) -> Callable[[Application], AsyncGenerator[None, None]]:
    """A context for ``Application.cleanup_ctx`` that starts these producers with the application, and closes them with it.

    ::

        producer = Producer("kafka:9092")
        app = web.Application()
        app.cleanup_ctx.append(cleanup_ctx(producer, warm_up=["orders"]))

    Append it before the contexts that send records: aiohttp leaves the last one first. The arguments are those of
    `lifespan`. Raises `ConfigError` without a producer, and for an invalid timeout. Cancellation: the producers are closed.
    """
    span = lifespan(*producers, warm_up=warm_up, warm_up_timeout=warm_up_timeout)

    async def context(app: Application) -> AsyncGenerator[None, None]:
        async with span(app):
            yield

    return context
