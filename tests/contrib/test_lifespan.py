"""``lifespan()`` starts producers with a service of each framework, whatever Kafka does, and closes them with it."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from litestar import Litestar, post
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aioproducer import AuthenticationError, ConfigError, Producer
from aioproducer.contrib.lifespan import lifespan
from aioproducer.testing import FakeBroker, Logins
from tests.conftest import QUICK
from tests.contrib.serving import served


def fastapi(producer: Producer, span: Any) -> Any:
    app = FastAPI(lifespan=span)

    @app.post("/orders", status_code=201)
    async def order() -> int:
        return (await producer.send("orders", b"value")).partition

    return app


def starlette(producer: Producer, span: Any) -> Any:
    async def order(_: Request) -> Response:
        await producer.send("orders", b"value")
        return Response(status_code=201)

    return Starlette(routes=[Route("/orders", order, methods=["POST"])], lifespan=span)


def litestar(producer: Producer, span: Any) -> Any:
    @post("/orders")
    async def order() -> int:
        return (await producer.send("orders", b"value")).partition

    return Litestar([order], lifespan=[span])


@pytest.mark.parametrize("framework", [fastapi, starlette, litestar])
async def test_the_producer_lives_as_long_as_the_service(
    broker: FakeBroker, framework: Callable[[Producer, Any], Any]
) -> None:
    producer = Producer(broker.bootstrap_servers, **QUICK)
    app = framework(producer, lifespan(producer, warm_up=["orders"]))
    async with served(app) as server, httpx.AsyncClient(timeout=60) as client:
        assert producer.health().ready
        broker.forget_requests()
        assert (await client.post(f"{server}/orders")).status_code == 201
        assert broker.counts == {"Produce": 1}
    assert producer.health().status == "closed"
    assert len(broker.records("orders")) == 1


async def test_another_lifespan_runs_inside_and_its_state_is_passed_on(broker: FakeBroker) -> None:
    producer, seen = Producer(broker.bootstrap_servers, **QUICK), list[object]()

    @asynccontextmanager
    async def inside(app: object) -> AsyncGenerator[dict[str, object], None]:
        seen.append(app)
        await producer.send("orders", b"begin")
        yield {"greeting": "hello"}
        await producer.send("orders", b"end")

    async with lifespan(producer, inside=inside)("app") as state:
        assert state == {"greeting": "hello"}
    assert seen == ["app"]
    assert [record.value for record in broker.records("orders")] == [b"begin", b"end"]


async def test_the_service_starts_without_kafka(caplog: pytest.LogCaptureFixture) -> None:
    with FakeBroker() as broker:
        broker.stop_node(1)
        first, second = (Producer(broker.bootstrap_servers, client_id=name, **QUICK) for name in ("one", "two"))
        with caplog.at_level(logging.WARNING, "aioproducer"):
            async with lifespan(first, second, warm_up=["orders"], warm_up_timeout=0.05)(None):
                assert first.health().alive
                broker.start_node(1)
                await second.send("orders", b"value")
        warnings = [each.message for each in caplog.records if "The service starts before" in each.message]
        assert [text[:6] for text in warnings] == ["[one] ", "[two] "]
        assert first.health().status == second.health().status == "closed"


async def test_refused_credentials_keep_it_from_starting() -> None:
    with FakeBroker(logins=Logins({"me": "right"})) as broker:
        options: dict[str, Any] = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_username": "me",
            "sasl_password": "wrong",
        }
        producer = Producer(broker.bootstrap_servers, **options, **QUICK)
        with pytest.raises(AuthenticationError):
            async with lifespan(producer)(None):
                pytest.fail("the service has started")
        assert producer.health().status == "closed"


async def test_a_failure_inside_closes_the_producer(broker: FakeBroker) -> None:
    producer = Producer(broker.bootstrap_servers, **QUICK)

    @asynccontextmanager
    async def inside(app: object) -> AsyncGenerator[None, None]:
        if app is None:
            raise RuntimeError("no database")
        yield

    with pytest.raises(RuntimeError, match="no database"):
        async with lifespan(producer, inside=inside)(None):
            pytest.fail("the service has started")
    assert producer.health().status == "closed"


def test_invalid_arguments() -> None:
    with pytest.raises(ConfigError, match="at least one producer"):
        lifespan()
    with pytest.raises(ConfigError, match="timeout"):
        lifespan(Producer("localhost:9092"), warm_up_timeout=-1)
