"""The five codecs of record batches, compatible with brokers and other clients.

Kafka has its own framings: snappy in the blocks of the xerial library, lz4 as a frame of independent blocks (KIP-57), gzip
and zstd as one plain stream. A codec's library is imported on first use.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable, Sequence
from enum import IntEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from aioproducer.errors import ConfigError, CorruptRecord

if TYPE_CHECKING:
    import zstandard

    from aioproducer.types import BytesLike

__all__ = ["LEVELS", "Codec", "LevelRange", "c_level", "compress", "decompress", "require", "usable"]


class Codec(IntEnum):
    """The compression of a batch's records: bits 0 to 2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class LevelRange(NamedTuple):
    """The compression levels of a codec (KIP-390): both ends of a range, and the default.

    The default is valid even if it is not in the range: gzip's -1 leaves the choice to zlib.
    """

    minimum: int
    maximum: int
    default: int


LEVELS: Final[dict[Codec, LevelRange]] = {
    Codec.GZIP: LevelRange(1, 9, -1),
    Codec.LZ4: LevelRange(1, 17, 9),
    Codec.ZSTD: LevelRange(-131072, 22, 3),
}


def compress(codec: Codec, data: BytesLike, level: int | None = None) -> bytes:
    """Compress ``data`` in the format of Kafka's brokers and clients; with ``Codec.NONE`` return it unchanged.

    ``level`` is one of ``LEVELS[codec]``, None for the codec's default; codecs without levels ignore it.
    The same input gives the same bytes. Thread-safe; the libraries release the GIL.

    Raises ``ConfigError`` if the codec's library is not installed or the level does not exist.
    """
    if level is not None and codec in LEVELS:
        _check_level(codec, level)
    return _COMPRESS[codec](data, level)


def decompress(codec: Codec, data: BytesLike, *, max_size: int) -> bytes:
    """Decompress ``data``, up to ``max_size`` bytes.

    Raises ``CorruptRecord`` if the data is invalid, truncated, followed by other bytes, or would become larger than
    ``max_size``; ``ConfigError`` if the codec's library is not installed.
    """
    plain = _DECOMPRESS[codec](data, max_size)
    if len(plain) > max_size:
        raise _bomb(codec, len(data), max_size)
    return plain


def require(codec: Codec) -> None:
    """Make sure that the codec can be used, and import its library: the first time takes some 10 ms.

    Raises ``ConfigError`` with installation advice if the library is missing.
    """
    if codec in _LIBRARIES:
        _library(codec)


def usable(codecs: Sequence[Codec]) -> tuple[Codec, ...]:
    """Return those codecs whose libraries are installed, and import these.

    Raises ``ConfigError`` with installation advice for the first codec if no library is installed.
    """
    found: list[Codec] = []
    missing: list[ConfigError] = []
    for codec in codecs:
        try:
            require(codec)
        except ConfigError as error:
            missing.append(error)
        else:
            found.append(codec)
    if not found:
        raise missing[0]
    return tuple(found)


def c_level(codec: Codec, level: int | None) -> int:
    """The C library's level for ``level``; for lz4 and zstd.

    For lz4, Java's default 9 is the fast compressor (Lz4BlockOutputStream), all others are HC levels, which start at 3 in
    the library; levels above 12 are the same as 12.
    """
    default = LEVELS[codec].default
    if codec is Codec.LZ4:
        return 0 if level is None or level == default else min(max(level, 3), 12)
    return default if level is None else level


def _check_level(codec: Codec, level: int) -> None:
    lowest, highest, default = LEVELS[codec]
    if level != default and not lowest <= level <= highest:
        raise ConfigError(
            f"invalid compression level {level} for {codec.name.lower()}: must be {lowest} to {highest}; the default is "
            f"{default}."
        )


class _Library(NamedTuple):
    module: str
    install: str


_LIBRARIES: Final = {
    Codec.SNAPPY: _Library("cramjam", "aioproducer[snappy]"),
    Codec.LZ4: _Library("lz4.frame", "lz4"),
    Codec.ZSTD: _Library("zstandard", "zstandard"),
}


def _library(codec: Codec) -> Any:
    module, install = _LIBRARIES[codec]
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"{codec.name.lower()} compression needs the package {module.partition('.')[0]}, which could not be imported "
            f"({error}); install it with: pip install '{install}'"
        ) from error


def _bomb(codec: Codec, size: int, max_size: int) -> CorruptRecord:
    return CorruptRecord(f"{size} bytes of {codec.name.lower()} decompress to more than the allowed {max_size} bytes.")


def _not(codec: Codec, size: int, why: object) -> CorruptRecord:
    return CorruptRecord(f"{size} bytes are not valid {codec.name.lower()}: {why}.")


# --- none ---


def _copy(data: BytesLike, _: object) -> bytes:
    return bytes(data)  # bytes themselves are not copied


# --- gzip ---

_GZIP_WBITS: Final = 31  # the largest window, with gzip's header and trailer


def _compress_gzip(data: BytesLike, level: int | None) -> bytes:
    stream = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WBITS)
    return stream.compress(data) + stream.flush()


def _decompress_gzip(data: BytesLike, max_size: int) -> bytes:
    parts: list[bytes] = []
    room = max_size + 1  # one more than allowed detects excess data
    rest: BytesLike = data
    while rest and room > 0:  # a stream may have several members, all of which Java reads
        stream = zlib.decompressobj(_GZIP_WBITS)
        try:
            part = stream.decompress(rest, room)
        except zlib.error as error:
            raise _not(Codec.GZIP, len(data), error) from error
        parts.append(part)
        room -= len(part)
        if not stream.eof and room > 0:
            raise _not(Codec.GZIP, len(data), "it is truncated")
        rest = stream.unused_data
    if not parts:
        raise _not(Codec.GZIP, len(data), "it is empty")
    return b"".join(parts)


# --- snappy ---

_XERIAL_HEADER: Final = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)  # magic; version, oldest compatible version
_XERIAL_BLOCK: Final = 32 * 1024
_BLOCK_LENGTH: Final = struct.Struct(">i")


def _compress_snappy(data: BytesLike, _: int | None) -> bytes:
    compress_block = _library(Codec.SNAPPY).snappy.compress_raw
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(compress_block(view[start : start + _XERIAL_BLOCK]))
        parts.append(_BLOCK_LENGTH.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: BytesLike, max_size: int) -> bytes:
    view = memoryview(data)
    # librdkafka writes one bare block, which Java's library can read as well.
    blocks = _xerial_blocks(view) if view[:8].tobytes() == _XERIAL_HEADER[:8] else [view]
    snappy = _library(Codec.SNAPPY).snappy
    parts: list[bytes] = []
    room = max_size
    for block in blocks:
        try:
            room -= int(snappy.decompress_raw_len(block))  # announced by the block: check it before allocating memory
            if room < 0:
                raise _bomb(Codec.SNAPPY, len(data), max_size)
            parts.append(bytes(snappy.decompress_raw(block)))
        except _library(Codec.SNAPPY).DecompressionError as error:
            raise _not(Codec.SNAPPY, len(data), error) from error
    return b"".join(parts)


def _xerial_blocks(view: memoryview) -> list[memoryview]:
    blocks: list[memoryview] = []
    position = len(_XERIAL_HEADER)
    if len(view) < position:
        raise _not(Codec.SNAPPY, len(view), "its header is truncated")
    while position < len(view):
        if position + 4 > len(view):
            raise _not(Codec.SNAPPY, len(view), f"the length of the block at {position} is truncated")
        (length,) = _BLOCK_LENGTH.unpack_from(view, position)
        position += 4
        if not 0 < length <= len(view) - position:
            raise _not(
                Codec.SNAPPY,
                len(view),
                f"a block has an announced length of {length} bytes, but {len(view) - position} bytes remain",
            )
        blocks.append(view[position : position + length])
        position += length
    return blocks


# --- lz4 ---


def _compress_lz4(data: BytesLike, level: int | None) -> bytes:
    lz4 = _library(Codec.LZ4)
    return bytes(
        lz4.compress(
            data,
            compression_level=c_level(Codec.LZ4, level),
            block_size=lz4.BLOCKSIZE_MAX64KB,
            block_linked=False,  # Kafka refuses blocks that depend on each other
            store_size=False,  # Java's reader does not expect the size
        )
    )


def _decompress_lz4(data: BytesLike, max_size: int) -> bytes:
    stream = _library(Codec.LZ4).LZ4FrameDecompressor()
    try:
        plain = bytes(stream.decompress(data, max_length=max_size + 1))
    except RuntimeError as error:
        raise _not(Codec.LZ4, len(data), error) from error
    if len(plain) <= max_size and not stream.eof:
        raise _not(Codec.LZ4, len(data), "it is truncated")
    if stream.eof and stream.unused_data:
        raise _not(Codec.LZ4, len(data), f"{len(stream.unused_data)} bytes follow its end")
    return plain


# --- zstd ---

_ZSTD_MAX_WINDOW: Final = 1 << 27  # the window of level 22; a larger one would only make the reader allocate memory


class _ZstdContexts(threading.local):
    """Compressors by level, per thread: creating one takes as long as compressing a small batch."""

    def __init__(self) -> None:
        self.compressors: dict[int, zstandard.ZstdCompressor] = {}


_zstd_contexts: Final = _ZstdContexts()


def _compress_zstd(data: BytesLike, level: int | None) -> bytes:
    level = c_level(Codec.ZSTD, level)
    compressors = _zstd_contexts.compressors
    compressor = compressors.get(level)
    if compressor is None:
        compressor = compressors[level] = _library(Codec.ZSTD).ZstdCompressor(level=level)
    return compressor.compress(data)


def _decompress_zstd(data: BytesLike, max_size: int) -> bytes:
    zstd = _library(Codec.ZSTD)
    try:
        # The library prefers a size in the frame to `max_output_size`, and allocates memory for it at once.
        if zstd.frame_content_size(data) > max_size:
            raise _bomb(Codec.ZSTD, len(data), max_size)
        decompressor = zstd.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW)
        return bytes(decompressor.decompress(data, max_output_size=max_size, allow_extra_data=False))
    except zstd.ZstdError as error:
        raise _not(Codec.ZSTD, len(data), error) from error


_Compress: TypeAlias = Callable[["BytesLike", "int | None"], bytes]
_Decompress: TypeAlias = Callable[["BytesLike", int], bytes]

_COMPRESS: Final[dict[Codec, _Compress]] = {
    Codec.NONE: _copy,
    Codec.GZIP: _compress_gzip,
    Codec.SNAPPY: _compress_snappy,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: _compress_zstd,
}

_DECOMPRESS: Final[dict[Codec, _Decompress]] = {
    Codec.NONE: _copy,
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}
