"""The options of the sink: Spark's own Kafka options, every producer option, and options of this sink only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

from aioproducer.config import OPTIONS, ProducerConfig
from aioproducer.errors import ConfigError
from aioproducer.producer import Producer
from aioproducer.spark.avro.registry import SchemaRegistry
from aioproducer.spark.options.given import HEADERS, OptionValue, given_options
from aioproducer.spark.options.own import (
    OF_SPARK,
    OWN,
    REFUSED,
    DeliveryGuarantee,
    MarkerMismatch,
    MissingMarker,
    ValueFormat,
)

__all__ = ["COMMIT_LOG", "DeliveryGuarantee", "MarkerMismatch", "MissingMarker", "SinkOptions", "ValueFormat"]


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The checked options of one query or job; can be pickled, including the producer's secrets.

    ``config`` has no transactional settings: the driver, not a producer, ends Spark's transactions. ``transactional_id`` is
    empty unless the guarantee is exactly-once. ``rate_limit`` is shared by all tasks that run at once, ``rate_limit_tasks``
    in number. ``is_load_slice`` is only for `aioproducer load`, which keeps a log of its slices: the marker records the
    last one, so no commit log is needed.
    """

    config: ProducerConfig
    topic: str | None = None
    guarantee: DeliveryGuarantee = DeliveryGuarantee.AT_LEAST_ONCE
    transactional_id: str = ""
    transaction_timeout_ms: int = 600_000
    marker_topic: str | None = None
    missing_marker: MissingMarker = MissingMarker.FAIL
    mismatch: MarkerMismatch = MarkerMismatch.FAIL
    log_topic: str | None = None
    job_id: str | None = None
    is_load_slice: bool = False
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
    def from_spark(cls, options: Mapping[str, OptionValue], *, only: DeliveryGuarantee | None = None) -> SinkOptions:
        """Parse the options of ``.option(...)``, with keys in any case and either spelling.

        Raises `ConfigError` for invalid ones; the message says how to fix them.
        ``only``: the only supported guarantee, which need not be given.
        """
        found: dict[str, object] = {}
        properties: dict[str, object] = {}
        headers: dict[str, bytes] = {}
        for name, (key, text) in given_options(options).items():
            if name in OWN:
                own = OWN[name]
                found[own.field] = own.read(name, text)
            elif name.startswith(HEADERS):
                headers[key.partition(".")[2]] = text.encode()
            elif name in REFUSED:
                raise ConfigError(f"The option {key!r} is not supported: {REFUSED[name]}")
            elif key.lower() not in OF_SPARK:
                properties[name] = text
        if only is not None and found.setdefault("guarantee", only) is not only:
            raise ConfigError(
                f"delivery.guarantee={found['guarantee']}: rows are always written {only} here; leave that option out."
            )
        if "bootstrap.servers" not in properties:
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
                "rate.limit.tasks is the number of tasks that share a limit, but there is no limit: set "
                "rate.limit.records.per.second."
            )
        return checked

    @property
    def is_exactly_once(self) -> bool:
        """Whether the rows are written in a transaction."""
        return self.guarantee is DeliveryGuarantee.EXACTLY_ONCE

    @property
    def registry(self) -> SchemaRegistry | None:
        """The registry for the schema of Avro values; raises `ConfigError` for an invalid URL."""
        return None if self.registry_url is None else SchemaRegistry.at(self.registry_url, self.registry_user_info)

    @property
    def rows_per_second(self) -> float | None:
        """The rate limit of a task in rows per second; None: no limit. Raises `ConfigError` if its share is unknown."""
        if self.rate_limit is None:
            return None
        if self.rate_limit_tasks is None:
            raise ConfigError(
                "The option 'rate.limit.records.per.second' is shared by the tasks that run at the same time, and Spark "
                "does not report their number: set it with .option('rate.limit.tasks', ...), to the number of the "
                "cluster's slots, or of the DataFrame's partitions if that is smaller."
            )
        return self.rate_limit / self.rate_limit_tasks

    def marker_partition_topic(self) -> str:
        """The topic that holds the marker, as an offset of its partition 0; raises `ConfigError` if it is unknown."""
        topic = self.marker_topic or self.topic
        if topic is None:
            raise ConfigError(
                "The rows name their topics, so the option 'commit.marker.topic' must name an existing topic for the "
                "marker that is committed with each batch. (An offset of its partition 0; no record is written.)"
            )
        return topic

    def check_stream(self) -> None:
        """Raises `ConfigError` for options that only batch jobs have."""
        if self.job_id is not None:
            raise ConfigError(
                "The option 'job.id' is for batch jobs. A stream does not need it: its batches are identified by number."
            )

    @property
    def is_in_log(self) -> bool:
        """Whether a batch job with these options is recorded by its id in the commit log, and not by a marker."""
        return self.job_id is not None and not self.is_load_slice

    @property
    def commit_log_topic(self) -> str:
        """The topic of the commit log."""
        return self.log_topic or COMMIT_LOG

    def _check_transaction(self) -> None:
        if self.job_id is None:
            of_job = {"load.slice": self.is_load_slice, "commit.log.topic": self.log_topic}
            for name in [name for name, value in of_job.items() if value]:
                raise ConfigError(f"The option {name!r} needs .option('job.id', ...), which is not set.")
        if self.is_in_log and self.commit_log_topic == self.topic:
            raise ConfigError(f"commit.log.topic={self.topic!r}: the rows go to that topic. Choose another one.")
        if not self.is_exactly_once:
            if self.transactional_id or self.job_id is not None:
                extra = "transactional.id" if self.transactional_id else "job.id"
                raise ConfigError(
                    f"The option {extra!r} needs .option('delivery.guarantee', 'exactly-once'), which is not set. "
                    f"Set it, or leave {extra!r} out."
                )
            return
        if not self.transactional_id:
            raise ConfigError(
                "delivery.guarantee=exactly-once needs the option 'transactional.id': a name that is unique to this query, "
                "and stays the same after a restart. Kafka uses it to find transactions that an earlier run left open."
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
            raise ConfigError(f"The option {extra!r} needs .option('value.format', 'avro'), which is not set.")
        if extra is not None and self.registry_url is None and self.registry_user_info is not None:
            raise ConfigError("schema.registry.basic.auth.user.info needs schema.registry.url, which is not set.")
        _ = self.registry  # report an invalid URL now

    def _check_dead_letters(self) -> None:
        if self.dead_letter_topic is None:
            return
        if self.dead_letter_topic == self.topic:
            raise ConfigError(
                f"on.record.error: dead letters cannot go to {self.topic!r}, where the other rows go. Choose another topic."
            )
        if self.config.buffer_memory <= self.config.max_request_size:
            raise ConfigError(
                f"on.record.error=dead-letter needs memory for rows larger than kafka.max.request.size="
                f"{self.config.max_request_size}: raise kafka.buffer.memory={self.config.buffer_memory}."
            )


#: The default topic of the commit log.
COMMIT_LOG: Final = "aioproducer-commits"

#: Rows come ten thousand at a time, so batches fill without lingering; Java's 16 KiB batches cost 50% more.
_BATCH_SIZE: Final = 262_144


def _check_spelling(properties: Mapping[str, object]) -> None:
    """Suggest the sink's options as well: the producer's own check suggests only producer options."""
    for name in properties:
        near = get_close_matches(name, [*OWN, *(each.replace("_", ".") for each in OPTIONS)], n=1)
        if near and near[0] in OWN:
            raise ConfigError(f"{name!r} is not an option. Did you mean {near[0]!r}?")


def _producer_config(properties: Mapping[str, object]) -> ProducerConfig:
    try:
        _check_spelling(properties)
        config = ProducerConfig.from_properties(properties)
    except ConfigError as error:
        own = ", ".join(name for name, each in OWN.items() if not each.is_internal)
        raise ConfigError(
            f"{error} (Options of the sink are {own} and headers.<name>; all others are the producer's, with or "
            "without the prefix 'kafka.'.)"
        ) from error
    Producer(config)  # raises for unsupported settings here, rather than in each task
    if "batch.size" not in properties:
        config = config.replace(batch_size=min(_BATCH_SIZE, config.max_request_size, config.buffer_memory))
    if "producer.id.expiration.ms" not in properties:
        # At least once allows duplicates. A batch that fails would fail its task, and Spark would write all its rows again.
        config = config.replace(producer_id_expiration_ms=-1)
    # Nothing else runs on a task's event loop, so one write may be as large as the system's socket buffer.
    return config if "send.buffer.bytes" in properties else config.replace(send_buffer_bytes=-1)
