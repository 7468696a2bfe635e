"""aiokafka: send, and await each future; send_and_wait."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from operator import attrgetter
from typing import Any, Final

from benchmarks.cases import Workload
from benchmarks.clients.asynchronous import AsynchronousClient
from benchmarks.clients.loops import blocking
from benchmarks.job import BATCH_SIZE, Job
from benchmarks.measure import Figures, lone
from benchmarks.unavailable import optional

__all__ = ["WORKLOADS"]


@contextlib.asynccontextmanager
async def _producer(job: Job, **more: object) -> AsyncIterator[Any]:
    options: dict[str, object] = {"acks": "all", "enable_idempotence": True, **more}
    if not job.case.defaults:
        codec = None if job.case.codec == "none" else job.case.codec
        options |= {"max_batch_size": BATCH_SIZE, "linger_ms": job.case.linger_ms, "compression_type": codec}
    async with optional("aiokafka").AIOKafkaProducer(bootstrap_servers=job.servers, **options) as producer:
        yield producer


async def _transactions(job: Job) -> Figures:
    topic, records = job.topic, job.transaction()
    async with _producer(job, transactional_id=topic) as producer:

        async def one() -> None:
            async with producer.transaction():
                for value, partition in records:
                    await producer.send(topic, value, partition=partition)

        await lone(one, job.warm_up_transactions)
        return await lone(one, job.transactions)


_CLIENT: Final = AsynchronousClient(
    producer=_producer,
    put=attrgetter("send"),
    send=attrgetter("send_and_wait"),
    send_alone=attrgetter("send_and_wait"),
)

WORKLOADS: Final[Mapping[Workload, Callable[[Job], Figures]]] = {
    **_CLIENT.workloads(),
    Workload.TRANSACTIONS: blocking(_transactions),
}
