"""Compresses the large batches of a Sender outside the event loop, without the GIL if possible.

lz4 and zstd run in native threads (``record/_compression_threads.pyx``). Other codecs, and installations without these
threads, use anyio's worker threads, in which Python calls the libraries. The bytes are the same.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from aioproducer._twin import use_native
from aioproducer.record import Codec, EncodedBatch, RecordBatchBuilder, c_level, encode_batch, find_c_functions
from aioproducer.runtime.log import ClientLog

if TYPE_CHECKING:
    from aioproducer.record._compression_threads import CompressionThreads

__all__ = ["Compressor"]

#: How much lower the priority of the native threads is than the event loop's (Linux: nice). They would take the processor
#: from it for milliseconds at a time, and everything waits for it.
_NICE: Final = 5


class Compressor:
    """Closes batches and compresses their records, several at a time.

    It belongs to the event loop in which it is created. Nothing is started before the first batch.
    """

    def __init__(self, level: int | None, log: ClientLog) -> None:
        self._log = log
        self._level = level
        self._processors = _processors()
        # Not the application's limiter: if its threads wait for their deliveries, there would be none left to compress in.
        # More threads than processors, because each of them sometimes waits for the GIL, for milliseconds.
        self._workers = anyio.CapacityLimiter(max(4, self._processors))
        self._has_native = use_native("aioproducer.record._compression_threads")
        #: The threads of each codec that had a batch; None if native threads cannot compress with it.
        self._native: dict[Codec, _NativeThreads | None] = {}

    async def encode(self, builder: RecordBatchBuilder, codec: Codec) -> EncodedBatch:
        """The batch, closed and compressed with ``codec``; raises what `encode_batch` raises.

        Cancellation: ends at once; the result of a running compression is dropped.
        """
        native = self._native[codec] if codec in self._native else self._start(codec)
        compressed = None if native is None else await native.compress(bytes(builder.close()))
        if compressed is not None:
            return encode_batch(builder, codec, compressed=compressed)
        try:
            return await anyio.to_thread.run_sync(encode_batch, builder, codec, self._level, limiter=self._workers)
        except RuntimeError:
            # The system refuses another thread (ulimit -u, or a container's limit), which must not end the producer: it can
            # still send. The event loop compresses the batch. An error of the encoding itself is raised again.
            return encode_batch(builder, codec, self._level)

    def close(self) -> None:
        """End the threads; all callers of `encode` must have been cancelled."""
        started, self._native, self._has_native = self._native, {}, False
        for native in started.values():
            if native is not None:
                native.close()

    def _start(self, codec: Codec) -> _NativeThreads | None:
        native: _NativeThreads | None = None
        functions = find_c_functions(codec) if self._has_native else None
        if functions is not None:
            try:
                native = _NativeThreads(functions, c_level(codec, self._level), self._processors)
            except (OSError, NotImplementedError) as error:  # no descriptors left, or the loop cannot watch a pipe
                self._log.debug(
                    "Native compression threads could not start (%r); batches are compressed in Python threads.", error
                )
        self._native[codec] = native
        return native


class _NativeThreads:
    """Native threads, and the event loop that they notify."""

    def __init__(self, functions: dict[str, int], level: int, most: int) -> None:
        from aioproducer.record._compression_threads import CompressionThreads

        self._loop = asyncio.get_running_loop()
        nice = _NICE if _may_be_nice() else 0
        self._threads: CompressionThreads[asyncio.Future[bytes | None]] = CompressionThreads(
            functions, level, most, nice
        )
        self._loop.add_reader(self._threads.fileno(), self._take)

    async def compress(self, data: bytes) -> bytes | None:
        """None if native threads cannot do it."""
        future: asyncio.Future[bytes | None] = self._loop.create_future()
        try:
            self._threads.submit(data, future)
        except RuntimeError:  # the system refuses another thread
            return None
        return await future

    def _take(self) -> None:
        for future, compressed in self._threads.take_done():
            if not future.done():  # it may have been cancelled
                future.set_result(compressed)

    def close(self) -> None:
        self._loop.remove_reader(self._threads.fileno())
        self._threads.close()


def _processors() -> int:
    """The number of processors that this process may use, if the system reports it."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def _may_be_nice() -> bool:
    """Whether a lower priority may be requested: a filter of system calls may kill a process that does so."""
    try:
        with open("/proc/self/status") as status:  # pathlib would take 2 ms of each import
            return "Seccomp:\t0\n" in status.read()
    except OSError:
        return False
