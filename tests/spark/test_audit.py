"""The audit on Spark, by whomever it is read, finds what was planted, exactly that, and nothing where nothing was."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from aioproducer.spark.audit.audit import AuditPlan, AuditReader, run_audit
from aioproducer.spark.audit.facts import Where
from aioproducer.spark.audit.report import html_report
from aioproducer.spark.audit.verdict import AuditVerdict
from aioproducer.spark.files.files import FilesRefused, RecordShape, SourceFiles, ValueShape
from aioproducer.testing import FakeBroker
from tests.conftest import opened
from tests.spark.kafka_source import kafka_source_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROWS = 3000
KEYS = 50

#: Key, value and number of a record.
Row = tuple[bytes | None, bytes, int]


def row(number: int) -> dict[str, Any]:
    key = None if number % 10 == 0 else f"key {number % KEYS}"
    return {"id": number, "key": key, "text": f"text {number}", "nothing": None if number % 2 else 0.5}


def record(number: int) -> Row:
    fields = row(number)
    key: str | None = fields["key"]
    value = json.dumps(fields, separators=(",", ":")).encode()
    return key.encode() if key is not None else None, value, number


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Sequence[str]:
    """The rows in three files, the later ones written later."""
    directory = tmp_path_factory.mktemp("expected")
    paths = [str(directory / f"part-{number}.parquet") for number in range(3)]
    for number, path in enumerate(paths):
        some = [row(each) for each in range(number * 1000, number * 1000 + 1000)]
        pq.write_table(pa.Table.from_pylist(some), path)
    return paths


@pytest.fixture(params=list(AuditReader))
def reader(request: pytest.FixtureRequest, spark: SparkSession) -> AuditReader:
    """The readers that can read here."""
    reader: AuditReader = request.param
    if reader is AuditReader.SPARK:
        for jar in kafka_source_jars():
            spark.sql(f"ADD JAR '{jar}'")
    return reader


def swap(log: list[Row], one: int, other: int) -> None:
    log[one], log[other] = log[other], log[one]


def plant(log: list[Row]) -> None:
    """2 lost, 1 duplicated, 2 swapped, 1 altered."""
    swap(log, 505, 505 + KEYS)
    log[777] = (log[777][0], b"altered", 777)
    log.insert(901, log[301])
    del log[11:13]


def nothing(log: list[Row]) -> None:
    """No fault at all."""


async def sent(broker: FakeBroker, topic: str, spoil: Callable[[list[Row]], None]) -> None:
    log = [record(number) for number in range(ROWS)]
    spoil(log)
    async with opened(broker, transactional_id="audited") as producer:
        for begin in range(0, len(log), 700):
            async with producer.transaction():
                for key, value, number in log[begin : begin + 700]:
                    headers = {"run": b"one", "seq": b"%d" % number}
                    await producer.enqueue(topic, value, key=key, headers=headers)


def audit(spark: SparkSession, broker: FakeBroker, reader: AuditReader, **plan: Any) -> AuditVerdict:
    config = {"bootstrap.servers": broker.bootstrap_servers}
    plan_ = AuditPlan("audited", config, records_per_range=500, reader=reader, **plan)
    return run_audit(spark, plan_, lambda done, of, note: None)


def faults(verdict: AuditVerdict) -> dict[str, int]:
    return {kind.value: count for kind, count in verdict.counts.items() if kind.is_fault and count}


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [(nothing, {}), (plant, {"lost": 2, "duplicated": 1, "reordered": 1, "altered": 1})],
    ids=["faithful", "planted"],
)
async def test_a_topic_is_compared_with_files(
    spoil: Callable[[list[Row]], None],
    expected: dict[str, int],
    spark: SparkSession,
    reader: AuditReader,
    files: Sequence[str],
) -> None:
    with FakeBroker(topics={"audited": 3}) as broker:
        await sent(broker, "audited", spoil)

        verdict = audit(spark, broker, reader, expected=SourceFiles.of(files, None, {}), shape=RecordShape(key="key"))

    result = verdict.as_json()
    assert faults(verdict) == expected
    assert result["verdict"] == ("faults" if expected else "clean")
    assert (verdict.expected, result["keys"]) == (ROWS, KEYS - KEYS // 10)
    assert result["offsets_without_record"]["control"] > 0
    assert result["reader"] == reader
    if expected:
        by_kind = {sample["kind"]: sample for sample in result["samples"]}
        assert json.loads(by_kind["altered"]["expected_value"]) == row(777)
        assert by_kind["altered"]["value"] == "altered"
        assert json.loads(by_kind["duplicated"]["value"]) == row(301)
        assert json.loads(by_kind["reordered"]["value"]) == row(505)
        lost = [json.loads(each["value"])["id"] for each in result["samples"] if each["kind"] == "lost"]
        assert sorted(lost) == [11, 12]
        assert "altered" in html_report(verdict, "now")


def test_of_a_topic_without_a_record_everything_is_lost(
    spark: SparkSession, reader: AuditReader, files: Sequence[str]
) -> None:
    with FakeBroker(topics={"audited": 3}) as broker:
        verdict = audit(spark, broker, reader, expected=SourceFiles.of(files, None, {}))

    assert faults(verdict) == {"lost": ROWS}


@pytest.mark.parametrize("where", ["header:seq", "json:id"])
async def test_a_topic_is_judged_by_the_numbers_in_its_records(
    where: str, spark: SparkSession, reader: AuditReader
) -> None:
    def spoil(log: list[Row]) -> None:
        swap(log, 505, 505 + KEYS)
        log.insert(901, log[301])
        del log[11:13]

    with FakeBroker(topics={"audited": 3}) as broker:
        await sent(broker, "audited", spoil)

        verdict = audit(spark, broker, reader, sequence=Where.parse(where), run=Where.parse("header:run"), records=ROWS)

    assert faults(verdict) == {"lost": 2, "duplicated": 1, "reordered": 1}
    assert [(run.name, run.expected, run.found) for run in verdict.runs] == [("one", ROWS, ROWS - 2)]
    assert verdict.as_json()["faults"]["altered"] is None


async def test_raw_values_and_a_custom_order(spark: SparkSession, reader: AuditReader, tmp_path: Path) -> None:
    numbers = list(range(500))
    random.Random(1).shuffle(numbers)
    path = tmp_path / "rows.csv"
    path.write_text("id,who,payload\n" + "".join(f"{number},k,text {number}\n" for number in numbers))
    with FakeBroker(topics={"audited": 2}) as broker:
        async with opened(broker) as producer:
            for number in range(500):
                await producer.enqueue("audited", f"text {number}", key="k")

        files = SourceFiles.of([str(path)], None, {})
        shape = RecordShape(ValueShape.RAW, "who", "payload")
        by_id, by_row = (
            audit(spark, broker, reader, expected=files, shape=shape, order=order) for order in ("id", "file")
        )

    assert by_id.is_clean
    assert faults(by_row).keys() == {"reordered"}


@pytest.mark.parametrize(
    ("schema", "at"),
    [
        ("id INT, at TIMESTAMP", "2026-01-01 00:00:00.{:06}"),
        ("id INT, at TIMESTAMP_NTZ", "2026-01-01 00:00:00.{:06}"),
        ("id INT, at DATE", "2026-01-{:02}"),
        ("id INT, at STRING", "{}"),
        ("id INT, at DATE", "1950-01-{:02}"),
        ("id INT, at TIMESTAMP", "1969-12-31 23:59:59.99999{}"),
    ],
)
async def test_order_by_a_column_is_as_fine_as_the_column_is(
    schema: str, at: str, spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("id,at,k\n" + "".join(f"{number},{at.format(number)},k\n" for number in range(1, 10)))
    with FakeBroker(topics={"audited": 1}) as broker:
        async with opened(broker) as producer:
            for number in (1, 2, 3, 5, 4, 6, 7, 8, 9):
                await producer.enqueue("audited", f"{number}", key="k")

        files = SourceFiles.of([str(path)], None, {}, f"{schema}, k STRING")
        shape = RecordShape(ValueShape.RAW, "k", "id")
        verdict = audit(
            spark,
            broker,
            AuditReader.CONFLUENT_KAFKA,
            expected=files,
            shape=shape,
            order="at",
            checks_partition=False,
        )

    assert faults(verdict) == {"reordered": 1}


@pytest.mark.parametrize(
    ("order", "complaint"), [("part", "'part' has type double"), ("nothing", "There is no column 'nothing'")]
)
async def test_an_order_that_whole_numbers_cannot_keep_is_refused(
    order: str, complaint: str, spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("id,part\n1,0.5\n")
    files = SourceFiles.of([str(path)], None, {})
    with FakeBroker(topics={"audited": 1}) as broker, pytest.raises(FilesRefused, match=complaint):
        audit(spark, broker, AuditReader.CONFLUENT_KAFKA, expected=files, order=order)


async def test_a_record_whose_number_is_none_is_a_stray_one_and_no_end_of_the_audit(
    spark: SparkSession, reader: AuditReader
) -> None:
    with FakeBroker(topics={"audited": 1}) as broker:
        async with opened(broker) as producer:
            for value in (b'{"run":"a","seq":0}', b"no JSON", b'{"run":"a","seq":"many"}', b"[1]", None):
                await producer.enqueue("audited", value, key="k", headers={"seq": (value and b"1") or b"2"})

        reported = audit(spark, broker, reader, sequence=Where.parse("json:seq"), run=Where.parse("json:run"))
        by_header = audit(spark, broker, reader, sequence=Where.parse("header:seq"), run=Where.parse("json:run"))

    assert faults(reported) == {"stray": 4}
    assert sorted(run.name for run in reported.runs) == ["a"]
    assert sorted(run.name for run in by_header.runs) == ["", "a"]
