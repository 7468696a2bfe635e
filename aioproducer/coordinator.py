"""The task that asks the coordinator of a producer's transactions, one question at a time.

It runs beside the Sender, so that partitions that need no answer keep flowing. What to ask, and what the answers mean, is
the `TransactionManager`'s business.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from aioproducer.core.backoff import ExponentialBackoff
from aioproducer.core.transaction_requests import CoordinatorRequest, Rpc
from aioproducer.core.transactions import FIRST_PARTITIONS_BACKOFF, Pause, TransactionManager
from aioproducer.errors import AuthenticationError, KafkaError, KafkaTimeoutError, UnsupportedVersion
from aioproducer.net.client import NetworkClient

__all__ = ["Coordinator"]

logger = logging.getLogger("aioproducer")

#: How long the broker that is believed to be the coordinator is waited for, in seconds, before it is asked again who that
#: is. Connecting it goes on meanwhile, so one that is only slow is reached all the same.
_REACH_S = 1.0

#: For how long things are held back after the end of a transaction of version 2: so many times what EndTxn took, and no
#: longer than this, in seconds.
_QUIET, _LONGEST_QUIET_S = 1.5, 0.010


class Coordinator:
    """Carries the requests of one `TransactionManager`.

    ``has_unsettled`` says whether any batch is still here or on its way; the end of a transaction waits for that.

    ``keep_quiet`` is told after the end of a transaction of version 2 for how many seconds nothing should be added to the
    next one. What comes before the markers of the last one are written is not refused, as in version 1: the broker tries
    again for itself, after 20 ms (``add.partitions.to.txn.retry.backoff.ms``). How long the markers take shows in how long
    EndTxn did, which had a log to write, too.
    """

    def __init__(
        self,
        manager: TransactionManager,
        client: NetworkClient,
        backoff: ExponentialBackoff,
        timeout_s: float,
        *,
        has_unsettled: Callable[[], bool],
        random: Callable[[], float],
        keep_quiet: Callable[[float], object] = lambda seconds: None,
    ) -> None:
        self._manager = manager
        self._client = client
        self._backoff = backoff
        self._timeout_s = timeout_s
        self._has_unsettled = has_unsettled
        self._random = random
        self._keep_quiet = keep_quiet
        self._quiet_until = 0.0
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """There may be something to ask."""
        self._woken.set()

    async def run(self) -> None:
        """Ask until cancelled. Cancellation: an answer that is under way is awaited by nobody."""
        while True:
            self._woken.clear()
            await self.catch_up()
            await self._woken.wait()

    async def catch_up(self) -> None:
        """Ask until there is nothing to ask now. Cancellation: as of `run`."""
        while True:
            request = self._manager.next_request(has_incomplete_batches=self._has_unsettled())
            if request is None:
                return
            pause = await self._ask(request)
            if pause is not Pause.NONE:
                await asyncio.sleep(self._seconds(pause))

    def _seconds(self, pause: Pause) -> float:
        failures, random = self._manager.attempts - 1, self._random()
        usual = self._backoff.delay(failures, random)
        return usual if pause is Pause.BACKOFF else min(usual, FIRST_PARTITIONS_BACKOFF.delay(failures, random))

    async def _ask(self, request: CoordinatorRequest) -> Pause:
        loop = asyncio.get_running_loop()
        if request.rpc is Rpc.TXN_OFFSET_COMMIT and loop.time() < self._quiet_until:
            await asyncio.sleep(self._quiet_until - loop.time())
        began = time.perf_counter()  # uvloop's clock counts whole milliseconds
        try:
            response, version = await self._client.ask(
                request.message,
                node_id=request.node_id,
                versions=(request.lowest, request.highest),
                timeout_s=self._timeout_s,
                check=request.check,
                reach_s=None if request.node_id is None else min(_REACH_S, self._timeout_s),
            )
        except (UnsupportedVersion, AuthenticationError) as error:
            self._manager.unsendable(request, error)
            return Pause.NONE
        except KafkaError as error:
            logger.debug("%s for %s failed, and is tried again: %s", request.rpc.value, request.about, error)
            return self._manager.lost(request, sent=not isinstance(error, KafkaTimeoutError))
        pause = self._manager.answered(request, response, version)
        if request.ends_v2 and pause is Pause.NONE:
            seconds = min(_QUIET * (time.perf_counter() - began), _LONGEST_QUIET_S)
            self._quiet_until = loop.time() + seconds
            self._keep_quiet(seconds)
        return pause
