"""A broker that takes nothing while ten thousand tasks send: memory stays bounded, and all are served in their turn.

The producer runs in a separate process, so that what is measured is its memory alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from aioproducer.testing import FakeBroker
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.plugin import KafkaFactory
from tests.real.conftest import read_log

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

BUFFER_MEMORY = 32 * 1024 * 1024
ALLOWANCE = 64 * 1024 * 1024
TASKS = 10_000

#: Says "ready", and waits for a line; sends from ten thousand tasks, and says what memory that took; waits for a line
#: again, and says how the sends ended.
SENDERS = textwrap.dedent("""
    import asyncio, gc, json, sys
    from aioproducer import Producer

    VALUE = b"v" * 10_240

    def memory(what):
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith(what))

    def report(**facts):
        print(json.dumps(facts), flush=True)

    async def line():
        await asyncio.to_thread(sys.stdin.readline)

    async def main(servers, topic, tasks, options):
        async with Producer(servers, **options) as producer:
            for number in range(100):
                await producer.send(topic, VALUE, key=b"warm-up", partition=0)
            gc.collect()
            report(ready=True)
            await line()
            before = memory("VmRSS")
            sends = [
                asyncio.create_task(producer.send(topic, VALUE, key=b"%d" % number, partition=0))
                for number in range(tasks)
            ]
            while producer.health().pressure < 0.95 or producer.health().waiting_senders < tasks / 2:
                await asyncio.sleep(0.01)
            await asyncio.sleep(3)
            report(growth=memory("VmHWM") - before, pressure=producer.health().pressure,
                waiting=producer.health().waiting_senders, sent=sum(send.done() for send in sends))
            await line()
            offsets = [each.offset for each in await asyncio.gather(*sends)]
            report(in_order=offsets == list(range(100, 100 + tasks)), growth=memory("VmHWM") - before,
                available=producer.metrics()["buffer-available-bytes"])

    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])))
""")


class Senders:
    """The process with the ten thousand tasks."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def report(self) -> dict[str, Any]:
        """The next line of its output."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process with the senders ended"
        facts: dict[str, Any] = json.loads(line)
        return facts

    def go_on(self) -> None:
        """Let it go on."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()


@contextmanager
def senders(servers: str, topic: str, **options: object) -> Iterator[Senders]:
    command = [sys.executable, "-c", SENDERS, servers, topic, str(TASKS)]
    given = json.dumps({"buffer_memory": BUFFER_MEMORY, **options})
    process = subprocess.Popen([*command, given], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        try:
            yield Senders(process)
            assert process.wait(90) == 0
        finally:
            process.kill()


def check(stalled: dict[str, Any], ended: dict[str, Any]) -> None:
    assert stalled["sent"] == 0
    assert stalled["growth"] <= BUFFER_MEMORY + ALLOWANCE
    assert ended["in_order"]
    assert ended["growth"] <= BUFFER_MEMORY + ALLOWANCE
    assert ended["available"] == BUFFER_MEMORY


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_memory_is_bounded_while_a_broker_reads_nothing_and_senders_are_served_in_order(codec: str) -> None:
    with (
        FakeBroker(topics={"stalled": 1}) as broker,
        senders(broker.bootstrap_servers, "stalled", compression_type=codec) as process,
    ):
        process.report()
        with broker.hold_reads(1):
            process.go_on()
            stalled = process.report()
        process.go_on()
        ended = process.report()
        keys = [record.key for record in broker.records("stalled")]

    check(stalled, ended)
    assert keys[100:] == [b"%d" % number for number in range(TASKS)]


def test_memory_is_bounded_while_a_real_broker_is_stopped_and_senders_are_served_in_order(
    kafka_factory: KafkaFactory,
) -> None:
    kafka: KafkaCluster = kafka_factory()
    kafka.create_topic("stalled")
    with senders(kafka.bootstrap_servers, "stalled") as process:
        process.report()
        kafka.pause(1)
        try:
            process.go_on()
            stalled = process.report()
        finally:
            kafka.resume(1)
        process.go_on()
        ended = process.report()

    check(stalled, ended)
    assert len(read_log(kafka, "stalled")[0]) == 100 + TASKS
    kafka.delete_topic("stalled")
