"""Every option of a producer, once: name, type, default, what it may be, what it is for.

What is promised: Kafka's names in snake_case with the defaults of Kafka 4.x's Java producer; an option that is unknown,
malformed or contradicts another one raises `ConfigError` with the reason and the way out, and nothing that was asked
for is switched off silently. No secret ever stands in a repr, in a log line or in the text of an error.

The same options come from keywords, from Java's properties, from a URL and from the environment; all four ways end in
the same checks.
"""

# ruff: noqa: RUF009 - options are declared by functions that return dataclasses.field()

from __future__ import annotations

import difflib
import importlib
import ipaddress
import math
import os
import pickle
import re
import ssl
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from hmac import compare_digest
from pathlib import Path
from reprlib import Repr
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias, TypedDict, TypeVar, Unpack, cast
from urllib.parse import unquote

from aioproducer.errors import ConfigError, DeliveryError
from aioproducer.serializers import (
    IntegerSerializer,
    LongSerializer,
    MessageField,
    Serializer,
    StringSerializer,
    prepare_serializer,
)

__all__ = [
    "DEFAULT_PORT",
    "OPTIONS",
    "Acks",
    "Address",
    "CompressionType",
    "MetricReporter",
    "Option",
    "PartitionerOption",
    "ProducerConfig",
    "ProducerOptions",
    "Secret",
    "TokenProvider",
    "describe_options",
    "parse_bootstrap_servers",
]

DEFAULT_PORT: Final = 9092

Acks: TypeAlias = Literal[-1, 0, 1]
CompressionType: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]
ClientDnsLookup: TypeAlias = Literal["use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"]
MetadataRecoveryStrategy: TypeAlias = Literal["none", "rebootstrap"]
SecurityProtocol: TypeAlias = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism: TypeAlias = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM"]
TlsVersion: TypeAlias = Literal["TLSv1.2", "TLSv1.3"]
AssertionAlgorithm: TypeAlias = Literal["RS256", "ES256"]


class PartitionerObject(Protocol):
    """A partitioner with state of its own."""

    @property
    def partition(self) -> Callable[..., int | None]:
        """Chooses the partition of one record; None leaves the choice to the default."""
        ...


class TokenProvider(Protocol):
    """Where OAuth tokens come from."""

    @property
    def token(self) -> Callable[..., object]:
        """An ``async def token()`` (a plain one will do) that returns a fresh token."""
        ...


class MetricReporter(Protocol):
    """Who is told about measurements."""

    @property
    def record(self) -> Callable[..., object]:
        """Called with each measurement."""
        ...


PartitionerOption: TypeAlias = Literal["round_robin"] | Callable[..., int | None] | PartitionerObject


class Secret:
    """A password or a key that shows itself to nobody: ``str``, ``repr`` and ``format`` all give ``Secret('***')``.

    `reveal` gives the text. Pickling carries it in the clear, for otherwise a configuration would be of no use in
    another process: treat a pickled configuration like the password itself.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str | Secret) -> None:
        self._text = text.reveal() if isinstance(text, Secret) else text

    def reveal(self) -> str:
        """The text itself."""
        return self._text

    def __repr__(self) -> str:
        return "Secret('***')"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return compare_digest(self._text.encode(errors="surrogatepass"), other._text.encode(errors="surrogatepass"))

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        return Secret, (self._text,)


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap_servers(servers: object) -> tuple[Address, ...]:
    """The brokers named by ``"host:port,host"`` or by a sequence of such; the port is 9092 where none is given.

    IPv6 addresses stand in brackets: ``[::1]:9092``. Raises `ConfigError` for an empty list, for an address that is
    none, and for one that occurs twice, as Java does.
    """
    addresses = tuple(_parse_address(entry) for entry in _split_servers(servers))
    if not addresses:
        raise ConfigError(
            "bootstrap_servers is empty; name at least one broker, for example bootstrap_servers='localhost:9092'."
        )
    for position, address in enumerate(addresses):
        if address in addresses[:position]:
            raise ConfigError(f"bootstrap_servers names {address} twice; name every broker once.")
    return addresses


# --- What an option may be: each kind checks a value, and reads one from text -----------------------------------------

_short = Repr()
_short.maxstring = _short.maxother = 80


class _Kind:
    """What the values of an option may be."""

    #: Whether None is a value.
    optional: bool = False

    def check(self, name: str, value: object) -> object:
        """``value`` as the configuration keeps it, or `ConfigError`."""
        if value is None:
            if self.optional:
                return None
            raise _refusal(name, value, f"{self.allowed()}; leave the option out for its default")
        return self.convert(name, value)

    def parse(self, name: str, text: str) -> object:
        """``text`` as the value that it spells; then to be checked."""
        return text

    def convert(self, name: str, value: object) -> object:
        raise NotImplementedError

    def allowed(self) -> str:
        raise NotImplementedError


@dataclass(frozen=True)
class _Whole(_Kind):
    """A whole number from ``low`` to ``high``; ``unit`` says of what."""

    low: int = 0
    high: int = 2**63 - 1
    unit: str = ""
    optional: bool = False

    def convert(self, name: str, value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not self.low <= value <= self.high:
            raise _refusal(name, value, self.allowed())
        return int(value)

    def parse(self, name: str, text: str) -> int:
        if re.fullmatch(r"[+-]?[0-9]{1,19}", text.strip()) is None:
            raise _refusal(name, text, self.allowed())
        return int(text)

    def allowed(self) -> str:
        number = f"a whole number{f' of {self.unit}' if self.unit else ''}"
        return f"{number}, at least {self.low}" if self.high == 2**63 - 1 else f"{number}, {self.low} to {self.high}"


@dataclass(frozen=True)
class _Real(_Kind):
    low: float
    high: float

    def convert(self, name: str, value: object) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not self.low <= value <= self.high:
            raise _refusal(name, value, self.allowed())
        return float(value)

    def parse(self, name: str, text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if math.isnan(number):
            raise _refusal(name, text, self.allowed())
        return number

    def allowed(self) -> str:
        return f"a number from {self.low} to {self.high}"


class _Flag(_Kind):
    _texts: Final = MappingProxyType({"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False})

    def convert(self, name: str, value: object) -> bool:
        if not isinstance(value, bool):
            raise _refusal(name, value, self.allowed())
        return value

    def parse(self, name: str, text: str) -> bool:
        value = self._texts.get(text.strip().lower())
        if value is None:
            raise _refusal(name, text, "true or false")
        return value

    def allowed(self) -> str:
        return "True or False"


@dataclass(frozen=True)
class _Text(_Kind):
    empty: bool = False
    optional: bool = False

    def convert(self, name: str, value: object) -> str:
        if not isinstance(value, str) or not (value or self.empty):
            raise _refusal(name, value, self.allowed())
        return value

    def allowed(self) -> str:
        return "text" if self.empty else "text that is not empty"


class _File(_Kind):
    optional = True

    def convert(self, name: str, value: object) -> str:
        path = os.fspath(cast("os.PathLike[str]", value)) if hasattr(value, "__fspath__") else value
        if not isinstance(path, str) or not path:
            raise _refusal(name, value, self.allowed())
        if "-----BEGIN " in path:
            raise ConfigError(
                f"{name} is {self.allowed()}, and what was given is PEM text; that goes into {_PEM_TEXT}."
            )
        return path

    def allowed(self) -> str:
        return "the path of a file"


class _Pem(_Kind):
    """Certificates as text; never shown in errors, for a key may stand among them."""

    optional = True

    def convert(self, name: str, value: object) -> str:
        if not isinstance(value, str) or "-----BEGIN " not in value:
            raise ConfigError(f"{name} must be {self.allowed()}, with lines -----BEGIN; a file goes into {_PEM_FILE}.")
        return value

    def allowed(self) -> str:
        return "certificates as PEM text"


_PEM_FILE = "ssl_cafile, ssl_certfile or ssl_keyfile"
_PEM_TEXT = "ssl_truststore_certificates, ssl_keystore_certificate_chain or ssl_keystore_key"


class _SecretText(_Kind):
    """Text that no error may show."""

    optional = True

    def convert(self, name: str, value: object) -> Secret:
        if not isinstance(value, str | Secret) or not value:
            raise ConfigError(f"{name} must be {self.allowed()}; what was given is {_type_of(value)}.")
        return Secret(value)

    def allowed(self) -> str:
        return "a str or a Secret that is not empty"


@dataclass(frozen=True)
class _Choice(_Kind):
    choices: tuple[str, ...]
    optional: bool = False

    def convert(self, name: str, value: object) -> str:
        # Kafka matches most of these without regard to case; so the caller's spelling is mended, not refused.
        for choice in self.choices:
            if isinstance(value, str) and value.strip().lower() == choice.lower():
                return choice
        raise _refusal(name, value, self.allowed(), nearest=difflib.get_close_matches(str(value), self.choices, 1))

    def allowed(self) -> str:
        return f"one of {', '.join(map(repr, self.choices))}"


class _Acks(_Kind):
    _values: Final = MappingProxyType({"all": -1, "-1": -1, "0": 0, "1": 1})

    def convert(self, name: str, value: object) -> int:
        acks = None if isinstance(value, bool) else self._values.get(str(value).strip().lower())
        if acks is None:
            raise _refusal(name, value, self.allowed())
        return acks

    def allowed(self) -> str:
        return "'all' (the same as -1), 1 or 0"


class _Servers(_Kind):
    def convert(self, name: str, value: object) -> tuple[str, ...]:
        return tuple(str(address) for address in parse_bootstrap_servers(value))

    def allowed(self) -> str:
        return "'host:port,host:port' or a sequence of 'host:port'"


@dataclass(frozen=True)
class _Words(_Kind):
    """Several texts; in one text they are separated by commas or colons, as OpenSSL and Java do."""

    def convert(self, name: str, value: object) -> tuple[str, ...]:
        words = tuple(filter(None, re.split(r"[,:\s]+", value))) if isinstance(value, str) else _members(value)
        if not all(isinstance(word, str) and word for word in words):
            raise _refusal(name, value, self.allowed())
        return cast("tuple[str, ...]", words)

    def allowed(self) -> str:
        return "a sequence of text"


@dataclass(frozen=True)
class _Hook(_Kind):
    """A callable, or an object with one of ``methods``."""

    what: str
    methods: tuple[str, ...] = ()
    optional: bool = True

    def convert(self, name: str, value: object) -> object:
        if not self.fits(value):
            # Not shown: somebody may give a token where its provider belongs.
            raise ConfigError(f"{name} must be {self.allowed()}, and what was given is {_type_of(value)}.")
        return value

    def parse(self, name: str, text: str) -> object:
        raise ConfigError(f"{name} must be {self.allowed()}, which text cannot spell; pass it as a keyword in Python.")

    def fits(self, value: object) -> bool:
        return callable(value) or any(callable(getattr(value, method, None)) for method in self.methods)

    def allowed(self) -> str:
        return self.what


@dataclass(frozen=True)
class _SerializerHook(_Kind):
    field: MessageField
    optional: bool = True

    def convert(self, name: str, value: object) -> object:
        prepare_serializer(cast("Serializer", value), self.field)
        return value

    def parse(self, name: str, text: str) -> object:
        class_name = text.strip().rsplit(".", 1)[-1]
        if class_name not in _JAVA_SERIALIZERS:
            raise _refusal(name, text, f"one of Java's {', '.join(_JAVA_SERIALIZERS)}, or a callable passed in Python")
        return _JAVA_SERIALIZERS[class_name]

    def allowed(self) -> str:
        return "a callable f(obj) or f(obj, ctx), plain or async"


class _PartitionerHook(_Hook):
    _names: Final = MappingProxyType({"round_robin": "round_robin", "RoundRobinPartitioner": "round_robin"})

    def fits(self, value: object) -> bool:
        if isinstance(value, str | bytes | bytearray):  # which have a method partition(), too
            return value == "round_robin"
        return super().fits(value)

    def parse(self, name: str, text: str) -> object:
        known = self._names.get(text.strip().rsplit(".", 1)[-1])
        if known is None:
            raise _refusal(name, text, f"{self.allowed()}; only 'round_robin' can be spelled as text")
        return known


@dataclass(frozen=True)
class _Hooks(_Hook):
    """A sequence of objects, each with at least one of ``methods``."""

    optional: bool = False

    def convert(self, name: str, value: object) -> tuple[object, ...]:
        members = _members(value)
        for member in members:
            if isinstance(member, type) or not any(callable(getattr(member, method, None)) for method in self.methods):
                raise _refusal(name, member, self.allowed())
        return members


class _SslContext(_Hook):
    def fits(self, value: object) -> bool:
        return isinstance(value, ssl.SSLContext)


def _members(value: object) -> tuple[object, ...]:
    """The members of a sequence; anything else as the one member, to be refused as such."""
    return tuple(cast("Iterable[object]", value)) if hasattr(value, "__iter__") else (value,)


def _refusal(name: str, value: object, allowed: str, nearest: Sequence[str] = ()) -> ConfigError:
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    return ConfigError(f"{name}={_short.repr(value)} is not possible: it must be {allowed}.{hint}")


def _type_of(value: object) -> str:
    return "empty" if value == "" or value == Secret("") else f"of type {type(value).__name__}"


_INT_MAX: Final = 2**31 - 1

_JAVA_SERIALIZERS: Final[Mapping[str, Serializer | None]] = MappingProxyType(
    {
        "ByteArraySerializer": None,
        "ByteBufferSerializer": None,
        "BytesSerializer": None,
        "StringSerializer": StringSerializer(),
        "IntegerSerializer": IntegerSerializer(),
        "LongSerializer": LongSerializer(),
    }
)

_T = TypeVar("_T")


class _Declared(NamedTuple):
    """What an option's declaration says besides its name, type and default.

    ``java_key`` is None where it is the name with dots in it, and empty where Java has no such key.
    """

    kind: _Kind
    doc: str
    java_key: str | None


def _option(default: _T, kind: _Kind, doc: str, *, ours: bool = False, java: str | None = None) -> _T:
    """Declares an option: ``ours`` has no Java key; ``java`` is the key where it is not the name with dots."""
    return field(default=default, metadata={"option": _Declared(kind, doc, "" if ours else java)})


def _ms(default: int, doc: str, low: int = 0, high: int = 2**63 - 1) -> int:
    return _option(default, _Whole(low, high, "milliseconds"), doc)


def _ms_or_none(doc: str, *, ours: bool = False) -> int | None:
    return _option(None, _Whole(0, 2**63 - 1, "milliseconds", optional=True), doc, ours=ours)


def _flag(default: bool, doc: str, *, ours: bool = False) -> bool:
    return _option(default, _Flag(), doc, ours=ours)


def _text_or_none(doc: str, *, ours: bool = False) -> str | None:
    return _option(None, _Text(optional=True), doc, ours=ours)


def _file(doc: str, java: str | None = None) -> str | None:
    return _option(None, _File(), doc, ours=java is None, java=java)


def _secret(doc: str, *, ours: bool = False) -> Secret | None:
    return _option(None, _SecretText(), doc, ours=ours)


class ProducerOptions(TypedDict, total=False):
    """The options as keywords, for type checkers: ``Producer("host:9092", **options: Unpack[ProducerOptions])``.

    What each of them means stands in `ProducerConfig` (and in `OPTIONS`, for programs).
    """

    client_dns_lookup: ClientDnsLookup
    bootstrap_resolve_timeout_ms: int
    client_id: str
    client_rack: str
    key_serializer: Serializer | None
    value_serializer: Serializer | None
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
    compression_type: CompressionType
    compression_level: int | None
    compression_threshold_bytes: int
    partitioner: PartitionerOption | None
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: int
    partitioner_ignore_keys: bool
    partitioner_rack_aware: bool
    enable_idempotence: bool
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
    ssl_check_hostname: bool
    ssl_cipher_suites: str | Sequence[str]
    ssl_min_version: TlsVersion
    sasl_mechanism: SaslMechanism | None
    sasl_username: str | None
    sasl_password: str | Secret | None
    sasl_oauth_token_provider: TokenProvider | Callable[[], object] | None
    sasl_kerberos_service_name: str | None
    sasl_login_refresh_window_factor: float
    sasl_login_refresh_window_jitter: float
    sasl_login_refresh_min_period_seconds: int
    sasl_login_refresh_buffer_seconds: int
    sasl_login_connect_timeout_ms: int | None
    sasl_login_read_timeout_ms: int | None
    sasl_login_retry_backoff_ms: int
    sasl_login_retry_backoff_max_ms: int
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: str | Secret | None
    sasl_oauthbearer_header_urlencode: bool
    sasl_oauthbearer_assertion_algorithm: AssertionAlgorithm
    sasl_oauthbearer_assertion_claim_aud: str | None
    sasl_oauthbearer_assertion_claim_iss: str | None
    sasl_oauthbearer_assertion_claim_sub: str | None
    sasl_oauthbearer_assertion_claim_exp_seconds: int
    sasl_oauthbearer_assertion_claim_nbf_seconds: int
    sasl_oauthbearer_assertion_claim_jti_include: bool
    sasl_oauthbearer_assertion_file: str | os.PathLike[str] | None
    sasl_oauthbearer_assertion_private_key_file: str | os.PathLike[str] | None
    sasl_oauthbearer_assertion_private_key_passphrase: str | Secret | None
    sasl_oauthbearer_assertion_template_file: str | os.PathLike[str] | None


@dataclass(frozen=True, slots=True, init=False, repr=False)
class ProducerConfig:
    """The options of a producer, checked and complete; immutable, comparable, and picklable with its secrets.

    ``ProducerConfig("host:9092", linger_ms=20)`` raises `ConfigError` for anything that is wrong. Four values follow
    from others where they were not given, as each of them says: `delivery_timeout_ms`, `close_timeout_ms`, the maximum
    of each backoff, and `batch_size` and `max_request_size` in a small `buffer_memory`.
    """

    bootstrap_servers: tuple[str, ...] = _option((), _Servers(), "Brokers to ask first: 'host:port,host' or a sequence")
    client_dns_lookup: ClientDnsLookup = _option(
        "use_all_dns_ips",
        _Choice(("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")),
        "How the names of brokers become addresses",
    )
    bootstrap_resolve_timeout_ms: int = _ms(
        0, "How long to go on resolving the bootstrap servers; 0: one try (KIP-909)"
    )
    client_id: str = _option("", _Text(empty=True), "Name in the brokers' logs and quotas; '': the producer makes one")
    client_rack: str = _option("", _Text(empty=True), "Rack of this client, for partitioner_rack_aware (KIP-1123)")
    key_serializer: Serializer | None = _option(
        None, _SerializerHook(MessageField.KEY), "Key object to bytes, plain or async; None: bytes and str as they are"
    )
    value_serializer: Serializer | None = _option(
        None,
        _SerializerHook(MessageField.VALUE),
        "Value object to bytes, plain or async; None: bytes and str as they are",
    )
    acks: Acks = _option(
        -1, _Acks(), "Who must have a record before it counts: all in sync ('all', -1), leader (1), none (0)"
    )
    retries: int = _option(
        _INT_MAX, _Whole(0, _INT_MAX), "Attempts after the first; delivery_timeout_ms is the real bound"
    )
    delivery_timeout_ms: int = _ms(
        120_000, "Time in which a record succeeds or fails; at least linger_ms + request_timeout_ms", high=_INT_MAX
    )
    max_block_ms: int = _ms(60_000, "Time that a send waits for metadata and for room in buffer_memory")
    request_timeout_ms: int = _ms(30_000, "Time for one request to be answered", high=_INT_MAX)
    linger_ms: int = _ms(5, "Time that a batch waits for more records while an earlier one is in flight")
    batch_size: int = _option(16_384, _Whole(0, _INT_MAX, "bytes"), "Bytes at which a batch is full; 0: no batching")
    buffer_memory: int = _option(
        33_554_432, _Whole(1, unit="bytes"), "Bytes of all records that are accepted and not yet acknowledged"
    )
    max_request_size: int = _option(
        1_048_576, _Whole(1, _INT_MAX, "bytes"), "Bytes of the largest request, and of the largest uncompressed record"
    )
    max_in_flight_requests_per_connection: int = _option(
        5, _Whole(1, _INT_MAX), "Requests sent to one broker and not yet answered; at most 5 with idempotence"
    )
    compression_type: CompressionType = _option(
        "none", _Choice(("none", "gzip", "snappy", "lz4", "zstd")), "How batches are compressed"
    )
    compression_level: int | None = _option(
        None,
        _Whole(-131_072, 22, optional=True),
        "Level of the codec: gzip 1..9 or -1, lz4 1..17, zstd -131072..22; None: the codec's default",
        ours=True,
    )
    compression_threshold_bytes: int = _option(
        32_768, _Whole(0, unit="bytes"), "Batches at least this large are compressed in a worker thread", ours=True
    )
    partitioner: PartitionerOption | None = _option(
        None,
        _PartitionerHook("a callable, an object with a method partition(), or 'round_robin'", ("partition",)),
        "Who chooses partitions; None: by murmur2 of the key, without a key sticky and uniform (KIP-794)",
        java="partitioner.class",
    )
    partitioner_adaptive_partitioning_enable: bool = _flag(True, "Send less to partitions whose brokers are slow")
    partitioner_availability_timeout_ms: int = _ms(
        0, "Leave out partitions whose broker takes no data for this long; 0: never"
    )
    partitioner_ignore_keys: bool = _flag(False, "Spread records with keys like those without")
    partitioner_rack_aware: bool = _flag(False, "Prefer partitions whose leader is in client_rack (KIP-1123)")
    enable_idempotence: bool = _flag(True, "No duplicates and no reordering over retries")
    transactional_id: str | None = _text_or_none("Name of this producer's transactions; None: no transactions")
    transaction_timeout_ms: int = _ms(60_000, "The coordinator aborts a transaction that is open longer", 1, _INT_MAX)
    transaction_two_phase_commit_enable: bool = _flag(False, "Transactions wait for an outer coordinator (KIP-939)")
    interceptors: tuple[object, ...] = _option(
        (),
        _Hooks(
            "a sequence of objects with on_send(), on_acknowledgement() or close()",
            ("on_send", "on_acknowledgement", "close"),
        ),
        "Objects that see every record and its outcome, plain or async (KIP-42)",
        java="interceptor.classes",
    )
    on_delivery_error: Callable[[DeliveryError], object] | None = _option(
        None, _Hook("a callable that takes the error"), "Told of every failed record that nobody waits for", ours=True
    )
    close_timeout_ms: int = _option(
        120_000,
        _Whole(0, unit="milliseconds"),
        "Time that close() waits for records to be delivered; not given: delivery_timeout_ms",
        ours=True,
    )
    unknown_topic_timeout_ms: int | None = _ms_or_none(
        "Time after which a send to a topic that no broker knows fails; None: max_block_ms", ours=True
    )
    allow_auto_create_topics: bool = _flag(True, "Let brokers create a topic when it is first asked for", ours=True)
    metadata_max_age_ms: int = _ms(300_000, "Age at which metadata are asked for again in any case")
    metadata_max_idle_ms: int = _ms(300_000, "Time after which an unused topic is forgotten", low=5_000)
    metadata_recovery_strategy: MetadataRecoveryStrategy = _option(
        "rebootstrap", _Choice(("none", "rebootstrap")), "What to do when all known brokers are gone (KIP-899)"
    )
    metadata_recovery_rebootstrap_trigger_ms: int = _ms(
        300_000, "Time without metadata after which the bootstrap servers are asked again (KIP-1102)"
    )
    metadata_cluster_check_enable: bool = _flag(
        True, "Notice a broker of another cluster at a known address (KIP-1242)"
    )
    retry_backoff_ms: int = _ms(100, "Pause before the first retry; doubles with each, give or take 20 %")
    retry_backoff_max_ms: int = _ms(1_000, "Longest pause before a retry; at least retry_backoff_ms")
    reconnect_backoff_ms: int = _ms(50, "Pause before a broker is connected again; doubles with each failure")
    reconnect_backoff_max_ms: int = _ms(
        1_000, "Longest such pause; not given with reconnect_backoff_ms: the same, no doubling"
    )
    socket_connection_setup_timeout_ms: int = _ms(
        10_000, "Time for a connection to be set up; doubles with each failure"
    )
    socket_connection_setup_timeout_max_ms: int = _ms(30_000, "Longest such time; at least the shortest")
    connections_max_idle_ms: int = _ms(540_000, "Time after which an unused connection is closed; -1: never", low=-1)
    send_buffer_bytes: int = _option(
        131_072, _Whole(-1, _INT_MAX, "bytes"), "SO_SNDBUF; -1: the system's default", java="send.buffer.bytes"
    )
    receive_buffer_bytes: int = _option(
        32_768, _Whole(-1, _INT_MAX, "bytes"), "SO_RCVBUF; -1: the system's default", java="receive.buffer.bytes"
    )
    enable_metrics_push: bool = _flag(True, "Push metrics to brokers that subscribe to them (KIP-714)")
    metric_reporters: tuple[MetricReporter, ...] = _option(
        (), _Hooks("a sequence of objects with a method record()", ("record",)), "Objects that are told of measurements"
    )
    security_protocol: SecurityProtocol = _option(
        "PLAINTEXT", _Choice(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")), "Whether to use TLS, SASL, or both"
    )
    ssl_context: ssl.SSLContext | None = _option(
        None, _SslContext("an ssl.SSLContext"), "TLS as you set it up; excludes the other ssl_ options", ours=True
    )
    ssl_cafile: str | None = _file(
        "PEM file of the authorities to trust; None: the system's", "ssl.truststore.location"
    )
    ssl_certfile: str | None = _file("PEM file of this client's certificate chain (and key)", "ssl.keystore.location")
    ssl_keyfile: str | None = _file("PEM file of this client's key, where ssl_certfile does not hold it")
    ssl_key_password: Secret | None = _secret("Password of this client's key")
    ssl_truststore_certificates: str | None = _option(None, _Pem(), "Authorities to trust, as PEM text (KIP-651)")
    ssl_keystore_certificate_chain: str | None = _option(
        None, _Pem(), "This client's certificate chain, as PEM text (KIP-651)"
    )
    ssl_keystore_key: Secret | None = _secret("This client's key, as PEM text (KIP-651)")
    ssl_check_hostname: bool = _option(
        True, _Flag(), "Whether a broker's certificate must name its host", java="ssl.endpoint.identification.algorithm"
    )
    ssl_cipher_suites: tuple[str, ...] = _option(
        (), _Words(), "OpenSSL names of the ciphers of TLS 1.2; (): its default"
    )
    ssl_min_version: TlsVersion = _option(
        "TLSv1.2", _Choice(("TLSv1.2", "TLSv1.3")), "Oldest TLS to accept", java="ssl.enabled.protocols"
    )
    sasl_mechanism: SaslMechanism | None = _option(
        None,
        _Choice(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM"), optional=True),
        "How to authenticate; must be given with SASL (Java's default is GSSAPI)",
    )
    sasl_username: str | None = _text_or_none("User for PLAIN and SCRAM", ours=True)
    sasl_password: Secret | None = _secret("Password for PLAIN and SCRAM", ours=True)
    sasl_oauth_token_provider: TokenProvider | Callable[[], object] | None = _option(
        None,
        _Hook("a callable that returns a token, plain or async, or an object with a method token()", ("token",)),
        "Where tokens for OAUTHBEARER come from",
        ours=True,
    )
    sasl_kerberos_service_name: str | None = _text_or_none("Service name of the brokers for GSSAPI, usually 'kafka'")
    sasl_login_refresh_window_factor: float = _option(
        0.8, _Real(0.5, 1.0), "Part of a token's life after which it is renewed"
    )
    sasl_login_refresh_window_jitter: float = _option(0.05, _Real(0.0, 0.25), "Randomness of that moment")
    sasl_login_refresh_min_period_seconds: int = _option(60, _Whole(0, 900, "seconds"), "Least time between renewals")
    sasl_login_refresh_buffer_seconds: int = _option(
        300, _Whole(0, 3_600, "seconds"), "Renew this long before a token ends"
    )
    sasl_login_connect_timeout_ms: int | None = _ms_or_none("Time to connect to the token endpoint; None: no limit")
    sasl_login_read_timeout_ms: int | None = _ms_or_none("Time for the token endpoint to answer; None: no limit")
    sasl_login_retry_backoff_ms: int = _ms(100, "Pause before the token endpoint is asked again; doubles")
    sasl_login_retry_backoff_max_ms: int = _ms(10_000, "Longest such pause; at least the shortest")
    sasl_oauthbearer_token_endpoint_url: str | None = _text_or_none("URL that issues tokens (KIP-768)")
    sasl_oauthbearer_scope: str | None = _text_or_none("Scope to ask for")
    sasl_oauthbearer_client_credentials_client_id: str | None = _text_or_none("OAuth client id")
    sasl_oauthbearer_client_credentials_client_secret: Secret | None = _secret("OAuth client secret")
    sasl_oauthbearer_header_urlencode: bool = _flag(
        False, "Percent-encode client id and secret in the request's header"
    )
    sasl_oauthbearer_assertion_algorithm: AssertionAlgorithm = _option(
        "RS256", _Choice(("RS256", "ES256")), "How assertions are signed (KIP-1139)"
    )
    sasl_oauthbearer_assertion_claim_aud: str | None = _text_or_none("Audience of assertions")
    sasl_oauthbearer_assertion_claim_iss: str | None = _text_or_none("Issuer of assertions")
    sasl_oauthbearer_assertion_claim_sub: str | None = _text_or_none("Subject of assertions")
    sasl_oauthbearer_assertion_claim_exp_seconds: int = _option(300, _Whole(0, 86_400, "seconds"), "Life of assertions")
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = _option(
        60, _Whole(0, 3_600, "seconds"), "Back-dating of assertions"
    )
    sasl_oauthbearer_assertion_claim_jti_include: bool = _flag(False, "Whether assertions have an id")
    sasl_oauthbearer_assertion_file: str | None = _file(
        "File with a ready-made assertion", "sasl.oauthbearer.assertion.file"
    )
    sasl_oauthbearer_assertion_private_key_file: str | None = _file(
        "PEM file of the key that signs assertions", "sasl.oauthbearer.assertion.private.key.file"
    )
    sasl_oauthbearer_assertion_private_key_passphrase: Secret | None = _secret("Password of that key")
    sasl_oauthbearer_assertion_template_file: str | None = _file(
        "File with claims to put into assertions", "sasl.oauthbearer.assertion.template.file"
    )
    _explicit: frozenset[str] = field(default=frozenset(), compare=False)

    def __init__(self, bootstrap_servers: str | Sequence[str], **options: Unpack[ProducerOptions]) -> None:
        self._fill({"bootstrap_servers": bootstrap_servers, **options})

    @classmethod
    def create(cls, bootstrap_servers: str | Sequence[str], **options: Unpack[ProducerOptions]) -> ProducerConfig:
        """The same as calling the class."""
        return cls(bootstrap_servers, **options)

    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, object] | str | os.PathLike[str],
        *,
        bootstrap_servers: str | Sequence[str] | None = None,
        **overrides: Unpack[ProducerOptions],
    ) -> ProducerConfig:
        """The configuration that a Java producer's properties describe.

        ``properties`` is a mapping of Java's dotted keys, the path of a ``.properties`` file, or the text of one: a str
        is text where it has a line break or an ``=`` in it, and a path otherwise. The format is that of
        ``java.util.Properties``; a file is read as UTF-8 and, where it is not that, as Java reads it: ISO 8859-1.
        Options of ours that Java does not have are spelled likewise (``close.timeout.ms``). Keywords win over the
        properties, and what they replace is not looked at.

        Raises `ConfigError` for unknown keys, and for keys that make no sense outside a JVM with what to use instead.
        """
        return cls._from_mapping(_java_options(_properties(properties), overrides), bootstrap_servers, overrides)

    @classmethod
    def from_url(cls, url: str, **overrides: Unpack[ProducerOptions]) -> ProducerConfig:
        """The configuration in ``kafka://host1:9092,host2/?compression_type=zstd&acks=all``.

        The scheme says the security protocol: ``kafka`` (PLAINTEXT), ``kafka+ssl``, ``kafka+sasl-plaintext``,
        ``kafka+sasl-ssl``; ``user:password@`` before the servers are `sasl_username` and `sasl_password`. Options are
        spelled as here or as in Java. Everything is percent-decoded, and ``+`` stays ``+``. A path is refused: topics
        belong to ``send()``. Keywords win over the URL. No error shows the URL.
        """
        return cls._from_mapping(_url_options(url), None, overrides)

    @classmethod
    def from_env(
        cls,
        prefix: str = "KAFKA_",
        environ: Mapping[str, str] | None = None,
        *,
        bootstrap_servers: str | Sequence[str] | None = None,
        **overrides: Unpack[ProducerOptions],
    ) -> ProducerConfig:
        """The configuration in environment variables: ``KAFKA_BOOTSTRAP_SERVERS``, ``KAFKA_LINGER_MS``, ...

        Empty variables count as not set. Others use the same prefix (``KAFKA_HOME``, ``KAFKA_HEAP_OPTS``, a broker's
        own settings), so an unknown variable is ignored - unless it is nearly the name of an option, or another
        client's name for one: then it raises, for it was surely meant. Keywords win over variables.
        """
        found = _env_options(
            prefix,
            os.environ if environ is None else environ,
            overrides if bootstrap_servers is None else {*overrides, "bootstrap_servers"},
        )
        if bootstrap_servers is None and "bootstrap_servers" not in found:
            raise ConfigError(
                f"The environment variable {prefix}BOOTSTRAP_SERVERS is not set; set it to 'host:port,host:port', or "
                f"pass bootstrap_servers=..."
            )
        return cls._from_mapping(found, bootstrap_servers, overrides)

    def replace(
        self, bootstrap_servers: str | Sequence[str] | None = None, **changes: Unpack[ProducerOptions]
    ) -> ProducerConfig:
        """This configuration with some options changed, checked again as a whole.

        Values that follow from others follow anew.
        """
        return self._from_mapping(self._given(), bootstrap_servers, changes)

    __replace__ = replace

    @property
    def bootstrap_addresses(self) -> tuple[Address, ...]:
        """The bootstrap servers as host and port."""
        return parse_bootstrap_servers(self.bootstrap_servers)

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

    def __repr__(self) -> str:
        shown = ["'" + ",".join(self.bootstrap_servers) + "'"]
        for option in OPTIONS.values():
            value: object = getattr(self, option.name)
            if option.name in self._explicit and option.name != "bootstrap_servers" and value != option.default:
                shown.append(f"{option.name}={_display(option, value)}")
        return f"ProducerConfig({', '.join(shown)})"

    def __reduce__(self) -> tuple[Callable[[dict[str, object]], ProducerConfig], tuple[dict[str, object]]]:
        given = self._given()
        for name, value in given.items():
            _require_picklable(name, value)
        return _restore, (given,)

    def __copy__(self) -> ProducerConfig:
        return self

    def __deepcopy__(self, memo: object) -> ProducerConfig:
        return self

    @classmethod
    def _from_mapping(
        cls,
        found: Mapping[str, object],
        bootstrap_servers: str | Sequence[str] | None = None,
        overrides: Mapping[str, object] = MappingProxyType({}),
    ) -> ProducerConfig:
        """The configuration of ``found``, with whatever is given besides in place of what is there."""
        options = {"bootstrap_servers": "", **found, **overrides}
        if bootstrap_servers is not None:
            options["bootstrap_servers"] = bootstrap_servers
        config = cls.__new__(cls)
        config._fill(options)
        return config

    def _fill(self, options: Mapping[str, object]) -> None:
        for name in options:
            if name not in OPTIONS:
                raise _unknown_option(name)
        explicit: set[str] = set()
        for option in OPTIONS.values():
            value = option.default
            if option.name in options:
                value = option.kind.check(option.name, options[option.name])
                if value is not None:
                    explicit.add(option.name)
            object.__setattr__(self, option.name, value)
        object.__setattr__(self, "_explicit", frozenset(explicit))
        for name, derive in _DERIVED.items():
            if name not in explicit:
                object.__setattr__(self, name, derive(self))
        for problem in _CONTRADICTIONS:
            sentence = problem(self)
            if sentence:
                raise ConfigError(sentence)

    def _given(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in OPTIONS if name in self._explicit}


def _restore(given: dict[str, object]) -> ProducerConfig:
    """Makes an unpickled configuration, checked by the version of aioproducer that unpickles it."""
    return ProducerConfig._from_mapping(given)  # pyright: ignore[reportPrivateUsage]


@dataclass(frozen=True, slots=True)
class Option:
    """One option as programs see it; ``java_key`` is None where Java has no such key."""

    name: str
    type: str
    default: object
    java_key: str | None
    doc: str
    kind: _Kind = field(repr=False, compare=False)

    @property
    def secret(self) -> bool:
        """Whether the value must not be shown."""
        return isinstance(self.kind, _SecretText)

    @property
    def allowed(self) -> str:
        """What the value may be, in words."""
        return f"{self.kind.allowed()}, or None" if self.kind.optional else self.kind.allowed()

    @property
    def dotted(self) -> str:
        """How properties spell the option."""
        return self.java_key or self.name.replace("_", ".")


def describe_options() -> str:
    """All options as a Markdown table, a line each: name, default, what it may be, what it is for, and Java's key."""
    lines = ["| option | default | must be | what it is for | Java |", "|---|---|---|---|---|"]
    for option in OPTIONS.values():
        default = "*required*" if option.name == "bootstrap_servers" else f"`{_display(option, option.default)}`"
        java = "" if option.java_key is None else f"`{option.java_key}`"
        lines.append(f"| `{option.name}` | {default} | {option.allowed} | {option.doc} | {java} |")
    return "\n".join(lines)


def _declared_options() -> Iterator[Option]:
    for declared in fields(ProducerConfig):
        option = cast("_Declared | None", declared.metadata.get("option"))
        if option is not None:
            java_key = declared.name.replace("_", ".") if option.java_key is None else option.java_key or None
            yield Option(declared.name, str(declared.type), declared.default, java_key, option.doc, option.kind)


#: Every option by its name, in the order of the documentation.
OPTIONS: Final[Mapping[str, Option]] = MappingProxyType({option.name: option for option in _declared_options()})


def _display(option: Option, value: object) -> str:
    if option.name == "acks":
        return "'all'" if value == -1 else str(value)
    if callable(value) and not isinstance(value, type):
        return getattr(value, "__qualname__", None) or _short.repr(value)
    return _short.repr(value)


# --- What follows from other options, and what contradicts them -------------------------------------------------------

#: What an option is where it was not given, in the order in which one follows from the other.
_DERIVED: Final[Mapping[str, Callable[[ProducerConfig], int]]] = MappingProxyType(
    {
        "batch_size": lambda c: min(c.batch_size, c.buffer_memory),
        "max_request_size": lambda c: min(c.max_request_size, c.buffer_memory),
        # As in Java: what was not given is raised to the sum; what was given is refused below.
        "delivery_timeout_ms": lambda c: min(max(c.delivery_timeout_ms, c.linger_ms + c.request_timeout_ms), _INT_MAX),
        "close_timeout_ms": lambda c: c.delivery_timeout_ms,
        "retry_backoff_max_ms": lambda c: max(c.retry_backoff_max_ms, c.retry_backoff_ms),
        # As in Java: the first alone means a constant pause.
        "reconnect_backoff_max_ms": lambda c: (
            c.reconnect_backoff_ms if c.is_explicit("reconnect_backoff_ms") else c.reconnect_backoff_max_ms
        ),
        "socket_connection_setup_timeout_max_ms": lambda c: max(
            c.socket_connection_setup_timeout_max_ms, c.socket_connection_setup_timeout_ms
        ),
        "sasl_login_retry_backoff_max_ms": lambda c: max(
            c.sasl_login_retry_backoff_max_ms, c.sasl_login_retry_backoff_ms
        ),
    }
)


def _short_delivery_timeout(c: ProducerConfig) -> str | None:
    if c.delivery_timeout_ms >= min(c.linger_ms + c.request_timeout_ms, _INT_MAX):
        return None
    return (
        f"delivery_timeout_ms={c.delivery_timeout_ms} leaves no time for one attempt: it must be at least linger_ms + "
        f"request_timeout_ms = {c.linger_ms} + {c.request_timeout_ms} = {c.linger_ms + c.request_timeout_ms}. Raise "
        f"it, or lower request_timeout_ms."
    )


def _idempotence_undone(c: ProducerConfig) -> str | None:
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


def _transactions_undone(c: ProducerConfig) -> str | None:
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


def _wrong_compression_level(c: ProducerConfig) -> str | None:
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


def _larger_than_memory(c: ProducerConfig) -> str | None:
    for name, size in (("batch_size", c.batch_size), ("max_request_size", c.max_request_size)):
        if size > c.buffer_memory:
            return (
                f"{name}={size} is larger than buffer_memory={c.buffer_memory}: all records that wait must fit in "
                f"buffer_memory, so that size is never reached. Raise buffer_memory or lower {name}."
            )
    return None


def _backoff_above_its_maximum(c: ProducerConfig) -> str | None:
    for name in ("retry_backoff", "reconnect_backoff", "socket_connection_setup_timeout", "sasl_login_retry_backoff"):
        first, longest = getattr(c, f"{name}_ms"), getattr(c, f"{name}_max_ms")
        if first > longest:
            return f"{name}_ms={first} is larger than {name}_max_ms={longest}; raise the maximum, or leave it out."
    return None


def _no_rack(c: ProducerConfig) -> str | None:
    if c.partitioner_rack_aware and not c.client_rack:
        return "partitioner_rack_aware=True needs client_rack, the rack of this client."
    return None


def _unused_security(c: ProducerConfig) -> str | None:
    for prefix, used, protocols in (("ssl_", c.uses_tls, "SSL or SASL_SSL"), ("sasl_", c.uses_sasl, "SASL_SSL")):
        given = [
            n for n in OPTIONS if n.startswith(prefix) and c.is_explicit(n) and getattr(c, n) != OPTIONS[n].default
        ]
        if given and not used:
            return (
                f"{', '.join(given)} would not be used with security_protocol={c.security_protocol!r}; set "
                f"security_protocol to {protocols}, or leave {'it' if len(given) == 1 else 'them'} out."
            )
    return None


def _contradictory_tls(c: ProducerConfig) -> str | None:
    if c.ssl_context is not None:
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


def _incomplete_sasl(c: ProducerConfig) -> str | None:
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
    missing = [name for name in needed.get(c.sasl_mechanism, ()) if getattr(c, name) is None]
    if missing:
        return f"sasl_mechanism={c.sasl_mechanism!r} needs {' and '.join(missing)}."
    sources = (c.sasl_oauth_token_provider is not None) + (c.sasl_oauthbearer_token_endpoint_url is not None)
    if c.sasl_mechanism == "OAUTHBEARER" and sources != 1:
        return (
            "sasl_mechanism='OAUTHBEARER' takes its tokens from sasl_oauth_token_provider or from "
            "sasl_oauthbearer_token_endpoint_url; give exactly one of them."
        )
    return None


_CONTRADICTIONS: Final[Sequence[Callable[[ProducerConfig], str | None]]] = (
    _short_delivery_timeout,
    _transactions_undone,
    _idempotence_undone,
    _wrong_compression_level,
    _larger_than_memory,
    _backoff_above_its_maximum,
    _no_rack,
    _unused_security,
    _contradictory_tls,
    _incomplete_sasl,
)


# --- Names that are not ours ------------------------------------------------------------------------------------------


class _Foreign(NamedTuple):
    """An option by another client's name: what it is called here, if anything, and what else to know."""

    client: str
    name: str | None
    note: str = ""


_FOREIGN: Final[Mapping[str, _Foreign]] = MappingProxyType(
    {
        "max_batch_size": _Foreign("aiokafka", "batch_size"),
        "sasl_plain_username": _Foreign("aiokafka", "sasl_username"),
        "sasl_plain_password": _Foreign("aiokafka", "sasl_password"),
        "sasl_kerberos_domain_name": _Foreign("aiokafka", None, "the domain is that of the broker's host"),
        "api_version": _Foreign("aiokafka", None, "versions are agreed with every broker"),
        "loop": _Foreign("aiokafka", None, "the producer runs on the event loop in which it is entered"),
        "ssl_crlfile": _Foreign("kafka-python", "ssl_context", "load the list into a context"),
        "ssl_password": _Foreign("kafka-python", "ssl_key_password"),
        "ssl_ciphers": _Foreign("kafka-python", "ssl_cipher_suites"),
        "metadata_broker_list": _Foreign("librdkafka", "bootstrap_servers"),
        "queue_buffering_max_ms": _Foreign("librdkafka", "linger_ms"),
        "queue_buffering_max_kbytes": _Foreign("librdkafka", "buffer_memory", "it counts bytes, not kilobytes"),
        "queue_buffering_max_messages": _Foreign("librdkafka", "buffer_memory", "it counts bytes, not records"),
        "batch_num_messages": _Foreign("librdkafka", "batch_size", "it counts bytes, not records"),
        "message_timeout_ms": _Foreign("librdkafka", "delivery_timeout_ms"),
        "message_send_max_retries": _Foreign("librdkafka", "retries"),
        "message_max_bytes": _Foreign("librdkafka", "max_request_size"),
        "request_required_acks": _Foreign("librdkafka", "acks"),
        "max_in_flight": _Foreign("librdkafka", "max_in_flight_requests_per_connection"),
        "compression_codec": _Foreign("librdkafka", "compression_type"),
        "socket_timeout_ms": _Foreign("librdkafka", "request_timeout_ms"),
        "socket_send_buffer_bytes": _Foreign("librdkafka", "send_buffer_bytes"),
        "socket_receive_buffer_bytes": _Foreign("librdkafka", "receive_buffer_bytes"),
        "topic_metadata_refresh_interval_ms": _Foreign("librdkafka", "metadata_max_age_ms"),
        "sasl_mechanisms": _Foreign("librdkafka", "sasl_mechanism"),
        "oauth_cb": _Foreign("librdkafka", "sasl_oauth_token_provider"),
        "sasl_oauthbearer_client_id": _Foreign("librdkafka", "sasl_oauthbearer_client_credentials_client_id"),
        "sasl_oauthbearer_client_secret": _Foreign("librdkafka", "sasl_oauthbearer_client_credentials_client_secret"),
        "ssl_ca_location": _Foreign("librdkafka", "ssl_cafile"),
        "ssl_certificate_location": _Foreign("librdkafka", "ssl_certfile"),
        "ssl_key_location": _Foreign("librdkafka", "ssl_keyfile"),
        "ssl_ca_pem": _Foreign("librdkafka", "ssl_truststore_certificates"),
        "ssl_certificate_pem": _Foreign("librdkafka", "ssl_keystore_certificate_chain"),
        "ssl_key_pem": _Foreign("librdkafka", "ssl_keystore_key"),
        "enable_ssl_certificate_verification": _Foreign(
            "librdkafka", "ssl_context", "certificates are always verified, unless a context of yours says otherwise"
        ),
        "statistics_interval_ms": _Foreign("librdkafka", None, "ask producer.metrics() whenever you like"),
        "stats_cb": _Foreign("librdkafka", None, "ask producer.metrics() whenever you like"),
        "error_cb": _Foreign("librdkafka", None, "errors come from the call that they concern; see producer.health()"),
        "on_delivery": _Foreign("librdkafka", "on_delivery_error", "or await the Delivery that enqueue() returns"),
        "dr_cb": _Foreign("librdkafka", "on_delivery_error", "or await the Delivery that enqueue() returns"),
        "debug": _Foreign("librdkafka", None, "set the level of the logger 'aioproducer'"),
        "log_level": _Foreign("librdkafka", None, "set the level of the logger 'aioproducer'"),
        "brokers": _Foreign("another client", "bootstrap_servers"),
        "servers": _Foreign("another client", "bootstrap_servers"),
        "hosts": _Foreign("another client", "bootstrap_servers"),
        "compression": _Foreign("another client", "compression_type"),
        "linger": _Foreign("another client", "linger_ms"),
        "idempotence": _Foreign("another client", "enable_idempotence"),
        "group_id": _Foreign("a consumer", None, "a producer has no group"),
        "auto_offset_reset": _Foreign("a consumer", None, "a producer has no offsets"),
    }
)

_NO_JVM = "it names a class or a setting of a JVM"
_TICKETS = "tickets come from the ticket cache, which kinit or k5start keeps fresh"
_BROKERS_TASK = "tokens are judged by the brokers, not by a producer"
_OWN_METRICS = "producer.metrics() gives counters and histograms without windows"

#: Keys of Java's producer that have no counterpart here, each with the reason.
_DROPPED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "buffer.memory.allocation.strategy": "memory is always taken as records come",
        "metrics.sample.window.ms": _OWN_METRICS,
        "metrics.num.samples": _OWN_METRICS,
        "metrics.recording.level": _OWN_METRICS,
        "auto.include.jmx.reporter": f"{_NO_JVM}; it is gone from Java, too",
        "config.providers": "configurations are never taken for programs; fill in values before you pass them",
        "security.providers": _NO_JVM,
        "ssl.provider": _NO_JVM,
        "ssl.keymanager.algorithm": _NO_JVM,
        "ssl.trustmanager.algorithm": _NO_JVM,
        "ssl.secure.random.implementation": _NO_JVM,
        "ssl.engine.factory.class": f"{_NO_JVM}; pass ssl_context=...",
        "sasl.client.callback.handler.class": f"{_NO_JVM}; pass sasl_username and sasl_password",
        "sasl.login.class": f"{_NO_JVM}; pass sasl_username and sasl_password, or sasl_oauth_token_provider",
        "sasl.kerberos.kinit.cmd": _TICKETS,
        "sasl.kerberos.ticket.renew.window.factor": _TICKETS,
        "sasl.kerberos.ticket.renew.jitter": _TICKETS,
        "sasl.kerberos.min.time.before.relogin": _TICKETS,
        "sasl.oauthbearer.jwt.retriever.class": f"{_NO_JVM}; pass sasl_oauth_token_provider=...",
        "sasl.oauthbearer.jwt.validator.class": f"{_NO_JVM}; pass sasl_oauth_token_provider=...",
        "sasl.oauthbearer.scope.claim.name": _BROKERS_TASK,
        "sasl.oauthbearer.sub.claim.name": _BROKERS_TASK,
        "sasl.oauthbearer.clock.skew.seconds": _BROKERS_TASK,
        "sasl.oauthbearer.expected.audience": _BROKERS_TASK,
        "sasl.oauthbearer.expected.issuer": _BROKERS_TASK,
        "sasl.oauthbearer.allow.unverified.audience": _BROKERS_TASK,
        "sasl.oauthbearer.allow.unverified.issuer": _BROKERS_TASK,
        "sasl.oauthbearer.jwks.endpoint.url": _BROKERS_TASK,
        "sasl.oauthbearer.jwks.endpoint.refresh.ms": _BROKERS_TASK,
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": _BROKERS_TASK,
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": _BROKERS_TASK,
    }
)

#: How near a name must be to an option to be taken for a slip of the pen.
_NEAR = 0.85


def _unknown_option(name: str) -> ConfigError:
    plain = name.strip().lower().replace(".", "_").replace("-", "_")
    if plain in OPTIONS:
        return ConfigError(
            f"{name!r} is not how options are spelled here; write {plain}=..., or pass dotted keys to "
            f"from_properties()."
        )
    explained = _explain_name(name, plain)
    if explained is not None:
        return ConfigError(explained)
    nearest = difflib.get_close_matches(plain, [*OPTIONS, *_FOREIGN], n=1)
    if nearest and nearest[0] in _FOREIGN:
        return ConfigError(f"{name!r} is not an option. {_explain_name(nearest[0], nearest[0])}")
    hint = f"Did you mean {nearest[0]!r}?" if nearest else "describe_options() lists all that there are."
    return ConfigError(f"{name!r} is not an option. {hint}")


def _explain_name(name: str, plain: str) -> str | None:
    """What a name that is no option stands for, where we know."""
    foreign = _FOREIGN.get(plain)
    if foreign is not None:
        here = f"here it is {foreign.name}" if foreign.name else "there is no such option here"
        note = f": {foreign.note}" if foreign.note else ""
        return f"{name!r} is {foreign.client}'s name; {here}{note}."
    dotted = plain.replace("_", ".")
    if dotted in _DROPPED:
        return _dropped(dotted)
    if dotted in _BY_JAVA_KEY:
        return f"{name!r} is Java's name; here it is {_BY_JAVA_KEY[dotted]}."
    if dotted in _TRANSLATIONS:
        return f"{name!r} is Java's name; here see {', '.join(_TRANSLATIONS[dotted].options)}."
    return None


def _dropped(key: str) -> str:
    return f"{key!r} has no counterpart here: {_DROPPED[key]}. Leave it out."


# --- Java's properties ------------------------------------------------------------------------------------------------


def _java_options(properties: Mapping[str, object], replaced: Iterable[str]) -> dict[str, object]:
    """The options that Java's ``properties`` describe, without those that are ``replaced``."""
    replaced = set(replaced)
    found: dict[str, object] = {}
    for key, value in properties.items():
        for name, converted in _java_option(key, value, properties, replaced).items():
            if name in found and found[name] != converted:
                raise ConfigError(f"{key!r} sets {name}, which another key of the same properties sets differently.")
            found[name] = converted
    return found


def _java_option(key: str, value: object, properties: Mapping[str, object], replaced: set[str]) -> Mapping[str, object]:
    dotted = key.replace("_", ".") if key in OPTIONS else key
    translation = _TRANSLATIONS.get(dotted)
    targets = translation.options if translation else (_BY_JAVA_KEY.get(dotted, ""),)
    if replaced.intersection(targets) or ("ssl_context" in replaced and dotted.startswith("ssl.")):
        return {}
    if dotted in _DROPPED:
        raise ConfigError(_dropped(dotted))
    if translation is not None:
        return translation.convert(key, _java_text(value), properties)
    name = _BY_JAVA_KEY.get(dotted)
    if name is None:
        raise _unknown_option(key)
    text = value.strip() if isinstance(value, str) else value
    return {name: _from_text(OPTIONS[name], text, key)}


def _java_text(value: object) -> str:
    """A value as a properties file would spell it, where a mapping holds something else than text."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, cast("Iterable[object]", value)))
    return str(value).strip()


def _from_text(option: Option, value: object, source: str) -> object:
    """``value``, read from text where it is text, checked under the name by which the user knows it."""
    label = option.name if source == option.name else f"{source} ({option.name})"
    parsed = option.kind.parse(label, value) if isinstance(value, str) else value
    return option.kind.check(label, parsed)


class _Translation(NamedTuple):
    """A Java key that is more than another spelling: the options that it is about, and how its text becomes them."""

    options: tuple[str, ...]
    convert: Callable[[str, str, Mapping[str, object]], Mapping[str, object]]


def _class_list(harmless: str, advice: str) -> Callable[[str, str, Mapping[str, object]], Mapping[str, object]]:
    def convert(key: str, text: str, properties: Mapping[str, object]) -> Mapping[str, object]:
        if text and text.rsplit(".", 1)[-1] != harmless:
            raise ConfigError(f"{key}={_short.repr(text)} names Java classes, which cannot run here; {advice}")
        return {}

    return convert


def _level_of(codec: str) -> Callable[[str, str, Mapping[str, object]], Mapping[str, object]]:
    def convert(key: str, text: str, properties: Mapping[str, object]) -> Mapping[str, object]:
        """Only the level of the codec in use counts, as in Java."""
        used = str(properties.get("compression.type", properties.get("compression_type", "none"))).strip().lower()
        level = _from_text(OPTIONS["compression_level"], text, key)
        return {"compression_level": level} if used == codec else {}

    return convert


def _endpoint_identification(key: str, text: str, properties: Mapping[str, object]) -> Mapping[str, object]:
    if text.lower() not in ("", "https"):
        raise _refusal(key, text, "'https', or empty to leave the host unchecked")
    return {"ssl_check_hostname": bool(text)}


def _enabled_protocols(key: str, text: str, properties: Mapping[str, object]) -> Mapping[str, object]:
    kind = OPTIONS["ssl_min_version"].kind
    versions = [str(kind.check(key, version)) for version in text.split(",") if version.strip()]
    return {"ssl_min_version": min(versions)} if versions else {}


def _protocol(key: str, text: str, properties: Mapping[str, object]) -> Mapping[str, object]:
    if text not in ("TLS", "TLSv1.3"):
        raise _refusal(key, text, "'TLS' or 'TLSv1.3'; for other limits pass an ssl_context")
    return {}


def _store_type(key: str, text: str, properties: Mapping[str, object]) -> Mapping[str, object]:
    if text.upper() != "PEM":
        raise ConfigError(f"{key}={_short.repr(text)} cannot be read here: {_PEM_ADVICE}")
    return {}


_PEM_ADVICE = (
    "only PEM can. Convert the store (keytool -importkeystore to PKCS12, then openssl pkcs12) and give ssl_cafile, "
    "ssl_certfile and ssl_keyfile, or ssl_context."
)


def _store_location(option: str) -> Callable[[str, str, Mapping[str, object]], Mapping[str, object]]:
    def convert(key: str, text: str, properties: Mapping[str, object]) -> Mapping[str, object]:
        type_key = key.replace(".location", ".type")
        kind = str(properties.get(type_key, "JKS")).strip()
        if kind.upper() != "PEM":
            raise ConfigError(f"{key} is a store of type {kind} ({type_key}), which cannot be read here: {_PEM_ADVICE}")
        return {option: text}

    return convert


def _store_password(key: str, text: str, properties: Mapping[str, object]) -> Mapping[str, object]:
    raise ConfigError(
        f"{key} belongs to a store that cannot be read here: {_PEM_ADVICE} The password of a PEM key is "
        f"ssl_key_password."
    )


def _jaas(key: str, text: str, properties: Mapping[str, object]) -> Mapping[str, object]:
    # Java demands the line for OAUTHBEARER even where it says nothing.
    if "=" not in text and "OAuthBearerLoginModule" in text:
        return {}
    raise ConfigError(
        f"{key} is a program for a JVM, and is not read here; pass sasl_username=... and sasl_password=... to "
        f"from_properties(), or sasl_oauth_token_provider=..."
    )


def _login_callback(key: str, text: str, properties: Mapping[str, object]) -> Mapping[str, object]:
    if text.rsplit(".", 1)[-1] != "OAuthBearerLoginCallbackHandler":
        raise ConfigError(f"{key}={_short.repr(text)} {_NO_CLASS}; pass sasl_oauth_token_provider=...")
    return {}


_NO_CLASS = "names a Java class, which cannot run here"
_CREDENTIALS = ("sasl_username", "sasl_password", "sasl_oauth_token_provider", "sasl_kerberos_service_name")

_TRANSLATIONS: Final[Mapping[str, _Translation]] = MappingProxyType(
    {
        "interceptor.classes": _Translation(("interceptors",), _class_list("", "pass interceptors=[...].")),
        "metric.reporters": _Translation(
            ("metric_reporters",), _class_list("JmxReporter", "pass metric_reporters=[...].")
        ),
        "compression.gzip.level": _Translation(("compression_level",), _level_of("gzip")),
        "compression.lz4.level": _Translation(("compression_level",), _level_of("lz4")),
        "compression.zstd.level": _Translation(("compression_level",), _level_of("zstd")),
        "ssl.endpoint.identification.algorithm": _Translation(("ssl_check_hostname",), _endpoint_identification),
        "ssl.enabled.protocols": _Translation(("ssl_min_version",), _enabled_protocols),
        "ssl.protocol": _Translation(("ssl_min_version",), _protocol),
        "ssl.keystore.type": _Translation(("ssl_certfile",), _store_type),
        "ssl.keystore.location": _Translation(("ssl_certfile",), _store_location("ssl_certfile")),
        "ssl.keystore.password": _Translation(("ssl_certfile",), _store_password),
        "ssl.truststore.type": _Translation(("ssl_cafile",), _store_type),
        "ssl.truststore.location": _Translation(("ssl_cafile",), _store_location("ssl_cafile")),
        "ssl.truststore.password": _Translation(("ssl_cafile",), _store_password),
        "sasl.jaas.config": _Translation(_CREDENTIALS, _jaas),
        "sasl.login.callback.handler.class": _Translation(("sasl_oauth_token_provider",), _login_callback),
    }
)

#: Both spellings of each option with dots in them: Java's, and ours where Java has none.
_BY_JAVA_KEY: Final[Mapping[str, str]] = MappingProxyType(
    {spelling: name for name, option in OPTIONS.items() for spelling in (name.replace("_", "."), option.dotted)}
)


def _properties(source: Mapping[str, object] | str | os.PathLike[str]) -> Mapping[str, object]:
    if isinstance(source, Mapping):
        return source
    if isinstance(source, str) and re.search(r"[=\n\r]", source):
        return _parse_properties(source)
    path = Path(source)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"The properties file {str(path)!r} cannot be read: {error.strerror}.") from error
    try:
        return _parse_properties(content.decode())
    except UnicodeDecodeError:
        return _parse_properties(content.decode("iso-8859-1"))


def _parse_properties(text: str) -> dict[str, object]:
    """The keys and values in the text of a .properties file; the last of several equal keys counts, as in Java."""
    properties: dict[str, object] = {}
    for number, line in _logical_lines(text):
        end = 0
        while end < len(line) and line[end] not in "=: \t\f":
            end += 2 if line[end] == "\\" else 1
        rest = line[end:].lstrip(" \t\f")
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(" \t\f")
        properties[_unescape(line[:end], number)] = _unescape(rest, number)
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines with their numbers, continued ones joined, without comments and blank ones."""
    joined, first = "", 0
    for number, natural in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        line = natural.lstrip(" \t\f")
        if not first and (not line or line[0] in "#!"):
            continue
        first = first or number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:  # an odd one at the end is not escaped itself
            joined += line[:-1]
            continue
        yield first, joined + line
        joined, first = "", 0
    if joined:
        yield first, joined


_ESCAPES: Final[Mapping[str, str]] = MappingProxyType({"t": "\t", "n": "\n", "r": "\r", "f": "\f"})


def _unescape(text: str, line: int) -> str:
    def replacement(match: re.Match[str]) -> str:
        if match[1] is not None:
            return chr(int(match[1], 16))
        if match[2] == "u":
            # The line is not shown: it may hold a password.
            raise ConfigError(f"Line {line} of the properties has a \\u without four hexadecimal digits after it.")
        return _ESCAPES.get(match[2], match[2])

    plain = re.sub(
        r"\\(?:u([0-9a-fA-F]{4})|(.))?", lambda m: replacement(m) if m.lastindex else "", text, flags=re.DOTALL
    )
    # Java spells a character beyond U+FFFF as two escapes.
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# --- URLs and the environment -----------------------------------------------------------------------------------------

_SCHEMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "kafka": "PLAINTEXT",
        "kafka+plaintext": "PLAINTEXT",
        "kafka+ssl": "SSL",
        "kafka+sasl-plaintext": "SASL_PLAINTEXT",
        "kafka+sasl-ssl": "SASL_SSL",
    }
)


def _url_options(url: str) -> dict[str, object]:
    scheme, _, rest = url.partition("://")
    protocol = _SCHEMES.get(scheme.strip().lower().replace("_", "-"))
    if protocol is None or not rest:
        # The URL is not shown, here or below: it may hold a password.
        raise ConfigError(
            f"The URL does not begin with one of {', '.join(f'{known}://' for known in _SCHEMES)} and the servers, as "
            f"in kafka://host1:9092,host2:9092/?linger_ms=5."
        )
    authority, query = _split_url(rest)
    userinfo, _, servers = authority.rpartition("@")
    found: dict[str, object] = {"security_protocol": protocol, "bootstrap_servers": _url_servers(unquote(servers))}
    user, colon, password = userinfo.partition(":")
    if user:
        found["sasl_username"] = unquote(user)
    if colon:
        found["sasl_password"] = Secret(unquote(password))
    return {**found, **_query_options(query, found, implied=scheme.strip().lower() == "kafka")}


def _url_servers(servers: str) -> tuple[str, ...]:
    try:
        addresses = parse_bootstrap_servers(servers)
    except ConfigError:
        addresses = ()
    if not addresses:
        # Outside of the except clause, so that the first error - which shows a host that may be half a password - is
        # not the context of this one.
        raise ConfigError(
            "The servers in the URL are not host:port,host:port with every server once; IPv6 addresses stand in "
            "brackets, and a user name and password before an @."
        )
    return tuple(map(str, addresses))


def _split_url(rest: str) -> tuple[str, str]:
    """The servers with what stands before them, and the options."""
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    path, _, query = rest[len(authority) :].partition("?")
    if "@" in path + query:
        # Perhaps a name or password with / ? or # in it: its parts must not be shown as a host or an option.
        raise ConfigError(
            "The URL has an @ after the servers: write / ? # and @ in a name, password or option percent-encoded "
            "(%2F %3F %23 %40)."
        )
    if path not in ("", "/"):
        raise ConfigError("The URL has a path or a fragment after the servers; a topic belongs to send(), not here.")
    if "#" in query:
        raise ConfigError("The URL has a fragment; write # in an option as %23.")
    return authority, query


def _query_options(query: str, found: Mapping[str, object], *, implied: bool) -> dict[str, object]:
    given: dict[str, object] = {}
    for part in filter(None, query.split("&")):
        key, equals, text = part.partition("=")
        if not equals:
            raise ConfigError("The URL has an option without a value; write name=value.")
        name = unquote(key)
        if name in given:
            raise ConfigError(f"The URL gives {name!r} twice.")
        given[name] = unquote(text)
    options = _java_options(given, ())
    for name in options.keys() & found.keys():
        # kafka:// says nothing of security, so that an option may.
        if not (implied and name == "security_protocol") and options[name] != found[name]:
            raise ConfigError(f"The URL says {name} twice: before the ? and after it.")
    return options


#: Names of options, here or in some client, that programs beside the producer use behind KAFKA_, too.
_NOT_OURS_IN_ENV: Final = frozenset(
    {"api_version", "auto_offset_reset", "debug", "group_id", "log_level", "message_max_bytes", "metric_reporters"}
)


def _env_options(prefix: str, environ: Mapping[str, str], replaced: Iterable[str]) -> dict[str, object]:
    replaced = set(replaced)
    found: dict[str, object] = {}
    for variable, text in environ.items():
        name = variable[len(prefix) :].lower()
        if not variable.startswith(prefix) or not text or name in replaced or name in _NOT_OURS_IN_ENV:
            continue
        if name in OPTIONS:
            found[name] = _from_text(OPTIONS[name], text, variable)
        elif (meant := _meant_options(name)) and replaced.isdisjoint(meant):
            raise _misspelled_variable(variable, name, meant)
    return found


def _meant_options(name: str) -> Sequence[str]:
    """The options that a name stands for which is none itself: another client's, Java's, or a slip of the pen."""
    if name in _FOREIGN:
        return tuple(filter(None, [_FOREIGN[name].name]))
    translation = _TRANSLATIONS.get(name.replace("_", "."))
    if translation is not None:
        return translation.options
    return difflib.get_close_matches(name, OPTIONS, n=1, cutoff=_NEAR)


def _misspelled_variable(variable: str, name: str, meant: Sequence[str]) -> ConfigError:
    prefix = variable[: -len(name)]
    return ConfigError(
        f"The environment variable {variable} is no option, and yet looks like one: here it is "
        f"{' or '.join(prefix + option.upper() for option in meant)}. If it belongs to another program, let the "
        f"producer use another prefix=..."
    )


# --- Servers ----------------------------------------------------------------------------------------------------------


def _split_servers(servers: object) -> list[str]:
    if isinstance(servers, str):
        return [entry.strip() for entry in servers.split(",") if entry.strip()]
    entries = _members(servers)
    if not all(isinstance(entry, str) for entry in entries):
        raise _refusal("bootstrap_servers", servers, _Servers().allowed())
    # A sequence may hold texts with commas, as a list read from a file often does.
    return [part for entry in cast("Sequence[str]", entries) for part in _split_servers(entry)]


_HOST: Final = re.compile(r"[\w.-]+")


def _parse_address(entry: str) -> Address:
    if "@" in entry:
        # Not shown: what stands before the @ may be a password.
        raise ConfigError(
            "A bootstrap server has an @ in it; credentials go into sasl_username and sasl_password, or into a URL for "
            "from_url()."
        )
    if "://" in entry:
        raise ConfigError(
            f"bootstrap server {entry!r} begins with a scheme; write host:port and set security_protocol, or pass a "
            f"URL that begins with kafka:// to from_url()."
        )
    host, port = _split_port(entry)
    if port is not None and not (re.fullmatch(r"[0-9]{1,5}", port) and 1 <= int(port) <= 65_535):
        raise ConfigError(f"bootstrap server {entry!r} has the port {port!r}; a port is a number from 1 to 65535.")
    return Address(host, DEFAULT_PORT if port is None else int(port))


def _split_port(entry: str) -> tuple[str, str | None]:
    bracketed = re.fullmatch(r"\[([^\]]*)\](?::(.*))?", entry)
    if bracketed is not None:
        if not _is_ipv6(bracketed[1]):
            raise ConfigError(f"bootstrap server {entry!r} has no IPv6 address in its brackets; write [::1]:9092.")
        return bracketed[1], bracketed[2]
    host, colon, port = entry.partition(":")
    if ":" in port:
        raise ConfigError(
            f"bootstrap server {entry!r} has several colons; write an IPv6 address in brackets: [::1]:9092."
        )
    if _HOST.fullmatch(host) is None:
        raise ConfigError(
            f"bootstrap server {entry!r} is not host:port; the name of a host has letters, digits, . - _."
        )
    return host, port if colon else None


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


# --- Pickling ---------------------------------------------------------------------------------------------------------

#: Who may be at work when ``__reduce__`` is called; only picklers that are loaded can be.
_PICKLERS: Final = ("cloudpickle", "pyspark.cloudpickle", "dill")


def _require_picklable(name: str, value: object) -> None:
    try:
        pickle.dumps(value)
    except Exception as error:  # whatever the foreign object raises
        if any(_can_pickle(pickler, value) for pickler in _PICKLERS if pickler in sys.modules):
            return
        raise ConfigError(
            f"The configuration cannot be pickled, because {name}={_short.repr(value)} cannot. Callables must be "
            f"importable - functions and classes of a module, no lambdas or local functions - and a connection's "
            f"ssl_context must be described by ssl_cafile, ssl_certfile and ssl_keyfile instead."
        ) from error


def _can_pickle(pickler: str, value: object) -> bool:
    dumps = cast("Callable[[object], bytes]", importlib.import_module(pickler).dumps)
    try:
        dumps(value)
    except Exception:  # whatever the foreign object raises
        return False
    return True
