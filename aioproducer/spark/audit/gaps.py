"""Tells why a consumer was given no record for some offsets: control records, aborted transactions, or no good reason.

A consumer of committed records passes over those two in silence, so it cannot tell them from records that are missing.
Therefore the record batches around each gap are fetched once more, with our own protocol, and their headers are read.
Limit: a record batch of more than 16 MiB, which our connections do not take.
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

#: For each answer.
_TIMEOUT_MS: Final = 15_000
_FETCH_SIZE: Final = 4 * 1024 * 1024
_FETCH_BY_NAME: Final = 12
_READ_COMMITTED: Final = 1

#: Of a record batch: base offset, length, three more, attributes, last offset delta, two timestamps, producer id, two more
#: and the number of records.
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_BEFORE_LENGTH_COUNTS: Final = 12
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_ABORT_MARKER: Final = struct.pack(">hh", 0, 0)


class GapReason(StrEnum):
    """Why offsets have no record for a consumer; the last two are faults."""

    CONTROL = "control"  # the marker at the end of a transaction
    ABORTED = "aborted"  # records of a transaction that was aborted
    MISSING = "missing"  # nothing in the log: deleted, compacted away, or never there
    WITHHELD = "withheld"  # a record that is committed, and that the consumer was not given


class Gap(NamedTuple):
    """Offsets from ``begin`` to before ``end``."""

    begin: int
    end: int


class Span(NamedTuple):
    """The offsets of one record batch, and what a committed reader sees in their place (WITHHELD: the records)."""

    begin: int
    end: int
    reason: GapReason


def explain_gaps(
    config: Mapping[str, str], topic: str, partition: int, gaps: Sequence[Gap]
) -> Sequence[tuple[GapReason, Gap]]:
    """The reason for each piece of the gaps, which are in order and do not overlap. ``config`` is librdkafka's.

    Raises `KafkaError` where the brokers cannot be asked.
    """
    if not gaps:
        return ()
    with ThreadPoolExecutor(1) as thread:  # the caller's may run an event loop
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
    """The reason for each piece of the gap, as these spans, in order, tell it."""
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
    """The record batches of a Fetch answer and what they are; an end that was cut off is left out.

    ``aborted`` are the aborted transactions of the same answer. Each holds from its first offset on, until the marker by
    which its producer's transaction ended.
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
        else:  # where compaction took records out, the batch keeps its offsets
            yield Span(base, last + 1, GapReason.WITHHELD if count == last_delta + 1 else GapReason.MISSING)
        position = end


def _is_abort(batch: bytes) -> bool:
    return any(record.key == _ABORT_MARKER for each in read_batches(batch) for record in each.records)


async def _spans_of_gap(cluster: ClusterClient, topic: str, partition: int, gap: Gap) -> AsyncIterator[Span]:
    """What stands in the log from the gap's first offset on, at least to its end or that of the log."""
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
    cluster.begin_anew()
    response = await cluster.ask_leader(topic, partition, request, _FETCH_BY_NAME, _only_answer)
    return _only_answer(response)


def _only_answer(response: FetchResponse) -> PartitionData:
    for answer in (found for of_topic in response.responses for found in of_topic.partitions):
        if answer.error_code != ErrorCode.NONE:
            raise broker_error(answer.error_code)
        return answer
    raise broker_error(response.error_code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
