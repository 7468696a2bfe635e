"""Copies exceptions that are kept, so that none keeps the frames that it passed through."""

from __future__ import annotations

from copy import copy
from typing import TypeVar, cast

__all__ = ["detached"]

_E = TypeVar("_E", bound=BaseException)


def detached(error: _E) -> _E:
    """Return a copy of an exception and of its causes, without tracebacks and without ``__context__``.

    A traceback refers to frames, and these to their variables. A `Delivery` among them would refer to the exception through
    the outcome of its batch, and such a circle is never collected, as the garbage collector does not track deliveries: a
    failure that is never observed would not be reported. A copy, because the original may be raised again later.
    """
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        new = cast("_E", group.derive([detached(each) for each in group.exceptions]))
    else:
        new = _copied(error)
    new.__cause__ = None if error.__cause__ is None else detached(error.__cause__)  # suppresses the context as well
    return new


def _copied(error: _E) -> _E:
    try:
        return copy(error)
    except Exception:  # foreign code: a class whose constructor needs more than `args`
        new = error.with_traceback(None)
        new.__context__ = None
        return new
