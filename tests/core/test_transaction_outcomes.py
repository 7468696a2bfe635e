"""A move that no state allows is a bug of ours: it ends the producer loudly, and nothing is sent after it."""

from __future__ import annotations

import pytest

from aioproducer.core.transactions.commit_and_abort import CommitAndAbort
from aioproducer.core.transactions.contents import TransactionContents
from aioproducer.core.transactions.epochs import Epochs
from aioproducer.core.transactions.in_flight import RequestInFlight
from aioproducer.core.transactions.state_machine import StateMachine
from aioproducer.core.transactions.states import State
from aioproducer.errors import TransactionFatal, TransactionStateError
from tests.core.transaction_bench import Bench


def test_after_a_move_that_is_not_allowed_nothing_goes_on() -> None:
    listener = Bench()
    machine = StateMachine("payments-1", enable_2pc=False)
    epochs = Epochs(lambda: 1, listener.producer_id_changed)
    outcomes = CommitAndAbort("payments-1", machine, TransactionContents(), epochs, RequestInFlight(), listener)

    with pytest.raises(TransactionStateError, match=r"A bug in aioproducer: .* from UNINITIALIZED to READY"):
        outcomes.ended()  # no transaction was begun

    assert machine.state is State.FATAL_ERROR
    assert isinstance(machine.last_error, TransactionFatal)
    assert listener.failed_all == [machine.last_error]
    with pytest.raises(TransactionFatal, match="from UNINITIALIZED to READY"):
        machine.check("begin_transaction")
