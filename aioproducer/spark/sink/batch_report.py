"""Writes one line of JSON per written batch to a file: its size, its place in Kafka, and its duration."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aioproducer.errors import ConfigError
from aioproducer.spark.exactly_once.task_summary import TaskSummary

__all__ = ["BatchReport", "as_line"]

logger = logging.getLogger("aioproducer.spark")


class BatchReport:
    """A file on the driver's machine that gets a line for each batch."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def check(self) -> None:
        """Raises `ConfigError` if the file cannot be written. Call it before a batch: after it, it is too late."""
        try:
            self._path.open("a").close()
        except OSError as error:
            raise ConfigError(f"report={str(self._path)!r}: the driver could not write this file: {error}") from error

    def add(self, summaries: Sequence[TaskSummary], query: str, batch: int) -> None:
        """Add the line of a written batch. If the file cannot be written, that is only logged."""
        line = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), **as_line(summaries, query, batch)}
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            logger.warning("Batch %d of %s is not in the report: %s", batch, query, error)


def as_line(summaries: Sequence[TaskSummary], query: str, batch: int) -> Mapping[str, Any]:
    """The report of all tasks together."""
    total = TaskSummary.together(summaries)
    return {
        "query": query,
        "batch": batch,
        "skipped": total.skipped,
        "rows": total.rows,
        "bytes": total.size,
        "tasks": len(summaries),
        "dead_letters": total.dead_letters,
        "retries": total.retries,
        "seconds": round(total.seconds, 3),
        "partitions": [
            {"topic": topic, "partition": number, "first_offset": first, "last_offset": last}
            for (topic, number), (first, last) in sorted(total.offsets.items())
        ],
    }
