"""Keeps the metadata fresh: says when they are asked for, and what to do when no answer comes.

Everybody may want news at any time; they are asked for once for all. A new topic is asked for at once, alone, even while a
refresh is under way (KIP-526). A refresh waits for the pause behind the one before it, and the pause grows as long as
refreshes fail or tell nothing new: whoever waits for a topic or a leader asks again after each answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import NamedTuple, TypeAlias

import anyio

from aioproducer.config import ProducerConfig
from aioproducer.core.backoff import retry_backoff
from aioproducer.core.cluster import ClusterMetadata
from aioproducer.errors import KafkaError, ProtocolError
from aioproducer.net.signal import Signal
from aioproducer.protocol.error_codes import ErrorCode, broker_error
from aioproducer.protocol.messages import MetadataRequest, MetadataRequestTopic, MetadataResponse

__all__ = ["Asked", "MetadataUpdater"]

logger = logging.getLogger("aioproducer")

#: However short the configured pauses are: less would be a storm.
_LEAST_PAUSE_S = 0.005

#: The first version whose leader epochs can be trusted (KAFKA-9212).
_FIRST_VERSION_WITH_RELIABLE_EPOCHS = 9


class Asked(NamedTuple):
    """An answer, and the version that it came in."""

    response: MetadataResponse
    version: int


#: Asks any broker what is made when one is reached, or nobody if that is None; the answer is what the reader returns.
Ask: TypeAlias = Callable[
    [Callable[[], MetadataRequest | None], Callable[[MetadataResponse], MetadataResponse]], Awaitable[Asked | None]
]


class MetadataUpdater:
    """Asks for metadata and takes them in.

    ``ask`` carries a request to any broker; ``on_news()`` is called after each answer, good or bad; ``rebootstrap(why)``
    when the cluster must be looked for from the beginning.
    """

    def __init__(
        self,
        config: ProducerConfig,
        metadata: ClusterMetadata,
        random: Random,
        *,
        ask: Ask,
        on_news: Callable[[], object],
        rebootstrap: Callable[[str], object],
    ) -> None:
        self.error: KafkaError | None = None  # why the last request was in vain
        self._config = config
        self._metadata = metadata
        self._random = random
        self._ask = ask
        self._on_news = on_news
        self._rebootstrap = rebootstrap
        self._loop = asyncio.get_running_loop()
        self._retry = retry_backoff(config)
        self._max_age_s = config.metadata_max_age_ms / 1000
        self._trigger_s: float | None = None
        if config.metadata_recovery_strategy == "rebootstrap":
            self._trigger_s = max(config.metadata_recovery_rebootstrap_trigger_ms / 1000, self._retry.initial_s)

        self._used: set[str] = set()
        self._new: dict[str, None] = {}  # topics that nobody was asked for yet
        self._asked_for: dict[str, None] = {}  # those of them whose answer is on its way
        self._is_wanted = True
        self._wanted = Signal()
        self._not_before = 0.0
        self._fruitless = 0  # refreshes in a row that failed or told nothing new
        self._updated_at = self._loop.time()
        self._asking_since: float | None = None  # the beginning of the attempts that have had no answer yet

    # -- wishes -------------------------------------------------------------------------------------------------------

    def use(self, topic: str) -> None:
        """Keep a topic from being forgotten. Cheap enough to be called for every record."""
        self._used.add(topic)

    def request(self, topic: str | None = None) -> None:
        """Have the metadata asked for soon; a topic that is new does not wait for a pause to end."""
        if topic is not None and self._metadata.touch(topic, self._loop.time()):
            self._new[topic] = None
            self._wanted.tell()
        elif topic not in self._new and topic not in self._asked_for and not self._is_wanted:
            if self._loop.time() > self._not_before + self._retry.max_s:
                self._fruitless = 0  # all was well until now: these are not the next attempts after the last ones
            self._is_wanted = True
            self._wanted.tell()

    # -- the loops ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Ask when it is time to, until cancelled.

        Cancellation: ends at once.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._ask_for_new_topics, name="aioproducer new topics")
            while True:
                await self._wait_due()
                await self._refresh()
        raise asyncio.CancelledError("The task that asks for new topics was cancelled.")  # nobody else would notice

    async def _wait_due(self) -> None:
        while True:
            wanted_at = self._loop.time() if self._is_wanted else self._updated_at + self._max_age_s
            due = max(wanted_at, self._not_before)
            if due <= self._loop.time():
                return
            await self._wanted.wait(due)

    async def _refresh(self) -> None:
        """Ask for everything that is wanted; give up, and look for the cluster anew, when that takes too long (KIP-1102)."""
        now = self._loop.time()
        if self._asking_since is None:
            self._asking_since = now
        may_begin_anew = self._trigger_s is not None and self._metadata.nodes
        try:
            async with asyncio.timeout_at(self._asking_since + (self._trigger_s or 0) if may_begin_anew else None):
                asked = await self._ask(self._full_request, self._usable)
        except KafkaError as error:  # KafkaTimeoutError too: no broker was reached, and this goes on trying
            self._failed(error)
        except TimeoutError:
            self._is_wanted = True
            self._begin_anew(f"no broker has told the metadata for {self._trigger_s:g} s.")
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
        """Beside the refreshes, without their pauses. What goes wrong here is left to them."""
        while True:
            while not self._new:
                await self._wanted.wait(None)
            try:
                asked = await self._ask(self._partial_request, self._usable)
            except KafkaError as error:
                self.error = error
                self._new.clear()
                self.request()
            else:
                if asked is not None:
                    self._take_in(asked, is_refresh=False)
            finally:
                self._asked_for.clear()

    def _partial_request(self) -> MetadataRequest | None:
        """None where a refresh has taken the new topics along meanwhile."""
        self._asked_for, self._new = self._new, {}
        return self._request_for(list(self._asked_for)) if self._asked_for else None

    def _request_for(self, topics: list[str]) -> MetadataRequest:
        return MetadataRequest(
            topics=[MetadataRequestTopic(name=topic) for topic in topics],
            allow_auto_topic_creation=self._config.allow_auto_create_topics,
        )

    # -- answers ------------------------------------------------------------------------------------------------------

    def _usable(self, response: MetadataResponse) -> MetadataResponse:
        """Refuse an answer that is of no use: it costs its broker the connection, and another one is asked."""
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED and self._trigger_s is not None:
            return response
        if response.error_code != ErrorCode.NONE:
            failed = broker_error(response.error_code)
            raise ProtocolError(f"no metadata, but {failed}.") from failed
        if not response.brokers:
            raise ProtocolError("metadata without any broker in them; it may be starting.")
        return response

    def _take_in(self, asked: Asked, *, is_refresh: bool) -> None:
        response = asked.response
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._failed(broker_error(response.error_code))
            self._begin_anew("a broker says that this is not the right cluster any more.")
            return
        now = self._loop.time()
        is_new = self._metadata.update(
            response,
            requested=set(self._metadata.wanted),
            reliable_epochs=asked.version >= _FIRST_VERSION_WITH_RELIABLE_EPOCHS,
        )
        self.error = None
        self._asking_since = None
        if is_refresh:
            self._updated_at = now
        self._fruitless = 0 if is_new else self._fruitless + 1
        self._not_before = max(self._not_before, now + self._pause(self._fruitless))
        if self._metadata.is_unsettled:
            self.request()
        self._on_news()

    def _failed(self, error: KafkaError) -> None:
        logger.debug("The metadata could not be had: %s", error)
        self.error = error
        self._not_before = self._loop.time() + self._pause(self._fruitless)
        self._fruitless += 1
        self.request()
        self._on_news()

    def _begin_anew(self, why: str) -> None:
        self._asking_since = None
        self._rebootstrap(why)

    def _pause(self, attempts: int) -> float:
        return max(self._retry.delay(attempts, self._random.random()), _LEAST_PAUSE_S)
