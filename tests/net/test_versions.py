"""Reading the first response of a broker."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from aioproducer.errors import UnsupportedVersion
from aioproducer.net.versions import BrokerVersions, version_to_retry
from aioproducer.protocol import ApiKey
from aioproducer.protocol.message import Request
from aioproducer.protocol.messages import (
    REQUESTS,
    AddPartitionsToTxnRequest,
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    InitProducerIdRequest,
    MetadataRequest,
    ProduceRequest,
)

LOW, HIGH = MetadataRequest.versions


def speaking(low: int, high: int) -> BrokerVersions:
    key = ApiVersion(api_key=ApiKey.METADATA, min_version=low, max_version=high)
    return BrokerVersions.of(ApiVersionsResponse(error_code=0, api_keys=[key]))


@pytest.mark.parametrize(
    ("low", "high", "version"), [(0, 99, HIGH), (0, 8, 8), (HIGH, HIGH, HIGH), (0, LOW, LOW), (-5, 8, 8)]
)
def test_the_highest_version_that_both_speak_is_taken(low: int, high: int, version: int) -> None:
    assert speaking(low, high).best(MetadataRequest, "1 (k:9092)") == version


@pytest.mark.parametrize(("low", "high"), [(HIGH + 1, 99), (0, LOW - 1), (8, 4), (0, -1)])
def test_without_a_common_version_the_error_names_both_ranges(low: int, high: int) -> None:
    with pytest.raises(UnsupportedVersion, match=rf"1 \(k:9092\).*{low} to {high}.*{LOW} to {HIGH}"):
        speaking(low, high).best(MetadataRequest, "1 (k:9092)")


def test_a_request_that_the_broker_does_not_know_is_reported() -> None:
    with pytest.raises(UnsupportedVersion, match=r"k:9092.*does not support ProduceRequest"):
        speaking(0, 9).best(ProduceRequest, "1 (k:9092)")


@pytest.mark.parametrize(("request_type", "highest"), [(InitProducerIdRequest, 5), (AddPartitionsToTxnRequest, 3)])
def test_versions_that_are_not_for_clients_are_not_spoken_by_a_broker_that_offers_them(
    request_type: type[Request[Any]], highest: int
) -> None:
    """InitProducerId 6 is unstable in all releases, AddPartitionsToTxn 4 is for brokers among themselves."""
    key = ApiVersion(api_key=request_type.api_key, min_version=0, max_version=99)
    versions = BrokerVersions.of(ApiVersionsResponse(error_code=0, api_keys=[key]))

    assert versions.best(request_type, "1 (k:9092)") == highest


@pytest.mark.parametrize("request_type", REQUESTS.values())
def test_the_highest_version_to_be_spoken_is_one_that_is_declared(request_type: type[Request[Any]]) -> None:
    low, high = request_type.versions

    assert low <= request_type.highest_spoken <= high


def test_finalized_features_are_known_by_their_level() -> None:
    feature = FinalizedFeatureKey(name="transaction.version", max_version_level=2, min_version_level=1)

    versions = BrokerVersions.of(ApiVersionsResponse(error_code=0, api_keys=[], finalized_features=[feature]))

    assert versions.features == {"transaction.version": 2}


REFUSED = struct.pack(">h", 35)


def refusal(low: int, high: int) -> bytes:
    return REFUSED + struct.pack(">ihhh", 1, ApiKey.API_VERSIONS, low, high)


@pytest.mark.parametrize(
    ("body", "version"),
    [
        (refusal(0, 3), 3),
        (refusal(0, 0), 0),
        (refusal(0, -7), 0),
        (REFUSED + struct.pack(">i", 0), 0),
        (REFUSED, 0),
        (REFUSED + b"\x00\x00\x00\x00\x00\x00", 0),
        (REFUSED + b"\x02\x00\x12\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00", 0),
        (REFUSED + b"\xff" * 20, 0),
        (b"\x00\x00\x00\x00\x00\x00", None),
        (b"", None),
    ],
)
def test_a_refusal_names_the_version_to_ask_with_next(body: bytes, version: int | None) -> None:
    assert version_to_retry(body) == version
