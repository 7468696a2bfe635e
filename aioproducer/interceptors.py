"""Lets an application inspect and change every record before it is sent (KIP-42).

As in Java's ``ProducerInterceptors``, an interceptor that raises is logged and skipped, and the record continues as the
previous one returned it; an interceptor's exception never reaches the caller of ``send()``. If every interceptor is plain,
no coroutine is ever created.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import TypeAlias, cast

from aioproducer.runtime.log import ClientLog
from aioproducer.types import Headers, ProducerRecord, RecordMetadata

__all__ = ["ProducerInterceptor", "ProducerInterceptors"]


class ProducerInterceptor:
    """An interceptor; every method may be plain or ``async def``, and a missing method costs nothing.

    Subclassing is not needed: an object with one or more of these methods is enough. Interceptors run in the order of the
    ``interceptors`` option, in the producer's event loop: a slow plain one blocks everything.
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord | Awaitable[ProducerRecord]:
        """Returns the record to send, before its key and value are serialized; often ``record`` itself.

        The caller must be allowed to write to its topic. An exception is logged, and ``record`` is sent.
        """
        return record

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: BaseException | None, headers: Headers
    ) -> Awaitable[None] | None:
        """Called once for each record: with its metadata if it was written, otherwise with the error.

        ``headers`` are those that were sent (KIP-512). Plain methods run before the caller's await ends, async ones
        in a task of the producer.
        """
        return None

    def close(self) -> Awaitable[None] | None:
        """Called once, after the last record has its outcome."""
        return None


_OnSend: TypeAlias = Callable[[ProducerRecord], object]
_OnAcknowledgement: TypeAlias = Callable[[RecordMetadata | None, BaseException | None, Headers], object]
_Close: TypeAlias = Callable[[], object]


class ProducerInterceptors:
    """Runs interceptors one after the other, and logs their exceptions.

    Each method returns its result at once if the interceptors are plain, and an awaitable from the first async one on;
    the caller awaits it, or runs it in a task that it owns.
    """

    __slots__ = ("_close", "_log", "_on_acknowledgement", "_on_send")

    def __init__(self, interceptors: Iterable[object], log: ClientLog) -> None:
        self._log = log.named(__name__)
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
        """Whether any interceptor looks at outcomes; if not, the producer need not keep headers for them."""
        return bool(self._on_acknowledgement)

    def on_send(self, record: ProducerRecord) -> ProducerRecord | Coroutine[None, None, ProducerRecord]:
        """The record that the last interceptor returned, or a coroutine that returns it."""
        for position, hook in enumerate(self._on_send):
            try:
                result = hook(record)
            except Exception:  # foreign code
                _log_on_send(self._log, hook, record)
                continue
            if isinstance(result, Awaitable):
                return self._finish_on_send(position, cast("Awaitable[object]", result), record)
            record = _record_or_previous(self._log, hook, result, record)
        return record

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: BaseException | None, headers: Headers = ()
    ) -> Coroutine[None, None, None] | None:
        """Calls every interceptor; returns None, or a coroutine that finishes the async ones."""
        pending: list[tuple[object, Awaitable[object]]] | None = None
        for hook in self._on_acknowledgement:
            try:
                result = hook(metadata, error, headers)
            except Exception:  # foreign code
                _log(self._log, "on_acknowledgement", hook)
                continue
            if isinstance(result, Awaitable):
                pending = pending or []
                pending.append((hook, cast("Awaitable[object]", result)))
        return None if pending is None else _finish(self._log, "on_acknowledgement", pending)

    def close(self) -> Coroutine[None, None, None] | None:
        """Closes every interceptor; returns None, or a coroutine that finishes the async ones."""
        pending: list[tuple[object, Awaitable[object]]] = []
        for hook in self._close:
            try:
                result = hook()
            except Exception:  # foreign code
                _log(self._log, "close", hook)
                continue
            if isinstance(result, Awaitable):
                pending.append((hook, cast("Awaitable[object]", result)))
        return _finish(self._log, "close", pending) if pending else None

    async def _finish_on_send(self, position: int, result: Awaitable[object], record: ProducerRecord) -> ProducerRecord:
        hook = self._on_send[position]
        try:
            record = _record_or_previous(self._log, hook, await result, record)
        except Exception:  # foreign code
            _log_on_send(self._log, hook, record)
        for hook in self._on_send[position + 1 :]:
            try:
                answer = hook(record)
                if isinstance(answer, Awaitable):
                    answer = await cast("Awaitable[object]", answer)
            except Exception:  # foreign code
                _log_on_send(self._log, hook, record)
                continue
            record = _record_or_previous(self._log, hook, answer, record)
        return record


def _hooks(interceptors: Sequence[object], name: str) -> tuple[object, ...]:
    """The bound methods called ``name``, without those inherited from the base class, which do nothing."""
    inherited = getattr(ProducerInterceptor, name)
    methods = [getattr(interceptor, name, None) for interceptor in interceptors]
    return tuple(m for m in methods if callable(m) and getattr(m, "__func__", None) is not inherited)


def _record_or_previous(log: ClientLog, hook: object, result: object, previous: ProducerRecord) -> ProducerRecord:
    if isinstance(result, ProducerRecord):
        return result
    log.error(
        "Interceptor %s.on_send returned %s for topic %s instead of a ProducerRecord; it was skipped for this record. "
        "on_send must return the record, changed or not.",
        _owner(hook),
        type(result).__name__,
        previous.topic,
        extra=_fields(previous),
    )
    return previous


async def _finish(log: ClientLog, name: str, pending: Sequence[tuple[object, Awaitable[object]]]) -> None:
    for hook, awaitable in pending:
        try:
            await awaitable
        except Exception:  # foreign code
            _log(log, name, hook)


def _log_on_send(log: ClientLog, hook: object, record: ProducerRecord) -> None:
    log.warning(
        "Interceptor %s.on_send failed for topic %s, partition %s; it was skipped for this record.",
        _owner(hook),
        record.topic,
        record.partition,
        exc_info=True,
        extra=_fields(record),
    )


def _log(log: ClientLog, name: str, hook: object) -> None:
    log.warning("Interceptor %s.%s failed; the others still run.", _owner(hook), name, exc_info=True)


def _fields(record: ProducerRecord) -> dict[str, object]:
    at = {} if record.partition is None else {"partition": record.partition}
    return {"topic": record.topic, **at}


def _owner(hook: object) -> str:
    return type(getattr(hook, "__self__", hook)).__name__
