"""confluent-kafka's AIOProducer: each produce() is awaited for a future, which is awaited for the outcome."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from operator import attrgetter
from typing import Any, Final

from benchmarks.cases import Workload
from benchmarks.clients.asynchronous import AsynchronousClient
from benchmarks.clients.confluent import options
from benchmarks.job import Job
from benchmarks.measure import Figures
from benchmarks.unavailable import optional

__all__ = ["TASKS_SETTINGS", "WORKLOADS"]

#: By default it sends a thousand at a time, or what there is after a second: fewer tasks would wait for that.
TASKS_SETTINGS: Final[Mapping[str, Any]] = {"batch_size": 100, "buffer_timeout": 0.01}


@contextlib.asynccontextmanager
async def _producer(job: Job) -> AsyncIterator[Any]:
    settings = TASKS_SETTINGS if job.case.workload is Workload.CONCURRENT else {}
    async with optional("confluent_kafka.aio").AIOProducer(options(job), **settings) as producer:
        yield producer


def _send(producer: Any) -> Callable[[str, bytes], Awaitable[object]]:
    async def send(topic: str, value: bytes) -> None:
        await (await producer.produce(topic, value))

    return send


def _send_alone(producer: Any) -> Callable[[str, bytes], Awaitable[object]]:
    async def send(topic: str, value: bytes) -> None:
        future = await producer.produce(topic, value)
        await producer.flush()
        await future

    return send


_CLIENT: Final = AsynchronousClient(
    producer=_producer,
    put=attrgetter("produce"),
    send=_send,
    send_alone=_send_alone,
    hurry=attrgetter("flush"),  # it sends a thousand at a time; the rest would wait for a second
)

WORKLOADS: Final[Mapping[Workload, Callable[[Job], Figures]]] = _CLIENT.workloads()
