"""The guide's hook for gunicorn: each worker serves its own samples, and those of all workers add up."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.parser import text_string_to_metric_families

from aioproducer.testing import FakeBroker
from tests.conftest import until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="gunicorn needs fork()")]

GUIDE = Path(__file__).parents[2] / "docs" / "pages" / "watch.md"
CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)
WORKERS = 2

SERVICE = """
import os
from contextlib import asynccontextmanager

from fastapi import FastAPI
from prometheus_client import Counter

from aioproducer import Producer
from aioproducer.contrib.prometheus import register

orders = Counter("orders", "of the service itself")


@asynccontextmanager
async def lifespan(app):
    async with Producer(os.environ["SERVERS"], client_id="shop") as app.state.producer:
        register(app.state.producer)
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders")
async def order():
    await app.state.producer.send("orders", b"value")
    orders.inc()
    return os.getpid()
"""


def hook() -> str:
    """The guide's code for gunicorn.conf.py."""
    (code,) = [code for code in CODE.findall(GUIDE.read_text("utf-8")) if "def post_worker_init" in code]
    return str(code)


class Gunicorn:
    """A running gunicorn, as its log shows it."""

    def __init__(self, log: Path) -> None:
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def address(self) -> str:
        """The address of the service; empty before it listens."""
        return next(iter(re.findall(r"Listening at: (http://[\d.:]+)", self.log)), "")

    @property
    def ports(self) -> dict[int, int]:
        """The port with the samples of each worker, by process id; also of workers that have ended."""
        found = re.findall(r"\[(\d+)\] \[INFO\] metrics on port (\d+)", self.log)
        return {int(process): int(port) for process, port in found}


@asynccontextmanager
async def gunicorn(folder: Path, broker: FakeBroker, **environment: str) -> AsyncGenerator[Gunicorn, None]:
    """The service with two workers, all of which serve their samples."""
    (folder / "service.py").write_text(SERVICE)
    (folder / "gunicorn.conf.py").write_text(hook())
    command = [sys.executable, "-m", "gunicorn", "service:app", "--workers", str(WORKERS), "--bind", "127.0.0.1:0"]
    command += ["--worker-class", "uvicorn_worker.UvicornWorker", "--graceful-timeout", "5"]
    env = {**os.environ, **environment, "SERVERS": broker.bootstrap_servers}
    log = folder / "log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(*command, cwd=folder, env=env, stdout=output, stderr=output)
    running = Gunicorn(log)
    try:
        await until(lambda: process.returncode is not None or len(running.ports) == WORKERS, 60)
        assert process.returncode is None, running.log
        yield running
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def request_until_all_served(address: str, count: int = WORKERS) -> Counter[int]:
    """Send requests until so many workers have served one; returns the number that each process served."""
    served: Counter[int] = Counter()

    async def request() -> None:
        # a connection of its own, because all requests of one connection reach the same worker
        async with httpx.AsyncClient(timeout=60) as client:
            answer = await client.post(f"{address}/orders")
        assert answer.status_code == 200
        served[answer.json()] += 1

    async with asyncio.timeout(90):
        while len(served) < count:
            await asyncio.gather(*(request() for _ in range(10)))
    return served


async def scrape(port: int, name: str = "aioproducer_record_send_total") -> float:
    async with httpx.AsyncClient(timeout=60) as client:
        text = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
    return total(text, name)


def total(text: str, name: str) -> float:
    """The sum of the samples of this name."""
    families = text_string_to_metric_families(text)
    return sum(sample.value for family in families for sample in family.samples if sample.name == name)


async def test_the_samples_of_all_workers_add_up_and_a_new_worker_takes_a_free_port(
    broker: FakeBroker, tmp_path: Path
) -> None:
    async with gunicorn(tmp_path, broker) as running:
        served = await request_until_all_served(running.address)
        ports = running.ports
        found = {process: await scrape(port) for process, port in ports.items()}
        assert len(set(ports.values())) == WORKERS
        assert found == served, "each worker has the samples of its own producer"
        assert sum(found.values()) == served.total() == len(broker.records("orders"))

        killed = next(iter(ports))
        os.kill(killed, signal.SIGKILL)
        await until(lambda: len(running.ports) > WORKERS, 60)
        (new,) = running.ports.keys() - ports.keys()
        assert running.ports[new] == ports[killed]
        assert await scrape(ports[killed]) == 0, "its producer has sent nothing yet"


async def test_the_multiprocess_mode_sums_only_metrics_of_its_own_classes(broker: FakeBroker, tmp_path: Path) -> None:
    """So the guide advises against it."""
    values = tmp_path / "values"
    values.mkdir()
    async with gunicorn(tmp_path, broker, PROMETHEUS_MULTIPROC_DIR=str(values)) as running:
        served = await request_until_all_served(running.address)
        registry = CollectorRegistry()
        MultiProcessCollector(registry, path=str(values))  # type: ignore[no-untyped-call]
        text = generate_latest(registry).decode()
        assert total(text, "orders_total") == served.total()
        assert "aioproducer" not in text
        assert sum([await scrape(port) for port in running.ports.values()]) == served.total()
