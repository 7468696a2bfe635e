"""The meaning of error codes for a batch."""

from __future__ import annotations

import pytest

from aioproducer.core.compression_ratio import CompressionRatios
from aioproducer.core.produce_error_codes import ProduceVerdict, may_be_written, produce_verdict
from aioproducer.protocol.error_codes import ErrorCode


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ErrorCode.NONE, ProduceVerdict.COMPLETE),
        (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, ProduceVerdict.COMPLETE_WITHOUT_OFFSET),
        (ErrorCode.MESSAGE_TOO_LARGE, ProduceVerdict.SPLIT),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ProduceVerdict.RENUMBER),
        (ErrorCode.UNKNOWN_PRODUCER_ID, ProduceVerdict.RENUMBER),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ProduceVerdict.NEW_PRODUCER_ID),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ProduceVerdict.RETRY),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ProduceVerdict.RETRY),
        (ErrorCode.REQUEST_TIMED_OUT, ProduceVerdict.RETRY),
        (ErrorCode.UNKNOWN_TOPIC_ID, ProduceVerdict.RETRY),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ProduceVerdict.FAIL),
        (ErrorCode.INVALID_RECORD, ProduceVerdict.FAIL),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ProduceVerdict.FENCED),
        (ErrorCode.PRODUCER_FENCED, ProduceVerdict.FENCED),
        (9999, ProduceVerdict.FAIL),
    ],
)
def test_each_code_has_its_verdict(code: int, verdict: ProduceVerdict) -> None:
    assert produce_verdict(code) is verdict


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        9999,
    ],
)
def test_a_batch_that_may_have_been_appended_counts_as_possibly_written(code: int) -> None:
    assert may_be_written(code)


@pytest.mark.parametrize("code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD])
def test_a_batch_refused_before_it_was_appended_is_certainly_not_written(code: int) -> None:
    assert not may_be_written(code)


def test_the_estimate_of_compression_falls_slowly_and_rises_at_once() -> None:
    ratios = CompressionRatios()
    for _ in range(100):
        ratios.observe("t", 0.2)

    assert ratios.estimate("t") == pytest.approx(0.5)
    assert ratios.uncompressed_limit("t", 1050) == 2000
    ratios.observe("t", 0.9)
    assert ratios.estimate("t") == 0.9
    ratios.observe("t", 0.91)
    assert ratios.estimate("t") == pytest.approx(0.95)
    ratios.reset("t", 0.3)
    assert ratios.estimate("t") == 0.3
    assert ratios.estimate("other") == 1.0
