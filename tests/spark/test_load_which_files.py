"""A load writes each file that it is told of, once and in order, whatever they are called and however they are named."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer.spark.audit import AuditPlan, run_audit
from aioproducer.spark.load import LoadPlan, LoadResult, run_load
from aioproducer.spark.load_files import FilesRefused, RecordShape, SourceFiles, ValueShape
from aioproducer.spark.load_state import LoadRefused
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
        result = run_load(spark, plan, nobody)
        verdict = run_audit(spark, AuditPlan("loaded", servers, files, shape), nobody)
        assert verdict.is_clean, verdict
        return result

    return run


def nobody(done: int, of: int, note: str) -> None:
    """Who is told of the progress."""


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
def test_what_is_added_is_loaded_and_nothing_else_however_old_it_is(
    load: Load, topic_broker: FakeBroker, tmp_path: Path
) -> None:
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
    with pytest.raises(FilesRefused, match="There is no file with something in it"):
        load(written(tmp_path, {"1.txt": ""}))
