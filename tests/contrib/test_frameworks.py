"""The status page below a mount of each framework that the guide names, served by a real web server."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urljoin

import httpx
import pytest
from fastapi import FastAPI
from litestar import Litestar, Router
from litestar.handlers import asgi
from starlette.applications import Starlette
from starlette.routing import Mount

from aioproducer.contrib.asgi import ASGIApp, status_app
from aioproducer.testing import FakeBroker
from tests.conftest import opened
from tests.contrib.serving import served


def litestar(status: ASGIApp) -> Any:
    return Litestar([asgi("/kafka", is_mount=True, copy_scope=True)(status)])


def litestar_router(status: ASGIApp) -> Any:
    """Litestar copies the handlers of a router deeply."""
    kafka = asgi("/kafka", is_mount=True, copy_scope=True)(status)
    return Litestar([Router("/admin", route_handlers=[kafka])])


def starlette_mounts(status: ASGIApp) -> Any:
    return Starlette(routes=[Mount("/admin", routes=[Mount("/kafka", status)])])


def fastapi(status: ASGIApp) -> Any:
    app = FastAPI()
    app.mount("/kafka", status)
    return app


PLACES = [
    (litestar, "/kafka"),
    (litestar_router, "/admin/kafka"),
    (starlette_mounts, "/admin/kafka"),
    (fastapi, "/kafka"),
]


async def event_of(client: httpx.AsyncClient, url: str) -> Any:
    """The content of the first event of the stream."""
    async with client.stream("GET", url) as stream:
        assert stream.headers["content-type"] == "text/event-stream"
        async for line in stream.aiter_lines():
            if line.startswith("data: "):
                return json.loads(line.removeprefix("data: "))
    raise AssertionError("the stream ended without an event")


@pytest.mark.parametrize(("mounted", "place"), PLACES)
async def test_all_addresses_answer_below_the_mount(
    broker: FakeBroker, mounted: Callable[[ASGIApp], Any], place: str
) -> None:
    async with opened(broker, client_id="shop") as producer:
        await producer.send("orders", b"value")
        async with served(mounted(status_app(producer))) as server, httpx.AsyncClient(timeout=60) as client:
            at = f"{server}{place}"
            ready = await client.get(f"{at}/readyz")
            assert (ready.status_code, ready.json()["ready"]) == (200, True)
            (found,) = (await client.get(f"{at}/stats.json")).json()["producers"]
            assert (found["client_id"], found["totals"]["written"]) == ("shop", 1)
            metrics = (await client.get(f"{at}/metrics")).text
            assert 'aioproducer_record_send_total{client_id="shop"} 1.0\n' in metrics
            (seen,) = (await event_of(client, f"{at}/events"))["producers"]
            assert (seen["client_id"], seen["totals"]["written"]) == ("shop", 1)
            assert (await client.get(f"{at}/nothing")).status_code == 404


@pytest.mark.parametrize(("mounted", "place"), PLACES)
async def test_the_page_s_links_lead_below_the_mount(
    broker: FakeBroker, mounted: Callable[[ASGIApp], Any], place: str
) -> None:
    async with opened(broker, client_id="shop") as producer:
        await producer.send("orders", b"value")
        async with served(mounted(status_app(producer))) as server, httpx.AsyncClient(timeout=60) as client:
            page = await client.get(f"{server}{place}", follow_redirects=True)
            assert str(page.url) == f"{server}{place}/"
            assert page.text.startswith("<!doctype html>")
            links = set(re.findall(r'(?:href|src)="((?!data:|#)[^"]*)"', page.text))
            kinds = {link: await kind_of(client, urljoin(str(page.url), link)) for link in links}
            script = (await client.get(urljoin(str(page.url), "status.js"))).text
            (stream,) = re.findall(r'new EventSource\("([^"]*)"\)', script)
            (seen,) = (await event_of(client, urljoin(str(page.url), stream)))["producers"]

    assert seen["client_id"] == "shop"
    assert kinds == {
        "status.css": "text/css",
        "status.js": "text/javascript",
        "stats.json": "application/json",
        "metrics": "text/plain",
        "readyz": "application/json",
        "livez": "application/json",
    }


async def kind_of(client: httpx.AsyncClient, url: str) -> str:
    found = await client.get(url)
    assert found.status_code == 200, url
    kind: str = found.headers["content-type"]
    return kind.partition(";")[0]
