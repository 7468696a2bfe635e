"""Checks what callers hand over, before anything is done with it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from math import inf
from numbers import Real
from sys import float_info
from typing import cast, overload

from aioproducer.errors import InvalidRecord, KafkaError

__all__ = ["check_hook", "check_timeout", "is_async", "is_timeout"]


def is_timeout(timeout: object) -> bool:
    """Whether it is a number of seconds that can be waited for, infinity among them; True is no number here."""
    if isinstance(timeout, bool) or not isinstance(timeout, Real):
        return False
    seconds = cast("float", timeout)
    return 0 <= seconds <= float_info.max or seconds == inf


@overload
def check_timeout(timeout: float, refusal: Callable[[str], KafkaError]) -> float: ...


@overload
def check_timeout(timeout: float | None, refusal: Callable[[str], KafkaError]) -> float | None: ...


def check_timeout(timeout: float | None, refusal: Callable[[str], KafkaError]) -> float | None:
    """The timeout in seconds, None where none was given; raises what ``refusal`` makes of the reason."""
    if timeout is None:
        return None
    if not is_timeout(timeout):
        raise refusal(
            f"timeout={timeout!r}: a timeout is a number of seconds from 0; None leaves it to the producer's options."
        )
    return float(timeout)


def check_hook(name: str, hook: object, call: str) -> None:
    """Raise `InvalidRecord` where it is neither None nor a callable; ``call`` shows how it would be called."""
    if hook is not None and not callable(hook):
        raise InvalidRecord(f"{name}={hook!r} cannot be called; give a function that takes {call}, or None.")


def is_async(function: object) -> bool:
    """Whether calling it would make a coroutine, as far as that can be told before."""
    if inspect.iscoroutinefunction(function):
        return True
    return callable(function) and inspect.iscoroutinefunction(type(function).__call__)
