"""The arguments of ``aioproducer perf``, and the configuration and the load that they describe."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioproducer.cli.arguments import PAIRS, positive
from aioproducer.cli.configuration import HELP, add_configuration_arguments, configuration
from aioproducer.cli.verb import Trouble

if TYPE_CHECKING:
    from aioproducer.cli.perf.load import Load
    from aioproducer.config import ProducerConfig

__all__ = ["add_arguments", "changed", "check_arguments", "config_of", "load_of"]

#: Records of a probe, if --num-records does not limit them.
_MANY: Final = sys.maxsize

_EPILOG: Final = """\
examples:
  aioproducer perf -b localhost:9092 --topic test --num-records 1000000 --record-size 100
  aioproducer perf -b localhost:9092 --topic test --record-size 1000 --target-latency 20
  aioproducer perf -b localhost:9092 --topic test --num-records 500000 --record-size 500 --vs compression.type=zstd

The latency of a record is the time from enqueue to its acknowledgement. Without --throughput it is mostly the time that the
record waits for those before it: for the latency that a service would have, set its rate, or use --target-latency.

exit codes: 0 all records were acknowledged, 1 some failed (or no rate had the latency), 2 it could not run,
130 Ctrl-C: what was measured until then is printed.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = f"{_EPILOG}\n{HELP}"
    parser.add_argument("-t", "--topic", required=True, help="the topic")
    parser.add_argument(
        "--num-records",
        type=positive,
        metavar="N",
        help="the number of records to send; with --target-latency, the most that each probe sends",
    )
    parser.add_argument(
        "--throughput",
        type=_rate,
        metavar="N",
        help="records per second (-1, the default: no limit); with --target-latency, the rate of the first probe",
    )
    _add_record_arguments(parser)
    parser.add_argument(
        "--warmup-records", type=int, default=0, metavar="N", help="leave these first ones out of a second summary"
    )
    parser.add_argument("--reporting-interval", type=positive, default=5000, metavar="MS", help="default: 5000")
    parser.add_argument("--print-metrics", action="store_true", help="print the producer's metrics at the end")
    parser.add_argument("--transactional-id", metavar="ID", help="send in transactions")
    parser.add_argument(
        "--transaction-duration-ms", type=positive, metavar="MS", help="commit after this time (default: 3000)"
    )
    modes = parser.add_argument_group("search and comparison")
    modes.add_argument(
        "--target-latency",
        type=_above_zero,
        metavar="MS",
        help="find the highest rate whose 99th percentile of latency stays below MS milliseconds, in several probes",
    )
    modes.add_argument(
        "--probe-seconds", type=_above_zero, default=3.0, metavar="S", help="length of each probe; default: 3"
    )
    modes.add_argument(
        "--vs", help="compare with this option changed, in runs A, B, B, A; repeated: all of them changed", **PAIRS
    )
    output = parser.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="print one JSON object at the end instead of text")
    output.add_argument("--svg", type=Path, metavar="FILE", help="write a chart of throughput and latency over time")
    add_configuration_arguments(parser)
    # Java's tool takes several values after --command-property, our other verbs take one.
    java = parser.add_argument_group("options of the producer, as for Java's tool", conflict_handler="resolve")
    props: dict[str, Any] = {**PAIRS, "action": "extend", "nargs": "+"}
    java.add_argument(
        "--producer-props",
        "--command-property",
        help="options of the producer, such as bootstrap.servers=HOST:PORT",
        **props,
    )


def _add_record_arguments(parser: argparse.ArgumentParser) -> None:
    values = parser.add_mutually_exclusive_group(required=True)
    values.add_argument("--record-size", type=positive, metavar="BYTES", help="random values of this size")
    values.add_argument(
        "--payload-file", type=Path, metavar="FILE", help="random ones of the values in this UTF-8 file"
    )
    values.add_argument("--payload-monotonic", action="store_true", help="0, 1, 2 and so on as values")
    parser.add_argument(
        "--payload-delimiter", default=r"\n", metavar="REGEX", help="between values of a file (default: a new line)"
    )
    parser.add_argument("--key-count", type=positive, metavar="N", help="this many different keys (default: no keys)")


def _rate(text: str) -> float:
    rate = float(text)
    if not (rate < 0 or 0 < rate < float("inf")):
        raise argparse.ArgumentTypeError("must be above 0, or -1 for no limit")
    return rate


def _above_zero(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError("must be above 0")
    return number


def check_arguments(options: argparse.Namespace) -> None:
    """Raise Trouble for arguments that contradict each other."""
    if options.target_latency is not None and options.vs:
        raise Trouble(
            "--target-latency and --vs cannot be combined: run --target-latency once with each configuration."
        )
    if options.num_records is None and options.target_latency is None:
        raise Trouble("--num-records is missing; only --target-latency needs none.")
    if options.num_records is not None and options.warmup_records >= options.num_records:
        raise Trouble("--warmup-records must be less than --num-records.")
    if options.warmup_records > 0 and (options.vs or options.target_latency is not None):
        raise Trouble("--warmup-records cannot be combined with --vs or --target-latency.")
    if options.print_metrics and (options.json or options.vs or options.target_latency is not None):
        raise Trouble("--print-metrics cannot be combined with --json, --vs or --target-latency.")
    if options.svg is not None and not options.svg.parent.is_dir():
        raise Trouble(f"The chart {options.svg} cannot be written: {options.svg.parent} is not a directory.")


def config_of(options: argparse.Namespace) -> ProducerConfig:
    """The configuration; with a transactional id if transactions are requested, which also --producer-props can do."""
    from uuid import uuid4

    from aioproducer._config.properties_file import read_properties

    options.options = [*options.producer_props, *options.options]
    file: Mapping[str, object] = {} if options.config_file is None else read_properties(Path(options.config_file))
    given = {**file, **dict(options.options)}
    defaults: dict[str, object] = {"client_id": "perf-producer-client", **_idempotence(given)}
    if options.transaction_duration_ms is not None:
        defaults["transactional_id"] = f"performance-producer-{uuid4()}"
    return configuration(options, {"transactional_id": options.transactional_id}, defaults)


def _idempotence(given: Mapping[str, object]) -> Mapping[str, bool]:
    """Idempotence off for ``acks`` 0 or 1, as in Java: it is on by default, and many scripts for Java's tool set acks=1."""
    return {"enable_idempotence": False} if str(given.get("acks")) in ("0", "1") else {}


def load_of(options: argparse.Namespace, write: Callable[[str], object]) -> Load:
    """The load; ``write`` gets Java's lines about a file of payloads. Raises Trouble for such a file."""
    from random import Random

    from aioproducer.cli.perf.load import Load, key_source, payloads_in, random_payloads

    value: Callable[[int], bytes] = lambda number: b"%d" % number  # noqa: E731 - one of three functions
    if options.record_size is not None:
        value = random_payloads(options.record_size)
    elif options.payload_file is not None:
        write(f"Reading payloads from: {options.payload_file.absolute()}")
        payloads, choice = payloads_in(options.payload_file, options.payload_delimiter), Random(0).choice
        write(f"Number of messages read: {len(payloads)}")
        value = lambda number: choice(payloads)  # noqa: E731 - as above
    return Load(
        options.topic,
        options.num_records or _MANY,
        value,
        None if options.key_count is None else key_source(options.key_count),
        None if options.throughput is None or options.throughput < 0 else options.throughput,
        max(0, options.warmup_records),
        options.reporting_interval / 1000,
        (options.transaction_duration_ms or 3000) / 1000,
    )


def changed(config: ProducerConfig, options: argparse.Namespace) -> ProducerConfig:
    """The configuration B of --vs. Raises ConfigError."""
    from aioproducer._config.names import librdkafka_option
    from aioproducer._config.problems import Problems
    from aioproducer._config.properties import java_options

    problems = Problems()
    changes: Any = java_options({librdkafka_option(name) or name: value for name, value in options.vs}, {}, problems)
    problems.raise_if_any()
    together: Any = {**_idempotence(changes), **changes}
    return config.replace(**together)
