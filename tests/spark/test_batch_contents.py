"""A batch is left out only if it is the one that was committed: its number alone says nothing about its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from aioproducer.spark.avro.schema import AvroSchema
from aioproducer.spark.exactly_once.commit_marker import CommitMarker, CommitMarkerMismatch
from aioproducer.spark.exactly_once.earlier_commit import EarlierCommit
from aioproducer.spark.exactly_once.fingerprint import Fingerprint
from aioproducer.spark.exactly_once.task_attempt import TaskAttempt
from aioproducer.spark.sink.task_run import TaskRun
from aioproducer.testing import FakeBroker
from aioproducer.types import OffsetAndMetadata
from tests.spark.query import Query, numbered, rows_of


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"orders": 4}) as broker:
        yield broker


def query_on(broker: FakeBroker, **options: str) -> Query:
    return Query(broker.bootstrap_servers, "orders", **options)


def visible(broker: FakeBroker) -> list[int]:
    return sorted(int(record.value or b"") for record in broker.records("orders", committed=True))


def other_rows(batch: int, partition: int, row: int) -> int:
    """The rows of a batch that comes later; where a checkpoint was rolled back, Spark may give it an earlier number."""
    return numbered(batch + 50, partition, row)


def test_a_rolled_back_checkpoint_that_gives_other_rows_the_old_numbers_stops_the_query(broker: FakeBroker) -> None:
    query = query_on(broker)
    for batch in range(3):
        query.run(batch)

    query.values = other_rows
    with pytest.raises(
        CommitMarkerMismatch, match=r"(?s)Batch 1 of query q1 .*The checkpoint was rolled back.*--batch 0"
    ):
        query.run(1)

    assert visible(broker) == rows_of(0, 1, 2)
    assert query.begin().marker == CommitMarker("q1", 2, 20)


def test_the_last_batch_with_other_rows_stops_the_query_and_names_the_possible_causes(broker: FakeBroker) -> None:
    query = query_on(broker)
    query.run(0)

    query.values = other_rows
    with pytest.raises(CommitMarkerMismatch) as raised:
        query.run(0)

    message = str(raised.value)
    assert "with 20 rows, " in message
    assert "now it has 20 rows, " in message
    assert "rolled back" in message
    assert "rand()" in message
    assert "aioproducer spark reset-marker;" in message, "without --batch nothing counts as written"
    assert "'commit.marker.mismatch', 'skip'" in message


def test_the_same_rows_in_other_tasks_and_another_order_are_the_same_batch(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    query = query_on(broker)
    query.run(0)

    query.values = lambda batch, partition, row: numbered(batch, 1 - partition, 9 - row)
    again = query.run(0)

    assert all(each.skipped for each in again)
    assert visible(broker) == rows_of(0)
    [warning] = [each for each in caplog.records if each.levelname == "WARNING"]
    assert "Batch 0 of query q1 was committed before" in warning.getMessage()
    assert "with the same contents (20 rows, " in warning.getMessage()


@pytest.mark.parametrize(
    "change",
    [
        lambda batch, partition, row: 7 if row == 3 else numbered(batch, partition, row),
        lambda batch, partition, row: numbered(batch, partition, 0),
    ],
    ids=["one row is another", "rows are there twice and others are not"],
)
def test_equal_numbers_of_rows_are_not_enough(broker: FakeBroker, change: Callable[[int, int, int], int]) -> None:
    query = query_on(broker)
    query.run(0)

    query.values = change
    with pytest.raises(CommitMarkerMismatch):
        query.run(0)


def test_a_batch_with_a_row_more_is_another_one(broker: FakeBroker) -> None:
    query = query_on(broker)
    query.run(0)
    transaction = query.begin()

    summaries = [query.task(transaction, 0, partition, rows=10 + partition) for partition in range(2)]
    with pytest.raises(CommitMarkerMismatch, match=r"with 20 rows, .* now it has 21 rows, "):
        query.commit(summaries, 0)


def test_a_batch_that_is_left_out_on_purpose_is_warned_of(broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    query_on(broker).run(0)

    query = query_on(broker, **{"commit.marker.mismatch": "skip"})
    query.values = other_rows
    query.run(0)
    query.values = numbered
    query.run(1)

    assert visible(broker) == rows_of(0, 1)
    assert "Its contents differ now" in caplog.text


def test_contents_are_known_for_some_batches_and_where_they_are_not_the_query_stops(broker: FakeBroker) -> None:
    kept = 64
    query = query_on(broker)
    for batch in range(kept + 1):
        query.run(batch)

    assert all(each.skipped for each in query.run(1))
    with pytest.raises(CommitMarkerMismatch, match=r"its contents are no longer known.* is at batch 64"):
        query.run(0)
    assert query_on(broker, **{"commit.marker.mismatch": "skip"}).run(0)[0].skipped


def test_markers_of_many_batches_stay_small_enough_for_a_broker() -> None:
    marker = CommitMarker("q" * 1000, 0, 0)
    for batch in range(200):
        marker = CommitMarker.after(
            marker, marker.query, batch, Fingerprint(10**9, 10**12, 2**64 - 1), 1_769_860_800_000
        )
        marker = CommitMarker.read(marker.position()) or marker

    assert len(marker.position().metadata) <= 3_500, "brokers take 4,096"
    assert list(marker.contents) == list(range(199, 199 - len(marker.contents), -1))
    assert len(marker.contents) > 32


def test_a_marker_of_an_earlier_version_is_read_and_its_batch_is_not_left_out_unseen(broker: FakeBroker) -> None:
    written = OffsetAndMetadata(4, '{"v":1,"q":"q1","b":3,"n":20,"t":1769860800000}')

    assert CommitMarker.read(written) == CommitMarker("q1", 3, 20)


def test_a_marker_that_was_set_back_keeps_what_it_may_be_set_forth_to() -> None:
    contents = {batch: Fingerprint(batch, batch, batch) for batch in range(4)}
    back = CommitMarker("q1", 1, None, set_back_from=3, contents=contents)

    written = CommitMarker.after(back, "q1", 2, Fingerprint(7, 7, 7), 0)

    assert written.contents == {0: contents[0], 1: contents[1], 2: Fingerprint(7, 7, 7)}
    assert written.set_back_from == 3
    assert CommitMarker.after(written, "q1", 3, Fingerprint(8, 8, 8), 0).set_back_from is None
    assert CommitMarker.after(written, "q2", 0, Fingerprint(8, 8, 8), 0).contents == {0: Fingerprint(8, 8, 8)}


# -- what belongs to a row -------------------------------------------------------------------------------------------------

COLUMNS: Mapping[str, tuple[str, Sequence[object]]] = {
    "topic": ("string", ["orders", "orders", "returns"]),
    "key": ("string", ["a", None, "c"]),
    "value": ("binary", [b"1", b"2", None]),
    "headers": ("map<string,binary>", [[("h", b"x")], None, []]),
    "timestamp": ("double", [1.5, None, 3.25]),
    "partition": ("int", [0, 1, 2]),
}

ARROW = {
    "string": pa.string(),
    "binary": pa.binary(),
    "map<string,binary>": pa.map_(pa.string(), pa.binary()),
    "double": pa.float64(),
    "int": pa.int32(),
}

#: One cell of each column, and what it is changed to.
CHANGES = {"topic": "returns", "key": "", "value": b"3", "headers": [("h", b"y")], "timestamp": 1.6}


def table_of(**changed: object) -> Any:
    columns = {
        name: pa.array([changed.get(name, values[0]), *values[1:]], ARROW[kind])
        for name, (kind, values) in COLUMNS.items()
    }
    return pa.record_batch(columns)


def contents_of(query: Query, table: Any, *, is_written: bool) -> Fingerprint:
    transaction = query.begin()
    if not is_written:  # the marker says that it was committed before
        marker = CommitMarker(query.name, 0, 3, contents={0: Fingerprint()})
        transaction = replace(transaction, marker=marker)
    summary = TaskRun(query.options, query.columns, transaction, TaskAttempt(0, 0, query.name, 0)).report([table])
    assert summary.failure is None, summary.failure
    assert summary.skipped is not is_written
    return summary.contents


@pytest.fixture
def by_topic() -> Iterator[Query]:
    with FakeBroker(topics={"orders": 4, "returns": 4}) as broker:
        query = Query(broker.bootstrap_servers, None, **{"commit.marker.topic": "orders"})
        yield query.with_columns(*((name, kind) for name, (kind, _) in COLUMNS.items()))


def test_rows_read_to_be_left_out_are_counted_like_rows_that_are_written(by_topic: Query) -> None:
    written = contents_of(by_topic, table_of(), is_written=True)

    assert written == contents_of(by_topic, table_of(), is_written=False)
    assert (written.rows, written.size) == (3, len("ac12"))


@pytest.mark.parametrize("column", CHANGES)
def test_whatever_is_part_of_a_record_is_part_of_the_contents(by_topic: Query, column: str) -> None:
    before = contents_of(by_topic, table_of(), is_written=False)

    after = contents_of(by_topic, table_of(**{column: CHANGES[column]}), is_written=False)

    assert after.digest != before.digest


def test_where_a_row_goes_is_not(by_topic: Query) -> None:
    """Rows without a key take turns, in an order that Spark does not repeat, and the topic may have more partitions."""
    before = contents_of(by_topic, table_of(), is_written=True)

    assert contents_of(by_topic, table_of(partition=3), is_written=True) == before


@pytest.mark.parametrize("value_format", ["json", "avro"])
def test_values_that_are_made_are_what_counts(broker: FakeBroker, value_format: str) -> None:
    query = query_on(broker, **{"value.format": value_format}).with_columns(("id", "bigint"), ("partition", "int"))
    if value_format == "avro":
        fields = [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]
        query.of_columns = replace(query.columns, avro=AvroSchema.of(fields, None))

    def rows(*ids: int) -> Any:
        return pa.record_batch({"id": pa.array(ids, pa.int64()), "partition": pa.array([0] * len(ids), pa.int32())})

    written = contents_of(query, rows(1, 2, 3), is_written=True)

    assert written == contents_of(query, rows(3, 1, 2), is_written=False)
    assert written.digest != contents_of(query, rows(3, 1, 4), is_written=False).digest


def test_dead_letters_count_as_the_rows_that_they_were(broker: FakeBroker) -> None:
    """Whether a row is one depends on the topic's configuration and on the time, which differ when it is run again."""
    broker.create_topic("dead", 4)
    rows = pa.record_batch({"value": ["x", "y" * 2000], "partition": pa.array([0, 1], pa.int32())})
    strict = query_on(broker, **{"on.record.error": "dead-letter:dead", "kafka.max.request.size": "1000"})

    written = contents_of(strict, rows, is_written=True)

    assert len(list(broker.records("dead"))) == 1
    assert written == contents_of(query_on(broker), rows, is_written=False)


def test_where_brokers_take_less_metadata_fewer_batches_are_remembered(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioproducer.testing.broker.apis.txn_offset_commit._LARGEST_METADATA", 300)
    query = query_on(broker)
    for batch in range(10):
        query.run(batch)

    marker = query.begin().marker
    assert marker is not None
    assert 1 < len(marker.contents) < 10
    assert max(marker.contents) == 9
    assert visible(broker) == rows_of(*range(10))


def test_a_job_id_of_another_script_fits_by_its_bytes() -> None:
    contents = {batch: Fingerprint(10**9, 10**12, 2**64 - 1) for batch in range(64)}
    marker = CommitMarker("日" * 300, 63, 10, 0, contents=contents)

    position = marker.position()

    assert len(position.metadata.encode()) <= 3_500
    assert CommitMarker.read(position) == marker
    assert "日" in position.metadata


def test_a_digest_has_64_bits_however_many_rows_are_added() -> None:
    whole = Fingerprint.together([Fingerprint(1, 1, 2**64 - 1), Fingerprint(1, 1, 2)])

    assert whole == Fingerprint(2, 2, 1)


@pytest.mark.parametrize("other", [Fingerprint(2, 5, 9), Fingerprint(1, 6, 9), Fingerprint(1, 5, 8)])
def test_rows_bytes_and_digest_have_to_be_the_same(other: Fingerprint) -> None:
    earlier = EarlierCommit(0, Fingerprint(1, 5, 9))

    assert earlier.is_of(Fingerprint(1, 5, 9))
    assert not earlier.is_of(other)


def test_the_likeliest_cause_is_named_first() -> None:
    earlier = EarlierCommit(3, Fingerprint(1, 5, 9), last_batch=3)

    computed_again = earlier.mismatch("q1", Fingerprint(1, 5, 8))
    rolled_back = earlier.mismatch("q1", Fingerprint(2, 5, 8))

    assert computed_again.index("the query is not deterministic") < computed_again.index(
        "the checkpoint was rolled back"
    )
    assert rolled_back.index("the checkpoint was rolled back") < rolled_back.index("the query is not deterministic")
