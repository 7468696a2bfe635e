"""The benchmark of the Spark sink: what it computes, what it reads, and the whole command on a handful of rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.results import Results, Run
from benchmarks.spark.cli import main
from benchmarks.spark.report import case_table, write_report
from benchmarks.spark.rows import CASES, MICRO_BATCHES, TASKS, write_files
from benchmarks.spark.streams import GUARANTEES
from benchmarks.spark.targets import TARGETS
from benchmarks.spark.ways import WAYS
from tests.spark.local_spark import need


def results(broker: str, case: str, key: str, **values: float) -> Results:
    """The figures of each way in the one round of a case; ``confluent_arrow`` is confluent-arrow."""
    runs = [Run(broker, case, way.replace("_", "-"), 0, {key: value}) for way, value in values.items()]
    return Results(runs, about={broker: "a broker"})


def verdicts(found: Results) -> dict[str, str]:
    """The verdict on each target."""
    judged = [each.judge(found) for each in TARGETS]
    return {each.target.text: f"{each.measured or 0:g}: {each.words}" for each in judged}


def test_our_sink_is_judged_by_its_rows_a_second_over_those_of_the_others() -> None:
    found = results("mock", "rows", "records_per_s", aioproducer=600, confluent_arrow=200, confluent_foreach=50)

    judged = verdicts(found)

    assert judged["rows/s of an Arrow writer with confluent-kafka"] == "3: reached"
    assert judged["rows/s of foreachPartition with confluent-kafka"] == "12: reached"


def test_the_share_of_handing_over_is_that_of_the_sink_that_only_counts() -> None:
    judged = verdicts(results("mock", "rows", "ms", aioproducer=400, count=200))

    assert judged["Spark's handing over of the rows, of our time"] == "50: reached"
    assert judged["the same, the better aim"] == "50: not reached, by a factor of 2.00"


def test_the_price_of_exactly_once_is_what_it_takes_more() -> None:
    judged = verdicts(results("kafka", "micro-batches", "batch_ms", at_least_once=100, exactly_once=120))

    assert judged["exactly-once over at-least-once, micro-batches of 100,000 rows"] == "20: reached"


def test_every_target_asks_for_cases_and_ways_that_there_are() -> None:
    asked: set[tuple[str, str]] = set()

    class Asking(Results):
        def ratio(
            self, broker: str, case: str, client: str, other: str, figure: str, other_case: str = ""
        ) -> float | None:
            asked.update({(case, client), (case, other)})
            return None

    for target in TARGETS:
        target.measure(Asking(), target.broker)

    assert all(case in CASES and way in {*WAYS, *GUARANTEES} for case, way in asked)


def test_a_table_has_a_line_for_each_way_and_its_ratio() -> None:
    jobs = results("mock", "rows", "records_per_s", aioproducer=3000, confluent_arrow=1000)
    queries = results("kafka", "micro-batches", "records_per_s", at_least_once=1000, exactly_once=900)

    assert (
        "| an Arrow writer with confluent-kafka | 1,000 | - | - | 3.00 |"
        in case_table(jobs, "mock", CASES["rows"]).splitlines()
    )
    assert "| exactly-once | 900 | - | - | 0.90 |" in case_table(queries, "kafka", MICRO_BATCHES).splitlines()


def test_a_report_shows_targets_and_tables_and_its_figures_can_be_read_again(tmp_path: Path) -> None:
    found = results("mock", "rows", "records_per_s", aioproducer=3000, confluent_arrow=1000)

    report = write_report(found, tmp_path).read_text()

    assert "| mock | at least 2 x | 3.00 x | reached |" in report
    assert "1,000,000 rows of 100 B, no key" in report
    assert Results.load(tmp_path / "spark.json") == found


def test_files_of_one_micro_batch_name_different_partitions_and_have_their_order(tmp_path: Path) -> None:
    write_files(tmp_path, batches=2, count=100)

    parquet: Any = pytest.importorskip("pyarrow.parquet")
    files = sorted(tmp_path.iterdir(), key=lambda file: file.stat().st_mtime)
    tables: list[Any] = [parquet.read_table(file) for file in files]
    partitions = [set(table.column("partition").to_pylist()) for table in tables]
    assert [file.name for file in files] == sorted(file.name for file in files)
    assert {len(value) for table in tables for value in table.column("value").to_pylist()} == {100}
    assert sum(table.num_rows for table in tables) == 200
    assert all(not partitions[at] & partitions[at + 1] for at in range(0, len(files), TASKS))


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_one_command_compares_all_ways_and_counts_what_they_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    need()

    main(["--quick", "--rows", "2000", "--broker", "mock", "--cases", "rows", "--out", str(tmp_path)])

    found = Results.load(tmp_path / "spark.json")
    assert found.missing == []
    assert found.clients("mock", "rows") == [name for name, way in WAYS.items() if way.can(CASES["rows"], "mock")]
    assert found.counted == {"mock": sum(WAYS[run.client].sends for run in found.runs)}
    assert "not measured" in capsys.readouterr().out  # exactly-once, of which the mock cluster knows too little
