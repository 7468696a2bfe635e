"""Remembers in Kafka which batch jobs were committed, by ``job.id``: a record for each job, in a compacted topic.

The record is written in the job's transaction, so both exist or neither does. Unlike the offset of a consumer group it does
not expire: as long as the topic is only compacted, a committed job stays known.

Each key is a ``transactional.id`` and a ``job.id``, so any number of queries can share a topic. A job reads the whole topic
when it begins, including uncommitted records, because a read_committed reader would wait for other queries' open
transactions. The job's own earlier transactions have ended by then, since beginning a new one ends them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from aioproducer.config import ProducerConfig
from aioproducer.core.transactions.handle import TransactionHandle
from aioproducer.errors import BrokerError, ConfigError, KafkaError, KafkaTimeoutError
from aioproducer.producer import Producer
from aioproducer.protocol.error_codes import ErrorCode, broker_error
from aioproducer.protocol.messages import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    MetadataRequest,
    MetadataRequestTopic,
    PartitionData,
)
from aioproducer.record.reader import read_batches
from aioproducer.spark.cluster_client import ClusterClient
from aioproducer.spark.exactly_once.commit_log_policy import CONFIGS, forgets
from aioproducer.spark.exactly_once.decided_records import DecidedRecords
from aioproducer.spark.exactly_once.earlier_commit import EarlierCommit
from aioproducer.spark.exactly_once.fingerprint import Fingerprint
from aioproducer.types import TopicPartition, Written

__all__ = ["CommitLog"]

_VERSION: Final = 1

#: All records are in one partition: they are few, and the result must not depend on the number of partitions.
_PARTITION: Final = 0

_TOPIC: Final = 2
_EARLIEST: Final = -2
_FETCH_BY_NAME: Final = 12
_FETCH_SIZE: Final = 1 << 20
_POLL_INTERVAL: Final = 0.05


class CommitLog:
    """The commit log in one topic; every call opens its own connections."""

    def __init__(self, config: ProducerConfig, topic: str) -> None:
        self._config = config
        self._topic = topic

    async def prepare(self) -> None:
        """Create the topic if it is missing. Raises `ConfigError` if it cannot be created, or would forget jobs.

        Cancellation: the topic may or may not have been created.
        """
        async with ClusterClient(self._config) as cluster:
            await self._create_if_missing(cluster)
            await self._check_policy(cluster)

    async def find(self, transactional_id: str, job_id: str) -> EarlierCommit | None:
        """The commit of this job, None if there is none; call it only while no transaction of this id is open.

        Raises `KafkaError` if the end of the topic is not reached in time. Cancellation: nothing is left open.
        """
        records = DecidedRecords(_key(transactional_id, job_id))
        async with ClusterClient(self._config) as cluster:
            at, why = await self._start(cluster), ""
            while True:
                try:
                    part = await self._fetch(cluster, at)
                except KafkaError as error:
                    if (
                        why and cluster.is_late
                    ):  # an earlier read failed for this reason, and there is no time for another
                        raise KafkaTimeoutError(why) from error
                    raise
                before = at
                for batch in read_batches(part.records or b"", partial_tail=True, compacted=True):
                    records.add(batch)
                    at = batch.last_offset + 1
                is_read = at >= part.high_watermark
                if is_read and not records.has_undecided:
                    return _commit_of(job_id, records.value)
                if at > before:
                    continue
                what = "its transaction has not ended" if is_read else f"nothing can be read after offset {at}"
                why = f"Unknown whether job.id {job_id!r} was committed: in topic {self._topic!r} {what}."
                if cluster.is_late:
                    raise KafkaTimeoutError(why)
                await asyncio.sleep(_POLL_INTERVAL)

    async def add(
        self, handle: TransactionHandle, job_id: str, contents: Fingerprint, at_ms: int
    ) -> Mapping[TopicPartition, Written]:
        """Write the record of this job into its transaction; returns the written offsets, for the commit.

        Raises the reason if that fails. Cancellation: the record may or may not be part of the transaction.
        """
        value = {
            "v": _VERSION,
            "t": at_ms,
            "rows": contents.rows,
            "bytes": contents.size,
            "digest": f"{contents.digest:016x}",
        }
        return await self._write(handle, job_id, json.dumps(value))

    async def forget(self, handle: TransactionHandle, job_id: str) -> Mapping[TopicPartition, Written]:
        """As `add`, but writes a tombstone: once the transaction is committed, the job counts as never committed."""
        return await self._write(handle, job_id, None)

    async def _write(
        self, handle: TransactionHandle, job_id: str, value: str | None
    ) -> Mapping[TopicPartition, Written]:
        # One small record, uncompressed: the driver may lack the compression library.
        config = self._config.replace(compression_type="none", compression_level=None)
        async with Producer.attach(handle, config) as writer:
            await writer.send(self._topic, value, key=_key(handle.transactional_id, job_id), partition=_PARTITION)
        return writer.written

    # -- the topic ----------------------------------------------------------------------------------------------------

    async def exists(self) -> bool:
        """Whether the topic exists, as far as one broker knows; this does not create it.

        Raises `ConfigError` if it cannot be used. Cancellation: nothing is left open.
        """
        async with ClusterClient(self._config) as cluster:
            return (await self._metadata(cluster))[0] != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def _metadata(self, cluster: ClusterClient) -> tuple[int, int]:
        """The error code of the topic, and the controller's id."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self._topic)], allow_auto_topic_creation=False)
        metadata = await cluster.ask(request)
        code = next((topic.error_code for topic in metadata.topics), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if code != ErrorCode.NONE and not (error := broker_error(code)).retriable:
            raise ConfigError(f"Cannot use topic {self._topic!r} as the commit log: {error}")
        return code, metadata.controller_id

    async def _create_if_missing(self, cluster: ClusterClient) -> None:
        code, controller_id = await self._metadata(cluster)
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            await self._create(cluster, controller_id)

    async def _create(self, cluster: ClusterClient, controller_id: int) -> None:
        wanted = CreatableTopic(
            name=self._topic, num_partitions=1, configs=[CreatableTopicConfig(name="cleanup.policy", value="compact")]
        )
        try:
            await cluster.ask(CreateTopicsRequest(topics=[wanted]), _check_created, node_id=controller_id)
        except BrokerError as error:
            raise ConfigError(
                f"Jobs with job.id are recorded in topic {self._topic!r}, which does not exist and could not be created: "
                f"{error} Create it with one partition and cleanup.policy=compact, or choose another topic with "
                "commit.log.topic."
            ) from error

    async def _check_policy(self, cluster: ClusterClient) -> None:
        resource = DescribeConfigsResource(
            resource_type=_TOPIC, resource_name=self._topic, configuration_keys=list(CONFIGS)
        )
        response = await cluster.ask(DescribeConfigsRequest(resources=[resource]))
        for result in response.results:
            if result.error_code != ErrorCode.NONE:  # nothing else here needs the DESCRIBE_CONFIGS permission
                return
            found = {each.name: each.value or "" for each in result.configs}
            if forgets(found):
                raise ConfigError(
                    f"The commit log, topic {self._topic!r}, has cleanup.policy={found['cleanup.policy']}: Kafka would "
                    "delete its records after a while, so jobs could be written twice. Set cleanup.policy=compact, or "
                    "choose another topic with commit.log.topic."
                )

    async def _start(self, cluster: ClusterClient) -> int:
        """The first offset of the log: 0, unless records were deleted."""
        wanted = ListOffsetsPartition(partition_index=_PARTITION, timestamp=_EARLIEST)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=self._topic, partitions=[wanted])])
        response = await cluster.ask_leader(self._topic, _PARTITION, request, request.versions[1], self._check_offsets)
        return next(_offsets(response)).offset

    def _check_offsets(self, response: ListOffsetsResponse) -> None:
        self._check_part(next(_offsets(response), None), "ListOffsets")

    async def _fetch(self, cluster: ClusterClient, at: int) -> PartitionData:
        wanted = FetchPartition(partition=_PARTITION, fetch_offset=at, partition_max_bytes=_FETCH_SIZE)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=_FETCH_SIZE,
            topics=[FetchTopic(topic=self._topic, partitions=[wanted])],
        )
        response = await cluster.ask_leader(self._topic, _PARTITION, request, _FETCH_BY_NAME, self._check_fetched)
        return next(_parts(response))

    def _check_fetched(self, response: FetchResponse) -> None:
        self._check_code(response.error_code)
        self._check_part(next(_parts(response), None), "Fetch")

    def _check_part(self, part: PartitionData | ListOffsetsPartitionResponse | None, what: str) -> None:
        if part is None:
            raise KafkaError(f"The response to {what} does not contain topic {self._topic!r}.")
        self._check_code(part.error_code)

    def _check_code(self, code: int) -> None:
        if code != ErrorCode.NONE:
            raise broker_error(code, f"could not read topic {self._topic!r}, the commit log")


def _parts(response: FetchResponse) -> Iterator[PartitionData]:
    return (part for topic in response.responses for part in topic.partitions)


def _offsets(response: ListOffsetsResponse) -> Iterator[ListOffsetsPartitionResponse]:
    return (part for topic in response.topics for part in topic.partitions)


def _check_created(response: CreateTopicsResponse) -> None:
    for result in response.topics:
        if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise broker_error(result.error_code, result.error_message)


def _key(transactional_id: str, job_id: str) -> bytes:
    return json.dumps([transactional_id, job_id]).encode()


def _commit_of(job_id: str, value: bytes | None) -> EarlierCommit | None:
    """Raises `KafkaError` for a record that does not belong in a commit log."""
    if value is None:
        return None
    try:
        found: Any = json.loads(value)
        if found["v"] != _VERSION:
            raise ValueError(f"version {found['v']}")
        contents = Fingerprint(int(found["rows"]), int(found["bytes"]), int(found["digest"], 16))
        return EarlierCommit(0, contents, int(found["t"]), job_id=job_id)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise KafkaError(
            f"The commit log has an unknown record for job.id {job_id!r}, not written by this version of aioproducer: "
            f"{value!r}"
        ) from error
