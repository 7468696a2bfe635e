"""Asks one broker about the cluster, the topic, the rights and the coordinator."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Final

from aioproducer.cli.doctor import causes, meaning
from aioproducer.cli.doctor.report import Finding, Outcome, counted, good, warning
from aioproducer.cli.doctor.visit import Visit, Visitor, ask
from aioproducer.config import ProducerConfig
from aioproducer.core.cluster import Node
from aioproducer.net.connector import Established
from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.protocol.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
    ProduceRequest,
)

__all__ = ["ClusterQuestions"]

_TOPIC, _BROKER = 2, 4
_TRANSACTION: Final = 1
_PAUSE_S: Final = 0.1
_ROUND_TRIPS: Final = 7
#: From this version of ApiVersions on, a broker checks that it is the intended one (KIP-1242).
_FIRST_WITH_CHECK: Final = 5
#: The beginning of Kafka's message if another broker was asked for its configuration.
_OTHER_BROKER: Final = "Unexpected broker id"


class ClusterQuestions:
    """Questions on one connection that is logged in; each method is a step, and returns its findings."""

    def __init__(self, config: ProducerConfig, session: Established, limit_s: float) -> None:
        self._config = config
        self._session = session
        self._limit_s = limit_s
        self._throttle_ms = session.throttle_s * 1000
        self._user = "The user" if config.sasl_username is None else f"User {config.sasl_username!r}"
        self._sessions: dict[int, Established] = {}
        self.cluster: MetadataResponse | None = None

    def api_versions(self) -> list[Finding]:
        """The version of Produce, and the release of the broker."""
        versions = self._session.versions
        produce = versions.best(ProduceRequest, self._session.connection.name)
        return [
            good(f"Produce v{produce} would be used; the broker is likely {meaning.likely_release(versions.ranges)}")
        ]

    async def describe_cluster(self) -> list[Finding]:
        """The cluster's id, its controller and its brokers."""
        self.cluster = found = await self._metadata(self._session, [])
        brokers = ", ".join(f"{each.node_id} ({each.host}:{each.port})" for each in found.brokers)
        findings = meaning.shared_addresses({each.node_id: (each.host, each.port) for each in found.brokers})
        return [
            good(f"Cluster {found.cluster_id}, controller {found.controller_id}, brokers {brokers or 'none'}"),
            *findings,
        ]

    async def visit_brokers(self, visitor: Visitor) -> list[Finding]:
        """Visit the address that each broker advertises, as a producer does."""
        assert self.cluster is not None
        nodes = [Node(each.node_id, each.host, each.port) for each in self.cluster.brokers]
        return list(await asyncio.gather(*(self._visit(visitor, node) for node in nodes)))

    async def _visit(self, visitor: Visitor, node: Node) -> Finding:
        visit, warned = Visit(node), None
        stage_name = "connection"
        try:
            async with asyncio.timeout(self._limit_s):
                for stage in visitor.stages:
                    stage_name = getattr(stage, "__name__", "connection").replace("_", " ")
                    finding = await stage(visit)
                    if finding.outcome is Outcome.FAULT:
                        return finding
                    warned = finding if finding.outcome is Outcome.WARNING else warned
                return await self._identify(visitor, visit) or warned or good(f"Broker {node} is ready")
        except TimeoutError:
            return causes.silent(node, stage_name, self._limit_s)

    async def _identify(self, visitor: Visitor, visit: Visit) -> Finding | None:
        assert self.cluster is not None
        assert visit.session is not None
        self._sessions[visit.node.id] = visit.session
        expected = self.cluster.cluster_id
        found = await self._metadata(visit.session, [])
        if found.cluster_id != expected:
            return causes.other_cluster(visit.node, expected, found.cluster_id)
        newest = visit.session.versions.ranges.get(ApiKey.API_VERSIONS, (0, 0))[1]
        if newest >= _FIRST_WITH_CHECK:
            misled = expected is not None and await visitor.is_misled(visit, expected)
        else:
            misled = await self._denies(visit)
        return causes.other_node(visit.node) if misled else None

    async def _denies(self, visit: Visit) -> bool:
        """Whether the broker refuses to describe the node, because it is another one (before Kafka 4.4)."""
        assert visit.session is not None
        described = await self._described(visit.session, _BROKER, str(visit.node.id), [])
        return described is not None and (described.error_message or "").startswith(_OTHER_BROKER)

    async def check_idempotence(self) -> list[Finding]:
        """Ask for a producer id, as each idempotent producer does."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        until = self._patience()
        while True:
            answer = await ask(self._session, request, self._limit_s)
            if answer.error_code not in _NOT_YET or time.monotonic() > until:
                return [meaning.about_idempotence(answer.error_code, self._user)]
            await asyncio.sleep(_PAUSE_S)

    def _patience(self) -> float:
        """The end of the time in which a coordinator may still be loading."""
        return time.monotonic() + self._limit_s * 0.9

    async def describe_topic(self, name: str) -> list[Finding]:
        """Partitions, leaders, replicas in sync, limits, and the right to write."""
        response = await self._metadata(self._session, [name])
        topic = next((each for each in response.topics if each.name == name), None)
        if topic is None or topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            allows = self._config.allow_auto_create_topics
            server = self._session.connection.name
            return [meaning.about_missing_topic(name, server, await self._broker_creates(), client_allows=allows)]
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            return [meaning.about_topic_error(name, topic.error_code, self._user)]
        configs = await self._configs(_TOPIC, name, ["min.insync.replicas", "max.message.bytes"])
        return [*self._judge(topic, configs), _summary(topic, configs or {})]

    def _judge(self, topic: MetadataResponseTopic, configs: Mapping[str, str | None] | None) -> list[Finding]:
        hidden: list[Finding] = []
        if configs is None:
            hidden = [
                warning(
                    f"The configuration of topic {topic.name!r} cannot be read: min.insync.replicas was not compared",
                    f"{self._user} has no right to describe it. A producer does not need this right.",
                    f"For a complete check, add an ACL that allows DESCRIBE_CONFIGS on topic {topic.name}.",
                )
            ]
        known = configs or {}
        needed = int(known["min.insync.replicas"] or 1) if "min.insync.replicas" in known else None
        return [
            *meaning.about_writing(topic, self._user),
            *meaning.about_partitions(topic, needed, self._config.acks == -1),
            *meaning.about_limits(self._config, known),
            *hidden,
        ]

    async def _broker_creates(self) -> bool | None:
        """The broker's option auto.create.topics.enable; None if it may not be read."""
        for node_id, session in self._sessions.items():  # each broker describes only itself
            configs = await self._configs(_BROKER, str(node_id), ["auto.create.topics.enable"], session)
            value = None if configs is None else configs.get("auto.create.topics.enable")
            return None if value is None else value == "true"
        return None

    async def find_coordinator(self, transactional_id: str) -> list[Finding]:
        """The coordinator of the transactional id; the first request may create its topic, so it is repeated."""
        request = FindCoordinatorRequest(
            key=transactional_id, key_type=_TRANSACTION, coordinator_keys=[transactional_id]
        )
        until = self._patience()
        while True:
            answer = await ask(self._session, request, self._limit_s)
            one = answer.coordinators[0] if answer.coordinators else None
            code, node_id = (answer.error_code, answer.node_id) if one is None else (one.error_code, one.node_id)
            if code not in _NOT_YET or time.monotonic() > until:
                return [meaning.about_coordinator(transactional_id, code, str(node_id), self._user)]
            await asyncio.sleep(_PAUSE_S)

    async def measure(self) -> list[Finding]:
        """The median time of a metadata request, and the longest throttle time so far."""
        took: list[float] = []
        for _ in range(_ROUND_TRIPS):
            began = time.perf_counter()
            await self._metadata(self._session, [])
            took.append((time.perf_counter() - began) * 1000)
        sentence = f"The median of {_ROUND_TRIPS} round trips is {statistics.median(took):.1f} ms"
        if not self._throttle_ms:
            return [good(f"{sentence}, without throttling")]
        return [
            warning(
                f"{sentence}; the broker throttles for {self._throttle_ms:.0f} ms",
                "A quota of the user or the client id is used up.",
                "Raise the quota (kafka-configs.sh), or send less.",
            )
        ]

    async def _metadata(self, session: Established, topics: Sequence[str]) -> MetadataResponse:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=each) for each in topics],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        )
        response = await ask(session, request, self._limit_s)
        self._throttle_ms = max(self._throttle_ms, response.throttle_time_ms)
        return response

    async def _configs(
        self, kind: int, name: str, keys: Sequence[str], session: Established | None = None
    ) -> dict[str, str | None] | None:
        """The values; None if they may not be read."""
        found = await self._described(session or self._session, kind, name, keys)
        if found is None or found.error_code != ErrorCode.NONE:
            return None
        return {each.name: each.value for each in found.configs}

    async def _described(
        self, session: Established, kind: int, name: str, keys: Sequence[str]
    ) -> DescribeConfigsResult | None:
        if ApiKey.DESCRIBE_CONFIGS not in session.versions.ranges:
            return None
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys))
        response = await ask(session, DescribeConfigsRequest(resources=[resource]), self._limit_s)
        return response.results[0] if response.results else None


_NOT_YET: Final = frozenset((ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))


def _summary(topic: MetadataResponseTopic, configs: Mapping[str, str | None]) -> Finding:
    in_sync = min((len(each.isr_nodes) for each in topic.partitions), default=0)
    most = max((len(each.replica_nodes) for each in topic.partitions), default=0)
    needed = f" (min.insync.replicas {configs['min.insync.replicas']})" if "min.insync.replicas" in configs else ""
    return good(
        f"Topic {topic.name!r}: {counted(len(topic.partitions), 'partition')}, {counted(most, 'replica')}, at least "
        f"{in_sync} in sync{needed}"
    )
