"""Reads files, pipes and terminals in blocks of lines; the event loop never waits for a pipe."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import BinaryIO, Final, Protocol

__all__ = ["Splitter", "blocks"]

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


class _Reader(Protocol):
    async def __call__(self) -> bytes: ...


async def blocks(
    file: BinaryIO, delimiter: bytes, before_read: Callable[[], object] | None = None
) -> AsyncGenerator[list[bytes], None]:
    """The lines of a file, some at a time; a pipe's as soon as they arrive.

    ``before_read`` is called before each wait for more. Cancellation: a pipe's thread ends with its next line, or with the
    process.
    """
    splitter = Splitter(delimiter)
    read = _reader(file)
    while True:
        if before_read is not None:
            before_read()
        chunk = await read()
        if not chunk:
            break
        lines = splitter.feed(chunk)
        if lines:
            yield lines
    if splitter.rest:
        yield [splitter.rest]


def _reader(file: BinaryIO) -> _Reader:
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):

        async def read() -> bytes:
            return file.read(_BLOCK)

        return read
    return _Pipe(file).read


class _Pipe:
    """Reads ahead a little, in a thread that does not keep the process from ending: a read may wait for ever."""

    def __init__(self, file: BinaryIO) -> None:
        self._fd = file.fileno()
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
        chunk: bytes | OSError = b"?"
        while chunk and not isinstance(chunk, OSError):
            self._may_read.acquire()
            try:
                chunk = os.read(self._fd, _BLOCK)
            except OSError as error:
                chunk = error
            with suppress(RuntimeError):  # the event loop is closed, and with it the run
                self._loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)
