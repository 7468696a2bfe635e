"""A request on its way through a fake broker, and what the handlers in ``apis/`` get and give."""

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


class Hangup(Exception):  # nothing went wrong: it is how a broker says no
    """Raised by a handler that closes the connection instead of answering."""


class NotYet(NamedTuple):
    """A handler's answer when it wants to be asked again: when ready, or at the latest after ``seconds``."""

    seconds: float
    ready: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """A request as a broker received it.

    ``body`` is None where its version is not spoken or the bytes are not such a request; ``problem`` says why. A request
    with a body may have a problem too: bytes behind its end, which Kafka does not mind. ``raw`` is the frame without its
    length. ``received_at`` is in seconds on the clock of whoever drives the cluster (the shell: ``time.monotonic``).
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
    """What a handler sees of the request, and of the cluster around it. ``now_ms`` is the time since 1970."""

    cluster: FakeCluster
    node: Node
    request: ReceivedRequest
    plan: Plan
    now_ms: int
    patience: bool = True  # False: the handler has waited its time and must answer now

    @property
    def version(self) -> int:
        """The version of the request, which is that of the answer."""
        return self.request.version

    def apply(self) -> AnyResponse | None:
        """Do what the request asks for and give the normal answer, None where there is none (acks=0)."""
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
    """What answers one API.

    ``refuse`` makes the answer for an error that a test injects; None: the handler looks for injected errors itself,
    topic by topic. ``partitions`` tells which topics, and which partitions of them (none: all), a request names.
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
        """The handler of one type of request; the type checker sees that its parts agree on that."""
        return cls(handle, refuse, partitions)
