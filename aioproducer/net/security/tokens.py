"""Where OAuth tokens come from: the program's own callback, asked again when most of a token's life is over."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from inspect import isawaitable
from random import Random
from typing import Any, Final, cast

from aioproducer.config import OAuthToken, ProducerConfig, Secret
from aioproducer.errors import BrokerConnectionError, ConfigError, KafkaError

__all__ = ["TokenSource"]

logger = logging.getLogger("aioproducer")

_MOST_OF_A_TOKEN: Final = 64 * 1024


class TokenSource:
    """Keeps the token that was given last, and asks for the next one in time; one question at a time."""

    def __init__(self, config: ProducerConfig, random: Random) -> None:
        self._config = config
        self._random = random
        self._asking = asyncio.Lock()
        self._token: OAuthToken | None = None
        self._renew_at = 0.0  # seconds since 1970, as a token's end is

    async def token(self) -> OAuthToken:
        """A token that is valid for some time. One that is due for renewal will do as long as there is no better one.

        Raises `BrokerConnectionError` where the callback fails. Cancellation: is that of the callback.
        """
        async with self._asking:
            if self._token is None or time.time() >= self._renew_at:
                await self._renew()
            assert self._token is not None
            return self._token

    async def _renew(self) -> None:
        try:
            given = await _ask(self._config.sasl_oauth_token_provider)
            token = _read(given)
        except Exception as error:  # the program's own code
            old = self._token
            if old is not None and old.expires_at is not None and time.time() < old.expires_at:
                logger.warning(
                    "The token could not be renewed (%s); the one before is still valid.", type(error).__name__
                )
                return
            if isinstance(error, KafkaError):
                raise
            raise BrokerConnectionError(
                f"sasl_oauth_token_provider gave no token; it raised {type(error).__name__}."
            ) from error
        self._token = token
        self._renew_at = self._when(token)

    def _when(self, token: OAuthToken) -> float:
        """As in Java's ExpiringCredentialRefreshingLogin: after a part of its life, not too often and not too late."""
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


async def _ask(provider: Any) -> object:
    call = provider if callable(provider) else provider.token
    given = call()
    return await given if isawaitable(given) else given


def _read(given: object) -> OAuthToken:
    token = OAuthToken(given) if isinstance(given, str | Secret) else given
    if not isinstance(token, OAuthToken):
        raise ConfigError(
            f"sasl_oauth_token_provider returned an object of type {type(given).__name__}; return the token as str, or an "
            f"OAuthToken."
        )
    if token.expires_at is None:
        return OAuthToken(token.value, expires_at=_end_of(token.value), extensions=token.extensions)
    return token


def _end_of(value: Secret) -> float | None:
    """When a JWT says that it ends. Nobody relies on it but for renewing in time, so its signature does not matter here."""
    parts = value.reveal().split(".")
    if len(parts) != 3 or len(parts[1]) > _MOST_OF_A_TOKEN:
        return None
    try:
        claims: Any = json.loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return None
    end: Any = cast("Mapping[str, object]", claims).get("exp") if isinstance(claims, Mapping) else None
    return float(end) if isinstance(end, int | float) else None
