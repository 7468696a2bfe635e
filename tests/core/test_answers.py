"""Acceptance and refusal of responses to a Produce request."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.core.answers import read_produce_answer
from aioproducer.errors import ProtocolError
from aioproducer.protocol.messages import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from aioproducer.types import TopicPartition

ID = UUID(int=5)


@dataclass
class Batch:
    partition: TopicPartition
    count: int = 3


ASKED = [Batch(TopicPartition("t", 0)), Batch(TopicPartition("u", 0)), Batch(TopicPartition("t", 1))]


def reported(index: int, offset: int = 7, error: int = 0, refused: tuple[int, ...] = ()) -> PartitionProduceResponse:
    errors = [BatchIndexAndErrorMessage(batch_index=each, batch_index_error_message="no") for each in refused]
    return PartitionProduceResponse(index=index, error_code=error, base_offset=offset, record_errors=errors)


def answer(**topics: list[PartitionProduceResponse]) -> ProduceResponse:
    return ProduceResponse(
        responses=[TopicProduceResponse(name=name, partition_responses=each) for name, each in topics.items()]
    )


def test_answers_are_given_in_the_order_of_the_batches() -> None:
    answers = read_produce_answer(ASKED, {}, answer(u=[reported(0, 1)], t=[reported(1, 2), reported(0, 3)])).of_batches

    assert [each.base_offset for each in answers] == [3, 1, 2]


def test_a_topic_may_be_reported_in_several_parts_and_by_its_id() -> None:
    parts = [TopicProduceResponse(topic_id=ID, partition_responses=[reported(index)]) for index in (0, 1)]

    assert len(read_produce_answer([ASKED[0], ASKED[2]], {ID: "t"}, ProduceResponse(responses=parts)).of_batches) == 2


@pytest.mark.parametrize("offset", [-1, 0, 2**63 - 3])
def test_any_offset_is_possible_that_leaves_room_for_the_records(offset: int) -> None:
    (found,) = read_produce_answer(ASKED[:1], {}, answer(t=[reported(0, offset, refused=(0, 2))])).of_batches

    assert found.base_offset == offset


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (answer(), "t-0 was not answered"),
        (answer(t=[reported(1)]), "t-0 was not answered"),
        (answer(t=[reported(-1)]), "t-0 was not answered"),
        (answer(u=[reported(0)]), "t-0 was not answered"),
        (answer(t=[reported(0), reported(0)]), "t-0 was answered twice"),
        (answer(t=[reported(0), reported(0, error=10)]), "t-0 was answered twice"),
        (answer(t=[reported(0), reported(1)]), "t-1 was answered but not requested"),
        (answer(t=[reported(0)], u=[reported(0)]), "u-0 was answered but not requested"),
        (answer(t=[reported(0, -2)]), "cannot be at offset -2"),
        (answer(t=[reported(0, -7)]), r"3 record\(s\) of t-0 cannot be at offset -7"),
        (answer(t=[reported(0, 2**63 - 1)]), "cannot be at offset 9223372036854775807"),
        (answer(t=[reported(0, 2**63 - 2)]), "cannot be at offset"),
        (
            answer(t=[reported(0, error=87, refused=(-3,))]),
            r"record -3 \(from 0\) of t-0 was refused, but the batch has only 3",
        ),
        (answer(t=[reported(0, error=87, refused=(1, 3))]), r"record 3 \(from 0\) of t-0"),
        (
            ProduceResponse(responses=[TopicProduceResponse(topic_id=ID, partition_responses=[reported(0)])]),
            "not answered",
        ),
    ],
)
def test_an_answer_that_does_not_fit_the_question_is_refused(response: ProduceResponse, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        read_produce_answer(ASKED[:1], {}, response)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["t", "u", "v", ""]),
            st.lists(
                st.builds(
                    reported,
                    st.integers(-1, 2),
                    st.integers(-2, 1) | st.integers(2**63 - 4, 2**63 - 1),
                    st.sampled_from([0, 87]),
                    st.lists(st.integers(-1, 3), max_size=2).map(tuple),
                ),
                max_size=3,
            ),
        ),
        max_size=4,
    )
)
def test_each_batch_has_one_possible_answer_or_all_answers_are_refused(
    topics: list[tuple[str, list[PartitionProduceResponse]]],
) -> None:
    response = ProduceResponse(
        responses=[TopicProduceResponse(name=name, partition_responses=each) for name, each in topics]
    )
    try:
        answers = read_produce_answer(ASKED, {}, response).of_batches
    except ProtocolError:
        return

    assert [each.index for each in answers] == [0, 0, 1]
    assert sum(len(each) for _, each in topics) == len(ASKED)
    for each in answers:
        assert -1 <= each.base_offset <= 2**63 - 1 - 2
        assert all(0 <= error.batch_index < 3 for error in each.record_errors)
