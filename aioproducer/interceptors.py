"""Lets an application look at, and change, every record on its way out (KIP-42).

What is promised, as in Java's ``ProducerInterceptors``: an interceptor that raises is logged and skipped, and the
record goes on as the one before left it; nothing that an interceptor does reaches the caller of ``send()``. Where every
interceptor is plain, no coroutine is ever made.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import TypeAlias, cast

from aioproducer.types import Headers, ProducerRecord, RecordMetadata

__all__ = ["ProducerInterceptor", "ProducerInterceptors"]

_logger = logging.getLogger(__name__)


class ProducerInterceptor:
    """What an interceptor may do; every method may be plain or ``async def``, and what is left out costs nothing.

    Subclassing is not needed: an object with one or more of these methods will do. Interceptors run in the order of the
    ``interceptors`` option, on the event loop of the producer: a plain one that takes long holds up everything.
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord | Awaitable[ProducerRecord]:
        """The record to send in place of ``record``, before its key and value are serialized; often ``record`` itself.

        The topic should stay within what the caller is allowed to write. An exception is logged and ``record`` goes on.
        """
        return record

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: BaseException | None, headers: Headers
    ) -> Awaitable[None] | None:
        """Called once for each record: with its metadata when it was written, with the error when it was not.

        ``headers`` are those that were sent (KIP-512). Plain methods run before the caller's await ends, async ones
        in a task of the producer.
        """
        return None

    def close(self) -> Awaitable[None] | None:
        """Called once, after the last record was told its outcome."""
        return None


_OnSend: TypeAlias = Callable[[ProducerRecord], object]
_OnAcknowledgement: TypeAlias = Callable[[RecordMetadata | None, BaseException | None, Headers], object]
_Close: TypeAlias = Callable[[], object]


class ProducerInterceptors:
    """Runs interceptors one after the other, and keeps their exceptions from everybody else.

    Each method returns its result at once where the interceptors are plain, and an awaitable from the first async one
    on; the caller awaits it, or runs it in a task that it owns.
    """

    __slots__ = ("_close", "_on_acknowledgement", "_on_send")

    def __init__(self, interceptors: Iterable[object] = ()) -> None:
        chain = tuple(interceptors)
        self._on_send = cast("tuple[_OnSend, ...]", _hooks(chain, "on_send"))
        self._on_acknowledgement = cast("tuple[_OnAcknowledgement, ...]", _hooks(chain, "on_acknowledgement"))
        self._close = cast("tuple[_Close, ...]", _hooks(chain, "close"))

    @property
    def sees_send(self) -> bool:
        """Whether any interceptor looks at records before they are sent."""
        return bool(self._on_send)

    @property
    def sees_acknowledgement(self) -> bool:
        """Whether any interceptor looks at outcomes; where none does, the producer need not keep headers for them."""
        return bool(self._on_acknowledgement)

    def on_send(self, record: ProducerRecord) -> ProducerRecord | Coroutine[None, None, ProducerRecord]:
        """The record as the last interceptor left it, or a coroutine that returns it."""
        for position, hook in enumerate(self._on_send):
            try:
                result = hook(record)
            except Exception:  # foreign code
                _log_on_send(hook, record)
                continue
            if isinstance(result, Awaitable):
                return self._finish_on_send(position, cast("Awaitable[object]", result), record)
            record = _record_or_previous(hook, result, record)
        return record

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: BaseException | None, headers: Headers = ()
    ) -> Coroutine[None, None, None] | None:
        """Tells every interceptor; returns None, or a coroutine that finishes what the async ones began."""
        pending: list[tuple[object, Awaitable[object]]] | None = None
        for hook in self._on_acknowledgement:
            try:
                result = hook(metadata, error, headers)
            except Exception:  # foreign code
                _log("on_acknowledgement", hook)
                continue
            if isinstance(result, Awaitable):
                pending = pending or []
                pending.append((hook, cast("Awaitable[object]", result)))
        return None if pending is None else _finish("on_acknowledgement", pending)

    def close(self) -> Coroutine[None, None, None] | None:
        """Closes every interceptor; returns None, or a coroutine that finishes what the async ones began."""
        pending: list[tuple[object, Awaitable[object]]] = []
        for hook in self._close:
            try:
                result = hook()
            except Exception:  # foreign code
                _log("close", hook)
                continue
            if isinstance(result, Awaitable):
                pending.append((hook, cast("Awaitable[object]", result)))
        return _finish("close", pending) if pending else None

    async def _finish_on_send(self, position: int, result: Awaitable[object], record: ProducerRecord) -> ProducerRecord:
        hook = self._on_send[position]
        try:
            record = _record_or_previous(hook, await result, record)
        except Exception:  # foreign code
            _log_on_send(hook, record)
        for hook in self._on_send[position + 1 :]:
            try:
                answer = hook(record)
                if isinstance(answer, Awaitable):
                    answer = await cast("Awaitable[object]", answer)
            except Exception:  # foreign code
                _log_on_send(hook, record)
                continue
            record = _record_or_previous(hook, answer, record)
        return record


def _hooks(interceptors: Sequence[object], name: str) -> tuple[object, ...]:
    """The bound methods called ``name``, without those that only inherit the base class's way of doing nothing."""
    inherited = getattr(ProducerInterceptor, name)
    methods = [getattr(interceptor, name, None) for interceptor in interceptors]
    return tuple(m for m in methods if callable(m) and getattr(m, "__func__", None) is not inherited)


def _record_or_previous(hook: object, result: object, previous: ProducerRecord) -> ProducerRecord:
    if isinstance(result, ProducerRecord):
        return result
    _logger.error(
        "Interceptor %s.on_send returned %s for topic %s, and not a ProducerRecord; the record goes on without it. "
        "on_send must return the record, changed or not.",
        _owner(hook),
        type(result).__name__,
        previous.topic,
    )
    return previous


async def _finish(name: str, pending: Sequence[tuple[object, Awaitable[object]]]) -> None:
    for hook, awaitable in pending:
        try:
            await awaitable
        except Exception:  # foreign code
            _log(name, hook)


def _log_on_send(hook: object, record: ProducerRecord) -> None:
    _logger.warning(
        "Interceptor %s.on_send failed for topic %s, partition %s; the record goes on without it.",
        _owner(hook),
        record.topic,
        record.partition,
        exc_info=True,
    )


def _log(name: str, hook: object) -> None:
    _logger.warning("Interceptor %s.%s failed; the others go on.", _owner(hook), name, exc_info=True)


def _owner(hook: object) -> str:
    return type(getattr(hook, "__self__", hook)).__name__
