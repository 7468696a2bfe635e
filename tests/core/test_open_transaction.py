"""Whether a transaction is going on, for every state of its transactional id."""

from __future__ import annotations

import pytest

from aioproducer.core.transactions.queries import open_transaction
from aioproducer.protocol.error_codes import ErrorCode
from tests.core.described import answer


@pytest.mark.parametrize(
    ("state", "is_open"),
    [
        ("Empty", False),
        ("Ongoing", True),
        ("PrepareCommit", True),
        ("CompleteCommit", False),
        ("PrepareAbort", True),
        ("CompleteAbort", False),
        ("PrepareEpochFence", True),
        ("Dead", False),
        ("SomethingNew", True),
    ],
)
def test_each_state_implies_whether_a_transaction_is_open(state: str, is_open: bool) -> None:
    assert open_transaction("load").read(answer(state)) is is_open


def test_of_what_the_coordinator_does_not_know_nothing_is_open() -> None:
    assert not open_transaction("load").read(answer("", code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND))
