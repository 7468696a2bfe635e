"""compare() passes a faithful log, and reports each single fault."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from aiokafka.partitioner import murmur2  # type: ignore[import-untyped]

from aioproducer.cli.verdict import Content, Fault, Place, ReadRecord, Verdict, compare

PARTITIONS = 3


def partition_of(key: bytes) -> int:
    return int(murmur2(key) & 0x7FFFFFFF) % PARTITIONS


def content(number: int) -> Content:
    key = None if number % 7 == 0 else f"N{number % 11}".encode()
    return Content(
        key, f'{{"id":{number}}}'.encode(), (("carrier", b"UA"), ("origin", b"EWR")), 1_357_034_400_000 + number
    )


class Run:
    """A hundred records, written and read back without a flaw; tests then spoil the log."""

    def __init__(self) -> None:
        self.sent = [content(number) for number in range(100)]
        self.acknowledged: list[Place] = []
        self.log: list[ReadRecord] = []
        ends = [0] * PARTITIONS
        for number, record in enumerate(self.sent):
            partition = number % PARTITIONS if record.key is None else partition_of(record.key)
            self.acknowledged.append(Place(partition, ends[partition]))
            self.log.append(ReadRecord(partition, ends[partition], record))
            ends[partition] += 1

    def compare(self, partition_of: Callable[[bytes], int] | None = partition_of) -> Verdict:
        return compare(self.sent, self.acknowledged, self.log, partition_of)

    def of_partition(self, partition: int) -> Sequence[int]:
        return [at for at, record in enumerate(self.log) if record.partition == partition]

    def spoil(self, at: int, **changes: object) -> None:
        self.log[at] = self.log[at]._replace(content=self.log[at].content._replace(**changes))  # type: ignore[arg-type]


def test_a_log_that_holds_what_was_acknowledged_is_good() -> None:
    verdict = Run().compare()

    assert verdict.is_good
    assert verdict.examples == []
    assert "none lost, duplicated, reordered, altered or misplaced" in str(verdict)
    assert (verdict.acknowledged, verdict.read, verdict.partitions, verdict.keys) == (100, 100, 3, 11)


def test_how_the_partitions_mix_while_reading_does_not_matter() -> None:
    run = Run()
    run.log.sort(key=lambda record: (-record.partition, record.offset))

    assert run.compare().is_good


def test_an_offset_that_the_broker_did_not_tell_is_no_fault() -> None:
    run = Run()
    run.acknowledged[5] = run.acknowledged[5]._replace(offset=-1)

    assert run.compare().is_good


def lose(run: Run) -> None:
    del run.log[50]


def duplicate(run: Run) -> None:
    copy = run.log[50]
    run.log.append(copy._replace(offset=len(run.of_partition(copy.partition))))


def swap(run: Run) -> None:
    one, other = run.of_partition(1)[4:6]
    first, second = run.log[one], run.log[other]
    run.log[one] = first._replace(content=second.content)
    run.log[other] = second._replace(content=first.content)


def alter_the_value(run: Run) -> None:
    run.spoil(50, value=b'{"id":50 }')


def empty_the_value(run: Run) -> None:
    run.spoil(50, value=None)


def alter_the_key(run: Run) -> None:
    run.spoil(50, key=b"N999")


def drop_the_key(run: Run) -> None:
    run.spoil(50, key=None)


def alter_a_header(run: Run) -> None:
    run.spoil(50, headers=(("carrier", b"AA"), ("origin", b"EWR")))


def swap_the_headers(run: Run) -> None:
    run.spoil(50, headers=(("origin", b"EWR"), ("carrier", b"UA")))


def drop_the_headers(run: Run) -> None:
    run.spoil(50, headers=())


def alter_the_timestamp(run: Run) -> None:
    run.spoil(50, timestamp_ms=1_357_034_400_000)


def move_to_another_partition(run: Run) -> None:
    moved = run.log.pop(50)
    partition = (moved.partition + 1) % PARTITIONS
    run.log.append(ReadRecord(partition, len(run.of_partition(partition)), moved.content))


def put_a_key_where_it_does_not_belong(run: Run) -> None:
    """Producer and broker agree about the partition, and both are wrong."""
    move_to_another_partition(run)
    run.acknowledged[50] = run.log[-1].place


def shift_an_offset(run: Run) -> None:
    last = run.of_partition(2)[-1]
    run.log[last] = run.log[last]._replace(offset=run.log[last].offset + 1)


def add_a_stranger(run: Run) -> None:
    run.log.append(ReadRecord(0, len(run.of_partition(0)), content(1000)))


@pytest.mark.parametrize(
    ("sabotage", "expected"),
    [
        (lose, {Fault.LOST: 1}),
        (duplicate, {Fault.DUPLICATED: 1}),
        (swap, {Fault.MISPLACED: 2, Fault.REORDERED: 1}),
        (alter_the_value, {Fault.ALTERED: 1}),
        (empty_the_value, {Fault.ALTERED: 1}),
        (alter_the_key, {Fault.ALTERED: 1}),
        (drop_the_key, {Fault.ALTERED: 1}),
        (alter_a_header, {Fault.ALTERED: 1}),
        (swap_the_headers, {Fault.ALTERED: 1}),
        (drop_the_headers, {Fault.ALTERED: 1}),
        (alter_the_timestamp, {Fault.ALTERED: 1}),
        (move_to_another_partition, {Fault.MISPLACED: 1, Fault.REORDERED: 1}),
        (put_a_key_where_it_does_not_belong, {Fault.MISPLACED: 1, Fault.REORDERED: 1}),
        (shift_an_offset, {Fault.MISPLACED: 1}),
        (add_a_stranger, {Fault.STRAY: 1}),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_compare_reports(sabotage: Callable[[Run], None], expected: dict[Fault, int]) -> None:
    run = Run()
    sabotage(run)

    verdict = run.compare()

    assert not verdict.is_good
    assert dict(verdict.counts) == expected
    assert len(verdict.examples) == sum(expected.values())
    assert all(f"{count} {fault}" in str(verdict) for fault, count in expected.items())


def test_without_an_opinion_of_partitions_a_key_still_has_to_stay_in_one() -> None:
    run = Run()
    put_a_key_where_it_does_not_belong(run)

    verdict = run.compare(partition_of=None)

    assert verdict.counts[Fault.MISPLACED] == 1
    assert "its key belongs to partition" in verdict.examples[0]


def test_a_producer_that_sends_all_keys_elsewhere_is_detected_by_an_independent_opinion() -> None:
    run = Run()
    keyed = sum(record.content.key is not None for record in run.log)

    verdict = run.compare(lambda key: (partition_of(key) + 1) % PARTITIONS)

    assert verdict.counts[Fault.MISPLACED] == keyed


def test_a_shuffled_partition_is_reordered_at_every_record_that_a_later_one_overtook() -> None:
    run = Run()
    in_partition = run.of_partition(0)
    numbers = list(in_partition)
    random.Random(1).shuffle(numbers)
    contents = [run.log[number].content for number in numbers]
    for at, moved in zip(in_partition, contents, strict=True):
        run.log[at] = run.log[at]._replace(content=moved)
    overtaken = sum(number < max(numbers[: place + 1]) for place, number in enumerate(numbers))

    assert run.compare().counts[Fault.REORDERED] == overtaken


def test_only_some_of_many_equal_faults_are_reported_in_words() -> None:
    run = Run()
    run.log.clear()

    verdict = run.compare()

    assert verdict.counts[Fault.LOST] == 100
    assert len(verdict.examples) == 3
    assert verdict.examples[1].startswith("Record 1 (key b'N1'), acknowledged at partition ")


def test_an_empty_log_of_nothing_sent_is_good() -> None:
    assert compare([], [], []).is_good


def test_records_that_cannot_be_distinguished_are_refused() -> None:
    with pytest.raises(ValueError, match="no two records may be equal"):
        compare([content(1), content(1)], [Place(0, 0), Place(0, 1)], [])


def test_a_record_without_a_place_is_refused() -> None:
    with pytest.raises(ValueError, match="Each record needs a place"):
        compare([content(1)], [], [])
