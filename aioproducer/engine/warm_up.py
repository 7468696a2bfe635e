"""Does ahead of time what the first record would wait for: topics, connections to their leaders, the producer id."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aioproducer.core.failed_attempt import timed_out
from aioproducer.engine.engine import Engine
from aioproducer.net.client import NetworkClient

__all__ = ["warm_up"]


async def warm_up(engine: Engine, topics: Sequence[str], deadline: float) -> None:
    """Wait until all of it is done; ``deadline`` is a time of the event loop.

    Raises `KafkaTimeoutError`, `AuthenticationError` at once, and what `NetworkClient.wait_topic` raises. Cancellation:
    nothing is undone.
    """
    client = engine.client
    await client.wait_ready(deadline)
    for topic in topics:
        if client.topic(topic) is None:
            client.request_update(topic)  # all of them in one request
    for topic in topics:
        await client.wait_topic(topic, None, deadline)
    await _wait(engine, lambda: _unconnected(client, topics), "Not all leaders were connected in time", deadline)
    await _wait(engine, lambda: _without_producer_id(engine), "No producer id was obtained in time", deadline)


async def _wait(engine: Engine, still_missing: Callable[[], Sequence[int | None]], what: str, deadline: float) -> None:
    """Wait until nothing is missing: a broker with this id, or with None anything else of the cluster."""
    client, began = engine.client, engine.loop.time()
    while missing := still_missing():
        for node_id in missing:
            refused = client.refusal(began, node_id)
            if refused is not None:
                raise refused
        now = engine.loop.time()
        if now >= deadline:
            raise timed_out(what, client.last_failure, now)
        await client.wait_change(deadline)


def _unconnected(client: NetworkClient, topics: Sequence[str]) -> list[int]:
    """The leaders that are not connected; begins to connect them. Partitions without a leader are passed over."""
    metadata = client.metadata
    known = [topic for name in topics if (topic := metadata.topics.get(name)) is not None]
    leaders = {each.leader for topic in known for each in topic.partitions if each.leader in metadata.nodes}
    for node_id in leaders:
        client.can_send(node_id)  # connects it
    return sorted(leaders - set(client.connected_nodes()))


def _without_producer_id(engine: Engine) -> list[None]:
    return [None] if engine.sequences.needs_producer_id else []
