"""The numbers of batches: nothing is ever duplicated, reordered or silently dropped by a broker that checks them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aioproducer.core.sequences import (
    MAX_EPOCH,
    MAX_IN_FLIGHT,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    Sequences,
    increment_sequence,
)
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
    created_at: float = 0.0
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
        sequences.acknowledged(batch)


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


@pytest.mark.parametrize(("pause", "many"), [(59.0, True), (60.0, False)])
def test_one_batch_is_in_flight_after_a_break_in_which_a_broker_may_have_forgotten_the_producer(
    pause: float, many: bool
) -> None:
    sequences = Sequences(idempotent=True, forgotten_after_s=60.0)
    sequences.set_producer_id(7, 0)
    warm_up(sequences)
    first, second = Batch(created_at=pause), Batch(created_at=pause)
    drain(sequences, first)

    assert sequences.may_drain(second) is many
    acknowledge(sequences, first)
    drain(sequences, second, Batch(created_at=pause))
    assert [first.base_sequence, second.base_sequence] == [1, 2]


def test_one_batch_is_in_flight_until_a_topic_that_was_created_again_has_acknowledged_it(sequences: Sequences) -> None:
    warm_up(sequences)
    sequences.may_be_forgotten(ORDERS)
    sequences.may_be_forgotten(OTHERS)  # which has no numbers yet
    first, second = Batch(), Batch()
    drain(sequences, first)

    assert not sequences.may_drain(second)
    acknowledge(sequences, first)
    drain(sequences, second, Batch())


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


def test_a_partition_may_be_drained_as_soon_as_it_is_reported_to_have_moved_on(sequences: Sequences) -> None:
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
def test_an_unknown_producer_id_needs_a_new_epoch_if_the_broker_gives_the_log_start(
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


def test_a_batch_before_one_that_is_split_keeps_its_one_place(sequences: Sequences) -> None:
    warm_up(sequences)
    drain(sequences, before := Batch(), whole := Batch(count=2), Batch())
    whole.is_in_flight = False

    sequences.split(whole, [Batch(), Batch()])

    assert sequences.in_flight(ORDERS) == 4
    acknowledge(sequences, before)
    assert sequences.in_flight(ORDERS) == 3


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


# -- invisible recoveries, and what a transaction decides --------------------------------------------------------------


def refuse(sequences: Sequences, batch: Batch) -> None:
    """The broker did not expect its sequence."""
    batch.is_in_flight = False
    sequences.unexpected(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


def test_the_numbers_are_those_of_the_protocol() -> None:
    assert (NO_PRODUCER_ID, NO_EPOCH, NO_SEQUENCE) == (-1, -1, -1)
    assert (MAX_IN_FLIGHT, MAX_EPOCH) == (5, 2**15 - 1)
    assert Sequences(idempotent=True).epoch == NO_EPOCH


EVENTS: dict[str, Callable[[Sequences, Batch], object]] = {
    "acknowledged": lambda sequences, batch: sequences.acknowledged(batch),
    "given up": lambda sequences, batch: sequences.given_up(batch),
    "unexpected": lambda sequences, batch: sequences.unexpected(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
    "fenced": lambda sequences, batch: sequences.fenced(batch),
    "unknown id": lambda sequences, batch: sequences.unknown_id(batch),
    "split": lambda sequences, batch: sequences.split(batch, [Batch()]),
    "forgotten": lambda sequences, batch: sequences.forget(batch.partition),
}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("is_partition_known", [False, True])
def test_events_of_a_batch_that_was_never_numbered_change_nothing(
    sequences: Sequences, event: str, is_partition_known: bool
) -> None:
    if is_partition_known:
        warm_up(sequences)

    EVENTS[event](sequences, Batch())

    assert settle(sequences) == []
    drain(sequences, after := Batch())
    assert after.history == [(7, 0, 1 if is_partition_known else 0)]
    assert not sequences.is_ahead(Batch(partition=OTHERS))


@pytest.mark.parametrize("event", [event for event in EVENTS if event not in {"split", "forgotten"}])
@pytest.mark.parametrize("possibly_written", [False, True])
def test_events_of_a_batch_of_another_epoch_change_nothing(
    sequences: Sequences, event: str, possibly_written: bool
) -> None:
    warm_up(sequences)
    drain(sequences, stale := Batch())
    stale.producer_epoch, stale.possibly_written, stale.is_in_flight = -5, possibly_written, False
    assert not sequences.is_ahead(stale)

    EVENTS[event](sequences, stale)

    assert settle(sequences) == []
    assert (sequences.producer_id, sequences.epoch) == (7, 0)


def test_an_acknowledgement_of_another_epoch_does_not_move_what_the_broker_expects(sequences: Sequences) -> None:
    warm_up(sequences)
    drain(sequences, stale := Batch(), probe := Batch())
    stale.producer_epoch = -5
    acknowledge(sequences, stale)

    refuse(sequences, probe)

    assert settle(sequences) == []


def test_a_partition_that_is_in_use_is_not_forgotten(sequences: Sequences) -> None:
    warm_up(sequences)
    warm_up(sequences, OTHERS)
    sequences.forget(ORDERS)
    drain(sequences, after := Batch(), elsewhere := Batch(partition=OTHERS))
    assert after.base_sequence == 1, "it goes on from what was acknowledged"

    refuse(sequences, after)
    settle(sequences)
    assert sequences.epoch == 1
    sequences.forget(OTHERS)

    assert sequences.in_flight(OTHERS) == 1
    acknowledge(sequences, elsewhere)
    assert sequences.in_flight(OTHERS) == 0
    sequences.forget(OTHERS)
    assert set(sequences._partitions) == {ORDERS}, "in the new epoch it begins again anyhow"


def test_acknowledgements_that_come_in_another_order_do_not_move_the_mark_back(sequences: Sequences) -> None:
    warm_up(sequences)
    drain(sequences, first := Batch(), second := Batch(), third := Batch())
    acknowledge(sequences, second, first)

    refuse(sequences, third)

    assert settle(sequences) == [ORDERS], "it is the one that the broker had to expect"


def test_the_first_acknowledgement_counts_wherever_it_is(sequences: Sequences) -> None:
    drain(sequences, long := Batch(count=LAST - 1))
    acknowledge(sequences, long)
    drain(sequences, refused := Batch())

    refuse(sequences, refused)

    assert settle(sequences) == [ORDERS]


def test_a_broker_that_refuses_the_very_first_batch_gets_a_new_epoch(sequences: Sequences) -> None:
    drain(sequences, first := Batch())

    refuse(sequences, first)

    assert settle(sequences) == [ORDERS]
    assert first.history == [(7, 0, 0), (7, 1, 0)]


def test_the_expected_batch_waits_for_an_earlier_one_that_is_repeated(sequences: Sequences) -> None:
    """The second was acknowledged, and the answer to the first was lost."""
    warm_up(sequences)
    drain(sequences, first := Batch(), second := Batch(), third := Batch())
    acknowledge(sequences, second)
    first.is_in_flight = False

    refuse(sequences, third)

    assert settle(sequences) == []
    assert sequences.may_drain(first)
    acknowledge(sequences, first)
    assert settle(sequences) == []
    assert sequences.may_drain(third)


def test_batches_behind_the_refused_one_move_with_it(sequences: Sequences) -> None:
    warm_up(sequences)
    drain(sequences, refused := Batch(), behind := Batch())
    refuse(sequences, refused)
    assert settle(sequences) == [], "not while a batch of the partition is on its way"
    assert sequences.may_drain(refused) is False, "its number is of no use any more"
    behind.is_in_flight = False

    assert settle(sequences) == [ORDERS]
    assert [refused.history[-1], behind.history[-1]] == [(7, 1, 0), (7, 1, 1)]
    assert settle(sequences) == []
    assert not sequences.attention


def test_of_two_holes_the_earlier_one_counts(sequences: Sequences) -> None:
    warm_up(sequences)
    drain(sequences, first := Batch(), between := Batch(), third := Batch(), last := Batch())
    for batch in (first, between, third, last):
        batch.is_in_flight = False

    sequences.given_up(third)
    sequences.given_up(first)

    assert settle(sequences) == [ORDERS]
    assert [between.history[-1], last.history[-1]] == [(7, 1, 0), (7, 1, 1)]


def test_a_hole_behind_a_batch_in_doubt_needs_a_new_epoch_whatever_proves_the_doubtful_one(
    sequences: Sequences,
) -> None:
    warm_up(sequences)
    drain(sequences, doubtful := Batch(), refused := Batch(), last := Batch())
    doubtful.possibly_written, doubtful.is_in_flight, refused.is_in_flight = True, False, False
    sequences.given_up(doubtful)
    sequences.given_up(refused)
    acknowledge(sequences, last)

    assert settle(sequences) == [ORDERS]

    drain(sequences, after := Batch())
    assert after.history == [(7, 1, 0)]


def test_a_batch_refused_behind_one_that_proves_the_lost_one_keeps_its_number(sequences: Sequences) -> None:
    warm_up(sequences)
    drain(sequences, doubtful := Batch(), behind := Batch(), last := Batch())
    doubtful.possibly_written, doubtful.is_in_flight = True, False
    sequences.given_up(doubtful)
    assert sequences.may_drain(Batch()) is False
    refuse(sequences, last)

    acknowledge(sequences, behind)

    assert settle(sequences) == []
    assert sequences.may_drain(last)
    acknowledge(sequences, last)
    assert settle(sequences) == [ORDERS]
    assert sequences.epoch == 0
    assert not sequences.attention


def test_no_epoch_is_bumped_while_there_is_no_producer_id(sequences: Sequences) -> None:
    sequences.set_producer_id(7, MAX_EPOCH)
    drain(sequences, first := Batch(), other := Batch(partition=OTHERS))
    refuse(sequences, first)
    assert settle(sequences) == [ORDERS]
    refuse(sequences, other)

    assert settle(sequences) == []

    assert sequences.bumps == 1
    sequences.set_producer_id(8, 0)
    assert settle(sequences) == [OTHERS]
    assert other.history[-1] == (8, 1, 0)


def test_a_lone_batch_that_is_fenced_leaves_the_producer_id(sequences: Sequences) -> None:
    drain(sequences, refused := Batch())
    refused.is_in_flight = False

    sequences.fenced(refused)

    assert settle(sequences) == [ORDERS]
    assert sequences.needs_producer_id


def test_a_batch_that_is_fenced_under_the_last_producer_id_leaves_the_present_one_alone(sequences: Sequences) -> None:
    drain(sequences, batch := Batch())
    batch.is_in_flight = False
    sequences.set_producer_id(8, 0)

    sequences.fenced(batch)

    assert settle(sequences) == []
    assert sequences.producer_id == 8


def test_a_batch_is_ahead_while_an_earlier_one_is_not_answered(sequences: Sequences) -> None:
    warm_up(sequences)
    drain(sequences, first := Batch(), second := Batch())
    assert [sequences.is_ahead(first), sequences.is_ahead(second)] == [False, True]
    assert sequences.in_flight(OTHERS) == 0
    assert sequences.in_flight(ORDERS) == 2

    acknowledge(sequences, first)

    assert sequences.is_ahead(second) is False
    assert sequences.in_flight(ORDERS) == 1


def test_a_batch_with_a_number_that_its_partition_does_not_know_is_not_drained(sequences: Sequences) -> None:
    assert sequences.may_drain(Batch(base_sequence=3)) is False


def test_without_idempotence_nothing_gets_a_number() -> None:
    sequences = Sequences(idempotent=False, max_unnumbered_in_flight=2)
    assert sequences.needs_producer_id is False
    drain(sequences, first := Batch(), second := Batch())
    assert first.history == [(NO_PRODUCER_ID, NO_EPOCH, NO_SEQUENCE)]
    assert not sequences.is_ahead(second)

    parts = [Batch(), Batch()]
    sequences.split(first, parts)

    assert [part.history for part in parts] == [[], []]
    sequences.forget(ORDERS)
    assert sequences.in_flight(ORDERS) == 1
    acknowledge(sequences, second)
    sequences.forget(ORDERS)
    assert not sequences._partitions


class Gate:
    """A transaction that lets some partitions pass, and notes what is reported to it."""

    def __init__(self) -> None:
        self.open: set[TopicPartition] = set()
        self.left: list[TopicPartition] = []
        self.lost: list[TopicPartition] = []

    def may_drain(self, partition: TopicPartition) -> bool:
        return partition in self.open

    def drained(self, partition: TopicPartition) -> None:
        self.left.append(partition)

    def sequences_lost(self, partition: TopicPartition) -> None:
        self.lost.append(partition)


@pytest.fixture
def gate() -> Gate:
    gate = Gate()
    gate.open.add(ORDERS)
    return gate


@pytest.fixture
def in_transaction(gate: Gate) -> Sequences:
    sequences = Sequences(idempotent=True, gate=gate)
    assert not sequences.needs_producer_id, "the transaction brings one"
    assert sequences.may_drain(Batch()) is False
    sequences.set_producer_id(7, 0)
    return sequences


def test_new_batches_leave_as_the_transaction_allows_and_it_is_reported(in_transaction: Sequences, gate: Gate) -> None:
    assert in_transaction.may_drain(Batch(partition=OTHERS)) is False
    drain(in_transaction, batch := Batch())
    assert gate.left == [ORDERS]

    batch.is_in_flight = False
    gate.open.clear()
    drain(in_transaction, batch)  # a retry

    assert gate.left == [ORDERS]
    assert batch.history == [(7, 0, 0)]


@pytest.mark.parametrize(("possibly_written", "has_follower"), [(False, True), (True, False), (True, True)])
def test_a_hole_in_a_transaction_is_reported_to_it(
    in_transaction: Sequences, gate: Gate, possibly_written: bool, has_follower: bool
) -> None:
    warm_up(in_transaction)
    drain(in_transaction, batch := Batch(possibly_written=possibly_written), *[Batch()] * has_follower)
    batch.is_in_flight = False

    in_transaction.given_up(batch)

    assert gate.lost == [ORDERS]
    assert settle(in_transaction) == [], "new epochs come from the coordinator"


def test_the_number_of_the_last_batch_that_was_not_written_is_used_again_in_a_transaction(
    in_transaction: Sequences, gate: Gate
) -> None:
    warm_up(in_transaction)
    drain(in_transaction, batch := Batch(count=3))
    batch.is_in_flight = False

    in_transaction.given_up(batch)

    drain(in_transaction, after := Batch())
    assert after.base_sequence == 1
    assert gate.lost == []


def test_partitions_without_unanswered_batches_count_from_zero_after_the_coordinators_response(
    in_transaction: Sequences, gate: Gate
) -> None:
    gate.open.add(OTHERS)
    warm_up(in_transaction)
    warm_up(in_transaction, OTHERS)
    drain(in_transaction, unanswered := Batch(partition=OTHERS))

    in_transaction.set_producer_id(7, 0)

    drain(in_transaction, idle := Batch(), behind := Batch(partition=OTHERS))
    assert [idle.base_sequence, unanswered.base_sequence, behind.base_sequence] == [0, 1, 2]


class Broker:
    """A partition leader that checks sequences as Kafka does, and loses answers on request."""

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
    """A model of the Sender against a model of the broker.

    Answers are lost, batches refused, expired and retried, and attempts that were given up arrive after all.
    """
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
                sequences.acknowledged(batch)
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
    assert not refused & set(broker.log), "reported as not written, and is in the log"
