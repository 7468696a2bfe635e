"""The hashes of rows: the same in both implementations, and another one for other rows, but not for another order."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from aioproducer._twin import use_native
from aioproducer.spark.exactly_once import _row_hashes_pure

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

TWINS: list[ModuleType] = [_row_hashes_pure]
if use_native("aioproducer.spark.exactly_once._row_hashes"):
    from aioproducer.spark.exactly_once import _row_hashes

    TWINS.append(_row_hashes)


@pytest.fixture(params=TWINS, ids=lambda module: module.__name__.rpartition(".")[2])
def twin(request: pytest.FixtureRequest) -> ModuleType:
    module: ModuleType = request.param
    return module


def total(twin: ModuleType, *columns: Any, seed: int = 0) -> int:
    found: int = twin.sum_of_hashes(columns, len(columns[0]), seed)
    return found


@pytest.mark.parametrize("length", [0, 1, 3, 4, 7, 8, 11, 31, 32, 33, 63, 64, 100, 1000])
@pytest.mark.parametrize("seed", [0, 1, 2**63 + 11])
def test_the_hash_of_one_value_is_xxh64(twin: ModuleType, length: int, seed: int) -> None:
    value = random.Random(length).randbytes(length)

    assert total(twin, pa.array([value], pa.binary()), seed=seed) == xxhash.xxh64_intdigest(value, seed)


def test_the_published_vectors(twin: ModuleType) -> None:
    """Of the specification's reference implementation."""
    assert total(twin, pa.array([b""], pa.binary())) == 0xEF46DB3751D8E999
    assert total(twin, pa.array([b"a"], pa.binary())) == 0xD24EC4F1A98C6E5B
    assert total(twin, pa.array([b"abc"], pa.binary())) == 0x44BC2CF5AD770999


def test_another_order_and_other_slices_have_the_same_sum(twin: ModuleType) -> None:
    rows = [(f"key{number % 7}", f"value {number}") for number in range(100)]
    shuffled = random.Random(1).sample(rows, len(rows))

    def columns(part: Sequence[tuple[str, str]]) -> list[Any]:
        return [pa.array([row[index] for row in part], pa.string()) for index in range(2)]

    whole = total(twin, *columns(rows))

    assert total(twin, *columns(shuffled)) == whole
    assert (total(twin, *columns(rows[:33])) + total(twin, *columns(rows[33:]))) % 2**64 == whole


def alone(kind: Any, *values: object) -> list[Any]:
    return [pa.array(values, kind)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (alone(pa.string(), "a1", "b2"), alone(pa.string(), "a2", "b1")),
        (alone(pa.string(), "ab", ""), alone(pa.string(), "a", "b")),
        (alone(pa.string(), ""), alone(pa.string(), None)),
        (alone(pa.string(), "a", "a"), alone(pa.string(), "a")),
        (alone(pa.string(), "a", "a"), alone(pa.string(), "b", "b")),
        (alone(pa.string(), "1", "5", "6"), alone(pa.string(), "2", "3", "7")),
        (alone(pa.int64(), 0), alone(pa.int64(), None)),
        (alone(pa.int64(), 1, 2), alone(pa.int64(), 0, 3)),
        (alone(HEADERS, [("a", b"b")]), alone(HEADERS, [("ab", b"")])),
        (alone(HEADERS, []), alone(HEADERS, None)),
        (alone(HEADERS, [("a", b""), ("b", b"")]), alone(HEADERS, [("b", b""), ("a", b"")])),
        (alone(pa.string(), "k") + alone(pa.string(), None), alone(pa.string(), None) + alone(pa.string(), "k")),
        (alone(pa.string(), "ab") + alone(pa.string(), "c"), alone(pa.string(), "a") + alone(pa.string(), "bc")),
    ],
)
def test_other_rows_have_another_sum(twin: ModuleType, one: list[Any], other: list[Any]) -> None:
    assert total(twin, *one) != total(twin, *other)


def test_one_changed_byte_among_many_rows_changes_the_sum(twin: ModuleType) -> None:
    values = [b"%060d" % number for number in range(1000)]
    whole = total(twin, pa.array(values, pa.binary()))

    for at, bit in itertools.product((0, 499, 999), (0, 30, 59)):
        changed = bytearray(values[at])
        changed[bit] ^= 1
        assert total(twin, pa.array([*values[:at], bytes(changed), *values[at + 1 :]], pa.binary())) != whole


@pytest.mark.skipif(len(TWINS) < 2, reason="the native module was not built")
class TestTheTwinsAgree:
    """The same sum for whatever Spark may hand over."""

    @staticmethod
    def check(build: Callable[[], list[Any]], skipped: int, seed: int) -> None:
        columns = [column.slice(min(skipped, len(column))) for column in build()]
        assert len({total(each, *columns, seed=seed) for each in TWINS}) == 1

    @given(
        rows=st.lists(
            st.tuples(
                st.none() | st.binary(max_size=80),
                st.none() | st.text(max_size=20),
                st.none() | st.integers(-(2**63), 2**63 - 1),
                st.none() | st.floats(),
                st.none() | st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=4),
            ),
            max_size=20,
        ),
        skipped=st.integers(0, 5),
        seed=st.integers(0, 2**64 - 1),
        large=st.booleans(),
    )
    def test_of_all_kinds_of_columns(self, rows: list[Any], skipped: int, seed: int, large: bool) -> None:
        columns = list(zip(*rows, strict=True)) or [()] * 5
        pairs = [(None if each is None else list(each)) for each in columns[4]]

        def build() -> list[Any]:
            return [
                pa.array(columns[0], pa.large_binary() if large else pa.binary()),
                pa.array(columns[1], pa.large_string() if large else pa.string()),
                pa.array(columns[2], pa.int64()),
                pa.array(columns[2], pa.timestamp("us", "UTC")),
                pa.array(columns[3], pa.float64()),
                pa.array(pairs, HEADERS),
                pa.array(pairs, pa.map_(pa.string(), pa.binary())),
            ]

        self.check(build, skipped, seed)

    @given(values=st.lists(st.binary(min_size=3, max_size=3)), skipped=st.integers(0, 3))
    def test_of_types_that_are_cast(self, values: list[bytes], skipped: int) -> None:
        self.check(lambda: [pa.array(values, pa.binary(3)), pa.array(values, pa.binary_view())], skipped, 0)

    def test_of_headers_within_a_sliced_list(self) -> None:
        pairs = [[("a", b"1")], None, [("b", None), ("c", b"3")], []]
        for skipped in range(4):
            self.check(lambda: [pa.array(pairs, HEADERS)], skipped, 5)
