"""A schema registry for tests: Confluent's API as far as the sink uses it, in memory, behind http.server."""

from __future__ import annotations

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import unquote


class Registry:
    """Gives ids from 100 on; one with a ``login`` wants it. ``requests`` are the paths that were asked for."""

    def __init__(self, login: str | None = None, compatible: bool = True) -> None:
        self.login = login
        self.is_compatible = compatible
        self.schemas: dict[int, str] = {}
        self.subjects: dict[str, list[int]] = {}
        self.ids_of: dict[str, int] = {}  # what a subject's next schema is known by there
        self.requests: list[str] = []
        self.status: int | None = None  # of every answer
        self.collisions = 0  # so many registrations happen at the moment of another client's
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        cast("Any", self._server).registry = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        """Without a login."""
        return f"http://{self.address}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, path: str, login: str | None, body: Any) -> tuple[int, Any]:
        """Status and content for a POST."""
        self.requests.append(path)
        if self.status is not None:
            return self.status, {"error_code": self.status, "message": "As was asked for"}
        if self.collisions:
            self.collisions -= 1
            return 409, {"error_code": 409, "message": "An artifact with ID 'orders-value' already exists"}
        if self.login is not None and login != self.login:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        match path.strip("/").split("/"):
            case ["subjects", subject, "versions"]:
                return self._register(unquote(subject), body["schema"])
            case ["subjects", subject]:
                return self._look_up(unquote(subject), body["schema"])
            case _:
                return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _register(self, subject: str, schema: str) -> tuple[int, Any]:
        known = self.subjects.setdefault(subject, [])
        found = self.ids_of.get(subject, next((each for each, text in self.schemas.items() if text == schema), None))
        if known and found not in known and not self.is_compatible:
            return 409, {"error_code": 409, "message": "Schema being registered is incompatible with an earlier schema"}
        if found is None:
            found = 100 + len(self.schemas)
            self.schemas[found] = schema
        if found not in known:
            known.append(found)
        return 200, {"id": found}

    def _look_up(self, subject: str, schema: str) -> tuple[int, Any]:
        if subject not in self.subjects:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        for version, each in enumerate(self.subjects[subject], 1):
            if self.schemas[each] == schema:
                return 200, {"subject": subject, "version": version, "id": each, "schema": schema}
        return 404, {"error_code": 40403, "message": "Schema not found"}


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        registry: Registry = cast("Any", self.server).registry
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        kind, _, given = self.headers.get("Authorization", "").partition(" ")
        login = base64.b64decode(given).decode() if kind == "Basic" else None
        status, content = registry.answer(self.path, login, body)
        sent = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Not on standard error."""
