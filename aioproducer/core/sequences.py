"""Numbers the batches of each partition, so that brokers can detect duplicates (KIP-98, KIP-360).

The rules from which everything else follows:

1. A batch gets its sequence when it is drained, not when it is created, and keeps it: a retry has the same bytes.
2. A broker recognises the last five batches of a partition (after a restart, the last one), and accepts any first one.
   So no batch is numbered that is more than four behind the oldest unanswered one (answered ones in between count,
   because they push it out of the broker's memory), and only one until the first acknowledgement under a new
   (producer id, epoch), and after the broker may have forgotten the producer: in a long break, or with a topic that was
   created again.
3. While a numbered batch waits for its retry, only the oldest numbered one is drained: nothing may overtake it.
4. A sequence is taken back only if the broker certainly did not write its batch, and nothing was numbered after it.
   Otherwise a new epoch, in which the partition counts from 0, closes the hole.
5. The client bumps the epoch itself. The partitions that asked for it renumber their batches; every other partition
   moves to the new epoch when all its batches of the old one are answered. A producer id that a broker knows under a
   newer epoch than ours, or does not know any more, is replaced by a new one in the same way.
6. A partition is renumbered only from the hole on, when none of its batches is in flight and those before the hole are
   answered: one of these may be in the log already, and the broker recognises it only by its old number. Nor does the
   batch behind a lost one get a new number while an earlier attempt of it may still arrive.

A lost batch whose fate is unknown leaves the partition *unresolved*: nothing new is numbered until the batches behind it
are answered. If they are acknowledged, the lost one was written too, and all is well; otherwise rule 4 applies.

With idempotence off, batches have no numbers (-1); order is kept by having one batch of a partition in flight at a time.

In transactions the producer id and every new epoch come from the coordinator, so rules 4 to 6 do not close a hole: it is
reported to the `TransactionGate`, and the next transaction counts from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
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
    """Return the sequence ``count`` records later; after 2^31 - 1 comes 0 (DefaultRecordBatch.incrementSequence)."""
    return (sequence + count) % _SEQUENCES


def _precedes(sequence: int, other: int) -> bool:
    """Whether a sequence precedes another one, also across the wrap."""
    return (sequence - other) % _SEQUENCES >= _SEQUENCES // 2


class Numbered(Protocol):
    """The part of a batch that this module uses."""

    partition: TopicPartition
    created_at: float
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
    """The part of a transaction that this module uses."""

    def may_drain(self, partition: TopicPartition) -> bool:
        """Whether new batches of this partition may be sent."""
        ...

    def drained(self, partition: TopicPartition) -> None:
        """A new batch of this partition is sent."""
        ...

    def sequences_lost(self, partition: TopicPartition) -> None:
        """A batch was given up, and later numbers cannot follow: the transaction cannot continue."""
        ...


class _Partition:
    """The numbers of one partition."""

    __slots__ = (
        "acknowledged",
        "bump_from",
        "epoch",
        "last_acked",
        "last_created_at",
        "may_be_forgotten",
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
        self.last_created_at = inf  # of the batch that was numbered last
        self.start_over(NO_PRODUCER_ID, NO_EPOCH)

    def start_over(self, producer_id: int, epoch: int) -> None:
        self.producer_id, self.epoch = producer_id, epoch
        self.next_sequence = 0
        self.last_acked = NO_SEQUENCE
        self.acknowledged = False
        self.may_be_forgotten = False  # the broker may accept any sequence, because nothing was written for so long
        self.unresolved: list[int] = []  # the sequences after lost batches whose fate is unknown
        self.bump_from: int | None = None  # the first sequence that cannot be used in this epoch any more

    def add(self, batch: Numbered) -> None:
        """Put a batch at the end of the row."""
        self.numbered.append(batch)
        self.places.append(self.next_place)
        self.next_place += 1

    def remove(self, batch: Numbered) -> bool:
        """Remove a batch with a final answer from the row; returns False if it is not there."""
        try:
            at = self.numbered.index(batch)
        except ValueError:
            return False
        del self.numbered[at], self.places[at]
        return True

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
        """The sequence that the broker expects next, according to its acknowledgements."""
        return increment_sequence(self.last_acked, 1) if self.acknowledged else 0


class Sequences:
    """The numbers of all partitions, and the producer id under which they count."""

    def __init__(
        self,
        *,
        idempotent: bool,
        max_unnumbered_in_flight: int = 1,
        gate: TransactionGate | None = None,
        forgotten_after_s: float = inf,
    ) -> None:
        """``forgotten_after_s`` is the time without a batch after which a broker may have forgotten the producer."""
        self.idempotent = idempotent
        self._gate = gate
        self._forgotten_after_s = forgotten_after_s
        self.producer_id = NO_PRODUCER_ID
        self.epoch = NO_EPOCH
        self.bumps = 0
        self._partitions: dict[TopicPartition, _Partition] = {}
        #: The partitions that `settle` must check: they are unresolved, or need a bump.
        self.attention: dict[TopicPartition, _Partition] = {}
        self._leaves_id = False  # another writer uses the producer id, or a broker has forgotten it
        self._limit = MAX_IN_FLIGHT if idempotent else max_unnumbered_in_flight

    # -- the producer id ----------------------------------------------------------------------------------------------

    @property
    def needs_producer_id(self) -> bool:
        """Whether nothing new can be numbered until InitProducerId was answered; in transactions others ask for it."""
        return self.idempotent and self._gate is None and self.producer_id == NO_PRODUCER_ID

    def set_producer_id(self, producer_id: int, epoch: int) -> None:
        """Use this producer id from now on; each partition switches when its old batches are answered."""
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
        if not state.numbered:
            return True
        if state.epoch != self.epoch or state.producer_id != self.producer_id:
            return False
        return state.has_place(self._limit if state.acknowledged and not state.may_be_forgotten else 1)

    def number(self, batch: Numbered) -> None:
        """Number a batch that is drained for the first time; a retried one keeps its number."""
        if batch.base_sequence != NO_SEQUENCE:
            return
        state = self._partitions.get(batch.partition)
        if state is None:
            state = self._partitions[batch.partition] = _Partition()
        if self.idempotent:
            if state.epoch != self.epoch or state.producer_id != self.producer_id:
                state.start_over(self.producer_id, self.epoch)
            if not state.numbered and batch.created_at - state.last_created_at >= self._forgotten_after_s:
                state.may_be_forgotten = True
            state.last_created_at = batch.created_at
            batch.renumber(self.producer_id, self.epoch, state.next_sequence)
            state.next_sequence = increment_sequence(state.next_sequence, batch.count)
            if self._gate is not None:
                self._gate.drained(batch.partition)
        elif batch in state.numbered:  # a retry without idempotence: it kept its place
            return
        else:
            batch.renumber(NO_PRODUCER_ID, NO_EPOCH, NO_SEQUENCE)
        state.add(batch)

    def may_be_forgotten(self, partition: TopicPartition) -> None:
        """Let one batch be in flight until it is acknowledged: the topic was created again, and accepts any sequence."""
        state = self._partitions.get(partition)
        if state is not None:
            state.may_be_forgotten = True

    # -- answers ------------------------------------------------------------------------------------------------------

    def acknowledged(self, batch: Numbered) -> None:
        """The broker has written the batch."""
        state = self._forget(batch)
        if state is None or not self._is_current(batch, state):
            return
        last = increment_sequence(batch.base_sequence, batch.count - 1)
        # Compared modulo 2^31: an answer that comes late must not move the mark back.
        if not state.acknowledged or not _precedes(last, state.last_acked):
            state.last_acked = last
        state.acknowledged = True
        state.may_be_forgotten = False

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
        """The broker refused the sequence of a batch that will be retried: check whether that needs a new epoch.

        Follows TransactionManager.canRetry for a producer without transactions.
        """
        state = self._partitions.get(batch.partition)
        if state is None or not self._is_current(batch, state):
            return
        if code == ErrorCode.UNKNOWN_PRODUCER_ID:
            # Without a log start offset an old broker cannot say whether retention removed the producer's state.
            bump = log_start_offset != -1
        elif state.unresolved:
            # An earlier attempt of this batch may be delayed behind those of the lost one, and may still be written: under
            # new numbers it would not be recognised. The old ones are repeated until its own timeout.
            bump = batch.base_sequence in state.unresolved and not batch.possibly_written
        else:
            # Not the one that the broker expects next: an earlier batch will be retried before it.
            bump = self.is_next(batch)
        if bump:
            state.bump_at(batch.base_sequence)
            self.attention[batch.partition] = state

    def is_ahead(self, batch: Numbered) -> bool:
        """Whether the broker was right to refuse a batch, because an earlier one will be repeated first."""
        state = self._partitions.get(batch.partition)
        return state is not None and self._is_current(batch, state) and state.numbered[:1] != [batch]

    def is_next(self, batch: Numbered) -> bool:
        """Whether a batch is the one that the broker expects next, according to its acknowledgements."""
        state = self._partitions.get(batch.partition)
        return (
            state is not None
            and self._is_current(batch, state)
            and not state.unresolved
            and batch.base_sequence == state.expected
            and state.numbered[:1] == [batch]
        )

    def follows_lost(self, batch: Numbered) -> bool:
        """Whether the batch right before this one was lost, with an unknown outcome."""
        state = self._partitions.get(batch.partition)
        return state is not None and self._is_current(batch, state) and batch.base_sequence in state.unresolved

    def fenced(self, batch: Numbered) -> None:
        """The broker knows a newer epoch than that of a batch, which will not be sent again: leave the producer id.

        Java continues in the next epoch of the same id. But a newer epoch that is not ours was used by another producer, and
        our first sequences there may be mistaken for its duplicates, and be acknowledged without being written.
        """
        state = self._partitions.get(batch.partition)
        if state is None or not self._is_current(batch, state) or batch.producer_id != self.producer_id:
            return
        self._leaves_id = True
        if not batch.possibly_written:  # otherwise later ones may be in the log as well: `given_up` leaves it in doubt
            state.bump_at(batch.base_sequence)
            self.attention[batch.partition] = state

    def unknown_id(self, batch: Numbered) -> None:
        """The broker does not know the producer id of a batch, which it certainly did not write: abandon the id.

        Each partition continues under a fresh one, from its first batch that is refused like this.
        """
        state = self._partitions.get(batch.partition)
        if state is None or not self._is_current(batch, state):
            return
        if batch.producer_id == self.producer_id:
            self._leaves_id = True
        state.bump_at(batch.base_sequence)
        self.attention[batch.partition] = state

    def split(self, batch: Numbered, parts: Iterable[Numbered]) -> None:
        """Replace a batch that was certainly not written with its parts, numbered from its sequence on."""
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
        """Resolve partitions if possible, and bump the epoch if needed.

        ``moved`` is called with each partition that may be drained.
        """
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
        for partition in resolved:  # only now: the callback calls `may_drain` at once
            moved(partition)

    def _bump(self, states: list[_Partition]) -> None:
        self.bumps += 1
        if self.epoch >= MAX_EPOCH or self._leaves_id:
            # There is no further epoch. The remaining batches of the partitions count under the next producer id.
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
        """Return the number of batches of the partition that are numbered and have no final answer."""
        state = self._partitions.get(partition)
        return 0 if state is None else len(state.numbered)

    def forget(self, partition: TopicPartition) -> None:
        """Drop the numbers of an unused partition, unless it must continue from them.

        It need not if it would start over anyway: after a change of the producer id or the epoch, or without numbers.
        """
        state = self._partitions.get(partition)
        if state is None or state.numbered or partition in self.attention:
            return
        if not self.idempotent or (state.producer_id, state.epoch) != (self.producer_id, self.epoch):
            del self._partitions[partition]

    def _forget(self, batch: Numbered) -> _Partition | None:
        state = self._partitions.get(batch.partition)
        return state if state is not None and state.remove(batch) else None

    def _is_current(self, batch: Numbered, state: _Partition) -> bool:
        return self.idempotent and batch.producer_epoch == state.epoch and batch.producer_id == state.producer_id
