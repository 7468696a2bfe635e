"""One broker: its connection, or the state of the attempts to connect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import anyio

from aioproducer.core.cluster import Node
from aioproducer.errors import KafkaError
from aioproducer.net.connection import Connection
from aioproducer.net.connector import Established
from aioproducer.net.versions import BrokerVersions

__all__ = ["Broker"]


class Broker:
    """The state of one broker as seen by this client. It only remembers; `Brokers` decides."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.connection: Connection | None = None
        self.versions: BrokerVersions | None = None
        self.attempt: anyio.CancelScope | None = None  # while it is being connected
        self.attempts = 0
        self.attempt_at = 0.0  # when the last attempt began, or begins
        self.retry_at = 0.0
        self.failures = 0  # the pauses between attempts grow with it
        self.unreachable = False  # the last attempt to connect failed
        self.error: KafkaError | None = None  # the last error; None after an answer
        self.failed_at = 0.0
        self.failed_attempt_at = 0.0  # when the attempt that failed began
        self.retired = False  # it has left the cluster but still has requests in flight
        self.throttled_until = 0.0
        self._connected_at = 0.0
        self._was_connected = False
        self._throttle: asyncio.TimerHandle | None = None
        self._login: asyncio.TimerHandle | None = None  # until the next login on the open connection

    @property
    def is_connected(self) -> bool:
        """Whether requests can be sent to it."""
        return self.connection is not None

    def supports(self, api: int | None) -> bool:
        """Whether it is known to have this API; None: always."""
        return api is None or (self.versions is not None and api in self.versions.ranges)

    @property
    def is_throttled(self) -> bool:
        """Whether it asked the client to pause (KIP-219)."""
        return self._throttle is not None

    @property
    def is_only_advertised(self) -> bool:
        """Whether it is in the metadata, and was never connected."""
        return self.node.id >= 0 and not self._was_connected

    @property
    def log_fields(self) -> dict[str, object]:
        """The fields of a log line about it; none for a bootstrap server, whose id is only internal."""
        return {"broker_id": self.node.id} if self.node.id >= 0 else {}

    @property
    def in_flight(self) -> int:
        """The number of requests that it has not answered."""
        connection = self.connection  # read once, because any thread may ask
        return 0 if connection is None else connection.in_flight

    def oldest_request_age(self, now: float) -> float:
        """The time in seconds since the oldest of these was sent; 0.0 if there is none. For any thread."""
        connection = self.connection
        return 0.0 if connection is None else connection.oldest_age(now)

    def opened(self, established: Established, now: float) -> None:
        """It is connected. That alone does not reset its failures: it may close again at once."""
        self.connection, self.versions = established.connection, established.versions
        self.unreachable = False
        self._was_connected = True
        self._connected_at = now

    def log_in_at(self, due: float, loop: asyncio.AbstractEventLoop, log_in: Callable[[], object]) -> None:
        """Begin the next login on this connection at ``due``."""
        self._forget_login()
        self._login = loop.call_at(due, log_in)

    def _forget_login(self) -> None:
        if self._login is not None:
            self._login.cancel()
            self._login = None

    def failed(self, error: KafkaError, now: float) -> None:
        """An attempt to connect failed; the caller sets ``retry_at``."""
        self.error, self.failed_at, self.failed_attempt_at = error, now, self.attempt_at
        self.unreachable = True
        self.failures += 1

    def lost(self, error: KafkaError, now: float, long_s: float) -> None:
        """The connection broke. If it lasted longer than ``long_s`` seconds, the pauses start again from the shortest."""
        self.connection = self.versions = None
        self._forget_login()
        self.error, self.failed_at, self.failed_attempt_at = error, now, self.attempt_at
        self.failures = 1 if now - self._connected_at > long_s else self.failures + 1

    def clear_error(self) -> None:
        """Forget its last error, because it has sent a valid answer."""
        self.error = None

    def throttle(self, seconds: float, loop: asyncio.AbstractEventLoop, on_over: Callable[[], object]) -> None:
        """Send it nothing for this time, and extend the deadlines of its requests in flight (KIP-219)."""
        if self.connection is not None:
            self.connection.extend_deadlines(seconds)
        until = loop.time() + seconds
        if until <= self.throttled_until:
            return

        def over() -> None:
            self._throttle = None
            on_over()

        if self._throttle is not None:
            self._throttle.cancel()
        self.throttled_until = until
        self._throttle = loop.call_at(until, over)

    def disconnect(self, error: KafkaError) -> None:
        """Close the connection; this is not the broker's failure. Requests in flight fail with the error."""
        connection, self.connection, self.versions = self.connection, None, None
        self.failures = 0
        self._forget_login()
        if connection is not None:
            connection.abort(error)

    def close(self, error: KafkaError) -> None:
        """Close the connection, end the attempts to connect, cancel the timers."""
        if self._throttle is not None:
            self._throttle.cancel()
            self._throttle = None
        if self.attempt is not None:
            self.attempt.cancel()
        self.disconnect(error)

    def __repr__(self) -> str:
        state = "connected" if self.is_connected else "connecting" if self.attempt is not None else "not connected"
        return f"<Broker {self.node}: {state}, {self.failures} failure(s)>"
