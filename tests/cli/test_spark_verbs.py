"""The verbs load and audit as the shell sees them: what they refuse before Spark is started, each in a sentence."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import pytest

from aioproducer.cli.main import main

TOPIC = ["--topic", "orders", "--bootstrap-servers", "127.0.0.1:1"]
COMMANDS: Mapping[str, Sequence[str]] = {"audit": ["audit", *TOPIC], "load": ["load", *TOPIC, "rows.csv"]}


def refused(verb: str, *arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main([*COMMANDS[verb], *arguments]) == 2

    error = capsys.readouterr().err
    assert error.startswith(f"aioproducer {verb}: ")
    return error


@pytest.mark.parametrize(
    ("verb", "arguments", "complaint"),
    [
        ("audit", ["--expected", "a.csv", "--sequence", "header:seq"], "choose one"),
        ("audit", ["--run", "header:run"], "needs --sequence"),
        ("audit", ["--sequence", "seq"], "'seq' is not header:NAME, json:FIELD or value"),
        ("audit", ["--expected", "rows"], "say so with --format parquet|csv|json|text"),
        ("audit", ["--expected", "a.csv", "b.json"], "say so with --format"),
        ("load", ["--exactly-once"], "needs --id NAME"),
        ("load", ["--id", "flights"], "belong to --exactly-once"),
        ("load", ["--checkpoint", "here"], "belong to --exactly-once"),
        ("load", ["-X", "compression.type=brotli"], "zstd"),
        ("load", ["rows.parquet"], "say so with --format"),
    ],
)
def test_what_contradicts_itself_is_refused(
    verb: str, arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert complaint in refused(verb, *arguments, capsys=capsys)


@pytest.mark.parametrize(
    ("verb", "missing", "extra"),
    [
        ("audit", "confluent_kafka", "audit"),
        ("audit", "numpy", "audit"),
        ("audit", "pyspark", "spark-local"),
        ("load", "pyarrow", "load"),
        ("load", "pyspark", "spark-local"),
    ],
)
def test_missing_packages_are_named_with_the_command_that_brings_them(
    verb: str, missing: str, extra: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)

    error = refused(verb, capsys=capsys)

    assert missing in error.lower()
    assert f"pip install 'aioproducer[{extra}]'" in error


@pytest.mark.parametrize("verb", COMMANDS)
def test_without_java_it_says_which_one_to_install(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")

    assert "needs Java 17 or later, and Java was not found" in refused(verb, capsys=capsys)
