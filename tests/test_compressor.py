"""Compression beside the event loop: the same bytes as in Python, without the GIL, and nothing left behind."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import importlib
import os
import select
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio.to_thread
import pytest

from aioproducer._twin import PURE, use_native
from aioproducer.engine.compressor import Compressor
from aioproducer.record import Codec, RecordBatchBuilder, c_level, compress, decompress, encode_batch, find_c_functions
from aioproducer.runtime.log import ClientLog
from aioproducer.testing import FakeBroker
from tests.conftest import opened, until
from tests.needs import not_here

LEVELS = [
    *((Codec.LZ4, level) for level in (None, 1, 3, 9, 12, 17)),
    *((Codec.ZSTD, level) for level in (None, -5, 1, 3, 19)),
]
TEXT = b'{"flight": "UA1545", "origin": "EWR", "dest": "IAH", "delay": 2}\n'


def builder_of(records: int) -> RecordBatchBuilder:
    builder = RecordBatchBuilder()
    for number in range(records):
        builder.append(1_700_000_000_000 + number, b"%d" % number, b"%d %s" % (number, TEXT * 3))
    return builder


def threads_there() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("aioproducer compression")]


def descriptors() -> int:
    return len(os.listdir("/dev/fd"))


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    yield
    wait_until(lambda: not threads_there())


@pytest.fixture
def native() -> None:
    if PURE:
        pytest.skip("there is no native code in pure Python")
    if not use_native("aioproducer.record._compression_threads"):
        not_here("the native extension was not built here")


@contextmanager
def compressor(level: int | None = None) -> Iterator[Compressor]:
    made = Compressor(level, ClientLog("test"))
    try:
        yield made
    finally:
        made.close()


@contextmanager
def native_threads(
    codec: Codec, most: int = 2, level: int | None = None, *, nice: int = 0, **functions: int
) -> Iterator[Any]:
    """The threads by themselves, with these functions instead of their own."""
    from aioproducer.record._compression_threads import CompressionThreads

    found = find_c_functions(codec)
    assert found is not None
    threads: CompressionThreads[object] = CompressionThreads(found | functions, c_level(codec, level), most, nice)
    try:
        yield threads
    finally:
        threads.close()


def wait_until(condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.001)


def calls(threads: Any, timeout: float = 30) -> bool:
    return bool(select.select([threads], [], [], timeout)[0])


def take(threads: Any, count: int) -> list[tuple[Any, bytes | None]]:
    taken: list[tuple[Any, bytes | None]] = []
    while len(taken) < count:
        assert calls(threads)
        taken += threads.take_done()
    return taken


# -- what comes out ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("codec", "level"), [*LEVELS, (Codec.GZIP, None), (Codec.SNAPPY, None)])
@pytest.mark.parametrize("records", [1, 50, 8000])
async def test_the_bytes_are_those_that_python_makes(codec: Codec, level: int | None, records: int) -> None:
    with compressor(level) as made:
        batch = await made.encode(builder_of(records), codec)

    expected = encode_batch(builder_of(records), codec, level)
    assert batch.pieces == expected.pieces
    assert (batch.size, batch.uncompressed_size, batch.codec) == (expected.size, expected.uncompressed_size, codec)
    assert batch.read_records() == expected.read_records()


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("data", [b"", b"x", os.urandom(300_000), TEXT * 100_000], ids=["none", "one", "noise", "text"])
def test_anything_comes_back(codec: Codec, data: bytes) -> None:
    with native_threads(codec) as threads:
        threads.submit(data, "token")
        [(token, compressed)] = take(threads, 1)

    assert token == "token"
    assert compressed == compress(codec, data)
    assert decompress(codec, compressed, max_size=len(data)) == data


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_each_token_comes_back_once_with_its_own(codec: Codec) -> None:
    blocks = {number: b"%d " % number * (1 + number * 37 % 5000) for number in range(500)}
    with native_threads(codec, most=4) as threads:
        for number, block in blocks.items():
            threads.submit(block, number)
        taken = take(threads, len(blocks))
        assert threads.take_done() == []

    assert sorted(number for number, _ in taken) == list(blocks)
    for number, compressed in taken:
        assert decompress(codec, compressed or b"", max_size=30_000) == blocks[number]


@pytest.mark.usefixtures("native")
def test_batches_are_compressed_in_the_order_in_which_they_came() -> None:
    with native_threads(Codec.LZ4, most=1) as threads:
        for number in range(20):
            threads.submit(TEXT * 50_000, number)  # so much that they wait
        assert [number for number, _ in take(threads, 20)] == list(range(20))


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_a_batch_refused_by_a_library_is_reported_as_none(codec: Codec) -> None:
    """It has less room than it said that it needs: 100 bytes, as the function in place of that one always answers."""
    lz4: Any = importlib.import_module("lz4.frame._frame")
    version = ctypes.cast(ctypes.CDLL(lz4.__file__).LZ4F_getVersion, ctypes.c_void_p).value or 0
    bound = "LZ4F_compressFrameBound" if codec is Codec.LZ4 else "ZSTD_compressBound"
    with native_threads(codec, **{bound: version}) as threads:
        threads.submit(os.urandom(1_000_000), "too large")
        threads.submit(b"small", "as ever")
        assert dict(take(threads, 2)) == {"too large": None, "as ever": compress(codec, b"small")}


async def test_each_batch_is_compressed_with_its_own_codec() -> None:
    codecs = (Codec.LZ4, Codec.GZIP, Codec.ZSTD, Codec.LZ4)
    with compressor() as made:
        batches = await asyncio.gather(*(made.encode(builder_of(100), codec) for codec in codecs))

    assert [batch.codec for batch in batches] == list(codecs)
    assert [batch.pieces for batch in batches] == [encode_batch(builder_of(100), codec).pieces for codec in codecs]


async def test_a_batch_that_native_threads_cannot_compress_is_compressed_in_python() -> None:
    await anyio.to_thread.run_sync(lambda: None)  # so that there is a worker thread
    with compressor() as made:
        before = threading.stack_size(1 << 46)  # as the system has not got
        try:
            batch = await made.encode(builder_of(100), Codec.ZSTD)
        finally:
            threading.stack_size(before)
        assert batch.pieces == encode_batch(builder_of(100), Codec.ZSTD).pieces
        assert not threads_there()
        assert (await made.encode(builder_of(100), Codec.ZSTD)).pieces == batch.pieces


def test_a_package_that_is_not_what_it_seems_has_no_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    stub = ModuleType("zstandard.backend_c")
    stub.__spec__ = None
    for name in ("zstandard.backend_c", "zstandard._cffi"):
        monkeypatch.setitem(sys.modules, name, stub)

    assert find_c_functions(Codec.ZSTD) is None


async def test_an_empty_batch_is_refused_as_everywhere() -> None:
    with compressor() as made, pytest.raises(ValueError, match="without records"):
        await made.encode(RecordBatchBuilder(), Codec.LZ4)


# -- by whom -------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_they_need_no_gil(codec: Codec) -> None:
    with native_threads(codec) as threads:
        threads.submit(TEXT, "first")  # a thread needs the GIL to begin
        take(threads, 1)
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1000)  # no other thread has a turn from here on
        try:
            for number in range(3):
                threads.submit(TEXT * 10_000, number)
            until_at = time.perf_counter() + 5
            taken: list[tuple[int, bytes | None]] = []
            while len(taken) < 3 and time.perf_counter() < until_at:
                taken += threads.take_done()
        finally:
            sys.setswitchinterval(interval)

    assert sorted(token for token, _ in taken) == [0, 1, 2]


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("codec", ["lz4", "zstd"])
async def test_a_producer_uses_them_for_large_batches(broker: FakeBroker, codec: str) -> None:
    async with opened(broker, compression_type=codec, compression_threshold_bytes=4000) as producer:
        await producer.send("orders", TEXT, partition=0)
        assert not threads_there(), "a small batch is compressed at once"
        await producer.send_many("orders", [TEXT] * 1000, partition=0)
        assert threads_there()

    assert [record.value for record in broker.records("orders", 0)] == [TEXT] * 1001


@pytest.mark.usefixtures("native")
def test_there_are_no_more_threads_than_work_and_never_more_than_allowed() -> None:
    with native_threads(Codec.ZSTD, most=3) as threads:
        for _ in range(5):
            threads.submit(TEXT, None)
            take(threads, 1)
            wait_until(lambda: threads.waiting_threads == 1)
        assert len(threads_there()) == 1
        for _ in range(50):
            threads.submit(TEXT * 10_000, None)
            assert len(threads_there()) <= 3
        take(threads, 50)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY])
def test_other_codecs_have_no_such_functions(codec: Codec) -> None:
    assert find_c_functions(codec) is None


class WithoutPipes(asyncio.SelectorEventLoop):
    """Like the loop of Windows, or one of another package."""

    def add_reader(self, *_: object) -> None:
        raise NotImplementedError


def test_a_loop_that_cannot_watch_a_pipe_has_pythons_threads() -> None:
    async def main() -> None:
        with compressor() as made:
            before = descriptors()
            for _ in range(3):
                batch = await made.encode(builder_of(100), Codec.ZSTD)
                assert batch.pieces == encode_batch(builder_of(100), Codec.ZSTD).pieces
            assert not threads_there()
            assert descriptors() == before, "the pipe was closed again"

    with asyncio.Runner(loop_factory=WithoutPipes) as runner:
        runner.run(main())


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD, Codec.GZIP])
async def test_where_no_thread_can_be_started_the_batch_is_compressed_all_the_same(codec: Codec) -> None:
    expected = encode_batch(builder_of(100), codec)
    before = threading.stack_size(1 << 46)  # as the system has not got
    try:
        with compressor() as made:
            batch = await made.encode(builder_of(100), codec)
    finally:
        threading.stack_size(before)
    assert batch.pieces == expected.pieces


@pytest.mark.usefixtures("native")
def test_where_no_thread_can_be_started_nothing_is_taken_and_nothing_is_lost() -> None:
    class Token:
        pass

    token = Token()
    gone = weakref.ref(token)
    with native_threads(Codec.LZ4) as threads:
        before = threading.stack_size(1 << 46)  # as the system has not got
        try:
            with pytest.raises(RuntimeError):
                threads.submit(TEXT, token)
        finally:
            threading.stack_size(before)
        del token
        gc.collect()
        assert gone() is None
        threads.submit(TEXT, "now")
        assert take(threads, 1) == [("now", compress(Codec.LZ4, TEXT))]


@pytest.mark.usefixtures("native")
def test_they_stand_back_behind_the_event_loops_thread() -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux can ask that of one thread")

    async def main() -> int:
        with compressor() as made:
            await made.encode(builder_of(100), Codec.LZ4)
            [thread] = threads_there()
            return os.getpriority(os.PRIO_PROCESS, thread.native_id or 0)

    # A filter of system calls may end a process that asks for it.
    is_filtered = "Seccomp:\t0\n" not in Path("/proc/self/status").read_text()
    assert asyncio.run(main()) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + (0 if is_filtered else 5))


# -- what stays ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_nothing_is_kept_of_what_was_taken_or_thrown_away(codec: Codec) -> None:
    data, token = os.urandom(1000), object()
    before = sys.getrefcount(data), sys.getrefcount(token)
    with native_threads(codec) as threads:
        for _ in range(10):
            threads.submit(data, token)
        taken = take(threads, 10)
        assert (sys.getrefcount(data), sys.getrefcount(token)) == (before[0], before[1] + 10)
        del taken
        for _ in range(10):
            threads.submit(data, token)
    del threads
    wait_until(lambda: (sys.getrefcount(data), sys.getrefcount(token)) == before)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_memory_does_not_grow_with_batches_or_with_producers(codec: Codec) -> None:
    if not Path("/proc/self/statm").exists():
        pytest.skip("only Linux reports it so")
    noise = os.urandom(200_000)

    def work(jobs: int) -> None:
        with native_threads(codec, most=1) as threads:
            for _ in range(jobs):
                threads.submit(noise, None)
                take(threads, 1)

    work(100)
    before = resident_bytes()
    work(1000)  # 200 MB
    for _ in range(400):  # a context of zstd takes 1.5 MB
        work(1)

    assert resident_bytes() - before < 50_000_000


# -- the end -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD, Codec.GZIP])
async def test_a_cancelled_caller_ends_and_the_others_get_their_results(codec: Codec) -> None:
    with compressor() as made:
        tasks = [asyncio.ensure_future(made.encode(builder_of(3000), codec)) for _ in range(6)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)

    expected = encode_batch(builder_of(3000), codec).pieces
    for number, result in enumerate(results):
        if number % 2:
            assert not isinstance(result, BaseException)
            assert result.pieces == expected
        else:
            assert isinstance(result, asyncio.CancelledError)


@pytest.mark.usefixtures("native")
def test_after_the_end_nothing_is_begun_nothing_called_and_everything_let_go() -> None:
    class Token:
        pass

    tokens = [Token() for _ in range(20)]
    gone = [weakref.ref(token) for token in tokens]
    with native_threads(Codec.ZSTD, most=1, level=19) as threads:
        threads.submit(TEXT * 400_000, tokens[0])  # takes far longer than what follows
        for token in tokens[1:]:
            threads.submit(TEXT, token)
        threads.close()
        del token
        tokens.clear()
        gc.collect()
        assert all(ref() is None for ref in gone[1:]), "what waited is let go at once"
        with pytest.raises(RuntimeError):
            threads.submit(TEXT, None)
        wait_until(lambda: not threads_there())
        assert not calls(threads, timeout=0)
    del threads
    gc.collect()
    assert all(ref() is None for ref in gone)


@pytest.mark.usefixtures("native")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_copy_of_the_process_does_nothing_and_hangs_on_nothing() -> None:
    with native_threads(Codec.LZ4) as threads:
        threads.submit(TEXT, None)
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                threads.close()
                try:
                    threads.submit(TEXT, None)
                except RuntimeError:
                    os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        take(threads, 1)


@pytest.mark.usefixtures("native")
async def test_a_producer_that_is_closed_in_the_middle_leaves_no_thread_and_no_descriptor(broker: FakeBroker) -> None:
    async with opened(broker, compression_type="zstd", compression_level=19, batch_size=200_000) as producer:
        await producer.partitions_for("orders")
    before = descriptors()
    async with opened(broker, compression_type="zstd", compression_level=19, batch_size=200_000) as producer:
        deliveries = [await producer.enqueue("orders", os.urandom(1000)) for _ in range(2000)]
        await until(lambda: bool(threads_there()))
        await producer.close(timeout=0)
        assert all(delivery.done() for delivery in deliveries)
    await until(lambda: not threads_there())
    await until(lambda: descriptors() <= before)
