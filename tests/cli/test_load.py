"""The verb load as the shell sees it: what it refuses before Spark is started."""

from __future__ import annotations

import sys

import pytest

from aioproducer.cli.main import main

TARGET = ["rows.csv", "--topic", "orders", "--bootstrap-servers", "127.0.0.1:1"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["load"], "FILE"),
        (["load", "rows.csv"], "--topic"),
        (["load", *TARGET, "--max-files", "0"], "not a number from 1"),
        (["load", *TARGET, "-R", "header"], "not NAME=VALUE"),
        (["load", *TARGET, "--value-format", "avro"], "avro"),
    ],
)
def test_wrong_usage_exits_with_2_and_says_why(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)

    assert exit_.value.code == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--exactly-once"], "needs --id NAME"),
        (["--id", "flights"], "belong to --exactly-once"),
        (["--checkpoint", "here"], "belong to --exactly-once"),
        (["-X", "compression.type=brotli"], "zstd"),
        (["rows.parquet"], "say so with --format"),
    ],
)
def test_what_contradicts_itself_is_told_before_spark_is_started(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["load", *TARGET[:1], *arguments, *TARGET[1:]]) == 2

    error = capsys.readouterr().err
    assert error.startswith("aioproducer load: ")
    assert complaint in error


@pytest.mark.parametrize(("missing", "extra"), [("pyarrow", "load"), ("pyspark", "spark-local")])
def test_missing_packages_are_named_with_the_command_that_brings_them(
    missing: str, extra: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)

    assert main(["load", *TARGET]) == 2

    error = capsys.readouterr().err
    assert missing in error.lower()
    assert f"pip install 'aioproducer[{extra}]'" in error


def test_without_java_it_says_which_one_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")

    assert main(["load", *TARGET]) == 2

    assert "needs Java 17 or later, and Java was not found" in capsys.readouterr().err
