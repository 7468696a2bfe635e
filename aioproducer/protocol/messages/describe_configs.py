"""DescribeConfigs (api key 32): the configuration of topics and brokers, as far as a client may see it."""

from __future__ import annotations

from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.message import (
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    NullableArray,
    NullableString,
    Request,
    Response,
    String,
    Struct,
    since,
)

__all__ = [
    "DescribeConfigsRequest",
    "DescribeConfigsResource",
    "DescribeConfigsResourceResult",
    "DescribeConfigsResponse",
    "DescribeConfigsResult",
    "DescribeConfigsSynonym",
]


class DescribeConfigsResource(Struct):
    """A resource to describe; ``resource_type`` 2 is a topic. ``configuration_keys`` None: all of them."""

    resource_type: Int8
    resource_name: String
    configuration_keys: NullableArray[String]


class DescribeConfigsSynonym(Struct):
    """A possible source of the value, the effective one first."""

    name: String
    value: NullableString
    source: Int8


class DescribeConfigsResourceResult(Struct):
    """One configuration; sensitive ones have no value."""

    name: String
    value: NullableString
    read_only: Bool
    config_source: Int8 = -1
    is_sensitive: Bool
    synonyms: Array[DescribeConfigsSynonym] = since(1, default=[])
    config_type: Int8 = since(3, default=0)
    documentation: NullableString = since(3, default=None)


class DescribeConfigsResult(Struct):
    """The configurations of one resource, or the error."""

    error_code: Int16
    error_message: NullableString
    resource_type: Int8
    resource_name: String
    configs: Array[DescribeConfigsResourceResult]


class DescribeConfigsResponse(Response):
    """One result for each resource of the request."""

    throttle_time_ms: Int32 = 0
    results: Array[DescribeConfigsResult]


class DescribeConfigsRequest(
    Request[DescribeConfigsResponse], api_key=ApiKey.DESCRIBE_CONFIGS, versions=(1, 4), flexible=4
):
    """Any broker can describe topics."""

    resources: Array[DescribeConfigsResource]
    include_synonyms: Bool = False
    include_documentation: Bool = since(3, default=False)
