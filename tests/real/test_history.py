"""Records with timestamps two days old, whose answers are lost, on real Kafka that looks often for producers to forget."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from aioproducer import Delivery, Producer
from aioproducer.errors import Unknown
from aioproducer.protocol import ApiKey
from aioproducer.testing.kafka import KafkaCluster
from tests.real.conftest import read_log
from tests.real.losing_proxy import LosingProxy
from tests.testing.own_kafka import own_kafka

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

#: In each round one answer is lost; the batches behind it are in flight, and their answers are lost with it.
ROUNDS, RECORDS = 8, 500
TWO_DAYS_MS = 2 * 86_400_000
#: Kafka looks every ten minutes. Here it looks between a lost answer and the repeat, nearly always.
OFTEN = {"producer.id.expiration.check.interval.ms": "50"}
OPTIONS: dict[str, Any] = {"retry_backoff_ms": 400, "retry_backoff_max_ms": 400, "batch_size": 2_000}


class Setting(NamedTuple):
    """A Kafka that forgets quickly, behind a proxy."""

    kafka: KafkaCluster
    proxy: LosingProxy


@pytest.fixture(scope="module", params=["4.3.1", pytest.param("3.9.2", marks=pytest.mark.soak)])
def setting(request: pytest.FixtureRequest) -> Iterator[Setting]:
    """One broker."""
    with LosingProxy() as proxy, own_kafka(request.param, properties=OFTEN, advertise=proxy.advertise) as kafka:
        yield Setting(kafka, proxy)


class Outcomes(NamedTuple):
    """The outcome of the records: how often each is in the log, and what the producer reported."""

    log: Counter[bytes]
    delivered: set[bytes]
    unknown: set[bytes]

    @property
    def doubled(self) -> int:
        """The number of records that are in the log more than once."""
        return sum(count > 1 for count in self.log.values())


async def load(
    setting: Setting, age_ms: int, config: dict[str, str] | None = None, *, in_transaction: bool = False, **options: Any
) -> Outcomes:
    """Send numbered records with that age while answers are lost."""
    topic = f"history-{uuid.uuid4().hex[:8]}"
    setting.kafka.create_topic(topic, config=config)
    if in_transaction:
        options["transactional_id"] = topic
    lost_before = setting.proxy.lost["PRODUCE"]
    async with Producer(setting.proxy.bootstrap_servers, **OPTIONS, **options) as producer:
        if in_transaction:
            await producer.init_transactions()
            await producer.begin_transaction()
        else:
            await producer.send(topic, b"first", timestamp_ms=_ago(age_ms))
        sent: dict[bytes, Delivery] = {}
        for _ in range(ROUNDS):
            setting.proxy.lose(ApiKey.PRODUCE, "answer")
            for _ in range(RECORDS):
                value = b"%d" % len(sent)
                sent[value] = await producer.enqueue(topic, value, timestamp_ms=_ago(age_ms))
            await producer.flush()
        if in_transaction:
            await producer.commit_transaction()
    assert setting.proxy.lost["PRODUCE"] - lost_before == ROUNDS
    failed = {value: delivery.exception() for value, delivery in sent.items()}
    assert all(error is None or type(error) is Unknown for error in failed.values())
    log = Counter(read_log(setting.kafka, topic)[0])
    del log[b"first"]
    unknown = {value for value, error in failed.items() if error is not None}
    return Outcomes(
        Counter({value: count for value, count in log.items() if value in sent}), sent.keys() - unknown, unknown
    )


def _ago(milliseconds: int) -> int:
    return time.time_ns() // 1_000_000 - milliseconds


async def test_history_is_never_written_twice_and_what_is_not_sure_is_reported(setting: Setting) -> None:
    reported = await load(setting, TWO_DAYS_MS)

    assert reported.doubled == 0
    assert reported.unknown
    assert reported.delivered <= reported.log.keys(), "none of those is lost"


async def test_the_broker_would_write_it_twice(setting: Setting) -> None:
    """The negative control: with the protection off, Kafka does what the other test is there for."""
    reported = await load(setting, TWO_DAYS_MS, producer_id_expiration_ms=-1)

    assert reported.doubled > 0
    assert not reported.unknown


@pytest.mark.parametrize(
    ("age_ms", "config", "in_transaction"),
    [
        (0, {}, False),
        (86_400_000 - 600_000, {}, False),
        (TWO_DAYS_MS, {"message.timestamp.type": "LogAppendTime"}, False),
        (TWO_DAYS_MS, {}, True),
    ],
    ids=["now", "nearly a day old", "LogAppendTime", "in a transaction"],
)
async def test_a_batch_that_kafka_recognises_is_repeated_and_written_once(
    setting: Setting, age_ms: int, config: dict[str, str], in_transaction: bool
) -> None:
    reported = await load(setting, age_ms, config, in_transaction=in_transaction)

    assert reported.log == Counter({b"%d" % number: 1 for number in range(ROUNDS * RECORDS)})
    assert not reported.unknown
