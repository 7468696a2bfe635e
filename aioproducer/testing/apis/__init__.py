"""What the fake broker does for each API: one file per API, and the table of them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from aioproducer.protocol import ApiKey
from aioproducer.testing.apis import (
    api_versions,
    create_topics,
    delete_topics,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    produce,
)
from aioproducer.testing.broker_request import ApiHandler

__all__ = ["HANDLERS"]

HANDLERS: Mapping[ApiKey, ApiHandler] = MappingProxyType(
    {
        ApiKey.PRODUCE: produce.HANDLER,
        ApiKey.FETCH: fetch.HANDLER,
        ApiKey.LIST_OFFSETS: list_offsets.HANDLER,
        ApiKey.METADATA: metadata.HANDLER,
        ApiKey.FIND_COORDINATOR: find_coordinator.HANDLER,
        ApiKey.API_VERSIONS: api_versions.HANDLER,
        ApiKey.CREATE_TOPICS: create_topics.HANDLER,
        ApiKey.DELETE_TOPICS: delete_topics.HANDLER,
        ApiKey.INIT_PRODUCER_ID: init_producer_id.HANDLER,
    }
)
