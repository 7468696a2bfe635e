"""Each request of an exactly-once query, or the answer to it, is lost on its way to real Kafka: each row is there once."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from aioproducer.protocol import ApiKey
from aioproducer.testing.kafka import KafkaCluster
from tests.real.losing_proxy import LosingProxy, What
from tests.real.open_transactions import open_transactions
from tests.spark.query import Query, rows_of
from tests.spark.read_back import read_committed
from tests.testing.own_kafka import own_kafka

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PARTITIONS = 4
#: With version 2 the brokers add partitions and offsets by themselves.
ONLY_TV1 = {ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN}
ASKED = [
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.OFFSET_FETCH,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.PRODUCE,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
]


class Setting(NamedTuple):
    """A Kafka behind a proxy, and which version of transactions it has."""

    kafka: KafkaCluster
    proxy: LosingProxy
    transaction_version: int


@pytest.fixture(scope="module", params=[("4.3.1", 2), ("4.3.1", 1), ("3.9.2", 1)], ids=["4.3.1", "4.3.1-TV1", "3.9.2"])
def setting(request: pytest.FixtureRequest) -> Iterator[Setting]:
    """One broker."""
    version, transaction_version = request.param
    features = {"transaction.version": transaction_version} if version.startswith("4") else {}
    with LosingProxy() as proxy, own_kafka(version, features=features, advertise=proxy.advertise) as kafka:
        yield Setting(kafka, proxy, transaction_version)


@pytest.mark.parametrize("what", ["answer", pytest.param("request", marks=pytest.mark.soak)])
@pytest.mark.parametrize("api", ASKED, ids=lambda api: api.name)
def test_a_lost_request_or_response_is_repeated_and_counts_once(setting: Setting, api: ApiKey, what: What) -> None:
    kafka, proxy, transaction_version = setting
    topic = f"lost-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, PARTITIONS)
    query = Query(proxy.bootstrap_servers, topic, **{"transactional.id": topic, "kafka.max.block.ms": "120000"})
    query.run(0)
    is_asked = bool(proxy.seen[api.name])
    lost_before = proxy.lost[api.name]

    if is_asked:
        proxy.lose(api, what)
    query.run(1)

    assert is_asked == (transaction_version == 1 or api not in ONLY_TV1), "nothing would be tried"
    assert proxy.lost[api.name] - lost_before == is_asked
    assert read_committed(kafka.bootstrap_servers, topic, PARTITIONS) == Counter(rows_of(0, 1))
    assert open_transactions(kafka) == []
