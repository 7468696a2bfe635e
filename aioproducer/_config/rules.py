"""The rules that hold between the options of one configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from ssl import PROTOCOL_TLS_SERVER
from types import MappingProxyType
from typing import Final

from aioproducer._config.options import INT_MAX, OPTIONS, OptionValues

__all__ = ["CONTRADICTIONS", "DERIVED"]

#: What an option is where it was not given, in the order in which one follows from the other.
DERIVED: Final[Mapping[str, Callable[[OptionValues], int]]] = MappingProxyType(
    {
        "batch_size": lambda c: min(c.batch_size, c.buffer_memory),
        "max_request_size": lambda c: min(c.max_request_size, c.buffer_memory),
        # As in Java: what was not given is raised to the sum; what was given is refused below.
        "delivery_timeout_ms": lambda c: min(max(c.delivery_timeout_ms, c.linger_ms + c.request_timeout_ms), INT_MAX),
        "close_timeout_ms": lambda c: c.delivery_timeout_ms,
        "retry_backoff_max_ms": lambda c: max(c.retry_backoff_max_ms, c.retry_backoff_ms),
        # As in Java: the first alone means a constant pause.
        "reconnect_backoff_max_ms": lambda c: (
            c.reconnect_backoff_ms if c.is_explicit("reconnect_backoff_ms") else c.reconnect_backoff_max_ms
        ),
        "socket_connection_setup_timeout_max_ms": lambda c: max(
            c.socket_connection_setup_timeout_max_ms, c.socket_connection_setup_timeout_ms
        ),
    }
)


def _short_delivery_timeout(c: OptionValues) -> str | None:
    if c.delivery_timeout_ms >= min(c.linger_ms + c.request_timeout_ms, INT_MAX):
        return None
    return (
        f"delivery_timeout_ms={c.delivery_timeout_ms} leaves no time for one attempt: it must be at least linger_ms + "
        f"request_timeout_ms = {c.linger_ms} + {c.request_timeout_ms} = {c.linger_ms + c.request_timeout_ms}. Raise "
        f"it, or lower request_timeout_ms."
    )


def _idempotence_undone(c: OptionValues) -> str | None:
    if not c.enable_idempotence:
        return None
    problems = {
        f"acks={c.acks}": (c.acks != -1, "acks='all'"),
        "retries=0": (c.retries == 0, "retries of at least 1"),
        f"max_in_flight_requests_per_connection={c.max_in_flight_requests_per_connection}": (
            c.max_in_flight_requests_per_connection > 5,
            "max_in_flight_requests_per_connection of at most 5",
        ),
    }
    for given, (wrong, needed) in problems.items():
        if wrong:
            return (
                f"{given} rules out idempotence, which is on by default and needs {needed}. If lost, repeated or "
                f"reordered records are acceptable, say so with enable_idempotence=False; Java would switch it off "
                f"silently or refuse."
            )
    return None


def _transactions_undone(c: OptionValues) -> str | None:
    if c.transactional_id is not None and not c.enable_idempotence:
        return (
            f"transactional_id={c.transactional_id!r} needs idempotence, and enable_idempotence=False switches it off; "
            f"leave out one of them."
        )
    if not c.transaction_two_phase_commit_enable:
        return None
    if c.transactional_id is None:
        return "transaction_two_phase_commit_enable=True needs a transactional_id."
    if c.is_explicit("transaction_timeout_ms"):
        return (
            f"transaction_timeout_ms={c.transaction_timeout_ms} contradicts transaction_two_phase_commit_enable=True: "
            f"such a transaction stays open until the outer coordinator decides (KIP-939). Leave the timeout out."
        )
    return None


_LEVELS: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {"gzip": (-1, 9), "lz4": (1, 17), "zstd": (-131_072, 22)}
)


def _wrong_compression_level(c: OptionValues) -> str | None:
    level = c.compression_level
    if level is None:
        return None
    if c.compression_type not in _LEVELS:
        return (
            f"compression_level={level} has no meaning with compression_type={c.compression_type!r}, which has no "
            f"levels; gzip, lz4 and zstd have."
        )
    low, high = _LEVELS[c.compression_type]
    if low <= level <= high and (c.compression_type, level) != ("gzip", 0):
        return None
    allowed = "1 to 9, or -1 for its default" if c.compression_type == "gzip" else f"{low} to {high}"
    return f"compression_level={level} is not a level of {c.compression_type}: it must be {allowed}."


def _larger_than_memory(c: OptionValues) -> str | None:
    for name, size in (("batch_size", c.batch_size), ("max_request_size", c.max_request_size)):
        if size > c.buffer_memory:
            return (
                f"{name}={size} is larger than buffer_memory={c.buffer_memory}: all records that wait must fit in "
                f"buffer_memory, so that size is never reached. Raise buffer_memory or lower {name}."
            )
    return None


def _backoff_above_its_maximum(c: OptionValues) -> str | None:
    for name in ("retry_backoff", "reconnect_backoff", "socket_connection_setup_timeout"):
        first, longest = getattr(c, f"{name}_ms"), getattr(c, f"{name}_max_ms")
        if first > longest:
            return f"{name}_ms={first} is larger than {name}_max_ms={longest}; raise the maximum, or leave it out."
    return None


def _no_rack(c: OptionValues) -> str | None:
    if c.partitioner_rack_aware and not c.client_rack:
        return "partitioner_rack_aware=True needs client_rack, the rack of this client."
    return None


def _unused_by_partitioner(c: OptionValues) -> str | None:
    if c.partitioner in ("round_robin", "consistent", "murmur2", "fnv1a"):  # which leave no record to the default
        unused = _changed(c, "partitioner_")
        if unused:
            return (
                f"{', '.join(unused)} would not be used with partitioner={c.partitioner!r}; leave "
                f"{'it' if len(unused) == 1 else 'them'} out."
            )
    elif isinstance(c.partitioner, str) and c.partitioner_ignore_keys:
        return (
            f"partitioner_ignore_keys contradicts partitioner={c.partitioner!r}, which goes by the key; leave one out."
        )
    elif c.partitioner is not None and c.partitioner_ignore_keys:
        # The other options hold for the records whose partition it leaves to the default by answering None.
        return (
            "partitioner_ignore_keys would not be used with a partitioner of your own, which sees the key and may ignore "
            "it; leave it out."
        )
    if c.partitioner_availability_timeout_ms and not c.partitioner_adaptive_partitioning_enable:
        return (
            f"partitioner_availability_timeout_ms={c.partitioner_availability_timeout_ms} would not be used with "
            f"partitioner_adaptive_partitioning_enable=False, here as in Java; leave out one of them."
        )
    return None


def _unused_security(c: OptionValues) -> str | None:
    for prefix, used, protocols in (("ssl_", c.uses_tls, "SSL or SASL_SSL"), ("sasl_", c.uses_sasl, "SASL_SSL")):
        given = _changed(c, prefix)
        if given and not used:
            return (
                f"{', '.join(given)} would not be used with security_protocol={c.security_protocol!r}; set "
                f"security_protocol to {protocols}, or leave {'it' if len(given) == 1 else 'them'} out."
            )
    return None


def _contradictory_tls(c: OptionValues) -> str | None:
    if c.ssl_context is not None:
        if c.ssl_context.protocol is PROTOCOL_TLS_SERVER:
            return (
                "ssl_context is one of a server (PROTOCOL_TLS_SERVER); ssl.create_default_context() makes a client's."
            )
        others = [n for n in OPTIONS if n.startswith("ssl_") and n != "ssl_context" and c.is_explicit(n)]
        if others:
            return f"ssl_context holds all of TLS, so {', '.join(others)} would not be used; set that on the context."
    if c.ssl_cafile and c.ssl_truststore_certificates:
        return "ssl_cafile and ssl_truststore_certificates both say whom to trust; give one of them."
    if c.ssl_certfile and c.ssl_keystore_certificate_chain:
        return "ssl_certfile and ssl_keystore_certificate_chain both are this client's certificate; give one of them."
    if c.ssl_keyfile and not c.ssl_certfile:
        return "ssl_keyfile is of no use without ssl_certfile, the certificate that belongs to the key."
    if bool(c.ssl_keystore_key) != bool(c.ssl_keystore_certificate_chain):
        return "ssl_keystore_key and ssl_keystore_certificate_chain belong together; give both of them."
    if c.ssl_key_password and not (c.ssl_certfile or c.ssl_keystore_key):
        return "ssl_key_password is of no use without a key: ssl_certfile with ssl_keyfile, or ssl_keystore_key."
    return None


def _incomplete_sasl(c: OptionValues) -> str | None:
    if not c.uses_sasl:
        return None
    if c.sasl_mechanism is None:
        return (
            f"security_protocol={c.security_protocol!r} needs sasl_mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, "
            f"OAUTHBEARER, GSSAPI or AWS_MSK_IAM; there is no default."
        )
    needed = {
        "PLAIN": ("sasl_username", "sasl_password"),
        "SCRAM-SHA-256": ("sasl_username", "sasl_password"),
        "SCRAM-SHA-512": ("sasl_username", "sasl_password"),
        "GSSAPI": ("sasl_kerberos_service_name",),
    }
    unused = _unused_by_mechanism(c)
    if unused:
        return (
            f"{', '.join(unused)} would not be used with sasl_mechanism={c.sasl_mechanism!r}; leave "
            f"{'it' if len(unused) == 1 else 'them'} out."
        )
    if c.sasl_credentials_provider is not None:
        both = _changed(c, "sasl_username") + _changed(c, "sasl_password")
        if both:
            return f"sasl_credentials_provider gives user and password, so {', '.join(both)} would not be used."
        return None
    missing = [name for name in needed.get(c.sasl_mechanism, ()) if getattr(c, name) is None]
    if missing:
        return f"sasl_mechanism={c.sasl_mechanism!r} needs {' and '.join(missing)}."
    return _incomplete_oauth(c) if c.sasl_mechanism == "OAUTHBEARER" else None


_USER: Final = ("sasl_username", "sasl_password", "sasl_credentials_provider")

#: Beginnings of the options that each mechanism takes.
_OF_MECHANISM: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "PLAIN": (*_USER, "sasl_allow_plaintext_secrets"),
        "SCRAM-SHA-256": (*_USER, "sasl_scram_"),
        "SCRAM-SHA-512": (*_USER, "sasl_scram_"),
        "OAUTHBEARER": ("sasl_oauth", "sasl_login_", "sasl_allow_plaintext_secrets"),
        "GSSAPI": ("sasl_kerberos_",),
        "AWS_MSK_IAM": ("sasl_allow_plaintext_secrets",),
    }
)


def _unused_by_mechanism(c: OptionValues) -> list[str]:
    used = ("sasl_mechanism", *_OF_MECHANISM[c.sasl_mechanism or ""])
    return [name for name in _changed(c, "sasl_") if not name.startswith(used)]


def _incomplete_oauth(c: OptionValues) -> str | None:
    if c.sasl_oauth_token_provider is None:
        return (
            "sasl_mechanism='OAUTHBEARER' takes its tokens from sasl_oauth_token_provider; give it a callable, or one of "
            "aioproducer.oauth."
        )
    return None


def _changed(c: OptionValues, prefix: str) -> list[str]:
    """The options that were given, and not as they are in any case."""
    return [n for n in OPTIONS if n.startswith(prefix) and c.is_explicit(n) and getattr(c, n) != OPTIONS[n].default]


CONTRADICTIONS: Final[Sequence[Callable[[OptionValues], str | None]]] = (
    _short_delivery_timeout,
    _transactions_undone,
    _idempotence_undone,
    _wrong_compression_level,
    _larger_than_memory,
    _backoff_above_its_maximum,
    _no_rack,
    _unused_by_partitioner,
    _unused_security,
    _contradictory_tls,
    _incomplete_sasl,
)
