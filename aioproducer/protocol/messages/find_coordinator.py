"""FindCoordinator (api key 10): finds the broker that manages a consumer group or a transactional id."""

from __future__ import annotations

from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.message import (
    Array,
    Int8,
    Int16,
    Int32,
    NullableString,
    Request,
    Response,
    String,
    Struct,
    since,
    until,
)

__all__ = ["Coordinator", "FindCoordinatorRequest", "FindCoordinatorResponse"]


class Coordinator(Struct):
    """The coordinator of one key, or the error."""

    key: String
    node_id: Int32
    host: String
    port: Int32
    error_code: Int16
    error_message: NullableString


class FindCoordinatorResponse(Response):
    """One coordinator up to version 3, one for each key from version 4 on."""

    throttle_time_ms: Int32 = since(1, default=0)
    error_code: Int16 = until(3, default=0)
    error_message: NullableString = since(1, until=3, default=None)
    node_id: Int32 = until(3, default=-1)
    host: String = until(3, default="")
    port: Int32 = until(3, default=-1)
    coordinators: Array[Coordinator] = since(4, default=[])


class FindCoordinatorRequest(
    Request[FindCoordinatorResponse], api_key=ApiKey.FIND_COORDINATOR, versions=(0, 6), flexible=3
):
    """``key_type`` 0 is a group, 1 a transactional id. ``key`` up to version 3, ``coordinator_keys`` from version 4 on."""

    key: String = until(3, default="")
    key_type: Int8 = since(1, default=0)
    coordinator_keys: Array[String] = since(4, default=[])
