"""confluent-kafka's `Producer` by its names, over `aioproducer.SyncProducer`."""

# librdkafka's names of its own codes begin with an underscore.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import time
import warnings
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

from aioproducer.contrib.confluent.configuration import Translation, translate
from aioproducer.contrib.confluent.errors import KafkaError, KafkaException, error_of, exception_of
from aioproducer.contrib.confluent.failures import invalid, translating
from aioproducer.contrib.confluent.feed import Feed
from aioproducer.contrib.confluent.message import Message
from aioproducer.contrib.confluent.metadata import ClusterMetadata, described
from aioproducer.contrib.confluent.records import (
    DeliveryCallback,
    Pending,
    checked_group,
    checked_positions,
    checked_record,
)
from aioproducer.contrib.confluent.served import Events, LoopedProducer
from aioproducer.sync import SyncProducer
from aioproducer.types import TopicPartition

__all__ = ["Producer", "check_in_transaction", "check_size", "check_transactional", "limit", "warn_ignored"]

_T = TypeVar("_T")

#: Keys that every example of librdkafka has, so that no warning is due.
_SILENT: Final = frozenset({"logger", "log_level", "debug", "statistics.interval.ms", "socket.keepalive.enable"})


class Producer:
    """Sends records as confluent-kafka's class of this name does, by `aioproducer.SyncProducer`.

    ::

        producer = Producer({"bootstrap.servers": "localhost:9092"})
        producer.produce("orders", b"value", key=b"key", on_delivery=acked)
        producer.flush()

    The configuration is librdkafka's with its defaults, see `translate`: so no idempotence, unless you set
    ``enable.idempotence``. Callbacks run within ``poll()``, ``flush()`` and the end of a transaction, in the thread that
    calls these. Methods may be called from any thread. A fork needs its own producer.

    It differs from confluent-kafka in this. A partition that a topic does not have is reported to the callback, never raised
    by ``produce()``. ``poll()`` counts records. A message has its headers. ``abort_transaction()`` waits for what is in
    flight. ``error_cb`` gets fewer events: no broker connected, and fatal errors. ``linger.ms`` applies only while an
    earlier batch of the partition is in flight: a lone record is sent at once, and `purge` does not get it back. At exit, a
    producer that is still open delivers what it accepted, for up to ten seconds, without calling callbacks.
    """

    def __init__(self, *args: Mapping[str, object], **options: object) -> None:
        """Read the configuration: a dict, keywords, or both; raises `KafkaException` for an invalid one."""
        if len(args) > 1:
            raise TypeError("expected tuple containing single dict")
        if not args and not options:
            raise TypeError("expected configuration dict")
        if args and not isinstance(cast("object", args[0]), Mapping):
            raise TypeError("expected configuration dict")
        self._translation: Translation = translate({**(args[0] if args else {}), **options})
        warn_ignored(self._translation)
        with translating():
            self._looped = LoopedProducer(self._translation.bootstrap_servers, **self._translation.options)
            self._looped.start()
        self._events = Events()
        report = partial(_note, self._events, self._translation.only_errors)
        self._feed = Feed(self._looped.producer, self._translation, report)
        self._looped.feed_from(self._feed)
        self._is_closed = False
        self._in_transaction = False
        if self._translation.error_cb is not None:
            watch = partial(self._feed.watch, partial(_note_error, self._events, self._translation.error_cb))
            self._looped.post(watch)

    @property
    def producer(self) -> SyncProducer:
        """The producer that sends, for its metrics and health; not part of confluent-kafka's API."""
        return self._looped

    @property
    def translation(self) -> Translation:
        """The meaning of the configuration; not part of confluent-kafka's API."""
        return self._translation

    # -- life ---------------------------------------------------------------------------------------------------------

    def close(self) -> bool:
        """Abort an open transaction, deliver what was accepted, and end the producer; returns True. May be called again.

        It is also closed if a callback raises an exception, which is raised here. In a fork, nothing is delivered.
        """
        if self._is_closed:
            return True
        seconds: float | None = self._translation.delivery_s
        try:
            if not self._looped.is_forked:
                self._end_records()
        except (KeyboardInterrupt, SystemExit):
            seconds = None  # it waits no longer than at exit
            raise
        finally:
            self._is_closed = True
            try:
                with translating():
                    self._looped.close(seconds)
            finally:
                self._events.wake()
                self._events.serve()
        return True

    def _end_records(self) -> None:
        if self._in_transaction:
            with suppress(KafkaException):  # of a fatal error: the transaction cannot be ended, but the producer can
                self.abort_transaction()
        self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __len__(self) -> int:
        return 0 if self._is_closed else self._feed.outstanding

    def __bool__(self) -> bool:
        return True

    # -- records ------------------------------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        callback: DeliveryCallback | None = None,
        on_delivery: DeliveryCallback | None = None,
        timestamp: int = 0,
        headers: Mapping[str, Any] | list[tuple[str, Any]] | None = None,
    ) -> None:
        """Put a record into the queue, without waiting for anything.

        ``on_delivery(error, message)``, alias ``callback``, is called by `poll` or `flush`. Raises BufferError if
        ``queue.buffering.max.messages`` records wait for delivery or for a call of `poll`; TypeError for a wrong type; and
        `KafkaException` for a record larger than ``message.max.bytes``, and outside of a transaction if the producer is
        transactional.
        """
        self._check_open()
        chosen = callback or on_delivery or self._translation.on_delivery
        record = checked_record(topic, value, key, partition, chosen, timestamp, headers, time.monotonic())
        check_size(self._translation, record)
        check_in_transaction(self._translation, self._in_transaction)
        if self._feed.put(record):
            try:
                with translating():
                    self._looped.post(self._feed.take)
            except BaseException:
                self._feed.take_back(record)
                raise

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = -1,
        callback: DeliveryCallback | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> int:
        """Put records into the queue, and return how many were accepted.

        A message has the keys value, key, partition, timestamp and callback. Those that are refused get the key ``_error``.
        Raises TypeError for other types; the messages before that were accepted.
        """
        if not isinstance(cast("object", messages), list):
            raise TypeError("messages must be a list")
        accepted = 0
        for at, message in enumerate(messages):
            if not isinstance(cast("object", message), dict):
                raise TypeError(f"Message at index {at} must be a dict")
            own = message.get("callback") or callback or on_delivery
            place, timestamp = message.get("partition", partition), message.get("timestamp", 0)
            try:
                self.produce(topic, message.get("value"), message.get("key"), place, own, None, timestamp)
            except BufferError:
                message["_error"] = error_of(KafkaError._QUEUE_FULL)
            except Exception as error:
                if not error.args or not isinstance(error.args[0], KafkaError):
                    raise
                message["_error"] = error.args[0]
            else:
                accepted += 1
        return accepted

    def poll(self, timeout: float | None = -1) -> int:
        """Call the callbacks of records with an outcome; returns how many records these were.

        Waits for the first one, for ``timeout`` seconds; without a limit if it is negative or None. `close` ends the wait.
        """
        self._check_open()
        self._events.wait(limit(timeout), lambda: self._is_closed)
        return self._events.serve()

    def flush(self, timeout: float | None = -1) -> int:
        """Wait until all records have an outcome, and call their callbacks; returns how many are left.

        ``timeout`` is in seconds; negative or None means no limit but ``message.timeout.ms``.
        """
        self._check_open()
        seconds = limit(timeout)
        until = None if seconds is None else time.monotonic() + seconds
        while self._feed.outstanding:
            left = None if until is None else until - time.monotonic()
            try:
                self._serving(self._feed.flush, left)
            except TimeoutError:
                break
        self._events.serve()
        return len(self)

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Give up what was not sent, and with ``in_flight`` what was not acknowledged; `poll` calls the callbacks.

        Raises `KafkaException` for ``in_flight`` without ``in_queue``: aioproducer cannot do that.
        """
        self._check_open()
        if not in_queue and in_flight:
            raise invalid("purge(in_queue=False, in_flight=True) is not supported: what is not sent is purged as well.")
        if in_queue:
            with translating():
                purging = self._looped.begin(self._feed.purge, in_flight)
                if blocking:
                    purging.result()

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the cluster's brokers and topics, or one topic; raises `KafkaException` if no broker answers in time."""
        self._check_open()
        with translating(timeout=KafkaError._TRANSPORT):
            return described(self._looped.list_topics(limit(timeout)), topic)

    def cluster_id(self, timeout: float = -1) -> str | None:
        """Return the id of the cluster; raises `KafkaException` if no broker answers in time."""
        return self.list_topics(timeout=timeout).cluster_id

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use this user and password from the next login on; raises `KafkaException` without a mechanism that has these."""
        for value in (username, password):
            if not isinstance(cast("object", value), str):
                raise TypeError(f"Invalid credentials of type {type(value).__name__}: must be str.")
        if self._translation.credentials is None:
            raise invalid("set_sasl_credentials() needs sasl.mechanism PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.")
        self._translation.credentials.replace(username, password)

    # -- transactions -------------------------------------------------------------------------------------------------

    def init_transactions(self, timeout: float | None = -1) -> None:
        """Get the producer id of the ``transactional.id``, which fences every earlier producer with the same id."""
        self._check_transactional()
        with translating():
            self._serving(partial(self._looped.producer.init_transactions, limit(timeout)), None)

    def begin_transaction(self) -> None:
        """Begin a transaction, which takes every record until it is committed or aborted."""
        self._check_transactional()
        with translating():
            self._looped.begin_transaction()
        self._in_transaction = True

    def commit_transaction(self, timeout: float | None = -1) -> None:
        """Deliver all records, call their callbacks, and commit.

        Raises `KafkaException`: abort the transaction if ``args[0].txn_requires_abort()``, repeat the call if
        ``retriable()``; any other error is fatal.
        """
        self._check_transactional()
        with translating():
            self._serving(partial(self._feed.commit, limit(timeout)), None)
        self._in_transaction = False

    def abort_transaction(self, timeout: float | None = -1) -> None:
        """Give up what was not sent, call the callbacks, and abort; raises what `commit_transaction` raises."""
        self._check_transactional()
        with translating():
            self._serving(partial(self._feed.abort, limit(timeout)), None)
        self._in_transaction = False

    def send_offsets_to_transaction(self, positions: list[Any], group_metadata: object, timeout: float = -1) -> None:
        """Commit a consumer's positions with the transaction.

        ``positions`` are TopicPartitions of confluent-kafka, ``group_metadata`` is its consumer's. Raises TypeError for
        others, and what `commit_transaction` raises.
        """
        self._check_transactional()
        offsets = cast("dict[TopicPartition, Any]", checked_positions(positions))
        group = checked_group(group_metadata)
        if offsets:
            with translating():
                self._looped.send_offsets_to_transaction(offsets, group, limit(timeout))

    # -- the rest -----------------------------------------------------------------------------------------------------

    def _serving(self, work: Callable[[], Awaitable[_T]], seconds: float | None) -> _T:
        """Run it in the event loop, and call callbacks here until it ends; raises TimeoutError."""
        running = self._looped.begin(work)
        running.add_done_callback(lambda _: self._events.wake())
        until = None if seconds is None else time.monotonic() + seconds
        try:
            while not running.done():
                left = None if until is None else max(0.0, until - time.monotonic())
                if not self._events.wait(left, running.done):
                    raise TimeoutError
                self._events.serve()
            self._events.serve()
        except BaseException:
            running.cancel()
            raise
        return running.result()

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("Producer has been closed")
        if self._looped.is_forked:
            text = "The producer was created before this process was forked. Create one in each process."
            raise exception_of(error_of(KafkaError._STATE, text))

    def _check_transactional(self) -> None:
        self._check_open()
        check_transactional(self._translation)


def warn_ignored(translation: Translation) -> None:
    """Warn about keys without effect, except those that matter to no program."""
    listed = [f"{key} ({reason})" for key, reason in translation.ignored.items() if key not in _SILENT]
    if listed:
        warnings.warn(f"These keys have no effect: {'; '.join(listed)}.", UserWarning, stacklevel=3)


def check_size(translation: Translation, record: Pending) -> None:
    """Raise `KafkaException` for a record that is larger than ``message.max.bytes``."""
    limit = translation.options.get("max_request_size", 0)
    if record.size > limit:
        text = f"Unable to produce message: {record.size} bytes are more than message.max.bytes={limit}"
        raise exception_of(error_of(KafkaError.MSG_SIZE_TOO_LARGE, text))


def check_in_transaction(translation: Translation, in_transaction: bool) -> None:
    """Raise `KafkaException` for a record outside of a transaction, if the producer is transactional."""
    if translation.options.get("transactional_id") is not None and not in_transaction:
        raise exception_of(error_of(KafkaError._STATE, "Unable to produce message: no transaction is open"))


def check_transactional(translation: Translation) -> None:
    """Raise `KafkaException` if the producer has no transactions."""
    if translation.options.get("transactional_id") is None:
        text = "The Transactional API requires transactional.id to be configured"
        raise exception_of(error_of(KafkaError._NOT_CONFIGURED, text))


def limit(timeout: float | None) -> float | None:
    """Return the seconds of a timeout; None for no limit, which confluent-kafka spells as a negative number."""
    return None if timeout is None or timeout < 0 else float(timeout)


def _note(
    events: Events, only_errors: bool, feed: Feed, record: Pending, error: KafkaError | None, message: Message
) -> None:
    """Called in the event loop with each outcome."""
    callback = None if only_errors and error is None else record.on_delivery
    events.put(partial(_serve, feed, callback, record, error, message))


def _serve(
    feed: Feed, callback: DeliveryCallback | None, record: Pending, error: KafkaError | None, message: Message
) -> None:
    feed.served(record)
    if callback is not None:
        callback(error, message)


def _note_error(events: Events, callback: Callable[[Any], object], error: KafkaError) -> None:
    events.put(partial(callback, error))
