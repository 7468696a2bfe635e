"""Explains why a consumer got no record for some offsets: control records, aborted transactions, or a fault.

A read_committed consumer skips the first two silently, so it cannot distinguish them from missing records. Therefore the
record batches around each gap are fetched again with our own protocol, and their headers are read.
Limit: our connections do not accept a record batch of more than 16 MiB.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import Final, NamedTuple

from aioproducer.protocol.error_codes import ErrorCode, broker_error
from aioproducer.protocol.messages import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from aioproducer.record.reader import read_batches
from aioproducer.spark.audit.connection import connection_of
from aioproducer.spark.cluster_client import ClusterClient

__all__ = ["Gap", "GapReason", "Span", "explain_gaps", "explain_with", "spans_of"]

#: For each response.
_TIMEOUT_MS: Final = 15_000
_FETCH_SIZE: Final = 4 * 1024 * 1024
_FETCH_BY_NAME: Final = 12
_READ_COMMITTED: Final = 1

#: The header of a record batch: base offset, length, three others, attributes, last offset delta, two timestamps, producer
#: id, two others and the number of records.
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_BEFORE_LENGTH_COUNTS: Final = 12
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_ABORT_MARKER: Final = struct.pack(">hh", 0, 0)


class GapReason(StrEnum):
    """Why a consumer gets no record at an offset; the last two are faults."""

    CONTROL = "control"  # the marker at the end of a transaction
    ABORTED = "aborted"  # records of an aborted transaction
    MISSING = "missing"  # not in the log: deleted, compacted away, or never there
    WITHHELD = "withheld"  # a committed record that the consumer did not get


class Gap(NamedTuple):
    """Offsets from ``begin`` to ``end`` (exclusive)."""

    begin: int
    end: int


class Span(NamedTuple):
    """The offsets of one record batch, and what a read_committed reader sees there (WITHHELD: the records)."""

    begin: int
    end: int
    reason: GapReason


def explain_gaps(
    config: Mapping[str, str], topic: str, partition: int, gaps: Sequence[Gap]
) -> Sequence[tuple[GapReason, Gap]]:
    """The reason for each part of the gaps, which are in order and do not overlap. ``config`` is librdkafka's.

    Raises `KafkaError` if the brokers cannot be asked.
    """
    if not gaps:
        return ()
    with ThreadPoolExecutor(1) as thread:  # the caller's thread may be running an event loop
        return thread.submit(asyncio.run, _explain_gaps(config, topic, partition, gaps)).result()


async def _explain_gaps(
    config: Mapping[str, str], topic: str, partition: int, gaps: Sequence[Gap]
) -> Sequence[tuple[GapReason, Gap]]:
    reasons: list[tuple[GapReason, Gap]] = []
    async with ClusterClient(connection_of(config).replace(max_block_ms=_TIMEOUT_MS)) as cluster:
        spans: Sequence[Span] = ()
        for gap in gaps:
            if not spans or spans[-1].end < gap.end:
                spans = [span async for span in _spans_of_gap(cluster, topic, partition, gap)]
            reasons += explain_with(spans, gap)
    return reasons


def explain_with(spans: Sequence[Span], gap: Gap) -> Iterator[tuple[GapReason, Gap]]:
    """The reason for each part of the gap, from these spans, which are in order."""
    at = gap.begin
    for span in spans:
        if span.end <= at:
            continue
        if span.begin >= gap.end:
            break
        if span.begin > at:
            yield GapReason.MISSING, Gap(at, span.begin)
        end = min(span.end, gap.end)
        yield span.reason, Gap(max(span.begin, at), end)
        at = end
    if at < gap.end:
        yield GapReason.MISSING, Gap(at, gap.end)


def spans_of(data: bytes, aborted: Sequence[AbortedTransaction]) -> Iterator[Span]:
    """The record batches of a Fetch response and their reasons; a truncated last batch is skipped.

    ``aborted`` are the aborted transactions of the same response. Each lasts from its first offset to the marker that
    ended its producer's transaction.
    """
    waiting = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    aborting: set[int] = set()
    position = 0
    while position + _HEADER.size <= len(data):
        base, length, _, _, _, attributes, last_delta, _, _, producer_id, _, _, count = _HEADER.unpack_from(
            data, position
        )
        end = position + _BEFORE_LENGTH_COUNTS + length
        if end > len(data):
            return
        last = base + last_delta
        while waiting and waiting[-1].first_offset <= last:
            aborting.add(waiting.pop().producer_id)
        if attributes & _CONTROL:
            if _is_abort(data[position:end]):
                aborting.discard(producer_id)
            yield Span(base, last + 1, GapReason.CONTROL)
        elif attributes & _TRANSACTIONAL and producer_id in aborting:
            yield Span(base, last + 1, GapReason.ABORTED)
        else:  # a batch keeps its offsets when compaction removes records
            yield Span(base, last + 1, GapReason.WITHHELD if count == last_delta + 1 else GapReason.MISSING)
        position = end


def _is_abort(batch: bytes) -> bool:
    return any(record.key == _ABORT_MARKER for each in read_batches(batch) for record in each.records)


async def _spans_of_gap(cluster: ClusterClient, topic: str, partition: int, gap: Gap) -> AsyncIterator[Span]:
    """The log's content from the gap's first offset at least to the end of the gap or of the log."""
    at = gap.begin
    while at < gap.end:
        answer = await _fetch(cluster, topic, partition, at)
        before = at
        for span in spans_of(bytes(answer.records or b""), answer.aborted_transactions or ()):
            yield span
            at = span.end
        if at == before:
            return


async def _fetch(cluster: ClusterClient, topic: str, partition: int, offset: int) -> PartitionData:
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=_FETCH_SIZE)
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        isolation_level=_READ_COMMITTED,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    cluster.restart_time()
    response = await cluster.ask_leader(topic, partition, request, _FETCH_BY_NAME, _only_answer)
    return _only_answer(response)


def _only_answer(response: FetchResponse) -> PartitionData:
    for answer in (found for of_topic in response.responses for found in of_topic.partitions):
        if answer.error_code != ErrorCode.NONE:
            raise broker_error(answer.error_code)
        return answer
    raise broker_error(response.error_code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
