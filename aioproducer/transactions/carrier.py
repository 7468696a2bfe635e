"""The task that sends requests to a producer's transaction coordinator, one at a time.

It runs beside the Sender, so that partitions that wait for no response keep sending. The `TransactionManager` decides what
to request, and what the responses mean.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from aioproducer.core.backoff import ExponentialBackoff
from aioproducer.core.failed_attempt import FailedAttempt
from aioproducer.core.transactions.answers import CoordinatorAnswer
from aioproducer.core.transactions.manager import TransactionManager
from aioproducer.core.transactions.pauses import FIRST_PARTITIONS_BACKOFF, RequestPause
from aioproducer.core.transactions.queries import markers_written
from aioproducer.core.transactions.requests import CoordinatorRequest, Rpc
from aioproducer.errors import AuthenticationError, KafkaError, KafkaTimeoutError, UnsupportedVersion
from aioproducer.net.client import NetworkClient
from aioproducer.runtime.log import ClientLog

__all__ = ["RequestCarrier"]

#: How long to wait for a connection to the known coordinator, in seconds, before it is looked up again. Connecting continues
#: in the background, so a slow coordinator is still reached.
_REACH_S = 1.0

#: In version 2 a request that arrives before the last transaction's markers are written is not refused, as in version 1: the
#: broker retries it itself, after this time in seconds (``add.partitions.to.txn.retry.backoff.ms``). So hold it no longer.
_BROKERS_PAUSE_S = 0.020


class RequestCarrier:
    """Carries the requests of one `TransactionManager`.

    ``has_unsettled`` returns whether any batch is still queued or in flight; the end of a transaction waits for that.

    ``refused`` is called with the error when a broker refuses the credentials, and with the broker (None: all of them);
    nothing is in flight then, and the request is retried later, unless ``refused`` raises.

    After the end of a transaction of version 2 ``hold`` is called with a number of seconds: for this long at most, nothing
    may be added to the next one. As soon as the next one has something to add, the coordinator is polled until the
    markers of the last one are written; then ``release`` is called.
    """

    def __init__(
        self,
        manager: TransactionManager,
        client: NetworkClient,
        backoff: ExponentialBackoff,
        timeout_s: float,
        *,
        log: ClientLog,
        has_unsettled: Callable[[], bool],
        random: Callable[[], float],
        refused: Callable[[AuthenticationError, int | None], object],
        hold: Callable[[float], object] = lambda seconds: None,
        release: Callable[[], object] = lambda: None,
    ) -> None:
        self._manager = manager
        self._client = client
        self._backoff = backoff
        self._timeout_s = timeout_s
        self._log = log
        self._has_unsettled = has_unsettled
        self._random = random
        self._refused = refused
        self._hold, self._release = hold, release
        self._markers = markers_written(manager.transactional_id)
        #: The coordinator that ended the last transaction, and when; None if its markers do not matter.
        self._ended: tuple[int | None, float] | None = None
        self._woken = asyncio.Event()
        self._last_failure: FailedAttempt | None = None

    @property
    def last_failure(self) -> FailedAttempt | None:
        """The last failure of the request that is being repeated; None if it has not failed, or if there is none."""
        return self._last_failure if self._manager.attempts else None

    def wake(self) -> None:
        """There may be something to request."""
        self._woken.set()

    async def run(self) -> None:
        """Send requests until cancelled. Cancellation: a pending response is ignored."""
        while True:
            self._woken.clear()
            await self.catch_up()
            await self._woken.wait()

    async def catch_up(self) -> None:
        """Send requests until there is nothing to request now. Cancellation: as in `run`."""
        while True:
            if self._manager.has_partitions:
                await self._see_markers_written()
            request = self._manager.next_request(has_incomplete_batches=self._has_unsettled())
            if request is None:
                return
            pause = await self._ask(request)
            if pause is not RequestPause.NONE:
                await asyncio.sleep(self._seconds(pause))

    def _seconds(self, pause: RequestPause) -> float:
        failures, random = self._manager.attempts - 1, self._random()
        usual = self._backoff.delay(failures, random)
        return usual if pause is RequestPause.BACKOFF else min(usual, FIRST_PARTITIONS_BACKOFF.delay(failures, random))

    async def _ask(self, request: CoordinatorRequest) -> RequestPause:
        if request.rpc is Rpc.TXN_OFFSET_COMMIT:
            await self._see_markers_written()
        try:
            asked: tuple[CoordinatorAnswer, int] = await self._client.ask(
                request.message,
                node_id=request.node_id,
                versions=(request.lowest, request.highest),
                timeout_s=self._timeout_s,
                read=request.read,
                reach_s=None if request.node_id is None else min(_REACH_S, self._timeout_s),
            )
        except UnsupportedVersion as error:
            self._manager.unsendable(request, error)
            return RequestPause.NONE
        except AuthenticationError as error:  # while connecting: nothing was sent
            pause = self._manager.lost(request, sent=False)
            self._note_failure(request, error)
            self._refused(error, request.node_id)
            return pause
        except KafkaError as error:
            self._log.debug(
                "%s for %s failed and will be retried: %s",
                request.rpc.value,
                request.about,
                error,
                extra={"transactional_id": self._manager.transactional_id},
            )
            self._note_failure(request, error)
            return self._manager.lost(request, sent=not isinstance(error, KafkaTimeoutError))
        pause = self._manager.apply_answer(request, *asked)
        if pause is not RequestPause.NONE and self._manager.refusal is not None:
            self._note_failure(request, self._manager.refusal)
        if request.ends_v2 and pause is RequestPause.NONE:
            self._ended = request.node_id, time.perf_counter()  # uvloop's clock counts whole milliseconds
            self._hold(_BROKERS_PAUSE_S)
        return pause

    def _note_failure(self, request: CoordinatorRequest, error: KafkaError) -> None:
        self._last_failure = FailedAttempt(error, request.node_id, asyncio.get_running_loop().time())

    async def _see_markers_written(self) -> None:
        if self._ended is None:
            return
        node_id, ended_at = self._ended
        left = ended_at + _BROKERS_PAUSE_S - time.perf_counter()
        if left > 0:
            with suppress(KafkaError, TimeoutError):
                async with asyncio.timeout(left):
                    while not await self._are_markers_written(node_id):  # noqa: ASYNC110 - this polls the broker
                        await asyncio.sleep((time.perf_counter() - ended_at) / 2)
        self._ended = None
        self._release()

    async def _are_markers_written(self, node_id: int | None) -> bool:
        query = self._markers
        asked: tuple[bool, int] = await self._client.ask(
            query.message,
            node_id=node_id,
            versions=(query.lowest, query.highest),
            timeout_s=self._timeout_s,
            read=query.read,
        )
        return asked[0]
