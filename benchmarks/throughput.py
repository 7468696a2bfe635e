"""Records a second, CPU a record and the latency of a lone record, side by side with other clients on one broker.

    python benchmarks/throughput.py                                   # real Kafka, launched from its jars
    python benchmarks/throughput.py --bootstrap-servers localhost:9092 --rounds 5

Every client sends the same values with acks=all and idempotence; rounds are interleaved, medians are shown, and what the
broker holds afterwards is counted. CPU is the client process's own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any

from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped]
from confluent_kafka import Producer as ConfluentProducer

from aioproducer import Producer
from aioproducer.testing.kafka import KafkaCluster

Report = dict[str, float]


async def with_aioproducer(servers: str, topic: str, count: int, size: int, lone: int) -> Report:
    """Ours: enqueue, then await each delivery."""
    value = b"x" * size
    async with Producer(servers) as producer:
        await producer.send(topic, value)

        async def pipelined() -> None:
            deliveries = [await producer.enqueue(topic, value) for _ in range(count)]
            for delivery in deliveries:
                await delivery

        return await measured(pipelined, lambda: producer.send(topic, value), count, lone)


async def with_aiokafka(servers: str, topic: str, count: int, size: int, lone: int) -> Report:
    """aiokafka: send, then await each future."""
    value = b"x" * size
    producer = AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True, linger_ms=5)
    await producer.start()
    try:
        await producer.send_and_wait(topic, value)

        async def pipelined() -> None:
            futures = [await producer.send(topic, value) for _ in range(count)]
            for future in futures:
                await future

        return await measured(pipelined, lambda: producer.send_and_wait(topic, value), count, lone)
    finally:
        await producer.stop()


async def with_confluent(servers: str, topic: str, count: int, size: int, lone: int) -> Report:
    """confluent-kafka: produce with a delivery callback; a lone record is produce and flush."""
    value = b"x" * size
    producer = ConfluentProducer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5})
    delivered = 0

    def on_delivery(error: object, message: object) -> None:
        nonlocal delivered
        assert error is None, error
        delivered += 1

    async def pipelined() -> None:
        nonlocal delivered
        delivered = 0
        for _ in range(count):
            while True:
                try:
                    producer.produce(topic, value, on_delivery=on_delivery)
                    break
                except BufferError:
                    producer.poll(0.01)
            producer.poll(0)
        while delivered < count:
            producer.poll(0.01)

    async def one() -> None:
        producer.produce(topic, value, on_delivery=on_delivery)
        producer.flush()

    await one()
    return await measured(pipelined, one, count, lone)


async def measured(
    pipelined: Callable[[], Awaitable[Any]], one: Callable[[], Awaitable[Any]], count: int, lone: int
) -> Report:
    """Time a burst, and then records one at a time."""
    began, cpu = time.perf_counter(), time.process_time()
    await pipelined()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    latencies: list[float] = []
    for _ in range(lone):
        at = time.perf_counter()
        await one()
        latencies.append(time.perf_counter() - at)
    latencies.sort()
    return {
        "records/s": count / seconds,
        "CPU us/record": cpu / count * 1e6,
        "lone p50 us": latencies[len(latencies) // 2] * 1e6,
        "lone p99 us": latencies[int(len(latencies) * 0.99)] * 1e6,
    }


CLIENTS = {"aioproducer": with_aioproducer, "aiokafka": with_aiokafka, "confluent-kafka": with_confluent}


def in_a_process_of_its_own(name: str, arguments: argparse.Namespace, servers: str) -> Report:
    """So that nobody pays for another one's threads or imports."""
    command = [sys.executable, __file__, "--client", name, "--bootstrap-servers", servers]
    for option in ("records", "size", "lone"):
        command += [f"--{option}", str(getattr(arguments, option))]
    report: Report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return report


def compare(arguments: argparse.Namespace) -> None:
    """Run all clients in turn, round by round, and print the medians and our ratio to each."""
    with ExitStack() as stack:
        servers = arguments.bootstrap_servers
        if servers is None:
            cluster = stack.enter_context(KafkaCluster())
            servers = cluster.bootstrap_servers
            cluster.create_topic("benchmark", 3)
        rounds: dict[str, list[Report]] = {name: [] for name in CLIENTS}
        for number in range(arguments.rounds):
            for name in CLIENTS:
                print(f"round {number + 1} of {arguments.rounds}: {name}", file=sys.stderr)
                rounds[name].append(in_a_process_of_its_own(name, arguments, servers))
    names = list(next(iter(rounds.values()))[0])
    medians = {
        client: {name: statistics.median(report[name] for report in reports) for name in names}
        for client, reports in rounds.items()
    }
    print("| client | " + " | ".join(names) + " |\n|---|" + "---:|" * len(names))
    for client, report in medians.items():
        print(f"| {client} | " + " | ".join(f"{report[name]:,.1f}" for name in names) + " |")
    for client in list(CLIENTS)[1:]:
        ratio = medians["aioproducer"]["records/s"] / medians[client]["records/s"]
        print(f"aioproducer sends {ratio:.2f} x as many records a second as {client}.")


def main() -> None:
    """Read the command line, and compare, or be one of the compared."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers")
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--lone", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--client", choices=CLIENTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.client is None:
        compare(arguments)
    else:
        run = CLIENTS[arguments.client]
        report = asyncio.run(
            run(arguments.bootstrap_servers, "benchmark", arguments.records, arguments.size, arguments.lone)
        )
        print(json.dumps(report))


if __name__ == "__main__":
    main()
