"""Additions to the rows of Spark's Kafka source: the partitions of keys, and the reasons why offsets have no record."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from aioproducer.spark.audit.completion import Completion
from aioproducer.spark.audit.murmur2 import home_partitions
from aioproducer.spark.audit.offsets import AuditFailed, OffsetRange, stable_ranges
from aioproducer.testing import FakeBroker
from tests.conftest import opened

KEYS = [b"a", None, b"abc", b"", b"key 17"]


def batch(offsets: Sequence[int], keys: Sequence[bytes | None] = KEYS, partitions: Sequence[int] = (0,)) -> Any:
    """As Spark hands it over: some columns say that they have no null."""
    columns = {
        "kind": pa.array(["record"] * len(offsets), pa.string()),
        "partition": pa.array([partitions[at % len(partitions)] for at in range(len(offsets))], pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "count": pa.array([1] * len(offsets), pa.int64()),
        "key": pa.array([keys[at % len(keys)] for at in range(len(offsets))], pa.binary()),
        "home": pa.nulls(len(offsets), pa.int32()),
        "content": pa.array(offsets, pa.int64()),
        "number": pa.array([-1] * len(offsets), pa.int64()),
    }
    fields = [pa.field(name, each.type, nullable=name in ("key", "home")) for name, each in columns.items()]
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=pa.schema(fields))


def completed(complete: Completion, *batches: Any) -> list[dict[str, Any]]:
    """The rows, of what is the same after the pickling that brings it to a worker."""
    sent: Completion = pickle.loads(pickle.dumps(complete))
    made: Iterator[Any] = sent(iter(batches))
    return [row for each in made for row in each.to_pylist()]


def test_keys_get_their_homes_and_all_else_stays_as_it_was() -> None:
    complete = Completion("orders", [OffsetRange(0, 0, 5), OffsetRange(1, 0, 0)], config=None, with_home=True)

    rows = completed(complete, batch([0, 1]), batch([]), batch([2, 3, 4], KEYS[2:]))

    homes = home_partitions(pa.array(KEYS, pa.binary()), 2).to_pylist()
    assert homes[1] is None
    assert [(row["offset"], row["key"], row["home"]) for row in rows] == list(zip(range(5), KEYS, homes, strict=True))
    assert [row["content"] for row in rows] == list(range(5))


def test_where_the_partitioner_is_another_one_keys_have_no_home() -> None:
    complete = Completion("orders", [OffsetRange(0, 0, 2)], config=None, with_home=False)

    assert [row["home"] for row in completed(complete, batch([0, 1]))] == [None, None]


async def test_offsets_that_the_rows_leave_out_are_explained_at_both_ends_and_between(broker: FakeBroker) -> None:
    async with opened(broker, transactional_id="t") as producer:
        await producer.init_transactions()
        for end in (producer.abort_transaction, producer.commit_transaction, producer.abort_transaction):
            await producer.begin_transaction()
            for _ in range(3):
                await producer.enqueue("orders", b"", partition=0)
            await producer.flush()
            await end()
    ranges = stable_ranges({"bootstrap.servers": broker.bootstrap_servers}, "orders", 5.0)
    config = {"bootstrap.servers": broker.bootstrap_servers}
    complete = Completion("orders", ranges, config=config, with_home=False)

    # Three aborted and their marker, three and theirs, three aborted and theirs; of the three one is withheld.
    rows = completed(complete, batch([4, 6]))

    reported = {row["kind"]: (row["offset"], row["count"]) for row in rows}
    assert reported == {"record": (6, 1), "withheld": (5, 1), "control": (3, 3), "aborted": (0, 6)}
    assert {row["partition"] for row in rows} == {0}
    assert not any(row[name] is None for row in rows for name in ("content", "number")), "facts have no nulls"


def test_a_task_with_more_than_one_partition_is_refused() -> None:
    ranges = [OffsetRange(0, 0, 5), OffsetRange(1, 0, 5)]
    complete = Completion("orders", ranges, config=None, with_home=False)

    with pytest.raises(AuditFailed, match=r"read partitions \[0, 1\] of topic 'orders' in one task"):
        completed(complete, batch([0, 1], partitions=(0, 1)))
