"""Asks a schema registry for the id of a schema, as Confluent's API has it, with nothing but the standard library."""

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
_TOLD: Final = 500
_NO_SUCH: Final = 404
_ILL: Final = 500
#: The registry's own codes: it has no such subject, version or schema. A page that is missing has none of them.
_NO_SUCH_SCHEMA: Final = (40401, 40402, 40403)


#: The ids that this process was given, by the registry's URL, the subject and the schema.
_KNOWN: Final[dict[tuple[str, str, str], int]] = {}


class SchemaRegistryError(KafkaError):
    """The registry gave no id for a schema; the message says why."""


class _Away(SchemaRegistryError):
    """The registry did not answer, or could not."""


def value_subject(topic: str) -> str:
    """The subject of a topic's values (TopicNameStrategy)."""
    return f"{topic}-value"


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """A registry at ``url``, without user and password, which ``user_info`` is ("user:password")."""

    url: str
    user_info: str | None = field(default=None, repr=False)

    @classmethod
    def at(cls, url: str, user_info: str | None = None) -> SchemaRegistry:
        """Of a URL that may have user and password in it; raises `ConfigError`, which tells neither, for what is no such."""
        _check_url(url)
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
            raise ConfigError("The URL of the schema registry is none: http://host:8081 or https://... is expected.")
        name = f"[{host}]" if ":" in host else host
        plain = urlunsplit((parts.scheme, name if port is None else f"{name}:{port}", parts.path.rstrip("/"), "", ""))
        if user_info is None and parts.username is not None:
            user_info = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        if user_info is not None and ":" not in user_info:
            raise ConfigError("The login of the schema registry is not of the form user:password.")
        return cls(plain, user_info)

    def register(self, subject: str, schema: str) -> int:
        """The id of the schema, which is registered under the subject if it is not yet.

        Asks each time: what was registered once may have been deleted since. Where there is no answer, what this process
        was given before still holds, with a warning: a registry that is away for a minute is no reason for a stream to end.
        Raises `SchemaRegistryError`, as where it is not compatible with the versions that are there.
        """
        key = self.url, subject, schema
        try:
            found = _KNOWN[key] = self._id(f"/subjects/{quote(subject, safe='')}/versions", subject, schema)
        except _Away as error:
            if key not in _KNOWN:
                raise
            found = _KNOWN[key]
            logger.warning(
                "The schema registry at %s did not answer (%s). The schema of %r has the id %d that it gave before.",
                self.url,
                error.__cause__,
                subject,
                found,
            )
        return found

    def look_up(self, subject: str, schema: str) -> int:
        """The id of a schema that is registered under the subject; raises `SchemaRegistryError` where it is not."""
        return self._id(f"/subjects/{quote(subject, safe='')}", subject, schema)

    def _id(self, path: str, subject: str, schema: str) -> int:
        answer = self._ask(path, subject, {"schema": schema})
        found: Any = answer.get("id")
        if not isinstance(found, int) or not 0 <= found < 1 << 31:
            raise SchemaRegistryError(f"What answers at {self.url} is no schema registry: it gave no id of a schema.")
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
                raise kind(self._why(error, subject, *_said_by(error))) from error
        except (UnicodeError, InvalidURL) as error:
            raise SchemaRegistryError(
                f"The schema registry at {self.url} cannot be reached: that is no address, or characters of it have to be "
                f"escaped ({error})."
            ) from error
        except (URLError, OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise _Away(f"The schema registry at {self.url} cannot be reached: {reason}.") from error
        try:
            found: Any = json.loads(content)
        except ValueError as error:
            raise SchemaRegistryError(f"What answers at {self.url} is no schema registry: no JSON came.") from error
        return cast("dict[str, Any]", found) if isinstance(found, dict) else {}

    def _why(self, error: HTTPError, subject: str, code: object, said: str) -> str:
        if error.code == _NO_SUCH and code not in _NO_SUCH_SCHEMA:
            return f"There is no schema registry at {self.url}: {said} Is that its address, with its path?"
        sentence = _MEANINGS.get(error.code, "answered with HTTP status {code} for subject {subject!r}: {told}")
        told = sentence.format(code=error.code, subject=subject, told=said)
        return f"The schema registry at {self.url} {told}"


_PARTS: Final = re.compile(r"[^/?#]*//(?P<authority>[^/?#]*)(?P<rest>.*)", re.DOTALL)
_NEXT_URL: Final = re.compile(r",\s*https?://")


def _check_url(url: str) -> None:
    """Raise `ConfigError` where a URL would be read otherwise than it is meant, without repeating any of it."""
    found = _PARTS.match(url)
    authority, rest = ("", "") if found is None else found.group("authority", "rest")
    if _NEXT_URL.search(url) or "," in authority.rpartition("@")[2]:
        raise ConfigError(
            "The URL of the schema registry has to be one address (http://host:8081), not a list of several."
        )
    if "@" in rest:
        raise ConfigError(
            "The URL of the schema registry has an '@' behind its first '/', '?' or '#', where no login can stand. In user "
            "and password write %2F for '/', %3F for '?' and %23 for '#', or leave them out of the URL and set "
            "schema.registry.basic.auth.user.info=user:password."
        )


#: What a status means, and the way out.
_MEANINGS: Final[Mapping[int, str]] = {
    401: "refuses the login, or wants one: {told} Put user and password into its URL, or set "
    "schema.registry.basic.auth.user.info=user:password.",
    403: "allows nobody with this login to do that for subject {subject!r}: {told}",
    _NO_SUCH: "has no such schema for subject {subject!r}: {told} Was it loaded with the same columns, topic and schema, "
    "and is this the registry that knows it?",
    409: "finds the schema incompatible with the versions that subject {subject!r} has: {told} Change the columns, or the "
    "subject's compatibility.",
    422: "finds the schema invalid: {told}",
}


def _said_by(error: HTTPError) -> tuple[object, str]:
    """The registry's own code (None: it gave none), and what it said, of its own or as HTTP does."""
    code: object = None
    said = str(error.reason)
    try:
        content: Any = json.loads(error.read(1 << 20))
        code, said = content.get("error_code"), str(content["message"])
    except (ValueError, LookupError, TypeError, AttributeError, OSError, HTTPException):
        pass
    return code, said[:_TOLD].rstrip(".") + "."


class _NoRedirect(HTTPRedirectHandler):
    """A redirect is an answer like others: the login is not taken to where it leads."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        return None
