"""A request in a fake broker, and the interface of the handlers in ``apis/``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from aioproducer.protocol import ErrorCode
from aioproducer.protocol.message import Request, Response

if TYPE_CHECKING:
    from aioproducer.testing.broker.cluster_state import Node
    from aioproducer.testing.broker.fake_cluster import FakeCluster
    from aioproducer.testing.broker.faults import Plan

__all__ = ["AnyRequest", "AnyResponse", "ApiHandler", "Hangup", "NotYet", "ReceivedRequest", "RequestContext"]

AnyRequest: TypeAlias = "Request[Any]"
AnyResponse: TypeAlias = Response


class Hangup(Exception):  # not an error: the way a broker refuses
    """Raised by a handler to close the connection instead of responding."""


class NotYet(NamedTuple):
    """Returned by a handler to be called again: when ready, or at the latest after ``seconds``.

    ``again`` is called instead of the handler, and may return another one of these.
    """

    seconds: float
    ready: Callable[[], bool]
    again: Callable[[RequestContext], AnyResponse | NotYet] | None = None


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """A request as a broker received it.

    ``body`` is None if its version is not supported or the bytes are not such a request; ``problem`` says why. A request
    with a body may also have a problem: bytes after its end, which Kafka ignores. ``raw`` is the frame without its
    length. ``received_at`` is in seconds on the clock of the cluster's driver (the shell: ``time.monotonic``).
    """

    node: int
    connection: int
    api_key: int
    api: str
    version: int
    correlation_id: int
    client_id: str | None
    body: AnyRequest | None
    problem: str | None
    received_at: float
    raw: bytes = field(repr=False)


@dataclass(slots=True)
class RequestContext:
    """A handler's view of the request and the cluster. ``now_ms`` is the time since 1970."""

    cluster: FakeCluster
    node: Node
    request: ReceivedRequest
    plan: Plan
    now_ms: int
    patience: bool = True  # False: the handler has waited long enough and must respond now

    @property
    def version(self) -> int:
        """The version of the request and the response."""
        return self.request.version

    def apply(self) -> AnyResponse | None:
        """Apply the request and return the normal response, None if there is none (acks=0)."""
        answer = self.cluster.apply(self._without_patience())
        assert not isinstance(answer, NotYet)
        return answer

    def _without_patience(self) -> RequestContext:
        return RequestContext(self.cluster, self.node, self.request, self.plan, self.now_ms, patience=False)


RequestT = TypeVar("RequestT", bound="Request[Any]")

Handle: TypeAlias = "Callable[[RequestContext, RequestT], AnyResponse | NotYet | None]"
Refuse: TypeAlias = "Callable[[RequestContext, RequestT, ErrorCode], AnyResponse]"
Partitions: TypeAlias = "Callable[[RequestContext, RequestT], Mapping[str, frozenset[int]]]"


class ApiHandler(NamedTuple):
    """The handler of one API.

    ``refuse`` creates the response for an injected error; None: the handler checks for injected errors itself, topic by
    topic. ``partitions`` returns the topics, and their partitions (none: all), that a request names.
    """

    handle: Handle[Any]
    refuse: Refuse[Any] | None = None
    partitions: Partitions[Any] | None = None

    @classmethod
    def of(
        cls,
        request: type[RequestT],
        handle: Handle[RequestT],
        refuse: Refuse[RequestT] | None = None,
        *,
        partitions: Partitions[RequestT] | None = None,
    ) -> ApiHandler:
        """The handler of one type of request; lets the type checker verify that its parts match."""
        return cls(handle, refuse, partitions)
