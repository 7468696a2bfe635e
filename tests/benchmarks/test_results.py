"""The figures and texts that the benchmarks compute from measurements."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from benchmarks.cases import CASES, Payload
from benchmarks.clients import CLIENTS, OURS
from benchmarks.clients.java import steady_rate
from benchmarks.job import Job, payloads
from benchmarks.measure import latencies, percentile
from benchmarks.report import write_report
from benchmarks.results import Results, Run
from benchmarks.svg import DARK, LIGHT, Bar, Theme, bar_chart
from benchmarks.tables import case_table, markdown
from benchmarks.targets import TARGETS, Target

CASE = CASES["pipelined-100b"]


def results(**rates: tuple[float, ...]) -> Results:
    """The figures of clients in the rounds of one case; franz-go is written franz_go here."""
    runs = [
        Run("mock", CASE.name, client.replace("_", "-"), number, {"records_per_s": rate, "cpu_us": 1e6 / rate})
        for client, values in rates.items()
        for number, rate in enumerate(values)
    ]
    return Results(runs)


def test_cases_measured_again_replace_the_old_ones_and_name_their_machine() -> None:
    old = results(aioproducer=(1, 2))
    old.runs.append(Run("kafka", CASE.name, OURS, 0, {"records_per_s": 7}))
    old.about = {"machine": "old", "Python": "3.13"}
    new = results(aioproducer=(3,), confluent=(1,))
    new.runs.append(Run("mock", CASE.name, "confluent", 1, {"records_per_s": 9}, is_counted=False))
    new.about = {"machine": "new", "Python": "3.13"}

    found = old.renewed(new)

    assert found.clients("mock", CASE.name) == [OURS, "confluent"]
    assert found.median("mock", CASE.name, OURS, "records_per_s") == 3
    assert found.median("kafka", CASE.name, OURS, "records_per_s") == 7
    assert found.counted == {"mock": 2, "kafka": 1}
    assert found.about == {"machine": "old", "Python": "3.13", "pipelined-100b (mock)": "machine new"}


def test_the_machine_of_a_case_is_that_of_its_last_measurement() -> None:
    others = Results([Run("mock", "lone", OURS, 0, {"p50_us": 7}), *results(aioproducer=(3,)).runs])
    others.about = {"machine": "new"}
    again, once_more = results(aioproducer=(4,)), results(aioproducer=(5,))
    again.about, once_more.about = {"machine": "newer"}, {"machine": "newest"}

    found = Results(about={"machine": "old"}).renewed(others).renewed(again).renewed(once_more)

    assert found.about == {
        "machine": "old",
        "lone (mock)": "machine new",
        "pipelined-100b (mock)": "machine newest",
    }


def test_a_ratio_is_the_median_of_the_rounds_ratios() -> None:
    found = results(aioproducer=(100, 10, 100), confluent=(50, 5, 10))

    assert found.ratio("mock", CASE.name, OURS, "confluent", "records_per_s") == 2
    assert found.median("mock", CASE.name, OURS, "records_per_s") == 100


def test_a_round_in_which_one_of_them_is_missing_does_not_count_for_a_ratio() -> None:
    found = results(aioproducer=(100, 900), confluent=(50,))

    assert found.ratio("mock", CASE.name, OURS, "confluent", "records_per_s") == 2


def test_a_figure_that_was_not_measured_is_none_and_not_zero() -> None:
    found = results(aioproducer=(100,))

    assert found.ratio("mock", CASE.name, OURS, "confluent", "records_per_s") is None
    assert found.ratio("mock", CASE.name, OURS, OURS, "p50_us") is None
    assert found.median("kafka", CASE.name, OURS, "records_per_s") is None


def test_results_are_the_same_after_they_were_saved(tmp_path: Path) -> None:
    found = results(aioproducer=(100, 200))
    found.missing.append(("mock", CASE.name, "java", "no Java"))
    found.runs.append(Run("mock", CASE.name, OURS, 2, {"ms": 1}, is_counted=False))

    found.save(tmp_path / "results.json")

    assert Results.load(tmp_path / "results.json") == found


@pytest.mark.parametrize(
    ("measured", "at_most", "words"),
    [
        (3.0, False, "reached"),
        (1.5, False, "not reached, by a factor of 2.00"),
        (3.0, True, "reached"),
        (6.0, True, "not reached, by a factor of 2.00"),
        (None, True, "not measured"),
    ],
)
def test_a_verdict_contains_by_how_much_a_target_is_missed(measured: float | None, at_most: bool, words: str) -> None:
    target = Target("mock", "speed", 3.0, lambda *_: measured, at_most)

    assert target.judge(Results()).words == words


def test_every_target_asks_for_cases_and_clients_that_there_are() -> None:
    asked: set[tuple[str, str]] = set()

    class Asking(Results):
        def median(self, broker: str, case: str, client: str, figure: str) -> float | None:
            asked.add((case, client))
            return None

        def ratio(
            self, broker: str, case: str, client: str, other: str, figure: str, other_case: str = ""
        ) -> float | None:
            asked.update({(case, client), (other_case or case, other)})
            return None

    for target in TARGETS:
        target.measure(Asking(), target.broker)

    assert all(case in CASES and client in CLIENTS for case, client in asked)


def test_the_confluent_kafka_that_counts_is_its_best() -> None:
    runs = [
        Run("mock", "send-many", client, 0, {"records_per_s": rate})
        for client, rate in {OURS: 600.0, "confluent": 50.0, "confluent-batch": 100.0, "confluent-aio": 10.0}.items()
    ]
    target = next(target for target in TARGETS if target.text.startswith("send_many: records/s"))

    assert target.judge(Results(runs)).measured == 6


def test_a_table_has_a_line_for_each_client_with_our_ratio_to_it() -> None:
    table = case_table(results(aioproducer=(3000,), aiokafka=(1000,)), "mock", CASE)

    assert "| aiokafka | 1,000 | - | 1000.00 | 3.00 |" in table.splitlines()


def test_the_columns_of_a_table_are_aligned_as_text_and_numbers() -> None:
    assert markdown(["a", "b"], [["x", "1"]]) == "| a | b |\n|---|---:|\n| x | 1 |"


def test_a_report_shows_targets_charts_and_what_was_left_out(tmp_path: Path) -> None:
    found = results(aioproducer=(3_000_000,), confluent=(1_000_000,))
    found.missing.append(("mock", CASE.name, "franz-go", "There is no `go`."))

    report = write_report(found, tmp_path).read_text()

    assert "| mock | at least 3 x | 3.00 x | reached |" in report
    assert '<img alt="Records per second, 100 bytes, each one acknowledged" src="throughput-light.svg">' in report
    assert (tmp_path / "throughput-dark.svg").exists()
    assert "| franz-go (Go) | There is no `go`. |" in report


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda theme: theme.name)
def test_a_chart_is_valid_svg_whose_bars_are_as_long_as_their_values(theme: Theme) -> None:
    chart = bar_chart("a < b & c", "d", [Bar("ours", 200, "200", True), Bar("<theirs>", 50, "50")], theme)

    root = ElementTree.fromstring(chart)

    widths = [float(bar.attrib["width"]) for bar in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert widths[0] == pytest.approx(4 * widths[1])
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ["a < b & c", "d", "ours", "200", "<theirs>", "50"]


@pytest.mark.parametrize("payload", Payload)
def test_payloads_are_exactly_as_large_as_asked_for_and_always_the_same(payload: Payload) -> None:
    values = payloads(payload, 1024)

    assert {len(value) for value in values} == {1024}
    assert values == payloads(payload, 1024)
    assert len(set(values)) == len(values)
    assert not any(b"\n" in value for value in values)
    if payload is Payload.JSON:
        assert all(json.loads(value)["event_id"] for value in values)


def test_a_job_has_so_many_values_and_keys_as_records() -> None:
    job = Job(CASE, "127.0.0.1:9092", "t", 12_345)

    assert (len(job.values()), len(job.keys()), len(job.values(7))) == (12_345, 12_345, 7)
    assert job.sent == 12_345 + job.warm_up


def test_percentiles_are_values_that_were_measured() -> None:
    assert percentile([1, 2, 3, 4], 0.5) == 3
    assert percentile([1.0], 0.999) == 1
    assert latencies([0.003, 0.001, 0.002])["p50_us"] == pytest.approx(2000)


def test_the_rate_of_the_java_tool_is_that_of_its_steady_state() -> None:
    output = (
        "150000 records sent, 21017.2 records/sec (2.00 MB/sec), 5 ms avg latency, 9 ms max latency, 1 ms 50th, ...\n"
        "100000 steady state records sent, 40017.2 records/sec (4.00 MB/sec), 5 ms avg latency, 9 ms max latency, ...\n"
    )

    assert steady_rate(output) == 40017.2


def test_no_client_is_asked_for_what_it_cannot_do() -> None:
    java = CLIENTS["java"]

    assert java.can(CASE, "kafka")
    assert not java.can(CASE, "mock")
    assert not java.can(CASES["pipelined-keyed"], "kafka")
    assert not java.can(CASES["lone"], "kafka")
    assert not CLIENTS["kafka-python"].can(CASES["spread-10"], "mock")


def test_slow_clients_send_a_share_of_the_records_and_never_next_to_nothing() -> None:
    slow = CLIENTS["kafka-python"]

    assert slow.records(CASE) == 50_000
    assert slow.records(CASE, most=500) == 500
    assert slow.records(CASES["lone"]) == CASES["lone"].records


def test_a_transaction_takes_an_offset_for_its_marker_in_each_of_its_partitions() -> None:
    hundred = Job(CASES["transactions-100-linger-5"], "localhost:9092", "topic", records=1_000)
    one = Job(CASES["transactions-1"], "localhost:9092", "topic", records=10)

    assert hundred.sent == (10 + 1) * (100 + 6)
    assert one.sent == (10 + 1) * 2
    assert {partition for _, partition in hundred.transaction()} == set(range(6))
