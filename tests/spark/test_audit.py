"""The audit on Spark finds what was planted, exactly that, and nothing where nothing was."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from aioproducer.spark.audit import AuditPlan, run_audit
from aioproducer.spark.audit_facts import Where
from aioproducer.spark.audit_report import html_report
from aioproducer.spark.audit_verdict import AuditVerdict
from aioproducer.spark.load_files import RecordShape, SourceFiles, ValueShape
from aioproducer.testing import FakeBroker
from tests.conftest import opened

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


def audit(spark: SparkSession, broker: FakeBroker, **plan: Any) -> AuditVerdict:
    config = {"bootstrap.servers": broker.bootstrap_servers}
    return run_audit(spark, AuditPlan("audited", config, records_per_range=500, **plan), lambda done, of, note: None)


def faults(verdict: AuditVerdict) -> dict[str, int]:
    return {kind.value: count for kind, count in verdict.counts.items() if kind.is_fault and count}


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [(nothing, {}), (plant, {"lost": 2, "duplicated": 1, "reordered": 1, "altered": 1})],
    ids=["faithful", "planted"],
)
async def test_a_topic_is_compared_with_files(
    spoil: Callable[[list[Row]], None], expected: dict[str, int], spark: SparkSession, files: Sequence[str]
) -> None:
    with FakeBroker(topics={"audited": 3}) as broker:
        await sent(broker, "audited", spoil)

        verdict = audit(spark, broker, expected=SourceFiles.of(files, None, {}), shape=RecordShape(key="key"))

    told = verdict.as_json()
    assert faults(verdict) == expected
    assert told["verdict"] == ("faults" if expected else "clean")
    assert (verdict.expected, told["keys"]) == (ROWS, KEYS - KEYS // 10)
    assert told["offsets_without_record"]["control"] > 0
    if expected:
        by_kind = {sample["kind"]: sample for sample in told["samples"]}
        assert json.loads(by_kind["altered"]["expected_value"]) == row(777)
        assert by_kind["altered"]["value"] == "altered"
        assert json.loads(by_kind["duplicated"]["value"]) == row(301)
        assert json.loads(by_kind["reordered"]["value"]) == row(505)
        lost = [json.loads(each["value"])["id"] for each in told["samples"] if each["kind"] == "lost"]
        assert sorted(lost) == [11, 12]
        assert "altered" in html_report(verdict, "now")


@pytest.mark.parametrize("where", ["header:seq", "json:id"])
async def test_a_topic_is_judged_by_the_numbers_in_its_records(where: str, spark: SparkSession) -> None:
    def spoil(log: list[Row]) -> None:
        swap(log, 505, 505 + KEYS)
        log.insert(901, log[301])
        del log[11:13]

    with FakeBroker(topics={"audited": 3}) as broker:
        await sent(broker, "audited", spoil)

        verdict = audit(spark, broker, sequence=Where.parse(where), run=Where.parse("header:run"), records=ROWS)

    assert faults(verdict) == {"lost": 2, "duplicated": 1, "reordered": 1}
    assert [(run.name, run.expected, run.found) for run in verdict.runs] == [("one", ROWS, ROWS - 2)]
    assert verdict.as_json()["faults"]["altered"] is None


async def test_raw_values_and_an_order_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
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
        by_id, by_row = (audit(spark, broker, expected=files, shape=shape, order=order) for order in ("id", "file"))

    assert by_id.is_clean
    assert faults(by_row).keys() == {"reordered"}
