"""Compares the outcomes that callers got with the brokers' logs, and finds what is left of the client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from aioproducer.testing.broker.log import LoggedRecord
from tests.simulation.ledger import End, Entry, Ledger, Reported

__all__ = ["Log", "Rules", "verdict"]


@dataclass(frozen=True, slots=True)
class Rules:
    """The promises of the producer's configuration: with idempotence nothing is doubled, and order is kept."""

    once: bool = True
    ordered: bool = True


class Log(Protocol):
    """A partition's records as a consumer reads them: FakeCluster's `PartitionLog`, or those read from real brokers."""

    def records(self, *, committed: bool = False) -> Sequence[LoggedRecord]:
        """The records in order; with ``committed`` only those that read_committed allows."""
        ...


def verdict(
    logs: Sequence[Log],
    ledger: Ledger,
    rules: Rules,
    erased: Collection[str] = frozenset(),
    lost: Collection[bytes] = frozenset(),
) -> Sequence[str]:
    """Every broken promise, in a sentence.

    What was in the topics ``erased`` need not be there any more, nor the values that brokers have ``lost``.
    """
    records = [record for log in logs for record in log.records()]
    return [
        *_aliens(records, ledger),
        *_numbers(records, ledger, rules, erased, lost),
        *_places(records, ledger, erased, lost),
        *(_disorder(records, ledger) if rules.ordered else ()),
        *_transactions(logs, ledger),
    ]


def _aliens(records: Sequence[LoggedRecord], ledger: Ledger) -> Iterator[str]:
    for record in records:
        entry = ledger.entries.get(record.value or b"")
        if entry is None:
            yield f"alien: {record.value!r} was not sent, and is in {record.topic}-{record.partition}"
        elif (entry.topic, entry.key) != (record.topic, record.key):
            yield f"misrouted: {record.value!r} is in {record.topic}-{record.partition} with the key {record.key!r}"


def _numbers(
    records: Sequence[LoggedRecord], ledger: Ledger, rules: Rules, erased: Collection[str], lost: Collection[bytes]
) -> Iterator[str]:
    found = Counter(record.value for record in records)
    for value, entry in ledger.entries.items():
        count = found[value]
        if entry.reported is Reported.PENDING:
            yield f"unresolved: the caller of {value!r} got no outcome"
        elif entry.reported is Reported.WRITTEN and not count and entry.topic not in erased and value not in lost:
            yield f"lost: {value!r} was acknowledged"
        elif entry.reported is Reported.NOT_WRITTEN and count:
            yield f"wrong outcome: {value!r} is in the log, and was reported as not written"
        if count > 1 and rules.once:
            yield f"doubled: {value!r} is in the log {count} times"


def _places(
    records: Sequence[LoggedRecord], ledger: Ledger, erased: Collection[str], lost: Collection[bytes]
) -> Iterator[str]:
    at = {(record.topic, record.partition, record.offset): record.value for record in records}
    for value, entry in ledger.entries.items():
        if entry.reported is not Reported.WRITTEN or entry.offset is None or entry.topic in erased or value in lost:
            continue
        if at.get((entry.topic, entry.partition or 0, entry.offset)) != value:
            yield f"wrong offset: {value!r} is not at {entry.topic}-{entry.partition}, offset {entry.offset}"


def _disorder(records: Sequence[LoggedRecord], ledger: Ledger) -> Iterator[str]:
    """Records of a caller that come after later ones in the same partition.

    One exception is Kafka's: a producer whose epochs are used up gets another id, and brokers do not fence the earlier one.
    A request with that, held back by the network, is still applied; its records were reported as unknown by then.
    """
    last: dict[tuple[str, int, str], int] = {}
    newest: dict[tuple[str, int], int] = {}
    for record in records:
        entry = ledger.entries.get(record.value or b"")
        if entry is None:
            continue
        where = (record.topic, record.partition)
        newest[where] = max(record.producer_id, newest.get(where, -1))
        if record.producer_id < newest[where] and entry.reported in (Reported.UNKNOWN, Reported.ABANDONED):
            continue
        line = (record.topic, record.partition, entry.caller)
        if entry.number <= last.get(line, -1):
            yield f"reordered: {record.value!r} comes after number {last[line]} in {record.topic}-{record.partition}"
        last[line] = max(entry.number, last.get(line, -1))


def _transactions(logs: Sequence[Log], ledger: Ledger) -> Iterator[str]:
    if not ledger.transactions:
        return
    visible = {record.value for log in logs for record in log.records(committed=True)}
    for transaction in ledger.transactions:
        sent: list[Entry] = [each for each in transaction.entries if each.reported is not Reported.NOT_WRITTEN]
        seen = [each for each in transaction.entries if each.value in visible]
        if transaction.end is End.COMMITTED and len(seen) != len(transaction.entries):
            yield f"torn: {transaction.name} is committed with {len(seen)} of {len(transaction.entries)} records"
        elif transaction.end is End.ABORTED and seen:
            yield f"not aborted: {len(seen)} records of {transaction.name} are visible"
        elif transaction.end is End.UNKNOWN and seen and len(seen) != len(sent):
            yield f"torn: of {transaction.name}, whose end is unknown, {len(seen)} of {len(sent)} records are visible"
