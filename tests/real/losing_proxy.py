"""Stands between clients and a real broker, and loses what a test names: a request, or the answer to one that was served."""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, Self, TypeVarTuple

from aioproducer.protocol import ApiKey

__all__ = ["LosingProxy"]

What = Literal["request", "answer"]
_Ts = TypeVarTuple("_Ts")


class LosingProxy:
    """Forwards frame by frame; its address is what the broker advertises (``KafkaCluster(advertise=proxy.advertise)``).

    ``seen`` counts the requests that came, by their API, and ``versions`` has the version of the last one; ``lost`` counts
    those of which something was lost. While ``is_mute`` is set, every answer is lost, and connections stay open.
    """

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.versions: dict[str, int] = {}
        self.lost: Counter[str] = Counter()
        self.is_mute = False
        self._lock = threading.Lock()
        self._plans: dict[ApiKey, What] = {}
        self._target = ("127.0.0.1", 0)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients."""
        return f"127.0.0.1:{self._listening.getsockname()[1]}"

    def advertise(self, broker_id: int, port: int) -> str:
        """Stand before the broker that listens there."""
        self._target = ("127.0.0.1", port)
        return self.bootstrap_servers

    def lose(self, api: ApiKey, what: What) -> None:
        """Close the connection once: instead of forwarding the next such request, or when the answer to it has come."""
        with self._lock:
            self._plans[api] = what

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        with self._lock:
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        assert not any(thread.is_alive() for thread in self._threads)

    def _start(self, work: Callable[[*_Ts], None], *given: *_Ts) -> None:
        thread = threading.Thread(target=work, args=given, name="losing-proxy", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listening.accept()
                self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError, EOFError), socket.create_connection(self._target) as broker:
            with self._lock:
                self._open |= {client, broker}
            doomed: list[int] = []  # the correlation ids of the requests whose answers are lost
            self._start(self._answer, broker, client, doomed)
            try:
                while self._forward(_read(client), broker, doomed):
                    pass
            finally:
                with suppress(OSError):
                    broker.shutdown(socket.SHUT_RDWR)
                with self._lock:
                    self._open -= {client, broker}

    def _forward(self, frame: bytes, broker: socket.socket, doomed: list[int]) -> bool:
        key, version, correlation_id = struct.unpack_from(">hhi", frame)
        api = ApiKey(key)
        with self._lock:
            self.seen[api.name] += 1
            self.versions[api.name] = version
            what = self._plans.pop(api, None)
            if what is not None:
                self.lost[api.name] += 1
        if what == "request":
            return False
        if what == "answer":
            doomed.append(correlation_id)
        broker.sendall(struct.pack(">i", len(frame)) + frame)
        return True

    def _answer(self, broker: socket.socket, client: socket.socket, doomed: list[int]) -> None:
        with suppress(OSError, EOFError):
            while True:
                frame = _read(broker)
                if struct.unpack_from(">i", frame)[0] in doomed:
                    break
                if self.is_mute:
                    continue
                client.sendall(struct.pack(">i", len(frame)) + frame)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)


def _read(connection: socket.socket) -> bytes:
    """The next frame. Raises EOFError where there is none."""
    (size,) = struct.unpack(">i", _read_exactly(connection, 4))
    return _read_exactly(connection, size)


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    read = bytearray()
    while len(read) < size:
        more = connection.recv(size - len(read))
        if not more:
            raise EOFError
        read += more
    return bytes(read)
