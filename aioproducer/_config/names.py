"""Names that are not options, each with the option that it stands for."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from aioproducer._config.java_keys import BY_JAVA_KEY, DROPPED, TRANSLATIONS, dropped
from aioproducer._config.options import OPTIONS
from aioproducer.errors import ConfigError

__all__ = ["librdkafka_option", "meant_options", "unknown_option"]


class _Foreign(NamedTuple):
    """Another client's name for an option: its name here, if there is one, and a note."""

    client: str
    name: str | None
    note: str = ""


_FOREIGN: Final[Mapping[str, _Foreign]] = MappingProxyType(
    {
        "max_batch_size": _Foreign("aiokafka", "batch_size"),
        "sasl_plain_username": _Foreign("aiokafka", "sasl_username"),
        "sasl_plain_password": _Foreign("aiokafka", "sasl_password"),
        "sasl_kerberos_domain_name": _Foreign("aiokafka", None, "the broker's host name determines the domain"),
        "api_version": _Foreign("aiokafka", None, "versions are negotiated with every broker"),
        "loop": _Foreign("aiokafka", None, "the producer runs in the event loop in which it is started"),
        "ssl_check_hostname": _Foreign(
            "aiokafka",
            "ssl_context",
            "a broker's certificate must match its host name, unless your context disables that check",
        ),
        "ssl_crlfile": _Foreign("kafka-python", "ssl_context", "load the list into a context"),
        "ssl_password": _Foreign("kafka-python", "ssl_key_password"),
        "socks5_proxy": _Foreign("kafka-python", "proxy"),
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
        "sasl_oauthbearer_client_id": _Foreign("librdkafka", "sasl_oauth_token_provider", "see aioproducer.oauth"),
        "sasl_oauthbearer_client_secret": _Foreign("librdkafka", "sasl_oauth_token_provider", "see aioproducer.oauth"),
        "ssl_ca_location": _Foreign("librdkafka", "ssl_cafile"),
        "ssl_certificate_location": _Foreign("librdkafka", "ssl_certfile"),
        "ssl_key_location": _Foreign("librdkafka", "ssl_keyfile"),
        "ssl_ca_pem": _Foreign("librdkafka", "ssl_truststore_certificates"),
        "ssl_certificate_pem": _Foreign("librdkafka", "ssl_keystore_certificate_chain"),
        "ssl_key_pem": _Foreign("librdkafka", "ssl_keystore_key"),
        "enable_ssl_certificate_verification": _Foreign(
            "librdkafka", "ssl_context", "certificates are always verified, unless your context disables that"
        ),
        "statistics_interval_ms": _Foreign("librdkafka", None, "call producer.metrics() at any time"),
        "stats_cb": _Foreign("librdkafka", None, "call producer.metrics() at any time"),
        "error_cb": _Foreign(
            "librdkafka", None, "errors are raised by the call that they concern; see producer.health()"
        ),
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


#: How close a name must be to an option to count as a typo.
_NEAR = 0.85


def unknown_option(name: str) -> ConfigError:
    """The error for an unknown ``name``, with the option that was probably meant."""
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
    hint = f"Did you mean {nearest[0]!r}?" if nearest else "describe_options() lists all options."
    return ConfigError(f"{name!r} is not an option. {hint}")


def _explain_name(name: str, plain: str) -> str | None:
    """The meaning of an unknown name, if known."""
    foreign = _FOREIGN.get(plain)
    if foreign is not None:
        here = f"here it is called {foreign.name}" if foreign.name else "there is no such option here"
        note = f": {foreign.note}" if foreign.note else ""
        return f"{name!r} is an option of {foreign.client}; {here}{note}."
    dotted = plain.replace("_", ".")
    if dotted in DROPPED:
        return dropped(dotted)
    if dotted in BY_JAVA_KEY:
        return f"{name!r} is an option of the Java producer; here it is called {BY_JAVA_KEY[dotted]}."
    if dotted in TRANSLATIONS:
        options = ", ".join(TRANSLATIONS[dotted].options)
        return f"{name!r} is an option of the Java producer; the options for it here: {options}."
    return None


def librdkafka_option(name: str) -> str | None:
    """The option that librdkafka calls ``name`` and that means the same there; also with its prefix ``topic.``."""
    foreign = _FOREIGN.get(name.removeprefix("topic.").replace(".", "_"))
    return None if foreign is None or foreign.client != "librdkafka" or foreign.note else foreign.name


def meant_options(name: str) -> Sequence[str]:
    """The options that an unknown name stands for: another client's or Java's name, or a typo."""
    if name in _FOREIGN:
        return tuple(filter(None, [_FOREIGN[name].name]))
    dotted = name.replace("_", ".")
    if dotted in TRANSLATIONS:
        return TRANSLATIONS[dotted].options
    if dotted in BY_JAVA_KEY:
        return (BY_JAVA_KEY[dotted],)
    return difflib.get_close_matches(name, OPTIONS, n=1, cutoff=_NEAR)
