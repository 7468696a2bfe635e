"""The commit log remembers every job by its id, for as long as its topic is there, and nothing of what was not committed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from aioproducer.core.transaction_handle import TransactionHandle
from aioproducer.errors import ConfigError, KafkaError
from aioproducer.spark.commit_log import CommitLog
from aioproducer.spark.commit_marker import CommitMarkerMismatch
from aioproducer.spark.fingerprint import Fingerprint
from aioproducer.spark.job_forget import forget_job
from aioproducer.spark.task_attempt import TaskAttempt
from aioproducer.spark.task_run import TaskRun
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


def test_an_open_transaction_of_another_job_holds_nobody_up(broker: FakeBroker) -> None:
    job(broker, 30).run(0)
    other = job(broker, 31, **{"transactional.id": "another"})
    transaction = other.begin()
    asyncio.run(_add(other, transaction.handle))

    assert all(each.skipped for each in job(broker, 30).run(0))


async def _add(query: Query, handle: TransactionHandle) -> None:
    await CommitLog(query.options.config, LOG).add(handle, "day 31", Fingerprint(), 0)


def test_a_long_log_is_read_to_its_end(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioproducer.spark.commit_log._FETCH_SIZE", 500)
    for day in range(8):
        job(broker, day).run(0)

    assert all(job(broker, day).run(0)[0].skipped for day in range(8))
    assert broker.count("Fetch") > 16


def test_the_topic_is_created_compacted_and_one_that_forgets_is_refused(broker: FakeBroker) -> None:
    job(broker, 30).run(0)
    assert broker.cluster.topics[LOG].config.compacted
    assert len(broker.cluster.topics[LOG].partitions) == 1

    broker.create_topic("forgetful", TopicSpec(1, config=TopicConfig()))
    with pytest.raises(ConfigError, match=r"'forgetful', has cleanup\.policy=delete: Kafka would forget jobs"):
        job(broker, 31, **{"commit.log.topic": "forgetful"}).begin()
    with pytest.raises(ConfigError, match="Name another one"):
        job(broker, 31, **{"commit.log.topic": "orders"})


def test_a_topic_that_cannot_be_created_says_what_to_do(broker: FakeBroker) -> None:
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


def test_a_job_with_a_number_is_remembered_by_the_marker(broker: FakeBroker) -> None:
    for number in ("0", "1", "1", "0"):
        query = job(broker, 30, **{"job.batch": number})
        batch = int(number)
        query.values = numbered
        query.run(batch)

    assert visible(broker) == rows_of(0, 1)
    assert LOG not in broker.cluster.topics
