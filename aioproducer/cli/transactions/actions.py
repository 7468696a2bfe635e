"""The actions of ``aioproducer transactions``: each asks the cluster, and returns a report."""

from __future__ import annotations

import argparse
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from aioproducer.cli.brokers import Brokers, connected
from aioproducer.cli.transactions import report
from aioproducer.cli.transactions.hanging import LocatedProducer, TopicPartition, hanging, opened_before
from aioproducer.cli.transactions.queries import (
    Placed,
    describe_transactions,
    list_transactions,
    places,
    producers_of,
    refuse_without_coordinators,
    write_abort_marker,
)
from aioproducer.cli.verb import ExitCode, Trouble
from aioproducer.config import ProducerConfig
from aioproducer.errors import BrokerConnectionError, BrokerError
from aioproducer.protocol.messages import ListTransactionsRequest

__all__ = ["Done", "act"]

_CLIENT_ID: Final = "aioproducer-transactions"
_MS_OF_A_MINUTE: Final = 60_000
#: Java's choice for a producer none of whose transactions has ended in the partition: no coordinator has a lower epoch.
_LOWEST_COORDINATOR_EPOCH: Final = 0


class Done(NamedTuple):
    """The result of an action; ``remarks`` are sentences for people."""

    code: ExitCode
    report: report.Report | None
    remarks: Sequence[str] = ()


async def act(config: ProducerConfig, options: argparse.Namespace) -> Done:
    """Do what the options ask for; raises Trouble and KafkaError. Cancellation: closes the connections."""
    action = _ACTIONS[options.action]
    async with connected(config, _CLIENT_ID, options.timeout) as brokers:
        return await action(brokers, options)


async def _list(brokers: Brokers, options: argparse.Namespace) -> Done:
    request = ListTransactionsRequest(
        state_filters=options.states,
        producer_id_filters=options.producer_ids,
        duration_filter=options.duration_filter,
        transactional_id_pattern=options.transactional_id_pattern,
    )
    listed = await list_transactions(brokers, request)
    return Done(ExitCode.OK, report.of_listed(listed), [] if listed else ["No coordinator lists a transaction."])


async def _describe(brokers: Brokers, options: argparse.Namespace) -> Done:
    ids = [*options.ids, *options.named]
    if not ids:
        raise Trouble("Name a transactional id; 'aioproducer transactions list' shows them.")
    found = await describe_transactions(brokers, ids)
    unknown = [f"No coordinator knows the transactional id {each!r}." for each, at in found.items() if at is None]
    described = report.of_descriptions([each for each in found.values() if each is not None], _now_ms())
    return Done(ExitCode.BAD if unknown else ExitCode.OK, described, unknown)


async def _describe_producers(brokers: Brokers, options: argparse.Namespace) -> Done:
    placed = await _place(brokers, options)
    if options.broker_id is not None and options.broker_id not in brokers.ids:
        raise Trouble(f"The cluster has no broker {options.broker_id}; it has {_joined(brokers.ids)}.")
    producers = await producers_of(brokers, {placed.where: placed}, options.broker_id)
    for error in producers.refused.values():
        raise error
    return Done(ExitCode.OK, report.of_producers(producers.found))


async def _find_hanging(brokers: Brokers, options: argparse.Namespace) -> Done:
    if options.partition is not None and options.topic is None:
        raise Trouble("--partition needs --topic.")
    present = await places(brokers, None if options.topic is None else [options.topic])
    wanted = {
        where: each
        for where, each in present.items()
        if options.partition in (None, where[1]) and (options.broker_id is None or options.broker_id in each.replicas)
    }
    if options.partition is not None and not wanted:
        raise _no_partition(options, present)
    producers = await producers_of(brokers, wanted)
    before_ms = _now_ms() - options.max_transaction_timeout * _MS_OF_A_MINUTE
    found = await _hanging(brokers, opened_before(producers.found, before_ms), wanted)
    remarks = [f"{topic}-{index} was not read: {error}" for (topic, index), error in producers.refused.items()]
    remarks += _advice(found, len(wanted) - len(producers.refused))
    return Done(
        ExitCode.BAD if found or producers.refused else ExitCode.OK, report.of_hanging(found, _now_ms()), remarks
    )


async def _hanging(
    brokers: Brokers, candidates: Sequence[LocatedProducer], present: Mapping[TopicPartition, Placed]
) -> list[LocatedProducer]:
    """Those that hang. They are looked at twice: one may have ended before its coordinator was asked.

    Coordinators are asked twice as well, because one may move past the brokers that are still to be asked.
    """
    if not candidates:
        return []
    ids = sorted({each.producer.producer_id for each in candidates})
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=ids)
    await refuse_without_coordinators(brokers)
    listed = [*await list_transactions(brokers, request), *await list_transactions(brokers, request, backwards=True)]
    transactional_ids = {each.producer_id: each.transactional_id for _, each in listed}
    described = await describe_transactions(brokers, transactional_ids.values(), are_listed=True)
    descriptions = {key: None if each is None else each.description for key, each in described.items()}
    found = hanging(candidates, transactional_ids, descriptions)
    again = await producers_of(brokers, {each.where: present[each.where] for each in found})
    still = {each.transaction for each in again.found if each.is_open}
    return [each for each in found if each.transaction in still]


def _advice(found: Sequence[LocatedProducer], partitions: int) -> list[str]:
    if not found:
        return [f"No transaction hangs in {partitions} partition{'s' if partitions != 1 else ''}."]
    (topic, index), start = found[0].where, found[0].producer.current_txn_start_offset
    return [
        "To abort the first of them: aioproducer transactions abort "
        f"--topic {topic} --partition {index} --start-offset {start}"
    ]


async def _abort(brokers: Brokers, options: argparse.Namespace) -> Done:
    if (options.start_offset is None) == (options.producer_id is None):
        raise Trouble("Name the transaction by --start-offset, or by --producer-id; find-hanging shows both.")
    placed = await _place(brokers, options)
    place = f"{options.topic}-{options.partition}"
    producers = await producers_of(brokers, {placed.where: placed})
    for error in producers.refused.values():
        raise error
    opened = [each for each in producers.found if each.is_open]
    chosen = [each for each in opened if _is_chosen(each, options)]
    if not chosen:
        starts = _joined(each.producer.current_txn_start_offset for each in opened)
        others = f"open are those from {starts} on" if opened else "none is open there"
        return Done(ExitCode.BAD, None, [f"{place} has no such open transaction; {others}."])
    if not options.force and not await _hanging(brokers, chosen, {placed.where: placed}):
        return Done(ExitCode.BAD, None, [_NOT_HANGING.format(place)])
    present = await _place(brokers, options)  # the leader may have moved
    return await _write(brokers, present, chosen[0], options)


_NOT_HANGING: Final = (
    "Nothing was aborted: the transaction in {} does not hang, its coordinator will end it (after its timeout at the "
    "latest). With --force a marker is written nevertheless, and a commit of the producer would then miss these records."
)


def _is_chosen(found: LocatedProducer, options: argparse.Namespace) -> bool:
    if options.start_offset is not None:
        return bool(found.producer.current_txn_start_offset == options.start_offset)
    return bool(found.producer.producer_id == options.producer_id)


async def _write(brokers: Brokers, placed: Placed, chosen: LocatedProducer, options: argparse.Namespace) -> Done:
    producer = chosen.producer
    epoch = producer.producer_epoch if options.producer_epoch is None else options.producer_epoch
    given = producer.coordinator_epoch if options.coordinator_epoch is None else options.coordinator_epoch
    which = (
        f"the transaction of producer {producer.producer_id}, epoch {epoch}, in {options.topic}-{options.partition} "
        f"from offset {producer.current_txn_start_offset} on"
    )
    coordinator_epoch = max(given, _LOWEST_COORDINATOR_EPOCH)
    brokers.restart_limit()
    try:
        await write_abort_marker(brokers, placed, producer.producer_id, epoch, coordinator_epoch)
    except BrokerError as error:
        raise Trouble(f"Nothing was aborted: {error}") from error
    except BrokerConnectionError as error:
        remark = f"It is not known whether {which} was aborted: {error} find-hanging shows whether it is still open."
        return Done(ExitCode.UNKNOWN, None, [remark])
    return Done(ExitCode.OK, None, [f"Aborted {which}."])


async def _place(brokers: Brokers, options: argparse.Namespace) -> Placed:
    """The partition that the options name."""
    present = await places(brokers, [options.topic])
    placed = present.get((options.topic, options.partition))
    if placed is None:
        raise _no_partition(options, present)
    if placed.leader < 0:
        raise Trouble(f"{options.topic}-{options.partition} has no leader at present.")
    return placed


def _no_partition(options: argparse.Namespace, present: Mapping[TopicPartition, Placed]) -> Trouble:
    numbers = sorted(index for _, index in present)
    if not numbers:
        return Trouble(f"Topic {options.topic!r} has no partitions yet.")
    return Trouble(f"Topic {options.topic!r} has no partition {options.partition}; it has 0 to {numbers[-1]}.")


def _joined(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


_ACTIONS: Final[Mapping[str, Callable[[Brokers, argparse.Namespace], Awaitable[Done]]]] = {
    "list": _list,
    "describe": _describe,
    "describe-producers": _describe_producers,
    "find-hanging": _find_hanging,
    "abort": _abort,
}
