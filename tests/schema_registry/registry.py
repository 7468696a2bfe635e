"""A schema registry in memory behind http.server, written from the specification of Confluent's REST API."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, cast
from urllib.parse import parse_qs, unquote, urlsplit

__all__ = ["DROP", "Asked", "Registry"]

#: Instead of a status: the connection is closed without a response.
DROP: Final = 0

_TYPES: Final = frozenset({"AVRO", "JSON", "PROTOBUF"})
_ERRORS: Final = {
    40101: "Unauthorized",
    40401: "Subject not found.",
    40402: "Version not found.",
    40403: "Schema not found",
    409: "Schema being registered is incompatible with an earlier schema",
    42201: "Invalid schema",
}

Reply: TypeAlias = tuple[int, Any]
_Schema: TypeAlias = tuple[str, str, str, str]


def _error(code: int) -> Reply:
    return int(str(code)[:3]), {"error_code": code, "message": _ERRORS[code]}


@dataclass(frozen=True)
class Asked:
    """A request that arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any = None


@dataclass
class Registry:
    """Gives ids from 100 on. ``login`` is the required Authorization header; ``failures`` are the next statuses.

    Their message is ``failure``.
    """

    login: str | None = None
    is_compatible: bool = True
    schemas: dict[int, _Schema] = field(default_factory=dict[int, _Schema])
    subjects: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    rule_sets: dict[int, Any] = field(default_factory=dict[int, Any])
    failures: list[int] = field(default_factory=list[int])
    failure: str = "Failing as requested"
    asked: list[Asked] = field(default_factory=list[Asked])

    def __post_init__(self) -> None:
        self.gate = threading.Event()  # no response before it is set
        self.gate.set()
        self.arrived = threading.Semaphore(0)  # released for each request
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        cast("Any", self._server).registry = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        """The URL, without a login."""
        return f"http://{self.address}"

    @property
    def paths(self) -> list[str]:
        """The method and path of each request."""
        return [f"{asked.method} {asked.path}" for asked in self.asked]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    async def arrival(self) -> None:
        """Wait for the next request."""
        assert await asyncio.to_thread(self.arrived.acquire, timeout=10), "no request arrived"

    def reply(self, asked: Asked) -> Reply:
        """Status and content."""
        if self.failures:
            status = self.failures.pop(0)
            return status, {"error_code": status, "message": self.failure}
        if self.login is not None and asked.headers.get("authorization") != self.login:
            return _error(40101)
        match asked.method, *map(unquote, asked.path.strip("/").split("/")):
            case ["POST", "subjects", subject, "versions"]:
                return self._register(subject, self._read(asked))
            case ["POST", "subjects", subject]:
                return self._look_up(subject, self._read(asked))
            case ["GET", "subjects", subject, "versions", version]:
                return self._version(subject, version)
            case ["GET", "schemas", "ids", number]:
                return self._by_id(int(number))
            case _:
                return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _read(self, asked: Asked) -> _Schema | None:
        kind = asked.body.get("schemaType", "AVRO")
        text = asked.body["schema"]
        if kind not in _TYPES or "invalid" in text:
            return None
        if asked.query.get("normalize", "").lower() == "true" and kind != "PROTOBUF":
            text = json.dumps(json.loads(text), sort_keys=True)
        references = sorted(asked.body.get("references") or (), key=lambda each: cast("str", each["name"]))
        return text, kind, json.dumps(references, sort_keys=True), json.dumps(asked.body.get("ruleSet"))

    def _register(self, subject: str, schema: _Schema | None) -> Reply:
        if schema is None:
            return _error(42201)
        versions = self.subjects.setdefault(subject, [])
        found = next((number for number, each in self.schemas.items() if each == schema), None)
        if versions and found not in versions and not self.is_compatible:
            return _error(409)
        if found is None:
            found = 100 + len(self.schemas)
            self.schemas[found] = schema
        if found not in versions:
            versions.append(found)
        return 200, {"id": found}

    def _look_up(self, subject: str, schema: _Schema | None) -> Reply:
        if subject not in self.subjects:
            return _error(40401)
        for version, number in enumerate(self.subjects[subject], 1):
            if self.schemas[number] == schema:
                return 200, {"subject": subject, "version": version, **self._shown(number), "id": number}
        return _error(40403)

    def _version(self, subject: str, version: str) -> Reply:
        if subject not in self.subjects:
            return _error(40401)
        numbers = self.subjects[subject]
        wanted = len(numbers) if version == "latest" else int(version)
        if not 0 < wanted <= len(numbers):
            return _error(40402)
        number = numbers[wanted - 1]
        return 200, {"subject": subject, "version": wanted, **self._shown(number), "id": number}

    def _by_id(self, number: int) -> Reply:
        return (200, self._shown(number)) if number in self.schemas else _error(40403)

    def _shown(self, number: int) -> dict[str, Any]:
        text, kind, references, _ = self.schemas[number]
        shown: dict[str, Any] = {"schema": text}
        if kind != "AVRO":
            shown["schemaType"] = kind
        if references != "[]":
            shown["references"] = json.loads(references)
        if number in self.rule_sets:
            shown["ruleSet"] = self.rule_sets[number]
        return shown


def basic(user: str, password: str) -> str:
    """The Authorization header of a user."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._respond(None)

    def do_POST(self) -> None:
        self._respond(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _respond(self, body: Any) -> None:
        registry: Registry = cast("Any", self.server).registry
        parts = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.command, parts.path, query, headers, body)
        registry.asked.append(asked)
        registry.arrived.release()
        registry.gate.wait()
        status, content = registry.reply(asked)
        if status == DROP:
            return
        sent = json.dumps(content).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)
        except ConnectionError:  # the client was cancelled
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Not on standard error."""
