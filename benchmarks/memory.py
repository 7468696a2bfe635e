"""The memory that records in flight take, while the broker is paused."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

from aioproducer.record import RecordBatchBuilder
from benchmarks.job import BATCH_SIZE, Job
from benchmarks.measure import Figures
from benchmarks.unavailable import Unavailable

__all__ = ["broker_paused", "encoded_bytes", "growth", "resident_bytes"]


@contextlib.contextmanager
def broker_paused(job: Job) -> Iterator[None]:
    """The broker keeps its connections but answers nothing during the block."""
    if job.broker_pid is None:
        raise Unavailable("The broker cannot be paused: its process is not known. Give --broker-pid.")
    os.kill(job.broker_pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(job.broker_pid, signal.SIGCONT)


def encoded_bytes(job: Job) -> int:
    """The size of a job's records in batches of the benchmarks' size, including batch headers."""
    total = 0
    builder = RecordBatchBuilder()
    for value in job.values():
        builder.append(1_700_000_000_000, None, value)
        if builder.size >= BATCH_SIZE:
            total += builder.size
            builder = RecordBatchBuilder()
    return total + (builder.size if builder.count else 0)


def growth(before: int, encoded: int) -> Figures:
    """The additional memory of the process, and its ratio to the encoded bytes."""
    grown = resident_bytes() - before
    return {"grown_mb": grown / 1e6, "encoded_mb": encoded / 1e6, "times_encoded": grown / encoded}


def resident_bytes() -> int:
    """The memory of this process that is in RAM, after the garbage is gone."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
