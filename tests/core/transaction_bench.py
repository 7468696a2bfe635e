"""A `TransactionManager` with the answers of well-behaved brokers, and a note of everything that it reports."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

from aioproducer.core.transactions.identities import CoordinatorType
from aioproducer.core.transactions.manager import TransactionManager
from aioproducer.core.transactions.pauses import RequestPause
from aioproducer.core.transactions.requests import CoordinatorRequest, Rpc
from aioproducer.core.transactions.states import State
from aioproducer.errors import KafkaError, TransactionFatal
from aioproducer.protocol.error_codes import ErrorCode, broker_error
from aioproducer.protocol.messages import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    Coordinator,
    EndTxnResponse,
    FindCoordinatorResponse,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from aioproducer.protocol.wire import ZERO_UUID
from aioproducer.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

ORDERS = TopicPartition("orders", 0)
OTHERS = TopicPartition("orders", 1)
GROUP = ConsumerGroupMetadata("readers", 3, "member-1")
OFFSETS = {TopicPartition("input", 0): OffsetAndMetadata(42)}
NODES = {CoordinatorType.TRANSACTION: 1, CoordinatorType.GROUP: 2}


class Bench:
    """The manager's listener, and the carrier of its requests."""

    def __init__(self, *, is_v2: bool = False, enable_2pc: bool = False, highest_init: int = 6) -> None:
        self.version = 2 if is_v2 else 1
        self.highest_init = highest_init
        self.wakes = 0
        self.added: list[TopicPartition] = []
        self.identities: list[tuple[int, int]] = []
        self.dropped: list[KafkaError] = []
        self.failed_all: list[KafkaError] = []
        self.epoch = -1
        self.topic_ids: dict[str, UUID] = {}
        self.refreshed: list[str] = []
        self.sent: list[CoordinatorRequest] = []
        self.has_incomplete = False
        self.manager = TransactionManager(
            "payments-1",
            timeout_ms=60_000,
            listener=self,
            transaction_version=lambda: self.version,
            enable_2pc=enable_2pc,
            topic_ids=self,
        )

    # -- the topics ---------------------------------------------------------------------------------------------------

    def id_of(self, topic: str) -> UUID:
        return self.topic_ids.get(topic, ZERO_UUID)

    def refresh(self, topic: str) -> None:
        self.refreshed.append(topic)

    # -- the listener -------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        self.wakes += 1

    def partitions_added(self, partitions: Collection[TopicPartition]) -> None:
        self.added.extend(sorted(partitions))

    def producer_id_changed(self, producer_id: int, epoch: int) -> None:
        self.identities.append((producer_id, epoch))

    def drop_undrained(self, error: KafkaError) -> None:
        self.dropped.append(error)

    def fail_all(self, error: KafkaError) -> None:
        self.failed_all.append(error)

    # -- the carrier --------------------------------------------------------------------------------------------------

    def next(self) -> CoordinatorRequest | None:
        """The next request, which some version can be found for."""
        request = self.manager.next_request(has_incomplete_batches=self.has_incomplete)
        if request is not None:
            assert 0 <= request.lowest <= request.highest <= request.message.versions[1]
            for version in range(request.lowest, request.highest + 1):
                request.message.encode(version)
            self.sent.append(request)
        return request

    def expect(self, rpc: Rpc) -> CoordinatorRequest:
        request = self.next()
        assert request is not None, f"{rpc} was expected, and nothing was to be asked in {self.manager.state}"
        assert request.rpc is rpc
        return request

    def finish_well(self, request: CoordinatorRequest) -> None:
        response = self.approve(request)
        pause = self.manager.apply_answer(request, request.read(response), self.version_of(request))
        assert pause is RequestPause.NONE

    def version_of(self, request: CoordinatorRequest) -> int:
        if request.rpc is not Rpc.INIT_PRODUCER_ID:
            return request.highest
        assert request.lowest <= self.highest_init
        return min(request.highest, self.highest_init)

    def run(self) -> list[Rpc]:
        """Answer everything well until there is nothing more to ask."""
        asked: list[Rpc] = []
        while (request := self.next()) is not None:
            asked.append(request.rpc)
            self.finish_well(request)
        return asked

    def approve(self, request: CoordinatorRequest) -> Any:
        if request.rpc is Rpc.INIT_PRODUCER_ID:
            self.epoch += 1
            return InitProducerIdResponse(error_code=0, producer_id=7, producer_epoch=self.epoch)
        if request.rpc in (Rpc.COMMIT, Rpc.ABORT) and request.highest >= 5:
            self.epoch += 1
            return EndTxnResponse(error_code=0, producer_id=7, producer_epoch=self.epoch)
        return self.refuse(request, ErrorCode.NONE)

    def refuse(self, request: CoordinatorRequest, code: int) -> Any:
        """An answer with this code, for each partition where there are some."""
        message = request.message
        if request.rpc is Rpc.FIND_COORDINATOR:
            node = NODES[request.about.type] if code == ErrorCode.NONE else -1
            found = Coordinator(
                key=request.about.key, node_id=node, host="", port=-1, error_code=code, error_message=None
            )
            return FindCoordinatorResponse(coordinators=[found])
        if request.rpc is Rpc.INIT_PRODUCER_ID:
            return InitProducerIdResponse(error_code=code)
        if isinstance(message, AddPartitionsToTxnRequest):
            return AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=[
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(partition_index=each, partition_error_code=code)
                            for each in topic.partitions
                        ],
                    )
                    for topic in message.v3_and_below_topics
                ]
            )
        if isinstance(message, TxnOffsetCommitRequest):
            return TxnOffsetCommitResponse(
                topics=[
                    TxnOffsetCommitResponseTopic(
                        name=topic.name if request.highest < 6 else "",
                        topic_id=topic.topic_id if request.highest >= 6 else ZERO_UUID,
                        partitions=[
                            TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                            for each in topic.partitions
                        ],
                    )
                    for topic in message.topics
                ]
            )
        if request.rpc is Rpc.ADD_OFFSETS_TO_TXN:
            return AddOffsetsToTxnResponse(error_code=code)
        return EndTxnResponse(error_code=code)

    # -- the way to somewhere -----------------------------------------------------------------------------------------

    def initialize(self) -> None:
        operation = self.manager.initialize()
        self.run()
        assert operation.is_done
        assert operation.error is None
        operation.acknowledge()

    def begin(self, *partitions: TopicPartition) -> None:
        """A transaction in which these were added."""
        if self.manager.state is State.UNINITIALIZED:
            self.initialize()
        self.manager.begin()
        for partition in partitions:
            self.write(partition)
        self.run()

    def write(self, partition: TopicPartition) -> None:
        """A record for this partition, in a batch that leaves when it may: with version 2, at once."""
        self.manager.add_partition(partition)
        if self.manager.is_v2:
            self.manager.drained()

    def lead_to(self, rpc: Rpc) -> CoordinatorRequest:
        """The first request of its kind, sent and not answered."""
        manager = self.manager
        if rpc is Rpc.FIND_COORDINATOR:
            manager.initialize()
            return self.expect(rpc)
        if rpc is Rpc.INIT_PRODUCER_ID:
            manager.initialize()
            self.finish_well(self.expect(Rpc.FIND_COORDINATOR))
            return self.expect(rpc)
        self.begin()
        if rpc is Rpc.ADD_PARTITIONS_TO_TXN:
            self.write(ORDERS)
        elif rpc in (Rpc.ADD_OFFSETS_TO_TXN, Rpc.TXN_OFFSET_COMMIT):
            manager.send_offsets(OFFSETS, GROUP)
        else:
            self.write(ORDERS)
            self.run()
            (manager.commit if rpc is Rpc.COMMIT else manager.abort)()
        while True:
            request = self.next()
            assert request is not None
            if request.rpc is rpc:
                return request
            self.finish_well(request)

    def commit_one_transaction(self) -> None:
        """Show that there is a way on: from whatever state that is not fatal to a transaction that is committed."""
        manager = self.manager
        self.run()
        if (pending := manager.pending) is not None:
            assert pending.is_done, f"{pending} waits, and nothing is asked in {manager.state}"
            pending.acknowledge()
        if manager.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR, State.PREPARED_TRANSACTION):
            aborted = manager.abort()
            self.run()
            assert aborted.is_done
            assert aborted.error is None
            aborted.acknowledge()
        self.begin(ORDERS)
        assert manager.may_drain(ORDERS)
        committed = manager.commit()
        assert Rpc.COMMIT in self.run()
        assert committed.is_done
        assert committed.error is None
        committed.acknowledge()
        assert manager.state is State.READY


def in_state(state: State, *, enable_2pc: bool = False) -> Bench:
    """A bench whose manager is in this state."""
    bench = Bench(enable_2pc=enable_2pc or state is State.PREPARED_TRANSACTION)
    manager = bench.manager
    if state is State.UNINITIALIZED:
        return bench
    if state is State.INITIALIZING:
        manager.initialize()
        return bench
    bench.initialize()
    if state is State.READY:
        return bench
    bench.begin(ORDERS)
    if state is State.PREPARED_TRANSACTION:
        manager.prepare().acknowledge()
        bench.run()
    elif state is State.COMMITTING:
        manager.commit()
    elif state is State.ABORTING:
        manager.abort()
    elif state is State.ABORTABLE_ERROR:
        manager.batch_failed(broker_error(ErrorCode.INVALID_TXN_STATE))
    elif state is State.FATAL_ERROR:
        manager.close(TransactionFatal("It was closed."))
    assert manager.state is state
    return bench
