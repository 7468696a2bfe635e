"""Bytes that are nearly right, by the thousand, for decoders that must survive all of them."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final, NamedTuple

import pytest

__all__ = ["Survived", "each_count", "mutations", "survive"]

#: So many inputs are tried at every build, and for releases.
SOME, MILLION = 300, 1_000_000

#: Run a test with ``count`` inputs: some, and a million.
each_count: Final = pytest.mark.parametrize(
    "count",
    [SOME, pytest.param(MILLION, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])],
)

_CHUNK: Final = 500
#: A chunk takes about 20 ms, and one input of it may not take ten seconds.
_CHUNK_CPU_S: Final = 10.0
_GROWTH: Final = 256 * 1024  # KiB, as getrusage returns it

#: Lengths and counts that blow up: int16, int32, and unsigned and zigzag varints; null, negative and huge.
_LENGTHS: Final = (
    *(b"\xff\xff", b"\x7f\xff", b"\x80\x00", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00"),
    *(
        b"\x00\x01\x00\x00",
        b"\xff\xff\xff\xff\x0f",
        b"\xff\xff\xff\xff\x07",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    ),
    *(b"\xff\x7f", b"\x80\x80\x80\x80\x80\x80", b"\x00", b"\x01", b"\x02"),
)


class Survived(NamedTuple):
    """The number of inputs that were decoded, and of those that were refused with one of our errors."""

    taken: int
    refused: int


def survive(
    what: str,
    decode: Callable[[bytes], object],
    seeds: Sequence[bytes],
    refusals: type[Exception] | tuple[type[Exception], ...],
    count: int,
    *,
    chunk_cpu_s: float = _CHUNK_CPU_S,
) -> Survived:
    """Let ``decode`` have so many mutations of the seeds, the same in each run.

    Fails with the input for which it raises something else than ``refusals``, when a chunk of inputs takes more processor
    time than it may, or when the process has become much larger.
    """
    inputs = mutations(seeds, Random(what))
    size = _largest_size()
    refused = 0
    for begin in range(0, count, _CHUNK):
        began = time.thread_time()
        for _ in range(min(_CHUNK, count - begin)):
            data = next(inputs)
            try:
                decode(data)
            except refusals:
                refused += 1
            except Exception as error:
                raise AssertionError(f"{what} does not survive {data.hex()}: {error!r}") from error
        took = time.thread_time() - began
        assert took < chunk_cpu_s, f"{what} took {took:.1f} s for the inputs {begin} to {begin + _CHUNK}"
    assert _largest_size() - size < _GROWTH, f"{what} took {_largest_size() - size} KiB"
    return Survived(count - refused, refused)


def mutations(seeds: Sequence[bytes], noise: Random) -> Iterator[bytes]:
    """The seeds with bytes flipped, cut off, put in, repeated, and with other lengths, one to three times; and noise."""
    while True:
        data = (
            bytearray(noise.choice(seeds)) if noise.random() < 0.97 else bytearray(noise.randbytes(noise.randrange(80)))
        )
        for _ in range(noise.choice((1, 1, 1, 2, 3))):
            noise.choice(_MUTATIONS)(data, noise)
        yield bytes(data)


def _flip(data: bytearray, noise: Random) -> None:
    if data:
        data[int(noise.random() * len(data))] ^= 1 << int(noise.random() * 8)


def _set(data: bytearray, noise: Random) -> None:
    if data:
        data[int(noise.random() * len(data))] = int(noise.random() * 256)


def _cut(data: bytearray, noise: Random) -> None:
    del data[int(noise.random() * (len(data) + 1)) :]


def _drop(data: bytearray, noise: Random) -> None:
    begin = int(noise.random() * (len(data) + 1))
    del data[begin : begin + 1 + int(noise.random() * 8)]


def _put_in(data: bytearray, noise: Random) -> None:
    begin = int(noise.random() * (len(data) + 1))
    data[begin:begin] = noise.randbytes(1 + int(noise.random() * 8))


def _repeat(data: bytearray, noise: Random) -> None:
    begin = int(noise.random() * (len(data) + 1))
    data[begin:begin] = data[begin : begin + 32]


def _blow_up(data: bytearray, noise: Random) -> None:
    begin, length = int(noise.random() * (len(data) + 1)), noise.choice(_LENGTHS)
    data[begin : begin + len(length)] = length


_MUTATIONS: Final = (_flip, _set, _set, _cut, _drop, _put_in, _repeat, _blow_up, _blow_up, _blow_up)


def _largest_size() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
