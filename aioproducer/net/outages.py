"""Logs that no broker is reached, and what to check: otherwise a service that starts without Kafka would be silent."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from math import inf
from typing import Final, NamedTuple

from aioproducer.config import ProducerConfig
from aioproducer.core.cluster import ClusterMetadata
from aioproducer.core.outage import Outage
from aioproducer.errors import AuthenticationError, KafkaError
from aioproducer.net.broker import Broker
from aioproducer.net.brokers import Brokers
from aioproducer.net.signal import Signal
from aioproducer.runtime.log import ClientLog

__all__ = ["OutageLog", "Reach"]

_LOGIN: Final = "Check security_protocol={protocol!r}, the login (sasl_ options) and the certificates (ssl_ options)."
_LISTENER: Final = (
    "Check that Kafka listens at this port, and that security_protocol={protocol!r} matches the listener."
)

#: What to check, by the first of these classes that matches the error.
_ADVICE: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (socket.gaierror, "Check the spelling, and that this machine can resolve the host name."),
    (ConnectionRefusedError, "Check that Kafka is running, and that host and port are those of one of its listeners."),
    (
        TimeoutError,
        "Check host and port, whether a firewall drops the packets, and that security_protocol={protocol!r} matches the "
        "listener.",
    ),
    (ConnectionError, _LISTENER),
    (ssl.SSLError, _LISTENER),
    (OSError, "Check host and port, and the network."),
    (KafkaError, _LISTENER),
)
_NEVER_REACHED: Final = "Kafka has not been reached for %s since the start (bootstrap servers %s). %s Still trying."
_AWAY: Final = "No broker has been reached for %s (bootstrap servers %s). %s Still trying."
_NO_ERROR_YET: Final = "No attempt has failed yet, and none has succeeded. Check whether a firewall drops the packets."
_ADVERTISED: Final = (
    " This address comes from the cluster's metadata, not from bootstrap_servers: check advertised.listeners of the "
    "broker."
)

_MINUTE_S: Final = 60
_HOUR_S: Final = 3600


class Reach(NamedTuple):
    """Whether brokers can be reached, as far as known."""

    is_reached: bool
    failed: Broker | None  # the broker that failed last and has not answered since
    error: KafkaError | None  # that broker's error, or that of the metadata

    @classmethod
    def of(cls, brokers: Brokers, metadata: ClusterMetadata, error: KafkaError | None) -> Reach:
        """The current state; ``error`` is the last error, or None if its cause is known to be gone."""
        is_connected = any(broker.node.id >= 0 for broker in brokers.connected())
        # No connection and no error: there was nothing to send for a long time.
        return cls(is_connected or (error is None and bool(metadata.nodes)), brokers.failed_last, error)


class OutageLog:
    """Watches one client. ``changed`` wakes it when connections or metadata change; ``look`` returns the current state."""

    def __init__(self, config: ProducerConfig, log: ClientLog, changed: Signal, look: Callable[[], Reach]) -> None:
        self._config = config
        self._log = log
        self._changed = changed
        self._look = look
        self._loop = asyncio.get_running_loop()
        self._outage = Outage()
        self._was_reached = False

    async def run(self) -> None:
        """Log until cancelled. Cancellation: ends at once."""
        outage, reached_at = self._outage, -inf
        outage.begin(self._loop.time())
        while True:
            now, reach = self._loop.time(), self._look()
            if reach.is_reached:
                self._was_reached, reached_at = True, now
                lasted = outage.end(now)
                if lasted is not None:
                    self._log.info("Kafka was reached after %s.", _words(lasted))
            elif reach.failed is not None and reach.failed.failed_at > reached_at:
                outage.begin(now)  # closed idle connections are not an outage
            if now >= outage.report_at:
                self._report(outage.report(now), reach)
            await self._changed.wait(None if outage.report_at == inf else outage.report_at)

    def _report(self, lasted: float, reach: Reach) -> None:
        self._log.warning(
            _AWAY if self._was_reached else _NEVER_REACHED,
            _words(lasted),
            ", ".join(self._config.bootstrap_servers),
            self._last_error(reach),
            extra={} if reach.failed is None else reach.failed.log_fields,
        )

    def _last_error(self, reach: Reach) -> str:
        error, failed = reach.error, reach.failed
        if error is None:
            return _NO_ERROR_YET
        advice = _advice(error).format(protocol=self._config.security_protocol)
        advertised = _ADVERTISED if failed is not None and failed.is_only_advertised else ""
        return f"Last error: {_with_cause(error)} {advice}{advertised}"


def _advice(error: KafkaError) -> str:
    """The advice what to check: about the refusal if brokers refuse this client, otherwise about the error's root cause."""
    chain = list(_chain(error))
    if any(isinstance(each, AuthenticationError) for each in chain):
        return _LOGIN
    return next(text for each in reversed(chain) for kind, text in _ADVICE if isinstance(each, kind))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:  # Python allows an error to be its own cause
        seen.add(id(error))
        yield error
        error = error.__cause__


def _with_cause(error: KafkaError) -> str:
    """The error's text and those of its causes, without repetitions."""
    text = str(error)
    for cause in _chain(error.__cause__):
        number = cause.errno if isinstance(cause, OSError) else None
        why = os.strerror(number) if number is not None and number > 0 else str(cause)
        if why and why not in text:
            text = f"{text.rstrip('.')} ({why})."
    return text if text.endswith((".", "?")) else f"{text}."


def _words(seconds: float) -> str:
    if seconds < 2 * _MINUTE_S:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR_S:
        return f"{seconds / _MINUTE_S:.0f} min"
    return f"{seconds / _HOUR_S:.1f} h"
