"""The status page in a browser, while its service is under load."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from aioproducer import Producer
from aioproducer.contrib.asgi import status_app
from aioproducer.testing import FakeBroker
from tests.conftest import opened
from tests.contrib.browser import Page, opened_page
from tests.contrib.serving import served

pytestmark = pytest.mark.slow

COUNT = 1_234
#: The pairs of a name and a value below the tables.
TOTALS = """Object.fromEntries([...document.querySelectorAll(".totals > div")].map(
    pair => [pair.querySelector("dt").innerText, pair.querySelector("dd").innerText]))"""


def service(producer: Producer) -> Starlette:
    async def order(request: Request) -> Response:
        await producer.send("orders", await request.body())
        return Response(status_code=204)

    return Starlette(routes=[Route("/orders", order, methods=["POST"]), Mount("/kafka", status_app(producer))])


async def load(server: str, count: int) -> None:
    """Send so many records through the service, twenty at a time."""
    async with httpx.AsyncClient(timeout=60) as client:

        async def requests(numbers: range) -> None:
            for number in numbers:
                answer = await client.post(f"{server}/orders", content=b"%d" % number)
                assert answer.status_code == 204

        await asyncio.gather(*(requests(range(start, count, 20)) for start in range(20)))


@asynccontextmanager
async def shown(broker: FakeBroker, folder: Path, **options: Any) -> AsyncGenerator[tuple[str, Page], None]:
    """The address of a service, and its status page in a browser, which shows that the producer is ready."""
    async with (
        opened(broker, **{"client_id": "shop", **options}) as producer,
        served(service(producer)) as server,
        opened_page(folder / "browser", folder / "log") as page,
    ):
        await producer.ready()
        await page.ask("Page.navigate", url=f"{server}/kafka/")
        await page.evaluate_until("document.querySelector('.badge')?.innerText === 'ready'")
        yield server, page
        assert page.complaints == []
        assert {url.partition("/kafka/")[0] for url in page.requested} <= {server, "data:,"}
        assert f"{server}/kafka/events" in page.requested, "the requests are seen"


async def test_the_page_shows_exactly_the_records_of_the_load(broker: FakeBroker, tmp_path: Path) -> None:
    async with shown(broker, tmp_path) as (server, page):
        assert (await page.evaluate(TOTALS))["Written since the start"] == "0 records"
        await load(server, COUNT)
        await page.evaluate_until("document.body.innerText.includes('1,234 records')")
        assert await page.evaluate(TOTALS) == {
            "Written since the start": "1,234 records",
            "Not written": "0 records",
            "May be written or not": "0 records",
            "Retried": "0 records",
        }
        assert await page.evaluate("document.querySelector('#link').innerText") == "Live"

    assert len(broker.records("orders")) == COUNT


async def test_the_colours_follow_the_scheme_of_the_reader(broker: FakeBroker, tmp_path: Path) -> None:
    async with shown(broker, tmp_path) as (_, page):
        brightness: list[float] = []
        for scheme in ("light", "dark"):
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            await page.ask("Emulation.setEmulatedMedia", features=features)
            colours = await page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
            brightness.append(sum(colours[:3]))
        light, dark = brightness
        assert light > 3 * 200
        assert dark < 3 * 60


async def test_the_page_is_no_wider_than_a_phone(broker: FakeBroker, tmp_path: Path) -> None:
    client_id = "shop-of-the-north-" * 6
    async with shown(broker, tmp_path, client_id=client_id) as (server, page):
        await page.ask("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=2, mobile=True)
        await load(server, 20)
        await page.evaluate_until("document.querySelector('.topics th[scope=row]')?.innerText === 'orders'")
        assert await page.evaluate("[document.documentElement.scrollWidth, innerWidth]") == [390, 390]
