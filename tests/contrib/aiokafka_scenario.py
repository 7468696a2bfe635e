"""A program that uses aiokafka's producer and records its observations: run with aiokafka's class and with ours."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

__all__ = ["GROUP_POSITION", "PARTITIONS", "Observed", "Program", "observed", "outcome"]

PARTITIONS = 3
#: The position that the program commits for its group, in partition 1 of the topic.
GROUP_POSITION = 42


class Observed(NamedTuple):
    """A step of the program and what it returned or raised."""

    step: str
    outcome: object


async def observed(name: str, call: Callable[[], Any]) -> Observed:
    """Do a step; an awaitable is awaited."""
    try:
        found = call()
        if isinstance(found, Awaitable):
            found = await found
    except Exception as error:  # the classes are compared
        return Observed(name, _name(error))
    return Observed(name, outcome(found))


def _name(error: Exception) -> str:
    """The name of its class; any ValueError is one, as programs that pass invalid options catch that."""
    return "ValueError" if isinstance(error, ValueError) else type(error).__name__


def outcome(found: Any) -> object:
    """A result without what differs in each run: the topic, and the oldest offset, which we do not report."""
    if hasattr(found, "topic_partition"):
        assert found.topic_partition == (found.topic, found.partition)
        return ("record", found.partition, found.offset, found.timestamp, found.timestamp_type)
    if hasattr(found, "crc"):
        return ("in batch", found.offset, found.crc, found.size, found.timestamp)
    return found


def _same(future: Any) -> Any:
    return future


class Program:
    """The program, with one of both classes; ``run`` returns what it observed."""

    def __init__(self, kind: Any, partition: Any, servers: str, topic: str) -> None:
        self._kind = kind
        self._partition = partition
        self._servers = servers
        self._topic = topic
        self._seen: list[Observed] = []

    async def run(self) -> list[Observed]:
        """Do everything."""
        for part in (self._options, self._records, self._refusals, self._hooks, self._batches, self._closed):
            await part()
        for part in (self._transactions, self._offsets, self._fenced):
            await part()
        return self._seen

    def _new(self, **options: Any) -> Any:
        return self._kind(bootstrap_servers=self._servers, **options)

    async def _see(self, name: str, call: Callable[[], Any]) -> None:
        self._seen.append(await observed(name, call))

    async def _see_all(self, steps: Iterable[tuple[str, Callable[[], Any]]]) -> None:
        for name, call in steps:
            await self._see(name, call)

    async def _options(self) -> None:
        """Options that both refuse."""
        wrong: dict[str, dict[str, Any]] = {
            "acks": {"acks": 122},
            "compression": {"compression_type": "my_custom"},
            "idempotence without all acks": {"enable_idempotence": True, "acks": 1},
            "transactions without all acks": {"transactional_id": "it", "acks": 0},
            "protocol": {"security_protocol": "SOME"},
            "no context": {"security_protocol": "SSL"},
            "no context for a login": {"security_protocol": "SASL_SSL"},
            "no password": {"security_protocol": "SASL_PLAINTEXT", "sasl_plain_username": "alice"},
            "mechanism": {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SOME"},
            "unknown": {"ackz": 1},
        }
        for name, options in wrong.items():
            await self._see(f"option: {name}", partial(self._create_and_stop, options))

    async def _create_and_stop(self, options: dict[str, Any]) -> str:
        await self._new(**options).stop()
        return "accepted"

    async def _records(self) -> None:
        """Each kind of record, with each compression and each acks."""
        async with self._new() as producer:
            await self._see("partitions", lambda: producer.partitions_for(self._topic))
            records: list[dict[str, Any]] = [
                {"value": b"value", "key": b"key", "headers": [("a", b"1"), ("a", b"2"), ("b", None)]},
                {"value": None, "key": b"tombstone"},
                {"value": b"", "key": None},
                {"value": bytearray(b"array"), "key": memoryview(b"view")},
                {"value": b"no headers", "headers": []},
                {"value": b"epoch", "timestamp_ms": 0},
            ]
            for at, record in enumerate(records):
                whole = {"timestamp_ms": 1_700_000_000_000 + at, "partition": at % PARTITIONS} | record
                await self._see(f"record {at}", partial(producer.send_and_wait, self._topic, **whole))
            for number in range(20):
                key = b"key %d" % number
                await self._see(
                    f"place of {key!r}", partial(producer.send_and_wait, self._topic, b"v", key, timestamp_ms=5)
                )
        for name in ("gzip", "snappy", "lz4", "zstd"):
            async with self._new(compression_type=name, acks="all") as producer:
                await self._see(name, lambda: producer.send_and_wait(self._topic, b"many " * 1_000, None, 1, 7))
        async with self._new(acks=0) as producer:
            future = await producer.send(self._topic, b"unacknowledged", partition=0, timestamp_ms=8)
            await self._see("acks=0", lambda: future)
        async with self._new(enable_idempotence=True) as producer:
            futures = [await producer.send(self._topic, b"%d" % n, None, 2, 9) for n in range(50)]
            await producer.flush()
            self._seen.append(Observed("flushed", [future.done() for future in futures]))
            self._seen += [await observed("idempotent", partial(_same, future)) for future in futures]

    async def _refusals(self) -> None:
        """Records that both refuse at once."""
        async with self._new(max_request_size=1_000) as producer:
            wrong: dict[str, dict[str, Any]] = {
                "neither key nor value": {},
                "text as value": {"value": "text"},
                "number as key": {"value": b"v", "key": 5},
                "text in header": {"value": b"v", "headers": [("a", "b")]},
                "bytes as name of a header": {"value": b"v", "headers": [(b"a", b"b")]},
                "number in header": {"value": b"v", "headers": [("a", 5)]},
                "mapping as headers": {"value": b"v", "headers": {"a": b"b"}},
                "header without value": {"value": b"v", "headers": [("a",)]},
                "text as timestamp": {"value": b"v", "timestamp_ms": "now"},
                "unknown partition": {"value": b"v", "partition": 17},
                "negative partition": {"value": b"v", "partition": -1},
                "too large": {"value": b"v" * 2_000},
            }
            for name, record in wrong.items():
                await self._see(f"record: {name}", partial(producer.send, self._topic, **record))

    async def _hooks(self) -> None:
        """Serializers and partitioners."""
        options: dict[str, Any] = {"key_serializer": str.encode, "value_serializer": lambda it: json.dumps(it).encode()}
        async with self._new(**options) as producer:
            await self._see(
                "serialized", lambda: producer.send_and_wait(self._topic, {"a": 1}, key="k", timestamp_ms=10)
            )
            await self._see("serializer raises", lambda: producer.send(self._topic, object(), key="k"))
            await self._see("serializer of None", lambda: producer.send_and_wait(self._topic, None, "k", 1, 11))
        calls: list[object] = []

        def partitioner(key: bytes | None, everything: list[int], available: list[int]) -> int:
            calls.append((key, sorted(everything), sorted(available)))
            return {b"raise": everything.__getitem__}.get(key or b"", lambda _: everything[1])(99)

        async with self._new(partitioner=partitioner) as producer:
            await self._see("chosen", lambda: producer.send_and_wait(self._topic, b"v", b"key", timestamp_ms=12))
            await self._see("chosen without key", lambda: producer.send_and_wait(self._topic, b"v", timestamp_ms=12))
            await self._see("not asked", lambda: producer.send_and_wait(self._topic, b"v", b"key", 2, timestamp_ms=12))
            await self._see("partitioner raises", lambda: producer.send(self._topic, b"v", b"raise"))
        self._seen.append(Observed("partitioner's arguments", calls))

    async def _batches(self) -> None:
        """Batches that the program fills."""
        async with self._new(max_batch_size=1_000) as producer:
            batch = producer.create_batch()
            headers = [("h", b"1")]
            for number in range(100):
                place = batch.append(
                    key=b"%d" % number, value=b"v" * number, timestamp=2_000 + 300 * number, headers=headers
                )
                self._seen.append(Observed(f"batch {number}", outcome(place)))
                if place is None:
                    break
            self._seen.append(Observed("full", (batch.record_count(), batch.size(), batch.closed())))
            future = await producer.send_batch(batch, self._topic, partition=1)
            first = await future
            self._seen.append(Observed("batch sent", (first.partition, first.offset)))
            large = producer.create_batch()
            append = large.append
            await self._see("large first", lambda: append(key=None, value=b"m" * 1_001, timestamp=1))
            await self._see("full of it", lambda: append(key=None, value=b"m", timestamp=1))
            await self._see("closed", lambda: (large.closed(), large.record_count()))
            await self._see(
                "text in batch", lambda: producer.create_batch().append(key=None, value="text", timestamp=1)
            )
            closed = producer.create_batch()
            closed.close()
            await self._see("after close", lambda: closed.append(key=None, value=b"v", timestamp=1))
            await self._see("batch: partition", lambda: producer.send_batch(batch, self._topic, partition=17))

    async def _closed(self) -> None:
        """Calls after the end, which may be repeated."""
        producer = self._new()
        await self._see("stop before start", producer.stop)
        producer = self._new()
        await producer.start()
        batch = producer.create_batch()
        batch.append(key=None, value=b"late", timestamp=1)
        await producer.partitions_for(self._topic)
        await producer.stop()
        steps: list[tuple[str, Callable[[], Any]]] = [
            ("stop again", producer.stop),
            ("flush", producer.flush),
            ("send", lambda: producer.send(self._topic, b"late", partition=0)),
            ("send and wait", lambda: producer.send_and_wait(self._topic, b"late", partition=0)),
            ("send batch", lambda: producer.send_batch(batch, self._topic, partition=0)),
        ]
        await self._see_all((f"closed: {name}", call) for name, call in steps)

    async def _transactions(self) -> None:
        """Transactions that are committed, aborted, or contain nothing."""
        topic = self._topic
        async with self._new() as producer:
            for name in ("begin_transaction", "commit_transaction", "abort_transaction"):
                await self._see(f"not transactional: {name}", getattr(producer, name))
            offsets = {self._partition(topic, 1): 1}
            await self._see(
                "not transactional: offsets", lambda: producer.send_offsets_to_transaction(offsets, "group")
            )
        async with self._new(transactional_id=f"{topic}-1") as producer:
            await self._see("outside", lambda: producer.send(topic, b"v", partition=0))
            async with producer.transaction() as entered:
                self._seen.append(Observed("entered", type(entered).__name__))
                future = await producer.send(topic, b"committed", None, 0, 13)
            self._seen.append(Observed("done at commit", future.done()))
            await self._see("committed", lambda: future)
            await producer.begin_transaction()
            await self._see("aborted", lambda: producer.send_and_wait(topic, b"aborted", None, 0, 14))
            await self._see("abort", producer.abort_transaction)
            await self._see("raising", lambda: self._raise_within(producer))
            for end in (producer.commit_transaction, producer.abort_transaction):
                await producer.begin_transaction()
                await self._see("empty", end)
            await producer.begin_transaction()
            batch = producer.create_batch()
            batch.append(timestamp=15, key=None, value=b"in a batch")
            sent = await producer.send_batch(batch, topic, partition=2)
            await producer.commit_transaction()
            self._seen.append(Observed("batch is done at commit", sent.done()))

    async def _raise_within(self, producer: Any) -> None:
        async with producer.transaction():
            await producer.send_and_wait(self._topic, b"aborted by KeyError", None, 0, 14)
            raise KeyError

    async def _offsets(self) -> None:
        """Positions within a transaction, and those that are refused."""
        position = self._partition(self._topic, 1)
        wrong: dict[str, tuple[Any, Any]] = {
            "no group": ({position: 1}, None),
            "number as group": ({position: 1}, 5),
            "nothing": ({}, "group"),
            "list": ([(position, 1)], "group"),
            "text as partition": ({"topic-1": 1}, "group"),
            "number as metadata": ({position: (1, 2)}, "group"),
            "three values": ({position: (1, "", 3)}, "group"),
        }
        async with self._new(transactional_id=f"{self._topic}-2") as producer:
            offsets = producer.send_offsets_to_transaction
            await self._see("offsets outside", lambda: offsets({position: 1}, self._topic))
            await producer.begin_transaction()
            for name, arguments in wrong.items():
                await self._see(f"offsets: {name}", partial(offsets, *arguments))
            await self._see("offsets", lambda: offsets({position: (GROUP_POSITION, "note")}, self._topic))
            await producer.commit_transaction()
            await producer.begin_transaction()
            await self._see("offsets again", lambda: offsets({position: 99}, self._topic))
            await producer.abort_transaction()

    async def _fenced(self) -> None:
        """A second producer with the same id."""
        first, second = (self._new(transactional_id=f"{self._topic}-3") for _ in range(2))
        await first.start()
        async with second:
            async with second.transaction():
                await second.send_and_wait(self._topic, b"second", None, 0, 16)
            await self._see("fenced", lambda: self._send_within(first))
        await first.stop()

    async def _send_within(self, producer: Any) -> None:
        async with producer.transaction():
            await producer.send_and_wait(self._topic, b"first", None, 0, 17)
