"""Asks the program's own callbacks for what to log in with, and keeps what they say away from whoever must not read it."""

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
    """What the callback gives, as ``read`` understands it. What is no coroutine function is called in a thread.

    Raises `AuthenticationError` where it gives what cannot be used, `BrokerConnectionError` where it raises anything but a
    `KafkaError`: that names the exception's type and no more, for its text, its cause and the frames of its traceback may
    hold what nobody may see. Cancellation: that of the callback; a callback that is cancelled by itself has failed.
    """
    task = asyncio.current_task()
    assert task is not None
    cancelled_before = task.cancelling()
    failure: KafkaError
    try:
        return read(await _called(call, threads))
    except ConfigError as error:  # nothing that waiting would cure
        failure = AuthenticationError(str(error))
    except KafkaError as error:
        failure = error.with_traceback(None)
        failure.__cause__ = failure.__context__ = None
    except (Exception, asyncio.CancelledError) as error:  # the program's own code
        failure = BrokerConnectionError(f"{option} failed; it raised {type(error).__name__}.")
    if task.cancelling() > cancelled_before:
        raise asyncio.CancelledError  # whatever the callback made of it
    raise failure


async def _called(call: Callable[[], object], threads: Blocking) -> object:
    if iscoroutinefunction(call) or iscoroutinefunction(getattr(call, "__call__", None)):  # noqa: B004 - what kind
        given = call()
    else:
        given = await threads.run(call)
    return await given if isawaitable(given) else given


def is_utf_8(text: str) -> bool:
    """Whether it can be said to a broker: text with half a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
