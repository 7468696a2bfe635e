"""No client: an event loop with nothing but a heartbeat, which tells how quiet the machine is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from benchmarks.cases import Workload
from benchmarks.clients.loops import blocking
from benchmarks.job import Job
from benchmarks.measure import Figures, heartbeat

__all__ = ["WORKLOADS"]


async def _heartbeat(job: Job) -> Figures:
    async with heartbeat() as heart:
        await asyncio.sleep(job.seconds)
    return {"sent": 0} | heart.figures()


WORKLOADS: Final[Mapping[Workload, Callable[[Job], Figures]]] = {Workload.HEARTBEAT: blocking(_heartbeat)}
