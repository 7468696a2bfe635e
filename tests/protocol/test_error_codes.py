"""Error codes, against those that kio took from Kafka's sources."""

from __future__ import annotations

import pickle

from kio.schema.errors import ErrorCode as KioErrorCode

from aioproducer.protocol import ErrorCode, broker_error


def test_the_codes_have_kafkas_names_and_numbers() -> None:
    assert {code.name.lower(): code.value for code in ErrorCode} == {code.name: code.value for code in KioErrorCode}


def test_the_codes_are_retriable_exactly_where_kafkas_are() -> None:
    assert {code.value for code in ErrorCode if code.retriable} == {
        code.value for code in KioErrorCode if code.retriable
    }


def test_errors_that_need_a_metadata_refresh_are_retriable() -> None:
    assert all(code.retriable for code in ErrorCode if code.invalid_metadata)
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.invalid_metadata
    assert not ErrorCode.NOT_COORDINATOR.invalid_metadata
    assert not ErrorCode.NOT_ENOUGH_REPLICAS.invalid_metadata


def test_every_code_has_a_sentence() -> None:
    texts = [code.text for code in ErrorCode]

    assert all(text[0].isupper() or text.startswith("acks") for text in texts)
    assert all(text.endswith(".") for text in texts)
    assert len(set(texts)) == len(texts)


def test_an_error_has_the_name_and_the_text_of_its_code() -> None:
    error = broker_error(6)

    assert (error.code, error.name, error.retriable) == (6, "NOT_LEADER_OR_FOLLOWER", True)
    assert str(error) == f"NOT_LEADER_OR_FOLLOWER (6): {ErrorCode.NOT_LEADER_OR_FOLLOWER.text}"


def test_the_words_of_the_broker_come_first() -> None:
    assert str(broker_error(87, "record 3 has no key")) == "INVALID_RECORD (87): record 3 has no key"
    assert broker_error(87, "").message == ErrorCode.INVALID_RECORD.text


def test_a_code_of_a_newer_broker_has_a_name_too_and_is_not_retried() -> None:
    error = broker_error(4711)

    assert (error.code, error.name, error.retriable) == (4711, "UNKNOWN_4711", False)


def test_an_error_can_go_to_another_process() -> None:
    error = broker_error(3, "gone")

    copy = pickle.loads(pickle.dumps(error))

    assert (copy.code, copy.name, copy.message, copy.retriable) == (3, "UNKNOWN_TOPIC_OR_PARTITION", "gone", True)
