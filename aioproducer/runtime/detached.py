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
    failure that is never observed would not be reported. A copy, because the original may be raised again later; one that
    cannot be copied loses its own traceback instead.
    """
    return _detached(error, {})


def _detached(error: _E, done: dict[int, BaseException]) -> _E:
    """``done``: the copies so far, by the id of the original, since Python allows an exception to be its own cause."""
    known = done.get(id(error))
    if known is not None:
        return cast("_E", known)
    cause, kind = error.__cause__, type(error)
    done[id(error)] = error  # for a group that is the cause of one of its exceptions
    new = cast("_E", _group(error, done)) if issubclass(kind, BaseExceptionGroup) else _copied(error)
    done[id(error)] = new
    new.__cause__ = None if cause is None else _detached(cause, done)  # suppresses the context as well
    return new


def _group(error: BaseException, done: dict[int, BaseException]) -> BaseException:
    group = cast("BaseExceptionGroup[BaseException]", error)
    new = group.derive([_detached(each, done) for each in group.exceptions])
    for note in getattr(error, "__notes__", ()):
        new.add_note(note)
    return new


def _copied(error: _E) -> _E:
    """Foreign code may define a class whose constructor does not take `args`, or changes them."""
    try:
        new = copy(error)
    except Exception:  # anything that such a constructor may raise
        new = error
    if type(new) is type(error) and new.args == error.args:
        new.__traceback__ = new.__context__ = None
        return new
    error.__traceback__ = error.__context__ = None
    return error
