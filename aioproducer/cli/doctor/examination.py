"""Makes the steps of ``aioproducer doctor`` one after the other, each timed and within a limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple

from aioproducer.cli.doctor.cluster import ClusterQuestions
from aioproducer.cli.doctor.report import Finding, Outcome, Step, fault, skipped
from aioproducer.cli.doctor.sending import TestSending
from aioproducer.cli.doctor.visit import Stage, Visit, Visitor
from aioproducer.config import ProducerConfig
from aioproducer.core.cluster import Node
from aioproducer.errors import KafkaError

__all__ = ["Plan", "examine"]

#: A step's parts have the limit itself; the step as a whole, which may have several, gets this much more.
_GRACE: Final = 2.5

_ABOUT_CLUSTER: Final = ("brokers", "topic", "idempotence", "transaction", "round trip", "send", "clock")


class Plan(NamedTuple):
    """The choices of the user: the topic, whether to send, and the limit of each step in seconds."""

    topic: str | None
    send: bool
    transaction: bool
    limit_s: float


async def examine(config: ProducerConfig, plan: Plan, on_step: Callable[[Step], object]) -> list[Step]:
    """Make all steps, and return them; ``on_step`` gets each when it ends. Cancellation: closes all connections."""
    visitor = Visitor(config, plan.limit_s)
    try:
        return await _Examination(config, plan, visitor, on_step).run()
    finally:
        await visitor.close()


class _Examination:
    def __init__(self, config: ProducerConfig, plan: Plan, visitor: Visitor, on_step: Callable[[Step], object]) -> None:
        self._config = config
        self._plan = plan
        self._visitor = visitor
        self._on_step = on_step
        self._steps: list[Step] = []
        addresses = config.bootstrap_addresses
        self._visits = [Visit(Node(-1 - i, *address)) for i, address in enumerate(addresses)]

    async def run(self) -> list[Step]:
        """All steps; those that need an earlier one are skipped if it had a fault."""
        visitor = self._visitor
        if self._config.proxy is not None:
            for name in ("names", "connection", "TLS"):
                self._skip(name, "Part of the next step, through the proxy")
        else:
            await self._stage("names", visitor.resolve)
            await self._stage("connection", visitor.connect)
            if self._config.uses_tls:
                await self._stage("TLS", visitor.negotiate)
            else:
                self._skip("TLS", "Not configured")
        await self._stage("API versions", visitor.greet)
        await self._stage("login", visitor.log_in)
        session = next((each.session for each in self._visits if each.session is not None), None)
        questions = None if session is None else ClusterQuestions(self._config, session, self._plan.limit_s)
        await self._ask_cluster(questions)
        return self._steps

    async def _ask_cluster(self, questions: ClusterQuestions | None) -> None:
        if questions is None:
            self._skip_all(("release", "cluster", *_ABOUT_CLUSTER), "no bootstrap server is usable")
            return
        await self._step("release", _at_once(questions.api_versions))
        await self._step("cluster", questions.describe_cluster)
        if questions.cluster is None:
            self._skip_all(_ABOUT_CLUSTER, "the cluster did not describe itself")
            return
        await self._step("brokers", lambda: questions.visit_brokers(self._visitor))
        topic, transactional_id = self._plan.topic, self._config.transactional_id
        if topic is None:
            self._skip("topic", "No topic was given")
        else:
            await self._step("topic", lambda: questions.describe_topic(topic))
        if self._config.enable_idempotence:
            await self._step("idempotence", questions.check_idempotence)
        else:
            self._skip("idempotence", "enable_idempotence is off")
        if transactional_id is None:
            self._skip("transaction", "No transactional_id is configured")
        else:
            await self._step("transaction", lambda: questions.find_coordinator(transactional_id))
        await self._step("round trip", questions.measure)
        await self._send(topic)

    async def _send(self, topic: str | None) -> None:
        if topic is None or not (self._plan.send or self._plan.transaction):
            self._skip("send", "Only with --send")
            self._skip("clock", "Only with --send, if the topic has message.timestamp.type=LogAppendTime")
            return
        if any(step.outcome is Outcome.FAULT for step in self._steps):
            self._skip("send", "Nothing is sent after a fault")
            return
        sending = TestSending(self._config, topic, self._plan.limit_s)
        if self._plan.send:
            await self._step("send", sending.send)
        await self._step("clock", sending.compare_clocks)
        if self._plan.transaction:
            await self._step("abort", sending.abort_transaction)

    async def _stage(self, name: str, stage: Stage) -> None:
        """Make a stage of all bootstrap servers that are left; those with a fault are not visited any further."""
        if not self._visits:
            self._skip_all((name,), "no bootstrap server is usable")
            return

        async def make() -> list[Finding]:
            findings = await asyncio.gather(*(stage(each) for each in self._visits))
            kept = [v for v, found in zip(self._visits, findings, strict=True) if found.outcome is not Outcome.FAULT]
            self._visits = kept
            return [_lessened(each) for each in findings] if kept else findings

        before = self._visits
        await self._step(name, make)
        if self._visits is before:  # it did not end in time
            self._visits = []

    async def _step(self, name: str, make: Callable[[], Awaitable[list[Finding]]]) -> None:
        limit = self._plan.limit_s * _GRACE
        began = time.perf_counter()
        try:
            async with asyncio.timeout(limit):
                findings = await make()
        except TimeoutError:
            findings = [
                fault(
                    f"The step {name!r} did not end within {limit:g} s",
                    "The broker hangs, or is overloaded.",
                    "Look at the broker's log and load; a longer --timeout may help if it is slow.",
                )
            ]
        except KafkaError as error:
            findings = [
                fault(
                    f"The broker did not answer the step {name!r} as it must",
                    str(error),
                    "Look at the broker's log and load; a longer --timeout may help if it is slow.",
                )
            ]
        self._add(Step(name, (time.perf_counter() - began) * 1000, findings))

    def _skip_all(self, names: Iterable[str], why: str) -> None:
        for name in names:
            self._skip(name, f"Not reached, because {why}")

    def _skip(self, name: str, reason: str) -> None:
        self._add(Step(name, 0.0, [skipped(reason)]))

    def _add(self, step: Step) -> None:
        self._steps.append(step)
        self._on_step(step)


def _lessened(finding: Finding) -> Finding:
    """A fault of one bootstrap server is a warning while another one is usable."""
    return finding._replace(outcome=Outcome.WARNING) if finding.outcome is Outcome.FAULT else finding


def _at_once(make: Callable[[], list[Finding]]) -> Callable[[], Awaitable[list[Finding]]]:
    async def made() -> list[Finding]:
        return make()

    return made
