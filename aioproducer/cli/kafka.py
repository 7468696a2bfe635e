"""``aioproducer kafka``: runs a real Apache Kafka for development, from its jars."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from aioproducer.cli.arguments import PAIRS, positive
from aioproducer.cli.fake_broker import sigterm_as_interrupt, topic_and_partitions
from aioproducer.cli.verb import ExitCode, Trouble, Verb

if TYPE_CHECKING:
    from aioproducer.testing.kafka import KafkaCluster

__all__ = ["VERB"]

_EPILOG: Final = """\
examples:
  aioproducer kafka
  aioproducer kafka --port 9092
  aioproducer kafka 3.9.2 --brokers 3 --topic orders:6
  aioproducer kafka --property auto.create.topics.enable=false
  aioproducer kafka --json    (one line for scripts: {"bootstrap_servers": "127.0.0.1:41007", "version": "3.9.2"})

Without --port each broker listens on a free port of 127.0.0.1, another one at each start; the first line of the output
has the address.
It needs Java 17. Maven downloads the jars once, unless the environment variable AIOPRODUCER_KAFKA_JARS names a folder
that has them. All data are deleted when it ends.

exit codes:
  0  Ctrl-C, or SIGTERM, ended it
  1  a broker ended unexpectedly
  2  it could not run, for example because Java is missing
"""

#: Time between two looks at the brokers.
_LOOK_S: Final = 0.5
_MOST_REPLICAS: Final = 3
_LOG_TAIL: Final = 4000


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("version", nargs="?", metavar="VERSION", help="the version of Kafka; default: the newest known")
    parser.add_argument("--brokers", type=positive, default=1, metavar="N", help="number of brokers; default: 1")
    parser.add_argument(
        "--port",
        type=positive,
        metavar="N",
        help="the port of the first broker, such as 9092; the others get the next ones",
    )
    parser.add_argument(
        "--topic",
        dest="topics",
        type=topic_and_partitions,
        action="append",
        default=[],
        metavar="NAME[:PARTITIONS]",
        help="a topic to create, with up to three replicas; may be repeated",
    )
    parser.add_argument(
        "--property", dest="properties", help="a property of the brokers and the controller; may be repeated", **PAIRS
    )
    parser.add_argument(
        "--json", action="store_true", help="print the address and the version as one line of JSON instead of text"
    )


def _run(options: argparse.Namespace) -> ExitCode:
    import sys

    from aioproducer.testing.kafka import KafkaCluster, KafkaStartError, KafkaUnavailable

    more: dict[str, Any] = {} if options.version is None else {"version": options.version}
    cluster = KafkaCluster(
        brokers=options.brokers, properties=dict(options.properties), first_port=options.port, **more
    )
    print(
        f"Starting Apache Kafka {cluster.version}; the first start on a machine takes a minute.",
        file=sys.stderr,
        flush=True,
    )
    with sigterm_as_interrupt():
        try:
            cluster.open()
            _create_topics(cluster, options)
            _announce(cluster, options)
            return _watch(cluster)
        except KeyboardInterrupt:
            return ExitCode.OK
        except (KafkaUnavailable, KafkaStartError, TimeoutError) as error:
            raise Trouble(str(error)) from error
        finally:
            cluster.close()


VERB: Final = Verb("kafka", "Run a real Apache Kafka for development.", _configure, _run)


def _create_topics(cluster: KafkaCluster, options: argparse.Namespace) -> None:
    replicas = min(_MOST_REPLICAS, options.brokers)
    for name, partitions in options.topics:
        cluster.create_topic(name, partitions, replicas)


def _announce(cluster: KafkaCluster, options: argparse.Namespace) -> None:
    if options.json:
        import json

        started = {"bootstrap_servers": cluster.bootstrap_servers, "version": str(cluster.version)}
        print(json.dumps(started), flush=True)
        return
    brokers = "one broker" if options.brokers == 1 else f"{options.brokers} brokers"
    print(f"Apache Kafka {cluster.version}, {brokers}, at {cluster.bootstrap_servers}; Ctrl-C ends it.", flush=True)
    print(f"Data and logs: {cluster.data_directory(cluster.broker_ids[0]).parent}", flush=True)


def _watch(cluster: KafkaCluster) -> ExitCode:
    """Wait until a broker ends; Ctrl-C raises KeyboardInterrupt."""
    import sys
    import time

    while all(cluster.is_running(each) for each in cluster.broker_ids):
        time.sleep(_LOOK_S)
    (broker_id, *_) = [each for each in cluster.broker_ids if not cluster.is_running(each)]
    print(
        f"aioproducer kafka: broker {broker_id} ended. The end of its log:\n{cluster.log(broker_id)[-_LOG_TAIL:]}",
        file=sys.stderr,
    )
    return ExitCode.BAD
