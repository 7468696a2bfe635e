"""The meaning of a broker's answers about the cluster, the topic and the rights; decides only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from aioproducer.cli.doctor.report import Finding, counted, fault, good, warning
from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig
    from aioproducer.protocol.messages import MetadataResponseTopic

__all__ = [
    "about_clock",
    "about_coordinator",
    "about_idempotence",
    "about_limits",
    "about_missing_topic",
    "about_partitions",
    "about_topic_error",
    "about_writing",
    "likely_release",
    "shared_addresses",
]

_NOT_REQUESTED: Final = -0x80000000
_WRITE_BIT: Final = 1 << 4
#: The releases, each with a version of an API that no earlier one has.
_NEW_IN: Final = (
    ("2.1", ApiKey.PRODUCE, 7),
    ("2.2", ApiKey.SASL_AUTHENTICATE, 1),
    ("2.3", ApiKey.METADATA, 8),
    ("2.4", ApiKey.PRODUCE, 8),
    ("2.5", ApiKey.INIT_PRODUCER_ID, 3),
    ("2.6", ApiKey.DESCRIBE_CONFIGS, 3),
    ("2.7", ApiKey.INIT_PRODUCER_ID, 4),
    ("2.8", ApiKey.PRODUCE, 9),
    ("3.0", ApiKey.FIND_COORDINATOR, 4),
    ("3.1", ApiKey.METADATA, 12),
    ("3.2 to 3.4", ApiKey.JOIN_GROUP, 9),
    ("3.5", ApiKey.FETCH, 15),
    ("3.6", ApiKey.OFFSET_COMMIT, 9),
    ("3.7", ApiKey.PRODUCE, 10),
    ("3.8", ApiKey.PRODUCE, 11),
    ("3.9", ApiKey.FIND_COORDINATOR, 6),
    ("4.0", ApiKey.PRODUCE, 12),
    ("4.1", ApiKey.PRODUCE, 13),
    ("4.2 to 4.3", ApiKey.LIST_OFFSETS, 11),
    ("4.4 or newer", ApiKey.API_VERSIONS, 5),
)


def likely_release(ranges: Mapping[int, tuple[int, int]]) -> str:
    """The Kafka release whose APIs these are, as far as they show it."""
    fitting = takewhile(lambda row: ranges.get(row[1], (0, -1))[1] >= row[2], _NEW_IN)
    names = [name for name, _, _ in fitting]
    return f"Kafka {names[-1]}" if names else "older than Kafka 2.1, or not Kafka"


def shared_addresses(addresses: Mapping[int, tuple[str, int]]) -> list[Finding]:
    """A fault for each address that several brokers advertise."""
    by_address: dict[tuple[str, int], list[int]] = {}
    for node_id, address in addresses.items():
        by_address.setdefault(address, []).append(node_id)
    return [
        fault(
            f"Brokers {', '.join(map(str, nodes))} all advertise {host}:{port}",
            "A producer must reach each broker by itself, and one address leads to only one of them.",
            "Give each broker another host or port in advertised.listeners.",
        )
        for (host, port), nodes in by_address.items()
        if len(nodes) > 1
    ]


def about_idempotence(code: int, user: str) -> Finding:
    """The answer to InitProducerId without a transactional id."""
    if code == ErrorCode.NONE:
        return good("A producer id was issued: idempotence is permitted")
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return fault(
            f"{user} has no right to write idempotently",
            "enable_idempotence needs IDEMPOTENT_WRITE on the cluster, or (from Kafka 2.8 on) WRITE on any topic.",
            "Allow WRITE on the topic, or IDEMPOTENT_WRITE on the cluster (ACLs); or set enable_idempotence to false.",
        )
    return fault(f"No producer id was issued ({_name(code)})", _text(code), "Look at the log of the broker.")


def about_topic_error(name: str, code: int, user: str) -> Finding:
    """The error of a topic in the metadata, other than that it is unknown."""
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return fault(
            f"{user} has no right to see topic {name!r}",
            "Brokers refuse metadata about a topic without DESCRIBE or WRITE on it.",
            f"Add an ACL that allows WRITE on topic {name} (this includes DESCRIBE).",
        )
    if code == ErrorCode.INVALID_TOPIC_EXCEPTION:
        return fault(
            f"{name!r} is not a valid name of a topic",
            "Names have 1 to 249 characters out of a-z, A-Z, 0-9, '.', '_' and '-'.",
            "Correct the name.",
        )
    return fault(f"Topic {name!r} has the error {_name(code)}", _text(code), "Look at the log of the brokers.")


def about_missing_topic(name: str, server: str, broker_creates: bool | None, *, client_allows: bool) -> Finding:
    """The topic does not exist; ``broker_creates`` None: the broker's configuration could not be read."""
    create = f"Create it: kafka-topics.sh --bootstrap-server {server} --create --topic {name}"
    if broker_creates and client_allows:
        return warning(
            f"Topic {name!r} does not exist, and would be created with the first record",
            "auto.create.topics.enable is on.",
            f"{create}, with the partitions and replicas that you want.",
        )
    if not client_allows:
        cause = "allow_auto_create_topics is false in this configuration."
    elif broker_creates is None:
        cause = "This user may not read auto.create.topics.enable of the brokers, so that they may not create it."
    else:
        cause = "auto.create.topics.enable is false on the brokers, so that none of them creates it."
    return fault(f"Topic {name!r} does not exist", cause, f"{create}; or correct its name.")


def about_writing(topic: MetadataResponseTopic, user: str) -> list[Finding]:
    """A fault if the authorized operations do not contain WRITE."""
    operations = topic.topic_authorized_operations
    if operations == _NOT_REQUESTED or operations & _WRITE_BIT:
        return []
    return [
        fault(
            f"{user} has no right to write to topic {topic.name!r}",
            "The broker lists the operations that this user may do, and WRITE is not among them.",
            f"Add an ACL that allows WRITE on topic {topic.name}.",
        )
    ]


def about_partitions(topic: MetadataResponseTopic, min_in_sync: int | None, acks_all: bool) -> list[Finding]:
    """The leaders and the replicas in sync."""
    found: list[Finding] = []
    leaderless = [each.partition_index for each in topic.partitions if each.leader_id < 0]
    if leaderless:
        found.append(
            fault(
                f"{_partitions(leaderless, topic)} no leader",
                "All replicas in sync of these partitions are down.",
                "Start the brokers that hold their replicas.",
            )
        )
    short = [each for each in topic.partitions if min_in_sync is not None and len(each.isr_nodes) < min_in_sync]
    if short and acks_all:
        behind = sorted({node for each in short for node in each.replica_nodes if node not in each.isr_nodes})
        numbers = sorted({len(each.isr_nodes) for each in short})
        in_sync = counted(numbers[0], "replica") if len(numbers) == 1 else f"{', '.join(map(str, numbers))} replicas"
        found.append(
            fault(
                f"{_partitions([each.partition_index for each in short], topic)} {in_sync} in sync, and "
                f"min.insync.replicas is {min_in_sync}",
                "With acks=all, brokers refuse records with NOT_ENOUGH_REPLICAS until enough replicas are in sync.",
                (f"Start or repair the brokers {', '.join(map(str, behind))}; " if behind else "Add replicas; ")
                + "or lower min.insync.replicas of the topic.",
            )
        )
    if not topic.partitions:
        found.append(fault(f"Topic {topic.name!r} has no partition", "It is being deleted.", "Create it again."))
    return found


def about_limits(config: ProducerConfig, configs: Mapping[str, str | None]) -> list[Finding]:
    """The sizes that the producer and the topic allow."""
    largest = int(configs.get("max.message.bytes") or 0)
    if not largest or config.max_request_size <= largest:
        return []
    return [
        warning(
            f"max_request_size is {config.max_request_size}, and the topic accepts batches of up to {largest} bytes",
            "A record that is larger than the topic's max.message.bytes is refused by the broker, not by the producer.",
            f"Set max_request_size to at most {largest}, or raise max.message.bytes of the topic.",
        )
    ]


def about_coordinator(transactional_id: str, code: int, node: str, user: str) -> Finding:
    """The answer to FindCoordinator for the transactional id."""
    if code == ErrorCode.NONE:
        return good(f"Broker {node} coordinates the transactions of {transactional_id!r}")
    if code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return fault(
            f"{user} has no right to use the transactional id {transactional_id!r}",
            "Transactions need WRITE and DESCRIBE on the transactional id.",
            f"Add an ACL that allows WRITE on the transactional id {transactional_id}.",
        )
    return fault(
        f"No broker coordinates the transactions of {transactional_id!r} ({_name(code)})",
        "The topic __transaction_state could not be created, or has no leader. By default it needs three brokers.",
        "Check transaction.state.log.replication.factor and transaction.state.log.min.isr of the brokers, and their logs.",
    )


_CLOCK_TOLERANCE_MS: Final = 5_000


def about_clock(ahead_ms: float, uncertainty_ms: float) -> Finding:
    """The broker's clock against ours; both in milliseconds."""
    direction = "ahead of" if ahead_ms > 0 else "behind"
    sentence = f"The broker's clock is {abs(ahead_ms):.0f} ms {direction} ours (give or take {uncertainty_ms:.0f} ms)"
    if abs(ahead_ms) <= _CLOCK_TOLERANCE_MS + uncertainty_ms:
        return good(sentence)
    return warning(
        sentence,
        "One of the two clocks is wrong: timestamps, retention, tokens and certificates depend on them.",
        "Synchronize both clocks (NTP).",
    )


def _partitions(numbers: Sequence[int], topic: MetadataResponseTopic) -> str:
    shown = ", ".join(map(str, numbers[:10])) + (", ..." if len(numbers) > 10 else "")
    one = len(numbers) == 1
    return f"{'Partition' if one else 'Partitions'} {shown} of topic {topic.name!r} {'has' if one else 'have'}"


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def _text(code: int) -> str:
    try:
        return ErrorCode(code).text
    except ValueError:
        return "This client does not know the error."
