"""An event loop whose clock jumps to the next timer, and whose connections lead into a simulated network."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVarTuple, Unpack

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

__all__ = ["EPOCH_MS", "Livelock", "Nowhere", "SimulatedLoop"]

#: The wall clock when a simulation begins: in milliseconds since 1970.
EPOCH_MS: Final = 1_790_000_000_000

#: More turns than this within so short a time are a livelock.
_MOST_TURNS: Final = 20_000
_PROGRESS_S: Final = 1e-5
_MOST_TIMERS: Final = 500


_Ts = TypeVarTuple("_Ts")


class Livelock(BaseException):
    """Nothing can ever happen any more, or the clock stands still; not an Exception, so that nothing handles it."""


class Nowhere(Protocol):
    """The network as the loop needs it."""

    async def connect(self, make: Callable[[], asyncio.Protocol], port: int) -> tuple[asyncio.Transport, Any]:
        """A connection to the node at this port; raises OSError."""
        ...


class _JumpingSelector(selectors.BaseSelector):
    """Watches no file: if nothing is ready, time passes at once."""

    def __init__(self) -> None:
        self.now = 0.0
        self.turns = 0
        self._since = 0.0
        self._keys: dict[FileDescriptorLike, selectors.SelectorKey] = {}

    def register(self, fileobj: FileDescriptorLike, events: int, data: Any = None) -> selectors.SelectorKey:
        key = self._keys[fileobj] = selectors.SelectorKey(fileobj, 0, events, data)
        return key

    def unregister(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Livelock("Nothing will ever happen any more.")
        self.now += max(timeout, 0.0)
        self.turns += 1
        if self.now - self._since > _PROGRESS_S:
            self._since, self.turns = self.now, 0
        elif self.turns > _MOST_TURNS:
            raise Livelock(f"{_MOST_TURNS} turns of the event loop within {_PROGRESS_S:g} s.")
        return []

    def get_map(self) -> Mapping[FileDescriptorLike, selectors.SelectorKey]:
        return self._keys


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Runs one simulation. ``stall`` lets time pass in which nothing runs, ``jump`` moves the wall clock alone."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        self._skew_ms = 0
        self._timers: list[tuple[asyncio.TimerHandle, str]] = []
        self.network: Nowhere | None = None
        super().__init__(self._jumping)

    def time(self) -> float:
        """The virtual time in seconds, from 0."""
        return self._jumping.now

    def time_ns(self) -> int:
        """The wall clock, for `time.time_ns`."""
        return (EPOCH_MS + self._skew_ms) * 1_000_000 + round(self._jumping.now * 1e9)

    def now_ms(self) -> int:
        """The wall clock of the brokers, which does not jump."""
        return EPOCH_MS + round(self._jumping.now * 1e3)

    def stall(self, seconds: float) -> None:
        """As if a callback had blocked the loop for so long."""
        self._jumping.now += seconds

    def jump(self, ms: int) -> None:
        """Set the wall clock of the client forward, or back."""
        self._skew_ms += ms

    def call_at(
        self, when: float, callback: Callable[[Unpack[_Ts]], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Keep the timers of the client, so that `timers` can name those that it leaves behind."""
        handle = super().call_at(when, callback, *args, context=context)
        module = str(getattr(getattr(callback, "func", callback), "__module__", ""))
        if module.startswith("aioproducer.") and not module.startswith("aioproducer.testing"):
            self._timers.append((handle, f"{module}.{getattr(callback, '__qualname__', callback)}"))
            if len(self._timers) > _MOST_TIMERS:
                self._timers = [each for each in self._timers if self._is_pending(each[0])]
        return handle

    def timers(self) -> Sequence[str]:
        """The names of the client's timers that have not run."""
        return [name for handle, name in self._timers if self._is_pending(handle)]

    def _is_pending(self, handle: asyncio.TimerHandle) -> bool:
        return not handle.cancelled() and handle.when() > self.time() + _PROGRESS_S  # timers may run a little early

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        """A connection of the simulated network."""
        assert self.network is not None
        return await self.network.connect(protocol_factory, port)
