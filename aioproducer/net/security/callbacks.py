"""Calls the program's credential callbacks, and keeps their results out of errors and logs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from inspect import isawaitable, iscoroutinefunction
from typing import Any, TypeVar

from aioproducer.errors import AuthenticationError, BrokerConnectionError, ConfigError, KafkaError
from aioproducer.net.security.blocking import Blocking

__all__ = ["ask", "is_utf_8"]

_T = TypeVar("_T")


async def ask(option: str, call: Callable[[], object], read: Callable[[Any], _T], threads: Blocking) -> _T:
    """Call the callback and return ``read(result)``. Plain functions are called in a thread.

    Raises `AuthenticationError` if the result cannot be used, and `BrokerConnectionError` if the callback raises
    anything but a `KafkaError`. The message has only the exception's type: its text, its cause and the frames of its
    traceback may hold secrets. Cancellation: cancels the callback; a callback that cancels itself has failed.
    """
    task = asyncio.current_task()
    assert task is not None
    cancelled_before = task.cancelling()
    failure: KafkaError
    try:
        return read(await _called(call, threads))
    except ConfigError as error:  # waiting would not help
        failure = AuthenticationError(str(error))
    except KafkaError as error:
        failure = error.with_traceback(None)
        failure.__cause__ = failure.__context__ = None
    except (Exception, asyncio.CancelledError) as error:  # the program's own code
        failure = BrokerConnectionError(f"{option} failed; it raised {type(error).__name__}.")
    if task.cancelling() > cancelled_before:
        raise asyncio.CancelledError  # whatever the callback did with it
    raise failure


async def _called(call: Callable[[], object], threads: Blocking) -> object:
    if iscoroutinefunction(call) or iscoroutinefunction(getattr(call, "__call__", None)):  # noqa: B004 - what kind
        given = call()
    else:
        given = await threads.run(call)
    return await given if isawaitable(given) else given


def is_utf_8(text: str) -> bool:
    """Whether UTF-8 can encode the text: half a surrogate pair cannot be sent to a broker."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
