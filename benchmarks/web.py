"""The cost of a send in a web service: FastAPI on uvicorn, each request of which awaits the acknowledgement of one record.

    python -m benchmarks.web --broker kafka --rounds 3 --connections 1,20,200

The service and the connections that ask it are separate processes. Every producer has its default settings, with
acks=all and idempotence. The CPU is the service's, a request; the same service without a producer shows what the framework
takes of it. After each run an independent consumer counts the records.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import resource
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from aioproducer import Producer
from benchmarks import CHECKOUT
from benchmarks.brokers import BROKERS, Broker, count_records
from benchmarks.clients.confluent_aio import TASKS_SETTINGS
from benchmarks.measure import Figures, latencies
from benchmarks.unavailable import Unavailable, optional

__all__ = ["main"]

_MOST_REQUESTS: Final = 20_000
_REQUESTS_OF_A_CONNECTION: Final = 2_000
_PARTITIONS: Final = 12
_BODY: Final = b'{"order": 4711, "customer": "Ada", "items": ["a book", "another book"], "total": 31.40, "paid": true}'
_DONE: Final = b'{"accepted":true}'
_FRAMEWORK: Final = "no producer"

_Send = Callable[[str, bytes], Awaitable[object]]


@contextlib.asynccontextmanager
async def _nothing(servers: str) -> AsyncIterator[_Send]:
    async def send(topic: str, value: bytes) -> None:
        return None

    yield send


@contextlib.asynccontextmanager
async def _ours(servers: str) -> AsyncIterator[_Send]:
    async with Producer(servers) as producer:
        yield producer.send


@contextlib.asynccontextmanager
async def _aiokafka(servers: str) -> AsyncIterator[_Send]:
    kind = optional("aiokafka").AIOKafkaProducer
    async with kind(bootstrap_servers=servers, acks="all", enable_idempotence=True) as producer:
        yield producer.send_and_wait


@contextlib.asynccontextmanager
async def _confluent_aio(servers: str) -> AsyncIterator[_Send]:
    settings = {"bootstrap.servers": servers, "acks": "all", "enable.idempotence": True}
    async with optional("confluent_kafka.aio").AIOProducer(settings, **TASKS_SETTINGS) as producer:

        async def send(topic: str, value: bytes) -> None:
            await (await producer.produce(topic, value))

        yield send


_PRODUCERS: Final[Mapping[str, Callable[[str], AbstractAsyncContextManager[_Send]]]] = {
    _FRAMEWORK: _nothing,
    "aioproducer": _ours,
    "aiokafka": _aiokafka,
    "confluent-kafka AIOProducer": _confluent_aio,
}


def _serve(name: str, servers: str, topic: str, port: int) -> None:
    fastapi, uvicorn = optional("fastapi"), optional("uvicorn")

    @contextlib.asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        async with _PRODUCERS[name](servers) as app.state.send:
            yield

    app = fastapi.FastAPI(lifespan=lifespan)

    async def order(request: Any) -> dict[str, bool]:
        await app.state.send(topic, await request.body())
        return {"accepted": True}

    async def cpu() -> float:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime

    order.__annotations__["request"] = fastapi.Request
    app.post("/orders")(order)
    app.get("/cpu")(cpu)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", access_log=False)


class _Connection(asyncio.Protocol):
    """Sends one request after the other, as long as ``next_request`` says that there is one."""

    def __init__(self, next_request: Callable[[], bytes | None], seconds: list[float]) -> None:
        self._next_request = next_request
        self._seconds = seconds
        self._read = b""
        self._began = 0.0
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._read += data
        if not self._read.endswith(_DONE):
            return
        if not self._read.startswith(b"HTTP/1.1 200 "):
            self.ended.set_exception(RuntimeError(self._read.decode(errors="replace")))
            return
        self._seconds.append(time.perf_counter() - self._began)
        self._read = b""
        self._ask()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(RuntimeError(f"The service closed the connection: {self._read!r}"))

    def _ask(self) -> None:
        request = self._next_request()
        if request is None:
            self.ended.set_result(None)
            self._transport.close()
            return
        self._began = time.perf_counter()
        self._transport.write(request)


async def _ask_for(port: int, path: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer.partition(b"\r\n\r\n")[2]


async def _load(port: int, requests: int, parallel: int) -> list[float]:
    """The duration of each request, in seconds."""
    head = f"POST /orders HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(_BODY)}\r\n\r\n".encode()
    request, left, seconds = head + _BODY, requests, list[float]()

    def next_request() -> bytes | None:
        nonlocal left
        left -= 1
        return request if left >= 0 else None

    loop = asyncio.get_running_loop()
    connections = [
        (await loop.create_connection(lambda: _Connection(next_request, seconds), "127.0.0.1", port))[1]
        for _ in range(parallel)
    ]
    await asyncio.gather(*(connection.ended for connection in connections))
    return seconds


def _requests(parallel: int) -> tuple[int, int]:
    """The number of requests that are measured, and of those before them."""
    measured = min(_MOST_REQUESTS, parallel * _REQUESTS_OF_A_CONNECTION)
    return measured, measured // 5


async def _measure(port: int, parallel: int) -> Figures:
    requests, warm_up = _requests(parallel)
    while True:
        try:
            await _ask_for(port, "/cpu")
            break
        except OSError:
            await asyncio.sleep(0.1)  # the service is starting
    await _load(port, warm_up, parallel)
    before = float(await _ask_for(port, "/cpu"))
    began = time.perf_counter()
    seconds = await _load(port, requests, parallel)
    lasted = time.perf_counter() - began
    cpu_us = (float(await _ask_for(port, "/cpu")) - before) / requests * 1e6
    return {"cpu_us": cpu_us, "requests_per_s": requests / lasted, **latencies(seconds)}


def _run(broker: Broker, name: str, parallel: int) -> Figures:
    topic = f"web-{uuid.uuid4().hex[:8]}"
    broker.create_topic(topic, _PARTITIONS)
    port = _free_port()
    command = [sys.executable, "-m", "benchmarks.web", "--serve", name, broker.servers, topic, str(port)]
    service = subprocess.Popen(command, cwd=CHECKOUT)
    try:
        figures = asyncio.run(asyncio.wait_for(_measure(port, parallel), 300))
    finally:
        service.terminate()
        service.wait(30)
    expected = 0 if name == _FRAMEWORK else sum(_requests(parallel))
    found = count_records(broker.servers, topic, expected)
    broker.delete_topic(topic)
    if found != expected:
        raise SystemExit(f"{name}: {expected} records were acknowledged, {found} are in the log.")
    return figures


def _free_port() -> int:
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        server = loop.run_until_complete(loop.create_server(asyncio.Protocol, "127.0.0.1", 0))
        port: int = server.sockets[0].getsockname()[1]
        server.close()
        loop.run_until_complete(server.wait_closed())
    return port


def _row(name: str, parallel: int, figures: Sequence[Figures], framework: Sequence[Figures]) -> str:
    middle = {figure: statistics.median(each[figure] for each in figures) for figure in figures[0]}
    more = middle["cpu_us"] - statistics.median(each["cpu_us"] for each in framework)
    return (
        f"| {parallel} | {name} | {middle['cpu_us']:.0f} us | {more:.0f} us | {middle['requests_per_s']:,.0f} | "
        f"{middle['p50_us'] / 1000:.2f} ms | {middle['p99_us'] / 1000:.2f} ms |"
    )


def main() -> None:
    """Measure all producers, or those that are named, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.web", description=__doc__)
    parser.add_argument("--broker", choices=BROKERS, default="kafka")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", default=",".join(_PRODUCERS))
    parser.add_argument("--connections", default="200", help="how many there are at a time; 1,20,200 measures each")
    parser.add_argument("--serve", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        name, servers, topic, port = arguments.serve
        _serve(name, servers, topic, int(port))
        return
    names = arguments.clients.split(",")
    cases = [(int(parallel), name) for parallel in arguments.connections.split(",") for name in names]
    figures: dict[tuple[int, str], list[Figures]] = {case: [] for case in cases}
    try:
        for module in ("fastapi", "uvicorn"):
            optional(module)
        with BROKERS[arguments.broker]() as broker:
            for _ in range(arguments.rounds):
                for parallel, name in cases:
                    figures[parallel, name].append(_run(broker, name, parallel))
            print(f"{broker.title}; {os.cpu_count()} processors; medians of {arguments.rounds} rounds", flush=True)
    except Unavailable as error:
        raise SystemExit(str(error)) from None
    print("| connections | | CPU a request | more than the framework | requests/s | p50 | p99 |")
    print("|---:|---|---:|---:|---:|---:|---:|")
    for parallel, name in cases:
        print(
            _row(name, parallel, figures[parallel, name], figures.get((parallel, _FRAMEWORK), figures[parallel, name]))
        )


if __name__ == "__main__":
    main()
