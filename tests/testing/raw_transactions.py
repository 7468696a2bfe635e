"""A transactional producer without its own behaviour: one request for each method, and what came back as plain words.

Whatever differs from one cluster to another by chance (producer ids, times) is left out or given a name, so that the notes
of two clusters can be compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, TypeVar

from aioproducer.protocol import ErrorCode
from aioproducer.protocol.message import Request, Response
from aioproducer.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from aioproducer.record import RecordBatchBuilder, encode_batch
from aioproducer.record.reader import read_batches
from aioproducer.testing.raw_client import RawClient

T = TypeVar("T")
ResponseT = TypeVar("ResponseT", bound=Response)

PATIENCE = 30.0
ONE_MOMENT = 0.02
#: What a coordinator answers while its topic is being made; a test that wants to see these asks by itself.
NOT_READY = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)

#: A note of one step: its name, and what was answered.
Note: TypeAlias = tuple[object, ...]


class Versions(NamedTuple):
    """In which versions the requests go out."""

    name: str
    produce: int
    init_producer_id: int
    add_partitions: int
    add_offsets: int
    txn_offset_commit: int
    end_txn: int

    @property
    def adds_partitions(self) -> bool:
        """Whether the client has to add partitions and groups by itself."""
        return self.produce < 12


OLDEST = Versions("oldest", 3, 0, 0, 0, 0, 0)
OLD = Versions("old", 10, 4, 2, 2, 3, 2)
TV1 = Versions("TV1", 11, 5, 3, 3, 4, 4)
TV2 = Versions("TV2", 12, 5, 3, 3, 5, 5)


class Who(NamedTuple):
    """A producer id and epoch."""

    producer_id: int
    epoch: int


@dataclass
class RawTransactions:
    """One transactional id, one topic and one group."""

    address: tuple[str, int]
    versions: Versions
    transactional_id: str
    topic: str
    group: str
    notes: list[Note] = field(default_factory=list[Note])
    #: What the notes call the producer ids.
    names: dict[int, str] = field(default_factory=dict[int, str])

    def note(self, *words: object) -> None:
        """Write down something that was seen."""
        self.notes.append(words)

    def name(self, who: Who) -> str:
        """A producer without the number that the cluster gave it: the first id is ``a``, the next one ``b``."""
        if who.producer_id < 0:
            return f"unknown@{who.epoch}"
        name = self.names.setdefault(who.producer_id, chr(ord("a") + len(self.names)))
        return f"{name}@{who.epoch}"

    def ask(self, request: Request[ResponseT], version: int) -> ResponseT:
        """The answer, on its own connection."""
        with RawClient(self.address, timeout=PATIENCE) as client:
            return client.ask(request, version)

    def find_coordinators(self) -> None:
        """Ask until there are some: a new cluster makes their topics because it was asked."""
        for key_type, key in enumerate((self.group, self.transactional_id)):
            self._find_coordinator(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]))

    def _find_coordinator(self, request: FindCoordinatorRequest) -> None:
        self._when_ready(lambda: self.ask(request, 4).coordinators[0], lambda found: found.error_code)

    # -- requests ------------------------------------------------------------------------------------------------------

    def init(
        self,
        expected: Who | None = None,
        *,
        timeout_ms: int = 60_000,
        transactional_id: str | None = None,
        enable_2pc: bool = False,
        keep_prepared: bool = False,
    ) -> Who:
        """InitProducerId; noted."""
        present = expected or Who(-1, -1)
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id if transactional_id is None else transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=present.producer_id,
            producer_epoch=present.epoch,
            enable_2pc=enable_2pc,
            keep_prepared_txn=keep_prepared,
        )
        answer = self._when_ready(
            lambda: self.ask(request, self.versions.init_producer_id), lambda answer: answer.error_code
        )
        who = Who(answer.producer_id, answer.producer_epoch)
        self.note("init", ErrorCode(answer.error_code).name, self.name(who))
        if self.versions.init_producer_id >= 6:
            self.note("ongoing", self.name(Who(answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch)))
        return who

    def init_when_free(self, expected: Who | None = None, *, timeout_ms: int = 60_000) -> Who:
        """As ``init``, once what was there before is settled."""
        self.settle()
        return self.init(expected, timeout_ms=timeout_ms)

    def use_up_epochs(self, epochs: int) -> Who:
        """InitProducerId so many times, several at once; only the last answer is returned, and nothing noted."""
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=60_000)
        version, who = self.versions.init_producer_id, Who(-1, -1)
        with RawClient(self.address, timeout=PATIENCE) as client:
            while epochs > 0:
                sent = [client.send(request, version) for _ in range(min(epochs, 200))]
                answers = [client.read(InitProducerIdRequest, version, each) for each in sent]
                who = Who(answers[-1].producer_id, answers[-1].producer_epoch)
                epochs -= len(sent)
        return who

    def add(
        self, who: Who, *partitions: int, topic: str | None = None, others: Mapping[str, int] | None = None
    ) -> None:
        """AddPartitionsToTxn; noted. ``others`` are partitions of other topics."""
        topics = [AddPartitionsToTxnTopic(name=topic or self.topic, partitions=list(partitions))]
        topics += [AddPartitionsToTxnTopic(name=name, partitions=[index]) for name, index in (others or {}).items()]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=who.producer_id,
            v3_and_below_producer_epoch=who.epoch,
            v3_and_below_topics=topics,
        )
        answer = self.ask(request, self.versions.add_partitions)
        codes = {
            (each.name, result.partition_index): ErrorCode(result.partition_error_code).name
            for each in answer.results_by_topic_v3_and_below
            for result in each.results_by_partition
        }
        self.note("add", *[code for _, code in sorted(codes.items())])

    def add_offsets(self, who: Who) -> None:
        """AddOffsetsToTxn; noted."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            group_id=self.group,
        )
        answer = self.ask(request, self.versions.add_offsets)
        self.note("add offsets", ErrorCode(answer.error_code).name)

    def write(
        self,
        who: Who,
        partition: int,
        *values: str,
        sequence: int = 0,
        transactional: bool = True,
        transactional_id: str | None = "",
    ) -> None:
        """Produce; noted. ``transactional_id`` "" is that of the others."""
        data = PartitionProduceData(
            index=partition, records=batch(who, *values, sequence=sequence, transactional=transactional)
        )
        request = ProduceRequest(
            transactional_id=self.transactional_id if transactional_id == "" else transactional_id,
            acks=-1,
            timeout_ms=5000,
            topic_data=[TopicProduceData(name=self.topic, partition_data=[data])],
        )
        answer = self._when_ready(
            lambda: self.ask(request, self.versions.produce).responses[0].partition_responses[0],
            lambda answer: answer.error_code,
        )
        self.note("write", partition, values, ErrorCode(answer.error_code).name, answer.base_offset)

    def begin(self, who: Who, *partitions: int) -> None:
        """The step before a client writes: with the older protocol it adds the partitions."""
        if self.versions.adds_partitions:
            self.add(who, *partitions)

    def commit_offset(
        self,
        who: Who,
        offset: int,
        *,
        partition: int = 0,
        topic: str | None = None,
        group: str | None = None,
        generation: int = -1,
        member: str = "",
        metadata: str | None = "",
    ) -> None:
        """TxnOffsetCommit; noted."""
        asked = TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self.group if group is None else group,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            generation_id_or_member_epoch=generation,
            member_id=member,
            topics=[TxnOffsetCommitRequestTopic(name=topic or self.topic, partitions=[asked])],
        )
        answer = self._when_ready(
            lambda: self.ask(request, self.versions.txn_offset_commit).topics[0].partitions[0],
            lambda answer: answer.error_code,
        )
        self.note("commit offset", ErrorCode(answer.error_code).name)

    def end(self, who: Who, *, committed: bool) -> Who:
        """EndTxn; noted. The producer to go on with is returned."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            committed=committed,
        )
        answer = self.ask(request, self.versions.end_txn)
        reported = Who(answer.producer_id, answer.producer_epoch)
        word = "commit" if committed else "abort"
        self.note(word, ErrorCode(answer.error_code).name, self.name(reported))
        return reported if reported.producer_id >= 0 else who

    def commit(self, who: Who) -> Who:
        """EndTxn, and the markers are awaited."""
        after = self.end(who, committed=True)
        self.settle()
        return after

    def abort(self, who: Who) -> Who:
        """EndTxn, and the markers are awaited."""
        after = self.end(who, committed=False)
        self.settle()
        return after

    # -- what is there -------------------------------------------------------------------------------------------------

    def state(self, transactional_id: str | None = None) -> str:
        """The name of the state; not noted."""
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id or self.transactional_id])
        (found,) = self.ask(request, 0).transaction_states
        return found.transaction_state if found.error_code == ErrorCode.NONE else ErrorCode(found.error_code).name

    def describe(self) -> None:
        """DescribeTransactions; noted."""
        request = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        (found,) = self.ask(request, 0).transaction_states
        topics = sorted((topic.topic, sorted(topic.partitions)) for topic in found.topics)
        own = [partitions for name, partitions in topics if name == self.topic]
        self.note(
            "describe",
            ErrorCode(found.error_code).name,
            found.transaction_state,
            self.name(Who(found.producer_id, found.producer_epoch)),
            found.transaction_timeout_ms,
            own,
            [name for name, _ in topics if name != self.topic],
        )

    def settle(self, *, until: str | None = None) -> None:
        """Wait until no marker is outstanding, or until the state has this name."""
        deadline = time.monotonic() + PATIENCE
        while True:
            state = self.state()
            if state == until if until is not None else not state.startswith("Prepare"):
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"The transaction is still in state {state}.")
            time.sleep(ONE_MOMENT)

    def look(self, partition: int, *, committed: bool = True) -> None:
        """Fetch everything of a partition; noted with the last stable offset, the aborted ranges and the markers."""
        asked = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1_000_000)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=1 if committed else 0,
            topics=[FetchTopic(topic=self.topic, partitions=[asked])],
        )
        found = self._when_ready(
            lambda: self.ask(request, 11).responses[0].partitions[0], lambda answer: answer.error_code
        )
        aborted = found.aborted_transactions
        self.note(
            "look",
            partition,
            "committed" if committed else "all",
            ErrorCode(found.error_code).name,
            found.high_watermark,
            found.last_stable_offset,
            None if aborted is None else [(self.names.get(each.producer_id), each.first_offset) for each in aborted],
            self._reported(bytes(found.records or b"")),
        )

    def _reported(self, records: bytes) -> list[object]:
        reported: list[object] = []
        for each in read_batches(records):
            name = self.name(Who(each.producer_id, each.producer_epoch))
            if each.is_control:
                (record,) = each.records
                reported.append((each.base_offset, "marker", (record.key or b"").hex(), name))
            else:
                reported.append((each.base_offset, [(record.value or b"").decode() for record in each.records], name))
        return reported

    def end_offset(self, partition: int) -> None:
        """ListOffsets of the end, as both kinds of consumers see it; noted."""
        for isolation_level in (0, 1):
            asked = ListOffsetsPartition(partition_index=partition, timestamp=-1)
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation_level,
                topics=[ListOffsetsTopic(name=self.topic, partitions=[asked])],
            )
            (found,) = self.ask(request, 5).topics[0].partitions
            self.note("end offset", isolation_level, ErrorCode(found.error_code).name, found.offset)

    def offset(self, *, require_stable: bool, group: str | None = None) -> None:
        """OffsetFetch; noted."""
        topics = [OffsetFetchRequestTopic(name=self.topic, partition_indexes=[0])]
        asked = OffsetFetchRequestGroup(group_id=group or self.group, topics=topics)
        request = OffsetFetchRequest(groups=[asked], require_stable=require_stable)
        (found,) = self._when_ready(lambda: self.ask(request, 8).groups, lambda groups: groups[0].error_code)
        partitions = [
            (ErrorCode(each.error_code).name, each.committed_offset, each.metadata)
            for topic in found.topics
            for each in topic.partitions
        ]
        self.note("offset", require_stable, ErrorCode(found.error_code).name, partitions)

    def all_offsets(self) -> None:
        """OffsetFetch of whatever the group has; noted."""
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=self.group, topics=None)], require_stable=False
        )
        (found,) = self.ask(request, 8).groups
        reported = [
            (each.partition_index, each.committed_offset) for topic in found.topics for each in topic.partitions
        ]
        self.note("all offsets", ErrorCode(found.error_code).name, reported)

    def _when_ready(self, ask: Callable[[], T], code: Callable[[T], int]) -> T:
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = ask()
            if code(answer) not in NOT_READY or time.monotonic() > deadline:
                return answer
            time.sleep(ONE_MOMENT)


def batch(who: Who, *values: str, sequence: int, transactional: bool = True) -> bytes:
    """A record batch of these values.

    With an older time a marker, which has the broker's, would roll the log, and a fetch ends with a segment.
    """
    now_ms = time.time_ns() // 1_000_000
    builder = RecordBatchBuilder()
    for value in values:
        builder.append(now_ms, None, value.encode())
    encoded = encode_batch(builder)
    encoded.stamp(who.producer_id, who.epoch, sequence, transactional)
    return b"".join(encoded.pieces)
