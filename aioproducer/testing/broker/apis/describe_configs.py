"""DescribeConfigs (api key 32): the configurations of topics that this broker supports."""

from __future__ import annotations

from collections.abc import Sequence

from aioproducer.protocol import ErrorCode
from aioproducer.protocol.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from aioproducer.testing.broker.request import ApiHandler, RequestContext

__all__ = ["HANDLER"]

_TOPIC = 2
_DYNAMIC_TOPIC_CONFIG, _DEFAULT_CONFIG = 1, 5


def handle(context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """The configurations of topics only."""
    return DescribeConfigsResponse(results=[_describe(context, resource) for resource in request.resources])


def refuse(context: RequestContext, request: DescribeConfigsRequest, code: ErrorCode) -> DescribeConfigsResponse:
    """An error for each resource."""
    return DescribeConfigsResponse(results=[_result(resource, code) for resource in request.resources])


def _describe(context: RequestContext, resource: DescribeConfigsResource) -> DescribeConfigsResult:
    if resource.resource_type != _TOPIC:
        return _result(resource, ErrorCode.INVALID_REQUEST)
    topic = context.cluster.topics.get(resource.resource_name)
    if topic is None:
        return _result(resource, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    wanted = resource.configuration_keys
    return _result(
        resource,
        ErrorCode.NONE,
        [
            DescribeConfigsResourceResult(
                name=name,
                value=value,
                read_only=False,
                config_source=_DEFAULT_CONFIG if is_default else _DYNAMIC_TOPIC_CONFIG,
                is_sensitive=False,
            )
            for name, value, is_default in topic.config.as_kafka(context.node.release.timestamp_limits)
            if wanted is None or name in wanted
        ],
    )


def _result(
    resource: DescribeConfigsResource, code: ErrorCode, configs: Sequence[DescribeConfigsResourceResult] = ()
) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=list(configs),
    )


HANDLER = ApiHandler.of(DescribeConfigsRequest, handle, refuse)
