"""Gets OAuth tokens from the program's callback, and renews them when most of their lifetime has passed."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from random import Random
from typing import Any, Final, TypeGuard, cast

from aioproducer.config import OAuthToken, ProducerConfig, Secret
from aioproducer.errors import BrokerConnectionError, ConfigError, KafkaError
from aioproducer.net.security.blocking import Blocking
from aioproducer.net.security.callbacks import ask, is_utf_8
from aioproducer.runtime.log import ClientLog

__all__ = ["LATEST", "TokenSource", "is_number"]

_MOST_OF_A_TOKEN: Final = 64 * 1024

#: A later time, in seconds since 1970, must be a mistake.
LATEST: Final = 1e11
_MOST: Final = 1e300

_SHARE_OF_THE_SETUP: Final = 0.5
_PAUSE_S: Final = 10.0  # between attempts to renew a token that is valid


class TokenSource:
    """Keeps the last token, and requests the next one in time; one call at a time."""

    def __init__(self, config: ProducerConfig, random: Random, log: ClientLog) -> None:
        self._log = log
        self._config = config
        self._random = random
        self._asking = asyncio.Lock()
        self._threads = Blocking(1)
        self._patience_s = config.socket_connection_setup_timeout_ms / 1000 * _SHARE_OF_THE_SETUP
        self._token: OAuthToken | None = None
        self._renew_at = 0.0  # seconds since 1970, like a token's end

    async def token(self) -> OAuthToken:
        """Return a valid token. One that is due for renewal is used until there is a newer one.

        In that case the callback gets only a part of the connection's time, so that the rest is enough to log in.
        Raises `AuthenticationError`, and `BrokerConnectionError` if the callback fails. Cancellation: cancels the
        callback.
        """
        failure: KafkaError
        try:
            async with asyncio.timeout(None if self._valid() is None else self._patience_s), self._asking:
                if self._token is None or time.time() >= self._renew_at:
                    await self._renew()
                return self._token or _none()
        except TimeoutError:
            failure = BrokerConnectionError("sasl_oauth_token_provider did not return in time.")
        except KafkaError as error:
            failure = error
        old = self._valid()
        if old is None or old.expires_at is None:
            raise failure
        left = old.expires_at - time.time()
        self._renew_at = time.time() + min(_PAUSE_S, left / 2)
        self._log.warning(
            "The token could not be renewed; the previous one is valid for another %.0f s: %s", left, failure
        )
        return old

    def forget(self, token: OAuthToken) -> None:
        """Drop this token, which a broker refused: the next login requests a new one, unless a newer one is here already."""
        if self._token is token:
            self._token = None

    def _valid(self) -> OAuthToken | None:
        token = self._token
        return None if token is None or token.expires_at is None or time.time() >= token.expires_at else token

    async def _renew(self) -> None:
        provider: Any = self._config.sasl_oauth_token_provider
        call = provider if callable(provider) else provider.token
        self._token = await ask("sasl_oauth_token_provider", call, _read, self._threads)
        self._renew_at = self._when(self._token)

    def _when(self, token: OAuthToken) -> float:
        """As in Java's ExpiringCredentialRefreshingLogin: after a part of its lifetime, not too often and not too late."""
        if token.expires_at is None:
            return 0.0
        now = time.time()
        life = token.expires_at - now
        factor = self._config.sasl_login_refresh_window_factor
        jitter = self._config.sasl_login_refresh_window_jitter * self._random.random()
        least = self._config.sasl_login_refresh_min_period_seconds
        buffer = self._config.sasl_login_refresh_buffer_seconds
        wanted = life * min(factor + jitter, 1.0)
        if least + buffer < life:
            wanted = max(least, min(wanted, life - buffer))
        return now + wanted


def _none() -> OAuthToken:
    raise BrokerConnectionError("A broker refused the token before this login used it; the next login gets a new one.")


def _read(given: object) -> OAuthToken:
    token = OAuthToken(given) if isinstance(given, str | Secret) else given
    if not isinstance(token, OAuthToken):
        raise ConfigError(
            f"sasl_oauth_token_provider returned an object of type {type(given).__name__}; return the token as str, or an "
            f"OAuthToken."
        )
    for what, text in [("a token", token.value.reveal()), *_texts(token.extensions)]:
        if not isinstance(text, str):
            raise ConfigError(
                f"sasl_oauth_token_provider returned {what} of type {type(text).__name__}; a str is needed."
            )
        if not is_utf_8(text):
            raise ConfigError(f"sasl_oauth_token_provider returned {what} with characters that UTF-8 cannot encode.")
    end: object = token.expires_at
    if end is None:
        return OAuthToken(token.value, expires_at=_end_of(token.value), extensions=token.extensions)
    if is_number(end) and end > LATEST:
        raise ConfigError(
            "sasl_oauth_token_provider returned a token that expires in thousands of years: expires_at is in seconds "
            "since 1970, and this looks like milliseconds."
        )
    if not is_number(end):
        raise ConfigError(
            f"sasl_oauth_token_provider returned a token whose expires_at, of type {type(end).__name__}, is not a finite "
            f"number; return seconds since 1970, or None."
        )
    return token


def _texts(extensions: Mapping[Any, Any]) -> list[tuple[str, object]]:
    return [("an extension", text) for pair in extensions.items() for text in pair]


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether it is a finite number and not a bool. An int too large for a float would break the arithmetic."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MOST


def _end_of(value: Secret) -> float | None:
    """Return when a JWT says that it expires. It only times the renewal, so the signature is not checked.

    Anything that is not a time in seconds is ignored.
    """
    parts = value.reveal().split(".")
    if len(parts) != 3 or len(parts[1]) > _MOST_OF_A_TOKEN:
        return None
    try:
        claims: Any = json.loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return None
    end: object = cast("Mapping[str, object]", claims).get("exp") if isinstance(claims, Mapping) else None
    return float(end) if is_number(end) and end <= LATEST else None
