"""OffsetFetch (api key 9): the committed offsets of consumer groups; goes to the coordinator of the group.

A producer uses it to find the offsets of a group that commits inside transactions.
"""

from __future__ import annotations

from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.message import (
    Array,
    Bool,
    Int16,
    Int32,
    Int64,
    NullableArray,
    NullableString,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    since,
    until,
)
from aioproducer.protocol.wire import ZERO_UUID

__all__ = [
    "OffsetFetchRequest",
    "OffsetFetchRequestGroup",
    "OffsetFetchRequestTopic",
    "OffsetFetchResponse",
    "OffsetFetchResponseGroup",
    "OffsetFetchResponsePartition",
    "OffsetFetchResponseTopic",
]


class OffsetFetchRequestTopic(Struct):
    """The partitions of one topic; from version 10 on it goes by its id."""

    name: String = until(9, default="")
    topic_id: Uuid = since(10, default=ZERO_UUID)
    partition_indexes: Array[Int32]


class OffsetFetchRequestGroup(Struct):
    """One group of several; ``topics`` None requests all committed offsets."""

    group_id: String
    member_id: NullableString = since(9, default=None)
    member_epoch: Int32 = since(9, default=-1)
    topics: NullableArray[OffsetFetchRequestTopic]


class OffsetFetchResponsePartition(Struct):
    """``committed_offset`` is the next record to be read, -1 if nothing was committed, or with an error."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = since(5, default=-1)
    metadata: NullableString
    error_code: Int16


class OffsetFetchResponseTopic(Struct):
    """The partitions of one topic; from version 10 on it goes by its id."""

    name: String = until(9, default="")
    topic_id: Uuid = since(10, default=ZERO_UUID)
    partitions: Array[OffsetFetchResponsePartition]


class OffsetFetchResponseGroup(Struct):
    """The result for one group of several."""

    group_id: String
    topics: Array[OffsetFetchResponseTopic]
    error_code: Int16 = 0


class OffsetFetchResponse(Response):
    """One group up to version 7, one result for each group from version 8 on."""

    throttle_time_ms: Int32 = since(3, default=0)
    topics: Array[OffsetFetchResponseTopic] = until(7, default=[])
    error_code: Int16 = since(2, until=7, default=0)
    groups: Array[OffsetFetchResponseGroup] = since(8, default=[])


class OffsetFetchRequest(Request[OffsetFetchResponse], api_key=ApiKey.OFFSET_FETCH, versions=(1, 10), flexible=6):
    """``group_id`` and ``topics`` up to version 7, ``groups`` from version 8 on; ``topics`` None requests all.

    With ``require_stable``, partitions with an offset in an open transaction return UNSTABLE_OFFSET_COMMIT (KIP-447).
    """

    group_id: String = until(7, default="")
    topics: NullableArray[OffsetFetchRequestTopic] = since(0, until=7, default=[], nullable=2)
    groups: Array[OffsetFetchRequestGroup] = since(8, default=[])
    require_stable: Bool = since(7, default=False)
