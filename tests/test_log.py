"""Each line of the log says which producer it is from, and what it is about, in its text and in its fields."""

from __future__ import annotations

import ast
import asyncio
import logging
from pathlib import Path

import pytest

import aioproducer
from aioproducer import Delivery, Producer, ProducerRecord
from aioproducer.testing import FakeBroker
from tests.conftest import opened, until

#: These log before there is a producer, or whichever there are; several may share a client of a schema registry.
WITHOUT_A_CLIENT = {
    "_config/properties.py",
    "record/c_functions.py",
    "runtime/log.py",
    "serializers/schema_registry/client.py",
}


def of_producers(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [line for line in caplog.records if line.name.startswith("aioproducer")]


def fields(line: logging.LogRecord, *names: str) -> dict[str, object]:
    return {name: getattr(line, name) for name in names if hasattr(line, name)}


async def test_the_lines_of_two_producers_can_be_distinguished(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with FakeBroker(topics={"orders": 1}) as one, FakeBroker(topics={"orders": 1}) as other:
        for broker in (one, other):
            broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=1)
        async with opened(one, client_id="shop-1") as first, opened(other, client_id="100%-billing") as second:
            await first.send("orders", b"value")
            await second.send("orders", b"value")

    lines = of_producers(caplog)
    assert {line.client_id for line in lines} == {"shop-1", "100%-billing"}  # type: ignore[attr-defined]
    for line in lines:
        assert line.getMessage().startswith(f"[{line.client_id}] ")  # type: ignore[attr-defined]
    again = [line for line in lines if "is sent again" in line.getMessage()]
    assert [fields(line, "client_id", "topic", "partition") for line in again] == [
        {"client_id": "shop-1", "topic": "orders", "partition": 0},
        {"client_id": "100%-billing", "topic": "orders", "partition": 0},
    ]


async def test_a_line_is_that_of_the_code_that_logs(broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=1)
    async with opened(broker) as producer:
        await producer.send("orders", b"value")

    (line,) = [line for line in of_producers(caplog) if "is sent again" in line.getMessage()]
    assert (line.filename, line.funcName) == ("retries.py", "_send_again")


async def test_a_lost_connection_names_the_broker_in_a_field(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with opened(broker) as producer:
        await producer.send("orders", b"value")
        broker.disconnect()
        await until(lambda: any(hasattr(line, "broker_id") for line in caplog.records))

    assert {line.broker_id for line in caplog.records if hasattr(line, "broker_id")} == {1}


async def test_a_bootstrap_server_has_no_id_of_the_clusters(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with opened("127.0.0.1:1", close_timeout_ms=0, client_id="shop"):
        await until(lambda: any("127.0.0.1:1" in line.getMessage() for line in of_producers(caplog)))

    lines = [line for line in of_producers(caplog) if "127.0.0.1:1" in line.getMessage()]
    assert all(line.getMessage().startswith("[shop] ") and not hasattr(line, "broker_id") for line in lines)


async def test_lines_of_a_transactional_producer_name_its_id(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(broker, transactional_id="payments-1", client_id="shop") as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.enqueue("orders", b"value")

    (line,) = [line for line in of_producers(caplog) if "while its transaction is open" in line.getMessage()]
    assert fields(line, "client_id", "transactional_id") == {"client_id": "shop", "transactional_id": "payments-1"}


async def test_exceptions_raised_by_user_code_are_logged_with_client_and_record(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            raise ValueError("never mind")

    def broken(delivery: Delivery) -> None:
        raise ValueError("never mind")

    async with opened(broker, client_id="shop", interceptors=[Broken()]) as producer:
        await producer.send("orders", b"value", partition=2, on_delivery=broken)
        await until(lambda: len(of_producers(caplog)) == 2)

    by_logger = {line.name: fields(line, "client_id", "topic", "partition") for line in of_producers(caplog)}
    about = {"client_id": "shop", "topic": "orders", "partition": 2}
    assert by_logger == {"aioproducer.interceptors": about, "aioproducer": about}
    assert all(line.exc_info for line in of_producers(caplog))


def test_a_message_without_arguments_may_hold_any_sign(caplog: pytest.LogCaptureFixture) -> None:
    Producer("localhost:9092", client_id="50%").log.warning("100 % of it, %s and all")

    assert caplog.messages == ["[50%] 100 % of it, %s and all"]


def test_no_other_module_has_its_own_logger() -> None:
    package = Path(aioproducer.__file__).parent
    own: set[str] = set()
    for path in package.rglob("*.py"):
        place = path.relative_to(package).as_posix()
        if place.startswith(("spark/", "cli/", "testing/")):
            continue
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        if any("getLogger" in ast.unparse(call.func) for call in calls):
            own.add(place)

    assert own == WITHOUT_A_CLIENT


async def test_a_sync_producers_lines_name_it(caplog: pytest.LogCaptureFixture) -> None:
    with FakeBroker(topics={"orders": 1}) as broker:

        def scenario() -> None:
            with aioproducer.SyncProducer(broker.bootstrap_servers, client_id="script") as producer:
                producer.send("orders", b"value", on_delivery=lambda delivery: 1 / 0)

        await asyncio.to_thread(scenario)

    assert {getattr(line, "client_id", None) for line in of_producers(caplog)} == {"script"}
