"""A login with a broker (KIP-43, KIP-152) as a table: the events that each state allows, and their actions.

::

    BEGIN     begin                       -> SaslHandshake           HANDSHAKE
    HANDSHAKE handshake answered          -> the mechanism's first   TOKEN
    TOKEN     authenticate answered       -> its next message        TOKEN
                                          -> derive a key            DERIVING
                                          -> nothing more            DONE
    DERIVING  derived                     -> its next message        TOKEN
    any       the broker refuses, or the mechanism does not accept: AuthenticationError, FAILED

Any other event is a bug in the caller. The same conversation is repeated on an open connection before the broker's
session expires (KIP-368), without any difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from aioproducer.core.sasl.mechanism import Derive, Done, Mechanism, MechanismError, SendToken, Step
from aioproducer.core.sasl.words import shown
from aioproducer.errors import AuthenticationError
from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.protocol.messages import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

__all__ = ["Action", "Ask", "Authenticated", "Conversation", "State"]

_MOST_ROUNDS: Final = 10  # the longest mechanism (GSSAPI) has four


class State(Enum):
    """The state of a login."""

    BEGIN = "begin"
    HANDSHAKE = "handshake"
    TOKEN = "token"
    DERIVING = "deriving"
    DONE = "done"
    FAILED = "failed"


class Ask(NamedTuple):
    """Send this request, and pass its answer to ``receive``."""

    request: SaslHandshakeRequest | SaslAuthenticateRequest


class Authenticated(NamedTuple):
    """The login succeeded. The broker demands another within ``lifetime_ms``; 0: never."""

    lifetime_ms: int


Action: TypeAlias = Ask | Derive | Authenticated


class Conversation:
    """One login with the broker that errors call ``broker``. Every method raises `AuthenticationError`."""

    def __init__(self, mechanism: Mechanism, broker: object) -> None:
        self.state = State.BEGIN
        self._mechanism = mechanism
        self._broker = broker
        self._rounds = 0
        self._lifetime_ms = 0

    @property
    def blocks(self) -> bool:
        """Whether ``receive`` may take long and should run in a thread."""
        return self._mechanism.blocks

    def begin(self) -> Action:
        """Return the first request."""
        return self._happened(_Begin())

    def receive(self, response: SaslHandshakeResponse | SaslAuthenticateResponse) -> Action:
        """Return what to do after an answer."""
        return self._happened(response)

    def derived(self, salted: bytes) -> Action:
        """Return what to do with the salted password."""
        return self._happened(_Derived(salted))

    def _happened(self, event: object) -> Action:
        handle = _TABLE.get((self.state, type(event)))
        if handle is None:
            raise AssertionError(f"{type(event).__name__} in state {self.state.value}")
        try:
            return handle(self, event)
        except MechanismError as error:
            # Without the cause: its traceback's frames hold the mechanism's secrets.
            sentence = str(error)
        self.state = State.FAILED
        raise AuthenticationError(f"{self._mechanism.name} login failed: broker {self._broker} {sentence}.")

    def _handshake(self, event: _Begin) -> Action:
        self.state = State.HANDSHAKE
        return Ask(SaslHandshakeRequest(mechanism=self._mechanism.name))

    def _first(self, response: SaslHandshakeResponse) -> Action:
        if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = shown(", ".join(response.mechanisms[:20])) or "none"
            raise MechanismError(f"does not offer it; it offers {offered} (sasl_mechanism)")
        if response.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise MechanismError(
                "does not expect a login at this port: set security_protocol to PLAINTEXT or SSL, or use another port"
            )
        if response.error_code != ErrorCode.NONE:
            raise MechanismError(f"refused the handshake with error {response.error_code}")
        return self._follow(self._mechanism.start())

    def _next(self, response: SaslAuthenticateResponse) -> Action:
        if response.error_code != ErrorCode.NONE:
            reason = (response.error_message or "").rstrip(".") or f"error {response.error_code}"
            raise MechanismError(f"refused the credentials: {shown(self._mechanism.explain(reason))}")
        self._lifetime_ms = response.session_lifetime_ms
        self._rounds += 1
        if self._rounds > _MOST_ROUNDS:
            raise MechanismError("keeps asking for more tokens, and never completes the login")
        return self._follow(self._mechanism.challenged(response.auth_bytes))

    def _proved(self, event: _Derived) -> Action:
        return self._follow(self._mechanism.derived(event.salted))

    def _follow(self, step: Step) -> Action:
        match step:
            case SendToken(token):
                self.state = State.TOKEN
                return Ask(SaslAuthenticateRequest(auth_bytes=token))
            case Derive():
                self.state = State.DERIVING
                return step
            case Done():
                self.state = State.DONE
                return Authenticated(max(self._lifetime_ms, 0))


class _Begin(NamedTuple):
    pass


class _Derived:
    """The salted password, which tracebacks do not show."""

    __slots__ = ("salted",)

    def __init__(self, salted: bytes) -> None:
        self.salted = salted


_TABLE: Final[Mapping[tuple[State, type], Callable[[Conversation, Any], Action]]] = MappingProxyType(
    {
        (State.BEGIN, _Begin): Conversation._handshake,  # pyright: ignore[reportPrivateUsage]
        (State.HANDSHAKE, SaslHandshakeResponse): Conversation._first,  # pyright: ignore[reportPrivateUsage]
        (State.TOKEN, SaslAuthenticateResponse): Conversation._next,  # pyright: ignore[reportPrivateUsage]
        (State.DERIVING, _Derived): Conversation._proved,  # pyright: ignore[reportPrivateUsage]
    }
)
