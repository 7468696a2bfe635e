"""Turns aioproducer's errors into confluent-kafka's codes."""

# librdkafka's names of its own codes begin with an underscore.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import aioproducer.errors as ours
from aioproducer.contrib.confluent.errors import KafkaError, error_of, exception_of

__all__ = ["invalid", "record_error", "translated", "translating"]

#: The first that fits counts, so subclasses come before their base.
_KINDS: Final[tuple[tuple[type[ours.KafkaError], int], ...]] = (
    (ours.ConfigError, KafkaError._INVALID_ARG),
    (ours.RecordTooLarge, KafkaError.MSG_SIZE_TOO_LARGE),
    (ours.AuthenticationError, KafkaError._AUTHENTICATION),
    (ours.BrokerConnectionError, KafkaError._TRANSPORT),
    (ours.ProducerFenced, KafkaError._FENCED),
    (ours.CommitFailed, KafkaError.ILLEGAL_GENERATION),
    (ours.TransactionAborted, KafkaError._PURGE_QUEUE),
    (ours.CommitUnknown, KafkaError._TIMED_OUT),
    (ours.TransactionStateError, KafkaError._STATE),
    (ours.ProducerClosed, KafkaError._DESTROY),
    (ours.ProducerStateError, KafkaError._STATE),
    (ours.UnsupportedVersion, KafkaError._UNSUPPORTED_FEATURE),
    (ours.CorruptRecord, KafkaError._BAD_MSG),
    (ours.ProtocolError, KafkaError._BAD_MSG),
    (ours.InvalidRecord, KafkaError._INVALID_ARG),
    (ours.KafkaTimeoutError, KafkaError._TIMED_OUT),
)

#: INVALID_PRODUCER_EPOCH and PRODUCER_FENCED.
_FENCED: Final = frozenset({47, 90})


def invalid(text: str, cause: BaseException | None = None) -> Exception:
    """Return the exception for an invalid option or argument."""
    return exception_of(error_of(KafkaError._INVALID_ARG, text), cause)


def record_error(error: BaseException) -> KafkaError:
    """Return the error that a delivery callback gets for a record that failed."""
    cause = error.__cause__
    if isinstance(cause, ours.RecordsPurged | ours.TransactionAborted):
        in_flight = isinstance(error, ours.Unknown)
        return error_of(KafkaError._PURGE_INFLIGHT if in_flight else KafkaError._PURGE_QUEUE)
    if isinstance(error, TimeoutError):
        return error_of(KafkaError._UNKNOWN_TOPIC if _is_unknown_topic(error) else KafkaError._MSG_TIMED_OUT)
    if isinstance(error, ours.InvalidRecord):
        return error_of(_code_of_invalid(error), str(error))
    reason = cause if isinstance(error, ours.DeliveryError) and cause is not None else error
    if isinstance(reason, ours.BrokerError):
        return error_of(reason.code)
    if isinstance(reason, TimeoutError):
        return error_of(KafkaError._MSG_TIMED_OUT)
    return error_of(_code_of(reason), str(reason))


def _is_unknown_topic(error: BaseException) -> bool:
    last = getattr(error, "last_error", None)
    found = None if last is None else last.error
    return isinstance(found, ours.BrokerError) and found.code == KafkaError.UNKNOWN_TOPIC_OR_PART


def _code_of_invalid(error: ours.InvalidRecord) -> int:
    if isinstance(error, ours.RecordTooLarge):
        return KafkaError.MSG_SIZE_TOO_LARGE
    text = str(error)
    if "partition" in text:
        return KafkaError._UNKNOWN_PARTITION
    return KafkaError.TOPIC_EXCEPTION if "topic" in text else KafkaError._INVALID_ARG


def _code_of(error: BaseException) -> int:
    if isinstance(error, ours.BrokerError):
        return KafkaError._FENCED if error.code in _FENCED else error.code
    for kind, code in _KINDS:
        if isinstance(error, kind):
            return code
    cause = error.__cause__
    if cause is not None and isinstance(error, ours.KafkaError):
        return _code_of(cause)
    return KafkaError._TIMED_OUT if isinstance(error, TimeoutError) else KafkaError._FAIL


def translated(error: BaseException, *, timeout: int = KafkaError._TIMED_OUT) -> Exception:
    """Return the exception for an error of a call; ``timeout`` is the code if the call took too long."""
    is_timeout = isinstance(error, ours.KafkaTimeoutError)
    code = timeout if is_timeout else _code_of(error)
    is_fatal = code == KafkaError._FENCED or isinstance(
        error, ours.TransactionFatal | ours.ReopenRequired | ours.ProducerDied
    )
    found = error_of(
        code,
        str(error),
        fatal=is_fatal,
        retriable=is_timeout or (isinstance(error, ours.KafkaError) and error.retriable),
        txn_requires_abort=isinstance(error, ours.TransactionAbortable) and not is_fatal,
    )
    return exception_of(found, error)


@contextmanager
def translating(*, timeout: int = KafkaError._TIMED_OUT) -> Generator[None]:
    """Raise confluent-kafka's exceptions in place of aioproducer's."""
    try:
        yield
    except ours.KafkaError as error:
        raise translated(error, timeout=timeout) from error
