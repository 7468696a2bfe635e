"""The outcome of a handle's transaction, for every state of its transactional id."""

from __future__ import annotations

import pytest

from aioproducer.core.transactions.handle import TransactionHandle
from aioproducer.core.transactions.queries import TransactionFate, transaction_fate
from aioproducer.protocol.error_codes import ErrorCode
from tests.core.described import answer

HANDLE = TransactionHandle("load", 7, 5)
EMPTY, OPEN, COMMITTED, ABORTED, FORGOTTEN = TransactionFate


#: The state, and the fates in version 1 under the epoch of the handle, and in version 2 under that and the next one.
FATES = [
    ("Empty", EMPTY, EMPTY, FORGOTTEN),
    ("Ongoing", OPEN, OPEN, FORGOTTEN),
    ("PrepareCommit", COMMITTED, EMPTY, COMMITTED),
    ("CompleteCommit", COMMITTED, EMPTY, COMMITTED),
    ("PrepareAbort", ABORTED, EMPTY, ABORTED),
    ("CompleteAbort", ABORTED, EMPTY, ABORTED),
    ("PrepareEpochFence", ABORTED, EMPTY, ABORTED),
    ("Dead", FORGOTTEN, FORGOTTEN, FORGOTTEN),
    ("SomethingNew", FORGOTTEN, FORGOTTEN, FORGOTTEN),
]


@pytest.mark.parametrize(("state", "tv1", "tv2", "tv2_next"), FATES)
def test_each_state_implies_a_fate(
    state: str, tv1: TransactionFate, tv2: TransactionFate, tv2_next: TransactionFate
) -> None:
    version_1, version_2 = (transaction_fate(HANDLE, bumps_epoch=each) for each in (False, True))

    assert version_1.read(answer(state)) is tv1
    assert version_2.read(answer(state)) is tv2
    assert version_2.read(answer(state, epoch=6)) is tv2_next


@pytest.mark.parametrize("state", [each[0] for each in FATES])
@pytest.mark.parametrize("bumps_epoch", [False, True])
def test_of_what_was_followed_by_others_nothing_is_known(state: str, bumps_epoch: bool) -> None:
    query = transaction_fate(HANDLE, bumps_epoch=bumps_epoch)

    assert query.read(answer(state, epoch=7)) is FORGOTTEN
    assert query.read(answer(state, epoch=4)) is FORGOTTEN
    assert query.read(answer(state, producer_id=8)) is FORGOTTEN
    if not bumps_epoch:
        assert query.read(answer(state, epoch=6)) is FORGOTTEN


def test_a_transaction_unknown_to_the_coordinator_counts_as_forgotten() -> None:
    query = transaction_fate(HANDLE, bumps_epoch=False)

    assert query.read(answer("", code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)) is FORGOTTEN
