"""The batch of an acknowledgement, if several producers write under one producer id and epoch."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from aioproducer.core.transactions.answers import read_coordinator, read_producer_id
from aioproducer.core.transactions.identities import CoordinatorKey, CoordinatorType
from aioproducer.core.transactions.sharing import Ownership, SharedWrites, shared_partition
from aioproducer.errors import ProtocolError
from aioproducer.protocol.messages import FindCoordinatorResponse, InitProducerIdResponse
from aioproducer.types import TimestampType, TopicPartition, Written

FIRST = TopicPartition("t", 0)


@dataclass
class Batch:
    partition: TopicPartition = FIRST
    attempts: int = 1
    latest_timestamp: int = 77

    @property
    def count(self) -> int:
        return 3


@pytest.mark.parametrize(
    ("attempts", "offset", "time_ms", "stamped_by", "whose"),
    [
        (1, -1, -1, None, Ownership.FOREIGN),
        (2, -1, 77, TimestampType.LOG_APPEND_TIME, Ownership.FOREIGN),
        (1, 0, -1, None, Ownership.OWN),
        (1, 0, 0, None, Ownership.UNCLEAR),
        (1, 5, 77, None, Ownership.UNCLEAR),
        (1, 5, 77, TimestampType.CREATE_TIME, Ownership.FOREIGN),
        (1, 5, 77, TimestampType.LOG_APPEND_TIME, Ownership.OWN),
        (2, 5, 77, None, Ownership.OWN),
        (2, 5, 77, TimestampType.CREATE_TIME, Ownership.OWN),
        (2, 5, 78, None, Ownership.UNCLEAR),
        (2, 5, 78, TimestampType.CREATE_TIME, Ownership.FOREIGN),
    ],
)
def test_the_offset_and_time_of_an_acknowledgement_identify_the_owner_of_the_batch(
    attempts: int, offset: int, time_ms: int, stamped_by: TimestampType | None, whose: Ownership
) -> None:
    writes = SharedWrites()
    if stamped_by is not None:
        writes.learn({"t": stamped_by})

    assert writes.owner_of(Batch(attempts=attempts), offset, time_ms) is whose


def test_an_acknowledgement_without_a_time_shows_that_the_records_keep_their_own() -> None:
    writes = SharedWrites()
    writes.owner_of(Batch(), 5, -1)

    assert writes.owner_of(Batch(), 8, 77) is Ownership.FOREIGN


def test_written_records_are_counted_with_their_first_and_last_offset() -> None:
    writes = SharedWrites()

    for offset in (10, 4, 20):
        writes.count(FIRST, offset, 3)

    assert writes.written == {FIRST: Written(9, 4, 22)}


def test_another_writer_in_a_partition_is_named_with_what_to_do() -> None:
    assert "wrote into t-0: it showed. Abort the transaction" in str(shared_partition(FIRST, "it showed"))


@pytest.mark.parametrize("number", [0, 1])
def test_broker_0_and_producer_id_0_are_ones_like_any_other(number: int) -> None:
    key = CoordinatorKey(CoordinatorType.TRANSACTION, "payments-1")
    found = FindCoordinatorResponse(error_code=0, node_id=number, host="h", port=1)
    given = InitProducerIdResponse(error_code=0, producer_id=number, producer_epoch=number)

    assert read_coordinator(key, found).node_id == number
    assert read_producer_id(given).producer == (number, number)


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (0, -1)])
def test_a_producer_id_without_an_epoch_and_the_reverse_are_none(producer_id: int, epoch: int) -> None:
    with pytest.raises(ProtocolError):
        read_producer_id(InitProducerIdResponse(error_code=0, producer_id=producer_id, producer_epoch=epoch))
