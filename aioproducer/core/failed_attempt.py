"""The last error of a record or of a client, with the broker that it came from and its time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from aioproducer.errors import KafkaError, KafkaTimeoutError, LastError
from aioproducer.runtime.detached import detached

__all__ = ["FailedAttempt", "latest", "timed_out"]


class FailedAttempt(NamedTuple):
    """An error of a broker (None: a bootstrap server), or of a connection to it; ``at`` is the event loop's time."""

    error: KafkaError
    broker: int | None
    at: float

    def seen_at(self, now: float) -> LastError:
        """The error as users see it, for a record that fails now."""
        return LastError(detached(self.error), self.broker, max(0.0, now - self.at))

    def sentence(self, now: float) -> str:
        """The end of a message about a timeout."""
        origin = "" if self.broker is None else f"from broker {self.broker}, "
        return f"The last error, {origin}{max(0.0, now - self.at):.1f} s ago: {self.error}"


def latest(failures: Iterable[FailedAttempt | None]) -> FailedAttempt | None:
    """The most recent of these failures; None if there is none."""
    return max((each for each in failures if each is not None), key=lambda each: each.at, default=None)


def timed_out(text: str, failure: FailedAttempt | None, now: float) -> KafkaTimeoutError:
    """The error of a call that waited for too long; ``text`` says for what, without a full stop."""
    if failure is None:
        return KafkaTimeoutError(f"{text}.")
    late = KafkaTimeoutError(f"{text}: {failure.error}")
    late.last_error, late.__cause__ = failure.seen_at(now), failure.error
    return late
