"""Asks a real broker which transactions are not over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aioproducer.protocol.messages import ListTransactionsRequest
from aioproducer.testing.kafka import Kafka
from aioproducer.testing.raw_client import RawClient

__all__ = ["ending_transactions", "open_transactions"]


def ending_transactions(bootstrap_servers: str) -> list[str]:
    """Those that are decided and whose markers are being written: who reads committed records does not see them yet."""
    return [
        f"{each.transactional_id}: {each.transaction_state}"
        for each in _listed(bootstrap_servers)
        if each.transaction_state in ("PrepareCommit", "PrepareAbort")
    ]


def open_transactions(kafka: Kafka, transactional_id: str | None = None) -> list[str]:
    """The transactions that the coordinator has not ended; with an id, only those of that id."""
    return [
        f"{each.transactional_id}: {each.transaction_state}"
        for each in _listed(kafka.bootstrap_servers)
        if each.transaction_state not in ("Empty", "CompleteCommit", "CompleteAbort", "Dead")
        and transactional_id in (None, each.transactional_id)
    ]


def _listed(bootstrap_servers: str) -> Sequence[Any]:
    host, port = bootstrap_servers.split(",")[0].rsplit(":", 1)  # of one broker, which coordinates them all
    with RawClient((host, int(port))) as client:
        listed = client.ask(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 0)
    return listed.transaction_states
