"""CSV files are read as RFC 4180 has them, and every value is written as it stands in the file."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer.spark.audit.audit import AuditPlan, run_audit
from aioproducer.spark.files.files import FilesRefused, SourceFiles
from aioproducer.spark.load.load import LoadFailed, LoadPlan, run_load
from aioproducer.testing import FakeBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def topic_broker() -> Generator[FakeBroker, None, None]:
    with FakeBroker(topics={"loaded": 1}) as broker:
        yield broker


def ignore_progress(done: int, of: int, note: str) -> None:
    """The progress that was reported."""


class Loader:
    """Loads files of these texts, and has each load audited."""

    def __init__(self, spark: SparkSession, broker: FakeBroker, directory: Path) -> None:
        self._spark = spark
        self._broker = broker
        self._directory = directory

    def values(
        self, *texts: str, options: Mapping[str, str] | None = None, schema: str | None = None, once: bool = False
    ) -> Sequence[Any]:
        """Values that are in the topic when these files, and those before, are loaded."""
        paths = [self._directory / f"{number}.csv" for number in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_bytes(text.encode())
        files = SourceFiles.of([str(path) for path in paths], None, options or {}, schema)
        servers = {"bootstrap.servers": self._broker.bootstrap_servers}
        how: Mapping[str, Any] = {"load_name": "load", "checkpoint": self._directory / "load"} if once else {}
        run_load(self._spark, LoadPlan(files, "loaded", servers, **how), ignore_progress)
        verdict = run_audit(self._spark, AuditPlan("loaded", servers, files), ignore_progress)
        assert verdict.is_clean, verdict
        return [json.loads(record.value or b"") for record in self._broker.records("loaded")]


@pytest.fixture
def loader(spark: SparkSession, topic_broker: FakeBroker, tmp_path: Path) -> Loader:
    return Loader(spark, topic_broker, tmp_path)


def test_quotes_are_doubled_and_commas_and_line_breaks_may_be_quoted(loader: Loader) -> None:
    text = 'id,text\r\n1,"He said ""hi"""\r\n2,"a ""b"", c"\r\n3,"two\r\nlines"\r\n4,back\\slash\r\n'

    reported = loader.values(text)

    assert reported == [
        {"id": 1, "text": 'He said "hi"'},
        {"id": 2, "text": 'a "b", c'},
        {"id": 3, "text": "two\nlines"},  # Spark's parser makes one character of a line break
        {"id": 4, "text": "back\\slash"},
    ]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "-20", ""], [1, -20, None]),
        (["1", "12345678901"], [1, 12345678901]),
        (["01234", "5"], ["01234", "5"]),
        (["+49", "5"], ["+49", "5"]),
        (["-0", "5"], ["-0", "5"]),
        (["1e5"], ["1e5"]),
        (["1.5", "-0.25"], [1.5, -0.25]),
        (["1.10", "1.9"], ["1.10", "1.9"]),
        (["1", "2.5"], ["1", "2.5"]),
        (["12345678901234567890123"], ["12345678901234567890123"]),
        (["0.1234567890123456789"], ["0.1234567890123456789"]),
        (["NaN"], ["NaN"]),
        (["1d", "2f"], ["1d", "2f"]),
        (["true", "false"], [True, False]),
        (["True", "t"], ["True", "t"]),
        (["2013-01-01"], ["2013-01-01"]),
        (["2013-1-1", "2013"], ["2013-1-1", "2013"]),
        (["2013-01-01T10:00:00Z"], ["2013-01-01T10:00:00Z"]),
        ([" 1", "2 "], [" 1", "2 "]),
    ],
    ids=lambda values: str(values[0]),
)
def test_a_column_is_a_number_only_where_each_value_would_be_written_as_it_stands(
    loader: Loader, values: Sequence[str], expected: Sequence[Any]
) -> None:
    reported = loader.values("x,last\n" + "".join(f"{value},z\n" for value in values))

    assert [value["x"] for value in reported] == expected


def test_types_of_sparks_own_choice_can_be_asked_for(loader: Loader) -> None:
    assert loader.values("zip,n\n01234,1e5\n", options={"inferSchema": "true"}) == [{"zip": 1234, "n": 100000.0}]


def test_all_columns_can_be_text(loader: Loader) -> None:
    assert loader.values("zip,n\n1234,5\n", options={"inferschema": "false"}) == [{"zip": "1234", "n": "5"}]


@pytest.mark.parametrize("schema", [None, "first STRING, last STRING"], ids=["inferred", "given"])
def test_files_whose_headers_differ_are_refused(loader: Loader, topic_broker: FakeBroker, schema: str | None) -> None:
    with pytest.raises((FilesRefused, LoadFailed), match="all CSV files have the expected header"):
        loader.values("first,last\nAda,Lovelace\n", "last,first\nTuring,Alan\n", schema=schema)

    assert topic_broker.records("loaded") == []


def test_headers_are_ignored_if_enforce_schema_is_set(loader: Loader) -> None:
    reported = loader.values("a,b\n1,2\n", schema="x INT, y INT", options={"enforceSchema": "true"})

    assert reported == [{"x": 1, "y": 2}]


@pytest.mark.parametrize(("header", "names"), [("a,a", ["a0", "a1"]), (",x", ["_c0", "x"])], ids=["repeated", "blank"])
def test_repeated_or_blank_headers_are_accepted_only_if_enforce_schema_is_set(
    loader: Loader, header: str, names: Sequence[str]
) -> None:
    with pytest.raises(FilesRefused, match="or a name is blank or appears twice"):
        loader.values(f"{header}\n1,2\n")

    reported = loader.values(f"{header}\n1,2\n", options={"enforceSchema": "true"})

    assert reported == [dict(zip(names, (1, 2), strict=True))]


def test_added_files_have_to_fit_the_types_with_which_the_load_began(loader: Loader, topic_broker: FakeBroker) -> None:
    loader.values("zip,n\n1234,5\n", once=True)
    loader.values("zip,n\n1234,5\n", "zip,n\n777,\n", once=True)

    with pytest.raises(FilesRefused, match=r"zip had type int, .* would be written differently"):
        loader.values("zip,n\n1234,5\n", "zip,n\n777,\n", "zip,n\n01234,5\n", once=True)
    with pytest.raises(FilesRefused, match="all CSV files have the expected header"):
        loader.values("zip,n\n1234,5\n", "zip,n\n777,\n", "n,zip\n5,1234\n", once=True)

    assert len(topic_broker.records("loaded")) == 2


def test_bytes_that_are_no_utf_8_stop_a_load_and_are_not_written_as_something_else(
    spark: SparkSession, topic_broker: FakeBroker, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("id,text\n1,Gruß\n2,Größe\n".encode("latin-1"))
    servers = {"bootstrap.servers": topic_broker.bootstrap_servers}

    def load(options: Mapping[str, str], schema: str | None = None) -> None:
        run_load(
            spark, LoadPlan(SourceFiles.of([str(path)], None, options, schema), "loaded", servers), lambda *_: None
        )

    why = r"A value of the column 'text' in file:.*/a.csv is not valid UTF-8;.*-R encoding=ISO-8859-1"
    for schema in (None, "id INT, text STRING"):
        with pytest.raises(LoadFailed, match=why):
            load({}, schema)
    named = tmp_path / "named.csv"
    named.write_bytes("größe\n1\n".encode("latin-1"))
    with pytest.raises(FilesRefused, match=r"The name of the column 'gr.*' is not valid UTF-8"):
        SourceFiles.of([str(named)], None, {}).read(spark)
    assert not topic_broker.records("loaded")

    load({"Encoding": "ISO-8859-1"})
    result = [json.loads(record.value or b"")["text"] for record in topic_broker.records("loaded")]
    assert result == ["Gruß", "Größe"]

    path.write_text("id,text\n1,\ufffd\n", encoding="utf-8")  # it is the one character that stands there
    load({"encoding": "UTF-8"})
    assert "\ufffd" in (topic_broker.records("loaded")[-1].value or b"").decode()
