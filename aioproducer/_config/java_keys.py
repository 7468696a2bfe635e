"""Java's keys, each with its meaning here."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from aioproducer._config.compression import named_codecs
from aioproducer._config.option import read_option
from aioproducer._config.options import OPTIONS
from aioproducer._config.refusal import refusal, shown
from aioproducer._config.secret import Secret
from aioproducer.errors import ConfigError

__all__ = ["BY_JAVA_KEY", "DROPPED", "TRANSLATIONS", "Translation", "dropped", "read_jaas"]

#: Each option's spelling with dots: Java's, or ours if Java has none.
BY_JAVA_KEY: Final[Mapping[str, str]] = MappingProxyType(
    {spelling: name for name, option in OPTIONS.items() for spelling in (name.replace("_", "."), option.dotted)}
)

_NO_JVM = "it names a JVM class or a JVM setting"
_TICKETS = "tickets come from the ticket cache, which kinit or k5start keeps fresh"
_BROKERS_TASK = "tokens are verified by the brokers, not by a producer"
_OWN_METRICS = "the rates of producer.metrics() are those of the last 30 s, and its other numbers need no windows"

#: Keys of Java's producer that have no counterpart here, each with the reason.
DROPPED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "buffer.memory.allocation.strategy": "memory is always allocated as records are added",
        "metrics.sample.window.ms": _OWN_METRICS,
        "metrics.num.samples": _OWN_METRICS,
        "metrics.recording.level": _OWN_METRICS,
        "auto.include.jmx.reporter": f"{_NO_JVM}, and newer Java producers no longer have it",
        "config.providers": "a configuration never runs code; fill in values before you pass them",
        "security.providers": _NO_JVM,
        "ssl.provider": _NO_JVM,
        "ssl.keymanager.algorithm": _NO_JVM,
        "ssl.trustmanager.algorithm": _NO_JVM,
        "ssl.secure.random.implementation": _NO_JVM,
        "ssl.engine.factory.class": f"{_NO_JVM}; pass ssl_context=...",
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


def dropped(key: str) -> str:
    """Why ``key`` has no counterpart here."""
    return f"{key!r} has no counterpart here: {DROPPED[key]}. Leave it out."


class Translation(NamedTuple):
    """A Java key that is more than another spelling: the options that it sets, and how its text is converted."""

    options: tuple[str, ...]
    convert: Callable[[str, str, Mapping[str, object]], Mapping[str, object]]


def _class_list(harmless: str, advice: str) -> Callable[[str, str, Mapping[str, object]], Mapping[str, object]]:
    def convert(key: str, text: str, properties: Mapping[str, object]) -> Mapping[str, object]:
        if text and text.rsplit(".", 1)[-1] != harmless:
            raise ConfigError(f"{key}={shown(text)} names Java classes, which cannot run here; {advice}")
        return {}

    return convert


def _level_of(codec: str) -> Callable[[str, str, Mapping[str, object]], Mapping[str, object]]:
    def convert(key: str, text: str, properties: Mapping[str, object]) -> Mapping[str, object]:
        """Only the level of the codec in use counts, as in Java; a keyword overrides the codec."""
        used = named_codecs(properties.get("compression_type", properties.get("compression.type")))
        level = read_option(OPTIONS["compression_level"], text, key)
        if codec not in used:
            return {}
        others = " and ".join(sorted(used - {codec}))
        if others:
            raise ConfigError(
                f"{key}={shown(text)} would also be the level of {others}, because compression_level applies to every "
                f"codec of compression.type. Leave it out, or use one codec."
            )
        return {"compression_level": level}

    return convert


def _endpoint_identification(key: str, text: str, properties: Mapping[str, object]) -> Mapping[str, object]:
    if text.lower() != "https":
        raise ConfigError(
            f"{key}={shown(text)}: a broker's certificate must always match its host here, as with 'https'; leave the key "
            f"out, or pass your own ssl_context."
        )
    return {}


def _enabled_protocols(key: str, text: str, properties: Mapping[str, object]) -> Mapping[str, object]:
    kind = OPTIONS["ssl_min_version"].kind
    versions = [str(kind.check(key, version)) for version in text.split(",") if version.strip()]
    return {"ssl_min_version": min(versions)} if versions else {}


def _protocol(key: str, text: str, properties: Mapping[str, object]) -> Mapping[str, object]:
    if text not in ("TLS", "TLSv1.3"):
        raise refusal(key, text, "'TLS' or 'TLSv1.3'; for other limits pass an ssl_context")
    return {}


def _store_type(key: str, text: str, properties: Mapping[str, object]) -> Mapping[str, object]:
    if text.upper() != "PEM":
        raise ConfigError(f"{key}={shown(text)} cannot be read here: {_PEM_ADVICE}")
    return {}


_PEM_ADVICE = (
    "only PEM can. Convert the store (keytool -importkeystore to PKCS12, then openssl pkcs12) and pass ssl_cafile, "
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
    """The user and password in a PLAIN or SCRAM line. The line is only parsed; nothing in it is ever run."""
    # Java requires the line for OAUTHBEARER and AWS_MSK_IAM even if it is empty.
    if "=" not in text and re.search(r"(OAuthBearer|IAM)LoginModule", text):
        return {}
    module, found = read_jaas(text)
    if module not in _PASSWORD_MODULES or found.keys() != {"username", "password"}:
        # The line is not shown: it may hold a password.
        raise ConfigError(
            f"{key} does not hold the user name and password of PLAIN or SCRAM; nothing else is read from it here. Pass "
            f"sasl_username=... and sasl_password=... to from_properties(), or sasl_oauth_token_provider=..."
        )
    return {"sasl_username": found["username"], "sasl_password": Secret(found["password"])}


_PASSWORD_MODULES: Final = frozenset(
    {
        "org.apache.kafka.common.security.plain.PlainLoginModule",
        "org.apache.kafka.common.security.scram.ScramLoginModule",
    }
)
_JAAS_OPTION: Final = re.compile(
    r"""\s+(?P<name>\w+)\s*=\s*(?:"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'|(?P<bare>[^\s"';]+))"""
)
_JAAS_MODULE: Final = re.compile(r"\s*([\w.]+)\s+required(?=[\s;])")
_JAAS_END: Final = re.compile(r"\s*;?\s*")


def read_jaas(text: str) -> tuple[str, dict[str, str]]:
    """The module of a JAAS line and its options; no module if it is not such a line."""
    module = _JAAS_MODULE.match(text)
    if module is None:
        return "", {}
    found: dict[str, str] = {}
    end = module.end()
    while (option := _JAAS_OPTION.match(text, end)) is not None:
        quoted = next((option[kind] for kind in ("double", "single") if option[kind] is not None), None)
        found[option["name"]] = option["bare"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        end = option.end()
    return (module[1], found) if _JAAS_END.fullmatch(text, end) else ("", {})


def _token_endpoint(key: str, text: str, properties: Mapping[str, object]) -> Mapping[str, object]:
    # CVE-2025-27817: a configuration must not be able to make this process read files or contact servers.
    raise ConfigError(
        f"{key} is not read here: a configuration cannot cause a URL to be requested or a file to be read. Pass "
        f"sasl_oauth_token_provider=... to from_properties(); aioproducer.oauth has providers for token endpoints."
    )


def _as(option: str) -> Callable[[str, str, Mapping[str, object]], Mapping[str, object]]:
    """Another client's name for an option."""

    def convert(key: str, text: str, properties: Mapping[str, object]) -> Mapping[str, object]:
        return {option: read_option(OPTIONS[option], text, key)}

    return convert


def _callback_class(*harmless: str) -> Callable[[str, str, Mapping[str, object]], Mapping[str, object]]:
    def convert(key: str, text: str, properties: Mapping[str, object]) -> Mapping[str, object]:
        if text.rsplit(".", 1)[-1] not in harmless:
            raise ConfigError(
                f"{key}={shown(text)} names a Java class, which cannot run here; pass sasl_username=... and "
                f"sasl_password=..., or sasl_oauth_token_provider=..."
            )
        return {}

    return convert


_ENDPOINT_KEYS: Final = (
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.login.retry.backoff.ms",
    "sasl.login.retry.backoff.max.ms",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.extensions",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.header.urlencode",
    "sasl.oauthbearer.assertion.algorithm",
    "sasl.oauthbearer.assertion.claim.aud",
    "sasl.oauthbearer.assertion.claim.iss",
    "sasl.oauthbearer.assertion.claim.sub",
    "sasl.oauthbearer.assertion.claim.exp.seconds",
    "sasl.oauthbearer.assertion.claim.nbf.seconds",
    "sasl.oauthbearer.assertion.claim.jti.include",
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.private.key.file",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.template.file",
)

#: librdkafka's names for options that exist here; from_properties() reads them, because many snippets use them.
_LIBRDKAFKA: Final[Mapping[str, str]] = MappingProxyType(
    {
        "metadata.broker.list": "bootstrap_servers",
        "ssl.ca.location": "ssl_cafile",
        "ssl.certificate.location": "ssl_certfile",
        "ssl.key.location": "ssl_keyfile",
        "ssl.ca.pem": "ssl_truststore_certificates",
        "ssl.certificate.pem": "ssl_keystore_certificate_chain",
        "ssl.key.pem": "ssl_keystore_key",
        "sasl.mechanisms": "sasl_mechanism",
    }
)

_CREDENTIALS = (
    "sasl_username",
    "sasl_password",
    "sasl_credentials_provider",
    "sasl_oauth_token_provider",
    "sasl_kerberos_service_name",
)


TRANSLATIONS: Final[Mapping[str, Translation]] = MappingProxyType(
    {
        "interceptor.classes": Translation(("interceptors",), _class_list("", "pass interceptors=[...].")),
        "metric.reporters": Translation(
            ("metric_reporters",), _class_list("JmxReporter", "pass metric_reporters=[...].")
        ),
        "compression.gzip.level": Translation(("compression_level",), _level_of("gzip")),
        "compression.lz4.level": Translation(("compression_level",), _level_of("lz4")),
        "compression.zstd.level": Translation(("compression_level",), _level_of("zstd")),
        "ssl.endpoint.identification.algorithm": Translation(("ssl_context",), _endpoint_identification),
        "ssl.enabled.protocols": Translation(("ssl_min_version",), _enabled_protocols),
        "ssl.protocol": Translation(("ssl_min_version",), _protocol),
        "ssl.keystore.type": Translation(("ssl_certfile",), _store_type),
        "ssl.keystore.location": Translation(("ssl_certfile",), _store_location("ssl_certfile")),
        "ssl.keystore.password": Translation(("ssl_certfile",), _store_password),
        "ssl.truststore.type": Translation(("ssl_cafile",), _store_type),
        "ssl.truststore.location": Translation(("ssl_cafile",), _store_location("ssl_cafile")),
        "ssl.truststore.password": Translation(("ssl_cafile",), _store_password),
        "sasl.jaas.config": Translation(_CREDENTIALS, _jaas),
        **{key: Translation(("sasl_oauth_token_provider",), _token_endpoint) for key in _ENDPOINT_KEYS},
        **{key: Translation((option,), _as(option)) for key, option in _LIBRDKAFKA.items()},
        "sasl.login.class": Translation(_CREDENTIALS, _callback_class()),
        "sasl.login.callback.handler.class": Translation(
            _CREDENTIALS, _callback_class("OAuthBearerLoginCallbackHandler")
        ),
        "sasl.client.callback.handler.class": Translation(_CREDENTIALS, _callback_class("IAMClientCallbackHandler")),
    }
)
