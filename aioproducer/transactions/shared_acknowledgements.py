"""Finds out whose batches are acknowledged to a writer that shares a transaction with others.

Most acknowledgements say it themselves (`core.shared_writes`). The others wait here until a broker has told who stamps the
records of their topic.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

from aioproducer.accumulator.outcomes import Outcomes
from aioproducer.core.backoff import ExponentialBackoff
from aioproducer.core.batches import ProducerBatch
from aioproducer.core.transactions.sharing import Ownership, SharedWrites, shared_partition
from aioproducer.errors import AuthenticationError, BrokerError, KafkaError, UnsupportedVersion
from aioproducer.net.client import NetworkClient
from aioproducer.protocol.error_codes import ErrorCode, broker_error
from aioproducer.protocol.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from aioproducer.types import TimestampType

__all__ = ["SharedAcknowledgements"]

logger = logging.getLogger("aioproducer")

_TOPIC = 2
_KEY = "message.timestamp.type"
_TYPES = {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}


class _Suspect(NamedTuple):
    batch: ProducerBatch
    base_offset: int
    log_append_time_ms: int


class SharedAcknowledgements:
    """The acknowledgements of one writer. ``wake`` has the Sender look again."""

    def __init__(
        self,
        outcomes: Outcomes,
        client: NetworkClient,
        backoff: ExponentialBackoff,
        timeout_s: float,
        *,
        random: Callable[[], float],
        wake: Callable[[], object],
    ) -> None:
        self.writes = SharedWrites()
        self._outcomes = outcomes
        self._client = client
        self._backoff = backoff
        self._timeout_s = timeout_s
        self._random = random
        self._wake = wake
        self._suspects: dict[str, list[_Suspect]] = {}
        self._asked: set[str] = set()

    def start_over(self) -> None:
        """Others write into the transaction from now on; the topics may have changed since they did so before."""
        self.writes = SharedWrites()

    def acknowledged(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int, now: float) -> None:
        """The broker has written the batch, or believes so; -1 where it tells no offset, or no time."""
        whose = self.writes.judge(batch, base_offset, log_append_time_ms)
        if whose is Ownership.UNCLEAR:
            suspect = _Suspect(batch, base_offset, log_append_time_ms)
            self._suspects.setdefault(batch.partition.topic, []).append(suspect)
            self._wake()
        elif whose is Ownership.OWN:
            self.writes.count(batch.partition, base_offset, batch.count)
            self._outcomes.complete(batch, base_offset, log_append_time_ms, now)
        else:
            if base_offset >= 0:  # somebody else's batch has its sequence
                batch.possibly_written = False
            self._refuse(batch, "the broker took a batch for a repeat of theirs, and did not write it", now)

    def unexpected(self, batch: ProducerBatch, error: KafkaError, now: float) -> None:
        """The broker does not expect the sequence of the batch, and no earlier one of ours is missing."""
        self._refuse(batch, f"the broker had another sequence before it ({error})", now)

    def _refuse(self, batch: ProducerBatch, how: str, now: float) -> None:
        self._outcomes.fail(batch, shared_partition(batch.partition, how), now)

    @property
    def has_to_ask(self) -> bool:
        """Whether `to_ask` has a topic."""
        return any(topic not in self._asked for topic in self._suspects)

    def to_ask(self) -> Iterator[str]:
        """The topics about which `ask` is to be run, once each."""
        for topic in self._suspects:
            if topic not in self._asked:
                self._asked.add(topic)
                yield topic

    async def ask(self, topic: str) -> None:
        """Find out who stamps the records of a topic, and settle what waits for it. Cancellation: it stays unsettled."""
        try:
            how = await self._learn(topic)
        finally:
            self._asked.discard(topic)
        now = asyncio.get_running_loop().time()
        for batch, base_offset, time_ms in self._suspects.pop(topic, ()):
            if how is None:
                self.acknowledged(batch, base_offset, time_ms, now)
            else:
                batch.possibly_written = True
                self._refuse(batch, how, now)
        self._wake()

    async def _learn(self, topic: str) -> str | None:
        """Ask until there is an answer; returns why it cannot be known, or None where it is known now."""
        attempts = 0
        while True:
            try:
                kind: TimestampType = await self._client.request(
                    _question(topic), read=_timestamp_type, timeout_s=self._timeout_s
                )
            except (AuthenticationError, UnsupportedVersion) as error:
                return _cannot_tell(topic, error)
            except BrokerError as refused:
                if not refused.retriable or refused.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    return _cannot_tell(topic, refused)
            except KafkaError as error:
                logger.debug("DescribeConfigs of %r failed, and is tried again: %s", topic, error)
            else:
                self.writes.learn({topic: kind})
                return None
            await asyncio.sleep(self._backoff.delay(attempts, self._random()))
            attempts += 1


def _question(topic: str) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(resource_type=_TOPIC, resource_name=topic, configuration_keys=[_KEY])
    return DescribeConfigsRequest(resources=[resource])


def _timestamp_type(response: DescribeConfigsResponse) -> TimestampType | BrokerError:
    for result in response.results:
        if result.error_code != ErrorCode.NONE:
            return broker_error(result.error_code)
        for config in result.configs:
            if config.name == _KEY and config.value in _TYPES:
                return _TYPES[config.value]
    return broker_error(ErrorCode.UNKNOWN_SERVER_ERROR)


def _cannot_tell(topic: str, error: KafkaError) -> str:
    return (
        "an acknowledgement looks like that of a repeat of theirs - unless the topic has "
        f"message.timestamp.type=LogAppendTime, which could not be found out ({error}); a writer that shares a transaction "
        f"needs the right to DESCRIBE_CONFIGS of topic {topic!r} then"
    )
