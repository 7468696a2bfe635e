"""The producer id, epoch and protocol version under which transactions are written (rules 4 and 5)."""

from __future__ import annotations

from collections.abc import Callable

from aioproducer.core.transactions.identities import ProducerIdAndEpoch
from aioproducer.core.transactions.requests import FIRST_VERSION_THAT_BUMPS

__all__ = ["Epochs"]

_TRANSACTION_VERSION_2 = 2
#: Produce 12 is the first that adds partitions to a transaction by itself (LAST_STABLE_VERSION_BEFORE_TRANSACTION_V2).
_HIGHEST_PRODUCE_TV1 = 11
_HIGHEST_PRODUCE = 13


class Epochs:
    """The producer id and epoch of one transaction after the other, and which of them needs the next epoch first.

    ``on_change`` is called with every new producer id and epoch; ``transaction_version`` returns the version that the
    cluster has finalized, and is called only between two transactions.
    """

    def __init__(self, transaction_version: Callable[[], int], on_change: Callable[[int, int], object]) -> None:
        self.producer: ProducerIdAndEpoch | None = None
        self.is_v2 = False
        self._transaction_version = transaction_version
        self._on_change = on_change
        self._bump_required = False
        self._of_handle = False  # the transaction was not begun here
        self._can_bump = False  # the coordinator knows KIP-360
        self._ended_in: ProducerIdAndEpoch | None = (
            None  # the producer id and epoch that ended the last transaction with partitions
        )
        self._knows_version = True  # False if no broker had reported it before the transaction began

    def join(self, producer: ProducerIdAndEpoch) -> None:
        """Begin inside a transaction that was begun elsewhere; its version is not known yet."""
        self.producer = producer
        self._of_handle = True
        self._knows_version = False

    # -- who writes -----------------------------------------------------------------------------------------------------

    @property
    def identity(self) -> ProducerIdAndEpoch:
        """The producer id and epoch of the open transaction."""
        assert self.producer is not None  # otherwise the state would be UNINITIALIZED or INITIALIZING
        return self.producer

    @property
    def to_bump(self) -> ProducerIdAndEpoch | None:
        """The producer id whose next epoch InitProducerId should return; None if it should return a new id."""
        return self.producer if self._bump_required and self._can_bump else None

    @property
    def is_of_handle(self) -> bool:
        """Whether the open transaction was begun elsewhere.

        Its sequences and the other holders of its handle are unknown then.
        """
        return self._of_handle

    @property
    def is_bump_possible(self) -> bool:
        """Whether another epoch can follow within this producer id; with a handle, its owner handles that."""
        return self._can_bump or self._of_handle

    @property
    def has_counted(self) -> bool:
        """Whether brokers know sequences of an earlier transaction in this epoch."""
        return self.producer == self._ended_in

    def given(self, producer: ProducerIdAndEpoch, version: int) -> None:
        """InitProducerId returned this, in this version."""
        self._can_bump = version >= FIRST_VERSION_THAT_BUMPS
        self._bump_required = False
        self._read_version()
        self._change(producer)

    def ended(self, following: ProducerIdAndEpoch, *, has_counted: bool) -> None:
        """EndTxn returned this; ``has_counted``: records may have been written."""
        if has_counted:
            self._ended_in = self.producer
        if following.producer_id >= 0 and following != self.producer:
            self._change(following)
        elif self.is_v2:
            self._bump_required = True

    def _change(self, producer: ProducerIdAndEpoch) -> None:
        self.producer = producer
        self._on_change(producer.producer_id, producer.epoch)

    def forget(self) -> None:
        """The producer id is no longer valid."""
        self.producer = None
        self._of_handle = self._bump_required = False

    # -- whether the next transaction needs a new epoch -----------------------------------------------------------------

    def require_bump(self) -> None:
        """The next transaction needs a new epoch."""
        self._bump_required = True

    def require_bump_of_v1(self) -> None:
        """The next one needs a new epoch, unless it gets one anyway, as with version 2."""
        if not self.is_v2:
            self._bump_required = True

    def prepare_for_abort(self) -> None:
        """The transaction will be aborted after an error: its requests may arrive late."""
        if self._can_bump:
            self.require_bump_of_v1()

    def next_needs_bump(self) -> bool:
        """Between two transactions: whether to request a new epoch now, because one is due or the version has changed."""
        was_v2 = self.is_v2
        self._read_version()
        if self.is_v2 and not was_v2:
            self._bump_required = True
        return self._bump_required

    # -- the version ----------------------------------------------------------------------------------------------------

    @property
    def highest_produce_version(self) -> int:
        """The highest version of Produce that the transaction may use."""
        return _HIGHEST_PRODUCE if self.is_v2 else _HIGHEST_PRODUCE_TV1

    def look_at_version(self) -> None:
        """Read the version, if that had to wait until a broker could report it."""
        if not self._knows_version:
            self._read_version()

    def _read_version(self) -> None:
        self._knows_version = True
        self.is_v2 = self._transaction_version() >= _TRANSACTION_VERSION_2
