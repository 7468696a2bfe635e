"""Detects whose batch is acknowledged to a writer that shares a transaction with others.

Most acknowledgements show it (`core.transactions.sharing`). The others wait here until a broker has reported the timestamp
type of their topic.
"""

from __future__ import annotations

import asyncio
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
from aioproducer.runtime.log import ClientLog
from aioproducer.types import TimestampType

__all__ = ["SharedAcknowledgements"]

_TOPIC = 2
_KEY = "message.timestamp.type"
_TYPES = {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}


class _Suspect(NamedTuple):
    batch: ProducerBatch
    base_offset: int
    log_append_time_ms: int


class SharedAcknowledgements:
    """The acknowledgements of one writer. ``wake`` wakes the Sender."""

    def __init__(
        self,
        outcomes: Outcomes,
        client: NetworkClient,
        backoff: ExponentialBackoff,
        timeout_s: float,
        *,
        log: ClientLog,
        random: Callable[[], float],
        wake: Callable[[], object],
    ) -> None:
        self.writes = SharedWrites()
        self._outcomes = outcomes
        self._client = client
        self._backoff = backoff
        self._timeout_s = timeout_s
        self._log = log
        self._random = random
        self._wake = wake
        self._suspects: dict[str, list[_Suspect]] = {}
        self._asked: set[str] = set()

    def start_over(self) -> None:
        """The transaction is shared from now on; the topics may have changed since the last shared one."""
        self.writes = SharedWrites()

    def acknowledged(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int, now: float) -> None:
        """The broker has written the batch, or assumes so; -1 if it returns no offset, or no timestamp."""
        whose = self.writes.owner_of(batch, base_offset, log_append_time_ms)
        if whose is Ownership.UNCLEAR:
            suspect = _Suspect(batch, base_offset, log_append_time_ms)
            self._suspects.setdefault(batch.partition.topic, []).append(suspect)
            self._wake()
        elif whose is Ownership.OWN:
            self.writes.count(batch.partition, base_offset, batch.count)
            self._outcomes.complete(batch, base_offset, log_append_time_ms, now)
        else:
            if base_offset >= 0:  # another writer's batch has its sequence
                batch.possibly_written = False
            self._refuse(
                batch,
                "the broker mistook a batch of this producer for a duplicate of the other writer's, and did not write it",
                now,
            )

    def unexpected(self, batch: ProducerBatch, error: KafkaError, now: float) -> None:
        """The broker does not expect the batch's sequence, and none of our earlier batches is missing."""
        self._refuse(
            batch, f"the broker expected another sequence number, although no earlier batch is missing ({error})", now
        )

    def _refuse(self, batch: ProducerBatch, how: str, now: float) -> None:
        self._outcomes.fail(batch, shared_partition(batch.partition, how), now)

    @property
    def has_to_ask(self) -> bool:
        """Whether `to_ask` has a topic."""
        return any(topic not in self._asked for topic in self._suspects)

    def to_ask(self) -> Iterator[str]:
        """The topics for which `ask` must be run, each one once."""
        for topic in self._suspects:
            if topic not in self._asked:
                self._asked.add(topic)
                yield topic

    async def ask(self, topic: str) -> None:
        """Get the timestamp type of a topic, and resolve the waiting batches. Cancellation: they keep waiting."""
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
        """Retry until there is a response; returns why the type cannot be known, or None if it is known now."""
        attempts = 0
        while True:
            try:
                kind: TimestampType = await self._client.request(
                    _question(topic), read=_timestamp_type, timeout_s=self._timeout_s
                )
            except (AuthenticationError, UnsupportedVersion) as error:
                return _cannot_check(topic, error)
            except BrokerError as refused:
                if not refused.retriable or refused.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    return _cannot_check(topic, refused)
            except KafkaError as error:
                self._log.debug(
                    "DescribeConfigs of %r failed and will be retried: %s", topic, error, extra={"topic": topic}
                )
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


def _cannot_check(topic: str, error: KafkaError) -> str:
    return (
        "an acknowledgement looks like one for a duplicate of the other writer's batch, unless the topic has "
        f"message.timestamp.type=LogAppendTime, which could not be checked ({error}); a writer that shares a transaction "
        f"needs the permission DESCRIBE_CONFIGS on topic {topic!r} for that check"
    )
