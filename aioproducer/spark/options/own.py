"""The sink's own options, how each is parsed, and those that it refuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

from aioproducer.arguments import checked_topic
from aioproducer.errors import ConfigError

__all__ = [
    "OF_SPARK",
    "OWN",
    "REFUSED",
    "DeliveryGuarantee",
    "MarkerMismatch",
    "MissingMarker",
    "OwnOption",
    "ValueFormat",
]

_E = TypeVar("_E", bound=StrEnum)


class DeliveryGuarantee(StrEnum):
    """The delivery guarantee of a job."""

    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


class MissingMarker(StrEnum):
    """The reaction if a query continues but the marker of its last batch is gone."""

    FAIL = "fail"
    TRUST_CHECKPOINT = "trust-checkpoint"


class MarkerMismatch(StrEnum):
    """The reaction to a batch that has the number of a committed one but different contents."""

    FAIL = "fail"
    SKIP = "skip"


class ValueFormat(StrEnum):
    """The form of a record's value."""

    RAW = "raw"  # the column `value`
    JSON = "json"  # an object of all columns that are not another part of the record
    AVRO = "avro"  # a record of these


class OwnOption(NamedTuple):
    """An option of the sink: the field it fills, and how its text is parsed.

    ``is_secret``: never show the text; ``is_exact``: leading and trailing blanks are significant.
    """

    field: str
    read: Callable[[str, str], object]
    is_secret: bool = False
    is_exact: bool = False
    is_internal: bool = False


def _text(name: str, text: str) -> str:
    if not text:
        raise ConfigError(f"The option {name!r} is empty.")
    return text


def _topic(name: str, text: str) -> str:
    return checked_topic(_text(name, text), lambda why: ConfigError(f"The option {name!r}: {why}"))


def _positive(name: str, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise ConfigError(f"invalid {name}={text!r}: must be an integer of at least 1.")
    return number


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"invalid {name}={text!r}: must be 'true' or 'false'.")
    return text.lower() == "true"


def _local_path(name: str, text: str) -> str:
    if "://" in text:
        raise ConfigError(f"invalid {name}={text!r}: must be a path on the driver's machine, not a URL.")
    return _text(name, text)


def _dead_letter_topic(name: str, text: str) -> str | None:
    kind, _, topic = text.partition(":")
    if text.lower() == "fail":
        return None
    if kind.lower() != "dead-letter" or not topic.strip():
        raise ConfigError(f"invalid {name}={text!r}: must be 'fail' or 'dead-letter:<topic>'.")
    return _topic(name, topic.strip())


def _one_of(choices: type[_E]) -> Callable[[str, str], _E]:
    def read(name: str, text: str) -> _E:
        try:
            return choices(text.lower())
        except ValueError:
            near = get_close_matches(text.lower(), list(choices), n=1)
            hint = f" Did you mean {str(near[0])!r}?" if near else ""
            raise ConfigError(
                f"invalid {name}={text!r}: must be {' or '.join(map(repr, map(str, choices)))}.{hint}"
            ) from None

    return read


OWN: Final[Mapping[str, OwnOption]] = {
    "topic": OwnOption("topic", _topic),
    "delivery.guarantee": OwnOption("guarantee", _one_of(DeliveryGuarantee)),
    "transactional.id": OwnOption("transactional_id", _text),
    "transaction.timeout.ms": OwnOption("transaction_timeout_ms", _positive),
    "commit.marker.topic": OwnOption("marker_topic", _topic),
    "commit.marker.missing": OwnOption("missing_marker", _one_of(MissingMarker)),
    "commit.marker.mismatch": OwnOption("mismatch", _one_of(MarkerMismatch)),
    "commit.log.topic": OwnOption("log_topic", _topic),
    "job.id": OwnOption("job_id", _text),
    "load.slice": OwnOption("is_load_slice", _flag, is_internal=True),
    "value.format": OwnOption("value_format", _one_of(ValueFormat)),
    "avro.schema": OwnOption("avro_schema", _text),
    "schema.registry.url": OwnOption("registry_url", _text, is_secret=True),
    "schema.registry.basic.auth.user.info": OwnOption("registry_user_info", _text, is_secret=True, is_exact=True),
    "max.in.flight.batches": OwnOption("max_in_flight_batches", _positive),
    "rate.limit.records.per.second": OwnOption("rate_limit", _positive),
    "rate.limit.tasks": OwnOption("rate_limit_tasks", _positive),
    "report": OwnOption("report", _local_path),
    "on.record.error": OwnOption("dead_letter_topic", _dead_letter_topic),
}

#: Options that Spark itself adds or reads, and the headers option of its own sink, which headers do not need here.
OF_SPARK: Final = frozenset({"checkpointlocation", "queryname", "outputmode", "path", "includeheaders"})

_AS_BYTES: Final = (
    "keys and values are written as the bytes of their columns; cast the columns with DataFrame operations instead."
)
_OF_A_CONSUMER: Final = "it is a consumer option, and this is a sink."

_OF_A_SOURCE: Final = "it is an option of Spark's Kafka source, and this is a sink."

#: Options that Spark's own Kafka sink refuses or ignores, and why.
REFUSED: Final[Mapping[str, str]] = {
    "key.serializer": _AS_BYTES,
    "value.serializer": _AS_BYTES,
    "key.deserializer": _OF_A_CONSUMER,
    "value.deserializer": _OF_A_CONSUMER,
    "group.id": _OF_A_CONSUMER,
    "auto.offset.reset": _OF_A_CONSUMER,
    "enable.auto.commit": _OF_A_CONSUMER,
    "interceptor.classes": "it names Java classes, but this producer has no JVM.",
    "partitioner.class": "it names a Java class; add the column 'partition' to choose partitions yourself.",
    **dict.fromkeys(
        (
            "assign",
            "subscribe",
            "subscribepattern",
            "startingoffsets",
            "startingtimestamp",
            "endingoffsets",
            "endingtimestamp",
            "failondataloss",
            "maxoffsetspertrigger",
            "minpartitions",
        ),
        _OF_A_SOURCE,
    ),
}
