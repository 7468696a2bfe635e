"""Sets the options of a connection's socket."""

from __future__ import annotations

import socket
from typing import Final

__all__ = ["set_socket_options"]

#: Seconds of silence before the kernel probes the other side, seconds between probes, and unanswered probes that end the
#: connection: Go's defaults. The kernel's own first probe comes after two hours, when a load balancer that drops idle
#: connections without a word (Azure's after 4 minutes) has long done so.
_KEEP_ALIVE: Final = (("TCP_KEEPIDLE", 15), ("TCP_KEEPALIVE", 15), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 3))

#: Milliseconds after which sent data that the other side's kernel has not acknowledged end the connection; gRPC's value.
_USER_TIMEOUT_MS: Final = 20_000


def set_socket_options(sock: socket.socket, send_buffer: int, receive_buffer: int) -> None:
    """Set the options of a connected TCP socket; buffer sizes in bytes, -1 for the system's default.

    Options that the system does not have are left out.
    """
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (*_KEEP_ALIVE, ("TCP_USER_TIMEOUT", _USER_TIMEOUT_MS)):
        option: int | None = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
    for option, size in ((socket.SO_SNDBUF, send_buffer), (socket.SO_RCVBUF, receive_buffer)):
        if size != -1:
            sock.setsockopt(socket.SOL_SOCKET, option, size)
