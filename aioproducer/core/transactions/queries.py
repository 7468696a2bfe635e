"""A question to the coordinator of a group or a transactional id that changes nothing, and so may be asked at any time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from aioproducer.core.transactions.requests import CoordinatorKey
from aioproducer.errors import BrokerError
from aioproducer.protocol.error_codes import ErrorCode, broker_error
from aioproducer.protocol.message import Request

__all__ = ["CoordinatorQuery", "is_of_another_broker", "query_error"]

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True, eq=False)
class CoordinatorQuery(Generic[T_co]):
    """One question, ready to be sent to the coordinator in the versions ``lowest`` to ``highest``.

    ``check`` is for the answer, and raises `ProtocolError` for what no broker could mean. ``read`` tells what it says, or
    raises `BrokerError`: where that is retriable, the same is to be asked again.
    """

    about: CoordinatorKey
    message: Request[Any]
    lowest: int
    highest: int
    check: Callable[[Any], object]
    read: Callable[[Any], T_co]


#: Who may not ask needs one of these rights; what they are about is put in.
_RIGHTS: Mapping[int, str] = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "It needs DESCRIBE, which READ implies, on group {!r}.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "It needs DESCRIBE, which WRITE implies, on transactional id {!r}.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "It needs DESCRIBE, which READ and WRITE imply, on topic {!r}.",
}

_ELSEWHERE = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


def query_error(code: int, about: str, message: str | None = None) -> BrokerError:
    """The error for a code, with the right that is missing where it is one; ``about`` is what it is refused for."""
    error = broker_error(code, message)
    right = _RIGHTS.get(code)
    return error if right is None else broker_error(code, f"{error.message} {right.format(about)}")


def is_of_another_broker(error: BrokerError) -> bool:
    """Whether the coordinator has to be looked for again."""
    return error.code in _ELSEWHERE
