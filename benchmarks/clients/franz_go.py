"""franz-go through the program beside this package (franz_go/main.go), which measures itself in the same way."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from aioproducer.testing.kafka.jars import cache_directory
from benchmarks.cases import Workload
from benchmarks.job import BATCH_SIZE, CONCURRENCY, Job, different_keys, payloads
from benchmarks.measure import Figures
from benchmarks.unavailable import Unavailable

__all__ = ["WORKLOADS"]

_SOURCES: Final = Path(__file__).parent.parent / "franz_go"
_BUILD_TIMEOUT: Final = 600.0
_TIMEOUT: Final = 120.0


def _run(job: Job) -> Figures:
    program = _built()
    with tempfile.TemporaryDirectory() as directory:
        values, keys = Path(directory) / "values", Path(directory) / "keys"
        values.write_bytes(b"\n".join(payloads(job.case.payload, job.case.value_size)))
        keys.write_bytes(b"\n".join(different_keys()))
        settings = {
            "servers": job.servers,
            "topic": job.topic,
            "workload": job.case.workload.value,
            "records": job.records,
            "warm_up": job.warm_up,
            "values": str(values),
            "keys": str(keys) if job.case.keyed else "",
            "partitions": job.case.partitions if job.case.spread else 0,
            "codec": job.case.codec,
            "defaults": job.case.defaults,
            "batch_size": BATCH_SIZE,
            "linger_ms": job.case.linger_ms,
            "concurrency": CONCURRENCY,
            "seconds": job.seconds,
            "mock": job.mock,
        }
        done = subprocess.run(
            [program, json.dumps(settings)], capture_output=True, text=True, timeout=_TIMEOUT, check=False
        )
    if done.returncode != 0:
        raise Unavailable(f"The Go program failed: {done.stderr.strip()[-500:]}")
    figures: Figures = json.loads(done.stdout)
    return figures


def _built() -> str:
    """The program, compiled once for its sources."""
    go = shutil.which("go")
    if go is None:
        raise Unavailable("There is no `go` on the PATH to build franz-go with.")
    what = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(_SOURCES.iterdir()))).hexdigest()
    program = cache_directory() / f"benchmark-franz-go-{what[:16]}"
    program.parent.mkdir(parents=True, exist_ok=True)
    with (program.parent / "go-build.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            unfinished = program.with_suffix(".unfinished")
            done = subprocess.run(
                [go, "build", "-o", str(unfinished), "."],
                cwd=_SOURCES,
                capture_output=True,
                text=True,
                timeout=_BUILD_TIMEOUT,
                check=False,
            )
            if done.returncode != 0:
                raise Unavailable(f"`go build` failed: {done.stderr.strip()[-500:]}")
            unfinished.rename(program)
    return str(program)


WORKLOADS: Final[Mapping[Workload, Callable[[Job], Figures]]] = {
    Workload.PIPELINED: _run,
    Workload.CONCURRENT: _run,
    Workload.LONE: _run,
    Workload.IDLE: _run,
}
