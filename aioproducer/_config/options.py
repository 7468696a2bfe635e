"""Every option of a producer, declared once: name, type, default, valid values, purpose."""

# ruff: noqa: RUF009 - options are declared by functions that return dataclasses.field()

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias, TypedDict, TypeVar, cast

from aioproducer._config.compression import Compression, CompressionByTopic, CompressionType, PreferredCodecs
from aioproducer._config.kinds import (
    AcksChoice,
    Choice,
    Ciphers,
    File,
    Flag,
    Hook,
    Hooks,
    Kind,
    PartitionerHook,
    Pem,
    ProxyUrl,
    Real,
    SecretText,
    SerializerHook,
    SslContext,
    Text,
    Whole,
)
from aioproducer._config.option import Option
from aioproducer._config.secret import Secret
from aioproducer._config.servers import Servers
from aioproducer.errors import DeliveryError
from aioproducer.serializers import NOT_GIVEN, MessageField, Serializer

__all__ = [
    "INT_MAX",
    "OPTIONS",
    "Acks",
    "CompressionByTopic",
    "CompressionType",
    "ConfigOf",
    "MetricReporter",
    "OptionValues",
    "OptionsWithoutSerializers",
    "PartitionerName",
    "PartitionerOption",
    "PreferredCodecs",
    "ProducerOptions",
    "TokenProvider",
    "describe_options",
    "with_serializers",
]

Acks: TypeAlias = Literal[-1, 0, 1]
ClientDnsLookup: TypeAlias = Literal["use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"]
OnDataLoss: TypeAlias = Literal["continue", "stop"]
MetadataRecoveryStrategy: TypeAlias = Literal["none", "rebootstrap"]
SecurityProtocol: TypeAlias = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism: TypeAlias = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM"]
TlsVersion: TypeAlias = Literal["TLSv1.2", "TLSv1.3"]


class PartitionerObject(Protocol):
    """A partitioner with its own state."""

    @property
    def partition(self) -> Callable[..., int | None]:
        """Chooses the partition of one record; None leaves the choice to the default."""
        ...


class TokenProvider(Protocol):
    """The source of OAuth tokens."""

    @property
    def token(self) -> Callable[..., object]:
        """Return a fresh token; a coroutine function or a plain one."""
        ...


class MetricReporter(Protocol):
    """Receives measurements."""

    @property
    def record(self) -> Callable[..., object]:
        """Called with each measurement."""
        ...


PartitionerName: TypeAlias = Literal[
    "round_robin", "consistent", "consistent_random", "murmur2", "murmur2_random", "fnv1a", "fnv1a_random"
]
PartitionerOption: TypeAlias = PartitionerName | Callable[..., int | None] | PartitionerObject


INT_MAX: Final = 2**31 - 1

_T = TypeVar("_T")


class _Declared(NamedTuple):
    """An option's declaration besides its name, type and default.

    ``java_key`` is None if it is the name with dots, and empty if Java has no such key.
    """

    kind: Kind
    doc: str
    java_key: str | None


def _option(default: _T, kind: Kind, doc: str, *, ours: bool = False, java: str | None = None) -> _T:
    """Declares an option: ``ours`` has no Java key; ``java`` is the key if it is not the name with dots."""
    return field(default=default, metadata={"option": _Declared(kind, doc, "" if ours else java)})


def _ms(default: int, doc: str, low: int = 0, high: int = 2**63 - 1) -> int:
    return _option(default, Whole(low, high, "milliseconds"), doc)


def _ms_or_none(doc: str, *, ours: bool = False) -> int | None:
    return _option(None, Whole(0, 2**63 - 1, "milliseconds", optional=True), doc, ours=ours)


def _flag(default: bool, doc: str, *, ours: bool = False) -> bool:
    return _option(default, Flag(), doc, ours=ours)


def _text_or_none(doc: str, *, ours: bool = False) -> str | None:
    return _option(None, Text(optional=True), doc, ours=ours)


def _file(doc: str, java: str | None = None) -> str | None:
    return _option(None, File(), doc, ours=java is None, java=java)


def _secret(doc: str, *, ours: bool = False) -> Secret | None:
    return _option(None, SecretText(), doc, ours=ours)


class OptionsWithoutSerializers(TypedDict, total=False):
    """The options as keywords that do not determine which keys and values a producer takes."""

    client_dns_lookup: ClientDnsLookup
    bootstrap_resolve_timeout_ms: int
    client_id: str
    client_rack: str
    acks: Literal[-1, 0, 1, "all", "-1", "0", "1"]
    retries: int
    delivery_timeout_ms: int
    max_block_ms: int
    request_timeout_ms: int
    linger_ms: int
    batch_size: int
    buffer_memory: int
    max_request_size: int
    max_in_flight_requests_per_connection: int
    compression_type: (
        CompressionType | Sequence[CompressionType] | Mapping[str, CompressionType | Sequence[CompressionType]]
    )
    compression_level: int | None
    compression_threshold_bytes: int
    partitioner: PartitionerOption | None
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: int
    partitioner_ignore_keys: bool
    partitioner_rack_aware: bool
    enable_idempotence: bool
    producer_id_expiration_ms: int
    on_data_loss: OnDataLoss
    transactional_id: str | None
    transaction_timeout_ms: int
    transaction_two_phase_commit_enable: bool
    interceptors: Sequence[object]
    on_delivery_error: Callable[[DeliveryError], object] | None
    close_timeout_ms: int
    unknown_topic_timeout_ms: int | None
    allow_auto_create_topics: bool
    metadata_max_age_ms: int
    metadata_max_idle_ms: int
    metadata_recovery_strategy: MetadataRecoveryStrategy
    metadata_recovery_rebootstrap_trigger_ms: int
    metadata_cluster_check_enable: bool
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    connections_max_idle_ms: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    proxy: str | Secret | None
    enable_metrics_push: bool
    metric_reporters: Sequence[MetricReporter]
    security_protocol: SecurityProtocol
    ssl_context: ssl.SSLContext | None
    ssl_cafile: str | os.PathLike[str] | None
    ssl_certfile: str | os.PathLike[str] | None
    ssl_keyfile: str | os.PathLike[str] | None
    ssl_key_password: str | Secret | None
    ssl_truststore_certificates: str | None
    ssl_keystore_certificate_chain: str | None
    ssl_keystore_key: str | Secret | None
    ssl_cipher_suites: str | Sequence[str]
    ssl_min_version: TlsVersion
    sasl_mechanism: SaslMechanism | None
    sasl_username: str | None
    sasl_password: str | Secret | None
    sasl_credentials_provider: Callable[[], object] | None
    sasl_scram_max_iterations: int
    sasl_allow_plaintext_secrets: bool
    sasl_oauth_token_provider: TokenProvider | Callable[[], object] | None
    sasl_kerberos_service_name: str | None
    sasl_login_refresh_window_factor: float
    sasl_login_refresh_window_jitter: float
    sasl_login_refresh_min_period_seconds: int
    sasl_login_refresh_buffer_seconds: int


class ProducerOptions(OptionsWithoutSerializers, total=False):
    """The options as keywords, for type checkers: ``Producer("host:9092", **options: Unpack[ProducerOptions])``.

    `ProducerConfig` documents each of them (`OPTIONS`, for programs).
    """

    key_serializer: Serializer | None
    value_serializer: Serializer | None


_KeyT_co = TypeVar("_KeyT_co", covariant=True)
_ValueT_co = TypeVar("_ValueT_co", covariant=True)


class ConfigOf(Protocol[_KeyT_co, _ValueT_co]):
    """A `ProducerConfig` for type checkers, which then infer Any: its serializers are not part of its type."""

    @property
    def _key_type(self) -> _KeyT_co: ...
    @property
    def _value_type(self) -> _ValueT_co: ...


def with_serializers(
    options: OptionsWithoutSerializers, key_serializer: object, value_serializer: object
) -> ProducerOptions:
    """The options together with the serializers that are not `NOT_GIVEN`."""
    given: dict[str, object] = {**options}
    if key_serializer is not NOT_GIVEN:
        given["key_serializer"] = key_serializer
    if value_serializer is not NOT_GIVEN:
        given["value_serializer"] = value_serializer
    return cast("ProducerOptions", given)


@dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class OptionValues:
    """The value of every option, and whether it was given explicitly."""

    bootstrap_servers: tuple[str, ...] = _option(
        (), Servers(), "Brokers to contact first: 'host:port,host' or a sequence"
    )
    client_dns_lookup: ClientDnsLookup = _option(
        "use_all_dns_ips",
        Choice(("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")),
        "How broker names are resolved to addresses",
    )
    bootstrap_resolve_timeout_ms: int = _ms(
        0, "Has no effect: names are resolved in the background, for as long as anything waits (Java: KIP-909)"
    )
    client_id: str = _option("", Text(empty=True), "Name in the brokers' logs and quotas; '': generated")
    client_rack: str = _option("", Text(empty=True), "Rack of this client, for partitioner_rack_aware (KIP-1123)")
    key_serializer: Serializer | None = _option(
        None, SerializerHook(MessageField.KEY), "Turns key objects into bytes, plain or async; None: only bytes and str"
    )
    value_serializer: Serializer | None = _option(
        None,
        SerializerHook(MessageField.VALUE),
        "Turns value objects into bytes, plain or async; None: only bytes and str",
    )
    acks: Acks = _option(
        -1, AcksChoice(), "Replicas that must acknowledge: all in sync ('all', -1), the leader (1), none (0)"
    )
    retries: int = _option(
        INT_MAX, Whole(0, INT_MAX), "Attempts after the first; delivery_timeout_ms is the effective limit"
    )
    delivery_timeout_ms: int = _ms(
        120_000, "Time in which a record succeeds or fails; at least linger_ms + request_timeout_ms", high=INT_MAX
    )
    max_block_ms: int = _ms(60_000, "Time that a send waits for metadata and for room in buffer_memory")
    request_timeout_ms: int = _ms(30_000, "Time that a request waits for its response", high=INT_MAX)
    linger_ms: int = _ms(5, "Time that a batch waits for more records while an earlier one is in flight")
    # Java allocates its 16,384 bytes for each batch at once. Here a batch takes memory as it fills, and larger ones
    # cost less: python -m benchmarks.batch_sizes, with the figures in benchmarks/notes.md.
    batch_size: int = _option(
        262_144,
        Whole(0, INT_MAX, "bytes"),
        "Bytes at which a batch is full, 0: no batching; Java's default is 16,384, allocated at once",
    )
    buffer_memory: int = _option(
        33_554_432, Whole(1, unit="bytes"), "Bytes for all accepted records that are not yet acknowledged"
    )
    max_request_size: int = _option(
        1_048_576, Whole(1, INT_MAX, "bytes"), "Bytes of the largest request, and of the largest uncompressed record"
    )
    max_in_flight_requests_per_connection: int = _option(
        5, Whole(1, INT_MAX), "Unanswered requests to one broker; at most 5 with idempotence"
    )
    compression_type: CompressionType | PreferredCodecs | CompressionByTopic = _option(
        "none",
        Compression(("none", "gzip", "snappy", "lz4", "zstd")),
        "How batches are compressed: a codec, or several by preference, for all topics or by topic; as text: zstd,lz4 or "
        "logs:zstd|gzip,*:lz4",
    )
    compression_level: int | None = _option(
        None,
        Whole(-131_072, 22, optional=True),
        "Level of every codec in use: gzip 1..9 or -1, lz4 1..17, zstd -131072..22; None: the codec's default",
        ours=True,
    )
    compression_threshold_bytes: int = _option(
        32_768, Whole(0, unit="bytes"), "Batches at least this large are compressed in a worker thread", ours=True
    )
    partitioner: PartitionerOption | None = _option(
        None,
        PartitionerHook(
            "a callable, an object with a method partition(), 'round_robin', or one of librdkafka's 'consistent', "
            "'consistent_random', 'murmur2', 'murmur2_random', 'fnv1a', 'fnv1a_random'",
            ("partition",),
        ),
        "Chooses partitions; None: murmur2 of the key, or sticky and uniform without a key (KIP-794)",
        java="partitioner.class",
    )
    partitioner_adaptive_partitioning_enable: bool = _flag(True, "Send less to partitions of slow brokers")
    partitioner_availability_timeout_ms: int = _ms(
        0, "Avoid partitions whose broker accepts no data for this long; 0: never"
    )
    partitioner_ignore_keys: bool = _flag(False, "Spread records with keys like those without")
    partitioner_rack_aware: bool = _flag(False, "Prefer partitions whose leader is in client_rack (KIP-1123)")
    enable_idempotence: bool = _flag(True, "No duplicates and no reordering across retries")
    producer_id_expiration_ms: int = _option(
        86_400_000,
        Whole(-1, unit="milliseconds"),
        "The brokers' producer.id.expiration.ms: records with older timestamps are not retried once they may be written, "
        "except in transactions; -1: always retry",
        ours=True,
    )
    on_data_loss: OnDataLoss = _option(
        "continue",
        Choice(("continue", "stop")),
        "What follows a record that was lost: the next ones of its partition, or none of them until resume() is called",
        ours=True,
    )
    transactional_id: str | None = _text_or_none("Identity of this producer across restarts; None: no transactions")
    transaction_timeout_ms: int = _ms(
        60_000, "The coordinator aborts a transaction that is open for longer", 1, INT_MAX
    )
    transaction_two_phase_commit_enable: bool = _flag(False, "Transactions wait for an outer coordinator (KIP-939)")
    interceptors: tuple[object, ...] = _option(
        (),
        Hooks(
            "a sequence of objects with begin_send(), begin_bulk(), on_send(), on_acknowledgement() or close()",
            ("configure", "begin_send", "begin_bulk", "on_send", "on_acknowledgement", "close"),
        ),
        "Objects that see every record and its outcome, plain or async (KIP-42)",
        java="interceptor.classes",
    )
    on_delivery_error: Callable[[DeliveryError], object] | None = _option(
        None,
        Hook("a callable that takes the error"),
        "Called for every failed record whose outcome is not awaited, plain or async",
        ours=True,
    )
    close_timeout_ms: int = _option(
        120_000,
        Whole(0, unit="milliseconds"),
        "Time that close() waits for records to be delivered; default: delivery_timeout_ms",
        ours=True,
    )
    unknown_topic_timeout_ms: int | None = _ms_or_none(
        "Time after which a send to an unknown topic fails; None: max_block_ms", ours=True
    )
    allow_auto_create_topics: bool = _flag(True, "Let brokers create a topic when it is first requested", ours=True)
    metadata_max_age_ms: int = _ms(300_000, "Age at which metadata are always refreshed")
    metadata_max_idle_ms: int = _ms(300_000, "Time after which an unused topic is forgotten", low=5_000)
    metadata_recovery_strategy: MetadataRecoveryStrategy = _option(
        "rebootstrap", Choice(("none", "rebootstrap")), "What to do when all known brokers are gone (KIP-899)"
    )
    metadata_recovery_rebootstrap_trigger_ms: int = _ms(
        300_000, "Time without metadata after which the bootstrap servers are used again (KIP-1102)"
    )
    metadata_cluster_check_enable: bool = _flag(
        True, "Brokers (from 4.4 on) check their cluster and node id; on a mismatch, bootstrap again (KIP-1242)"
    )
    retry_backoff_ms: int = _ms(100, "Pause before the first retry; doubles with each retry, +/- 20 %")
    retry_backoff_max_ms: int = _ms(1_000, "Longest pause before a retry; at least retry_backoff_ms")
    reconnect_backoff_ms: int = _ms(50, "Pause before reconnecting to a broker; doubles with each failure")
    reconnect_backoff_max_ms: int = _ms(
        1_000, "Longest such pause; default: reconnect_backoff_ms if that is given, so no doubling"
    )
    socket_connection_setup_timeout_ms: int = _ms(10_000, "Time to set up a connection; doubles with each failure")
    socket_connection_setup_timeout_max_ms: int = _ms(30_000, "Longest such time; at least the one above")
    connections_max_idle_ms: int = _ms(540_000, "Time after which an unused connection is closed; -1: never", low=-1)
    send_buffer_bytes: int = _option(
        131_072, Whole(-1, INT_MAX, "bytes"), "SO_SNDBUF; -1: the system's default", java="send.buffer.bytes"
    )
    receive_buffer_bytes: int = _option(
        32_768, Whole(-1, INT_MAX, "bytes"), "SO_RCVBUF; -1: the system's default", java="receive.buffer.bytes"
    )
    proxy: Secret | None = _option(
        None,
        ProxyUrl(),
        "Proxy for all connections to brokers, which resolves their names unless it is socks5; HTTP_PROXY and ALL_PROXY are "
        "ignored; needs the extra `proxy`",
        ours=True,
    )
    enable_metrics_push: bool = _flag(
        True, "Push metrics to brokers that subscribe to them (KIP-714); needs the extra `telemetry`"
    )
    metric_reporters: tuple[MetricReporter, ...] = _option(
        (), Hooks("a sequence of objects with a method record()", ("record",)), "Objects that receive measurements"
    )
    security_protocol: SecurityProtocol = _option(
        "PLAINTEXT", Choice(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")), "Whether to use TLS, SASL, or both"
    )
    ssl_context: ssl.SSLContext | None = _option(
        None, SslContext("an ssl.SSLContext"), "Your own TLS context; excludes other ssl_ options", ours=True
    )
    ssl_cafile: str | None = _file("PEM file of the trusted authorities; None: the system's", "ssl.truststore.location")
    ssl_certfile: str | None = _file("PEM file of this client's certificate chain (and key)", "ssl.keystore.location")
    ssl_keyfile: str | None = _file("PEM file of this client's key, if it is not in ssl_certfile")
    ssl_key_password: Secret | None = _secret("Password of this client's key")
    ssl_truststore_certificates: str | None = _option(None, Pem(), "Trusted authorities, as PEM text (KIP-651)")
    ssl_keystore_certificate_chain: str | None = _option(
        None, Pem(), "This client's certificate chain, as PEM text (KIP-651)"
    )
    ssl_keystore_key: Secret | None = _secret("This client's key, as PEM text (KIP-651)")
    ssl_cipher_suites: tuple[str, ...] = _option(
        (), Ciphers(), "OpenSSL names of the TLS 1.2 ciphers; (): OpenSSL's default"
    )
    ssl_min_version: TlsVersion = _option(
        "TLSv1.2", Choice(("TLSv1.2", "TLSv1.3")), "Oldest TLS to accept", java="ssl.enabled.protocols"
    )
    sasl_mechanism: SaslMechanism | None = _option(
        None,
        Choice(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM"), optional=True),
        "SASL mechanism; required with SASL (Java's default is GSSAPI)",
    )
    sasl_username: str | None = _text_or_none("User for PLAIN and SCRAM", ours=True)
    sasl_password: Secret | None = _secret("Password for PLAIN and SCRAM", ours=True)
    sasl_credentials_provider: Callable[[], object] | None = _option(
        None,
        Hook("a callable that returns user name and password, plain or async"),
        "Called at each login for user and password of PLAIN and SCRAM, if they may change",
        ours=True,
    )
    sasl_scram_max_iterations: int = _option(
        100_000, Whole(4_096, 10_000_000), "Highest SCRAM iteration count that is accepted from a broker", ours=True
    )
    sasl_allow_plaintext_secrets: bool = _flag(
        False, "Allow PLAIN, OAUTHBEARER and AWS_MSK_IAM to other machines without encryption", ours=True
    )
    sasl_oauth_token_provider: TokenProvider | Callable[[], object] | None = _option(
        None,
        Hook("a callable that returns a token, plain or async, or an object with a method token()", ("token",)),
        "Provides tokens for OAUTHBEARER",
        ours=True,
    )
    sasl_kerberos_service_name: str | None = _text_or_none("Service name of the brokers for GSSAPI, usually 'kafka'")
    sasl_login_refresh_window_factor: float = _option(
        0.8, Real(0.5, 1.0), "Fraction of a token's lifetime after which it is renewed"
    )
    sasl_login_refresh_window_jitter: float = _option(0.05, Real(0.0, 0.25), "Random variation of that fraction")
    sasl_login_refresh_min_period_seconds: int = _option(60, Whole(0, 900, "seconds"), "Shortest time between renewals")
    sasl_login_refresh_buffer_seconds: int = _option(
        300, Whole(0, 3_600, "seconds"), "Renew a token this long before it expires"
    )
    _explicit: frozenset[str] = field(default=frozenset(), compare=False)

    def compression_of(self, topic: str) -> CompressionType:
        """The name of the codec for the topic's batches; of several, the first one."""
        return self.compressions_of(topic)[0]

    def compressions_of(self, topic: str) -> tuple[CompressionType, ...]:
        """The names of the codecs for the topic's batches, in order of preference."""
        codecs = self.compression_type
        if isinstance(codecs, CompressionByTopic):
            return codecs.codecs(topic)
        return codecs if isinstance(codecs, PreferredCodecs) else (codecs,)

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether connections authenticate with SASL."""
        return self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    def is_explicit(self, name: str) -> bool:
        """Whether the option was given, rather than left at its default."""
        return name in self._explicit


def _declared_options() -> Iterator[Option]:
    for declared in fields(OptionValues):
        option = cast("_Declared | None", declared.metadata.get("option"))
        if option is not None:
            java_key = declared.name.replace("_", ".") if option.java_key is None else option.java_key or None
            yield Option(declared.name, str(declared.type), declared.default, java_key, option.doc, option.kind)


#: Every option by its name, in the order of the documentation.
OPTIONS: Final[Mapping[str, Option]] = MappingProxyType({option.name: option for option in _declared_options()})


def describe_options() -> str:
    """All options as a Markdown table, a row each: name, default, valid values, purpose, and Java's key."""
    lines = ["| option | default | must be | what it is for | Java |", "|---|---|---|---|---|"]
    for option in OPTIONS.values():
        default = "*required*" if option.name == "bootstrap_servers" else f"`{option.kind.show(option.default)}`"
        java = "" if option.java_key is None else f"`{option.java_key}`"
        lines.append(f"| `{option.name}` | {default} | {option.allowed} | {option.doc} | {java} |")
    return "\n".join(lines)
