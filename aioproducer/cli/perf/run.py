"""Sends the load of ``aioproducer perf`` through a Producer, and measures it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from aioproducer import Delivery, DeliveryError, InvalidRecord, KafkaError, Producer
from aioproducer.cli.perf.load import Load, due, pause
from aioproducer.cli.perf.stats import Measure, Result, Stats, Window

__all__ = ["Report", "prepare", "run_load"]

#: Gets each window that has ended, whether it is one of the steady state, and whether it is the first of these.
Report = Callable[[Window, bool, bool], object]

#: Seconds that records in flight have for their end after Ctrl-C.
_CLOSE_TIMEOUT: Final = 1.0


async def prepare(producer: Producer, load: Load) -> None:
    """Wait until the topic's partitions are known, so that the first latencies are those of records; begin transactions.

    Raises KafkaError if the cluster cannot be reached, or the topic is unknown.
    """
    await producer.ready()
    await producer.partitions_for(load.topic)
    if producer.config.transactional_id is not None:
        await producer.init_transactions()


async def run_load(producer: Producer, load: Load, report: Report) -> Result:
    """Send all records, and wait for their outcomes; the producer must be prepared.

    Cancellation: the producer is closed soon, and the result is what was measured until then; it does not raise. A caller
    with more to do looks at ``interrupted``.
    """
    run = _Run(producer, load, report)
    interrupted = False
    try:
        await run.send_all()
    except asyncio.CancelledError:
        interrupted = True
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()  # it goes on, and closes the producer
    except KafkaError as error:
        run.measure.fail(error, is_record=False)
    result = run.measure.result(time.perf_counter(), run.sent_at, interrupted=interrupted)
    if interrupted:
        await producer.close(_CLOSE_TIMEOUT)
    return result


class _Run:
    def __init__(self, producer: Producer, load: Load, report: Report) -> None:
        self._producer = producer
        self._load = load
        self._now = time.perf_counter  # uvloop's loop.time() counts whole milliseconds
        self._began = self._now()
        self._in_transactions = producer.config.transactional_id is not None
        self._transaction_began: float | None = None
        self._without_outcome = 0
        self._ended = asyncio.Event()
        #: The moment when the last record was in the buffer; None until then.
        self.sent_at: float | None = None
        self.measure = Measure(self._began, load.interval, report)

    async def send_all(self) -> None:
        """Send all records, unless a failure shows that the others would fail as well; then wait for the outcomes."""
        try:
            await self._send_records()
            await self._end_transaction()
        except KafkaError as error:
            self.measure.fail(error, is_record=isinstance(error, DeliveryError))
        self.sent_at = self._now()
        await self._producer.flush()
        if self._without_outcome:  # the callbacks of the last batches run after the flush
            await self._ended.wait()

    async def _send_records(self) -> None:
        sent, records = 0, self._load.records
        while sent < records:
            burst = await self._burst(sent)
            for number in range(sent, sent + burst):
                await self._send(number)
            sent += burst

    async def _burst(self, sent: int) -> int:
        """Wait until records are due, and return their number."""
        load = self._load
        if load.rate is None:
            return load.records - sent
        while True:
            elapsed = self._now() - self._began
            burst = due(elapsed, load.rate, sent, load.records)
            if burst > 0:
                return burst
            await asyncio.sleep(pause(elapsed, load.rate, sent))

    async def _send(self, number: int) -> None:
        load = self._load
        value = load.value(number)
        if self._in_transactions and self._transaction_began is None:
            await self._producer.begin_transaction()
            self._transaction_began = self._now()
        began = self._now()
        if number == load.warmup > 0:
            self.measure.end_warmup(began)
        try:
            await self._producer.enqueue(
                load.topic,
                value,
                key=None if load.key is None else load.key(number),
                on_delivery=partial(self._delivered, began, len(value), self.measure.steady),
            )
            self._without_outcome += 1
        except InvalidRecord as error:  # only this record; any other error would meet the next one as well
            self.measure.fail(error)
        if self._transaction_began is not None and began - self._transaction_began >= load.transaction_s:
            await self._end_transaction()

    async def _end_transaction(self) -> None:
        if self._transaction_began is not None:
            self._transaction_began = None
            await self._producer.commit_transaction()

    def _delivered(self, began: float, size: int, steady: Stats | None, delivery: Delivery) -> None:
        self._without_outcome -= 1
        if self.sent_at is not None and not self._without_outcome:
            self._ended.set()
        error = delivery.exception()
        if error is None:
            now = self._now()
            self.measure.acknowledge(steady, now - began, size, now)
        else:
            self.measure.fail(error)
