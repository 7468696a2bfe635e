"""The faults that a test injects into the fake broker, and the requests they apply to.

Each call of a scripting method adds one rule. A rule applies to the requests of its API (and node, topic and partition, if
given) up to ``times`` times. Rules of different kinds combine: a request can be delayed, refused and answered with garbage.
Of several rules of one kind the oldest that is not used up applies, so that

    broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    broker.fail("Produce", "REQUEST_TIMED_OUT")

refuses two requests with the first error and the next one with the second. Rules for different partitions are independent.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from aioproducer.errors import ConfigError
from aioproducer.protocol import ApiKey, ErrorCode
from aioproducer.testing.broker.versions import api_key_of

if TYPE_CHECKING:
    from typing import Self

    from aioproducer.protocol.message import Response
    from aioproducer.testing.broker.request import RequestContext

__all__ = ["CORRUPTIONS", "ControlFunction", "FaultScript", "Faults", "Hold", "Injected", "Plan", "Rule", "error_code"]

#: The function of ``control()``: returns a response, or None for the normal one.
ControlFunction: TypeAlias = "Callable[[RequestContext], Response | None]"

When: TypeAlias = Literal["before", "after"]


class Hold:
    """Requests that wait until the test releases them; as a context manager it releases them at the end.

    While a request is held, later requests on the same connection wait as well. A held request outlives its connection: if
    it is released after the client is gone, it is still applied, as a broker applies what it has read (a zombie).
    """

    def __init__(self, *, applied: bool, let_go: Callable[[], None] | None = None) -> None:
        self.applied = applied
        self.waiting = 0
        self.released = False
        self._let_go = let_go
        self._wakers: list[Callable[[], None]] = []

    def release(self) -> None:
        """Release all waiting requests, and hold no more."""
        self.released = True
        if self._let_go is not None:
            self._let_go()
        wakers, self._wakers = self._wakers, []
        for wake in wakers:
            wake()

    def on_release(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` when the hold ends; at once if it has ended."""
        if self.released:
            wake()
        else:
            self._wakers.append(wake)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


class Injected(NamedTuple):
    """An injected error for the response; ``applied``: the request is applied anyway."""

    code: ErrorCode
    applied: bool
    topic: str | None
    partition: int | None


class _Kind(Enum):
    """The kinds of rules; at most one rule of each kind (and scope) applies to a request."""

    FAIL = auto()
    DELAY = auto()
    DROP = auto()
    LOSE = auto()
    HOLD = auto()
    CORRUPT = auto()
    THROTTLE = auto()
    CONTROL = auto()


@dataclass(slots=True)
class Plan:
    """The combined effect of the rules on one request."""

    injected: list[Injected] = field(default_factory=list[Injected])
    delay_before: float = 0.0
    delay_after: float = 0.0
    drop: When | None = None
    lose: When | None = None
    hold: Hold | None = None
    corrupt: Callable[[bytes], bytes] | None = None
    throttle_ms: int = 0
    control: list[ControlFunction] = field(default_factory=list["ControlFunction"])

    def injected_for(self, topic: str | None = None, partition: int | None = None) -> Injected | None:
        """The error for this topic, or this partition of it."""
        return next(
            (
                error
                for error in self.injected
                if error.topic in (None, topic) and (error.partition is None or error.partition == partition)
            ),
            None,
        )


@dataclass(slots=True, eq=False)
class Rule:
    """One rule of the test. ``times`` None: until it is removed."""

    kind: _Kind
    apply: Callable[[Plan], None]
    api: ApiKey | None = None
    times: int | None = 1
    node: int | None = None
    topic: str | None = None
    partition: int | None = None

    def meets(self, api: ApiKey, node: int, partitions: Mapping[str, frozenset[int]]) -> bool:
        """Whether the rule applies to this request, which names these topics and partitions."""
        if self.times == 0 or self.api not in (None, api) or self.node not in (None, node):
            return False
        if self.topic is None:
            return self.partition is None or any(self.partition in each for each in partitions.values())
        if self.topic not in partitions:
            return False
        named = partitions[self.topic]
        return self.partition is None or not named or self.partition in named


class FaultScript:
    """The scripting methods; subclasses store the rules (``add_rule`` and ``remove_rule``)."""

    def add_rule(self, rule: Rule) -> None:
        """Append the rule."""
        raise NotImplementedError  # implemented by the subclass that stores the rules

    def remove_rule(self, rule: Rule) -> None:
        """Remove the rule; does nothing if it is not there."""
        raise NotImplementedError  # implemented by the subclass that stores the rules

    def make_hold(self, *, applied: bool, let_go: Callable[[], None]) -> Hold:
        """The handle that ``hold()`` returns."""
        return Hold(applied=applied, let_go=let_go)

    def fail(
        self,
        api: ApiKey | int | str,
        error: ErrorCode | int | str,
        *,
        times: int | None = 1,
        topic: str | None = None,
        partition: int | None = None,
        node: int | None = None,
    ) -> None:
        """Refuse the next ``times`` requests (None: all) to ``node`` (None: any) with this error; they are not applied.

        With ``topic`` or ``partition`` only that part of the request is refused, and the rest is processed normally.
        """
        self._inject(api, error, applied=False, times=times, topic=topic, partition=partition, node=node)

    def fail_after_apply(
        self,
        api: ApiKey | int | str,
        error: ErrorCode | int | str,
        *,
        times: int | None = 1,
        topic: str | None = None,
        partition: int | None = None,
        node: int | None = None,
    ) -> None:
        """Apply the next requests, but return this error (as REQUEST_TIMED_OUT may mean)."""
        self._inject(api, error, applied=True, times=times, topic=topic, partition=partition, node=node)

    def delay(
        self,
        api: ApiKey | int | str,
        seconds: float,
        *,
        times: int | None = 1,
        when: When = "after",
        node: int | None = None,
    ) -> None:
        """Delay the responses to the next requests by ``seconds``; ``when="before"``: they are also applied later.

        As with a real broker, later requests on the same connection also wait.
        """

        def apply(plan: Plan) -> None:
            if when == "before":
                plan.delay_before = seconds
            else:
                plan.delay_after = seconds

        self._add(_Kind.DELAY, apply, api, times, node)

    def drop_connection(
        self,
        api: ApiKey | int | str,
        *,
        when: When = "before",
        times: int | None = 1,
        topic: str | None = None,
        node: int | None = None,
    ) -> None:
        """Close the connection instead of responding: before the request is applied, or after it."""

        def apply(plan: Plan) -> None:
            plan.drop = when

        self._add(_Kind.DROP, apply, api, times, node, topic)

    def swallow(
        self,
        api: ApiKey | int | str,
        *,
        applied: bool = True,
        times: int | None = 1,
        topic: str | None = None,
        node: int | None = None,
    ) -> None:
        """Lose the request, or (``applied``) its response, while the connection stays open.

        TCP cannot skip bytes, so everything after the loss is lost as well: after a lost response the connection's later
        requests are applied but get no response; after a lost request nothing on this connection arrives any more.
        """

        def apply(plan: Plan) -> None:
            plan.lose = "after" if applied else "before"

        self._add(_Kind.LOSE, apply, api, times, node, topic)

    def hold(
        self,
        api: ApiKey | int | str,
        *,
        applied: bool = False,
        times: int | None = None,
        topic: str | None = None,
        partition: int | None = None,
        node: int | None = None,
    ) -> Hold:
        """Hold requests, without a response and (unless ``applied``) not applied, until the handle is released."""
        hold = self.make_hold(applied=applied, let_go=lambda: self.remove_rule(rule))

        def apply(plan: Plan) -> None:
            plan.hold = hold

        rule = Rule(_Kind.HOLD, apply, api_key_of(api), times, node, topic, partition)
        self.add_rule(rule)
        return hold

    def corrupt_answer(
        self,
        kind: str,
        *,
        api: ApiKey | int | str = ApiKey.PRODUCE,
        times: int | None = 1,
        node: int | None = None,
    ) -> None:
        """Corrupt the next responses; ``kind`` is a name in CORRUPTIONS. The request itself is applied.

        Raises ConfigError for an unknown kind.
        """
        damage = CORRUPTIONS.get(kind)
        if damage is None:
            raise ConfigError(f"There is no corruption {kind!r}. Known: {', '.join(CORRUPTIONS)}.")

        def apply(plan: Plan) -> None:
            plan.corrupt = damage

        self._add(_Kind.CORRUPT, apply, api, times, node)

    def throttle(self, api: ApiKey | int | str, ms: int, *, times: int | None = 1, node: int | None = None) -> None:
        """Throttle the client for ``ms`` milliseconds (KIP-219).

        The response is sent at once; requests that the client sends on that connection wait until the time is over.
        """

        def apply(plan: Plan) -> None:
            plan.throttle_ms = ms

        self._add(_Kind.THROTTLE, apply, api, times, node)

    def control(
        self,
        api: ApiKey | int | str | None,
        function: ControlFunction,
        *,
        times: int | None = 1,
        node: int | None = None,
    ) -> None:
        """Call ``function`` for the next requests (``api`` None: of any kind), in the broker's thread.

        It gets the RequestContext and returns the response, or None to process the request normally. It may call
        ``context.apply()`` for the normal response and change that, or raise Hangup to close the connection.
        """

        def apply(plan: Plan) -> None:
            plan.control.append(function)

        self._add(_Kind.CONTROL, apply, api, times, node)

    def _inject(
        self,
        api: ApiKey | int | str,
        error: ErrorCode | int | str,
        *,
        applied: bool,
        times: int | None,
        topic: str | None,
        partition: int | None,
        node: int | None,
    ) -> None:
        injected = Injected(error_code(error), applied, topic, partition)
        self._add(_Kind.FAIL, lambda plan: plan.injected.append(injected), api, times, node, topic, partition)

    def _add(
        self,
        kind: _Kind,
        apply: Callable[[Plan], None],
        api: ApiKey | int | str | None,
        times: int | None,
        node: int | None,
        topic: str | None = None,
        partition: int | None = None,
    ) -> None:
        key = None if api is None else api_key_of(api)
        self.add_rule(Rule(kind, apply, key, times, node, topic, partition))


class Faults(FaultScript):
    """The rules that are not used up yet, oldest first."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []

    @property
    def pending(self) -> list[Rule]:
        """The rules that still wait for requests."""
        return list(self._rules)

    def add_rule(self, rule: Rule) -> None:
        """Append the rule."""
        self._rules.append(rule)

    def remove_rule(self, rule: Rule) -> None:
        """Remove the rule; does nothing if it is not there."""
        if rule in self._rules:
            self._rules.remove(rule)

    def clear(self) -> None:
        """Remove every rule; held requests stay held."""
        self._rules.clear()

    def plan(self, api: ApiKey, node: int, partitions: Mapping[str, frozenset[int]]) -> Plan:
        """Use up the rules that apply to a request, and return their combined effect."""
        plan = Plan()
        met: set[tuple[object, ...]] = set()
        for rule in self.pending:
            scope = (rule.kind, rule.topic, rule.partition)
            if scope in met or not rule.meets(api, node, partitions):
                continue
            met.add(scope)
            rule.apply(plan)
            if rule.times is not None:
                rule.times -= 1
                if rule.times == 0:
                    self.remove_rule(rule)
        return plan


def error_code(error: ErrorCode | int | str) -> ErrorCode:
    """The error code for a number or Kafka's name.

    Raises ConfigError for anything else.
    """
    try:
        return ErrorCode[error] if isinstance(error, str) else ErrorCode(error)
    except (KeyError, ValueError) as wrong:
        raise ConfigError(f"There is no Kafka error {error!r}.") from wrong


_LENGTH = struct.Struct(">i")


def _framed(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


def _wrong_correlation_id(frame: bytes) -> bytes:
    (right,) = _LENGTH.unpack_from(frame, 4)
    return frame[:4] + _LENGTH.pack(right ^ 0x55AA55) + frame[8:]


def _truncated(frame: bytes) -> bytes:
    return _framed(frame[4 : 8 + (len(frame) - 8) // 2])


def _garbage(frame: bytes) -> bytes:
    noise = bytes((index * 167 + 91) & 0xFF for index in range(len(frame) - 8))
    return frame[:8] + noise


#: The ways to corrupt a response: functions from the correct frame, including its length, to the bytes to send.
CORRUPTIONS: Mapping[str, Callable[[bytes], bytes]] = MappingProxyType(
    {
        "wrong_correlation_id": _wrong_correlation_id,
        "truncated": _truncated,
        "garbage": _garbage,
        "oversize": lambda frame: _LENGTH.pack(0x7FFFFFFF) + frame[4:],
        "negative": lambda frame: _LENGTH.pack(-2) + frame[4:],
        "zero": lambda frame: _LENGTH.pack(0),
        "trailing": lambda frame: _framed(frame[4:] + b"\x00trailing bytes"),
        "duplicate": lambda frame: frame + frame,
        "unasked": lambda frame: _wrong_correlation_id(frame) + frame,
        "short": lambda frame: _LENGTH.pack(len(frame) + 64) + frame[4:],
        "http": lambda frame: b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
    }
)
