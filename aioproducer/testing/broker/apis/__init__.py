"""The fake broker's API handlers: one file per API, and a table of them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from aioproducer.protocol import ApiKey
from aioproducer.testing.broker.apis import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    api_versions,
    create_topics,
    delete_topics,
    describe_configs,
    describe_producers,
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    get_telemetry_subscriptions,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
    push_telemetry,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
from aioproducer.testing.broker.request import ApiHandler

__all__ = ["HANDLERS"]

HANDLERS: Mapping[ApiKey, ApiHandler] = MappingProxyType(
    {
        ApiKey.PRODUCE: produce.HANDLER,
        ApiKey.FETCH: fetch.HANDLER,
        ApiKey.LIST_OFFSETS: list_offsets.HANDLER,
        ApiKey.METADATA: metadata.HANDLER,
        ApiKey.OFFSET_COMMIT: offset_commit.HANDLER,
        ApiKey.OFFSET_FETCH: offset_fetch.HANDLER,
        ApiKey.FIND_COORDINATOR: find_coordinator.HANDLER,
        ApiKey.JOIN_GROUP: join_group.HANDLER,
        ApiKey.HEARTBEAT: heartbeat.HANDLER,
        ApiKey.LEAVE_GROUP: leave_group.HANDLER,
        ApiKey.SYNC_GROUP: sync_group.HANDLER,
        ApiKey.SASL_HANDSHAKE: sasl_handshake.HANDLER,
        ApiKey.API_VERSIONS: api_versions.HANDLER,
        ApiKey.CREATE_TOPICS: create_topics.HANDLER,
        ApiKey.DELETE_TOPICS: delete_topics.HANDLER,
        ApiKey.INIT_PRODUCER_ID: init_producer_id.HANDLER,
        ApiKey.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn.HANDLER,
        ApiKey.ADD_OFFSETS_TO_TXN: add_offsets_to_txn.HANDLER,
        ApiKey.END_TXN: end_txn.HANDLER,
        ApiKey.WRITE_TXN_MARKERS: write_txn_markers.HANDLER,
        ApiKey.TXN_OFFSET_COMMIT: txn_offset_commit.HANDLER,
        ApiKey.DESCRIBE_CONFIGS: describe_configs.HANDLER,
        ApiKey.SASL_AUTHENTICATE: sasl_authenticate.HANDLER,
        ApiKey.DESCRIBE_PRODUCERS: describe_producers.HANDLER,
        ApiKey.DESCRIBE_TRANSACTIONS: describe_transactions.HANDLER,
        ApiKey.LIST_TRANSACTIONS: list_transactions.HANDLER,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: get_telemetry_subscriptions.HANDLER,
        ApiKey.PUSH_TELEMETRY: push_telemetry.HANDLER,
    }
)
