"""A program that calls another client's method gets an error that names the method here."""

from __future__ import annotations

import pickle
import re
from unittest.mock import create_autospec

import pytest

from aioproducer import Producer, SyncProducer
from aioproducer._config.other_clients import METHODS

SERVERS = "localhost:9092"


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("kind", [Producer, SyncProducer])
def test_the_name_raises_an_error_that_names_ours(kind: type[Producer | SyncProducer], name: str) -> None:
    producer = kind(SERVERS)
    with pytest.raises(
        AttributeError, match=f"^{name!r} is .*'s name, and {kind.__name__} has no such method; "
    ) as caught:
        getattr(producer, name)
    assert caught.value.name == name
    assert ("await" in str(caught.value)) <= (kind is Producer)
    assert "{" not in str(caught.value)


@pytest.mark.parametrize("kind", [Producer, SyncProducer])
def test_methods_named_in_the_messages_exist(kind: type[Producer | SyncProducer]) -> None:
    producer = kind(SERVERS)
    for name, (_, instead) in METHODS.items():
        for method in re.findall(r"(\w+)\(", instead):
            assert hasattr(producer, method), (name, method)
        assert name not in instead.replace("partitions_for", "")


def test_the_async_producer_is_awaited() -> None:
    with pytest.raises(AttributeError, match=r"use await enqueue\(topic, value.* or await send\("):
        Producer(SERVERS).produce  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match=r"use close\(\), or `with`, which closes"):
        SyncProducer(SERVERS).stop  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("kind", [Producer, SyncProducer])
def test_the_names_exist_in_no_other_sense(kind: type[Producer | SyncProducer]) -> None:
    producer = kind(SERVERS)
    assert not any(hasattr(producer, name) or hasattr(kind, name) for name in METHODS)
    assert not set(METHODS) & set(dir(producer))
    assert {"send", "close", "config", "flush"} <= set(dir(producer))


def test_a_program_can_give_a_name_a_meaning() -> None:
    class Polled(Producer):
        def poll(self) -> int:
            return 0

    producer = Polled(SERVERS)
    assert producer.poll() == 0
    assert "poll" in dir(producer)
    assert "produce" not in dir(producer)


def test_an_autospec_can_be_made() -> None:
    mock = create_autospec(Producer, instance=True)
    with pytest.raises(TypeError, match="unexpected keyword argument 'time'"):
        mock.close(time=3)


def test_an_unknown_name_is_refused_as_ever() -> None:
    with pytest.raises(AttributeError, match="object has no attribute 'sendd'"):
        Producer(SERVERS).sendd  # type: ignore[attr-defined]  # noqa: B018


def test_the_error_of_pickling_names_what_can_be_pickled() -> None:
    with pytest.raises(TypeError, match="Pickle its config"):
        pickle.dumps(Producer(SERVERS))


async def test_the_error_of_the_wrong_kind_of_with_names_the_right_one() -> None:
    """Python 3.14 says it in its own words."""
    kinds = (AttributeError, TypeError)
    with pytest.raises(kinds, match=r"Enter a Producer with `async with`|use 'async with'"), Producer(SERVERS):  # type: ignore[attr-defined]
        pass
    with pytest.raises(kinds, match=r"Enter a SyncProducer with `with`|use 'with'"):
        async with SyncProducer(SERVERS):  # type: ignore[attr-defined]
            pass
    assert not hasattr(Producer(SERVERS), "__enter__")
    assert "__aenter__" in dir(Producer(SERVERS))
    assert "__aenter__" not in dir(SyncProducer(SERVERS))


def test_a_class_behind_the_producer_gives_such_a_name_its_meaning() -> None:
    class Service:
        def stop(self) -> str:
            return "stopped"

    class Shop(Producer, Service):
        pass

    assert Shop("localhost:9092").stop() == "stopped"
    with pytest.raises(AttributeError, match="'poll' is confluent-kafka's name"):
        _ = Shop("localhost:9092").poll  # type: ignore[attr-defined]  # that is the question
