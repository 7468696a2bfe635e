"""Reads files, pipes and terminals in blocks of lines; the event loop never waits for a pipe."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

__all__ = ["Splitter", "blocks", "in_thread", "whole"]

_T = TypeVar("_T")
_BLOCK: Final = 1 << 18


class Splitter:
    """Splits what it is fed into lines; ``rest`` is the line that has no end yet."""

    def __init__(self, delimiter: bytes) -> None:
        self._delimiter = delimiter
        self._buffer = bytearray()
        self._searched = 0

    @property
    def rest(self) -> bytes:
        """The last line, if it has no delimiter."""
        return bytes(self._buffer)

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that are complete by now."""
        buffer, delimiter = self._buffer, self._delimiter
        buffer += chunk
        end = buffer.rfind(delimiter, max(0, self._searched - len(delimiter) + 1))
        if end < 0:
            self._searched = len(buffer)
            return []
        lines = bytes(memoryview(buffer)[:end]).split(delimiter)
        del buffer[: end + len(delimiter)]
        self._searched = len(buffer)
        return lines


async def blocks(
    path: Path | None, delimiter: bytes, before_read: Callable[[], object] | None = None
) -> AsyncGenerator[list[bytes], None]:
    """The lines of a file (None: of standard input), some at a time; a pipe's as soon as they arrive.

    ``before_read`` is called before each wait for more. Raises OSError. Cancellation: a pipe's thread ends with its next
    line, or with the process.
    """
    splitter = Splitter(delimiter)
    async for chunk in _chunks(path, before_read):
        lines = splitter.feed(chunk)
        if lines:
            yield lines
    if splitter.rest:
        yield [splitter.rest]


async def whole(path: Path | None) -> AsyncGenerator[list[bytes], None]:
    """The whole content of a file (None: of standard input), as one block with one line."""
    content = bytearray()
    async for chunk in _chunks(path, None):
        content += chunk
    yield [bytes(content)]


async def in_thread(function: Callable[[], _T]) -> _T:
    """Call a function that may wait for a pipe for ever: in a thread that does not keep the process from ending."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[_T] = loop.create_future()

    def call() -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = function()
        except BaseException as raised:
            error = raised
        with suppress(RuntimeError):  # the event loop is closed, and with it the run
            loop.call_soon_threadsafe(_settle, outcome, result, error)

    threading.Thread(target=call, name="aioproducer input", daemon=True).start()
    return await outcome


def _settle(outcome: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if outcome.done():  # cancelled
        return
    if error is None:
        outcome.set_result(result)
    else:
        outcome.set_exception(error)


async def _chunks(path: Path | None, before_read: Callable[[], object] | None) -> AsyncGenerator[bytes, None]:
    if path is not None and stat.S_ISREG(os.stat(path).st_mode):
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(_BLOCK):
                yield chunk
        return
    read: Callable[[], Awaitable[bytes]] = _Pipe(path).read
    while True:
        if before_read is not None:
            before_read()
        chunk = await read()
        if not chunk:
            return
        yield chunk


class _Pipe:
    """Reads ahead a little, in a thread that does not keep the process from ending: it may wait for ever."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._fd = sys.stdin.fileno() if path is None else -1
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
        self._may_read = threading.Semaphore(2)
        threading.Thread(target=self._run, name="aioproducer input", daemon=True).start()

    async def read(self) -> bytes:
        chunk = await self._chunks.get()
        self._may_read.release()
        if isinstance(chunk, OSError):
            raise chunk
        return chunk

    def _run(self) -> None:
        fd = self._fd
        chunk: bytes | OSError = b"?"
        while chunk and not isinstance(chunk, OSError):
            self._may_read.acquire()
            try:
                if self._path is not None and fd < 0:
                    fd = os.open(self._path, os.O_RDONLY)
                chunk = os.read(fd, _BLOCK)
            except OSError as error:
                chunk = error
            with suppress(RuntimeError):  # the event loop is closed, and with it the run
                self._loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)
        if self._path is not None and fd >= 0:
            os.close(fd)
