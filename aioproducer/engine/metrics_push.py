"""Begins to push metrics once a broker that supports it is connected, so that no other program imports the code for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING
from uuid import UUID

import anyio.to_thread

from aioproducer.config import ProducerConfig
from aioproducer.errors import KafkaTimeoutError, UnsupportedVersion
from aioproducer.metrics.producer import ProducerMetrics
from aioproducer.net.client import NetworkClient
from aioproducer.protocol.api_key import ApiKey
from aioproducer.runtime.deadline import Deadline
from aioproducer.runtime.log import ClientLog

if TYPE_CHECKING:
    from aioproducer.engine.telemetry import Telemetry

__all__ = ["MetricsPush"]


class MetricsPush:
    """The pushes of one engine, if there are any; the parameters are those of `Telemetry`."""

    def __init__(
        self,
        config: ProducerConfig,
        client: NetworkClient,
        metrics: ProducerMetrics,
        *,
        log: ClientLog,
        random: Callable[[], float],
        gauges: Callable[[], Mapping[str, float]],
        by_broker: Callable[[], Mapping[int, Mapping[str, float]]],
    ) -> None:
        self._config = config
        self._client = client
        self._metrics = metrics
        self._log = log
        self._random = random
        self._gauges = gauges
        self._by_broker = by_broker
        self._telemetry: Telemetry | None = None
        self._can_begin = asyncio.Event()
        self._known: asyncio.Future[UUID] | None = None  # created when it is needed: most programs never ask for the id

    def look_again(self) -> None:
        """A broker that was connected may support it."""
        if not self._can_begin.is_set() and self._client.connected_nodes(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS):
            self._can_begin.set()

    async def run(self) -> None:
        """Push until cancelled, once a broker supports it; ends if that is not possible."""
        await self._can_begin.wait()
        # Imported in a thread: the first records may be on their way.
        module = await anyio.to_thread.run_sync(import_module, "aioproducer.engine.telemetry", abandon_on_cancel=True)
        telemetry: Telemetry = module.Telemetry(
            self._config,
            self._client,
            self._metrics,
            log=self._log,
            random=self._random,
            gauges=self._gauges,
            by_broker=self._by_broker,
            learned=self._learn,
        )
        self._telemetry = telemetry
        await telemetry.run()
        known = self._id
        if not known.done():
            known.set_exception(UnsupportedVersion("The brokers refuse the requests for their metrics of this client."))
            known.exception()  # seen: perhaps no call waits for it

    @property
    def _id(self) -> asyncio.Future[UUID]:
        if self._known is None:
            self._known = asyncio.get_running_loop().create_future()
        return self._known

    def _learn(self, client_instance_id: UUID) -> None:
        if self._id.done():  # a broker may give another one, after it has forgotten the first
            self._known = None
        self._id.set_result(client_instance_id)

    async def client_instance_id(self, deadline: float) -> UUID:
        """Wait for the id that the cluster gives this client, until the deadline on the event loop's clock.

        Raises `UnsupportedVersion` if no connected broker gives any, and `KafkaTimeoutError`. Cancellation: others still
        wait for it.
        """
        if not (self._id.done() or self._client.connected_nodes(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS)):
            raise UnsupportedVersion(
                "The connected brokers take no metrics from clients: they are older than Kafka 3.7, or have no reporter "
                "that receives such metrics."
            )
        try:
            async with asyncio.timeout_at(deadline):
                return await asyncio.shield(self._id)
        except TimeoutError:
            raise KafkaTimeoutError("The brokers did not give this client an instance id in time.") from None

    async def end(self, deadline: Deadline) -> None:
        """Push for the last time before the producer is closed."""
        if self._telemetry is not None:
            await self._telemetry.end(deadline)
