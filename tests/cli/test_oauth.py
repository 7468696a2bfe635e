"""Verbs log in with tokens that they request as Java's and librdkafka's keys say."""

from __future__ import annotations

import argparse
import json
import threading
from base64 import b64decode
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from aioproducer.cli.configuration import add_configuration_arguments, configuration
from aioproducer.cli.main import main
from aioproducer.cli.verb import Trouble
from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigError
from aioproducer.testing import FakeBroker, Logins

SECRET = "canary"
_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
ALLOWED = "sasl.allow.plaintext.secrets=true"
LOGIN = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"


class Issuer(BaseHTTPRequestHandler):
    """Gives the token ``the-token`` to the client ``me``, and keeps the scopes that it was asked for."""

    scopes: list[str]

    def do_POST(self) -> None:
        """Answers the request for a token."""
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.scopes.extend(form.get("scope", ["-"]))
        known = b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode() == f"me:{SECRET}"
        body = json.dumps({"access_token": "the-token", "expires_in": 3600} if known else {"error": "invalid_client"})
        self.send_response(200 if known else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


@pytest.fixture
def issuer() -> Iterator[tuple[str, list[str]]]:
    scopes: list[str] = []
    handler = type("Handler", (Issuer,), {"scopes": scopes})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/token", scopes
        server.shutdown()
        thread.join()


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    def knows(token: str, extensions: Mapping[str, str]) -> bool:
        return token == "the-token" and extensions.get("tenant", "a") == "a"

    with FakeBroker(topics={"orders": 1}, logins=Logins(mechanisms=["OAUTHBEARER"], tokens=knows)) as broker:
        yield broker


def java(url: str, secret: str = SECRET) -> str:
    return (
        f"{LOGIN}sasl.oauthbearer.token.endpoint.url={url}\n"
        f'sasl.jaas.config={_MODULE} required clientId="me" clientSecret="{secret}" scope="kafka" extension_tenant="a";\n'
        "sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.secured."
        "OAuthBearerLoginCallbackHandler\n"
    )


def librdkafka(url: str, secret: str = SECRET) -> str:
    return (
        f"{LOGIN}sasl.oauthbearer.method=oidc\nsasl.oauthbearer.token.endpoint.url={url}\n"
        f"sasl.oauthbearer.client.id=me\nsasl.oauthbearer.client.secret={secret}\n"
        "sasl.oauthbearer.scope=kafka\nsasl.oauthbearer.extensions=tenant=a\n"
    )


@pytest.mark.parametrize("spelling", [java, librdkafka])
def test_the_doctor_finds_no_fault_in_a_sound_cluster_with_tokens(
    spelling: object,
    broker: FakeBroker,
    issuer: tuple[str, list[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url, scopes = issuer
    file = tmp_path / "client.properties"
    file.write_text(java(url) if spelling is java else librdkafka(url))

    code = main(["doctor", broker.bootstrap_servers, "orders", "-F", str(file), "--send"])

    printed = capsys.readouterr()
    assert code == 0, printed
    assert set(scopes) == {"kafka"}
    assert SECRET not in printed.out + printed.err
    assert len(broker.records("orders")) == 1


def test_x_overrides_one_key_of_the_file(
    broker: FakeBroker, issuer: tuple[str, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(librdkafka(issuer[0], secret="of another"))
    arguments = ["produce", "orders", str(tmp_path / "lines"), "-b", broker.bootstrap_servers, "-F", str(file)]
    (tmp_path / "lines").write_text("one\n")

    assert main([*arguments, "-X", "max.block.ms=2000"]) != 0
    refused = capsys.readouterr().err
    assert main([*arguments, "-X", f"sasl.oauthbearer.client.secret={SECRET}"]) == 0

    assert "of another" not in refused
    assert [record.value for record in broker.records("orders")] == [b"one"]


def configured(file: Path, *pairs: str) -> ProducerConfig:
    parser = argparse.ArgumentParser()
    add_configuration_arguments(parser)
    words = [word for pair in pairs for word in ("-X", pair)]
    return configuration(parser.parse_args(["-b", "h:1", "-F", str(file), *words]), environ={})


@pytest.mark.parametrize(
    "pair",
    ["sasl.oauthbearer.client.id=other", f'sasl.jaas.config={_MODULE} required clientId="other" clientSecret="s";'],
)
@pytest.mark.parametrize("spelling", [java, librdkafka])
def test_x_overrides_the_file_in_another_spelling(spelling: object, pair: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(java("https://idp.example/t") if spelling is java else librdkafka("https://idp.example/t"))

    assert "'other'" in repr(configured(file, pair).sasl_oauth_token_provider)


def test_another_mechanism_leaves_the_keys_of_the_file_unused(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(librdkafka("https://idp.example/t") + "https.ca.location=/nonexistent.pem\n")

    config = configured(file, "sasl.mechanism=PLAIN", "sasl.username=me", "sasl.password=p", ALLOWED)

    assert (config.sasl_mechanism, config.sasl_oauth_token_provider) == ("PLAIN", None)


def test_a_profile_with_a_client_s_secret_must_not_be_readable_by_others(tmp_path: Path) -> None:
    profiles = tmp_path / "aioproducer" / "profiles.toml"
    profiles.parent.mkdir()
    profiles.write_text(f'[o]\nbootstrap_servers = "h:1"\nsasl.oauthbearer.client.secret = "{SECRET}"\n')
    profiles.chmod(0o644)
    parser = argparse.ArgumentParser()
    add_configuration_arguments(parser)

    with pytest.raises(Trouble, match="chmod 600"):
        configuration(parser.parse_args(["--profile", "o"]), environ={"XDG_CONFIG_HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (["sasl.oauthbearer.scope=kafka"], "also needs sasl.oauthbearer.token.endpoint.url and "),
        (["sasl.oauthbearer.method=default"], "must be 'oidc'"),
        (
            ["sasl.oauthbearer.token.endpoint.url=http://idp.example/token", "sasl.oauthbearer.client.id=me"],
            "client.secret.",
        ),
        ([f'sasl.jaas.config={_MODULE} clientId="me"'], "is not a JAAS line with options"),
        (
            [
                "sasl.oauthbearer.token.endpoint.url=https://idp.example/token",
                "sasl.oauthbearer.client.id=me",
                f"sasl.oauthbearer.client.secret={SECRET}",
                "https.ca.location=/nonexistent.pem",
            ],
            "https.ca.location='/nonexistent.pem' cannot be used",
        ),
        (
            [
                "sasl.oauthbearer.token.endpoint.url=http://idp.example/token",
                "sasl.oauthbearer.client.id=me",
                f"sasl.oauthbearer.client.secret={SECRET}",
            ],
            "https",
        ),
    ],
)
def test_missing_and_unsafe_values_are_named(given: list[str], reason: str) -> None:
    parser = argparse.ArgumentParser()
    add_configuration_arguments(parser)
    words = [word for pair in given for word in ("-X", pair)]

    with pytest.raises(ConfigError, match=reason) as caught:
        configuration(parser.parse_args(["-b", "h:1", "-X", "sasl.mechanism=OAUTHBEARER", *words]), environ={})

    assert SECRET not in str(caught.value)


def test_the_environment_requests_no_url() -> None:
    parser = argparse.ArgumentParser()
    add_configuration_arguments(parser)
    environ = {"KAFKA_SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL": "http://127.0.0.1:1/token"}

    with pytest.raises(ConfigError, match="is not the name of an option"):
        configuration(parser.parse_args(["-b", "h:1"]), environ=environ)
