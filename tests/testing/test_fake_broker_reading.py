"""Reading records and requests from the fake broker, and waiting for them."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from aioproducer.errors import ConfigError, KafkaTimeoutError
from aioproducer.protocol import encode_request
from aioproducer.protocol.messages import MetadataRequest, ProduceRequest
from aioproducer.record import RecordBatchBuilder, encode_batch
from aioproducer.testing import FakeBroker, FakeCluster
from aioproducer.testing.raw_client import RawClient, produce, record_batch

NOW = 1_700_000_000_000


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"orders": 2}) as broker:
        yield broker


def send(broker: FakeBroker, *values: bytes, partition: int = 0) -> None:
    with RawClient(broker.addresses[1], client_id="app") as client:
        client.ask(produce("orders", {partition: record_batch(*values)}), 9)


def send_record(broker: FakeBroker, key: bytes | None, value: bytes | None, headers: dict[str, bytes | None]) -> None:
    builder = RecordBatchBuilder()
    builder.append(1_700_000_000_000, key, value, list(headers.items()))
    with RawClient(broker.addresses[1]) as client:
        client.ask(produce("orders", b"".join(encode_batch(builder).pieces)), 9)


def test_records_are_reported_with_everything_in_them(broker: FakeBroker) -> None:
    data = record_batch(b"a", b"b", producer_id=3, epoch=2, sequence=10)
    with RawClient(broker.addresses[1]) as client:
        client.ask(produce("orders", {1: data}), 9)

    first, second = broker.records("orders")

    assert (first.topic, first.partition, first.offset, first.value) == ("orders", 1, 0, b"a")
    assert (second.producer_id, second.producer_epoch, second.sequence) == (3, 2, 11)
    assert broker.records("orders", 0) == []
    assert broker.batches("orders", 1)[0].sent == data


def test_requests_are_kept_as_they_were_received(broker: FakeBroker) -> None:
    send(broker, b"a")

    (request,) = broker.requests_of("Produce")

    assert (request.node, request.api, request.version, request.client_id) == (1, "Produce", 9, "app")
    assert isinstance(request.body, ProduceRequest)
    assert request.body.topic_data[0].name == "orders"
    assert request.raw[:4] == b"\0\0\0\x09"
    assert broker.counts == {"Produce": 1}
    broker.forget_requests()
    assert broker.requests == []


def test_connections_are_listed_while_they_are_open(broker: FakeBroker) -> None:
    with RawClient(broker.addresses[1]) as client:
        client.ask(MetadataRequest(topics=None), 9)
        (connection,) = broker.connections(1)
        assert connection.connection == broker.requests[0].connection

    broker.wait_for(lambda b: not b.connections())

    assert [each.is_open for each in broker.connections(closed=True)] == [False]


def test_assert_sent_finds_records_by_value_key_and_headers(broker: FakeBroker) -> None:
    send_record(broker, b"k", b'{"n": 1}', {"trace": b"1", "none": None})
    send_record(broker, None, None, {})

    broker.assert_sent("orders", times=2)
    broker.assert_sent("orders", value='{"n": 1}', key=b"k", headers={"trace": "1", "none": None}, partition=0)
    broker.assert_sent("orders", value=None, key=None, headers=[])
    broker.assert_sent("orders", value=lambda value: value is not None and b"1" in value, times=None)
    broker.assert_sent("orders", value=b"never", times=0)
    broker.assert_sent("nowhere", times=0)
    assert broker.json("orders") == [{"n": 1}, None]


def test_assert_sent_shows_what_is_there_instead(broker: FakeBroker) -> None:
    send_record(broker, b"k", b"actual", {"trace": b"1"})

    with pytest.raises(AssertionError) as caught:
        broker.assert_sent("orders", value=b"wanted")

    assert "value=b'wanted'" in str(caught.value)
    assert "0@0 key=b'k' value=b'actual' headers=[('trace', b'1')]" in str(caught.value)
    with pytest.raises(AssertionError, match="found 1 among 1"):
        broker.assert_sent("orders", value=b"actual", times=2)


def test_waiting_ends_when_the_records_are_there(broker: FakeBroker) -> None:
    later = threading.Timer(0.02, send, args=(broker, b"a", b"b"))
    later.start()

    broker.wait_for(2, topic="orders")

    assert len(broker.records("orders")) == 2
    later.join()


def test_a_wait_that_times_out_reports_what_was_seen(broker: FakeBroker) -> None:
    send(broker, b"a")

    with pytest.raises(KafkaTimeoutError, match=r"2 records; 1 records are in the log, .*'Produce': 1"):
        broker.wait_for(2, timeout=0.01)


async def test_coroutines_wait_without_blocking_the_loop(broker: FakeBroker) -> None:
    waiting = asyncio.create_task(broker.wait_for_async(lambda b: b.count("Produce") == 2))
    for value in (b"a", b"b"):
        await asyncio.to_thread(send, broker, value)

    await waiting

    with pytest.raises(KafkaTimeoutError):
        await broker.wait_for_async(3, timeout=0.01)


async def test_blocking_the_loop_is_refused(broker: FakeBroker) -> None:
    with pytest.raises(ConfigError, match="wait_for_async"):
        broker.wait_for(1)


def test_the_broker_speaks_tls_where_it_is_given_a_certificate(tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl command to make a certificate with")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    new = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    extra = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([openssl, *new.split(), *extra], check=True, capture_output=True)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    trusting = ssl.create_default_context(cafile=str(certificate))

    with FakeBroker(tls=tls) as broker:
        with socket.create_connection(broker.addresses[1]) as plain:
            plain.sendall(b"\0" * 64)
            plain.settimeout(5)
            assert plain.recv(100)[:1] in {b"", b"\x15"}  # a TLS alert
        raw = socket.create_connection(broker.addresses[1])
        with trusting.wrap_socket(raw, server_hostname="127.0.0.1") as encrypted:
            encrypted.sendall(b"".join(encode_request(7, None, MetadataRequest(topics=None), 9)))
            answer = encrypted.recv(65536)

    assert answer[4:8] == b"\0\0\0\x07"


async def test_the_broker_is_also_an_asynchronous_context_manager() -> None:
    async with FakeBroker(topics={"orders": 1}) as broker:
        await asyncio.to_thread(send, broker, b"a")

        await broker.wait_for_async(1)


def test_the_cluster_works_without_sockets_threads_or_time() -> None:
    cluster = FakeCluster()
    cluster.create_topic("orders")
    with FakeBroker(topics={"orders": 1}) as broker:
        send(broker, b"a")
        frame = broker.requests[0].raw

    answers = [cluster.handle(1, frame, now_ms=NOW), cluster.handle(1, frame, now_ms=NOW)]

    assert all(answer is not None for answer in answers)
    assert [record.offset for log in cluster.logs() for record in log.records()] == [0, 1]
    cluster.faults.swallow("Produce")
    assert cluster.handle(1, frame) is None
