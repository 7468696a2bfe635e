"""No client: an event loop that beats, keeps a rate, or writes what was encoded before and reads the answer.

The one shows how quiet the machine is, the other what part of a record's time is the event loop's and not the client's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from benchmarks.cases import Workload
from benchmarks.clients.bare_socket import BareSocket, check
from benchmarks.clients.loops import blocking
from benchmarks.job import Job
from benchmarks.measure import Figures, heartbeat, lone
from benchmarks.steady import Done, steady

__all__ = ["WORKLOADS"]

_LENGTH: Final = 4


async def _heartbeat(job: Job) -> Figures:
    async with heartbeat() as heart:
        await asyncio.sleep(job.seconds)
    return {"sent": 0} | heart.figures()


class _PingPong(asyncio.Protocol):
    """Writes a request, and wakes who waits when the whole answer is there."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._received = b""
        self._answered: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        size = int.from_bytes(self._received[:_LENGTH], "big")
        if len(self._received) >= _LENGTH + size and self._answered is not None:
            frame, self._received = self._received[_LENGTH:], b""
            self._answered.set_result(frame)

    def ask(self, request: bytes) -> asyncio.Future[bytes]:
        """The answer to come."""
        self._answered = self._loop.create_future()
        self._transport.write(request)
        return self._answered


async def _lone(job: Job) -> Figures:
    requests = iter(list(BareSocket(job).requests(job.sent, batch_size=1)))
    host, _, port = job.servers.rpartition(":")
    transport, connection = await asyncio.get_running_loop().create_connection(_PingPong, host, int(port))
    answers: list[bytes] = []

    async def one() -> None:
        answers.append(await connection.ask(next(requests)))

    await lone(one, job.warm_up)
    figures = await lone(one, job.records)
    transport.close()
    check(answers)
    return figures


async def _steady(job: Job) -> Figures:
    async def put(number: int, done: Done) -> None:
        done()

    return {"sent": 0} | await steady(put, job.case.rate, job.warm_up, job.records)


WORKLOADS: Final[Mapping[Workload, Callable[[Job], Figures]]] = {
    Workload.HEARTBEAT: blocking(_heartbeat),
    Workload.LONE: blocking(_lone),
    Workload.STEADY: blocking(_steady),
}
