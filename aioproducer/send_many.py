"""Sends many records as one: in order, in bounded memory, with one result for all of them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias

from aioproducer.arguments import check_hook, check_timeout
from aioproducer.delivery import Delivery
from aioproducer.errors import DeliveryError, InvalidRecord, KafkaError, NotWritten, SendManyError
from aioproducer.types import HeadersInput, ProducerRecord, SendManyResult, TopicPartition

__all__ = ["SendMany", "SendManyProgress", "check_values"]

logger = logging.getLogger("aioproducer")

SendManyProgress: TypeAlias = Callable[[SendManyResult], object]

#: How often the progress hook is called, in seconds.
_PROGRESS_INTERVAL_S = 0.1

#: The line of deliveries is looked through when it is twice as long as after the last time, and at least so long.
_SWEEP_FROM = 1000


def check_values(values: object, *, may_be_async: bool = False) -> None:
    """Raise `InvalidRecord` where there is one value, or nothing to iterate over: a text would send its letters."""
    kind = type(values).__name__
    if isinstance(values, (str, bytes, bytearray, memoryview)):
        raise InvalidRecord(
            f"send_many() sends a record for each item of its values, and one {kind} was given: use send() for that, or "
            "put it into a list."
        )
    if hasattr(values, "__iter__") or hasattr(values, "__getitem__") or (may_be_async and hasattr(values, "__aiter__")):
        return
    iterable = "an iterable or an async iterable" if may_be_async else "an iterable"
    raise InvalidRecord(f"send_many() sends a record for each item of {iterable}; a value of type {kind} is none.")


class SendMany:
    """One bulk of records on its way: `add` as long as there are some and it answers True, then `finish`.

    ``enqueue`` is the producer's. Of the deliveries about half at least have no outcome yet, and these are bounded by
    ``buffer_memory``; the others are counted and let go, also behind a partition that is stalled. An exception of
    ``on_progress`` is logged.
    """

    def __init__(
        self,
        enqueue: Callable[..., Awaitable[Delivery]],
        topic: str,
        clock: Callable[[], float],
        *,
        key: Callable[[Any], object] | None,
        headers: HeadersInput | None,
        partition: int | None,
        on_progress: SendManyProgress | None,
        timeout: float | None,
    ) -> None:
        check_hook("key", key, "an item of the values and answers its key")
        check_hook("on_progress", on_progress, "the SendManyResult so far")
        self.result = SendManyResult()
        self._enqueue = enqueue
        self._topic = topic
        self._clock = clock
        self._key = key
        self._headers = headers
        self._partition = partition
        self._on_progress = on_progress
        self._timeout = check_timeout(timeout, InvalidRecord)
        self._reported_at = clock()
        self._waiting: deque[Delivery] = deque()
        self._sweep_at = _SWEEP_FROM
        self._may_go_on = True
        self._count = self._failed = self._unknown = self._bytes = 0
        self._offsets: dict[TopicPartition, tuple[int, int]] = {}
        self._error: KafkaError | None = None

    async def add(self, values: Iterable[object]) -> bool:
        """Accept some more; answers whether even more may come, which ends with the first record that failed.

        Raises what ``values`` or the key function raise. Cancellation: what was accepted is delivered all the same.
        """
        for item in values:
            if self._may_go_on:
                await self._accept(item)
                self._collect()
            if not self._may_go_on:
                return False
        return True

    async def _accept(self, item: object) -> None:
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
            self._waiting.append(await accepted)
        except (DeliveryError, InvalidRecord) as error:
            self._error = error
            self._may_go_on = False

    async def wait(self) -> None:
        """Wait for the outcome of everything that was accepted.

        Cancellation: what was accepted is delivered all the same.
        """
        while self._waiting:
            with suppress(DeliveryError):  # it is counted below
                await self._waiting[0]
            self._collect()
        self._report()

    async def finish(self) -> SendManyResult:
        """Wait for all outcomes, and answer the result; raises `SendManyError` where a record failed."""
        await self.wait()
        if self._error is None:
            return self.result
        raise SendManyError(
            f"send_many to {self._topic!r} stopped after {self._count} acknowledged record(s): {self._error}",
            self.result,
            self._error,
        ) from self._error

    def _collect(self) -> None:
        """Take the outcomes that are known at the head of the line, and now and then those behind it."""
        waiting = self._waiting
        while waiting and waiting[0].done():
            self._count_in(waiting.popleft())
        if len(waiting) > self._sweep_at:
            self._sweep()
        if self._on_progress is not None and self._clock() - self._reported_at >= _PROGRESS_INTERVAL_S:
            self._report()

    def _sweep(self) -> None:
        """Take out what was delivered. What failed stays in line: it is the first of them all that will be told."""
        left: deque[Delivery] = deque()
        for delivery in self._waiting:
            if not delivery.done():
                left.append(delivery)
            elif delivery.exception() is None:
                self._count_in(delivery)
            else:
                left.append(delivery)
                self._may_go_on = False
        self._waiting = left
        self._sweep_at = max(_SWEEP_FROM, 2 * len(left))

    def _count_in(self, delivery: Delivery) -> None:
        error = delivery.exception()
        if error is not None:
            self._error = self._error or error
            self._may_go_on = False
            if isinstance(error, NotWritten):
                self._failed += 1
            else:
                self._unknown += 1
            return
        metadata = delivery.result()
        self._count += 1
        self._bytes += max(0, metadata.serialized_key_size) + max(0, metadata.serialized_value_size)
        if metadata.offset >= 0:
            partition = metadata.topic_partition
            first, last = self._offsets.get(partition, (metadata.offset, metadata.offset))
            self._offsets[partition] = (min(first, metadata.offset), max(last, metadata.offset))

    def _report(self) -> None:
        self._reported_at = self._clock()
        self.result = SendManyResult(self._count, self._failed, self._unknown, self._bytes, dict(self._offsets))
        if self._on_progress is not None:
            try:
                self._on_progress(self.result)
            except Exception:  # foreign code
                logger.exception("on_progress raised for send_many to %r", self._topic)
