"""Defines what each error code of a Produce response means for a batch: a table, and two functions on it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from aioproducer.protocol.error_codes import ErrorCode

__all__ = ["ProduceVerdict", "may_be_written", "produce_verdict"]


class ProduceVerdict(Enum):
    """The decision about a batch after a response."""

    COMPLETE = auto()
    COMPLETE_WITHOUT_OFFSET = auto()  # an earlier attempt was written; the broker no longer knows its offset
    RETRY = auto()
    SPLIT = auto()
    RENUMBER = auto()  # the broker's view of the sequence differs: core.sequences decides
    NEW_PRODUCER_ID = auto()  # the broker does not know the producer id: continue with a new one
    FENCED = auto()  # it fails, as will every later batch with this producer id
    FAIL = auto()


#: Any other code: RETRY if Kafka calls it retriable, else FAIL.
_PRODUCE: Mapping[int, ProduceVerdict] = {
    ErrorCode.NONE: ProduceVerdict.COMPLETE,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: ProduceVerdict.COMPLETE_WITHOUT_OFFSET,
    ErrorCode.MESSAGE_TOO_LARGE: ProduceVerdict.SPLIT,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: ProduceVerdict.RENUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID: ProduceVerdict.RENUMBER,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: ProduceVerdict.NEW_PRODUCER_ID,  # Azure Event Hubs forgets idle producers
    ErrorCode.INVALID_PRODUCER_EPOCH: ProduceVerdict.FENCED,
    ErrorCode.PRODUCER_FENCED: ProduceVerdict.FENCED,
}

#: After these the batch may be in the log: the leader appends first, and then waits for its followers or loses its
#: leadership (DelayedProduce answers with 3, 6 or 56 although it has appended), or the outcome is unknown.
_AMBIGUOUS = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


def produce_verdict(code: int) -> ProduceVerdict:
    """Return what to do after an error code in a Produce response."""
    verdict = _PRODUCE.get(code)
    if verdict is not None:
        return verdict
    try:
        return ProduceVerdict.RETRY if ErrorCode(code).retriable else ProduceVerdict.FAIL
    except ValueError:  # a newer broker's code: nothing is known about it
        return ProduceVerdict.FAIL


def may_be_written(code: int) -> bool:
    """Whether a batch may be in the log despite this error."""
    return code in _AMBIGUOUS or code not in ErrorCode._value2member_map_
