"""The options as ``aioproducer config`` shows them: all of them in a table, or one in full; decides only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from aioproducer._config.compression import Compression, CompressionByTopic, PreferredCodecs
from aioproducer._config.java_keys import BY_JAVA_KEY, DROPPED, TRANSLATIONS
from aioproducer._config.kinds import (
    AcksChoice,
    Choice,
    Ciphers,
    File,
    Flag,
    Hook,
    Kind,
    Pem,
    Real,
    SecretText,
    SerializerHook,
)
from aioproducer._config.kinds import Whole as WholeNumber
from aioproducer._config.names import librdkafka_option, unknown_option
from aioproducer._config.options import OPTIONS
from aioproducer._config.secret import Secret
from aioproducer._config.servers import Servers
from aioproducer.config import Option

__all__ = ["as_json", "as_lines", "as_text", "explanation", "json_value", "named"]

#: librdkafka's names where they are not the option's name with dots.
_LIBRDKAFKA: Final[Mapping[str, str]] = {
    "buffer_memory": "queue.buffering.max.kbytes",
    "max_request_size": "message.max.bytes",
    "metadata_max_age_ms": "topic.metadata.refresh.interval.ms",
    "receive_buffer_bytes": "socket.receive.buffer.bytes",
    "request_timeout_ms": "socket.timeout.ms",
    "sasl_oauth_token_provider": "oauth_cb",
    "send_buffer_bytes": "socket.send.buffer.bytes",
    "ssl_cafile": "ssl.ca.location",
    "ssl_certfile": "ssl.certificate.location",
    "ssl_keyfile": "ssl.key.location",
    "ssl_keystore_certificate_chain": "ssl.certificate.pem",
    "ssl_keystore_key": "ssl.key.pem",
    "ssl_truststore_certificates": "ssl.ca.pem",
}
#: Options that librdkafka knows by the same name with dots, and with the same meaning.
_SAME_IN_LIBRDKAFKA: Final = (
    "bootstrap_servers client_dns_lookup client_id client_rack acks retries delivery_timeout_ms linger_ms batch_size "
    "max_in_flight_requests_per_connection compression_type compression_level partitioner enable_idempotence "
    "transactional_id transaction_timeout_ms allow_auto_create_topics metadata_recovery_strategy "
    "metadata_recovery_rebootstrap_trigger_ms retry_backoff_ms retry_backoff_max_ms reconnect_backoff_ms "
    "reconnect_backoff_max_ms socket_connection_setup_timeout_ms connections_max_idle_ms enable_metrics_push "
    "security_protocol ssl_key_password ssl_cipher_suites sasl_mechanism sasl_username sasl_password "
    "sasl_kerberos_service_name"
)
_ABOUT_LIBRDKAFKA: Final[Mapping[str, str]] = {"buffer_memory": "in KiB", "sasl_oauth_token_provider": "a callback"}

_SAME: Final = "="
_NONE: Final = "-"
_HEADINGS: Final = ("option", "default", "Java", "librdkafka", "values")
_NOTE: Final = f"{_SAME} the same name with dots; {_NONE} not an option there."
_SHOWN: Final = 4
_NO_LIMIT: Final = 2**63 - 1


def named(name: str) -> Sequence[Option]:
    """The options of this name, which may be Java's or librdkafka's; raises ConfigError for an unknown one."""
    plain = name.strip()
    others = {name: option for option, name in _LIBRDKAFKA.items()}
    found = plain if plain in OPTIONS else librdkafka_option(plain) or BY_JAVA_KEY.get(plain) or others.get(plain)
    if found is not None:
        return (OPTIONS[found],)
    if plain in TRANSLATIONS and plain not in DROPPED:
        return [OPTIONS[each] for each in TRANSLATIONS[plain].options]
    raise unknown_option(plain)


def as_lines() -> Iterator[str]:
    """The table: a line for each option, aligned."""
    rows = [_HEADINGS, *(_row(option) for option in OPTIONS.values())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    yield ""
    yield _NOTE


def explanation(option: Option) -> Iterator[str]:
    """All facts about one option."""
    about = _ABOUT_LIBRDKAFKA.get(option.name)
    librdkafka = _librdkafka(option)
    others = [key for key, each in TRANSLATIONS.items() if option.name in each.options and key != librdkafka]
    yield option.name
    yield f"  {option.doc}."
    if option.type.removesuffix(" | None").lower() != option.name.replace(
        "_", ""
    ):  # else it says no more than the name
        yield f"  Type:        {option.type}"
    yield f"  Must be:     {option.allowed}"
    yield f"  Default:     {_default(option)}"
    yield f"  Java:        {option.java_key or 'not an option there'}"
    yield f"  librdkafka:  {librdkafka or 'not an option there'}{f' ({about})' if about else ''}"
    if others:
        more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
        yield f"  Also set by: {', '.join(others[:_SHOWN])}{more}"
    yield f"  Environment: KAFKA_{option.name.upper()}"


def as_json(option: Option) -> dict[str, Any]:
    """All facts about one option, as an object."""
    kind = option.kind
    return {
        "name": option.name,
        "description": option.doc,
        "type": option.type,
        "default": json_value(option, option.default),
        "required": option.name == "bootstrap_servers",
        "unit": (kind.unit or None) if isinstance(kind, WholeNumber) else None,
        "allowed": option.allowed,
        "secret": option.secret,
        "java": option.java_key,
        "librdkafka": _librdkafka(option),
        "environment": f"KAFKA_{option.name.upper()}",
    }


def as_text(option: Option, value: object) -> str:
    """A value as it is written in a properties file; secrets are masked."""
    if value in (None, "", ()):
        return "not set"
    if isinstance(value, CompressionByTopic | PreferredCodecs):
        return str(value)
    plain = json_value(option, value)
    if isinstance(plain, bool):
        return "true" if plain else "false"
    return ",".join(cast("list[str]", plain)) if isinstance(plain, list) else str(plain)


def json_value(option: Option, value: object) -> Any:
    """A value for programs; secrets are masked, objects and PEM texts are described."""
    if isinstance(option.kind, AcksChoice):
        return "all" if value == -1 else str(value)
    if isinstance(value, Secret):
        return "***"
    if isinstance(value, CompressionByTopic):
        return {topic: list(codecs) if isinstance(codecs, tuple) else codecs for topic, codecs in value.items()}
    if isinstance(value, PreferredCodecs):
        return list(value)
    if isinstance(option.kind, Servers | Ciphers):
        return list(cast("tuple[str, ...]", value))
    is_plain = value is None or isinstance(value, bool | int | float | str)
    return value if value is None or (is_plain and not isinstance(option.kind, Pem)) else option.kind.show(value)


def _row(option: Option) -> tuple[str, ...]:
    dotted = option.name.replace("_", ".")
    java, librdkafka = ((_SAME if each == dotted else each) or _NONE for each in (option.java_key, _librdkafka(option)))
    return option.name, _default(option), java, librdkafka, _values(option.kind)


def _default(option: Option) -> str:
    return "(required)" if option.name == "bootstrap_servers" else as_text(option, option.default)


def _librdkafka(option: Option) -> str | None:
    if option.name in _SAME_IN_LIBRDKAFKA.split():
        return option.name.replace("_", ".")
    return _LIBRDKAFKA.get(option.name)


def _values(kind: Kind) -> str:
    """The valid values in a few words."""
    match kind:
        case WholeNumber():
            unit = f"{kind.unit}, " if kind.unit else ""
            return f"{unit}at least {kind.low}" if kind.high == _NO_LIMIT else f"{unit}{kind.low} to {kind.high}"
        case Real():
            return f"{kind.low} to {kind.high}"
        case Compression():
            return f"{' | '.join(kind.choices)} | codec,codec,... | topic:codec|codec,..."
        case Choice():
            return " | ".join(kind.choices)
        case AcksChoice():
            return "all | 1 | 0"
        case Flag():
            return "true | false"
        case SecretText():
            return "secret text"
        case File() | Pem():
            return kind.allowed()
        case Hook() if kind.methods == ("partition",):
            return "a callable, an object, or a name: see --explain partitioner"
        case Hook() | SerializerHook():
            return "a Python object"
        case _:
            return kind.allowed()
