"""The reports of ``aioproducer transactions``: kafka-transactions.sh's tables, or JSON; decides only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from aioproducer.cli.transactions.hanging import LocatedProducer
from aioproducer.cli.transactions.queries import Coordinated
from aioproducer.protocol.messages import DescribedProducer, DescribedTransaction, ListedTransaction

__all__ = ["Report", "as_json", "as_lines", "of_descriptions", "of_hanging", "of_listed", "of_producers"]

_MS_OF_A_MINUTE: Final = 60_000
_NONE: Final = "None"


class Report(NamedTuple):
    """A table. ``columns`` are Java's headings by our names of the fields; a row's values are in their order."""

    columns: Mapping[str, str]
    rows: Sequence[Sequence[object]]


_LISTED: Final = {
    "transactional_id": "TransactionalId",
    "coordinator_id": "Coordinator",
    "producer_id": "ProducerId",
    "transaction_state": "TransactionState",
}
_DESCRIBED: Final = {
    "coordinator_id": "CoordinatorId",
    "transactional_id": "TransactionalId",
    "producer_id": "ProducerId",
    "producer_epoch": "ProducerEpoch",
    "transaction_state": "TransactionState",
    "transaction_timeout_ms": "TransactionTimeoutMs",
    "transaction_start_time_ms": "CurrentTransactionStartTimeMs",
    "transaction_duration_ms": "TransactionDurationMs",
    "topic_partitions": "TopicPartitions",
}
_PRODUCERS: Final = {
    "producer_id": "ProducerId",
    "producer_epoch": "ProducerEpoch",
    "coordinator_epoch": "LatestCoordinatorEpoch",
    "last_sequence": "LastSequence",
    "last_timestamp": "LastTimestamp",
    "current_txn_start_offset": "CurrentTransactionStartOffset",
}
_HANGING: Final = {
    "topic": "Topic",
    "partition": "Partition",
    "producer_id": "ProducerId",
    "producer_epoch": "ProducerEpoch",
    "coordinator_epoch": "CoordinatorEpoch",
    "start_offset": "StartOffset",
    "last_timestamp": "LastTimestamp",
    "duration_minutes": "Duration(min)",
}


def of_listed(listed: Iterable[tuple[int, ListedTransaction]]) -> Report:
    """The report of ``list``."""
    return Report(
        _LISTED,
        [(each.transactional_id, node_id, each.producer_id, each.transaction_state) for node_id, each in listed],
    )


def of_descriptions(described: Iterable[Coordinated], now_ms: int) -> Report:
    """The report of ``describe``."""
    return Report(_DESCRIBED, [_described(each, now_ms) for each in described])


def _described(found: Coordinated, now_ms: int) -> Sequence[object]:
    each = found.description
    start = each.transaction_start_time_ms if each.transaction_start_time_ms >= 0 else None
    return (
        found.coordinator_id,
        each.transactional_id,
        each.producer_id,
        each.producer_epoch,
        each.transaction_state,
        each.transaction_timeout_ms,
        start,
        None if start is None else now_ms - start,
        _partitions(each),
    )


def _partitions(found: DescribedTransaction) -> list[str]:
    return sorted(f"{each.topic}-{index}" for each in found.topics for index in each.partitions)


def of_producers(producers: Iterable[LocatedProducer]) -> Report:
    """The report of ``describe-producers``."""
    return Report(_PRODUCERS, [_producer(each.producer) for each in producers])


def _producer(each: DescribedProducer) -> Sequence[object]:
    start = each.current_txn_start_offset if each.current_txn_start_offset >= 0 else None
    return (
        each.producer_id,
        each.producer_epoch,
        each.coordinator_epoch,
        each.last_sequence,
        each.last_timestamp,
        start,
    )


def of_hanging(found: Iterable[LocatedProducer], now_ms: int) -> Report:
    """The report of ``find-hanging``."""
    return Report(
        _HANGING,
        [
            (
                *each.where,
                each.producer.producer_id,
                each.producer.producer_epoch,
                each.producer.coordinator_epoch,
                each.producer.current_txn_start_offset,
                each.producer.last_timestamp,
                (now_ms - each.producer.last_timestamp) // _MS_OF_A_MINUTE,
            )
            for each in found
        ],
    )


def as_lines(report: Report) -> Iterator[str]:
    """The table as Java prints it: padded columns, a tab behind each."""
    rows = [list(report.columns.values()), *([_text(value) for value in row] for row in report.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True))


def as_json(report: Report) -> list[dict[str, Any]]:
    """The rows as objects; None where there is no transaction."""
    return [dict(zip(report.columns, row, strict=True)) for row in report.rows]


def _text(value: object) -> str:
    if isinstance(value, list):
        return ",".join(cast("list[str]", value))
    return _NONE if value is None else str(value)
