"""Asks a real broker which transactions are not over."""

from __future__ import annotations

from aioproducer.protocol.messages import ListTransactionsRequest
from aioproducer.testing.kafka import Kafka
from aioproducer.testing.raw_client import RawClient

__all__ = ["open_transactions"]


def open_transactions(kafka: Kafka, transactional_id: str | None = None) -> list[str]:
    """What the coordinator has not ended; of this id only, where one is given."""
    host, port = kafka.bootstrap_servers.rsplit(":", 1)  # of one broker, which coordinates them all
    with RawClient((host, int(port))) as client:
        listed = client.ask(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 0)
    return [
        f"{each.transactional_id}: {each.transaction_state}"
        for each in listed.transaction_states
        if each.transaction_state not in ("Empty", "CompleteCommit", "CompleteAbort", "Dead")
        and transactional_id in (None, each.transactional_id)
    ]
