"""Sends many records in one call: in order, in bounded memory, with one result for all of them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self, TypeAlias

from aioproducer.arguments import check_plain_hook, check_timeout
from aioproducer.errors import DeliveryError, InvalidRecord, KafkaError, SendManyError
from aioproducer.hot import Delivery, FastPath, Outcome
from aioproducer.runtime.log import ClientLog
from aioproducer.types import HeadersInput, ProducerRecord, SendManyResult, TopicPartition

__all__ = ["SendMany", "SendManyProgress", "check_values"]

SendManyProgress: TypeAlias = Callable[[SendManyResult], object]

#: How often the progress hook is called, in seconds.
_PROGRESS_INTERVAL_S = 0.1

#: The queue of deliveries is scanned when it is twice as long as after the last scan, and at least this long.
_SWEEP_FROM = 1000


def check_values(values: object, *, may_be_async: bool = False) -> None:
    """Raise `InvalidRecord` for a single value, or one that is not iterable: a text would send its letters."""
    kind = type(values).__name__
    if isinstance(values, (str, bytes, bytearray, memoryview)):
        raise InvalidRecord(
            f"send_many() sends a record for each item of its values, but a single {kind} was given: use send() for it, "
            "or put it into a list."
        )
    if hasattr(values, "__iter__") or hasattr(values, "__getitem__") or (may_be_async and hasattr(values, "__aiter__")):
        return
    iterable = "an iterable or an async iterable" if may_be_async else "an iterable"
    raise InvalidRecord(f"send_many() sends a record for each item of {iterable}, which a value of type {kind} is not.")


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive records in one batch, from this ``index`` on; ``size`` is the size of their content."""

    outcome: Outcome
    index: int
    count: int
    size: int

    def pieces(self) -> list[Run]:
        """The same records after the batch was split."""
        if not self.outcome.is_split:
            return [self]
        pieces: list[Run] = []
        for at in range(self.index, self.index + self.count):
            outcome, index = self.outcome.locate(at)
            if pieces and pieces[-1].outcome is outcome:
                pieces[-1] = replace(pieces[-1], count=pieces[-1].count + 1)
            else:
                pieces.append(Run(outcome, index, 1, 0))
        pieces[0] = replace(pieces[0], size=self.size)  # the position of the bytes within the run does not matter
        return pieces


class SendMany:
    """One bulk of records: call `add` as long as there are records and it returns True, then `finish`.

    At least about half of the queued deliveries have no outcome yet, and ``buffer_memory`` bounds these; the others are
    counted and dropped, also behind a stalled partition. An exception of ``on_progress`` is logged.
    """

    def __init__(
        self,
        producer: FastPath,
        topic: str,
        clock: Callable[[], float],
        log: ClientLog,
        *,
        key: Callable[[Any], object] | None,
        headers: HeadersInput | None,
        partition: int | None,
        on_progress: SendManyProgress | None,
        timeout: float | None,
        check: Callable[[], object] | None = None,
    ) -> None:
        """``check`` is called before records are added, and raises if they may no longer be."""
        check_plain_hook("key", key, "an item of the values and returns its key")
        check_plain_hook("on_progress", on_progress, "the SendManyResult so far")
        self.result = SendManyResult()
        self._enqueue: Callable[..., Awaitable[Delivery]] = producer.enqueue
        self._append_run = producer.appender.append_run
        self._topic = topic
        self._clock = clock
        self._log = log
        self._key = key
        self._headers = headers
        self._partition = partition
        self._on_progress = on_progress
        self._timeout = check_timeout(timeout, InvalidRecord)
        self._check = check
        self._reported_at = clock()
        self._waiting: deque[Run] = deque()
        self._failures: list[Run] = []
        self._sweep_at = _SWEEP_FROM
        self._may_go_on = True
        self._count = self._failed = self._unknown = self._bytes = 0
        self._offsets: dict[TopicPartition, tuple[int, int]] = {}
        self._error: KafkaError | None = None
        self._refused: int | None = None  # the index of the record that was not accepted

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """If it ends without a result, report failures as those of records that are not awaited."""
        if error is None or isinstance(error, SendManyError):
            return
        for run in (*self._failures, *self._waiting):
            for piece in run.pieces():
                for index in range(piece.index, piece.index + piece.count):
                    piece.outcome.abandon(index)

    async def add(self, values: Iterable[object]) -> bool:
        """Accept some more records; returns whether to continue, which ends with the first record that failed.

        Raises what ``values`` or the key function raise. Cancellation: accepted records are still delivered.
        """
        if isinstance(values, (list, tuple)) and self._key is None:
            return await self._add_list(values)
        for item in values:
            if self._may_go_on:
                await self._accept(item)
                self._collect()
            if not self._may_go_on:
                return False
        return True

    async def _add_list(self, values: list[object] | tuple[object, ...]) -> bool:
        """Accept as many at a time as fit into a batch."""
        at = 0
        while at < len(values) and self._may_go_on:
            if self._check is not None:
                self._check()
            run = self._append_run(self._topic, values, at, self._headers, self._partition)
            if run is None:
                await self._accept(values[at])
                at += 1
            else:
                count, outcome, index, size = run
                self._waiting.append(Run(outcome, index, count, size))
                at += count
            self._collect()
        return self._may_go_on

    async def _accept(self, item: object) -> None:
        if self._check is not None:
            self._check()
        if isinstance(item, ProducerRecord):
            accepted = self._enqueue(item if item.topic else replace(item, topic=self._topic), timeout=self._timeout)
        else:
            accepted = self._enqueue(
                self._topic,
                item,
                key=None if self._key is None else self._key(item),
                headers=self._headers,
                partition=self._partition,
                timeout=self._timeout,
            )
        try:
            delivery = await accepted
        except (DeliveryError, InvalidRecord) as error:
            self._error = error
            accepted_before = sum(run.count for run in self._waiting)
            self._refused = self._count + self._failed + self._unknown + accepted_before
            self._may_go_on = False
            return
        delivery.mark_observed()
        self._waiting.append(Run(delivery.located(), delivery.index, 1, delivery.serialized_size))

    async def wait(self) -> None:
        """Wait for the outcomes of all accepted records.

        Cancellation: accepted records are still delivered.
        """
        while self._waiting:
            first = self._waiting[0]
            if not first.outcome.done and not first.outcome.is_split:
                await self._settled(first)
            self._collect()
        self._report()

    async def _settled(self, run: Run) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        run.outcome.wait(run.index, waiter)
        try:
            await waiter
        except BaseException:
            run.outcome.locate(run.index)[0].forget(waiter)
            raise

    async def finish(self) -> SendManyResult:
        """Wait for all outcomes, and return the result; raises `SendManyError` if a record failed."""
        await self.wait()
        if self._error is None:
            return self.result
        at = "" if self._refused is None else f" at record {self._refused} (from 0)"
        raise SendManyError(
            f"send_many to {self._topic!r} stopped{at} after {self._count} acknowledged record(s): {self._error}",
            self.result,
            self._error,
        ) from self._error

    def _collect(self) -> None:
        """Take the known outcomes at the head of the queue, and sometimes those behind it."""
        waiting = self._waiting
        while waiting and (waiting[0].outcome.done or waiting[0].outcome.is_split):
            run = waiting.popleft()
            if run.outcome.is_split:
                waiting.extendleft(reversed(run.pieces()))
            else:
                self._count_in(run)
        if len(waiting) > self._sweep_at:
            self._sweep()
        if self._on_progress is not None and self._clock() - self._reported_at >= _PROGRESS_INTERVAL_S:
            self._report()

    def _sweep(self) -> None:
        """Remove delivered records. Failed ones stay in the queue: the first failure of all is the one to report."""
        left: deque[Run] = deque()
        for run in (piece for each in self._waiting for piece in each.pieces()):
            if run.outcome.succeeded:
                self._count_in(run)
            else:
                left.append(run)
                self._may_go_on = self._may_go_on and not run.outcome.done
        self._waiting = left
        self._sweep_at = max(_SWEEP_FROM, 2 * len(left))

    def _count_in(self, run: Run) -> None:
        outcome = run.outcome
        failure = outcome.failure
        if failure is not None:
            self._error = self._error or failure.error_for(run.index)
            self._failures.append(run)
            self._may_go_on = False
            if failure.possibly_written:
                self._unknown += run.count
            else:
                self._failed += run.count
            return
        self._count += run.count
        self._bytes += run.size
        if outcome.base_offset >= 0:
            begin = outcome.base_offset + run.index
            end = begin + run.count - 1
            first, last = self._offsets.get(outcome.partition, (begin, end))
            self._offsets[outcome.partition] = (min(first, begin), max(last, end))

    def _report(self) -> None:
        self._reported_at = self._clock()
        self.result = SendManyResult(self._count, self._failed, self._unknown, self._bytes, dict(self._offsets))
        if self._on_progress is not None:
            try:
                self._on_progress(self.result)
            except Exception:  # foreign code
                self._log.exception("on_progress raised for send_many to %r", self._topic, extra={"topic": self._topic})
