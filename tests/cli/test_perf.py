"""``aioproducer perf`` prints Java's lines, and finds rates, compares and draws; its decisions need no clock."""

from __future__ import annotations

import json
import math
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from aioproducer.cli.main import main
from aioproducer.cli.perf.lines import as_json, comparison, metric_lines, ratios, total_line, window_line
from aioproducer.cli.perf.load import due, key_source, pause, payloads_in, random_payloads
from aioproducer.cli.perf.modes import Search
from aioproducer.cli.perf.search import Probe, best_of, next_rate
from aioproducer.cli.perf.stats import Measure, Result, Stats, Tally, Window
from aioproducer.cli.perf.svg import Series, chart, ticks
from aioproducer.cli.verb import Trouble
from aioproducer.testing import FakeBroker

#: The formats of Java's ProducerPerformance.
WINDOW = re.compile(
    r"\d+ records sent, \d+\.\d records/sec \(\d+\.\d\d MB/sec\), \d+\.\d ms avg latency, \d+\.\d ms max latency\."
)
TOTAL = re.compile(
    r"(\d+)( steady state)? records sent, \d+\.\d{6} records/sec \(\d+\.\d\d MB/sec\), \d+\.\d\d ms avg latency, "
    r"\d+\.\d\d ms max latency, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\."
)

Perf = Callable[..., int]


@pytest.fixture
def perf(broker: FakeBroker) -> Perf:
    """Runs the verb on the broker."""

    def run(*arguments: str) -> int:
        return main(["perf", "--topic", "orders", "-b", broker.bootstrap_servers, *arguments])

    return run


LOAD = ("--num-records", "300", "--record-size", "100")


def tally_of(*latencies_ms: float, size: int = 100) -> Tally:
    tally = Tally()
    for latency in latencies_ms:
        tally.add(latency / 1000, size)
    return tally


# -- decisions ------------------------------------------------------------------------------------------------------------


def test_a_tally_knows_its_records() -> None:
    tally = tally_of(*range(1, 1001))

    assert tally.count == 1000
    assert tally.size == 100_000
    assert tally.average == pytest.approx(0.5005)
    assert tally.largest == 1.0
    for fraction in (0.5, 0.95, 0.99, 0.999):
        assert tally.percentile(fraction) == pytest.approx(
            fraction + 0.001, rel=0.005
        )  # Java's place: int(fraction * n)


def test_a_latency_of_zero_is_one() -> None:
    assert tally_of(0.0).percentile(0.99) == 0.0
    assert tally_of().percentile(0.99) == 0.0


@pytest.mark.parametrize("latency_ms", [0.017, 0.255, 0.256, 0.257, 0.511, 0.512, 1.0, 65.5, 30_000.0, 119_999.0])
def test_a_bucket_is_close_to_its_latencies(latency_ms: float) -> None:
    tally = tally_of(latency_ms, latency_ms * 2)

    assert tally.percentile(0.0) * 1000 == pytest.approx(latency_ms, rel=0.005)


def test_tallies_are_merged() -> None:
    tally = tally_of(1, 2)
    tally.merge(tally_of(9, size=50))

    assert (tally.count, tally.size) == (3, 250)
    assert tally.average == pytest.approx(0.004)
    assert tally.largest == pytest.approx(0.009)


def test_windows_end_with_the_first_record_after_their_time() -> None:
    reported: list[Window] = []
    stats = Stats(100.0, 5.0, reported.append)
    for now in (101.0, 104.0, 105.5, 106.0):
        stats.record(0.01, 10, now)
    stats.finish(107.0)

    assert [(each.start, each.end, each.tally.count) for each in reported] == [(0.0, 5.5, 3)]
    assert [each.tally.count for each in stats.windows] == [3, 1]
    assert stats.total.count == sum(each.tally.count for each in stats.slices) == 4


def test_a_long_run_keeps_a_bounded_number_of_slices() -> None:
    stats = Stats(0.0, 5.0, lambda window: None)
    for number in range(3000):
        stats.record(0.01, 10, number * 0.25)
    stats.finish(750.0)

    assert len(stats.slices) <= 480
    assert stats.slices[0].start == 0.0
    assert stats.slices[-1].end == 750.0
    assert sum(each.tally.count for each in stats.slices) == stats.total.count == 3000


def test_the_steady_state_begins_after_the_warmup() -> None:
    reported: list[tuple[int, bool, bool]] = []
    measure = Measure(0.0, 1.0, lambda window, steady, first: reported.append((window.tally.count, steady, first)))
    measure.acknowledge(None, 0.5, 10, 1.0)
    measure.end_warmup(1.0)
    for now in (1.5, 2.0, 3.0):
        measure.acknowledge(measure.steady, 0.001, 10, now)
    measure.acknowledge(None, 0.9, 10, 3.0)  # sent before the warm-up ended
    result = measure.result(3.5, None, interrupted=False)

    assert reported == [(1, False, False), (2, True, True), (1, True, False)]
    assert result.total.count == 5
    assert result.steady is not None
    assert (result.steady.total.count, result.steady.seconds) == (3, 2.5)
    assert result.steady.total.largest == pytest.approx(0.001)


def test_nothing_is_counted_after_the_result() -> None:
    measure = Measure(0.0, 1.0, lambda window, steady, first: None)
    measure.fail(ValueError("first"))
    result = measure.result(1.0, None, interrupted=True)
    measure.fail(ValueError("second"))
    measure.acknowledge(None, 0.1, 1, 2.0)

    assert (result.failed, result.error, measure.failed) == (1, "first", 1)
    assert result.total.count == 0
    assert not result.is_good


def test_the_lines_are_those_of_java() -> None:
    tally = tally_of(1, 2, 3, size=1 << 20)

    assert window_line(Window(5.0, 7.0, tally)) == (
        "3 records sent, 1.5 records/sec (1.50 MB/sec), 2.0 ms avg latency, 3.0 ms max latency."
    )
    assert total_line(Result(tally, 2.0)) == (
        "3 records sent, 1.500000 records/sec (1.50 MB/sec), 2.00 ms avg latency, 3.00 ms max latency, "
        "2 ms 50th, 3 ms 95th, 3 ms 99th, 3 ms 99.9th."
    )
    assert total_line(Result(tally, 2.0), is_steady=True).startswith("3 steady state records sent, ")
    assert total_line(Result(Tally(), 2.0)) == (
        "0 records sent, 0.000000 records/sec (0.00 MB/sec), NaN ms avg latency, 0.00 ms max latency, "
        "0 ms 50th, 0 ms 95th, 0 ms 99th, 0 ms 99.9th."
    )


def test_json_has_no_nan() -> None:
    found = as_json(Result(Tally(), 0.0))

    assert found["latency_ms"]["avg"] is None
    assert "NaN" not in json.dumps([found, ratios(Result(Tally(), 0.0), Result(tally_of(1), 1.0))], allow_nan=False)


def test_metrics_are_sorted_and_aligned() -> None:
    lines = metric_lines([("b", {"id": "1", "n": "2"}, {"x": 1.0}), ("a", {}, {"long-name": 2.5})])

    assert lines == ["", "Metric Name       Value", "a:long-name:{}  : 2.500", "b:x:{id=1, n=2} : 1.000"]


def test_a_comparison_has_the_ratios() -> None:
    a, b = Result(tally_of(2, 2), 1.0), Result(tally_of(1, 1, 1, 1), 1.0)

    assert ratios(a, b) == {
        "records_per_second": 2.0,
        **{f"latency_{name}": pytest.approx(0.5, rel=0.01) for name in ("avg", "p50", "p99")},
    }
    assert comparison(a, Result(Tally(), 1.0), "")[3] == "B / A: - records/sec, - avg latency, - 50th, - 99th."
    assert comparison(a, b, "linger.ms=5")[2].startswith("B, linger.ms=5: 4 records sent")


def test_records_are_due_by_the_rate() -> None:
    assert due(0.0, 1000, 0, 10) == 1
    assert due(0.005, 1000, 1, 10) == 5
    assert due(0.005, 1000, 6, 10) == 0
    assert due(60.0, 1000, 6, 10) == 4
    assert pause(0.005, 1000, 6) == pytest.approx(0.001)
    assert pause(0.0, 10, 1) == pytest.approx(0.1)
    assert pause(0.0, 1e6, 1) == 0.001


def test_values_are_random_letters_and_the_same_in_each_run() -> None:
    value = random_payloads(1000)

    assert re.fullmatch(rb"[A-Z]{1000}", value(0))
    assert len({value(number) for number in range(4000)}) == 4000
    assert value(10**9) == random_payloads(1000)(10**9)
    assert len(random_payloads(5 << 20)(3)) == 5 << 20


def test_keys_recur() -> None:
    key = key_source(3)

    assert [key(number) for number in range(4)] == [b"0", b"1", b"2", b"0"]


@pytest.mark.parametrize(
    ("text", "delimiter", "payloads"),
    [
        ("a\nb\n", r"\n", [b"a", b"b"]),
        ("a\n\nb", r"\n", [b"a", b"", b"b"]),
        ("a|b", r"\|", [b"a", b"b"]),
        ("ä,b;c", "[,;]", ["ä".encode(), b"b", b"c"]),
    ],
)
def test_payloads_are_split(text: str, delimiter: str, payloads: list[bytes], tmp_path: Path) -> None:
    path = tmp_path / "payloads"
    path.write_text(text, encoding="utf-8")

    assert payloads_in(path, delimiter) == payloads


@pytest.mark.parametrize(("content", "delimiter"), [(b"", r"\n"), (b"\xff", r"\n"), (b"a", "("), (b"a", "(,)")])
def test_payloads_that_cannot_be_read_are_refused(content: bytes, delimiter: str, tmp_path: Path) -> None:
    path = tmp_path / "payloads"
    path.write_bytes(content)

    with pytest.raises(Trouble):
        payloads_in(path, delimiter)


def _searched(limit: float, first: float = 1000.0) -> list[Probe]:
    """The probes of a search for a producer that keeps the latency up to this rate."""
    probes: list[Probe] = []
    while (rate := next_rate(probes, first)) is not None:
        probes.append(Probe(rate, rate, 0.001 if rate <= limit else 1.0, 0.01))
    return probes


@pytest.mark.parametrize("limit", [11, 300, 999, 1000, 5_000, 1_234_567])
def test_the_search_finds_the_rate(limit: float) -> None:
    probes = _searched(limit)
    best = best_of(probes)

    assert best is not None
    assert limit / 1.06 <= best.rate <= limit
    assert len(probes) <= 16


def test_the_search_is_bounded() -> None:
    assert len(_searched(math.inf)) == 16
    assert best_of(_searched(0)) is None
    assert min(each.rate for each in _searched(0)) >= 10


def test_a_good_probe_above_one_that_missed_was_luck() -> None:
    probes = [Probe(1000, 1000, 0.001, 0.01), Probe(2000, 2000, 0.5, 0.01), Probe(4000, 4000, 0.001, 0.01)]

    assert best_of(probes) == probes[0]
    assert next_rate(probes) == pytest.approx(math.sqrt(2e6))


def test_a_probe_has_the_reason_why_it_is_not_good() -> None:
    assert Probe(1000, 1000, 0.02, 0.01).verdict == "latency missed"
    assert Probe(1000, 500, 0.001, 0.01).verdict == "rate not reached"
    assert Probe(1000, 1000, 0.001, 0.01, failed=3).verdict == "3 records failed"
    assert Probe(1000, 950, 0.01, 0.01).is_good


def test_a_search_has_its_outcome_as_text() -> None:
    all_good, none_good = _searched(math.inf), _searched(0)

    assert Search(0.01, all_good).sentence.endswith("higher ones were not tried.")
    assert Search(0.01, none_good).sentence == (
        "No rate had a 99th percentile of at most 10 ms; the lowest one was 10 records/sec."
    )
    assert "before the interruption" in Search(0.01, [], interrupted=True).sentence


@pytest.mark.parametrize(
    ("largest", "last"), [(0, 1.0), (1, 1.0), (9.3, 10.0), (61, 75.0), (1_000_000, 1_000_000), (0.0031, 0.0035)]
)
def test_ticks_are_round_and_enclose_the_values(largest: float, last: float) -> None:
    found = ticks(largest)

    assert found[0] == 0
    assert 2 <= len(found) <= 8
    assert found[-1] >= largest
    assert found[-1] == pytest.approx(last, rel=0.15)


def _texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return [each.text or "" for each in root.iter("{http://www.w3.org/2000/svg}text")]


def test_the_chart_has_title_axes_units_and_legend() -> None:
    windows = [Window(float(at), at + 1.0, tally_of(at + 1, 2 * at + 5)) for at in range(8)]
    svg = chart("a <b> & c", "records of 100 bytes", [Series("A", windows), Series("B", windows[:3])])
    texts = _texts(svg)

    for text in ("a <b> & c", "Throughput (records/s)", "Latency (ms)", "Time (s)", "A", "B", "A p50", "B p99"):
        assert text in texts
    assert svg.count("<polyline") == 6
    assert "prefers-color-scheme: dark" in svg
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")  # self-contained


def test_a_chart_of_one_window_or_none_is_readable() -> None:
    assert '<circle class="line s0 p99"' in chart("t", "s", [Series("", [Window(0, 1, tally_of(1))])])
    assert "No records were acknowledged." in _texts(chart("t", "s", [Series("", [])]))


# -- runs -----------------------------------------------------------------------------------------------------------------


def test_it_prints_one_line_at_the_end(perf: Perf, broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert perf(*LOAD, "--throughput", "-1", "--key-count", "7") == 0

    out = capsys.readouterr().out.splitlines()
    found = TOTAL.fullmatch(out[-1])
    assert found is not None
    assert found[1] == "300"
    records = broker.records("orders")
    assert len(records) == 300
    assert {record.key for record in records} == {b"%d" % number for number in range(7)}
    assert all(re.fullmatch(rb"[A-Z]{100}", record.value or b"") for record in records)


@pytest.mark.parametrize("flag", ["--producer-props", "--command-property"])
def test_javas_command_line_works(flag: str, broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--topic", "orders", "--num-records", "50", "--payload-monotonic", "--throughput", "-1"]
    properties = [
        f"bootstrap.servers={broker.bootstrap_servers}",
        "linger.ms=1",
        "acks=1",
    ]  # acks=1 turns idempotence off
    assert main(["perf", *arguments, flag, *properties, "--print-metrics"]) == 0

    out = capsys.readouterr().out.splitlines()
    assert TOTAL.fullmatch(out[0])
    assert re.fullmatch(r"Metric Name +Value", out[2])
    sent = [
        line for line in out if line.startswith("producer-metrics:record-send-total:{client-id=perf-producer-client}")
    ]
    assert sent[0].endswith(" : 50.000")
    assert any(line.startswith("producer-topic-metrics:") for line in out)
    assert sorted(int(record.value or b"") for record in broker.records("orders")) == list(range(50))


def test_acks_1_in_a_file_turns_idempotence_off(perf: Perf, broker: FakeBroker, tmp_path: Path) -> None:
    path = tmp_path / "producer.properties"
    path.write_text("acks=1\n")
    assert perf(*LOAD, "--producer.config", str(path)) == 0

    assert broker.count("InitProducerId") == 0


def test_the_warmup_has_its_lines(perf: Perf, broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    broker.delay("Produce", 0.002, times=None)  # longer than a window, so that the steady state has one
    assert perf(*LOAD, "--throughput", "5000", "--warmup-records", "100", "--reporting-interval", "1") == 0

    out = capsys.readouterr().out.splitlines()
    assert out[0] == "Warmup first 100 records. Steady state results will print after the complete test summary."
    at = out.index("In steady state.")
    assert all(WINDOW.fullmatch(line) for line in [*out[1:at], *out[at + 1 : -2]])
    assert [TOTAL.fullmatch(line).groups() for line in out[-2:]] == [("300", None), ("200", " steady state")]  # type: ignore[union-attr]


def test_a_payload_file_is_read(
    perf: Perf, broker: FakeBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "payloads"
    path.write_text("one\ntwo\n")
    assert perf("--num-records", "50", "--payload-file", str(path)) == 0

    assert capsys.readouterr().out.splitlines()[:2] == [f"Reading payloads from: {path}", "Number of messages read: 2"]
    assert {record.value for record in broker.records("orders")} == {b"one", b"two"}


def test_it_sends_in_transactions(perf: Perf, broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert perf(*LOAD, "--transaction-duration-ms", "1", "--throughput", "10000") == 0

    assert TOTAL.fullmatch(capsys.readouterr().out.strip())
    assert len(broker.records("orders")) == 300
    assert broker.count("EndTxn") >= 2


def test_json_is_the_only_output(perf: Perf, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    svg = tmp_path / "chart.svg"
    arguments = ("--json", "--svg", str(svg), "--reporting-interval", "1", "--warmup-records", "10")
    assert perf(*LOAD, *arguments) == 0

    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (found["records"], found["errors"], found["steady_state"]["records"]) == (300, 0, 290)
    assert sum(each["records"] for each in found["windows"]) == 300
    assert all(each["end"] > each["start"] for each in found["windows"])
    assert set(found["latency_ms"]) == {"avg", "max", "p50", "p95", "p99", "p999"}
    assert found["records_per_second"] == pytest.approx(300 / found["seconds"], rel=0.01)
    assert "aioproducer perf: orders" in _texts(svg.read_text())


def test_a_comparison_alternates(perf: Perf, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    svg = tmp_path / "chart.svg"
    assert perf(*LOAD, "--vs", "linger.ms=1", "--vs", "compression.type=gzip", "--svg", str(svg)) == 0

    out = capsys.readouterr().out.splitlines()
    assert [line[:3] for line in out[:4]] == ["A: ", "B: ", "B: ", "A: "]
    assert all(TOTAL.fullmatch(line[3:]) for line in out[:4])
    assert out[5].startswith("A, as given: 600 records sent")
    assert out[6].startswith("B, linger.ms=1 compression.type=gzip: 600 records sent")
    assert re.fullmatch(r"B / A: [\d.]+ records/sec, [\d.]+ avg latency, [\d.]+ 50th, [\d.]+ 99th\.", out[7])
    assert "B p99" in _texts(svg.read_text())


def test_a_comparison_has_json(perf: Perf, capsys: pytest.CaptureFixture[str]) -> None:
    assert perf(*LOAD, "--vs", "acks=1", "--json") == 0

    found = json.loads(capsys.readouterr().out)
    assert [each["run"] for each in found["runs"]] == ["A", "B", "B", "A"]
    assert found["ratio"]["records_per_second"] > 0
    assert found["a"]["records"] == found["b"]["records"] == 600


PROBE = re.compile(r"Probe \d+: \d+ records/sec requested, \d+ reached, \d+\.\d\d ms 99th: .*\.")


def test_it_searches_the_highest_rate(perf: Perf, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    svg = tmp_path / "chart.svg"
    limits = ("--num-records", "20", "--record-size", "10", "--target-latency", "60000", "--probe-seconds", "0.01")
    code = perf(*limits, "--throughput", "100", "--svg", str(svg))

    out = capsys.readouterr().out.splitlines()
    assert all(PROBE.fullmatch(line) for line in out[:-1])
    assert out[-1].startswith("Highest rate with" if code == 0 else "No rate had")
    assert "Latency (ms)" in _texts(svg.read_text())


def test_a_latency_that_no_rate_has_is_a_bad_result(perf: Perf, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--record-size", "10", "--target-latency", "0.001", "--probe-seconds", "0.01", "--json")
    assert perf(*arguments) == 1

    found = json.loads(capsys.readouterr().out)
    assert found["records_per_second"] is None
    assert {each["verdict"] for each in found["probes"]} == {"latency missed"}


def test_failed_records_are_reported(perf: Perf, broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None, partition=0)
    assert perf(*LOAD, "--key-count", "50", "--json") == 1

    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["errors"] > 0
    assert found["records"] > 0
    assert found["errors"] + found["records"] == 300
    assert re.search(
        rf"{found['errors']} of 300 records failed. The first reason: .*TOPIC_AUTH", captured.err, re.IGNORECASE
    )


def test_records_that_are_refused_are_counted(perf: Perf, capsys: pytest.CaptureFixture[str]) -> None:
    assert perf("--num-records", "3", "--record-size", "5000", "-X", "max.request.size=1000") == 1

    captured = capsys.readouterr()
    assert captured.out.startswith("0 records sent, 0.000000 records/sec (0.00 MB/sec), NaN ms avg latency, ")
    assert "3 of 3 records failed" in captured.err


def test_a_transaction_that_fails_ends_the_run(
    perf: Perf, broker: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.fail("EndTxn", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", times=None)
    assert perf(*LOAD, "--transactional-id", "perf") == 1

    assert "The first reason: " in capsys.readouterr().err


#: With five requests in flight, the first of so many was answered.
_SOME = 10


@pytest.fixture
def ctrl_c(broker: FakeBroker) -> Iterator[None]:
    """Ctrl-C while records are sent, and some are acknowledged."""
    seen = 0

    def interrupt(context: object) -> None:
        nonlocal seen
        seen += 1
        if seen == _SOME:
            os.kill(os.getpid(), signal.SIGINT)

    broker.control("Produce", interrupt, times=None)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    yield
    signal.signal(signal.SIGINT, before)
    assert seen >= _SOME


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_reports_what_was_measured(perf: Perf, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    svg = tmp_path / "chart.svg"
    arguments = ("--num-records", "1000000", "--record-size", "10", "--throughput", "1000", "--svg", str(svg))
    assert perf(*arguments) == 130

    captured = capsys.readouterr()
    assert captured.err == "aioproducer perf: interrupted; these are the results until then.\n"
    found = TOTAL.fullmatch(captured.out.strip())
    assert found is not None
    assert 0 < int(found[1]) < 1_000_000
    assert _texts(svg.read_text())


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("mode", [("--vs", "acks=1"), ("--target-latency", "60000")])
def test_ctrl_c_ends_each_mode(mode: tuple[str, ...], perf: Perf, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--num-records", "1000000", "--record-size", "10", "--throughput", "1000", "--json")
    assert perf(*arguments, *mode) == 130

    assert json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--num-records", "10"], "one of the arguments --record-size"),
        ([*LOAD, "--payload-monotonic"], "not allowed with"),
        (["--num-records", "0", "--record-size", "1"], "must be at least 1"),
        ([*LOAD, "--throughput", "0"], "must be above 0"),
        ([*LOAD, "--throughput", "inf"], "must be above 0"),
        ([*LOAD, "--target-latency", "-1"], "must be above 0"),
        ([*LOAD, "--producer-props", "nonsense"], "is not NAME=VALUE"),
    ],
)
def test_a_wrong_argument_is_a_usage_error(
    arguments: list[str], complaint: str, perf: Perf, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        perf(*arguments)
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--record-size", "1"], "--num-records is missing"),
        ([*LOAD, "--warmup-records", "300"], "must be less than --num-records"),
        ([*LOAD, "--warmup-records", "3", "--vs", "acks=1"], "--warmup-records cannot be combined"),
        ([*LOAD, "--target-latency", "5", "--vs", "acks=1"], "--target-latency and --vs"),
        ([*LOAD, "--print-metrics", "--json"], "--print-metrics cannot be combined"),
        ([*LOAD, "--svg", "/nowhere/chart.svg"], "is not a directory"),
        ([*LOAD, "--vs", "acks=nonsense"], "acks"),
        ([*LOAD, "-X", "no.such.option=1"], "no.such.option"),
        (["--num-records", "1", "--payload-file", "/nowhere/payloads"], "cannot be read"),
    ],
)
def test_arguments_that_contradict_each_other_are_explained(
    arguments: list[str], complaint: str, perf: Perf, capsys: pytest.CaptureFixture[str]
) -> None:
    assert perf(*arguments) == 2
    assert complaint in capsys.readouterr().err


def test_a_cluster_that_cannot_be_reached_is_no_result(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--topic", "orders", "-b", "127.0.0.1:1", "-X", "max.block.ms=50"]
    assert main(["perf", *arguments, *LOAD]) == 2

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("aioproducer perf: ")


def test_the_help_spells_out_what_a_flag_means_in_a_search(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["perf", "--help"])

    shown = " ".join(capsys.readouterr().out.split())
    assert "find the highest rate whose 99th percentile of latency stays below MS milliseconds" in shown
    assert "with --target-latency, the most that each probe sends" in shown
    assert "with --target-latency, the rate of the first probe" in shown
