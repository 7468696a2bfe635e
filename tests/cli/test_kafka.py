"""``aioproducer kafka`` refuses wrong arguments; tests/real/test_command_line.py runs it."""

from __future__ import annotations

import argparse

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
