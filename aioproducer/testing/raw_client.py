"""A client without any logic: one blocking socket, requests out, responses in.

For tests that check a broker's exact response to exact bytes.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from aioproducer.errors import BrokerConnectionError, ProtocolError
from aioproducer.protocol import decode_response_header, encode_request
from aioproducer.protocol.message import Request, Response
from aioproducer.protocol.messages import PartitionProduceData, ProduceRequest, TopicProduceData
from aioproducer.protocol.wire import ZERO_UUID
from aioproducer.record import RecordBatchBuilder, encode_batch

if TYPE_CHECKING:
    from typing import Self

__all__ = ["RawClient", "produce", "record_batch"]

ResponseT = TypeVar("ResponseT", bound=Response)


class RawClient:
    """A connection to one broker; a context manager. Every read ends after ``timeout`` seconds (TimeoutError)."""

    def __init__(self, address: tuple[str, int], *, client_id: str | None = "raw", timeout: float = 5.0) -> None:
        self._client_id = client_id
        self._correlation_id = 0
        self._socket = socket.create_connection(address, timeout)

    def ask(self, request: Request[ResponseT], version: int) -> ResponseT:
        """Send a request and read its response.

        Raises BrokerConnectionError if the broker closes the connection instead, and ProtocolError if it sends something
        else.
        """
        correlation_id = self.send(request, version)
        return self.read(type(request), version, correlation_id)

    def send(self, request: Request[ResponseT], version: int) -> int:
        """Send a request; returns its correlation id."""
        self._correlation_id += 1
        pieces = encode_request(self._correlation_id, self._client_id, request, version)
        self._socket.sendall(b"".join(pieces))
        return self._correlation_id

    def read(self, request: type[Request[ResponseT]], version: int, correlation_id: int) -> ResponseT:
        """Read the response to an earlier request."""
        frame = self.read_frame()
        found, body = decode_response_header(frame, request, version)
        if found != correlation_id:
            raise ProtocolError(f"The response has correlation id {found}, not {correlation_id}.")
        return request.response_type.decode(version, body)

    def send_bytes(self, data: bytes) -> None:
        """Send raw bytes."""
        self._socket.sendall(data)

    def read_frame(self) -> bytes:
        """The next frame, without its length."""
        (length,) = struct.unpack(">i", self._read_exactly(4))
        return self._read_exactly(length)

    def read_bytes(self, most: int = 65536) -> bytes:
        """Read the received bytes, b"" at the end of the connection."""
        return self._socket.recv(most)

    def is_closed_by_peer(self) -> bool:
        """Whether the broker closes the connection, with nothing more to read, before the timeout."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    @property
    def is_silent(self) -> bool:
        """Whether nothing has come that was not read, and the connection is open."""
        before = self._socket.gettimeout()
        self._socket.setblocking(False)
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        finally:
            self._socket.settimeout(before)
        return False

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _read_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise BrokerConnectionError(f"The broker closed the connection after {len(data)} of {size} bytes.")
            data += piece
        return bytes(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def record_batch(
    *values: bytes | None,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    timestamp_ms: int = 1_700_000_000_000,
) -> bytes:
    """A valid, uncompressed record batch of these values, without keys."""
    builder = RecordBatchBuilder()
    for value in values:
        builder.append(timestamp_ms, None, value)
    batch = encode_batch(builder)
    batch.stamp(producer_id, epoch, sequence)
    return b"".join(batch.pieces)


def produce(
    topic: str,
    records: bytes | Mapping[int, bytes],
    *,
    acks: int = -1,
    topic_id: UUID = ZERO_UUID,
    timeout_ms: int = 1000,
) -> ProduceRequest:
    """A Produce request for one topic: the records of partition 0, or of each partition."""
    by_partition = {0: records} if isinstance(records, bytes) else records
    partitions = [PartitionProduceData(index=index, records=data) for index, data in by_partition.items()]
    return ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(name=topic, topic_id=topic_id, partition_data=partitions)],
    )
