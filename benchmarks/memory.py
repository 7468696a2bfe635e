"""How much memory records take that wait for their answers, while the broker is paused."""

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
    """The broker keeps its connections and answers nothing meanwhile."""
    if job.broker_pid is None:
        raise Unavailable("The broker cannot be paused: its process is not known. Give --broker-pid.")
    os.kill(job.broker_pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(job.broker_pid, signal.SIGCONT)


def encoded_bytes(job: Job) -> int:
    """What the records of a job take in batches of the benchmarks' size, headers of the batches included."""
    total = 0
    builder = RecordBatchBuilder()
    for value in job.values():
        builder.append(1_700_000_000_000, None, value)
        if builder.size >= BATCH_SIZE:
            total += builder.size
            builder = RecordBatchBuilder()
    return total + (builder.size if builder.count else 0)


def growth(before: int, encoded: int) -> Figures:
    """What the process took in addition, and how many times the encoded bytes that is."""
    grown = resident_bytes() - before
    return {"grown_mb": grown / 1e6, "encoded_mb": encoded / 1e6, "times_encoded": grown / encoded}


def resident_bytes() -> int:
    """The memory of this process that is in RAM, after the garbage is gone."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
