"""A Kafka cluster as its clients see it, without sockets, threads, clocks or randomness.

It takes the bytes of a request and yields the effects, step by step: ``serve`` is a generator of effects (send, sleep, wait
for the test, close). Its driver - the TCP shell in fake_broker.py, or a simulation with virtual time - executes them and
sends in the current time. The APIs are in ``apis/``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from typing import NamedTuple, TypeAlias

from aioproducer.errors import ProtocolError
from aioproducer.protocol import ApiKey, decode_request_header, encode_response
from aioproducer.protocol.messages import REQUESTS, ApiVersion, ApiVersionsRequest
from aioproducer.testing.broker.apis import HANDLERS
from aioproducer.testing.broker.apis.api_versions import refuse_version
from aioproducer.testing.broker.cluster_state import ClusterState, Node
from aioproducer.testing.broker.faults import Faults, Hold, Plan
from aioproducer.testing.broker.logins import Logins, Session
from aioproducer.testing.broker.request import AnyRequest, AnyResponse, Hangup, NotYet, ReceivedRequest, RequestContext
from aioproducer.testing.broker.telemetry import TELEMETRY_APIS, Telemetry
from aioproducer.testing.broker.versions import NEWEST_RELEASE

__all__ = ["Close", "Deafen", "Effect", "FakeCluster", "Poll", "Quiet", "Send", "Silence", "Sleep", "WaitFor"]

_MOST_SURPLUS = 8


class Send(NamedTuple):
    """Write these bytes to the connection."""

    data: bytes


class Sleep(NamedTuple):
    """Continue after this many seconds."""

    seconds: float


class WaitFor(NamedTuple):
    """Continue when the hold is released."""

    hold: Hold


class Poll(NamedTuple):
    """Continue when ``ready()`` has become true through another request, or after this many seconds."""

    seconds: float
    ready: Callable[[], bool]


class Quiet(NamedTuple):
    """Do not start with the connection's next request for this many seconds (KIP-219)."""

    seconds: float


class Close(NamedTuple):
    """Close the connection."""


class Deafen(NamedTuple):
    """Keep the connection open, but read and write nothing any more."""


class Silence(NamedTuple):
    """Keep the connection open and process its requests, but send nothing any more."""


Effect: TypeAlias = Send | Sleep | WaitFor | Poll | Quiet | Close | Deafen | Silence


class FakeCluster(ClusterState):
    """The state of all brokers, and their request handling."""

    def __init__(
        self,
        brokers: int = 1,
        *,
        versions: str = NEWEST_RELEASE,
        auto_create_topics: bool = True,
        num_partitions: int = 1,
    ) -> None:
        super().__init__(
            brokers, versions=versions, auto_create_topics=auto_create_topics, num_partitions=num_partitions
        )
        self.faults = Faults()
        self.requests: list[ReceivedRequest] = []
        #: The accepted logins; None: no login is required.
        self.logins: Logins | None = None
        #: The subscription to clients' metrics; None: the brokers take none.
        self.telemetry: Telemetry | None = None
        self._sessions: dict[int, Session] = {}
        #: Called after each received request and each applied one.
        self.on_change: Callable[[], None] = lambda: None

    def handle(self, node_id: int, frame: bytes, *, now_ms: int = 0) -> bytes | None:
        """The response to one request, without its length, at once; None if there is none.

        Delays and long polls take no time; a held or lost request gets no response.
        """
        steps = self.serve_received(self.receive(node_id, 0, frame), now_ms)
        for effect in _in_no_time(steps, now_ms):
            if isinstance(effect, Send):
                return effect.data[4:]
            if isinstance(effect, WaitFor | Close | Deafen | Silence):
                return None
        return None

    def receive(self, node_id: int, connection: int, frame: bytes, received_at: float = 0.0) -> ReceivedRequest:
        """Decode a request (without its length) and record it, even if the broker will refuse it.

        Raises ProtocolError if its header cannot be read.
        """
        request = _decode(self.nodes[node_id], connection, frame, received_at)
        self.requests.append(request)
        self.on_change()
        return request

    def serve_received(self, request: ReceivedRequest, now_ms: int) -> Generator[Effect, int, None]:
        """All effects of a request, in order; after each, send in the time in ms since 1970."""
        try:
            yield from self._serve(request, now_ms)
        except Hangup:
            yield Close()
        finally:
            self.on_change()

    def _serve(self, request: ReceivedRequest, now_ms: int) -> Generator[Effect, int, None]:
        node = self.nodes[request.node]
        if node.muted:
            yield Deafen()
            return
        session = self.session(request.connection)
        if session is not None and not session.may_ask(request.api_key, now_ms):
            raise Hangup
        plan = self._plan(node, request, now_ms)
        if plan.hold is not None and not plan.hold.applied:
            now_ms = yield from self._held(plan.hold)
        if plan.delay_before:
            now_ms = yield Sleep(plan.delay_before)
        if plan.drop == "before":
            raise Hangup
        if plan.lose == "before":
            yield Deafen()
            return
        answer = yield from self._answer(RequestContext(self, node, request, plan, now_ms))
        if plan.hold is not None and plan.hold.applied:
            yield from self._held(plan.hold)
        if plan.delay_after:
            yield Sleep(plan.delay_after)
        if plan.drop == "after":
            raise Hangup
        if plan.lose == "after":
            yield Silence()
        elif answer is not None:
            yield Send(answer if plan.corrupt is None else plan.corrupt(answer))
        if plan.throttle_ms:
            yield Quiet(plan.throttle_ms / 1000)

    def _held(self, hold: Hold) -> Generator[Effect, int, int]:
        hold.waiting += 1
        self.on_change()
        try:
            return (yield WaitFor(hold))
        finally:
            hold.waiting -= 1

    def _answer(self, context: RequestContext) -> Generator[Effect, int, bytes | None]:
        request = context.request
        if request.body is None:
            return _refuse_version(context)
        self.transactions.expire(context.now_ms)
        self.group_coordinator.expire(context.now_ms)
        answer = _ask_test(context)
        if answer is None:
            result = self.apply(context)
            while isinstance(result, NotYet):
                if result.again is not None:
                    self.on_change()  # what waits here may be what others wait for
                context.now_ms = yield Poll(result.seconds, result.ready)
                result = context.apply() if result.again is None else result.again(context)
            if result is None:
                return None
            answer = result
        self.on_change()
        if context.plan.throttle_ms:
            _set_throttle(answer, context.plan.throttle_ms)
        return b"".join(encode_response(request.correlation_id, answer, request.version))

    def apply(self, context: RequestContext) -> AnyResponse | NotYet | None:
        """Apply the request."""
        body = context.request.body
        if body is None:
            raise Hangup
        handler = HANDLERS[ApiKey(context.request.api_key)]
        injected = context.plan.injected_for()
        if handler.refuse is None or injected is None:
            return handler.handle(context, body)
        if injected.applied:
            handler.handle(context, body)
        return handler.refuse(context, body, injected.code)

    def session(self, connection: int) -> Session | None:
        """The login state of a connection, None if no login is required."""
        if self.logins is None:
            return None
        if connection not in self._sessions:
            self._sessions[connection] = Session(self.logins, connection)
        return self._sessions[connection]

    def api_versions(self, node: Node) -> list[ApiVersion]:
        """The node's versions in ApiVersions."""
        ranges = ((key, node.versions(key)) for key in HANDLERS if self.telemetry or key not in TELEMETRY_APIS)
        return [
            ApiVersion(api_key=key, min_version=range_[0], max_version=range_[1])
            for key, range_ in sorted(ranges)
            if range_ is not None
        ]

    def _plan(self, node: Node, request: ReceivedRequest, now_ms: int) -> Plan:
        if request.body is None:
            return Plan()
        key = ApiKey(request.api_key)
        find = HANDLERS[key].partitions
        named: Mapping[str, frozenset[int]] = {}
        if find is not None:
            named = find(RequestContext(self, node, request, Plan(), now_ms), request.body)
        return self.faults.plan(key, node.node_id, named)


def _in_no_time(steps: Generator[Effect, int, None], now_ms: int) -> Generator[Effect, None, None]:
    effect = next(steps, None)
    while effect is not None:
        yield effect
        if isinstance(effect, Poll):
            now_ms += int(effect.seconds * 1000) + 1
        try:
            effect = steps.send(now_ms)
        except StopIteration:
            return


def _decode(node: Node, connection: int, frame: bytes, received_at: float) -> ReceivedRequest:
    header, rest = decode_request_header(frame)
    known = REQUESTS.get(header.api_key)
    body: AnyRequest | None = None
    problem: str | None = None
    if known is None or not _is_spoken(node, known, header.api_version):
        problem = f"Node {node.node_id} does not support version {header.api_version} of API {header.api_key}."
    else:
        body, problem = _decode_body(known, header.api_version, bytes(rest))
    return ReceivedRequest(
        node.node_id,
        connection,
        header.api_key,
        f"Api{header.api_key}" if known is None else known.__name__.removesuffix("Request"),
        header.api_version,
        header.correlation_id,
        header.client_id,
        body,
        problem,
        received_at,
        frame,
    )


def _decode_body(request: type[AnyRequest], version: int, data: bytes) -> tuple[AnyRequest | None, str | None]:
    try:
        return request.decode(version, data), None
    except ProtocolError as error:
        problem = str(error)
    # Kafka ignores bytes after a request, and some clients send them.
    for surplus in range(1, min(_MOST_SURPLUS, len(data)) + 1):
        with suppress(ProtocolError):
            return request.decode(version, data[:-surplus]), problem
    return None, problem


def _is_spoken(node: Node, request: type[AnyRequest], version: int) -> bool:
    advertised = node.versions(ApiKey(request.api_key)) if request.api_key in HANDLERS else None
    if advertised is None:
        return False
    return max(advertised[0], request.versions[0]) <= version <= min(advertised[1], request.versions[1])


def _refuse_version(context: RequestContext) -> bytes:
    """Only ApiVersions gets a response in an unsupported version; anything else closes the connection."""
    if context.request.api_key != ApiKey.API_VERSIONS or _is_spoken(context.node, ApiVersionsRequest, context.version):
        raise Hangup
    return b"".join(encode_response(context.request.correlation_id, refuse_version(context), 0))


def _ask_test(context: RequestContext) -> AnyResponse | None:
    return next((own for ask in context.plan.control if (own := ask(context)) is not None), None)


def _set_throttle(answer: AnyResponse, ms: int) -> None:
    if hasattr(answer, "throttle_time_ms"):
        setattr(answer, "throttle_time_ms", ms)  # noqa: B010  # a field of nearly all responses
