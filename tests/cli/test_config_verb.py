"""``aioproducer config`` shows options, finds the mistakes of a file, and shows the configuration in effect."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import pytest

from aioproducer.cli.config.command import VERB
from aioproducer.cli.config.options import as_json, named
from aioproducer.cli.verb import ExitCode, Trouble
from aioproducer.config import OPTIONS
from aioproducer.errors import ConfigError

PASSWORD = "wonderland-7"
SOUND = f"""
queue.buffering.max.ms=7
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.username=me
sasl.password={PASSWORD}
schema.registry.url=http://registry
"""


def run(*arguments: str) -> ExitCode:
    parser = argparse.ArgumentParser()
    VERB.configure(parser)
    return VERB.run(parser.parse_args(arguments))


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OPTIONS:
        monkeypatch.delenv(f"KAFKA_{name.upper()}", raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "producer.properties"


def test_each_option_has_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() is ExitCode.OK

    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split() == ["option", "default", "Java", "librdkafka", "values"]
    assert [line.split()[0] for line in lines[: len(OPTIONS)]] == list(OPTIONS)
    rows = {name: row for name, *row in (re.split(" {2,}", line, maxsplit=4) for line in lines[: len(OPTIONS)])}
    assert rows["linger_ms"] == ["5", "=", "=", "milliseconds, at least 0"]
    assert rows["partitioner"][:3] == ["not set", "partitioner.class", "="]
    assert rows["compression_threshold_bytes"] == ["32768", "-", "-", "bytes, at least 0"]
    assert rows["ssl_cafile"][:3] == ["not set", "ssl.truststore.location", "ssl.ca.location"]


def test_the_options_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json") is ExitCode.OK

    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert list(found) == list(OPTIONS)
    assert found["acks"]["default"] == "all"
    assert found["bootstrap_servers"]["required"]
    assert found["sasl_password"]["secret"]
    assert (found["batch_size"]["unit"], found["batch_size"]["default"]) == ("bytes", 262_144)
    assert found["interceptors"]["default"] == "()"


def test_librdkafka_knows_each_of_its_names() -> None:
    confluent_kafka: Any = pytest.importorskip("confluent_kafka")

    def refusal(name: str) -> str:
        try:
            confluent_kafka.Producer({name: "-"})
        except confluent_kafka.KafkaException as error:
            return str(error)
        return ""

    names = [as_json(option)["librdkafka"] for option in OPTIONS.values()]
    assert "No such configuration property" in refusal("linger")
    for name in names:
        if name is not None and not name.endswith("_cb"):
            assert "No such configuration property" not in refusal(name)


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("linger_ms", "linger_ms"),
        ("linger.ms", "linger_ms"),
        ("queue.buffering.max.ms", "linger_ms"),
        ("queue.buffering.max.kbytes", "buffer_memory"),
        ("partitioner.class", "partitioner"),
        ("compression.zstd.level", "compression_level"),
    ],
)
def test_an_option_is_found_by_the_name_of_any_client(name: str, option: str) -> None:
    assert [each.name for each in named(name)] == [option]


def test_an_option_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("buffer.memory", "--explain", "buffer_memory") is ExitCode.OK

    out = capsys.readouterr().out
    assert out.count("buffer_memory\n") == 1
    assert "Must be:     a whole number of bytes, at least 1\n" in out
    assert "librdkafka:  queue.buffering.max.kbytes (in KiB)\n" in out

    assert run("sasl.jaas.config", "--json") is ExitCode.OK
    assert "sasl_password" in [each["name"] for each in json.loads(capsys.readouterr().out)]

    assert run("sasl_oauth_token_provider") is ExitCode.OK
    assert "more\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("lingr_ms", "Did you mean 'linger_ms'"),
        ("group.id", "a producer has no group"),
        ("config.providers", "has no counterpart here"),
    ],
)
def test_an_unknown_name_gets_a_hint(name: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        run("--explain", name)


def test_a_valid_file_shows_the_options_without_secrets(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(SOUND)

    assert run("--check", str(file)) is ExitCode.OK

    out, err = capsys.readouterr()
    assert PASSWORD not in out + err
    assert "ignored: schema.registry.url" in out
    assert "has no bootstrap.servers" in out
    assert f"{file} is valid. The options that differ from the defaults:" in out
    shown = [line.split() for line in out.splitlines() if line.startswith("  ")]
    assert shown == [
        ["linger_ms", "7"],
        ["security_protocol", "SASL_SSL"],
        ["sasl_mechanism", "PLAIN"],
        ["sasl_username", "me"],
        ["sasl_password", "***"],
    ]


def test_a_valid_file_in_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(f"{SOUND}bootstrap.servers=one:9092,two:9092\nretry.backoff.ms=2000\n")

    assert run("--check", str(file), "--json") is ExitCode.OK

    found = json.loads(capsys.readouterr().out)
    assert (found["valid"], found["mistakes"], found["ignored"]) == (True, [], ["schema.registry.url"])
    options = {each["name"]: (each["value"], each["source"]) for each in found["options"]}
    assert options["bootstrap_servers"] == (["one:9092", "two:9092"], "file")
    assert options["sasl_password"] == ("***", "file")
    assert options["retry_backoff_max_ms"] == (2000, "derived")


def test_each_mistake_is_listed(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("linger.ms=abc\nlingr.ms=1\nssl.keystore.type=JKS\navro.codec=x\n")

    assert run("--check", str(file)) is ExitCode.BAD

    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["mistake"] * 3 + ["ignored", f"{file} has 3 mistakes."]
    assert [line.split(":")[1] for line in lines[:3]] == [" line 1", " line 2", " line 3"]
    assert "must be a whole number of milliseconds" in lines[0]
    assert "Did you mean" in lines[1]

    assert run("--check", str(file), "--json") is ExitCode.BAD
    assert len(json.loads(capsys.readouterr().out)["mistakes"]) == 3


def test_a_key_that_is_repeated_is_a_warning(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("# comment\nacks=1\nlinger.ms=\\\n7\n\nacks=0\nlinger.ms=8\nacks=all\n")

    assert run("--check", str(file)) is ExitCode.OK
    warnings = [
        "acks is on lines 2, 6 and 8; the last one counts.",
        "linger.ms is on lines 3 and 7; the last one counts.",
    ]
    assert capsys.readouterr().out.splitlines()[:2] == [f"warning: {each}" for each in warnings]

    assert run("--check", str(file), "--json") is ExitCode.OK
    assert json.loads(capsys.readouterr().out)["warnings"] == warnings


def test_an_unknown_key_names_the_verb_that_lists_all(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("\nfrobnication=1\n")

    assert run("--check", str(file)) is ExitCode.BAD
    sentence = "'frobnication' is not an option. aioproducer config lists all options."
    assert capsys.readouterr().out.startswith(f"mistake: line 2: {sentence}\n")


def test_values_are_shown_as_a_file_has_them(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["linger.ms=0", "security.protocol=SASL_PLAINTEXT", "sasl.mechanism=SCRAM-SHA-256", "sasl.username=me"]
    flags = [part for each in [*options, f"sasl.password={PASSWORD}"] for part in ("-X", each)]
    assert run("-b", "one:9092,two:9092", *flags) is ExitCode.OK

    lines = capsys.readouterr().out.splitlines()
    shown = {line.split()[0]: line.rsplit(maxsplit=1)[0].split(maxsplit=1)[1].strip() for line in lines}
    names = ("bootstrap_servers", "acks", "linger_ms", "sasl_password", "ssl_cafile", "client_id", "interceptors")
    assert [shown[each] for each in names] == ["one:9092,two:9092", "all", "0", "***", "not set", "not set", "not set"]
    assert (shown["enable_idempotence"], shown["security_protocol"]) == ("true", "SASL_PLAINTEXT")


def test_a_type_that_repeats_the_name_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("acks", "sasl_mechanism") is ExitCode.OK
    assert "Type:" not in capsys.readouterr().out

    assert run("linger_ms") is ExitCode.OK
    assert "Type:        int\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "in_json"),
    [
        ("logs:zstd,images:none,*:lz4", {"logs": "zstd", "images": "none", "*": "lz4"}),
        ("logs:zstd|gzip,*:lz4", {"logs": ["zstd", "gzip"], "*": "lz4"}),
        ("zstd,lz4", ["zstd", "lz4"]),
    ],
)
def test_codecs_are_shown_as_a_file_has_them(
    given: str, in_json: object, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("-b", "one:9092", "-X", f"compression.type={given}") is ExitCode.OK
    [shown] = [line.split() for line in capsys.readouterr().out.splitlines() if "compression_type" in line]
    assert shown == ["compression_type", given, "-X"]

    file.write_text(f"bootstrap.servers=one:9092\ncompression.type={shown[1]}\n")
    assert run("--check", str(file)) is ExitCode.OK
    assert ["compression_type", given] in [line.split()[:2] for line in capsys.readouterr().out.splitlines()]

    assert run("--json", "-F", str(file)) is ExitCode.OK
    found = {each["name"]: each["value"] for each in json.loads(capsys.readouterr().out)}
    assert found["compression_type"] == in_json


@pytest.mark.parametrize("text", ["acks=0\nenable.idempotence=true\n", "linger.ms=\\u12\n"])
def test_a_contradiction_and_a_broken_escape_are_mistakes(
    text: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(text)

    assert run("--check", str(file)) is ExitCode.BAD
    assert f"{file} has 1 mistake." in capsys.readouterr().out


def test_defaults_only(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("bootstrap.servers=localhost:9092\nlinger.ms=5\n")

    assert run("--check", str(file)) is ExitCode.OK
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()][1:] == ["bootstrap_servers"]

    file.write_text("")
    assert run("--check", str(file)) is ExitCode.OK
    assert "All options have their defaults." in capsys.readouterr().out


def test_each_value_has_its_source(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    profiles = tmp_path / "aioproducer" / "profiles.toml"
    profiles.parent.mkdir()
    profiles.write_text("[prod]\nclient_id = 'me'\nmax_block_ms = 9\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("KAFKA_LINGER_MS", "1")
    monkeypatch.setenv("KAFKA_CLIENT_ID", "other")
    monkeypatch.setenv("KAFKA_RETRIES", "7")
    file.write_text("linger.ms=3\nacks=1\ncompression.zstd.level=3\n")
    flags = ["-X", "acks=all", "-X", "compression.type=zstd", "-F", str(file), "--profile", "prod"]

    assert run("--json", "-b", "flag:9092", *flags) is ExitCode.OK

    found = {each["name"]: (each["value"], each["source"]) for each in json.loads(capsys.readouterr().out)}
    assert list(found) == list(OPTIONS)
    assert found["bootstrap_servers"] == (["flag:9092"], "-b")
    assert found["acks"] == ("all", "-X")
    assert found["linger_ms"] == (3, "file")
    assert found["compression_level"] == (3, "file")
    assert found["client_id"] == ("me", "profile")
    assert found["max_block_ms"] == (9, "profile")
    assert found["retries"] == (7, "environment")
    assert found["batch_size"] == (262_144, "default")

    assert run("-b", "flag:9092", *flags) is ExitCode.OK
    assert ["retries", "7", "environment"] in [line.split() for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--effective",),
        ("--effective", "linger_ms"),
        ("--check", "a", "-b", "localhost:9092"),
        ("--check", "/no/such/file"),
    ],
)
def test_trouble(arguments: tuple[str, ...]) -> None:
    with pytest.raises(Trouble):
        run(*arguments)
