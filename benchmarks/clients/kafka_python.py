"""kafka-python: send, and ask each future for its outcome."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from benchmarks.cases import Workload
from benchmarks.job import BATCH_SIZE, Job
from benchmarks.measure import Figures, Stopwatch, idleness, lone_blocking, throughput
from benchmarks.unavailable import optional

__all__ = ["WORKLOADS"]

_TIMEOUT: Final = 60.0


def _producer(job: Job) -> Any:
    options: dict[str, Any] = {"acks": "all", "enable_idempotence": True}
    if not job.case.defaults:
        codec = None if job.case.codec == "none" else job.case.codec
        options |= {"batch_size": BATCH_SIZE, "linger_ms": job.case.linger_ms, "compression_type": codec}
    if job.mock:
        options["api_version"] = (2, 3)  # it cannot read what the mock cluster answers to newer questions
    return optional("kafka").KafkaProducer(bootstrap_servers=job.servers, **options)


def _burst(producer: Any, job: Job, count: int) -> None:
    topic, values, send = job.topic, job.values(count), producer.send
    if job.case.keyed:
        futures = [send(topic, value, key) for key, value in zip(job.keys(count), values, strict=True)]
    elif job.case.spread:
        partitions = itertools.cycle(range(job.case.partitions))
        futures = [send(topic, value, partition=next(partitions)) for value in values]
    else:
        futures = [send(topic, value) for value in values]
    producer.flush()
    for future in futures:
        future.get(_TIMEOUT)


def _pipelined(job: Job) -> Figures:
    producer = _producer(job)
    _burst(producer, job, job.warm_up)
    with Stopwatch() as watch:
        _burst(producer, job, job.records)
    producer.close()
    return throughput(watch, job)


def _lone(job: Job) -> Figures:
    (value,) = job.values(1)
    producer = _producer(job)

    def one() -> None:
        producer.send(job.topic, value).get(_TIMEOUT)

    lone_blocking(one, job.warm_up)
    figures = lone_blocking(one, job.records)
    producer.close()
    return figures


def _idle(job: Job) -> Figures:
    producer = _producer(job)
    _burst(producer, job, job.sent)
    with Stopwatch() as watch:
        time.sleep(job.seconds)
    producer.close()
    return idleness(watch)


WORKLOADS: Final[Mapping[Workload, Callable[[Job], Figures]]] = {
    Workload.PIPELINED: _pipelined,
    Workload.LONE: _lone,
    Workload.IDLE: _idle,
}
