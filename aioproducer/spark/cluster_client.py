"""Sends brokers the requests that a producer does not need: configurations, topics, fetches of earlier records."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import Random
from types import TracebackType
from typing import Self, TypeVar

from aioproducer.config import ProducerConfig
from aioproducer.core.backoff import retry_backoff
from aioproducer.errors import AuthenticationError, BrokerError, KafkaError, KafkaTimeoutError, UnsupportedVersion
from aioproducer.net.client import NetworkClient, whole
from aioproducer.protocol.message import Request, Response
from aioproducer.runtime.log import ClientLog

__all__ = ["ClusterClient"]

logger = logging.getLogger("aioproducer.spark")

_R = TypeVar("_R", bound=Response)


class ClusterClient:
    """Connections to a cluster, for some requests; ``max_block_ms`` bounds all of them together.

    ::

        async with ClusterClient(config) as cluster:
            response = await cluster.ask(request)
    """

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._random = Random()
        self._backoff = retry_backoff(config)

    async def __aenter__(self) -> Self:
        client_id = self._config.client_id or "aioproducer-spark"
        loop = asyncio.get_running_loop()
        self.restart_time()
        self._client = NetworkClient(
            self._config, client_id=client_id, log=ClientLog(client_id), random=self._random, on_ready=lambda: None
        )
        self._running = loop.create_task(self._client.run())
        return self

    def restart_time(self) -> None:
        """Restart the time limit for the requests from now on."""
        self._deadline = asyncio.get_running_loop().time() + self._config.max_block_ms / 1000

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._client.close()
        await self._running

    async def ask(
        self,
        request: Request[_R],
        check: Callable[[_R], object] = lambda response: None,
        *,
        node_id: int | None = None,
    ) -> _R:
        """Send a request and return the response; ``broker`` None: any broker.

        ``check`` raises a `BrokerError` for an error in the response; the request is retried while that is retriable. Raises
        the reason if there is no response in time, or what ``check`` raised. Cancellation: nothing is left open.
        """

        async def once(seconds: float) -> _R:
            response = await self._client.request(request, read=whole, node_id=node_id, timeout_s=seconds)
            check(response)
            return response

        return await self._repeat(once, type(request).__name__)

    async def ask_leader(
        self, topic: str, partition: int, request: Request[_R], highest: int, check: Callable[[_R], object]
    ) -> _R:
        """As `ask`, to the leader of a partition, in version ``highest`` at most."""

        async def once(seconds: float) -> _R:
            known = await self._client.wait_topic(topic, partition, asyncio.get_running_loop().time() + seconds)
            versions = (request.versions[0], highest)
            try:
                response, _ = await self._client.ask(
                    request,
                    node_id=known.partitions[partition].leader,
                    versions=versions,
                    timeout_s=seconds,
                    read=whole,
                )
                check(response)
            except KafkaError:
                self._client.request_update(topic)  # the leader may have changed
                raise
            return response

        return await self._repeat(once, f"{type(request).__name__} for {topic}-{partition}")

    async def _repeat(self, once: Callable[[float], Awaitable[_R]], what: str) -> _R:
        loop, attempts = asyncio.get_running_loop(), 0
        while True:
            try:
                return await once(max(self._deadline - loop.time(), 0))
            except (AuthenticationError, UnsupportedVersion):
                raise
            except KafkaError as error:
                if isinstance(error, BrokerError) and not error.retriable:
                    raise
                pause = self._backoff.delay(attempts, self._random.random())
                if isinstance(error, KafkaTimeoutError) or loop.time() + pause >= self._deadline:
                    raise
                logger.debug("%s failed and is retried: %s", what, error)
            await asyncio.sleep(pause)
            attempts += 1

    @property
    def is_late(self) -> bool:
        """Whether the time limit for all requests has passed."""
        return asyncio.get_running_loop().time() >= self._deadline
