"""The client of a schema registry: requests, caches, logins, retries, shared requests and its end."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aioproducer.errors import ConfigError, WrongEventLoop
from aioproducer.serializers.schema_registry import (
    RegisteredSchema,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryError,
)
from aioproducer.serializers.schema_registry import _api as api
from aioproducer.serializers.schema_registry import _shared as shared
from aioproducer.serializers.schema_registry import client as client_module
from aioproducer.testing import VirtualClock
from tests.schema_registry.conftest import VirtualTime
from tests.schema_registry.registry import DROP, Registry, basic

SCHEMA = '{"type": "record", "name": "r", "fields": []}'
OTHER = '{"type": "record", "name": "o", "fields": []}'


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as closing:
        port: int = closing.getsockname()[1]
    return port


async def test_a_schema_is_registered_once_and_its_id_is_cached(
    client: SchemaRegistryClient, registry: Registry
) -> None:
    assert [await client.register("a/b", SCHEMA) for _ in range(3)] == [100, 100, 100]
    assert await client.register("a/b", OTHER) == 101

    assert registry.paths == ["POST /subjects/a%2Fb/versions"] * 2
    assert registry.asked[0].body == {"schema": SCHEMA}
    assert registry.asked[0].headers["content-type"] == "application/vnd.schemaregistry.v1+json"


async def test_type_references_and_normalization_are_sent(client: SchemaRegistryClient, registry: Registry) -> None:
    await client.register("r", SCHEMA)
    reference = SchemaReference("r", "r", 1)

    await client.register("s", '{"b": 1, "a": 2}', schema_type="JSON", references=[reference], normalize=True)
    found = await client.by_version("s", 1)

    assert registry.asked[1].query == {"normalize": "true"}
    assert found == RegisteredSchema(101, 1, '{"a": 2, "b": 1}', "JSON", (reference,))


async def test_a_schema_is_looked_up_without_being_registered(client: SchemaRegistryClient, registry: Registry) -> None:
    with pytest.raises(SchemaRegistryError, match=r"for subject 's': Subject not found\. auto_reg") as caught:
        await client.look_up("s", SCHEMA)
    await client.register("s", SCHEMA)

    assert (caught.value.status, caught.value.code, caught.value.retriable) == (404, 40401, False)
    assert [await client.look_up("s", SCHEMA), (await client.find("s", SCHEMA)).version] == [100, 1]
    assert registry.subjects == {"s": [100]}
    assert len(registry.asked) == 3  # the second result is cached, the failure is not


async def test_schemas_are_found_by_id_and_version(client: SchemaRegistryClient, registry: Registry) -> None:
    await client.register("s", SCHEMA)
    registry.asked.clear()

    for _ in range(2):
        assert await client.by_id(100) == RegisteredSchema(100, None, SCHEMA)
        assert await client.by_version("s", 1) == RegisteredSchema(100, 1, SCHEMA)
    assert registry.paths == ["GET /schemas/ids/100", "GET /subjects/s/versions/1"]
    assert registry.asked[1].query == {"deleted": "true"}  # a schema in use may refer to a deleted version
    with pytest.raises(SchemaRegistryError, match="for this id: Schema not found"):
        await client.by_id(7)
    with pytest.raises(SchemaRegistryError, match="Version not found"):
        await client.by_version("s", 9)


async def test_the_latest_version_is_cached_for_a_time(
    client: SchemaRegistryClient, registry: Registry, virtual: VirtualTime
) -> None:
    await client.register("s", SCHEMA)
    assert client.cached_latest("s") is None
    assert (await client.latest("s")).version == 1
    await client.register("s", OTHER)

    virtual.now += 299
    assert (await client.latest("s")).version == 1
    virtual.now += 1
    assert client.cached_latest("s") is None
    assert await client.latest("s") == client.cached_latest("s") == RegisteredSchema(101, 2, OTHER)


async def test_a_latest_version_outlives_an_outage(
    client: SchemaRegistryClient, registry: Registry, virtual: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    registry.failures = [503] * 3
    with pytest.raises(SchemaRegistryError, match="503"):
        await client.latest("s")
    await client.register("s", SCHEMA)
    earlier = await client.latest("s")

    virtual.now += 300
    registry.failures = [503] * 3
    assert await client.latest("s") == earlier
    assert "Using version 1 of subject 's', fetched earlier" in caplog.text
    assert client.cached_latest("s") == earlier  # the registry is not asked for each record


async def test_caches_are_bounded() -> None:
    cache: shared.RecentlyUsed[int, int] = shared.RecentlyUsed(2)
    cache.put(1, 1)
    cache.put(2, 2)
    cache.get(1)
    cache.put(3, 3)

    assert ([cache.get(each) for each in (1, 2, 3)], len(cache)) == ([1, None, 3], 2)


@pytest.mark.parametrize("status", [500, 503, 429, DROP])
async def test_a_temporary_failure_is_retried_with_growing_pauses(
    client: SchemaRegistryClient, registry: Registry, virtual: VirtualTime, status: int
) -> None:
    registry.failures = [status, status]
    assert await client.register("s", SCHEMA) == 100

    assert len(registry.asked) == 3
    first, second = virtual.pauses
    assert 0.25 <= first <= 0.5 <= second <= 1.0

    registry.failures = [status] * 3
    with pytest.raises(SchemaRegistryError) as caught:
        await client.register("s", OTHER)
    assert caught.value.retriable
    assert len(registry.asked) == 6


async def test_a_subject_that_two_clients_create_at_once_is_asked_for_again(
    client: SchemaRegistryClient, registry: Registry, virtual: VirtualTime
) -> None:
    """Apicurio Registry refuses one of them, with the status and the code of an incompatible schema."""
    registry.failures = [409]
    registry.failure = "An artifact with ID 's' in group 'null' already exists."
    assert await client.register("s", SCHEMA) == 100
    assert len(registry.asked) == 2
    assert len(virtual.pauses) == 1

    registry.failures = [409] * 3
    with pytest.raises(
        SchemaRegistryError, match="got a schema of another client for subject 's' at the same"
    ) as caught:
        await client.register("s", OTHER)
    assert (caught.value.status, caught.value.retriable) == (409, True)


async def test_a_message_of_several_lines_becomes_one(client: SchemaRegistryClient, registry: Registry) -> None:
    registry.failures = [422]
    registry.failure = "It is invalid:\n  at line 1.\n"

    with pytest.raises(SchemaRegistryError, match=r"as invalid: It is invalid: at line 1\.$"):
        await client.register("s", SCHEMA)


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (401, r"rejects the login, .* basic_auth=\(user, password\) or bearer_token"),
        (403, "does not permit this login to do that for subject 's'"),
        (404, "There is no schema registry at"),
        (409, "incompatible with the versions of subject 's': .* Change the schema"),
        (422, "rejects the schema as invalid"),
        (302, "HTTP status 302 for subject 's'"),
    ],
)
async def test_a_refusal_is_not_retried(
    client: SchemaRegistryClient, registry: Registry, status: int, sentence: str
) -> None:
    registry.failures = [status]

    with pytest.raises(SchemaRegistryError, match=sentence) as caught:
        await client.register("s", SCHEMA)
    assert len(registry.asked) == 1
    assert (caught.value.status, caught.value.retriable) == (status, False)


async def test_the_registry_s_refusals_have_its_message(client: SchemaRegistryClient, registry: Registry) -> None:
    registry.is_compatible = False
    await client.register("s", SCHEMA)

    with pytest.raises(SchemaRegistryError, match="Schema being registered is incompatible"):
        await client.register("s", OTHER)
    with pytest.raises(SchemaRegistryError, match="Invalid schema"):
        await client.register("s", "invalid")


async def test_the_next_server_is_asked_if_one_is_away(registry: Registry, virtual: VirtualTime) -> None:
    away = f"http://127.0.0.1:{closed_port()}"
    async with SchemaRegistryClient([away, registry.url]) as client:
        assert await client.register("s", SCHEMA) == 100
        assert virtual.pauses == []

    async with SchemaRegistryClient([away, away]) as client:
        with pytest.raises(SchemaRegistryError, match=f"Could not connect to the schema registry at {away}") as caught:
            await client.register("s", SCHEMA)
    assert caught.value.retriable
    assert len(virtual.pauses) == 2


async def test_the_server_that_responded_is_asked_first(registry: Registry, virtual: VirtualTime) -> None:
    registry.failures = [503]
    with Registry() as second:
        async with SchemaRegistryClient([registry.url, second.url]) as client:
            await client.register("s", SCHEMA)
            await client.by_id(100)

        assert (len(registry.asked), len(second.asked)) == (1, 2)


@pytest.mark.parametrize(
    ("login", "url", "options"),
    [
        (basic("me@home", "p/w:1"), "http://me%40home:p%2Fw%3A1@{}", {}),
        (basic("me", "p:w"), "http://{}", {"basic_auth": ("me", "p:w")}),
        ("Bearer t0ken", "http://{}", {"bearer_token": "t0ken"}),
        ("Bearer t0ken", "http://{}", {"bearer_token": lambda: "t0ken"}),
        ("Bearer t0ken", "http://{}", {"bearer_token": lambda: asyncio.sleep(0, "t0ken")}),
        ("mine", "http://{}", {"headers": {"Authorization": "mine"}}),
    ],
)
async def test_logins(login: str, url: str, options: dict[str, Any]) -> None:
    with Registry(login=login) as registry:
        async with SchemaRegistryClient(url.format(registry.address), **options) as client:
            assert await client.register("s", SCHEMA) == 100
        async with SchemaRegistryClient(f"http://me:secret@{registry.address}") as client:
            with pytest.raises(SchemaRegistryError, match="rejects the login, or requires one: Unauthorized") as caught:
                await client.register("s", SCHEMA)
        assert "secret" not in f"{caught.value} {client!r}"


async def test_a_token_is_fetched_for_each_request(registry: Registry) -> None:
    tokens = iter(["a", "b"])
    async with SchemaRegistryClient(registry.url, bearer_token=lambda: next(tokens)) as client:
        await client.register("s", SCHEMA)
        await client.by_id(100)

    assert [asked.headers["authorization"] for asked in registry.asked] == ["Bearer a", "Bearer b"]


def failing() -> str:
    raise LookupError("no token here")


@pytest.mark.parametrize("token", [failing, lambda: "sec\nret", lambda: None])
async def test_a_token_that_cannot_be_used_is_reported(registry: Registry, token: Callable[[], Any]) -> None:
    async with SchemaRegistryClient(registry.url, bearer_token=token) as client:
        with pytest.raises(
            SchemaRegistryError, match=r"bearer_token (failed.*no token here|returned an invalid)"
        ) as it:
            await client.register("s", SCHEMA)

    assert "sec" not in str(it.value)
    assert registry.asked == []


async def test_a_server_with_tls_is_trusted_by_the_context_and_sees_the_clients_certificate(
    virtual: VirtualTime,
) -> None:
    import http.server
    import ssl
    import threading

    import trustme

    authority: Any = trustme.CA()
    server_side, client_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server_side)
    authority.issue_cert("me@example.org").configure_cert(client_side)
    for side in (server_side, client_side):
        authority.configure_trust(side)
    server_side.verify_mode = ssl.CERT_REQUIRED
    subjects: list[Any] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert isinstance(self.connection, ssl.SSLSocket)
            subjects.append(self.connection.getpeercert())
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"schema": "x"}')

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
            """Not on standard error."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.handle_error = lambda *_: None  # type: ignore[method-assign] # the refused handshake
        server.socket = server_side.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        url = f"https://127.0.0.1:{server.server_address[1]}"
        try:
            async with SchemaRegistryClient(url, ssl_context=client_side) as client:
                assert (await client.by_id(5)).schema == "x"
            async with SchemaRegistryClient(url) as client:
                with pytest.raises(SchemaRegistryError, match=r"Could not connect .*certificate verify failed"):
                    await client.by_id(5)
        finally:
            server.shutdown()
    assert subjects[0]


async def test_concurrent_calls_share_a_request(client: SchemaRegistryClient, registry: Registry) -> None:
    registry.gate.clear()
    calls = [asyncio.ensure_future(client.register("s", SCHEMA)) for _ in range(20)]
    await registry.arrival()
    registry.gate.set()

    assert await asyncio.gather(*calls) == [100] * 20
    assert len(registry.asked) == 1


async def test_a_failure_is_shared_and_not_kept(client: SchemaRegistryClient, registry: Registry) -> None:
    registry.failures = [409]
    found = await asyncio.gather(*(client.register("s", SCHEMA) for _ in range(3)), return_exceptions=True)

    assert [type(each) for each in found] == [SchemaRegistryError] * 3
    assert await client.register("s", SCHEMA) == 100


async def test_a_cancelled_call_leaves_the_request_to_the_others(
    client: SchemaRegistryClient, registry: Registry
) -> None:
    registry.gate.clear()
    first, second = (asyncio.ensure_future(client.register("s", SCHEMA)) for _ in range(2))
    await registry.arrival()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    registry.gate.set()

    assert await second == 100
    assert len(registry.asked) == 1


async def test_the_last_cancelled_call_ends_the_request(client: SchemaRegistryClient, registry: Registry) -> None:
    registry.gate.clear()
    calls = [asyncio.ensure_future(client.register("s", SCHEMA)) for _ in range(2)]
    await registry.arrival()
    for call in calls:
        call.cancel()
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(each) for each in found] == [asyncio.CancelledError] * 2
    requests = asyncio.all_tasks() - {asyncio.current_task()}
    assert not requests or not (await asyncio.wait(requests, timeout=10))[1]  # though no response arrived

    again = asyncio.ensure_future(client.register("s", SCHEMA))
    await registry.arrival()  # a new request
    registry.gate.set()
    assert await again == 100
    await client.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_close_ends_requests_and_leaves_no_task(client: SchemaRegistryClient, registry: Registry) -> None:
    registry.gate.clear()
    call = asyncio.ensure_future(client.register("s", SCHEMA))
    await registry.arrival()
    await client.close()

    with pytest.raises(SchemaRegistryError, match="is closed"):
        await call
    with pytest.raises(SchemaRegistryError, match="is closed"):
        await client.by_id(1)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    await client.close()


async def test_close_waits_for_the_end_of_requests() -> None:
    flights = shared.SingleFlight()
    started, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(3):
                await asyncio.sleep(0)
            ended.set()

    call = asyncio.ensure_future(flights.run("key", work))
    await started.wait()
    await flights.close()

    assert ended.is_set()
    with pytest.raises(SchemaRegistryError, match="is closed"):
        await call
    with pytest.raises(SchemaRegistryError, match="is closed"):
        await flights.run("key", work)


def test_a_client_outlives_its_event_loop(registry: Registry) -> None:
    client = SchemaRegistryClient(registry.url)

    async def use(schema: str) -> int:
        return await client.register("s", schema)

    async def end() -> None:
        await client.close()

    assert [asyncio.run(use(SCHEMA)), asyncio.run(use(OTHER))] == [100, 101]
    asyncio.run(end())


async def test_a_client_is_for_one_event_loop(client: SchemaRegistryClient) -> None:
    await client.register("s", SCHEMA)

    def elsewhere() -> None:
        asyncio.run(client.by_id(100))

    with pytest.raises(WrongEventLoop, match="one client for each event loop"):
        await asyncio.to_thread(elsewhere)


@pytest.mark.parametrize(
    ("arguments", "options", "sentence"),
    [
        ("registry:8081", {}, "must be like http://host:8081"),
        ([], {}, "at least one URL"),
        ("http://a:1,http://b:2", {}, "not a list. Pass several addresses as a Python list"),
        ("http://u:p@ss/x@a", {}, r"and pass basic_auth=\(user, password\)"),
        ("http://a", {"basic_auth": ("u:v", "p")}, "must not contain ':'"),
        ("http://a", {"basic_auth": ("u", "p"), "bearer_token": "t"}, "exclude each other"),
        ("http://u:secret@a", {"bearer_token": "t"}, "use one"),
        ("http://a", {"bearer_token": "secret\n"}, "invalid bearer_token"),
        ("http://a", {"headers": {"X": "secret\r\n"}}, "invalid header 'X'"),
        ("http://a", {"headers": {"X": "secret "}}, "invalid header 'X'"),
        ("http://a", {"headers": {"X": 5}}, "invalid header 'X'"),
        ("http://a", {"headers": {"X Y": "secret"}}, "invalid header 'X Y'"),
        ("http://a", {"headers": {"Content-Length": "3"}}, "'Content-Length' .* is set by the client"),
        ("http://a", {"headers": {"authorization": "secret"}, "bearer_token": "t"}, "'authorization' .* is set by"),
        ("http://u:p@a", {"headers": {"Authorization": "secret"}}, "'Authorization' .* is set by the client"),
        ("http://a", {"bearer_token": "secret "}, "invalid bearer_token"),
        ("http://a", {"timeout_s": 0}, "invalid timeout_s=0"),
        ("http://a", {"latest_ttl_s": float("nan")}, "invalid latest_ttl_s=nan"),
    ],
)
def test_invalid_arguments_are_refused(arguments: Any, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as caught:
        SchemaRegistryClient(arguments, **options)

    assert "secret" not in str(caught.value)


async def test_an_address_that_cannot_be_asked_is_reported_as_one(virtual: VirtualTime) -> None:
    async with SchemaRegistryClient(f"http://{'a' * 70}.ä..local:8081") as client:
        with pytest.raises(SchemaRegistryError, match="Could not connect"):
            await client.by_id(1)


@pytest.mark.parametrize("content", [b"<html>", b"[]", b"{}", b'{"schema": 5}', b'{"schema": "x", "references": [1]}'])
async def test_a_server_that_is_not_a_schema_registry_is_reported(virtual: VirtualTime, content: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(content) + content)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, SchemaRegistryClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as client:
        with pytest.raises(SchemaRegistryError, match="is not a schema registry"):
            await client.by_id(1)


def test_an_import_loads_no_other_library() -> None:
    code = (
        "import sys, aioproducer.serializers.schema_registry as s\n"
        "for name in s.__all__: getattr(s, name)\n"
        "print([m for m in ('httpx', 'fastavro', 'jsonschema', 'google.protobuf') if m in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert found.stdout.strip() == "[]"


async def test_a_missing_library_is_reported_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from google.protobuf.timestamp_pb2 import Timestamp

    from aioproducer.serializers.schema_registry import AvroSerializer, JsonSchemaSerializer, ProtobufSerializer

    client = SchemaRegistryClient("http://registry:8081")
    cases: list[tuple[str, str, Callable[[], object]]] = [
        ("httpx", "avro", lambda: SchemaRegistryClient("http://registry:8081")),
        ("fastavro", "avro", lambda: AvroSerializer(client, SCHEMA)),
        ("jsonschema", "json-schema", lambda: JsonSchemaSerializer(client, "{}")),
        ("google.protobuf.message", "protobuf", lambda: ProtobufSerializer(client, Timestamp)),
    ]
    for module, extra, create in cases:
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            with pytest.raises(ConfigError, match=rf"pip install 'aioproducer\[{extra}\]'"):
                create()


async def test_a_registry_that_does_not_respond_in_time_is_reported(registry: Registry, virtual: VirtualTime) -> None:
    registry.gate.clear()
    async with SchemaRegistryClient(registry.url, timeout_s=0.01) as client:
        with pytest.raises(
            SchemaRegistryError, match=r"Could not connect .*: (no response in 0\.01 s|\w+Timeout)"
        ) as it:
            await client.by_id(1)

    assert it.value.retriable
    assert len(virtual.pauses) == 2


async def test_a_response_is_bounded(
    client: SchemaRegistryClient, monkeypatch: pytest.MonkeyPatch, registry: Registry
) -> None:
    monkeypatch.setattr(client_module, "_MOST_BYTES", 100)
    await client.register("s", SCHEMA)
    await client.register("long", '{"type":"string"}' + " " * 100)

    assert (await client.by_id(100)).schema == SCHEMA
    with pytest.raises(SchemaRegistryError, match="its response is larger than 100 bytes"):
        await client.by_id(101)


async def test_a_cancelled_pause_ends_the_request(
    client: SchemaRegistryClient, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused = asyncio.Event()

    async def pause(seconds: float) -> None:
        paused.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(client_module, "_sleep", pause)
    registry.failures = [503]
    call = asyncio.ensure_future(client.register("s", SCHEMA))
    await paused.wait()
    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call
    await client.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert len(registry.asked) == 1


async def test_a_header_of_the_user_replaces_ours_whatever_its_case(registry: Registry) -> None:
    async with SchemaRegistryClient(registry.url, headers={"ACCEPT": "text/html", "X-Team": "shop"}) as client:
        await client.register("s", SCHEMA)

    (asked,) = registry.asked
    assert (asked.headers["accept"], asked.headers["x-team"]) == ("text/html", "shop")
    assert asked.headers["accept-encoding"] == "identity"


async def test_a_token_that_cannot_be_sent_is_not_shown() -> None:
    async with SchemaRegistryClient("http://localhost:1", bearer_token=lambda: "SECRET ") as client:
        with pytest.raises(SchemaRegistryError, match="bearer_token returned an invalid token") as caught:
            await client.latest("s")

    assert not caught.value.retriable
    assert "SECRET" not in str(caught.value)


async def test_a_token_must_come_within_the_time_of_a_request(registry: Registry, virtual_clock: VirtualClock) -> None:
    asked = asyncio.Event()

    async def token() -> str:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with SchemaRegistryClient(registry.url, bearer_token=token, timeout_s=500.0) as client:
        waiting = asyncio.create_task(client.latest("s"))
        for _ in range(client_module._ROUNDS):
            await asked.wait()
            asked.clear()
            virtual_clock.advance(501.0)
        with pytest.raises(SchemaRegistryError, match="no response in 500 s"):
            await waiting


async def test_a_compressed_response_is_refused_before_it_is_read() -> None:
    """Some bytes of it may become gigabytes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: zstd\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with SchemaRegistryClient(f"http://127.0.0.1:{port}") as client:
            with pytest.raises(SchemaRegistryError, match=r"sent a response that is encoded \('zstd'\)"):
                await client.latest("s")


@pytest.mark.parametrize("content", [b"[" * 200_000, b'{"id": true}'])
async def test_an_answer_without_a_schema_id_is_refused(content: bytes) -> None:
    with pytest.raises(SchemaRegistryError, match="is not a schema registry"):
        api.id_in("http://a", api.answer_in("http://a", content))


def test_a_response_whose_version_is_no_number_is_refused() -> None:
    reference = {"name": "n", "subject": "s", "version": float("inf")}
    with pytest.raises(SchemaRegistryError, match="its response has no schema"):
        api.registered_in("http://a", {"id": 1, "version": 1, "schema": "{}", "references": [reference]})


async def test_a_client_is_closed_in_its_own_event_loop(client: SchemaRegistryClient) -> None:
    await client.register("s", SCHEMA)

    with pytest.raises(WrongEventLoop, match="close it there"):
        await asyncio.to_thread(asyncio.run, client.close())

    assert await client.register("t", SCHEMA) == 100, "it still works"


async def test_an_environment_that_httpx_refuses_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "ftp://me:SECRET@a")
    async with SchemaRegistryClient("http://a") as client:
        with pytest.raises(SchemaRegistryError, match=r"HTTP client cannot be created .*HTTP_PROXY") as caught:
            await client.latest("s")

    assert "SECRET" not in str(caught.value)
