"""Sends lines and tables through a Producer, and counts the outcomes."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, Protocol, TypeAlias, cast

from aioproducer import (
    Delivery,
    DeliveryError,
    InvalidRecord,
    KafkaError,
    NotWritten,
    NotWrittenTimeout,
    Producer,
    ProducerConfig,
    RecordMetadata,
    SendManyError,
)
from aioproducer.cli.produce.lines import BadLine, Content
from aioproducer.cli.produce.rejects import RejectsFile
from aioproducer.intake.many import Run

__all__ = ["Decision", "LineSource", "Outcome", "Parser", "ProduceRun", "Table"]

#: The end of a run's transaction, as far as this side knows it.
Decision: TypeAlias = Literal["committed", "not committed", "unknown"]

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

#: So much of a line is shown with the reason why it was not sent, in bytes.
_SHOWN: Final = 80


class Parser(Protocol):
    """Reads a record from a line."""

    def parse(self, line: bytes) -> Content:
        """The record. Raises `BadLine`."""
        ...


class Table(Protocol):
    """Rows that are sent with `Producer.send_table`."""

    async def send(self, producer: Producer, topic: str, on_progress: Callable[[Any], object]) -> None:
        """Send all rows. Raises as ``send_table`` does, and OSError for a file that cannot be read."""
        ...


@dataclass(frozen=True, slots=True)
class LineSource:
    """The rules by which lines become records; ``parser`` None: each is a value.

    ``key``, ``headers``, ``partition`` and ``timestamp_ms`` are those of records that bring none. The first ``skip`` lines
    are not sent; ``limit`` is the number of records after which the run ends. ``is_file``: reading never has to wait.
    """

    parser: Parser | None = None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp_ms: int | None = None
    skip: int = 0
    limit: int | None = None
    keeps_empty: bool = False
    is_file: bool = False

    @property
    def are_values(self) -> bool:
        """Whether each line is a value, and the records have no other part."""
        parts = (self.parser, self.key, self.timestamp_ms, self.limit)
        return all(each is None for each in parts)


@dataclass(slots=True)
class Outcome:
    """The outcome of a run so far.

    ``has_tables``: some of the input was a table. ``error`` is the first failure, ``stopped_at`` the number of the first
    line that was left, ``interrupted_by`` the signal that ended the run, ``decision`` the end of its transaction (None: it
    has none).
    """

    lines: int = 0
    empty: int = 0
    bytes_read: int = 0
    accepted: int = 0
    delivered: int = 0
    refused: int = 0
    not_written: int = 0
    unknown: int = 0
    seconds: float = 0.0
    has_tables: bool = False
    error: str | None = None
    stopped_at: int | None = None
    interrupted_by: int | None = None
    decision: Decision | None = None

    @property
    def is_good(self) -> bool:
        """Whether all that was to be sent is written."""
        has_failures = self.refused or self.not_written or self.unknown
        is_whole = self.error is None and self.interrupted_by is None and not has_failures
        return is_whole and self.decision in (None, "committed")


class ProduceRun:
    """One run of ``aioproducer produce``: `run` calls steps, which call `send_lines` and `send_table`."""

    def __init__(
        self,
        config: ProducerConfig,
        topic: str,
        rejects: RejectsFile,
        *,
        goes_on: bool,
        acknowledged: Callable[[RecordMetadata, float], object] | None = None,
        waits: bool = False,
        failed: Callable[[str], object] | None = None,
        interrupted: Callable[[], object] | None = None,
        tee: Callable[[bytes], object] | None = None,
    ) -> None:
        """``goes_on``: also after a record that failed.

        ``acknowledged`` gets the metadata of each record and the seconds taken; with ``waits`` before the next is sent.
        ``failed`` gets the reason of each failure, ``tee`` each line that was accepted; ``interrupted`` is called when the
        first signal has ended the reading.
        """
        self.outcome = Outcome()
        self.producer = Producer(config, on_delivery_error=self._failed)
        self._topic = topic
        self._is_transactional = config.transactional_id is not None
        self._rejects = rejects
        self._goes_on = goes_on
        self._acknowledged = acknowledged
        self._waits = waits
        self._show_failure = failed
        self._show_interruption = interrupted
        self._tee = tee
        self._is_over = False
        self._is_file = False
        self._is_settled = False
        self._signals_seen = 0
        self._step: asyncio.Task[None] | None = None
        self._waiting: deque[Run] = deque()

    # -- the whole --------------------------------------------------------------------------------------------------------

    async def run(self, steps: Callable[[], Awaitable[None]]) -> Outcome:
        """Run the steps, and wait for all acknowledgements; in a transaction if the producer has a transactional id.

        SIGINT and SIGTERM end the steps: what was accepted is still delivered, or its transaction aborted. A second one
        ends the process, with the rejects so far. Afterwards both are ignored, until the caller sets handlers.
        """
        outcome, began = self.outcome, time.monotonic()
        with self._signals():
            try:
                async with self.producer:
                    await (self._in_transaction(steps) if self._is_transactional else self._outside(steps))
            except KafkaError as error:
                self._note(str(error))
            finally:
                self._collect()
                outcome.delivered = int(self.producer.metrics()["record-delivered-total"])
                outcome.seconds = time.monotonic() - began
                self._rejects.close()
        if self._rejects.error is not None:
            self._note(self._rejects.error)
        return outcome

    async def _outside(self, steps: Callable[[], Awaitable[None]]) -> None:
        await self._run_step(steps())
        await self._flush()
        self._is_settled = True

    async def _in_transaction(self, steps: Callable[[], Awaitable[None]]) -> None:
        outcome = self.outcome
        outcome.decision = "not committed"
        await self._run_step(self.producer.init_transactions())
        if self._is_over:
            return
        await self.producer.begin_transaction()
        await self._run_step(steps())
        await self._flush()
        if outcome.error is not None or outcome.interrupted_by is not None:
            await self.producer.abort_transaction()
            return
        outcome.decision = "unknown"
        self._is_settled = True
        await self.producer.commit_transaction()
        outcome.decision = "committed"

    async def _flush(self) -> None:
        await self.producer.flush()
        await asyncio.sleep(0)  # failures of records are reported in the next turn of the event loop
        self._collect()

    async def _run_step(self, step: Awaitable[object]) -> None:
        """Run what a signal ends."""
        self._step = asyncio.ensure_future(_awaited(step))
        try:
            await self._step
        except asyncio.CancelledError:
            if self.outcome.interrupted_by is None:
                self._step.cancel()
                raise
            if self._is_file:
                self.outcome.stopped_at = self.outcome.lines + 1
        except (KafkaError, OSError) as error:
            self._note(_reason(error))
            self._is_over = True
        finally:
            self._step = None

    @contextmanager
    def _signals(self) -> Generator[None, None, None]:
        loop = asyncio.get_running_loop()
        try:
            for number in _SIGNALS:
                loop.add_signal_handler(number, self._interrupt, number)
        except (NotImplementedError, RuntimeError, ValueError):  # Windows, or not the main thread
            yield
            return
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_IGN)  # the outcome is known, and must be reported

    def _interrupt(self, number: int) -> None:
        self._signals_seen += 1
        if self._signals_seen > 1:
            self._rejects.close()
            asyncio.get_running_loop().remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif not self._is_settled:  # a commit that has begun is awaited
            self.outcome.interrupted_by = number
            self._is_over = True
            if self._step is not None:
                self._step.cancel()
            if self._show_interruption is not None:
                self._show_interruption()

    # -- steps ------------------------------------------------------------------------------------------------------------

    async def send_lines(self, blocks: AsyncIterator[list[bytes]], source: LineSource) -> bool:
        """Send lines; returns whether to go on with others. Cancellation: no further line is sent."""
        outcome = self.outcome
        are_values = source.are_values and self._acknowledged is None and self._tee is None
        self._is_file = source.is_file
        async for block in blocks:
            if self._has_ended():  # the block was read only to find out whether there is one
                outcome.stopped_at = outcome.stopped_at or outcome.lines + 1
                return False
            if are_values and outcome.lines >= source.skip and (source.keeps_empty or b"" not in block):
                read = await self._send_values(block, source)
            else:
                read = await self._send_one_by_one(block, source)
            outcome.bytes_read += sum(map(len, block)) + len(block)
            self._collect()
            if outcome.accepted == source.limit:
                return False
            if self._has_ended() and read < len(block):
                outcome.stopped_at = outcome.stopped_at or outcome.lines + 1
            if self._has_ended() and (read < len(block) or not source.is_file):
                return False
        return not self._has_ended()

    def _has_ended(self) -> bool:
        return self._is_over

    def leave(self) -> None:
        """Note that there is a further file, which is not read."""
        if self._is_over:
            self.outcome.stopped_at = self.outcome.stopped_at or self.outcome.lines + 1

    async def send_table(self, table: Table) -> bool:
        """Send the rows of a table; returns whether to go on."""
        before = self.outcome.accepted
        self.outcome.has_tables = True

        def show(result: Any) -> None:
            self.outcome.accepted = before + result.count + result.failed + result.unknown

        try:
            await table.send(self.producer, self._topic, show)
        except SendManyError as error:
            self.outcome.not_written += error.result.failed
            self.outcome.unknown += error.result.unknown
            self._note(str(error))
            self._is_over = True
        return not self._has_ended()

    async def _send_values(self, block: list[bytes], source: LineSource) -> int:
        """Send lines that are values, as many at a time as fit into a batch; returns how many."""
        outcome, at = self.outcome, 0
        while at < len(block) and not self._is_over:
            run = self.producer.appender.append_run(self._topic, block, at, source.headers, source.partition)
            if run is None:
                outcome.lines += 1
                await self._send(Content(block[at]), source)
                at += 1
                continue
            count, result, first, size = run
            self._waiting.append(Run(result, first, count, size))
            at += count
            outcome.lines += count
            outcome.accepted += count
        return at

    async def _send_one_by_one(self, block: list[bytes], source: LineSource) -> int:
        outcome = self.outcome
        for number, line in enumerate(block):
            if self._is_over or outcome.accepted == source.limit:
                return number
            outcome.lines += 1
            if outcome.lines <= source.skip:
                continue
            if line or source.keeps_empty:
                await self._send_line(line, source)
            else:
                outcome.empty += 1
        return len(block)

    def _collect(self) -> None:
        """Take the outcomes of runs that are known by now."""
        while self._waiting and (self._waiting[0].outcome.done or self._waiting[0].outcome.is_split):
            run = self._waiting.popleft()
            if run.outcome.is_split:
                self._waiting.extendleft(reversed(run.pieces()))
            elif run.outcome.failure is not None:
                for index in range(run.index, run.index + run.count):
                    self._failed(run.outcome.failure.error_for(index))

    async def _send_line(self, line: bytes, source: LineSource) -> None:
        try:
            content = Content(line) if source.parser is None else source.parser.parse(line)
        except BadLine as error:
            number, start = self.outcome.lines, line[:_SHOWN].decode(errors="backslashreplace")
            self.outcome.refused += 1
            rules = getattr(source.parser, "rules", None) if error.line is None else error.rules
            self._rejects.add_line(line if error.line is None else error.line, number, str(error), rules)
            self._note(f"line {number} was not sent, because {error}: {start!r}")
            return
        if await self._send(content, source) and self._tee is not None:
            self._tee(line)

    async def _send(self, content: Content, source: LineSource) -> bool:
        """Returns whether the record was accepted."""
        value = content.value
        key = source.key if content.key is None else content.key
        headers = content.headers or source.headers
        partition = source.partition if content.partition is None else content.partition
        timestamp_ms = source.timestamp_ms if content.timestamp_ms is None else content.timestamp_ms
        began = time.monotonic()
        try:
            # Called here, a record with a key takes a fifth less time than by way of enqueue().
            delivery = self.producer.appender.append(self._topic, value, key, headers, partition, timestamp_ms)
            if delivery is None:
                delivery = await self.producer.enqueue(
                    self._topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
                )
        except asyncio.CancelledError:
            self.outcome.lines -= 1
            raise
        except KafkaError as error:
            self._refuse(Content(value, key, headers, partition, timestamp_ms), error)
            return False
        self.outcome.accepted += 1
        if self._acknowledged is not None:
            delivery.add_done_callback(partial(self._settled, self._acknowledged, began))
            if self._waits:
                with suppress(DeliveryError):  # the callback has counted it
                    await delivery
        return True

    def _settled(self, show: Callable[[RecordMetadata, float], object], began: float, delivery: Delivery) -> None:
        error = delivery.exception()
        if error is None:
            show(delivery.result(), time.monotonic() - began)
        else:
            self._failed(error)

    def _refuse(self, content: Content, error: KafkaError) -> None:
        outcome = self.outcome
        outcome.refused += 1
        self._note(f"line {outcome.lines} was not sent: {error}")
        self._rejects.add(content, "refused", str(error))
        if isinstance(error, InvalidRecord):
            return
        self._is_over = self._is_over or not isinstance(error, NotWritten) or isinstance(error, NotWrittenTimeout)
        if self._is_over and not self._rejects.is_kept:  # nothing is wrong with the line
            outcome.stopped_at = outcome.lines

    def _failed(self, error: DeliveryError) -> None:
        """An accepted record failed."""
        is_unknown = not isinstance(error, NotWritten)
        self.outcome.unknown += is_unknown
        self.outcome.not_written += not is_unknown
        self._note(str(error))
        record = error.record
        if record is not None:
            value, key = cast("bytes | None", record.value), cast("bytes | None", record.key)
            headers = cast("Sequence[tuple[str, bytes | None]]", record.headers or ())
            content = Content(value, key, headers, record.partition, record.timestamp_ms)
            self._rejects.add(content, "unknown" if is_unknown else "not written", str(error))

    def _note(self, reason: str) -> None:
        self.outcome.error = self.outcome.error or reason
        if self._show_failure is not None:
            self._show_failure(reason)
        self._is_over = self._is_over or not self._goes_on


def _reason(error: Exception) -> str:
    if isinstance(error, BrokenPipeError):
        return "Standard output was closed."
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'The input or the output'}: {error.strerror}."
    return str(error)


async def _awaited(work: Awaitable[object]) -> None:
    await work
