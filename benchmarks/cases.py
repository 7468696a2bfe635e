"""The cases: what is sent, how, and by which client, each with its name on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

__all__ = ["CASES", "Case", "Payload", "Workload"]


class Workload(StrEnum):
    """The ways to use a client."""

    PIPELINED = "pipelined"  # enqueue all records, then check each outcome
    CONCURRENT = "concurrent"  # 1,000 tasks, each of which awaits one record after the other
    LONE = "lone"  # one record at a time
    BULK = "bulk"  # a list, in one call
    TABLE = "table"  # an Arrow table, in one call
    STEADY = "steady"  # so many records a second, from a task that wakes each millisecond
    IDLE = "idle"  # nothing, after one record
    MEMORY = "memory"  # the broker is paused, and records are put in
    TRANSACTIONS = "transactions"  # one after the other, each of some records
    THREADS = "threads"  # as pipelined, from threads
    THREADS_LONE = "threads-lone"  # threads, each of which waits for one record after the other
    HEARTBEAT = "heartbeat"  # pipelined, beside a task that should run each millisecond


class Payload(StrEnum):
    """The content of the values."""

    TEXT = "text"  # random letters: hardly compressible
    JSON = "json"  # objects with the same names and different values, like events


@dataclass(frozen=True, slots=True)
class Case:
    """One line of comparison. ``records`` is what the quickest clients send in a round; slow ones send a share of it."""

    name: str
    title: str
    workload: Workload
    records: int
    value_size: int = 100
    payload: Payload = Payload.TEXT
    keyed: bool = False
    partitions: int = 12
    #: Records name their partition, one after the other, so that every partition is written to.
    spread: bool = False
    codec: Literal["none", "lz4", "zstd"] = "none"
    #: 5 is the default of Kafka 4 and of librdkafka.
    linger_ms: int = 5
    #: Records a second, where the rate is fixed.
    rate: int = 0
    #: From so many threads, where it is from threads.
    threads: int = 1
    #: How many records a transaction has.
    per_transaction: int = 1
    #: Every client with its default settings, except for acks and idempotence.
    defaults: bool = False
    #: Whether the outcomes are kept until the end, where that is a question (memory).
    keep: bool = True
    #: The brokers with which it makes sense.
    brokers: frozenset[str] = frozenset({"mock", "kafka"})
    #: None: all clients that can.
    clients: frozenset[str] | None = None


_MOCK: Final = frozenset({"mock"})
_KAFKA: Final = frozenset({"kafka"})
#: The others take minutes with thousands of partitions: aiokafka sent 400 records a second to 10,000 of them.
_FEW: Final = frozenset({"aioproducer", "confluent", "franz-go"})


def _cases() -> list[Case]:
    pipelined, kib = Workload.PIPELINED, 1024
    threads = ((1, "", "a thread"), (16, "-16", "16 threads"))
    steady = ((200, 12), (2_000, 1), (2_000, 12), (2_000, 100), (20_000, 1), (20_000, 12), (20_000, 100))
    return [
        Case("pipelined-100b", "pipelined, 100 B, unkeyed", pipelined, 1_000_000),
        Case("pipelined-keyed", "pipelined, 100 B, keyed over 12 partitions", pipelined, 1_000_000, keyed=True),
        Case("pipelined-1k", "pipelined, 1 KiB, unkeyed", pipelined, 200_000, kib),
        Case("pipelined-100k", "pipelined, 100 KiB, unkeyed", pipelined, 4_000, 100 * kib),
        Case("pipelined-defaults", "pipelined, 100 B, default settings", pipelined, 500_000, defaults=True),
        Case("json-none", "pipelined, 1 KiB JSON, no compression", pipelined, 200_000, kib, Payload.JSON),
        Case("json-lz4", "pipelined, 1 KiB JSON, lz4", pipelined, 200_000, kib, Payload.JSON, codec="lz4"),
        Case("json-zstd", "pipelined, 1 KiB JSON, zstd", pipelined, 200_000, kib, Payload.JSON, codec="zstd"),
        Case("concurrent", "1,000 tasks, each awaiting one record at a time, 100 B", Workload.CONCURRENT, 200_000),
        Case("lone", "one record at a time, 100 B", Workload.LONE, 3_000, partitions=1, defaults=True),
        *(
            Case(
                f"steady-{rate}-{partitions}",
                f"{rate:,} records a second, 200 B, keyed over {partitions} partition{'s' * (partitions > 1)}, linger 0",
                Workload.STEADY, 3 * rate, 200, keyed=True, partitions=partitions, linger_ms=0, rate=rate,
                brokers=_KAFKA,
            )
            for rate, partitions in steady
        ),
        *(
            Case(
                f"steady-{rate}-12-defaults",
                f"{rate:,} records a second, 200 B, keyed over 12 partitions, default settings",
                Workload.STEADY, 3 * rate, 200, keyed=True, rate=rate, defaults=True, brokers=_KAFKA,
            )
            for rate in (2_000, 20_000)
        ),
        Case("send-many", "a list of records in one call, 100 B", Workload.BULK, 1_000_000),
        Case("send-table", "an Arrow table in one call, 100 B", Workload.TABLE, 2_000_000),
        Case("send-table-keyed", "an Arrow table in one call, 100 B, keyed", Workload.TABLE, 1_000_000, keyed=True),
        *(
            Case(
                f"transactions-100-linger-{linger_ms}",
                f"transactions of 100 records, 100 B, evenly over 6 partitions, linger {linger_ms} ms",
                Workload.TRANSACTIONS, 30_000, partitions=6, spread=True, linger_ms=linger_ms, per_transaction=100,
                brokers=_KAFKA,
            )
            for linger_ms in (5, 0)
        ),
        Case("transactions-1", "transactions of one record, 100 B", Workload.TRANSACTIONS, 300, partitions=1,
             linger_ms=0, brokers=_KAFKA),
        *(
            Case(
                f"partitions-{count}", f"pipelined, 100 B, unkeyed, {count:,} partitions", pipelined, 500_000,
                partitions=count, brokers=_MOCK, clients=_FEW,
            )
            for count in (1, 10, 100, 1_000, 10_000)
        ),
        *(
            Case(
                f"spread-{count}", f"pipelined, 100 B, evenly over {count:,} partitions", pipelined, 500_000,
                partitions=count, spread=True, brokers=_MOCK, clients=_FEW,
            )
            for count in (1, 10, 100, 1_000, 10_000)
        ),
        *(
            Case(f"sync-enqueue{name}", f"pipelined from {title}, 100 B", Workload.THREADS, 500_000, threads=threads)
            for threads, name, title in threads
        ),
        *(
            Case(
                f"sync-send{name}", f"one record at a time from {title}, 100 B", Workload.THREADS_LONE, 3_000,
                threads=threads, linger_ms=0,
            )
            for threads, name, title in threads
        ),
        Case("idle", "connected and idle", Workload.IDLE, 1),
        Case("memory", "records in flight, 100 B", Workload.MEMORY, 1_000_000, partitions=1,
             keep=False, brokers=_MOCK),
        Case("memory-kept", "the same, and the caller keeps each record's handle", Workload.MEMORY, 1_000_000,
             partitions=1, brokers=_MOCK),
        Case("heartbeat-none", "the event loop's worst gap, 1 KiB JSON", Workload.HEARTBEAT, 200_000, kib,
             Payload.JSON),
        Case("heartbeat-zstd", "the event loop's worst gap, 1 KiB JSON, zstd", Workload.HEARTBEAT, 200_000, kib,
             Payload.JSON, codec="zstd"),
    ]  # fmt: skip


#: By name, in the order in which they run.
CASES: Final = {case.name: case for case in _cases()}
