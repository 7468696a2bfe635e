"""``aioproducer top`` shows what the status page of a service shows."""

from __future__ import annotations

import asyncio
import io
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from rich.console import Console

from aioproducer.cli.main import main
from aioproducer.cli.top.screen import screen
from aioproducer.cli.top.view import lines, size
from aioproducer.contrib.asgi import status_app
from aioproducer.testing import FakeBroker
from tests.conftest import opened


@contextmanager
def serving(*answers: bytes) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A server with one answer after the other, the last one again and again; its URL, and the headers that it got."""
    left, seen = list(answers), list[dict[str, str]]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(dict(self.headers))
            if self.path != "/kafka/stats.json":
                self.send_error(404)
                return
            body = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/kafka", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def _stats() -> bytes:
    """The status of a producer that has sent three records, as the page has it."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    with FakeBroker(topics={"orders": 1}) as broker:
        async with opened(broker, client_id="shop") as producer:
            for _ in range(3):
                await producer.send("orders", b"value")
            scope = {"type": "http", "method": "GET", "path": "/stats.json", "headers": []}
            await status_app(producer)(scope, receive, send)
    return b"".join(message.get("body", b"") for message in sent)


@pytest.fixture(scope="module")
def stats() -> bytes:
    return asyncio.run(_stats())


def test_it_prints_the_status_once(stats: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(stats) as (url, seen):
        assert main(["top", url, "--once", "-H", "Authorization: Bearer secret"]) == 0

    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("shop: ready, at 127.0.0.1:")
    assert out[1].startswith("  OK: ")
    assert "in flight 0 requests, 0 records pending" in out[2]
    assert out[3].startswith("  broker 1: 0 in flight, oldest -; ")
    assert out[4].startswith("  topic orders: ")
    assert seen[0]["Authorization"] == "Bearer secret"


@pytest.mark.parametrize("end", ["", "/", "/stats.json", "?x=1"])
def test_the_address_may_end_in_any_way(stats: bytes, end: str) -> None:
    with serving(stats) as (url, _):
        assert main(["top", url + end, "--once"]) == 0


def test_a_producer_that_is_not_ready_is_a_bad_result(stats: bytes) -> None:
    found = json.loads(stats)
    found["producers"][0]["ready"] = False
    with serving(json.dumps(found).encode()) as (url, _):
        assert main(["top", url, "--once"]) == 1


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [(b"<html>", "is not the status"), (b"[]", "is not the status"), (b'{"ready": true}', "is not the status")],
)
def test_another_page_is_refused(answer: bytes, complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(answer) as (url, _):
        assert main(["top", url, "--once"]) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["ftp://localhost"], "must begin with http"),
        (["file:///etc/passwd"], "must begin with http"),
        (["http://127.0.0.1:1/kafka"], "cannot be read"),
        (["http://localhost", "-H", "nonsense"], "'NAME: VALUE'"),
        (["http://localhost", "-H", "a: b\nc: d"], "'NAME: VALUE'"),
    ],
)
def test_a_wrong_argument_is_explained(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["top", *arguments]) == 2
    assert complaint in capsys.readouterr().err


def test_a_missing_page_names_the_answer(stats: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(stats) as (url, _):
        assert main(["top", f"{url}/elsewhere"]) == 2
    assert "answered 404" in capsys.readouterr().err


def test_it_goes_on_when_the_service_is_away_and_ends_with_ctrl_c(
    stats: bytes, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", pause)
    with serving(stats, b"away", stats) as (url, _):
        assert main(["top", url, "--interval", "7"]) == 0

    out = capsys.readouterr().out
    assert pauses == [7, 7, 7]
    assert out.count("shop: ready") == 2
    assert out.count("is not the status") == 1


def test_the_screen_shows_the_same_numbers(stats: bytes) -> None:
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(screen(json.loads(stats), "The service is away."))

    text = console.export_text()
    assert "The service is away. This is the last status." in text
    for word in ("shop", "ready", "throughput", "orders", "in flight"):
        assert word in text


def test_findings_have_their_advice() -> None:
    found = {"level": "problem", "text": "Broker 2 has not answered.", "advice": "Look at it."}
    empty: dict[str, Any] = {
        "client_id": "shop",
        "servers": ["a:1"],
        "ready": False,
        "findings": [found],
        "now": dict.fromkeys(
            [
                *("records_per_s", "bytes_per_s", "buffer_share", "buffer_total_bytes", "requests_in_flight"),
                *("pending_records", "loop_lag_ms", "failed_per_s", "retried_per_s"),
            ],
            0.0,
        )
        | dict.fromkeys(["latency_p50_ms", "latency_p99_ms", "queue_p50_ms", "queue_p99_ms"])
        | {"waiting_callers": 14},
        "brokers": [],
        "topics": [],
    }

    assert lines({"producers": [empty]})[:2] == [
        "shop: not ready, at a:1",
        "  Problem: Broker 2 has not answered. Look at it.",
    ]
    assert "14 callers waiting" in lines({"producers": [empty]})[2]


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1,023 B"), (1024, "1.0 KiB"), (33_554_432, "32 MiB"), (2**60, "1,048,576 TiB")],
)
def test_sizes_have_units(count: int, text: str) -> None:
    assert size(count) == text
