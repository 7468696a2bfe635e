"""Sends the rows of one task on its own event loop, and reports the outcome."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from aioproducer.config import ProducerConfig
from aioproducer.errors import DeliveryError, KafkaError, SharedPartition
from aioproducer.producer import Producer
from aioproducer.record.columns import HeaderColumns
from aioproducer.spark.avro.encoder import AvroEncoder
from aioproducer.spark.avro.topic_schema_ids import TopicSchemaIds
from aioproducer.spark.exactly_once.fingerprint import Fingerprint
from aioproducer.spark.exactly_once.job_transaction import (
    AttemptRefused,
    JobTransaction,
    attempt_refused,
    shared_by_tasks,
)
from aioproducer.spark.exactly_once.task_attempt import TaskAttempt
from aioproducer.spark.exactly_once.task_failure import TaskFailure
from aioproducer.spark.exactly_once.task_summary import TaskSummary
from aioproducer.spark.options.sink import SinkOptions
from aioproducer.spark.sink.columns import SinkColumns
from aioproducer.spark.sink.dead_letters import DeadLetters
from aioproducer.spark.sink.handover import Channel, Handover
from aioproducer.spark.sink.json_encoder import JsonEncoder
from aioproducer.spark.sink.rate_limit import paced
from aioproducer.spark.sink.timestamps import in_milliseconds
from aioproducer.spark.sink.topic_rules_reader import TopicRulesReader
from aioproducer.spark.sink.topic_split import load_pyarrow, split_by_topic
from aioproducer.types import SendManyResult, TopicPartition, Written

__all__ = ["TaskRun"]

logger = logging.getLogger("aioproducer")

#: One thread per topic may wait for rows; with fewer they could deadlock. They are created on demand.
_THREADS: Final = 10_000


class _Sent(NamedTuple):
    """The outcome of one topic's rows; with ``written`` and ``retries`` if they had their own producer."""

    result: SendManyResult
    written: Mapping[TopicPartition, Written] = MappingProxyType({})
    retries: int = 0
    is_dead: bool = False


class TaskRun:
    """One task: sends the Arrow batches that it gets from Spark.

    Without a ``transaction`` each row is written at least once. With one, rows are written into it by this ``attempt``, or
    not at all if this batch was committed before. ``rules`` are the already known rules of topics.
    """

    def __init__(
        self,
        options: SinkOptions,
        columns: SinkColumns,
        transaction: JobTransaction | None = None,
        attempt: TaskAttempt = TaskAttempt(),  # noqa: B008 - frozen
        rules: TopicRulesReader | None = None,
    ) -> None:
        self._options = options
        self._columns = columns
        self._transaction = transaction
        self._attempt = attempt
        self._pyarrow = load_pyarrow()
        self._encoder = _encoder(columns)
        self._schema_ids = _schema_ids(options, columns)
        self._rules = TopicRulesReader(options) if rules is None else rules
        topic = options.dead_letter_topic
        self._dead_letters = None if topic is None else DeadLetters(topic, columns, options, self._rules.of)
        self._contents: list[Fingerprint] = []

    def report(self, batches: Iterable[Any]) -> TaskSummary:
        """As `run`, but puts errors into the summary, for the driver, instead of raising them.

        Raises only `AttemptRefused`. (The rows are computed in other processes. If those fail, Spark ends this task,
        whatever is returned.)
        """
        try:
            return self.run(batches)
        except AttemptRefused:
            raise
        except Exception as error:
            return self._summary(failure=TaskFailure.of(error))

    def run(self, batches: Iterable[Any]) -> TaskSummary:
        """Send all rows and wait for their acknowledgements; blocks. Raises the error if a row could not be written."""
        return asyncio.run(self.send(batches))

    async def send(self, batches: Iterable[Any]) -> TaskSummary:
        """As `run`, inside an event loop whose default executor it replaces.

        Raises `CommitMarkerMissing`, `CommitMarkerSetBack` and `TransactionAbortable` if it must not write, and
        `SharedPartition` if another task wrote the same partition. Cancellation: no further batch is sent; batches that
        were already enqueued are still delivered.
        """
        transaction, attempt = self._transaction, self._attempt
        if transaction is not None:
            earlier = transaction.earlier(attempt)
            if earlier is not None:
                return self._summary(earlier=earlier, contents=self._contents_of(batches))
            if attempt.number > 0:
                for _ in batches:  # if upstream fails, raise its error
                    pass
                raise attempt_refused(attempt)
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS, "aioproducer spark"))
        began = time.monotonic()
        producer = self._producer(await self._config())
        with _explaining_shared_partition(producer):
            async with producer:
                sent = await self._send_topics(producer, batches)
        sent.append(_Sent(SendManyResult(), producer.written, _retries(producer)))
        return self._summary(
            rows=sum(each.result.count for each in sent if not each.is_dead),
            size=sum(each.result.serialized_bytes for each in sent if not each.is_dead),
            written={partition: what for each in sent for partition, what in each.written.items()},
            offsets={partition: ends for each in sent for partition, ends in each.result.offsets.items()},
            retries=sum(each.retries for each in sent),
            dead_letters=sum(each.result.count for each in sent if each.is_dead),
            seconds=time.monotonic() - began,
            contents=Fingerprint.together(self._contents),
        )

    def _summary(self, **what: Any) -> TaskSummary:
        attempt = self._attempt
        return TaskSummary(transaction=self._transaction, query=attempt.query, batch=attempt.batch, **what)

    def _contents_of(self, batches: Iterable[Any]) -> Fingerprint:
        """The fingerprint of all rows, without sending them."""
        return Fingerprint.together(
            Fingerprint.of_table(topic, table) for batch in batches for topic, table in self._records(batch)
        )

    async def _config(self) -> ProducerConfig:
        config, topic = self._options.config, self._options.topic
        if self._dead_letters is None:
            return config
        await asyncio.to_thread(self._rules.learn)
        return config if topic is None else self._rules.of(topic).fitting(config)

    def _producer(self, config: ProducerConfig) -> Producer:
        if self._transaction is None:
            return Producer(config)
        # If the task fails none of these rows count, so only the task's failure is reported.
        config = config.replace(on_delivery_error=_ignore_undelivered)
        return Producer.attach(self._transaction.handle, config, writer=self._attempt.id)

    async def _send_topics(self, producer: Producer, batches: Iterable[Any]) -> list[_Sent]:
        if (rate := self._options.rows_per_second) is not None:
            batches = paced(batches, rate)
        with Handover(batches, self._split, self._options.max_in_flight_batches) as handover:
            try:
                async with asyncio.TaskGroup() as sending:
                    tasks = [
                        sending.create_task(self._send_topic(producer, channel))
                        async for channel in handover.channels()
                    ]
            except ExceptionGroup as group:
                # Arrow turns upstream's exception into text; raise the exception itself, which says more. Its cause stays.
                error = handover.error or group.exceptions[0]
                raise error from error.__cause__
            if handover.error is not None:
                raise handover.error
        return [task.result() for task in tasks]

    async def _send_topic(self, producer: Producer, channel: Channel) -> _Sent:
        letters = self._dead_letters
        if letters is None or channel.topic != letters.topic:
            return _Sent(await self._send_tables(producer, channel, self._headers()))
        headers = [*(self._headers() or []), letters.headers]
        own = self._producer(letters.producer_config())
        with _explaining_shared_partition(own):
            async with own:
                result = await self._send_tables(own, channel, headers, keeps_partition=self._options.is_exactly_once)
        return _Sent(result, own.written, _retries(own), is_dead=True)

    async def _send_tables(
        self, producer: Producer, channel: Channel, headers: HeaderColumns | None, *, keeps_partition: bool = True
    ) -> SendManyResult:
        tables = iter(channel)
        first = await asyncio.to_thread(next, tables, None)
        if first is None:
            return SendManyResult()
        columns = self._columns
        return await producer.send_table(
            channel.topic,
            self._pyarrow.RecordBatchReader.from_batches(first.schema, _again(first, tables)),
            key="key" if columns.has("key") else None,
            value="value",
            headers=headers,
            timestamp="timestamp" if columns.has("timestamp") else None,
            partition="partition" if columns.has("partition") and keeps_partition else None,
        )

    def _split(self, batch: Any) -> Iterator[tuple[str, Any]]:
        """Runs in the thread that reads, so that encoding does not hold up the event loop."""
        letters, has_times = self._dead_letters, self._columns.has("timestamp")
        tables: Iterable[tuple[str, Any]] = self._records(batch)
        if self._transaction is not None:
            tables = list(tables)
            self._contents += [Fingerprint.of_table(topic, table) for topic, table in tables]
        if has_times and letters is None:
            # Convert all before anything of this batch is sent: one may have a timestamp that is invalid in Kafka.
            tables = [(topic, in_milliseconds(table)) for topic, table in tables]
        if letters is None:
            return iter(tables)
        divided = letters.divide(tables)
        return ((topic, in_milliseconds(table)) for topic, table in divided) if has_times else divided

    def _records(self, batch: Any) -> Iterator[tuple[str, Any]]:
        """The rows by topic, as columns of records with encoded values."""
        whole = batch if self._encoder is None else self._encoder.with_value(batch)
        tables = split_by_topic(whole, self._columns, self._options.topic)
        return tables if self._schema_ids is None else iter(self._schema_ids.prefixed(tables))

    def _headers(self) -> list[Any] | None:
        constant = dict(self._options.headers)
        return [*(["headers"] if self._columns.has("headers") else []), *([constant] if constant else [])] or None


def _encoder(columns: SinkColumns) -> AvroEncoder | JsonEncoder | None:
    """The encoder of the values, if they consist of other columns."""
    if columns.avro is not None:
        return AvroEncoder(columns.avro)
    return JsonEncoder(columns.payload) if columns.payload else None


def _schema_ids(options: SinkOptions, columns: SinkColumns) -> TopicSchemaIds | None:
    """None if there is only one topic, whose id the driver has got, or no registry."""
    avro, registry = columns.avro, options.registry
    if avro is None or registry is None or avro.schema_id is not None:
        return None
    return TopicSchemaIds(registry, avro.text)


@contextmanager
def _explaining_shared_partition(producer: Producer) -> Generator[None, None, None]:
    try:
        yield
    except KafkaError as error:
        if isinstance(producer.transaction_error, SharedPartition):
            raise shared_by_tasks(error) from error
        raise


def _ignore_undelivered(error: DeliveryError) -> None:
    logger.debug("%s", error)


def _retries(producer: Producer) -> int:
    return int(producer.metrics()["record-retry-total"])


def _again(first: Any, rest: Iterable[Any]) -> Iterable[Any]:
    yield first
    yield from rest
