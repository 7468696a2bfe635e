"""The one request to a coordinator that may be in flight, and how often it failed."""

from __future__ import annotations

from aioproducer.core.transactions.requests import CoordinatorRequest, Rpc
from aioproducer.errors import KafkaError

__all__ = ["RequestInFlight"]


class RequestInFlight:
    """At most one request at a time (rule 1 of `manager`)."""

    def __init__(self) -> None:
        self.attempts = 0  # how often the current request failed
        self.refusal: KafkaError | None = None  # why it was refused last, if it is retried
        self._request: CoordinatorRequest | None = None

    @property
    def is_asking(self) -> bool:
        """Whether a request is in flight."""
        return self._request is not None

    @property
    def is_commit(self) -> bool:
        """Whether the request in flight commits."""
        return self._request is not None and self._request.rpc is Rpc.COMMIT

    def put(self, request: CoordinatorRequest | None) -> None:
        """The request is in flight from now on."""
        self._request = request

    def take(self, request: CoordinatorRequest) -> bool:
        """Take the request out of flight; returns False if it was given up already."""
        if request is not self._request:
            return False
        self._request = None
        return True

    def give_up(self) -> None:
        """Its answer will be ignored."""
        self._request = None

    def failed(self, refusal: KafkaError | None = None) -> None:
        """Send the same request again; ``refusal`` is the coordinator's reason, if it gave one."""
        self.attempts += 1
        if refusal is not None:
            self.refusal = refusal

    def succeeded(self) -> None:
        """Continue with another request, if there is one."""
        self.attempts = 0
