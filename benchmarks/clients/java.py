"""The Java client: by its own ProducerPerformance tool, as Kafka's script runs it, and by a program for transactions."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from aioproducer.testing.kafka.jars import KafkaJars, KafkaUnavailable
from aioproducer.testing.kafka.jvm import SOURCES
from benchmarks.cases import Workload
from benchmarks.job import BATCH_SIZE, BUFFER_MEMORY, Job, payloads
from benchmarks.measure import Figures, lone_figures
from benchmarks.unavailable import Unavailable

__all__ = ["WORKLOADS", "steady_rate"]

#: What kafka-run-class.sh gives to a JVM, with room for the buffer.
_OPTIONS: Final = (
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
    f"-Dlog4j2.configurationFile={SOURCES / 'log4j2.properties'}",
)
_TIMEOUT: Final = 120.0
_TRANSACTIONS: Final = Path(__file__).parent / "Transactions.java"
#: So many transactions go ahead at least, so that the JVM has compiled what it is going to compile.
_LEAST_WARM_UP: Final = 100
_RATE: Final = re.compile(r"\d+(?: steady state)? records sent, ([\d.]+) records/sec")


def _pipelined(job: Job) -> Figures:
    """Its rate after the warm-up, as it reports it itself; its CPU beyond that of a run which ends after the warm-up."""
    jars = _jars()
    # Half as many again, so that the JVM has compiled what it is going to compile.
    warm_up = max(job.records // 2, 1)
    with tempfile.TemporaryDirectory() as directory:
        values = Path(directory) / "values"
        values.write_bytes(b"\n".join(payloads(job.case.payload, job.case.value_size)))
        _, cpu_of_warm_up = _perf_test(jars, job, values, warm_up, 0)
        output, cpu = _perf_test(jars, job, values, warm_up + job.records, warm_up)
    rate = steady_rate(output)
    return {
        "sent": 2 * warm_up + job.records,
        "records_per_s": rate,
        "mb_per_s": rate * job.case.value_size / 1e6,
        "cpu_us": (cpu - cpu_of_warm_up) / job.records * 1e6,
    }


def _transactions(job: Job) -> Figures:
    jars, warm_up = _jars(), max(job.warm_up_transactions, _LEAST_WARM_UP)
    with tempfile.TemporaryDirectory() as directory:
        values = Path(directory) / "values"
        values.write_bytes(b"\n".join(value for value, _ in job.transaction()))
        command = [jars.java.executable, *_OPTIONS, "-cp", jars.classpath, str(_TRANSACTIONS)]
        command += [job.topic, str(job.case.partitions), str(warm_up), str(job.transactions), str(values)]
        command += [*_properties(job), f"transactional.id={job.topic}", f"bootstrap.servers={job.servers}"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT, check=False, env=_environment()
        )
    if done.returncode != 0:
        raise Unavailable(f"Transactions.java failed: {(done.stderr + done.stdout).strip()[-500:]}")
    found = json.loads(done.stdout)
    return {"sent": job.offsets_of(warm_up + job.transactions), **lone_figures(found["seconds"], found["cpu"])}


def _jars() -> KafkaJars:
    try:
        return KafkaJars.get()
    except KafkaUnavailable as error:
        raise Unavailable(str(error)) from error


def _perf_test(jars: KafkaJars, job: Job, values: Path, records: int, warm_up: int) -> tuple[str, float]:
    """The output of the tool, and the seconds of CPU that it took."""
    command = [jars.java.executable, *_OPTIONS, "-cp", jars.classpath, "org.apache.kafka.tools.ProducerPerformance"]
    command += ["--topic", job.topic, "--num-records", str(records), "--throughput", "-1"]
    command += ["--payload-file", str(values), "--bootstrap-server", job.servers]
    if warm_up:
        command += ["--warmup-records", str(warm_up)]
    command += ["--command-property", *_properties(job)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False, env=_environment())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0 or not _RATE.search(done.stdout):
        raise Unavailable(f"ProducerPerformance failed: {(done.stderr + done.stdout).strip()[-500:]}")
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def steady_rate(output: str) -> float:
    """The records a second of the last summary: with a warm-up, that is the one of the steady state."""
    return float(_RATE.findall(output)[-1])


def _properties(job: Job) -> list[str]:
    properties: dict[str, object] = {"acks": "all", "enable.idempotence": "true"}
    if not job.case.defaults:
        properties |= {"batch.size": BATCH_SIZE, "linger.ms": job.case.linger_ms, "buffer.memory": BUFFER_MEMORY}
        properties["compression.type"] = job.case.codec
    return [f"{name}={value}" for name, value in properties.items()]


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "JAVA_TOOL_OPTIONS"}


WORKLOADS: Final[Mapping[Workload, Callable[[Job], Figures]]] = {
    Workload.PIPELINED: _pipelined,
    Workload.TRANSACTIONS: _transactions,
}
