"""One run of a producer, from its start to its end: how it is closed, also after the producer was dropped.

Nothing that runs holds the `Producer`, so one that is dropped can be collected. Its `Run` then closes what runs.
"""

from __future__ import annotations

import asyncio
import atexit
import warnings
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol

from aioproducer.core.batches import UndeliveredRecords
from aioproducer.engine.engine import Engine
from aioproducer.engine.expired import not_enough
from aioproducer.errors import KafkaError, ProducerClosed
from aioproducer.interceptors import ProducerInterceptors
from aioproducer.runtime.deadline import Deadline
from aioproducer.types import CloseReport, ProducerRecord

__all__ = ["Run", "flushed"]


class _Left(NamedTuple):
    """The records of a batch without an outcome."""

    may_be_written: bool
    read: UndeliveredRecords


class HandedOver(Protocol):
    """Records handed over by other threads: the part of the intake's `HandOver` that this module, below it, uses."""

    @property
    def not_written(self) -> Sequence[ProducerRecord]:
        """The records that found no place in a batch."""
        ...

    async def close(self, deadline: Deadline) -> None:
        """Take no more records, and wait until the deadline for those that wait."""
        ...


class Run:
    """One run of a producer. ``on_end(run)`` is called at its end, and must hold no reference to the producer."""

    def __init__(
        self, engine: Engine, client_id: str, interceptors: ProducerInterceptors, on_end: Callable[[Run], object]
    ) -> None:
        self.engine = engine
        #: What became of all records, once the run is over.
        self.report: CloseReport | None = None
        #: Why the transaction that it has written into must not be committed, once the run is over.
        self.transaction_error: KafkaError | None = None
        self._client_id = client_id
        self._interceptors = interceptors
        self._on_end = on_end
        self._closing: asyncio.Task[CloseReport] | None = None
        self._close_by: Deadline | None = None
        self._given_up: list[_Left] = []  # the records that a cancelled close gave up
        for run in list(_dropped):
            if run.engine.loop.is_closed():
                run.end_with_loop()
        _all.add(self)

    def close(self, seconds: float | None, hand_over: HandedOver | None = None) -> asyncio.Task[CloseReport]:
        """Start to close, or bring the deadline forward. ``seconds`` None: ``close_timeout_ms``, or the present deadline."""
        engine = self.engine
        if self._closing is None or (self._closing.done() and _failed(self._closing)):
            seconds = engine.config.close_timeout_ms / 1000 if seconds is None else seconds
            self._close_by = Deadline(engine.loop, seconds)
            self._closing = engine.loop.create_task(self._close(self._close_by, hand_over), name="aioproducer close")
        elif seconds is not None and self._close_by is not None:
            self._close_by.bring_forward(seconds)
        return self._closing

    async def abandon(self) -> None:
        """Have the closing end now, so that a cancelled `async with` leaves nothing behind. Cancellation: the same."""
        closing, close_by = self._closing, self._close_by
        if self.report is not None or closing is None or close_by is None:
            return
        engine = self.engine
        self._given_up += self._left()
        engine.accumulator.outcomes.fail_all(
            ProducerClosed("The task that was closing the producer was cancelled before this record was delivered."),
            engine.loop.time(),
        )
        close_by.bring_forward(0)
        await asyncio.wait([closing])

    def end_with_loop(self) -> CloseReport:
        """Fail what has no outcome: the event loop has ended, so nothing of the run will ever go on."""
        if self.report is None:
            left = self._left()
            self.engine.forsake()
            return self._end(left, [])
        return self.report

    def dropped(self) -> None:
        """The producer was dropped. Called by the garbage collector, in any thread and process, so it must not wait."""
        engine = self.engine
        if self._closing is not None or engine.is_over or engine.is_forked:
            return
        _dropped.add(self)
        try:
            engine.loop.call_soon_threadsafe(self.close, None)
            when = "in the background" if engine.loop.is_running() else "when its event loop runs again"
            what = f"It will be closed {when}, after delivering the records that it accepted."
        except RuntimeError:
            lost = len(self.end_with_loop().undelivered)
            what = f"Its event loop is closed, so nothing more can be sent: {lost} record(s) were not acknowledged."
        warnings.warn(
            f"The producer {self._client_id!r} was dropped without being closed. {what} Use `async with`, or await close(), "
            "which reports undelivered records.",
            ResourceWarning,
            stacklevel=2,
        )

    def end_with_program(self) -> None:
        """The interpreter ends: say what is lost. An event loop that still runs in another thread is left alone."""
        if not (self.engine.is_over or self.engine.is_forked or self.engine.loop.is_running()):
            self.end_with_loop()

    # -- closing ------------------------------------------------------------------------------------------------------

    async def _close(self, deadline: Deadline, hand_over: HandedOver | None) -> CloseReport:
        engine = self.engine
        if hand_over is not None:
            await hand_over.close(deadline)
        engine.close_intake()
        if engine.died is None:
            with suppress(TimeoutError):
                async with deadline.limit():
                    if engine.transactions is not None:
                        await engine.transactions.end()
                    await flushed(engine, None)
        left = self._left()
        now = engine.loop.time()
        engine.accumulator.outcomes.fail_all(lambda batch: not_enough(batch, deadline.seconds, engine.client, now), now)
        if engine.transactions is not None:
            self.transaction_error = engine.transactions.objection
            engine.transactions.close(ProducerClosed("The producer was closed."))
        await asyncio.sleep(0)  # the callbacks of the last outcomes run before the tasks that they may need end
        await engine.foreign.wait(deadline)
        await engine.foreign.cancel()
        await engine.metrics_push.end(deadline)
        await engine.stop()
        await self._close_interceptors(deadline)
        return self._end(left, [] if hand_over is None else hand_over.not_written)

    async def _close_interceptors(self, deadline: Deadline) -> None:
        closing = self._interceptors.close()
        if closing is not None:
            self.engine.spawn(closing, "aioproducer interceptors' close")
            await self.engine.foreign.wait(deadline)
            await self.engine.foreign.cancel()

    def _left(self) -> list[_Left]:
        """The records that have no outcome yet."""
        return [
            _Left(batch.possibly_written or batch.is_in_flight, batch.undelivered())
            for batch in self.engine.accumulator.outcomes.incomplete_in_order()
        ]

    def _end(self, left: Sequence[_Left], handed_over: Sequence[ProducerRecord]) -> CloseReport:
        left = [*self._given_up, *left]
        metrics = self.engine.metrics
        self.report = CloseReport(
            delivered=metrics.records_delivered,
            failed=metrics.records_failed,
            unknown=metrics.records_unknown,
            not_written=[*(record for each in left if not each.may_be_written for record in each.read()), *handed_over],
            maybe_written=[record for each in left if each.may_be_written for record in each.read()],
        )
        _dropped.discard(self)
        self._on_end(self)
        return self.report


#: Those whose producer was dropped, until they have ended. An event loop that is closed first forgets that it was to close
#: them, and nothing else refers to them.
_dropped: set[Run] = set()

#: Those that may be open when the interpreter ends.
_all: weakref.WeakSet[Run] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    for run in list(_all):
        run.end_with_program()


async def flushed(engine: Engine, deadline: float | None) -> bool:
    """Whether everything that was accepted had its outcome before the deadline. Cancellation: the records go on."""
    done: asyncio.Future[bool] = engine.loop.create_future()

    def settle(in_time: bool) -> None:
        if not done.done():
            done.set_result(in_time)

    waiter = engine.accumulator.begin_flush(partial(settle, True), engine.loop.time())
    timer = None if deadline is None else engine.loop.call_at(deadline, settle, False)
    try:
        return await done
    finally:
        if timer is not None:
            timer.cancel()
        engine.accumulator.end_flush(waiter)


def _failed(task: asyncio.Task[CloseReport]) -> bool:
    return task.cancelled() or task.exception() is not None
