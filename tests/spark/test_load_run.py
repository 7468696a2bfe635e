"""A load brings every row, in order, and an audit of the same files agrees."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from aioproducer.errors import ConfigError
from aioproducer.spark.audit.audit import AuditPlan, run_audit
from aioproducer.spark.avro.registry import SchemaRegistry
from aioproducer.spark.files.avro_shape import AvroShape
from aioproducer.spark.files.files import FilesRefused, RecordShape, SourceFiles, ValueShape
from aioproducer.spark.load.load import LoadFailed, LoadPlan, run_load
from aioproducer.spark.load.state import LoadRefused
from aioproducer.spark.session.errors import spark_errors
from aioproducer.testing import FakeBroker
from tests.spark.registry import Registry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROWS = 3000

GIVEN = json.dumps(
    {
        "type": "record",
        "name": "Row",
        "fields": [
            {"name": "text", "type": ["string", "null"]},
            {"name": "who", "type": ["null", "string"]},
            {"name": "id", "type": "long"},
        ],
    }
)


@pytest.fixture
def topic_broker() -> Generator[FakeBroker, None, None]:
    with FakeBroker(topics={"loaded": 3}) as broker:
        yield broker


@pytest.fixture
def files(tmp_path: Path) -> SourceFiles:
    """Three CSV files, of which the last by name is the oldest; a tenth of the rows has no key."""
    directory = tmp_path / "files"
    directory.mkdir()
    for number, name in enumerate(("c", "b", "a")):
        rows = range(number * 1000, number * 1000 + 1000)
        text = "".join(f"{row},{'' if row % 10 == 0 else f'k{row % 50}'},text {row}\n" for row in rows)
        path = directory / f"{name}.csv"
        path.write_text("id,who,text\n" + text)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    return SourceFiles.of([str(directory)], "csv", {})


def ignore_progress(done: int, of: int, note: str) -> None:
    """The progress that was reported."""


def load_plan(broker: FakeBroker, files: SourceFiles, **more: Any) -> LoadPlan:
    shape = RecordShape(key="who")
    return LoadPlan(files, "loaded", {"bootstrap.servers": broker.bootstrap_servers}, shape=shape, **more)


def audited(spark: SparkSession, broker: FakeBroker, files: SourceFiles, shape: RecordShape) -> dict[str, Any]:
    plan = AuditPlan("loaded", {"bootstrap.servers": broker.bootstrap_servers}, files, shape)
    return run_audit(spark, plan, ignore_progress).as_json()


def test_a_load_in_one_job_keeps_the_order_of_each_key(
    spark: SparkSession, topic_broker: FakeBroker, files: SourceFiles
) -> None:
    result = run_load(spark, load_plan(topic_broker, files), ignore_progress)

    verdict = audited(spark, topic_broker, files, RecordShape(key="who"))
    assert (result.rows, result.transactions) == (ROWS, 1)
    assert verdict["verdict"] == "clean", verdict
    assert verdict["read"] == ROWS


def test_a_load_exactly_once_writes_each_file_once_and_then_nothing(
    spark: SparkSession, topic_broker: FakeBroker, files: SourceFiles, tmp_path: Path
) -> None:
    plan = load_plan(topic_broker, files, load_name="load", checkpoint=tmp_path / "load", max_files=2)
    reported: list[tuple[int, int]] = []

    first = run_load(spark, plan, lambda done, of, note: reported.append((done, of)))
    second = run_load(spark, plan, ignore_progress)

    verdict = audited(spark, topic_broker, files, RecordShape(key="who"))
    assert (first.rows, first.transactions, first.is_resumed) == (ROWS, 2, False)
    assert reported == [(1, 2), (2, 2)]
    assert (second.rows, second.transactions, second.is_resumed) == (0, 0, True)
    assert verdict["verdict"] == "clean", verdict
    assert verdict["offsets_without_record"]["control"] > 0


@pytest.mark.parametrize("once", [False, True], ids=["in one job", "exactly once"])
@pytest.mark.parametrize("schema", [None, GIVEN], ids=["derived", "given"])
def test_avro_is_loaded_and_the_audit_expects_the_same(
    spark: SparkSession, topic_broker: FakeBroker, files: SourceFiles, tmp_path: Path, once: bool, schema: str | None
) -> None:
    how = {"load_name": "load", "checkpoint": tmp_path / "load"} if once else {}
    typed = replace(files, schema="id BIGINT NOT NULL, who STRING, text STRING")
    with Registry(login="me:secret") as registry:
        client = SchemaRegistry.at(registry.url, "me:secret")
        written = AvroShape(schema, client, "loaded-value")
        plan = load_plan(topic_broker, typed, **how)
        plan = replace(plan, shape=RecordShape(ValueShape.AVRO, "who", avro=written))

        result = run_load(spark, plan, ignore_progress)
        expected = RecordShape(ValueShape.AVRO, "who", avro=replace(written, is_compared=True))
        verdict = audited(spark, topic_broker, typed, expected)
        bare = audited(spark, topic_broker, typed, RecordShape(ValueShape.AVRO, "who"))

    assert registry.subjects == {"loaded-value": [100]}
    assert result.rows == ROWS
    assert verdict["verdict"] == "clean", verdict
    assert verdict["read"] == ROWS
    assert bare["verdict"] == "faults", "other bytes are not the same"
    found = [decoded(registry.schemas[100], record.value or b"") for record in topic_broker.records("loaded")]
    assert sorted(found, key=lambda row: int(row["id"]))[1] == {"id": 1, "who": "k1", "text": "text 1"}
    assert "secret" not in "".join(path.read_text() for path in tmp_path.glob("load/*.json"))


def decoded(schema: str, value: bytes) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(value[5:]), fastavro.parse_schema(json.loads(schema)), None)


def test_an_unsuitable_avro_schema_or_key_is_refused_before_the_load_begins(
    spark: SparkSession, topic_broker: FakeBroker, files: SourceFiles, tmp_path: Path
) -> None:
    plan = load_plan(topic_broker, files, load_name="load", checkpoint=tmp_path / "load")
    other = json.dumps({"type": "record", "name": "Row", "fields": [{"name": "id", "type": "long"}]})

    with pytest.raises(ConfigError, match="has no field for 'who', 'text'"):
        run_load(
            spark, replace(plan, shape=RecordShape(ValueShape.AVRO, "who", avro=AvroShape(other))), ignore_progress
        )
    with pytest.raises(FilesRefused, match="There is no column 'whom' for the key"):
        run_load(spark, replace(plan, shape=RecordShape(key="whom")), ignore_progress)

    assert not list((tmp_path / "load").iterdir()), "another --avro-schema can be tried with the same checkpoint"
    assert topic_broker.records("loaded") == []


def test_lines_of_text_are_loaded_as_they_are_and_what_fails_is_reported_in_a_sentence(
    spark: SparkSession, topic_broker: FakeBroker, tmp_path: Path
) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"line {number}\n" for number in range(100)))
    lines = SourceFiles.of([str(path)], None, {})
    shape = RecordShape(ValueShape.RAW)
    servers = {"bootstrap.servers": topic_broker.bootstrap_servers}

    run_load(spark, LoadPlan(lines, "loaded", servers, shape), ignore_progress)
    verdict = audited(spark, topic_broker, lines, shape)
    path.write_text("x" * 2_000_000)
    with pytest.raises(LoadFailed, match=r"The load stopped: .*max_request_size"):
        run_load(spark, LoadPlan(lines, "loaded", servers, shape), ignore_progress)

    assert (verdict["verdict"], verdict["read"]) == ("clean", 100)


@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_NTZ"])
def test_times_are_written_to_the_microsecond(
    spark: SparkSession, topic_broker: FakeBroker, tmp_path: Path, kind: str
) -> None:
    rows = spark.sql(f"SELECT CAST('2024-01-01 00:00:00.123456' AS {kind}) at, array(at) list")
    rows.coalesce(1).write.parquet(str(tmp_path / "times"))
    files = SourceFiles.of([str(tmp_path / "times")], "parquet", {})
    servers = {"bootstrap.servers": topic_broker.bootstrap_servers}

    with in_utc(spark):
        run_load(spark, LoadPlan(files, "loaded", servers), ignore_progress)
        verdict = audited(spark, topic_broker, files, RecordShape())

    (record,) = topic_broker.records("loaded")
    at = "2024-01-01T00:00:00.123456" + ("Z" if kind == "TIMESTAMP" else "")
    assert json.loads(record.value or b"") == {"at": at, "list": [at]}
    assert verdict["verdict"] == "clean", verdict


@contextmanager
def in_utc(spark: SparkSession) -> Generator[None, None, None]:
    """As the command line has it."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        yield
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")


def test_a_slice_that_was_committed_and_not_noted_is_not_written_again_nor_counted(
    spark: SparkSession, topic_broker: FakeBroker, files: SourceFiles, tmp_path: Path
) -> None:
    plan = load_plan(topic_broker, files, load_name="load", checkpoint=tmp_path / "load", max_files=3)
    run_load(spark, plan, ignore_progress)
    forget(tmp_path / "load", b'{"committed": 0}')

    again = run_load(spark, plan, ignore_progress)

    assert (again.rows, again.size, again.transactions, again.is_resumed) == (0, 0, 0, True)
    assert len(topic_broker.records("loaded")) == ROWS


def test_a_slice_that_was_committed_and_whose_file_changed_since_is_refused(
    spark: SparkSession, topic_broker: FakeBroker, files: SourceFiles, tmp_path: Path
) -> None:
    plan = load_plan(topic_broker, files, load_name="load", checkpoint=tmp_path / "load", max_files=3)
    run_load(spark, plan, ignore_progress)
    forget(tmp_path / "load", b'{"committed": 0}')
    file, before = tmp_path / "files" / "b.csv", (tmp_path / "files" / "b.csv").read_text()
    file.write_text(before.replace("text 1500", "text 15OO"))  # of the same size

    with pytest.raises(LoadRefused, match=r"Slice 0 of the load .*b\.csv.* its rows differ now"):
        run_load(spark, plan, ignore_progress)

    assert len(topic_broker.records("loaded")) == ROWS
    file.write_text(before)
    assert run_load(spark, plan, ignore_progress).rows == 0


def test_a_slice_that_was_committed_is_not_given_up_for_a_row_that_is_bad_now(
    spark: SparkSession, topic_broker: FakeBroker, files: SourceFiles, tmp_path: Path
) -> None:
    """Its files would come again in another slice, and be written a second time."""
    plan = load_plan(topic_broker, files, load_name="load", checkpoint=tmp_path / "load", max_files=3)
    run_load(spark, plan, ignore_progress)
    forget(tmp_path / "load", b'{"committed": 0}')
    file, before = tmp_path / "files" / "b.csv", (tmp_path / "files" / "b.csv").read_text()
    file.write_text(before.replace("1500,,text 1500", "1500;;text 1500"))  # of the same size

    with pytest.raises(LoadRefused, match=r"Slice 0 of the load .*b\.csv.* its rows differ now"):
        run_load(spark, plan, ignore_progress)

    file.write_text(before)
    assert run_load(spark, plan, ignore_progress).rows == 0
    assert len(topic_broker.records("loaded")) == ROWS


def forget(checkpoint: Path, line: bytes) -> None:
    """As if the load had been killed before it wrote that line."""
    log = checkpoint / "slices.jsonl"
    before, found, _ = log.read_bytes().partition(line)
    assert found
    log.write_bytes(before)


def test_a_load_that_has_committed_elsewhere_is_repeated_only_with_the_again_option(
    spark: SparkSession, topic_broker: FakeBroker, files: SourceFiles, tmp_path: Path
) -> None:
    plan = load_plan(topic_broker, files, load_name="load", checkpoint=tmp_path / "here", max_files=3)
    run_load(spark, plan, ignore_progress)
    elsewhere = replace(plan, checkpoint=tmp_path / "elsewhere")

    with pytest.raises(
        LoadRefused, match=r"--id 'load' has already committed .* does not list them.*--checkpoint.*--again"
    ):
        run_load(spark, elsewhere, ignore_progress)
    assert len(topic_broker.records("loaded")) == ROWS
    again = run_load(spark, replace(elsewhere, is_again=True), ignore_progress)
    once_more = run_load(spark, elsewhere, ignore_progress)

    assert (again.rows, once_more.rows) == (ROWS, 0)
    assert len(topic_broker.records("loaded")) == 2 * ROWS


def test_a_checkpoint_that_was_rolled_back_is_refused(
    spark: SparkSession, topic_broker: FakeBroker, files: SourceFiles, tmp_path: Path
) -> None:
    plan = load_plan(topic_broker, files, load_name="load", checkpoint=tmp_path / "load")
    run_load(spark, plan, ignore_progress)
    forget(tmp_path / "load", b'{"committed": 0}')

    with pytest.raises(LoadRefused, match="does not list them"):
        run_load(spark, plan, ignore_progress)

    assert len(topic_broker.records("loaded")) == ROWS


def test_without_the_marker_a_slice_that_was_begun_is_not_detected(
    spark: SparkSession, topic_broker: FakeBroker, files: SourceFiles, tmp_path: Path
) -> None:
    plan = load_plan(topic_broker, files, load_name="load", checkpoint=tmp_path / "load")
    run_load(spark, plan, ignore_progress)
    with FakeBroker(topics={"loaded": 3}) as without:
        moved = replace(plan, producer={"bootstrap.servers": without.bootstrap_servers})
        complete = run_load(spark, moved, ignore_progress)
        forget(tmp_path / "load", b'{"committed": 2}')
        with pytest.raises(LoadRefused, match=r"it is unknown .*--again"):
            run_load(spark, moved, ignore_progress)
        run_load(spark, replace(moved, is_again=True), ignore_progress)

        assert complete.rows == 0
        assert len(without.records("loaded")) == 1000


def test_so_it_is_with_the_first_slice_when_it_was_begun_long_ago(
    spark: SparkSession, topic_broker: FakeBroker, files: SourceFiles, tmp_path: Path
) -> None:
    plan = load_plan(topic_broker, files, load_name="load", checkpoint=tmp_path / "load")
    run_load(spark, plan, ignore_progress)
    forget(tmp_path / "load", b'{"committed": 0}')
    two_days_ago = time.time() - 2 * 86_400
    os.utime(tmp_path / "load" / "slices.jsonl", (two_days_ago, two_days_ago))

    with FakeBroker(topics={"loaded": 3}) as without:
        moved = replace(plan, producer={"bootstrap.servers": without.bootstrap_servers})
        with pytest.raises(LoadRefused, match=r"it is unknown .*--again"):
            run_load(spark, moved, ignore_progress)
        os.utime(tmp_path / "load" / "slices.jsonl")
        run_load(spark, moved, ignore_progress)

        assert len(without.records("loaded")) == ROWS


def test_an_exception_of_java_without_a_name_in_pyspark_is_one_of_sparks_errors(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm

    with pytest.raises(spark_errors(), match="NoSuchElementException") as raised:
        jvm.java.util.Optional.empty().get()

    assert raised.type.__module__ == "py4j.protocol"


def test_where_spark_runs_a_task_again_its_first_error_is_reported_and_not_that_this_was_refused(
    spark: SparkSession, topic_broker: FakeBroker, tmp_path: Path
) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("x" * 2_000_000)
    servers = {"bootstrap.servers": topic_broker.bootstrap_servers}
    files = SourceFiles.of([str(path)], None, {})
    shape = RecordShape(ValueShape.RAW)
    plan = LoadPlan(files, "loaded", servers, shape, load_name="load", checkpoint=tmp_path / "load")

    with pytest.raises(LoadFailed, match=r"The load stopped: .*max_request_size.*Run the same command again"):
        run_load(spark, plan, ignore_progress)
