"""Sends lines and tables through a Producer, and counts the outcomes."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, Literal, Protocol, TypeAlias, cast

from aioproducer import (
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
    are not sent; ``limit`` is the number of records after which the run ends.
    """

    parser: Parser | None = None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp_ms: int | None = None
    skip: int = 0
    limit: int | None = None
    keeps_empty: bool = False

    @property
    def are_values(self) -> bool:
        """Whether each line is a value, and the records have no other part."""
        parts = (self.parser, self.key, self.timestamp_ms, self.limit)
        return all(each is None for each in parts)


@dataclass(slots=True)
class Outcome:
    """The outcome of a run so far.

    ``error`` is the first failure, ``stopped_at`` the number of the first line that was left, ``interrupted_by`` the signal
    that ended the run, ``decision`` the end of its transaction (None: it has none).
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
    error: str | None = None
    stopped_at: int | None = None
    interrupted_by: int | None = None
    decision: Decision | None = None

    @property
    def is_good(self) -> bool:
        """Whether all that was to be sent is written."""
        return self.error is None and self.interrupted_by is None and self.decision in (None, "committed")


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
        tee: BinaryIO | None = None,
    ) -> None:
        """``goes_on``: also after a record that failed.

        With ``acknowledged`` each record is awaited before the next is sent; it gets the metadata and the seconds taken.
        """
        self.outcome = Outcome()
        self.producer = Producer(config, on_delivery_error=self._failed)
        self._topic = topic
        self._is_transactional = config.transactional_id is not None
        self._rejects = rejects
        self._goes_on = goes_on
        self._acknowledged = acknowledged
        self._tee = tee
        self._is_over = False
        self._reading: asyncio.Task[None] | None = None
        self._waiting: deque[Run] = deque()

    # -- the whole --------------------------------------------------------------------------------------------------------

    async def run(self, steps: Callable[[], Awaitable[None]]) -> Outcome:
        """Run the steps, and wait for all acknowledgements; in a transaction if the producer has a transactional id.

        SIGINT and SIGTERM end the steps: what was accepted is still delivered, or its transaction aborted. A second one
        ends the process.
        """
        began = time.monotonic()
        try:
            async with self.producer:
                await (self._in_transaction(steps) if self._is_transactional else self._outside(steps))
                self.outcome.delivered = int(self.producer.metrics()["record-delivered-total"])
        except KafkaError as error:
            self._note(str(error))
        finally:
            self._collect()
            self.outcome.seconds = time.monotonic() - began
            self._rejects.close()
        return self.outcome

    async def _outside(self, steps: Callable[[], Awaitable[None]]) -> None:
        await self._read(steps)
        await self._flush()

    async def _in_transaction(self, steps: Callable[[], Awaitable[None]]) -> None:
        outcome = self.outcome
        outcome.decision = "not committed"
        await self.producer.init_transactions()
        await self.producer.begin_transaction()
        await self._read(steps)
        await self._flush()
        if outcome.error is not None or outcome.interrupted_by is not None:
            await self.producer.abort_transaction()
            return
        outcome.decision = "unknown"
        await self.producer.commit_transaction()
        outcome.decision = "committed"

    async def _flush(self) -> None:
        await self.producer.flush()
        await asyncio.sleep(0)  # failures of records are reported in the next turn of the event loop
        self._collect()

    async def _read(self, steps: Callable[[], Awaitable[None]]) -> None:
        self._reading = asyncio.ensure_future(_awaited(steps()))
        with self._signals():
            try:
                await self._reading
            except asyncio.CancelledError:
                if self.outcome.interrupted_by is None:
                    self._reading.cancel()
                    raise
                self.outcome.stopped_at = self.outcome.lines + 1
            except (KafkaError, OSError) as error:
                self._note(str(error))

    @contextmanager
    def _signals(self) -> Generator[None, None, None]:
        loop = asyncio.get_running_loop()
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, self._interrupt, number)
        except (NotImplementedError, RuntimeError, ValueError):  # Windows, or not the main thread
            yield
            return
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def _interrupt(self, number: int) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)
        self.outcome.interrupted_by = number
        self._is_over = True
        if self._reading is not None:
            self._reading.cancel()

    # -- steps ------------------------------------------------------------------------------------------------------------

    async def send_lines(self, blocks: AsyncIterator[list[bytes]], source: LineSource) -> bool:
        """Send lines; returns whether to go on with others. Cancellation: no further line is sent."""
        outcome = self.outcome
        are_values = source.are_values and self._acknowledged is None and self._tee is None
        async for block in blocks:
            if are_values and outcome.lines >= source.skip and (source.keeps_empty or b"" not in block):
                read = await self._send_values(block, source)
            else:
                read = await self._send_one_by_one(block, source)
            outcome.bytes_read += sum(map(len, block)) + len(block)
            self._collect()
            if read < len(block) or self._is_over:
                outcome.stopped_at = outcome.lines + 1 if self._is_over else None
                return False
        return outcome.accepted != source.limit

    async def send_table(self, table: Table) -> bool:
        """Send the rows of a table; returns whether to go on."""
        before = self.outcome.accepted

        def show(result: Any) -> None:
            self.outcome.accepted = before + result.count + result.failed + result.unknown

        try:
            await table.send(self.producer, self._topic, show)
        except SendManyError as error:
            self.outcome.not_written += error.result.failed
            self.outcome.unknown += error.result.unknown
            self._note(str(error))
            self._is_over = True
        return not self._is_over

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
            self._rejects.add_line(line, number, str(error))
            self._note(f"line {number} was not sent, because {error}: {start!r}")
            return
        await self._send(content, source)
        if self._tee is not None:
            self._tee.write(line + b"\n")

    async def _send(self, content: Content, source: LineSource) -> None:
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
        except (InvalidRecord, NotWritten) as error:  # the latter: no metadata or no room within max_block_ms
            self.outcome.refused += 1
            self._rejects.add(content, "refused", str(error))
            self._note(f"line {self.outcome.lines} was not sent: {error}")
            self._is_over = self._is_over or isinstance(error, NotWrittenTimeout)  # the next would wait as long
            return
        self.outcome.accepted += 1
        if self._acknowledged is not None:
            try:
                metadata = await delivery
            except DeliveryError as error:
                self._failed(error)
            else:
                self._acknowledged(metadata, time.monotonic() - began)

    def _failed(self, error: DeliveryError) -> None:
        """An accepted record failed."""
        is_unknown = not isinstance(error, NotWritten)
        self.outcome.unknown += is_unknown
        self.outcome.not_written += not is_unknown
        record = error.record
        if record is not None:
            value, key = cast("bytes | None", record.value), cast("bytes | None", record.key)
            headers = cast("Sequence[tuple[str, bytes | None]]", record.headers or ())
            content = Content(value, key, headers, record.partition, record.timestamp_ms)
            self._rejects.add(content, "unknown" if is_unknown else "not written", str(error))
        self._note(str(error))

    def _note(self, reason: str) -> None:
        self.outcome.error = self.outcome.error or reason
        self._is_over = self._is_over or not self._goes_on


async def _awaited(work: Awaitable[None]) -> None:
    await work
