"""Responses of a coordinator to DescribeTransactions."""

from __future__ import annotations

from aioproducer.protocol.messages import DescribedTransaction, DescribeTransactionsResponse

__all__ = ["answer"]


def answer(
    state: str, *, epoch: int = 5, producer_id: int = 7, code: int = 0, transactional_id: str = "load"
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            DescribedTransaction(
                error_code=code,
                transactional_id=transactional_id,
                transaction_state=state,
                transaction_timeout_ms=60_000,
                transaction_start_time_ms=-1,
                producer_id=producer_id,
                producer_epoch=epoch,
                topics=[],
            )
        ]
    )
