"""Turns aioproducer's errors into those that aiokafka raises in the same case."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import aioproducer.errors as ours
from aioproducer.contrib.aiokafka import errors as theirs

__all__ = ["translated", "translating"]

#: The first that fits counts, so subclasses come before their base.
_KINDS: tuple[tuple[type[ours.KafkaError], type[Exception]], ...] = (
    (ours.RecordTooLarge, theirs.MessageSizeTooLargeError),
    (ours.AuthenticationError, theirs.AuthenticationFailedError),
    (ours.BrokerConnectionError, theirs.KafkaConnectionError),
    (ours.ProducerFenced, theirs.ProducerFenced),
    (ours.CommitFailed, theirs.CommitFailedError),
    (ours.TransactionStateError, theirs.IllegalOperation),
    (ours.ProducerClosed, theirs.ProducerClosed),
    (ours.ProducerDied, theirs.ProducerClosed),
    (ours.ProducerStateError, theirs.IllegalStateError),
    (ours.UnsupportedVersion, theirs.UnsupportedVersionError),
    (ours.CorruptRecord, theirs.CorruptRecordException),
    (ours.ProtocolError, theirs.KafkaProtocolError),
    (ours.KafkaTimeoutError, theirs.KafkaTimeoutError),
)

#: How Kafka's older coordinators report a fenced producer.
_FENCED = frozenset({theirs.InvalidProducerEpoch.errno, 90})


def translated(error: ours.KafkaError) -> Exception:
    """Return aiokafka's exception for this error, with it as the cause; `ConfigError` and a ValueError stay as they are."""
    if isinstance(error, ours.ConfigError):
        return error
    found = theirs.in_both_hierarchies(_kind_of(error), str(error))
    found.__cause__ = error
    return found


def _kind_of(error: BaseException) -> type[Exception]:
    """The class by the error itself or, if that only says that a record or a transaction failed, by its reason."""
    if isinstance(error, ours.BrokerError):
        return theirs.ProducerFenced if error.code in _FENCED else theirs.for_code(error.code)
    for kind, name in _KINDS:
        if isinstance(error, kind):
            return name
    if isinstance(error, ours.InvalidRecord):
        return ValueError
    if isinstance(error, ours.DeliveryError) and error.last_error is not None and isinstance(error, TimeoutError):
        return _kind_of(error.last_error.error)
    if isinstance(error, ours.DeliveryError | ours.TransactionError) and error.__cause__ is not None:
        return _kind_of(error.__cause__)
    return theirs.KafkaTimeoutError if isinstance(error, TimeoutError) else theirs.KafkaError


@contextmanager
def translating() -> Generator[None, None, None]:
    """Raise aiokafka's exceptions in place of aioproducer's."""
    try:
        yield
    except ours.KafkaError as error:
        raise translated(error) from error
