"""Numbers the batches of each partition, so that brokers can detect duplicates (KIP-98, KIP-360).

The rules, of which everything else follows:

1. A batch gets its sequence when it is drained, not when it is made, and keeps it: a retry is the same bytes.
2. A broker recognises the last five batches of a partition, and accepts any first one. So no batch is numbered that
   is more than four behind the oldest unanswered one - answered ones in between count, as they push it out of the
   broker's memory - and only one until the first acknowledgement under a new (producer id, epoch).
3. While a numbered batch waits for its retry, only the oldest numbered one is drained: nothing may overtake it.
4. A sequence is taken back only where the broker certainly did not write its batch, and nothing was numbered after it.
   Where something was, or where nobody knows, the hole is closed by a new epoch, in which the partition counts from 0.
5. The epoch is bumped by the client itself. The partitions that asked for it renumber what they have; every other one
   moves over when its batches of the old epoch are all answered. An id that a broker knows under a newer epoch than
   ours, or does not know any more, is left for a fresh one in the same way.
6. A partition is renumbered only from the hole on, when none of its batches is on its way to a broker and those before
   the hole are answered: one of these may be in the log already, and is recognised there only by its old number. Nor
   does the batch behind a lost one get a new number where an attempt of its own may still arrive.

A batch that was lost with its fate unknown leaves the partition *unresolved*: nothing new is numbered until the batches
behind it were answered. If they were acknowledged, the lost one had been written too, and all is well; otherwise rule 4.

With idempotence off, batches have no numbers (-1), and order is kept by having one of a partition in flight at a time.

In transactions the producer id and every new epoch come from the coordinator, so rules 4 to 6 end where a hole is left: it
is told to the `TransactionGate`, and the transaction after this one counts from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.types import TopicPartition

__all__ = [
    "MAX_EPOCH",
    "MAX_IN_FLIGHT",
    "NO_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "Numbered",
    "Sequences",
    "TransactionGate",
    "increment_sequence",
]

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_SEQUENCE = -1

#: How many batches of a producer a broker remembers for each partition (ProducerStateEntry.NUM_BATCHES_TO_RETAIN).
MAX_IN_FLIGHT = 5
MAX_EPOCH = 0x7FFF
_SEQUENCES = 2**31


def increment_sequence(sequence: int, count: int) -> int:
    """The sequence ``count`` records later; after 2^31 - 1 comes 0 (DefaultRecordBatch.incrementSequence)."""
    return (sequence + count) % _SEQUENCES


def _precedes(sequence: int, other: int) -> bool:
    """Whether a sequence comes before another one, over the wrap too."""
    return (sequence - other) % _SEQUENCES >= _SEQUENCES // 2


class Numbered(Protocol):
    """What this module needs to know of a batch."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_in_flight: bool
    possibly_written: bool

    @property
    def count(self) -> int: ...

    def renumber(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Write the numbers into the batch's header."""
        ...


class TransactionGate(Protocol):
    """Who decides about transactions, as far as numbers are concerned."""

    def may_drain(self, partition: TopicPartition) -> bool:
        """Whether new batches for this partition may leave."""
        ...

    def drained(self, partition: TopicPartition) -> None:
        """A new batch for this partition leaves."""
        ...

    def sequences_lost(self, partition: TopicPartition) -> None:
        """A batch was given up, and what was numbered after it cannot follow: no transaction can go on from here."""
        ...


class _Partition:
    """The numbers of one partition."""

    __slots__ = (
        "acknowledged",
        "bump_from",
        "epoch",
        "last_acked",
        "last_acked_offset",
        "next_place",
        "next_sequence",
        "numbered",
        "places",
        "producer_id",
        "unresolved",
    )

    def __init__(self) -> None:
        self.producer_id = NO_PRODUCER_ID
        self.epoch = NO_EPOCH
        self.numbered: list[Numbered] = []  # in the order of their sequences
        self.places: list[int] = []  # of these batches, in the row of all that were numbered here
        self.next_place = 0
        self.start_over(NO_PRODUCER_ID, NO_EPOCH)
        self.last_acked_offset = -1

    def start_over(self, producer_id: int, epoch: int) -> None:
        self.producer_id, self.epoch = producer_id, epoch
        self.next_sequence = 0
        self.last_acked = NO_SEQUENCE
        self.acknowledged = False
        self.unresolved: list[int] = []  # the sequences behind batches that were lost with their fate unknown
        self.bump_from: int | None = None  # the first sequence that cannot be used in this epoch any more

    def add(self, batch: Numbered) -> None:
        """Put a batch at the end of the row."""
        self.numbered.append(batch)
        self.places.append(self.next_place)
        self.next_place += 1

    def remove(self, batch: Numbered) -> None:
        """Take a batch that was answered for good out of the row."""
        at = self.numbered.index(batch)
        del self.numbered[at], self.places[at]

    def has_place(self, limit: int) -> bool:
        """Whether the broker would still recognise the oldest batch after one more."""
        return not self.places or self.next_place - self.places[0] < limit

    def is_beyond_repair(self, sequence: int) -> bool:
        """Whether a batch with this sequence must be renumbered."""
        return self.bump_from is not None and not _precedes(sequence, self.bump_from)

    def bump_at(self, sequence: int) -> None:
        """Ask for a new epoch, in which this sequence is 0."""
        if self.bump_from is None or _precedes(sequence, self.bump_from):
            self.bump_from = sequence

    @property
    def may_bump(self) -> bool:
        """Whether the new epoch may begin now (rule 6)."""
        return self.bump_from is not None and all(
            self.is_beyond_repair(batch.base_sequence) and not batch.is_in_flight for batch in self.numbered
        )

    @property
    def expected(self) -> int:
        """The sequence that the broker expects next, as far as its acknowledgements tell."""
        return increment_sequence(self.last_acked, 1) if self.acknowledged else 0


class Sequences:
    """The numbers of all partitions, and the producer id under which they count."""

    def __init__(
        self, *, idempotent: bool, max_unnumbered_in_flight: int = 1, gate: TransactionGate | None = None
    ) -> None:
        self.idempotent = idempotent
        self._gate = gate
        self.producer_id = NO_PRODUCER_ID
        self.epoch = NO_EPOCH
        self.bumps = 0
        self._partitions: dict[TopicPartition, _Partition] = {}
        #: What `settle` has to look at: the partitions that are unresolved, or want a bump.
        self.attention: dict[TopicPartition, _Partition] = {}
        self._leaves_id = False  # somebody else counts under the producer id, too, or a broker has forgotten it
        self._limit = MAX_IN_FLIGHT if idempotent else max_unnumbered_in_flight

    # -- the producer id ----------------------------------------------------------------------------------------------

    @property
    def needs_producer_id(self) -> bool:
        """Whether nothing new can be numbered until InitProducerId was answered; in transactions others ask for it."""
        return self.idempotent and self._gate is None and self.producer_id == NO_PRODUCER_ID

    def set_producer_id(self, producer_id: int, epoch: int) -> None:
        """Count under this producer id from now on; each partition moves over when its old batches are answered."""
        self.producer_id, self.epoch = producer_id, epoch
        if self._gate is not None:
            for state in self._partitions.values():
                if not state.numbered:
                    state.start_over(producer_id, epoch)

    # -- draining -----------------------------------------------------------------------------------------------------

    def may_drain(self, batch: Numbered) -> bool:
        """Whether this batch, the first of its partition's queue, may be sent now."""
        state = self._partitions.get(batch.partition)
        if not self.idempotent:
            if state is None:
                return True
            return state.numbered[0] is batch if batch in state.numbered else state.has_place(self._limit)
        if batch.base_sequence != NO_SEQUENCE:
            return state is not None and state.numbered[0] is batch and not state.is_beyond_repair(batch.base_sequence)
        if self.producer_id == NO_PRODUCER_ID or (self._gate is not None and not self._gate.may_drain(batch.partition)):
            return False
        if state is None:
            return True
        if state.bump_from is not None or state.unresolved:
            return False
        if (state.producer_id, state.epoch) != (self.producer_id, self.epoch):
            return not state.numbered
        return state.has_place(self._limit if state.acknowledged else 1)

    def number(self, batch: Numbered) -> None:
        """Give a batch that is drained for the first time its place; a retried one keeps the one it has."""
        if batch.base_sequence != NO_SEQUENCE:
            return
        state = self._partitions.get(batch.partition)
        if state is None:
            state = self._partitions[batch.partition] = _Partition()
        if self.idempotent:
            if (state.producer_id, state.epoch) != (self.producer_id, self.epoch):
                state.start_over(self.producer_id, self.epoch)
            batch.renumber(self.producer_id, self.epoch, state.next_sequence)
            state.next_sequence = increment_sequence(state.next_sequence, batch.count)
            if self._gate is not None:
                self._gate.drained(batch.partition)
        elif batch in state.numbered:  # a retry without idempotence: it kept its place
            return
        else:
            batch.renumber(NO_PRODUCER_ID, NO_EPOCH, NO_SEQUENCE)
        state.add(batch)

    # -- answers ------------------------------------------------------------------------------------------------------

    def acknowledged(self, batch: Numbered, base_offset: int) -> None:
        """The broker has written the batch."""
        state = self._forget(batch)
        if state is None or not self._is_current(batch, state):
            return
        last = increment_sequence(batch.base_sequence, batch.count - 1)
        # Compared modulo 2^31: an answer that comes late must not move the mark back.
        if not state.acknowledged or not _precedes(last, state.last_acked):
            state.last_acked = last
        state.acknowledged = True
        if base_offset >= 0:
            state.last_acked_offset = max(state.last_acked_offset, base_offset + batch.count - 1)

    def given_up(self, batch: Numbered) -> None:
        """The batch will not be sent again: its sequence is taken back, left as a hole, or left in doubt (rule 4)."""
        state = self._forget(batch)
        if state is None or not self._is_current(batch, state) or batch.base_sequence == NO_SEQUENCE:
            return
        after = increment_sequence(batch.base_sequence, batch.count)
        if self._gate is not None:
            if batch.possibly_written or after != state.next_sequence:
                self._gate.sequences_lost(batch.partition)
            else:
                state.next_sequence = batch.base_sequence
            return
        if batch.possibly_written:
            state.unresolved.append(after)
        elif after == state.next_sequence:
            state.next_sequence = batch.base_sequence
        else:
            state.bump_at(batch.base_sequence)
        if state.unresolved or state.bump_from is not None:
            self.attention[batch.partition] = state

    def unexpected(self, batch: Numbered, code: int, log_start_offset: int) -> None:
        """The broker refused the sequence of a batch that will be retried: find out whether that needs a new epoch.

        Follows TransactionManager.canRetry for a producer without transactions.
        """
        state = self._partitions.get(batch.partition)
        if state is None or not self._is_current(batch, state):
            return
        if code == ErrorCode.UNKNOWN_PRODUCER_ID:
            # Without a log start offset an old broker cannot say whether retention removed the producer's state.
            bump = log_start_offset != -1
        elif state.unresolved:
            # An earlier attempt of this batch may be held up on its way, behind those of the lost one, and be written yet:
            # under new numbers it would not be recognised. The old ones are repeated until its own time is over.
            bump = batch.base_sequence in state.unresolved and not batch.possibly_written
        else:
            # Not the one that the broker expects next: an earlier batch is on its way to be retried before it.
            bump = batch.base_sequence == state.expected and state.numbered[:1] == [batch]
        if bump:
            state.bump_at(batch.base_sequence)
            self.attention[batch.partition] = state

    def is_ahead(self, batch: Numbered) -> bool:
        """Whether the broker was right to refuse a batch, because one that comes before it is on its way to be repeated."""
        state = self._partitions.get(batch.partition)
        return state is not None and self._is_current(batch, state) and state.numbered[:1] != [batch]

    def fenced(self, batch: Numbered) -> None:
        """The broker knows a newer epoch than that of a batch, which will not be sent again: leave the producer id.

        Java counts on in the next epoch of the same id. But a newer epoch that is not ours was used by somebody else, and
        there our first sequences may be taken for repeats of theirs, and be acknowledged without being written.
        """
        state = self._partitions.get(batch.partition)
        if state is None or not self._is_current(batch, state) or batch.producer_id != self.producer_id:
            return
        self._leaves_id = True
        if not batch.possibly_written:  # else those behind it may be in the log as well: `given_up` leaves it in doubt
            state.bump_at(batch.base_sequence)
            self.attention[batch.partition] = state

    def unknown_id(self, batch: Numbered) -> None:
        """The broker does not know the producer id of a batch, which it certainly did not write: leave the id.

        Each partition goes on under a fresh one, from its first batch that is refused like this.
        """
        state = self._partitions.get(batch.partition)
        if state is None or not self._is_current(batch, state):
            return
        if batch.producer_id == self.producer_id:
            self._leaves_id = True
        state.bump_at(batch.base_sequence)
        self.attention[batch.partition] = state

    def split(self, batch: Numbered, parts: Iterable[Numbered]) -> None:
        """Put the parts of a batch that was certainly not written into its place, counting on from its sequence."""
        state = self._partitions.get(batch.partition)
        if state is None or batch not in state.numbered:
            return
        at = state.numbered.index(batch)
        sequence = batch.base_sequence
        placed: list[Numbered] = []
        for part in parts:
            if sequence == NO_SEQUENCE:
                break
            part.renumber(batch.producer_id, batch.producer_epoch, sequence)
            sequence = increment_sequence(sequence, part.count)
            placed.append(part)
        after = state.numbered[at + 1 :]
        del state.numbered[at:], state.places[at:]
        for each in (*placed, *after):
            state.add(each)

    # -- once in each round of the Sender -------------------------------------------------------------------------------

    def settle(self, moved: Callable[[TopicPartition], object]) -> None:
        """Resolve what can be resolved, and bump the epoch where it is needed; ``moved`` is told each partition that
        may be drained again."""
        resolved: list[TopicPartition] = []
        bump: list[_Partition] = []
        for partition, state in list(self.attention.items()):
            if state.bump_from is None and state.unresolved and not state.numbered:
                if state.acknowledged and state.expected == state.next_sequence:
                    state.unresolved.clear()
                    del self.attention[partition]
                    resolved.append(partition)
                    continue
                state.bump_at(state.unresolved[0])
            if state.may_bump and self.producer_id != NO_PRODUCER_ID:
                bump.append(state)
                del self.attention[partition]
                resolved.append(partition)
        if bump:
            self._bump(bump)
        for partition in resolved:  # only now: who is told asks `may_drain` at once
            moved(partition)

    def _bump(self, states: list[_Partition]) -> None:
        self.bumps += 1
        if self.epoch >= MAX_EPOCH or self._leaves_id:
            # There is no further epoch to use. What the partitions still hold counts under the next producer id.
            self.producer_id, self.epoch = NO_PRODUCER_ID, NO_EPOCH
            self._leaves_id = False
        else:
            self.epoch += 1
        for state in states:
            numbered, state.numbered, state.places = state.numbered, [], []
            state.start_over(self.producer_id, self.epoch)
            for batch in numbered:
                if self.producer_id == NO_PRODUCER_ID:
                    batch.renumber(NO_PRODUCER_ID, NO_EPOCH, NO_SEQUENCE)
                    continue
                batch.renumber(self.producer_id, self.epoch, state.next_sequence)
                state.next_sequence = increment_sequence(state.next_sequence, batch.count)
                state.add(batch)

    # -- helpers ------------------------------------------------------------------------------------------------------

    def in_flight(self, partition: TopicPartition) -> int:
        """How many batches of the partition are numbered and not answered for good."""
        state = self._partitions.get(partition)
        return 0 if state is None else len(state.numbered)

    def forget(self, partition: TopicPartition) -> None:
        """Drop the numbers of a partition that is not in use, unless it must go on from them.

        It need not where it would begin anew anyhow: after a change of the producer id or the epoch, or without numbers.
        """
        state = self._partitions.get(partition)
        if state is None or state.numbered or partition in self.attention:
            return
        if not self.idempotent or (state.producer_id, state.epoch) != (self.producer_id, self.epoch):
            del self._partitions[partition]

    def _forget(self, batch: Numbered) -> _Partition | None:
        state = self._partitions.get(batch.partition)
        if state is None or batch not in state.numbered:
            return None
        state.remove(batch)
        return state

    def _is_current(self, batch: Numbered, state: _Partition) -> bool:
        return self.idempotent and (batch.producer_id, batch.producer_epoch) == (state.producer_id, state.epoch)
