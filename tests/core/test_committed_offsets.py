"""Committed offsets, read from responses of OffsetFetch; the client's tests use every version."""

from __future__ import annotations

import re

import pytest

from aioproducer.core.transactions.offsets import committed_offsets
from aioproducer.errors import BrokerError, ProtocolError
from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.protocol.messages import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from aioproducer.types import OffsetAndMetadata, TopicPartition

IN_0, IN_1, OUT_0 = TopicPartition("in", 0), TopicPartition("in", 1), TopicPartition("out", 0)


def partition(index: int, offset: int, code: int = 0, metadata: str | None = "") -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=index, committed_offset=offset, metadata=metadata, error_code=code
    )


def answer(*partitions: OffsetFetchResponsePartition, group: str = "readers", code: int = 0) -> OffsetFetchResponse:
    topics = [OffsetFetchResponseTopic(name="in", partitions=list(partitions))]
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id=group, topics=topics, error_code=code)])


def test_the_partitions_are_asked_for_once_each_and_by_topic() -> None:
    query = committed_offsets("readers", [OUT_0, IN_1, IN_0, IN_1], require_stable=True)

    message = query.message
    assert isinstance(message, OffsetFetchRequest)
    for topics in (message.topics, message.groups[0].topics):
        assert [(each.name, each.partition_indexes) for each in topics or ()] == [("in", [0, 1]), ("out", [0])]
    assert (query.lowest, query.highest) == (7, 9)


def test_an_offset_that_was_never_committed_is_none() -> None:
    query = committed_offsets("readers", [IN_0, IN_1], require_stable=False)
    response = answer(partition(1, -1, metadata=None), partition(0, 0, metadata=None))

    assert query.read(response) == {IN_0: OffsetAndMetadata(0), IN_1: None}


def test_an_offset_has_the_metadata_that_were_committed_with_it() -> None:
    query = committed_offsets("readers", [IN_0], require_stable=False)

    assert query.read(answer(partition(0, 5, metadata="by host-1"))) == {IN_0: OffsetAndMetadata(5, "by host-1")}


def test_only_stable_offsets_need_a_newer_version() -> None:
    stable, latest = (committed_offsets("readers", [IN_0], require_stable=each) for each in (True, False))

    assert (stable.lowest, latest.lowest) == (7, 1)


def test_an_error_that_waiting_does_not_change_comes_before_one_that_it_does() -> None:
    query = committed_offsets("readers", [IN_0, IN_1], require_stable=True)
    unstable = partition(0, -1, ErrorCode.UNSTABLE_OFFSET_COMMIT)

    refused = query.read(answer(unstable, partition(1, -1, ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
    passing = query.read(answer(unstable, partition(1, 5)))

    assert isinstance(refused, BrokerError)
    assert refused.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert isinstance(passing, BrokerError)
    assert passing.code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert passing.retriable


def test_the_error_of_a_group_needs_no_partitions() -> None:
    query = committed_offsets("readers", [IN_0], require_stable=True)
    response = answer(code=ErrorCode.GROUP_AUTHORIZATION_FAILED)

    error = query.read(response)

    assert isinstance(error, BrokerError)
    assert re.search(r"DESCRIBE.*group 'readers'", str(error))


@pytest.mark.parametrize(
    ("code", "resource"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic 'in'"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "group 'readers'"),
    ],
)
def test_the_error_of_a_partition_names_what_may_not_be_read(code: ErrorCode, resource: str) -> None:
    query = committed_offsets("readers", [IN_0], require_stable=False)

    error = query.read(answer(partition(0, -1, code)))

    assert isinstance(error, BrokerError)
    assert str(error).endswith(f"on {resource}.")


def test_of_a_partition_that_is_refused_only_the_error_is_read() -> None:
    query = committed_offsets("readers", [IN_0], require_stable=True)

    error = query.read(answer(partition(0, -2, ErrorCode.UNSTABLE_OFFSET_COMMIT)))

    assert isinstance(error, BrokerError)
    assert error.code == ErrorCode.UNSTABLE_OFFSET_COMMIT


@pytest.mark.parametrize(("answered", "names"), [([], "nothing"), ([partition(1, 5)], "in-1")])
def test_an_answer_for_other_partitions_is_named(answered: list[OffsetFetchResponsePartition], names: str) -> None:
    query = committed_offsets("readers", [IN_0], require_stable=True)

    with pytest.raises(ProtocolError, match=rf"for in-0 was answered for {names}\."):
        query.read(answer(*answered))


@pytest.mark.parametrize(
    "wrong",
    [
        answer(),
        answer(partition(1, 5)),
        answer(partition(0, 5), partition(1, 5)),
        answer(partition(0, -2)),
        answer(partition(0, 5), group="others"),
        OffsetFetchResponse(groups=[*answer(partition(0, 5)).groups, *answer(partition(0, 6)).groups]),
        OffsetFetchResponse(),
    ],
)
def test_a_response_that_cannot_be_right_is_refused(wrong: OffsetFetchResponse) -> None:
    query = committed_offsets("readers", [IN_0], require_stable=True)

    with pytest.raises(ProtocolError):
        query.read(wrong)
