"""``aioproducer produce``: sends lines, JSON, tables and whole files."""

from __future__ import annotations

import argparse
import signal
import sys
from typing import TYPE_CHECKING, Any, Final

from aioproducer.cli.produce.arguments import add_arguments, flags_of
from aioproducer.cli.verb import ExitCode, Trouble, Verb

if TYPE_CHECKING:
    from aioproducer.cli.produce.plan import Plan
    from aioproducer.config import ProducerConfig

__all__ = ["VERB"]

#: A transaction of a large file takes longer than Kafka's default of a minute; brokers allow 15 by default.
_TRANSACTION_MS: Final = 900_000


def _run(options: argparse.Namespace) -> ExitCode:
    from aioproducer.cli.produce.plan import plan_of

    plan = plan_of(options, is_terminal=sys.stdin is not None and sys.stdin.isatty())  # None: it is closed
    config = _config(options, plan)
    import asyncio

    from aioproducer.cli.extras import loop_factory
    from aioproducer.cli.produce.report import Reporter
    from aioproducer.cli.produce.steps import produce

    reporter = Reporter(options, plan)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with asyncio.Runner(loop_factory=loop_factory(want_uvloop=True)) as runner:
            outcome = runner.run(produce(config, plan, reporter))
        return reporter.conclude(outcome)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


VERB: Final = Verb("produce", "Send lines, JSON, CSV, Parquet or whole files to a topic.", add_arguments, _run)


def _config(options: argparse.Namespace, plan: Plan) -> ProducerConfig:
    from aioproducer.cli.configuration import configuration

    flags: dict[str, Any] = {**flags_of(options)}
    defaults: dict[str, Any] = {}
    if options.transactional or options.transactional_id is not None:
        flags["transactional_id"] = options.transactional_id
        defaults = {"transactional_id": plan.default_id, "transaction_timeout_ms": _TRANSACTION_MS}
    config = configuration(options, flags, defaults, as_java=True)
    if config.acks == 0 and (options.rejects or options.sync):
        raise Trouble("acks=0 has no acknowledgements, which --rejects and --sync need. Use acks=all.")
    return config
