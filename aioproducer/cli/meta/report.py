"""The report of ``aioproducer meta``: text for people, JSON as kcat prints it; decides only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from aioproducer.cli.meta.cluster import Broker, Cluster, Partition, Topic

__all__ = ["as_json", "as_lines", "is_sound"]

_HEADINGS: Final = ("partition", "leader", "replicas", "in sync")


def is_sound(cluster: Cluster, *, named: bool) -> bool:
    """Whether each partition has a leader and, if topics were ``named``, each of them exists."""
    if named and any(topic.error is not None for topic in cluster.topics):
        return False
    return not any(partition.is_leaderless for topic in cluster.topics for partition in topic.partitions)


def as_lines(cluster: Cluster) -> Iterator[str]:
    """The report for people."""
    yield f"Cluster {cluster.cluster_id or 'without an id'}, asked at {cluster.asked}"
    yield ""
    yield _counted(len(cluster.brokers), "broker")
    rows = [_broker(each, cluster.controller_id) for each in cluster.brokers]
    yield from (f"  {line}" for line in _aligned(rows))
    yield ""
    yield _counted(len(cluster.topics), "topic")
    for topic in cluster.topics:
        yield from _topic(topic)


def as_json(cluster: Cluster, topics: Sequence[str]) -> dict[str, Any]:
    """The report as one object: kcat's names, and ours for the rest. ``topics`` are those that were named."""
    asked = next((each for each in cluster.brokers if each.address == cluster.asked), None)
    node_id = -1 if asked is None else asked.node_id
    return {
        "originating_broker": {"id": node_id, "name": f"{cluster.asked}/{node_id if asked else 'bootstrap'}"},
        "query": {"topic": ",".join(topics) or "*"},
        "clusterid": cluster.cluster_id,
        "controllerid": cluster.controller_id,
        "brokers": [{"id": each.node_id, "name": each.address, "rack": each.rack} for each in cluster.brokers],
        "topics": [_topic_json(each) for each in cluster.topics],
    }


def _topic_json(topic: Topic) -> dict[str, Any]:
    error = {} if topic.error is None else {"error": topic.error}
    configs = None if topic.configs is None else dict(topic.configs)
    partitions = [_partition_json(each) for each in topic.partitions]
    return {"topic": topic.name, **error, "internal": topic.is_internal, "partitions": partitions, "configs": configs}


def _partition_json(partition: Partition) -> dict[str, Any]:
    return {
        "partition": partition.number,
        "leader": partition.leader,
        "replicas": [{"id": each} for each in partition.replicas],
        "isrs": [{"id": each} for each in partition.in_sync],
        "under_replicated": partition.is_under_replicated,
    }


def _broker(broker: Broker, controller_id: int) -> Sequence[str]:
    rack = "" if broker.rack is None else f"rack {broker.rack}"
    return str(broker.node_id), broker.address, rack, "controller" if broker.node_id == controller_id else ""


def _topic(topic: Topic) -> Iterator[str]:
    yield ""
    internal = " (internal)" if topic.is_internal else ""
    if topic.error is not None:
        yield f"  {topic.name}{internal}: {topic.error}"
        return
    yield f"  {topic.name}{internal}: {_counted(len(topic.partitions), 'partition')}"
    if topic.configs is None:
        yield "    its configuration cannot be read"
    else:
        yield "    " + "  ".join(f"{name}={value}" for name, value in topic.configs.items())
    rows = [_HEADINGS, *(_partition(each) for each in topic.partitions)]
    yield from (f"    {line}" for line in _aligned(rows))


def _partition(partition: Partition) -> Sequence[str]:
    leader = "none" if partition.is_leaderless else str(partition.leader)
    replicas, in_sync = (",".join(map(str, each)) or "none" for each in (partition.replicas, partition.in_sync))
    marks = [
        mark
        for mark, applies in (
            ("LEADERLESS", partition.is_leaderless),
            ("UNDER-REPLICATED", partition.is_under_replicated),
        )
        if applies
    ]
    return (str(partition.number), leader, replicas, in_sync, *marks)


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    columns = max(map(len, rows), default=0)
    widths = [max(len(row[column]) for row in rows if column < len(row)) for column in range(columns)]
    for row in rows:
        cells = zip(row, widths[: len(row)], strict=True)
        yield "  ".join(cell.ljust(width) for cell, width in cells if width).rstrip()


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
