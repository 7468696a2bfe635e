"""Helpers that start producers with a service or worker of each framework, whatever Kafka does, and close them with it."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from aiohttp import test_utils, web
from celery import signals  # type: ignore[import-untyped]
from django.conf import settings  # type: ignore[import-untyped]
from django.core.asgi import get_asgi_application  # type: ignore[import-untyped]
from django.http import HttpResponse  # type: ignore[import-untyped]
from django.test import override_settings  # type: ignore[import-untyped]
from django.urls import path  # type: ignore[import-untyped]
from django.utils.functional import empty  # type: ignore[import-untyped]
from fastapi import FastAPI
from litestar import Litestar, post
from litestar.di import NamedDependency
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aioproducer import AuthenticationError, ConfigError, Producer, SyncProducer
from aioproducer.contrib.lifespan import lifespan, with_producers
from aioproducer.contrib.lifespan.aiohttp import cleanup_ctx
from aioproducer.contrib.lifespan.celery import run_in_workers
from aioproducer.contrib.lifespan.gunicorn import worker_hooks
from aioproducer.contrib.lifespan.litestar import ProducerPlugin
from aioproducer.testing import FakeBroker, Logins, MockProducer
from tests.conftest import QUICK
from tests.contrib.serving import served

#: For a broker on which only the password "right" is.
WRONG_LOGIN: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "me",
    "sasl_password": "wrong",
}


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
        producer = Producer(broker.bootstrap_servers, **WRONG_LOGIN, **QUICK)
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
    with pytest.raises(ConfigError, match="at least one producer"):
        with_producers(no_application)
    with pytest.raises(ConfigError, match="at least one producer"):
        cleanup_ctx()
    for of_worker in (worker_hooks, run_in_workers):
        with pytest.raises(ConfigError, match="at least one producer"):
            of_worker()
        with pytest.raises(ConfigError, match="timeout"):
            of_worker(SyncProducer("localhost:9092"), warm_up_timeout=-1)


def composed(producer: Producer, inner: Any) -> Any:
    return lifespan(producer, inside=inner)


def composing(producer: Producer, inner: Any) -> Any:
    """A lifespan of the user's that enters both."""

    @asynccontextmanager
    async def span(app: Any) -> AsyncGenerator[Any, None]:
        async with lifespan(producer)(app), inner(app) as state:
            yield state

    return span


@pytest.mark.parametrize("compose", [composed, composing])
@pytest.mark.parametrize("framework", [FastAPI, Starlette])
async def test_it_composes_with_another_lifespan_of_the_service(
    broker: FakeBroker, framework: Callable[..., Any], compose: Callable[[Producer, Any], Any]
) -> None:
    producer = Producer(broker.bootstrap_servers, **QUICK)

    @asynccontextmanager
    async def inner(app: Any) -> AsyncGenerator[dict[str, object], None]:
        assert app is service
        await producer.send("orders", b"begin")
        yield {"greeting": "hello"}
        await producer.send("orders", b"end")

    async def greet(request: Request) -> Response:
        await producer.send("orders", b"request")
        return Response(request.state.greeting)

    service = framework(lifespan=compose(producer, inner))
    service.router.routes.append(Route("/greeting", greet))
    async with served(service) as server, httpx.AsyncClient(timeout=60) as client:
        assert (await client.get(f"{server}/greeting")).text == "hello"
    assert producer.health().status == "closed"
    assert [record.value for record in broker.records("orders")] == [b"begin", b"request", b"end"]


# -- Litestar ------------------------------------------------------------------------------------------------------------


async def test_a_litestar_plugin_injects_each_producer_and_surrounds_the_applications_lifespan(
    broker: FakeBroker,
) -> None:
    shop, audit = (Producer(broker.bootstrap_servers, client_id=name, **QUICK) for name in ("shop", "audit"))
    hidden = Producer(broker.bootstrap_servers, **QUICK)

    @post("/orders")
    async def order(producer: NamedDependency[Producer], audit: NamedDependency[Producer]) -> list[str]:
        await producer.send("orders", b"request")
        return [producer.client_id, audit.client_id]

    @asynccontextmanager
    async def inner(_: Litestar) -> AsyncGenerator[None, None]:
        await shop.send("orders", b"begin")
        yield
        await shop.send("orders", b"end")

    plugins = [
        ProducerPlugin(shop, warm_up=["orders"]),
        ProducerPlugin(audit, dependency="audit"),
        ProducerPlugin(hidden, dependency=None),
    ]
    app = Litestar([order], plugins=plugins, lifespan=[inner])
    async with served(app) as server, httpx.AsyncClient(timeout=60) as client:
        assert shop.health().ready
        assert audit.health().ready
        assert hidden.health().ready
        answer = await client.post(f"{server}/orders")
        assert answer.json() == ["shop", "audit"]
    assert [each.health().status for each in (shop, audit, hidden)] == ["closed"] * 3
    assert [record.value for record in broker.records("orders")] == [b"begin", b"request", b"end"]


def test_two_litestar_plugins_need_two_names() -> None:
    plugins = [ProducerPlugin(Producer("localhost:9092")) for _ in range(2)]
    with pytest.raises(ConfigError, match="has a dependency 'producer'"):
        Litestar([], plugins=plugins)


# -- aiohttp -------------------------------------------------------------------------------------------------------------


async def test_an_aiohttp_application_runs_it_around_later_contexts(broker: FakeBroker) -> None:
    producer = Producer(broker.bootstrap_servers, **QUICK)

    async def order(_: web.Request) -> web.Response:
        await producer.send("orders", b"request")
        return web.Response(status=201)

    async def inner(_: web.Application) -> AsyncGenerator[None, None]:
        assert producer.health().ready
        await producer.send("orders", b"begin")
        yield
        await producer.send("orders", b"end")

    app = web.Application()
    app.cleanup_ctx.append(cleanup_ctx(producer, warm_up=["orders"]))
    app.cleanup_ctx.append(inner)
    app.router.add_post("/orders", order)
    async with test_utils.TestClient(test_utils.TestServer(app)) as client:
        assert (await client.post("/orders")).status == 201
    assert producer.health().status == "closed"
    assert [record.value for record in broker.records("orders")] == [b"begin", b"request", b"end"]


async def test_refused_credentials_keep_an_aiohttp_application_from_starting() -> None:
    with FakeBroker(logins=Logins({"me": "right"})) as broker:
        producer = Producer(broker.bootstrap_servers, **WRONG_LOGIN, **QUICK)
        app = web.Application()
        app.cleanup_ctx.append(cleanup_ctx(producer))
        with pytest.raises(AuthenticationError):
            await test_utils.TestServer(app).start_server()
        assert producer.health().status == "closed"


# -- Django, and every other ASGI application ----------------------------------------------------------------------------


@pytest.fixture
def _django() -> Generator[None, None, None]:
    """Django has settings, which another test may configure again."""
    settings.configure(ALLOWED_HOSTS=["*"], LOGGING_CONFIG=None)
    yield
    settings._wrapped = empty


@pytest.mark.usefixtures("_django")
async def test_a_django_application_runs_with_its_producers(broker: FakeBroker) -> None:
    producer = Producer(broker.bootstrap_servers, **QUICK)

    async def order(request: Any) -> Any:
        return HttpResponse(b"%d" % (await producer.send("orders", request.body)).offset, status=201)

    with override_settings(ROOT_URLCONF=type("Urls", (), {"urlpatterns": [path("orders", order)]})):
        application = with_producers(get_asgi_application(), producer, warm_up=["orders"])
        async with served(application) as server, httpx.AsyncClient(timeout=60) as client:
            assert producer.health().ready
            answer = await client.post(f"{server}/orders", content=b"3 books")
            assert (answer.status_code, answer.text) == (201, "0")
            assert (await client.get(f"{server}/nothing")).status_code == 404
    assert producer.health().status == "closed"
    broker.assert_sent("orders", value=b"3 books", times=1)


async def no_application(*_: object) -> None:
    pytest.fail("the application was called")


class Server:
    """The part of a server that the ASGI lifespan sees."""

    def __init__(self, app: Any) -> None:
        self.received: asyncio.Queue[Any] = asyncio.Queue()
        self.sent: asyncio.Queue[Any] = asyncio.Queue()
        self.life = asyncio.ensure_future(app({"type": "lifespan"}, self.received.get, self.sent.put))

    async def ask(self, event: str) -> Any:
        await self.received.put({"type": f"lifespan.{event}"})
        async with asyncio.timeout(60):
            return await self.sent.get()


async def test_the_lifespan_protocol_starts_and_closes_the_producer(broker: FakeBroker) -> None:
    producer = Producer(broker.bootstrap_servers, **QUICK)
    server = Server(with_producers(no_application, producer))

    assert await server.ask("startup") == {"type": "lifespan.startup.complete"}
    assert producer.health().ready
    assert await server.ask("shutdown") == {"type": "lifespan.shutdown.complete"}
    assert producer.health().status == "closed"
    await server.life


async def test_every_other_connection_reaches_the_application_unchanged() -> None:
    seen: list[object] = []

    async def application(*arguments: object) -> None:
        seen.extend(arguments)

    async def receive() -> Any:
        raise AssertionError

    async def send(_: Any) -> None:
        raise AssertionError

    scope = {"type": "websocket"}
    await with_producers(application, Producer("localhost:9092"))(scope, receive, send)

    assert [each is given for each, given in zip(seen, (scope, receive, send), strict=True)] == [True] * 3


async def test_refused_credentials_are_reported_to_the_server() -> None:
    with FakeBroker(logins=Logins({"me": "right"})) as broker:
        producer = Producer(broker.bootstrap_servers, **WRONG_LOGIN, **QUICK)
        server = Server(with_producers(no_application, producer))

        answer = await server.ask("startup")
        assert answer["type"] == "lifespan.startup.failed"
        assert answer["message"].startswith("AuthenticationError: ")
        await server.life
        assert producer.health().status == "closed"


async def test_a_failure_at_the_end_is_reported_to_the_server(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = MockProducer()
    server = Server(with_producers(no_application, producer))
    await server.ask("startup")

    producer.fail("close", RuntimeError("no disk"))
    answer = await server.ask("shutdown")

    assert answer == {"type": "lifespan.shutdown.failed", "message": "RuntimeError: no disk"}
    await server.life


async def test_a_server_that_is_cancelled_closes_the_producer(broker: FakeBroker) -> None:
    producer = Producer(broker.bootstrap_servers, **QUICK)
    server = Server(with_producers(no_application, producer))
    await server.ask("startup")

    server.life.cancel()
    with pytest.raises(asyncio.CancelledError):
        await server.life
    assert producer.health().status == "closed"


# -- worker processes ----------------------------------------------------------------------------------------------------


def start_with_gunicorn(*producers: SyncProducer, **options: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    post_fork, worker_exit = worker_hooks(*producers, **options)
    return lambda: post_fork(None, None), lambda: worker_exit(None, None)


def start_with_celery(*producers: SyncProducer, **options: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    """With the arguments that Celery's prefork pool sends; what a receiver raises is in what the signal returns."""
    run_in_workers(*producers, **options)

    def start() -> None:
        for _, error in signals.worker_process_init.send(sender="worker"):
            if isinstance(error, Exception):
                raise error

    return start, lambda: signals.worker_process_shutdown.send(sender="worker", pid=1, exitcode=0)


@pytest.fixture
def _no_receivers() -> Generator[None, None, None]:
    """Celery's signals have no receiver of another test, and none is left."""
    watched = [signals.worker_process_init, signals.worker_process_shutdown, signals.worker_shutdown]
    before = [list(signal.receivers) for signal in watched]
    yield
    for signal, receivers in zip(watched, before, strict=True):
        signal.receivers[:] = receivers


workers = pytest.mark.parametrize("started", [start_with_gunicorn, start_with_celery])


@workers
@pytest.mark.usefixtures("_no_receivers")
def test_a_worker_starts_and_closes_its_producers(broker: FakeBroker, started: Callable[..., Any]) -> None:
    first, second = (SyncProducer(broker.bootstrap_servers, client_id=name, **QUICK) for name in ("one", "two"))
    start, close = started(first, second, warm_up=["orders"])
    assert first.health().status == "created"

    start()
    assert (first.health().ready, second.health().ready) == (True, True)
    assert broker.count("InitProducerId") == 2, "both are warmed up"
    first.send("orders", b"value")
    close()
    assert first.health().status == second.health().status == "closed"
    close()  # the parent process, or a worker that did not start


@workers
@pytest.mark.usefixtures("_no_receivers")
def test_a_worker_starts_without_kafka(started: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    with FakeBroker() as broker:
        broker.stop_node(1)
        first, second = (SyncProducer(broker.bootstrap_servers, client_id=name, **QUICK) for name in ("one", "two"))
        start, close = started(first, second, warm_up_timeout=0.05)
        with caplog.at_level(logging.WARNING, "aioproducer"):
            start()
        broker.start_node(1)
        second.send("orders", b"value")
        close()
    warnings = [each.message for each in caplog.records if "The service starts before" in each.message]
    assert [text[:6] for text in warnings] == ["[one] ", "[two] "]


@workers
@pytest.mark.usefixtures("_no_receivers")
def test_refused_credentials_are_raised_in_the_worker(started: Callable[..., Any]) -> None:
    with FakeBroker(logins=Logins({"me": "right"})) as broker:
        producer = SyncProducer(broker.bootstrap_servers, **WRONG_LOGIN, **QUICK)
        start, close = started(producer)
        with pytest.raises(AuthenticationError):
            start()
        close()
        assert producer.health().status == "closed"


@pytest.mark.parametrize("module", ["", ".asgi", ".aiohttp", ".celery", ".gunicorn"])
def test_importing_a_helper_imports_no_framework(module: str) -> None:
    frameworks = "{'aiohttp', 'asgiref', 'celery', 'django', 'fastapi', 'gunicorn', 'litestar', 'starlette'}"
    code = f"import sys, aioproducer.contrib.lifespan{module}; print(sorted({frameworks} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
