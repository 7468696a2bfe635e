"""ApiVersions (api key 18): the first request on every connection, for the broker's supported versions."""

from __future__ import annotations

from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.message import (
    Array,
    Bool,
    Int16,
    Int32,
    Int64,
    NullableString,
    Request,
    Response,
    String,
    Struct,
    since,
    tagged,
)

__all__ = [
    "ApiVersion",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "FinalizedFeatureKey",
    "SupportedFeatureKey",
]


class ApiVersion(Struct):
    """The versions of one API that the broker supports, both inclusive."""

    api_key: Int16
    min_version: Int16
    max_version: Int16


class SupportedFeatureKey(Struct):
    """The versions of a feature that the broker supports."""

    name: String
    min_version: Int16
    max_version: Int16


class FinalizedFeatureKey(Struct):
    """The version of a feature that the cluster has agreed on, such as transaction.version."""

    name: String
    max_version_level: Int16
    min_version_level: Int16


class ApiVersionsResponse(Response):
    """The header of this response is never flexible, and UNSUPPORTED_VERSION is sent in version 0 (KIP-511)."""

    error_code: Int16
    api_keys: Array[ApiVersion]
    throttle_time_ms: Int32 = since(1, default=0)
    supported_features: Array[SupportedFeatureKey] = tagged(0, since=3, default=[])
    finalized_features_epoch: Int64 = tagged(1, since=3, default=-1)
    finalized_features: Array[FinalizedFeatureKey] = tagged(2, since=3, default=[])
    zk_migration_ready: Bool = tagged(3, since=3, default=False)


class ApiVersionsRequest(Request[ApiVersionsResponse], api_key=ApiKey.API_VERSIONS, versions=(0, 5), flexible=3):
    r"""The name and version must look like ``[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?``; else INVALID_REQUEST.

    With a cluster id, a broker that is not this node of this cluster returns REBOOTSTRAP_REQUIRED (KIP-1242).
    """

    client_software_name: String = since(3, default="")
    client_software_version: String = since(3, default="")
    cluster_id: NullableString = since(5, default=None)
    node_id: Int32 = since(5, default=-1)
