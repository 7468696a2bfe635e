"""``aioproducer doctor``: finds out, step by step, whether a producer with this configuration would work."""

from __future__ import annotations

import argparse
import textwrap
from typing import TYPE_CHECKING, Final

from aioproducer.cli.arguments import timeout_seconds
from aioproducer.cli.configuration import HELP, add_configuration_arguments, configuration
from aioproducer.cli.verb import ExitCode, Trouble, Verb

if TYPE_CHECKING:
    from aioproducer.cli.doctor.examination import Plan
    from aioproducer.cli.doctor.report import Step
    from aioproducer.config import ProducerConfig

__all__ = ["VERB"]

_EPILOG: Final = f"""\
examples:
  aioproducer doctor localhost:9092
  aioproducer doctor broker1:9093,broker2:9093 orders -X security_protocol=SSL -X ssl_cafile=ca.pem
  aioproducer doctor -F producer.properties --topic orders --send
  aioproducer doctor --profile production --json

exit codes:
  0  a producer would work; there may be warnings
  1  a fault was found
  2  the examination could not run, for example because of an invalid option

{textwrap.fill(HELP, 100)}
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("servers", nargs="?", metavar="HOST:PORT,...", help="the cluster, as with -b")
    parser.add_argument("topic", nargs="?", metavar="TOPIC", help="the topic to which the producer will send")
    parser.add_argument("--topic", dest="named_topic", metavar="TOPIC", help="the same, without HOST:PORT before it")
    parser.add_argument(
        "--timeout",
        type=timeout_seconds,
        default=10.0,
        metavar="SECONDS",
        help="limit of each step's requests; default: 10",
    )
    parser.add_argument(
        "--send", action="store_true", help="send a test record to the topic: its consumers will see it"
    )
    parser.add_argument(
        "--transaction",
        action="store_true",
        help="abort a test transaction with a record to the topic; this fences a running producer with the same "
        "transactional_id",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object: ok, verdict, steps")
    add_configuration_arguments(parser)


def _run(options: argparse.Namespace) -> ExitCode:
    import json

    from aioproducer.cli.doctor.report import as_json, closing, is_sound
    from aioproducer.cli.quiet_run import run_quietly

    servers, topic = _places(options)
    config = configuration(options, {"bootstrap_servers": servers})
    plan = _plan(options, topic, config)
    steps = run_quietly(_examine(config, plan, quiet=options.json))
    if options.json:
        print(json.dumps(as_json(steps), indent=2))
    else:
        print("\n".join(closing(steps)))
    return ExitCode.OK if is_sound(steps) else ExitCode.BAD


async def _examine(config: ProducerConfig, plan: Plan, *, quiet: bool) -> list[Step]:
    from aioproducer.cli.doctor.examination import examine
    from aioproducer.cli.doctor.report import line

    def show(step: Step) -> None:
        if not quiet:
            print(line(step), flush=True)

    return await examine(config, plan, show)


def _places(options: argparse.Namespace) -> tuple[str | None, str | None]:
    """The servers and the topic; with -b, a lone argument is the topic."""
    servers, topic = options.servers, options.topic
    if options.bootstrap_servers is not None and servers is not None:
        if topic is not None:
            raise Trouble("The cluster is given twice: as HOST:PORT and with -b. Give it once.")
        servers, topic = None, servers
    if options.named_topic is not None and topic is not None:
        raise Trouble("The topic is given twice: as TOPIC and with --topic. Give it once.")
    return servers, options.named_topic or topic


def _plan(options: argparse.Namespace, topic: str | None, config: ProducerConfig) -> Plan:
    from aioproducer.cli.doctor.examination import Plan

    if topic is None and (options.send or options.transaction):
        raise Trouble("--send and --transaction need a TOPIC.")
    if options.transaction and config.transactional_id is None:
        raise Trouble("--transaction needs a transactional id, as in -X transactional_id=orders-1.")
    return Plan(topic, options.send, options.transaction, options.timeout)


VERB: Final = Verb("doctor", "Find out, step by step, why a producer would not work with a cluster.", _configure, _run)
