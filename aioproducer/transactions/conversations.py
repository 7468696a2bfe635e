"""The running parts of an open `TransactionCoordinatorClient`: its connections, and its requests to coordinators.

Requests run in the task of the call that needs them, so that they end with that call. Only the connections have their own
task; if that ends unexpectedly, every waiting and later call fails with the cause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from math import inf
from random import Random
from typing import TypeVar

from aioproducer.config import ProducerConfig
from aioproducer.core.backoff import retry_backoff
from aioproducer.core.failed_attempt import FailedAttempt, timed_out
from aioproducer.core.transactions.answers import read_coordinator
from aioproducer.core.transactions.handle import TransactionHandle
from aioproducer.core.transactions.identities import CoordinatorKey
from aioproducer.core.transactions.manager import TransactionManager
from aioproducer.core.transactions.queries import CoordinatorQuery, is_of_another_broker, query_error
from aioproducer.core.transactions.requests import find_coordinator
from aioproducer.errors import (
    AuthenticationError,
    BrokerError,
    KafkaError,
    ProducerClosed,
    UnsupportedVersion,
)
from aioproducer.net.client import NetworkClient
from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.runtime.lifetime import Lifetime, Refusals
from aioproducer.runtime.log import ClientLog
from aioproducer.transactions.carrier import RequestCarrier
from aioproducer.types import TopicPartition

__all__ = ["Attempt", "Coordination"]

_T = TypeVar("_T")

#: For how many groups and transactional ids to remember the coordinator.
_REMEMBERED = 1000

_TRANSACTION_VERSION_2 = 2


class Attempt:
    """The number of a call's failed attempts, and the last failure."""

    times = 0
    failure: FailedAttempt | None = None


class Coordination(Lifetime):
    """One pool of connections, and all calls that wait on it. Must be created in a running event loop."""

    refusals = Refusals(
        dead="An internal task of the coordinator client {what}; it sends no more requests. Close it and create a new one.",
        cancelled="The coordinator client's tasks were cancelled before it was closed; asyncio.run() does this when main() "
        "returns. Use `async with`, or await close() at the end.",
        forked="The coordinator client was started in process {there}, and this is its fork {here}: connections cannot be "
        "shared. Create one in each process, or start it after the fork.",
        closed="The coordinator client was closed during this call.",
        elsewhere="The coordinator client was started in another event loop. Use it in that loop, or create one for each "
        "loop.",
        ended="The event loop in which the coordinator client was started is closed; each asyncio.run() creates a new event "
        "loop. Create a client in this one.",
    )

    def __init__(self, config: ProducerConfig, client_id: str, random: Random) -> None:
        super().__init__(ClientLog(client_id))
        self._config = config
        self._random = random
        self._client = NetworkClient(config, client_id=client_id, log=self.log, random=random, on_ready=_nothing)
        self._backoff = retry_backoff(config)
        self._request_timeout_s = config.request_timeout_ms / 1000
        self._coordinators: dict[CoordinatorKey, int] = {}
        self._transaction_version = 0

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the connections; waits for nothing."""
        self._run_in_task(self._run(), "aioproducer coordinator client")

    async def _run(self) -> None:
        cause: BaseException | None = None
        try:
            await self._client.run()
        except BaseException as error:
            cause = error
            raise
        finally:
            self._die(cause)
            await self._client.close()

    async def stop(self) -> None:
        """End every waiting call and all connections. Cancellation: they still end."""
        self.closing = self._stopping = True
        self._interrupt()
        await self._client.close()
        if self._task is not None:
            await asyncio.wait([self._task])

    # -- waiting ------------------------------------------------------------------------------------------------------

    async def within(self, deadline: float, what: str, work: Callable[[Attempt], Awaitable[_T]]) -> _T:
        """The result of the work, once a broker is connected.

        Raises `KafkaTimeoutError` at the deadline (the event loop's time), which says that ``what`` took too long and
        how its attempts failed, and `refusal` if this ends before. Cancellation: the work is cancelled.
        """
        attempt = Attempt()
        limit = asyncio.timeout_at(None if deadline == inf else deadline)
        try:
            async with limit:
                with self.interrupting(limit):
                    if not self._client.connected_nodes():
                        await self._client.wait_ready(inf)
                    return await work(attempt)
        except (TimeoutError, ProducerClosed) as error:
            if not self.is_usable:
                raise self.refusal() from None
            if isinstance(error, KafkaError):
                raise
            last = attempt.failure or self._client.last_failure
            servers = ", ".join(self._config.bootstrap_servers)
            where = (
                "" if self._client.connected_nodes() else f", and no broker is connected (bootstrap servers {servers})"
            )
            late = timed_out(f"{what} timed out{where}", last, self.loop.time())
            raise late from late.__cause__

    # -- requests to coordinators -------------------------------------------------------------------------------------

    def initializing_manager(self, transactional_id: str, timeout_ms: int) -> TransactionManager:
        """A manager that requests a producer id."""
        return TransactionManager(
            transactional_id,
            timeout_ms=timeout_ms,
            listener=_NO_BATCHES,
            transaction_version=self._read_transaction_version,
            coordinators=self._coordinators,
        )

    def attached(self, handle: TransactionHandle) -> TransactionManager:
        """A manager that can end the handle's transaction; must be created while a broker is connected.

        The brokers' transaction version decides how the transaction ends.
        """
        return TransactionManager.attach(
            handle,
            listener=_NO_BATCHES,
            transaction_version=self._read_transaction_version,
            may_end=True,
            coordinators=self._coordinators,
        )

    @property
    def bumps_epoch(self) -> bool:
        """Whether the end of a transaction starts the next epoch: transaction version 2 (KIP-890)."""
        return self.transaction_version >= _TRANSACTION_VERSION_2

    @property
    def transaction_version(self) -> int:
        """The ``transaction.version`` that the brokers have agreed on; the last known one while none is connected."""
        return self._read_transaction_version()

    def _read_transaction_version(self) -> int:
        if self._client.connected_nodes():  # with no broker connected, the version has not changed
            self._transaction_version = self._client.finalized_feature("transaction.version")
        return self._transaction_version

    async def run_requests(self, manager: TransactionManager, attempt: Attempt) -> None:
        """Send the manager's requests until it has none.

        Raises `AuthenticationError` if brokers refuse the credentials. Cancellation: a pending response is ignored.
        """
        carrier = RequestCarrier(
            manager,
            self._client,
            self._backoff,
            self._request_timeout_s,
            log=self.log,
            has_unsettled=lambda: False,
            random=self._random.random,
            refused=_raise,
        )
        try:
            await carrier.catch_up()
        finally:
            attempt.failure = carrier.last_failure
            self._forget_the_oldest()

    async def ask(self, query: CoordinatorQuery[_T], deadline: float, what: str) -> _T:
        """The coordinator's final response, after retries; raises what `within` raises.

        Raises `BrokerError` if it refuses for good, `UnsupportedVersion`, `AuthenticationError`. Cancellation: a pending
        response is ignored.
        """
        return await self.within(deadline, what, partial(self._repeat, query))

    async def _repeat(self, query: CoordinatorQuery[_T], attempt: Attempt) -> _T:
        while True:
            try:
                return await self._ask(query)
            except (UnsupportedVersion, AuthenticationError):
                raise
            except KafkaError as error:
                if isinstance(error, BrokerError) and not error.retriable:
                    raise
                self.log.debug("A request about %s failed and will be retried: %s", query.about, error)
                attempt.failure = FailedAttempt(error, self._coordinators.get(query.about), self.loop.time())
                if not isinstance(error, BrokerError) or is_of_another_broker(error):
                    self._coordinators.pop(query.about, None)
            await asyncio.sleep(self._backoff.delay(attempt.times, self._random.random()))
            attempt.times += 1

    async def _ask(self, query: CoordinatorQuery[_T]) -> _T:
        node_id = self._coordinators.get(query.about)
        if node_id is None:
            node_id = await self._find(query.about)
        found, _ = await self._client.ask(
            query.message,
            node_id=node_id,
            versions=(query.lowest, query.highest),
            timeout_s=self._request_timeout_s,
            read=query.read,
        )
        return found

    async def _find(self, about: CoordinatorKey) -> int:
        request = find_coordinator(about)
        found, _ = await self._client.ask(
            request.message,
            node_id=None,
            versions=(request.lowest, request.highest),
            timeout_s=self._request_timeout_s,
            read=partial(read_coordinator, about),
        )
        if found.code != ErrorCode.NONE:
            raise query_error(found.code, about.key, found.message)
        self._coordinators[about] = found.node_id
        self._forget_the_oldest()
        return found.node_id

    def _forget_the_oldest(self) -> None:
        while len(self._coordinators) > _REMEMBERED:
            del self._coordinators[next(iter(self._coordinators))]


class _NoBatches:
    """The listener of a `TransactionManager` that writes no records, and whose requests are being sent already."""

    def wake(self) -> None:
        pass

    def partitions_added(self, partitions: Collection[TopicPartition]) -> None:
        pass

    def producer_id_changed(self, producer_id: int, epoch: int) -> None:
        pass

    def drop_undrained(self, error: KafkaError) -> None:
        pass

    def fail_all(self, error: KafkaError) -> None:
        pass


_NO_BATCHES = _NoBatches()


def _nothing() -> None:
    pass


def _raise(error: AuthenticationError, _node_id: int | None) -> None:
    raise error
