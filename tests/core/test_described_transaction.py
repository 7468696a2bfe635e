"""The question that tells of a transaction: what it asks, and which answers are none."""

from __future__ import annotations

import pytest

from aioproducer.core.transactions.identities import CoordinatorKey, CoordinatorType
from aioproducer.core.transactions.queries import described_transaction
from aioproducer.errors import BrokerError, ProtocolError
from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.protocol.messages import DescribedTransaction, DescribeTransactionsRequest
from tests.core.described import answer


def state(found: DescribedTransaction | None) -> str | None:
    return None if found is None else found.transaction_state


QUERY = described_transaction("load", state)


def test_the_coordinator_of_the_id_is_asked() -> None:
    assert QUERY.about == CoordinatorKey(CoordinatorType.TRANSACTION, "load")
    assert QUERY.message == DescribeTransactionsRequest(transactional_ids=["load"])


def test_what_is_found_is_told() -> None:
    assert QUERY.read(answer("Ongoing")) == "Ongoing"
    assert QUERY.read(answer("", code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)) is None


def test_the_right_that_is_missing_is_named() -> None:
    error = QUERY.read(answer("", code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))

    assert isinstance(error, BrokerError)
    assert "DESCRIBE, which WRITE implies, on transactional id 'load'" in str(error)
    assert not error.retriable


def test_an_answer_about_another_transactional_id_is_none() -> None:
    QUERY.read(answer("Empty"))
    with pytest.raises(ProtocolError, match="other"):
        QUERY.read(answer("Empty", transactional_id="other"))
