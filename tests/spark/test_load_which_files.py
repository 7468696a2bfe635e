"""A load writes each given file, once and in order, whatever they are called and however they are named."""

from __future__ import annotations

import gzip
import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer.spark.audit.audit import AuditPlan, run_audit
from aioproducer.spark.files.files import FilesRefused, RecordShape, SourceFiles, ValueShape
from aioproducer.spark.load.load import LoadPlan, LoadResult, run_load
from aioproducer.spark.load.state import LoadRefused
from aioproducer.testing import FakeBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ODD = [
    "a b.txt",
    "log[1].txt",
    "log1.txt",
    "c,d.txt",
    "{x}.txt",
    "q?.txt",
    "st*r.txt",
    "b\\s.txt",
    "p%20.txt",
    "ü+#.txt",
]

LINES = RecordShape(ValueShape.RAW)


@pytest.fixture
def topic_broker() -> Generator[FakeBroker, None, None]:
    with FakeBroker(topics={"loaded": 1}) as broker:
        yield broker


Load = Callable[..., LoadResult]


@pytest.fixture(params=["in one job", "exactly once"])
def load(request: pytest.FixtureRequest, spark: SparkSession, topic_broker: FakeBroker, tmp_path: Path) -> Load:
    """Loads files, and audits them."""
    once: Mapping[str, Any] = {"load_name": "load", "checkpoint": tmp_path / "load"}

    def run(paths: Sequence[Path | str], shape: RecordShape = LINES, kind: str | None = None) -> LoadResult:
        servers = {"bootstrap.servers": topic_broker.bootstrap_servers}
        files = SourceFiles.of([str(path) for path in paths], kind, {})
        plan = LoadPlan(files, "loaded", servers, shape, **(once if request.param == "exactly once" else {}))
        result = run_load(spark, plan, ignore_progress)
        verdict = run_audit(spark, AuditPlan("loaded", servers, files, shape), ignore_progress)
        assert verdict.is_clean, verdict
        return result

    return run


def ignore_progress(done: int, of: int, note: str) -> None:
    """The progress that was reported."""


def written(directory: Path, texts: Mapping[str, str], at: int = 1_700_000_000) -> Sequence[Path]:
    """Files with these texts, all of the same time."""
    for name, text in texts.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (at, at))
    return [directory / name for name in texts]


def values(broker: FakeBroker) -> list[str]:
    return [(record.value or b"").decode() for record in broker.records("loaded")]


def test_several_files_are_loaded_and_no_other_one(load: Load, topic_broker: FakeBroker, tmp_path: Path) -> None:
    files = written(tmp_path, {name: f"{name}\n" for name in ("c.txt", "a.txt", "b.txt")})
    written(tmp_path, {"other.txt": "other\n"})

    result = load(files)

    assert result.rows == 3
    assert sorted(values(topic_broker)) == ["a.txt", "b.txt", "c.txt"]


def test_one_file_is_loaded(load: Load, topic_broker: FakeBroker, tmp_path: Path) -> None:
    load(written(tmp_path, {"a.txt": "here\n"}))

    assert values(topic_broker) == ["here"]


def test_a_name_is_no_glob_where_a_file_is_called_so(load: Load, topic_broker: FakeBroker, tmp_path: Path) -> None:
    files = written(tmp_path / "odd, {and} [1]", {name: f"{name}\n" for name in ODD})

    load(files)

    assert sorted(values(topic_broker)) == sorted(ODD)


def test_a_csv_file_is_no_glob_where_its_header_is_looked_for(
    load: Load, topic_broker: FakeBroker, tmp_path: Path
) -> None:
    names = ["log[1].csv", "{x}.csv", "b\\s.csv", "st*r.csv"]
    files = written(tmp_path, dict.fromkeys(names, "id,text\n1,a\n") | {"log1.csv": "other\n1\n", "star.csv": "o\n1\n"})

    load(files[: len(names)], RecordShape())

    assert values(topic_broker) == ['{"id":1,"text":"a"}'] * len(names)


def test_a_name_that_spark_takes_for_a_glob_is_refused_where_nothing_else_finds_the_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    file, _ = written(tmp_path, {"log[1].json": '{"a":\n1}', "log1.json": '{"b":\n1}'})
    options = {"MultiLine": "true"}

    with pytest.raises(FilesRefused, match=r"cannot infer the columns of .*log\[1\].json.*--schema"):
        SourceFiles.of([str(file)], None, options).read(spark)

    rows = SourceFiles.of([str(file)], None, options, "a INT").read(spark)
    assert [row["a"] for row in rows.collect()] == [1]


def test_files_directories_and_globs_may_be_mixed_and_overlap(
    load: Load, topic_broker: FakeBroker, tmp_path: Path
) -> None:
    one, *_ = written(tmp_path / "in", {"1.txt": "1\n", "sub/2.txt": "2\n", "empty.txt": ""})
    written(tmp_path / "more", {"3.txt": "3\n", "4.log": "4\n"})

    load([one, tmp_path / "in", str(tmp_path / "more" / "*.txt")], kind="text")

    assert sorted(values(topic_broker)) == ["1", "2", "3"]


def test_files_of_the_same_time_come_in_the_order_of_their_names(
    load: Load, topic_broker: FakeBroker, tmp_path: Path
) -> None:
    names = [f"{name}.jsonl" for name in "febdca"]
    written(tmp_path / "in", {name: f'{{"file":"{name}","k":"k"}}\n' for name in names})
    written(tmp_path / "in", {"old.jsonl": '{"file":"old","k":"k"}\n'}, at=1_600_000_000)

    load([tmp_path / "in"], RecordShape(key="k"), "json")

    assert [value.split('"')[3] for value in values(topic_broker)] == ["old", *sorted(names)]


@pytest.mark.parametrize("load", ["exactly once"], indirect=True)
def test_only_added_files_are_loaded_however_old_they_are(load: Load, topic_broker: FakeBroker, tmp_path: Path) -> None:
    (first,) = written(tmp_path, {"1.txt": "1\n"}, at=int(time.time()))
    load([first])
    more = written(tmp_path, {"0.txt": "0\n"}, at=int(time.time()) - 40 * 86400)

    result = load([*more, first])

    assert (result.rows, result.is_resumed) == (1, True)
    assert values(topic_broker) == ["1", "0"]


@pytest.mark.parametrize("load", ["exactly once"], indirect=True)
def test_a_file_that_has_grown_is_refused(load: Load, topic_broker: FakeBroker, tmp_path: Path) -> None:
    files = written(tmp_path, {"1.txt": "1\n"})
    load(files)
    written(tmp_path, {"1.txt": "1\n2\n"})

    with pytest.raises(LoadRefused, match=r"1.txt had 2 bytes when it was loaded, and has 4 now"):
        load(files)

    assert values(topic_broker) == ["1"]


@pytest.mark.parametrize("path", ["nothing.txt", "*.txt"])
def test_a_path_without_a_file_is_refused(load: Load, tmp_path: Path, path: str) -> None:
    with pytest.raises(FilesRefused, match="There is no file "):
        load([tmp_path / path])


def test_files_without_anything_in_them_are_refused(load: Load, tmp_path: Path) -> None:
    with pytest.raises(FilesRefused, match="All files are empty"):
        load(written(tmp_path, {"1.txt": ""}))


@pytest.mark.parametrize("name", ["_part1.txt", ".part1.txt"])
def test_a_hidden_file_that_is_named_is_refused(load: Load, tmp_path: Path, name: str) -> None:
    files = written(tmp_path, {name: "hidden\n", "part2.txt": "there\n"})

    with pytest.raises(FilesRefused, match=f"{name} would not be read"):
        load(files)


def test_hidden_files_in_a_directory_and_empty_ones_are_left_out(
    load: Load, topic_broker: FakeBroker, tmp_path: Path
) -> None:
    written(tmp_path / "in", {"1.txt": "1\n", "_temporary/2.txt": "2\n", ".3.txt": "3\n", "_SUCCESS": ""})

    load([tmp_path / "in", tmp_path / "in" / "_SUCCESS", tmp_path / "in" / "*.txt"], kind="text")

    assert values(topic_broker) == ["1"]


@pytest.mark.parametrize("name", ["a.txt.xz", "a.txt.lzo", "a.zip", "a.tar.gz", "a.tgz"])
def test_a_compression_that_spark_does_not_know_is_refused(load: Load, tmp_path: Path, name: str) -> None:
    with pytest.raises(FilesRefused, match=f"{name} has a compression that Spark does not support"):
        load(written(tmp_path, {name: "not a line\n"}), kind="text")


def test_parquet_files_may_have_different_columns(
    load: Load, spark: SparkSession, topic_broker: FakeBroker, tmp_path: Path
) -> None:
    spark.sql("SELECT 1 id, 'x' a").coalesce(1).write.parquet(str(tmp_path / "1"))
    spark.sql("SELECT 2 id, 'y' extra").coalesce(1).write.parquet(str(tmp_path / "2"))

    load([tmp_path / "1", tmp_path / "2"], RecordShape(), "parquet")

    assert sorted(values(topic_broker)) == ['{"id":1,"a":"x","extra":null}', '{"id":2,"a":null,"extra":"y"}']


def test_directories_named_as_columns_are_columns_however_they_are_named(
    load: Load, topic_broker: FakeBroker, tmp_path: Path
) -> None:
    texts = {f"year={year}/month=0{month}/a.jsonl": '{"n":1}\n' for year, month in ((2013, 1), (2014, 2))}
    one, other = written(tmp_path, texts)

    load([one, other.parent], RecordShape(), "json")

    expected = [f'{{"n":1,"year":{year},"month":"0{month}"}}' for year, month in ((2013, 1), (2014, 2))]
    assert sorted(values(topic_broker)) == expected


def test_files_of_which_only_some_have_such_columns_are_refused(load: Load, tmp_path: Path) -> None:
    written(tmp_path / "in", {"year=2013/a.txt": "1\n", "b.txt": "2\n"})

    with pytest.raises(FilesRefused, match=r"has year below .*, but .* has none"):
        load([tmp_path / "in"], kind="text")


@pytest.mark.parametrize("load", ["exactly once"], indirect=True)
def test_a_file_that_is_added_with_another_column_is_refused(load: Load, tmp_path: Path) -> None:
    written(tmp_path / "in", {"1.jsonl": '{"n":1,"o":[{"a":1}]}\n'})
    load([tmp_path / "in"], RecordShape(), "json")
    written(tmp_path / "in", {"2.jsonl": '{"n":1,"o":[{"b":1}]}\n'})

    with pytest.raises(FilesRefused, match=r"have the column o\.b, which the load did not have when it began"):
        load([tmp_path / "in"], RecordShape(), "json")


def test_text_that_is_compressed_is_loaded(load: Load, topic_broker: FakeBroker, tmp_path: Path) -> None:
    (tmp_path / "a.txt.GZ").write_bytes(gzip.compress(b"1\n2\n"))

    load([tmp_path / "a.txt.GZ"])

    assert values(topic_broker) == ["1", "2"]


@pytest.mark.parametrize("load", ["exactly once"], indirect=True)
def test_a_file_without_a_row_is_no_end_of_the_load(load: Load, topic_broker: FakeBroker, tmp_path: Path) -> None:
    files = [*written(tmp_path, {"1.jsonl": '{"n":1}\n'}), *written(tmp_path, {"2.jsonl": "\n"}, at=1_700_000_001)]

    first = load(files, RecordShape())
    again = load(files, RecordShape())

    assert (first.rows, first.transactions, again.transactions) == (1, 2, 0)
    assert values(topic_broker) == ['{"n":1}']
