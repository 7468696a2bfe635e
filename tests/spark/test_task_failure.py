"""Of the failures of several tasks the one that explains the others is reported, in a sentence."""

from __future__ import annotations

import pickle

import pytest

from aioproducer.errors import BrokerError, KafkaError, ProducerFenced
from aioproducer.protocol.error_codes import ErrorCode, broker_error
from aioproducer.spark.exactly_once.commit_marker import CommitMarkerMissing
from aioproducer.spark.exactly_once.task_failure import TaskFailure

LARGE = TaskFailure("Row 3 is too large.")
ENDED = TaskFailure("The producer is fenced.", is_of_end=True)


@pytest.mark.parametrize("failures", [[ENDED, LARGE], [LARGE, ENDED], [ENDED, ENDED, LARGE]])
def test_failures_caused_by_the_end_of_the_transaction_come_last(failures: list[TaskFailure]) -> None:
    assert TaskFailure.first_cause(failures) is LARGE


def test_of_failures_that_are_alike_the_first_is_reported() -> None:
    assert TaskFailure.first_cause([LARGE, TaskFailure("Row 5 is too large.")]) is LARGE
    assert TaskFailure.first_cause([ENDED, TaskFailure("x", is_of_end=True)]) is ENDED


def caused_by(code: ErrorCode) -> KafkaError:
    """As a delivery fails: the broker's answer is the cause of the cause."""
    outer, middle = KafkaError("The record was not written."), KafkaError("The batch failed.")
    outer.__cause__, middle.__cause__ = middle, broker_error(code)
    return outer


@pytest.mark.parametrize(
    ("code", "is_of_end"),
    [
        (ErrorCode.INVALID_TXN_STATE, True),
        (ErrorCode.INVALID_PRODUCER_EPOCH, True),
        (ErrorCode.PRODUCER_FENCED, True),
        (ErrorCode.TRANSACTION_ABORTABLE, True),
        (ErrorCode.MESSAGE_TOO_LARGE, False),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False),
    ],
)
def test_the_answers_to_rows_of_a_transaction_that_has_ended(code: ErrorCode, *, is_of_end: bool) -> None:
    assert isinstance(broker_error(code), BrokerError)
    assert TaskFailure.of(caused_by(code)).is_of_end is is_of_end


def test_a_fenced_producer_is_of_the_end_as_well() -> None:
    assert TaskFailure.of(ProducerFenced("Another one has begun.")).is_of_end


def test_a_marker_that_does_not_let_the_batch_be_written_is_no_failure_to_write() -> None:
    failure = TaskFailure.of(CommitMarkerMissing("The marker is gone."))

    copied = pickle.loads(pickle.dumps(failure))

    assert (str(copied.refusal), copied.is_of_end) == ("The marker is gone.", False)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("no room", "no room."), ("No room.", "No room."), ("Why?", "Why?"), ("gone (see the log)", "gone (see the log)")],
)
def test_a_reason_ends_as_a_sentence(text: str, sentence: str) -> None:
    assert TaskFailure(text).sentence == sentence


def test_an_error_without_words_goes_by_its_name() -> None:
    assert TaskFailure.of(TimeoutError()).reason == "TimeoutError"
