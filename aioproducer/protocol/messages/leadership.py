"""What a broker says of other brokers when it is not the leader (KIP-951); Produce and Fetch share it."""

from __future__ import annotations

from aioproducer.protocol.message import Int32, NullableString, String, Struct

__all__ = ["LeaderIdAndEpoch", "NodeEndpoint"]


class LeaderIdAndEpoch(Struct):
    """The leader that the broker knows, -1 where it knows none."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class NodeEndpoint(Struct):
    """Where a leader can be reached."""

    node_id: Int32
    host: String
    port: Int32
    rack: NullableString = None
