"""A restarted broker remembers one batch of each producer, the last: what it has forgotten is not written twice."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from aioproducer import Producer
from aioproducer.errors import Unknown
from aioproducer.testing.kafka import KafkaCluster
from tests.conftest import until
from tests.real.conftest import read_log
from tests.real.losing_proxy import LosingProxy
from tests.testing.own_kafka import own_kafka

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

BATCHES = 5


class Setting(NamedTuple):
    """A Kafka behind a proxy."""

    kafka: KafkaCluster
    proxy: LosingProxy


@pytest.fixture(scope="module", params=["4.3.1", pytest.param("3.9.2", marks=pytest.mark.soak)])
def setting(request: pytest.FixtureRequest) -> Iterator[Setting]:
    """One broker."""
    with LosingProxy() as proxy, own_kafka(request.param, advertise=proxy.advertise) as kafka:
        yield Setting(kafka, proxy)


@pytest.mark.parametrize("end", [KafkaCluster.stop, KafkaCluster.kill])
async def test_batches_that_were_written_before_a_restart_are_not_written_twice(
    setting: Setting, end: Callable[[KafkaCluster, int], None]
) -> None:
    kafka, proxy = setting
    topic = f"restart-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic)
    async with Producer(proxy.bootstrap_servers, batch_size=0) as producer:
        await producer.send(topic, b"first")
        proxy.is_mute = True
        sent = [await producer.enqueue(topic, b"%d" % at) for at in range(BATCHES)]
        await until(lambda: kafka.admin.list_offsets(topic)[0][1] == 1 + BATCHES)
        await asyncio.to_thread(end, kafka, 1)
        proxy.is_mute = False
        await asyncio.to_thread(kafka.start, 1)
        outcomes = await asyncio.gather(*sent, return_exceptions=True)
        await producer.send(topic, b"later")

    assert read_log(kafka, topic)[0] == [b"first", *(b"%d" % at for at in range(BATCHES)), b"later"]
    assert [type(each) for each in outcomes[:-1]] == [Unknown] * (BATCHES - 1)
    assert not isinstance(outcomes[-1], BaseException), "this one the broker remembers"
