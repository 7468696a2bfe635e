"""The fake broker's side of SASL: the accepted logins, and the login state of each connection.

SCRAM uses the library ``scramp``, so that the producer is not tested against its own implementation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aioproducer.protocol import ApiKey, ErrorCode

if TYPE_CHECKING:
    from aioproducer.testing.broker.msk_iam import AwsKeys

__all__ = ["BEFORE_LOGIN", "LoginResult", "Logins", "Session"]

#: Requests that are allowed before the login.
BEFORE_LOGIN: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})

_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM")
_NO_LOGIN: Final = -1


@dataclass(frozen=True, slots=True)
class LoginResult:
    """The end of a login: the user, or None and the reason."""

    user: str | None
    reason: str = ""
    answer: bytes = b""


#: One login: bytes are answers after which the client goes on, a `LoginResult` is the end. What the client says is sent in.
Talk: TypeAlias = Generator[LoginResult | bytes, bytes, None]


@dataclass(slots=True)
class Logins:
    """The brokers' user accounts. All of it may be changed while they run.

    ``users`` are names and passwords, for PLAIN and SCRAM. ``tokens`` returns whether a token (with its extensions) is
    accepted. ``session_lifetime_ms`` above 0 is how long a login lasts (KIP-368; Kafka's ``connections.max.reauth.ms``).
    ``aws`` are the keys that AWS_MSK_IAM logins must be signed with.
    """

    users: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    mechanisms: Sequence[str] = _MECHANISMS
    tokens: Callable[[str, Mapping[str, str]], bool] = lambda token, extensions: True
    session_lifetime_ms: int = 0
    iterations: int = 4096
    aws: AwsKeys | None = None
    #: Every login that succeeded: connection, mechanism, user.
    seen: list[tuple[int, str, str]] = field(default_factory=list[tuple[int, str, str]])

    def start(self, mechanism: str) -> Talk:
        """Start a login with this mechanism."""
        if mechanism == "PLAIN":
            return self._plain()
        if mechanism == "OAUTHBEARER":
            return self._oauthbearer()
        if mechanism == "AWS_MSK_IAM":
            return self._aws()
        return self._scram(mechanism)

    def _plain(self) -> Talk:
        said = yield b""
        _, user, password = said.decode().split("\0")
        if self.users.get(user) != password:
            yield LoginResult(None, "Authentication failed: Invalid username or password")
        yield LoginResult(user)

    def _scram(self, mechanism: str) -> Talk:
        scramp: Any = import_module("scramp")
        scram = scramp.ScramMechanism(mechanism)

        def known(user: str) -> object:
            if user not in self.users:
                return None
            return scram.make_auth_info(self.users[user], iteration_count=self.iterations, salt=b"salt" * 6)

        server = scram.make_server(known)
        try:
            first = yield b""
            server.set_client_first(first.decode())
            last = yield server.get_server_first().encode()
            server.set_client_final(last.decode())
        except scramp.ScramException:
            yield LoginResult(None, f"Authentication failed due to invalid credentials with SASL mechanism {mechanism}")
            return
        user = first.decode().split("n=", 1)[1].split(",")[0]
        yield LoginResult(user, answer=server.get_server_final().encode())

    def _oauthbearer(self) -> Talk:
        said = yield b""
        _, _, fields = said.decode().partition(",,\x01")
        pairs = dict(part.split("=", 1) for part in fields.split("\x01") if part)
        token = pairs.pop("auth").removeprefix("Bearer ")
        if not self.tokens(token, pairs):
            yield json.dumps({"status": "invalid_token"}).encode()
            yield LoginResult(None, '{"status":"invalid_token"}')
        yield LoginResult("token")

    def _aws(self) -> Talk:
        from aioproducer.testing.broker.msk_iam import refusal

        said = yield b""
        assert self.aws is not None, "FakeBroker(logins=Logins(aws=AwsKeys(...)))"
        why = refusal(said, self.aws)
        if why is not None:
            yield LoginResult(None, f"Access denied: {why}")
        yield LoginResult(self.aws.access_key, answer=b'{"version":"2020_10_22","request-id":"fake"}')


class Session:
    """The login state of one connection."""

    def __init__(self, logins: Logins, connection: int) -> None:
        self._logins = logins
        self._connection = connection
        self._talk: Talk | None = None
        self._mechanism = ""
        self._known_until_ms: float = _NO_LOGIN

    def may_ask(self, api_key: int, now_ms: int) -> bool:
        """Whether a request is allowed: a login has succeeded, and no other one is in progress."""
        if api_key in BEFORE_LOGIN:
            return True
        return self._talk is None and now_ms <= self._known_until_ms

    def handshake(self, mechanism: str) -> ErrorCode:
        """Start a login."""
        if self._talk is not None:
            return ErrorCode.ILLEGAL_SASL_STATE
        if mechanism not in self._logins.mechanisms:
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        self._mechanism = mechanism
        self._talk = self._logins.start(mechanism)
        next(self._talk)
        return ErrorCode.NONE

    def authenticate(self, said: bytes, now_ms: int) -> tuple[ErrorCode, str | None, bytes, int]:
        """Continue the login; returns error, its message, the response, and the session lifetime in ms (0: unlimited)."""
        if self._talk is None:
            return ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate without SaslHandshake", b"", 0
        try:
            answer = self._talk.send(said)
        except (ValueError, IndexError, KeyError, UnicodeDecodeError) as error:
            answer = LoginResult(None, f"Authentication failed: {type(error).__name__}")
        if isinstance(answer, bytes):
            return ErrorCode.NONE, None, answer, 0
        self._talk = None
        if answer.user is None:
            self._known_until_ms = _NO_LOGIN
            return ErrorCode.SASL_AUTHENTICATION_FAILED, answer.reason, b"", 0
        lifetime_ms = self._logins.session_lifetime_ms
        self._known_until_ms = now_ms + lifetime_ms if lifetime_ms else float("inf")
        self._logins.seen.append((self._connection, self._mechanism, answer.user))
        return ErrorCode.NONE, None, answer.answer, lifetime_ms
