"""The status page: its addresses and headers, mounts, probes that turn red and green again, and its stream of events."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from html.parser import HTMLParser
from importlib.resources import files
from itertools import count
from typing import Any

import httpx
import pytest

from aioproducer import KafkaError, Producer, SyncProducer
from aioproducer.contrib import asgi
from aioproducer.contrib.asgi import ASGIApp, status_app
from aioproducer.contrib.watching import Watch
from aioproducer.runtime import lifetime
from aioproducer.testing import FakeBroker
from tests.conftest import QUICK, Clock, opened, turns, until


def client_of(app: ASGIApp) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop")


async def problems(client: httpx.AsyncClient) -> list[str]:
    """The problems that /readyz names; none if it is green."""
    found = await client.get("/readyz")
    names: list[str] = found.json()["producers"][0]["problems"]
    assert found.status_code == (503 if names else 200)
    return names


async def findings(client: httpx.AsyncClient) -> list[str]:
    found = (await client.get("/stats.json")).json()["producers"][0]["findings"]
    return [each["text"] for each in found]


async def probe(client: httpx.AsyncClient, sentence: str) -> None:
    """Probe until the diagnosis names this."""
    async with asyncio.timeout(30):
        while not any(re.search(sentence, text) for text in await findings(client)):
            await turns()


class Viewer:
    """A browser that has opened the stream of events: the messages that it got, and `leave` to disconnect it."""

    def __init__(self, app: ASGIApp, since: str = "", method: str = "GET") -> None:
        self.messages: list[dict[str, Any]] = []
        self._left = asyncio.Event()
        headers = [(b"last-event-id", since.encode())] if since else []
        scope = {"type": "http", "method": method, "path": "/events", "raw_path": b"/events", "headers": headers}
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.messages.append(message)

    def leave(self) -> None:
        self._left.set()

    @property
    def events(self) -> list[tuple[str, Any]]:
        """The id and the content of each event."""
        text = b"".join(message.get("body", b"") for message in self.messages).decode()
        return [(id_, json.loads(data)) for id_, data in re.findall(r"id: (.+)\ndata: (.+)\n\n", text)]


# -- addresses -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "kind", "beginning"),
    [
        ("/", "text/html; charset=utf-8", "<!doctype html>"),
        ("/status.css", "text/css; charset=utf-8", ":root"),
        ("/status.js", "text/javascript; charset=utf-8", '"use strict"'),
        ("/livez", "application/json", '{"alive":true'),
        ("/stats.json", "application/json", '{"producers":'),
        ("/metrics", "text/plain; version=", "# HELP aioproducer_"),
    ],
)
async def test_each_address_answers_before_while_and_after_the_producer_runs(
    broker: FakeBroker, path: str, kind: str, beginning: str
) -> None:
    producer = Producer(broker.bootstrap_servers, client_id="shop", **QUICK)
    async with client_of(status_app(producer)) as client:

        async def ask() -> None:
            found = await client.get(path)
            assert found.status_code == 200
            assert found.headers["content-type"].startswith(kind)
            assert found.text.startswith(beginning)
            head = await client.head(path)
            assert head.content == b""
            assert set(head.headers) == set(found.headers)

        await ask()
        async with producer:
            await producer.send("orders", b"value")
            await ask()
        await ask()


async def test_every_answer_forbids_what_the_page_does_not_need() -> None:
    async with client_of(status_app(Producer("kafka:9092"))) as client:
        for path in ("/", "/status.js", "/readyz", "/nothing"):
            headers = (await client.get(path)).headers
            policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
            assert policy == {
                "default-src": "'none'",
                "style-src": "'self'",
                "script-src": "'self'",
                "connect-src": "'self'",
                "img-src": "'self' data:",
                "frame-ancestors": "'none'",
                "base-uri": "'none'",
                "form-action": "'none'",
            }
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
            assert headers["cache-control"] == "no-store"


async def test_only_get_and_head_are_answered() -> None:
    async with client_of(status_app(Producer("kafka:9092"))) as client:
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            refused = await client.request(method, "/readyz")
            assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")
            assert (await client.request(method, "/nothing")).status_code == 404


async def test_without_prometheus_the_way_to_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    async with client_of(status_app(Producer("kafka:9092"))) as client:
        found = await client.get("/metrics")

    assert found.status_code == 501
    assert "pip install 'aioproducer[prometheus]'" in found.text


def test_producers_must_exist_and_differ() -> None:
    with pytest.raises(ValueError, match="at least one producer"):
        status_app()
    with pytest.raises(ValueError, match=r"same client_id \('shop', 'shop'\)"):
        status_app(Producer("kafka:9092", client_id="shop"), Producer("kafka:9092", client_id="shop"))


async def test_a_websocket_is_closed_and_a_lifespan_completed() -> None:
    app, sent = status_app(Producer("kafka:9092")), list[Any]()
    incoming = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

    async def receive() -> Any:
        return incoming.pop(0)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await app({"type": "lifespan"}, receive, send)
    await app({"type": "websocket", "path": "/events"}, receive, send)

    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete", "websocket.close"]


# -- mounts --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", ["fastapi", "starlette"])
async def test_it_can_be_mounted(framework: str) -> None:
    pytest.importorskip(framework, reason="needs pip install 'aioproducer[docs]'")
    if framework == "fastapi":
        from fastapi import FastAPI

        app: Any = FastAPI()
    else:
        from starlette.applications import Starlette

        app = Starlette()
    app.mount("/kafka", status_app(Producer("kafka:9092", client_id="shop")))

    async with client_of(app) as client:
        redirected = await client.get("/kafka")
        assert redirected.next_request is not None
        assert redirected.next_request.url.path == "/kafka/"
        assert (await client.get("/kafka/")).text.startswith("<!doctype html>")
        assert (await client.get("/kafka/livez")).json()["producers"] == [{"client_id": "shop", "alive": True}]
        assert (await client.get("/kafka/nothing")).status_code == 404


@pytest.mark.parametrize(
    ("scope", "location"),
    [
        ({"path": "/kafka", "root_path": "/kafka", "raw_path": b"/kafka"}, b"./kafka/"),
        ({"path": "/", "root_path": "", "raw_path": b"/admin/kafka?x=1"}, b"./kafka/"),  # a prefix was taken away
        ({"path": "/a:b", "root_path": "/a:b"}, b"./a%3Ab/"),
        ({"path": "", "root_path": "/kafka", "raw_path": b"/kafka/"}, None),
        ({"path": "/kafka/", "root_path": "/kafka"}, None),
        ({"path": "/", "root_path": "/proxied", "raw_path": b"/"}, None),
        ({"path": "/status.js/", "root_path": "", "raw_path": b"/kafka/status.js"}, None),  # as Litestar has it
        ({"path": "/status.js", "root_path": "/status"}, None),  # only the same beginning
    ],
)
async def test_the_page_is_at_an_address_with_a_slash(scope: Mapping[str, Any], location: bytes | None) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("there is no need to receive anything")

    await status_app(Producer("kafka:9092"))({"type": "http", "method": "GET", **scope}, receive, send)

    assert dict(sent[0]["headers"]).get(b"location") == location
    assert sent[0]["status"] == (200 if location is None else 307)


# -- probes --------------------------------------------------------------------------------------------------------------


async def test_a_stalled_broker_turns_readiness_red_and_green_again(broker: FakeBroker) -> None:
    clock = Clock()
    async with opened(broker, request_timeout_ms=60_000, delivery_timeout_ms=120_000) as producer:
        await producer.send("orders", b"value")
        async with client_of(status_app(producer)) as client:
            assert await problems(client) == []
            with broker.hold("Produce") as hold:
                delivery = await producer.enqueue("orders", b"value")
                await until(lambda: hold.waiting == 1)
                clock.advance(2.0)
                (problem,) = await problems(client)
                assert re.fullmatch(r"Broker 1 has not answered for [\d.]+ s: 1 request waits for it\.", problem)
                assert (await client.get("/livez")).status_code == 200, "a restart would lose the buffer"
            await delivery
            assert await problems(client) == []


async def test_a_full_buffer_turns_readiness_red_and_green_again(broker: FakeBroker) -> None:
    async with opened(broker, buffer_memory=40_000, batch_size=10_000) as producer:
        await producer.send("orders", b"value")
        async with client_of(status_app(producer)) as client:
            with broker.hold("Produce"):
                callers = [asyncio.ensure_future(producer.enqueue("orders", bytes(9_000))) for _ in range(10)]
                await until(lambda: producer.health().waiting_senders)
                await turns()
                count = producer.health().waiting_senders
                assert await problems(client) == [f"The buffer is full: {count} callers wait."]
            await asyncio.gather(*await asyncio.gather(*callers))
            assert await problems(client) == []


async def test_a_blocked_event_loop_is_named(broker: FakeBroker) -> None:
    async with opened(broker) as producer, client_of(status_app(producer)) as client:
        await producer.send("orders", b"value")
        await findings(client)
        with broker.hold("Produce"):  # the lag is measured while a record is on its way
            delivery = await producer.enqueue("orders", b"value")
            lag = producer.metrics()["event-loop-lag-max"]
            time.sleep(0.5 + lag / 1e3)  # noqa: ASYNC251 - the block that is measured
            await probe(client, r"Your event loop was blocked for (\d{3} ms|[\d.]+ s)")
        await delivery


async def test_a_producer_without_brokers_is_not_ready() -> None:
    async with opened("127.0.0.1:1", close_timeout_ms=0) as producer, client_of(status_app(producer)) as client:
        await until(lambda: producer.health().error)
        found = await client.get("/readyz")

    assert found.status_code == 503
    assert found.json()["producers"][0]["problems"][0].startswith("No broker has answered yet: Could not connect")


async def test_readiness_is_that_of_all_producers(broker: FakeBroker) -> None:
    idle = Producer(broker.bootstrap_servers, client_id="not started")
    async with opened(broker, client_id="shop") as producer, client_of(status_app(producer, idle)) as client:
        await producer.send("orders", b"value")
        found = await client.get("/readyz")

    assert found.status_code == 503
    assert [each["ready"] for each in found.json()["producers"]] == [True, False]


async def test_a_failed_producer_is_not_alive(broker: FakeBroker) -> None:
    options: dict[str, Any] = {"transactional_id": "shop"}
    async with opened(broker, **options) as producer, client_of(status_app(producer)) as client:
        await producer.init_transactions()
        async with opened(broker, **options) as other:
            await other.init_transactions()
            with pytest.raises(KafkaError):
                async with producer.transaction():
                    await producer.send("orders", b"value")
        found = await client.get("/livez")

    assert found.status_code == 503


async def test_the_numbers_are_those_of_the_window(broker: FakeBroker) -> None:
    async with opened(broker, client_id="shop") as producer, client_of(status_app(producer)) as client:
        await client.get("/stats.json")
        began = time.perf_counter()
        await until(lambda: time.perf_counter() - began > 0.6)  # a shorter window would be one of chance
        await producer.send_many("orders", [b"value"] * 100)
        (found,) = (await client.get("/stats.json")).json()["producers"]

    assert found["now"]["records_per_s"] * found["window_s"] == pytest.approx(100, rel=0.01)
    assert found["totals"]["written"] == found["metrics"]["record-send-total"] == 100
    assert found["now"]["latency_p50_ms"] > 0
    assert [each["topic"] for each in found["topics"]] == ["orders"]
    assert [(each["broker"], each["connected"]) for each in found["brokers"]] == [(1, True)]


async def test_a_producer_in_a_thread_is_shown_and_does_not_hold_up_the_page(broker: FakeBroker) -> None:
    blocked, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def block(delivery: object) -> None:
        loop.call_soon_threadsafe(blocked.set)
        go_on.wait()

    with SyncProducer(broker.bootstrap_servers, client_id="batch", **QUICK) as producer:
        async with client_of(status_app(producer)) as client:
            producer.send("orders", b"value")
            assert (await client.get("/readyz")).status_code == 200
            producer.enqueue("orders", b"value", on_delivery=block)
            await blocked.wait()
            (problem,) = await problems(client)
            assert re.fullmatch(r"The producer's thread has not responded for .+ m?s\.", problem)
            go_on.set()
            async with asyncio.timeout(30):
                while await problems(client):
                    pass


async def test_a_thread_that_does_not_respond_holds_one_thread_of_the_page(broker: FakeBroker) -> None:
    """The service's own threads are free, and a reading that comes late is not the present state."""
    loop, blocked, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def block(_: object) -> None:
        loop.call_soon_threadsafe(blocked.set)
        go_on.wait()

    def readers() -> int:
        return sum(thread.name == "aioproducer status" for thread in threading.enumerate())

    with SyncProducer(broker.bootstrap_servers, client_id="batch", **QUICK) as producer:
        app = status_app(producer)
        async with client_of(app) as client:
            producer.enqueue("orders", b"value", on_delivery=block)
            await blocked.wait()
            try:
                for _ in range(2):
                    assert (await client.get("/readyz")).status_code == 503
                assert readers() == 1
            finally:
                go_on.set()
            await until(lambda: readers() == 0)
            await turns()  # the thread's last act was to hand its reading over to the event loop
            producer.close()
            found = (await client.get("/readyz")).json()["producers"][0]
            assert found["status"] == "closed"


async def test_a_full_executor_of_the_service_is_no_silence_of_the_producer(broker: FakeBroker) -> None:
    loop, go_on = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    busy = loop.run_in_executor(None, go_on.wait)
    try:
        with SyncProducer(broker.bootstrap_servers, client_id="batch", **QUICK) as producer:
            producer.ready()
            async with client_of(status_app(producer)) as client:
                assert await problems(client) == []
    finally:
        go_on.set()
        await busy


async def test_a_reading_that_did_not_come_begins_no_window(broker: FakeBroker) -> None:
    """Its numbers are old, so those of the next window would be too high."""
    loop, blocked, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def block(_: object) -> None:
        loop.call_soon_threadsafe(blocked.set)
        go_on.wait()

    with SyncProducer(broker.bootstrap_servers, client_id="batch", **QUICK) as producer:
        producer.ready()
        watch = Watch([producer], partial(next, count(1.0, 3.0)))  # three seconds for each look at the clock
        (first,) = await watch.windows()
        producer.enqueue("orders", b"value", on_delivery=block)
        await blocked.wait()
        try:
            (silent,) = await watch.windows()
            assert silent.after.silent_s > 0
        finally:
            go_on.set()
        await until(lambda: all(each.name != "aioproducer status" for each in threading.enumerate()))
        (following,) = await watch.windows()

    assert following.before is not None
    assert following.before.time == first.after.time


async def test_a_scrape_ends_although_a_thread_does_not_respond(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asgi, "_PATIENCE_S", 0.01)
    loop, blocked, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def block(_: object) -> None:
        loop.call_soon_threadsafe(blocked.set)
        go_on.wait()

    with SyncProducer(broker.bootstrap_servers, client_id="batch", **QUICK) as producer:
        async with client_of(status_app(producer)) as client:
            producer.enqueue("orders", b"value", on_delivery=block)
            await blocked.wait()
            try:
                assert (await client.get("/metrics")).status_code == 503
            finally:
                go_on.set()
            async with asyncio.timeout(30):
                while (await client.get("/metrics")).status_code != 200:
                    pass


async def test_a_producer_of_before_a_fork_is_not_alive_after_it(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(broker) as producer, client_of(status_app(producer)) as client:
        await producer.ready()
        assert (await client.get("/livez")).status_code == 200
        with monkeypatch.context() as forked:
            forked.setattr(lifetime, "_forks", 1)
            assert (await client.get("/livez")).status_code == 503
            (problem,) = await problems(client)
            assert "fork" in problem


# -- events --------------------------------------------------------------------------------------------------------------


async def test_the_stream_shows_the_producers_and_ends_when_the_viewer_leaves(broker: FakeBroker) -> None:
    async with opened(broker, client_id="shop") as producer:
        await producer.send("orders", b"value")
        app, tasks = status_app(producer), asyncio.all_tasks()
        viewer = Viewer(app)
        await until(lambda: viewer.events)
        viewer.leave()
        await viewer.task

        assert asyncio.all_tasks() == tasks

    start, retry = viewer.messages[:2]
    assert dict(start["headers"])[b"content-type"] == b"text/event-stream"
    assert retry["body"] == b"retry: 1000\n\n"
    assert [each["client_id"] for each in viewer.events[0][1]["producers"]] == ["shop"]


async def test_a_cancelled_stream_leaves_no_task() -> None:
    app, tasks = status_app(Producer("kafka:9092")), asyncio.all_tasks()
    viewer = Viewer(app)
    await until(lambda: viewer.events)
    viewer.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await viewer.task

    assert asyncio.all_tasks() == tasks


async def test_a_stream_ends_after_a_while_and_the_next_one_has_only_newer_points(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioproducer.contrib.asgi._STREAM_S", 2.5)
    async with opened(broker) as producer:
        app = status_app(producer)
        first = Viewer(app)
        await until(lambda: len(first.events) == 3)
        id_, content = first.events[-1]
        known = [point for _, content in first.events for point in content["producers"][0]["points"]]
        second, whole = Viewer(app, since=id_), Viewer(app)
        await until(lambda: second.events and whole.events)
        await first.task  # which ends by itself, so that no server waits for it when it shuts down
        later = second.events[0][1]["producers"][0]["points"]
        everything = whole.events[0][1]["producers"][0]["points"]
        for viewer in (second, whole):
            viewer.leave()
            await viewer.task

    assert len(known) == 2, "a point is the difference of two readings"
    assert everything == known + later
    assert first.messages[-1] == {"type": "http.response.body", "body": b""}
    restarted = Viewer(status_app(producer), since=id_)
    await until(lambda: restarted.events)
    restarted.leave()
    await restarted.task
    assert restarted.events[0][1]["instance"] != content["instance"]


async def test_viewers_share_one_reading_a_second(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(broker) as producer:
        readings = 0
        health = producer.health

        def counted() -> Any:
            nonlocal readings
            readings += 1
            return health()

        monkeypatch.setattr(producer, "health", counted)
        app = status_app(producer)
        viewers = [Viewer(app) for _ in range(5)]
        await until(lambda: all(viewer.events for viewer in viewers))
        numbers = {id_ for viewer in viewers for id_, _ in viewer.events}
        assert readings == len(numbers)
        for viewer in viewers:
            viewer.leave()
            await viewer.task
        seen = readings
        await turns()
        assert readings == seen, "nothing runs if the page is not watched"


async def test_the_end_of_the_service_ends_the_streams() -> None:
    app = status_app(Producer("kafka:9092"))
    viewer = Viewer(app)
    await until(lambda: viewer.events)
    incoming = [{"type": "lifespan.shutdown"}]

    async def receive() -> Any:
        return incoming.pop(0)

    async def send(message: Any) -> None:
        pass

    await app({"type": "lifespan"}, receive, send)
    await viewer.task


async def test_the_head_of_the_stream_is_only_its_headers() -> None:
    viewer = Viewer(status_app(Producer("kafka:9092")), method="HEAD")
    await viewer.task

    assert [message["type"] for message in viewer.messages] == ["http.response.start", "http.response.body"]


# -- safety --------------------------------------------------------------------------------------------------------------


async def test_no_answer_has_a_secret() -> None:
    options: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "alice",
        "sasl_password": "open sesame",
    }
    async with opened("127.0.0.1:1", close_timeout_ms=0, **options) as producer:
        app = status_app(producer)
        viewer = Viewer(app)
        async with client_of(app) as client:
            await until(lambda: producer.health().error)
            for path in ("/", "/readyz", "/livez", "/stats.json", "/metrics"):
                text = (await client.get(path)).text
                assert "open sesame" not in text
                assert "alice" not in text
        await until(lambda: viewer.events)
        viewer.leave()
        await viewer.task

    assert "open sesame" not in json.dumps(viewer.events)
    assert "alice" not in json.dumps(viewer.events)


def test_the_script_puts_data_into_the_page_only_as_text() -> None:
    script = (files("aioproducer.contrib") / "status" / "status.js").read_text("utf-8")

    assert "textContent" in script
    assert not re.findall(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|Function\(|https?://(?!www\.w3\.org/2000/svg)",
        script,
    )


class _Tags(HTMLParser):
    """The tags of a page with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_the_page_is_one_for_everyone() -> None:
    tags = _Tags((files("aioproducer.contrib") / "status" / "page.html").read_text("utf-8")).found
    attributes = [(name, value) for _, found in tags for name, value in found.items()]

    assert ("html", {"lang": "en"}) in tags
    assert ("aria-live", "polite") in attributes
    assert ("role", "img") in attributes
    assert {tag for tag, _ in tags} >= {"main", "h1", "h2", "caption", "noscript"}
    assert all(found.get("scope") for tag, found in tags if tag == "th")
    assert not [name for name, _ in attributes if name == "style" or name.startswith("on")], "the policy forbids them"
    links = [value or "" for name, value in attributes if name in ("href", "src")]
    assert not [link for link in links if link.startswith(("/", "http"))], "links are relative, for any mount"
    styles = (files("aioproducer.contrib") / "status" / "status.css").read_text("utf-8")
    assert "prefers-color-scheme: dark" in styles
    assert "prefers-reduced-motion" in styles
    assert not re.findall(r"url\(|@import", styles)


def _luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_text_has_contrast_in_both_schemes() -> None:
    styles = (files("aioproducer.contrib") / "status" / "status.css").read_text("utf-8")
    for scheme in re.findall(r":root \{(.*?)\}", styles, re.DOTALL):
        colours = dict(re.findall(r"--([\w-]+): (#\w{6});", scheme))
        backs = [name for name in colours if name in ("page", "card") or name.endswith("-back")]
        pairs = [(text, back) for text in ("text", "quiet") for back in backs]
        pairs += [(level, back) for level in ("ok", "warning", "problem") for back in ("page", "card", f"{level}-back")]
        pairs += [("accent", back) for back in ("page", "card", "note-back")]
        for text, back in pairs:
            bright, dim = sorted((_luminance(colours[text]), _luminance(colours[back])), reverse=True)
            assert (bright + 0.05) / (dim + 0.05) >= 4.5, (text, back)
