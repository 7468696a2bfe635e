"""The names of other clients' producer methods, each with the equivalent here.

For a program that is ported from confluent-kafka, aiokafka, kafka-python or Java, the AttributeError names the equivalent.
The names do not exist in any other sense: ``hasattr`` returns False, ``dir(producer)`` and type checkers do not list them,
and a subclass may define them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar, cast

__all__ = ["METHODS", "explain_names_of_other_clients"]

_C = TypeVar("_C", bound=type)

_CONFLUENT: Final = "confluent-kafka"
_JAVA: Final = "Java"
_TRANSACTION: Final = "or `{async_}with producer.transaction() as txn:`, which begins and ends it"

#: The name, its client, and what to use instead. ``await `` and ``async `` are inserted for the asynchronous producer.
METHODS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "produce": (
            _CONFLUENT,
            "use {await_}enqueue(topic, value, key=..., on_delivery=...), which returns a Delivery, or {await_}send(...), "
            "which waits for the acknowledgement",
        ),
        "produce_batch": (_CONFLUENT, "use {await_}send_many(topic, values)"),
        "poll": (_CONFLUENT, "leave it out: callbacks are called as soon as a record has its outcome"),
        "cluster_id": (_CONFLUENT, "use {await_}list_topics(), which returns it"),
        "set_sasl_credentials": (_CONFLUENT, "pass sasl_credentials_provider=..., which is called for each login"),
        "send_and_wait": ("aiokafka", "use {await_}send(...), which waits for the acknowledgement"),
        "stop": ("aiokafka", "use {await_}close(), or `{async_}with`, which closes at its end"),
        "create_batch": ("aiokafka", "use {await_}send_many(topic, values), or send_table() for columns"),
        "send_batch": ("aiokafka", "use {await_}send_many(topic, values), or send_table() for columns"),
        "bootstrap_connected": ("kafka-python", "use health(), or {await_}ready() to wait for a broker"),
        "partitionsFor": (_JAVA, "use {await_}partitions_for(topic)"),
        "initTransactions": (_JAVA, f"use {{await_}}init_transactions(), {_TRANSACTION}"),
        "beginTransaction": (_JAVA, f"use {{await_}}begin_transaction(), {_TRANSACTION}"),
        "commitTransaction": (_JAVA, f"use {{await_}}commit_transaction(), {_TRANSACTION}"),
        "abortTransaction": (_JAVA, f"use {{await_}}abort_transaction(), {_TRANSACTION}"),
        "prepareTransaction": (_JAVA, "use {await_}prepare_transaction()"),
        "completeTransaction": (_JAVA, "use {await_}complete_transaction(state)"),
        "sendOffsetsToTransaction": (_JAVA, "use {await_}send_offsets_to_transaction(offsets, group)"),
        "clientInstanceId": (_JAVA, "use {await_}client_instance_id()"),
    }
)

#: What the other kind of ``with`` looks for, and what to say instead of "does not support the context manager protocol".
_ENTERED_BY_ASYNC_WITH: Final = ("__enter__", "Enter a Producer with `async with`; `with` is for a SyncProducer.")
_ENTERED_BY_WITH: Final = ("__aenter__", "Enter a SyncProducer with `with`; `async with` is for a Producer.")
_NOT_OWN: Final = frozenset({*METHODS, _ENTERED_BY_ASYNC_WITH[0], _ENTERED_BY_WITH[0]})


class _OtherClientsName:
    """A descriptor, because ``__getattr__`` would slow down the lookup of every existing attribute."""

    def __init__(self, cls: type, name: str, message: str) -> None:
        self._cls = cls
        self._name = name
        self._message = message

    def __get__(self, instance: object, owner: type) -> Any:
        """Return what a class behind the producer's in a subclass's method resolution order means by the name."""
        behind = owner.__mro__[owner.__mro__.index(self._cls) + 1 :]
        for cls in behind:
            if self._name in vars(cls):
                bound = owner if instance is None else instance
                return getattr(cast("object", super(self._cls, bound)), self._name)
        raise AttributeError(self._message, name=self._name, obj=None)  # with an obj, Python would suggest another name


def explain_names_of_other_clients(*, is_async: bool) -> Callable[[_C], _C]:
    """A decorator for a producer's class, whose methods are awaited or not."""
    words = {"await_": "await ", "async_": "async "} if is_async else {"await_": "", "async_": ""}

    def give_names(cls: _C) -> _C:
        for name, (client, instead) in METHODS.items():
            message = f"{name!r} is {client}'s name, and {cls.__name__} has no such method; {instead.format(**words)}."
            setattr(cls, name, _OtherClientsName(cls, name, message))
        name, message = _ENTERED_BY_ASYNC_WITH if is_async else _ENTERED_BY_WITH
        setattr(cls, name, _OtherClientsName(cls, name, message))
        setattr(cls, "__dir__", _own_names)  # noqa: B010 - a type checker reports the assignment as an error
        return cls

    return give_names


def _own_names(producer: object) -> list[str]:
    return [name for name in object.__dir__(producer) if name not in _NOT_OWN or hasattr(producer, name)]
