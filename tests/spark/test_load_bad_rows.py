"""A row that Spark cannot make sense of is named by its file and, in JSON, by its line; and how to go on."""

from __future__ import annotations

import gzip
import re
from collections.abc import Generator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aioproducer.spark.files.files import FilesRefused, SourceFiles
from aioproducer.spark.load.load import LoadFailed, LoadPlan, run_load
from aioproducer.spark.session.errors import cause_of
from aioproducer.testing import FakeBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READ_FAILED = (
    "An error occurred while calling o1.load.\n: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered "
    "error while reading file file:///d/v1. 2/a.csv.gz.  SQLSTATE: KD001\n\tat org.X\n"
    "Caused by: java.io.IOException: not a gzip file\n\tat org.Y"
)


def test_of_a_file_that_cannot_be_read_the_name_is_reported() -> None:
    assert cause_of(ValueError(READ_FAILED)) == "file:///d/v1. 2/a.csv.gz cannot be read: IOException: not a gzip file"


def test_a_mode_that_spark_does_not_know_is_refused_as_it_would_be_none() -> None:
    with pytest.raises(FilesRefused, match=r"-R mode=FAIL_FAST: must be FAILFAST"):
        SourceFiles.of(["a.json"], None, {"mode": "FAIL_FAST"})

    assert SourceFiles.of(["a.json"], None, {"Mode": "dropMalformed"}).options == {"Mode": "dropMalformed"}


@pytest.fixture
def topic_broker() -> Generator[FakeBroker, None, None]:
    with FakeBroker(topics={"loaded": 3}) as broker:
        yield broker


def plan_of(
    broker: FakeBroker, path: Path, schema: str | None = None, options: Mapping[str, str] | None = None
) -> LoadPlan:
    files = SourceFiles.of([str(path)], "csv" if any(path.glob("*.csv")) else "json", options or {}, schema)
    return LoadPlan(files, "loaded", {"bootstrap.servers": broker.bootstrap_servers})


def ignore_progress(done: int, of: int, note: str) -> None:
    """The progress that was reported."""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "lines", "place"),
    [
        ("bad.json", '{"a":1}\n\n{"a":\n{"a":\n', "Line 3 of file:{}/bad.json cannot be read: JsonEOFException: "),
        ("document.json", '[\n{"a":1}\n]\n', "Line 1 of file:{}/document.json cannot be read: JsonEOFException: "),
        (
            "packed.json.gz",
            '{"a":1}\n' * 4000 + "oops",
            "Line 4001 of file:{}/packed.json.gz cannot be read: JsonParseException: ",
        ),
        ("bad.csv", "a,b\n1,2\n3\n", "A row of file://{}/bad.csv does not fit the columns: SparkRuntimeException: "),
    ],
)
def test_a_bad_row_is_found_while_columns_are_and_nothing_is_begun(
    spark: SparkSession, topic_broker: FakeBroker, tmp_path: Path, name: str, lines: str, place: str
) -> None:
    good = tmp_path / f"good{Path(name).suffixes[0]}"
    good.write_text("a,b\n1,2\n" if good.suffix == ".csv" else '{"a":1}\n')
    path = tmp_path / name
    path.write_bytes(gzip.compress(lines.encode()) if path.suffix == ".gz" else lines.encode())

    with pytest.raises(FilesRefused, match=re.escape(place.format(tmp_path)) + r".*-R mode=DROPMALFORMED") as raised:
        run_load(spark, plan_of(topic_broker, tmp_path), ignore_progress)
    dropped = run_load(spark, plan_of(topic_broker, tmp_path, options={"mode": "DROPMALFORMED"}), ignore_progress)

    assert ("-R multiLine=true" in str(raised.value)) == (".json" in name)
    assert dropped.rows == len(topic_broker.records("loaded"))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_line_is_counted_in_a_file_that_several_tasks_read(
    spark: SparkSession, topic_broker: FakeBroker, tmp_path: Path
) -> None:
    directory = tmp_path / "value=1"
    directory.mkdir()
    (directory / "bad.json").write_text("".join(f'{{"a":{number}}}\n' for number in range(3000)) + '{"a":"x"}\n')
    spark.conf.set("spark.sql.files.maxPartitionBytes", "2k")
    try:
        with pytest.raises(LoadFailed, match=r"The load stopped: Line 3001 of file:.*field name 'a' and the value x"):
            run_load(spark, plan_of(topic_broker, tmp_path, schema="a INT"), ignore_progress)
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_file_whose_row_has_stopped_a_load_exactly_once_may_be_fixed(
    spark: SparkSession, topic_broker: FakeBroker, tmp_path: Path
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "1.json").write_text('{"a":1}\n')
    (files / "2.json").write_text('{"a":2}\n{"a":"three"}\n')
    plan = plan_of(topic_broker, files, schema="a INT")
    plan = replace(plan, load_name="load", checkpoint=tmp_path / "load")

    with pytest.raises(LoadFailed, match=r"Line 2 of file:.*/2.json .* committed 1 transactions with 1 rows"):
        run_load(spark, plan, ignore_progress)
    (files / "2.json").write_text('{"a":2}\n{"a":3}\n')
    fixed = run_load(spark, plan, ignore_progress)

    assert fixed.rows == 2
    values = [record.value or b"" for record in topic_broker.records("loaded", committed=True)]
    assert sorted(values) == [b'{"a":1}', b'{"a":2}', b'{"a":3}']
