"""The verbs load and audit as the shell sees them: what they refuse before Spark is started, each in a sentence."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

import pytest

from aioproducer.cli.main import main
from aioproducer.cli.spark_options import add_file_arguments, shape_of

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
        ("audit", ["--expected", "a.csv", "--records", "5"], "need --sequence"),
        ("audit", ["--first-sequence", "5"], "need --sequence"),
        ("audit", ["--sequence", "value", "--first-sequence", "-5"], "must be at least 0"),
        (
            "audit",
            ["--partitioner", "none", "-X", "enable.ssl.certificate.verification=false"],
            "Nothing would be checked",
        ),
        ("audit", ["--sequence", "seq"], "invalid 'seq': must be header:NAME, json:FIELD or value"),
        ("audit", ["--expected", "rows"], "set it with --format parquet|csv|json|text"),
        ("audit", ["--expected", "a.csv", "b.json"], "set it with --format"),
        ("audit", ["--source-option", "kafka.security.protocol=SSL"], "needs --reader spark"),
        ("audit", ["--reader", "spark", "--source-option", "minPartitions=9"], "'minPartitions'"),
        ("audit", ["--out", "/nonexistent/v.json"], "--out /nonexistent/v.json: there is no directory /nonexistent."),
        ("audit", ["--report", "nothing/here/r.html"], "--report nothing/here/r.html: there is no directory"),
        ("audit", ["--out", "/"], "--out /: this is a directory"),
        ("audit", ["-b", ""], "bootstrap_servers"),
        ("load", ["--exactly-once"], "needs --id NAME"),
        ("load", ["--id", "flights"], "need --exactly-once"),
        ("load", ["--checkpoint", "here"], "need --exactly-once"),
        ("load", ["--again"], "need --exactly-once"),
        ("load", ["-X", "compression.type=brotli"], "zstd"),
        ("load", ["--topic", "orders, returns"], "The option 'topic': Invalid topic="),
        ("load", ["-X", "key.serializer=x"], "-X key.serializer: not supported here: keys and values are"),
        ("load", ["--exactly-once", "--id", "flights", "-X", "acks=1", "-X", "enable.idempotence=false"], "acks=all"),
        ("load", ["rows.parquet"], "set it with --format"),
        ("load", ["--avro-schema", "a.avsc"], "need --value-format avro"),
        ("audit", ["--schema-registry", "http://a"], "need --value-format avro"),
        (
            "load",
            ["--value-format", "avro", "--avro-schema", "nothing.avsc"],
            "--avro-schema nothing.avsc: could not read",
        ),
        ("load", ["--value-format", "avro", "--schema-registry", "a:8081"], "http://host:8081 or https://"),
    ],
)
def test_contradictory_or_invalid_arguments_are_refused(
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
        ("load --value-format avro", "fastavro", "avro"),
    ],
)
def test_missing_packages_are_named_with_the_command_that_brings_them(
    verb: str, missing: str, extra: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    name, *more = verb.split()

    error = refused(name, *more, capsys=capsys)

    assert missing in error.lower()
    assert f"pip install 'aioproducer[{extra}]'" in error


@pytest.mark.parametrize(
    ("verb", "arguments", "complaint"),
    [
        ("audit", ["--expected", "a.csv", "--sequence", "header:seq"], "choose one"),
        ("audit", ["--out", "/"], "this is a directory"),
        ("audit", ["--master", "sc://spark"], "selects Spark Connect"),
        ("load", ["--again"], "need --exactly-once"),
        ("load", ["--master", "sc://spark"], "selects Spark Connect"),
    ],
)
def test_contradictory_arguments_are_reported_before_missing_packages(
    verb: str,
    arguments: list[str],
    complaint: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    assert complaint in refused(verb, *arguments, capsys=capsys)


@pytest.mark.parametrize(("verb", "argument"), [("audit", "--sequence=seq"), ("load", "rows.parquet")])
def test_wrong_arguments_are_reported_before_a_missing_java(
    verb: str, argument: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")

    assert "Java" not in refused(verb, argument, capsys=capsys)


@pytest.mark.parametrize("verb", COMMANDS)
def test_the_error_without_java_names_the_version_to_install(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")

    assert "needs Java 17 or later, and Java was not found" in refused(verb, capsys=capsys)


@pytest.mark.parametrize("verb", COMMANDS)
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--master", "sc://spark:15002/;token=secret"], "--master sc://... selects Spark Connect"),
        (["--conf", "spark.remote=sc://spark:15002/;token=secret"], "--conf spark.remote=... selects Spark Connect"),
        (["--conf", "spark.api.mode=Connect"], "--conf spark.api.mode=connect selects Spark Connect"),
    ],
)
def test_spark_connect_is_refused(
    verb: str, arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    error = refused(verb, *arguments, capsys=capsys)

    assert complaint in error
    assert "secret" not in error


@pytest.mark.parametrize("verb", COMMANDS)
@pytest.mark.parametrize("variable", ["SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"])
def test_a_variable_that_makes_every_session_one_of_spark_connect_is_named(
    verb: str, variable: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "sc://spark:15002/;token=secret")

    error = refused(verb, capsys=capsys)

    assert f"the variable {variable} selects Spark Connect" in error
    assert "secret" not in error


@pytest.mark.parametrize(
    ("url", "login"), [("http://registry:8081", "me:secret"), ("http://you:other@registry:8081", "you:other")]
)
def test_the_registrys_login_may_come_from_the_environment(
    url: str, login: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO", "me:secret")
    parser = argparse.ArgumentParser()
    add_file_arguments(parser)
    options = parser.parse_args(["--value-format", "avro", "--schema-registry", url])
    options.topic = "orders"

    avro = shape_of(options).avro

    assert avro is not None
    assert avro.registry is not None
    assert (avro.registry.url, avro.registry.user_info) == ("http://registry:8081", login)
