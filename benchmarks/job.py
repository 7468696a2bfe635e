"""The job of one process: a case on a broker, and its payload, the same for every client."""

from __future__ import annotations

import functools
import itertools
import json
import random
import string
from dataclasses import dataclass
from typing import Final

from benchmarks.cases import Case, Payload, Workload

__all__ = ["BATCH_SIZE", "BUFFER_MEMORY", "CONCURRENCY", "Job", "different_keys", "payloads"]

#: The batch size unless a case uses the defaults: librdkafka's and franz-go's own limit, so that the clients are compared,
#: and not 16 KiB (Java's default) with 1 MB.
BATCH_SIZE: Final = 1_000_000
#: The buffer of a client that bounds it in bytes, large enough that none of them waits for room.
BUFFER_MEMORY: Final = 256 * 1024 * 1024
#: Tasks that wait at the same time.
CONCURRENCY: Final = 1_000

_DIFFERENT_VALUES: Final = 1_000
_PAYLOAD_BYTES: Final = 8 * 1024 * 1024
_DIFFERENT_KEYS: Final = 10_000
_MOST_WARM_UP: Final = 20_000


@dataclass(frozen=True, slots=True)
class Job:
    """A case for one client, in one round."""

    case: Case
    servers: str
    topic: str
    records: int
    #: Whether the broker is librdkafka's mock cluster, for which some clients need a hint.
    mock: bool = False
    #: The broker's process, to be paused for the question of memory.
    broker_pid: int | None = None
    #: How long an idle client is watched.
    seconds: float = 5.0

    @property
    def warm_up(self) -> int:
        """The number of records that are sent before the measurement."""
        return max(1, min(self.records // 10, _MOST_WARM_UP))

    @property
    def transactions(self) -> int:
        """The number of transactions for these records."""
        return max(1, self.records // self.case.per_transaction)

    @property
    def warm_up_transactions(self) -> int:
        """The number of transactions before the measurement."""
        return max(1, self.transactions // 10)

    @property
    def sent(self) -> int:
        """The number of offsets in the topic at the end: records, and the marker of each transaction in its partitions."""
        if self.case.workload is Workload.TRANSACTIONS:
            return self.offsets_of(self.warm_up_transactions + self.transactions)
        return self.warm_up + self.records

    def offsets_of(self, transactions: int) -> int:
        """The number of offsets that these transactions take."""
        return transactions * (self.case.per_transaction + min(self.case.per_transaction, self.case.partitions))

    def transaction(self) -> list[tuple[bytes, int]]:
        """The values of a transaction, each with its partition."""
        values = self.values(self.case.per_transaction)
        return [(value, number % self.case.partitions) for number, value in enumerate(values)]

    def prepare(self) -> None:
        """Create all values and keys now, outside of the measured time."""
        for count in (1, self.warm_up, self.records, self.sent):
            self.values(count)
            self.keys(count)

    def values(self, count: int | None = None) -> list[bytes]:
        """So many values (all that are measured, if not said otherwise), of which many are one and the same object.

        The list is created once; do not change it.
        """
        return _values(self.case.payload, self.case.value_size, self.records if count is None else count)

    def keys(self, count: int | None = None) -> list[bytes]:
        """A key for each value."""
        return _keys(self.records if count is None else count)


def payloads(payload: Payload, size: int) -> list[bytes]:
    """Different values of exactly that size, without a line break, the same ones at every call."""
    count = max(1, min(_DIFFERENT_VALUES, _PAYLOAD_BYTES // size))
    make = _json if payload is Payload.JSON else _text
    source = random.Random(1)
    return [make(source, size) for _ in range(count)]


def _text(source: random.Random, size: int) -> bytes:
    return "".join(source.choices(string.ascii_letters + string.digits, k=size)).encode()


def _json(source: random.Random, size: int) -> bytes:
    """An event as web services send them, filled up by its last field."""
    event = {
        "event_id": f"{source.getrandbits(128):032x}",
        "occurred_at": f"2025-0{source.randint(1, 9)}-1{source.randint(0, 9)}T1{source.randint(0, 9)}:00:00Z",
        "type": source.choice(["order.created", "order.paid", "order.shipped", "order.returned"]),
        "customer": {"id": source.randint(1, 10**7), "country": source.choice(["DE", "FR", "US", "IN", "BR", "JP"])},
        "items": [
            {"sku": f"SKU-{source.randint(1, 99999):05d}", "quantity": source.randint(1, 9), "price": source.random()}
            for _ in range(8)
        ],
        "note": "",
    }
    missing = size - len(json.dumps(event))
    if missing < 0:
        raise ValueError(f"A JSON payload takes at least {size - missing} bytes; {size} were requested.")
    words = ("please", "leave", "the", "parcel", "with", "neighbours", "or", "ring", "twice", "thank", "you", "gift")
    event["note"] = " ".join(source.choices(words, k=missing))[:missing]
    return json.dumps(event).encode()


@functools.cache
def _values(payload: Payload, size: int, count: int) -> list[bytes]:
    return _repeated(payloads(payload, size), count)


def different_keys() -> list[bytes]:
    """The keys that repeat, in no order."""
    keys = [b"key-%06d" % number for number in range(_DIFFERENT_KEYS)]
    random.Random(2).shuffle(keys)
    return keys


@functools.cache
def _keys(count: int) -> list[bytes]:
    return _repeated(different_keys(), count)


def _repeated(pool: list[bytes], count: int) -> list[bytes]:
    return list(itertools.islice(itertools.cycle(pool), count))
