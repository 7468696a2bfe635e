"""The options of the sink: Spark's own ones for Kafka, every option of a producer, and what only this sink has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigError
from aioproducer.spark.schema_registry import SchemaRegistry

__all__ = ["DeliveryGuarantee", "MissingMarker", "SinkOptions", "ValueFormat"]

_E = TypeVar("_E", bound=StrEnum)


class DeliveryGuarantee(StrEnum):
    """What a job promises of its rows."""

    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


class MissingMarker(StrEnum):
    """What to do where a query goes on and the marker of its last batch is gone."""

    FAIL = "fail"
    TRUST_CHECKPOINT = "trust-checkpoint"


class ValueFormat(StrEnum):
    """What a record's value is."""

    RAW = "raw"  # the column `value`
    JSON = "json"  # an object of all columns that are nothing else
    AVRO = "avro"  # a record of these


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of one query or job, checked; can be pickled, with the producer's secrets.

    ``config`` says nothing of transactions: in those of Spark no producer decides. ``transactional_id`` is empty unless the
    guarantee is exactly-once. ``rate_limit`` is for all tasks that run at once, which are ``rate_limit_tasks``.
    """

    config: ProducerConfig
    topic: str | None = None
    guarantee: DeliveryGuarantee = DeliveryGuarantee.AT_LEAST_ONCE
    transactional_id: str = ""
    transaction_timeout_ms: int = 600_000
    marker_topic: str | None = None
    missing_marker: MissingMarker = MissingMarker.FAIL
    job_id: str | None = None
    value_format: ValueFormat = ValueFormat.RAW
    avro_schema: str | None = None
    registry_url: str | None = field(default=None, repr=False)
    registry_user_info: str | None = field(default=None, repr=False)
    max_in_flight_batches: int = 4
    rate_limit: int | None = None
    rate_limit_tasks: int | None = None
    report: str | None = None
    dead_letter_topic: str | None = None
    headers: tuple[tuple[str, bytes], ...] = ()

    @classmethod
    def from_spark(cls, options: Mapping[str, str]) -> SinkOptions:
        """What ``.option(...)`` was given, keys in any case; raises `ConfigError` for what is wrong, with the way out."""
        given = {key.lower(): value.strip() for key, value in options.items()}
        found: dict[str, object] = {}
        properties: dict[str, object] = {}
        headers: dict[str, bytes] = {}
        for key, text in given.items():
            plain = key.removeprefix("kafka.")
            if plain in _OWN:
                own = _OWN[plain]
                found[own.field] = own.read(plain, text)
            elif key.startswith("headers."):
                headers[_spelled(options, key).partition(".")[2]] = text.encode()
            elif plain in _REFUSED:
                raise ConfigError(f"The option {key!r} is not supported: {_REFUSED[plain]}")
            elif key in _OF_SPARK:
                continue
            else:
                properties[plain] = text
        if not {"bootstrap.servers", "bootstrap_servers"} & properties.keys():
            raise ConfigError(
                "The option 'kafka.bootstrap.servers' is missing: .option('kafka.bootstrap.servers', 'host:9092,host:9092')"
            )
        config, constant = _producer_config(properties), tuple(sorted(headers.items()))
        checked = cls(config, headers=constant, **found)  # type: ignore[arg-type]  # the table names each field and its parser
        checked._check_transaction()
        checked._check_avro()
        checked._check_dead_letters()
        if checked.rate_limit is None and checked.rate_limit_tasks is not None:
            raise ConfigError(
                "rate.limit.tasks says how many tasks share a limit, and there is none: set rate.limit.records.per.second."
            )
        return checked

    @property
    def is_exactly_once(self) -> bool:
        """Whether the rows are written in a transaction."""
        return self.guarantee is DeliveryGuarantee.EXACTLY_ONCE

    @property
    def registry(self) -> SchemaRegistry | None:
        """Where the schema of Avro values is registered; raises `ConfigError` for what is no registry's URL."""
        return None if self.registry_url is None else SchemaRegistry.at(self.registry_url, self.registry_user_info)

    @property
    def rows_per_second(self) -> float | None:
        """How fast a task may write; None: as fast as it can. Raises `ConfigError` where its share cannot be told."""
        if self.rate_limit is None:
            return None
        if self.rate_limit_tasks is None:
            raise ConfigError(
                "The option 'rate.limit.records.per.second' is shared by the tasks that run at the same time, and Spark "
                "does not tell how many these are: say so with .option('rate.limit.tasks', ...), which is the number of "
                "the cluster's slots, or of the DataFrame's partitions where these are fewer."
            )
        return self.rate_limit / self.rate_limit_tasks

    def marker_partition_topic(self) -> str:
        """The topic whose partition 0 the marker's offset is of; raises `ConfigError` where none can be told."""
        topic = self.marker_topic or self.topic
        if topic is None:
            raise ConfigError(
                "The rows name their topics themselves, so the option 'commit.marker.topic' has to name an existing topic "
                "for the marker that is committed with each batch. (Its partition 0 is only named; no record is written.)"
            )
        return topic

    def _check_transaction(self) -> None:
        if not self.is_exactly_once:
            if self.transactional_id or self.job_id is not None:
                extra = "transactional.id" if self.transactional_id else "job.id"
                raise ConfigError(
                    f"The option {extra!r} belongs to .option('delivery.guarantee', 'exactly-once'), which is not set. "
                    "Set it, or leave the other out."
                )
            return
        if not self.transactional_id:
            raise ConfigError(
                "delivery.guarantee=exactly-once needs the option 'transactional.id': a name that only this query has, and "
                "keeps when it is restarted. By it Kafka finds what an earlier run has left open."
            )
        if self.config.acks != -1 or not self.config.enable_idempotence:
            raise ConfigError(
                "delivery.guarantee=exactly-once needs acks=all and enable.idempotence=true, which are the defaults: "
                "leave out 'kafka.acks' and 'kafka.enable.idempotence'."
            )

    def _check_avro(self) -> None:
        given = {
            "avro.schema": self.avro_schema,
            "schema.registry.url": self.registry_url,
            "schema.registry.basic.auth.user.info": self.registry_user_info,
        }
        extra = next((name for name, value in given.items() if value is not None), None)
        if extra is not None and self.value_format is not ValueFormat.AVRO:
            raise ConfigError(f"The option {extra!r} belongs to .option('value.format', 'avro'), which is not set.")
        if extra is not None and self.registry_url is None and self.registry_user_info is not None:
            raise ConfigError("schema.registry.basic.auth.user.info is a login, and schema.registry.url is not set.")
        if self.registry is not None and self.topic is None:
            raise ConfigError(
                "The rows name their topics themselves, and a schema is registered under the name of one: set "
                ".option('topic', ...), or leave out schema.registry.url."
            )

    def _check_dead_letters(self) -> None:
        if self.dead_letter_topic is None:
            return
        if self.dead_letter_topic == self.topic:
            raise ConfigError(
                f"on.record.error: dead letters cannot go to {self.topic!r}, where the other rows go. Name another topic."
            )
        if self.value_format is ValueFormat.JSON:
            raise ConfigError(
                "on.record.error=dead-letter looks at the size of the column 'value', and with value.format=json there is "
                "none. Make it, with df.selectExpr('to_json(struct(*)) AS value'), and leave value.format out."
            )
        if self.config.buffer_memory <= self.config.max_request_size:
            raise ConfigError(
                f"on.record.error=dead-letter needs room for rows that are larger than kafka.max.request.size="
                f"{self.config.max_request_size}: raise kafka.buffer.memory={self.config.buffer_memory}, which bounds them."
            )


class _Own(NamedTuple):
    """An option that is not the producer's: the field it fills, and how its text is read."""

    field: str
    read: Callable[[str, str], object]


def _text(name: str, text: str) -> str:
    if not text:
        raise ConfigError(f"The option {name!r} is empty.")
    return text


def _positive(name: str, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise ConfigError(f"{name}={text!r}: a whole number from 1 is expected.")
    return number


def _local_path(name: str, text: str) -> str:
    if "://" in text:
        raise ConfigError(f"{name}={text!r}: a path on the driver's machine is expected, not a URL.")
    return _text(name, text)


def _dead_letter_topic(name: str, text: str) -> str | None:
    kind, _, topic = text.partition(":")
    if text.lower() == "fail":
        return None
    if kind.lower() != "dead-letter" or not topic.strip():
        raise ConfigError(f"{name}={text!r}: there is 'fail' and 'dead-letter:<topic>'.")
    return topic.strip()


def _one_of(choices: type[_E]) -> Callable[[str, str], _E]:
    def read(name: str, text: str) -> _E:
        try:
            return choices(text.lower())
        except ValueError:
            near = get_close_matches(text.lower(), list(choices), n=1)
            hint = f" Did you mean {str(near[0])!r}?" if near else ""
            raise ConfigError(
                f"{name}={text!r}: there is {' and '.join(map(repr, map(str, choices)))}.{hint}"
            ) from None

    return read


_OWN: Final[Mapping[str, _Own]] = {
    "topic": _Own("topic", _text),
    "delivery.guarantee": _Own("guarantee", _one_of(DeliveryGuarantee)),
    "transactional.id": _Own("transactional_id", _text),
    "transaction.timeout.ms": _Own("transaction_timeout_ms", _positive),
    "commit.marker.topic": _Own("marker_topic", _text),
    "commit.marker.missing": _Own("missing_marker", _one_of(MissingMarker)),
    "job.id": _Own("job_id", _text),
    "value.format": _Own("value_format", _one_of(ValueFormat)),
    "avro.schema": _Own("avro_schema", _text),
    "schema.registry.url": _Own("registry_url", _text),
    "schema.registry.basic.auth.user.info": _Own("registry_user_info", _text),
    "max.in.flight.batches": _Own("max_in_flight_batches", _positive),
    "rate.limit.records.per.second": _Own("rate_limit", _positive),
    "rate.limit.tasks": _Own("rate_limit_tasks", _positive),
    "report": _Own("report", _local_path),
    "on.record.error": _Own("dead_letter_topic", _dead_letter_topic),
}

#: What Spark itself adds to the options, or reads from them.
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname", "outputmode", "path"})

_AS_BYTES: Final = (
    "keys and values are written as the bytes of their columns; cast those with DataFrame operations instead."
)
_OF_A_CONSUMER: Final = "it belongs to a consumer, and this is a sink."

#: What Spark's own sink for Kafka refuses, and why.
_REFUSED: Final[Mapping[str, str]] = {
    "key.serializer": _AS_BYTES,
    "value.serializer": _AS_BYTES,
    "key.deserializer": _OF_A_CONSUMER,
    "value.deserializer": _OF_A_CONSUMER,
    "group.id": _OF_A_CONSUMER,
    "auto.offset.reset": _OF_A_CONSUMER,
    "enable.auto.commit": _OF_A_CONSUMER,
    "interceptor.classes": "it names Java classes, and there is no JVM in this producer.",
    "partitioner.class": "it names a Java class; add the column 'partition' to choose partitions yourself.",
}


#: Rows come ten thousand at a time, so batches fill without lingering; those of Java's 16 KiB cost half as much again.
_BATCH_SIZE: Final = 262_144


def _producer_config(properties: Mapping[str, object]) -> ProducerConfig:
    try:
        config = ProducerConfig.from_properties(properties)
    except ConfigError as error:
        own = ", ".join(_OWN)
        raise ConfigError(
            f"{error} (Options of the sink are {own} and headers.<name>; every other one is the producer's, with or "
            "without 'kafka.' before it.)"
        ) from error
    if {"batch.size", "batch_size"} & properties.keys():
        return config
    return config.replace(batch_size=min(_BATCH_SIZE, config.max_request_size, config.buffer_memory))


def _spelled(options: Mapping[str, str], lowered: str) -> str:
    """The key as it was given; Spark itself may have made it lower case already."""
    return next(key for key in options if key.lower() == lowered)
