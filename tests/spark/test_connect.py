"""A client of Spark Connect writes batches and streams, and hears why the helpers with a barrier stage are not for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from aioproducer.record import partition_for_key
from aioproducer.spark.options.sink import COMMIT_LOG
from aioproducer.testing import FakeBroker
from tests.needs import not_here
from tests.spark import connect_client, connect_server
from tests.spark.connect_client import BATCHES, ROWS, TOPICS
from tests.spark.local_spark import ROOT, need

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PARTITIONS: Final = 3


class Written(NamedTuple):
    """The records that the client left in the topics, and its errors."""

    broker: FakeBroker
    refusals: dict[str, str]


@contextmanager
def connect(log: Path) -> Iterator[str]:
    """A server in a block that ends it; returns how to reach it."""
    command = [sys.executable, "-m", connect_server.__name__]
    with (
        log.open("w") as stderr,
        subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True
        ) as process,
    ):
        assert process.stdout is not None
        try:
            url = process.stdout.readline().decode().strip()
            assert url, log.read_text()
            yield url
        finally:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    """The client's work, done once for all tests."""
    need()
    if find_spec("grpc") is None:
        not_here("This test needs Spark Connect, which is not installed: pip install 'pyspark[connect]'.")
    directory = tmp_path_factory.mktemp("connect")
    with FakeBroker(topics=dict.fromkeys(TOPICS, PARTITIONS)) as broker, connect(directory / "log") as server:
        command = [sys.executable, "-m", connect_client.__name__, server, broker.bootstrap_servers, str(directory)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, start_new_session=True)
        assert done.returncode == 0, done.stderr[-5000:]
        yield Written(broker, json.loads(done.stdout))


@pytest.mark.parametrize("topic", ["at-least-once", "exactly-once", "stream"])
def test_each_row_is_there_once(written: Written, topic: str) -> None:
    found = Counter(record.value for record in written.broker.records(topic, committed=True))

    assert found == Counter(b"%d" % number for number in range(ROWS))


def test_an_exactly_once_write_uses_one_transaction_for_each_batch(written: Written) -> None:
    transactional = {batch.topic for batch in written.broker.batches() if batch.header.is_transactional}

    assert transactional == {"exactly-once", "stream", COMMIT_LOG}, "the job is remembered in its own transaction"
    assert written.broker.count("EndTxn") == 1 + BATCHES, "the second job had the id of the first"


@pytest.mark.parametrize("topic", ["exactly-once", "stream"])
def test_keys_go_where_every_producer_puts_them(written: Written, topic: str) -> None:
    records = written.broker.records(topic)

    assert {r.partition for r in records} == set(range(PARTITIONS))
    assert [r.partition for r in records] == [partition_for_key(r.key or b"", PARTITIONS) for r in records]


@pytest.mark.parametrize("helper", ["write_exactly_once", "foreach_batch"])
def test_a_helper_with_a_barrier_stage_is_refused_and_the_way_out_is_reported(written: Written, helper: str) -> None:
    refusal = written.refusals[helper]

    assert "ConfigError: Barrier stages need as many free slots as tasks, and Spark Connect does not report" in refusal
    assert "partition_for_kafka(df, topic, servers) with format('aioproducer')" in refusal
    assert written.broker.records("refused") == []


def test_rows_that_do_not_fit_are_refused_before_a_task_starts(written: Written) -> None:
    assert "The DataFrame has no column 'value', only 'key'" in written.refusals["rows without a value"]
    assert written.broker.records("refused") == []
