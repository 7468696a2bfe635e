"""Puts messages into frames (length, header, message) and splits a byte stream into frames.

A request has header v1 (api key, version, correlation id, client id) or, if its version is flexible, v2, which adds tagged
fields; the client id stays an int16 string even there. A response has header v0 (correlation id) or v1, which adds tagged
fields; that of ApiVersions is always v0, because the client does not know yet what the broker supports (KIP-511).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from aioproducer.errors import ProtocolError
from aioproducer.protocol import wire
from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.message import Message, Request, Response
from aioproducer.types import BytesLike

__all__ = [
    "FrameReader",
    "RequestHeader",
    "decode_request_header",
    "decode_response_header",
    "encode_request",
    "encode_response",
]

_LENGTH: Final = struct.Struct(">i")
_REQUEST_HEADER: Final = struct.Struct(">hhih")
_CORRELATION_ID: Final = struct.Struct(">i")

#: Every frame has at least a correlation id.
_LEAST_FRAME: Final = 4


class RequestHeader(NamedTuple):
    """The header of a request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def encode_request(correlation_id: int, client_id: str | None, request: Request[Any], version: int) -> list[BytesLike]:
    """A request in wire format, as consecutive pieces.

    Raises as ``Message.encode_pieces`` does.
    """
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    buffer = bytearray(_REQUEST_HEADER.pack(request.api_key, version, correlation_id, length))
    buffer += name
    if request.is_flexible(version):
        buffer.append(0)
    return _framed(buffer, request, version)


def encode_response(correlation_id: int, response: Response, version: int) -> list[BytesLike]:
    """A response in wire format, as consecutive pieces; for brokers. Raises as ``Message.encode_pieces`` does."""
    buffer = bytearray(_CORRELATION_ID.pack(correlation_id))
    if _has_tags(response.api_key, response, version):
        buffer.append(0)
    return _framed(buffer, response, version)


def decode_response_header(frame: bytes, request: type[Request[Any]], version: int) -> tuple[int, bytes]:
    """The correlation id of a response to such a request, and the data after the header.

    The frame is given without its length. Raises ProtocolError if there is no header in it.
    """
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
        position = _CORRELATION_ID.size
        if version >= request.flexible and request.api_key != ApiKey.API_VERSIONS:
            position = position + 1 if frame[position] == 0 else _skip_tags(frame, position)
    except (struct.error, IndexError) as error:
        raise ProtocolError(f"A frame of {len(frame)} bytes ends in the middle of its response header.") from error
    return correlation_id, frame[position:]


def decode_request_header(frame: BytesLike) -> tuple[RequestHeader, memoryview]:
    """The header of a request, and the data after it; for brokers.

    The frame is given without its length. An unsupported API is assumed not to be flexible. Raises
    ProtocolError if there is no header in it.
    """
    from aioproducer.protocol.messages import (
        REQUESTS,
    )  # imports all messages, which takes 10 ms; producers do not need it

    data = memoryview(frame)
    try:
        api_key, version, correlation_id, length = _REQUEST_HEADER.unpack_from(data)
        position = _REQUEST_HEADER.size
        client_id, position = _client_id(data, position, length)
        request = REQUESTS.get(api_key)
        if request is not None and request.is_flexible(version):
            position = _skip_tags(data, position)
    except (struct.error, IndexError) as error:
        raise ProtocolError(f"A frame of {len(data)} bytes ends in the middle of its request header.") from error
    return RequestHeader(api_key, version, correlation_id, client_id), data[position:]


class FrameReader:
    """Splits a byte stream into frames. Feed it the received bytes, then iterate over the complete frames.

    Holds only bytes that were fed and not read yet: the announced size of a frame is checked first, and no memory is
    allocated in advance. ``max_frame`` is in bytes and may be changed between frames.

    Responses mostly arrive one at a time, so a single whole frame that is fed (as ``bytes``) is returned without a copy.
    """

    __slots__ = ("_buffer", "_single", "_start", "max_frame")

    def __init__(self, max_frame: int) -> None:
        self.max_frame = max_frame
        self._buffer = bytearray()
        self._start = 0
        self._single: bytes | None = None  # a whole frame with its length; the buffer is then empty

    def feed(self, data: BytesLike) -> None:
        """Add received bytes; they are copied, unless they are immutable."""
        if self._start:
            del self._buffer[: self._start]
            self._start = 0
        if self._single is not None:
            self._buffer += self._single
            self._single = None
        elif not self._buffer and isinstance(data, bytes) and _is_whole(data, self.max_frame):
            self._single = data
            return
        self._buffer += data

    @property
    def pending(self) -> int:
        """The number of bytes of an incomplete frame, including its length."""
        return len(self._buffer) - self._start if self._single is None else len(self._single)

    def __iter__(self) -> Iterator[bytes]:
        """The complete frames, without their lengths.

        Raises ProtocolError when a frame announces a size that is negative, too small for a header or above ``max_frame``;
        and every time after that, since the start of the next frame is unknown.
        """
        while (frame := self.next_frame()) is not None:
            yield frame

    def next_frame(self) -> bytes | None:
        """The next frame, None if it is not complete. Raises as iteration does."""
        single = self._single
        if single is not None:
            self._single = None
            return single[_LENGTH.size :]
        pending = len(self._buffer) - self._start
        if pending < _LENGTH.size:
            return None
        (size,) = _LENGTH.unpack_from(self._buffer, self._start)
        if not _LEAST_FRAME <= size <= self.max_frame:
            raise ProtocolError(
                f"The peer announced a frame of {size} bytes; {_LEAST_FRAME} to {self.max_frame} are accepted. "
                f"It may not be a Kafka broker, or it may use TLS."
            )
        if pending < _LENGTH.size + size:
            return None
        start = self._start + _LENGTH.size
        self._start = start + size
        with memoryview(self._buffer) as view:
            return bytes(view[start : self._start])


def _is_whole(data: bytes, max_frame: int) -> bool:
    size = len(data) - _LENGTH.size
    return _LEAST_FRAME <= size <= max_frame and _LENGTH.unpack_from(data) == (size,)


def _framed(buffer: bytearray, message: Message, version: int) -> list[BytesLike]:
    pieces: list[BytesLike] = []
    message.encode_into(version, buffer, pieces)
    size = sum([len(piece) for piece in pieces])
    pieces[0] = _LENGTH.pack(size) + pieces[0]
    return pieces


def _has_tags(api_key: int, message: type[Message] | Message, version: int) -> bool:
    return api_key != ApiKey.API_VERSIONS and message.is_flexible(version)


def _skip_tags(data: BytesLike, position: int) -> int:
    """The position after the tagged fields of a header; Kafka has defined none yet."""
    if data[position] == 0:
        return position + 1
    header = bytes(data)
    count, position = wire.read_uvarint(header, position)
    if count * 2 > len(header) - position:
        wire.refuse_count(count, len(header) - position)
    for _ in range(count):
        _, position = wire.read_uvarint(header, position)
        size, position = wire.read_uvarint(header, position)
        if size > len(header) - position:
            wire.refuse_length(size, len(header) - position)
        position += size
    return position


def _client_id(data: memoryview, position: int, length: int) -> tuple[str | None, int]:
    if length == -1:
        return None, position
    if not 0 <= length <= len(data) - position:
        wire.refuse_length(length, len(data) - position)
    end = position + length
    try:
        return str(data[position:end], "utf-8"), end
    except UnicodeDecodeError as error:
        raise ProtocolError("The client id of a request is not UTF-8.") from error
