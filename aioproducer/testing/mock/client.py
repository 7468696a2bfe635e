"""The connections of a mock producer: a `FakeCluster` that is called instead of asked through sockets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar, cast

from aioproducer.core.failed_attempt import timed_out
from aioproducer.errors import BrokerConnectionError, KafkaError, UnsupportedVersion
from aioproducer.metrics.producer import ProducerMetrics
from aioproducer.net.client import NetworkClient
from aioproducer.net.connection import WRITTEN, Answered
from aioproducer.protocol import ApiKey, Request, Response, decode_response_header, encode_request
from aioproducer.protocol.messages import MetadataRequest, MetadataRequestTopic
from aioproducer.runtime.log import ClientLog

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig
    from aioproducer.core.cluster import TopicMetadata
    from aioproducer.testing.broker.fake_cluster import FakeCluster

__all__ = ["NODE", "MockClient"]

_R = TypeVar("_R", bound=Response)
_T = TypeVar("_T")

#: The only broker of the cluster.
NODE = 1

#: A topic that was just created has no leader in the first response.
_MOST_QUESTIONS = 3


class MockClient(NetworkClient):
    """Answers every request at once, from the cluster; nothing is connected, and nothing waits."""

    def __init__(
        self,
        config: ProducerConfig,
        cluster: FakeCluster,
        *,
        client_id: str,
        log: ClientLog,
        random: Random,
        on_ready: Callable[[], object],
        metrics: ProducerMetrics,
    ) -> None:
        super().__init__(config, client_id=client_id, log=log, random=random, on_ready=on_ready, metrics=metrics)
        self._cluster = cluster
        self._client_id = client_id

    # -- requests -----------------------------------------------------------------------------------------------------

    def _answer(self, request: Request[_R], version: int) -> _R | None:
        """The response of the cluster; None if there is none. Raises `BrokerConnectionError` if it hangs up."""
        # The length in front of a frame is for sockets.
        frame = b"".join(encode_request(0, self._client_id, request, version))[4:]
        data = self._cluster.handle(NODE, frame, now_ms=time.time_ns() // 1_000_000)
        self._cluster.requests.clear()  # nothing reads them
        if data is None:
            return None
        return request.response_type.decode(version, decode_response_header(data, type(request), version)[1])

    async def ask(
        self,
        request: Request[_R],
        *,
        node_id: int | None,
        versions: tuple[int, int],
        timeout_s: float,
        read: Callable[[_R], _T | KafkaError],
        reach_s: float | None = None,
    ) -> tuple[_T, int]:
        """As of every client, without waiting. Cancellation: nothing is awaited here."""
        lowest, highest = versions
        version = min(highest, self.usable_version(NODE, type(request)))
        if version < lowest:
            raise UnsupportedVersion(f"The mock supports {type(request).__name__} up to {version}, not {lowest}.")
        response = self._answer(request, version)
        result = _no_response(request) if response is None else read(response)
        if isinstance(result, KafkaError):
            raise result
        return result, version

    def send(
        self,
        node_id: int,
        request: Request[Any],
        version: int,
        callback: Answered[_T],
        timeout_s: float,
        *,
        read: Callable[[Any], _T | KafkaError],
        expect_response: bool = True,
    ) -> None:
        """As of every client, but the callback is called before this returns."""
        response = cast("Response | None", self._answer(request, version))
        if response is not None:
            callback(read(response))
        else:
            callback(_no_response(request) if expect_response else WRITTEN)

    def usable_version(self, node_id: int, request: type[Request[Any]]) -> int:
        """The highest version that client and cluster support; raises `UnsupportedVersion` if there is none."""
        known = self._cluster.nodes[NODE].versions(ApiKey(request.api_key))
        if known is None:
            raise UnsupportedVersion(f"The mock does not support {request.__name__}.")
        return min(known[1], request.highest_spoken)

    def finalized_feature(self, name: str) -> int:
        """The level of a cluster feature; 0 if it has none of this name."""
        return self._cluster.transaction_version if name == "transaction.version" else 0

    def can_send(self, node_id: int) -> bool:
        """True: nothing is ever in flight."""
        return True

    def connected_nodes(self, api: int | None = None) -> list[int]:
        """The broker; none with a certain API, because the cluster takes no metrics."""
        return [NODE] if api is None else []

    # -- metadata -----------------------------------------------------------------------------------------------------

    def request_update(self, topic: str | None = None) -> None:
        """Update the metadata of the known topics, and of this one."""
        names = [*dict.fromkeys((*self.metadata.topics, *(() if topic is None else (topic,))))]
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=self._config.allow_auto_create_topics,
        )
        for _ in range(_MOST_QUESTIONS):
            response = self._answer(request, self.usable_version(NODE, MetadataRequest))
            if response is not None:
                self.metadata.update(response, now=self._loop.time())
            if not self.metadata.is_unsettled:
                break
        self._loop.call_soon(self._notify)

    async def wait_topic(self, name: str, partition: int | None, deadline: float) -> TopicMetadata:
        """The topic. Raises what every client raises, but at once if the topic does not exist: waiting cannot help.

        Cancellation: nothing is undone.
        """
        if name not in self.metadata.topics:
            self.request_update(name)  # creates the topic, if that is allowed
        if self.topic(name) is None and self.metadata.topics.get(name) is None:
            failure = self.topic_failure(name)
            if failure is None or "UNKNOWN_TOPIC" in str(failure.error):
                text = f"The partitions of topic {name!r} were not known in time"
                raise timed_out(text, failure, self._loop.time())
        return await super().wait_topic(name, partition, deadline)

    # -- life ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Do nothing until cancelled. Cancellation: ends at once."""
        self.request_update()
        await asyncio.get_running_loop().create_future()


def _no_response(request: Request[Any]) -> BrokerConnectionError:
    return BrokerConnectionError(f"The mock refuses this {type(request).__name__}.")
