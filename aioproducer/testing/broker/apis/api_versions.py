"""ApiVersions (api key 18): the request versions that this node supports.

Every version gets a response: an unknown one gets UNSUPPORTED_VERSION in version 0, because the client cannot know better
yet; since 2.4 with the range of ApiVersions itself (KIP-511). Version 3 has the name and version of the client, which must
be well-formed, and version 5 the node that the client expects (KIP-1242).

Of the finalized features (KIP-584) only transaction.version is reported, since only that one affects a producer. Version 3
leaves out features that may be 0 from the supported ones, as Kafka does (KAFKA-17011).
"""

from __future__ import annotations

import re

from aioproducer.protocol import ApiKey, ErrorCode
from aioproducer.protocol.messages import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from aioproducer.testing.broker.request import ApiHandler, RequestContext

__all__ = ["HANDLER", "refuse_version"]

_FEATURE = "transaction.version"
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """The version ranges of all supported APIs, or an error if the client's name is invalid or another broker is meant."""
    named = (request.client_software_name, request.client_software_version)
    if context.version >= 3 and not all(_SOFTWARE.fullmatch(name) for name in named):
        return refuse(context, request, ErrorCode.INVALID_REQUEST)
    meant_for = (request.cluster_id, request.node_id)
    if request.cluster_id is not None and meant_for != (context.cluster.cluster_id, context.node.node_id):
        return refuse(context, request, ErrorCode.REBOOTSTRAP_REQUIRED)
    answer = ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=context.cluster.api_versions(context.node))
    _add_features(context, answer)
    return answer


def _add_features(context: RequestContext, answer: ApiVersionsResponse) -> None:
    supported, level = context.node.release.transaction_version, context.cluster.transaction_version
    if context.version >= 4 and supported:
        answer.supported_features = [SupportedFeatureKey(name=_FEATURE, min_version=0, max_version=supported)]
    answer.finalized_features_epoch = context.cluster.features_epoch
    if level:
        answer.finalized_features = [
            FinalizedFeatureKey(name=_FEATURE, max_version_level=level, min_version_level=level)
        ]


def refuse(context: RequestContext, request: ApiVersionsRequest, code: ErrorCode) -> ApiVersionsResponse:
    """An error instead of the ranges."""
    return ApiVersionsResponse(error_code=code, api_keys=[])


def refuse_version(context: RequestContext) -> ApiVersionsResponse:
    """The response to an unknown version, to be encoded as version 0."""
    own: list[ApiVersion] = []
    if context.node.release.names_its_api_versions_range:
        own = [each for each in context.cluster.api_versions(context.node) if each.api_key == ApiKey.API_VERSIONS]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=own)


HANDLER = ApiHandler.of(ApiVersionsRequest, handle, refuse)
