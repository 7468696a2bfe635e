"""Transactions against a model of Kafka, whose answers get lost, are late or errors: nothing is torn, no caller is stuck.

The model has what decides: identities and their retries, what is in the transaction, and how it ended. Whatever happens,
what a commit or an abort reports is what happened; a commit is never followed by an abort unless it was refused;
and from every state that is not fatal there is a way to a transaction that is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum, auto
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from aioproducer.core.transactions.error_codes import Action, action_for
from aioproducer.core.transactions.identities import ProducerIdAndEpoch
from aioproducer.core.transactions.manager import TransactionManager
from aioproducer.core.transactions.operation import Operation
from aioproducer.core.transactions.requests import CoordinatorRequest, Rpc
from aioproducer.core.transactions.states import State
from aioproducer.errors import CommitUnknown, KafkaError, KafkaTimeoutError
from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
)
from aioproducer.types import OffsetAndMetadata, TopicPartition
from tests.core.transaction_bench import GROUP, Bench

PARTITIONS = [TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("audit", 0)]
LAST_EPOCH = 6  # of a real 32,767: so that identities are used up now and then
NO_PRODUCER = ProducerIdAndEpoch(-1, -1)


class Record(NamedTuple):
    """A record, or a committed offset, and the transaction that it belongs to."""

    transaction: int
    number: int
    partition: TopicPartition


class Status(Enum):
    EMPTY = auto()
    ONGOING = auto()
    COMMITTED = auto()
    ABORTED = auto()


class Kafka:
    """The coordinator of one transactional id, which writes its markers at once."""

    def __init__(self) -> None:
        self.current = ProducerIdAndEpoch(7, -1)
        self.last = NO_PRODUCER
        self.status = Status.EMPTY
        self.partitions: set[TopicPartition] = set()
        self.open: list[Record] = []
        self.committed: set[Record] = set()
        self.offsets: dict[int, Record] = {}  # by the offset that stands for it

    def end(self, status: Status) -> None:
        if status is Status.COMMITTED:
            self.committed.update(self.open)
        self.open.clear()
        self.partitions.clear()
        self.status = status

    def bump(self) -> None:
        producer_id, epoch = self.current
        self.current = ProducerIdAndEpoch(*((producer_id + 1, 0) if epoch >= LAST_EPOCH else (producer_id, epoch + 1)))

    def produce(self, producer: ProducerIdAndEpoch, record: Record, *, is_v2: bool) -> bool:
        """Whether the record was written."""
        if producer != self.current or not (is_v2 or record.partition in self.partitions):
            return False
        self.status = Status.ONGOING
        self.open.append(record)
        return True

    def handle(self, request: CoordinatorRequest, bench: Bench) -> Any:
        message = request.message
        if request.rpc is Rpc.FIND_COORDINATOR:
            return bench.refuse(request, ErrorCode.NONE)
        if isinstance(message, InitProducerIdRequest):
            return self.initialize(ProducerIdAndEpoch(message.producer_id, message.producer_epoch))
        if isinstance(message, AddPartitionsToTxnRequest):
            who = ProducerIdAndEpoch(message.v3_and_below_producer_id, message.v3_and_below_producer_epoch)
        else:
            assert isinstance(message, AddOffsetsToTxnRequest | TxnOffsetCommitRequest | EndTxnRequest)
            who = ProducerIdAndEpoch(message.producer_id, message.producer_epoch)
        if isinstance(message, EndTxnRequest):
            wanted = Status.COMMITTED if message.committed else Status.ABORTED
            return self.end_v2(who, wanted) if request.highest >= 5 else self.end_v1(who, wanted)
        if who != self.current:
            return bench.refuse(request, ErrorCode.PRODUCER_FENCED)
        if not isinstance(message, TxnOffsetCommitRequest) or request.highest >= 5:
            self.status = Status.ONGOING
        if isinstance(message, AddPartitionsToTxnRequest):
            for topic in message.v3_and_below_topics:
                self.partitions.update(TopicPartition(topic.name, each) for each in topic.partitions)
        elif isinstance(message, TxnOffsetCommitRequest):
            self.open.extend(self.offsets[each.committed_offset] for each in message.topics[0].partitions)
        return bench.refuse(request, ErrorCode.NONE)

    def initialize(self, who: ProducerIdAndEpoch) -> InitProducerIdResponse:
        if who not in (NO_PRODUCER, self.current):
            if who != self.last:
                return InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED)
        else:
            is_ongoing = self.status is Status.ONGOING
            self.end(Status.ABORTED if is_ongoing else Status.EMPTY)
            self.last = NO_PRODUCER if is_ongoing or who == NO_PRODUCER else who
            self.bump()
            if is_ongoing and who != NO_PRODUCER:  # the id that would be accepted is not the one that was sent any more
                return InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED)
        return InitProducerIdResponse(
            error_code=0, producer_id=self.current.producer_id, producer_epoch=self.current.epoch
        )

    def end_v1(self, who: ProducerIdAndEpoch, wanted: Status) -> EndTxnResponse:
        if who != self.current:
            return EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED)
        if self.status is Status.ONGOING:
            self.end(wanted)
        elif self.status is not wanted:
            return EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE)
        return EndTxnResponse(error_code=0)

    def end_v2(self, who: ProducerIdAndEpoch, wanted: Status) -> EndTxnResponse:
        if who == self.current:
            if self.status is not Status.ONGOING and wanted is Status.COMMITTED:
                return EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE)
            self.end(wanted)
            self.last = who
            self.bump()
        elif who != self.last:
            return EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED)
        elif self.status is not wanted:
            return EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE)
        return EndTxnResponse(error_code=0, producer_id=self.current.producer_id, producer_epoch=self.current.epoch)


REFUSALS = [
    *[ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.UNKNOWN_PRODUCER_ID] * 4,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.UNKNOWN_SERVER_ERROR,
]
HARMLESS = (Action.RETRY, Action.RETRY_SOON, Action.FIND_COORDINATOR)


class Transactions(RuleBasedStateMachine):
    """One producer, its batches and its coordinator."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.kafka = Kafka()
        self.manager = TransactionManager(
            "payments-1", timeout_ms=60_000, listener=self, transaction_version=lambda: self.bench.version
        )
        self.undrained: list[Record] = []
        self.acknowledged: set[Record] = set()
        self.of_transaction: set[Record] = set()  # all of the present one
        self.never: set[Record] = set()  # what was reported as not committed
        self.number = 0
        self.transaction = 0
        self.late: list[CoordinatorRequest] = []
        self.operation: Operation | None = None
        self.commit_may_have_arrived = False
        self.trouble = False  # something happened that may end a producer
        self.request: CoordinatorRequest | None = None  # the one that is under way

    @initialize(version=st.sampled_from([1, 2]))
    def is_initialized(self, version: int) -> None:
        self.bench.version = version
        self.initialize()
        self.settle()
        self.see()

    # -- the listener -------------------------------------------------------------------------------------------------

    def wake(self) -> None: ...

    def partitions_added(self, partitions: Collection[TopicPartition]) -> None: ...

    def producer_id_changed(self, producer_id: int, epoch: int) -> None:
        assert not self.undrained, "batches of two epochs at once"

    def drop_undrained(self, error: KafkaError) -> None:
        self.undrained.clear()

    def fail_all(self, error: KafkaError) -> None:
        self.undrained.clear()

    # -- the user -----------------------------------------------------------------------------------------------------

    def is_in(self, *states: State) -> bool:
        return self.manager.state in states and self.manager.pending is None

    @precondition(lambda self: self.is_in(State.UNINITIALIZED))
    @rule()
    def initialize_again(self) -> None:
        self.initialize()

    def initialize(self) -> None:
        self.operation = self.manager.initialize()

    @precondition(lambda self: self.is_in(State.READY))
    @rule()
    def begin(self) -> None:
        self.manager.begin()
        self.transaction += 1
        self.acknowledged, self.of_transaction = set(), set()
        self.commit_may_have_arrived = False

    @precondition(lambda self: self.is_in(State.IN_TRANSACTION))
    @rule(partitions=st.lists(st.sampled_from(PARTITIONS), min_size=1, max_size=3))
    def append_some(self, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            self.append(partition)

    def append(self, partition: TopicPartition) -> None:
        self.manager.add_partition(partition)
        record = self.record(partition)
        self.undrained.append(record)

    @precondition(lambda self: self.is_in(State.IN_TRANSACTION))
    @rule()
    def send_offsets(self) -> None:
        record = self.record(TopicPartition("input", 0))
        self.kafka.offsets[record.number] = record
        operation = self.manager.send_offsets({record.partition: OffsetAndMetadata(record.number)}, GROUP)
        acknowledged = self.acknowledged

        def taken() -> None:
            if operation.error is None:
                acknowledged.add(record)

        operation.when_done(taken)

    def record(self, partition: TopicPartition) -> Record:
        self.number += 1
        record = Record(self.transaction, self.number, partition)
        self.of_transaction.add(record)
        return record

    @precondition(lambda self: self.is_in(State.IN_TRANSACTION))
    @rule()
    def commit(self) -> None:
        self.operation = self.manager.commit()

    @precondition(lambda self: self.is_in(State.IN_TRANSACTION, State.ABORTABLE_ERROR))
    @rule()
    def abort(self) -> None:
        self.operation = self.manager.abort()

    @precondition(lambda self: self.manager.pending is not None and self.manager.pending.is_done)
    @rule()
    def see_the_outcome(self) -> None:
        operation = self.manager.pending
        assert operation is not None
        operation.acknowledge()
        self.check_reported(operation)

    def check_reported(self, operation: Operation) -> None:
        written = self.of_transaction & self.kafka.committed
        if operation.name == "init_transactions" or isinstance(operation.error, CommitUnknown):
            assert not written or self.acknowledged <= written
        elif operation.name == "commit_transaction" and operation.error is None:
            assert self.acknowledged <= self.kafka.committed
        else:
            assert not written, f"reported as not committed: {operation}"
            self.never |= self.of_transaction

    @precondition(lambda self: self.is_in(State.READY))
    @rule(partitions=st.lists(st.sampled_from(PARTITIONS), max_size=3), offsets=st.booleans(), aborts=st.integers(0, 3))
    def do_a_transaction(self, partitions: list[TopicPartition], offsets: bool, aborts: int) -> None:
        self.begin()
        self.append_some(partitions)
        if offsets:
            self.send_offsets()
        self.operation = self.manager.abort() if aborts == 3 else self.manager.commit()

    # -- the batches --------------------------------------------------------------------------------------------------

    @precondition(lambda self: any(self.manager.may_drain(each.partition) for each in self.undrained))
    @rule(fails=st.integers(0, 5))
    def send_batches(self, fails: int) -> None:
        while any(self.manager.may_drain(each.partition) for each in self.undrained):
            self.send_a_batch(fails=fails == 5)

    def send_a_batch(self, fails: bool) -> None:
        record = next(each for each in self.undrained if self.manager.may_drain(each.partition))
        self.undrained.remove(record)
        self.manager.drained()
        assert self.manager.producer is not None
        written = self.kafka.produce(self.manager.producer, record, is_v2=self.manager.is_v2)
        if not written:
            assert self.trouble
            self.manager.batch_failed(KafkaTimeoutError("refused"))
        elif fails:
            self.manager.batch_failed(KafkaTimeoutError("delivery_timeout_ms is over"))
        else:
            self.acknowledged.add(record)

    # -- the network --------------------------------------------------------------------------------------------------

    def is_asking(self) -> bool:
        """Whether a request is under way; one is sent as soon as there is one."""
        if self.request is None:
            self.request = self.manager.next_request(has_incomplete_batches=bool(self.undrained))
            if self.request is not None and self.request.rpc is Rpc.ABORT:
                assert not self.commit_may_have_arrived, "a commit became an abort"
        return self.request is not None

    def take(self) -> CoordinatorRequest:
        """The request whose fate is being decided."""
        assert self.is_asking()
        request, self.request = self.request, None
        assert request is not None
        return request

    def deliver(self, request: CoordinatorRequest) -> Any:
        if request.rpc is Rpc.COMMIT:
            self.commit_may_have_arrived = True
        return self.kafka.handle(request, self.bench)

    def apply_answer(self, request: CoordinatorRequest, response: Any) -> None:
        if request.rpc is Rpc.COMMIT and response.error_code != ErrorCode.NONE and response.error_code not in AMBIGUOUS:
            self.commit_may_have_arrived = self.commit_may_have_arrived and self.was_lost
        self.manager.apply_answer(request, request.read(response), min(request.highest, 5))

    was_lost = False

    def in_turn(self, request: CoordinatorRequest) -> None:
        if request.rpc is Rpc.COMMIT and not self.commit_may_have_arrived:
            self.was_lost = False
        response = self.deliver(request)
        self.apply_answer(request, response)

    @precondition(lambda self: self.is_asking() or self.undrained != [])
    @rule(times=st.integers(1, 5))
    def answer(self, times: int) -> None:
        for _ in range(times):
            self.send_batches(fails=0)
            if not self.is_asking():
                return
            self.in_turn(self.take())
            assert self.manager.state is not State.FATAL_ERROR or self.trouble, self.manager.last_error

    @precondition(is_asking)
    @rule(how=st.sampled_from(["before", "after", "after", "late", "never sent"]))
    def lose(self, how: str) -> None:
        request = self.take()
        if how == "after":
            self.deliver(request)
        elif how == "late":
            self.late.append(request)
        if request.rpc is Rpc.COMMIT and how != "never sent":
            self.commit_may_have_arrived = self.was_lost = True
        self.manager.lost(request, sent=how != "never sent")

    @precondition(is_asking)
    @rule(code=st.sampled_from(REFUSALS))
    def refuse(self, code: ErrorCode) -> None:
        request = self.take()
        if action_for(request.rpc, code) not in HARMLESS:
            self.trouble = self.trouble or action_for(request.rpc, code) not in LEAVES_A_WAY or request.rpc in LAST
        if request.rpc is Rpc.COMMIT and code in AMBIGUOUS:
            self.commit_may_have_arrived = self.was_lost = True
        self.manager.apply_answer(request, request.read(self.bench.refuse(request, code)), min(request.highest, 5))

    @precondition(lambda self: self.is_asking() and self.request.rpc is not Rpc.FIND_COORDINATOR)
    @rule()
    def fail_after_it_was_done(self) -> None:
        request = self.take()
        self.deliver(request)
        if request.rpc is Rpc.COMMIT:
            self.was_lost = True
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        self.manager.apply_answer(request, request.read(self.bench.refuse(request, code)), min(request.highest, 5))

    @precondition(lambda self: self.manager.state is State.COMMITTING)
    @rule(how=st.sampled_from(["before", "after", "late"]), code=st.none() | st.sampled_from(REFUSALS))
    def lose_the_commit(self, how: str, code: ErrorCode | None) -> None:
        """And perhaps refuse it when it is sent again."""
        while self.manager.state is State.COMMITTING:
            self.send_batches(fails=0)
            if not self.is_asking():
                return
            request = self.take()
            if request.rpc is not Rpc.COMMIT:
                self.in_turn(request)
                continue
            self.request = request
            self.lose(how)
            self.answer(times=1)  # which says who the coordinator is
            if code is not None:
                self.refuse(code)
            return

    @precondition(lambda self: self.late != [])
    @rule()
    def arrive_late(self) -> None:
        self.trouble = True
        self.kafka.handle(self.late.pop(0), self.bench)

    @precondition(lambda self: self.manager.state not in (State.UNINITIALIZED, State.FATAL_ERROR))
    @rule(really=st.integers(0, 9))
    def another_writer_takes_over(self, really: int) -> None:
        if really == 9:
            self.trouble = True
            self.kafka.initialize(NO_PRODUCER)

    @rule(version=st.sampled_from([1, 2]))
    def the_cluster_finalizes(self, version: int) -> None:
        self.bench.version = version

    # -- what always holds --------------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_committed_that_was_reported_as_not_committed(self) -> None:
        assert not self.never & self.kafka.committed

    @invariant()
    def nothing_is_torn(self) -> None:
        if self.of_transaction & self.kafka.committed:
            assert self.acknowledged <= self.kafka.committed

    def teardown(self) -> None:
        """From wherever it is, there is a way to a committed transaction - unless it is fatal for a reason."""
        steps: list[Callable[[], object]] = [self.settle, self.see, self.start, self.settle, self.see, self.start]
        for step in [*steps, self.settle, self.see]:
            if self.manager.state is State.FATAL_ERROR:
                break
            step()
        if self.manager.state is State.FATAL_ERROR:
            assert self.trouble, self.manager.last_error
            assert self.manager.pending is None or self.manager.pending.is_done
            assert self.manager.next_request(has_incomplete_batches=False) is None
            self.see()
            return
        assert self.manager.state is State.READY
        assert self.trouble or self.kafka.status is not Status.ONGOING, "a transaction that is never ended"
        self.begin()
        self.append(PARTITIONS[0])
        self.commit()
        self.settle()
        assert self.operation is not None
        assert self.trouble or self.operation.error is None, self.operation
        self.see()
        self.nothing_is_committed_that_was_reported_as_not_committed()

    def settle(self) -> None:
        for _ in range(1_000):
            self.send_batches(fails=0)
            if not self.is_asking():
                return
            self.in_turn(self.take())
        raise AssertionError(f"there is no end to it in {self.manager.state}")

    def see(self) -> None:
        pending = self.manager.pending
        if pending is not None:
            assert pending.is_done, f"{pending} waits for ever in {self.manager.state}"
            self.see_the_outcome()

    def start(self) -> None:
        """The calls that lead on from a state in which nothing is pending."""
        if self.manager.state is State.UNINITIALIZED:
            self.initialize()
        elif self.manager.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR):
            self.abort()


AMBIGUOUS = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR)
LEAVES_A_WAY = (Action.ABORTABLE, Action.COMMIT_FAILED, Action.BUMP_EPOCH, Action.UNINITIALIZED)
LAST = (Rpc.COMMIT, Rpc.ABORT, Rpc.FIND_COORDINATOR)


def test_a_commit_that_arrives_late_does_not_end_the_next_transaction() -> None:
    """KAFKA-17754."""
    history = Transactions()
    history.is_initialized(version=1)
    history.do_a_transaction([PARTITIONS[0]], offsets=False, aborts=0)
    history.lose_the_commit("late", None)
    history.settle()
    history.see()
    history.begin()
    history.append(PARTITIONS[0])
    history.settle()

    history.arrive_late()

    assert history.acknowledged
    assert history.kafka.status is Status.ONGOING
    history.abort()
    history.settle()
    history.see()
    assert history.manager.state is State.READY


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=30, stateful_step_count=30)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_thousands_of_histories() -> None:
    run_state_machine_as_test(Transactions, settings=settings(max_examples=2_000, stateful_step_count=50))
