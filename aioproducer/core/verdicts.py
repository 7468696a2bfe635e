"""Says what a broker's answer about one batch means: a table, and the two questions that stand beside it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from aioproducer.protocol.error_codes import ErrorCode

__all__ = ["Verdict", "may_be_written", "produce_verdict"]


class Verdict(Enum):
    """What becomes of a batch that was answered."""

    COMPLETE = auto()
    COMPLETE_WITHOUT_OFFSET = auto()  # an earlier attempt had been written; the broker no longer knows where
    RETRY = auto()
    SPLIT = auto()
    RENUMBER = auto()  # the broker's view of the sequence differs: core.sequences decides
    FORGOTTEN = auto()  # the broker does not know the producer id (any more): another one is needed
    FENCED = auto()  # it fails, and so will all that follow under this producer id
    FAIL = auto()


#: Any other code: RETRY if Kafka calls it retriable, else FAIL.
_PRODUCE: Mapping[int, Verdict] = {
    ErrorCode.NONE: Verdict.COMPLETE,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: Verdict.COMPLETE_WITHOUT_OFFSET,
    ErrorCode.MESSAGE_TOO_LARGE: Verdict.SPLIT,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: Verdict.RENUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID: Verdict.RENUMBER,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Verdict.FORGOTTEN,  # Event Hubs; Kafka's leaders never say it to Produce
    ErrorCode.INVALID_PRODUCER_EPOCH: Verdict.FENCED,
    ErrorCode.PRODUCER_FENCED: Verdict.FENCED,
}

#: After these the batch may be in the log: the leader appends first, and then waits for its followers or loses its
#: leadership (DelayedProduce answers with 3, 6 or 56 although it had appended), or nobody knows what happened.
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


def produce_verdict(code: int) -> Verdict:
    """What an error code in a Produce answer asks for."""
    verdict = _PRODUCE.get(code)
    if verdict is not None:
        return verdict
    try:
        return Verdict.RETRY if ErrorCode(code).retriable else Verdict.FAIL
    except ValueError:  # a code of a newer broker: nothing is known about it
        return Verdict.FAIL


def may_be_written(code: int) -> bool:
    """Whether a batch that was answered with this error may be in the log all the same."""
    return code in _AMBIGUOUS or code not in ErrorCode._value2member_map_
