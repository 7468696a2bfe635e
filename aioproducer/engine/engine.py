"""The running parts of a producer, wired together, and the one task that owns all their tasks except the user's.

If any of these tasks ends unexpectedly, the engine dies (`Lifetime`), and every waiting record fails with the cause.
"""

from __future__ import annotations

import asyncio
import os
import time
import weakref
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import anyio
import anyio.abc

from aioproducer.accumulator.accumulator import RecordAccumulator
from aioproducer.accumulator.buffer_pool import BufferPool
from aioproducer.accumulator.settings import AccumulatorSettings
from aioproducer.config import CompressionByTopic, CompressionType, ProducerConfig
from aioproducer.core.backoff import retry_backoff
from aioproducer.core.sequences import Sequences
from aioproducer.core.transactions.writer_shape import shape_of
from aioproducer.engine.lone_batch import LoneBatchSender
from aioproducer.engine.metrics_push import MetricsPush
from aioproducer.engine.sampling import Sampling
from aioproducer.engine.sender import Sender
from aioproducer.engine.unobserved import UnobservedFailures
from aioproducer.errors import ProducerClosed, ProducerDied
from aioproducer.hot import Appender, Lane, OpenBatch, count_fork
from aioproducer.metrics.producer import ProducerMetrics
from aioproducer.net.client import NetworkClient
from aioproducer.record import BATCH_OVERHEAD, Codec, usable
from aioproducer.runtime.foreign import ForeignTasks
from aioproducer.runtime.lifetime import Lifetime, Refusals
from aioproducer.runtime.log import ClientLog

if TYPE_CHECKING:
    from aioproducer.core.transactions.handle import TransactionHandle
    from aioproducer.core.transactions.manager import TransactionManager
    from aioproducer.transactions.carrier import RequestCarrier
    from aioproducer.transactions.link import TransactionLink
    from aioproducer.transactions.shared_acknowledgements import SharedAcknowledgements

__all__ = ["Attachment", "Engine"]


def _no_task() -> None:
    return None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=count_fork)

#: Without idempotence the broker cannot reorder retries, so a partition has one batch in flight, unless retries are off.
_UNORDERED_IN_FLIGHT = 2**31


class Attachment(NamedTuple):
    """A transaction begun by another process that a producer writes into, and the number that identifies this writer."""

    handle: TransactionHandle
    writer: int


class Engine(Lifetime):
    """Everything that runs while a producer is open.

    With an ``attachment`` it writes into that transaction only.
    """

    refusals = Refusals(
        dead="An internal task of the producer {what}; nothing more will be sent. Close this producer and create a new one.",
        cancelled="The producer's tasks were cancelled before it was closed; asyncio.run() does this when main() returns. "
        "Use `async with Producer(...)`, or await close() at the end.",
        forked="The producer was started in process {there}, and this is its fork {here}: connections and sequences cannot "
        "be shared. Create a producer in each process, or start it after the fork.",
        closed="The producer is closed or closing; it accepts no more records.",
        elsewhere="The producer was started in another event loop. Use it in that loop, create one for each loop, or use "
        "SyncProducer to send from threads.",
        ended="The event loop in which the producer was started is closed; each asyncio.run() creates a new event loop. "
        "Enter it again in this one: `async with producer:`.",
    )

    def __init__(
        self,
        config: ProducerConfig,
        client_id: str,
        log: ClientLog,
        metrics: ProducerMetrics,
        random: Random,
        appender: Callable[[], Appender | None],
        attachment: Attachment | None = None,
    ) -> None:
        """``appender`` returns the producer's, or None after the producer was dropped: the engine must not keep it alive."""
        super().__init__(log)
        self.config = config
        self.metrics = metrics
        self.foreign = ForeignTasks(self.loop, log)
        self._sampling = Sampling(self.loop, log, metrics, self._is_waiting)
        self.pulse = self._sampling.pulse
        self._appender = appender
        self._burst_of: Callable[[], asyncio.Task[Any] | None] = _no_task
        self._tasks: anyio.abc.TaskGroup | None = None
        self._keys_choose: bool | None = None
        self._has_fast_path = False
        self._transaction_version = 0

        settings = _settings(config)
        repeats = config.retries > 0 and config.acks != 0
        self.transactions = None if config.transactional_id is None else self._make_link()
        self.sequences = Sequences(
            idempotent=config.enable_idempotence,
            max_unnumbered_in_flight=1 if repeats else _UNORDERED_IN_FLIGHT,
            gate=self.transactions,
            forgotten_after_s=inf if config.producer_id_expiration_ms < 0 else config.producer_id_expiration_ms / 1000,
        )
        self.client = self._make_client(client_id, random)
        self.pool = BufferPool(config.buffer_memory, self._under_pressure, metrics.waited_for_memory)
        self.unobserved = UnobservedFailures(self.loop, config.on_delivery_error, self.foreign, log)
        self.accumulator = self._make_accumulator(settings, random, attachment)
        self.shared = None if self.transactions is None else self._make_shared(random)
        self.sender = self._make_sender(random)
        lone = LoneBatchSender(
            config, client_id, self.accumulator, self.client, self.sender, metrics, self.transactions, self.pulse
        )
        self.accumulator.send_at_once = lone.send
        self.metrics_push = MetricsPush(
            config,
            self.client,
            metrics,
            log=log,
            random=random.random,
            gauges=self.gauges,
            by_broker=self.metrics_by_broker,
        )
        self.carrier: RequestCarrier | None = None
        if self.transactions is not None:
            self.carrier = self._make_carrier(self.transactions, random, attachment)
        if attachment is not None:
            self.sequences.set_producer_id(attachment.handle.producer_id, attachment.handle.producer_epoch)

    def _make_client(self, client_id: str, random: Random) -> NetworkClient:
        return NetworkClient(
            self.config,
            client_id=client_id,
            log=self.log,
            random=random,
            on_ready=self._look_again,
            metrics=self.metrics,
        )

    def _make_accumulator(
        self, settings: AccumulatorSettings, random: Random, attachment: Attachment | None
    ) -> RecordAccumulator:
        return RecordAccumulator(
            settings,
            self.client.metadata,
            self.pool,
            self.sequences,
            self.metrics,
            self.unobserved,
            wake_sender=self._wake,
            random=random.random,
            on_late=self.unobserved.acknowledged_late,
            is_waited_for=lambda topic: self.client.topic(topic) is None,
            transaction=self.transactions,
            shape=() if attachment is None else shape_of(attachment.writer),
        )

    def _make_sender(self, random: Random) -> Sender:
        return Sender(
            self.config,
            self.accumulator,
            self.client,
            self.sequences,
            self.metrics,
            log=self.log,
            random=random.random,
            transactions=self.transactions,
            shared=self.shared,
            pulse=self.pulse,
        )

    # The modules for transactions are imported only if they are used: 10 ms, when the producer is started.

    def _make_link(self) -> TransactionLink:
        from aioproducer.transactions.link import TransactionLink

        return TransactionLink(
            self.loop,
            log=self.log,
            wake_sender=self._wake,
            on_open=self._attach,
            on_shut=self._detach,
        )

    def _make_shared(self, random: Random) -> SharedAcknowledgements:
        from aioproducer.transactions.shared_acknowledgements import SharedAcknowledgements

        return SharedAcknowledgements(
            self.accumulator.outcomes,
            self.client,
            retry_backoff(self.config),
            self.config.request_timeout_ms / 1000,
            log=self.log,
            random=random.random,
            wake=self._wake,
        )

    def _make_manager(self, transactions: TransactionLink, attachment: Attachment | None) -> TransactionManager:
        from aioproducer.core.transactions.manager import TransactionManager
        from aioproducer.transactions.topic_ids import MetadataTopicIds

        config = self.config
        topic_ids = MetadataTopicIds(self.client)
        if attachment is not None:
            return TransactionManager.attach(
                attachment.handle,
                listener=transactions,
                transaction_version=self._read_transaction_version,
                may_end=False,
                topic_ids=topic_ids,
            )
        assert config.transactional_id is not None
        return TransactionManager(
            config.transactional_id,
            timeout_ms=config.transaction_timeout_ms,
            listener=transactions,
            transaction_version=self._read_transaction_version,
            enable_2pc=config.transaction_two_phase_commit_enable,
            topic_ids=topic_ids,
        )

    def _make_carrier(
        self, transactions: TransactionLink, random: Random, attachment: Attachment | None
    ) -> RequestCarrier:
        from aioproducer.transactions.carrier import RequestCarrier

        config = self.config
        manager = self._make_manager(transactions, attachment)
        carrier = RequestCarrier(
            manager,
            self.client,
            retry_backoff(config),
            config.request_timeout_ms / 1000,
            log=self.log,
            has_unsettled=lambda: self.accumulator.has_unsettled,
            random=random.random,
            hold=transactions.hold,
            refused=lambda error, node_id: transactions.fail_if_refused(node_id),
            release=transactions.release,
        )
        transactions.bind(
            manager,
            self.accumulator,
            self.sequences,
            wake_carrier=carrier.wake,
            refusal=self.client.refusal,
            last_failure=lambda: (
                carrier.last_failure or self.accumulator.outcomes.last_failure or self.client.last_failure
            ),
        )
        return carrier

    def _read_transaction_version(self) -> int:
        if self.client.connected_nodes():  # with no broker connected, as after a pause, the version has not changed
            self._transaction_version = self.client.finalized_feature("transaction.version")
        return self._transaction_version

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the tasks; waits for nothing."""
        self._sampling.start()
        self._run_in_task(self._run(), "aioproducer")

    async def _run(self) -> None:
        cause: BaseException | None = None
        parts = {"client": _endless(self.client.run), "sender": _endless(self.sender.run)}
        if self.carrier is not None:
            parts["carrier"] = _endless(self.carrier.run)
        if self.config.enable_metrics_push:
            parts["telemetry"] = self.metrics_push.run()
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                for name, work in parts.items():
                    tasks.start_soon(_as_it_is, work, name=f"aioproducer {name}")
        except asyncio.CancelledError as error:
            cause = error
            raise
        except BaseExceptionGroup as group:
            cause = _only_cause(group)
        except BaseException as error:
            cause = error
            raise
        finally:
            self._tasks = None
            for work in parts.values():
                work.close()  # anyio leaves it behind if its task is cancelled before the first step, as by asyncio.run()
            try:
                self._die(cause)
            finally:
                await self.client.close()

    def _die(self, cause: BaseException | None) -> None:
        if not self._stopping:
            self._detach()
        super()._die(cause)

    def _give_up(self, error: ProducerDied) -> None:
        self.accumulator.outcomes.fail_all(error, self.loop.time())
        if self.transactions is not None:
            self.transactions.close(error)

    def close_intake(self) -> None:
        """Accept no more records; every call that waits to append one ends now."""
        self.closing = True
        self._detach()
        self.accumulator.close(self.loop.time())
        self._interrupt()

    def forsake(self) -> None:
        """Its event loop has ended: fail what has no outcome, without waking anybody."""
        super().forsake()
        self._detach()
        cause = ProducerClosed("The event loop ended before this record was delivered.")
        records = self.accumulator.pending_records
        if records:
            self.log.error(
                "The event loop ended before the producer was closed. %d record(s) that it had accepted were not "
                "acknowledged. Use `async with Producer(...)`, or await close() at the end.",
                records,
            )
        self.accumulator.outcomes.forsake_all(cause, time.monotonic())  # the clock of the loop, which is closed

    @contextmanager
    def interrupting(self, limit: asyncio.Timeout) -> Generator[None]:
        """As of every lifetime; the pulse beats until then."""
        self.pulse.start()
        with super().interrupting(limit):
            yield

    def _interrupt(self) -> None:
        self.pulse.stop()
        self.pool.close()
        super()._interrupt()

    async def stop(self) -> None:
        """End all tasks and connections; records without an outcome must have been given up before.

        Cancellation: everything still ends.
        """
        self._stopping = True
        task = self._task
        if task is None:
            await self.client.close()
            return
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()
        elif not task.done():
            task.cancel()  # it was never scheduled
        await asyncio.wait([task])
        self._sampling.stop()
        self.unobserved.close()
        if not task.cancelled() and task.exception() is not None:
            self.log.debug("The producer's task ended with %r", task.exception())
        await self.client.close()

    def gauges(self) -> dict[str, float]:
        """The metrics that exist only while it runs, under their names; may be called in any thread."""
        now, oldest, pool = self.loop.time(), self.accumulator.oldest_created_at, self.pool
        connected = self.client.connected_nodes()
        return {
            "oldest-record-age": 0.0 if oldest is None else now - oldest,
            "buffer-total-bytes": pool.total,
            "buffer-available-bytes": max(0, pool.free),  # splitting a batch adds headers
            "waiting-threads": pool.waiting,
            "records-pending": self.accumulator.pending_records,
            "stopped-partitions": len(self.accumulator.stopped.losses),
            "connection-count": len(connected),
            "requests-in-flight": sum(map(self.client.in_flight, connected)),
            "producer-epoch": self.sequences.epoch,
            "metadata-age": now - self.client.metadata.refreshed_at,
        }

    def metrics_by_broker(self) -> dict[int, Mapping[str, float]]:
        """The metrics of each broker that was connected, by its id; may be called in any thread."""
        now, known = self.loop.time(), self.client.known
        return {
            node_id: {
                **numbers,
                "requests-in-flight": 0 if (broker := known(node_id)) is None else broker.in_flight,
                "oldest-request-age": 0.0 if broker is None else broker.oldest_request_age(now),
            }
            for node_id, numbers in self.metrics.by_broker(now).items()
        }

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run foreign work, such as an async interceptor, in a task for which closing waits, within its timeout."""
        self.foreign.spawn(work, name)

    # -- records without the intake -----------------------------------------------------------------------------------

    def open_fast_path(self, keys_choose: bool | None) -> None:
        """Let records be appended without the `Intake` if nothing has to be decided, as long as the engine is usable.

        With transactions, only within each of them.
        """
        self._has_fast_path, self._keys_choose = True, keys_choose
        if self.transactions is None or self.transactions.takes_records:
            self._attach()

    def _attach(self) -> None:
        appender = self._appender()
        if appender is None or not self._has_fast_path or self.closing:
            return
        appender.attach(
            self.loop,
            self.pool,
            self.accumulator.lanes,
            self.accumulator.ready,
            self._begin,
            self.accumulator.undo,
            max_size=self.config.max_request_size - BATCH_OVERHEAD,
            keys_choose=self._keys_choose,
        )

    def _detach(self) -> None:
        appender = self._appender()
        if appender is not None:
            appender.detach()

    def _begin(self, topic: str, lane: Lane, partition: int, size: int) -> OpenBatch | None:
        """A batch for a record on the fast path, if no wait is needed; partition -1: any."""
        known = self.client.topic(topic)
        if known is None or known.partition_count != lane.partition_count:
            return None
        return self.accumulator.begin(known, None if partition < 0 else partition, size, self.loop.time())

    def is_burst_of_one_task(self) -> bool:
        """Begin a new burst; returns whether a single task produced the old one, and also the end of the one before.

        Only such a task has to pause. Many tasks that send one record each let the event loop run anyway, and a pause would
        change their order.
        """
        appender = self._appender()
        if appender is not None:
            appender.burst = 0
        task = asyncio.current_task()
        before, self._burst_of = self._burst_of(), weakref.ref(task) if task is not None else _no_task
        return task is not None and before is task

    # -- callbacks of the parts ------------------------------------------------------------------------------------------

    def _look_again(self) -> None:
        """Connections opened, closed or failed."""
        self._wake()
        if self.transactions is not None:
            self.transactions.fail_if_refused()
        self.metrics_push.look_again()

    def _wake(self) -> None:
        if self.pulse.is_still:
            self.pulse.start()
        self.sender.wake()

    def _under_pressure(self) -> None:
        self.accumulator.end_linger(self.loop.time())

    def _is_waiting(self) -> bool:
        return bool(self.accumulator.outcomes.incomplete or self._waiting)


def _only_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The exception inside nested exception groups, if it is the only one."""
    if len(group.exceptions) != 1:
        return group
    (cause,) = group.exceptions
    if isinstance(cause, BaseExceptionGroup):
        return _only_cause(cast("BaseExceptionGroup[BaseException]", cause))
    return cause


def _as_it_is(work: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None]:
    return work


async def _endless(run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine that must not end: if it does (a task in it was cancelled from outside), that is also an error."""
    await run()
    raise RuntimeError(f"{run!r} ended unexpectedly")


def _codecs(names: tuple[CompressionType, ...]) -> tuple[Codec, Codec | None]:
    """The codec to use, and that for brokers before Kafka 2.1, which support all codecs but zstd; None: the same."""
    preferred, *later = usable([Codec[name.upper()] for name in names])
    return preferred, later[0] if later and preferred is Codec.ZSTD else None


def _settings(config: ProducerConfig) -> AccumulatorSettings:
    codecs = config.compression_type
    if not isinstance(codecs, CompressionByTopic):
        codecs = CompressionByTopic({"*": codecs})
    codec, old_codec = _codecs(codecs.others)
    by_topic = {topic: _codecs(names) for topic, names in codecs.topics.items()}
    return AccumulatorSettings(
        batch_size=config.batch_size,
        linger_s=config.linger_ms / 1000,
        delivery_timeout_s=config.delivery_timeout_ms / 1000,
        retry_backoff=retry_backoff(config),
        max_request_size=config.max_request_size,
        codec=codec,
        codecs_by_topic={topic: preferred for topic, (preferred, _) in by_topic.items()},
        old_codec=old_codec,
        old_codecs_by_topic={topic: old for topic, (_, old) in by_topic.items()},
        compression_level=config.compression_level,
        compression_threshold=config.compression_threshold_bytes,
        adaptive_partitioning=config.partitioner_adaptive_partitioning_enable,
        availability_timeout_s=config.partitioner_availability_timeout_ms / 1000,
        client_rack=config.client_rack if config.partitioner_rack_aware else None,
        stops_on_data_loss=config.on_data_loss == "stop",
    )
