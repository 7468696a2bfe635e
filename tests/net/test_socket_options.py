"""The kernel probes idle connections, and gives up one whose data are not acknowledged."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator

import pytest

from aioproducer.net.socket_options import set_socket_options


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as connected:
        yield connected


def test_an_idle_connection_is_probed_within_seconds_not_hours(sock: socket.socket) -> None:
    set_socket_options(sock, -1, -1)

    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    idle = getattr(socket, "TCP_KEEPIDLE", None) or getattr(socket, "TCP_KEEPALIVE")  # noqa: B009
    assert sock.getsockopt(socket.IPPROTO_TCP, idle) == 15
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == 15
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == 3
    if sys.platform == "linux":
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 20_000


def test_options_that_the_system_lacks_are_left_out(sock: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TCP_KEEPIDLE", "TCP_KEEPALIVE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT"):
        monkeypatch.delattr(socket, name, raising=False)

    set_socket_options(sock, 64 * 1024, 64 * 1024)

    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) >= 64 * 1024


def test_a_unix_socket_is_left_alone() -> None:
    here, there = socket.socketpair()
    with here, there:
        set_socket_options(here, 4096, 4096)

        assert not here.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
