"""The commit log remembers every job by its id, for as long as its topic is there, and nothing of what was not committed."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from crc32c import crc32c

from aioproducer import Producer
from aioproducer.core.transactions.handle import TransactionHandle
from aioproducer.errors import ConfigError, KafkaError, KafkaTimeoutError
from aioproducer.record.compression import Codec
from aioproducer.record.reader import read_batches
from aioproducer.spark.exactly_once.commit_log import CommitLog
from aioproducer.spark.exactly_once.commit_log_policy import forgets
from aioproducer.spark.exactly_once.commit_marker import CommitMarkerMismatch
from aioproducer.spark.exactly_once.fingerprint import Fingerprint
from aioproducer.spark.exactly_once.job_forget import forget_job
from aioproducer.spark.exactly_once.task_attempt import TaskAttempt
from aioproducer.spark.exactly_once.write_failed import WriteFailed
from aioproducer.spark.sink.task_run import TaskRun
from aioproducer.testing import FakeBroker, TopicConfig, TopicSpec
from tests.spark.query import Query, numbered, rows_of

LOG = "aioproducer-commits"


@pytest.fixture(params=["3.9.2", "4.3.1"])
def broker(request: pytest.FixtureRequest) -> Iterator[FakeBroker]:
    with FakeBroker(topics={"orders": 4}, versions=request.param) as broker:
        yield broker


def visible(broker: FakeBroker) -> list[int]:
    return sorted(int(record.value or b"") for record in broker.records("orders", committed=True))


def job(broker: FakeBroker, day: int, **options: str) -> Query:
    """A job whose rows are those of a day."""
    query = Query(broker.bootstrap_servers, "orders", **{"job.id": f"day {day}", **options})
    query.values = lambda _, partition, row: numbered(day, partition, row)
    return query


def test_every_job_is_remembered_not_only_the_last_one(broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    for day in (30, 31, 30, 31, 30):
        job(broker, day).run(0)

    assert visible(broker) == rows_of(30, 31)
    warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len(warnings) == 3
    assert warnings[0].startswith("job.id 'day 30' was committed before at 2")


def test_a_job_of_the_same_id_with_other_rows_is_refused(broker: FakeBroker) -> None:
    job(broker, 30).run(0)
    other = job(broker, 31, **{"job.id": "day 30"})

    with pytest.raises(CommitMarkerMismatch, match=r"job.id 'day 30' was committed before .* choose another job.id"):
        other.run(0)

    assert visible(broker) == rows_of(30)
    job(broker, 31, **{"job.id": "day 30", "commit.marker.mismatch": "skip"}).run(0)
    assert visible(broker) == rows_of(30)


def test_a_job_whose_driver_died_before_the_commit_was_never_there(broker: FakeBroker) -> None:
    query = job(broker, 30)
    transaction = query.begin()
    summaries = [query.task(transaction, 0, partition) for partition in range(2)]
    broker.fail("EndTxn", "INVALID_TXN_STATE")  # what the record of the job was written for does not come
    with pytest.raises(KafkaError):
        query.commit(summaries, 0)

    job(broker, 30).run(0)

    assert visible(broker) == rows_of(30)


def test_jobs_of_other_transactional_ids_have_the_same_ids(broker: FakeBroker) -> None:
    job(broker, 30).run(0)

    job(broker, 30, **{"transactional.id": "another"}).run(0)

    assert visible(broker) == sorted(rows_of(30, 30))


def test_an_open_transaction_of_another_job_delays_no_job(broker: FakeBroker) -> None:
    job(broker, 30).run(0)
    other = job(broker, 31, **{"transactional.id": "another"})
    transaction = other.begin()
    asyncio.run(_add(other, transaction.handle))

    assert all(each.skipped for each in job(broker, 30).run(0))


async def _add(query: Query, handle: TransactionHandle) -> None:
    await CommitLog(query.options.config, LOG).add(handle, "day 31", Fingerprint(), 0)


def test_a_long_log_is_read_to_its_end(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioproducer.spark.exactly_once.commit_log._FETCH_SIZE", 500)
    for day in range(8):
        job(broker, day).run(0)

    assert all(job(broker, day).run(0)[0].skipped for day in range(8))
    assert broker.count("Fetch") > 16


def test_the_topic_is_created_compacted_and_one_that_forgets_is_refused(broker: FakeBroker) -> None:
    job(broker, 30).run(0)
    assert broker.cluster.topics[LOG].config.compacted
    assert len(broker.cluster.topics[LOG].partitions) == 1

    broker.create_topic("forgetful", TopicSpec(1, config=TopicConfig()))
    with pytest.raises(ConfigError, match=r"'forgetful', has cleanup\.policy=delete: Kafka would delete its records"):
        job(broker, 31, **{"commit.log.topic": "forgetful"}).begin()
    with pytest.raises(ConfigError, match="Choose another one"):
        job(broker, 31, **{"commit.log.topic": "orders"})


def test_the_error_of_a_topic_that_cannot_be_created_names_the_way_out(broker: FakeBroker) -> None:
    broker.fail("CreateTopics", "TOPIC_AUTHORIZATION_FAILED")

    with pytest.raises(ConfigError, match=r"could not be created: .* cleanup\.policy=compact"):
        job(broker, 30).begin()


def test_passing_troubles_of_the_log_are_passed_over(broker: FakeBroker) -> None:
    job(broker, 30).run(0)
    broker.fail("Fetch", "NOT_LEADER_OR_FOLLOWER")
    broker.drop_connection("Fetch")
    broker.fail("DescribeConfigs", "TOPIC_AUTHORIZATION_FAILED")

    assert job(broker, 30).run(0)[0].skipped


def test_rows_in_the_log_itself_are_refused(broker: FakeBroker) -> None:
    query = Query(broker.bootstrap_servers, None, **{"job.id": "day 30"})
    query.with_columns(("topic", "string"), ("key", "string"), ("value", "string"), ("partition", "int"))
    job(broker, 29).run(0)
    table = pa.record_batch({"topic": [LOG], "key": ["k"], "value": ["x"], "partition": pa.array([0], pa.int32())})
    transaction = query.begin()
    summary = TaskRun(query.options, query.columns, transaction, TaskAttempt(0, 0, query.name)).report([table])

    with pytest.raises(KafkaError, match="Another writer of the same transaction"):
        query.commit([summary], 0)


def test_a_job_that_is_forgotten_is_written_again(broker: FakeBroker) -> None:
    for day in (30, 31):
        job(broker, day).run(0)
    config = job(broker, 30).options.config

    assert asyncio.run(forget_job(config, LOG, "t", "day 30"))
    assert not asyncio.run(forget_job(config, LOG, "t", "day 30"))

    for day in (30, 31):
        job(broker, day).run(0)
    assert visible(broker) == sorted(rows_of(30, 30, 31))


def test_a_slice_of_a_load_is_remembered_by_the_marker(broker: FakeBroker) -> None:
    for day in (30, 31, 31):
        job(broker, day, **{"load.slice": "true"}).run(0)

    assert visible(broker) == rows_of(30, 31)
    assert LOG not in broker.cluster.topics


def test_a_batch_that_the_cleaner_has_emptied_does_not_end_the_reading(broker: FakeBroker) -> None:
    for day in (30, 31):
        job(broker, day).run(0)
    log = broker.cluster.topics[LOG].partitions[0].log
    log.batches[0] = replace(log.batches[0], raw=emptied(log.batches[0].raw))

    assert [job(broker, day).run(0)[0].skipped for day in (31, 30)] == [True, False]


def emptied(raw: bytes) -> bytes:
    """The header alone, as Kafka keeps it of the last batch of a producer."""
    header = bytearray(raw[:61])
    struct.pack_into(">i", header, 8, 61 - 12)
    struct.pack_into(">i", header, 57, 0)
    struct.pack_into(">I", header, 17, crc32c(header[21:]))
    return bytes(header)


def test_the_log_is_read_from_where_it_begins(broker: FakeBroker) -> None:
    for day in (30, 31, 32):
        job(broker, day).run(0)
    broker.delete_records(LOG, 0, 2)  # the first record, and the marker of its transaction

    assert [job(broker, day).run(0)[0].skipped for day in (31, 32, 30)] == [True, True, False]


def test_a_log_that_loses_its_beginning_while_it_is_read_does_not_pass_for_an_empty_one(broker: FakeBroker) -> None:
    for day in (30, 31, 32):
        job(broker, day).run(0)
    broker.fail("Fetch", "OFFSET_OUT_OF_RANGE")

    with pytest.raises(KafkaError, match="'aioproducer-commits', the commit log"):
        job(broker, 31, **{"kafka.max.block.ms": "1000"}).run(0)


def test_a_record_whose_transaction_has_not_ended_is_waited_for(broker: FakeBroker) -> None:
    query = job(broker, 30, **{"kafka.max.block.ms": "300"})
    transaction = query.begin()
    log = CommitLog(query.options.config, LOG)
    asyncio.run(log.add(transaction.handle, "day 30", Fingerprint(), 0))

    with pytest.raises(KafkaTimeoutError, match=r"Unknown whether job\.id 'day 30' was committed: .* has not ended"):
        asyncio.run(log.find("t", "day 30"))
    assert asyncio.run(log.find("t", "day 31")) is None


def test_a_record_without_a_transaction_counts(broker: FakeBroker) -> None:
    """Like an entry written by hand, to have a job left out."""
    query = job(broker, 30)
    query.begin()
    value = json.dumps({"v": 1, "t": 0, "rows": 5, "bytes": 7, "digest": "ff"})

    async def write() -> None:
        async with Producer(broker.bootstrap_servers) as producer:
            await producer.send(LOG, value, key=json.dumps(["t", "day 30"]).encode())

    asyncio.run(write())

    found = asyncio.run(CommitLog(query.options.config, LOG).find("t", "day 30"))
    assert found is not None
    assert found.contents == Fingerprint(5, 7, 255)


@pytest.mark.parametrize("value", ["{}", "[]", "no JSON", '{"v": 2, "t": 0, "rows": 5, "bytes": 7, "digest": "ff"}'])
def test_a_record_of_something_else_is_no_commit(broker: FakeBroker, value: str) -> None:
    query = job(broker, 30)
    query.begin()

    async def write() -> None:
        async with Producer(broker.bootstrap_servers) as producer:
            await producer.send(LOG, value, key=json.dumps(["t", "day 30"]).encode())

    asyncio.run(write())

    with pytest.raises(
        KafkaError, match=r"unknown record for job\.id 'day 30', not written by this version of aioproducer"
    ):
        query.begin()


@pytest.mark.parametrize(
    ("policy", "is_bad"),
    [
        ({"cleanup.policy": "compact"}, False),
        ({"cleanup.policy": "delete"}, True),
        ({"cleanup.policy": "compact, delete", "retention.ms": "604800000", "retention.bytes": "-1"}, True),
        ({"cleanup.policy": "compact,delete", "retention.ms": "-1", "retention.bytes": "1000"}, True),
        ({"cleanup.policy": "compact,delete", "retention.ms": "-1", "retention.bytes": "-1"}, False),
        ({}, False),
    ],
)
def test_a_topic_that_deletes_forgets_unless_it_keeps_all(policy: dict[str, str], *, is_bad: bool) -> None:
    assert forgets(policy) is is_bad


def test_a_job_that_was_fenced_before_its_commit_fails_with_the_reason(broker: FakeBroker) -> None:
    older, newer = job(broker, 30), job(broker, 31)
    transaction = older.begin()
    summaries = [older.task(transaction, 0, partition) for partition in range(2)]

    newer.run(0)

    with pytest.raises(WriteFailed, match=r"another query or job started with the same transactional\.id 't'"):
        older.commit(summaries, 0)
    assert visible(broker) == rows_of(31)


def test_the_record_is_written_without_compression(broker: FakeBroker) -> None:
    job(broker, 30, **{"kafka.compression.type": "gzip", "kafka.compression.level": "6"}).run(0)

    batches = [batch for each in broker.batches(LOG) for batch in read_batches(each.raw)]
    assert {batch.codec for batch in batches if not batch.is_control} == {Codec.NONE}
