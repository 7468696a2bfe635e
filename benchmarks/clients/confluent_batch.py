"""confluent-kafka's produce_batch(): a list of dictionaries in one call, with one delivery callback for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from benchmarks.cases import Workload
from benchmarks.clients.confluent import Outcomes, options
from benchmarks.job import Job
from benchmarks.measure import Figures, Stopwatch, throughput
from benchmarks.unavailable import Unavailable, optional

__all__ = ["WORKLOADS"]

_CHUNK: Final = 10_000
_WAIT: Final = 0.01


def _bulk(job: Job) -> Figures:
    producer = optional("confluent_kafka").Producer(options(job))
    if not hasattr(producer, "produce_batch"):
        raise Unavailable("This version of confluent-kafka has no Producer.produce_batch; 2.13 has it.")
    _send(producer, job, job.warm_up)
    with Stopwatch() as watch:
        _send(producer, job, job.records)
    return throughput(watch, job)


def _send(producer: Any, job: Job, count: int) -> None:
    outcomes = Outcomes()
    values = job.values(count)
    keys = job.keys(count) if job.case.keyed else None
    for start in range(0, count, _CHUNK):
        # In chunks, so that librdkafka sends while the next dictionaries are made: all at once took longer.
        chunk = slice(start, start + _CHUNK)
        producer.produce_batch(job.topic, _messages(values[chunk], keys and keys[chunk]), on_delivery=outcomes)
        producer.poll(0)
    while outcomes.count < count:
        producer.poll(_WAIT)


def _messages(values: Sequence[bytes], keys: Sequence[bytes] | None) -> list[dict[str, bytes]]:
    if keys is None:
        return [{"value": value} for value in values]
    return [{"value": value, "key": key} for key, value in zip(keys, values, strict=True)]


WORKLOADS: Final[Mapping[Workload, Callable[[Job], Figures]]] = {Workload.BULK: _bulk, Workload.TABLE: _bulk}
