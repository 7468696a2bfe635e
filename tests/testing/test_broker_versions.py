"""The table of what each release speaks, held against what was read elsewhere: in Kafka's source, and from real brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioproducer.protocol import ApiKey
from aioproducer.protocol.messages import REQUESTS, ApiVersionsRequest
from aioproducer.testing.broker.telemetry import TELEMETRY_APIS
from aioproducer.testing.broker.versions import NEWEST_RELEASE, RELEASES
from aioproducer.testing.kafka.jars import DEFAULT_KAFKA_VERSION, OLDER_KAFKA_VERSION
from aioproducer.testing.raw_client import RawClient

if TYPE_CHECKING:
    from aioproducer.testing.plugin import KafkaFactory

#: The highest version of Produce, Metadata, ApiVersions and InitProducerId that is stable. Up to 3.9 from "validVersions"
#: in clients/src/main/resources/common/message at the release's tag (2.1: schemaVersions() of the request's class), 4.0
#: from kafka-python's broker_version_data.py, which was copied from a broker, 4.3 also from a broker (see below). 4.1 and
#: 4.2 were not seen for themselves. 4.4 made ApiVersions 5 stable (KAFKA-20246).
HIGHEST = {
    "2.1": (7, 7, 2, 1),
    "2.2": (7, 7, 2, 1),
    "2.3": (7, 8, 2, 1),
    "2.4": (8, 9, 3, 2),
    "2.5": (8, 9, 3, 3),
    "2.6": (8, 9, 3, 3),
    "2.7": (8, 9, 3, 4),
    "2.8": (9, 11, 3, 4),
    "3.0": (9, 11, 3, 4),
    "3.1": (9, 12, 3, 4),
    "3.2": (9, 12, 3, 4),
    "3.3": (9, 12, 3, 4),
    "3.4": (9, 12, 3, 4),
    "3.5": (9, 12, 3, 4),
    "3.6": (9, 12, 3, 4),
    "3.7": (10, 12, 3, 4),
    "3.8": (11, 12, 3, 5),
    "3.9": (11, 12, 4, 5),
    "4.0": (12, 13, 4, 5),
    "4.1": (13, 13, 4, 5),
    "4.2": (13, 13, 4, 5),
    "4.3": (13, 13, 4, 5),
    "4.4": (13, 13, 5, 5),
}
COLUMNS = (ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.API_VERSIONS, ApiKey.INIT_PRODUCER_ID)


@pytest.mark.parametrize("release", RELEASES)
def test_a_release_speaks_what_kafka_spoke_then(release: str) -> None:
    assert tuple(RELEASES[release].ranges[key][1] for key in COLUMNS) == HIGHEST[release]
    assert all(RELEASES[release].ranges[key][0] == 0 for key in COLUMNS)


def test_every_release_is_also_in_the_other_table() -> None:
    assert list(RELEASES) == list(HIGHEST)
    assert NEWEST_RELEASE == "4.4"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("version", [DEFAULT_KAFKA_VERSION, OLDER_KAFKA_VERSION])
def test_a_real_broker_supports_the_versions_of_the_table(kafka_factory: KafkaFactory, version: str) -> None:
    host, port = kafka_factory(version).bootstrap_servers.split(",")[0].rsplit(":", 1)
    with RawClient((host, int(port))) as client:
        answer = client.ask(ApiVersionsRequest(client_software_name="raw", client_software_version="1"), 3)

    reported = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    ranges = RELEASES[".".join(version.split(".")[:2])].ranges
    usual = [key for key in ranges if key not in TELEMETRY_APIS]
    assert {key.name: reported[key] for key in usual} == {key.name: ranges[key] for key in usual}
    # With a reporter for the metrics of clients they are used in tests/real/test_telemetry.py.
    assert not reported.keys() & {*TELEMETRY_APIS}
    assert set(REQUESTS) <= set(ranges)
