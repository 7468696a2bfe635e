"""The transaction of an ``async with``: committed at its end, aborted on any exception."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum, auto
from types import TracebackType
from typing import TYPE_CHECKING, cast

import anyio

from aioproducer.config import ProducerConfig
from aioproducer.core.backoff import ExponentialBackoff
from aioproducer.core.transaction_handle import TransactionHandle
from aioproducer.errors import (
    CommitFailed,
    ConfigError,
    DeliveryError,
    KafkaError,
    ReopenRequired,
    SendManyError,
    TransactionAbortable,
    TransactionError,
    TransactionStateError,
)
from aioproducer.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from typing import Self

    from aioproducer.producer import Producer

__all__ = ["Attempts", "Next", "Transaction", "checked_group", "checked_offsets", "what_next"]

logger = logging.getLogger("aioproducer")


class Next(Enum):
    """What to do after a transaction that failed."""

    REDO = auto()
    REOPEN = auto()  # and then do it again
    GIVE_UP = auto()


#: The first class that an error belongs to decides (KIP-1050).
_NEXT: Mapping[type[KafkaError], Next] = {
    CommitFailed: Next.GIVE_UP,  # its consumer has to rejoin first
    TransactionAbortable: Next.REDO,
    ReopenRequired: Next.REOPEN,
    TransactionError: Next.GIVE_UP,
    DeliveryError: Next.REDO,  # the records are aborted, whatever became of them
}


def what_next(error: KafkaError) -> Next:
    """What to do after this error of a transaction, or of a record in it.

    A record that failed says why: where that ended more than its transaction, it counts.
    """
    if isinstance(error, SendManyError):
        error = error.error
    cause = error.__cause__ if isinstance(error, DeliveryError) else None
    told = cause if isinstance(cause, TransactionError) else error
    return next((way_on for kind, way_on in _NEXT.items() if isinstance(told, kind)), Next.GIVE_UP)


class Attempts:
    """Counts how often the work of a transaction was tried, and says how to go on."""

    def __init__(self, most: int, config: ProducerConfig, random: Callable[[], float]) -> None:
        """Raises `ConfigError` unless ``most`` is a whole number from 1."""
        if type(most) is not int or most < 1:
            raise ConfigError(f"attempts={most!r}: that is a whole number from 1.")
        self._most = most
        self._made = 0
        self._transactional_id = config.transactional_id
        self._backoff = ExponentialBackoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000)
        self._random = random

    def after(self, error: KafkaError) -> Next:
        """What to do after an attempt that failed."""
        self._made += 1
        if self._made >= self._most:
            return Next.GIVE_UP
        logger.info("Attempt %d at a transaction of %r failed: %s", self._made, self._transactional_id, error)
        return what_next(error)

    def pause(self) -> float:
        """The seconds to wait before the next one."""
        return self._backoff.delay(self._made - 1, self._random())


class Transaction:
    """One transaction of a producer, to be entered once.

    ::

        async with producer.transaction() as txn:
            await txn.enqueue("orders", b"value")
            await txn.send_offsets({TopicPartition("in", 0): 42}, consumer_group)

    Leaving it normally commits: when that has returned, everything in it is visible to readers with
    ``isolation_level=read_committed``. Where it raises `TransactionAbortable`, the transaction was aborted, and nothing is
    visible; `CommitUnknown` says that nobody can tell. Leaving it by an exception aborts, and the exception goes on its way.

    ``send``, ``enqueue``, ``enqueue_nowait``, ``send_many``, ``send_table`` and ``flush`` are those of the producer.

    Cancellation: within the block it aborts, like any exception, and that is waited for. While it commits, the commit
    goes on in the background, and the next transaction waits for it; where it fails, entering that one raises its error.
    """

    def __init__(self, producer: Producer, begin: Callable[[], Awaitable[None]]) -> None:
        self._producer = producer
        self._begin = begin
        self._entered = False
        self.send = producer.send
        self.enqueue = producer.enqueue
        self.enqueue_nowait = producer.enqueue_nowait
        self.send_many = producer.send_many
        self.send_table = producer.send_table
        self.flush = producer.flush

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata | str,
        timeout: float | None = None,
    ) -> None:
        """Commit a consumer's positions with the transaction; see `Producer.send_offsets_to_transaction`."""
        await self._producer.send_offsets_to_transaction(offsets, group, timeout)

    def handle(self) -> TransactionHandle:
        """What another process needs to write into this transaction; see `Producer.transaction_handle`."""
        return self._producer.transaction_handle()

    async def __aenter__(self) -> Self:
        if self._entered:
            raise TransactionStateError("This transaction was entered before; producer.transaction() makes a new one.")
        self._entered = True
        await self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            try:
                await self._producer.commit_transaction()
            except TransactionAbortable:
                await self._abort()
                raise
        else:
            await self._abort()

    async def _abort(self) -> None:
        """Abort, without hiding why."""
        with anyio.CancelScope(shield=True):  # an anyio scope that was cancelled would interrupt every await in here
            try:
                await self._producer.abort_transaction()
            except KafkaError as error:
                logger.warning("The transaction could not be aborted: %s", error)


def checked_offsets(
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The positions, each with everything that belongs to it. Raises `ConfigError` for what is none."""
    checked: dict[TopicPartition, OffsetAndMetadata] = {}
    for partition, offset in offsets.items():
        whole = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        if not _is_partition(partition):
            raise ConfigError(f"offsets[{partition!r}]: that is no partition, but (topic, number) is.")
        if not _is_whole(whole.offset, 0, _INT64_MAX):
            raise ConfigError(f"offsets[{partition!r}]={offset!r}: a position is a whole number from 0.")
        if not (_is_text(whole.metadata) and _is_whole(whole.leader_epoch, -1, _INT32_MAX)):
            raise ConfigError(
                f"offsets[{partition!r}]={offset!r}: metadata is text of up to {_TEXT_MAX} bytes, and leader_epoch a whole "
                "number; -1 where it is not known."
            )
        checked[TopicPartition(*partition)] = whole
    return checked


def checked_group(group: ConsumerGroupMetadata | str) -> ConsumerGroupMetadata:
    """The whole metadata of a group. Raises `ConfigError` where it has no name, or one of them cannot be sent."""
    whole = group if isinstance(group, ConsumerGroupMetadata) else ConsumerGroupMetadata(group)
    if not (_is_text(whole.group_id) and whole.group_id):
        raise ConfigError(f"group={group!r}: a consumer's group has a name.")
    if not (
        _is_whole(whole.generation_id, -1, _INT32_MAX)
        and _is_text(whole.member_id)
        and (whole.group_instance_id is None or _is_text(whole.group_instance_id))
    ):
        raise ConfigError(
            f"group={group!r}: generation_id is a whole number, -1 where there is none, and member_id and "
            "group_instance_id are text."
        )
    return whole


# What cannot be encoded must be refused here: in the task that talks to the coordinator it would end the producer.
_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
_TEXT_MAX = 2**15 - 1


def _is_whole(value: object, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _is_text(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        return len(value.encode()) <= _TEXT_MAX
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


def _is_partition(partition: object) -> bool:
    if not isinstance(partition, tuple) or len(cast("tuple[object, ...]", partition)) != 2:
        return False
    topic, number = cast("tuple[object, object]", partition)
    return _is_text(topic) and bool(topic) and _is_whole(number, 0, _INT32_MAX)
