"""Every example runs as it is, and says what it should."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from aioproducer.testing import FakeBroker
from aioproducer.testing.plugin import KafkaFactory

EXAMPLES = Path(__file__).parent.parent / "examples"

#: What each program says, at least.
SAYS: Mapping[str, tuple[str, ...]] = {
    "script.py": ("order 0 is in orders-", "order 2 is in orders-"),
    "pipelined.py": ("20,000 records acknowledged in",),
    "bulk.py": ("50,000 of 50,000 acknowledged", "measurements-2: offsets 0 to"),
    "send_table.py": ("100,000 of 100,000 acknowledged", "measurements-2: offsets 0 to"),
    "web_service.py": ("POST /orders: 201", 'GET /ready: 200 {"status": "ready"', "POST /clicks:", "GET /nothing: 404"),
    "transactions.py": ("order 1: committed", "order 2: aborted", "order 3: committed at offset"),
    "outbox.py": (
        "events 1 to 3 are in Kafka\npower cut; left in the table: 3",
        "the relay begins after event 3\nevents 4 to 4 are in Kafka\nleft in the table: 0",
    ),
    "threads.py": ("100 jobs sent by 8 threads", "the last one is at", "5,000 more"),
    "on_error.py": (
        "safe to send again: ",
        "check before sending again: ",
        "on_delivery_error: a record for payments was not written; its value was b'30 EUR'",
        "3 saved to spool.jsonl",
        "3 sent after the restart",
    ),
    "consume_transform_produce.py": ("300 squares of 300 numbers, 300 of them different, and 0 too many",),
    "testing_with_fake_broker.py": ("2 passed",),
    "confluent_cloud.py": ("the order is in orders-0 at offset 0",),
    "azure_event_hubs.py": ("the order is in orders-0 at offset 0",),
    "redpanda_cloud.py": ("the order is in orders-0 at offset 0",),
    "aiven.py": ("the order is in orders-0 at offset 0",),
    "amazon_msk.py": ("the order is in orders-0 at offset 0",),
    "spark_batch.py": ("10,000 rows are in the topic events",),
    "spark_streaming.py": ("batches up to 2 are committed", "batch 2 was run again, and wrote nothing"),
    "spark_foreach_batch.py": ("the stream is written", "the job wrote 1000 rows", "the same job again wrote 0 rows"),
    "spark_pipeline.py": (
        "JetBlue Airways                4,427",
        "VERDICT: CLEAN - 27,004 records expected, 27,004 read",
    ),
}


#: Those that also run on real Kafka, with the topics that they use.
TOPICS = {"consume_transform_produce.py": ("numbers", "squares")}


#: What tests of the sink run as well, step by step.
_MARKS = {"spark_foreach_batch.py": pytest.mark.soak}


def test_every_example_is_run_here() -> None:
    assert {path.name for path in EXAMPLES.glob("[!_]*.py")} == set(SAYS)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[_MARKS.get(name, pytest.mark.slow), pytest.mark.timeout(600)])
        if name.startswith("spark_")
        else name
        for name in SAYS
    ],
)
def test_the_example_runs_and_prints_the_expected_lines(name: str, tmp_path: Path) -> None:
    said = run(name, tmp_path)

    for words in SAYS[name]:
        assert words in said


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.3.1", "3.9.2"])
@pytest.mark.parametrize("name", TOPICS)
def test_the_example_runs_on_real_kafka_and_prints_the_expected_lines(
    name: str, version: str, kafka_factory: KafkaFactory, tmp_path: Path
) -> None:
    kafka = kafka_factory(version)
    for topic in TOPICS[name]:
        kafka.create_topic(topic, 3)

    said = run(name, tmp_path, KAFKA_BOOTSTRAP_SERVERS=kafka.bootstrap_servers)

    for words in SAYS[name]:
        assert words in said


def run(name: str, directory: Path, **variables: str) -> str:
    """Run an example in that directory; returns what it printed."""
    environment = {variable: text for variable, text in os.environ.items() if not variable.startswith("KAFKA_")}
    runner = ["-m", "pytest"] if "testing" in name else []
    done = subprocess.run(
        [sys.executable, *runner, str(EXAMPLES / name)],
        cwd=directory,
        env=environment | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


# -- the web service, driven as a server would ---------------------------------------------------------------------------


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Generator[FakeBroker, None, None]:
    with FakeBroker(topics={"orders": 3, "clicks": 3}) as broker:
        monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
        monkeypatch.syspath_prepend(str(EXAMPLES))
        yield broker


class Server:
    """The part of a web server that an ASGI application sees."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app

    async def request(
        self, method: str, path: str, body: bytes = b""
    ) -> tuple[int, dict[str, Any], dict[bytes, bytes]]:
        pieces = [
            {"type": "http.request", "body": body[:3], "more_body": True},
            {"type": "http.request", "body": body[3:], "more_body": False},
        ]
        answers: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return pieces.pop(0)

        async def send(message: dict[str, Any]) -> None:
            answers.append(message)

        await self._app({"type": "http", "method": method, "path": path}, receive, send)
        start, rest = answers
        return start["status"], json.loads(rest["body"]), dict(start["headers"])


@asynccontextmanager
async def serving(example: ModuleType) -> Any:
    to_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    from_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    life = asyncio.create_task(example.app({"type": "lifespan"}, to_app.get, from_app.put))
    await to_app.put({"type": "lifespan.startup"})
    assert (await from_app.get())["type"] == "lifespan.startup.complete"
    yield Server(example.app)
    await to_app.put({"type": "lifespan.shutdown"})
    assert (await from_app.get())["type"] == "lifespan.shutdown.complete"
    await life


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_the_web_service_answers_when_the_order_is_in_kafka(broker: FakeBroker) -> None:
    async with serving(load("web_service")) as server:
        status, reported, _ = await server.request("POST", "/orders", b'{"item": "tea"}')

        assert status == 201
        assert reported["offset"] == 0
        broker.assert_sent("orders", value=b'{"item": "tea"}', partition=reported["partition"])
        assert (await server.request("GET", "/ready"))[0] == 200
        assert (await server.request("GET", "/elsewhere"))[0] == 404


async def test_the_web_services_response_shows_whether_a_failed_order_may_be_sent_again(broker: FakeBroker) -> None:
    async with serving(load("web_service")) as server:
        broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")
        status, reported, headers = await server.request("POST", "/orders", b'{"item": "tea"}')

        assert status == 503
        assert reported["retry"].startswith("safe")
        assert b"retry-after" in headers


async def test_the_web_service_sheds_clicks_rather_than_wait_and_delivers_those_it_took(broker: FakeBroker) -> None:
    example = load("web_service")
    async with serving(example) as server:
        first, _, _ = await server.request("POST", "/clicks", b"click")
        await example.producer.partitions_for("clicks")
        hold = broker.hold("Produce")
        statuses = [(await server.request("POST", "/clicks", bytes(900_000)))[0] for _ in range(12)]
        hold.release()

    assert first == 503  # the topic's partitions were not known yet
    assert statuses[0] == 202
    assert statuses[-1] == 503
    assert len(broker.records("clicks")) == statuses.count(202)
