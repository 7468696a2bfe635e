"""A steady rate: a task wakes each millisecond and puts in the records that are due, as a service does between its peaks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from benchmarks.measure import Figures, Stopwatch, latencies

__all__ = ["Done", "paced", "steady"]

_TICK_S: Final = 0.001

#: Called once with the outcome of a record, whatever its arguments.
Done = Callable[..., None]

#: Puts in the record with this number; `Done` is called when its outcome is known.
Put = Callable[[int, Done], Awaitable[object]]


async def paced(put: Put, rate: int, first: int, count: int) -> list[float]:
    """Put in ``count`` records at ``rate`` a second, and return the seconds that each took until its outcome."""
    clock = time.perf_counter
    seconds: list[float] = []
    all_done = asyncio.get_running_loop().create_future()

    def done(began: float, *_: object) -> None:
        seconds.append(clock() - began)
        if len(seconds) == count:
            all_done.set_result(None)

    began, sent = clock(), 0
    while sent < count:
        await asyncio.sleep(_TICK_S)
        due = min(count, int((clock() - began) * rate) + 1)
        while sent < due:
            await put(first + sent, partial(done, clock()))
            sent += 1
    await all_done
    return seconds


async def steady(put: Put, rate: int, warm_up: int, count: int) -> Figures:
    """The distribution of the latencies, and the CPU of a record, with the pacing's own."""
    await paced(put, rate, 0, warm_up)
    with Stopwatch() as watch:
        seconds = await paced(put, rate, warm_up, count)
    return latencies(seconds) | {"cpu_us": watch.cpu / count * 1e6}
