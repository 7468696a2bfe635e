"""The tables of the configuration page, from the options as the code declares them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from aioproducer.config import OPTIONS, Option

__all__ = ["DIFFERENT", "GROUPS", "JAVA_DEFAULTS", "groups", "option_tables"]

#: The groups in their order: a title, and the options in it, by their name or by its beginning (with ``*``).
GROUPS: Mapping[str, Sequence[str]] = {
    "Delivery": (
        "acks",
        "enable_idempotence",
        "producer_id_expiration_ms",
        "on_data_loss",
        "retries",
        "delivery_timeout_ms",
        "max_block_ms",
        "request_timeout_ms",
        "close_timeout_ms",
        "unknown_topic_timeout_ms",
        "max_in_flight_requests_per_connection",
        "retry_backoff*",
    ),
    "Batches and memory": ("linger_ms", "batch_size", "buffer_memory", "max_request_size", "compression*"),
    "Partitions": ("partitioner*", "client_rack"),
    "Serializers and callbacks": ("key_serializer", "value_serializer", "interceptors", "on_delivery_error"),
    "Transactions": ("transaction*",),
    "Security": ("security_protocol", "ssl_*", "sasl_*"),
    "Connections and metadata": ("*",),
}

#: The defaults of Kafka 4.x's Java producer, as its documentation writes them. Keys with the same default of None,
#: False, an empty text or an empty list are left out.
JAVA_DEFAULTS: Mapping[str, object] = {
    "acks": "all",
    "batch.size": 16_384,
    "bootstrap.resolve.timeout.ms": 0,
    "buffer.memory": 33_554_432,
    "client.dns.lookup": "use_all_dns_ips",
    "compression.type": "none",
    "connections.max.idle.ms": 540_000,
    "delivery.timeout.ms": 120_000,
    "enable.idempotence": True,
    "enable.metrics.push": True,
    "linger.ms": 5,
    "max.block.ms": 60_000,
    "max.in.flight.requests.per.connection": 5,
    "max.request.size": 1_048_576,
    "metadata.cluster.check.enable": True,
    "metadata.max.age.ms": 300_000,
    "metadata.max.idle.ms": 300_000,
    "metadata.recovery.rebootstrap.trigger.ms": 300_000,
    "metadata.recovery.strategy": "rebootstrap",
    "metric.reporters": "JmxReporter",
    "partitioner.adaptive.partitioning.enable": True,
    "partitioner.availability.timeout.ms": 0,
    "receive.buffer.bytes": 32_768,
    "reconnect.backoff.max.ms": 1_000,
    "reconnect.backoff.ms": 50,
    "request.timeout.ms": 30_000,
    "retries": 2_147_483_647,
    "retry.backoff.max.ms": 1_000,
    "retry.backoff.ms": 100,
    "sasl.login.refresh.buffer.seconds": 300,
    "sasl.login.refresh.min.period.seconds": 60,
    "sasl.login.refresh.window.factor": 0.8,
    "sasl.login.refresh.window.jitter": 0.05,
    "sasl.mechanism": "GSSAPI",
    "security.protocol": "PLAINTEXT",
    "send.buffer.bytes": 131_072,
    "socket.connection.setup.timeout.max.ms": 30_000,
    "socket.connection.setup.timeout.ms": 10_000,
    "ssl.enabled.protocols": "TLSv1.2, TLSv1.3",
    "transaction.timeout.ms": 60_000,
    "transaction.two.phase.commit.enable": False,
}

#: Where the default, or what it does, is not Java's; and why.
DIFFERENT: Mapping[str, str] = {
    "key_serializer": "Java requires a class. Bytes and text need no serializer here.",
    "value_serializer": "Java requires a class. Bytes and text need no serializer here.",
    "linger_ms": "The number is Java's. Here it applies only while an earlier batch of the partition is in flight, so that "
    "a lone record leaves at once.",
    "batch_size": "Java allocates this much for each batch. Here a batch takes memory as it fills, and larger batches cost "
    "less CPU for each record.",
    "bootstrap_resolve_timeout_ms": "The number is Java's. It has no effect here: names are always resolved in the "
    "background.",
    "metric_reporters": "Java starts a JMX reporter. Reporters are not supported yet; call `producer.metrics()`.",
    "sasl_mechanism": "Java's default is GSSAPI. It must be given here, because a wrong guess ends in an error that is hard "
    "to read.",
    "ssl_min_version": "Java lists the versions that it allows. This is the oldest of them; the effect is the same.",
    "client_id": "Java counts `producer-1`, `producer-2`; here the name is `aioproducer-1`, `aioproducer-2`.",
}


def groups() -> Mapping[str, Sequence[Option]]:
    """Each option in the first group that names it."""
    left = dict(OPTIONS)
    found: dict[str, list[Option]] = {}
    for title, names in GROUPS.items():
        chosen = [name for pattern in names for name in OPTIONS if name in left and _matches(name, pattern)]
        found[title] = [left.pop(name) for name in dict.fromkeys(chosen)]
    return found


def _matches(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def option_tables() -> str:
    """A section with a table for each group, and one of the differences from Java."""
    lines: list[str] = []
    for title, options in groups().items():
        lines += [
            f"## {title}",
            "",
            "| option, and Java's key | type or unit | default | what it does |",
            "|---|---|---|---|",
        ]
        lines += [_row(option) for option in options]
        lines.append("")
    lines += ["## Where the default is not Java's", "", "| option | here | Java | why |", "|---|---|---|---|"]
    lines += _differences()
    return "\n".join(lines)


def _row(option: Option) -> str:
    doc = option.doc if option.doc.endswith(".") else f"{option.doc}."
    java = f"`{option.java_key}`" if option.java_key else "not in Java"
    cells = (f"`{option.name}`<br>{java}", _kind(option), _default(option), doc)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _kind(option: Option) -> str:
    """What the option may be, without the bounds that only say that it is not negative, or fits into 32 bits."""
    text = re.sub(r", at least 0\b|, [01] to 2147483647", "", option.allowed)
    return re.sub(r"^a whole number(?: of (\w+))?", lambda found: found[1] or "integer", text)


def _default(option: Option) -> str:
    return "required" if option.name == "bootstrap_servers" else f"`{option.kind.show(option.default)}`"


def _differences() -> Iterator[str]:
    for name, why in DIFFERENT.items():
        option = OPTIONS[name]
        java = JAVA_DEFAULTS.get(option.dotted, "required" if name.endswith("_serializer") else "empty")
        yield f"| `{name}` | {_default(option)} | `{java}` | {why} |"
