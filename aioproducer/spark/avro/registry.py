"""Asks a schema registry with Confluent's API for the id of a schema, using only the standard library."""

from __future__ import annotations

import base64
import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException, InvalidURL
from typing import IO, Any, Final, cast
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from aioproducer.errors import ConfigError, KafkaError

__all__ = ["SchemaRegistry", "SchemaRegistryError", "value_subject"]

logger = logging.getLogger("aioproducer")

_TIMEOUT: Final = 30.0
_CONTENT: Final = "application/vnd.schemaregistry.v1+json"
_MAX_REASON: Final = 500
_NO_SUCH: Final = 404
_ILL: Final = 500
#: The registry's own codes for an unknown subject, version or schema. A missing page has none of them.
_NO_SUCH_SCHEMA: Final = (40401, 40402, 40403)


#: The ids that this process got, by the registry's URL, the subject and the schema.
_KNOWN: Final[dict[tuple[str, str, str], int]] = {}


class SchemaRegistryError(KafkaError):
    """The registry returned no id for a schema; the message says why."""


class _Away(SchemaRegistryError):
    """The registry is unreachable or unavailable."""


def value_subject(topic: str) -> str:
    """The subject of a topic's values (TopicNameStrategy)."""
    return f"{topic}-value"


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """A registry at ``url``, which has no login; ``user_info`` is the login ("user:password")."""

    url: str
    user_info: str | None = field(default=None, repr=False)

    @classmethod
    def at(cls, url: str, user_info: str | None = None) -> SchemaRegistry:
        """Return the registry at a URL, which may contain user and password.

        Raises `ConfigError`, without repeating them, if the URL is invalid.
        """
        _check_url(url)
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
            raise ConfigError("invalid URL of the schema registry: must be like http://host:8081 or https://...")
        name = f"[{host}]" if ":" in host else host
        plain = urlunsplit((parts.scheme, name if port is None else f"{name}:{port}", parts.path.rstrip("/"), "", ""))
        if user_info is None and parts.username is not None:
            user_info = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        if user_info is not None and ":" not in user_info:
            raise ConfigError("invalid login of the schema registry: must be user:password.")
        return cls(plain, user_info)

    def register(self, subject: str, schema: str) -> int:
        """Register the schema under the subject if necessary, and return its id.

        Asks each time, since a registered schema may have been deleted. If the registry is unreachable, the id that this
        process got before is used, with a warning: a short outage of the registry must not end a stream. Raises
        `SchemaRegistryError`, for example if the schema is incompatible with the existing versions.
        """
        key = self.url, subject, schema
        try:
            found = _KNOWN[key] = self._id(f"/subjects/{quote(subject, safe='')}/versions", subject, schema)
        except _Away as error:
            if key not in _KNOWN:
                raise
            found = _KNOWN[key]
            logger.warning(
                "The schema registry at %s did not answer (%s). Using its earlier id for the schema of %r: %d.",
                self.url,
                error.__cause__,
                subject,
                found,
            )
        return found

    def look_up(self, subject: str, schema: str) -> int:
        """The id of a schema that is registered under the subject; raises `SchemaRegistryError` if it is not."""
        return self._id(f"/subjects/{quote(subject, safe='')}", subject, schema)

    def _id(self, path: str, subject: str, schema: str) -> int:
        answer = self._ask(path, subject, {"schema": schema})
        found: Any = answer.get("id")
        if not isinstance(found, int) or not 0 <= found < 1 << 31:
            raise SchemaRegistryError(
                f"The server at {self.url} is not a schema registry: its response has no schema id."
            )
        return found

    def _ask(self, path: str, subject: str, body: Mapping[str, Any]) -> dict[str, Any]:
        headers = {"Content-Type": _CONTENT, "Accept": f"{_CONTENT}, application/json"}
        if self.user_info is not None:
            headers["Authorization"] = "Basic " + base64.b64encode(self.user_info.encode()).decode()
        request = Request(self.url + path, json.dumps(body).encode(), headers, method="POST")
        try:
            with build_opener(_NoRedirect).open(request, timeout=_TIMEOUT) as response:
                content = response.read()
        except HTTPError as error:
            kind = _Away if error.code >= _ILL else SchemaRegistryError
            with error:
                raise kind(self._why(error, subject, *_error_in(error))) from error
        except (UnicodeError, InvalidURL) as error:
            raise SchemaRegistryError(
                f"Could not connect to the schema registry at {self.url}: the address is invalid, or characters of it have "
                f"to be escaped ({error})."
            ) from error
        except (URLError, OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise _Away(f"Could not connect to the schema registry at {self.url}: {reason}.") from error
        try:
            found: Any = json.loads(content)
        except ValueError as error:
            raise SchemaRegistryError(
                f"The server at {self.url} is not a schema registry: it did not send JSON."
            ) from error
        return cast("dict[str, Any]", found) if isinstance(found, dict) else {}

    def _why(self, error: HTTPError, subject: str, code: object, said: str) -> str:
        if error.code == _NO_SUCH and code not in _NO_SUCH_SCHEMA:
            return f"There is no schema registry at {self.url}: {said} Check the address and its path."
        sentence = _MEANINGS.get(error.code, "answered with HTTP status {code} for subject {subject!r}: {message}")
        text = sentence.format(code=error.code, subject=subject, message=said)
        return f"The schema registry at {self.url} {text}"


_PARTS: Final = re.compile(r"[^/?#]*//(?P<authority>[^/?#]*)(?P<rest>.*)", re.DOTALL)
_NEXT_URL: Final = re.compile(r",\s*https?://")


def _check_url(url: str) -> None:
    """Raise `ConfigError` for a URL that would be misread, without repeating any of it."""
    found = _PARTS.match(url)
    authority, rest = ("", "") if found is None else found.group("authority", "rest")
    if _NEXT_URL.search(url) or "," in authority.rpartition("@")[2]:
        raise ConfigError("The URL of the schema registry must be one address (http://host:8081), not a list.")
    if "@" in rest:
        raise ConfigError(
            "The URL of the schema registry has an '@' after its first '/', '?' or '#', where a login is not allowed. In "
            "user and password write %2F for '/', %3F for '?' and %23 for '#', or leave them out of the URL and set "
            "schema.registry.basic.auth.user.info=user:password."
        )


#: The meaning of a status, and what to do.
_MEANINGS: Final[Mapping[int, str]] = {
    401: "rejects the login, or requires one: {message} Put user and password into its URL, or set "
    "schema.registry.basic.auth.user.info=user:password.",
    403: "does not permit this login to do that for subject {subject!r}: {message}",
    _NO_SUCH: "does not have this schema for subject {subject!r}: {message} Was the topic loaded with the same columns and "
    "schema, and with this registry?",
    409: "rejects the schema as incompatible with the versions of subject {subject!r}: {message} Change the columns, or the "
    "subject's compatibility.",
    422: "rejects the schema as invalid: {message}",
}


def _error_in(error: HTTPError) -> tuple[object, str]:
    """The registry's own error code (None: it sent none), and its message or the one of HTTP."""
    code: object = None
    said = str(error.reason)
    try:
        content: Any = json.loads(error.read(1 << 20))
        code, said = content.get("error_code"), str(content["message"])
    except (ValueError, LookupError, TypeError, AttributeError, OSError, HTTPException):
        pass
    return code, said[:_MAX_REASON].rstrip(".") + "."


class _NoRedirect(HTTPRedirectHandler):
    """Treats a redirect as an error, so that the login is not sent elsewhere."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        return None
