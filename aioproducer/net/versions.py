"""What one broker speaks: the versions of each request, and the features of its cluster (KIP-35, KIP-511)."""

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
        """What an answer says."""
        return cls(
            {each.api_key: (each.min_version, each.max_version) for each in response.api_keys},
            {each.name: each.max_version_level for each in response.finalized_features},
        )

    def best(self, request: type[Request[Any]], broker: object, highest: int | None = None) -> int:
        """The highest version that both sides speak; raises `UnsupportedVersion` where there is none.

        ``highest`` is where to stop, instead of at the highest that is spoken unless something special is wanted.

        The broker's minimum counts only where it is above ours: Kafka 4.0 announces versions of Produce that it does not
        speak, for the sake of old clients (KAFKA-18659).
        """
        ours_low, ours_high = request.versions[0], request.highest_spoken if highest is None else highest
        found = self.ranges.get(request.api_key)
        if found is None:
            raise UnsupportedVersion(f"Broker {broker} does not know {request.__name__} at all.")
        version = min(ours_high, found[1])
        if version < max(ours_low, found[0]):
            raise UnsupportedVersion(
                f"Broker {broker} speaks {request.__name__} in the versions {found[0]} to {found[1]}, and this client in "
                f"{ours_low} to {ours_high}. Brokers from Kafka 2.1 on are supported."
            )
        return version


def version_to_retry(body: bytes) -> int | None:
    """The version of ApiVersions to ask again with, None where the answer is no refusal.

    A refusal (error 35) is written as version 0 whatever was asked. From Kafka 2.4 on it tells the range to choose from;
    where it tells nothing that can be read, version 0 is spoken by everybody.
    """
    if int.from_bytes(body[:2], "big", signed=True) != ErrorCode.UNSUPPORTED_VERSION:
        return None
    try:
        told = ApiVersionsResponse.decode(0, body)
    except ProtocolError:
        return 0
    return max(0, next((each.max_version for each in told.api_keys if each.api_key == ApiKey.API_VERSIONS), 0))
