"""Providers of OAuth tokens for programs that name them: OIDC client credentials (KIP-768) and JWT bearer (KIP-1139).

A configuration never leads here. A URL is asked, and a key is used, because the program's own code says so::

    tokens = ClientCredentials("https://idp.example/token", "my-client", secret, scope="kafka")
    Producer("host:9093", security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=tokens)

Tokens are fetched over TLS only, except from this machine; redirects are not followed, for the secret would go along; what
the endpoint says is bounded in size and time and not shown in errors. Needs ``pip install 'aioproducer[oauth]'``.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, cast
from urllib.parse import quote, urlsplit
from uuid import uuid4

from aioproducer.config import OAuthToken, Secret
from aioproducer.errors import BrokerConnectionError, ConfigError

if TYPE_CHECKING:
    import ssl

__all__ = ["ClientCredentials", "JwtBearer"]

_MOST_BYTES: Final = 256 * 1024
_OK: Final = 200
_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"


class ClientCredentials:
    """Asks a token endpoint with a client's id and secret (RFC 6749, 4.4).

    ``timeout`` is in seconds for the whole question; ``verify`` is an SSL context that trusts the endpoint (None: the
    system's authorities); ``urlencode`` percent-encodes id and secret in the header, as RFC 6749 says and some servers
    do not expect. ``extensions`` are told to the brokers with each token.
    """

    def __init__(
        self,
        url: str,
        client_id: str,
        client_secret: str | Secret,
        *,
        scope: str | None = None,
        urlencode: bool = False,
        timeout: float = 10.0,
        verify: ssl.SSLContext | None = None,
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        self._endpoint = _Endpoint(url, timeout, verify, extensions or {})
        self._client_id = client_id
        self._secret = Secret(client_secret)
        self._scope = scope
        self._urlencode = urlencode

    async def token(self) -> OAuthToken:
        """A fresh token. Raises `BrokerConnectionError` where there is none. Cancellation: the question is given up."""
        user, password = self._client_id, self._secret.reveal()
        if self._urlencode:
            user, password = quote(user, safe=""), quote(password, safe="")
        form = {"grant_type": "client_credentials"} | ({"scope": self._scope} if self._scope else {})
        return await self._endpoint.ask(form, (user, password))

    def __repr__(self) -> str:
        return f"<ClientCredentials {self._client_id!r} of {self._endpoint.shown}>"


class JwtBearer:
    """Asks a token endpoint with an assertion that it signs (RFC 7523).

    ``key`` is a private key as PEM text; ``claims`` are put into each assertion, which lives ``life`` seconds.
    """

    def __init__(
        self,
        url: str,
        key: str | Secret,
        *,
        issuer: str,
        subject: str,
        audience: str,
        algorithm: Literal["RS256", "ES256"] = "RS256",
        key_id: str | None = None,
        key_password: str | Secret | None = None,
        claims: Mapping[str, object] | None = None,
        life: float = 300.0,
        scope: str | None = None,
        timeout: float = 10.0,
        verify: ssl.SSLContext | None = None,
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        self._endpoint = _Endpoint(url, timeout, verify, extensions or {})
        self._key = Secret(key)
        self._key_password = None if key_password is None else Secret(key_password)
        self._claims = {"iss": issuer, "sub": subject, "aud": audience, **(claims or {})}
        self._algorithm = algorithm
        self._key_id = key_id
        self._life = life
        self._scope = scope

    async def token(self) -> OAuthToken:
        """A fresh token. Raises `BrokerConnectionError` where there is none, `ConfigError` for a key that cannot be used.

        Cancellation: the question is given up.
        """
        form = {"grant_type": _JWT_BEARER, "assertion": self._assertion()}
        return await self._endpoint.ask(form | ({"scope": self._scope} if self._scope else {}), None)

    def _assertion(self) -> str:
        try:
            import jwt
            from cryptography.hazmat.primitives.serialization import load_pem_private_key
        except ImportError as error:
            raise ConfigError("JwtBearer needs a signer: pip install 'aioproducer[oauth]'.") from error
        now = int(time.time())
        password = None if self._key_password is None else self._key_password.reveal().encode()
        try:
            key: Any = load_pem_private_key(self._key.reveal().encode(), password)
        except (ValueError, TypeError):
            key = None
        if key is None:
            raise ConfigError("The key of JwtBearer cannot be read as a private key in PEM; is key_password right?")
        claims = {"iat": now, "nbf": now - 60, "exp": now + self._life, "jti": str(uuid4()), **self._claims}
        headers = None if self._key_id is None else {"kid": self._key_id}
        return jwt.encode(claims, key, self._algorithm, headers)

    def __repr__(self) -> str:
        return f"<JwtBearer {self._claims['sub']!r} of {self._endpoint.shown}>"


class _Endpoint:
    """Where tokens are issued."""

    def __init__(self, url: str, timeout: float, verify: ssl.SSLContext | None, extensions: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        if not parts.hostname or not (
            parts.scheme == "https" or (parts.scheme == "http" and _is_local(parts.hostname))
        ):
            raise ConfigError(
                "A token endpoint must be an https:// URL: what is said to it must not be read on the way."
            )
        if parts.username is not None or parts.password is not None:
            raise ConfigError("The URL of a token endpoint must have no user name or password in it.")
        self.shown = f"{parts.scheme}://{parts.hostname}{parts.path}"
        self._url = url
        self._timeout = timeout
        self._verify = verify
        self._extensions = extensions

    async def ask(self, form: dict[str, str], auth: tuple[str, str] | None) -> OAuthToken:
        try:
            import httpx
        except ImportError as error:
            raise ConfigError("Asking a token endpoint needs httpx: pip install 'aioproducer[oauth]'.") from error
        import asyncio

        told = bytearray()
        try:
            async with (
                asyncio.timeout(self._timeout),
                httpx.AsyncClient(verify=True if self._verify is None else self._verify, trust_env=False) as client,
                client.stream(
                    "POST",
                    self._url,
                    data=form,
                    auth=auth,
                    headers={"Accept": "application/json"},
                    timeout=self._timeout,
                ) as response,
            ):
                async for piece in response.aiter_bytes():
                    told += piece
                    if len(told) > _MOST_BYTES:
                        raise BrokerConnectionError(f"The token endpoint {self.shown} answered with too much.")
                status = response.status_code
        except (httpx.HTTPError, TimeoutError) as error:
            raise BrokerConnectionError(
                f"The token endpoint {self.shown} could not be asked: {type(error).__name__}."
            ) from error
        if status != _OK:
            raise BrokerConnectionError(f"The token endpoint {self.shown} refused with status {status}{_why(told)}.")
        return self._read(told)

    def _read(self, told: bytearray) -> OAuthToken:
        fields = _object(told)
        token, life = fields.get("access_token"), fields.get("expires_in")
        if not isinstance(token, str) or not token:
            raise BrokerConnectionError(f"The token endpoint {self.shown} answered without an access_token.")
        ends = time.time() + float(life) if isinstance(life, int | float) else None
        return OAuthToken(token, expires_at=ends, extensions=self._extensions)


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _object(told: bytearray) -> Mapping[str, object]:
    import json

    try:
        read: Any = json.loads(told)
    except (ValueError, RecursionError):
        return {}
    return cast("Mapping[str, object]", read) if isinstance(read, dict) else {}


def _why(told: bytearray) -> str:
    """The error code of RFC 6749, 5.2, which is one word; descriptions may hold what was sent."""
    code = _object(told).get("error")
    return f" ({code})" if isinstance(code, str) and code.replace("_", "").isalnum() and len(code) < 60 else ""
