"""Refreshes the metadata: decides when to request it, and what to do if no answer comes.

Any part may want an update at any time; one request serves all of them. A new topic is requested at once, alone, even
during a refresh (KIP-526). A refresh waits for the pause after the previous one. The pause grows while refreshes fail
or bring nothing new, because waiters for a topic or a leader ask again after each answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import NamedTuple, TypeAlias

import anyio

from aioproducer.config import ProducerConfig
from aioproducer.core.backoff import retry_backoff
from aioproducer.core.cluster import ClusterMetadata
from aioproducer.core.failed_attempt import FailedAttempt
from aioproducer.errors import KafkaError, ProtocolError
from aioproducer.net.signal import Signal
from aioproducer.protocol.error_codes import ErrorCode, broker_error
from aioproducer.protocol.messages import MetadataRequest, MetadataRequestTopic, MetadataResponse
from aioproducer.runtime.log import ClientLog

__all__ = ["Asked", "MetadataUpdater"]

#: The shortest pause, whatever is configured: a shorter one would cause a storm of requests.
_LEAST_PAUSE_S = 0.005

#: The first version whose leader epochs can be trusted (KAFKA-9212).
_FIRST_VERSION_WITH_RELIABLE_EPOCHS = 9


class Asked(NamedTuple):
    """A response and its version."""

    response: MetadataResponse
    version: int


#: Sends any broker the request that the first function creates once one is reached, or nothing if that is None; the
#: result is what the second function returns.
Ask: TypeAlias = Callable[
    [Callable[[], MetadataRequest | None], Callable[[MetadataResponse], MetadataResponse]], Awaitable[Asked | None]
]


class MetadataUpdater:
    """Requests metadata and applies it.

    ``ask`` sends a request to any broker; ``on_answer()`` is called after each answer, good or bad; ``rebootstrap(why)``
    is called when the cluster must be found again through the bootstrap servers.
    """

    def __init__(
        self,
        config: ProducerConfig,
        metadata: ClusterMetadata,
        random: Random,
        *,
        log: ClientLog,
        ask: Ask,
        on_answer: Callable[[], object],
        rebootstrap: Callable[[str], object],
    ) -> None:
        self.failure: FailedAttempt | None = None  # of the last request
        self._config = config
        self._metadata = metadata
        self._random = random
        self._log = log
        self._ask = ask
        self._on_answer = on_answer
        self._rebootstrap = rebootstrap
        self._loop = asyncio.get_running_loop()
        self._retry = retry_backoff(config)
        self._max_age_s = config.metadata_max_age_ms / 1000
        self._trigger_s: float | None = None
        if config.metadata_recovery_strategy == "rebootstrap":
            self._trigger_s = max(config.metadata_recovery_rebootstrap_trigger_ms / 1000, self._retry.initial_s)

        self._used: set[str] = set()
        self._new: dict[str, None] = {}  # topics not requested yet
        self._asked_for: dict[str, None] = {}  # new topics whose request is in flight
        self._is_wanted = True
        self._wanted = Signal()
        self._not_before = 0.0
        self._fruitless = 0  # refreshes in a row that failed or brought nothing new
        self._metadata.refreshed_at = self._loop.time()
        self._asking_since: float | None = None  # when the current unanswered attempts began

    # -- wishes -------------------------------------------------------------------------------------------------------

    def use(self, topic: str) -> None:
        """Keep a topic from being forgotten. Cheap enough to be called for every record."""
        self._used.add(topic)

    def request(self, topic: str | None = None) -> None:
        """Request the metadata soon; a new topic does not wait for a pause to end."""
        if topic is not None and self._metadata.touch(topic, self._loop.time()):
            self._new[topic] = None
            self._wanted.notify_all()
        elif topic not in self._new and topic not in self._asked_for and not self._is_wanted:
            if self._loop.time() > self._not_before + self._retry.max_s:
                self._fruitless = 0  # no failure until now: these attempts do not continue the last ones
            self._is_wanted = True
            self._wanted.notify_all()

    # -- the loops ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Request metadata whenever it is due, until cancelled.

        Cancellation: ends at once.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._ask_for_new_topics, name="aioproducer new topics")
            while True:
                await self._wait_due()
                await self._refresh()
        raise asyncio.CancelledError("The task that asks for new topics was cancelled.")  # nothing else would notice

    async def _wait_due(self) -> None:
        while True:
            wanted_at = self._loop.time() if self._is_wanted else self._metadata.refreshed_at + self._max_age_s
            due = max(wanted_at, self._not_before)
            if due <= self._loop.time():
                return
            await self._wanted.wait(due)

    async def _refresh(self) -> None:
        """Request all wanted metadata; if that takes too long, give up and rebootstrap (KIP-1102)."""
        now = self._loop.time()
        if self._asking_since is None:
            self._asking_since = now
        may_start_over = self._trigger_s is not None and self._metadata.nodes
        try:
            async with asyncio.timeout_at(self._asking_since + (self._trigger_s or 0) if may_start_over else None):
                asked = await self._ask(self._full_request, self._usable)
        except KafkaError as error:  # KafkaTimeoutError too: no broker was reached, and this keeps trying
            self._failed(error)
        except TimeoutError:
            self._is_wanted = True
            self._start_over(f"no broker has answered a metadata request for {self._trigger_s:g} s.")
        else:
            if asked is not None:
                self._take_in(asked, is_refresh=True)

    def _full_request(self) -> MetadataRequest:
        now = self._loop.time()
        for topic in self._used:
            self._metadata.touch(topic, now)
        self._used.clear()
        self._metadata.forget_idle(now, self._config.metadata_max_idle_ms / 1000)
        self._is_wanted = False
        self._new.clear()
        return self._request_for(self._metadata.wanted)

    async def _ask_for_new_topics(self) -> None:
        """Runs beside the refreshes, without their pauses. After an error the next refresh takes over."""
        while True:
            while not self._new:
                await self._wanted.wait(None)
            try:
                asked = await self._ask(self._partial_request, self._usable)
            except KafkaError as error:
                self.failure = FailedAttempt(error, None, self._loop.time())
                self._new.clear()
                self.request()
            else:
                if asked is not None:
                    self._take_in(asked, is_refresh=False)
            finally:
                self._asked_for.clear()

    def _partial_request(self) -> MetadataRequest | None:
        """Return None if a refresh has already included the new topics."""
        self._asked_for, self._new = self._new, {}
        return self._request_for(list(self._asked_for)) if self._asked_for else None

    def _request_for(self, topics: list[str]) -> MetadataRequest:
        return MetadataRequest(
            topics=[MetadataRequestTopic(name=topic) for topic in topics],
            allow_auto_topic_creation=self._config.allow_auto_create_topics,
        )

    # -- answers ------------------------------------------------------------------------------------------------------

    def _usable(self, response: MetadataResponse) -> MetadataResponse:
        """Refuse a useless answer: the connection to its broker is closed, and another broker is asked."""
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED and self._trigger_s is not None:
            return response
        if response.error_code != ErrorCode.NONE:
            failed = broker_error(response.error_code)
            raise ProtocolError(f"instead of metadata the error {failed}") from failed
        if not response.brokers:
            raise ProtocolError("the metadata list no brokers; the cluster may still be starting.")
        return response

    def _take_in(self, asked: Asked, *, is_refresh: bool) -> None:
        response = asked.response
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._failed(broker_error(response.error_code))
            self._start_over("a broker requires a new bootstrap.")
            return
        now = self._loop.time()
        is_new = self._metadata.update(
            response,
            requested=set(self._metadata.wanted),
            reliable_epochs=asked.version >= _FIRST_VERSION_WITH_RELIABLE_EPOCHS,
            now=now,
        )
        self.failure = None
        self._asking_since = None
        if is_refresh:
            self._metadata.refreshed_at = now
        self._fruitless = 0 if is_new else self._fruitless + 1
        self._not_before = max(self._not_before, now + self._pause(self._fruitless))
        if self._metadata.is_unsettled:
            self.request()
        self._on_answer()

    def _failed(self, error: KafkaError) -> None:
        self._log.debug("Could not get the metadata: %s", error)
        self.failure = FailedAttempt(error, None, self._loop.time())
        self._not_before = self._loop.time() + self._pause(self._fruitless)
        self._fruitless += 1
        self.request()
        self._on_answer()

    def _start_over(self, why: str) -> None:
        self._asking_since = None
        self._rebootstrap(why)

    def _pause(self, attempts: int) -> float:
        return max(self._retry.delay(attempts, self._random.random()), _LEAST_PAUSE_S)
