"""The numbers of batches: nothing is ever duplicated, reordered or silently dropped by a broker that checks them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aioproducer.core.sequences import MAX_EPOCH, NO_SEQUENCE, Sequences, increment_sequence
from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.types import TopicPartition

ORDERS = TopicPartition("orders", 0)
OTHERS = TopicPartition("orders", 1)
LAST = 2**31 - 1


@dataclass(eq=False)
class Batch:
    """Just what is numbered."""

    name: str = ""
    partition: TopicPartition = ORDERS
    count: int = 1
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = NO_SEQUENCE
    is_in_flight: bool = False
    possibly_written: bool = False
    history: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])

    def renumber(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, producer_epoch, base_sequence
        self.history.append((producer_id, producer_epoch, base_sequence))


@pytest.fixture
def sequences() -> Sequences:
    sequences = Sequences(idempotent=True)
    sequences.set_producer_id(7, 0)
    return sequences


def drain(sequences: Sequences, *batches: Batch) -> None:
    for batch in batches:
        assert sequences.may_drain(batch), batch
        sequences.number(batch)
        batch.is_in_flight = True


def acknowledge(sequences: Sequences, *batches: Batch) -> None:
    for batch in batches:
        batch.is_in_flight = False
        sequences.acknowledged(batch, 0)


def warm_up(sequences: Sequences, partition: TopicPartition = ORDERS) -> None:
    """The first acknowledgement, after which five batches may be in flight."""
    first = Batch(partition=partition)
    drain(sequences, first)
    acknowledge(sequences, first)


def settle(sequences: Sequences) -> list[TopicPartition]:
    moved: list[TopicPartition] = []
    sequences.settle(moved.append)
    return moved


def test_sequences_count_records_and_wrap_to_zero() -> None:
    assert increment_sequence(5, 3) == 8
    assert increment_sequence(LAST, 1) == 0
    assert increment_sequence(LAST - 1, 5) == 3


def test_nothing_is_numbered_without_a_producer_id() -> None:
    sequences = Sequences(idempotent=True)

    assert sequences.needs_producer_id
    assert not sequences.may_drain(Batch())


def test_each_partition_counts_from_zero_by_its_records(sequences: Sequences) -> None:
    warm_up(sequences)
    three, two, elsewhere = Batch(count=3), Batch(count=2), Batch(partition=OTHERS)

    drain(sequences, three, two, elsewhere)

    assert [three.base_sequence, two.base_sequence, elsewhere.base_sequence] == [1, 4, 0]


def test_one_batch_is_in_flight_until_the_first_acknowledgement_and_five_after_it(sequences: Sequences) -> None:
    first, second = Batch(), Batch()
    drain(sequences, first)
    assert not sequences.may_drain(second)

    acknowledge(sequences, first)
    drain(sequences, second, *(Batch() for _ in range(4)))

    assert not sequences.may_drain(Batch())


def test_a_retry_keeps_its_sequence_and_only_the_oldest_is_drained(sequences: Sequences) -> None:
    warm_up(sequences)
    first, second = Batch(), Batch()
    drain(sequences, first, second)
    first.is_in_flight = second.is_in_flight = False

    assert not sequences.may_drain(second)
    drain(sequences, first)

    assert first.history == [(7, 0, 1)]
    assert not sequences.may_drain(second)
    acknowledge(sequences, first)
    assert sequences.may_drain(second)


def test_the_sequence_of_a_refused_last_batch_is_taken_back(sequences: Sequences) -> None:
    warm_up(sequences)
    refused, next_one = Batch(count=10), Batch()
    drain(sequences, refused)
    refused.is_in_flight = False

    sequences.given_up(refused)
    drain(sequences, next_one)

    assert next_one.base_sequence == 1
    assert settle(sequences) == []
    assert sequences.epoch == 0


def test_a_hole_that_a_refused_batch_leaves_is_closed_by_a_new_epoch(sequences: Sequences) -> None:
    warm_up(sequences)
    refused, behind = Batch(), Batch(count=4)
    drain(sequences, refused, behind)
    refused.is_in_flight = False

    sequences.given_up(refused)
    assert settle(sequences) == [], "not while a batch of the partition is on its way (rule 6)"
    assert not sequences.may_drain(Batch())
    behind.is_in_flight = False
    sequences.unexpected(behind, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)

    assert settle(sequences) == [ORDERS]
    assert sequences.epoch == 1
    assert behind.history[-1] == (7, 1, 0)
    assert sequences.bumps == 1


def test_who_is_told_that_a_partition_moved_on_may_drain_it_at_once(sequences: Sequences) -> None:
    warm_up(sequences)
    refused, behind = Batch(), Batch()
    drain(sequences, refused, behind)
    refused.is_in_flight = behind.is_in_flight = False
    sequences.given_up(refused)
    answers: list[bool] = []

    sequences.settle(lambda _: answers.append(sequences.may_drain(behind)))

    assert answers == [True]


def test_a_batch_in_doubt_holds_back_new_ones_until_those_behind_it_are_answered(sequences: Sequences) -> None:
    warm_up(sequences)
    doubtful, behind = Batch(), Batch()
    drain(sequences, doubtful, behind)
    doubtful.is_in_flight, doubtful.possibly_written = False, True

    sequences.given_up(doubtful)

    assert settle(sequences) == []
    assert not sequences.may_drain(Batch())
    acknowledge(sequences, behind)  # so the doubtful one was written, or the broker would have refused this one
    assert settle(sequences) == [ORDERS]
    assert sequences.epoch == 0
    after = Batch()
    drain(sequences, after)
    assert after.base_sequence == 3


def test_a_batch_in_doubt_with_nothing_behind_it_ends_the_epoch(sequences: Sequences) -> None:
    warm_up(sequences)
    doubtful = Batch()
    drain(sequences, doubtful)
    doubtful.is_in_flight, doubtful.possibly_written = False, True

    sequences.given_up(doubtful)

    assert settle(sequences) == [ORDERS]
    after = Batch()
    drain(sequences, after)
    assert after.history == [(7, 1, 0)]


def test_a_batch_refused_behind_one_in_doubt_ends_the_epoch_and_goes_first_in_the_next(sequences: Sequences) -> None:
    warm_up(sequences)
    doubtful, behind, last = Batch(), Batch(), Batch()
    drain(sequences, doubtful, behind, last)
    doubtful.possibly_written = True
    for batch in (doubtful, behind, last):
        batch.is_in_flight = False
    sequences.given_up(doubtful)

    sequences.unexpected(last, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert settle(sequences) == [], "the last one is refused because the one before it is missing"
    sequences.unexpected(behind, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)

    assert settle(sequences) == [ORDERS]
    assert [behind.history[-1], last.history[-1]] == [(7, 1, 0), (7, 1, 1)]


def test_an_unexpected_sequence_behind_a_batch_that_is_retried_is_only_retried(sequences: Sequences) -> None:
    warm_up(sequences)
    first, second = Batch(), Batch()
    drain(sequences, first, second)
    first.is_in_flight = second.is_in_flight = False

    sequences.unexpected(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)

    assert settle(sequences) == []
    assert sequences.epoch == 0


def test_a_broker_that_refuses_the_expected_sequence_gets_a_new_epoch(sequences: Sequences) -> None:
    warm_up(sequences)
    refused = Batch()
    drain(sequences, refused)
    refused.is_in_flight = False

    sequences.unexpected(refused, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    settle(sequences)

    assert refused.history == [(7, 0, 1), (7, 1, 0)]


@pytest.mark.parametrize(("log_start_offset", "epoch"), [(-1, 0), (0, 1), (100, 1)])
def test_an_unknown_producer_id_needs_a_new_epoch_where_the_broker_says_why(
    sequences: Sequences, log_start_offset: int, epoch: int
) -> None:
    warm_up(sequences)
    batch = Batch()
    drain(sequences, batch)
    batch.is_in_flight = False

    sequences.unexpected(batch, ErrorCode.UNKNOWN_PRODUCER_ID, log_start_offset)
    settle(sequences)

    assert sequences.epoch == epoch


def test_other_partitions_move_to_the_new_epoch_when_their_old_batches_are_answered(sequences: Sequences) -> None:
    warm_up(sequences)
    warm_up(sequences, OTHERS)
    old, new = Batch(partition=OTHERS), Batch(partition=OTHERS)
    drain(sequences, old)
    lost = Batch()
    drain(sequences, lost)
    lost.is_in_flight, lost.possibly_written = False, True
    sequences.given_up(lost)
    settle(sequences)

    assert not sequences.may_drain(new)
    acknowledge(sequences, old)
    drain(sequences, new)

    assert (old.history, new.history) == ([(7, 0, 1)], [(7, 1, 0)])


def test_several_partitions_that_need_it_share_one_new_epoch(sequences: Sequences) -> None:
    partitions = [TopicPartition("orders", index) for index in range(8)]
    for partition in partitions:
        warm_up(sequences, partition)
    batches = [Batch(partition=partition) for partition in partitions]
    drain(sequences, *batches)

    for batch in batches:
        batch.is_in_flight = False
        sequences.unexpected(batch, ErrorCode.UNKNOWN_PRODUCER_ID, 0)
    settle(sequences)

    assert (sequences.bumps, sequences.epoch) == (1, 1)
    assert {batch.history[-1] for batch in batches} == {(7, 1, 0)}


def test_the_answer_to_a_batch_of_an_old_epoch_changes_nothing_in_the_new_one(sequences: Sequences) -> None:
    warm_up(sequences)
    stale = Batch()
    drain(sequences, stale)
    stale.producer_epoch = -5

    acknowledge(sequences, stale)

    probe = Batch()
    drain(sequences, probe)
    assert probe.base_sequence == 2


def test_when_the_epochs_are_used_up_a_new_producer_id_is_asked_for(sequences: Sequences) -> None:
    sequences.set_producer_id(7, MAX_EPOCH)
    warm_up(sequences)
    refused = Batch()
    drain(sequences, refused)
    refused.is_in_flight = False
    sequences.unexpected(refused, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)

    settle(sequences)

    assert sequences.needs_producer_id
    assert refused.base_sequence == NO_SEQUENCE
    assert not sequences.may_drain(refused)
    sequences.set_producer_id(8, 0)
    drain(sequences, refused)
    assert refused.history[-1] == (8, 0, 0)


def test_a_fenced_producer_id_is_left_for_a_fresh_one(sequences: Sequences) -> None:
    warm_up(sequences)
    warm_up(sequences, OTHERS)
    refused, behind, other = Batch("refused"), Batch("behind"), Batch("other", OTHERS)
    drain(sequences, refused, behind, other)
    for batch in (refused, behind):
        batch.is_in_flight = False
        sequences.fenced(batch)
        sequences.given_up(batch)
    sequences.settle(lambda _: None)

    assert sequences.needs_producer_id
    acknowledge(sequences, other)
    sequences.set_producer_id(8, 0)
    drain(sequences, last := Batch("last"))
    assert (last.producer_id, last.producer_epoch, last.base_sequence) == (8, 0, 0)
    sequences.fenced(refused)
    sequences.settle(lambda _: None)
    assert not sequences.needs_producer_id, "that was about the old one"


def test_an_unknown_producer_id_is_left_and_what_it_refused_counts_under_a_fresh_one(sequences: Sequences) -> None:
    warm_up(sequences)
    warm_up(sequences, OTHERS)
    refused, behind, other = Batch("refused"), Batch("behind"), Batch("other", OTHERS)
    drain(sequences, refused, behind, other)
    refused.is_in_flight = False
    sequences.unknown_id(refused)
    sequences.settle(lambda _: None)
    assert sequences.producer_id == 7, "the one behind it is still on its way"

    behind.is_in_flight = False
    sequences.unknown_id(behind)
    sequences.settle(lambda _: None)
    assert sequences.needs_producer_id
    sequences.set_producer_id(8, 0)
    drain(sequences, refused)
    acknowledge(sequences, refused)
    drain(sequences, behind)
    assert [batch.history[-1] for batch in (refused, behind)] == [(8, 0, 0), (8, 0, refused.count)]

    other.is_in_flight = False  # it is refused late, and does not cost the fresh id
    sequences.unknown_id(other)
    sequences.settle(lambda _: None)
    assert sequences.producer_id == 8
    drain(sequences, other)
    assert other.history[-1] == (8, 1, 0)


def test_behind_a_fenced_batch_that_may_be_written_nothing_is_renumbered(sequences: Sequences) -> None:
    """The next one may be in the log as well, under its old number."""
    warm_up(sequences)
    doubtful, behind = Batch("doubtful", possibly_written=True), Batch("behind", possibly_written=True)
    drain(sequences, doubtful, behind)
    doubtful.is_in_flight = behind.is_in_flight = False
    sequences.fenced(doubtful)
    sequences.given_up(doubtful)
    sequences.settle(lambda _: None)

    assert (behind.producer_id, behind.base_sequence) == (7, 2)
    assert sequences.may_drain(behind)
    sequences.fenced(behind)
    sequences.given_up(behind)
    sequences.settle(lambda _: None)
    assert sequences.needs_producer_id


def test_sequences_wrap_with_five_in_flight_and_acknowledgements_are_compared_over_the_wrap(
    sequences: Sequences,
) -> None:
    long = Batch(count=LAST - 1)
    drain(sequences, long)
    acknowledge(sequences, long)
    batches = [Batch() for _ in range(5)]
    drain(sequences, *batches)

    assert [batch.base_sequence for batch in batches] == [LAST - 1, LAST, 0, 1, 2]
    acknowledge(sequences, *batches)
    doubtful, proof = Batch(), Batch()
    drain(sequences, doubtful, proof)
    doubtful.possibly_written, doubtful.is_in_flight = True, False
    sequences.given_up(doubtful)
    acknowledge(sequences, proof)
    assert settle(sequences) == [ORDERS]
    assert sequences.epoch == 0


def test_the_parts_of_a_split_batch_continue_its_sequence(sequences: Sequences) -> None:
    warm_up(sequences)
    whole, behind = Batch(count=10), Batch()
    drain(sequences, whole, behind)
    whole.is_in_flight = False
    parts = [Batch("a", count=4), Batch("b", count=6)]

    sequences.split(whole, parts)

    assert [part.history for part in parts] == [[(7, 0, 1)], [(7, 0, 5)]]
    assert sequences.may_drain(parts[0])
    assert not sequences.may_drain(parts[1])


def test_without_idempotence_order_is_kept_by_one_batch_in_flight() -> None:
    sequences = Sequences(idempotent=False)
    first, second = Batch(), Batch()
    drain(sequences, first)
    assert not sequences.may_drain(second)

    first.is_in_flight = False
    drain(sequences, first)  # a retry

    assert not sequences.may_drain(second)
    acknowledge(sequences, first)
    drain(sequences, second)
    assert second.base_sequence == NO_SEQUENCE


class Broker:
    """A partition leader that checks sequences as Kafka does, and loses answers when told to."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.last: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self.epochs: dict[int, int] = {}

    def produce(self, batch: Batch) -> int:
        pid, epoch, base = batch.producer_id, batch.producer_epoch, batch.base_sequence
        last = increment_sequence(base, batch.count - 1)
        if epoch < self.epochs.get(pid, -1):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        window = self.last.setdefault((pid, epoch), [])
        if (base, last) in window[-5:]:
            return ErrorCode.NONE
        expected = increment_sequence(window[-1][1], 1) if window else 0
        if base != expected and (window or epoch > 0):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self.epochs[pid] = epoch
        window.append((base, last))
        self.log.append(batch.name)
        return ErrorCode.NONE


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(["ok", "ok", "ok", "lost", "unsent", "refused", "give up", "late"]), max_size=80),
    st.lists(st.sampled_from([0, 0, 1, 5]), max_size=40),
)
@example(["ok", "late", "give up"], [0, 0, 0, 0, 5])
def test_whatever_is_lost_on_the_way_the_log_holds_each_acknowledged_batch_once_and_in_order(
    fates: list[str], arrivals: list[int]
) -> None:
    """A model of the Sender against a model of the broker: answers are lost, batches refused, expired, retried, and
    attempts that were given up arrive after all."""
    sequences, broker = Sequences(idempotent=True), Broker()
    sequences.set_producer_id(1, 0)
    waiting: list[Batch] = [Batch(f"b{number:03d}", count=number % 3 + 1) for number in range(30)]
    acknowledged: list[str] = []
    refused: set[str] = set()
    refusals: Counter[str] = Counter()
    late: list[Batch] = []
    script, arriving = iter(fates), iter(arrivals)
    for _ in range(2000):
        if not waiting:
            break
        for _ in range(min(next(arriving, 1), len(late))):
            broker.produce(late.pop(0))
        flight: list[Batch] = []
        while waiting and len(flight) < 5 and sequences.may_drain(waiting[0]):
            batch = waiting.pop(0)
            sequences.number(batch)
            batch.is_in_flight = True
            flight.append(batch)
        returned: list[Batch] = []
        cut = held_up = False
        code: int | None
        for batch in flight:
            fate = next(script, "ok")
            if held_up or (
                fate == "late" and not cut
            ):  # the connection broke, and the broker reads on until it notices
                late.append(replace(batch))
                held_up, code = True, None
            elif cut or fate == "unsent":  # the connection broke before these bytes
                cut, code = True, None
            elif fate == "refused":
                code = ErrorCode.INVALID_RECORD
            else:
                code = broker.produce(batch)
            batch.is_in_flight = False
            if fate == "lost":
                code = None
            if code is None:
                batch.possibly_written = True
            if code == ErrorCode.NONE:
                sequences.acknowledged(batch, 0)
                acknowledged.append(batch.name)
            elif code == ErrorCode.INVALID_RECORD:
                if not batch.possibly_written:
                    refused.add(batch.name)
                sequences.given_up(batch)
            elif (code is None and fate == "give up") or refusals[batch.name] > 10:  # its time is over
                sequences.given_up(batch)
            else:
                if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                    sequences.unexpected(batch, code, -1)
                    refusals[batch.name] += 1
                returned.append(batch)
        waiting = returned + waiting
        sequences.settle(lambda _: None)
    assert not waiting, "it never got on"
    assert len(set(broker.log)) == len(broker.log), "duplicated"
    assert sorted(broker.log) == broker.log, "reordered"
    assert set(acknowledged) <= set(broker.log), "lost"
    assert not refused & set(broker.log), "told not written, and is in the log"
