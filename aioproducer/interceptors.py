"""Lets an application inspect and change every record before it is sent (KIP-42).

As in Java's ``ProducerInterceptors``, an interceptor that raises is logged and skipped, and the record continues as the
previous one returned it; an interceptor's exception never reaches the caller of ``send()``. If every interceptor is plain,
no coroutine is ever created.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeGuard, cast

from aioproducer.arguments import is_async
from aioproducer.errors import ConfigError
from aioproducer.runtime.log import ClientLog
from aioproducer.serializers import normalize_headers
from aioproducer.types import Headers, ProducerRecord, RecordMetadata, SendManyResult, TransactionOutcome

__all__ = [
    "EndOfBulk",
    "EndOfSend",
    "EndOfTransaction",
    "InterceptedBulk",
    "InterceptedProducer",
    "ProducerInterceptor",
    "ProducerInterceptors",
    "add_global_interceptor",
    "remove_global_interceptor",
]

#: Called once with the outcome of a record: its metadata if it was written, otherwise the error.
EndOfSend: TypeAlias = Callable[[RecordMetadata | None, BaseException | None], object]

#: Called once with the result of a call that sends many records, or with the exception that it raises.
EndOfBulk: TypeAlias = Callable[[SendManyResult | None, BaseException | None], object]


#: Called once with the outcome of a transaction: "committed", "aborted", "prepared" if it waits for another producer's
#: decision, or "unknown"; and with the error that it failed with or was aborted because of, if there was one.
EndOfTransaction: TypeAlias = Callable[[TransactionOutcome, BaseException | None], object]


class InterceptedProducer:
    """The producer that sends a record, as far as an interceptor may know it."""

    __slots__ = ("__weakref__", "_leader", "bootstrap_servers", "client_id", "transactional_id")

    def __init__(
        self,
        client_id: str,
        transactional_id: str | None,
        bootstrap_servers: Sequence[str],
        leader: Callable[[str, int], tuple[str, int] | None],
    ) -> None:
        self.client_id = client_id
        self.transactional_id = transactional_id
        self.bootstrap_servers = tuple(bootstrap_servers)
        self._leader = leader

    def leader(self, topic: str, partition: int) -> tuple[str, int] | None:
        """Host and port at which the leader of a partition is reached; None if the leader is not known."""
        return self._leader(topic, partition)


class ProducerInterceptor:
    """An interceptor; ``on_send``, ``on_acknowledgement`` and ``close`` may be plain or ``async def``, the others are plain.

    Subclassing is not needed: an object with one or more of these methods is enough. A missing one costs nothing.
    Interceptors run in the order of the ``interceptors`` option, in the producer's event loop: a slow plain one blocks
    everything.
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord | Awaitable[ProducerRecord]:
        """Returns the record to send, before its key and value are serialized; often ``record`` itself.

        The caller must be allowed to write to its topic. An exception is logged, and ``record`` is sent.
        """
        return record

    def begin_send(self, record: ProducerRecord, producer: InterceptedProducer) -> tuple[ProducerRecord, EndOfSend]:
        """Returns the record to send, as `on_send` does, and what to call with its outcome; must be plain.

        It is called in the caller's context (`contextvars`), also for threads, before ``on_send`` of any interceptor.
        What it returns is called once, in the producer's event loop: with the metadata if the record was written,
        otherwise with the error, a `DeliveryError` or that of a call that was refused or cancelled. Nothing is called if the
        event loop is closed before. An exception is logged, and ``record`` is sent. Tracing needs this method; KIP-42 has
        only the others, which do not know which outcome belongs to which record.
        """
        return record, _ignore

    def begin_bulk(self, topic: str, producer: InterceptedProducer, is_table: bool) -> tuple[Headers, EndOfBulk]:
        """Called once for each `Producer.send_many` and `Producer.send_table`; must be plain.

        It is called in the caller's context; for `SyncProducer.send_many` also in the caller's thread. Returns the headers
        that each row of a table gets in addition (a null value becomes an empty one), and what to call at the end of the
        call. Records of ``send_many`` go through the other methods one by one. Rows of a table do not: so ``send_table``
        refuses interceptors with ``on_send`` or ``on_acknowledgement``, and those with ``begin_send`` without this method.
        """
        return (), _ignore

    def begin_transaction(self, producer: InterceptedProducer) -> EndOfTransaction:
        """Called when the producer has begun a transaction, in the caller's context; must be plain.

        Returns what to call, in the producer's event loop, when the transaction is over: after the coordinator's answer, or
        when the producer is closed. Producers that were attached to a transaction do not call it.
        """
        return _ignore

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: BaseException | None, headers: Headers
    ) -> Awaitable[None] | None:
        """Called once for each record: with its metadata if it was written, otherwise with the error.

        ``headers`` are those that were sent (KIP-512). Plain methods run before the caller's await ends, async ones
        in a task of the producer.
        """
        return None

    def configure(self, config: Any) -> None:
        """Called when the producer is created, with its `ProducerConfig`; must be plain.

        An exception becomes a `ConfigError`, and there is no producer. Interceptors that tools have added to all producers
        are not configured.
        """

    def close(self) -> Awaitable[None] | None:
        """Called once, after the last record has its outcome."""
        return None


_OnSend: TypeAlias = Callable[[ProducerRecord], object]
_BeginSend: TypeAlias = Callable[[ProducerRecord, InterceptedProducer], object]
_BeginTransaction: TypeAlias = Callable[[InterceptedProducer], object]
_BeginBulk: TypeAlias = Callable[[str, InterceptedProducer, bool], object]
_OnAcknowledgement: TypeAlias = Callable[[RecordMetadata | None, BaseException | None, Headers], object]
_Close: TypeAlias = Callable[[], object]


_global: tuple[object, ...] = ()


def add_global_interceptor(interceptor: object) -> None:
    """Let all producers that are created from now on have this interceptor, after those of their option ``interceptors``.

    A producer whose option has one of the same class does not get it, and its ``close`` is never called. For tools that
    instrument a whole program. Raises `ConfigError` for a method that must be plain and is not.
    """
    global _global
    _refuse_async([interceptor])
    _global = (*_global, interceptor)


def remove_global_interceptor(interceptor: object) -> None:
    """Undo `add_global_interceptor`; producers that have the interceptor keep it."""
    global _global
    _global = tuple(each for each in _global if each is not interceptor)


class ProducerInterceptors:
    """Runs interceptors one after the other, and logs their exceptions.

    Each method returns its result at once if the interceptors are plain, and an awaitable from the first async one on;
    the caller awaits it, or runs it in a task that it owns.
    """

    __slots__ = (
        "_begin_bulk",
        "_begin_send",
        "_begin_transaction",
        "_close",
        "_log",
        "_on_acknowledgement",
        "_on_send",
        "need_each_record",
    )

    def __init__(
        self,
        interceptors: Iterable[object],
        log: ClientLog,
        config: object = None,
        serializers: Iterable[object] = (),
    ) -> None:
        """``config`` is what `ProducerInterceptor.configure` gets; ``serializers`` are closed with the interceptors."""
        self._log = log.named(__name__)
        own = tuple(interceptors)
        _refuse_async(own)
        chain = (*own, *(each for each in _global if type(each) not in map(type, own)))
        self._begin_send = cast("tuple[_BeginSend, ...]", _hooks(chain, "begin_send"))
        self._begin_bulk = cast("tuple[_BeginBulk, ...]", _hooks(chain, "begin_bulk"))
        self._begin_transaction = cast("tuple[_BeginTransaction, ...]", _hooks(chain, "begin_transaction"))
        self._on_send = cast("tuple[_OnSend, ...]", _hooks(chain, "on_send"))
        self._on_acknowledgement = cast("tuple[_OnAcknowledgement, ...]", _hooks(chain, "on_acknowledgement"))
        # A global interceptor is not over with its first producer, and one object may serialize keys and values.
        ends_with_producer = tuple({id(each): each for each in (*own, *serializers)}.values())
        self._close = cast("tuple[_Close, ...]", _hooks(ends_with_producer, "close"))
        if config is not None:
            _configure(own, config)
        #: Whether one of them must see each record, also those of a table.
        self.need_each_record = any(map(_needs_each_record, chain))

    @property
    def sees_send(self) -> bool:
        """Whether any interceptor looks at records before they are sent."""
        return bool(self._begin_send or self._on_send)

    @property
    def sees_acknowledgement(self) -> bool:
        """Whether any interceptor looks at outcomes; if not, the producer need not keep headers for them."""
        return bool(self._on_acknowledgement)

    def begin_send(
        self, record: ProducerRecord, producer: InterceptedProducer, ends: list[EndOfSend]
    ) -> ProducerRecord:
        """The record that the last interceptor returned; what must be called with its outcome is added to ``ends``."""
        for hook in self._begin_send:
            try:
                result = hook(record, producer)
            except Exception:  # foreign code
                _log_failed(self._log, hook, record, "begin_send")
                continue
            if _is_begun(result):
                record, end = result
                ends.append(end)
            else:
                returned = type(result).__name__
                rule = "the record, changed or not, and a callable that takes its outcome"
                _log_invalid(self._log, hook, record, "begin_send", returned, "(record, end)", rule)
        return record

    def begin_transaction(self, producer: InterceptedProducer) -> EndOfTransaction | None:
        """Call the interceptors; returns what must be called with the outcome, None if none of them asks for it."""
        ends: list[EndOfTransaction] = []
        for hook in self._begin_transaction:
            try:
                end = hook(producer)
            except Exception:  # foreign code
                _log(self._log, "begin_transaction", hook)
                continue
            if callable(end):
                ends.append(cast("EndOfTransaction", end))
            else:
                self._log.error(
                    "Interceptor %s.begin_transaction returned %s instead of a callable that takes the outcome.",
                    _owner(hook),
                    type(end).__name__,
                )
        return partial(self._end_transaction, ends) if ends else None

    def _end_transaction(
        self, ends: Sequence[EndOfTransaction], outcome: TransactionOutcome, error: BaseException | None
    ) -> None:
        for end in reversed(ends):
            try:
                end(outcome, error)
            except Exception:  # foreign code
                self._log.warning("%r, which an interceptor's begin_transaction returned, failed.", end, exc_info=True)

    def bulk(self, topic: str, producer: InterceptedProducer, is_table: bool) -> InterceptedBulk:
        """A call that sends many records, to enter."""
        return InterceptedBulk(self._begin_bulk, topic, producer, is_table, self._log, self.need_each_record)

    def end_send(self, ends: Sequence[EndOfSend], metadata: RecordMetadata | None, error: BaseException | None) -> None:
        """Calls what `begin_send` has added, with the outcome, in the reverse order."""
        for end in reversed(ends):
            try:
                end(metadata, error)
            except Exception:  # foreign code
                self._log.warning("%r, which an interceptor's begin_send returned, failed.", end, exc_info=True)

    def on_send(self, record: ProducerRecord) -> ProducerRecord | Coroutine[None, None, ProducerRecord]:
        """The record that the last interceptor returned, or a coroutine that returns it."""
        for position, hook in enumerate(self._on_send):
            try:
                result = hook(record)
            except Exception:  # foreign code
                _log_failed(self._log, hook, record, "on_send")
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
                _log_not_closed(self._log, hook)
                continue
            if isinstance(result, Awaitable):
                pending.append((hook, cast("Awaitable[object]", result)))
        return _finish_closing(self._log, pending) if pending else None

    async def _finish_on_send(self, position: int, result: Awaitable[object], record: ProducerRecord) -> ProducerRecord:
        hook = self._on_send[position]
        try:
            record = _record_or_previous(self._log, hook, await result, record)
        except Exception:  # foreign code
            _log_failed(self._log, hook, record, "on_send")
        for hook in self._on_send[position + 1 :]:
            try:
                answer = hook(record)
                if isinstance(answer, Awaitable):
                    answer = await cast("Awaitable[object]", answer)
            except Exception:  # foreign code
                _log_failed(self._log, hook, record, "on_send")
                continue
            record = _record_or_previous(self._log, hook, answer, record)
        return record


class InterceptedBulk:
    """A call that sends many records, as a context manager; set its ``result`` before it ends."""

    __slots__ = (
        "_ends",
        "_hooks",
        "_is_table",
        "_log",
        "_producer",
        "_topic",
        "headers",
        "needs_each_record",
        "result",
    )

    def __init__(
        self,
        hooks: Sequence[_BeginBulk],
        topic: str,
        producer: InterceptedProducer,
        is_table: bool,
        log: ClientLog,
        needs_each_record: bool,
    ) -> None:
        self._hooks = hooks
        self._topic = topic
        self._producer = producer
        self._is_table = is_table
        self._log = log
        self._ends: list[EndOfBulk] = []
        #: Whether an interceptor must see each record.
        self.needs_each_record = needs_each_record
        #: What each row of a table gets in addition.
        self.headers: Headers = ()
        self.result: SendManyResult | None = None

    def __enter__(self) -> Self:
        """Calls the interceptors; one that raises is logged and skipped."""
        for hook in self._hooks:
            try:
                headers, end = cast("tuple[Headers, EndOfBulk]", hook(self._topic, self._producer, self._is_table))
                self._ends.append(end)
                self.headers = (*self.headers, *normalize_headers(headers))
            except Exception:  # foreign code
                _log(self._log, "begin_bulk", hook)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Calls what the interceptors returned, in the reverse order."""
        for end in reversed(self._ends):
            try:
                end(self.result, error)
            except Exception:  # foreign code
                self._log.warning("%r, which an interceptor's begin_bulk returned, failed.", end, exc_info=True)


def _ignore(outcome: object, error: BaseException | None) -> None:
    """The outcome of what an interceptor does not follow."""


def _refuse_async(interceptors: Iterable[object]) -> None:
    """Raise `ConfigError` for a method that must be plain; checked here, because each call would fail."""
    for each in interceptors:
        for name in ("configure", "begin_send", "begin_bulk", "begin_transaction"):
            if is_async(getattr(each, name, None)):
                raise ConfigError(
                    f"{type(each).__name__}.{name} is a coroutine function, but it must be plain: it has to run in the "
                    "caller's context, before anything is awaited."
                )


def _configure(interceptors: Sequence[object], config: object) -> None:
    for hook in cast("tuple[Callable[[object], object], ...]", _hooks(interceptors, "configure")):
        try:
            hook(config)
        except Exception as error:  # foreign code
            raise ConfigError(f"{_owner(hook)}.configure() failed: {type(error).__name__}: {error}") from error


def _needs_each_record(interceptor: object) -> bool:
    one = (interceptor,)
    if _hooks(one, "on_send") or _hooks(one, "on_acknowledgement"):
        return True
    return bool(_hooks(one, "begin_send")) and not _hooks(one, "begin_bulk")


def _hooks(interceptors: Sequence[object], name: str) -> tuple[object, ...]:
    """The bound methods called ``name``, without those inherited from the base class, which do nothing."""
    inherited = getattr(ProducerInterceptor, name)
    methods = [getattr(interceptor, name, None) for interceptor in interceptors]
    return tuple(m for m in methods if callable(m) and getattr(m, "__func__", None) is not inherited)


def _is_begun(result: object) -> TypeGuard[tuple[ProducerRecord, EndOfSend]]:
    """Whether begin_send may return this."""
    if not isinstance(result, tuple):
        return False
    parts = cast("tuple[object, ...]", result)
    return len(parts) == 2 and isinstance(parts[0], ProducerRecord) and callable(parts[1])


def _record_or_previous(log: ClientLog, hook: object, result: object, previous: ProducerRecord) -> ProducerRecord:
    if isinstance(result, ProducerRecord):
        return result
    _log_invalid(
        log, hook, previous, "on_send", type(result).__name__, "a ProducerRecord", "the record, changed or not"
    )
    return previous


async def _finish(log: ClientLog, name: str, pending: Sequence[tuple[object, Awaitable[object]]]) -> None:
    for hook, awaitable in pending:
        try:
            await awaitable
        except Exception:  # foreign code
            _log(log, name, hook)


async def _finish_closing(log: ClientLog, pending: Sequence[tuple[object, Awaitable[object]]]) -> None:
    for hook, awaitable in pending:
        try:
            await awaitable
        except Exception:  # foreign code
            _log_not_closed(log, hook)


def _log_not_closed(log: ClientLog, hook: object) -> None:
    log.warning("%s.close failed; the others are still closed.", _owner(hook), exc_info=True)


def _log_failed(log: ClientLog, hook: object, record: ProducerRecord, name: str) -> None:
    log.warning(
        "Interceptor %s.%s failed for topic %s, partition %s; it was skipped for this record.",
        _owner(hook),
        name,
        record.topic,
        record.partition,
        exc_info=True,
        extra=_fields(record),
    )


def _log_invalid(
    log: ClientLog, hook: object, record: ProducerRecord, name: str, returned: str, needed: str, rule: str
) -> None:
    log.error(
        "Interceptor %s.%s returned %s for topic %s instead of %s; it was skipped for this record. %s must return %s.",
        _owner(hook),
        name,
        returned,
        record.topic,
        needed,
        name,
        rule,
        extra=_fields(record),
    )


def _log(log: ClientLog, name: str, hook: object) -> None:
    log.warning("Interceptor %s.%s failed; the others still run.", _owner(hook), name, exc_info=True)


def _fields(record: ProducerRecord) -> dict[str, object]:
    at = {} if record.partition is None else {"partition": record.partition}
    return {"topic": record.topic, **at}


def _owner(hook: object) -> str:
    return type(getattr(hook, "__self__", hook)).__name__
