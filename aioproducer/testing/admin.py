"""A small blocking admin client for tests.

It creates and deletes topics, and reads metadata, offsets and raw record batches.
"""

from __future__ import annotations

import itertools
import struct
import time
from typing import TYPE_CHECKING, Final, TypeVar

from aioproducer.errors import BrokerConnectionError, BrokerError
from aioproducer.protocol.error_codes import ErrorCode, broker_error
from aioproducer.protocol.message import Response
from aioproducer.protocol.messages import (
    ApiVersionsRequest,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from aioproducer.testing.blocking_connection import BlockingConnection

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from aioproducer.protocol.message import Request

__all__ = ["Admin"]

_TIMEOUT: Final = 10.0
_RETRY_PAUSE: Final = 0.05
_BROKER_TIMEOUT_MS: Final = 5000
_FETCH_SIZE: Final = 16 * 1024 * 1024
#: From version 13 on topics are named by id, which would have to be looked up; every broker supports version 12.
_FETCH_BY_NAME: Final = 12
#: The same for DeleteTopics.
_DELETE_BY_NAME: Final = 5
#: Special timestamps of ListOffsets.
_LATEST, _EARLIEST = -1, -2

#: Fields of a record batch: base offset and size of the rest; further in, the last offset delta.
_BATCH_START: Final = struct.Struct(">qi")
_LAST_OFFSET_DELTA: Final = struct.Struct(">i")
_LAST_OFFSET_DELTA_AT: Final = 23

ResponseT = TypeVar("ResponseT", bound=Response)


class Admin:
    """Asks any broker, over a new connection each time: there is nothing to close.

    All methods raise BrokerError if a broker refuses a request, and BrokerConnectionError if no broker can be reached.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self._addresses = [_address(server) for server in bootstrap_servers.split(",") if server]

    def metadata(self, topics: Sequence[str] | None = None) -> MetadataResponse:
        """One broker's metadata of these topics, or of all; does not create topics."""
        wanted = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
        return self._ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False))

    def broker_ids(self) -> set[int]:
        """The brokers that are alive according to the controller, as far as the asked broker knows."""
        return {broker.node_id for broker in self.metadata([]).brokers}

    def topics(self) -> set[str]:
        """The names of all topics, including internal ones."""
        return {topic.name for topic in self.metadata().topics if topic.name is not None}

    def leaders(self, topic: str) -> dict[int, int]:
        """The leader of each partition that has one; empty if the topic does not exist."""
        partitions = itertools.chain.from_iterable(found.partitions for found in self.metadata([topic]).topics)
        return {partition.partition_index: partition.leader_id for partition in partitions if partition.leader_id >= 0}

    def leaderless(self, broker_id: int) -> list[tuple[str, int]]:
        """The partitions without a leader for which this broker is in sync and could become leader."""
        return [
            (topic.name or "", partition.partition_index)
            for topic in self.metadata().topics
            for partition in topic.partitions
            if partition.leader_id < 0 and broker_id in partition.isr_nodes
        ]

    def finalized_feature(self, name: str) -> int:
        """The level of a feature such as ``transaction.version`` in this cluster, 0 if it has none."""
        request = ApiVersionsRequest(client_software_name="aioproducer-testing", client_software_version="1")
        features = self._ask(request).finalized_features
        return next((feature.max_version_level for feature in features if feature.name == name), 0)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Create the topic, or only validate the request. Brokers learn of it, and of its leaders, a little later."""
        configs = [CreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items()]
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replication_factor, configs=configs
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=_BROKER_TIMEOUT_MS, validate_only=validate_only)
        for result in self._ask(request).topics:
            _check(result.error_code, result.error_message)

    def delete_topic(self, name: str) -> None:
        """Delete the topic. Brokers learn of it a little later."""
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=_BROKER_TIMEOUT_MS)
        for result in self._ask(request, _DELETE_BY_NAME).responses:
            _check(result.error_code, result.error_message)

    def list_offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        """The first offset and the end offset of each partition."""
        deadline = time.monotonic() + _TIMEOUT
        while True:
            try:
                return self._list_offsets(topic)
            except BrokerError as error:  # a newly elected leader returns this for a moment
                if not error.retriable or time.monotonic() > deadline:
                    raise
            time.sleep(_RETRY_PAUSE)

    def _list_offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        found: dict[int, tuple[int, int]] = {}
        for address, partitions in self._by_leader(topic).items():
            with BlockingConnection(*address, _TIMEOUT) as leader:
                earliest = _offsets(leader, topic, partitions, _EARLIEST)
                latest = _offsets(leader, topic, partitions, _LATEST)
            found |= {partition: (earliest[partition], latest[partition]) for partition in partitions}
        return dict(sorted(found.items()))

    def fetch_all(self, topic: str) -> dict[int, list[bytes]]:
        """The raw record batches of each partition, up to its current end."""
        offsets = self.list_offsets(topic)
        found: dict[int, list[bytes]] = {}
        for address, partitions in self._by_leader(topic).items():
            with BlockingConnection(*address, _TIMEOUT) as leader:
                for partition in partitions:
                    found[partition] = list(_fetch(leader, topic, partition, *offsets[partition]))
        return dict(sorted(found.items()))

    def _by_leader(self, topic: str) -> dict[tuple[str, int], list[int]]:
        metadata = self.metadata([topic])
        addresses = {broker.node_id: (broker.host, broker.port) for broker in metadata.brokers}
        grouped: dict[tuple[str, int], list[int]] = {}
        for found in metadata.topics:
            _check(found.error_code)
            for partition in found.partitions:
                if partition.leader_id < 0:
                    raise broker_error(ErrorCode.LEADER_NOT_AVAILABLE)
                grouped.setdefault(addresses[partition.leader_id], []).append(partition.partition_index)
        return grouped

    def _ask(self, request: Request[ResponseT], highest: int | None = None) -> ResponseT:
        errors: list[str] = []
        for address in self._addresses:
            try:
                with BlockingConnection(*address, _TIMEOUT) as broker:
                    return broker.ask(request, highest)
            except BrokerConnectionError as error:
                errors.append(str(error))
        raise BrokerConnectionError(f"Could not reach any broker. {' '.join(errors)}".rstrip())


def _address(server: str) -> tuple[str, int]:
    host, _, port = server.strip().rpartition(":")
    return host.strip("[]"), int(port)


def _check(error_code: int, message: str | None = None) -> None:
    if error_code != ErrorCode.NONE:
        raise broker_error(error_code, message)


def _offsets(leader: BlockingConnection, topic: str, partitions: Sequence[int], timestamp: int) -> dict[int, int]:
    wanted = [ListOffsetsPartition(partition_index=partition, timestamp=timestamp) for partition in partitions]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=wanted)])
    offsets: dict[int, int] = {}
    for answer in itertools.chain.from_iterable(found.partitions for found in leader.ask(request).topics):
        _check(answer.error_code)
        offsets[answer.partition_index] = answer.offset
    return offsets


def _fetch(
    leader: BlockingConnection, topic: str, partition: int, offset: int, end: int
) -> Generator[bytes, None, None]:
    while offset < end:
        wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=_FETCH_SIZE)
        request = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[wanted])])
        response = leader.ask(request, _FETCH_BY_NAME)
        _check(response.error_code)
        for answer in itertools.chain.from_iterable(found.partitions for found in response.responses):
            _check(answer.error_code)
            for batch in _whole_batches(bytes(answer.records or b"")):
                yield batch
                offset = _offset_after(batch)


def _whole_batches(data: bytes) -> Generator[bytes, None, None]:
    """The record batches of a Fetch response, without a truncated last one."""
    position = 0
    while position + _BATCH_START.size <= len(data):
        _, length = _BATCH_START.unpack_from(data, position)
        end = position + _BATCH_START.size + length
        if end > len(data):
            return
        yield data[position:end]
        position = end


def _offset_after(batch: bytes) -> int:
    base_offset, _ = _BATCH_START.unpack_from(batch)
    (last_offset_delta,) = _LAST_OFFSET_DELTA.unpack_from(batch, _LAST_OFFSET_DELTA_AT)
    return int(base_offset + last_offset_delta + 1)
