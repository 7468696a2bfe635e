"""Reads a cluster's brokers, topics and topic configurations over one connection that is logged in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from aioproducer.cli.brokers import Brokers, connected
from aioproducer.config import ProducerConfig
from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.protocol.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

__all__ = ["CONFIGS", "Broker", "Cluster", "Partition", "Topic", "read_cluster"]

#: The topic configurations that matter to a producer, in the order of the report.
CONFIGS: Final = (
    "max.message.bytes",
    "min.insync.replicas",
    "message.timestamp.type",
    "compression.type",
    "cleanup.policy",
    "retention.ms",
)
_CLIENT_ID: Final = "aioproducer-meta"
_TOPIC: Final = 2
#: Topics whose configurations one request asks for: a broker answers it as a whole.
_TOPICS_AT_ONCE: Final = 500


class Broker(NamedTuple):
    """One broker, at the address that it advertises."""

    node_id: int
    host: str
    port: int
    rack: str | None

    @property
    def address(self) -> str:
        """The address as host:port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Partition(NamedTuple):
    """One partition; ``leader`` -1: none."""

    number: int
    leader: int
    replicas: Sequence[int]
    in_sync: Sequence[int]

    @property
    def is_leaderless(self) -> bool:
        """Whether it has no leader, so that nothing can be written to it."""
        return self.leader < 0

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica is not in sync."""
        return len(self.in_sync) < len(self.replicas)


class Topic(NamedTuple):
    """One topic; ``error`` names Kafka's error, ``configs`` None: they may not be read."""

    name: str
    error: str | None
    is_internal: bool
    partitions: Sequence[Partition]
    configs: Mapping[str, str | None] | None


class Cluster(NamedTuple):
    """The cluster as the broker ``asked`` knows it."""

    asked: str
    cluster_id: str | None
    controller_id: int
    brokers: Sequence[Broker]
    topics: Sequence[Topic]


async def read_cluster(config: ProducerConfig, topics: Sequence[str], limit_s: float) -> Cluster:
    """The cluster with these topics, or with all if none is named; a topic that does not exist has an error.

    Raises Trouble if no bootstrap server can be used or ``limit_s`` seconds have passed; and KafkaError. Cancellation:
    closes the connection.
    """
    async with connected(config, _CLIENT_ID, limit_s) as brokers:
        found = await _metadata(brokers, topics)
        names = [each.name for each in found.topics if each.name is not None and each.error_code == ErrorCode.NONE]
        return _cluster(found, await _configs(brokers, names), brokers.asked)


async def _metadata(brokers: Brokers, topics: Sequence[str]) -> MetadataResponse:
    names = [MetadataRequestTopic(name=each) for each in dict.fromkeys(topics)]
    return await brokers.ask(MetadataRequest(topics=names or None, allow_auto_topic_creation=False))


async def _configs(brokers: Brokers, topics: Sequence[str]) -> Mapping[str, Mapping[str, str | None]]:
    """The configurations of the topics for which they may be read."""
    found: dict[str, Mapping[str, str | None]] = {}
    if ApiKey.DESCRIBE_CONFIGS not in brokers.first.versions.ranges:
        return found
    for first in range(0, len(topics), _TOPICS_AT_ONCE):
        resources = [
            DescribeConfigsResource(resource_type=_TOPIC, resource_name=name, configuration_keys=list(CONFIGS))
            for name in topics[first : first + _TOPICS_AT_ONCE]
        ]
        response = await brokers.ask(DescribeConfigsRequest(resources=resources))
        found |= {each.resource_name: _values(each) for each in response.results if each.error_code == ErrorCode.NONE}
    return found


def _values(result: DescribeConfigsResult) -> Mapping[str, str | None]:
    known = {each.name: each.value for each in result.configs}
    return {name: known[name] for name in CONFIGS if name in known}


def _cluster(found: MetadataResponse, configs: Mapping[str, Mapping[str, str | None]], asked: str) -> Cluster:
    brokers = [Broker(each.node_id, each.host, each.port, each.rack) for each in found.brokers]
    return Cluster(
        asked,
        found.cluster_id,
        found.controller_id,
        sorted(brokers, key=lambda each: each.node_id),
        sorted((_topic(each, configs) for each in found.topics), key=lambda each: each.name),
    )


def _topic(found: MetadataResponseTopic, configs: Mapping[str, Mapping[str, str | None]]) -> Topic:
    name = found.name or ""
    error = None if found.error_code == ErrorCode.NONE else _error_name(found.error_code)
    partitions = sorted(_partitions(found), key=lambda each: each.number)
    return Topic(name, error, found.is_internal, partitions, configs.get(name))


def _partitions(found: MetadataResponseTopic) -> Iterator[Partition]:
    for each in found.partitions:
        yield Partition(each.partition_index, each.leader_id, list(each.replica_nodes), list(each.isr_nodes))


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:  # of a later release
        return f"error {code}"
