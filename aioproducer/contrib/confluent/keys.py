"""librdkafka's keys, each with its meaning here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["ALIASES", "DEFAULTS", "DIRECT", "IGNORED", "REFUSED", "REFUSED_UNLESS"]

#: Other spellings of keys; the first spelling is the one that is used below.
ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "metadata.broker.list": "bootstrap.servers",
        "queue.buffering.max.ms": "linger.ms",
        "linger.ms": "linger.ms",
        "request.required.acks": "acks",
        "acks": "acks",
        "compression.codec": "compression.type",
        "compression.type": "compression.type",
        "compression.level": "compression.level",
        "delivery.timeout.ms": "message.timeout.ms",
        "message.timeout.ms": "message.timeout.ms",
        "request.timeout.ms": "request.timeout.ms",
        "partitioner": "partitioner",
        "message.send.max.retries": "retries",
        "max.in.flight": "max.in.flight.requests.per.connection",
        "sasl.mechanisms": "sasl.mechanism",
        "dr_cb": "on_delivery",
        "dr_msg_cb": "on_delivery",
    }
)

#: Keys with the same meaning, each with our option; empty if a table of other clients' names has it.
DIRECT: Final[Mapping[str, str]] = MappingProxyType(
    dict.fromkeys(
        (
            "acks",
            "bootstrap.servers",
            "client.dns.lookup",
            "client.id",
            "client.rack",
            "compression.type",
            "connections.max.idle.ms",
            "enable.idempotence",
            "enable.metrics.push",
            "linger.ms",
            "max.in.flight.requests.per.connection",
            "metadata.recovery.rebootstrap.trigger.ms",
            "metadata.recovery.strategy",
            "partitioner",
            "reconnect.backoff.max.ms",
            "reconnect.backoff.ms",
            "request.timeout.ms",
            "retries",
            "retry.backoff.max.ms",
            "retry.backoff.ms",
            "security.protocol",
            "socket.connection.setup.timeout.ms",
            "ssl.key.password",
            "sasl.kerberos.service.name",
            "sasl.mechanism",
            "transaction.timeout.ms",
            "transactional.id",
        ),
        "",
    )
    | {
        "allow.auto.create.topics": "allow_auto_create_topics",
        "batch.size": "batch_size",
        "compression.level": "compression_level",
        "message.max.bytes": "max_request_size",
        "message.timeout.ms": "delivery_timeout_ms",
        "sasl.password": "sasl_password",
        "sasl.username": "sasl_username",
        "socket.receive.buffer.bytes": "receive_buffer_bytes",
        "socket.send.buffer.bytes": "send_buffer_bytes",
        "ssl.ca.location": "ssl_cafile",
        "ssl.ca.pem": "ssl_truststore_certificates",
        "ssl.certificate.location": "ssl_certfile",
        "ssl.certificate.pem": "ssl_keystore_certificate_chain",
        "ssl.cipher.suites": "ssl_cipher_suites",
        "ssl.key.location": "ssl_keyfile",
        "ssl.key.pem": "ssl_keystore_key",
        "topic.metadata.propagation.max.ms": "unknown_topic_timeout_ms",
        "topic.metadata.refresh.interval.ms": "metadata_max_age_ms",
    }
)

#: librdkafka's defaults, where ours differ.
DEFAULTS: Final[Mapping[str, object]] = MappingProxyType(
    {
        "acks": -1,
        "batch_size": 1_000_000,
        "client_id": "rdkafka",
        "connections_max_idle_ms": -1,
        "delivery_timeout_ms": 300_000,
        "enable_idempotence": False,
        "linger_ms": 5,
        "max_block_ms": 2**31 - 1,
        "max_request_size": 1_000_000,
        "partitioner": "consistent_random",
        "reconnect_backoff_max_ms": 10_000,
        "reconnect_backoff_ms": 100,
        "request_timeout_ms": 30_000,
        "retry_backoff_max_ms": 1_000,
        "retry_backoff_ms": 100,
        "security_protocol": "PLAINTEXT",
        "transaction_timeout_ms": 60_000,
        "unknown_topic_timeout_ms": 30_000,
    }
)

_LOGGING: Final = "set the level of the logger 'aioproducer'"
_VERSIONS: Final = "versions are negotiated with every broker"
_METADATA: Final = "metadata are refreshed when they are needed"
_METRICS: Final = "there are no statistics events; the producer's metrics() returns numbers at any time"

#: Keys without effect that a program can do without, each with the reason.
IGNORED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "api.version.fallback.ms": _VERSIONS,
        "api.version.request": _VERSIONS,
        "api.version.request.timeout.ms": _VERSIONS,
        "batch.num.messages": "batches are limited by batch.size",
        "broker.address.family": "addresses are used in the order in which they are resolved",
        "broker.address.ttl": "names are resolved for each connection",
        "broker.version.fallback": _VERSIONS,
        "client.software.name": "brokers see aioproducer's name",
        "client.software.version": "brokers see aioproducer's version",
        "debug": _LOGGING,
        "enable.random.seed": "random numbers are Python's",
        "internal.termination.signal": "no signal is used",
        "log.connection.close": _LOGGING,
        "log.queue": _LOGGING,
        "log.thread.name": _LOGGING,
        "log_level": _LOGGING,
        "max.in.flight.requests": "it limits requests without records",
        "message.copy.max.bytes": "records are always copied into batches",
        "metadata.max.age.ms": "use topic.metadata.refresh.interval.ms",
        "metadata.request.timeout.ms": "request.timeout.ms limits every request",
        "queue.buffering.backpressure.threshold": "batches are filled until a request can be sent",
        "receive.message.max.bytes": "responses to a producer are small",
        "socket.blocking.max.ms": "it is deprecated",
        "socket.keepalive.enable": "a connection that is broken is detected by request.timeout.ms",
        "socket.max.fails": "a connection is closed at the first failure",
        "socket.nagle.disable": "it is always disabled",
        "socket.timeout.ms": "request.timeout.ms limits every request",
        "statistics.interval.ms": _METRICS,
        "sticky.partitioning.linger.ms": "records without a key stay in a partition for a batch",
        "topic.metadata.refresh.fast.cnt": _METADATA,
        "topic.metadata.refresh.fast.interval.ms": _METADATA,
        "topic.metadata.refresh.sparse": _METADATA,
        "produce.offset.report": "offsets are always reported",
    }
)

_PEM: Final = "only PEM files and texts are read: use ssl.certificate.location and ssl.key.location."
_CONTEXT: Final = "no such list is supported; leave it out."
_TICKETS: Final = "tickets come from the ticket cache, which kinit or k5start keeps fresh; leave it out."

#: Keys that matter and have no counterpart, each with the way out.
REFUSED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "opaque": "it is librdkafka's own.",
        "plugin.library.paths": "librdkafka's plugins cannot be loaded.",
        "sasl.kerberos.keytab": _TICKETS,
        "sasl.kerberos.kinit.cmd": _TICKETS,
        "sasl.kerberos.min.time.before.relogin": _TICKETS,
        "sasl.kerberos.principal": _TICKETS,
        "ssl.crl.location": _CONTEXT,
        "ssl.curves.list": _CONTEXT,
        "ssl.engine.id": "OpenSSL's engines are not supported.",
        "ssl.engine.location": "OpenSSL's engines are not supported.",
        "ssl.keystore.location": _PEM,
        "ssl.keystore.password": _PEM,
        "ssl.providers": "OpenSSL's providers are not supported.",
        "ssl.sigalgs.list": _CONTEXT,
        "topic.blacklist": "metadata of all topics are never requested.",
    }
)

#: Keys of which only some values can be honoured, with the reason.
REFUSED_UNLESS: Final[Mapping[str, tuple[tuple[str, ...], str]]] = MappingProxyType(
    {
        "enable.gapless.guarantee": (("false", "none"), "use transactions."),
        "enable.sasl.oauthbearer.unsecure.jwt": (("false", "none"), "pass oauth_cb, which returns tokens."),
        "enable.ssl.certificate.verification": (("true",), "certificates are always verified."),
        "queuing.strategy": (("fifo",), "records are sent in order."),
        "sasl.oauthbearer.method": (("default",), "pass oauth_cb, which returns tokens."),
        "ssl.endpoint.identification.algorithm": (("https",), "a certificate must match the broker's name."),
    }
)
