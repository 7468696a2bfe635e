"""Rows that the producer would refuse for their size go to a separate topic, whole, and in the same transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.errors import ConfigError, InvalidRecord, SendManyError
from aioproducer.record import BATCH_OVERHEAD, record_size_upper_bound
from aioproducer.spark.exactly_once.job_coordinator import JobCoordinator
from aioproducer.spark.exactly_once.task_attempt import TaskAttempt
from aioproducer.spark.exactly_once.task_summary import TaskSummary
from aioproducer.spark.options.sink import SinkOptions
from aioproducer.spark.sink.columns import SinkColumns
from aioproducer.spark.sink.dead_letters import DeadLetters
from aioproducer.spark.sink.task_run import TaskRun
from aioproducer.spark.sink.topic_rules import TopicRules
from aioproducer.testing import FakeBroker

NOWHERE = "127.0.0.1:1"
LIMIT = 2000
LETTERS = {"on.record.error": "dead-letter:letters", "kafka.max.request.size": str(LIMIT), "topic": "orders"}
EXACTLY_ONCE = {"delivery.guarantee": "exactly-once", "transactional.id": "t"}

_LIST = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_MAP = pa.map_(pa.string(), pa.binary())
_SPARK_LIST, _SPARK_MAP = "array<struct<key:string,value:binary>>", "map<string,binary>"
_SPARK_TYPES = {pa.string(): "string", pa.binary(): "binary", pa.int32(): "int", _LIST: _SPARK_LIST, _MAP: _SPARK_MAP}


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"orders": 3, "letters": 3}) as broker:
        yield broker


def options(servers: str, **more: str) -> SinkOptions:
    return SinkOptions.from_spark({"kafka.bootstrap.servers": servers, **LETTERS, **more})


def columns(schema: pa.Schema, checked: SinkOptions) -> SinkColumns:
    return SinkColumns.of([(each.name, _SPARK_TYPES[each.type]) for each in schema], checked)


def rows(*values: str, **more: list[Any]) -> Any:
    return pa.record_batch({"value": list(values), **more})


def partitioned(partition: int, *values: str) -> Any:
    return rows(*values, partition=pa.array([partition] * len(values), pa.int32()))


def letters(batch: Any, checked: SinkOptions, **rules: TopicRules) -> DeadLetters:
    return DeadLetters("letters", columns(batch.schema, checked), checked, lambda topic: rules.get(topic, TopicRules()))


def run(broker: FakeBroker, batches: list[Any], **more: str) -> TaskSummary:
    checked = options(broker.bootstrap_servers, **more)
    return TaskRun(checked, columns(batches[0].schema, checked)).run(batches)


# -- which rows ----------------------------------------------------------------------------------------------------------

_BYTES = st.one_of(st.none(), st.integers(0, 700).map(bytes))
_HEADERS = st.one_of(st.none(), st.lists(st.tuples(st.text(max_size=300), _BYTES), max_size=4))
_ROWS = st.lists(st.tuples(_BYTES, _BYTES, _HEADERS), max_size=8)


@pytest.mark.parametrize("kind", [_LIST, _MAP], ids=["list", "map"])
@given(table=_ROWS, begin=st.integers(0, 3))
def test_they_are_those_that_the_producer_counts_as_too_large(kind: Any, table: list[Any], begin: int) -> None:
    largest, constant = 700, (("source", b"spark"),)
    checked = options(NOWHERE, **{"kafka.max.request.size": str(largest), "headers.source": "spark"})
    arrays = [pa.array([row[at] for row in table], pa.binary()) for at in (0, 1)]
    headers = pa.array([_as(kind, row[2]) for row in table], kind)
    batch = pa.record_batch([*arrays, headers], ["key", "value", "headers"]).slice(begin)

    divided = dict(letters(batch, checked).divide([("orders", batch)]))

    large = [
        BATCH_OVERHEAD + record_size_upper_bound(key, value, [*(given or ()), *constant]) > largest
        for key, value, given in table[begin:]
    ]
    found = {topic: rows.select(["key", "value", "headers"]).to_pylist() for topic, rows in divided.items()}
    assert found.get("letters", []) == batch.filter(pa.array(large, pa.bool_())).to_pylist()
    assert found.get("orders", []) == batch.filter(pa.array([not each for each in large], pa.bool_())).to_pylist()


def _as(kind: Any, headers: Any) -> Any:
    if headers is None or kind is _MAP:
        return headers
    return [{"key": name, "value": content} for name, content in headers]


def test_a_table_without_any_is_passed_on_as_it_is() -> None:
    checked, batch = options(NOWHERE), rows("a", "b")

    [(topic, table)] = letters(batch, checked).divide([("orders", batch)])

    assert topic == "orders"
    assert table is batch


# -- where they go -------------------------------------------------------------------------------------------------------


def test_dead_letters_are_complete_and_name_their_topic_and_their_error(broker: FakeBroker) -> None:
    headers = pa.array([[{"key": "h", "value": b"1"}]] * 3, _LIST)
    batch = rows("small", "x" * 5000, "too", key=["a", "b", "c"], headers=headers)

    summary = run(broker, [batch], **{"headers.source": "spark"})

    assert (summary.rows, summary.dead_letters) == (2, 1)
    assert summary.size == sum(len(record.key or b"") + len(record.value or b"") for record in broker.records("orders"))
    assert sorted(record.value or b"" for record in broker.records("orders")) == [b"small", b"too"]
    [letter] = broker.records("letters")
    assert (letter.key, letter.value) == (b"b", b"x" * 5000)
    reported: Mapping[str, bytes | None] = dict(letter.headers)
    assert (reported["h"], reported["source"], reported["aioproducer.topic"]) == (b"1", b"spark", b"orders")
    assert b"more than max_request_size=2000" in (reported["aioproducer.error"] or b"")


def test_a_row_that_is_too_large_fails_the_task_where_dead_letters_are_not_asked_for(broker: FakeBroker) -> None:
    with pytest.raises(SendManyError, match="max_request_size"):
        run(broker, [rows("x" * 5000)], **{"on.record.error": "fail"})


def test_the_option_that_limits_a_dead_letter_is_named(broker: FakeBroker) -> None:
    memory = 200_000

    with pytest.raises(SendManyError, match=rf"more than buffer_memory={memory}\. Raise that option"):
        run(broker, [rows("x" * 300_000)], **{"kafka.buffer.memory": str(memory)})


def test_more_memory_than_a_request_may_have_is_no_trouble() -> None:
    checked = options(NOWHERE, **{"kafka.buffer.memory": str(2**32)})

    config = letters(rows("a"), checked).producer_config()

    assert (config.buffer_memory, config.max_request_size) == (2**32, 2**31 - 1)


def test_a_row_that_names_the_topic_of_dead_letters_itself_is_refused(broker: FakeBroker) -> None:
    given = {name: value for name, value in LETTERS.items() if name != "topic"}
    checked = SinkOptions.from_spark({"kafka.bootstrap.servers": broker.bootstrap_servers, **given})
    batch = rows("a", topic=["letters"])

    with pytest.raises(InvalidRecord, match="the topic for dead letters"):
        TaskRun(checked, columns(batch.schema, checked)).run([batch])


@pytest.mark.parametrize("commits", [True, False])
def test_exactly_once_they_share_the_fate_of_the_transaction(broker: FakeBroker, commits: bool) -> None:
    checked = options(broker.bootstrap_servers, **EXACTLY_ONCE)
    coordinator = JobCoordinator(checked, is_stream=True)
    transaction = asyncio.run(coordinator.begin())
    batches = [partitioned(number, f"small {number}", "x" * 5000) for number in range(3)]
    summaries = [
        TaskRun(checked, columns(batch.schema, checked), transaction, TaskAttempt(number, 0, "q", 0)).run([batch])
        for number, batch in enumerate(batches)
    ]

    if commits:
        asyncio.run(coordinator.commit(summaries, "q", 0))
    else:
        asyncio.run(coordinator.abort([transaction.handle]))

    assert len(broker.records("orders", committed=True)) == (3 if commits else 0)
    letters = broker.records("letters", committed=True)
    assert sorted(letter.partition for letter in letters) == ([0, 1, 2] if commits else [])
    assert broker.open_transactions() == []


# -- what cannot be ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"on.record.error": "ignore"}, "must be 'fail' or 'dead-letter:<topic>'"),
        ({"on.record.error": "dead-letter:"}, "must be 'fail' or 'dead-letter:<topic>'"),
        ({"on.record.error": "dead-letter:orders"}, "Choose another topic"),
        ({"kafka.buffer.memory": str(LIMIT)}, f"raise kafka.buffer.memory={LIMIT}"),
    ],
)
def test_options_that_do_not_fit_are_refused(more: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        options(NOWHERE, **more)

    assert sentence in str(caught.value)


def test_exactly_once_needs_to_know_the_partition_of_each_row() -> None:
    with pytest.raises(ConfigError, match="partition_for_kafka"):
        columns(rows("a").schema, options(NOWHERE, **EXACTLY_ONCE))
