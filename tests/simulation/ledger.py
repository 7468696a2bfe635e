"""The callers' ledger: each record that was handed to a producer, and the outcome that its caller got."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

__all__ = ["End", "Entry", "Ledger", "Reported", "Transaction"]


class Reported(Enum):
    """The outcome of a record, as its caller knows it."""

    PENDING = "pending"
    WRITTEN = "written"
    NOT_WRITTEN = "not written"
    UNKNOWN = "unknown"
    #: The call was cancelled, or its time ran out: the record may have been accepted.
    ABANDONED = "abandoned"


class End(Enum):
    """The outcome of a transaction, as its caller knows it."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Entry:
    """A record: the ``number``-th of its caller. ``topic`` and ``key`` are those that it was sent with."""

    caller: str
    number: int
    topic: str
    key: bytes | None
    reported: Reported = Reported.PENDING
    partition: int | None = None
    offset: int | None = None
    is_accepted: bool = False

    @property
    def value(self) -> bytes:
        """Names the record, so that one in a wrong place can be recognised."""
        return f"{self.topic}/{self.caller}/{self.number}".encode()


@dataclass(slots=True)
class Transaction:
    """The records of a transaction, and its end."""

    name: str
    entries: list[Entry] = field(default_factory=list[Entry])
    end: End = End.UNKNOWN


@dataclass(slots=True)
class Ledger:
    """All records, by value, and all transactions."""

    entries: dict[bytes, Entry] = field(default_factory=dict[bytes, Entry])
    transactions: list[Transaction] = field(default_factory=list[Transaction])
    #: The topics of records whose fate is not known.
    in_doubt: set[str] = field(default_factory=set[str])

    def enter(self, caller: str, number: int, topic: str, key: bytes | None) -> Entry:
        """A new record."""
        entry = Entry(caller, number, topic, key)
        self.entries[entry.value] = entry
        return entry
