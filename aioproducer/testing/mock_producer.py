"""MockProducer: a producer for unit tests, without sockets and without brokers (Java's MockProducer)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Unpack, cast

from aioproducer._config.options import with_serializers
from aioproducer.arguments import checked_group, checked_offsets
from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigError, TransactionStateError
from aioproducer.producer import Producer
from aioproducer.serializers import NOT_GIVEN
from aioproducer.testing.broker.fake_cluster import FakeCluster
from aioproducer.testing.broker.transaction_coordinator import TwoPhaseCommit
from aioproducer.testing.broker.transaction_state import TransactionState
from aioproducer.testing.mock.book import Book, Call, GroupOffsets, SentRecord
from aioproducer.testing.mock.engine import MockEngine
from aioproducer.types import HealthStatus, K, KeyT, ProducerRecord, V, ValueT

if TYPE_CHECKING:
    from aioproducer._config.options import ConfigOf, OptionsWithoutSerializers
    from aioproducer.core.transactions.prepared_transaction import PreparedTransactionState
    from aioproducer.delivery import Delivery, DeliveryCallback
    from aioproducer.engine.engine import Engine
    from aioproducer.serializers import SerializerOf
    from aioproducer.testing.broker.cluster_state import TopicSpec
    from aioproducer.transactions.link import TransactionLink
    from aioproducer.types import (
        CloseReport,
        ConsumerGroupMetadata,
        HeadersInput,
        OffsetAndMetadata,
        PartitionInfo,
        SendManyResult,
        TopicPartition,
    )

__all__ = ["Call", "GroupOffsets", "MockProducer", "SentRecord"]


class MockProducer(Producer[K, V]):
    """A `Producer` whose cluster is an object in the same process: no socket is opened, and no call waits for time.

    ::

        async def test_an_order_is_announced():
            async with MockProducer(topics={"orders": 3}) as producer:
                await Shop(producer).order("3 books")
            assert producer.history() == [ProducerRecord("orders", "3 books", key="alice")]

    The code under test uses it like every producer. Checks, interceptors, serializers, partitioner, encoder and
    transactions are those of `Producer`; a fake cluster validates what it gets, and assigns the offsets.

    ``topics`` maps names to numbers of partitions. Other topics are created when they are first used, with
    ``num_partitions``; with ``auto_create_topics=False`` a record for one fails at once, as it would after
    ``max_block_ms``. ``bootstrap_servers`` may be a whole `ProducerConfig`, which ``options`` then change; the
    addresses in it are not used. Raises `ConfigError` for an invalid option or topic.

    By default each record is acknowledged soon, in the event loop. With ``auto_complete=False`` it waits for
    `complete_next` or `error_next`, or until a flush, a commit or a close waits for it. Records do not expire. All calls
    belong into the producer's event loop, once it is started.
    """

    def __init__(
        self: MockProducer[KeyT, ValueT],
        bootstrap_servers: str | Sequence[str] | ConfigOf[KeyT, ValueT] = "mock:9092",
        *,
        auto_complete: bool = True,
        topics: Mapping[str, int | TopicSpec] | None = None,
        num_partitions: int = 1,
        auto_create_topics: bool = True,
        key_serializer: SerializerOf[KeyT] | None = NOT_GIVEN,
        value_serializer: SerializerOf[ValueT] | None = NOT_GIVEN,
        **options: Unpack[OptionsWithoutSerializers],
    ) -> None:
        given = with_serializers(options, key_serializer, value_serializer)
        if isinstance(bootstrap_servers, ProducerConfig):
            config = bootstrap_servers.replace(**given) if given else bootstrap_servers
        else:
            config = ProducerConfig.create(cast("str | Sequence[str]", bootstrap_servers), **given)
        self._book = Book(auto_complete)
        super().__init__(config.replace(interceptors=(*config.interceptors, self._book)))
        self._cluster = FakeCluster(auto_create_topics=auto_create_topics, num_partitions=num_partitions)
        if config.transaction_two_phase_commit_enable:
            self._cluster.transactions.two_phase_commit = TwoPhaseCommit.RECOVERABLE
            self._cluster.set_versions(max_versions={"InitProducerId": 6})
        for name, spec in (topics or {}).items():
            self._cluster.create_topic(name, spec)
        self._engine_type = cast("type[Engine]", partial(MockEngine, self._cluster, self._book))

    @classmethod
    def attach(cls, *_: Any, **__: Any) -> NoReturn:
        """Raise `ConfigError`: the transaction of a handle is in another cluster."""
        raise ConfigError("A MockProducer cannot join a transaction that another producer began; use a FakeBroker.")

    # -- outcomes -----------------------------------------------------------------------------------------------------

    @property
    def auto_complete(self) -> bool:
        """Whether each record is acknowledged without `complete_next`; may be set, which also affects waiting records."""
        return self._book.auto_complete

    @auto_complete.setter
    def auto_complete(self, value: bool) -> None:
        self._book.auto_complete = value
        engine = self._mock_engine
        if engine is not None:
            engine.sender.wake()

    def complete_next(self, offset: int | None = None) -> bool:
        """Acknowledge the record that waits longest; returns False if none waits.

        ``offset`` is its offset, from which its partition counts on; None: the next one. In a transaction False is also
        returned while the record's partition is not part of it. If the cluster refuses the record, as after `fence`,
        its delivery fails.
        """
        engine = self._mock_engine
        return engine is not None and engine.sender.complete_next(offset)

    def error_next(self, error: BaseException) -> bool:
        """Let the record that waits longest fail, and return whether one waited.

        The delivery's error has the class that a producer would raise, with ``error`` as its cause: `Unknown` for errors
        after which the record may be in the log, such as a lost connection, and `NotWritten` for others. If ``error``
        is a `DeliveryError`, such as `UnknownTimeout`, its class and its cause are used. In a transaction, the
        transaction can only be aborted then.
        """
        engine = self._mock_engine
        return engine is not None and engine.sender.fail_next(error)

    def fail(self, call: Call, error: BaseException | None) -> None:
        """Let every call of a method raise this error from now on; None: no longer.

        ``"send"`` stands for all calls that send records; `send_table` raises it for the whole table. ``close`` closes the
        producer before it raises. Raises `ConfigError` for any other name.
        """
        self._book.fail(call, error)

    def fence(self) -> None:
        """Let another producer take over the ``transactional_id``: whatever reaches the coordinator next is fenced.

        The open transaction is aborted. Then records fail, and ending the transaction raises `ProducerFenced`. Raises
        `TransactionStateError` before `init_transactions`.
        """
        name, now_ms = self.config.transactional_id, 0
        coordinator = self._cluster.transactions
        transaction = None if name is None else coordinator.transactions.get(name)
        if transaction is None or name is None:
            raise TransactionStateError("There is nothing to fence: call init_transactions() first.")
        if transaction.state is TransactionState.ONGOING:
            coordinator.fence(transaction, now_ms)
        coordinator.init_producer_id(name, transaction.timeout_ms, None, now_ms)

    # -- what was done ------------------------------------------------------------------------------------------------

    def history(self) -> list[ProducerRecord]:
        """The accepted records in order, as the code under test gave them; in transactions only after the commit.

        Records that failed are included, rows of a table are in serialized form.
        """
        return [each.given for each in self._book.records]

    def sent(self) -> list[SentRecord]:
        """The records of `history`, each with its serialized form."""
        return list(self._book.records)

    def uncommitted_records(self) -> list[ProducerRecord]:
        """The records of the open transaction."""
        return [each.given for each in self._book.uncommitted]

    def offsets_history(self) -> list[GroupOffsets]:
        """The offsets that were committed, by consumer group: an item for each transaction that had any."""
        return [{group: dict(offsets) for group, offsets in each.items()} for each in self._book.offsets]

    def uncommitted_offsets(self) -> GroupOffsets:
        """The offsets of the open transaction, by consumer group."""
        return {group: dict(offsets) for group, offsets in self._book.uncommitted_offsets.items()}

    def clear(self) -> None:
        """Forget the history of records and offsets, and ``commit_count``. Records that wait still get their outcome."""
        self._book.clear()

    @property
    def flushed(self) -> bool:
        """Whether no record waits for its outcome."""
        engine = self._mock_engine
        return engine is None or engine.sender.next_batch is None

    @property
    def closed(self) -> bool:
        """Whether it was closed, and not started again."""
        return self.health().status is HealthStatus.CLOSED

    @property
    def commit_count(self) -> int:
        """The number of committed transactions."""
        return self._book.commit_count

    @property
    def transaction_initialized(self) -> bool:
        """Whether `init_transactions` has succeeded since the start."""
        return self._book.is_initialized

    @property
    def transaction_in_flight(self) -> bool:
        """Whether a transaction is open."""
        return self._book.is_in_flight

    @property
    def transaction_committed(self) -> bool:
        """Whether the last transaction was committed, and no other is open."""
        return self._book.outcome == "committed"

    @property
    def transaction_aborted(self) -> bool:
        """Whether the last transaction was aborted, and no other is open."""
        return self._book.outcome == "aborted"

    # -- the calls of every producer, where a test can interfere ------------------------------------------------------

    async def start(self) -> MockProducer:
        """As of every producer; transactions have to be initialized again. Cancellation: nothing is awaited here."""
        self._book.is_initialized = False
        return await super().start()

    async def flush(self, timeout: float | None = None) -> None:
        """As of every producer; acknowledges what waits. Raises the error given to `fail`. Cancellation: the same."""
        self._book.check("flush")
        await super().flush(timeout)

    async def close(self, timeout: float | None = None) -> CloseReport:
        """Acknowledge what waits and close, then raise the error given to `fail`. Cancellation: it continues."""
        report = await super().close(timeout)
        self._book.check("close")
        return report

    async def partitions_for(self, topic: str, timeout: float | None = None) -> tuple[PartitionInfo, ...]:
        """As of every producer. Raises the error given to `fail`. Cancellation: nothing is undone."""
        self._book.check("partitions_for")
        return await super().partitions_for(topic, timeout)

    async def init_transactions(
        self, timeout: float | None = None, *, keep_prepared_txn: bool = False
    ) -> PreparedTransactionState | None:
        """As of every producer. Raises the error given to `fail`. Cancellation: it continues."""
        self._book.check("init_transactions")
        prepared = await super().init_transactions(timeout, keep_prepared_txn=keep_prepared_txn)
        self._book.is_initialized = True
        return prepared

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata | str,
        timeout: float | None = None,
    ) -> None:
        """As of every producer. Raises the error given to `fail`. Cancellation: they are still part of the transaction."""
        self._book.check("send_offsets_to_transaction")
        for topic, partition in checked_offsets(offsets):  # the consumer has read them, so they exist
            known = self._cluster.topics.get(topic)
            if known is None:
                self._cluster.create_topic(topic, partition + 1)
            elif len(known.partitions) <= partition:
                self._cluster.add_partitions(topic, partition + 1)
        await super().send_offsets_to_transaction(offsets, group, timeout)
        self._book.note_offsets(checked_group(group).group_id, checked_offsets(offsets))

    async def commit_transaction(self, timeout: float | None = None) -> None:
        """As of every producer; acknowledges what waits. Raises the error given to `fail`. Cancellation: it continues."""
        self._book.check("commit_transaction")
        await super().commit_transaction(timeout)

    async def abort_transaction(self, timeout: float | None = None) -> None:
        """As of every producer: records that wait fail. Raises the error given to `fail`. Cancellation: it continues."""
        self._book.check("abort_transaction")
        await super().abort_transaction(timeout)

    def _begin(self, transactions: TransactionLink) -> None:
        self._book.check("begin_transaction")
        super()._begin(transactions)

    # -- records ------------------------------------------------------------------------------------------------------

    async def _enqueue(
        self,
        topic: str | ProducerRecord,
        value: object,
        key: object,
        headers: HeadersInput | None,
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: DeliveryCallback | None,
        timeout: float | None,
    ) -> Delivery:
        self._book.check("send")
        delivery = await super()._enqueue(topic, value, key, headers, partition, timestamp_ms, on_delivery, timeout)
        return self._noted(delivery, topic, value, key, headers, partition, timestamp_ms)

    def _enqueue_nowait(
        self,
        topic: str | ProducerRecord,
        value: object,
        key: object,
        headers: HeadersInput | None,
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: DeliveryCallback | None,
    ) -> Delivery:
        self._book.check("send")
        delivery = super()._enqueue_nowait(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        return self._noted(delivery, topic, value, key, headers, partition, timestamp_ms)

    async def send_table(self, *arguments: Any, **options: Any) -> SendManyResult:
        """As of every producer, unless `fail` lets sending fail."""
        self._book.check("send")
        return await super().send_table(*arguments, **options)

    def _noted(
        self,
        delivery: Delivery,
        topic: str | ProducerRecord,
        value: object,
        key: object,
        headers: HeadersInput | None,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Delivery:
        """Note an accepted record. It is in the last batch of its partition: nothing has run since it was appended."""
        engine = self._mock_engine
        if engine is not None:
            given = (
                topic
                if isinstance(topic, ProducerRecord)
                else ProducerRecord(topic, value, key, headers, partition, timestamp_ms)
            )
            self._book.note(engine.accumulator.queues.of(*delivery.topic_partition).batches[-1], given)
        return delivery

    @property
    def _mock_engine(self) -> MockEngine | None:
        engine = self._engine
        return engine if isinstance(engine, MockEngine) else None
