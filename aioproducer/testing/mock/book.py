"""The history of a mock producer: its records, offsets and transactions, and the faults that it was given."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from aioproducer.errors import ConfigError
from aioproducer.types import OffsetAndMetadata, ProducerRecord, TopicPartition, TransactionOutcome

if TYPE_CHECKING:
    from aioproducer.core.batches import ProducerBatch
    from aioproducer.delivery import ProduceResult
    from aioproducer.interceptors import InterceptedProducer

__all__ = ["Book", "Call", "GroupOffsets", "SentRecord"]

#: The calls that can be made to fail.
Call: TypeAlias = Literal[
    "abort_transaction",
    "begin_transaction",
    "close",
    "commit_transaction",
    "flush",
    "init_transactions",
    "partitions_for",
    "send",
    "send_offsets_to_transaction",
]

_CALLS: tuple[str, ...] = (
    "abort_transaction",
    "begin_transaction",
    "close",
    "commit_transaction",
    "flush",
    "init_transactions",
    "partitions_for",
    "send",
    "send_offsets_to_transaction",
)

#: The offsets of consumer groups, by the group's id.
GroupOffsets: TypeAlias = dict[str, dict[TopicPartition, OffsetAndMetadata]]


@dataclass(frozen=True, slots=True)
class SentRecord:
    """An accepted record: ``given`` to the producer by the code under test, and in the form that brokers get."""

    given: ProducerRecord
    _read: Callable[[], Sequence[ProducerRecord]] = field(repr=False, compare=False)

    @property
    def serialized(self) -> ProducerRecord:
        """The record with serialized key and value, final headers, its partition and its timestamp."""
        return self._read()[0]


@dataclass(slots=True, eq=False)
class Book:
    """Notes records and offsets; as an interceptor it is notified of the transactions."""

    auto_complete: bool
    faults: dict[str, BaseException] = field(default_factory=dict[str, BaseException])
    records: list[SentRecord] = field(default_factory=list[SentRecord])
    uncommitted: list[SentRecord] = field(default_factory=list[SentRecord])
    offsets: list[GroupOffsets] = field(default_factory=list[GroupOffsets])
    uncommitted_offsets: GroupOffsets = field(default_factory=dict[str, dict[TopicPartition, OffsetAndMetadata]])
    commit_count: int = 0
    is_initialized: bool = False
    is_in_flight: bool = False
    outcome: TransactionOutcome | None = None  # of the last transaction; None while one is open
    _noted: weakref.WeakSet[ProduceResult] = field(default_factory=weakref.WeakSet["ProduceResult"])

    # -- faults -------------------------------------------------------------------------------------------------------

    def fail(self, call: str, error: BaseException | None) -> None:
        """Let a call fail from now on; None: not any more. Raises `ConfigError` for a call that cannot fail."""
        if call not in _CALLS:
            raise ConfigError(f"Invalid call={call!r}: must be one of {', '.join(_CALLS)}.")
        if error is None:
            self.faults.pop(call, None)
        else:
            self.faults[call] = error

    def check(self, call: Call) -> None:
        """Raise the error with which a call is to fail."""
        error = self.faults.get(call)
        if error is not None:
            raise error

    # -- records and offsets ------------------------------------------------------------------------------------------

    def note(self, batch: ProducerBatch, given: ProducerRecord | None = None) -> None:
        """Note the record of a batch, once; ``given`` None: a row of a table, which exists in serialized form only."""
        if batch.result in self._noted:
            return
        self._noted.add(batch.result)
        read = batch.undelivered()
        records = self.uncommitted if self.is_in_flight else self.records
        records.append(SentRecord(read()[0] if given is None else given, read))

    def note_offsets(self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Note offsets that were added to the open transaction."""
        self.uncommitted_offsets.setdefault(group_id, {}).update(offsets)

    def clear(self) -> None:
        """Forget all records, offsets and counts."""
        self.records.clear()
        self.uncommitted.clear()
        self.offsets.clear()
        self.uncommitted_offsets.clear()
        self.commit_count = 0

    # -- transactions -------------------------------------------------------------------------------------------------

    def begin_transaction(
        self, producer: InterceptedProducer
    ) -> Callable[[TransactionOutcome, BaseException | None], None]:
        """A transaction was begun."""
        self.is_in_flight, self.outcome = True, None
        return self._ended

    def close(self) -> None:
        """The producer was closed, which changes nothing here."""

    def _ended(self, outcome: TransactionOutcome, error: BaseException | None) -> None:
        self.outcome = outcome
        if outcome == "prepared":
            return
        self.is_in_flight = False
        if outcome == "committed":
            self.commit_count += 1
            self.records += self.uncommitted
            if self.uncommitted_offsets:
                self.offsets.append({group: dict(each) for group, each in self.uncommitted_offsets.items()})
        self.uncommitted.clear()
        self.uncommitted_offsets.clear()
