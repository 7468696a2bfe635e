"""Trap 2, by answers that can be read and are wrong: if believed, they give a record an outcome that is unknown."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias
from uuid import UUID

import pytest

from aioproducer import RecordMetadata
from aioproducer.protocol.messages import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from aioproducer.testing import FakeBroker, ReceivedRequest, RequestContext
from tests.traps.judge import audited
from tests.traps.schedules import a_few_and_many

Spoil: TypeAlias = Callable[[ProduceResponse], object]

OPTIONS: dict[str, Any] = {"linger_ms": 0, "request_timeout_ms": 10_000, "delivery_timeout_ms": 20_000}


def first(response: ProduceResponse) -> PartitionProduceResponse:
    return response.responses[0].partition_responses[0]


def leave_out(response: ProduceResponse) -> None:
    response.responses[0].partition_responses.pop()


def leave_everything_out(response: ProduceResponse) -> None:
    response.responses = []


def another_index(response: ProduceResponse) -> None:
    first(response).index = 77


def another_topic(response: ProduceResponse) -> None:
    response.responses[0].name = "payments"
    response.responses[0].topic_id = UUID(int=9)


def contradict(response: ProduceResponse) -> None:
    refused = PartitionProduceResponse(index=first(response).index, error_code=87, base_offset=-1)
    response.responses[0].partition_responses.append(refused)


def contradict_in_another_topic(response: ProduceResponse) -> None:
    refused = PartitionProduceResponse(index=first(response).index, error_code=10, base_offset=-1)
    topic = response.responses[0]
    again = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[refused])
    response.responses.append(again)


def answer_what_was_not_asked(response: ProduceResponse) -> None:
    response.responses[0].partition_responses.append(
        PartitionProduceResponse(index=2, error_code=0, base_offset=0),
    )


def negative_offset(response: ProduceResponse) -> None:
    first(response).base_offset = -7


def offset_without_room(response: ProduceResponse) -> None:
    first(response).base_offset = 2**63 - 1


def refuse_records(*indexes: int) -> Spoil:
    def refuse(response: ProduceResponse) -> None:
        first(response).error_code = 87
        first(response).record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message="no") for index in indexes
        ]

    return refuse


SPOILS: dict[str, Spoil] = {
    "a partition is missing": leave_out,
    "everything is missing": leave_everything_out,
    "another partition": another_index,
    "another topic": another_topic,
    "two answers for one partition": contradict,
    "two answers in two parts": contradict_in_another_topic,
    "a partition that was not asked": answer_what_was_not_asked,
    "offset -7": negative_offset,
    "offset 2^63 - 1": offset_without_room,
    "record -3 is wrong": refuse_records(-3),
    "record 99 is wrong": refuse_records(0, 99),
}


def batches_of(request: ReceivedRequest) -> dict[int, bytes]:
    assert isinstance(request.body, ProduceRequest)
    return {
        each.index: bytes(each.records or b"") for topic in request.body.topic_data for each in topic.partition_data
    }


def spoiled(spoil: Spoil) -> Callable[[RequestContext], ProduceResponse]:
    def answer(context: RequestContext) -> ProduceResponse:
        response = context.apply()
        assert isinstance(response, ProduceResponse)
        spoil(response)
        return response

    return answer


@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS)
@pytest.mark.parametrize("version", [12, 13])
@pytest.mark.usefixtures("no_batch_fast_path")
async def test_a_wrong_answer_costs_the_connection_and_the_same_bytes_are_sent_again(
    spoil: Spoil, version: int
) -> None:
    with FakeBroker(topics={"orders": 3}, max_versions={"Produce": version}) as broker:
        async with audited(broker, **OPTIONS) as audit:
            await audit.send()
            broker.control("Produce", spoiled(spoil))
            for _ in range(2):
                await audit.enqueue()
                await audit.enqueue(partition=1)
            await audit.all_outcomes()
            await audit.send()

        _, wrong, *later = broker.requests_of("Produce")
        assert audit.acknowledged == 6
        assert all(request.connection != wrong.connection for request in later)
        assert batches_of(wrong) == {**batches_of(later[1]), **batches_of(later[0])}


def spoil_at_random(random: Random) -> Spoil:
    """Change some numbers, and repeat some parts: the result may be wrong in a way that cannot be detected."""
    numbers = [-(2**31), -7, -1, 0, 1, 3, 99, 2**31 - 1]

    def spoil(response: ProduceResponse) -> None:
        parts = [each for topic in response.responses for each in topic.partition_responses]
        for each in parts:
            match random.randrange(8):
                case 0:
                    each.index = random.choice(numbers)
                case 1:
                    each.error_code = random.randint(-2, 140)
                case 2:
                    each.base_offset = random.choice([*numbers, -(2**63), 2**63 - 1, 2**63 - 2])
                case 3:
                    each.log_append_time_ms = each.log_start_offset = random.choice([*numbers, 2**63 - 1])
                case 4:
                    refuse_records(*random.sample(numbers, 2))(response)
                case 5:
                    each.current_leader = LeaderIdAndEpoch(
                        leader_id=random.choice(numbers), leader_epoch=random.choice(numbers)
                    )
                    each.error_code = 6
                case 6:
                    response.responses.append(random.choice(response.responses))
                case _:
                    random.choice(response.responses).partition_responses.append(random.choice(parts))

    return spoil


@a_few_and_many(few=5, many=300)
async def test_every_record_gets_an_outcome_and_the_producer_lives_for_any_answer(seed: int) -> None:
    with FakeBroker(2, topics={"orders": 3}) as broker:
        async with audited(broker, check=False, batch_size=0, **OPTIONS) as audit:
            await audit.send()
            broker.control("Produce", spoiled(spoil_at_random(Random(seed))), times=12)
            for _ in range(12):
                for partition in range(3):
                    await audit.enqueue(partition=partition)
                await audit.enqueue(partition=0)
            await audit.all_outcomes()
            broker.clear_faults()
            for partition in range(3):
                for _ in range(3):  # what a lie left behind may cost one or the other
                    last = await audit.send(partition=partition)
                assert isinstance(last.outcome, RecordMetadata), last.outcome
            assert audit.producer.health().alive
