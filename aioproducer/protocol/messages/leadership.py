"""The current leader in a response of a broker that is not the leader (KIP-951); shared by Produce and Fetch."""

from __future__ import annotations

from aioproducer.protocol.message import Int32, NullableString, String, Struct

__all__ = ["LeaderIdAndEpoch", "NodeEndpoint"]


class LeaderIdAndEpoch(Struct):
    """The leader that the broker knows, -1 if it knows none."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class NodeEndpoint(Struct):
    """The address of a leader."""

    node_id: Int32
    host: String
    port: Int32
    rack: NullableString = None
