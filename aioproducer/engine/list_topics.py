"""Asks a broker for the whole cluster, beside the records that are sent."""

from __future__ import annotations

import asyncio

from aioproducer.core.cluster_info import cluster_info
from aioproducer.core.failed_attempt import timed_out
from aioproducer.engine.engine import Engine
from aioproducer.protocol.messages import MetadataRequest
from aioproducer.types import ClusterInfo

__all__ = ["list_topics"]


async def list_topics(engine: Engine, deadline: float) -> ClusterInfo:
    """The cluster as one of its brokers describes it; ``deadline`` is a time of the event loop.

    Raises `KafkaTimeoutError`, and `AuthenticationError` at once. Cancellation: nothing is undone.
    """
    client = engine.client
    await client.wait_ready(deadline)
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    limit = asyncio.timeout_at(deadline)
    try:
        async with limit:
            # With its usual limit: a request that reaches its own ends the connection, and records may be in flight there.
            return await client.request(request, read=cluster_info)
    except TimeoutError:
        if not limit.expired():
            raise
        text = "No broker has answered a request for all topics in time"
        raise timed_out(text, client.last_failure, engine.loop.time()) from None
