"""A load makes of rows the records that an audit expects, remembers what it is, and refuses to become another one."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from aioproducer.errors import ConfigError, KafkaTimeoutError
from aioproducer.spark.files.files import FileFormat, FilesRefused, SourceFiles
from aioproducer.spark.files.listing import FoundFile, escaped, partition_base
from aioproducer.spark.load.load import LoadPlan, LoadResult
from aioproducer.spark.load.log import LoadLog
from aioproducer.spark.load.state import LoadRefused, LoadState
from aioproducer.spark.session.errors import cause_of

SCHEMA = {"type": "struct", "fields": []}


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["a.parquet"], FileFormat.PARQUET),
        (["a.csv", "b.csv.gz"], FileFormat.CSV),
        (["a.jsonl", "b.JSON"], FileFormat.JSON),
        (["day/*.csv"], FileFormat.CSV),
        (["notes.2013.txt.bz2"], FileFormat.TEXT),
    ],
)
def test_the_names_of_files_tell_their_format(paths: list[str], expected: FileFormat) -> None:
    assert SourceFiles.of(paths, None, {}).format is expected


@pytest.mark.parametrize("paths", [["a"], ["a.csv", "a.json"], ["a.gz"], ["directory/"]])
def test_names_that_do_not_tell_it_need_the_option(paths: list[str]) -> None:
    with pytest.raises(FilesRefused, match=r"--format parquet\|csv\|json\|text"):
        SourceFiles.of(paths, None, {})

    assert SourceFiles.of(paths, "text", {}).format is FileFormat.TEXT


def test_options_of_the_reader_replace_the_defaults() -> None:
    files = SourceFiles.of(["a.csv"], None, {"HEADER": "false", "nullValue": "NA"})

    defaults = {"escape": '"', "multiLine": "true", "enforceSchema": "false", "mode": "FAILFAST"}
    assert files.options == {**defaults, "HEADER": "false", "nullValue": "NA"}


def test_a_load_that_goes_on_has_the_id_and_the_schema_with_which_it_began(tmp_path: Path) -> None:
    directory = tmp_path / "of" / "load"
    what = {"topic": "flights", "key": None}

    begun = LoadState.open(directory, what, lambda: SCHEMA)
    goes_on = LoadState.open(directory, what, lambda: pytest.fail("the files need not be looked at again"))

    assert (begun.is_new, goes_on.is_new) == (True, False)
    assert (goes_on.load_id, goes_on.schema) == (begun.load_id, SCHEMA)


def test_another_load_does_not_get_its_checkpoint(tmp_path: Path) -> None:
    LoadState.open(tmp_path, {"topic": "flights", "key": "tailnum"}, lambda: SCHEMA)

    with pytest.raises(LoadRefused, match="belongs to a load with key 'tailnum', not 'carrier'"):
        LoadState.open(tmp_path, {"topic": "flights", "key": "carrier"}, lambda: SCHEMA)


def test_a_checkpoint_that_cannot_be_read_or_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "load.json").write_text("{")
    (tmp_path / "file").write_text("")

    with pytest.raises(LoadRefused, match="was not written by a load of this version"):
        LoadState.open(tmp_path, {}, lambda: SCHEMA)
    with pytest.raises(LoadRefused, match="Could not use"):
        LoadState.open(tmp_path / "file" / "below", {}, lambda: SCHEMA)


def test_no_half_of_the_state_is_left_where_the_schema_cannot_be_had(tmp_path: Path) -> None:
    for refusal in (FilesRefused("no column"), ConfigError("no name for Avro"), KafkaTimeoutError("no answer")):
        with pytest.raises(type(refusal)) as caught:
            LoadState.open(tmp_path / "new", {}, partial(_refuse, refusal))
        assert caught.value is refusal, "it is reported unchanged, and not as a trouble of the directory"

    assert not (tmp_path / "new" / "load.json").exists()


def _refuse(refusal: Exception) -> dict[str, object]:
    raise refusal


def test_the_sink_is_given_the_guarantee_and_every_option_of_the_producer() -> None:
    files = SourceFiles.of(["a.csv"], None, {})
    producer = {"bootstrap.servers": "kafka:9092", "compression.type": "zstd"}

    assert LoadPlan(files, "t", producer).sink_options() == {
        "kafka.bootstrap.servers": "kafka:9092",
        "kafka.compression.type": "zstd",
        "topic": "t",
    }
    exactly_once = LoadPlan(files, "t", producer, load_name="flights").sink_options()
    assert exactly_once["transactional.id"] == "flights"
    assert exactly_once["delivery.guarantee"] == "exactly-once"


def test_a_result_can_be_reported_as_json() -> None:
    result = LoadResult(rows=1000, size=5, transactions=2, seconds=4.0).as_json()

    assert json.loads(json.dumps(result))["rows_per_second"] == 250
    assert LoadResult().as_json()["rows_per_second"] == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Job aborted.\n  File x\naioproducer.errors.BrokerError: No.\n\tat org.apache.spark.Task\n", "No."),
        ("aioproducer.errors.A: first\n\naioproducer.spark.b.B: then: this", "then: this"),
        ("[PATH_NOT_FOUND] Path does not exist\nmore", "[PATH_NOT_FOUND] Path does not exist"),
        (
            "In the worker:\nTraceback (most recent call last):\n  File x\npyarrow.lib.ArrowInvalid: No.",
            "ArrowInvalid: No.",
        ),
        ("In the worker:\nTraceback (most recent call last):\n  File x\nValueError: No.", "ValueError: No."),
        ("In the worker:\nTraceback (most recent call last):\n  File x\nAssertionError\n", "AssertionError"),
        ("java.lang.X: Traceback (most recent call last):\n  File x\nValueError: No.\n\n\tat org.Y", "ValueError: No."),
        (
            "An error occurred while calling o1.count.\n: java.ExecutionException: org.kafka.TimeoutException: Gone.\n"
            "\tat java.base/java.util.X\nCaused by: org.kafka.TimeoutException: Gone.\n\tat org.apache.Y",
            "TimeoutException: Gone.",
        ),
        ("", "ValueError"),
    ],
)
def test_of_what_spark_raises_our_own_sentence_is_reported_or_what_began_it_all(text: str, expected: str) -> None:
    assert cause_of(ValueError(text)) == expected


def found(path: str, size: int = 1) -> FoundFile:
    return FoundFile(0, path, path, size)


def test_a_load_that_was_killed_has_the_same_files_in_the_same_slices_again(tmp_path: Path) -> None:
    with LoadLog.open(tmp_path) as log:
        log.commit(log.plan([found("a"), found("b")]))
        log.plan([found("c")])
    with (tmp_path / "slices.jsonl").open("ab") as file:
        file.write(b'{"slice": 2, "fil')

    with LoadLog.open(tmp_path) as log:
        log.plan([found("d")])
    with LoadLog.open(tmp_path) as log:
        kept = [(each.number, [file.path for file in each.files], each.is_committed) for each in log.slices]

    assert kept == [(0, ["a", "b"], True), (1, ["c"], False), (2, ["d"], False)]
    assert LoadLog.committed(tmp_path) == 1


def test_the_files_of_a_slice_that_was_given_up_are_new_again(tmp_path: Path) -> None:
    with LoadLog.open(tmp_path) as log:
        log.commit(log.plan([found("a")]))
        log.give_up(log.plan([found("b"), found("c")]))

    with LoadLog.open(tmp_path) as log:
        assert [each.number for each in log.slices if each.is_open] == []
        assert set(log.files) == {"a"}
        assert log.plan([found("c", size=2)]).number == 2


def test_two_loads_at_once_do_not_share_a_checkpoint(tmp_path: Path) -> None:
    with (
        LoadLog.open(tmp_path),
        pytest.raises(LoadRefused, match="Another load is using the checkpoint"),
        LoadLog.open(tmp_path),
    ):
        pass


def test_slices_that_cannot_be_read_are_reported(tmp_path: Path) -> None:
    (tmp_path / "slices.jsonl").write_text('{"committed": 3}\n')

    with pytest.raises(LoadRefused, match="was not written by a load"), LoadLog.open(tmp_path):
        pass


def test_a_path_can_be_reported_so_that_it_is_no_glob() -> None:
    assert escaped("file:/a b/log[1]{x}*?.txt") == r"file:/a b/log\[1\]\{x\}\*\?.txt"


def test_directories_that_are_columns_are_found_from_the_file_upwards() -> None:
    assert partition_base([found("file:/in=1/d/f.csv")]) is None
    assert partition_base([found("file:/d/y=1/m=2/f"), found("file:/d/y=1/m=3/f")]) == "file:/d"
    with pytest.raises(FilesRefused, match="has y below file:/d, but file:/d/g has none"):
        partition_base([found("file:/d/y=1/f"), found("file:/d/g")])
    with pytest.raises(FilesRefused, match="y below file:/e, but file:/d/y=1/f has y below file:/d"):
        partition_base([found("file:/d/y=1/f"), found("file:/e/y=1/f")])
