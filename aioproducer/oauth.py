"""Providers of OAuth tokens for programs that name them: OIDC client credentials (KIP-768) and JWT bearer (KIP-1139).

A configuration never leads here. A URL is requested, and a key is used, only because the program's own code says so::

    tokens = ClientCredentials("https://idp.example/token", "my-client", secret, scope="kafka")
    Producer("host:9093", security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=tokens)

Tokens are fetched over TLS only, except from this machine. Redirects are not followed, because the secret would be sent
along. Responses are bounded in size and time, and not shown in errors. Needs ``pip install 'aioproducer[oauth]'``.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import time
from base64 import b64encode
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, cast
from urllib.parse import quote, urlencode, urlsplit
from uuid import uuid4

from aioproducer.config import OAuthToken, Secret
from aioproducer.errors import AuthenticationError, BrokerConnectionError, ConfigError
from aioproducer.net.security.blocking import in_thread
from aioproducer.net.security.callbacks import is_utf_8
from aioproducer.net.security.tokens import LATEST, is_number

if TYPE_CHECKING:
    import ssl

__all__ = ["ClientCredentials", "JwtBearer"]

_MOST_BYTES: Final = 256 * 1024
_OK: Final = 200
_REFUSALS: Final = frozenset({400, 401, 403})
_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"


class ClientCredentials:
    """Requests tokens with a client's id and secret (RFC 6749, 4.4).

    ``timeout`` is in seconds, for the whole request; ``verify`` is an SSL context that trusts the endpoint (None: the
    authorities that httpx trusts); ``urlencode`` percent-encodes id and secret in the header, as RFC 6749 says but some
    servers do not expect. ``extensions`` are sent to the brokers with each token.
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
        if not is_utf_8(client_id) or not is_utf_8(self._secret.reveal()):
            raise ConfigError("client_id or client_secret has characters that UTF-8 cannot encode.")
        self._scope = scope
        self._urlencode = urlencode

    async def token(self) -> OAuthToken:
        """A fresh token.

        Raises `AuthenticationError` if the endpoint does not accept the client, `BrokerConnectionError` if it returns no
        token now. Cancellation: the request is abandoned.
        """
        form = {"grant_type": "client_credentials"} | ({"scope": self._scope} if self._scope else {})
        return await self._endpoint.ask(Secret(urlencode(form)), self._basic())

    def _basic(self) -> Secret:
        """The Authorization header (RFC 7617, RFC 6749 2.3.1)."""
        encode = partial(quote, safe="") if self._urlencode else str
        return Secret(
            "Basic " + b64encode(f"{encode(self._client_id)}:{encode(self._secret.reveal())}".encode()).decode()
        )

    def __repr__(self) -> str:
        return f"<ClientCredentials {self._client_id!r} of {self._endpoint.shown}>"


class JwtBearer:
    """Requests tokens with an assertion that it signs (RFC 7523).

    ``key`` is a private key as PEM text; ``claims`` are put into each assertion, which is valid for ``life`` seconds.
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
        """A fresh token; the assertion is signed in a thread.

        Raises `AuthenticationError` if the endpoint does not accept the assertion, `BrokerConnectionError` if it returns no
        token now, `ConfigError` for a key or claims that cannot be used. Cancellation: the request is abandoned.
        """
        return await self._endpoint.ask(await in_thread(self._signed_form), None)

    def _signed_form(self) -> Secret:
        try:
            import jwt
            from cryptography.hazmat.primitives.serialization import load_pem_private_key
        except ImportError as error:
            raise ConfigError("JwtBearer needs a signer: pip install 'aioproducer[oauth]'.") from error
        now = int(time.time())
        try:
            key: Any = load_pem_private_key(
                self._key.reveal().encode(),
                None if self._key_password is None else self._key_password.reveal().encode(),
            )
        except Exception:  # various exceptions; the frames of each hold the key
            key = None
        if key is None:
            raise ConfigError("The key of JwtBearer cannot be read as a private key in PEM; is key_password right?")
        claims = {"iat": now, "nbf": now - 60, "exp": now + self._life, "jti": str(uuid4()), **self._claims}
        headers = None if self._key_id is None else {"kid": self._key_id}
        form = {"grant_type": _JWT_BEARER} | ({"scope": self._scope} if self._scope else {})
        try:
            return Secret(urlencode(form | {"assertion": jwt.encode(claims, key, self._algorithm, headers)}))
        except Exception as error:  # claims that are not JSON, a key of another kind
            kind = type(error).__name__
        raise ConfigError(f"JwtBearer cannot sign its claims with {self._algorithm} and this key: {kind}.")

    def __repr__(self) -> str:
        return f"<JwtBearer {self._claims['sub']!r} of {self._endpoint.shown}>"


class _Endpoint:
    """The endpoint that issues tokens."""

    def __init__(self, url: str, timeout: float, verify: ssl.SSLContext | None, extensions: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        if not parts.hostname or not (
            parts.scheme == "https" or (parts.scheme == "http" and _is_local(parts.hostname))
        ):
            raise ConfigError("A token endpoint must be an https:// URL, because requests hold a secret.")
        if parts.username is not None or parts.password is not None:
            raise ConfigError("The URL of a token endpoint must not contain a user name or password.")
        if parts.query or parts.fragment or "?" in url or "#" in url:
            raise ConfigError(
                "The URL of a token endpoint must have no query: httpx logs it, and it may hold a secret."
            )
        self.shown = f"{parts.scheme}://{parts.hostname}{parts.path}"
        self._url = url
        self._timeout = timeout
        self._verify = verify
        self._extensions = extensions

    async def ask(self, form: Secret, authorization: Secret | None) -> OAuthToken:
        answer = _Answer()
        failed: str | None = None
        try:
            async with asyncio.timeout(self._timeout):
                if self._verify is None:
                    self._verify = await in_thread(_trusted_authorities)
                await self._fetch(form, authorization, answer, self._verify)
        except ImportError as error:
            raise ConfigError("A token endpoint needs httpx: pip install 'aioproducer[oauth]'.") from error
        except Exception as error:  # its request, and the frames of its traceback, hold the secret
            failed = type(error).__name__
        if failed is not None:
            raise BrokerConnectionError(f"The request to the token endpoint {self.shown} failed: {failed}.")
        if answer.fault is not None:
            raise BrokerConnectionError(f"The token endpoint {self.shown} answered {answer.fault}.")
        if answer.status != _OK:
            kind = AuthenticationError if answer.status in _REFUSALS else BrokerConnectionError
            raise kind(
                f"The token endpoint {self.shown} refused the request with status {answer.status}{answer.why()}."
            )
        token = answer.token(self._extensions)
        if token is None:
            raise BrokerConnectionError(f"The token endpoint {self.shown} answered without an access_token.")
        return token

    async def _fetch(self, form: Secret, authorization: Secret | None, answer: _Answer, verify: ssl.SSLContext) -> None:
        import httpx

        headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",  # compressed data may expand to any size
            "Content-Type": "application/x-www-form-urlencoded",
        } | ({} if authorization is None else {"Authorization": authorization.reveal()})
        async with (
            httpx.AsyncClient(verify=verify, trust_env=False) as client,
            client.stream(
                "POST", self._url, content=form.reveal().encode(), headers=headers, timeout=self._timeout
            ) as response,
        ):
            answer.status = response.status_code
            if response.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
                answer.fault = "in an encoding that was not requested"
                return
            async for piece in response.aiter_raw():
                answer.body += piece
                if len(answer.body) > _MOST_BYTES:
                    answer.fault = f"with more than {_MOST_BYTES} bytes"
                    return


class _Answer:
    """An endpoint's response; never shown, because it may be a token."""

    __slots__ = ("body", "fault", "status")

    def __init__(self) -> None:
        self.status = 0
        self.body = bytearray()
        self.fault: str | None = None

    def token(self, extensions: Mapping[str, str]) -> OAuthToken | None:
        fields = _object(self.body)
        token, life = fields.get("access_token"), fields.get("expires_in")
        if not isinstance(token, str) or not token or not is_utf_8(token):
            return None
        # If the lifetime is not a valid number, the token counts as one without an expiry.
        ends = time.time() + life if is_number(life) else None
        return OAuthToken(token, expires_at=ends if ends is None or ends <= LATEST else None, extensions=extensions)

    def why(self) -> str:
        """The error code of RFC 6749, 5.2, which is one word; descriptions may repeat the request."""
        code = _object(self.body).get("error")
        return f" ({code})" if isinstance(code, str) and code.replace("_", "").isalnum() and len(code) < 60 else ""


def _trusted_authorities() -> ssl.SSLContext:
    """Takes a while, because it reads and checks many certificates."""
    import httpx

    return httpx.create_ssl_context(trust_env=False)


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _object(received: bytearray) -> Mapping[str, object]:
    try:
        read: Any = json.loads(received)
    except (ValueError, RecursionError):
        return {}
    return cast("Mapping[str, object]", read) if isinstance(read, dict) else {}
