"""The plan of an audit: the topic, the reader, and what to compare with."""

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
    """The client that reads the records; both are independent of the producer."""

    CONFLUENT_KAFKA = "confluent-kafka"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """The topic to audit, and the expectation to compare it with: files, or the sequence numbers in the records.

    ``config`` is librdkafka's. ``order`` is "file", "none" or a column of the files. ``records`` is the number of
    sequence numbers that each run should have, from ``first`` on; None: up to the highest one. ``source_options`` are
    those of Spark's Kafka source, if that is the reader.
    """

    topic: str
    config: Mapping[str, str] = field(repr=False)  # may contain a password
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
        """Whether headers must be read."""
        return any(where is not None and where.is_header for where in (self.sequence, self.run))

    @property
    def can_explain(self) -> bool:
        """Whether our own client can ask the brokers why an offset has no record."""
        return objection_to(self.config) is None

    @property
    def expectation(self) -> Expectation:
        """The faults that this audit can and cannot detect."""
        unchecked: dict[str, str] = {}
        if not self.checks_partition:
            unchecked["misplaced"] = "the partitioner is not Kafka's default"
        if self.order == NO_ORDER:
            unchecked["reordered"] = "the order check is off"
        if self.sequence is not None:
            unchecked["altered"] = "the expected contents are not known without the files"
            if self.records is None:
                unchecked["lost at the end"] = "the number of records was not given"
            if self.run is not None:
                unchecked["whole runs lost"] = "a run is only known from its records"
        elif self.expected is None:
            reason = "there are no files or sequence numbers to compare with"
            unchecked |= dict.fromkeys(("lost", "duplicated", "reordered", "altered", "stray"), reason)
        objection = objection_to(self.config)
        if objection is not None:
            reason = f"offsets without a record cannot be looked up: {objection}"
            unchecked |= {"missing": reason, "withheld": reason}
        mode = "expected" if self.expected is not None else "sequence" if self.sequence is not None else LOG_ALONE
        return Expectation(mode, unchecked, self.records, self.first)

    @property
    def checks_anything(self) -> bool:
        """Whether it can detect any kind of fault."""
        return not {kind.value for kind in FAULTS} <= self.expectation.unchecked.keys()
