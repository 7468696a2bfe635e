"""Compares the clients: case by case, round by round, each in its own process with its own topic."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks import CHECKOUT
from benchmarks.brokers import BROKERS, Broker, count_records
from benchmarks.cases import CASES, Case
from benchmarks.clients import CLIENTS, Client
from benchmarks.measure import Figures
from benchmarks.results import Results, Run
from benchmarks.unavailable import Unavailable

__all__ = ["Comparison", "WrongCount"]

_TIMEOUT = 300.0
#: Which of them does not matter, as long as it is quick.
_WARM_UP_CLIENT = "confluent"
_WARM_UP_CASES = ("pipelined-100b", "pipelined-keyed", "json-zstd", "lone")


class WrongCount(Exception):
    """The broker does not hold the records that a client reported as delivered; its speed is meaningless then."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The runs to make."""

    brokers: Sequence[str]
    cases: Sequence[Case]
    clients: Sequence[Client]
    rounds: int
    #: The most records in a run.
    records: int | None = None
    #: How long idle clients are watched.
    seconds: float = 5.0
    #: Our client in plain Python throughout.
    pure: bool = False

    def run(self, results: Results, tell: Callable[[str], None], finished: Callable[[str, Case], None]) -> None:
        """Add everything to the results; ``finished`` is called with the broker's kind and the case after each one."""
        for kind in self.brokers:
            try:
                with BROKERS[kind]() as broker:
                    results.about[kind] = broker.title
                    self._warm_up(broker, tell)
                    for case in self.cases:
                        if kind in case.brokers:
                            self._compare(results, kind, broker, case, tell)
                            finished(kind, case)
            except Unavailable as error:
                results.missing.append((kind, "", "", str(error)))
                tell(str(error))

    def _warm_up(self, broker: Broker, tell: Callable[[str], None]) -> None:
        """Let a Java broker compile its code, so that the first client is not measured against an interpreter."""
        if broker.is_mock:
            return
        tell(f"{broker.title} is warmed up")
        for name in _WARM_UP_CASES:
            self._run(broker, CASES[name], CLIENTS[_WARM_UP_CLIENT])

    def _compare(self, results: Results, kind: str, broker: Broker, case: Case, tell: Callable[[str], None]) -> None:
        taking_part = [client for client in self.clients if client.can(case, kind)]
        for number in range(self.rounds):
            # Each round begins with another client, so that the predecessors vary.
            turn = number % max(len(taking_part), 1)
            for client in taking_part[turn:] + taking_part[:turn]:
                tell(f"{kind}: {case.name}, round {number + 1} of {self.rounds}: {client.name}")
                try:
                    figures = self._run(broker, case, client)
                except Unavailable as error:
                    tell(f"  left out: {error}")
                    results.missing.append((kind, case.name, client.name, str(error)))
                    taking_part = [each for each in taking_part if each is not client]
                else:
                    results.runs.append(Run(kind, case.name, client.name, number, figures))

    def _run(self, broker: Broker, case: Case, client: Client) -> Figures:
        topic = f"{case.name}-{client.name}-{uuid.uuid4().hex[:8]}"
        broker.create_topic(topic, case.partitions)
        try:
            figures = self._measured(broker, case, client, topic)
            sent = int(figures.pop("sent"))
            found = count_records(broker.servers, topic, sent)
        finally:
            broker.delete_topic(topic)
        if found != sent:
            raise WrongCount(f"{client.title} sent {sent} records in {case.name}, and {broker.title} holds {found}.")
        return figures

    def _measured(self, broker: Broker, case: Case, client: Client, topic: str) -> Figures:
        command = [sys.executable, "-m", "benchmarks.worker", client.name, case.name, "--topic", topic]
        command += ["--bootstrap-servers", broker.servers, "--seconds", str(self.seconds)]
        command += ["--records", str(client.records(case, self.records))]
        if broker.is_mock:
            command += ["--mock"]
        if broker.pid is not None:
            command += ["--broker-pid", str(broker.pid)]
        environment = os.environ | client.environment | ({"AIOPRODUCER_PURE": "1"} if self.pure else {})
        try:
            done = subprocess.run(
                command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, timeout=_TIMEOUT, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"It took longer than {_TIMEOUT:g} s.") from error
        if done.returncode != 0:
            raise Unavailable(f"It failed: {_last_words(done.stderr)}")
        figures: Figures = json.loads(done.stdout.splitlines()[-1])
        if "unavailable" in figures:
            raise Unavailable(str(figures["unavailable"]))
        return figures


def _last_words(errors: str) -> str:
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing."
