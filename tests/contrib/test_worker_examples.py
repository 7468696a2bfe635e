"""The guide's examples for each framework, run as programs with that framework's server or worker."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from aioproducer.testing import FakeBroker, Logins
from tests.conftest import until
from tests.docs.guide import code_of

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="sends SIGTERM, and needs fork()")]

_LISTENING = re.compile(r"(?:running on|Running on|Listening at:) (http://[\d.:]+)")

_CLASS = """
import os


class Reporting:
    def close(self):
        os.write(2, b"\\nclosed by %d\\n" % os.getpid())


"""
_AT_EXIT = """

import atexit

atexit.register(lambda: os.write(2, b"\\nexit of %d\\n" % os.getpid()))
"""


def reporting(code: str) -> str:
    """Let this code report when its process closes the producer, and when it runs exit handlers, which also close it."""
    changed = code.replace('client_id="shop"', 'client_id="shop", interceptors=[Reporting()]')
    assert changed != code
    return _CLASS + changed + _AT_EXIT  # the last exit handler that is registered runs first


_CLOSED = re.compile(r"^(closed by|exit of) (\d+)$", re.MULTILINE)


class Program:
    """A running server or worker, as its output shows it."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def address(self) -> str:
        """The address of the service; empty before it listens."""
        return next(iter(_LISTENING.findall(self.log)), "")

    @property
    def has_ended(self) -> bool:
        return self.process.returncode is not None

    @property
    def closers(self) -> list[str]:
        """The processes that closed their producer before they ran exit handlers."""
        found = [(event, process) for event, process in _CLOSED.findall(self.log)]
        exits = [process for event, process in found if event == "exit of"]
        return [
            process
            for number, (event, process) in enumerate(found)
            if event == "closed by" and (process not in exits or number < found.index(("exit of", process)))
        ]

    async def end(self) -> None:
        """Ask it to end, and wait until it has; fails if it failed."""
        self.process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(self.process.wait(), 60)
        assert self.process.returncode in (0, -signal.SIGTERM), self.log  # uvicorn raises the signal again at the end
        assert "Traceback" not in self.log, self.log


@asynccontextmanager
async def running(
    folder: Path, module: str, *arguments: str, inherited: Sequence[int] = ()
) -> AsyncGenerator[Program, None]:
    """A module of Python, run as a program in this folder; it is killed at the end if it is still there."""
    log = folder / "log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-W", "error::ResourceWarning", "-m", module, *arguments),
            cwd=folder,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=inherited,
        )
    program = Program(process, log)
    try:
        yield program
    finally:
        if not program.has_ended:
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def address_of(program: Program) -> str:
    await until(lambda: program.has_ended or bool(program.address), 60)
    assert not program.has_ended, program.log
    return program.address


def write(folder: Path, name: str, code: str, broker: FakeBroker) -> None:
    """Write a block of the guide into a file, with the address of this broker."""
    assert "kafka:9092" in code or "from shop_kafka import producer" in code
    (folder / name).write_text(code.replace("kafka:9092", broker.bootstrap_servers), encoding="utf-8")


async def order(address: str, **body: object) -> httpx.Response:
    async with httpx.AsyncClient(timeout=60) as client:
        return await client.post(f"{address}/orders", **body)  # type: ignore[arg-type]


async def test_litestar_with_uvicorn(broker: FakeBroker, tmp_path: Path) -> None:
    write(tmp_path, "shop.py", code_of("web-services", "ProducerPlugin("), broker)
    async with running(tmp_path, "uvicorn", "shop:app", "--port", "0") as program:
        address = await address_of(program)
        assert broker.count("InitProducerId") == 1, "it is warmed up before the first request"
        answer = await order(address, json={"item": "3 books"})
        assert (answer.status_code, answer.json()) == (201, 0), answer.text
        broker.assert_sent("orders", value=b"3 books", times=1)
        await program.end()


async def test_aiohttp_with_its_own_server(broker: FakeBroker, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:  # aiohttp does not print the port that it chooses
        code = code_of("web-services", "cleanup_ctx(").replace(
            "run_app(create_app())", f"run_app(create_app(), sock=socket.socket(fileno={listener.fileno()}))"
        )
        write(tmp_path, "shop.py", f"import socket\n{code}", broker)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with running(tmp_path, "shop", inherited=[listener.fileno()]) as program:
            await until(lambda: program.has_ended or "Running on" in program.log, 60)
            assert broker.count("InitProducerId") == 1, "it is warmed up before the first request"
            answer = await order(address, content=b"3 books")
            assert (answer.status_code, answer.json()) == (201, 0), program.log
            await program.end()


async def test_django_with_uvicorn(broker: FakeBroker, tmp_path: Path) -> None:
    write(tmp_path, "shop.py", code_of("web-services", "get_asgi_application()"), broker)
    async with running(tmp_path, "uvicorn", "shop:application", "--port", "0") as program:
        address = await address_of(program)
        assert broker.count("InitProducerId") == 1, "it is warmed up before the first request"
        answer = await order(address, content=b"3 books")
        assert (answer.status_code, answer.json()) == (201, {"offset": 0}), answer.text
        assert "appears unsupported" not in program.log
        await program.end()


#: A worker heeds no signal before this hook: it still has the master's handlers in post_fork.
_BOOTED = """

def post_worker_init(worker):
    import os
    os.write(2, b"\\nbooted %d\\n" % os.getpid())
"""


def write_gunicorn(folder: Path, broker: FakeBroker, options: str = "") -> None:
    code = reporting(code_of("web-services", "close_timeout_ms=20_000"))
    write(folder, "shop_kafka.py", code.replace("close_timeout_ms", f"{options}close_timeout_ms"), broker)
    write(folder, "gunicorn.conf.py", code_of("web-services", "worker_hooks(") + _BOOTED, broker)
    write(folder, "shop.py", code_of("web-services", "start_response"), broker)


@pytest.mark.parametrize("options", [[], ["--preload"], ["--threads", "2"]], ids=["sync", "preload", "gthread"])
async def test_gunicorn_runs_a_producer_in_each_worker(broker: FakeBroker, tmp_path: Path, options: list[str]) -> None:
    write_gunicorn(tmp_path, broker)
    arguments = ["shop:app", "--workers", "2", "--bind", "127.0.0.1:0", *options]
    async with running(tmp_path, "gunicorn", *arguments) as program:
        address = await address_of(program)
        await until(lambda: program.log.count("\nbooted ") == 2, 60)
        assert broker.count("InitProducerId") == 2
        answers = [await order(address, content=b"%d" % number) for number in range(5)]
        assert [answer.status_code for answer in answers] == [201] * 5, program.log
        await program.end()
        assert len(set(program.closers)) == 2, program.log
    assert sorted(record.value or b"" for record in broker.records("orders")) == [b"0", b"1", b"2", b"3", b"4"]


async def test_gunicorn_does_not_start_with_refused_credentials(tmp_path: Path) -> None:
    with FakeBroker(logins=Logins({"me": "right"})) as broker:
        login = (
            'security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_username="me", sasl_password="wrong", '
        )
        write_gunicorn(tmp_path, broker, login)
        async with running(tmp_path, "gunicorn", "shop:app", "--bind", "127.0.0.1:0") as program:
            await asyncio.wait_for(program.process.wait(), 60)
            assert "AuthenticationError" in program.log
            assert "Worker failed to boot" in program.log


#: Submits tasks from the worker itself: the in-memory broker of Celery serves one process.
SUBMIT = """

from celery.signals import worker_ready


@worker_ready.connect
def submit(**_):
    for number in range(20):
        order.delay(str(number))
"""

DONE = re.compile(r"Task shop\.order\[[^\]]+\] succeeded")


@pytest.mark.parametrize(("pool", "processes"), [("prefork", 2), ("solo", 1), ("threads", 1)])
async def test_celery_runs_a_producer_in_each_worker(
    broker: FakeBroker, tmp_path: Path, pool: str, processes: int
) -> None:
    code = code_of("web-services", "run_in_workers(").replace("redis://localhost", "memory://")
    code = reporting(code)
    if pool == "threads":
        code += code_of("web-services", "worker_init.connect")
    write(tmp_path, "shop.py", code + SUBMIT, broker)
    arguments = ["-A", "shop", "worker", "--pool", pool, "--concurrency", "2", "--loglevel", "INFO"]
    async with running(tmp_path, "celery", *arguments) as program:
        await until(lambda: program.has_ended or len(DONE.findall(program.log)) == 20, 90)
        assert not program.has_ended, program.log
        await program.end()
        assert len(program.closers) == processes, program.log
    assert sorted(int(record.value or b"") for record in broker.records("orders")) == list(range(20))
