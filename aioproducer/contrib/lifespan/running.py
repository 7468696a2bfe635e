"""A lifespan that runs producers: they are started and warmed up, and closed at the end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Final, TypeAlias, TypeVar

from aioproducer.arguments import check_timeout
from aioproducer.errors import ConfigError, KafkaTimeoutError
from aioproducer.producer import Producer
from aioproducer.runtime.log import ClientLog

__all__ = ["WARM_UP_S", "Lifespan", "lifespan", "warn_of_late_start"]

_App = TypeVar("_App")

Lifespan: TypeAlias = Callable[[_App], AbstractAsyncContextManager[Any]]

#: The patience with a cluster that does not answer when the service starts, in seconds.
WARM_UP_S: Final = 2.0


def lifespan(
    *producers: Producer,
    warm_up: Iterable[str] = (),
    warm_up_timeout: float = WARM_UP_S,
    inside: Lifespan[Any] | None = None,
) -> Lifespan[Any]:
    """A lifespan that starts these producers with a service, and closes them with it.

    ::

        producer = Producer("kafka:9092")
        app = FastAPI(lifespan=lifespan(producer, warm_up=["orders"]))

    Each producer is warmed up for the topics (`Producer.warm_up`), so that the first request does not wait for it. If that
    takes longer than ``warm_up_timeout`` seconds, a warning is logged and the service starts: the producers go on by
    themselves. Everything else that `Producer.warm_up` raises keeps the service from starting, such as refused credentials.
    ``inside`` is another lifespan, which runs while the producers are started; its state is passed on. In Litestar:
    ``Litestar(lifespan=[lifespan(producer)])``. Raises `ConfigError` without a producer, and for an invalid timeout.
    Cancellation: the producers that were started are closed.
    """
    if not producers:
        raise ConfigError("lifespan() needs at least one producer.")
    check_timeout(warm_up_timeout, ConfigError)
    topics = tuple(warm_up)

    @asynccontextmanager
    async def span(app: Any) -> AsyncGenerator[Any, None]:
        async with AsyncExitStack() as stack:
            for producer in producers:
                await stack.enter_async_context(producer)
            for producer in producers:
                await _warm_up(producer, topics, warm_up_timeout)
            yield None if inside is None else await stack.enter_async_context(inside(app))

    return span


async def _warm_up(producer: Producer, topics: tuple[str, ...], timeout: float) -> None:
    try:
        await producer.warm_up(*topics, timeout=timeout)
    except KafkaTimeoutError as error:
        warn_of_late_start(producer.client_id, timeout, error)


def warn_of_late_start(client_id: str, timeout: float, error: KafkaTimeoutError) -> None:
    """Log that this producer is not ready, although the service starts."""
    ClientLog(client_id).warning(
        "The service starts before the producer is ready: after %g s it was not warmed up. %s", timeout, error
    )
