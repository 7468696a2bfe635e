"""``aioproducer meta``: shows the brokers of a cluster, its topics and their partitions."""

from __future__ import annotations

import argparse
import textwrap
from typing import Final

from aioproducer.cli.arguments import timeout_seconds
from aioproducer.cli.configuration import HELP, add_configuration_arguments, configuration
from aioproducer.cli.verb import ExitCode, Verb

__all__ = ["VERB"]

_EPILOG: Final = f"""\
examples:
  aioproducer meta -b localhost:9092
  aioproducer meta -b localhost:9092 orders payments
  aioproducer meta -F producer.properties orders --json
  kcat's flags: aioproducer meta -L -J -b localhost:9092 -t orders

A partition is marked LEADERLESS if it has no leader, UNDER-REPLICATED if a replica is not in sync.
Topics are never created.

Of the configuration of a topic, six settings are shown, those that matter to a producer: max.message.bytes,
min.insync.replicas, message.timestamp.type, compression.type, cleanup.policy and retention.ms.

exit codes:
  0  printed
  1  printed; a named topic does not exist or may not be described, or a partition has no leader
  2  it could not run, for example because no broker answers

{textwrap.fill(HELP, 100)}
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="the topics to show; default: all")
    parser.add_argument(
        "-t", "--topic", dest="named", action="append", default=[], metavar="TOPIC", help="the same; may be repeated"
    )
    parser.add_argument("-L", dest="as_kcat", action="store_true", help="accepted as in kcat -L; changes nothing")
    parser.add_argument("-J", "--json", action="store_true", help="print one JSON object, as kcat -L -J does")
    parser.add_argument(
        "--timeout", type=timeout_seconds, default=10.0, metavar="SECONDS", help="limit of the whole; default: 10"
    )
    add_configuration_arguments(parser)


def _run(options: argparse.Namespace) -> ExitCode:
    from aioproducer.cli.meta import report as meta_report
    from aioproducer.cli.meta.cluster import read_cluster
    from aioproducer.cli.quiet_run import run_quietly

    topics = [*options.topics, *options.named]
    cluster = run_quietly(read_cluster(configuration(options), topics, options.timeout))
    if options.json:
        import json

        print(json.dumps(meta_report.as_json(cluster, topics), indent=2))
    else:
        print("\n".join(meta_report.as_lines(cluster)))
    return ExitCode.OK if meta_report.is_sound(cluster, named=bool(topics)) else ExitCode.BAD


VERB: Final = Verb("meta", "Show the brokers, topics and partitions of a cluster.", _configure, _run)
