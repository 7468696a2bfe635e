"""The status page of a service's producers, as an ASGI application: a live page, metrics and probes.

It needs nothing but aioproducer, only reads, and shows no option but the addresses of the bootstrap servers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import suppress
from importlib.resources import files
from typing import Any, Final, Self, TypeAlias
from urllib.parse import quote

from aioproducer.contrib.diagnosis import diagnose
from aioproducer.contrib.open_producers import AnyProducer
from aioproducer.contrib.reading import in_thread
from aioproducer.contrib.watching import EVERY_S, Json, Watch, is_ready

__all__ = ["status_app"]

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

_Headers: TypeAlias = list[tuple[bytes, bytes]]

#: The headers of every answer: nothing is loaded from elsewhere, framed, cached, or guessed.
_HEADERS: Final[_Headers] = [
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; "
        b"frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]
_JSON: Final = "application/json"
_TEXT: Final = "text/plain; charset=utf-8"
_FILES: Final[Mapping[str, tuple[str, str]]] = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/status.css": ("status.css", "text/css; charset=utf-8"),
    "/status.js": ("status.js", "text/javascript; charset=utf-8"),
}
#: A stream ends after so many seconds, and the browser opens the next one: a server that shuts down waits for open
#: responses, and an application cannot see that it does.
_STREAM_S: Final = 10.0
_RETRY_MS: Final = 1_000
#: The patience of a scrape with the threads of producers, in seconds.
_PATIENCE_S: Final = 5.0


def status_app(*producers: AnyProducer) -> ASGIApp:
    """An ASGI application with the status of these producers, for `Producer` and `SyncProducer`.

    Mount it in your service: FastAPI's and Starlette's ``app.mount("/kafka", status_app(producer))``. Its addresses are
    ``/`` (the page), ``/readyz``, ``/livez``, ``/stats.json``, ``/metrics`` (with ``aioproducer[prometheus]``), and
    ``/events`` for the page itself. It works before the producers are started and after they are closed, and keeps them
    alive. It has no login: protect it as you protect your metrics. Raises ValueError without a producer, or if two have
    the same ``client_id``.
    """
    names = [producer.client_id for producer in producers]
    if not names:
        raise ValueError("status_app() needs at least one producer: pass those of your service.")
    if len({*names}) < len(names):
        raise ValueError(
            f"Two of the producers have the same client_id ({', '.join(map(repr, names))}). Give each its own client_id, "
            "so that the page and its samples can distinguish them."
        )
    return _StatusApp(producers)


class _StatusApp:
    """The application; see `status_app`."""

    def __init__(self, producers: Iterable[AnyProducer]) -> None:
        self._producers = list(producers)
        self._watch = Watch(self._producers)
        folder = files("aioproducer.contrib") / "status"
        self._files = {path: ((folder / name).read_bytes(), kind) for path, (name, kind) in _FILES.items()}
        self._scrape: Callable[[], tuple[bytes, str]] | None = None
        self._scraping: asyncio.Future[tuple[bytes, str]] | None = None
        self._is_shut_down = False
        self._paths: Mapping[str, Callable[[Scope, Receive, Send], Awaitable[None]]] = {
            **dict.fromkeys(_FILES, self._file),
            "/readyz": self._readyz,
            "/livez": self._livez,
            "/stats.json": self._stats,
            "/metrics": self._metrics,
            "/events": self._events,
        }

    def __deepcopy__(self, memo: Mapping[int, object]) -> Self:
        """The application itself: Litestar copies the handlers of a router, and producers cannot be copied."""
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Cancellation: an open stream of events ends."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        elif scope["type"] == "http":
            await self._http(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            kind = (await receive())["type"]
            self._is_shut_down = kind == "lifespan.shutdown"
            await send({"type": f"{kind}.complete"})
            if self._is_shut_down:
                return

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = _path_below(scope)
        if path == "/" and (without_slash := _name_without_slash(scope)) is not None:
            location = b"./" + without_slash + b"/"
            await _respond(scope, send, 307, b"", _TEXT, [(b"location", location)])
            return
        handler = self._paths.get(path)
        if handler is None:
            await _respond(scope, send, 404, b"There is nothing at this address.\n", _TEXT)
        elif scope["method"] not in ("GET", "HEAD"):
            await _respond(scope, send, 405, b"Only GET and HEAD.\n", _TEXT, [(b"allow", b"GET, HEAD")])
        else:
            await handler(scope, receive, send)

    async def _file(self, scope: Scope, receive: Receive, send: Send) -> None:
        content, kind = self._files[_path_below(scope)]
        await _respond(scope, send, 200, content, kind)

    async def _readyz(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 200 if every producer is connected and has no problem, else 503."""
        found: list[dict[str, object]] = []
        for producer, window in zip(self._producers, await self._watch.windows(), strict=True):
            findings = diagnose(window.before, window.after)
            problems = [each.text for each in findings if each.level == "problem"]
            ready = is_ready(window)
            found.append(
                {"client_id": producer.client_id, **window.after.health.as_dict(), "ready": ready, "problems": problems}
            )
        ready = all(each["ready"] for each in found)
        await _respond_json(scope, send, 200 if ready else 503, {"ready": ready, "producers": found})

    async def _livez(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 503 if a producer has failed: only a restart of the process helps. Else 200."""
        found = [
            {"client_id": each.producer.client_id, "alive": (await each.health()).alive}
            for each in self._watch.producers
        ]
        alive = all(each["alive"] for each in found)
        await _respond_json(scope, send, 200 if alive else 503, {"alive": alive, "producers": found})

    async def _stats(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with what the page shows, and all metrics of the producers, the brokers, and the topics that it shows."""
        windows = await self._watch.windows()
        found = [
            {
                **(view := each.view(window)),
                "metrics": window.after.metrics,
                "metrics_by_topic": {name: window.after.by_topic[name] for name in _names(view)},
                "metrics_by_broker": window.after.by_broker,
            }
            for each, window in zip(self._watch.producers, windows, strict=True)
        ]
        await _respond_json(scope, send, 200, {"producers": found})

    async def _metrics(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer in Prometheus' format if its client is installed, else 501."""
        try:
            scrape = self._scrape = self._scrape or _scraper(self._producers)
        except ImportError:
            sentence = b"Install Prometheus' client for this address: pip install 'aioproducer[prometheus]'\n"
            await _respond(scope, send, 501, sentence, _TEXT)
            return
        # In a thread: the numbers of a SyncProducer come from another one, for which the event loop must not wait.
        scraping = self._scraping
        if scraping is None or scraping.done() or scraping.get_loop() is not asyncio.get_running_loop():
            scraping = self._scraping = in_thread(scrape)
        await asyncio.wait({scraping}, timeout=_PATIENCE_S)
        if not scraping.done():
            sentence = b"A producer's thread does not respond: a callback blocks it.\n"
            await _respond(scope, send, 503, sentence, _TEXT)
            return
        content, kind = scraping.result()
        await _respond(scope, send, 200, content, kind)

    async def _events(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with one event a second, until the client disconnects or the stream's time is over.

        Cancellation: it ends at once.
        """
        headers = [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no"), *_HEADERS]
        start: Message = {"type": "http.response.start", "status": 200, "headers": headers}
        if scope["method"] == "HEAD":
            await send(start)
            await send({"type": "http.response.body", "body": b""})
            return
        gone = asyncio.ensure_future(_disconnect(receive))
        try:
            with suppress(OSError):  # the client disconnected while something was being sent
                await send(start)
                await self._stream(scope, send, gone)
                await send({"type": "http.response.body", "body": b""})
        finally:
            gone.cancel()
            await asyncio.wait({gone})
            if not gone.cancelled():
                gone.exception()  # of the server's receive(): the client is gone either way

    async def _stream(self, scope: Scope, send: Send, gone: asyncio.Future[None]) -> None:
        since = _header(scope, b"last-event-id")
        ends = self._watch.clock() + _STREAM_S
        await send({"type": "http.response.body", "body": f"retry: {_RETRY_MS}\n\n".encode(), "more_body": True})
        while not gone.done() and not self._is_shut_down and self._watch.clock() < ends:
            await self._watch.sample()
            since, content = self._watch.event(since)
            event = f"id: {since}\ndata: {_encoded(content).decode()}\n\n".encode()
            await send({"type": "http.response.body", "body": event, "more_body": True})
            await asyncio.wait({gone}, timeout=EVERY_S)


async def _disconnect(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _names(view: Json) -> list[str]:
    return [topic["topic"] for topic in view["topics"]]


def _scraper(producers: Iterable[AnyProducer]) -> Callable[[], tuple[bytes, str]]:
    """Returns the samples of these producers, and their content type. Raises ImportError without Prometheus' client."""
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

    from aioproducer.contrib.prometheus import register

    registry = CollectorRegistry()
    for producer in producers:
        register(producer, registry)
    return lambda: (generate_latest(registry), CONTENT_TYPE_LATEST)


def _path_below(scope: Scope) -> str:
    """The path below the place where the application is mounted, without a slash at its end; ``/`` for the page.

    Starlette leaves the place in front of the path, Litestar takes it away and adds a slash.
    """
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    below = path.removeprefix(root)
    return (below if below[:1] in ("", "/") else path).rstrip("/") or "/"


def _name_without_slash(scope: Scope) -> bytes | None:
    """The last part of the requested path if it does not end with a slash, as the page's relative links need."""
    raw: bytes | None = scope.get("raw_path")
    requested = quote(scope["path"]).encode() if raw is None else raw.partition(b"?")[0]
    if requested.endswith(b"/") or not requested:
        return None
    return requested.rpartition(b"/")[2]


def _header(scope: Scope, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope.get("headers", ()) if key.lower() == name), "")


def _encoded(content: object) -> bytes:
    return json.dumps(content, separators=(",", ":"), default=str).encode()


async def _respond_json(scope: Scope, send: Send, status: int, content: object) -> None:
    await _respond(scope, send, status, _encoded(content), _JSON)


async def _respond(
    scope: Scope, send: Send, status: int, body: bytes, kind: str, more: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    headers = [
        (b"content-type", kind.encode()),
        (b"content-length", str(len(body)).encode()),
        *_HEADERS,
        *more,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
