"""The asyncio client of a schema registry (Confluent's REST API)."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import random
import re
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeAlias, TypeVar

from aioproducer.errors import ConfigError, WrongEventLoop
from aioproducer.serializers.schema_registry._api import (
    ACCEPT,
    CONTENT_TYPE,
    Address,
    Advice,
    ApiRequest,
    RegisteredSchema,
    RegistryUnavailable,
    SchemaReference,
    SchemaRegistryError,
    answer_in,
    by_id_request,
    by_version_request,
    id_in,
    invalid_address,
    latest_request,
    look_up_request,
    parse_address,
    refusal,
    register_request,
    registered_in,
    unreachable,
)
from aioproducer.serializers.schema_registry._shared import CLOSED, RecentlyUsed, SingleFlight

if TYPE_CHECKING:
    import ssl

    import httpx

__all__ = ["BearerToken", "SchemaRegistryClient"]

logger = logging.getLogger("aioproducer")

#: A token, or a function, plain or async, that returns the token for the next request.
BearerToken: TypeAlias = str | Callable[[], str | Awaitable[str]]

T = TypeVar("T")

_ROUNDS: Final = 3
_FIRST_PAUSE_S: Final = 0.5
_CACHED: Final = 1000
_MOST_BYTES: Final = 16 * 1024 * 1024
_OK: Final = range(200, 300)
_PLAIN: Final = {"accept-encoding": "identity"}
_OWN_HEADERS: Final = frozenset({"accept-encoding", "content-length", "content-type", "host", "transfer-encoding"})
_ADVICE: Final = Advice(
    login="pass basic_auth=(user, password) or bearer_token=...",
    missing=" auto_register_schemas=True registers it.",
    incompatible="Change the schema, or the subject's compatibility.",
    several=" Pass several addresses as a Python list.",
)

# Replaced by tests.
_clock = time.monotonic
_sleep = asyncio.sleep


class _Latest(NamedTuple):
    schema: RegisteredSchema
    until: float


class SchemaRegistryClient:
    """A client of one schema registry, for one event loop.

    ``url`` may contain user and password; a list of URLs names several servers of the same registry, which are tried in
    turn. The login is ``basic_auth``, or a ``bearer_token`` (a function is called before each request), or the client
    certificate of ``ssl_context``. ``headers`` are added to each request. ``timeout_s`` bounds one request; after a failed
    connection, HTTP status 5xx or 429, or the conflict of two clients that register at the same moment, the next URL is
    tried, in at most three rounds with pauses between them.

    Ids and versions are cached without a time limit (the 1,000 most recently used ones), `latest` for ``latest_ttl_s``
    seconds. Concurrent calls with the same arguments share one request. Redirects are not followed; proxies are used if the
    environment names them (``HTTPS_PROXY``).

    Close it with `close` or ``async with``, after the producers that use it. It can be created outside an event loop, and
    used in another one after its first event loop has ended. Raises `ConfigError` for invalid arguments.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        basic_auth: tuple[str, str] | None = None,
        bearer_token: BearerToken | None = None,
        ssl_context: ssl.SSLContext | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
        latest_ttl_s: float = 300.0,
    ) -> None:
        self._addresses = _addresses(url, basic_auth, bearer_token)
        self._bearer_token = bearer_token
        self._ssl_context = ssl_context
        has_login = bearer_token is not None or any(each.user_info is not None for each in self._addresses)
        self._headers = {"accept": ACCEPT, **_checked_headers(headers or {}, has_login=has_login), **_PLAIN}
        self._timeout_s = _positive("timeout_s", timeout_s)
        self._latest_ttl_s = _positive("latest_ttl_s", latest_ttl_s)
        self._ids: RecentlyUsed[Hashable, int] = RecentlyUsed(_CACHED)
        self._schemas: RecentlyUsed[Hashable, RegisteredSchema] = RecentlyUsed(_CACHED)
        self._latest: RecentlyUsed[str, _Latest] = RecentlyUsed(_CACHED)
        self._first = 0  # the address that responded last
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._flights = SingleFlight()
        self._http: httpx.AsyncClient | None = None
        _httpx()

    async def register(
        self,
        subject: str,
        schema: str,
        *,
        schema_type: str = "AVRO",
        references: Sequence[SchemaReference] = (),
        normalize: bool = False,
    ) -> int:
        """Register the schema under the subject if necessary, and return its id.

        Raises `SchemaRegistryError`, for example if the schema is invalid or incompatible with the existing versions.
        Cancellation: the schema may have been registered or not; other calls that wait for the same id get it.
        """
        key = "register", subject, schema, schema_type, tuple(references), normalize
        found = self._ids.get(key)
        if found is None:
            request = register_request(subject, schema, schema_type, references, normalize=normalize)
            found = await self._once(key, lambda: self._ask(request, id_in))
            self._ids.put(key, found)
        return found

    async def look_up(
        self,
        subject: str,
        schema: str,
        *,
        schema_type: str = "AVRO",
        references: Sequence[SchemaReference] = (),
        normalize: bool = False,
    ) -> int:
        """The id of a schema that is registered under the subject.

        Raises `SchemaRegistryError` if it is not registered there. Cancellation: the request is abandoned.
        """
        found = await self.find(subject, schema, schema_type=schema_type, references=references, normalize=normalize)
        return found.id

    async def find(
        self,
        subject: str,
        schema: str,
        *,
        schema_type: str = "AVRO",
        references: Sequence[SchemaReference] = (),
        normalize: bool = False,
    ) -> RegisteredSchema:
        """The id and version of a schema that is registered under the subject.

        Raises `SchemaRegistryError` if it is not registered there. Cancellation: the request is abandoned.
        """
        key = "find", subject, schema, schema_type, tuple(references), normalize
        request = look_up_request(subject, schema, schema_type, references, normalize=normalize)
        return await self._schema(key, request)

    async def latest(self, subject: str) -> RegisteredSchema:
        """The latest version of the subject, at most ``latest_ttl_s`` seconds old.

        If the registry is unreachable then, the earlier one is used for as long again, with a warning. Raises
        `SchemaRegistryError`, for example if the subject does not exist. Cancellation: the request is abandoned.
        """
        found = self.cached_latest(subject)
        return found if found is not None else await self._once(("latest", subject), lambda: self._refresh(subject))

    def cached_latest(self, subject: str) -> RegisteredSchema | None:
        """The latest version of the subject if `latest` would return it without a request, else None."""
        found = self._latest.get(subject)
        return found.schema if found is not None and _clock() < found.until else None

    async def by_id(self, schema_id: int) -> RegisteredSchema:
        """The schema with this id; its ``version`` is None.

        Raises `SchemaRegistryError` if there is none. Cancellation: the request is abandoned.
        """
        return await self._schema(("id", schema_id), by_id_request(schema_id), schema_id)

    async def by_version(self, subject: str, version: int) -> RegisteredSchema:
        """The schema with this version of the subject, also if the version was deleted (softly).

        Raises `SchemaRegistryError` if there is none. Cancellation: the request is abandoned.
        """
        return await self._schema(("version", subject, version), by_version_request(subject, version))

    async def close(self) -> None:
        """End all requests, whose callers get a `SchemaRegistryError`, and close the connections.

        Cached ids remain available to serializers. Raises `WrongEventLoop` if another event loop uses the client.
        Cancellation: no request goes on, but connections may stay open.
        """
        loop = self._loop
        if loop is not None and not loop.is_closed() and loop is not asyncio.get_running_loop():
            raise WrongEventLoop("The SchemaRegistryClient is used in another event loop: close it there.")
        self._is_closed = True
        http, self._http = self._http, None
        if loop is None or loop.is_closed():  # the connections ended with their event loop
            return
        await self._flights.close()
        if http is not None:
            await http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<SchemaRegistryClient {', '.join(address.url for address in self._addresses)}>"

    async def _schema(self, key: Hashable, request: ApiRequest, schema_id: int | None = None) -> RegisteredSchema:
        found = self._schemas.get(key)
        if found is None:
            found = await self._once(
                key, lambda: self._ask(request, lambda url, answer: registered_in(url, answer, schema_id))
            )
            self._schemas.put(key, found)
        return found

    async def _refresh(self, subject: str) -> RegisteredSchema:
        try:
            found = await self._ask(latest_request(subject), registered_in)
        except RegistryUnavailable as error:
            earlier = self._latest.get(subject)
            if earlier is None:
                raise
            found = earlier.schema
            logger.warning("%s Using version %s of subject %r, fetched earlier.", error, found.version, subject)
        self._latest.put(subject, _Latest(found, _clock() + self._latest_ttl_s))
        return found

    async def _once(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._bind()
        return await self._flights.run(key, work)

    def _bind(self) -> None:
        """Belong to the running event loop; raises `WrongEventLoop` if an earlier one could still use this client."""
        if self._is_closed:
            raise SchemaRegistryError(CLOSED)
        loop = asyncio.get_running_loop()
        if loop is self._loop:
            return
        if self._loop is not None and not self._loop.is_closed():
            raise WrongEventLoop(
                "The SchemaRegistryClient is used in another event loop: create one client for each event loop."
            )
        self._loop, self._flights, self._http = loop, SingleFlight(), None

    async def _ask(self, request: ApiRequest, read: Callable[[str, dict[str, Any]], T]) -> T:
        """Request it from one address after the other until one responds; raises the last error."""
        count = len(self._addresses)
        failed: SchemaRegistryError | None = None
        for attempt in range(_ROUNDS * count):
            if attempt and attempt % count == 0:
                await _sleep(_FIRST_PAUSE_S * 2 ** (attempt // count - 1) * random.uniform(0.5, 1.0))
            number = (self._first + attempt) % count
            address = self._addresses[number]
            try:
                answer = await self._attempt(address, request)
            except SchemaRegistryError as error:
                if not error.retriable:
                    raise
                failed = error
            else:
                self._first = number
                return read(address.url, answer)
        assert failed is not None
        raise failed

    async def _attempt(self, address: Address, request: ApiRequest) -> dict[str, Any]:
        httpx = _httpx()
        http = self._client()
        url = address.url + request.path
        try:
            async with asyncio.timeout(self._timeout_s):
                headers = await self._headers_for(address)
                content = None
                if request.body is not None:
                    headers["content-type"] = CONTENT_TYPE
                    content = json.dumps(request.body).encode()
                async with http.stream(request.method, url, content=content, headers=headers) as response:
                    received = await _read(address.url, response)
        except httpx.LocalProtocolError:  # its text may have the header
            raise SchemaRegistryError(f"A request to the schema registry at {address.url} cannot be written.") from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeError) as error:
            raise invalid_address(address.url, error) from error
        except TimeoutError as error:
            raise unreachable(address.url, f"no response in {self._timeout_s:g} s") from error
        except (httpx.HTTPError, OSError) as error:
            raise unreachable(address.url, str(error).rstrip(".") or type(error).__name__) from error
        if response.status_code not in _OK:
            raise refusal(address.url, response.status_code, response.reason_phrase, received, request, _ADVICE)
        return answer_in(address.url, received)

    def _client(self) -> httpx.AsyncClient:
        if self._http is None:
            verify = True if self._ssl_context is None else self._ssl_context
            try:
                self._http = _httpx().AsyncClient(verify=verify, timeout=self._timeout_s)
            except Exception as error:  # foreign code, which reads the environment; its text may have a login
                raise SchemaRegistryError(
                    f"The schema registry's HTTP client cannot be created ({type(error).__name__}): check SSL_CERT_FILE, "
                    "SSL_CERT_DIR, and the proxies in HTTP_PROXY, HTTPS_PROXY and ALL_PROXY."
                ) from None
        assert self._http is not None
        return self._http

    async def _headers_for(self, address: Address) -> dict[str, str]:
        headers = dict(self._headers)
        if self._bearer_token is not None:
            headers["authorization"] = f"Bearer {await _token(self._bearer_token)}"
        elif address.user_info is not None:
            headers["authorization"] = "Basic " + b64encode(address.user_info.encode()).decode()
        return headers


def _httpx() -> Any:
    try:
        return import_module("httpx")
    except ImportError as error:
        raise ConfigError(
            "SchemaRegistryClient needs httpx: pip install 'aioproducer[avro]', 'aioproducer[json-schema]' or "
            "'aioproducer[protobuf]'."
        ) from error


async def _read(url: str, response: httpx.Response) -> bytes:
    encoding = response.headers.get("content-encoding", "identity")
    if encoding != "identity":  # it was not asked for, and a few bytes could become gigabytes
        raise SchemaRegistryError(f"The server at {url} sent a response that is encoded ({encoding!r}).")
    received = bytearray()
    async for chunk in response.aiter_raw():
        received += chunk
        if len(received) > _MOST_BYTES:
            raise SchemaRegistryError(
                f"The server at {url} is not a schema registry: its response is larger than {_MOST_BYTES} bytes."
            )
    return bytes(received)


async def _token(given: BearerToken) -> str:
    """The token for a request; raises `SchemaRegistryError` if the user's function fails."""
    if isinstance(given, str):
        return given
    try:
        returned = given()
        found: object = await returned if inspect.isawaitable(returned) else returned
    except Exception as error:  # foreign code
        raise SchemaRegistryError(
            f"bearer_token failed for the schema registry: {type(error).__name__}: {error}"
        ) from error
    return _checked_token(found)


def _checked_token(found: object) -> str:
    if isinstance(found, str) and _is_header_value(found):
        return found
    raise SchemaRegistryError(
        f"bearer_token returned an invalid token for the schema registry (type {type(found).__name__}): must be text of "
        f"printable ASCII characters."
    )


def _addresses(
    url: str | Sequence[str], basic_auth: tuple[str, str] | None, bearer_token: object
) -> tuple[Address, ...]:
    urls = (url,) if isinstance(url, str) else tuple(url)
    if not urls:
        raise ConfigError("SchemaRegistryClient needs at least one URL, like http://host:8081.")
    if basic_auth is not None and bearer_token is not None:
        raise ConfigError("basic_auth and bearer_token exclude each other: pass one of them.")
    if isinstance(bearer_token, str) and not _is_header_value(bearer_token):
        raise ConfigError("invalid bearer_token of the schema registry: must be text of printable ASCII characters.")
    user_info = None
    if basic_auth is not None:
        if ":" in basic_auth[0]:
            raise ConfigError("invalid basic_auth of the schema registry: a user's name must not contain ':'.")
        user_info = ":".join(basic_auth)
    found = tuple(parse_address(each, None, _ADVICE) for each in urls)
    if user_info is None and bearer_token is None:
        return found
    if any(address.user_info is not None for address in found):
        raise ConfigError(
            "The URL of the schema registry has a login, and basic_auth or bearer_token another: use one."
        )
    return tuple(Address(address.url, user_info) for address in found)


def _checked_headers(headers: Mapping[str, str], *, has_login: bool) -> dict[str, str]:
    """The headers with names in lower case, as HTTP compares them."""
    found: dict[str, str] = {}
    for name, value in headers.items():
        if re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) is None or not _is_header_value(value):
            raise ConfigError(
                f"invalid header {name!r} for the schema registry: the name must be a word, and the value printable ASCII "
                "text without spaces around it."
            )
        if name.lower() in _OWN_HEADERS or (has_login and name.lower() == "authorization"):
            raise ConfigError(f"The header {name!r} for the schema registry is set by the client: leave it out.")
        found[name.lower()] = value
    return found


def _is_header_value(text: object) -> bool:
    """Whether it can be sent as it is; anything else would be quoted in an error, and may be secret."""
    return isinstance(text, str) and text.isascii() and text.isprintable() and text == text.strip() != ""


def _positive(name: str, value: float) -> float:
    if not value > 0:
        raise ConfigError(f"invalid {name}={value!r}: must be a number of seconds > 0.")
    return value
