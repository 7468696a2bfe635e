"""Verbs find the producer's options in flags, -X, a file, a profile and the environment, in this order."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from aioproducer import ProducerConfig
from aioproducer.cli.configuration import add_configuration_arguments, configuration
from aioproducer.cli.verb import Trouble
from aioproducer.errors import ConfigError

PROFILES = """
[prod]
bootstrap.servers = "profile:9092"
"linger.ms" = 4
client_id = "profile"

[secret]
bootstrap_servers = ["one:9092", "two:9092"]
security.protocol = "SASL_SSL"
sasl_mechanism = "PLAIN"
sasl_username = "me"
sasl.password = "hidden"

[bare]
"""


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment with profiles."""
    file = tmp_path / "aioproducer" / "profiles.toml"
    file.parent.mkdir()
    file.write_text(PROFILES)
    file.chmod(0o644)
    return {"XDG_CONFIG_HOME": str(tmp_path)}


def configured(environ: dict[str, str], *arguments: str, as_java: bool = False, **flags: object) -> ProducerConfig:
    parser = argparse.ArgumentParser()
    add_configuration_arguments(parser)
    options = parser.parse_args(arguments)
    return configuration(options, flags, {"max_block_ms": 7}, environ, as_java=as_java)


def test_each_source_overrides_those_behind_it(home: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:9092\nlinger.ms=3\n")
    environ = {**home, "KAFKA_BOOTSTRAP_SERVERS": "environment:9092", "KAFKA_LINGER_MS": "5"}
    sources = (["-b", "flag:9092"], ["-X", "linger.ms=2", "-X", "metadata.broker.list=option:9092"])
    of_file, of_profile = ["-F", str(file)], ["--profile", "prod"]

    found = [
        configured(environ, *sources[0], *sources[1], *of_file, *of_profile, linger_ms="1"),
        configured(environ, *sources[1], *of_file, *of_profile),
        configured(environ, *of_file, *of_profile),
        configured(environ, *of_profile),
        configured(environ),
    ]

    assert [each.bootstrap_servers for each in found] == [
        (f"{name}:9092",) for name in ("flag", "option", "file", "profile", "environment")
    ]
    assert [each.linger_ms for each in found] == [1, 2, 3, 4, 5]
    assert [each.client_id for each in found] == ["profile"] * 4 + [""]
    assert {each.max_block_ms for each in found} == {7}


def test_names_of_the_flags_of_other_tools_are_known(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("acks=1\nenable.idempotence=false\n")
    servers = "a:1,b:2"
    for flag in ("-b", "--bootstrap-server", "--bootstrap-servers", "--broker-list"):
        for config in ("-F", "--config-file", "--producer.config", "--command-config"):
            found = configured({}, flag, servers, config, str(file), "--producer-property", "queue.buffering.max.ms=9")
            assert (found.bootstrap_servers, found.acks, found.linger_ms) == (("a:1", "b:2"), 1, 9)


def test_acks_of_another_tool_turn_idempotence_off_unless_it_is_wanted() -> None:
    assert not configured({}, "-b", "a:1", "-X", "acks=1", as_java=True).enable_idempotence
    assert configured({}, "-b", "a:1", "-X", "acks=-1", as_java=True).enable_idempotence
    for arguments, as_java in ((["-X", "enable.idempotence=true"], True), ([], False)):
        with pytest.raises(ConfigError, match="idempotence"):
            configured({}, "-b", "a:1", "-X", "acks=1", *arguments, as_java=as_java)


def test_secrets_in_a_file_that_others_can_read_are_refused(home: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "aioproducer" / "profiles.toml"
    with pytest.raises(Trouble, match=r"holds secrets \(sasl_password\).*Run: chmod 600") as refused:
        configured(home, "--profile", "secret")
    assert "hidden" not in str(refused.value)

    file.chmod(0o600)
    found = configured(home, "--profile", "secret")

    assert found.bootstrap_servers == ("one:9092", "two:9092")
    assert found.sasl_password is not None
    assert found.sasl_password.reveal() == "hidden"


def test_missing_things_are_named(home: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(Trouble, match="No cluster is given"):
        configured({})
    with pytest.raises(Trouble, match="No cluster is given"):
        configured(home, "--profile", "bare")
    with pytest.raises(Trouble, match="has no profile 'test'; it has 'prod', 'secret', 'bare'"):
        configured(home, "--profile", "test")
    with pytest.raises(Trouble, match=r"profiles in .* cannot be read: No such file"):
        configured({"XDG_CONFIG_HOME": "/no/such/folder"}, "--profile", "prod")
    (tmp_path / "aioproducer" / "profiles.toml").write_text("[prod")
    with pytest.raises(Trouble, match="cannot be read: Expected"):
        configured(home, "--profile", "prod")
    with pytest.raises(ConfigError, match="cannot be read"):
        configured({}, "-b", "a:1", "-F", "/no/such/file")
    with pytest.raises(ConfigError, match="linger_ms"):
        configured({}, "-b", "a:1", "-X", "linger=5")
