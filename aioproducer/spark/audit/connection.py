"""Translates librdkafka's options for the audit's other two clients: our own, and the one of Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigError
from aioproducer.spark.audit.offsets import AuditFailed

__all__ = ["connection_of", "java_security", "objection_to"]

#: librdkafka's connection options; all others are about reading.
_OF_CONNECTIONS: Final = (
    "bootstrap.servers",
    "metadata.broker.list",
    "client.id",
    "security.",
    "ssl.",
    "sasl.",
    "enable.ssl.",
)

_MODULES: Final = "org.apache.kafka.common.security"
_LOGIN_MODULES: Final[Mapping[str, str]] = {
    "PLAIN": f"{_MODULES}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_MODULES}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_MODULES}.scram.ScramLoginModule",
}

#: Java's names for what librdkafka reads from a file or takes as text.
_PEM: Final[Mapping[str, str]] = {
    "ssl.ca": "ssl.truststore.certificates",
    "ssl.certificate": "ssl.keystore.certificate.chain",
    "ssl.key": "ssl.keystore.key",
}


def connection_of(config: Mapping[str, str]) -> ProducerConfig:
    """Our client's connection options. Raises `ConfigError` for options that librdkafka supports and our client does not."""
    return ProducerConfig.from_properties(
        {name: value for name, value in config.items() if name.startswith(_OF_CONNECTIONS)}
    )


def objection_to(config: Mapping[str, str]) -> str | None:
    """Why our client cannot use these options; None if it can."""
    try:
        connection_of(config)
    except ConfigError as error:
        return str(error)
    return None


def java_security(config: Mapping[str, str]) -> Mapping[str, str]:
    """The same TLS and login for a Java client. Raises AuditFailed if a file cannot be read."""
    mechanism = config.get("sasl.mechanism", config.get("sasl.mechanisms", ""))
    java = {name: config[name] for name in ("bootstrap.servers", "security.protocol") if name in config}
    if mechanism:
        java["sasl.mechanism"] = mechanism
    if mechanism in _LOGIN_MODULES:
        user, password = (_quoted(config.get(f"sasl.{each}", "")) for each in ("username", "password"))
        java["sasl.jaas.config"] = f"{_LOGIN_MODULES[mechanism]} required username={user} password={password};"
    for name, java_name in _PEM.items():
        text = _text_of(config, name)
        if text is not None:
            java[java_name] = text
            java[f"{java_name.rsplit('.', 1)[0].removesuffix('.certificate')}.type"] = "PEM"
    if "ssl.key.password" in config:
        java["ssl.key.password"] = config["ssl.key.password"]
    return java


def _text_of(config: Mapping[str, str], name: str) -> str | None:
    path = config.get(f"{name}.location")
    if path is None:
        return config.get(f"{name}.pem")
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise AuditFailed(f"could not read {name}.location={path!r}: {error}.") from error


def _quoted(text: str) -> str:
    """The text quoted for a JAAS line."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
