"""The API versions that a broker speaks, and the features of its cluster (KIP-35, KIP-511)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from aioproducer.errors import ProtocolError, UnsupportedVersion
from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.protocol.message import Request
from aioproducer.protocol.messages import ApiVersionsResponse

__all__ = ["BrokerVersions", "version_to_retry"]


class BrokerVersions(NamedTuple):
    """The lowest and highest version of each api key, and the finalized features with their levels."""

    ranges: Mapping[int, tuple[int, int]]
    features: Mapping[str, int]

    @classmethod
    def of(cls, response: ApiVersionsResponse) -> BrokerVersions:
        """Read them from a response."""
        return cls(
            {each.api_key: (each.min_version, each.max_version) for each in response.api_keys},
            {each.name: each.max_version_level for each in response.finalized_features},
        )

    def best(self, request: type[Request[Any]], broker: object, highest: int | None = None) -> int:
        """Return the highest version that both sides speak; raises `UnsupportedVersion` if there is none.

        ``highest`` replaces the client's usual highest version.

        The broker's minimum counts only if it is above ours: for old clients, Kafka 4.0 announces versions of Produce
        that it does not speak (KAFKA-18659).
        """
        ours_low, ours_high = request.versions[0], request.highest_spoken if highest is None else highest
        found = self.ranges.get(request.api_key)
        if found is None:
            raise UnsupportedVersion(f"Broker {broker} does not support {request.__name__}.")
        version = min(ours_high, found[1])
        if version < max(ours_low, found[0]):
            raise UnsupportedVersion(
                f"Broker {broker} supports {request.__name__} versions {found[0]} to {found[1]}, this client "
                f"{ours_low} to {ours_high}. Brokers from Kafka 2.1 on are supported."
            )
        return version


def version_to_retry(body: bytes) -> int | None:
    """Return the version of ApiVersions to retry with, or None if the answer is not a refusal.

    A refusal (error 35) is encoded as version 0, whatever the request's version. From Kafka 2.4 on it contains the
    range to choose from; if it contains nothing readable, every broker speaks version 0.
    """
    if int.from_bytes(body[:2], "big", signed=True) != ErrorCode.UNSUPPORTED_VERSION:
        return None
    try:
        response = ApiVersionsResponse.decode(0, body)
    except ProtocolError:
        return 0
    return max(0, next((each.max_version for each in response.api_keys if each.api_key == ApiKey.API_VERSIONS), 0))
