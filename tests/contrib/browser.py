"""Drives a headless Chromium through the pipes of its DevTools protocol, without a further package."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Page", "opened_page"]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
)
#: Chromium reads commands from file descriptor 3 and writes to 4.
_WITH_PIPES = 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null'
#: The patience with an answer of the browser, on the busiest machine.
_PATIENCE_S = 60.0


def _program() -> str:
    """The path of the browser, or skips the test."""
    named = os.environ.get("AIOPRODUCER_BROWSER")
    program = shutil.which(named) if named else next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None and named:
        pytest.fail(f"AIOPRODUCER_BROWSER={named!r} is not a program.", pytrace=False)
    if program is None:
        pytest.skip("Optional: needs Chromium or Chrome in PATH, or its path in AIOPRODUCER_BROWSER.")
    return program


class Page:
    """One page of the browser: what it shows, asks for and complains about."""

    def __init__(self, commands: asyncio.StreamWriter, answers: asyncio.StreamReader) -> None:
        self._commands = commands
        self._reader = answers
        self._numbers = count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._session: dict[str, str] = {}
        self.requested: list[str] = []
        self.complaints: list[str] = []

    async def open(self) -> None:
        """Attach to an empty page, and listen to all its events."""
        target = await self.ask("Target.createTarget", url="about:blank")
        attached = await self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Log", "Network", "Page", "Runtime"):
            await self.ask(f"{domain}.enable")

    async def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command. Raises AssertionError if the browser refuses it."""
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        command = {"id": number, "method": method, "params": parameters, **self._session}
        self._commands.write(json.dumps(command).encode() + b"\0")
        async with asyncio.timeout(_PATIENCE_S):
            answer = await self._answers[number]
        assert "error" not in answer, (method, answer)
        result: dict[str, Any] = answer["result"]
        return result

    async def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        found = await self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def evaluate_until(self, expression: str) -> None:
        """Evaluate the expression until it is true."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                while not await self.evaluate(expression):  # noqa: ASYNC110 - the page sets no event
                    await asyncio.sleep(0.05)
        except TimeoutError:
            text = await self.evaluate("document.body.innerText")
            raise AssertionError(f"{expression} did not become true; the page shows:\n{text}") from None

    async def listen(self) -> None:
        """Read answers and events until the browser ends."""
        with suppress(asyncio.IncompleteReadError):
            while True:
                self._hear(json.loads((await self._reader.readuntil(b"\0"))[:-1]))

    def _hear(self, message: dict[str, Any]) -> None:
        if "id" in message:
            answer = self._answers.pop(message["id"])
            if not answer.done():  # nothing waits any more
                answer.set_result(message)
            return
        method, content = message["method"], message["params"]
        if method == "Network.requestWillBeSent":
            self.requested.append(content["request"]["url"])
        elif method == "Runtime.exceptionThrown" or (
            (method == "Log.entryAdded" and content["entry"]["level"] in ("warning", "error"))
            or (method == "Runtime.consoleAPICalled" and content["type"] in ("warning", "error", "assert"))
        ):
            self.complaints.append(json.dumps(content))


@asynccontextmanager
async def opened_page(folder: Path, log_file: Path) -> AsyncGenerator[Page, None]:
    """An empty page of a browser, with an empty folder for its files. Skips the test if there is no browser."""
    command = [_program(), *_OPTIONS, f"--user-data-dir={folder}", "about:blank"]
    pipe = asyncio.subprocess.PIPE
    with log_file.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", _WITH_PIPES, "sh", *command, stdin=pipe, stdout=pipe, stderr=log, limit=2**26
        )
    assert process.stdin is not None
    assert process.stdout is not None
    page = Page(process.stdin, process.stdout)
    listening = asyncio.ensure_future(page.listen())
    try:
        await page.open()
        yield page
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await listening
