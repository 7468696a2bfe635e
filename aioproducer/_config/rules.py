"""The rules between the options of one configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from ssl import PROTOCOL_TLS_SERVER
from types import MappingProxyType
from typing import Final

from aioproducer._config.compression import named_codecs
from aioproducer._config.options import INT_MAX, OPTIONS, OptionValues

__all__ = ["CONTRADICTIONS", "DERIVED"]

#: Values of options that were not given, in the order in which one is derived from another.
DERIVED: Final[Mapping[str, Callable[[OptionValues], int]]] = MappingProxyType(
    {
        "batch_size": lambda c: min(c.batch_size, c.buffer_memory),
        "max_request_size": lambda c: min(c.max_request_size, c.buffer_memory),
        # As in Java: raised to the sum if it was not given; a given value is refused below.
        "delivery_timeout_ms": lambda c: min(max(c.delivery_timeout_ms, c.linger_ms + c.request_timeout_ms), INT_MAX),
        "close_timeout_ms": lambda c: c.delivery_timeout_ms,
        "retry_backoff_max_ms": lambda c: max(c.retry_backoff_max_ms, c.retry_backoff_ms),
        # As in Java: the first one alone means a constant pause.
        "reconnect_backoff_max_ms": lambda c: (
            c.reconnect_backoff_ms if c.is_explicit("reconnect_backoff_ms") else c.reconnect_backoff_max_ms
        ),
        "socket_connection_setup_timeout_max_ms": lambda c: max(
            c.socket_connection_setup_timeout_max_ms, c.socket_connection_setup_timeout_ms
        ),
    }
)


def _short_delivery_timeout(c: OptionValues) -> Iterator[str]:
    if c.delivery_timeout_ms >= min(c.linger_ms + c.request_timeout_ms, INT_MAX):
        return
    yield (
        f"delivery_timeout_ms={c.delivery_timeout_ms} leaves no time for one attempt: it must be at least linger_ms + "
        f"request_timeout_ms = {c.linger_ms} + {c.request_timeout_ms} = {c.linger_ms + c.request_timeout_ms}. Raise "
        f"it, or lower request_timeout_ms."
    )


def _idempotence_undone(c: OptionValues) -> Iterator[str]:
    if not c.enable_idempotence:
        return
    needs = {
        f"acks={c.acks}": (c.acks != -1, "acks='all'"),
        "retries=0": (c.retries == 0, "retries of at least 1"),
        f"max_in_flight_requests_per_connection={c.max_in_flight_requests_per_connection}": (
            c.max_in_flight_requests_per_connection > 5,
            "max_in_flight_requests_per_connection of at most 5",
        ),
    }
    wrong = {given: needed for given, (is_wrong, needed) in needs.items() if is_wrong}
    if wrong:
        yield (
            f"{' and '.join(wrong)} {'rules' if len(wrong) == 1 else 'rule'} out idempotence, which is on by default and "
            f"needs {' and '.join(wrong.values())}. If lost, repeated or reordered records are acceptable, say so with "
            f"enable_idempotence=False; Java would turn it off silently or refuse."
        )


def _transactions_undone(c: OptionValues) -> Iterator[str]:
    if c.transactional_id is not None and not c.enable_idempotence:
        yield (
            f"transactional_id={c.transactional_id!r} needs idempotence, and enable_idempotence=False turns it off; "
            f"leave out one of them."
        )
    if not c.transaction_two_phase_commit_enable:
        return
    if c.transactional_id is None:
        yield "transaction_two_phase_commit_enable=True needs a transactional_id."
    if c.is_explicit("transaction_timeout_ms"):
        yield (
            f"transaction_timeout_ms={c.transaction_timeout_ms} contradicts transaction_two_phase_commit_enable=True: "
            f"such a transaction stays open until the outer coordinator decides (KIP-939). Leave the timeout out."
        )


def _data_loss_without_sequences(c: OptionValues) -> Iterator[str]:
    if c.on_data_loss != "stop":
        return
    if c.transactional_id is not None:
        yield (
            f"on_data_loss='stop' has no meaning with transactional_id={c.transactional_id!r}: a lost record fails the "
            f"whole transaction, so that no later one is committed without it. Leave on_data_loss out."
        )
    elif not c.enable_idempotence:
        yield (
            "on_data_loss='stop' needs idempotence, and enable_idempotence=False turns it off: without sequence numbers, "
            "brokers write batches that are in flight behind a lost one. Leave out one of them."
        )


_LEVELS: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {"gzip": (-1, 9), "lz4": (1, 17), "zstd": (-131_072, 22)}
)


def _wrong_compression_level(c: OptionValues) -> Iterator[str]:
    level = c.compression_level
    if level is None:
        return
    # Topics without compression need no level, so that a mapping with some of them may have one.
    for codec in sorted(named_codecs(c.compression_type)) or ["none"]:
        yield from _wrong_level(codec, level)


def _wrong_level(codec: str, level: int) -> Iterator[str]:
    if codec not in _LEVELS:
        yield (
            f"compression_level={level} has no meaning with compression_type={codec!r}, which has no levels. Leave it "
            f"out, or use gzip, lz4 or zstd."
        )
        return
    low, high = _LEVELS[codec]
    if low <= level <= high and (codec, level) != ("gzip", 0):
        return
    allowed = "1 to 9, or -1 for its default" if codec == "gzip" else f"{low} to {high}"
    yield f"compression_level={level} is not a level of {codec}: it must be {allowed}."


def _larger_than_memory(c: OptionValues) -> Iterator[str]:
    for name, size in (("batch_size", c.batch_size), ("max_request_size", c.max_request_size)):
        if size > c.buffer_memory:
            yield (
                f"{name}={size} is larger than buffer_memory={c.buffer_memory}: all records that wait must fit in "
                f"buffer_memory, so that size is never reached. Raise buffer_memory or lower {name}."
            )


def _backoff_above_its_maximum(c: OptionValues) -> Iterator[str]:
    for name in ("retry_backoff", "reconnect_backoff", "socket_connection_setup_timeout"):
        first, longest = getattr(c, f"{name}_ms"), getattr(c, f"{name}_max_ms")
        if first > longest:
            yield f"{name}_ms={first} is larger than {name}_max_ms={longest}; raise the maximum, or leave it out."


def _names_looked_up_twice(c: OptionValues) -> Iterator[str]:
    if c.proxy is None or c.client_dns_lookup != "resolve_canonical_bootstrap_servers_only":
        return
    from aioproducer._config.proxy_url import parse_proxy  # few producers have a proxy

    proxy = parse_proxy(c.proxy)
    if proxy.resolves_names:
        yield (
            f"client_dns_lookup={c.client_dns_lookup!r} resolves names on this machine, but the proxy {proxy} resolves "
            f"them itself; leave client_dns_lookup out, or use socks5://."
        )


def _no_rack(c: OptionValues) -> Iterator[str]:
    if c.partitioner_rack_aware and not c.client_rack:
        yield "partitioner_rack_aware=True needs client_rack, the rack of this client."


def _unused_by_partitioner(c: OptionValues) -> Iterator[str]:
    if c.partitioner in ("round_robin", "consistent", "murmur2", "fnv1a"):  # they leave no record to the default
        unused = _changed(c, "partitioner_")
        if unused:
            yield (
                f"{', '.join(unused)} would not be used with partitioner={c.partitioner!r}; leave "
                f"{'it' if len(unused) == 1 else 'them'} out."
            )
            return
    elif isinstance(c.partitioner, str) and c.partitioner_ignore_keys:
        yield (f"partitioner_ignore_keys contradicts partitioner={c.partitioner!r}, which uses the key; leave one out.")
    elif c.partitioner is not None and c.partitioner_ignore_keys:
        # The other options apply to records whose partition it leaves to the default by returning None.
        yield (
            "partitioner_ignore_keys would not be used with your own partitioner, which sees the key and may ignore "
            "it; leave it out."
        )
    if c.partitioner_availability_timeout_ms and not c.partitioner_adaptive_partitioning_enable:
        yield (
            f"partitioner_availability_timeout_ms={c.partitioner_availability_timeout_ms} would not be used with "
            f"partitioner_adaptive_partitioning_enable=False, here as in Java; leave out one of them."
        )


def _unused_security(c: OptionValues) -> Iterator[str]:
    tls = [] if c.uses_tls else _changed(c, "ssl_")
    sasl = [] if c.uses_sasl else _changed(c, "sasl_")
    given = tls + sasl
    if given:
        protocols = "SASL_SSL" if sasl else "SSL or SASL_SSL"
        yield (
            f"{', '.join(given)} would not be used with security_protocol={c.security_protocol!r}; set "
            f"security_protocol to {protocols}, or leave {'it' if len(given) == 1 else 'them'} out."
        )


def _contradictory_tls(c: OptionValues) -> Iterator[str]:
    if c.ssl_context is not None:
        if c.ssl_context.protocol is PROTOCOL_TLS_SERVER:
            yield ("ssl_context is a server's (PROTOCOL_TLS_SERVER); ssl.create_default_context() creates a client's.")
        others = [n for n in OPTIONS if n.startswith("ssl_") and n != "ssl_context" and c.is_explicit(n)]
        if others:
            yield f"ssl_context replaces all TLS options, so {', '.join(others)} would not be used; set that on the context."
        return
    if c.ssl_cafile and c.ssl_truststore_certificates:
        yield "ssl_cafile and ssl_truststore_certificates both set the trusted authorities; give one of them."
    if c.ssl_certfile and c.ssl_keystore_certificate_chain:
        yield "ssl_certfile and ssl_keystore_certificate_chain both set this client's certificate; give one of them."
    if c.ssl_keyfile and not c.ssl_certfile:
        yield "ssl_keyfile needs ssl_certfile, the certificate that belongs to the key."
    if bool(c.ssl_keystore_key) != bool(c.ssl_keystore_certificate_chain):
        yield "ssl_keystore_key and ssl_keystore_certificate_chain belong together; give both of them."
    if c.ssl_key_password and not (c.ssl_certfile or c.ssl_keystore_key):
        yield "ssl_key_password needs a key: ssl_certfile with ssl_keyfile, or ssl_keystore_key."


def _incomplete_sasl(c: OptionValues) -> Iterator[str]:
    if not c.uses_sasl:
        return
    if c.sasl_mechanism is None:
        yield (
            f"security_protocol={c.security_protocol!r} needs sasl_mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, "
            f"OAUTHBEARER, GSSAPI or AWS_MSK_IAM; there is no default."
        )
        return
    needed = {
        "PLAIN": ("sasl_username", "sasl_password"),
        "SCRAM-SHA-256": ("sasl_username", "sasl_password"),
        "SCRAM-SHA-512": ("sasl_username", "sasl_password"),
        "GSSAPI": ("sasl_kerberos_service_name",),
    }
    unused = _unused_by_mechanism(c)
    if unused:
        yield (
            f"{', '.join(unused)} would not be used with sasl_mechanism={c.sasl_mechanism!r}; leave "
            f"{'it' if len(unused) == 1 else 'them'} out."
        )
    if c.sasl_credentials_provider is not None:
        both = _changed(c, "sasl_username") + _changed(c, "sasl_password")
        if both:
            yield f"sasl_credentials_provider returns user and password, so {', '.join(both)} would not be used."
        return
    missing = [name for name in needed.get(c.sasl_mechanism, ()) if getattr(c, name) is None]
    if missing:
        yield f"sasl_mechanism={c.sasl_mechanism!r} needs {' and '.join(missing)}."
    if c.sasl_mechanism == "OAUTHBEARER" and c.sasl_oauth_token_provider is None:
        yield (
            "sasl_mechanism='OAUTHBEARER' needs sasl_oauth_token_provider for its tokens; pass a callable, or one of "
            "aioproducer.oauth."
        )


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


def _changed(c: OptionValues, prefix: str) -> list[str]:
    """The options that were given and differ from their defaults."""
    return [n for n in OPTIONS if n.startswith(prefix) and c.is_explicit(n) and getattr(c, n) != OPTIONS[n].default]


CONTRADICTIONS: Final[Sequence[Callable[[OptionValues], Iterator[str]]]] = (
    _short_delivery_timeout,
    _transactions_undone,
    _idempotence_undone,
    _data_loss_without_sequences,
    _wrong_compression_level,
    _larger_than_memory,
    _backoff_above_its_maximum,
    _names_looked_up_twice,
    _no_rack,
    _unused_by_partitioner,
    _unused_security,
    _contradictory_tls,
    _incomplete_sasl,
)
