"""A Sender over a `Rig`, with brokers that answer what the test says, and an open transaction where it wants one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from aioproducer.config import ProducerConfig
from aioproducer.core.backoff import ExponentialBackoff
from aioproducer.core.cluster import ClusterMetadata
from aioproducer.core.failed_attempt import FailedAttempt
from aioproducer.core.transactions.manager import TransactionManager
from aioproducer.engine.sender import Sender
from aioproducer.errors import KafkaError
from aioproducer.net.client import NetworkClient
from aioproducer.net.connection import Answer
from aioproducer.protocol.message import Request
from aioproducer.protocol.messages import ProduceRequest
from aioproducer.runtime.log import ClientLog
from aioproducer.runtime.pulse import Pulse
from aioproducer.transactions.link import TransactionLink
from aioproducer.transactions.shared_acknowledgements import SharedAcknowledgements
from tests.core.transaction_bench import Bench
from tests.rig import Rig

__all__ = ["Client", "SentRequest", "begin", "sender_of", "shared_acknowledgements", "transaction_link"]


@dataclass
class SentRequest:
    """One Produce request, and how it was handed to the client."""

    node: int
    message: ProduceRequest
    version: int
    take: Callable[[Answer[Any]], None]
    timeout_s: float
    read: Callable[[Any], Any]
    expect_response: bool
    at: float  # the event loop's time

    @property
    def partitions(self) -> list[tuple[str, int]]:
        return [(topic.name, each.index) for topic in self.message.topic_data for each in topic.partition_data]


class Client:
    """Brokers that take Produce requests, and answer when the test does; other requests are answered by ``respond``."""

    def __init__(self, metadata: ClusterMetadata, *, version: int = 9) -> None:
        self.metadata = metadata
        self.version = version
        self.ready = True
        self.last_failure: FailedAttempt | None = None
        self.sent: list[SentRequest] = []
        self.updates: list[str | None] = []
        self.asked: list[tuple[float, Request[Any], float]] = []
        self.respond: Callable[[Request[Any]], Any] = lambda request: KafkaError("No broker answers.")

    def can_send(self, node: int) -> bool:
        return self.ready

    def frame_broker(self, node: int, *, idle: bool = False) -> None:
        """Messages encode all requests here, so that tests can read them."""

    def in_flight(self, node: int) -> int:
        return sum(request.node == node for request in self.sent)

    def usable_version(self, node: int, request: object) -> int:
        return self.version

    def request_update(self, topic: str | None = None) -> None:
        self.updates.append(topic)

    def send(
        self,
        node: int,
        request: ProduceRequest,
        version: int,
        take: Callable[[Answer[Any]], None],
        timeout_s: float,
        *,
        read: Callable[[Any], Any],
        expect_response: bool,
    ) -> None:
        now = asyncio.get_running_loop().time()
        self.sent.append(SentRequest(node, request, version, take, timeout_s, read, expect_response, now))

    async def request(self, request: Request[Any], *, timeout_s: float, read: Callable[[Any], Any]) -> Any:
        self.asked.append((asyncio.get_running_loop().time(), request, timeout_s))
        response = self.respond(request)
        if isinstance(response, KafkaError):
            raise response
        return read(response)


def sender_of(
    rig: Rig,
    client: Client,
    *,
    transactions: TransactionLink | None = None,
    shared: SharedAcknowledgements | None = None,
    **options: Any,
) -> Sender:
    return Sender(
        ProducerConfig.create("localhost:9092", **options),
        rig.accumulator,
        cast("NetworkClient", client),
        rig.sequences,
        rig.metrics,
        log=ClientLog("test"),
        random=lambda: 0.5,
        transactions=transactions,
        shared=shared,
        pulse=Pulse(asyncio.get_running_loop(), ClientLog("test"), lambda: False, lambda _: None, lambda: None),
    )


# -- transactions -----------------------------------------------------------------------------------------------------


def transaction_link() -> TransactionLink:
    """The transactions of a producer, for a rig; `begin` opens one."""
    return TransactionLink(
        asyncio.get_running_loop(),
        log=ClientLog("test"),
        wake_sender=lambda: None,
        on_open=lambda: None,
        on_shut=lambda: None,
    )


def begin(link: TransactionLink, rig: Rig, *, version: int = 2) -> Bench:
    """Open a transaction to which all batches of the rig belong; what is returned answers for the coordinator."""
    bench = Bench(is_v2=version == 2)
    manager = bench.manager = TransactionManager(
        "payments-1", timeout_ms=60_000, listener=link, transaction_version=lambda: version
    )
    link.bind(
        manager,
        rig.accumulator,
        rig.sequences,
        wake_carrier=lambda: None,
        refusal=lambda since, node: None,
        last_failure=lambda: None,
    )
    bench.begin()
    return bench


def shared_acknowledgements(rig: Rig, client: object) -> SharedAcknowledgements:
    """The check of acknowledgements while other producers write into the transaction."""
    return SharedAcknowledgements(
        rig.accumulator.outcomes,
        cast("NetworkClient", client),
        ExponentialBackoff(1.0, 10.0),
        1.0,
        log=ClientLog("test"),
        random=lambda: 0.5,
        wake=lambda: None,
    )
