"""``aioproducer transactions``: shows transactions, and aborts those that hang, as kafka-transactions.sh does."""

from __future__ import annotations

import argparse
import sys
import textwrap
from typing import TYPE_CHECKING, Any, Final

from aioproducer.cli.arguments import timeout_seconds
from aioproducer.cli.configuration import HELP, add_configuration_arguments, configuration
from aioproducer.cli.verb import ExitCode, Verb

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["VERB"]

_EPILOG: Final = f"""\
examples:
  aioproducer transactions list -b localhost:9092
  aioproducer transactions list --state Ongoing --duration-filter 60000
  aioproducer transactions describe orders-1
  aioproducer transactions find-hanging
  aioproducer transactions abort --topic orders --partition 3 --start-offset 1042

A transaction hangs if a partition waits for its end and no coordinator will write that: consumers with read_committed
stop in front of it, and compaction as well. find-hanging finds it, abort ends it. Kafka itself keeps them from
arising since 3.6 (transaction.partition.verification.enable), if the producers are not older.

exit codes:
  0  done; find-hanging found nothing
  1  find-hanging found a transaction, or could not read each partition; describe does not know an id; abort found no such
     transaction, or one that does not hang
  2  it could not run, for example because no broker answers or a right is missing
  3  it is not known whether abort wrote its marker

{textwrap.fill(HELP, 100)}
"""

_LIST: Final = "List the transactional ids of all coordinators, with the states of their transactions."
_DESCRIBE: Final = "Show the transaction of a transactional id: since when, and in which partitions."
_PRODUCERS: Final = "Show the producers that a partition knows, with their sequences and open transactions."
_HANGING: Final = "Find the transactions that no coordinator will end."
_ABORT: Final = "Abort a hanging transaction in one partition."

#: Of find-hanging: Kafka's transaction.max.timeout.ms, in minutes.
_MAX_TIMEOUT_MIN: Final = 15

_RIGHTS: Final = (
    "Needs READ on the topics, and DESCRIBE on all transactional ids: coordinators do not list the others, so their "
    "transactions seem to hang."
)


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    _add_common(parser, of_action=False)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    for name, (help_text, arguments) in _ACTIONS.items():
        of_action = actions.add_parser(name, help=help_text, description=help_text)
        arguments(of_action)
        _add_common(of_action, of_action=True)


def _add_common(parser: argparse.ArgumentParser, *, of_action: bool) -> None:
    absent: Mapping[str, Any] = {"default": argparse.SUPPRESS} if of_action else {}
    parser.add_argument("--json", action="store_true", help="print JSON", **absent)
    parser.add_argument(
        "--timeout",
        type=timeout_seconds,
        metavar="SECONDS",
        help="limit of the whole; default: 30",
        **(absent or {"default": 30.0}),
    )
    add_configuration_arguments(parser, of_action=of_action)


def _number(bits: int) -> Callable[[str], int]:
    """A number from 0 on with so many bits, for argparse."""

    def number(text: str) -> int:
        found = int(text)
        if not 0 <= found < 1 << bits:
            raise argparse.ArgumentTypeError(f"invalid value {text}: must be 0 to {(1 << bits) - 1}")
        return found

    return number


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state",
        dest="states",
        action="append",
        default=[],
        metavar="STATE",
        help="only this state, such as Ongoing or PrepareCommit; may be repeated",
    )
    parser.add_argument(
        "--producer-id",
        dest="producer_ids",
        action="append",
        type=_number(63),
        default=[],
        metavar="ID",
        help="only this producer id; may be repeated",
    )
    parser.add_argument(
        "--duration-filter",
        type=_number(63),
        default=-1,
        metavar="MS",
        help="only transactions that are open for longer (since Kafka 3.8)",
    )
    parser.add_argument(
        "--transactional-id-pattern",
        metavar="REGEX",
        help="only ids that this RE2 expression matches as a whole (since Kafka 4.1)",
    )


def _describe_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", nargs="*", metavar="ID", help="a transactional id")
    parser.add_argument(
        "--transactional-id", dest="named", action="append", default=[], metavar="ID", help="the same; may be repeated"
    )


def _producers_arguments(parser: argparse.ArgumentParser) -> None:
    _add_partition(parser)
    parser.add_argument("--broker-id", type=_number(31), metavar="ID", help="ask this replica instead of the leader")


def _hanging_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = f"{_HANGING} {_RIGHTS}"
    parser.add_argument("--topic", metavar="TOPIC", help="look only at this topic")
    parser.add_argument("--partition", type=_number(31), metavar="N", help="look only at this partition of the topic")
    parser.add_argument(
        "--broker-id", type=_number(31), metavar="ID", help="look only at partitions with a replica there"
    )
    parser.add_argument(
        "--max-transaction-timeout",
        type=_number(31),
        default=_MAX_TIMEOUT_MIN,
        metavar="MINUTES",
        help=f"pass over transactions that wrote something within this time; default: {_MAX_TIMEOUT_MIN}",
    )


def _abort_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        f"{_ABORT} Consumers with read_committed skip its records and read on. A transaction that its coordinator will "
        "end is left alone, unless --force is given: the producer would commit a part of it. "
        f"Needs ALTER on the cluster. {_RIGHTS}"
    )
    _add_partition(parser)
    parser.add_argument(
        "--start-offset", type=_number(63), metavar="OFFSET", help="its first offset, as find-hanging shows it"
    )
    parser.add_argument("--producer-id", type=_number(63), metavar="ID", help="its producer, instead of the offset")
    parser.add_argument(
        "--producer-epoch", type=_number(15), metavar="EPOCH", help="default: as the partition knows it"
    )
    parser.add_argument(
        "--coordinator-epoch", type=_number(31), metavar="EPOCH", help="default: as the partition knows it"
    )
    parser.add_argument("--force", action="store_true", help="abort it even if it does not hang")


def _add_partition(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", metavar="TOPIC", required=True)
    parser.add_argument("--partition", type=_number(31), metavar="N", required=True)


_ACTIONS: Final[Mapping[str, tuple[str, Callable[[argparse.ArgumentParser], None]]]] = {
    "list": (_LIST, _list_arguments),
    "describe": (_DESCRIBE, _describe_arguments),
    "describe-producers": (_PRODUCERS, _producers_arguments),
    "find-hanging": (_HANGING, _hanging_arguments),
    "abort": (_ABORT, _abort_arguments),
}


def _run(options: argparse.Namespace) -> ExitCode:
    import json

    from aioproducer.cli.quiet_run import run_quietly
    from aioproducer.cli.transactions.actions import act
    from aioproducer.cli.transactions.report import as_json, as_lines

    done = run_quietly(act(configuration(options), options))
    if done.report is not None:
        print(json.dumps(as_json(done.report), indent=2) if options.json else "\n".join(as_lines(done.report)))
    _tell(done.remarks)
    return done.code


def _tell(remarks: Sequence[str]) -> None:
    # Not in the table, which scripts read.
    for each in remarks:
        print(each, file=sys.stderr)


VERB: Final = Verb("transactions", "Show transactions, and abort those that hang.", _configure, _run)
