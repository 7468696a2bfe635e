"""The type parameters of producers at run time; tests/lint/producer_types.py has those of the type checkers."""

from __future__ import annotations

import gc
import inspect
import weakref
from typing import Any, TypeVar, cast

import pytest

from aioproducer import JsonSerializer, Producer, ProducerConfig, StringSerializer, SyncProducer
from aioproducer.testing import MockProducer
from aioproducer.transactions.context import Transaction

_T = TypeVar("_T", contravariant=True)


class Orders(Producer[str, dict[str, int]]):
    """A class with parameters."""


class Keyed(Producer[str, _T]):
    """A class that leaves one open."""


@pytest.mark.parametrize("cls", [Producer, SyncProducer, MockProducer, Transaction])
def test_a_class_can_be_subscripted(cls: type) -> None:
    alias: object = cast("Any", cls)[str, int]
    assert getattr(alias, "__origin__", None) is cls
    assert getattr(alias, "__args__", None) == (str, int)


def test_a_subscripted_class_creates_a_producer() -> None:
    assert type(Producer[str, bytes]("localhost:9092")) is Producer
    assert type(Keyed[int]("localhost:9092")) is Keyed


async def test_subclasses_with_parameters_send() -> None:
    class Mock(MockProducer[str, object]):
        pass

    async with Mock(topics={"orders": 1}, value_serializer=JsonSerializer()) as producer:
        await producer.send("orders", {"number": 5}, key="alice")
    assert [record.value for record in producer.history()] == [{"number": 5}]


def test_parameters_do_not_keep_a_producer_alive() -> None:
    found = weakref.ref(Producer[str, bytes]("localhost:9092"))
    gc.collect()
    assert found() is None


def test_serializers_that_are_not_given_leave_those_of_a_configuration() -> None:
    config = ProducerConfig("localhost:9092", value_serializer=JsonSerializer())
    assert Producer(config).config is config
    assert SyncProducer(config).config is config
    changed = Producer(config, key_serializer=StringSerializer()).config
    assert (changed.key_serializer, changed.value_serializer) == (StringSerializer(), JsonSerializer())
    assert Producer(config, value_serializer=None).config.value_serializer is None


@pytest.mark.parametrize("cls", [Producer, SyncProducer, MockProducer])
def test_signatures_show_the_serializers(cls: type) -> None:
    assert {"key_serializer", "value_serializer", "options"} <= set(inspect.signature(cls).parameters)
