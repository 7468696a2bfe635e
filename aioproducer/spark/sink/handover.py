"""Reads a task's rows from Spark in a thread, and passes them to the event loop by topic, in bounded queues.

Spark's iterator blocks while upstream computes. On the event loop that would delay acknowledgements, retries and lingering
batches.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, TypeAlias

__all__ = ["Channel", "Handover"]

#: Splits one batch into tables, each with its topic.
Split: TypeAlias = Callable[[Any], Iterable[tuple[str, Any]]]

_END: Final = object()


class Channel:
    """A queue of one topic's tables, from the reading thread to the encoding one; holds at most ``limit`` of them."""

    def __init__(self, topic: str, limit: int) -> None:
        self.topic = topic
        self._limit = limit
        self._tables: deque[Any] = deque()
        self._changed = threading.Condition()
        self._has_ended = False
        self._error: BaseException | None = None

    def put(self, table: Any) -> bool:
        """Wait for room, and add a table; returns False if the channel is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_ended or len(self._tables) < self._limit)
            if self._has_ended:
                return False
            self._tables.append(table)
            self._changed.notify_all()
            return True

    def end(self, error: BaseException | None = None) -> None:
        """Close the channel; the receiver gets the remaining tables, then the error. Only the first call counts."""
        with self._changed:
            if not self._has_ended:
                self._has_ended, self._error = True, error
            self._changed.notify_all()

    def __iter__(self) -> Iterator[Any]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._tables or self._has_ended)
                if not self._tables:
                    if self._error is not None:
                        raise self._error
                    return
                table = self._tables.popleft()
                self._changed.notify_all()
            yield table


class Handover:
    """Reads upstream in a thread. Entered on the event loop, which gets a `Channel` for each topic with its first rows.

    ``error`` is what upstream or ``split`` raised, else None. Leaving the block ends all channels; a thread that is
    waiting for upstream is abandoned, because it cannot be woken.
    """

    def __init__(self, batches: Iterable[Any], split: Split, limit: int) -> None:
        self._batches = batches
        self._split = split
        self._limit = limit
        self._channels: dict[str, Channel] = {}
        self._opened: asyncio.Queue[Any] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self.error: BaseException | None = None

    def __enter__(self) -> Handover:
        threading.Thread(target=self._read, name="aioproducer spark handover", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed = True
        for channel in list(self._channels.values()):
            channel.end()

    async def channels(self) -> AsyncIterator[Channel]:
        """Yield each topic's channel; end when upstream ends, or fails (see ``error``). Cancellation: nothing is lost."""
        while (channel := await self._opened.get()) is not _END:
            yield channel

    def _read(self) -> None:
        error: BaseException | None = None
        try:
            for batch in self._batches:
                if not all(self._hand(topic, table) for topic, table in self._split(batch)):
                    break
        except BaseException as raised:  # foreign code: the sender gets whatever upstream raises
            error = self.error = raised
        for channel in self._channels.values():
            channel.end(error)
        self._announce(_END)

    def _hand(self, topic: str, table: Any) -> bool:
        channel = self._channels.get(topic)
        if channel is None:
            channel = self._channels[topic] = Channel(topic, self._limit)
            self._announce(channel)
        if self._is_closed:
            channel.end()
        return channel.put(table)

    def _announce(self, channel: Any) -> None:
        with suppress(RuntimeError):  # the event loop is closed: there is no receiver any more
            self._loop.call_soon_threadsafe(self._opened.put_nowait, channel)
