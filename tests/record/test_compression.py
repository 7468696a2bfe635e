"""Each codec's framing is the one that Kafka wants, and what comes from outside is bounded and checked."""

from __future__ import annotations

import gzip
import random
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import zstandard
from cramjam import snappy
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer.errors import ConfigError, CorruptRecord
from aioproducer.record import LEVELS, Codec, compress, decompress, require

COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]
TEXT = b"The quick brown fox jumps over the lazy dog. " * 5000  # several blocks of snappy and of lz4
NUMBERS = b"".join(b"%d is not %d; " % (n * n, n) for n in range(3000))
NOISE = random.Random(1).randbytes(200_000)
MEBIBYTE = 1 << 20

codecs = pytest.mark.parametrize("codec", COMPRESSING)


def levels() -> list[tuple[Codec, int | None]]:
    tried: list[tuple[Codec, int | None]] = [(codec, None) for codec in Codec]
    for codec, (lowest, highest, default) in LEVELS.items():
        tried += [(codec, level) for level in (default, lowest, -7, 0, 2, 8, 10, highest) if level_exists(codec, level)]
    return tried


def level_exists(codec: Codec, level: int) -> bool:
    return level == LEVELS[codec].default or LEVELS[codec].minimum <= level <= LEVELS[codec].maximum


@pytest.mark.parametrize(("codec", "level"), levels())
@pytest.mark.parametrize("data", [b"", b"x", TEXT[:40_000], NOISE[:40_000]], ids=["empty", "byte", "text", "noise"])
def test_compressed_data_can_be_decompressed(codec: Codec, level: int | None, data: bytes) -> None:
    packed = compress(codec, data, level)

    assert decompress(codec, packed, max_size=len(data)) == data
    assert decompress(codec, bytearray(packed), max_size=MEBIBYTE) == data
    assert compress(codec, memoryview(bytearray(data)), level) == packed


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(Codec), st.binary(max_size=2000), st.integers(1, 100))
def test_any_bytes_come_back_from_any_codec(codec: Codec, data: bytes, times: int) -> None:
    data *= times

    assert decompress(codec, compress(codec, data), max_size=len(data)) == data


def test_snappy_is_in_the_blocks_of_the_xerial_library() -> None:
    packed = compress(Codec.SNAPPY, TEXT)

    assert packed[:16].hex(" ") == "82 53 4e 41 50 50 59 00 00 00 00 01 00 00 00 01"
    first = int.from_bytes(packed[16:20], "big")
    assert bytes(snappy.decompress_raw(packed[20 : 20 + first])) == TEXT[: 32 * 1024]


def test_snappy_as_one_bare_block_is_read_too_since_librdkafka_writes_it() -> None:
    assert decompress(Codec.SNAPPY, bytes(snappy.compress_raw(TEXT)), max_size=len(TEXT)) == TEXT


@pytest.mark.parametrize("level", [None, 1, 9, 17])
def test_lz4_is_a_frame_of_independent_64_kib_blocks_without_a_content_size(level: int | None) -> None:
    packed = compress(Codec.LZ4, TEXT, level)

    assert packed[:7].hex(" ") == "04 22 4d 18 60 40 82"  # magic, flags, block size, checksum of the two
    assert packed[-4:] == bytes(4)  # the end mark, and no checksum after it


def test_lz4_at_level_nine_is_the_fast_compressor_as_in_java() -> None:
    fast, thorough = compress(Codec.LZ4, NUMBERS, 9), compress(Codec.LZ4, NUMBERS, 8)

    assert fast == compress(Codec.LZ4, NUMBERS)
    assert len(thorough) < len(fast)


def test_gzip_is_plain_and_the_same_input_gives_the_same_bytes() -> None:
    packed = compress(Codec.GZIP, TEXT)

    assert gzip.decompress(packed) == TEXT
    assert packed[4:8] == bytes(4)  # no time stands in it
    assert compress(Codec.GZIP, TEXT) == packed


def test_gzip_in_several_members_is_read_as_java_reads_it() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"one ") + gzip.compress(b"two"), max_size=7) == b"one two"
    with pytest.raises(CorruptRecord, match="more than the allowed 6 bytes"):
        decompress(Codec.GZIP, gzip.compress(b"one ") + gzip.compress(b"two"), max_size=6)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_higher_level_makes_less_of_the_same_text(codec: Codec) -> None:
    assert len(compress(codec, NUMBERS, LEVELS[codec].maximum)) < len(compress(codec, NUMBERS, 1))


@pytest.mark.parametrize(
    ("codec", "level"),
    [(Codec.GZIP, 0), (Codec.GZIP, 10), (Codec.GZIP, -2), (Codec.LZ4, 0), (Codec.LZ4, 18), (Codec.ZSTD, 23)],
)
def test_a_level_that_does_not_exist_is_reported_with_those_that_do(codec: Codec, level: int) -> None:
    lowest, highest, default = LEVELS[codec]

    with pytest.raises(
        ConfigError, match=f"level {level} for .*: must be {lowest} to {highest}; the default is {default}"
    ):
        compress(codec, b"x", level)


def test_codecs_without_levels_ignore_one() -> None:
    assert compress(Codec.NONE, b"x", 5) == b"x"
    assert compress(Codec.SNAPPY, b"x", 5) == compress(Codec.SNAPPY, b"x")


def test_zstd_can_be_used_from_several_threads_at_once() -> None:
    with ThreadPoolExecutor(4) as pool:
        packed = list(pool.map(lambda _: compress(Codec.ZSTD, TEXT), range(12)))

    assert set(packed) == {compress(Codec.ZSTD, TEXT)}


@pytest.mark.parametrize(
    ("codec", "module", "install"),
    [
        (Codec.SNAPPY, "cramjam", "aioproducer[snappy]"),
        (Codec.LZ4, "lz4.frame", "lz4"),
        (Codec.ZSTD, "zstandard", "zstandard"),
    ],
)
def test_the_error_of_a_codec_without_its_library_names_the_package(
    codec: Codec, module: str, install: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(codec)
    monkeypatch.setitem(sys.modules, module, None)  # what Python itself makes of a module that must not be imported

    with pytest.raises(ConfigError, match=f"{codec.name.lower()} compression needs") as caught:
        require(codec)

    assert f"pip install '{install}'" in str(caught.value)


def test_gzip_and_none_need_no_library() -> None:
    require(Codec.GZIP)
    require(Codec.NONE)


def bombs() -> list[tuple[str, Codec, bytes]]:
    zeros = bytes(8 * MEBIBYTE)
    without_size = zstandard.ZstdCompressor(write_content_size=False).compress(zeros)
    bare_snappy_that_lies = b"\xff\xff\xff\xff\x07" + b"\x00x"  # claims 2 GiB
    return [
        *((codec.name, codec, compress(codec, zeros)) for codec in COMPRESSING),
        ("ZSTD without a size", Codec.ZSTD, without_size),
        ("SNAPPY that lies", Codec.SNAPPY, bare_snappy_that_lies),
        ("GZIP in members", Codec.GZIP, gzip.compress(bytes(MEBIBYTE)) * 8),
    ]


def test_a_bomb_is_refused_before_it_takes_more_than_a_few_times_what_is_allowed() -> None:
    for name, codec, bomb in bombs():
        tracemalloc.start()
        try:
            with pytest.raises(CorruptRecord):
                decompress(codec, bomb, max_size=MEBIBYTE)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 4 * MEBIBYTE, name


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("data", [TEXT[:1000], NOISE[:1000]], ids=["text", "noise"])
def test_one_byte_more_than_allowed_is_too_much(codec: Codec, data: bytes) -> None:
    packed = compress(codec, data)

    assert decompress(codec, packed, max_size=len(data)) == data
    with pytest.raises(CorruptRecord):
        decompress(codec, packed, max_size=len(data) - 1)


@codecs
def test_data_cut_off_anywhere_is_refused(codec: Codec) -> None:
    packed = compress(codec, NOISE[:150])
    ends = [end for end in range(len(packed)) if (codec, end) != (Codec.SNAPPY, 16)]  # 16: xerial's header, no block

    for end in ends:
        with pytest.raises(CorruptRecord):
            decompress(codec, packed[:end], max_size=1000)


@codecs
def test_bytes_after_the_end_are_refused(codec: Codec) -> None:
    with pytest.raises(CorruptRecord):
        decompress(codec, compress(codec, TEXT[:100]) + b"x", max_size=1000)


@codecs
def test_a_flipped_byte_is_refused_or_makes_other_bytes_but_nothing_else(codec: Codec) -> None:
    packed = bytearray(compress(codec, TEXT[:100]))
    for position in range(len(packed)):
        for flip in (0x01, 0x40, 0x80, 0xFF):
            packed[position] ^= flip
            with suppress(CorruptRecord):
                assert len(decompress(codec, packed, max_size=5000)) <= 5000
            packed[position] ^= flip


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(COMPRESSING), st.binary(max_size=100), st.integers(0, 20))
def test_arbitrary_bytes_are_refused_or_read_but_nothing_else(codec: Codec, data: bytes, prefix: int) -> None:
    with suppress(CorruptRecord):
        assert len(decompress(codec, compress(codec, b"")[:prefix] + data, max_size=100_000)) <= 100_000
