"""A registry gives a schema's id, and its refusals are reported in a sentence without a password."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator

import pytest

from aioproducer.errors import ConfigError
from aioproducer.spark.avro.registry import SchemaRegistry, SchemaRegistryError, value_subject
from tests.spark.registry import Registry

SCHEMA = '{"type": "record", "name": "r", "fields": []}'
OTHER = '{"type": "record", "name": "o", "fields": []}'


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as registry:
        yield registry


def test_the_id_is_that_of_the_registry(registry: Registry) -> None:
    client = SchemaRegistry.at(registry.url)

    assert [client.register("orders-value", SCHEMA) for _ in range(3)] == [100, 100, 100]
    assert client.register("letters-value", OTHER) == 101


def test_a_registry_that_has_lost_a_schema_is_given_it_again(registry: Registry) -> None:
    """An earlier response is not reused: the subject may have been deleted, and the id now be that of another schema."""
    client = SchemaRegistry.at(registry.url)
    assert client.register("orders-value", SCHEMA) == 100
    registry.subjects.clear()
    registry.schemas = {100: OTHER}

    assert client.register("orders-value", SCHEMA) == 101
    assert registry.subjects == {"orders-value": [101]}


def test_a_registry_that_is_away_stops_nothing_that_it_knew_before(caplog: pytest.LogCaptureFixture) -> None:
    with Registry() as registry:
        client = SchemaRegistry.at(registry.url)
        assert client.register("orders-value", SCHEMA) == 100

    assert client.register("orders-value", SCHEMA) == 100
    assert "Using its earlier id for the schema of 'orders-value': 100" in caplog.text
    for subject, schema in (("orders-value", OTHER), ("letters-value", SCHEMA)):
        with pytest.raises(SchemaRegistryError, match="Could not connect"):
            client.register(subject, schema)
    with pytest.raises(SchemaRegistryError, match="Could not connect"):
        SchemaRegistry.at("http://127.0.0.1:1").register("orders-value", SCHEMA)


def test_a_registry_that_is_ill_stops_nothing_that_it_knew_before(registry: Registry) -> None:
    client = SchemaRegistry.at(registry.url)
    assert client.register("orders-value", SCHEMA) == 100
    registry.status = 503

    assert client.register("orders-value", SCHEMA) == 100
    with pytest.raises(SchemaRegistryError, match="HTTP status 503"):
        client.register("orders-value", OTHER)

    registry.status = 409  # an answer
    with pytest.raises(SchemaRegistryError, match="incompatible"):
        client.register("orders-value", SCHEMA)


def test_a_schema_is_looked_up_without_being_registered(registry: Registry) -> None:
    client = SchemaRegistry.at(registry.url)

    with pytest.raises(SchemaRegistryError, match="Subject 'orders-value' not found"):
        client.look_up("orders-value", SCHEMA)
    client.register("orders-value", SCHEMA)

    assert client.look_up("orders-value", SCHEMA) == 100
    with pytest.raises(
        SchemaRegistryError, match="does not have this schema for subject 'orders-value': Schema not found"
    ):
        client.look_up("orders-value", OTHER)
    assert registry.subjects == {"orders-value": [100]}


def test_the_subject_is_that_of_the_topics_values(registry: Registry) -> None:
    SchemaRegistry.at(registry.url).register(value_subject("a.b"), SCHEMA)

    assert list(registry.subjects) == ["a.b-value"]


def test_a_schema_that_is_not_compatible_is_reported(registry: Registry) -> None:
    registry.is_compatible = False
    client = SchemaRegistry.at(registry.url)
    client.register("orders-value", SCHEMA)

    with pytest.raises(SchemaRegistryError, match="incompatible with the versions of subject 'orders-value'"):
        client.register("orders-value", OTHER)


def test_a_schema_that_another_client_registers_at_the_same_moment_is_registered_once_more(registry: Registry) -> None:
    client = SchemaRegistry.at(registry.url)
    registry.collisions = 1
    assert client.register("orders-value", SCHEMA) == 100
    assert len(registry.requests) == 2

    registry.collisions = 2
    with pytest.raises(SchemaRegistryError, match=r"of another client .*'orders-value' at the same moment"):
        client.register("orders-value", SCHEMA)


@pytest.mark.parametrize("where", ["in the URL", "beside it"])
def test_user_and_password_are_used_and_never_shown(where: str) -> None:
    with Registry(login="me@home:p/w:1") as registry:
        client = (
            SchemaRegistry.at(f"http://me%40home:p%2Fw%3A1@{registry.address}/")
            if where == "in the URL"
            else SchemaRegistry.at(registry.url, "me@home:p/w:1")
        )
        wrong = SchemaRegistry.at(f"http://me:secret@{registry.address}")

        assert client.register("orders-value", SCHEMA) == 100
        with pytest.raises(SchemaRegistryError, match="rejects the login") as caught:
            wrong.register("orders-value", SCHEMA)

    assert "secret" not in f"{caught.value} {wrong!r} {caught.value.__cause__!r}"
    assert registry.url in str(caught.value)


def test_a_refused_connection_is_reported_with_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closing:
        port = closing.getsockname()[1]

    with pytest.raises(
        SchemaRegistryError, match=rf"Could not connect to the schema registry at http://127\.0\.0\.1:{port}: .*refused"
    ):
        SchemaRegistry.at(f"http://u:secret@127.0.0.1:{port}").register("s", SCHEMA)


@pytest.mark.parametrize(
    "url",
    [
        "http://régistre..local:8081",
        f"http://{'a' * 70}.local:8081",
        "http://127.0.0.1:1/ä",
        "http://127.0.0.1:1/a b",
    ],
)
def test_an_address_that_cannot_be_asked_is_reported_as_one(url: str) -> None:
    with pytest.raises(SchemaRegistryError, match=r"the address is invalid, or characters of it have") as caught:
        SchemaRegistry.at(url).register("s", SCHEMA)

    assert url in str(caught.value)


def test_where_no_registry_is_at_the_path_that_is_reported_and_not_that_a_schema_is_missing(registry: Registry) -> None:
    client = SchemaRegistry.at(f"{registry.url}/api")

    with pytest.raises(SchemaRegistryError, match=f"There is no schema registry at {client.url}: HTTP 404 Not Found"):
        client.register("orders-value", SCHEMA)
    with pytest.raises(SchemaRegistryError, match=f"There is no schema registry at {client.url}: HTTP 404 Not Found"):
        client.look_up("orders-value", SCHEMA)


class _Elsewhere(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        """Responses that no registry sends: a redirect, or a page."""
        self.rfile.read(int(self.headers["Content-Length"]))
        moved = self.path.startswith("/subjects/moved")
        self.send_response(302 if moved else 200)
        if moved:
            self.send_header("Location", "http://127.0.0.1:1/")
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"<html>")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Not on standard error."""


@pytest.mark.parametrize(
    ("subject", "sentence"), [("page", "is not a schema registry: it did not send JSON"), ("moved", "status 302")]
)
def test_a_server_that_is_not_a_schema_registry_is_reported(subject: str, sentence: str) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), _Elsewhere) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            with pytest.raises(SchemaRegistryError, match=sentence):
                SchemaRegistry.at(f"http://127.0.0.1:{server.server_address[1]}").register(subject, SCHEMA)
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    "url", ["registry:8081", "ftp://u:secret@a", "http://", "http://a:secret", "http://a/?x=secret"]
)
def test_an_invalid_url_is_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(ConfigError, match="http://host:8081") as caught:
        SchemaRegistry.at(url)

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://me:12/34sekret@127.0.0.1:1",
        "http://me:se/kret@127.0.0.1:1",
        "http://me:12?sekret@127.0.0.1:1",
        "http://me:12#sekret@127.0.0.1:1",
        "http://me:p@ss/sekret@127.0.0.1:1",
        "https://me/12:sekret@registry",
    ],
)
def test_a_password_is_not_mistaken_for_a_port_and_a_path(url: str) -> None:
    with pytest.raises(
        ConfigError, match=r"an '@' after .* write %2F .* schema\.registry\.basic\.auth\.user\.info"
    ) as caught:
        SchemaRegistry.at(url)

    assert not [part for part in ("kret", "me:", "127.0.0.1") if part in str(caught.value)]
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    "url",
    [
        "http://a,http://b",
        "http://a:8081,http://b:8081",
        "http://a:8081, https://b:8081/",
        "http://a/path,http://b/path",
        "http://a:8081,b:8081",
        "http://u:sekret@a,http://u:sekret@b",
    ],
)
def test_a_list_of_registries_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"one address .* not a list") as caught:
        SchemaRegistry.at(url)

    assert "sekret" not in str(caught.value)


def test_a_password_may_have_a_comma() -> None:
    assert SchemaRegistry.at("http://me:a,b@registry/path,1") == SchemaRegistry("http://registry/path,1", "me:a,b")


def test_a_login_has_two_parts() -> None:
    with pytest.raises(ConfigError, match="user:password"):
        SchemaRegistry.at("http://a", "secret")


def test_ipv6_and_paths_stay_what_they_are() -> None:
    assert SchemaRegistry.at("https://u:p@[::1]:8081/registry/").url == "https://[::1]:8081/registry"
