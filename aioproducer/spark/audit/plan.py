"""What is to be audited, by whom it is read, and with what it is compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from aioproducer.spark.audit.connection import objection_to
from aioproducer.spark.audit.facts import Where
from aioproducer.spark.audit.verdict import FAULTS, LOG_ALONE, Expectation
from aioproducer.spark.files.files import RecordShape, SourceFiles

__all__ = ["NO_ORDER", "ORDER_OF_FILES", "AuditPlan", "AuditReader"]

ORDER_OF_FILES: Final = "file"
NO_ORDER: Final = "none"


class AuditReader(StrEnum):
    """Who reads the records; both are strangers to the producer."""

    CONFLUENT_KAFKA = "confluent-kafka"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """What is to be audited, and with what it is compared: with files, or with the numbers that the records carry.

    ``config`` is librdkafka's. ``order`` is "file", "none" or a column of the files. ``records`` is how many sequence
    numbers each run should have, from ``first`` on, and no others; None: as far as the highest one. ``source_options`` are
    those of Spark's Kafka source, where that is the reader.
    """

    topic: str
    config: Mapping[str, str] = field(repr=False)  # it may hold a password
    expected: SourceFiles | None = None
    shape: RecordShape = field(default_factory=RecordShape)
    order: str = ORDER_OF_FILES
    sequence: Where | None = None
    run: Where | None = None
    records: int | None = None
    first: int = 0
    checks_partition: bool = True
    patience: float = 60.0
    records_per_range: int = 500_000
    reader: AuditReader = AuditReader.CONFLUENT_KAFKA
    source_options: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    @property
    def needs_headers(self) -> bool:
        """Whether headers have to be read."""
        return any(where is not None and where.is_header for where in (self.sequence, self.run))

    @property
    def can_explain(self) -> bool:
        """Whether our own client can ask the brokers why an offset has no record."""
        return objection_to(self.config) is None

    @property
    def expectation(self) -> Expectation:
        """What this can see, and what not."""
        unchecked: dict[str, str] = {}
        if not self.checks_partition:
            unchecked["misplaced"] = "the partitioner is not Kafka's default one"
        if self.order == NO_ORDER:
            unchecked["reordered"] = "order is not to count"
        if self.sequence is not None:
            unchecked["altered"] = "without the files, nobody knows what the records should be"
            if self.records is None:
                unchecked["lost at the end"] = "it was not said how many numbers there should be"
            if self.run is not None:
                unchecked["whole runs lost"] = "a run is known by its records only"
        elif self.expected is None:
            reason = "neither files nor sequence numbers were given to compare with"
            unchecked |= dict.fromkeys(("lost", "duplicated", "reordered", "altered", "stray"), reason)
        objection = objection_to(self.config)
        if objection is not None:
            reason = f"the brokers cannot be asked about offsets without a record: {objection}"
            unchecked |= {"missing": reason, "withheld": reason}
        mode = "expected" if self.expected is not None else "sequence" if self.sequence is not None else LOG_ALONE
        return Expectation(mode, unchecked, self.records, self.first)

    @property
    def checks_anything(self) -> bool:
        """Whether there is a kind of fault that this can see."""
        return not {kind.value for kind in FAULTS} <= self.expectation.unchecked.keys()
