"""One run of chaos: a cluster behind proxies, programs that send, misfortunes, and the verdict on what was written."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from aioproducer import Producer
from aioproducer.errors import KafkaTimeoutError
from aioproducer.protocol import ApiKey
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.kafka.jars import DEFAULT_KAFKA_VERSION, OLDER_KAFKA_VERSION
from tests.chaos.control import overlooked
from tests.chaos.misfortunes import Misfortunes
from tests.chaos.programs import EndlessCallers, EndlessTransactions, WallClock
from tests.chaos.proxy import Proxy
from tests.chaos.reading import ReadLog, read_logs
from tests.simulation.faults import Dice, Story
from tests.simulation.judge import Rules, verdict
from tests.simulation.ledger import Ledger, Reported

__all__ = ["ChaosRun", "Outcome", "Setting"]

#: The topics and their numbers of partitions.
_TOPICS: Final = {"orders": 6, "logs": 3}
_BROKERS: Final = 3
_CALLERS: Final = 4
#: The longest pause of a caller, in seconds.
_PAUSE_S: Final = 0.1
_PROGRESS_S: Final = 10.0
#: Seconds beyond the time-outs of records, in which everything must end once all is well.
_PATIENCE_S: Final = 60.0
_CLOSE_S: Final = 30.0
_TRANSACTIONAL: Final = (ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN, ApiKey.ADD_PARTITIONS_TO_TXN)
#: Transactional ids by the name of the program: the first two fence each other.
_SHOPS: Final = {"shop": "shop", "rival": "shop", "warehouse": "warehouse"}
#: Seconds that a rival waits before it fences the other one.
_RIVAL_S: Final = 8.0


@dataclass(frozen=True, slots=True)
class Setting:
    """A run's parameters: everything that the command line offers."""

    seed: int
    seconds: float
    transactions: bool = False
    upgrade: bool = False
    version: str = DEFAULT_KAFKA_VERSION

    @property
    def first_version(self) -> str:
        """The Kafka version that the cluster starts with."""
        return OLDER_KAFKA_VERSION if self.upgrade else self.version


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run. ``problems`` are the broken promises, ``read`` the number of records in the topics.

    ``lost`` are the requests and responses that were lost, by API: some misfortunes wait for one that never comes.
    """

    problems: Sequence[str]
    read: int
    seconds: float
    reported: Mapping[str, int]
    transactions: Mapping[str, int]
    misfortunes: Mapping[str, int]
    lost: Mapping[str, int]


class ChaosRun:
    """Everything of one run. ``show`` prints a line."""

    def __init__(self, setting: Setting, show: Callable[[str], None]) -> None:
        self._setting = setting
        self._clock = WallClock()
        self._print = show
        self._dice = Dice(setting.seed)
        self._story = Story(keeps=False)
        self._ledger = Ledger()
        self._problems: list[str] = []
        self._options = self._drawn_options()
        common = (self._clock, self._dice, self._story, self._ledger, list(_TOPICS), _PAUSE_S)
        self._callers, self._shops = EndlessCallers(*common), EndlessTransactions(*common)

    def _show(self, words: str) -> None:
        self._print(f"{self._clock.time():7.1f} s  {words}")

    def _drawn_options(self) -> Mapping[str, Any]:
        request_ms = self._dice.choice((2_000, 5_000))
        return {
            "linger_ms": self._dice.choice((0, 5, 50)),
            "batch_size": self._dice.choice((1_000, 16_384, 262_144)),
            "max_in_flight_requests_per_connection": self._dice.choice((1, 5, 5)),
            "request_timeout_ms": request_ms,
            "delivery_timeout_ms": request_ms + self._dice.choice((5_000, 30_000, 60_000)),
            "max_block_ms": 30_000,
        }

    async def run(self) -> Outcome:
        """Run it all, and return the verdict; no process is left."""
        asyncio.get_running_loop().set_exception_handler(self._unhandled)
        async with AsyncExitStack() as stack:
            proxies = {i: await stack.enter_async_context(Proxy()) for i in range(1, _BROKERS + 1)}
            kafka = KafkaCluster(
                self._setting.first_version,
                _BROKERS,
                properties={"num.network.threads": "3"},
                advertise=lambda broker_id, port: proxies[broker_id].stand_before(port),
            )
            await stack.enter_async_context(kafka)
            self._show(f"Kafka {kafka.version}: {_BROKERS} brokers behind proxies, and a controller; {self._options}")
            for topic, partitions in _TOPICS.items():
                await asyncio.to_thread(kafka.create_topic, topic, partitions, _BROKERS, {"min.insync.replicas": "2"})
            servers = ",".join(proxy.address for proxy in proxies.values())
            apis = (ApiKey.PRODUCE, *(_TRANSACTIONAL if self._setting.transactions else ()))
            misfortunes = Misfortunes(kafka, proxies, self._setting.seed, self._show, apis)
            await self._chaos(misfortunes, servers)
            self._show("reading every partition with librdkafka's consumer")
            logs = await asyncio.to_thread(read_logs, servers, _TOPICS)
        lost = sum((proxy.lost for proxy in proxies.values()), Counter[str]())
        return self._judged(logs, misfortunes.counts, lost)

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        self._problems.append(f"unhandled: {context.get('message')} {context.get('exception')!r}")

    # Sending

    async def _chaos(self, misfortunes: Misfortunes, servers: str) -> None:
        progress = asyncio.create_task(self._progress(misfortunes))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(misfortunes.run())
                upgrade = self._setting.seconds / (_BROKERS + 2)
                upgrading = group.create_task(
                    misfortunes.upgrade(self._setting.version, upgrade) if self._setting.upgrade else asyncio.sleep(0)
                )
                sending = group.create_task(self._send(servers))
                await asyncio.sleep(self._setting.seconds)
                await upgrading
                misfortunes.end()
                self._callers.is_over = self._shops.is_over = True
                await asyncio.wait([sending], timeout=self._patience_s)
                if not sending.done():
                    self._problems.append(f"stuck: callers have not ended {self._patience_s:.0f} s after all was well")
                    sending.cancel()
        finally:
            progress.cancel()

    @property
    def _patience_s(self) -> float:
        return float(self._options["delivery_timeout_ms"]) / 1000 + 2 * _PATIENCE_S

    async def _send(self, servers: str) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._call(servers))
            for name, transactional_id in _SHOPS.items() if self._setting.transactions else ():
                options = {**self._options, "transactional_id": transactional_id, "transaction_timeout_ms": 20_000}
                rest_s = _RIVAL_S if transactional_id != name else 0.0
                group.create_task(self._shops.send(partial(_make, servers, options), name, rest_s))

    async def _call(self, servers: str) -> None:
        producer = await Producer(servers, **self._options).start()
        try:
            await self._callers.send(producer, _CALLERS)
            self._show("the callers have ended; the producer is flushed and closed")
            try:
                await producer.flush(self._patience_s - _PATIENCE_S)
            except KafkaTimeoutError as error:
                self._problems.append(f"stuck: flush did not end: {error}")
        finally:
            await producer.close(_CLOSE_S)

    async def _progress(self, misfortunes: Misfortunes) -> None:
        while True:
            await asyncio.sleep(_PROGRESS_S)
            reported = self._reported()
            ends = f"; {len(self._ledger.transactions):,} transactions" if self._ledger.transactions else ""
            self._show(
                f"-- {len(self._ledger.entries):,} records: {_listed(reported)}{ends}; "
                f"{misfortunes.counts.total():,} misfortunes"
            )

    def _reported(self) -> Counter[str]:
        found = Counter(entry.reported.value for entry in self._ledger.entries.values())
        return Counter({each.value: found[each.value] for each in Reported if found[each.value]})

    # Judging

    def _judged(self, logs: Sequence[ReadLog], misfortunes: Mapping[str, int], lost: Mapping[str, int]) -> Outcome:
        problems = [
            *self._problems,
            *self._callers.problems,
            *self._shops.problems,
            *verdict(logs, self._ledger, Rules()),
            *overlooked(logs, self._ledger),
        ]
        return Outcome(
            problems,
            sum(len(log.everything) for log in logs),
            self._clock.time(),
            self._reported(),
            Counter(transaction.end.value for transaction in self._ledger.transactions),
            misfortunes,
            lost,
        )


def _make(servers: str, options: Mapping[str, Any]) -> Producer:
    return Producer(servers, **options)


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items()) or "none"
