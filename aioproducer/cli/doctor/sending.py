"""Sends the test record of ``aioproducer doctor``, and aborts its test transaction."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from aioproducer.cli.doctor import meaning
from aioproducer.cli.doctor.report import Finding, fault, good, skipped
from aioproducer.config import OPTIONS, ProducerConfig
from aioproducer.errors import KafkaError
from aioproducer.producer import Producer
from aioproducer.types import TimestampType

if TYPE_CHECKING:
    from aioproducer.types import RecordMetadata

__all__ = ["TestSending"]

_VALUE: Final = b"test record of aioproducer doctor"


class TestSending:
    """Sends to one topic with the user's configuration, within ``limit_s`` seconds."""

    def __init__(self, config: ProducerConfig, topic: str, limit_s: float) -> None:
        self._config = config
        self._topic = topic
        self._limit_s = limit_s
        self._clock = skipped("Derived only with --send, if the topic has message.timestamp.type=LogAppendTime")

    async def send(self) -> list[Finding]:
        """Send one record outside of any transaction, and wait for its acknowledgement."""
        config = _hurried(self._config, self._limit_s, transactional=False)
        try:
            async with Producer(config) as producer:
                await producer.ready(self._limit_s)
                await producer.partitions_for(self._topic, self._limit_s)
                before = time.time() * 1000
                began = time.perf_counter()
                metadata = await producer.send(self._topic, _VALUE)
                took_ms = (time.perf_counter() - began) * 1000
        except KafkaError as error:
            self._clock = skipped("Not reached, because the test record was not acknowledged")
            return [_not_sent(self._topic, error)]
        if metadata.timestamp_type is TimestampType.LOG_APPEND_TIME:
            # Written about in the middle between the sending and the acknowledgement.
            self._clock = meaning.about_clock(metadata.timestamp_ms - (before + took_ms / 2), took_ms / 2 + 1)
        else:
            self._clock = skipped(f"Not derived, because topic {self._topic!r} has message.timestamp.type=CreateTime")
        return [_sent(metadata, took_ms)]

    async def compare_clocks(self) -> list[Finding]:
        """The clocks, if the record of `send` showed the broker's."""
        return [self._clock]

    async def abort_transaction(self) -> list[Finding]:
        """Send one record in a transaction, and abort it."""
        try:
            async with Producer(_hurried(self._config, self._limit_s, transactional=True)) as producer:
                began = time.perf_counter()
                await producer.init_transactions(timeout=self._limit_s)
                await producer.begin_transaction()
                metadata = await producer.send(self._topic, _VALUE)
                await producer.abort_transaction(self._limit_s)
                took_ms = (time.perf_counter() - began) * 1000
        except KafkaError as error:
            return [
                fault(
                    f"The test transaction of {self._config.transactional_id!r} failed",
                    _why(error),
                    "Check the rights of the user on the transactional id and on the topic, and __transaction_state.",
                )
            ]
        where = f"{metadata.topic}-{metadata.partition}"
        return [good(f"A transaction with a record in {where} was aborted, in {took_ms:.1f} ms; readers do not see it")]


def _sent(metadata: RecordMetadata, took_ms: float) -> Finding:
    where = f"partition {metadata.partition}" + (f" at offset {metadata.offset}" if metadata.has_offset else "")
    return good(f"A test record was acknowledged in {where} of topic {metadata.topic!r} after {took_ms:.1f} ms")


def _not_sent(topic: str, error: KafkaError) -> Finding:
    return fault(
        f"The test record to topic {topic!r} was not acknowledged",
        _why(error),
        "See the cause; the steps before this one show whether brokers, rights and replicas are as they must be.",
    )


def _why(error: KafkaError) -> str:
    cause = error.__cause__
    return f"{error} ({cause})" if isinstance(cause, KafkaError) and str(cause) not in str(error) else str(error)


def _hurried(config: ProducerConfig, limit_s: float, *, transactional: bool) -> ProducerConfig:
    """The configuration with the time limit of a step."""
    ms = max(1, int(limit_s * 1000))
    given: dict[str, Any] = {name: getattr(config, name) for name in OPTIONS if config.is_explicit(name)}
    given |= {
        "linger_ms": 0,
        "request_timeout_ms": ms,
        "delivery_timeout_ms": ms,
        "max_block_ms": ms,
        "close_timeout_ms": ms,
    }
    if not transactional:
        given.pop("transactional_id", None)
        given.pop("transaction_two_phase_commit_enable", None)
    return ProducerConfig.create(**given)
