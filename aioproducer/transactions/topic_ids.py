"""The ids of topics in a producer's metadata."""

from __future__ import annotations

from uuid import UUID

from aioproducer.net.client import NetworkClient
from aioproducer.protocol.wire import ZERO_UUID

__all__ = ["MetadataTopicIds"]


class MetadataTopicIds:
    """Returns the ids of the topics that the producer knows, as those it sends to."""

    def __init__(self, client: NetworkClient) -> None:
        self._client = client

    def id_of(self, topic: str) -> UUID:
        """Return the topic's id; `ZERO_UUID` if the topic is not known, or if the cluster has no ids."""
        known = self._client.metadata.topics.get(topic)
        return ZERO_UUID if known is None else known.topic_id

    def refresh(self, topic: str) -> None:
        """Request the metadata of the topic again."""
        self._client.request_update(topic)
