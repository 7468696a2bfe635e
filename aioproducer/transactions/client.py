"""Begins and ends transactions that other processes write into; the driver of several writers uses it.

There are few rules, because nothing continues after a call has ended:

1. Coordinators decide. The first call commits or aborts; later calls fail with that outcome, and a repeated call gets the
   same response as the first time. So every call may be repeated, by any process that has the handle.
2. The client remembers only commits that may have been sent without a response, and unconfirmed offsets: the first so that a
   later refusal is not mistaken for the transaction's outcome, the second so that no commit leaves them out.
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
from aioproducer.core.transactions.queries import TransactionFate, open_transaction, transaction_fate
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
from aioproducer.runtime.detached import detached
from aioproducer.transactions.conversations import Attempt, Coordination
from aioproducer.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition, Written

__all__ = ["TransactionCoordinatorClient"]

_client_numbers = itertools.count(1)

#: Options that a client which serves many transactions cannot have.
_OF_ONE_TRANSACTION = frozenset({"transactional_id", "transaction_timeout_ms", "transaction_two_phase_commit_enable"})


class TransactionCoordinatorClient:
    """Begins transactions, returns handles to them, and ends them; other processes write the records.

    ::

        async with TransactionCoordinatorClient("localhost:9092") as coordinator:
            handle = await coordinator.init("nightly-load")
            reports = await write_somewhere(handle)  # each with Producer.attach(handle, ...)
            await coordinator.commit(handle, written=reports)

    Everything that several processes wrote with a handle becomes visible at once, or never. One client serves any number of
    transactional ids and tasks at the same time over one pool of connections, and holds no transaction open: any process
    that has a handle can end its transaction with its own client. The coordinator aborts a transaction that is not ended
    within its ``transaction_timeout_ms``, and the next ``init`` with the same ``transactional_id`` aborts one that was left
    open.

    Options have the names, the meaning and the defaults of `ProducerConfig`. Those for connections, security, timeouts and
    pauses are used; those for records are ignored, so that the options of the writers can be passed.

    Creating it does no I/O; entering it waits for no broker. A ``timeout`` is in seconds, at least 0, for the whole call;
    None means ``max_block_ms``. When a call has ended, nothing of it continues: after a `KafkaTimeoutError` it may simply be
    repeated. Every call raises `KafkaTimeoutError`, `AuthenticationError` if the credentials are refused, `ConfigError` for
    invalid arguments, and `ProducerStateError` (`NotStarted`, `ProducerClosed`, `WrongEventLoop`, `ForkedProcess`,
    `ProducerDied`) if the client cannot be used.
    """

    def __init__(
        self, bootstrap_servers: str | Sequence[str] | ProducerConfig, **options: Unpack[ProducerOptions]
    ) -> None:
        """Check the options; `ConfigError` says which one is wrong, and why.

        ``bootstrap_servers`` is ``"host:port,host:port"``, a sequence of these, or a whole `ProducerConfig`, which
        ``options`` then change.
        """
        misplaced = sorted(_OF_ONE_TRANSACTION.intersection(options))
        if misplaced:
            raise ConfigError(
                f"{', '.join(misplaced)}: a coordinator client serves any number of transactions. Pass init() the "
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

        Raises `ProducerStateError` if it is started already. Cancellation: nothing is awaited here.
        """
        running = self._coordination
        if running is not None:
            raise (
                ProducerStateError("The coordinator client is already started.")
                if running.is_usable
                else running.refusal()
            )
        self._closed = False
        self._coordination = Coordination(self.config, self.client_id, self._random)
        self._coordination.start()
        return self

    async def close(self) -> None:
        """End every waiting call and all connections. Open transactions stay open.

        A waiting commit raises `CommitUnknown` if it may have been sent, else `ProducerClosed`. Later
        calls do nothing; the client may be started again. Cancellation: everything still ends.
        """
        running = self._coordination
        if running is None:
            return
        is_here = running.loop is asyncio._get_running_loop()  # None in a fork, where get_running_loop() would raise
        if not is_here and (running.is_forked or not running.loop.is_closed()):
            raise running.refusal()
        self._coordination, self._closed = None, True
        if is_here:  # otherwise everything ended with its loop
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
        """Begin a transaction: returns a handle with which other processes write into it, under a new epoch.

        An open transaction with this ``transactional_id`` is aborted, and all its earlier handles and producers are fenced.
        The coordinator aborts the new one if it is not ended within ``transaction_timeout_ms`` of the first write. Call it
        for each transaction: in version 1 of the protocol a handle still opens a new transaction when its own has ended.

        Raises `TransactionFatal` if the coordinator refuses, with its reason; when that is fixed it may be called again.
        Cancellation: as after a timeout, earlier handles may be fenced or not.
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
        metadata, which fences a member that has lost its partitions. If it raises, this client cannot commit the transaction
        before the same offsets were sent again and accepted; it can abort it.

        Raises `CommitFailed` if the group refuses them, `TransactionAbortable`, `ProducerFenced`, `ProducerIdExpired`,
        `TransactionFatal`. Cancellation: as after a timeout, they may be part of the transaction or not.
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
            self._unconfirmed.pop(handle, None)  # the coordinator answers every later call in the same way
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

        Call it when all writers have closed. ``written`` is the list of their reports (`Producer.written`); two reports with
        the same partition raise `SharedPartition` before any request, and the transaction stays open, to be aborted. It also
        returns if this transaction was committed before, even by another process, as long as no newer one was begun; and if
        nothing was ever written into it.

        Raises `CommitUnknown` if it was sent and the outcome is not known, also after a timeout: call it again, and it
        returns the outcome as soon as the coordinator answers. After any other error this call has not committed it:
        `TransactionAbortable` if it was aborted before, for example by its timeout; `ProducerFenced` if a newer ``init``, or
        its timeout, ended it, unless it was committed before that; `ProducerIdExpired`; `TransactionFatal`;
        `TransactionStateError` if offsets are not confirmed. Cancellation: it may be committed or not; call it again.
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

        It also returns if it was aborted before, and if nothing was ever written into it. Writers that continue are refused
        from then on; in version 1 of the protocol they open another transaction instead, which is never committed, and which
        the next ``init`` aborts.

        Raises `TransactionStateError` if the transaction was committed, or if the brokers are too old (before Kafka 3.0) to
        distinguish that from an empty one. Raises `ProducerFenced` if a newer ``init``, or its timeout, ended it;
        `CommitUnknown` if that may have happened after a commit without a response; `ProducerIdExpired`; `TransactionFatal`.
        Cancellation: as after a timeout, it may be aborted or not; call it again.
        """
        running, deadline = self._begin(timeout)
        fate: TransactionFate | None = TransactionFate.OPEN
        while fate is TransactionFate.OPEN:  # also if a writer opened it after it was found empty
            manager = await self._carry_out(running, _handle(handle), deadline, TransactionManager.abort)
            if manager.abort_refused is None:
                break
            fate = await self._fate(running, handle, deadline)
            if fate is not TransactionFate.OPEN and fate not in _NOTHING_TO_ABORT:
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
        """A consumer group's committed position in each partition, None if it has committed none.

        With ``require_stable`` (KIP-447, brokers from Kafka 2.5 on) it waits for open transactions with positions for one of
        the partitions; without it, such positions do not count yet.

        Raises `KafkaTimeoutError` with UNSTABLE_OFFSET_COMMIT as its cause if such a transaction stays open,
        `BrokerError` if the coordinator refuses, with the missing right, and `UnsupportedVersion` if the broker does
        not support ``require_stable``. Cancellation: nothing was changed.
        """
        running, deadline = self._begin(timeout)
        name = checked_name("group_id", group_id)
        wanted = {checked_partition("partitions", each) for each in partitions}
        if not wanted:
            return {}
        query = committed_offsets(name, wanted, require_stable=require_stable)
        try:
            return await running.ask(query, deadline, f"committed() of group {name!r}")
        except UnsupportedVersion as error:
            if not require_stable:
                raise
            raise UnsupportedVersion(
                f"{error} require_stable needs brokers from Kafka 2.5 on; with require_stable=False open "
                "transactions are not waited for."
            ) from error

    async def has_open_transaction(self, transactional_id: str, *, timeout: float | None = None) -> bool:
        """Whether a transaction of this id is open: it has been written to, or it is being ended.

        A transaction that has not been written to does not count. Raises `UnsupportedVersion` if the brokers are too old
        (before Kafka 3.0), and `BrokerError` if the coordinator refuses, with the missing right. Cancellation: nothing was
        changed.
        """
        running, deadline = self._begin(timeout)
        name = checked_name("transactional_id", transactional_id)
        return await running.ask(open_transaction(name), deadline, f"has_open_transaction() of {name!r}")

    async def transaction_version(self, *, timeout: float | None = None) -> int:
        """The version of the transaction protocol that the brokers have agreed on, their feature ``transaction.version``.

        From 2 on (KIP-890, Kafka 4.0) the end of a transaction starts the next epoch: a writer that still uses its handle is
        refused. Below 2 such a writer opens another transaction. Cancellation: nothing was changed.
        """
        running, deadline = self._begin(timeout)

        async def read(_tried: Attempt) -> int:
            return running.transaction_version

        return await running.within(deadline, "transaction_version()", read)

    # -- implementation -----------------------------------------------------------------------------------------------

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
        """Run one operation on a handle's transaction; returns its manager. Raises the operation's error."""

        async def work(attempt: Attempt) -> TransactionManager:
            manager = running.attached(handle)
            operation = begin(manager)
            try:
                await running.run_requests(manager, attempt)
            finally:
                if not operation.is_done:
                    manager.close(KafkaError("The call ended before the coordinator answered."))
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
        """Return if a refused commit has nothing left to do, else raise the reason of the refusal."""
        try:
            fate = await self._fate(running, handle, deadline)
        except (AuthenticationError, KafkaTimeoutError, ProducerStateError):
            raise error from error.__cause__
        if fate is TransactionFate.COMMITTED or (fate is TransactionFate.EMPTY and not wrote):
            return
        if fate not in _NOTHING_TO_ABORT:
            raise error
        self._in_doubt.discard(handle)
        what = (
            "was already aborted"
            if fate is TransactionFate.ABORTED
            else "is empty, although its writers report written records"
        )
        raise TransactionAbortable(
            f"commit() of {_named(handle)} failed: it {what}. The same work may succeed in a new one."
        ) from error.__cause__

    async def _fate(self, running: Coordination, handle: TransactionHandle, deadline: float) -> TransactionFate | None:
        """The outcome of the transaction; None if the coordinator does not know it."""
        query = transaction_fate(handle, bumps_epoch=running.bumps_epoch)
        try:
            return await running.ask(query, deadline, f"The query for the outcome of {_named(handle)}")
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
                f"commit() of {_named(handle)} was refused: it is not known whether the offsets of {names} are part of "
                "it. Call send_offsets() again, or abort it."
            )

    def _forget(self, handle: TransactionHandle) -> None:
        self._in_doubt.discard(handle)
        self._unconfirmed.pop(handle, None)


#: Outcomes after which a refused abort has nothing left to do.
_NOTHING_TO_ABORT = frozenset({TransactionFate.EMPTY, TransactionFate.ABORTED})


def _named(handle: TransactionHandle) -> str:
    return (
        f"the transaction of transactional_id {handle.transactional_id!r} (producer id {handle.producer_id}, epoch "
        f"{handle.producer_epoch})"
    )


def _raise_error_of(operation: Operation) -> None:
    operation.acknowledge()
    if operation.error is not None:
        raise detached(operation.error)


def _is_invalid_state(error: TransactionError) -> bool:
    cause = error.__cause__
    return isinstance(cause, BrokerError) and cause.code == ErrorCode.INVALID_TXN_STATE


def _unknown_yet(handle: TransactionHandle, cause: KafkaError) -> CommitUnknown:
    return CommitUnknown(
        f"It is not known whether {_named(handle)} is committed: {cause} Call commit() or abort() again, which return the "
        "outcome as soon as the coordinator answers."
    )


def _not_aborted(handle: TransactionHandle, fate: TransactionFate | None, *, is_in_doubt: bool) -> KafkaError:
    if fate is TransactionFate.COMMITTED:
        return TransactionStateError(f"abort() came too late: {_named(handle)} is committed.")
    if fate is TransactionFate.FORGOTTEN and is_in_doubt:
        return CommitUnknown(
            f"Newer transactions followed {_named(handle)}: it is no longer known whether it was committed."
        )
    if fate is TransactionFate.FORGOTTEN:
        return ProducerFenced(f"There is nothing to abort: newer transactions followed {_named(handle)}.")
    return TransactionStateError(
        f"There is nothing to abort: either {_named(handle)} was never written to, or it is already committed. Telling "
        "these apart needs Kafka 3.0 or later, and the permission DESCRIBE on the transactional id."
    )


def _handle(handle: TransactionHandle) -> TransactionHandle:
    """The handle itself. Raises `ConfigError` if it is invalid."""
    if not isinstance(handle, TransactionHandle):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"Invalid handle={handle!r}: must be a TransactionHandle.")
    return handle


def _reports(written: Iterable[Mapping[TopicPartition, Written]]) -> list[set[TopicPartition]]:
    """The partitions that each writer has written. Raises `ConfigError` for an invalid report."""
    reports: list[object] = [None] if isinstance(written, Mapping) else list(written)
    partitions: list[set[TopicPartition]] = []
    for report in reports:
        if not isinstance(report, Mapping):
            raise ConfigError(f"Invalid written={written!r}: must be a list with each writer's Producer.written.")
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
                    "Their acknowledgements are not reliable: abort it, and give each partition to one writer."
                )
