"""A connection to a broker on a blocking socket, one request at a time, for the tests' admin client."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final, Self, TypeVar

from aioproducer.errors import BrokerConnectionError, ProtocolError, UnsupportedVersion
from aioproducer.protocol.frames import FrameReader, decode_response_header, encode_request
from aioproducer.protocol.message import Request, Response
from aioproducer.protocol.messages import ApiVersionsRequest

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["BlockingConnection"]

_CLIENT_ID: Final = "aioproducer-testing"
_MAX_FRAME: Final = 100_000_000
_RECEIVE_SIZE: Final = 1 << 18

ResponseT = TypeVar("ResponseT", bound=Response)


class BlockingConnection:
    """Connects when entered, and reads the broker's supported versions.

    Raises BrokerConnectionError when the broker cannot be reached, closes the connection or takes longer than
    ``timeout`` seconds to respond.
    """

    def __init__(self, host: str, port: int, timeout: float) -> None:
        self._name = f"{host}:{port}"
        self._address = (host, port)
        self._timeout = timeout
        self._frames = FrameReader(_MAX_FRAME)
        self._asked = 0
        self._versions: dict[int, tuple[int, int]] = {}

    def __enter__(self) -> Self:
        try:
            self._socket = socket.create_connection(self._address, self._timeout)
        except OSError as error:
            raise BrokerConnectionError(f"Could not connect to broker {self._name}: {error}.") from error
        try:
            self._learn_versions()
        except BaseException:
            self._socket.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._socket.close()

    def ask(self, request: Request[ResponseT], highest: int | None = None) -> ResponseT:
        """Send a request and return the response, in the highest version that both sides support, up to ``highest``.

        Raises UnsupportedVersion if there is none. The caller must check the response for errors.
        """
        return self._exchange(request, self._usable_version(request, highest))

    def _usable_version(self, request: Request[ResponseT], highest: int | None) -> int:
        low, high = request.versions
        broker_low, broker_high = self._versions.get(request.api_key, (0, -1))
        version = min(high if highest is None else highest, broker_high)
        if version < max(low, broker_low):
            raise UnsupportedVersion(
                f"Broker {self._name} supports versions {broker_low} to {broker_high} of {type(request).__name__}, "
                f"but {low} to {highest or high} are needed."
            )
        return version

    def _learn_versions(self) -> None:
        answer = self._exchange(ApiVersionsRequest(), 0)  # which every broker supports
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def _exchange(self, request: Request[ResponseT], version: int) -> ResponseT:
        self._asked += 1
        try:
            self._socket.sendall(b"".join(encode_request(self._asked, _CLIENT_ID, request, version)))
            frame = self._receive()
        except OSError as error:
            raise BrokerConnectionError(f"Broker {self._name} did not answer {type(request).__name__}: {error}.") from (
                error
            )
        correlation_id, body = decode_response_header(frame, type(request), version)
        if correlation_id != self._asked:
            raise ProtocolError(f"Broker {self._name} responded to request {correlation_id} instead of {self._asked}.")
        return type(request).response_type.decode(version, body)

    def _receive(self) -> bytes:
        while (frame := self._frames.next_frame()) is None:
            data = self._socket.recv(_RECEIVE_SIZE)
            if not data:
                raise ConnectionResetError("it closed the connection")
            self._frames.feed(data)
        return frame
