"""Sixteen threads send through real Kafka at once: every record arrives once, and those of a thread in their order."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from aioproducer import SyncProducer
from aioproducer.testing.kafka import Kafka
from aioproducer.testing.plugin import TopicFactory
from tests.real.conftest import read_log

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

THREADS, RECORDS, PARTITIONS = 16, 5_000, 3


@pytest.mark.parametrize("buffer_memory", [32 * 1024 * 1024, 300_000])
def test_records_sent_by_sixteen_threads_are_in_the_log_once_and_in_the_order_of_each(
    kafka: Kafka, kafka_topic: TopicFactory, buffer_memory: int
) -> None:
    topic = kafka_topic(PARTITIONS)
    offsets: dict[tuple[int, int], int] = {}
    with SyncProducer(kafka.bootstrap_servers, buffer_memory=buffer_memory, max_request_size=100_000) as producer:

        def send(thread: int) -> None:
            partition = thread % PARTITIONS
            deliveries = []
            for number in range(RECORDS):
                value = b"%d %d" % (thread, number)
                if number % 500 == 499:
                    offsets[thread, number] = producer.send(topic, value, partition=partition).offset
                else:
                    deliveries.append((number, producer.enqueue(topic, value, partition=partition)))
            for number, delivery in deliveries:
                offsets[thread, number] = delivery.result(60).offset

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(send, range(THREADS)))

    log = read_log(kafka, topic)
    assert sum(map(len, log.values())) == THREADS * RECORDS
    for thread in range(THREADS):
        reported = [offsets[thread, number] for number in range(RECORDS)]
        assert reported == sorted(reported)
        assert [log[thread % PARTITIONS][at] for at in reported] == [
            b"%d %d" % (thread, number) for number in range(RECORDS)
        ]
