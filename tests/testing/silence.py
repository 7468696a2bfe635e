"""Detects that a fake broker sends nothing, without a wait that a slow machine would pass for the wrong reason."""

from __future__ import annotations

from aioproducer.protocol.messages import MetadataRequest
from aioproducer.testing import FakeBroker
from aioproducer.testing.raw_client import RawClient

__all__ = ["sent_nothing"]


def sent_nothing(broker: FakeBroker, client: RawClient) -> bool:
    """Whether the client got nothing by the time that what was asked after its requests, at node 2, is answered.

    All nodes run in one event loop, which has read the client's bytes before: they came first.
    """
    with RawClient(broker.addresses[2]) as other:
        for _ in range(3):
            other.ask(MetadataRequest(topics=[]), 9)
    return client.is_silent
