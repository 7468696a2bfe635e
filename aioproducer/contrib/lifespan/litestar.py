"""Runs producers with a Litestar application, and injects one into its handlers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from litestar.di import Provide
from litestar.plugins import InitPlugin

from aioproducer.contrib.lifespan.running import WARM_UP_S, lifespan
from aioproducer.errors import ConfigError
from aioproducer.producer import Producer

if TYPE_CHECKING:
    from litestar.config.app import AppConfig

__all__ = ["ProducerPlugin"]


class ProducerPlugin(InitPlugin):
    """A plugin that starts a producer with the application, closes it with it, and injects it into handlers.

    ::

        @post("/orders")
        async def order(producer: NamedDependency[Producer], data: dict[str, str]) -> int:
            return (await producer.send("orders", data["item"])).offset

        app = Litestar([order], plugins=[ProducerPlugin(Producer("kafka:9092"), warm_up=["orders"])])

    ``dependency`` is the name of the handlers' argument; None injects nothing. Give each producer another plugin, with
    another name. It starts before the application's own lifespans, and closes after them. ``warm_up`` and
    ``warm_up_timeout`` are those of `lifespan`. Raises `ConfigError` for an invalid timeout, and, when the application is
    created, if the name is taken.
    """

    def __init__(
        self,
        producer: Producer,
        *,
        warm_up: Iterable[str] = (),
        warm_up_timeout: float = WARM_UP_S,
        dependency: str | None = "producer",
    ) -> None:
        self._span = lifespan(producer, warm_up=warm_up, warm_up_timeout=warm_up_timeout)
        self._producer = producer
        self._dependency = dependency

    def on_app_init(self, app_config: AppConfig) -> AppConfig:
        """Add the lifespan and the dependency to the application; raises `ConfigError` if the dependency's name is taken."""
        app_config.lifespan = [self._span, *app_config.lifespan]  # pyright: ignore[reportUnknownMemberType]
        name = self._dependency
        if name is None:
            return app_config
        if name in app_config.dependencies:
            raise ConfigError(
                f"The application has a dependency {name!r}: give the ProducerPlugin another dependency=."
            )
        app_config.dependencies[name] = Provide(self._provide, sync_to_thread=False)
        return app_config

    def _provide(self) -> Producer:
        return self._producer
