"""A user's call that ends when the coordinator has answered, whether or not its caller still waits."""

from __future__ import annotations

from collections.abc import Callable

from aioproducer.errors import KafkaError

__all__ = ["Operation"]


class Operation:
    """The outcome of one call: none yet, success, or an error; decided once.

    The caller calls `acknowledge` when it has seen the outcome. Until then a call of the same name gets the same
    operation, and every other call is refused: so a commit whose caller timed out stays a commit
    (TransactionalRequestResult).
    """

    __slots__ = ("_callbacks", "error", "is_acknowledged", "is_done", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_done = False
        self.is_acknowledged = False
        self.error: KafkaError | None = None
        self._callbacks: list[Callable[[], object]] = []

    def when_done(self, callback: Callable[[], object]) -> None:
        """Call the callback when the operation is done; at once if it is done already."""
        if self.is_done:
            callback()
        else:
            self._callbacks.append(callback)

    def acknowledge(self) -> None:
        """The caller has seen the outcome, and may now do something else."""
        self.is_acknowledged = True

    def finish(self, error: KafkaError | None = None) -> None:
        """Set the outcome; later calls change nothing."""
        if self.is_done:
            return
        self.is_done, self.error = True, error
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def __repr__(self) -> str:
        outcome = "under way" if not self.is_done else "succeeded" if self.error is None else f"failed: {self.error}"
        return f"<Operation {self.name}: {outcome}>"
