"""Why a batch was given up: shared by all of its records, and an exception of its own for each that asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from aioproducer.errors import (
    DeliveryError,
    KafkaError,
    NotWritten,
    NotWrittenTimeout,
    RecordTooLarge,
    Unknown,
    UnknownTimeout,
)
from aioproducer.types import ProducerRecord, TopicPartition

__all__ = ["BatchFailure"]

#: Which error a record gets: (may it be written?, did time run out?).
_ERRORS: Mapping[tuple[bool, bool], type[DeliveryError]] = {
    (False, False): NotWritten,
    (False, True): NotWrittenTimeout,
    (True, False): Unknown,
    (True, True): UnknownTimeout,
}


@dataclass(slots=True)
class BatchFailure:
    """Why a batch was given up, and whether its records may be in the log all the same.

    ``record_errors`` holds what the broker said of single records (KIP-467); the others were refused with them.
    ``read_records`` gives the records back, with keys and values as serialized.
    """

    partition: TopicPartition
    cause: KafkaError
    possibly_written: bool
    timed_out: bool
    read_records: Callable[[], Sequence[ProducerRecord]]
    record_errors: Mapping[int, str] = field(default_factory=dict[int, str])
    _records: Sequence[ProducerRecord] | None = None

    @property
    def records(self) -> Sequence[ProducerRecord]:
        """The records of the batch in order; decoded at the first call."""
        if self._records is None:
            self._records = self.read_records()
        return self._records

    def error_for(self, index: int) -> DeliveryError:
        """The exception for one record, told with its own reason where the broker gave one."""
        fate = "may or may not be in the log" if self.possibly_written else "is not in the log"
        error = _ERRORS[self.possibly_written, self.timed_out](
            f"The record for {self.partition} was not acknowledged and {fate}: {self._reason(index)}"
        )
        error.topic, error.partition = self.partition
        error.record = self.records[index]
        error.retriable = self.cause.retriable and not self.possibly_written
        error.__cause__ = self.cause
        return error

    def _reason(self, index: int) -> str:
        own = self.record_errors.get(index)
        if own is not None:
            return own or str(self.cause)
        if self.record_errors:
            return f"it shared a batch with {len(self.record_errors)} record(s) that the broker refused ({self.cause})"
        return str(self.cause)

    @property
    def too_large(self) -> bool:
        """Whether the size was the reason."""
        return isinstance(self.cause, RecordTooLarge)
