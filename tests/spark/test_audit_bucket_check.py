"""The check of an audit's buckets finds exactly the planted faults, and none in a faithful log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from aiokafka.partitioner import murmur2  # type: ignore[import-untyped]

from aioproducer.spark.audit.bucket_check import SAMPLES, SEQUENCE_BLOCK, Facts, Side, check_bucket
from aioproducer.spark.audit.findings import FINDING_COLUMNS, Finding, FindingKind, findings_batch
from aioproducer.spark.audit.murmur2 import home_partitions
from aioproducer.spark.audit.offsets import AuditFailed
from aioproducer.spark.audit.plan import AuditPlan
from aioproducer.spark.audit.report import html_report
from aioproducer.spark.audit.verdict import AuditVerdict, Expectation, Sample, add_up

CONFIG = {"bootstrap.servers": "localhost:9092"}

PARTITIONS = 3
KEYS = 11
ROWS = 1000

_EXPECTED = Expectation("expected")


@dataclass
class Row:
    """A record as a test sees it; ``number`` is its place in what is expected, or its sequence number."""

    number: int
    key: str | None
    value: str = ""
    partition: int = 0
    misplaced: bool = False

    def __post_init__(self) -> None:
        self.value = self.value or f"value {self.number}"
        self.partition = self.number % PARTITIONS if self.key is None else crc32(self.key.encode()) % PARTITIONS

    @property
    def content(self) -> int:
        return crc32(repr((self.key, self.value)).encode())

    @property
    def bucket(self) -> int:
        return self.content if self.key is None else crc32(self.key.encode())


@dataclass
class Log:
    """A thousand records of eleven keys and some of none, and the same as they were read; tests then spoil the log."""

    expected: list[Row] = field(default_factory=lambda: [row(number) for number in range(ROWS)])
    read: list[Row] = field(default_factory=lambda: [row(number) for number in range(ROWS)])

    def check(self, *, by_order: bool = True) -> AuditVerdict:
        facts = [fact(Side.EXPECTED, each, -1, each.number) for each in self.expected]
        return verdict(facts + self.facts_read(Side.LOG, -1), by_order=by_order)

    def check_numbers(self, records: int | None = None, first: int = 0) -> AuditVerdict:
        """With nothing to compare but the numbers that the records carry."""
        return verdict(
            self.facts_read(Side.LOG, None) + self.facts_read(Side.SEQUENCE, None),
            Expectation("sequence", records=records, first=first),
        )

    def facts_read(self, side: Side, number: int | None) -> list[dict[str, Any]]:
        ends = [0] * PARTITIONS
        facts = []
        for each in self.read:
            made = fact(side, each, ends[each.partition], each.number if number is None else number)
            ends[each.partition] += 1
            run_and_block = {"bucket": 1} if side is Side.SEQUENCE else {}
            facts.append(made | ({"content": 1} if number is None else {}) | run_and_block)
        return facts


def row(number: int) -> Row:
    return Row(number, None if number % 7 == 0 else f"key {number % KEYS}")


def fact(side: Side, each: Row, offset: int, number: int) -> dict[str, Any]:
    return {
        "side": int(side),
        "bucket": each.bucket,
        "content": each.content,
        "partition": each.partition,
        "offset": offset,
        "number": number,
        "keyed": each.key is not None,
        "misplaced": each.misplaced,
    }


def verdict(
    facts: Sequence[dict[str, Any]], expectation: Expectation = _EXPECTED, *, by_order: bool = True
) -> AuditVerdict:
    """Judged in four buckets, as Spark would make them."""
    buckets: list[list[dict[str, Any]]] = [[], [], [], []]
    for each in facts:
        buckets[each["bucket"] % 4].append(each)
    found: list[Finding] = []
    for bucket in filter(None, buckets):
        facts_ = Facts.of(pa.Table.from_pylist(bucket))
        checked = check_bucket(facts_, by_order=by_order, first=expectation.first, records=expectation.records)
        batch = findings_batch(checked)
        found += [Finding(**each) for each in batch.to_pylist()]
    return add_up("orders", expectation, [], found)


def faults(of: AuditVerdict) -> dict[str, int]:
    return {kind.value: count for kind, count in of.counts.items() if kind.is_fault and count}


def test_a_log_that_holds_what_was_expected_is_clean() -> None:
    reported = Log().check()

    assert reported.is_clean
    assert (reported.read, reported.expected, reported.counts[FindingKind.KEYS]) == (ROWS, ROWS, KEYS)
    assert str(reported).startswith("1,000 records expected, 1,000 read: none lost, ")


def test_numbers_without_a_gap_are_clean() -> None:
    reported = Log().check_numbers()

    assert reported.is_clean
    assert reported.expected == ROWS
    assert [(run.first, run.last, run.found) for run in reported.runs] == [(0, ROWS - 1, ROWS)]


def lose_two(log: Log) -> None:
    del log.read[500]
    del log.read[100]


def duplicate(log: Log) -> None:
    log.read.append(row(501))


def duplicate_twice(log: Log) -> None:
    log.read += [row(501), row(501)]


def swap_two_of_a_key(log: Log) -> None:
    log.read[501], log.read[501 + KEYS] = log.read[501 + KEYS], log.read[501]


def swap_two_of_different_keys(log: Log) -> None:
    log.read[501], log.read[502] = log.read[502], log.read[501]


def alter(log: Log) -> None:
    log.read[501].value = "altered"


def alter_without_key(log: Log) -> None:
    log.read[490].value = "altered"


def alter_the_key(log: Log) -> None:
    log.read[501] = Row(501, "another", "value 501")


def add_a_stranger(log: Log) -> None:
    log.read.append(Row(5000, "key 1"))


def put_in_another_partition(log: Log) -> None:
    log.read[501].partition = (log.read[501].partition + 1) % PARTITIONS
    log.read[501].misplaced = True


def all_at_once(log: Log) -> None:
    duplicate(log)
    log.read[600].value = "altered"
    swap_two_of_a_key(log)
    lose_two(log)


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lose_two, {"lost": 2}),
        (duplicate, {"duplicated": 1}),
        (duplicate_twice, {"duplicated": 2}),
        (swap_two_of_a_key, {"reordered": 1}),
        (swap_two_of_different_keys, {}),
        (alter, {"altered": 1}),
        (alter_without_key, {"lost": 1, "stray": 1}),
        (alter_the_key, {"lost": 1, "stray": 1}),
        (add_a_stranger, {"stray": 1}),
        (put_in_another_partition, {"misplaced": 1}),
        (all_at_once, {"lost": 2, "duplicated": 1, "reordered": 1, "altered": 1}),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_check_finds_exactly(spoil: Callable[[Log], None], expected: dict[str, int]) -> None:
    log = Log()
    spoil(log)

    reported = log.check()

    assert faults(reported) == expected
    assert len(reported.samples) == sum(expected.values())
    assert reported.is_clean is (not expected)


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lose_two, {"lost": 2}),
        (duplicate, {"duplicated": 1}),
        (swap_two_of_a_key, {"reordered": 1}),
        (all_at_once, {"lost": 2, "duplicated": 1, "reordered": 1}),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_numbers_alone_tell_exactly(spoil: Callable[[Log], None], expected: dict[str, int]) -> None:
    log = Log()
    spoil(log)

    assert faults(log.check_numbers()) == expected


@pytest.mark.parametrize("earliest", [-ROWS, -506, -502, -501])
def test_an_order_that_begins_below_zero_is_checked_as_any_other(earliest: int) -> None:
    """As dates before 1970 do; -1 is a place in order like its neighbours."""
    log = Log()
    swap_two_of_a_key(log)
    del log.read[100]
    log.read[599].value = "altered"
    log.expected = [replace(each, number=each.number + earliest, value=each.value) for each in log.expected]

    reported = log.check()

    assert faults(reported) == {"lost": 1, "reordered": 1, "altered": 1}
    numbers = {sample.kind: sample.as_json()["number"] for sample in reported.samples}
    assert numbers == {
        FindingKind.LOST: 100 + earliest,
        FindingKind.REORDERED: 501 + earliest,
        FindingKind.ALTERED: 600 + earliest,
    }


def test_a_lost_record_that_was_the_last_before_zero_is_reported_with_its_place() -> None:
    log = Log()
    log.expected = [replace(each, number=each.number - 101, value=each.value) for each in log.expected]
    del log.read[100]

    (sample,) = log.check().samples

    assert (sample.kind, sample.as_json()["number"]) == (FindingKind.LOST, -1)


def test_where_order_does_not_count_a_swap_is_none() -> None:
    log = Log()
    swap_two_of_a_key(log)

    assert log.check(by_order=False).is_clean


def test_a_swap_is_reported_with_both_places() -> None:
    log = Log()
    swap_two_of_a_key(log)

    (sample,) = log.check().samples

    assert (sample.partition, sample.other < sample.offset) == (log.read[501].partition, True)


def test_records_that_are_expected_twice_are_duplicated_from_the_third_on() -> None:
    log = Log()
    log.expected.append(row(501))
    log.expected[-1].number = ROWS
    log.read += [row(501), row(501)]

    assert faults(log.check()) == {"duplicated": 1}


def test_of_many_equal_faults_all_are_counted_and_some_reported() -> None:
    log = Log()
    log.read.clear()

    reported = log.check()

    assert faults(reported) == {"lost": ROWS}
    assert 0 < len(reported.samples) < SAMPLES


def test_numbers_that_are_missing_at_the_beginning_and_the_end_are_lost() -> None:
    log = Log()
    log.read = log.read[10:-5]

    reported = log.check_numbers(records=ROWS)

    assert faults(reported) == {"lost": 15}
    assert {(sample.number, sample.count) for sample in reported.samples} == {(0, 10), (995, 5)}


@pytest.mark.parametrize(
    ("read", "first", "records", "expected"),
    [
        (range(0), 0, 100, {"lost": 100}),
        (range(10), 1, 10, {"lost": 1, "stray": 1}),
        (range(10), 100, 10, {"lost": 10, "stray": 10}),
        (range(10), 0, 7, {"stray": 3}),
        (range(10), 0, 10, {}),
        (range(5, 15), 5, 10, {}),
        (range(20), 5, 10, {"stray": 10}),
        (range(10), 4, None, {"stray": 4}),
        (range(10), 20, None, {"stray": 10}),
        (range(0), 20, None, {}),
        ([*range(10), 7, 7], 0, 7, {"stray": 5}),
        ([*range(10), 6], 0, 7, {"duplicated": 1, "stray": 3}),
        ([*range(SEQUENCE_BLOCK - 2, SEQUENCE_BLOCK + 2)], SEQUENCE_BLOCK - 1, 2, {"stray": 2}),
    ],
)
def test_exactly_the_numbers_that_were_named_are_expected(
    read: Sequence[int], first: int, records: int | None, expected: dict[str, int]
) -> None:
    log = Log()
    log.read = [row(number) for number in read]

    reported = log.check_numbers(records=records, first=first)

    assert faults(reported) == expected
    assert reported.is_clean is (not expected)
    inside = {number for number in read if number >= first and (records is None or number < first + records)}
    assert reported.expected == (len(inside) if records is None else records)
    assert sum(run.found for run in reported.runs) == len(inside)
    lost = {number for each in reported.samples if each.kind is FindingKind.LOST for number in numbers_of(each)}
    assert lost == (set(range(first, first + records)) - inside if records is not None else set())


def test_a_stray_number_is_not_out_of_order_as_well() -> None:
    log = Log()
    log.read = [Row(number, "k") for number in (9, 0, 1, 2)]

    assert faults(log.check_numbers(records=3)) == {"stray": 1}


def numbers_of(sample: Sample) -> range:
    return range(sample.number, sample.number + sample.count)


def test_of_two_runs_each_has_as_many_numbers_as_were_named_even_if_none_of_them_is_there() -> None:
    facts = [
        {**fact(side, row(number), 100 * run + number, number), "content": run, "bucket": run}
        for side in (Side.LOG, Side.SEQUENCE)
        for run, numbers in ((1, range(5)), (2, range(50, 52)))
        for number in numbers
    ]

    reported = verdict(facts, Expectation("sequence", records=5))

    assert faults(reported) == {"lost": 5, "stray": 2}
    assert [(run.first, run.last, run.found, run.expected) for run in reported.runs] == [
        (0, 4, 5, 5),
        (None, None, 0, 5),
    ]
    assert "<td" in html_report(reported, "now")


def test_with_nothing_to_compare_the_verdict_is_of_the_log_alone() -> None:
    log = Log()
    facts = log.facts_read(Side.LOG, -1)
    log.read[501].misplaced = True
    spoilt = [*log.facts_read(Side.LOG, -1), dict(fact(Side.MISSING, row(0), 20, 2), bucket=1)]
    alone = AuditPlan("orders", CONFIG).expectation

    reported, of_spoilt = verdict(facts, alone), verdict(spoilt, alone)

    assert reported.is_clean
    assert str(reported) == "1,000 records read: none misplaced, missing or withheld."
    assert (reported.as_json()["expected"], reported.as_json()["faults"]["stray"], reported.samples) == (None, None, [])
    assert faults(of_spoilt) == {"misplaced": 1, "missing": 2}
    assert str(of_spoilt) == "1,000 records read: 1 misplaced, 2 missing."
    assert {sample.kind for sample in of_spoilt.samples} == {FindingKind.MISPLACED, FindingKind.MISSING}


def test_a_verdict_of_one_kind_of_fault_or_of_none_is_a_sentence_as_well() -> None:
    alone = AuditPlan("orders", CONFIG, checks_partition=False).expectation
    but_missing = replace(alone, unchecked={**alone.unchecked, "withheld": "no broker was reachable"})
    of_librdkafka = {"bootstrap.servers": "localhost:9092", "ssl.keystore.location": "client.p12"}
    nothing = AuditPlan("orders", of_librdkafka, checks_partition=False)

    assert str(verdict([], but_missing)) == "0 records read: none missing."
    assert str(verdict([], nothing.expectation)) == "0 records read: nothing was checked."
    assert (nothing.checks_anything, AuditPlan("orders", of_librdkafka).checks_anything) == (False, True)


def test_a_plan_shows_no_password() -> None:
    secret = {"sasl.password": "canary-secret"}

    assert "canary-secret" not in repr(AuditPlan("orders", {**CONFIG, **secret}, source_options=secret))


def test_offsets_without_a_record_are_faults_only_where_nothing_explains_them() -> None:
    explained = [dict(fact(side, row(0), 10, 4), bucket=1) for side in (Side.CONTROL, Side.ABORTED, Side.UNEXPLAINED)]
    faulty = [dict(fact(side, row(0), 20, 2), bucket=1) for side in (Side.MISSING, Side.WITHHELD)]

    assert verdict(explained).is_clean
    assert faults(verdict(explained + faulty)) == {"missing": 2, "withheld": 2}


def test_findings_are_rows_of_the_columns_that_spark_is_reported() -> None:
    assert findings_batch([]).schema.names == list(FINDING_COLUMNS)


def test_keys_belong_where_another_client_puts_them() -> None:
    keys = [None, b"", *(bytes(range(length)) for length in range(1, 30)), b"\xff" * 70, "käse".encode()]
    array = pa.array([b"before", *keys], pa.binary()).slice(1)

    homes = home_partitions(array, 97).to_pylist()

    assert homes == [None if key is None else (murmur2(key) & 0x7FFFFFFF) % 97 for key in keys]


@pytest.mark.parametrize("keys", [[], [None, None]])
def test_no_keys_belong_nowhere(keys: list[None]) -> None:
    assert home_partitions(pa.array(keys, pa.binary()), 3).to_pylist() == keys


@pytest.mark.parametrize(
    ("column", "complaint"), [("number", "null in the --order column"), ("content", "null in content")]
)
def test_a_null_is_refused_and_does_not_turn_hashes_into_floats(column: str, complaint: str) -> None:
    facts = pa.Table.from_pylist(
        [fact(Side.EXPECTED, row(1), -1, 1), {**fact(Side.EXPECTED, row(2), -1, 2), column: None}]
    )

    with pytest.raises(AuditFailed, match=complaint):
        Facts.of(facts)
