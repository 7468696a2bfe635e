"""The pending acknowledgement of a record that a thread has sent.

Nothing is created for a record that is not awaited. A thread that waits passes the event loop a `ThreadWaiter`, which the
outcome wakes as it wakes a task. So all state changes in the event loop's thread, except for that guarded by `_reading`.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, TypeAlias, cast

from aioproducer.arguments import check_timeout, is_async
from aioproducer.delivery import Delivery
from aioproducer.errors import ConfigError, DeliveryError, ProducerClosed
from aioproducer.hot import Outcome
from aioproducer.runtime.log import ClientLog
from aioproducer.types import Header, RecordMetadata

__all__ = ["EventLoopThread", "SyncDelivery", "SyncDeliveryCallback", "ThreadWaiter"]

#: How often a waiting thread checks whether the event loop has ended, in seconds: its last calls may never run.
_LOOK_EVERY_S: Final = 1.0

#: A `Delivery` stores which part of a split batch it belongs to when it is read, so only one thread may read at a time.
#: Reentrant: a finalizer or a signal handler may read while it is held.
_reading = threading.RLock()


def _unlock_in_fork() -> None:
    """In a fork: the thread that held the lock does not exist."""
    global _reading
    _reading = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock_in_fork)


class EventLoopThread(Protocol):
    """The thread in which outcomes become known."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Its event loop."""
        ...

    @property
    def log(self) -> ClientLog:
        """The producer's log."""
        ...

    def check_waiter(self) -> None:
        """Raise if the wait for an outcome would never end: in a fork, and in that thread itself."""
        ...

    def post(self, call: Callable[[], object]) -> bool:
        """Schedule a call there; returns False if the thread has ended."""
        ...


class ThreadWaiter:
    """Lets one thread wait until the event loop's thread wakes it; an `Outcome` accepts it like a future."""

    __slots__ = ("_lock", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._lock.acquire()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop in whose thread `set_result` is called."""
        return self._loop

    def done(self) -> bool:
        """Whether the thread was woken but has not continued yet."""
        return not self._lock.locked()

    def set_result(self, _: object) -> None:
        """Wake the thread; only in the event loop's thread."""
        if self._lock.locked():
            self._lock.release()

    def wait(self, seconds: float | None) -> bool:
        """Wait at most ``seconds`` (None: without limit); returns whether it was woken.

        The end of the event loop also ends the wait, and so does Ctrl-C.
        """
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            left = _LOOK_EVERY_S if until is None else min(_LOOK_EVERY_S, max(0.0, until - time.monotonic()))
            if self._lock.acquire(timeout=left):
                return True
            if self._loop.is_closed() or (until is not None and time.monotonic() >= until):
                return False

    def wait_for(self, delivery: Delivery) -> None:
        """Have the thread woken when the outcome is known (now, if it is already); call this in the event loop's thread."""
        with _reading:
            outcome = delivery.located()
            if not outcome.done:
                outcome.wait(delivery.index, cast("asyncio.Future[None]", self))
                return
        self.set_result(None)

    def forget(self, delivery: Delivery) -> None:
        """Undo `wait_for`; call this in the event loop's thread."""
        with _reading:
            delivery.located().forget(cast("asyncio.Future[None]", self))


#: A record in transit to the event loop: topic, value, key, headers, partition, timestamp, the upper bound of its size, and
#: its deadline for acceptance in `time.monotonic`'s time; None: ``max_block_ms`` after the event loop takes it.
HandedOver: TypeAlias = tuple[
    str, bytes | None, bytes | None, tuple[Header, ...] | None, int | None, int, int, float | None
]


class SyncDelivery:
    """The pending acknowledgement of one record, for threads; see `Delivery`."""

    __slots__ = ("_delivery", "_loop_thread", "_outcome", "_record", "_when_accepted")

    #: None until the event loop has put the record into a batch, or refused it.
    _delivery: Delivery | None
    #: The batch's result, which other threads may read without a lock: a batch that succeeded will never be split.
    _outcome: Outcome | None
    #: None once there is a `Delivery`.
    _record: HandedOver | None
    #: The calls to make with the `Delivery`; once other threads know the object, changed only in the event loop's thread.
    _when_accepted: list[Callable[[Delivery], object]] | None

    def __init__(self, loop_thread: EventLoopThread, delivery: Delivery) -> None:
        self._loop_thread = loop_thread
        self._record = self._when_accepted = None
        self._delivery = delivery
        self._outcome = delivery.located()

    def done(self) -> bool:
        """Whether the outcome is known."""
        outcome, delivery = self._outcome, self._delivery
        if outcome is None or delivery is None:
            return False
        if outcome.succeeded:
            return True
        with _reading:
            return delivery.done()

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the metadata, at most ``timeout`` seconds; raises the `DeliveryError`, or TimeoutError."""
        outcome, delivery = self._outcome, self._delivery
        if timeout is None and outcome is not None and outcome.succeeded and delivery is not None:
            return delivery.result()
        delivery = self._known(timeout)
        with _reading:
            return delivery.result()

    def exception(self, timeout: float | None = None) -> DeliveryError | None:
        """Wait for the outcome and return the error, None if the record was acknowledged; see `result`."""
        delivery = self._known(timeout)
        with _reading:
            return delivery.exception()

    def add_done_callback(self, callback: Callable[[SyncDelivery], object]) -> None:
        """Call ``callback(delivery)`` when the outcome is known, in the producer's thread: it must not block.

        If the outcome is known already, it is called at once, in this thread. An exception that it raises is logged.
        Raises TypeError if it cannot be called, and for coroutine functions: ``on_delivery=`` takes those.
        """
        if not callable(callback):
            raise TypeError(f"Invalid add_done_callback({callback!r}): must be a function.")
        if is_async(callback):
            raise TypeError(
                f"Invalid add_done_callback({callback!r}): a coroutine function needs the producer's event loop; pass it to "
                "send() or enqueue() as on_delivery=, or pass a plain function here."
            )
        delivery = self._delivery
        if delivery is not None:
            with _reading:
                delivery.mark_observed()
        if self.done() or not self._loop_thread.post(
            partial(self.when_accepted, partial(_listen, self._run, callback))
        ):
            self._run(callback)

    @property
    def record(self) -> HandedOver:
        """The record, until it is in a batch."""
        assert self._record is not None
        return self._record

    def accept(self, delivery: Delivery) -> None:
        """Take over the outcome of ``delivery``; call this only in the event loop's thread."""
        self._delivery, self._record = delivery, None
        self._outcome = delivery.located()
        calls, self._when_accepted = self._when_accepted, None
        for call in calls or ():
            call(delivery)

    def when_accepted(self, call: Callable[[Delivery], object]) -> None:
        """Call with the `Delivery`, now or when there is one; in the event loop's thread, or before others know this."""
        if self._delivery is not None:
            call(self._delivery)
        elif self._when_accepted is None:
            self._when_accepted = [call]
        else:
            self._when_accepted.append(call)

    def add_done_callback_in_loop(self, callback: SyncDeliveryCallback) -> None:
        """Call ``callback(self)`` when the outcome is known, and run its coroutine; only in the event loop's thread."""
        self.when_accepted(partial(_listen, self._call, callback))

    def wait_accepted(self) -> bool:
        """Wait until the record is accepted or refused; returns False if the producer ended before."""
        waiter = ThreadWaiter(self._loop_thread.loop)
        return self._loop_thread.post(partial(self.when_accepted, waiter.set_result)) and waiter.wait(None)

    def _known(self, timeout: float | None) -> Delivery:
        """The `Delivery`, once its outcome is known."""
        seconds = None if timeout is None else check_timeout(timeout, ConfigError)
        delivery = self._delivery
        if delivery is not None and self.done():
            return delivery
        self._loop_thread.check_waiter()
        if seconds != 0:
            self._wait(seconds)
        delivery = self._delivery
        if delivery is not None and self.done():
            return delivery
        raise TimeoutError(f"The outcome of this record was not known within {seconds:g} s; it is still being sent.")

    def _wait(self, seconds: float | None) -> None:
        waiter = ThreadWaiter(self._loop_thread.loop)
        if not self._loop_thread.post(partial(self.when_accepted, waiter.wait_for)):
            if self.done():
                return
            raise ProducerClosed("The producer was closed before the outcome of this record was known.")
        try:
            waiter.wait(seconds)
        finally:
            if not self.done():  # repeated short waits must leave nothing behind
                self._loop_thread.post(partial(self.when_accepted, waiter.forget))

    def _run(self, callback: Callable[[SyncDelivery], object], _: Delivery | None = None) -> None:
        try:
            callback(self)
        except Exception:  # foreign code
            delivery = self._delivery
            at = None if delivery is None else delivery.topic_partition
            self._loop_thread.log.exception(
                "The delivery callback %r raised for %r", callback, delivery, extra=None if at is None else at._asdict()
            )

    def _call(self, callback: SyncDeliveryCallback, _: Delivery) -> object:
        return callback(self)

    def __repr__(self) -> str:
        delivery = self._delivery
        if delivery is None:
            return "<SyncDelivery [handed over]>"
        with _reading:
            return f"<SyncDelivery of {delivery!r}>"


SyncDeliveryCallback: TypeAlias = Callable[[SyncDelivery], object]


def _listen(
    run: Callable[[SyncDeliveryCallback, Delivery], object], callback: SyncDeliveryCallback, delivery: Delivery
) -> None:
    with _reading:
        delivery.add_done_callback(partial(run, callback))
