"""Begins and ends transactions that others write into: what the driver of several writers holds.

The rules are few, as nothing goes on here when a call has ended:

1. Coordinators decide. Whoever comes first commits or aborts; the others are told so, and what is repeated is answered as
   the first time. So every call may be made again, by anybody who has the handle.
2. Only of a commit that may have been sent and has no answer is anything remembered, and of offsets that nobody confirmed:
   the one keeps a later refusal from passing for the fate of the transaction, the other keeps it from being committed
   without them.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import Self, Unpack, cast

import anyio

from aioproducer.arguments import check_timeout, checked_group, checked_name, checked_offsets, checked_partition
from aioproducer.config import ProducerConfig, ProducerOptions
from aioproducer.core.transactions.failures import commit_unknown
from aioproducer.core.transactions.handle import TransactionHandle
from aioproducer.core.transactions.manager import TransactionManager
from aioproducer.core.transactions.offsets import committed_offsets
from aioproducer.core.transactions.operation import Operation
from aioproducer.core.transactions.queries import Fate, open_transaction, transaction_fate
from aioproducer.errors import (
    AuthenticationError,
    BrokerError,
    CommitUnknown,
    ConfigError,
    KafkaError,
    KafkaTimeoutError,
    NotStarted,
    ProducerClosed,
    ProducerFenced,
    ProducerStateError,
    ReopenRequired,
    SharedPartition,
    TransactionAbortable,
    TransactionError,
    TransactionStateError,
    UnsupportedVersion,
)
from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.transactions.conversations import Attempt, Coordination
from aioproducer.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition, Written

__all__ = ["TransactionCoordinatorClient"]

_client_numbers = itertools.count(1)

#: Options that a client which serves many transactions cannot have.
_OF_ONE_TRANSACTION = frozenset({"transactional_id", "transaction_timeout_ms", "transaction_two_phase_commit_enable"})


class TransactionCoordinatorClient:
    """Begins transactions, hands them out, and ends them; the records are written elsewhere.

    ::

        async with TransactionCoordinatorClient("localhost:9092") as coordinator:
            handle = await coordinator.init("nightly-load")
            reports = await write_somewhere(handle)  # each with Producer.attach(handle, ...)
            await coordinator.commit(handle, written=reports)

    Everything that several processes wrote with a handle becomes visible at once, or never. One client serves any number of
    transactional ids and tasks at the same time over one pool of connections, and keeps no transaction open: whoever has a
    handle can end its transaction with a client of their own. What is not ended within its ``transaction_timeout_ms`` is
    aborted by the coordinator, and what was left behind by the next ``init`` with the same ``transactional_id``.

    Options carry the names, the meaning and the defaults of `ProducerConfig`. Those of connections, security, timeouts and
    pauses count; those of records mean nothing here, so that the options of the writers can be used.

    Making one does no I/O; entering it waits for no broker. A ``timeout`` is a number of seconds from 0, and bounds the
    whole call; None means ``max_block_ms``. When a call has ended nothing of it goes on: after a `KafkaTimeoutError` it
    may simply be made again. Every call raises `KafkaTimeoutError`, `AuthenticationError` where the credentials are
    refused, `ConfigError` for what it cannot have, and `ProducerStateError` (`NotStarted`, `ProducerClosed`,
    `WrongEventLoop`, `ForkedProcess`, `ProducerDied`) where the client cannot be used.
    """

    def __init__(
        self, bootstrap_servers: str | Sequence[str] | ProducerConfig, **options: Unpack[ProducerOptions]
    ) -> None:
        """Check the options; `ConfigError` says what is wrong with which.

        ``bootstrap_servers`` is ``"host:port,host:port"``, a sequence of these, or a whole `ProducerConfig`, which
        ``options`` then change.
        """
        misplaced = sorted(_OF_ONE_TRANSACTION.intersection(options))
        if misplaced:
            raise ConfigError(
                f"{', '.join(misplaced)}: a coordinator client serves any number of transactions. Give init() the "
                "transactional_id and the transaction_timeout_ms of each."
            )
        if isinstance(bootstrap_servers, ProducerConfig):
            config = bootstrap_servers.replace(**options) if options else bootstrap_servers
        else:
            config = ProducerConfig.create(bootstrap_servers, **options)
        if config.transaction_two_phase_commit_enable:
            raise ConfigError(
                "transaction_two_phase_commit_enable=True: a coordinator client has no two-phase commit; leave it out, and "
                "prepare with a Producer."
            )
        self.config = config
        self.client_id = config.client_id or f"aioproducer-coordinator-{next(_client_numbers)}"
        self._random = Random()
        self._coordination: Coordination | None = None
        self._closed = False
        self._in_doubt: set[TransactionHandle] = set()
        self._unconfirmed: dict[TransactionHandle, set[tuple[str, TopicPartition]]] = {}

    # -- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> Self:
        """Start the connections; what ``async with`` does on entering. Waits for no broker.

        Raises `ProducerStateError` where it is started already. Cancellation: nothing is awaited here.
        """
        running = self._coordination
        if running is not None:
            raise ProducerStateError("The coordinator client is started.") if running.is_usable else running.refusal()
        self._closed = False
        self._coordination = Coordination(self.config, self.client_id, self._random)
        self._coordination.start()
        return self

    async def close(self) -> None:
        """End every waiting call and all connections. Open transactions stay open.

        A commit that is waited for elsewhere raises `CommitUnknown` if it may have been sent, else `ProducerClosed`. Later
        calls do nothing; the client may be started again. Cancellation: everything still ends.
        """
        running = self._coordination
        if running is None:
            return
        is_here = running.loop is asyncio._get_running_loop()  # None in a fork, where get_running_loop() would raise
        if not is_here and (running.is_forked or not running.loop.is_closed()):
            raise running.refusal()
        self._coordination, self._closed = None, True
        if is_here:  # else everything of it went with its loop
            await running.stop()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):  # an anyio scope that was cancelled would interrupt every await in here
            await self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "created" if self._coordination is None else "started"
        servers = ",".join(self.config.bootstrap_servers)
        return f"<TransactionCoordinatorClient {self.client_id} to {servers} [{state}]>"

    # -- transactions -------------------------------------------------------------------------------------------------

    async def init(
        self, transactional_id: str, *, transaction_timeout_ms: int = 60_000, timeout: float | None = None
    ) -> TransactionHandle:
        """Begin a transaction: a handle with which others write into it, under an epoch that nobody had before.

        Whatever was open with this ``transactional_id`` is aborted, and every earlier handle and producer of it fenced. Its
        coordinator aborts the new one if it is not ended within ``transaction_timeout_ms`` of the first write. Make one for
        each transaction: in version 1 of the protocol a handle still opens a new transaction when its own has ended.

        Raises `TransactionFatal` where the coordinator refuses, and says why; once that is put right it may be called again.
        Cancellation: as when time runs out, earlier handles may be fenced or not.
        """
        running, deadline = self._begin(timeout)
        name = checked_name("transactional_id", transactional_id)
        timeout_ms = self.config.replace(transaction_timeout_ms=transaction_timeout_ms).transaction_timeout_ms
        manager = running.initializing_manager(name, timeout_ms)

        async def ask(attempt: Attempt) -> None:
            operation = manager.initialize()
            await running.run_requests(manager, attempt)
            _raise_error_of(operation)

        await running.within(deadline, f"init() of transactional_id {name!r}", ask)
        manager.begin()
        return manager.handle()

    async def send_offsets(
        self,
        handle: TransactionHandle,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata | str,
        timeout: float | None = None,
    ) -> None:
        """Commit a consumer's positions with the transaction: they count if it is committed (KIP-447).

        ``offsets`` are those of the *next* records to read. ``group`` is the consumer's group id or, better, its whole
        metadata, with which a member that has lost its partitions is fenced. If it raises, the transaction cannot be
        committed by this client before the same offsets were sent again and taken; it can be aborted.

        Raises `CommitFailed` where the group refuses them, `TransactionAbortable`, `ProducerFenced`, `ProducerIdExpired`,
        `TransactionFatal`. Cancellation: as when time runs out, they may be part of the transaction or not.
        """
        running, deadline = self._begin(timeout)
        positions, whole = checked_offsets(offsets), checked_group(group)
        named = {(whole.group_id, partition) for partition in positions}
        self._unconfirmed.setdefault(_handle(handle), set()).update(named)
        if not positions:
            return self._confirm(handle, named)

        def send_offsets(manager: TransactionManager) -> Operation:
            return manager.send_offsets(positions, whole)

        try:
            await self._carry_out(running, handle, deadline, send_offsets)
        except ReopenRequired:
            self._unconfirmed.pop(handle, None)  # every later call hears the same from the coordinator
            raise
        self._confirm(handle, named)

    async def commit(
        self,
        handle: TransactionHandle,
        *,
        written: Iterable[Mapping[TopicPartition, Written]] = (),
        timeout: float | None = None,
    ) -> None:
        """Commit: everything in the transaction becomes visible at once to readers with ``read_committed``.

        Call it when all writers have closed. ``written`` is what each of them reports (`Producer.written`); two reports
        with the same partition raise `SharedPartition` before anything is asked, and the transaction stays open to be
        aborted. It returns as well where this very transaction was committed before, also by another process, as long as
        no newer one was begun; and where nothing was ever written into it.

        Raises `CommitUnknown` where it was sent and nobody has told what became of it, also where time runs out then: call
        it again, as soon as the coordinator answers it tells. After any other error it was not committed by this call:
        `TransactionAbortable` where it was aborted before, as by its timeout; `ProducerFenced` where a newer ``init``, or
        its timeout, ended it, unless it was committed before that; `ProducerIdExpired`; `TransactionFatal`;
        `TransactionStateError` where offsets are not confirmed. Cancellation: it may be committed or not; call it again.
        """
        running, deadline = self._begin(timeout)
        reports = _reports(written)
        _refuse_shared(_handle(handle), reports)
        self._refuse_unconfirmed(handle)
        try:
            await self._carry_out(running, handle, deadline, TransactionManager.commit)
        except TransactionError as error:
            if not _is_invalid_state(error):
                raise
            await self._explain_commit(running, handle, error, deadline, wrote=any(reports))
        self._forget(handle)

    async def abort(self, handle: TransactionHandle, timeout: float | None = None) -> None:
        """Abort: nothing of the transaction becomes visible to readers with ``read_committed``.

        It returns as well where it was aborted before, and where nothing was ever written into it. Writers that go on
        writing are refused from then on; in version 1 of the protocol they open another transaction instead, which nobody
        commits and the next ``init`` aborts.

        Raises `TransactionStateError` where the transaction was committed, or the brokers are too old (before Kafka 3.0)
        to tell that from one that nobody wrote into. Raises `ProducerFenced` where a newer ``init``, or its timeout, ended
        it; `CommitUnknown` where that may have come after a commit without an answer; `ProducerIdExpired`;
        `TransactionFatal`. Cancellation: as when time runs out, it may be aborted or not; call it again.
        """
        running, deadline = self._begin(timeout)
        fate: Fate | None = Fate.OPEN
        while fate is Fate.OPEN:  # also where a writer opened it after it was found to be empty
            manager = await self._carry_out(running, _handle(handle), deadline, TransactionManager.abort)
            if manager.abort_refused is None:
                break
            fate = await self._fate(running, handle, deadline)
            if fate is not Fate.OPEN and fate not in _NOTHING_TO_ABORT:
                raise _not_aborted(handle, fate, is_in_doubt=handle in self._in_doubt) from manager.abort_refused
        self._forget(handle)

    async def committed(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition],
        *,
        require_stable: bool = True,
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Where a consumer group stands: the committed position in each partition, None where it has committed none.

        With ``require_stable`` (KIP-447, brokers from Kafka 2.5 on) it waits for open transactions that have positions for
        one of the partitions; without it, positions of these do not count yet.

        Raises `KafkaTimeoutError` with UNSTABLE_OFFSET_COMMIT as its cause where such a transaction stays open,
        `BrokerError` where the coordinator refuses, with the right that is missing, and `UnsupportedVersion` where the
        broker cannot tell what is stable. Cancellation: nothing was changed.
        """
        running, deadline = self._begin(timeout)
        name = checked_name("group_id", group_id)
        wanted = {checked_partition("partitions", each) for each in partitions}
        if not wanted:
            return {}
        query = committed_offsets(name, wanted, require_stable=require_stable)
        try:
            return await running.answer(query, deadline, f"committed() of group {name!r}")
        except UnsupportedVersion as error:
            if not require_stable:
                raise
            raise UnsupportedVersion(
                f"{error} What is stable can be told by brokers from Kafka 2.5 on; with require_stable=False open "
                "transactions are not waited for."
            ) from error

    async def has_open_transaction(self, transactional_id: str, *, timeout: float | None = None) -> bool:
        """Whether a transaction of this id is going on: somebody writes in it, or it is being ended.

        It says nothing of a transaction that was begun and that nobody has written into. Raises `UnsupportedVersion` where
        the brokers are too old to tell (before Kafka 3.0), and `BrokerError` where the coordinator refuses, with the right
        that is missing. Cancellation: nothing was changed.
        """
        running, deadline = self._begin(timeout)
        name = checked_name("transactional_id", transactional_id)
        return await running.answer(open_transaction(name), deadline, f"has_open_transaction() of {name!r}")

    async def transaction_version(self, *, timeout: float | None = None) -> int:
        """The version of the transaction protocol that the brokers have agreed on, their feature ``transaction.version``.

        From 2 on (KIP-890, Kafka 4.0) the end of a transaction gives the next epoch: whoever still writes with its handle
        is refused. Below that such a writer opens another transaction. Cancellation: nothing was changed.
        """
        running, deadline = self._begin(timeout)

        async def read(_tried: Attempt) -> int:
            return running.transaction_version

        return await running.within(deadline, "transaction_version()", read)

    # -- how ----------------------------------------------------------------------------------------------------------

    def _begin(self, timeout: float | None) -> tuple[Coordination, float]:
        running = self._coordination
        if running is None:
            raise (
                ProducerClosed("The coordinator client is closed. Re-enter it with `async with`, or create a new one.")
                if self._closed
                else NotStarted(
                    "The coordinator client is not started: use it within `async with client:`, or call start()."
                )
            )
        if not running.is_usable:
            raise running.refusal()
        seconds = check_timeout(timeout, ConfigError)
        return running, running.loop.time() + (self.config.max_block_ms / 1000 if seconds is None else seconds)

    async def _carry_out(
        self,
        running: Coordination,
        handle: TransactionHandle,
        deadline: float,
        begin: Callable[[TransactionManager], Operation],
    ) -> TransactionManager:
        """Do one thing to the transaction of a handle; returns who did it. Raises what became of it, or why it ended."""

        async def work(attempt: Attempt) -> TransactionManager:
            manager = running.attached(handle)
            operation = begin(manager)
            try:
                await running.run_requests(manager, attempt)
            finally:
                if not operation.is_done:
                    manager.close(KafkaError("The call ended before it was answered."))
                if isinstance(operation.error, CommitUnknown):
                    self._in_doubt.add(handle)
            _raise_error_of(operation)
            return manager

        try:
            return await running.within(deadline, f"{begin.__name__}() of {_named(handle)}", work)
        except (AuthenticationError, KafkaTimeoutError, ProducerStateError) as error:
            if handle in self._in_doubt:
                raise _unknown_yet(handle, error) from error
            raise
        except ReopenRequired as error:
            if handle in self._in_doubt:
                raise commit_unknown(handle.transactional_id, error) from error
            raise

    async def _explain_commit(
        self, running: Coordination, handle: TransactionHandle, error: TransactionError, deadline: float, *, wrote: bool
    ) -> None:
        """Return if a commit that was refused has nothing left to do, else raise why it was refused."""
        try:
            fate = await self._fate(running, handle, deadline)
        except (AuthenticationError, KafkaTimeoutError, ProducerStateError):
            raise error from error.__cause__
        if fate is Fate.COMMITTED or (fate is Fate.EMPTY and not wrote):
            return
        if fate not in _NOTHING_TO_ABORT:
            raise error
        self._in_doubt.discard(handle)
        what = "was aborted before" if fate is Fate.ABORTED else "is empty, although its writers report that they wrote"
        raise TransactionAbortable(
            f"commit() of {_named(handle)} is not possible: it {what}. The same work may succeed in a new one."
        ) from error.__cause__

    async def _fate(self, running: Coordination, handle: TransactionHandle, deadline: float) -> Fate | None:
        """What became of the transaction; None where the coordinator cannot tell."""
        query = transaction_fate(handle, bumps_epoch=running.bumps_epoch)
        try:
            return await running.answer(query, deadline, f"To ask what became of {_named(handle)}")
        except (UnsupportedVersion, BrokerError):
            return None

    def _confirm(self, handle: TransactionHandle, named: set[tuple[str, TopicPartition]]) -> None:
        left = self._unconfirmed.get(handle, set()) - named
        if left:
            self._unconfirmed[handle] = left
        else:
            self._unconfirmed.pop(handle, None)

    def _refuse_unconfirmed(self, handle: TransactionHandle) -> None:
        missing = sorted(self._unconfirmed.get(handle, ()))
        if missing:
            names = ", ".join(f"{partition} of group {group!r}" for group, partition in missing)
            raise TransactionStateError(
                f"commit() of {_named(handle)} is not possible: it is not known whether the offsets of {names} are part of "
                "it. Call send_offsets() again, or abort it."
            )

    def _forget(self, handle: TransactionHandle) -> None:
        self._in_doubt.discard(handle)
        self._unconfirmed.pop(handle, None)


#: Where an abort was refused, and is as good as done.
_NOTHING_TO_ABORT = frozenset({Fate.EMPTY, Fate.ABORTED})


def _named(handle: TransactionHandle) -> str:
    return (
        f"the transaction of transactional_id {handle.transactional_id!r} (producer id {handle.producer_id}, epoch "
        f"{handle.producer_epoch})"
    )


def _raise_error_of(operation: Operation) -> None:
    operation.acknowledge()
    if operation.error is not None:
        raise operation.error


def _is_invalid_state(error: TransactionError) -> bool:
    cause = error.__cause__
    return isinstance(cause, BrokerError) and cause.code == ErrorCode.INVALID_TXN_STATE


def _unknown_yet(handle: TransactionHandle, cause: KafkaError) -> CommitUnknown:
    return CommitUnknown(
        f"It is not known whether {_named(handle)} is committed: {cause} Call commit() or abort() again: as soon as its "
        "coordinator answers, that tells."
    )


def _not_aborted(handle: TransactionHandle, fate: Fate | None, *, is_in_doubt: bool) -> KafkaError:
    if fate is Fate.COMMITTED:
        return TransactionStateError(f"abort() came too late: {_named(handle)} is committed.")
    if fate is Fate.FORGOTTEN and is_in_doubt:
        return CommitUnknown(f"Others came after {_named(handle)}: nobody can tell any more whether it was committed.")
    if fate is Fate.FORGOTTEN:
        return ProducerFenced(f"There is nothing to abort: others came after {_named(handle)}.")
    return TransactionStateError(
        f"There is nothing to abort: either nobody wrote into {_named(handle)}, or it was committed before. Its coordinator "
        "does not tell which: that takes Kafka 3.0, and the right to DESCRIBE the transactional id."
    )


def _handle(handle: TransactionHandle) -> TransactionHandle:
    """The handle itself. Raises `ConfigError` for what is none."""
    if not isinstance(handle, TransactionHandle):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"handle={handle!r}: that is no TransactionHandle.")
    return handle


def _reports(written: Iterable[Mapping[TopicPartition, Written]]) -> list[set[TopicPartition]]:
    """The partitions that each writer has written. Raises `ConfigError` for what is no report."""
    reports: list[object] = [None] if isinstance(written, Mapping) else list(written)
    partitions: list[set[TopicPartition]] = []
    for report in reports:
        if not isinstance(report, Mapping):
            raise ConfigError(
                f"written={written!r}: give a list with the mapping of each writer, as Producer.written is one."
            )
        of_one = cast("Mapping[TopicPartition, Written]", report)
        partitions.append({checked_partition("written", partition) for partition in of_one})
    return partitions


def _refuse_shared(handle: TransactionHandle, reports: list[set[TopicPartition]]) -> None:
    writers: dict[TopicPartition, int] = {}
    for number, partitions in enumerate(reports):
        for partition in sorted(partitions):
            first = writers.setdefault(partition, number)
            if first != number:
                raise SharedPartition(
                    f"{partition} was written by two writers of {_named(handle)}, number {first} and {number} in `written`. "
                    "What they were told counts for nothing: abort it, and give each partition to one writer."
                )
