"""Asks a schema registry with Confluent's API for the id of a schema, using only the standard library."""

from __future__ import annotations

import base64
import json
import logging
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPException, InvalidURL
from typing import IO, Any, Final
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from aioproducer.serializers.schema_registry._api import (
    ACCEPT,
    CONTENT_TYPE,
    Advice,
    ApiRequest,
    RegistryUnavailable,
    SchemaRegistryError,
    answer_in,
    id_in,
    invalid_address,
    look_up_request,
    parse_address,
    refusal,
    register_request,
    unreachable,
    value_subject,
)

__all__ = ["SchemaRegistry", "SchemaRegistryError", "value_subject"]

logger = logging.getLogger("aioproducer")

_TIMEOUT: Final = 30.0
_MAX_ERROR: Final = 1 << 20
_ADVICE: Final = Advice(
    login="set schema.registry.basic.auth.user.info=user:password",
    missing=" Was the topic loaded with the same columns and schema, and with this registry?",
    incompatible="Change the columns, or the subject's compatibility.",
)

#: The ids that this process got, by the registry's URL, the subject and the schema.
_KNOWN: Final[dict[tuple[str, str, str], int]] = {}


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
        address = parse_address(url, user_info, _ADVICE)
        return cls(address.url, address.user_info)

    def register(self, subject: str, schema: str) -> int:
        """Register the schema under the subject if necessary, and return its id.

        Asks each time, since a registered schema may have been deleted. If the registry is unreachable, the id that this
        process got before is used, with a warning: a short outage of the registry must not end a stream. Raises
        `SchemaRegistryError`, for example if the schema is incompatible with the existing versions.
        """
        key = self.url, subject, schema
        try:
            found = _KNOWN[key] = self._registered(register_request(subject, schema))
        except RegistryUnavailable as error:
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

    def _registered(self, request: ApiRequest) -> int:
        try:
            return self._id(request)
        except RegistryUnavailable:
            raise
        except SchemaRegistryError as error:
            if not error.retriable or error.status != HTTPStatus.CONFLICT:
                raise
        return self._id(request)  # another client has registered it at the same moment

    def look_up(self, subject: str, schema: str) -> int:
        """The id of a schema that is registered under the subject; raises `SchemaRegistryError` if it is not."""
        return self._id(look_up_request(subject, schema))

    def _id(self, request: ApiRequest) -> int:
        return id_in(self.url, answer_in(self.url, self._ask(request)))

    def _ask(self, asked: ApiRequest) -> bytes:
        headers = {"Content-Type": CONTENT_TYPE, "Accept": ACCEPT}
        if self.user_info is not None:
            headers["Authorization"] = "Basic " + base64.b64encode(self.user_info.encode()).decode()
        request = Request(self.url + asked.path, json.dumps(asked.body).encode(), headers, method=asked.method)
        try:
            with build_opener(_NoRedirect).open(request, timeout=_TIMEOUT) as response:
                content: bytes = response.read()
        except HTTPError as error:
            with error:
                raise refusal(self.url, error.code, str(error.reason), _content_of(error), asked, _ADVICE) from error
        except (UnicodeError, InvalidURL) as error:
            raise invalid_address(self.url, error) from error
        except (URLError, OSError, HTTPException) as error:
            raise unreachable(self.url, getattr(error, "reason", None) or error) from error
        return content


def _content_of(error: HTTPError) -> bytes:
    try:
        return error.read(_MAX_ERROR)
    except (OSError, HTTPException):
        return b""


class _NoRedirect(HTTPRedirectHandler):
    """Treats a redirect as an error, so that the login is not sent elsewhere."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        return None
