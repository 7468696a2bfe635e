"""Makes transactions that are committed, aborted, cancelled or killed, and writes down what is known of each.

As a program it does so in a separate process, which prints the ledger and ends when its input does, or it is fenced::

    python -m tests.real.shoppers localhost:9092 shop shopper-1 7
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable
from enum import Enum

from aioproducer import (
    BrokerError,
    CommitUnknown,
    DeliveryError,
    KafkaTimeoutError,
    Producer,
    ProducerFenced,
    ReopenRequired,
    TransactionAbortable,
    TransactionFatal,
)
from aioproducer.config import ProducerOptions
from aioproducer.protocol import ErrorCode

logger = logging.getLogger(__name__)

__all__ = ["FENCED", "PARTITIONS", "Fate", "Ledger", "shop"]

PARTITIONS = 6
#: The exit code of a process that another one with its transactional id has fenced.
FENCED = 3
#: So many transactions a producer makes, at least and at most, before the next one with its transactional id is opened.
_VISIT = (20, 60)
#: Seconds, of which a random share passes before a task is cancelled: some are cancelled at each step of a transaction.
_PATIENCE = 0.05


class Fate(Enum):
    """The last thing that is known of a transaction."""

    BEGUN = "begun"  # its commit was not requested, so it must not be seen
    COMMITTING = "committing"  # it may be committed or not
    COMMITTED = "committed"
    ABORTED = "aborted"


class Ledger:
    """The outcome of each transaction, as its producer reported it; the value of a record is ``<transaction>|<number>``."""

    def __init__(self, tell: Callable[[str], object] | None = None) -> None:
        self.fates: dict[str, Fate] = {}
        self.sizes: dict[str, int] = {}
        self.counts: Counter[Fate] = Counter()
        self._report = tell or (lambda line: None)

    def write(self, name: str, fate: Fate, size: int) -> None:
        """Note how far a transaction of so many records has come."""
        if name in self.fates:
            self.counts[self.fates[name]] -= 1
        self.counts[fate] += 1
        self.fates[name], self.sizes[name] = fate, size
        self._report(f"{name} {fate.value} {size}")

    def copy(self, line: str) -> None:
        """Note what another one reported."""
        name, fate, size = line.split()
        self.write(name, Fate(fate), int(size))

    def is_known_of(self, transactions: int) -> bool:
        """Whether so many were committed or aborted, as far as is known."""
        return self.counts[Fate.COMMITTED] + self.counts[Fate.ABORTED] >= transactions

    def check(self, seen: Counter[str]) -> None:
        """Fail unless a reader has seen all of what was committed, nothing of what was not, and nothing by halves."""
        wrong = self.wrong(seen)
        assert not wrong, "\n".join(wrong.values())

    def wrong(self, seen: Counter[str]) -> dict[str, str]:
        """The transactions that a reader must not have seen like this, and what is wrong with each."""
        wrong = {}
        for name, fate in self.fates.items():
            size = self.sizes[name]
            if seen[name] not in {Fate.COMMITTED: (size,), Fate.COMMITTING: (0, size)}.get(fate, (0,)):
                wrong[name] = f"{name} is {fate.value}, and {seen[name]} of its {size} records are seen."
        return wrong | {name: f"{name} is not known." for name in seen if name not in self.fates}


def _is_of_a_broker_that_stops(error: TransactionFatal) -> bool:
    """Whether a broker had no better word for it: one that is being stopped answers EndTxn like this now and then."""
    cause = error.__cause__
    return isinstance(cause, BrokerError) and cause.code == ErrorCode.UNKNOWN_SERVER_ERROR


class _Abort(Exception):
    """The work wants no commit."""


async def shop(
    servers: str,
    topic: str,
    name: str,
    seed: int,
    ledger: Ledger,
    enough: Callable[[], bool],
    *,
    has_rivals: bool = True,
) -> None:
    """Make transactions under one transactional id, with a new producer now and then, until there are enough.

    Raises `ProducerFenced` when another one has taken over. Without rivals only a broker that was started again can fence
    this one: its log does not have the epoch before the last bump, so it takes a repeated InitProducerId, whose response
    was lost, for one of an old producer.
    """
    chance = random.Random(seed)
    made = 0
    options: ProducerOptions = {
        "transactional_id": name,
        "retry_backoff_ms": 20,
        # A broker that takes a minute to start, on a busy machine, is no reason for a transaction to time out.
        "transaction_timeout_ms": 900_000,
        "delivery_timeout_ms": 600_000,
        "max_block_ms": 600_000,
    }
    while not enough():
        async with Producer(servers, **options) as producer:
            for _ in range(chance.randint(*_VISIT)):
                made += 1
                try:
                    await _transact(producer, topic, f"{name}.{seed}.{made}", chance, ledger)
                except ProducerFenced as error:
                    if has_rivals or "InitProducerId" not in str(error):
                        raise
                    logger.warning("%s goes on with a new producer: %s", name, error)
                    break
                except (CommitUnknown, ReopenRequired, TransactionFatal) as error:
                    if isinstance(error, TransactionFatal) and not _is_of_a_broker_that_stops(error):
                        raise
                    logger.warning("%s goes on with a new producer: %s", name, error)
                    break
                if enough():
                    break


async def _transact(producer: Producer, topic: str, name: str, chance: random.Random, ledger: Ledger) -> None:
    """One transaction. What leaves nothing to do with the producer is raised."""
    fate = chance.choice(["commit"] * 7 + ["abort", "cancel", "cancel"])
    size = chance.choice([1, 5, 40])

    async def work() -> None:
        async with producer.transaction() as txn:
            ledger.write(name, Fate.BEGUN, size)
            for number in range(size):
                await txn.enqueue(topic, f"{name}|{number}", partition=chance.randrange(PARTITIONS))
            if fate == "abort":
                raise _Abort
            ledger.write(name, Fate.COMMITTING, size)

    task = asyncio.ensure_future(work())
    if fate == "cancel":
        await asyncio.wait([task], timeout=chance.random() * _PATIENCE)
        task.cancel()
    try:
        await task
    except (_Abort, TransactionAbortable):
        if name in ledger.fates:  # else it is the commit of the one before, cancelled, that has failed
            ledger.write(name, Fate.ABORTED, size)
    except (asyncio.CancelledError, KafkaTimeoutError, DeliveryError):
        pass
    else:
        ledger.write(name, Fate.COMMITTED, size)


async def _main(servers: str, topic: str, name: str, seed: str) -> None:
    watch = threading.Thread(target=sys.stdin.read, daemon=True)
    watch.start()
    ledger = Ledger(lambda line: sys.stdout.write(line + "\n") and sys.stdout.flush())
    try:
        await shop(servers, topic, name, int(seed), ledger, lambda: not watch.is_alive())
    except ProducerFenced:
        sys.exit(FENCED)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
