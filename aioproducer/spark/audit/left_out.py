"""Finds the offsets that a reader of a range skipped, and merges the reasons into few rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from aioproducer.errors import KafkaError
from aioproducer.spark.audit.gaps import Gap, GapReason, explain_gaps
from aioproducer.spark.audit.offsets import AuditFailed, OffsetRange

__all__ = ["LeftOut", "explained"]

#: Reasons that are not faults are only counted, at the first place: a log may have a marker every few records.
_HARMLESS: Final = frozenset({GapReason.CONTROL, GapReason.ABORTED})


class LeftOut:
    """The gaps of a range, computed from the offsets that were read, in order."""

    def __init__(self, wanted: OffsetRange) -> None:
        self._wanted = wanted
        self._at = wanted.begin
        self._gaps: list[Gap] = []

    def read(self, offsets: Any) -> None:
        """Add the next offsets: a numpy array with at least one."""
        expected = np.concatenate(([self._at], offsets[:-1] + 1))
        self._gaps += (Gap(int(expected[row]), int(offsets[row])) for row in np.flatnonzero(offsets > expected))
        self._at = int(offsets[-1]) + 1

    def gaps(self) -> Sequence[Gap]:
        """The gaps between them, and after the last one."""
        behind = [Gap(self._at, self._wanted.end)] if self._at < self._wanted.end else []
        return [*self._gaps, *behind]


def explained(
    config: Mapping[str, str], topic: str, partition: int, gaps: Sequence[Gap]
) -> Sequence[tuple[GapReason, Gap]]:
    """Why the brokers have no record there; for a reason that is not a fault, one gap with the total size.

    ``config`` is librdkafka's. Raises AuditFailed if the brokers cannot be asked.
    """
    try:
        return _merged(explain_gaps(config, topic, partition, gaps))
    except KafkaError as error:
        raise AuditFailed(
            f"could not ask the brokers why offsets of {topic}-{partition} have no record: {error}"
        ) from error


def _merged(reasons: Sequence[tuple[GapReason, Gap]]) -> Sequence[tuple[GapReason, Gap]]:
    found: list[tuple[GapReason, Gap]] = []
    counts: dict[GapReason, Gap] = {}
    for reason, gap in reasons:
        if reason in _HARMLESS:
            first = counts.get(reason, Gap(gap.begin, gap.begin))
            counts[reason] = Gap(first.begin, first.end + gap.end - gap.begin)
        else:
            found.append((reason, gap))
    return [*found, *counts.items()]
