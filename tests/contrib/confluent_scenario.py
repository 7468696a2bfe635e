"""A program that uses confluent-kafka's producers and records its observations: run with their classes and with ours."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

__all__ = ["GROUP_POSITION", "NOW_MS", "PARTITIONS", "AsyncProgram", "Observed", "Program"]

PARTITIONS = 3
#: The position that the program commits for its group, in partition 1 of the topic.
GROUP_POSITION = 42
#: Later timestamps are those of the clock.
NOW_MS = 1.75e12


class Observed(NamedTuple):
    """A step of the program and what it returned or raised."""

    step: str
    outcome: object


def observed(name: str, call: Callable[[], Any]) -> Observed:
    """Do a step; a KafkaException is its code and flags."""
    try:
        return Observed(name, call())
    except Exception as error:  # the classes are compared
        return Observed(name, raised(error))


def raised(error: Exception) -> object:
    """The name of the class and, of a KafkaException, the code."""
    if type(error).__name__ == "KafkaException":
        found = error.args[0]
        return ("KafkaException", found.code(), found.name(), found.fatal())
    return type(error).__name__


def delivered(message: Any) -> object:
    """The contents of a message, except for those that differ in each run."""
    error = message.error()
    place = (message.partition(), message.offset())
    kind, time_ms = message.timestamp()
    content = (message.key(), message.value(), len(message), kind, time_ms if time_ms < NOW_MS else "now")
    return (place, content, None if error is None else error.code(), message.latency() >= 0)


class Program:
    """The program of the synchronous producer; ``run`` returns what it observed."""

    def __init__(self, kind: Any, position: Any, servers: str, topic: str, group: Any = None) -> None:
        self._kind = kind
        self._position = position
        self._servers = servers
        self._topic = topic
        self._group = group
        self._seen: list[Observed] = []

    def run(self) -> list[Observed]:
        """Do everything."""
        for part in (self._options, self._example, self._records, self._refusals, self._closed):
            part()
        for part in (self._transactions, self._fenced):
            part()
        return self._seen

    def _new(self, **options: Any) -> Any:
        return self._kind({"bootstrap.servers": self._servers, **{k.replace("_", "."): v for k, v in options.items()}})

    def _see(self, name: str, call: Callable[[], Any]) -> None:
        self._seen.append(observed(name, call))

    def _acked(self, name: str, error: Any, message: Any) -> None:
        thread = threading.current_thread() is threading.main_thread()
        self._seen.append(
            Observed(f"delivery of {name}", (error and error.code(), message.topic() == self._topic, thread))
        )
        self._seen.append(Observed(f"message of {name}", delivered(message)))

    def _options(self) -> None:
        """Options that both refuse."""
        for key, value in (
            ("nope", 1),
            ("acks", "abc"),
            ("linger.ms", -5),
            ("compression.type", "zz"),
            ("security.protocol", "zz"),
            ("partitioner", "zz"),
            ("queue.buffering.max.messages", -1),
            ("on_delivery", 5),
            ("error_cb", 5),
            ("plugin.library.paths", "x"),
        ):
            self._see(f"option {key}", partial(self._kind, {"bootstrap.servers": self._servers, key: value}))
        for pair in ({"enable.idempotence": True, "acks": 1}, {"message.timeout.ms": "5", "linger.ms": "9"}):
            self._see(f"options {pair}", partial(self._kind, {"bootstrap.servers": self._servers, **pair}))
        self._see("no options", self._kind)

    def _example(self) -> None:
        """The loop of confluent-kafka's example producer.py."""
        producer = self._new()
        for number in range(10):
            try:
                producer.produce(
                    self._topic,
                    f"line {number}",
                    partition=number % PARTITIONS,
                    timestamp=1 + number,
                    callback=partial(self._acked, f"line {number}"),
                )
            except BufferError:
                raise AssertionError("the queue is not full") from None
            producer.flush()
        self._seen.append(Observed("left", (producer.flush(), len(producer), producer.poll(0))))
        producer.close()

    def _records(self) -> None:
        """Each kind of record, with each compression and each acks."""
        records: list[dict[str, Any]] = [
            {"value": b"value", "key": b"key", "headers": [("a", b"1"), ("a", "2"), ("b", None)]},
            {"value": None, "key": "tombstone", "headers": {"x": b"1", "y": "2"}},
            {"value": "text \N{EURO SIGN}", "key": "key \N{EURO SIGN}", "headers": []},
        ]
        records += [{"value": b"v", "key": b"key %d" % number} for number in range(20)]
        producer = self._new()
        for at, record in enumerate(records):
            producer.produce(
                self._topic, timestamp=1_700_000_000_000 + at, on_delivery=partial(self._acked, str(at)), **record
            )
            self._see(f"served {at}", lambda: producer.poll(60) > 0)
        producer.close()
        for name in ("gzip", "snappy", "lz4", "zstd"):
            for acks in (-1, 1):
                with self._new(compression_type=name, acks=acks, enable_idempotence=acks == -1) as producer:
                    producer.produce(self._topic, b"many " * 1_000, None, 1, partial(self._acked, name), timestamp=7)
        producer = self._kind({"bootstrap.servers": self._servers, "on_delivery": partial(self._acked, "default")})
        producer.produce(self._topic, b"default callback", partition=0, timestamp=8)
        producer.flush()
        batch: list[dict[str, Any]] = [{"value": b"1"}, {"value": "2", "key": "k", "partition": 1}]
        large = {"value": b"x" * 2_000_000}
        self._see("batch", lambda: producer.produce_batch(self._topic, [*batch, large], partition=1))
        self._see("refused of the batch", lambda: large["_error"].code())  # type: ignore[attr-defined]
        producer.close()
        with self._new() as producer:
            cluster = producer.list_topics(self._topic, 60)
        topic = cluster.topics[self._topic]
        leaders = all(each.leader in cluster.brokers for each in topic.partitions.values())
        self._seen.append(Observed("topic", (list(topic.partitions), topic.error, leaders)))

    def _refusals(self) -> None:
        """Records that both refuse at once."""
        producer = self._new()
        wrong: dict[str, dict[str, Any]] = {
            "number as value": {"value": 5},
            "number as key": {"key": 5},
            "array as value": {"value": bytearray(b"x")},
            "number as headers": {"headers": 5},
            "number in header": {"headers": [("a", 5)]},
            "header without value": {"headers": [("a",)]},
            "no partition": {"partition": None},
            "text as timestamp": {"timestamp": "x"},
            "unknown argument": {"bogus": 1},
            "too large": {"value": b"x" * 2_000_000},
        }
        for name, record in wrong.items():
            self._see(f"record: {name}", partial(producer.produce, self._topic, **record))
        self._see("number as topic", lambda: producer.produce(5, b"v"))
        for name in ("init_transactions", "begin_transaction", "commit_transaction", "abort_transaction"):
            self._see(f"not transactional: {name}", getattr(producer, name))
        self._see("batch of a number", lambda: producer.produce_batch(self._topic, 5))
        full = self._new(queue_buffering_max_messages=2)
        for number in range(3):
            record = {"partition": 0, "timestamp": 9, "on_delivery": partial(self._acked, f"full {number}")}
            self._see(f"full {number}", partial(full.produce, self._topic, b"full %d" % number, **record))
        self._see("still full", lambda: (full.flush(), len(full)))
        producer.close()
        full.close()

    def _closed(self) -> None:
        """Calls after the end."""
        producer = self._new()
        for name in ("close", "close", "poll", "flush", "purge", "begin_transaction", "list_topics"):
            self._see(f"closed: {name}", getattr(producer, name))
        self._see("closed: produce", lambda: producer.produce(self._topic, b"late"))
        self._see("closed: len", lambda: len(producer))

    def _transactions(self) -> None:
        """The steps of confluent-kafka's example eos_transactions.py, and those that are refused."""
        producer = self._new(transactional_id=f"{self._topic}-1")
        produce = partial(producer.produce, self._topic, partition=0)
        self._see("produce before", lambda: produce(b"v"))
        self._see("begin before", producer.begin_transaction)
        for name in ("init_transactions", "init_transactions"):
            self._see(name, getattr(producer, name))
        for name in ("commit_transaction", "abort_transaction"):
            self._see(f"outside: {name}", getattr(producer, name))
        self._see("produce outside", lambda: produce(b"v"))
        self._see("begin", producer.begin_transaction)
        self._see("begin again", producer.begin_transaction)
        produce(b"committed", timestamp=10, on_delivery=partial(self._acked, "committed"))
        if self._group is not None:
            position = [self._position(self._topic, 1, GROUP_POSITION), self._position(self._topic, 2, -1001)]
            self._see("offsets", lambda: producer.send_offsets_to_transaction(position, self._group))
        self._see("commit", producer.commit_transaction)
        self._see("begin", producer.begin_transaction)
        self._see("offsets of a number", lambda: producer.send_offsets_to_transaction([], 5))
        self._see("number as offsets", lambda: producer.send_offsets_to_transaction(5, b""))
        produce(b"aborted", timestamp=11, on_delivery=partial(self._acked, "sent before the abort"))
        producer.flush()
        self._see("abort", producer.abort_transaction)
        self._see("begin", producer.begin_transaction)
        self._see("empty", producer.commit_transaction)
        self._see("begin", producer.begin_transaction)
        produce(b"aborted by close", timestamp=12)
        producer.flush()
        self._see("close", producer.close)

    def _fenced(self) -> None:
        """A second producer with the same id."""
        first, second = (self._new(transactional_id=f"{self._topic}-2") for _ in range(2))
        first.init_transactions()
        first.begin_transaction()
        second.init_transactions()
        first.produce(self._topic, b"first", partition=0)
        self._see("fenced", first.commit_transaction)
        second.begin_transaction()
        second.produce(self._topic, b"second", partition=0, timestamp=13)
        self._see("second", second.commit_transaction)
        second.close()
        with suppress(Exception):  # of a fatal error
            first.close()


class AsyncProgram:
    """The program of the asynchronous producer."""

    def __init__(self, kind: Any, servers: str, topic: str) -> None:
        self._kind = kind
        self._servers = servers
        self._topic = topic
        self._seen: list[Observed] = []

    async def run(self) -> list[Observed]:
        """Do everything; the first part is confluent-kafka's example asyncio_example.py."""
        producer = self._new()
        futures = [await producer.produce(self._topic, key=f"key{n}", value=f"value{n}") for n in range(10)]
        self._seen.append(Observed("flushed", await producer.flush()))
        for message in [await future for future in futures]:
            self._seen.append(Observed("message", (message.partition(), message.key(), message.timestamp()[0])))
        self._seen.append(Observed("left", len(producer)))
        await producer.close()
        producer = self._new(**{"transactional.id": f"{self._topic}-3"})
        await producer.init_transactions()
        for end in (producer.commit_transaction, producer.abort_transaction):
            await producer.begin_transaction()
            future = await producer.produce(self._topic, end.__name__, partition=0)
            await self._see(end.__name__, end)
            self._seen.append(Observed("value", (await future).value()))
        await self._see("commit outside", producer.commit_transaction)
        await producer.close()
        return self._seen

    def _new(self, **options: Any) -> Any:
        return self._kind({"bootstrap.servers": self._servers, **options})

    async def _see(self, name: str, call: Callable[[], Any]) -> None:
        try:
            self._seen.append(Observed(name, await call()))
        except Exception as error:  # the classes are compared
            self._seen.append(Observed(name, raised(error)))
