"""``aioproducer kafka`` refuses wrong arguments; tests/real/test_command_line.py runs it."""

from __future__ import annotations

import argparse
import json

import pytest

from aioproducer.cli.kafka import VERB
from aioproducer.cli.verb import ExitCode, Trouble


def run(*arguments: str) -> ExitCode:
    parser = argparse.ArgumentParser()
    VERB.configure(parser)
    return VERB.run(parser.parse_args(arguments))


@pytest.mark.usefixtures("java_that_only_names_its_version")
def test_missing_jars_are_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOPRODUCER_KAFKA_JARS", "/nonexistent")

    with pytest.raises(
        Trouble, match=r"AIOPRODUCER_KAFKA_JARS is /nonexistent, which has no kafka-clients-4\.0\.0\.jar"
    ):
        run("4.0.0")


@pytest.mark.parametrize("arguments", [("--brokers", "0"), ("--topic", ":3"), ("--property", "a"), ("4.3.1", "4.3.0")])
def test_invalid_arguments(arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit):
        run(*arguments)


class _Started:
    """Stands for a cluster whose only broker ends at once."""

    version = "4.3.1"
    bootstrap_servers = "127.0.0.1:41007"
    broker_ids = (1,)

    def __init__(self, **_: object) -> None:
        pass

    def open(self) -> None:
        pass

    def close(self) -> None:
        pass

    def is_running(self, broker_id: int) -> bool:
        return False

    def log(self, broker_id: int) -> str:
        return ""


def test_a_script_gets_one_line_of_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("aioproducer.testing.kafka.KafkaCluster", _Started)

    assert run("--json") is ExitCode.BAD

    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) == {"bootstrap_servers": "127.0.0.1:41007", "version": "4.3.1"}


def test_the_help_mentions_that_the_port_is_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("--help")
    assert "listens on a free port" in capsys.readouterr().out
