"""aiokafka's options with its defaults, and the options of `aioproducer.Producer` that stand for them."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypedDict, cast

from aioproducer.config import OAuthToken, ProducerOptions
from aioproducer.contrib.aiokafka.records import Serializer
from aioproducer.core.partitioner import PartitionIds
from aioproducer.errors import ConfigError

__all__ = ["AIOKafkaOptions", "Options", "Partitioner", "create_ssl_context"]

#: Chooses a partition: called with the serialized key, all partitions, and those that have a leader.
Partitioner: TypeAlias = Callable[[bytes | None, list[int], list[int]], int]

_BUFFER_MEMORY: Final = 33_554_432
_INT_MAX: Final = 2**31 - 1
_SECURE: Final = ("SSL", "SASL_SSL")
_SASL: Final = ("SASL_PLAINTEXT", "SASL_SSL")

#: The default of ``acks``, which depends on idempotence.
_UNSET: Final = "unset"


class AIOKafkaOptions(TypedDict, total=False):
    """The keywords of `AIOKafkaProducer`, for type checkers; `Options` has the defaults."""

    bootstrap_servers: str | Sequence[str]
    client_id: str | None
    metadata_max_age_ms: int
    request_timeout_ms: int
    acks: int | str
    key_serializer: Serializer | None
    value_serializer: Serializer | None
    compression_type: str | None
    max_batch_size: int
    partitioner: Partitioner
    max_request_size: int
    linger_ms: int
    retry_backoff_ms: int
    security_protocol: str
    ssl_context: ssl.SSLContext | None
    connections_max_idle_ms: int | None
    enable_idempotence: bool
    transactional_id: str | None
    transaction_timeout_ms: int
    sasl_mechanism: str
    sasl_plain_password: str | None
    sasl_plain_username: str | None
    sasl_kerberos_service_name: str
    sasl_kerberos_domain_name: str | None
    sasl_oauth_token_provider: object


@dataclass(frozen=True, kw_only=True)
class Options:
    """aiokafka's options; the passwords are not shown."""

    bootstrap_servers: str | Sequence[str] = "localhost"
    client_id: str | None = None
    metadata_max_age_ms: int = 300_000
    request_timeout_ms: int = 40_000
    acks: int | str = _UNSET
    key_serializer: Serializer | None = None
    value_serializer: Serializer | None = None
    compression_type: str | None = None
    max_batch_size: int = 16_384
    partitioner: Partitioner | None = None
    max_request_size: int = 1_048_576
    linger_ms: int = 0
    retry_backoff_ms: int = 100
    security_protocol: str = "PLAINTEXT"
    ssl_context: ssl.SSLContext | None = None
    connections_max_idle_ms: int | None = 540_000
    enable_idempotence: bool = False
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    sasl_mechanism: str = "PLAIN"
    sasl_plain_password: str | None = None
    sasl_plain_username: str | None = None
    sasl_kerberos_service_name: str = "kafka"
    sasl_kerberos_domain_name: str | None = None
    sasl_oauth_token_provider: object = None

    def __repr__(self) -> str:
        return f"<Options for {self.bootstrap_servers!r}>"

    @property
    def is_idempotent(self) -> bool:
        """Whether retries write no duplicates; always with transactions."""
        return self.enable_idempotence or self.transactional_id is not None

    @property
    def waits_for_no_acknowledgement(self) -> bool:
        """Whether records succeed without metadata, because of ``acks=0``."""
        return self.acks == 0

    @property
    def sends_secrets_in_the_clear(self) -> bool:
        """Whether the login sends a password or token without encryption."""
        return self.security_protocol == "SASL_PLAINTEXT" and self.sasl_mechanism in ("PLAIN", "OAUTHBEARER")

    def for_producer(self) -> ProducerOptions:
        """Return the same as options of `aioproducer.Producer`; raises `ConfigError` for one that cannot be honoured."""
        for name in ("key_serializer", "value_serializer", "partitioner"):
            hook: object = getattr(self, name)
            if hook is not None and not callable(hook):
                raise ConfigError(f"Invalid {name}={hook!r}: must be a callable.")
        return cast(
            "ProducerOptions", {**self._delivery(), **self._batches(), **self._security(), **self._connections()}
        )

    def _delivery(self) -> ProducerOptions:
        acks = self.acks
        if acks == _UNSET:
            acks = -1 if self.is_idempotent else 1
        if acks not in (0, 1, -1, "all"):
            raise ConfigError(f"Invalid acks={acks!r}: must be 0, 1, -1 or 'all'.")
        if self.is_idempotent and acks not in (-1, "all"):
            raise ConfigError(f"acks={acks!r} contradicts enable_idempotence=True, which needs acks='all'.")
        options: dict[str, object] = {
            "acks": acks,
            "enable_idempotence": self.is_idempotent,
            "request_timeout_ms": self.request_timeout_ms,
            "max_block_ms": self.request_timeout_ms,
            "delivery_timeout_ms": min(self.linger_ms + 2 * self.request_timeout_ms, _INT_MAX),
            "retry_backoff_ms": self.retry_backoff_ms,
            "retry_backoff_max_ms": self.retry_backoff_ms,
        }
        if not self.is_idempotent:
            options["max_in_flight_requests_per_connection"] = 1  # a retry would overtake otherwise
        if self.transactional_id is not None:
            options |= {
                "transactional_id": self.transactional_id,
                "transaction_timeout_ms": self.transaction_timeout_ms,
            }
        return cast("ProducerOptions", options)

    def _batches(self) -> ProducerOptions:
        options: dict[str, object] = {
            "compression_type": self.compression_type or "none",
            "batch_size": self.max_batch_size,
            "linger_ms": self.linger_ms,
            "max_request_size": self.max_request_size,
            "buffer_memory": max(_BUFFER_MEMORY, 2 * self.max_request_size, 2 * self.max_batch_size),
        }
        if self.partitioner is not None:
            options["partitioner"] = _Partitioning(self.partitioner)
        return cast("ProducerOptions", options)

    def _connections(self) -> ProducerOptions:
        idle = self.connections_max_idle_ms
        return ProducerOptions(
            client_id=self.client_id or "",
            metadata_max_age_ms=self.metadata_max_age_ms,
            connections_max_idle_ms=-1 if idle is None else idle,
        )

    def _security(self) -> ProducerOptions:
        if self.security_protocol in _SECURE and self.ssl_context is None:
            raise ConfigError(
                f"security_protocol={self.security_protocol!r} needs ssl_context; create_ssl_context() creates one."
            )
        if self.sasl_kerberos_domain_name is not None:
            raise ConfigError(
                f"sasl_kerberos_domain_name={self.sasl_kerberos_domain_name!r} is not supported: the host name of the "
                "broker determines the domain. Leave it out."
            )
        given: dict[str, object] = {
            "security_protocol": self.security_protocol,
            "ssl_context": self.ssl_context,
            "sasl_username": self.sasl_plain_username,
            "sasl_password": self.sasl_plain_password,
            "sasl_oauth_token_provider": _tokens(self.sasl_oauth_token_provider),
        }
        if self.security_protocol in _SASL or self.sasl_mechanism != "PLAIN":
            given["sasl_mechanism"] = self.sasl_mechanism
        if self.sasl_mechanism == "GSSAPI" or self.sasl_kerberos_service_name != "kafka":
            given["sasl_kerberos_service_name"] = self.sasl_kerberos_service_name
        if self.sends_secrets_in_the_clear:
            given["sasl_allow_plaintext_secrets"] = True
        return cast("ProducerOptions", {name: value for name, value in given.items() if value is not None})


class _Partitioning:
    """Calls a partitioner with aiokafka's arguments."""

    def __init__(self, partitioner: Partitioner) -> None:
        self._partitioner = partitioner

    def __call__(self, topic: str, key: bytes | None, value: bytes | None, partitions: PartitionIds, /) -> int:
        return self._partitioner(key, list(partitions), list(partitions.available))


def _tokens(provider: Any) -> Callable[[], object] | None:
    """An AbstractTokenProvider of aiokafka as a callable: ``token()`` is a coroutine, ``extensions()`` may be missing."""
    if provider is None:
        return None
    if not callable(getattr(provider, "token", None)):
        raise ConfigError(f"Invalid sasl_oauth_token_provider={provider!r}: must have a coroutine method token().")

    async def token() -> OAuthToken:
        text: str = await provider.token()
        extensions: Mapping[str, str] = provider.extensions() if hasattr(provider, "extensions") else {}
        return OAuthToken(text, extensions=extensions)

    return token


def create_ssl_context(
    *,
    cafile: str | os.PathLike[str] | None = None,
    capath: str | os.PathLike[str] | None = None,
    cadata: str | bytes | None = None,
    certfile: str | os.PathLike[str] | None = None,
    keyfile: str | os.PathLike[str] | None = None,
    password: Callable[[], str | bytes | bytearray] | str | bytes | bytearray | None = None,
) -> ssl.SSLContext:
    """Return a context that verifies brokers and their host names, for ``ssl_context``.

    Trusted are the authorities of ``cafile``, ``capath`` or ``cadata`` (PEM text or DER bytes); without any, the system's.
    ``certfile`` has this client's certificate chain, ``keyfile`` its key, if that is separate. Raises OSError for a file
    that cannot be read, ssl.SSLError for invalid contents.
    """
    context = ssl.create_default_context(cafile=cafile, capath=capath, cadata=cadata)
    if certfile is not None:
        context.load_cert_chain(certfile, keyfile, password)
    return context
