"""The request that describes a transaction: what it asks, and which answers are none."""

from __future__ import annotations

import pytest

from aioproducer.core.transactions.identities import CoordinatorKey, CoordinatorType
from aioproducer.core.transactions.queries import (
    described_transaction,
    is_of_another_broker,
    markers_written,
    query_error,
)
from aioproducer.errors import BrokerError, ProtocolError
from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.protocol.messages import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from tests.core.described import answer


def state(found: DescribedTransaction | None) -> str | None:
    return None if found is None else found.transaction_state


QUERY = described_transaction("load", state)


def test_the_coordinator_of_the_id_is_asked() -> None:
    assert QUERY.about == CoordinatorKey(CoordinatorType.TRANSACTION, "load")
    assert QUERY.message == DescribeTransactionsRequest(transactional_ids=["load"])
    assert (QUERY.lowest, QUERY.highest) == (0, 0), "what the first version says is enough"


def test_the_state_of_the_transaction_is_returned_if_it_is_found() -> None:
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


@pytest.mark.parametrize(
    ("code", "right"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "DESCRIBE, which READ implies, on group 'it'"),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "DESCRIBE, which WRITE implies, on transactional id 'it'"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "DESCRIBE, which READ and WRITE imply, on topic 'it'"),
    ],
)
def test_each_refusal_names_the_right_that_is_missing(code: int, right: str) -> None:
    assert right in query_error(code, "it").message


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_after_these_errors_the_coordinator_is_looked_for_again(code: int) -> None:
    assert is_of_another_broker(query_error(code, "it")) is True


def test_after_other_errors_the_coordinator_stays_the_same() -> None:
    assert is_of_another_broker(query_error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "it")) is False


@pytest.mark.parametrize(
    ("state", "are_written"),
    [("PrepareCommit", False), ("PrepareAbort", False), ("CompleteCommit", True), ("CompleteAbort", True), ("", True)],
)
def test_markers_are_written_unless_the_coordinator_reports_that_it_writes_them(state: str, are_written: bool) -> None:
    query = markers_written("load")

    assert query.about == QUERY.about
    assert query.message == QUERY.message
    assert (query.lowest, query.highest) == (0, 0)
    assert query.read(answer(state)) is are_written
    two = DescribeTransactionsResponse(
        transaction_states=[*answer("Empty").transaction_states, *answer(state).transaction_states]
    )
    assert query.read(two) is are_written
